"""Small files in formats of others, and what their own programs read from them: python data.py

NumPy's .npy and .npz, and pandas' types, means and deviations of a CSV file.
"""

import json
import pathlib

import numpy as np
import pandas as pd

FOLDER = pathlib.Path(__file__).parent / "data"
FOLDER.mkdir(exist_ok=True)
random = np.random.default_rng(16)

# Arrays.
np.save(FOLDER / "f8.npy", np.linspace(-1, 1, 12).reshape(4, 3))
np.save(FOLDER / "f2_big_endian.npy", np.array([[0.5, -2.0], [65504.0, 6e-8]], dtype=">f2"))
np.save(FOLDER / "fortran.npy", np.asfortranarray(np.arange(6.0).reshape(2, 3)))
images = random.integers(0, 256, (6, 3, 4), dtype=np.uint8)
labels = np.array([2, 0, 1, 1, 0, 2], dtype=np.int64)
parts = {"x_train": images[:4], "y_train": labels[:4], "x_test": images[4:], "y_test": labels[4:]}
np.savez(FOLDER / "parts.npz", **parts)
np.savez_compressed(FOLDER / "parts_compressed.npz", **parts)

# A table.
size = 20
table = pd.DataFrame({
    "area": random.normal(80, 20, size).round(2),
    "rooms": random.integers(1, 6, size),
    "city": random.choice(["Paris", "Lyon", "Aix, Sud"], size),
    "garden": random.choice([True, False], size),
    "price": random.normal(3e5, 5e4, size).round(),
})
table.to_csv(FOLDER / "houses.csv", index=False)
numbers = ["area", "rooms", "price"]
scaled = (table[numbers] - table[numbers].mean()) / table[numbers].std(ddof=0)
one_hot = pd.get_dummies(table["city"]).astype(float)
inputs = pd.concat([scaled[["area", "rooms"]], one_hot, table[["garden"]].astype(float)], axis=1)
expected = {
    "images": images.tolist(),
    "labels": labels.tolist(),
    "inputs": inputs.to_numpy().tolist(),
    "prices": scaled["price"].tolist(),
    "cities": list(one_hot.columns),
    "means": table[numbers].mean().tolist(),
    "stds": table[numbers].std(ddof=0).tolist(),
}
(FOLDER / "expected.json").write_text(json.dumps(expected) + "\n")
try:
    table.to_parquet(FOLDER / "houses.parquet", index=False, compression="snappy", row_group_size=7)
except ImportError:
    print("no pyarrow: houses.parquet stays")

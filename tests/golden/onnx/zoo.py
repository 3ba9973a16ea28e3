"""Checks the built-in models as ONNX against onnxruntime: `python zoo.py FOLDER`.

`TIGHTFIT_ONNX_ZOO=FOLDER cargo test --release --test library the_zoo_is_written` writes the folder.
"""

import pathlib
import sys

import numpy as np
import onnx
import onnxruntime

TYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(uint8)": np.uint8}


def main():
    folder = pathlib.Path(sys.argv[1])
    wrong = 0
    for path in sorted(folder.glob("*.onnx")):
        name = path.name.split(".")[0]
        onnx.checker.check_model(str(path), full_check=True)
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        (given,) = session.get_inputs()
        x = np.fromfile(folder / f"{name}.input", TYPES[given.type]).reshape(2, *given.shape[1:])
        expected = np.fromfile(folder / f"{name}.output", np.float32)
        (found,) = session.run(None, {given.name: x})
        difference = np.abs(found.ravel() - expected).max() / max(1.0, np.abs(expected).max())
        # The batch is free: one sample alone is the same.
        (alone,) = session.run(None, {given.name: x[:1]})
        alone = np.abs(alone - found[:1]).max() / max(1.0, np.abs(expected).max())
        wrong += difference > 1e-4 or alone > 1e-4
        print(f"{path.name}: {difference:.1e}, one sample {alone:.1e}")
    sys.exit(bool(wrong))


main()

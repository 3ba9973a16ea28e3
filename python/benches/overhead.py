"""What a step costs more in Python than in the command, on the same data and model, in turns.

    python overhead.py --command target/release/tightfit --data MNIST [--model mnist-cnn] [--batch 64] [--rounds 5] [--epochs 3] [--device cpu]

Each round trains some epochs with one, then with the other, and times each epoch but the first. The last lines are the ratio of the median epochs and
of the fastest: on a machine that others use, too, the second says more.
"""

import argparse
import gzip
import json
import statistics
import subprocess
import time
from pathlib import Path

import numpy as np

import tightfit as tf_


def read(folder: Path, name: str) -> np.ndarray:
    """A file of MNIST: its header says the axes."""
    plain = folder / name
    data = plain.read_bytes() if plain.exists() else gzip.decompress((folder / f"{name}.gz").read_bytes())
    rank = data[3]
    shape = [int.from_bytes(data[4 + 4 * axis : 8 + 4 * axis], "big") for axis in range(rank)]
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(shape)


def of_command(arguments: argparse.Namespace) -> list[float]:
    command = [arguments.command, "train", arguments.model, "--data", arguments.data, "--batch", str(arguments.batch), "--epochs", str(arguments.epochs)]
    command += ["--device", arguments.device, "--lr", "0.001", "--json"]
    ends = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        for line in process.stdout:
            if json.loads(line).get("event") == "epoch":
                ends.append(time.perf_counter())
    if process.returncode != 0 or len(ends) != arguments.epochs:
        raise SystemExit(f"{' '.join(command)} failed")
    return between(ends)


def between(ends: list[float]) -> list[float]:
    return [end - start for start, end in zip(ends, ends[1:])]


class Clock(tf_.Callback):
    def __init__(self):
        self.ends = []

    def on_epoch_end(self, epoch, logs=None):
        self.ends.append(time.perf_counter())


def of_python(arguments: argparse.Namespace, x: np.ndarray, y: np.ndarray) -> list[float]:
    model = tf_.Model.builtin(arguments.model)
    model.compile(optimizer={"kind": "adam", "lr": 0.001}, metrics=["accuracy"], device=arguments.device)
    clock = Clock()
    model.fit(x.reshape(-1, *model.input_shape), y, batch_size=arguments.batch, epochs=arguments.epochs, verbose=0, callbacks=[clock])
    return between(clock.ends)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--model", default="mnist-cnn")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=3, help="of each training, at least 2")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    x, y = (read(Path(arguments.data), f"train-{name}") for name in ("images-idx3-ubyte", "labels-idx1-ubyte"))
    # As the command reads them: what is timed must be the same graph.
    x = x.astype(np.float32) / 255
    steps = -(-len(x) // arguments.batch)
    sides = {"command": lambda: of_command(arguments), "Python": lambda: of_python(arguments, x, y)}
    times = {name: [] for name in sides}
    for number in range(arguments.rounds):
        for name in sorted(sides, reverse=number % 2 == 1):
            epochs = sides[name]()
            times[name] += epochs
            print(f"round {number + 1}: {name}", *(f"{1000 * epoch / steps:.3f}" for epoch in epochs), "ms a step", flush=True)
    for word, of in (("median", statistics.median), ("fastest", min)):
        command, python = of(times["command"]), of(times["Python"])
        print(f"{word}: command {1000 * command / steps:.3f} ms a step, Python {1000 * python / steps:.3f}, ratio {python / command:.4f}")


if __name__ == "__main__":
    main()

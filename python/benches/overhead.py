"""What a step costs more in Python than in the command, on the same data and model, in turns.

    python overhead.py --command target/release/tightfit --data MNIST [--model mnist-cnn] [--batch 64] [--rounds 5] [--device cpu]

Each round trains two epochs with the command, then two in Python, and takes the time from the end of the first epoch to the end of the second. The
last line is the median of the rounds' ratios.
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


def of_command(arguments: argparse.Namespace) -> float:
    command = [arguments.command, "train", arguments.model, "--data", arguments.data, "--batch", str(arguments.batch), "--epochs", "2"]
    command += ["--device", arguments.device, "--lr", "0.001", "--json"]
    ends = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        for line in process.stdout:
            if json.loads(line).get("event") == "epoch":
                ends.append(time.perf_counter())
    if process.returncode != 0 or len(ends) != 2:
        raise SystemExit(f"{' '.join(command)} failed")
    return ends[1] - ends[0]


class Clock(tf_.Callback):
    def __init__(self):
        self.ends = []

    def on_epoch_end(self, epoch, logs=None):
        self.ends.append(time.perf_counter())


def of_python(arguments: argparse.Namespace, x: np.ndarray, y: np.ndarray) -> float:
    model = tf_.Model.builtin(arguments.model)
    model.compile(optimizer={"kind": "adam", "lr": 0.001}, metrics=["accuracy"], device=arguments.device)
    clock = Clock()
    model.fit(x.reshape(-1, *model.input_shape), y, batch_size=arguments.batch, epochs=2, verbose=0, callbacks=[clock])
    return clock.ends[1] - clock.ends[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--model", default="mnist-cnn")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    x, y = (read(Path(arguments.data), f"train-{name}") for name in ("images-idx3-ubyte", "labels-idx1-ubyte"))
    steps = -(-len(x) // arguments.batch)
    ratios = []
    for number in range(arguments.rounds):
        command, python = of_command(arguments), of_python(arguments, x, y)
        ratios.append(python / command)
        print(f"round {number + 1}: command {1000 * command / steps:.3f} ms a step, Python {1000 * python / steps:.3f}, ratio {ratios[-1]:.4f}", flush=True)
    print(f"median {statistics.median(ratios):.4f}")


if __name__ == "__main__":
    main()

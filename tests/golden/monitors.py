"""Writes monitors.json: early stopping from Keras, the reduction of learning rates on a plateau and averages of parameters from
PyTorch.

    python monitors.py

Values are random walks in coarse steps, so that ties are many, with values that are no numbers among them.

Averages: the first equals the first parameters; each later one is `average + (1 - decay) * (parameter - average)`, in float32.
"""

import json
import math
import os
import random
import warnings
from pathlib import Path

os.environ["KERAS_BACKEND"] = "torch"

import keras
import torch
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from common import check_version

FOLDER = Path(__file__).parent


def walk(rng, steps, no_numbers):
    """Values that rise and fall in steps that float32, in which Keras compares, holds in full; the first is a number."""
    value, values = rng.choice([-1.0, 1.0, 3.0]), []
    for step in range(steps):
        value += rng.choice([-0.25, -0.125, -1 / 128, 0.0, 0.0, 1 / 128, 0.125, 0.25])
        values.append(float("nan") if step > 0 and rng.random() < no_numbers else value)
    return values


def plain(values):
    """JSON knows no NaN."""
    return [None if math.isnan(value) else value for value in values]


class Stoppable:
    """What a Keras callback asks of a model."""

    stop_training = False

    def get_weights(self):
        return []


def early_stopping(rng, case):
    mode = rng.choice(["min", "max"])
    settings = {
        "monitor": "val_loss",
        "mode": mode,
        "min_delta": rng.choice([0.0, 0.0, 0.0625, 0.125]),
        "patience": rng.choice([0, 1, 2, 3, 5]),
        "baseline": rng.choice([None, None, 0.0, 1.0, 2.5]),
        "start_from_epoch": rng.choice([0, 0, 1, 4]),
        "restore_best": True,
    }
    values = walk(rng, 40, rng.choice([0.0, 0.1]))
    if math.isnan(values[settings["start_from_epoch"]]):
        # Keras takes what is no number for the best where it comes first.
        values[settings["start_from_epoch"]] = 1.0
    given = {**settings, "restore_best_weights": settings["restore_best"]}
    del given["restore_best"]
    callback = keras.callbacks.EarlyStopping(**given)
    callback.set_model(Stoppable())
    callback.on_train_begin()
    states = []
    for epoch, value in enumerate(values):
        callback.on_epoch_end(epoch, {"val_loss": value})
        best = None if callback.best is None else float(callback.best)
        stop = callback.model.stop_training
        states.append([best, callback.best_epoch if best is not None else 0, callback.wait, stop])
        if stop:
            break
    return {"case": case, "settings": settings, "values": plain(values[: len(states)]), "states": states}


def plateau(rng, case):
    settings = {
        "mode": rng.choice(["min", "max"]),
        "factor": rng.choice([0.1, 0.5, 0.3]),
        "patience": rng.choice([0, 1, 2, 4]),
        "threshold": rng.choice([1e-4, 0.0, 0.1]),
        "threshold_mode": rng.choice(["rel", "abs"]),
        "cooldown": rng.choice([0, 0, 1, 3]),
        "min_lr": rng.choice([0.0, 0.01, 0.003]),
        "eps": rng.choice([1e-8, 1e-3]),
    }
    values = walk(rng, 60, rng.choice([0.0, 0.1]))
    if rng.random() < 0.2:
        values[0] = float("nan")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.3)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, **settings)
    states = []
    for value in values:
        scheduler.step(value)
        best = scheduler.best if math.isfinite(scheduler.best) else None
        lr = optimizer.param_groups[0]["lr"]
        states.append([best, scheduler.num_bad_epochs, scheduler.cooldown_counter, lr])
    settings = {"monitor": "val_loss", **settings}
    return {"case": case, "settings": settings, "lr": 0.3, "values": plain(values), "states": states}


def ema(decay, case):
    generator = torch.Generator().manual_seed(1)
    model = torch.nn.Linear(3, 2, bias=False)
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))
    parameters, averages = [], []
    for _ in range(12):
        with torch.no_grad():
            model.weight.copy_(torch.randn(2, 3, generator=generator))
        averaged.update_parameters(model)
        for kept, module in ((parameters, model), (averages, averaged.module)):
            kept.append([float("%.9g" % value) for value in module.weight.flatten().tolist()])
    return {"case": case, "decay": decay, "parameters": parameters, "averages": averages}


def main():
    check_version()
    warnings.simplefilter("ignore")
    rng = random.Random(1)
    result = {
        "early_stopping": [early_stopping(rng, f"early_stopping_{i}") for i in range(40)],
        "plateau": [plateau(rng, f"plateau_{i}") for i in range(40)],
        "ema": [ema(decay, f"ema_{decay}") for decay in (0.0, 0.3, 0.9, 0.999)],
    }
    parts = []
    for name, entries in result.items():
        lines = ",\n".join(json.dumps(entry, separators=(",", ":"), allow_nan=False) for entry in entries)
        parts.append(f'"{name}": [\n{lines}\n]')
    (FOLDER / "monitors.json").write_text("{\n" + ",\n".join(parts) + "\n}\n")


if __name__ == "__main__":
    main()

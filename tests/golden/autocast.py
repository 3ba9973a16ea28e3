"""Writes autocast.json: losses of 50 steps of `resnet18_cifar` under PyTorch, in float32 and under its autocast in bfloat16.

Parameters, samples and labels are those of recipe.py: `input.0` and `target.0` are the first of the batches, which come again
and again. `settings` says what the optimizer is. Without instructions for bfloat16, a CPU takes ten minutes or more.
"""

import json
from pathlib import Path

import torch
import torch.nn.functional as F

import recipe
from common import check_version
from models import compact, digits, prepared

STEPS, BATCHES, BATCH = 50, 5, 4
SETTINGS = {"lr": 0.002, "momentum": 0.9}


def losses(dtype):
    model = prepared("resnet18_cifar", torch.float32)
    optimizer = torch.optim.SGD(model.parameters(), **SETTINGS)
    batches = [
        (recipe.symmetric(f"input.{i}", (BATCH, 3, 32, 32)), recipe.below(f"target.{i}", (BATCH,), 10)) for i in range(BATCHES)
    ]
    found = []
    for step in range(STEPS):
        inputs, targets = batches[step % BATCHES]
        with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
            loss = F.cross_entropy(model(inputs).float(), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(digits(loss.item()))
    return found


def main():
    check_version()
    runs = {"f32": torch.float32, "bf16": torch.bfloat16}
    result = {"batch": BATCH, "batches": BATCHES, "settings": SETTINGS} | {name: losses(dtype) for name, dtype in runs.items()}
    lines = ",\n".join(f'"{key}":{compact(value)}' for key, value in result.items())
    (Path(__file__).parent / "autocast.json").write_text("{" + lines + "}\n")


if __name__ == "__main__":
    main()

"""Writes models/<name>.json: what the built-in models compute under PyTorch.

    python models.py [NAME…]

Models are those of references.py, all numbers those of recipe.py: parameters by their names, the samples `input`, the
targets `target`, and for each tensor x that is summed up the probe `probe.x`. Running statistics start as PyTorch's.

A file has, of one batch in training mode, in float64:

* `loss`: mean cross-entropy over everything that has a label, or mean squared error.
* `output`: the model's. It is summed up, as all tensors, by its norm, its dot product with its probe, and its first 4
  values (the output: 8).
* `state`: the state dict in order. For a parameter: name, shape, then the gradient's norm, dot product and first
  values, and how far PyTorch's own gradient in float32 is away. For running statistics the same, of their values after
  the step. For a number of batches only name and shape.
* `float32`: how far away the loss and the output are in float32, and all gradients together.

How far away means the norm of the difference over the norm of the float64 value. Where a parameter has no influence, such
as the bias of a norm that only another norm sees, that is a large number: rounding over next to nothing.

`training`, in some files, is ten steps on one batch: the losses before each step, and after all of them the loss in
evaluation mode, in float64 and float32.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import recipe
from common import check_version
from references import MAKERS, make

FOLDER = Path(__file__).parent / "models"
STEPS = 10


class Task:
    """What a model is given: shape of a sample, number of classes (None: values), tokens below `tokens`."""

    def __init__(self, batch, sample, target=(), classes=None, tokens=None):
        self.batch, self.sample, self.target, self.classes, self.tokens = batch, sample, target, classes, tokens

    def inputs(self, batch, dtype):
        shape = (batch, *self.sample)
        if self.tokens:
            return recipe.below("input", shape, self.tokens)
        return recipe.symmetric("input", shape).to(dtype)

    def targets(self, batch, dtype):
        shape = (batch, *self.target)
        if self.classes:
            return recipe.below("target", shape, self.classes)
        return recipe.symmetric("target", shape).to(dtype)

    def loss(self, output, target):
        if not self.classes:
            return F.mse_loss(output, target)
        if self.tokens:
            output = output.transpose(1, 2)
        return F.cross_entropy(output, target)


def images(batch, size, classes=1000):
    return Task(batch, (3, size, size), classes=classes)


def masks(batch, size):
    return Task(batch, (3, size, size), target=(size, size), classes=2)


def text(batch):
    return Task(batch, (64,), target=(64,), classes=96, tokens=96)


TASKS = {
    "lenet": Task(4, (1, 28, 28), classes=10),
    "resnet18_cifar": images(4, 32, classes=10),
    "resnet18": images(4, 64),
    "resnet34": images(4, 64),
    "resnet50": images(4, 64),
    "resnet101": images(4, 64),
    "vgg16": images(4, 64),
    "mobilenet_v2": images(4, 64),
    "mobilenet_v3_small": images(4, 64),
    "mobilenet_v3_large": images(4, 64),
    "efficientnet_b0": images(4, 64),
    "densenet121": images(4, 64),
    "unet": masks(2, 64),
    "unet_small": masks(2, 64),
    "lstm_forecaster": Task(4, (48, 1), target=(1,)),
    "char_lstm": text(4),
    "gpt": text(4),
}

SGD = {"kind": "sgd", "lr": 0.05, "momentum": 0.9}
ADAM = {"kind": "adam", "lr": 1e-3}
TRAININGS = {
    "resnet18_cifar": (8, SGD),
    "mobilenet_v3_small": (8, ADAM),
    "unet_small": (4, ADAM),
    "lstm_forecaster": (16, ADAM),
}


def prepared(name, dtype):
    model = make(name)
    with torch.no_grad():
        for key, value in model.named_parameters():
            value.copy_(recipe.parameter(key, value.shape))
    return model.to(dtype)


def step(name, task, dtype):
    """Loss, output, gradients and buffers of one batch."""
    model = prepared(name, dtype)
    output = model(task.inputs(task.batch, dtype))
    loss = task.loss(output, task.targets(task.batch, dtype))
    loss.backward()
    gradients = {key: value.grad for key, value in model.named_parameters()}
    shapes = [(key, list(value.shape)) for key, value in model.state_dict().items()]
    return loss.detach(), output.detach(), gradients, dict(model.named_buffers()), shapes


def away(x, exact):
    difference, norm = (x.double() - exact).norm().item(), exact.norm().item()
    return difference / norm if norm else difference


def dot(x, probe):
    """In pieces: the largest gradient in float64 is a gigabyte without its probe."""
    pieces = zip(x.flatten().split(1 << 22), probe.flatten().split(1 << 22))
    return sum((a.double() @ b.double()).item() for a, b in pieces)


def digits(value, count=7):
    return float(f"%.{count}g" % value)


def summed_up(name, x, first=4):
    probe = recipe.symmetric(f"probe.{name}", x.shape)
    return [digits(x.norm()), digits(dot(x, probe)), [digits(v) for v in x.flatten()[:first].tolist()]]


def train(name, task, dtype):
    batch, settings = TRAININGS[name]
    model = prepared(name, dtype)
    if settings["kind"] == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), lr=settings["lr"], momentum=settings["momentum"])
    else:
        optimizer = torch.optim.Adam(model.parameters(), lr=settings["lr"])
    inputs, targets = task.inputs(batch, dtype), task.targets(batch, dtype)
    losses = []
    for _ in range(STEPS):
        loss = task.loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        losses.append(task.loss(model.eval()(inputs), targets).item())
    return losses


def describe(name):
    task = TASKS[name]
    loss, output, gradients, buffers, shapes = step(name, task, torch.float64)
    loss32, output32, gradients32, buffers32, _ = step(name, task, torch.float32)
    rows, difference, total, worst = [], 0.0, 0.0, (0.0, "")
    for key, shape in shapes:
        row = [key, shape]
        exact = gradients.get(key, buffers.get(key))
        if exact.is_floating_point():
            found = gradients32.get(key, buffers32.get(key))
            error = away(found, exact)
            row += [*summed_up(key, exact), digits(error, 2)]
            if key in gradients:
                total += exact.norm().item() ** 2
                difference += (error * exact.norm().item()) ** 2
        rows.append(row)
    summary = {
        "batch": task.batch,
        "sample": list(task.sample),
        "target": list(task.target),
        "tokens": task.tokens,
        "classes": task.classes,
        "parameters": sum(value.numel() for value in gradients.values()),
        "loss": digits(loss, 10),
        "output": summed_up("output", output, first=8),
        "float32": {
            "loss": digits(away(loss32, loss), 2),
            "output": digits(away(output32, output), 2),
            "gradients": digits((difference / total) ** 0.5, 2),
        },
    }
    if name in TRAININGS:
        batch, settings = TRAININGS[name]
        runs = {dtype: [digits(x) for x in train(name, task, getattr(torch, dtype))] for dtype in ("float64", "float32")}
        summary["training"] = {"batch": batch, "optimizer": settings} | {
            dtype: {"losses": losses[:-1], "evaluation": losses[-1]} for dtype, losses in runs.items()
        }
    return summary, rows


def compact(value):
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def main():
    check_version()
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or MAKERS:
        summary, rows = describe(name)
        lines = [f'"{key}":{compact(value)}' for key, value in summary.items()]
        lines.append('"state":[\n' + ",\n".join(map(compact, rows)) + "]")
        text = "{" + ",\n".join(lines) + "}\n"
        json.loads(text)
        (FOLDER / f"{name}.json").write_text(text)
        print(name, f"{len(text) / 1000:.0f} KB, float32 differs by", summary["float32"], flush=True)


if __name__ == "__main__":
    main()

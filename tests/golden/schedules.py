"""Writes schedules.json: factors of the learning rate from torch.optim.lr_scheduler.

    python schedules.py

Each case has the settings of tightfit's schedule, the number of steps of the whole training, and the factor of each step:
what PyTorch's scheduler makes of a learning rate of 1, stepped after each update. Where PyTorch refuses a step or rises again
after a schedule's end, the values of before that are taken.
"""

import json
import warnings
from pathlib import Path

import torch
from torch.optim import lr_scheduler as lr

from common import check_version

FOLDER = Path(__file__).parent


def factors(make, steps):
    """The learning rate at each step."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = make(optimizer)
    values = []
    for step in range(steps):
        values.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if step + 1 < steps:
            scheduler.step()
    return values


def warmed(start, steps, make):
    """The schedule after LinearLR."""

    def made(optimizer):
        warmup = lr.LinearLR(optimizer, start_factor=start, total_iters=steps)
        return lr.SequentialLR(optimizer, [warmup, make(optimizer)], milestones=[steps])

    return made


def one_cycle(steps, **settings):
    return lambda o: lr.OneCycleLR(o, max_lr=1.0, total_steps=steps, cycle_momentum=False, **settings)


def cases():
    """Name, settings, steps of the training, PyTorch's scheduler, and how many steps are compared."""
    yield "constant", {"kind": "constant"}, 100, lambda o: lr.ConstantLR(o, factor=1.0), 150
    yield "constant_warmup", {"kind": "constant", "warmup": 30}, 100, warmed(0.01, 30, lambda o: lr.ConstantLR(o, 1.0)), 150
    yield "linear", {"kind": "linear"}, 120, lambda o: lr.LinearLR(o, 1.0, 0.0, 120), 150
    settings = {"kind": "linear", "start_factor": 0.25, "end_factor": 0.75, "length": 40}
    yield "linear_up", settings, 120, lambda o: lr.LinearLR(o, 0.25, 0.75, 40), 150
    yield "step", {"kind": "step", "step_size": 30}, 200, lambda o: lr.StepLR(o, 30), 200
    settings = {"kind": "step", "step_size": 7, "gamma": 0.83, "warmup": {"length": 11, "start_factor": 0.2}}
    yield "step_warmup", settings, 200, warmed(0.2, 11, lambda o: lr.StepLR(o, 7, 0.83)), 200
    settings = {"kind": "multi-step", "milestones": [20, 21, 90, 150], "gamma": 0.3}
    yield "multi_step", settings, 200, lambda o: lr.MultiStepLR(o, [20, 21, 90, 150], 0.3), 200
    settings = {"kind": "exponential", "gamma": 0.97, "interval": 1}
    yield "exponential", settings, 200, lambda o: lr.ExponentialLR(o, 0.97), 200
    settings = {"kind": "exponential", "gamma": 0.5, "interval": 25}
    yield "exponential_interval", settings, 200, lambda o: lr.ExponentialLR(o, 0.5 ** (1 / 25)), 200
    yield "polynomial", {"kind": "polynomial"}, 150, lambda o: lr.PolynomialLR(o, 150), 200
    settings = {"kind": "polynomial", "power": 2.5, "length": 90, "warmup": {"length": 10, "start_factor": 0.5}}
    yield "polynomial_warmup", settings, 150, warmed(0.5, 10, lambda o: lr.PolynomialLR(o, 90, 2.5)), 200
    yield "cosine", {"kind": "cosine"}, 200, lambda o: lr.CosineAnnealingLR(o, 200), 201
    settings = {"kind": "cosine", "length": 77, "end_factor": 0.05}
    yield "cosine_end", settings, 200, lambda o: lr.CosineAnnealingLR(o, 77, 0.05), 78
    settings = {"kind": "cosine", "end_factor": 0.01, "warmup": 20}
    yield "cosine_warmup", settings, 200, warmed(0.01, 20, lambda o: lr.CosineAnnealingLR(o, 180, 0.01)), 200
    settings = {"kind": "cosine-restarts", "t_0": 30}
    yield "cosine_restarts", settings, 200, lambda o: lr.CosineAnnealingWarmRestarts(o, 30), 200
    settings = {"kind": "cosine-restarts", "t_0": 9, "t_mult": 2, "end_factor": 0.02}
    yield "cosine_restarts_longer", settings, 300, lambda o: lr.CosineAnnealingWarmRestarts(o, 9, 2, 0.02), 300
    settings = {"kind": "cosine-restarts", "t_0": 5, "t_mult": 3, "warmup": 12}
    made = warmed(0.01, 12, lambda o: lr.CosineAnnealingWarmRestarts(o, 5, 3))
    yield "cosine_restarts_warmup", settings, 300, made, 300
    yield "one_cycle", {"kind": "one-cycle"}, 200, one_cycle(200), 200
    settings = {"kind": "one-cycle", "anneal_strategy": "linear", "pct_start": 0.4, "div_factor": 10, "final_div_factor": 100}
    made = one_cycle(200, anneal_strategy="linear", pct_start=0.4, div_factor=10, final_div_factor=100)
    yield "one_cycle_linear", settings, 200, made, 200
    settings = {"kind": "one-cycle", "three_phase": True, "pct_start": 0.37}
    yield "one_cycle_three_phases", settings, 173, one_cycle(173, three_phase=True, pct_start=0.37), 173
    settings = {"kind": "one-cycle", "pct_start": 0.0}
    yield "one_cycle_down", settings, 50, one_cycle(50, pct_start=0.0), 50
    parts = [{"kind": "linear", "start_factor": 0.1, "end_factor": 1}, {"kind": "step", "step_size": 20}, "cosine"]

    def sequence(optimizer):
        made = [lr.LinearLR(optimizer, 0.1, 1.0, 25), lr.StepLR(optimizer, 20), lr.CosineAnnealingLR(optimizer, 60)]
        return lr.SequentialLR(optimizer, made, milestones=[25, 90])

    yield "sequence", {"kind": "sequence", "schedules": parts, "milestones": [25, 90]}, 150, sequence, 150


def main():
    check_version()
    warnings.simplefilter("ignore")
    lines = []
    for name, settings, total, make, steps in cases():
        values = json.dumps(factors(make, steps), separators=(",", ":"))
        lines.append(f'{{"case": "{name}", "settings": {json.dumps(settings)}, "total_steps": {total},\n "factors": {values}}}')
    text = "[\n" + ",\n".join(lines) + "\n]\n"
    json.loads(text)
    (FOLDER / "schedules.json").write_text(text)


if __name__ == "__main__":
    main()

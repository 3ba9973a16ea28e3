"""Writes modules/<module>.json: outputs and gradients of modules with several parameters, from PyTorch.

    python modules.py

An entry is {"case", "settings", "input", "target", "output", "parameters", "gradients"}: the gradients of the mean squared
error of the output and the target, by the names of the parameters. Everything is computed in float64 from float32 numbers.
"""

import json
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import check_version, draw, generator, tensor

FOLDER = Path(__file__).parent / "modules"


class Attention(nn.Module):
    """Self-attention of a sequence with trained places, of which more exist than the sequence has."""

    def __init__(self, time, features, heads, causal, bias):
        super().__init__()
        self.positions = nn.Embedding(time + 2, features)
        self.attention = nn.MultiheadAttention(features, heads, bias=bias, batch_first=True)
        self.causal = causal

    def forward(self, x):
        time = x.shape[1]
        x = x + self.positions.weight[:time]
        mask = torch.ones(time, time, dtype=torch.bool).triu(1) if self.causal else None
        return self.attention(x, x, x, attn_mask=mask, need_weights=False)[0]


ATTENTION = {
    "all_3x5x6_2_heads": dict(batch=3, time=5, features=6, heads=2, causal=False, bias=True),
    "causal_2x7x8_4_heads": dict(batch=2, time=7, features=8, heads=4, causal=True, bias=True),
    "causal_no_bias_2x4x3_1_head": dict(batch=2, time=4, features=3, heads=1, causal=True, bias=False),
}


def attention(name, settings):
    rng = generator(f"attention/{name}")
    module = Attention(**{key: value for key, value in settings.items() if key != "batch"}).double()
    shape = (settings["batch"], settings["time"], settings["features"])
    x, target = draw(shape, None, rng), draw(shape, None, rng)
    parameters = {key: 0.5 * draw(value.shape, None, rng) for key, value in module.named_parameters()}
    for key, value in module.named_parameters():
        value.data = parameters[key].double()
    output = module(x.double())
    F.mse_loss(output, target.double()).backward()
    join = lambda entries: "{" + ",".join(f'"{key}":{tensor(value)}' for key, value in entries) + "}"
    return {
        "case": json.dumps(name),
        "settings": json.dumps(settings, separators=(",", ":")),
        "input": tensor(x),
        "target": tensor(target),
        "output": tensor(output),
        "parameters": join(parameters.items()),
        "gradients": join((key, value.grad) for key, value in module.named_parameters()),
    }


def main():
    check_version()
    FOLDER.mkdir(exist_ok=True)
    entries = [attention(name, settings) for name, settings in ATTENTION.items()]
    lines = ["{" + ",".join(f'"{key}":{value}' for key, value in entry.items()) + "}" for entry in entries]
    text = "[\n" + ",\n".join(lines) + "\n]\n"
    json.loads(text)
    (FOLDER / "attention.json").write_text(text)


if __name__ == "__main__":
    main()

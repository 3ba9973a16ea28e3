"""Writes losses.json: the first losses of the three built-in models under PyTorch.

    python losses.py [--data ../../data/mnist]

Batches are the training images in file order, `batch` at a time; a pixel is byte / 255 as f32. Adam, lr 1e-3, betas
0.9 and 0.999, eps 1e-8, no weight decay; mean softmax cross-entropy.

Initial weights are drawn by a recipe that both sides compute exactly: u is recipe.py's `units` of the parameter's name, and
an element is u * (2 b) - b in f32 arithmetic, where b is 1 / sqrt(fan) in f64, rounded to f32. `fan` is the number of inputs
of one output of the layer (biases too: in * kh * kw for a convolution), and the hidden size for an LSTM.
"""

import argparse
import gzip
import json
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import check_version
from recipe import units

FOLDER = Path(__file__).parent
STEPS = 20


def weights(name, shape, fan):
    """The initial value of a parameter."""
    b = torch.tensor(fan**-0.5, dtype=torch.float64).float()
    return units(name, shape) * (2 * b) - b


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear1 = nn.Linear(784, 512)
        self.linear2 = nn.Linear(512, 512)
        self.linear3 = nn.Linear(512, 10)

    def forward(self, x):
        x = F.relu(self.linear1(x.flatten(1)))
        return self.linear3(F.relu(self.linear2(x)))


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.linear1 = nn.Linear(64 * 12 * 12, 128)
        self.linear2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = F.relu(self.linear1(F.max_pool2d(x, 2).flatten(1)))
        return self.linear2(x)


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm1 = nn.LSTM(28, 128, batch_first=True)
        self.linear1 = nn.Linear(128, 10)

    def forward(self, x):
        _, (h_n, _) = self.lstm1(x[:, 0])
        return self.linear1(h_n[0])


MODELS = {"mnist-mlp": (Mlp, 128), "mnist-cnn": (Cnn, 64), "mnist-lstm": (Lstm, 64)}


def fan_of(module, name):
    """The fan of a parameter: see the recipe."""
    layer = module.get_submodule(name.rsplit(".", 1)[0])
    if isinstance(layer, nn.LSTM):
        return layer.hidden_size
    return layer.weight[0].numel()


def idx(path, header_bytes):
    data = gzip.decompress(path.read_bytes())
    return torch.frombuffer(bytearray(data[header_bytes:]), dtype=torch.uint8)


def train(model, batch, images, labels, dtype):
    model = model.to(dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for step in range(STEPS):
        rows = slice(step * batch, (step + 1) * batch)
        loss = F.cross_entropy(model(images[rows].to(dtype)), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=FOLDER / "../../data/mnist")
    folder = parser.parse_args().data
    check_version()
    images = idx(folder / "train-images-idx3-ubyte.gz", 16).reshape(-1, 1, 28, 28)
    images = images[: STEPS * max(batch for _, batch in MODELS.values())].float() / 255
    labels = idx(folder / "train-labels-idx1-ubyte.gz", 8).long()
    result = {}
    for name, (make, batch) in MODELS.items():
        losses = {}
        for dtype in (torch.float32, torch.float64):
            model = make()
            parameters = []
            for key, value in model.state_dict().items():
                fan = fan_of(model, key)
                value.copy_(weights(key, value.shape, fan))
                first = [float("%.9g" % v) for v in value.flatten()[:3].tolist()]
                parameters.append({"name": key, "shape": list(value.shape), "fan": fan, "first": first})
            losses[dtype] = train(model, batch, images, labels, dtype)
        a, b = losses[torch.float32], losses[torch.float64]
        print(name, "largest relative difference of float32 to float64:", max(abs(x - y) / y for x, y in zip(a, b)))
        result[name] = {"batch": batch, "parameters": parameters, "losses": [float("%.9g" % v) for v in a]}
    lines = []
    for name, entry in result.items():
        parameters = ",\n".join("  " + json.dumps(p) for p in entry["parameters"])
        losses = json.dumps(entry["losses"])
        lines.append(f'"{name}": {{"batch": {entry["batch"]}, "parameters": [\n{parameters}\n ],\n "losses": {losses}}}')
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    json.loads(text)
    (FOLDER / "losses.json").write_text(text)


if __name__ == "__main__":
    main()

"""Small models in ONNX by both exporters of PyTorch, with inputs and outputs: `python generate.py`.

Each model NAME becomes NAME.EXPORTER.onnx, and NAME.json has an input of three samples and what PyTorch makes of it.
"""

import json
import pathlib
import warnings

import numpy as np
import onnx
import torch
from torch import nn
from torch.nn import functional as F

HERE = pathlib.Path(__file__).parent


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(6)
        self.conv2 = nn.Conv2d(6, 6, 3, padding=1, groups=3)
        self.pool = nn.MaxPool2d(2, ceil_mode=True)
        self.fc = nn.Linear(6, 4)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.leaky_relu(self.conv2(x), 0.1) + x
        x = self.pool(x)
        return F.log_softmax(self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1)), 1)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(5, 8)
        self.norm = nn.LayerNorm(8)
        self.fc2 = nn.Linear(8, 8)
        self.act = nn.PReLU()
        self.fc3 = nn.Linear(8, 2)

    def forward(self, x):
        x = self.norm(F.gelu(self.fc1(x)))
        return self.fc3(self.act(F.silu(self.fc2(x)) * 0.5 + x))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 5, num_layers=2, batch_first=True)
        self.fc = nn.Linear(5, 3)

    def forward(self, x):
        return self.fc(self.lstm(x)[0][:, -1])


class Bidirectional(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(4, 5, num_layers=2, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(10, 3)

    def forward(self, x):
        return self.fc(self.gru(x)[0])


class Attention(nn.Module):
    """A block of a transformer over tokens."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 8)
        self.place = nn.Parameter(torch.randn(1, 6, 8) * 0.1)
        self.norm = nn.LayerNorm(8)
        self.qkv = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8)

    def forward(self, tokens):
        x = self.table(tokens) + self.place
        n, t, d = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(n, t, 3, 2, d // 2).permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k.transpose(-2, -1) / (d // 2) ** 0.5
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(n, t, d)
        return x + self.out(y)


class Mobile(nn.Module):
    """What mobile networks are made of."""

    def __init__(self):
        super().__init__()
        self.expand = nn.Conv2d(3, 8, 1)
        self.deep = nn.Conv2d(8, 8, 5, padding=4, dilation=2, groups=8)
        self.fc1 = nn.Conv2d(8, 4, 1)
        self.fc2 = nn.Conv2d(4, 8, 1)
        self.norm = nn.GroupNorm(2, 8)

    def forward(self, x):
        x = F.hardswish(self.deep(F.relu6(self.expand(x))))
        scale = F.hardsigmoid(self.fc2(F.relu(self.fc1(x.mean((2, 3), keepdim=True)))))
        return self.norm(x * scale).amax((2, 3))


class Unet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(2, 4, 3, padding=1)
        self.mid = nn.Conv2d(4, 4, 3, padding=1)
        self.up = nn.ConvTranspose2d(4, 3, 2, stride=2)
        self.last = nn.Conv2d(9, 2, 1)

    def forward(self, x):
        a = F.elu(self.down(x))
        b = torch.tanh(self.mid(F.avg_pool2d(a, 2)))
        c = F.interpolate(b, scale_factor=2, mode="bilinear", align_corners=False)
        d = torch.cat([a, self.up(b), F.pad(c[:, :2], (1, 1, 0, 0))[..., 1:-1]], 1)
        return torch.sigmoid(self.last(d))


class Sequence(nn.Module):
    """Convolutions of sequences."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, 6, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm1d(6)
        self.fc = nn.Linear(6, 2)

    def forward(self, x):
        x = F.softplus(self.norm(self.conv(x.transpose(1, 2))))
        x = F.max_pool1d(x, 2)
        return self.fc(x.permute(0, 2, 1)).mean(1)


MODELS = {
    "cnn": (Cnn, (3, 9, 11)),
    "mlp": (Mlp, (5,)),
    "lstm": (Lstm, (7, 4)),
    "bidirectional": (Bidirectional, (5, 4)),
    "attention": (Attention, (6,)),
    "mobile": (Mobile, (3, 8, 8)),
    "unet": (Unet, (2, 8, 8)),
    "sequence": (Sequence, (12, 3)),
}


def strip(path):
    """Takes out where on the exporting machine each node comes from."""
    model = onnx.load(path)
    model.ClearField("metadata_props")
    for part in [model.graph, *model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output, *model.graph.initializer]:
        part.ClearField("doc_string")
        part.ClearField("metadata_props")
    onnx.save(model, path)


def main():
    warnings.filterwarnings("ignore")
    for name, (make, shape) in MODELS.items():
        torch.manual_seed(1)
        model = make()
        with torch.no_grad():
            for module in model.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.running_mean.normal_(0, 0.3)
                    module.running_var.uniform_(0.5, 2)
                    module.weight.uniform_(0.5, 1.5)
                    module.bias.normal_(0, 0.3)
        model.eval()
        tokens = name == "attention"
        x = torch.randint(0, 11, (3, *shape)) if tokens else torch.randn(3, *shape)
        y = model(x).detach()
        for exporter in ["torchscript", "dynamo"]:
            path = HERE / f"{name}.{exporter}.onnx"
            kwargs = dict(input_names=["x"], output_names=["y"], opset_version=18)
            try:
                if exporter == "dynamo":
                    batch = torch.export.Dim("batch")
                    program = torch.onnx.export(model, (x,), dynamo=True, dynamic_shapes=({0: batch},), verbose=False, **kwargs)
                    program.save(str(path), external_data=False)
                else:
                    torch.onnx.export(
                        model, (x,), str(path), dynamo=False, dynamic_axes={"x": {0: "batch"}}, do_constant_folding=False,
                        training=torch.onnx.TrainingMode.PRESERVE, **kwargs)
                strip(path)
            except Exception as error:  # noqa: BLE001
                print(f"{name}: {exporter} cannot: {str(error).splitlines()[0]}")
        tensor = lambda t: {"shape": list(t.shape), "values": np.round(t.numpy().astype(np.float64).ravel(), 7).tolist()}
        (HERE / f"{name}.json").write_text(json.dumps({"tokens": tokens, "input": tensor(x), "output": tensor(y)}) + "\n")


main()

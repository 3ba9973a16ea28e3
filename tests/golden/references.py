"""The PyTorch models that the built-in models of the same names are tested against.

Where torchvision has the model, it is torchvision's; the others are defined here. Nothing is random: dropout and
stochastic depth have probability 0.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision.models as tv


class LeNet(nn.Module):
    """LeNet-5 with ReLU and max pooling, for 1x28x28."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(400, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc3(F.relu(self.fc2(x)))


def double(channels_in, channels):
    layers = []
    for c in (channels_in, channels):
        layers += [nn.Conv2d(c, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """U-Net with padded convolutions and batch norm; logits of `classes` at each pixel."""

    def __init__(self, base=64, classes=2):
        super().__init__()
        widths = [base << i for i in range(4)]
        for i, (c_in, c) in enumerate(zip([3] + widths, widths), 1):
            setattr(self, f"enc{i}", double(c_in, c))
        self.bottleneck = double(widths[3], 2 * widths[3])
        for i in (4, 3, 2, 1):
            c = widths[i - 1]
            setattr(self, f"up{i}", nn.ConvTranspose2d(2 * c, c, 2, stride=2))
            setattr(self, f"dec{i}", double(2 * c, c))
        self.head = nn.Conv2d(base, classes, 1)

    def forward(self, x):
        skips = []
        for i in (1, 2, 3, 4):
            x = getattr(self, f"enc{i}")(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.bottleneck(x)
        for i in (4, 3, 2, 1):
            x = torch.cat([skips.pop(), getattr(self, f"up{i}")(x)], 1)
            x = getattr(self, f"dec{i}")(x)
        return self.head(x)


class LstmForecaster(nn.Module):
    """The next value of a series [T, 1]."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(1, 64, num_layers=2, batch_first=True)
        self.head = nn.Linear(64, 1)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


class CharLstm(nn.Module):
    """Logits of the next token after each of the tokens [T]."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(96, 64)
        self.lstm = nn.LSTM(64, 256, num_layers=2, batch_first=True)
        self.head = nn.Linear(256, 96)

    def forward(self, tokens):
        return self.head(self.lstm(self.embedding(tokens))[0])


class Block(nn.Module):
    """A transformer's block with the norms first."""

    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        length = x.shape[1]
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        y = self.ln_1(x)
        x = x + self.attn(y, y, y, attn_mask=later, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    """GPT-2's shape, small: logits of the next token after each of the tokens [T], T at most `length`."""

    def __init__(self, vocabulary=96, length=64, blocks=4, heads=4, width=128):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(length, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(blocks))
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        return self.head(self.ln_f(x))


def resnet18_cifar():
    """ResNet-18 for images of 32x32: a 3x3 convolution of stride 1 in front, no max pooling, 10 classes."""
    model = tv.resnet18(num_classes=10)
    model.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    model.maxpool = nn.Identity()
    return model


def efficientnet_b0():
    return tv.efficientnet_b0(dropout=0.0, stochastic_depth_prob=0.0)


MAKERS = {
    "lenet": LeNet,
    "resnet18_cifar": resnet18_cifar,
    "resnet18": tv.resnet18,
    "resnet34": tv.resnet34,
    "resnet50": tv.resnet50,
    "resnet101": tv.resnet101,
    "vgg16": lambda: tv.vgg16(dropout=0.0),
    "mobilenet_v2": lambda: tv.mobilenet_v2(dropout=0.0),
    "mobilenet_v3_small": lambda: tv.mobilenet_v3_small(dropout=0.0),
    "mobilenet_v3_large": lambda: tv.mobilenet_v3_large(dropout=0.0),
    "efficientnet_b0": efficientnet_b0,
    "densenet121": lambda: tv.densenet121(drop_rate=0.0),
    "unet": UNet,
    "unet_small": lambda: UNet(base=16),
    "lstm_forecaster": LstmForecaster,
    "char_lstm": CharLstm,
    "gpt": Gpt,
}


def make(name):
    """The model of that name in training mode, with whatever initial values."""
    # Initial values are replaced anyway; drawing those of the largest models would take the most time.
    with torch.device("meta"):
        model = MAKERS[name]()
    model.to_empty(device="cpu")
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.reset_running_stats()
    return model.train()

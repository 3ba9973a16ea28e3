"""PyTorch on the workloads of `tightfit bench`, on CUDA where there is a card. Prints one JSON object with the same fields.

python3 scripts/gpu-check-torch.py WORKLOAD [--steps N] [--warmup N] [--max-secs SECONDS] [--batch N] [--data DIR]
"""
import argparse, gzip, json, time
import torch
import torch.nn as nn
import torch.nn.functional as F

# (batch, batches, sample shape); images of MNIST where there is a shape without channels to draw from.
SPEC = {
    "w1": (128, 16, (784,)), "w2": (64, 16, (1, 28, 28)), "w3": (64, 16, (28, 28)), "w3b": (32, 16, (128, 64)),
    "w4": (32, 16, (3, 32, 32)), "w5": (8, 4, (3, 256, 256)), "gemm4096": (4096, 2, (4096,)),
    "resnet50": (64, 4, (3, 224, 224)), "lstm1024": (64, 16, (128, 256)),
}
MSE_WIDTH = {"w3b": 64, "lstm1024": 64, "gemm4096": 4096}


class Rnn(nn.Module):
    def __init__(self, features, hidden, layers, outputs):
        super().__init__()
        self.lstm, self.head = nn.LSTM(features, hidden, layers, batch_first=True), nn.Linear(hidden, outputs)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


def norm_conv(i, o, kernel, stride=1):
    return nn.Sequential(nn.Conv2d(i, o, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(o))


class Block(nn.Module):
    """Two 3x3 convolutions, or 1x1, 3x3 and 1x1 with four times the width at the end."""

    def __init__(self, i, width, stride, bottleneck):
        super().__init__()
        o = 4 * width if bottleneck else width
        kernels = [(i, width, 1, 1), (width, width, 3, stride), (width, o, 1, 1)] if bottleneck else [
            (i, width, 3, stride), (width, width, 3, 1)]
        self.convs = nn.ModuleList(norm_conv(*k) for k in kernels)
        self.shortcut = norm_conv(i, o, 1, stride) if stride != 1 or i != o else nn.Identity()

    def forward(self, x):
        y = x
        for conv in self.convs[:-1]:
            y = F.relu(conv(y))
        return F.relu(self.convs[-1](y) + self.shortcut(x))


def resnet(depths, widths, classes, bottleneck=False, imagenet=False):
    stem = norm_conv(3, widths[0], 7 if imagenet else 3, 2 if imagenet else 1)
    layers, i = [stem, nn.ReLU()] + ([nn.MaxPool2d(3, 2, 1)] if imagenet else []), widths[0]
    for stage, (depth, width) in enumerate(zip(depths, widths)):
        for block in range(depth):
            layers.append(Block(i, width, 2 if stage and not block else 1, bottleneck))
            i = 4 * width if bottleneck else width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(i, classes))


MODELS = {
    "w1": lambda: nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)),
    "w2": lambda: nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
                                nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10)),
    "w3": lambda: Rnn(28, 128, 1, 10),
    "w3b": lambda: Rnn(64, 256, 2, 64),
    "w4": lambda: resnet([2, 2, 2, 2], [64, 128, 256, 512], 10),
    "w5": lambda: resnet([3, 3, 3, 3], [16, 32, 64, 128], 10),
    "gemm4096": lambda: nn.Sequential(nn.Linear(4096, 4096), nn.Linear(4096, 4096)),
    "resnet50": lambda: resnet([3, 4, 6, 3], [64, 128, 256, 512], 1000, bottleneck=True, imagenet=True),
    "lstm1024": lambda: Rnn(256, 1024, 2, 64),
}


def idx(path, skip):
    with gzip.open(path) as file:
        return torch.frombuffer(bytearray(file.read()[skip:]), dtype=torch.uint8)


def batches(workload, batch, count, shape, folder):
    generator = torch.Generator().manual_seed(42)
    if workload in ("w1", "w2", "w3"):
        y = idx(f"{folder}/train-labels-idx1-ubyte.gz", 8).long()
        x = idx(f"{folder}/train-images-idx3-ubyte.gz", 16).float().div(255).reshape(len(y), *shape)
        order = torch.randperm(len(y), generator=generator)[torch.arange(batch * count) % len(y)].split(batch)
        return [(x[part], y[part]) for part in order]
    width, classes = MSE_WIDTH.get(workload), 1000 if workload == "resnet50" else 10
    target = (lambda: torch.randn(batch, width, generator=generator)) if width else (
        lambda: torch.randint(classes, (batch,), generator=generator))
    return [(torch.randn(batch, *shape, generator=generator), target()) for _ in range(count)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=SPEC)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--max-secs", type=float, default=60)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--data", default="data/mnist")
    args = parser.parse_args()
    torch.manual_seed(42)
    # As tightfit: f32 all the way, not TF32.
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    cuda = torch.cuda.is_available()
    device = torch.device("cuda" if cuda else "cpu")
    batch, count, shape = SPEC[args.workload]
    batch = args.batch or batch
    model = MODELS[args.workload]().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = F.mse_loss if args.workload in MSE_WIDTH else F.cross_entropy
    data = batches(args.workload, batch, count, shape, args.data)

    def step(x, y):
        loss = criterion(model(x.to(device)), y.to(device))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if cuda:
            torch.cuda.synchronize()
        return loss.detach()

    losses, times, timed_since = [], [], None
    for i in range(args.warmup + args.steps):
        timed_since = time.perf_counter() if i == args.warmup else timed_since
        start = time.perf_counter()
        losses.append(step(*data[i % count]))
        times += [(time.perf_counter() - start) * 1e3] if i >= args.warmup else []
        if len(times) >= 5 and time.perf_counter() - timed_since > args.max_secs:
            break
    times.sort()
    ms = times[len(times) // 2]
    print(json.dumps({
        "workload": args.workload, "peer": "torch", "version": torch.__version__, "batch": batch,
        "device": torch.cuda.get_device_name() if cuda else "cpu", "ms": ms, "min_ms": times[0],
        "p90_ms": times[len(times) * 9 // 10], "sps": batch / ms * 1e3,
        "dev_mb": torch.cuda.max_memory_allocated() / 2**20 if cuda else None, "steps": len(times),
        "params": sum(p.numel() for p in model.parameters()), "loss0": float(losses[0]), "loss1": float(losses[-1]),
    }))


main()

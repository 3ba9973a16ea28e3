"""What the generators share: the pinned version, drawing inputs, writing JSON."""

import json
import zlib

import torch

TORCH_VERSION = "2.15.0"


def check_version():
    found = torch.__version__.split("+")[0]
    if found != TORCH_VERSION:
        raise SystemExit(f"the golden values are those of torch {TORCH_VERSION}, this is {found}: see requirements.txt")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)


def generator(key):
    """A generator of its own for each key, so that a new case leaves the others as they are."""
    return torch.Generator().manual_seed(zlib.crc32(key.encode()))


def draw(shape, fill, rng):
    """float32 numbers (or int64 labels) drawn as `fill` says."""
    kind = fill[0] if fill else "normal"
    if kind == "labels":
        return torch.randint(0, fill[1], shape, generator=rng)
    if kind == "lengths":
        return torch.randint(1, fill[1] + 1, shape, generator=rng)
    if kind == "constant":
        return torch.full(shape, fill[1])
    if kind == "uniform":
        return torch.rand(shape, generator=rng) * (fill[2] - fill[1]) + fill[1]
    if kind == "digits":
        return torch.randint(0, fill[1], shape, generator=rng).float()
    x = torch.randn(shape, generator=rng)
    if kind == "away":
        x = torch.where(x < 0, x - fill[1], x + fill[1])
    return x


def numbers(x):
    """Flat JSON array: float32 in 9 digits (round-trips), float64 in 10."""
    x = x.detach()
    pattern = "%.9g" if x.dtype == torch.float32 else "%.10g"
    return "[" + ",".join(pattern % v for v in x.flatten().tolist()) + "]"


def tensor(x):
    """JSON of a tensor; `None` is null, a number has shape [1]."""
    if x is None:
        return "null"
    shape = json.dumps(list(x.shape) or [1], separators=(",", ":"))
    if x.dtype == torch.int64:
        ints = json.dumps(x.flatten().tolist(), separators=(",", ":"))
        return f'{{"shape":{shape},"ints":{ints}}}'
    return f'{{"shape":{shape},"data":{numbers(x)}}}'


def tensors(xs):
    return "[" + ",".join(tensor(x) for x in xs) + "]"

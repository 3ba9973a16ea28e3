"""Numbers that PyTorch and the tests in Rust (`tests/common/recipe.rs`) compute exactly alike.

A tensor's name alone decides its numbers. `state` starts as the 64-bit FNV-1a hash of the name in UTF-8; each element
takes the next number of splitmix64, of which the top 24 bits count.

* `units`: those bits over 2^24, in [0, 1) and exact in f32.
* `symmetric`: 2 u - 1, exact in f32: what inputs, targets of a regression and probes are made of.
* `below(n)`: the bits modulo n, for tokens and labels.
* `parameter`: centre + bound * (2 u - 1) in f32 arithmetic, where name and shape say what centre and bound are:
  weights of two and more axes: 0 and sqrt(3 / fan), fan = elements / shape[0], computed in f64 and rounded to f32, so
  that a layer roughly keeps the size of what it is given; weights of one axis (norms): 1 and 0.2; others (biases): 0
  and 0.1.
"""

import numpy as np
import torch

MASK = (1 << 64) - 1


def fnv1a(text):
    state = 0xCBF29CE484222325
    for byte in text.encode():
        state = ((state ^ byte) * 0x100000001B3) & MASK
    return state


def top_bits(name, count):
    """The top 24 bits of the first `count` numbers, as uint64."""
    z = np.arange(1, count + 1, dtype=np.uint64)
    # In place: the largest weight has a hundred million elements.
    z *= np.uint64(0x9E3779B97F4A7C15)
    z += np.uint64(fnv1a(name))
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    z >>= np.uint64(40)
    return z


def units(name, shape):
    bits = top_bits(name, torch.Size(shape).numel()).astype(np.float32)
    bits /= np.float32(1 << 24)
    return torch.from_numpy(bits).reshape(shape)


def symmetric(name, shape):
    return units(name, shape).mul_(2).sub_(1)


def below(name, shape, n):
    bits = top_bits(name, torch.Size(shape).numel()) % np.uint64(n)
    return torch.from_numpy(bits.astype(np.int64)).reshape(shape)


def parameter(name, shape):
    centre, bound = 0.0, 0.1
    if len(shape) >= 2:
        bound = (3 * shape[0] / torch.Size(shape).numel()) ** 0.5
    elif name.endswith("weight"):
        centre, bound = 1.0, 0.2
    return symmetric(name, shape).mul_(float(np.float32(bound))).add_(centre)

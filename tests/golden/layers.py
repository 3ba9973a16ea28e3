"""Writes modules/layers.json: what layers make of samples and the gradients of that, from PyTorch, `python layers.py`.

An entry:

    {"case", "layer": as a model file writes it, "shape": of a sample, "input", "target", "output", "parameters", "gradients"}

A trained tensor of a sample's shape, `positions1.weight`, is added to all samples first, so that its gradient is that of the
layer's input. Gradients are those of the mean squared error of output and target. Everything is computed in float64 from float32
numbers; inputs that are "whole" are small integers, of which many are equal.
"""

import json
from pathlib import Path

import torch
import torch.nn.functional as F

from common import check_version, draw, generator, tensor

FILE = Path(__file__).parent / "modules" / "layers.json"
BATCH = 2


def along(setting, axes):
    return tuple(setting) if isinstance(setting, (list, tuple)) else (setting,) * axes


def sides(settings, shape, kernel, stride, dilation):
    """Zeros before and after each axis. "same" of a convolution is PyTorch's, "same_upper" TensorFlow's and ONNX's."""
    padding, axes = settings.get("padding", 0), len(shape)
    if isinstance(padding, list) and isinstance(padding[0], list):
        return padding
    if axes == 1 and isinstance(padding, list):
        return [padding]
    if not isinstance(padding, str):
        return [(n, n) for n in along(padding, axes)]
    found = []
    for size, k, s, d in zip(shape, kernel, stride, dilation):
        reach = d * (k - 1) + 1
        is_pytorch = padding == "same" and "pool" not in settings["kind"]
        total = reach - 1 if is_pytorch else max((-(-size // s) - 1) * s + reach - size, 0)
        less, more = total // 2, total - total // 2
        found.append((more, less) if padding == "same_lower" else (less, more))
    return found


def pad(x, pairs, value=0.0, mode="constant"):
    """PyTorch wants the last axis first."""
    flat = [n for pair in reversed(pairs) for n in pair]
    return F.pad(x, flat, mode=mode, value=value) if mode == "constant" else F.pad(x, flat, mode=mode)


def window(settings, axes, default_stride=1):
    kernel = along(settings["kernel"], axes)
    stride = along(settings.get("stride", kernel if default_stride is None else default_stride), axes)
    return kernel, stride, along(settings.get("dilation", 1), axes)


def conv(x, settings, weight, bias=None, groups=None):
    axes = x.dim() - 2
    kernel, stride, dilation = window(settings, axes)
    x = pad(x, sides(settings, x.shape[2:], kernel, stride, dilation))
    function = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[axes]
    return function(x, weight, bias, stride=stride, dilation=dilation, groups=groups or settings.get("groups", 1))


def conv_transpose(x, settings, weight, bias=None):
    axes = x.dim() - 2
    kernel, stride, dilation = window(settings, axes)
    function = {1: F.conv_transpose1d, 2: F.conv_transpose2d}[axes]
    padding, more = settings.get("padding", 0), along(settings.get("output_padding", 0), axes)
    groups = settings.get("groups", 1)
    if isinstance(padding, str):
        # What is in all of the input times the stride, cut out of the whole.
        whole = function(x, weight, bias, stride=stride, dilation=dilation, groups=groups)
        for axis, (size, k, s, d) in enumerate(zip(x.shape[2:], kernel, stride, dilation), 2):
            total = d * (k - 1) + 1 - s
            if total < 0:
                # Nothing but the bias reaches what is behind.
                end = torch.zeros_like(whole.narrow(axis, 0, 1)) + (0 if bias is None else bias.reshape([-1] + [1] * axes))
                whole = torch.cat([whole] + [end] * -total, axis)
                total = 0
            begin = total - total // 2 if padding == "same_lower" else total // 2
            whole = whole.narrow(axis, begin, size * s)
        return whole
    if axes == 1 and isinstance(padding, list):
        padding = [padding]
    if isinstance(padding, list) and isinstance(padding[0], list):
        whole = function(x, weight, bias, stride=stride, output_padding=more, dilation=dilation, groups=groups)
        for axis, (before, after) in enumerate(padding, 2):
            whole = whole.narrow(axis, before, whole.shape[axis] - before - after)
        return whole
    return function(x, weight, bias, stride, padding, more, groups, dilation)


def max_pool(x, settings):
    axes = x.dim() - 2
    kernel, stride, dilation = window(settings, axes, None)
    x = pad(x, sides(settings, x.shape[2:], kernel, stride, dilation), -torch.inf)
    function = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}[axes]
    return function(x, kernel, stride, ceil_mode=settings.get("ceil_mode", False))


def avg_pool(x, settings):
    axes = x.dim() - 2
    kernel, stride, dilation = window(settings, axes, None)
    function = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}[axes]
    counts, ceil = settings.get("count_include_pad", True), settings.get("ceil_mode", False)
    padding = settings.get("padding", 0)
    if isinstance(padding, int):
        return function(x, kernel, stride, padding, ceil, counts)
    pairs = sides(settings, x.shape[2:], kernel, stride, dilation)
    mean = lambda x: function(pad(x, pairs), kernel, stride, 0, ceil)
    return mean(x) if counts else mean(x) / mean(torch.ones_like(x))


def pad_layer(x, settings):
    mode = {"edge": "replicate"}.get(settings.get("mode", "constant"), settings.get("mode", "constant"))
    if mode == "constant":
        return pad(x, settings["pads"], settings.get("value", 0.0))
    # PyTorch does not do this for channels.
    assert settings["pads"][0] == [0, 0]
    return pad(x, settings["pads"][1:], mode=mode)


def cropping(x, settings):
    for axis, (before, after) in enumerate(settings["crops"], 1):
        x = x.narrow(axis, before, x.shape[axis] - before - after)
    return x


def upsample1d(x, settings):
    corners = settings.get("align_corners", False)
    mode = settings.get("mode", "nearest")
    kwargs = {"align_corners": corners} if mode == "linear" else {}
    return F.interpolate(x, settings.get("size"), settings.get("scale"), mode, **kwargs)


def conv_parameters(settings, channels, axes):
    taps, out, groups = along(settings["kernel"], axes), settings["out_channels"], settings.get("groups", 1)
    return {"conv1.weight": (out, channels // groups, *taps), "conv1.bias": (out,)}


def transposed_parameters(settings, channels, axes):
    taps, out, groups = along(settings["kernel"], axes), settings["out_channels"], settings.get("groups", 1)
    return {"conv_transpose1.weight": (channels, out // groups, *taps), "conv_transpose1.bias": (out,)}


def depthwise_parameters(settings, channels, axes):
    many = channels * settings.get("depth_multiplier", 1)
    return {"conv1.weight": (many, 1, *along(settings["kernel"], axes)), "conv1.bias": (many,)}


def separable_parameters(settings, channels, axes):
    many, out = channels * settings.get("depth_multiplier", 1), settings["out_channels"]
    return {
        "conv1.depthwise.weight": (many, 1, *along(settings["kernel"], axes)),
        "conv1.pointwise.weight": (out, many, 1, 1),
        "conv1.pointwise.bias": (out,),
    }


def depthwise(x, settings, weight, bias=None):
    return conv(x, settings, weight, bias, groups=x.shape[1])


def separable(x, settings, weight, pointwise, bias):
    return F.conv2d(depthwise(x, settings, weight), pointwise, bias)


def none(settings, channels, axes):
    return {}


KINDS = {
    "conv1d": (conv, conv_parameters),
    "conv2d": (conv, conv_parameters),
    "conv3d": (conv, conv_parameters),
    "conv_transpose1d": (conv_transpose, transposed_parameters),
    "conv_transpose2d": (conv_transpose, transposed_parameters),
    "depthwise_conv2d": (depthwise, depthwise_parameters),
    "separable_conv2d": (separable, separable_parameters),
    "max_pool1d": (max_pool, none),
    "max_pool2d": (max_pool, none),
    "max_pool3d": (max_pool, none),
    "avg_pool1d": (avg_pool, none),
    "avg_pool2d": (avg_pool, none),
    "avg_pool3d": (avg_pool, none),
    "adaptive_avg_pool1d": (lambda x, settings: F.adaptive_avg_pool1d(x, settings["size"]), none),
    "global_avg_pool": (lambda x, settings: x.flatten(2).mean(2), none),
    "global_max_pool": (lambda x, settings: x.flatten(2).amax(2), none),
    "pad": (pad_layer, none),
    "cropping": (cropping, none),
    "rescaling": (lambda x, settings: settings["scale"] * x + settings.get("offset", 0.0), none),
    "upsample1d": (upsample1d, none),
}

CASES = []


def case(name, kind, shape, whole=False, **settings):
    CASES.append((f"{kind}_{name}", {"kind": kind, **settings}, shape, whole))


case("same_even", "conv2d", (3, 6, 7), out_channels=4, kernel=[2, 4], padding="same")
case("same_even_dilated", "conv2d", (2, 9, 7), out_channels=2, kernel=2, padding="same", dilation=[3, 1])
case("same_upper_stride2", "conv2d", (3, 8, 7), out_channels=4, kernel=3, padding="same_upper", stride=2)
case("same_lower_stride3x2", "conv2d", (4, 8, 7), out_channels=4, kernel=[2, 5], padding="same_lower", stride=[3, 2], groups=2)
case("pads", "conv2d", (2, 5, 6), out_channels=3, kernel=3, padding=[[0, 2], [3, 1]])
case("same_upper_stride2", "conv1d", (3, 10), out_channels=4, kernel=5, padding="same_upper", stride=2)
case("same_even", "conv1d", (3, 10), out_channels=4, kernel=4, padding="same")
case("causal", "conv1d", (3, 9), out_channels=2, kernel=3, padding=[4, 0], dilation=2)
case("basic", "conv3d", (2, 5, 6, 4), out_channels=3, kernel=3)
case("all_settings", "conv3d", (4, 7, 6, 9), out_channels=6, kernel=[3, 2, 3], stride=[2, 1, 3], padding=[1, 0, 2], dilation=[2, 1, 1], groups=2)
case("same_upper_stride2", "conv3d", (2, 6, 5, 7), out_channels=2, kernel=[4, 3, 2], padding="same_upper", stride=2)
case("pads_stride3", "conv3d", (1, 8, 4, 3), out_channels=2, kernel=[2, 3, 1], stride=[3, 1, 1], padding=[[0, 2], [2, 0], [0, 1]])
case("kernel1_stride2", "conv3d", (3, 5, 4, 4), out_channels=2, kernel=1, stride=2)
case("depthwise", "conv3d", (3, 4, 4, 5), out_channels=6, kernel=[2, 3, 3], padding="same", groups=3)
case("stride2_output_padding", "conv_transpose1d", (3, 6), out_channels=4, kernel=3, stride=2, padding=1, output_padding=1)
case("same_upper", "conv_transpose1d", (2, 5), out_channels=2, kernel=4, stride=3, padding="same_upper")
case("pads_groups2", "conv_transpose1d", (4, 5), out_channels=4, kernel=5, stride=2, padding=[0, 3], groups=2, dilation=2)
case("same_upper", "conv_transpose2d", (2, 4, 3), out_channels=3, kernel=[3, 2], stride=2, padding="same_upper")
case("same_lower", "conv_transpose2d", (2, 4, 3), out_channels=3, kernel=[4, 3], stride=[1, 2], padding="same_lower")
case("same_small_kernel", "conv_transpose2d", (2, 4, 3), out_channels=3, kernel=[1, 2], stride=[3, 4], padding="same")
case("pads", "conv_transpose2d", (2, 4, 3), out_channels=3, kernel=3, stride=2, padding=[[1, 0], [0, 2]])
case("multiplier2", "depthwise_conv2d", (3, 6, 5), kernel=[3, 2], depth_multiplier=2, padding="same_upper")
case("stride2", "depthwise_conv2d", (4, 6, 8), kernel=3, stride=2, padding=1)
case("basic", "separable_conv2d", (3, 6, 5), out_channels=4, kernel=3, padding="same")
case("multiplier3_stride2", "separable_conv2d", (2, 6, 5), out_channels=5, kernel=3, depth_multiplier=3, stride=2, padding="same_upper")
case("same", "max_pool2d", (2, 7, 5), kernel=2, padding="same")
case("same_stride2", "max_pool2d", (2, 8, 6), kernel=3, stride=2, padding="same")
case("same_lower_ties", "max_pool2d", (2, 7, 6), kernel=3, stride=2, padding="same_lower", whole=True)
case("pads", "max_pool2d", (2, 5, 5), kernel=3, stride=1, padding=[[2, 0], [0, 1]])
case("ceil", "max_pool2d", (2, 7, 6), kernel=3, stride=2, ceil_mode=True)
case("basic", "max_pool1d", (3, 9), kernel=3, stride=2)
case("pads_ties", "max_pool1d", (3, 9), kernel=3, stride=1, padding=[2, 0], whole=True)
case("basic", "max_pool3d", (2, 4, 6, 5), kernel=2)
case("overlapping_ties", "max_pool3d", (2, 5, 5, 6), kernel=[3, 2, 3], stride=[1, 2, 1], padding=[1, 1, 0], whole=True)
case("ceil_ties", "max_pool3d", (1, 5, 6, 7), kernel=[2, 3, 2], stride=2, ceil_mode=True, whole=True)
case("same", "avg_pool2d", (2, 7, 5), kernel=2, padding="same", count_include_pad=False)
case("same_counted", "avg_pool2d", (2, 7, 5), kernel=2, padding="same_upper")
case("ceil_padding1", "avg_pool2d", (2, 6, 8), kernel=3, stride=2, padding=1, ceil_mode=True)
case("ceil_excluded", "avg_pool1d", (3, 8), kernel=3, stride=2, padding=1, ceil_mode=True, count_include_pad=False)
case("basic", "avg_pool1d", (3, 8), kernel=4)
case("padding1", "avg_pool3d", (2, 5, 4, 6), kernel=3, stride=2, padding=1)
case("padding1_excluded_ceil", "avg_pool3d", (2, 6, 4, 6), kernel=3, stride=2, padding=1, ceil_mode=True, count_include_pad=False)
case("to4", "adaptive_avg_pool1d", (3, 10), size=4)
case("volume", "global_avg_pool", (3, 2, 4, 3))
case("sequence_ties", "global_max_pool", (3, 12), whole=True)
case("volume", "global_max_pool", (3, 2, 4, 3))
case("reflect", "pad", (2, 5, 4), pads=[[0, 0], [2, 4], [0, 1]], mode="reflect")
case("edge", "pad", (2, 5, 4), pads=[[0, 0], [2, 0], [3, 1]], mode="edge")
case("circular", "pad", (2, 5, 4), pads=[[0, 0], [2, 1], [0, 4]], mode="circular")
case("constant", "pad", (2, 5), pads=[[1, 0], [0, 2]], value=0.5)
case("all_axes", "cropping", (3, 5, 6), crops=[[1, 0], [0, 2], [3, 1]])
case("to_minus_one_and_one", "rescaling", (2, 5), scale=2.0, offset=-1.0)
case("scale2", "upsample1d", (2, 5), scale=2)
case("linear", "upsample1d", (2, 5), size=12, mode="linear")
case("linear_corners", "upsample1d", (2, 5), size=8, mode="linear", align_corners=True)


def entry(name, layer, shape, whole):
    rng = generator(f"layers/{name}")
    function, parameters_of = KINDS[layer["kind"]]
    x = draw((BATCH, *shape), ("whole", 3) if whole else None, rng)
    rows = (shape[0], x[0].numel() // shape[0])
    parameters = {"positions1.weight": draw(rows, ("whole", 2) if whole else None, rng)}
    for key, size in parameters_of(layer, shape[0], len(shape) - 1).items():
        parameters[key] = 0.5 * draw(size, None, rng)
    trained = {key: value.double().requires_grad_() for key, value in parameters.items()}
    positions, *others = trained.values()
    output = function(x.double() + positions.reshape(shape), layer, *others)
    target = draw(output.shape, None, rng)
    F.mse_loss(output, target.double()).backward()
    join = lambda entries: "{" + ",".join(f'"{key}":{tensor(value)}' for key, value in entries) + "}"
    fields = {
        "case": json.dumps(name),
        "layer": json.dumps(layer, separators=(",", ":")),
        "shape": json.dumps(list(shape), separators=(",", ":")),
        "input": tensor(x),
        "target": tensor(target),
        "output": tensor(output),
        "parameters": join(parameters.items()),
        "gradients": join((key, value.grad) for key, value in trained.items()),
    }
    return "{" + ",".join(f'"{key}":{value}' for key, value in fields.items()) + "}"


def main():
    check_version()
    text = "[\n" + ",\n".join(entry(*case) for case in CASES) + "\n]\n"
    json.loads(text)
    FILE.write_text(text)


if __name__ == "__main__":
    main()

"""Writes the golden values of every op, from PyTorch: `python generate.py` fills the folders of families with <op>.json, and
`python generate.py relu lstm` writes only these.

Inputs are float32. Everything is computed from them in float64, so the values are nearer to the truth than float32
is. An entry of an op:

    {"case", "settings", "inputs", "outputs", "grad_outputs", "grad_inputs"}

where a tensor is {"shape", "data"} or, for labels, {"shape", "ints"}; a gradient that is not given or not wanted is
null. An entry of an update:

    {"case", "settings", "inputs": [parameter], "steps": [{"gradient", "parameter", "states"}]}

with the parameter and the states after each step; of `ema`, {"value", "buffer"} are a step. An entry of `clip` has inputs, outputs and "total_norm".
"""

import json
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from cases import CASES
from common import check_version, draw, generator, numbers, tensor, tensors

FOLDER = Path(__file__).parent
SOURCES = FOLDER.parent.parent / "src" / "ops"
# Files that are not named as the op that makes the values.
SAME = {"adamw": "adam", "adamw8bit": "adam8bit"}


def folder_of(op):
    """The folder of the op's family: that of its source."""
    name = SAME.get(op, op)
    source = next(path for path in SOURCES.glob(f"*/{name}*") if path.stem == name)
    return FOLDER / source.parent.name


def matmul(a, b, trans_a, trans_b):
    return torch.matmul(a.mT if trans_a else a, b.mT if trans_b else b)


def bias_add(input, bias):
    return input + bias.reshape([1, -1] + [1] * (input.dim() - 2))


def round(input, half):
    return input.to({"f16": torch.float16, "bf16": torch.bfloat16}[half]).double()


def padded(input, padding, padding_end, value=0.0):
    """The input with other rows above and columns on the left than below and on the right."""
    (top, left), (bottom, right) = padding, padding_end
    return F.pad(input, (left, right, top, bottom), value=value)


def conv2d(input, weight, bias=None, relu=False, padding_end=None, **settings):
    if padding_end is not None:
        input, settings = padded(input, settings["padding"], padding_end), settings | {"padding": (0, 0)}
    output = F.conv2d(input, weight, bias, **settings)
    return torch.relu(output) if relu else output


def conv_transpose2d(input, weight, bias=None, padding_end=None, **settings):
    if padding_end is None:
        return F.conv_transpose2d(input, weight, bias, **settings)
    (top, left), (bottom, right) = settings["padding"], padding_end
    output = F.conv_transpose2d(input, weight, bias, **settings | {"padding": (0, 0)})
    height, width = output.shape[2:]
    return output[:, :, top : height - bottom, left : width - right]


def max_pool2d(input, kernel, stride, padding, padding_end=None, ceil_mode=False):
    if padding_end is not None:
        input, padding = padded(input, padding, padding_end, -torch.inf), 0
    return F.max_pool2d(input, kernel, stride, padding, ceil_mode=ceil_mode)


def avg_pool2d(input, kernel, stride, padding, padding_end=None, ceil_mode=False, count_include_pad=True):
    if padding_end is None:
        return F.avg_pool2d(input, kernel, stride, padding, ceil_mode, count_include_pad)
    mean = lambda x: F.avg_pool2d(padded(x, padding, padding_end), kernel, stride, ceil_mode=ceil_mode)
    return mean(input) if count_include_pad else mean(input) / mean(torch.ones_like(input))


def single(number):
    """A setting that the op has as an f32."""
    return torch.tensor(number, dtype=torch.float32).item()


def batch_norm(input, weight=None, bias=None, *, eps, affine, relu):
    output = F.batch_norm(input, None, None, weight, bias, training=True, eps=single(eps))
    axes = [axis for axis in range(input.dim()) if axis != 1]
    return (F.relu(output) if relu else output), input.mean(axes), input.var(axes, correction=0)


def batch_norm_eval(input, running_mean, running_var, weight=None, bias=None, *, eps, affine, relu):
    output = F.batch_norm(input, running_mean, running_var, weight, bias, training=False, eps=single(eps))
    return F.relu(output) if relu else output


def layer_norm(input, weight=None, bias=None, *, eps, affine, dims):
    axes = tuple(range(-dims, 0))
    output = F.layer_norm(input, input.shape[-dims:], weight, bias, single(eps))
    return output, input.mean(axes), input.var(axes, correction=0)


def rms_norm(input, weight=None, *, eps, affine, dims):
    output = F.rms_norm(input, input.shape[-dims:], weight, single(eps))
    return output, input.square().mean(tuple(range(-dims, 0)))


def group_norm(input, weight=None, bias=None, *, eps, affine, groups):
    # `F.group_norm` refuses one value per group in a batch of one; the function below it does not.
    output = torch.group_norm(input, groups, weight, bias, single(eps))
    rows = input.reshape(input.shape[0], groups, -1)
    return output, rows.mean(2), rows.var(2, correction=0)


def leaky_relu(input, slope):
    return F.leaky_relu(input, single(slope))


def with_singles(function):
    return lambda input, **settings: function(input, **{name: x if x is None else single(x) for name, x in settings.items()})


def hard_sigmoid(input):
    # F.hardsigmoid has the derivative 1/6 in float32.
    return F.relu6(input + 3) / 6


def softmax(input, axis, causal=False):
    if causal:
        queries, keys = input.shape[-2:]
        is_visible = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
        input = input.masked_fill(~is_visible, -torch.inf)
    return torch.softmax(input, axis)


def embedding(indices, weight, padding_idx):
    return F.embedding(indices, weight, padding_idx)


def gather(input, index, axis):
    return torch.gather(input, axis, index)


def log_softmax(input, axis):
    return torch.log_softmax(input, axis)


def scale(input, factor):
    return factor * input


def normalize(input, scale, offset):
    """The settings are f32."""
    scale, offset = (torch.tensor(values).double() for values in (scale, offset))
    channels = (len(scale),) + (1,) * (input.dim() - 2) if len(scale) > 1 else ()
    return scale.reshape(channels) * input.double() + offset.reshape(channels)


def of_samples(sample_weight, losses):
    """The weights as factors of losses [N, ...]: each belongs to as many of the N."""
    rows = sample_weight.repeat_interleave(len(losses) // len(sample_weight))
    return rows.reshape([-1] + [1] * (losses.dim() - 1))


def weighing_samples(loss):
    """A loss whose last input may be weights of samples."""

    def run(*inputs, sample_weights=False, **settings):
        if not sample_weights:
            return loss(*inputs, **settings)
        *inputs, sample_weight = inputs
        losses = loss(*inputs, reduction="none", **settings)
        return (of_samples(sample_weight, losses) * losses).sum() / losses.numel()

    return run


def accuracy(input, labels, sample_weight=None, ignore_index=-1, sample_weights=False):
    is_right = (input.argmax(1) == labels) & (labels != ignore_index)
    if sample_weights:
        is_right &= of_samples(sample_weight, is_right) != 0
    return is_right.sum().double()


def cross_entropy(
    input, labels, normalizer=None, class_weights=None, label_smoothing=0.0, ignore_index=-100, reduction="mean"
):
    settings = dict(weight=class_weights, label_smoothing=single(label_smoothing), ignore_index=ignore_index)
    if normalizer is None:
        return F.cross_entropy(input, labels, reduction=reduction, **settings)
    if reduction == "none":
        # The sum is divided by the number of positions.
        return normalizer[0] * labels.numel() * F.cross_entropy(input, labels, reduction="none", **settings)
    return normalizer[0] * F.cross_entropy(input, labels, reduction="sum", **settings)


def soft_cross_entropy(input, target, class_weights=None, label_smoothing=0.0, reduction="mean"):
    return F.cross_entropy(input, target, class_weights, label_smoothing=single(label_smoothing), reduction=reduction)


def mean_loss(input, reduction="mean"):
    return input if reduction == "none" else input.mean()


def dice(input, target, probabilities, smooth, ignore_index=-1, reduction="mean"):
    smooth = single(smooth)
    p = torch.softmax(input, 1) if probabilities == "softmax" else torch.sigmoid(input)
    if not target.is_floating_point():
        counts = (target != ignore_index).unsqueeze(1)
        target = F.one_hot(target, input.shape[1]).movedim(-1, 1) * counts
        p = p * counts
    both, total = (x.flatten(2).sum(2) if x.dim() > 2 else x for x in (p * target, p + target))
    losses = 1 - (2 * both + smooth) / (total + smooth)
    return losses if reduction == "none" else losses.mean()


def bce_with_logits(input, target, pos_weight=None, reduction="mean"):
    if pos_weight is not None and input.dim() > 1:
        pos_weight = pos_weight.reshape([-1] + [1] * (input.dim() - 2))
    return F.binary_cross_entropy_with_logits(input, target, pos_weight=pos_weight, reduction=reduction)


def add_scalar(input, value):
    return input + value


def compare(a, b=None, *, relation, number=None):
    return getattr(torch, relation)(a, number if b is None else b).double()


def select(condition, *tensors, numbers):
    tensors = iter(tensors)
    a, b = (torch.tensor(numbers[name], dtype=torch.float64) if name in numbers else next(tensors) for name in ("a", "b"))
    return torch.where(condition != 0, a, b)


def one_hot(indices, classes):
    return F.one_hot(indices, classes).double()


def expand(input, shape):
    return input.expand(shape)


def permute(input, axes):
    return input.permute(axes)


def concat(a, b, axis):
    return torch.cat((a, b), axis)


def flip(input, lengths=None, axis=1):
    if lengths is None:
        return input.flip(axis)
    indices = torch.arange(input.shape[axis])
    orders = [torch.where(indices < length, length - 1 - indices, indices) for length in lengths]
    return torch.stack([x.index_select(axis - 1, order) for x, order in zip(input, orders)])


def slice_(input, axis, start, length):
    return torch.narrow(input, axis, start, length)


def split(input, axis, lengths):
    return torch.split(input, lengths, axis)


def upsample_nearest2d(input, scale):
    return F.interpolate(input, scale_factor=scale, mode="nearest")


def upsample_bilinear2d(input, size, align_corners):
    return F.interpolate(input, size=size, mode="bilinear", align_corners=align_corners)


def adaptive_avg_pool2d(input, output):
    return F.adaptive_avg_pool2d(input, output)


def mul_channels(input, scale):
    return input * scale.reshape(list(scale.shape) + [1] * (input.dim() - 2))


def pad(input, pads, value):
    # PyTorch wants the last axis first.
    return F.pad(input, [n for pair in reversed(pads) for n in pair], value=value)


def reduce(function):
    return lambda input, axes, keepdim: function(input, dim=axes, keepdim=keepdim)


def recurrent(kind):
    """A module of one layer and direction; packed where lengths, which are integers, come last."""

    def run(input, weight_ih, weight_hh, bias_ih, bias_hh, *states):
        module = kind(weight_ih.shape[1], weight_hh.shape[1], batch_first=True, dtype=torch.float64)
        weights = dict(weight_ih_l0=weight_ih, weight_hh_l0=weight_hh, bias_ih_l0=bias_ih, bias_hh_l0=bias_hh)
        steps = input.shape[1]
        is_packed = bool(states) and not states[-1].is_floating_point()
        if is_packed:
            *states, lengths = states
            input = pack_padded_sequence(input, lengths, batch_first=True, enforce_sorted=False)
        states = tuple(state[None] for state in states)
        initial = () if not states else (states if len(states) > 1 else states[0],)
        output, last = torch.func.functional_call(module, weights, (input, *initial))
        if is_packed:
            output, _ = pad_packed_sequence(output, batch_first=True, total_length=steps)
        return output, *(state[0] for state in (last if isinstance(last, tuple) else (last,)))

    return run


OPS = {
    "matmul": matmul,
    "bias_add": bias_add,
    "conv2d": conv2d,
    "conv_transpose2d": conv_transpose2d,
    "adaptive_avg_pool2d": adaptive_avg_pool2d,
    "upsample_bilinear2d": upsample_bilinear2d,
    "mul_channels": mul_channels,
    "pad": pad,
    "max_pool2d": max_pool2d,
    "avg_pool2d": avg_pool2d,
    "batch_norm": batch_norm,
    "batch_norm_eval": batch_norm_eval,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "group_norm": group_norm,
    "relu": torch.relu,
    "leaky_relu": leaky_relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "silu": F.silu,
    "mish": F.mish,
    "hard_swish": F.hardswish,
    "gelu": F.gelu,
    "abs": torch.abs,
    "exp": torch.exp,
    "sin": torch.sin,
    "cos": torch.cos,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "hard_sigmoid": hard_sigmoid,
    "clamp": with_singles(torch.clamp),
    "pow": with_singles(torch.pow),
    "elu": with_singles(F.elu),
    "softplus": with_singles(F.softplus),
    "prelu": F.prelu,
    "softmax": softmax,
    "log_softmax": log_softmax,
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "compare": compare,
    "select": select,
    "add_scalar": add_scalar,
    "scale": scale,
    "normalize": normalize,
    "to_float": torch.Tensor.double,
    "round": round,
    "one_hot": one_hot,
    "expand": expand,
    "reshape": torch.reshape,
    "permute": permute,
    "concat": concat,
    "flip": flip,
    "slice": slice_,
    "split": split,
    "upsample_nearest2d": upsample_nearest2d,
    "embedding": embedding,
    "gather": gather,
    "sum": reduce(torch.sum),
    "mean": reduce(torch.mean),
    "amax": reduce(torch.amax),
    "amin": reduce(torch.amin),
    "lstm": recurrent(torch.nn.LSTM),
    "gru": recurrent(torch.nn.GRU),
    "rnn": recurrent(torch.nn.RNN),
    "rnn_relu": recurrent(lambda *sizes, **settings: torch.nn.RNN(*sizes, nonlinearity="relu", **settings)),
    "cross_entropy": weighing_samples(cross_entropy),
    "soft_cross_entropy": weighing_samples(soft_cross_entropy),
    "dice": weighing_samples(dice),
    "bce_with_logits": weighing_samples(bce_with_logits),
    "mse": weighing_samples(F.mse_loss),
    "mae": weighing_samples(F.l1_loss),
    "huber": weighing_samples(F.huber_loss),
    "mean_loss": weighing_samples(mean_loss),
    "accuracy": accuracy,
}


class Optimizer(torch.optim.Optimizer):
    def __init__(self, parameters, **settings):
        super().__init__(parameters, settings)


class Lion(Optimizer):
    """Algorithm 2 of https://arxiv.org/abs/2302.06675, which PyTorch does not have."""

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, (beta1, beta2), weight_decay = group["lr"], group["betas"], group["weight_decay"]
            for p in group["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                direction = (beta1 * m + (1 - beta1) * p.grad).sign()
                p.sub_(lr * (direction + weight_decay * p))
                m.copy_(beta2 * m + (1 - beta2) * p.grad)


class Lamb(Optimizer):
    """Algorithm 2 of https://arxiv.org/abs/1904.00962 with phi(z) = z, which PyTorch does not have."""

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            (beta1, beta2), eps = group["betas"], group["eps"]
            for p in group["params"]:
                state = self.state[p]
                m, v = (state.setdefault(name, torch.zeros_like(p)) for name in ("exp_avg", "exp_avg_sq"))
                t = state["step"] = state.get("step", 0) + 1
                m.copy_(beta1 * m + (1 - beta1) * p.grad)
                v.copy_(beta2 * v + (1 - beta2) * p.grad**2)
                r = m / (1 - beta1**t) / ((v / (1 - beta2**t)).sqrt() + eps) + group["weight_decay"] * p
                p.sub_(group["lr"] * p.norm() / r.norm() * r)


def dynamic_map(signed):
    """The 256 numbers of dynamic 8-bit codes, by code: as create_dynamic_map of bitsandbytes, which has them in ascending order, has
    them. Code 0 is 0, those of numbers below 0 count down from 256."""
    above = []
    for decade in range(7):
        edges = torch.linspace(0.1, 1, (1 if signed else 2) * 2**decade + 1, dtype=torch.float64)
        above += (10.0 ** (decade - 6) * (edges[:-1] + edges[1:]) / 2).tolist()
    below = [-x for x in reversed(above)] if signed else []
    return torch.tensor([0.0, *above, 1.0, *below], dtype=torch.float64)


class Adam8bit(Optimizer):
    """Adam with moments in dynamic 8-bit codes, of blocks of 256: https://arxiv.org/abs/2110.02861. PyTorch does not have it."""

    decoupled = False

    def coded(self, moment, signed):
        """A moment as codes and scales."""
        blocks = F.pad(moment.flatten(), (0, -moment.numel() % 256)).reshape(-1, 256)
        scales = blocks.abs().amax(1)
        numbers = dynamic_map(signed)
        codes = (blocks / scales[:, None]).unsqueeze(-1).sub(numbers).abs().argmin(-1)
        if not signed:
            codes = codes.where(blocks <= 0, codes.clamp(min=1))
        return codes, scales

    def decoded(self, codes, scales, signed, like):
        return (dynamic_map(signed)[codes] * scales[:, None]).flatten()[: like.numel()].reshape(like.shape)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, (beta1, beta2), decay = group["lr"], group["betas"], group["weight_decay"]
            for p in group["params"]:
                state = self.state[p]
                is_small = p.numel() < group["min_8bit_size"]
                m, v = torch.zeros_like(p), torch.zeros_like(p)
                if state and is_small:
                    m, v = state["exp_avg"], state["exp_avg_sq"]
                elif state:
                    m = self.decoded(state["exp_avg"], state["exp_avg_scale"], True, p)
                    v = self.decoded(state["exp_avg_sq"], state["exp_avg_sq_scale"], False, p)
                if self.decoupled:
                    p.mul_(1 - lr * decay)
                g = p.grad if self.decoupled else p.grad + decay * p
                m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
                t = state["step"] = state.get("step", 0) + 1
                p.sub_(lr / (1 - beta1**t) * m / ((v / (1 - beta2**t)).sqrt() + group["eps"]))
                if is_small:
                    state["exp_avg"], state["exp_avg_sq"] = m, v
                else:
                    state["exp_avg"], state["exp_avg_scale"] = self.coded(m, True)
                    state["exp_avg_sq"], state["exp_avg_sq_scale"] = self.coded(v, False)


class Adamw8bit(Adam8bit):
    decoupled = True


CODED = ["exp_avg", "exp_avg_sq", "exp_avg_scale", "exp_avg_sq_scale"]
UPDATES = {
    "sgd": (torch.optim.SGD, ["momentum_buffer"]),
    "adam": (torch.optim.Adam, ["exp_avg", "exp_avg_sq"]),
    "adamw": (torch.optim.AdamW, ["exp_avg", "exp_avg_sq"]),
    "adam8bit": (Adam8bit, CODED),
    "adamw8bit": (Adamw8bit, CODED),
    "rmsprop": (torch.optim.RMSprop, ["square_avg", "grad_avg", "momentum_buffer"]),
    "adagrad": (torch.optim.Adagrad, ["sum"]),
    "lion": (Lion, ["exp_avg"]),
    "lamb": (Lamb, ["exp_avg", "exp_avg_sq"]),
    "adafactor": (torch.optim.Adafactor, ["row_var", "col_var", "variance"]),
}
STEPS = 3


def differentiable(case, inputs, rng):
    """Values and gradients of one op, for a random gradient of its outputs."""
    exact = []
    for name, x in zip(case.inputs, inputs):
        x = x.double() if x.is_floating_point() else x
        exact.append(x.requires_grad_() if x.is_floating_point() and name not in case.no_grad else x)
    outputs = OPS[case.op](*exact, **case.settings)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    given = range(len(outputs)) if case.grad_outputs is None else case.grad_outputs
    grad_outputs = [draw(y.shape, None, rng) if i in given else None for i, y in enumerate(outputs)]
    if given:
        torch.autograd.backward([outputs[i] for i in given], [grad_outputs[i].double() for i in given])
    return {
        "inputs": tensors(inputs),
        "outputs": tensors(outputs),
        "grad_outputs": tensors(grad_outputs),
        "grad_inputs": tensors([x.grad if x.requires_grad else None for x in exact]),
    }


def update(case, inputs, rng):
    """A parameter and its optimizer states after each of a few steps."""
    parameter = torch.nn.Parameter(inputs[0].double())
    make, names = UPDATES[case.op]
    optimizer = make([parameter], **case.settings)
    steps = []
    for _ in range(STEPS):
        gradient = draw(parameter.shape, None, rng)
        parameter.grad = gradient.double()
        optimizer.step()
        state = optimizer.state[parameter]
        # The initial value of adagrad's sums is added where they are read.
        initial = case.settings.get("initial_accumulator_value", 0.0)
        states = ",".join(numbers(state[name] - initial) for name in names if state.get(name) is not None)
        steps.append(f'{{"gradient":{numbers(gradient)},"parameter":{numbers(parameter)},"states":[{states}]}}')
    return {"inputs": tensors(inputs), "steps": "[" + ",".join(steps) + "]"}


def ema(case, inputs, rng):
    """A buffer after each of a few steps, as batch normalization's running statistics."""
    momentum, factor = single(case.settings["momentum"]), single(case.settings["factor"])
    buffer = inputs[0].double()
    steps = []
    for _ in range(STEPS):
        value = draw(buffer.shape, None, rng)
        buffer = torch.lerp(buffer, factor * value.double(), momentum)
        steps.append(f'{{"value":{numbers(value)},"buffer":{numbers(buffer)}}}')
    return {"inputs": tensors(inputs), "steps": "[" + ",".join(steps) + "]"}


def clip(case, inputs):
    """Gradients after clipping by their global norm, and the norm before."""
    parameters = [torch.nn.Parameter(torch.zeros_like(x, dtype=torch.float64)) for x in inputs]
    for parameter, x in zip(parameters, inputs):
        parameter.grad = x.double()
    norm = torch.nn.utils.clip_grad_norm_(parameters, case.settings["max_norm"])
    outputs = [parameter.grad for parameter in parameters]
    return {"inputs": tensors(inputs), "outputs": tensors(outputs), "total_norm": "%.10g" % norm.item()}


def main():
    check_version()
    files = {}
    names = sys.argv[1:]
    for case in CASES:
        if names and case.op not in names:
            continue
        rng = generator(f"{case.op}/{case.name}")
        inputs = [draw(shape, case.fill.get(name), rng) for name, shape in case.inputs.items()]
        if case.op in UPDATES:
            entry = update(case, inputs, rng)
        elif case.op == "clip":
            entry = clip(case, inputs)
        elif case.op == "ema":
            entry = ema(case, inputs, rng)
        else:
            entry = differentiable(case, inputs, rng)
        head = {"case": json.dumps(case.name), "settings": json.dumps(case.settings, separators=(",", ":"))}
        line = ",".join(f'"{key}":{value}' for key, value in (head | entry).items())
        files.setdefault(case.op, []).append("{" + line + "}")
    for op, entries in files.items():
        text = "[\n" + ",\n".join(entries) + "\n]\n"
        json.loads(text)
        folder_of(op).joinpath(f"{op}.json").write_text(text)


if __name__ == "__main__":
    main()

"""The cases of every op: settings, input shapes and how the inputs are drawn.

`python cases.py > CASES.md` renders the table that the Rust ops' `cases()` follow: a case there of the same op and name
must have the same settings and input shapes.
"""

import math
from dataclasses import dataclass, field


@dataclass
class Case:
    """One op with settings, and its inputs as `name: shape`."""

    op: str
    name: str
    inputs: dict
    settings: dict = field(default_factory=dict)
    # How inputs are drawn where it is not N(0, 1): ("uniform", low, high), ("labels", n), ("whole", n) (as
    # labels, but reals, so that some are equal), ("away", distance), ("constant", value).
    fill: dict = field(default_factory=dict)
    # Inputs without a gradient.
    no_grad: tuple = ()
    # Outputs that get a gradient; None means all.
    grad_outputs: tuple | None = None


CASES: list[Case] = []


def add(op, name, inputs, settings=None, **rest):
    CASES.append(Case(op, name, inputs, settings or {}, **rest))


def dims(shape):
    return "x".join(map(str, shape))


# matmul: output [m, n] = op(a) op(b), op(a) is [m, k], op(b) is [k, n]. Names are m x k x n.
def matmul(trans_a, trans_b, m, k, n, batch=None):
    a = (k, m) if trans_a else (m, k)
    b = (n, k) if trans_b else (k, n)
    lead = () if batch is None else (batch,)
    prefix = "" if batch is None else f"batch{batch}_"
    kind = ("t" if trans_a else "n") + ("t" if trans_b else "n")
    add("matmul", f"{prefix}{kind}_{m}x{k}x{n}", {"a": lead + a, "b": lead + b}, {"trans_a": trans_a, "trans_b": trans_b})


matmul(False, False, 1, 1, 1)
for ta in (False, True):
    for tb in (False, True):
        matmul(ta, tb, 4, 5, 6)
        matmul(ta, tb, 17, 33, 9)
        matmul(ta, tb, 3, 7, 5, batch=2)
matmul(False, True, 1, 7, 5)
matmul(False, False, 7, 1, 5)
matmul(False, False, 2, 3, 4, batch=3)

# bias_add: bias is added along dim 1.
for shape in ((1, 1), (4, 7), (2, 5, 3), (2, 3, 4, 5), (3, 17, 1, 1)):
    add("bias_add", dims(shape), {"input": shape, "bias": (shape[1],)})


# conv2d
def conv2d(name, input, weight, bias=True, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1, **rest):
    inputs = {"input": input, "weight": weight}
    if bias:
        inputs["bias"] = (weight[0],)
    add("conv2d", name, inputs, {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups} | rest)


conv2d("basic", (2, 3, 8, 8), (4, 3, 3, 3))
conv2d("no_bias", (2, 3, 6, 7), (5, 3, 3, 3), bias=False)
conv2d("one_pixel", (3, 2, 1, 1), (2, 2, 1, 1))
conv2d("kernel1x1", (2, 4, 5, 5), (3, 4, 1, 1))
conv2d("kernel1x1_stride2", (2, 4, 5, 6), (3, 4, 1, 1), bias=False, stride=(2, 2))
conv2d("kernel5_pad2", (1, 1, 8, 8), (2, 1, 5, 5), padding=(2, 2))
conv2d("stride2_pad1", (2, 3, 9, 9), (4, 3, 3, 3), stride=(2, 2), padding=(1, 1))
conv2d("stride2x1_pad0x2", (1, 2, 7, 8), (3, 2, 3, 2), stride=(2, 1), padding=(0, 2))
conv2d("stride3_leftover", (1, 2, 10, 10), (2, 2, 2, 2), stride=(3, 3))
conv2d("dilation2_pad2", (1, 2, 9, 8), (3, 2, 3, 3), padding=(2, 2), dilation=(2, 2))
conv2d("dilation1x3_stride1x2", (1, 2, 6, 11), (2, 2, 2, 3), stride=(1, 2), dilation=(1, 3))
conv2d("groups2", (2, 4, 6, 6), (6, 2, 3, 3), padding=(1, 1), groups=2)
conv2d("groups2_stride2_no_bias", (1, 4, 7, 7), (2, 2, 3, 3), bias=False, stride=(2, 2), groups=2)
conv2d("depthwise", (2, 4, 6, 6), (4, 1, 3, 3), padding=(1, 1), groups=4)
conv2d("depthwise_two_per_channel", (1, 3, 7, 7), (6, 1, 3, 3), stride=(2, 2), groups=3)
conv2d("channels9to17", (1, 9, 5, 5), (17, 9, 3, 3), padding=(1, 1))
conv2d("depthwise_two_per_channel_pad1", (2, 3, 6, 7), (6, 1, 3, 3), padding=(1, 1), groups=3)
conv2d("depthwise_5x5_stride2", (2, 3, 9, 10), (3, 1, 5, 5), stride=(2, 2), padding=(2, 2), groups=3)
conv2d("depthwise_dilation2", (1, 3, 9, 11), (3, 1, 3, 3), padding=(2, 2), dilation=(2, 2), groups=3)
conv2d("depthwise_stride2_dilation4", (1, 2, 13, 12), (4, 1, 2, 3), stride=(2, 2), padding=(2, 3), dilation=(4, 2), groups=2)
conv2d("groups3_channels5to3", (1, 15, 5, 6), (9, 5, 3, 3), stride=(2, 2), padding=(1, 1), groups=3)
conv2d("patches", (1, 3, 8, 12), (5, 3, 4, 4), stride=(4, 4))
conv2d("stride2_dilation4", (1, 3, 13, 12), (4, 3, 2, 3), stride=(2, 2), padding=(2, 3), dilation=(4, 2))
conv2d("relu", (2, 3, 6, 7), (5, 3, 3, 3), padding=(1, 1), relu=True)
conv2d("relu_depthwise", (2, 5, 7, 6), (5, 1, 3, 3), padding=(1, 1), groups=5, relu=True)
conv2d("same_upper_k2", (2, 3, 5, 6), (4, 3, 2, 2), padding_end=(1, 1))
conv2d("same_upper_stride2_k3", (2, 3, 8, 10), (4, 3, 3, 3), stride=(2, 2), padding_end=(1, 1))
conv2d("pads1x0_to_0x2", (1, 2, 6, 7), (3, 2, 3, 4), bias=False, padding=(1, 0), padding_end=(0, 2))
conv2d("pads0_to_2_kernel1x1", (2, 4, 3, 3), (3, 4, 1, 1), padding_end=(2, 1))
conv2d("pads0_to_2_kernel1x1_stride2", (2, 8, 3, 3), (3, 8, 1, 1), bias=False, stride=(2, 2), padding_end=(2, 2))
conv2d(
    "pads_all_settings", (2, 6, 11, 13), (8, 3, 3, 2),
    stride=(2, 3), padding=(1, 3), padding_end=(4, 0), dilation=(2, 1), groups=2,
)
conv2d("pads_depthwise", (2, 3, 9, 8), (6, 1, 3, 3), stride=(2, 2), padding=(0, 1), padding_end=(2, 3), groups=3)


# conv_transpose2d: the weight is [in, out / groups, h, w].
def conv_transpose2d(name, input, weight, bias=True, groups=1, **rest):
    inputs = {"input": input, "weight": weight}
    if bias:
        inputs["bias"] = (weight[1] * groups,)
    settings = {"stride": (1, 1), "padding": (0, 0), "output_padding": (0, 0), "dilation": (1, 1), "groups": groups}
    add("conv_transpose2d", name, inputs, settings | rest)


conv_transpose2d("basic", (2, 3, 5, 6), (3, 4, 3, 3))
conv_transpose2d("no_bias", (2, 3, 4, 4), (3, 5, 2, 3), bias=False)
conv_transpose2d("one_pixel", (3, 2, 1, 1), (2, 2, 1, 1))
conv_transpose2d("kernel2_stride2", (2, 4, 3, 5), (4, 3, 2, 2), stride=(2, 2))
conv_transpose2d("kernel1_stride2_output_padding", (1, 2, 3, 4), (2, 3, 1, 1), stride=(2, 2), output_padding=(1, 0))
conv_transpose2d(
    "kernel3_stride2_pad1_output_padding1", (2, 3, 4, 5), (3, 4, 3, 3), stride=(2, 2), padding=(1, 1), output_padding=(1, 1)
)
conv_transpose2d("kernel4_stride2_pad1", (1, 3, 4, 4), (3, 2, 4, 4), stride=(2, 2), padding=(1, 1))
conv_transpose2d("dilation2_pad1", (1, 2, 5, 4), (2, 3, 3, 3), bias=False, padding=(1, 1), dilation=(2, 2))
conv_transpose2d("groups2", (2, 4, 3, 4), (4, 3, 2, 3), stride=(2, 2), groups=2)
conv_transpose2d("depthwise", (2, 3, 5, 4), (3, 1, 3, 3), stride=(2, 2), padding=(1, 1), output_padding=(1, 1), groups=3)
conv_transpose2d(
    "all_settings", (2, 4, 5, 4), (4, 3, 3, 2),
    stride=(2, 3), padding=(2, 1), output_padding=(1, 2), dilation=(2, 1), groups=2,
)
conv_transpose2d("kernel3_stride2_pads0_to_1", (2, 3, 4, 5), (3, 4, 3, 3), stride=(2, 2), padding_end=(1, 1))
conv_transpose2d("kernel2_pads1x0_to_0x1", (1, 4, 5, 6), (4, 3, 2, 2), bias=False, padding=(1, 0), padding_end=(0, 1))
conv_transpose2d("kernel1x1_pads0_to_1", (2, 8, 4, 6), (8, 5, 1, 1), padding_end=(1, 2))
conv_transpose2d(
    "pads_depthwise", (2, 3, 5, 4), (3, 1, 3, 3), stride=(2, 2), padding=(0, 1), padding_end=(2, 0), groups=3
)
conv_transpose2d(
    "pads_all_settings", (2, 4, 5, 4), (4, 3, 3, 2),
    stride=(2, 3), padding=(3, 0), padding_end=(0, 2), output_padding=(1, 2), dilation=(2, 1), groups=2,
)


# max_pool2d, avg_pool2d
for op in ("max_pool2d", "avg_pool2d"):
    for name, shape, kernel, stride, padding in (
        ("k2_s2", (2, 3, 6, 6), (2, 2), (2, 2), (0, 0)),
        ("k2_s2_leftover", (1, 3, 7, 5), (2, 2), (2, 2), (0, 0)),
        ("k3_s1", (1, 2, 5, 6), (3, 3), (1, 1), (0, 0)),
        ("k3_s2_pad1", (2, 2, 7, 7), (3, 3), (2, 2), (1, 1)),
        ("k2x3_s2x1_pad1x0", (1, 2, 6, 7), (2, 3), (2, 1), (1, 0)),
        ("k1_s2", (1, 1, 5, 5), (1, 1), (2, 2), (0, 0)),
        ("k2_s3", (1, 2, 8, 8), (2, 2), (3, 3), (0, 0)),
        ("whole_plane", (2, 3, 4, 5), (4, 5), (4, 5), (0, 0)),
    ):
        add(op, name, {"input": shape}, {"kernel": kernel, "stride": stride, "padding": padding})
    for name, shape, kernel, stride, padding, rest in (
        ("k2_s2_ceil", (1, 3, 7, 5), (2, 2), (2, 2), (0, 0), {"ceil_mode": True}),
        ("k3_s2_ceil", (2, 2, 6, 8), (3, 3), (2, 2), (0, 0), {"ceil_mode": True}),
        ("k3x2_s3_pad1_ceil", (1, 2, 7, 5), (3, 2), (3, 3), (1, 1), {"ceil_mode": True}),
        ("k3_s3_ceil_one_pixel", (1, 2, 1, 2), (3, 3), (3, 3), (0, 0), {"ceil_mode": True}),
        ("k2_s2_pads0_to_1", (2, 2, 5, 7), (2, 2), (2, 2), (0, 0), {"padding_end": (1, 1)}),
        ("k3_s2_pads0_to_1", (1, 2, 6, 8), (3, 3), (2, 2), (0, 0), {"padding_end": (1, 1)}),
        ("k3x4_s1x2_pads2x0_to_0x3", (1, 2, 5, 7), (3, 4), (1, 2), (2, 0), {"padding_end": (0, 3)}),
    ):
        add(op, name, {"input": shape}, {"kernel": kernel, "stride": stride, "padding": padding} | rest)
for name, shape, kernel, stride, padding, rest in (
    ("exclude_k3_pad1", (2, 2, 5, 6), (3, 3), (1, 1), (1, 1), {}),
    ("exclude_k3_pad1_one_pixel", (2, 1, 1, 1), (3, 3), (1, 1), (1, 1), {}),
    ("exclude_k3x2_s2x3_pad1_ceil", (1, 2, 8, 10), (3, 2), (2, 3), (1, 1), {"ceil_mode": True}),
    ("exclude_pads0_to_1", (1, 2, 4, 5), (3, 3), (1, 1), (0, 0), {"padding_end": (1, 1)}),
    ("exclude_k3", (1, 2, 4, 5), (3, 3), (1, 1), (0, 0), {}),
):
    settings = {"kernel": kernel, "stride": stride, "padding": padding, "count_include_pad": False}
    add("avg_pool2d", name, {"input": shape}, settings | rest)

# Normalizations. `affine` says what is trained after it: none, weight, full (weight and bias). Outputs after the first are
# statistics (biased variance), which get no gradient.
PREFIX = {"none": "plain_", "weight": "weight_", "full": ""}


def norm(op, name, shape, parameter, affine="full", statistics=(), grad=True, **settings):
    names = {"none": (), "weight": ("weight",), "full": ("weight", "bias")}[affine]
    channels = (shape[1],)
    inputs = {"input": shape} | {name: channels for name in statistics} | {name: parameter for name in names}
    fill = {"running_var": ("uniform", 0.2, 3.0)} if statistics else {}
    no_grad = tuple(statistics) + (() if grad else names)
    settings = {"eps": 1e-5, "affine": affine} | settings
    add(op, name, inputs, settings, fill=fill, no_grad=no_grad, grad_outputs=(0,))


for prefix, affine, relu, shape in (
    ("", "full", False, (2, 1)),
    ("", "full", False, (5, 3)),
    ("", "full", False, (3, 17)),
    ("", "full", False, (2, 3, 5)),
    ("", "full", False, (1, 2, 8)),
    ("", "full", False, (2, 3, 4, 5)),
    ("", "full", False, (2, 3, 7, 7)),
    ("", "full", False, (1, 4, 1, 2)),
    ("", "full", False, (33, 9)),
    ("relu_", "full", True, (5, 3)),
    ("relu_", "full", True, (2, 3, 4, 5)),
    ("relu_", "full", True, (2, 2, 3, 3)),
    ("plain_", "none", False, (4, 3, 2, 3)),
    ("plain_relu_", "none", True, (4, 3, 2, 3)),
    ("weight_", "weight", False, (4, 3, 5)),
):
    eps = 0.1 if math.prod(shape) == 2 * shape[1] else 1e-5
    norm("batch_norm", prefix + dims(shape), shape, (shape[1],), affine, relu=relu, eps=eps)
for prefix, affine, relu, grad, shape in (
    ("", "full", False, True, (1, 1)),
    ("", "full", False, True, (5, 3)),
    ("", "full", False, True, (2, 3, 5)),
    ("", "full", False, True, (2, 3, 4, 5)),
    ("relu_", "full", True, True, (5, 3)),
    ("relu_", "full", True, True, (2, 3, 2, 2)),
    ("plain_", "none", False, True, (4, 3, 3)),
    ("plain_relu_", "none", True, True, (4, 3, 4)),
    ("weight_", "weight", False, True, (4, 3, 4)),
    ("frozen_", "full", False, False, (3, 5, 7)),
    ("frozen_relu_", "full", True, False, (3, 5, 7)),
):
    statistics = ("running_mean", "running_var")
    norm("batch_norm_eval", prefix + dims(shape), shape, (shape[1],), affine, statistics, grad, relu=relu)
FEW = ((1, (4, 10)), (1, (2, 3, 8)), (2, (2, 3, 4, 5)))
SMALL = ((1, (1, 1)), (1, (3, 2, 7)), (3, (2, 3, 2, 2)), (1, (2, 66)))
for op, affine, kinds in (
    ("layer_norm", "full", FEW + SMALL[1:]),
    ("layer_norm", "none", FEW + SMALL[1:]),
    ("layer_norm", "weight", FEW),
    ("rms_norm", "weight", FEW + SMALL),
    ("rms_norm", "none", FEW + SMALL),
):
    for count, shape in kinds:
        eps = 0.1 if shape == (1, 1) else 1e-5
        norm(op, f"{PREFIX[affine]}dims{count}_{dims(shape)}", shape, shape[-count:], affine, dims=count, eps=eps)
for affine, groups, shape in (
    ("full", 1, (2, 1)),
    ("full", 2, (3, 6)),
    ("full", 1, (2, 5, 3)),
    ("full", 3, (2, 6, 4)),
    ("full", 2, (2, 6, 2, 2)),
    ("full", 6, (2, 6, 3, 3)),
    ("full", 5, (1, 5, 7)),
    ("full", 2, (2, 4, 3, 5)),
    ("none", 2, (2, 4, 3, 3)),
    ("weight", 2, (2, 4, 4)),
):
    norm("group_norm", f"{PREFIX[affine]}groups{groups}_{dims(shape)}", shape, (shape[1],), affine, groups=groups)

# Elementwise, one input
for shape in ((1,), (7,), (2, 3, 5), (257,), (4, 64)):
    add("relu", dims(shape), {"input": shape}, fill={"input": ("away", 0.05)})
for slope in (0.01, 0.2):
    for shape in ((7,), (2, 3, 5), (257,)):
        add("leaky_relu", f"slope{slope}_{dims(shape)}", {"input": shape}, {"slope": slope}, fill={"input": ("away", 0.05)})
for op in ("sigmoid", "tanh", "silu", "hard_swish", "mish"):
    for shape in ((1,), (7,), (2, 3, 5), (257,)):
        add(op, dims(shape), {"input": shape})
    add(op, "extreme", {"input": (13,)}, fill={"input": ("uniform", -100.0, 100.0)})
for approximate in ("none", "tanh"):
    prefix = "exact" if approximate == "none" else "tanh"
    for shape in ((1,), (7,), (2, 3, 5), (257,)):
        add("gelu", f"{prefix}_{dims(shape)}", {"input": shape}, {"approximate": approximate})
    add("gelu", f"{prefix}_extreme", {"input": (13,)}, {"approximate": approximate}, fill={"input": ("uniform", -100.0, 100.0)})

for op, fill in (("abs", ("away", 0.05)), ("exp", None), ("sin", None), ("cos", None), ("log", ("uniform", 0.1, 5.0)), ("sqrt", ("uniform", 0.1, 5.0)), ("hard_sigmoid", None)):
    for shape in ((1,), (7,), (2, 3, 5), (257,)):
        add(op, dims(shape), {"input": shape}, fill={"input": fill} if fill else {})
for op in ("sin", "cos"):
    add(op, "extreme", {"input": (13,)}, fill={"input": ("uniform", -100.0, 100.0)})
add("hard_sigmoid", "extreme", {"input": (13,)}, fill={"input": ("uniform", -100.0, 100.0)})
# On the kinks.
add("abs", "zeros_5", {"input": (5,)}, fill={"input": ("constant", 0.0)})
add("hard_sigmoid", "at_3", {"input": (5,)}, fill={"input": ("constant", 3.0)})
add("hard_sigmoid", "at_minus_3", {"input": (5,)}, fill={"input": ("constant", -3.0)})
for shape in ((7,), (2, 3, 5), (257,)):
    add("clamp", dims(shape), {"input": shape}, {"min": -1.0, "max": 1.0})
    add("clamp", f"below_{dims(shape)}", {"input": shape}, {"min": 0.25, "max": None})
    add("clamp", f"relu6_{dims(shape)}", {"input": shape}, {"min": 0.0, "max": 6.0}, fill={"input": ("uniform", -3.0, 9.0)})
for prefix, low, high in (("", -1, 1), ("relu6_", 0, 6)):
    for limit in (low, high):
        add("clamp", f"{prefix}at_{limit}", {"input": (5,)}, {"min": float(low), "max": float(high)}, fill={"input": ("constant", float(limit))})
for exponent in (2, 3, 0, -1, -2):
    fill = {"input": ("away", 0.5)} if exponent < 0 else {}
    for shape in ((7,), (2, 3, 5)):
        add("pow", f"exponent{exponent}_{dims(shape)}", {"input": shape}, {"exponent": float(exponent)}, fill=fill)
for exponent in (0.5, 1.7, -0.3):
    for shape in ((7,), (257,)):
        add("pow", f"exponent{exponent}_{dims(shape)}", {"input": shape}, {"exponent": exponent}, fill={"input": ("uniform", 0.1, 4.0)})
add("pow", "zero_to_2_5", {"input": (5,)}, {"exponent": 2.0}, fill={"input": ("constant", 0.0)})
add("pow", "zero_to_0_5", {"input": (5,)}, {"exponent": 0.0}, fill={"input": ("constant", 0.0)})
for alpha in (1, 0.3, -0.5):
    for shape in ((7,), (2, 3, 5), (257,)):
        add("elu", f"alpha{alpha}_{dims(shape)}", {"input": shape}, {"alpha": float(alpha)}, fill={"input": ("away", 0.01)})
    add("elu", f"alpha{alpha}_extreme", {"input": (13,)}, {"alpha": float(alpha)}, fill={"input": ("uniform", -100.0, 100.0)})
for prefix, beta, threshold in (("", 1.0, 20.0), ("beta0.5_threshold0.75_", 0.5, 0.75), ("beta-2_", -2.0, 20.0)):
    for shape in ((7,), (2, 3, 5), (257,)):
        add("softplus", prefix + dims(shape), {"input": shape}, {"beta": beta, "threshold": threshold})
add("softplus", "extreme", {"input": (13,)}, {"beta": 1.0, "threshold": 20.0}, fill={"input": ("uniform", -100.0, 100.0)})

# prelu: one weight per channel, or one for all.
for prefix, weights, shape in (
    ("", 1, (1, 1)),
    ("", 7, (4, 7)),
    ("", 5, (2, 5, 3)),
    ("", 3, (2, 3, 4, 5)),
    ("shared_", 1, (7,)),
    ("shared_", 1, (2, 3, 5)),
):
    add("prelu", prefix + dims(shape), {"input": shape, "weight": (weights,)}, fill={"input": ("away", 0.05)})
add("prelu", "zeros_2x3", {"input": (2, 3), "weight": (3,)}, fill={"input": ("constant", 0.0)})

# softmax, log_softmax
for op in ("softmax", "log_softmax"):
    for shape, axis in (((1, 1), 1), ((4, 10), 1), ((5, 3), 0), ((2, 3, 4), 1), ((2, 3, 5), 2), ((2, 300), 1)):
        add(op, f"axis{axis}_{dims(shape)}", {"input": shape}, {"axis": axis})
    add(op, "extreme_axis1_3x5", {"input": (3, 5)}, {"axis": 1}, fill={"input": ("uniform", -100.0, 100.0)})

for shape in ((1, 1, 1), (2, 5, 5), (2, 3, 7), (3, 2, 4, 9)):
    add("softmax", f"causal_{dims(shape)}", {"input": shape}, {"axis": len(shape) - 1, "causal": True})

# embedding: inputs are indices, weight.
for name, shape, vocabulary, width, padding in (
    ("4_of_7x5", (4,), 7, 5, None),
    ("2x3_of_5x4", (2, 3), 5, 4, None),
    ("2x3x2_of_3x1", (2, 3, 2), 3, 1, None),
    ("padding2_3x7_of_5x8", (3, 7), 5, 8, 2),
    ("one_row_9_of_1x3", (9,), 1, 3, None),
):
    inputs = {"indices": shape, "weight": (vocabulary, width)}
    fill = {"indices": ("labels", vocabulary)}
    add("embedding", name, inputs, {"padding_idx": padding}, fill=fill, no_grad=("indices",))

# gather
for name, shape, axis, length in (
    ("axis0_3_of_5", (5,), 0, 3),
    ("axis1_4x3_of_4x7", (4, 7), 1, 3),
    ("axis1_2x5x3_of_2x4x3", (2, 4, 3), 1, 5),
    ("axis2_2x3x1_of_2x3x5", (2, 3, 5), 2, 1),
):
    index = shape[:axis] + (length,) + shape[axis + 1 :]
    add("gather", name, {"input": shape, "index": index}, {"axis": axis}, fill={"index": ("labels", shape[axis])}, no_grad=("index",))

# Elementwise, two inputs of one shape
PAIRS = ((1,), (7,), (2, 3, 5), (257,))
for op in ("add", "sub", "mul", "maximum", "minimum"):
    for shape in PAIRS:
        add(op, dims(shape), {"a": shape, "b": shape})
for shape in PAIRS:
    add("div", dims(shape), {"a": shape, "b": shape}, fill={"a": ("away", 0.5), "b": ("away", 0.5)})
for op in ("maximum", "minimum"):
    for shape in PAIRS:
        add(op, f"ties_{dims(shape)}", {"a": shape, "b": shape}, fill={"a": ("whole", 3), "b": ("whole", 3)})

# compare: with another input or a number.
for relation in ("gt", "ge", "lt", "le", "eq", "ne"):
    for shape in PAIRS:
        fill = {"a": ("whole", 3), "b": ("whole", 3)}
        add("compare", f"{relation}_{dims(shape)}", {"a": shape, "b": shape}, {"relation": relation}, fill=fill, no_grad=("a", "b"), grad_outputs=())
    for n in (1, 7, 257):
        settings = {"relation": relation, "number": 1.0}
        add("compare", f"{relation}_number_{n}", {"a": (n,)}, settings, fill={"a": ("whole", 3)}, no_grad=("a",), grad_outputs=())

# select: a where the condition is not 0, else b; numbers in place of either.
for prefix, numbers in (("", {}), ("number_or_tensor_", {"a": -0.75}), ("tensor_or_number_", {"b": 2.5}), ("numbers_", {"a": 1.5, "b": -0.75})):
    tensors = [name for name in ("a", "b") if name not in numbers]
    for shape in PAIRS:
        inputs = {"condition": shape} | {name: shape for name in tensors}
        grads = None if tensors else ()
        add("select", prefix + dims(shape), inputs, {"numbers": numbers}, fill={"condition": ("whole", 2)}, no_grad=("condition",), grad_outputs=grads)

# add_scalar: output is input + value; scale: output is factor * input.
for shape in ((1,), (7,), (257,)):
    add("add_scalar", dims(shape), {"input": shape}, {"value": -0.75})
for shape in ((1,), (7,), (257,)):
    add("scale", dims(shape), {"input": shape}, {"factor": -0.75})

# round: the nearest of these types; the gradient passes unrounded, which PyTorch's does not.
for half in ("f16", "bf16"):
    for shape in ((1,), (7,), (2, 3, 5), (257,)):
        add("round", f"{half}_{dims(shape)}", {"input": shape}, {"half": half}, grad_outputs=())

# to_float, one_hot: integers have no gradient.
for name, shape, below in (("1", (1,), 10), ("7", (7,), 10), ("2x3x5", (2, 3, 5), 1 << 24)):
    add("to_float", name, {"input": shape}, fill={"input": ("labels", below)}, grad_outputs=())
# normalize: so do bytes.
for name, shape, scale, offset in (
    ("1", (1,), (0.25,), (0.5,)),
    ("2x1x5x3", (2, 1, 5, 3), (0.017,), (-2.1,)),
    ("3x2x5", (3, 2, 5), (0.017, 0.018), (-2.1, 0.25)),
    ("2x3x5x7", (2, 3, 5, 7), (0.017, 0.018, -0.5), (-2.1, 0.25, 1.0)),
    ("2x4x17", (2, 4, 17), (0.017, 0.018, -0.5, 2.0), (-2.1, 0.25, 1.0, -7.0)),
    ("3x6x11_alike", (3, 6, 11), (-0.125,), (3.0,)),
):
    add("normalize", name, {"input": shape}, {"scale": scale, "offset": offset}, fill={"input": ("labels", 256)}, grad_outputs=())
for shape, classes in (((1,), 1), ((7,), 10), ((2, 3), 5), ((67,), 257)):
    add("one_hot", f"{dims(shape)}_of_{classes}", {"indices": shape}, {"classes": classes}, fill={"indices": ("labels", classes)}, grad_outputs=())

# expand: repeats along axes of extent 1.
for before, after in (
    ((1,), (7,)),
    ((1, 5), (4, 5)),
    ((4, 1), (4, 5)),
    ((1, 1), (3, 2)),
    ((2, 1, 4), (2, 3, 4)),
    ((1, 3, 1, 5), (2, 3, 4, 5)),
    ((2, 1, 2, 1, 2, 1), (2, 3, 2, 3, 2, 3)),
):
    prefix = "alternating_" if len(before) == 6 else ""
    add("expand", f"{prefix}{dims(before)}_to_{dims(after)}", {"input": before}, {"shape": after})

# reshape, permute
add("reshape", "2x6_to_3x4", {"input": (2, 6)}, {"shape": (3, 4)})
add("reshape", "2x3x4_to_2x12", {"input": (2, 3, 4)}, {"shape": (2, 12)})
add("reshape", "12_to_2x1x6", {"input": (12,)}, {"shape": (2, 1, 6)})
for name, shape, axes in (
    ("transpose_3x5", (3, 5), (1, 0)),
    ("transpose_33x17", (33, 17), (1, 0)),
    ("same_order_2x3", (2, 3), (0, 1)),
    ("inner_transpose_2x3x4", (2, 3, 4), (0, 2, 1)),
    ("rotate_2x3x4", (2, 3, 4), (2, 0, 1)),
    ("nchw_to_nhwc_2x3x4x5", (2, 3, 4, 5), (0, 2, 3, 1)),
    ("reverse_2x3x4x5", (2, 3, 4, 5), (3, 2, 1, 0)),
):
    add("permute", name, {"input": shape}, {"axes": axes})

# concat: a, then b along an axis.
for name, a, b, axis in (
    ("one_axis_3_4", (3,), (4,), 0),
    ("axis0_2x3_1x3", (2, 3), (1, 3), 0),
    ("axis1_2x3_2x5", (2, 3), (2, 5), 1),
    ("channels_2x3x5x7_2x2x5x7", (2, 3, 5, 7), (2, 2, 5, 7), 1),
    ("channels_vectors_2x3x4x6_2x1x4x6", (2, 3, 4, 6), (2, 1, 4, 6), 1),
    ("last_axis_2x3x1_2x3x4", (2, 3, 1), (2, 3, 4), 2),
    ("ones_1x1", (1, 1), (1, 1), 1),
):
    add("concat", name, {"a": a, "b": b}, {"axis": axis})

# flip: with lengths, samples are turned round within them.
for name, shape, axis, lengths in (
    ("axis0_7", (7,), 0, False),
    ("axis1_3x5x2", (3, 5, 2), 1, False),
    ("axis2_2x3x5", (2, 3, 5), 2, False),
    ("one", (1,), 0, False),
    ("lengths_5x7x3", (5, 7, 3), 1, True),
    ("lengths_4x5x8", (4, 5, 8), 1, True),
    ("lengths_axis2_7x2x5", (7, 2, 5), 2, True),
):
    given = {"lengths": (shape[0],)} if lengths else {}
    fill = {"lengths": ("lengths", shape[axis])} if lengths else {}
    add("flip", name, {"input": shape} | given, {"axis": axis}, fill=fill, no_grad=("lengths",))

# slice: from `start` on, `length` along an axis.
for name, shape, axis, start, length in (
    ("one_axis_7_from_2_to_5", (7,), 0, 2, 3),
    ("first_of_axis0_5x3", (5, 3), 0, 0, 1),
    ("last_axis_2x3x5_from_4_to_5", (2, 3, 5), 2, 4, 1),
    ("last_axis_vectors_3x12_from_4_to_12", (3, 12), 1, 4, 8),
    ("channels_2x5x3x7_from_1_to_4", (2, 5, 3, 7), 1, 1, 3),
):
    add("slice", name, {"input": shape}, {"axis": axis, "start": start, "length": length})

# split: parts of these lengths along an axis.
for name, shape, axis, lengths, grads in (
    ("one_axis_7_in_2_5", (7,), 0, (2, 5), None),
    ("axis1_2x6x4_in_thirds", (2, 6, 4), 1, (2, 2, 2), None),
    ("last_axis_3x7_in_1_4_2", (3, 7), 1, (1, 4, 2), (1,)),
):
    add("split", name, {"input": shape}, {"axis": axis, "lengths": lengths}, grad_outputs=grads)

# upsample_nearest2d
for name, shape, scale in (
    ("scale2_2x3x4x5", (2, 3, 4, 5), (2, 2)),
    ("scale3x2_1x2x3x4", (1, 2, 3, 4), (3, 2)),
    ("scale1x5_2x1x3x3", (2, 1, 3, 3), (1, 5)),
    ("one_pixel", (1, 1, 1, 1), (1, 1)),
    ("one_pixel_scale7", (1, 2, 1, 1), (7, 7)),
):
    add("upsample_nearest2d", name, {"input": shape}, {"scale": scale})

# upsample_bilinear2d
for align_corners, prefix in ((False, ""), (True, "corners_")):
    for name, shape, size in (
        ("8x10_of_4x5", (2, 3, 4, 5), (8, 10)),
        ("7x9_of_3x2", (1, 2, 3, 2), (7, 9)),
        ("3x2_of_5x7", (1, 2, 5, 7), (3, 2)),
        ("3x5_of_one_pixel", (1, 2, 1, 1), (3, 5)),
        ("one_pixel_of_3x4", (2, 1, 3, 4), (1, 1)),
        ("same_4x3", (1, 2, 4, 3), (4, 3)),
        ("6x2_of_2x6", (1, 1, 2, 6), (6, 2)),
    ):
        add("upsample_bilinear2d", prefix + name, {"input": shape}, {"size": size, "align_corners": align_corners})

# adaptive_avg_pool2d
for name, shape, output in (
    ("global_2x3x4x5", (2, 3, 4, 5), (1, 1)),
    ("global_one_pixel", (2, 3, 1, 1), (1, 1)),
    ("whole_2x2_of_4x6", (2, 3, 4, 6), (2, 2)),
    ("uneven_3x2_of_7x5", (1, 2, 7, 5), (3, 2)),
    ("same_3x4", (1, 2, 3, 4), (3, 4)),
    ("larger_5x7_of_3x2", (2, 2, 3, 2), (5, 7)),
    ("larger_3x3_of_one_pixel", (1, 2, 1, 1), (3, 3)),
    ("mixed_2x9_of_5x4", (1, 3, 5, 4), (2, 9)),
    ("row_1x3_of_4x7", (1, 2, 4, 7), (1, 3)),
):
    add("adaptive_avg_pool2d", name, {"input": shape}, {"output": output})

# mul_channels: scale is one factor per channel of each sample.
for shape in ((1, 1), (4, 7), (2, 5, 3), (2, 3, 4, 5), (3, 17, 1, 1), (2, 3, 2, 2, 2)):
    add("mul_channels", dims(shape), {"input": shape, "scale": shape[:2]})

# pad: pairs before and after, for each axis.
for name, shape, pads, value in (
    ("image_2x3x4x5", (2, 3, 4, 5), ((0, 0), (0, 0), (1, 1), (1, 1)), 0.0),
    ("uneven_2x3x4x5", (2, 3, 4, 5), ((0, 0), (0, 0), (0, 3), (2, 1)), 0.5),
    ("channels_2x3x2x2", (2, 3, 2, 2), ((0, 0), (1, 2), (0, 0), (0, 0)), -1.5),
    ("time_3x5x2", (3, 5, 2), ((0, 0), (4, 0), (0, 0)), 0.0),
    ("row_7", (7,), ((2, 3),), 1.0),
    ("batch_2x3", (2, 3), ((1, 0), (0, 0)), 0.25),
    ("nothing_2x3", (2, 3), ((0, 0), (0, 0)), 0.0),
    ("one_1x1", (1, 1), ((0, 0), (1, 1)), 0.0),
    ("five_axes_2x2x3x2x3", (2, 2, 3, 2, 3), ((0, 0), (1, 0), (0, 2), (0, 0), (1, 1)), 2.0),
):
    add("pad", name, {"input": shape}, {"pads": pads, "value": value})

# sum, mean, amax, amin: where no axis is left without keepdim, the output has shape [1].
for op in ("sum", "mean", "amax", "amin"):
    for name, shape, axes, keepdim in (
        ("axis0_4x5", (4, 5), (0,), False),
        ("axis1_4x5", (4, 5), (1,), False),
        ("axis1_keep_4x5", (4, 5), (1,), True),
        ("axis1_2x3x4", (2, 3, 4), (1,), False),
        ("axes0_2_2x3x4", (2, 3, 4), (0, 2), False),
        ("axes2_3_keep_2x3x4x5", (2, 3, 4, 5), (2, 3), True),
        ("axes0_2_3_2x3x4x5", (2, 3, 4, 5), (0, 2, 3), False),
        ("axis1_2x300", (2, 300), (1,), False),
        ("all_3x5", (3, 5), (0, 1), False),
        ("all_keep_3x5", (3, 5), (0, 1), True),
        ("all_1", (1,), (0,), False),
    ):
        add(op, name, {"input": shape}, {"axes": axes, "keepdim": keepdim})
for op in ("amax", "amin"):
    settings = {"axes": (1,), "keepdim": False}
    add(op, "ties_axis1_3x4", {"input": (3, 4)}, settings, fill={"input": ("constant", -0.5)})
    add(op, "ties_2x3x5", {"input": (2, 3, 5)}, settings | {"axes": (0, 2)}, fill={"input": ("whole", 3)})


# lstm: outputs are output [B, T, H], h_n [B, H], c_n [B, H]. gru, rnn: without c_n. Where there are lengths, the sequences are packed.
def recurrent(op, name, b, t, i, h, state, grads, lengths=False):
    gates, states = {"lstm": (4, ("h0", "c0")), "gru": (3, ("h0",))}.get(op, (1, ("h0",)))
    sums = gates * h
    inputs = {"input": (b, t, i), "weight_ih": (sums, i), "weight_hh": (sums, h), "bias_ih": (sums,), "bias_hh": (sums,)}
    if state:
        inputs |= {name: (b, h) for name in states}
    rest = {}
    if lengths:
        inputs["lengths"] = (b,)
        rest = {"fill": {"lengths": ("lengths", t)}, "no_grad": ("lengths",)}
    add(op, name, inputs, grad_outputs=grads, **rest)


SEQUENCE, LAST = (0,), (1,)
for op, ALL in (("lstm", (0, 1, 2)), ("gru", (0, 1)), ("rnn", (0, 1)), ("rnn_relu", (0, 1))):
    recurrent(op, "sequence", 2, 5, 3, 4, False, SEQUENCE)
    recurrent(op, "last", 2, 5, 3, 4, False, LAST)
    if op == "lstm":
        recurrent(op, "cell", 2, 3, 3, 4, False, (2,))
    recurrent(op, "all", 2, 5, 3, 4, False, ALL)
    recurrent(op, "state_sequence", 3, 4, 2, 5, True, SEQUENCE)
    recurrent(op, "state_last", 3, 4, 2, 5, True, LAST)
    recurrent(op, "state_all", 3, 4, 2, 5, True, ALL)
    recurrent(op, "one", 1, 1, 1, 1, False, ALL)
    recurrent(op, "state_one", 1, 1, 1, 1, True, ALL)
    recurrent(op, "long_sequence", 1, 40, 2, 3, True, ALL)
    recurrent(op, "hidden17", 3, 3, 5, 17, True, ALL)
    recurrent(op, "lengths", 4, 5, 3, 4, False, ALL, lengths=True)
    recurrent(op, "lengths_state", 5, 7, 2, 3, True, ALL, lengths=True)
    recurrent(op, "lengths_last", 3, 4, 2, 5, True, LAST, lengths=True)

# Losses over classes: input [N, C, ...], labels [N, ...]; output [1]. Where there is a normalizer, the sum over positions times it,
# else the mean over positions.
# With `samples`, so many weights of samples come last, and each belongs to as many of the first axis's N.
SAMPLE_WEIGHTS = {"sample_weight": ("uniform", 0.25, 4.0)}


def sampled(samples):
    return ({"sample_weight": (samples,)}, {"sample_weights": True}) if samples else ({}, {})


def over_classes(op, name, shape, weighted=False, normalized=False, fill=None, samples=None, **settings):
    inputs, fills = {"input": shape}, {"input": fill} if fill else {}
    if op == "soft_cross_entropy":
        inputs["target"], fills["target"] = shape, ("uniform", 0.0, 1.0)
    else:
        inputs["labels"], fills["labels"] = (shape[0], *shape[2:]), ("labels", shape[1])
    if normalized:
        inputs["normalizer"], fills["normalizer"] = (1,), ("uniform", 0.05, 0.5)
    if weighted:
        inputs["class_weights"], fills["class_weights"] = (shape[1],), ("uniform", 0.25, 4.0)
    weights, weighs = sampled(samples)
    no_grad = ("labels", "target", "normalizer", "class_weights", "sample_weight")
    add(op, name, inputs | weights, settings | weighs, fill=fills | SAMPLE_WEIGHTS, no_grad=no_grad)


EXTREME = ("uniform", -100.0, 100.0)
for shape in ((1, 2), (4, 10), (7, 3), (2, 300)):
    over_classes("cross_entropy", dims(shape), shape)
over_classes("cross_entropy", "extreme_4x5", (4, 5), fill=EXTREME)
over_classes("cross_entropy", "pixels_2x3x4x5", (2, 3, 4, 5))
over_classes("cross_entropy", "steps_3x4x7", (3, 4, 7))
over_classes("cross_entropy", "smooth_4x10", (4, 10), label_smoothing=0.1)
over_classes("cross_entropy", "smooth_extreme_4x5", (4, 5), fill=EXTREME, label_smoothing=0.1)
over_classes("cross_entropy", "normalized_7x3", (7, 3), normalized=True)
over_classes("cross_entropy", "ignoring_13x3", (13, 3), normalized=True, ignore_index=1)
over_classes("cross_entropy", "ignoring_smooth_13x3", (13, 3), normalized=True, ignore_index=1, label_smoothing=0.1)
over_classes("cross_entropy", "weighted_7x5", (7, 5), True, True)
over_classes("cross_entropy", "all_2x3x5x7", (2, 3, 5, 7), True, True, label_smoothing=0.2, ignore_index=1)
over_classes("cross_entropy", "samples7_7x3", (7, 3), samples=7)
over_classes("cross_entropy", "samples3_6x5", (6, 5), samples=3)
over_classes("cross_entropy", "samples1_4x10", (4, 10), samples=1, label_smoothing=0.1)
over_classes("cross_entropy", "samples3_steps_3x4x7", (3, 4, 7), samples=3)
over_classes("cross_entropy", "samples2_normalized_4x3", (4, 3), normalized=True, samples=2)
over_classes("cross_entropy", "samples2_all_4x3x5x7", (4, 3, 5, 7), True, True, samples=2, label_smoothing=0.2, ignore_index=1)
for shape in ((1, 2), (4, 10), (2, 300)):
    over_classes("soft_cross_entropy", dims(shape), shape)
over_classes("soft_cross_entropy", "extreme_4x5", (4, 5), fill=EXTREME)
over_classes("soft_cross_entropy", "pixels_2x3x4x5", (2, 3, 4, 5))
over_classes("soft_cross_entropy", "steps_3x4x7", (3, 4, 7), label_smoothing=0.1)
over_classes("soft_cross_entropy", "smooth_4x10", (4, 10), label_smoothing=0.1)
over_classes("soft_cross_entropy", "weighted_7x5", (7, 5), True)
over_classes("soft_cross_entropy", "all_2x3x5x7", (2, 3, 5, 7), True, label_smoothing=0.2)
over_classes("soft_cross_entropy", "samples7_7x3", (7, 3), samples=7)
over_classes("soft_cross_entropy", "samples3_6x5", (6, 5), samples=3)
over_classes("soft_cross_entropy", "samples1_4x10", (4, 10), samples=1, label_smoothing=0.1)
over_classes("soft_cross_entropy", "samples2_all_4x3x5x7", (4, 3, 5, 7), True, samples=2, label_smoothing=0.2)


# dice: target are labels [N, ...] or probabilities as the input.
def dice(name, shape, probabilities, labels, smooth=1.0, ignore_index=None, fill=None, samples=None):
    target = (shape[0], *shape[2:]) if labels else shape
    fills = {"target": ("labels", shape[1]) if labels else ("uniform", 0.0, 1.0)} | ({"input": fill} if fill else {})
    settings = {"probabilities": probabilities, "smooth": smooth} | ({} if ignore_index is None else {"ignore_index": ignore_index})
    weights, weighs = sampled(samples)
    inputs = {"input": shape, "target": target} | weights
    add("dice", name, inputs, settings | weighs, fill=fills | SAMPLE_WEIGHTS, no_grad=("target", "sample_weight"))


dice("softmax_2x3x4x5", (2, 3, 4, 5), "softmax", True)
dice("softmax_steps_3x2x7", (3, 2, 7), "softmax", True)
dice("softmax_little_smoothing_2x3x4x5", (2, 3, 4, 5), "softmax", True, smooth=1e-5)
dice("softmax_ignoring_2x3x4x5", (2, 3, 4, 5), "softmax", True, ignore_index=1)
dice("softmax_extreme_2x3x7", (2, 3, 7), "softmax", True, fill=EXTREME)
dice("softmax_values_2x3x4x5", (2, 3, 4, 5), "softmax", False)
dice("sigmoid_labels_2x3x4x5", (2, 3, 4, 5), "sigmoid", True)
dice("sigmoid_2x3x4x5", (2, 3, 4, 5), "sigmoid", False)
dice("sigmoid_one_class_3x1x7x5", (3, 1, 7, 5), "sigmoid", False)
dice("sigmoid_extreme_2x3x7", (2, 3, 7), "sigmoid", False, fill=EXTREME)
dice("one_pixel_5x3", (5, 3), "sigmoid", False)
dice("samples2_2x3x4x5", (2, 3, 4, 5), "softmax", True, samples=2)
dice("samples2_ignoring_4x3x7", (4, 3, 7), "softmax", True, ignore_index=1, samples=2)
dice("samples1_sigmoid_3x2x5", (3, 2, 5), "sigmoid", False, samples=1)

# Losses over elements: mean over all, output [1].
SAMPLED = ((7, (7,)), (3, (6, 5)), (1, (4, 5)), (3, (9, 1, 7)))
for name, shape, weights, fill, samples in (
    ("1", (1,), None, None, None),
    ("7", (7,), None, None, None),
    ("4x5", (4, 5), None, None, None),
    ("257", (257,), None, None, None),
    ("extreme", (13,), None, EXTREME, None),
    ("one_weight_7", (7,), 1, None, None),
    ("weighted_4x5", (4, 5), 5, None, None),
    ("weighted_2x3x5x7", (2, 3, 5, 7), 3, None, None),
    ("weighted_extreme_3x13", (3, 13), 13, EXTREME, None),
    *((f"samples{samples}_{dims(shape)}", shape, None, None, samples) for samples, shape in SAMPLED),
    ("samples2_one_weight_4x5", (4, 5), 1, None, 2),
    ("samples2_weighted_4x3x5x7", (4, 3, 5, 7), 3, None, 2),
):
    inputs = {"input": shape, "target": shape} | ({"pos_weight": (weights,)} if weights else {})
    fills = {"target": ("uniform", 0.0, 1.0)} | ({"input": fill} if fill else {})
    fills |= {"pos_weight": ("uniform", 0.25, 4.0)} if weights else {}
    weights, weighs = sampled(samples)
    no_grad = ("target", "pos_weight", "sample_weight")
    add("bce_with_logits", name, inputs | weights, weighs, fill=fills | SAMPLE_WEIGHTS, no_grad=no_grad)
for shape in ((1,), (7,), (4, 5), (257,)):
    for op, prefix, settings in (
        ("mse", "", {}),
        ("mae", "", {}),
        ("huber", "delta1_", {"delta": 1.0}),
        ("huber", "delta0.25_", {"delta": 0.25}),
    ):
        add(op, prefix + dims(shape), {"input": shape, "target": shape}, settings)
for samples, shape in SAMPLED:
    for op, prefix, settings in (("mse", "", {}), ("mae", "", {}), ("huber", "delta0.25_", {"delta": 0.25})):
        weights, weighs = sampled(samples)
        inputs = {"input": shape, "target": shape} | weights
        name = f"{prefix}samples{samples}_{dims(shape)}"
        add(op, name, inputs, settings | weighs, fill=SAMPLE_WEIGHTS, no_grad=("sample_weight",))

# mean_loss: the mean of losses that are its input.
for samples, shape in ((None, (1,)), (None, (7,)), (None, (4, 5)), (None, (2, 1, 3, 1, 2, 1, 3)), *SAMPLED):
    weights, weighs = sampled(samples)
    name = f"samples{samples}_{dims(shape)}" if samples else dims(shape)
    add("mean_loss", name, {"input": shape} | weights, weighs, fill=SAMPLE_WEIGHTS, no_grad=("sample_weight",))

# accuracy: the number of positions whose first largest logit is at the label, of samples whose weight is not 0, of shape [1]; no
# gradient.
for name, shape, ignore_index, samples in (
    ("1x2", (1, 2), None, None),
    ("7x3", (7, 3), None, None),
    ("64x10", (64, 10), None, None),
    ("pixels_2x3x5x7", (2, 3, 5, 7), None, None),
    ("ignoring_13x3", (13, 3), 1, None),
    ("ignoring_pixels_2x3x5x7", (2, 3, 5, 7), 2, None),
    ("samples7_7x3", (7, 3), None, 7),
    ("samples8_64x10", (64, 10), None, 8),
    ("samples1_4x3", (4, 3), None, 1),
    ("samples3_ignoring_pixels_6x3x5x7", (6, 3, 5, 7), 2, 3),
):
    weights, weighs = sampled(samples)
    inputs = {"input": shape, "labels": (shape[0], *shape[2:])} | weights
    settings = ({} if ignore_index is None else {"ignore_index": ignore_index}) | weighs
    fill = {"labels": ("labels", shape[1]), "sample_weight": ("whole", 3)}
    add("accuracy", name, inputs, settings, fill=fill, no_grad=tuple(inputs), grad_outputs=())


# Updates: three steps from zero states, with a given gradient each.
def update(op, name, shape, **settings):
    add(op, name, {"parameter": shape}, settings)


update("sgd", "plain", (7,), lr=0.1, momentum=0.0, nesterov=False, weight_decay=0.0)
update("sgd", "plain_weight_decay", (7,), lr=0.1, momentum=0.0, nesterov=False, weight_decay=0.01)
update("sgd", "momentum", (2, 3, 5), lr=0.1, momentum=0.9, nesterov=False, weight_decay=0.0)
update("sgd", "momentum_weight_decay", (7,), lr=0.05, momentum=0.9, nesterov=False, weight_decay=0.01)
update("sgd", "nesterov", (7,), lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.0)
update("sgd", "nesterov_weight_decay", (257,), lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)
for op, decay in (("adam", 0.0), ("adamw", 0.01)):
    update(op, "default", (7,), lr=0.001, betas=(0.9, 0.999), eps=1e-8, weight_decay=decay)
    update(op, "weight_decay", (2, 3, 5), lr=0.01, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)
    update(op, "betas_eps", (257,), lr=0.01, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.0)
for op, decay in (("adam8bit", 0.0), ("adamw8bit", 0.01)):
    settings = dict(eps=1e-8, min_8bit_size=0)
    update(op, "default", (7,), lr=0.001, betas=(0.9, 0.999), weight_decay=decay, **settings)
    update(op, "two_blocks", (3, 91), lr=0.01, betas=(0.8, 0.95), weight_decay=0.1, **settings)
    update(op, "small", (5,), lr=0.001, betas=(0.9, 0.999), eps=1e-8, weight_decay=decay, min_8bit_size=6)
update("rmsprop", "plain", (7,), lr=0.01, alpha=0.99, eps=1e-8, weight_decay=0.0, momentum=0.0, centered=False)
update("rmsprop", "weight_decay", (2, 3, 5), lr=0.01, alpha=0.9, eps=1e-3, weight_decay=0.1, momentum=0.0, centered=False)
update("rmsprop", "momentum", (7,), lr=0.01, alpha=0.99, eps=1e-8, weight_decay=0.0, momentum=0.9, centered=False)
update("rmsprop", "centered", (7,), lr=0.01, alpha=0.9, eps=1e-8, weight_decay=0.0, momentum=0.0, centered=True)
update("rmsprop", "all", (131,), lr=0.01, alpha=0.95, eps=1e-4, weight_decay=0.1, momentum=0.8, centered=True)
update("adagrad", "plain", (7,), lr=0.01, lr_decay=0.0, weight_decay=0.0, initial_accumulator_value=0.0, eps=1e-10)
update("adagrad", "all", (131,), lr=0.1, lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.5, eps=1e-3)
update("lion", "default", (7,), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.0)
update("lion", "weight_decay", (131,), lr=0.01, betas=(0.8, 0.95), weight_decay=0.1)
update("lamb", "default", (7,), lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0)
update("lamb", "weight_decay", (3, 5, 7), lr=0.1, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1)
ADAFACTOR = dict(beta2_decay=-0.8, eps=(1e-7, 1e-3), d=1.0)
update("adafactor", "vector", (7,), lr=0.01, weight_decay=0.0, **ADAFACTOR)
update("adafactor", "matrix", (7, 5), lr=0.01, weight_decay=0.0, **ADAFACTOR)
update("adafactor", "one_row", (1, 5), lr=0.01, weight_decay=0.0, **ADAFACTOR)
update("adafactor", "weights_of_conv2d", (3, 2, 5, 3), lr=0.05, weight_decay=0.1, **ADAFACTOR)
update("adafactor", "all", (11, 13), lr=0.1, weight_decay=0.1, beta2_decay=-0.5, eps=(1e-3, 2.0), d=1.25)

# ema: the buffer after three steps with a given value each.
add("ema", "momentum0.1", {"buffer": (7,)}, {"momentum": 0.1, "factor": 1.0})
add("ema", "unbiased", {"buffer": (257,)}, {"momentum": 0.25, "factor": 1.125})
add("ema", "replaced", {"buffer": (2, 3)}, {"momentum": 1.0, "factor": 1.0})

# clip: gradients scaled to a global norm of at most max_norm (torch.nn.utils.clip_grad_norm_).
add("clip", "clipped", {"grad0": (7,), "grad1": (2, 3, 5), "grad2": (1,)}, {"max_norm": 1.0})
add("clip", "not_clipped", {"grad0": (7,), "grad1": (3,)}, {"max_norm": 100.0})
add("clip", "one_tensor", {"grad0": (257,)}, {"max_norm": 0.5})

NOTES = """# Golden cases

Written by `cases.py`. A case of the same op and name in the op's `cases()` must have these settings and inputs (in this
order; f32 but for labels, which are u32). `stride`, `padding` and the like are (h, w). Where every axis is reduced, the
output has shape [1], or all ones with keepdim. An op may have further cases of its own that PyTorch does not check.

* bias_add adds along dim 1. avg_pool2d counts padding unless a case says otherwise. `padding` is before and after
  unless there is a `padding_end` for what comes after.
* matmul: `a` is stored [k, m] with trans_a, `b` is stored [n, k] with trans_b; names are m x k x n.
* lstm: outputs are output [B, T, H], h_n [B, H], c_n [B, H] in that order (others may follow: they get no gradient).
  The column "grads" says which of them get a gradient; the others are `None` in `Backward::grad_outputs`.
* gru, rnn (of tanh), rnn_relu: outputs are output [B, T, H], h_n [B, H]. With lengths (u32, 1 to T), both are PyTorch's packed sequences.
* Losses have shape [1], and get a random gradient; targets of cross-entropies, dice and bce_with_logits get none. With an input
  `normalizer`, cross_entropy is the sum over positions times it, else the mean. pos_weight belongs to axis 1.
* With sample_weights, the last input has W weights, which divide the N of axis 0: each is the weight of N / W of these, which the loss
  without reduction is multiplied by. What the sum is divided by does not change. accuracy only leaves out where the weight is 0.
* dice: one minus the mean over samples and classes of (2 sum p t + smooth) / (sum p + sum t + smooth).
* batch_norm and the other normalizations have further outputs: mean and biased variance (rms_norm: mean square), of shapes
  [C] (batch_norm), [N, groups] (group_norm), the input's without the last `dims` axes (layer_norm, rms_norm).
* ema: three steps with given values.
* sgd, adam and the other optimizers: three steps with given gradients from zero states; adagrad's `sum` is without the initial
  value. adam8bit and adamw8bit, which PyTorch does not have: states are codes [blocks, 256] and scales [blocks] of both moments, or
  Adam's where the parameter has fewer elements than min_8bit_size. clip: `clip_grad_norm_` over all gradients.
* Fills: `extreme` cases are Uniform(-100, 100); relu and leaky_relu AwayFromZero(0.05); targets that are probabilities Uniform(0, 1),
  weights Uniform(0.25, 4), accuracy's Labels(3), normalizers Uniform(0.05, 0.5);
  max_pool2d wants Distinct; the rest N(0, 1).
"""


def output_name(op, i):
    return ("output", "h_n", "c_n")[i] if op == "lstm" else f"output {i}"


def main():
    print(NOTES)
    print("| op | case | settings | inputs | grads |")
    print("|---|---|---|---|---|")
    for case in CASES:
        settings = ", ".join(f"{key}={value}" for key, value in case.settings.items())
        inputs = ", ".join(f"{key} {list(shape)}" for key, shape in case.inputs.items())
        grads = "" if case.grad_outputs is None else ", ".join(output_name(case.op, i) for i in case.grad_outputs) or "none"
        print(f"| {case.op} | `{case.name}` | {settings} | {inputs} | {grads} |")


if __name__ == "__main__":
    main()

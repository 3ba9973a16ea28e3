//! Functions of single elements, products with a scale or a bias, and the op that fuses several into one pass.

pub(in crate::ops) mod activation;
pub(in crate::ops) mod formula;
pub(in crate::ops) mod function;
pub(in crate::ops) mod mask;
pub(in crate::ops) mod pairs;

ops! {
    abs,
    add,
    add_scalar,
    bias_add,
    clamp,
    compare,
    cos,
    div,
    elu,
    exp,
    fused,
    gelu,
    hard_sigmoid,
    hard_swish,
    leaky_relu,
    log,
    logit,
    maximum,
    minimum,
    mish,
    mul,
    mul_channels,
    normalize,
    pow,
    prelu,
    relu,
    round,
    scale,
    select,
    sigmoid,
    silu,
    sin,
    softplus,
    sqrt,
    sub,
    tanh,
    to_float,
}

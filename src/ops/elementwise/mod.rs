//! Functions of single elements, products with a scale or a bias, and the op that fuses several into one pass.

pub(in crate::ops) mod activation;
pub(in crate::ops) mod function;
pub(in crate::ops) mod mask;

ops! {
    abs,
    add,
    bias_add,
    clamp,
    elu,
    exp,
    fused,
    gelu,
    hard_sigmoid,
    hard_swish,
    leaky_relu,
    log,
    logit,
    mish,
    mul,
    mul_channels,
    pow,
    prelu,
    relu,
    scale,
    sigmoid,
    silu,
    softplus,
    sqrt,
    tanh,
}

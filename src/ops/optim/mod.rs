//! Updates of parameters, and what is done to gradients before them.

pub(in crate::ops) mod update;

ops! {
    accumulate,
    adafactor,
    adagrad,
    adam,
    adam8bit,
    clip,
    ema,
    lamb,
    lion,
    rmsprop,
    sgd,
}

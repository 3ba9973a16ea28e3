//! Losses, and what is counted beside them.

pub(in crate::ops) mod class_loss;
pub(in crate::ops) mod elementwise_loss;

ops! {
    accuracy,
    bce_with_logits,
    cross_entropy,
    dice,
    huber,
    mae,
    mse,
    soft_cross_entropy,
}

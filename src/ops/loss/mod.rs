//! Losses, and what is counted beside them.
//!
//! # Weights of samples
//!
//! With the setting `sample_weights`, a loss has one more input, the last: `sample_weight`, f32 `[W]`, one weight for each of W samples. W
//! divides the rows N of the predictions (their extent 0), and row r has the weight `sample_weight[r · W / N]`: where a sample is several
//! rows, as a sequence's steps are where classes come last, all of them have its weight.
//!
//! The loss is then `Σ weight · loss / n`, with the n that it is divided by without weights, or times the `normalizer` where it has
//! one: Keras's [`sum_over_batch_size`](https://keras.io/api/losses/). With weights of 1 it has the same bits as without. The gradient of
//! a sample is multiplied by its weight; the weights get none. A sample of weight 0 adds 0 and gets a gradient of 0, so a batch can be filled
//! up with such samples, if their own loss is finite: infinity or NaN times 0 is NaN.

pub(in crate::ops) mod class_loss;
pub(in crate::ops) mod elementwise_loss;
pub(in crate::ops) mod sample_weights;

ops! {
    accuracy,
    bce_with_logits,
    cross_entropy,
    dice,
    huber,
    mae,
    mean_loss,
    mse,
    soft_cross_entropy,
}

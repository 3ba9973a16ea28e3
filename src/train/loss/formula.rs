//! Losses inside formulas: one number for each sample, made of ops one by one.

use super::{CustomLoss, LEAST_PROBABILITY, Loss};
use crate::nn::{Input, LogSoftmax, Softmax, Tensor};
use crate::ops::elementwise::logit::Logit;
use crate::ops::shape::concat::Concat;
use crate::ops::shape::fill::Fill;
use crate::ops::shape::permute::Permute;
use crate::ops::shape::reshape::Reshape;
use crate::tensor::{Shape, ValueId, plural};
use crate::train::criterion::Criterion;

/// A loss inside a formula makes one number for each sample, `[samples]`, whose mean is the loss. It is made of ops one by one, which
/// takes more memory than the op that a training has for the loss as it stands. `class_weights` of labels and `ignore_index` are
/// refused there: they count against the labels of the whole batch.
///
/// ```
/// use tightfit::nn::Tensor;
/// use tightfit::train::{Config, Criterion, Loss};
///
/// /// The squared error, and a tenth of how far predictions are from 0.
/// #[derive(Debug)]
/// struct Small;
///
/// impl Criterion for Small {
///     fn name(&self) -> &str {
///         "small"
///     }
///
///     fn loss<'a>(&self, prediction: Tensor<'a>, target: Tensor<'a>) -> Tensor<'a> {
///         Loss::Mse.loss(prediction, target) + 0.1 * Loss::Mae.loss(prediction, prediction * 0.0)
///     }
/// }
///
/// let config = Config::default().loss(Loss::custom(Small));
/// # let _ = config;
/// ```
impl Criterion for Loss {
    fn name(&self) -> &str {
        match self {
            Loss::Custom(CustomLoss(criterion)) => criterion.name(),
            loss => loss.kind(),
        }
    }

    fn target(&self, output: &Shape) -> Input {
        match self {
            Loss::Custom(CustomLoss(criterion)) => criterion.target(output),
            loss if loss.takes_labels() => Input::tokens(loss.sample_shapes(output).0),
            _ => Input::values(output.clone()),
        }
    }

    fn loss<'a>(&self, prediction: Tensor<'a>, target: Tensor<'a>) -> Tensor<'a> {
        let prediction = self.checked(prediction, target);
        match self {
            Loss::Mse => by_sample((prediction - target).square()),
            Loss::Mae => by_sample((prediction - target).abs()),
            Loss::Huber { delta } => {
                let size = (prediction - target).abs();
                let near = size.minimum(*delta);
                by_sample(near * (size - near * 0.5))
            }
            Loss::BceWithLogits { pos_weight } => by_sample(binary(prediction, target, pos_weight)),
            Loss::Bce { pos_weight } => {
                let eps = LEAST_PROBABILITY;
                let logits = prediction.with_ops("logit", |scope, x| scope.apply(Logit { eps }, &[x]));
                by_sample(binary(logits, target, pos_weight))
            }
            Loss::CrossEntropy { label_smoothing, classes_last, from_logits, .. } => {
                let logits = logits(prediction, *from_logits);
                let log_p = if *classes_last { logits } else { with_classes_last(logits) }.log_softmax();
                let right = -(log_p * target.one_hot(last_extent(log_p))).sum(&[-1], false);
                by_sample(match *label_smoothing {
                    0.0 => right,
                    smoothing => right * (1.0 - smoothing) - log_p.mean(&[-1], false) * smoothing,
                })
            }
            Loss::SoftCrossEntropy { label_smoothing, class_weights, from_logits } => {
                let log_p = logits(prediction, *from_logits).apply(LogSoftmax::new(0));
                let smoothed = match *label_smoothing {
                    0.0 => target,
                    smoothing => target * (1.0 - smoothing) + smoothing / prediction.channels() as f32,
                };
                by_sample(-(weighted(smoothed, class_weights) * log_p).sum(&[1], false))
            }
            Loss::Dice { sigmoid, smooth, .. } => dice(prediction, target, *sigmoid, *smooth),
            Loss::Custom(CustomLoss(criterion)) => criterion.loss(prediction, target),
            Loss::Sum { terms } => {
                let term = |(factor, loss): &(f32, Loss)| by_sample(loss.loss(prediction, target)) * *factor;
                terms.iter().map(term).reduce(|sum, term| sum + term).unwrap_or(prediction)
            }
        }
    }
}

impl Loss {
    /// The prediction, where settings and shapes are possible.
    fn checked<'a>(&self, prediction: Tensor<'a>, target: Tensor<'a>) -> Tensor<'a> {
        // What others take is in their hands.
        if let Loss::Custom(_) = self {
            return prediction;
        }
        prediction.with_ops(self.kind(), |scope, value| {
            self.check().map_err(|error| scope.error(error.to_string()))?;
            let whole_batch = match self {
                Loss::CrossEntropy { ignore_index, class_weights, .. } => {
                    ignore_index.is_some() || !class_weights.is_empty()
                }
                Loss::Dice { ignore_index, .. } => ignore_index.is_some(),
                _ => false,
            };
            if whole_batch {
                return Err(scope.error(format!(
                    "the loss {self} cannot be part of a formula with ignore_index or class_weights, which count against the labels of \
                     the whole batch: leave them out, or use the loss by itself"
                )));
            }
            let shape = Shape::from(scope.shape(value));
            if self.classifies_classes() && shape.len() < 2 {
                return Err(scope.error(format!("the loss {self} needs an axis of classes, found {shape}")));
            }
            if let Loss::Sum { .. } = self {
                return Ok(value);
            }
            let expected = Criterion::target(self, &Shape::from(&shape[1..])).batched(shape[0]);
            let found = scope.desc(target.value());
            if *found != expected {
                let text = format!("the loss {self} of {shape} needs a target that is {expected}, found {found}");
                return Err(scope.error(text));
            }
            Ok(value)
        })
    }

    /// Whether one axis of a prediction is that of classes.
    fn classifies_classes(&self) -> bool {
        matches!(self, Loss::CrossEntropy { .. } | Loss::SoftCrossEntropy { .. } | Loss::Dice { .. })
    }
}

/// The mean of each sample's losses.
fn by_sample(losses: Tensor<'_>) -> Tensor<'_> {
    let axes: Vec<isize> = (1..losses.shape().len() as isize).collect();
    if axes.is_empty() { losses } else { losses.mean(&axes, false) }
}

/// `(1 − t) x + (1 + (w − 1) t) ln(1 + exp(−x))`
fn binary<'a>(x: Tensor<'a>, t: Tensor<'a>, pos_weight: &[f32]) -> Tensor<'a> {
    let of_no = (1.0 - t) * x;
    let of_yes = (-x).softplus();
    match pos_weight {
        [] => of_no + of_yes,
        weights => of_no + (weighted(t, weights) - t + 1.0) * of_yes,
    }
}

/// What a softmax makes the model's probabilities of.
fn logits(prediction: Tensor<'_>, from_logits: bool) -> Tensor<'_> {
    if from_logits { prediction } else { prediction.clamp(LEAST_PROBABILITY, f32::INFINITY).log() }
}

/// `[N, C, ...inner]` as `[N, ...inner, C]`.
fn with_classes_last(x: Tensor<'_>) -> Tensor<'_> {
    let rank = x.shape().len();
    if rank < 3 {
        return x;
    }
    x.with_ops("classes_last", |scope, x| {
        let axes = std::iter::once(0).chain(2..rank).chain([1]).collect();
        scope.apply(Permute { axes }, &[x])
    })
}

fn last_extent(x: Tensor<'_>) -> usize {
    x.shape().last().copied().unwrap_or(1)
}

/// Each channel (axis 1) times a weight of its own, or all times the only one; as it is where there are none.
fn weighted<'a>(x: Tensor<'a>, weights: &[f32]) -> Tensor<'a> {
    match weights {
        [] => return x,
        [weight] => return x * *weight,
        _ => {}
    }
    let weights = x.with_ops("weights", |scope, x| {
        let mut shape = vec![1; scope.shape(x).len()];
        match scope.shape(x).get(1) {
            Some(&channels) if channels == weights.len() => shape[1] = channels,
            _ => {
                let (found, x) = (plural(weights.len(), "weight"), Shape::from(scope.shape(x)));
                return Err(scope.error(format!("there are {found} for the channels of {x}: it takes one for each")));
            }
        }
        let mut all: Option<ValueId> = None;
        // Along axis 1: parts of axis 0 are taken for samples.
        for equal in weights.chunk_by(|a, b| a == b) {
            let part = scope.apply(Fill { value: equal[0], shape: [1, equal.len()].into() }, &[])?;
            all = Some(all.map_or(Ok(part), |all| scope.apply(Concat { axis: 1 }, &[all, part]))?);
        }
        scope.apply(Reshape { shape: shape.into() }, &[all.expect("bug: no weights")])
    });
    x * weights
}

/// One minus the mean over classes of `(2 Σ p t + smooth) / (Σ p + Σ t + smooth)`, of each sample.
fn dice<'a>(prediction: Tensor<'a>, target: Tensor<'a>, sigmoid: bool, smooth: f32) -> Tensor<'a> {
    let probabilities = if sigmoid { prediction.sigmoid() } else { prediction.apply(Softmax::new(0)) };
    let p = with_classes_last(probabilities);
    let t = if sigmoid { with_classes_last(target) } else { target.one_hot(last_extent(p)) };
    let pixels: Vec<isize> = (1..p.shape().len() as isize - 1).collect();
    let sum = |x: Tensor<'a>| if pixels.is_empty() { x } else { x.sum(&pixels, false) };
    let total = sum(p + t) + smooth;
    // Nothing in nothing costs nothing.
    let below = total.eq(0.0).where_else(1.0, total);
    let fraction = (sum(p * t) * 2.0 + smooth) / below;
    by_sample(total.eq(0.0).where_else(0.0, 1.0 - fraction))
}

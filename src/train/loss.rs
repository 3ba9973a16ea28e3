//! What training minimises: in a graph, and on the host for evaluation.

mod check;
mod correct;
mod formula;
mod mean;
mod registry;
mod terms;

pub(super) use mean::{Formula, LossMean};
pub use registry::LossKind;
use terms::{add_term, criterion_loss};

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use serde::de::value::{MapAccessDeserializer, MapDeserializer};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::criterion::{Criterion, CustomLoss};
use crate::data::label_bits;
use crate::error::GraphError;
use crate::graph::Graph;
use crate::ops::elementwise::clamp::Clamp;
use crate::ops::elementwise::log::Log;
use crate::ops::elementwise::logit::Logit;
use crate::ops::loss::bce_with_logits::BceWithLogits;
use crate::ops::loss::cross_entropy::CrossEntropy;
use crate::ops::loss::dice::{Dice, Probabilities};
use crate::ops::loss::huber::Huber;
use crate::ops::loss::mae::Mae;
use crate::ops::loss::mse::Mse;
use crate::ops::loss::soft_cross_entropy::SoftCrossEntropy;
use crate::ops::shape::reshape::Reshape;
use crate::ops::{Builder, Op};
use crate::tensor::{Shape, TensorDesc, ValueId};

/// What training minimises.
///
/// A model file writes it as a name, `loss = "cross-entropy"`, or with settings as a table:
///
/// ```toml
/// [loss]
/// kind = "cross-entropy"
/// label_smoothing = 0.1
/// ```
///
/// Each of `[N, C, ...inner]` predictions counts alike unless a loss says otherwise, however a batch is cut into
/// micro-batches.
/// It is a [`Criterion`] too, so formulas can use it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Loss {
    /// Softmax cross-entropy of logits `[N, C, ...inner]` with labels `[N, ...inner]`: one for each sample, pixel or time step.
    /// As PyTorch's `CrossEntropyLoss`.
    CrossEntropy {
        /// The share of the target that is spread evenly over all classes.
        #[serde(default)]
        label_smoothing: f32,
        /// Labels that do not count: one of the classes, or a number beyond them, such as 255. A negative one, such as PyTorch's
        /// -100, stands in data as the u32 of the same bits: see
        /// [`Targets::signed_labels`](crate::data::Targets::signed_labels). Where no label of a step or of an
        /// evaluation counts, the loss is 0, of which PyTorch makes NaN, and such a step's gradients are 0.
        #[serde(default)]
        ignore_index: Option<i64>,
        /// What each class counts; all alike where it is empty. The mean is then over the weights of the labels.
        #[serde(default)]
        class_weights: Vec<f32>,
        /// Whether logits are `[N, ...inner, C]` instead, as those of language models are.
        #[serde(default)]
        classes_last: bool,
        /// Whether the model makes logits; else probabilities, with a softmax at its end. As in Keras, they are held
        /// above 1e-7 and count relative to their sum.
        #[serde(default = "yes")]
        from_logits: bool,
    },
    /// Softmax cross-entropy of logits with probabilities of the same shape.
    SoftCrossEntropy {
        /// The share of the target that is spread evenly over all classes.
        #[serde(default)]
        label_smoothing: f32,
        /// What each class counts; all alike where it is empty.
        #[serde(default)]
        class_weights: Vec<f32>,
        /// Whether the model makes logits, as for a cross-entropy with labels.
        #[serde(default = "yes")]
        from_logits: bool,
    },
    /// Dice loss of a segmentation: one minus the mean over samples and classes of
    /// `(2 Σ p t + smooth) / (Σ p + Σ t + smooth)`. Of a softmax over the classes with labels `[N, ...inner]`, or of sigmoids
    /// with probabilities `[N, C, ...inner]`.
    Dice {
        /// Whether each class counts by itself, so that a pixel may belong to several.
        #[serde(default)]
        sigmoid: bool,
        /// Added above and below the fraction.
        #[serde(default = "one")]
        smooth: f32,
        /// Labels that do not count, as for a cross-entropy.
        #[serde(default)]
        ignore_index: Option<i64>,
    },
    /// Binary cross-entropy of logits with targets in 0..1 of the same shape.
    BceWithLogits {
        /// What a positive example counts: one number, or one for each channel (axis 1). 1 where it is empty.
        #[serde(default)]
        pos_weight: Vec<f32>,
    },
    /// Binary cross-entropy of probabilities, with a sigmoid at the end of the model: PyTorch's `BCELoss`. They are held
    /// between 1e-7 and 1 − 1e-7.
    Bce {
        /// As for binary cross-entropy of logits.
        #[serde(default)]
        pos_weight: Vec<f32>,
    },
    /// Mean squared error.
    #[serde(deserialize_with = "nothing")]
    Mse,
    /// Mean absolute error, PyTorch's `L1Loss`.
    #[serde(deserialize_with = "nothing")]
    Mae,
    /// A square near 0, a straight line beyond, PyTorch's `HuberLoss`.
    Huber {
        /// Where the one turns into the other.
        #[serde(default = "one")]
        delta: f32,
    },
    /// A formula of one's own: see [`Criterion`]. No file holds it.
    #[serde(skip_deserializing)]
    Custom(CustomLoss),
    /// A sum of losses of the same prediction and target, each with a factor:
    /// `terms = [[1.0, "cross-entropy"], [0.5, "dice"]]`.
    Sum {
        /// Factors and losses.
        terms: Vec<(f32, Loss)>,
    },
}

fn one() -> f32 {
    1.0
}

fn yes() -> bool {
    true
}

/// How near to 0 and 1 a loss takes probabilities: beyond, their logarithms and gradients have no bound.
const LEAST_PROBABILITY: f32 = 1e-7;

/// A table without settings.
pub(super) fn nothing<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Nothing {}
    Nothing::deserialize(deserializer).map(|Nothing {}| ())
}

impl Default for Loss {
    fn default() -> Self {
        Loss::cross_entropy()
    }
}

impl<'de> Deserialize<'de> for Loss {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrTable;
        impl<'de> Visitor<'de> for NameOrTable {
            type Value = Loss;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a loss or a table with its kind")
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Loss, E> {
                Loss::deserialize(MapDeserializer::new([("kind", name)].into_iter()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Loss, A::Error> {
                Loss::deserialize(MapAccessDeserializer::new(map))
            }
        }
        deserializer.deserialize_any(NameOrTable)
    }
}

impl Serialize for Loss {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Loss::serialize(self, serializer)
    }
}

/// As model files write it, without its settings.
impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Loss::Sum { terms } = self {
            let names: Vec<_> = terms.iter().map(|(factor, loss)| format!("{factor} {loss}")).collect();
            return f.write_str(&names.join(" + "));
        }
        if let Loss::Custom(CustomLoss(criterion)) = self {
            return f.write_str(criterion.name());
        }
        f.write_str(self.kind())
    }
}

/// What a loss takes besides prediction and target, the same at every step or not.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ExtraInput {
    name: &'static str,
    /// Its contents; none where each step has its own: one over the sum of its labels' weights.
    pub(super) values: Vec<f32>,
}

impl Loss {
    /// Cross-entropy with labels, all alike.
    pub fn cross_entropy() -> Self {
        Loss::CrossEntropy {
            label_smoothing: 0.0,
            ignore_index: None,
            class_weights: Vec::new(),
            classes_last: false,
            from_logits: true,
        }
    }

    /// Cross-entropy with a label for each step of a sequence, of logits `[N, time, C]`.
    pub fn cross_entropy_of_sequences() -> Self {
        let mut loss = Loss::cross_entropy();
        if let Loss::CrossEntropy { classes_last, .. } = &mut loss {
            *classes_last = true;
        }
        loss
    }

    /// Binary cross-entropy of logits, positive and negative examples alike.
    pub fn bce_with_logits() -> Self {
        Loss::BceWithLogits { pos_weight: Vec::new() }
    }

    /// Dice loss with labels.
    pub fn dice() -> Self {
        Loss::Dice { sigmoid: false, smooth: 1.0, ignore_index: None }
    }

    /// A formula of one's own. A built-in loss stays what it is.
    pub fn custom(criterion: impl Criterion + 'static) -> Self {
        let any: &dyn Any = &criterion;
        if let Some(loss) = any.downcast_ref::<Loss>() {
            return loss.clone();
        }
        Loss::Custom(CustomLoss(Arc::new(criterion)))
    }

    /// The losses that are added, with their factors.
    pub(super) fn terms(&self) -> Vec<(f32, &Loss)> {
        match self {
            Loss::Sum { terms } => terms.iter().map(|(factor, loss)| (*factor, loss)).collect(),
            loss => vec![(1.0, loss)],
        }
    }

    /// Whether the targets are labels, not numbers.
    pub(super) fn takes_labels(&self) -> bool {
        match self {
            Loss::CrossEntropy { .. } | Loss::Dice { sigmoid: false, .. } => true,
            Loss::Sum { terms } => terms.first().is_some_and(|(_, loss)| loss.takes_labels()),
            _ => false,
        }
    }

    /// Whether classes are the last axis of a prediction.
    pub(super) fn has_classes_last(&self) -> bool {
        matches!(self, Loss::CrossEntropy { classes_last: true, .. })
    }

    /// The op of one loss, and what it takes besides prediction and target, and before the weights of samples.
    pub(super) fn op(&self, sample_weights: bool) -> (Arc<dyn Op>, Vec<ExtraInput>) {
        let weights =
            |name, values: &Vec<f32>| (!values.is_empty()).then(|| ExtraInput { name, values: values.clone() });
        let class_weights = |values: &Vec<f32>| weights("class_weights", values);
        match self {
            Loss::CrossEntropy { label_smoothing, ignore_index, class_weights: values, .. } => {
                let (label_smoothing, weighted) = (*label_smoothing, !values.is_empty());
                let ignore_index = ignore_index.and_then(label_bits);
                let normalized = weighted || ignore_index.is_some();
                let normalizer = normalized.then(|| ExtraInput { name: "normalizer", values: Vec::new() });
                let scale = weight_scale(values);
                let values = values.iter().map(|&weight| scaled(weight, scale)).collect();
                let extra = normalizer.into_iter().chain(class_weights(&values)).collect();
                let op = CrossEntropy { label_smoothing, ignore_index, normalized, weighted, sample_weights };
                (Arc::new(op), extra)
            }
            Loss::SoftCrossEntropy { label_smoothing, class_weights: values, .. } => {
                let (label_smoothing, weighted) = (*label_smoothing, !values.is_empty());
                let op = SoftCrossEntropy { label_smoothing, weighted, sample_weights };
                (Arc::new(op), class_weights(values).into_iter().collect())
            }
            Loss::Dice { sigmoid, smooth, ignore_index } => {
                let probabilities = if *sigmoid { Probabilities::Sigmoid } else { Probabilities::Softmax };
                let ignore_index = ignore_index.and_then(label_bits);
                let op = Dice { probabilities, smooth: *smooth, ignore_index, sample_weights };
                (Arc::new(op), Vec::new())
            }
            Loss::BceWithLogits { pos_weight } | Loss::Bce { pos_weight } => {
                let op = BceWithLogits { weighted: !pos_weight.is_empty(), sample_weights };
                (Arc::new(op), weights("pos_weight", pos_weight).into_iter().collect())
            }
            Loss::Mse => (Arc::new(Mse { sample_weights }), Vec::new()),
            Loss::Mae => (Arc::new(Mae { sample_weights }), Vec::new()),
            Loss::Huber { delta } => (Arc::new(Huber { delta: *delta, sample_weights }), Vec::new()),
            Loss::Custom(_) | Loss::Sum { .. } => unreachable!("bug: not one op"),
        }
    }

    /// Its op, where it is one.
    pub(super) fn single_op(&self) -> Option<Arc<dyn Op>> {
        let is_one = !matches!(self, Loss::Custom(_) | Loss::Sum { .. });
        is_one.then(|| self.op(false).0)
    }

    /// What makes the logits that the op takes of a prediction, where that is probabilities.
    pub(super) fn to_logits(&self) -> Vec<Arc<dyn Op>> {
        match self {
            Loss::CrossEntropy { from_logits: false, .. } | Loss::SoftCrossEntropy { from_logits: false, .. } => {
                vec![Arc::new(Clamp { min: LEAST_PROBABILITY, max: f32::INFINITY }), Arc::new(Log)]
            }
            Loss::Bce { .. } => vec![Arc::new(Logit { eps: LEAST_PROBABILITY })],
            _ => Vec::new(),
        }
    }

    /// What the weights of a step's labels add up to, for a loss that is divided by it; `None` for one that is a mean.
    pub(super) fn weight_of(&self, labels: &mut dyn Iterator<Item = u32>) -> Option<f64> {
        let Loss::CrossEntropy { ignore_index, class_weights, .. } = self else { return None };
        if class_weights.is_empty() && ignore_index.is_none() {
            return None;
        }
        let ignored = self.ignored();
        let counted = labels.filter(|label| Some(*label) != ignored);
        let scale = weight_scale(class_weights);
        let weight = |label: u32| match class_weights.get(label as usize) {
            Some(&weight) => f64::from(scaled(weight, scale)),
            None => 1.0,
        };
        Some(counted.map(weight).sum())
    }

    /// The labels that do not count.
    pub(super) fn ignored(&self) -> Option<u32> {
        self.terms().into_iter().find_map(|(_, loss)| match loss {
            Loss::CrossEntropy { ignore_index, .. } | Loss::Dice { ignore_index, .. } => {
                ignore_index.and_then(label_bits)
            }
            _ => None,
        })
    }

    /// The targets that belong to this prediction, and the prediction's shape as ops want it.
    pub(super) fn shapes(&self, prediction: &Shape) -> (TensorDesc, Shape) {
        if let Loss::Custom(CustomLoss(criterion)) = self {
            let (&samples, output) = prediction.split_first().expect("bug: a tensor without axes");
            return (criterion.target(&Shape::from(output)).batched(samples), prediction.clone());
        }
        if !self.takes_labels() {
            return (TensorDesc::f32(prediction.clone()), prediction.clone());
        }
        if self.has_classes_last()
            && let Some((&classes, positions)) = prediction.split_last()
        {
            let positions: usize = positions.iter().product();
            return (TensorDesc::u32([positions]), [positions, classes].into());
        }
        let without_classes = prediction.iter().enumerate().filter(|(axis, _)| *axis != 1).map(|(_, &extent)| extent);
        (TensorDesc::u32(without_classes.collect::<Vec<_>>()), prediction.clone())
    }

    /// The input of targets that belongs to this prediction.
    pub(super) fn target_desc(&self, prediction: &TensorDesc) -> TensorDesc {
        self.shapes(&prediction.shape).0
    }

    /// The prediction as ops want it.
    fn prediction(&self, graph: &mut Graph, prediction: ValueId) -> Result<ValueId, GraphError> {
        let found = graph.value(prediction).desc.shape.clone();
        let (_, shape) = self.shapes(&found);
        if shape == found { Ok(prediction) } else { graph.apply(Reshape { shape }, &[prediction]) }
    }

    /// Adds the loss to the graph of a micro-batch that holds this share of the step's samples. Returns it with the share by
    /// which it counts. Its terms are numbered from `first` on.
    pub(super) fn apply(
        &self,
        graph: &mut Graph,
        prediction: ValueId,
        target: ValueId,
        share: f32,
        first: usize,
        weights: Option<ValueId>,
    ) -> Result<(ValueId, f32), GraphError> {
        let prediction = self.prediction(graph, prediction)?;
        let terms = self.terms();
        let mut sum: Option<ValueId> = None;
        for (i, &(factor, loss)) in terms.iter().enumerate() {
            if let Loss::Custom(CustomLoss(criterion)) = loss {
                let value = criterion_loss(graph, criterion.as_ref(), [prediction, target], weights)?;
                sum = Some(add_term(graph, sum, value, factor * share)?);
                continue;
            }
            let (op, extra) = loss.op(weights.is_some());
            let named = |source| GraphError::Op { node: "loss".to_owned(), source };
            let mut logits = prediction;
            for op in loss.to_logits() {
                logits = Builder::apply(graph, op, &[logits]).map_err(named)?[0];
            }
            let mut inputs = vec![logits, target];
            for ExtraInput { name, values } in &extra {
                inputs.push(graph.input(input_name(name, first + i), TensorDesc::f32([values.len().max(1)])));
            }
            inputs.extend(weights);
            let value = Builder::apply(graph, op, &inputs).map_err(named)?[0];
            // What is divided by the whole step's weight counts in full.
            let share = if extra.iter().any(|extra| extra.values.is_empty()) { 1.0 } else { share };
            if let Loss::Sum { .. } = self {
                sum = Some(add_term(graph, sum, value, factor * share)?);
            } else {
                return Ok((value, share));
            }
        }
        Ok((sum.expect("bug: a sum without terms was refused"), 1.0))
    }

    /// What the loss takes besides prediction and target in a step on samples of these labels, by name.
    pub(super) fn inputs<I: Iterator<Item = u32>>(
        &self,
        labels: impl Fn() -> I,
        first: usize,
        filled: f32,
    ) -> Vec<(String, Vec<f32>)> {
        let mut inputs = Vec::new();
        for (i, (_, loss)) in self.terms().into_iter().enumerate() {
            if let Loss::Custom(_) = loss {
                continue;
            }
            for ExtraInput { name, mut values } in loss.op(false).1 {
                if values.is_empty() {
                    let weight = loss.weight_of(&mut labels()).unwrap_or(1.0);
                    // Where no label counts, nothing is divided by nothing.
                    let normalizer = if weight > 0.0 { (1.0 / weight) as f32 } else { 0.0 };
                    // The weights of a short batch's samples make up for what it lacks, which this sum does not have.
                    values.push(normalizer * filled);
                }
                inputs.push((input_name(name, first + i), values));
            }
        }
        inputs
    }
}

/// The power of 2 that brings the largest weight to 1..2. Where a loss is divided by the sum of its weights, they may all be
/// multiplied by it: that changes no bit, but sums of them neither overflow nor vanish.
fn weight_scale(weights: &[f32]) -> f64 {
    let largest = weights.iter().copied().fold(0.0, f32::max);
    if largest > 0.0 { (-f64::from(largest).log2().floor()).exp2() } else { 1.0 }
}

fn scaled(weight: f32, scale: f64) -> f32 {
    (f64::from(weight) * scale) as f32
}

/// `loss.normalizer`, for an extra term of a sum `loss.normalizer.1`.
fn input_name(name: &str, term: usize) -> String {
    if term == 0 { format!("loss.{name}") } else { format!("loss.{name}.{term}") }
}

//! Losses on the host: whether targets fit one, and what it is over a dataset.

use std::sync::Arc;

use super::loss::{ExtraInput, Loss};
use crate::data::{Targets, shown_label};
use crate::error::{DataError, GraphError, OpError};
use crate::ops::loss::accuracy::Accuracy;
use crate::ops::{Call, Input, Op, Output};
use crate::tensor::{Shape, TensorDesc, plural};

/// The target of one sample.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target<'a> {
    Labels(&'a [u32]),
    Values(&'a [f32]),
}

impl<'a> Target<'a> {
    /// That of one sample of a dataset.
    pub(super) fn of(targets: &'a Targets, sample: usize) -> Self {
        let numel = targets.shape().numel();
        let range = sample * numel..(sample + 1) * numel;
        match targets {
            Targets::Labels { labels, .. } => Target::Labels(&labels[range]),
            Targets::Values { values, .. } => Target::Values(&values[range]),
        }
    }
}

impl Loss {
    /// Whether targets fit predictions of this shape, without the batch axis.
    pub(super) fn check_targets(&self, output: &Shape, targets: &Targets) -> Result<(), DataError> {
        let mismatch = |text: String| Err(DataError::Mismatch(text));
        let (expected, logits) = self.sample_shapes(output);
        match targets {
            Targets::Values { .. } if self.takes_labels() => {
                mismatch(format!("{self} needs labels, but the data has target values"))
            }
            Targets::Labels { .. } if !self.takes_labels() => {
                mismatch(format!("the loss {self} needs target values, but the data has labels"))
            }
            targets if *targets.shape() != expected => mismatch(format!(
                "the data's targets have shape {}, but for the model's output {output} the loss {self} needs {expected}",
                targets.shape()
            )),
            // Where a label that does not count is among the classes, it is each label's own check that tells.
            Targets::Labels { classes, .. }
                if (*classes as usize) > logits && self.ignored().is_none_or(|label| label >= *classes) =>
            {
                mismatch(format!(
                    "the data has {}, labels up to {}, but the model ends in {}: it needs one for each class, but \
                     for a label that is ignored (ignore_index in the loss)",
                    if *classes == 1 { "1 class".to_owned() } else { format!("{classes} classes") },
                    classes - 1,
                    plural(logits, "output")
                ))
            }
            Targets::Labels { ignored: Some(label), classes, .. }
                if label >= classes && self.ignored() != Some(*label) =>
            {
                let label = shown_label(*label);
                mismatch(format!("the data's label {label} is no class: set ignore_index = {label} in the loss"))
            }
            _ => Ok(()),
        }
    }

    /// The shape of one sample's target, and the number of classes.
    fn sample_shapes(&self, output: &Shape) -> (Shape, usize) {
        if !self.takes_labels() {
            return (output.clone(), 0);
        }
        let parts = if self.has_classes_last() {
            output.split_last().map(|(&classes, rest)| (rest, classes))
        } else {
            output.split_first().map(|(&classes, rest)| (rest, classes))
        };
        parts.map_or_else(|| (Shape::from([]), 0), |(rest, classes)| (rest.into(), classes))
    }
}

/// A loss over samples that come one by one, and how many positions are predicted right.
pub(super) struct Tally<'a> {
    loss: &'a Loss,
    /// A batch of one sample.
    prediction: Shape,
    terms: Vec<Term<'a>>,
    samples: usize,
    right: usize,
    counted: usize,
}

/// One loss, by its op's twin on one sample after the other.
struct Term<'a> {
    loss: &'a Loss,
    factor: f64,
    /// What makes its logits of a prediction.
    to_logits: Vec<Arc<dyn Op>>,
    op: Arc<dyn Op>,
    descs: Vec<TensorDesc>,
    extra: Vec<Vec<f64>>,
    sum: f64,
    weight: f64,
}

impl<'a> Tally<'a> {
    /// For predictions of this shape, without the batch axis.
    pub(super) fn new(loss: &'a Loss, output: &Shape) -> Result<Self, GraphError> {
        let prediction: Shape = std::iter::once(1).chain(output.iter().copied()).collect::<Vec<_>>().into();
        let term = |(factor, loss): (f32, &'a Loss)| {
            let (op, extra) = loss.op();
            let (target, input) = loss.shapes(&prediction);
            let mut descs = vec![TensorDesc::f32(input), target];
            let extra = extra.into_iter().map(|ExtraInput { values, .. }| {
                // Sums are divided at the end.
                let values: Vec<f64> = values.into_iter().map(f64::from).collect();
                if values.is_empty() { vec![1.0] } else { values }
            });
            let extra: Vec<_> = extra.collect();
            descs.extend(extra.iter().map(|values| TensorDesc::f32([values.len()])));
            op.outputs(&descs)?;
            let (factor, to_logits) = (f64::from(factor), loss.to_logits());
            Ok(Term { loss, factor, to_logits, op, descs, extra, sum: 0.0, weight: 0.0 })
        };
        let terms = loss.terms().into_iter().map(term).collect::<Result<_, _>>();
        let terms = terms.map_err(|source: OpError| GraphError::Op { node: "loss".to_owned(), source })?;
        Ok(Tally { loss, prediction, terms, samples: 0, right: 0, counted: 0 })
    }

    /// Adds one sample.
    pub(super) fn add(&mut self, prediction: &[f32], target: Target<'_>) {
        let exact: Vec<f64> = prediction.iter().map(|&x| f64::from(x)).collect();
        for term in &mut self.terms {
            term.add(&exact, target);
        }
        self.samples += 1;
        let (right, counted) = self.count(&exact, target);
        self.right += right;
        self.counted += counted;
    }

    /// The loss of all samples.
    pub(super) fn loss(&self) -> f64 {
        let mean = |term: &Term<'_>| term.factor * if term.weight > 0.0 { term.sum / term.weight } else { term.sum };
        self.terms.iter().map(mean).sum()
    }

    /// The share predicted right of all positions that count, for losses where that means something.
    pub(super) fn accuracy(&self) -> Option<f64> {
        (self.counted > 0).then(|| self.right as f64 / self.counted as f64)
    }

    /// How many positions of a sample are predicted right, of how many.
    fn count(&self, prediction: &[f64], target: Target<'_>) -> (usize, usize) {
        let classes = self.prediction.get(1).copied().unwrap_or(1);
        let inner = prediction.len() / classes.max(1);
        // The elements of each position, one for every class.
        let positions = |is_right: &dyn Fn(&[usize]) -> bool| {
            let elements = |position: usize| (0..classes).map(|class| class * inner + position).collect::<Vec<_>>();
            ((0..inner).filter(|&position| is_right(&elements(position))).count(), inner)
        };
        match (self.loss, target) {
            (loss, Target::Labels(labels)) => {
                let op = Accuracy { ignore_index: loss.ignored(), sample_weights: false };
                let (target, input) = loss.shapes(&self.prediction);
                let descs = [TensorDesc::f32(input), target];
                let right = run(&op, &descs, vec![Input::Real(prediction), Input::Int(labels)]);
                (right as usize, labels.iter().filter(|label| Some(**label) != loss.ignored()).count())
            }
            (Loss::SoftCrossEntropy { .. }, Target::Values(target)) => positions(&|elements| {
                let first_largest = |value: &dyn Fn(usize) -> f64| {
                    let larger = |best: usize, next: usize| if value(next) > value(best) { next } else { best };
                    elements.iter().copied().reduce(larger)
                };
                first_largest(&|i| prediction[i]) == first_largest(&|i| f64::from(target[i]))
            }),
            (Loss::BceWithLogits { .. } | Loss::Dice { .. } | Loss::Bce { .. }, Target::Values(target)) => {
                let limit = if self.loss.to_logits().is_empty() { 0.0 } else { 0.5 };
                positions(&|elements| elements.iter().all(|&i| (prediction[i] > limit) == (target[i] > 0.5)))
            }
            _ => (0, 0),
        }
    }
}

impl Term<'_> {
    fn add(&mut self, prediction: &[f64], target: Target<'_>) {
        let exact: Vec<f64>;
        let (target, weight) = match target {
            Target::Labels(labels) => (Input::Int(labels), self.loss.weight_of(&mut labels.iter().copied())),
            Target::Values(values) => {
                exact = values.iter().map(|&x| f64::from(x)).collect();
                (Input::Real(&exact), None)
            }
        };
        let logits = logits(&self.to_logits, &self.descs[0], prediction);
        let inputs = [Input::Real(&logits), target].into_iter();
        let inputs = inputs.chain(self.extra.iter().map(|values| Input::Real(values))).collect();
        self.sum += run(&*self.op, &self.descs, inputs);
        self.weight += weight.unwrap_or(1.0);
    }
}

/// The logits of a prediction.
fn logits(to_logits: &[Arc<dyn Op>], desc: &TensorDesc, prediction: &[f64]) -> Vec<f64> {
    let apply = |x: Vec<f64>, op: &Arc<dyn Op>| outputs(&**op, std::slice::from_ref(desc), vec![Input::Real(&x)]);
    to_logits.iter().fold(prediction.to_vec(), apply)
}

/// The first number that an op's twin makes.
fn run(op: &dyn Op, input_descs: &[TensorDesc], inputs: Vec<Input<'_, f64>>) -> f64 {
    outputs(op, input_descs, inputs)[0]
}

/// The first output that an op's twin makes.
fn outputs(op: &dyn Op, input_descs: &[TensorDesc], inputs: Vec<Input<'_, f64>>) -> Vec<f64> {
    let output_descs = op.outputs(input_descs).expect("bug: an op that was tried on these shapes");
    let mut data: Vec<_> = output_descs.iter().map(|desc| vec![0.0; desc.numel()]).collect();
    let outputs = data.iter_mut().map(|data| Output::Real(data)).collect();
    op.run_f64(&mut Call { input_descs, output_descs: &output_descs, inputs, outputs, mutated: Vec::new() });
    data.swap_remove(0)
}

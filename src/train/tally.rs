//! Losses and metrics on the host, over samples that come one by one: exact, however they are cut into batches.

use std::sync::Arc;

use super::fed::Fed;
use super::host::{Value, run_graph, run_op};
use super::loss::{ExtraInput, Loss};
use super::metrics::{Format, Metric, MetricKind, MetricValue, Sample, Target};
use super::objective::Head;
use crate::error::{GraphError, OpError, TrainError};
use crate::graph::Graph;
use crate::ops::{Input, Op};
use crate::tensor::{Shape, TensorDesc, ValueId};

/// The losses of all outputs, and the metrics of the model's own.
pub(super) struct Tally<'a> {
    heads: Vec<HeadTally<'a>>,
    format: Format,
    accuracy: Option<Box<dyn Metric>>,
    metrics: Vec<Box<dyn Metric>>,
    samples: usize,
}

struct HeadTally<'a> {
    head: &'a Head,
    terms: Vec<Term<'a>>,
}

/// One loss, on one sample after the other.
struct Term<'a> {
    loss: &'a Loss,
    factor: f64,
    by: By,
    sum: f64,
    weight: f64,
}

/// What computes it.
enum By {
    /// The op's twin.
    Op {
        /// What makes its logits of a prediction.
        to_logits: Vec<Arc<dyn Op>>,
        op: Arc<dyn Op>,
        descs: Vec<TensorDesc>,
        extra: Vec<Vec<f64>>,
    },
    /// The twins of a formula's ops, in turn.
    Formula { graph: Graph, prediction: ValueId, target: ValueId, loss: ValueId },
}

impl By {
    /// For a batch of one sample of these predictions.
    fn new(loss: &Loss, prediction: &Shape) -> Result<Self, GraphError> {
        let (target, input) = loss.shapes(prediction);
        let Some(op) = loss.single_op() else {
            let mut graph = Graph::new();
            let prediction = graph.input("prediction", TensorDesc::f32(prediction.clone()));
            let target = graph.input("target", target);
            let (loss, _) = loss.apply(&mut graph, prediction, target, 1.0, 0, None)?;
            return Ok(By::Formula { graph, prediction, target, loss });
        };
        let mut descs = vec![TensorDesc::f32(input), target];
        let extra = loss.op(false).1.into_iter().map(|ExtraInput { values, .. }| {
            // Sums are divided at the end.
            let values: Vec<f64> = values.into_iter().map(f64::from).collect();
            if values.is_empty() { vec![1.0] } else { values }
        });
        let extra: Vec<_> = extra.collect();
        descs.extend(extra.iter().map(|values| TensorDesc::f32([values.len()])));
        let named = |source: OpError| GraphError::Op { node: "loss".to_owned(), source };
        op.outputs(&descs).map_err(named)?;
        Ok(By::Op { to_logits: loss.to_logits(), op, descs, extra })
    }

    fn loss(&self, prediction: &[f64], target: Target<'_>) -> f64 {
        match self {
            By::Op { to_logits, op, descs, extra } => {
                let exact: Vec<f64>;
                let target = match target {
                    Target::Labels(labels) => Input::Int(labels),
                    Target::Values(values) => {
                        exact = values.iter().map(|&x| f64::from(x)).collect();
                        Input::Real(&exact)
                    }
                };
                let desc = std::slice::from_ref(&descs[0]);
                let to_logits = to_logits.iter();
                let logits = to_logits.fold(prediction.to_vec(), |x, op| run_op(&**op, desc, vec![Input::Real(&x)]));
                let inputs = [Input::Real(&logits), target].into_iter();
                let inputs = inputs.chain(extra.iter().map(|values| Input::Real(values))).collect();
                run_op(&**op, descs, inputs)[0]
            }
            By::Formula { graph, prediction: input, target: label, loss } => {
                let target = match target {
                    Target::Labels(labels) => Value::Int(labels.to_vec()),
                    Target::Values(values) => Value::Real(values.iter().map(|&x| f64::from(x)).collect()),
                };
                run_graph(graph, [(*input, Value::Real(prediction.to_vec())), (*label, target)], *loss)[0]
            }
        }
    }
}

impl<'a> Tally<'a> {
    /// For what a model makes and its losses take.
    pub(super) fn new(fed: &'a Fed, format: Format, metrics: &[MetricKind]) -> Result<Self, TrainError> {
        let head = |(head, output): (&'a Head, &Shape)| -> Result<_, GraphError> {
            let prediction: Shape = std::iter::once(1).chain(output.iter().copied()).collect::<Vec<_>>().into();
            let term = |(factor, loss): (f32, &'a Loss)| {
                let by = By::new(loss, &prediction)?;
                Ok(Term { loss, factor: f64::from(factor), by, sum: 0.0, weight: 0.0 })
            };
            let terms = head.loss.terms().into_iter().map(term).collect::<Result<_, GraphError>>()?;
            Ok(HeadTally { head, terms })
        };
        let heads = fed.heads().map(head).collect::<Result<Vec<HeadTally<'_>>, _>>()?;
        let accuracy = MetricKind::accuracy();
        let classifies = heads.first().is_some_and(|tally| tally.head.loss.classifies());
        let accuracy = (classifies && accuracy.check(&format).is_ok()).then(|| accuracy.build());
        metrics.iter().try_for_each(|metric| metric.check(&format))?;
        let metrics = metrics.iter().map(MetricKind::build).collect();
        Ok(Tally { heads, format, accuracy, metrics, samples: 0 })
    }

    /// Adds one sample: what the model makes for each loss, and its targets. Its losses are multiplied by its weight, and divided
    /// as if that were 1.
    pub(super) fn add(&mut self, sample: &[(&[f32], Target<'_>)], weight: f64) {
        for (HeadTally { terms, .. }, (prediction, target)) in self.heads.iter_mut().zip(sample) {
            let exact: Vec<f64> = prediction.iter().map(|&x| f64::from(x)).collect();
            for term in terms {
                term.add(&exact, *target, weight);
            }
        }
        self.samples += 1;
        if let Some((prediction, target)) = sample.first() {
            let sample = Sample { weight, ..Sample::new(prediction, *target, &self.format) };
            self.accuracy.iter_mut().chain(&mut self.metrics).for_each(|metric| metric.add(&sample));
        }
    }

    /// The loss of all samples.
    pub(super) fn loss(&self) -> f64 {
        let mean = |term: &Term<'_>| term.factor * if term.weight > 0.0 { term.sum / term.weight } else { term.sum };
        let of_head = |tally: &HeadTally<'_>| {
            let loss: f64 = tally.terms.iter().map(mean).sum();
            f64::from(tally.head.weight) * loss
        };
        self.heads.iter().map(of_head).sum()
    }

    /// The share predicted right of all positions that count, for losses where that means something.
    pub(super) fn accuracy(&self) -> Option<f64> {
        self.accuracy.as_ref()?.value().scalar()
    }

    /// The metrics by name.
    pub(super) fn metrics(&self) -> Vec<(String, MetricValue)> {
        self.metrics.iter().map(|metric| (metric.name().to_owned(), metric.value())).collect()
    }

    /// Samples so far.
    pub(super) fn samples(&self) -> usize {
        self.samples
    }
}

impl Term<'_> {
    fn add(&mut self, prediction: &[f64], target: Target<'_>, factor: f64) {
        let weight = match target {
            Target::Labels(labels) => self.loss.weight_of(&mut labels.iter().copied()),
            Target::Values(_) => None,
        };
        self.sum += factor * self.by.loss(prediction, target);
        self.weight += weight.unwrap_or(1.0);
    }
}

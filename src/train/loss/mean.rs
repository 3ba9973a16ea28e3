//! The mean of a loss over samples that come one by one, on the host.

use std::sync::Arc;

use super::{ExtraInput, Loss};
use crate::error::{GraphError, OpError};
use crate::graph::Graph;
use crate::ops::{Input, Op};
use crate::tensor::{Shape, TensorDesc, ValueId};
use crate::train::host::{Value, run_graph, run_op};
use crate::train::metrics::Target;

/// A loss of one sample after the other. Not a sum, whose terms may be divided by different weights.
#[derive(Debug)]
pub(in crate::train) struct LossMean {
    loss: Loss,
    by: By,
    sum: f64,
    weight: f64,
}

/// What computes it.
#[derive(Debug)]
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
    Formula(Formula),
}

/// A loss of one sample as a graph.
#[derive(Debug)]
pub(in crate::train) struct Formula {
    pub(in crate::train) graph: Graph,
    prediction: ValueId,
    pub(in crate::train) target: ValueId,
    loss: ValueId,
}

impl Formula {
    /// For predictions of this shape, with a batch axis of one sample.
    pub(in crate::train) fn new(loss: &Loss, prediction: &Shape) -> Result<Self, GraphError> {
        let mut graph = Graph::new();
        let target = loss.shapes(prediction).0;
        let prediction = graph.input("prediction", TensorDesc::f32(prediction.clone()));
        let target = graph.input("target", target);
        let (loss, _) = loss.apply(&mut graph, prediction, target, 1.0, 0, None)?;
        Ok(Formula { graph, prediction, target, loss })
    }
}

impl By {
    fn new(loss: &Loss, prediction: &Shape) -> Result<Self, GraphError> {
        let Some(op) = loss.single_op() else { return Ok(By::Formula(Formula::new(loss, prediction)?)) };
        let (target, input) = loss.shapes(prediction);
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
            By::Formula(Formula { graph, prediction: input, target: label, loss }) => {
                let target = match target {
                    Target::Labels(labels) => Value::Int(labels.to_vec()),
                    Target::Values(values) => Value::Real(values.iter().map(|&x| f64::from(x)).collect()),
                };
                run_graph(graph, [(*input, Value::Real(prediction.to_vec())), (*label, target)], *loss)[0]
            }
        }
    }
}

impl LossMean {
    /// For predictions of this shape, with a batch axis of one sample.
    pub(in crate::train) fn new(loss: &Loss, prediction: &Shape) -> Result<Self, GraphError> {
        Ok(LossMean { loss: loss.clone(), by: By::new(loss, prediction)?, sum: 0.0, weight: 0.0 })
    }

    /// Adds a sample, whose loss is multiplied by a factor and counts so much.
    pub(in crate::train) fn add(&mut self, prediction: &[f64], target: Target<'_>, factor: f64, counts: f64) {
        let weight = match target {
            Target::Labels(labels) => self.loss.weight_of(&mut labels.iter().copied()),
            Target::Values(_) => None,
        };
        self.sum += factor * self.by.loss(prediction, target);
        self.weight += counts * weight.unwrap_or(1.0);
    }

    /// The mean; 0 where nothing counts.
    pub(in crate::train) fn value(&self) -> f64 {
        if self.weight > 0.0 { self.sum / self.weight } else { self.sum }
    }

    /// Whether anything counts.
    pub(in crate::train) fn counts(&self) -> bool {
        self.weight > 0.0
    }
}

//! Losses in a graph: formulas, and sums.

use crate::error::GraphError;
use crate::graph::Graph;
use crate::nn::apply_formula;
use crate::ops::elementwise::add::Add;
use crate::ops::elementwise::scale::Scale;
use crate::ops::loss::mean_loss::MeanLoss;
use crate::tensor::ValueId;
use crate::train::criterion::Criterion;

/// The mean of what a formula makes.
pub(super) fn criterion_loss(
    graph: &mut Graph,
    criterion: &dyn Criterion,
    [prediction, target]: [ValueId; 2],
    weights: Option<ValueId>,
) -> Result<ValueId, GraphError> {
    let values = [prediction, target];
    let losses = apply_formula(graph, "loss", values, |[prediction, target]| criterion.loss(prediction, target))?;
    let shape = graph.value(losses).desc.shape.clone();
    let samples = graph.value(prediction).desc.shape[0];
    if shape[..] == [1] && samples != 1 && weights.is_none() {
        return Ok(losses);
    }
    if shape.first() != Some(&samples) {
        let reason = format!(
            "the loss {} makes {shape} of {samples} samples: the first axis must be the samples', or it must be one number, which \
             cannot be weighted by sample",
            criterion.name()
        );
        return Err(GraphError::Layer { layer: "loss".to_owned(), reason });
    }
    let inputs: Vec<_> = std::iter::once(losses).chain(weights).collect();
    graph.apply(MeanLoss { sample_weights: weights.is_some() }, &inputs)
}

pub(super) fn add_term(
    graph: &mut Graph,
    sum: Option<ValueId>,
    value: ValueId,
    factor: f32,
) -> Result<ValueId, GraphError> {
    let value = graph.apply(Scale { factor }, &[value])?;
    sum.map_or(Ok(value), |sum| graph.apply(Add, &[sum, value]))
}

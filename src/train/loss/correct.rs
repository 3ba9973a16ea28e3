//! What of a batch is predicted right.

use super::Loss;
use crate::error::GraphError;
use crate::graph::Graph;
use crate::ops::elementwise::compare::{Compare, Relation};
use crate::ops::elementwise::scale::Scale;
use crate::ops::loss::accuracy::Accuracy;
use crate::ops::loss::mean_loss::MeanLoss;
use crate::tensor::ValueId;

impl Loss {
    /// Adds the number of positions that are predicted right, where the targets are labels, or each sample is one yes or no.
    pub(in crate::train) fn correct(
        &self,
        graph: &mut Graph,
        prediction: ValueId,
        target: ValueId,
        weights: Option<ValueId>,
    ) -> Result<Option<ValueId>, GraphError> {
        if let Some(limit) = self.limit() {
            let sample = &graph.value(prediction).desc.shape[1..];
            let is_one = sample.iter().product::<usize>() == 1;
            return is_one.then(|| binary(graph, prediction, target, weights, limit)).transpose();
        }
        if !self.takes_labels() {
            return Ok(None);
        }
        let prediction = self.prediction(graph, prediction)?;
        let op = Accuracy { ignore_index: self.ignored(), sample_weights: weights.is_some() };
        let inputs: Vec<_> = [prediction, target].into_iter().chain(weights).collect();
        graph.apply(op, &inputs).map(Some)
    }

    /// What a prediction that means yes is above, where a loss is of yes and no.
    pub(in crate::train) fn limit(&self) -> Option<f32> {
        match self {
            Loss::BceWithLogits { .. } => Some(0.0),
            Loss::Bce { .. } => Some(0.5),
            _ => None,
        }
    }
}

/// Samples whose prediction is on the same side of the limit as the target is of 0.5, but for those of weight 0.
fn binary(
    graph: &mut Graph,
    prediction: ValueId,
    target: ValueId,
    weights: Option<ValueId>,
    limit: f32,
) -> Result<ValueId, GraphError> {
    let compare = |relation, number| Compare { relation, number };
    let predicted = graph.apply(compare(Relation::Greater, Some(limit)), &[prediction])?;
    let actual = graph.apply(compare(Relation::Greater, Some(0.5)), &[target])?;
    let right = graph.apply(compare(Relation::Equal, None), &[predicted, actual])?;
    let counts = weights.map(|weights| graph.apply(compare(Relation::NotEqual, Some(0.0)), &[weights])).transpose()?;
    // Unlike a sum over axis 0, this leaves a batch free to be split.
    let samples = graph.value(right).desc.numel();
    let inputs: Vec<_> = [right].into_iter().chain(counts).collect();
    let mean = graph.apply(MeanLoss { sample_weights: counts.is_some() }, &inputs)?;
    // It is rounded to a whole number where it is read.
    graph.apply(Scale { factor: samples as f32 }, &[mean])
}

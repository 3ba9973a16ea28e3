//! Formulas of tensors of a graph that is there already: losses and metrics.

use super::model::Mode;
use super::scope::Building;
use super::tensor::{Net, Tensor};
use crate::error::GraphError;
use crate::graph::Graph;
use crate::tensor::ValueId;

/// A function of tensors.
pub(crate) type Formula<'f> = dyn for<'a> Fn(&[Tensor<'a>]) -> Tensor<'a> + 'f;

/// Adds what a formula makes of some values, under a name. The graph is left empty where it fails.
pub(crate) fn apply_formula(
    graph: &mut Graph,
    name: &str,
    values: &[ValueId],
    formula: &Formula<'_>,
) -> Result<ValueId, GraphError> {
    let mut building = Building::new(1, Mode::Evaluate, false);
    building.graph = std::mem::take(graph);
    building.enter(name);
    building.graph.set_scope(name);
    let net = Net::new(building);
    let tensors: Vec<_> = values.iter().map(|&value| net.tensor(value)).collect();
    let output = formula(&tensors).value();
    let (building, output) = net.finish(output)?;
    if let Some(parameter) = building.parameters.iter().chain(&building.buffers).next() {
        let reason = format!("a formula has no parameters, but it makes `{}`: make it a layer of the model", parameter.name);
        return Err(GraphError::Layer { layer: name.to_owned(), reason });
    }
    *graph = building.graph;
    Ok(output)
}

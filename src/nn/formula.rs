//! Formulas of tensors of a graph that is there already: losses and metrics.

use super::model::Mode;
use super::scope::Building;
use super::tensor::{Net, Tensor};
use crate::error::GraphError;
use crate::graph::Graph;
use crate::tensor::ValueId;

/// Adds what a formula makes of some values, under a name. The graph is left empty where it fails.
pub(crate) fn apply_formula<const N: usize>(
    graph: &mut Graph,
    name: &str,
    values: [ValueId; N],
    formula: impl for<'a> FnOnce([Tensor<'a>; N]) -> Tensor<'a>,
) -> Result<ValueId, GraphError> {
    let mut building = Building::new(1, Mode::Evaluate, false);
    building.graph = std::mem::take(graph);
    building.enter(name);
    building.graph.set_scope(name);
    let net = Net::new(building);
    let output = formula(values.map(|value| net.tensor(value))).value();
    let (building, output) = net.finish(output)?;
    if let Some(parameter) = building.parameters.iter().chain(&building.buffers).next() {
        let reason =
            format!("a formula has no parameters, but it makes `{}`: make it a layer of the model", parameter.name);
        return Err(GraphError::Layer { layer: name.to_owned(), reason });
    }
    *graph = building.graph;
    Ok(output)
}

//! Reverse-mode automatic differentiation: a forward graph becomes the joint graph of forward, backward and the optimizer's update.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::error::{GraphError, OpError};
use crate::graph::{BufferUpdate, Graph, Pass, Phase, Role, Value};
use crate::ops::elementwise::add::Add;
use crate::ops::elementwise::scale::Scale;
use crate::ops::optim::accumulate::Accumulate;
use crate::ops::optim::clip::{ClipApply, ClipCoefficient, SquaredNorm};
use crate::ops::optim::ema::Ema;
use crate::ops::recurrent::state::WriteRows;
use crate::ops::shape::copy::Copy;
use crate::ops::shape::fill::Fill;
use crate::ops::{Backward, Builder, HYPER_LEN, SavedActivations, UpdateRule};
use crate::tensor::{TensorDesc, ValueId};

/// Name of the accumulator of the loss: the mean over the step's batch.
pub const LOSS: &str = "loss";
/// Name of the input of update nodes that the trainer fills each step, for the first group of parameters.
pub const HYPER: &str = "hyper";

/// The same for any group: `hyper`, `hyper.1`, `hyper.2`…
pub fn hyper_name(group: usize) -> String {
    if group == 0 { HYPER.to_owned() } else { format!("{HYPER}.{group}") }
}

/// How a graph becomes a training step.
#[derive(Clone, Copy, Debug)]
pub struct Training<'a> {
    /// The optimizer of each group of parameters.
    pub groups: &'a [Arc<dyn UpdateRule>],
    /// The group of each parameter, by name; those that are not named belong to the first.
    pub group_of: &'a BTreeMap<String, usize>,
    /// Scales gradients so that their global norm is at most this.
    pub clip_norm: Option<f32>,
    /// Which micro-batch of the step the graph is for.
    pub pass: Pass,
    /// The share of the step's samples that this micro-batch holds: its loss and gradients count by it.
    pub weight: f32,
    /// In which form forward values are kept for backward.
    pub saved: SavedActivations,
    /// What buffers become at the end of the step.
    pub buffer_updates: &'a [BufferUpdate],
}

/// Extends `graph` by the backward nodes of `loss` and, in the step's last pass, the updates of all parameters.
///
/// Gradients are summed over the step's micro-batches in accumulators named `grad.<parameter>`, the loss in one named
/// [`LOSS`], and each of `metrics` (name, value of shape `[1]`) in one of its name. Metrics are sums over samples and
/// are not weighted. In the first pass a gradient is written straight to its accumulator.
///
/// # Errors
/// Where the loss is not one number, where it depends on no parameter, and where a node on the way has no gradient.
pub fn joint(
    mut graph: Graph,
    loss: ValueId,
    metrics: &[(&str, ValueId)],
    training: &Training<'_>,
) -> Result<Graph, GraphError> {
    if graph.value(loss).desc.shape[..] != [1] {
        return Err(GraphError::LossShape { found: graph.value(loss).desc.shape.clone() });
    }
    let total_loss = if training.weight == 1.0 {
        loss
    } else {
        graph.set_scope("loss");
        graph.apply(Scale { factor: training.weight }, &[loss])?
    };
    graph.set_scope("metrics");
    let guard = sum_over_step(&mut graph, total_loss, LOSS.to_owned(), training.pass)?;
    for &(name, value) in metrics {
        sum_over_step(&mut graph, value, name.to_owned(), training.pass)?;
    }

    let mut kept = BTreeSet::new();
    if training.saved == SavedActivations::Compressed {
        compressed(&mut graph)?;
        kept = kept_anyway(&graph, loss, training)?;
    }
    let values = buffer_values(&mut graph, training)?;
    let gradients = backward(&mut graph, loss, training, &kept)?;
    graph.hoist_forward();
    let parameters: Vec<_> = graph.value_ids().filter(|&id| graph.value(id).role == Role::Parameter).collect();
    let mut pairs = Vec::new();
    for parameter in parameters {
        let Some(&gradient) = gradients.get(&parameter) else { continue };
        let name = graph.value(parameter).name.clone();
        let gradient = match training.pass {
            Pass::Only => gradient,
            _ => {
                graph.set_scope(layer_of(&name));
                sum_over_step(&mut graph, gradient, format!("grad.{name}"), training.pass)?
            }
        };
        pairs.push((parameter, name, gradient));
    }
    if pairs.is_empty() {
        return Err(GraphError::NoParameters);
    }
    if matches!(training.pass, Pass::Only | Pass::Last) {
        update(&mut graph, guard, &pairs, training)?;
        update_buffers(&mut graph, guard, training.buffer_updates, &values)?;
    }
    Ok(graph)
}

/// What buffers take over, as it is after this pass: of several micro-batches, the mean so far, or the rows so far.
fn buffer_values(graph: &mut Graph, training: &Training<'_>) -> Result<Vec<ValueId>, GraphError> {
    let of_step = |update: &BufferUpdate| {
        if training.pass == Pass::Only {
            return Ok(update.value);
        }
        let Value { name: buffer, desc, .. } = graph.value(update.buffer).clone();
        graph.set_scope(layer_of(&buffer));
        if let Some(run) = update.rows {
            let name = format!("buffer_update.{buffer}");
            let rows = if training.pass == Pass::First {
                let zeros = graph.apply(Fill { value: 0.0, shape: desc.shape }, &[])?;
                graph.promote(zeros, name, Role::Accumulator);
                zeros
            } else {
                graph.source(name, desc, Role::Accumulator)
            };
            graph.apply_all(WriteRows, &[rows, update.value, run])?;
            return Ok(rows);
        }
        let share = graph.apply(Scale { factor: training.weight }, &[update.value])?;
        sum_over_step(graph, share, format!("buffer_update.{buffer}"), training.pass)
    };
    training.buffer_updates.iter().map(of_step).collect()
}

/// Changes, in a graph that only evaluates, the buffers that have a row for each sample: each run goes on from the one before.
///
/// # Errors
/// Where a buffer and its rows do not fit together.
pub(crate) fn update_buffer_rows(graph: &mut Graph, buffer_updates: &[BufferUpdate]) -> Result<(), GraphError> {
    for update in buffer_updates {
        if let Some(run) = update.rows {
            let name = graph.value(update.buffer).name.clone();
            graph.set_scope(layer_of(&name));
            graph.apply_all(WriteRows, &[update.buffer, update.value, run])?;
        }
    }
    Ok(())
}

fn update_buffers(
    graph: &mut Graph,
    guard: ValueId,
    buffer_updates: &[BufferUpdate],
    values: &[ValueId],
) -> Result<(), GraphError> {
    graph.set_phase(Phase::Update);
    for (&BufferUpdate { buffer, momentum, factor, .. }, &value) in buffer_updates.iter().zip(values) {
        let name = graph.value(buffer).name.clone();
        graph.set_scope(layer_of(&name));
        graph.apply_all(Ema { momentum, factor }, &[buffer, value, guard])?;
    }
    Ok(())
}

/// Replaces ops by those that keep less for their backward, as [`Op::compressed`](crate::ops::Op::compressed) says: for
/// [`SavedActivations::Compressed`], and where there is no backward.
///
/// # Errors
/// Where such an op refuses its inputs, which would be a defect of the op.
pub(crate) fn compressed(graph: &mut Graph) -> Result<(), GraphError> {
    for id in graph.node_ids() {
        if let Some(op) = graph.node(id).op.compressed() {
            let node = graph.node(id).name.clone();
            graph.substitute(id, op).map_err(|source| GraphError::Op { node, source })?;
        }
    }
    Ok(())
}

/// The forward values that stay in memory until backward although every op keeps as little as it can: those that backward
/// reads as they are, and those that outlive the graph's run or are there before it. A trial of backward tells.
fn kept_anyway(graph: &Graph, loss: ValueId, training: &Training<'_>) -> Result<BTreeSet<ValueId>, GraphError> {
    let mut trial = graph.clone();
    backward(&mut trial, loss, training, &BTreeSet::new())?;
    let later = trial.nodes().iter().filter(|node| node.phase != Phase::Forward);
    let read: BTreeSet<_> = later.flat_map(|node| &node.inputs).map(|&input| trial.storage_root(input)).collect();
    let stays = |root: ValueId| {
        let value = graph.value(root);
        read.contains(&root) || value.producer.is_none() || value.role != Role::Intermediate
    };
    Ok(graph.value_ids().filter(|&id| stays(graph.storage_root(id))).collect())
}

/// Adds the backward nodes; returns the gradient of each value that has one.
fn backward(
    graph: &mut Graph,
    loss: ValueId,
    training: &Training<'_>,
    kept: &BTreeSet<ValueId>,
) -> Result<BTreeMap<ValueId, ValueId>, GraphError> {
    let forward_nodes = graph.nodes().to_vec();
    let mut needs: BTreeSet<ValueId> =
        graph.value_ids().filter(|&id| graph.value(id).role == Role::Parameter).collect();
    for node in &forward_nodes {
        if !node.op.stops_gradients() && node.inputs.iter().any(|input| needs.contains(input)) {
            needs.extend(&node.outputs);
        }
    }
    if !needs.contains(&loss) {
        return Err(GraphError::NoParameters);
    }
    graph.set_phase(Phase::Backward);
    graph.set_scope("loss");
    let seed = graph.apply(Fill { value: training.weight, shape: [1].into() }, &[])?;
    let mut gradients = BTreeMap::from([(loss, seed)]);
    for node in forward_nodes.iter().rev() {
        let grad_outputs: Vec<_> = node.outputs.iter().map(|output| gradients.get(output).copied()).collect();
        let wanted: Vec<_> = node.inputs.iter().map(|input| needs.contains(input)).collect();
        if grad_outputs.iter().all(Option::is_none) || !wanted.contains(&true) {
            continue;
        }
        graph.set_scope(node.name.clone());
        let named = |source: OpError| GraphError::Op { node: node.name.clone(), source };
        let forward = Backward {
            inputs: &node.inputs,
            outputs: &node.outputs,
            grad_outputs: &grad_outputs,
            wanted: &wanted,
            saved: training.saved,
            kept,
        };
        let grad_inputs = node.op.backward(graph, &forward).map_err(named)?;
        for ((&input, grad_input), wanted) in node.inputs.iter().zip(grad_inputs).zip(wanted) {
            let Some(grad_input) = grad_input.filter(|_| wanted) else { continue };
            let sum = match gradients.get(&input) {
                Some(&earlier) => (graph as &mut dyn Builder).emit(Add, &[earlier, grad_input]).map_err(named)?,
                None => grad_input,
            };
            gradients.insert(input, sum);
        }
    }
    Ok(gradients)
}

/// Makes `value` the step's accumulator of that name in the first pass, adds it to the accumulator in later ones.
fn sum_over_step(graph: &mut Graph, value: ValueId, name: String, pass: Pass) -> Result<ValueId, GraphError> {
    if matches!(pass, Pass::Only | Pass::First) {
        // Only a value of its own can become an accumulator: not a view, not one that already is something else.
        let own = graph.storage_root(value) == value && graph.value(value).role == Role::Intermediate;
        let value = if own { value } else { graph.apply(Copy, &[value])? };
        graph.promote(value, name, Role::Accumulator);
        return Ok(value);
    }
    let accumulator = graph.source(name, graph.value(value).desc.clone(), Role::Accumulator);
    graph.apply_all(Accumulate, &[accumulator, value])?;
    Ok(accumulator)
}

fn update(
    graph: &mut Graph,
    loss: ValueId,
    pairs: &[(ValueId, String, ValueId)],
    training: &Training<'_>,
) -> Result<(), GraphError> {
    graph.set_phase(Phase::Update);
    let group_of = |name: &str| training.group_of.get(name).copied().unwrap_or(0);
    let used: BTreeSet<_> = pairs.iter().map(|(_, name, _)| group_of(name)).collect();
    let hypers: BTreeMap<_, _> =
        used.into_iter().map(|group| (group, graph.input(hyper_name(group), TensorDesc::f32([HYPER_LEN])))).collect();
    let mut guard = loss;
    let mut coefficient = None;
    if let Some(max_norm) = training.clip_norm {
        graph.set_scope("clip");
        let mut total = None;
        for &(.., gradient) in pairs {
            let norm = graph.apply(SquaredNorm, &[gradient])?;
            total = Some(match total {
                Some(total) => graph.apply(Add, &[total, norm])?,
                None => norm,
            });
        }
        let total = total.expect("bug: no gradients to clip");
        coefficient = Some(graph.apply(ClipCoefficient { max_norm }, &[total])?);
        // A gradient that is not finite would make every parameter NaN through the common factor.
        guard = graph.apply(Add, &[loss, total])?;
    }
    for (parameter, name, gradient) in pairs {
        let layer = layer_of(name);
        graph.set_scope(layer);
        let gradient = match coefficient {
            Some(coefficient) => graph.apply(ClipApply, &[*gradient, coefficient])?,
            None => *gradient,
        };
        let mut inputs = vec![*parameter, gradient];
        let desc = graph.value(*parameter).desc.clone();
        let group = group_of(name);
        let rule = training.groups.get(group).expect("bug: a parameter of a group that there is not");
        for (state, desc) in rule.states(&desc) {
            inputs.push(graph.source(format!("{name}.{state}"), desc, Role::State));
        }
        inputs.extend([hypers[&group], guard]);
        let named = |source| GraphError::Op { node: layer.to_owned(), source };
        Builder::apply(graph, rule.op(&desc), &inputs).map_err(named)?;
    }
    Ok(())
}

/// `conv1` of `conv1.weight`.
fn layer_of(parameter: &str) -> &str {
    parameter.rsplit_once('.').map_or(parameter, |(layer, _)| layer)
}

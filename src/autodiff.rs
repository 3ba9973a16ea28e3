//! Reverse-mode automatic differentiation: a forward graph becomes the joint graph of forward, backward and the optimizer's update.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{GraphError, OpError};
use crate::graph::{BufferUpdate, Graph, Pass, Phase, Role, Value};
use crate::ops::elementwise::add::Add;
use crate::ops::elementwise::clamp::Clamp;
use crate::ops::elementwise::mul::Mul;
use crate::ops::elementwise::scale::Scale;
use crate::ops::elementwise::sqrt::Sqrt;
use crate::ops::optim::accumulate::Accumulate;
use crate::ops::optim::clip::{ClipApply, ClipCoefficient, SquaredNorm};
use crate::ops::optim::ema::Ema;
use crate::ops::recurrent::state::WriteRows;
use crate::ops::shape::copy::Copy;
use crate::ops::shape::fill::Fill;
use crate::ops::{Backward, Builder, HYPER_LEN, Op, SavedActivations, UpdateRule};
use crate::tensor::{TensorDesc, ValueId};

/// Name of the accumulator of the loss: the mean over the step's batch.
pub const LOSS: &str = "loss";
/// Name of the accumulator of the norm of all gradients, where it is asked for.
pub const GRAD_NORM: &str = "grad_norm";
/// Name of the accumulator that is finite where the loss and all gradients are, where the loss is scaled.
pub const GUARD: &str = "guard";
/// Name of the input that the loss is multiplied by for its gradients, where it is scaled.
pub const LOSS_SCALE: &str = "loss_scale";
/// Name of the input that gradients are multiplied by before anything else is made of them: the inverse of [`LOSS_SCALE`].
pub const LOSS_SCALE_INVERSE: &str = "loss_scale_inverse";
/// What follows a parameter's name in that of its moving average.
pub const EMA: &str = "ema";
/// Name of the input of update nodes that the trainer fills each step, for the first group of parameters.
pub const HYPER: &str = "hyper";

/// The same for any group: `hyper`, `hyper.1`, `hyper.2`…
pub fn hyper_name(group: usize) -> String {
    if group == 0 { HYPER.to_owned() } else { format!("{HYPER}.{group}") }
}

/// How gradients are kept small.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clip {
    /// All are scaled by one factor, so that the norm of all together is at most this: PyTorch's `clip_grad_norm_`, Keras's
    /// `global_clipnorm`.
    Norm(f32),
    /// Each element is held between minus this and this: PyTorch's `clip_grad_value_`, Keras's `clipvalue`.
    Value(f32),
    /// Each gradient is scaled by itself, so that its norm is at most this: Keras's `clipnorm`.
    TensorNorm(f32),
}

/// What becomes of gradients at the end of a step.
#[derive(Clone, Copy, Debug)]
pub enum Update<'a> {
    /// Parameters follow them.
    Optimize {
        /// The optimizer of each group of parameters.
        groups: &'a [Arc<dyn UpdateRule>],
        /// The group of each parameter, by name; those that are not named belong to the first.
        group_of: &'a BTreeMap<String, usize>,
        /// How gradients are kept small.
        clip: Option<Clip>,
        /// Keeps an exponential moving average of each trained parameter, `<parameter>.ema`, of which a step keeps this share.
        ema_decay: Option<f32>,
        /// Makes the norm of all gradients together a metric, [`GRAD_NORM`].
        grad_norm: bool,
        /// Makes gradients of the loss times an input, [`LOSS_SCALE`], and unscales them by another, [`LOSS_SCALE_INVERSE`]. Where one
        /// is not finite then, nothing is updated, and [`GUARD`] says so.
        loss_scale: bool,
    },
    /// Nothing: they stay in their accumulators, to be read. Those of the model's samples are the graph's outputs.
    Keep {
        /// The input whose gradient is wanted, too.
        input: Option<ValueId>,
    },
}

impl<'a> Update<'a> {
    /// Parameters follow their gradients as they are, and nothing else is made of these.
    pub fn plain(groups: &'a [Arc<dyn UpdateRule>], group_of: &'a BTreeMap<String, usize>) -> Self {
        Update::Optimize { groups, group_of, clip: None, ema_decay: None, grad_norm: false, loss_scale: false }
    }

    fn scales_loss(&self) -> bool {
        matches!(self, Update::Optimize { loss_scale: true, .. })
    }
}

/// How a graph becomes a training step.
#[derive(Clone, Copy, Debug)]
pub struct Training<'a> {
    /// What becomes of gradients.
    pub update: Update<'a>,
    /// Parameters that are not trained: they have no gradient and no optimizer state.
    pub frozen: &'a BTreeSet<String>,
    /// Which micro-batch of the step the graph is for.
    pub pass: Pass,
    /// The share of the step's samples that this micro-batch holds: its loss and gradients count by it.
    pub weight: f32,
    /// In which form forward values are kept for backward.
    pub saved: SavedActivations,
    /// Whether values are stored in 16 bits. What is computed again from such is not what it was, so that ops which would do so
    /// in their compressed form do not have it: all forms have the same bits.
    pub rounded: bool,
    /// What buffers become at the end of the step.
    pub buffer_updates: &'a [BufferUpdate],
}

/// Extends `graph` by the backward nodes of `loss` and, in the step's last pass, the updates of all parameters.
///
/// Gradients are summed over the step's micro-batches in accumulators named `grad.<parameter>`, the loss in one named
/// [`LOSS`], and each of `metrics` (name, value of shape `[1]`) in one of its name. Metrics are sums over samples and
/// are not weighted. In the first pass a gradient is written straight to its accumulator. Parameters that are frozen have no
/// gradient, and neither has what only they and inputs go into.
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
    graph.set_scope("loss");
    let total_loss = weighted(&mut graph, loss, training.weight)?;
    graph.set_scope("metrics");
    let guard = sum_over_step(&mut graph, total_loss, LOSS.to_owned(), training.pass)?;
    for &(name, value) in metrics {
        sum_over_step(&mut graph, value, name.to_owned(), training.pass)?;
    }

    let mut kept = BTreeSet::new();
    if training.saved.is_compressed() {
        substitute(&mut graph, |op| op.compressed().filter(|_| !(training.rounded && op.recomputes_compressed())))?;
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
        let gradient = match (training.pass, training.update) {
            (Pass::Only, Update::Optimize { .. }) => gradient,
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
    match training.update {
        Update::Optimize { .. } if matches!(training.pass, Pass::Only | Pass::Last) => {
            let guard = update(&mut graph, guard, &pairs, training)?;
            update_buffers(&mut graph, guard, training.buffer_updates, &values)?;
        }
        Update::Keep { input: Some(input) } => {
            let gradient = gradients.get(&input).copied().ok_or(GraphError::NoParameters)?;
            let gradient =
                if graph.storage_root(gradient) == gradient && graph.value(gradient).role == Role::Intermediate {
                    gradient
                } else {
                    graph.apply(Copy, &[gradient])?
                };
            graph.mark_output(gradient);
        }
        _ => {}
    }
    Ok(graph)
}

/// A number by the share of the step's samples: itself where that is all of them.
fn weighted(graph: &mut Graph, value: ValueId, weight: f32) -> Result<ValueId, GraphError> {
    if weight == 1.0 { Ok(value) } else { graph.apply(Scale { factor: weight }, &[value]) }
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
    substitute(graph, Op::compressed)
}

/// Replaces ops by others of the same inputs.
fn substitute(graph: &mut Graph, other: impl Fn(&dyn Op) -> Option<Arc<dyn Op>>) -> Result<(), GraphError> {
    for id in graph.node_ids() {
        if let Some(op) = other(&*graph.node(id).op) {
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
    let is_trained = |value: &Value| value.role == Role::Parameter && !training.frozen.contains(&value.name);
    let mut needs: BTreeSet<ValueId> = graph.value_ids().filter(|&id| is_trained(graph.value(id))).collect();
    if let Update::Keep { input } = training.update {
        needs.extend(input);
    }
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
    let seed = if training.update.scales_loss() {
        let scale = graph.input(LOSS_SCALE, TensorDesc::f32([1]));
        weighted(graph, scale, training.weight)?
    } else {
        graph.apply(Fill { value: training.weight, shape: [1].into() }, &[])?
    };
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

/// What becomes of gradients before parameters follow them.
struct Clipping {
    by: Clipped,
    /// What takes the loss scale away, where there is one.
    inverse: Option<ValueId>,
}

/// What clipping takes besides a gradient.
enum Clipped {
    Not,
    Value(f32),
    /// The factor of all, which takes the loss scale away, too.
    Norm(ValueId),
    /// The squared norm of each.
    TensorNorms(f32, Vec<ValueId>),
}

impl Clipping {
    /// Adds what all gradients are needed for; returns with it the guard of the updates, a number that is finite where the loss
    /// and the norms are.
    fn new(
        graph: &mut Graph,
        loss: ValueId,
        pairs: &[(ValueId, String, ValueId)],
        clip: Option<Clip>,
        grad_norm: bool,
        loss_scale: bool,
    ) -> Result<(Self, ValueId), GraphError> {
        let inverse = loss_scale.then(|| graph.input(LOSS_SCALE_INVERSE, TensorDesc::f32([1])));
        let is_guarded = loss_scale || matches!(clip, Some(Clip::Norm(_) | Clip::TensorNorm(_)));
        let (mut total, mut norms, mut guard) = (None, Vec::new(), loss);
        if is_guarded || grad_norm {
            graph.set_scope("clip");
            for &(.., gradient) in pairs {
                // Of what the gradient is without the scale: the square of a scaled one may be infinite though it is not.
                let norm =
                    graph.apply(SquaredNorm, &[Some(gradient), inverse].into_iter().flatten().collect::<Vec<_>>())?;
                norms.push(norm);
                total = Some(match total {
                    Some(total) => graph.apply(Add, &[total, norm])?,
                    None => norm,
                });
            }
        }
        let by = match (clip, total) {
            (Some(Clip::Norm(max_norm)), Some(total)) => {
                let coefficient = graph.apply(ClipCoefficient { max_norm }, &[total])?;
                Clipped::Norm(unscaling(graph, coefficient, inverse)?)
            }
            (Some(Clip::TensorNorm(max_norm)), _) => Clipped::TensorNorms(max_norm, norms),
            (Some(Clip::Value(most)), _) => Clipped::Value(most),
            _ => Clipped::Not,
        };
        if let (Some(total), true) = (total, is_guarded) {
            // A gradient that is not finite would make every parameter NaN through the common factor.
            guard = graph.apply(Add, &[loss, total])?;
        }
        if let (Some(total), true) = (total, grad_norm) {
            let norm = graph.apply(Sqrt, &[total])?;
            graph.promote(norm, GRAD_NORM, Role::Accumulator);
        }
        if loss_scale {
            graph.promote(guard, GUARD, Role::Accumulator);
        }
        Ok((Clipping { by, inverse }, guard))
    }

    /// Gradient number `i` as its update takes it.
    fn apply(&self, graph: &mut Graph, i: usize, gradient: ValueId) -> Result<ValueId, GraphError> {
        let factor = match self.by {
            Clipped::Not | Clipped::Value(_) => self.inverse,
            Clipped::Norm(coefficient) => Some(coefficient),
            Clipped::TensorNorms(max_norm, ref norms) => {
                let coefficient = graph.apply(ClipCoefficient { max_norm }, &[norms[i]])?;
                Some(unscaling(graph, coefficient, self.inverse)?)
            }
        };
        let gradient = match factor {
            Some(factor) => graph.apply(ClipApply, &[gradient, factor])?,
            None => gradient,
        };
        match self.by {
            Clipped::Value(most) => graph.apply(Clamp { min: -most, max: most }, &[gradient]),
            _ => Ok(gradient),
        }
    }
}

/// A factor of gradients that takes their scale away, too.
fn unscaling(graph: &mut Graph, factor: ValueId, inverse: Option<ValueId>) -> Result<ValueId, GraphError> {
    inverse.map_or(Ok(factor), |inverse| graph.apply(Mul, &[factor, inverse]))
}

/// Adds the updates; returns their guard.
fn update(
    graph: &mut Graph,
    loss: ValueId,
    pairs: &[(ValueId, String, ValueId)],
    training: &Training<'_>,
) -> Result<ValueId, GraphError> {
    let Update::Optimize { groups, group_of, clip, ema_decay, grad_norm, loss_scale } = training.update else {
        return Ok(loss);
    };
    graph.set_phase(Phase::Update);
    let group_of = |name: &str| group_of.get(name).copied().unwrap_or(0);
    let used: BTreeSet<_> = pairs.iter().map(|(_, name, _)| group_of(name)).collect();
    let hypers: BTreeMap<_, _> =
        used.into_iter().map(|group| (group, graph.input(hyper_name(group), TensorDesc::f32([HYPER_LEN])))).collect();
    let (clipping, guard) = Clipping::new(graph, loss, pairs, clip, grad_norm, loss_scale)?;
    for (i, (parameter, name, gradient)) in pairs.iter().enumerate() {
        let layer = layer_of(name);
        graph.set_scope(layer);
        let gradient = clipping.apply(graph, i, *gradient)?;
        let mut inputs = vec![*parameter, gradient];
        let desc = graph.value(*parameter).desc.clone();
        let group = group_of(name);
        let rule = groups.get(group).expect("bug: a parameter of a group that there is not");
        for (state, desc) in rule.states(&desc) {
            inputs.push(graph.source(format!("{name}.{state}"), desc, Role::State));
        }
        inputs.extend([hypers[&group], guard]);
        let named = |source| GraphError::Op { node: layer.to_owned(), source };
        Builder::apply(graph, rule.op(&desc), &inputs).map_err(named)?;
        if let Some(decay) = ema_decay {
            let ema = graph.source(format!("{name}.{EMA}"), desc, Role::State);
            graph.apply_all(Ema { momentum: 1.0 - decay, factor: 1.0 }, &[ema, *parameter, guard])?;
        }
    }
    Ok(guard)
}

/// `conv1` of `conv1.weight`.
fn layer_of(parameter: &str) -> &str {
    parameter.rsplit_once('.').map_or(parameter, |(layer, _)| layer)
}

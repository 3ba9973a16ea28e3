//! What the memory of a training is.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::error::TrainError;
use crate::graph::{Graph, Pass, Phase, Role, Value};
use crate::nn::Model;
use crate::ops::SavedActivations;
use crate::plan::Source as _;
use crate::tensor::ValueId;
use crate::train::settings::Config;
use crate::train::source::{ModelSource, Purpose};
use crate::train::summary::{Summary, summary};

/// Tensors that are named.
const NAMED: usize = 10;

/// A tensor that takes much.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LargeTensor {
    /// Its name: the layer, and the op that makes it.
    pub name: String,
    /// `parameter`, `optimizer state`, `input`, `activation`, `gradient` or `buffer`.
    pub kind: &'static str,
    /// Its type and extents.
    pub shape: String,
    /// Its bytes.
    pub size_bytes: u64,
    /// Whether backward reads it, so that it stays until then unless it is recomputed or offloaded.
    pub saved: bool,
}

/// What a training of the whole batch at once takes, before the planner does anything about it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryUse {
    /// Bytes of parameters.
    pub parameter_bytes: u64,
    /// Bytes of their gradients. They need not all be in memory at once.
    pub gradient_bytes: u64,
    /// Bytes of optimizer state.
    pub state_bytes: u64,
    /// Bytes that forward leaves for backward.
    pub saved_bytes: u64,
    /// The layers with what each takes.
    #[serde(skip)]
    pub layers: Summary,
    /// The ten largest tensors, largest first.
    pub largest: Vec<LargeTensor>,
}

impl MemoryUse {
    pub(super) fn of(model: &Model, config: &Config) -> Result<Self, TrainError> {
        let layers = summary(model.clone(), config)?;
        let source = ModelSource::new(model, config, Purpose::Training)?;
        let graph = source.graph(Pass::Only, config.batch, config.batch, SavedActivations::Full)?;
        let sum = |bytes: fn(&crate::train::SummaryRow) -> u64| layers.rows().iter().map(bytes).sum();
        Ok(MemoryUse {
            parameter_bytes: sum(|row| row.parameter_bytes),
            gradient_bytes: layers.trained_bytes(),
            state_bytes: sum(|row| row.state_bytes),
            saved_bytes: sum(|row| row.saved_bytes),
            largest: largest(&graph),
            layers,
        })
    }
}

fn largest(graph: &Graph) -> Vec<LargeTensor> {
    let later = graph.nodes().iter().filter(|node| node.phase != Phase::Forward);
    let read: BTreeSet<ValueId> = later.flat_map(|node| &node.inputs).map(|&input| graph.storage_root(input)).collect();
    let phase = |value: &Value| value.producer.map(|node| graph.node(node).phase);
    let mut tensors: Vec<_> = graph.value_ids().filter(|&id| graph.storage_root(id) == id).collect();
    tensors.sort_by_key(|&id| std::cmp::Reverse(graph.value(id).desc.size_bytes()));
    let described = |id: ValueId| {
        let value = graph.value(id);
        let kind = match (value.role, phase(value)) {
            (Role::Parameter, _) => "parameter",
            (Role::State, _) => "optimizer state",
            (Role::Buffer, _) => "buffer",
            (_, None) => "input",
            (_, Some(Phase::Forward)) => "activation",
            (_, Some(_)) => "gradient",
        };
        let saved = kind == "activation" && read.contains(&id);
        let (name, shape) = (value.name.clone(), value.desc.to_string());
        LargeTensor { name, kind, shape, size_bytes: value.desc.size_bytes(), saved }
    };
    tensors.into_iter().take(NAMED).map(described).collect()
}

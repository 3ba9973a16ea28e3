//! What a step may look like before memory is looked at: how many micro-batches it has, and the form of their graphs.

pub(super) mod microbatch;
mod order;
mod set;
pub(super) mod storage;

use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) use set::{Candidates, Key};
use storage::Storage;

use super::layout::arenas;
use super::{Pass, Request, SavedActivations, Source};
use crate::error::{GraphError, PlanError};
use crate::graph::{FusionStage, Graph, Role};
use crate::tensor::{NodeId, TensorDesc};

/// The least alignment of a value: kernels read whole vectors past the end of a tensor.
const ALIGNMENT_BYTES: u64 = 256;

/// Nodes above which a graph is large, or of medium size.
const LARGE_NODES: usize = 600;
const MEDIUM_NODES: usize = 150;

/// What may be different about the graphs of a step that all make the same bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Form {
    /// In which form forward values are kept for backward.
    pub(super) saved: SavedActivations,
    /// Whether elementwise nodes are fused with what they follow.
    pub(super) fused: bool,
}

impl Form {
    /// The graph of one pass in this form.
    pub(super) fn graph(
        self,
        source: &dyn Source,
        pass: Pass,
        samples: usize,
        batch: usize,
    ) -> Result<Graph, GraphError> {
        let mut graph = source.graph(pass, samples, batch, self.saved)?;
        if self.fused {
            graph.fuse(FusionStage::Complete, &[]);
        }
        Ok(graph)
    }
}

/// How long searches on a graph take: on larger ones less is tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Size {
    #[default]
    Small,
    Medium,
    Large,
}

impl Size {
    fn of_nodes(nodes: usize) -> Size {
        match nodes {
            nodes if nodes > LARGE_NODES => Size::Large,
            nodes if nodes > MEDIUM_NODES => Size::Medium,
            _ => Size::Small,
        }
    }
}

/// The graph of one program, with what schedules and layouts of it need to know.
#[derive(Debug)]
pub(super) struct ProgramGraph {
    pub(super) pass: Pass,
    pub(super) samples: usize,
    /// Shared with the plan that is made of it.
    pub(super) graph: Arc<Graph>,
    pub(super) storage: Storage,
    /// The order in which nodes run where memory does not matter.
    pub(super) order: Vec<NodeId>,
    /// Most transient bytes live at once in that order.
    live_bytes: u64,
    /// Bytes of the largest value or workspace.
    largest_bytes: u64,
    /// What one run of each node costs.
    pub(super) node_ns: Vec<f64>,
}

impl ProgramGraph {
    fn new(
        graph: Graph,
        pass: Pass,
        samples: usize,
        alignment_bytes: u64,
        request: &Request,
    ) -> Result<ProgramGraph, PlanError> {
        let storage = Storage::of(&graph, alignment_bytes, request.limits.threads)?;
        // Before all that takes long: where batches are large, many ways to split them end here.
        let most_bytes = arenas::most_bytes(&request.limits);
        let limit_bytes = request.limits.max_binding_bytes.min(most_bytes);
        let largest_bytes = storage.largest_bytes(&graph, limit_bytes, most_bytes)?.max(ALIGNMENT_BYTES);
        let (order, live_bytes) = order::best(&graph, &storage);
        let node_ns = request.costs.all_ns(&graph);
        Ok(ProgramGraph { pass, samples, graph: graph.into(), storage, order, live_bytes, largest_bytes, node_ns })
    }
}

/// A value that outlives the programs, as all of them know it.
#[derive(Clone, Debug)]
pub(super) struct PersistentValue {
    pub(super) name: String,
    pub(super) role: Role,
    pub(super) desc: TensorDesc,
}

/// One number of micro-batches and one form, with the programs that this takes.
#[derive(Debug)]
pub(super) struct Candidate<'a> {
    pub(super) request: &'a Request,
    /// Samples of each micro-batch.
    pub(super) micro_batches: Vec<usize>,
    pub(super) form: Form,
    /// The distinct programs, the one that predicts last.
    pub(super) programs: Vec<ProgramGraph>,
    /// For each micro-batch, the index of its program.
    pub(super) program_of: Vec<usize>,
    /// The persistent values of all programs.
    pub(super) persistent: Vec<PersistentValue>,
    /// Where arenas are cut.
    pub(super) chunk_bytes: u64,
    pub(super) alignment_bytes: u64,
}

impl<'a> Candidate<'a> {
    /// The programs for these micro-batches.
    pub(super) fn new(
        source: &dyn Source,
        request: &'a Request,
        micro_batches: Vec<usize>,
        form: Form,
    ) -> Result<Self, PlanError> {
        let alignment_bytes = request.limits.alignment_bytes.max(1).next_multiple_of(ALIGNMENT_BYTES);
        let program = |pass: Pass, samples: usize| {
            let graph = form.graph(source, pass, samples, request.batch)?;
            ProgramGraph::new(graph, pass, samples, alignment_bytes, request)
        };
        let mut programs: Vec<ProgramGraph> = Vec::new();
        let mut program_of = Vec::new();
        for (pass, &samples) in microbatch::passes(micro_batches.len()).zip(&micro_batches) {
            let known = programs.iter().position(|program| (program.pass, program.samples) == (pass, samples));
            program_of.push(known.unwrap_or(programs.len()));
            if known.is_none() {
                programs.push(program(pass, samples)?);
            }
        }
        programs.push(program(Pass::Evaluate, micro_batches[0])?);
        let largest_bytes = programs.iter().map(|program| program.largest_bytes).max();
        let chunk_bytes = arenas::chunk_bytes(largest_bytes.unwrap_or(ALIGNMENT_BYTES), &request.limits);
        let persistent = persistent_values(&programs)?;
        Ok(Candidate { request, micro_batches, form, programs, program_of, persistent, chunk_bytes, alignment_bytes })
    }

    /// Which one it is among the candidates of its request.
    pub(super) fn key(&self) -> Key {
        Key { count: self.micro_batches.len(), form: self.form }
    }

    /// Nodes of all programs.
    pub(super) fn nodes(&self) -> usize {
        self.programs.iter().map(|program| program.order.len()).sum()
    }

    /// That of its largest program.
    pub(super) fn size(&self) -> Size {
        Size::of_nodes(self.programs.iter().map(|program| program.order.len()).max().unwrap_or(0))
    }

    /// Time of a step with every node once and everything on the device.
    pub(super) fn plain_ns(&self) -> u64 {
        let run_ns = |program: &ProgramGraph| {
            let nodes = program.order.iter().map(|node| program.node_ns[node.index()]);
            nodes.fold(self.request.costs.run_ns(), |sum, ns| sum + ns).round() as u64
        };
        self.program_of.iter().map(|&number| run_ns(&self.programs[number])).sum()
    }

    /// Most transient bytes that are live at once with every node once and everything on the device.
    pub(super) fn plain_live_bytes(&self) -> u64 {
        self.programs.iter().map(|program| program.live_bytes).max().unwrap_or(0)
    }
}

/// The persistent values of all programs, each once, in the order in which programs have them.
fn persistent_values(programs: &[ProgramGraph]) -> Result<Vec<PersistentValue>, PlanError> {
    let mut values: Vec<PersistentValue> = Vec::new();
    let mut known = BTreeMap::new();
    for value in programs.iter().flat_map(|program| program.graph.values()) {
        if !value.role.is_persistent() {
            continue;
        }
        match known.insert(&value.name, (value.role, &value.desc)) {
            None => {
                let (name, desc) = (value.name.clone(), value.desc.clone());
                values.push(PersistentValue { name, role: value.role, desc });
            }
            Some(before) if before == (value.role, &value.desc) => {}
            Some((_, desc)) => {
                return Err(PlanError::Invalid(format!(
                    "`{}` is {desc} in one program and {} in another",
                    value.name, value.desc
                )));
            }
        }
    }
    Ok(values)
}

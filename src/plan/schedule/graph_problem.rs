//! A program's graph as a problem for the solver, and the solver's sequence as the program's events.

use std::collections::BTreeMap;

use super::solver::{self, Entry, OperationSpec, Problem, Transfer, Value};
use super::{Event, OffloadPolicy};
use crate::graph::Phase;
use crate::plan::candidate::storage::{Kind, Storage};
use crate::plan::candidate::{Candidate, ProgramGraph};
use crate::plan::{CostModel, Levers};
use crate::tensor::{NodeId, ValueId};

/// A problem with what its operations and values are in the graph.
#[derive(Debug)]
pub(crate) struct GraphProblem {
    pub(crate) problem: Problem,
    nodes: Vec<NodeId>,
    roots: Vec<ValueId>,
}

impl GraphProblem {
    /// Those of all programs of a candidate under a policy.
    pub(crate) fn all(candidate: &Candidate<'_>, policy: &OffloadPolicy) -> Vec<GraphProblem> {
        (0..candidate.programs.len()).map(|number| GraphProblem::under(candidate, number, policy)).collect()
    }

    /// That of one program of a candidate under a policy.
    pub(crate) fn under(candidate: &Candidate<'_>, number: usize, policy: &OffloadPolicy) -> GraphProblem {
        let (program, request) = (&candidate.programs[number], candidate.request);
        let storage = program.storage.hosting(&program.graph, &policy.hosted);
        GraphProblem::new(program, &storage, &request.costs, policy.restrict(request.levers))
    }

    /// The problem of one program. `storage` says which persistent values are in the host tier.
    pub(crate) fn new(program: &ProgramGraph, storage: &Storage, costs: &CostModel, levers: Levers) -> GraphProblem {
        let graph = &program.graph;
        let mut number = BTreeMap::new();
        let mut roots = Vec::new();
        let mut values = Vec::new();
        let mut changes: BTreeMap<ValueId, Vec<usize>> = BTreeMap::new();
        for (position, &id) in program.order.iter().enumerate() {
            let node = graph.node(id);
            for &input in node.op.mutates() {
                changes.entry(storage.root(node.inputs[input])).or_default().push(position);
            }
        }
        for root in storage.root_ids() {
            let (hosted, to_end) = match storage.kind(root) {
                Kind::Persistent(_) => continue,
                Kind::Hosted(_) => (true, false),
                Kind::Transient { to_end } => (false, to_end),
            };
            let size_bytes = graph.value(root).desc.size_bytes();
            let changed = changes.contains_key(&root);
            let moves = hosted || (levers.offload && !to_end && !changed);
            let transfer = moves.then(|| Transfer {
                offload_cost: costs.offload_ns(size_bytes).round() as u64,
                prefetch_cost: costs.prefetch_ns(size_bytes).round() as u64,
                hosted,
            });
            number.insert(root, values.len());
            roots.push(root);
            values.push(Value { bytes: storage.size_bytes(root), producer: None, to_end, transfer });
        }
        let mut operations = Vec::with_capacity(program.order.len());
        for (position, &id) in program.order.iter().enumerate() {
            let node = graph.node(id);
            let known = |ids: &[ValueId]| {
                let mut known: Vec<usize> =
                    ids.iter().filter_map(|&id| number.get(&storage.root(id)).copied()).collect();
                known.sort_unstable();
                known.dedup();
                known
            };
            let outputs: Vec<_> = node.outputs.iter().filter_map(|output| number.get(output).copied()).collect();
            let changes_something = node.op.flags().once || !node.op.mutates().is_empty();
            let makes_persistent = node.outputs.iter().any(|&output| graph.value(output).role.is_persistent());
            let repeatable_before = if changes_something || makes_persistent || !levers.recompute {
                position
            } else {
                // What it reads or makes is another thing once it was changed; the change itself can still be awaited.
                let touched = node.inputs.iter().chain(&node.outputs).map(|&id| storage.root(id));
                let changed = touched.filter_map(|root| changes.get(&root)?.iter().find(|&&at| at > position));
                changed.map(|&at| at + 1).min().unwrap_or(program.order.len())
            };
            let changed: Vec<_> = node.op.mutates().iter().map(|&input| node.inputs[input]).collect();
            let mut in_place_reuses = storage.in_place_reuses(graph, id).map(|(_, root)| number[&root]);
            operations.push(OperationSpec {
                inputs: known(&node.inputs),
                outputs,
                workspace_bytes: storage.workspaces[id.index()].iter().sum(),
                cost: program.node_ns[id.index()].round() as u64,
                repeatable_before,
                changes: known(&changed),
                in_place: [in_place_reuses.next(), in_place_reuses.next()],
            });
        }
        let is_forward = |&&id: &&NodeId| graph.node(id).phase == Phase::Forward;
        let boundary = program.order.iter().rposition(|id| is_forward(&id)).unwrap_or(0);
        GraphProblem { problem: Problem::new(&operations, values, boundary), nodes: program.order.clone(), roots }
    }

    /// The events of a sequence.
    pub(crate) fn events(&self, entries: &[Entry]) -> Vec<Event> {
        let event = |entry: &Entry| match entry.event() {
            solver::Event::Run(operation) => Event::Run(self.nodes[operation]),
            solver::Event::Fetch(value) => Event::Fetch(self.roots[value]),
        };
        entries.iter().map(event).collect()
    }
}

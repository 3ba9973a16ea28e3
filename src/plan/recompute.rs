//! A program as a problem of scheduling, and the schedule as the program's events.

use std::collections::BTreeMap;

use super::build::Part;
use super::lifetime::{self, Kind, Storage};
use super::schedule::{Entry, Event, OperationSpec, Problem, Transfer, Value};
use super::{CostModel, Levers};
use crate::graph::{Phase, Role};
use crate::tensor::{NodeId, ValueId};

/// A problem with what its operations and values are in the graph.
#[derive(Debug)]
pub(super) struct Scheduling {
    pub(super) problem: Problem,
    nodes: Vec<NodeId>,
    roots: Vec<ValueId>,
}

impl Scheduling {
    /// The problem of one program. `storage` says which persistent values are in the host tier.
    pub(super) fn of(part: &Part, storage: &Storage, costs: &CostModel, levers: Levers) -> Scheduling {
        let graph = &part.graph;
        let mut number = BTreeMap::new();
        let mut roots = Vec::new();
        let mut values = Vec::new();
        let mut changes: BTreeMap<ValueId, Vec<usize>> = BTreeMap::new();
        for (position, &id) in part.order.iter().enumerate() {
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
        let mut operations = Vec::with_capacity(part.order.len());
        for (position, &id) in part.order.iter().enumerate() {
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
            let lasting = node.outputs.iter().any(|&output| graph.value(output).role.is_persistent());
            let repeatable_before = if changes_something || lasting || !levers.recompute {
                position
            } else {
                // What it reads or makes is another thing once it was changed; the change itself can still be awaited.
                let touched = node.inputs.iter().chain(&node.outputs).map(|&id| storage.root(id));
                let changed = touched.filter_map(|root| changes.get(&root)?.iter().find(|&&at| at > position));
                changed.map(|&at| at + 1).min().unwrap_or(part.order.len())
            };
            let changed: Vec<_> = node.op.mutates().iter().map(|&input| node.inputs[input]).collect();
            let mut in_place_reuses = storage.in_place_reuses(graph, id).map(|(_, root)| number[&root]);
            operations.push(OperationSpec {
                inputs: known(&node.inputs),
                outputs,
                workspace_bytes: storage.workspaces[id.index()].iter().sum(),
                cost: part.node_ns[id.index()].round() as u64,
                repeatable_before,
                changes: known(&changed),
                in_place: [in_place_reuses.next(), in_place_reuses.next()],
            });
        }
        let is_forward = |&&id: &&NodeId| graph.node(id).phase == Phase::Forward;
        let turn = part.order.iter().rposition(|id| is_forward(&id)).unwrap_or(0);
        Scheduling { problem: Problem::new(&operations, values, turn), nodes: part.order.clone(), roots }
    }

    /// The events of a sequence.
    pub(super) fn events(&self, entries: &[Entry]) -> Vec<lifetime::Event> {
        let event = |entry: &Entry| match entry.event() {
            Event::Run(operation) => lifetime::Event::Run(self.nodes[operation]),
            Event::Fetch(value) => lifetime::Event::Fetch(self.roots[value]),
        };
        entries.iter().map(event).collect()
    }
}

/// Persistent values of these programs that could stay in the host tier, cheapest to move first: by role, the largest
/// first, because a copy has a fixed cost.
pub(super) fn hostable(parts: &[Part]) -> Vec<(String, u64, Role)> {
    let mut found: BTreeMap<String, (u8, u64, Role)> = BTreeMap::new();
    for value in parts.iter().flat_map(|part| part.graph.values()) {
        let rank = match value.role {
            Role::State => 0,
            Role::Accumulator => 1,
            Role::Parameter => 2,
            _ => continue,
        };
        found.insert(value.name.clone(), (rank, value.desc.size_bytes(), value.role));
    }
    // What is read back through a view stays where that reads it.
    for part in parts {
        let graph = &part.graph;
        for id in graph.value_ids().filter(|&id| graph.value(id).role == Role::Output) {
            let shares = |other: &ValueId| graph.storage_root(*other) == graph.storage_root(id);
            for other in graph.value_ids().filter(shares) {
                found.remove(&graph.value(other).name);
            }
        }
    }
    let mut hostable: Vec<_> = found.into_iter().collect();
    hostable.sort_by(|(a_name, (a_rank, a, _)), (b_name, (b_rank, b, _))| {
        a_rank.cmp(b_rank).then(b.cmp(a)).then_with(|| a_name.cmp(b_name))
    });
    hostable.into_iter().map(|(name, (_, bytes, role))| (name, bytes, role)).collect()
}

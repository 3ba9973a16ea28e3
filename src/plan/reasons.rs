//! Why a program runs nodes again and fetches values: read off its commands.

use std::collections::BTreeMap;

use super::explain::{format_bytes, format_ns};
use super::{Command, CostModel, Lever, Program, Reason};
use crate::graph::Graph;
use crate::tensor::{NodeId, ValueId, plural};

/// What is known of a value while commands are gone through.
#[derive(Clone, Copy, Debug, Default)]
struct Absence {
    /// The command that freed it, and the last node that used it before.
    freed: Option<(usize, Option<NodeId>)>,
    last_user: Option<NodeId>,
    /// It was copied to the host, which is charged to the first fetch.
    offloaded: bool,
}

/// One reason for each node that runs again and each value that is fetched, in the order of the commands.
pub(super) fn of_program(number: usize, program: &Program, graph: &Graph, costs: &CostModel) -> Vec<Reason> {
    let mut readers: BTreeMap<ValueId, Vec<(usize, NodeId)>> = BTreeMap::new();
    for (position, command) in program.commands.iter().enumerate() {
        if let Command::Dispatch { node, .. } = command {
            for &input in &graph.node(*node).inputs {
                readers.entry(graph.storage_root(input)).or_default().push((position, *node));
            }
        }
    }
    let next_user = |value: ValueId, position: usize| {
        let readers = readers.get(&value)?;
        readers.get(readers.partition_point(|&(at, _)| at <= position)).map(|&(_, node)| node)
    };
    // Values that are shown under another, persistent name.
    let mut named: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    for id in graph.value_ids().filter(|&id| graph.value(id).role.is_persistent()) {
        named.entry(graph.storage_root(id)).or_insert(id);
    }
    let mut values: BTreeMap<ValueId, Absence> = BTreeMap::new();
    let mut ran = vec![false; graph.nodes().len()];
    let mut reasons = Vec::new();
    for (position, command) in program.commands.iter().enumerate() {
        // Most nodes run once, and a time takes all of a node's launches to predict.
        let (value, lever, cost_ns) = match *command {
            Command::Free { value } | Command::Offload { value, .. } => {
                let known = values.entry(value).or_default();
                known.freed = Some((position, known.last_user));
                known.offloaded |= matches!(command, Command::Offload { .. });
                continue;
            }
            Command::Prefetch { value, .. } => {
                let size_bytes = graph.value(value).desc.size_bytes();
                let offloaded = std::mem::take(&mut values.entry(value).or_default().offloaded);
                let offload_ns = if offloaded { costs.offload_ns(size_bytes) } else { 0.0 };
                (Some(value), Lever::Offload, costs.prefetch_ns(size_bytes) + offload_ns)
            }
            Command::Dispatch { node: id, in_place, .. } => {
                let node = graph.node(id);
                let again = std::mem::replace(&mut ran[id.index()], true);
                let freed = |value: &ValueId| values.get(value).is_some_and(|known| known.freed.is_some());
                let missed = node.outputs.iter().copied().filter(freed);
                let value = missed.max_by_key(|&value| graph.value(value).desc.size_bytes()).filter(|_| again);
                for &input in &node.inputs {
                    values.entry(graph.storage_root(input)).or_default().last_user = Some(id);
                }
                for &output in &node.outputs {
                    values.entry(output).or_default().last_user = Some(id);
                }
                if let Some(input) = in_place {
                    let taken = values.entry(graph.storage_root(node.inputs[input])).or_default();
                    taken.freed = Some((position, taken.last_user));
                }
                (value, Lever::Recompute, value.map_or(0.0, |_| costs.node_ns(graph, id)))
            }
        };
        let Some(value) = value else { continue };
        let known = values.entry(value).or_default();
        let freed = known.freed.take();
        let size_bytes = graph.value(value).desc.size_bytes();
        let absent_commands = position - freed.map_or(0, |(at, _)| at);
        let name = graph.value(named.get(&value).copied().unwrap_or(value)).name.clone();
        let node_name = |id: NodeId| format!("{} ({})", graph.node(id).name, graph.node(id).op.name());
        let user = next_user(value, position).map_or_else(String::new, |id| format!(" for {}", node_name(id)));
        let since = match freed.and_then(|(_, user)| user) {
            Some(id) => format!("gone since {}", node_name(id)),
            None => "kept on the host".to_owned(),
        };
        let how = if lever == Lever::Recompute { "recomputed" } else { "fetched" };
        let text = format!(
            "{since}, {how}{user}: {} free for {}, for {}",
            format_bytes(size_bytes),
            plural(absent_commands, "command"),
            format_ns(cost_ns)
        );
        reasons.push(Reason {
            program: number as u32,
            command: position as u32,
            lever,
            name,
            size_bytes,
            absent_commands: absent_commands as u32,
            cost_ns: cost_ns.round() as u64,
            text,
        });
    }
    reasons
}

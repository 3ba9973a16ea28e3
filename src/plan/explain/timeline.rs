//! What is in transient memory when, read off a program's commands.

use std::collections::{BTreeMap, BTreeSet};

use super::super::{Allocation, ArenaRole, Command, Lever, Plan, Program};
use crate::graph::{Graph, Phase, Role};
use crate::tensor::{NodeId, ValueId};

/// What a block of memory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Content {
    Input,
    Activation,
    Gradient,
    Workspace,
    /// A value that came back from the host tier.
    Fetched,
}

/// What happens to a block's memory at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Freed,
    Offloaded,
    /// The output of an op that works in place reuses it.
    Reused,
    /// It is read back after the program.
    ReadBack,
}

/// A rectangle of transient memory over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// The value's name, or `workspace`.
    pub(super) name: String,
    /// The value; of a workspace, none.
    pub(super) value: Option<ValueId>,
    /// The layer that it belongs to; of a workspace, none.
    pub(super) layer: String,
    /// Shape and type, or the node whose workspace it is.
    pub(super) detail: String,
    pub(super) content: Content,
    /// It was there before, was dropped, and is recomputed.
    pub(super) recomputed: bool,
    pub(super) place: Allocation,
    /// First step.
    pub(super) start: usize,
    /// First step at which it is gone.
    pub(super) end: usize,
    pub(super) ended: End,
    /// Why it is recomputed or fetched.
    pub(super) reason: Option<String>,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Action {
    Upload,
    Run(Phase),
    Recompute,
    Offload,
    Fetch,
}

/// A command that takes time, or the upload of inputs before the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) action: Action,
    /// The layer that it belongs to.
    pub(super) layer: String,
    /// In words.
    pub(super) text: String,
    /// Its position in [`Program::commands`]; of the upload, none.
    pub(super) command: Option<usize>,
    /// Transient bytes in memory during it.
    pub(super) live_bytes: u64,
}

/// A program's run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Timeline {
    pub(super) steps: Vec<Step>,
    pub(super) blocks: Vec<Block>,
}

struct Replay<'a> {
    plan: &'a Plan,
    graph: &'a Graph,
    layers: BTreeSet<&'a str>,
    timeline: Timeline,
    /// Of the command at hand.
    position: Option<usize>,
    /// The block of each value that is in memory.
    live: BTreeMap<ValueId, usize>,
}

impl Timeline {
    /// Replays the program with this number. A plan that does not belong to its graph gives a picture of what can be
    /// made out.
    pub(super) fn of(plan: &Plan, number: usize, program: &Program, graph: &Graph) -> Timeline {
        let timeline = Timeline { steps: Vec::new(), blocks: Vec::new() };
        let layers = graph.nodes().iter().map(|node| node.name.as_str()).collect();
        let mut replay = Replay { plan, graph, layers, timeline, position: None, live: BTreeMap::new() };
        replay.begin("upload", "upload of inputs".to_owned(), Action::Upload);
        for (&value, &place) in &program.places {
            replay.make(value, place, None);
        }
        let mut reasons = BTreeMap::new();
        for reason in plan.reasons.iter().filter(|reason| reason.program as usize == number) {
            reasons.insert(reason.command as usize, reason.text.clone());
        }
        let mut seen = vec![false; graph.nodes().len()];
        for (position, command) in program.commands.iter().enumerate() {
            replay.position = Some(position);
            replay.command(command, reasons.remove(&position), &mut seen);
        }
        replay.finish()
    }
}

impl Replay<'_> {
    fn now(&self) -> usize {
        self.timeline.steps.len() - 1
    }

    fn begin(&mut self, layer: &str, text: String, action: Action) {
        let (layer, command) = (layer.to_owned(), self.position);
        self.timeline.steps.push(Step { action, layer, text, command, live_bytes: 0 });
    }

    fn is_transient(&self, place: Allocation) -> bool {
        self.plan.arenas.get(place.arena as usize).is_some_and(|arena| arena.role == ArenaRole::Transient)
    }

    fn name(&self, value: ValueId) -> String {
        self.graph.values().get(value.index()).map_or_else(|| format!("value {}", value.0), |value| value.name.clone())
    }

    fn layer(&self, value: ValueId) -> String {
        let producer = self.graph.values().get(value.index()).and_then(|value| value.producer);
        let node = producer.and_then(|node| self.graph.nodes().get(node.index()));
        node.map_or_else(|| self.layer_in(&self.name(value)).to_owned(), |node| node.name.clone())
    }

    /// The layer in the name of what no node makes, such as `grad.conv1.weight`: the first that is there, and of those the longest.
    fn layer_in<'n>(&self, name: &'n str) -> &'n str {
        let dots = || name.match_indices('.').map(|(dot, _)| dot);
        let starts = std::iter::once(0).chain(dots().map(|dot| dot + 1));
        let mut parts = starts.flat_map(|start| {
            let ends = dots().chain([name.len()]).filter(move |&end| end > start).collect::<Vec<_>>();
            ends.into_iter().rev().map(move |end| &name[start..end])
        });
        parts.find(|part| self.layers.contains(part)).unwrap_or(name)
    }

    /// Begins a block of a value, where its place is in transient memory.
    fn make(&mut self, value: ValueId, place: Allocation, again: Option<(Lever, Option<String>)>) {
        if !self.is_transient(place) {
            return;
        }
        let Some(known) = self.graph.values().get(value.index()) else { return };
        let phase = known.producer.and_then(|node| self.graph.nodes().get(node.index())).map(|node| node.phase);
        let content = match (&again, known.role, phase) {
            (Some((Lever::Offload, _)), ..) => Content::Fetched,
            (_, Role::Input, _) => Content::Input,
            (_, Role::Accumulator, _) | (_, _, Some(Phase::Backward | Phase::Update)) => Content::Gradient,
            _ => Content::Activation,
        };
        let (name, layer, detail) = (known.name.clone(), self.layer(value), known.desc.to_string());
        let recomputed = matches!(again, Some((Lever::Recompute, _)));
        let reason = again.and_then(|(_, reason)| reason);
        let (start, end, ended) = (self.now(), usize::MAX, End::ReadBack);
        self.live.insert(value, self.timeline.blocks.len());
        let value = Some(value);
        self.timeline.blocks.push(Block {
            name,
            value,
            layer,
            detail,
            content,
            recomputed,
            place,
            start,
            end,
            ended,
            reason,
        });
    }

    fn end(&mut self, value: ValueId, time: usize, ended: End) {
        if let Some(block) = self.live.remove(&value).and_then(|block| self.timeline.blocks.get_mut(block)) {
            (block.end, block.ended) = (time, ended);
        }
    }

    fn command(&mut self, command: &Command, reason: Option<String>, seen: &mut [bool]) {
        match command {
            Command::Free { value } => self.end(*value, self.now() + 1, End::Freed),
            Command::Offload { value, .. } => {
                let text = format!("offload {}", self.name(*value));
                self.begin(&self.layer(*value), text, Action::Offload);
                self.end(*value, self.now() + 1, End::Offloaded);
            }
            Command::Prefetch { value, to, .. } => {
                let text = format!("fetch {}", self.name(*value));
                self.begin(&self.layer(*value), text, Action::Fetch);
                self.make(*value, *to, Some((Lever::Offload, reason)));
            }
            Command::Dispatch { node, outputs, workspaces, in_place } => {
                self.dispatch(*node, outputs, workspaces, *in_place, reason.as_deref(), seen);
            }
        }
    }

    fn dispatch(
        &mut self,
        id: NodeId,
        outputs: &[Allocation],
        workspaces: &[Allocation],
        in_place: Option<usize>,
        reason: Option<&str>,
        seen: &mut [bool],
    ) {
        let graph = self.graph;
        let (Some(node), Some(seen)) = (graph.nodes().get(id.index()), seen.get_mut(id.index())) else { return };
        let again = std::mem::replace(seen, true);
        let action = if again { Action::Recompute } else { Action::Run(node.phase) };
        let verb = if again { "recompute " } else { "" };
        self.begin(&node.name, format!("{verb}{}: {}", node.name, node.op.name()), action);
        if let Some(&input) = in_place.and_then(|input| node.inputs.get(input)) {
            self.end(graph.storage_root(input), self.now(), End::Reused);
        }
        for (&value, &place) in node.outputs.iter().zip(outputs) {
            self.make(value, place, again.then(|| (Lever::Recompute, reason.map(str::to_owned))));
        }
        for &place in workspaces {
            if !self.is_transient(place) {
                continue;
            }
            self.timeline.blocks.push(Block {
                name: "workspace".to_owned(),
                value: None,
                layer: String::new(),
                detail: format!("of {}", node.name),
                content: Content::Workspace,
                recomputed: false,
                place,
                start: self.now(),
                end: self.now() + 1,
                ended: End::Freed,
                reason: None,
            });
        }
    }

    fn finish(mut self) -> Timeline {
        let steps = self.timeline.steps.len();
        for block in &mut self.timeline.blocks {
            block.end = block.end.min(steps);
            for step in self.timeline.steps.get_mut(block.start..block.end).into_iter().flatten() {
                step.live_bytes = step.live_bytes.saturating_add(block.place.size_bytes);
            }
        }
        self.timeline
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::toy::Chain;
    use super::super::super::{CostModel, Levers, Limits, Request, plan};
    use super::*;

    #[test]
    fn live_bytes_are_those_of_the_plan() {
        let chain = Chain { layers: 5, width: 30, mixes_samples: false };
        let (levers, limits, costs) = (Levers::default(), Limits::default(), CostModel::default());
        let request = Request { batch: 12, budget_bytes: None, micro_batches: Some(3), levers, limits, costs };
        let planned = plan(&chain, &request).expect("a plan");
        for (number, (program, graph)) in planned.plan.programs.iter().zip(&planned.graphs).enumerate() {
            let timeline = Timeline::of(&planned.plan, number, program, graph);
            let peak = timeline.steps.iter().map(|step| step.live_bytes).max();
            assert_eq!(peak, Some(program.live_peak_bytes));
            let dispatched = program.commands.iter().filter(|c| matches!(c, Command::Dispatch { .. })).count();
            assert_eq!(timeline.steps.len(), dispatched + 1);
            for (i, block) in timeline.blocks.iter().enumerate() {
                assert!(block.start < block.end, "{block:?}");
                let overlaps = timeline.blocks[..i].iter().any(|other| {
                    let (a, b) = (block.place, other.place);
                    a.arena == b.arena
                        && a.offset_bytes < b.offset_bytes + b.size_bytes
                        && b.offset_bytes < a.offset_bytes + a.size_bytes
                        && block.start < other.end
                        && other.start < block.end
                });
                assert!(!overlaps, "{block:?}");
            }
        }
    }

    #[test]
    fn layers_are_found_in_names() {
        let chain = Chain { layers: 3, width: 30, mixes_samples: false };
        let (levers, limits, costs) = (Levers::default(), Limits::default(), CostModel::default());
        let request = Request { batch: 4, budget_bytes: None, micro_batches: Some(1), levers, limits, costs };
        let planned = plan(&chain, &request).expect("a plan");
        let (plan, graph) = (&planned.plan, &planned.graphs[0]);
        let timeline = Timeline { steps: Vec::new(), blocks: Vec::new() };
        let layers = ["block.0", "block.0.conv1", "fc"].into();
        let replay = Replay { plan, graph, layers, timeline, position: None, live: BTreeMap::new() };
        for (name, layer) in [
            ("grad.block.0.conv1.weight", "block.0.conv1"),
            ("block.0.scale.exp_avg", "block.0"),
            ("fc.weight.exp_avg_sq", "fc"),
            ("fc", "fc"),
            ("hyper", "hyper"),
            ("grad.fcs.weight", "grad.fcs.weight"),
        ] {
            assert_eq!(replay.layer_in(name), layer, "{name}");
        }
    }
}

//! From when to when each piece of memory is needed under a given sequence of events.

use std::collections::BTreeMap;

use super::placement::Interval;
use crate::graph::{Graph, Role};
use crate::plan::candidate::storage::{Kind, Storage};
use crate::plan::schedule::Event;
use crate::tensor::{NodeId, ValueId};

/// Who uses a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Values, each reusing the block of the one before it, with the time at which each starts.
    Values(Vec<(usize, ValueId)>),
    /// Workspace of a node, by its number.
    Workspace(NodeId, usize),
}

/// Memory that is needed from one time to another. Time 0 is the upload of inputs; event `p` is at time `p + 1`.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// First time.
    pub(crate) start: usize,
    /// First time at which it is no longer needed.
    pub(crate) end: usize,
    /// Bytes, rounded up.
    pub(crate) size_bytes: u64,
    /// Who uses it.
    pub(crate) owner: Owner,
}

impl From<&Block> for Interval {
    fn from(block: &Block) -> Self {
        Interval { start: block.start, end: block.end, size_bytes: block.size_bytes }
    }
}

/// An event with the memory that it takes and frees.
#[derive(Clone, Debug, Default)]
pub(crate) struct Step {
    /// The input whose memory a node's output 0 reuses.
    pub(crate) in_place: Option<usize>,
    /// The block of each output, or of the value that comes back; none for what is persistent on the device.
    pub(crate) outputs: Vec<Option<usize>>,
    /// The blocks of a node's workspaces.
    pub(crate) workspaces: Vec<usize>,
    /// Roots whose memory is free afterwards, and whether they are copied to the host tier before.
    pub(crate) ends: Vec<(ValueId, bool)>,
}

/// All blocks of a graph under one sequence of events.
#[derive(Clone, Debug)]
pub(crate) struct Lifetimes {
    /// The blocks.
    pub(crate) blocks: Vec<Block>,
    /// The block of each input.
    pub(crate) inputs: Vec<(ValueId, usize)>,
    /// One per time: the upload of inputs, then the events.
    pub(crate) steps: Vec<Step>,
    /// Most bytes needed at one time.
    pub(crate) peak_bytes: u64,
    /// The first such time.
    pub(crate) peak_time: usize,
}

/// A value from when it is made or fetched to its last use before that happens again.
#[derive(Clone, Copy, Debug)]
struct Instance {
    root: ValueId,
    start: usize,
    last: usize,
    /// Copied to the host after its last use.
    offloaded: bool,
    /// It comes back from the host afterwards.
    fetched_next: bool,
}

impl Lifetimes {
    /// Lifetimes under this sequence. Views are not part of it.
    pub(crate) fn of(graph: &Graph, storage: &Storage, events: &[Event]) -> Lifetimes {
        let end_of_program = events.len() + 1;
        let (instances, begun) = instances(graph, storage, events);
        let mut blocks: Vec<Block> = Vec::new();
        let mut block_of = vec![usize::MAX; instances.len()];
        let mut current = vec![usize::MAX; graph.values().len()];
        let mut reused = vec![false; instances.len()];
        let mut steps = vec![Step::default(); end_of_program];
        for (time, step) in steps.iter_mut().enumerate() {
            let node = match time.checked_sub(1).map(|position| events[position]) {
                Some(Event::Run(id)) => Some(id),
                _ => None,
            };
            if let Some(id) = node {
                step.outputs = vec![None; graph.node(id).outputs.len()];
                let ends = |root: ValueId| {
                    let instance: Option<&Instance> = instances.get(current[root.index()]);
                    instance.is_some_and(|instance| instance.last == time && !instance.fetched_next)
                };
                step.in_place =
                    storage.in_place_reuses(graph, id).take(2).find(|&(_, root)| ends(root)).map(|(input, _)| input);
            } else {
                step.outputs = vec![None; begun[time].len()];
            }
            let shared = step.in_place.zip(node).map(|(input, id)| {
                let from = current[storage.root(graph.node(id).inputs[input]).index()];
                reused[from] = true;
                block_of[from]
            });
            for &(slot, number) in &begun[time] {
                let Instance { root, start, last, .. } = instances[number];
                let block = match shared {
                    Some(block) if slot == 0 => block,
                    _ => {
                        let owner = Owner::Values(Vec::new());
                        blocks.push(Block { start, end: 0, size_bytes: storage.size_bytes(root), owner });
                        blocks.len() - 1
                    }
                };
                blocks[block].end = (last + 1).min(end_of_program);
                if let Owner::Values(values) = &mut blocks[block].owner {
                    values.push((start, root));
                }
                block_of[number] = block;
                current[root.index()] = number;
                step.outputs[slot] = Some(block);
            }
            let Some(id) = node else { continue };
            for (number, &size_bytes) in storage.workspaces[id.index()].iter().enumerate() {
                step.workspaces.push(blocks.len());
                blocks.push(Block { start: time, end: time + 1, size_bytes, owner: Owner::Workspace(id, number) });
            }
        }
        for (instance, reused) in instances.iter().zip(reused) {
            if !reused && instance.last < end_of_program {
                steps[instance.last].ends.push((instance.root, instance.offloaded));
            }
        }
        let (peak_bytes, peak_time) = peak(&blocks, end_of_program);
        let inputs = begun[0].iter().map(|&(_, number)| (instances[number].root, block_of[number])).collect();
        Lifetimes { blocks, inputs, steps, peak_bytes, peak_time }
    }

    /// Values that have no memory outside of a run, from when they are first copied to the host tier until they last come
    /// back from it.
    pub(crate) fn moved(&self, storage: &Storage, events: &[Event]) -> Vec<(ValueId, Interval)> {
        let mut moved: BTreeMap<ValueId, Interval> = BTreeMap::new();
        for (time, step) in self.steps.iter().enumerate() {
            if let Some(&Event::Fetch(value)) = time.checked_sub(1).and_then(|position| events.get(position))
                && let Some(interval) = moved.get_mut(&value)
            {
                interval.end = time;
            }
            for &(value, _) in step.ends.iter().filter(|&&(_, offloaded)| offloaded) {
                if matches!(storage.kind(value), Kind::Transient { .. }) {
                    let size_bytes = storage.size_bytes(value);
                    moved.entry(value).or_insert(Interval { start: time, end: time + 1, size_bytes });
                }
            }
        }
        moved.into_iter().collect()
    }
}

/// The instances of all values that take memory of a run, and for each time those that begin, each with the output that
/// it is.
fn instances(graph: &Graph, storage: &Storage, events: &[Event]) -> (Vec<Instance>, Vec<Vec<(usize, usize)>>) {
    let mut instances: Vec<Instance> = Vec::new();
    let mut begun = vec![Vec::new(); events.len() + 1];
    let mut current = vec![usize::MAX; graph.values().len()];
    // Whether the host tier holds what the value is now.
    let mut on_host: Vec<bool> = graph.value_ids().map(|id| matches!(storage.kind(id), Kind::Hosted(_))).collect();
    let mut begin = |instances: &mut Vec<Instance>, current: &mut [usize], root: ValueId, time: usize, slot: usize| {
        if !matches!(storage.kind(root), Kind::Persistent(_)) {
            current[root.index()] = instances.len();
            begun[time].push((slot, instances.len()));
            instances.push(Instance { root, start: time, last: time, offloaded: false, fetched_next: false });
        }
    };
    let roots = storage.root_ids().filter(|&root| graph.value(root).role == Role::Input);
    for (slot, root) in roots.enumerate() {
        begin(&mut instances, &mut current, root, 0, slot);
    }
    for (position, &event) in events.iter().enumerate() {
        let time = position + 1;
        match event {
            Event::Run(id) => {
                let node = graph.node(id);
                for &input in &node.inputs {
                    if let Some(instance) = instances.get_mut(current[storage.root(input).index()]) {
                        instance.last = time;
                    }
                }
                for &input in node.op.mutates() {
                    on_host[storage.root(node.inputs[input]).index()] = false;
                }
                for (slot, &output) in node.outputs.iter().enumerate() {
                    // A value that was recomputed is what it was.
                    if matches!(storage.kind(output), Kind::Hosted(_)) {
                        on_host[output.index()] = false;
                    }
                    begin(&mut instances, &mut current, output, time, slot);
                }
            }
            Event::Fetch(root) => {
                let was_on_host = std::mem::replace(&mut on_host[root.index()], true);
                if let Some(earlier) = instances.get_mut(current[root.index()]) {
                    earlier.fetched_next = true;
                    earlier.offloaded |= !was_on_host;
                }
                begin(&mut instances, &mut current, root, time, 0);
            }
        }
    }
    for root in storage.root_ids() {
        match storage.kind(root) {
            Kind::Transient { to_end: true } => instances[current[root.index()]].last = events.len() + 1,
            Kind::Hosted(_) if !on_host[root.index()] => instances[current[root.index()]].offloaded = true,
            _ => {}
        }
    }
    (instances, begun)
}

fn peak(blocks: &[Block], end_of_program: usize) -> (u64, usize) {
    let mut grown = vec![0_u64; end_of_program + 1];
    let mut shrunk = vec![0_u64; end_of_program + 1];
    for block in blocks {
        grown[block.start] += block.size_bytes;
        shrunk[block.end] += block.size_bytes;
    }
    let (mut live, mut most) = (0, (0, 0));
    for time in 0..end_of_program {
        live = live + grown[time] - shrunk[time];
        if live > most.0 {
            most = (live, time);
        }
    }
    most
}

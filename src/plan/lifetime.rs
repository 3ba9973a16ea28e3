//! Which values share memory, and from when to when each piece of memory is needed under a given sequence of events.

use std::collections::{BTreeMap, BTreeSet};

use super::placement::Interval;
use crate::error::PlanError;
use crate::graph::{Graph, Role};
use crate::tensor::{NodeId, TensorDesc, ValueId};

/// What helps where a value that depends on the samples is too large, if the request allows it.
pub(super) const FEWER_SAMPLES: &str = "a smaller batch or more micro-batches";

/// Where the memory of a storage root comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Lives across programs, under the name of this value: the root itself, or a view of it.
    Persistent(ValueId),
    /// As persistent, but in the host tier; on the device only where it is used.
    Hosted(ValueId),
    /// Lives within one run of the program.
    Transient {
        /// Read back when the program ends, so it is never freed.
        to_end: bool,
    },
}

/// The memory behind the values of a graph, before it is known when it is needed.
#[derive(Clone, Debug)]
pub(super) struct Storage {
    roots: Vec<ValueId>,
    kinds: Vec<Kind>,
    sizes: Vec<u64>,
    /// Workspaces of each node, rounded up.
    pub(super) workspaces: Vec<Vec<u64>>,
}

impl Storage {
    /// Bytes of the largest value or workspace, rounded up, if each can be bound and fits an arena.
    pub(super) fn largest_bytes(&self, graph: &Graph, limit_bytes: u64, most_bytes: u64) -> Result<u64, PlanError> {
        let mut largest_bytes = 0;
        let mut note = |name: &str, size_bytes: u64, rounded_bytes: u64, advice: &'static str| {
            if size_bytes > limit_bytes || rounded_bytes > most_bytes {
                return Err(PlanError::Binding {
                    value: name.to_owned(),
                    size_bytes,
                    limit_bytes,
                    advice: advice.to_owned(),
                });
            }
            largest_bytes = rounded_bytes.max(largest_bytes);
            Ok(())
        };
        for root in self.root_ids() {
            let (named, advice) = match self.kind(root) {
                Kind::Persistent(named) | Kind::Hosted(named) => (named, "smaller layers, or another device"),
                Kind::Transient { .. } => (root, FEWER_SAMPLES),
            };
            let value = graph.value(named);
            note(&value.name, value.desc.size_bytes(), self.size_bytes(root), advice)?;
        }
        for (node, workspaces) in graph.nodes().iter().zip(&self.workspaces) {
            for &bytes in workspaces {
                note(&format!("workspace of {}", node.name), bytes, bytes, FEWER_SAMPLES)?;
            }
        }
        Ok(largest_bytes)
    }

    /// Resolves views and rounds sizes up to `alignment_bytes`. All persistent values are on the device.
    pub(super) fn of(graph: &Graph, alignment_bytes: u64) -> Result<Storage, PlanError> {
        let rounded = |size_bytes: u64| size_bytes.max(1).next_multiple_of(alignment_bytes);
        let roots: Vec<_> = graph.value_ids().map(|id| graph.storage_root(id)).collect();
        let sizes = graph.values().iter().map(|value| rounded(value.desc.size_bytes())).collect();
        let mut kinds = Vec::with_capacity(roots.len());
        for id in graph.value_ids() {
            let value = graph.value(id);
            if value.producer.is_none() && matches!(value.role, Role::Intermediate | Role::Output) {
                return Err(PlanError::Invalid(format!("`{}` has no node that makes it", value.name)));
            }
            kinds.push(match value.role {
                role if role.is_persistent() => Kind::Persistent(id),
                role => Kind::Transient { to_end: role == Role::Output },
            });
        }
        for (id, &root) in graph.value_ids().zip(&roots) {
            if id == root {
                continue;
            }
            match (kinds[id.index()], kinds[root.index()]) {
                (Kind::Persistent(_), Kind::Transient { to_end: false }) if graph.value(root).role != Role::Input => {
                    kinds[root.index()] = Kind::Persistent(id);
                }
                (Kind::Persistent(_), _) => {
                    return Err(PlanError::Invalid(format!(
                        "`{}` must outlive the step, but it is a view of `{}`, which has a place of its own",
                        graph.value(id).name,
                        graph.value(root).name
                    )));
                }
                (Kind::Transient { to_end: true }, Kind::Transient { .. }) => {
                    kinds[root.index()] = Kind::Transient { to_end: true };
                }
                (Kind::Transient { .. } | Kind::Hosted(_), _) => {}
            }
        }
        let workspaces = graph
            .nodes()
            .iter()
            .map(|node| {
                let descs = |ids: &[ValueId]| ids.iter().map(|&id| graph.value(id).desc.clone()).collect::<Vec<_>>();
                let sizes = node.op.workspaces(&descs(&node.inputs), &descs(&node.outputs));
                sizes.into_iter().map(rounded).collect()
            })
            .collect();
        Ok(Storage { roots, kinds, sizes, workspaces })
    }

    /// The same with the persistent values of these names in the host tier.
    pub(super) fn hosting(&self, graph: &Graph, names: &BTreeSet<String>) -> Storage {
        let mut storage = self.clone();
        for kind in &mut storage.kinds {
            if let Kind::Persistent(named) | Kind::Hosted(named) = *kind {
                let hosted = names.contains(&graph.value(named).name);
                *kind = if hosted { Kind::Hosted(named) } else { Kind::Persistent(named) };
            }
        }
        storage
    }

    /// The value whose memory `id` shares.
    pub(super) fn root(&self, id: ValueId) -> ValueId {
        self.roots[id.index()]
    }

    /// Where the memory of a root comes from.
    pub(super) fn kind(&self, root: ValueId) -> Kind {
        self.kinds[root.index()]
    }

    /// Bytes of a value, rounded up.
    pub(super) fn size_bytes(&self, id: ValueId) -> u64 {
        self.sizes[id.index()]
    }

    /// All storage roots.
    pub(super) fn root_ids(&self) -> impl Iterator<Item = ValueId> + '_ {
        self.roots.iter().enumerate().filter(|(i, root)| *i == root.index()).map(|(_, &root)| root)
    }

    /// Bytes that a root takes from the memory of a single run: none if it is persistent.
    pub(super) fn transient_bytes(&self, root: ValueId) -> u64 {
        match self.kind(root) {
            Kind::Persistent(_) => 0,
            Kind::Hosted(_) | Kind::Transient { .. } => self.size_bytes(root),
        }
    }

    /// The inputs whose memory output 0 of a node may take over, with their roots, if they end there.
    pub(super) fn in_place_reuses<'a>(
        &'a self,
        graph: &'a Graph,
        node: NodeId,
    ) -> impl Iterator<Item = (usize, ValueId)> + 'a {
        let node = graph.node(node);
        node.op.in_place().iter().filter_map(move |&(input, output)| {
            let (&source, &target) = (node.inputs.get(input)?, node.outputs.get(output)?);
            let root = self.root(source);
            let bytes = |id: ValueId| TensorDesc::size_bytes(&graph.value(id).desc);
            let fits = output == 0
                && self.kind(root) == (Kind::Transient { to_end: false })
                && matches!(self.kind(target), Kind::Transient { .. })
                && bytes(root) == bytes(target)
                && !node.op.mutates().contains(&input)
                && node.inputs.iter().filter(|&&id| self.root(id) == root).count() == 1;
            fits.then_some((input, root))
        })
    }
}

/// What happens at one time of a program's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A node runs, for the first time or again.
    Run(NodeId),
    /// A root comes back from the host tier.
    Fetch(ValueId),
}

/// Who uses a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// Values, each taking the block over from the one before it, with the time at which each starts.
    Values(Vec<(usize, ValueId)>),
    /// Workspace of a node, by its number.
    Workspace(NodeId, usize),
}

/// Memory that is needed from one time to another. Time 0 is the upload of inputs; event `p` is at time `p + 1`.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// First time.
    pub(super) start: usize,
    /// First time at which it is no longer needed.
    pub(super) end: usize,
    /// Bytes, rounded up.
    pub(super) size_bytes: u64,
    /// Who uses it.
    pub(super) owner: Owner,
}

impl From<&Block> for Interval {
    fn from(block: &Block) -> Self {
        Interval { start: block.start, end: block.end, size_bytes: block.size_bytes }
    }
}

/// An event with the memory that it takes and frees.
#[derive(Clone, Debug, Default)]
pub(super) struct Step {
    /// The input that a node's output 0 takes over.
    pub(super) in_place: Option<usize>,
    /// The block of each output, or of the value that comes back; none for what is persistent on the device.
    pub(super) outputs: Vec<Option<usize>>,
    /// The blocks of a node's workspaces.
    pub(super) workspaces: Vec<usize>,
    /// Roots whose memory is free afterwards, and whether they are copied to the host tier before.
    pub(super) ends: Vec<(ValueId, bool)>,
}

/// All blocks of a graph under one sequence of events.
#[derive(Clone, Debug)]
pub(super) struct Lifetimes {
    /// The blocks.
    pub(super) blocks: Vec<Block>,
    /// The block of each input.
    pub(super) inputs: Vec<(ValueId, usize)>,
    /// One per time: the upload of inputs, then the events.
    pub(super) steps: Vec<Step>,
    /// Most bytes needed at one time.
    pub(super) peak_bytes: u64,
    /// The first such time.
    pub(super) peak_time: usize,
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
    pub(super) fn of(graph: &Graph, storage: &Storage, events: &[Event]) -> Lifetimes {
        let end_of_program = events.len() + 1;
        let (instances, begun) = instances(graph, storage, events);
        let mut blocks: Vec<Block> = Vec::new();
        let mut block_of = vec![usize::MAX; instances.len()];
        let mut current = vec![usize::MAX; graph.values().len()];
        let mut taken_over = vec![false; instances.len()];
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
                taken_over[from] = true;
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
        for (instance, taken) in instances.iter().zip(taken_over) {
            if !taken && instance.last < end_of_program {
                steps[instance.last].ends.push((instance.root, instance.offloaded));
            }
        }
        let (peak_bytes, peak_time) = peak(&blocks, end_of_program);
        let inputs = begun[0].iter().map(|&(_, number)| (instances[number].root, block_of[number])).collect();
        Lifetimes { blocks, inputs, steps, peak_bytes, peak_time }
    }

    /// Values that have no memory outside of a run, from when they are first copied to the host tier until they last come
    /// back from it.
    pub(super) fn moved(&self, storage: &Storage, events: &[Event]) -> Vec<(ValueId, Interval)> {
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

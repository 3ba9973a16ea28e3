//! Which values share memory, and from when to when each piece of memory is needed under a given order of nodes.

use std::collections::BTreeMap;

use crate::error::PlanError;
use crate::graph::{Graph, Role};
use crate::tensor::{NodeId, TensorDesc, ValueId};

/// Where the memory of a storage root comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Lives across programs, under the name of this value: the root itself, or a view of it.
    Persistent(ValueId),
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
    /// Resolves views and rounds sizes up to `alignment_bytes`.
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
                (Kind::Transient { .. }, _) => {}
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
            Kind::Transient { .. } => self.size_bytes(root),
        }
    }

    /// The input whose memory output 0 of the node may take over, where `dies` says whether this node is the last user
    /// of a root.
    pub(super) fn takeover(&self, graph: &Graph, node: NodeId, dies: impl Fn(ValueId) -> bool) -> Option<usize> {
        let node = graph.node(node);
        node.op.in_place().iter().find_map(|&(input, output)| {
            let (&source, &target) = (node.inputs.get(input)?, node.outputs.get(output)?);
            let root = self.root(source);
            let bytes = |id: ValueId| TensorDesc::size_bytes(&graph.value(id).desc);
            let fits = output == 0
                && self.kind(root) == (Kind::Transient { to_end: false })
                && matches!(self.kind(target), Kind::Transient { .. })
                && bytes(root) == bytes(target)
                && !node.op.mutates().contains(&input)
                && node.inputs.iter().filter(|&&id| self.root(id) == root).count() == 1
                && dies(root);
            fits.then_some(input)
        })
    }
}

/// Who uses a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// Values, each taking the block over from the one before it, with the time at which each starts.
    Values(Vec<(usize, ValueId)>),
    /// Workspace of a node, by its number.
    Workspace(NodeId, usize),
}

/// Memory that is needed from one time to another. Time 0 is the upload of inputs; the node at position `p` of the
/// order runs at time `p + 1`.
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

/// All blocks of a graph under one order of its nodes.
#[derive(Clone, Debug)]
pub(super) struct Lifetimes {
    /// The blocks.
    pub(super) blocks: Vec<Block>,
    /// For each node that works in place, the input it takes over.
    pub(super) in_place: BTreeMap<NodeId, usize>,
    /// For each time, the roots whose memory is free after it.
    pub(super) frees: Vec<Vec<ValueId>>,
    /// Most bytes needed at one time.
    pub(super) peak_bytes: u64,
    /// The first such time.
    pub(super) peak_time: usize,
}

impl Lifetimes {
    /// Lifetimes when the nodes run in this order. Views are not part of the order.
    pub(super) fn of(graph: &Graph, storage: &Storage, order: &[NodeId]) -> Lifetimes {
        let mut last_use = vec![0; graph.values().len()];
        for (position, &node) in order.iter().enumerate() {
            for &id in graph.node(node).inputs.iter().chain(&graph.node(node).outputs) {
                last_use[storage.root(id).index()] = position + 1;
            }
        }
        let end_of_program = order.len() + 1;
        let mut blocks: Vec<Block> = Vec::new();
        let mut block_of = vec![usize::MAX; graph.values().len()];
        let mut frees = vec![Vec::new(); end_of_program];
        let mut in_place = BTreeMap::new();
        let mut open = |blocks: &mut Vec<Block>, block_of: &mut [usize], root: ValueId, time: usize| {
            let Kind::Transient { to_end } = storage.kind(root) else { return };
            let last = last_use[root.index()];
            if block_of[root.index()] == usize::MAX {
                block_of[root.index()] = blocks.len();
                let owner = Owner::Values(Vec::new());
                blocks.push(Block { start: time, end: 0, size_bytes: storage.size_bytes(root), owner });
            }
            let block = &mut blocks[block_of[root.index()]];
            block.end = if to_end { end_of_program } else { last + 1 };
            if let Owner::Values(values) = &mut block.owner {
                values.push((time, root));
            }
            if !to_end {
                frees[last].push(root);
            }
        };
        for root in storage.root_ids().filter(|&root| graph.value(root).role == Role::Input) {
            open(&mut blocks, &mut block_of, root, 0);
        }
        let mut taken_over = Vec::new();
        for (position, &id) in order.iter().enumerate() {
            let time = position + 1;
            let node = graph.node(id);
            if let Some(input) = storage.takeover(graph, id, |root| last_use[root.index()] == time) {
                let root = storage.root(node.inputs[input]);
                block_of[node.outputs[0].index()] = block_of[root.index()];
                taken_over.push((time, root));
                in_place.insert(id, input);
            }
            for &output in &node.outputs {
                open(&mut blocks, &mut block_of, output, time);
            }
            for (number, &size_bytes) in storage.workspaces[id.index()].iter().enumerate() {
                blocks.push(Block { start: time, end: time + 1, size_bytes, owner: Owner::Workspace(id, number) });
            }
        }
        for (time, root) in taken_over {
            frees[time].retain(|&freed| freed != root);
        }
        let (peak_bytes, peak_time) = peak(&blocks, end_of_program);
        Lifetimes { blocks, in_place, frees, peak_bytes, peak_time }
    }
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

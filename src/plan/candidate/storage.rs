//! Which values share memory, how much each takes, and whether it outlives a run.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::error::PlanError;
use crate::graph::{Graph, Role};
use crate::ops::workspaces;
use crate::tensor::{NodeId, TensorDesc, ValueId};

/// What helps where a value that depends on the samples is too large, if the request allows it.
pub(crate) const FEWER_SAMPLES: &str = "a smaller batch or more micro-batches";

/// Where the memory of a storage root comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
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
pub(crate) struct Storage {
    roots: Arc<[ValueId]>,
    kinds: Vec<Kind>,
    sizes: Arc<[u64]>,
    /// Workspaces of each node, rounded up.
    pub(crate) workspaces: Arc<[Vec<u64>]>,
}

impl Storage {
    /// Bytes of the largest value or workspace, rounded up, if each can be bound and fits an arena.
    pub(crate) fn largest_bytes(&self, graph: &Graph, limit_bytes: u64, most_bytes: u64) -> Result<u64, PlanError> {
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
        for (node, workspaces) in graph.nodes().iter().zip(&*self.workspaces) {
            for &bytes in workspaces {
                note(&format!("workspace of {}", node.name), bytes, bytes, FEWER_SAMPLES)?;
            }
        }
        Ok(largest_bytes)
    }

    /// Resolves views and rounds sizes up to `alignment_bytes`; workspaces are those for these threads. All persistent values are on the device.
    pub(crate) fn of(graph: &Graph, alignment_bytes: u64, threads: Option<usize>) -> Result<Storage, PlanError> {
        let rounded = |size_bytes: u64| size_bytes.max(1).next_multiple_of(alignment_bytes);
        let roots: Arc<[_]> = graph.value_ids().map(|id| graph.storage_root(id)).collect();
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
        for (id, &root) in graph.value_ids().zip(&*roots) {
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
                let sizes = workspaces(&*node.op, &descs(&node.inputs), &descs(&node.outputs), threads);
                sizes.into_iter().map(rounded).collect()
            })
            .collect();
        Ok(Storage { roots, kinds, sizes, workspaces })
    }

    /// The same with the persistent values of these names in the host tier; all else is shared.
    pub(crate) fn hosting(&self, graph: &Graph, names: &BTreeSet<String>) -> Storage {
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
    pub(crate) fn root(&self, id: ValueId) -> ValueId {
        self.roots[id.index()]
    }

    /// Where the memory of a root comes from.
    pub(crate) fn kind(&self, root: ValueId) -> Kind {
        self.kinds[root.index()]
    }

    /// Bytes of a value, rounded up.
    pub(crate) fn size_bytes(&self, id: ValueId) -> u64 {
        self.sizes[id.index()]
    }

    /// All storage roots.
    pub(crate) fn root_ids(&self) -> impl Iterator<Item = ValueId> + '_ {
        self.roots.iter().enumerate().filter(|(i, root)| *i == root.index()).map(|(_, &root)| root)
    }

    /// Bytes that a root takes from the memory of a single run: none if it is persistent.
    pub(crate) fn transient_bytes(&self, root: ValueId) -> u64 {
        match self.kind(root) {
            Kind::Persistent(_) => 0,
            Kind::Hosted(_) | Kind::Transient { .. } => self.size_bytes(root),
        }
    }

    /// The inputs whose memory output 0 of a node may reuse, with their roots, if they end there.
    pub(crate) fn in_place_reuses<'a>(
        &'a self,
        graph: &'a Graph,
        node: NodeId,
    ) -> impl Iterator<Item = (usize, ValueId)> + 'a {
        let node = graph.node(node);
        node.op.in_place().iter().filter_map(move |&(input, output)| {
            let (&source, &target) = (node.inputs.get(input)?, node.outputs.get(output)?);
            let root = self.root(source);
            let bytes = |id: ValueId| TensorDesc::size_bytes(&graph.value(id).desc);
            let half = |id: ValueId| graph.value(id).desc.dtype.half();
            let fits = output == 0
                && self.kind(root) == (Kind::Transient { to_end: false })
                && matches!(self.kind(target), Kind::Transient { .. })
                && bytes(root) == bytes(target)
                && half(root) == half(target)
                && !node.op.mutates().contains(&input)
                && node.inputs.iter().filter(|&&id| self.root(id) == root).count() == 1;
            fits.then_some((input, root))
        })
    }
}

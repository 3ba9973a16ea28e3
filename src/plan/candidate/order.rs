//! The order in which nodes run: several are made, and the one with the lowest peak is kept.

use std::collections::BTreeSet;

use super::storage::{Kind, Storage};
use crate::graph::{Graph, Phase};
use crate::plan::layout::lifetime::Lifetimes;
use crate::plan::schedule::Event;
use crate::tensor::{NodeId, ValueId};

/// What must run before what. Views are left out: no kernel runs for them, and their memory is that of their root.
#[derive(Clone, Debug)]
struct Dependencies {
    before: Vec<Vec<usize>>,
    after: Vec<Vec<usize>>,
    runs: Vec<bool>,
}

impl Dependencies {
    /// Reads wait for the last write before them; a node that changes a value also waits for all reads of the old
    /// version.
    fn of(graph: &Graph, storage: &Storage) -> Dependencies {
        let count = graph.nodes().len();
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); count];
        let mut writer: Vec<Option<usize>> = vec![None; graph.values().len()];
        let mut readers: Vec<Vec<usize>> = vec![Vec::new(); graph.values().len()];
        let mut runs = vec![false; count];
        for (n, node) in graph.nodes().iter().enumerate() {
            if node.op.is_view() {
                continue;
            }
            runs[n] = true;
            for &input in &node.inputs {
                let root = storage.root(input).index();
                before[n].extend(writer[root]);
                readers[root].push(n);
            }
            for &input in node.op.mutates() {
                let root = storage.root(node.inputs[input]).index();
                before[n].extend(readers[root].drain(..).filter(|&reader| reader != n));
                writer[root] = Some(n);
            }
            for &output in &node.outputs {
                writer[output.index()] = Some(n);
            }
        }
        let mut after = vec![Vec::new(); count];
        for (n, earlier) in before.iter_mut().enumerate() {
            earlier.sort_unstable();
            earlier.dedup();
            for &e in &*earlier {
                after[e].push(n);
            }
        }
        Dependencies { before, after, runs }
    }

    /// Nodes in an order in which each follows all it depends on; `next` chooses among those that are ready.
    fn list(&self, next: impl Next) -> Vec<NodeId> {
        self.walk(&self.before, &self.after, next)
    }

    /// As `list`, from the last node to the first.
    fn list_reversed(&self, next: impl Next) -> Vec<NodeId> {
        let mut order = self.walk(&self.after, &self.before, next);
        order.reverse();
        order
    }

    fn walk(&self, before: &[Vec<usize>], after: &[Vec<usize>], mut next: impl Next) -> Vec<NodeId> {
        let mut missing: Vec<_> = before.iter().map(Vec::len).collect();
        (0..before.len()).filter(|&n| self.runs[n] && missing[n] == 0).for_each(|n| next.ready(n));
        let mut order = Vec::with_capacity(before.len());
        while let Some(node) = next.take() {
            order.push(NodeId(node as u32));
            for &follower in &after[node] {
                missing[follower] -= 1;
                if missing[follower] == 0 {
                    next.ready(follower);
                }
            }
        }
        order
    }
}

/// Chooses which node comes next.
trait Next {
    /// This node could be next from here on.
    fn ready(&mut self, node: usize);
    /// The next node, which is ready no more; `None` where none is.
    fn take(&mut self) -> Option<usize>;
}

/// The given order, but updates as soon as they can be where that is asked for.
#[derive(Default)]
struct Given<'a> {
    updates_first: Option<&'a Graph>,
    ready: BTreeSet<(bool, usize)>,
}

impl Next for Given<'_> {
    fn ready(&mut self, node: usize) {
        let waits = self.updates_first.is_some_and(|graph| graph.nodes()[node].phase != Phase::Update);
        self.ready.insert((waits, node));
    }

    fn take(&mut self) -> Option<usize> {
        self.ready.pop_first().map(|(_, node)| node)
    }
}

/// The memory that nodes take and free, for greedy choices.
struct Uses<'a> {
    graph: &'a Graph,
    storage: &'a Storage,
    /// Distinct roots that each node reads.
    reads: Vec<Vec<ValueId>>,
    /// Nodes that have yet to read each root.
    left: Vec<usize>,
    /// Roots that are in memory; used from the end to the start only.
    live: Vec<bool>,
}

impl<'a> Uses<'a> {
    fn of(graph: &'a Graph, storage: &'a Storage) -> Self {
        let mut left = vec![0; graph.values().len()];
        let mut reads = Vec::with_capacity(graph.nodes().len());
        for node in graph.nodes() {
            let roots: BTreeSet<_> = node.inputs.iter().map(|&id| storage.root(id)).collect();
            if !node.op.is_view() {
                roots.iter().for_each(|root| left[root.index()] += 1);
            }
            reads.push(roots.into_iter().collect::<Vec<_>>());
        }
        let live = graph.value_ids().map(|id| storage.kind(id) == Kind::Transient { to_end: true }).collect();
        Uses { graph, storage, reads, left, live }
    }

    fn outputs_bytes(&self, node: usize, counts: impl Fn(ValueId) -> bool) -> i128 {
        let outputs = self.graph.nodes()[node].outputs.iter().filter(|&&id| counts(id));
        outputs.map(|&id| i128::from(self.storage.transient_bytes(id))).sum()
    }

    /// Bytes in memory after the node less those before it.
    fn growth(&self, node: usize) -> i128 {
        let freed = self.reads[node].iter().filter(|root| {
            self.left[root.index()] == 1 && self.storage.kind(**root) == Kind::Transient { to_end: false }
        });
        self.outputs_bytes(node, |id| self.left[id.index()] > 0 || self.live[id.index()])
            - freed.map(|&root| i128::from(self.storage.transient_bytes(root))).sum::<i128>()
    }

    /// Runs a node; returns roots of which one node is left to read them.
    fn run(&mut self, node: usize) -> Vec<ValueId> {
        for root in &self.reads[node] {
            self.left[root.index()] -= 1;
        }
        self.reads[node].iter().copied().filter(|root| self.left[root.index()] == 1).collect()
    }

    /// Bytes in memory before the node less those after it, when what follows is settled.
    fn growth_reversed(&self, node: usize) -> i128 {
        let added = self.reads[node].iter().filter(|root| !self.live[root.index()]);
        added.map(|&root| i128::from(self.storage.transient_bytes(root))).sum::<i128>()
            - self.outputs_bytes(node, |id| self.live[id.index()])
    }

    /// As `run`; returns roots that were not in memory.
    fn run_reversed(&mut self, node: usize) -> Vec<ValueId> {
        for output in &self.graph.nodes()[node].outputs {
            self.live[output.index()] = false;
        }
        let reads = self.reads[node].iter().copied();
        reads.filter(|root| !std::mem::replace(&mut self.live[root.index()], true)).collect()
    }
}

/// Which of the nodes that are ready a greedy choice takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Greed {
    /// The one that takes least.
    Least,
    /// The same where that frees at least what it takes, else the first in the given order.
    Freeing,
    /// The one that takes least, from the last node to the first: each value is made as late as possible.
    Reversed,
}

/// Greedy choices. What the nodes that are ready take is kept, and found again only where it changes.
struct Greedy<'a> {
    uses: Uses<'a>,
    greed: Greed,
    /// Nodes that read each root.
    readers: Vec<Vec<usize>>,
    /// What each node that is ready takes.
    growth: Vec<Option<i128>>,
    /// The same in the order of choice: of equal ones the first in the order of the walk.
    by_growth: BTreeSet<(i128, isize)>,
    in_order: BTreeSet<usize>,
}

impl<'a> Greedy<'a> {
    fn of(graph: &'a Graph, storage: &'a Storage, greed: Greed) -> Self {
        let uses = Uses::of(graph, storage);
        let mut readers = vec![Vec::new(); graph.values().len()];
        for (n, roots) in uses.reads.iter().enumerate() {
            roots.iter().for_each(|root| readers[root.index()].push(n));
        }
        let growth = vec![None; graph.nodes().len()];
        Greedy { uses, greed, readers, growth, by_growth: BTreeSet::new(), in_order: BTreeSet::new() }
    }

    fn rank(&self, node: usize) -> isize {
        if self.greed == Greed::Reversed { -(node as isize) } else { node as isize }
    }

    fn set(&mut self, node: usize, growth: Option<i128>) {
        let rank = self.rank(node);
        if let Some(before) = std::mem::replace(&mut self.growth[node], growth) {
            self.by_growth.remove(&(before, rank));
        }
        self.by_growth.extend(growth.map(|growth| (growth, rank)));
    }

    fn weigh(&mut self, node: usize) {
        let growth = match self.greed {
            Greed::Reversed => self.uses.growth_reversed(node),
            Greed::Least | Greed::Freeing => self.uses.growth(node),
        };
        self.set(node, Some(growth));
    }
}

impl Next for Greedy<'_> {
    fn ready(&mut self, node: usize) {
        self.in_order.insert(node);
        self.weigh(node);
    }

    fn take(&mut self) -> Option<usize> {
        let &(growth, rank) = self.by_growth.first()?;
        let next = match self.greed {
            Greed::Freeing if growth > 0 => *self.in_order.first()?,
            _ => rank.unsigned_abs(),
        };
        self.in_order.remove(&next);
        self.set(next, None);
        let changed = match self.greed {
            Greed::Reversed => self.uses.run_reversed(next),
            Greed::Least | Greed::Freeing => self.uses.run(next),
        };
        for root in changed {
            for at in 0..self.readers[root.index()].len() {
                let reader = self.readers[root.index()][at];
                if self.growth[reader].is_some() {
                    self.weigh(reader);
                }
            }
        }
        Some(next)
    }
}

/// The best order found, and the most transient bytes that are live at once in it.
pub(super) fn best(graph: &Graph, storage: &Storage) -> (Vec<NodeId>, u64) {
    let dependencies = Dependencies::of(graph, storage);
    let greedy = |greed: Greed| Greedy::of(graph, storage, greed);
    let orders = [
        // As soon as a gradient is there, its update: the gradient is then free.
        dependencies.list(Given { updates_first: Some(graph), ..Given::default() }),
        dependencies.list(Given::default()),
        dependencies.list(greedy(Greed::Freeing)),
        dependencies.list(greedy(Greed::Least)),
        dependencies.list_reversed(greedy(Greed::Reversed)),
    ];

    let mut best: Option<(Vec<NodeId>, u64)> = None;
    let mut seen = BTreeSet::new();
    for order in orders {
        if !seen.insert(order.clone()) {
            continue;
        }
        let events: Vec<_> = order.iter().map(|&node| Event::Run(node)).collect();
        let live_bytes = Lifetimes::of(graph, storage, &events).peak_bytes;
        if best.as_ref().is_none_or(|&(_, least_bytes)| live_bytes < least_bytes) {
            best = Some((order, live_bytes));
        }
    }
    best.expect("bug: no order")
}

//! The order in which nodes run: several candidates, of which the one with the lowest peak is kept.

use std::collections::BTreeSet;

use super::lifetime::{Event, Lifetimes, Storage};
use crate::graph::{Graph, Phase};
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
        let mut before = vec![BTreeSet::new(); count];
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
        for (n, earlier) in before.iter().enumerate() {
            for &e in earlier {
                after[e].push(n);
            }
        }
        Dependencies { before: before.into_iter().map(|set| set.into_iter().collect()).collect(), after, runs }
    }

    /// Nodes in an order in which each follows all it depends on; `pick` chooses among those that could be next.
    fn list(&self, mut pick: impl FnMut(&BTreeSet<usize>) -> usize) -> Vec<NodeId> {
        self.walk(&self.before, &self.after, &mut pick)
    }

    /// As `list`, from the last node to the first.
    fn list_reversed(&self, mut pick: impl FnMut(&BTreeSet<usize>) -> usize) -> Vec<NodeId> {
        let mut order = self.walk(&self.after, &self.before, &mut pick);
        order.reverse();
        order
    }

    fn walk(
        &self,
        before: &[Vec<usize>],
        after: &[Vec<usize>],
        pick: &mut dyn FnMut(&BTreeSet<usize>) -> usize,
    ) -> Vec<NodeId> {
        let mut missing: Vec<_> = before.iter().map(Vec::len).collect();
        let mut ready: BTreeSet<_> = (0..before.len()).filter(|&n| self.runs[n] && missing[n] == 0).collect();
        let mut order = Vec::with_capacity(before.len());
        while !ready.is_empty() {
            let next = pick(&ready);
            ready.remove(&next);
            order.push(NodeId(next as u32));
            for &follower in &after[next] {
                missing[follower] -= 1;
                if missing[follower] == 0 {
                    ready.insert(follower);
                }
            }
        }
        order
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
        let live =
            graph.value_ids().map(|id| storage.kind(id) == super::lifetime::Kind::Transient { to_end: true }).collect();
        Uses { graph, storage, reads, left, live }
    }

    fn outputs_bytes(&self, node: usize, counts: impl Fn(ValueId) -> bool) -> i128 {
        let outputs = self.graph.nodes()[node].outputs.iter().filter(|&&id| counts(id));
        outputs.map(|&id| i128::from(self.storage.transient_bytes(id))).sum()
    }

    /// Bytes in memory after the node less those before it.
    fn growth(&self, node: usize) -> i128 {
        let freed = self.reads[node].iter().filter(|root| {
            self.left[root.index()] == 1
                && self.storage.kind(**root) == super::lifetime::Kind::Transient { to_end: false }
        });
        self.outputs_bytes(node, |id| self.left[id.index()] > 0 || self.live[id.index()])
            - freed.map(|&root| i128::from(self.storage.transient_bytes(root))).sum::<i128>()
    }

    fn run(&mut self, node: usize) {
        for root in &self.reads[node] {
            self.left[root.index()] -= 1;
        }
    }

    /// Bytes in memory before the node less those after it, when what follows is settled.
    fn growth_reversed(&self, node: usize) -> i128 {
        let added = self.reads[node].iter().filter(|root| !self.live[root.index()]);
        added.map(|&root| i128::from(self.storage.transient_bytes(root))).sum::<i128>()
            - self.outputs_bytes(node, |id| self.live[id.index()])
    }

    fn run_reversed(&mut self, node: usize) {
        for output in &self.graph.nodes()[node].outputs {
            self.live[output.index()] = false;
        }
        for root in &self.reads[node] {
            self.live[root.index()] = true;
        }
    }
}

/// The best order found, and its lifetimes.
pub(super) fn best(graph: &Graph, storage: &Storage) -> (Vec<NodeId>, Lifetimes) {
    let dependencies = Dependencies::of(graph, storage);
    let first = |ready: &BTreeSet<usize>| *ready.first().expect("bug: nothing is ready");
    let mut candidates = Vec::new();

    // As soon as a gradient is there, its update: the gradient is then free.
    candidates.push(dependencies.list(|ready| {
        let update = ready.iter().find(|&&n| graph.nodes()[n].phase == Phase::Update);
        update.copied().unwrap_or_else(|| first(ready))
    }));
    candidates.push(dependencies.list(first));
    // Whatever frees at least what it takes, else the given order.
    let mut uses = Uses::of(graph, storage);
    candidates.push(dependencies.list(|ready| {
        let (growth, least) = ready.iter().map(|&n| (uses.growth(n), n)).min().expect("bug: nothing is ready");
        let next = if growth <= 0 { least } else { first(ready) };
        uses.run(next);
        next
    }));
    // Whatever takes least.
    let mut uses = Uses::of(graph, storage);
    candidates.push(dependencies.list(|ready| {
        let (_, next) = ready.iter().map(|&n| (uses.growth(n), n)).min().expect("bug: nothing is ready");
        uses.run(next);
        next
    }));
    // The same from the end: each value is made as late as possible.
    let mut uses = Uses::of(graph, storage);
    candidates.push(dependencies.list_reversed(|ready| {
        let least = ready.iter().map(|&n| (uses.growth_reversed(n), std::cmp::Reverse(n))).min();
        let (_, std::cmp::Reverse(next)) = least.expect("bug: nothing is ready");
        uses.run_reversed(next);
        next
    }));

    let mut best: Option<(Vec<NodeId>, Lifetimes)> = None;
    let mut seen = BTreeSet::new();
    for order in candidates {
        if !seen.insert(order.clone()) {
            continue;
        }
        let events: Vec<_> = order.iter().map(|&node| Event::Run(node)).collect();
        let lifetimes = Lifetimes::of(graph, storage, &events);
        if best.as_ref().is_none_or(|(_, kept)| lifetimes.peak_bytes < kept.peak_bytes) {
            best = Some((order, lifetimes));
        }
    }
    best.expect("bug: no candidate order")
}

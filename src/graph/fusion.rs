//! Elementwise nodes join what they follow: one pass over memory in place of several, and nothing between in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Graph, Node, Phase, Role};
use crate::ops::elementwise::fused::Fused;
use crate::tensor::{NodeId, TensorDesc, ValueId};

/// Nodes that will be one.
#[derive(Clone)]
struct Draft {
    fused: Fused,
    inputs: Vec<ValueId>,
    /// The nodes by their places, the head first.
    members: Vec<usize>,
    /// The place of one of them, where the fused op will be.
    at: usize,
}

impl Graph {
    /// Joins elementwise nodes with the node whose output they alone read, where that is elementwise too or
    /// [takes an epilogue](crate::ops::Op::takes_epilogue), into a [`Fused`]. For graphs that are complete: a fused op has no backward.
    ///
    /// It makes the same bits, and takes no more memory but for small outputs beside the first: the next joins a node at the
    /// node's place if it can. If it must wait, the node waits for it unless more of what it reads ends there than it makes:
    /// then it is better off early.
    pub fn fuse_elementwise(&mut self) {
        let uses = Uses::of(self);
        // By the node whose output they make.
        let mut drafts: BTreeMap<usize, Draft> = BTreeMap::new();
        // Where each node will run.
        let mut places: Vec<usize> = (0..self.nodes.len()).collect();
        for last in 0..self.nodes.len() {
            let node = &self.nodes[last];
            if node.op.elementwise().is_none() || node.phase == Phase::Update {
                continue;
            }
            let producers = node.inputs.iter().filter_map(|&input| Some((self.value(input).producer?.index(), input)));
            let mut producers: Vec<_> = producers.collect();
            // Of several that it could follow, the latest moves least.
            producers.sort_unstable_by(|a, b| b.cmp(a));
            let joined = producers.into_iter().find_map(|(first, between)| {
                self.reads_alone(&uses, first, last, between).then_some(())?;
                let draft = drafts.get(&first).cloned().unwrap_or_else(|| self.draft(first));
                let at = self.place(&uses, &places, &draft, last, between)?;
                Some((first, self.joined(Draft { at, ..draft }, last, between)?))
            });
            if let Some((first, draft)) = joined {
                draft.members.iter().for_each(|&member| places[member] = draft.at);
                drafts.remove(&first);
                drafts.insert(last, draft);
            }
        }
        self.replace(drafts);
    }

    /// A fused op of one node.
    fn draft(&self, head: usize) -> Draft {
        let node = &self.nodes[head];
        let fused = Fused::new(node.op.clone(), node.inputs.len());
        Draft { fused, inputs: node.inputs.clone(), members: vec![head], at: head }
    }

    /// Whether the node `last` is all that follows the node `first`, which makes `between`.
    fn reads_alone(&self, uses: &Uses, first: usize, last: usize, between: ValueId) -> bool {
        let (before, after) = (&self.nodes[first], &self.nodes[last]);
        before.op.takes_epilogue()
            && before.phase == after.phase
            && before.outputs[0] == between
            && self.value(between).role == Role::Intermediate
            && uses.readers[between.index()] == [last]
            && self.value(between).desc == self.value(after.outputs[0]).desc
    }

    /// The fused op with the node `last` after it, which reads `between` of it.
    fn joined(&self, mut draft: Draft, last: usize, between: ValueId) -> Option<Draft> {
        let node = &self.nodes[last];
        let head = &self.nodes[draft.members[0]];
        // A head of another kind binds what it reads for itself.
        let bound = if head.op.elementwise().is_some() { 0 } else { head.inputs.len() };
        let mut operands = Vec::new();
        for &input in &node.inputs {
            let place = (input != between).then(|| {
                draft.inputs.iter().position(|&known| known == input).unwrap_or_else(|| {
                    draft.inputs.push(input);
                    draft.inputs.len() - 1
                })
            });
            if place.is_some_and(|place| place < bound) {
                return None;
            }
            operands.push(place);
        }
        let roots: BTreeSet<_> = draft.inputs.iter().map(|&input| self.storage_root(input)).collect();
        let descs: Vec<TensorDesc> = draft.inputs.iter().map(|&input| self.value(input).desc.clone()).collect();
        draft.fused = draft.fused.then(node.op.clone(), operands);
        draft.members.push(last);
        // One range of memory cannot be bound twice.
        (roots.len() == draft.inputs.len() && draft.fused.fits(&descs)).then_some(draft)
    }

    /// Where a fused op that makes `between` can run together with the node `last`, so that no node notices and no more is in memory.
    fn place(&self, uses: &Uses, places: &[usize], draft: &Draft, last: usize, between: ValueId) -> Option<usize> {
        let others: Vec<ValueId> = self.nodes[last].inputs.iter().copied().filter(|&input| input != between).collect();
        let is_there = |&value: &ValueId| {
            let producer = self.value(self.storage_root(value)).producer;
            let made = self.value(value).producer.into_iter().chain(producer);
            made.map(|node| places[node.index()]).max() < Some(draft.at)
        };
        let passed: Vec<usize> = (draft.at + 1..last).filter(|n| !draft.members.contains(n)).collect();
        if others.iter().all(is_there) && !self.change(&passed, &others) {
            return Some(draft.at);
        }
        self.may_wait(uses, &passed, draft, last, between).then_some(last)
    }

    /// Whether one of these nodes changes the memory of one of these values.
    fn change(&self, nodes: &[usize], values: &[ValueId]) -> bool {
        let roots: BTreeSet<_> = values.iter().map(|&value| self.storage_root(value)).collect();
        let changes =
            |node: &Node| node.op.mutates().iter().any(|&i| roots.contains(&self.storage_root(node.inputs[i])));
        nodes.iter().any(|&n| changes(&self.nodes[n]))
    }

    /// Whether a fused op that makes `between` can as well run at `last`, after the nodes `passed`.
    fn may_wait(&self, uses: &Uses, passed: &[usize], draft: &Draft, last: usize, between: ValueId) -> bool {
        let head = &self.nodes[draft.members[0]];
        let is_read = |value: &ValueId| uses.readers[value.index()].iter().any(|&reader| reader < last);
        if self.change(passed, &draft.inputs) || head.outputs[1..].iter().any(is_read) {
            return false;
        }
        let roots: BTreeSet<_> = draft.inputs.iter().map(|&input| self.storage_root(input)).collect();
        let ends = |root: &&ValueId| {
            let value = self.value(**root);
            let is_last = uses.last_of_root[root.index()].is_some_and(|reader| reader < last);
            is_last && value.producer.is_some() && value.role == Role::Intermediate
        };
        let ending: u64 = roots.iter().filter(ends).map(|&root| self.value(root).desc.size_bytes()).sum();
        if ending <= self.value(between).desc.size_bytes() {
            return true;
        }
        // It can as well wait if all else that the next reads is there before what it reads itself.
        let made = |&value: &ValueId| self.value(self.storage_root(value)).producer;
        let others = self.nodes[last].inputs.iter().filter(|&&input| input != between);
        let waits_for_views = passed.iter().all(|&n| self.nodes[n].op.is_view());
        waits_for_views && others.map(made).max() <= draft.inputs.iter().map(made).max()
    }

    /// Puts the fused ops where they run, and takes out the other nodes and what is between.
    fn replace(&mut self, drafts: BTreeMap<usize, Draft>) {
        let mut gone = BTreeMap::new();
        let mut same_as: Vec<ValueId> = self.value_ids().collect();
        for (last, Draft { fused, inputs, members, at }) in drafts {
            let id = NodeId(at as u32);
            let output = self.nodes[last].outputs[0];
            for &member in &members {
                same_as[self.nodes[member].outputs[0].index()] = output;
                if member != at {
                    gone.insert(member, id);
                }
            }
            let head = &self.nodes[members[0]];
            let mut outputs = head.outputs.clone();
            outputs[0] = output;
            for value in &outputs {
                self.values[value.index()].producer = Some(id);
            }
            let name = head.name.clone();
            let node = &mut self.nodes[at];
            (node.op, node.inputs, node.outputs, node.name) = (Arc::new(fused), inputs, outputs, name);
        }
        self.drop_joined(&gone, &same_as);
    }
}

/// Who reads what.
struct Uses {
    /// The nodes that read a value, in order; one that reads it twice is there twice.
    readers: Vec<Vec<usize>>,
    /// The last node that reads a storage root, as itself or through a view.
    last_of_root: Vec<Option<usize>>,
}

impl Uses {
    fn of(graph: &Graph) -> Self {
        let count = graph.values.len();
        let mut uses = Uses { readers: vec![Vec::new(); count], last_of_root: vec![None; count] };
        for (n, node) in graph.nodes.iter().enumerate() {
            for &input in &node.inputs {
                uses.readers[input.index()].push(n);
                uses.last_of_root[graph.storage_root(input).index()] = Some(n);
            }
        }
        uses
    }
}

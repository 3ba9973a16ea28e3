//! Operator fusion: nodes become one with what follows them, so that what is between is never in memory.
//!
//! One pass joins pairs of nodes as the [table](TABLE) says. It runs at two moments, because of gradients:
//!
//! - On the forward graph, before autodiff ([`FusionStage::Forward`]), by rules that leave ops with a gradient. What backward
//!   reads depends on them: a convolution with ReLU built in reads its own output, so they must be applied first.
//! - On the complete graph, before it is planned ([`FusionStage::Complete`]), by the rule that joins any elementwise op with what
//!   it follows. A [`Fused`] has no gradient, so backward must be there already, whose nodes are fused as well. It reads
//!   all its tensors at once, so the planner weighs the graph with fused ops against the one without.
//!
//! Both make the bits of the same nodes one after another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Graph, Node, Phase, Role, Value};
use crate::ops::elementwise::fused::Fused;
use crate::ops::elementwise::round::Round;
use crate::ops::{BuiltInActivation, Op};
use crate::tensor::{Half, NodeId, TensorDesc, ValueId};

/// When nodes are fused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FusionStage {
    /// The graph is the forward of a model: gradients are still to come.
    Forward,
    /// The graph is complete: no gradient is asked for any more.
    Complete,
}

/// What becomes of a node and the one after it, which alone reads its output 0.
enum Rewrite {
    /// They change places, if fewer elements are between them then.
    Swap,
    /// One node of this op, which has the inputs of the first.
    BuiltIn(Arc<dyn Op>),
    /// One node of a [`Fused`] op, which has the inputs of both.
    Epilogue,
}

/// A row of the table: what becomes of an op and the next.
struct Rule {
    stage: FusionStage,
    rewrite: fn(first: &dyn Op, next: &dyn Op) -> Option<Rewrite>,
}

/// What may follow what, and what it becomes. Ops say what they are by the methods named here; which ops these are, only they
/// know.
///
/// | stage | an op that | before one that | becomes |
/// |---|---|---|---|
/// | forward | is an [activation](Op::activation) | [commutes with it](Op::commutes_with) and makes fewer elements | the two, swapped |
/// | forward | can have it [built in](Op::with_activation) | is an activation | the first, with the activation built in |
/// | complete | [takes an epilogue](Op::takes_epilogue) | is [elementwise](Op::elementwise) | a [`Fused`] of both |
const TABLE: [Rule; 3] = [
    Rule {
        stage: FusionStage::Forward,
        rewrite: |first, next| next.commutes_with(first.activation()?).then_some(Rewrite::Swap),
    },
    Rule {
        stage: FusionStage::Forward,
        rewrite: |first, next| Some(Rewrite::BuiltIn(first.with_activation(next.activation()?)?)),
    },
    Rule {
        stage: FusionStage::Complete,
        rewrite: |first, next| (first.takes_epilogue() && next.elementwise().is_some()).then_some(Rewrite::Epilogue),
    },
];

/// What the table says of two ops.
fn rewrite(stage: FusionStage, first: &dyn Op, next: &dyn Op) -> Option<Rewrite> {
    TABLE.iter().filter(|rule| rule.stage == stage).find_map(|rule| (rule.rewrite)(first, next))
}

/// Nodes that will be one.
#[derive(Clone)]
struct Draft {
    /// The first node's op, with what is built in so far.
    head: Arc<dyn Op>,
    /// The op of all, where there is an epilogue.
    fused: Option<Fused>,
    inputs: Vec<ValueId>,
    /// The nodes by their places, the head first.
    members: Vec<usize>,
    /// The place of one of them, where the node of all will be.
    at: usize,
}

impl Graph {
    /// Joins nodes with the node whose output 0 they alone read, as the rules of a stage say. No value that is to `keep` is
    /// fused away. Returns for each value of before what it is now: a value that is gone became the output of the node
    /// that was joined, or where two nodes changed places, what the first of them read.
    ///
    /// It makes the same bits, and takes no more memory but for small outputs beside the first: the next joins a node at the
    /// node's place if it can. If it must wait, the node waits for it unless more of what it reads ends there than it makes:
    /// then it is better off early.
    pub fn fuse(&mut self, stage: FusionStage, keep: &[ValueId]) -> Vec<ValueId> {
        let swapped = self.swap(stage, keep);
        let uses = Uses::of(self, keep);
        // By the node whose output they make.
        let mut drafts: BTreeMap<usize, Draft> = BTreeMap::new();
        // Where each node will run.
        let mut places: Vec<usize> = (0..self.nodes.len()).collect();
        for last in 0..self.nodes.len() {
            let node = &self.nodes[last];
            if node.phase == Phase::Update {
                continue;
            }
            let producers = node.inputs.iter().filter_map(|&input| Some((self.value(input).producer?.index(), input)));
            let mut producers: Vec<_> = producers.collect();
            // Of several that it could follow, the latest moves least.
            producers.sort_unstable_by(|a, b| b.cmp(a));
            let joined = producers.into_iter().find_map(|(first, between)| {
                self.reads_alone(&uses, first, last, between).then_some(())?;
                let known = drafts.get(&first);
                let head = known.map_or(&self.nodes[first].op, |draft| &draft.head);
                let rewrite = rewrite(stage, &**head, &*node.op)?;
                let draft = known.cloned().unwrap_or_else(|| self.draft(first));
                let at = self.place(&uses, &places, &draft, last, between)?;
                Some((first, self.joined(Draft { at, ..draft }, last, between, rewrite)?))
            });
            if let Some((first, draft)) = joined {
                draft.members.iter().for_each(|&member| places[member] = draft.at);
                drafts.remove(&first);
                drafts.insert(last, draft);
            }
        }
        self.replace(stage, drafts, swapped)
    }

    /// Lets nodes change places with the next where the table says so and fewer elements are between them then. Returns what the first
    /// of each two made, which nothing makes any more, and what it read.
    fn swap(&mut self, stage: FusionStage, keep: &[ValueId]) -> Vec<(ValueId, ValueId)> {
        let mut swapped = Vec::new();
        for second in 0..self.nodes.len() {
            let (&[between], &[output, ..]) = (&self.nodes[second].inputs[..], &self.nodes[second].outputs[..]) else {
                continue;
            };
            let Value { role: Role::Intermediate, producer: Some(first), .. } = self.values[between.index()] else {
                continue;
            };
            let (before, after) = (&self.nodes[first.index()], &self.nodes[second]);
            let (&[input], &[_]) = (&before.inputs[..], &before.outputs[..]) else { continue };
            let is_less = self.value(output).desc.numel() < self.value(between).desc.numel();
            let is_pair = is_less && before.phase == after.phase && !keep.contains(&between);
            if !is_pair || !matches!(rewrite(stage, &*before.op, &*after.op), Some(Rewrite::Swap)) {
                continue;
            }
            if self.nodes.iter().flat_map(|node| &node.inputs).filter(|&&read| read == between).count() > 1 {
                continue;
            }
            let now_between = ValueId(self.values.len() as u32);
            self.values.push(Value { role: Role::Intermediate, producer: Some(first), ..self.value(output).clone() });
            self.nodes.swap(first.index(), second);
            self.nodes[second].inputs = vec![now_between];
            self.nodes[second].outputs = vec![output];
            let earlier = &mut self.nodes[first.index()];
            earlier.inputs = vec![input];
            earlier.outputs[0] = now_between;
            for made in &earlier.outputs {
                self.values[made.index()].producer = Some(first);
            }
            swapped.push((between, input));
        }
        swapped
    }

    /// A node by itself.
    fn draft(&self, head: usize) -> Draft {
        let node = &self.nodes[head];
        Draft { head: node.op.clone(), fused: None, inputs: node.inputs.clone(), members: vec![head], at: head }
    }

    /// Whether the node `last` is all that follows the node `first`, which makes `between`, and makes as much.
    fn reads_alone(&self, uses: &Uses, first: usize, last: usize, between: ValueId) -> bool {
        let (before, after) = (&self.nodes[first], &self.nodes[last]);
        let &[output] = &after.outputs[..] else { return false };
        before.phase == after.phase
            && before.outputs[0] == between
            && self.value(between).role == Role::Intermediate
            && uses.readers[between.index()] == [last]
            && !uses.kept.contains(&between)
            && self.value(between).desc.computed() == self.value(output).desc.computed()
    }

    /// A draft with the node `last` after it, which reads `between` of it.
    fn joined(&self, mut draft: Draft, last: usize, between: ValueId, rewrite: Rewrite) -> Option<Draft> {
        draft.members.push(last);
        match rewrite {
            // The two have other places by now, or should keep theirs.
            Rewrite::Swap => None,
            Rewrite::BuiltIn(op) => Some(Draft { head: op, ..draft }),
            Rewrite::Epilogue => self.with_epilogue(draft, last, between),
        }
    }

    fn with_epilogue(&self, mut draft: Draft, last: usize, between: ValueId) -> Option<Draft> {
        let node = &self.nodes[last];
        let head_inputs = self.nodes[draft.members[0]].inputs.len();
        // A head of another kind binds what it reads for itself.
        let bound = if draft.head.elementwise().is_some() { 0 } else { head_inputs };
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
        let descs: Vec<TensorDesc> = draft.inputs.iter().map(|&input| self.value(input).desc.computed()).collect();
        let mut fused = draft.fused.unwrap_or_else(|| Fused::new(draft.head.clone(), head_inputs));
        if let Some(half) = self.rounding(node, between) {
            fused = fused.then(Arc::new(Round { half }), [None]);
        }
        let fused = fused.then(node.op.clone(), operands);
        // One range of memory cannot be bound twice.
        let fits = roots.len() == draft.inputs.len() && fused.fits(&descs);
        fits.then_some(Draft { fused: Some(fused), ..draft })
    }

    /// How what is between must be rounded, as it would be in memory, before this node takes it.
    fn rounding(&self, node: &Node, between: ValueId) -> Option<Half> {
        let half = self.value(between).desc.dtype.half()?;
        // The larger of a number and 0 is rounded alike before and after.
        let commutes = node.op.activation() == Some(BuiltInActivation::Relu);
        let is_rounded = self.value(node.outputs[0]).desc.dtype == half.dtype();
        (!(commutes && is_rounded)).then_some(half)
    }

    /// Where a node that makes `between` can run together with the node `last`, so that no node notices and no more is in memory.
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

    /// Whether a node that makes `between` can as well run at `last`, after the nodes `passed`.
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

    /// Puts the nodes of drafts where they run, and takes out the others and what is between.
    fn replace(
        &mut self,
        stage: FusionStage,
        drafts: BTreeMap<usize, Draft>,
        swapped: Vec<(ValueId, ValueId)>,
    ) -> Vec<ValueId> {
        let mut gone = BTreeSet::new();
        let mut same_as: Vec<ValueId> = self.value_ids().collect();
        for (last, Draft { head: op, fused, inputs, members, at }) in drafts {
            let id = NodeId(at as u32);
            let head = &self.nodes[members[0]];
            let made = self.nodes[last].outputs[0];
            // In the forward graph, an op with something built in makes what it made before. In the complete graph, a fused op makes
            // what its last op did.
            let output = match stage {
                FusionStage::Forward => head.outputs[0],
                FusionStage::Complete => made,
            };
            for &member in &members {
                same_as[self.nodes[member].outputs[0].index()] = output;
                if member != at {
                    gone.insert(member);
                }
            }
            let name = head.name.clone();
            let mut outputs = head.outputs.clone();
            outputs[0] = output;
            self.values[output.index()].role = self.values[made.index()].role;
            for value in &outputs {
                self.values[value.index()].producer = Some(id);
            }
            let op = fused.map_or(op, |fused| Arc::new(fused));
            let phase = self.nodes[at].phase;
            self.nodes[at] = Node { name, op, inputs, outputs, phase };
        }
        for (made, read) in swapped {
            same_as[made.index()] = same_as[read.index()];
        }
        self.drop_fused(&gone, &same_as)
    }

    /// Takes out nodes that others do the work of, and the values that only they made.
    fn drop_fused(&mut self, gone: &BTreeSet<usize>, same_as: &[ValueId]) -> Vec<ValueId> {
        let stays = |id: ValueId| same_as[id.index()] == id;
        let kept = numbered(self.value_ids().map(stays)).into_iter().map(ValueId).collect::<Vec<_>>();
        let now: Vec<ValueId> = same_as.iter().map(|id| kept[id.index()]).collect();
        let node_now = numbered((0..self.nodes.len()).map(|n| !gone.contains(&n)));
        let mut ids = self.value_ids();
        self.values.retain(|_| ids.next().is_some_and(stays));
        for value in &mut self.values {
            value.producer = value.producer.map(|node| NodeId(node_now[node.index()]));
        }
        let mut places = 0..;
        self.nodes.retain(|_| places.next().is_some_and(|place| !gone.contains(&place)));
        for node in &mut self.nodes {
            node.inputs.iter_mut().chain(&mut node.outputs).for_each(|id| *id = now[id.index()]);
        }
        now
    }
}

/// The number that each thing has among those that stay.
fn numbered(stays: impl Iterator<Item = bool>) -> Vec<u32> {
    let mut next = 0;
    let number = |stays| {
        let number = next;
        next += u32::from(stays);
        number
    };
    stays.map(number).collect()
}

/// Who reads what.
struct Uses {
    /// The nodes that read a value, in order; one that reads it twice is there twice.
    readers: Vec<Vec<usize>>,
    /// The last node that reads a storage root, as itself or through a view.
    last_of_root: Vec<Option<usize>>,
    /// Values that are read by others than nodes.
    kept: BTreeSet<ValueId>,
}

impl Uses {
    fn of(graph: &Graph, keep: &[ValueId]) -> Self {
        let count = graph.values.len();
        let kept = keep.iter().copied().collect();
        let mut uses = Uses { readers: vec![Vec::new(); count], last_of_root: vec![None; count], kept };
        for (n, node) in graph.nodes.iter().enumerate() {
            for &input in &node.inputs {
                uses.readers[input.index()].push(n);
                uses.last_of_root[graph.storage_root(input).index()] = Some(n);
            }
        }
        uses
    }
}

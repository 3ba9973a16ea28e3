//! Where the operands of a node lie in the arenas, and their slices.

use std::collections::BTreeMap;

use super::memory::Memory;
use crate::graph::Graph;
use crate::ops::{Call, Input, Op, Output, workspaces};
use crate::plan::Allocation;
use crate::tensor::{DType, NodeId, TensorDesc, ValueId};

pub(super) const WORD_BYTES: u64 = 4;
/// Tensors of an op that runs alone begin at multiples of so many words, as in a plan.
const ALIGNMENT_WORDS: usize = 64;

/// Words of an arena: its number, the first word and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Range {
    pub(super) arena: usize,
    pub(super) start: usize,
    pub(super) words: usize,
}

impl Range {
    pub(super) fn new(place: Allocation, words: usize) -> Self {
        Range { arena: place.arena as usize, start: (place.offset_bytes / WORD_BYTES) as usize, words }
    }
}

/// The operands of a node, each as a number among the pieces of arenas that it uses.
#[derive(Debug)]
pub(super) struct Operands {
    /// In the order of the arenas. No two overlap.
    pieces: Vec<Range>,
    inputs: Vec<usize>,
    outputs: Vec<usize>,
    mutated: Vec<usize>,
    workspaces: Vec<usize>,
    input_descs: Vec<TensorDesc>,
    output_descs: Vec<TensorDesc>,
    /// Which inputs are changed.
    mutates: &'static [usize],
    /// Where the outputs are.
    pub(super) made: Vec<Range>,
    /// An input whose memory output 0 takes over.
    pub(super) in_place: Option<usize>,
}

impl Operands {
    /// The operands of a node where values are in `places`, and its outputs and workspaces in these.
    pub(super) fn new(
        graph: &Graph,
        node: NodeId,
        places: &BTreeMap<ValueId, Allocation>,
        outputs: &[Allocation],
        workspaces: &[Allocation],
        in_place: Option<usize>,
    ) -> Self {
        let node = graph.node(node);
        let descs = |ids: &[ValueId]| ids.iter().map(|&id| graph.value(id).desc.clone()).collect::<Vec<_>>();
        let descs = [descs(&node.inputs), descs(&node.outputs)];
        let range = |(place, desc): (Allocation, &TensorDesc)| Range::new(place, desc.words());
        let inputs = node.inputs.iter().map(|&id| places[&graph.storage_root(id)]);
        let inputs: Vec<_> = inputs.zip(&descs[0]).map(range).collect();
        let outputs: Vec<_> = outputs.iter().copied().zip(&descs[1]).map(range).collect();
        let workspaces = workspaces.iter().map(|&place| Range::new(place, (place.size_bytes / WORD_BYTES) as usize));
        Operands::of(&*node.op, descs, [&inputs, &outputs, &workspaces.collect::<Vec<_>>()], in_place)
    }

    /// The operands of an op whose inputs and outputs have these shapes, and inputs, outputs and workspaces these places.
    pub(super) fn of(
        op: &dyn Op,
        [input_descs, output_descs]: [Vec<TensorDesc>; 2],
        [inputs, outputs, workspaces]: [&[Range]; 3],
        in_place: Option<usize>,
    ) -> Self {
        let mut pieces = [inputs, outputs, workspaces].concat();
        pieces.sort_unstable();
        pieces.dedup();
        let numbers = |ranges: &[Range]| -> Vec<usize> {
            let number = |range| pieces.binary_search(range).expect("bug: an operand that is no piece");
            ranges.iter().map(number).collect()
        };
        let (mutates, made) = (op.mutates(), outputs.to_vec());
        let (inputs, outputs, workspaces) = (numbers(inputs), numbers(outputs), numbers(workspaces));
        let mutated = mutates.iter().map(|&i| inputs[i]).collect();
        Operands { pieces, inputs, outputs, mutated, workspaces, input_descs, output_descs, mutates, made, in_place }
    }

    /// The operands of an op that runs alone, one after the other in one arena with so many words between them, and the words of
    /// that. Output 0 takes over the memory of input `in_place`.
    pub(super) fn alone(
        op: &dyn Op,
        [inputs, outputs]: [Vec<TensorDesc>; 2],
        threads: usize,
        in_place: Option<usize>,
        gap_words: usize,
    ) -> (Self, usize) {
        let mut end = 0;
        let mut place = |words: usize| {
            let start = end;
            end += words.next_multiple_of(ALIGNMENT_WORDS) + gap_words;
            Range { arena: 0, start, words }
        };
        let input_places: Vec<_> = inputs.iter().map(|desc| place(desc.words())).collect();
        let output_places = outputs.iter().enumerate().map(|(i, desc)| match in_place {
            Some(input) if i == 0 => input_places[input],
            _ => place(desc.words()),
        });
        let output_places: Vec<_> = output_places.collect();
        let sizes = workspaces(op, &inputs, &outputs, Some(threads));
        let workspaces: Vec<_> = sizes.iter().map(|bytes| place(bytes.div_ceil(WORD_BYTES) as usize)).collect();
        let operands = Operands::of(op, [inputs, outputs], [&input_places, &output_places, &workspaces], in_place);
        (operands, end)
    }

    /// The shapes of the inputs.
    pub(super) fn input_descs(&self) -> &[TensorDesc] {
        &self.input_descs
    }

    /// Where everything is that the op writes.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn written(&self) -> impl Iterator<Item = Range> {
        let others = self.workspaces.iter().chain(&self.mutated).map(|&number| self.pieces[number]);
        self.made.iter().copied().chain(others)
    }

    /// Where an input is.
    pub(super) fn input(&self, input: usize) -> Range {
        self.pieces[self.inputs[input]]
    }

    /// The slices of all operands, and of workspaces. An input whose memory output 0 takes over is `in_place`.
    pub(super) fn call<'a>(
        &'a self,
        arenas: &'a mut [Memory],
        in_place: Input<'a, f32>,
    ) -> (Call<'a, f32>, Vec<&'a mut [f32]>) {
        let mut parts = self.split(arenas);
        let mut take = |number: usize| parts[number].take().expect("bug: a piece of memory is written twice");
        let outputs =
            self.outputs.iter().zip(&self.output_descs).map(|(&number, desc)| output(desc, take(number))).collect();
        let mutated = self.mutated.iter().zip(self.mutates);
        let mutated = mutated.map(|(&number, &i)| output(&self.input_descs[i], take(number))).collect();
        let workspaces = self.workspaces.iter().map(|&number| bytemuck::cast_slice_mut(take(number))).collect();
        let shared: Vec<Option<&[u32]>> = parts.into_iter().map(|part| part.map(|part| &*part)).collect();
        let inputs = self.inputs.iter().zip(&self.input_descs).enumerate().map(|(i, (&number, desc))| {
            if self.mutates.contains(&i) {
                return Input::Mutated;
            }
            shared[number].map_or(in_place, |words| input(desc, words))
        });
        let inputs = inputs.collect();
        let (input_descs, output_descs) = (&self.input_descs[..], &self.output_descs[..]);
        (Call { input_descs, output_descs, inputs, outputs, mutated }, workspaces)
    }

    /// The pieces as slices.
    fn split<'a>(&self, arenas: &'a mut [Memory]) -> Vec<Option<&'a mut [u32]>> {
        let mut parts = Vec::with_capacity(self.pieces.len());
        let mut pieces = self.pieces.iter().peekable();
        for (number, arena) in arenas.iter_mut().enumerate() {
            if pieces.peek().is_none_or(|piece| piece.arena != number) {
                continue;
            }
            let (mut rest, mut position) = (arena.words_mut(), 0);
            while let Some(piece) = pieces.next_if(|piece| piece.arena == number) {
                assert!(piece.start >= position, "bug: operands overlap");
                let (part, after) = rest.split_at_mut(piece.start - position).1.split_at_mut(piece.words);
                parts.push(Some(part));
                (rest, position) = (after, piece.start + piece.words);
            }
        }
        parts
    }
}

/// Words as an op reads them.
pub(super) fn input<'a>(desc: &TensorDesc, words: &'a [u32]) -> Input<'a, f32> {
    match (desc.dtype, desc.dtype.half()) {
        (_, Some(half)) => Input::Half(&bytemuck::cast_slice(words)[..desc.numel()], half),
        (DType::U32 | DType::U8, None) => Input::Int(words),
        (_, None) => Input::Real(bytemuck::cast_slice(words)),
    }
}

fn output<'a>(desc: &TensorDesc, words: &'a mut [u32]) -> Output<'a, f32> {
    match (desc.dtype, desc.dtype.half()) {
        (_, Some(half)) => Output::Half(&mut bytemuck::cast_slice_mut(words)[..desc.numel()], half),
        (DType::U32 | DType::U8, None) => Output::Int(words),
        (_, None) => Output::Real(bytemuck::cast_slice_mut(words)),
    }
}

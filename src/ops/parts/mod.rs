//! Native forms that compute with f32 where some of their operands are floats of 16 bits: these are converted in workspaces, part by
//! part where the op falls into parts, so that what is converted stays in caches and takes little memory.

use std::ops::Range;

use crate::native::{Cores, half};
use crate::ops::{Call, Epilogue, Input, Op, Output, Resources, Slot, native};
use crate::tensor::{DType, TensorDesc};

/// Bytes of converted operands that a part has at most, where it is not a single sample or channel. Neither this nor anything else that
/// decides on parts depends on the processor: results do on parts.
const PART_BYTES: usize = 4 << 20;
/// Parts of masks begin with a word.
const WORD_BITS: usize = 32;

/// How an op falls into parts: the same op on a part of some operands, and on the whole of the others, computes a part of its
/// outputs, or sums to which those of other parts are to be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// The axis along which each input is cut; `None` where a part takes all of it. Inputs beyond these are operands of elementwise
    /// functions that follow, and are cut as output 0 is.
    pub inputs: Vec<Option<usize>>,
    /// What a part computes of each output.
    pub outputs: Vec<OutputPart>,
}

/// What a part computes of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputPart {
    /// A part along this axis.
    Along(usize),
    /// Terms of its sum.
    Sum,
}

impl Parts {
    /// Parts of the samples, which are axis 0 of the outputs and of the inputs of which this is true.
    pub fn samples<const N: usize>(inputs: [bool; N], outputs: usize) -> Self {
        Parts {
            inputs: inputs.into_iter().map(|is_cut| is_cut.then_some(0)).collect(),
            outputs: vec![OutputPart::Along(0); outputs],
        }
    }

    /// Parts of the samples, over all of which the only output is a sum.
    pub fn sum<const N: usize>(inputs: [bool; N]) -> Self {
        Parts { outputs: vec![OutputPart::Sum], ..Parts::samples(inputs, 0) }
    }
}

/// An operand as rows of `extent · inner` elements, of each of which a part takes some. Where it is not cut it is one row.
#[derive(Clone, Debug)]
struct Operand {
    /// As the op computes with it.
    desc: TensorDesc,
    /// Whether it is a mask: a bit for each element of output 0.
    is_mask: bool,
    axis: Option<usize>,
    outer: usize,
    extent: usize,
    inner: usize,
    /// The workspace that it is converted or copied in.
    room: Option<usize>,
}

impl Operand {
    fn new(desc: &TensorDesc, axis: Option<usize>) -> Self {
        let (desc, is_mask) = (desc.computed(), false);
        let (outer, extent, inner) = match axis {
            Some(axis) => {
                let numel = |extents: &[usize]| extents.iter().product::<usize>();
                (numel(&desc.shape[..axis]), desc.shape[axis], numel(&desc.shape[axis + 1..]))
            }
            None => (1, 1, desc.numel()),
        };
        Operand { desc, is_mask, axis, outer, extent, inner, room: None }
    }

    /// A mask of the elements of another operand.
    fn mask(desc: &TensorDesc, of: &Operand) -> Self {
        Operand { desc: desc.clone(), is_mask: true, ..of.clone() }
    }

    /// Where a part of a row begins, and its elements, in one row and in all.
    fn row(&self, part: &Range<usize>) -> [usize; 2] {
        if self.axis.is_some() { [part.start * self.inner, part.len() * self.inner] } else { [0, self.inner] }
    }

    /// The shape of a part.
    fn part(&self, part: &Range<usize>) -> TensorDesc {
        let Some(axis) = self.axis else { return self.desc.clone() };
        let mut shape = self.desc.shape.to_vec();
        if self.is_mask {
            shape = vec![(self.outer * self.row(part)[1]).div_ceil(WORD_BITS)];
        } else {
            shape[axis] = part.len();
        }
        TensorDesc { shape: shape.into(), ..self.desc.clone() }
    }

    /// The places of a part, if it lies in one piece: of elements, or of words of a mask.
    fn piece(&self, part: &Range<usize>) -> Option<Range<usize>> {
        let [start, length] = self.row(part);
        match (self.outer, self.is_mask) {
            (1, false) => Some(start..start + length),
            (1, true) if start % WORD_BITS == 0 => Some(start / WORD_BITS..(start + length).div_ceil(WORD_BITS)),
            _ => None,
        }
    }
}

/// How an op runs.
pub(super) struct Layout {
    /// Samples, channels or whatever else is cut, and how many each part but the last has.
    total: usize,
    size: usize,
    inputs: Vec<Operand>,
    outputs: Vec<Operand>,
    sums: Vec<bool>,
    /// The input that is read where output 0 is converted.
    shared: Option<usize>,
    /// Elements of workspaces.
    rooms: Vec<usize>,
}

impl Layout {
    pub(super) fn new(op: &dyn Op, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Self {
        Layout::with_parts_of(PART_BYTES, op, inputs, outputs)
    }

    fn with_parts_of(bytes: usize, op: &dyn Op, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Self {
        let parts = native::parts(op, inputs, outputs).filter(|parts| {
            let is_half =
                |(part, desc): (&OutputPart, &TensorDesc)| *part == OutputPart::Sum && desc.dtype != DType::F32;
            !parts.outputs.iter().zip(outputs).any(is_half)
        });
        let Some(parts) = parts else { return Layout::of(op, [inputs, outputs], None, 1) };
        let whole = Layout::of(op, [inputs, outputs], Some(&parts), usize::MAX);
        // What follows the op must not decide how it is cut: what it reads does not count, nor does the type of the output.
        let own = whole.inputs.iter().take(parts.inputs.len()).chain(&whole.outputs);
        let cut = own.filter(|operand| operand.axis.is_some());
        let per_index = cut.map(|operand| operand.desc.numel() / whole.total * size_of::<f32>()).sum::<usize>();
        let sums = whole.outputs.iter().zip(&whole.sums).filter(|(_, is_sum)| **is_sum);
        // Each part writes all of its sums.
        let sums = 2 * sums.map(|(output, _)| output.desc.numel() * size_of::<f32>()).sum::<usize>();
        let most = bytes.max(sums) / per_index.max(1);
        let count = whole.total.div_ceil(most.max(1));
        let inner = whole.outputs[0].inner;
        let unit = WORD_BITS / WORD_BITS.min(1 << inner.trailing_zeros().min(5));
        let size = whole.total.div_ceil(count.max(1)).next_multiple_of(unit);
        let parts = Some(&parts).filter(|_| size < whole.total);
        Layout::of(op, [inputs, outputs], parts, size)
    }

    fn of(op: &dyn Op, [inputs, outputs]: [&[TensorDesc]; 2], parts: Option<&Parts>, size: usize) -> Self {
        let axis = |i: usize| match parts.map(|parts| parts.outputs[i]) {
            Some(OutputPart::Along(axis)) => Some(axis),
            Some(OutputPart::Sum) | None => None,
        };
        let mut made: Vec<_> = outputs.iter().enumerate().map(|(i, desc)| Operand::new(desc, axis(i))).collect();
        let read = |(i, desc): (usize, &TensorDesc)| match parts.map(|parts| parts.inputs.get(i)) {
            Some(Some(&axis)) => Operand::new(desc, axis),
            Some(None) if desc.dtype == DType::U32 => Operand::mask(desc, &made[0]),
            Some(None) => Operand::new(desc, made[0].axis),
            None => Operand::new(desc, None),
        };
        let mut read: Vec<_> = inputs.iter().enumerate().map(read).collect();
        let cut = read.iter().chain(&made).find(|operand| operand.axis.is_some());
        let total = cut.map_or(1, |operand| operand.extent);
        let is_cut = size < total;
        let sums: Vec<_> =
            (0..outputs.len()).map(|i| parts.is_some_and(|parts| parts.outputs[i] == OutputPart::Sum)).collect();
        let needs_room = |operand: &Operand, desc: &TensorDesc, slot: Slot| {
            let lies_apart = is_cut && operand.piece(&(0..size)).is_none();
            lies_apart || (desc.dtype.half().is_some() && !native::takes_half(op, slot))
        };
        let part = 0..size.min(total);
        let mut rooms = Vec::new();
        for (i, (operand, desc)) in made.iter_mut().zip(outputs).enumerate() {
            if needs_room(operand, desc, Slot::Output(i)) || sums[i] {
                operand.room = Some(rooms.len());
                rooms.push(operand.part(&part).numel());
            }
        }
        // What the output may take the place of is converted where the output will be.
        let is_shared = |&&(input, output): &&(usize, usize)| {
            output == 0
                && made[0].room.is_some()
                && read[input].axis == made[0].axis
                && inputs[input].dtype == outputs[0].dtype
                && needs_room(&read[input], &inputs[input], Slot::Input(input))
        };
        let shared = op.in_place().iter().find(is_shared).filter(|_| native::has_form(op)).map(|&(input, _)| input);
        for (i, (operand, desc)) in read.iter_mut().zip(inputs).enumerate() {
            if shared == Some(i) {
                operand.room = made[0].room;
            } else if needs_room(operand, desc, Slot::Input(i)) {
                operand.room = Some(rooms.len());
                rooms.push(operand.part(&part).words());
            }
        }
        Layout { total, size: size.min(total), inputs: read, outputs: made, sums, shared, rooms }
    }

    /// Bytes of the workspaces.
    pub(super) fn sizes(&self) -> impl Iterator<Item = u64> {
        self.rooms.iter().map(|&elements| (elements * size_of::<f32>()) as u64)
    }

    /// Samples or whatever else each part has.
    fn parts(&self) -> impl Iterator<Item = Range<usize>> {
        (0..self.total).step_by(self.size.max(1)).map(|start| start..self.total.min(start + self.size))
    }

    /// The shapes of the longest and of the last part.
    pub(super) fn shapes(&self) -> impl Iterator<Item = [Vec<TensorDesc>; 2]> {
        let ends = [self.parts().next(), self.parts().last()];
        ends.into_iter().flatten().map(|part| self.shapes_of(&part))
    }

    fn shapes_of(&self, part: &Range<usize>) -> [Vec<TensorDesc>; 2] {
        [&self.inputs, &self.outputs].map(|operands| operands.iter().map(|operand| operand.part(part)).collect())
    }

    /// Runs the op with workspaces of its own, followed by those for its operands.
    pub(super) fn run(&self, op: &dyn Op, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        debug_assert!(with.epilogue.is_empty(), "bug: an epilogue from outside");
        let own = with.workspaces.len() - self.rooms.len();
        let (own, rooms) = with.workspaces.split_at_mut(own);
        let cores = with.cores;
        for part in self.parts() {
            let [input_descs, output_descs] = self.shapes_of(&part);
            for (i, operand) in self.inputs.iter().enumerate() {
                // What all parts take is there since the first.
                let Some(room) = operand.room.filter(|_| operand.axis.is_some() || part.start == 0) else { continue };
                let from = match (call.inputs[i], &call.outputs[..]) {
                    (Input::InPlace, [Output::Half(data, half), ..]) => Input::Half(data, *half),
                    (Input::InPlace, [Output::Real(data), ..]) => Input::Real(data),
                    (input, _) => input,
                };
                read(cores, operand, &part, from, rooms[room]);
            }
            let mut parts: Vec<Option<&mut [f32]>> = rooms.iter_mut().map(|room| Some(&mut **room)).collect();
            let (mut made, mut beneath) = (Vec::new(), None);
            for (i, (output, operand)) in call.outputs.iter_mut().zip(&self.outputs).enumerate() {
                let room = operand.room.map(|room| parts[room].take().expect("bug: a workspace is taken twice"));
                made.push(match room {
                    Some(room) => {
                        if let (0, Output::Half(data, half), Some(piece)) = (i, &*output, operand.piece(&part)) {
                            beneath = Some(Input::Half(&data[piece], *half));
                        }
                        Output::Real(&mut room[..output_descs[i].numel()])
                    }
                    None => output_part(output.again(), operand.piece(&part).expect("bug: a part in pieces")),
                });
            }
            let inputs = self.inputs.iter().enumerate().map(|(i, operand)| match (operand.room, call.inputs[i]) {
                _ if self.shared == Some(i) => Input::InPlace,
                (Some(room), input) => {
                    let room = &**parts[room].as_ref().expect("bug: an input where an output is");
                    match input {
                        Input::Int(_) => Input::Int(&bytemuck::cast_slice(room)[..input_descs[i].words()]),
                        _ => Input::Real(&room[..input_descs[i].numel()]),
                    }
                }
                // An input in the memory of an output that is converted is read where it is.
                (None, Input::InPlace) => beneath.unwrap_or(Input::InPlace),
                (None, input) => input_part(input, operand.piece(&part).expect("bug: a part in pieces")),
            });
            let inputs = inputs.collect();
            let mutated = call.mutated.iter_mut().map(Output::again).collect();
            let (input_descs, output_descs) = (&input_descs[..], &output_descs[..]);
            let mut with = Resources { cores, workspaces: Vec::new(), epilogue: Epilogue::default() };
            with.workspaces.extend(own.iter_mut().map(|workspace| &mut **workspace));
            native::run_native(op, &mut Call { input_descs, output_descs, inputs, outputs: made, mutated }, &mut with);
            for (i, (output, operand)) in call.outputs.iter_mut().zip(&self.outputs).enumerate() {
                let Some(room) = operand.room else { continue };
                let values = &rooms[room][..output_descs[i].numel()];
                match output {
                    Output::Real(data) if self.sums[i] => add(cores, values, data, part.start == 0),
                    output => write(cores, operand, &part, values, output),
                }
            }
        }
    }
}

/// Some elements, or words of a mask, of an input.
fn input_part(input: Input<'_, f32>, piece: Range<usize>) -> Input<'_, f32> {
    match input {
        Input::Real(data) => Input::Real(&data[piece]),
        Input::Int(words) => Input::Int(&words[piece]),
        Input::Half(data, half) => Input::Half(&data[piece], half),
        other => other,
    }
}

fn output_part(output: Output<'_, f32>, piece: Range<usize>) -> Output<'_, f32> {
    match output {
        Output::Real(data) => Output::Real(&mut data[piece]),
        Output::Int(words) => Output::Int(&mut words[piece]),
        Output::Half(data, half) => Output::Half(&mut data[piece], half),
    }
}

/// Gathers a part of an input, as f32 or as words.
fn read(cores: &Cores, operand: &Operand, part: &Range<usize>, input: Input<'_, f32>, room: &mut [f32]) {
    let ([start, length], whole) = (operand.row(part), operand.extent * operand.inner);
    let at = |row: usize, column: usize| row * whole + start + column;
    let count = operand.outer * length;
    match input {
        Input::Half(data, half) => cores.rows(&mut room[..count], length, |row, column, values| {
            half::decode(cores.level(), half, &data[at(row, column)..][..values.len()], values);
        }),
        Input::Real(data) => cores.rows(&mut room[..count], length, |row, column, values| {
            values.copy_from_slice(&data[at(row, column)..][..values.len()]);
        }),
        Input::Int(words) if operand.is_mask => {
            let to: &mut [u32] = &mut bytemuck::cast_slice_mut(room)[..count.div_ceil(WORD_BITS)];
            cores.pieces(to, |first, to| {
                for (i, to) in to.iter_mut().enumerate() {
                    let bits = (first + i) * WORD_BITS..count.min((first + i + 1) * WORD_BITS);
                    let bit = |(k, bit): (usize, usize)| {
                        let from = at(bit / length, bit % length);
                        (words[from / WORD_BITS] >> (from % WORD_BITS) & 1) << k
                    };
                    *to = bits.enumerate().map(bit).fold(0, |word, bit| word | bit);
                }
            });
        }
        Input::Int(words) => {
            let to: &mut [u32] = bytemuck::cast_slice_mut(room);
            cores.rows(&mut to[..count], length, |row, column, to| {
                to.copy_from_slice(&words[at(row, column)..][..to.len()]);
            });
        }
        Input::Mutated | Input::InPlace => panic!("bug: an operand that is nowhere is converted"),
    }
}

/// Puts a part of an output where it belongs.
fn write(cores: &Cores, operand: &Operand, part: &Range<usize>, values: &[f32], output: &mut Output<'_, f32>) {
    let ([start, length], whole) = (operand.row(part), operand.extent * operand.inner);
    match output {
        Output::Half(data, half) if operand.outer == 1 => {
            cores.pieces(&mut data[start..start + length], |first, data| {
                half::encode(cores.level(), *half, &values[first..][..data.len()], data);
            });
        }
        Output::Half(data, half) => {
            let mut rows: Vec<_> = data.chunks_exact_mut(whole).zip(values.chunks_exact(length)).collect();
            cores.each(&mut rows, |_, (data, values)| {
                half::encode(cores.level(), *half, values, &mut data[start..start + length]);
            });
        }
        Output::Real(data) => {
            let mut rows: Vec<_> = data.chunks_exact_mut(whole).zip(values.chunks_exact(length)).collect();
            cores.each(&mut rows, |_, (data, values)| data[start..start + length].copy_from_slice(values));
        }
        Output::Int(_) => panic!("bug: an output of integers in parts that lie apart"),
    }
}

/// Adds the sums of a part to those of the parts before.
fn add(cores: &Cores, values: &[f32], sums: &mut [f32], is_first: bool) {
    cores.pieces(sums, |start, sums| {
        let values = &values[start..][..sums.len()];
        if is_first {
            sums.copy_from_slice(values);
        } else {
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
    });
}

#[cfg(test)]
mod tests;

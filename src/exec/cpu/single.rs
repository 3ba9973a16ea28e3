//! One op on the cores of the CPU, alone: what the tests of native forms run.

use super::memory::Memory;
use super::operands::{Operands, Range, WORD_BYTES};
use crate::error::DeviceError;
use crate::native::Cores;
use crate::ops::{Epilogue, Input, Op, Resources, run_native, workspaces};
use crate::tensor::TensorDesc;

/// Tensors begin at multiples of so many words, as in a plan.
const ALIGNMENT_WORDS: usize = 64;
/// Fills what lies between tensors, and memory whose contents are undefined. As a float it is not a number, so that reading it shows.
const POISON: u32 = 0xffff_ffff;

/// Runs `op` natively on `inputs`, each a shape and its bytes, with output 0 in the memory of input `in_place`. Returns the bytes of the
/// outputs, followed by the new contents of the inputs that [`Op::mutates`] names.
///
/// # Errors
/// Where the op refuses the inputs, an input's length is wrong, or something is written where it must not be.
pub fn run_op_on_cpu(
    cores: &Cores,
    op: &dyn Op,
    inputs: &[(TensorDesc, Vec<u8>)],
    in_place: Option<usize>,
) -> Result<Vec<Vec<u8>>, DeviceError> {
    let invalid = |reason: String| DeviceError::Validation { label: op.name().to_owned(), reason };
    let descs: Vec<_> = inputs.iter().map(|(desc, _)| desc.clone()).collect();
    if let Some((desc, data)) = inputs.iter().find(|(desc, data)| desc.size_bytes() != data.len() as u64) {
        return Err(invalid(format!("{} bytes given for {desc}", data.len())));
    }
    let outputs = op.outputs(&descs).map_err(|error| invalid(error.to_string()))?;
    // A guard behind each tensor.
    let mut end = 0;
    let mut place = |words: usize| {
        let start = end;
        end += words.next_multiple_of(ALIGNMENT_WORDS) + ALIGNMENT_WORDS;
        Range { arena: 0, start, words }
    };
    let input_places: Vec<_> = descs.iter().map(|desc| place(desc.words())).collect();
    let output_places = outputs.iter().enumerate().map(|(i, desc)| match in_place {
        Some(input) if i == 0 => input_places[input],
        _ => place(desc.words()),
    });
    let output_places: Vec<_> = output_places.collect();
    let sizes = workspaces(op, &descs, &outputs, Some(cores.threads()));
    let workspace_places: Vec<_> = sizes.iter().map(|bytes| place(bytes.div_ceil(WORD_BYTES) as usize)).collect();
    let mut memory = Memory::new(end as u64 * WORD_BYTES, "tensors of one op")?;
    memory.words_mut().fill(POISON);
    for (range, (_, data)) in input_places.iter().zip(inputs) {
        bytemuck::cast_slice_mut(&mut memory.words_mut()[range.start..][..range.words]).copy_from_slice(data);
    }
    let before = memory.words().to_vec();
    let operands = Operands::of(op, [descs, outputs], [&input_places, &output_places, &workspace_places], in_place);
    let arenas = &mut [memory];
    {
        let (mut call, workspaces) = operands.call(arenas, Input::InPlace);
        run_native(op, &mut call, &mut Resources { cores, workspaces, epilogue: Epilogue::default() });
    }
    let words = arenas[0].words();
    let changed = || op.mutates().iter().map(|&i| &input_places[i]);
    let written: Vec<_> = output_places
        .iter()
        .chain(&workspace_places)
        .chain(changed())
        .map(|range| range.start..range.start + range.words)
        .collect();
    let stray = (0..end).find(|at| words[*at] != before[*at] && !written.iter().any(|range| range.contains(at)));
    if let Some(at) = stray {
        return Err(invalid(format!("word {at} was written: inputs {input_places:?}, outputs {output_places:?}")));
    }
    let read = |range: &Range| bytemuck::cast_slice(&words[range.start..][..range.words]).to_vec();
    Ok(output_places.iter().chain(changed()).map(read).collect())
}

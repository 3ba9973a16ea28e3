//! One op on the cores of the CPU, alone: what the tests of native forms run.

use super::memory::Memory;
use super::operands::{Operands, Range, WORD_BYTES};
use crate::error::DeviceError;
use crate::native::Cores;
use crate::ops::stored::outputs_alone;
use crate::ops::{Epilogue, Input, Op, Resources, run_native};
use crate::tensor::TensorDesc;

/// Between tensors, so that what is written beyond one is seen.
const GUARD_WORDS: usize = 64;
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
    let outputs = outputs_alone(op, &descs).map_err(|error| invalid(error.to_string()))?;
    let (operands, words) = Operands::alone(op, [descs, outputs], cores.threads(), in_place, GUARD_WORDS);
    let mut memory = Memory::new(words as u64 * WORD_BYTES)?;
    memory.words_mut().fill(POISON);
    for (i, (_, data)) in inputs.iter().enumerate() {
        let Range { start, words, .. } = operands.input(i);
        bytemuck::cast_slice_mut(&mut memory.words_mut()[start..][..words]).copy_from_slice(data);
    }
    let before = memory.words().to_vec();
    let arenas = &mut [memory];
    {
        let (mut call, workspaces) = operands.call(arenas, Input::InPlace);
        run_native(op, &mut call, &mut Resources { cores, workspaces, epilogue: Epilogue::default() });
    }
    let after = arenas[0].words();
    let written: Vec<_> = operands.written().map(|Range { start, words, .. }| start..start + words).collect();
    let stray = (0..words).find(|at| after[*at] != before[*at] && !written.iter().any(|range| range.contains(at)));
    if let Some(at) = stray {
        return Err(invalid(format!("word {at} was written: {operands:?}")));
    }
    let read = |Range { start, words, .. }: Range| bytemuck::cast_slice(&after[start..][..words]).to_vec();
    let changed = op.mutates().iter().map(|&i| operands.input(i));
    Ok(operands.made.iter().copied().chain(changed).map(read).collect())
}

//! Ops on values however they are stored. An op computes with f32 and knows no other floats; here is what it takes where some of its
//! operands are floats of 16 bits.
//!
//! Kernels of devices convert what they load and store (`shader/memory.rs`). On the CPU, elementwise code does so block by block; for
//! any other code operands are converted in workspaces (`parts.rs`).

use super::parts::Layout;
use crate::native::half;
use crate::ops::{Call, Dispatch, Input, Op, Output, Resources, Target, native};
use crate::shader::{Family, MatrixOperand};
use crate::tensor::{DType, TensorDesc};

/// Tensors as an op computes with them.
pub(crate) fn computed(descs: &[TensorDesc]) -> Vec<TensorDesc> {
    descs.iter().map(TensorDesc::computed).collect()
}

/// The kernels to run.
pub(crate) fn dispatches(op: &dyn Op, inputs: &[TensorDesc], outputs: &[TensorDesc], target: &Target) -> Vec<Dispatch> {
    op.dispatches(&computed(inputs), &computed(outputs), &target_of(inputs, outputs, target))
}

/// The target for an op with such operands. Of a product's three matrices two are f16 where its policy is; with only one, as where
/// backward reads a copy in 16 bits, the others may not fit in f16.
fn target_of(inputs: &[TensorDesc], outputs: &[TensorDesc], target: &Target) -> Target {
    let f16_tensors = inputs.iter().chain(outputs).filter(|desc| desc.dtype == DType::F16).count();
    match target.f16_matrices {
        size if size > 0 && f16_tensors >= 2 => {
            Target { family: Family::Cooperative { size, operand: MatrixOperand::F16 }, ..*target }
        }
        _ => *target,
    }
}

/// Scratch of an op in bytes: of its kernels, or of its native form on so many threads, followed by what conversions take.
pub(crate) fn workspaces(
    op: &dyn Op,
    inputs: &[TensorDesc],
    outputs: &[TensorDesc],
    threads: Option<usize>,
) -> Vec<u64> {
    let own = |inputs: &[TensorDesc], outputs: &[TensorDesc]| native::workspaces(op, inputs, outputs, threads);
    if threads.is_none() || !is_converted(op, inputs, outputs) {
        return own(&computed(inputs), &computed(outputs));
    }
    let layout = Layout::new(op, inputs, outputs);
    let of_parts = layout.shapes().map(|[inputs, outputs]| own(&inputs, &outputs));
    let most = of_parts.reduce(|most, sizes| most.iter().zip(sizes).map(|(&a, b)| a.max(b)).collect());
    most.into_iter().flatten().chain(layout.sizes()).collect()
}

/// Runs an op on the cores of a CPU, with the workspaces that [`workspaces`] asks for.
pub(crate) fn run_native(op: &dyn Op, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
    if !is_converted(op, call.input_descs, call.output_descs) {
        return native::run_native(op, call, with);
    }
    Layout::new(op, call.input_descs, call.output_descs).run(op, call, with);
}

/// Whether an op meets floats of 16 bits, or would if it ran by itself.
fn is_converted(op: &dyn Op, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> bool {
    any_half(inputs) || any_half(outputs) || native::parts(op, inputs, outputs).is_some()
}

/// Whether floats of 16 bits are among these.
pub(in crate::ops) fn any_half(descs: &[TensorDesc]) -> bool {
    descs.iter().any(|desc| desc.dtype.half().is_some())
}

/// Runs an op's twin, with copies of what is stored in 16 bits.
pub(crate) fn run_twin(op: &dyn Op, call: &mut Call<'_, f32>) {
    if !any_half(call.input_descs) && !any_half(call.output_descs) {
        return op.run_f32(call);
    }
    let (input_descs, output_descs) = (computed(call.input_descs), computed(call.output_descs));
    let values = |input: &Input<'_, f32>| match *input {
        Input::Half(data, half) => data.iter().map(|&data| half::decode_one(half, data)).collect(),
        _ => Vec::new(),
    };
    let read: Vec<Vec<f32>> = call.inputs.iter().map(values).collect();
    let mut made: Vec<Vec<f32>> = call
        .outputs
        .iter()
        .zip(&output_descs)
        .map(|(output, desc)| if matches!(output, Output::Half(..)) { vec![0.0; desc.numel()] } else { Vec::new() })
        .collect();
    {
        let inputs = call.inputs.iter().zip(&input_descs).zip(&read).map(|((&input, desc), read)| match input {
            Input::Half(..) => Input::Real(&read[..desc.numel()]),
            other => other,
        });
        let inputs = inputs.collect();
        let outputs = call.outputs.iter_mut().zip(&mut made).map(|(output, made)| match output {
            Output::Half(..) => Output::Real(made),
            other => other.again(),
        });
        let outputs = outputs.collect();
        let mutated = call.mutated.iter_mut().map(Output::again).collect();
        op.run_f32(&mut Call { input_descs: &input_descs, output_descs: &output_descs, inputs, outputs, mutated });
    }
    for (output, made) in call.outputs.iter_mut().zip(made) {
        if let Output::Half(data, half) = output {
            data.iter_mut().zip(made).for_each(|(data, value)| *data = half::encode_one(*half, value));
        }
    }
}

/// The tensors of an op that runs alone: with floats of 16 bits among its inputs, it makes such too.
///
/// # Errors
/// Where the op refuses the shapes of its inputs.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn outputs_alone(op: &dyn Op, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, crate::error::OpError> {
    let mut made = op.outputs(&computed(inputs))?;
    if let Some(half) = inputs.iter().find_map(|desc| desc.dtype.half()) {
        for (i, desc) in made.iter_mut().enumerate() {
            if desc.dtype == DType::F32 && !op.full_precision(i) {
                desc.dtype = half.dtype();
            }
        }
    }
    Ok(made)
}

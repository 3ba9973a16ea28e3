//! Ops on values however they are stored. An op computes with f32 and knows no other floats; here is what it takes where some of its
//! operands are floats of 16 bits.
//!
//! Kernels of devices convert what they load and store (`shader/memory.rs`). On the CPU, elementwise code does so block by block; for
//! any other code an operand is converted as a whole, in a workspace of its own.

use crate::native::{Cores, half};
use crate::ops::{Call, Dispatch, Input, Op, Output, Resources, Slot, Target, native};
use crate::tensor::{Half, TensorDesc};

/// Tensors as an op computes with them.
pub(crate) fn computed(descs: &[TensorDesc]) -> Vec<TensorDesc> {
    descs.iter().map(TensorDesc::computed).collect()
}

/// The kernels to run.
pub(crate) fn dispatches(op: &dyn Op, inputs: &[TensorDesc], outputs: &[TensorDesc], target: &Target) -> Vec<Dispatch> {
    op.dispatches(&computed(inputs), &computed(outputs), target)
}

/// Scratch of an op in bytes: of its kernels, or of its native form on so many threads, followed by what conversions take.
pub(crate) fn workspaces(
    op: &dyn Op,
    inputs: &[TensorDesc],
    outputs: &[TensorDesc],
    threads: Option<usize>,
) -> Vec<u64> {
    let (inputs_computed, outputs_computed) = (computed(inputs), computed(outputs));
    let mut sizes = native::workspaces(op, &inputs_computed, &outputs_computed, threads);
    if threads.is_some() {
        sizes.extend(Conversions::of(op, inputs, outputs).sizes(&inputs_computed, &outputs_computed));
    }
    sizes
}

/// Which operands are converted, and in which workspace.
struct Conversions {
    inputs: Vec<Option<usize>>,
    outputs: Vec<Option<usize>>,
    /// The operand that each workspace is as large as.
    slots: Vec<Slot>,
}

impl Conversions {
    fn of(op: &dyn Op, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Self {
        let mut slots = Vec::new();
        let mut place = |slot: Slot, desc: &TensorDesc| {
            if desc.dtype.half().is_none() || native::takes_half(op, slot) {
                return None;
            }
            slots.push(slot);
            Some(slots.len() - 1)
        };
        let converted: Vec<_> = outputs.iter().enumerate().map(|(i, desc)| place(Slot::Output(i), desc)).collect();
        // What the output may take the place of is converted where the output will be.
        let shared = op.in_place().iter().find(|&&(input, output)| {
            output == 0 && converted[0].is_some() && inputs[input].dtype == outputs[0].dtype && native::has_form(op)
        });
        let inputs = inputs
            .iter()
            .enumerate()
            .map(|(i, desc)| match shared {
                Some(&(input, _)) if input == i && !native::takes_half(op, Slot::Input(i)) => converted[0],
                _ => place(Slot::Input(i), desc),
            })
            .collect();
        Conversions { inputs, outputs: converted, slots }
    }

    fn sizes(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Vec<u64> {
        let size_bytes = |slot: &Slot| match *slot {
            Slot::Input(i) => inputs[i].size_bytes(),
            Slot::Output(i) => outputs[i].size_bytes(),
            Slot::Workspace(_) => unreachable!("bug: a workspace is converted"),
        };
        self.slots.iter().map(size_bytes).collect()
    }
}

/// Runs an op on the cores of a CPU, with the workspaces that [`workspaces`] asks for.
pub(crate) fn run_native(op: &dyn Op, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
    let is_half = |desc: &TensorDesc| desc.dtype.half().is_some();
    if !call.input_descs.iter().chain(call.output_descs).any(is_half) {
        return native::run_native(op, call, with);
    }
    let conversions = Conversions::of(op, call.input_descs, call.output_descs);
    let (input_descs, output_descs) = (computed(call.input_descs), computed(call.output_descs));
    let own = with.workspaces.len() - conversions.slots.len();
    let mut rooms: Vec<Option<&mut [f32]>> = with.workspaces.split_off(own).into_iter().map(Some).collect();
    let cores = with.cores;
    let mut in_output = None;
    let mut found = vec![None; conversions.slots.len()];
    for (i, &place) in conversions.inputs.iter().enumerate() {
        let Some(place) = place else { continue };
        let room = rooms[place].as_mut().expect("bug: a workspace is taken twice");
        let room = &mut room[..input_descs[i].numel()];
        match (&call.inputs[i], &call.outputs[..]) {
            (&Input::Half(data, half), _) => decode(cores, half, data, room),
            (Input::InPlace, [Output::Half(data, half), ..]) => decode(cores, *half, data, room),
            _ => panic!("bug: an operand of 16 bits is none"),
        }
        if conversions.outputs.first() == Some(&Some(place)) {
            in_output = Some(i);
        } else {
            found[place] = rooms[place].take().map(|room| &*room);
        }
    }
    let (mut halves, mut made) = (Vec::new(), Vec::new());
    for ((output, desc), &place) in call.outputs.iter_mut().zip(&output_descs).zip(&conversions.outputs) {
        match (output, place) {
            (Output::Half(data, half), Some(place)) => {
                let room = rooms[place].take().expect("bug: a workspace is taken twice");
                made.push(Output::Real(&mut room[..desc.numel()]));
                halves.push(Some((&mut **data, *half)));
            }
            (output, _) => {
                made.push(output.again());
                halves.push(None);
            }
        }
    }
    {
        // An input in the memory of an output that is converted is read where it is.
        let beneath = match halves.first() {
            Some(Some((data, half))) => Some(Input::Half(data, *half)),
            _ => None,
        };
        let inputs = call.inputs.iter().enumerate().map(|(i, &input)| match (input, conversions.inputs[i]) {
            _ if in_output == Some(i) => Input::InPlace,
            (_, Some(place)) => {
                Input::Real(&found[place].expect("bug: nothing was converted")[..input_descs[i].numel()])
            }
            (Input::InPlace, None) => beneath.unwrap_or(Input::InPlace),
            (input, None) => input,
        });
        let inputs = inputs.collect();
        let mutated = call.mutated.iter_mut().map(Output::again).collect();
        let outputs = made.iter_mut().map(Output::again).collect();
        let mut call = Call { input_descs: &input_descs, output_descs: &output_descs, inputs, outputs, mutated };
        native::run_native(op, &mut call, with);
    }
    for (made, half) in made.into_iter().zip(halves) {
        if let (Output::Real(values), Some((data, half))) = (made, half) {
            cores.pieces(data, |start, data| half::encode(cores.level(), half, &values[start..][..data.len()], data));
        }
    }
}

fn decode(cores: &Cores, half: Half, data: &[u16], values: &mut [f32]) {
    cores.pieces(values, |start, values| half::decode(cores.level(), half, &data[start..][..values.len()], values));
}

/// Runs an op's twin, with copies of what is stored in 16 bits.
pub(crate) fn run_twin(op: &dyn Op, call: &mut Call<'_, f32>) {
    let is_half = |desc: &TensorDesc| desc.dtype.half().is_some();
    if !call.input_descs.iter().chain(call.output_descs).any(is_half) {
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
            if desc.dtype == crate::tensor::DType::F32 && !op.full_precision(i) {
                desc.dtype = half.dtype();
            }
        }
    }
    Ok(made)
}

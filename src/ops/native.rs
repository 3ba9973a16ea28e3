//! Native forms: ops in f32 on the vectors and threads of a CPU. The twin stays the reference; forms are tested against it in the
//! same cases as the kernels of devices.
//!
//! An op has a native form if it implements [`Native`], or [`Elements`] where it is elementwise; all others run their twin, on all cores
//! where [`Op::sample_inputs`] says how samples are told apart.

use std::cell::RefCell;
use std::fmt;

use crate::native::{Cores, Level, expand_bits, half};
use crate::ops::stored::any_half;
use crate::ops::{Call, Input, Op, Output, Parts, Slot};
use crate::tensor::{DType, Half, TensorDesc};

/// An op on the cores of a CPU.
pub trait Native: Sync {
    /// Scratch in bytes, for so many threads; alive only while the op runs. Results do not depend on the number of threads.
    fn workspaces(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], threads: usize) -> Vec<u64> {
        let _ = (inputs, outputs, threads);
        Vec::new()
    }

    /// Whether the form reads an input, or writes an output, of 16 bits as it is. Others are converted before and after.
    fn takes_half(&self, operand: Slot) -> bool {
        let _ = operand;
        false
    }

    /// How the op falls into parts, so that operands of 16 bits are converted part by part; `None` where it does not.
    fn parts(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Option<Parts> {
        let _ = (inputs, outputs);
        None
    }

    /// Whether the op meets floats of 16 bits where it runs by itself, fused with nothing.
    fn is_stored_half(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> bool {
        any_half(inputs) || any_half(outputs)
    }

    /// Runs the op. Of an input that is [`Input::InPlace`], the data is in output 0, to be read before it is written.
    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>);
}

/// A function of the elements at one place.
pub trait Elements: Sync {
    /// Computes each element of `output` from those of the operands at its place. All are of one length. Of an input of
    /// type u32, each bit is an operand, 1 or 0.
    fn elements(&self, level: Level, operands: &[&[f32]], output: &mut [f32]);
}

/// What a native form runs with.
#[derive(Debug)]
pub struct Resources<'a> {
    /// Threads and vectors.
    pub cores: &'a Cores,
    /// As [`Native::workspaces`] asked for, at least as long. What is in them is undefined.
    pub workspaces: Vec<&'a mut [f32]>,
    /// What is to be done to output 0 before it is written.
    pub epilogue: Epilogue<'a>,
}

/// Elementwise functions that follow an op, one after the other.
#[derive(Default)]
pub struct Epilogue<'a> {
    functions: Vec<(&'a dyn Elements, Vec<Source<'a>>)>,
}

/// Where an operand of a function comes from.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// What the function before has made.
    Value,
    /// What is in the memory of output 0 before it is written.
    Output,
    /// A tensor of the same length.
    Real(&'a [f32]),
    /// The same in 16 bits.
    Half(&'a [u16], Half),
    /// A bit for each element.
    Bits(&'a [u32]),
    /// What is made where it is needed.
    Made(&'a dyn Make),
}

/// An operand that lies nowhere in memory.
pub trait Make: fmt::Debug + Sync {
    /// Writes the elements from `start` on.
    fn make(&self, level: Level, start: usize, elements: &mut [f32]);
}

/// Numbers that are repeated: each for `inner` elements, and all of them over and over.
#[derive(Debug)]
pub(in crate::ops) struct Repeated<'a> {
    pub(in crate::ops) numbers: &'a [f32],
    pub(in crate::ops) inner: usize,
}

impl Make for Repeated<'_> {
    fn make(&self, _level: Level, start: usize, mut elements: &mut [f32]) {
        let Repeated { numbers, inner } = *self;
        let (mut number, mut within) = (start / inner % numbers.len(), start % inner);
        while !elements.is_empty() {
            let count = if inner == 1 { numbers.len() - number } else { inner - within }.min(elements.len());
            let (now, later) = elements.split_at_mut(count);
            if inner == 1 {
                now.copy_from_slice(&numbers[number..][..count]);
                number = 0;
            } else {
                now.fill(numbers[number]);
                number = if number + 1 == numbers.len() { 0 } else { number + 1 };
            }
            within = 0;
            elements = later;
        }
    }
}

impl<'a> Source<'a> {
    /// Input `i` of a run.
    pub fn of(input: &Input<'a, f32>) -> Self {
        match *input {
            Input::Real(data) => Source::Real(data),
            Input::Int(words) => Source::Bits(words),
            Input::Half(data, half) => Source::Half(data, half),
            Input::InPlace => Source::Output,
            Input::Mutated => panic!("bug: an elementwise function of what it changes"),
        }
    }
}

/// Elements that functions are applied to at a time, so that they stay in the first cache.
const BLOCK: usize = 512;
/// Pieces of a batch for each thread, so that one that is slow leaves some to the others.
const PIECES: usize = 2;
/// Most operands of a function.
const MAX_OPERANDS: usize = 3;

/// What a thread keeps for blocks: operands that do not lie anywhere as they are, two places for what goes from one
/// function to the next, and one for what is stored in 16 bits then.
struct Room {
    operands: [[f32; BLOCK]; MAX_OPERANDS],
    values: [[f32; BLOCK]; 2],
    output: [f32; BLOCK],
}

thread_local! {
    static ROOM: RefCell<Room> = const {
        RefCell::new(Room { operands: [[0.0; BLOCK]; MAX_OPERANDS], values: [[0.0; BLOCK]; 2], output: [0.0; BLOCK] })
    };
}

impl<'a> Epilogue<'a> {
    /// Adds a function.
    pub fn then(&mut self, function: &'a dyn Elements, operands: Vec<Source<'a>>) {
        assert!(operands.len() <= MAX_OPERANDS, "bug: a function of too many operands");
        self.functions.push((function, operands));
    }

    /// Adds what another does.
    pub(in crate::ops) fn extend(&mut self, other: &Epilogue<'a>) {
        self.functions.extend(other.functions.iter().map(|(function, sources)| (*function, sources.clone())));
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// Applies the functions to values that are to become the elements of output 0 from `start` on, and writes them there.
    /// `output` holds what is in memory at their places. Values are overwritten.
    #[inline]
    pub fn finish(&self, level: Level, start: usize, values: &mut [f32], output: &mut [f32]) {
        ROOM.with_borrow_mut(|Room { operands, values: [spare, _], .. }| {
            let blocks = values.chunks_mut(BLOCK).zip(output.chunks_mut(BLOCK));
            for (i, (values, output)) in blocks.enumerate() {
                self.block(level, start + i * BLOCK, [values, &mut spare[..]], output, operands);
            }
        });
    }

    /// Applies the functions, of which the first has no values, and writes what they come to.
    fn run(&self, level: Level, start: usize, output: &mut [f32]) {
        ROOM.with_borrow_mut(|Room { operands, values: [values, spare], .. }| {
            for (i, output) in output.chunks_mut(BLOCK).enumerate() {
                self.block(level, start + i * BLOCK, [&mut values[..], &mut spare[..]], output, operands);
            }
        });
    }

    /// The same, where the output is of 16 bits.
    fn run_half(&self, level: Level, start: usize, output: &mut [u16], format: Half) {
        let reads_output =
            self.functions.iter().any(|(_, sources)| sources.iter().any(|source| matches!(source, Source::Output)));
        ROOM.with_borrow_mut(|Room { operands, values: [values, spare], output: room }| {
            for (i, output) in output.chunks_mut(BLOCK).enumerate() {
                let room = &mut room[..output.len()];
                if reads_output {
                    half::decode(level, format, output, room);
                }
                self.block(level, start + i * BLOCK, [&mut values[..], &mut spare[..]], room, operands);
                half::encode(level, format, room, output);
            }
        });
    }

    /// Functions write to one place and read what is in the other; the last writes to the output.
    fn block(
        &self,
        level: Level,
        start: usize,
        [mut values, mut next]: [&mut [f32]; 2],
        output: &mut [f32],
        room: &mut [[f32; BLOCK]; MAX_OPERANDS],
    ) {
        let length = output.len();
        for (i, (function, sources)) in self.functions.iter().enumerate() {
            let mut operands: [&[f32]; MAX_OPERANDS] = [&[]; MAX_OPERANDS];
            for ((operand, room), source) in operands.iter_mut().zip(&mut *room).zip(sources) {
                let room = &mut room[..length];
                *operand = match *source {
                    Source::Real(data) => &data[start..start + length],
                    Source::Value => &values[..length],
                    Source::Output => {
                        room.copy_from_slice(output);
                        room
                    }
                    Source::Half(data, format) => {
                        half::decode(level, format, &data[start..start + length], room);
                        room
                    }
                    Source::Bits(words) => {
                        expand_bits(level, words, start, room);
                        room
                    }
                    Source::Made(make) => {
                        make.make(level, start, room);
                        room
                    }
                };
            }
            let operands = &operands[..sources.len()];
            if i + 1 == self.functions.len() {
                function.elements(level, operands, output);
            } else {
                function.elements(level, operands, &mut next[..length]);
                std::mem::swap(&mut values, &mut next);
            }
        }
    }
}

impl fmt::Debug for Epilogue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} functions", self.functions.len())
    }
}

/// Scratch of an op in bytes: of its kernels, or of its native form on so many threads.
pub(in crate::ops) fn workspaces(
    op: &dyn Op,
    inputs: &[TensorDesc],
    outputs: &[TensorDesc],
    threads: Option<usize>,
) -> Vec<u64> {
    let Some(threads) = threads else { return op.workspaces(inputs, outputs) };
    match op.native() {
        Some(native) => native.workspaces(inputs, outputs, threads),
        None if op.elements().is_some() => Vec::new(),
        // The twin has all operands in places of their own.
        None => op.in_place().iter().map(|&(input, _)| inputs[input].size_bytes()).max().into_iter().collect(),
    }
}

/// Whether an op has code for vectors and threads.
pub(in crate::ops) fn has_form(op: &dyn Op) -> bool {
    op.native().is_some() || op.elements().is_some()
}

/// Whether that code reads or writes an operand of 16 bits as it is.
pub(in crate::ops) fn takes_half(op: &dyn Op, operand: Slot) -> bool {
    match op.native() {
        Some(native) => native.takes_half(operand),
        None => op.elements().is_some(),
    }
}

/// How an op that meets floats of 16 bits falls into parts.
pub(in crate::ops) fn parts(op: &dyn Op, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Option<Parts> {
    let native = op.native().filter(|native| native.is_stored_half(inputs, outputs))?;
    native.parts(inputs, outputs)
}

/// Runs an op on the cores of a CPU.
pub(in crate::ops) fn run_native(op: &dyn Op, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
    if let Some(native) = op.native() {
        native.run(call, with);
    } else if let Some(function) = op.elements() {
        let sources = call.inputs.iter().map(Source::of).collect();
        elementwise(function, sources, call, with);
    } else {
        debug_assert!(with.epilogue.is_empty(), "bug: an epilogue after an op without a native form");
        with_copies(op, call, with);
    }
}

/// Runs the twin, with inputs that are in output 0 copied to a workspace.
fn with_copies(op: &dyn Op, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
    let Some(input) = call.inputs.iter().position(|input| matches!(input, Input::InPlace)) else {
        return by_samples(op, call, with.cores);
    };
    let length = call.input_descs[input].words();
    let copy = &mut with.workspaces[0][..length];
    match (&call.outputs[0], call.input_descs[input].dtype) {
        (Output::Real(data), _) => copy.copy_from_slice(&data[..length]),
        (Output::Int(words), _) => copy.copy_from_slice(bytemuck::cast_slice(&words[..length])),
        (Output::Half(..), _) => panic!("bug: a twin of floats of 16 bits"),
    }
    let data: &[f32] = copy;
    let outputs = call.outputs.iter_mut().map(Output::again).collect();
    let mutated = call.mutated.iter_mut().map(Output::again).collect();
    let mut inputs = call.inputs.clone();
    inputs[input] = match call.input_descs[input].dtype {
        DType::F32 | DType::F16 | DType::BF16 => Input::Real(data),
        DType::U32 | DType::U8 => Input::Int(bytemuck::cast_slice(data)),
    };
    let (input_descs, output_descs) = (call.input_descs, call.output_descs);
    by_samples(op, &mut Call { input_descs, output_descs, inputs, outputs, mutated }, with.cores);
}

/// Runs the twin on all cores, some samples on each, where samples can be told apart.
fn by_samples(op: &dyn Op, call: &mut Call<'_, f32>, cores: &Cores) {
    let split = op.sample_inputs();
    let samples = call.output_descs.first().and_then(|desc| desc.shape.first()).copied().unwrap_or(0);
    let of_samples = |desc: &TensorDesc| desc.shape.first() == Some(&samples) && desc.words() == desc.numel();
    let inputs_fit = split.iter().all(|&i| of_samples(&call.input_descs[i]));
    if split.is_empty() || samples < 2 || !inputs_fit || !call.output_descs.iter().all(of_samples) {
        return op.run_f32(call);
    }
    let count = samples.div_ceil(PIECES * cores.threads());
    // Elements of a sample, and the shape of some.
    let part = |desc: &TensorDesc, samples: usize| {
        let mut shape = desc.shape.to_vec();
        shape[0] = samples;
        TensorDesc { shape: shape.into(), ..desc.clone() }
    };
    let mut outputs: Vec<_> = call
        .outputs
        .iter_mut()
        .zip(call.output_descs)
        .map(|(output, desc)| {
            let length = count * desc.numel() / samples;
            match output {
                Output::Real(data) => data.chunks_mut(length).map(Output::Real).collect::<Vec<_>>().into_iter(),
                Output::Int(data) => data.chunks_mut(length).map(Output::Int).collect::<Vec<_>>().into_iter(),
                Output::Half(..) => panic!("bug: a twin of floats of 16 bits"),
            }
        })
        .collect();
    let mut tasks = Vec::new();
    for first in (0..samples).step_by(count) {
        let number = count.min(samples - first);
        let inputs: Vec<_> = call
            .inputs
            .iter()
            .zip(call.input_descs)
            .enumerate()
            .map(|(i, (input, desc))| {
                let range = first * desc.numel() / samples..(first + number) * desc.numel() / samples;
                match *input {
                    Input::Real(data) if split.contains(&i) => Input::Real(&data[range]),
                    Input::Int(data) if split.contains(&i) => Input::Int(&data[range]),
                    other => other,
                }
            })
            .collect();
        let own = |(i, desc): (usize, &TensorDesc)| if split.contains(&i) { part(desc, number) } else { desc.clone() };
        let input_descs: Vec<_> = call.input_descs.iter().enumerate().map(own).collect();
        let output_descs: Vec<_> = call.output_descs.iter().map(|desc| part(desc, number)).collect();
        let outputs: Vec<_> = outputs.iter_mut().filter_map(Iterator::next).collect();
        tasks.push((input_descs, output_descs, inputs, outputs));
    }
    cores.each(&mut tasks, |_, (input_descs, output_descs, inputs, outputs)| {
        let (inputs, outputs) = (std::mem::take(inputs), std::mem::take(outputs));
        op.run_f32(&mut Call { input_descs, output_descs, inputs, outputs, mutated: Vec::new() });
    });
}

/// Writes output 0 by an elementwise function, and what follows it, in one pass.
pub(in crate::ops) fn elementwise(
    function: &dyn Elements,
    sources: Vec<Source<'_>>,
    call: &mut Call<'_, f32>,
    with: &mut Resources<'_>,
) {
    let Resources { cores, epilogue, .. } = with;
    let is_plain = |source: &Source<'_>| matches!(source, Source::Real(_));
    if epilogue.is_empty() && sources.iter().all(is_plain) && matches!(call.outputs[0], Output::Real(_)) {
        return cores.pieces(call.output(0), |start, output| {
            let mut operands: [&[f32]; MAX_OPERANDS] = [&[]; MAX_OPERANDS];
            for (operand, source) in operands.iter_mut().zip(&sources) {
                if let Source::Real(data) = source {
                    *operand = &data[start..start + output.len()];
                }
            }
            function.elements(cores.level(), &operands[..sources.len()], output);
        });
    }
    let mut all = Epilogue::default();
    all.then(function, sources);
    all.extend(epilogue);
    match &mut call.outputs[0] {
        Output::Half(output, format) => {
            cores.pieces(output, |start, output| all.run_half(cores.level(), start, output, *format));
        }
        _ => cores.pieces(call.output(0), |start, output| all.run(cores.level(), start, output)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::error::OpError;
    use crate::ops::Real;

    /// Runs of the twin below.
    static RUNS: AtomicUsize = AtomicUsize::new(0);

    /// `output[n] = weight · Σ input[n, ·]`, an op from outside that has a twin alone.
    #[derive(Debug)]
    struct Scores;

    impl Scores {
        fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
            RUNS.fetch_add(1, Ordering::Relaxed);
            let (input, weight, width) = (call.input(0), call.input(1)[0], call.shape(0)[1]);
            for (score, row) in call.output(0).iter_mut().zip(input.chunks_exact(width)) {
                *score = weight * row.iter().fold(T::ZERO, |sum, &x| sum + x);
            }
        }
    }

    impl Op for Scores {
        fn name(&self) -> &'static str {
            "scores"
        }

        fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
            Ok(vec![TensorDesc::f32([inputs[0].shape[0]])])
        }

        fn sample_inputs(&self) -> &[usize] {
            &[0]
        }

        crate::twin!();
    }

    #[test]
    fn twins_run_on_all_cores_where_samples_can_be_told_apart() {
        let input: Vec<f32> = (0..7 * 3).map(|i| i as f32).collect();
        let expected: Vec<f32> = input.chunks_exact(3).map(|row| 0.5 * row.iter().sum::<f32>()).collect();
        let input_descs = [TensorDesc::f32([7, 3]), TensorDesc::f32([7])];
        let output_descs = [TensorDesc::f32([7])];
        for threads in [1, 2, 3] {
            let cores = Cores::new(threads, Level::best());
            let mut output = [f32::NAN; 7];
            let runs = RUNS.load(Ordering::Relaxed);
            // The weight has as many elements as there are samples, and is no sample.
            let inputs = vec![Input::Real(&input), Input::Real(&[0.5; 7])];
            let outputs = vec![Output::Real(&mut output)];
            let mut call =
                Call { input_descs: &input_descs, output_descs: &output_descs, inputs, outputs, mutated: Vec::new() };
            let mut with = Resources { cores: &cores, workspaces: Vec::new(), epilogue: Epilogue::default() };
            run_native(&Scores, &mut call, &mut with);
            assert_eq!(output[..], expected, "{threads} threads");
            assert!(RUNS.load(Ordering::Relaxed) - runs >= threads.max(2), "{threads} threads");
        }
    }
}

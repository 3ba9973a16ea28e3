//! One run of a CPU twin: where its inputs are and where its outputs go.

use crate::tensor::{Half, TensorDesc};

/// Data of one input.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a, T> {
    /// Real numbers.
    Real(&'a [T]),
    /// Labels or indices.
    Int(&'a [u32]),
    /// Floats of 16 bits. Only native forms that [say so](crate::ops::Native::takes_half) meet this.
    Half(&'a [u16], Half),
    /// The input is mutated: find its data among the outputs (see [`Call::mutated`]).
    Mutated,
    /// Output 0 takes over the input's memory, and holds its data before it is written. Only native forms of ops meet this.
    InPlace,
}

/// Data of one output, or of one mutated input.
#[derive(Debug)]
pub enum Output<'a, T> {
    /// Real numbers.
    Real(&'a mut [T]),
    /// Labels or indices.
    Int(&'a mut [u32]),
    /// Floats of 16 bits, as for inputs.
    Half(&'a mut [u16], Half),
}

/// One run of a CPU twin. All tensors are contiguous.
///
/// The contents of outputs are undefined before the run: write every element.
#[derive(Debug)]
pub struct Call<'a, T> {
    /// Shapes of the inputs.
    pub input_descs: &'a [TensorDesc],
    /// Shapes of the outputs.
    pub output_descs: &'a [TensorDesc],
    /// Data of the inputs.
    pub inputs: Vec<Input<'a, T>>,
    /// Data of the outputs.
    pub outputs: Vec<Output<'a, T>>,
    /// Data of the mutated inputs, in the order of [`Op::mutates`](crate::ops::Op::mutates).
    pub mutated: Vec<Output<'a, T>>,
}

impl<'a, T> Call<'a, T> {
    /// Real data of input `i`.
    pub fn input(&self, i: usize) -> &'a [T] {
        match self.inputs[i] {
            Input::Real(data) => data,
            _ => panic!("bug: input {i} is not a real tensor"),
        }
    }

    /// Integer data of input `i`.
    pub fn ints(&self, i: usize) -> &'a [u32] {
        match self.inputs[i] {
            Input::Int(data) => data,
            _ => panic!("bug: input {i} is not an integer tensor"),
        }
    }

    /// Extents of input `i`.
    pub fn shape(&self, i: usize) -> &'a [usize] {
        &self.input_descs[i].shape
    }

    /// Extents of output `i`.
    pub fn output_shape(&self, i: usize) -> &'a [usize] {
        &self.output_descs[i].shape
    }

    /// Real data of output `i`.
    pub fn output(&mut self, i: usize) -> &mut [T] {
        real(&mut self.outputs[i])
    }

    /// Real data of the first `N` outputs at once.
    pub fn split_outputs<const N: usize>(&mut self) -> [&mut [T]; N] {
        split(&mut self.outputs)
    }

    /// Integer data of output `i`.
    pub fn output_ints(&mut self, i: usize) -> &mut [u32] {
        match &mut self.outputs[i] {
            Output::Int(data) => data,
            _ => panic!("bug: output {i} is not an integer tensor"),
        }
    }

    /// Data of the mutated inputs, in the order of [`Op::mutates`](crate::ops::Op::mutates).
    pub fn mutated<const N: usize>(&mut self) -> [&mut [T]; N] {
        split(&mut self.mutated)
    }
}

impl<T> Output<'_, T> {
    /// The same data, for an op within an op.
    pub(in crate::ops) fn again(&mut self) -> Output<'_, T> {
        match self {
            Output::Real(data) => Output::Real(data),
            Output::Int(data) => Output::Int(data),
            Output::Half(data, half) => Output::Half(data, *half),
        }
    }
}

fn real<'b, T>(output: &'b mut Output<'_, T>) -> &'b mut [T] {
    match output {
        Output::Real(data) => data,
        _ => panic!("bug: an output of another type where f32 is written"),
    }
}

fn split<'b, T, const N: usize>(outputs: &'b mut [Output<'_, T>]) -> [&'b mut [T]; N] {
    let mut parts = outputs.iter_mut().map(real);
    std::array::from_fn(|_| parts.next().expect("bug: fewer outputs than the twin writes"))
}

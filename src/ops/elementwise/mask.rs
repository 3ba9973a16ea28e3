//! Signs in place of numbers: one bit for each element that an activation's backward needs to know the sign of.

use crate::error::OpError;
use crate::native::{Level, half, pack_signs};
use crate::ops::elementwise::activation::{self, GradInput};
use crate::ops::elementwise::formula;
use crate::ops::{
    Activation, Call, Cost, Dispatch, Elements, Elementwise, Input, Native, Op, Real, Resources, Slot, expect_count,
    expect_dtype,
};
use crate::shader::Target;
use crate::tensor::{DType, TensorDesc};

/// Bits of an element of the mask.
const BITS: usize = 32;
/// Words of a mask that are worth a task.
const LEAST_WORDS: usize = 256;
/// Words that are made at a time of what is stored in 16 bits.
const BLOCK_WORDS: usize = 16;

/// `bit i mod 32 of mask[⌊i / 32⌋] = 1 where saved[i] > 0, else 0`; bits past the end are 0.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Mask {
    /// `relu.mask`
    pub(in crate::ops) name: &'static str,
}

params! {
    struct Params {
        elements: u32,
        words: u32,
    }
}

impl Op for Mask {
    fn name(&self) -> &'static str {
        self.name
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count(self.name, inputs, 1)?;
        expect_dtype(self.name, "saved", &inputs[0], DType::F32)?;
        Ok(vec![TensorDesc::u32([inputs[0].numel().div_ceil(BITS)])])
    }

    fn dispatches(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let words = outputs[0].numel();
        let params = Params { elements: inputs[0].numel() as u32, words: words as u32 };
        let bindings = [Slot::Input(0), Slot::Output(0)];
        vec![Dispatch::new("sign_mask", "forward", bindings).params(&params).linear(words.div_ceil(64))]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Mask {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let saved = call.input(0);
        for (word, elements) in call.output_ints(0).iter_mut().zip(saved.chunks(BITS)) {
            *word = elements.iter().rev().fold(0, |word, &element| word << 1 | u32::from(element > T::ZERO));
        }
    }
}

impl Native for Mask {
    fn takes_half(&self, operand: Slot) -> bool {
        operand == Slot::Input(0)
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let level = with.cores.level();
        if let Input::Half(saved, format) = call.inputs[0] {
            return with.cores.pieces_of(call.output_ints(0), 1, LEAST_WORDS, |start, words| {
                let saved = &saved[start * BITS..saved.len().min((start + words.len()) * BITS)];
                let mut values = [0.0; BLOCK_WORDS * BITS];
                for (saved, words) in saved.chunks(BLOCK_WORDS * BITS).zip(words.chunks_mut(BLOCK_WORDS)) {
                    let values = &mut values[..saved.len()];
                    half::decode(level, format, saved, values);
                    pack_signs(level, values, words);
                }
            });
        }
        let saved = call.input(0);
        with.cores.pieces_of(call.output_ints(0), 1, LEAST_WORDS, |start, words| {
            let end = saved.len().min((start + words.len()) * BITS);
            pack_signs(level, &saved[start * BITS..end], words);
        });
    }
}

/// The gradient of an activation; inputs `mask, grad_output`.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct GradInputMask<A> {
    pub(in crate::ops) activation: A,
    /// `relu.grad_input_mask`
    pub(in crate::ops) name: &'static str,
}

impl<A: Activation> Op for GradInputMask<A> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count(self.name, inputs, 2)?;
        Ok(vec![inputs[1].clone()])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let bytes_moved = inputs.iter().chain(outputs).map(TensorDesc::size_bytes).sum();
        Cost { flops: A::FLOPS * outputs[0].numel() as u64, bytes_moved }
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(1, 0)]
    }

    fn elementwise(&self) -> Option<Elementwise> {
        Some(activation::gradient(&self.activation))
    }

    fn elements(&self) -> Option<&dyn Elements> {
        Some(self)
    }

    twin!();
}

impl<A: Activation> GradInputMask<A> {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (mask, grad_output) = (call.ints(0), call.input(1));
        for (i, (d, &g)) in call.output(0).iter_mut().zip(grad_output).enumerate() {
            let is_positive = mask[i / BITS] >> (i % BITS) & 1 == 1;
            *d = self.activation.gradient(if is_positive { T::ONE } else { T::ZERO }, g);
        }
    }
}

impl<A: Activation> Elements for GradInputMask<A> {
    fn elements(&self, level: Level, operands: &[&[f32]], output: &mut [f32]) {
        formula::elements(GradInput(self.activation), level, operands, output);
    }
}

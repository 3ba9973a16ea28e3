//! Adam and AdamW with moments of 8 bits.

mod codes;
mod native;

use std::sync::Arc;

use self::codes::{SIGNED, UNSIGNED};
use crate::error::OpError;
use crate::ops::optim::adam::{self, Adam};
use crate::ops::optim::update::{self, ElementwiseUpdate, States};
use crate::ops::{
    Call, Case, Cost, Dispatch, Fill, Flags, HYPER_LEN, KernelParams, Native, Op, Output, Real, UpdateRule,
};
use crate::shader::Target;
use crate::tensor::{DType, TensorDesc};

/// Elements that share a scale.
const BLOCK: usize = 256;
/// The least scale, 2⁻¹⁰⁰: what it is divided by, times a million, is a number.
const LEAST_SCALE: f32 = f32::from_bits((127 - 100) << 23);

/// [`Adam`] whose moments are kept as dynamic 8-bit codes, with a scale for each block of 256 elements: a step decodes them, moves them
/// and the parameter as Adam does in f32, and encodes them again
///
/// | tensor | shape |
/// |---|---|
/// | parameter (changed), gradient | any, both alike |
/// | codes of m `exp_avg` and v `exp_avg_sq` (changed), u8 | `[B, 256]` for B blocks of the parameter's elements in order |
/// | scales `exp_avg_scale`, `exp_avg_sq_scale` (changed) | `[B]`: the largest magnitude of a block, at least 2⁻¹⁰⁰ |
/// | hyper | `[4]`: as Adam's |
/// | guard | `[1]` |
///
/// A moment is its code's number times the scale of its block. Numbers are in seven decades below 1, each with twice as many as the one
/// below, 127 of each sign for m and 254 for v, and 0 and 1: see the paper. The nearest is taken, but no v above 0 becomes 0,
/// where the paper's own implementation allows that.
///
/// Parameters of fewer than `min_8bit_size` elements are left to Adam, with moments in f32.
///
/// **State:** codes and scales, from zeros: 2 bytes and a 32nd for an element in place of 8; codes past the last element are 0.
/// **Numerics:** f32; the parameter moves by the moments before they are encoded; where the guard is not finite nothing changes.
///
/// # Errors
/// Where shapes differ, codes are not u8, or another input is not f32.
///
/// Source: <https://arxiv.org/abs/2110.02861>, and `create_dynamic_map` of <https://github.com/bitsandbytes-foundation/bitsandbytes>
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam8bit {
    /// The update.
    pub adam: Adam,
    /// Parameters of fewer elements have moments in f32.
    pub min_8bit_size: usize,
}

/// The op for parameters that are large enough.
#[derive(Clone, Copy, Debug)]
struct Step(adam::Step);

fn states(parameter: &TensorDesc) -> States {
    let blocks = parameter.numel().div_ceil(BLOCK);
    let codes = TensorDesc { shape: [blocks, BLOCK].into(), dtype: DType::U8 };
    let scales = TensorDesc::f32([blocks]);
    vec![
        ("exp_avg", codes.clone()),
        ("exp_avg_sq", codes),
        ("exp_avg_scale", scales.clone()),
        ("exp_avg_sq_scale", scales),
    ]
}

impl Adam8bit {
    fn is_small(&self, parameter: &TensorDesc) -> bool {
        parameter.numel() < self.min_8bit_size
    }
}

impl UpdateRule for Adam8bit {
    fn op(&self, parameter: &TensorDesc) -> Arc<dyn Op> {
        if self.is_small(parameter) { self.adam.op(parameter) } else { Arc::new(Step(self.adam.step())) }
    }

    fn states(&self, parameter: &TensorDesc) -> States {
        if self.is_small(parameter) { self.adam.states(parameter) } else { states(parameter) }
    }

    fn hyper(&self, step: u64, lr: f64) -> [f32; HYPER_LEN] {
        self.adam.hyper(step, lr)
    }
}

const STATES: usize = 4;

impl Op for Step {
    fn name(&self) -> &'static str {
        "adam8bit"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        update::outputs("adam8bit", inputs, states)
    }

    fn cost(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Cost {
        // Two moments, each decoded and encoded by seven lines.
        let flops = (adam::Step::FLOPS + 2 * 58) * inputs[0].numel() as u64;
        Cost { flops, bytes_moved: update::bytes_moved(inputs, STATES) }
    }

    fn flags(&self) -> Flags {
        update::FLAGS
    }

    fn mutates(&self) -> &'static [usize] {
        update::mutates(STATES)
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let elements = inputs[0].numel();
        let blocks = elements.div_ceil(BLOCK);
        let mut params = KernelParams::default().with("elements", elements as u32).with("blocks", blocks as u32);
        self.0.settings().into_iter().for_each(|(name, value)| params.push(name, value as f32));
        vec![Dispatch::new("adam8bit", "forward", update::bindings(STATES)).params(params).linear(blocks).loops(6)]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

/// What changes: the parameter, the codes of both moments, and their scales.
struct Changed<'a, T> {
    parameter: &'a mut [T],
    codes: [&'a mut [u32]; 2],
    scales: [&'a mut [T]; 2],
}

impl<'a, T> Changed<'a, T> {
    fn of(mutated: &'a mut [Output<'_, T>]) -> Self {
        match mutated {
            [Output::Real(p), Output::Int(m), Output::Int(v), Output::Real(m_scale), Output::Real(v_scale)] => {
                Changed { parameter: p, codes: [m, v], scales: [m_scale, v_scale] }
            }
            _ => panic!("bug: other states than those of 8-bit Adam"),
        }
    }
}

impl Step {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (gradient, hyper, guard) = (call.input(1), call.input(6), call.input(7)[0]);
        if !guard.is_finite() {
            return;
        }
        let Changed { parameter, codes, scales } = Changed::of(&mut call.mutated);
        let kinds = [&SIGNED, &UNSIGNED];
        // Four codes in a word, the lowest first.
        let place = |i: usize| (i / 4, i % 4 * 8);
        for (block, (parameter, gradient)) in parameter.chunks_mut(BLOCK).zip(gradient.chunks(BLOCK)).enumerate() {
            let mut moments = [[T::ZERO; BLOCK]; 2];
            for (i, (p, &g)) in parameter.iter_mut().zip(gradient).enumerate() {
                let (word, shift) = place(block * BLOCK + i);
                let decoded = |k: usize| {
                    let code = (codes[k][word] >> shift) as u8;
                    kinds[k].number::<T>(code) * scales[k][block]
                };
                let mut states = [decoded(0), decoded(1)];
                *p = self.0.step(hyper, *p, g, &mut states);
                [moments[0][i], moments[1][i]] = states;
            }
            for k in 0..2 {
                let least = T::from_f64(LEAST_SCALE.into());
                let scale = moments[k].iter().fold(least, |largest, x| largest.max(x.abs()));
                scales[k][block] = scale;
                for (i, &moment) in moments[k].iter().enumerate() {
                    let (word, shift) = place(block * BLOCK + i);
                    let code = kinds[k].nearest(moment / scale);
                    codes[k][word] = codes[k][word] & !(0xff << shift) | u32::from(code) << shift;
                }
            }
        }
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let adam = Adam { betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.1, decoupled: false };
    let rule = |adam: Adam| Adam8bit { adam, min_8bit_size: 0 };
    let shapes: &[&[usize]] = &[&[1], &[7], &[255], &[256], &[257], &[10, 100], &[4099]];
    let mut cases = update::cases("l2", &rule(adam), shapes);
    let decoupled = rule(Adam { decoupled: true, ..adam });
    cases.extend(update::cases("decoupled", &decoupled, &[&[3, 5, 67]]));
    // Moments that only decay keep to all decades; those of scale 0 are 0.
    let case = |name: &str| Case { name: name.to_owned(), ..update::cases("", &decoupled, &[&[1025]]).swap_remove(0) };
    let mut decaying = case("decaying");
    decaying.inputs[1].1 = Fill::Constant(0.0);
    let mut first = case("first_step");
    [4, 5].into_iter().for_each(|scale| first.inputs[scale].1 = Fill::Constant(0.0));
    let mut still = Case { name: "still".to_owned(), ..first.clone() };
    still.inputs[1].1 = Fill::Constant(0.0);
    cases.extend([decaying, first, still]);
    cases
}

//! Random zeros: plain dropout, of whole channels, of whole samples.

use crate::error::OpError;
use crate::native::{Kernel, Level, Simd};
use crate::ops::elementwise::mul::Mul;
use crate::ops::random::philox::{self, philox4x32_10};
use crate::ops::{
    Backward, Builder, Call, Case, Cost, Dispatch, Flags, Make, Native, Op, Real, Resources, Slot, Source,
    expect_count, expect_dtype, expect_shape, native,
};
use crate::shader::Target;
use crate::tensor::{DType, TensorDesc, ValueId};

/// `output = input / (1 − p)` where a random number in 0..1 is at least `p`, 0 elsewhere
///
/// | tensor | shape |
/// |---|---|
/// | input | `[N, …]` |
/// | run, u32 | `[4]`: seed (low word, high word), step, index of the first sample within the step's batch |
/// | output | as input |
///
/// `block` consecutive elements of a sample share one number: 1 is plain dropout, the elements of a channel make
/// `Dropout2d`, those of a sample stochastic depth.
///
/// Number `b` of sample `n` is component `b mod 4` of Philox 4×32-10 at the counter `(⌊b / 4⌋, run[3] + n, run[2], stream)`
/// under the key `(run[0], run[1])`, over 2³². It depends on the sample's place in the step's batch, so it is the same
/// however the batch is split into micro-batches, and the same when it runs again.
///
/// **Saved for backward:** nothing: the gradient is the same op on that of the output. **In place:** yes.
/// **Numerics:** `p` is compared in steps of 2⁻³². `p = 1` gives zeros, `p = 0` the input. What is dropped is multiplied by 0:
/// NaN stays NaN, as in PyTorch.
///
/// # Errors
/// Where the input is not f32, `run` is not u32 `[4]`, `p` is not in 0..=1, or the elements of a sample are no multiple of
/// `block`.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.Dropout.html>; stochastic depth:
/// <https://arxiv.org/abs/1603.09382>
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// Probability of a zero.
    pub p: f32,
    /// Tells apart the dropouts of a model, so that each draws numbers of its own.
    pub stream: u32,
    /// Consecutive elements that share one number.
    pub block: usize,
}

/// Operations on an element that a generator's run of 10 rounds comes to.
const FLOPS: u64 = 70;

params! {
    struct Params {
        vectors: u32,
        sample: u32,
        block: u32,
        threshold: u32,
        scale: f32,
        stream: u32,
    }
}

/// Elements of a sample.
fn sample(input: &TensorDesc) -> usize {
    input.shape[1..].iter().product()
}

impl Dropout {
    /// Numbers from here on keep an element.
    fn threshold(&self) -> u32 {
        (f64::from(self.p) * 2f64.powi(32)) as u32
    }

    /// The factor of what is kept.
    fn scale(&self) -> f64 {
        if self.p < 1.0 { 1.0 / (1.0 - f64::from(self.p)) } else { 0.0 }
    }

    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (input, run) = (call.input(0), call.ints(1));
        let (seed_low, seed_high, step, first) = (run[0], run[1], run[2], run[3]);
        let sample = sample(&call.input_descs[0]);
        let (threshold, scale) = (self.threshold(), T::from_f64(self.scale()));
        for (i, (y, &x)) in call.output(0).iter_mut().zip(input).enumerate() {
            let (n, number) = (i / sample, i % sample / self.block);
            let counter = [(number / 4) as u32, first.wrapping_add(n as u32), step, self.stream];
            let is_kept = philox4x32_10(counter, [seed_low, seed_high])[number % 4] >= threshold;
            *y = x * if is_kept { scale } else { T::ZERO };
        }
    }
}

impl Op for Dropout {
    fn name(&self) -> &'static str {
        "dropout"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("dropout", inputs, 2)?;
        expect_dtype("dropout", "input", &inputs[0], DType::F32)?;
        expect_dtype("dropout", "run", &inputs[1], DType::U32)?;
        expect_shape("dropout", "run", &inputs[1], [4])?;
        let refuse = |setting, value, reason| Err(OpError::Setting { op: "dropout", setting, value, reason });
        if !(0.0..=1.0).contains(&self.p) {
            return refuse("p", self.p.to_string(), "a probability is between 0 and 1".to_owned());
        }
        if !sample(&inputs[0]).is_multiple_of(self.block) {
            let reason = format!("it does not divide the {} elements of a sample of {}", sample(&inputs[0]), inputs[0]);
            return refuse("block", self.block.to_string(), reason);
        }
        Ok(vec![inputs[0].clone()])
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None, None]) };
        Ok(vec![Some(graph.emit(*self, &[grad_output, forward.inputs[1]])?), None])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let bytes_moved = inputs.iter().chain(outputs).map(TensorDesc::size_bytes).sum();
        Cost { flops: FLOPS * outputs[0].numel() as u64, bytes_moved }
    }

    fn flags(&self) -> Flags {
        Flags { rng: true, ..Flags::default() }
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let vectors = inputs[0].numel().div_ceil(4);
        let params = Params {
            vectors: vectors as u32,
            sample: sample(&inputs[0]) as u32,
            block: self.block as u32,
            threshold: self.threshold(),
            scale: self.scale() as f32,
            stream: self.stream,
        };
        let bindings = [Slot::Input(0), Slot::Input(1), Slot::Output(0)];
        vec![Dispatch::new("dropout", "forward", bindings).params(&params).linear(vectors.div_ceil(64)).loops(4)]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for Dropout {
    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let run = call.ints(1);
        let (run, sample) = ([run[0], run[1], run[2], run[3]], sample(&call.input_descs[0]));
        let factors = Factors { of: *self, run, sample };
        native::elementwise(&Mul, vec![Source::of(&call.inputs[0]), Source::Made(&factors)], call, with);
    }
}

/// What elements are multiplied by.
#[derive(Clone, Copy, Debug)]
struct Factors {
    of: Dropout,
    run: [u32; 4],
    /// Elements of a sample.
    sample: usize,
}

impl Make for Factors {
    fn make(&self, level: Level, start: usize, elements: &mut [f32]) {
        level.run(Draw { factors: *self, start, elements });
    }
}

struct Draw<'a> {
    factors: Factors,
    start: usize,
    elements: &'a mut [f32],
}

/// Counters at once.
const LANES: usize = 16;

impl Kernel for Draw<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let Draw { factors: Factors { of, run: [seed_low, seed_high, step, first], sample }, start, elements } = self;
        let (threshold, scale) = (of.threshold(), of.scale() as f32);
        let numbers = sample / of.block;
        let (mut n, number) = (start / sample, start % sample / of.block);
        // Where in the four numbers of a counter, and in the elements of a number, the first element is.
        let (mut counter, mut component, mut place) = (number / 4, number % 4, start % of.block);
        let mut at = 0;
        while at < elements.len() {
            let (mut counters, mut samples) = ([0; LANES], [0; LANES]);
            for lane in 0..LANES {
                (counters[lane], samples[lane]) = (counter as u32, first.wrapping_add(n as u32));
                counter += 1;
                if 4 * counter >= numbers {
                    (counter, n) = (0, n + 1);
                }
            }
            let drawn = philox::lanes([counters, samples, [step; LANES], [of.stream; LANES]], [seed_low, seed_high]);
            let mut factors = [[0.0; 4]; LANES];
            for lane in 0..LANES {
                for k in 0..4 {
                    factors[lane][k] = if drawn[k][lane] >= threshold { scale } else { 0.0 };
                }
            }
            for (factors, &counter) in factors.iter().zip(&counters) {
                let factors = &factors[component..4.min(numbers - 4 * counter as usize)];
                if of.block == 1 {
                    let count = factors.len().min(elements.len() - at);
                    elements[at..at + count].copy_from_slice(&factors[..count]);
                    at += count;
                } else {
                    for &factor in factors {
                        let end = elements.len().min(at + of.block - place);
                        elements[at..end].fill(factor);
                        (at, place) = (end, 0);
                    }
                }
                component = 0;
            }
        }
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, p: f32, stream: u32, block: usize, shape: &[usize]| {
        Case::new(name, Dropout { p, stream, block }, [TensorDesc::f32(shape), TensorDesc::u32([4])])
    };
    vec![
        case("p0.5_4x64", 0.5, 0, 1, &[4, 64]),
        case("p0.1_3x7", 0.1, 1, 1, &[3, 7]),
        case("p0.3_samples_of_one_13", 0.3, 2, 1, &[13]),
        case("p0.75_2x3x5", 0.75, u32::MAX, 1, &[2, 3, 5]),
        case("p0_5x3", 0.0, 3, 1, &[5, 3]),
        case("p1_5x3", 1.0, 3, 1, &[5, 3]),
        case("one_1", 0.5, 8, 1, &[1]),
        case("channels_2x11x2x2", 0.5, 4, 4, &[2, 11, 2, 2]),
        case("channels_3x5x3x5", 0.5, 5, 15, &[3, 5, 3, 5]),
        case("channels_of_two_3x7x2", 0.4, 5, 2, &[3, 7, 2]),
        case("samples_31x2x3", 0.5, 6, 6, &[31, 2, 3]),
        case("samples_17x8", 0.5, 7, 8, &[17, 8]),
        case("p0.5_67x1031", 0.5, 9, 1, &[67, 1031]).large(),
        case("channels_5x130x7x9", 0.2, 10, 63, &[5, 130, 7, 9]).large(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{Input, Output};

    /// The factors that a dropout gives `shape`.
    fn factors(dropout: Dropout, shape: &[usize], run: [u32; 4]) -> Vec<f64> {
        let descs = [TensorDesc::f32(shape), TensorDesc::u32([4])];
        let outputs = dropout.outputs(&descs).expect("it fits");
        let ones = vec![1.0; descs[0].numel()];
        let mut factors = vec![f64::NAN; ones.len()];
        dropout.run_f64(&mut Call {
            input_descs: &descs,
            output_descs: &outputs,
            inputs: vec![Input::Real(&ones), Input::Int(&run)],
            outputs: vec![Output::Real(&mut factors)],
            mutated: Vec::new(),
        });
        factors
    }

    /// Within five standard deviations of the mean of `count` draws of 0 or `1 / (1 − p)`, which is 1.
    fn assert_mean_is_1(factors: &[f64], p: f64) {
        let mean = factors.iter().sum::<f64>() / factors.len() as f64;
        let deviation = (p / (1.0 - p) / factors.len() as f64).sqrt();
        assert!((mean - 1.0).abs() < 5.0 * deviation, "{mean} ± {deviation}");
    }

    #[test]
    fn drops_what_p_says_and_nothing_else_is_correlated() {
        for p in [0.1, 0.5, 0.9] {
            let dropout = Dropout { p, stream: 3, block: 1 };
            let (p, shape, run) = (f64::from(p), [64, 1021], [5, 6, 7, 8]);
            let drawn = factors(dropout, &shape, run);
            assert!(drawn.iter().all(|&f| f == 0.0 || (f - 1.0 / (1.0 - p)).abs() < 1e-12));
            assert_mean_is_1(&drawn, p);
            // Products of independent draws have mean 1 too: neighbours in a sample, in the batch, and the same element
            // under another seed, step and stream.
            let scale = 1.0 - p;
            let check = |other: &[f64]| {
                let both: Vec<_> = drawn.iter().zip(other).map(|(a, b)| a * b).collect();
                assert_mean_is_1(&both, 1.0 - scale * scale);
            };
            check(&drawn[1..]);
            check(&drawn[4..]);
            check(&drawn[shape[1]..]);
            check(&factors(dropout, &shape, [4, 6, 7, 8]));
            check(&factors(dropout, &shape, [5, 5, 7, 8]));
            check(&factors(dropout, &shape, [5, 6, 6, 8]));
            check(&factors(Dropout { stream: 2, ..dropout }, &shape, run));
        }
    }

    #[test]
    fn is_the_same_however_a_batch_is_split() {
        for block in [1, 3, 15] {
            let dropout = Dropout { p: 0.5, stream: 1, block };
            let whole = factors(dropout, &[7, 5, 3], [1, 2, 3, 0]);
            let parts = [(0, 3), (3, 1), (4, 3)];
            let parts = parts.map(|(first, count)| factors(dropout, &[count, 5, 3], [1, 2, 3, first]));
            assert_eq!(whole, parts.concat());
        }
    }

    #[test]
    fn a_block_has_one_number() {
        let drawn = factors(Dropout { p: 0.5, stream: 0, block: 5 }, &[100, 4, 5], [1, 2, 3, 4]);
        assert!(drawn.chunks(5).all(|block| block.iter().all(|&f| f == block[0])));
        let blocks: Vec<_> = drawn.chunks(5).map(|block| block[0]).collect();
        assert_mean_is_1(&blocks, 0.5);
    }

    #[test]
    fn takes_the_ends_of_p() {
        assert!(factors(Dropout { p: 0.0, stream: 0, block: 1 }, &[10, 100], [0; 4]).iter().all(|&f| f == 1.0));
        assert!(factors(Dropout { p: 1.0, stream: 0, block: 1 }, &[10, 100], [0; 4]).iter().all(|&f| f == 0.0));
    }

    #[test]
    fn refuses_what_does_not_fit() {
        let outputs = |p, block, run: TensorDesc| {
            let dropout = Dropout { p, stream: 0, block };
            dropout.outputs(&[TensorDesc::f32([2, 6]), run]).map_err(|error| error.to_string())
        };
        assert!(outputs(0.5, 3, TensorDesc::u32([4])).is_ok());
        assert!(outputs(f32::NAN, 1, TensorDesc::u32([4])).is_err_and(|e| e.contains("between 0 and 1")));
        assert!(outputs(-0.1, 1, TensorDesc::u32([4])).is_err());
        assert!(outputs(0.5, 4, TensorDesc::u32([4])).is_err_and(|e| e.contains("block = 4 is not possible")));
        assert!(outputs(0.5, 0, TensorDesc::u32([4])).is_err());
        assert!(outputs(0.5, 1, TensorDesc::u32([3])).is_err_and(|e| e.contains("`run` must be of shape [4]")));
    }
}

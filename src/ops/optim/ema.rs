//! Running statistics.

use crate::error::OpError;
use crate::native::{Fast, Rule};
use crate::ops::optim::update;
use crate::ops::{
    Call, Case, Cost, Dispatch, Fill, Flags, Native, Op, Real, Resources, Slot, expect_count, expect_dtype,
    expect_shape,
};
use crate::shader::Target;
use crate::tensor::{DType, TensorDesc, format_number};

/// `buffer = (1 − momentum) · buffer + momentum · factor · value`, in place: an exponential moving average
///
/// | tensor | shape |
/// |---|---|
/// | buffer (changed), value | any, both alike |
/// | guard | `[1]` |
///
/// It has no outputs and no gradient; it must run once.
///
/// **Numerics:** f32; both factors are computed in f64. Where the guard is not finite nothing changes. With momentum 1 the
/// buffer's contents take no part, whatever they are, and with factor 1 besides the buffer becomes `value`, bit for bit.
///
/// # Errors
/// Where shapes differ, an input is not f32, `momentum` is not in 0 to 1, or `factor` is not finite.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.BatchNorm2d.html> (running statistics)
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ema {
    /// Weight of the new value.
    pub momentum: f32,
    /// Factor of the new value: n / (n − 1) makes an unbiased variance of n values out of a biased one.
    pub factor: f32,
}

params! {
    struct Params {
        vectors: u32,
        keep: f32,
        rate: f32,
    }
}

impl Ema {
    /// Factors of the buffer and of the value.
    fn factors(self) -> [f64; 2] {
        let momentum = f64::from(self.momentum);
        [1.0 - momentum, momentum * f64::from(self.factor)]
    }
}

impl Op for Ema {
    fn name(&self) -> &'static str {
        "ema"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        let refuse = |setting, value: f32, reason: &str| {
            Err(OpError::Setting { op: "ema", setting, value: format_number(value), reason: reason.to_owned() })
        };
        expect_count("ema", inputs, 3)?;
        expect_dtype("ema", "buffer", &inputs[0], DType::F32)?;
        expect_dtype("ema", "value", &inputs[1], DType::F32)?;
        expect_shape("ema", "value", &inputs[1], inputs[0].shape.clone())?;
        expect_dtype("ema", "guard", &inputs[2], DType::F32)?;
        expect_shape("ema", "guard", &inputs[2], [1])?;
        if !(0.0..=1.0).contains(&self.momentum) {
            return refuse("momentum", self.momentum, "it must be a number from 0 to 1");
        }
        if !self.factor.is_finite() {
            return refuse("factor", self.factor, "it must be finite");
        }
        Ok(Vec::new())
    }

    fn cost(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Cost {
        Cost { flops: 3 * inputs[0].numel() as u64, bytes_moved: 3 * inputs[0].size_bytes() }
    }

    fn flags(&self) -> Flags {
        Flags { once: true, ..Flags::default() }
    }

    fn mutates(&self) -> &'static [usize] {
        &[0]
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let vectors = inputs[0].numel().div_ceil(4);
        let [keep, rate] = self.factors().map(|factor| factor as f32);
        vec![
            Dispatch::new("ema", "forward", [0, 1, 2].map(Slot::Input))
                .params(&Params { vectors: vectors as u32, keep, rate })
                .linear(vectors.div_ceil(64)),
        ]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for Ema {
    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let (value, guard) = (call.input(1), call.input(2)[0]);
        if guard.is_finite() {
            let [keep, rate] = self.factors().map(Real::from_f64);
            update::changes(with.cores, Average { keep, rate }, call.mutated::<1>(), [value]);
        }
    }
}

/// Weights of the buffer and of the value.
#[derive(Clone, Copy)]
struct Average<T> {
    keep: T,
    rate: T,
}

impl<T: Real> Average<T> {
    #[inline(always)]
    fn of(self, buffer: T, value: T) -> T {
        let share = if self.rate == T::ONE { value } else { self.rate * value };
        if self.keep == T::ZERO { share } else { self.keep * buffer + share }
    }
}

impl Rule<1, 1> for Average<Fast> {
    #[inline(always)]
    fn change(self, [buffer]: &mut [Fast; 1], [value]: [Fast; 1]) {
        *buffer = self.of(*buffer, value);
    }
}

impl Ema {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (value, guard) = (call.input(1), call.input(2)[0]);
        if !guard.is_finite() {
            return;
        }
        let [keep, rate] = self.factors().map(T::from_f64);
        let [buffer] = call.mutated();
        for (b, &v) in buffer.iter_mut().zip(value) {
            *b = Average { keep, rate }.of(*b, v);
        }
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, n: usize, momentum: f32, factor: f32, guard: f32| {
        let desc = TensorDesc::f32([n]);
        Case::new(name, Ema { momentum, factor }, [desc.clone(), desc, TensorDesc::f32([1])])
            .fill(2, Fill::Constant(guard))
            .forward_only()
    };
    vec![
        case("one", 1, 0.1, 1.0, 0.5),
        case("unbiased", 7, 0.1, 8.0 / 7.0, 0.5),
        case("vectors", 257, 0.25, 1.5, 0.0),
        case("kept", 7, 0.0, 1.0, 1.0),
        case("replaced", 7, 1.0, 1.0, 1.0),
        case("replaced_nan", 7, 1.0, 1.0, 1.0).fill(0, Fill::Constant(f32::NAN)),
        case("replaced_infinity", 7, 1.0, 2.0, 1.0).fill(0, Fill::Constant(f32::INFINITY)),
        case("guarded_nan", 7, 0.5, 1.0, f32::NAN),
        case("guarded_infinity", 7, 1.0, 1.0, f32::NEG_INFINITY),
    ]
}

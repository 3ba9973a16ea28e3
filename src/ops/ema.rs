//! Exponential moving averages, for running statistics.

use super::{Call, Case, Dispatch, Fill, Flags, Op, Real, Slot, expect_count, expect_dtype, expect_shape};
use crate::error::OpError;
use crate::shader::Target;
use crate::tensor::{DType, TensorDesc};

/// `buffer = (1 − momentum) · buffer + momentum · factor · value`, in place, unless the guard is not finite
///
/// | tensor | shape |
/// |---|---|
/// | buffer (changed), value | any, both alike |
/// | guard | `[1]` |
///
/// It has no outputs and no gradient; it must run once. **Numerics:** f32. With a momentum of 1 the buffer becomes
/// `factor · value` whatever it held.
///
/// # Errors
/// Where the shapes differ or an input is not f32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.BatchNorm2d.html>
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ema {
    /// How much of the value is taken over.
    pub momentum: f32,
    /// Multiplies the value.
    pub factor: f32,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    vectors: u32,
    momentum: f32,
    factor: f32,
}

impl Op for Ema {
    fn name(&self) -> &'static str {
        "ema"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("ema", inputs, 3)?;
        for (name, input) in ["buffer", "value", "guard"].into_iter().zip(inputs) {
            expect_dtype("ema", name, input, DType::F32)?;
        }
        expect_shape("ema", "value", &inputs[1], inputs[0].shape.clone())?;
        expect_shape("ema", "guard", &inputs[2], [1])?;
        Ok(Vec::new())
    }

    fn flags(&self) -> Flags {
        Flags { once: true, ..Flags::default() }
    }

    fn mutates(&self) -> &'static [usize] {
        &[0]
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let vectors = inputs[0].numel().div_ceil(4);
        let params = Params { vectors: vectors as u32, momentum: self.momentum, factor: self.factor };
        let bindings: Vec<_> = (0..3).map(Slot::Input).collect();
        vec![Dispatch::new("ema", "forward", bindings).params(&params).linear(vectors.div_ceil(64))]
    }

    twin!();
}

impl Ema {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (value, guard) = (call.input(1), call.input(2)[0]);
        if !guard.is_finite() {
            return;
        }
        let (momentum, factor) = (T::from_f64(f64::from(self.momentum)), T::from_f64(f64::from(self.factor)));
        let [buffer] = call.mutated();
        for (b, &v) in buffer.iter_mut().zip(value) {
            let kept = if self.momentum == 1.0 { T::ZERO } else { (T::ONE - momentum) * *b };
            *b = kept + momentum * (factor * v);
        }
    }
}

/// Test cases.
pub fn cases() -> Vec<Case> {
    let case = |name: &str, momentum: f32, factor: f32, n: usize, guard: f32| {
        let inputs = [TensorDesc::f32([n]), TensorDesc::f32([n]), TensorDesc::f32([1])];
        Case::new(name, Ema { momentum, factor }, inputs).fill(2, Fill::Constant(guard)).forward_only()
    };
    vec![
        case("1", 0.1, 1.0, 1, 0.5),
        case("7", 0.1, 1.25, 7, 0.5),
        case("257", 0.9, 1.0, 257, -3.0),
        case("replaces_65", 1.0, 1.0, 65, 1.0),
        case("guarded_nan", 0.1, 1.0, 7, f32::NAN),
        case("guarded_infinity", 1.0, 1.0, 7, f32::INFINITY),
    ]
}

//! Gaussian error linear unit.

use crate::ops::elementwise::activation::{self, Activation};
use crate::ops::onnx;
use crate::ops::{Case, Fill, Real};

/// Which formula [`Gelu`] uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeluForm {
    /// With the error function (PyTorch: `approximate="none"`).
    Erf,
    /// The approximation by tanh (PyTorch: `approximate="tanh"`).
    Tanh,
}

/// `output = input · Φ(input)`, where Φ is the normal distribution's cumulative function:
/// `(1 + erf(input / √2)) / 2`, or approximately `(1 + tanh(√(2/π) (input + 0.044715 input³))) / 2`
///
/// | tensor | shape |
/// |---|---|
/// | input | any |
/// | output | as input |
///
/// **Saved for backward:** the input. **In place:** yes.
/// **Numerics:** the kernel's Φ is within 1e-7 of the exact one, by a series in the middle and a fitted polynomial times
/// `exp(−input² / 2)` beyond (`shaders/shared/math.wgsl`).
///
/// # Errors
/// Where the input is not f32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.GELU.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gelu {
    /// The formula.
    pub approximate: GeluForm,
}

/// 1 / √2
const FRAC_1_SQRT_2: f64 = std::f64::consts::FRAC_1_SQRT_2;
/// 1 / √(2π)
const FRAC_1_SQRT_2PI: f64 = 0.398_942_280_401_432_7;
/// √(2/π)
const SQRT_2_OVER_PI: f64 = 0.797_884_560_802_865_4;
/// Factor of the cube in the approximation.
const CUBIC: f64 = 0.044715;

impl Activation for Gelu {
    const NAME: &'static str = "gelu";
    const GRAD_INPUT: &'static str = "gelu.grad_input";
    const FLOPS: u64 = 50;

    fn entries(&self) -> [&'static str; 2] {
        match self.approximate {
            GeluForm::Erf => ["forward", "grad_input"],
            GeluForm::Tanh => ["tanh_forward", "tanh_grad_input"],
        }
    }

    fn in_onnx(&self, call: &mut onnx::Call<'_>) -> Option<String> {
        let value = call.input(0);
        if call.opset() >= 20 {
            let form = if self.approximate == GeluForm::Erf { "none" } else { "tanh" };
            return Some(call.node("Gelu", &[&value], [("approximate", form.into())]));
        }
        let [one, half] = [1.0, 0.5].map(|number| call.number(number));
        let share = match self.approximate {
            GeluForm::Erf => {
                let root = call.number(std::f32::consts::SQRT_2);
                let scaled = call.apply("Div", &[&value, &root]);
                call.apply("Erf", &[&scaled])
            }
            GeluForm::Tanh => {
                let [three, cubic, root] = [3.0, CUBIC as f32, SQRT_2_OVER_PI as f32].map(|number| call.number(number));
                let cube = call.apply("Pow", &[&value, &three]);
                let cube = call.apply("Mul", &[&cube, &cubic]);
                let sum = call.apply("Add", &[&value, &cube]);
                let scaled = call.apply("Mul", &[&sum, &root]);
                call.apply("Tanh", &[&scaled])
            }
        };
        let share = call.apply("Add", &[&share, &one]);
        let output = call.apply("Mul", &[&value, &share]);
        Some(call.apply("Mul", &[&output, &half]))
    }

    fn saves_output(&self) -> bool {
        false
    }

    #[inline(always)]
    fn value<T: Real>(&self, x: T) -> T {
        let c = T::from_f64;
        match self.approximate {
            GeluForm::Erf => x * c(0.5) * (T::ONE + (x * c(FRAC_1_SQRT_2)).erf()),
            GeluForm::Tanh => x * c(0.5) * (T::ONE + (c(SQRT_2_OVER_PI) * (x + c(CUBIC) * x * x * x)).tanh()),
        }
    }

    #[inline(always)]
    fn gradient<T: Real>(&self, saved: T, grad_output: T) -> T {
        let (x, c) = (saved, T::from_f64);
        let derivative = match self.approximate {
            GeluForm::Erf => {
                let density = c(FRAC_1_SQRT_2PI) * (c(-0.5) * x * x).exp();
                c(0.5) * (T::ONE + (x * c(FRAC_1_SQRT_2)).erf()) + x * density
            }
            GeluForm::Tanh => {
                let t = (c(SQRT_2_OVER_PI) * (x + c(CUBIC) * x * x * x)).tanh();
                let inner = c(SQRT_2_OVER_PI) * (T::ONE + c(3.0 * CUBIC) * x * x);
                c(0.5) * (T::ONE + t) + c(0.5) * x * (T::ONE - t * t) * inner
            }
        };
        grad_output * derivative
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    [("exact_", GeluForm::Erf), ("tanh_", GeluForm::Tanh)]
        .into_iter()
        .flat_map(|(prefix, approximate)| {
            let mut cases = activation::cases(Gelu { approximate }, prefix, Fill::Normal);
            cases.push(activation::extreme(Gelu { approximate }, prefix));
            cases
        })
        .collect()
}

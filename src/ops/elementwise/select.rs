//! One of two, element by element.

use crate::error::OpError;
use crate::native::Level;
use crate::ops::elementwise::activation::shape_name;
use crate::ops::elementwise::formula::{self, Formula};
use crate::ops::onnx;
use crate::ops::{
    Backward, Builder, Call, Case, Elements, Elementwise, Fill, Op, Real, expect_count, expect_dtype, expect_shape,
};
use crate::tensor::{DType, TensorDesc, ValueId};

/// `output = a where condition ≠ 0, else b`
///
/// | tensor | shape |
/// |---|---|
/// | condition | any |
/// | a, b | as condition; none where the setting of that name is a number |
/// | output | as condition |
///
/// **Saved for backward:** the condition, which has no gradient. **In place:** over any input.
/// **Numerics:** exact. Nothing of what is not selected reaches the output, be it NaN, nor the gradient of either: that is 0
/// where it was not selected.
///
/// # Errors
/// Where the shapes differ or an input is not f32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.where.html>
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Select {
    /// A number in place of the tensor a.
    pub a: Option<f32>,
    /// A number in place of the tensor b.
    pub b: Option<f32>,
}

impl Op for Select {
    fn name(&self) -> &'static str {
        "select"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let condition = call.input(0);
        // 9 is bool.
        let condition = call.node("Cast", &[&condition], [("to", 9.into())]);
        let mut next = 1;
        let mut operand = |number: Option<f32>| match number {
            Some(number) => call.number(number),
            None => {
                next += 1;
                call.input(next - 1)
            }
        };
        let (a, b) = (operand(self.a), operand(self.b));
        let output = call.apply("Where", &[&condition, &a, &b]);
        // Of two numbers without axes, the condition gives the shape all the same.
        Some(vec![output])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        let names = [Some("condition"), self.a.is_none().then_some("a"), self.b.is_none().then_some("b")];
        expect_count("select", inputs, names.iter().flatten().count())?;
        for (name, input) in names.into_iter().flatten().zip(inputs) {
            expect_dtype("select", name, input, DType::F32)?;
            expect_shape("select", name, input, inputs[0].shape.clone())?;
        }
        Ok(vec![inputs[0].clone()])
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let mut gradients = vec![None; forward.inputs.len()];
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(gradients) };
        let condition = forward.inputs[0];
        let of_a = self.a.is_none().then_some(Select { a: None, b: Some(0.0) });
        let of_b = self.b.is_none().then_some(Select { a: Some(0.0), b: None });
        for (i, gradient) in (1..).zip([of_a, of_b].into_iter().flatten()) {
            if forward.wanted[i] {
                gradients[i] = Some(graph.emit(gradient, &[condition, grad_output])?);
            }
        }
        Ok(gradients)
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        match (self.a, self.b) {
            (None, None) => &[(1, 0), (2, 0), (0, 0)],
            (Some(_), Some(_)) => &[(0, 0)],
            _ => &[(1, 0), (0, 0)],
        }
    }

    fn elementwise(&self) -> Option<Elementwise> {
        let (entry, settings) = match (self.a, self.b) {
            (None, None) => ("forward", vec![]),
            (Some(a), None) => ("number_or_tensor", vec![a]),
            (None, Some(b)) => ("tensor_or_number", vec![b]),
            (Some(a), Some(b)) => ("numbers", vec![a, b]),
        };
        Some(Elementwise::new("select", entry, settings))
    }

    fn elements(&self) -> Option<&dyn Elements> {
        Some(self)
    }

    twin!();
}

impl Select {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        match (self.a, self.b) {
            (None, None) => formula::twin::<T, 3>(*self, call),
            (Some(_), Some(_)) => formula::twin::<T, 1>(*self, call),
            _ => formula::twin::<T, 2>(*self, call),
        }
    }
}

impl Elements for Select {
    fn elements(&self, level: Level, operands: &[&[f32]], output: &mut [f32]) {
        match operands.len() {
            1 => formula::elements::<1>(*self, level, operands, output),
            2 => formula::elements::<2>(*self, level, operands, output),
            _ => formula::elements::<3>(*self, level, operands, output),
        }
    }
}

/// One of two, by a condition.
#[inline(always)]
fn either<T: Real>(condition: T, a: T, b: T) -> T {
    if condition == T::ZERO { b } else { a }
}

#[inline(always)]
fn number<T: Real>(number: f32) -> T {
    T::from_f64(f64::from(number))
}

impl Formula<3> for Select {
    #[inline(always)]
    fn value<T: Real>(self, [condition, a, b]: [T; 3]) -> T {
        either(condition, a, b)
    }
}

impl Formula<2> for Select {
    #[inline(always)]
    fn value<T: Real>(self, [condition, x]: [T; 2]) -> T {
        let (a, b) = (self.a.map_or(x, number), self.b.map_or(x, number));
        either(condition, a, b)
    }
}

impl Formula<1> for Select {
    #[inline(always)]
    fn value<T: Real>(self, [condition]: [T; 1]) -> T {
        either(condition, number(self.a.unwrap_or(0.0)), number(self.b.unwrap_or(0.0)))
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (prefix, a, b) in [
        ("", None, None),
        ("number_or_tensor_", Some(-0.75), None),
        ("tensor_or_number_", None, Some(2.5)),
        ("numbers_", Some(1.5), Some(-0.75)),
    ] {
        let op = Select { a, b };
        let tensors = 1 + [a, b].iter().filter(|number| number.is_none()).count();
        for shape in [vec![1], vec![7], vec![2, 3, 5], vec![257]] {
            let inputs = vec![TensorDesc::f32(shape.clone()); tensors];
            let case = Case::new(format!("{prefix}{}", shape_name(&shape)), op, inputs).fill(0, Fill::Labels(2));
            cases.push(case.no_grad(0));
        }
    }
    // As a mask before a softmax.
    let mask = Select { a: None, b: Some(f32::NEG_INFINITY) };
    let mask = Case::new("tensor_or_infinity_7", mask, [TensorDesc::f32([7]), TensorDesc::f32([7])]);
    cases.push(mask.fill(0, Fill::Labels(2)).no_grad(0).large());
    // What is not selected is NaN.
    let nan = Case::new("nan_7", Select::default(), vec![TensorDesc::f32([7]); 3]).no_grad(0).large();
    cases.push(nan.fill(0, Fill::Constant(-2.0)).fill(2, Fill::Constant(f32::NAN)));
    cases
}

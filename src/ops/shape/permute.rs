//! Axes in another order.

use crate::error::OpError;
use crate::ops::onnx;
use crate::ops::shape::strided::{MAX_RANK, Strided};
use crate::ops::{
    Backward, Builder, Call, Case, Dispatch, Flags, Native, Op, Parts, Real, Resources, Slot, expect_count,
    expect_dtype,
};
use crate::shader::Target;
use crate::tensor::{DType, Shape, TensorDesc, ValueId};

/// `output[i₀, i₁, …] = input[…]` where axis `d` of the output is axis `axes[d]` of the input
///
/// | tensor | shape |
/// |---|---|
/// | input | [n₀, n₁, …], up to 6 axes |
/// | output | `[n of axes[0], n of axes[1], …]` |
///
/// A transpose is `axes: vec![1, 0]`.
///
/// **Saved for backward:** nothing. **In place:** no.
///
/// # Errors
/// Where the input is not f32 or has more than 6 axes, or `axes` does not name each axis once.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.permute.html>
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permute {
    /// For each axis of the output, the axis of the input.
    pub axes: Vec<usize>,
}

impl Permute {
    fn layout(&self, input: &Shape) -> Strided {
        let strides = input.strides();
        let pick = |from: &[usize]| self.axes.iter().map(|&axis| from[axis]).collect::<Vec<_>>();
        Strided::new(&pick(input), &pick(&strides))
    }

    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let layout = self.layout(&call.input_descs[0].shape);
        let input = call.input(0);
        for (i, y) in call.output(0).iter_mut().enumerate() {
            *y = input[layout.offset(i)];
        }
    }
}

impl Op for Permute {
    fn name(&self) -> &'static str {
        "permute"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let value = call.input(0);
        Some(vec![call.transpose(&value, &self.axes)])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("permute", inputs, 1)?;
        expect_dtype("permute", "input", &inputs[0], DType::F32)?;
        let shape = &inputs[0].shape;
        let refuse = |reason: String| {
            Err(OpError::Setting { op: "permute", setting: "axes", value: format!("{:?}", self.axes), reason })
        };
        if shape.len() > MAX_RANK {
            return refuse(format!("the input {} has more than {MAX_RANK} axes", inputs[0]));
        }
        let mut sorted = self.axes.clone();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..shape.len()) {
            return refuse(format!("it must name each axis of {} once", inputs[0]));
        }
        Ok(vec![TensorDesc::f32(self.axes.iter().map(|&axis| shape[axis]).collect::<Vec<_>>())])
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None]) };
        let mut axes = vec![0; self.axes.len()];
        for (to, &from) in self.axes.iter().enumerate() {
            axes[from] = to;
        }
        Ok(vec![Some(graph.emit(Permute { axes }, &[grad_output])?)])
    }

    fn flags(&self) -> Flags {
        Flags { batch_separable: self.axes.first() == Some(&0), ..Flags::default() }
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let layout = self.layout(&inputs[0].shape);
        vec![
            Dispatch::new("permute", "forward", [Slot::Input(0), Slot::Output(0)])
                .params(&layout.params(1.0))
                .linear(layout.elements().div_ceil(64)),
        ]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for Permute {
    fn parts(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Option<Parts> {
        (self.axes.first() == Some(&0)).then(|| Parts::samples([true], 1))
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let layout = self.layout(&call.input_descs[0].shape);
        layout.read(with.cores, call.input(0), call.output(0));
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, axes: &[usize], shape: &[usize]| {
        Case::new(name, Permute { axes: axes.to_vec() }, [TensorDesc::f32(shape)])
    };
    vec![
        case("transpose_3x5", &[1, 0], &[3, 5]),
        case("transpose_33x17", &[1, 0], &[33, 17]),
        case("same_order_2x3", &[0, 1], &[2, 3]),
        case("inner_transpose_2x3x4", &[0, 2, 1], &[2, 3, 4]),
        case("rotate_2x3x4", &[2, 0, 1], &[2, 3, 4]),
        case("nchw_to_nhwc_2x3x4x5", &[0, 2, 3, 1], &[2, 3, 4, 5]),
        case("reverse_2x3x4x5", &[3, 2, 1, 0], &[2, 3, 4, 5]),
        case("one_1", &[0], &[1]),
        case("ones_1x3x1", &[2, 1, 0], &[1, 3, 1]),
        case("five_axes_2x3x1x5x2", &[4, 1, 3, 0, 2], &[2, 3, 1, 5, 2]),
        case("six_axes_2x3x2x3x2x3", &[5, 4, 3, 2, 1, 0], &[2, 3, 2, 3, 2, 3]),
        case("transpose_127x129", &[1, 0], &[127, 129]).large(),
    ]
}

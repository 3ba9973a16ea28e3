//! Sum over axes.

use crate::error::OpError;
use crate::ops::onnx;
use crate::ops::reduce::reduction::{self, Axes};
use crate::ops::{
    Backward, Builder, Call, Case, Cost, Dispatch, Flags, Native, Op, Real, Resources, Slot, expect_count,
    expect_dtype, expect_shape,
};
use crate::shader::Target;
use crate::tensor::{DType, Shape, TensorDesc, ValueId};

/// `output = Σ input` over `axes`
///
/// | tensor | shape |
/// |---|---|
/// | input | any, up to 6 axes |
/// | output | the input's without `axes`, or with 1 there (`keepdim`); `[1]` where every axis is summed and `keepdim` is off |
///
/// **Saved for backward:** nothing. **In place:** no.
/// **Numerics:** f32; the order of additions depends on the shape only. A long sum is made of partial sums (at most 1024, or
/// as many as keep each below 32,768 terms), which need a workspace of 4 bytes each.
///
/// # Errors
/// Where the input is not f32 or has more than 6 axes, or an axis is out of range or named twice, or none is named.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.sum.html>
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sum {
    /// Axes to sum over, from 0.
    pub axes: Vec<usize>,
    /// Whether they stay, with extent 1.
    pub keepdim: bool,
}

/// The shape rule of reductions over axes.
pub(in crate::ops) fn outputs(
    op: &'static str,
    inputs: &[TensorDesc],
    axes: &[usize],
    keepdim: bool,
) -> Result<Vec<TensorDesc>, OpError> {
    expect_count(op, inputs, 1)?;
    expect_dtype(op, "input", &inputs[0], DType::F32)?;
    reduction::check_axes(op, axes, &inputs[0])?;
    Ok(vec![TensorDesc::f32(reduction::output_shape(&inputs[0].shape, axes, keepdim))])
}

/// A reduction does one operation per element of its input.
pub(in crate::ops) fn cost(inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
    Cost { flops: inputs[0].numel() as u64, bytes_moved: inputs[0].size_bytes() + outputs[0].size_bytes() }
}

impl Op for Sum {
    fn name(&self) -> &'static str {
        "sum"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        Some(vec![call.reduce("ReduceSum", &self.axes, self.keepdim)])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        outputs("sum", inputs, &self.axes, self.keepdim)
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None]) };
        let shape = graph.desc(forward.inputs[0]).shape.clone();
        let repeat = SumGradInput { name: "sum.grad_input", shape, axes: self.axes.clone(), scale: 1.0 };
        Ok(vec![Some(graph.emit(repeat, &[grad_output])?)])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        cost(inputs, outputs)
    }

    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Vec<u64> {
        let sum = Axes::new(&inputs[0].shape, &self.axes);
        reduction::workspaces(sum.outputs, sum.terms)
    }

    fn flags(&self) -> Flags {
        Flags { batch_separable: !self.axes.contains(&0), ..Flags::default() }
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        Axes::new(&inputs[0].shape, &self.axes).sum(Slot::Input(0), 1.0)
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for Sum {
    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _threads: usize) -> Vec<u64> {
        Axes::new(&inputs[0].shape, &self.axes).fold_workspaces()
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        Axes::new(&call.input_descs[0].shape, &self.axes).sum_on(call, 1.0, with);
    }
}

impl Sum {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        Axes::new(&call.input_descs[0].shape, &self.axes).sum_twin(call, T::ONE);
    }
}

/// `grad_input = scale · grad_output`, repeated along the axes that were summed.
#[derive(Clone, Debug)]
pub(in crate::ops) struct SumGradInput {
    pub(in crate::ops) name: &'static str,
    /// Shape of the input of the sum.
    pub(in crate::ops) shape: Shape,
    pub(in crate::ops) axes: Vec<usize>,
    pub(in crate::ops) scale: f64,
}

impl Op for SumGradInput {
    fn name(&self) -> &'static str {
        self.name
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count(self.name, inputs, 1)?;
        let keepdim = inputs[0].shape.len() == self.shape.len();
        expect_shape(self.name, "grad_output", &inputs[0], reduction::output_shape(&self.shape, &self.axes, keepdim))?;
        Ok(vec![TensorDesc::f32(self.shape.clone())])
    }

    fn dispatches(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        Axes::new(&self.shape, &self.axes).repeat(self.scale as f32)
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for SumGradInput {
    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let axes = Axes::new(&self.shape, &self.axes);
        axes.repeat_on(with.cores, call.input(0), call.output(0), self.scale as f32);
    }
}

impl SumGradInput {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        Axes::new(&self.shape, &self.axes).repeat_twin(call, T::from_f64(self.scale));
    }
}

/// The cases of reductions over axes.
pub(in crate::ops) fn axis_cases<O: Op>(op: impl Fn(Vec<usize>, bool) -> O) -> Vec<Case> {
    let case = |name: &str, axes: &[usize], keepdim: bool, shape: &[usize]| {
        let terms = axes.iter().map(|&axis| shape[axis]).product();
        Case::new(name, op(axes.to_vec(), keepdim), [TensorDesc::f32(shape)]).reduction(terms)
    };
    vec![
        case("axis0_4x5", &[0], false, &[4, 5]),
        case("axis1_4x5", &[1], false, &[4, 5]),
        case("axis1_keep_4x5", &[1], true, &[4, 5]),
        case("axis1_2x3x4", &[1], false, &[2, 3, 4]),
        case("axes0_2_2x3x4", &[0, 2], false, &[2, 3, 4]),
        case("axes2_3_keep_2x3x4x5", &[2, 3], true, &[2, 3, 4, 5]),
        case("axes0_2_3_2x3x4x5", &[0, 2, 3], false, &[2, 3, 4, 5]),
        case("axis1_2x300", &[1], false, &[2, 300]),
        case("all_3x5", &[0, 1], false, &[3, 5]),
        case("all_keep_3x5", &[0, 1], true, &[3, 5]),
        case("all_1", &[0], false, &[1]),
        case("alternating_2x3x2x3x2x3", &[0, 2, 4], false, &[2, 3, 2, 3, 2, 3]),
        case("alternating_odd_2x3x2x3x2x3", &[1, 3, 5], true, &[2, 3, 2, 3, 2, 3]),
        case("unsorted_axes_2x3x4", &[2, 0], false, &[2, 3, 4]),
        case("ones_1x7x1", &[0, 2], false, &[1, 7, 1]),
        case("split_511", &[0], false, &[511]).large(),
        case("split_512", &[0], false, &[512]).large(),
        case("split_axis0_1031x3", &[0], false, &[1031, 3]).large(),
        case("split_axis1_3x1031", &[1], false, &[3, 1031]).large(),
        case("split_axes0_2_3_31x5x13x17", &[0, 2, 3], false, &[31, 5, 13, 17]).large(),
        case("workgroup_combine_20011", &[0], false, &[20_011]).large(),
        case("longer_than_one_invocation_may_loop_70001", &[0], false, &[70_001]).large(),
        case("longer_still_axis0_300007x1", &[0], true, &[300_007, 1]).large(),
        case("many_outputs_axis0_300x1025", &[0], false, &[300, 1025]).large(),
    ]
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    axis_cases(|axes, keepdim| Sum { axes, keepdim })
}

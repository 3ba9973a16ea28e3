//! One number per channel, added.

use crate::error::OpError;
use crate::ops::elementwise::activation;
use crate::ops::elementwise::add::Add;
use crate::ops::native::Repeated;
use crate::ops::onnx;
use crate::ops::reduce::reduction::{self, Axes};
use crate::ops::reduce::sum;
use crate::ops::{
    Backward, Builder, Call, Case, Cost, Dispatch, Native, Op, Real, Resources, Slot, Source, expect_count,
    expect_dtype, expect_shape, native,
};
use crate::shader::Target;
use crate::tensor::{DType, Shape, TensorDesc, ValueId};

/// `output[n, c, …] = input[n, c, …] + bias[c]`
///
/// | tensor | shape |
/// |---|---|
/// | input | `[N, C, …]` |
/// | bias | `[C]` |
/// | output | as input |
///
/// **Saved for backward:** nothing. **In place:** yes, on the input.
/// **Numerics:** the gradient of the bias is a sum with the order of [`Sum`](crate::ops::reduce::sum::Sum), whose kernels run.
///
/// # Errors
/// Where an input is not f32, the input has fewer than 2 dimensions or more than 6, or the bias is not `[C]`.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.Linear.html> (the addition)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BiasAdd;

params! {
    struct Params {
        vectors: u32,
        channels: u32,
        inner: u32,
    }
}

/// Elements of one channel of one sample.
fn inner(shape: &Shape) -> usize {
    shape[2..].iter().product()
}

impl Op for BiasAdd {
    fn name(&self) -> &'static str {
        "bias_add"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let [value, bias] = [0, 1].map(|i| call.input(i));
        let bias = call.over_channels(&bias, call.rank(0));
        Some(vec![call.apply("Add", &[&value, &bias])])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("bias_add", inputs, 2)?;
        expect_dtype("bias_add", "input", &inputs[0], DType::F32)?;
        expect_dtype("bias_add", "bias", &inputs[1], DType::F32)?;
        if !(2..=6).contains(&inputs[0].shape.len()) {
            let expected = "of 2 to 6 dimensions [N, C, …]".to_owned();
            return Err(OpError::Input { op: "bias_add", input: "input", expected, found: inputs[0].clone() });
        }
        expect_shape("bias_add", "bias", &inputs[1], [inputs[0].shape[1]])?;
        Ok(vec![inputs[0].clone()])
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None, None]) };
        let grad_bias = if forward.wanted[1] { Some(graph.emit(BiasAddGradBias, &[grad_output])?) } else { None };
        Ok(vec![Some(grad_output), grad_bias])
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let vectors = inputs[0].numel().div_ceil(4);
        let (channels, inner) = (inputs[0].shape[1] as u32, inner(&inputs[0].shape) as u32);
        let dispatch = Dispatch::new("bias_add", "forward", [Slot::Input(0), Slot::Input(1), Slot::Output(0)])
            .params(&Params { vectors: vectors as u32, channels, inner })
            .linear(vectors.div_ceil(64));
        let channel_vectors = inner == 1 && channels.is_multiple_of(4);
        vec![if channel_vectors { dispatch.constant("CHANNEL_VECTORS", 1) } else { dispatch }]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for BiasAdd {
    fn takes_half(&self, operand: Slot) -> bool {
        operand != Slot::Input(1)
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let bias = Repeated { numbers: call.input(1), inner: inner(&call.input_descs[0].shape) };
        native::elementwise(&Add, vec![Source::of(&call.inputs[0]), Source::Made(&bias)], call, with);
    }
}

impl BiasAdd {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let inner = inner(&call.input_descs[0].shape);
        let (input, bias) = (call.input(0), call.input(1));
        for (i, (y, &x)) in call.output(0).iter_mut().zip(input).enumerate() {
            *y = x + bias[i / inner % bias.len()];
        }
    }
}

/// `grad_bias[c] = Σ grad_output[n, c, …]` over all but c; input `grad_output`.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct BiasAddGradBias;

fn all_but_channels(shape: &Shape) -> Axes {
    let axes: Vec<_> = (0..shape.len()).filter(|&axis| axis != 1).collect();
    Axes::new(shape, &axes)
}

impl Op for BiasAddGradBias {
    fn name(&self) -> &'static str {
        "bias_add.grad_bias"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("bias_add.grad_bias", inputs, 1)?;
        Ok(vec![TensorDesc::f32([inputs[0].shape[1]])])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        sum::cost(inputs, outputs)
    }

    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Vec<u64> {
        let sum = all_but_channels(&inputs[0].shape);
        reduction::workspaces(sum.outputs, sum.terms)
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        all_but_channels(&inputs[0].shape).sum(Slot::Input(0), 1.0)
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for BiasAddGradBias {
    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _threads: usize) -> Vec<u64> {
        all_but_channels(&inputs[0].shape).fold_workspaces()
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        all_but_channels(&call.input_descs[0].shape).sum_on(call, 1.0, with);
    }
}

impl BiasAddGradBias {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        all_but_channels(&call.input_descs[0].shape).sum_twin(call, T::ONE);
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let case = |shape: &[usize]| {
        let descs = [TensorDesc::f32(shape), TensorDesc::f32([shape[1]])];
        let terms = shape.iter().product::<usize>() / shape[1];
        Case::new(activation::shape_name(shape), BiasAdd, descs).reduction(terms)
    };
    vec![
        case(&[1, 1]),
        case(&[4, 7]),
        case(&[2, 5, 3]),
        case(&[2, 3, 4, 5]),
        case(&[3, 17, 1, 1]),
        case(&[3, 8]),
        case(&[2, 3, 2, 2]),
        case(&[5, 1, 3]),
        case(&[2, 2, 3, 1, 3]),
        case(&[1031, 12]).large(),
        case(&[7, 3, 33, 31]).large(),
    ]
}

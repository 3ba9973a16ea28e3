//! Planes made larger by repeating their elements.

use crate::error::OpError;
use crate::ops::onnx;
use crate::ops::pool::native::upsample;
use crate::ops::sums::Sums;
use crate::ops::{
    Backward, Builder, Call, Case, Dispatch, MAX_LOOP_ITERATIONS, Native, Op, Parts, Real, Resources, Slot,
    expect_count, expect_dtype, expect_rank,
};
use crate::shader::Target;
use crate::tensor::{DType, Shape, TensorDesc, ValueId};

/// `output[n, c, y, x] = input[n, c, ⌊y / SY⌋, ⌊x / SX⌋]`
///
/// | tensor | shape |
/// |---|---|
/// | input | [N, C, H, W] |
/// | output | [N, C, H · SY, W · SX] |
///
/// **Saved for backward:** nothing. **In place:** no.
/// **Numerics:** forward exact; the gradient of an input element is the sum over its SY · SX copies in reading order.
///
/// # Errors
/// Where the input is not f32 [N, C, H, W], a scale is 0, or an element has more than 32,767 copies.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.UpsamplingNearest2d.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpsampleNearest2d {
    /// Copies of each element, down and across.
    pub scale: [usize; 2],
}

params! {
    struct Params {
        elements: u32,
        width: u32,
        scale: [u32; 2] as [scale_height, scale_width],
    }
}

impl UpsampleNearest2d {
    /// A launch over the elements of the smaller tensor, of this shape.
    fn launch(&self, entry: &'static str, input: &Shape) -> Dispatch {
        let elements = input.numel();
        let params =
            Params { elements: elements as u32, width: input[3] as u32, scale: self.scale.map(|scale| scale as u32) };
        Dispatch::new("upsample_nearest2d", entry, [Slot::Input(0), Slot::Output(0)])
            .params(&params)
            .linear(elements.div_ceil(64))
            .loops(self.scale[0] * (self.scale[1] + 1))
    }

    /// For each element of the larger tensor in order, its place in the smaller one, which has this width.
    fn sources(&self, elements: usize, width: usize) -> impl Iterator<Item = usize> {
        let [down, across] = self.scale;
        (0..elements).map(move |i| {
            let (row, x) = (i / (width * across), i % (width * across));
            row / down * width + x / across
        })
    }

    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let input = call.input(0);
        let sources = self.sources(call.output_descs[0].numel(), call.shape(0)[3]);
        for (y, source) in call.output(0).iter_mut().zip(sources) {
            *y = input[source];
        }
    }
}

impl Op for UpsampleNearest2d {
    fn name(&self) -> &'static str {
        "upsample_nearest2d"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let scales = call.floats([4], vec![1.0, 1.0, self.scale[0] as f32, self.scale[1] as f32]);
        let value = call.input(0);
        let attributes = [
            ("mode", "nearest".into()),
            ("coordinate_transformation_mode", "asymmetric".into()),
            ("nearest_mode", "floor".into()),
        ];
        Some(vec![call.node("Resize", &[&value, "", &scales], attributes)])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("upsample_nearest2d", inputs, 1)?;
        expect_dtype("upsample_nearest2d", "input", &inputs[0], DType::F32)?;
        expect_rank("upsample_nearest2d", "input", &inputs[0], 4)?;
        let [down, across] = self.scale;
        let most = MAX_LOOP_ITERATIONS / 2;
        let reason = if self.scale.contains(&0) {
            "it must be at least 1".to_owned()
        } else if down.saturating_mul(across) as u64 > most {
            format!("an element is copied at most {most} times")
        } else {
            let shape = &inputs[0].shape;
            return Ok(vec![TensorDesc::f32([shape[0], shape[1], shape[2] * down, shape[3] * across])]);
        };
        let value = format!("{:?}", self.scale);
        Err(OpError::Setting { op: "upsample_nearest2d", setting: "scale", value, reason })
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None]) };
        Ok(vec![Some(graph.emit(UpsampleNearest2dGradInput(*self), &[grad_output])?)])
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        vec![self.launch("forward", &inputs[0].shape)]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for UpsampleNearest2d {
    fn parts(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Option<Parts> {
        Some(Parts::samples([true], 1))
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        upsample::nearest(with.cores, self.scale, call.shape(0)[3], call.input(0), call.output(0));
    }
}

/// `grad_input[n, c, h, w] = Σ grad_output` over the copies of (h, w); input `grad_output`.
#[derive(Clone, Copy, Debug)]
struct UpsampleNearest2dGradInput(UpsampleNearest2d);

impl Op for UpsampleNearest2dGradInput {
    fn name(&self) -> &'static str {
        "upsample_nearest2d.grad_input"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("upsample_nearest2d.grad_input", inputs, 1)?;
        let (shape, [down, across]) = (&inputs[0].shape, self.0.scale);
        Ok(vec![TensorDesc::f32([shape[0], shape[1], shape[2] / down, shape[3] / across])])
    }

    fn dispatches(&self, _inputs: &[TensorDesc], outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        vec![self.0.launch("grad_input", &outputs[0].shape)]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for UpsampleNearest2dGradInput {
    fn parts(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Option<Parts> {
        Some(Parts::samples([true], 1))
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let width = call.output_shape(0)[3];
        upsample::nearest_backward(with.cores, self.0.scale, width, call.input(0), call.output(0));
    }
}

impl UpsampleNearest2dGradInput {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let grad_output = call.input(0);
        let sources = self.0.sources(grad_output.len(), call.output_shape(0)[3]);
        let mut sums = Sums::new(call.output_descs[0].numel());
        for (&g, source) in grad_output.iter().zip(sources) {
            sums.add(source, g);
        }
        sums.write(call.output(0));
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, scale: [usize; 2], shape: [usize; 4]| {
        Case::new(name, UpsampleNearest2d { scale }, [TensorDesc::f32(shape)]).reduction(scale[0] * scale[1])
    };
    vec![
        case("scale2_2x3x4x5", [2, 2], [2, 3, 4, 5]),
        case("scale3x2_1x2x3x4", [3, 2], [1, 2, 3, 4]),
        case("scale1x5_2x1x3x3", [1, 5], [2, 1, 3, 3]),
        case("one_pixel", [1, 1], [1, 1, 1, 1]),
        case("one_pixel_scale7", [7, 7], [1, 2, 1, 1]),
        case("scale2_5x7x13x11", [2, 2], [5, 7, 13, 11]).large(),
        case("scale97x101_1x2x3x1", [97, 101], [1, 2, 3, 1]).large(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_scales_that_make_no_sense() {
        let outputs = |scale| UpsampleNearest2d { scale }.outputs(&[TensorDesc::f32([2, 3, 4, 5])]);
        assert_eq!(outputs([2, 3]), Ok(vec![TensorDesc::f32([2, 3, 8, 15])]));
        for scale in [[0, 1], [1, 0], [1 << 40, 1 << 40], [256, 256]] {
            assert!(matches!(outputs(scale), Err(OpError::Setting { setting: "scale", .. })), "{scale:?}");
        }
    }
}

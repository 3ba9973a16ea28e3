//! Bytes as normalized numbers.

use crate::error::OpError;
use crate::native::{Kernel, Simd};
use crate::ops::onnx;
use crate::ops::{
    Call, Case, Dispatch, Fill, Native, Op, Real, Resources, Slot, expect_count, expect_dtype, expect_finite,
};
use crate::shader::Target;
use crate::tensor::{DType, TensorDesc};

/// Channels that may each have a scale and an offset of their own.
pub const MAX_CHANNELS: usize = 4;

/// `output[n, c, …] = scale[c] · input[n, c, …] + offset[c]`, of bytes from 0 to 255. With one scale and one offset, all channels have these.
///
/// | tensor | shape |
/// |---|---|
/// | input, u8 | `[n, channels, …]`; any shape where all channels are alike |
/// | output | as input |
///
/// **Saved for backward:** nothing: bytes have no gradient. **In place:** no.
/// **Numerics:** two roundings, or one where the device fuses them.
///
/// # Errors
/// Where the input is not u8, there are not as many scales and offsets as channels or one, more than four of them, or one that is not
/// finite.
///
/// Source: <https://docs.pytorch.org/vision/stable/generated/torchvision.transforms.v2.Normalize.html>, with the division by 255 and by the
/// standard deviation in the scale
#[derive(Clone, Debug, PartialEq)]
pub struct Normalize {
    /// What the bytes of each channel are multiplied by.
    pub scale: Vec<f32>,
    /// What is added then.
    pub offset: Vec<f32>,
}

params! {
    struct Params {
        elements: u32,
        plane: u32,
        channels: u32,
        scale: [f32; 4] as [scale_0, scale_1, scale_2, scale_3],
        offset: [f32; 4] as [offset_0, offset_1, offset_2, offset_3],
    }
}

impl Op for Normalize {
    fn name(&self) -> &'static str {
        "normalize"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let value = call.input(0);
        let mut shape = vec![self.scale.len()];
        shape.resize(call.rank(0).saturating_sub(1).max(1), 1);
        let (scale, offset) = (call.floats(shape.clone(), self.scale.clone()), call.floats(shape, self.offset.clone()));
        let value = call.node("Cast", &[&value], [("to", 1.into())]);
        let value = call.apply("Mul", &[&value, &scale]);
        Some(vec![call.apply("Add", &[&value, &offset])])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("normalize", inputs, 1)?;
        expect_dtype("normalize", "input", &inputs[0], DType::U8)?;
        for (&scale, &offset) in self.scale.iter().zip(&self.offset) {
            expect_finite("normalize", "scale", scale)?;
            expect_finite("normalize", "offset", offset)?;
        }
        let (count, channels) = (self.scale.len(), inputs[0].shape.get(1).copied().unwrap_or(1));
        let is_known = count == 1 || (count == channels && count <= MAX_CHANNELS);
        if !is_known || self.offset.len() != count {
            return Err(OpError::Setting {
                op: "normalize",
                setting: "scale and offset",
                value: format!("{count} and {}", self.offset.len()),
                reason: format!(
                    "there must be one for all channels, or with up to {MAX_CHANNELS} channels one for each, of which there are {channels}"
                ),
            });
        }
        Ok(vec![TensorDesc::f32(inputs[0].shape.clone())])
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let elements = inputs[0].numel();
        let of = |values: &[f32]| std::array::from_fn(|channel| values.get(channel).copied().unwrap_or(0.0));
        let params = Params {
            elements: elements as u32,
            plane: self.plane(&inputs[0]) as u32,
            channels: self.scale.len() as u32,
            scale: of(&self.scale),
            offset: of(&self.offset),
        };
        vec![
            Dispatch::new("normalize", "forward", [Slot::Input(0), Slot::Output(0)])
                .params(&params)
                .linear(elements.div_ceil(4).div_ceil(64)),
        ]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for Normalize {
    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let plane = self.plane(&call.input_descs[0]);
        let bytes: &[u8] = bytemuck::cast_slice(call.ints(0));
        let level = with.cores.level();
        with.cores.rows(call.output(0), plane, |row, column, output| {
            let channel = row % self.scale.len();
            let bytes = &bytes[row * plane + column..][..output.len()];
            level.run(OfBytes { bytes, scale: self.scale[channel], offset: self.offset[channel], output });
        });
    }
}

struct OfBytes<'a> {
    bytes: &'a [u8],
    scale: f32,
    offset: f32,
    output: &'a mut [f32],
}

impl Kernel for OfBytes<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        for (y, &byte) in self.output.iter_mut().zip(self.bytes) {
            *y = self.scale * f32::from(byte) + self.offset;
        }
    }
}

impl Normalize {
    /// Elements that have one scale, one after the other.
    fn plane(&self, input: &TensorDesc) -> usize {
        if self.scale.len() == 1 { input.numel() } else { input.shape[2..].iter().product() }
    }

    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let plane = self.plane(&call.input_descs[0]);
        let words = call.ints(0);
        let exact = |values: &[f32]| -> Vec<T> { values.iter().map(|&value| T::from_f64(value.into())).collect() };
        let (scale, offset) = (exact(&self.scale), exact(&self.offset));
        for (i, y) in call.output(0).iter_mut().enumerate() {
            // Four bytes in a word, the lowest first.
            let byte = words[i / 4] >> (i % 4 * 8) & 0xff;
            let channel = i / plane % scale.len();
            *y = scale[channel] * T::from_f64(byte.into()) + offset[channel];
        }
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, shape: &[usize], scale: &[f32], offset: &[f32]| {
        let op = Normalize { scale: scale.to_vec(), offset: offset.to_vec() };
        Case::new(name, op, [TensorDesc { shape: shape.into(), dtype: DType::U8 }]).fill(0, Fill::Labels(256))
    };
    let (scale, offset) = ([0.017, 0.018, -0.5, 2.0], [-2.1, 0.25, 1.0, -7.0]);
    vec![
        case("1", &[1], &[0.25], &[0.5]),
        case("7", &[7], &[1.0 / 255.0], &[0.0]),
        case("2x3x5_alike", &[2, 3, 5], &[0.5], &[-1.0]),
        case("2x1x5x3", &[2, 1, 5, 3], &scale[..1], &offset[..1]),
        case("3x2x5", &[3, 2, 5], &scale[..2], &offset[..2]),
        case("2x3x5x7", &[2, 3, 5, 7], &scale[..3], &offset[..3]),
        case("2x4x17", &[2, 4, 17], &scale, &offset),
        case("5x3", &[5, 3], &scale[..3], &offset[..3]),
        case("3x6x11_alike", &[3, 6, 11], &[-0.125], &[3.0]),
    ]
}

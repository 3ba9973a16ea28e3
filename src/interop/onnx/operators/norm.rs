//! Normalizations.

use super::moves::axis;
use crate::error::GraphError;
use crate::interop::onnx::call::{Call, Made, Part, one};
use crate::interop::onnx::constant::elements;
use crate::interop::onnx::walk::Dense;
use crate::nn::{BatchNorm, Init};
use crate::ops::Affine;
use crate::ops::elementwise::{add_scalar, mul, pow, scale};
use crate::ops::norm::{group_norm, layer_norm, rms_norm};
use crate::ops::pool::avg_pool2d::AvgPool2d;

const ONES: Part = Part::Trained(Init::ONES);
const ZEROS: Part = Part::Trained(Init::ZEROS);

fn epsilon(call: &Call<'_, '_, '_>) -> f32 {
    // The least that an op takes.
    call.node.float("epsilon").unwrap_or(1e-5).max(f32::MIN_POSITIVE)
}

pub(super) fn batch(call: &mut Call<'_, '_, '_>) -> Made {
    if call.node.outputs.iter().skip(1).any(Option::is_some) && call.walk.graph.outputs.len() > 1 {
        return call.refuse("its running statistics are not there as outputs: they are kept beside the parameters");
    }
    let own = call.shape(0)?;
    if own.len() < 2 {
        return call.refuse(format!("it takes tensors of channels, found {own:?}"));
    }
    let x = call.numbers(0)?;
    let weight = call.weight(1, ONES)?;
    let bias = call.weight(2, ZEROS)?;
    let mean = call.weight(3, Part::Kept(Init::ZEROS))?;
    let var = call.weight(4, Part::Kept(Init::ONES))?;
    // What of the running ones stays, there; what is taken over, here.
    let momentum = (1.0 - call.node.float("momentum").unwrap_or(0.9)).clamp(0.0, 1.0);
    let layer = BatchNorm::new().eps(epsilon(call)).momentum(momentum);
    let is_kept = [mean.id, var.id].iter().all(|&id| call.scope.is_buffer(id));
    if call.scope.is_training() && !is_kept {
        return call.refuse("its running statistics are no initializers: such a model cannot be trained");
    }
    let id = layer.normalize(call.scope, x.id, &[weight.id, bias.id], Some([mean.id, var.id]))?;
    one(Dense { id, ..x })
}

pub(super) fn layer(call: &mut Call<'_, '_, '_>) -> Made {
    let own = call.shape(0)?;
    let axis = axis(call, "axis", -1, own.len())?;
    if axis == 0 {
        return call.refuse("axis 0 is that of the batch, which is not normalized");
    }
    let x = call.numbers(0)?;
    let weight = over(call, 1, ONES, &own[axis..])?;
    let mut inputs = vec![&x, &weight];
    let bias = if call.has(2) { Some(over(call, 2, ZEROS, &own[axis..])?) } else { None };
    inputs.extend(&bias);
    let affine = if bias.is_some() { Affine::Full } else { Affine::Weight };
    let y = call.apply(layer_norm::LayerNorm { dims: own.len() - axis, eps: epsilon(call), affine }, &inputs)?;
    one(y)
}

pub(super) fn root_mean_square(call: &mut Call<'_, '_, '_>) -> Made {
    let own = call.shape(0)?;
    let axis = axis(call, "axis", -1, own.len())?;
    if axis == 0 {
        return call.refuse("axis 0 is that of the batch, which is not normalized");
    }
    let x = call.numbers(0)?;
    let weight = over(call, 1, ONES, &own[axis..])?;
    let op = rms_norm::RmsNorm { dims: own.len() - axis, eps: epsilon(call), affine: Affine::Weight };
    let y = call.apply(op, &[&x, &weight])?;
    one(y)
}

/// A weight over these axes.
fn over(call: &mut Call<'_, '_, '_>, index: usize, part: Part, axes: &[usize]) -> Result<Dense, GraphError> {
    let weight = call.weight(index, part)?;
    if elements(&weight.shape) != elements(axes) {
        return call.refuse(format!("its input {index} of shape {:?} does not go over axes of {axes:?}", weight.shape));
    }
    call.reshaped(&weight, axes)
}

pub(super) fn instance(call: &mut Call<'_, '_, '_>) -> Made {
    let own = call.shape(0)?;
    let channels = own.get(1).copied().unwrap_or(0);
    by_group(call, channels)
}

pub(super) fn group(call: &mut Call<'_, '_, '_>) -> Made {
    let groups = usize::try_from(call.node.int("num_groups").unwrap_or(0)).unwrap_or(0);
    by_group(call, groups)
}

fn by_group(call: &mut Call<'_, '_, '_>, groups: usize) -> Made {
    let own = call.shape(0)?;
    if own.len() < 2 || groups == 0 || !own[1].is_multiple_of(groups) {
        return call.refuse(format!("{groups} groups are not possible in {own:?}"));
    }
    let channels = own[1];
    let x = call.numbers(0)?;
    let (weight, bias) = (call.weight(1, ONES)?, call.weight(2, ZEROS)?);
    let mut each = Vec::new();
    for parameter in [weight, bias] {
        each.push(match parameter.shape[..] {
            [count] if count == channels => parameter,
            // Up to opset 20, one for each group.
            [count] if count == groups => {
                let apart = call.reshaped(&parameter, &[groups, 1])?;
                let shape = [groups, channels / groups];
                let id = crate::nn::expand(call.scope, apart.id, &shape)?;
                call.reshaped(&Dense { id, shape: shape.to_vec(), kind: apart.kind }, &[channels])?
            }
            _ => {
                return call.refuse(format!(
                    "scale and bias of shape {:?} do not go over {channels} channels",
                    parameter.shape
                ));
            }
        });
    }
    let op = group_norm::GroupNorm { groups, eps: epsilon(call), affine: Affine::Full };
    let y = call.apply(op, &[&x, &each[0], &each[1]])?;
    one(y)
}

/// `x / (bias + alpha / size · Σ x²)^beta`, the sum over neighbouring channels: their mean, padding counted, times alpha.
pub(super) fn local_response(call: &mut Call<'_, '_, '_>) -> Made {
    let own = call.shape(0)?;
    let size = usize::try_from(call.node.int("size").unwrap_or(0)).unwrap_or(0);
    let ([n, c, h, w], true) = (&own[..], size % 2 == 1 && size < 1 << 12) else {
        return call.refuse(format!("it is there of images and of an odd size, found {own:?} and {size}"));
    };
    let setting = |name: &str, usual: f32| call.node.float(name).unwrap_or(usual);
    let (alpha, beta, bias) = (setting("alpha", 1e-4), setting("beta", 0.75), setting("bias", 1.0));
    let x = call.numbers(0)?;
    let squares = call.map(pow::Pow { exponent: 2.0 }, &x)?;
    let planes = call.reshaped(&squares, &[*n, 1, *c, h * w])?;
    let half = [size / 2, 0];
    let op = AvgPool2d {
        kernel: [size, 1],
        stride: [1, 1],
        padding: half,
        padding_end: None,
        ceil_mode: false,
        count_include_pad: true,
    };
    let means = call.apply(op, &[&planes])?;
    let means = call.reshaped(&means, &own)?;
    let below = call.map(scale::Scale { factor: alpha }, &means)?;
    let below = call.map(add_scalar::AddScalar { value: bias }, &below)?;
    let factor = call.map(pow::Pow { exponent: -beta }, &below)?;
    let y = call.apply(mul::Mul, &[&x, &factor])?;
    one(y)
}

//! Convolutions.

use crate::error::GraphError;
use crate::interop::onnx::call::{Call, Made, Part, one};
use crate::interop::onnx::walk::Dense;
use crate::nn::Init;
use crate::ops::conv::conv_transpose2d::ConvTranspose2d;
use crate::ops::conv::conv2d::Conv2d;

/// Most that a setting may be.
const MAX_SETTING: i64 = 1 << 24;

/// Windows along the axes behind channels.
pub(super) struct Windows {
    pub(super) kernel: Vec<usize>,
    pub(super) stride: Vec<usize>,
    pub(super) dilation: Vec<usize>,
    /// Elements added before and after each axis.
    pub(super) pads: Vec<(usize, usize)>,
}

/// A setting with one number for each axis.
fn each(call: &Call<'_, '_, '_>, name: &str, axes: usize, usual: usize) -> Result<Vec<usize>, GraphError> {
    let Some(values) = call.node.ints(name) else { return Ok(vec![usual; axes]) };
    let values: Option<Vec<usize>> =
        values.iter().map(|&value| (0..=MAX_SETTING).contains(&value).then_some(value as usize)).collect();
    match values {
        Some(values) if values.len() == axes => Ok(values),
        _ => call.refuse(format!("{name} must be {axes} numbers that are not negative")),
    }
}

/// The windows that a node describes over axes of these extents.
pub(super) fn windows(call: &Call<'_, '_, '_>, extents: &[usize], kernel: &[usize]) -> Result<Windows, GraphError> {
    let axes = extents.len();
    let given = each(call, "kernel_shape", axes, 0)?;
    let kernel = if call.node.ints("kernel_shape").is_some() { given } else { kernel.to_vec() };
    let (stride, dilation) = (each(call, "strides", axes, 1)?, each(call, "dilations", axes, 1)?);
    if kernel.len() != axes || [&kernel, &stride, &dilation].into_iter().flatten().any(|&value| value == 0) {
        return call.refuse("kernel_shape, strides and dilations must be at least 1 for each axis");
    }
    let upper = match call.node.text("auto_pad") {
        None | Some("NOTSET" | "") => None,
        Some("VALID") => return Ok(Windows { kernel, stride, dilation, pads: vec![(0, 0); axes] }),
        Some("SAME_UPPER") => Some(true),
        Some("SAME_LOWER") => Some(false),
        Some(other) => return call.refuse(format!("auto_pad = `{}` is not known", other.escape_debug())),
    };
    let pads = match upper {
        None => {
            let pads = each(call, "pads", 2 * axes, 0)?;
            (0..axes).map(|axis| (pads[axis], pads[axis + axes])).collect()
        }
        Some(upper) => (0..axes)
            .map(|axis| {
                let reach = (kernel[axis] - 1) * dilation[axis] + 1;
                let outputs = extents[axis].div_ceil(stride[axis]);
                let total = ((outputs - 1) * stride[axis] + reach).saturating_sub(extents[axis]);
                let (less, more) = (total / 2, total - total / 2);
                if upper { (less, more) } else { (more, less) }
            })
            .collect(),
    };
    Ok(Windows { kernel, stride, dilation, pads })
}

/// One axis as two, the first of which has nothing along it.
pub(super) fn as_two(mut windows: Windows) -> Windows {
    if windows.kernel.len() == 1 {
        windows.kernel.insert(0, 1);
        windows.stride.insert(0, 1);
        windows.dilation.insert(0, 1);
        windows.pads.insert(0, (0, 0));
    }
    windows
}

/// `[N, C, L]` as `[N, C, 1, L]`, weights too.
pub(super) fn as_image(call: &mut Call<'_, '_, '_>, x: &Dense) -> Result<Dense, GraphError> {
    match x.shape[..] {
        [n, c, l] => call.reshaped(x, &[n, c, 1, l]),
        _ => Ok(x.clone()),
    }
}

/// The shape of one axis again.
pub(super) fn as_before(call: &mut Call<'_, '_, '_>, y: Dense, rank: usize) -> Result<Dense, GraphError> {
    match y.shape[..] {
        [n, c, 1, l] if rank == 3 => call.reshaped(&y, &[n, c, l]),
        _ => Ok(y),
    }
}

fn pair(values: &[usize]) -> (usize, usize) {
    (values[0], values[1])
}

pub(super) fn conv(call: &mut Call<'_, '_, '_>) -> Made {
    let (own, of_weight) = (call.shape(0)?, call.shape(1)?);
    if !matches!(own.len(), 3 | 4) || own.len() != of_weight.len() {
        return call
            .refuse(format!("convolutions are of one or two axes here, found {own:?} and weights {of_weight:?}"));
    }
    let windows = as_two(windows(call, &own[2..], &of_weight[2..])?);
    if windows.kernel[2 - of_weight[2..].len()..] != of_weight[2..] {
        return call.refuse(format!("kernel_shape is not that of its weights {of_weight:?}"));
    }
    let terms = of_weight[1..].iter().product();
    let x = call.numbers(0)?;
    let x = as_image(call, &x)?;
    let weight = call.weight(1, Part::Trained(Init::fan_in(terms)))?;
    let weight = as_image(call, &weight)?;
    let groups = call.node.int("group").unwrap_or(1);
    let before: Vec<usize> = windows.pads.iter().map(|pads| pads.0).collect();
    let after: Vec<usize> = windows.pads.iter().map(|pads| pads.1).collect();
    let op = Conv2d {
        stride: pair(&windows.stride),
        padding: pair(&before),
        padding_end: (before != after).then(|| pair(&after)),
        dilation: pair(&windows.dilation),
        groups: usize::try_from(groups).unwrap_or(0),
        bias: call.has(2),
        relu: false,
    };
    let y = if op.bias {
        let bias = call.weight(2, Part::Trained(Init::fan_in(terms)))?;
        call.apply(op, &[&x, &weight, &bias])?
    } else {
        call.apply(op, &[&x, &weight])?
    };
    let y = as_before(call, y, own.len())?;
    one(y)
}

pub(super) fn transposed(call: &mut Call<'_, '_, '_>) -> Made {
    let (own, of_weight) = (call.shape(0)?, call.shape(1)?);
    if !matches!(own.len(), 3 | 4) || own.len() != of_weight.len() {
        return call
            .refuse(format!("convolutions are of one or two axes here, found {own:?} and weights {of_weight:?}"));
    }
    let axes = own.len() - 2;
    let auto = call.node.text("auto_pad").unwrap_or("NOTSET").to_owned();
    let mut output_padding = each(call, "output_padding", axes, 0)?;
    let (stride, dilation) = (each(call, "strides", axes, 1)?, each(call, "dilations", axes, 1)?);
    if stride.contains(&0) || dilation.contains(&0) || of_weight[2..].contains(&0) {
        return call.refuse("strides, dilations and kernels must be at least 1");
    }
    let given = each(call, "pads", 2 * axes, 0)?;
    let mut pads: Vec<(usize, usize)> = (0..axes).map(|axis| (given[axis], given[axis + axes])).collect();
    let shape = match call.node.ints("output_shape") {
        Some(_) => Some(each(call, "output_shape", axes, 0)?),
        None if auto.starts_with("SAME") => Some((0..axes).map(|axis| own[axis + 2] * stride[axis]).collect()),
        None => None,
    };
    for axis in 0..axes {
        let reach = (of_weight[axis + 2] - 1) * dilation[axis] + 1;
        let full = stride[axis] * (own[axis + 2] - 1) + output_padding[axis] + reach;
        if let Some(shape) = &shape {
            // Where more is asked for than there is, zeros are added at the end.
            let total = full.saturating_sub(shape[axis]);
            let (less, more) = (total / 2, total - total / 2);
            pads[axis] = if auto == "SAME_UPPER" { (less, more) } else { (more, less) };
            output_padding[axis] += shape[axis].saturating_sub(full);
        }
    }
    let (before, after): (Vec<usize>, Vec<usize>) = pads.into_iter().unzip();
    let two = |mut values: Vec<usize>, nothing: usize| {
        if values.len() == 1 {
            values.insert(0, nothing);
        }
        pair(&values)
    };
    let terms = of_weight[1..].iter().product();
    let x = call.numbers(0)?;
    let x = as_image(call, &x)?;
    let weight = call.weight(1, Part::Trained(Init::fan_in(terms)))?;
    let weight = as_image(call, &weight)?;
    let padding_end = (before != after).then(|| two(after, 0));
    let op = ConvTranspose2d {
        stride: two(stride, 1),
        padding: two(before, 0),
        padding_end,
        output_padding: two(output_padding, 0),
        dilation: two(dilation, 1),
        groups: usize::try_from(call.node.int("group").unwrap_or(1)).unwrap_or(0),
        bias: call.has(2),
    };
    let y = if op.bias {
        let bias = call.weight(2, Part::Trained(Init::fan_in(terms)))?;
        call.apply(op, &[&x, &weight, &bias])?
    } else {
        call.apply(op, &[&x, &weight])?
    };
    let y = as_before(call, y, own.len())?;
    one(y)
}

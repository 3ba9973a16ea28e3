//! Pooling.

use super::conv::{Windows, windows};
use crate::error::GraphError;
use crate::interop::onnx::call::{Call, Made, one};
use crate::interop::onnx::walk::{Dense, Value};
use crate::ops::pool::adaptive_avg_pool2d::AdaptiveAvgPool2d;
use crate::ops::pool::avg_pool2d::AvgPool2d;
use crate::ops::pool::max_pool2d::MaxPool2d;
use crate::ops::reduce::amax::Amax;

#[derive(Clone, Copy)]
enum Of {
    Largest,
    Mean { count_include_pad: bool },
}

pub(super) fn max(call: &mut Call<'_, '_, '_>) -> Made {
    if call.node.int("storage_order").unwrap_or(0) != 0 && call.node.outputs.len() > 1 {
        return call.refuse("indices in the order of columns are not there");
    }
    pool(call, Of::Largest)
}

pub(super) fn average(call: &mut Call<'_, '_, '_>) -> Made {
    let count_include_pad = call.node.int("count_include_pad").unwrap_or(0) != 0;
    pool(call, Of::Mean { count_include_pad })
}

fn pool(call: &mut Call<'_, '_, '_>, of: Of) -> Made {
    let own = call.shape(0)?;
    if !(3..=5).contains(&own.len()) {
        return call.refuse(format!("pooling is over one to three axes, found {own:?}"));
    }
    let windows = windows(call, &own[2..], &[])?;
    if windows.dilation.iter().any(|&dilation| dilation != 1) {
        return call.refuse("dilations are not there in pooling");
    }
    let ceil_mode = call.node.int("ceil_mode").unwrap_or(0) != 0;
    let x = call.numbers(0)?;
    let y = match own[..] {
        [n, c, l] => {
            let row = call.reshaped(&x, &[n, c, 1, l])?;
            let y = over_two(call, &row, &windows, &[None, Some(0)], ceil_mode, of)?;
            let length = y.shape[3];
            call.reshaped(&y, &[n, c, length])?
        }
        [_, _, _, _] => over_two(call, &x, &windows, &[Some(0), Some(1)], ceil_mode, of)?,
        // Within each plane first, then from plane to plane: elements of a mean are those of the planes times those of a plane.
        [n, c, d, h, w] => {
            let planes = call.reshaped(&x, &[n, c.saturating_mul(d), h, w])?;
            let y = over_two(call, &planes, &windows, &[Some(1), Some(2)], ceil_mode, of)?;
            let (h, w) = (y.shape[2], y.shape[3]);
            let columns = call.reshaped(&y, &[n, c, d, h * w])?;
            let y = over_two(call, &columns, &windows, &[Some(0), None], ceil_mode, of)?;
            let d = y.shape[2];
            call.reshaped(&y, &[n, c, d, h, w])?
        }
        _ => unreachable!("bug: three to five axes"),
    };
    one(y)
}

/// Pools an image with these of the windows, or with single elements, along its two axes.
fn over_two(
    call: &mut Call<'_, '_, '_>,
    x: &Dense,
    windows: &Windows,
    axes: &[Option<usize>; 2],
    ceil_mode: bool,
    of: Of,
) -> Result<Dense, GraphError> {
    let each = |of: &dyn Fn(usize) -> usize, nothing: usize| axes.map(|axis| axis.map_or(nothing, of));
    let kernel = each(&|axis| windows.kernel[axis], 1);
    let stride = each(&|axis| windows.stride[axis], 1);
    let padding = each(&|axis| windows.pads[axis].0, 0);
    let end = each(&|axis| windows.pads[axis].1, 0);
    // Padding of more than half a window is allowed with an end of its own only.
    let is_wide = (0..2).any(|d| padding[d] > kernel[d] / 2);
    let padding_end = (padding != end || is_wide).then_some(end);
    match of {
        Of::Largest => call.apply(MaxPool2d { kernel, stride, padding, padding_end, ceil_mode }, &[x]),
        Of::Mean { count_include_pad } => {
            call.apply(AvgPool2d { kernel, stride, padding, padding_end, ceil_mode, count_include_pad }, &[x])
        }
    }
}

fn global_shape(call: &Call<'_, '_, '_>) -> Result<Vec<usize>, GraphError> {
    let own = call.shape(0)?;
    if own.len() < 3 {
        return call.refuse(format!("it takes tensors of channels with at least one axis behind, found {own:?}"));
    }
    Ok(own)
}

pub(super) fn global_average(call: &mut Call<'_, '_, '_>) -> Made {
    let own = global_shape(call)?;
    let x = call.numbers(0)?;
    let image = match own[..] {
        [_, _, _, _] => x,
        [n, c, ref rest @ ..] => {
            let length = rest.iter().product();
            call.reshaped(&x, &[n, c, 1, length])?
        }
        _ => unreachable!("bug: at least three axes"),
    };
    let y = call.apply(AdaptiveAvgPool2d { output: [1, 1] }, &[&image])?;
    let shape: Vec<usize> = own.iter().enumerate().map(|(axis, &extent)| if axis < 2 { extent } else { 1 }).collect();
    let y = call.reshaped(&y, &shape)?;
    Ok(vec![Value::Tensor(y)])
}

pub(super) fn global_max(call: &mut Call<'_, '_, '_>) -> Made {
    let own = global_shape(call)?;
    let x = call.numbers(0)?;
    let y = call.apply(Amax { axes: (2..own.len()).collect(), keepdim: true }, &[&x])?;
    one(y)
}

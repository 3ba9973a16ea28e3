//! Larger images.

use crate::error::GraphError;
use crate::interop::onnx::call::{Call, Made, one};
use crate::interop::onnx::fold;
use crate::ops::pool::upsample_bilinear2d::UpsampleBilinear2d;
use crate::ops::pool::upsample_nearest2d::UpsampleNearest2d;

/// The extents that come out, and the factors that the file names.
fn target(call: &Call<'_, '_, '_>, own: &[usize]) -> Result<(Vec<usize>, Option<Vec<f32>>), GraphError> {
    let is_upsample = call.node.operator == "Upsample";
    let (scales_at, sizes_at) = if is_upsample { (1, usize::MAX) } else { (2, 3) };
    let axes = match call.node.ints("axes") {
        Some(axes) => axes.iter().map(|&axis| fold::axis(axis, own.len())).collect(),
        None => Ok((0..own.len()).collect::<Vec<_>>()),
    };
    let axes = call.or_refuse(axes)?;
    let mut target = own.to_vec();
    let sizes = if sizes_at < usize::MAX { call.setting(sizes_at, "the sizes")? } else { None };
    if let Some(sizes) = sizes.filter(|sizes| sizes.data.len() > 0) {
        if call.node.text("keep_aspect_ratio_policy").is_some_and(|policy| policy != "stretch") {
            return call.refuse("keep_aspect_ratio_policy is there as stretch only");
        }
        let sizes = call.or_refuse(fold::extents(&sizes))?;
        if sizes.len() != axes.len() {
            return call.refuse("it has not one size for each axis");
        }
        axes.iter().zip(sizes).for_each(|(&axis, size)| target[axis] = size);
        // A file for one sample alone says 1 where there are more now.
        if Some(target[0]) == call.walk.graph.batch && own[0] == call.walk.batch {
            target[0] = own[0];
        }
        return Ok((target, None));
    }
    let scales = match call.setting(scales_at, "the factors")? {
        Some(scales) => scales.to_floats(),
        None => match call.node.attributes.get("scales") {
            Some(crate::interop::onnx::ir::Attribute::Floats(scales)) => scales.clone(),
            _ => return call.refuse("it has neither sizes nor factors"),
        },
    };
    if scales.len() != axes.len() {
        return call.refuse("it has not one factor for each axis");
    }
    let mut all = vec![1.0; own.len()];
    for (&axis, &scale) in axes.iter().zip(&scales) {
        let extent = (own[axis] as f64 * f64::from(scale)).floor();
        if !(1.0..=16_777_216.0).contains(&extent) {
            return call.refuse(format!("a factor of {scale} is not possible for {}", own[axis]));
        }
        target[axis] = extent as usize;
        all[axis] = scale;
    }
    Ok((target, Some(all)))
}

pub(super) fn resize(call: &mut Call<'_, '_, '_>) -> Made {
    let own = call.shape(0)?;
    let (target, scales) = target(call, &own)?;
    let x = call.numbers(0)?;
    if target == own {
        return one(x);
    }
    if own.len() < 3 || own.len() > 4 || target[..2] != own[..2] {
        return call.refuse(format!(
            "only images [batch, channels, height, width] can be resized, found {own:?} to {target:?}"
        ));
    }
    if call.node.int("antialias").unwrap_or(0) != 0 {
        return call.refuse("antialias is not there");
    }
    // Factors and extents must be the same, or elements would lie elsewhere.
    if let Some(scales) = &scales {
        let off = |axis: usize| (own[axis] as f32 * scales[axis] - target[axis] as f32).abs() > 1e-3;
        if (0..own.len()).any(off) {
            return call.refuse(format!("factors {scales:?} do not make whole extents of {own:?}: use sizes"));
        }
    }
    let image = |shape: &[usize]| match *shape {
        [n, c, l] => [n, c, 1, l],
        _ => [shape[0], shape[1], shape[2], shape[3]],
    };
    let (from, to) = (image(&own), image(&target));
    let x = call.reshaped(&x, &from)?;
    let is_upsample = call.node.operator == "Upsample";
    let usual = if is_upsample { "asymmetric" } else { "half_pixel" };
    let mode = call.node.text("mode").unwrap_or("nearest").to_owned();
    let places = call.node.text("coordinate_transformation_mode").unwrap_or(usual).to_owned();
    let size = [to[2], to[3]];
    let whole = to[2].is_multiple_of(from[2]) && to[3].is_multiple_of(from[3]);
    let is_single = |axis: usize| to[axis] == 1;
    let y = match (&mode[..], &places[..]) {
        ("nearest", "asymmetric") => {
            let rounding =
                call.node.text("nearest_mode").unwrap_or(if is_upsample { "floor" } else { "round_prefer_floor" });
            let is_even = rounding == "floor" || to[2] == from[2] && to[3] == from[3];
            if !whole || !is_even {
                return call.refuse(format!(
                    "nearest is there by whole factors and rounding down, found {from:?} to {to:?}, {rounding}"
                ));
            }
            call.apply(UpsampleNearest2d { scale: [to[2] / from[2], to[3] / from[3]] }, &[&x])?
        }
        // Of a whole factor, the nearest of half-pixel places is the element that is repeated there.
        ("nearest", "half_pixel" | "pytorch_half_pixel") => {
            let rounding = call.node.text("nearest_mode").unwrap_or("round_prefer_floor");
            let is_near = matches!(rounding, "round_prefer_floor" | "round_prefer_ceil");
            if !whole || !is_near {
                return call.refuse(format!(
                    "nearest is there by whole factors and rounding, found {from:?} to {to:?}, {rounding}"
                ));
            }
            call.apply(UpsampleNearest2d { scale: [to[2] / from[2], to[3] / from[3]] }, &[&x])?
        }
        ("linear" | "bilinear", "half_pixel") => {
            call.apply(UpsampleBilinear2d { size, align_corners: false }, &[&x])?
        }
        ("linear" | "bilinear", "pytorch_half_pixel") if !is_single(2) && !is_single(3) => {
            call.apply(UpsampleBilinear2d { size, align_corners: false }, &[&x])?
        }
        ("linear" | "bilinear", "align_corners") => {
            call.apply(UpsampleBilinear2d { size, align_corners: true }, &[&x])?
        }
        _ => {
            let (mode, places) = (mode.escape_debug(), places.escape_debug());
            return call
                .refuse(format!("mode = `{mode}` with coordinate_transformation_mode = `{places}` is not there"));
        }
    };
    let y = call.reshaped(&y, &target)?;
    one(y)
}

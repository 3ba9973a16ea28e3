//! What moves elements: shapes, orders of axes, parts, borders, rows of tables.

use crate::error::GraphError;
use crate::interop::onnx::call::{Call, Made, Part, one};
use crate::interop::onnx::constant::{Constant, elements};
use crate::interop::onnx::fold;
use crate::interop::onnx::walk::{Dense, Kind, Value};
use crate::nn::{Init, expand as expand_to};
use crate::ops::embedding::embedding::Embedding;
use crate::ops::shape::concat::Concat;
use crate::ops::shape::flip::Flip;
use crate::ops::shape::pad::Pad;
use crate::ops::shape::slice::Slice;
use crate::ops::shape::split::Split;

pub(super) fn identity(call: &mut Call<'_, '_, '_>) -> Made {
    Ok(vec![call.value(0)?])
}

pub(super) fn dropout(call: &mut Call<'_, '_, '_>) -> Made {
    let ratio = match call.setting(1, "the ratio")? {
        Some(ratio) => ratio.uniform(),
        None => call.node.float("ratio"),
    };
    let ratio = ratio.unwrap_or(0.5);
    // Exporters of trained models leave it out, or turn it off; a model that is trained drops again.
    let value = call.value(0)?;
    if !call.scope.drops() || ratio == 0.0 {
        return Ok(vec![value]);
    }
    let (source, axes) = match value {
        Value::Permuted { source, axes } => (source, Some(axes)),
        _ => (call.numbers(0)?, None),
    };
    let id = call.scope.layer("dropout", &crate::nn::Dropout::new(ratio), source.id)?;
    let dense = Dense { id, ..source };
    Ok(vec![match axes {
        Some(axes) => Value::Permuted { source: dense, axes },
        None => Value::Tensor(dense),
    }])
}

/// A value under another shape. Where its axes are in another order, but not those that change, that stays for later.
fn reshape_to(call: &mut Call<'_, '_, '_>, shape: &[usize]) -> Made {
    let own = call.shape(0)?;
    if elements(&own) != elements(shape) {
        return call.refuse(format!("{own:?} cannot have the shape {shape:?}"));
    }
    if let Value::Permuted { source, axes } = call.value(0)? {
        // The axes behind those that stay must be the last of the source, in their order.
        let same = own.iter().zip(shape).take_while(|(a, b)| a == b).count();
        if same > 0 && axes[same..].iter().copied().eq(same..axes.len()) {
            let wanted = [&source.shape[..same], &shape[same..]].concat();
            let moved = call.reshaped(&source, &wanted)?;
            let axes = axes[..same].iter().copied().chain(same..wanted.len()).collect();
            return Ok(vec![Value::Permuted { source: moved, axes }]);
        }
    }
    let x = call.tensor(0)?;
    let y = call.reshaped(&x, shape)?;
    one(y)
}

pub(super) fn reshape(call: &mut Call<'_, '_, '_>) -> Made {
    let wanted = match call.setting(1, "the shape")? {
        Some(constant) => constant.to_ints(),
        None => call.node.ints("shape").map(<[i64]>::to_vec),
    };
    let Some(mut wanted) = wanted else { return call.refuse("its shape must be whole numbers") };
    let own = call.shape(0)?;
    let (batch, written) = (call.walk.batch, call.walk.graph.batch);
    // A file for one sample alone says 1 where there are more now.
    if let (Some(first), Some(written)) = (wanted.first().copied(), written)
        && first == written as i64
        && batch != written
        && own.first() == Some(&batch)
    {
        wanted[0] = batch as i64;
    }
    let shape = fold::resolve(&own, &wanted, call.node.int("allowzero") == Some(1));
    let shape = call.or_refuse(shape)?;
    reshape_to(call, &shape)
}

pub(super) fn flatten(call: &mut Call<'_, '_, '_>) -> Made {
    let shape = fold::flattened(&call.shape(0)?, call.node);
    let shape = call.or_refuse(shape)?;
    reshape_to(call, &shape)
}

pub(super) fn unsqueeze(call: &mut Call<'_, '_, '_>) -> Made {
    let named = call.setting(1, "the axes")?;
    let shape = fold::unsqueezed(&call.shape(0)?, call.node, named.as_deref());
    let shape = call.or_refuse(shape)?;
    let x = call.numbers(0)?;
    let y = call.reshaped(&x, &shape)?;
    one(y)
}

pub(super) fn squeeze(call: &mut Call<'_, '_, '_>) -> Made {
    let named = call.setting(1, "the axes")?;
    let own = call.shape(0)?;
    let gone = fold::squeezed(&own, call.node, named.as_deref());
    let gone = call.or_refuse(gone)?;
    if let Value::Permuted { source, axes } = call.value(0)? {
        let gone: Vec<usize> = gone.iter().map(|&axis| axes[axis]).collect();
        let kept: Vec<usize> = (0..axes.len()).filter(|axis| !gone.contains(axis)).collect();
        let shape: Vec<usize> = kept.iter().map(|&axis| source.shape[axis]).collect();
        let moved = call.reshaped(&source, &shape)?;
        let place = |axis: &usize| kept.iter().position(|kept| kept == axis);
        let axes = axes.iter().filter_map(place).collect();
        return Ok(vec![Value::Permuted { source: moved, axes }]);
    }
    let shape: Vec<usize> = (0..own.len()).filter(|axis| !gone.contains(axis)).map(|axis| own[axis]).collect();
    let x = call.tensor(0)?;
    let y = call.reshaped(&x, &shape)?;
    one(y)
}

pub(super) fn transpose(call: &mut Call<'_, '_, '_>) -> Made {
    let own = call.shape(0)?;
    let axes = fold::permutation(call.node, own.len());
    let axes = call.or_refuse(axes)?;
    let (source, axes) = match call.value(0)? {
        Value::Permuted { source, axes: before } => (source, axes.iter().map(|&axis| before[axis]).collect()),
        _ => (call.numbers(0)?, axes),
    };
    if axes.iter().copied().eq(0..axes.len()) {
        return one(source);
    }
    Ok(vec![Value::Permuted { source, axes }])
}

/// A value as a tensor, and for each of its axes that of the tensor, where they are in another order.
fn laid_out(call: &mut Call<'_, '_, '_>) -> Result<(Dense, Option<Vec<usize>>), GraphError> {
    Ok(match call.value(0)? {
        Value::Permuted { source, axes } => (source, Some(axes)),
        _ => (call.numbers(0)?, None),
    })
}

/// The axis of a tensor that is one of a value's.
fn real(axes: Option<&Vec<usize>>, axis: usize) -> usize {
    axes.map_or(axis, |axes| axes[axis])
}

fn in_order(dense: Dense, axes: Option<&Vec<usize>>) -> Value {
    match axes {
        Some(axes) => Value::Permuted { source: dense, axes: axes.clone() },
        None => Value::Tensor(dense),
    }
}

/// An axis that an attribute names.
pub(super) fn axis(call: &Call<'_, '_, '_>, name: &str, usual: i64, rank: usize) -> Result<usize, GraphError> {
    call.or_refuse(fold::axis(call.node.int(name).unwrap_or(usual), rank))
}

pub(super) fn concat(call: &mut Call<'_, '_, '_>) -> Made {
    let own = call.shape(0)?;
    let axis = axis(call, "axis", 0, own.len())?;
    let mut parts = Vec::new();
    for index in 0..call.node.inputs.len() {
        // Exporters put tensors without elements beside others.
        if call.shape(index)?.get(axis) != Some(&0) {
            parts.push(call.numbers(index)?);
        }
    }
    let whole = join(call, parts, axis)?;
    one(whole)
}

/// Puts tensors after one another, by pairs of neighbours, so that each element is copied few times.
pub(super) fn join(call: &mut Call<'_, '_, '_>, mut parts: Vec<Dense>, axis: usize) -> Result<Dense, GraphError> {
    while parts.len() > 1 {
        let mut joined = Vec::with_capacity(parts.len().div_ceil(2));
        for pair in parts.chunks(2) {
            joined.push(match pair {
                [a, b] => call.apply(Concat { axis }, &[a, b])?,
                _ => pair[0].clone(),
            });
        }
        parts = joined;
    }
    match parts.pop() {
        Some(whole) => Ok(whole),
        None => call.refuse("it has nothing to put together"),
    }
}

pub(super) fn split(call: &mut Call<'_, '_, '_>) -> Made {
    let named = call.setting(1, "the lengths")?;
    let own = call.shape(0)?;
    let parts = fold::lengths(call.node, &own, named.as_deref());
    let (axis, lengths) = call.or_refuse(parts)?;
    if lengths.contains(&0) {
        return call.refuse("it makes a part without elements");
    }
    let (x, axes) = laid_out(call)?;
    let parts = split_into(call, &x, real(axes.as_ref(), axis), lengths)?;
    Ok(parts.into_iter().map(|part| in_order(part, axes.as_ref())).collect())
}

pub(super) fn split_into(
    call: &mut Call<'_, '_, '_>,
    x: &Dense,
    axis: usize,
    lengths: Vec<usize>,
) -> Result<Vec<Dense>, GraphError> {
    if let [_] = lengths[..] {
        return Ok(vec![x.clone()]);
    }
    let ids = call.scope.apply_all(Split { axis, lengths }, &[x.id])?;
    Ok(ids.into_iter().map(|id| Dense { id, shape: call.scope.shape(id), kind: x.kind }).collect())
}

pub(super) fn slice(call: &mut Call<'_, '_, '_>) -> Made {
    let mut settings = Vec::new();
    for (index, what) in (1..).zip(["where it starts", "where it ends", "the axes", "the steps"]) {
        settings.push(call.setting(index, what)?);
    }
    let own = call.shape(0)?;
    let at = |index: usize| settings[index].as_deref();
    let parts = fold::cut(&own, call.node, [at(0), at(1), at(2), at(3)]);
    let parts = call.or_refuse(parts)?;
    let (mut x, axes) = laid_out(call)?;
    for (axis, &(start, step, length)) in parts.iter().enumerate() {
        let (extent, axis) = (own[axis], real(axes.as_ref(), axis));
        if length == 0 {
            return call.refuse("it makes a tensor without elements");
        }
        if step == -1 && length == extent {
            x = Dense { kind: x.kind, ..call.apply(Flip { axis, has_lengths: false }, &[&x])? };
        } else if step == 1 || length == 1 {
            if length < extent {
                x = Dense { kind: x.kind, ..call.apply(Slice { axis, start, length }, &[&x])? };
            }
        } else if step > 1 {
            x = every(call, &x, axis, start, step as usize, length)?;
        } else {
            return call.refuse(format!("a step of {step} is not there but for -1 over a whole axis"));
        }
    }
    Ok(vec![in_order(x, axes.as_ref())])
}

/// Every so many elements of an axis.
fn every(
    call: &mut Call<'_, '_, '_>,
    x: &Dense,
    axis: usize,
    start: usize,
    step: usize,
    length: usize,
) -> Result<Dense, GraphError> {
    let needed = step.saturating_mul(length);
    let mut y = x.clone();
    if start > 0 {
        y = call.apply(Slice { axis, start, length: y.shape[axis] - start }, &[&y])?;
    }
    if y.shape[axis] < needed {
        let mut pads = vec![(0, 0); y.shape.len()];
        pads[axis].1 = needed - y.shape[axis];
        y = call.apply(Pad { pads, value: 0.0 }, &[&y])?;
    } else if y.shape[axis] > needed {
        y = call.apply(Slice { axis, start: 0, length: needed }, &[&y])?;
    }
    let mut apart = y.shape.clone();
    apart[axis] = length;
    apart.insert(axis + 1, step);
    let y = call.reshaped(&y, &apart)?;
    let y = call.apply(Slice { axis: axis + 1, start: 0, length: 1 }, &[&y])?;
    apart.remove(axis + 1);
    let y = call.reshaped(&y, &apart)?;
    Ok(Dense { kind: x.kind, ..y })
}

pub(super) fn expand(call: &mut Call<'_, '_, '_>) -> Made {
    let Some(shape) = call.setting(1, "the shape")? else { return call.refuse("it has no shape") };
    let shape = fold::extents(&shape);
    let shape = call.or_refuse(shape)?;
    let own = call.shape(0)?;
    let Some(shape) = fold::joined(&own, &shape) else {
        return call.refuse(format!("{own:?} cannot be repeated to {shape:?}"));
    };
    call.countable(&shape)?;
    let x = call.numbers(0)?;
    let id = if shape.is_empty() { x.id } else { expand_to(call.scope, x.id, &shape)? };
    one(Dense { id, shape, kind: x.kind })
}

pub(super) fn tile(call: &mut Call<'_, '_, '_>) -> Made {
    let Some(repeats) = call.setting(1, "the repeats")? else { return call.refuse("it has no repeats") };
    let repeats = fold::extents(&repeats);
    let repeats = call.or_refuse(repeats)?;
    let mut x = call.numbers(0)?;
    if repeats.len() != x.shape.len() || repeats.contains(&0) {
        return call.refuse(format!("repeats {repeats:?} must be one of 1 or more for each axis of {:?}", x.shape));
    }
    for (axis, &count) in repeats.iter().enumerate().filter(|(_, count)| **count > 1) {
        // Another axis before it, which is repeated.
        let own = x.shape.clone();
        let mut apart = own.clone();
        apart.insert(axis, 1);
        let single = call.reshaped(&x, &apart)?;
        apart[axis] = count;
        call.countable(&apart)?;
        let id = expand_to(call.scope, single.id, &apart)?;
        let mut whole = own;
        whole[axis] = whole[axis].saturating_mul(count);
        x = call.reshaped(&Dense { id, shape: apart, kind: x.kind }, &whole)?;
    }
    one(x)
}

pub(super) fn pad(call: &mut Call<'_, '_, '_>) -> Made {
    if let Some(mode) = call.node.text("mode").filter(|mode| *mode != "constant") {
        return call.refuse(format!("mode = `{}` is not there: only constant is", mode.escape_debug()));
    }
    let pads = match call.setting(1, "the sizes")? {
        Some(pads) => pads.to_ints(),
        None => call.node.ints("pads").map(<[i64]>::to_vec),
    };
    let value = match call.setting(2, "the value")? {
        Some(value) => value.uniform(),
        None => Some(call.node.float("value").unwrap_or(0.0)),
    };
    let (Some(pads), Some(value)) = (pads, value) else { return call.refuse("its sizes and value must be numbers") };
    let own = call.shape(0)?;
    let axes = match call.setting(3, "the axes")? {
        Some(axes) => axes.to_ints().unwrap_or_default(),
        None => (0..own.len() as i64).collect(),
    };
    if pads.len() != 2 * axes.len() {
        return call.refuse(format!("it has {} sizes where {} are needed", pads.len(), 2 * axes.len()));
    }
    let mut added = vec![(0usize, 0usize); own.len()];
    let mut x = call.numbers(0)?;
    for (index, &named) in axes.iter().enumerate() {
        let axis = call.or_refuse(fold::axis(named, own.len()))?;
        let (before, after) = (pads[index], pads[index + axes.len()]);
        if before.max(after) > i64::from(u32::MAX) {
            return call.refuse(format!("sizes {before} and {after} are too large"));
        }
        // What is negative takes away.
        let (cut_before, cut_after) = (before.saturating_neg().max(0) as usize, after.saturating_neg().max(0) as usize);
        if cut_before + cut_after > 0 {
            let length = x.shape[axis].saturating_sub(cut_before.saturating_add(cut_after));
            if length == 0 {
                return call.refuse("it makes a tensor without elements");
            }
            x = call.apply(Slice { axis, start: cut_before, length }, &[&x])?;
        }
        added[axis] = (before.max(0) as usize, after.max(0) as usize);
    }
    if added.iter().any(|&pair| pair != (0, 0)) {
        x = call.apply(Pad { pads: added, value }, &[&x])?;
    }
    one(x)
}

pub(super) fn gather(call: &mut Call<'_, '_, '_>) -> Made {
    let own = call.shape(0)?;
    let axis = axis(call, "axis", 0, own.len())?;
    if let Some(indices) = call.constant(1) {
        return gather_known(call, &own, axis, &indices);
    }
    let indices = call.tensor(1)?;
    if indices.kind != Kind::Index {
        return call.refuse("its indices are neither known before the model runs nor an input of the model");
    }
    let ([_, columns], 0) = (&own[..], axis) else {
        return call
            .refuse(format!("indices that are an input choose rows of a matrix, not along axis {axis} of {own:?}"));
    };
    let table = call.weight(0, Part::Trained(Init::Normal { std: 1.0 }))?;
    let y = call.apply(Embedding { padding_idx: None }, &[&indices, &table])?;
    let shape = [&indices.shape[..], &[*columns]].concat();
    one(Dense { shape, ..y })
}

/// Slices for runs of indices, put together.
fn gather_known(call: &mut Call<'_, '_, '_>, own: &[usize], axis: usize, indices: &Constant) -> Made {
    /// Slices at most.
    const MAX_RUNS: usize = 256;

    let extent = own[axis];
    let Some(wanted) = indices.to_ints() else { return call.refuse("its indices must be whole numbers") };
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for index in wanted {
        let index = if index < 0 { index.saturating_add(extent as i64) } else { index };
        let Some(index) = usize::try_from(index).ok().filter(|&index| index < extent) else {
            return call.refuse(format!("an index is not below {extent}"));
        };
        match runs.last_mut() {
            Some((start, length)) if *start + *length == index => *length += 1,
            _ => runs.push((index, 1)),
        }
        if runs.len() > MAX_RUNS {
            return call.refuse("it chooses too many places one by one");
        }
    }
    // One index leaves the order of axes for later.
    if let (Value::Permuted { source, axes }, [(start, 1)], true) =
        (call.value(0)?, &runs[..], indices.shape.is_empty())
    {
        let (real, start) = (axes[axis], *start);
        let mut shape = source.shape.clone();
        shape.remove(real);
        let part = call.apply(Slice { axis: real, start, length: 1 }, &[&source])?;
        let part = call.reshaped(&part, &shape)?;
        let rest = axes.iter().filter(|&&other| other != real).map(|&other| other - usize::from(other > real));
        return Ok(vec![Value::Permuted { source: part, axes: rest.collect() }]);
    }
    let table = call.numbers(0)?;
    let mut parts = Vec::new();
    for (start, length) in runs {
        let part = if length == extent { table.clone() } else { call.apply(Slice { axis, start, length }, &[&table])? };
        parts.push(part);
    }
    let whole = join(call, parts, axis)?;
    let shape = [&own[..axis], &indices.shape, &own[axis + 1..]].concat();
    let y = call.reshaped(&whole, &shape)?;
    one(Dense { kind: table.kind, ..y })
}

//! Reductions, and softmax.

use super::moves::axis;
use crate::error::GraphError;
use crate::interop::onnx::call::{Call, Made, one};
use crate::interop::onnx::fold;
use crate::interop::onnx::walk::{Dense, Kind, Value};
use crate::nn::together;
use crate::ops::elementwise::{abs, exp, log, pow, sqrt, sub};
use crate::ops::reduce::log_softmax::LogSoftmax;
use crate::ops::reduce::softmax::Softmax;
use crate::ops::reduce::{amax, amin, mean, sum};

pub(super) fn softmax(call: &mut Call<'_, '_, '_>) -> Made {
    let own = call.shape(0)?;
    let is_flat = call.node.version < 13;
    let axis = axis(call, "axis", if is_flat { 1 } else { -1 }, own.len())?;
    let is_log = call.node.operator == "LogSoftmax";
    let x = call.numbers(0)?;
    // Before opset 13 all axes from this one on are one.
    if is_flat && axis + 1 != own.len() {
        let rows = [own[..axis].iter().product(), own[axis..].iter().product()];
        let flat = call.reshaped(&x, &rows)?;
        let y = apply(call, &flat, 1, is_log)?;
        let y = call.reshaped(&y, &own)?;
        return one(y);
    }
    let y = apply(call, &x, axis, is_log)?;
    one(y)
}

fn apply(call: &mut Call<'_, '_, '_>, x: &Dense, axis: usize, is_log: bool) -> Result<Dense, GraphError> {
    if is_log { call.map(LogSoftmax { axis }, x) } else { call.map(Softmax { axis, causal: false }, x) }
}

pub(super) fn reduce(call: &mut Call<'_, '_, '_>) -> Made {
    let named = call.setting(1, "the axes")?;
    let own = call.shape(0)?;
    let named = fold::axes(call.node, named.as_deref(), own.len());
    let axes = match call.or_refuse(named)? {
        Some(axes) if axes.is_empty() && call.node.int("noop_with_empty_axes").unwrap_or(0) != 0 => {
            return Ok(vec![call.value(0)?]);
        }
        Some(axes) if !axes.is_empty() => axes,
        _ => (0..own.len()).collect(),
    };
    let keepdim = call.node.int("keepdims").unwrap_or(1) != 0;
    let shape: Vec<usize> = (0..own.len())
        .filter(|axis| keepdim || !axes.contains(axis))
        .map(|axis| if axes.contains(&axis) { 1 } else { own[axis] })
        .collect();
    if own.is_empty() {
        return Ok(vec![call.value(0)?]);
    }
    // Over the axes of the source, where these are in another order and all others stay in it.
    let x = match call.value(0)? {
        Value::Permuted { source, axes: order } => {
            let kept: Vec<usize> = (0..own.len()).filter(|axis| !axes.contains(axis)).map(|axis| order[axis]).collect();
            if kept.is_sorted() && !keepdim {
                let axes = axes.iter().map(|&axis| order[axis]).collect();
                let y = over(call, &source, axes, false)?;
                return one(Dense { shape, ..y });
            }
            call.numbers(0)?
        }
        _ => call.numbers(0)?,
    };
    // The largest of no numbers is minus infinity, but of no truths it is false.
    if x.kind == Kind::Truth && axes.iter().any(|&axis| own[axis] == 0) {
        return call.refuse("an axis that it reduces has no elements");
    }
    let y = over(call, &x, axes, keepdim)?;
    one(Dense { shape, ..y })
}

fn over(call: &mut Call<'_, '_, '_>, x: &Dense, axes: Vec<usize>, keepdim: bool) -> Result<Dense, GraphError> {
    let sum = |axes: Vec<usize>| sum::Sum { axes, keepdim };
    match &call.node.operator[..] {
        "ReduceSum" => call.apply(sum(axes), &[x]),
        "ReduceMean" => call.apply(mean::Mean { axes, keepdim }, &[x]),
        "ReduceMax" => call.apply(amax::Amax { axes, keepdim }, &[x]),
        "ReduceMin" => call.apply(amin::Amin { axes, keepdim }, &[x]),
        "ReduceL1" => {
            let sizes = call.map(abs::Abs, x)?;
            call.apply(sum(axes), &[&sizes])
        }
        "ReduceL2" | "ReduceSumSquare" => {
            let squares = call.map(pow::Pow { exponent: 2.0 }, x)?;
            let y = call.apply(sum(axes), &[&squares])?;
            if call.node.operator == "ReduceL2" { call.map(sqrt::Sqrt, &y) } else { Ok(y) }
        }
        "ReduceLogSum" => {
            let y = call.apply(sum(axes), &[x])?;
            call.map(log::Log, &y)
        }
        "ReduceLogSumExp" => {
            // Less the largest, so that nothing overflows.
            let most = call.apply(amax::Amax { axes: axes.clone(), keepdim: true }, &[x])?;
            let ids = together(call.scope, [x.id, most.id])?;
            let id = call.scope.apply(sub::Sub, &ids)?;
            let less = Dense { id, ..x.clone() };
            let powers = call.map(exp::Exp, &less)?;
            let y = call.apply(sum(axes), &[&powers])?;
            let y = call.map(log::Log, &y)?;
            let most = call.reshaped(&most, &y.shape)?;
            call.apply(crate::ops::elementwise::add::Add, &[&y, &most])
        }
        other => unreachable!("bug: `{other}` is registered as a reduction"),
    }
}

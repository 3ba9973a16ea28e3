//! Functions of single elements, of two, and what is chosen by conditions.

use crate::error::GraphError;
use crate::interop::onnx::call::{Call, Made, one};
use crate::interop::onnx::proto::element;
use crate::interop::onnx::walk::{Dense, Kind, Value};
use crate::nn::{Init, together};
use crate::ops::Op;
use crate::ops::elementwise::compare::{Compare, Relation};
use crate::ops::elementwise::gelu::GeluForm;
use crate::ops::elementwise::{
    abs, add, add_scalar, bias_add, clamp, cos, div, elu, exp, gelu, hard_sigmoid, hard_swish, leaky_relu, log,
    maximum, minimum, mish, mul, mul_channels, pow, prelu as prelu_op, relu, scale, select as select_op, sigmoid, silu,
    sin, softplus, sqrt, sub, tanh, to_float,
};

/// The source of a value whose axes are in another order, and that order: functions of elements go before it.
fn source(call: &mut Call<'_, '_, '_>, index: usize) -> Result<(Dense, Option<Vec<usize>>), GraphError> {
    if let Value::Permuted { source, axes } = call.value(index)? {
        return Ok((source, Some(axes)));
    }
    Ok((call.numbers(index)?, None))
}

fn made(dense: Dense, axes: Option<Vec<usize>>) -> Made {
    Ok(vec![match axes {
        Some(axes) => Value::Permuted { source: dense, axes },
        None => Value::Tensor(dense),
    }])
}

pub(super) fn unary(call: &mut Call<'_, '_, '_>) -> Made {
    let (x, axes) = source(call, 0)?;
    let setting = |name: &str, usual: f32| call.node.float(name).unwrap_or(usual);
    let y = match &call.node.operator[..] {
        "Abs" => call.map(abs::Abs, &x)?,
        "Cos" => call.map(cos::Cos, &x)?,
        "Exp" => call.map(exp::Exp, &x)?,
        "Log" => call.map(log::Log, &x)?,
        "Mish" => call.map(mish::Mish, &x)?,
        "Neg" => call.map(scale::Scale { factor: -1.0 }, &x)?,
        "Reciprocal" => call.map(pow::Pow { exponent: -1.0 }, &x)?,
        "Relu" => call.map(relu::Relu, &x)?,
        "Sigmoid" => call.map(sigmoid::Sigmoid, &x)?,
        "Sin" => call.map(sin::Sin, &x)?,
        "Sqrt" => call.map(sqrt::Sqrt, &x)?,
        "Tanh" => call.map(tanh::Tanh, &x)?,
        "HardSwish" => call.map(hard_swish::HardSwish, &x)?,
        "Elu" => call.map(elu::Elu { alpha: setting("alpha", 1.0) }, &x)?,
        "LeakyRelu" => call.map(leaky_relu::LeakyRelu { slope: setting("alpha", 0.01) }, &x)?,
        // Without a threshold, from which on PyTorch leaves the input as it is.
        "Softplus" => call.map(softplus::Softplus { beta: 1.0, threshold: f32::MAX }, &x)?,
        "HardSigmoid" => {
            let (alpha, beta) = (setting("alpha", 0.2), setting("beta", 0.5));
            if (alpha - 1.0 / 6.0).abs() < 1e-6 && beta == 0.5 {
                call.map(hard_sigmoid::HardSigmoid, &x)?
            } else {
                let line = call.map(scale::Scale { factor: alpha }, &x)?;
                let line = call.map(add_scalar::AddScalar { value: beta }, &line)?;
                call.map(clamp::Clamp { min: 0.0, max: 1.0 }, &line)?
            }
        }
        "Selu" => {
            let (alpha, gamma) = (setting("alpha", 1.673_263_2), setting("gamma", 1.050_701));
            let y = call.map(elu::Elu { alpha }, &x)?;
            call.map(scale::Scale { factor: gamma }, &y)?
        }
        "Softsign" => {
            let size = call.map(abs::Abs, &x)?;
            let below = call.map(add_scalar::AddScalar { value: 1.0 }, &size)?;
            let y = call.apply(div::Div, &[&x, &below])?;
            Dense { shape: x.shape.clone(), ..y }
        }
        "Swish" => {
            let alpha = setting("alpha", 1.0);
            if alpha == 1.0 {
                call.map(silu::Silu, &x)?
            } else {
                let scaled = call.map(scale::Scale { factor: alpha }, &x)?;
                let y = call.map(silu::Silu, &scaled)?;
                call.map(scale::Scale { factor: 1.0 / alpha }, &y)?
            }
        }
        "Sign" => {
            let above = call.map(Compare { relation: Relation::Greater, number: Some(0.0) }, &x)?;
            let below = call.map(Compare { relation: Relation::Less, number: Some(0.0) }, &x)?;
            let y = call.apply(sub::Sub, &[&above, &below])?;
            Dense { shape: x.shape.clone(), ..y }
        }
        "Tan" => {
            let (s, c) = (call.map(sin::Sin, &x)?, call.map(cos::Cos, &x)?);
            let y = call.apply(div::Div, &[&s, &c])?;
            Dense { shape: x.shape.clone(), ..y }
        }
        "ThresholdedRelu" => {
            let number = Some(setting("alpha", 1.0));
            let above = call.map(Compare { relation: Relation::Greater, number }, &x)?;
            let y = call.apply(select_op::Select { a: None, b: Some(0.0) }, &[&above, &x])?;
            Dense { shape: x.shape.clone(), ..y }
        }
        other => unreachable!("bug: `{other}` is registered as a function of single elements"),
    };
    made(y, axes)
}

pub(super) fn gelu(call: &mut Call<'_, '_, '_>) -> Made {
    let (x, axes) = source(call, 0)?;
    let approximate = match call.node.text("approximate") {
        None | Some("none") => GeluForm::Erf,
        Some("tanh") => GeluForm::Tanh,
        Some(other) => return call.refuse(format!("approximate = `{}` is not known", other.escape_debug())),
    };
    let y = call.map(gelu::Gelu { approximate }, &x)?;
    made(y, axes)
}

pub(super) fn erf(call: &mut Call<'_, '_, '_>) -> Made {
    call.refuse("the error function is not there by itself, only as a part of GELU: x · (1 + erf(x / √2)) / 2")
}

pub(super) fn clip(call: &mut Call<'_, '_, '_>) -> Made {
    let bound = |index: usize, name: &str| -> Result<Option<f32>, GraphError> {
        let bound = call.setting(index, "a bound")?.map(|constant| constant.to_floats());
        match bound.as_deref() {
            None => Ok(call.node.float(name)),
            Some([bound]) => Ok(Some(*bound)),
            Some(_) => call.refuse("its bounds must be numbers"),
        }
    };
    let (min, max) = (bound(1, "min")?, bound(2, "max")?);
    let (x, axes) = source(call, 0)?;
    let op = clamp::Clamp { min: min.unwrap_or(f32::NEG_INFINITY), max: max.unwrap_or(f32::INFINITY) };
    if min.is_none() && max.is_none() {
        return made(x, axes);
    }
    let y = call.map(op, &x)?;
    made(y, axes)
}

/// Brings two to one shape.
fn both(call: &mut Call<'_, '_, '_>, a: &Dense, b: &Dense, op: impl Op) -> Result<Dense, GraphError> {
    let shape = crate::interop::onnx::fold::joined(&a.shape, &b.shape);
    let Some(shape) = shape else {
        return call.refuse(format!("{:?} and {:?} do not go together", a.shape, b.shape));
    };
    let ids = together(call.scope, [a.id, b.id])?;
    let id = call.scope.apply(op, &ids)?;
    Ok(Dense { id, shape, kind: Kind::Number })
}

/// The only axis of `b` that is longer than 1, as an axis of a tensor of this rank.
fn only_axis(b: &[usize], rank: usize) -> Option<usize> {
    let mut long = (0..b.len()).filter(|&axis| b[axis] != 1);
    let axis = long.next()?;
    if long.next().is_some() {
        return None;
    }
    (axis + rank).checked_sub(b.len())
}

/// The sum, without repeating what is a bias.
fn sum(call: &mut Call<'_, '_, '_>, a: &Dense, b: &Dense) -> Result<Dense, GraphError> {
    for (x, bias) in [(a, b), (b, a)] {
        let rank = x.shape.len();
        let axis = only_axis(&bias.shape, rank).filter(|_| bias.shape.len() <= rank);
        let Some(axis) = axis.filter(|&axis| x.shape[axis] == bias.shape.iter().product::<usize>()) else { continue };
        if rank == 1 || (axis != 1 && axis + 1 != rank) || axis == 0 || rank > 6 {
            continue;
        }
        let flat = call.reshaped(bias, &[x.shape[axis]])?;
        // Of the last axis, it is the bias of each row.
        let rows = if axis == 1 { x.shape.clone() } else { vec![x.shape[..axis].iter().product(), x.shape[axis]] };
        let input = call.reshaped(x, &rows)?;
        let y = call.apply(bias_add::BiasAdd, &[&input, &flat])?;
        return call.reshaped(&y, &x.shape);
    }
    both(call, a, b, add::Add)
}

/// The product, without repeating what scales channels.
fn product(call: &mut Call<'_, '_, '_>, a: &Dense, b: &Dense) -> Result<Dense, GraphError> {
    for (x, factor) in [(a, b), (b, a)] {
        let ([n, c, rest @ ..], [m, d, ones @ ..]) = (&x.shape[..], &factor.shape[..]) else { continue };
        let scales = n == m && c == d && rest.len() == ones.len() && ones.iter().all(|&one| one == 1);
        if scales && rest.iter().product::<usize>() > 1 {
            let flat = call.reshaped(factor, &[*n, *c])?;
            let y = call.apply(mul_channels::MulChannels, &[x, &flat])?;
            return Ok(Dense { shape: x.shape.clone(), ..y });
        }
    }
    both(call, a, b, mul::Mul)
}

/// Sums, products and the like of two or more.
pub(super) fn pair(call: &mut Call<'_, '_, '_>) -> Made {
    let count = call.node.inputs.len();
    if count == 1 {
        let (x, axes) = source(call, 0)?;
        return made(x, axes);
    }
    if count == 2 {
        if let Some(result) = with_number(call)? {
            return Ok(vec![result]);
        }
        if let Some(result) = permuted_alike(call)? {
            return Ok(vec![result]);
        }
    }
    let mut result = call.numbers(0)?;
    for index in 1..count {
        let other = call.numbers(index)?;
        result = two(call, &result, &other)?;
    }
    one(result)
}

fn two(call: &mut Call<'_, '_, '_>, a: &Dense, b: &Dense) -> Result<Dense, GraphError> {
    match &call.node.operator[..] {
        "Add" | "Sum" | "Mean" => sum(call, a, b),
        "Sub" => both(call, a, b, sub::Sub),
        "Mul" => product(call, a, b),
        "Div" => both(call, a, b, div::Div),
        "Max" => both(call, a, b, maximum::Maximum),
        "Min" => both(call, a, b, minimum::Minimum),
        other => unreachable!("bug: `{other}` is registered as a function of two"),
    }
}

/// With a number in place of one of two tensors; `None` where neither is one that leaves the other's shape as it is.
fn with_number(call: &mut Call<'_, '_, '_>) -> Result<Option<Value>, GraphError> {
    for (index, other) in [(1, 0), (0, 1)] {
        let Some(number) = call.number(index) else { continue };
        let (own, shape) = (call.shape(other)?, call.shape(index)?);
        if crate::interop::onnx::fold::joined(&own, &shape).as_deref() != Some(&own) {
            continue;
        }
        let (x, axes) = source(call, other)?;
        let y = match (&call.node.operator[..], index) {
            ("Add" | "Sum", _) => call.map(add_scalar::AddScalar { value: number }, &x)?,
            ("Mul", _) => call.map(scale::Scale { factor: number }, &x)?,
            ("Sub", 1) => call.map(add_scalar::AddScalar { value: -number }, &x)?,
            ("Sub", _) => {
                let negative = call.map(scale::Scale { factor: -1.0 }, &x)?;
                call.map(add_scalar::AddScalar { value: number }, &negative)?
            }
            ("Div", 1) if (1.0 / number).is_finite() => call.map(scale::Scale { factor: 1.0 / number }, &x)?,
            ("Div", 0) => {
                let reciprocal = call.map(pow::Pow { exponent: -1.0 }, &x)?;
                call.map(scale::Scale { factor: number }, &reciprocal)?
            }
            ("Max", _) => call.map(clamp::Clamp { min: number, max: f32::INFINITY }, &x)?,
            ("Min", _) => call.map(clamp::Clamp { min: f32::NEG_INFINITY, max: number }, &x)?,
            _ => continue,
        };
        return Ok(made(y, axes)?.pop());
    }
    Ok(None)
}

/// Of two tensors whose axes are in the same other order: that order stays for later.
fn permuted_alike(call: &mut Call<'_, '_, '_>) -> Result<Option<Value>, GraphError> {
    let (Value::Permuted { source: a, axes }, Value::Permuted { source: b, axes: other }) =
        (call.value(0)?, call.value(1)?)
    else {
        return Ok(None);
    };
    if axes != other || a.shape != b.shape {
        return Ok(None);
    }
    let made = two(call, &a, &b)?;
    Ok(Some(Value::Permuted { source: made, axes }))
}

pub(super) fn mean(call: &mut Call<'_, '_, '_>) -> Made {
    let count = call.node.inputs.len();
    let mut result = call.numbers(0)?;
    for index in 1..count {
        let other = call.numbers(index)?;
        result = two(call, &result, &other)?;
    }
    let result = call.map(scale::Scale { factor: 1.0 / count as f32 }, &result)?;
    one(result)
}

pub(super) fn power(call: &mut Call<'_, '_, '_>) -> Made {
    let Some(exponent) = call.constant(1).and_then(|constant| constant.uniform()) else {
        return call.refuse("its exponent must be one number that is known before the model runs");
    };
    let (own, shape) = (call.shape(0)?, call.shape(1)?);
    if crate::interop::onnx::fold::joined(&own, &shape).as_deref() != Some(&own) {
        return call.refuse("its exponent must not have more axes than its base");
    }
    let (x, axes) = source(call, 0)?;
    let y = if exponent == 0.5 { call.map(sqrt::Sqrt, &x)? } else { call.map(pow::Pow { exponent }, &x)? };
    made(y, axes)
}

pub(super) fn prelu(call: &mut Call<'_, '_, '_>) -> Made {
    let (own, slope) = (call.shape(0)?, call.shape(1)?);
    let count: usize = slope.iter().product();
    let is_channels = own.len() > 1 && count == own[1] && only_axis(&slope, own.len()) == Some(1);
    if count != 1 && !is_channels {
        return call.refuse(format!("slopes of shape {slope:?} are neither one nor one for each channel of {own:?}"));
    }
    let x = call.numbers(0)?;
    let slope = call.weight(1, crate::interop::onnx::call::Part::Trained(Init::Constant { value: 0.25 }))?;
    let slope = call.reshaped(&slope, &[count])?;
    let y = call.apply(prelu_op::Prelu, &[&x, &slope])?;
    one(Dense { shape: own, ..y })
}

pub(super) fn compare(call: &mut Call<'_, '_, '_>) -> Made {
    let relation = match &call.node.operator[..] {
        "Greater" => Relation::Greater,
        "GreaterOrEqual" => Relation::GreaterEqual,
        "Less" => Relation::Less,
        "LessOrEqual" => Relation::LessEqual,
        _ => Relation::Equal,
    };
    let (own, shape) = (call.shape(0)?, call.shape(1)?);
    let keeps = crate::interop::onnx::fold::joined(&own, &shape).as_deref() == Some(&own);
    let x = call.numbers(0)?;
    let y = match call.number(1).filter(|_| keeps) {
        Some(number) => call.map(Compare { relation, number: Some(number) }, &x)?,
        None => {
            let other = call.numbers(1)?;
            both(call, &x, &other, Compare { relation, number: None })?
        }
    };
    one(Dense { kind: Kind::Truth, ..y })
}

pub(super) fn not(call: &mut Call<'_, '_, '_>) -> Made {
    let x = call.numbers(0)?;
    let y = call.map(Compare { relation: Relation::Equal, number: Some(0.0) }, &x)?;
    one(Dense { kind: Kind::Truth, ..y })
}

pub(super) fn logic(call: &mut Call<'_, '_, '_>) -> Made {
    let (a, b) = (call.numbers(0)?, call.numbers(1)?);
    if a.kind != Kind::Truth || b.kind != Kind::Truth {
        return call.refuse("its inputs must be bool");
    }
    let y = match &call.node.operator[..] {
        "And" => both(call, &a, &b, mul::Mul)?,
        "Or" => both(call, &a, &b, maximum::Maximum)?,
        _ => both(call, &a, &b, Compare { relation: Relation::NotEqual, number: None })?,
    };
    one(Dense { kind: Kind::Truth, ..y })
}

pub(super) fn select(call: &mut Call<'_, '_, '_>) -> Made {
    let shapes = [call.shape(0)?, call.shape(1)?, call.shape(2)?];
    let joined = |a: &[usize], b: &[usize]| crate::interop::onnx::fold::joined(a, b);
    let Some(shape) = joined(&shapes[1], &shapes[2]).and_then(|both| joined(&shapes[0], &both)) else {
        return call.refuse(format!("{shapes:?} do not go together"));
    };
    let condition = call.numbers(0)?;
    let (a, b) = (call.number(1), call.number(2));
    // A number in place of a tensor must not be what gives the output its shape.
    let (a, b) = match (a, b) {
        (Some(a), b) if joined(&shapes[0], &shapes[2]).as_ref() == Some(&shape) => {
            (Some(a), b.filter(|_| shapes[0] == shape))
        }
        (_, Some(b)) if joined(&shapes[0], &shapes[1]).as_ref() == Some(&shape) => (None, Some(b)),
        _ => (None, None),
    };
    let op = select_op::Select { a, b };
    let id = match (a, b) {
        (Some(_), Some(_)) => call.scope.apply(op, &[condition.id])?,
        (Some(_), None) | (None, Some(_)) => {
            let other = call.numbers(if a.is_some() { 2 } else { 1 })?;
            let ids = together(call.scope, [condition.id, other.id])?;
            call.scope.apply(op, &ids)?
        }
        (None, None) => {
            let (a, b) = (call.numbers(1)?, call.numbers(2)?);
            let ids = together(call.scope, [condition.id, a.id, b.id])?;
            call.scope.apply(op, &ids)?
        }
    };
    one(Dense { id, shape, kind: Kind::Number })
}

pub(super) fn cast(call: &mut Call<'_, '_, '_>) -> Made {
    if let Value::Permuted { source, axes } = call.value(0)? {
        return made(source, Some(axes));
    }
    let x = call.tensor(0)?;
    let to = if call.node.operator == "CastLike" {
        match call.tensor(1)?.kind {
            Kind::Index => element::INT64,
            Kind::Truth => element::BOOL,
            Kind::Number => element::FLOAT,
        }
    } else {
        call.node.int("to").and_then(|to| i32::try_from(to).ok()).unwrap_or(0)
    };
    let is_float = matches!(to, element::FLOAT | element::DOUBLE | element::FLOAT16 | element::BFLOAT16);
    let is_index = matches!(to, element::INT32 | element::INT64 | element::UINT32 | element::UINT64);
    match x.kind {
        Kind::Index if is_index => one(x),
        Kind::Index if is_float => {
            let y = call.map(to_float::ToFloat, &x)?;
            one(y)
        }
        Kind::Number if is_float => one(x),
        // Of 0 and 1.
        Kind::Truth if is_float || is_index => one(Dense { kind: Kind::Number, ..x }),
        Kind::Truth if to == element::BOOL => one(x),
        Kind::Number if to == element::BOOL => {
            let y = call.map(Compare { relation: Relation::NotEqual, number: Some(0.0) }, &x)?;
            one(Dense { kind: Kind::Truth, ..y })
        }
        _ => call.refuse(format!("a cast to {} is not there while the model runs", element::name(to))),
    }
}

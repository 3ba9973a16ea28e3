//! Products of matrices.

use crate::interop::onnx::call::{Call, Made, Part, one};
use crate::interop::onnx::fold::joined;
use crate::interop::onnx::walk::Dense;
use crate::nn::Init;
use crate::ops::elementwise::scale::Scale;
use crate::ops::matmul::matmul::MatMul;

/// Weights start as PyTorch's do, by the number of terms in a sum.
fn init(shape: &[usize], terms_axis: usize) -> Part {
    Part::Trained(Init::fan_in(shape.get(terms_axis).copied().unwrap_or(1)))
}

pub(super) fn gemm(call: &mut Call<'_, '_, '_>) -> Made {
    let flag = |name: &str| call.node.int(name).unwrap_or(0) != 0;
    let (trans_a, trans_b) = (flag("transA"), flag("transB"));
    let (alpha, beta) = (call.node.float("alpha").unwrap_or(1.0), call.node.float("beta").unwrap_or(1.0));
    let b_shape = call.shape(1)?;
    let (a, b) = (call.numbers(0)?, call.weight(1, init(&b_shape, usize::from(trans_b)))?);
    let ([_, _], [rows, columns]) = (&a.shape[..], &b.shape[..]) else {
        return call.refuse(format!("it takes matrices, found {:?} and {:?}", a.shape, b.shape));
    };
    let (outputs, terms) = if trans_b { (*rows, *columns) } else { (*columns, *rows) };
    let product = MatMul { trans_a, trans_b, ..MatMul::default() };
    if !call.has(2) || beta == 0.0 {
        let y = call.apply(product, &[&a, &b])?;
        return one(scaled(call, y, alpha)?);
    }
    let bias_shape = call.shape(2)?;
    let c = call.weight(2, Part::Trained(Init::fan_in(terms)))?;
    let is_row = bias_shape.last() == Some(&outputs) && bias_shape.iter().product::<usize>() == outputs;
    if is_row && alpha == 1.0 {
        let c = call.reshaped(&c, &[outputs])?;
        let c = scaled(call, c, beta)?;
        let y = call.apply(MatMul { bias: true, ..product }, &[&a, &b, &c])?;
        return one(y);
    }
    let y = call.apply(product, &[&a, &b])?;
    let y = scaled(call, y, alpha)?;
    let c = scaled(call, c, beta)?;
    if joined(&y.shape, &c.shape).as_deref() != Some(&y.shape) {
        return call.refuse(format!("its third input {:?} does not go to {:?}", c.shape, y.shape));
    }
    let id = call.scope.formula([y.id, c.id], |[y, c]| y + c)?;
    one(Dense { id, ..y })
}

fn scaled(call: &mut Call<'_, '_, '_>, x: Dense, factor: f32) -> Result<Dense, crate::error::GraphError> {
    if factor == 1.0 { Ok(x) } else { call.map(Scale { factor }, &x) }
}

pub(super) fn matmul(call: &mut Call<'_, '_, '_>) -> Made {
    let (own, other) = (call.shape(0)?, call.shape(1)?);
    if own.is_empty() || other.is_empty() {
        return call.refuse("it takes tensors with axes");
    }
    // A weight may be on either side.
    let a = call.weight(0, init(&own, own.len() - 1))?;
    let b = call.weight(1, init(&other, other.len().saturating_sub(2)))?;
    let id = call.scope.formula([a.id, b.id], |[a, b]| a.matmul(b))?;
    let mut shape = call.scope.shape(id);
    if own.len() == 1 && other.len() == 1 {
        shape = Vec::new();
    }
    let kind = crate::interop::onnx::walk::Kind::Number;
    one(Dense { id, shape, kind })
}

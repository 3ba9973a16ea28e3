//! What softmax and log-softmax share: the rows along an axis, the launches, the loops of the twins.

mod kernels;
mod native;

pub(in crate::ops) use kernels::{become_exp, exp, sum_exp};

use crate::error::OpError;
use crate::ops::reduce::reduction;
use crate::ops::sums::sum;
use crate::ops::{Call, Case, Cost, Dispatch, Fill, MAX_LOOP_ITERATIONS, Op, Real, Slot, expect_count, expect_dtype};
use crate::tensor::{DType, Shape, TensorDesc};

/// From so many elements on, a workgroup shares a row: before, one invocation has it to itself.
const LONG_ROW: usize = 512;
/// Times that the forward kernel goes over a row.
const PASSES: usize = 3;
/// The longest row that keeps within the loop iterations of one invocation.
const MAX_EXTENT: usize = (MAX_LOOP_ITERATIONS as usize - 64) / PASSES * 64;

/// The rows of a tensor: the elements along one axis.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Rows {
    rows: usize,
    extent: usize,
    inner: usize,
    /// Rows of a square of which row i ends i before the last, or 0: see [`Rows::causal`].
    queries: usize,
}

params! {
    struct Params {
        rows: u32,
        extent: u32,
        inner: u32,
        queries: u32,
    }
}

/// The shape rule.
pub(in crate::ops) fn outputs(
    op: &'static str,
    inputs: &[TensorDesc],
    axis: usize,
) -> Result<Vec<TensorDesc>, OpError> {
    expect_count(op, inputs, 1)?;
    expect_dtype(op, "input", &inputs[0], DType::F32)?;
    let shape = &inputs[0].shape;
    let reason = match shape.get(axis) {
        None => format!("the input {} has axes 0 to {}", inputs[0], shape.len() - 1),
        Some(&extent) if extent > MAX_EXTENT => format!("the axis of {} is longer than {MAX_EXTENT}", inputs[0]),
        Some(_) => return Ok(vec![inputs[0].clone()]),
    };
    Err(OpError::Setting { op, setting: "axis", value: axis.to_string(), reason })
}

/// `flops` for each element, and every tensor moved once.
pub(in crate::ops) fn cost(flops: u64, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
    let bytes_moved = inputs.iter().chain(outputs).map(TensorDesc::size_bytes).sum();
    Cost { flops: flops * outputs[0].numel() as u64, bytes_moved }
}

impl Rows {
    pub(in crate::ops) fn new(shape: &Shape, axis: usize) -> Self {
        let (extent, inner) = (shape[axis], shape[axis + 1..].iter().product());
        Rows { rows: shape.numel() / extent.max(1), extent, inner, queries: 0 }
    }

    /// The rows of `[…, queries, keys]` along the last axis, each of which sees the keys up to its own: the last sees all,
    /// each one before it one less.
    pub(in crate::ops) fn causal(shape: &Shape) -> Self {
        Rows { queries: shape[shape.len() - 2], ..Rows::new(shape, shape.len() - 1) }
    }

    /// Elements of a row that take part.
    #[inline(always)]
    fn visible(&self, row: usize) -> usize {
        if self.queries == 0 { self.extent } else { self.extent - self.queries + row % self.queries + 1 }
    }

    /// A launch of one of the kernels of `shared/softmax.wgsl`.
    pub(in crate::ops) fn dispatch(
        &self,
        file: &'static str,
        entry: &'static str,
        bindings: impl Into<Vec<Slot>>,
    ) -> Dispatch {
        let lanes = reduction::lanes(self.extent, LONG_ROW);
        let dispatch = Dispatch::new(file, entry, bindings)
            .params(&Params {
                rows: self.rows as u32,
                extent: self.extent as u32,
                inner: self.inner as u32,
                queries: self.queries as u32,
            })
            .loops(PASSES * self.extent.div_ceil(lanes) + 16);
        reduction::over_rows(dispatch, self.rows, lanes)
    }

    /// The indices of the elements of each row.
    fn indices(self) -> impl Iterator<Item = impl Iterator<Item = usize> + Clone> {
        let Rows { rows, extent, inner, .. } = self;
        (0..rows).map(move |row| {
            let start = row / inner * inner * extent + row % inner;
            (0..extent).map(move |k| start + k * inner)
        })
    }

    /// The CPU twin of the forward kernel; see `shared/softmax.wgsl`.
    pub(in crate::ops) fn forward<T: Real>(self, call: &mut Call<'_, T>, normalized: impl Fn(T, T) -> T) {
        let input = call.input(0);
        let output = call.output(0);
        for (number, row) in self.indices().enumerate() {
            let visible = self.visible(number);
            let largest = row.clone().take(visible).map(|i| input[i]).fold(T::NEG_INFINITY, Real::max);
            let sum = sum(row.clone().take(visible).map(|i| (input[i] - largest).exp()));
            for (k, i) in row.enumerate() {
                output[i] = if k < visible { normalized(input[i] - largest, sum) } else { T::ZERO };
            }
        }
    }

    /// The CPU twin of the gradient; see `shared/softmax.wgsl`.
    pub(in crate::ops) fn grad_input<T: Real>(
        self,
        call: &mut Call<'_, T>,
        weighted: impl Fn(T, T) -> T,
        gradient: impl Fn(T, T, T) -> T,
    ) {
        let (output, grad_output) = (call.input(0), call.input(1));
        let grad_input = call.output(0);
        for row in self.indices() {
            let sum = sum(row.clone().map(|i| weighted(grad_output[i], output[i])));
            for i in row {
                grad_input[i] = gradient(grad_output[i], output[i], sum);
            }
        }
    }
}

/// The cases of both ops.
pub(in crate::ops) fn cases<O: Op>(op: impl Fn(usize) -> O) -> Vec<Case> {
    let case = |name: &str, axis: usize, shape: &[usize]| {
        Case::new(name, op(axis), [TensorDesc::f32(shape)]).reduction(shape[axis])
    };
    vec![
        case("axis1_1x1", 1, &[1, 1]),
        case("axis1_4x10", 1, &[4, 10]),
        case("axis0_5x3", 0, &[5, 3]),
        case("axis1_2x3x4", 1, &[2, 3, 4]),
        case("axis2_2x3x5", 2, &[2, 3, 5]),
        case("axis1_2x300", 1, &[2, 300]),
        case("extreme_axis1_3x5", 1, &[3, 5]).fill(0, Fill::Uniform(-100.0, 100.0)),
        case("axis0_7", 0, &[7]),
        case("axis1_131x11", 1, &[131, 11]).large(),
        case("axis1_3x511", 1, &[3, 511]).large(),
        case("axis1_3x513", 1, &[3, 513]).large(),
        case("axis1_2x1031x3", 1, &[2, 1031, 3]).large(),
        case("axis0_70001", 0, &[70_001]).large(),
    ]
}

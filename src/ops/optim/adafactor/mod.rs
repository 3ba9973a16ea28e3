//! Adafactor.

mod native;

use std::sync::Arc;

use crate::error::OpError;
use crate::ops::optim::update::{self, States};
use crate::ops::reduce::reduction;
use crate::ops::sums::mean;
use crate::ops::{Call, Case, Cost, Dispatch, Flags, HYPER_LEN, Native, Op, Real, Slot, UpdateRule};
use crate::shader::Target;
use crate::tensor::TensorDesc;

/// Second moments of matrices are kept as those of rows and columns: with `s = t^beta2_decay` at step t,
/// `row += s (mean of g² over the row − row)`, `col += s (mean of g² over the column − col)` and
/// `v = row · col / max(mean of row, eps.0)`; of vectors `v += s (g² − v)`. Then `u = g / √max(v, eps.0²)` and
/// `parameter = (1 − lr · weight_decay) parameter − α u / max(1, rms(u)/d)`, where
/// `α = max(eps.1, rms(parameter)) · min(lr, 1/√t)`
///
/// | tensor | shape |
/// |---|---|
/// | parameter (changed), gradient | `[..., R, C]`, both alike |
/// | `row_var` (changed) | `[..., R, 1]` |
/// | `col_var` (changed) | `[..., 1, C]` |
/// | `variance` (changed), in place of both where there is one axis | as parameter |
/// | hyper | `[4]`: `min(lr, 1/√t)`, s, `1 − lr · weight_decay` |
/// | guard | `[1]` |
///
/// The last two axes are the matrix, each of the others counts by itself, as PyTorch has it.
///
/// **State:** from zeros; R + C numbers for a matrix of R · C. **Numerics:** f32; means and norms are sums in two levels and
/// always in the same order; `hyper` is computed in f64; where the guard is not finite nothing changes.
///
/// # Errors
/// Where shapes differ or an input is not f32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.optim.Adafactor.html>, <https://arxiv.org/abs/1804.04235>
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adafactor {
    /// How the weight of the newest gradient falls: `t^beta2_decay`.
    pub beta2_decay: f64,
    /// Least root of a second moment; least root mean square of a parameter.
    pub eps: (f64, f64),
    /// Largest root mean square of an update.
    pub d: f64,
    /// Share of a parameter that is taken away each step, times the learning rate.
    pub weight_decay: f64,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    eps: (f64, f64),
    d: f64,
    /// Whether the parameter has rows and columns.
    factored: bool,
}

/// A parameter as matrices of one size.
#[derive(Clone, Copy)]
struct Matrices {
    count: usize,
    rows: usize,
    columns: usize,
}

impl Matrices {
    /// `None` for vectors.
    fn of(parameter: &TensorDesc) -> Option<Self> {
        let [others @ .., rows, columns] = &parameter.shape[..] else { return None };
        Some(Matrices { count: others.iter().product(), rows: *rows, columns: *columns })
    }
}

fn states(parameter: &TensorDesc) -> States {
    let rank = parameter.shape.len();
    if rank < 2 {
        return update::like(parameter, &["variance"]);
    }
    let without = |axis: usize| {
        let mut shape = parameter.shape.to_vec();
        shape[axis] = 1;
        TensorDesc::f32(shape)
    };
    vec![("row_var", without(rank - 1)), ("col_var", without(rank - 2))]
}

params! {
    struct MeansParams {
        matrices: u32,
        rows: u32,
    }
}

params! {
    struct SquaresParams {
        outputs: u32,
        terms: u32,
        inner: u32,
        splits: u32,
    }
}

params! {
    struct Params {
        elements: u32,
        splits: u32,
        rows: u32,
        columns: u32,
        eps: [f32; 2] as [eps1, eps2],
        d: f32,
    }
}

impl UpdateRule for Adafactor {
    fn op(&self, parameter: &TensorDesc) -> Arc<dyn Op> {
        Arc::new(Step { eps: self.eps, d: self.d, factored: Matrices::of(parameter).is_some() })
    }

    fn states(&self, parameter: &TensorDesc) -> States {
        states(parameter)
    }

    fn hyper(&self, step: u64, lr: f64) -> [f32; HYPER_LEN] {
        let t = step as f64;
        [lr.min(1.0 / t.sqrt()), t.powf(self.beta2_decay), 1.0 - lr * self.weight_decay, 0.0].map(|x| x as f32)
    }
}

/// How one of the two states of a matrix is made: sums of `terms` squares, `inner` elements apart.
struct Moment {
    outputs: usize,
    terms: usize,
    inner: usize,
    /// The input that holds the state.
    state: usize,
}

impl Moment {
    fn both(Matrices { count, rows, columns }: Matrices) -> [Moment; 2] {
        [
            Moment { outputs: count * rows, terms: columns, inner: 1, state: 2 },
            Moment { outputs: count * columns, terms: rows, inner: columns, state: 3 },
        ]
    }

    fn splits(&self) -> usize {
        reduction::splits(self.outputs, self.terms)
    }

    /// Partial sums of squares, then the running mean.
    fn dispatches(&self, partials: Slot) -> [Dispatch; 2] {
        let splits = self.splits();
        let params = SquaresParams {
            outputs: self.outputs as u32,
            terms: self.terms as u32,
            inner: self.inner as u32,
            splits: splits as u32,
        };
        let launch = |entry: &'static str, bindings: &[Slot], invocations: usize| {
            Dispatch::new("adafactor", entry, bindings).params(&params).linear(invocations.div_ceil(64))
        };
        let moment = [Slot::Input(self.state), partials, Slot::Input(4), Slot::Input(5)];
        [
            launch("squares", &[Slot::Input(1), partials], self.outputs * splits).loops(self.terms.div_ceil(splits)),
            launch("moment", &moment, self.outputs).loops(splits),
        ]
    }
}

impl Step {
    fn states(self) -> usize {
        if self.factored { 2 } else { 1 }
    }

    /// The partial sums of a norm.
    fn norm_splits(parameter: &TensorDesc) -> usize {
        update::splits(parameter.numel().div_ceil(4))
    }

    /// A kernel over elements, which reads or writes these sums.
    fn launch(self, entry: &'static str, inputs: &[TensorDesc], sums: Slot) -> Dispatch {
        let matrices = Matrices::of(&inputs[0]);
        let params = Params {
            elements: inputs[0].numel() as u32,
            splits: Self::norm_splits(&inputs[0]) as u32,
            rows: matrices.map_or(1, |m| m.rows) as u32,
            columns: matrices.map_or(1, |m| m.columns) as u32,
            eps: [self.eps.0 as f32, self.eps.1 as f32],
            d: self.d as f32,
        };
        let (hyper, guard) = (Slot::Input(2 + self.states()), Slot::Input(3 + self.states()));
        let mut bindings = vec![Slot::Input(0), Slot::Input(1), guard];
        bindings.extend((2..2 + self.states()).map(Slot::Input));
        bindings.push(sums);
        bindings.extend(self.factored.then_some(MEANS));
        // The moments of rows and columns were moved before.
        bindings.extend((entry == "apply" || !self.factored).then_some(hyper));
        let dispatch = Dispatch::new("adafactor", entry, bindings).params(&params);
        if self.factored { dispatch.constant("FACTORED", 1) } else { dispatch }
    }
}

const PARTIAL_NORMS: Slot = Slot::Workspace(0);
const NORMS: Slot = Slot::Workspace(1);
const PARTIAL_MOMENTS: Slot = Slot::Workspace(2);
const MEANS: Slot = Slot::Workspace(3);

impl Op for Step {
    fn name(&self) -> &'static str {
        "adafactor"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        let op = "adafactor";
        if let Some(parameter) = inputs.first()
            && Matrices::of(parameter).is_some() != self.factored
        {
            let expected = if self.factored { "of two axes or more" } else { "of one axis" }.to_owned();
            return Err(OpError::Input { op, input: "parameter", expected, found: parameter.clone() });
        }
        update::outputs(op, inputs, states)
    }

    fn cost(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Cost {
        // The gradient is read for rows, for columns, for the norm and for the step, the parameter for the norm too.
        let again = if self.factored { 4 } else { 2 } * inputs[0].size_bytes();
        Cost { flops: 24 * inputs[0].numel() as u64, bytes_moved: update::bytes_moved(inputs, self.states()) + again }
    }

    /// Partial sums of the two squared norms, the sums; for matrices also partial sums of rows or columns, and the means of
    /// the rows' moments.
    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Vec<u64> {
        let mut bytes = vec![8 * Self::norm_splits(&inputs[0]), 8];
        if let Some(matrices) = Matrices::of(&inputs[0]) {
            let partials = Moment::both(matrices).map(|moment| 4 * moment.outputs * moment.splits());
            bytes.extend([partials[0].max(partials[1]), 4 * matrices.count]);
        }
        bytes.into_iter().map(|bytes| bytes as u64).collect()
    }

    fn flags(&self) -> Flags {
        update::FLAGS
    }

    fn mutates(&self) -> &'static [usize] {
        update::mutates(self.states())
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let numel = inputs[0].numel();
        let splits = Self::norm_splits(&inputs[0]);
        let mut dispatches = Vec::new();
        if let Some(matrices) = Matrices::of(&inputs[0]) {
            dispatches.extend(Moment::both(matrices).iter().flat_map(|moment| moment.dispatches(PARTIAL_MOMENTS)));
            let Matrices { count, rows, .. } = matrices;
            let lanes = reduction::lanes(rows, 64);
            let means = Dispatch::new("adafactor", "means", [Slot::Input(2), MEANS])
                .params(&MeansParams { matrices: count as u32, rows: rows as u32 })
                .loops(rows.div_ceil(lanes) + 16);
            dispatches.push(reduction::over_rows(means, count, lanes));
        }
        dispatches.extend([
            self.launch("norms", inputs, PARTIAL_NORMS).linear(splits.div_ceil(64)).loops(numel.div_ceil(splits)),
            reduction::combine(PARTIAL_NORMS, NORMS, 2, splits, 1.0),
            self.launch("apply", inputs, NORMS).linear(numel.div_ceil(64)),
        ]);
        dispatches
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Step {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let first = 2 + self.states();
        let (gradient, hyper, guard) = (call.input(1), call.input(first), call.input(first + 1)[0]);
        if !guard.is_finite() {
            return;
        }
        let matrices = Matrices::of(&call.input_descs[0]);
        let eps = (T::from_f64(self.eps.0), T::from_f64(self.eps.1));
        let toward = |state: &mut T, mean: T| *state += hyper[1] * (mean - *state);
        let mut updates = gradient.to_vec();
        if let Some(Matrices { rows, columns, .. }) = matrices {
            let [_, row_var, col_var] = call.mutated();
            let size = rows * columns;
            let of_matrices = gradient.chunks(size).zip(updates.chunks_mut(size));
            let states = row_var.chunks_mut(rows).zip(col_var.chunks_mut(columns));
            for ((gradient, updates), (row_var, col_var)) in of_matrices.zip(states) {
                for (row, of_row) in row_var.iter_mut().zip(gradient.chunks(columns)) {
                    toward(row, mean(of_row.iter().map(|&g| g * g)));
                }
                for (c, column) in col_var.iter_mut().enumerate() {
                    let squares = gradient[c..].iter().step_by(columns).map(|&g| g * g);
                    toward(column, mean(squares));
                }
                let mean = mean(row_var.iter().copied()).max(eps.0);
                for (i, u) in updates.iter_mut().enumerate() {
                    let second_moment = row_var[i / columns] * col_var[i % columns] / mean;
                    *u /= second_moment.max(eps.0 * eps.0).sqrt();
                }
            }
        } else {
            let [_, variance] = call.mutated();
            for ((u, &g), v) in updates.iter_mut().zip(gradient).zip(variance) {
                toward(v, g * g);
                *u /= v.max(eps.0 * eps.0).sqrt();
            }
        }
        let root_mean_square = |values: &[T]| mean(values.iter().map(|&x| x * x)).sqrt();
        let [parameter] = call.mutated();
        let alpha = eps.1.max(root_mean_square(parameter)) * hyper[0];
        let step = alpha / T::ONE.max(root_mean_square(&updates) / T::from_f64(self.d));
        for (p, u) in parameter.iter_mut().zip(updates) {
            *p = hyper[2] * *p - step * u;
        }
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let rule = Adafactor { beta2_decay: -0.8, eps: (1e-7, 1e-3), d: 1.0, weight_decay: 0.1 };
    let shapes: &[&[usize]] =
        &[&[1], &[257], &[1, 1], &[5, 3], &[2, 3, 5, 7], &[67, 1031], &[1031, 2], &[3, 131, 1], &[7, 5]];
    let mut cases = update::cases("adafactor", &rule, shapes);
    cases.extend(update::cases("clipped", &Adafactor { d: 0.01, ..rule }, &[&[7], &[13, 11]]));
    cases
}

//! Long short-term memory over a time axis.

mod grad;
mod twin;

use bytemuck::NoUninit;

use grad::LstmBackward;

use super::gemm::{Gemm, Matrix};
use super::{
    Backward, Builder, Call, Case, Cost, Dispatch, Op, Real, Slot, expect_count, expect_dtype, expect_rank, expect_shape,
};
use crate::error::OpError;
use crate::shader::Target;
use crate::tensor::{DType, TensorDesc, ValueId};

/// A single-layer LSTM. For each step t, with `*` elementwise:
///
/// ```text
/// i, f, g, o = input[t] · weight_ihᵀ + bias_ih + hidden[t−1] · weight_hhᵀ + bias_hh
/// cell[t]    = sigmoid(f) * cell[t−1] + sigmoid(i) * tanh(g)
/// hidden[t]  = sigmoid(o) * tanh(cell[t])
/// ```
///
/// | tensor | shape |
/// |---|---|
/// | input | `[B, T, I]` |
/// | weight_ih, weight_hh | `[4H, I]`, `[4H, H]`, gates in the order i, f, g, o |
/// | bias_ih, bias_hh | `[4H]` |
/// | h0, c0, if `has_initial` | `[B, H]`; otherwise zeros |
/// | output 0, hidden of all steps | `[B, T, H]` |
/// | output 1, last hidden | `[B, H]` |
/// | output 2, last cell | `[B, H]` |
/// | output 3, cells of all steps | `[B, T, H]`; saved, gets no gradient |
/// | output 4, activated gates | `[B, T, 4H]`; saved, gets no gradient |
///
/// **Saved for backward:** outputs 0, 3 and 4 (6 · B · T · H elements), input, weights, and h0, c0. The gradients of the
/// gates take the place of output 4.
/// **Numerics:** f32; the order of additions depends on the shapes only.
///
/// # Errors
/// Where shapes do not fit together or an input is not f32.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.nn.LSTM.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lstm {
    /// Units, H.
    pub hidden: usize,
    /// Whether h0 and c0 are inputs.
    pub has_initial: bool,
}

/// Most units and input features: beyond it the sum over them would loop too often.
const MAX_UNITS: usize = 1 << 15;

/// Extents of one run.
#[derive(Clone, Copy, Debug)]
struct Extents {
    batch: usize,
    steps: usize,
    features: usize,
    hidden: usize,
}

impl Extents {
    fn new(input: &TensorDesc, hidden: usize) -> Self {
        Extents { batch: input.shape[0], steps: input.shape[1], features: input.shape[2], hidden }
    }

    fn gates(&self) -> usize {
        4 * self.hidden
    }

    /// Rows of all samples and steps.
    fn rows(&self) -> usize {
        self.batch * self.steps
    }

    /// The rows of step `step` in a tensor `[B, T, width]`.
    fn step(&self, slot: Slot, step: usize, width: usize) -> Matrix {
        Matrix { offset: step * width, ..Matrix::new(slot, self.steps * width) }
    }

    /// Flops of the products with both weights for all steps.
    fn products_flops(&self) -> u64 {
        2 * (self.rows() * self.gates()) as u64 * (self.features + self.hidden) as u64
    }

    /// Bytes that the steps move beyond reading and writing every tensor once: the recurrent weight and, `passes` times,
    /// the gates of all steps.
    fn step_bytes(&self, passes: usize) -> u64 {
        4 * (self.steps * self.gates() * self.hidden + passes * self.rows() * self.gates()) as u64
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug, NoUninit)]
struct StepParams {
    elements: u32,
    units: u32,
    steps: u32,
    step: u32,
    has_grad_hidden: u32,
}

/// A launch of an elementwise kernel for one step.
fn step_dispatch(entry: &'static str, bindings: Vec<Slot>, x: &Extents, step: usize, has_grad_hidden: bool) -> Dispatch {
    let vector = if x.hidden.is_multiple_of(4) { 4 } else { 1 };
    let elements = x.batch * x.hidden / vector;
    let params = StepParams {
        elements: elements as u32,
        units: (x.hidden / vector) as u32,
        steps: x.steps as u32,
        step: step as u32,
        has_grad_hidden: u32::from(has_grad_hidden),
    };
    let dispatch = Dispatch::new("lstm", entry, bindings).params(&params).linear(elements.div_ceil(64));
    if vector == 4 { dispatch.constant("VEC", 1) } else { dispatch }
}

impl Lstm {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let x = Extents::new(&call.input_descs[0], self.hidden);
        let initial = self.has_initial.then(|| [call.input(5), call.input(6)]);
        let inputs = std::array::from_fn(|i| call.input(i));
        twin::forward(&x, inputs, initial, call.split_outputs());
    }
}

impl Op for Lstm {
    fn name(&self) -> &'static str {
        "lstm"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        const OP: &str = "lstm";
        if !(1..=MAX_UNITS).contains(&self.hidden) {
            let reason = format!("it must be in 1..={MAX_UNITS}");
            return Err(OpError::Setting { op: OP, setting: "hidden", value: self.hidden.to_string(), reason });
        }
        expect_count(OP, inputs, if self.has_initial { 7 } else { 5 })?;
        let names = ["input", "weight_ih", "weight_hh", "bias_ih", "bias_hh", "h0", "c0"];
        for (name, desc) in names.into_iter().zip(inputs) {
            expect_dtype(OP, name, desc, DType::F32)?;
        }
        expect_rank(OP, "input", &inputs[0], 3)?;
        let x = Extents::new(&inputs[0], self.hidden);
        if x.steps == 0 || !(1..=MAX_UNITS).contains(&x.features) {
            let expected = format!("of at least one step and 1..={MAX_UNITS} features");
            return Err(OpError::Input { op: OP, input: "input", expected, found: inputs[0].clone() });
        }
        expect_shape(OP, "weight_ih", &inputs[1], [x.gates(), x.features])?;
        expect_shape(OP, "weight_hh", &inputs[2], [x.gates(), x.hidden])?;
        expect_shape(OP, "bias_ih", &inputs[3], [x.gates()])?;
        expect_shape(OP, "bias_hh", &inputs[4], [x.gates()])?;
        for (name, desc) in names.into_iter().zip(inputs).skip(5) {
            expect_shape(OP, name, desc, [x.batch, x.hidden])?;
        }
        let state = TensorDesc::f32([x.batch, x.hidden]);
        let states = TensorDesc::f32([x.batch, x.steps, x.hidden]);
        let gates = TensorDesc::f32([x.batch, x.steps, x.gates()]);
        Ok(vec![states.clone(), state.clone(), state, states, gates])
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let grads = &forward.grad_outputs[..3];
        if grads.iter().all(Option::is_none) {
            return Ok(vec![None; forward.inputs.len()]);
        }
        let op = LstmBackward {
            hidden: self.hidden,
            has_initial: self.has_initial,
            grad_input: forward.wanted[0],
            grad_outputs: std::array::from_fn(|i| grads[i].is_some()),
        };
        let [input, weight_ih, weight_hh] = [0, 1, 2].map(|i| forward.inputs[i]);
        let [states, cells, gates] = [0, 3, 4].map(|i| forward.outputs[i]);
        let mut inputs = vec![gates, cells, states, input, weight_ih, weight_hh];
        inputs.extend(&forward.inputs[5..]);
        inputs.extend(grads.iter().flatten());
        let made = graph.apply(std::sync::Arc::new(op), &inputs)?;
        let mut rest = made[5..].iter().copied();
        let grad_input = if op.grad_input { rest.next() } else { None };
        let weights = made[1..5].iter().copied().map(Some);
        Ok(std::iter::once(grad_input).chain(weights).chain(rest.map(Some)).collect())
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let x = Extents::new(&inputs[0], self.hidden);
        let tensors = inputs.iter().chain(outputs).map(TensorDesc::size_bytes).sum::<u64>();
        let elementwise = 30 * (x.rows() * x.hidden) as u64;
        Cost { flops: x.products_flops() + elementwise, bytes_moved: tensors + x.step_bytes(4) }
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], target: &Target) -> Vec<Dispatch> {
        let x = Extents::new(&inputs[0], self.hidden);
        let (states, last_hidden, last_cell) = (Slot::Output(0), Slot::Output(1), Slot::Output(2));
        let (cells, gates) = (Slot::Output(3), Slot::Output(4));
        let from_input = Gemm { trans_b: true, ..Gemm::new(x.rows(), x.gates(), x.features) };
        let recurrent = Gemm { trans_b: true, accumulate: true, ..Gemm::new(x.batch, x.gates(), x.hidden) };
        let mut dispatches = vec![from_input.single(
            target,
            Matrix::new(Slot::Input(0), x.features),
            Matrix::new(Slot::Input(1), x.features),
            Matrix::new(gates, x.gates()),
        )];
        for step in 0..x.steps {
            let previous = match step {
                0 => self.has_initial.then(|| Matrix::new(Slot::Input(5), x.hidden)),
                _ => Some(x.step(states, step - 1, x.hidden)),
            };
            if let Some(previous) = previous {
                let weight = Matrix::new(Slot::Input(2), x.hidden);
                dispatches.push(recurrent.single(target, previous, weight, x.step(gates, step, x.gates())));
            }
            let mut bindings = vec![Slot::Input(3), Slot::Input(4), gates, cells, states, last_hidden, last_cell];
            bindings.extend(self.has_initial.then_some(Slot::Input(6)));
            let dispatch = step_dispatch("cell", bindings, &x, step, false);
            dispatches.push(if self.has_initial { dispatch.constant("HAS_INITIAL", 1) } else { dispatch });
        }
        dispatches
    }

    twin!();
}

/// Test cases.
pub fn cases() -> Vec<Case> {
    let case = |name: &str, has_initial: bool, [batch, steps, features, hidden]: [usize; 4]| {
        let mut inputs = vec![
            TensorDesc::f32([batch, steps, features]),
            TensorDesc::f32([4 * hidden, features]),
            TensorDesc::f32([4 * hidden, hidden]),
            TensorDesc::f32([4 * hidden]),
            TensorDesc::f32([4 * hidden]),
        ];
        if has_initial {
            inputs.extend([TensorDesc::f32([batch, hidden]), TensorDesc::f32([batch, hidden])]);
        }
        let case = Case::new(name, Lstm { hidden, has_initial }, inputs).reduction(steps * (batch + 4 * hidden + features));
        if hidden * hidden * batch * steps > 10_000 { case.large() } else { case }
    };
    vec![
        case("sequence", false, [2, 5, 3, 4]),
        case("last", false, [2, 5, 3, 4]),
        case("cell", false, [2, 3, 3, 4]),
        case("all", false, [2, 5, 3, 4]),
        case("state_sequence", true, [3, 4, 2, 5]),
        case("state_last", true, [3, 4, 2, 5]),
        case("state_all", true, [3, 4, 2, 5]),
        case("one", false, [1, 1, 1, 1]),
        case("state_one", true, [1, 1, 1, 1]),
        case("long_sequence", true, [1, 40, 2, 3]),
        case("hidden17", true, [3, 3, 5, 17]),
        // Several tiles and vectors; split sums of the weights' gradients.
        case("hidden36", true, [33, 4, 28, 36]),
        case("hidden20_no_state", false, [9, 70, 7, 20]),
    ]
}

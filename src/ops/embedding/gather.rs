//! Elements by index along an axis.

use crate::error::OpError;
use crate::ops::onnx;
use crate::ops::sums::Sums;
use crate::ops::{
    Backward, Builder, Call, Case, Cost, Dispatch, Fill, Flags, Integers, MAX_LOOP_ITERATIONS, Native, Op, Real,
    Resources, Slot, expect_count, expect_dtype, expect_shape,
};
use crate::shader::Target;
use crate::tensor::{DType, Shape, TensorDesc, ValueId};

/// `output[…, k, …] = input[…, index[…, k, …], …]` along an axis
///
/// | tensor | shape |
/// |---|---|
/// | input | `[…, n, …]` |
/// | index, u32 | `[…, m, …]`: as the input but for the axis, where it has at most 65,535 |
/// | output | as index |
///
/// **Saved for backward:** the index. **In place:** no.
/// **Numerics:** exact. An index that is not below n gives NaN, and has no part in the gradient. The gradient adds what was
/// taken several times in the order of the index; each of its elements goes over the m indices of its line.
///
/// # Errors
/// Where the input is not f32, the index is not u32, the axis does not exist, or the shapes differ beside it.
///
/// Source: <https://pytorch.org/docs/stable/generated/torch.gather.html>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gather {
    /// The axis along which the index counts.
    pub axis: usize,
}

/// Most indices along the axis.
const MAX_LENGTH: usize = MAX_LOOP_ITERATIONS as usize;

params! {
    struct Params {
        elements: u32,
        extent: u32,
        length: u32,
        inner: u32,
    }
}

/// The lines of the input and of the index along the axis.
struct Lines {
    extent: usize,
    length: usize,
    inner: usize,
}

impl Lines {
    fn new(input: &Shape, index: &Shape, axis: usize) -> Self {
        Lines { extent: input[axis], length: index[axis], inner: input[axis + 1..].iter().product() }
    }

    fn launch(&self, entry: &'static str, bindings: [Slot; 3], elements: usize) -> Dispatch {
        let [elements, extent, length, inner] = [elements, self.extent, self.length, self.inner].map(|n| n as u32);
        Dispatch::new("gather", entry, bindings)
            .params(&Params { elements, extent, length, inner })
            .linear(elements.div_ceil(64) as usize)
    }

    /// Where in the input element `i` of the output is, if its index is one.
    fn place(&self, i: usize, index: u32) -> Option<usize> {
        let (outer, index) = (i / (self.length * self.inner), index as usize);
        (index < self.extent).then(|| (outer * self.extent + index) * self.inner + i % self.inner)
    }
}

impl Gather {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let lines = Lines::new(&call.input_descs[0].shape, &call.input_descs[1].shape, self.axis);
        let (input, index) = (call.input(0), call.ints(1));
        for (i, (y, &index)) in call.output(0).iter_mut().zip(index).enumerate() {
            *y = lines.place(i, index).map_or(T::from_f64(f64::NAN), |place| input[place]);
        }
    }
}

impl Op for Gather {
    fn name(&self) -> &'static str {
        "gather"
    }

    fn onnx(&self, call: &mut onnx::Call<'_>) -> Option<Vec<String>> {
        let [value, index] = [0, 1].map(|i| call.input(i));
        Some(vec![call.node("GatherElements", &[&value, &index], [("axis", (self.axis as i64).into())])])
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("gather", inputs, 2)?;
        expect_dtype("gather", "input", &inputs[0], DType::F32)?;
        expect_dtype("gather", "index", &inputs[1], DType::U32)?;
        let mut shape = inputs[0].shape.to_vec();
        if self.axis >= shape.len() {
            let reason = format!("the input {} has {} axes", inputs[0], shape.len());
            return Err(OpError::Setting { op: "gather", setting: "axis", value: self.axis.to_string(), reason });
        }
        let length = inputs[1].shape.get(self.axis).copied().unwrap_or(0);
        shape[self.axis] = length;
        expect_shape("gather", "index", &inputs[1], shape.clone())?;
        if length > MAX_LENGTH {
            let expected = format!("of at most {MAX_LENGTH} indices along axis {}", self.axis);
            return Err(OpError::Input { op: "gather", input: "index", expected, found: inputs[1].clone() });
        }
        Ok(vec![TensorDesc::f32(shape)])
    }

    fn backward(&self, graph: &mut dyn Builder, forward: &Backward<'_>) -> Result<Vec<Option<ValueId>>, OpError> {
        let Some(grad_output) = forward.grad_outputs[0] else { return Ok(vec![None, None]) };
        let op = GatherGradInput { axis: self.axis, shape: graph.desc(forward.inputs[0]).shape.clone() };
        Ok(vec![Some(graph.emit(op, &[forward.inputs[1], grad_output])?), None])
    }

    fn integers(&self, input: usize, inputs: &[TensorDesc]) -> Option<Integers> {
        (input == 1).then(|| Integers::Indices { count: inputs[0].shape[self.axis], besides: None })
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        // Of the input, what is named is read.
        Cost { flops: 0, bytes_moved: inputs[1].size_bytes() + 2 * outputs[0].size_bytes() }
    }

    fn flags(&self) -> Flags {
        Flags { batch_separable: self.axis > 0, ..Flags::default() }
    }

    fn dispatches(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let lines = Lines::new(&inputs[0].shape, &inputs[1].shape, self.axis);
        vec![lines.launch("forward", [Slot::Input(0), Slot::Input(1), Slot::Output(0)], outputs[0].numel())]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for Gather {
    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let Lines { extent, length, inner } =
            Lines::new(&call.input_descs[0].shape, &call.input_descs[1].shape, self.axis);
        let (input, index) = (call.input(0), call.ints(1));
        let (from, to) = (extent * inner, length * inner);
        with.cores.rows(call.output(0), to, |outer, column, output| {
            let line = &input[outer * from..][..from];
            let mut within = column % inner;
            for (y, &index) in output.iter_mut().zip(&index[outer * to + column..]) {
                *y = if (index as usize) < extent { line[index as usize * inner + within] } else { f32::NAN };
                within = if within + 1 == inner { 0 } else { within + 1 };
            }
        });
    }
}

/// `grad_input[…, j, …] = Σ grad_output[…, k, …]` over the k whose index is j; inputs `index, grad_output`.
#[derive(Clone, Debug)]
struct GatherGradInput {
    axis: usize,
    /// Shape of the input.
    shape: Shape,
}

impl GatherGradInput {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let lines = Lines::new(&self.shape, &call.input_descs[0].shape, self.axis);
        let (index, grad_output) = (call.ints(0), call.input(1));
        let mut sums = Sums::new(call.output_descs[0].numel());
        for (i, (&index, &g)) in index.iter().zip(grad_output).enumerate() {
            if let Some(place) = lines.place(i, index) {
                sums.add(place, g);
            }
        }
        sums.write(call.output(0));
    }
}

impl Op for GatherGradInput {
    fn name(&self) -> &'static str {
        "gather.grad_input"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("gather.grad_input", inputs, 2)?;
        Ok(vec![TensorDesc::f32(self.shape.clone())])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let visits = (outputs[0].numel() * inputs[0].shape[self.axis]) as u64;
        Cost { flops: visits, bytes_moved: 4 * visits + inputs[1].size_bytes() + outputs[0].size_bytes() }
    }

    fn flags(&self) -> Flags {
        Flags { batch_separable: self.axis > 0, ..Flags::default() }
    }

    fn dispatches(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let lines = Lines::new(&self.shape, &inputs[0].shape, self.axis);
        let bindings = [Slot::Input(0), Slot::Input(1), Slot::Output(0)];
        vec![lines.launch("grad_input", bindings, outputs[0].numel()).loops(lines.length)]
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

impl Native for GatherGradInput {
    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let Lines { extent, length, inner } = Lines::new(&self.shape, &call.input_descs[0].shape, self.axis);
        let (index, grad_output) = (call.ints(0), call.input(1));
        let (to, from) = (extent * inner, length * inner);
        with.cores.pieces_of(call.output(0), to, to, |start, output| {
            for (line, output) in (start / to..).zip(output.chunks_exact_mut(to)) {
                output.fill(0.0);
                let terms = index[line * from..][..from].iter().zip(&grad_output[line * from..]);
                for (i, (&index, &g)) in terms.enumerate() {
                    if (index as usize) < extent {
                        output[index as usize * inner + i % inner] += g;
                    }
                }
            }
        });
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, axis: usize, shape: &[usize], length: usize| {
        let mut index = shape.to_vec();
        index[axis] = length;
        let case = Case::new(name, Gather { axis }, [TensorDesc::f32(shape), TensorDesc::u32(index)]);
        case.fill(1, Fill::Labels(shape[axis] as u32)).reduction(length)
    };
    vec![
        case("axis0_3_of_5", 0, &[5], 3),
        case("axis1_4x3_of_4x7", 1, &[4, 7], 3),
        case("axis1_2x5x3_of_2x4x3", 1, &[2, 4, 3], 5),
        case("axis2_2x3x1_of_2x3x5", 2, &[2, 3, 5], 1),
        case("one_1", 0, &[1], 1),
        case("no_such_place_2x3_of_2x4", 1, &[2, 4], 3).fill(1, Fill::Constant(4.0)).large(),
        case("many_of_one_axis1_3x257_of_3x5", 1, &[3, 5], 257).fill(1, Fill::Constant(2.0)).large(),
        case("axis1_67x1_of_67x1031", 1, &[67, 1031], 1).large(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_does_not_fit() {
        let outputs = |axis, input: &[usize], index: &[usize]| {
            Gather { axis }
                .outputs(&[TensorDesc::f32(input), TensorDesc::u32(index)])
                .map_err(|error| error.to_string())
        };
        assert_eq!(outputs(1, &[2, 3, 4], &[2, 7, 4]), Ok(vec![TensorDesc::f32([2, 7, 4])]));
        assert!(outputs(3, &[2, 3, 4], &[2, 7, 4]).is_err_and(|e| e.contains("axis = 3 is not possible")));
        assert!(outputs(1, &[2, 3, 4], &[2, 7, 3]).is_err_and(|e| e.contains("of shape [2, 7, 4]")));
        assert!(outputs(1, &[2, 3, 4], &[2]).is_err());
        assert!(outputs(0, &[2], &[70_000]).is_err_and(|e| e.contains("at most 65535 indices")));
    }
}

//! What losses share that weigh each sample: their last input has the weights, if there are any.

use crate::error::OpError;
use crate::ops::{Call, Case, Dispatch, Fill, Real, Slot, expect_dtype, expect_rank};
use crate::tensor::{DType, TensorDesc};

/// The name of the input in messages.
const INPUT: &str = "sample_weight";

/// Checks the last input: f32 `[W]`, where W divides the rows of the first input, its extent 0.
pub(in crate::ops) fn expect(op: &'static str, inputs: &[TensorDesc]) -> Result<(), OpError> {
    let weights = &inputs[inputs.len() - 1];
    expect_dtype(op, INPUT, weights, DType::F32)?;
    expect_rank(op, INPUT, weights, 1)?;
    let rows = inputs[0].shape.first().copied().unwrap_or(1);
    if weights.numel() > 0 && rows.is_multiple_of(weights.numel()) {
        return Ok(());
    }
    let expected = format!("of shape [W], where W divides the {rows} rows of the input");
    Err(OpError::Input { op, input: INPUT, expected, found: weights.clone() })
}

/// Binds the weights of samples, the op's input of this number, to a launch of a kernel that asks for them by numbers below `count`: as
/// many neighbours belong to each weight. See `shaders/shared/sample_weights.wgsl`.
pub(in crate::ops) fn bind(mut dispatch: Dispatch, inputs: &[TensorDesc], input: usize, count: usize) -> Dispatch {
    let binding = dispatch.bindings.len() as u32;
    dispatch.bindings.push(Slot::Input(input));
    dispatch.params.push("per_weight", (count / inputs[input].numel()) as u32);
    dispatch.constant("SAMPLE_WEIGHTS", binding)
}

/// What the twins multiply number i of `count` by: the weight in the last input, or 1 where there are none.
pub(in crate::ops) fn factors<'a, T: Real>(
    call: &Call<'a, T>,
    is_weighted: bool,
    count: usize,
) -> impl Fn(usize) -> T + use<'a, T> {
    let weights = is_weighted.then(|| call.input(call.inputs.len() - 1));
    move |i| weights.map_or(T::ONE, |weights| weights[i / (count / weights.len())])
}

/// Numbers of which each is that of so many neighbours, from the first again after the last.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Repeated<'a> {
    numbers: &'a [f32],
    neighbours: usize,
}

impl<'a> Repeated<'a> {
    /// 1 for all.
    pub(in crate::ops) const ONE: Repeated<'static> = Repeated { numbers: &[1.0], neighbours: usize::MAX };

    pub(in crate::ops) fn new(numbers: &'a [f32], neighbours: usize) -> Self {
        Repeated { numbers, neighbours: neighbours.max(1) }
    }

    /// What native forms multiply numbers below `count` by, as [`factors`] for the twins.
    pub(in crate::ops) fn of_samples(call: &Call<'a, f32>, is_weighted: bool, count: usize) -> Self {
        if !is_weighted {
            return Repeated::ONE;
        }
        let weights = call.input(call.inputs.len() - 1);
        Repeated::new(weights, count / weights.len())
    }

    /// The number of `i`.
    pub(in crate::ops) fn at(&self, i: usize) -> f32 {
        self.numbers[i / self.neighbours % self.numbers.len()]
    }

    /// Writes the numbers from `start` on.
    pub(in crate::ops) fn spread<'b>(&self, start: usize, to: &'b mut [f32]) -> &'b mut [f32] {
        let (mut number, mut left) = (start / self.neighbours, self.neighbours - start % self.neighbours);
        let mut at = 0;
        while at < to.len() {
            let length = left.min(to.len() - at);
            to[at..at + length].fill(self.numbers[number % self.numbers.len()]);
            (number, left, at) = (number + 1, self.neighbours, at + length);
        }
        to
    }
}

/// A case of an op that weighs samples, with so many weights more.
pub(in crate::ops) fn case(mut case: Case, samples: usize) -> Case {
    case.inputs.push((TensorDesc::f32([samples]), Fill::Uniform(0.25, 4.0)));
    case.wanted.push(false);
    case
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_weights_as_divide_the_rows() {
        let check = |rows: &[usize], weights: TensorDesc| {
            expect("loss", &[TensorDesc::f32(rows), weights]).map_err(|error| error.to_string())
        };
        for samples in [1, 2, 3, 6] {
            assert_eq!(check(&[6, 5], TensorDesc::f32([samples])), Ok(()));
        }
        for samples in [0, 4, 5, 12] {
            let message = check(&[6, 5], TensorDesc::f32([samples])).expect_err("does not divide");
            assert!(message.contains("sample_weight") && message.contains("W divides the 6 rows"), "{message}");
        }
        assert!(check(&[6, 5], TensorDesc::f32([6, 1])).is_err());
        assert!(check(&[6, 5], TensorDesc::u32([6])).is_err());
    }
}

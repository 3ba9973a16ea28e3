//! Layers of several tensors.

use super::norm::normalized;
use crate::error::ImportError;
use crate::interop::keras::config::Config;
use crate::interop::keras::value::{Call, Layer, Value};
use crate::nn::{Operand, Tensor};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Add,
    Subtract,
    Multiply,
    Divide,
    Average,
    Maximum,
    Minimum,
}

/// Element by element.
#[derive(Debug)]
struct Elementwise(Operation);

/// Tensors with their axes in one order, and whether that has the channels first.
fn in_one_order<'a>(inputs: &[Value<'a>]) -> (Vec<Tensor<'a>>, bool) {
    let ranks = inputs.iter().map(|input| input.rank());
    let is_one_rank = ranks.clone().min() == ranks.max();
    // What stands in between is cheaper to leave as it is.
    if is_one_rank && inputs.iter().any(|input| input.first) {
        return (inputs.iter().map(|input| input.channels_first()).collect(), true);
    }
    (inputs.iter().map(|input| input.keras()).collect(), false)
}

impl Elementwise {
    fn pair<'a>(&self, a: Tensor<'a>, b: Operand<'a>) -> Tensor<'a> {
        match (self.0, b) {
            (Operation::Add | Operation::Average, Operand::Tensor(b)) => a + b,
            (Operation::Add | Operation::Average, Operand::Number(b)) => a + b,
            (Operation::Subtract, Operand::Tensor(b)) => a - b,
            (Operation::Subtract, Operand::Number(b)) => a - b,
            (Operation::Multiply, Operand::Tensor(b)) => a * b,
            (Operation::Multiply, Operand::Number(b)) => a * b,
            (Operation::Divide, Operand::Tensor(b)) => a / b,
            (Operation::Divide, Operand::Number(b)) => a / b,
            (Operation::Maximum, b) => a.maximum(b),
            (Operation::Minimum, b) => a.minimum(b),
        }
    }
}

impl Layer for Elementwise {
    fn apply<'a>(&self, call: &Call<'_, 'a>) -> Value<'a> {
        let (tensors, first) = in_one_order(call.inputs);
        let terms = call.numbers.len();
        let result = tensors[0].within(call.name, |one| {
            let mut tensors = tensors.iter().copied();
            let mut operands = call.numbers.iter().map(|number| match number {
                Some(number) => Operand::Number(*number),
                None => Operand::Tensor(tensors.next().unwrap_or(one)),
            });
            let start = operands.next();
            let sum = match start {
                Some(Operand::Number(number)) => match operands.next() {
                    // A number before a tensor.
                    Some(Operand::Tensor(b)) => match self.0 {
                        Operation::Subtract => number - b,
                        Operation::Divide => number / b,
                        _ => self.pair(b, Operand::Number(number)),
                    },
                    _ => one,
                },
                Some(Operand::Tensor(a)) => operands.fold(a, |a, b| self.pair(a, b)),
                None => one,
            };
            if self.0 == Operation::Average { sum / terms as f32 } else { sum }
        });
        Value { tensor: result, first: first && result.shape().len() > 2, tokens: false }
    }

    fn arity(&self) -> (usize, usize) {
        match self.0 {
            Operation::Subtract | Operation::Divide => (2, 2),
            _ => (1, usize::MAX),
        }
    }

    fn takes_numbers(&self) -> bool {
        true
    }
}

/// One behind the other along an axis.
#[derive(Debug)]
struct Concatenate {
    axis: isize,
}

impl Layer for Concatenate {
    fn apply<'a>(&self, call: &Call<'_, 'a>) -> Value<'a> {
        let (tensors, first) = in_one_order(call.inputs);
        let value = Value { tensor: tensors[0], first, tokens: false };
        let Some(axis) = value.axis(self.axis) else {
            return call.fail(format!("axis {} is none of the sample's: the batch cannot be it", self.axis));
        };
        let joined = value.tensor.within(call.name, |_| {
            // By pairs of neighbours, so that each element is copied few times.
            let mut parts = tensors.clone();
            while parts.len() > 1 {
                let pairs = parts.chunks(2);
                parts = pairs.map(|pair| if let [a, b] = *pair { a.concat(b, axis) } else { pair[0] }).collect();
            }
            parts[0]
        });
        Value { tensor: joined, ..value }
    }

    fn arity(&self) -> (usize, usize) {
        (1, usize::MAX)
    }
}

/// Products of two tensors summed along an axis of each.
#[derive(Debug)]
struct Dot {
    axes: [isize; 2],
    normalize: bool,
}

impl Layer for Dot {
    fn apply<'a>(&self, call: &Call<'_, 'a>) -> Value<'a> {
        let [a, b] = [call.inputs[0].keras(), call.inputs[1].keras()];
        let ranks = [a, b].map(|tensor| tensor.shape().len());
        if ranks.iter().any(|rank| !(2..=3).contains(rank)) {
            return call.fail("takes samples of one or two axes: reshape them before".to_owned());
        }
        let places: Vec<_> = [(a, self.axes[0]), (b, self.axes[1])]
            .into_iter()
            .filter_map(|(tensor, axis)| Value::plain(tensor).axis(axis))
            .collect();
        let [i, j] = places[..] else {
            return call.fail(format!("has no axes {:?}: the batch cannot be one of them", self.axes));
        };
        // What is summed is last in the first and last in the second.
        let last = |tensor: Tensor<'a>, place: usize| {
            let end = tensor.shape().len() - 1;
            let tensor = if place == end { tensor } else { tensor.transpose(place as isize, end as isize) };
            if self.normalize { normalized(tensor) } else { tensor }
        };
        Value::plain(a.within(call.name, |a| {
            let (a, b) = (last(a, i), last(b, j));
            match ranks {
                [2, 2] => (a * b).sum(&[-1], true),
                [3, 2] => (a * b.unsqueeze(1)).sum(&[-1], false),
                [2, 3] => (b * a.unsqueeze(1)).sum(&[-1], false),
                _ => a.matmul(b.transpose(1, 2)),
            }
        }))
    }

    fn arity(&self) -> (usize, usize) {
        (2, 2)
    }
}

/// A layer of these classes, if it is one.
pub(super) fn parse(config: &Config<'_>) -> Result<Option<Box<dyn Layer>>, ImportError> {
    let operation = match config.class {
        "Add" => Operation::Add,
        "Subtract" => Operation::Subtract,
        "Multiply" => Operation::Multiply,
        "Divide" | "TrueDivide" => Operation::Divide,
        "Average" => Operation::Average,
        "Maximum" => Operation::Maximum,
        "Minimum" => Operation::Minimum,
        "Concatenate" => return Ok(Some(Box::new(Concatenate { axis: config.axis("axis", -1)? }))),
        "Dot" => {
            let axes = match config.axes("axes", -1)?[..] {
                [axis] => [axis; 2],
                [a, b] => [a, b],
                _ => return Err(config.unsupported("`axes` must be one axis or one of each tensor")),
            };
            return Ok(Some(Box::new(Dot { axes, normalize: config.bool("normalize", false)? })));
        }
        _ => return Ok(None),
    };
    Ok(Some(Box::new(Elementwise(operation))))
}

//! Test cases of every recurrent op.

use super::{Cell, Recurrent};
use crate::ops::{Case, Fill};
use crate::tensor::TensorDesc;

/// One case: sizes of the input `[batch, time, input]`.
pub(in crate::ops) fn case<C: Cell>(name: &str, op: Recurrent<C>, batch: usize, time: usize, input: usize) -> Case {
    let (hidden, sums) = (op.hidden, C::GATES * op.hidden);
    let mut inputs = vec![
        TensorDesc::f32([batch, time, input]),
        TensorDesc::f32([sums, input]),
        TensorDesc::f32([sums, hidden]),
        TensorDesc::f32([sums]),
        TensorDesc::f32([sums]),
    ];
    if op.has_initial {
        inputs.extend(C::STATES.iter().map(|_| TensorDesc::f32([batch, hidden])));
    }
    inputs.extend(op.lengths.map(|_| TensorDesc::u32([batch])));
    let last = inputs.len() - 1;
    let case = Case::new(name, op, inputs).reduction(batch * time * (input + hidden));
    match op.lengths {
        // From none to more than there are.
        Some(start) => case.fill(last, Fill::Labels((start + time + 2) as u32)),
        None => case,
    }
}

/// The cases of a cell.
pub(in crate::ops) fn cases<C: Cell>() -> Vec<Case> {
    let zeros = Recurrent::<C>::new;
    let state = |hidden| zeros(hidden).with_initial();
    vec![
        case("sequence", zeros(4), 2, 5, 3),
        case("last", zeros(4), 2, 5, 3),
        case("all", zeros(4), 2, 5, 3),
        case("state_sequence", state(5), 3, 4, 2),
        case("state_last", state(5), 3, 4, 2),
        case("state_all", state(5), 3, 4, 2),
        case("one", zeros(1), 1, 1, 1),
        case("state_one", state(1), 1, 1, 1),
        case("long_sequence", state(3), 1, 40, 2),
        case("hidden17", state(17), 3, 3, 5),
        case("lengths", zeros(4).with_lengths(0), 4, 5, 3),
        case("lengths_state", state(3).with_lengths(0), 5, 7, 2),
        case("lengths_last", state(5).with_lengths(0), 3, 4, 2),
        case("lengths_part", state(4).with_lengths(3), 7, 5, 3),
        case("lengths_part_zeros", zeros(3).with_lengths(2), 7, 4, 2),
        case("tile_33x29x36", zeros(36), 33, 5, 29).large(),
        case("many_rows", zeros(8), 70, 20, 3).large(),
        case("lengths_17x33", zeros(7).with_lengths(0), 17, 33, 5).large(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Op;
    use crate::ops::recurrent::gru::Gru;

    #[test]
    fn sums_that_no_invocation_can_make_are_refused() {
        let outputs = |features: usize| {
            let shapes: [&[usize]; 5] = [&[1, 4, features], &[12, features], &[12, 4], &[12], &[12]];
            Gru::new(4).outputs(&shapes.map(TensorDesc::f32))
        };
        assert!(outputs(260_000).is_ok());
        let error = outputs(280_000).expect_err("must be refused").to_string();
        assert!(error.contains("gru") && error.contains("too long"), "{error}");
    }
}

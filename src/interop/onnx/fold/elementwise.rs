//! Arithmetic of known values.

use super::places::{indices, joined, place, repeated};
use super::sized;
use crate::interop::onnx::constant::{Constant, Data};
use crate::interop::onnx::ir::Node;

/// A function of two whole numbers; `None` where it has no value.
fn of_ints(operator: &str, a: i64, b: i64) -> Option<i64> {
    Some(match operator {
        "Add" => a.wrapping_add(b),
        "Sub" => a.wrapping_sub(b),
        "Mul" => a.wrapping_mul(b),
        // Towards zero.
        "Div" => a.checked_div(b)?,
        "Mod" => a.checked_rem_euclid(b).map(|rest| if rest != 0 && b < 0 { rest + b } else { rest })?,
        "Min" => a.min(b),
        "Max" => a.max(b),
        "Pow" => a.checked_pow(u32::try_from(b).ok()?)?,
        _ => return None,
    })
}

fn of_floats(operator: &str, a: f32, b: f32) -> Option<f32> {
    Some(match operator {
        "Add" => a + b,
        "Sub" => a - b,
        "Mul" => a * b,
        "Div" => a / b,
        "Min" => a.min(b),
        "Max" => a.max(b),
        "Pow" => a.powf(b),
        _ => return None,
    })
}

fn compared<T: PartialOrd>(operator: &str, a: &T, b: &T) -> Option<bool> {
    Some(match operator {
        "Equal" => a == b,
        "Less" => a < b,
        "LessOrEqual" => a <= b,
        "Greater" => a > b,
        "GreaterOrEqual" => a >= b,
        _ => return None,
    })
}

fn of_bools(operator: &str, a: bool, b: bool) -> Option<bool> {
    Some(match operator {
        "And" => a && b,
        "Or" => a || b,
        "Xor" => a != b,
        _ => return None,
    })
}

fn of_one(operator: &str, x: f32) -> Option<f32> {
    Some(match operator {
        "Neg" => -x,
        "Abs" => x.abs(),
        "Sqrt" => x.sqrt(),
        "Reciprocal" => x.recip(),
        "Exp" => x.exp(),
        "Log" => x.ln(),
        "Floor" => x.floor(),
        "Ceil" => x.ceil(),
        "Round" => x.round_ties_even(),
        "Sin" => x.sin(),
        "Cos" => x.cos(),
        "Tanh" => x.tanh(),
        _ => return None,
    })
}

fn of_one_int(operator: &str, x: i64) -> Option<i64> {
    Some(match operator {
        "Neg" => x.wrapping_neg(),
        "Abs" => x.wrapping_abs(),
        _ => return None,
    })
}

const PAIRS: [&str; 17] = [
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Mod",
    "Min",
    "Max",
    "Pow",
    "Equal",
    "Less",
    "LessOrEqual",
    "Greater",
    "GreaterOrEqual",
    "And",
    "Or",
    "Xor",
    "Sum",
];

pub(super) fn fold<'a>(node: &Node, at: &impl Fn(usize) -> Option<&'a Constant>) -> Option<Result<Constant, String>> {
    let operator = &node.operator[..];
    let first = at(0)?;
    // The remainder of C is another.
    if operator == "Mod" && node.int("fmod").unwrap_or(0) != 0 {
        return None;
    }
    if PAIRS.contains(&operator) {
        let mut all = (0..node.inputs.len()).map(at);
        let mut sum = all.next()??.clone();
        for other in all {
            match pair(if operator == "Sum" { "Add" } else { operator }, &sum, other?) {
                Ok(next) => sum = next,
                Err(reason) => return Some(Err(reason)),
            }
        }
        return Some(Ok(sum));
    }
    if operator == "Where" {
        return Some(select(first, at(1)?, at(2)?));
    }
    if operator == "Not" {
        let data = Data::Bools(first.to_bools().into_iter().map(|value| !value).collect());
        return Some(Ok(Constant::new(first.shape.clone(), data)));
    }
    let data = match &first.data {
        Data::Ints(values) => Data::Ints(values.iter().map(|&x| of_one_int(operator, x)).collect::<Option<_>>()?),
        Data::Floats(_) | Data::Filled(..) => {
            Data::Floats(first.to_floats().into_iter().map(|x| of_one(operator, x)).collect::<Option<_>>()?)
        }
        Data::Bools(_) => return None,
    };
    // An operator that is not known has to be known of none, too.
    of_one(operator, 0.0)?;
    Some(Ok(Constant::new(first.shape.clone(), data)))
}

/// A shape, and for each of its elements the places of those that it is made of.
type Pairs = (Vec<usize>, Vec<(usize, usize)>);

/// The shape of both, and the places of their elements in it.
fn together(a: &Constant, b: &Constant) -> Result<Pairs, String> {
    let shape =
        joined(&a.shape, &b.shape).ok_or_else(|| format!("{:?} and {:?} do not go together", a.shape, b.shape))?;
    sized(&shape)?;
    let (of_a, of_b) = (repeated(&a.shape, &shape), repeated(&b.shape, &shape));
    let places = indices(&shape).map(|index| (place(&index, &of_a), place(&index, &of_b))).collect();
    Ok((shape, places))
}

fn pair(operator: &str, a: &Constant, b: &Constant) -> Result<Constant, String> {
    let (shape, places) = together(a, b)?;
    let missing = || format!("{operator} has no value for these numbers");
    let data = match (&a.data, &b.data) {
        (Data::Bools(x), Data::Bools(y)) => {
            let of =
                |&(i, j): &(usize, usize)| of_bools(operator, x[i], y[j]).or_else(|| compared(operator, &x[i], &y[j]));
            Data::Bools(places.iter().map(of).collect::<Option<_>>().ok_or_else(missing)?)
        }
        (Data::Ints(x), Data::Ints(y)) => {
            if compared(operator, &0, &0).is_some() {
                Data::Bools(places.iter().filter_map(|&(i, j)| compared(operator, &x[i], &y[j])).collect())
            } else {
                let of = |&(i, j): &(usize, usize)| of_ints(operator, x[i], y[j]);
                Data::Ints(places.iter().map(of).collect::<Option<_>>().ok_or_else(missing)?)
            }
        }
        _ => {
            let (x, y) = (a.to_floats(), b.to_floats());
            if compared(operator, &0, &0).is_some() {
                Data::Bools(places.iter().filter_map(|&(i, j)| compared(operator, &x[i], &y[j])).collect())
            } else {
                let of = |&(i, j): &(usize, usize)| of_floats(operator, x[i], y[j]);
                Data::Floats(places.iter().map(of).collect::<Option<_>>().ok_or_else(missing)?)
            }
        }
    };
    Ok(Constant::new(shape, data))
}

fn select(condition: &Constant, a: &Constant, b: &Constant) -> Result<Constant, String> {
    let (both, places) = together(a, b)?;
    let shape = joined(&condition.shape, &both).ok_or_else(|| "its inputs do not go together".to_owned())?;
    sized(&shape)?;
    let (of_condition, of_both) = (repeated(&condition.shape, &shape), repeated(&both, &shape));
    let set = condition.to_bools();
    let chosen: Vec<_> =
        indices(&shape).map(|index| (set[place(&index, &of_condition)], places[place(&index, &of_both)])).collect();
    fn choose<T: Copy>(chosen: &[(bool, (usize, usize))], a: &[T], b: &[T]) -> Vec<T> {
        chosen.iter().map(|&(set, (i, j))| if set { a[i] } else { b[j] }).collect()
    }
    let data = match (&a.data, &b.data) {
        (Data::Ints(a), Data::Ints(b)) => Data::Ints(choose(&chosen, a, b)),
        (Data::Bools(a), Data::Bools(b)) => Data::Bools(choose(&chosen, a, b)),
        _ => Data::Floats(choose(&chosen, &a.to_floats(), &b.to_floats())),
    };
    Ok(Constant::new(shape, data))
}

//! Operators on tensors of known values: what exporters compute of shapes.

mod elementwise;
mod places;

pub(super) use places::{cut, flattened, joined, lengths, permutation, resolve, squeezed, unsqueezed};

use std::sync::Arc;

use super::constant::{Constant, Data, MAX_FILLED, MAX_FOLDED, elements};
use super::ir::{Attribute, Node};
use super::proto::element;

/// What an operator makes of known values; `None` where it is not one of those that are folded.
pub(super) type Folded = Option<Result<Vec<Constant>, String>>;

/// The outputs of a node all of whose inputs are known.
pub(super) fn fold(node: &Node, inputs: &[Option<Arc<Constant>>]) -> Folded {
    if !node.domain.is_empty() {
        return None;
    }
    let inputs: Result<Vec<_>, _> =
        inputs.iter().map(|input| input.as_ref().map(Constant::spread).transpose()).collect();
    let inputs = match inputs {
        Ok(inputs) => inputs,
        Err(reason) => return Some(Err(reason)),
    };
    let at = |index: usize| inputs.get(index).and_then(Option::as_deref);
    let one = |result: Result<Constant, String>| Some(result.map(|constant| vec![constant]));
    if node.operator == "Constant" {
        return one(constant(node));
    }
    if node.operator == "Split" {
        return Some(places::split(node, at(0)?, at(1)));
    }
    if let Some(result) = places::fold(node, &at) {
        return one(result);
    }
    if let Some(result) = elementwise::fold(node, &at) {
        return one(result);
    }
    let first = at(0);
    one(match &node.operator[..] {
        "ConstantOfShape" => of_shape(node, first?),
        "Range" => range(first?, at(1)?, at(2)?),
        "Cast" => cast(first?, node.int("to").unwrap_or(0)),
        "CastLike" => {
            let kind = match at(1)?.data {
                Data::Floats(_) | Data::Filled(..) => element::FLOAT,
                Data::Ints(_) => element::INT64,
                Data::Bools(_) => element::BOOL,
            };
            cast(first?, i64::from(kind))
        }
        "ReduceSum" | "ReduceProd" | "ReduceMax" | "ReduceMin" | "ReduceMean" => reduce(node, first?, at(1)),
        "NonZero" => Ok(non_zero(first?)),
        _ => return None,
    })
}

/// Refuses tensors that are too large to be folded.
fn sized(shape: &[usize]) -> Result<usize, String> {
    elements(shape).filter(|&count| count <= MAX_FOLDED).ok_or_else(|| {
        format!(
            "it makes a tensor of shape {:?} before the model runs: that is too large",
            &shape[..shape.len().min(8)]
        )
    })
}

/// Extents, as the input of an operator.
pub(super) fn extents(constant: &Constant) -> Result<Vec<usize>, String> {
    let values = constant.to_ints().ok_or_else(|| "a shape must be whole numbers".to_owned())?;
    values.iter().map(|&value| usize::try_from(value).map_err(|_| format!("{value} is no extent"))).collect()
}

/// An axis of so many, from the end where it is negative.
pub(super) fn axis(axis: i64, rank: usize) -> Result<usize, String> {
    let index = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
    let index = index.and_then(|index| usize::try_from(index).ok()).filter(|&index| index < rank);
    index.ok_or_else(|| format!("there is no axis {axis} among {rank}"))
}

/// The value of a node `Constant`.
fn constant(node: &Node) -> Result<Constant, String> {
    let (name, attribute) = node.attributes.iter().next().ok_or_else(|| "it has no value".to_owned())?;
    Ok(match attribute {
        Attribute::Tensor(tensor) => (**tensor).clone(),
        Attribute::Float(value) => Constant::floats([], vec![*value]),
        Attribute::Int(value) => Constant::ints([], vec![*value]),
        Attribute::Floats(values) => Constant::floats([values.len()], values.clone()),
        Attribute::Ints(values) => Constant::ints([values.len()], values.clone()),
        Attribute::Text(_) | Attribute::Texts(_) | Attribute::Other => {
            return Err(format!("constants of {name} are not read"));
        }
    })
}

fn of_shape(node: &Node, shape: &Constant) -> Result<Constant, String> {
    let shape = extents(shape)?;
    let value = match node.attributes.get("value") {
        Some(Attribute::Tensor(tensor)) if tensor.data.len() == 1 => tensor.data.clone(),
        Some(_) => return Err("its value must be a tensor of one element".to_owned()),
        None => Data::Floats(vec![0.0]),
    };
    // Weights are made so where a file leaves their values out.
    if let (Data::Floats(value), Some(count @ ..=MAX_FILLED)) = (&value, elements(&shape)) {
        return Ok(Constant::new(shape, Data::Filled(value[0], count)));
    }
    let count = sized(&shape)?;
    Ok(Constant::new(shape, value.pick(std::iter::repeat_n(0, count))))
}

fn range(start: &Constant, limit: &Constant, delta: &Constant) -> Result<Constant, String> {
    if [start, limit, delta].iter().any(|constant| constant.data.len() != 1) {
        return Err("start, limit and delta must be numbers".to_owned());
    }
    if let (Some(start), Some(limit), Some(delta)) = (start.to_ints(), limit.to_ints(), delta.to_ints()) {
        let (start, limit, delta) = (i128::from(start[0]), i128::from(limit[0]), i128::from(delta[0]));
        if delta == 0 {
            return Err("delta must not be 0".to_owned());
        }
        let span = limit - start;
        let count = if (span > 0) == (delta > 0) { (span.abs() + delta.abs() - 1) / delta.abs() } else { 0 };
        let count = sized(&[usize::try_from(count).unwrap_or(usize::MAX)])?;
        return Ok(Constant::ints([count], (0..count as i128).map(|i| (start + i * delta) as i64).collect()));
    }
    let [start, limit, delta] = [start, limit, delta].map(|constant| f64::from(constant.to_floats()[0]));
    let count = ((limit - start) / delta).ceil().max(0.0);
    if !count.is_finite() {
        return Err("it has no end".to_owned());
    }
    let count = sized(&[count as usize])?;
    Ok(Constant::floats([count], (0..count).map(|i| (start + i as f64 * delta) as f32).collect()))
}

/// With elements of another type.
pub(super) fn cast(constant: &Constant, kind: i64) -> Result<Constant, String> {
    let kind = i32::try_from(kind).unwrap_or(0);
    let data = match kind {
        element::FLOAT | element::DOUBLE | element::FLOAT16 | element::BFLOAT16 => Data::Floats(constant.to_floats()),
        element::BOOL => Data::Bools(constant.to_bools()),
        element::UINT8..=element::INT64 | element::UINT32 | element::UINT64 => match &constant.data {
            // Towards zero.
            Data::Floats(_) | Data::Filled(..) => {
                Data::Ints(constant.to_floats().iter().map(|&value| value as i64).collect())
            }
            _ => Data::Ints(constant.to_ints().unwrap_or_default()),
        },
        _ => return Err(format!("a cast to {} is not there", element::name(kind))),
    };
    Ok(Constant { shape: constant.shape.clone(), data })
}

/// The axes that an operator names: by an attribute, or in later versions by an input.
pub(super) fn axes(node: &Node, input: Option<&Constant>, rank: usize) -> Result<Option<Vec<usize>>, String> {
    let named = match input {
        Some(constant) => constant.to_ints(),
        None => node.ints("axes").map(<[i64]>::to_vec),
    };
    let Some(named) = named else { return Ok(None) };
    let mut axes = named.iter().map(|&named| axis(named, rank)).collect::<Result<Vec<_>, _>>()?;
    axes.sort_unstable();
    if axes.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(format!("its axes {named:?} name one twice"));
    }
    Ok(Some(axes))
}

fn reduce(node: &Node, input: &Constant, named: Option<&Constant>) -> Result<Constant, String> {
    let rank = input.shape.len();
    let all = || (0..rank).collect::<Vec<_>>();
    let axes = match axes(node, named, rank)? {
        Some(axes) if axes.is_empty() && node.int("noop_with_empty_axes") == Some(1) => return Ok(input.clone()),
        Some(axes) if !axes.is_empty() => axes,
        _ => all(),
    };
    let kept: Vec<usize> = (0..rank).filter(|axis| !axes.contains(axis)).collect();
    let shape: Vec<usize> = kept.iter().map(|&axis| input.shape[axis]).collect();
    let count = sized(&shape)?;
    let mut groups: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (place, index) in places::indices(&input.shape).enumerate() {
        let group = kept.iter().fold(0, |group, &axis| group * input.shape[axis] + index[axis]);
        groups[group].push(place);
    }
    let operator = &node.operator[..];
    let data = match &input.data {
        Data::Ints(values) => {
            let of = |group: &Vec<usize>| {
                let values = group.iter().map(|&place| values[place]);
                match operator {
                    "ReduceSum" => Some(values.fold(0i64, i64::wrapping_add)),
                    "ReduceProd" => Some(values.fold(1i64, i64::wrapping_mul)),
                    "ReduceMax" => values.max(),
                    "ReduceMin" => values.min(),
                    _ => None,
                }
            };
            Data::Ints(groups.iter().map(of).collect::<Option<_>>().ok_or("it is not folded for these values")?)
        }
        Data::Bools(values) if matches!(operator, "ReduceMax" | "ReduceMin") => {
            let of = |group: &Vec<usize>| {
                let mut values = group.iter().map(|&place| values[place]);
                if operator == "ReduceMax" { values.any(|value| value) } else { values.all(|value| value) }
            };
            Data::Bools(groups.iter().map(of).collect())
        }
        _ => {
            let values = input.to_floats();
            let of = |group: &Vec<usize>| {
                let count = group.len();
                let values = group.iter().map(|&place| f64::from(values[place]));
                match operator {
                    "ReduceSum" => values.sum::<f64>(),
                    "ReduceProd" => values.product(),
                    "ReduceMax" => values.fold(f64::NEG_INFINITY, f64::max),
                    "ReduceMin" => values.fold(f64::INFINITY, f64::min),
                    _ => values.sum::<f64>() / count as f64,
                }
            };
            Data::Floats(groups.iter().map(|group| of(group) as f32).collect())
        }
    };
    let shape = if node.int("keepdims").unwrap_or(1) == 0 {
        shape
    } else {
        (0..rank).map(|axis| if axes.contains(&axis) { 1 } else { input.shape[axis] }).collect()
    };
    Ok(Constant::new(shape, data))
}

fn non_zero(input: &Constant) -> Constant {
    let set = input.to_bools();
    let found: Vec<Vec<usize>> =
        places::indices(&input.shape).zip(set).filter(|(_, set)| *set).map(|(index, _)| index).collect();
    let rank = input.shape.len();
    let values = (0..rank).flat_map(|axis| found.iter().map(move |index| index[axis] as i64)).collect();
    Constant::ints([rank, found.len()], values)
}

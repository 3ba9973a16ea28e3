//! What moves known values: each output element is one of an input's.

use super::{axes, axis, extents, sized};
use crate::interop::onnx::constant::{Constant, Data, elements};
use crate::interop::onnx::ir::Node;

/// Axes of a tensor at most.
const MAX_RANK: usize = 64;

/// All indices of a tensor, the last axis running fastest.
pub(super) fn indices(shape: &[usize]) -> impl Iterator<Item = Vec<usize>> + use<> {
    let shape = shape.to_vec();
    let count = elements(&shape).unwrap_or(0);
    let mut index = vec![0; shape.len()];
    (0..count).map(move |_| {
        let now = index.clone();
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            if index[axis] < shape[axis] {
                break;
            }
            index[axis] = 0;
        }
        now
    })
}

pub(super) fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    strides
}

pub(super) fn place(index: &[usize], strides: &[usize]) -> usize {
    index.iter().zip(strides).map(|(i, stride)| i * stride).sum()
}

/// The tensor of this shape whose element at an index is the input's at the place that `of` says.
fn gather(input: &Constant, shape: Vec<usize>, of: impl Fn(&[usize]) -> usize) -> Result<Constant, String> {
    sized(&shape)?;
    let data = input.data.pick(indices(&shape).map(|index| of(&index)));
    Ok(Constant::new(shape, data))
}

fn reshaped(input: &Constant, shape: Vec<usize>) -> Result<Constant, String> {
    if elements(&shape) != Some(input.data.len()) {
        return Err(format!("{:?} cannot have the shape {shape:?}", input.shape));
    }
    Ok(Constant::new(shape, input.data.clone()))
}

/// The shape that `Reshape` asks for, of an input of this shape.
pub(in crate::interop::onnx) fn resolve(own: &[usize], wanted: &[i64], allow_zero: bool) -> Result<Vec<usize>, String> {
    if wanted.len() > MAX_RANK {
        return Err(format!("a tensor of {} axes is not possible", wanted.len()));
    }
    let mut shape = Vec::with_capacity(wanted.len());
    for (axis, &extent) in wanted.iter().enumerate() {
        shape.push(match extent {
            0 if !allow_zero => *own.get(axis).ok_or_else(|| format!("there is no axis {axis} to take over"))?,
            -1 => 1,
            extent => usize::try_from(extent).map_err(|_| format!("{extent} is no extent"))?,
        });
    }
    if let Some(free) = wanted.iter().position(|&extent| extent == -1) {
        if wanted[free + 1..].contains(&-1) {
            return Err("only one extent may be -1".to_owned());
        }
        let (own, known) = (elements(own), elements(&shape).filter(|&known| known > 0));
        match (own, known) {
            (Some(own), Some(known)) if own.is_multiple_of(known) => shape[free] = own / known,
            _ => return Err(format!("{own:?} elements cannot have the shape {wanted:?}")),
        }
    }
    Ok(shape)
}

/// Inserts axes of extent 1.
pub(in crate::interop::onnx) fn unsqueezed(
    own: &[usize],
    node: &Node,
    named: Option<&Constant>,
) -> Result<Vec<usize>, String> {
    let count = named.map(|named| named.data.len()).or_else(|| node.ints("axes").map(<[i64]>::len));
    let rank = own.len().saturating_add(count.unwrap_or(0));
    if rank > MAX_RANK {
        return Err(format!("a tensor of {rank} axes is not possible"));
    }
    let axes = axes(node, named, rank)?.ok_or_else(|| "it has no axes".to_owned())?;
    let mut rest = own.iter().copied();
    Ok((0..rank).map(|axis| if axes.contains(&axis) { 1 } else { rest.next().unwrap_or(1) }).collect())
}

/// The axes that `Squeeze` takes away.
pub(in crate::interop::onnx) fn squeezed(
    own: &[usize],
    node: &Node,
    named: Option<&Constant>,
) -> Result<Vec<usize>, String> {
    let ones = || (0..own.len()).filter(|&axis| own[axis] == 1).collect();
    let axes = axes(node, named, own.len())?.unwrap_or_else(ones);
    match axes.iter().find(|&&axis| own[axis] != 1) {
        Some(axis) => Err(format!("axis {axis} of {own:?} has not extent 1")),
        None => Ok(axes),
    }
}

/// Where a slice begins along each axis, its step, and how many elements it has.
pub(in crate::interop::onnx) fn cut(
    own: &[usize],
    node: &Node,
    [starts, ends, named, steps]: [Option<&Constant>; 4],
) -> Result<Vec<(usize, i64, usize)>, String> {
    let ints = |constant: Option<&Constant>, name: &str| {
        constant.map_or_else(|| node.ints(name).map(<[i64]>::to_vec), Constant::to_ints)
    };
    let (Some(starts), Some(ends)) = (ints(starts, "starts"), ints(ends, "ends")) else {
        return Err("where it starts and ends is not known before the model runs".to_owned());
    };
    let axes = ints(named, "axes").unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = ints(steps, "steps").unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()].iter().any(|&count| count != starts.len()) {
        return Err("it must have as many starts as ends, axes and steps".to_owned());
    }
    let mut parts: Vec<_> = own.iter().map(|&extent| (0, 1, extent)).collect();
    for (((&start, &end), &named), &step) in starts.iter().zip(&ends).zip(&axes).zip(&steps) {
        let axis = axis(named, own.len())?;
        let extent = own[axis] as i64;
        let from_end = |place: i64| if place < 0 { place.saturating_add(extent) } else { place };
        let (start, end) = (from_end(start), from_end(end));
        let (start, count) = match step {
            0 => return Err("a step must not be 0".to_owned()),
            1.. => {
                let (start, end) = (start.clamp(0, extent), end.clamp(0, extent));
                (start, (end - start).max(0) as u64)
            }
            _ => {
                let (start, end) = (start.clamp(-1, extent - 1), end.clamp(-1, extent - 1));
                (start, (start - end).max(0) as u64)
            }
        };
        let count = count.div_ceil(step.unsigned_abs()) as usize;
        parts[axis] = (start.max(0) as usize, step, count);
    }
    Ok(parts)
}

pub(super) fn fold<'a>(node: &Node, at: &impl Fn(usize) -> Option<&'a Constant>) -> Option<Result<Constant, String>> {
    let input = at(0)?;
    let own = &input.shape;
    let to = |shape: Result<Vec<usize>, String>| shape.and_then(|shape| reshaped(input, shape));
    Some(match &node.operator[..] {
        "Identity" | "Dropout" => Ok(input.clone()),
        "Reshape" => {
            let wanted = at(1).and_then(Constant::to_ints).or_else(|| node.ints("shape").map(<[i64]>::to_vec))?;
            to(resolve(own, &wanted, node.int("allowzero") == Some(1)))
        }
        "Flatten" => to(flattened(own, node)),
        "Unsqueeze" => to(unsqueezed(own, node, at(1))),
        "Squeeze" => to(squeezed(own, node, at(1))
            .map(|axes| (0..own.len()).filter(|axis| !axes.contains(axis)).map(|axis| own[axis]).collect())),
        "Transpose" => permutation(node, own.len()).and_then(|axes| transpose(input, &axes)),
        "Concat" => concat(node, at),
        "Slice" => slice(node, input, [at(1), at(2), at(3), at(4)]),
        "Gather" => take(node, input, at(1)?),
        "Expand" => {
            let shape = at(1)?;
            extents(shape).and_then(|shape| expand(input, &shape))
        }
        "Tile" => {
            let repeats = at(1)?;
            extents(repeats).and_then(|repeats| tile(input, &repeats))
        }
        "Trilu" => trilu(node, input, at(1)),
        _ => return None,
    })
}

/// The two extents that `Flatten` makes.
pub(in crate::interop::onnx) fn flattened(own: &[usize], node: &Node) -> Result<Vec<usize>, String> {
    let split = match node.int("axis").unwrap_or(1) {
        whole if whole == own.len() as i64 => own.len(),
        other => axis(other, own.len())?,
    };
    Ok([&own[..split], &own[split..]].into_iter().map(|half| half.iter().product()).collect())
}

/// The order that `Transpose` puts axes in.
pub(in crate::interop::onnx) fn permutation(node: &Node, rank: usize) -> Result<Vec<usize>, String> {
    let Some(named) = node.ints("perm") else { return Ok((0..rank).rev().collect()) };
    let axes = named.iter().map(|&named| axis(named, rank)).collect::<Result<Vec<_>, _>>()?;
    let mut sorted = axes.clone();
    sorted.sort_unstable();
    if !sorted.into_iter().eq(0..rank) {
        return Err(format!("perm = {named:?} is no order of {rank} axes"));
    }
    Ok(axes)
}

fn transpose(input: &Constant, axes: &[usize]) -> Result<Constant, String> {
    let own = strides(&input.shape);
    let shape = axes.iter().map(|&axis| input.shape[axis]).collect();
    let strides: Vec<usize> = axes.iter().map(|&axis| own[axis]).collect();
    gather(input, shape, |index| place(index, &strides))
}

fn concat<'a>(node: &Node, at: &impl Fn(usize) -> Option<&'a Constant>) -> Result<Constant, String> {
    let parts: Vec<&Constant> = (0..node.inputs.len()).filter_map(at).collect();
    let first = parts.first().ok_or_else(|| "it has no inputs".to_owned())?;
    let rank = first.shape.len();
    let axis = axis(node.int("axis").unwrap_or(0), rank)?;
    let differs = |other: &&Constant| {
        other.shape.len() != rank || (0..rank).any(|i| i != axis && other.shape[i] != first.shape[i])
    };
    if parts.iter().any(differs) {
        return Err("its inputs must differ along one axis only".to_owned());
    }
    let mut shape = first.shape.clone();
    shape[axis] = parts.iter().map(|part| part.shape[axis]).sum();
    sized(&shape)?;
    let inner: usize = first.shape[axis + 1..].iter().product();
    let outer: usize = first.shape[..axis].iter().product();
    let runs = (0..outer).flat_map(|i| parts.iter().map(move |part| (i, part)));
    let run = |part: &Constant, i: usize| {
        let length = part.shape[axis] * inner;
        i * length..(i + 1) * length
    };
    let data = match &first.data {
        Data::Ints(_) => {
            let mut values = Vec::new();
            for (i, part) in runs {
                let all = part.to_ints().ok_or_else(|| "it mixes whole and other numbers".to_owned())?;
                values.extend_from_slice(&all[run(part, i)]);
            }
            Data::Ints(values)
        }
        Data::Bools(_) => Data::Bools(runs.flat_map(|(i, part)| part.to_bools()[run(part, i)].to_vec()).collect()),
        Data::Floats(_) | Data::Filled(..) => {
            Data::Floats(runs.flat_map(|(i, part)| part.to_floats()[run(part, i)].to_vec()).collect())
        }
    };
    Ok(Constant::new(shape, data))
}

fn slice(node: &Node, input: &Constant, settings: [Option<&Constant>; 4]) -> Result<Constant, String> {
    let parts = cut(&input.shape, node, settings)?;
    let strides = strides(&input.shape);
    let shape = parts.iter().map(|part| part.2).collect();
    gather(input, shape, |index| {
        let places = index.iter().zip(&parts).zip(&strides);
        places.map(|((&i, &(start, step, _)), &stride)| (start as i64 + i as i64 * step) as usize * stride).sum()
    })
}

/// Lengths of the parts along the axis of `Split`.
pub(in crate::interop::onnx) fn lengths(
    node: &Node,
    own: &[usize],
    named: Option<&Constant>,
) -> Result<(usize, Vec<usize>), String> {
    let axis = axis(node.int("axis").unwrap_or(0), own.len())?;
    let extent = own[axis];
    let named = match named {
        Some(named) => Some(extents(named)?),
        None => match node.ints("split") {
            Some(lengths) => Some(extents(&Constant::ints([lengths.len()], lengths.to_vec()))?),
            None => None,
        },
    };
    let lengths = named.unwrap_or_else(|| {
        let count = node.outputs.len().max(1);
        let each = extent.div_ceil(count);
        (0..count).map(|i| each.min(extent.saturating_sub(i * each))).collect()
    });
    if lengths.iter().try_fold(0usize, |sum, &length| sum.checked_add(length)) != Some(extent)
        || lengths.len() != node.outputs.len()
    {
        return Err(format!(
            "{} outputs of lengths {lengths:?} are not what axis {axis} of {own:?} has",
            node.outputs.len()
        ));
    }
    Ok((axis, lengths))
}

pub(super) fn split(node: &Node, input: &Constant, named: Option<&Constant>) -> Result<Vec<Constant>, String> {
    let (axis, lengths) = lengths(node, &input.shape, named)?;
    let strides = strides(&input.shape);
    let mut start = 0;
    let mut parts = Vec::new();
    for length in lengths {
        let mut shape = input.shape.clone();
        shape[axis] = length;
        parts.push(gather(input, shape, |index| place(index, &strides) + start * strides[axis])?);
        start += length;
    }
    Ok(parts)
}

/// `Gather` along an axis.
fn take(node: &Node, input: &Constant, indices: &Constant) -> Result<Constant, String> {
    let rank = input.shape.len();
    let axis = axis(node.int("axis").unwrap_or(0), rank)?;
    let extent = input.shape[axis] as i64;
    let wanted = indices.to_ints().ok_or_else(|| "indices must be whole numbers".to_owned())?;
    let wanted = wanted.iter().map(|&index| {
        let index = if index < 0 { index.saturating_add(extent) } else { index };
        usize::try_from(index).ok().filter(|&index| index < extent as usize)
    });
    let wanted = wanted.collect::<Option<Vec<_>>>().ok_or_else(|| format!("an index is not below {extent}"))?;
    let strides = strides(&input.shape);
    let index_strides = self::strides(&indices.shape);
    let many = indices.shape.len();
    let shape = [&input.shape[..axis], &indices.shape, &input.shape[axis + 1..]].concat();
    gather(input, shape, |index| {
        let at = wanted[place(&index[axis..axis + many], &index_strides)];
        place(&index[..axis], &strides[..axis])
            + at * strides[axis]
            + place(&index[axis + many..], &strides[axis + 1..])
    })
}

/// The shape that two are brought to, as NumPy does.
pub(in crate::interop::onnx) fn joined(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let rank = a.len().max(b.len());
    let extent = |shape: &[usize], axis: usize| match (axis + shape.len()).checked_sub(rank) {
        Some(axis) => shape[axis],
        None => 1,
    };
    let pairs = (0..rank).map(|axis| (extent(a, axis), extent(b, axis)));
    pairs
        .map(|pair| match pair {
            (1, other) | (other, 1) => Some(other),
            (one, other) => (one == other).then_some(one),
        })
        .collect()
}

/// Where the elements of a tensor lie that is repeated to a shape: strides, 0 along what is repeated.
pub(super) fn repeated(own: &[usize], shape: &[usize]) -> Vec<usize> {
    let missing = shape.len() - own.len();
    let mut all = vec![0; missing];
    all.extend(strides(own).into_iter().zip(own).map(|(stride, &extent)| if extent == 1 { 0 } else { stride }));
    all
}

fn expand(input: &Constant, shape: &[usize]) -> Result<Constant, String> {
    let Some(shape) = joined(&input.shape, shape) else {
        return Err(format!("{:?} cannot be repeated to {shape:?}", input.shape));
    };
    let strides = repeated(&input.shape, &shape);
    gather(input, shape, |index| place(index, &strides))
}

fn tile(input: &Constant, repeats: &[usize]) -> Result<Constant, String> {
    if repeats.len() != input.shape.len() {
        return Err(format!("repeats must be one for each axis of {:?}", input.shape));
    }
    let shape = input.shape.iter().zip(repeats).map(|(extent, repeat)| extent.saturating_mul(*repeat)).collect();
    let strides = strides(&input.shape);
    gather(input, shape, |index| {
        index.iter().zip(&input.shape).zip(&strides).map(|((i, extent), stride)| i % extent * stride).sum()
    })
}

fn trilu(node: &Node, input: &Constant, k: Option<&Constant>) -> Result<Constant, String> {
    let k = k.and_then(Constant::to_ints).and_then(|k| k.first().copied()).unwrap_or(0);
    let upper = node.int("upper").unwrap_or(1) != 0;
    if input.shape.len() < 2 {
        return Err("it takes matrices".to_owned());
    }
    let keeps = |index: &[usize]| {
        let [.., row, column] = index[..] else { return true };
        let diagonal = (row as i64).saturating_add(k);
        if upper { column as i64 >= diagonal } else { column as i64 <= diagonal }
    };
    let kept = indices(&input.shape).map(|index| keeps(&index));
    let data = match &input.data {
        Data::Floats(_) | Data::Filled(..) => {
            let values = input.to_floats().into_iter();
            Data::Floats(values.zip(kept).map(|(v, kept)| if kept { v } else { 0.0 }).collect())
        }
        Data::Ints(values) => Data::Ints(values.iter().zip(kept).map(|(&v, kept)| if kept { v } else { 0 }).collect()),
        Data::Bools(values) => Data::Bools(values.iter().zip(kept).map(|(&v, kept)| v && kept).collect()),
    };
    Ok(Constant::new(input.shape.clone(), data))
}

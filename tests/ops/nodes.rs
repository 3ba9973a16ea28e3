//! Link 3's walk, whatever runs the nodes: each node of a case's small graph runs alone on inputs that are exact in f32, so that
//! errors do not pile up. The reference is the twin in f64 on the same inputs.

use half::{bf16, f16};
use tightfit::graph::Node;
use tightfit::tensor::{DType, TensorDesc, ValueId};
use tightfit::testing::Case;

use crate::Report;
use crate::common::compare::{Tolerance, close};
use crate::common::eval::{Buf, Mini};
use crate::common::fill;
use crate::finite_differences::grad_outputs;
use crate::golden::differentiable_outputs;

/// Per term of the longest sum (times its square root), and per element.
pub const TOLERANCE: Tolerance = Tolerance { scale: 2e-6, relative: 2e-5, absolute: 1e-30 };

/// A node, with what it reads and what it must make of that.
pub struct Work<'a> {
    pub case: &'a Case,
    pub node: &'a Node,
    pub inputs: Vec<(TensorDesc, Vec<u8>)>,
    pub output_descs: Vec<TensorDesc>,
    /// Of the outputs, followed by inputs that it changes.
    descs: Vec<TensorDesc>,
    expected: Vec<Buf<f64>>,
}

impl Work<'_> {
    /// How far apart results may be. What is stored in 16 bits may be rounded to either neighbour; states of recurrent ops are so
    /// at each step, and what is made of them adds that up.
    fn tolerance(&self, desc: &TensorDesc) -> Tolerance {
        let terms = TOLERANCE.terms(self.case.reduction);
        let (place, least) = match desc.dtype {
            DType::U32 => return Tolerance { scale: 0.0, relative: 0.0, absolute: 0.0 },
            DType::F16 => (2.0_f64.powi(-10), 2.0_f64.powi(-24)),
            DType::BF16 => (2.0_f64.powi(-7), 0.0),
            _ => return terms,
        };
        // Gates damp what rounding leaves in a state, simple cells multiply it by their weights.
        let places = [("lstm", 8.0), ("gru", 8.0), ("rnn", 24.0)];
        let of_steps = places.iter().find(|(op, _)| self.node.op.name().starts_with(op));
        let steps = of_steps.map_or(0.0, |(_, places)| places * place);
        Tolerance {
            scale: 2.0 * terms.scale + steps,
            relative: terms.relative + place,
            absolute: terms.absolute + least,
        }
    }

    pub fn input_descs(&self) -> Vec<TensorDesc> {
        self.inputs.iter().map(|(desc, _)| desc.clone()).collect()
    }

    /// Pairs of an input and the output that may take over its memory here.
    pub fn in_place(&self) -> impl Iterator<Item = (usize, usize)> {
        let fits = |&(i, o): &(usize, usize)| {
            let (input, output) = (&self.inputs[i].0, &self.descs[o]);
            input.size_bytes() == output.size_bytes() && is_half(input) == is_half(output)
        };
        self.node.op.in_place().iter().copied().filter(fits)
    }

    /// Whether floats are of 16 bits.
    pub fn half(&self) -> Option<DType> {
        self.inputs.iter().find(|(desc, _)| is_half(desc)).map(|(desc, _)| desc.dtype)
    }

    /// Holds what was found against what is expected. With `overflows_as_nan`, what f16 does not hold may be NaN.
    pub fn compare(
        &self,
        report: &mut Report,
        label: &str,
        found: Result<Vec<Vec<u8>>, String>,
        overflows_as_nan: bool,
    ) {
        let found = match found {
            Ok(found) => found,
            Err(error) => return report.require(false, format!("{label}: {error}")),
        };
        report.require(found.len() == self.expected.len(), format!("{label}: {} results", found.len()));
        for (i, ((found, expected), desc)) in found.iter().zip(&self.expected).zip(&self.descs).enumerate() {
            let (mut found, expected) = (decode(desc, found), stored(desc.dtype, &expected.elements(desc)));
            if overflows_as_nan && desc.dtype == DType::F16 {
                overflows_as_infinity(&mut found, &expected);
            }
            let result = match desc.dtype {
                DType::U8 => same_codes(&found, &expected),
                _ => close(&found, &expected, self.tolerance(desc)),
            };
            report.check(format!("{label} result {i}"), result);
        }
    }
}

/// Loss scaling takes NaN for an overflow as well.
fn overflows_as_infinity(found: &mut [f64], expected: &[f64]) {
    for (found, expected) in found.iter_mut().zip(expected) {
        if found.is_nan() && expected.is_infinite() {
            *found = *expected;
        }
    }
}

/// Codes of numbers that an op has computed: where one lies halfway between two codes, either is right. That is seldom so.
fn same_codes(found: &[f64], expected: &[f64]) -> Result<(), String> {
    // Codes are in a circle: below 0 are those of numbers below 0.
    let distance = |(a, b): (&f64, &f64)| ((a - b).rem_euclid(256.0)).min((b - a).rem_euclid(256.0));
    let distances: Vec<f64> = found.iter().zip(expected).map(distance).collect();
    let others = distances.iter().filter(|distance| **distance > 0.0).count();
    let farthest = distances.iter().copied().fold(0.0, f64::max);
    if found.len() == expected.len() && farthest <= 1.0 && others <= 1 + found.len() / 1000 {
        return Ok(());
    }
    Err(format!("{others} of {} codes differ ({} expected), by up to {farthest}", found.len(), expected.len()))
}

fn is_half(desc: &TensorDesc) -> bool {
    matches!(desc.dtype, DType::F16 | DType::BF16)
}

/// What numbers become in memory.
fn stored(dtype: DType, values: &[f64]) -> Vec<f64> {
    let store = |&x: &f64| match dtype {
        DType::F16 => f16::from_f64(x).to_f64(),
        DType::BF16 => bf16::from_f64(x).to_f64(),
        _ => x,
    };
    values.iter().map(store).collect()
}

/// Gives each node of a case to `check`, forward, backward and updates, in every variant of its graph, with floats of 16 bits where a
/// type is named.
pub fn each(
    report: &mut Report,
    op: &str,
    case: &Case,
    half: Option<DType>,
    mut check: impl FnMut(&mut Report, &Work<'_>),
) {
    let descs: Vec<_> = case.inputs.iter().map(|(desc, _)| desc.clone()).collect();
    let outputs = match case.op.outputs(&descs) {
        Ok(outputs) => outputs,
        Err(error) => return report.require(false, format!("{}: {error}", case.name)),
    };
    match Mini::variants(&case.op, &descs, &differentiable_outputs(op, outputs.len()), &case.wanted) {
        Ok(variants) => variants.iter().for_each(|mini| each_of(report, op, case, mini, half, &mut check)),
        Err(error) => report.require(false, format!("{}: {error}", case.name)),
    }
}

fn each_of(
    report: &mut Report,
    op: &str,
    case: &Case,
    mini: &Mini,
    half: Option<DType>,
    check: &mut impl FnMut(&mut Report, &Work<'_>),
) {
    let round = |data: &Buf<f64>| match (half, data) {
        (Some(dtype), Buf::Real(values)) => Buf::Real(stored(dtype, values)),
        _ => data.round_to_f32(),
    };
    let in_half = |desc: &TensorDesc| match (half, desc.dtype) {
        (Some(dtype), DType::F32) => TensorDesc { dtype, ..desc.clone() },
        _ => desc.clone(),
    };
    let grad_outputs = grad_outputs(op, case, mini);
    let mut values = mini.sources::<f64>(&fill::inputs(op, case), &grad_outputs);
    for value in values.iter_mut().flatten() {
        *value = round(value);
    }
    for node in mini.graph.nodes() {
        let (outputs, mutated) = mini.run_node(node, &values);
        if node.op.is_view() {
            // Nothing runs: that the shapes fit in one memory is all there is to check.
            let [from, to] = [node.inputs[0], node.outputs[0]].map(|id| mini.graph.value(id).desc.size_bytes());
            report.require(from == to, format!("{}: a view of {from} bytes as {to}", case.name));
        } else {
            let input = |&id: &ValueId| {
                let data = values[id.index()].as_ref().expect("a value is read before it is made");
                let desc = mini.graph.value(id).desc.clone();
                // Updates and accumulators read f32 in any case.
                let desc = if node.op.mutates().is_empty() { in_half(&desc) } else { desc };
                let bytes = encode(&desc, data);
                (desc, bytes)
            };
            let inputs: Vec<_> = node.inputs.iter().map(input).collect();
            let is_half = inputs.iter().any(|(desc, _)| Some(desc.dtype) == half);
            let output_descs = mini.descs(&node.outputs);
            let stored = |(i, desc): (usize, &TensorDesc)| match is_half && !node.op.full_precision(i) {
                true => in_half(desc),
                false => desc.clone(),
            };
            let output_descs: Vec<_> = output_descs.iter().enumerate().map(stored).collect();
            let changed = node.op.mutates().iter().map(|&i| inputs[i].0.clone());
            let descs = output_descs.iter().cloned().chain(changed).collect();
            let expected = outputs.iter().chain(&mutated).cloned().collect();
            check(report, &Work { case, node, inputs, output_descs, descs, expected });
        }
        for (&id, data) in node.outputs.iter().zip(outputs) {
            values[id.index()] = Some(round(&data));
        }
        for (&i, data) in node.op.mutates().iter().zip(mutated) {
            values[node.inputs[i].index()] = Some(round(&data));
        }
    }
}

/// Bytes as a device holds them, in whole words.
fn encode(desc: &TensorDesc, data: &Buf<f64>) -> Vec<u8> {
    let (Buf::Real(values), DType::F16 | DType::BF16) = (data, desc.dtype) else { return data.to_bytes() };
    let bits = values.iter().map(|&x| match desc.dtype {
        DType::F16 => f16::from_f64(x).to_bits(),
        _ => bf16::from_f64(x).to_bits(),
    });
    let mut bytes: Vec<u8> = bits.flat_map(u16::to_le_bytes).collect();
    bytes.resize(desc.size_bytes() as usize, 0xff);
    bytes
}

pub fn decode(desc: &TensorDesc, bytes: &[u8]) -> Vec<f64> {
    if let DType::F16 | DType::BF16 = desc.dtype {
        let halves = bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).take(desc.numel());
        return match desc.dtype {
            DType::F16 => halves.map(|bits| f16::from_bits(bits).to_f64()).collect(),
            _ => halves.map(|bits| bf16::from_bits(bits).to_f64()).collect(),
        };
    }
    let words = bytes.chunks_exact(4).map(|b| [b[0], b[1], b[2], b[3]]).take(desc.numel());
    match desc.dtype {
        DType::U8 => bytes.iter().take(desc.numel()).map(|&byte| f64::from(byte)).collect(),
        DType::U32 => words.map(|b| f64::from(u32::from_le_bytes(b))).collect(),
        _ => words.map(|b| f64::from(f32::from_le_bytes(b))).collect(),
    }
}

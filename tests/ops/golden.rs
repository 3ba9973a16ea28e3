//! Link 1: PyTorch's values against the CPU twins, in f64 and f32.

use libtest_mimic::Failed;
use tightfit::tensor::DType;
use tightfit::testing::{Case, Entry};

use crate::Report;
use crate::common::compare::{Tolerance, close};
use crate::common::eval::{Buf, Mini, Scalar};
use crate::common::{golden, recipe};
use crate::updates;

/// Ops that PyTorch has no counterpart of, and why that is all right.
const WITHOUT_GOLDEN: &[(&str, &str)] = &[
    ("fill", "writes one constant: its cases state the whole result"),
    ("copy", "its output is its input"),
    ("detach", "its output is its input"),
    ("logit", "the inverse of sigmoid, which a test beside the op checks"),
    ("state", "copies rows"),
    ("accumulate", "one addition per element"),
    ("fused", "runs other ops: that it makes the bits of these one after another is tested in tests/library/fusion.rs"),
    (
        "dropout",
        "draws other random numbers: its generator has known answers, and the statistics are tested beside the op",
    ),
];

/// Golden values are printed in 10 digits, and inputs are exact.
const F64: Tolerance = Tolerance { scale: 1e-9, relative: 1e-8, absolute: 1e-37 };
/// The absolute part is what f32 loses next to numbers around 1, such as 1 - output² in tanh's gradient.
const F32: Tolerance = Tolerance { scale: 1e-6, relative: 1e-5, absolute: 3e-7 };

/// Outputs of an op that take part in a loss: those that some golden entry gives a gradient. Others are statistics, or saved
/// for backward.
pub fn differentiable_outputs(op: &str, count: usize) -> Vec<bool> {
    let Some(entries) = golden::entries_if_differentiable(op) else { return vec![true; count] };
    let given = |entry: &golden::Entry, i: usize| entry.grad_outputs.get(i).is_some_and(Option::is_some);
    (0..count).map(|i| entries.iter().any(|entry| given(entry, i))).collect()
}

/// All golden entries of an op against its cases.
pub fn check(entry: Entry) -> Result<(), Failed> {
    let cases = (entry.cases)();
    let Some(expected) = golden::entries(entry.name) else {
        return match WITHOUT_GOLDEN.iter().find(|(name, _)| *name == entry.name) {
            Some(_) => Ok(()),
            None => Err(format!("tests/golden/{}.json is missing: see tests/golden/cases.py", entry.name).into()),
        };
    };
    let mut report = Report::default();
    report.require(!expected.is_empty(), "the golden file is empty");
    for values in &expected {
        match cases.iter().find(|case| case.name == values.case) {
            None => report.require(false, format!("no case is named `{}`, a golden entry is", values.case)),
            Some(case) => {
                run::<f64>(&mut report, "f64", case, values, F64);
                run::<f32>(&mut report, "f32", case, values, F32.terms(case.reduction));
            }
        }
    }
    report.finish()
}

fn run<T: Scalar>(report: &mut Report, precision: &str, case: &Case, values: &golden::Entry, tolerance: Tolerance) {
    let label = |what: &str, i: usize| format!("{} {precision} {what} {i}", case.name);
    let shapes = |tensors: &[golden::Tensor]| tensors.iter().map(|t| t.shape.clone()).collect::<Vec<_>>();
    let descs: Vec<_> = case.inputs.iter().map(|(desc, _)| desc.clone()).collect();
    let found: Vec<_> = descs.iter().map(|desc| desc.shape.to_vec()).collect();
    if found != shapes(&values.inputs) {
        return report.require(false, format!("{}: inputs are {found:?}, not {:?}", case.name, shapes(&values.inputs)));
    }
    let given: Vec<_> = values.grad_outputs.iter().map(Option::is_some).collect();
    let wanted: Vec<_> = values.grad_inputs.iter().map(Option::is_some).collect();
    match Mini::variants(&case.op, &descs, &given, &wanted) {
        Ok(variants) => variants.iter().for_each(|mini| compare_all::<T>(report, &label, mini, values, tolerance)),
        Err(error) => report.require(false, format!("{}: {error}", case.name)),
    }
}

fn compare_all<T: Scalar>(
    report: &mut Report,
    label: &dyn Fn(&str, usize) -> String,
    mini: &Mini,
    values: &golden::Entry,
    tolerance: Tolerance,
) {
    let dtype = |input: &tightfit::tensor::ValueId| mini.graph.value(*input).desc.dtype;
    let inputs = values.inputs.iter().zip(&mini.inputs).map(|(tensor, input)| match tensor.input() {
        Buf::Int(bytes) if dtype(input) == DType::U8 => Buf::Int(in_words(&bytes)),
        input => input,
    });
    let inputs: Vec<Buf<T>> = inputs.collect();
    let grad_outputs: Vec<_> = values.grad_outputs.iter().map(|g| g.as_ref().map(golden::Tensor::input)).collect();
    let result = mini.run(&inputs, &grad_outputs, false);
    let mut compare = |what: &str, i: usize, id: Option<tightfit::tensor::ValueId>, expected: &golden::Tensor| {
        let Some(id) = id else {
            return report.require(false, format!("{}: missing", label(what, i)));
        };
        let shape = &mini.graph.value(id).desc.shape;
        if shape[..] != expected.shape[..] {
            return report.require(false, format!("{}: shape {shape}, not {:?}", label(what, i), expected.shape));
        }
        let found = result[id.index()].as_ref().expect("the graph computes every value").to_f64();
        report.check(label(what, i), close(&found, &expected.buf::<f64>().to_f64(), tolerance));
    };
    for (i, expected) in values.outputs.iter().enumerate() {
        compare("output", i, mini.outputs.get(i).copied(), expected);
    }
    for (i, expected) in values.grad_inputs.iter().enumerate() {
        if let Some(expected) = expected {
            compare("grad_input", i, mini.grad_inputs[i], expected);
        }
    }
}

/// Bytes, four in a word.
fn in_words(bytes: &[u32]) -> Vec<u32> {
    bytes.chunks(4).map(|four| four.iter().rev().fold(0, |word, byte| word << 8 | byte)).collect()
}

/// A golden file that no op reads would check nothing.
pub fn every_file_is_used() -> Result<(), Failed> {
    let mut report = Report::default();
    let ops: Vec<_> = tightfit::testing::all_ops().iter().map(|entry| entry.name).collect();
    for name in golden::names() {
        let used = ops.contains(&name.as_str()) || updates::checks(&name);
        report.require(used, format!("tests/golden/{name}.json belongs to no op"));
    }
    report.finish()
}

/// The initial weights of the golden losses are what the recipe draws here.
pub fn weight_recipe() -> Result<(), Failed> {
    let mut report = Report::default();
    for (model, losses) in golden::losses() {
        report.require(!losses.parameters.is_empty() && losses.losses.len() == 20, format!("{model}: incomplete"));
        for parameter in losses.parameters {
            let numel = parameter.shape.iter().product();
            let weights = recipe::weights(&parameter.name, numel, parameter.fan);
            let name = format!("{model}: {}", parameter.name);
            report.require(weights.starts_with(&parameter.first), format!("{name} begins otherwise"));
            let bound = 1.0 / (parameter.fan as f32).sqrt() * 1.000_001;
            report.require(weights.iter().all(|w| w.abs() <= bound), format!("{name} leaves its bounds"));
        }
    }
    report.finish()
}

//! Link 2: the twins' backward against central differences, in f64, as in the middle of a graph: the gradient of the
//! outputs is random.

use libtest_mimic::Failed;
use rand::RngExt;
use tightfit::testing::{Case, Entry};

use crate::common::compare::{Tolerance, close};
use crate::common::eval::{Buf, Mini};
use crate::common::fill;
use crate::golden::differentiable_outputs;
use crate::{Report, cases, is_quick};

const STEP: f64 = 1e-5;
/// Elements differentiated per input.
const SAMPLES: usize = 64;
/// Central differences lose about 1e-11 / [`STEP`] to rounding and [`STEP`]² to curvature.
const TOLERANCE: Tolerance = Tolerance { scale: 1e-7, relative: 1e-6, absolute: 1e-8 };

/// All cases of an op that want gradients.
pub fn check(entry: Entry) -> Result<(), Failed> {
    let mut report = Report::default();
    let cases = cases(entry);
    report.require(!cases.is_empty(), "the op has no cases");
    let (mut tried, mut nonzero) = (0, 0);
    for case in cases.iter().filter(|case| case.finite_differences && case.wanted.contains(&true)) {
        tried += 1;
        if check_case(&mut report, entry.name, case) {
            nonzero += 1;
        }
    }
    report.require(is_quick() || tried == 0 || nonzero > 0, "every gradient is zero: the cases test nothing");
    if !is_quick() && cases.iter().any(|case| case.wanted.contains(&true)) {
        report.require(tried > 0, "no case is small enough for finite differences");
    }
    report.finish()
}

/// Returns whether every wanted gradient has an element that is not zero.
fn check_case(report: &mut Report, op: &str, case: &Case) -> bool {
    let descs: Vec<_> = case.inputs.iter().map(|(desc, _)| desc.clone()).collect();
    let output_count = match case.op.outputs(&descs) {
        Ok(outputs) => outputs.len(),
        Err(error) => {
            report.require(false, format!("{}: {error}", case.name));
            return false;
        }
    };
    let given = differentiable_outputs(op, output_count);
    let variants = match Mini::variants(&case.op, &descs, &given, &case.wanted) {
        Ok(variants) => variants,
        Err(error) => {
            report.require(false, format!("{}: {error}", case.name));
            return false;
        }
    };
    if let [full, compressed] = &variants[..] {
        check_same_bits(report, op, case, full, compressed);
    }
    let mini = &variants[0];
    let inputs: Vec<Buf<f64>> = fill::inputs(op, case);
    let grad_outputs = grad_outputs(op, case, mini);
    let values = mini.run(&inputs, &grad_outputs, false);
    let forward = Mini::new(&case.op, &descs, &[], &[]).expect("the op just took these inputs");
    // The loss of which the random gradient is the gradient.
    let loss = |inputs: &[Buf<f64>]| -> f64 {
        let values = forward.run(inputs, &[], false);
        let terms = forward.outputs.iter().zip(&grad_outputs).filter_map(|(id, grad)| {
            let grad = grad.as_ref()?.reals();
            let output = values[id.index()].as_ref().expect("the graph computes every value").reals();
            Some(output.iter().zip(grad).map(|(y, g)| y * g).sum::<f64>())
        });
        terms.sum()
    };
    let mut rng = fill::rng(&format!("{op}/{}/samples", case.name));
    let mut all_nonzero = true;
    for (i, wanted) in case.wanted.iter().enumerate() {
        if !wanted {
            continue;
        }
        let name = format!("{} grad_input {i}", case.name);
        let Some(id) = mini.grad_inputs[i] else {
            report.require(false, format!("{name}: missing"));
            continue;
        };
        report.require(mini.graph.value(id).desc == descs[i], format!("{name}: its shape is not the input's"));
        let gradient = values[id.index()].as_ref().expect("the graph computes every value").reals();
        let numel = gradient.len();
        let picked: Vec<usize> = if numel <= SAMPLES {
            (0..numel).collect()
        } else {
            (0..SAMPLES).map(|_| rng.random_range(0..numel)).collect()
        };
        let mut shifted = inputs.clone();
        let numeric: Vec<f64> = picked
            .iter()
            .map(|&j| {
                let x = inputs[i].reals()[j];
                let (above, below) = (x + STEP, x - STEP);
                shifted[i].reals_mut()[j] = above;
                let high = loss(&shifted);
                shifted[i].reals_mut()[j] = below;
                let low = loss(&shifted);
                shifted[i].reals_mut()[j] = x;
                (high - low) / (above - below)
            })
            .collect();
        let analytic: Vec<f64> = picked.iter().map(|&j| gradient[j]).collect();
        all_nonzero &= numeric.iter().any(|g| g.abs() > 1e-6);
        report.check(&name, close(&analytic, &numeric, TOLERANCE));
        check_alone(report, case, &given, &inputs, &grad_outputs, i, gradient);
    }
    all_nonzero
}

/// What forward keeps in a smaller form must give the same gradients, bit for bit.
fn check_same_bits(report: &mut Report, op: &str, case: &Case, full: &Mini, compressed: &Mini) {
    let inputs: Vec<Buf<f32>> = fill::inputs(op, case);
    let gradients = |mini: &Mini| {
        let draw = |grad: Option<Buf<f64>>| {
            grad.map(|grad| Buf::<f32>::Real(grad.reals().iter().map(|&x| x as f32).collect()))
        };
        let grad_outputs: Vec<_> = grad_outputs(op, case, mini).into_iter().map(draw).collect();
        let values = mini.run(&inputs, &grad_outputs, false);
        let bits = |id: &tightfit::tensor::ValueId| values[id.index()].as_ref().expect("computed").to_bytes();
        mini.grad_inputs.iter().flatten().map(bits).collect::<Vec<_>>()
    };
    report.require(gradients(full) == gradients(compressed), format!("{}: compressed gradients differ", case.name));
}

/// Wanting fewer gradients must not change the one that is left.
fn check_alone(
    report: &mut Report,
    case: &Case,
    given: &[bool],
    inputs: &[Buf<f64>],
    grad_outputs: &[Option<Buf<f64>>],
    i: usize,
    expected: &[f64],
) {
    let descs: Vec<_> = case.inputs.iter().map(|(desc, _)| desc.clone()).collect();
    let wanted: Vec<bool> = (0..case.wanted.len()).map(|j| j == i).collect();
    let name = format!("{} grad_input {i} wanted alone", case.name);
    match Mini::new(&case.op, &descs, given, &wanted) {
        Err(error) => report.require(false, format!("{name}: {error}")),
        Ok(mini) => match mini.grad_inputs[i] {
            None => report.require(false, format!("{name}: missing")),
            Some(id) => {
                let values = mini.run(inputs, grad_outputs, false);
                let found = values[id.index()].as_ref().expect("the graph computes every value").reals();
                report.check(name, close(found, expected, Tolerance { scale: 1e-12, relative: 1e-12, absolute: 0.0 }));
            }
        },
    }
}

/// Random gradients for the outputs that get one, exact in f32.
pub fn grad_outputs(op: &str, case: &Case, mini: &Mini) -> Vec<Option<Buf<f64>>> {
    let draw = |(i, id): (usize, &Option<tightfit::tensor::ValueId>)| {
        let numel = mini.graph.value((*id)?).desc.numel();
        let mut rng = fill::rng(&format!("{op}/{}/grad_output{i}", case.name));
        Some(Buf::Real((0..numel).map(|_| f64::from(fill::normal(&mut rng))).collect()))
    };
    mini.grad_outputs.iter().enumerate().map(draw).collect()
}

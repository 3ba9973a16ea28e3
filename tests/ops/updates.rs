//! Link 1 for updates: optimizers and clipping over a few steps against PyTorch.

use libtest_mimic::Failed;
use tightfit::ops::adam::Adam;
use tightfit::ops::clip::{ClipApply, ClipCoefficient, SquaredNorm};
use tightfit::ops::ema::Ema;
use tightfit::ops::sgd::Sgd;
use tightfit::ops::{HYPER_LEN, Op, UpdateRule};
use tightfit::tensor::TensorDesc;

use crate::Report;
use crate::common::compare::{Tolerance, close};
use crate::common::eval::{Buf, Scalar, run_op};
use crate::common::golden::{self, ClipEntry, EmaEntry, Tensor, UpdateEntry, UpdateSettings};

/// Golden files of updates, which this file checks.
pub const NAMES: &[&str] = &["sgd", "adam", "adamw", "clip", "ema"];

/// The numbers of `hyper` are f32 whatever the twin computes in.
const F64: Tolerance = Tolerance { scale: 1e-9, relative: 5e-7, absolute: 0.0 };
const F32: Tolerance = Tolerance { scale: 1e-6, relative: 1e-5, absolute: 1e-12 };

pub fn sgd() -> Result<(), Failed> {
    optimizer("sgd", |s| {
        Box::new(Sgd { lr: s.lr, momentum: s.momentum, nesterov: s.nesterov, weight_decay: s.weight_decay })
    })
}

pub fn adam() -> Result<(), Failed> {
    optimizer("adam", |s| adam_rule(s, false))
}

pub fn adamw() -> Result<(), Failed> {
    optimizer("adamw", |s| adam_rule(s, true))
}

fn adam_rule(s: &UpdateSettings, decoupled: bool) -> Box<dyn UpdateRule> {
    Box::new(Adam { lr: s.lr, betas: s.betas, eps: s.eps, weight_decay: s.weight_decay, decoupled })
}

fn optimizer(name: &str, rule: impl Fn(&UpdateSettings) -> Box<dyn UpdateRule>) -> Result<(), Failed> {
    let mut report = Report::default();
    let entries: Vec<UpdateEntry> = golden::load(name).ok_or("the golden file is missing")?;
    for entry in &entries {
        let rule = rule(&entry.settings);
        run::<f64>(&mut report, &format!("{} f64", entry.case), &*rule, entry, F64);
        run::<f32>(&mut report, &format!("{} f32", entry.case), &*rule, entry, F32);
    }
    report.require(report.checks > 0, "nothing was checked");
    report.finish()
}

fn run<T: Scalar>(report: &mut Report, label: &str, rule: &dyn UpdateRule, entry: &UpdateEntry, tolerance: Tolerance) {
    let op = rule.op();
    let desc = TensorDesc::f32(entry.inputs[0].shape.clone());
    let count = 1 + rule.states().len();
    let mut descs = vec![desc.clone(); 1 + count];
    descs.extend([TensorDesc::f32([HYPER_LEN]), TensorDesc::f32([1])]);
    if let Err(error) = op.outputs(&descs) {
        return report.require(false, format!("{label}: {error}"));
    }
    // The parameter, then the states.
    let mut changing: Vec<Buf<T>> = vec![entry.inputs[0].input()];
    changing.resize(count, Buf::from_f32(&vec![0.0; desc.numel()]));
    for (i, step) in entry.steps.iter().enumerate() {
        let hyper = Buf::from_f32(&rule.hyper(i as u64 + 1));
        let gradient = Buf::Real(step.gradient.iter().map(|&x| T::from_f64(f64::from(x as f32))).collect());
        for guard in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let kept = apply(&*op, &descs, &changing, &gradient, &hyper, guard);
            report.require(kept == changing, format!("{label} step {i}: it ran although the guard was {guard}"));
        }
        changing = apply(&*op, &descs, &changing, &gradient, &hyper, 1.0);
        report.check(format!("{label} step {i} parameter"), close(&changing[0].to_f64(), &step.parameter, tolerance));
        if step.states.len() + 1 != count {
            return report.require(false, format!("{label}: {} states, not {}", count - 1, step.states.len()));
        }
        for (name, (found, expected)) in rule.states().iter().zip(changing[1..].iter().zip(&step.states)) {
            report.check(format!("{label} step {i} {name}"), close(&found.to_f64(), expected, tolerance));
        }
    }
}

/// Runs an update node; returns the parameter and the states.
fn apply<T: Scalar>(
    op: &dyn Op,
    descs: &[TensorDesc],
    changing: &[Buf<T>],
    gradient: &Buf<T>,
    hyper: &Buf<T>,
    guard: f32,
) -> Vec<Buf<T>> {
    let guard = Buf::from_f32(&[guard]);
    let mut inputs = vec![&changing[0], gradient];
    inputs.extend(&changing[1..]);
    inputs.extend([hyper, &guard]);
    run_op(op, descs, &[], &inputs).1
}

pub fn ema() -> Result<(), Failed> {
    let mut report = Report::default();
    let entries: Vec<EmaEntry> = golden::load("ema").ok_or("the golden file is missing")?;
    for entry in &entries {
        run_ema::<f64>(&mut report, &format!("{} f64", entry.case), entry, F64);
        run_ema::<f32>(&mut report, &format!("{} f32", entry.case), entry, F32);
    }
    report.require(report.checks > 0, "nothing was checked");
    report.finish()
}

fn run_ema<T: Scalar>(report: &mut Report, label: &str, entry: &EmaEntry, tolerance: Tolerance) {
    let op = Ema { momentum: entry.settings.momentum, factor: entry.settings.factor };
    let desc = TensorDesc::f32(entry.inputs[0].shape.clone());
    let descs = [desc.clone(), desc.clone(), TensorDesc::f32([1])];
    let apply = |buffer: &Buf<T>, value: &Buf<T>, guard: f32| {
        run_op(&op, &descs, &[], &[buffer, value, &Buf::from_f32(&[guard])]).1.remove(0)
    };
    let mut buffer: Buf<T> = entry.inputs[0].input();
    for (i, step) in entry.steps.iter().enumerate() {
        let value = Buf::Real(step.value.iter().map(|&x| T::from_f64(f64::from(x as f32))).collect());
        for guard in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let kept = apply(&buffer, &value, guard);
            report.require(kept == buffer, format!("{label} step {i}: it ran although the guard was {guard}"));
        }
        buffer = apply(&buffer, &value, 0.5);
        report.check(format!("{label} step {i}"), close(&buffer.to_f64(), &step.buffer, tolerance));
        // What takes no part may be anything.
        if op.momentum == 1.0 {
            let poison = Buf::from_f32(&vec![f32::NAN; desc.numel()]);
            report.require(apply(&poison, &value, 0.5) == value, format!("{label} step {i}: not replaced"));
        }
    }
}

pub fn clip() -> Result<(), Failed> {
    let mut report = Report::default();
    let entries: Vec<ClipEntry> = golden::load("clip").ok_or("the golden file is missing")?;
    for entry in &entries {
        run_clip::<f64>(&mut report, &format!("{} f64", entry.case), entry, F64);
        run_clip::<f32>(&mut report, &format!("{} f32", entry.case), entry, F32);
    }
    report.require(report.checks > 0, "nothing was checked");
    report.finish()
}

fn run_clip<T: Scalar>(report: &mut Report, label: &str, entry: &ClipEntry, tolerance: Tolerance) {
    let one = TensorDesc::f32([1]);
    let run_one = |op: &dyn Op, descs: &[TensorDesc], output: &TensorDesc, inputs: &[&Buf<T>]| {
        run_op(op, descs, std::slice::from_ref(output), inputs).0.remove(0)
    };
    let desc = |tensor: &Tensor| TensorDesc::f32(tensor.shape.clone());
    let squares = entry
        .inputs
        .iter()
        .map(|gradient| run_one(&SquaredNorm, &[desc(gradient)], &one, &[&gradient.input()]).reals()[0]);
    let total: T = squares.sum();
    report.check(format!("{label} total norm"), close(&[total.sqrt().to_f64()], &[entry.total_norm], tolerance));
    let rule = ClipCoefficient { max_norm: entry.settings.max_norm as f32 };
    let coefficient = run_one(&rule, std::slice::from_ref(&one), &one, &[&Buf::Real(vec![total])]);
    for (i, (gradient, expected)) in entry.inputs.iter().zip(&entry.outputs).enumerate() {
        let descs = [desc(gradient), one.clone()];
        let clipped = run_one(&ClipApply, &descs, &descs[0], &[&gradient.input(), &coefficient]);
        report.check(
            format!("{label} gradient {i}"),
            close(&clipped.to_f64(), &expected.buf::<f64>().to_f64(), tolerance),
        );
    }
}

//! Link 1 for updates: optimizers and clipping over a few steps against PyTorch.

use libtest_mimic::Failed;
use tightfit::ops::optim::adafactor::Adafactor;
use tightfit::ops::optim::adagrad::Adagrad;
use tightfit::ops::optim::adam::Adam;
use tightfit::ops::optim::adam8bit::Adam8bit;
use tightfit::ops::optim::clip::{ClipApply, ClipCoefficient, SquaredNorm};
use tightfit::ops::optim::ema::Ema;
use tightfit::ops::optim::lamb::Lamb;
use tightfit::ops::optim::lion::Lion;
use tightfit::ops::optim::rmsprop::RmsProp;
use tightfit::ops::optim::sgd::Sgd;
use tightfit::ops::{HYPER_LEN, Op, UpdateRule};
use tightfit::tensor::{DType, TensorDesc};

use crate::Report;
use crate::common::compare::{Tolerance, close};
use crate::common::eval::{Buf, Scalar, run_op};
use crate::common::golden::{self, ClipEntry, EmaEntry, Tensor, UpdateEntry, UpdateSettings};

/// Makes a rule from the settings of a golden entry.
pub type MakeRule = fn(&UpdateSettings) -> Box<dyn UpdateRule>;

/// Every optimizer, by the name of its golden file.
pub const OPTIMIZERS: &[(&str, MakeRule)] = &[
    ("sgd", sgd),
    ("adam", |s| Box::new(adam(s, false))),
    ("adamw", |s| Box::new(adam(s, true))),
    ("adam8bit", |s| adam8bit(s, false)),
    ("adamw8bit", |s| adam8bit(s, true)),
    ("rmsprop", rmsprop),
    ("adagrad", adagrad),
    ("lion", lion),
    ("lamb", lamb),
    ("adafactor", adafactor),
];

/// Whether a golden file is one of those that this file checks.
pub fn checks(name: &str) -> bool {
    ["clip", "ema"].contains(&name) || OPTIMIZERS.iter().any(|(optimizer, _)| *optimizer == name)
}

/// The numbers of `hyper` are f32 whatever the twin computes in.
const F64: Tolerance = Tolerance { scale: 1e-8, relative: 5e-7, absolute: 0.0 };
const F32: Tolerance = Tolerance { scale: 1e-6, relative: 1e-5, absolute: 1e-12 };
const EXACT: Tolerance = Tolerance { scale: 0.0, relative: 0.0, absolute: 0.0 };

fn sgd(s: &UpdateSettings) -> Box<dyn UpdateRule> {
    let weight_decay = s.number("weight_decay");
    Box::new(Sgd { weight_decay, momentum: s.number("momentum"), nesterov: s.flag("nesterov") })
}

fn adam(s: &UpdateSettings, decoupled: bool) -> Adam {
    let weight_decay = s.number("weight_decay");
    Adam { weight_decay, betas: s.pair("betas"), eps: s.number("eps"), decoupled }
}

fn adam8bit(s: &UpdateSettings, decoupled: bool) -> Box<dyn UpdateRule> {
    Box::new(Adam8bit { adam: adam(s, decoupled), min_8bit_size: s.number("min_8bit_size") as usize })
}

fn rmsprop(s: &UpdateSettings) -> Box<dyn UpdateRule> {
    Box::new(RmsProp {
        alpha: s.number("alpha"),
        eps: s.number("eps"),
        weight_decay: s.number("weight_decay"),
        momentum: s.number("momentum"),
        centered: s.flag("centered"),
    })
}

fn adagrad(s: &UpdateSettings) -> Box<dyn UpdateRule> {
    Box::new(Adagrad {
        lr_decay: s.number("lr_decay"),
        weight_decay: s.number("weight_decay"),
        initial_accumulator_value: s.number("initial_accumulator_value"),
        eps: s.number("eps"),
    })
}

fn lion(s: &UpdateSettings) -> Box<dyn UpdateRule> {
    Box::new(Lion { betas: s.pair("betas"), weight_decay: s.number("weight_decay") })
}

fn lamb(s: &UpdateSettings) -> Box<dyn UpdateRule> {
    let weight_decay = s.number("weight_decay");
    Box::new(Lamb { weight_decay, betas: s.pair("betas"), eps: s.number("eps") })
}

fn adafactor(s: &UpdateSettings) -> Box<dyn UpdateRule> {
    Box::new(Adafactor {
        beta2_decay: s.number("beta2_decay"),
        eps: s.pair("eps"),
        d: s.number("d"),
        weight_decay: s.number("weight_decay"),
    })
}

/// The golden entries of an optimizer.
pub fn check(name: &str, rule: MakeRule) -> Result<(), Failed> {
    let mut report = Report::default();
    let entries: Vec<UpdateEntry> = golden::load(name).ok_or("the golden file is missing")?;
    for entry in &entries {
        let (rule, lr) = (rule(&entry.settings), entry.settings.number("lr"));
        run::<f64>(&mut report, &format!("{} f64", entry.case), (&*rule, lr), entry, F64);
        run::<f32>(&mut report, &format!("{} f32", entry.case), (&*rule, lr), entry, F32);
    }
    report.require(report.checks > 0, "nothing was checked");
    report.finish()
}

fn run<T: Scalar>(
    report: &mut Report,
    label: &str,
    (rule, lr): (&dyn UpdateRule, f64),
    entry: &UpdateEntry,
    tolerance: Tolerance,
) {
    let desc = TensorDesc::f32(entry.inputs[0].shape.clone());
    let (op, states) = (rule.op(&desc), rule.states(&desc));
    let mut descs = vec![desc.clone(), desc];
    descs.extend(states.iter().map(|(_, state)| state.clone()));
    descs.extend([TensorDesc::f32([HYPER_LEN]), TensorDesc::f32([1])]);
    if let Err(error) = op.outputs(&descs) {
        return report.require(false, format!("{label}: {error}"));
    }
    // The parameter, then the states.
    let mut changing: Vec<Buf<T>> = vec![entry.inputs[0].input()];
    changing.extend(states.iter().map(|(_, state)| Buf::zeros(state)));
    for (i, step) in entry.steps.iter().enumerate() {
        let hyper = Buf::from_f32(&rule.hyper(i as u64 + 1, lr));
        let gradient = Buf::Real(step.gradient.iter().map(|&x| T::from_f64(f64::from(x as f32))).collect());
        for guard in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let kept = apply(&*op, &descs, &changing, &gradient, &hyper, guard);
            report.require(kept == changing, format!("{label} step {i}: it ran although the guard was {guard}"));
        }
        changing = apply(&*op, &descs, &changing, &gradient, &hyper, 1.0);
        report.check(format!("{label} step {i} parameter"), close(&changing[0].to_f64(), &step.parameter, tolerance));
        if step.states.len() != states.len() {
            return report.require(false, format!("{label}: {} states, not {}", states.len(), step.states.len()));
        }
        for ((name, desc), (found, expected)) in states.iter().zip(changing[1..].iter().zip(&step.states)) {
            let tolerance = if desc.dtype == DType::U8 { EXACT } else { tolerance };
            report.check(format!("{label} step {i} {name}"), close(&found.elements(desc), expected, tolerance));
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
    let total = squares.fold(T::ZERO, |total, square| total + square);
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

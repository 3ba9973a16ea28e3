//! Link 3: every kernel of every op, of its backward and of updates, in every variant, against the twin.
//!
//! Each node of a case's small graph runs alone on inputs that are exact in f32, so that errors do not pile up; the
//! reference is the twin in f64 on the same inputs.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use libtest_mimic::Failed;
use tightfit::device::Device;
use tightfit::graph::Node;
use tightfit::ops::Dispatch;
use tightfit::shader::{Access, Family, Target, Tiles};
use tightfit::tensor::{DType, TensorDesc};
use tightfit::testing::{Case, Entry, RunOptions, device_or_skip, run_op};

use crate::common::compare::{Tolerance, close};
use crate::common::eval::{Buf, Mini};
use crate::common::fill;
use crate::finite_differences::grad_outputs;
use crate::golden::differentiable_outputs;
use crate::{Report, cases};

/// Per term of the longest sum (times its square root), and per element.
pub const TOLERANCE: Tolerance = Tolerance { scale: 2e-6, relative: 2e-5, absolute: 1e-30 };

/// What is known to fail: part of the adapter's name, the op, and why. An op that is listed and passes is an error too.
const KNOWN_FAILURES: &[(&str, &str, &str)] = &[];

/// The device under test; `None` where there is none and tests may do without (`TIGHTFIT_ALLOW_NO_GPU`). One test at a time: a thread that waits
/// for the device may be given what another waits for.
pub fn device() -> Option<MutexGuard<'static, Device>> {
    static DEVICE: OnceLock<Mutex<Device>> = OnceLock::new();
    static OPENING: Mutex<()> = Mutex::new(());
    let opening = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    if DEVICE.get().is_none() {
        let device = device_or_skip()?;
        println!("gpu: {}", name(&device));
        let _ = DEVICE.set(Mutex::new(device));
    }
    drop(opening);
    Some(DEVICE.get()?.lock().unwrap_or_else(PoisonError::into_inner))
}

fn name(device: &Device) -> String {
    let info = device.info();
    format!("{}, {}, {}, {:?}", info.backend, info.name, info.driver, device.target().family)
}

/// All nodes of all cases of an op.
pub fn check(entry: Entry) -> Result<(), Failed> {
    let Some(device) = device() else { return Ok(()) };
    let mut report = Report::default();
    for case in &cases(entry) {
        check_case(&mut report, &device, entry.name, case);
    }
    report.require(report.checks > 0, "nothing was checked");
    let name = name(&device);
    let known = KNOWN_FAILURES.iter().find(|(driver, op, _)| name.contains(driver) && *op == entry.name);
    match (known, report.finish()) {
        (None, result) => result,
        (Some((_, op, reason)), Err(_)) => {
            println!("gpu::{op}: fails on `{name}` as expected: {reason}");
            Ok(())
        }
        (Some(_), Ok(())) => Err("passes, but is listed among the known failures: take it off the list".into()),
    }
}

fn check_case(report: &mut Report, device: &Device, op: &str, case: &Case) {
    let descs: Vec<_> = case.inputs.iter().map(|(desc, _)| desc.clone()).collect();
    let outputs = match case.op.outputs(&descs) {
        Ok(outputs) => outputs,
        Err(error) => return report.require(false, format!("{}: {error}", case.name)),
    };
    match Mini::variants(&case.op, &descs, &differentiable_outputs(op, outputs.len()), &case.wanted) {
        Ok(variants) => variants.iter().for_each(|mini| check_nodes(report, device, op, case, mini)),
        Err(error) => report.require(false, format!("{}: {error}", case.name)),
    }
}

fn check_nodes(report: &mut Report, device: &Device, op: &str, case: &Case, mini: &Mini) {
    let grad_outputs = grad_outputs(op, case, mini);
    let mut values = mini.sources::<f64>(&fill::inputs(op, case), &grad_outputs);
    for node in mini.graph.nodes() {
        let (outputs, mutated) = mini.run_node(node, &values);
        if node.op.is_view() {
            // Nothing runs: that the shapes fit in one memory is all there is to check.
            let [from, to] = [node.inputs[0], node.outputs[0]].map(|id| mini.graph.value(id).desc.size_bytes());
            report.require(from == to, format!("{}: a view of {from} bytes as {to}", case.name));
        } else {
            let inputs: Vec<_> = node
                .inputs
                .iter()
                .map(|&id| {
                    let data = values[id.index()].as_ref().expect("a value is read before it is made");
                    (mini.graph.value(id).desc.clone(), data.to_bytes())
                })
                .collect();
            let expected: Vec<_> = outputs.iter().chain(&mutated).cloned().collect();
            check_node(report, device, case, node, mini, &inputs, &expected);
        }
        for (&id, data) in node.outputs.iter().zip(outputs) {
            values[id.index()] = Some(data.round_to_f32());
        }
        for (&i, data) in node.op.mutates().iter().zip(mutated) {
            values[node.inputs[i].index()] = Some(data.round_to_f32());
        }
    }
}

/// What to run an op's kernels as: both families, where the device and the op have them.
fn targets(own: Target, dispatches: impl Fn(&Target) -> Vec<Dispatch>) -> Vec<Target> {
    // The second family only where the op has kernels of its own for it.
    let plain = Target { family: Family::Workgroup, ..own };
    if dispatches(&own) == dispatches(&plain) { vec![plain] } else { vec![plain, own] }
}

/// Ops that are tested with other tiles of the products that they are made of, in one of so many cases. Others have the same
/// products.
const OTHER_TILES: &[(&str, usize)] = &[("matmul", 1), ("conv2d", 6)];

/// Another tile than the usual one for the products of an op, if it has any. All in every case would take minutes to compile:
/// each case has the next.
fn other_tile(own: Target, number: usize, dispatches: impl Fn(&Target) -> Vec<Dispatch>) -> Option<Target> {
    // Compilers that cannot bear long code cannot bear it once more either.
    let families = if own.short_code { vec![] } else { vec![Family::Workgroup, own.family] };
    let mut targets: Vec<_> = families
        .into_iter()
        .flat_map(|family| {
            family.tiles().into_iter().map(move |tile| Target { family, tiles: Tiles::all(tile), ..own })
        })
        .collect();
    targets.retain(|target| dispatches(target) != dispatches(&Target { tiles: Tiles::NONE, ..*target }));
    (!targets.is_empty()).then(|| targets[number % targets.len()])
}

/// One node in every variant: both kinds of access and each in-place pair with each family, and another tile.
fn check_node(
    report: &mut Report,
    device: &Device,
    case: &Case,
    node: &Node,
    mini: &Mini,
    inputs: &[(TensorDesc, Vec<u8>)],
    expected: &[Buf<f64>],
) {
    let mut descs = mini.descs(&node.outputs);
    descs.extend(node.op.mutates().iter().map(|&i| inputs[i].0.clone()));
    let pairs = node.op.in_place().iter().filter(|(i, o)| inputs[*i].0.size_bytes() == descs[*o].size_bytes());
    let in_place: Vec<_> = std::iter::once(None).chain(pairs.map(|&pair| Some(pair))).collect();
    let (input_descs, output_descs) = (mini.descs(&node.inputs), mini.descs(&node.outputs));
    let dispatches = |target: &Target| node.op.dispatches(&input_descs, &output_descs, target);
    let mut variants = Vec::new();
    for target in targets(device.target(), dispatches) {
        for access in [Access::Read, Access::ReadWrite] {
            variants.extend(in_place.iter().map(|&in_place| RunOptions { access, in_place, target: Some(target) }));
        }
    }
    let number: usize = case.name.bytes().map(usize::from).sum();
    if OTHER_TILES.iter().any(|(op, each)| node.op.name().starts_with(op) && number.is_multiple_of(*each)) {
        let target = other_tile(device.target(), number, dispatches);
        variants.extend(target.map(|target| RunOptions { target: Some(target), ..RunOptions::default() }));
    }
    for options in variants {
        let label = format!("{} {} {options:?}", case.name, node.op.name());
        match run_op(device, &*node.op, inputs, options) {
            Err(error) => report.require(false, format!("{label}: {error}")),
            Ok(results) => {
                report.require(results.len() == expected.len(), format!("{label}: {} results", results.len()));
                for (i, (found, expected)) in results.iter().zip(expected).enumerate() {
                    let found = decode(&descs[i], found);
                    let tolerance = match descs[i].dtype {
                        DType::U32 => Tolerance { scale: 0.0, relative: 0.0, absolute: 0.0 },
                        _ => TOLERANCE.terms(case.reduction),
                    };
                    report.check(format!("{label} result {i}"), close(&found, &expected.to_f64(), tolerance));
                }
            }
        }
    }
}

pub fn decode(desc: &TensorDesc, bytes: &[u8]) -> Vec<f64> {
    let words = bytes.chunks_exact(4).map(|b| [b[0], b[1], b[2], b[3]]).take(desc.numel());
    match desc.dtype {
        DType::U32 => words.map(|b| f64::from(u32::from_le_bytes(b))).collect(),
        _ => words.map(|b| f64::from(f32::from_le_bytes(b))).collect(),
    }
}

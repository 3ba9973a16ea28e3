//! Link 3: every kernel of every op, of its backward and of updates, in every variant, against the twin.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use libtest_mimic::Failed;
use tightfit::device::Device;
use tightfit::ops::Dispatch;
use tightfit::shader::{Access, Family, Target, Tiles};
use tightfit::tensor::DType;
use tightfit::testing::{Entry, RunOptions, device_or_skip, run_op};

use crate::nodes::{self, Work};
use crate::{Report, cases};

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
    for (number, case) in cases(entry).iter().enumerate() {
        nodes::each(&mut report, entry.name, case, None, |report, work| check_node(report, &device, work));
        for &half in halves(number) {
            nodes::each(&mut report, entry.name, case, Some(half), |report, work| check_halves(report, &device, work));
        }
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

/// The types of 16 bits that case `number` of an op is tested with: compiling all kernels in all of them would take minutes.
fn halves(number: usize) -> &'static [DType] {
    match number {
        0 => &[DType::F16, DType::BF16],
        _ if !number.is_multiple_of(3) => &[],
        _ if number.is_multiple_of(2) => &[DType::F16],
        _ => &[DType::BF16],
    }
}

/// A node with floats of 16 bits: in place where it can be.
fn check_halves(report: &mut Report, device: &Device, work: &Work<'_>) {
    if work.half().is_some() {
        let in_place = work.in_place().next();
        let access = if in_place.is_some() { Access::ReadWrite } else { Access::Read };
        let options = RunOptions { access, in_place, target: None };
        let label = format!("{} {} {:?} {options:?}", work.case.name, work.node.op.name(), work.half());
        let found = run_op(device, &*work.node.op, &work.inputs, options).map_err(|error| error.to_string());
        work.compare(report, &label, found, overflows_as_nan(device));
    }
}

/// WGSL leaves open what `pack2x16float` makes of numbers that f16 does not hold; SwiftShader makes NaN of infinity.
fn overflows_as_nan(device: &Device) -> bool {
    device.info().name.contains("SwiftShader")
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
fn check_node(report: &mut Report, device: &Device, work: &Work<'_>) {
    let Work { case, node, inputs, output_descs, .. } = work;
    let in_place: Vec<_> = std::iter::once(None).chain(work.in_place().map(Some)).collect();
    let input_descs = work.input_descs();
    let dispatches = |target: &Target| node.op.dispatches(&input_descs, output_descs, target);
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
        let found = run_op(device, &*node.op, inputs, options).map_err(|error| error.to_string());
        work.compare(report, &label, found, false);
    }
}

//! `tightfit calibrate`: measures what ops cost on a device, so that plans for it predict their time.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde_json::json;
use tightfit::command::files;
use tightfit::device::AdapterInfo;
use tightfit::train::{Calibration, Effort, Processor, Profile, Tuned, calibrate};

use super::failure::{Failure, keep};
use super::output::{Output, shown};
use super::overwrite::Kind;

#[derive(Args, Debug)]
pub(crate) struct CalibrateArgs {
    /// Index or part of the name of a device that `tightfit devices` lists, or cpu [default: the best GPU, else cpu]
    #[arg(long, value_name = "DEVICE", value_parser = NonEmptyStringValueParser::new())]
    device: Option<String>,

    /// Threads of the CPU, where it is measured [default: all that may run at once]
    #[arg(long, value_name = "N", value_parser = super::values::threads)]
    threads: Option<NonZeroUsize>,

    /// Writes the profile here [default: where plan, train and eval look for it]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Measures a few kernels in seconds, and scales the costs of the device's class by them
    #[arg(long)]
    quick: bool,
}

pub(crate) fn run(args: &CalibrateArgs, output: &Output) -> Result<u8, Failure> {
    let processor = Processor::open(&args.device.as_deref().into(), args.threads.map(usize::from))?;
    let Some(info) = processor.info() else {
        return Err(Failure::bad_input("the reference is for checking and is not measured: choose another --device"));
    };
    let path = match &args.output {
        Some(path) => path.clone(),
        None => default_path(&info)?,
    };
    files::check_writable(&path, Profile::MOST_BYTES)
        .map_err(|error| Failure::bad_input(format!("--output {error}")))?;
    // What is wrong where profiles are kept is to be replaced.
    if args.output.is_some() {
        Kind::Profile.check("--output", &path)?;
    }
    let effort = if args.quick { Effort::Quick } else { Effort::Full };
    output.text(format_args!("measuring {}; other work on the machine disturbs it", info.name));
    let calibration = calibrate(&processor, effort)?;
    show(&calibration, output);
    keep(&path, |path| Ok(calibration.profile.save(path)?))?;
    let used = if args.output.is_some() {
        "plan with it: --device FILE"
    } else {
        "train, eval and plan --device DEVICE use it from now on"
    };
    output.text(format_args!("written to {}; {used}", path.display()));
    let Profile { adapter, backend, driver, costs, .. } = &calibration.profile;
    output.object(&json!({
        "event": "summary",
        "device": adapter,
        "backend": backend,
        "driver": driver,
        "nodes": calibration.nodes,
        "median_error": calibration.median_error,
        "run_ms": costs.run_ns / 1e6,
        "profile": shown(&path),
    }));
    Ok(0)
}

fn default_path(device: &AdapterInfo) -> Result<PathBuf, Failure> {
    let path = Profile::path_for(device)
        .ok_or_else(|| Failure::bad_input("there is no folder for your data: say where with --output FILE"))?;
    files::make_folder_of(&path)?;
    Ok(path)
}

fn show(calibration: &Calibration, output: &Output) {
    output.text(format_args!(
        "\n{:<32} {:>5} {:>10} {:>9} {:>9} {:>9}",
        "op", "nodes", "launch µs", "GFLOP/s", "GB/s", "error"
    ));
    for fit in &calibration.ops {
        output.text(format_args!(
            "{:<32} {:>5} {:>10.1} {:>9.2} {:>9.2} {:>8.0}%",
            fit.op,
            fit.nodes,
            fit.rates.launch_ns / 1e3,
            fit.best_flops_per_ns,
            fit.best_bytes_per_ns,
            fit.median_error * 100.0
        ));
        output.object(&json!({
            "event": "op",
            "op": fit.op,
            "nodes": fit.nodes,
            "launch_ns": fit.rates.launch_ns,
            "flop_ns": fit.rates.flop_ns,
            "read_ns": fit.rates.read_ns,
            "write_ns": fit.rates.write_ns,
            "best_gflop_per_s": fit.best_flops_per_ns,
            "best_gb_per_s": fit.best_bytes_per_ns,
            "median_error": fit.median_error,
        }));
    }
    show_tiles(&calibration.tiles, output);
    let costs = &calibration.profile.costs;
    let rate = |byte_ns: f64| if byte_ns > 0.0 { 1.0 / byte_ns } else { 0.0 };
    output.text(format_args!(
        "\nGFLOP/s and GB/s are those of the best node, whole tiles counted; the error is the median of the fit.\n\
         A run of a program takes {:.2} ms besides its nodes; copies to the host {:.1} GB/s, from it {:.1} GB/s.\n\
         {} nodes, median error {:.0}%",
        costs.run_ns / 1e6,
        rate(costs.offload.byte_ns),
        rate(costs.prefetch.byte_ns),
        calibration.nodes,
        calibration.median_error * 100.0
    ));
}

fn show_tiles(tiles: &[Tuned], output: &Output) {
    if !tiles.is_empty() {
        output.text(format_args!("\n{:<24} {:>5} {:>10} {:>9}", "products", "nodes", "best tile", "time"));
    }
    for Tuned { kind, size, nodes, best, share, taken } in tiles {
        let name = format!("{kind:?}, {size:?}").to_lowercase();
        let tile = format!("{}x{}", best.rows, best.columns);
        let outcome = if *taken { "taken" } else { "no clear gain" };
        output.text(format_args!("{name:<24} {nodes:>5} {tile:>10} {:>8.0}%  {outcome}", share * 100.0));
        output.object(&json!({
            "event": "tile",
            "kind": kind,
            "size": size,
            "nodes": nodes,
            "rows": best.rows,
            "columns": best.columns,
            "share": share,
            "taken": taken,
        }));
    }
}

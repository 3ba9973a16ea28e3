//! `tightfit bench`: how long training steps of known workloads take, and how good the planner is.

mod kernels;
mod planner;
mod process;
mod report;
mod steps;
mod workload;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use self::workload::Workload;
use super::bytes::Budget;
use super::failure::Failure;
use super::output::Output;
use super::settings::{DeviceArgs, LeverName, PrecisionArgs};
use super::values::count;

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_value_name = "planner DIR")]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    command: Option<BenchCommand>,
    #[command(flatten)]
    steps: StepArgs,
}

#[derive(Subcommand, Debug)]
enum BenchCommand {
    /// Schedules and packs the instances in a folder with `planner/`, `placement/` and `poet/`
    Planner(planner::PlannerArgs),
}

/// What is trained, and how long.
#[derive(Args, Debug)]
struct StepArgs {
    /// Model, data and batch: w1 a dense network, w2 a convolutional one and w3 an LSTM on MNIST; w3b two LSTM layers, w4
    /// ResNet-18 and w5 a residual network of large images on random numbers
    #[arg(value_name = "WORKLOAD", value_enum, ignore_case = true)]
    workload: Option<Workload>,

    /// Timed steps
    #[arg(long, value_name = "N", default_value = "40", value_parser = count::<usize>, allow_negative_numbers = true)]
    steps: usize,

    /// Steps before those that are timed
    #[arg(long, value_name = "N", default_value = "5")]
    warmup: usize,

    /// Stops timing after so many seconds, but not before five steps
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = count::<u64>, allow_negative_numbers = true)]
    max_secs: u64,

    /// Samples of a step [default: the workload's]
    #[arg(long, value_name = "N", value_parser = count::<usize>, allow_negative_numbers = true)]
    batch: Option<usize>,

    /// Bytes that may be on the device at once: 8G, 64MiB, 1.5GB or plain bytes, or auto for what it has free [default: no limit]
    #[arg(long, value_name = "SIZE|auto", value_parser = str::parse::<Budget>, allow_hyphen_values = true)]
    budget: Option<Budget>,

    /// What the planner must do without, separated by commas
    #[arg(long, value_name = "LEVERS", value_delimiter = ',', ignore_case = true)]
    without: Vec<LeverName>,

    #[command(flatten)]
    precision: PrecisionArgs,

    /// Says where the time goes, by op and shape, from up to five more steps
    #[arg(long)]
    profile: bool,

    /// Folder with the four IDX files of MNIST, for w1, w2 and w3 [default: mnist in TIGHTFIT_DATA, or as for `train`]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    #[command(flatten)]
    device: DeviceArgs,
}

pub(crate) fn run(args: &BenchArgs, output: &Output) -> Result<u8, Failure> {
    if let Some(BenchCommand::Planner(args)) = &args.command {
        return planner::run(args, output);
    }
    let Some(workload) = args.steps.workload else {
        return Err(Failure::bad_input(format!(
            "a workload is missing: choose one of {}, or planner",
            Workload::names().join(", ")
        )));
    };
    let measured = steps::run(workload, &args.steps)?;
    report::show(&measured, output);
    Ok(0)
}

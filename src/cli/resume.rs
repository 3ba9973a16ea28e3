//! `tightfit resume`: goes on with the training of a run folder.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use tightfit::command::plural;

use super::bytes::Budget;
use super::failure::Failure;
use super::output::{Output, shown};
use super::progress::ProgressArgs;
use super::run_file::{RunFile, at_least_one, set};
use super::run_folder::{RunFolder, RunPath};
use super::session::{self, Job};
use super::settings::DeviceArgs;
use super::values::count;

#[derive(Args, Debug)]
#[command(mut_arg("device", |arg| {
    arg.help("Index or part of the name of a device that `tightfit devices` lists, cpu, or reference [default: as before]")
}))]
pub(crate) struct ResumeArgs {
    /// Folder that `tightfit train … --run DIR` made
    #[arg(value_name = "RUN")]
    run: PathBuf,

    #[command(flatten)]
    device: DeviceArgs,

    /// Bytes that may be on the device at once from here on, or auto for what it has free [default: as before]
    #[arg(long, value_name = "SIZE|auto", value_parser = str::parse::<Budget>, allow_hyphen_values = true)]
    budget: Option<Budget>,

    /// Cuts each batch into so many parts from here on [default: as before, where a plan with as many meets the budget]
    #[arg(long, value_name = "N", value_parser = count::<usize>, allow_negative_numbers = true)]
    micro_batches: Option<usize>,

    /// Passes over the training set in all, with those that were made [default: as before]
    #[arg(long, value_name = "N", value_parser = count::<u64>, allow_negative_numbers = true)]
    epochs: Option<u64>,

    /// Stops after so many steps in all [default: as before]
    #[arg(long, value_name = "N", value_parser = count::<u64>, allow_negative_numbers = true)]
    steps: Option<u64>,

    /// Steps between two lines of progress [default: as before]
    #[arg(long, value_name = "N", value_parser = count::<u64>, allow_negative_numbers = true)]
    log_every: Option<u64>,

    #[command(flatten)]
    progress: ProgressArgs,
}

impl ResumeArgs {
    /// Puts what flags say over the run's settings.
    fn put_over(&self, file: &mut RunFile) {
        set(&mut file.budget.device, self.device.device.as_ref());
        set(&mut file.budget.threads, self.device.threads.as_ref());
        set(&mut file.budget.bytes, self.budget.as_ref());
        set(&mut file.budget.micro_batches, self.micro_batches.and_then(NonZeroUsize::new).as_ref());
        set(&mut file.training.epochs, at_least_one(self.epochs).as_ref());
        set(&mut file.training.steps, at_least_one(self.steps).as_ref());
        set(&mut file.log.every, at_least_one(self.log_every).as_ref());
    }
}

/// What has to be larger for a training that made all its steps to go on; `None` where it goes on.
fn what_ends(file: &RunFile, summary: &Value) -> Option<&'static str> {
    let made = |key: &str| summary[key].as_u64().unwrap_or(0);
    if file.steps().is_some_and(|most| most <= made("steps")) {
        return Some("--steps");
    }
    (file.epochs() <= made("epochs")).then_some("--epochs")
}

pub(crate) fn run(args: &ResumeArgs, output: &Output) -> Result<u8, Failure> {
    let path = args.run.display();
    let Some(run) = RunPath::find(&args.run) else {
        return Err(Failure::bad_input(format!(
            "{path}: no training is in this folder: `tightfit train … --run {path}` begins one"
        )));
    };
    let run = RunFolder::open(run)?;
    let mut file = run.run().config()?;
    args.put_over(&mut file);
    let finished = run.run().summary().filter(|summary| summary["interrupted"] == false);
    if let Some(summary) = finished {
        let ends = what_ends(&file, &summary);
        if summary["stopped"].is_string() || ends.is_some() {
            say_finished(args, &summary, ends, output);
            return Ok(0);
        }
    }
    let checkpoint = run.run().checkpoint()?;
    if checkpoint.is_none() {
        output.text("no checkpoint was written yet: training begins anew");
    }
    let no_calibrate = args.device.no_calibrate;
    let (run, progress) = (Some(run), args.progress);
    let job = Job { file, plan: None, save: None, trace: None, find_lr: None, no_calibrate, run, progress, checkpoint };
    session::run(job, output)
}

/// Says that there is nothing left to do.
fn say_finished(args: &ResumeArgs, summary: &Value, ends: Option<&str>, output: &Output) {
    let (epochs, steps) = (&summary["epochs"], &summary["steps"]);
    let why = match summary["stopped"].as_str() {
        Some(reason) => format!("stopped after step {steps}: {reason}"),
        None => {
            let made = |count: &Value, noun| plural(count.as_u64().unwrap_or(0) as usize, noun);
            let more = ends.map(|flag| format!("; {flag} with a larger number goes on")).unwrap_or_default();
            format!("{}, {}{more}", made(epochs, "epoch"), made(steps, "step"))
        }
    };
    output.text(format_args!("{}: the training is finished ({why})", args.run.display()));
    output.object(&json!({
        "event": "finished", "run": shown(&args.run), "epochs": epochs, "steps": steps, "stopped": summary["stopped"],
    }));
}

//! `tightfit train`: trains a model, tests it, keeps its weights.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use serde_json::json;
use tightfit::command::plural;
use tightfit::command::resident_bytes;
use tightfit::data::{Batches, Dataset, Order};
use tightfit::error::{PlanError, TrainError};
use tightfit::plan::{format_bytes, format_ns};
use tightfit::train::{Evaluation, FitOptions, FitReport, Loaded, PlanFile, StepReport, Trainer};

use super::data::{self, folder};
use super::failure::{Failure, INTERRUPTED, keep};
use super::interrupt::{evaluate, stop_when_asked};
use super::memory::Memory;
use super::output::{Output, shown, shown_if_any};
use super::overwrite::{self, Kind};
use super::plan::{Kept, announce, source_of};
use super::progress::{Progress, finite, percent, planning};
use super::settings::{DeviceArgs, TrainingArgs, count};
use super::trace;

#[derive(Args, Debug)]
pub(crate) struct TrainArgs {
    #[command(flatten)]
    model: TrainingArgs,
    #[command(flatten)]
    device: DeviceArgs,

    /// Folder with the four IDX files of MNIST or a set in its format [default: data/mnist-full if `tightfit data mnist` fetched
    /// it, else data/mnist]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// Passes over the training set
    #[arg(long, value_name = "N", default_value = "1", value_parser = count::<u64>, allow_negative_numbers = true)]
    epochs: u64,

    /// Stops after so many steps
    #[arg(long, value_name = "N", value_parser = count::<u64>, allow_negative_numbers = true)]
    steps: Option<u64>,

    /// Starts from the parameters in this file, which `--save` or PyTorch wrote (safetensors)
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,

    /// Takes from --weights what fits by name and shape, says what does not, and starts the rest from scratch
    #[arg(long, requires = "weights")]
    skip_mismatched: bool,

    /// Writes the parameters here when training ends (safetensors)
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,

    /// After training, times the nodes of one more step, which changes nothing, and writes it as `tightfit plan --trace` does
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Runs the plan that `tightfit plan … --output FILE` wrote, with its budget, batch, micro-batches and levers
    #[arg(long, value_name = "FILE", conflicts_with_all = ["budget", "micro_batches", "without"])]
    plan: Option<PathBuf>,

    /// Steps between two lines of progress [default: a twentieth of all]
    #[arg(long, value_name = "N", value_parser = count::<u64>, allow_negative_numbers = true)]
    log_every: Option<u64>,
}

impl TrainArgs {
    pub(crate) fn model(&self) -> &OsStr {
        self.model.name()
    }

    /// Says which plan cannot be used.
    fn not_usable(&self, error: TrainError) -> Failure {
        match (&self.plan, error) {
            (Some(path), error @ TrainError::Plan(PlanError::Unusable(_))) => {
                Failure::bad_input(format!("{}: {error}", path.display()))
            }
            (_, error) => error.into(),
        }
    }
}

pub(crate) fn run(args: &TrainArgs, output: &Output) -> Result<u8, Failure> {
    let plan_file = args.plan.as_ref().map(PlanFile::open).transpose()?;
    let (model, config) = args.model.resolve_for(plan_file.as_ref())?;
    let planned_before = args
        .plan
        .as_deref()
        .zip(plan_file.as_ref())
        .map(|(path, file)| Kept { path, source: file.cost_source().cloned() });
    let plan =
        plan_file.map(|file| file.into_plan(&model, &config)).transpose().map_err(|error| args.not_usable(error))?;
    let folder = folder(args.data.as_deref());
    let inputs = [
        overwrite::model(args.model()),
        ("--plan", args.plan.as_deref()),
        ("--device", args.device.device.as_deref().map(Path::new)),
    ];
    let outputs = [("--save", args.save.as_deref()), ("--trace", args.trace.as_deref())];
    overwrite::refuse(&outputs, &inputs, Some(&folder))?;
    trace::check(args.trace.as_deref())?;
    if let Some(path) = &args.save {
        Trainer::check_save(&model, path).map_err(|error| Failure::bad_input(format!("--save {error}")))?;
        Kind::Weights.check("--save", path)?;
    }
    let before = resident_bytes();
    let (train, test) = data::open(&folder, &model, &config)?;
    // Before all that takes long.
    Batches::new(train.len(), config.batch, Order::Sequential, true)?;
    let data_bytes = before.zip(resident_bytes()).map(|(before, after)| after.saturating_sub(before));
    args.device.calibrate(output);
    let device = args.device.device.as_deref();
    let mut trainer = match plan {
        Some(plan) => {
            Trainer::with_plan(model, config.clone(), plan, device).map_err(|error| args.not_usable(error))?
        }
        None => planning(output, || Trainer::new(model, config.clone(), device))?,
    };
    load(args, &mut trainer, output)?;
    let data = format!("{} and {}, from {}", train.len(), plural(test.len(), "sample"), folder.display());
    announce(&trainer, planned_before.as_ref(), &data, output)?;

    let stop = stop_when_asked()?;
    let steps_per_epoch = (train.len() / config.batch) as u64;
    let all_steps = steps_per_epoch.saturating_mul(args.epochs);
    let total_steps = args.steps.map_or(all_steps, |most| most.min(all_steps));
    let mut progress = Progress::new(output, total_steps, args.log_every);
    let mut has_learned = false;
    let mut on_step = |step: &StepReport| {
        has_learned = true;
        progress.step(step);
        if output.is_closed() {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let options = FitOptions {
        max_steps: args.steps,
        stop: Some(stop.clone()),
        on_step: Some(&mut on_step),
        ..FitOptions::epochs(args.epochs)
    };
    let fitted = trainer.fit(&train, options);
    drop(progress);

    // What was learned is on disk before anything else can go wrong, and also where training could not go on. Where nothing was
    // learned, a file that is there already is worth more.
    let path = args.save.as_deref().filter(|_| has_learned);
    let (saved, unsaved) = match path.map(|path| keep(path, |path| trainer.save(path))) {
        Some(Err(failure)) => (None, Some(failure)),
        _ => (path, None),
    };
    let report = fitted.map_err(|error| after_saving(error.into(), saved, unsaved.as_ref()))?;
    let is_measured = source_of(&trainer, planned_before.as_ref()).is_some_and(|source| source.profile().is_some());
    let besides = Besides { saved, data_bytes, is_measured };
    let mut concluded = conclude(&mut trainer, &report, &test, &stop, besides, output);
    if let (Ok(0), Some(path)) = (&concluded, &args.trace) {
        concluded = trace::measured(&mut trainer, &train, path, output).map(|()| 0);
    }
    // Where the parameters are matters more than whatever went wrong after that.
    unsaved.map_or(concluded, Err)
}

/// A training that could not go on, with what became of its parameters.
fn after_saving(failure: Failure, saved: Option<&Path>, unsaved: Option<&Failure>) -> Failure {
    match (saved, unsaved) {
        (Some(path), _) => failure.and(format_args!("saved to {}", path.display())).with("saved", shown(path)),
        // A device that is lost says so once.
        (None, Some(unsaved)) if unsaved.message != failure.message => failure.and_also(unsaved),
        _ => failure,
    }
}

/// Takes the parameters to start from out of a file.
fn load(args: &TrainArgs, trainer: &mut Trainer, output: &Output) -> Result<(), Failure> {
    let Some(path) = &args.weights else { return Ok(()) };
    if !args.skip_mismatched {
        return Ok(trainer.load(path)?);
    }
    let loaded = trainer.load_matching(path)?;
    output.text(format_args!("{}: {loaded}\n", path.display()));
    let Loaded { loaded, missing, unexpected, mismatched } = loaded;
    let mismatched: Vec<_> = mismatched
        .iter()
        .map(|(name, found, expected)| json!({"name": name, "in_file": found, "in_model": expected}))
        .collect();
    output.object(&json!({
        "event": "weights",
        "weights": shown(path),
        "loaded": loaded.len(),
        "missing": missing,
        "unexpected": unexpected,
        "mismatched": mismatched,
    }));
    Ok(())
}

/// What the summary tells beside the training.
#[derive(Clone, Copy, Debug)]
struct Besides<'a> {
    saved: Option<&'a Path>,
    data_bytes: Option<u64>,
    /// Whether the plan's times were measured on a device.
    is_measured: bool,
}

/// Tests the model, and says how it went.
fn conclude(
    trainer: &mut Trainer,
    report: &FitReport,
    test: &Dataset,
    stop: &AtomicBool,
    besides: Besides<'_>,
    output: &Output,
) -> Result<u8, Failure> {
    let evaluation = if report.interrupted { None } else { evaluate(trainer, test, stop, output)? };
    let exit_code = if evaluation.is_none() { INTERRUPTED } else { 0 };
    summarize(trainer, report, evaluation, besides, output)?;
    Ok(exit_code)
}

fn summarize(
    trainer: &mut Trainer,
    report: &FitReport,
    evaluation: Option<Evaluation>,
    Besides { saved, data_bytes, is_measured }: Besides<'_>,
    output: &Output,
) -> Result<(), Failure> {
    let base_bytes = trainer.base_bytes().zip(data_bytes).map(|(base, data)| base.saturating_sub(data));
    let memory = Memory::of(trainer, base_bytes, data_bytes);
    let compiled = trainer.compiled();
    let sha256 = trainer.parameters_sha256()?;
    let plan = trainer.plan();
    let (planned, measured) = (plan.peak_bytes, trainer.measured_peak_bytes());
    let budget = plan.budget_bytes;
    if measured != planned {
        return Err(Failure::failed(format!(
            "the measured peak of {measured} bytes is not the planned peak of {planned} bytes: this is a defect of tightfit"
        )));
    }
    if report.interrupted {
        output.text(format_args!("interrupted after step {}", report.steps));
    } else if evaluation.is_none() {
        output.text("interrupted while testing");
    }
    let milliseconds = |ms: f64| format_ns(ms * 1e6);
    let predicted_ms = plan.predicted_step_ns as f64 / 1e6;
    let prediction_error = predicted_ms / report.step_ms_median - 1.0;
    if report.steps == 0 {
        output.text("no step was made");
    } else {
        output.text(format_args!(
            "{}, {} a step (median), training loss {:.4}, training accuracy {}",
            plural(report.steps as usize, "step"),
            milliseconds(report.step_ms_median),
            report.train_loss,
            percent(report.train_accuracy)
        ));
        let kernels = match compiled.kernels {
            0 => String::new(),
            kernels => {
                format!("compiled {} in {:.1} s, ", plural(kernels, "kernel"), compiled.time.as_secs_f64())
            }
        };
        let first = milliseconds(report.first_step_ms);
        output.text(format_args!("{kernels}first step {first} (not in the median)"));
        output.text(format_args!(
            "predicted {} a step: measured {:.2} times that{}",
            milliseconds(predicted_ms),
            report.step_ms_median / predicted_ms,
            if is_measured { "" } else { " (costs that were not measured)" }
        ));
    }
    if let Some(evaluation) = &evaluation {
        output.text(format_args!("test: {evaluation}"));
    }
    let limit = budget
        .map_or_else(|| "no budget".to_owned(), |budget| format!("budget {budget} bytes ({})", format_bytes(budget)));
    let relation = if budget.is_some() { " ≤ " } else { ", " };
    output.text(format_args!(
        "measured peak = planned peak = {planned} bytes ({}){relation}{limit}",
        format_bytes(planned)
    ));
    if let Some(memory) = memory {
        output.text(format_args!("process {}", memory.text()));
    }
    output.text(format_args!("parameters {sha256}"));
    if let Some(path) = saved {
        output.text(format_args!("saved to {}", path.display()));
    }
    output.object(&json!({
        "event": "summary",
        "model": trainer.model().name(),
        "device": trainer.device_name(),
        "budget_bytes": budget,
        "planned_peak_bytes": planned,
        "measured_peak_bytes": measured,
        "micro_batches": plan.micro_batches.len(),
        "steps": report.steps,
        "epochs": report.epochs,
        "step_ms_median": finite(report.step_ms_median),
        "first_step_ms": finite(report.first_step_ms),
        "kernels": compiled.kernels,
        "compile_ms": compiled.time.as_secs_f64() * 1e3,
        "process": memory.map(Memory::to_json),
        "predicted_step_ms": predicted_ms,
        "measured_step_ms": finite(report.step_ms_median),
        "prediction_error": finite(prediction_error),
        "train_loss": finite(f64::from(report.train_loss)),
        "train_accuracy": report.train_accuracy,
        "test_loss": evaluation.as_ref().map(|evaluation| evaluation.loss),
        "test_accuracy": evaluation.as_ref().and_then(|evaluation| evaluation.accuracy),
        "test_samples": evaluation.as_ref().map(|evaluation| evaluation.samples),
        "parameters_sha256": sha256,
        "interrupted": evaluation.is_none(),
        "saved": shown_if_any(saved),
    }));
    Ok(())
}

//! `tightfit eval`: tests a model with weights from a file.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tightfit::train::{MetricKind, Trainer};

use super::data::{self, DataArgs, Tested};
use super::failure::{Failure, INTERRUPTED};
use super::first_use;
use super::interrupt::{evaluate, stop_when_asked};
use super::output::{Output, shown, shown_if_any};
use super::progress::metric_values;
use super::run_file::set;
use super::settings::{DeviceArgs, ModelArgs};
use super::target::say_budget;
use super::train::{metric, metrics_help};
use super::weights;

#[derive(Args, Debug)]
pub(crate) struct EvalArgs {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    device: DeviceArgs,

    #[command(flatten)]
    data: DataArgs,

    #[arg(long, value_name = "METRICS", value_delimiter = ',', value_parser = metric, help = metrics_help())]
    metrics: Vec<MetricKind>,

    /// Parameters: a file that `train --save` wrote, or one of PyTorch, Keras or ONNX [default: those in the model's file]
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
}

impl EvalArgs {
    pub(crate) fn model(&self) -> &OsStr {
        self.model.name()
    }
}

pub(crate) fn run(args: &EvalArgs, output: &Output) -> Result<u8, Failure> {
    let mut file = args.model.run_file()?;
    set(&mut file.budget.device, args.device.device.as_ref());
    set(&mut file.budget.threads, args.device.threads.as_ref());
    args.data.put_over(&mut file.data, &mut file.augment);
    if !args.metrics.is_empty() {
        file.metrics.evaluate.clone_from(&args.metrics);
    }
    let (model, config) = file.resolve_for_evaluation()?;
    set(&mut file.model.weights, args.weights.as_ref());
    let weights = weights::required(&file)?;
    let Tested { model, config, data: test, .. } = data::open_test(&mut file, model, config, &weights, output)?;
    first_use::for_device(file.device(), args.device.no_calibrate, output);
    let mut trainer = Trainer::for_evaluation(model, config, file.device())?;
    say_budget(trainer.budget_source(), output);
    weights::load(&mut trainer, &weights, &file)?;
    let stop = stop_when_asked()?;
    let evaluation = evaluate(&mut trainer, &test, &stop, output)?;
    let sha256 = trainer.parameters_sha256()?;
    let result = evaluation.as_ref().map_or_else(|| "interrupted".to_owned(), ToString::to_string);
    output.text(format_args!("{}: {result}\nparameters {sha256}", trainer.model().name()));
    output.object(&json!({
        "model": trainer.model().name(),
        "device": trainer.device_name(),
        "profile": shown_if_any(trainer.profile()),
        "warnings": trainer.warnings()?,
        "weights": shown(&weights),
        "test_loss": evaluation.as_ref().map(|evaluation| evaluation.loss),
        "test_accuracy": evaluation.as_ref().and_then(|evaluation| evaluation.accuracy),
        "test_samples": evaluation.as_ref().map(|evaluation| evaluation.samples),
        "test_metrics": evaluation.as_ref().map(metric_values),
        "budget_bytes": trainer.plan().budget_bytes,
        "available_memory": trainer.budget_source(),
        "planned_peak_bytes": trainer.plan().peak_bytes,
        "measured_peak_bytes": trainer.measured_peak_bytes(),
        "parameters_sha256": sha256,
        "interrupted": evaluation.is_none(),
    }));
    Ok(if evaluation.is_none() { INTERRUPTED } else { 0 })
}

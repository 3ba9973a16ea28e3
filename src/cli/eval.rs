//! `tightfit eval`: tests a model with weights from a file.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tightfit::data::mnist;
use tightfit::train::Trainer;

use super::failure::Failure;
use super::output::Output;
use super::settings::{DeviceArgs, ModelArgs};

#[derive(Args, Debug)]
pub(crate) struct EvalArgs {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    device: DeviceArgs,

    /// Folder with the four IDX files of MNIST or a set in its format
    #[arg(long, value_name = "DIR", default_value = "data/mnist")]
    data: PathBuf,

    /// Parameters that `train --save` wrote
    #[arg(long, value_name = "FILE")]
    weights: PathBuf,
}

pub(crate) fn run(args: &EvalArgs, output: &Output) -> Result<u8, Failure> {
    let (model, config) = args.model.resolve()?;
    let (_, test) = mnist::open(&args.data)?;
    let test = test.with_sample_shape(model.input_shape().clone())?;
    let mut trainer = Trainer::for_evaluation(model, config.clone(), args.device.device.as_deref())?;
    trainer.load(&args.weights)?;
    let evaluation = trainer.evaluate(&test)?;
    let sha256 = trainer.parameters_sha256()?;
    output.text(format_args!("{}: {evaluation}\nparameters {sha256}", trainer.model().name()));
    output.object(&json!({
        "model": trainer.model().name(),
        "device": trainer.device_name(),
        "profile": trainer.profile(),
        "weights": args.weights,
        "test_loss": evaluation.loss,
        "test_accuracy": evaluation.accuracy,
        "test_samples": evaluation.samples,
        "budget_bytes": config.budget_bytes,
        "planned_peak_bytes": trainer.plan().peak_bytes,
        "measured_peak_bytes": trainer.measured_peak_bytes(),
        "parameters_sha256": sha256,
    }));
    Ok(0)
}

//! `tightfit plan`: what training takes, before anything runs.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use tightfit::device::Device;
use tightfit::nn::Sequential;
use tightfit::plan::{Limits, Planned};
use tightfit::train::{self, Config, PlanFile, Trainer, write_whole};

use super::describe::describe;
use super::explore;
use super::failure::Failure;
use super::output::Output;
use super::settings::{DeviceArgs, ModelArgs};

#[derive(Args, Debug)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    device: DeviceArgs,

    /// Draws memory over the commands of a step
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Keeps the plan, for `tightfit train MODEL --plan FILE`
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Lists what budgets from the smallest that works to the need without one cost in time
    #[arg(long, conflicts_with_all = ["budget", "max_batch", "svg", "output"])]
    sweep: bool,

    /// Finds the largest batch that fits the budget, and the longest sequences where the model takes such
    #[arg(long, requires = "budget", conflicts_with_all = ["svg", "output"])]
    max_batch: bool,
}

/// What to plan for.
pub(crate) struct Target {
    pub(crate) limits: Limits,
    /// The device has no memory of its own.
    pub(crate) unified_memory: bool,
}

pub(crate) fn run(args: &PlanArgs, output: &Output) -> Result<u8, Failure> {
    let (model, config) = args.model.resolve()?;
    let target = target(args.device.device.as_deref())?;
    if args.sweep {
        return explore::sweep(&model, &config, &target, output);
    }
    if args.max_batch {
        return explore::max_batch(&model, &config, &target, output);
    }
    for (option, path) in [("--svg", &args.svg), ("--output", &args.output)] {
        if let Some(path) = path {
            Trainer::check_save(path).map_err(|error| Failure::bad_input(format!("{option} {error}")))?;
        }
    }
    let planned = train::plan(&model, &config, &target.limits)?;
    output.text(model.summary()?);
    output.text(planned.plan.table().unified_memory(target.unified_memory));
    keep(args, &model, &config, &planned)?;
    for path in args.svg.iter().chain(&args.output) {
        output.text(format_args!("written to {}", path.display()));
    }
    let mut object = describe(&planned.plan, target.unified_memory);
    object.insert("model".to_owned(), json!(model.name()));
    object.insert("parameters".to_owned(), json!(model.parameter_count()?));
    object.insert("svg".to_owned(), json!(args.svg));
    object.insert("output".to_owned(), json!(args.output));
    output.object(&Value::Object(object));
    Ok(0)
}

fn target(device: Option<&str>) -> Result<Target, Failure> {
    Ok(match device {
        None => Target { limits: Limits::any_device(), unified_memory: false },
        Some("cpu") => Target { limits: Limits::default(), unified_memory: true },
        selector => {
            let device = Device::open(selector)?;
            Target { limits: device.limits(), unified_memory: device.info().unified_memory }
        }
    })
}

/// Writes the files that were asked for.
fn keep(args: &PlanArgs, model: &Sequential, config: &Config, planned: &Planned) -> Result<(), Failure> {
    let write = |path: &Path, svg: String| write_whole(path, svg.as_bytes());
    args.svg.as_ref().map_or(Ok(()), |path| write(path, planned.to_svg(model.name())))?;
    let file = || PlanFile::new(model, config, planned.plan.clone());
    args.output.as_ref().map_or(Ok(()), |path| file().save(path))?;
    Ok(())
}

/// Prints the model and the plan before the first step.
pub(crate) fn announce(trainer: &Trainer, output: &Output) -> Result<(), Failure> {
    let (model, device) = (trainer.model(), trainer.device_name());
    let table = trainer.plan().table().unified_memory(trainer.unified_memory());
    output.text(model.summary()?);
    output.text(format_args!("{table}\ndevice               {device}\n"));
    let mut object = describe(trainer.plan(), trainer.unified_memory());
    object.insert("event".to_owned(), json!("plan"));
    object.insert("model".to_owned(), json!(model.name()));
    object.insert("device".to_owned(), json!(device));
    output.object(&Value::Object(object));
    Ok(())
}

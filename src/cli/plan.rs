//! `tightfit plan`: what training takes, before anything runs.

use clap::Args;
use serde_json::{Map, Value, json};
use tightfit::nn::Sequential;
use tightfit::plan::{Limits, Plan};
use tightfit::train::{self, Trainer};

use super::failure::Failure;
use super::output::Output;
use super::settings::{DeviceArgs, ModelArgs};

#[derive(Args, Debug)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(crate) fn run(args: &PlanArgs, output: &Output) -> Result<u8, Failure> {
    let (model, config) = args.model.resolve()?;
    let (summary, name, parameters) = (model.summary()?, model.name().to_owned(), model.parameter_count()?);
    let plan = match args.device.device.as_deref() {
        None => train::plan(&model, &config, &Limits::any_device())?.plan,
        Some("cpu") => train::plan(&model, &config, &Limits::default())?.plan,
        selector => Trainer::new(model, config, selector)?.plan().clone(),
    };
    output.text(summary);
    output.text(&plan);
    let mut object = describe(&plan);
    object.insert("model".to_owned(), json!(name));
    object.insert("parameters".to_owned(), json!(parameters));
    output.object(&Value::Object(object));
    Ok(0)
}

/// Prints the model and the plan before the first step.
pub(crate) fn announce(model: &Sequential, plan: &Plan, device: &str, output: &Output) -> Result<(), Failure> {
    output.text(model.summary()?);
    output.text(format_args!("{plan}\ndevice               {device}\n"));
    let mut object = describe(plan);
    object.insert("event".to_owned(), json!("plan"));
    object.insert("model".to_owned(), json!(model.name()));
    object.insert("device".to_owned(), json!(device));
    output.object(&Value::Object(object));
    Ok(())
}

fn describe(plan: &Plan) -> Map<String, Value> {
    let fields = [
        ("batch", json!(plan.batch)),
        ("budget_bytes", json!(plan.budget_bytes)),
        ("unconstrained_peak_bytes", json!(plan.unconstrained_peak_bytes)),
        ("minimum_budget_bytes", json!(plan.minimum_budget_bytes)),
        ("planned_peak_bytes", json!(plan.peak_bytes)),
        ("micro_batches", json!(plan.micro_batches.len())),
        ("micro_batch_sizes", json!(plan.micro_batches)),
        ("predicted_step_ms", json!(plan.predicted_step_ns as f64 / 1e6)),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

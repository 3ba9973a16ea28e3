//! `tightfit plan`: what training takes, before anything runs.

use clap::Args;
use serde_json::{Map, Value, json};
use tightfit::device::Device;
use tightfit::nn::Sequential;
use tightfit::plan::{Limits, Plan};
use tightfit::train;

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
    // Without a device, the limits that any device meets.
    let limits = match args.device.device.as_deref() {
        None | Some("cpu") => Limits::default(),
        selector => Device::open(selector)?.limits(),
    };
    let planned = train::plan(&model, &config, &limits)?;
    output.text(model.summary()?);
    output.text(&planned.plan);
    let mut object = describe(&planned.plan);
    object.insert("model".to_owned(), json!(model.name()));
    object.insert("parameters".to_owned(), json!(model.parameter_count()?));
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

//! `tightfit plan`: what training takes, before anything runs.

use std::path::Path;

use clap::Args;
use serde_json::{Map, Value, json};
use tightfit::device::Device;
use tightfit::plan::Plan;
use tightfit::train::{self, Machine, Trainer};

use super::failure::Failure;
use super::output::Output;
use super::settings::ModelArgs;

#[derive(Args, Debug)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    model: ModelArgs,

    /// Index or part of the name of a device that `tightfit devices` lists, cpu, or a profile that `tightfit calibrate`
    /// wrote, here or on another machine [default: any device]
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
}

pub(crate) fn run(args: &PlanArgs, output: &Output) -> Result<u8, Failure> {
    let (model, config) = args.model.resolve()?;
    let (summary, name, parameters) = (model.summary()?, model.name().to_owned(), model.parameter_count()?);
    let machine = machine(args.device.as_deref())?;
    let plan = train::plan_for(&model, &config, &machine)?.plan;
    output.text(summary);
    output.text(&plan);
    if args.device.is_some() {
        output.text(costs_line(machine.profile.as_deref()));
    }
    let mut object = describe(&plan);
    object.insert("profile".to_owned(), json!(machine.profile));
    object.insert("model".to_owned(), json!(name));
    object.insert("parameters".to_owned(), json!(parameters));
    output.object(&Value::Object(object));
    Ok(0)
}

/// What to plan for: a file is a profile, all else selects a device of this machine.
fn machine(device: Option<&str>) -> Result<Machine, Failure> {
    let Some(device) = device else { return Ok(Machine::any()) };
    let path = Path::new(device);
    let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    Ok(match device {
        "cpu" => Machine::interpreter(),
        _ if is_json || path.is_file() => Machine::from_profile(path)?,
        selector => Machine::of(&Device::open(Some(selector))?)?,
    })
}

/// Where predicted times come from.
fn costs_line(profile: Option<&Path>) -> String {
    let source = profile.map_or_else(
        || "not measured on this device; `tightfit calibrate` does".to_owned(),
        |path| format!("measured, from {}", path.display()),
    );
    format!("{:<20} {source}", "costs")
}

/// Prints the model and the plan before the first step.
pub(crate) fn announce(trainer: &Trainer, output: &Output) -> Result<(), Failure> {
    let (model, plan, device) = (trainer.model(), trainer.plan(), trainer.device_name());
    output.text(model.summary()?);
    let costs = costs_line(trainer.profile());
    output.text(format_args!("{plan}\n{:<20} {device}\n{costs}\n", "device"));
    let mut object = describe(plan);
    object.insert("event".to_owned(), json!("plan"));
    object.insert("model".to_owned(), json!(model.name()));
    object.insert("device".to_owned(), json!(device));
    object.insert("profile".to_owned(), json!(trainer.profile()));
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

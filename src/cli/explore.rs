//! `tightfit plan --sweep` and `--max-batch`: many plans in a table.

use serde_json::{Value, json};
use tightfit::error::PlanError;
use tightfit::nn::Model;
use tightfit::plan::{Largest, Lever, Plan, format_bytes, format_ns, format_parts};
use tightfit::train::{self, Config, MOST_SAMPLES};

use super::describe::describe;
use super::failure::{Failure, INFEASIBLE};
use super::output::{Output, columns, shown_if_any};
use super::progress::planning;
use super::target::Target;

/// Budgets of a sweep besides the smallest.
const POINTS: usize = 9;

pub(crate) fn sweep(model: &Model, config: &Config, target: &Target, output: &Output) -> Result<u8, Failure> {
    let warnings = warn(model, config)?;
    let plans = planning(output, || train::sweep(model, config, &target.machine, POINTS))?;
    let (Some(least), Some(most)) = (plans.first(), plans.last()) else { return Ok(0) };
    output.text(format_args!("{}, batch {}\n", model.name(), config.batch));
    let heading = ["budget", "peak", "a step", "overhead", "micro-batches", "recomputed", "offloaded"];
    let row = |plan: &Plan| {
        let bytes = |lever| match plan.lever(lever).size_bytes {
            0 => "-".to_owned(),
            bytes => format_bytes(bytes),
        };
        [
            plan.budget_bytes.map_or_else(|| "none".to_owned(), format_bytes),
            format_bytes(plan.peak_bytes),
            format_ns(plan.predicted_step_ns as f64),
            format!("{:.1}%", plan.overhead() * 100.0),
            format_parts(&plan.micro_batches),
            bytes(Lever::Recompute),
            bytes(Lever::Offload),
        ]
    };
    let rows = [&[heading.map(str::to_owned)], &*plans.iter().map(row).collect::<Vec<_>>()].concat();
    output.text(columns(&rows, 0, output.width()).join("\n"));
    let least_bytes = least.budget_bytes.unwrap_or(least.peak_bytes);
    output.text(format_args!(
        "\nsmallest budget {} ({least_bytes} bytes), unconstrained {}; a budget that is left out is no faster than the one \
         above it",
        format_bytes(least_bytes),
        format_bytes(most.unconstrained_peak_bytes)
    ));
    output.text(target.lines());
    let points: Vec<Value> =
        plans.iter().map(|plan| Value::Object(describe(plan, Some(target.unified_memory())))).collect();
    output.object(&json!({
        "model": model.name(),
        "batch": config.batch,
        "device": target.device,
        "device_class": target.class(),
        "profile": shown_if_any(target.profile()),
        "minimum_budget_bytes": least_bytes,
        "unconstrained_peak_bytes": most.unconstrained_peak_bytes,
        "warnings": warnings,
        "points": points,
    }));
    Ok(0)
}

pub(crate) fn max_batch(model: &Model, config: &Config, target: &Target, output: &Output) -> Result<u8, Failure> {
    let machine = &target.machine;
    let none = |what: &str| format!("{what} of `{}` fits", model.name());
    let budget_bytes = config.budget_on(machine)?;
    let budget = budget_bytes.map_or_else(String::new, format_bytes);
    let smallest = match config.micro_batches {
        Some(count) if count > 1 => format!("no batch of {count}, one sample in each micro-batch,"),
        _ => "not even a batch of 1".to_owned(),
    };
    let warnings = warn(model, config)?;
    let of = |config: &Config| train::max_batch(model, config, machine);
    let batch = planning(output, || of(config)).map_err(|error| Failure::from(error).prefixed(none(&smallest)))?;
    let whole = match config.micro_batches {
        Some(_) => None,
        None if batch.plan.micro_batches.len() == 1 => Some(batch.clone()),
        None => fitting(planning(output, || of(&config.clone().micro_batches(1))))?,
    };
    let length = fitting(planning(output, || train::max_length(model, config, machine)))?.flatten();

    output.text(format_args!("{} in {budget}\n", model.name()));
    // What fits without being cut is what people ask for; cut into micro-batches, almost any batch may fit.
    if config.micro_batches.is_some() || whole.as_ref() == Some(&batch) {
        row(output, "largest batch", Some(&batch));
    } else {
        row(output, "largest batch, whole", whole.as_ref());
        row(output, "in micro-batches", Some(&batch));
    }
    if model.with_length(1).is_some() {
        row(output, &format!("longest at batch {}", config.batch), length.as_ref());
    }
    output.text(target.lines());
    output.object(&json!({
        "model": model.name(),
        "budget_bytes": budget_bytes,
        "available_memory": config.budget_source(machine),
        "batch": config.batch,
        "device": target.device,
        "device_class": target.class(),
        "profile": shown_if_any(target.profile()),
        "warnings": warnings,
        "max_batch": found(Some(&batch), target),
        "max_batch_in_one": found(whole.as_ref(), target),
        "max_length": found(length.as_ref(), target),
    }));
    Ok(0)
}

/// Says what is hardly meant.
fn warn(model: &Model, config: &Config) -> Result<Vec<String>, Failure> {
    let warnings = train::warnings(model, config)?;
    warnings.iter().for_each(|warning| log::warn!("{warning}"));
    Ok(warnings)
}

/// What was found, or nothing where not even the smallest fits.
fn fitting<T>(found: Result<T, tightfit::error::TrainError>) -> Result<Option<T>, Failure> {
    match found.map_err(Failure::from) {
        Ok(found) => Ok(Some(found)),
        Err(failure) if failure.exit_code == INFEASIBLE => Ok(None),
        Err(failure) => Err(failure),
    }
}

fn row(output: &Output, name: &str, found: Option<&Largest>) {
    let Some(Largest { size, plan, beyond }) = found else {
        output.text(format_args!("{name:<20} {:>12}", "none"));
        return;
    };
    let note = match beyond {
        None if *size == MOST_SAMPLES => " or more",
        _ => "",
    };
    output.text(format_args!(
        "{name:<20} {size:>12}{note}\n  micro-batches {}, peak {}, {} a step",
        format_parts(&plan.micro_batches),
        format_bytes(plan.peak_bytes),
        format_ns(plan.predicted_step_ns as f64)
    ));
    // That no more fits the budget is what was asked; anything else should be said.
    if let Some(error) = beyond.as_ref().filter(|error| !matches!(error, PlanError::Infeasible { .. })) {
        output.text(format_args!("  not more because {error}"));
    }
}

fn found(found: Option<&Largest>, target: &Target) -> Value {
    let Some(Largest { size, plan, beyond }) = found else { return Value::Null };
    json!({
        "size": size,
        "or_more": beyond.is_none(),
        "beyond": beyond.as_ref().map(ToString::to_string),
        "plan": describe(plan, Some(target.unified_memory())),
    })
}

//! `tightfit advise`: what may be done where a training does not fit, and what its memory is.

use std::ffi::OsStr;

use clap::Args;
use serde_json::json;
use tightfit::plan::{format_bytes, format_ns};
use tightfit::train::{self, Advice, Effect, MemoryUse, Remedy};

use super::data::DataArgs;
use super::failure::{Failure, INFEASIBLE};
use super::layers;
use super::output::{Output, columns, shown_if_any};
use super::progress::planning;
use super::settings::TrainingArgs;
use super::target::{Asked, TargetArgs, say_budget};

/// Rows of layers: in larger models, layers are put together.
const MOST_LAYERS: usize = 24;

#[derive(Args, Debug)]
pub(crate) struct AdviseArgs {
    #[command(flatten)]
    model: TrainingArgs,
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    target: TargetArgs,
}

impl AdviseArgs {
    pub(crate) fn model(&self) -> &OsStr {
        self.model.name()
    }
}

pub(crate) fn run(args: &AdviseArgs, output: &Output) -> Result<u8, Failure> {
    let Asked { file, model, config, .. } = args.target.asked(&args.model, &args.data, output)?;
    let target = args.target.find(file.device().map(OsStr::new), config.threads, output)?;
    let available = target.budget_source(&config)?;
    if config.budget_bytes.is_none() && available.is_none() {
        return Err(Failure::bad_input("advice is for a budget: say how many bytes there are, such as --budget 8GiB"));
    }
    say_budget(available, output);
    let warnings = train::warnings(&model, &config)?;
    warnings.iter().for_each(|warning| log::warn!("{warning}"));
    let advice = planning(output, || train::advise(&model, &config, &target.machine))?;

    output.text(format_args!("{}, batch {}, in {}\n", model.name(), config.batch, format_bytes(advice.budget_bytes)));
    output.text(table(&advice, output.width()));
    output.text(conclusion(&advice));
    output.text(memory(&advice.memory, output.width()));
    output.text(target.lines());
    let mut object = json!(advice);
    for (key, value) in [
        ("model", json!(model.name())),
        ("batch", json!(config.batch)),
        ("device", json!(target.device)),
        ("device_class", json!(target.class())),
        ("profile", shown_if_any(target.profile())),
        ("available_memory", json!(available)),
        ("warnings", json!(warnings)),
        ("layers", layers::rows(&advice.memory.layers)),
    ] {
        object[key] = value;
    }
    output.object(&object);
    Ok(if advice.cheapest.is_some() { 0 } else { INFEASIBLE })
}

/// What a remedy does to results, in few words.
fn words(effect: Effect) -> &'static str {
    match effect {
        Effect::Nothing => "no",
        Effect::Rounding => "rounding",
        Effect::Precision => "precision",
        Effect::Training => "yes",
    }
}

fn table(advice: &Advice, width: usize) -> String {
    let heading = ["remedy", "how", "changes results", "fits", "peak", "a step", "a sample"].map(str::to_owned);
    let row = |remedy: &Remedy| {
        let time = |ns: Option<f64>| ns.map_or_else(|| "-".to_owned(), format_ns);
        let peak = format_bytes(remedy.peak_bytes);
        [
            remedy.name.clone(),
            if remedy.flags.is_empty() { "-".to_owned() } else { format!("`{}`", remedy.flags) },
            words(remedy.effect).to_owned(),
            if remedy.fits { "yes" } else { "no" }.to_owned(),
            if remedy.step_ns.is_some() { peak } else { format!("≥ {peak}") },
            time(remedy.step_ns.map(|ns| ns as f64)),
            time(remedy.sample_ns()),
        ]
    };
    let remedies = std::iter::once(&advice.as_it_is).chain(&advice.remedies).map(row);
    let rows: Vec<_> = std::iter::once(heading).chain(remedies).collect();
    columns(&rows, 4, width).join("\n")
}

/// What to take.
fn conclusion(advice: &Advice) -> String {
    let budget = format_bytes(advice.budget_bytes);
    let said = |remedy: &Remedy| {
        let time = remedy.step_ns.map_or_else(String::new, |ns| format!(", {} a step", format_ns(ns as f64)));
        let flags = if remedy.flags.is_empty() { "no flag is needed" } else { &remedy.flags };
        let code = if remedy.code.is_empty() { String::new() } else { format!("; in Rust: {}", remedy.code) };
        format!("{}{time}: {flags}{code}", format_bytes(remedy.peak_bytes))
    };
    let mut lines = Vec::new();
    match &advice.unchanged {
        Some(remedy) if remedy.effect == Effect::Nothing => {
            lines.push(format!("same results, bit for bit: {} ({})", said(remedy), remedy.name));
        }
        Some(remedy) => lines.push(format!("same results but for rounding: {} ({})", said(remedy), remedy.name)),
        None => lines.push(format!("nothing that leaves results as they are fits {budget}")),
    }
    if let Some(remedy) = &advice.rounded
        && advice.unchanged.as_ref() != Some(remedy)
    {
        lines.push(format!("the same training in 16 bits: {} ({})", said(remedy), remedy.name));
    }
    match &advice.cheapest {
        Some(remedy) if advice.rounded.as_ref() != Some(remedy) => {
            lines.push(format!("least time a sample: {} ({})", said(remedy), remedy.name));
        }
        Some(_) => {}
        None => lines.push(format!(
            "nothing that was tried fits {budget}, two remedies together included: a smaller model is left, or a larger budget"
        )),
    }
    format!("\n{}\n", lines.join("\n"))
}

fn memory(memory: &MemoryUse, width: usize) -> String {
    let MemoryUse { parameter_bytes, gradient_bytes, state_bytes, saved_bytes, layers, largest, .. } = memory;
    let rows = [
        ("parameters", parameter_bytes),
        ("gradients", gradient_bytes),
        ("optimizer state", state_bytes),
        ("saved activations", saved_bytes),
    ];
    let sums: Vec<_> = rows.iter().map(|(name, bytes)| format!("{name:<20} {:>12}", format_bytes(**bytes))).collect();
    let layers = layers.clone().at_most(MOST_LAYERS).width(width);
    let heading = ["largest tensors", "kind", "shape", "bytes"].map(str::to_owned);
    let row = |tensor: &train::LargeTensor| {
        let kind = if tensor.saved { format!("{}, saved", tensor.kind) } else { tensor.kind.to_owned() };
        [tensor.name.clone(), kind, tensor.shape.clone(), format_bytes(tensor.size_bytes)]
    };
    let tensors: Vec<_> = std::iter::once(heading).chain(largest.iter().map(row)).collect();
    format!("{}\n\n{layers}\n{}\n", sums.join("\n"), columns(&tensors, 3, width).join("\n"))
}

//! `tightfit plan`: what training takes, before anything runs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use tightfit::command::{files, plural};
use tightfit::data::LoaderMemory;
use tightfit::nn::Model;
use tightfit::plan::{Planned, StepTimes, format_bytes};
use tightfit::train::{self, Config, CostSource, Machine, PlanFile, Trainer};

use super::data::DataArgs;
use super::describe::{add_precision, describe, precision_line};
use super::explore;
use super::failure::{Failure, keep};
use super::output::{Output, shown_if_any};
use super::overwrite::{self, Kind};
use super::progress::planning;
use super::settings::TrainingArgs;
use super::target::{Asked, TargetArgs, class_of, device_lines, say_budget};

#[derive(Args, Debug)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    model: TrainingArgs,
    #[command(flatten)]
    data: DataArgs,

    #[command(flatten)]
    target: TargetArgs,

    /// Draws memory over the commands of a step
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Writes a step as a trace that ui.perfetto.dev shows: what runs when, and what is in memory meanwhile
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Keeps the plan, for `tightfit train MODEL --plan FILE`
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Lists what budgets from the smallest that works to the need without one cost in time
    #[arg(long, conflicts_with_all = ["budget", "max_batch", "svg", "trace", "output"])]
    sweep: bool,

    /// Finds the largest batch that fits the budget, and the longest sequences where the model takes such
    #[arg(long, requires = "budget", conflicts_with_all = ["svg", "trace", "output"])]
    max_batch: bool,
}

/// Rows of the model summary: in larger models, layers are put together.
const MOST_LAYERS: usize = 48;

impl PlanArgs {
    pub(crate) fn model(&self) -> &OsStr {
        self.model.name()
    }
}

pub(crate) fn run(args: &PlanArgs, output: &Output) -> Result<u8, Failure> {
    let Asked { file, model, config, host } = args.target.asked(&args.model, &args.data, output)?;
    let outputs = [
        ("--svg", args.svg.as_deref(), Kind::Picture),
        ("--trace", args.trace.as_deref(), Kind::Trace),
        ("--output", args.output.as_deref(), Kind::Plan),
    ];
    let inputs = [overwrite::model(args.model()), ("--device", args.target.file())];
    overwrite::refuse(&outputs.map(|(option, path, _)| (option, path)), &inputs, None)?;
    for (option, path, kind) in outputs {
        if let Some(path) = path {
            files::check_writable(path, 1).map_err(|error| Failure::bad_input(format!("{option} {error}")))?;
            kind.check(option, path)?;
        }
    }
    let target = args.target.find(file.device().map(OsStr::new), config.threads, output)?;
    if args.sweep {
        return explore::sweep(&model, &config, &target, output);
    }
    let available = target.budget_source(&config)?;
    say_budget(available, output);
    if args.max_batch {
        return explore::max_batch(&model, &config, &target, output);
    }
    let planned = planning(output, || train::plan_for(&model, &config, &target.machine))?;
    output.text(train::summary(&model, &config)?.at_most(MOST_LAYERS).width(output.width()));
    output.text(planned.plan.table().unified_memory(target.unified_memory()));
    output.text(format_args!("{}{}", precision_line(&config), target.lines()));
    if let Some(host) = &host {
        output.text(format_args!("{:<20} {}", "host memory", host_words(host)));
    }
    write(args, &model, &config, &planned, &target.machine)?;
    for path in args.svg.iter().chain(&args.trace).chain(&args.output) {
        output.text(format_args!("written to {}", path.display()));
    }
    let mut object = describe(&planned.plan, Some(target.unified_memory()));
    add_precision(&mut object, &config);
    object.insert("model".to_owned(), json!(model.name()));
    object.insert("parameters".to_owned(), json!(model.parameter_count()?));
    object.insert("device".to_owned(), json!(target.device));
    object.insert("device_class".to_owned(), json!(target.class()));
    object.insert("profile".to_owned(), shown_if_any(target.profile()));
    object.insert("available_memory".to_owned(), json!(available));
    object.insert("warnings".to_owned(), json!(train::warnings(&model, &config)?));
    object.insert("data_memory".to_owned(), host.as_ref().map_or(Value::Null, host_json));
    object.insert("svg".to_owned(), shown_if_any(args.svg.as_ref()));
    object.insert("trace".to_owned(), shown_if_any(args.trace.as_ref()));
    object.insert("output".to_owned(), shown_if_any(args.output.as_ref()));
    output.object(&Value::Object(object));
    Ok(0)
}

/// Writes the files that were asked for.
fn write(args: &PlanArgs, model: &Model, config: &Config, planned: &Planned, machine: &Machine) -> Result<(), Failure> {
    if let Some(path) = &args.svg {
        let svg = planned.to_svg(model.name());
        keep(path, |path| Ok(files::write_whole(path, svg.as_bytes())?))?;
    }
    if let Some(path) = &args.trace {
        let times = StepTimes::predicted(planned, &machine.costs);
        keep(path, |path| Ok(train::save_trace(planned, model.name(), &times, path)?))?;
    }
    if let Some(path) = &args.output {
        let file = PlanFile::new(model, config, planned.plan.clone()).with_costs(machine.source.clone());
        keep(path, |path| Ok(file.save(path)?))?;
    }
    Ok(())
}

/// A plan that was made before, and where its times come from, if it says so.
pub(crate) struct Kept<'a> {
    pub(crate) path: &'a Path,
    pub(crate) source: Option<CostSource>,
}

/// Where the predicted times of a training come from: the device's own costs, or those that its plan was made with.
pub(crate) fn source_of<'a>(trainer: &'a Trainer, kept: Option<&'a Kept<'_>>) -> Option<&'a CostSource> {
    kept.map_or_else(|| trainer.cost_source(), |kept| kept.source.as_ref())
}

/// Prints the model and the plan before the first step.
pub(crate) fn announce(
    trainer: &Trainer,
    kept: Option<&Kept<'_>>,
    (data, host): (&str, &LoaderMemory),
    output: &Output,
) -> Result<(), Failure> {
    let (model, device) = (trainer.model(), trainer.device_name());
    let table = trainer.plan().table().unified_memory(trainer.unified_memory());
    let source = source_of(trainer, kept);
    let device_lines = match kept {
        None => device_lines(Some(device), source),
        Some(Kept { path, .. }) if trainer.cost_source() == source => {
            format!("{}\n{:<20} as in the plan {}", device_lines(Some(device), source), "", path.display())
        }
        Some(Kept { path, .. }) => {
            let made = match source {
                Some(CostSource::Class(class)) => format!("are typical of {}", class.article()),
                Some(CostSource::Profile { path, .. }) => format!("are those of {}", path.display()),
                None => "are not known".to_owned(),
            };
            let (plan, again) = (path.display(), "plan again with --device for those of this device");
            format!("{:<20} {device}\n{:<20} of the plan {plan} {made}; {again}", "device", "costs")
        }
    };
    say_budget(trainer.budget_source(), output);
    output.text(trainer.summary()?.at_most(MOST_LAYERS).width(output.width()));
    output.text(format_args!("{table}\n{}{device_lines}\n{:<20} {data}", precision_line(trainer.config()), "data"));
    output.text(format_args!("{:<20} {}\n", "host memory", host_words(host)));
    let mut object = describe(trainer.plan(), Some(trainer.unified_memory()));
    add_precision(&mut object, trainer.config());
    object.insert("event".to_owned(), json!("plan"));
    object.insert("model".to_owned(), json!(model.name()));
    object.insert("device".to_owned(), json!(device));
    object.insert("device_class".to_owned(), json!(class_of(source)));
    object.insert("profile".to_owned(), shown_if_any(source.and_then(CostSource::profile)));
    object.insert("available_memory".to_owned(), json!(trainer.budget_source()));
    object.insert("warnings".to_owned(), json!(trainer.warnings()?));
    object.insert("data_memory".to_owned(), host_json(host));
    output.object(&Value::Object(object));
    Ok(())
}

/// What data takes of the host's memory.
fn host_words(host: &LoaderMemory) -> String {
    let LoaderMemory { dataset_bytes, batch_bytes, batches, scratch_bytes, workers } = *host;
    let threads = if workers == 0 { String::new() } else { format!(", by {}", plural(workers, "thread")) };
    let kept = host.total_bytes().saturating_sub(scratch_bytes);
    format!(
        "{}: data {}, {batches} batches of {}; and at most {} while samples are read{threads}",
        format_bytes(kept),
        format_bytes(dataset_bytes),
        format_bytes(batch_bytes),
        format_bytes(scratch_bytes)
    )
}

fn host_json(host: &LoaderMemory) -> Value {
    json!({
        "total_bytes": host.total_bytes(), "dataset_bytes": host.dataset_bytes, "batch_bytes": host.batch_bytes,
        "batches": host.batches, "reading_bytes": host.scratch_bytes, "workers": host.workers,
    })
}

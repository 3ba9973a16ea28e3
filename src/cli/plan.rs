//! `tightfit plan`: what training takes, before anything runs.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use tightfit::device::Device;
use tightfit::files;
use tightfit::nn::Model;
use tightfit::plan::Planned;
use tightfit::train::{self, Config, Machine, PlanFile, Trainer};

use super::describe::describe;
use super::explore;
use super::failure::{Failure, keep};
use super::output::{Output, shown_if_any};
use super::progress::planning;
use super::settings::TrainingArgs;

#[derive(Args, Debug)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    model: TrainingArgs,

    /// Index or part of the name of a device that `tightfit devices` lists, cpu, or a profile that `tightfit calibrate`
    /// wrote, here or on another machine [default: any device]
    #[arg(long, value_name = "DEVICE")]
    device: Option<OsString>,

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

/// Rows of the table of layers: in larger models, layers are put together.
const MOST_LAYERS: usize = 48;

impl PlanArgs {
    pub(crate) fn model(&self) -> &OsStr {
        self.model.name()
    }
}

pub(crate) fn run(args: &PlanArgs, output: &Output) -> Result<u8, Failure> {
    let (model, config) = args.model.resolve()?;
    let target = Target::named(args.device.as_deref())?;
    if args.sweep {
        return explore::sweep(&model, &config, &target, output);
    }
    if args.max_batch {
        return explore::max_batch(&model, &config, &target, output);
    }
    for (option, path) in [("--svg", &args.svg), ("--output", &args.output)] {
        if let Some(path) = path {
            files::check_writable(path, 1).map_err(|error| Failure::bad_input(format!("{option} {error}")))?;
        }
    }
    let planned = planning(output, || train::plan_for(&model, &config, &target.machine))?;
    output.text(train::summary(&model, &config)?.at_most(MOST_LAYERS).width(output.width()));
    output.text(planned.plan.table().unified_memory(target.unified_memory() == Some(true)));
    output.text(target.costs_line());
    write(args, &model, &config, &planned)?;
    for path in args.svg.iter().chain(&args.output) {
        output.text(format_args!("written to {}", path.display()));
    }
    let mut object = describe(&planned.plan, target.unified_memory());
    object.insert("model".to_owned(), json!(model.name()));
    object.insert("parameters".to_owned(), json!(model.parameter_count()?));
    object.insert("profile".to_owned(), shown_if_any(target.machine.profile.as_ref()));
    object.insert("warnings".to_owned(), json!(train::warnings(&model, &config)?));
    object.insert("svg".to_owned(), shown_if_any(args.svg.as_ref()));
    object.insert("output".to_owned(), shown_if_any(args.output.as_ref()));
    output.object(&Value::Object(object));
    Ok(0)
}

/// What to plan for.
pub(crate) struct Target {
    pub(crate) machine: Machine,
    /// Whether a device was named.
    known: bool,
}

impl Target {
    /// A file is a profile, all else selects a device of this machine.
    fn named(device: Option<&OsStr>) -> Result<Self, Failure> {
        let Some(device) = device else { return Ok(Target { machine: Machine::any(), known: false }) };
        let path = Path::new(device);
        let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
        let machine = if device == "cpu" {
            Machine::interpreter()
        } else if is_json || (path.exists() && !path.is_dir()) {
            Machine::from_profile(path)?
        } else {
            Machine::of(&mut Device::open(Some(&device.to_string_lossy()))?)
        };
        Ok(Target { machine, known: true })
    }

    /// Whether device and host share their memory, where that is known.
    pub(crate) fn unified_memory(&self) -> Option<bool> {
        self.known.then_some(self.machine.costs.unified_memory)
    }

    /// Whose times are predicted.
    pub(crate) fn costs_line(&self) -> String {
        if self.known {
            return costs_line(self.machine.profile.as_deref());
        }
        format!("{:<20} defaults, not measured on a device; --device names one", "costs")
    }
}

/// Where predicted times come from.
fn costs_line(profile: Option<&Path>) -> String {
    let source = profile.map_or_else(
        || "not measured on this device; `tightfit calibrate` does".to_owned(),
        |path| format!("measured, from {}", path.display()),
    );
    format!("{:<20} {source}", "costs")
}

/// Writes the files that were asked for.
fn write(args: &PlanArgs, model: &Model, config: &Config, planned: &Planned) -> Result<(), Failure> {
    if let Some(path) = &args.svg {
        let svg = planned.to_svg(model.name());
        keep(path, |path| Ok(files::write_whole(path, svg.as_bytes())?))?;
    }
    if let Some(path) = &args.output {
        let file = PlanFile::new(model, config, planned.plan.clone());
        keep(path, |path| Ok(file.save(path)?))?;
    }
    Ok(())
}

/// Prints the model and the plan before the first step.
pub(crate) fn announce(trainer: &Trainer, data: &str, output: &Output) -> Result<(), Failure> {
    let (model, device) = (trainer.model(), trainer.device_name());
    let table = trainer.plan().table().unified_memory(trainer.unified_memory());
    let costs = costs_line(trainer.profile());
    output.text(trainer.summary()?.at_most(MOST_LAYERS).width(output.width()));
    output.text(format_args!("{table}\n{:<20} {device}\n{costs}\n{:<20} {data}\n", "device", "data"));
    let mut object = describe(trainer.plan(), Some(trainer.unified_memory()));
    object.insert("event".to_owned(), json!("plan"));
    object.insert("model".to_owned(), json!(model.name()));
    object.insert("device".to_owned(), json!(device));
    object.insert("profile".to_owned(), shown_if_any(trainer.profile()));
    object.insert("warnings".to_owned(), json!(trainer.warnings()?));
    output.object(&Value::Object(object));
    Ok(())
}

//! `tightfit plan`: what training takes, before anything runs.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use tightfit::device::Device;
use tightfit::files;
use tightfit::nn::Model;
use tightfit::plan::Planned;
use tightfit::train::{self, Config, Machine, PlanFile, Profile, Trainer};

use super::describe::describe;
use super::explore;
use super::failure::{Failure, keep};
use super::output::{Output, shown_if_any};
use super::overwrite;
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

/// The device name of the interpreter.
const INTERPRETER: &str = "cpu";
/// Rows of the model summary: in larger models, layers are put together.
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
    let outputs = [("--svg", args.svg.as_deref()), ("--output", args.output.as_deref())];
    let inputs = [overwrite::model(args.model()), ("--device", args.device.as_deref().map(Path::new))];
    overwrite::refuse(&outputs, &inputs, None)?;
    for (option, path) in [("--svg", &args.svg), ("--output", &args.output)] {
        if let Some(path) = path {
            files::check_writable(path, 1).map_err(|error| Failure::bad_input(format!("{option} {error}")))?;
        }
    }
    let planned = planning(output, || train::plan_for(&model, &config, &target.machine))?;
    output.text(train::summary(&model, &config)?.at_most(MOST_LAYERS).width(output.width()));
    output.text(planned.plan.table().unified_memory(target.unified_memory() == Some(true)));
    output.text(target.lines());
    write(args, &model, &config, &planned, target.machine.profile.as_deref())?;
    for path in args.svg.iter().chain(&args.output) {
        output.text(format_args!("written to {}", path.display()));
    }
    let mut object = describe(&planned.plan, target.unified_memory());
    object.insert("model".to_owned(), json!(model.name()));
    object.insert("parameters".to_owned(), json!(model.parameter_count()?));
    object.insert("device".to_owned(), json!(target.device));
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
    /// The device that was named; `None` for none in particular.
    pub(crate) device: Option<String>,
}

impl Target {
    /// A file is a profile, all else selects a device of this machine.
    fn named(device: Option<&OsStr>) -> Result<Self, Failure> {
        let Some(device) = device else { return Ok(Target { machine: Machine::any(), device: None }) };
        let path = Path::new(device);
        let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
        let (machine, name) = if device == INTERPRETER {
            (Machine::interpreter(), INTERPRETER.to_owned())
        } else if is_json || (path.exists() && !path.is_dir()) {
            let Profile { adapter, limits, costs, .. } = Profile::load(path)?;
            (Machine { limits, costs, profile: Some(path.to_owned()) }, adapter)
        } else {
            let mut device = Device::open(Some(&device.to_string_lossy()))?;
            (Machine::of(&mut device), device.info().name.clone())
        };
        Ok(Target { machine, device: Some(name) })
    }

    /// Whether device and host share their memory, where that is known.
    pub(crate) fn unified_memory(&self) -> Option<bool> {
        self.device.as_ref().map(|_| self.machine.costs.unified_memory)
    }

    /// Which device was planned for, and whose times are predicted.
    pub(crate) fn lines(&self) -> String {
        match &self.device {
            Some(device) => device_lines(device, self.machine.profile.as_deref()),
            None => format!("{:<20} defaults, not measured on a device; --device names one", "costs"),
        }
    }
}

/// A device, and where the times come from that are predicted for it.
fn device_lines(device: &str, profile: Option<&Path>) -> String {
    let source = match profile {
        Some(path) => format!("measured, from {}", path.display()),
        None if device == INTERPRETER => "defaults: the interpreter is for checking and is not measured".to_owned(),
        None => "defaults, not measured on this device; `tightfit calibrate` does".to_owned(),
    };
    format!("{:<20} {device}\n{:<20} {source}", "device", "costs")
}

/// Writes the files that were asked for.
fn write(
    args: &PlanArgs,
    model: &Model,
    config: &Config,
    planned: &Planned,
    profile: Option<&Path>,
) -> Result<(), Failure> {
    if let Some(path) = &args.svg {
        let svg = planned.to_svg(model.name());
        keep(path, |path| Ok(files::write_whole(path, svg.as_bytes())?))?;
    }
    if let Some(path) = &args.output {
        let file = PlanFile::new(model, config, planned.plan.clone()).with_profile(profile);
        keep(path, |path| Ok(file.save(path)?))?;
    }
    Ok(())
}

/// A plan that was made before, and the profile that its times come from, if any.
pub(crate) struct Kept<'a> {
    pub(crate) path: &'a Path,
    pub(crate) profile: Option<String>,
}

/// Where the predicted times of a training come from: the device's own profile, or what its plan was made with.
pub(crate) fn profile_of<'a>(trainer: &'a Trainer, kept: Option<&'a Kept<'_>>) -> Option<&'a Path> {
    kept.map_or_else(|| trainer.profile(), |kept| kept.profile.as_deref().map(Path::new))
}

/// Prints the model and the plan before the first step.
pub(crate) fn announce(trainer: &Trainer, kept: Option<&Kept<'_>>, data: &str, output: &Output) -> Result<(), Failure> {
    let (model, device) = (trainer.model(), trainer.device_name());
    let table = trainer.plan().table().unified_memory(trainer.unified_memory());
    let profile = profile_of(trainer, kept);
    let mut device_lines = device_lines(device, profile);
    if let Some(Kept { path, .. }) = kept {
        let again = if trainer.profile() == profile { "" } else { ", not this device's: plan again for these" };
        device_lines += &format!("\n{:<20} those of the plan {}{again}", "", path.display());
    }
    output.text(trainer.summary()?.at_most(MOST_LAYERS).width(output.width()));
    output.text(format_args!("{table}\n{device_lines}\n{:<20} {data}\n", "data"));
    let mut object = describe(trainer.plan(), Some(trainer.unified_memory()));
    object.insert("event".to_owned(), json!("plan"));
    object.insert("model".to_owned(), json!(model.name()));
    object.insert("device".to_owned(), json!(device));
    object.insert("profile".to_owned(), shown_if_any(profile));
    object.insert("warnings".to_owned(), json!(trainer.warnings()?));
    output.object(&Value::Object(object));
    Ok(())
}

//! `tightfit plan`: what training takes, before anything runs.

use std::ffi::{OsStr, OsString};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use tightfit::command::{files, plural};
use tightfit::data::LoaderMemory;
use tightfit::device::AvailableMemory;
use tightfit::nn::Model;
use tightfit::plan::{DeviceClass, Planned, StepTimes, format_bytes};
use tightfit::train::{
    self, Config, CostSource, Cpu, DeviceSelector, Effort, Machine, PlanFile, Processor, Profile, Trainer,
};

use super::bytes::Budget;
use super::data::{self, DataArgs};
use super::describe::describe;
use super::explore;
use super::failure::{Failure, keep};
use super::first_use;
use super::output::{Output, shown_if_any};
use super::overwrite::{self, Kind};
use super::progress::planning;
use super::run_file::set;
use super::settings::{TrainingArgs, device_class};
use super::values::not_empty;

#[derive(Args, Debug)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    model: TrainingArgs,
    #[command(flatten)]
    data: DataArgs,

    /// Index or part of the name of a device that `tightfit devices` lists, cpu, reference, or a profile that `tightfit calibrate`
    /// wrote, here or on another machine [default: any device of --device-class]
    #[arg(long, value_name = "DEVICE", value_parser = not_empty())]
    device: Option<OsString>,

    /// Threads of the CPU, where it is planned for [default: all that may run at once]
    #[arg(long, value_name = "N", value_parser = super::values::threads)]
    threads: Option<NonZeroUsize>,

    /// Without a device: costs that are typical of such devices [default: discrete]
    #[arg(long, value_name = "CLASS", ignore_case = true, value_parser = device_class(), conflicts_with_all = ["device", "no_calibrate"])]
    device_class: Option<DeviceClass>,

    /// Does not measure a device that is used for the first time: plans for it with costs that are typical of its class
    #[arg(long)]
    no_calibrate: bool,

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

/// The device name of the reference.
const REFERENCE: &str = "reference";
/// Rows of the model summary: in larger models, layers are put together.
const MOST_LAYERS: usize = 48;

impl PlanArgs {
    pub(crate) fn model(&self) -> &OsStr {
        self.model.name()
    }

    /// What to plan for. A file is a profile, all else selects a device of this machine.
    fn target(&self, from_file: Option<&OsStr>, threads: Option<usize>, output: &Output) -> Result<Target, Failure> {
        let from_file = from_file.filter(|_| self.device_class.is_none());
        let Some(device) = self.device.as_deref().or(from_file) else {
            let machine = match self.device_class {
                Some(DeviceClass::Cpu) => Machine::with_limits(Cpu::new(threads).limits(), DeviceClass::Cpu),
                class => Machine::of_class(class.unwrap_or_default()),
            };
            return Ok(Target { machine, device: None, is_elsewhere: true });
        };
        let path = Path::new(device);
        let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
        let selector = DeviceSelector::from(&*device.to_string_lossy());
        let is_host = matches!(selector, DeviceSelector::Cpu | DeviceSelector::Reference);
        let is_elsewhere = !is_host && (is_json || (files::is_there(path) && !path.is_dir()));
        let (machine, name) = if is_elsewhere {
            let profile = Profile::load(path)?;
            let adapter = profile.adapter.clone();
            let machine = Machine::with_profile(profile, path);
            (threads.into_iter().fold(machine, Machine::on_threads), adapter)
        } else {
            let mut processor = Processor::open(&selector, threads)?;
            first_use::calibrate(&processor, self.no_calibrate, output);
            (processor.machine(), processor.name().to_owned())
        };
        Ok(Target { machine, device: Some(name), is_elsewhere })
    }
}

pub(crate) fn run(args: &PlanArgs, output: &Output) -> Result<u8, Failure> {
    let mut file = args.model.run_file()?;
    args.data.put_over(&mut file.data, &mut file.augment);
    set(&mut file.budget.threads, args.threads.as_ref());
    let (model, config) = file.resolve(None)?;
    // Of which data it is matters to the plan: how many classes there are, and whether images travel as bytes.
    let opened =
        file.data.path.as_ref().map(|_| data::open(&file, model.clone(), config.clone(), output)).transpose()?;
    let host = opened.as_ref().map(|opened| opened.memory);
    let (model, config) = opened.map_or((model, config), |opened| (opened.model, opened.config));
    let outputs = [
        ("--svg", args.svg.as_deref(), Kind::Picture),
        ("--trace", args.trace.as_deref(), Kind::Trace),
        ("--output", args.output.as_deref(), Kind::Plan),
    ];
    let inputs = [overwrite::model(args.model()), ("--device", args.device.as_deref().map(Path::new))];
    overwrite::refuse(&outputs.map(|(option, path, _)| (option, path)), &inputs, None)?;
    for (option, path, kind) in outputs {
        if let Some(path) = path {
            files::check_writable(path, 1).map_err(|error| Failure::bad_input(format!("{option} {error}")))?;
            kind.check(option, path)?;
        }
    }
    let target = args.target(file.device().map(OsStr::new), config.threads, output)?;
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
    output.text(target.lines());
    if let Some(host) = &host {
        output.text(format_args!("{:<20} {}", "host memory", host_words(host)));
    }
    write(args, &model, &config, &planned, &target.machine)?;
    for path in args.svg.iter().chain(&args.trace).chain(&args.output) {
        output.text(format_args!("written to {}", path.display()));
    }
    let mut object = describe(&planned.plan, Some(target.unified_memory()));
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

/// What to plan for.
pub(crate) struct Target {
    pub(crate) machine: Machine,
    /// The device that was named; `None` for none in particular.
    pub(crate) device: Option<String>,
    /// Whether it need not be here: there is only its profile, or its class.
    is_elsewhere: bool,
}

/// Says what a budget was taken of that nobody stated.
pub(crate) fn say_budget(available: Option<&AvailableMemory>, output: &Output) {
    if let Some(available) = available {
        output.text(format_args!("budget: {}, of {available}", format_bytes(available.budget_bytes())));
    }
}

impl Target {
    /// Whether device and host share their memory.
    pub(crate) fn unified_memory(&self) -> bool {
        self.machine.costs.unified_memory
    }

    /// What the budget is taken of, where none is stated.
    pub(crate) fn budget_source(&self, config: &Config) -> Result<Option<&AvailableMemory>, Failure> {
        if Budget::of(config) == Some(Budget::Auto) && self.is_elsewhere {
            return Err(Failure::bad_input(
                "--budget auto is what a device of this machine has free: name one by --device, or state a budget such as 4GiB",
            ));
        }
        config.budget_on(&self.machine)?;
        Ok(config.budget_source(&self.machine))
    }

    /// The file with the costs, where they were measured.
    pub(crate) fn profile(&self) -> Option<&Path> {
        self.machine.source.profile()
    }

    /// The class of devices that the costs are typical of, where they were not measured.
    pub(crate) fn class(&self) -> Option<DeviceClass> {
        class_of(Some(&self.machine.source))
    }

    /// Which device was planned for, and whose times are predicted.
    pub(crate) fn lines(&self) -> String {
        device_lines(self.device.as_deref(), Some(&self.machine.source))
    }
}

/// The class of devices that costs are typical of, where they were not measured.
pub(crate) fn class_of(source: Option<&CostSource>) -> Option<DeviceClass> {
    match source? {
        CostSource::Class(class) => Some(*class),
        CostSource::Profile { .. } => None,
    }
}

/// A device, and where the times come from that are predicted for it.
fn device_lines(device: Option<&str>, source: Option<&CostSource>) -> String {
    let costs = match source {
        Some(CostSource::Profile { path, effort: Effort::Full }) => format!("measured, from {}", path.display()),
        Some(CostSource::Profile { path, effort: Effort::Quick }) => {
            format!("measured for a few seconds, from {}; `tightfit calibrate` measures every op", path.display())
        }
        Some(CostSource::Class(class)) if device == Some(REFERENCE) => {
            format!("those of {}: the reference is for checking and is not measured", class.article())
        }
        Some(CostSource::Class(class)) if device.is_some() => {
            format!("typical of {}, not measured on this device: `tightfit calibrate` measures it", class.article())
        }
        Some(CostSource::Class(class)) => {
            format!("typical of {}; --device or --device-class names another", class.article())
        }
        None => "not known".to_owned(),
    };
    let device = device.map_or_else(String::new, |device| format!("{:<20} {device}\n", "device"));
    format!("{device}{:<20} {costs}", "costs")
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
    output.text(format_args!("{table}\n{device_lines}\n{:<20} {data}", "data"));
    output.text(format_args!("{:<20} {}\n", "host memory", host_words(host)));
    let mut object = describe(trainer.plan(), Some(trainer.unified_memory()));
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

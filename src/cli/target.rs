//! What is planned for: a device of this machine, one that was measured elsewhere, or a class of devices.

use std::ffi::{OsStr, OsString};
use std::num::NonZeroUsize;
use std::path::Path;

use clap::Args;
use tightfit::command::files;
use tightfit::data::LoaderMemory;
use tightfit::device::AvailableMemory;
use tightfit::nn::Model;
use tightfit::plan::{DeviceClass, format_bytes};
use tightfit::train::{Config, CostSource, Cpu, DeviceSelector, Effort, Machine, Processor, Profile};

use super::bytes::Budget;
use super::data::{self, DataArgs};
use super::failure::Failure;
use super::first_use;
use super::output::Output;
use super::run_file::{RunFile, set};
use super::settings::{TrainingArgs, device_class};
use super::values::not_empty;

/// The device name of the reference.
const REFERENCE: &str = "reference";

/// What to plan for.
#[derive(Args, Debug)]
pub(crate) struct TargetArgs {
    /// Index or part of the name of a device that `tightfit devices` lists, cpu, reference, or a profile that `tightfit calibrate`
    /// wrote, here or on another machine [default: any device of --device-class]
    #[arg(long, value_name = "DEVICE", value_parser = not_empty())]
    device: Option<OsString>,

    /// Threads of the CPU, where it is planned for [default: all that may run at once]
    #[arg(long, value_name = "N", value_parser = super::values::threads)]
    pub(crate) threads: Option<NonZeroUsize>,

    /// Without a device: costs that are typical of such devices [default: discrete]
    #[arg(long, value_name = "CLASS", ignore_case = true, value_parser = device_class(), conflicts_with_all = ["device", "no_calibrate"])]
    device_class: Option<DeviceClass>,

    /// Does not measure a device that is used for the first time: plans for it with costs that are typical of its class
    #[arg(long)]
    no_calibrate: bool,
}

impl TargetArgs {
    /// The file that it is in, where it is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.device.as_deref().map(Path::new)
    }

    /// What is asked of a model, its data and a run file together.
    pub(crate) fn asked(&self, model: &TrainingArgs, data: &DataArgs, output: &Output) -> Result<Asked, Failure> {
        let mut file = model.run_file()?;
        data.put_over(&mut file.data, &mut file.augment);
        set(&mut file.budget.threads, self.threads.as_ref());
        let (model, config) = file.resolve(None)?;
        // Of which data it is matters to the plan: how many classes there are, and whether images travel as bytes.
        let opened =
            file.data.path.as_ref().map(|_| data::open(&file, model.clone(), config.clone(), output)).transpose()?;
        let host = opened.as_ref().map(|opened| opened.memory);
        let (model, config) = opened.map_or((model, config), |opened| (opened.model, opened.config));
        Ok(Asked { file, model, config, host })
    }

    /// What to plan for. A file is a profile, all else selects a device of this machine.
    pub(crate) fn find(
        &self,
        from_file: Option<&OsStr>,
        threads: Option<usize>,
        output: &Output,
    ) -> Result<Target, Failure> {
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

/// A model with its settings, as its data has them.
pub(crate) struct Asked {
    pub(crate) file: RunFile,
    pub(crate) model: Model,
    pub(crate) config: Config,
    /// What the data takes of the host's memory, where there is some.
    pub(crate) host: Option<LoaderMemory>,
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
pub(crate) fn device_lines(device: Option<&str>, source: Option<&CostSource>) -> String {
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

//! What a plan is made for.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::calibrate::Effort;
use super::device_profile::Profile;
use crate::device::{AvailableMemory, Device};
use crate::error::DataError;
use crate::exec::Cpu;
use crate::plan::{CostModel, DeviceClass, Limits};

/// Where costs come from, and with them the times that a plan predicts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CostSource {
    /// They are typical of this class of devices, and were not measured on the device itself.
    Class(DeviceClass),
    /// They were measured.
    Profile {
        /// The file with them.
        path: PathBuf,
        /// How much was measured.
        effort: Effort,
    },
}

impl CostSource {
    /// The file with costs that were measured.
    pub fn profile(&self) -> Option<&Path> {
        match self {
            CostSource::Class(_) => None,
            CostSource::Profile { path, .. } => Some(path),
        }
    }

    /// The costs, on so many threads of the CPU where that is what runs.
    pub(super) fn costs(&self, threads: Option<usize>) -> Result<CostModel, DataError> {
        match self {
            CostSource::Class(class) => Ok(CostModel::of_class_on(*class, threads)),
            CostSource::Profile { path, .. } => Ok(Profile::load(path)?.costs_on(threads)),
        }
    }
}

/// What a plan is made for: limits and costs, and where the device is at hand what it has free.
///
/// ```
/// use tightfit::plan::{DeviceClass, Limits};
/// use tightfit::train::{CostSource, Machine};
///
/// // A discrete GPU that binds at most 128 MiB for a tensor.
/// let limits = Limits { max_binding_bytes: 128 << 20, ..Limits::any_device() };
/// let machine = Machine::with_limits(limits, DeviceClass::Discrete);
/// assert_eq!(machine.source, CostSource::Class(DeviceClass::Discrete));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// What it allows.
    pub limits: Limits,
    /// What things cost on it.
    pub costs: CostModel,
    /// Where the costs come from.
    pub source: CostSource,
    /// What it had free when this was made, of which a budget is taken where none is stated; `None` where that is not known.
    pub available: Option<AvailableMemory>,
}

impl Machine {
    /// No device in particular: what every device allows, and costs that are typical of a class. Of CPUs it is one with as many threads as
    /// this machine's.
    pub fn of_class(class: DeviceClass) -> Self {
        let limits = match class {
            DeviceClass::Cpu => Cpu::new(None).limits(),
            _ => Limits::any_device(),
        };
        Machine::with_limits(limits, class)
    }

    /// The reference on the CPU, whose times are not predicted: costs are those of software devices.
    pub fn reference() -> Self {
        let available = AvailableMemory::of_host();
        Machine { available, ..Machine::with_limits(Limits::default(), DeviceClass::Software) }
    }

    /// The CPU with native code, with the costs that were measured on it where there is a profile, else those of its class.
    pub fn of_cpu(cpu: &Cpu) -> Self {
        let (limits, available) = (cpu.limits(), AvailableMemory::of_host());
        // Threads beyond the cores make nothing quicker.
        let threads = Some(cpu.cores());
        let (costs, source) = match Profile::find(&cpu.info()) {
            Some((profile, path)) => {
                let source = CostSource::Profile { path, effort: profile.effort };
                (CostModel { target: None, unified_memory: true, ..profile.costs_on(threads) }, source)
            }
            None => (CostModel::of_class_on(DeviceClass::Cpu, threads), CostSource::Class(DeviceClass::Cpu)),
        };
        Machine { limits, costs, source, available }
    }

    /// These limits, with costs that are typical of a class.
    pub fn with_limits(limits: Limits, class: DeviceClass) -> Self {
        let costs = CostModel::of_class_on(class, limits.threads);
        Machine { limits, costs, source: CostSource::Class(class), available: None }
    }

    /// An open device, with the costs that were measured on it where there is a profile, else those of its class. With a profile
    /// the device takes the tiles that were found to be the quickest. A profile that is of no use is a warning, as
    /// [`Profile::find`] says.
    pub fn of(device: &mut Device) -> Self {
        let mut machine = Machine::with_limits(device.limits(), DeviceClass::of(&device.info().device_type));
        if let Some((profile, path)) = Profile::find(device.info()) {
            machine.costs = profile.costs;
            // Those of another family say nothing of this one.
            if let Some(target) = machine.costs.target.filter(|target| target.family == device.target().family) {
                device.set_tiles(target.tiles);
            }
            machine.source = CostSource::Profile { path, effort: profile.effort };
        }
        // What the device says itself is right in any case.
        machine.costs.target = Some(device.target());
        machine.costs.unified_memory = device.info().unified_memory;
        machine.available = device.available_memory();
        machine
    }

    /// A device that need not be here, from its profile.
    ///
    /// # Errors
    /// As [`Profile::load`].
    pub fn from_profile(path: &Path) -> Result<Self, DataError> {
        Ok(Machine::with_profile(Profile::load(path)?, path))
    }

    /// As [`Machine::from_profile`], of a profile that was read from this file.
    pub fn with_profile(profile: Profile, path: &Path) -> Self {
        let Profile { limits, costs, effort, .. } = profile;
        let source = CostSource::Profile { path: path.to_owned(), effort };
        Machine { limits, costs, source, available: None }
    }

    /// The same with other threads, where it is a CPU.
    #[must_use]
    pub fn on_threads(mut self, threads: usize) -> Self {
        if let Some(measured) = self.limits.threads {
            self.costs = self.costs.on_threads(measured, threads);
            self.limits.threads = Some(threads);
        }
        self
    }
}

//! What runs a training: a GPU, the CPU with native code, or the reference on the CPU.

use super::machine::Machine;
use crate::device::{AdapterInfo, AvailableMemory, Device, DeviceSelector};
use crate::error::DeviceError;
use crate::exec::{Cpu, CpuExecutor, Executor, GpuExecutor};
use crate::plan::Planned;

/// What runs a training.
///
/// ```
/// use tightfit::train::{DeviceSelector, Processor};
///
/// let cpu = Processor::open(&DeviceSelector::Cpu, Some(2))?;
/// assert_eq!(cpu.name(), "cpu");
/// # Ok::<_, tightfit::error::DeviceError>(())
/// ```
#[derive(Debug)]
pub enum Processor {
    /// Kernels on an open device.
    Gpu(Box<Device>),
    /// Native code on the cores of the CPU.
    Cpu(Cpu),
    /// The ops' twins in plain Rust, which check the others.
    Reference,
}

impl Processor {
    /// Opens what is selected. The best is a real GPU, else the CPU: drivers that run kernels on the CPU are slower than its native
    /// code, and run where they are selected by name. Of the CPU, so many threads work; as many as it may run at once where
    /// nothing is said.
    ///
    /// # Errors
    /// Where there is no such device, or it does not open.
    pub fn open(selector: &DeviceSelector, threads: Option<usize>) -> Result<Self, DeviceError> {
        Ok(match selector {
            DeviceSelector::Cpu => Processor::Cpu(Cpu::new(threads)),
            DeviceSelector::Reference => Processor::Reference,
            DeviceSelector::Best => match Processor::best_gpu() {
                Some(gpu) => Processor::Gpu(Box::new(Device::open(Some(&gpu.index.to_string()))?)),
                None => Processor::Cpu(Cpu::new(threads)),
            },
            DeviceSelector::Index(_) | DeviceSelector::Name(_) => {
                Processor::Gpu(Box::new(Device::open(selector.adapter().as_deref())?))
            }
        })
    }

    /// The GPU that is taken where nothing is selected; `None` where there is none but drivers that run kernels on the CPU.
    pub fn best_gpu() -> Option<AdapterInfo> {
        crate::device::best_gpu()
    }

    /// The adapter that [`open`](Self::open) would open, without opening it; `None` where that is none.
    pub fn find_gpu(selector: &DeviceSelector) -> Option<AdapterInfo> {
        match selector {
            DeviceSelector::Best => Processor::best_gpu(),
            DeviceSelector::Cpu | DeviceSelector::Reference => None,
            DeviceSelector::Index(_) | DeviceSelector::Name(_) => {
                crate::device::find(selector.adapter().as_deref()).ok()
            }
        }
    }

    /// The name, for reports.
    pub fn name(&self) -> &str {
        match self {
            Processor::Gpu(device) => &device.info().name,
            Processor::Cpu(_) => "cpu",
            Processor::Reference => "reference",
        }
    }

    /// What is known of it, by which its profile is found; `None` of the reference, whose times are not predicted.
    pub fn info(&self) -> Option<AdapterInfo> {
        match self {
            Processor::Gpu(device) => Some(device.info().clone()),
            Processor::Cpu(cpu) => Some(cpu.info()),
            Processor::Reference => None,
        }
    }

    /// Whether it uses the host's memory, so that moving data to the host frees nothing.
    pub fn unified_memory(&self) -> bool {
        match self {
            Processor::Gpu(device) => device.info().unified_memory,
            Processor::Cpu(_) | Processor::Reference => true,
        }
    }

    /// What it has free.
    pub fn available_memory(&self) -> Option<AvailableMemory> {
        match self {
            Processor::Gpu(device) => device.available_memory(),
            Processor::Cpu(_) | Processor::Reference => AvailableMemory::of_host(),
        }
    }

    /// What it allows and what things cost on it: see [`Machine::of`].
    pub fn machine(&mut self) -> Machine {
        match self {
            Processor::Gpu(device) => Machine::of(device),
            Processor::Cpu(cpu) => Machine::of_cpu(cpu),
            Processor::Reference => Machine::reference(),
        }
    }

    /// An executor of a plan that was made for it.
    ///
    /// # Errors
    /// Where memory is short or the device fails.
    pub fn executor(self, planned: &Planned) -> Result<Box<dyn Executor>, DeviceError> {
        Ok(match self {
            Processor::Gpu(device) => Box::new(GpuExecutor::new(*device, planned)?),
            Processor::Cpu(_) | Processor::Reference => Box::new(CpuExecutor::new(planned)?),
        })
    }
}

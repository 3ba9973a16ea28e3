//! Where a trainer has its executors from: a device that can be opened again.

use super::machine::Machine;
use crate::device::{Device, DeviceSelector};
use crate::error::DeviceError;
use crate::exec::{CpuExecutor, Executor, GpuExecutor};
use crate::plan::Planned;

/// Opens a device and makes executors on it: once where a training begins, and again where memory went or the device was lost.
pub trait Backend {
    /// Opens the device: what it allows and what things cost on it, and whether it has no memory of its own.
    ///
    /// # Errors
    /// Where there is no such device, or it does not open.
    fn open(&mut self) -> Result<(Machine, bool), DeviceError>;

    /// An executor of a plan that was made for the device as it was opened last. All else that this made before is gone by then.
    ///
    /// # Errors
    /// Where memory is short or the device fails.
    fn executor(&mut self, planned: &Planned) -> Result<Box<dyn Executor>, DeviceError>;
}

/// The devices of this machine.
#[derive(Debug)]
pub(super) struct LocalDevice {
    selector: DeviceSelector,
    opened: Option<Device>,
}

impl LocalDevice {
    pub(super) fn new(selector: DeviceSelector) -> Self {
        LocalDevice { selector, opened: None }
    }
}

impl Backend for LocalDevice {
    fn open(&mut self) -> Result<(Machine, bool), DeviceError> {
        // The one before must be gone, with what it holds.
        self.opened = None;
        if self.selector == DeviceSelector::Cpu {
            return Ok((Machine::interpreter(), true));
        }
        let mut device = Device::open(self.selector.adapter().as_deref())?;
        let machine = Machine::of(&mut device);
        let unified_memory = device.info().unified_memory;
        self.opened = Some(device);
        Ok((machine, unified_memory))
    }

    fn executor(&mut self, planned: &Planned) -> Result<Box<dyn Executor>, DeviceError> {
        if self.selector == DeviceSelector::Cpu {
            return Ok(Box::new(CpuExecutor::new(planned)?));
        }
        let device = match self.opened.take() {
            Some(device) => device,
            None => Device::open(self.selector.adapter().as_deref())?,
        };
        Ok(Box::new(GpuExecutor::new(device, planned)?))
    }
}

//! Where a trainer has its executors from: a device that can be opened again.

use super::machine::Machine;
use super::processor::Processor;
use crate::device::DeviceSelector;
use crate::error::DeviceError;
use crate::exec::Executor;
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
    /// Threads of the CPU, where it trains.
    threads: Option<usize>,
    opened: Option<Processor>,
}

impl LocalDevice {
    pub(super) fn new(selector: DeviceSelector, threads: Option<usize>) -> Self {
        LocalDevice { selector, threads, opened: None }
    }
}

impl Backend for LocalDevice {
    fn open(&mut self) -> Result<(Machine, bool), DeviceError> {
        // The one before must be gone, with what it holds.
        self.opened = None;
        let mut processor = Processor::open(&self.selector, self.threads)?;
        let machine = processor.machine();
        let unified_memory = processor.unified_memory();
        self.opened = Some(processor);
        Ok((machine, unified_memory))
    }

    fn executor(&mut self, planned: &Planned) -> Result<Box<dyn Executor>, DeviceError> {
        let processor = match self.opened.take() {
            Some(processor) => processor,
            None => Processor::open(&self.selector, self.threads)?,
        };
        processor.executor(planned)
    }
}

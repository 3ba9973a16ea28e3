//! Executors run a [`Plan`](crate::plan::Plan), command by command: [`GpuExecutor`] on a device, [`CpuExecutor`] on the CPU, with
//! native code or as the reference. They decide nothing.

pub(crate) mod cpu;
#[cfg(test)]
mod cpu_tests;
mod gpu;
mod launch;
pub(crate) mod measure;
mod prepared;
mod profile;
mod released;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod single;

pub use cpu::{Cpu, CpuExecutor};
pub use gpu::GpuExecutor;
pub use profile::{Clock, NodeTime};
pub(crate) use released::Released;

use crate::device::Compiled;
use crate::error::{DeviceError, HostMemory};
use crate::graph::{Graph, Phase};
use crate::tensor::ValueId;

/// Runs the programs of one plan. Every buffer is created when the executor is, none later.
pub trait Executor {
    /// The device's name, for reports.
    fn device_name(&self) -> &str;

    /// Overwrites a persistent value. All persistent values start as zeros.
    ///
    /// # Errors
    /// Where the device fails. `data` must have the value's size.
    fn write(&mut self, name: &str, data: &[u8]) -> Result<(), DeviceError>;

    /// Shows a persistent value piece by piece, after all work so far is done: takes no memory of its size.
    ///
    /// # Errors
    /// Where the device fails.
    fn read_pieces(&mut self, name: &str, visit: &mut dyn FnMut(&[u8])) -> Result<(), DeviceError>;

    /// Reads a persistent value, after all work so far is done.
    ///
    /// # Errors
    /// Where memory is short or the device fails.
    fn read(&mut self, name: &str) -> Result<Vec<u8>, DeviceError> {
        let (mut bytes, mut missing) = (Vec::new(), None);
        self.read_pieces(name, &mut |piece| match bytes.try_reserve(piece.len()) {
            Ok(()) => bytes.extend_from_slice(piece),
            Err(_) => missing = Some(HostMemory { size_bytes: piece.len() as u64 }),
        })?;
        missing.map_or(Ok(bytes), |missing| Err(missing.into()))
    }

    /// Gives a program its inputs, by name: every input of its graph. The next launch takes them; until then another program
    /// may still be running.
    ///
    /// # Errors
    /// Where the device fails.
    fn upload(&mut self, program: usize, inputs: &[(&str, &[u8])]) -> Result<(), DeviceError>;

    /// Runs a program on the inputs that were uploaded last, and then reads persistent values for
    /// [`collect`](Executor::collect). May return before it is done.
    ///
    /// # Errors
    /// Where the device fails.
    fn launch(&mut self, program: usize, read: &[&str]) -> Result<(), DeviceError>;

    /// The values that the last launch was to read, once. Waits for it.
    ///
    /// # Errors
    /// Where the device fails.
    fn collect(&mut self) -> Result<Vec<Vec<u8>>, DeviceError>;

    /// Uploads inputs and runs a program on them. May return before it is done.
    ///
    /// # Errors
    /// Where the device fails.
    fn run(&mut self, program: usize, inputs: &[(&str, &[u8])]) -> Result<(), DeviceError> {
        self.upload(program, inputs)?;
        self.launch(program, &[])
    }

    /// The values of role `Output` of the program that ran last, in the order of their ids.
    ///
    /// # Errors
    /// Where the device fails.
    fn outputs(&mut self, program: usize) -> Result<Vec<Vec<u8>>, DeviceError>;

    /// Runs the nodes of a program one by one, those of phases after `until` left out, showing each node's outputs as they are made;
    /// stops when `visit` returns false. For finding where a value stops being finite. Changes no persistent value but
    /// accumulators: nodes that would are left out, too.
    ///
    /// # Errors
    /// Where the device fails.
    fn inspect(
        &mut self,
        program: usize,
        inputs: &[(&str, &[u8])],
        until: Phase,
        visit: &mut dyn FnMut(&Graph, ValueId, &[u8]) -> bool,
    ) -> Result<(), DeviceError>;

    /// Runs a program as [`launch`](Self::launch) does, with the same results, and waits for it. Returns what the nodes took, in
    /// the order in which they ran. Takes memory beyond the plan while it runs.
    ///
    /// # Errors
    /// Where memory is short or the device fails.
    fn profile(&mut self, program: usize, read: &[&str]) -> Result<Vec<NodeTime>, DeviceError>;

    /// Where the times of [`profile`](Self::profile) come from.
    fn clock(&self) -> Clock;

    /// Whether the plan's arenas are memory of this process.
    fn is_in_process(&self) -> bool;

    /// Memory of the host that a run takes besides, and that must be left for it.
    fn working_bytes(&self) -> u64 {
        0
    }

    /// What was compiled before it was needed.
    fn compiled(&self) -> Compiled {
        Compiled::default()
    }

    /// The most bytes that were on the device at once so far, by the ledger: baseline, arenas and staging.
    fn peak_bytes(&self) -> u64;
}

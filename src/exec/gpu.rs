//! The executor for devices: creates what the plan names, binds every launch once, and replays the programs.

mod arenas;
mod compile;
mod profile;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

pub(super) use arenas::{Arena, buffer};
use arenas::{clear, create_arenas, host_bytes};

use super::prepared::{Draft, Prepared, Step};
use super::{Clock, Executor, NodeTime};
use crate::device::{ALIGNMENT_BYTES, Compiled, Device, Range as BufferRange, Readback, UploadRing};
use crate::error::DeviceError;
use crate::graph::{Graph, Pass, Phase, Role};
use crate::plan::{Allocation, Limits, Planned};
use crate::tensor::ValueId;

/// Larger buffers are legal on many devices, but binding and mapping them is where drivers fail.
const MAX_ARENA_BYTES: u64 = 1 << 30;

impl Device {
    /// What the planner must respect on this device.
    pub fn limits(&self) -> Limits {
        let floor = |bytes: u64| bytes / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
        let max_buffer_bytes = floor(self.info().max_buffer_bytes.min(MAX_ARENA_BYTES));
        Limits {
            max_buffer_bytes,
            max_binding_bytes: floor(self.info().max_binding_bytes).min(max_buffer_bytes),
            alignment_bytes: self.alignment_bytes(),
            baseline_bytes: self.baseline_bytes(),
            threads: None,
        }
    }
}

/// Runs a plan on a device.
#[derive(Debug)]
pub struct GpuExecutor {
    device: Device,
    arenas: Vec<Arena>,
    upload: UploadRing,
    readback: Readback,
    persistent: BTreeMap<String, Tensor>,
    programs: Vec<Prepared>,
    /// Of which programs all kernels are compiled.
    compiled: Vec<bool>,
    /// The persistent values that the last launch was to read.
    wanted: Vec<String>,
    /// The first part of the program that was uploaded to last, if it is to be launched next.
    recorded: Option<Recorded>,
}

/// Launches that wait to be submitted.
#[derive(Debug)]
struct Recorded {
    program: usize,
    steps: Range<usize>,
    commands: wgpu::CommandBuffer,
}

/// A value's data: its place and its size without padding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tensor {
    pub(super) place: Allocation,
    pub(super) size_bytes: u64,
}

pub(super) fn invalid(reason: impl Into<String>) -> DeviceError {
    DeviceError::Validation { label: "plan".to_owned(), reason: reason.into() }
}

impl GpuExecutor {
    /// Creates every buffer and compiles every kernel that the plan needs. Persistent values are zeros.
    ///
    /// # Errors
    /// Where memory is short, a kernel does not compile, the plan does not belong to its graphs, or the device fails.
    pub fn new(device: Device, planned: &Planned) -> Result<Self, DeviceError> {
        let plan = &planned.plan;
        if plan.programs.len() != planned.graphs.len() {
            return Err(invalid(format!("{} graphs for {} programs", planned.graphs.len(), plan.programs.len())));
        }
        let arenas = create_arenas(&device, plan)?;
        let staging = plan.staging;
        let upload = UploadRing::new(&device, staging.upload_slots as usize, staging.upload_slot_bytes)?;
        let readback = Readback::new(&device, staging.readback_bytes)?;
        let drafts = plan.programs.iter().zip(&planned.graphs);
        let drafts = drafts.map(|(program, graph)| Draft::new(&arenas, program, graph));
        let programs = compile::bind(&device, &arenas, drafts.collect::<Result<_, _>>()?)?;
        let persistent = plan
            .persistent
            .iter()
            .map(|value| (value.name.clone(), Tensor { place: value.place, size_bytes: value.desc.size_bytes() }));
        let persistent = persistent.collect();
        let mut executor = GpuExecutor {
            compiled: vec![false; programs.len()],
            arenas,
            upload,
            readback,
            persistent,
            programs,
            wanted: Vec::new(),
            recorded: None,
            device,
        };
        // Evaluation has few kernels of its own, which can wait until it is asked for.
        let trains = plan.programs.iter().any(|program| program.pass != Pass::Evaluate);
        let first = |&i: &usize| !trains || plan.programs[i].pass != Pass::Evaluate;
        executor.compile(&(0..plan.programs.len()).filter(first).collect::<Vec<_>>())?;
        // After compiling, whose memory is free again by now.
        clear(&executor.device, &executor.arenas)?;
        Ok(executor)
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    fn persistent(&self, name: &str) -> Result<Tensor, DeviceError> {
        let found = self.persistent.get(name).copied();
        found.ok_or_else(|| invalid(format!("it has no persistent value `{name}`")))
    }

    fn program(&self, program: usize) -> Result<&Prepared, DeviceError> {
        self.programs.get(program).ok_or_else(|| invalid(format!("it has no program {program}")))
    }

    fn read_tensors(&mut self, tensors: &[Tensor]) -> Result<Vec<Vec<u8>>, DeviceError> {
        self.readback.read(&self.device, &ranges(&self.arenas, tensors)?)
    }

    /// Puts data into the upload ring; the next submission takes it along.
    fn stage(&mut self, tensor: Tensor, data: &[u8]) -> Result<(), DeviceError> {
        let buffer = buffer(&self.arenas, tensor.place)?;
        self.upload.write(&self.device, buffer, tensor.place.offset_bytes, data)
    }

    /// Does one command that moves data between host and device. All launches before it have been submitted.
    fn transfer(&mut self, program: usize, step: usize) -> Result<(), DeviceError> {
        match self.programs[program].steps[step] {
            Step::Dispatch { .. } => Ok(()),
            Step::Offload { from, to, .. } => {
                let data = self.read_tensors(&[from])?.swap_remove(0);
                host_bytes(&mut self.arenas, to, data.len())?.copy_from_slice(&data);
                Ok(())
            }
            Step::Prefetch { from, to } => {
                let data = host_bytes(&mut self.arenas, from, to.size_bytes as usize)?.to_vec();
                self.stage(to, &data)
            }
        }
    }

    /// Puts a program's inputs into the upload ring; the next submission takes them along.
    fn stage_inputs(&mut self, program: usize, inputs: &[(&str, &[u8])]) -> Result<(), DeviceError> {
        let expected = &self.program(program)?.inputs;
        if let Some(name) = expected.keys().find(|name| !inputs.iter().any(|(given, _)| given == name)) {
            return Err(invalid(format!("input `{name}` of program {program} was not given")));
        }
        for &(name, data) in inputs {
            let tensor = self.programs[program].inputs.get(name).copied();
            let tensor = tensor.ok_or_else(|| invalid(format!("program {program} has no input `{name}`")))?;
            check_size(name, tensor, data)?;
            self.stage(tensor, data)?;
        }
        Ok(())
    }

    /// Goes through a program: has the launches between two moves of data submitted, in parts where that is much work, and
    /// moves the data. The last part ends where the program does.
    fn replay(
        &mut self,
        program: usize,
        mut submit: impl FnMut(&mut Self, Range<usize>) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        for number in 0..self.programs[program].parts.len() {
            let part = self.programs[program].parts[number].clone();
            let end = part.end;
            submit(self, part)?;
            if end < self.programs[program].steps.len() {
                self.transfer(program, end)?;
            }
        }
        Ok(())
    }

    /// Records the launches of these steps in one pass.
    fn record(&self, encoder: &mut wgpu::CommandEncoder, program: usize, steps: Range<usize>) {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        for step in &self.programs[program].steps[steps] {
            if let Step::Dispatch { launches, .. } = step {
                launches.iter().for_each(|launch| launch.record(&mut pass));
            }
        }
    }

    /// Submits uploads that wait, then the launches of these steps, then copies of these ranges for [`Executor::collect`]
    /// where they fit the readback buffer.
    fn submit_steps(&mut self, program: usize, steps: Range<usize>, read: &[Tensor]) -> Result<(), DeviceError> {
        let recorded = self.recorded.take().filter(|recorded| recorded.program == program && recorded.steps == steps);
        let mut commands = Vec::new();
        let mut encoder = self.device.encoder();
        self.upload.encode(&mut encoder);
        if let Some(recorded) = recorded {
            commands.extend([encoder.finish(), recorded.commands]);
            encoder = self.device.encoder();
        } else {
            self.record(&mut encoder, program, steps);
        }
        self.readback.encode(&self.device, &mut encoder, &ranges(&self.arenas, read)?)?;
        commands.push(encoder.finish());
        let submission = self.device.submit_recorded(commands)?;
        self.upload.submitted(&submission);
        self.readback.submitted(submission);
        Ok(())
    }
}

fn check_size(name: &str, tensor: Tensor, data: &[u8]) -> Result<(), DeviceError> {
    if data.len() as u64 == tensor.size_bytes {
        return Ok(());
    }
    Err(invalid(format!("`{name}` has {} bytes, {} were given", tensor.size_bytes, data.len())))
}

/// Where tensors on the device are to be read.
fn ranges<'a>(arenas: &'a [Arena], tensors: &[Tensor]) -> Result<Vec<BufferRange<'a>>, DeviceError> {
    let range = |tensor: &Tensor| {
        let buffer = buffer(arenas, tensor.place)?;
        Ok(BufferRange { buffer, offset_bytes: tensor.place.offset_bytes, size_bytes: tensor.size_bytes })
    };
    tensors.iter().map(range).collect()
}

impl Executor for GpuExecutor {
    fn device_name(&self) -> &str {
        &self.device.info().name
    }

    fn write(&mut self, name: &str, data: &[u8]) -> Result<(), DeviceError> {
        let tensor = self.persistent(name)?;
        check_size(name, tensor, data)?;
        if let Ok(bytes) = host_bytes(&mut self.arenas, tensor.place, data.len()) {
            bytes.copy_from_slice(data);
            return Ok(());
        }
        self.stage(tensor, data)?;
        self.upload.flush(&self.device)
    }

    fn read_pieces(&mut self, name: &str, visit: &mut dyn FnMut(&[u8])) -> Result<(), DeviceError> {
        let tensor = self.persistent(name)?;
        if let Ok(bytes) = host_bytes(&mut self.arenas, tensor.place, tensor.size_bytes as usize) {
            visit(bytes);
            return Ok(());
        }
        let ranges = ranges(&self.arenas, &[tensor])?;
        self.readback.read_pieces(&self.device, &ranges, &mut |_, piece| visit(piece))
    }

    fn upload(&mut self, program: usize, inputs: &[(&str, &[u8])]) -> Result<(), DeviceError> {
        if self.compiled.get(program) == Some(&false) {
            self.compile(&[program])?;
        }
        self.stage_inputs(program, inputs)?;
        // While the device is still at work, so that it need not wait for this afterwards.
        let steps = self.programs[program].parts[0].clone();
        let mut encoder = self.device.encoder();
        self.record(&mut encoder, program, steps.clone());
        self.recorded = Some(Recorded { program, steps, commands: encoder.finish() });
        Ok(())
    }

    fn launch(&mut self, program: usize, read: &[&str]) -> Result<(), DeviceError> {
        self.wanted = read.iter().map(|&name| name.to_owned()).collect();
        let read = read.iter().map(|name| self.persistent(name)).collect::<Result<Vec<_>, _>>()?;
        // Values in the host tier are there to read at any time.
        let on_device = read.iter().all(|tensor| buffer(&self.arenas, tensor.place).is_ok());
        let read = if on_device { &read[..] } else { &[] };
        let end = self.program(program)?.steps.len();
        self.replay(program, |executor, steps| {
            let read = if steps.end == end { read } else { &[] };
            executor.submit_steps(program, steps, read)
        })
    }

    fn collect(&mut self) -> Result<Vec<Vec<u8>>, DeviceError> {
        let wanted = std::mem::take(&mut self.wanted);
        match self.readback.take(&self.device)? {
            Some(contents) => Ok(contents),
            None => wanted.iter().map(|name| self.read(name)).collect(),
        }
    }

    fn outputs(&mut self, program: usize) -> Result<Vec<Vec<u8>>, DeviceError> {
        let tensors = self.program(program)?.outputs.clone();
        self.read_tensors(&tensors)
    }

    fn inspect(
        &mut self,
        program: usize,
        inputs: &[(&str, &[u8])],
        until: Phase,
        visit: &mut dyn FnMut(&Graph, ValueId, &[u8]) -> bool,
    ) -> Result<(), DeviceError> {
        self.stage_inputs(program, inputs)?;
        let mut seen = BTreeSet::new();
        let mut made: BTreeSet<ValueId> = self.programs[program].graph.value_ids().collect();
        made.retain(|&id| self.programs[program].graph.value(id).producer.is_none());
        for at in 0..self.programs[program].steps.len() {
            let prepared = &self.programs[program];
            let (id, tensors) = match &prepared.steps[at] {
                Step::Dispatch { node, outputs, .. } => (*node, outputs.clone()),
                // A value that was not made has nothing to move.
                Step::Offload { value, .. } if !made.contains(value) => continue,
                _ => {
                    self.submit_steps(program, at..at, &[])?;
                    self.transfer(program, at)?;
                    continue;
                }
            };
            let node = prepared.graph.node(id);
            let keeps_training_state = node.op.mutates().iter().all(|&i| {
                let role = prepared.graph.value(node.inputs[i]).role;
                role == Role::Accumulator || !role.is_persistent()
            });
            if node.phase > until || !keeps_training_state {
                continue;
            }
            let outputs = node.outputs.clone();
            made.extend(&outputs);
            self.submit_steps(program, at..at + 1, &[])?;
            if !seen.insert(id) {
                continue;
            }
            let contents = self.read_tensors(&tensors)?;
            for (&output, data) in outputs.iter().zip(&contents) {
                if !visit(&self.programs[program].graph, output, data) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn profile(&mut self, program: usize, read: &[&str]) -> Result<Vec<NodeTime>, DeviceError> {
        match self.clock() {
            Clock::Timestamps => self.profile_by_timestamps(program, read),
            _ => self.profile_by_stopwatch(program, read),
        }
    }

    fn clock(&self) -> Clock {
        if self.device.has_timestamps() { Clock::Timestamps } else { Clock::Stopwatch }
    }

    fn peak_bytes(&self) -> u64 {
        self.device.ledger().peak_bytes()
    }

    fn is_in_process(&self) -> bool {
        self.device.info().device_type == "cpu"
    }

    fn compiled(&self) -> Compiled {
        self.device.compiled()
    }
}

#[cfg(test)]
#[path = "gpu_tests.rs"]
mod tests;

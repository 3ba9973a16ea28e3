//! The executor for devices: creates what the plan names, binds every launch once, and replays the programs.

mod arenas;
mod profile;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use arenas::{Arena, buffer, check_place, create_arenas, host_bytes};

use super::launch::{Launch, Location, access, storage_type};
use super::{Clock, Executor, NodeTime};
use crate::device::{ALIGNMENT_BYTES, Device, Range as BufferRange, Readback, UploadRing};
use crate::error::DeviceError;
use crate::graph::{Graph, Phase, Role};
use crate::ops::{Cost, Slot};
use crate::plan::{Command, Limits, Place, Planned, Program};
use crate::tensor::{NodeId, TensorDesc, ValueId};

/// Larger buffers are legal on many devices, but binding and mapping them is where drivers fail.
const MAX_ARENA_BYTES: u64 = 1 << 30;

/// Work of one submission: an operating system resets a GPU that is busy for seconds with one. Far more than a step of
/// a small model, and about a second on a slow integrated GPU.
const MAX_SUBMISSION: Cost = Cost { flops: 200_000_000_000, bytes_moved: 20_000_000_000 };

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
}

/// A value's data: its place and its size without padding.
#[derive(Clone, Copy, Debug)]
struct Tensor {
    place: Place,
    size_bytes: u64,
}

/// A program with every launch bound.
#[derive(Debug)]
struct Prepared {
    graph: Graph,
    steps: Vec<Step>,
    inputs: BTreeMap<String, Tensor>,
    outputs: Vec<Tensor>,
}

/// One command of the plan that takes time.
#[derive(Debug)]
enum Step {
    Dispatch {
        node: NodeId,
        launches: Vec<Launch>,
        cost: Cost,
        /// Where the node's outputs are.
        outputs: Vec<Tensor>,
    },
    Offload {
        value: ValueId,
        from: Tensor,
        to: Place,
    },
    Prefetch {
        from: Place,
        to: Tensor,
    },
}

fn invalid(reason: impl Into<String>) -> DeviceError {
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
        let programs = plan
            .programs
            .iter()
            .zip(&planned.graphs)
            .map(|(program, graph)| Prepared::new(&device, &arenas, program, graph))
            .collect::<Result<Vec<_>, _>>()?;
        let persistent = plan
            .persistent
            .iter()
            .map(|value| (value.name.clone(), Tensor { place: value.place, size_bytes: value.desc.size_bytes() }));
        let persistent = persistent.collect();
        Ok(GpuExecutor { arenas, upload, readback, persistent, programs, device })
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
        let ranges = tensors
            .iter()
            .map(|tensor| {
                let buffer = buffer(&self.arenas, tensor.place)?;
                Ok(BufferRange { buffer, offset_bytes: tensor.place.offset_bytes, size_bytes: tensor.size_bytes })
            })
            .collect::<Result<Vec<_>, DeviceError>>()?;
        self.readback.read(&self.device, &ranges)
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
    /// moves the data.
    fn replay(
        &mut self,
        program: usize,
        mut submit: impl FnMut(&mut Self, Range<usize>) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let steps = self.programs[program].steps.len();
        let (mut first, mut sum) = (0, Cost::default());
        for next in 0..steps {
            let Step::Dispatch { cost, .. } = self.programs[program].steps[next] else {
                submit(self, first..next)?;
                self.transfer(program, next)?;
                (first, sum) = (next + 1, Cost::default());
                continue;
            };
            sum.flops += cost.flops;
            sum.bytes_moved += cost.bytes_moved;
            let full = sum.flops > MAX_SUBMISSION.flops || sum.bytes_moved > MAX_SUBMISSION.bytes_moved;
            if full && next > first {
                submit(self, first..next)?;
                (first, sum) = (next, cost);
            }
        }
        submit(self, first..steps)
    }

    /// Submits uploads that wait, then the launches of these steps in one pass.
    fn submit_steps(&mut self, program: usize, steps: Range<usize>) -> Result<(), DeviceError> {
        let mut encoder = self.device.encoder();
        self.upload.encode(&mut encoder);
        {
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            for step in &self.programs[program].steps[steps] {
                if let Step::Dispatch { launches, .. } = step {
                    launches.iter().for_each(|launch| launch.record(&mut pass));
                }
            }
        }
        let submission = self.device.submit(encoder)?;
        self.upload.submitted(&submission);
        Ok(())
    }
}

fn check_size(name: &str, tensor: Tensor, data: &[u8]) -> Result<(), DeviceError> {
    if data.len() as u64 == tensor.size_bytes {
        return Ok(());
    }
    Err(invalid(format!("`{name}` has {} bytes, {} were given", tensor.size_bytes, data.len())))
}

impl Prepared {
    fn new(device: &Device, arenas: &[Arena], program: &Program, graph: &Graph) -> Result<Self, DeviceError> {
        if program.graph_hash != graph.hash() {
            return Err(invalid("it was made for another graph"));
        }
        // Where every value is at this point of the program.
        let mut places = program.places.clone();
        places.values().try_for_each(|&place| check_place(place, arenas))?;
        let size_bytes = |id: ValueId| graph.value(id).desc.size_bytes();
        let tensor = |places: &BTreeMap<ValueId, Place>, id: ValueId| {
            let place = places.get(&graph.storage_root(id)).copied();
            let place = place.ok_or_else(|| invalid(format!("`{}` has no place", graph.value(id).name)))?;
            Ok::<_, DeviceError>(Tensor { place, size_bytes: size_bytes(id) })
        };
        let with_role = |role: Role| graph.value_ids().filter(move |&id| graph.value(id).role == role);
        let inputs = with_role(Role::Input)
            .map(|id| Ok((graph.value(id).name.clone(), tensor(&places, id)?)))
            .collect::<Result<_, DeviceError>>()?;
        let mut steps = Vec::new();
        for command in &program.commands {
            match command {
                Command::Dispatch { node, outputs, workspaces, .. } => {
                    outputs.iter().chain(workspaces).try_for_each(|&place| check_place(place, arenas))?;
                    steps.push(prepare_dispatch(device, arenas, graph, command, &places)?);
                    places.extend(graph.node(*node).outputs.iter().copied().zip(outputs.iter().copied()));
                }
                // Memory is free by its absence from later launches.
                Command::Free { .. } => {}
                Command::Offload { value, to } => {
                    check_place(*to, arenas)?;
                    steps.push(Step::Offload { value: *value, from: tensor(&places, *value)?, to: *to });
                }
                Command::Prefetch { value, from, to } => {
                    check_place(*from, arenas)?;
                    check_place(*to, arenas)?;
                    places.insert(*value, *to);
                    steps.push(Step::Prefetch { from: *from, to: tensor(&places, *value)? });
                }
            }
        }
        let outputs = with_role(Role::Output).map(|id| tensor(&places, id)).collect::<Result<_, _>>()?;
        Ok(Prepared { graph: graph.clone(), steps, inputs, outputs })
    }
}

/// Binds the launches of a `Dispatch`. `places` says where values are before it.
fn prepare_dispatch(
    device: &Device,
    arenas: &[Arena],
    graph: &Graph,
    command: &Command,
    places: &BTreeMap<ValueId, Place>,
) -> Result<Step, DeviceError> {
    let Command::Dispatch { node: id, outputs: output_places, workspaces, in_place } = command else {
        return Err(invalid("it dispatches what is not a node"));
    };
    let node = graph.node(*id);
    let descs = |ids: &[ValueId]| ids.iter().map(|&id| graph.value(id).desc.clone()).collect::<Vec<TensorDesc>>();
    let (inputs, outputs) = (descs(&node.inputs), descs(&node.outputs));
    let counts = (output_places.len(), workspaces.len());
    if counts != (outputs.len(), node.op.workspaces(&inputs, &outputs).len()) {
        return Err(invalid(format!("{} has another number of outputs or workspaces", node.name)));
    }
    let mut input_places = Vec::with_capacity(inputs.len());
    for &value in &node.inputs {
        let place = places.get(&graph.storage_root(value)).copied();
        let missing = || invalid(format!("`{}`, which {} uses, has no place", graph.value(value).name, node.name));
        input_places.push(place.ok_or_else(missing)?);
    }
    let bound = input_places.iter().chain(output_places).chain(workspaces);
    bound.clone().try_for_each(|&place| buffer(arenas, place).map(drop))?;
    let locate = |slot: Slot| {
        let place = match slot {
            Slot::Input(i) => input_places[i],
            Slot::Output(i) => output_places[i],
            Slot::Workspace(i) => workspaces[i],
        };
        let buffer = buffer(arenas, place).expect("bug: a place was not looked at");
        Location { buffer, offset_bytes: place.offset_bytes, size_bytes: place.size_bytes }
    };
    let in_place = in_place.map(|input| (input, 0));
    let storage = storage_type(inputs.iter().chain(&outputs));
    let launches = node
        .op
        .dispatches(&inputs, &outputs, &device.target())
        .into_iter()
        .map(|dispatch| {
            let access = access(node.op.as_ref(), &dispatch, in_place, &locate);
            Launch::new(device, dispatch, storage, access, in_place, &locate)
        })
        .collect::<Result<_, _>>()?;
    let tensor = |(&place, desc): (&Place, &TensorDesc)| Tensor { place, size_bytes: desc.size_bytes() };
    let made = output_places.iter().zip(&outputs).map(tensor).collect();
    Ok(Step::Dispatch { node: *id, launches, cost: node.op.cost(&inputs, &outputs), outputs: made })
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

    fn read(&mut self, name: &str) -> Result<Vec<u8>, DeviceError> {
        let tensor = self.persistent(name)?;
        if let Ok(bytes) = host_bytes(&mut self.arenas, tensor.place, tensor.size_bytes as usize) {
            return Ok(bytes.to_vec());
        }
        Ok(self.read_tensors(&[tensor])?.swap_remove(0))
    }

    fn run(&mut self, program: usize, inputs: &[(&str, &[u8])]) -> Result<(), DeviceError> {
        self.stage_inputs(program, inputs)?;
        self.replay(program, |executor, steps| executor.submit_steps(program, steps))
    }

    fn outputs(&mut self, program: usize) -> Result<Vec<Vec<u8>>, DeviceError> {
        let tensors = self.program(program)?.outputs.clone();
        self.read_tensors(&tensors)
    }

    fn inspect(
        &mut self,
        program: usize,
        inputs: &[(&str, &[u8])],
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
                    self.submit_steps(program, at..at)?;
                    self.transfer(program, at)?;
                    continue;
                }
            };
            let node = prepared.graph.node(id);
            let keeps_training_state = node.op.mutates().iter().all(|&i| {
                let role = prepared.graph.value(node.inputs[i]).role;
                role == Role::Accumulator || !role.is_persistent()
            });
            if node.phase != Phase::Forward || !keeps_training_state {
                continue;
            }
            let outputs = node.outputs.clone();
            made.extend(&outputs);
            self.submit_steps(program, at..at + 1)?;
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

    fn profile(&mut self, program: usize, inputs: &[(&str, &[u8])]) -> Result<Vec<NodeTime>, DeviceError> {
        match self.clock() {
            Clock::Timestamps => self.profile_by_timestamps(program, inputs),
            _ => self.profile_by_stopwatch(program, inputs),
        }
    }

    fn clock(&self) -> Clock {
        if self.device.has_timestamps() { Clock::Timestamps } else { Clock::Stopwatch }
    }

    fn peak_bytes(&self) -> u64 {
        self.device.ledger().peak_bytes()
    }
}

#[cfg(test)]
#[path = "gpu_tests.rs"]
mod tests;

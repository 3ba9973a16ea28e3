//! The executor for devices: creates what the plan names, binds every launch once, and replays the programs.

use std::collections::{BTreeMap, BTreeSet};

use super::Executor;
use super::launch::{Launch, Location, access, storage_type};
use crate::device::{ALIGNMENT_BYTES, Buffer, Device, Range, Readback, UploadRing};
use crate::error::DeviceError;
use crate::graph::{Graph, Phase, Role};
use crate::ops::{Cost, Slot};
use crate::plan::{ArenaRole, Command, Limits, Place, Plan, Planned, Program};
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
    arenas: Vec<Buffer>,
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
    /// Where every value lives, views included.
    values: BTreeMap<ValueId, Tensor>,
}

/// One `Dispatch` of the plan.
#[derive(Debug)]
struct Step {
    node: NodeId,
    launches: Vec<Launch>,
    cost: Cost,
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
        let ranges: Vec<_> = tensors
            .iter()
            .map(|tensor| Range {
                buffer: &self.arenas[tensor.place.arena as usize],
                offset_bytes: tensor.place.offset_bytes,
                size_bytes: tensor.size_bytes,
            })
            .collect();
        self.readback.read(&self.device, &ranges)
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
            let arena = &self.arenas[tensor.place.arena as usize];
            self.upload.write(&self.device, arena, tensor.place.offset_bytes, data)?;
        }
        Ok(())
    }

    /// Submits uploads that wait, then the launches of these steps in one pass.
    fn submit_steps(&mut self, program: usize, steps: std::ops::Range<usize>) -> Result<(), DeviceError> {
        let mut encoder = self.device.encoder();
        self.upload.encode(&mut encoder);
        {
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            for step in &self.programs[program].steps[steps] {
                step.launches.iter().for_each(|launch| launch.record(&mut pass));
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

fn create_arenas(device: &Device, plan: &Plan) -> Result<Vec<Buffer>, DeviceError> {
    let arenas = plan
        .arenas
        .iter()
        .map(|arena| device.create_storage(arena_label(arena.role), arena.size_bytes))
        .collect::<Result<Vec<_>, _>>()?;
    // Memory is first touched here, not in the first step: that is slow, and it is when a driver that overcommits fails.
    let mut encoder = device.encoder();
    arenas.iter().for_each(|arena| encoder.clear_buffer(arena.raw(), 0, None));
    device.submit(encoder)?;
    device.synchronize()?;
    Ok(arenas)
}

fn arena_label(role: ArenaRole) -> &'static str {
    match role {
        ArenaRole::Parameters => "parameters",
        ArenaRole::State => "optimizer state",
        ArenaRole::Accumulators => "accumulators",
        ArenaRole::Transient => "transient",
    }
}

impl Prepared {
    fn new(device: &Device, arenas: &[Buffer], program: &Program, graph: &Graph) -> Result<Self, DeviceError> {
        if program.graph_hash != graph.hash() {
            return Err(invalid("it was made for another graph"));
        }
        let mut values = BTreeMap::new();
        for id in graph.value_ids() {
            if let Some(&place) = program.places.get(&graph.storage_root(id)) {
                check_place(place, arenas)?;
                values.insert(id, Tensor { place, size_bytes: graph.value(id).desc.size_bytes() });
            }
        }
        let mut steps = Vec::new();
        for command in &program.commands {
            match *command {
                Command::Dispatch { node } => steps.push(prepare_step(device, arenas, program, graph, &values, node)?),
                // Memory is free by its absence from later launches.
                Command::Free { .. } => {}
                Command::Offload { .. } | Command::Prefetch { .. } => {
                    return Err(invalid("it moves values to the host, which this executor does not do"));
                }
            }
        }
        let with_role = |role: Role| graph.value_ids().filter(move |&id| graph.value(id).role == role);
        let place = |id: ValueId| {
            values.get(&id).copied().ok_or_else(|| invalid(format!("`{}` has no place", graph.value(id).name)))
        };
        let inputs = with_role(Role::Input)
            .map(|id| Ok((graph.value(id).name.clone(), place(id)?)))
            .collect::<Result<_, DeviceError>>()?;
        let outputs = with_role(Role::Output).map(place).collect::<Result<_, _>>()?;
        Ok(Prepared { graph: graph.clone(), steps, inputs, outputs, values })
    }
}

fn check_place(place: Place, arenas: &[Buffer]) -> Result<(), DeviceError> {
    let end = place.offset_bytes.saturating_add(place.size_bytes);
    match arenas.get(place.arena as usize) {
        Some(arena) if end <= arena.size_bytes() => Ok(()),
        _ => Err(invalid(format!("{place:?} is outside the arenas"))),
    }
}

fn prepare_step(
    device: &Device,
    arenas: &[Buffer],
    program: &Program,
    graph: &Graph,
    values: &BTreeMap<ValueId, Tensor>,
    id: NodeId,
) -> Result<Step, DeviceError> {
    let node = graph.node(id);
    let descs = |ids: &[ValueId]| ids.iter().map(|&id| graph.value(id).desc.clone()).collect::<Vec<TensorDesc>>();
    let (inputs, outputs) = (descs(&node.inputs), descs(&node.outputs));
    if node.op.is_view() {
        return Ok(Step { node: id, launches: Vec::new(), cost: Cost::default() });
    }
    for value in node.inputs.iter().chain(&node.outputs) {
        if !values.contains_key(value) {
            return Err(invalid(format!("`{}`, which {} uses, has no place", graph.value(*value).name, node.name)));
        }
    }
    let workspaces = program.workspaces.get(&id).map_or(&[][..], Vec::as_slice);
    workspaces.iter().try_for_each(|&place| check_place(place, arenas))?;
    if workspaces.len() != node.op.workspaces(&inputs, &outputs).len() {
        return Err(invalid(format!("{} has another number of workspaces", node.name)));
    }
    let locate = |slot: Slot| {
        let place = match slot {
            Slot::Input(i) => values[&node.inputs[i]].place,
            Slot::Output(i) => values[&node.outputs[i]].place,
            Slot::Workspace(i) => workspaces[i],
        };
        let buffer = &arenas[place.arena as usize];
        Location { buffer, offset_bytes: place.offset_bytes, size_bytes: place.size_bytes }
    };
    let in_place = program.in_place.get(&id).map(|&input| (input, 0));
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
    Ok(Step { node: id, launches, cost: node.op.cost(&inputs, &outputs) })
}

impl Executor for GpuExecutor {
    fn device_name(&self) -> &str {
        &self.device.info().name
    }

    fn write(&mut self, name: &str, data: &[u8]) -> Result<(), DeviceError> {
        let tensor = self.persistent(name)?;
        check_size(name, tensor, data)?;
        let arena = &self.arenas[tensor.place.arena as usize];
        self.upload.write(&self.device, arena, tensor.place.offset_bytes, data)?;
        self.upload.flush(&self.device)
    }

    fn read(&mut self, name: &str) -> Result<Vec<u8>, DeviceError> {
        let tensor = self.persistent(name)?;
        Ok(self.read_tensors(&[tensor])?.swap_remove(0))
    }

    fn run(&mut self, program: usize, inputs: &[(&str, &[u8])]) -> Result<(), DeviceError> {
        self.stage_inputs(program, inputs)?;
        let steps = self.programs[program].steps.len();
        let (mut first, mut sum) = (0, Cost::default());
        for next in 0..steps {
            let cost = self.programs[program].steps[next].cost;
            sum.flops += cost.flops;
            sum.bytes_moved += cost.bytes_moved;
            let full = sum.flops > MAX_SUBMISSION.flops || sum.bytes_moved > MAX_SUBMISSION.bytes_moved;
            if full && next > first {
                self.submit_steps(program, first..next)?;
                (first, sum) = (next, cost);
            }
        }
        self.submit_steps(program, first..steps)
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
        for at in 0..self.programs[program].steps.len() {
            let prepared = &self.programs[program];
            let id = prepared.steps[at].node;
            let node = prepared.graph.node(id);
            let keeps_training_state = node.op.mutates().iter().all(|&i| {
                let role = prepared.graph.value(node.inputs[i]).role;
                role == Role::Accumulator || !role.is_persistent()
            });
            if node.phase != Phase::Forward || !keeps_training_state || !seen.insert(id) {
                continue;
            }
            let outputs = node.outputs.clone();
            let tensors: Vec<_> = outputs.iter().map(|output| prepared.values[output]).collect();
            self.submit_steps(program, at..at + 1)?;
            let contents = self.read_tensors(&tensors)?;
            for (&output, data) in outputs.iter().zip(&contents) {
                if !visit(&self.programs[program].graph, output, data) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn peak_bytes(&self) -> u64 {
        self.device.ledger().peak_bytes()
    }
}

#[cfg(test)]
#[path = "gpu_tests.rs"]
mod tests;

//! Interprets a plan in memory of the host, at exactly the plan's offsets: with the native forms of ops on the threads that the plan was
//! made for, or, for a plan that was made for a device, with the ops' twins: slow, exact, no driver.
//!
//! An op that works in place reads an input where it writes its output. Twins take separate slices, so such an input
//! is copied first to a scratch buffer, of which a plan for a device does not know. Nor does it know what twins take while they run: that
//! there is room for it is tried before the first step, since a twin cannot complain.

pub(crate) mod measure;
mod memory;
mod operands;
mod processor;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod single;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use web_time::Instant;

pub use self::processor::Cpu;

use self::memory::Memory;
use self::operands::{Operands, Range, WORD_BYTES};
use super::{Clock, Executor, NodeTime};
use crate::error::{DeviceError, HostMemory};
use crate::graph::{Graph, Node, Phase, Role};
use crate::native::{Cores, Level};
use crate::ops::{Epilogue, Input, Resources, run_native, run_twin, workspaces};
use crate::plan::{Allocation, ArenaRole, Command, Plan, Planned, Program};
use crate::tensor::{NodeId, TensorDesc, ValueId, copied};

/// Words that a twin takes for each element that it makes: what it has added up in f64, and a block of terms in f32.
const WORKING_WORDS: u64 = 3;
/// What a step takes besides, such as a few samples' places.
const LEEWAY_BYTES: u64 = 1 << 20;

/// Runs plans in host memory.
#[derive(Debug)]
pub struct CpuExecutor {
    plan: Plan,
    graphs: Vec<Arc<Graph>>,
    /// The commands of each program, with their operands.
    steps: Vec<Vec<Step>>,
    /// One buffer per arena of the plan.
    arenas: Vec<Memory>,
    /// Upload slots and the readback buffer. Nothing needs staging here; they are there so that the ledger counts
    /// what was really created.
    staging: Vec<Memory>,
    code: Code,
    /// Where values are once a program has run.
    ends: Vec<BTreeMap<ValueId, Allocation>>,
    last_program: Option<usize>,
    /// What the last launch was to read.
    collected: Vec<Vec<u8>>,
}

/// What runs ops.
#[derive(Debug)]
enum Code {
    Native(Cores),
    /// Twins, with room for an input whose memory the output takes over.
    Twins(Memory),
}

/// One command of a plan.
#[derive(Debug)]
enum Step {
    Run(NodeId, Operands),
    /// A value is copied between the host tier and the device.
    Copy {
        from: Range,
        to: Range,
    },
    Nothing,
}

impl CpuExecutor {
    /// Creates every buffer of the plan. Native code has the widest vectors of this processor, or those that
    /// [`Level::chosen`] names.
    ///
    /// # Errors
    /// Where the plan does not fit this machine's memory.
    pub fn new(planned: &Planned) -> Result<Self, DeviceError> {
        CpuExecutor::with_level(planned, Level::chosen())
    }

    /// As [`new`](Self::new), with these vectors.
    ///
    /// # Errors
    /// As `new`.
    pub fn with_level(planned: &Planned, level: Level) -> Result<Self, DeviceError> {
        let plan = planned.plan.clone();
        let graphs = planned.graphs.clone();
        // The system would promise it, and end the process where it is used.
        if crate::device::most_memory().is_some_and(|most| most < plan.peak_bytes) {
            return Err(HostMemory { size_bytes: plan.peak_bytes }.into());
        }
        let arenas = plan.arenas.iter().map(|arena| Memory::new(arena.size_bytes)).collect::<Result<Vec<_>, _>>()?;
        let mut staging = Vec::new();
        for _ in 0..plan.staging.upload_slots {
            staging.push(Memory::new(plan.staging.upload_slot_bytes)?);
        }
        staging.push(Memory::new(plan.staging.readback_bytes)?);
        let programs = plan.programs.iter().zip(&graphs);
        let (steps, ends): (Vec<_>, Vec<_>) = programs.map(|(program, graph)| steps(program, graph)).unzip();
        let code = match plan.threads {
            Some(threads) => Code::Native(Cores::new(threads, level)),
            None => Code::twins(&steps, &graphs)?,
        };
        Ok(CpuExecutor { plan, graphs, steps, arenas, staging, code, ends, last_program: None, collected: Vec::new() })
    }

    fn value_words(&self, program: usize, id: ValueId, place: Allocation) -> &[u32] {
        self.words(Range::new(place, self.graphs[program].value(id).desc.words()))
    }

    fn words(&self, range: Range) -> &[u32] {
        &self.arenas[range.arena].words()[range.start..][..range.words]
    }

    fn words_mut(&mut self, range: Range) -> &mut [u32] {
        &mut self.arenas[range.arena].words_mut()[range.start..][..range.words]
    }

    fn persistent(&self, name: &str) -> Result<(Range, TensorDesc), DeviceError> {
        let found = self.plan.persistent.iter().find(|value| value.name == name);
        let found = found.ok_or_else(|| invalid(name, "there is no such value"))?;
        Ok((Range::new(found.place, found.desc.words()), found.desc.clone()))
    }

    fn check_program(&self, program: usize) -> Result<(), DeviceError> {
        if program < self.plan.programs.len() {
            return Ok(());
        }
        Err(invalid(&format!("program {program}"), "there is no such program"))
    }

    fn step(&mut self, program: usize, position: usize) {
        match &self.steps[program][position] {
            Step::Run(node, operands) => {
                self.code.run(&mut self.arenas, &self.graphs[program], *node, operands);
            }
            Step::Copy { from, to } => {
                let arenas = self.arenas.get_disjoint_mut([from.arena, to.arena]);
                let [source, target] = arenas.expect("bug: a value that moves within an arena");
                target.words_mut()[to.start..][..to.words].copy_from_slice(&source.words()[from.start..][..from.words]);
            }
            Step::Nothing => {}
        }
    }
}

/// The commands of a program with their operands, and where values are in the end.
fn steps(program: &Program, graph: &Graph) -> (Vec<Step>, BTreeMap<ValueId, Allocation>) {
    let mut places = program.places.clone();
    let words = |value: ValueId| graph.value(value).desc.words();
    let step = |command: &Command| match *command {
        Command::Dispatch { node: id, ref outputs, ref workspaces, in_place } => {
            let operands = Operands::new(graph, id, &places, outputs, workspaces, in_place);
            places.extend(graph.node(id).outputs.iter().copied().zip(outputs.iter().copied()));
            Step::Run(id, operands)
        }
        Command::Free { .. } => Step::Nothing,
        Command::Offload { value, to } => {
            Step::Copy { from: Range::new(places[&value], words(value)), to: Range::new(to, words(value)) }
        }
        Command::Prefetch { value, from, to } => {
            places.insert(value, to);
            Step::Copy { from: Range::new(from, words(value)), to: Range::new(to, words(value)) }
        }
    };
    let steps = program.commands.iter().map(step).collect();
    (steps, places)
}

impl Code {
    /// Twins, with room for what they take.
    fn twins(steps: &[Vec<Step>], graphs: &[Arc<Graph>]) -> Result<Self, DeviceError> {
        let words = steps.iter().flatten().filter_map(|step| match step {
            Step::Run(_, operands) => operands.in_place.map(|input| operands.input(input).words),
            _ => None,
        });
        let scratch = Memory::new(words.max().unwrap_or(0) as u64 * WORD_BYTES)?;
        let size_bytes =
            graphs.iter().map(|graph| working_bytes(graph)).max().unwrap_or(0).saturating_add(LEEWAY_BYTES);
        let mut working = Vec::<u8>::new();
        if working.try_reserve_exact(usize::try_from(size_bytes).unwrap_or(usize::MAX)).is_err() {
            return Err(HostMemory { size_bytes }.into());
        }
        Ok(Code::Twins(scratch))
    }

    fn run(&mut self, arenas: &mut [Memory], graph: &Graph, node: NodeId, operands: &Operands) {
        let op = graph.node(node).op.as_ref();
        match self {
            Code::Native(cores) => {
                let (mut call, workspaces) = operands.call(arenas, Input::InPlace);
                run_native(op, &mut call, &mut Resources { cores, workspaces, epilogue: Epilogue::default() });
            }
            Code::Twins(scratch) => {
                let in_place = match operands.in_place {
                    None => Input::InPlace,
                    Some(input) => {
                        let Range { arena, start, words } = operands.input(input);
                        let copy = &mut scratch.words_mut()[..words];
                        copy.copy_from_slice(&arenas[arena].words()[start..][..words]);
                        operands::input(&operands.input_descs()[input], copy)
                    }
                };
                let (mut call, _) = operands.call(arenas, in_place);
                run_twin(op, &mut call);
            }
        }
    }
}

impl Executor for CpuExecutor {
    fn device_name(&self) -> &str {
        match self.code {
            Code::Native(_) => "cpu",
            Code::Twins(_) => "reference",
        }
    }

    fn write(&mut self, name: &str, data: &[u8]) -> Result<(), DeviceError> {
        let (range, desc) = self.persistent(name)?;
        expect_bytes(name, &desc, data)?;
        bytemuck::cast_slice_mut(self.words_mut(range)).copy_from_slice(data);
        Ok(())
    }

    fn read_pieces(&mut self, name: &str, visit: &mut dyn FnMut(&[u8])) -> Result<(), DeviceError> {
        let (range, _) = self.persistent(name)?;
        visit(bytemuck::cast_slice(self.words(range)));
        Ok(())
    }

    fn upload(&mut self, program: usize, inputs: &[(&str, &[u8])]) -> Result<(), DeviceError> {
        self.check_program(program)?;
        let graph = &self.graphs[program];
        let mut uploads = Vec::new();
        for id in graph.value_ids().filter(|&id| graph.value(id).role == Role::Input) {
            let value = graph.value(id);
            let Some((_, data)) = inputs.iter().find(|(name, _)| *name == value.name) else {
                return Err(invalid(&value.name, "this input of the program was not given"));
            };
            expect_bytes(&value.name, &value.desc, data)?;
            uploads.push((Range::new(self.plan.programs[program].places[&id], value.desc.words()), *data));
        }
        if uploads.len() != inputs.len() {
            let known = |name: &str| graph.values().iter().any(|v| v.role == Role::Input && v.name == name);
            let stray = inputs.iter().find(|(name, _)| !known(name)).map_or("inputs", |(name, _)| name);
            return Err(invalid(stray, "the program does not have this input, or it was given twice"));
        }
        for (range, data) in uploads {
            bytemuck::cast_slice_mut(self.words_mut(range)).copy_from_slice(data);
        }
        Ok(())
    }

    fn launch(&mut self, program: usize, read: &[&str]) -> Result<(), DeviceError> {
        self.check_program(program)?;
        for position in 0..self.plan.programs[program].commands.len() {
            self.step(program, position);
        }
        self.last_program = Some(program);
        self.collected = read.iter().map(|name| self.read(name)).collect::<Result<_, _>>()?;
        Ok(())
    }

    fn collect(&mut self) -> Result<Vec<Vec<u8>>, DeviceError> {
        Ok(std::mem::take(&mut self.collected))
    }

    fn outputs(&mut self, program: usize) -> Result<Vec<Vec<u8>>, DeviceError> {
        self.check_program(program)?;
        if self.last_program != Some(program) {
            return Err(invalid(&format!("program {program}"), "it is not the program that ran last"));
        }
        let graph = &self.graphs[program];
        let outputs = graph.value_ids().filter(|&id| graph.value(id).role == Role::Output);
        let words = |id: ValueId| self.value_words(program, id, self.ends[program][&graph.storage_root(id)]);
        outputs.map(|id| Ok(copied(bytemuck::cast_slice(words(id)))?)).collect()
    }

    fn inspect(
        &mut self,
        program: usize,
        inputs: &[(&str, &[u8])],
        until: Phase,
        visit: &mut dyn FnMut(&Graph, ValueId, &[u8]) -> bool,
    ) -> Result<(), DeviceError> {
        self.upload(program, inputs)?;
        self.last_program = None;
        let mut seen = BTreeSet::new();
        let graph = self.graphs[program].clone();
        for position in 0..self.plan.programs[program].commands.len() {
            let Step::Run(id, _) = self.steps[program][position] else {
                // What was not made is moved as it is: nothing reads it.
                self.step(program, position);
                continue;
            };
            let node = graph.node(id);
            let lasting = |&input: &usize| {
                matches!(
                    graph.value(graph.storage_root(node.inputs[input])).role,
                    Role::Parameter | Role::Buffer | Role::State
                )
            };
            if node.phase > until || node.op.mutates().iter().any(lasting) {
                continue;
            }
            self.step(program, position);
            if !seen.insert(id) {
                continue;
            }
            let Step::Run(_, operands) = &self.steps[program][position] else { continue };
            for (&id, &range) in node.outputs.iter().zip(&operands.made) {
                if !visit(&graph, id, bytemuck::cast_slice(self.words(range))) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn profile(&mut self, program: usize, read: &[&str]) -> Result<Vec<NodeTime>, DeviceError> {
        self.check_program(program)?;
        let mut times = Vec::new();
        for position in 0..self.plan.programs[program].commands.len() {
            let start = Instant::now();
            self.step(program, position);
            if let Command::Dispatch { node, .. } = self.plan.programs[program].commands[position] {
                times.push(NodeTime::new(&self.graphs[program], node, start.elapsed().as_nanos() as f64, Vec::new()));
            }
        }
        self.last_program = Some(program);
        self.collected = read.iter().map(|name| self.read(name)).collect::<Result<_, _>>()?;
        Ok(times)
    }

    fn clock(&self) -> Clock {
        Clock::Host
    }

    fn is_in_process(&self) -> bool {
        true
    }

    fn working_bytes(&self) -> u64 {
        let of_twins = |graph: &Arc<Graph>| match self.code {
            Code::Native(_) => 0,
            Code::Twins(_) => working_bytes(graph),
        };
        self.graphs.iter().map(of_twins).max().unwrap_or(0).saturating_add(LEEWAY_BYTES)
    }

    fn peak_bytes(&self) -> u64 {
        let device = self.arenas.iter().zip(&self.plan.arenas).filter(|(_, arena)| arena.role != ArenaRole::Host);
        let arenas: u64 = device.map(|(memory, _)| memory.size_bytes()).sum();
        let staging: u64 = self.staging.iter().map(Memory::size_bytes).sum();
        self.plan.baseline_bytes + arenas + staging
    }
}

/// What the twin of a node takes at most while it runs, whichever that is.
fn working_bytes(graph: &Graph) -> u64 {
    let of_node = |node: &Node| {
        let descs = |ids: &[ValueId]| ids.iter().map(|&id| graph.value(id).desc.clone()).collect::<Vec<_>>();
        let (inputs, outputs) = (descs(&node.inputs), descs(&node.outputs));
        let made: usize = outputs.iter().map(TensorDesc::numel).sum();
        let largest = inputs.iter().map(TensorDesc::size_bytes).max().unwrap_or(0);
        // What is stored in 16 bits is copied.
        let halves = inputs.iter().chain(&outputs).filter(|desc| desc.dtype.half().is_some());
        let copies: u64 = halves.map(|desc| desc.computed().size_bytes()).sum();
        let workspaces: u64 = workspaces(&*node.op, &inputs, &outputs, None).iter().sum();
        WORKING_WORDS * WORD_BYTES * made as u64 + largest + copies + workspaces
    };
    graph.nodes().iter().map(of_node).max().unwrap_or(0)
}

fn invalid(label: &str, reason: &str) -> DeviceError {
    DeviceError::Validation { label: label.to_owned(), reason: reason.to_owned() }
}

fn expect_bytes(name: &str, desc: &TensorDesc, data: &[u8]) -> Result<(), DeviceError> {
    if data.len() as u64 == desc.size_bytes() {
        return Ok(());
    }
    Err(invalid(name, &format!("{} bytes were given, but {desc} has {}", data.len(), desc.size_bytes())))
}

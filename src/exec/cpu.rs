//! Interprets a plan on the CPU with the ops' twins, in f32, at exactly the plan's offsets: slow, exact, no driver.
//!
//! An op that works in place reads an input where it writes its output. Twins take separate slices, so such an input
//! is copied first to a scratch buffer, of which the plan does not know. Nor does it know what twins take while they run: that there is
//! room for it is tried before the first step, since a twin cannot complain.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use web_time::Instant;

use super::{Clock, Executor, NodeTime};
use crate::error::DeviceError;
use crate::graph::{Graph, Node, Phase, Role};
use crate::ops::{Call, Input, Output};
use crate::plan::{Allocation, ArenaRole, Command, Plan, Planned};
use crate::tensor::{DType, NodeId, TensorDesc, ValueId, copied};

const WORD_BYTES: u64 = 4;
/// Words that a twin takes for each element that it makes: what it has added up in f64, and a block of terms in f32.
const WORKING_WORDS: u64 = 3;
/// What a step takes besides, such as a few samples' places.
const LEEWAY_BYTES: u64 = 1 << 20;

/// Runs plans in host memory.
#[derive(Debug)]
pub struct CpuExecutor {
    plan: Plan,
    graphs: Vec<Arc<Graph>>,
    /// One buffer per arena of the plan. Words, so that every tensor is aligned.
    arenas: Vec<Vec<u32>>,
    /// Upload slots and the readback buffer. Nothing needs staging here; they are there so that the ledger counts
    /// what was really created.
    staging: Vec<Vec<u8>>,
    /// Where an input goes whose memory the output takes over.
    scratch: Vec<u32>,
    /// Where values of the program that runs, or ran last, are.
    places: BTreeMap<ValueId, Allocation>,
    last_program: Option<usize>,
    /// What the last launch was to read.
    collected: Vec<Vec<u8>>,
}

impl CpuExecutor {
    /// Creates every buffer of the plan.
    ///
    /// # Errors
    /// Where a graph holds a type that the twins do not compute in, or the plan does not fit this machine's memory.
    pub fn new(planned: &Planned) -> Result<Self, DeviceError> {
        let plan = planned.plan.clone();
        let graphs = planned.graphs.clone();
        for value in graphs.iter().flat_map(|graph| graph.values()) {
            if value.desc.dtype == DType::F16 {
                return Err(DeviceError::Unsupported {
                    adapter: "cpu".into(),
                    missing: format!("f16 storage, which `{}` needs", value.name),
                });
            }
        }
        let arenas = plan.arenas.iter().enumerate().map(|(i, arena)| {
            let words = arena.size_bytes.div_ceil(WORD_BYTES);
            zeroed(words, &format!("arena {i}"), arena.size_bytes)
        });
        let arenas = arenas.collect::<Result<Vec<Vec<u32>>, _>>()?;
        let mut staging = Vec::new();
        for _ in 0..plan.staging.upload_slots {
            staging.push(zeroed(plan.staging.upload_slot_bytes, "upload slot", plan.staging.upload_slot_bytes)?);
        }
        staging.push(zeroed(plan.staging.readback_bytes, "readback buffer", plan.staging.readback_bytes)?);
        let scratch_words = plan.programs.iter().zip(&graphs).flat_map(|(program, graph)| {
            program.commands.iter().filter_map(|command| match *command {
                Command::Dispatch { node, in_place: Some(input), .. } => {
                    Some(graph.value(graph.node(node).inputs[input]).desc.words())
                }
                _ => None,
            })
        });
        let scratch_words = scratch_words.max().unwrap_or(0) as u64;
        let scratch = zeroed(scratch_words, "scratch", scratch_words * WORD_BYTES)?;
        let working_bytes =
            graphs.iter().map(|graph| working_bytes(graph)).max().unwrap_or(0).saturating_add(LEEWAY_BYTES);
        let mut working = Vec::<u8>::new();
        if working.try_reserve_exact(usize::try_from(working_bytes).unwrap_or(usize::MAX)).is_err() {
            let label = "working memory of the CPU".to_owned();
            return Err(DeviceError::OutOfMemory { label, size_bytes: working_bytes });
        }
        drop(working);
        Ok(CpuExecutor {
            plan,
            graphs,
            arenas,
            staging,
            scratch,
            places: BTreeMap::new(),
            last_program: None,
            collected: Vec::new(),
        })
    }

    /// The arena words of a place, without its padding.
    fn words(&self, place: Allocation, desc: &TensorDesc) -> &[u32] {
        let start = (place.offset_bytes / WORD_BYTES) as usize;
        &self.arenas[place.arena as usize][start..start + desc.words()]
    }

    fn words_mut(&mut self, place: Allocation, desc: &TensorDesc) -> &mut [u32] {
        let start = (place.offset_bytes / WORD_BYTES) as usize;
        &mut self.arenas[place.arena as usize][start..start + desc.words()]
    }

    fn value_words(&self, program: usize, id: ValueId) -> &[u32] {
        let graph = &self.graphs[program];
        self.words(self.places[&graph.storage_root(id)], &graph.value(id).desc)
    }

    fn persistent(&self, name: &str) -> Result<(Allocation, TensorDesc), DeviceError> {
        let found = self.plan.persistent.iter().find(|value| value.name == name);
        found.map(|value| (value.place, value.desc.clone())).ok_or_else(|| invalid(name, "there is no such value"))
    }

    fn check_program(&self, program: usize) -> Result<(), DeviceError> {
        if program < self.plan.programs.len() {
            return Ok(());
        }
        Err(invalid(&format!("program {program}"), "there is no such program"))
    }

    fn step(&mut self, program: usize, position: usize) -> Result<(), DeviceError> {
        let (graph, command) = (&self.graphs[program], &self.plan.programs[program].commands[position]);
        match *command {
            Command::Dispatch { node: id, ref outputs, in_place, .. } => {
                let node = graph.node(id);
                // Outputs may lie where an input is that they take over.
                let places = self.places.clone();
                self.places.extend(node.outputs.iter().copied().zip(outputs.iter().copied()));
                let range = |id: ValueId, places: &BTreeMap<ValueId, Allocation>| -> Range {
                    let place = places[&graph.storage_root(id)];
                    let start = (place.offset_bytes / WORD_BYTES) as usize;
                    (place.arena as usize, start, graph.value(id).desc.words())
                };
                let inputs = node.inputs.iter().map(|&id| range(id, &places)).collect();
                let outputs = node.outputs.iter().map(|&id| range(id, &self.places)).collect();
                let operands = Operands { inputs, outputs, in_place };
                dispatch(&mut self.arenas, &mut self.scratch, graph, id, &operands);
            }
            Command::Free { .. } => {}
            Command::Offload { value, to } => self.copy(value, self.places[&value], to, program),
            Command::Prefetch { value, from, to } => {
                self.copy(value, from, to, program);
                self.places.insert(value, to);
            }
        }
        Ok(())
    }

    /// Copies a value between the host tier and the device.
    fn copy(&mut self, value: ValueId, from: Allocation, to: Allocation, program: usize) {
        let words = self.graphs[program].value(value).desc.words();
        let [source, target] = [from, to].map(|place| (place.offset_bytes / WORD_BYTES) as usize);
        let arenas = self.arenas.get_disjoint_mut([from.arena, to.arena].map(|arena| arena as usize));
        let [source_words, target_words] = arenas.expect("bug: a value that moves within an arena");
        target_words[target..target + words].copy_from_slice(&source_words[source..source + words]);
    }
}

impl Executor for CpuExecutor {
    fn device_name(&self) -> &str {
        "cpu"
    }

    fn write(&mut self, name: &str, data: &[u8]) -> Result<(), DeviceError> {
        let (place, desc) = self.persistent(name)?;
        expect_bytes(name, &desc, data)?;
        bytemuck::cast_slice_mut(self.words_mut(place, &desc)).copy_from_slice(data);
        Ok(())
    }

    fn read_pieces(&mut self, name: &str, visit: &mut dyn FnMut(&[u8])) -> Result<(), DeviceError> {
        let (place, desc) = self.persistent(name)?;
        visit(bytemuck::cast_slice(self.words(place, &desc)));
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
            uploads.push((self.plan.programs[program].places[&id], value.desc.clone(), *data));
        }
        if uploads.len() != inputs.len() {
            let known = |name: &str| graph.values().iter().any(|v| v.role == Role::Input && v.name == name);
            let stray = inputs.iter().find(|(name, _)| !known(name)).map_or("inputs", |(name, _)| name);
            return Err(invalid(stray, "the program does not have this input, or it was given twice"));
        }
        for (place, desc, data) in uploads {
            bytemuck::cast_slice_mut(self.words_mut(place, &desc)).copy_from_slice(data);
        }
        self.places = self.plan.programs[program].places.clone();
        Ok(())
    }

    fn launch(&mut self, program: usize, read: &[&str]) -> Result<(), DeviceError> {
        self.check_program(program)?;
        for position in 0..self.plan.programs[program].commands.len() {
            self.step(program, position)?;
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
        outputs.map(|id| Ok(copied(bytemuck::cast_slice(self.value_words(program, id)))?)).collect()
    }

    fn inspect(
        &mut self,
        program: usize,
        inputs: &[(&str, &[u8])],
        visit: &mut dyn FnMut(&Graph, ValueId, &[u8]) -> bool,
    ) -> Result<(), DeviceError> {
        self.upload(program, inputs)?;
        self.last_program = None;
        let mut seen = BTreeSet::new();
        for position in 0..self.plan.programs[program].commands.len() {
            let graph = &self.graphs[program];
            let id = match self.plan.programs[program].commands[position] {
                Command::Dispatch { node, .. } => node,
                // A value that was not made has nothing to move.
                Command::Offload { value, .. } if !self.places.contains_key(&value) => continue,
                _ => {
                    self.step(program, position)?;
                    continue;
                }
            };
            let node = graph.node(id);
            let lasting = |&input: &usize| {
                matches!(
                    graph.value(graph.storage_root(node.inputs[input])).role,
                    Role::Parameter | Role::Buffer | Role::State
                )
            };
            if node.phase != Phase::Forward || node.op.mutates().iter().any(lasting) {
                continue;
            }
            let outputs = node.outputs.clone();
            self.step(program, position)?;
            if !seen.insert(id) {
                continue;
            }
            for id in outputs {
                if !visit(&self.graphs[program], id, bytemuck::cast_slice(self.value_words(program, id))) {
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
            self.step(program, position)?;
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
        self.graphs.iter().map(|graph| working_bytes(graph)).max().unwrap_or(0).saturating_add(LEEWAY_BYTES)
    }

    fn peak_bytes(&self) -> u64 {
        let device = self.arenas.iter().zip(&self.plan.arenas).filter(|(_, arena)| arena.role != ArenaRole::Host);
        let arenas: usize = device.map(|(words, _)| size_of_val(words.as_slice())).sum();
        let staging: usize = self.staging.iter().map(Vec::len).sum();
        self.plan.baseline_bytes + arenas as u64 + staging as u64
    }
}

/// What the twin of a node takes at most while it runs, whichever that is.
fn working_bytes(graph: &Graph) -> u64 {
    let of_node = |node: &Node| {
        let descs = |ids: &[ValueId]| ids.iter().map(|&id| graph.value(id).desc.clone()).collect::<Vec<_>>();
        let (inputs, outputs) = (descs(&node.inputs), descs(&node.outputs));
        let made: usize = outputs.iter().map(TensorDesc::numel).sum();
        let largest = inputs.iter().map(TensorDesc::size_bytes).max().unwrap_or(0);
        let workspaces: u64 = node.op.workspaces(&inputs, &outputs).iter().sum();
        WORKING_WORDS * WORD_BYTES * made as u64 + largest + workspaces
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

/// Zeros, or a typed error where the machine has not got the memory.
fn zeroed<T: bytemuck::Zeroable + Clone>(length: u64, label: &str, size_bytes: u64) -> Result<Vec<T>, DeviceError> {
    let mut buffer = Vec::new();
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if buffer.try_reserve_exact(length).is_err() {
        return Err(DeviceError::OutOfMemory { label: label.to_owned(), size_bytes });
    }
    buffer.resize(length, T::zeroed());
    Ok(buffer)
}

/// An operand's words: arena, first word, number of words.
type Range = (usize, usize, usize);

/// Where a node's operands are, and the input whose memory output 0 takes over.
struct Operands {
    inputs: Vec<Range>,
    outputs: Vec<Range>,
    in_place: Option<usize>,
}

fn dispatch(arenas: &mut [Vec<u32>], scratch: &mut [u32], graph: &Graph, id: NodeId, operands: &Operands) {
    let node = graph.node(id);
    let desc = |id: ValueId| &graph.value(id).desc;
    let range = |input: usize| operands.inputs[input];
    let input_descs: Vec<_> = node.inputs.iter().map(|&id| desc(id).clone()).collect();
    let output_descs: Vec<_> = node.outputs.iter().map(|&id| desc(id).clone()).collect();
    let mutates = node.op.mutates();

    let in_place = operands.in_place;
    if let Some(input) = in_place {
        let (arena, start, length) = range(input);
        scratch[..length].copy_from_slice(&arenas[arena][start..start + length]);
    }
    let written: Vec<Range> = operands.outputs.iter().copied().chain(mutates.iter().map(|&i| range(i))).collect();
    let is_read = |i: &usize| !mutates.contains(i) && in_place != Some(*i);
    let mut read: Vec<Range> = (0..node.inputs.len()).filter(is_read).map(range).collect();
    read.sort_unstable();
    read.dedup();

    let mut parts = split(arenas, written.iter().chain(&read).copied().collect());
    let mut take = |range: &Range| parts.remove(range).expect("bug: two operands share a range");
    let mut written = written.iter().map(&mut take).collect::<Vec<_>>().into_iter();
    let outputs = output_descs.iter().zip(&mut written).map(|(desc, words)| output(desc, words)).collect();
    let mutated = mutates.iter().zip(&mut written).map(|(&i, words)| output(&input_descs[i], words)).collect();
    let shared: BTreeMap<Range, &[u32]> = read.iter().map(|range| (*range, &*take(range))).collect();
    let inputs = node.inputs.iter().enumerate().map(|(i, &id)| {
        if mutates.contains(&i) {
            return Input::Mutated;
        }
        let words = if in_place == Some(i) { &scratch[..desc(id).words()] } else { shared[&range(i)] };
        match desc(id).dtype {
            DType::U32 | DType::U8 => Input::Int(words),
            DType::F32 | DType::F16 => Input::Real(bytemuck::cast_slice(words)),
        }
    });
    let inputs = inputs.collect();
    let mut call = Call { input_descs: &input_descs, output_descs: &output_descs, inputs, outputs, mutated };
    node.op.run_f32(&mut call);
}

fn output<'a>(desc: &TensorDesc, words: &'a mut [u32]) -> Output<'a, f32> {
    match desc.dtype {
        DType::U32 | DType::U8 => Output::Int(words),
        DType::F32 | DType::F16 => Output::Real(bytemuck::cast_slice_mut(words)),
    }
}

/// Separate slices of ranges that do not overlap.
fn split(arenas: &mut [Vec<u32>], mut ranges: Vec<Range>) -> BTreeMap<Range, &mut [u32]> {
    ranges.sort_unstable();
    let mut parts = BTreeMap::new();
    let mut ranges = ranges.into_iter().peekable();
    for (number, arena) in arenas.iter_mut().enumerate() {
        let (mut rest, mut position) = (arena.as_mut_slice(), 0);
        while let Some(range @ (_, start, length)) = ranges.next_if(|range| range.0 == number) {
            assert!(start >= position, "bug: operands overlap");
            let (part, after) = rest.split_at_mut(start - position).1.split_at_mut(length);
            parts.insert(range, part);
            (rest, position) = (after, start + length);
        }
    }
    parts
}

//! Builds the plan for one way of cutting a step: orders every program, then lays out all memory.

use std::collections::{BTreeMap, BTreeSet};

use super::lifetime::{Block, Event, Kind, Lifetimes, Owner, Storage};
use super::placement::{self, Interval, Packing};
use super::{
    Allocation, Arena, ArenaRole, Command, CostModel, Form, Limits, Pass, Persistent, Plan, Planned, Program, Request,
    Source, Staging, microbatch, order,
};
use crate::error::PlanError;
use crate::graph::{Graph, Role, Value};
use crate::tensor::{NodeId, TensorDesc, ValueId};

/// Arenas are cut at this size even where a device takes larger buffers.
const CHUNK_BYTES: u64 = 1 << 30;
/// Above this size an arena is an allocation of its own, which drivers round up.
const LARGE_ARENA_BYTES: u64 = 4 << 20;
/// Unit of large arenas.
const LARGE_UNIT_BYTES: u64 = 64 << 10;
/// Unit of small arenas, and the least alignment of a value: kernels read whole vectors past the end of a tensor.
const UNIT_BYTES: u64 = 256;
/// Largest upload slot; larger inputs go in pieces.
const UPLOAD_SLOT_BYTES: u64 = 4 << 20;
/// Pieces in which values move between device and host where staging is not larger anyway.
const MOVED_PIECE_BYTES: u64 = 256 << 10;
/// Largest readback buffer; larger outputs come in pieces.
const READBACK_BYTES: u64 = 1 << 20;

/// One program: its graph and the order in which its nodes run where memory does not matter.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) pass: Pass,
    pub(super) samples: usize,
    pub(super) graph: Graph,
    pub(super) storage: Storage,
    pub(super) order: Vec<NodeId>,
    /// Most transient bytes live at once in that order.
    live_bytes: u64,
    /// Bytes of the largest value or workspace.
    largest_bytes: u64,
    /// What one run of each node costs.
    pub(super) node_ns: Vec<f64>,
}

/// What is decided about a step apart from its micro-batches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    /// Names of persistent values that stay in the host tier.
    pub(super) hosted: BTreeSet<String>,
    /// Whether values move to the host tier, so that staging is made for that.
    pub(super) moves: bool,
    /// The sequence of each part.
    pub(super) events: Vec<Vec<Event>>,
}

/// All programs of one way of cutting a step.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) micro_batches: Vec<usize>,
    pub(super) form: Form,
    pub(super) schedule: Vec<usize>,
    pub(super) parts: Vec<Part>,
    chunk_bytes: u64,
    alignment_bytes: u64,
}

/// A plan and what only the planner knows of it.
#[derive(Clone, Debug)]
pub(super) struct Built {
    /// The plan, without the figures that need other plans and the hashes of its graphs.
    pub(super) plan: Plan,
    /// What is in memory at the peak: name, bytes and role of the arena it is in.
    pub(super) peak_tensors: Vec<(String, u64, ArenaRole)>,
    /// Bytes that the transient blocks of each program are packed to.
    pub(super) used_bytes: Vec<u64>,
    /// Steps of work that packing took.
    pub(super) work: u64,
}

impl Draft {
    /// The programs for these micro-batches.
    pub(super) fn new(
        source: &dyn Source,
        request: &Request,
        micro_batches: &[usize],
        form: Form,
    ) -> Result<Draft, PlanError> {
        let alignment_bytes = request.limits.alignment_bytes.max(1).next_multiple_of(UNIT_BYTES);
        let part = |pass: Pass, samples: usize| {
            let graph = form.graph(source, pass, samples, request.batch)?;
            Part::new(graph, pass, samples, alignment_bytes, request)
        };
        let mut parts: Vec<Part> = Vec::new();
        let mut schedule = Vec::new();
        for (pass, &samples) in microbatch::passes(micro_batches.len()).zip(micro_batches) {
            let known = parts.iter().position(|part| (part.pass, part.samples) == (pass, samples));
            schedule.push(known.unwrap_or(parts.len()));
            if known.is_none() {
                parts.push(part(pass, samples)?);
            }
        }
        parts.push(part(Pass::Evaluate, micro_batches[0])?);
        let largest_bytes = parts.iter().map(|part| part.largest_bytes).max();
        let chunk_bytes = chunk_bytes(largest_bytes.unwrap_or(UNIT_BYTES), &request.limits);
        Ok(Draft { micro_batches: micro_batches.to_vec(), form, schedule, parts, chunk_bytes, alignment_bytes })
    }

    /// Every node once, everything on the device.
    pub(super) fn plain(&self) -> Choice {
        let run = |part: &Part| part.order.iter().map(|&node| Event::Run(node)).collect();
        Choice { hosted: BTreeSet::new(), moves: false, events: self.parts.iter().map(run).collect() }
    }

    /// Nodes of all programs.
    pub(super) fn nodes(&self) -> usize {
        self.parts.iter().map(|part| part.order.len()).sum()
    }

    /// Time of a step with every node once and everything on the device.
    pub(super) fn plain_ns(&self, request: &Request) -> u64 {
        let of_part = |part: &Part| {
            let nodes = part.order.iter().map(|node| part.node_ns[node.index()]);
            nodes.fold(request.costs.run_ns(), |sum, ns| sum + ns).round() as u64
        };
        self.schedule.iter().map(|&number| of_part(&self.parts[number])).sum()
    }

    /// The least that this can need.
    pub(super) fn plain_least_bytes(&self, request: &Request) -> Result<u64, PlanError> {
        let live_bytes = self.parts.iter().map(|part| part.live_bytes).max();
        Ok(self.fixed_bytes(request, &BTreeSet::new(), false)? + live_bytes.unwrap_or(0))
    }

    /// Bytes of all that is not transient, with these persistent values in the host tier.
    pub(super) fn fixed_bytes(
        &self,
        request: &Request,
        hosted: &BTreeSet<String>,
        moves: bool,
    ) -> Result<u64, PlanError> {
        let mut arenas = Vec::new();
        place_persistent(&self.parts, hosted, &mut arenas, self.alignment_bytes, self.chunk_bytes)?;
        Ok(request.limits.baseline_bytes + device_bytes(&arenas) + staging(&self.parts, moves).total_bytes())
    }

    /// The largest arena for transient values that keeps the budget, where one is enough.
    pub(super) fn headroom_bytes(budget_bytes: u64, fixed_bytes: u64) -> Option<u64> {
        let headroom_bytes = budget_bytes.checked_sub(fixed_bytes)?;
        let unit = unit_bytes(headroom_bytes);
        Some(headroom_bytes / unit * unit)
    }

    /// The plan for this choice, with memory packed into `enough_bytes` for transient values or as tightly as it can be found
    /// with so much work for each program.
    pub(super) fn build(
        &self,
        request: &Request,
        choice: &Choice,
        enough_bytes: u64,
        work: u64,
    ) -> Result<Built, PlanError> {
        let scheduled = self.parts.iter().zip(&choice.events);
        let scheduled: Vec<_> =
            scheduled.map(|(part, events)| Scheduled::new(part, events.clone(), &choice.hosted)).collect();
        let mut arenas = Vec::new();
        let persistent =
            place_persistent(&self.parts, &choice.hosted, &mut arenas, self.alignment_bytes, self.chunk_bytes)?;
        let blocks = scheduled.iter().map(|part| {
            let intervals = part.lifetimes.blocks.iter().map(Interval::from).collect();
            (intervals, part.lifetimes.peak_bytes.max(enough_bytes))
        });
        let packings = placement::pack_programs(&blocks.collect::<Vec<_>>(), self.chunk_bytes, work);
        let transient = Tier::new(packings, ArenaRole::Transient, &mut arenas);
        let packings = scheduled.iter().map(|part| {
            let intervals: Vec<Interval> = part.moved.iter().map(|&(_, interval)| interval).collect();
            placement::pack_loosely(&intervals, self.chunk_bytes)
        });
        let host = Tier::new(packings.collect(), ArenaRole::Host, &mut arenas);
        let work = transient.packings.iter().chain(&host.packings).map(|packing| packing.work).sum();
        let mut programs = Vec::with_capacity(self.parts.len());
        for (number, part) in scheduled.iter().enumerate() {
            let place = |block: usize| transient.place(number, block, part.lifetimes.blocks[block].size_bytes);
            let moved = part.moved.iter().enumerate();
            let on_host = moved.map(|(i, &(value, interval))| (value, host.place(number, i, interval.size_bytes)));
            programs.push(part.program(&persistent, on_host, &request.costs, &place));
        }
        let staging = staging(&self.parts, choice.moves);
        let peak_bytes = request.limits.baseline_bytes + device_bytes(&arenas) + staging.total_bytes();
        let step_ns = self.schedule.iter().map(|&program| programs[program].predicted_ns).sum();
        let packings = &transient.packings;
        let largest = packings.iter().enumerate().max_by_key(|(i, packing)| (packing.total_bytes(), usize::MAX - i));
        let peak_tensors = peak_tensors(&persistent, &choice.hosted, &scheduled[largest.map_or(0, |(i, _)| i)]);
        let plan = Plan {
            batch: request.batch,
            budget_bytes: request.budget_bytes,
            peak_bytes,
            unconstrained_peak_bytes: peak_bytes,
            unconstrained_step_ns: step_ns,
            minimum_budget_bytes: peak_bytes,
            micro_batches: self.micro_batches.clone(),
            saved: self.form.saved,
            fused: self.form.fused,
            predicted_step_ns: step_ns,
            schedule: self.schedule.clone(),
            evaluate: Some(self.parts.len() - 1),
            programs,
            arenas,
            persistent,
            staging,
            baseline_bytes: request.limits.baseline_bytes,
            bound: None,
            reasons: Vec::new(),
        };
        let used_bytes = packings.iter().map(Packing::total_bytes).collect();
        Ok(Built { plan, peak_tensors, used_bytes, work })
    }

    /// A plan of these programs with their graphs: once for the plan that is chosen, as these are large.
    pub(super) fn planned(&self, mut plan: Plan) -> Planned {
        let graphs: Vec<_> = self.parts.iter().map(|part| part.graph.clone()).collect();
        for (program, graph) in plan.programs.iter_mut().zip(&graphs) {
            program.graph_hash = graph.hash();
        }
        Planned { plan, graphs }
    }
}

impl Part {
    fn new(
        graph: Graph,
        pass: Pass,
        samples: usize,
        alignment_bytes: u64,
        request: &Request,
    ) -> Result<Part, PlanError> {
        let storage = Storage::of(&graph, alignment_bytes)?;
        // Before all that takes long: where batches are large, many ways to cut them end here.
        let most_bytes = most_bytes(&request.limits);
        let limit_bytes = request.limits.max_binding_bytes.min(most_bytes);
        let largest_bytes = storage.largest_bytes(&graph, limit_bytes, most_bytes)?.max(UNIT_BYTES);
        let (order, lifetimes) = order::best(&graph, &storage);
        let node_ns = request.costs.all_ns(&graph);
        let live_bytes = lifetimes.peak_bytes;
        Ok(Part { pass, samples, graph, storage, order, live_bytes, largest_bytes, node_ns })
    }
}

/// A part with its sequence settled.
struct Scheduled<'a> {
    part: &'a Part,
    storage: Storage,
    events: Vec<Event>,
    lifetimes: Lifetimes,
    /// When the host tier holds values of this run.
    moved: Vec<(ValueId, Interval)>,
}

impl<'a> Scheduled<'a> {
    fn new(part: &'a Part, events: Vec<Event>, hosted: &BTreeSet<String>) -> Self {
        let storage = part.storage.hosting(&part.graph, hosted);
        let lifetimes = Lifetimes::of(&part.graph, &storage, &events);
        let moved = lifetimes.moved(&storage, &events);
        Scheduled { part, storage, events, lifetimes, moved }
    }

    fn program(
        &self,
        persistent: &[Persistent],
        on_host: impl Iterator<Item = (ValueId, Allocation)>,
        costs: &CostModel,
        place: &dyn Fn(usize) -> Allocation,
    ) -> Program {
        let Part { graph, .. } = self.part;
        let by_name: BTreeMap<_, _> = persistent.iter().map(|value| (value.name.as_str(), value.place)).collect();
        // Where each value is when it is not in memory of this run.
        let mut homes = BTreeMap::new();
        for root in self.storage.root_ids() {
            if let Kind::Persistent(named) | Kind::Hosted(named) = self.storage.kind(root) {
                homes.insert(root, by_name[graph.value(named).name.as_str()]);
            }
        }
        let inputs = self.lifetimes.inputs.iter().map(|&(root, block)| (root, place(block)));
        let places = inputs.chain(homes.iter().map(|(&root, &home)| (root, home))).collect();
        homes.extend(on_host);
        let mut predicted_ns = costs.run_ns();
        let mut commands = Vec::new();
        for (time, step) in self.lifetimes.steps.iter().enumerate() {
            match time.checked_sub(1).map(|position| self.events[position]) {
                None => {}
                Some(Event::Run(node)) => {
                    let outputs = graph.node(node).outputs.iter().zip(&step.outputs);
                    let outputs = outputs.map(|(root, block)| block.map_or_else(|| homes[root], place)).collect();
                    let workspaces = step.workspaces.iter().map(|&block| place(block)).collect();
                    predicted_ns += self.part.node_ns[node.index()];
                    commands.push(Command::Dispatch { node, outputs, workspaces, in_place: step.in_place });
                }
                Some(Event::Fetch(value)) => {
                    let to = place(step.outputs[0].expect("bug: a fetched value has no memory"));
                    predicted_ns += costs.prefetch_ns(graph.value(value).desc.size_bytes());
                    commands.push(Command::Prefetch { value, from: homes[&value], to });
                }
            }
            for &(value, offloaded) in &step.ends {
                if offloaded {
                    let to = homes[&value];
                    predicted_ns += costs.offload_ns(graph.value(value).desc.size_bytes());
                    commands.push(Command::Offload { value, to });
                } else {
                    commands.push(Command::Free { value });
                }
            }
        }
        Program {
            pass: self.part.pass,
            samples: self.part.samples,
            graph_hash: String::new(),
            places,
            commands,
            live_peak_bytes: self.lifetimes.peak_bytes,
            predicted_ns: predicted_ns.round() as u64,
        }
    }
}

/// Arenas that programs use one after the other, each as large as the program needs that needs most.
struct Tier {
    packings: Vec<Packing>,
    first_arena: u32,
}

impl Tier {
    fn new(packings: Vec<Packing>, role: ArenaRole, arenas: &mut Vec<Arena>) -> Self {
        let first_arena = arenas.len() as u32;
        let chunks = placement::largest_chunks(&packings).into_iter();
        arenas.extend(chunks.map(|used_bytes| Arena { role, size_bytes: arena_bytes(used_bytes) }));
        Tier { packings, first_arena }
    }

    fn place(&self, program: usize, interval: usize, size_bytes: u64) -> Allocation {
        let packing = &self.packings[program];
        let offset = packing.offsets[interval];
        let arena = self.first_arena + (offset / packing.chunk_bytes) as u32;
        Allocation { arena, offset_bytes: offset % packing.chunk_bytes, size_bytes }
    }
}

/// The largest arena.
fn most_bytes(limits: &Limits) -> u64 {
    round_down(limits.max_buffer_bytes)
}

fn round_down(bytes: u64) -> u64 {
    bytes - bytes % unit_bytes(bytes)
}

/// The size at which arenas are cut.
fn chunk_bytes(largest_bytes: u64, limits: &Limits) -> u64 {
    let most = most_bytes(limits);
    let chunk_bytes = round_down(most.min(CHUNK_BYTES));
    // A single value above the usual cut gets a longer chunk, as far as the device allows.
    let largest_bytes = largest_bytes.next_multiple_of(unit_bytes(largest_bytes));
    if largest_bytes > chunk_bytes { most } else { chunk_bytes }
}

/// Bytes of the arenas on the device.
fn device_bytes(arenas: &[Arena]) -> u64 {
    arenas.iter().filter(|arena| arena.role != ArenaRole::Host).map(|arena| arena.size_bytes).sum()
}

/// What the size of an arena is a multiple of.
fn unit_bytes(size_bytes: u64) -> u64 {
    if size_bytes > LARGE_ARENA_BYTES { LARGE_UNIT_BYTES } else { UNIT_BYTES }
}

fn arena_bytes(used_bytes: u64) -> u64 {
    used_bytes.max(1).next_multiple_of(unit_bytes(used_bytes))
}

fn arena_role(role: Role) -> ArenaRole {
    match role {
        Role::Parameter => ArenaRole::Parameters,
        Role::Buffer => ArenaRole::Buffers,
        Role::State => ArenaRole::State,
        Role::Accumulator => ArenaRole::Accumulators,
        Role::Input | Role::Intermediate | Role::Output => ArenaRole::Transient,
    }
}

/// Places the persistent values of all programs one after another, in arenas by role, or
/// in the host tier.
fn place_persistent(
    parts: &[Part],
    hosted: &BTreeSet<String>,
    arenas: &mut Vec<Arena>,
    alignment_bytes: u64,
    chunk_bytes: u64,
) -> Result<Vec<Persistent>, PlanError> {
    let mut known: BTreeMap<&str, (Role, &TensorDesc)> = BTreeMap::new();
    let mut values = Vec::new();
    for part in parts {
        for value in part.graph.values().iter().filter(|value| value.role.is_persistent()) {
            match known.insert(&value.name, (value.role, &value.desc)) {
                None => values.push(value),
                Some(before) if before == (value.role, &value.desc) => {}
                Some((_, desc)) => {
                    return Err(PlanError::Invalid(format!(
                        "`{}` is {desc} in one program and {} in another",
                        value.name, value.desc
                    )));
                }
            }
        }
    }
    let mut persistent = Vec::with_capacity(values.len());
    let tiers = [Role::Parameter, Role::Buffer, Role::State, Role::Accumulator].map(|role| (role, false));
    for (role, on_host) in tiers.into_iter().chain(tiers.map(|(role, _)| (role, true))) {
        let mut used_bytes = chunk_bytes;
        let here = |value: &&&Value| value.role == role && hosted.contains(&value.name) == on_host;
        for value in values.iter().filter(here) {
            let size_bytes = value.desc.size_bytes().max(1).next_multiple_of(alignment_bytes);
            if used_bytes + size_bytes > chunk_bytes {
                let role = if on_host { ArenaRole::Host } else { arena_role(role) };
                arenas.push(Arena { role, size_bytes: 0 });
                used_bytes = 0;
            }
            let place = Allocation { arena: arenas.len() as u32 - 1, offset_bytes: used_bytes, size_bytes };
            persistent.push(Persistent { name: value.name.clone(), role, desc: value.desc.clone(), place });
            used_bytes += size_bytes;
            if let Some(arena) = arenas.last_mut() {
                arena.size_bytes = arena_bytes(used_bytes);
            }
        }
    }
    Ok(persistent)
}

/// Staging buffers for the inputs and outputs, and where values move to the host and back, for the largest of them.
fn staging(parts: &[Part], moves: bool) -> Staging {
    let values = |part: &Part, role: Role| {
        let sizes = part.graph.values().iter().filter(move |value| value.role == role);
        sizes.map(|value| value.desc.size_bytes()).collect::<Vec<_>>()
    };
    let inputs = parts.iter().map(|part| values(part, Role::Input).iter().sum::<u64>()).max();
    let output = parts.iter().flat_map(|part| values(part, Role::Output)).max();
    let sizes = parts.iter().flat_map(|part| part.graph.values().iter().map(|value| value.desc.size_bytes()));
    let moved = if moves { sizes.max().unwrap_or(0).min(MOVED_PIECE_BYTES) } else { 0 };
    let slot = |bytes: u64, most: u64| bytes.clamp(UNIT_BYTES, most).max(moved).next_multiple_of(UNIT_BYTES);
    Staging {
        upload_slot_bytes: slot(inputs.unwrap_or(0), UPLOAD_SLOT_BYTES),
        upload_slots: 2,
        readback_bytes: slot(output.unwrap_or(0), READBACK_BYTES),
    }
}

/// What is in memory when this program needs most, largest first.
fn peak_tensors(
    persistent: &[Persistent],
    hosted: &BTreeSet<String>,
    part: &Scheduled<'_>,
) -> Vec<(String, u64, ArenaRole)> {
    let on_device = persistent.iter().filter(|value| !hosted.contains(&value.name));
    let mut tensors: Vec<_> =
        on_device.map(|value| (value.name.clone(), value.place.size_bytes, arena_role(value.role))).collect();
    let time = part.lifetimes.peak_time;
    let live = |block: &&Block| block.start <= time && time < block.end;
    for block in part.lifetimes.blocks.iter().filter(live) {
        let name = match &block.owner {
            Owner::Values(values) => {
                let holder = values.iter().rev().find(|(start, _)| *start <= time);
                holder.map_or_else(String::new, |&(_, value)| part.part.graph.value(value).name.clone())
            }
            Owner::Workspace(node, _) => format!("workspace of {}", part.part.graph.node(*node).name),
        };
        tensors.push((name, block.size_bytes, ArenaRole::Transient));
    }
    tensors.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    tensors
}

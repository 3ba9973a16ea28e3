//! Builds the plan for one way of cutting a step: orders every program, then lays out all memory.

use std::collections::BTreeMap;

use super::lifetime::{Block, Kind, Lifetimes, Owner, Storage};
use super::placement::{self, Interval};
use super::{
    Arena, ArenaRole, Command, CostModel, Limits, Pass, Persistent, Place, Plan, Planned, Program, Request, Source,
    Staging, microbatch, order,
};
use crate::error::PlanError;
use crate::graph::{Graph, Role};
use crate::tensor::{NodeId, TensorDesc};

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
/// Largest readback buffer; larger outputs come in pieces.
const READBACK_BYTES: u64 = 1 << 20;

/// A program whose order is settled.
#[derive(Debug)]
struct Part {
    pass: Pass,
    samples: usize,
    graph: Graph,
    storage: Storage,
    order: Vec<NodeId>,
    lifetimes: Lifetimes,
}

/// A plan and what only the planner knows of it.
#[derive(Debug)]
pub(super) struct Built {
    /// The plan, without the figures that need other plans, and its graphs.
    pub(super) planned: Planned,
    /// What is in memory at the peak: name, bytes and role of the arena it is in.
    pub(super) peak_tensors: Vec<(String, u64, ArenaRole)>,
}

/// The plan for these micro-batches.
pub(super) fn build(source: &dyn Source, request: &Request, micro_batches: &[usize]) -> Result<Built, PlanError> {
    let alignment_bytes = request.limits.alignment_bytes.max(1).next_multiple_of(UNIT_BYTES);
    let mut parts: Vec<Part> = Vec::new();
    let mut schedule = Vec::new();
    for (pass, &samples) in microbatch::passes(micro_batches.len()).zip(micro_batches) {
        let known = parts.iter().position(|part| (part.pass, part.samples) == (pass, samples));
        schedule.push(known.unwrap_or(parts.len()));
        if known.is_none() {
            parts.push(Part::new(source, pass, samples, request.batch, alignment_bytes)?);
        }
    }
    let evaluate = parts.len();
    parts.push(Part::new(source, Pass::Evaluate, micro_batches[0], request.batch, alignment_bytes)?);

    let chunk_bytes = chunk_bytes(&parts, &request.limits)?;
    let mut arenas = Vec::new();
    let persistent = place_persistent(&parts, &mut arenas, alignment_bytes, chunk_bytes)?;
    let (packings, transient_arenas) = pack_transients(&parts, chunk_bytes);
    let first_transient = arenas.len() as u32;
    arenas.extend(transient_arenas);
    let staging = staging(&parts);
    let arena_bytes: u64 = arenas.iter().map(|arena| arena.size_bytes).sum();
    let peak_bytes = request.limits.baseline_bytes + arena_bytes + staging.total_bytes();

    let mut programs = Vec::with_capacity(parts.len());
    for (part, packing) in parts.iter().zip(&packings) {
        let place = |offset: u64, size_bytes: u64| Place {
            arena: first_transient + (offset / chunk_bytes) as u32,
            offset_bytes: offset % chunk_bytes,
            size_bytes,
        };
        programs.push(part.program(&persistent, &packing.offsets, &request.costs, place));
    }
    let largest = packings.iter().enumerate().max_by_key(|(i, packing)| (packing.total_bytes(), usize::MAX - i));
    let peak_tensors = peak_tensors(&persistent, &parts[largest.map_or(0, |(i, _)| i)]);
    let plan = Plan {
        batch: request.batch,
        budget_bytes: request.budget_bytes,
        peak_bytes,
        unconstrained_peak_bytes: 0,
        minimum_budget_bytes: 0,
        micro_batches: micro_batches.to_vec(),
        predicted_step_ns: schedule.iter().map(|&program| programs[program].predicted_ns).sum(),
        schedule,
        evaluate: Some(evaluate),
        programs,
        arenas,
        persistent,
        staging,
        baseline_bytes: request.limits.baseline_bytes,
        bound: None,
        reasons: Vec::new(),
    };
    let graphs = parts.into_iter().map(|part| part.graph).collect();
    Ok(Built { planned: Planned { plan, graphs }, peak_tensors })
}

impl Part {
    fn new(
        source: &dyn Source,
        pass: Pass,
        samples: usize,
        batch: usize,
        alignment_bytes: u64,
    ) -> Result<Part, PlanError> {
        let graph = source.graph(pass, samples, batch)?;
        let storage = Storage::of(&graph, alignment_bytes)?;
        let (order, lifetimes) = order::best(&graph, &storage);
        Ok(Part { pass, samples, graph, storage, order, lifetimes })
    }

    fn program(
        &self,
        persistent: &[Persistent],
        offsets: &[u64],
        costs: &CostModel,
        place: impl Fn(u64, u64) -> Place,
    ) -> Program {
        let by_name: BTreeMap<_, _> = persistent.iter().map(|value| (value.name.as_str(), value.place)).collect();
        let mut places = BTreeMap::new();
        for root in self.storage.root_ids() {
            if let Kind::Persistent(named) = self.storage.kind(root) {
                places.insert(root, by_name[self.graph.value(named).name.as_str()]);
            }
        }
        let mut workspaces: BTreeMap<NodeId, Vec<Place>> = BTreeMap::new();
        for (block, &offset) in self.lifetimes.blocks.iter().zip(offsets) {
            let place = place(offset, block.size_bytes);
            match &block.owner {
                Owner::Values(values) => places.extend(values.iter().map(|&(_, value)| (value, place))),
                Owner::Workspace(node, _) => workspaces.entry(*node).or_default().push(place),
            }
        }
        let mut commands = Vec::new();
        for (time, frees) in self.lifetimes.frees.iter().enumerate() {
            if time > 0 {
                commands.push(Command::Dispatch { node: self.order[time - 1] });
            }
            commands.extend(frees.iter().map(|&value| Command::Free { value }));
        }
        let predicted: f64 = self.order.iter().map(|&node| costs.node_ns(&self.graph, node)).sum();
        Program {
            pass: self.pass,
            samples: self.samples,
            graph_hash: self.graph.hash(),
            commands,
            places,
            workspaces,
            in_place: self.lifetimes.in_place.clone(),
            live_peak_bytes: self.lifetimes.peak_bytes,
            predicted_ns: predicted.round() as u64,
        }
    }
}

/// The size at which arenas are cut, if every value fits one and can be bound.
fn chunk_bytes(parts: &[Part], limits: &Limits) -> Result<u64, PlanError> {
    let unit = |bytes: u64| if bytes > LARGE_ARENA_BYTES { LARGE_UNIT_BYTES } else { UNIT_BYTES };
    let round_down = |bytes: u64| bytes - bytes % unit(bytes);
    let most = round_down(limits.max_buffer_bytes);
    let limit_bytes = limits.max_binding_bytes.min(most);
    let mut largest_bytes = UNIT_BYTES;
    for part in parts {
        let values = part.storage.root_ids().map(|root| {
            let named = match part.storage.kind(root) {
                Kind::Persistent(named) => named,
                Kind::Transient { .. } => root,
            };
            let value = part.graph.value(named);
            (value.name.clone(), value.desc.size_bytes(), part.storage.size_bytes(root))
        });
        let workspaces = part.graph.node_ids().flat_map(|node| {
            let name = format!("workspace of {}", part.graph.node(node).name);
            part.storage.workspaces[node.index()].iter().map(move |&bytes| (name.clone(), bytes, bytes))
        });
        for (value, size_bytes, rounded_bytes) in values.chain(workspaces) {
            if size_bytes > limit_bytes || rounded_bytes > most {
                return Err(PlanError::Binding { value, size_bytes, limit_bytes });
            }
            largest_bytes = largest_bytes.max(rounded_bytes);
        }
    }
    let chunk_bytes = round_down(most.min(CHUNK_BYTES));
    // A single value above the usual cut gets a longer chunk, as far as the device allows.
    let largest_bytes = largest_bytes.next_multiple_of(unit(largest_bytes));
    Ok(if largest_bytes > chunk_bytes { most } else { chunk_bytes })
}

fn arena_bytes(used_bytes: u64) -> u64 {
    let unit = if used_bytes > LARGE_ARENA_BYTES { LARGE_UNIT_BYTES } else { UNIT_BYTES };
    used_bytes.max(1).next_multiple_of(unit)
}

fn arena_role(role: Role) -> ArenaRole {
    match role {
        Role::Parameter => ArenaRole::Parameters,
        Role::State => ArenaRole::State,
        Role::Accumulator => ArenaRole::Accumulators,
        Role::Input | Role::Intermediate | Role::Output => ArenaRole::Transient,
    }
}

/// Places the persistent values of all programs one after another, in arenas by role.
fn place_persistent(
    parts: &[Part],
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
    for role in [Role::Parameter, Role::State, Role::Accumulator] {
        let mut used_bytes = chunk_bytes;
        for value in values.iter().filter(|value| value.role == role) {
            let size_bytes = value.desc.size_bytes().max(1).next_multiple_of(alignment_bytes);
            if used_bytes + size_bytes > chunk_bytes {
                arenas.push(Arena { role: arena_role(role), size_bytes: 0 });
                used_bytes = 0;
            }
            let place = Place { arena: arenas.len() as u32 - 1, offset_bytes: used_bytes, size_bytes };
            persistent.push(Persistent { name: value.name.clone(), role, desc: value.desc.clone(), place });
            used_bytes += size_bytes;
            if let Some(arena) = arenas.last_mut() {
                arena.size_bytes = arena_bytes(used_bytes);
            }
        }
    }
    Ok(persistent)
}

/// Packs each program's blocks; the programs share their arenas, which are as large as the largest program needs.
fn pack_transients(parts: &[Part], chunk_bytes: u64) -> (Vec<placement::Packing>, Vec<Arena>) {
    let mut packings = Vec::with_capacity(parts.len());
    let mut chunks: Vec<u64> = Vec::new();
    for part in parts {
        let intervals: Vec<Interval> = part.lifetimes.blocks.iter().map(Interval::from).collect();
        let packing = placement::pack(&intervals, chunk_bytes, part.lifetimes.peak_bytes);
        chunks.resize(chunks.len().max(packing.chunks.len()), 0);
        for (chunk, &used_bytes) in chunks.iter_mut().zip(&packing.chunks) {
            *chunk = (*chunk).max(used_bytes);
        }
        packings.push(packing);
    }
    let arenas = chunks
        .into_iter()
        .map(|used_bytes| Arena { role: ArenaRole::Transient, size_bytes: arena_bytes(used_bytes) })
        .collect();
    (packings, arenas)
}

fn staging(parts: &[Part]) -> Staging {
    let values = |part: &Part, role: Role| {
        let sizes = part.graph.values().iter().filter(move |value| value.role == role);
        sizes.map(|value| value.desc.size_bytes()).collect::<Vec<_>>()
    };
    let inputs = parts.iter().map(|part| values(part, Role::Input).iter().sum::<u64>()).max();
    let output = parts.iter().flat_map(|part| values(part, Role::Output)).max();
    Staging {
        upload_slot_bytes: inputs.unwrap_or(0).clamp(UNIT_BYTES, UPLOAD_SLOT_BYTES).next_multiple_of(UNIT_BYTES),
        upload_slots: 2,
        readback_bytes: output.unwrap_or(0).clamp(UNIT_BYTES, READBACK_BYTES).next_multiple_of(UNIT_BYTES),
    }
}

/// What is in memory when this program needs most, largest first.
fn peak_tensors(persistent: &[Persistent], part: &Part) -> Vec<(String, u64, ArenaRole)> {
    let mut tensors: Vec<_> =
        persistent.iter().map(|value| (value.name.clone(), value.place.size_bytes, arena_role(value.role))).collect();
    let time = part.lifetimes.peak_time;
    let live = |block: &&Block| block.start <= time && time < block.end;
    for block in part.lifetimes.blocks.iter().filter(live) {
        let name = match &block.owner {
            Owner::Values(values) => {
                let holder = values.iter().rev().find(|(start, _)| *start <= time);
                holder.map_or_else(String::new, |&(_, value)| part.graph.value(value).name.clone())
            }
            Owner::Workspace(node, _) => format!("workspace of {}", part.graph.node(*node).name),
        };
        tensors.push((name, block.size_bytes, ArenaRole::Transient));
    }
    tensors.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    tensors
}

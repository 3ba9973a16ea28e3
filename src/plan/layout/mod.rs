//! Where every byte lies under a schedule: lifetimes of blocks, their offsets in arenas, and what all of that takes.

pub(super) mod arenas;
pub(super) mod lifetime;
pub(super) mod placement;

use std::rc::Rc;

use arenas::PlacedValue;
use lifetime::{Block, Lifetimes, Owner};
use placement::{Interval, Packing, ProgramBlocks};

use super::candidate::storage::Storage;
use super::candidate::{Candidate, ProgramGraph};
use super::schedule::{Event, OffloadPolicy, Schedule};
use super::{Allocation, Arena, ArenaRole, CostModel, Staging};
use crate::tensor::ValueId;

/// A schedule with a place for everything.
#[derive(Clone, Debug)]
pub(super) struct Layout<'a> {
    pub(super) schedule: Rc<Schedule<'a>>,
    pub(super) arenas: Vec<Arena>,
    /// Where persistent values are.
    pub(super) persistent: Vec<PlacedValue>,
    /// Where each program's blocks are.
    pub(super) transient: SharedArenas,
    /// Where each program's values are in the host tier.
    pub(super) host: SharedArenas,
    pub(super) staging: Staging,
    /// Bytes on the device: baseline, arenas and staging.
    pub(super) peak_bytes: u64,
    /// Estimated time of one run of each program, and of a step.
    pub(super) program_ns: Vec<u64>,
    pub(super) step_ns: u64,
    /// Steps of work that packing took.
    pub(super) work: u64,
}

/// A tensor that is in memory at the peak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PeakTensor {
    pub(super) name: String,
    pub(super) size_bytes: u64,
}

impl<'a> Layout<'a> {
    /// With memory packed into `enough_bytes` for transient values, or as tightly as it can be found with so much work for each
    /// program.
    pub(super) fn new(schedule: Rc<Schedule<'a>>, enough_bytes: u64, work: u64) -> Self {
        let candidate = &*schedule.candidate;
        let programs: Vec<_> = (0..candidate.programs.len()).map(|number| Liveness::of(&schedule, number)).collect();
        let mut arenas = Vec::new();
        let persistent = arenas::place_persistent(candidate, &schedule.offload, &mut arenas);
        let blocks = programs.iter().map(|program| {
            let intervals = program.lifetimes.blocks.iter().map(Interval::from).collect();
            ProgramBlocks { intervals, enough_bytes: program.lifetimes.peak_bytes.max(enough_bytes) }
        });
        let packings = placement::pack_programs(&blocks.collect::<Vec<_>>(), candidate.chunk_bytes, work);
        let transient = SharedArenas::new(packings, ArenaRole::Transient, &mut arenas);
        let packings = programs.iter().map(|program| {
            let intervals: Vec<Interval> = program.moved.iter().map(|&(_, interval)| interval).collect();
            placement::pack_loosely(&intervals, candidate.chunk_bytes)
        });
        let host = SharedArenas::new(packings.collect(), ArenaRole::Host, &mut arenas);
        let work = transient.packings.iter().chain(&host.packings).map(|packing| packing.work).sum();
        let costs = &candidate.request.costs;
        let program_ns: Vec<_> = programs.iter().map(|program| program.run_ns(costs)).collect();
        let step_ns = candidate.program_of.iter().map(|&program| program_ns[program]).sum();
        let staging = arenas::staging(&candidate.programs, schedule.offload.moves, &candidate.request.limits);
        let baseline_bytes = candidate.request.limits.baseline_bytes;
        let peak_bytes = baseline_bytes + arenas::device_bytes(&arenas) + staging.total_bytes();
        drop(programs);
        Layout { schedule, arenas, persistent, transient, host, staging, peak_bytes, program_ns, step_ns, work }
    }

    pub(super) fn candidate(&self) -> &Rc<Candidate<'a>> {
        &self.schedule.candidate
    }

    /// Bytes that the transient blocks of each program are packed to.
    pub(super) fn used_bytes(&self) -> Vec<u64> {
        self.transient.packings.iter().map(Packing::total_bytes).collect()
    }

    /// What is in memory when the program that needs most does so, largest first.
    pub(super) fn peak_tensors(&self) -> Vec<PeakTensor> {
        let persistent = self.persistent.iter().map(|&PlacedValue { number, place }| {
            let name = &self.candidate().persistent[number].name;
            PeakTensor { name: name.clone(), size_bytes: place.size_bytes }
        });
        let hosted = &self.schedule.offload.hosted;
        let mut tensors: Vec<_> = persistent.filter(|tensor| !hosted.contains(&tensor.name)).collect();
        let used_bytes = self.used_bytes();
        let largest = (0..used_bytes.len()).rev().max_by_key(|&number| used_bytes[number]).unwrap_or(0);
        let Liveness { program: ProgramGraph { graph, .. }, lifetimes, .. } = Liveness::of(&self.schedule, largest);
        let time = lifetimes.peak_time;
        let live = |block: &&Block| block.start <= time && time < block.end;
        for block in lifetimes.blocks.iter().filter(live) {
            let name = match &block.owner {
                Owner::Values(values) => {
                    let holder = values.iter().rev().find(|(start, _)| *start <= time);
                    holder.map_or_else(String::new, |&(_, value)| graph.value(value).name.clone())
                }
                Owner::Workspace(node, _) => format!("workspace of {}", graph.node(*node).name),
            };
            tensors.push(PeakTensor { name, size_bytes: block.size_bytes });
        }
        tensors.sort_by(|a, b| b.size_bytes.cmp(&a.size_bytes).then_with(|| a.name.cmp(&b.name)));
        tensors
    }
}

/// Bytes of all that is not transient under this policy.
pub(super) fn fixed_bytes(candidate: &Candidate<'_>, policy: &OffloadPolicy) -> u64 {
    let mut arenas = Vec::new();
    arenas::place_persistent(candidate, policy, &mut arenas);
    let staging = arenas::staging(&candidate.programs, policy.moves, &candidate.request.limits);
    candidate.request.limits.baseline_bytes + arenas::device_bytes(&arenas) + staging.total_bytes()
}

/// The largest arena for transient values that keeps the budget, where one is enough; none where all else takes more.
pub(super) fn headroom_bytes(candidate: &Candidate<'_>, policy: &OffloadPolicy, budget_bytes: u64) -> Option<u64> {
    budget_bytes.checked_sub(fixed_bytes(candidate, policy)).map(arenas::round_down)
}

/// What is in memory at each time of a program's run.
#[derive(Debug)]
pub(super) struct Liveness<'s> {
    pub(super) program: &'s ProgramGraph,
    pub(super) storage: Storage,
    pub(super) events: &'s [Event],
    pub(super) lifetimes: Lifetimes,
    /// When the host tier holds values of this run.
    pub(super) moved: Vec<(ValueId, Interval)>,
}

impl<'s> Liveness<'s> {
    /// That of one program under its schedule.
    pub(super) fn of(schedule: &'s Schedule<'_>, number: usize) -> Self {
        let (program, events) = (&schedule.candidate.programs[number], &*schedule.events[number]);
        let storage = program.storage.hosting(&program.graph, &schedule.offload.hosted);
        let lifetimes = Lifetimes::of(&program.graph, &storage, events);
        let moved = lifetimes.moved(&storage, events);
        Liveness { program, storage, events, lifetimes, moved }
    }

    /// The event at each time, with what it takes and frees. At time 0 inputs are uploaded.
    pub(super) fn steps(&self) -> impl Iterator<Item = (Option<Event>, &lifetime::Step)> {
        let events = std::iter::once(None).chain(self.events.iter().copied().map(Some));
        events.zip(&self.lifetimes.steps)
    }

    /// Estimated time of one run.
    fn run_ns(&self, costs: &CostModel) -> u64 {
        let size_bytes = |value: ValueId| self.program.graph.value(value).desc.size_bytes();
        let mut run_ns = costs.run_ns();
        for (event, step) in self.steps() {
            match event {
                None => {}
                Some(Event::Run(node)) => run_ns += self.program.node_ns[node.index()],
                Some(Event::Fetch(value)) => run_ns += costs.prefetch_ns(size_bytes(value)),
            }
            for &(value, _) in step.ends.iter().filter(|&&(_, offloaded)| offloaded) {
                run_ns += costs.offload_ns(size_bytes(value));
            }
        }
        run_ns.round() as u64
    }
}

/// Arenas that programs use one after the other, each as large as the program needs that needs most.
#[derive(Clone, Debug)]
pub(super) struct SharedArenas {
    packings: Vec<Packing>,
    first_arena: u32,
}

impl SharedArenas {
    fn new(packings: Vec<Packing>, role: ArenaRole, arenas: &mut Vec<Arena>) -> Self {
        let first_arena = arenas.len() as u32;
        let chunks = placement::largest_chunks(&packings).into_iter();
        arenas.extend(chunks.map(|used_bytes| Arena { role, size_bytes: arenas::arena_bytes(used_bytes) }));
        SharedArenas { packings, first_arena }
    }

    /// Where an interval of a program is.
    pub(super) fn place(&self, program: usize, interval: usize, size_bytes: u64) -> Allocation {
        let packing = &self.packings[program];
        let offset = packing.offsets[interval];
        let arena = self.first_arena + (offset / packing.chunk_bytes) as u32;
        Allocation { arena, offset_bytes: offset % packing.chunk_bytes, size_bytes }
    }
}

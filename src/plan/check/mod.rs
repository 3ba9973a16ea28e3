//! An independent check of a plan: it replays every program on an account of who wrote which bytes last. It shares
//! nothing with the planner but the types.

mod replay;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::replay::replay;
use super::{Allocation, Arena, ArenaRole, Command, Pass, Persistent, Plan, Program};
use crate::error::PlanError;
use crate::graph::{Graph, Role};
use crate::tensor::ValueId;

/// Every place starts at a multiple of this.
const ALIGNMENT_BYTES: u64 = 256;

type Check = Result<(), String>;

macro_rules! ensure {
    ($holds:expr, $($message:tt)*) => {
        if !$holds {
            return Err(format!($($message)*));
        }
    };
}
use ensure;

/// Replays a plan: each read finds the version of its value that the graph means; each value is in memory when it is
/// used; nothing that is in memory overlaps, apart from outputs that reuse an input in place as their op allows; every node
/// runs, and those that may run only once do; persistent values lie at one place; and the bytes add up to at most the
/// budget.
///
/// # Errors
/// [`PlanError::Invalid`] with the first thing that is wrong.
pub fn check(plan: &Plan, graphs: &[Arc<Graph>]) -> Result<(), PlanError> {
    check_bytes(plan)
        .and_then(|()| check_schedule(plan))
        .and_then(|()| check_persistent(plan))
        .and_then(|()| {
            ensure!(
                graphs.len() == plan.programs.len(),
                "{} programs, but {} graphs",
                plan.programs.len(),
                graphs.len()
            );
            for (number, (program, graph)) in plan.programs.iter().zip(graphs).enumerate() {
                check_program(plan, program, graph)
                    .map_err(|reason| format!("program {number} ({:?}): {reason}", program.pass))?;
            }
            Ok(())
        })
        .map_err(PlanError::Invalid)
}

fn check_bytes(plan: &Plan) -> Check {
    let device = plan.arenas.iter().filter(|arena| arena.role != ArenaRole::Host);
    let uploads = plan.staging.upload_slot_bytes.checked_mul(u64::from(plan.staging.upload_slots));
    let parts = [uploads, Some(plan.staging.readback_bytes), Some(plan.baseline_bytes)].into_iter();
    let sum =
        parts.chain(device.map(|arena| Some(arena.size_bytes))).try_fold(0, |sum: u64, part| sum.checked_add(part?));
    let Some(sum) = sum else { return Err("its bytes are more than can be counted".to_owned()) };
    ensure!(sum == plan.peak_bytes, "baseline, arenas and staging are {sum} bytes, not {}", plan.peak_bytes);
    let budget = plan.budget_bytes.unwrap_or(u64::MAX);
    ensure!(sum <= budget, "the peak of {sum} bytes is above the budget of {budget}");
    Ok(())
}

fn check_schedule(plan: &Plan) -> Check {
    let count = plan.micro_batches.len();
    ensure!(count > 0, "there are no micro-batches");
    ensure!(plan.schedule.len() == count, "{} programs are scheduled for {count} micro-batches", plan.schedule.len());
    let samples = plan.micro_batches.iter().try_fold(0, |sum: usize, &samples| sum.checked_add(samples));
    let Some(samples) = samples else { return Err("its samples are more than can be counted".to_owned()) };
    ensure!(samples == plan.batch, "micro-batches have {samples} samples, the batch {}", plan.batch);
    let mut predicted_ns = 0_u64;
    for (i, (&number, &samples)) in plan.schedule.iter().zip(&plan.micro_batches).enumerate() {
        let Some(program) = plan.programs.get(number) else { return Err(format!("there is no program {number}")) };
        let pass = match (i == 0, i + 1 == count) {
            (true, true) => Pass::Only,
            (true, false) => Pass::First,
            (false, false) => Pass::Middle,
            (false, true) => Pass::Last,
        };
        ensure!(
            (program.pass, program.samples) == (pass, samples),
            "micro-batch {i} of {samples} samples is {pass:?}, but its program is {:?} for {}",
            program.pass,
            program.samples
        );
        predicted_ns = predicted_ns.saturating_add(program.predicted_ns);
    }
    ensure!(predicted_ns == plan.predicted_step_ns, "the programs of a step take {predicted_ns} ns");
    if let Some(number) = plan.evaluate {
        let pass = plan.programs.get(number).map(|program| program.pass);
        ensure!(pass == Some(Pass::Evaluate), "program {number} does not evaluate");
    }
    Ok(())
}

fn check_place(arenas: &[Arena], place: Allocation, role: ArenaRole, size_bytes: u64) -> Check {
    let Some(arena) = arenas.get(place.arena as usize) else { return Err(format!("no arena {}", place.arena)) };
    ensure!(arena.role == role, "it lies in an arena for {:?}, not {role:?}", arena.role);
    ensure!(place.offset_bytes.is_multiple_of(ALIGNMENT_BYTES), "offset {} is not aligned", place.offset_bytes);
    ensure!(place.size_bytes.is_multiple_of(ALIGNMENT_BYTES), "size {} is not aligned", place.size_bytes);
    ensure!(place.size_bytes >= size_bytes, "{} bytes do not hold {size_bytes}", place.size_bytes);
    let end = place.offset_bytes.checked_add(place.size_bytes);
    ensure!(end.is_some_and(|end| end <= arena.size_bytes), "it ends beyond its arena");
    Ok(())
}

fn overlap(a: Allocation, b: Allocation) -> bool {
    a.arena == b.arena
        && a.offset_bytes < b.offset_bytes + b.size_bytes
        && b.offset_bytes < a.offset_bytes + a.size_bytes
}

fn role_arena(role: Role) -> ArenaRole {
    match role {
        Role::Parameter => ArenaRole::Parameters,
        Role::Buffer => ArenaRole::Buffers,
        Role::State => ArenaRole::State,
        Role::Accumulator => ArenaRole::Accumulators,
        _ => ArenaRole::Transient,
    }
}

fn check_persistent(plan: &Plan) -> Check {
    let mut names = BTreeSet::new();
    for value in &plan.persistent {
        ensure!(value.role.is_persistent(), "`{}` is not persistent", value.name);
        ensure!(names.insert(&value.name), "`{}` is there twice", value.name);
        let on_host = plan.arenas.get(value.place.arena as usize).is_some_and(|arena| arena.role == ArenaRole::Host);
        let role = if on_host { ArenaRole::Host } else { role_arena(value.role) };
        check_place(&plan.arenas, value.place, role, value.desc.size_bytes())
            .map_err(|reason| format!("`{}`: {reason}", value.name))?;
    }
    let mut sorted: Vec<&Persistent> = plan.persistent.iter().collect();
    sorted.sort_by_key(|value| value.place);
    for pair in sorted.windows(2) {
        ensure!(!overlap(pair[0].place, pair[1].place), "`{}` and `{}` overlap", pair[0].name, pair[1].name);
    }
    Ok(())
}

/// What the graph means, found without the planner.
struct Meaning<'a> {
    graph: &'a Graph,
    /// For each value, the value that owns its memory.
    owner: Vec<ValueId>,
    /// For each node and input, the number of changes to the input's memory before the node.
    versions: Vec<Vec<usize>>,
    /// Memory that is read back after the program.
    read_back: BTreeSet<ValueId>,
    /// Changes to each memory over the whole program.
    changes: BTreeMap<ValueId, usize>,
    /// Memory that lives across programs, and under which name.
    persistent: BTreeMap<ValueId, ValueId>,
}

impl<'a> Meaning<'a> {
    fn of(graph: &'a Graph) -> Self {
        let mut owner: Vec<ValueId> = graph.value_ids().collect();
        let mut versions = Vec::new();
        let mut changes: BTreeMap<ValueId, usize> = BTreeMap::new();
        for node in graph.nodes() {
            if node.op.is_view() {
                owner[node.outputs[0].index()] = owner[node.inputs[0].index()];
            }
            let seen = node.inputs.iter().map(|id| changes.get(&owner[id.index()]).copied().unwrap_or(0));
            versions.push(seen.collect());
            let changed: BTreeSet<_> = node.op.mutates().iter().map(|&i| owner[node.inputs[i].index()]).collect();
            for memory in changed {
                *changes.entry(memory).or_default() += 1;
            }
        }
        let of_role = |wanted: fn(Role) -> bool| graph.value_ids().filter(move |&id| wanted(graph.value(id).role));
        let read_back = of_role(|role| role == Role::Output).map(|id| owner[id.index()]).collect();
        let persistent = of_role(Role::is_persistent).map(|id| (owner[id.index()], id)).collect();
        Meaning { graph, owner, versions, read_back, changes, persistent }
    }

    fn owner(&self, id: ValueId) -> ValueId {
        self.owner[id.index()]
    }

    fn name(&self, id: ValueId) -> String {
        format!("`{}`", self.graph.value(id).name)
    }
}

/// Places that a program states beforehand: those of inputs and of persistent values, and no other.
fn check_places(plan: &Plan, program: &Program, meaning: &Meaning<'_>) -> Check {
    let graph = meaning.graph;
    for id in graph.value_ids().filter(|&id| meaning.owner(id) == id) {
        let name = meaning.name(id);
        let named = meaning.persistent.get(&id);
        if named.is_none() && graph.value(id).role != Role::Input {
            ensure!(!program.places.contains_key(&id), "{name} has a place before it is made");
            continue;
        }
        let Some(&place) = program.places.get(&id) else { return Err(format!("{name} has no place")) };
        let Some(&named) = named else {
            check_place(&plan.arenas, place, ArenaRole::Transient, graph.value(id).desc.size_bytes())
                .map_err(|reason| format!("{name}: {reason}"))?;
            continue;
        };
        let value = graph.value(named);
        let persistent = plan.persistent.iter().find(|persistent| persistent.name == value.name);
        let Some(persistent) = persistent else { return Err(format!("{name} is not among the persistent values")) };
        ensure!(
            persistent.place == place && persistent.role == value.role && persistent.desc == value.desc,
            "{name} is not where or what it is in other programs"
        );
    }
    let strays = program.places.keys().filter(|id| id.index() >= graph.values().len() || meaning.owner(**id) != **id);
    ensure!(strays.count() == 0, "a value without memory of its own has a place");
    Ok(())
}

fn check_program(plan: &Plan, program: &Program, graph: &Graph) -> Check {
    ensure!(program.graph_hash == graph.hash(), "its graph is another one");
    let meaning = Meaning::of(graph);
    check_places(plan, program, &meaning)?;
    replay(plan, program, &meaning)
}

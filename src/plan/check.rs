//! An independent check of a plan: it replays every program on an account of who wrote which bytes last. It shares
//! nothing with the planner but the types.

use std::collections::{BTreeMap, BTreeSet};

use super::{Arena, ArenaRole, Command, Pass, Persistent, Place, Plan, Program};
use crate::error::PlanError;
use crate::graph::{Graph, Role};
use crate::tensor::{NodeId, TensorDesc, ValueId};

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

/// Replays a plan: each read finds the version of its value that the graph means; each value is in memory when it is
/// used; nothing that is in memory overlaps, apart from outputs that take over an input as their op allows; every node
/// runs, and those that may run only once do; persistent values lie at one place; and the bytes add up to at most the
/// budget.
///
/// # Errors
/// [`PlanError::Invalid`] with the first thing that is wrong.
pub fn check(plan: &Plan, graphs: &[Graph]) -> Result<(), PlanError> {
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
    let arenas: u64 = plan.arenas.iter().map(|arena| arena.size_bytes).sum();
    let staging = plan.staging.upload_slot_bytes * u64::from(plan.staging.upload_slots) + plan.staging.readback_bytes;
    let sum = plan.baseline_bytes + arenas + staging;
    ensure!(sum == plan.peak_bytes, "baseline, arenas and staging are {sum} bytes, not {}", plan.peak_bytes);
    let budget = plan.budget_bytes.unwrap_or(u64::MAX);
    ensure!(sum <= budget, "the peak of {sum} bytes is above the budget of {budget}");
    Ok(())
}

fn check_schedule(plan: &Plan) -> Check {
    let count = plan.micro_batches.len();
    ensure!(count > 0, "there are no micro-batches");
    ensure!(plan.schedule.len() == count, "{} programs are scheduled for {count} micro-batches", plan.schedule.len());
    let samples: usize = plan.micro_batches.iter().sum();
    ensure!(samples == plan.batch, "micro-batches have {samples} samples, the batch {}", plan.batch);
    let mut predicted_ns = 0;
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
        predicted_ns += program.predicted_ns;
    }
    ensure!(predicted_ns == plan.predicted_step_ns, "the programs of a step take {predicted_ns} ns");
    if let Some(number) = plan.evaluate {
        let pass = plan.programs.get(number).map(|program| program.pass);
        ensure!(pass == Some(Pass::Evaluate), "program {number} does not evaluate");
    }
    Ok(())
}

fn check_place(arenas: &[Arena], place: Place, role: ArenaRole, size_bytes: u64) -> Check {
    let Some(arena) = arenas.get(place.arena as usize) else { return Err(format!("no arena {}", place.arena)) };
    ensure!(arena.role == role, "it lies in an arena for {:?}, not {role:?}", arena.role);
    ensure!(place.offset_bytes.is_multiple_of(ALIGNMENT_BYTES), "offset {} is not aligned", place.offset_bytes);
    ensure!(place.size_bytes.is_multiple_of(ALIGNMENT_BYTES), "size {} is not aligned", place.size_bytes);
    ensure!(place.size_bytes >= size_bytes, "{} bytes do not hold {size_bytes}", place.size_bytes);
    let end = place.offset_bytes.checked_add(place.size_bytes);
    ensure!(end.is_some_and(|end| end <= arena.size_bytes), "it ends beyond its arena");
    Ok(())
}

fn overlap(a: Place, b: Place) -> bool {
    a.arena == b.arena
        && a.offset_bytes < b.offset_bytes + b.size_bytes
        && b.offset_bytes < a.offset_bytes + a.size_bytes
}

fn role_arena(role: Role) -> ArenaRole {
    match role {
        Role::Parameter => ArenaRole::Parameters,
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
        check_place(&plan.arenas, value.place, role_arena(value.role), value.desc.size_bytes())
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

/// Who wrote a range of an arena last.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Written {
    end: u64,
    memory: ValueId,
}

struct Replay<'a> {
    program: &'a Program,
    meaning: &'a Meaning<'a>,
    /// Version of each memory that is on the device.
    live: BTreeMap<ValueId, usize>,
    /// Version of each memory that is in the host tier.
    host: BTreeMap<ValueId, usize>,
    /// The last writer of each range of each transient arena, by (arena, start).
    written: BTreeMap<(u32, u64), Written>,
    runs: BTreeMap<NodeId, usize>,
    most_bytes: u64,
}

fn check_program(plan: &Plan, program: &Program, graph: &Graph) -> Check {
    ensure!(program.graph_hash == graph.hash(), "its graph is another one");
    let meaning = Meaning::of(graph);
    check_places(plan, program, &meaning)?;
    let mut replay = Replay {
        program,
        meaning: &meaning,
        live: BTreeMap::new(),
        host: BTreeMap::new(),
        written: BTreeMap::new(),
        runs: BTreeMap::new(),
        most_bytes: 0,
    };
    for id in graph.value_ids().filter(|&id| meaning.owner(id) == id) {
        let value = graph.value(id);
        if value.role == Role::Input {
            replay.allocate(id)?;
            replay.write(id, 0)?;
        } else if meaning.persistent.contains_key(&id) && value.producer.is_none() {
            replay.live.insert(id, 0);
        }
    }
    replay.count(0);
    for (position, &command) in program.commands.iter().enumerate() {
        replay.step(command).map_err(|reason| format!("command {position}: {reason}"))?;
    }
    replay.finish()
}

fn check_places(plan: &Plan, program: &Program, meaning: &Meaning<'_>) -> Check {
    let graph = meaning.graph;
    for id in graph.value_ids().filter(|&id| meaning.owner(id) == id) {
        let name = meaning.name(id);
        let Some(&place) = program.places.get(&id) else { return Err(format!("{name} has no place")) };
        let size_bytes = graph.value(id).desc.size_bytes();
        let Some(&named) = meaning.persistent.get(&id) else {
            check_place(&plan.arenas, place, ArenaRole::Transient, size_bytes)
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
    for id in graph.node_ids() {
        let node = graph.node(id);
        let descs = |ids: &[ValueId]| ids.iter().map(|&id| graph.value(id).desc.clone()).collect::<Vec<TensorDesc>>();
        let wanted = node.op.workspaces(&descs(&node.inputs), &descs(&node.outputs));
        let given = program.workspaces.get(&id).map_or(&[][..], Vec::as_slice);
        ensure!(wanted.len() == given.len(), "`{}` gets {} workspaces, not {}", node.name, given.len(), wanted.len());
        for (&size_bytes, &place) in wanted.iter().zip(given) {
            check_place(&plan.arenas, place, ArenaRole::Transient, size_bytes)
                .map_err(|reason| format!("workspace of `{}`: {reason}", node.name))?;
        }
    }
    Ok(())
}

impl Replay<'_> {
    fn place(&self, memory: ValueId) -> Place {
        self.program.places[&memory]
    }

    fn is_persistent(&self, memory: ValueId) -> bool {
        self.meaning.persistent.contains_key(&memory)
    }

    /// Transient memory that must not be touched.
    fn taken(&self) -> impl Iterator<Item = ValueId> + '_ {
        self.live.keys().copied().filter(|&memory| !self.is_persistent(memory))
    }

    fn count(&mut self, workspace_bytes: u64) {
        let live: u64 = self.taken().map(|memory| self.place(memory).size_bytes).sum();
        self.most_bytes = self.most_bytes.max(live + workspace_bytes);
    }

    fn allocate(&mut self, memory: ValueId) -> Check {
        if !self.is_persistent(memory) {
            let place = self.place(memory);
            if let Some(other) = self.taken().find(|&other| other != memory && overlap(self.place(other), place)) {
                let name = self.meaning.name(other);
                return Err(format!("{} would overwrite {name}, which is still needed", self.meaning.name(memory)));
            }
        }
        self.live.insert(memory, usize::MAX);
        Ok(())
    }

    /// Notes that a range is overwritten; what was there is lost.
    fn overwrite(&mut self, place: Place, memory: Option<ValueId>) {
        let (start, end) = (place.offset_bytes, place.offset_bytes + place.size_bytes);
        let overlapping: Vec<_> = self
            .written
            .range(..(place.arena, end))
            .rev()
            .take_while(|((arena, _), _)| *arena == place.arena)
            .filter(|(_, written)| written.end > start)
            .map(|(&key, _)| key)
            .collect();
        for key in overlapping {
            self.written.remove(&key);
        }
        if let Some(memory) = memory {
            self.written.insert((place.arena, start), Written { end, memory });
        }
    }

    fn write(&mut self, memory: ValueId, version: usize) -> Check {
        ensure!(self.live.contains_key(&memory), "{} is written while it has no memory", self.meaning.name(memory));
        if !self.is_persistent(memory) {
            self.overwrite(self.place(memory), Some(memory));
        }
        self.live.insert(memory, version);
        Ok(())
    }

    fn read(&self, memory: ValueId, version: usize) -> Check {
        let name = self.meaning.name(memory);
        let Some(&found) = self.live.get(&memory) else { return Err(format!("{name} is read, but not in memory")) };
        ensure!(found != usize::MAX, "{name} is read before it is made");
        ensure!(found == version, "version {found} of {name} is read instead of {version}");
        if !self.is_persistent(memory) {
            let place = self.place(memory);
            let expected = Written { end: place.offset_bytes + place.size_bytes, memory };
            let intact = self.written.get(&(place.arena, place.offset_bytes)) == Some(&expected);
            ensure!(intact, "{name} is read after something else was written over it");
        }
        Ok(())
    }

    fn step(&mut self, command: Command) -> Check {
        let known = |id: ValueId| id.index() < self.meaning.graph.values().len();
        match command {
            Command::Dispatch { node } => {
                ensure!(node.index() < self.meaning.graph.nodes().len(), "there is no node {}", node.0);
                self.dispatch(node)
            }
            Command::Free { value } | Command::Offload { value } | Command::Prefetch { value } if !known(value) => {
                Err(format!("there is no value {}", value.0))
            }
            Command::Free { value } => {
                let name = self.meaning.name(value);
                ensure!(!self.is_persistent(value), "{name} is persistent and cannot be freed");
                ensure!(!self.meaning.read_back.contains(&value), "{name} is read back and cannot be freed");
                ensure!(self.live.remove(&value).is_some(), "{name} is freed, but not in memory");
                Ok(())
            }
            Command::Offload { value } => {
                let name = self.meaning.name(value);
                ensure!(!self.is_persistent(value), "{name} is persistent and has no other place");
                let Some(&version) = self.live.get(&value) else {
                    return Err(format!("{name} is offloaded, but not in memory"));
                };
                self.read(value, version)?;
                self.live.remove(&value);
                self.host.insert(value, version);
                Ok(())
            }
            Command::Prefetch { value } => {
                let name = self.meaning.name(value);
                ensure!(!self.live.contains_key(&value), "{name} is fetched, but in memory");
                let Some(version) = self.host.remove(&value) else {
                    return Err(format!("{name} is fetched, but was not offloaded"));
                };
                self.allocate(value)?;
                self.write(value, version)?;
                self.count(0);
                Ok(())
            }
        }
    }

    fn dispatch(&mut self, id: NodeId) -> Check {
        let (program, meaning) = (self.program, self.meaning);
        let node = meaning.graph.node(id);
        ensure!(!node.op.is_view(), "`{}` is a view: it has no kernel to run", node.name);
        let runs = self.runs.entry(id).or_default();
        *runs += 1;
        let once = node.op.flags().once || !node.op.mutates().is_empty();
        ensure!(*runs == 1 || !once, "`{}` ({}) runs a second time", node.name, node.op.name());

        for (&input, &version) in node.inputs.iter().zip(&meaning.versions[id.index()]) {
            self.read(meaning.owner(input), version)?;
        }
        if let Some(&input) = program.in_place.get(&id) {
            self.take_over(id, input)?;
        }
        for &output in &node.outputs {
            match self.live.get(&output) {
                // Made again while it is there: the same bytes in the same place.
                Some(&version) if version != usize::MAX => self.read(output, 0)?,
                _ => self.allocate(output)?,
            }
        }
        let workspaces = program.workspaces.get(&id).map_or(&[][..], Vec::as_slice);
        for (i, &place) in workspaces.iter().enumerate() {
            let other = self.taken().find(|&memory| overlap(self.place(memory), place));
            if let Some(memory) = other {
                return Err(format!("a workspace of `{}` overwrites {}", node.name, meaning.name(memory)));
            }
            let twice = workspaces[..i].iter().any(|&earlier| overlap(earlier, place));
            ensure!(!twice, "workspaces of `{}` overlap", node.name);
        }
        self.count(workspaces.iter().map(|place| place.size_bytes).sum());
        for &place in workspaces {
            self.overwrite(place, None);
        }
        for &output in &node.outputs {
            self.write(output, 0)?;
        }
        let changed: BTreeSet<_> = node.op.mutates().iter().map(|&i| meaning.owner(node.inputs[i])).collect();
        for memory in changed {
            let version = self.live[&memory];
            self.write(memory, version + 1)?;
        }
        Ok(())
    }

    /// Output 0 takes over an input: only where the op can, and where nothing needs the input any more.
    fn take_over(&mut self, id: NodeId, input: usize) -> Check {
        let node = self.meaning.graph.node(id);
        let declared = node.op.in_place().contains(&(input, 0));
        ensure!(declared, "`{}` ({}) cannot work in place on input {input}", node.name, node.op.name());
        let memory = self.meaning.owner(node.inputs[input]);
        let name = self.meaning.name(memory);
        ensure!(!self.is_persistent(memory), "`{}` would destroy {name}, which is persistent", node.name);
        ensure!(!self.meaning.read_back.contains(&memory), "`{}` would destroy {name}, which is read back", node.name);
        let operands = node.inputs.iter().filter(|&&operand| self.meaning.owner(operand) == memory).count();
        ensure!(operands == 1, "`{}` works in place on {name}, which it reads twice", node.name);
        ensure!(!node.op.mutates().contains(&input), "`{}` both changes {name} and takes it over", node.name);
        let (from, to) = (self.place(memory), self.place(node.outputs[0]));
        ensure!(from == to, "`{}` works in place on {name}, but elsewhere", node.name);
        let bytes = |value: ValueId| self.meaning.graph.value(value).desc.size_bytes();
        ensure!(bytes(memory) == bytes(node.outputs[0]), "`{}` takes over {name} of another size", node.name);
        self.live.remove(&memory);
        Ok(())
    }

    fn finish(&self) -> Check {
        let graph = self.meaning.graph;
        for id in graph.node_ids().filter(|&id| !graph.node(id).op.is_view()) {
            ensure!(self.runs.contains_key(&id), "`{}` ({}) never runs", graph.node(id).name, graph.node(id).op.name());
        }
        let last_version = |memory: ValueId| self.meaning.changes.get(&memory).copied().unwrap_or(0);
        for &memory in self.meaning.read_back.iter().chain(self.meaning.persistent.keys()) {
            self.read(memory, last_version(memory)).map_err(|reason| format!("at the end: {reason}"))?;
        }
        if let Some(memory) = self.taken().find(|memory| !self.meaning.read_back.contains(memory)) {
            return Err(format!("{} is never freed", self.meaning.name(memory)));
        }
        ensure!(
            self.most_bytes == self.program.live_peak_bytes,
            "at most {} transient bytes are in memory at once, not {}",
            self.most_bytes,
            self.program.live_peak_bytes
        );
        let in_place = self.program.in_place.keys();
        let unknown = in_place.chain(self.program.workspaces.keys()).any(|id| id.index() >= graph.nodes().len());
        ensure!(!unknown, "it speaks of a node that does not exist");
        Ok(())
    }
}

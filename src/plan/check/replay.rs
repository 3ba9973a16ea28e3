//! Runs a program on an account of who wrote which bytes last.

use std::collections::{BTreeMap, BTreeSet};

use super::{Allocation, ArenaRole, Check, Command, Meaning, Plan, Program, Role, check_place, ensure, overlap};
use crate::ops::workspaces;
use crate::tensor::{NodeId, TensorDesc, ValueId};

/// Who wrote a range of an arena last.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Written {
    end: u64,
    memory: ValueId,
    version: usize,
}

/// What a value's memory on the device holds; `None` until it is written.
type Version = Option<usize>;

struct Replay<'a> {
    plan: &'a Plan,
    program: &'a Program,
    meaning: &'a Meaning<'a>,
    /// Where each memory is that is on the device, and what it holds.
    live: BTreeMap<ValueId, (Allocation, Version)>,
    /// Ranges of transient arenas that must not be touched, by (arena, start): end and memory.
    occupied: BTreeMap<(u32, u64), (u64, ValueId)>,
    /// The last writer of each range of transient arenas and of the host tier, by (arena, start).
    written: BTreeMap<(u32, u64), Written>,
    runs: BTreeMap<NodeId, usize>,
    live_bytes: u64,
    most_bytes: u64,
}

/// Replays all commands of a program from its inputs to its end.
pub(super) fn replay(plan: &Plan, program: &Program, meaning: &Meaning<'_>) -> Check {
    let mut replay = Replay {
        plan,
        program,
        meaning,
        live: BTreeMap::new(),
        occupied: BTreeMap::new(),
        written: BTreeMap::new(),
        runs: BTreeMap::new(),
        live_bytes: 0,
        most_bytes: 0,
    };
    let graph = meaning.graph;
    for id in graph.value_ids().filter(|&id| meaning.owner(id) == id) {
        let exists = graph.value(id).producer.is_none();
        if graph.value(id).role == Role::Input {
            replay.allocate(id, program.places[&id])?;
            replay.write(id, 0)?;
        } else if meaning.persistent.contains_key(&id) && exists {
            let home = program.places[&id];
            if replay.is_hosted(id) {
                let end = home.offset_bytes + home.size_bytes;
                replay.written.insert((home.arena, home.offset_bytes), Written { end, memory: id, version: 0 });
            } else {
                replay.live.insert(id, (home, Some(0)));
            }
        }
    }
    replay.count(0);
    for (position, command) in program.commands.iter().enumerate() {
        replay.step(command).map_err(|reason| format!("command {position}: {reason}"))?;
    }
    replay.finish()
}

impl Replay<'_> {
    fn is_hosted(&self, memory: ValueId) -> bool {
        let place = self.program.places.get(&memory);
        place.is_some_and(|place| self.plan.arenas[place.arena as usize].role == ArenaRole::Host)
    }

    /// Whether the memory is there from the first command to the last, in an arena of its own role.
    fn is_resident(&self, memory: ValueId) -> bool {
        self.meaning.persistent.contains_key(&memory) && !self.is_hosted(memory)
    }

    fn size_bytes(&self, memory: ValueId) -> u64 {
        self.meaning.graph.value(memory).desc.size_bytes()
    }

    fn count(&mut self, workspace_bytes: u64) {
        self.most_bytes = self.most_bytes.max(self.live_bytes + workspace_bytes);
    }

    /// Memory that shares bytes with a place.
    fn occupant(&self, place: Allocation) -> Option<ValueId> {
        let end = place.offset_bytes + place.size_bytes;
        let (&(arena, _), &(other_end, memory)) = self.occupied.range(..(place.arena, end)).next_back()?;
        (arena == place.arena && other_end > place.offset_bytes).then_some(memory)
    }

    fn allocate(&mut self, memory: ValueId, place: Allocation) -> Check {
        let name = self.meaning.name(memory);
        if self.is_resident(memory) {
            let home = self.program.places.get(&memory);
            ensure!(home == Some(&place), "{name} is persistent and made in another place than its own");
        } else {
            check_place(&self.plan.arenas, place, ArenaRole::Transient, self.size_bytes(memory))
                .map_err(|reason| format!("{name}: {reason}"))?;
            ensure!(!self.live.contains_key(&memory), "{name} is made while it is in memory");
            if let Some(other) = self.occupant(place) {
                let other = self.meaning.name(other);
                return Err(format!("{name} would overwrite {other}, which is still needed"));
            }
            let end = place.offset_bytes + place.size_bytes;
            self.occupied.insert((place.arena, place.offset_bytes), (end, memory));
            self.live_bytes += place.size_bytes;
        }
        self.live.insert(memory, (place, None));
        Ok(())
    }

    /// Takes a memory off the device.
    fn release(&mut self, memory: ValueId) -> Option<(Allocation, Version)> {
        let (place, version) = self.live.remove(&memory)?;
        if self.occupied.remove(&(place.arena, place.offset_bytes)).is_some() {
            self.live_bytes -= place.size_bytes;
        }
        Some((place, version))
    }

    /// Notes that a range is overwritten; what was there is lost.
    fn overwrite(&mut self, place: Allocation, by: Option<(ValueId, usize)>) {
        let (start, end) = (place.offset_bytes, place.offset_bytes + place.size_bytes);
        let overlapping: Vec<_> = self
            .written
            .range(..(place.arena, end))
            .rev()
            .take_while(|((arena, _), written)| *arena == place.arena && written.end > start)
            .map(|(&key, _)| key)
            .collect();
        for key in overlapping {
            self.written.remove(&key);
        }
        if let Some((memory, version)) = by {
            self.written.insert((place.arena, start), Written { end, memory, version });
        }
    }

    fn write(&mut self, memory: ValueId, version: usize) -> Check {
        let Some(&(place, _)) = self.live.get(&memory) else {
            return Err(format!("{} is written while it has no memory", self.meaning.name(memory)));
        };
        if !self.is_resident(memory) {
            self.overwrite(place, Some((memory, version)));
        }
        self.live.insert(memory, (place, Some(version)));
        Ok(())
    }

    fn is_intact(&self, place: Allocation, memory: ValueId, version: usize) -> bool {
        let expected = Written { end: place.offset_bytes + place.size_bytes, memory, version };
        self.written.get(&(place.arena, place.offset_bytes)) == Some(&expected)
    }

    fn read(&self, memory: ValueId, version: usize) -> Check {
        let name = self.meaning.name(memory);
        let Some(&(place, found)) = self.live.get(&memory) else {
            return Err(format!("{name} is read, but not in memory"));
        };
        let Some(found) = found else { return Err(format!("{name} is read before it is made")) };
        ensure!(found == version, "version {found} of {name} is read instead of {version}");
        let intact = self.is_resident(memory) || self.is_intact(place, memory, version);
        ensure!(intact, "{name} is read after something else was written over it");
        Ok(())
    }

    fn step(&mut self, command: &Command) -> Check {
        let known = |id: ValueId| id.index() < self.meaning.graph.values().len() && self.meaning.owner(id) == id;
        match *command {
            Command::Dispatch { node, ref outputs, ref workspaces, in_place } => {
                ensure!(node.index() < self.meaning.graph.nodes().len(), "there is no node {}", node.0);
                self.dispatch(node, outputs, workspaces, in_place)
            }
            Command::Free { value } | Command::Offload { value, .. } | Command::Prefetch { value, .. }
                if !known(value) =>
            {
                Err(format!("there is no value {} with memory of its own", value.0))
            }
            Command::Free { value } => {
                let name = self.meaning.name(value);
                ensure!(!self.is_resident(value), "{name} is persistent and cannot be freed");
                ensure!(self.release(value).is_some(), "{name} is freed, but not in memory");
                Ok(())
            }
            Command::Offload { value, to } => self.offload(value, to),
            Command::Prefetch { value, from, to } => {
                let name = self.meaning.name(value);
                check_place(&self.plan.arenas, from, ArenaRole::Host, self.size_bytes(value))
                    .map_err(|reason| format!("{name}: {reason}"))?;
                ensure!(!self.live.contains_key(&value), "{name} is fetched, but in memory");
                let written = self.written.get(&(from.arena, from.offset_bytes)).copied();
                let Some(Written { version, .. }) = written
                    .filter(|written| written.memory == value && written.end == from.offset_bytes + from.size_bytes)
                else {
                    return Err(format!("{name} is fetched, but the host tier does not hold it there"));
                };
                self.allocate(value, to)?;
                self.write(value, version)?;
                self.count(0);
                Ok(())
            }
        }
    }

    fn offload(&mut self, value: ValueId, to: Allocation) -> Check {
        let name = self.meaning.name(value);
        ensure!(!self.is_resident(value), "{name} is persistent and stays on the device");
        ensure!(!self.meaning.read_back.contains(&value), "{name} is read back and cannot be offloaded");
        check_place(&self.plan.arenas, to, ArenaRole::Host, self.size_bytes(value))
            .map_err(|reason| format!("{name}: {reason}"))?;
        let Some(&(_, Some(version))) = self.live.get(&value) else {
            return Err(format!("{name} is offloaded, but not in memory"));
        };
        self.read(value, version)?;
        let own = self.meaning.persistent.get(&value).map(|&named| &self.meaning.graph.value(named).name);
        let other = self.plan.persistent.iter().find(|other| overlap(other.place, to) && Some(&other.name) != own);
        if let Some(other) = other {
            return Err(format!("{name} would overwrite `{}` in the host tier", other.name));
        }
        self.release(value);
        self.overwrite(to, Some((value, version)));
        Ok(())
    }

    fn dispatch(
        &mut self,
        id: NodeId,
        outputs: &[Allocation],
        workspaces: &[Allocation],
        in_place: Option<usize>,
    ) -> Check {
        let meaning = self.meaning;
        let node = meaning.graph.node(id);
        ensure!(!node.op.is_view(), "`{}` is a view: it has no kernel to run", node.name);
        let runs = self.runs.entry(id).or_default();
        *runs += 1;
        let once = node.op.flags().once || !node.op.mutates().is_empty();
        ensure!(*runs == 1 || !once, "`{}` ({}) runs a second time", node.name, node.op.name());

        for (&input, &version) in node.inputs.iter().zip(&meaning.versions[id.index()]) {
            self.read(meaning.owner(input), version)?;
        }
        let given = outputs.len();
        ensure!(given == node.outputs.len(), "`{}` gets {given} places for its outputs", node.name);
        if let Some(input) = in_place {
            self.reuse_in_place(id, input, outputs)?;
        }
        for (&output, &place) in node.outputs.iter().zip(outputs) {
            self.allocate(output, place)?;
        }
        self.check_workspaces(id, workspaces)?;
        self.count(workspaces.iter().map(|place| place.size_bytes).sum());
        for &place in workspaces {
            self.overwrite(place, None);
        }
        for &output in &node.outputs {
            self.write(output, 0)?;
        }
        let changed: BTreeSet<_> = node.op.mutates().iter().map(|&i| meaning.owner(node.inputs[i])).collect();
        for memory in changed {
            let Some(&(_, Some(version))) = self.live.get(&memory) else {
                return Err(format!("{} is changed, but not in memory", meaning.name(memory)));
            };
            self.write(memory, version + 1)?;
        }
        Ok(())
    }

    fn check_workspaces(&self, id: NodeId, places: &[Allocation]) -> Check {
        let (graph, node) = (self.meaning.graph, self.meaning.graph.node(id));
        let descs = |ids: &[ValueId]| ids.iter().map(|&id| graph.value(id).desc.clone()).collect::<Vec<TensorDesc>>();
        let wanted = workspaces(&*node.op, &descs(&node.inputs), &descs(&node.outputs), self.plan.threads);
        let given = places.len();
        ensure!(wanted.len() == given, "`{}` gets {given} workspaces, not {}", node.name, wanted.len());
        for (i, (&size_bytes, &place)) in wanted.iter().zip(places).enumerate() {
            check_place(&self.plan.arenas, place, ArenaRole::Transient, size_bytes)
                .map_err(|reason| format!("workspace of `{}`: {reason}", node.name))?;
            if let Some(memory) = self.occupant(place) {
                return Err(format!("a workspace of `{}` overwrites {}", node.name, self.meaning.name(memory)));
            }
            let twice = places[..i].iter().any(|&earlier| overlap(earlier, place));
            ensure!(!twice, "workspaces of `{}` overlap", node.name);
        }
        Ok(())
    }

    /// Output 0 reuses the memory of an input: only where the op can, and where nothing needs the input any more.
    fn reuse_in_place(&mut self, id: NodeId, input: usize, outputs: &[Allocation]) -> Check {
        let node = self.meaning.graph.node(id);
        let declared = node.op.in_place().contains(&(input, 0)) && input < node.inputs.len() && !outputs.is_empty();
        ensure!(declared, "`{}` ({}) cannot work in place on input {input}", node.name, node.op.name());
        let memory = self.meaning.owner(node.inputs[input]);
        let name = self.meaning.name(memory);
        ensure!(!self.is_resident(memory), "`{}` would destroy {name}, which is persistent", node.name);
        ensure!(!self.meaning.read_back.contains(&memory), "`{}` would destroy {name}, which is read back", node.name);
        let operands = node.inputs.iter().filter(|&&operand| self.meaning.owner(operand) == memory).count();
        ensure!(operands == 1, "`{}` works in place on {name}, which it reads twice", node.name);
        ensure!(!node.op.mutates().contains(&input), "`{}` both changes {name} and reuses its memory", node.name);
        let from = self.live.get(&memory).map(|&(place, _)| place);
        ensure!(from == outputs.first().copied(), "`{}` works in place on {name}, but elsewhere", node.name);
        let half = |id: ValueId| self.meaning.graph.value(id).desc.dtype.half();
        let fits = self.size_bytes(memory) == self.size_bytes(node.outputs[0]) && half(memory) == half(node.outputs[0]);
        ensure!(fits, "`{}` reuses {name}, which has another size or type", node.name);
        self.release(memory);
        Ok(())
    }

    fn finish(&self) -> Check {
        let graph = self.meaning.graph;
        for id in graph.node_ids().filter(|&id| !graph.node(id).op.is_view()) {
            ensure!(self.runs.contains_key(&id), "`{}` ({}) never runs", graph.node(id).name, graph.node(id).op.name());
        }
        let last_version = |memory: ValueId| self.meaning.changes.get(&memory).copied().unwrap_or(0);
        for &memory in self.meaning.read_back.iter().chain(self.meaning.persistent.keys()) {
            let version = last_version(memory);
            if self.is_hosted(memory) {
                let home = self.program.places[&memory];
                let name = self.meaning.name(memory);
                ensure!(self.is_intact(home, memory, version), "at the end, the host tier has not got {name} as it is");
            } else {
                self.read(memory, version).map_err(|reason| format!("at the end: {reason}"))?;
            }
        }
        let left = self.occupied.values().map(|&(_, memory)| memory);
        if let Some(memory) = left.into_iter().find(|memory| !self.meaning.read_back.contains(memory)) {
            return Err(format!("{} is never freed", self.meaning.name(memory)));
        }
        ensure!(
            self.most_bytes == self.program.live_peak_bytes,
            "at most {} transient bytes are in memory at once, not {}",
            self.most_bytes,
            self.program.live_peak_bytes
        );
        Ok(())
    }
}

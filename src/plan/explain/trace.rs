//! A step as a Chrome trace, which <https://ui.perfetto.dev> opens: what runs when, and what is in memory meanwhile.
//!
//! The format: <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::super::{ArenaRole, Command, Plan, Planned, Program};
use super::ink::action_name;
use super::timeline::{Action, Block, Content, End, Step, Timeline};
use super::times::{RunTimes, StepTimes};
use crate::graph::{Graph, Phase};
use crate::tensor::ValueId;
use crate::tensor::plural;

/// Events of a trace, about: of micro-batches that are beyond that, only their times are written.
const MOST_EVENTS: usize = 400_000;

// What a viewer shows together.
const COMMANDS: u32 = 1;
const TENSORS: u32 = 2;
const PERSISTENT: u32 = 3;

// Rows of commands.
const MICRO_BATCHES: u32 = 1;
const NODES: u32 = 2;
const MOVES: u32 = 3;

impl Planned {
    /// Writes a step as a Chrome trace in JSON, which Perfetto (<https://ui.perfetto.dev>) opens: a slice for each micro-batch, node and copy;
    /// counters of bytes by what they are for, which add up to the planned peak; and every tensor from when to when it is in memory, with
    /// its place, and why it is recomputed or fetched. Traces of predicted and of measured times have one layout.
    ///
    /// A step of very many micro-batches has the commands of the first ones and of the last.
    ///
    /// # Errors
    /// Where `writer` fails.
    pub fn write_trace(&self, model: &str, times: &StepTimes, writer: &mut dyn fmt::Write) -> fmt::Result {
        write_at_most(self, model, times, MOST_EVENTS, writer)
    }
}

/// A trace of about so many events.
pub(super) fn write_at_most(
    planned: &Planned,
    model: &str,
    times: &StepTimes,
    most_events: usize,
    writer: &mut dyn fmt::Write,
) -> fmt::Result {
    let plan = &planned.plan;
    let mut runs = BTreeMap::new();
    for &number in &plan.schedule {
        if let (Some(program), Some(graph)) = (plan.programs.get(number), planned.graphs.get(number)) {
            runs.entry(number).or_insert_with(|| Run::of(plan, number, program, graph));
        }
    }
    let trace = Trace { plan, times, ids: BTreeMap::new(), written: false, writer };
    trace.write(model, &runs, &in_full(plan, &runs, most_events))
}

/// For each micro-batch, whether its commands are written: of the first ones, and of the last, which updates the parameters.
fn in_full(plan: &Plan, runs: &BTreeMap<usize, Run<'_>>, most_events: usize) -> Vec<bool> {
    let events: Vec<_> = plan.schedule.iter().map(|program| runs.get(program).map_or(0, Run::events)).collect();
    let last = events.len().saturating_sub(1);
    let mut sum = events.last().copied().unwrap_or_default();
    let fits = |(at, events): (usize, &usize)| {
        sum += if at == last { 0 } else { *events };
        at == last || at == 0 || sum <= most_events
    };
    events.iter().enumerate().map(fits).collect()
}

/// An event.
#[derive(Serialize)]
struct Event<'a> {
    name: &'a str,
    cat: &'a str,
    ph: &'a str,
    pid: u32,
    tid: u32,
    /// Microseconds.
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    args: Value,
}

/// A program with all that its runs have in common.
struct Run<'a> {
    program: &'a Program,
    graph: &'a Graph,
    timeline: Timeline,
    /// Blocks by their first step, and by the first at which they are gone.
    begins: Vec<Vec<usize>>,
    ends: Vec<Vec<usize>>,
    /// Bytes of each step, by content.
    bytes: Vec<BTreeMap<Content, u64>>,
    /// Of each block: what tells it from others, and why its value comes again later.
    names: Vec<String>,
    later: Vec<Option<String>>,
}

impl<'a> Run<'a> {
    fn of(plan: &Plan, number: usize, program: &'a Program, graph: &'a Graph) -> Self {
        let timeline = Timeline::of(plan, number, program, graph);
        let steps = timeline.steps.len();
        let (mut begins, mut ends) = (vec![Vec::new(); steps + 1], vec![Vec::new(); steps + 1]);
        let mut bytes = vec![BTreeMap::from(CONTENTS.map(|content| (content, 0))); steps];
        for block in &timeline.blocks {
            for at in &mut bytes[block.start..block.end] {
                *at.entry(block.content).or_default() += block.place.size_bytes;
            }
        }
        // Two values may have one name.
        let mut seen = BTreeMap::new();
        let values: Vec<_> = graph.values().iter().map(|value| nth(&value.name, &mut seen)).collect();
        let (mut workspaces, mut at) = (BTreeMap::new(), 0);
        let mut names = Vec::new();
        for (number, block) in timeline.blocks.iter().enumerate() {
            begins[block.start].push(number);
            ends[block.end].push(number);
            if block.start != at {
                (workspaces, at) = (BTreeMap::new(), block.start);
            }
            names.push(match block.value {
                Some(value) => values[value.index()].clone(),
                None => nth(&format!("{} {}", block.name, block.detail), &mut workspaces),
            });
        }
        let mut later = vec![None; timeline.blocks.len()];
        let mut next: BTreeMap<ValueId, &Block> = BTreeMap::new();
        for (number, block) in timeline.blocks.iter().enumerate().rev() {
            let Some(value) = block.value else { continue };
            later[number] = next.insert(value, block).and_then(|next| next.reason.clone());
        }
        Run { program, graph, timeline, begins, ends, bytes, names, later }
    }

    /// Events of a run, about.
    fn events(&self) -> usize {
        2 + 2 * self.timeline.steps.len() + 2 * self.timeline.blocks.len()
    }

    /// Beginnings of all steps and the end of the last, in nanoseconds.
    fn times(&self, start_ns: f64, times: &RunTimes) -> Vec<f64> {
        let mut now = start_ns;
        let mut all = vec![now];
        for step in &self.timeline.steps {
            now += match step.command {
                Some(command) => times.commands_ns.get(command).copied().unwrap_or_default().max(0.0),
                None => times.run_ns.max(0.0),
            };
            all.push(now);
        }
        all
    }

    /// What a step moves or computes.
    fn args(&self, step: &Step, times: &RunTimes, is_measured: bool) -> Map<String, Value> {
        let mut args = Map::new();
        let command = step.command.and_then(|at| self.program.commands.get(at));
        let ns = step.command.map_or(times.run_ns, |at| times.commands_ns.get(at).copied().unwrap_or_default());
        let mut put = |name: &str, value: Value| args.insert(name.to_owned(), value);
        put("command", json!(step.command));
        put("ns", json!(ns.round() as u64));
        let size_bytes = |value: ValueId| self.graph.values().get(value.index()).map(|value| value.desc.size_bytes());
        let is_node = matches!(command, Some(Command::Dispatch { .. }));
        put("time", json!(if is_measured && is_node { "measured" } else { "predicted" }));
        match command {
            Some(&Command::Dispatch { node, in_place, .. }) => {
                let node = self.graph.node(node);
                let descs =
                    |ids: &[ValueId]| ids.iter().map(|&id| self.graph.value(id).desc.clone()).collect::<Vec<_>>();
                let (inputs, outputs) = (descs(&node.inputs), descs(&node.outputs));
                let cost = node.op.cost(&inputs, &outputs);
                let phase = match node.phase {
                    Phase::Forward => "forward",
                    Phase::Backward => "backward",
                    Phase::Update => "update",
                };
                put("layer", json!(node.name));
                put("op", json!(node.op.name()));
                put("phase", json!(phase));
                put("recomputed", json!(step.action == Action::Recompute));
                put("inputs", inputs.iter().map(ToString::to_string).collect());
                put("outputs", outputs.iter().map(ToString::to_string).collect());
                put("flops", json!(cost.flops));
                put("bytes_moved", json!(cost.bytes_moved));
                put("in_place", json!(in_place.is_some()));
            }
            Some(Command::Offload { value, to }) => {
                put("bytes", json!(size_bytes(*value)));
                put("host_arena", json!(to.arena));
                put("host_offset", json!(to.offset_bytes));
            }
            Some(Command::Prefetch { value, from, .. }) => {
                put("bytes", json!(size_bytes(*value)));
                put("host_arena", json!(from.arena));
                put("host_offset", json!(from.offset_bytes));
            }
            Some(Command::Free { .. }) | None => {}
        }
        put("transient_bytes", json!(step.live_bytes));
        args
    }
}

/// A name, with a number where it is not the first of its kind.
fn nth(name: &str, seen: &mut BTreeMap<String, usize>) -> String {
    let count = seen.entry(name.to_owned()).and_modify(|count| *count += 1).or_insert(1);
    if *count == 1 { name.to_owned() } else { format!("{name} #{count}") }
}

struct Trace<'a> {
    plan: &'a Plan,
    times: &'a StepTimes,
    /// Of tensors, by name.
    ids: BTreeMap<String, usize>,
    written: bool,
    writer: &'a mut dyn fmt::Write,
}

impl<'a> Trace<'a> {
    fn write(mut self, model: &str, runs: &BTreeMap<usize, Run<'_>>, in_full: &[bool]) -> fmt::Result {
        let plan = self.plan;
        let facts = json!({
            "model": model,
            "batch": plan.batch,
            "micro_batches": plan.micro_batches,
            "budget_bytes": plan.budget_bytes,
            "planned_peak_bytes": plan.peak_bytes,
            "predicted_step_ns": plan.predicted_step_ns,
            "clock": self.times.clock,
            "micro_batches_without_commands": in_full.iter().filter(|in_full| !**in_full).count(),
        });
        write!(self.writer, "{{\"displayTimeUnit\":\"ns\",\"otherData\":{facts},\"traceEvents\":[")?;
        self.names(model)?;
        self.persistent(0.0, "b")?;
        let mut now = 0.0;
        let times = self.times;
        for (number, ((&program, times), &in_full)) in plan.schedule.iter().zip(&times.runs).zip(in_full).enumerate() {
            let Some(run) = runs.get(&program) else { continue };
            now = self.run(number, run, times, now, in_full)?;
        }
        self.counters(now, None)?;
        self.persistent(now, "e")?;
        self.writer.write_str("\n]}\n")
    }

    fn event(&mut self, event: &Event<'_>) -> fmt::Result {
        self.writer.write_str(if self.written { ",\n" } else { "\n" })?;
        self.written = true;
        self.writer.write_str(&serde_json::to_string(event).expect("bug: an event is not JSON"))
    }

    /// Names of what a viewer shows.
    fn names(&mut self, model: &str) -> fmt::Result {
        let clock = &self.times.clock;
        let processes = [
            (COMMANDS, format!("{model}, batch {}: commands and memory ({clock})", self.plan.batch)),
            (TENSORS, "tensors of a micro-batch".to_owned()),
            (PERSISTENT, "tensors that stay".to_owned()),
        ];
        for (pid, name) in processes {
            self.name("process_name", pid, 0, json!({ "name": name }))?;
            self.name("process_sort_index", pid, 0, json!({ "sort_index": pid }))?;
        }
        for (tid, name) in [(MICRO_BATCHES, "micro-batches"), (NODES, "nodes"), (MOVES, "offload and fetch")] {
            self.name("thread_name", COMMANDS, tid, json!({ "name": name }))?;
            self.name("thread_sort_index", COMMANDS, tid, json!({ "sort_index": tid }))?;
        }
        Ok(())
    }

    fn name(&mut self, name: &str, pid: u32, tid: u32, args: Value) -> fmt::Result {
        self.event(&Event { name, cat: "__metadata", ph: "M", pid, tid, ts: 0.0, dur: None, id: None, args })
    }

    fn slice(&mut self, name: &str, cat: &str, tid: u32, [start, end]: [f64; 2], args: Value) -> fmt::Result {
        let (ts, end) = (micros(start), micros(end));
        self.event(&Event { name, cat, ph: "X", pid: COMMANDS, tid, ts, dur: Some(end - ts), id: None, args })
    }

    /// A run of a program; returns when it ends.
    fn run(
        &mut self,
        number: usize,
        run: &Run<'_>,
        times: &RunTimes,
        start: f64,
        in_full: bool,
    ) -> Result<f64, fmt::Error> {
        let bounds = run.times(start, times);
        let end = bounds.last().copied().unwrap_or(start);
        let pass = format!("{:?}", run.program.pass).to_lowercase();
        let (samples, commands) = (run.program.samples, run.program.commands.len());
        let args = json!({
            "micro_batch": number,
            "pass": pass,
            "samples": samples,
            "commands": commands,
            "commands_shown": in_full,
            "live_peak_bytes": run.program.live_peak_bytes,
        });
        let name = format!("micro-batch {number}: {}", plural(samples, "sample"));
        self.slice(&name, "micro-batch", MICRO_BATCHES, [start, end], args)?;
        if !in_full {
            return Ok(end);
        }
        let is_measured = self.times.is_measured();
        for (at, step) in run.timeline.steps.iter().enumerate() {
            self.blocks(run, at, bounds[at])?;
            self.counters(bounds[at], Some((run, at)))?;
            let (cat, tid) = match step.action {
                Action::Upload => ("upload", NODES),
                Action::Offload | Action::Fetch => (action_name(step.action), MOVES),
                action => (action_name(action), NODES),
            };
            let mut args = run.args(step, times, is_measured);
            args.insert("micro_batch".to_owned(), json!(number));
            args.insert("pass".to_owned(), json!(pass));
            let reason = self.reason(run, step, at);
            args.extend(reason.map(|reason| ("reason".to_owned(), json!(reason))));
            let name = if step.action == Action::Upload { "upload, submission, readback" } else { &step.text };
            self.slice(name, cat, tid, [bounds[at], bounds[at + 1]], Value::Object(args))?;
        }
        self.blocks(run, run.timeline.steps.len(), end)?;
        Ok(end)
    }

    /// Why a step recomputes, offloads or fetches.
    fn reason(&self, run: &Run<'_>, step: &Step, at: usize) -> Option<String> {
        let made = || run.begins[at].iter().find_map(|&block| run.timeline.blocks[block].reason.clone());
        match step.action {
            Action::Recompute | Action::Fetch => made(),
            Action::Offload => {
                let moved =
                    run.ends[at + 1].iter().find(|&&block| run.timeline.blocks[block].ended == End::Offloaded)?;
                run.later[*moved].clone()
            }
            Action::Upload | Action::Run(_) => None,
        }
    }

    /// Tensors that end at the beginning of a step, and those that begin.
    fn blocks(&mut self, run: &Run<'_>, at: usize, now: f64) -> fmt::Result {
        for &number in &run.ends[at] {
            self.tensor(&run.names[number], TENSORS, "e", now, json!({}))?;
        }
        for &number in &run.begins[at] {
            let block = &run.timeline.blocks[number];
            let Block { content, recomputed, place, ref reason, .. } = *block;
            let mut args = json!({
                "layer": block.layer,
                "what": block.detail,
                "content": content_name(content),
                "bytes": place.size_bytes,
                "arena": place.arena,
                "offset": place.offset_bytes,
                "recomputed": recomputed,
                "then": end_name(block.ended),
            });
            for (name, reason) in [("reason", reason), ("gone_because", &run.later[number])] {
                if let Some(reason) = reason {
                    args[name] = json!(reason);
                }
            }
            self.tensor(&run.names[number], TENSORS, "b", now, args)?;
        }
        Ok(())
    }

    fn tensor(&mut self, name: &str, pid: u32, ph: &str, now: f64, args: Value) -> fmt::Result {
        let next = self.ids.len() + 1;
        let id = *self.ids.entry(format!("{pid} {name}")).or_insert(next);
        let id = Some(format!("{id:#x}"));
        self.event(&Event { name, cat: "tensor", ph, pid, tid: 0, ts: micros(now), dur: None, id, args })
    }

    /// What outlives a run, and the bytes of the host tier, which stay as they are.
    fn persistent(&mut self, now: f64, ph: &str) -> fmt::Result {
        let host_bytes = self.plan.arena_bytes(ArenaRole::Host);
        if host_bytes > 0 {
            self.counter("host bytes", now, json!({ "host tier": host_bytes }))?;
        }
        for value in &self.plan.persistent {
            let role = self.plan.arenas.get(value.place.arena as usize).map(|arena| arena.role);
            let args = match ph {
                "b" => json!({
                    "what": value.desc.to_string(),
                    "role": format!("{:?}", value.role).to_lowercase(),
                    "memory": role.map(|role| role.to_string()),
                    "bytes": value.place.size_bytes,
                    "arena": value.place.arena,
                    "offset": value.place.offset_bytes,
                }),
                _ => json!({}),
            };
            self.tensor(&value.name, PERSISTENT, ph, now, args)?;
        }
        Ok(())
    }

    /// Bytes on the device by what they are for, during a step of a run or after the last. They add up to the planned peak.
    fn counters(&mut self, now: f64, at: Option<(&Run<'_>, usize)>) -> fmt::Result {
        let plan = self.plan;
        let bytes = at.map_or_else(|| CONTENTS.map(|content| (content, 0)).into(), |(run, at)| run.bytes[at].clone());
        let unused = plan.arena_bytes(ArenaRole::Transient).saturating_sub(bytes.values().sum());
        let mut args = Map::new();
        for role in [ArenaRole::Parameters, ArenaRole::Buffers, ArenaRole::State, ArenaRole::Accumulators] {
            args.insert(role.to_string(), json!(plan.arena_bytes(role)));
        }
        args.extend(bytes.into_iter().map(|(content, bytes)| (content_name(content).to_owned(), json!(bytes))));
        args.insert("transient, not in use".to_owned(), json!(unused));
        args.insert("staging".to_owned(), json!(plan.staging.total_bytes()));
        args.insert("device".to_owned(), json!(plan.baseline_bytes));
        self.counter("bytes", now, Value::Object(args))
    }

    fn counter(&mut self, name: &str, now: f64, args: Value) -> fmt::Result {
        let (pid, ts) = (COMMANDS, micros(now));
        self.event(&Event { name, cat: "memory", ph: "C", pid, tid: 0, ts, dur: None, id: None, args })
    }
}

/// Microseconds in parts of a 64th, about 16 ns: readers that count in nanoseconds make no rounding errors of them, by which
/// slices would overlap.
fn micros(ns: f64) -> f64 {
    (ns * 64.0 / 1e3).round() / 64.0
}

const CONTENTS: [Content; 5] =
    [Content::Input, Content::Activation, Content::Gradient, Content::Workspace, Content::Fetched];

fn content_name(content: Content) -> &'static str {
    match content {
        Content::Input => "inputs",
        Content::Activation => "activations",
        Content::Gradient => "gradients",
        Content::Workspace => "workspaces",
        Content::Fetched => "fetched",
    }
}

fn end_name(end: End) -> &'static str {
    match end {
        End::Freed => "freed",
        End::Offloaded => "offloaded",
        End::Reused => "reused in place",
        End::ReadBack => "read back",
    }
}

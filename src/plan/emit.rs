//! Writes a layout as a plan: the commands of each program, with the place of each value in them.

use std::collections::BTreeMap;

use super::candidate::storage::Kind;
use super::layout::arenas::PlacedValue;
use super::layout::{Layout, Liveness};
use super::schedule::Event;
use super::{Allocation, Command, Persistent, Plan, Planned, Program};

/// The plan with its graphs, without the figures that need other plans.
pub(super) fn plan(layout: &Layout<'_>) -> Planned {
    let candidate = &**layout.candidate();
    let request = candidate.request;
    let persistent = layout.persistent.iter().map(|&PlacedValue { number, place }| {
        let value = &candidate.persistent[number];
        Persistent { name: value.name.clone(), role: value.role, desc: value.desc.clone(), place }
    });
    let persistent: Vec<_> = persistent.collect();
    let homes = persistent.iter().map(|value| (value.name.as_str(), value.place)).collect();
    let programs = (0..candidate.programs.len()).map(|number| program(layout, number, &homes)).collect();
    let plan = Plan {
        batch: request.batch,
        budget_bytes: request.budget_bytes,
        peak_bytes: layout.peak_bytes,
        unconstrained_peak_bytes: layout.peak_bytes,
        unconstrained_step_ns: layout.step_ns,
        minimum_budget_bytes: layout.peak_bytes,
        micro_batches: candidate.micro_batches.clone(),
        saved: candidate.form.saved,
        fused: candidate.form.fused,
        predicted_step_ns: layout.step_ns,
        schedule: candidate.program_of.clone(),
        evaluate: Some(candidate.programs.len() - 1),
        programs,
        arenas: layout.arenas.clone(),
        persistent,
        staging: layout.staging,
        baseline_bytes: request.limits.baseline_bytes,
        threads: request.limits.threads,
        bound: None,
        reasons: Vec::new(),
    };
    Planned { plan, graphs: candidate.programs.iter().map(|program| program.graph.clone()).collect() }
}

/// One program. `persistent` says where values that outlive it are.
fn program(layout: &Layout<'_>, number: usize, persistent: &BTreeMap<&str, Allocation>) -> Program {
    let liveness = Liveness::of(&layout.schedule, number);
    let Liveness { program, storage, lifetimes, moved, .. } = &liveness;
    let graph = &program.graph;
    let place = |block: usize| layout.transient.place(number, block, lifetimes.blocks[block].size_bytes);
    // Where each value is when it is not in memory of this run.
    let mut homes = BTreeMap::new();
    for root in storage.root_ids() {
        if let Kind::Persistent(named) | Kind::Hosted(named) = storage.kind(root) {
            homes.insert(root, persistent[graph.value(named).name.as_str()]);
        }
    }
    let inputs = lifetimes.inputs.iter().map(|&(root, block)| (root, place(block)));
    let places = inputs.chain(homes.iter().map(|(&root, &home)| (root, home))).collect();
    let on_host = moved.iter().enumerate();
    homes.extend(on_host.map(|(i, &(value, interval))| (value, layout.host.place(number, i, interval.size_bytes))));
    let mut commands = Vec::new();
    for (event, step) in liveness.steps() {
        match event {
            None => {}
            Some(Event::Run(node)) => {
                let outputs = graph.node(node).outputs.iter().zip(&step.outputs);
                let outputs = outputs.map(|(root, block)| block.map_or_else(|| homes[root], place)).collect();
                let workspaces = step.workspaces.iter().map(|&block| place(block)).collect();
                commands.push(Command::Dispatch { node, outputs, workspaces, in_place: step.in_place });
            }
            Some(Event::Fetch(value)) => {
                let to = place(step.outputs[0].expect("bug: a fetched value has no memory"));
                commands.push(Command::Prefetch { value, from: homes[&value], to });
            }
        }
        let ends = step.ends.iter().map(|&(value, offloaded)| match offloaded {
            true => Command::Offload { value, to: homes[&value] },
            false => Command::Free { value },
        });
        commands.extend(ends);
    }
    Program {
        pass: program.pass,
        samples: program.samples,
        graph_hash: graph.hash(),
        places,
        commands,
        live_peak_bytes: lifetimes.peak_bytes,
        predicted_ns: layout.program_ns[number],
    }
}

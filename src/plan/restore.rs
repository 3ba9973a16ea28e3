//! Takes up a plan that was kept in a file: nothing in it is trusted.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::candidate::{Form, microbatch};
use super::{Allocation, Arena, ArenaRole, Command, Limits, Plan, Planned, Program, Source, check, format_bytes};
use crate::error::PlanError;
use crate::graph::Graph;
use crate::ops::workspaces;
use crate::tensor::{TensorDesc, ValueId};

/// Upload slots that make sense at most.
const MAX_UPLOAD_SLOTS: u32 = 64;
/// Least unit of buffers.
const UNIT_BYTES: u64 = 256;
/// What an arena may have beyond the values in it, from rounding up.
const ROUNDING_BYTES: u64 = 64 << 10;

/// The plan with its graphs, built anew, if it is one for this training on this device: the graphs must be those that it
/// was made for, [`check()`] must accept it, and buffers must be as the device allows. What the device takes when it is
/// opened replaces what the plan assumed.
///
/// # Errors
/// [`PlanError::Unusable`] with the first thing that is wrong; [`PlanError::Graph`] where a graph cannot be built.
pub(crate) fn restore(plan: Plan, source: &dyn Source, batch: usize, limits: &Limits) -> Result<Planned, PlanError> {
    let mut plan = plan;
    check_size(&plan, batch).map_err(PlanError::Unusable)?;
    let programs = plan.programs.iter();
    let form = Form { saved: plan.saved, fused: plan.fused };
    let graphs = programs.map(|program| form.graph(source, program.pass, program.samples, batch).map(Arc::new));
    let graphs = graphs.collect::<Result<Vec<_>, _>>()?;
    check_graphs(&plan, &graphs)
        .and_then(|()| check_limits(&plan, &graphs, limits))
        .and_then(|()| check_bytes(&plan, &graphs))
        .and_then(|()| rebase(&mut plan, limits.baseline_bytes))
        .map_err(PlanError::Unusable)?;
    check(&plan, &graphs).map_err(|error| match error {
        PlanError::Invalid(reason) => PlanError::Unusable(format!("it is damaged ({reason})")),
        error => error,
    })?;
    Ok(Planned { plan, graphs })
}

/// Before graphs are built: few programs, none larger than the batch.
fn check_size(plan: &Plan, batch: usize) -> Result<(), String> {
    if plan.batch != batch {
        return Err(format!("it is for a batch of {}, and this training has a batch of {batch}", plan.batch));
    }
    if plan.threads.is_some_and(|threads| !(1..=Limits::MOST_THREADS).contains(&threads)) {
        return Err("it is damaged (no machine has so many threads)".to_owned());
    }
    let used: BTreeSet<usize> = plan.schedule.iter().copied().chain(plan.evaluate).collect();
    let kinds: BTreeSet<_> = plan.programs.iter().map(|program| (program.pass, program.samples)).collect();
    let sizes_fit = plan.programs.iter().all(|program| (1..=batch).contains(&program.samples));
    let all_used = used.len() == plan.programs.len() && used.iter().all(|&number| number < plan.programs.len());
    if !(sizes_fit && all_used && kinds.len() == plan.programs.len() && plan.evaluate.is_some()) {
        return Err("it is damaged (its programs are not those of a step)".to_owned());
    }
    Ok(())
}

fn check_graphs(plan: &Plan, graphs: &[Arc<Graph>]) -> Result<(), String> {
    if plan.programs.iter().zip(graphs).any(|(program, graph)| program.graph_hash != graph.hash()) {
        let advice = "plan again with the same settings and this version of tightfit";
        return Err(format!("it was made for another model, loss or optimizer: {advice}"));
    }
    if plan.schedule.len() > 1
        && let Some(node) = graphs
            .iter()
            .find_map(|graph| microbatch::mixes_samples(graph))
            .and_then(|node| graphs[0].nodes().get(node.index()))
    {
        return Err(format!("it splits the batch, whose samples layer `{}` mixes", node.name));
    }
    let known = |name: &str| graphs.iter().flat_map(|graph| graph.values()).any(|value| value.name == name);
    if let Some(stray) = plan.persistent.iter().find(|value| !known(&value.name)) {
        return Err(format!("it is damaged (the model has no `{}`)", stray.name));
    }
    Ok(())
}

/// All places that a program names.
fn places(program: &Program) -> impl Iterator<Item = Allocation> + '_ {
    let commands = program.commands.iter().flat_map(|command| match command {
        Command::Dispatch { outputs, workspaces, .. } => outputs.iter().chain(workspaces).copied().collect(),
        Command::Offload { to, .. } => vec![*to],
        Command::Prefetch { from, to, .. } => vec![*from, *to],
        Command::Free { .. } => Vec::new(),
    });
    program.places.values().copied().chain(commands)
}

fn check_limits(plan: &Plan, graphs: &[Arc<Graph>], limits: &Limits) -> Result<(), String> {
    if plan.threads.is_some() != limits.threads.is_some() {
        let reason = match limits.threads {
            Some(_) => {
                "it is for a GPU or the reference, and this training runs native code: plan again with --device cpu"
            }
            None => "it is for native code of the CPU, and this training runs kernels: plan again with its --device",
        };
        return Err(reason.to_owned());
    }
    let staging = plan.staging;
    let buffers = [staging.upload_slot_bytes, staging.readback_bytes];
    let is_whole = |bytes: &u64| *bytes >= UNIT_BYTES && bytes.is_multiple_of(UNIT_BYTES);
    let arenas_are_whole = plan.arenas.iter().all(|arena| is_whole(&arena.size_bytes));
    if !(buffers.iter().all(is_whole) && (1..=MAX_UPLOAD_SLOTS).contains(&staging.upload_slots) && arenas_are_whole) {
        return Err("it is damaged (its buffers have sizes that no plan gives them)".to_owned());
    }
    let on_device = |arena: &&Arena| arena.role != ArenaRole::Host;
    let largest = plan.arenas.iter().filter(on_device).map(|arena| arena.size_bytes).chain(buffers).max();
    if let Some(largest) = largest.filter(|largest| *largest > limits.max_buffer_bytes) {
        return Err(format!(
            "it has a buffer of {}, and the device allows {}: plan again with --device",
            format_bytes(largest),
            format_bytes(limits.max_buffer_bytes)
        ));
    }
    let alignment = limits.alignment_bytes.max(1);
    let aligned = |place: Allocation| place.offset_bytes.is_multiple_of(alignment);
    let homes = plan.persistent.iter().map(|value| value.place);
    if !plan.programs.iter().flat_map(places).chain(homes).all(aligned) {
        return Err(format!("the device needs offsets that are multiples of {alignment}: plan again with --device"));
    }
    for graph in graphs {
        let values = graph.values().iter().map(|value| (value.name.as_str(), value.desc.size_bytes()));
        let workspaces = graph.nodes().iter().zip(all_workspaces(graph, plan.threads));
        let workspaces =
            workspaces.flat_map(|(node, sizes)| sizes.into_iter().map(|bytes| (node.name.as_str(), bytes)));
        if let Some((name, bytes)) = values.chain(workspaces).find(|(_, bytes)| *bytes > limits.max_binding_bytes) {
            return Err(format!(
                "`{name}` needs {}, and the device binds {} at most: plan again with --device",
                format_bytes(bytes),
                format_bytes(limits.max_binding_bytes)
            ));
        }
    }
    Ok(())
}

/// Workspaces of each node.
fn all_workspaces(graph: &Graph, threads: Option<usize>) -> impl Iterator<Item = Vec<u64>> + '_ {
    graph.nodes().iter().map(move |node| {
        let descs =
            |ids: &[ValueId]| -> Vec<TensorDesc> { ids.iter().map(|&id| graph.value(id).desc.clone()).collect() };
        workspaces(&*node.op, &descs(&node.inputs), &descs(&node.outputs), threads)
    })
}

/// Refuses arenas that are larger than everything that could lie in them: they would only take memory.
fn check_bytes(plan: &Plan, graphs: &[Arc<Graph>]) -> Result<(), String> {
    let rounded = |bytes: u64| bytes.saturating_add(ROUNDING_BYTES);
    let mut most = 0_u64;
    let mut count = 0;
    for graph in graphs {
        let values = graph.values().iter().map(|value| value.desc.size_bytes());
        for bytes in values.chain(all_workspaces(graph, plan.threads).flatten()) {
            most = most.saturating_add(rounded(bytes));
            count += 1;
        }
    }
    let arenas = plan.arenas.iter().fold(0, |sum: u64, arena| sum.saturating_add(arena.size_bytes));
    if arenas > most || plan.arenas.len() > count {
        return Err("it is damaged (its arenas are larger than all that lies in them)".to_owned());
    }
    Ok(())
}

/// Replaces the bytes that were assumed for the device by those that it took.
fn rebase(plan: &mut Plan, baseline_bytes: u64) -> Result<(), String> {
    let before = std::mem::replace(&mut plan.baseline_bytes, baseline_bytes);
    for bytes in [&mut plan.peak_bytes, &mut plan.unconstrained_peak_bytes, &mut plan.minimum_budget_bytes] {
        *bytes = bytes.saturating_sub(before).saturating_add(baseline_bytes);
    }
    match plan.budget_bytes {
        Some(budget) if plan.peak_bytes > budget => Err(format!(
            "the device takes {} when it is opened, not {}, so the peak would be {} bytes, above the budget of {budget}: \
             plan again with --device",
            format_bytes(baseline_bytes),
            format_bytes(before),
            plan.peak_bytes
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::super::toy::Chain;
    use super::super::{CostModel, Levers, Request, plan};
    use super::*;

    const CHAIN: Chain = Chain { layers: 3, width: 40, mixes_samples: false };

    fn planned() -> Planned {
        let (levers, limits, costs) = (Levers::default(), Limits::any_device(), CostModel::default());
        let request = Request { batch: 9, budget_bytes: None, micro_batches: Some(3), levers, limits, costs };
        plan(&CHAIN, &request).expect("a plan")
    }

    fn refused(change: impl FnOnce(&mut Plan, &mut Limits)) -> String {
        let mut plan = planned().plan;
        let mut limits = Limits::any_device();
        change(&mut plan, &mut limits);
        match restore(plan, &CHAIN, 9, &limits) {
            Err(PlanError::Unusable(reason)) => reason,
            other => panic!("not refused: {other:?}"),
        }
    }

    #[test]
    fn a_plan_comes_back_on_a_device_with_another_baseline() {
        let plan = planned().plan;
        let same = restore(plan.clone(), &CHAIN, 9, &Limits::any_device()).expect("restored");
        assert_eq!(same.plan, plan);
        let other = restore(plan.clone(), &CHAIN, 9, &Limits::default()).expect("restored").plan;
        assert_eq!(other.peak_bytes, plan.peak_bytes - plan.baseline_bytes);
        assert_eq!(other.programs, plan.programs);
        let larger = Limits { baseline_bytes: 5 << 20, ..Limits::default() };
        let peak_bytes = plan.peak_bytes;
        let message = restore(Plan { budget_bytes: Some(peak_bytes), ..plan }, &CHAIN, 9, &larger);
        assert!(message.expect_err("above the budget").to_string().contains("5.0 MiB"));
    }

    #[test]
    fn what_does_not_belong_is_named() {
        assert!(refused(|plan, _| plan.batch = 8).contains("a batch of 8"));
        assert!(refused(|plan, _| plan.programs[0].graph_hash.clear()).contains("another model"));
        assert!(refused(|_, limits| limits.max_buffer_bytes = 1024).contains("the device allows 1.0 KiB"));
        assert!(refused(|_, limits| limits.max_binding_bytes = 1024).contains("the device binds 1.0 KiB"));
        assert!(refused(|_, limits| limits.alignment_bytes = 1 << 20).contains("multiples of 1048576"));
        assert!(refused(|plan, _| plan.evaluate = None).contains("damaged"));
        assert!(refused(|plan, _| plan.programs.push(plan.programs[0].clone())).contains("damaged"));
        assert!(refused(|plan, _| plan.staging.upload_slots = u32::MAX).contains("damaged"));
        assert!(refused(|plan, _| plan.arenas[0].size_bytes = 1 << 62).contains("device allows"));
        let host = Arena { role: ArenaRole::Host, size_bytes: 1 << 40 };
        assert!(refused(|plan, _| plan.arenas.push(host)).contains("larger than all"));
        assert!(refused(|plan, _| plan.persistent[0].name.push('x')).contains("damaged"));
        assert!(refused(|plan, _| plan.programs[0].commands.reverse()).contains("damaged"));
        let other = Chain { layers: 4, ..CHAIN };
        let error = restore(planned().plan, &other, 9, &Limits::any_device()).expect_err("another model");
        assert!(error.to_string().contains("another model"));
    }

    /// The value at this position of a walk over the document.
    fn nth<'a>(value: &'a mut Value, position: &mut usize) -> Option<&'a mut Value> {
        if *position == 0 {
            return Some(value);
        }
        *position -= 1;
        match value {
            Value::Array(items) => items.iter_mut().find_map(|item| nth(item, position)),
            Value::Object(items) => items.values_mut().find_map(|item| nth(item, position)),
            _ => None,
        }
    }

    fn count(value: &Value) -> usize {
        1 + match value {
            Value::Array(items) => items.iter().map(count).sum(),
            Value::Object(items) => items.values().map(count).sum(),
            _ => 0,
        }
    }

    fn change(value: &mut Value, kind: u8) {
        let number = value.as_u64();
        *value = match kind {
            0 => json!(0),
            1 => json!(u64::MAX),
            2 => json!(u64::from(u32::MAX)),
            3 => json!(number.unwrap_or(7).wrapping_add(1)),
            4 => json!(number.unwrap_or(7).wrapping_add(256)),
            5 => json!(number.unwrap_or(7) / 512 * 256),
            6 => json!(u64::MAX - 255),
            7 => json!(-1.5),
            8 => json!([]),
            _ => match value.take() {
                Value::Array(mut items) => {
                    let last = items.pop();
                    items.splice(0..0, last);
                    items.into()
                }
                _ => Value::Null,
            },
        };
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn nothing_in_a_file_panics(changes in prop::collection::vec((any::<prop::sample::Index>(), 0..10_u8), 1..4)) {
            static DOCUMENT: LazyLock<Value> = LazyLock::new(|| serde_json::to_value(planned().plan).expect("to JSON"));
            let mut document = DOCUMENT.clone();
            for (index, kind) in changes {
                let mut position = index.index(count(&document));
                if let Some(value) = nth(&mut document, &mut position) {
                    change(value, kind);
                }
            }
            let Ok(plan) = serde_json::from_value::<Plan>(document) else { return Ok(()) };
            let _ = plan.to_string();
            if let Ok(planned) = restore(plan, &CHAIN, 9, &Limits::any_device()) {
                check(&planned.plan, &planned.graphs).expect("checked");
                let _ = planned.to_svg("m");
            }
        }
    }
}

//! Plans of made-up graphs, and plans with one thing wrong, which the checker must refuse.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::candidate::storage::Storage;
use super::layout::lifetime::Lifetimes;
use super::layout::placement::{self, Interval};
use super::planner::Planner;
use super::schedule::Event;
use super::toy::{Chain, Mix, Tangle, tangles};
use super::*;
use crate::error::{GraphError, PlanError};
use crate::graph::{Graph, Role};
use crate::ops::SavedActivations;
use crate::tensor::{NodeId, TensorDesc, ValueId};

const CHAIN: Chain = Chain { layers: 6, width: 100, mixes_samples: false };

fn request(batch: usize, budget_bytes: Option<u64>) -> Request {
    let (limits, costs) = (Limits::default(), CostModel::default());
    Request { batch, budget_bytes, micro_batches: None, levers: Levers::default(), limits, costs }
}

fn rejected(planned: &Planned, change: impl FnOnce(&mut Plan)) -> String {
    let mut plan = planned.plan.clone();
    change(&mut plan);
    match check(&plan, &planned.graphs) {
        Err(PlanError::Invalid(reason)) => reason,
        other => panic!("not rejected: {other:?}"),
    }
}

#[test]
fn without_a_budget_the_whole_batch_runs_at_once() {
    let plan = plan(&CHAIN, &request(32, None)).expect("a plan").plan;
    assert_eq!((plan.micro_batches.as_slice(), plan.schedule.as_slice()), (&[32][..], &[0][..]));
    assert_eq!(plan.peak_bytes, plan.unconstrained_peak_bytes);
    assert!(plan.minimum_budget_bytes < plan.peak_bytes);
    assert_eq!(plan.evaluate, Some(1));
    assert_eq!(plan.programs[0].predicted_ns, plan.predicted_step_ns);
    let text = plan.to_string();
    assert!(text.contains("1 × 32") && text.contains("optimizer state") && text.contains("  a step"), "{text}");
}

/// Budgets from all that is needed down to the smallest.
fn budgets(free: &Plan) -> [u64; 5] {
    let range = free.peak_bytes - free.minimum_budget_bytes;
    [4, 3, 2, 1, 0].map(|share| free.minimum_budget_bytes + range * share / 4)
}

#[test]
fn a_smaller_budget_takes_more_micro_batches_and_is_kept() {
    let request = |budget_bytes| {
        let mut request = request(32, budget_bytes);
        request.costs.unified_memory = false;
        request
    };
    let free = plan(&CHAIN, &request(None)).expect("a plan").plan;
    let mut counts = Vec::new();
    for budget in budgets(&free) {
        let tight = plan(&CHAIN, &request(Some(budget))).expect("a plan").plan;
        assert!(tight.peak_bytes <= budget);
        assert_eq!(tight.minimum_budget_bytes, free.minimum_budget_bytes);
        assert_eq!(tight.unconstrained_peak_bytes, free.peak_bytes);
        counts.push(tight.micro_batches.len());
    }
    assert!(counts.windows(2).all(|pair| pair[0] <= pair[1]) && counts[0] == 1 && counts[4] > 4, "{counts:?}");
}

#[test]
fn where_device_and_host_share_memory_values_move_only_where_that_is_faster_with_less() {
    let free = plan(&CHAIN, &request(32, None)).expect("a plan").plan;
    let levers = Levers { offload: false, ..Levers::default() };
    let still = plan(&CHAIN, &Request { levers, ..request(32, None) }).expect("a plan").plan.minimum_budget_bytes;
    assert!(free.minimum_budget_bytes < still && still < free.peak_bytes);
    let mut moves = Vec::new();
    for budget in budgets(&free) {
        let with = request(32, Some(budget));
        assert!(with.costs.unified_memory);
        let chosen = plan(&CHAIN, &with).expect("a plan").plan;
        moves.push(chosen.arena_bytes(ArenaRole::Host) > 0);
        match plan(&CHAIN, &Request { levers, ..with }) {
            Ok(without) if budget >= still => {
                assert!(chosen.predicted_step_ns <= without.plan.predicted_step_ns, "{budget}");
                assert!(!moves[moves.len() - 1] || chosen.peak_bytes <= still, "{budget}");
            }
            without => assert!(budget < still && without.is_err() && moves[moves.len() - 1], "{budget}"),
        }
    }
    assert!(moves.contains(&true) && moves.contains(&false), "{moves:?}");
}

/// Refuses more than so many samples at once, as a model does whose tensors kernels cannot count.
struct Narrow(Chain, usize);

impl Source for Narrow {
    fn graph(&self, pass: Pass, samples: usize, batch: usize, saved: SavedActivations) -> Result<Graph, GraphError> {
        let (layer, what, shape) = ("wide".to_owned(), "the output".to_owned(), TensorDesc::f32([samples]).shape);
        let Narrow(chain, limit) = self;
        if samples > *limit {
            return Err(GraphError::TooLarge { layer, what, shape, limit: *limit });
        }
        chain.graph(pass, samples, batch, saved)
    }
}

#[test]
fn a_batch_that_is_too_large_at_once_is_split_or_refused_with_advice_that_can_be_followed() {
    for limit in [1, 2, 3, 31] {
        let plan = plan(&Narrow(CHAIN, limit), &request(32, None)).expect("a plan").plan;
        assert!(plan.micro_batches.iter().all(|&samples| samples <= limit), "{:?}", plan.micro_batches);
        assert!(plan.minimum_budget_bytes <= plan.unconstrained_peak_bytes);
    }
    let mixed = Chain { mixes_samples: true, ..CHAIN };
    for (chain, limit, batch, micro_batches, said) in [
        (CHAIN, 8, 32, Some(2), "use a smaller batch or more micro-batches"),
        (CHAIN, 0, 32, Some(32), "use smaller layers"),
        (CHAIN, 0, 32, None, "use smaller layers"),
        (CHAIN, 0, 1, None, "use smaller layers"),
        (mixed.clone(), 8, 32, None, "use a smaller batch"),
        (mixed, 0, 1, None, "use smaller layers"),
    ] {
        let source = Narrow(chain, limit);
        let error = plan(&source, &Request { micro_batches, ..request(batch, None) }).expect_err("too large");
        let message = error.to_string();
        assert!(message.ends_with(said) || message.ends_with(&format!("{said} or samples")), "{message}");
    }
}

#[test]
fn advice_about_a_budget_can_be_followed() {
    let mixed = Chain { mixes_samples: true, ..CHAIN };
    for (chain, batch, micro_batches, said) in [
        (CHAIN, 32, Some(2), "or more micro-batches"),
        (CHAIN, 32, Some(32), "or a smaller model, or an optimizer with less state"),
        (CHAIN, 32, None, "or a smaller model, or an optimizer with less state"),
        (CHAIN, 1, None, "or a smaller model, or an optimizer with less state"),
        (mixed.clone(), 32, None, "or a smaller batch (layer `layer1` (mix) mixes"),
        (mixed, 1, None, "or a smaller model, or an optimizer with less state"),
    ] {
        let error = plan(&chain, &Request { micro_batches, ..request(batch, Some(1)) }).expect_err("a byte");
        assert!(error.to_string().contains(said), "{error}");
    }
}

/// Counts how often each graph is built.
struct Counted(RefCell<BTreeMap<(Pass, usize, usize, SavedActivations), usize>>);

impl Source for Counted {
    fn graph(&self, pass: Pass, samples: usize, batch: usize, saved: SavedActivations) -> Result<Graph, GraphError> {
        *self.0.borrow_mut().entry((pass, samples, batch, saved)).or_default() += 1;
        CHAIN.graph(pass, samples, batch, saved)
    }
}

#[test]
fn graphs_are_built_once_for_each_form_and_shared_by_plans() {
    let (source, request) = (Counted(RefCell::default()), request(32, None));
    let mut planner = Planner::new(&source, &request).expect("plans");
    let (least, most) = planner.budgets().into_inner();
    let plans = [least, (least + most) / 2, most, most].map(|budget| planner.plan(Some(budget)).expect("a plan"));
    // Fused and not. Only the rest of a batch may be as large in several candidates.
    let built = source.0.borrow();
    let mut times = built.iter().filter(|((pass, ..), _)| *pass != Pass::Last).map(|(_, &times)| times);
    assert!(times.all(|times| times <= 2) && built.len() > 50, "{built:?}");
    let [.., before, last] = &plans;
    assert!(before.graphs.iter().zip(&last.graphs).all(|(before, last)| Arc::ptr_eq(before, last)));
}

#[test]
fn programs_are_shared_between_micro_batches() {
    let mut request = request(32, None);
    request.micro_batches = Some(5);
    let plan = plan(&CHAIN, &request).expect("a plan").plan;
    assert_eq!(plan.micro_batches, [7, 7, 7, 7, 4]);
    assert_eq!(plan.schedule, [0, 1, 1, 1, 2]);
    let passes: Vec<_> = plan.programs.iter().map(|program| (program.pass, program.samples)).collect();
    assert_eq!(passes, [(Pass::First, 7), (Pass::Middle, 7), (Pass::Last, 4), (Pass::Evaluate, 7)]);
    assert!(plan.arena_bytes(ArenaRole::Accumulators) > 0);
}

#[test]
fn an_impossible_budget_names_the_smallest_that_works_and_what_sets_it() {
    let free = plan(&CHAIN, &request(32, None)).expect("a plan").plan;
    let Err(PlanError::Infeasible { minimum_budget_bytes, blocking, message, .. }) =
        plan(&CHAIN, &request(32, Some(100)))
    else {
        panic!("100 bytes were enough")
    };
    assert_eq!(minimum_budget_bytes, free.minimum_budget_bytes);
    assert!(blocking.windows(2).all(|pair| pair[0].1 >= pair[1].1));
    assert!(blocking.iter().any(|(name, bytes)| name.starts_with("layer") && *bytes == 4096), "{blocking:?}");
    assert!(message.contains(&minimum_budget_bytes.to_string()) && message.contains("`layer"), "{message}");
    assert!(message.starts_with("a budget of 100 B is too small: the smallest that works is "), "{message}");
    println!("{message}");
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let refused = |batch, micro_batches| {
        let mut request = request(batch, None);
        request.micro_batches = micro_batches;
        matches!(plan(&CHAIN, &request), Err(PlanError::Request(_)))
    };
    assert!(refused(0, None) && refused(8, Some(0)) && refused(8, Some(9)));
    assert!(!refused(8, Some(8)) && !refused(8, Some(6)));
}

#[test]
fn a_batch_whose_samples_are_mixed_is_not_split() {
    let chain = Chain { mixes_samples: true, ..CHAIN };
    let free = plan(&chain, &request(32, None)).expect("a plan").plan;
    // Recompute and offload are left, and one sample still is never alone.
    assert!(free.minimum_budget_bytes < free.peak_bytes);
    let least = plan(&chain, &request(32, Some(free.minimum_budget_bytes))).expect("a plan").plan;
    assert_eq!(least.micro_batches, [32]);
    let mut split = request(32, None);
    split.micro_batches = Some(2);
    let Err(PlanError::Request(message)) = plan(&chain, &split) else { panic!("it was split") };
    assert!(message.contains("`layer1` (mix)"), "{message}");
    let Err(PlanError::Infeasible { message, .. }) = plan(&chain, &request(32, Some(1000))) else { panic!("it fits") };
    assert!(message.contains("`layer1` (mix)"), "{message}");
}

#[test]
fn a_tensor_that_cannot_be_bound_is_split_or_named() {
    let mut request = request(32, None);
    request.limits.max_binding_bytes = 6400;
    let planned = plan(&CHAIN, &request).expect("a plan").plan;
    assert_eq!(planned.micro_batches, [16, 16]);
    assert!(planned.unconstrained_peak_bytes > 0);
    request.limits.max_binding_bytes = 3900;
    let Err(PlanError::Binding { value, limit_bytes, .. }) = plan(&CHAIN, &request) else { panic!("it was bound") };
    assert_eq!((value.as_str(), limit_bytes), ("layer0.weight", 3900));
}

#[test]
fn memory_is_cut_at_the_largest_buffer() {
    let mut request = request(32, None);
    request.limits.max_buffer_bytes = 20_000;
    let plan = plan(&CHAIN, &request).expect("a plan").plan;
    assert!(plan.arenas.iter().all(|arena| arena.size_bytes <= 20_000));
    assert!(plan.arenas.iter().filter(|arena| arena.role == ArenaRole::Transient).count() > 1);
    assert!(plan.arenas.iter().filter(|arena| arena.role == ArenaRole::Parameters).count() > 1);
}

#[test]
fn a_plan_survives_json() {
    let planned = plan(&CHAIN, &request(8, None)).expect("a plan");
    let text = serde_json::to_string(&planned.plan).expect("JSON");
    let read: Plan = serde_json::from_str(&text).expect("a plan");
    assert_eq!(read, planned.plan);
}

#[test]
fn wrong_sums_and_schedules_are_rejected() {
    let planned = plan(&CHAIN, &request(8, Some(1 << 30))).expect("a plan");
    rejected(&planned, |plan| plan.peak_bytes -= 1);
    rejected(&planned, |plan| plan.budget_bytes = Some(plan.peak_bytes - 1));
    rejected(&planned, |plan| plan.arenas[0].size_bytes += 256);
    rejected(&planned, |plan| plan.schedule[0] = 1);
    rejected(&planned, |plan| plan.micro_batches[0] = 7);
    rejected(&planned, |plan| plan.programs[0].graph_hash.clear());
    rejected(&planned, |plan| plan.persistent[1].place = plan.persistent[0].place);
    rejected(&planned, |plan| plan.programs[0].live_peak_bytes -= 256);
    rejected(&planned, |plan| {
        let is_in_place = |command: &&mut Command| matches!(command, Command::Dispatch { in_place: Some(_), .. });
        let command = plan.programs[0].commands.iter_mut().find(is_in_place).expect("an op in place");
        if let Command::Dispatch { in_place, .. } = command {
            *in_place = None;
        }
    });
    rejected(&planned, |plan| first_workspaces(&mut plan.programs[0]).1.clear());
}

/// The first node that has workspaces, and these.
fn first_workspaces(program: &mut Program) -> (NodeId, &mut Vec<Allocation>) {
    let mut found = program.commands.iter_mut().filter_map(|command| match command {
        Command::Dispatch { node, workspaces, .. } if !workspaces.is_empty() => Some((*node, workspaces)),
        _ => None,
    });
    found.next().expect("a workspace")
}

/// Where a root was put last before a command.
fn place_of<'a>(program: &'a mut Program, graph: &Graph, root: ValueId, before: usize) -> Option<&'a mut Allocation> {
    let made = program.commands[..before].iter_mut().rev().find_map(|command| match command {
        Command::Dispatch { node, outputs, .. } => {
            let output = graph.node(*node).outputs.iter().position(|&output| output == root)?;
            Some(&mut outputs[output])
        }
        Command::Prefetch { value, to, .. } if *value == root => Some(to),
        _ => None,
    });
    made.or_else(|| program.places.get_mut(&root))
}

#[test]
fn a_workspace_over_a_live_value_is_rejected() {
    let planned = plan(&CHAIN, &request(8, None)).expect("a plan");
    let reason = rejected(&planned, |plan| {
        let program = &mut plan.programs[0];
        let node = first_workspaces(program).0;
        let input = planned.graphs[0].node(node).inputs[0];
        let before = dispatch_position(program, node);
        let offset_bytes = place_of(program, &planned.graphs[0], input, before).expect("a place").offset_bytes;
        first_workspaces(program).1[0].offset_bytes = offset_bytes;
    });
    assert!(reason.contains("overwrites") || reason.contains("beyond"), "{reason}");
}

fn dispatch_position(program: &Program, wanted: NodeId) -> usize {
    let runs = |command: &Command| matches!(command, Command::Dispatch { node, .. } if *node == wanted);
    program.commands.iter().position(runs).expect("every node runs")
}

#[test]
fn memory_of_the_host_is_used_again() -> Result<(), Box<dyn Error>> {
    let mut graph = Graph::new();
    let mix = || Mix::to([8, 100]);
    let x = graph.input("x", TensorDesc::f32([8, 100]));
    let a = graph.apply(mix(), &[x])?;
    let b = graph.apply(mix(), &[x])?;
    let c = graph.apply(mix(), &[b])?;
    let d = graph.apply(mix(), &[a, b, c])?;
    let e = graph.apply(mix(), &[d])?;
    let f = graph.apply(mix(), &[b, e])?;
    graph.promote(f, "f", Role::Output);
    let run = |value: ValueId| Event::Run(graph.value(value).producer.expect("no input"));
    let events = [run(a), run(b), run(c), Event::Fetch(a), run(d), run(e), Event::Fetch(b), run(f)];

    let storage = Storage::of(&graph, 256, None)?;
    let moved = Lifetimes::of(&graph, &storage, &events).moved(&storage, &events);
    let moved: [_; 2] = moved.try_into().expect("two values");
    let interval = |start, end| Interval { start, end, size_bytes: 3328 };
    assert_eq!(moved, [(a, interval(1, 4)), (b, interval(5, 7))]);
    let packing = placement::pack_loosely(&moved.map(|(_, interval)| interval), 1 << 20);
    assert_eq!((packing.offsets, packing.chunks), (vec![0, 0], vec![3328]));
    Ok(())
}

/// Changes each program in ways that must not pass.
fn assert_changes_are_rejected(planned: &Planned) -> Result<(), TestCaseError> {
    for (number, (program, graph)) in planned.plan.programs.iter().zip(&planned.graphs).enumerate() {
        for (position, command) in program.commands.iter().enumerate() {
            match *command {
                Command::Free { value } => {
                    rejected(planned, |plan| {
                        plan.programs[number].commands.remove(position);
                    });
                    let uses = |command: &Command| match command {
                        Command::Dispatch { node, .. } => {
                            let node = graph.node(*node);
                            let mut used = node.inputs.iter().chain(&node.outputs);
                            used.any(|&id| graph.storage_root(id) == value)
                        }
                        _ => false,
                    };
                    if let Some(last) = program.commands[..position].iter().rposition(uses) {
                        rejected(planned, |plan| {
                            let commands = &mut plan.programs[number].commands;
                            let free = commands.remove(position);
                            commands.insert(last, free);
                        });
                    }
                }
                Command::Dispatch { node, .. } => {
                    rejected(planned, |plan| {
                        plan.programs[number].commands.remove(position);
                    });
                    if graph.node(node).op.flags().once {
                        rejected(planned, |plan| plan.programs[number].commands.insert(position, command.clone()));
                    }
                    let roots: Vec<_> = graph.node(node).inputs.iter().map(|&id| graph.storage_root(id)).collect();
                    for producer in roots.iter().filter_map(|&root| graph.value(root).producer) {
                        let earlier = dispatch_position(program, producer);
                        rejected(planned, |plan| plan.programs[number].commands.swap(earlier, position));
                    }
                    let transient = |root: &&ValueId| !graph.value(**root).role.is_persistent();
                    let roots: Vec<_> = roots.iter().filter(transient).collect();
                    for pair in roots.windows(2).filter(|pair| pair[0] != pair[1]) {
                        let mut copy = program.clone();
                        let Some(&mut place) = place_of(&mut copy, graph, *pair[0], position) else { continue };
                        if planned.plan.arenas[place.arena as usize].role == ArenaRole::Transient {
                            rejected(planned, |plan| {
                                let program = &mut plan.programs[number];
                                let moved = place_of(program, graph, *pair[1], position).expect("a place");
                                (moved.arena, moved.offset_bytes) = (place.arena, place.offset_bytes);
                            });
                        }
                    }
                }
                Command::Offload { .. } | Command::Prefetch { .. } => {
                    rejected(planned, |plan| {
                        plan.programs[number].commands.remove(position);
                    });
                    rejected(planned, |plan| {
                        let command = &mut plan.programs[number].commands[position];
                        if let Command::Offload { to: host, .. } | Command::Prefetch { from: host, .. } = command {
                            host.offset_bytes += 256;
                        }
                    });
                }
            }
        }
    }
    Ok(())
}

#[test]
fn changed_commands_and_places_are_rejected() -> Result<(), TestCaseError> {
    let mut request = request(8, None);
    request.micro_batches = Some(3);
    assert_changes_are_rejected(&plan(&CHAIN, &request).expect("a plan"))
}

fn assert_planned_at_every_budget(tangle: &Tangle, batch: usize, unified_memory: bool) -> Result<(), TestCaseError> {
    let at = |budget_bytes| {
        let mut request = request(batch, budget_bytes);
        request.costs.unified_memory = unified_memory;
        plan(tangle, &request)
    };
    let planned = |budget| at(budget).map_err(|error| TestCaseError::fail(error.to_string()));
    let free = planned(None)?.plan;
    let (least, most) = (free.minimum_budget_bytes, free.peak_bytes);
    let mut before_ns = u64::MAX;
    for share in 0..=4 {
        let budget = least + (most - least) * share / 4;
        let planned = planned(Some(budget))?;
        prop_assert!(planned.plan.peak_bytes <= budget);
        prop_assert_eq!(planned.plan.minimum_budget_bytes, least);
        prop_assert!(planned.plan.predicted_step_ns <= before_ns, "{} at {budget}", planned.plan.predicted_step_ns);
        prop_assert!(planned.plan.bound.is_some_and(|bound| bound.step_ns <= planned.plan.predicted_step_ns as f64));
        before_ns = planned.plan.predicted_step_ns;
        if share % 2 == 0 {
            assert_changes_are_rejected(&planned)?;
        }
    }
    prop_assert_eq!(free.predicted_step_ns, before_ns);
    match at(Some(least - 1)) {
        Err(PlanError::Infeasible { minimum_budget_bytes, .. }) => prop_assert_eq!(minimum_budget_bytes, least),
        other => return Err(TestCaseError::fail(format!("not refused: {:?}", other.map(|planned| planned.plan)))),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_graphs_are_planned_within_any_budget_that_works(tangle in tangles(), batch in 1..9_usize, unified in any::<bool>()) {
        assert_planned_at_every_budget(&tangle, batch, unified)?;
    }
}

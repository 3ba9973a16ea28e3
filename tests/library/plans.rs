//! Evidence link 4: plans of the built-in models as text, at no budget, 75% and 50% of the need, and the minimum.

use tightfit::error::{PlanError, TrainError};
use tightfit::models;
use tightfit::nn::Statistics;
use tightfit::plan::{DeviceClass, Levers, Limits, Plan};
use tightfit::train::{Config, Machine, plan, plan_for, summary};

fn snapshot(name: &str, batch: usize) {
    let model = models::builtin(name).expect("no such model");
    let config = Config::default().batch(batch);
    let limits = Limits::any_device();
    let machine = Machine::with_limits(limits, DeviceClass::Software);
    let unlimited = plan_for(&model, &config, &machine).expect("plan").plan;
    let need = unlimited.peak_bytes;
    let minimum = unlimited.minimum_budget_bytes;
    let mut text = format!("{name}, batch {batch}, no budget\n{unlimited}\n");
    for (title, budget) in [("75% of the need", need / 4 * 3), ("50% of the need", need / 2), ("minimum", minimum)] {
        text += &format!("\n{title}\n");
        match plan_for(&model, &config.clone().budget_bytes(budget), &machine) {
            Ok(planned) => {
                assert!(planned.plan.peak_bytes <= budget, "{name}: the plan does not keep its budget");
                text += &format!("{}\n", planned.plan);
            }
            Err(error) => {
                assert!(budget < minimum, "{name}: no plan at {budget}, though {minimum} is said to work");
                text += &format!("{error}\n");
            }
        }
    }
    insta::assert_snapshot!(name, text);
}

#[test]
fn mnist_mlp() {
    snapshot("mnist-mlp", 128);
}

#[test]
fn mnist_cnn() {
    snapshot("mnist-cnn", 256);
}

#[test]
fn mnist_lstm() {
    snapshot("mnist-lstm", 64);
}

#[test]
fn a_plan_survives_serialization() {
    let model = models::builtin("mnist-cnn").expect("no such model");
    let planned = plan(&model, &Config::default(), &Limits::default()).expect("plan");
    let json = serde_json::to_string(&planned.plan).expect("to JSON");
    let back: tightfit::plan::Plan = serde_json::from_str(&json).expect("from JSON");
    assert_eq!(back, planned.plan);
    tightfit::plan::check(&back, &planned.graphs).expect("the plan that came back is not valid");
}

#[test]
fn planning_is_deterministic() {
    let model = models::builtin("mnist-lstm").expect("no such model");
    let config = Config::default().budget_bytes(4 << 20);
    let first = plan(&model, &config, &Limits::default()).expect("plan");
    assert_eq!(first.plan, plan(&model, &config, &Limits::default()).expect("plan").plan);
}

/// Requests that differ in the model, the batch, what the planner may do, how batch norm sees the batch, and whether device
/// and host share their memory.
fn requests() -> Vec<(&'static str, Config, Machine)> {
    let all = Levers::default();
    let levers = [
        all,
        Levers { offload: false, ..all },
        Levers { recompute: false, ..all },
        Levers { compression: false, fusion: false, ..all },
        Levers { recompute: false, offload: false, ..all },
    ];
    let mut requests = Vec::new();
    for name in ["mnist-mlp", "mnist-cnn", "mnist-lstm", "mnist-deep", "mnist-unet"] {
        for (batch, micro_batches) in [(1, None), (5, None), (5, Some(3)), (33, None), (32, Some(1))] {
            for levers in levers {
                for statistics in [Statistics::Exact, Statistics::Ghost, Statistics::Frozen] {
                    for unified_memory in [true, false] {
                        let config = Config { levers, statistics, micro_batches, ..Config::default().batch(batch) };
                        let mut machine = Machine::of_class(DeviceClass::Software);
                        machine.costs.unified_memory = unified_memory;
                        requests.push((name, config, machine));
                    }
                }
            }
        }
    }
    requests
}

/// The smallest budget is one number however it is asked for, every budget from it on has a plan that keeps it, none below
/// has, no plan is slower than one for less, and none is faster than its own bound.
fn assert_sound(name: &str, config: &Config, machine: &Machine) {
    let model = models::builtin(name).expect("no such model");
    let at = |budget_bytes| plan_for(&model, &Config { budget_bytes, ..config.clone() }, machine);
    let what = format!("{name} {config:?} unified memory {}", machine.costs.unified_memory);
    let free = match at(None) {
        Ok(planned) => planned.plan,
        // Batch norm with the statistics of the whole batch.
        Err(TrainError::Plan(PlanError::Request(message))) => {
            assert!(message.contains("mixes the samples") && config.micro_batches == Some(3), "{message}: {what}");
            return;
        }
        Err(error) => panic!("{error}: {what}"),
    };
    let (least, most) = (free.minimum_budget_bytes, free.peak_bytes);
    for below in [1, least - 1] {
        match at(Some(below)).map(|planned| planned.plan.peak_bytes) {
            Err(TrainError::Plan(PlanError::Infeasible { minimum_budget_bytes, .. })) => {
                assert_eq!(minimum_budget_bytes, least, "{what}");
            }
            other => panic!("{other:?} at {below}: {what}"),
        }
    }
    let range = most - least;
    let mut before: Option<Plan> = None;
    for budget in [least, least + 1, least + range / 7, least + range / 3 + 1, least + range * 2 / 3, most - 1, most] {
        let plan = at(Some(budget.max(least))).unwrap_or_else(|error| panic!("{error}: {what}")).plan;
        assert!(plan.peak_bytes <= budget.max(least), "{what}");
        assert_eq!(plan.minimum_budget_bytes, least, "{what}");
        let bound = plan.bound.expect("a budget has a bound");
        assert!(bound.step_ns <= plan.predicted_step_ns as f64, "{bound:?} at {budget}: {what}");
        if let Some(before) = before {
            let (slower, faster) = (before.predicted_step_ns, plan.predicted_step_ns);
            assert!(slower >= faster, "{slower} below {budget}, {faster} there: {what}");
        }
        before = Some(plan);
    }
    assert_eq!(before.map(|plan| plan.predicted_step_ns), Some(free.predicted_step_ns), "{what}");
}

/// A few requests that are far from each other in the list.
#[test]
fn the_smallest_budget_is_one_number_and_more_memory_never_takes_longer() {
    let small = |name: &str, config: &Config| matches!(name, "mnist-mlp" | "mnist-lstm") || config.batch == 5;
    let requests: Vec<_> = requests().into_iter().filter(|(name, config, _)| small(name, config)).collect();
    for (name, config, machine) in requests.iter().step_by(71) {
        assert_sound(name, config, machine);
    }
}

#[test]
#[ignore = "takes minutes"]
fn the_smallest_budget_is_one_number_for_every_request() {
    for (name, config, machine) in &requests() {
        assert_sound(name, config, machine);
    }
}

/// The plan with the fewest micro-batches that a device can bind may be slower than one with more: neither end of the lookup may
/// hide what lies between them.
#[test]
fn a_batch_that_cannot_be_bound_is_not_cut_further_than_it_must_be() {
    let model = models::builtin("mnist-lstm").expect("no such model");
    for (batch, budget_bytes) in [(8192, 100_000_000), (20_000, 50_000_000)] {
        let config = Config::default().batch(batch).budget_bytes(budget_bytes);
        let limits = Limits { max_binding_bytes: 128 << 20, ..Limits::any_device() };
        let machine = Machine::with_limits(limits, DeviceClass::Software);
        let at = |config: &Config| plan_for(&model, config, &machine).expect("a plan").plan;
        let chosen = at(&config);
        for count in [batch / 512, batch / 400, batch / 256] {
            let cut = at(&config.clone().micro_batches(count)).predicted_step_ns;
            assert!(chosen.predicted_step_ns <= cut + cut / 50, "{count}: {cut} < {}", chosen.predicted_step_ns);
        }
    }
}

/// Kernels count elements in 32 bits; a model summary does not.
#[test]
fn layers_are_listed_for_a_batch_beyond_what_kernels_count() {
    let rows = |batch| {
        let table = summary(models::builtin("mnist-mlp").expect("no such model"), &Config::default().batch(batch));
        table.expect("a table").rows().to_vec()
    };
    let (few, many) = (rows(2), rows(8_000_000));
    for (few, many) in few.iter().zip(&many) {
        assert_eq!((&few.name, &few.output, few.parameters), (&many.name, &many.output, many.parameters));
        assert_eq!(few.saved_bytes * 4_000_000, many.saved_bytes, "{}", few.name);
    }
    assert_eq!(many[0].saved_bytes, 8_000_000 * 784 * 4);
}

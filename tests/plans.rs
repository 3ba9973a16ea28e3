//! Evidence link 4: plans of the built-in models as text, at no budget, 75% and 50% of the need, and the minimum.

use tightfit::models;
use tightfit::plan::Limits;
use tightfit::train::{Config, plan};

fn snapshot(name: &str, batch: usize) {
    let model = models::builtin(name).expect("no such model");
    let config = Config::default().batch(batch);
    let limits = Limits::any_device();
    let unlimited = plan(&model, &config, &limits).expect("plan").plan;
    let need = unlimited.peak_bytes;
    let minimum = unlimited.minimum_budget_bytes;
    let mut text = format!("{name}, batch {batch}, no budget\n{unlimited}\n");
    for (title, budget) in [("75% of the need", need / 4 * 3), ("50% of the need", need / 2), ("minimum", minimum)] {
        text += &format!("\n{title}\n");
        match plan(&model, &config.clone().budget_bytes(budget), &limits) {
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

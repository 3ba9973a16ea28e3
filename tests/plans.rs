//! Evidence link 4: plans of the built-in models as text, at no budget, 75% and 50% of the need, and the minimum; and those that
//! README shows.

use std::fs;
use std::path::Path;
use std::process::Command;

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

/// What a command line prints in the folder of the sources, without spaces at the ends of lines.
fn printed(command: &str) -> String {
    let binary = Path::new(env!("CARGO_BIN_EXE_tightfit")).parent().expect("a folder");
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").expect("a search path"));
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).env("PATH", path).current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = shell.env_remove("RUST_LOG").output().expect("sh runs");
    String::from_utf8_lossy(&output.stdout).lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// README shows what its commands print. With `TIGHTFIT_README=write`, what they print goes into it.
#[cfg(unix)]
#[test]
fn outputs_in_the_readme_are_those_of_their_commands() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let text = fs::read_to_string(&path).expect("readable");
    let (mut fresh, mut plans, mut rest) = (String::new(), 0, text.as_str());
    while let Some((before, block)) = rest.split_once("```console\n") {
        let (block, after) = block.split_once("```\n").expect("a block ends");
        let (command, output) = block.split_once('\n').expect("a command and its output");
        let command = command.strip_prefix("$ ").unwrap_or_else(|| panic!("an output without its command: {command}"));
        // Others take a device, or print times.
        let is_plan = command.starts_with("tightfit plan ");
        plans += usize::from(is_plan);
        let output = if is_plan { printed(command) } else { output.to_owned() };
        fresh += &format!("{before}```console\n$ {command}\n{output}```\n");
        rest = after;
    }
    fresh += rest;
    assert!(plans >= 5, "only {plans} plans");
    // The picture of the stages is no output.
    assert_eq!(fresh.matches("```text\n").count(), 1, "outputs stand in blocks that begin with ```console");
    if std::env::var_os("TIGHTFIT_README").is_some_and(|value| value == "write") {
        return fs::write(&path, &fresh).expect("writable");
    }
    for (shown, printed) in text.lines().zip(fresh.lines()) {
        assert_eq!(shown, printed, "run this test with TIGHTFIT_README=write");
    }
    assert_eq!(text.lines().count(), fresh.lines().count(), "run this test with TIGHTFIT_README=write");
}

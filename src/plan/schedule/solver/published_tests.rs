//! Published instances: training graphs with the schedules that a commercial solver found for Checkmate's program.
//!
//! The accounting is the publication's: a cost of 1 is 0.01 ms, bytes are KiB, and workspaces are not charged.

use std::path::PathBuf;
use std::time::Instant;

use serde_json::Value as Json;

use super::problem::{OperationSpec, Problem, Value};
use super::sequence::{Entry, Simulator};
use super::solve::{Effort, solve};

/// The effort of plans; the search does not end before its work is done.
const EFFORT: Effort = Effort { search_work: 400_000_000, bound_work: 60_000, good_enough: 0.0 };

/// One row of `anchors.csv`.
struct Anchor {
    instance: String,
    budget_gb: String,
    budget: u64,
    plain_cost: u64,
    /// The cost that the solver found, and the bound of the one-cut relaxation.
    known_cost: u64,
    one_cut_bound: f64,
}

fn read(name: &str) -> Option<String> {
    let folder = PathBuf::from(std::env::var_os("TIGHTFIT_DATA")?).join("planner");
    Some(std::fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}")))
}

fn read_json(name: &str) -> Json {
    serde_json::from_str(&read(name).expect("it was set before")).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn anchors() -> Vec<Anchor> {
    let Some(text) = read("anchors.csv") else {
        println!("skipped: TIGHTFIT_DATA is not set, so there are no published schedules to compare with");
        return Vec::new();
    };
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        let number = |cell: usize| cells[cell].parse().unwrap_or_else(|error| panic!("{line}: {error}"));
        Anchor {
            instance: cells[0].to_owned(),
            budget_gb: cells[1].to_owned(),
            budget: number(2),
            plain_cost: number(3),
            known_cost: number(4),
            one_cut_bound: number(6) as f64,
        }
    };
    text.lines().skip(1).map(row).collect()
}

fn unsigned(value: &Json) -> usize {
    value.as_u64().expect("a number") as usize
}

/// The graph of an instance, and the bytes that are taken all the time.
fn instance(name: &str) -> (Problem, u64) {
    let json = read_json(&format!("{name}.json"));
    let kib = |bytes: &Json| (bytes.as_f64().expect("bytes") / 1024.0).round() as u64;
    let nodes = json["nodes"].as_array().expect("nodes");
    let (mut operations, mut values) = (Vec::new(), Vec::new());
    for (number, node) in nodes.iter().enumerate() {
        operations.push(OperationSpec {
            inputs: node["deps"].as_array().expect("operands").iter().map(unsigned).collect(),
            outputs: vec![number],
            cost: (node["compute_ms"][0].as_f64().expect("a time") * 100.0).round() as u64,
            repeatable_before: nodes.len(),
            ..OperationSpec::default()
        });
        values.push(Value { bytes: kib(&node["mem_bytes"]), ..Value::default() });
    }
    let fixed = nodes.last().map_or(0, |node| kib(&node["fixed_mem_bytes"]));
    (Problem::new(&operations, values, unsigned(&json["loss_node"])), fixed)
}

/// The schedule that the solver found: what each stage computes.
fn published(anchor: &Anchor) -> (Vec<Entry>, u64) {
    let json = read_json(&format!("{}.checkmate_solution.{}.json", anchor.instance, anchor.budget_gb));
    let mut entries = Vec::new();
    for (stage, computed) in json["R"].as_array().expect("stages").iter().enumerate() {
        entries.extend(computed.as_array().expect("a stage").iter().map(|o| Entry::run(stage, unsigned(o))));
    }
    entries.sort_unstable();
    (entries, unsigned(&json["objective"]) as u64)
}

#[test]
fn published_schedules_come_to_what_was_published() {
    for anchor in anchors() {
        let (problem, fixed) = instance(&anchor.instance);
        let gb: f64 = anchor.budget_gb.parse().expect("a number");
        assert_eq!(anchor.budget, (gb * 1_048_576.0) as u64 - fixed);
        assert_eq!(problem.plain_cost(), anchor.plain_cost);
        let (entries, objective) = published(&anchor);
        let outcome = Simulator::new(&problem).run(&entries, anchor.budget);
        assert_eq!((outcome.cost, objective), (anchor.known_cost, anchor.known_cost));
        assert!(outcome.peak_bytes <= anchor.budget, "{} at {}", anchor.instance, anchor.budget_gb);
    }
}

#[test]
fn schedules_are_as_good_as_published_ones_or_nearly() {
    for anchor in anchors() {
        let (problem, _) = instance(&anchor.instance);
        let start = Instant::now();
        let solution = solve(&problem, anchor.budget, EFFORT);
        let lower = problem.plain_cost() as f64 + solution.bound.extra_cost;
        let name = format!("{} at {} GB", anchor.instance, anchor.budget_gb);
        let gap = solution.cost as f64 / anchor.known_cost as f64 - 1.0;
        println!(
            "{name}: cost {} against {} ({:+.3}%), bound {lower:.1} ({:.3}% below) against {}, {:.0} ms",
            solution.cost,
            anchor.known_cost,
            gap * 100.0,
            (solution.cost as f64 / lower - 1.0) * 100.0,
            anchor.one_cut_bound,
            start.elapsed().as_secs_f64() * 1e3,
        );
        let entries = solution.entries.unwrap_or_else(|| panic!("{name}: nothing fits"));
        let outcome = Simulator::new(&problem).run(&entries, anchor.budget);
        assert_eq!((outcome.cost, outcome.excess_bytes), (solution.cost, 0), "{name}");
        assert!(lower >= anchor.one_cut_bound * (1.0 - 1e-5), "{name}: the bound is weak");
        assert!(lower <= solution.cost.min(anchor.known_cost) as f64, "{name}: the bound is wrong");
        let allowed = match (anchor.instance.as_str(), anchor.budget_gb.as_str()) {
            ("vgg16_176", _) => 0.0,
            (_, "5.00") => 0.02,
            _ => 0.005,
        };
        assert!(gap <= allowed, "{name}: {:.3}% above what is known", gap * 100.0);
    }
}

//! `tightfit bench planner`: how good the planner is on published instances.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};
use tightfit::command::bench::{self, CheckmateInstance, Outcome, PoetInstance};
use tightfit::command::files;

use super::super::failure::Failure;
use super::super::output::Output;

/// Instances are a few MB.
const MAX_FILE_BYTES: u64 = 1 << 30;
/// Units of work in a second, about.
const WORK_PER_SECOND: f64 = 400e6;
/// Shares of what a network needs, as budgets for instances that come without.
const SHARES: [f64; 3] = [0.75, 0.5, 0.35];
/// Operations of made-up deep graphs, to show how planning scales.
const DEEP: [usize; 2] = [2_000, 20_000];

#[derive(Args, Debug)]
pub(super) struct PlannerArgs {
    /// Folder with the instances
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Work for each instance and budget, in seconds of one core, about
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    seconds: f64,
}

fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| (1e-3..=1e6).contains(number));
    number.ok_or_else(|| "it must be a number of seconds, 0.001 or above".to_owned())
}

/// A line of `planner/anchors.csv`.
#[derive(Debug, Deserialize)]
struct Anchor {
    instance: String,
    budget_gb: f64,
    checkmate_gurobi_best: u64,
    onecut_lagrangian_lb: f64,
}

pub(super) fn run(args: &PlannerArgs, output: &Output) -> Result<u8, Failure> {
    let PlannerArgs { dir, seconds } = args;
    let work = (seconds * WORK_PER_SECOND) as u64;
    let [schedules, placements, networks] = ["planner", "placement", "poet"].map(|name| dir.join(name));
    if ![&schedules, &placements, &networks].iter().any(|folder| folder.is_dir()) {
        return Err(Failure::bad_input(format!(
            "{}: there is no folder planner, placement or poet in it",
            dir.display()
        )));
    }
    if schedules.is_dir() {
        measured(&schedules, work, output)?;
    }
    if placements.is_dir() {
        placement(&placements, output)?;
    }
    if networks.is_dir() {
        paged(&networks, work, output)?;
    }
    deep(work, output);
    Ok(0)
}

fn read(path: &Path) -> Result<String, Failure> {
    let bytes = files::read(path, MAX_FILE_BYTES, "give the folder of the instances")?;
    String::from_utf8(bytes).map_err(|error| Failure::bad_input(format!("{}: {error}", path.display())))
}

/// Files with this ending in a folder, by name.
fn files(dir: &Path, ending: &str) -> Result<Vec<PathBuf>, Failure> {
    let entries = fs::read_dir(dir).map_err(|error| Failure::bad_input(format!("{}: {error}", dir.display())))?;
    let mut files: Vec<_> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    files.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(ending)));
    files.sort();
    Ok(files)
}

fn stem(path: &Path) -> String {
    path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
}

fn percent(share: f64) -> String {
    format!("{:.3}%", share * 100.0)
}

fn measured(dir: &Path, work: u64, output: &Output) -> Result<(), Failure> {
    let path = dir.join("anchors.csv");
    let anchors: Vec<Anchor> = csv::Reader::from_reader(read(&path)?.as_bytes())
        .deserialize()
        .collect::<Result<_, _>>()
        .map_err(|error| Failure::bad_input(format!("{}: {error}", path.display())))?;
    output.text(format_args!(
        "{:<12} {:>6} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8}",
        "schedule", "GB", "cost", "best", "vs best", "bound", "gap", "time"
    ));
    for anchor in anchors {
        let path = dir.join(format!("{}.json", anchor.instance));
        let corrupt = |reason: String| Failure::bad_input(format!("{}: {reason}", path.display()));
        let instance = CheckmateInstance::parse(&read(&path)?).map_err(corrupt)?;
        let start = Instant::now();
        let found = instance.solve(anchor.budget_gb, work).map_err(corrupt)?;
        let time = start.elapsed().as_secs_f64();
        let best = anchor.checkmate_gurobi_best;
        let against = found.cost.map(|cost| cost as f64 / best as f64 - 1.0);
        output.text(format_args!(
            "{:<12} {:>6.2} {:>9} {best:>9} {:>9} {:>9} {:>8} {:>6.2} s",
            anchor.instance,
            anchor.budget_gb,
            or_none(found.cost, |cost| cost.to_string()),
            against.map_or_else(String::new, percent),
            or_none(finite(&found), |bound| format!("{bound:.0}")),
            found.gap().map_or_else(String::new, percent),
            time
        ));
        let mut object = scheduled(&found, time);
        object["instance"] = json!(anchor.instance);
        object["budget_gb"] = json!(anchor.budget_gb);
        object["plain_cost"] = json!(instance.plain_cost());
        object["known_cost"] = json!(best);
        object["known_bound"] = json!(anchor.onecut_lagrangian_lb);
        output.object(&object);
    }
    Ok(())
}

/// A bound below which nothing costs; `None` where there is no schedule at all.
fn finite(found: &Outcome) -> Option<f64> {
    Some(found.bound).filter(|bound| bound.is_finite())
}

fn or_none<T>(figure: Option<T>, show: impl FnOnce(T) -> String) -> String {
    figure.map_or_else(|| "none".to_owned(), show)
}

fn scheduled(found: &Outcome, time: f64) -> Value {
    json!({
        "event": "schedule",
        "budget": found.budget,
        "cost": found.cost,
        "peak": found.peak,
        "bound": finite(found),
        "gap": found.gap(),
        "evaluations": found.evaluations,
        "seconds": time,
    })
}

fn placement(dir: &Path, output: &Output) -> Result<(), Failure> {
    output.text(format_args!(
        "\n{:<12} {:>7} {:>10} {:>10} {:>10} {:>9}",
        "placement", "blocks", "bytes", "floor", "capacity", "time"
    ));
    for path in files(dir, ".csv")? {
        let corrupt = |error: csv::Error| Failure::bad_input(format!("{}: {error}", path.display()));
        let mut reader = csv::Reader::from_path(&path).map_err(corrupt)?;
        let rows = reader.deserialize::<(String, usize, usize, u64)>();
        let rows: Vec<_> = rows
            .map(|row| row.map(|(_, start, end, bytes)| (start, end, bytes)))
            .collect::<Result<_, _>>()
            .map_err(corrupt)?;
        if let Some(row) = rows.iter().position(|&(start, end, bytes)| start >= end || bytes == 0) {
            return Err(Failure::bad_input(format!("{}: row {} is empty", path.display(), row + 1)));
        }
        // The capacity that is known to suffice is in the name.
        let name = stem(&path);
        let capacity = name.rsplit('.').next().and_then(|text| text.parse::<u64>().ok());
        let start = Instant::now();
        let packed = bench::place(&rows, None);
        let time = start.elapsed().as_secs_f64();
        output.text(format_args!(
            "{name:<12} {:>7} {:>10} {:>10} {:>10} {:>6.3} s",
            rows.len(),
            packed.bytes,
            packed.floor_bytes,
            capacity.map_or_else(String::new, |capacity| capacity.to_string()),
            time
        ));
        output.object(&json!({
            "event": "placement",
            "instance": name,
            "blocks": rows.len(),
            "bytes": packed.bytes,
            "floor_bytes": packed.floor_bytes,
            "capacity_bytes": capacity,
            "seconds": time,
        }));
    }
    Ok(())
}

fn paged(dir: &Path, work: u64, output: &Output) -> Result<(), Failure> {
    let path = dir.join("chipsets.json");
    let devices =
        bench::devices(&read(&path)?).map_err(|reason| Failure::bad_input(format!("{}: {reason}", path.display())))?;
    output.text(format_args!(
        "\nrecompute and paging\n{:<10} {:>9} {:>12} {:>12} {:>12} {:>12} {:>7}",
        "device", "budget", "recompute mJ", "paging mJ", "both mJ", "bound mJ", "time"
    ));
    for (device, _) in devices.iter().filter(|(_, costs)| !costs.is_complete()) {
        output.text(format_args!("{device:<10} left out: it states no energy of computing"));
    }
    for file in files(dir, ".json")?.into_iter().filter(|file| *file != path) {
        let network = PoetInstance::parse(&read(&file)?)
            .map_err(|reason| Failure::bad_input(format!("{}: {reason}", file.display())))?;
        let need_bytes = network.need_bytes();
        output.text(stem(&file));
        for (device, costs) in devices.iter().filter(|(_, costs)| costs.is_complete()) {
            for share in SHARES {
                let budget_bytes = (need_bytes as f64 * share) as u64;
                let start = Instant::now();
                let found = network.compare(costs, budget_bytes, work / 10);
                let time = start.elapsed().as_secs_f64();
                let energy = |nanojoules: f64| format!("{:.3}", nanojoules / 1e6);
                let shown = |found: &Outcome| or_none(found.cost, |cost| energy(cost as f64));
                output.text(format_args!(
                    "{device:<10} {budget_bytes:>9} {:>12} {:>12} {:>12} {:>12} {:>5.2} s",
                    shown(&found.recompute),
                    shown(&found.paging),
                    shown(&found.both),
                    or_none(finite(&found.both), energy),
                    time
                ));
                let mut object = scheduled(&found.both, time);
                object["event"] = json!("paging");
                object["instance"] = json!(stem(&file));
                object["device"] = json!(device);
                object["recompute_cost"] = json!(found.recompute.cost);
                object["paging_cost"] = json!(found.paging.cost);
                output.object(&object);
            }
        }
    }
    Ok(())
}

fn deep(work: u64, output: &Output) {
    output.text(format_args!(
        "\n{:<12} {:>11} {:>12} {:>9} {:>9} {:>8} {:>8}",
        "deep graphs", "operations", "budget", "overhead", "bound", "gap", "time"
    ));
    for operations in DEEP {
        let instance = CheckmateInstance::deep(operations);
        for share in SHARES {
            let start = Instant::now();
            let found = instance.solve_share(share, work);
            let time = start.elapsed().as_secs_f64();
            let plain = instance.plain_cost() as f64;
            output.text(format_args!(
                "{:<12} {operations:>11} {:>12} {:>9} {:>9} {:>8} {:>6.2} s",
                "",
                found.budget,
                or_none(found.cost, |cost| percent(cost as f64 / plain - 1.0)),
                percent(found.bound / plain - 1.0),
                found.gap().map_or_else(String::new, percent),
                time
            ));
            let mut object = scheduled(&found, time);
            object["event"] = json!("deep");
            object["operations"] = json!(operations);
            output.object(&object);
        }
    }
}

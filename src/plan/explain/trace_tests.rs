//! Traces are what viewers take, and say what the plan does.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::super::toy::Chain;
use super::super::{Command, CostModel, Levers, Limits, Planned, Request, plan};
use super::tests::planned as recomputing_and_offloading;
use super::trace::write_at_most;
use super::*;

fn in_micro_batches(micro_batches: usize) -> Planned {
    let chain = Chain { layers: 4, width: 30, mixes_samples: false };
    let (levers, limits, costs) = (Levers::default(), Limits::default(), CostModel::default());
    let batch = 4 * micro_batches;
    let request = Request { batch, budget_bytes: None, micro_batches: Some(micro_batches), levers, limits, costs };
    plan(&chain, &request).expect("a plan")
}

fn predicted(planned: &Planned) -> StepTimes {
    StepTimes::predicted(planned, &CostModel::default())
}

fn trace(planned: &Planned, times: &StepTimes) -> Value {
    let mut text = String::new();
    planned.write_trace("a \"model\"", times, &mut text).expect("memory takes it");
    if let Some(path) = std::env::var_os("TIGHTFIT_TRACE") {
        std::fs::write(path, &text).expect("writable");
    }
    serde_json::from_str(&text).expect("JSON")
}

fn number(event: &Value, key: &str) -> f64 {
    event[key].as_f64().unwrap_or_else(|| panic!("{key} of {event}"))
}

/// What every viewer needs; returns the highest sum of transient bytes.
fn check(planned: &Planned, trace: &Value) -> u64 {
    let plan = &planned.plan;
    let mut open: BTreeMap<(u64, &str), &str> = BTreeMap::new();
    let mut slices: BTreeMap<(u64, u64), f64> = BTreeMap::new();
    let mut peak = 0;
    let mut last = 0.0;
    for event in trace["traceEvents"].as_array().expect("events") {
        let (name, ts) = (event["name"].as_str().expect("a name"), number(event, "ts"));
        let (pid, tid) = (event["pid"].as_u64().expect("a pid"), event["tid"].as_u64().expect("a tid"));
        assert!(!name.is_empty() && ts >= 0.0 && (ts * 64.0).fract() == 0.0, "{event}");
        if event["ph"] != "X" || tid != 1 {
            assert!(ts >= last, "in order of time: {event}");
            last = ts;
        }
        match event["ph"].as_str().expect("a phase") {
            "M" => assert!(event["args"].is_object()),
            "X" => {
                let end = slices.entry((pid, tid)).or_default();
                assert!(*end <= ts && number(event, "dur") >= 0.0, "one after the other: {event}");
                *end = ts + number(event, "dur");
            }
            "C" => {
                let series = event["args"].as_object().expect("series");
                let series: Vec<_> =
                    series.iter().map(|(name, bytes)| (&**name, bytes.as_u64().expect("not negative"))).collect();
                if name == "host bytes" {
                    assert_eq!(series, [("host tier", plan.arena_bytes(ArenaRole::Host))]);
                    continue;
                }
                assert_eq!(series.iter().map(|(_, bytes)| bytes).sum::<u64>(), plan.peak_bytes);
                let transient = ["inputs", "activations", "gradients", "workspaces", "fetched"];
                let live = series.iter().filter(|(name, _)| transient.contains(name)).map(|(_, bytes)| bytes).sum();
                peak = peak.max(live);
            }
            "b" => {
                assert_eq!(open.insert((pid, event["id"].as_str().expect("an id")), name), None, "{event}");
                let place = (&event["args"]["arena"], &event["args"]["offset"], &event["args"]["bytes"]);
                let arena = plan.arenas[place.0.as_u64().expect("an arena") as usize];
                assert!(place.1.as_u64().expect("an offset") + place.2.as_u64().expect("bytes") <= arena.size_bytes);
            }
            "e" => assert_eq!(open.remove(&(pid, event["id"].as_str().expect("an id"))), Some(name), "{event}"),
            other => panic!("{other}"),
        }
    }
    assert!(open.is_empty(), "{open:?}");
    peak
}

fn named<'a>(trace: &'a Value, ph: &str, part: &str) -> Vec<&'a Value> {
    let events = trace["traceEvents"].as_array().expect("events").iter();
    events.filter(|event| event["ph"] == ph && event["name"].as_str().expect("a name").contains(part)).collect()
}

fn slices<'a>(trace: &'a Value, category: &str) -> Vec<&'a Value> {
    named(trace, "X", "").into_iter().filter(|event| event["cat"] == category).collect()
}

#[test]
fn a_trace_shows_the_plan() {
    for planned in [recomputing_and_offloading(), in_micro_batches(1), in_micro_batches(5)] {
        let plan = &planned.plan;
        let times = predicted(&planned);
        let trace = trace(&planned, &times);
        let live = plan.schedule.iter().map(|&program| plan.programs[program].live_peak_bytes).max();
        assert_eq!(Some(check(&planned, &trace)), live);
        // As long as a step is predicted to be.
        let micro_batches = slices(&trace, "micro-batch");
        assert_eq!(micro_batches.len(), plan.micro_batches.len());
        let end = number(micro_batches[micro_batches.len() - 1], "ts")
            + number(micro_batches[micro_batches.len() - 1], "dur");
        let predicted = plan.schedule.iter().map(|&program| plan.programs[program].predicted_ns).sum::<u64>() as f64;
        assert!((end * 1e3 - predicted).abs() <= 16.0 + plan.schedule.len() as f64, "{end} µs, {predicted} ns");
        assert!((times.total_ns() - predicted).abs() <= plan.schedule.len() as f64);
        // A slice for each command, and a beginning for each tensor.
        let commands = plan.schedule.iter().flat_map(|&program| &plan.programs[program].commands);
        let take_time = commands.filter(|command| !matches!(command, Command::Free { .. })).count();
        let shown = named(&trace, "X", "").len() - micro_batches.len() - slices(&trace, "upload").len();
        assert_eq!(shown, take_time);
        let stay: BTreeSet<_> = plan.persistent.iter().map(|value| value.name.as_str()).collect();
        let beginnings = named(&trace, "b", "").into_iter().filter(|event| event["pid"] == 3);
        assert_eq!(beginnings.map(|event| event["name"].as_str().expect("a name")).collect::<BTreeSet<_>>(), stay);
    }
}

#[test]
fn what_is_recomputed_or_moved_says_why() {
    let planned = recomputing_and_offloading();
    let trace = trace(&planned, &predicted(&planned));
    let reason = |event: &Value| event["args"]["reason"].as_str().map(str::to_owned);
    let [recompute, offload, fetch] = ["recompute", "offload", "fetch"].map(|category| slices(&trace, category));
    assert_eq!((recompute.len(), offload.len(), fetch.len()), (2, 1, 1));
    assert_eq!(reason(recompute[1]).as_deref(), Some("frees memory for 9 commands <&>"));
    assert!(recompute[1]["args"]["recomputed"] == true && number(&recompute[1]["args"], "flops") > 0.0);
    for moved in [offload[0], fetch[0]] {
        assert_eq!(reason(moved).as_deref(), Some("frees memory for 5 commands <&>"));
        assert_eq!((moved["tid"].as_u64(), moved["args"]["bytes"].as_u64()), (Some(3), Some(25_600)));
        assert!(number(moved, "dur") > 0.0);
    }
    // The fetched tensor and the one that was offloaded are in one row.
    let tensors = named(&trace, "b", "");
    let fetched = tensors.iter().find(|event| event["args"]["content"] == "fetched").expect("a tensor that is fetched");
    let moved: Vec<_> = tensors.iter().filter(|event| event["id"] == fetched["id"]).collect();
    assert_eq!(moved.len(), 2, "{moved:?}");
    assert_eq!(moved[0]["name"], moved[1]["name"]);
    assert_eq!((&moved[0]["args"]["then"], &moved[1]["args"]["content"]), (&"offloaded".into(), &"fetched".into()));
    assert_eq!(moved[0]["args"]["gone_because"], moved[1]["args"]["reason"]);
}

#[test]
fn measured_times_have_the_layout_of_predicted_ones() {
    let planned = in_micro_batches(3);
    let nodes_ns = |&program: &usize| {
        let commands = &planned.plan.programs[program].commands;
        let nodes = commands.iter().filter(|command| matches!(command, Command::Dispatch { .. }));
        nodes.zip(1..).map(|(_, n)| f64::from(n) * 1_000.0).collect::<Vec<_>>()
    };
    let nodes_ns: Vec<_> = planned.plan.schedule.iter().map(nodes_ns).collect();
    let predicted = predicted(&planned);
    let measured = predicted.clone().with_measured_nodes(&planned.plan, "timestamps", &nodes_ns);
    let nodes: f64 = nodes_ns.iter().flatten().sum();
    assert_eq!(measured.total_ns(), nodes + 3.0 * CostModel::default().run_ns());
    let [predicted, measured] = [&predicted, &measured].map(|times| trace(&planned, times));
    check(&planned, &measured);
    let layout = |trace: &Value| -> Vec<_> {
        let events = trace["traceEvents"].as_array().expect("events").iter();
        let shown = events.filter(|event| event["ph"] != "M");
        shown
            .map(|event| (event["name"].clone(), event["ph"].clone(), event["tid"].clone(), event["id"].clone()))
            .collect()
    };
    assert_eq!(layout(&measured), layout(&predicted));
    let forward = slices(&measured, "forward");
    assert_eq!((&forward[1]["args"]["time"], number(forward[1], "dur")), (&"measured".into(), 2.0));
    assert_eq!(slices(&predicted, "forward")[1]["args"]["time"], "predicted");
    assert_eq!(
        (&measured["otherData"]["clock"], &predicted["otherData"]["clock"]),
        (&"timestamps".into(), &"predicted".into())
    );
    // Fewer times than nodes are no reason to fail.
    check(&planned, &trace(&planned, &StepTimes { clock: "none".to_owned(), runs: Vec::new() }));
}

#[test]
fn of_very_many_micro_batches_the_first_and_the_last_are_shown_in_full() {
    let planned = in_micro_batches(100);
    let times = predicted(&planned);
    let mut text = String::new();
    write_at_most(&planned, "chain", &times, 2_000, &mut text).expect("memory takes it");
    let trace: Value = serde_json::from_str(&text).expect("JSON");
    check(&planned, &trace);
    let micro_batches = slices(&trace, "micro-batch");
    let in_full: Vec<_> = micro_batches.iter().map(|event| event["args"]["commands_shown"] == true).collect();
    let count = in_full.iter().filter(|in_full| **in_full).count();
    assert!((3..50).contains(&count) && in_full[0] && in_full[99] && !in_full[98], "{count}");
    assert_eq!(trace["otherData"]["micro_batches_without_commands"], 100 - count);
    assert!(trace["traceEvents"].as_array().is_some_and(|events| events.len() < 2_500));
    assert!(!slices(&trace, "update").is_empty());
}

//! Tables and pictures of a plan that recomputes one tensor and offloads another.

use std::rc::Rc;

use super::super::candidate::{Candidate, Form};
use super::super::layout::Layout;
use super::super::layout::placement::MOST_WORK;
use super::super::schedule::{Event, Schedule};
use super::super::toy::Chain;
use super::super::{Bound, Command, CostModel, Lever, Levers, Limits, Planned, Reason, Request, check, emit};
use super::*;
use crate::graph::{Graph, Phase};
use crate::tensor::{NodeId, ValueId};

/// Six layers: what layer 1 makes is recomputed for its backward, what layer 3 makes comes back from the host.
pub(super) fn planned() -> Planned {
    let chain = Chain { layers: 6, width: 100, mixes_samples: false };
    let (levers, limits, costs) = (Levers::default(), Limits::any_device(), CostModel::default());
    let request = Request { batch: 64, budget_bytes: Some(8 << 20), micro_batches: Some(1), levers, limits, costs };
    let candidate = Rc::new(Candidate::new(&chain, &request, vec![64], Form::default()).expect("a candidate"));
    let mut schedule = Schedule::plain(&candidate);
    let graph = &candidate.programs[0].graph;
    let (again, fetched) = (graph.node(NodeId(3)).outputs[0], graph.node(NodeId(7)).outputs[0]);
    let mut events = std::mem::take(&mut schedule.events[0]);
    let at = first_backward_use(graph, &events, again);
    events.splice(at..at, [Event::Run(NodeId(2)), Event::Run(NodeId(3))]);
    let at = first_backward_use(graph, &events, fetched);
    events.insert(at, Event::Fetch(fetched));
    schedule.events[0] = events;
    schedule.offload.moves = true;
    let mut planned = emit::plan(&Layout::new(schedule.into(), 0, MOST_WORK));
    let plan = &mut planned.plan;
    let reason = |command: usize, lever, name: &str, absent_commands| Reason {
        program: 0,
        command: command as u32,
        lever,
        name: name.to_owned(),
        size_bytes: 25_600,
        absent_commands,
        cost_ns: 40_000,
        text: format!("frees memory for {absent_commands} commands <&>"),
    };
    let position =
        |wanted: &dyn Fn(&Command) -> bool| plan.programs[0].commands.iter().rposition(wanted).expect("such a command");
    let run = position(&|command| matches!(command, Command::Dispatch { node: NodeId(3), .. }));
    let fetch = position(&|command| matches!(command, Command::Prefetch { .. }));
    plan.reasons = vec![
        reason(run, Lever::Recompute, "layer1:mix", 9),
        reason(fetch, Lever::Offload, "layer3:mix", 5),
        reason(fetch, Lever::Offload, "layer3:mix", 5),
    ];
    plan.unconstrained_step_ns = plan.predicted_step_ns - 300_000;
    let step_ns = plan.predicted_step_ns as f64 - 50_000.0;
    plan.bound = Some(Bound { step_ns, shadow_price_ns_per_byte: 0.25 });
    check(&planned.plan, &planned.graphs).expect("a valid plan");
    planned
}

fn first_backward_use(graph: &Graph, events: &[Event], value: ValueId) -> usize {
    let uses = |event: &Event| match *event {
        Event::Run(id) => {
            let node = graph.node(id);
            node.phase != Phase::Forward && node.inputs.iter().any(|&input| graph.storage_root(input) == value)
        }
        Event::Fetch(_) => false,
    };
    events.iter().position(uses).expect("a use")
}

#[test]
fn the_table_says_what_the_budget_costs() {
    let plan = planned().plan;
    let text = plan.to_string();
    println!("{text}");
    let lines = |words: &[&str]| text.lines().any(|line| words.iter().all(|word| line.contains(word)));
    assert!(lines(&["host tier", "25.0 KiB"]) && !text.contains("frees nothing"));
    assert!(lines(&["overhead", "300.0 µs", "% of unconstrained"]));
    assert!(lines(&["at least", "250.0 µs", "this plan is", "above"]));
    assert!(lines(&["  100 KiB more", "25.6 µs", "less at most, with these micro-batches"]));
    // What is left to save is less than what the memory is worth where it is tightest.
    let mut near = plan.clone();
    near.bound = near.bound.map(|bound| Bound { step_ns: near.unconstrained_step_ns as f64 + 700.0, ..bound });
    assert_eq!(near.worth_of_memory(), Some(("100 KiB", 700.0)));
    for (part, time) in [("  recomputing", "40.0 µs"), ("  transfers", "80.0 µs"), ("  the rest", "180.0 µs")] {
        assert!(lines(&[part, time]), "{part}");
    }
    let ends: Vec<_> = text.lines().take_while(|line| !line.starts_with("recomputed")).collect();
    for line in ends {
        let (figure, note) = line.split_at(line.char_indices().nth(33).map_or(line.len(), |(at, _)| at));
        assert!(!figure.ends_with(' ') && (note.is_empty() || note.starts_with("  ")), "figures end alike: {line}");
    }
    assert!(lines(&["recomputed", "50.0 KiB", "2 tensors, 40.0 µs a step"]));
    assert!(lines(&["offloaded", "25.0 KiB", "1 tensor, 80.0 µs a step"]));
    assert!(text.ends_with("frees memory for 5 commands <&>"), "the least of two reasons comes last");
    assert!(plan.table().unified_memory(true).to_string().contains("frees nothing"));
    assert_eq!(plan.lever(Lever::Offload), LeverUse { tensors: 1, size_bytes: 25_600, commands: 1, step_ns: 80_000 });
    assert_eq!(plan.main_reasons(5).len(), 2);
}

/// Checks that tags nest and text is escaped; returns the names of all elements.
fn elements(xml: &str) -> Vec<String> {
    let mut open: Vec<String> = Vec::new();
    let mut names = Vec::new();
    let mut rest = xml;
    while let Some(start) = rest.find('<') {
        let (text, tag) = rest.split_at(start);
        assert!(!text.contains('>'), "{text}");
        for (at, _) in text.match_indices('&') {
            let entity = &text[at + 1..];
            assert!(["amp;", "lt;", "gt;", "quot;", "#10;"].iter().any(|known| entity.starts_with(known)), "{text}");
        }
        let end = tag.find('>').expect("a tag ends");
        let inside = &tag[1..end];
        assert_eq!(inside.matches('"').count() % 2, 0, "{inside}");
        if let Some(name) = inside.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name));
        } else {
            let name: String = inside.chars().take_while(char::is_ascii_alphanumeric).collect();
            names.push(name.clone());
            if !inside.ends_with('/') {
                open.push(name);
            }
        }
        rest = &tag[end + 1..];
    }
    assert!(open.is_empty() && rest.trim().is_empty());
    names
}

#[test]
fn what_is_not_named_is_counted() {
    let mut plan = planned().plan;
    assert!(!plan.to_string().contains(" more\n"));
    plan.reasons = (0..8).map(|i| Reason { name: format!("layer{i}:mix"), ..plan.reasons[0].clone() }).collect();
    assert!(plan.to_string().ends_with("\n  and 3 more"), "{plan}");
    (plan.predicted_step_ns, plan.unconstrained_step_ns) = (176_814_700_000, 176_814_700_000);
    let text = plan.to_string();
    assert!(text.contains(" 176.8 s  a step") && !text.contains("overhead") && !text.contains("bound"), "{text}");
}

#[test]
fn the_picture_is_valid_and_marks_what_is_not_kept() {
    let planned = planned();
    let svg = planned.to_svg("a <model> & \"more\"\u{7}");
    if let Some(path) = std::env::var_os("TIGHTFIT_SVG") {
        std::fs::write(path, &svg).expect("writable");
    }
    let names = elements(&svg);
    assert!(names.iter().filter(|name| *name == "rect").count() > 40 && names.iter().any(|name| name == "polyline"));
    for word in [
        "a &lt;model&gt; &amp; &quot;more&quot;\u{fffd}",
        "url(#again)",
        ">recomputed<",
        ">fetched from the host<",
        ">offloaded here<",
        ">recomputing<",
        ">moving from or to the host<",
        ">commands of a step<",
        ">budget 8.0 MiB<",
        "recomputed, commands",
        "then offloaded",
        "(frees memory for 9 commands &lt;&amp;&gt;)",
        "unconstrained",
    ] {
        assert!(svg.contains(word), "{word} in\n{svg}");
    }
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
    assert_eq!(svg, planned.to_svg("a <model> & \"more\"\u{7}"));
}

#[test]
fn a_plan_of_several_programs_shows_each_once() {
    let chain = Chain { layers: 3, width: 10, mixes_samples: false };
    let (levers, limits, costs) = (Levers::default(), Limits::default(), CostModel::default());
    let request = Request { batch: 20, budget_bytes: None, micro_batches: Some(5), levers, limits, costs };
    let svg = super::super::plan(&chain, &request).expect("a plan").to_svg("chain");
    elements(&svg);
    for word in
        ["first micro-batch: 4 samples", "middle micro-batch: 4 samples", ", 3 times", "last micro-batch: 4 samples"]
    {
        assert!(svg.contains(word), "{word}");
    }
    assert!(!svg.contains("evaluation"));
}

#[test]
fn bytes_have_one_decimal_and_a_unit() {
    let shown = [0, 1023, 1024, 102_400, (1 << 20) - 1, 1 << 20, 3 << 29, u64::MAX].map(format_bytes);
    assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "100.0 KiB", "1.0 MiB", "1.0 MiB", "1.5 GiB", "16.0 EiB"]);
}

#[test]
fn times_have_a_unit() {
    let shown = [0.0, -0.2, 999.0, 999.7, 999_949.0, 999_960.0, 2.5e6, 9.9e9, 12e9, -3e6].map(format_ns);
    let expected =
        ["0 ns", "0 ns", "999 ns", "1.0 µs", "999.9 µs", "1.0 ms", "2.5 ms", "9900.0 ms", "12.0 s", "-3.0 ms"];
    assert_eq!(shown, expected);
}

#[test]
fn parts_of_one_size_are_counted() {
    assert_eq!(format_parts(&[64; 4]), "4 × 64");
    assert_eq!(format_parts(&[64, 64, 8]), "2 × 64 + 1 × 8");
}

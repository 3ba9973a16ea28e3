//! `--trace`: steps for viewers of traces.

use std::fs;

use serde_json::Value;

use crate::command::{Fixture, assert_documented, last, objects, refused, run};

fn trace(path: &std::path::Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).expect("readable")).expect("JSON")
}

fn slices(trace: &Value) -> Vec<(&Value, &Value)> {
    let events = trace["traceEvents"].as_array().expect("events").iter();
    events.filter(|event| event["ph"] == "X").map(|event| (&event["name"], &event["tid"])).collect()
}

#[test]
fn a_plan_and_a_training_have_traces_of_one_layout() {
    let fixture = Fixture::new();
    let model = fixture.path("tiny.toml");
    let (planned, measured) = (fixture.path("planned.json"), fixture.path("measured.json"));
    let [model_text, planned_text, measured_text] =
        [&model, &planned, &measured].map(|path| path.to_str().expect("UTF-8"));
    let plan = run(&["plan", model_text, "--device", "cpu", "--batch", "10", "--trace", planned_text, "--json"]);
    assert_eq!(plan.status.code(), Some(0), "{}", String::from_utf8_lossy(&plan.stderr));
    assert_eq!(last(&plan)["trace"], planned_text);

    let train = run(&fixture.train_args(&model, &["--steps", "3", "--trace", measured_text, "--json"]));
    assert_eq!(train.status.code(), Some(0), "{}", String::from_utf8_lossy(&train.stderr));
    let objects = objects(&train);
    let [.., summary, written] = &objects[..] else { panic!("{objects:?}") };
    assert_eq!((&summary["event"], &written["event"]), (&"summary".into(), &"trace".into()));
    assert_eq!(written["trace"], measured_text);
    assert_documented(written, &["`train`"]);
    let plain = last(&run(&fixture.train_args(&model, &["--steps", "3", "--json"])));
    assert_eq!(plain["parameters_sha256"], summary["parameters_sha256"]);

    let (planned_trace, measured_trace) = (trace(&planned), trace(&measured));
    assert_eq!(slices(&planned_trace), slices(&measured_trace));
    assert_eq!(
        (&planned_trace["otherData"]["clock"], &measured_trace["otherData"]["clock"]),
        (&"predicted".into(), &"host".into())
    );

    // A trace replaces one, and nothing else.
    let again = run(&["plan", model_text, "--trace", planned_text]);
    assert_eq!(again.status.code(), Some(0), "{}", String::from_utf8_lossy(&again.stderr));
    fixture.write("notes.json", b"{\"notes\": 1}");
    let notes = fixture.path("notes.json");
    let notes = notes.to_str().expect("UTF-8");
    for args in [vec!["plan", model_text, "--trace", notes], fixture.train_args(&model, &["--trace", notes])] {
        assert!(refused(&args, 2).contains("would replace a file of another kind than a trace (JSON)"));
    }
    assert!(refused(&["plan", model_text, "--trace", model_text], 2).contains("the file given as MODEL"));
    assert!(refused(&["plan", model_text, "--trace", "/nonexistent/t.json"], 2).starts_with("--trace"));
    assert!(refused(&["plan", model_text, "--trace", "t.svg"], 2).ends_with("name it t.json"));
}

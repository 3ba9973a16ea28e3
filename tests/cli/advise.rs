//! `tightfit advise`: its advice, taken, trains inside the budget.

use serde_json::Value;

use crate::command::{Fixture, assert_documented, last, refused, run, stdout};

fn advice(args: &[&str], exit_code: i32) -> Value {
    let output = run(&[args, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(exit_code), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    let object = last(&output);
    assert_documented(&object, &["`advise`", "A plan"]);
    object
}

#[test]
fn the_advice_that_is_taken_trains_inside_the_budget() {
    let fixture = Fixture::new();
    let model = fixture.path("tiny.toml");
    let text = model.to_str().expect("UTF-8");
    let args = ["advise", text, "--device", "cpu", "--threads", "2", "--batch", "30", "--budget"];
    let need = advice(&[&args[..], &["1GiB"]].concat(), 0)["as_it_is"]["peak_bytes"].as_u64().expect("a number");
    let budget = (need - 1).to_string();
    let found = advice(&[&args[..], &[&budget]].concat(), 0);
    assert_eq!(found["as_it_is"]["fits"], false);
    for advice in ["unchanged", "rounded", "cheapest"] {
        let remedy = &found[advice];
        let flags: Vec<&str> = remedy["flags"].as_str().expect("flags").split(' ').collect();
        let data = fixture.dir.path().to_str().expect("UTF-8");
        let mut train = vec!["train", text, "--data", data, "--device", "cpu", "--threads", "2", "--steps", "1"];
        train.extend(&flags);
        if !flags.contains(&"--batch") {
            train.extend(["--batch", "30"]);
        }
        let summary = last(&run(&[&train[..], &["--json"]].concat()));
        assert_eq!(summary["planned_peak_bytes"], remedy["peak_bytes"], "{train:?}: {summary}");
        assert!(summary["measured_peak_bytes"].as_u64() <= Some(need - 1), "{summary}");
    }
    let text = stdout(&run(&[&args[..], &[&budget]].concat()));
    for words in ["remedy", "as it is", "adafactor in place of", "same results", "largest tensors", "optimizer state"] {
        assert!(text.contains(words), "{words} in\n{text}");
    }
}

#[test]
fn where_nothing_fits_that_is_said() {
    let found = advice(&["advise", "mnist-mlp", "--batch", "8", "--budget", "1MiB"], 3);
    assert!(found["unchanged"].is_null() && found["cheapest"].is_null());
    let text = String::from_utf8(run(&["advise", "mnist-mlp", "--batch", "8", "--budget", "1MiB"]).stdout);
    assert!(text.expect("UTF-8").contains("nothing that was tried fits 1.0 MiB"));
    assert!(refused(&["advise", "mnist-mlp"], 2).contains("--budget 8GiB"));
    assert!(refused(&["advise", "no-such-model", "--budget", "1GiB"], 2).contains("no-such-model"));
}

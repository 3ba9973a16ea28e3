//! `train --find-lr`: which learning rate to begin with, and nothing else.

use std::fs;

use serde_json::Value;

use crate::command::{Fixture, assert_documented, last, objects, refused, run, stdout};

const SEARCH: [&str; 7] = ["--find-lr", "--optimizer", "sgd", "--lr-range", "1e-4..100", "--steps", "40"];

fn search(fixture: &Fixture, more: &[&str]) -> Vec<String> {
    let model = fixture.path("tiny.toml");
    let args = fixture.train_args(&model, &[&SEARCH, more].concat()).into_iter().map(str::to_owned);
    args.collect()
}

fn found(fixture: &Fixture, more: &[&str]) -> Value {
    let args = search(fixture, &[more, &["--json"]].concat());
    let output = run(&args.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    objects(&output).iter().for_each(|object| assert_documented(object, &["`train`", "A plan"]));
    let events: Vec<_> = objects(&output).iter().map(|object| object["event"].clone()).collect();
    assert_eq!(events, ["plan", "find_lr"]);
    last(&output)
}

#[test]
fn a_learning_rate_is_suggested_and_nothing_is_kept() {
    let fixture = Fixture::new();
    let files = || fs::read_dir(fixture.dir.path()).expect("a folder").count();
    let before = files();
    let args = search(&fixture, &[]);
    let output = run(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let object = found(&fixture, &[]);
    let points = object["points"].as_array().expect("a list");
    let rates: Vec<_> = points.iter().map(|point| point["lr"].as_f64().expect("a number")).collect();
    assert!(rates[0] == 1e-4 && rates.is_sorted() && rates.len() <= 40, "{rates:?}");
    let suggested = object["suggested_lr"].as_f64().expect("a number");
    assert!(rates[0] < suggested && suggested < *rates.last().expect("one"), "{suggested}");
    assert_eq!((&object["min_lr"], &object["max_lr"], &object["steps"]), (&1e-4.into(), &100.0.into(), &40.into()));
    // The option that is told can be given.
    let (_, told) = text.rsplit_once("where the loss falls fastest: ").expect("a suggestion");
    let lr: f64 = told.trim().strip_prefix("--lr ").and_then(|lr| lr.parse().ok()).expect("an option");
    assert!((lr / suggested - 1.0).abs() < 0.06, "{lr} for {suggested}");
    for words in ["step 4/40  lr ", "learning rate  smoothed loss\n"] {
        assert!(text.contains(words), "{words}\n{text}");
    }
    assert!(!text.contains("measured peak") && !text.contains("accuracy"), "{text}");
    assert_eq!(files(), before);
}

#[test]
fn it_begins_with_the_weights_and_draws_a_picture() {
    let fixture = Fixture::new();
    let (model, weights, svg) = (fixture.path("tiny.toml"), fixture.path("w.safetensors"), fixture.path("lr.svg"));
    let (weights, svg) = (weights.to_str().expect("UTF-8"), svg.to_str().expect("UTF-8"));
    let trained = run(&fixture.train_args(&model, &["--epochs", "30", "--save", weights]));
    assert_eq!(trained.status.code(), Some(0));
    let first = |object: Value| object["points"][0]["loss"].as_f64().expect("a number");
    let (fresh, loaded) = (first(found(&fixture, &[])), found(&fixture, &["--weights", weights, "--svg", svg]));
    assert_eq!(loaded["svg"], svg);
    assert!(first(loaded) < fresh / 2.0);
    let picture = fs::read_to_string(svg).expect("written");
    assert!(picture.starts_with("<svg") && picture.contains("smoothed loss") && picture.contains("tiny"), "{picture}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let fixture = Fixture::new();
    let model = fixture.path("tiny.toml");
    let path = |name: &str| fixture.path(name).to_str().expect("UTF-8").to_owned();
    let (weights, picture, folder) = (path("w.safetensors"), path("p.png"), path("run"));
    for (more, words) in [
        (&["--lr-range", "1e-4..1"][..], "--find-lr"),
        (&["--svg", "p.svg"], "--find-lr"),
        (&["--find-lr", "--save", &weights], "--save"),
        (&["--find-lr", "--run", &folder], "--run"),
        (&["--find-lr", "--lr-range", "1..1e-4"], "such as 1e-6..1"),
        (&["--find-lr", "--lr-range", "-1..1"], "such as 1e-6..1"),
        (&["--find-lr", "--svg", &picture], "a picture is written as SVG"),
        (&["--find-lr", "--steps", "1"], "in 2 or more"),
    ] {
        let message = refused(&fixture.train_args(&model, more), 2);
        assert!(message.contains(words), "{more:?}: {message}");
    }
}

//! Loss scaling on the command line: run files, logs, and going on.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::command::{Fixture, assert_documented, last, objects, refused, run, stdout};

/// A loss so large that gradients overflow until the scale has fallen far, though they do not without one.
const CONFIG: &str = r#"
[model]
name = "tiny.toml"

[data]
folder = "."
batch = 10

[training]
epochs = 8
clip_norm = 2.0
loss_scale = { initial = 7.9e28, growth_interval = 5 }

[optimizer]
kind = "adam"
lr = 0.01

[loss]
kind = "sum"
terms = [[1e15, "cross-entropy"]]

[budget]
device = "cpu"
"#;

fn fixture() -> Fixture {
    let fixture = Fixture::new();
    fixture.write("run.toml", CONFIG.as_bytes());
    fixture
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn trained(args: &[&str]) -> Vec<Value> {
    let output = run(&[args, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    objects(&output)
}

#[test]
fn steps_that_overflow_are_skipped_counted_and_gone_on_from() {
    let fixture = fixture();
    let (file, whole, part) = (fixture.path("run.toml"), fixture.path("whole"), fixture.path("part"));
    let all = trained(&["train", text(&file), "--run", text(&whole), "--log-every", "1"]);
    all.iter().for_each(|object| assert_documented(object, &["`train`", "A plan"]));
    let of = |event: &'static str| all.iter().filter(move |object| object["event"] == event);
    let steps: Vec<_> = of("step")
        .map(|step| (step["loss_scale"].as_f64().expect("scaled"), step["skipped_steps"].as_u64().expect("counted")))
        .collect();
    assert_eq!(steps.len(), 48);
    assert_eq!(steps[0], (f64::from(7.9e28_f32), 1));
    for (before, now) in std::iter::once((0.0, 0)).chain(steps.iter().copied()).zip(&steps).skip(1) {
        // Half after a skipped step, twice after five others.
        assert!([0.5, 1.0, 2.0].contains(&(now.0 / before.0)), "{steps:?}");
    }
    for three in steps.windows(3) {
        assert_eq!(three[1].1 > three[0].1, three[2].0 < three[1].0, "{steps:?}");
    }
    assert!(steps.windows(2).any(|pair| pair[1].0 > pair[0].0), "it grows again: {steps:?}");
    let skipped = steps[47].1;
    assert!((10..40).contains(&skipped), "{skipped}");
    let summary = of("summary").next().expect("one");
    assert_eq!((&summary["skipped_steps"], &summary["steps"]), (&skipped.into(), &48.into()));
    assert_eq!(of("epoch").next_back().expect("eight")["skipped_steps"], skipped);
    for (log, columns) in [("steps.csv", ",loss_scale,skipped_steps,"), ("epochs.csv", ",skipped_steps,")] {
        let table = fs::read_to_string(whole.join("log").join(log)).expect("readable");
        assert!(table.lines().next().is_some_and(|header| header.contains(columns)), "{log}: {table}");
    }
    let config = fs::read_to_string(whole.join("config.toml")).expect("readable");
    assert!(config.contains("growth_interval = 5"), "{config}");

    for steps in [9, 31, 48] {
        let steps = steps.to_string();
        let args = match part.exists() {
            false => ["train", text(&file), "--run", text(&part), "--steps", &steps].to_vec(),
            true => ["resume", text(&part), "--steps", &steps].to_vec(),
        };
        trained(&args);
    }
    for name in ["history.json", "checkpoints/step-00000048/SHA256SUMS"] {
        let [whole, part] = [&whole, &part].map(|folder| fs::read_to_string(folder.join(name)).expect("readable"));
        // Other steps were asked for, the rest is the same.
        let lines = |text: &str| text.lines().filter(|line| !line.contains("state.json")).map(str::to_owned).collect();
        let [whole, part]: [Vec<String>; 2] = [lines(&whole), lines(&part)];
        assert_eq!(whole, part, "{name}");
    }

    let words = stdout(&run(&["train", text(&file), "--log-every", "4"]));
    assert!(words.contains("4 steps skipped (loss scale "), "{words}");
    assert!(words.contains(&format!("skipped {skipped} steps, in which a gradient was not finite")), "{words}");
}

#[test]
fn a_scale_is_set_by_flag_and_file() {
    let fixture = fixture();
    let model = fixture.path("tiny.toml");
    let plain = fixture.train_args(&model, &["--epochs", "2"]);
    let hash = |more: &[&str]| trained(&[&plain[..], more].concat()).pop().expect("a summary");
    let without = hash(&[]);
    assert_eq!(without["skipped_steps"], Value::Null);
    for scale in ["dynamic", "1024", "none"] {
        let scaled = hash(&["--loss-scale", scale]);
        assert_eq!(scaled["parameters_sha256"], without["parameters_sha256"], "{scale}");
        let skipped = if scale == "none" { Value::Null } else { 0.into() };
        assert_eq!(scaled["skipped_steps"], skipped, "{scale}");
        let printed = run(&[&plain[..], &["--loss-scale", scale, "--print-config"]].concat());
        let written = if scale == "1024" { "1024.0".to_owned() } else { format!("\"{scale}\"") };
        assert!(stdout(&printed).contains(&format!("loss_scale = {written}\n")), "{}", stdout(&printed));
    }
    let message = refused(&[&plain[..], &["--loss-scale", "half"]].concat(), 2);
    assert!(message.contains("--loss-scale `half`: it must be dynamic, none or a number"), "{message}");
    let file = fixture.path("run.toml");
    for (to, words) in [
        ("loss_scale = 0", "loss_scale = 0.0 is not possible: it must be from 1.3e-29"),
        ("loss_scale = \"half\"", "it must be dynamic, none or a number"),
        ("loss_scale = { growth_interval = 0 }", "growth_interval = 0 is not possible"),
        ("loss_scale = { interval = 5 }", "growth_interval"),
    ] {
        let config = CONFIG.replace("loss_scale = { initial = 7.9e28, growth_interval = 5 }", to);
        fixture.write("run.toml", config.as_bytes());
        let message = refused(&["train", text(&file)], 2);
        assert!(message.contains(words) && message.contains("run.toml"), "{message}");
    }
}

#[test]
fn gradients_that_are_never_finite_are_an_error() {
    let fixture = fixture();
    let (file, config) = (fixture.path("run.toml"), CONFIG.replace("1e15", "1e30"));
    fixture.write(
        "run.toml",
        config.replace("loss_scale = { initial = 7.9e28, growth_interval = 5 }", "loss_scale = \"dynamic\"").as_bytes(),
    );
    let args = ["train", text(&file), "--epochs", "30"];
    let message = refused(&args, 4);
    assert!(
        message.starts_with("the gradients have not been finite for 100 steps, although the loss scale fell to 1: "),
        "{message}"
    );
    assert!(message.ends_with("(parameters are those of step 0)"), "{message}");
    let failure = last(&run(&[&args[..], &["--json"]].concat()));
    assert_eq!((&failure["step"], &failure["kept_step"]), (&100.into(), &0.into()));
    assert_documented(&failure, &["Errors"]);
}

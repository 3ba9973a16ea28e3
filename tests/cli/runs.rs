//! Run files and run folders: what a training is told, what it leaves, and how it goes on.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use crate::command::{Fixture, last, objects, refused, run, stdout, tightfit};

/// All that a resume must bring back: a schedule, dropout, averages, momentum, early stopping, a plateau.
const CONFIG: &str = r#"
[model]
name = "model.toml"

[data]
folder = "."
batch = 8
seed = 3
drop_last = false

[training]
epochs = 25
ema = 0.9
clip_norm = 2.0

[optimizer]
kind = "adam"
lr = 0.01

[schedule]
kind = "cosine"
warmup = "2 epochs"

[metrics]
evaluate = ["f1", { kind = "top-k", k = 3 }]

[early_stopping]
patience = 30
restore_best = true

[reduce_on_plateau]
patience = 3
factor = 0.5

[checkpoint]
every_steps = 5
best = "val_loss"

[budget]
device = "cpu"
"#;

const MODEL: &str = r#"
name = "dropping"
input = [1, 28, 28]

[[layers]]
kind = "avg_pool2d"
kernel = 4

[[layers]]
kind = "flatten"

[[layers]]
kind = "dropout"
p = 0.3

[[layers]]
kind = "linear"
out_features = 10
"#;

struct Run {
    fixture: Fixture,
    file: PathBuf,
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

impl Run {
    fn new() -> Self {
        let fixture = Fixture::new();
        fixture.write("model.toml", MODEL.as_bytes());
        fixture.write("run.toml", CONFIG.as_bytes());
        let file = fixture.path("run.toml");
        Run { fixture, file }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.fixture.path(name)
    }

    /// Trains as the file says, and more; the summary.
    fn train(&self, more: &[&str]) -> Value {
        done(&[&["train", text(&self.file), "--json"], more].concat())
    }

    /// Trains or resumes, and kills that after the line of this step.
    fn killed_at(&self, args: &[&str], step: u64) {
        let mut child = tightfit()
            .args(args)
            .args(["--json", "--log-every", "1"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary runs");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        for line in lines {
            let object: Value = serde_json::from_str(&line.expect("UTF-8")).expect("JSON");
            if object["event"] == "step" && object["step"].as_u64() >= Some(step) {
                break;
            }
        }
        child.kill().expect("killed");
        child.wait().expect("ended");
    }
}

fn done(args: &[&str]) -> Value {
    let output = run(args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    last(&output)
}

/// What must be the same bit for bit: parameters, history, and all that the last checkpoint holds besides.
fn results(folder: &Path) -> (Value, String, String) {
    let read = |path: PathBuf| fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let summary: Value = serde_json::from_str(&read(folder.join("summary.json"))).expect("JSON");
    let step = summary["steps"].as_u64().expect("a number");
    let sums = read(folder.join(format!("checkpoints/step-{step:08}/SHA256SUMS")));
    (summary["parameters_sha256"].clone(), read(folder.join("history.json")), sums)
}

#[test]
fn a_run_that_is_killed_and_resumed_equals_one_that_was_not() {
    let run = Run::new();
    let (whole, part) = (run.path("whole"), run.path("part"));
    let summary = run.train(&["--run", text(&whole)]);
    assert_eq!((&summary["steps"], &summary["interrupted"]), (&200.into(), &false.into()));

    run.killed_at(&["train", text(&run.file), "--run", text(&part)], 1);
    for step in [13, 60, 150] {
        run.killed_at(&["resume", text(&part)], step);
    }
    let resumed = done(&["resume", text(&part), "--json"]);
    assert!(resumed["resumed_at"].as_u64() >= Some(100), "{resumed}");
    assert_eq!(results(&part), results(&whole));
    // Logs go on, too: each step and each epoch once. The last column is the time of day.
    let rows = |folder: &Path, name: &str| {
        let text = fs::read_to_string(folder.join("log").join(name)).expect("readable");
        text.lines().map(|line| line.rsplit_once(',').expect("columns").0.to_owned()).collect::<Vec<_>>()
    };
    for (name, count) in [("steps.csv", 201), ("epochs.csv", 26)] {
        assert_eq!(rows(&part, name), rows(&whole, name));
        assert_eq!(rows(&whole, name).len(), count);
    }
    for name in ["config.toml", "plan.json", "memory.svg", "history.svg", "log/log.jsonl", "model.safetensors"] {
        assert!(part.join(name).is_file(), "{name}");
    }
    let best = fs::read_dir(part.join("checkpoints")).expect("a folder").flatten();
    assert_eq!(best.filter(|entry| entry.file_name().to_string_lossy().starts_with("best-")).count(), 1);

    // Nothing is left to do, unless more is asked for.
    let finished = run_text(&["resume", text(&part)]);
    assert!(finished.contains("the training is finished"), "{finished}");
    let more = done(&["resume", text(&part), "--epochs", "26", "--json"]);
    assert_eq!((&more["steps"], &more["resumed_at"]), (&208.into(), &200.into()));
    // What it was asked for last is what it is now.
    assert!(run_text(&["resume", text(&part)]).contains("26 epochs, 208 steps; --epochs with a larger number goes on"));
}

fn run_text(args: &[&str]) -> String {
    let output = run(args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    stdout(&output)
}

#[test]
fn steps_alone_say_how_long_and_nothing_is_done_where_nothing_is_left() {
    let run = Run::new();
    fs::write(&run.file, CONFIG.replace("epochs = 25\n", "")).expect("writes");
    let folder = run.path("run");
    // Eight steps an epoch.
    let summary = run.train(&["--run", text(&folder), "--steps", "20"]);
    assert_eq!((&summary["steps"], &summary["epochs"]), (&20.into(), &2.into()));
    let before = fs::read(folder.join("summary.json")).expect("reads");
    for more in [&[][..], &["--epochs", "9"], &["--steps", "20"]] {
        let finished = run_text(&[&["resume", text(&folder)], more].concat());
        assert!(finished.contains("2 epochs, 20 steps; --steps with a larger number goes on"), "{finished}");
        assert_eq!(fs::read(folder.join("summary.json")).expect("reads"), before);
    }
    // A number of micro-batches that is asked for is taken.
    let output = run_text(&["resume", text(&folder), "--steps", "30", "--micro-batches", "2"]);
    assert!(output.contains("a step has 2 micro-batches in place of 1"), "{output}");
    let config = fs::read_to_string(folder.join("config.toml")).expect("reads");
    assert!(config.contains("micro_batches = 2") && config.contains("steps = 30"), "{config}");
}

#[test]
fn what_is_frozen_is_trained_later_and_the_run_resumes() {
    let run = Run::new();
    let (whole, part) = (run.path("whole"), run.path("part"));
    let reference = ["--device", "reference"];
    let later =
        [&["--train-only", "linear1.bias", "--unfreeze-after", "2 epochs", "--epochs", "4"], &reference[..]].concat();
    let file = text(&run.file);
    let objects =
        objects(&crate::command::run(&[&["train", file, "--run", text(&whole), "--json"], &later[..]].concat()));
    let of = |event: &str| objects.iter().find(|object| object["event"] == event).expect("an object");
    let (plan, unfreeze, changed) = (of("plan"), of("unfreeze"), of("reconfigure"));
    assert_eq!((unfreeze["after"].as_str(), changed["step"].as_u64()), (Some("2 epochs"), Some(16)));
    assert_eq!((&changed["planned_peak_bytes"], &changed["frozen"]), (&unfreeze["planned_peak_bytes"], &0.into()));
    assert!(plan["planned_peak_bytes"].as_u64() < unfreeze["planned_peak_bytes"].as_u64());
    // Killed before it and after it.
    run.killed_at(&[&["train", file, "--run", text(&part)], &later[..]].concat(), 12);
    run.killed_at(&["resume", text(&part)], 22);
    done(&["resume", text(&part), "--json"]);
    assert_eq!(results(&part), results(&whole));
    // What fits only as long as some are frozen is refused before the first step, and leaves no run.
    let least = plan["minimum_budget_bytes"].as_u64().expect("a number").to_string();
    let none = run.path("none");
    let train = [&["train", file, "--run", text(&none), "--unfreeze-after", "2 epochs"], &reference[..]].concat();
    let refusal = refused(&[&train[..], &["--train-only", "linear1.bias", "--budget", &least]].concat(), 3);
    assert!(refusal.contains("when all parameters are trained, after 2 epochs"), "{refusal}");
    let refusal = refused(&train, 2);
    assert!(refusal.contains("no parameters are frozen"), "{refusal}");
    let refusal = refused(&[&train[..], &["--train-only", "linear1.bias", "--budget", "1KiB"]].concat(), 3);
    assert!(refusal.contains("when all parameters are trained, after 2 epochs"), "{refusal}");
    assert!(!none.exists());
}

#[test]
fn another_budget_changes_nothing_where_the_split_stays() {
    let run = Run::new();
    let (whole, part) = (run.path("whole"), run.path("part"));
    let peak = run.train(&["--run", text(&whole), "--epochs", "3"])["planned_peak_bytes"].as_u64().expect("a number");
    let plan = done(&["plan", text(&run.file), "--micro-batches", "1", "--json"]);
    let least = plan["minimum_budget_bytes"].as_u64().expect("a number").max(peak / 2);
    run.killed_at(&["train", text(&run.file), "--run", text(&part), "--epochs", "3"], 11);
    let least = least.to_string();
    let output = tightfit().args(["resume", text(&part), "--budget", &least, "--json"]).output().expect("runs");
    let objects = objects(&output);
    let resumed = objects.iter().find(|object| object["event"] == "resume");
    let same_split = resumed.is_none_or(|resumed| resumed["same_split"] == true);
    assert!(output.status.success());
    let ((sha, history, _), (expected, expected_history, _)) = (results(&part), results(&whole));
    assert!(!same_split || (sha == expected && history == expected_history));
    assert_eq!(objects.last().expect("a summary")["steps"], 24);
}

#[cfg(unix)]
#[test]
fn sigterm_writes_a_checkpoint() {
    let run = Run::new();
    let folder = run.path("run");
    let mut child = tightfit()
        .args(["train", text(&run.file), "--epochs", "100000", "--run", text(&folder), "--json", "--log-every", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let step = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("\"event\":\"step\"")));
    assert!(step.is_some());
    let sent = std::process::Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill");
    assert!(sent.success());
    let summary: Value = serde_json::from_str(&lines.map_while(Result::ok).last().expect("a summary")).expect("JSON");
    assert_eq!(child.wait().expect("ends").code(), Some(130));
    let steps = summary["steps"].as_u64().expect("a number");
    assert_eq!((&summary["interrupted"], summary["run"].as_str()), (&true.into(), folder.to_str()));
    assert!(folder.join(format!("checkpoints/step-{steps:08}/SHA256SUMS")).is_file());
    assert!(run_text(&["runs", text(&folder)]).contains("interrupted"));
    let refusal = refused(&["train", text(&run.file), "--run", text(&folder)], 2);
    assert!(refusal.contains("a training that is interrupted: `tightfit resume"), "{refusal}");
    let more = done(&["resume", text(&folder), "--steps", &(steps + 5).to_string(), "--json"]);
    assert_eq!((&more["resumed_at"], &more["steps"]), (&steps.into(), &(steps + 5).into()));
}

#[test]
fn a_run_file_does_what_flags_do_and_what_is_printed_does_the_same() {
    let run = Run::new();
    let (model, data) = (run.path("model.toml"), run.fixture.dir.path().to_owned());
    let flags = [
        "train",
        text(&model),
        "--data",
        text(&data),
        "--batch",
        "8",
        "--seed",
        "3",
        "--keep-last",
        "--epochs",
        "2",
        "--ema",
        "0.9",
        "--clip-norm",
        "2",
        "--optimizer",
        "adam",
        "--lr",
        "0.01",
        "--schedule",
        "cosine",
        "--warmup",
        "2 epochs",
        "--metrics",
        "f1,top-k",
        "--early-stopping",
        "30",
        "--device",
        "cpu",
        "--json",
    ];
    let file = "[reduce_on_plateau]\npatience = 3\nfactor = 0.5\n";
    let checkpoint = "[checkpoint]\nevery_steps = 5\nbest = \"val_loss\"\n";
    let config = CONFIG.replace(file, "").replace(checkpoint, "").replace("restore_best = true\n", "");
    assert!(config.len() < CONFIG.len() - 100);
    run.fixture.write("run.toml", config.as_bytes());
    let by_flags = done(&flags);
    let by_file = run.train(&["--epochs", "2"]);
    for key in ["parameters_sha256", "steps", "test_loss", "micro_batches", "planned_peak_bytes"] {
        assert_eq!(by_flags[key], by_file[key], "{key}");
    }

    let printed = run_text(&[&flags[..flags.len() - 1], &["--print-config"]].concat());
    run.fixture.write("printed.toml", printed.as_bytes());
    let path = run.path("printed.toml");
    assert_eq!(run_text(&["train", text(&path), "--print-config"]), printed);
    assert_eq!(done(&["train", text(&path), "--json"])["parameters_sha256"], by_flags["parameters_sha256"]);
    // Flags win over the file.
    assert_ne!(run.train(&["--epochs", "2", "--seed", "4"])["parameters_sha256"], by_flags["parameters_sha256"]);

    // Other commands take of it what concerns them.
    let plan = done(&["plan", text(&path), "--json"]);
    assert_eq!((&plan["model"], &plan["batch"], &plan["device"]), (&"dropping".into(), &8.into(), &"cpu".into()));
    assert_eq!(plan["planned_peak_bytes"], by_flags["planned_peak_bytes"]);
    let weights = run.path("w.safetensors");
    let saved = run.train(&["--epochs", "2", "--save", text(&weights)]);
    let tested = done(&["eval", text(&path), "--weights", text(&weights), "--json"]);
    assert_eq!((&tested["test_loss"], &tested["test_metrics"][0]["name"]), (&saved["test_loss"], &"f1".into()));
    assert_eq!(tested["parameters_sha256"], saved["parameters_sha256"]);
}

#[test]
fn run_files_that_are_not_right_are_refused_with_the_line() {
    let run = Run::new();
    for (from, to, words) in [
        ("batch = 8", "bacth = 8", "line 7: unknown key `bacth`: did you mean `batch`?"),
        ("batch = 8", "batch_size = 8", "line 7: unknown key `batch_size`: here it is `batch`"),
        (
            "batch = 8",
            "batch = 0",
            "line 7: `batch`: invalid value: integer `0`, expected a whole number of at least 1",
        ),
        ("[schedule]", "[shedule]", "line 20: unknown key `shedule`: did you mean `schedule`?"),
        ("kind = \"cosine\"", "kind = \"cosin\"", "line 21: unknown kind `cosin`: did you mean `cosine`?"),
        ("patience = 30", "patients = 30", "line 28: unknown key `patients`: did you mean `patience`?"),
        ("lr = 0.01", "lr = -1.0", "line 16"),
        ("ema = 0.9", "ema = 1.5", "line 11: ema = 1.5 is not possible: it must be in 0..1"),
        ("clip_norm = 2.0", "clip_norm = 2.0\nclip_value = 1.0", "`clip_norm` and `clip_value` are both set"),
        (
            "best = \"val_loss\"",
            "best = \"val_f1_micro\"",
            "checkpoint.best: nothing reports `val_f1_micro`: did you mean `val_f1`?",
        ),
        (
            "patience = 30",
            "monitor = \"val_f2\"\npatience = 30",
            "early_stopping: nothing reports `val_f2`: did you mean `val_f1`?",
        ),
        ("patience = 30", "monitor = \"lr\"\npatience = 30", "early_stopping: whether `lr` should fall or rise"),
        ("[model]\nname = \"model.toml\"", "", "a run file needs a table [model]"),
        ("\"f1\"", "\"f0\"", "line 25: unknown metric `f0`: choose one of accuracy,"),
        ("seed = 3", "seed = 3\nvalidation = false", "early_stopping watches `val_loss`, which only validation has"),
        ("device = \"cpu\"", "device = \"cpu\"\nbytes = \"64 apples\"", "`apples` is not a unit"),
        ("device = \"cpu\"", "device = \"cpu\"\nwithout = [\"ofload\"]", "did you mean `offload`?"),
        ("name = \"model.toml\"", "nam = \"model.toml\"", "line 3: unknown key `nam`: did you mean `name`?"),
    ] {
        let text = CONFIG.replace(from, to);
        assert_ne!(text, CONFIG, "{from}");
        run.fixture.write("run.toml", text.as_bytes());
        let message = refused(&["train", run.file.to_str().expect("UTF-8"), "--run", "never"], 2);
        assert!(message.contains(words), "{to}: {message}");
        assert!(!Path::new("never").exists(), "{to}");
    }
}

#[test]
fn what_cannot_begin_leaves_no_run_and_what_cannot_be_read_back_is_refused() {
    let run = Run::new();
    let folder = run.path("run");
    // Statistics of a batch, and a last one that is short.
    fs::write(run.path("model.toml"), MODEL.replace("kind = \"dropout\"\np = 0.3", "kind = \"batch_norm\""))
        .expect("writes");
    fs::write(&run.file, CONFIG.replace("batch = 8", "batch = 7")).expect("writes");
    let refusal = refused(&["train", text(&run.file), "--run", text(&folder)], 2);
    assert!(refusal.contains("mixes the samples of a batch"), "{refusal}");
    assert!(!folder.exists());
    for option in ["--steps", "--epochs", "--early-stopping", "--checkpoint-every", "--keep", "--warmup"] {
        let refusal = refused(&["train", text(&run.file), "--run", text(&folder), option, "9223372036854775808"], 2);
        assert!(refusal.contains(option), "{refusal}");
    }
    let refusal = refused(&["train", "a\nb"], 2);
    assert!(refusal.contains("a\\nb"), "{refusal}");
    fs::write(&run.file, CONFIG.replace("epochs = 25", "epochs = 1e999")).expect("writes");
    let refusal = refused(&["train", text(&run.file), "--run", text(&folder)], 2);
    assert!(refusal.contains("line 12"), "{refusal}");
}

#[test]
fn a_run_folder_holds_one_run() {
    let run = Run::new();
    let (folder, file) = (run.path("run"), text(&run.file));
    let message = refused(&["train", file], 2);
    assert!(message.contains("checkpoints are asked for") && message.ends_with("add --run DIR"), "{message}");
    let message = refused(&["resume", text(&folder)], 2);
    assert!(message.contains("no training is in this folder"), "{message}");

    // A training that cannot begin leaves nothing.
    refused(&["train", file, "--run", text(&folder), "--budget", "1KiB"], 3);
    assert!(!folder.exists());
    run.train(&["--run", text(&folder), "--epochs", "1"]);
    let message = refused(&["train", file, "--run", text(&folder)], 2);
    assert!(message.contains("it holds a training that is finished"), "{message}");
    let message = refused(&["eval", text(&folder), "--weights", "w.safetensors"], 2);
    assert!(message.contains("is a run folder") && message.contains("config.toml"), "{message}");
    fs::create_dir(run.path("other")).expect("made");
    run.fixture.write("other/notes.md", b"mine");
    let message = refused(&["train", file, "--run", text(&run.path("other"))], 2);
    assert!(message.contains("it holds other files, such as notes.md"), "{message}");

    // As long as another process trains in it.
    let lock = fs::File::options().write(true).open(folder.join("lock")).expect("there");
    lock.lock().expect("locked");
    assert!(refused(&["resume", text(&folder), "--epochs", "2"], 2).contains("another process trains in this folder"));
    assert!(refused(&["train", file, "--run", text(&folder)], 2).contains("another process trains in this folder"));
    assert!(run_text(&["runs", text(&folder)]).contains("running"));
    drop(lock);

    // One that failed says why.
    let failed = run.path("failed");
    let rates = ["--optimizer", "sgd", "--lr", "3e38", "--run", text(&failed), "--json"];
    let output = tightfit().args([&["train", file][..], &rates].concat()).output().expect("runs");
    assert_eq!(output.status.code(), Some(4));
    let summary: Value = serde_json::from_slice(&fs::read(failed.join("summary.json")).expect("there")).expect("JSON");
    assert_eq!((&summary["exit_code"], summary["error"].is_string()), (&4.into(), true));
}

#[test]
fn runs_are_compared() {
    let run = Run::new();
    fs::create_dir(run.path("runs")).expect("made");
    for (name, lr) in [("a", "0.0001"), ("b", "0.02")] {
        let folder = run.path(&format!("runs/{name}"));
        run.train(&["--run", text(&folder), "--epochs", "2", "--lr", lr]);
    }
    let folder = run.path("runs");
    let rows = objects(&self::run(&["runs", text(&folder), "--sort", "val_loss", "--json"]));
    let names: Vec<_> = rows.iter().map(|row| Path::new(row["run"].as_str().expect("a path")).file_name()).collect();
    assert_eq!(names, [Some("b".as_ref()), Some("a".as_ref())]);
    assert!(rows[0]["val_loss"].as_f64() < rows[1]["val_loss"].as_f64());
    assert_eq!(rows[0]["differs"], serde_json::json!([{"name": "optimizer.lr", "value": "0.02"}]));
    let table = run_text(&["runs", text(&folder)]);
    for words in ["run", "dropping", "finished", "settings that differ", "optimizer.lr: a 0.0001, b 0.02"] {
        assert!(table.contains(words), "{words} in {table}");
    }
    assert!(refused(&["runs", text(&run.path("runs/a/log"))], 2).contains("no run is in this folder"));
    assert!(refused(&["runs", text(&folder), "--sort", "los"], 2).contains("did you mean `loss`"));
}

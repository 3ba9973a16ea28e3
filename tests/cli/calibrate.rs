//! `tightfit calibrate` and the profiles it writes, as a user meets them. What measures needs a device; what reads a
//! profile needs none.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// The binary, looking for profiles in `folder`, and measuring nothing unasked.
fn tightfit(folder: &Path, args: &[&str]) -> Output {
    run_with(folder, "off", args)
}

fn run_with(folder: &Path, calibrate: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tightfit"));
    command.env("TIGHTFIT_PROFILES", folder).env("TIGHTFIT_CALIBRATE", calibrate).env_remove("RUST_LOG").args(args);
    let output = command.output().expect("the binary runs");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"), "{args:?}");
    output
}

fn succeeded(folder: &Path, args: &[&str]) -> Vec<Value> {
    let output = tightfit(folder, &[args, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    let stdout = String::from_utf8(output.stdout).expect("UTF-8");
    stdout.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

fn last(folder: &Path, args: &[&str]) -> Value {
    succeeded(folder, args).pop().expect("at least one object")
}

/// The one sentence with which a command is refused.
fn refused(folder: &Path, args: &[&str]) -> String {
    let output = tightfit(folder, args);
    let stderr = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
    // Loaders of drivers write there too.
    let errors: Vec<_> = stderr.lines().filter_map(|line| line.strip_prefix("error: ")).collect();
    let message = errors.last().unwrap_or_else(|| panic!("{args:?}: {stderr}"));
    assert!(stderr.trim_end().ends_with(message), "{args:?}: {stderr}");
    (*message).to_owned()
}

/// The one warning with which a command does what it was asked for.
fn warned(folder: &Path, args: &[&str]) -> String {
    let output = tightfit(folder, args);
    let stderr = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(0), "{args:?}: {stderr}");
    let warnings: Vec<_> = stderr.lines().filter(|line| line.starts_with("warning: ")).collect();
    assert_eq!(warnings.len(), 1, "{args:?}: {stderr}");
    warnings[0].to_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn a_measured_device_is_planned_for_by_itself_and_by_its_file() {
    let Some(device) = crate::common::gpu() else { return };
    let (folder, elsewhere) = (TempDir::new().expect("a folder"), TempDir::new().expect("a folder"));
    let profiles = folder.path().join("made/when/needed");
    let plan = ["plan", "mnist-mlp", "--device", &device];

    let before = last(&profiles, &plan);
    assert!(before["profile"].is_null() && before["device_class"].is_string(), "{before}");
    let objects = succeeded(&profiles, &["calibrate", "--quick", "--device", &device]);
    let (summary, ops) = objects.split_last().expect("a summary");
    assert!(ops.len() > 10 && ops.iter().all(|op| op["launch_ns"].is_number()), "{ops:?}");
    objects.iter().for_each(|object| crate::command::assert_documented(object, &["`calibrate`"]));
    let file = Path::new(summary["profile"].as_str().expect("a path")).to_owned();
    assert!(file.starts_with(&profiles) && summary["median_error"].is_number(), "{summary}");

    let measured = last(&profiles, &plan);
    assert_eq!(measured["profile"], summary["profile"]);
    assert!(measured["device_class"].is_null());
    assert_ne!(measured["predicted_step_ms"], before["predicted_step_ms"]);
    assert_eq!(measured["planned_peak_bytes"], before["planned_peak_bytes"]);

    // On another machine the file stands for the device.
    let copy = elsewhere.path().join("that-machine.json");
    fs::copy(&file, &copy).expect("copies");
    let abroad = last(elsewhere.path(), &["plan", "mnist-mlp", "--device", text(&copy)]);
    for name in ["predicted_step_ms", "planned_peak_bytes", "minimum_budget_bytes"] {
        assert_eq!(abroad[name], measured[name], "{name}");
    }
    let shown = tightfit(&profiles, &plan);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains(&format!("measured for a few seconds, from {}", file.display())), "{shown}");

    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/data/mnist");
    let train = ["train", "mnist-mlp", "--device", &device, "--data", data, "--steps", "3"];
    let trained = last(&profiles, &train);
    assert_eq!(trained["predicted_step_ms"], measured["predicted_step_ms"]);
    assert_eq!(trained["measured_step_ms"], trained["step_ms_median"]);
    let [predicted, step] = ["predicted_step_ms", "measured_step_ms"].map(|name| trained[name].as_f64().expect(name));
    let error = trained["prediction_error"].as_f64().expect("a number");
    assert!((error - (predicted / step - 1.0)).abs() < 1e-9, "{trained}");

    // A kept file that is not right is said to be so once, and costs of its class are used; who names the file is refused.
    let right = fs::read_to_string(&copy).expect("reads");
    for (wrong, words) in [
        ("{\"format\": 1, \"adapter\": ".to_owned(), "not a device profile"),
        (right.replacen("\"adapter\": \"", "\"adapter\": \"Not ", 1), "measured on \"Not "),
        (right.replacen("\"run_ns\": ", "\"run_ns\": -", 1), "run_ns = -"),
        (right.replacen("\"launch_ns\": ", "\"launch_ns\": 1e12, \"was\": ", 1), "unknown field"),
    ] {
        fs::write(&file, wrong).expect("writes");
        for command in [&plan[..], &train] {
            let warning = warned(&profiles, command);
            assert!(warning.contains(text(&file)) && warning.contains(words), "{warning}");
            assert!(warning.contains("its class") && warning.contains("tightfit calibrate"), "{warning}");
        }
    }
    let named = ["plan", "mnist-mlp", "--device", text(&file)];
    assert!(refused(&profiles, &named).contains("tightfit calibrate"));
}

#[test]
fn a_device_is_measured_once_when_it_is_first_used() {
    let Some(device) = crate::common::gpu() else { return };
    let folder = TempDir::new().expect("a folder");
    let profiles = || fs::read_dir(folder.path()).expect("a folder").count();
    let plan = |calibrate: &str, more: &[&str]| {
        let output = run_with(folder.path(), calibrate, &[&["plan", "mnist-mlp", "--device", &device], more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    assert!(plan("", &["--no-calibrate"]).contains("not measured on this device"));
    assert!(plan("off", &[]).contains("typical of "));
    assert_eq!(profiles(), 0);
    let first = plan("", &[]);
    let (measuring, first) = first.split_once('\n').expect("lines");
    assert!(measuring.starts_with("measuring ") && profiles() == 1, "{measuring}");
    assert!(first.contains("measured for a few seconds, from "), "{first}");
    assert_eq!(plan("", &[]).trim_start(), first.trim_start(), "it was measured again");
    // Where it cannot be kept, the command goes on.
    let file = folder.path().join("file");
    fs::write(&file, "x").expect("writes");
    let output = run_with(&file.join("below"), "", &["plan", "mnist-mlp", "--device", &device]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.contains("was not measured"), "{stderr}");
}

#[test]
fn without_a_device_costs_are_those_of_a_class() {
    let folder = TempDir::new().expect("a folder");
    let plan = ["plan", "resnet50", "--batch", "32", "--budget", "2GiB"];
    let of = |class: &str| last(folder.path(), &[&plan[..], &["--device-class", class]].concat());
    let [discrete, integrated, software] = ["discrete", "integrated", "software"].map(of);
    for (class, found) in [("discrete", &discrete), ("integrated", &integrated), ("software", &software)] {
        assert_eq!(found["device_class"], class);
        assert_eq!(found["unified_memory"], class != "discrete");
        assert!(found["device"].is_null() && found["profile"].is_null());
    }
    let step = |plan: &Value| plan["predicted_step_ms"].as_f64().expect("a time");
    assert!(step(&discrete) < step(&integrated) && step(&integrated) < step(&software));
    assert_ne!(discrete["recomputed"], software["recomputed"], "a convolution is cheap on a GPU");
    assert_eq!(last(folder.path(), &plan), discrete, "the default");
    let both = ["plan", "mnist-mlp", "--device", "cpu", "--device-class", "discrete"];
    assert_eq!(tightfit(folder.path(), &both).status.code(), Some(2));
    let unknown = tightfit(folder.path(), &["plan", "mnist-mlp", "--device-class", "discreet"]);
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("discrete"), "the nearest is named");
}

#[test]
fn a_file_that_is_no_profile_is_refused() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("gpu.json");
    let plan = ["plan", "mnist-mlp", "--device", text(&file)];
    assert!(refused(folder.path(), &plan).contains("not found; `tightfit calibrate"));
    for contents in [&b""[..], b"\xff\xfe", b"{}", b"{\"format\": 7}", b"[[[[[[", b"{\"format\": 1}"] {
        fs::write(&file, contents).expect("writes");
        let message = refused(folder.path(), &plan);
        assert!(message.contains("gpu.json") && message.contains("profile"), "{message}");
    }
    let huge = fs::File::create(&file).expect("creates");
    huge.set_len(1 << 40).expect("sparse");
    assert!(refused(folder.path(), &plan).contains("more than such a file has"));
}

#[test]
fn calibrate_refuses_what_it_cannot_measure_or_write() {
    let folder = TempDir::new().expect("a folder");
    assert!(refused(folder.path(), &["calibrate", "--device", "reference"]).contains("for checking"));
    assert!(refused(folder.path(), &["calibrate", "--device", "warp-drive"]).contains("warp-drive"));
    if let Some(device) = crate::common::gpu() {
        let nowhere = folder.path().join("none/profile.json");
        let args = ["calibrate", "--quick", "--device", &device, "--output", text(&nowhere)];
        assert!(refused(folder.path(), &args).starts_with("--output"));
    }
}

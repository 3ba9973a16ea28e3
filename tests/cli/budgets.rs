//! `--budget auto`: what the device has free, less a margin.

use std::fs;

use serde_json::Value;

use crate::command::{Fixture, assert_documented, objects, refused, run, stdout};

fn number(object: &Value, key: &str) -> u64 {
    object[key].as_u64().unwrap_or_else(|| panic!("{key} in {object}"))
}

fn done(args: &[&str]) -> Vec<Value> {
    let output = run(&[args, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    objects(&output)
}

/// That a budget was taken of the host's free memory.
fn assert_taken(object: &Value) {
    let memory = &object["available_memory"];
    assert_eq!(memory["source"], "host", "{object}");
    let (free, total) = (number(memory, "free_bytes"), number(memory, "total_bytes"));
    let budget = number(object, "budget_bytes");
    assert!(0 < budget && budget <= free / 4 * 3 + 3 && free <= total, "{budget} of {memory}");
}

#[test]
fn it_is_taken_of_what_is_free_and_said() {
    let fixture = Fixture::new();
    let model = fixture.path("tiny.toml");
    let weights = fixture.path("w.safetensors");
    let [model_text, weights, data] = [&model, &weights, fixture.dir.path()].map(|path| path.to_str().expect("UTF-8"));
    let train = done(&fixture.train_args(&model, &["--steps", "2", "--budget", "auto", "--save", weights]));
    let unlimited = done(&fixture.train_args(&model, &["--steps", "2"]));
    assert_taken(&train[0]);
    assert!(unlimited[0]["available_memory"].is_null() && unlimited[0]["budget_bytes"].is_null());
    let sha = |objects: &[Value]| objects.last().expect("a summary")["parameters_sha256"].clone();
    assert_eq!(sha(&train), sha(&unlimited));
    // With much more than it needs, it is the fastest plan.
    assert_eq!(train[0]["planned_peak_bytes"], unlimited[0]["planned_peak_bytes"]);

    let eval = ["eval", model_text, "--data", data, "--device", "cpu", "--weights", weights, "--budget", "AUTO"];
    let evaluated = done(&eval);
    assert_taken(&evaluated[0]);
    let plan = ["plan", model_text, "--device", "cpu", "--budget", "auto"];
    let planned = done(&plan);
    assert_taken(&planned[0]);
    let largest = done(&[&plan[..], &["--max-batch"]].concat());
    assert_taken(&largest[0]);
    for (objects, sections) in [
        (&train, &["`train`", "A plan"][..]),
        (&evaluated, &["`eval`", "A plan"]),
        (&planned, &["A plan"]),
        (&largest, &["`plan --max-batch`", "A plan"]),
    ] {
        objects.iter().for_each(|object| assert_documented(object, sections));
    }

    let trained = fixture.train_args(&model, &["--steps", "1", "--budget", "auto"]);
    for args in [&trained[..], &eval, &plan, &[&plan[..], &["--max-batch"]].concat()] {
        let text = stdout(&run(args));
        let line = text.lines().find(|line| line.starts_with("budget: ")).unwrap_or_else(|| panic!("{text}"));
        assert!(line.ends_with("iB that the host has free"), "{line}");
    }
    let bench = ["bench", "w3", "--batch", "2", "--steps", "1", "--warmup", "1", "--device", "cpu", "--budget", "auto"];
    let bench = &done(&[&bench[..], &["--data", data]].concat())[0];
    assert!(bench["budget_mb"].as_f64() < bench["free_mb"].as_f64() && bench["free_mb"].is_f64(), "{bench}");
    assert_documented(bench, &["`bench`"]);
}

#[test]
fn without_a_device_of_this_machine_nothing_is_known_to_be_free() {
    let fixture = Fixture::new();
    fixture.write("run.toml", b"[model]\nname = \"mnist-mlp\"\n[budget]\nbytes = \"auto\"\n");
    let file = fixture.path("run.toml");
    let file = file.to_str().expect("UTF-8");
    for args in [
        &["plan", "mnist-mlp", "--budget", "auto"][..],
        &["plan", "mnist-mlp", "--budget", "auto", "--device-class", "integrated"],
        &["plan", "mnist-mlp", "--budget", "auto", "--max-batch"],
        &["plan", file],
    ] {
        let message = refused(args, 2);
        assert!(message.starts_with("--budget auto") && message.contains("--device"), "{message}");
    }
    assert!(refused(&["plan", "mnist-mlp", "--budget", "automatic"], 2).contains("auto for what the device has free"));
    // A budget of its own, or none at all.
    assert_eq!(number(&done(&["plan", file, "--budget", "16MiB"])[0], "budget_bytes"), 16 << 20);
    done(&["plan", "mnist-mlp", "--batch", "4", "--sweep"]);
    done(&["plan", file, "--sweep"]);
    assert_taken(&done(&["plan", file, "--device", "cpu"])[0]);
}

#[test]
fn a_run_takes_it_anew_where_it_goes_on() {
    let fixture = Fixture::new();
    let (model, folder) = (fixture.path("tiny.toml"), fixture.path("run"));
    let folder_text = folder.to_str().expect("UTF-8");
    let printed = stdout(&run(&fixture.train_args(&model, &["--budget", "auto", "--print-config"])));
    assert!(printed.contains("[budget]\nbytes = \"auto\"\n"), "{printed}");
    let train = done(&fixture.train_args(&model, &["--steps", "3", "--budget", "auto", "--run", folder_text]));
    assert_taken(&train[0]);
    let kept = fs::read_to_string(folder.join("config.toml")).expect("readable");
    assert!(kept.contains("bytes = \"auto\"\n"), "{kept}");

    let resumed = done(&["resume", folder_text, "--steps", "4"]);
    let plan = resumed.iter().find(|object| object["event"] == "plan").expect("a plan");
    assert_taken(plan);
    assert!(resumed.iter().any(|object| object["event"] == "resume" && object["same_split"] == true));
    resumed.iter().for_each(|object| assert_documented(object, &["`train`", "A plan"]));
    let resumed = done(&["resume", folder_text, "--steps", "5", "--budget", "64MiB"]);
    let plan = resumed.iter().find(|object| object["event"] == "plan").expect("a plan");
    assert!(plan["available_memory"].is_null() && plan["budget_bytes"] == 64 << 20, "{plan}");
    let text = stdout(&run(&["resume", folder_text, "--steps", "6", "--budget", "auto"]));
    assert!(text.lines().any(|line| line.starts_with("budget: ")), "{text}");
}

#[test]
fn devices_say_what_they_have_free() {
    let listed = done(&["devices"]);
    for index in ["cpu", "reference"] {
        let device = listed.iter().find(|device| device["index"] == index).expect("the CPU");
        let memory = &device["memory"];
        assert!(0 < number(memory, "free_bytes") && number(memory, "free_bytes") <= number(memory, "total_bytes"));
        assert_documented(device, &["`devices`"]);
    }
    let text = stdout(&run(&["devices"]));
    let free = text.lines().find(|line| line.starts_with("cpu")).expect("the CPU");
    assert!(text.lines().next().is_some_and(|line| line.contains("free")) && free.contains("iB"), "{text}");
}

/// What a training takes is kept small by layers whose inputs are needed again: without a budget it does not fit, and with one of what is
/// left it does.
#[cfg(target_os = "linux")]
#[test]
fn a_limit_on_the_address_space_is_kept_to() {
    use std::process::Command;

    const ACTIVATIONS: usize = 24;
    let fixture = Fixture::new();
    let mut model =
        "name = \"deep\"\ninput = [1, 28, 28]\n[[layers]]\nkind = \"conv2d\"\nout_channels = 64\nkernel = 1\n"
            .to_owned();
    model += &"[[layers]]\nkind = \"silu\"\n".repeat(ACTIVATIONS);
    model += "[[layers]]\nkind = \"avg_pool2d\"\nkernel = 28\n[[layers]]\nkind = \"flatten\"\n[[layers]]\nkind = \"linear\"\nout_features = 10\n";
    fixture.write("deep.toml", model.as_bytes());
    let model = fixture.path("deep.toml");
    let train = |limit_kib: u64, more: &[&str]| {
        let limit = format!("ulimit -v {limit_kib}; exec \"$0\" \"$@\"");
        let mut limited = Command::new("sh");
        limited.args(["-c", &limit, env!("CARGO_BIN_EXE_tightfit")]);
        limited.args(["train", "--device", "cpu", "--batch", "60", "--micro-batches", "1", "--steps", "1", "--json"]);
        limited.arg(&model).arg("--data").arg(fixture.dir.path()).args(more);
        let output = limited.env("TIGHTFIT_PROFILES", fixture.dir.path()).output().expect("runs");
        let code = output.status.code();
        (code, objects(&output), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    // Far more than it needs: what it has before anything is planned follows from what is left.
    let wide_kib = 1 << 20;
    let (code, objects, stderr) = train(wide_kib, &["--budget", "auto"]);
    assert_eq!(code, Some(0), "{stderr}");
    let free = number(&objects[0]["available_memory"], "free_bytes");
    let (before_kib, need) = (wide_kib - (free >> 10), number(&objects[0], "planned_peak_bytes"));
    assert!(before_kib < wide_kib, "the limit is seen: {}", objects[0]);
    // Two thirds of what the fastest plan takes.
    let limit_kib = before_kib + ((need * 2 / 3) >> 10);
    let (code, objects, stderr) = train(limit_kib, &["--no-replan"]);
    assert_eq!(code, Some(4), "{objects:?} {stderr}");
    let (code, objects, stderr) = train(limit_kib, &["--no-replan", "--budget", "auto"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert_taken(&objects[0]);
    assert!(number(&objects[0]["available_memory"], "free_bytes") <= need * 2 / 3 + (8 << 20), "{}", objects[0]);
    assert_eq!(last_sha(&objects), last_sha(&train(wide_kib, &[]).1));
}

#[cfg(target_os = "linux")]
fn last_sha(objects: &[Value]) -> &Value {
    &objects.last().expect("a summary")["parameters_sha256"]
}

//! Runs the binary as a user would, without any GPU: `plan` needs none, and training runs on `--device cpu`.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::command::{Fixture, MODEL, assert_documented, idx, last, objects, refused, run, stdout, tightfit};

#[test]
fn help_and_version_succeed() {
    for args in [&["--help"][..], &["--version"], &["train", "--help"], &["data", "mnist", "--help"]] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(!output.stdout.is_empty());
    }
}

#[test]
fn devices_list_the_cpu_and_say_what_is_taken() {
    let output = run(&["devices", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let devices = objects(&output);
    let index = |device: &Value| device["index"].clone();
    let last: Vec<_> = devices[devices.len() - 2..].iter().map(index).collect();
    assert_eq!(last, ["cpu", "reference"]);
    let taken: Vec<_> = devices.iter().filter(|device| device["taken"] == true).map(index).collect();
    let [taken] = &taken[..] else { panic!("one is taken: {devices:?}") };
    let is_gpu =
        |device: &Value| device["index"].is_u64() && device["device_type"] != "cpu" && device["usable"] == true;
    assert_eq!(devices.iter().any(is_gpu), taken.is_u64(), "a real GPU before the CPU: {devices:?}");
    let text = stdout(&run(&["devices"]));
    assert!(text.contains("cpu") && text.contains("without --device, "), "{text}");
}

/// Mesa complains of it for each instance.
#[cfg(target_os = "linux")]
#[test]
fn nothing_is_said_of_displays_that_are_not_there() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tightfit"));
    for name in ["XDG_RUNTIME_DIR", "WAYLAND_DISPLAY", "NODEVICE_SELECT", "RUST_LOG"] {
        command.env_remove(name);
    }
    let output = command.arg("devices").output().expect("the binary runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !stderr.contains("XDG_RUNTIME_DIR"), "{stderr}");
}

#[test]
fn plan_needs_no_gpu_and_follows_the_budget() {
    let plan = |budget: Option<u64>| {
        let budget = budget.map(|budget| budget.to_string());
        let mut args = vec!["plan", "mnist-cnn", "--batch", "256", "--json"];
        if let Some(budget) = &budget {
            args.extend(["--budget", budget]);
        }
        let output = run(&args);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        last(&output)
    };
    let number = |plan: &Value, name: &str| plan[name].as_u64().unwrap_or_else(|| panic!("{name} in {plan}"));

    let free = plan(None);
    assert!(free["budget_bytes"].is_null());
    assert_eq!(number(&free, "micro_batches"), 1);
    assert!(free["predicted_step_ms"].as_f64().expect("a number") > 0.0);
    let (most, least) = (number(&free, "unconstrained_peak_bytes"), number(&free, "minimum_budget_bytes"));
    assert_eq!(number(&free, "planned_peak_bytes"), most);
    assert!(least < most);
    for budget in [most, least + (most - least) / 2, least + (most - least) / 8, least] {
        let planned = plan(Some(budget));
        assert_eq!(number(&planned, "budget_bytes"), budget);
        assert!(number(&planned, "planned_peak_bytes") <= budget, "{planned}");
        assert_eq!(number(&planned, "minimum_budget_bytes"), least);
    }
    let text = stdout(&run(&["plan", "mnist-cnn", "--batch", "256", "--budget", "64MiB"]));
    // No device was named: the times are those of a class, whose memory is its own.
    assert!(free["unified_memory"] == false && !text.contains("frees nothing"), "{text}");
    let cpu = last(&run(&["plan", "mnist-cnn", "--device", "cpu", "--json"]));
    assert_eq!((&cpu["unified_memory"], &cpu["device"]), (&Value::Bool(true), &Value::from("cpu")));
    let cpu = stdout(&run(&["plan", "mnist-cnn", "--device", "cpu"]));
    assert!(cpu.contains("typical of a CPU, not measured on this device"), "{cpu}");
    let reference = stdout(&run(&["plan", "mnist-cnn", "--device", "reference"]));
    assert!(reference.contains("is for checking") && !reference.contains("calibrate"), "it cannot be: {reference}");
    for word in ["conv2", "1,199,882", "budget", "64.0 MiB", "micro-batches", "ms  a step", "typical of a discrete GPU"]
    {
        assert!(text.contains(word), "{word} in\n{text}");
    }
}

#[test]
fn a_softmax_that_the_loss_applies_once_more_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("model.toml");
    let plan = |more: &str| {
        let layers = "[[layers]]\nkind = \"linear\"\nout_features = 3\n[[layers]]\nkind = \"softmax\"\n";
        std::fs::write(&file, format!("name = \"ended\"\ninput = [4]\n{more}\n{layers}")).expect("write");
        run(&["plan", file.to_str().expect("UTF-8"), "--json"])
    };
    let output = plan("");
    let warnings = last(&output)["warnings"].clone();
    let words = warnings[0].as_str().expect("a warning");
    assert!(words.contains("ends in softmax") && words.contains("from_logits = false"), "{words}");
    assert!(String::from_utf8_lossy(&output.stderr).contains(words));
    let output = plan("loss = { kind = \"cross-entropy\", from_logits = false }");
    assert_eq!(last(&output)["warnings"], serde_json::json!([]));
    plan("");
    for more in [&["--sweep"][..], &["--max-batch", "--budget", "1GB"]] {
        let output = run(&[&["plan", file.to_str().expect("UTF-8"), "--json"], more].concat());
        assert_eq!(last(&output)["warnings"], serde_json::json!([words]), "{more:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), format!("warning: {words}\n"), "{more:?}");
    }
    let output = plan("optimizer = { kind = \"adam\", lr = 1e300 }");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && stderr.contains("lr = 1e300 is not possible"), "{stderr}");
}

#[test]
fn the_demos_model_fits_16_mib() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/lenet.toml");
    let plan = last(&run(&["plan", file, "--budget", "16MiB", "--json"]));
    assert!(plan["planned_peak_bytes"].as_u64().is_some_and(|peak| peak <= 16 << 20), "{plan}");
}

#[test]
fn an_infeasible_budget_says_which_would_do() {
    let message = refused(&["plan", "mnist-cnn", "--budget", "100KiB"], 3);
    assert!(message.contains("100.0 KiB"), "{message}");
    let object = last(&run(&["plan", "mnist-cnn", "--budget", "100KiB", "--json"]));
    let least = object["minimum_budget_bytes"].as_u64().expect("a number");
    assert!(!object["blocking"].as_array().expect("a list").is_empty());
    let output = run(&["plan", "mnist-cnn", "--budget", &least.to_string()]);
    assert_eq!(output.status.code(), Some(0));
    refused(&["plan", "mnist-cnn", "--budget", &(least - 256).to_string()], 3);

    let fixture = Fixture::new();
    let model = fixture.path("tiny.toml");
    refused(&fixture.train_args(&model, &["--budget", "1KiB"]), 3);
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    for budget in ["0", "1e400", "-5", "-5MiB", "NaN", "", "18446744073709551616", "12 apples"] {
        let message = refused(&["plan", "mnist-cnn", "--budget", budget], 2);
        assert!(message.starts_with("--budget") && message.contains("64MiB"), "{message}");
    }
    for (option, value) in [
        ("--batch", "0"),
        ("--batch", "-1"),
        ("--seed", "-1"),
        ("--lr", "NaN"),
        ("--momentum", "2"),
        ("--micro-batches", "0"),
    ] {
        assert!(refused(&["plan", "mnist-cnn", option, value], 2).starts_with(option));
    }
    assert!(refused(&["plan", "mnist-cnn", "--batch", "4", "--micro-batches", "5"], 2).contains('5'));
    assert!(refused(&["plan", "mnist-rnn"], 2).contains("mnist-cnn"));
    assert!(refused(&["plan", "gone.toml"], 2).contains("gone.toml"));
    assert!(refused(&["plan", "mnist-cnn", "--wat"], 2).contains("--wat"));
    assert!(refused(&["plan"], 2).contains("MODEL"));
    assert!(refused(&[], 2).contains("train"));
    assert!(refused(&["train", "mnist-cnn", "--steps", "0"], 2).starts_with("--steps"));
    refused(&["plan", "mnist-cnn", "--batch", "18446744073709551615"], 2);
    assert!(refused(&["plan", "mnist-cnn", "--budget", "64", "MiB"], 2).contains("write --budget \"64 MiB\""));
}

#[test]
fn model_files_that_do_not_fit_together_name_the_place() {
    let fixture = Fixture::new();
    let check = |from: &str, to: &str, words: &[&str]| {
        fixture.write("bad.toml", MODEL.replace(from, to).as_bytes());
        let path = fixture.path("bad.toml");
        let message = refused(&["plan", path.to_str().expect("UTF-8")], 2);
        for word in words {
            assert!(message.contains(word), "{word}: {message}");
        }
    };
    check("kernel = 4", "kernel_size = 4", &["bad.toml", "line 11", "here it is `kernel`"]);
    check("kind = \"linear\"", "type = \"linear\"", &["line 16: missing key `kind`: `type` is called so here"]);
    check("kind = \"linear\"", "kind = \"Dense\"", &["line 17", "here it is `linear`"]);
    check("[optimizer]", "epochs = 3\n[optimizer]", &["line 5", "train --help"]);
    check("[[layers]]", "[layers]", &["line 13: [layers] stands here again", "[[layers]]"]);
    check("lr = 0.1", "lr = 0.1\nlr = 0.2", &["line 8", "`lr` is set again"]);
    check("lr = 0.1", "lr = -1", &["line 5: lr = -1.0 is not possible"]);
    check("[optimizer]", "loss = { kind = \"huber\", delta = 0 }\n[optimizer]", &["line 5: the loss huber"]);
    check("kernel = 4", "kernel = 4\n[[layers]]\nkind = \"dropout\"\np = 1.5", &["line 12: layer `dropout1`", "1.5"]);
    check("kernel = 4", "kernel = 4.5", &["line 11", "`kernel`", "whole number"]);
    check("input = [1, 28, 28]", "input_shape = [1, 28, 28]", &["unknown key `input_shape`: here it is `input`"]);
    check("[1, 28, 28]", "[5, 1, 28, 28]", &["line 9: layer `pool1`", "write [1, 28, 28], without the batch of 5"]);
    check("name = \"tiny\"", "", &["missing key `name`"]);
    check("kernel = 4", "kernal = 4", &["bad.toml", "line 11", "kernal", "did you mean `kernel`?"]);
    check("kind = \"flatten\"", "kind = \"relu\"", &["linear1", "flatten"]);
    check("kernel = 4", "kernel = 40", &["pool1", "40"]);
    check("[1, 28, 28]", "28", &["bad.toml", "line 3", "a list"]);
    check("lr = 0.1", "lr = 0.1\nmomentum = 2.0", &["momentum"]);
    check("out_features = 10", "out_features = 99999999999", &["linear1", "out_features"]);
    let linear = &MODEL[MODEL.rfind("[[layers]]").expect("is there")..];
    check(linear, "", &["bad.toml: no parameter reaches the loss"]);
    check("lr = 0.1", "lr = 1e300", &["bad.toml: line 5: lr = 1e300 is not possible"]);
    // Numbers that single precision does not hold, as they were written.
    for (layer, words) in [
        ("dropout\"\np = 1e300", "`p`: 1e300 is not possible: single precision holds"),
        ("elu\"\nalpha = -1e300", "`alpha`: -1e300 is not possible"),
        ("layer_norm\"\neps = 1e-300", "`eps`: 1e-300 is not possible"),
        ("linear\"\nout_features = 1e300", "`out_features`: invalid type: floating point `1e300`"),
    ] {
        check("kernel = 4", &format!("kernel = 4\n[[layers]]\nkind = \"{layer}"), &["bad.toml: line 14: ", words]);
    }
    check("[optimizer]", "loss = { kind = \"huber\", delta = 1e300 }\n[optimizer]", &["line 5: `delta`: 1e300 is not"]);
    check("lr = 0.1", "lr = 0.1\n[[groups]]\nprefix = \"linear\"\nlr_factor = 1e300", &["line 10: `lr_factor`: 1e300"]);
    check("kind = \"sgd\"", "kind = \"adam\"\neps = 0", &["line 5: eps = 0.0 is not possible", "divided by 0"]);
}

#[test]
fn names_and_shapes_that_are_wrong_say_what_is_right() {
    for (args, words) in [
        (&["plan", "resnet5"][..], "did you mean `resnet50`?"),
        (&["plan", "mnist_cnn"], "did you mean `mnist-cnn`?"),
        (&["plan", "nothing"], "choose one of mnist-mlp, mnist-cnn"),
        (&["plan", "lenett.toml"], "or the built-in model lenet"),
        (&["plan", "resnet18", "--input", "224x224x3"], "channels come first, as in 3x224x224"),
        (&["plan", "unet", "--input", "250x250x3"], "write [3, 240, 240] or [3, 256, 256]"),
        (&["plan", "unet", "--input", "3x250x250"], "multiples of 16 fit: use [3, 240, 240] or [3, 256, 256]"),
        (&["plan", "mnist-cnn", "--device", "cp"], "did you mean `cpu`?"),
        (
            &["plan", "mnist-mlp", "--input", "1x28x28"],
            "--input 1x28x28 does not fit mnist-mlp, which takes inputs such as [784]; mnist-cnn, mnist-deep, mnist-unet, lenet, ",
        ),
        (
            &["plan", "resnet18", "--input", "3x100000x100000"],
            "resnet18: layer `input`: the batch of shape [1, 3, 100000, 100000] has more than",
        ),
        (
            &["plan", "lenet", "--input", "3x8x8"],
            "--input 3x8x8 does not fit lenet: a larger image fits: use [3, 12, 12]",
        ),
        (&["train", "char_lstm", "--device", "cpu"], "takes tokens (u32) as `input`"),
        (&["plan", "mnist-mlp", "--lr", "1e-50"], "--lr `1e-50`: it must be from 1.2e-38 to 3.4e38"),
        (&["train", "mnist-mlp", "--save", ""], "--save <FILE>: nothing was given"),
    ] {
        let message = refused(args, 2);
        assert!(message.contains(words), "{words}: {message}");
    }
    assert_eq!(run(&["plan", "mnist-mlp", "--budget", "8G", "--optimizer", "SGD"]).status.code(), Some(0));
}

/// Runs on a terminal of 80 columns; returns the lines without what moves the cursor or colours.
#[cfg(target_os = "linux")]
fn on_terminal(args: &str) -> Vec<String> {
    let command = format!("stty cols 80 rows 24; exec {} {args}", env!("CARGO_BIN_EXE_tightfit"));
    let mut script = Command::new("script");
    script.args(["-qec", &command, "/dev/null"]).env_remove("RUST_LOG").env("TERM", "xterm").stdin(Stdio::null());
    let output = script.env("VK_DRIVER_FILES", "/nonexistent").env("VK_ICD_FILENAMES", "/nonexistent").output();
    let text = stdout(&output.expect("script runs"));
    let mut plain = String::new();
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match c {
            '\u{1b}' => drop(characters.find(char::is_ascii_alphabetic)),
            c => plain.push(c),
        }
    }
    plain.split(['\n', '\r']).map(str::to_owned).collect()
}

#[cfg(target_os = "linux")]
#[test]
fn nothing_is_wider_than_the_terminal() {
    let fixture = Fixture::new();
    let (model, data) = (fixture.path("tiny.toml"), fixture.dir.path().display().to_string());
    let train = format!("train {} --data {data} --device cpu --budget 1MiB --batch 10 --epochs 3", model.display());
    for (args, word) in [
        ("train --help", "--budget"),
        ("plan resnet50 --batch 4 --micro-batches 1", "layer3.5"),
        ("plan mnist-unet --batch 64 --micro-batches 1 --budget 38MiB --without offload", "recomputed"),
        ("plan mnist-mlp --batch 64 --sweep", "smallest budget"),
        ("plan mnist-mlp --budget 20MB --max-batch", "largest batch"),
        ("plan mnist-mlp --budget 1MB", "is too small"),
        ("plan transformer", "choose one of"),
        (&train, "measured peak = planned peak"),
    ] {
        let lines = on_terminal(args);
        assert!(lines.iter().any(|line| line.contains(word)), "{args}: {lines:?}");
        for line in lines {
            assert!(line.chars().count() <= 80 || line.split_whitespace().count() == 1, "{args}: {line}");
        }
    }
}

#[test]
fn training_on_the_cpu_learns_saves_and_repeats() {
    let fixture = Fixture::new();
    let model = fixture.path("tiny.toml");
    let weights = fixture.path("tiny.safetensors");
    let save = weights.to_str().expect("UTF-8");
    let args =
        fixture.train_args(&model, &["--epochs", "20", "--seed", "3", "--budget", "1MiB", "--save", save, "--json"]);
    let output = run(&args);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = objects(&output);
    assert_eq!(lines[0]["event"], "plan");
    assert_eq!(lines.iter().filter(|line| line["event"] == "epoch").count(), 20);
    assert!(lines.iter().filter(|line| line["event"] == "step").count() >= 20);
    let summary = last(&output);
    for name in ["model", "device", "step_ms_median", "first_step_ms", "compile_ms", "train_loss", "parameters_sha256"]
    {
        assert!(!summary[name].is_null(), "{name} in {summary}");
    }
    assert_eq!(summary["steps"], 120);
    assert_eq!(summary["kernels"], 0, "native code is compiled already");
    let process = &summary["process"];
    if cfg!(target_os = "linux") {
        let bytes = |name: &str| process[format!("{name}_bytes")].as_u64().expect(name);
        assert_eq!(bytes("device"), summary["measured_peak_bytes"].as_u64().expect("bytes"));
        let parts: u64 = ["base", "device", "host_tier", "data", "kernels", "rest"].map(bytes).iter().sum();
        // What is left is not below 0, where the parts were counted at different moments.
        assert!(parts >= bytes("peak") && bytes("base") > 0, "{process}");
    } else {
        assert!(process.is_null());
    }
    assert_eq!(summary["micro_batches"], 1);
    assert_eq!(summary["interrupted"], false);
    assert_eq!(summary["measured_peak_bytes"], summary["planned_peak_bytes"]);
    assert!(summary["planned_peak_bytes"].as_u64() <= summary["budget_bytes"].as_u64());
    assert_eq!(summary["test_accuracy"], 1.0);

    assert_eq!(last(&run(&args))["parameters_sha256"], summary["parameters_sha256"], "the same run, bit for bit");

    let data = fixture.dir.path().to_str().expect("UTF-8");
    let model = model.to_str().expect("UTF-8");
    let eval = ["eval", model, "--data", data, "--device", "cpu", "--weights", save, "--json"];
    let evaluation = last(&run(&eval));
    assert_eq!(evaluation["test_accuracy"], 1.0);
    assert_eq!(evaluation["parameters_sha256"], summary["parameters_sha256"]);

    let text = stdout(&run(&args[..args.len() - 1]));
    for word in ["planned peak", "measured peak = planned peak = ", " ≤ budget", "accuracy 100.00%", "saved to"] {
        assert!(text.contains(word), "{word} in\n{text}");
    }
}

#[test]
fn training_stops_after_so_many_steps() {
    let fixture = Fixture::new();
    let model = fixture.path("tiny.toml");
    let output = run(&fixture.train_args(&model, &["--epochs", "9", "--steps", "7", "--micro-batches", "2", "--json"]));
    let summary = last(&output);
    assert_eq!(summary["steps"], 7);
    assert_eq!(summary["micro_batches"], 2);
}

#[test]
fn a_loss_that_is_no_number_ends_training() {
    let fixture = Fixture::new();
    let hidden = "kind = \"linear\"\nout_features = 10\n\n[[layers]]\nkind = \"linear\"";
    fixture.write("deep.toml", MODEL.replace("kind = \"linear\"", hidden).as_bytes());
    let model = fixture.path("deep.toml");
    let message = refused(&fixture.train_args(&model, &["--lr", "1e30", "--epochs", "3"]), 4);
    assert!(message.contains("step ") && message.contains("learning rate"), "{message}");
}

#[test]
fn data_that_is_not_right_is_refused() {
    let model = Fixture::new();
    let model = model.path("tiny.toml");
    let check = |damage: &dyn Fn(&Fixture), word: &str| {
        let fixture = Fixture::new();
        damage(&fixture);
        let message = refused(&fixture.train_args(&model, &[]), 2);
        assert!(message.contains(word), "{word}: {message}");
    };
    let truncate = |fixture: &Fixture, name: &str, len: usize| {
        let bytes = fs::read(fixture.path(name)).expect("readable");
        fixture.write(name, &bytes[..len]);
    };
    check(&|f| truncate(f, "train-images-idx3-ubyte", 5000), "train-images-idx3-ubyte");
    check(&|f| truncate(f, "t10k-labels-idx1-ubyte", 3), "t10k-labels-idx1-ubyte");
    check(&|f| f.write("train-labels-idx1-ubyte", b"not an IDX file at all"), "train-labels-idx1-ubyte");
    check(&|f| f.write("train-labels-idx1-ubyte", &idx(&[60], vec![11; 60])), "labels up to 11");
    check(&|f| fs::remove_file(f.path("t10k-images-idx3-ubyte")).expect("removable"), "t10k-images-idx3-ubyte");

    let fixture = Fixture::new();
    let args = fixture.train_args(&model, &["--batch", "61"]);
    let without_batch: Vec<_> = args.iter().copied().filter(|arg| *arg != "10").collect();
    let once: Vec<_> = without_batch.iter().copied().enumerate().filter(|&(i, _)| i != 6).map(|(_, arg)| arg).collect();
    assert!(refused(&once, 2).contains("61"));
    assert!(refused(&["train", "mnist-mlp", "--data", "/nonexistent/folder"], 2).contains("/nonexistent/folder"));
    assert!(refused(&fixture.train_args(&model, &["--save", "/nonexistent/folder/w"]), 2).contains("--save"));
}

#[test]
fn labels_that_are_ignored_need_no_output() {
    let fixture = Fixture::new();
    let loss = "[loss]\nkind = \"cross-entropy\"\nignore_index = 255\n\n[optimizer]";
    fixture.write("void.toml", MODEL.replace("[optimizer]", loss).as_bytes());
    let labels: Vec<u8> = (0..60).map(|i| if i % 7 == 0 { 255 } else { i % 10 }).collect();
    fixture.write("train-labels-idx1-ubyte", &idx(&[60], labels));
    fixture.write("t10k-labels-idx1-ubyte", &idx(&[30], vec![255; 30]));
    let (model, weights) = (fixture.path("void.toml"), fixture.path("w"));
    let output = run(&fixture.train_args(&model, &["--json", "--save", weights.to_str().expect("UTF-8")]));
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let summary = last(&output);
    assert_eq!((&summary["test_loss"], &summary["test_accuracy"]), (&0.0.into(), &Value::Null));
    let mut args = fixture.train_args(&model, &["--weights", weights.to_str().expect("UTF-8")]);
    args[0] = "eval";
    assert_eq!(run(&args).status.code(), Some(0));
    let plain = fixture.path("tiny.toml");
    assert!(refused(&fixture.train_args(&plain, &[]), 2).contains("256 classes"));
}

#[test]
fn what_data_does_not_go_with_is_told_before_anything_is_planned() {
    let fixture = Fixture::new();
    let data = fixture.dir.path().to_str().expect("UTF-8");
    let classifiers = "use a model of such images, such as mnist-mlp, mnist-cnn";
    let refuse = |model: &str, words: [&str; 2]| {
        let message = refused(&["train", model, "--data", data, "--device", "cpu", "--batch", "10"], 2);
        for word in words {
            assert!(message.contains(word), "{word}: {message}");
        }
        // Nothing else on standard output either.
        assert!(run(&["train", model, "--data", data, "--device", "cpu"]).stdout.is_empty(), "{model}");
    };
    refuse("gpt", ["takes tokens (u32) as `input`", classifiers]);
    refuse("char_lstm", ["takes tokens", classifiers]);
    refuse("unet_small", ["for the model's output [2, 256, 256]", classifiers]);
    refuse("lstm_forecaster", ["the loss mse needs target values", classifiers]);
    // Of another size: what is advised, the model takes.
    refuse("vgg16", ["cannot take the shape [3, 224, 224]", "a model that takes these, such as mnist-mlp, mnist-cnn"]);
    refuse("unet", ["for the model's output", classifiers]);
    refuse("resnet18", ["cannot take the shape [3, 224, 224]", "`resnet18` takes them with --input 1x28x28"]);
    assert_eq!(run(&["plan", "resnet18", "--input", "1x28x28", "--batch", "10"]).status.code(), Some(0));
    let path = fixture.path("changed.toml");
    let change = |from: &str, to: &str, words: [&str; 2]| {
        fixture.write("changed.toml", MODEL.replace(from, to).as_bytes());
        refuse(path.to_str().expect("UTF-8"), words);
    };
    change("out_features = 10", "out_features = 5", ["10 classes", "5 outputs"]);
    change("out_features = 10", "out_features = 1", ["10 classes", "1 output:"]);
    change(
        "[optimizer]",
        "loss = \"mse\"\n\n[optimizer]",
        ["the loss mse needs target values", "use the loss cross-entropy"],
    );
    change(
        "kind = \"flatten\"",
        "kind = \"reshape\"\nshape = [7, 7]",
        ["the model's output [7, 10]", "one vector of scores"],
    );
}

#[test]
fn an_unknown_device_is_refused() {
    let fixture = Fixture::new();
    let model = fixture.path("tiny.toml");
    let (model, data) = (model.to_str().expect("UTF-8"), fixture.dir.path().to_str().expect("UTF-8"));
    let message = refused(&["train", model, "--data", data, "--batch", "10", "--device", "warp-drive"], 2);
    assert!(message.contains("warp-drive"), "{message}");
    assert!(refused(&["plan", model, "--device", "99"], 2).contains("99"));
}

#[test]
fn weights_that_do_not_fit_are_refused() {
    let fixture = Fixture::new();
    let model = fixture.path("tiny.toml");
    let (model, data) = (model.to_str().expect("UTF-8"), fixture.dir.path().to_str().expect("UTF-8"));
    let weights = fixture.path("weights");
    let args = ["eval", model, "--data", data, "--device", "cpu", "--weights", weights.to_str().expect("UTF-8")];
    assert!(refused(&args, 2).contains("weights"));
    fixture.write("weights", b"\xff\xff\xff\xff\xff\xff\xff\xffjunk");
    assert!(refused(&args, 2).contains("weights"));
    fixture.write("weights", b"PK\x03\x04 archive/data.pkl");
    let message = refused(&args, 2);
    assert!(message.contains("not a file of PyTorch that can be read"), "{message}");
    assert!(refused(&[&args[..], &["--lr", "0.1"]].concat(), 2).contains("--lr"), "testing does not learn");
}

#[test]
fn every_key_is_documented() {
    let fixture = Fixture::new();
    let model = fixture.path("tiny.toml");
    let (model_text, data) = (model.to_str().expect("UTF-8"), fixture.dir.path().to_str().expect("UTF-8"));
    let weights = fixture.path("w.safetensors");
    let weights = weights.to_str().expect("UTF-8");
    let run_folder = fixture.path("run");
    let run_folder = run_folder.to_str().expect("UTF-8");
    let all = |args: &[&str], code: i32| {
        let output = run(&[args, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        objects(&output)
    };
    let rates = ["--optimizer", "adamw", "--lr", "3.4e38", "--weight-decay", "1", "--steps", "1"];
    let train = |more: &[&str], code| all(&fixture.train_args(&model, more), code);
    let eval = ["eval", model_text, "--data", data, "--device", "cpu", "--weights", weights];
    for (objects, sections) in [
        (all(&["plan", "mnist-mlp", "--batch", "8", "--micro-batches", "2"], 0), &["A plan"][..]),
        (all(&["plan", "mnist-mlp", "--batch", "4", "--sweep"], 0), &["`plan --sweep`", "A plan"]),
        (
            all(&["plan", "mnist-lstm", "--batch", "1", "--budget", "5.5MiB", "--max-batch"], 0),
            &["`plan --max-batch`", "A plan"],
        ),
        (train(&["--epochs", "2", "--log-every", "1", "--save", weights], 0), &["`train`", "A plan"]),
        (train(&["--run", run_folder, "--steps", "3", "--validate", "--metrics", "f1"], 0), &["`train`", "A plan"]),
        (all(&["resume", run_folder], 0), &["`resume`", "`train`"]),
        (all(&["resume", run_folder, "--steps", "5"], 0), &["`train`", "A plan"]),
        (all(&["runs", run_folder], 0), &["`runs`"]),
        (train(&["--print-config"], 0), &["`train`"]),
        (train(&["--steps", "1", "--weights", weights, "--skip-mismatched"], 0), &["`train`", "A plan"]),
        (all(&eval, 0), &["`eval`"]),
        (all(&["devices"], 0), &["`devices`"]),
        (all(&["plan", "mnist-cnn", "--budget", "100KiB"], 3), &["Errors"]),
        (all(&["plan", "mnist-cnn", "--batch", "0"], 2), &["Errors"]),
        (train(&rates, 4).split_off(1), &["Errors", "`train`"]),
    ] {
        for object in &objects {
            assert_documented(object, sections);
        }
    }
    let object = last(&run(&["plan", "mnist-mlp", "--json"]));
    let part = |name: &str| object[format!("{name}_bytes")].as_u64().expect("a number");
    let parts = ["parameters", "state", "accumulators", "transient", "staging", "device"].map(part);
    assert_eq!(parts.iter().sum::<u64>(), part("planned_peak"));
}

#[test]
fn a_sweep_goes_from_the_smallest_budget_to_the_need() {
    let args = ["plan", "mnist-cnn", "--batch", "128", "--sweep"];
    let sweep = last(&run(&[&args[..], &["--json"]].concat()));
    let points = sweep["points"].as_array().expect("a list");
    assert!(points.len() > 2, "{sweep}");
    assert_eq!(points[0]["budget_bytes"], sweep["minimum_budget_bytes"]);
    for pair in points.windows(2) {
        assert!(pair[0]["budget_bytes"].as_u64() < pair[1]["budget_bytes"].as_u64());
        assert!(pair[0]["predicted_step_ms"].as_f64() > pair[1]["predicted_step_ms"].as_f64());
    }
    let text = stdout(&run(&args));
    assert!(text.contains("overhead") && text.contains("smallest budget"), "{text}");
    assert!(refused(&[&args[..], &["--budget", "9MiB"]].concat(), 2).contains("--budget"));
}

#[test]
fn the_largest_batch_is_exact() {
    let args = ["plan", "mnist-cnn", "--budget", "40MiB", "--max-batch"];
    let found = last(&run(&[&args[..], &["--json"]].concat()));
    assert_eq!(found["max_batch"]["or_more"], true);
    assert_eq!(found["max_length"], Value::Null);
    let batch = found["max_batch_in_one"]["size"].as_u64().expect("a number");
    let fits = |batch: u64| {
        let (batch, base) = (batch.to_string(), ["plan", "mnist-cnn", "--budget", "40MiB", "--micro-batches", "1"]);
        run(&[&base[..], &["--batch", &batch]].concat()).status.code()
    };
    assert_eq!((fits(batch), fits(batch + 1)), (Some(0), Some(3)));
    let text = stdout(&run(&args));
    let lines: Vec<_> = text.lines().skip(2).collect();
    assert!(lines[0].starts_with("largest batch, whole") && lines[0].ends_with(&format!(" {batch}")), "{text}");
    assert!(lines[2].starts_with("in micro-batches") && lines[2].ends_with("or more"), "{text}");
    let same = stdout(&run(&["plan", "mnist-mlp", "--budget", "11.3MB", "--max-batch", "--device", "cpu"]));
    assert!(same.contains("device               cpu") && same.contains("costs"), "{same}");

    let found = last(&run(&["plan", "mnist-lstm", "--batch", "1", "--budget", "5.5MiB", "--max-batch", "--json"]));
    assert!(found["max_length"]["size"].as_u64().is_some_and(|length| length > 28), "{found}");
    assert!(refused(&["plan", "mnist-mlp", "--budget", "1MiB", "--max-batch"], 3).contains("not even a batch of 1"));
    assert!(refused(&["plan", "mnist-mlp", "--max-batch"], 2).contains("--budget"));
}

#[test]
fn a_plan_is_drawn_kept_and_run() {
    let fixture = Fixture::new();
    let model = fixture.path("tiny.toml");
    let (svg, kept) = (fixture.path("plan.svg"), fixture.path("plan.json"));
    let [model_text, svg_text, kept_text] = [&model, &svg, &kept].map(|path| path.to_str().expect("UTF-8"));
    let plan = ["plan", model_text, "--batch", "10", "--micro-batches", "3", "--clip-norm", "1"];
    let output = run(&[&plan[..], &["--svg", svg_text, "--output", kept_text, "--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(last(&output)["output"], kept_text);
    assert!(fs::read_to_string(&svg).expect("readable").starts_with("<svg "));

    let data = fixture.dir.path().to_str().expect("UTF-8");
    let train = ["train", model_text, "--data", data, "--device", "reference", "--epochs", "2"];
    let kept_plan = [&train[..], &["--plan", kept_text]].concat();
    let summary = last(&run(&[&kept_plan[..], &["--json"]].concat()));
    assert_eq!(summary["micro_batches"], 3);
    assert_eq!(summary["measured_peak_bytes"], summary["planned_peak_bytes"]);
    let same = [&train[..], &["--batch", "10", "--micro-batches", "3", "--clip-norm", "1", "--json"]].concat();
    assert_eq!(last(&run(&same))["parameters_sha256"], summary["parameters_sha256"]);

    let text = stdout(&run(&kept_plan));
    assert!(text.contains(&format!("of the plan {kept_text} are typical of a discrete GPU; plan again")), "{text}");

    // What was planned with may be said again.
    let decayed = fixture.path("decayed.json");
    let decay = ["--optimizer", "adamw", "--decay-matrices-only"];
    let output = ["--batch", "10", "--output", decayed.to_str().expect("UTF-8")];
    assert_eq!(run(&[&["plan", model_text][..], &decay, &output].concat()).status.code(), Some(0));
    let again = [&train[..], &decay, &["--plan", decayed.to_str().expect("UTF-8")]].concat();
    assert_eq!(run(&again).status.code(), Some(0), "{}", String::from_utf8_lossy(&run(&again).stderr));

    for (more, word) in [
        (["--batch", "12"], "a batch of 10, not 12"),
        (["--optimizer", "adam"], "the optimizer sgd, not adam"),
        (["--momentum", "0.25"], "not sgd with momentum = 0.25"),
        (["--clip-norm", "2"], "clip_norm = 1, not clip_norm = 2"),
        (["--budget", "9MiB"], "--budget"),
        (["--micro-batches", "3"], "--micro-batches"),
        (["--without", "recompute"], "--without"),
    ] {
        assert!(refused(&[&kept_plan[..], &more].concat(), 2).contains(word), "{word}");
    }
    let text = fs::read_to_string(&kept).expect("readable");
    for (from, to, word) in [
        ("\"name\":\"linear1.weight\"", "\"name\":\"linear9.weight\"", "damaged"),
        ("\"version\":2", "\"version\":3", "version 3"),
        ("\"model\":\"tiny\"", "\"model\":\"huge\"", "the model `huge`, not `tiny`"),
        ("\"arenas\":[", "\"arenas\":[[", "not a plan"),
        ("\"offset_bytes\":256", "\"offset_bytes\":512", "damaged"),
        ("{", "", "not a plan"),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        fixture.write("plan.json", changed.as_bytes());
        let message = refused(&kept_plan, 2);
        assert!(message.contains(word) && message.contains("plan.json"), "{word}: {message}");
    }
    fixture.write("plan.json", text.as_bytes());
    let wider = MODEL.replace("kernel = 4", "kernel = 2");
    fixture.write("tiny.toml", wider.as_bytes());
    assert!(refused(&kept_plan, 2).contains("another model"));
    fs::remove_file(&kept).expect("removable");
    assert!(refused(&kept_plan, 2).contains("plan.json"));
    assert!(refused(&["plan", model_text, "--svg", "/nonexistent/plan.svg"], 2).starts_with("--svg"));
}

#[test]
fn a_reader_that_leaves_is_no_panic() {
    let fixture = Fixture::new();
    let model = fixture.path("tiny.toml");
    let args = fixture.train_args(&model, &["--epochs", "100000", "--log-every", "1"]);
    let mut child = tightfit().args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("ends by itself");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"));
    assert_eq!(output.status.code(), Some(130));

    let mut child = tightfit().arg("--help").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("ends");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"));
}

/// Begins a training without end, and lets `meanwhile` happen once a step was made. Its exit code and summary.
#[cfg(unix)]
fn ended(
    mut command: Command,
    meanwhile: impl FnOnce(&dyn Fn(&str), &mut dyn Iterator<Item = String>),
) -> (Option<i32>, Value) {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map(|line| line.expect("UTF-8"));
    assert!(lines.any(|line| line.contains("\"step\"")), "training begins");
    let id = child.id().to_string();
    let send = |signal: &str| assert!(Command::new("kill").args([signal, &id]).status().expect("kill runs").success());
    meanwhile(&send, &mut lines);
    let summary = serde_json::from_str(&lines.last().expect("a summary")).expect("JSON");
    (child.wait().expect("ends").code(), summary)
}

#[cfg(unix)]
#[test]
fn what_was_learned_is_kept_when_training_is_asked_to_end() {
    // Signals that come of themselves may come twice, and orders, too: `timeout` sends them to the process and to its group.
    for signals in [
        &["-INT"][..],
        &["-INT", "-INT"],
        &["-TERM", "-TERM"],
        &["-INT", "-TERM"],
        &["-HUP"; 3],
        &["-XCPU"; 2],
        &["-USR1", "-TERM"],
        &["-USR2"],
        &["-ALRM", "-HUP"],
    ] {
        let fixture = Fixture::new();
        let model = fixture.path("tiny.toml");
        let weights = fixture.path("w.safetensors");
        let save = weights.to_str().expect("UTF-8");
        let mut command = tightfit();
        let more = ["--epochs", "1000000", "--log-every", "1", "--save", save, "--json"];
        command.args(fixture.train_args(&model, &more));
        let (code, summary) = ended(command, |send, _| signals.iter().for_each(|signal| send(signal)));
        assert_eq!(code, Some(130), "{signals:?}");
        assert_eq!(summary["interrupted"], true, "{signals:?}");
        assert!(summary["steps"].as_u64().expect("a number") > 0);
        assert!(summary["test_accuracy"].is_null());
        assert!(fs::metadata(weights).expect("saved").len() > 0);
    }
}

#[cfg(unix)]
#[test]
fn a_signal_that_is_ignored_stays_so() {
    let fixture = Fixture::new();
    let model = fixture.path("tiny.toml");
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_tightfit")]);
    let more = ["--epochs", "1000000", "--log-every", "1", "--json"];
    command.args(fixture.train_args(&model, &more)).env("TIGHTFIT_PROFILES", fixture.dir.path());
    let (code, summary) = ended(command, |send, lines| {
        send("-HUP");
        // More than what a pipe holds.
        let bytes: usize = lines.take(20_000).map(|line| line.len()).sum();
        assert!(bytes > 1 << 20, "training ended");
        send("-INT");
    });
    assert_eq!((code, &summary["interrupted"]), (Some(130), &true.into()));
}

//! `tightfit bench` on the CPU, and profiled steps on the device. No times are asserted: the machine has its own.

use std::process::{Command, Output};

use serde_json::Value;
use tightfit::data::{Targets, TensorDataset, Values};
use tightfit::exec::{Clock, Executor, GpuExecutor};
use tightfit::models;
use tightfit::testing::device_or_skip;
use tightfit::train::{Config, DeviceSelector, Machine, Trainer, plan_for};

use crate::command::{assert_documented, objects};

/// Runs the binary, which sees no Vulkan driver.
fn bench(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tightfit"));
    command.env("VK_DRIVER_FILES", "/nonexistent").env("VK_ICD_FILENAMES", "/nonexistent").env_remove("RUST_LOG");
    // The bundled images.
    command.env_remove("TIGHTFIT_DATA").current_dir(env!("CARGO_MANIFEST_DIR"));
    command.arg("bench").args(args).output().expect("the binary runs")
}

/// One small step on the CPU.
fn small(workload: &str, more: &[&str]) -> Output {
    let output =
        bench(&[&[workload, "--device", "cpu", "--batch", "2", "--steps", "1", "--warmup", "1"], more].concat());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

/// The one object on standard output.
fn object(output: &Output) -> Value {
    let text = std::str::from_utf8(&output.stdout).expect("UTF-8");
    serde_json::from_str(text).expect(text)
}

/// The error of a command that must fail, which is one line.
fn refused(args: &[&str], exit_code: i32) -> String {
    let output = bench(args);
    assert_eq!(output.status.code(), Some(exit_code), "{args:?}");
    let message = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(message.lines().count(), 1, "{args:?}: {message}");
    message
}

#[test]
fn every_field_of_the_other_frameworks_is_there() {
    let object = object(&small("w1", &["--json", "--profile"]));
    for name in [
        "workload",
        "peer",
        "version",
        "ms",
        "min_ms",
        "p90_ms",
        "sps",
        "dev_mb",
        "planned_mb",
        "warm_s",
        "steps",
        "params",
        "loss0",
        "loss1",
        "total_s",
    ] {
        assert!(!object[name].is_null(), "{name} in {object}");
    }
    for name in
        ["peak_mb", "base_mb", "host_tier_mb", "data_mb", "kernels_mb", "rest_mb", "cold_s", "other_cores", "own_cores"]
    {
        assert_eq!(object[name].is_null(), !cfg!(target_os = "linux"), "{name} in {object}");
    }
    assert!(object["acc"].is_null());
    assert_eq!((&object["peer"], &object["steps"], &object["batch"]), (&"tightfit".into(), &1.into(), &2.into()));
    assert_eq!(object["params"], 669_706);
    assert_eq!(object["dev_mb"], object["planned_mb"]);
    let profile = &object["profile"];
    assert_eq!(profile["clock"], "host");
    let ops = profile["ops"].as_array().expect("a list");
    assert!(ops.iter().any(|op| op["op"] == "matmul" && op["shapes"] == "2x784 512x784 512 -> 2x512"), "{profile}");
    assert_documented(&object, &["`bench`"]);
}

#[test]
fn text_says_the_same() {
    let output = small("w3", &["--budget", "64MiB", "--profile"]);
    let text = String::from_utf8_lossy(&output.stdout);
    for words in [
        "w3 on cpu, threads: ",
        ": batch 2, 82186 parameters",
        "as planned",
        "budget 64.0 MiB",
        "lstm",
        "between kernels",
    ] {
        assert!(text.contains(words), "{words} in\n{text}");
    }
}

#[test]
fn what_cannot_be_run_is_refused_in_a_sentence() {
    let message = refused(&["w9"], 2);
    assert!(message.contains("w9") && message.contains("w3b") && !message.contains("gemm4096"), "{message}");
    assert!(refused(&[], 2).contains("w1, w2, w3, w3b, w4, w5, or planner"));
    assert!(refused(&["w1", "--device", "warp-drive"], 2).contains("warp-drive"));
    assert!(refused(&["w2", "--device", "cpu", "--budget", "1MiB"], 3).contains("the smallest that works"));
    assert!(refused(&["w1", "--device", "cpu", "--data", "/nonexistent"], 2).contains("/nonexistent"));
    assert!(refused(&["w1", "--steps", "0"], 2).contains("--steps"));
}

#[test]
fn profiling_a_step_changes_nothing_but_its_time() {
    let Some(mut device) = device_or_skip() else { return };
    let (has_timestamps, index) = (device.has_timestamps(), device.info().index);
    let pixels = (0..16 * 784).map(|i| (i * 37 % 251) as u8).collect();
    let labels = Targets::labels((0..16).map(|i| i % 10).collect(), 10);
    let data = TensorDataset::new(Values::U8(pixels), [1, 28, 28], labels).expect("fits");
    let indices: Vec<usize> = (0..16).collect();
    let config = Config::default().batch(16).micro_batches(2);
    let machine = Machine::of(&mut device);
    let planned = plan_for(models::mnist_cnn(10), &config, &machine).expect("a plan");
    let executor: Box<dyn Executor> = Box::new(GpuExecutor::new(device, &planned).expect("an executor"));
    let mut profiled =
        Trainer::with_executor(models::mnist_cnn(10), config.clone(), planned, executor).expect("a trainer");
    let mut usual = Trainer::new(models::mnist_cnn(10), config, DeviceSelector::Index(index)).expect("a trainer");

    usual.step(&data, &indices).expect("a step");
    let times = profiled.profile_step(&data, &indices).expect("a step");
    assert!(profiled.measured_peak_bytes() >= profiled.plan().peak_bytes);
    assert_eq!(usual.measured_peak_bytes(), usual.plan().peak_bytes, "no memory for times that nobody takes");
    let next = [&mut usual, &mut profiled].map(|trainer| trainer.step(&data, &indices).expect("a step"));
    assert_eq!(next[0], next[1], "the same bits");

    let dispatches: usize = profiled.plan().schedule.iter().map(|&program| dispatches(&profiled, program)).sum();
    assert_eq!(times.len(), dispatches);
    assert!(times.iter().all(|time| time.ns.is_finite() && time.ns >= 0.0 && !time.name.is_empty()), "{times:?}");
    if has_timestamps {
        assert_eq!(profiled.clock(), Clock::Timestamps);
        assert!(times.iter().all(|time| !time.kernels.is_empty()), "{times:?}");
        let conv =
            times.iter().find(|time| time.op == "conv2d.grad_weight" && time.name == "conv2").expect("there is one");
        assert_eq!(conv.kernels[0].0.to_string(), "conv2d_winograd.transform_input");
        assert!(conv.ns > 0.0);
    }
}

/// Nodes that a program runs.
fn dispatches(trainer: &Trainer, program: usize) -> usize {
    let commands = &trainer.plan().programs[program].commands;
    commands.iter().filter(|command| matches!(command, tightfit::plan::Command::Dispatch { .. })).count()
}

#[test]
fn tables_of_the_planner_fit_80_columns() {
    let folder = tempfile::tempdir().expect("a folder");
    let placement = folder.path().join("placement");
    std::fs::create_dir(&placement).expect("a folder");
    std::fs::write(placement.join("some.12.csv"), "id,lower,upper,size\n0,0,3,4\n1,3,9,8\n2,3,6,4\n").expect("writes");
    let output = bench(&["planner", folder.path().to_str().expect("UTF-8"), "--seconds", "0.001"]);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success() && text.contains("some.12") && text.contains("deep graphs"), "{text}");
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let args = ["planner", folder.path().to_str().expect("UTF-8"), "--seconds", "0.001", "--json"];
    for object in objects(&bench(&args)) {
        assert_documented(&object, &["`bench planner`"]);
    }
}

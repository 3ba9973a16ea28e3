//! Files of PyTorch.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tightfit::error::ImportError;
use tightfit::interop::{Weights, safetensors, torch};
use tightfit::nn::{BatchNorm, Conv2d, Linear, Model};
use tightfit::train::{Config, Trainer};

use crate::mutations::{message_of, mutations};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/torch").join(name)
}

/// As `Net` in tests/golden/torch/generate.py.
fn net() -> Model {
    Model::new("net", [1, 5, 5], |x| {
        let x = x.layer("conv1", Conv2d::new(2, 3)).layer("bn1", BatchNorm::new()).relu();
        x.global_avg_pool().layer("fc", Linear::new(3))
    })
}

#[derive(Deserialize)]
struct Expected {
    shape: Vec<usize>,
    values: Vec<f64>,
}

fn expected() -> BTreeMap<String, Expected> {
    let text = std::fs::read_to_string(file("state.json")).expect("readable");
    serde_json::from_str(&text).expect("as generate.py writes it")
}

/// All that PyTorch says is in a file is there, to a relative error.
fn assert_same(weights: &Weights, error: f64) {
    let expected = expected();
    assert_eq!(weights.iter().map(|(name, _)| name).collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (name, weight) in weights.iter() {
        let Expected { shape, values } = &expected[name];
        assert_eq!(weight.shape()[..], shape[..], "{name}");
        for (found, expected) in weight.values().iter().zip(values) {
            assert!((f64::from(*found) - expected).abs() <= error * expected.abs(), "{name}: {found} {expected}");
        }
    }
}

#[test]
fn state_dicts_of_all_formats_are_read() {
    for name in ["state.pt", "legacy.pth"] {
        assert_same(&torch::read(file(name)).expect(name), 0.0);
    }
    assert_same(&torch::read(file("bf16.pt")).expect("reads"), 1.0 / 256.0);
    let types = torch::read(file("types.pt")).expect("reads");
    let values = |name: &str| types.get(name).expect(name).values().to_vec();
    assert_eq!(values("half"), [1.5, -2.25]);
    assert_eq!(values("double"), [0.1, 7e-3]);
    assert_eq!(values("whole"), [-3.0, 70000.0]);
    assert_eq!(types.get("view").expect("view").shape()[..], [2, 3]);
    assert_eq!(values("view"), [1.0, 5.0, 9.0, 2.0, 6.0, 10.0]);
    assert_eq!(values("flags"), [1.0, 0.0]);
}

#[test]
fn a_trainer_takes_the_weights_of_a_checkpoint() {
    let whole = torch::read(file("checkpoint.pt")).expect("reads");
    assert!(whole.get("state_dict.module.fc.weight").is_some());
    let weights = whole.fitted(&net()).expect("has all of them");
    assert_same(&weights, 0.0);
    let mut trainer = Trainer::new(net(), Config::default(), "cpu").expect("trains");
    weights.apply(&mut trainer).expect("fits");
    let of_trainer = Weights::of(&mut trainer).expect("reads");
    for (name, weight) in of_trainer.iter() {
        assert_eq!(Some(weight), weights.get(name), "{name}");
    }
    assert_eq!(of_trainer.len() + 1, weights.len(), "all but the number of steps");
}

fn failure(result: Result<Weights, ImportError>) -> String {
    message_of(&result.expect_err("this must fail").to_string())
}

#[test]
fn what_does_not_fit_is_said() {
    let other =
        Model::new("other", [1, 5, 5], |x| x.layer("conv1", Conv2d::new(3, 3)).flatten().layer("fc", Linear::new(3)));
    let state = || torch::read(file("state.pt")).expect("reads");
    let text = failure(state().fitted(&other));
    assert!(text.contains("`conv1.weight` is [2, 1, 3, 3], the model's is [3, 1, 3, 3]"), "{text}");
    let larger = Model::new("larger", [1, 5, 5], |x| x.layer("conv2", Conv2d::new(3, 3)));
    let text = failure(state().fitted(&larger));
    assert!(text.contains("there is no `conv2.weight`"), "{text}");
    let text = failure(torch::read(file("repeated.pt")));
    assert!(text.contains("`repeated` is larger than the file"), "{text}");
    let text = failure(torch::read(file("missing.pt")));
    assert!(text.contains("not found"), "{text}");
    let text = failure(torch::read(file("generate.py")));
    assert!(text.contains("not a file of PyTorch"), "{text}");
    assert!(failure(torch::read(file(""))).contains("golden/torch"), "a folder");
}

#[test]
fn nothing_in_a_pickle_is_run() {
    let text = failure(torch::read(file("command.pt")));
    assert!(text.contains("command.pt"), "{text}");
    assert!(!Path::new("pickle-was-run").exists() && !file("pickle-was-run").exists());
}

/// How many of so many mutations of a file are refused, each in a sentence; none takes much memory.
fn refused(file: &Path, count: u64, read: impl Fn(&Path) -> Result<Weights, ImportError>) -> u64 {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("mutated");
    let bytes = std::fs::read(file).expect("readable");
    let mut refused = 0;
    for mutated in mutations(&bytes, count) {
        std::fs::write(&path, &mutated).expect("writes");
        match read(&path) {
            Ok(weights) => assert!(weights.iter().map(|(_, weight)| weight.values().len()).sum::<usize>() < 100_000),
            Err(error) => {
                message_of(&error.to_string());
                refused += 1;
            }
        }
    }
    refused
}

#[test]
fn mutated_files_are_refused_or_read() {
    for name in ["state.pt", "legacy.pth"] {
        let refused = refused(&file(name), 500, |path| torch::read(path));
        assert!(refused > 100, "{name}: {refused}");
    }
}

#[test]
fn mutated_safetensors_are_refused_or_read() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("state.safetensors");
    safetensors::write(&path, &torch::read(file("state.pt")).expect("is read")).expect("is written");
    assert!(safetensors::read(&path).is_ok());
    let refused = refused(&path, 1000, |path| safetensors::read(path));
    assert!(refused > 100, "{refused}");
}

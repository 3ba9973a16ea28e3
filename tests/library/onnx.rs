//! Models in ONNX: against PyTorch, which wrote them, there and back, and files that something went wrong with.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use tightfit::data::{Targets, TensorDataset, Values};
use tightfit::error::ImportError;
use tightfit::interop::onnx::{self, Options};
use tightfit::interop::{ImportedModel, Pixels, Weight, Weights};
use tightfit::models;
use tightfit::nn::{Mode, Model, Normalization};
use tightfit::tensor::DType;
use tightfit::train::{Config, Loss, Optimizer, Trainer};

use crate::mutations::mutations;

#[derive(Deserialize)]
struct Tensor {
    shape: Vec<usize>,
    values: Vec<f32>,
}

#[derive(Deserialize)]
struct Golden {
    tokens: bool,
    input: Tensor,
    output: Tensor,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/onnx")
}

/// The files that PyTorch wrote, with what it makes of an input.
fn golden() -> Vec<(PathBuf, Golden)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder()).expect("the golden folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "onnx") {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let (model, _) = name.split_once('.').expect("NAME.EXPORTER.onnx");
            let text =
                std::fs::read_to_string(folder().join(format!("{model}.json"))).expect("values beside the model");
            found.push((path, serde_json::from_str(&text).expect("values")));
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(found.len() >= 8, "{} models", found.len());
    found
}

fn samples(golden: &Golden) -> Values {
    let values = &golden.input.values;
    if golden.tokens { Values::U32(values.iter().map(|&x| x as u32).collect()) } else { Values::F32(values.clone()) }
}

fn predict(imported: &ImportedModel, data: &TensorDataset, batch: usize) -> Vec<f32> {
    let config = Config::default().loss(Loss::Mse).batch(batch);
    let mut trainer = Trainer::for_evaluation(imported.model.clone(), config, "cpu").expect("a trainer");
    imported.weights.apply(&mut trainer).expect("weights fit");
    trainer.predict(data).expect("predicts").values
}

fn assert_close(found: &[f32], expected: &[f32], tolerance: f32, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() <= tolerance * expected.abs().max(1.0), "{what}: {i}: {found} {expected}");
    }
}

#[test]
fn models_compute_what_pytorch_does_and_are_trained() {
    for (path, golden) in golden() {
        let what = path.display().to_string();
        let imported = onnx::read(&path).unwrap_or_else(|error| panic!("{what}: {error}"));
        let sample = &golden.input.shape[1..];
        assert_eq!(imported.model.input_shape()[..], *sample, "{what}");
        let data = TensorDataset::unlabeled(samples(&golden), sample).expect("samples");
        // As one batch, and sample by sample.
        for batch in [3, 1] {
            assert_close(&predict(&imported, &data, batch), &golden.output.values, 1e-4, &what);
        }
        let targets = vec![0.25; golden.output.values.len()];
        let targets = Targets::Values { values: targets, shape: golden.output.shape[1..].into() };
        let data = TensorDataset::new(samples(&golden), sample, targets).expect("data");
        let config = Config::default().loss(Loss::Mse).optimizer(Optimizer::sgd(0.05)).batch(3);
        let mut trainer = Trainer::new(imported.model, config, "cpu").unwrap_or_else(|error| panic!("{what}: {error}"));
        imported.weights.apply(&mut trainer).expect("weights fit");
        let losses: Vec<f32> = (0..8).map(|_| trainer.step(&data, &[0, 1, 2]).expect("a step").loss).collect();
        assert!(losses[7] < losses[0], "{what}: {losses:?}");
    }
}

#[test]
fn parameters_have_the_names_of_the_file() {
    let imported = onnx::read(&folder().join("cnn.torchscript.onnx")).expect("reads");
    let names: Vec<&str> = imported.weights.iter().map(|(name, _)| name).collect();
    for name in ["conv1.weight", "bn1.weight", "bn1.running_mean", "conv2.bias", "fc.weight"] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    let built = imported.model.build(1, Mode::Evaluate).expect("builds");
    let buffers: Vec<&str> = built.buffers.iter().map(|buffer| &buffer.name[..]).collect();
    assert_eq!(buffers, ["bn1.running_mean", "bn1.running_var"]);
    imported.weights.check(&imported.model).expect("all of them");
}

/// Values from −0.1 to 0.1 that look like chance.
fn noise(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    (0..count).map(|_| 0.2 * next() - 0.1).collect()
}

/// Weights that are alike from run to run; variances are above 0.
fn weights_of(model: &Model) -> Weights {
    let built = model.build(1, Mode::Evaluate).expect("builds");
    let tensors = built.parameters.iter().chain(&built.buffers).zip(1..);
    let weights = tensors.map(|(tensor, seed)| {
        let shape = built.graph.value(tensor.value).desc.shape.clone();
        let mut values = noise(shape.numel(), seed);
        if tensor.name.ends_with("running_var") {
            values.iter_mut().for_each(|value| *value += 1.0);
        }
        (tensor.name.clone(), Weight::new(shape, values).expect("fits"))
    });
    weights.collect()
}

fn inputs_of(model: &Model, count: usize) -> Values {
    let numel = count * model.input_shape().numel();
    let noise = noise(numel, 99);
    if model.normalization().is_some() {
        return Values::U8(noise.iter().map(|x| (x * 1270.0 + 127.0) as u8).collect());
    }
    match model.input().dtype {
        DType::U32 => Values::U32(noise.iter().map(|x| ((x + 0.1) * 300.0) as u32).collect()),
        _ => Values::F32(noise.iter().map(|x| x * 10.0).collect()),
    }
}

#[test]
fn what_is_written_is_read_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.onnx");
    for name in ["mnist-mlp", "mnist-cnn", "mnist-lstm", "mnist-unet", "lstm_forecaster", "char_lstm", "gpt"] {
        let model = models::builtin(name).expect("is built in");
        let weights = weights_of(&model);
        onnx::write(&path, &model, &weights, Options::default()).unwrap_or_else(|error| panic!("{name}: {error}"));
        let read = onnx::read(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        let data = TensorDataset::unlabeled(inputs_of(&model, 2), model.input_shape().clone()).expect("samples");
        let written = ImportedModel { model, weights, ..read.clone() };
        assert_close(&predict(&read, &data, 2), &predict(&written, &data, 2), 1e-4, name);
    }
}

#[test]
fn bytes_are_numbers_when_they_are_read_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bytes.onnx");
    let model = models::builtin("mnist-cnn").expect("is built in").normalized(Normalization::unit());
    let weights = weights_of(&model);
    onnx::write(&path, &model, &weights, Options::default()).expect("writes");
    let imported = onnx::read(&path).expect("reads");
    assert_eq!(imported.pixels, Pixels::Bytes);
    let bytes: Vec<u8> = (0..2 * 28 * 28).map(|i| (i * 7 % 256) as u8).collect();
    let numbers = bytes.iter().map(|&byte| f32::from(byte)).collect();
    let [bytes, numbers] = [Values::U8(bytes), Values::F32(numbers)]
        .map(|values| TensorDataset::unlabeled(values, [1, 28, 28]).expect("samples"));
    let found = predict(&imported, &numbers, 2);
    let expected = predict(&ImportedModel { model, weights, ..imported }, &bytes, 2);
    assert_close(&found, &expected, 1e-5, "bytes");
}

#[test]
fn batch_norm_becomes_a_part_of_convolutions() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.onnx");
    let model = models::builtin("resnet18_cifar").expect("is built in");
    let weights = weights_of(&model);
    let data = TensorDataset::unlabeled(inputs_of(&model, 1), model.input_shape().clone()).expect("samples");
    let mut outputs = Vec::new();
    for fold_batch_norm in [false, true] {
        onnx::write(&path, &model, &weights, Options { fold_batch_norm, ..Options::default() }).expect("writes");
        let read = onnx::read(&path).expect("reads");
        assert_eq!(read.weights.get("bn1.running_mean").is_none(), fold_batch_norm);
        outputs.push(predict(&read, &data, 1));
    }
    assert_close(&outputs[1], &outputs[0], 1e-4, "folded");
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.onnx");
    let model = models::builtin("mnist-mlp").expect("is built in");
    let weights = weights_of(&model);
    let refused = |result: Result<(), ImportError>| result.expect_err("refused").to_string();
    assert!(refused(onnx::write(&path, &model, &Weights::new(), Options::default())).contains("linear1.weight"));
    let options = Options { opset: 12, ..Options::default() };
    assert!(refused(onnx::write(&path, &model, &weights, options)).contains("opset 12"));
    assert!(onnx::read(&path).expect_err("is not there").to_string().contains("not found"));
    std::fs::write(&path, "some text").expect("writes");
    assert!(onnx::read(&path).expect_err("no model").to_string().contains("no model in ONNX"));
    assert!(onnx::operators().contains("| Conv |"));
}

/// A sentence or a model that can be built, never a panic.
#[test]
fn mutated_files_are_refused_in_a_sentence_or_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.onnx");
    let (mut refused, mut read) = (0, 0);
    let files = golden();
    let each = 1000 / files.len() as u64 + 1;
    for (file, _) in files {
        let bytes = std::fs::read(file).expect("reads");
        for mutated in mutations(&bytes, each) {
            std::fs::write(&path, &mutated).expect("writes");
            match onnx::read(&path) {
                Ok(imported) => {
                    imported.weights.check(&imported.model).expect("its own weights");
                    read += 1;
                }
                Err(error) => {
                    let text = error.to_string();
                    assert!(!text.chars().any(char::is_control) && text.len() < 1500, "{text:?}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 100 && read > 20, "{refused} refused, {read} read");
}

/// Where `TIGHTFIT_ONNX_ZOO` names a folder: writes all built-in models there, with an input and what they make of it, for
/// `tests/golden/onnx/zoo.py` to compare. `TIGHTFIT_ONNX_MODELS` names some of them only.
#[test]
fn the_zoo_is_written() {
    let Some(folder) = std::env::var_os("TIGHTFIT_ONNX_ZOO").map(PathBuf::from) else {
        // One with each kind of layer that others do not have; the others are written alike.
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["resnet18_cifar", "unet_small", "mnist-deep"] {
            let model = models::builtin(name).expect("is built in");
            let weights = weights_of(&model);
            onnx::write(&folder.path().join("model.onnx"), &model, &weights, Options::default()).expect("writes");
        }
        return;
    };
    let some = std::env::var("TIGHTFIT_ONNX_MODELS").unwrap_or_default();
    let chosen = |name: &&str| some.is_empty() || some.split(',').any(|other| other == *name);
    for name in models::NAMES.iter().copied().filter(chosen) {
        let model = models::builtin(name).expect("is built in");
        let weights = weights_of(&model);
        let data = TensorDataset::unlabeled(inputs_of(&model, 2), model.input_shape().clone()).expect("samples");
        let of = |kind: &str| folder.join(format!("{name}.{kind}"));
        onnx::write(&of("onnx"), &model, &weights, Options::default())
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let fold = Options { fold_batch_norm: true, opset: 20 };
        onnx::write(&of("folded.onnx"), &model, &weights, fold).unwrap_or_else(|error| panic!("{name}: {error}"));
        let imported = onnx::read(&of("onnx")).unwrap_or_else(|error| panic!("{name}: {error}"));
        let again = predict(&imported, &data, 2);
        let output = predict(&ImportedModel { model: model.clone(), weights, ..imported }, &data, 2);
        assert_close(&again, &output, 1e-4, name);
        let bytes: Vec<u8> = output.iter().flat_map(|x| x.to_le_bytes()).collect();
        std::fs::write(of("output"), bytes).expect("writes");
        let bytes: Vec<u8> = match inputs_of(&model, 2) {
            Values::F32(values) => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
            Values::U32(values) => values.iter().flat_map(|x| i64::from(*x).to_le_bytes()).collect(),
            Values::U8(values) => values,
        };
        std::fs::write(of("input"), bytes).expect("writes");
    }
}

/// Where `TIGHTFIT_ONNX_TRAIN` names a folder that `tests/golden/onnx/torchvision_models.py` made: outputs, and the losses of ten steps.
#[test]
fn models_of_torchvision_train_alike() {
    #[derive(Deserialize)]
    struct Training {
        shape: Vec<usize>,
        lr: f64,
        losses: Vec<f32>,
    }

    let Some(folder) = std::env::var_os("TIGHTFIT_ONNX_TRAIN").map(PathBuf::from) else {
        eprintln!("skipped: TIGHTFIT_ONNX_TRAIN names no folder of models");
        return;
    };
    let floats = |path: PathBuf| -> Vec<f32> {
        let bytes = std::fs::read(path).expect("reads");
        bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
    };
    for name in ["lstm", "resnet18", "mobilenet_v3_small", "efficientnet_b0"] {
        let of = |kind: &str| folder.join(format!("{name}.{kind}"));
        let training: Training = serde_json::from_slice(&std::fs::read(of("json")).expect("reads")).expect("values");
        let imported = onnx::read(&of("onnx")).unwrap_or_else(|error| panic!("{name}: {error}"));
        let (batch, sample) = (training.shape[0], &training.shape[1..]);
        let input = floats(of("input"));
        let data = TensorDataset::unlabeled(Values::F32(input.clone()), sample).expect("samples");
        let (found, expected) = (predict(&imported, &data, batch), floats(of("output")));
        assert_close(&found, &expected, 1e-4, name);
        let targets = Targets::Values { values: vec![0.0; expected.len()], shape: [expected.len() / batch].into() };
        let data = TensorDataset::new(Values::F32(input), sample, targets).expect("data");
        let config = Config::default().loss(Loss::Mse).optimizer(Optimizer::sgd(training.lr)).batch(batch);
        let mut trainer = Trainer::new(imported.model, config, "cpu").expect("a trainer");
        imported.weights.apply(&mut trainer).expect("weights fit");
        let all: Vec<usize> = (0..batch).collect();
        let losses: Vec<f32> = (0..10).map(|_| trainer.step(&data, &all).expect("a step").loss).collect();
        println!("{name}: {losses:?}, PyTorch {:?}", training.losses);
        for (found, expected) in losses.iter().zip(&training.losses) {
            assert!((found - expected).abs() <= 1e-2 * expected.abs(), "{name}: {losses:?} {:?}", training.losses);
        }
    }
}

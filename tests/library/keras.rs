//! Models of Keras against what Keras makes of them: `tests/golden/keras/generate.py` writes the files.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use serde::Deserialize;
use tightfit::data::{Targets, TensorDataset, Values};
use tightfit::error::ImportError;
use tightfit::interop::keras::{self, Architecture};
use tightfit::interop::{ChannelOrder, ImportedModel, Pixels, Weight, Weights};
use tightfit::nn::{Linear, Mode, Model, Statistics};
use tightfit::train::{Config, DeviceSelector, Loss, Optimizer, Trainer};

use crate::common::compare::{Tolerance, close};
use crate::mutations::mutations;

const MODELS: [&str; 25] = [
    "mlp",
    "cnn",
    "pixels",
    "transfer",
    "separable",
    "transposed",
    "sequence_conv",
    "lstm",
    "gru",
    "simple_rnn",
    "bidirectional",
    "attention",
    "merges",
    "shapes",
    "activations",
    "norms",
    "shared",
    "nested",
    "several",
    "preprocessing",
    "channels_first",
    "volume",
    "frames",
    "dropouts",
    "numbers",
];

/// What Keras computes in f32 by itself, in another order.
const TOLERANCE: Tolerance = Tolerance { scale: 2e-5, relative: 1e-4, absolute: 2e-6 };

#[derive(Deserialize)]
struct Array {
    shape: Vec<usize>,
    values: Vec<f64>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
    #[serde(default)]
    tokens: bool,
    #[serde(flatten)]
    array: Array,
}

#[derive(Deserialize)]
struct Golden {
    inputs: Vec<Named>,
    outputs: Vec<Named>,
    target: Array,
    loss: f64,
    gradients: BTreeMap<String, Vec<Option<Array>>>,
    weights: BTreeMap<String, Vec<Array>>,
}

impl Array {
    /// With the channels behind the batch, where that is how the model takes them.
    fn in_order(&self, order: ChannelOrder) -> Weight {
        let values = self.values.iter().map(|&value| value as f32).collect();
        let weight = Weight::new(&self.shape[..], values).unwrap();
        let rank = self.shape.len();
        if order == ChannelOrder::First || rank < 4 {
            return weight;
        }
        weight.permute(&[&[0, rank - 1][..], &(1..rank - 1).collect::<Vec<_>>()].concat())
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/keras")
}

fn golden(name: &str) -> Golden {
    let text = std::fs::read_to_string(folder().join(format!("{name}.json"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Inputs and the target as the model takes them.
fn data(golden: &Golden, imported: &ImportedModel) -> TensorDataset {
    let inputs: Vec<_> = golden
        .inputs
        .iter()
        .map(|input| {
            let laid = input.array.in_order(imported.input_order);
            let values = match input.tokens {
                true => Values::U32(laid.values().iter().map(|&value| value as u32).collect()),
                false => Values::F32(laid.values().to_vec()),
            };
            (input.name.clone(), values, laid.shape()[1..].to_vec())
        })
        .collect();
    let target = golden.target.in_order(imported.output_order);
    let targets = Targets::Values { values: target.values().to_vec(), shape: target.shape()[1..].into() };
    let (_, values, shape) = inputs[0].clone();
    let first = TensorDataset::new(values, shape, targets).unwrap();
    let others = inputs.into_iter().skip(1);
    others.fold(first, |data, (name, values, shape)| data.with_input(name, values, shape).unwrap())
}

fn f64s(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| f64::from(value)).collect()
}

/// What the model makes, by the names of outputs.
fn predictions(imported: &ImportedModel, data: &TensorDataset) -> BTreeMap<String, Weight> {
    let config = Config::default().batch(3).loss(Loss::Mse);
    let mut trainer = Trainer::for_evaluation(imported.model.clone(), config, DeviceSelector::Cpu).unwrap();
    imported.weights.apply(&mut trainer).unwrap();
    let made = trainer.predict_all(data).unwrap().into_iter();
    made.map(|(name, made)| (name, Weight::new(made.shape, made.values).unwrap())).collect()
}

fn check_predictions(name: &str, what: &str, imported: &ImportedModel, golden: &Golden) {
    let made = predictions(imported, &data(golden, imported));
    for (i, output) in golden.outputs.iter().enumerate() {
        let found = &made[if i == 0 { "output" } else { &*output.name }];
        let expected = output.array.in_order(imported.output_order);
        // Only images are turned, whatever the first output is.
        let expected =
            if found.shape() == expected.shape() { expected } else { output.array.in_order(ChannelOrder::Last) };
        assert_eq!(found.shape(), expected.shape(), "{name}.{what}: {}", output.name);
        close(&f64s(found.values()), &f64s(expected.values()), TOLERANCE)
            .unwrap_or_else(|error| panic!("{name}.{what}: {}: {error}", output.name));
    }
}

fn check_gradients(name: &str, architecture: &Architecture, imported: &ImportedModel, golden: &Golden) {
    let is_random = ["attention", "dropouts", "channels_first"].contains(&name);
    let statistics = if is_random { Statistics::Frozen } else { Statistics::Exact };
    let config = Config::default().batch(3).loss(Loss::Mse).statistics(statistics);
    let model = imported.model.clone().without_dropout();
    let mut trainer = Trainer::for_gradients(model, config, DeviceSelector::Cpu).unwrap();
    imported.weights.apply(&mut trainer).unwrap();
    let found = trainer.gradients(&data(golden, imported), &[0, 1, 2]).unwrap();
    let loss = f64::from(found.loss);
    assert!((loss - golden.loss).abs() < 1e-4 * golden.loss.abs(), "{name}: loss {loss}, Keras has {}", golden.loss);
    // In Keras's order, with the statistics as they are in between.
    let gradients: Weights = imported
        .weights
        .iter()
        .map(|(name, weight)| match found.parameters.get(name) {
            Some((desc, values)) => (name.to_owned(), Weight::new(desc.shape.clone(), values.clone()).unwrap()),
            // The loss does not depend on it.
            None => (name.to_owned(), Weight::new(weight.shape().clone(), vec![0.0; weight.values().len()]).unwrap()),
        })
        .collect();
    let mut compared = 0;
    for (path, arrays) in architecture.arrays_of(&gradients).unwrap() {
        let path = path.join("/");
        let expected = &golden.gradients[&path];
        assert_eq!(arrays.len(), expected.len(), "{name}: {path}");
        for (i, (found, expected)) in arrays.iter().zip(expected).enumerate() {
            let Some(expected) = expected else { continue };
            assert_eq!(found.shape()[..], expected.shape[..], "{name}: {path} {i}");
            close(&f64s(found.values()), &expected.values, TOLERANCE)
                .unwrap_or_else(|error| panic!("{name}: gradient of {path}, array {i}: {error}"));
            compared += 1;
        }
    }
    assert_eq!(compared, golden.gradients.values().flatten().flatten().count(), "{name}");
}

#[test]
fn models_compute_what_keras_computes() {
    for name in MODELS {
        let golden = golden(name);
        let path = folder().join(format!("{name}.keras"));
        let architecture = keras::read_architecture(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        let imported = keras::read(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        check_predictions(name, "keras", &imported, &golden);
        check_gradients(name, &architecture, &imported, &golden);
        for (path, arrays) in &golden.weights {
            let found = architecture.arrays_of(&imported.weights).unwrap();
            let (_, found) = found.iter().find(|(own, _)| own.join("/") == *path).unwrap();
            for (found, expected) in found.iter().zip(arrays) {
                assert_eq!(found.shape()[..], expected.shape[..], "{name}: {path}");
                close(&f64s(found.values()), &expected.values, TOLERANCE).unwrap();
            }
        }
    }
}

#[test]
fn older_files_and_weights_alone_are_read() {
    for name in ["mlp", "cnn", "nested", "bidirectional", "attention"] {
        let path = folder().join(format!("{name}.h5"));
        let imported = keras::read(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        check_predictions(name, "h5", &imported, &golden(name));
    }
    // Of a second model of the same layers, whose names are others.
    for name in ["cnn", "nested", "lstm", "attention"] {
        let architecture = keras::read_architecture(&folder().join(format!("{name}.keras"))).unwrap();
        let mut imported = keras::read(&folder().join(format!("{name}.keras"))).unwrap();
        let alone = keras::read_weights(&folder().join(format!("{name}.weights.h5")), &architecture).unwrap();
        assert_eq!(alone, imported.weights, "{name}");
        imported.weights = alone;
        check_predictions(name, "weights.h5", &imported, &golden(name));
    }
}

#[test]
fn what_is_compiled_and_in_which_order_is_read() {
    let mlp = keras::read(&folder().join("mlp.keras")).unwrap();
    assert_eq!(mlp.optimizer, Some(Optimizer::Adam { lr: 0.01, betas: (0.9, 0.999), eps: 1e-7, weight_decay: 0.0 }));
    let Some(Loss::CrossEntropy { from_logits: false, classes_last: false, .. }) = mlp.loss else {
        panic!("{:?}", mlp.loss)
    };
    let older = keras::read(&folder().join("mlp.h5")).unwrap();
    assert_eq!((older.loss, older.optimizer, &older.weights), (mlp.loss, mlp.optimizer, &mlp.weights));
    let several = keras::read(&folder().join("several.keras")).unwrap();
    assert_eq!(several.loss, Some(Loss::Bce { pos_weight: vec![] }));
    let sgd = Optimizer::Sgd { lr: 0.1, momentum: 0.9, nesterov: true, weight_decay: 0.0 };
    assert_eq!(several.optimizer, Some(sgd));

    let order = |name: &str| {
        let imported = keras::read(&folder().join(format!("{name}.keras"))).unwrap();
        (imported.input_order, imported.output_order, imported.model.input_shape().to_vec())
    };
    let (first, last) = (ChannelOrder::First, ChannelOrder::Last);
    assert_eq!(order("cnn"), (last, first, vec![3, 9, 8]));
    assert_eq!(order("transposed"), (last, last, vec![2, 3, 4]));
    assert_eq!(order("channels_first"), (first, first, vec![2, 5, 6]));
    assert_eq!(order("lstm"), (first, first, vec![5, 3]));

    let pixels = |name: &str| keras::read(&folder().join(format!("{name}.keras"))).unwrap().pixels;
    assert_eq!(
        (pixels("pixels"), pixels("cnn"), pixels("preprocessing")),
        (Pixels::Bytes, Pixels::Unknown, Pixels::Unknown)
    );

    let transfer = keras::read(&folder().join("transfer.keras")).unwrap();
    assert_eq!(transfer.frozen, ["base.conv2d.", "base.batch_normalization."]);
    let config = transfer.frozen.iter().fold(Config::default(), Config::freeze);
    let trainer = Trainer::new(transfer.model.clone(), config, "cpu").unwrap();
    let names: Vec<_> = trainer.frozen().iter().map(String::as_str).collect();
    assert_eq!(names, ["base.batch_normalization.bias", "base.batch_normalization.weight", "base.conv2d.weight"]);

    let nested = keras::read_architecture(&folder().join("nested.keras")).unwrap();
    let layers: Vec<_> = nested.layers().into_iter().map(|layer| (layer.path.join("."), layer.trainable)).collect();
    assert!(layers.iter().any(|(path, _)| path.starts_with("middle.deepest.conv2d")), "{layers:?}");
    assert!(layers.contains(&("frozen".to_owned(), false)), "{layers:?}");
}

#[test]
fn what_is_written_is_read_again() {
    let temporary = tempfile::tempdir().unwrap();
    let kept = std::env::var_os("TIGHTFIT_KERAS").map(PathBuf::from);
    let out = kept.as_deref().unwrap_or(temporary.path());
    for name in MODELS {
        let source = folder().join(format!("{name}.keras"));
        let architecture = keras::read_architecture(&source).unwrap();
        let mut imported = keras::read(&source).unwrap();
        let changed = imported.weights.iter().map(|(name, weight)| {
            let values = weight.values().iter().map(|value| value * 0.75).collect();
            (name.to_owned(), Weight::new(weight.shape().clone(), values).unwrap())
        });
        // What settings say is no weight, and stays.
        let constants: Weights = changed.collect();
        let is_given = name == "preprocessing";
        let changed: Weights = if is_given { imported.weights.clone() } else { constants };
        let (whole, alone) = (out.join(format!("{name}.keras")), out.join(format!("{name}.weights.h5")));
        keras::write(&whole, &architecture, &changed).unwrap_or_else(|error| panic!("{name}: {error}"));
        keras::write_weights(&alone, &architecture, &changed).unwrap();
        assert_eq!(keras::read(&whole).unwrap().weights, changed, "{name}");
        assert_eq!(keras::read_weights(&alone, &architecture).unwrap(), changed, "{name}");
        if kept.is_some() {
            imported.weights = changed;
            let golden = golden(name);
            let made = &predictions(&imported, &data(&golden, &imported))["output"];
            let rank = made.shape().len();
            let made = match imported.output_order {
                ChannelOrder::Last if rank > 3 => {
                    made.permute(&[&[0][..], &(2..rank).collect::<Vec<_>>(), &[1]].concat())
                }
                _ => made.clone(),
            };
            let text = serde_json::to_string(made.values()).unwrap();
            std::fs::write(out.join(format!("{name}.prediction.json")), text).unwrap();
        }
    }
}

#[test]
fn weights_of_another_model_are_refused() {
    let architecture = keras::read_architecture(&folder().join("cnn.keras")).unwrap();
    for other in ["nested.weights.h5", "nested.h5", "mlp.keras"] {
        let error = keras::read_weights(&folder().join(other), &architecture).unwrap_err().to_string();
        assert!(error.contains("weights of another model") || error.contains("do not fit"), "{other}: {error}");
    }
    let alone = keras::read(&folder().join("cnn.weights.h5")).unwrap_err().to_string();
    assert!(alone.contains("has weights alone, no model"), "{alone}");
    // A tensor too few.
    let own = keras::read(&folder().join("mlp.keras")).unwrap().weights;
    let mlp = keras::read_architecture(&folder().join("mlp.keras")).unwrap();
    let fewer: Weights = own.iter().skip(1).map(|(name, weight)| (name.to_owned(), weight.clone())).collect();
    let path = tempfile::tempdir().unwrap();
    let error = keras::write_weights(&path.path().join("w.weights.h5"), &mlp, &fewer).unwrap_err().to_string();
    assert!(error.contains("there is no `"), "{error}");
}

/// A model of one layer.
fn one_layer(layer: &str, shape: &str) -> Result<Architecture, ImportError> {
    Architecture::from_json(&format!(
        r#"{{"class_name": "Sequential", "config": {{"name": "m", "layers": [
            {{"class_name": "InputLayer", "config": {{"name": "x", "batch_shape": [null, {shape}]}}}}, {layer}]}}}}"#
    ))
}

#[test]
fn what_is_not_there_is_refused_with_a_sentence() {
    for (layer, shape, says) in [
        (r#"{"class_name": "Lambda", "config": {"name": "l"}}"#, "4", "layer `l` (Lambda): has code of Python's"),
        (r#"{"class_name": "Mine", "config": {"name": "l"}}"#, "4", "layer `l` (Mine): is not among the layers"),
        (r#"{"class_name": "Masking", "config": {"name": "l"}}"#, "4, 2", "masks"),
        (r#"{"class_name": "Dense", "config": {"name": "l", "units": "four"}}"#, "4", "`units` must be a whole number"),
        (
            r#"{"class_name": "Dense", "config": {"name": "l", "units": 4, "activation": "mine"}}"#,
            "4",
            "the activation \"mine\"",
        ),
        (r#"{"class_name": "Dense", "config": {"name": "l", "units": 4}}"#, "null", "every extent but the batch's"),
        (
            r#"{"class_name": "Embedding", "config": {"name": "l", "input_dim": 4, "output_dim": 2, "mask_zero": true}}"#,
            "4",
            "mask_zero",
        ),
        (r#"{"class_name": "GRU", "config": {"name": "l", "units": 4, "reset_after": false}}"#, "4, 2", "reset_after"),
        (
            r#"{"class_name": "LSTM", "config": {"name": "l", "units": 4, "activation": "relu"}}"#,
            "4, 2",
            "`activation` must be tanh",
        ),
        (
            r#"{"class_name": "LSTM", "config": {"name": "l", "units": 4, "return_state": true}}"#,
            "4, 2",
            "return_state",
        ),
        (
            r#"{"class_name": "Conv2D", "config": {"name": "l", "filters": 4, "kernel_size": [9, 9]}}"#,
            "4, 4, 1",
            "does not fit an image",
        ),
        (
            r#"{"class_name": "Conv2D", "config": {"name": "l", "filters": 4, "kernel_size": 3, "strides": 0}}"#,
            "4, 4, 1",
            "no size",
        ),
        (r#"{"class_name": "Reshape", "config": {"name": "l", "target_shape": [3]}}"#, "4", "cannot take the shape"),
        (
            r#"{"class_name": "Add", "config": {"name": "l"}}, {"class_name": "Add", "config": {"name": "l"}}"#,
            "4",
            "another layer has",
        ),
    ] {
        let error = one_layer(layer, shape).map(|_| ()).expect_err(layer).to_string();
        assert!(error.contains(says), "{layer}: {error}");
    }
}

/// A value in the place of another, anywhere in a JSON.
fn change(json: &mut serde_json::Value, random: &mut ChaCha8Rng) {
    use serde_json::{Value, json};
    let mut below = |end: usize| (random.next_u64() % end.max(1) as u64) as usize;
    let mut place = json;
    loop {
        let length = match &*place {
            Value::Array(list) => list.len(),
            Value::Object(object) => object.len(),
            _ => 0,
        };
        if length == 0 || below(8) == 0 {
            break;
        }
        let at = below(length);
        place = match place {
            Value::Array(list) => &mut list[at],
            Value::Object(object) => object.values_mut().nth(at).unwrap(),
            _ => unreachable!(),
        };
    }
    let others = [
        json!(null),
        json!(0),
        json!(-1),
        json!(1),
        json!(3),
        json!(4_294_967_296_u64),
        json!(1e30),
        json!(0.5),
        json!(""),
        json!("same"),
        json!("channels_first"),
        json!([]),
        json!([1, 2]),
        json!([[1, 2], [3, 4]]),
        json!({}),
        json!(true),
        json!(16_777_216),
    ];
    *place = others[below(others.len())].clone();
}

fn is_a_sentence(error: &ImportError) {
    let text = error.to_string();
    assert!(!text.chars().any(char::is_control) && text.len() < 1500, "{text:?}");
}

/// One of the files in a zip file.
fn member(path: &Path, name: &str) -> Vec<u8> {
    let mut archive = zip::ZipArchive::new(std::fs::File::open(path).unwrap()).unwrap();
    let mut bytes = Vec::new();
    archive.by_name(name).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn changed_settings_make_a_model_or_a_sentence() {
    let (mut made, mut refused) = (0, 0);
    for name in MODELS {
        let text = member(&folder().join(format!("{name}.keras")), "config.json");
        let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
        for seed in 0..50 {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let mut changed = json.clone();
            for _ in 0..=seed % 3 {
                change(&mut changed, &mut random);
            }
            match Architecture::from_json(&changed.to_string()) {
                Ok(_) => made += 1,
                Err(error) => {
                    is_a_sentence(&error);
                    refused += 1;
                }
            }
        }
    }
    assert!(made > 100 && refused > 100, "{made} made, {refused} refused");
}

#[test]
fn damaged_files_make_a_model_or_a_sentence() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("model");
    let architecture = keras::read_architecture(&folder().join("lstm.keras")).unwrap();
    let mut refused = 0;
    let bytes = std::fs::read(folder().join("lstm.keras")).unwrap();
    for mutated in mutations(&bytes, 400) {
        std::fs::write(&path, &mutated).unwrap();
        refused += usize::from(keras::read(&path).inspect_err(is_a_sentence).is_err());
    }
    let bytes = std::fs::read(folder().join("mlp.h5")).unwrap();
    for mutated in mutations(&bytes, 400) {
        std::fs::write(&path, &mutated).unwrap();
        refused += usize::from(keras::read(&path).inspect_err(is_a_sentence).is_err());
    }
    let bytes = std::fs::read(folder().join("lstm.weights.h5")).unwrap();
    for mutated in mutations(&bytes, 400) {
        std::fs::write(&path, &mutated).unwrap();
        refused += usize::from(keras::read_weights(&path, &architecture).inspect_err(is_a_sentence).is_err());
    }
    assert!(refused > 300, "{refused}");
}

#[test]
fn a_layer_at_two_places_has_its_parameters_once() {
    let model = Model::new("twice", [2, 3], |x| {
        let (a, b) = (x.index(1, 0), x.index(1, 1));
        a.layer("l", Linear::new(3)) + b.layer_again("l", Linear::new(3))
    });
    assert_eq!(model.build(2, Mode::Train(Statistics::Exact)).unwrap().parameters.len(), 2);
    let unlike = Model::new("unlike", [2, 3], |x| {
        let (a, b) = (x.index(1, 0), x.index(1, 1));
        a.layer("l", Linear::new(3)) + b.layer_again("l", Linear::new(4))
    });
    let error = unlike.build(2, Mode::Evaluate).unwrap_err().to_string();
    assert!(error.contains("the two places must be alike"), "{error}");
    let missing = Model::new("missing", [3], |x| x.layer_again("l", Linear::new(3)));
    let error = missing.build(2, Mode::Evaluate).unwrap_err().to_string();
    assert!(error.contains("apply the layer first"), "{error}");
}

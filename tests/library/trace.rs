//! A step that is measured for a trace changes nothing of the training.

use tightfit::data::{Targets, TensorDataset, Values};
use tightfit::error::TrainError;
use tightfit::nn::{Model, Sequential};
use tightfit::train::{Config, FitOptions, Optimizer, Trainer};

/// 24 samples of 6 numbers in 3 classes.
fn data() -> TensorDataset {
    let values = (0..24 * 6).map(|i| (i as f32 * 0.37).sin()).collect();
    let labels = (0..24).map(|i| i % 3).collect();
    TensorDataset::new(Values::F32(values), [6], Targets::labels(labels, 3)).expect("a dataset")
}

/// With running statistics where the batch is whole.
fn model(has_statistics: bool) -> Model {
    let model = Sequential::new("small", [6]).linear(5);
    let model = if has_statistics { model.batch_norm() } else { model };
    model.relu().dropout(0.25).linear(3).into()
}

#[test]
fn a_trace_changes_nothing() {
    let data = data();
    for device in crate::common::gpu().into_iter().chain(["cpu".to_owned()]) {
        for micro_batches in [None, Some(3)] {
            let config = Config { micro_batches, ..Config::default().batch(12).optimizer(Optimizer::adam(0.01)) };
            let trainer = || {
                let mut trainer =
                    Trainer::new(model(micro_batches.is_none()), config.clone(), &device).expect("a trainer");
                trainer.fit(&data, FitOptions::epochs(2)).expect("fits");
                trainer
            };
            let (mut plain, mut traced) = (trainer(), trainer());
            let times = traced.trace(&data).expect("a trace");
            assert_eq!(times.clock, traced.clock().to_string());
            assert_eq!(times.runs.len(), traced.plan().micro_batches.len());
            let state = |trainer: &mut Trainer| {
                let state = trainer.optimizer_state("linear1.weight", "exp_avg_sq").expect("reads").expect("a state");
                (trainer.state_dict().expect("reads"), state)
            };
            assert_eq!(state(&mut traced), state(&mut plain), "{device}");
            for trainer in [&mut plain, &mut traced] {
                trainer.fit(&data, FitOptions::epochs(1)).expect("fits");
            }
            assert_eq!(state(&mut traced), state(&mut plain), "{device}: as if there had been no trace");

            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("trace.json");
            traced.save_trace(&times, &path).expect("written");
            let text = std::fs::read_to_string(&path).expect("readable");
            let trace: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            let events = trace["traceEvents"].as_array().expect("events");
            let measured = |event: &&serde_json::Value| event["args"]["time"] == "measured" && event["args"]["ns"] != 0;
            assert!(events.iter().filter(measured).count() >= 10 * times.runs.len(), "{device}");
        }
    }
}

#[test]
fn a_trace_needs_the_samples_of_a_batch() {
    let mut trainer = Trainer::new(model(true), Config::default().batch(25), Some("cpu")).expect("a trainer");
    let error = trainer.trace(&data()).expect_err("refused");
    assert!(
        matches!(error, TrainError::Setting(_)) && error.to_string().contains("25, but the data has 24"),
        "{error}"
    );
}

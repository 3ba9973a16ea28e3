//! Early stopping against Keras, reduction of the learning rate and moving averages against PyTorch, and states in JSON.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tightfit::ops::optim::ema::Ema;
use tightfit::ops::{Call, Input, Op, Output};
use tightfit::tensor::TensorDesc;
use tightfit::train::{
    Best, EarlyStopping, EarlyStoppingState, Monitor, MonitorMode, PlateauState, ReduceOnPlateau, ThresholdMode,
    Verdict,
};

#[derive(Deserialize)]
struct Golden {
    early_stopping: Vec<Stopping>,
    plateau: Vec<Plateau>,
    ema: Vec<Averages>,
}

#[derive(Deserialize)]
struct Averages {
    case: String,
    decay: f32,
    parameters: Vec<Vec<f32>>,
    averages: Vec<Vec<f32>>,
}

#[derive(Deserialize)]
struct Stopping {
    case: String,
    settings: EarlyStopping,
    values: Vec<Option<f64>>,
    /// Best value, its epoch from 0, epochs without a better one, and whether the training stops.
    states: Vec<(Option<f64>, u64, u64, bool)>,
}

#[derive(Deserialize)]
struct Plateau {
    case: String,
    settings: ReduceOnPlateau,
    lr: f64,
    values: Vec<Option<f64>>,
    /// Best value, epochs without a better one, epochs that do not count, and the learning rate.
    states: Vec<(Option<f64>, u64, u64, f64)>,
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("../golden/monitors.json")).unwrap()
}

#[test]
fn states_are_exact_in_json() {
    let mut value = 0.1;
    for epoch in 0..1000 {
        value *= 0.99;
        restored(&Best { value: Some(value), epoch });
    }
}

/// A state after it was in a checkpoint.
fn restored<T: serde::Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(state: &T) -> T {
    let json = serde_json::to_string(state).unwrap();
    let read: T = serde_json::from_str(&json).unwrap();
    assert_eq!(read, *state, "{json}");
    read
}

#[test]
fn early_stopping_is_that_of_keras() {
    let mut stopped = 0;
    for Stopping { case, settings, values, states } in golden().early_stopping {
        settings.check().unwrap();
        let mut state = EarlyStoppingState::default();
        for (epoch, (value, &(best, best_epoch, wait, stops))) in (1..).zip(values.iter().zip(&states)) {
            state = restored(&state);
            let best_before = state.best;
            let verdict = state.observe(&settings, epoch, value.unwrap_or(f64::NAN));
            let best_epoch = if best.is_some() { best_epoch + 1 } else { 0 };
            let found = (state.best, state.best_epoch, state.wait, verdict == Verdict::Stop);
            assert_eq!(found, (best, best_epoch, wait, stops), "{case}, epoch {epoch}");
            assert_eq!(verdict == Verdict::Improved, state.best != best_before, "{case}, epoch {epoch}");
            assert_eq!(state.stopped_epoch, stops.then_some(epoch), "{case}");
            stopped += usize::from(stops);
        }
    }
    assert!(stopped > 10, "{stopped} trainings stop");
}

#[test]
fn reduction_on_a_plateau_is_that_of_pytorch() {
    let mut reduced = 0;
    for Plateau { case, settings, lr, values, states } in golden().plateau {
        settings.check().unwrap();
        let (mut state, mut lr) = (PlateauState::default(), lr);
        for (epoch, (value, expected)) in values.iter().zip(&states).enumerate() {
            state = restored(&state);
            if let Some(lower) = state.observe(&settings, value.unwrap_or(f64::NAN), lr) {
                assert!(lower < lr, "{case}, epoch {epoch}");
                lr = lower;
                reduced += 1;
            }
            let found = (state.best, state.bad_epochs, state.cooldown_left, lr);
            assert_eq!(found, *expected, "{case}, epoch {epoch}");
        }
    }
    assert!(reduced > 40, "{reduced} reductions");
}

#[test]
fn what_is_no_number_is_never_the_best() {
    let settings = EarlyStopping { patience: 2, ..EarlyStopping::default() };
    let mut state = EarlyStoppingState::default();
    assert_eq!(state.observe(&settings, 1, f64::NAN), Verdict::Waiting);
    assert_eq!(state.observe(&settings, 2, 3.0), Verdict::Improved);
    let impatient = EarlyStopping::default();
    let mut state = EarlyStoppingState::default();
    let verdicts = [1, 2].map(|epoch| state.observe(&impatient, epoch, f64::NAN));
    assert_eq!(verdicts, [Verdict::Waiting, Verdict::Stop], "the first epoch never stops");
    let (monitor, mut best) = (Monitor::new("val_loss"), Best::default());
    let improved = [f64::NAN, f64::INFINITY, 2.0, f64::NAN, f64::NEG_INFINITY, 0.0];
    let improved = improved.iter().zip(1..).map(|(&value, epoch)| {
        let improved = best.observe(&monitor, epoch, value);
        best = restored(&best);
        improved
    });
    assert_eq!(improved.collect::<Vec<_>>(), [false, true, true, false, true, false]);
    assert_eq!((best.value, best.epoch), (Some(f64::NEG_INFINITY), 5));
}

#[test]
fn the_name_says_what_is_better_unless_the_mode_does() {
    let better = |monitor: &str, mode| Monitor { mode, ..Monitor::new(monitor) }.is_better(0.6, 0.5);
    assert!(better("val_accuracy", MonitorMode::Auto) && !better("val_loss", MonitorMode::Auto));
    assert!(better("val_loss", MonitorMode::Max) && !better("val_accuracy", MonitorMode::Min));
    let delta = Monitor { min_delta: 0.1, ..Monitor::new("accuracy") };
    assert!(delta.is_better(0.75, 0.5) && !delta.is_better(0.55, 0.5));
}

#[test]
fn settings_that_make_no_sense_are_refused_in_one_sentence() {
    let stopping = EarlyStopping::default;
    let plateau = ReduceOnPlateau::default;
    for (checked, words) in [
        (EarlyStopping { monitor: "bleu".to_owned(), ..stopping() }.check(), "whether `bleu` should fall or rise"),
        (EarlyStopping { min_delta: -1.0, ..stopping() }.check(), "min_delta = -1.0"),
        (EarlyStopping { baseline: Some(f64::NAN), ..stopping() }.check(), "baseline"),
        (Monitor { min_delta: f64::INFINITY, ..Monitor::default() }.check(), "min_delta = inf"),
        (ReduceOnPlateau { factor: 1.0, ..plateau() }.check(), "factor = 1.0"),
        (ReduceOnPlateau { threshold: 1.0, ..plateau() }.check(), "threshold = 1.0"),
        (ReduceOnPlateau { min_lr: -0.1, ..plateau() }.check(), "min_lr = -0.1"),
        (ReduceOnPlateau { monitor: "x".to_owned(), ..plateau() }.check(), "set mode to \"min\" or \"max\""),
    ] {
        let error = checked.expect_err(words).to_string();
        assert!(error.contains(words) && !error.contains(". "), "{words}: {error}");
    }
    let far = ReduceOnPlateau { threshold: 2.0, threshold_mode: ThresholdMode::Abs, ..plateau() };
    far.check().unwrap();
    EarlyStopping { monitor: "bleu".to_owned(), mode: MonitorMode::Max, ..stopping() }.check().unwrap();
}

#[test]
fn files_need_no_setting_and_know_all() {
    assert_eq!(toml::from_str::<EarlyStopping>("").unwrap(), EarlyStopping::default());
    assert_eq!(toml::from_str::<ReduceOnPlateau>("").unwrap(), ReduceOnPlateau::default());
    let read: EarlyStopping = toml::from_str("monitor = 'val_accuracy'\nmode = 'max'\npatience = 3").unwrap();
    assert_eq!((read.monitor.as_str(), read.mode, read.patience), ("val_accuracy", MonitorMode::Max, 3));
    let error = toml::from_str::<ReduceOnPlateau>("patienc = 3").unwrap_err().to_string();
    assert!(error.contains("unknown field `patienc`"), "{error}");
}

/// The op that a step runs for each parameter (`Config::ema_decay`), from the parameters that training starts with.
#[test]
fn averages_are_those_of_pytorch() {
    let golden = golden().ema;
    assert!(golden.len() > 2);
    for Averages { case, decay, parameters, averages } in golden {
        let op = Ema { momentum: 1.0 - decay, factor: 1.0 };
        let mut average = parameters[0].clone();
        let desc = TensorDesc::f32([average.len()]);
        let input_descs = [desc.clone(), desc, TensorDesc::f32([1])];
        for (parameter, expected) in parameters[1..].iter().zip(&averages[1..]) {
            op.run_f32(&mut Call {
                input_descs: &input_descs,
                output_descs: &[],
                inputs: vec![Input::Mutated, Input::Real(parameter), Input::Real(&[0.0])],
                outputs: Vec::new(),
                mutated: vec![Output::Real(&mut average)],
            });
            for (found, expected) in average.iter().zip(expected) {
                assert!((found - expected).abs() < 2e-6, "{case}: {found} and {expected}");
            }
        }
    }
}

//! Adam with moments of 8 bits: a quarter of the state, kept by checkpoints and under any budget, and as good as Adam's.

use tightfit::data::{Targets, TensorDataset, Values};
use tightfit::models;
use tightfit::nn::{Model, Sequential};
use tightfit::plan::{ArenaRole, Limits};
use tightfit::train::{self, Checkpoint, Checkpoints, Config, FitOptions, Optimizer, Trainer};

use crate::checkpoints::bits;

const SAMPLES: usize = 60;

/// Only the weights of `linear1` and `linear2` are large enough for 8 bits; the last block of `linear2.weight` is not whole.
fn model() -> Model {
    Sequential::new("wide", [70]).linear(67).relu().linear(67).relu().linear(3).into()
}

fn data() -> TensorDataset {
    let pixel = |i: usize| ((i * 7919) % 1009) as f32 / 1009.0 - 0.5;
    let values: Vec<f32> = (0..SAMPLES * 70).map(pixel).collect();
    let label = |sample: &[f32]| u32::from(sample[0] > 0.0) + u32::from(sample[1] + sample[2] > 0.3);
    let labels = values.chunks(70).map(label).collect();
    TensorDataset::new(Values::F32(values), [70], Targets::labels(labels, 3)).expect("fits")
}

fn config() -> Config {
    Config::default().batch(20).optimizer(Optimizer::adamw8bit(0.003)).seed(3)
}

fn trainer(config: Config, device: &str) -> Trainer {
    Trainer::new(model(), config, device).expect("a trainer")
}

fn devices() -> Vec<String> {
    crate::common::gpu().into_iter().chain(["cpu".to_owned(), "reference".to_owned()]).collect()
}

/// Losses of so many steps of the whole set.
fn losses(optimizer: Optimizer, steps: usize, device: &str) -> Vec<f32> {
    let data = data();
    let mut trainer = trainer(config().batch(SAMPLES).optimizer(optimizer), device);
    let all: Vec<_> = (0..SAMPLES).collect();
    (0..steps).map(|_| trainer.step(&data, &all).expect("a step").loss).collect()
}

#[test]
fn state_takes_a_quarter() {
    for (model, batch) in [(models::mnist_cnn(10), 64), (models::gpt(64, models::CHARACTERS), 16)] {
        let bytes = |optimizer: Optimizer| {
            let config = Config::default().batch(batch).optimizer(optimizer);
            let config =
                if model.name() == "gpt" { config.loss(train::Loss::cross_entropy_of_sequences()) } else { config };
            train::plan(&model, &config, &Limits::default()).expect("plans").plan.arena_bytes(ArenaRole::State)
        };
        for (optimizer, coded) in
            [(Optimizer::adam(1e-3), Optimizer::adam8bit(1e-3)), (Optimizer::adamw(1e-3), Optimizer::adamw8bit(1e-3))]
        {
            let (full, coded) = (bytes(optimizer), bytes(coded));
            println!("{}: {full} and {coded} bytes", model.name());
            assert!(coded * 1000 < full * 285, "{}: {coded} of {full} bytes", model.name());
        }
    }
}

#[test]
fn it_learns_as_adam_does() {
    const STEPS: usize = 60;
    for device in devices() {
        for (optimizer, coded) in [
            (Optimizer::adam(0.003), Optimizer::adam8bit(0.003)),
            (Optimizer::adamw(0.003), Optimizer::adamw8bit(0.003)),
        ] {
            let (expected, found) = (losses(optimizer, STEPS, &device), losses(coded, STEPS, &device));
            assert_eq!(found[..2], expected[..2], "the first step has nothing to decode, on {device}");
            assert_ne!(found, expected, "moments of 8 bits, on {device}");
            assert!(expected[STEPS - 1] < 0.2 * expected[0], "on {device}: {expected:?}");
            for (step, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let allowed = 0.05 * expected + 0.01;
                assert!((found - expected).abs() < allowed, "step {step} on {device}: {found}, not {expected}");
            }
        }
    }
}

#[test]
fn checkpoints_and_budgets_change_no_bit() {
    for device in devices() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let folder = folder.path();
        let fit = |trainer: &mut Trainer, options: FitOptions<'_>| {
            trainer.fit(&data(), options).expect("trains");
        };
        let mut whole = trainer(config(), &device);
        fit(&mut whole, FitOptions::epochs(4));
        let expected = bits(&mut whole, folder);

        let checkpoints = Checkpoints::new(folder.join("all")).every_steps(5).each_epoch(false).keep(100);
        let mut first = trainer(config(), &device);
        fit(&mut first, FitOptions { checkpoints: Some(checkpoints), ..FitOptions::epochs(4) });
        let checkpoint = Checkpoint::open(folder.join("all/step-00000005")).expect("whole");
        let optimizer = std::fs::read(checkpoint.path().join("optimizer.safetensors")).expect("reads");
        let header = String::from_utf8_lossy(&optimizer[..2048]);
        let entry = r#""linear2.weight.exp_avg":{"dtype":"U8","shape":[18,256]"#;
        assert!(header.contains(entry), "{header}");
        let mut second = trainer(config(), &device);
        second.restore(&checkpoint).expect("the same training");
        fit(&mut second, FitOptions::epochs(4));
        assert_eq!(bits(&mut second, folder), expected, "on {device}");

        // States go to the host and come back, where there is another one.
        let config = || config().micro_batches(1);
        let least = trainer(config(), &device).plan().minimum_budget_bytes;
        let mut least = trainer(config().budget_bytes(least), &device);
        fit(&mut least, FitOptions::epochs(4));
        assert!(least.plan().peak_bytes < whole.plan().peak_bytes, "on {device}");
        assert_eq!(bits(&mut least, folder), expected, "on {device}");
    }
}

#[test]
fn moments_begin_anew_where_their_form_changes() {
    let mut trainer = trainer(config().optimizer(Optimizer::adamw(0.003)), "cpu");
    trainer.fit(&data(), FitOptions::epochs(1)).expect("trains");
    let state = |trainer: &mut Trainer, name: &str, state: &str| trainer.optimizer_state(name, state).expect("reads");
    let bias = state(&mut trainer, "linear1.bias", "exp_avg").expect("a moment");
    assert!(bias.iter().any(|&x| x != 0.0));
    trainer.reconfigure(|config| config.optimizer(Optimizer::adamw8bit(0.003))).expect("a plan");
    // Small ones have the form that they had.
    assert_eq!(state(&mut trainer, "linear1.bias", "exp_avg"), Some(bias));
    assert_eq!(state(&mut trainer, "linear1.bias", "exp_avg_scale"), None);
    let codes = state(&mut trainer, "linear1.weight", "exp_avg").expect("codes");
    assert_eq!(codes, vec![0.0; (70 * 67usize).next_multiple_of(256)]);
    trainer.fit(&data(), FitOptions::epochs(1)).expect("trains");
    let codes = state(&mut trainer, "linear1.weight", "exp_avg_sq").expect("codes");
    assert!(codes.iter().all(|code| (0.0..256.0).contains(code) && code.fract() == 0.0), "{codes:?}");
    for block in codes.chunks(256) {
        assert!(block.contains(&255.0), "the largest of a block has the last code: {block:?}");
    }
    assert!(codes[70 * 67..].iter().all(|&code| code == 0.0), "what lies past the end is 0");
    let scales = state(&mut trainer, "linear1.weight", "exp_avg_sq_scale").expect("scales");
    assert!(scales.len() == 19 && scales.iter().all(|&scale| scale > 0.0), "{scales:?}");
}

//! Loss scaling: the scale follows what gradients bear, a step whose gradients overflow moves nothing, and training goes on as if it had
//! not been, under any budget and after any resume.

use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};
use tightfit::autodiff::{LOSS_SCALE, LOSS_SCALE_INVERSE};
use tightfit::data::{Targets, TensorDataset, Values, mnist};
use tightfit::error::TrainError;
use tightfit::models;
use tightfit::nn::{BatchNorm, Linear, Lstm, Model, Sequential, Tensor};
use tightfit::train::{
    Checkpoint, Checkpoints, Clip, Config, Criterion, FitOptions, Loss, LossScale, Optimizer, PlanFile, Trainer,
};

/// The hash of the model's file in a checkpoint, and that of the optimizer's.
fn bits(trainer: &mut Trainer, folder: &Path) -> [String; 2] {
    let files = crate::checkpoints::bits(trainer, folder);
    ["model.safetensors", "optimizer.safetensors"].map(|file| sha256(&files[file]))
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `gpu` where there is one, and always the CPU and the reference.
fn devices() -> Vec<String> {
    crate::common::gpu().into_iter().chain(["cpu", "reference"].map(str::to_owned)).collect()
}

/// 2¹⁰⁰, by which the gradients of [`Steep`] are larger on the way than they are in the end.
const LARGE: f32 = (1_u128 << 100) as f32;

/// The squared difference. Its gradient is finite only as long as 2 · difference · loss scale is below 2²⁸.
#[derive(Debug)]
struct Steep;

impl Criterion for Steep {
    fn name(&self) -> &str {
        "steep"
    }

    fn loss<'a>(&self, prediction: Tensor<'a>, target: Tensor<'a>) -> Tensor<'a> {
        let difference = prediction * (1.0 / LARGE) * LARGE - target;
        difference * difference
    }
}

/// The absolute difference as a root: where it is 0, it has no gradient.
#[derive(Debug)]
struct Root;

impl Criterion for Root {
    fn name(&self) -> &str {
        "root"
    }

    fn loss<'a>(&self, prediction: Tensor<'a>, target: Tensor<'a>) -> Tensor<'a> {
        let difference = prediction - target;
        (difference * difference).sqrt()
    }
}

fn dynamic(initial: f32, growth_interval: u64) -> LossScale {
    LossScale::Dynamic { initial, growth_interval, growth_factor: 2.0, backoff_factor: 0.5 }
}

fn steep() -> Config {
    Config::default().loss(Loss::custom(Steep)).loss_scale(dynamic(65_536.0, 3)).seed(3)
}

/// Samples of so many numbers with these targets.
fn data(numbers: usize, targets: &[f32]) -> TensorDataset {
    let values = (0..targets.len() * numbers).map(|i| ((i * 7919) % 1009) as f32 / 1009.0 + 0.5).collect();
    let targets = Targets::Values { values: targets.to_vec(), shape: [1].into() };
    TensorDataset::new(Values::F32(values), [numbers], targets).expect("fits")
}

fn trainer(model: impl Into<Model>, config: Config, device: &str) -> Trainer {
    Trainer::new(model, config, device).unwrap_or_else(|error| panic!("on {device}: {error}"))
}

/// Targets of 20 samples, some of which overflow at scales of 65,536 or of 32,768 in batches of two.
fn some_overflow() -> [f32; 20] {
    let mut targets = std::array::from_fn(|i| i as f32 / 20.0);
    (targets[7], targets[12]) = (6000.0, 12_000.0);
    targets
}

/// Whatever can move: moments, averages, running statistics, and states that are carried.
fn all_that_moves() -> Model {
    let model = Sequential::new("all", [4, 1]).push(Lstm::new(3).stateful(true)).flatten();
    model.push(BatchNorm::new()).dropout(0.2).linear(1).into()
}

#[test]
fn the_scale_and_the_skipped_steps_are_those_computed_by_hand() {
    // With weight 0 the difference is the target: 3000 overflows from a scale of 44,740 on, 6000 from 22,370 on.
    let targets = [1., 3000., 3000., 1., 1., 6000., 6000., 6000., 1., 1., 1., 6000., 1., 1.];
    let scales = [16, 16, 15, 15, 15, 16, 15, 14, 14, 14, 15, 15, 14, 14].map(|power| 2.0_f32.powi(power));
    let skipped = [2, 6, 7, 12];
    let folder = tempfile::tempdir().expect("a temporary folder");
    let model = || Sequential::new("line", [1]).push(Linear::new(1).bias(false));
    let data = data(1, &targets);
    for device in devices() {
        let config = || steep().batch(1).optimizer(Optimizer::adamw(1e-3)).ema_decay(0.9).grad_norm(true);
        let mut scaled = trainer(model(), config(), &device);
        scaled.set_parameter("linear1.weight", &[0.0]).expect("sets");
        let mut unscaled = trainer(model(), config().loss_scale(LossScale::None), &device);
        unscaled.set_parameter("linear1.weight", &[0.0]).expect("sets");
        for (i, &scale) in scales.iter().enumerate() {
            let before = bits(&mut scaled, folder.path());
            assert_eq!(scaled.loss_scale(), Some(scale), "step {} on {device}", i + 1);
            let outcome = scaled.step(&data, &[i]).expect("a step");
            let is_skipped = skipped.contains(&(i + 1));
            assert_eq!((outcome.loss_scale, outcome.skipped), (Some(scale), is_skipped), "step {} on {device}", i + 1);
            if is_skipped {
                assert_eq!(bits(&mut scaled, folder.path()), before, "step {} on {device}", i + 1);
                assert!(!outcome.grad_norm.expect("asked for").is_finite());
            } else {
                // Without a scale, on the same samples but for those that were skipped, all is the same: moments are corrected alike.
                let expected = unscaled.step(&data, &[i]).expect("a step");
                assert_eq!((outcome.loss, outcome.grad_norm), (expected.loss, expected.grad_norm));
            }
        }
        assert_eq!((scaled.steps(), scaled.skipped_steps()), (14, 4));
        assert_eq!((unscaled.steps(), unscaled.skipped_steps(), unscaled.loss_scale()), (10, 0, None));
        assert_eq!(bits(&mut scaled, folder.path()), bits(&mut unscaled, folder.path()), "on {device}");
    }
}

#[test]
fn nothing_moves_in_a_skipped_step_and_training_goes_on() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let samples: Vec<_> = [1.0, 2.0, 3.0, 4.0, 1.0, 60_000.0, 3.0, 4.0].to_vec();
    let data = data(4, &samples).with_sample_shape([4, 1]).expect("as many");
    let optimizers = [
        Optimizer::Sgd { lr: 0.01, momentum: 0.9, nesterov: false, weight_decay: 0.1 },
        Optimizer::adam(0.01),
        Optimizer::rmsprop(0.01),
        Optimizer::lion(0.01),
        Optimizer::lamb(0.01),
        Optimizer::adafactor(0.01),
    ];
    for device in devices() {
        let few = if device == "cpu" { &optimizers[..] } else { &optimizers[..2] };
        for (optimizer, clip) in
            few.iter().flat_map(|&optimizer| [(optimizer, None), (optimizer, Some(Clip::Norm(1.0)))])
        {
            let config = Config { clip, ..steep().batch(4).optimizer(optimizer).ema_decay(0.9) };
            let mut trainer = trainer(all_that_moves(), config, &device);
            trainer.step(&data, &[0, 1, 2, 3]).expect("a step");
            let before = bits(&mut trainer, folder.path());
            assert!(trainer.step(&data, &[4, 5, 6, 7]).expect("a step").skipped);
            assert_eq!(bits(&mut trainer, folder.path()), before, "{optimizer} on {device}");
            assert_eq!(trainer.loss_scale(), Some(32_768.0));
            assert!(!trainer.step(&data, &[0, 1, 2, 3]).expect("a step").skipped);
            let after = bits(&mut trainer, folder.path());
            assert!(after[0] != before[0] && after[1] != before[1], "{optimizer} on {device}");
        }
    }
}

#[test]
fn one_micro_batch_that_overflows_skips_the_whole_step() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let model = || Sequential::new("small", [4]).linear(5).tanh().linear(1);
    for device in devices() {
        for place in 0..4 {
            let mut targets = [1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0];
            targets[4 + place] = 60_000.0;
            let data = data(4, &targets);
            let mut trainer = trainer(model(), steep().batch(4).micro_batches(3), &device);
            assert!(!trainer.step(&data, &[0, 1, 2, 3]).expect("a step").skipped);
            let before = bits(&mut trainer, folder.path());
            assert!(trainer.step(&data, &[4, 5, 6, 7]).expect("a step").skipped, "sample {place} on {device}");
            assert_eq!(bits(&mut trainer, folder.path()), before, "sample {place} on {device}");
            assert!(!trainer.step(&data, &[0, 1, 2, 3]).expect("a step").skipped);
        }
    }
}

#[test]
fn a_power_of_two_changes_no_bit() {
    let (digits, _) = mnist::open(concat!(env!("CARGO_MANIFEST_DIR"), "/data/mnist")).expect("bundled data");
    let ways = [
        (None, 1, LossScale::Static(2.0_f32.powi(60))),
        (Some(Clip::Norm(0.1)), 2, LossScale::dynamic()),
        (Some(Clip::Value(0.01)), 1, LossScale::Static(0.0625)),
        (Some(Clip::TensorNorm(0.1)), 2, dynamic(1.0, 1)),
    ];
    for (device, name) in devices().into_iter().zip(["mnist-mlp", "mnist-cnn", "mnist-mlp"]) {
        let model = models::builtin(name).expect("built in");
        let digits = digits.clone().with_sample_shape(model.input_shape().clone()).expect("as many");
        for (clip, micro_batches, scale) in ways {
            let config = Config { clip, ..Config::default().batch(8).micro_batches(micro_batches).grad_norm(true) };
            let run = |config: Config| {
                let mut trainer = trainer(model.clone(), config, &device);
                let steps = (0..3).map(|step| {
                    let indices: Vec<_> = (8 * step..8 * step + 8).collect();
                    let outcome = trainer.step(&digits, &indices).expect("a step");
                    (outcome.loss.to_bits(), outcome.grad_norm.map(f32::to_bits))
                });
                let steps: Vec<_> = steps.collect();
                assert_eq!(trainer.measured_peak_bytes(), trainer.plan().peak_bytes);
                (steps, trainer.parameters_sha256().expect("reads"))
            };
            assert_eq!(run(config.clone().loss_scale(scale)), run(config), "{name}, {clip:?}, {scale} on {device}");
        }
    }
}

#[test]
fn a_fit_resumes_in_the_middle_of_growth_bit_for_bit() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path();
    let model = || Sequential::new("small", [4]).linear(6).tanh().dropout(0.3).linear(1);
    let config = || steep().batch(2).optimizer(Optimizer::adamw(0.01)).ema_decay(0.9);
    let data = data(4, &some_overflow());
    for device in devices() {
        let at = folder.join(&device);
        let checkpoints = |name: &str| Some(Checkpoints::new(at.join(name)).every_steps(1).each_epoch(false).keep(100));
        let mut whole = trainer(model(), config(), &device);
        let options = FitOptions { checkpoints: checkpoints("whole"), ..FitOptions::epochs(3) };
        let expected = whole.fit(&data, options).expect("trains");
        let expected_bits = bits(&mut whole, folder);
        let scales: Vec<_> = expected.history.series("loss_scale").into_iter().map(|(_, scale)| scale).collect();
        assert_eq!((scales.len(), expected.steps), (30, 30));
        assert!(scales.windows(2).any(|pair| pair[1] > pair[0]) && scales.windows(2).any(|pair| pair[1] < pair[0]));
        let falls = scales.windows(2).filter(|pair| pair[1] < pair[0]).count() as u64;
        assert!((falls..=falls + 1).contains(&expected.skipped_steps.expect("scaled")) && falls > 2, "{scales:?}");
        let skipped = expected.history.series("skipped_steps");
        assert_eq!(skipped.last().map(|&(_, skipped)| skipped as u64), expected.skipped_steps);
        let last = expected.history.epochs().last().expect("three");
        assert_eq!(last.values["skipped_steps"] as u64, expected.skipped_steps.expect("scaled"));
        for step in (1..30).step_by(if device == "cpu" { 1 } else { 7 }) {
            let checkpoint = Checkpoint::open(at.join("whole").join(format!("step-{step:08}"))).expect("whole");
            let mut resumed = Trainer::resume(model(), config(), &device, &checkpoint).expect("the same training");
            assert_eq!(resumed.loss_scale().map(f64::from), Some(scales[step]), "step {step}");
            let report = resumed.fit(&data, FitOptions::epochs(3)).expect("trains");
            assert_eq!(bits(&mut resumed, folder), expected_bits, "from step {step} on {device}");
            assert_eq!((report.history, report.skipped_steps), (expected.history.clone(), expected.skipped_steps));
            assert_eq!(resumed.skipped_steps(), whole.skipped_steps());
        }
        // Step by step, where nothing goes up before the scale of its step is known.
        let mut last = None;
        for step in 1..=30 {
            let mut one = match &last {
                Some(checkpoint) => Trainer::resume(model(), config(), &device, checkpoint).expect("the same training"),
                None => trainer(model(), config(), &device),
            };
            let options =
                FitOptions { max_steps: Some(step), checkpoints: checkpoints("steps"), ..FitOptions::epochs(3) };
            one.fit(&data, options).expect("trains");
            last = Some(Checkpoint::open(at.join("steps").join(format!("step-{step:08}"))).expect("whole"));
        }
        let mut end = trainer(model(), config(), &device);
        end.restore(&last.expect("thirty")).expect("the same training");
        assert_eq!(bits(&mut end, folder), expected_bits, "on {device}");
    }
}

#[test]
fn budgets_change_no_bit_of_what_is_skipped() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let model = || {
        let hidden = |model: Sequential| model.linear(48).gelu().dropout(0.3);
        (0..4).fold(Sequential::new("deep", [4]), |model, _| hidden(model)).linear(1)
    };
    let mut targets = some_overflow();
    targets[12] = 240_000.0;
    let data = data(4, &targets);
    for device in devices() {
        for micro_batches in [1, 2] {
            let config = || steep().batch(10).micro_batches(micro_batches).optimizer(Optimizer::adam(0.01));
            let run = |config: Config| {
                let mut trainer = trainer(model(), config, &device);
                let report = trainer.fit(&data, FitOptions::epochs(4)).expect("trains");
                assert_eq!(trainer.measured_peak_bytes(), trainer.plan().peak_bytes);
                let plan = trainer.plan().clone();
                (report.history, report.skipped_steps, bits(&mut trainer, folder.path()), plan)
            };
            let (history, skipped, expected, plan) = run(config());
            assert!(skipped.is_some_and(|skipped| skipped > 0 && skipped < 8));
            let (least, need) = (plan.minimum_budget_bytes, plan.peak_bytes);
            assert!(least < need);
            for budget in [least, least.midpoint(need)] {
                let found = run(config().budget_bytes(budget));
                assert!(found.3.peak_bytes <= budget);
                assert_eq!(
                    (found.0, found.1, found.2),
                    (history.clone(), skipped, expected.clone()),
                    "{budget} on {device}"
                );
            }
        }
    }
}

#[test]
fn gradients_that_are_never_finite_end_training() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let model = || Sequential::new("line", [1]).push(Linear::new(1).bias(false));
    let data = data(1, &[0.0, 1.0]);
    for device in devices() {
        for (scale, words) in [
            (
                dynamic(4.0, 3),
                "for 100 steps, although the loss scale fell to 1: the first value that is not finite is",
            ),
            (LossScale::Static(8.0), "for 100 steps, with a loss scale of 8: the first value that is not finite is"),
        ] {
            let config = || Config::default().batch(1).loss(Loss::custom(Root)).loss_scale(scale);
            let mut trainer = trainer(model(), config(), &device);
            trainer.set_parameter("linear1.weight", &[0.0]).expect("sets");
            let before = bits(&mut trainer, folder.path());
            for _ in 0..99 {
                assert!(trainer.step(&data, &[0]).expect("a step").skipped);
            }
            let error = trainer.step(&data, &[0]).expect_err("too many");
            assert!(matches!(error, TrainError::NonFiniteGradients { step: 100, skipped: 100, .. }), "{error}");
            let text = error.to_string();
            assert!(text.contains(words) && text.contains("(parameters are those of step 0)"), "{text}");
            assert!(text.contains("infinity in the output of layer `loss.sqrt` (sqrt.grad_input)"), "{text}");
            assert_eq!(bits(&mut trainer, folder.path()), before, "on {device}");
            // Training goes on, and they are counted anew.
            assert!(!trainer.step(&data, &[1]).expect("a step").skipped);
            trainer.set_parameter("linear1.weight", &[0.0]).expect("sets");
            assert!(trainer.step(&data, &[0]).expect("a step").skipped);
            assert_eq!((trainer.steps(), trainer.skipped_steps()), (101, 100));
        }
    }
}

#[test]
fn what_is_trained_later_counts_its_own_updates() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let model = || Sequential::new("two", [4]).linear(3).tanh().linear(1);
    let data = data(4, &[1.0, 60_000.0, 2.0, 3.0]);
    let config = || steep().batch(1).optimizer(Optimizer::adam(0.01)).train_only("linear2.");
    let run = |config: Config, samples: &[usize], more: &[usize]| {
        let mut trainer = trainer(model(), config, "cpu");
        for &sample in samples {
            trainer.step(&data, &[sample]).expect("a step");
        }
        trainer.unfreeze("").expect("trains all");
        // Also where the plan is made anew, and where another training takes it up.
        for &sample in more {
            trainer.step(&data, &[sample]).expect("a step");
        }
        (bits(&mut trainer, folder.path()), trainer.skipped_steps())
    };
    let (expected, none) = run(config().loss_scale(LossScale::None), &[0, 2, 3], &[0, 2]);
    let (found, skipped) = run(config(), &[0, 1, 2, 3], &[0, 1, 2]);
    assert_eq!((none, found), (0, expected));
    assert!(skipped >= 2, "{skipped}");
}

/// Takes something out of a checkpoint's state, as if it had been written before there was such a thing.
fn without_scale(checkpoint: &Path) {
    let path = checkpoint.join("state.json");
    let mut contents: serde_json::Value = serde_json::from_slice(&fs::read(&path).expect("reads")).expect("JSON");
    let state = contents["state"].as_object_mut().expect("an object");
    assert!(state.remove("loss_scale").is_some());
    if let Some(run) = state["run"].as_object_mut() {
        assert!(run.remove("skipped_steps").is_some());
    }
    let json = serde_json::to_vec(&contents).expect("JSON");
    let sums = fs::read_to_string(checkpoint.join("SHA256SUMS")).expect("reads");
    let sums = sums.replace(&sha256(&fs::read(&path).expect("reads")), &sha256(&json));
    fs::write(&path, json).expect("writes");
    fs::write(checkpoint.join("SHA256SUMS"), sums).expect("writes");
}

#[test]
fn checkpoints_go_on_with_and_without_a_scale() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let model = || Sequential::new("small", [4]).linear(3).tanh().linear(1);
    let config = |scale| steep().batch(2).loss_scale(scale);
    let data = data(4, &some_overflow());
    let at = |name: &str| folder.path().join(name);
    let options = |name: &str| FitOptions {
        max_steps: Some(12),
        checkpoints: Some(Checkpoints::new(at(name)).each_epoch(false)),
        ..FitOptions::epochs(2)
    };
    let mut old = trainer(model(), config(LossScale::None), "cpu");
    old.fit(&data, options("old")).expect("trains");
    without_scale(&at("old").join("step-00000012"));
    let old = Checkpoint::open_latest(at("old")).expect("whole");
    let mut resumed = Trainer::resume(model(), config(dynamic(8.0, 3)), "cpu", &old).expect("the same otherwise");
    assert_eq!((resumed.loss_scale(), resumed.skipped_steps(), resumed.steps()), (Some(8.0), 0, 12));
    assert_eq!(resumed.fit(&data, FitOptions::epochs(2)).expect("trains").steps, 20);

    let mut scaled = trainer(model(), config(dynamic(65_536.0, 3)), "cpu");
    scaled.fit(&data, options("scaled")).expect("trains");
    let skipped = scaled.skipped_steps();
    assert!(skipped > 0);
    let checkpoint = Checkpoint::open_latest(at("scaled")).expect("whole");
    for (scale, expected) in [(LossScale::None, None), (LossScale::Static(4.0), Some(4.0))] {
        let resumed = Trainer::resume(model(), config(scale), "cpu", &checkpoint).expect("the same otherwise");
        assert_eq!((resumed.loss_scale(), resumed.skipped_steps()), (expected, skipped));
    }
    // The scale that is at hand, whatever another training would begin with.
    let resumed = Trainer::resume(model(), config(dynamic(2.0, 5)), "cpu", &checkpoint).expect("the same otherwise");
    assert_eq!(resumed.loss_scale(), scaled.loss_scale());
}

#[test]
fn a_scale_is_two_inputs_of_the_plan() {
    let model = || Model::from(Sequential::new("small", [4]).linear(3).tanh().linear(1));
    let inputs = |config: Config| {
        let trainer = trainer(model(), config.batch(6).micro_batches(3), "cpu");
        let graphs = trainer.planned().graphs.iter();
        let count = |name| graphs.clone().filter(|graph| graph.find(name).is_some()).count();
        // Each kind of micro-batch makes gradients, the last one follows them.
        [LOSS_SCALE, LOSS_SCALE_INVERSE, "hyper"].map(count)
    };
    let [scale, inverse, hyper] = inputs(steep());
    assert_eq!((inverse, scale > inverse), (hyper, true));
    assert_eq!(inputs(steep().loss_scale(LossScale::None)), [0, 0, hyper]);
    assert_eq!(inputs(Config { loss_scale: None, ..steep() }), [0, 0, hyper]);

    let config = steep().batch(6);
    let plan = trainer(model(), config.clone(), "cpu").plan().clone();
    let file = PlanFile::new(&model(), &config, plan);
    assert_eq!(file.loss_scale(), config.loss_scale);
    let other = config.clone().loss_scale(LossScale::Static(3.0));
    let plan = file.clone().into_plan(&model(), &other).expect("the number does not matter");
    assert_eq!(Trainer::with_plan(model(), other, plan, "cpu").expect("the same plan").loss_scale(), Some(3.0));
    let error = file.into_plan(&model(), &config.loss_scale(LossScale::None)).expect_err("another graph").to_string();
    assert!(error.contains("steps with a loss scale, not no loss scale"), "{error}");

    let refused = Trainer::new(model(), steep().loss_scale(LossScale::Static(-1.0)), "cpu").expect_err("refused");
    assert!(refused.to_string().contains("loss_scale = -1.0 is not possible"), "{refused}");
    // Gradients that are looked at are those of the loss as it is.
    let mut gradients = Trainer::for_gradients(model(), steep().batch(1), "cpu").expect("a trainer");
    let of_scaled = gradients.gradients(&data(4, &[1.0]), &[0]).expect("finite");
    let mut gradients =
        Trainer::for_gradients(model(), Config { loss_scale: None, ..steep().batch(1) }, "cpu").expect("a trainer");
    assert_eq!(of_scaled, gradients.gradients(&data(4, &[1.0]), &[0]).expect("finite"));
}

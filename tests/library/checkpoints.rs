//! A fit that resumes from a checkpoint is one that was never interrupted, bit for bit.

use std::collections::BTreeMap;
use std::path::Path;

use tightfit::data::{Targets, TensorDataset, Values};
use tightfit::error::TrainError;
use tightfit::nn::{Lstm, Model, Sequential};
use tightfit::train::{
    Callback, CallbackState, Checkpoint, Checkpoints, Config, DeviceSelector, FitOptions, FitReport, Monitor,
    MonitorMode, Optimizer, Schedule, StepReport, Trainer,
};

pub(crate) const EPOCHS: u64 = 3;
/// 20 samples in batches of 4.
pub(crate) const STEPS: u64 = 15;

pub(crate) fn data() -> TensorDataset {
    let values = (0..20 * 6 * 3).map(|i| ((i * 7919) % 1009) as f32 / 1009.0 - 0.5).collect();
    TensorDataset::new(Values::F32(values), [6, 3], Targets::labels((0..20).map(|i| i % 3).collect(), 3)).expect("fits")
}

fn model() -> Model {
    Sequential::new("small", [6, 3]).push(Lstm::new(5)).dropout(0.3).linear(3).into()
}

fn stateful() -> Model {
    Sequential::new("stateful", [6, 3]).push(Lstm::new(5).stateful(true)).dropout(0.3).linear(3).into()
}

fn config() -> Config {
    Config::default().batch(4).optimizer(Optimizer::adamw(0.01)).ema_decay(0.9).seed(3)
}

/// Lowers the learning rate by what it has seen.
#[derive(Default)]
struct Slower {
    seen: f64,
}

impl Callback for Slower {
    fn name(&self) -> &str {
        "slower"
    }

    fn on_step_end(&mut self, trainer: &mut Trainer, step: &StepReport) -> Result<(), TrainError> {
        self.seen += f64::from(step.loss);
        if step.step.is_multiple_of(4) {
            trainer.set_lr_scale(1.0 / (1.0 + self.seen))?;
        }
        Ok(())
    }

    fn state(&mut self) -> Result<CallbackState, TrainError> {
        let tensors = BTreeMap::from([("seen".to_owned(), vec![self.seen as f32])]);
        Ok(CallbackState { values: self.seen.into(), tensors })
    }

    fn restore(&mut self, state: &CallbackState) -> Result<(), TrainError> {
        self.seen = state.values.as_f64().expect("a number");
        assert_eq!(state.tensors["seen"], [self.seen as f32]);
        Ok(())
    }
}

/// All that lasts, bit for bit.
pub(crate) fn bits(trainer: &mut Trainer, folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let path = folder.join("end");
    trainer.save_checkpoint(&path).expect("writes");
    let read = |name: &str| (name.to_owned(), std::fs::read(path.join(name)).expect("reads"));
    let bits = ["model.safetensors", "optimizer.safetensors"].map(read).into();
    std::fs::remove_dir_all(&path).expect("removes");
    bits
}

fn fit<'a>(trainer: &mut Trainer, callback: &'a mut Slower, options: FitOptions<'a>) -> FitReport {
    trainer.fit(&data(), FitOptions { callbacks: vec![callback], ..options }).expect("trains")
}

fn trainer(model: Model, config: Config) -> Trainer {
    Trainer::new(model, config, DeviceSelector::Cpu).expect("a trainer")
}

#[test]
fn a_fit_resumes_at_any_step_bit_for_bit() {
    for model in [model, stateful] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let folder = folder.path();
        let mut whole = trainer(model(), config());
        let mut expected_callback = Slower::default();
        let expected = fit(&mut whole, &mut expected_callback, FitOptions::epochs(EPOCHS));
        let expected_bits = bits(&mut whole, folder);
        assert_eq!((expected.steps, expected.epochs), (STEPS, EPOCHS));
        // Also where an epoch ends, with the checkpoint before the end of the epoch and the one after it.
        for (step, each_epoch) in (1..=STEPS).flat_map(|step| [(step, false), (step, true)]) {
            let at = folder.join(format!("{step}-{each_epoch}"));
            let checkpoints = || Checkpoints::new(&at).every_steps(1).each_epoch(each_epoch).keep(100);
            let mut first = trainer(model(), config());
            let options =
                FitOptions { max_steps: None, checkpoints: Some(checkpoints()), ..FitOptions::epochs(EPOCHS) };
            fit(&mut first, &mut Slower::default(), options);
            let checkpoint = Checkpoint::open(at.join(format!("step-{step:08}"))).expect("whole");
            assert_eq!((checkpoint.steps(), checkpoint.is_finished()), (step, step == STEPS));

            let mut second = trainer(model(), config());
            second.restore(&checkpoint).expect("the same training");
            let mut callback = Slower::default();
            let report = fit(&mut second, &mut callback, FitOptions::epochs(EPOCHS));
            assert_eq!(bits(&mut second, folder), expected_bits, "from step {step}");
            assert_eq!(callback.seen.to_bits(), expected_callback.seen.to_bits());
            assert_eq!((report.steps, report.epochs, report.train_loss), (STEPS, EPOCHS, expected.train_loss));
            std::fs::remove_dir_all(&at).expect("removes");
        }
    }
}

#[test]
fn a_fit_resumes_under_another_budget_bit_for_bit() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Enough activations that recomputing some takes less memory.
    let model = || {
        let hidden = |model: Sequential| model.linear(32).gelu().dropout(0.3);
        Model::from((0..4).fold(Sequential::new("deep", [6, 3]), |model, _| hidden(model)).flatten().linear(3))
    };
    let mut whole = trainer(model(), config().micro_batches(2));
    fit(&mut whole, &mut Slower::default(), FitOptions::epochs(EPOCHS));
    let expected = bits(&mut whole, folder.path());
    let at = folder.path().join("checkpoints");
    let checkpoints = Checkpoints::new(&at).every_steps(7).each_epoch(false).keep(100);
    let options = FitOptions { checkpoints: Some(checkpoints), ..FitOptions::epochs(EPOCHS) };
    let minimum = whole.plan().minimum_budget_bytes;
    assert!(minimum < whole.plan().peak_bytes);
    let mut first = trainer(model(), config().micro_batches(2).budget_bytes(minimum));
    fit(&mut first, &mut Slower::default(), options);
    let checkpoint = Checkpoint::open(at.join("step-00000007")).expect("one");
    let mut second = trainer(model(), config().micro_batches(checkpoint.micro_batches()));
    second.restore(&checkpoint).expect("the same training");
    fit(&mut second, &mut Slower::default(), FitOptions::epochs(EPOCHS));
    assert_eq!(bits(&mut second, folder.path()), expected);
}

#[test]
fn what_is_not_a_whole_checkpoint_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| folder.path().join(name);
    let mut trainer = trainer(model(), config());
    trainer.step(&data(), &[0, 1, 2, 3]).expect("a step");
    trainer.save_checkpoint(at("step-1")).expect("writes");
    trainer.step(&data(), &[0, 1, 2, 3]).expect("a step");
    trainer.save_checkpoint(at("step-2")).expect("writes");
    assert_eq!(Checkpoint::open_latest(folder.path()).expect("two").steps(), 2);
    let message = |name: &str| Checkpoint::open(at(name)).expect_err("refused").to_string();
    for file in ["model.safetensors", "optimizer.safetensors", "state.json"] {
        let path = at("step-2").join(file);
        let whole = std::fs::read(&path).expect("reads");
        let mut bytes = whole.clone();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, &bytes).expect("writes");
        assert!(message("step-2").contains("it is not what was written"), "{}", message("step-2"));
        std::fs::write(&path, &whole[..middle]).expect("writes");
        assert!(message("step-2").contains("it is not what was written"));
        std::fs::remove_file(&path).expect("removes");
        assert!(message("step-2").contains("take another"), "{}", message("step-2"));
        // The one before is as good as ever.
        assert_eq!(Checkpoint::open_latest(folder.path()).expect("another").steps(), 1);
        std::fs::write(&path, &whole).expect("writes");
    }
    assert!(message("none").contains("a folder with a checkpoint is expected"));
    let checkpoint = Checkpoint::open(at("step-2")).expect("whole again");
    for (config, word) in [
        (config().batch(5), "batch 4, not 5"),
        (config().seed(4), "seed 3, not 4"),
        (config().optimizer(Optimizer::sgd(0.1)), "optimizer adamw, not sgd"),
        (Config { ema_decay: None, ..config() }, "ema_decay 0.9, not none"),
    ] {
        let mut other = self::trainer(model(), config);
        let error = other.restore(&checkpoint).expect_err("another training").to_string();
        assert!(error.contains(word), "{error}");
    }
    let mut other = self::trainer(stateful(), config());
    assert!(other.restore(&checkpoint).expect_err("another model").to_string().contains("model small, not stateful"));
}

#[test]
fn callbacks_of_one_name_keep_apart() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let with = |trainer: &mut Trainer, one: &mut Slower, other: &mut Slower, most: Option<u64>| {
        let checkpoints = Some(Checkpoints::new(folder.path()).each_epoch(false));
        let options =
            FitOptions { callbacks: vec![one, other], checkpoints, max_steps: most, ..FitOptions::epochs(EPOCHS) };
        trainer.fit(&data(), options).expect("trains");
    };
    let (mut one, mut other) = (Slower::default(), Slower { seen: 100.0 });
    with(&mut trainer(model(), config()), &mut one, &mut other, Some(5));
    let checkpoint = Checkpoint::open_latest(folder.path()).expect("one");
    let (mut resumed, mut resumed_other) = (Slower::default(), Slower::default());
    let mut second = Trainer::resume(model(), config(), DeviceSelector::Cpu, &checkpoint).expect("the same training");
    with(&mut second, &mut resumed, &mut resumed_other, Some(5));
    assert_eq!((resumed.seen, resumed_other.seen), (one.seen, other.seen));
}

#[test]
fn the_best_is_there_before_what_training_goes_on_from() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // The best is the first epoch, since the learning rate falls from there.
    let highest = Monitor { mode: MonitorMode::Max, ..Monitor::new("lr") };
    let checkpoints = Checkpoints::new(folder.path()).keep(9).best(highest);
    let options = FitOptions { checkpoints: Some(checkpoints), ..FitOptions::epochs(2) };
    trainer(model(), config().schedule(Schedule::linear())).fit(&data(), options).expect("trains");
    let written = |name: &str| {
        let file = folder.path().join(name).join("SHA256SUMS");
        file.metadata().and_then(|file| file.modified()).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    // Where a process is killed in between, the best is written again; the other way round it would be missing for good.
    assert!(written("best-00000005") < written("step-00000005"));
}

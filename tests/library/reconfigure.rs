//! A trainer that goes on with other settings: what is unfrozen trains as in PyTorch, and all that was learnt is carried over.

use std::collections::BTreeMap;

use crate::checkpoints::{EPOCHS, STEPS, bits, data};
use tightfit::nn::{Lstm, Model, Sequential};
use tightfit::train::{
    Callback, Checkpoint, Checkpoints, Config, DeviceSelector, FitOptions, Group, Length, Loss, Optimizer, Trainer,
    Unfreeze,
};

/// Parameters of `lstm1`, `linear1` and `linear2`.
fn model() -> Model {
    Sequential::new("small", [6, 3]).push(Lstm::new(5)).dropout(0.3).linear(4).tanh().linear(3).into()
}

fn config() -> Config {
    Config::default().batch(4).optimizer(Optimizer::adam(0.01)).seed(3)
}

fn trainer(config: Config) -> Trainer {
    Trainer::new(model(), config, DeviceSelector::Cpu).expect("a trainer")
}

fn values(trainer: &mut Trainer) -> BTreeMap<String, Vec<f32>> {
    trainer.parameters().expect("reads").into_iter().map(|(name, (_, values))| (name, values)).collect()
}

/// Adam as PyTorch writes it, which counts the steps of each parameter by itself.
#[derive(Default)]
struct Adam(BTreeMap<String, (i32, Vec<[f64; 2]>)>);

impl Adam {
    fn step(&mut self, name: &str, values: &mut [f64], gradient: &[f32]) {
        let (step, moments) = self.0.entry(name.to_owned()).or_insert_with(|| (0, vec![[0.0; 2]; gradient.len()]));
        *step += 1;
        for ((x, &g), [m, v]) in values.iter_mut().zip(gradient).zip(moments) {
            let g = f64::from(g);
            *m = 0.9 * *m + 0.1 * g;
            *v = 0.999 * *v + 0.001 * g * g;
            let (mean, variance) = (*m / (1.0 - 0.9_f64.powi(*step)), *v / (1.0 - 0.999_f64.powi(*step)));
            *x -= 0.01 * mean / (variance.sqrt() + 1e-8);
        }
    }
}

#[test]
fn what_is_unfrozen_trains_as_in_pytorch() {
    let model = || Sequential::new("small", [6, 3]).flatten().linear(4).tanh().linear(4).tanh().linear(3);
    let mut trainer = Trainer::new(model(), config().train_only("linear3."), DeviceSelector::Cpu).expect("a trainer");
    let mut gradients = Trainer::for_gradients(model(), config(), DeviceSelector::Cpu).expect("a trainer");
    let mut expected: BTreeMap<_, Vec<f64>> =
        values(&mut trainer).into_iter().map(|(name, x)| (name, x.into_iter().map(f64::from).collect())).collect();
    let mut adam = Adam::default();
    for step in 0..12 {
        match step {
            4 => trainer.unfreeze("linear2.").expect("a plan"),
            8 => trainer.unfreeze("").expect("a plan"),
            _ => {}
        }
        let is_trained =
            |name: &str| step >= 8 || (step >= 4 && name.starts_with("linear2.")) || name.starts_with("linear3.");
        let indices: Vec<_> = (0..4).map(|i| (step * 4 + i) % 20).collect();
        for (name, values) in &expected {
            assert_eq!(trainer.frozen().contains(name), !is_trained(name), "{name}");
            let values: Vec<_> = values.iter().map(|&x| x as f32).collect();
            gradients.set_parameter(name, &values).expect("writes");
        }
        let found = gradients.gradients(&data(), &indices).expect("gradients");
        for (name, (_, gradient)) in found.parameters.iter().filter(|(name, _)| is_trained(name)) {
            adam.step(name, expected.get_mut(name).expect("a parameter"), gradient);
        }
        trainer.step(&data(), &indices).expect("a step");
        for (name, found) in values(&mut trainer) {
            for (&a, &b) in found.iter().zip(&expected[&name]) {
                assert!((f64::from(a) - b).abs() < 1e-5, "step {step}, {name}: {a}, not {b}");
            }
        }
    }
}

#[test]
fn all_that_was_learnt_is_carried_over() {
    let mut trainer = trainer(config().loss(Loss::default()));
    for first in [0, 4, 8] {
        trainer.step(&data(), &[first, first + 1, first + 2, first + 3]).expect("a step");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let before = bits(&mut trainer, folder.path());
    let least = trainer.plan().minimum_budget_bytes;
    assert!(least < trainer.plan().peak_bytes);
    // Another plan for the same.
    trainer.reconfigure(|config| config.budget_bytes(least)).expect("a plan");
    assert_eq!(trainer.plan().peak_bytes, least);
    assert_eq!(bits(&mut trainer, folder.path()), before);
    // Averages begin with the parameters as they are.
    trainer.reconfigure(|config| Config { budget_bytes: None, ..config }.ema_decay(0.9)).expect("a plan");
    let parameters = values(&mut trainer);
    let averages = trainer.with_averages(|trainer| Ok(values(trainer))).expect("reads");
    assert_eq!(averages, parameters);
    // What is frozen takes no state, and begins anew.
    assert!(trainer.optimizer_state("linear1.weight", "exp_avg").expect("reads").is_some());
    trainer.freeze("linear1").expect("a plan");
    assert_eq!(trainer.optimizer_state("linear1.weight", "exp_avg").expect("reads"), None);
    let kept = trainer.optimizer_state("linear2.weight", "exp_avg").expect("reads").expect("trained");
    assert!(kept.iter().any(|&x| x != 0.0));
    trainer.unfreeze("linear1").expect("a plan");
    let anew = trainer.optimizer_state("linear1.weight", "exp_avg").expect("reads").expect("trained");
    assert!(anew.iter().all(|&x| x == 0.0));
    assert_eq!(trainer.optimizer_state("linear2.weight", "exp_avg").expect("reads"), Some(kept));
    assert_eq!(values(&mut trainer), parameters);
}

#[test]
fn parts_of_what_is_frozen_are_unfrozen() {
    let frozen = |trainer: &Trainer| trainer.frozen().iter().cloned().collect::<Vec<_>>();
    let mut trainer =
        Trainer::new(model(), config().freeze("linear1").freeze("lstm1"), DeviceSelector::Cpu).expect("a trainer");
    trainer.unfreeze("linear1.bias").expect("a plan");
    assert!(!frozen(&trainer).contains(&"linear1.bias".to_owned()));
    assert!(frozen(&trainer).contains(&"linear1.weight".to_owned()));
    assert!(frozen(&trainer).iter().any(|name| name.starts_with("lstm1")));
    trainer.unfreeze("l").expect("a plan");
    assert_eq!(frozen(&trainer), [""; 0]);
}

#[test]
fn what_makes_no_sense_changes_nothing() {
    let mut trainer = trainer(config().group(Group::prefix("linear1.").lr_factor(0.0)));
    let (before, plan) = (values(&mut trainer), trainer.plan().clone());
    let word = |result: Result<(), tightfit::error::TrainError>| result.expect_err("refused").to_string();
    for (error, expected) in [
        (word(trainer.unfreeze("linear1.")), "`linear1.bias` is in a group whose lr_factor is 0"),
        (word(trainer.unfreeze("liner2")), "no parameter's name begins with `liner2`; did you mean `linear2"),
        (word(trainer.freeze("l")), "all parameters are frozen"),
        (word(trainer.freeze("head")), "freeze: no parameter's name begins with `head`"),
        (word(trainer.reconfigure(|config| config.budget_bytes(100))), "budget"),
        (word(trainer.reconfigure(|config| config.ema_decay(2.0))), "ema_decay = 2"),
        (word(trainer.reconfigure(|config| config.batch(0))), "batch"),
    ] {
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!((values(&mut trainer), trainer.plan()), (before, &plan));
    trainer.step(&data(), &[0, 1, 2, 3]).expect("a step");
}

fn options<'a>(callbacks: Vec<&'a mut dyn Callback>) -> FitOptions<'a> {
    FitOptions { callbacks, ..FitOptions::epochs(EPOCHS) }
}

#[test]
fn a_fit_that_unfreezes_resumes_at_any_step_bit_for_bit() {
    let frozen = || config().train_only("linear2.").ema_decay(0.9);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path();
    let callbacks = || (Unfreeze::parameters("linear1.", Length::Steps(3)), Unfreeze::all(Length::Epochs(2.0)));
    let checkpoints = Checkpoints::new(folder.join("checkpoints")).every_steps(1).keep(100);
    let (mut part, mut all) = callbacks();
    let mut whole = trainer(frozen());
    let fitted = FitOptions { checkpoints: Some(checkpoints), ..options(vec![&mut part, &mut all]) };
    whole.fit(&data(), fitted).expect("trains");
    assert!(whole.frozen().is_empty());
    let expected = bits(&mut whole, folder);
    // It was known before the first step.
    let mut later = trainer(frozen());
    let plan = Unfreeze::all(Length::Steps(1)).plan(&later).expect("a plan").plan;
    later.step(&data(), &[0, 1, 2, 3]).expect("a step");
    later.unfreeze("").expect("a plan");
    assert_eq!(later.plan(), &plan);
    // Nothing is unfrozen too early or too late.
    let state_of = |step: u64| std::fs::read(folder.join(format!("checkpoints/step-{step:08}/optimizer.safetensors")));
    let lens: Vec<_> = (1..=STEPS).map(|step| state_of(step).expect("reads").len()).collect();
    assert!(lens[1] < lens[2] && lens[2] == lens[8] && lens[8] < lens[9] && lens[9] == lens[14], "{lens:?}");
    for step in 1..STEPS {
        let checkpoint = Checkpoint::open(folder.join(format!("checkpoints/step-{step:08}"))).expect("whole");
        let resumed = Trainer::resume(model(), frozen(), DeviceSelector::Cpu, &checkpoint).expect("the same training");
        let mut restored = trainer(frozen());
        restored.restore(&checkpoint).expect("the same training");
        for mut trainer in [resumed, restored] {
            let (mut part, mut all) = callbacks();
            trainer.fit(&data(), options(vec![&mut part, &mut all])).expect("trains");
            assert_eq!(bits(&mut trainer, folder), expected, "from step {step}");
        }
    }
}

#[test]
fn what_will_not_fit_is_known_before_the_first_step() {
    let head = config().train_only("linear2.");
    let mut free = trainer(head.clone());
    let all = trainer(config()).plan().minimum_budget_bytes;
    let budget = free.plan().minimum_budget_bytes;
    assert!(budget < all);
    let mut tight = trainer(head.budget_bytes(budget));
    let mut unfreeze = Unfreeze::all(Length::Epochs(1.0));
    assert!(unfreeze.plan(&free).expect("a plan").plan.peak_bytes >= trainer(config()).plan().peak_bytes);
    let options = FitOptions { callbacks: vec![&mut unfreeze as &mut dyn Callback], ..FitOptions::epochs(2) };
    let error = tight.fit(&data(), options).expect_err("refused").to_string();
    assert!(error.contains("budget"), "{error}");
    assert_eq!(tight.steps(), 0);
    let mut wrong = Unfreeze::parameters("head", Length::Steps(1));
    let options = FitOptions { callbacks: vec![&mut wrong as &mut dyn Callback], ..FitOptions::epochs(2) };
    assert!(
        free.fit(&data(), options).expect_err("refused").to_string().contains("no parameter's name begins with `head`")
    );
}

//! What a loop of one's own is made of: formulas as losses, several outputs, weights of samples, short batches, gradients, what is
//! frozen, averages, clipping.

use tightfit::data::{Order, Targets, TensorDataset, Values};
use tightfit::error::TrainError;
use tightfit::nn::{BatchNorm, Linear, Lstm, Model, Sequential, Tensor};
use tightfit::train::{
    Callback, Clip, Config, Criterion, DeviceSelector, FitOptions, Head, Length, Loss, LrRange, Optimizer, Schedule,
    StepReport, Trainer, plan,
};

const SAMPLES: usize = 12;

fn numbers(salt: usize, count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + salt * 104_729) % 1009) as f32 / 1009.0 - 0.5).collect()
}

fn values(numel: usize) -> Targets {
    Targets::Values { values: numbers(2, SAMPLES * numel), shape: [numel].into() }
}

fn data(targets: Targets) -> TensorDataset {
    TensorDataset::new(Values::F32(numbers(1, SAMPLES * 4)), [4], targets).expect("fits")
}

fn body() -> Sequential {
    Sequential::new("small", [4]).linear(5).tanh().linear(2)
}

fn trainer(model: impl Into<Model>, config: Config) -> Trainer {
    Trainer::new(model, config, DeviceSelector::Cpu).expect("a trainer")
}

fn parameters(trainer: &mut Trainer) -> Vec<f32> {
    trainer.parameters().expect("reads").into_values().flat_map(|(_, values)| values).collect()
}

fn assert_close(one: &[f32], other: &[f32], tolerance: f32) {
    assert_eq!(one.len(), other.len());
    for (a, b) in one.iter().zip(other) {
        assert!((a - b).abs() <= tolerance * (1.0 + a.abs()), "{a} and {b}");
    }
}

#[derive(Debug)]
struct Squared;

impl Criterion for Squared {
    fn name(&self) -> &str {
        "squared"
    }

    fn loss<'a>(&self, prediction: Tensor<'a>, target: Tensor<'a>) -> Tensor<'a> {
        let difference = prediction - target;
        difference * difference
    }
}

#[test]
fn a_formula_is_as_good_as_a_loss() {
    for micro_batches in [1, 3] {
        let of = |loss| {
            let mut trainer = trainer(body(), Config::default().batch(SAMPLES).micro_batches(micro_batches).loss(loss));
            let report = trainer.fit(&data(values(2)), FitOptions::epochs(20)).expect("trains");
            (report.train_loss, trainer.evaluate(&data(values(2))).expect("evaluates").loss, parameters(&mut trainer))
        };
        let (built_in, formula) = (of(Loss::Mse), of(Loss::custom(Squared)));
        assert!((built_in.0 - formula.0).abs() < 1e-6 && (built_in.1 - formula.1).abs() < 1e-6);
        assert_close(&built_in.2, &formula.2, 1e-4);
    }
    #[derive(Debug)]
    struct Wrong;
    impl Criterion for Wrong {
        fn name(&self) -> &str {
            "wrong"
        }
        fn loss<'a>(&self, prediction: Tensor<'a>, _: Tensor<'a>) -> Tensor<'a> {
            prediction.reshape([1]).slice(0, 0, 3)
        }
    }
    let error = Trainer::new(body(), Config::default().batch(SAMPLES).loss(Loss::custom(Wrong)), DeviceSelector::Cpu);
    assert!(!error.expect_err("the first axis is not the samples'").to_string().is_empty());
}

#[test]
fn losses_of_several_outputs_are_added() {
    let model = Model::new("two-heads", [4], |x| {
        let x = x.layer("body", Linear::new(5)).tanh();
        x.layer("size", Linear::new(1)).output("size");
        x.layer("class", Linear::new(3))
    });
    let labels = Targets::labels((0..SAMPLES as u32).map(|i| i % 3).collect(), 3);
    let data = data(labels).with_input("sizes", Values::F32(numbers(3, SAMPLES)), [1]).expect("fits");
    let loss = |heads: &[Head], loss_weight| {
        let mut config = Config::default().batch(SAMPLES).loss_weight(loss_weight);
        config.heads = heads.to_vec();
        let mut trainer = trainer(model.clone(), config);
        let before = f64::from(trainer.step(&data, &(0..SAMPLES).collect::<Vec<_>>()).expect("a step").loss);
        let outputs = trainer.predict_all(&data).expect("predicts");
        assert_eq!(outputs["size"].shape[..], [SAMPLES, 1]);
        assert_eq!(outputs["output"].shape[..], [SAMPLES, 3]);
        let after = trainer.evaluate(&data).expect("evaluates").loss;
        assert!(after < before);
        before
    };
    let head = |weight: f32| Head::new("size", "sizes", Loss::Mse).weight(weight);
    let (class, both, more) = (loss(&[], 1.0), loss(&[head(1.0)], 1.0), loss(&[head(3.0)], 0.5));
    let size = both - class;
    assert!(size > 0.0 && (more - (0.5 * class + 3.0 * size)).abs() < 1e-5, "{class} {both} {more}");
    let error = |head: Head| {
        let config = Config::default().batch(SAMPLES).head(head);
        let result = Trainer::new(model.clone(), config, DeviceSelector::Cpu);
        result.and_then(|mut trainer| trainer.step(&data, &(0..SAMPLES).collect::<Vec<_>>())).expect_err("refused")
    };
    let text = error(Head::new("sise", "sizes", Loss::Mse)).to_string();
    assert!(text.contains("did you mean `size`?"), "{text}");
    assert!(error(Head::new("size", "length", Loss::Mse)).to_string().contains("`length`, which the data lacks"));
    assert!(error(head(f32::NAN)).to_string().contains("it must be finite"));
}

#[test]
fn a_weight_of_two_is_a_sample_twice() {
    for loss in [Loss::Mse, Loss::custom(Squared), Loss::Huber { delta: 0.3 }] {
        let weights: Vec<f32> = (0..SAMPLES).map(|i| if i < 4 { 2.0 } else { 0.0 }).collect();
        let config = Config::default().loss(loss).optimizer(Optimizer::sgd(0.1)).batch(SAMPLES);
        let weighted = data(values(2)).with_sample_weights(weights).expect("fits");
        let mut one = trainer(body(), config.clone().sample_weights(true));
        one.step(&weighted, &(0..SAMPLES).collect::<Vec<_>>()).expect("a step");
        // Eight of twelve count: the first four twice, and the others not at all.
        let mut other = trainer(body(), config.batch(8).optimizer(Optimizer::sgd(0.1 * 8.0 / 12.0)));
        other.step(&data(values(2)), &[0, 1, 2, 3, 0, 1, 2, 3]).expect("a step");
        assert_close(&parameters(&mut one), &parameters(&mut other), 1e-6);
    }
    let lacks =
        Trainer::new(body(), Config::default().loss(Loss::Mse).batch(4).sample_weights(true), DeviceSelector::Cpu)
            .expect("a trainer")
            .step(&data(values(2)), &[0, 1, 2, 3]);
    assert!(lacks.expect_err("no weights").to_string().contains("`sample_weight`, which the data lacks"));
    assert!(data(values(2)).with_sample_weights(vec![-1.0; SAMPLES]).is_err());
}

#[test]
fn a_short_batch_is_one_of_its_size() {
    let labels = || Targets::labels((0..SAMPLES as u32).map(|i| i % 2).collect(), 2);
    let weighted = Loss::CrossEntropy {
        label_smoothing: 0.0,
        ignore_index: None,
        class_weights: vec![1.0, 3.0],
        classes_last: false,
        from_logits: true,
    };
    for (loss, targets) in
        [(Loss::Mse, values(2)), (Loss::default(), labels()), (weighted, labels()), (Loss::custom(Squared), values(2))]
    {
        for micro_batches in [1, 2, 4] {
            let config = Config::default().loss(loss.clone()).optimizer(Optimizer::sgd(0.1)).batch(8);
            let mut short = trainer(body(), config.clone().drop_last(false).micro_batches(micro_batches));
            let found = short.step(&data(targets.clone()), &[3, 5, 7]).expect("a short step");
            let mut exact = trainer(body(), config.batch(3));
            let expected = exact.step(&data(targets.clone()), &[3, 5, 7]).expect("a step");
            assert!((found.loss - expected.loss).abs() < 1e-5, "{loss}: {} and {}", found.loss, expected.loss);
            assert_eq!((found.accuracy(), found.samples), (expected.accuracy(), 3));
            assert_close(&parameters(&mut short), &parameters(&mut exact), 1e-5);
        }
    }
    // Twelve samples are two batches: of eight, and of four.
    let mut trainer_ = trainer(body(), Config::default().batch(8).drop_last(false));
    assert_eq!(trainer_.fit(&data(labels()), FitOptions::epochs(3)).expect("trains").steps, 6);
    let mixed = Sequential::new("mixed", [4]).linear(3).push(BatchNorm::new()).linear(2);
    let error = trainer(mixed, Config::default().batch(8).drop_last(false)).fit(&data(labels()), FitOptions::epochs(1));
    let text = error.expect_err("batch norm").to_string();
    assert!(text.contains("`bn1` mixes the samples of a batch"), "{text}");
    let carries = Sequential::new("carries", [2, 2]).push(Lstm::new(3).stateful(true)).linear(2);
    let data = TensorDataset::new(Values::F32(numbers(1, SAMPLES * 4)), [2, 2], labels()).expect("fits");
    let error = trainer(carries, Config::default().batch(8).drop_last(false)).fit(&data, FitOptions::epochs(1));
    assert!(error.expect_err("states").to_string().contains("carries states"));
}

#[test]
fn gradients_are_what_a_step_follows() {
    let lr = 0.5;
    for (micro_batches, clip) in [(1, None), (3, None), (1, Some(Clip::Value(0.01))), (2, Some(Clip::TensorNorm(0.02)))]
    {
        let config = Config::default().loss(Loss::Mse).batch(SAMPLES).micro_batches(micro_batches);
        let config = Config { clip, ..config.optimizer(Optimizer::sgd(lr)) };
        let all: Vec<_> = (0..SAMPLES).collect();
        let mut looks = Trainer::for_gradients(body(), config.clone(), DeviceSelector::Cpu).expect("a trainer");
        let gradients = looks.gradients(&data(values(2)), &all).expect("gradients");
        assert_eq!(gradients, looks.gradients(&data(values(2)), &all).expect("the same again"));
        let mut steps = trainer(body(), config);
        let before = steps.parameters().expect("reads");
        let outcome = steps.step(&data(values(2)), &all).expect("a step");
        assert!((outcome.loss - gradients.loss).abs() < 1e-6);
        for (name, (_, after)) in steps.parameters().expect("reads") {
            let gradient = &gradients.parameters[&name].1;
            let norm = gradient.iter().map(|g| g * g).sum::<f32>().sqrt();
            let clipped = |g: f32| match clip {
                Some(Clip::Value(most)) => g.clamp(-most, most),
                Some(Clip::TensorNorm(most)) => g * (most / (norm + 1e-6)).min(1.0),
                _ => g,
            };
            let expected: Vec<_> =
                before[&name].1.iter().zip(gradient).map(|(w, g)| w - lr as f32 * clipped(*g)).collect();
            assert_close(&after, &expected, 1e-6);
        }
        // Of the samples: by a small change of one.
        let input = gradients.input.expect("of numbers");
        assert_eq!(input.shape[..], [SAMPLES, 4]);
        let change = 1e-2;
        let loss = |delta: f32| {
            let mut samples = numbers(1, SAMPLES * 4);
            samples[6] += delta;
            let data = TensorDataset::new(Values::F32(samples), [4], values(2)).expect("fits");
            let mut looks = trainer(body(), Config::default().loss(Loss::Mse).batch(SAMPLES));
            looks.evaluate(&data).expect("evaluates").loss
        };
        let slope = (loss(change) - loss(-change)) / f64::from(2.0 * change);
        assert!((slope - f64::from(input.values[6])).abs() < 1e-4, "{slope} and {}", input.values[6]);
        assert!(
            steps.gradients(&data(values(2)), &all).expect_err("not made for it").to_string().contains("for_gradients")
        );
        assert!(looks.step(&data(values(2)), &all).expect_err("not made for it").to_string().contains("Trainer::new"));
    }
}

#[test]
fn what_is_frozen_takes_nothing() {
    let model = || Sequential::new("deep", [4]).linear(64).relu().linear(64).relu().linear(2);
    let config = || Config::default().loss(Loss::Mse).batch(SAMPLES);
    let planned = |config: Config| plan(model(), &config, &tightfit::plan::Limits::default()).expect("plans").plan;
    let state_bytes = |plan: &tightfit::plan::Plan| {
        let states = plan.persistent.iter().filter(|value| value.role == tightfit::graph::Role::State);
        states.map(|value| value.desc.size_bytes()).sum::<u64>()
    };
    let (all, head) = (planned(config()), planned(config().train_only("linear3.")));
    assert_eq!(state_bytes(&head), 2 * 4 * (64 * 2 + 2));
    assert!(head.peak_bytes < all.peak_bytes && head.programs[0].commands.len() < all.programs[0].commands.len());
    // However it is said.
    let by_groups = |factor| config().group(tightfit::train::Group::prefix("linear1.").lr_factor(factor));
    assert_eq!(planned(by_groups(0.0)), planned(config().freeze("linear1.")));
    assert!(state_bytes(&planned(by_groups(0.5))) > state_bytes(&planned(by_groups(0.0))));
    let mut trainer = trainer(model(), config().train_only("linear3."));
    let before = trainer.parameters().expect("reads");
    trainer.fit(&data(values(2)), FitOptions::epochs(3)).expect("trains");
    for (name, (_, values)) in trainer.parameters().expect("reads") {
        assert_eq!(values == before[&name].1, !name.starts_with("linear3."), "{name}");
    }
    for (config, word) in [
        (config().freeze("linear"), "all parameters are frozen"),
        (config().freeze("liner1"), "freeze: no parameter's name begins with `liner1`; did you mean `linear1`?"),
        (config().train_only("head."), "train_only: no parameter's name begins with `head.`"),
    ] {
        let error = Trainer::new(model(), config, DeviceSelector::Cpu).expect_err("refused").to_string();
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn averages_follow_and_are_put_back() {
    let decay = 0.75_f32;
    let config = Config::default().loss(Loss::Mse).batch(4).optimizer(Optimizer::sgd(0.1)).ema_decay(decay);
    let mut trainer = trainer(body(), config);
    let mut expected = parameters(&mut trainer);
    for step in 0..5 {
        let first = step * 2;
        trainer.step(&data(values(2)), &[first, first + 1, first + 2, first + 3]).expect("a step");
        for (average, now) in expected.iter_mut().zip(parameters(&mut trainer)) {
            *average = decay * *average + (1.0 - decay) * now;
        }
    }
    let now = parameters(&mut trainer);
    let averages = trainer.with_averages(|trainer| Ok(parameters(trainer))).expect("reads");
    assert_close(&averages, &expected, 1e-6);
    assert_ne!(averages, now);
    assert_eq!(parameters(&mut trainer), now);
}

#[test]
fn a_schedule_is_followed_and_changed() {
    let config = Config::default().loss(Loss::Mse).batch(4).optimizer(Optimizer::sgd(0.1)).schedule(Schedule::cosine());
    let mut trainer = trainer(body(), config);
    let mut rates = Vec::new();
    let mut on_step = |step: &tightfit::train::StepReport| rates.push(step.lr);
    trainer.fit(&data(values(2)), FitOptions { on_step: Some(&mut on_step), ..FitOptions::epochs(2) }).expect("trains");
    assert_eq!((rates.len(), rates[0]), (6, 0.1));
    assert!(rates.windows(2).all(|pair| pair[1] < pair[0]), "{rates:?}");
    assert!((rates[3] - 0.05).abs() < 1e-12);
    trainer.set_lr(0.2).expect("a rate");
    assert!(trainer.set_lr(f64::NAN).is_err());
}

#[test]
fn predictions_go_on_and_need_no_targets() {
    let whole: Vec<f32> = numbers(1, 2 * 8 * 3);
    let part = |first: usize| {
        let of = |sample: usize| whole[sample * 24 + first * 3..sample * 24 + (first + 4) * 3].to_vec();
        TensorDataset::unlabeled(Values::F32([of(0), of(1)].concat()), [4, 3]).expect("fits")
    };
    let config = || Config::default().loss(Loss::Mse).batch(2);
    let model =
        |time: usize, stateful: bool| Sequential::new("series", [time, 3]).push(Lstm::new(4).stateful(stateful));
    let mut stateful = trainer(model(4, true), config());
    let expected = trainer(model(8, false), config())
        .predict(&TensorDataset::unlabeled(Values::F32(whole.clone()), [8, 3]).expect("fits"))
        .expect("predicts");
    assert_eq!(expected.shape[..], [2, 4]);
    for _ in 0..2 {
        let first = stateful.predict_next(&part(0)).expect("predicts");
        // Others do not disturb it.
        assert_eq!(stateful.predict(&part(0)).expect("predicts"), first);
        assert_eq!(stateful.predict_next(&part(4)).expect("predicts").values, expected.values);
        stateful.reset_state().expect("resets");
    }
    assert!(stateful.evaluate(&part(0)).expect_err("no targets").to_string().contains("has no targets"));
}

#[test]
fn a_learning_rate_is_found_and_nothing_is_changed() {
    // One batch has all samples: losses of others would differ by more than they fall.
    let config = Config::default().loss(Loss::Mse).batch(SAMPLES).optimizer(Optimizer::sgd(0.1));
    let mut trainer = trainer(body(), config);
    trainer.step(&data(values(2)), &(0..SAMPLES).collect::<Vec<_>>()).expect("a step");
    let before = (trainer.parameters_sha256().expect("reads"), trainer.steps(), trainer.lr());
    let range = LrRange { min_lr: 1e-4, max_lr: 1e4, steps: 60 };
    let found = trainer.find_lr(&data(values(2)), range).expect("searches");
    let suggestion = found.suggestion.expect("the loss falls somewhere");
    assert!((1e-3..10.0).contains(&suggestion), "{suggestion}");
    // It diverges long before the end.
    assert!(found.points.len() < 60 && found.points.windows(2).all(|pair| pair[0].0 < pair[1].0));
    assert_eq!((trainer.parameters_sha256().expect("reads"), trainer.steps(), trainer.lr()), before);
    assert!(trainer.find_lr(&data(values(2)), LrRange { min_lr: 1.0, ..range }).is_ok());
    assert!(trainer.find_lr(&data(values(2)), LrRange { max_lr: 1e-5, ..range }).is_err());
}

#[test]
fn a_loop_of_ones_own_has_lengths_in_steps() {
    for (schedule, word) in [
        (Schedule::cosine(), "goes over all steps of a fit"),
        (Schedule::sequence([Schedule::constant(), Schedule::one_cycle()], [Length::Steps(2)]), "goes over all steps"),
        (Schedule::step(Length::Epochs(1.0), 0.5), "lengths in epochs"),
        (Schedule::constant().with_warmup(Length::Epochs(1.0), 0.1), "lengths in epochs"),
    ] {
        let config = Config::default().loss(Loss::Mse).batch(4).schedule(schedule.clone());
        let mut trainer = trainer(body(), config);
        let error = trainer.step(&data(values(2)), &[0, 1, 2, 3]).expect_err("refused").to_string();
        assert!(error.contains(word), "{error}");
        // A fit knows both, and a loop after it goes on as it did.
        trainer.fit(&data(values(2)), FitOptions::epochs(1)).expect("trains");
        trainer.step(&data(values(2)), &[0, 1, 2, 3]).expect("a step");
    }
}

/// Looks at the model after each step, where inputs of the next are on the device already.
struct Looks(TensorDataset);

impl Callback for Looks {
    fn name(&self) -> &str {
        "looks"
    }

    fn on_step_end(&mut self, trainer: &mut Trainer, _: &StepReport) -> Result<(), TrainError> {
        trainer.evaluate(&self.0)?;
        trainer.predict(&self.0).map(drop)
    }
}

#[test]
fn what_a_callback_evaluates_does_not_change_the_next_step() {
    let config = || Config::default().batch(4).loss(Loss::Mse).seed(1);
    let train = |callbacks: Vec<&mut dyn Callback>| {
        let mut trainer = trainer(body(), config());
        let options = FitOptions { callbacks, ..FitOptions::epochs(3) };
        let report = trainer.fit(&data(values(2)), options).expect("trains");
        (report.train_loss, parameters(&mut trainer))
    };
    // Other samples than those that are trained on.
    let other = TensorDataset::new(
        Values::F32(numbers(9, 40)),
        [4],
        Targets::Values { values: numbers(3, 20), shape: [2].into() },
    );
    let mut looks = Looks(other.expect("fits"));
    assert_eq!(train(vec![&mut looks]), train(Vec::new()));
}

#[test]
fn samples_are_trained_on_in_the_order_that_is_asked_for() {
    let config = || Config::default().batch(4).loss(Loss::Mse).seed(1);
    let fit = |order| {
        let mut trainer = trainer(body(), config());
        trainer.fit(&data(values(2)), FitOptions { order, ..FitOptions::epochs(2) }).expect("trains");
        parameters(&mut trainer)
    };
    let mut by_hand = trainer(body(), config());
    for first in [0, 4, 8, 0, 4, 8] {
        by_hand.step(&data(values(2)), &[first, first + 1, first + 2, first + 3]).expect("a step");
    }
    assert_eq!(fit(Some(Order::Sequential)), parameters(&mut by_hand));
    assert_eq!(fit(Some(Order::Shuffled { seed: 1 })), fit(None));
    assert_ne!(fit(Some(Order::Shuffled { seed: 2 })), fit(None));
}

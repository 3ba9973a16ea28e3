//! Losses and optimizers as the trainer uses them: what PyTorch computes, the same gradients in micro-batches, the same loss
//! in training and evaluation, and parameters that follow.

use std::collections::BTreeMap;

use tightfit::data::{Targets, TensorDataset, Values};
use tightfit::nn::{
    BatchNorm, Conv2d, Flatten, HardSigmoid, Hardtanh, Layer, Linear, LogSoftmax, Model, Sequential, Sigmoid, Softmax,
};
use tightfit::plan::{ArenaRole, Limits};
use tightfit::tensor::Shape;
use tightfit::train::{self, Config, DeviceSelector, FitOptions, Group, Loss, Optimizer, Trainer};

const SAMPLES: usize = 7;

/// Numbers in -1..1 from a key.
fn numbers(key: &str, count: usize) -> Vec<f32> {
    crate::common::recipe::weights(key, count, 1)
}

fn dataset(shape: &[usize], targets: Targets) -> TensorDataset {
    let numel: usize = shape.iter().product();
    TensorDataset::new(Values::F32(numbers("samples", SAMPLES * numel)), shape.to_vec(), targets).expect("fits")
}

/// Labels below 3, where 0 is much rarer than the others and each micro-batch has other numbers of each.
fn labels(shape: &[usize]) -> Targets {
    let numel: usize = shape.iter().product();
    let draw = |x: &f32| if *x < -0.8 { 0 } else { 1 + u32::from(*x > 0.3) };
    let labels = numbers("labels", SAMPLES * numel).iter().map(draw).collect();
    Targets::label_maps(labels, 3, shape.to_vec())
}

fn values(shape: &[usize]) -> Targets {
    let numel: usize = shape.iter().product();
    let values = numbers("values", SAMPLES * numel).iter().map(|x| x.abs()).collect();
    Targets::Values { values, shape: Shape::from(shape) }
}

/// Three classes at each of 5 x 7 pixels.
fn pixels() -> Model {
    Sequential::new("pixels", [2, 5, 7]).push(Conv2d::new(3, 3).padding(1)).into()
}

fn cross_entropy(label_smoothing: f32, ignore_index: Option<i64>, class_weights: &[f32]) -> Loss {
    let class_weights = class_weights.to_vec();
    Loss::CrossEntropy { label_smoothing, ignore_index, class_weights, classes_last: false, from_logits: true }
}

/// Losses with a model and data that they fit.
fn problems() -> Vec<(Loss, Model, TensorDataset)> {
    let weights = [0.25, 2.0, 1.5];
    let ignoring_dice = Loss::Dice { sigmoid: false, smooth: 1.0, ignore_index: Some(1) };
    let maps = || dataset(&[2, 5, 7], labels(&[5, 7]));
    let numbers = || dataset(&[2, 5, 7], values(&[3, 5, 7]));
    let mut problems = Vec::new();
    for loss in [
        cross_entropy(0.0, None, &[]),
        cross_entropy(0.1, None, &[]),
        cross_entropy(0.0, Some(1), &[]),
        cross_entropy(0.0, None, &weights),
        cross_entropy(0.2, Some(2), &weights),
        Loss::dice(),
        ignoring_dice.clone(),
        Loss::Sum { terms: vec![(1.0, cross_entropy(0.0, Some(1), &weights)), (0.5, ignoring_dice)] },
    ] {
        problems.push((loss, pixels(), maps()));
    }
    for loss in [
        Loss::SoftCrossEntropy { label_smoothing: 0.1, class_weights: weights.to_vec(), from_logits: true },
        Loss::Dice { sigmoid: true, smooth: 1.0, ignore_index: None },
        Loss::bce_with_logits(),
        Loss::BceWithLogits { pos_weight: vec![3.0] },
        Loss::BceWithLogits { pos_weight: weights.to_vec() },
        Loss::Mse,
        Loss::Mae,
        Loss::Huber { delta: 0.3 },
        Loss::Sum { terms: vec![(0.5, Loss::Mae), (2.0, Loss::bce_with_logits())] },
    ] {
        problems.push((loss, pixels(), numbers()));
    }
    let steps = Sequential::new("steps", [4, 5]).linear(3);
    let last = Loss::CrossEntropy {
        label_smoothing: 0.1,
        ignore_index: Some(0),
        class_weights: weights.to_vec(),
        classes_last: true,
        from_logits: true,
    };
    problems.push((last, steps.into(), dataset(&[4, 5], labels(&[4]))));
    problems
}

/// The loss of a step and the gradients, which SGD's momentum is after the first one; and what evaluation says beforehand.
fn first_step(
    loss: &Loss,
    model: &Model,
    data: &TensorDataset,
    split: usize,
    device: &str,
) -> (Found, BTreeMap<String, Vec<f32>>) {
    let optimizer = Optimizer::Sgd { lr: 0.01, momentum: 0.9, nesterov: false, weight_decay: 0.0 };
    let config = Config::default().loss(loss.clone()).batch(SAMPLES).micro_batches(split).optimizer(optimizer);
    let mut trainer = Trainer::new(model.clone(), config, Some(device)).expect("trainer");
    let evaluation = trainer.evaluate(data).expect("evaluate");
    let outcome = trainer.step(data, &(0..SAMPLES).collect::<Vec<_>>()).expect("step");
    let (loss, accuracy) = (outcome.loss, outcome.accuracy());
    let names: Vec<_> = trainer.parameters().expect("parameters").into_keys().collect();
    let gradient = |name: String| {
        let gradient = trainer.optimizer_state(&name, "momentum_buffer").expect("device").expect("momentum");
        (name, gradient)
    };
    let found = Found { loss, accuracy, evaluated: evaluation.loss, evaluated_accuracy: evaluation.accuracy };
    (found, names.into_iter().map(gradient).collect())
}

#[derive(Debug)]
struct Found {
    loss: f32,
    accuracy: Option<f32>,
    evaluated: f64,
    evaluated_accuracy: Option<f64>,
}

#[test]
fn micro_batches_and_evaluation_agree_with_the_whole_batch() {
    for device in crate::common::gpu().into_iter().chain(["cpu".to_owned()]) {
        for (loss, model, data) in problems() {
            let name = format!("{} on {device}", serde_json::to_string(&loss).expect("json"));
            let (whole, gradients) = first_step(&loss, &model, &data, 1, &device);
            assert!((f64::from(whole.loss) - whole.evaluated).abs() < 2e-6 * whole.evaluated, "{name}: {whole:?}");
            if let Some(accuracy) = whole.accuracy {
                let evaluated = whole.evaluated_accuracy.expect("labels");
                assert!((f64::from(accuracy) - evaluated).abs() < 1e-6, "{name}: {whole:?}");
            }
            for split in [2, 3, SAMPLES] {
                let (parts, found) = first_step(&loss, &model, &data, split, &device);
                assert!((whole.loss - parts.loss).abs() < 2e-6 * whole.loss, "{name}: {whole:?}, {parts:?}");
                assert_eq!(whole.accuracy, parts.accuracy, "{name}");
                for (parameter, expected) in &gradients {
                    let largest = expected.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
                    assert!(largest > 0.0, "{name}: the gradient of {parameter} is 0 everywhere");
                    for (a, b) in expected.iter().zip(&found[parameter]) {
                        assert!((a - b).abs() <= 1e-5 * largest, "{name}, {parameter} in {split} parts: {a} and {b}");
                    }
                }
            }
        }
    }
}

/// `torch.nn.functional.cross_entropy` of these logits and labels.
#[test]
fn weighted_and_masked_means_are_pytorchs() {
    let logits = [1.0, 2.0, -1.0, 0.5, -0.25, 3.0, 0.0, 1.0, 0.5, 2.0, 0.0, -2.0];
    let targets = Targets::labels(vec![0, 2, 1, 1], 3);
    let data = TensorDataset::new(Values::F32(logits.to_vec()), [3], targets).expect("fits");
    let weights = [0.5, 2.0, 1.0];
    for (loss, expected) in [
        (cross_entropy(0.0, None, &[]), 1.071_577_26),
        (cross_entropy(0.1, None, &[]), 1.140_327_26),
        (cross_entropy(0.0, None, &weights), 1.170_000_77),
        (cross_entropy(0.0, Some(2), &[]), 1.390_737_84),
        (cross_entropy(0.2, Some(2), &weights), 1.369_683_73),
        // Only the ratio of weights counts, whose sums would overflow and vanish.
        (cross_entropy(0.0, None, &weights.map(|weight| weight * 1e38)), 1.170_000_77),
        (cross_entropy(0.0, None, &weights.map(|weight| weight * 1e-38)), 1.170_000_77),
    ] {
        for micro_batches in [1, 4] {
            let config = Config::default().loss(loss.clone()).batch(4).micro_batches(micro_batches);
            let model = Sequential::new("identity", [3]).linear(3);
            let mut trainer = Trainer::new(model, config, DeviceSelector::Cpu).expect("trainer");
            trainer.set_parameter("linear1.weight", &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]).expect("weight");
            trainer.set_parameter("linear1.bias", &[0.0; 3]).expect("bias");
            let evaluated = trainer.evaluate(&data).expect("evaluate").loss;
            assert!((evaluated - expected).abs() < 1e-6, "{loss:?}: {evaluated}");
            let trained = trainer.step(&data, &[0, 1, 2, 3]).expect("step").loss;
            assert!((f64::from(trained) - expected).abs() < 1e-6, "{loss:?}: {trained}");
        }
    }
}

#[test]
fn a_step_in_which_no_label_counts_changes_nothing() {
    let data = dataset(&[2, 5, 7], Targets::label_maps(vec![9; SAMPLES * 35], 3, [5, 7]).ignoring(9));
    for loss in [cross_entropy(0.0, Some(9), &[]), Loss::Dice { sigmoid: false, smooth: 0.0, ignore_index: Some(9) }] {
        let config = Config::default().loss(loss).batch(SAMPLES).optimizer(Optimizer::sgd(0.1));
        let mut trainer = Trainer::new(pixels(), config, DeviceSelector::Cpu).expect("trainer");
        let before = trainer.parameters_sha256().expect("parameters");
        let outcome = trainer.step(&data, &(0..SAMPLES).collect::<Vec<_>>()).expect("step");
        assert_eq!((outcome.loss, outcome.accuracy()), (0.0, None));
        assert_eq!(trainer.parameters_sha256().expect("parameters"), before);
        let evaluation = trainer.evaluate(&data).expect("evaluate");
        assert_eq!((evaluation.loss, evaluation.accuracy), (0.0, None));
    }
}

/// Labels of 255 for void pixels, as Pascal VOC has them, are no classes, whatever the data count as such.
#[test]
fn labels_that_do_not_count_need_no_output() {
    let Targets::Labels { labels, .. } = labels(&[5, 7]) else { panic!("labels") };
    let void: Vec<u32> = labels.iter().map(|&label| if label == 0 { 255 } else { label }).collect();
    let maps = |labels: &[u32], classes| Targets::label_maps(labels.to_vec(), classes, [5, 7]);
    for loss in [
        cross_entropy(0.1, Some(255), &[]),
        cross_entropy(0.0, Some(255), &[1.0, 2.0, 0.5]),
        Loss::Dice { sigmoid: false, smooth: 0.0, ignore_index: Some(255) },
    ] {
        let first = |targets: Targets| {
            let (found, gradients) = first_step(&loss, &pixels(), &dataset(&[2, 5, 7], targets), 2, "cpu");
            (found.loss.to_bits(), found.accuracy, found.evaluated.to_bits(), found.evaluated_accuracy, gradients)
        };
        assert_eq!(first(maps(&void, 256)), first(maps(&void, 3).ignoring(255)), "{loss}");
        let mut stray = void.clone();
        stray[36] = 3;
        let mut trainer =
            Trainer::new(pixels(), Config::default().loss(loss.clone()).batch(SAMPLES), DeviceSelector::Cpu);
        let trainer = trainer.as_mut().expect("trainer");
        let error = trainer.evaluate(&dataset(&[2, 5, 7], maps(&stray, 256))).expect_err("3 outputs").to_string();
        assert!(
            error.contains("`target` of sample 1 holds 3 at [0, 1]") && error.contains("0 to 2, and 255"),
            "{error}"
        );
    }
}

#[test]
fn data_that_a_loss_cannot_take_is_refused() {
    let refused = |loss: Loss, data: TensorDataset| {
        let config = Config::default().loss(loss).batch(SAMPLES);
        let mut trainer = Trainer::new(pixels(), config, DeviceSelector::Cpu).expect("trainer");
        let fitted =
            trainer.fit(&data, FitOptions { epochs: 1, ..FitOptions::default() }).expect_err("fit").to_string();
        assert_eq!(trainer.evaluate(&data).expect_err("evaluate").to_string(), fitted);
        fitted
    };
    let pixels = [2, 5, 7];
    let error = refused(Loss::default(), dataset(&pixels, values(&[3, 5, 7])));
    assert!(error.contains("needs labels"), "{error}");
    let error = refused(Loss::Mae, dataset(&pixels, labels(&[5, 7])));
    assert!(error.contains("needs target values"), "{error}");
    let error = refused(Loss::default(), dataset(&pixels, labels(&[])));
    assert!(error.contains("needs [5, 7]"), "{error}");
    let many = Targets::label_maps(vec![3; SAMPLES * 35], 4, [5, 7]);
    let error = refused(Loss::default(), dataset(&pixels, many));
    assert!(error.contains("4 classes") && error.contains("3 outputs"), "{error}");
    let void = Targets::label_maps(vec![255; SAMPLES * 35], 3, [5, 7]).ignoring(255);
    let error = refused(Loss::default(), dataset(&pixels, void));
    assert!(error.contains("ignore_index = 255"), "{error}");
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let refuse = |config: Config| train::plan(pixels(), &config, &Limits::default()).expect_err("refused").to_string();
    for (loss, word) in [
        (cross_entropy(1.5, None, &[]), "label_smoothing"),
        (cross_entropy(0.0, None, &[1.0, -1.0, 1.0]), "class_weights"),
        (cross_entropy(0.0, None, &[1.0, 1.0]), "class_weights"),
        (cross_entropy(0.0, None, &[0.0; 3]), "class_weights must not all be 0"),
        (
            cross_entropy(0.0, None, &[1.0, f32::INFINITY, 1.0]),
            "class_weights[1] = inf, but it must be 0 or more and at",
        ),
        (cross_entropy(0.0, None, &[1.0, 1.0, f32::NAN]), "class_weights[2] = NaN"),
        (
            Loss::SoftCrossEntropy { label_smoothing: 0.0, class_weights: vec![1e38; 3], from_logits: true },
            "class_weights[0] = 1e38 is so large that sums overflow",
        ),
        (Loss::BceWithLogits { pos_weight: vec![1e38] }, "pos_weight[0] = 1e38 is so large"),
        (Loss::Bce { pos_weight: vec![-1.0] }, "pos_weight[0] = -1, but"),
        (Loss::Sum { terms: vec![(1.0, Loss::Mse), (f32::NAN, Loss::Mae)] }, "the factor of terms[1] is NaN"),
        (cross_entropy(0.0, Some(1 << 40), &[]), "ignore_index = 1099511627776"),
        (Loss::Sum { terms: vec![(0.0, Loss::Mse)] }, "all factors are 0"),
        (Loss::Dice { sigmoid: true, smooth: 1.0, ignore_index: Some(1) }, "ignore_index"),
        (Loss::BceWithLogits { pos_weight: vec![1.0, 2.0] }, "weight"),
        (Loss::Huber { delta: 0.0 }, "delta"),
        (Loss::Sum { terms: Vec::new() }, "no terms"),
        (Loss::Sum { terms: vec![(1.0, Loss::Mse), (1.0, Loss::default())] }, "same kind of targets"),
    ] {
        let message = refuse(Config::default().loss(loss));
        assert!(message.contains(word), "{word}: {message}");
    }
    let Optimizer::Adafactor { lr, beta2_decay, eps, weight_decay, .. } = Optimizer::adafactor(0.01) else { panic!() };
    let unclipped = Optimizer::Adafactor { lr, beta2_decay, eps, d: 0.5, weight_decay };
    assert!(refuse(Config::default().optimizer(unclipped)).contains("d = 0.5"));
    for lr in [1e300, f64::INFINITY, f64::NAN, -0.1, 1e-50, 1e-39] {
        for optimizer in [Optimizer::sgd(lr), Optimizer::adam(lr), Optimizer::lion(lr), Optimizer::adafactor(lr)] {
            let message = refuse(Config::default().optimizer(optimizer));
            assert!(message.starts_with(&format!("lr = {lr:?} is not possible")), "{message}");
        }
    }
    // A gradient of 0 would be divided by 0 at the first step.
    for eps in [0.0, 1e-39, 1e-300] {
        let betas = (0.9, 0.999);
        for optimizer in [
            Optimizer::Adam { lr: 1e-3, betas, eps, weight_decay: 0.0 },
            Optimizer::Adamw { lr: 1e-3, betas, eps, weight_decay: 0.0 },
            Optimizer::Adam8bit { lr: 1e-3, betas, eps, weight_decay: 0.0, min_8bit_size: 4096 },
            Optimizer::Adamw8bit { lr: 1e-3, betas, eps, weight_decay: 0.0, min_8bit_size: 4096 },
            Optimizer::Lamb { lr: 1e-3, betas, eps, weight_decay: 0.0 },
            Optimizer::Rmsprop { lr: 1e-3, alpha: 0.9, eps, momentum: 0.0, centered: true, weight_decay: 0.0 },
            Optimizer::Adagrad { lr: 1e-3, lr_decay: 0.0, initial_accumulator_value: 0.0, eps, weight_decay: 0.0 },
            Optimizer::Adafactor { lr: 1e-3, beta2_decay: -0.8, eps: (eps, 1e-3), d: 1.0, weight_decay: 0.0 },
        ] {
            let message = refuse(Config::default().optimizer(optimizer));
            assert!(message.starts_with("eps") && message.contains("divided by 0"), "{message}");
        }
    }
    let begins_above =
        Optimizer::Adagrad { lr: 1e-3, lr_decay: 0.0, initial_accumulator_value: 0.1, eps: 0.0, weight_decay: 0.0 };
    assert!(begins_above.rule().is_ok());
    // Its square counts.
    let squared = Optimizer::Adafactor { lr: 1e-3, beta2_decay: -0.8, eps: (1e-30, 1e-3), d: 1.0, weight_decay: 0.0 };
    assert!(refuse(Config::default().optimizer(squared)).starts_with("eps.0 = 1e-30"));
    let decays = Optimizer::Adamw { lr: 1e30, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 1e30 };
    assert!(refuse(Config::default().optimizer(decays)).contains("lr · weight_decay"));
    let factor = Config::default().optimizer(Optimizer::sgd(1e20)).group(Group::suffix("bias").lr_factor(1e30));
    assert!(refuse(factor).contains("lr = 1e50"));
    assert!(refuse(Config::default().clip_norm(f32::INFINITY)).contains("clip_norm"));
    let named = refuse(Config::default().group(Group::prefix("encoder.")));
    assert!(named.contains("group 1"), "{named}");
}

#[test]
fn every_optimizer_makes_the_loss_fall() {
    let data = dataset(&[2, 5, 7], labels(&[5, 7]));
    for device in crate::common::gpu().into_iter().chain(["cpu".to_owned()]) {
        for optimizer in [
            Optimizer::sgd(0.3),
            Optimizer::Sgd { lr: 0.1, momentum: 0.9, nesterov: true, weight_decay: 0.0 },
            Optimizer::adam(0.02),
            Optimizer::adamw(0.02),
            Optimizer::Adam8bit { lr: 0.02, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.0, min_8bit_size: 1 },
            Optimizer::rmsprop(0.02),
            Optimizer::adagrad(0.1),
            Optimizer::lion(0.01),
            Optimizer::lamb(0.05),
            Optimizer::adafactor(0.1),
        ] {
            let config = Config::default().batch(SAMPLES).micro_batches(2).optimizer(optimizer);
            let mut trainer = Trainer::new(pixels(), config, &device).expect("trainer");
            let mut losses = Vec::new();
            for _ in 0..20 {
                losses.push(trainer.step(&data, &(0..SAMPLES).collect::<Vec<_>>()).expect("step").loss);
            }
            assert!(losses[19] < 0.98 * losses[0], "{optimizer:?} on {device}: {losses:?}");
        }
    }
}

#[test]
fn groups_have_rates_and_decays_of_their_own() {
    let data = dataset(&[2, 5, 7], labels(&[5, 7]));
    let optimizer = Optimizer::Adamw { lr: 0.1, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.5 };
    let step = |config: Config| {
        let mut trainer =
            Trainer::new(pixels(), config.batch(SAMPLES).optimizer(optimizer), DeviceSelector::Cpu).expect("trainer");
        let before = trainer.parameters().expect("parameters");
        trainer.step(&data, &(0..SAMPLES).collect::<Vec<_>>()).expect("step");
        let after = trainer.parameters().expect("parameters");
        ["conv1.weight", "conv1.bias"].map(|name| (before[name].1.clone(), after[name].1.clone()))
    };
    let [plain_weight, plain_bias] = step(Config::default());
    let [weight, bias] = step(Config::default().decay_matrices_only());
    assert_eq!(weight, plain_weight);
    for i in 0..3 {
        // Without decay a bias is further by lr · decay · its value.
        let decay = 0.1 * 0.5 * plain_bias.0[i];
        assert!((bias.1[i] - plain_bias.1[i] - decay).abs() < 1e-6, "{bias:?} {plain_bias:?}");
    }
    let still = Group::suffix(".weight").lr_factor(0.0);
    let [weight, bias] = step(Config::default().group(still));
    assert_eq!(weight.0, weight.1);
    assert_eq!(bias, plain_bias);
}

#[test]
fn adafactor_has_hardly_any_state() {
    let model: Model = Sequential::new("wide", [784]).linear(512).relu().linear(3).into();
    let plan = |optimizer: Optimizer| {
        train::plan(&model, &Config::default().optimizer(optimizer), &Limits::default()).expect("plans").plan
    };
    let state = |optimizer: Optimizer| plan(optimizer).arena_bytes(ArenaRole::State);
    let (adam, lion, adafactor) =
        (state(Optimizer::adam(1e-3)), state(Optimizer::lion(1e-4)), state(Optimizer::adafactor(1e-2)));
    println!("optimizer state: adam {adam}, lion {lion}, adafactor {adafactor} bytes");
    assert!(lion < adam * 51 / 100 && adafactor < adam / 100, "{adam} {lion} {adafactor}");
    let text = plan(Optimizer::adafactor(1e-2)).to_string();
    let row = text.lines().find(|line| line.contains("optimizer state")).expect("a row of the table");
    println!("{row}");
    assert!(row.contains("KiB"), "{row}");
}

/// What a loss of probabilities is, and what a loss of logits is that the model's last layer makes them of.
#[test]
fn losses_of_probabilities_are_those_of_logits() {
    let probabilities = |loss: Loss| match loss {
        Loss::CrossEntropy { label_smoothing, ignore_index, class_weights, classes_last, .. } => {
            Loss::CrossEntropy { label_smoothing, ignore_index, class_weights, classes_last, from_logits: false }
        }
        Loss::SoftCrossEntropy { label_smoothing, class_weights, .. } => {
            Loss::SoftCrossEntropy { label_smoothing, class_weights, from_logits: false }
        }
        Loss::BceWithLogits { pos_weight } => Loss::Bce { pos_weight },
        other => panic!("{other} takes probabilities only"),
    };
    let weights = [0.25, 2.0, 1.5];
    let (maps, numbers) = (dataset(&[4], labels(&[])), dataset(&[4], values(&[3])));
    let soft = Loss::SoftCrossEntropy { label_smoothing: 0.1, class_weights: weights.to_vec(), from_logits: true };
    for (loss, data, end) in [
        (cross_entropy(0.1, None, &[]), &maps, Layer::from(Softmax::default())),
        (cross_entropy(0.2, Some(2), &weights), &maps, Softmax::default().into()),
        (soft, &numbers, Softmax::default().into()),
        (Loss::BceWithLogits { pos_weight: weights.to_vec() }, &numbers, Sigmoid.into()),
    ] {
        let model = Sequential::new("scores", [4]).linear(3);
        let ended = Model::from(model.clone().push(end));
        for device in crate::common::gpu().into_iter().chain(["cpu".to_owned()]) {
            let (expected, gradients) = first_step(&loss, &model.clone().into(), data, 2, &device);
            let (found, same) = first_step(&probabilities(loss.clone()), &ended, data, 2, &device);
            assert!((found.loss - expected.loss).abs() < 1e-5, "{loss} on {device}: {found:?} {expected:?}");
            assert!((found.evaluated - expected.evaluated).abs() < 1e-5, "{loss} on {device}: {found:?} {expected:?}");
            assert_eq!(found.accuracy, expected.accuracy);
            assert_eq!(found.evaluated_accuracy, expected.evaluated_accuracy);
            for (name, gradient) in gradients {
                let far = gradient.iter().zip(&same[&name]).find(|(a, b)| (*a - *b).abs() > 1e-5);
                assert!(far.is_none(), "{loss} on {device}, {name}: {far:?}");
            }
        }
    }
}

#[test]
fn a_softmax_too_many_is_said() {
    let model = |end: Option<Layer>| match end {
        Some(end) => Model::from(Sequential::new("ended", [4]).linear(3).push(end).push(Flatten)),
        None => Sequential::new("scores", [4]).linear(3).into(),
    };
    let said = |end: Option<Layer>, loss: &Loss| {
        train::warnings(&model(end), &Config::default().loss(loss.clone())).expect("fits together").join("; ")
    };
    let mut probabilities = Loss::default();
    if let Loss::CrossEntropy { from_logits, .. } = &mut probabilities {
        *from_logits = false;
    }
    let softmax = || Some(Layer::from(Softmax::default()));
    let log_softmax = || Some(Layer::from(LogSoftmax::default()));
    let sigmoid = || Some(Layer::from(Sigmoid));
    let (bce, bce_with_logits) = (Loss::Bce { pos_weight: Vec::new() }, Loss::bce_with_logits());
    for (end, loss, words) in [
        (
            softmax(),
            Loss::default(),
            "applies softmax to its outputs itself: take the last layer out, or set from_logits",
        ),
        (softmax(), Loss::dice(), "take the last layer out"),
        (softmax(), bce_with_logits.clone(), "applies sigmoid"),
        (sigmoid(), bce_with_logits.clone(), "or use the loss bce"),
        (sigmoid(), Loss::default(), "applies softmax"),
        (log_softmax(), Loss::default(), "changes nothing but takes time"),
        (log_softmax(), probabilities.clone(), "takes probabilities, not their logarithms"),
        (softmax(), Loss::Sum { terms: vec![(1.0, Loss::Mse), (0.5, bce_with_logits.clone())] }, "bce-with-logits"),
    ] {
        let text = said(end, &loss);
        assert!(text.starts_with("the model ends in ") && text.contains(words), "{loss}: {text}");
    }
    for (end, loss) in [
        (None, Loss::default()),
        (None, bce_with_logits),
        (softmax(), probabilities),
        (softmax(), Loss::Mse),
        (sigmoid(), bce),
    ] {
        assert_eq!(said(end, &loss), "", "{loss}");
    }
}

#[test]
fn a_softmax_that_is_missing_is_said() {
    let mut probabilities = Loss::default();
    if let Loss::CrossEntropy { from_logits, .. } = &mut probabilities {
        *from_logits = false;
    }
    let bce = Loss::Bce { pos_weight: Vec::new() };
    let said = |model: Sequential, loss: &Loss| {
        train::warnings(&model.into(), &Config::default().loss(loss.clone())).expect("fits together").join("; ")
    };
    let scores = || Sequential::new("scores", [4, 6, 6]).flatten().linear(3);
    let hidden = || scores().linear(5);
    let maps = || Sequential::new("maps", [4, 6, 6]).conv2d(3, 1);
    let soft = Loss::SoftCrossEntropy { label_smoothing: 0.0, class_weights: Vec::new(), from_logits: false };
    let softmax = "takes probabilities, numbers of 0 or above, and learns little or nothing of others: end it in softmax, or leave \
                   from_logits = false out";
    for (model, loss, words) in [
        (scores(), &probabilities, softmax),
        (scores(), &soft, softmax),
        (scores().dropout(0.5), &probabilities, softmax),
        (hidden().push(BatchNorm::new()), &probabilities, softmax),
        (hidden().tanh(), &probabilities, softmax),
        (maps().global_avg_pool(), &probabilities, softmax),
        (Sequential::new("steps", [7, 2]).lstm(3), &probabilities, softmax),
        (scores(), &bce, "end it in sigmoid, or use the loss bce-with-logits"),
        (maps().silu(), &bce, "end it in sigmoid"),
        (maps().softplus(), &bce, "numbers of at most 1"),
        (hidden().push(Hardtanh::new(-1.0, 1.0)), &bce, "numbers of 0 or above"),
        (hidden().push(HardSigmoid), &Loss::bce_with_logits(), "applies sigmoid to its outputs itself"),
        (scores(), &Loss::Sum { terms: vec![(1.0, Loss::Mse), (0.5, bce.clone())] }, "the loss bce "),
        (scores().linear(1), &Loss::default(), "one score where the loss cross-entropy chooses among classes"),
        (maps().conv2d(1, 1), &Loss::dice(), "one score where the loss dice"),
        (
            Sequential::new("batched", [1, 784]).linear(10),
            &Loss::default(),
            "if the first 1 is the batch, leave it out",
        ),
    ] {
        let text = said(model, loss);
        assert!(text.contains(words), "{loss}: {text}");
    }
    for (model, loss) in [
        (maps().softplus(), &probabilities),
        (hidden().push(HardSigmoid), &bce),
        (maps().push(Hardtanh::new(0.0, 1.0)), &bce),
        (scores().linear(1), &Loss::bce_with_logits()),
        (maps().conv2d(1, 1), &Loss::Mse),
        (scores().push(Softmax::default()), &Loss::Sum { terms: vec![(1.0, probabilities.clone()), (1.0, Loss::Mse)] }),
    ] {
        assert_eq!(said(model, loss), "", "{loss}");
    }
}

#[test]
fn a_negative_label_can_be_ignored() {
    let marked = |label: i32| -> Vec<i32> {
        let Targets::Labels { labels, .. } = labels(&[5, 7]) else { panic!("labels") };
        labels.iter().map(|&found| if found == 0 { label } else { found as i32 }).collect()
    };
    let first = |label: i32| {
        let data = dataset(&[2, 5, 7], Targets::signed_labels(marked(label), 3, [5, 7]).ignoring(label));
        let loss = cross_entropy(0.1, Some(label.into()), &[]);
        let (found, gradients) = first_step(&loss, &pixels(), &data, 2, "cpu");
        (found.loss.to_bits(), found.accuracy, found.evaluated, gradients)
    };
    assert_eq!(first(-100), first(255));
    let data = dataset(&[2, 5, 7], Targets::signed_labels(marked(-100), 3, [5, 7]).ignoring(-100));
    let mut trainer = Trainer::new(pixels(), Config::default().batch(SAMPLES), DeviceSelector::Cpu).expect("trainer");
    let error = trainer.evaluate(&data).expect_err("the loss counts it").to_string();
    assert!(error.contains("set ignore_index = -100"), "{error}");
    let toml = "kind = \"cross-entropy\"\nignore_index = -100";
    assert_eq!(toml::from_str::<Loss>(toml), Ok(cross_entropy(0.0, Some(-100), &[])));
}

#[test]
fn what_went_wrong_is_told_apart() {
    let indices: Vec<usize> = (0..SAMPLES).collect();
    let error = |optimizer: Optimizer, samples: Vec<f32>, targets: Targets, loss: Loss, steps: usize| {
        let data = TensorDataset::new(Values::F32(samples), [4], targets).expect("fits");
        let config = Config::default().loss(loss).batch(SAMPLES).optimizer(optimizer);
        let model = Sequential::new("small", [4]).linear(3);
        let mut trainer = Trainer::new(model, config, DeviceSelector::Cpu).expect("trainer");
        let mut steps = (0..steps).map(|_| trainer.step(&data, &indices).map_err(|error| error.to_string()));
        steps.find_map(Result::err).expect("a step must fail")
    };
    let good = || numbers("samples", SAMPLES * 4);
    let text = error(Optimizer::adam(3e38), good(), labels(&[]), Loss::default(), 3);
    assert!(text.contains("in the parameter `linear1.") && text.contains("what it was is lost"), "{text}");
    assert!(!text.contains("parameters are those"), "{text}");
    let mut holed = good();
    holed[4 * 2 + 3] = f32::NAN;
    let text = error(Optimizer::sgd(0.1), holed, labels(&[]), Loss::default(), 1);
    assert!(text.contains("NaN in the data: `input` of sample 2 at [3]; mend that sample"), "{text}");
    let Targets::Values { mut values, shape } = values(&[3]) else { panic!("values") };
    values[3 * 5 + 1] = f32::NAN;
    let text = error(Optimizer::sgd(0.1), good(), Targets::Values { values, shape }, Loss::Mse, 1);
    assert!(text.contains("`target` of sample 5 at [1]") && !text.contains("learning rate"), "{text}");
    let text = error(Optimizer::sgd(0.1), vec![3e38; SAMPLES * 4], labels(&[]), Loss::default(), 1);
    assert!(text.contains("scale the data") && !text.contains("learning rate"), "{text}");
}

/// Predictions of 0 and four million targets of 0.1: the loss is 0.01 and the bias goes to 0.2 in a step.
#[test]
fn a_mean_over_millions_keeps_its_digits() {
    const MANY: usize = 1 << 22;
    let targets = Targets::Values { values: vec![0.1; MANY], shape: [1].into() };
    let data = TensorDataset::new(Values::F32(vec![0.0; MANY]), [1], targets).expect("fits");
    let indices: Vec<usize> = (0..MANY).collect();
    for device in crate::common::gpu().into_iter().chain(["cpu".to_owned()]) {
        let config = Config::default().loss(Loss::Mse).batch(MANY).optimizer(Optimizer::sgd(1.0));
        let mut trainer = Trainer::new(Sequential::new("one", [1]).linear(1), config, &device).expect("trainer");
        trainer.set_parameter("linear1.bias", &[0.0]).expect("parameter");
        let loss = trainer.step(&data, &indices).expect("step").loss;
        let bias = trainer.parameters().expect("parameters")["linear1.bias"].1[0];
        assert!((loss - 0.01).abs() < 1e-7 && (bias - 0.2).abs() < 1e-6, "{device}: loss {loss}, bias {bias}");
    }
}

/// Of one yes or no a sample, training says how many are right: those on the same side of the limit, of samples that count.
#[test]
fn binary_classifiers_have_an_accuracy_in_training() {
    let x = vec![-2.0, -1.0, 1.0, 2.0, 3.0, -3.0];
    let y = vec![0.0, 1.0, 1.0, 0.1, 0.9, 0.0];
    let data = |width: usize| {
        let targets = Targets::Values { values: y.clone(), shape: [width].into() };
        TensorDataset::new(Values::F32(x.clone()), [width], targets).expect("data")
    };
    let step = |model: Sequential, loss: Loss, weights: Option<Vec<f32>>, width: usize, micro_batches: usize| {
        let samples = 6 / width;
        let config =
            Config::default().batch(samples).loss(loss).optimizer(Optimizer::sgd(0.0)).micro_batches(micro_batches);
        let mut trainer = Trainer::new(model, config.sample_weights(weights.is_some()), "cpu").expect("a trainer");
        let identity: Vec<f32> = (0..width * width).map(|i| f32::from(u8::from(i % (width + 1) == 0))).collect();
        trainer.set_parameter("linear1.weight", &identity).expect("a parameter");
        let data =
            weights.into_iter().fold(data(width), |data, weights| data.with_sample_weights(weights).expect("weights"));
        let all: Vec<usize> = (0..samples).collect();
        trainer.step(&data, &all).expect("a step").correct
    };
    let line = |width: usize| Sequential::new("line", [width]).push(Linear::new(width).bias(false));
    for micro_batches in [1, 2] {
        // The second and the fourth are wrong.
        assert_eq!(step(line(1), Loss::bce_with_logits(), None, 1, micro_batches), Some((4.0, 6.0)));
        let sigmoid = line(1).push(Sigmoid);
        assert_eq!(step(sigmoid, Loss::Bce { pos_weight: Vec::new() }, None, 1, micro_batches), Some((4.0, 6.0)));
        let weights = vec![1.0, 0.0, 2.0, 1.0, 0.0, 1.0];
        assert_eq!(step(line(1), Loss::bce_with_logits(), Some(weights), 1, micro_batches), Some((3.0, 4.0)));
    }
    // A last batch that is not full has its own.
    let config =
        Config::default().batch(4).loss(Loss::bce_with_logits()).optimizer(Optimizer::sgd(0.0)).drop_last(false);
    let mut trainer = Trainer::new(line(1), config, "cpu").expect("a trainer");
    trainer.set_parameter("linear1.weight", &[1.0]).expect("a parameter");
    let report = trainer.fit(&data(1), FitOptions::epochs(1)).expect("fits");
    assert_eq!((report.steps, report.train_accuracy), (2, Some(4.0 / 6.0)));
    // Of several labels a sample it is not said what right means.
    assert_eq!(step(line(2), Loss::bce_with_logits(), None, 2, 1), None);
}

//! Training on a device: the ledger equals the plan (evidence link 8), micro-batches compute the full batch's gradients,
//! a loss that is not finite stops without harm, and a run can be stopped, saved and repeated bit for bit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tightfit::data::{Targets, TensorDataset, Values, mnist};
use tightfit::error::TrainError;
use tightfit::models;
use tightfit::nn::{Model, Sequential};
use tightfit::plan::{ArenaRole, Levers};
use tightfit::train::{Config, DeviceSelector, FitOptions, Loss, Optimizer, Trainer};

fn data(model: &Model) -> (TensorDataset, TensorDataset) {
    let (train, test) = mnist::open(concat!(env!("CARGO_MANIFEST_DIR"), "/data/mnist")).expect("bundled data");
    let shape = model.input_shape();
    (train.with_sample_shape(shape.clone()).expect("shape"), test.with_sample_shape(shape.clone()).expect("shape"))
}

fn builtin(name: &str) -> Model {
    models::builtin(name).expect("no such model")
}

/// `gpu` where there is one, and always the CPU.
fn devices() -> Vec<String> {
    crate::common::gpu().into_iter().chain(["cpu".to_owned()]).collect()
}

fn steps(count: u64) -> FitOptions<'static> {
    FitOptions { epochs: 1, max_steps: Some(count), ..FitOptions::default() }
}

/// No budget, and halfway between the smallest one and what the whole batch needs.
fn budgets(model: &Model, config: Config, device: &str) -> [Option<u64>; 2] {
    let trainer = Trainer::new(model.clone(), config, Some(device)).expect("trainer");
    let plan = trainer.plan();
    assert!(plan.minimum_budget_bytes < plan.unconstrained_peak_bytes, "there is nothing to save");
    [None, Some(plan.minimum_budget_bytes.midpoint(plan.unconstrained_peak_bytes))]
}

#[test]
fn measured_peak_equals_planned_peak() {
    for device in devices() {
        for name in ["mnist-mlp", "mnist-lstm"] {
            let model = builtin(name);
            let (train, test) = data(&model);
            let config = Config::default().batch(256);
            for budget in budgets(&model, config.clone(), &device) {
                let config = Config { budget_bytes: budget, ..config.clone() };
                let mut trainer = Trainer::new(model.clone(), config, &device).expect("trainer");
                let planned = trainer.plan().peak_bytes;
                assert_eq!(trainer.measured_peak_bytes(), planned, "{name} on {device} before the first step");
                trainer.fit(&train, steps(2)).expect("fit");
                trainer.evaluate(&test.take(300).expect("300 samples")).expect("evaluate");
                trainer.parameters().expect("parameters");
                assert_eq!(trainer.measured_peak_bytes(), planned, "{name} on {device} after training");
                assert!(budget.is_none_or(|budget| planned <= budget), "{name} on {device}");
            }
        }
    }
}

/// Evidence link 6: whatever runs again or moves to the host, losses and parameters are the same bit for bit.
#[test]
fn no_budget_changes_one_bit_of_an_unsplit_batch() {
    let all = Levers::default();
    let ways = [
        ("recompute", Levers { offload: false, compression: false, ..all }),
        ("offload", Levers { recompute: false, compression: false, ..all }),
        ("all", all),
    ];
    for device in devices() {
        let batch = 8;
        for name in ["mnist-unet", "mnist-cnn", "mnist-lstm"] {
            let model = builtin(name);
            let (train, _) = data(&model);
            let config = Config::default().batch(batch).micro_batches(1).seed(3);
            let run = |config: Config| {
                let mut trainer = Trainer::new(model.clone(), config, &device).expect("trainer");
                let mut losses = Vec::new();
                for step in 0..3 {
                    let indices: Vec<usize> = (step * batch..(step + 1) * batch).collect();
                    losses.push(trainer.step(&train, &indices).expect("step").loss.to_bits());
                }
                assert_eq!(trainer.measured_peak_bytes(), trainer.plan().peak_bytes, "{name} on {device}");
                let sha256 = trainer.parameters_sha256().expect("parameters");
                (losses, sha256, trainer.plan().clone())
            };
            let (losses, sha256, _) = run(config.clone());
            for (way, levers) in ways {
                let config = config.clone().levers(levers);
                let free = run(config.clone()).2;
                let (need, least) = (free.peak_bytes, free.minimum_budget_bytes);
                for budget in [least, least.midpoint(need)] {
                    let (found_losses, found, plan) = run(config.clone().budget_bytes(budget));
                    assert!(plan.peak_bytes <= budget, "{name} on {device}, {way}");
                    assert_eq!(
                        (&found_losses, &found),
                        (&losses, &sha256),
                        "{name} on {device}, {way}, {budget} bytes"
                    );
                    println!("{name} on {device}, {way}, {budget} of {need} bytes: {} reasons", plan.reasons.len());
                }
            }
        }
    }
}

/// SGD's momentum after the first step is the gradient.
fn gradients(name: &str, batch: usize, micro_batches: usize, device: &str) -> BTreeMap<String, Vec<f32>> {
    let model = builtin(name);
    let (train, _) = data(&model);
    let optimizer = Optimizer::Sgd { lr: 0.01, momentum: 0.9, nesterov: false, weight_decay: 0.0 };
    let config = Config::default().batch(batch).micro_batches(micro_batches).optimizer(optimizer).seed(5);
    let mut trainer = Trainer::new(model, config, Some(device)).expect("trainer");
    assert_eq!(trainer.plan().micro_batches.len(), micro_batches);
    trainer.step(&train, &(0..batch).collect::<Vec<_>>()).expect("step");
    let names: Vec<_> = trainer.parameters().expect("parameters").into_keys().collect();
    names
        .into_iter()
        .map(|name| {
            let gradient = trainer.optimizer_state(&name, "momentum_buffer").expect("device").expect("momentum");
            (name, gradient)
        })
        .collect()
}

#[test]
fn micro_batches_compute_the_full_batchs_gradients() {
    let device = crate::common::gpu().unwrap_or_else(|| "cpu".to_owned());
    // 30 samples in 4 parts are 8, 8, 8 and 6: the short last part must count by its samples.
    let mut models = vec![("mnist-cnn", 30, [2, 4]), ("mnist-mlp", 50, [3, 50]), ("mnist-lstm", 30, [4, 6])];
    if device != "cpu" {
        models.push(("mnist-cnn", 256, [3, 256]));
    }
    for (name, batch, splits) in models {
        let full = gradients(name, batch, 1, &device);
        for split in splits {
            let parts = gradients(name, batch, split, &device);
            for (parameter, full) in &full {
                let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
                let size = norm(&mut full.iter().map(|&x| f64::from(x)));
                let pairs = full.iter().zip(&parts[parameter]);
                let difference = norm(&mut pairs.map(|(&a, &b)| f64::from(a) - f64::from(b)));
                assert!(size > 0.0, "{name}: the gradient of {parameter} is 0 everywhere");
                assert!(
                    difference <= 1e-5 * size,
                    "{name} in {split} parts: the gradient of {parameter} differs by {:e}",
                    difference / size
                );
            }
        }
    }
}

#[test]
fn the_same_plan_gives_the_same_bits() {
    for device in devices() {
        let run = || {
            let model = builtin("mnist-mlp");
            let (train, _) = data(&model);
            let config = Config::default().batch(32).micro_batches(2).seed(7);
            let mut trainer = Trainer::new(model, config, &device).expect("trainer");
            trainer.fit(&train, steps(3)).expect("fit");
            trainer.parameters_sha256().expect("hash")
        };
        assert_eq!(run(), run(), "on {device}");
    }
}

#[test]
fn a_loss_that_is_not_finite_stops_and_keeps_the_parameters() {
    for device in devices() {
        let model = Sequential::new("tiny", [4]).linear(8).relu().linear(2);
        let mut values = vec![0.5f32; 4 * 64];
        values[4 * 40 + 1] = f32::INFINITY;
        let labels = Targets::labels(vec![1; 64], 2);
        let bad = TensorDataset::new(Values::F32(values), [4], labels).expect("dataset");
        let config = Config::default().batch(32).micro_batches(2);
        let mut trainer = Trainer::new(model, config, &device).expect("trainer");
        trainer.step(&bad, &(0..32).collect::<Vec<_>>()).expect("the first half is fine");
        let before = trainer.parameters_sha256().expect("hash");
        let error = trainer.step(&bad, &(32..64).collect::<Vec<_>>()).expect_err("the second half is not");
        let TrainError::NonFinite { step, kept, place, advice, .. } = &error else { panic!("another error: {error}") };
        assert_eq!((*step, *kept), (2, 1), "on {device}");
        assert_eq!(place, "infinity in the data: `input` of sample 40 at [1]");
        assert!(advice.starts_with("mend that sample") && advice.contains("step 1"), "{advice}");
        assert_eq!(trainer.parameters_sha256().expect("hash"), before, "on {device}: the parameters changed");
        trainer.step(&bad, &(0..32).collect::<Vec<_>>()).expect("training goes on");
    }
}

#[test]
fn the_layer_that_overflows_is_named() {
    for device in devices() {
        let model = Sequential::new("tiny", [4]).linear(8).linear(2);
        let targets = Targets::Values { values: vec![0.0; 16], shape: [2].into() };
        let data = TensorDataset::new(Values::F32(vec![1e30; 32]), [4], targets).expect("dataset");
        let config = Config::default().batch(8).loss(Loss::Mse);
        let mut trainer = Trainer::new(model, config, &device).expect("trainer");
        trainer.set_parameter("linear1.weight", &[1e10; 32]).expect("parameter");
        let error = trainer.step(&data, &(0..8).collect::<Vec<_>>()).expect_err("1e40 is no f32").to_string();
        assert!(error.contains("linear1") && error.contains("infinity"), "on {device}: {error}");
    }
}

#[test]
fn a_stopped_run_ends_at_a_step_boundary() {
    let model = builtin("mnist-mlp");
    let (train, _) = data(&model);
    let mut trainer = Trainer::new(model, Config::default(), DeviceSelector::Cpu).expect("trainer");
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    let mut on_step = move |report: &tightfit::train::StepReport| flag.store(report.step == 2, Ordering::Relaxed);
    let options = FitOptions { epochs: 1, stop: Some(stop), on_step: Some(&mut on_step), ..FitOptions::default() };
    let report = trainer.fit(&train, options).expect("fit");
    assert!(report.interrupted);
    assert_eq!(report.steps, 2);
}

#[test]
fn saved_weights_predict_the_same() {
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("weights.safetensors");
    let model = builtin("mnist-mlp");
    let (train, test) = data(&model);
    let test = test.take(70).expect("70 samples");
    let mut trainer = Trainer::new(model.clone(), Config::default(), DeviceSelector::Cpu).expect("trainer");
    trainer.fit(&train, steps(2)).expect("fit");
    trainer.save(&file).expect("save");
    let mut other = Trainer::new(model, Config::default().seed(9), DeviceSelector::Cpu).expect("trainer");
    assert_ne!(trainer.predict(&test).expect("predict"), other.predict(&test).expect("predict"));
    other.load(&file).expect("load");
    assert_eq!(trainer.predict(&test).expect("predict"), other.predict(&test).expect("predict"));

    let bytes = std::fs::read(&file).expect("read");
    std::fs::write(&file, &bytes[..bytes.len() / 2]).expect("write");
    let error = other.load(&file).expect_err("half a file").to_string();
    assert!(error.contains("weights.safetensors"), "{error}");
    let mut tiny =
        Trainer::new(Sequential::new("t", [4]).linear(2), Config::default(), DeviceSelector::Cpu).expect("trainer");
    std::fs::write(&file, &bytes).expect("write");
    assert!(tiny.load(&file).expect_err("another model").to_string().contains("another model"));
}

#[test]
fn evaluation_needs_no_memory_for_training() {
    for device in devices() {
        let model = builtin("mnist-mlp");
        let (train, test) = data(&model);
        let test = test.take(100).expect("100 samples");
        let mut trainer = Trainer::new(model.clone(), Config::default(), &device).expect("trainer");
        let mut other = Trainer::for_evaluation(model, Config::default(), &device).expect("trainer");
        assert_eq!(trainer.predict(&test).expect("predict"), other.predict(&test).expect("predict"), "on {device}");
        assert_eq!(other.measured_peak_bytes(), other.plan().peak_bytes);
        let state_bytes = trainer.plan().arena_bytes(ArenaRole::State);
        assert!(state_bytes > 5 << 20 && other.plan().arena_bytes(ArenaRole::State) == 0);
        assert!(other.plan().peak_bytes < trainer.plan().peak_bytes - state_bytes, "on {device}");
        assert!(other.fit(&train, steps(1)).is_err());
    }
}

#[test]
fn weights_go_only_where_they_belong() {
    let folder = tempfile::tempdir().expect("folder");
    let at = |name: &str| folder.path().join(name);
    let model = Model::from(Sequential::new("t", [4]).linear(2));
    let mut trainer = Trainer::new(model.clone(), Config::default(), DeviceSelector::Cpu).expect("trainer");
    Trainer::check_save(&model, at("new.st")).expect("a new file");
    assert_eq!(std::fs::read_dir(folder.path()).expect("folder").count(), 0, "the check left a trace");
    for refused in [folder.path().to_owned(), at("missing/new.st"), "/dev/null".into()] {
        assert!(Trainer::check_save(&model, &refused).is_err(), "{}", refused.display());
        assert!(trainer.save(&refused).is_err(), "{}", refused.display());
    }
    std::fs::write(at("real.st"), "old").expect("write");
    std::os::unix::fs::symlink(at("real.st"), at("link.st")).expect("link");
    trainer.save(at("link.st")).expect("save");
    assert!(at("link.st").is_symlink() && trainer.load(at("real.st")).is_ok(), "the link was replaced");

    let bytes = std::fs::read(at("real.st")).expect("read");
    let mut broken = bytes.clone();
    let end = broken.len();
    broken[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    std::fs::write(at("real.st"), &broken).expect("write");
    assert!(trainer.load(at("real.st")).expect_err("NaN").to_string().contains("not finite"));
    std::fs::write(at("real.st"), [bytes, vec![0; 2 << 20]].concat()).expect("write");
    assert!(trainer.load(at("real.st")).expect_err("too long").to_string().contains("its length is not"));
    assert!(trainer.load("/dev/zero").expect_err("endless").to_string().contains("regular file"));
}

/// As PyTorch's `strict=False`, but with other shapes passed over, too.
#[test]
fn weights_with_another_head_are_taken_in_part() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("w.st");
    let open = |body: usize, classes: usize, seed: u64| {
        let model = Sequential::new("t", [4]).linear(body).relu().linear(classes);
        Trainer::new(model, Config::default().seed(seed), DeviceSelector::Cpu).expect("trainer")
    };
    let mut source = open(3, 5, 1);
    source.save(&path).expect("saves");
    let mut target = open(3, 2, 2);
    let before = target.state_dict().expect("reads");
    let message = target.load(&path).expect_err("strict").to_string();
    assert!(message.contains("`linear2.bias` is f32[5], the model's is f32[2]"), "{message}");
    assert_eq!(target.state_dict().expect("reads"), before, "a file that was refused changed the model");

    let loaded = target.load_matching(&path).expect("fits in part");
    assert_eq!(loaded.loaded, ["linear1.bias", "linear1.weight"]);
    assert_eq!((loaded.missing.len(), loaded.unexpected.len(), loaded.mismatched.len()), (0, 0, 2));
    assert!(loaded.to_string().starts_with("2 of 4 tensors loaded; `linear2.bias` is f32[5]"), "{loaded}");
    let (after, from) = (target.state_dict().expect("reads"), source.state_dict().expect("reads"));
    assert_eq!(after["linear1.weight"], from["linear1.weight"]);
    assert_eq!(after["linear2.weight"], before["linear2.weight"]);

    let model = Sequential::new("t", [4]).linear(3);
    let mut smaller = Trainer::new(model, Config::default(), DeviceSelector::Cpu).expect("trainer");
    assert_eq!(smaller.load_matching(&path).expect("fits in part").unexpected, ["linear2.bias", "linear2.weight"]);
    let mut other = open(7, 9, 0);
    assert!(other.load_matching(&path).expect_err("nothing fits").to_string().contains("another model"));
}

#[test]
fn every_name_of_a_model_can_be_set() {
    let model = Model::from(Sequential::new("t", [2, 4, 4]).conv2d(3, 3).batch_norm().flatten().linear(2));
    let mut trainer = Trainer::new(model.clone(), Config::default().batch(2), DeviceSelector::Cpu).expect("trainer");
    let names = model.state_dict().expect("builds");
    assert!(names.iter().any(|(name, _)| name.ends_with("num_batches_tracked")));
    for (name, shape) in names {
        trainer.set_parameter(&name, &vec![1.0; shape.numel()]).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    assert!(trainer.set_parameter("linear9.weight", &[1.0]).is_err());
}

#[test]
fn a_last_update_that_overflows_is_an_error() {
    for device in devices() {
        let targets = Targets::Values { values: vec![1e20; 16], shape: [2].into() };
        let data = TensorDataset::new(Values::F32(vec![1.0; 32]), [4], targets).expect("dataset");
        let config = Config::default().batch(8).loss(Loss::Mse).optimizer(Optimizer::sgd(1e30));
        // The loss, about 1e40, is not finite in f32; a target of 1e18 keeps it finite, and the update overflows.
        let targets = Targets::Values { values: vec![1e18; 16], shape: [2].into() };
        let finite = TensorDataset::new(Values::F32(vec![1.0; 32]), [4], targets).expect("dataset");
        for (data, words) in [(data, "output of layer `loss`"), (finite, "parameter `linear1")] {
            let model = Sequential::new("t", [4]).linear(2);
            let mut trainer = Trainer::new(model, config.clone(), &device).expect("trainer");
            let error = trainer.fit(&data, steps(1)).expect_err("an overflow").to_string();
            assert!(error.contains(words), "on {device}: {error}");
        }
    }
}

#[test]
fn clipping_bounds_the_first_step() {
    for device in devices() {
        let model = Sequential::new("tiny", [4]).linear(3);
        let targets = Targets::Values { values: vec![100.0; 24], shape: [3].into() };
        let data = TensorDataset::new(Values::F32(vec![1.0; 32]), [4], targets).expect("dataset");
        let optimizer = Optimizer::Sgd { lr: 1.0, momentum: 0.5, nesterov: false, weight_decay: 0.0 };
        let config = Config::default().batch(8).micro_batches(2).loss(Loss::Mse).optimizer(optimizer).clip_norm(0.25);
        let mut trainer = Trainer::new(model, config, &device).expect("trainer");
        trainer.step(&data, &(0..8).collect::<Vec<_>>()).expect("step");
        let mut squares = 0.0;
        for name in ["linear1.weight", "linear1.bias"] {
            let gradient = trainer.optimizer_state(name, "momentum_buffer").expect("device").expect("momentum");
            squares += gradient.iter().map(|&g| f64::from(g) * f64::from(g)).sum::<f64>();
        }
        assert!((squares.sqrt() - 0.25).abs() < 1e-4, "on {device}: norm {}", squares.sqrt());
    }
}

#[test]
fn mnist_learns_at_every_budget() {
    let Some(device) = crate::common::gpu() else { return };
    let model = builtin("mnist-cnn");
    let (train, test) = data(&model);
    let config = Config::default().batch(128).seed(1);
    for budget in budgets(&model, config.clone(), &device) {
        let config = Config { budget_bytes: budget, ..config.clone() };
        let mut trainer = Trainer::new(model.clone(), config, &device).expect("trainer");
        trainer.fit(&train, steps(45)).expect("fit");
        let evaluation = trainer.evaluate(&test).expect("evaluate");
        println!("{} micro-batches: {evaluation}", trainer.plan().micro_batches.len());
        assert!(evaluation.accuracy.expect("accuracy") > 0.85, "{evaluation}");
    }
}

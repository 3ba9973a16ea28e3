//! Activations and their gradients in 16 bits: what is stored so, that no budget changes a bit of it, and that training learns alike.

use std::collections::BTreeSet;

use serde::Deserialize;
use tightfit::data::{Targets, TensorDataset, Values, mnist};
use tightfit::graph::{Graph, Phase, Role};
use tightfit::models;
use tightfit::nn::Model;
use tightfit::plan::{Levers, Limits, Planned, SavedActivations};
use tightfit::tensor::{DType, Half};
use tightfit::train::{Config, DeviceSelector, Optimizer, Precision, Processor, Trainer, plan_for};

use crate::common::{golden, recipe};

fn builtin(name: &str) -> Model {
    models::builtin(name).expect("no such model")
}

fn data(model: &Model) -> TensorDataset {
    let (train, _) = mnist::open(concat!(env!("CARGO_MANIFEST_DIR"), "/data/mnist")).expect("bundled data");
    train.with_sample_shape(model.input_shape().clone()).expect("shape")
}

/// `gpu` where there is one, and always the CPU.
fn devices() -> Vec<String> {
    crate::common::gpu().into_iter().chain(["cpu".to_owned()]).collect()
}

fn planned(name: &str, config: &Config) -> Planned {
    tightfit::train::plan(builtin(name), config, &Limits::of_cpu(2)).expect("a plan")
}

fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// The graph of the whole batch.
fn graph(name: &str, config: &Config) -> Graph {
    let config = config.clone().micro_batches(1);
    Graph::clone(&planned(name, &config).graphs[0])
}

#[test]
fn activations_are_half_and_all_else_is_not() {
    for precision in [Precision::F16, Precision::Bf16] {
        for name in ["mnist-cnn", "resnet18_cifar", "mnist-lstm", "gpt"] {
            let config = Config::default().batch(4).precision(precision);
            let config =
                if name == "gpt" { config.loss(tightfit::train::Loss::cross_entropy_of_sequences()) } else { config };
            let graph = graph(name, &config);
            let mut halves = 0;
            for value in graph.values() {
                let maker = value.producer.map(|id| graph.node(id));
                if is_half(value.desc.dtype) {
                    halves += 1;
                    assert_eq!(Some(value.desc.dtype), precision.half().map(Half::dtype), "{name}: {}", value.name);
                    assert_eq!(value.role, Role::Intermediate, "{name}: {}", value.name);
                    let phase = maker.expect("made in the graph").phase;
                    assert!(phase != Phase::Update, "{name}: {}", value.name);
                }
            }
            assert!(halves > 5, "{name}");
            let read_by_updates: BTreeSet<_> =
                graph.nodes().iter().filter(|node| node.phase == Phase::Update).flat_map(|node| &node.inputs).collect();
            assert!(read_by_updates.iter().all(|id| !is_half(graph.value(**id).desc.dtype)), "{name}: gradients");
            let of_loss = graph.nodes().iter().filter(|node| node.name == "loss");
            let mut of_loss = of_loss.flat_map(|node| node.inputs.iter().chain(&node.outputs));
            assert!(of_loss.all(|id| !is_half(graph.value(*id).desc.dtype)), "{name}: logits and losses");
            let statistics = graph.nodes().iter().filter(|node| node.op.name() == "batch_norm");
            let mut statistics = statistics.flat_map(|node| &node.outputs[1..]);
            assert!(statistics.all(|id| !is_half(graph.value(*id).desc.dtype)), "{name}: statistics");
        }
    }
}

#[test]
fn layers_may_have_a_precision_of_their_own() {
    let config = Config::default().batch(4).precision(Precision::Bf16).layer_precision("conv1", Precision::F32);
    let graph = graph("mnist-cnn", &config);
    for node in graph.nodes().iter().filter(|node| node.phase == Phase::Forward && !node.op.is_view()) {
        let dtype = graph.value(node.outputs[0]).desc.dtype;
        if node.name == "conv1" {
            assert_eq!(dtype, DType::F32, "{}", node.name);
        } else if node.name == "conv2" {
            assert_eq!(dtype, DType::BF16, "{}", node.name);
        }
    }
    let config = Config::default().precision(Precision::Bf16).layer_precision("covn1", Precision::F32);
    let error = tightfit::train::plan(builtin("mnist-cnn"), &config, &Limits::of_cpu(2)).expect_err("no such layer");
    assert!(error.to_string().contains("unknown layer `covn1`: did you mean `conv1`"), "{error}");
}

/// What runs again, in other forms or fused with others makes the same bits, although values between are rounded.
#[test]
fn no_budget_changes_one_bit() {
    let all = Levers::default();
    for device in devices() {
        let batch = 8;
        for (name, way) in [
            ("mnist-unet", Config::default().precision(Precision::Bf16)),
            ("mnist-cnn", Config::default().precision(Precision::F16)),
            ("mnist-lstm", Config::default().precision(Precision::Bf16)),
            ("mnist-lstm", Config::default().save_activations(Half::Bf16)),
            ("mnist-cnn", Config::default().save_activations(Half::F16)),
        ] {
            let model = builtin(name);
            let train = data(&model);
            let run = |config: Config| {
                let mut trainer = Trainer::new(model.clone(), config, &device).expect("trainer");
                let mut losses = Vec::new();
                for step in 0..2 {
                    let indices: Vec<usize> = (step * batch..(step + 1) * batch).collect();
                    losses.push(trainer.step(&train, &indices).expect("step").loss.to_bits());
                }
                assert_eq!(trainer.measured_peak_bytes(), trainer.plan().peak_bytes, "{name} on {device}");
                (losses, trainer.parameters_sha256().expect("parameters"), trainer.plan().clone())
            };
            let config = way.batch(batch).micro_batches(1).seed(3);
            let (losses, sha256, free) = run(config.clone());
            let least = free.minimum_budget_bytes;
            let unfused = config.clone().levers(Levers { fusion: false, ..all });
            let full = config.clone().levers(Levers { compression: false, ..all });
            let tight = |share: f64| {
                let span = (free.unconstrained_peak_bytes - least) as f64;
                config.clone().budget_bytes(least + (span * share) as u64)
            };
            for (what, config) in [
                ("unfused", unfused),
                ("uncompressed", full),
                ("half", tight(0.5)),
                ("tight", tight(0.1)),
                ("least", tight(0.0)),
            ] {
                let (found_losses, found, plan) = run(config);
                println!("{name} on {device}, {what}: {} of {} bytes", plan.peak_bytes, free.peak_bytes);
                assert_eq!((&found_losses, &found), (&losses, &sha256), "{name} on {device}, {what}");
            }
        }
    }
}

/// The bits do not depend on threads, and what kernels and native forms make is near what the reference does.
#[test]
fn every_executor_trains_in_halves() {
    let model = builtin("mnist-cnn");
    let train = data(&model);
    for precision in [Precision::F32, Precision::F16, Precision::Bf16] {
        let run = |device: &str, threads: Option<usize>| {
            let config = Config { threads, ..Config::default().batch(16).precision(precision).seed(1) };
            let mut trainer = Trainer::new(model.clone(), config, device).expect("trainer");
            let step = |i: usize| (i * 16..(i + 1) * 16).collect::<Vec<_>>();
            let losses: Vec<f32> = (0..3).map(|i| trainer.step(&train, &step(i)).expect("step").loss).collect();
            (losses, trainer.parameters_sha256().expect("parameters"))
        };
        let reference = run("reference", None);
        let single = run("cpu", Some(1));
        assert_eq!(single, run("cpu", Some(2)), "{precision}");
        assert_eq!(single, run("cpu", Some(3)), "{precision}");
        let mut found = vec![single];
        found.extend(crate::common::gpu().map(|device| run(&device, None)));
        let tolerance = if precision == Precision::Bf16 { 0.02 } else { 0.004 };
        for (losses, _) in found {
            for (a, b) in losses.iter().zip(&reference.0) {
                assert!((a - b).abs() < tolerance, "{precision}: {losses:?} and {:?}", reference.0);
            }
        }
    }
}

#[test]
fn a_checkpoint_goes_on_in_another_precision() {
    let model = builtin("mnist-cnn");
    let train = data(&model);
    let folder = tempfile::tempdir().expect("a folder");
    let trainer = |precision: Precision| {
        Trainer::new(model.clone(), Config::default().batch(16).precision(precision), "cpu").expect("trainer")
    };
    let mut first = trainer(Precision::Bf16);
    for step in 0..3 {
        first.step(&train, &(step * 16..(step + 1) * 16).collect::<Vec<_>>()).expect("step");
    }
    let folder = folder.path().join("checkpoint");
    first.save_checkpoint(&folder).expect("saved");
    let saved = first.parameters().expect("parameters");
    let next: Vec<usize> = (48..64).collect();
    let expected = first.step(&train, &next).expect("step").loss;
    for precision in [Precision::F32, Precision::Bf16] {
        let mut second = trainer(precision);
        second.restore(&tightfit::train::Checkpoint::open(&folder).expect("a checkpoint")).expect("restored");
        assert_eq!(second.parameters().expect("parameters"), saved, "{precision}");
        let loss = second.step(&train, &next).expect("step").loss;
        assert!((loss - expected).abs() < 0.02, "{precision}: {loss} and {expected}");
        assert!(precision == Precision::F32 || loss == expected, "{precision}: {loss} and {expected}");
    }
}

/// Where a budget asks for it and the user allows it, backward reads copies in bf16; and only then.
#[test]
fn copies_in_halves_are_made_where_they_are_allowed_and_needed() {
    let machine = Processor::open(&DeviceSelector::Cpu, Some(2)).expect("the CPU").machine();
    let plan = |config: &Config| plan_for(builtin("mnist-unet"), config, &machine).expect("a plan").plan;
    let config = Config::default().batch(8).micro_batches(1);
    let allowing = |config: Config| {
        let levers = Levers { half_activations: Some(Half::Bf16), ..Levers::default() };
        Config { levers, ..config }
    };
    let free = plan(&config);
    let allowed = plan(&allowing(config.clone()));
    assert_ne!(allowed.saved, SavedActivations::Half(Half::Bf16), "nothing asks for it");
    assert!(allowed.minimum_budget_bytes <= free.minimum_budget_bytes);
    let budget = free.minimum_budget_bytes.midpoint(free.unconstrained_peak_bytes);
    let [without, with] = [plan(&config.clone().budget_bytes(budget)), plan(&allowing(config).budget_bytes(budget))];
    println!(
        "{budget} bytes: {} ns, with copies {} ns ({:?})",
        without.predicted_step_ns, with.predicted_step_ns, with.saved
    );
    assert!(with.predicted_step_ns <= without.predicted_step_ns);
}

/// How far gradients of parameters are from those of f32, all together: the norm of the difference over the norm.
#[test]
fn gradients_are_near_those_of_f32() {
    for name in ["mnist-cnn", "mnist-unet", "mnist-lstm"] {
        let model = builtin(name);
        let (train, indices): (_, Vec<usize>) = (data(&model), (0..16).collect());
        let run = |way: Config| {
            let config = way.batch(16).micro_batches(1).seed(5);
            let mut trainer = Trainer::for_gradients(model.clone(), config, "cpu").expect("a trainer");
            trainer.gradients(&train, &indices).expect("gradients")
        };
        let exact = run(Config::default());
        let away = |way: Config| {
            let found = run(way);
            let pairs =
                exact.parameters.iter().flat_map(|(name, (_, exact))| exact.iter().zip(&found.parameters[name].1));
            let [apart, norm] = pairs.fold([0.0, 0.0], |[apart, norm], (&x, &y)| {
                [apart + f64::from(x - y).powi(2), norm + f64::from(x).powi(2)]
            });
            (found.loss, (apart / norm).sqrt())
        };
        for (half, most, most_of_all) in [(Half::Bf16, 2e-2, 0.15), (Half::F16, 5e-3, 0.05)] {
            let (loss, saved) = away(Config::default().save_activations(half));
            assert_eq!(loss, exact.loss, "{name}: forward is that of f32");
            let (_, all) = away(Config::default().precision(half.into()));
            println!(
                "{name}: gradients with saved activations in {half} {saved:.1e} away, with all in {half} {all:.1e}"
            );
            assert!(saved > 0.0 && saved < most, "{name}, saved in {half}: {saved}");
            assert!(all < most_of_all, "{name} in {half}: {all}");
        }
    }
}

/// Losses under PyTorch, in f32 and under autocast in bf16 (tests/golden/autocast.py).
#[derive(Deserialize)]
struct Autocast {
    batch: usize,
    batches: usize,
    settings: Sgd,
    f32: Vec<f32>,
    bf16: Vec<f32>,
}

#[derive(Deserialize)]
struct Sgd {
    lr: f64,
    momentum: f64,
}

#[test]
fn resnet18_learns_as_under_pytorchs_autocast() {
    let golden: Autocast = golden::load("autocast").expect("autocast.json");
    let model = models::builtin("resnet18_cifar").expect("there is one");
    let (samples, count) = (golden.batch * golden.batches, golden.batch * 3 * 32 * 32);
    let names = |what: &str| (0..golden.batches).map(|i| format!("{what}.{i}")).collect::<Vec<_>>();
    let pixels =
        names("input").iter().flat_map(|name| recipe::symmetric(name).take(count).collect::<Vec<_>>()).collect();
    let labels =
        names("target").into_iter().flat_map(|name| recipe::below(&name, 10).take(golden.batch).collect::<Vec<_>>());
    let targets = Targets::labels(labels.collect(), 10);
    let data = TensorDataset::new(Values::F32(pixels), [3, 32, 32], targets).expect("a dataset");
    assert_eq!(tightfit::data::Dataset::len(&data), samples);
    for (precision, theirs, most) in [
        (Precision::F32, &golden.f32, 0.005),
        (Precision::Bf16, &golden.bf16, 0.01),
        (Precision::F16, &golden.f32, 0.01),
    ] {
        let optimizer = Optimizer::Sgd {
            lr: golden.settings.lr,
            momentum: golden.settings.momentum,
            nesterov: false,
            weight_decay: 0.0,
        };
        let config = Config::default().optimizer(optimizer).batch(golden.batch).precision(precision);
        let mut trainer = Trainer::new(model.clone(), config, "cpu").expect("a trainer");
        for (parameter, (desc, _)) in trainer.parameters().expect("parameters") {
            trainer.set_parameter(&parameter, &recipe::parameter(&parameter, &desc.shape)).expect("a parameter");
        }
        let ours: Vec<f32> = (0..theirs.len())
            .map(|step| {
                let first = step % golden.batches * golden.batch;
                let indices: Vec<usize> = (first..first + golden.batch).collect();
                trainer.step(&data, &indices).expect("a step").loss
            })
            .collect();
        let mean = ours.iter().zip(theirs).map(|(a, b)| (a - b).abs()).sum::<f32>() / ours.len() as f32;
        println!("{precision}: losses are {mean:.4} from PyTorch's on average: {ours:?}");
        assert!(mean < most * theirs[0], "{precision}: {mean} on average: {ours:?}, PyTorch has {theirs:?}");
    }
}

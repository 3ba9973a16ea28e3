//! Every built-in model trains to the same bits in half the memory that it needs: what is recomputed and moved changes
//! nothing, batch norm, dropout and running statistics included. On the CPU also at other budgets, and on one, two and three threads.

use std::sync::{Mutex, PoisonError};

use tightfit::data::{Targets, TensorDataset, Values};
use tightfit::models;
use tightfit::nn::Model;
use tightfit::plan::Plan;
use tightfit::tensor::{DType, Shape};
use tightfit::train::{Config, DeviceSelector, Loss, Processor, Trainer, plan_for};

const STEPS: usize = 3;

/// Where a model runs.
#[derive(Clone, Copy, PartialEq)]
enum On {
    /// With this many samples on the CPU, which does not offload: enough activations for a budget to save some.
    Everywhere(usize),
    /// For tensors that not every device binds, of which the update takes more than the activations: no plan takes less than the need.
    Cpu,
}

/// Losses of the steps, the sum of the parameters, and the plan.
type Run = (Vec<f32>, String, Plan);

/// One test at a time: each takes much memory, and the device all of the processor.
static TURN: Mutex<()> = Mutex::new(());

/// Samples of any model, the same each time.
fn data(model: &Model, loss: &Loss, count: usize) -> TensorDataset {
    let shape = model.input_shape().clone();
    let mut state = 12345u32;
    let mut next = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    let numel = count * shape.numel();
    let samples = match model.input().dtype {
        DType::U32 => Values::U32((0..numel).map(|_| next() % 90).collect()),
        _ => Values::F32((0..numel).map(|_| next() as f32 / (1 << 23) as f32 - 1.0).collect()),
    };
    let output = model.output_shape().expect("builds");
    let targets = if *loss == Loss::Mse {
        Targets::Values {
            values: (0..count * output.numel()).map(|_| next() as f32 / (1 << 24) as f32).collect(),
            shape: output,
        }
    } else {
        // Classes are last along sequences, and first in images.
        let (classes, places) = match output[..] {
            [classes] => (classes, Shape::from([])),
            [time, classes] => (classes, Shape::from([time])),
            _ => (output[0], Shape::from(&output[1..])),
        };
        let labels = (0..count * places.numel()).map(|_| next() % classes as u32).collect();
        Targets::label_maps(labels, classes as u32, places)
    };
    TensorDataset::new(samples, shape, targets).expect("a dataset")
}

fn check(name: &str, input: Option<&[usize]>, batch: usize, on: On) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut model = models::builtin(name).expect("listed");
    if let Some(input) = input {
        model = model.with_input(input);
    }
    let loss = match name {
        "lstm_forecaster" => Loss::Mse,
        "char_lstm" | "gpt" => Loss::cross_entropy_of_sequences(),
        _ => Loss::default(),
    };
    let config = |batch: usize| Config::default().loss(loss.clone()).batch(batch).micro_batches(1).seed(3);
    let cpu_batch = if let On::Everywhere(batch) = on { batch } else { batch };
    let data = data(&model, &loss, batch.max(cpu_batch) * STEPS);
    let run = |config: Config, device: &str| -> Run {
        let batch = config.batch;
        let mut trainer = Trainer::new(&model, config, device).expect("a trainer");
        let mut losses = Vec::new();
        for step in 0..STEPS {
            let samples: Vec<usize> = (step * batch..(step + 1) * batch).collect();
            losses.push(trainer.step(&data, &samples).expect("a step").loss);
        }
        assert_eq!(trainer.measured_peak_bytes(), trainer.plan().peak_bytes, "{name}");
        assert!(losses.iter().all(|loss| loss.is_finite()), "{name}: {losses:?}");
        (losses, trainer.parameters_sha256().expect("parameters"), trainer.plan().clone())
    };
    let same = |run: &Run, other: &Run, what: &str| {
        let (need, peak) = (other.2.unconstrained_peak_bytes, other.2.peak_bytes);
        println!(
            "{name} on {what}: need {need}, peak {peak}, predicted {:.0} ms",
            other.2.predicted_step_ns as f64 / 1e6
        );
        assert!(peak < need || on == On::Cpu, "{name} on {what}");
        assert_eq!((&run.0, &run.1), (&other.0, &other.1), "{name} on {what}");
    };

    let on_cpu = |threads: usize| Config { threads: Some(threads), ..config(cpu_batch) };
    let free = run(on_cpu(2), "cpu");
    for (share, threads) in [(0.6, 1), (0.3, 2), (0.0, 3)] {
        // Each thread has memory of its own.
        let machine = Processor::open(&DeviceSelector::Cpu, Some(threads)).expect("the CPU").machine();
        let plan = plan_for(&model, &on_cpu(threads), &machine).expect("a plan").plan;
        let least = plan.minimum_budget_bytes;
        let budget = least + ((plan.unconstrained_peak_bytes - least) as f64 * share) as u64;
        let tight = run(on_cpu(threads).budget_bytes(budget), "cpu");
        assert!(tight.2.peak_bytes <= budget, "{name}");
        same(&free, &tight, &format!("{threads} threads in {budget} bytes"));
    }
    if let On::Everywhere(_) = on
        && let Some(device) = crate::common::gpu()
    {
        let free = run(config(batch), &device);
        let budget = (free.2.unconstrained_peak_bytes / 2).max(free.2.minimum_budget_bytes);
        let tight = run(config(batch).budget_bytes(budget), &device);
        assert!(tight.2.peak_bytes <= budget, "{name}");
        same(&free, &tight, &format!("{device} in {budget} bytes"));
    }
}

macro_rules! zoo {
    ($($test:ident: $name:literal, $input:expr, $batch:literal, $on:expr;)*) => {
        $(#[test]
        fn $test() {
            check($name, $input, $batch, $on);
        })*

        /// Models of which nobody thought here.
        #[test]
        fn every_model_is_tested() {
            let tested = [$($name),*];
            // Three linear layers take what they need and no more: `mlp` has no plan for less.
            let is_small = |name: &&&str| name.starts_with("mnist-") || **name == "mlp";
            let missing = models::NAMES.iter().filter(|name| !is_small(name) && !tested.contains(name));
            assert_eq!(missing.collect::<Vec<_>>(), [&""; 0]);
        }
    };
}

const IMAGE: Option<&[usize]> = Some(&[3, 32, 32]);

use On::{Cpu, Everywhere};

zoo! {
    lenet: "lenet", None, 256, Everywhere(256);
    resnet18: "resnet18", IMAGE, 4, Everywhere(48);
    resnet34: "resnet34", IMAGE, 4, Everywhere(48);
    resnet50: "resnet50", IMAGE, 4, Everywhere(16);
    resnet101: "resnet101", IMAGE, 4, Everywhere(16);
    resnet18_cifar: "resnet18_cifar", None, 3, Everywhere(3);
    // An update has four tensors of the size of the first linear layer's weight in memory at once: that is more than half.
    vgg16: "vgg16", IMAGE, 2, Cpu;
    mobilenet_v2: "mobilenet_v2", IMAGE, 8, Everywhere(8);
    mobilenet_v3_small: "mobilenet_v3_small", IMAGE, 8, Everywhere(24);
    mobilenet_v3_large: "mobilenet_v3_large", IMAGE, 8, Everywhere(8);
    efficientnet_b0: "efficientnet_b0", IMAGE, 8, Everywhere(8);
    densenet121: "densenet121", IMAGE, 4, Everywhere(4);
    unet: "unet", IMAGE, 2, Everywhere(16);
    unet_small: "unet_small", IMAGE, 4, Everywhere(8);
    lstm_forecaster: "lstm_forecaster", None, 128, Everywhere(128);
    char_lstm: "char_lstm", None, 4, Everywhere(4);
    gpt: "gpt", None, 4, Everywhere(4);
}

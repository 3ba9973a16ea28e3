//! The built-in models against PyTorch's: what they consist of, what they compute and how they train.
//!
//! `tests/golden/models.py` says what the numbers are. The device computes in f32, and the reference in f64. Where nets are
//! deep, the two differ by more than rounding: a value near 0 that falls on the other side of a ReLU changes gradients in
//! all layers before it, by hundredths in the last stages of a ResNet on small images. The files say how far PyTorch's own
//! f32 is away, and tolerances are made of that.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::cast_slice;
use serde::Deserialize;
use tightfit::autodiff::LOSS;
use tightfit::data::{INPUT, TARGET, Targets, TensorDataset, Values};
use tightfit::exec::Executor;
use tightfit::graph::{Graph, Node, Phase};
use tightfit::models;
use tightfit::nn::{Built, Init, Mode, Model, Statistics};
use tightfit::train::{Config, DeviceSelector, Loss, Optimizer, Processor, Trainer, plan_for};

use crate::common::{golden, recipe};

/// A file of golden values.
#[derive(Deserialize)]
struct Golden {
    batch: usize,
    sample: Vec<usize>,
    target: Vec<usize>,
    tokens: Option<u32>,
    classes: Option<u32>,
    parameters: usize,
    loss: f64,
    output: Sum,
    float32: Float32,
    state: Vec<Entry>,
    training: Option<Training>,
}

/// A tensor summed up: its norm, its dot product with its probe, and its first values.
#[derive(Deserialize)]
struct Sum(f64, f64, Vec<f64>);

/// How far PyTorch's f32 is from its f64.
#[derive(Deserialize)]
struct Float32 {
    loss: f64,
    output: f64,
    gradients: f64,
}

/// An entry of the state dict: a number of batches; or a parameter with its gradient, or running statistics, and how far
/// those are away in f32.
#[derive(Deserialize)]
#[serde(untagged)]
enum Entry {
    Counter(String, Vec<usize>),
    Tensor(String, Vec<usize>, f64, f64, Vec<f64>, f64),
}

impl Entry {
    fn name(&self) -> &str {
        let (Entry::Counter(name, _) | Entry::Tensor(name, ..)) = self;
        name
    }

    fn shape(&self) -> &[usize] {
        let (Entry::Counter(_, shape) | Entry::Tensor(_, shape, ..)) = self;
        shape
    }

    /// Name, values, and how far they are away in f32.
    fn tensor(&self) -> Option<(&str, Sum, f64)> {
        let Entry::Tensor(name, _, norm, dot, first, float32) = self else { return None };
        Some((name, Sum(*norm, *dot, first.clone()), *float32))
    }
}

#[derive(Deserialize)]
struct Training {
    batch: usize,
    optimizer: Optimizer,
    float64: Losses,
    float32: Losses,
}

#[derive(Deserialize)]
struct Losses {
    losses: Vec<f64>,
    evaluation: f64,
}

/// One test at a time: they take much memory, and share the processor.
static TURN: Mutex<()> = Mutex::new(());

fn golden(name: &str) -> Golden {
    golden::load(&format!("models/{name}")).unwrap_or_else(|| panic!("models/{name}.json is missing"))
}

fn model(name: &str, golden: &Golden) -> Model {
    let model = models::builtin(name);
    let model = model.unwrap_or_else(|| panic!("there is no model `{name}`"));
    model.without_dropout().with_input(golden.sample.clone())
}

impl Golden {
    fn numel(&self, samples: usize, shape: &[usize]) -> usize {
        samples * shape.iter().product::<usize>()
    }

    fn samples(&self, count: usize) -> Values {
        let numel = self.numel(count, &self.sample);
        match self.tokens {
            Some(n) => Values::U32(recipe::below(INPUT, n).take(numel).collect()),
            None => Values::F32(recipe::symmetric(INPUT).take(numel).collect()),
        }
    }

    fn targets(&self, count: usize) -> Targets {
        let numel = self.numel(count, &self.target);
        let shape = self.target.clone();
        match self.classes {
            Some(n) => Targets::label_maps(recipe::below(TARGET, n).take(numel).collect(), n, shape),
            None => Targets::Values { values: recipe::symmetric(TARGET).take(numel).collect(), shape: shape.into() },
        }
    }

    fn config(&self) -> Config {
        Config::default().loss(match (self.classes, self.tokens) {
            (None, _) => Loss::Mse,
            (_, Some(_)) => Loss::cross_entropy_of_sequences(),
            _ => Loss::cross_entropy(),
        })
    }
}

fn check_state_dict(name: &str) {
    let golden = golden(name);
    let model = model(name, &golden);
    assert_eq!(model.parameter_count().expect("builds"), golden.parameters, "{name}: number of parameters");
    let found: BTreeMap<_, _> =
        model.state_dict().expect("builds").into_iter().map(|(name, shape)| (name, shape.to_vec())).collect();
    let expected: BTreeMap<_, _> =
        golden.state.iter().map(|entry| (entry.name().to_owned(), entry.shape().to_vec())).collect();
    for (entry, shape) in &expected {
        assert_eq!(found.get(entry), Some(shape), "{name}: `{entry}`");
    }
    let more: Vec<_> = found.keys().filter(|entry| !expected.contains_key(*entry)).collect();
    assert!(more.is_empty(), "{name} has entries that PyTorch's lacks: {more:?}");
}

/// How far a tensor seems to be from the one that was summed up, over `scale`, or its norm where that is larger. A probe of
/// numbers in -1..1 sees a difference of norm 1 as about 1/√3; the first values stand for the others, unless they are
/// larger.
fn distance(name: &str, found: &[f32], Sum(norm, dot, first): &Sum, scale: f64) -> f64 {
    let (mut squares, mut product) = (0.0, 0.0);
    for (&x, probe) in found.iter().zip(recipe::symmetric(&format!("probe.{name}"))) {
        squares += f64::from(x) * f64::from(x);
        product += f64::from(x) * f64::from(probe);
    }
    let length = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let scale = scale.max(*norm);
    let first_scale = scale * (first.len() as f64 / found.len() as f64).sqrt();
    let first_scale = first_scale.max(length(&mut first.iter().copied()));
    let first = length(&mut found.iter().zip(first).map(|(&x, y)| f64::from(x) - y)) / first_scale;
    let whole = (squares.sqrt() - norm).abs().max((product - dot).abs() * 3f64.sqrt()) / scale;
    if whole.is_finite() { whole.max(first) } else { f64::INFINITY }
}

/// A model on a device, with a plan for two micro-batches of which the first is the one that PyTorch was given.
struct Run {
    executor: Box<dyn Executor>,
    graph: Arc<Graph>,
    program: usize,
    built: Built,
    inputs: Vec<(&'static str, Vec<u8>)>,
}

/// Where a model runs.
#[derive(Clone, Copy, PartialEq)]
enum On {
    Cpu,
    Gpu,
}

impl Run {
    fn new(name: &str, golden: &Golden, on: On) -> Option<Run> {
        let model = model(name, golden);
        let config = golden.config().optimizer(Optimizer::sgd(0.0)).statistics(Statistics::Ghost);
        let config = config.batch(2 * golden.batch).micro_batches(2);
        let selector = match on {
            On::Cpu => DeviceSelector::Cpu,
            On::Gpu => crate::common::gpu()?.as_str().into(),
        };
        let mut processor = Processor::open(&selector, None).expect("a device");
        let planned = plan_for(&model, &config, &processor.machine()).expect("a plan");
        let executor = processor.executor(&planned).expect("an executor");
        let program = planned.plan.schedule[0];
        let mode = Mode::Train(Statistics::Ghost);
        let built = model.build_part(golden.batch, 2 * golden.batch, mode).expect("builds");
        let samples = match golden.samples(golden.batch) {
            Values::U32(tokens) => cast_slice(&tokens).to_vec(),
            Values::F32(values) => cast_slice(&values).to_vec(),
            Values::U8(_) => unreachable!("no golden samples are bytes"),
        };
        let targets = match golden.targets(golden.batch) {
            Targets::Labels { labels, .. } => cast_slice(&labels).to_vec(),
            Targets::Values { values, .. } => cast_slice(&values).to_vec(),
            Targets::None => unreachable!("golden samples have targets"),
        };
        let graph = planned.graphs[program].clone();
        let mut run = Run { executor, graph, program, built, inputs: vec![(INPUT, samples), (TARGET, targets)] };
        run.write_all();
        Some(run)
    }

    fn write_all(&mut self) {
        let shape = |parameter: &tightfit::nn::Parameter| self.built.graph.value(parameter.value).desc.shape.clone();
        for parameter in &self.built.parameters {
            let values = recipe::parameter(&parameter.name, &shape(parameter));
            self.executor.write(&parameter.name, cast_slice(&values)).expect("a parameter");
        }
        for buffer in &self.built.buffers {
            let values = start(buffer.init, &buffer.name, shape(buffer).numel());
            self.executor.write(&buffer.name, cast_slice(&values)).expect("a buffer");
        }
    }

    fn run(&mut self) {
        let inputs: Vec<_> = self.inputs.iter().map(|(name, data)| (*name, &data[..])).collect();
        self.executor.run(self.program, &inputs).expect("a run");
    }

    /// What the loss is computed from.
    fn output(&mut self) -> Vec<f32> {
        let target = self.graph.find(TARGET).expect("a target");
        let reads_target = |node: &&Node| node.inputs.iter().any(|&input| self.graph.storage_root(input) == target);
        let loss = self.graph.nodes().iter().filter(|node| !node.op.is_view()).find(reads_target).expect("a loss");
        let output = self.graph.storage_root(loss.inputs[0]);
        let mut found = Vec::new();
        let inputs: Vec<_> = self.inputs.iter().map(|(name, data)| (*name, &data[..])).collect();
        let mut visit = |_: &Graph, value, data: &[u8]| {
            if value == output {
                found = bytemuck::pod_collect_to_vec(data);
            }
            found.is_empty()
        };
        self.executor.inspect(self.program, &inputs, Phase::Forward, &mut visit).expect("a run");
        found
    }

    /// An accumulator, as if the micro-batch were the whole batch.
    fn read(&mut self, name: &str) -> Vec<f32> {
        let data = self.executor.read(name).unwrap_or_else(|error| panic!("`{name}`: {error}"));
        bytemuck::pod_collect_to_vec::<u8, f32>(&data).into_iter().map(|x| 2.0 * x).collect()
    }

    /// What a buffer becomes if the step ends with this micro-batch.
    fn buffer_after(&mut self, name: &str) -> Vec<f32> {
        let named = |buffer| self.built.graph.value(buffer).name == name;
        let update =
            *self.built.buffer_updates.iter().find(|update| named(update.buffer)).expect("a buffer that is updated");
        let init = self.built.buffers.iter().find(|buffer| buffer.name == name).expect("a buffer").init;
        let batch = self.read(&format!("buffer_update.{name}"));
        let before = start(init, name, batch.len());
        let after = |(&before, &batch): (&f32, &f32)| {
            (1.0 - update.momentum) * before + update.momentum * update.factor * batch
        };
        before.iter().zip(&batch).map(after).collect()
    }
}

fn start(init: Init, name: &str, numel: usize) -> Vec<f32> {
    let mut values = vec![0.0; numel];
    init.fill(0, name, &mut values);
    values
}

/// The worst of several distances.
#[derive(Default)]
struct Worst {
    distance: f64,
    name: String,
}

impl Worst {
    fn see(&mut self, name: &str, distance: f64) {
        if distance >= self.distance {
            *self = Worst { distance, name: name.to_owned() };
        }
    }

    fn check(&self, what: &str, allowed: f64, float32: f64) {
        let Worst { distance, name } = self;
        println!("{what}: within {distance:.1e} (`{name}`), allowed {allowed:.1e}, PyTorch's f32: {float32:.1e}");
        assert!(*distance <= allowed, "{what} differ by {distance:.2e} in `{name}`, allowed are {allowed:.2e}");
    }
}

/// One batch in training mode. `kinks`: how far gradients may be away because values fall on the other side of a kink.
fn check_step(name: &str, on: On, kinks: f64) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let golden = golden(name);
    let Some(mut run) = Run::new(name, &golden, on) else { return };
    run.run();
    let is_parameter = |entry: &str| run.built.parameters.iter().any(|parameter| parameter.name == entry);
    let (of_gradients, of_buffers): (Vec<_>, Vec<_>) =
        golden.state.iter().filter_map(Entry::tensor).partition(|(entry, ..)| is_parameter(entry));
    // Some gradients are zeros but for rounding, such as those of a bias before a norm.
    let total = of_gradients.iter().map(|(_, Sum(norm, ..), _)| norm * norm).sum::<f64>().sqrt();
    let [mut losses, mut outputs, mut gradients, mut statistics] = std::array::from_fn(|_| Worst::default());
    losses.see(LOSS, (f64::from(run.read(LOSS)[0]) - golden.loss).abs() / golden.loss);
    for (entry, sum, _) in &of_gradients {
        gradients.see(entry, distance(entry, &run.read(&format!("grad.{entry}")), sum, 1e-3 * total));
    }
    for (entry, sum, _) in &of_buffers {
        statistics.see(entry, distance(entry, &run.buffer_after(entry), sum, 0.0));
    }
    outputs.see("output", distance("output", &run.output(), &golden.output, 0.0));

    let Float32 { loss, output, gradients: of_all } = golden.float32;
    let of_statistics = of_buffers.iter().fold(0.0, |worst: f64, (.., float32)| worst.max(*float32));
    losses.check(&format!("{name}: losses"), 10.0 * loss + 1e-5, loss);
    outputs.check(&format!("{name}: outputs"), 10.0 * output + 1e-5, output);
    statistics.check(&format!("{name}: running statistics"), 10.0 * of_statistics + 1e-5, of_statistics);
    gradients.check(&format!("{name}: gradients"), 5.0 * of_all + 1e-4 + kinks, of_all);
}

/// Ten steps on one batch, and an evaluation with the running statistics that they leave.
fn check_training(name: &str) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for device in ["cpu".to_owned()].into_iter().chain(crate::common::gpu()) {
        check_training_on(name, &device);
    }
}

fn check_training_on(name: &str, device: &str) {
    let golden = golden(name);
    let training = golden.training.as_ref().expect("there is a training");
    let (samples, targets) = (golden.samples(training.batch), golden.targets(training.batch));
    let data = TensorDataset::new(samples, golden.sample.clone(), targets).expect("a dataset");
    let config = golden.config().optimizer(training.optimizer).batch(training.batch).micro_batches(1);
    let mut trainer = Trainer::new(model(name, &golden), config, device).expect("a trainer");
    for (parameter, (desc, _)) in trainer.parameters().expect("parameters") {
        trainer.set_parameter(&parameter, &recipe::parameter(&parameter, &desc.shape)).expect("a parameter");
    }
    let indices: Vec<usize> = (0..training.batch).collect();
    let found: Vec<f64> = training
        .float64
        .losses
        .iter()
        .map(|_| f64::from(trainer.step(&data, &indices).expect("a step").loss))
        .collect();
    let (exact, float32) = (&training.float64.losses, &training.float32.losses);
    // Where a loss has become small, what is left of it depends on how the steps before were rounded.
    let away = |found: f64, exact: f64| (found - exact).abs() / (exact + 0.02 * training.float64.losses[0]);
    let (mut worst, mut of_float32) = (Worst::default(), 0.0f64);
    for (step, ((&found, &exact), &float32)) in found.iter().zip(exact).zip(float32).enumerate() {
        worst.see(&format!("step {}", step + 1), away(found, exact));
        of_float32 = of_float32.max(away(float32, exact));
    }
    // Winograd products round more than plain sums, and a training of few samples makes much of it.
    worst.check(&format!("{name}: losses of a training"), 3e-2, of_float32);
    // The running statistics lag behind parameters that ten steps have taken far: what is left of a batch of few samples then
    // depends much more on rounding than the losses do.
    let evaluation = trainer.evaluate(&data).expect("an evaluation").loss;
    let mut after = Worst::default();
    after.see("loss", away(evaluation, training.float64.evaluation));
    let of_float32 = away(training.float32.evaluation, training.float64.evaluation);
    after.check(&format!("{name}: evaluation after a training"), 0.2, of_float32);
}

macro_rules! models {
    ($($name:ident on $($on:ident)+, kinks $kinks:literal;)*) => {$(
        mod $name {
            #[test]
            fn state_dict() {
                super::check_state_dict(stringify!($name));
            }

            #[test]
            fn step() {
                $(super::check_step(stringify!($name), super::On::$on, $kinks);)+
            }
        }
    )*};
}

// Not every device binds the tensors of `vgg16`.
models! {
    lenet on Cpu Gpu, kinks 0.0;
    resnet18_cifar on Cpu Gpu, kinks 0.05;
    resnet18 on Cpu Gpu, kinks 0.05;
    resnet34 on Cpu Gpu, kinks 0.05;
    resnet50 on Cpu Gpu, kinks 0.05;
    resnet101 on Cpu Gpu, kinks 0.05;
    vgg16 on Cpu, kinks 0.05;
    mobilenet_v2 on Cpu Gpu, kinks 0.05;
    mobilenet_v3_small on Cpu Gpu, kinks 0.05;
    mobilenet_v3_large on Cpu Gpu, kinks 0.05;
    efficientnet_b0 on Cpu Gpu, kinks 0.0;
    densenet121 on Cpu Gpu, kinks 0.05;
    unet on Cpu Gpu, kinks 0.05;
    unet_small on Cpu Gpu, kinks 0.05;
    lstm_forecaster on Cpu Gpu, kinks 0.0;
    char_lstm on Cpu Gpu, kinks 0.0;
    gpt on Cpu Gpu, kinks 0.0;
}

#[test]
fn resnet18_cifar_training() {
    check_training("resnet18_cifar");
}

#[test]
fn mobilenet_v3_small_training() {
    check_training("mobilenet_v3_small");
}

#[test]
fn unet_training() {
    check_training("unet_small");
}

#[test]
fn lstm_forecaster_training() {
    check_training("lstm_forecaster");
}

//! What forward keeps for backward in small forms: the same gradients bit for bit, and fewer bytes.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tightfit::autodiff::{self, Training};
use tightfit::device::testing::device_or_skip;
use tightfit::error::GraphError;
use tightfit::exec::{CpuExecutor, Executor, GpuExecutor};
use tightfit::graph::{Graph, Pass, Phase, Role};
use tightfit::models;
use tightfit::nn::{Conv2d, Lstm, Mode, Model, Sequential, Statistics};
use tightfit::ops::cross_entropy::CrossEntropy;
use tightfit::ops::sgd::Sgd;
use tightfit::ops::{Stash, UpdateRule};
use tightfit::plan::{CostModel, Levers, Limits, Planned, Request, Source, plan};
use tightfit::tensor::{DType, TensorDesc};

struct Classifier {
    model: Model,
    stash: Stash,
    rule: Arc<dyn UpdateRule>,
}

impl Source for Classifier {
    /// The form that is looked at, whichever the planner asks for.
    fn graph(&self, pass: Pass, samples: usize, batch: usize, _stash: Stash) -> Result<Graph, GraphError> {
        let built = self.model.build_part(samples, batch, Mode::Train(Statistics::Exact))?;
        let mut graph = built.graph;
        let labels = graph.input("labels", TensorDesc::u32([samples]));
        let loss = graph.apply(CrossEntropy::default(), &[built.output, labels])?;
        let weight = samples as f32 / batch as f32;
        let (groups, group_of) = (std::slice::from_ref(&self.rule), &BTreeMap::new());
        let (stash, carries) = (self.stash, &built.carries[..]);
        let training = Training { groups, group_of, clip_norm: None, pass, weight, stash, carries };
        autodiff::joint(graph, loss, &[], &training)
    }
}

fn classifier(model: &Model, stash: Stash) -> Classifier {
    let rule = Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.0, lr: 0.1 };
    Classifier { model: model.clone(), stash, rule: Arc::new(rule) }
}

fn planned(model: &Model, stash: Stash, batch: usize, micro_batches: usize, limits: Limits) -> Planned {
    let costs = CostModel::default();
    let levers = Levers { compact: false, ..Levers::default() };
    let request = Request { batch, budget_bytes: None, micro_batches: Some(micro_batches), levers, limits, costs };
    plan(&classifier(model, stash), &request).unwrap()
}

/// Numbers in -0.5..0.5.
fn numbers(salt: usize, count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + salt * 104_729) % 1009) as f32 / 1009.0 - 0.5).collect()
}

/// Everything that outlives two steps, gradients in the momentum among it.
fn train(model: &Model, planned: &Planned, executor: &mut dyn Executor) -> BTreeMap<String, Vec<u8>> {
    let rule = classifier(model, Stash::Full).rule;
    for parameter in model.build(1, Mode::Evaluate).unwrap().parameters {
        let value = planned.plan.persistent.iter().find(|value| value.name == parameter.name).unwrap();
        let mut data = vec![0.0; value.desc.numel()];
        parameter.init.fill(1, &parameter.name, &mut data);
        executor.write(&parameter.name, bytemuck::cast_slice(&data)).unwrap();
    }
    for step in 1..3 {
        for (part, &program) in planned.plan.schedule.iter().enumerate() {
            let graph = &planned.graphs[program];
            let inputs = graph.values().iter().filter(|value| value.role == Role::Input).map(|value| {
                let count = value.desc.numel();
                let data = match value.name.as_str() {
                    "labels" => (0..count as u32).flat_map(|i| (i % 3).to_le_bytes()).collect::<Vec<_>>(),
                    autodiff::HYPER => bytemuck::cast_slice(&rule.hyper(step)).to_vec(),
                    _ => bytemuck::cast_slice(&numbers(step as usize * 10 + part, count)).to_vec(),
                };
                (value.name.as_str(), data)
            });
            let inputs: Vec<_> = inputs.collect();
            let inputs: Vec<_> = inputs.iter().map(|(name, data)| (*name, data.as_slice())).collect();
            executor.run(program, &inputs).unwrap();
        }
    }
    planned.plan.persistent.iter().map(|value| (value.name.clone(), executor.read(&value.name).unwrap())).collect()
}

fn small_models() -> Vec<Model> {
    let image = |name: &str| Sequential::new(name, [2, 9, 9]);
    let cnn = image("cnn").push(Conv2d::new(5, 3).padding(1)).relu().conv2d(3, 3).relu().max_pool2d(3).leaky_relu(0.1);
    let skips = image("skips").conv2d(4, 1).relu().skip("a").max_pool2d((3, 1)).upsample((3, 1)).add("a").concat("a");
    let wide = image("wide").leaky_relu(-0.5).conv2d(3, 3).leaky_relu(-0.5).max_pool2d((7, 6)).relu();
    let last = Sequential::new("lstm_last", [11, 6]).lstm(8);
    let odd = Sequential::new("lstm_odd", [7, 3]).push(Lstm::new(5).return_sequences(true)).lstm(3);
    let one = Sequential::new("lstm_one", [1, 3]).push(Lstm::new(4).return_sequences(true)).relu().flatten();
    [cnn, skips, wide]
        .map(Sequential::flatten)
        .into_iter()
        .chain([last, odd, one])
        .map(|model| model.linear(3).into())
        .collect()
}

fn assert_same(model: &Model, full: &BTreeMap<String, Vec<u8>>, compact: &BTreeMap<String, Vec<u8>>) {
    assert_eq!(full.len(), compact.len());
    for (name, data) in full {
        assert!(bytemuck::pod_collect_to_vec::<u8, f32>(data).iter().all(|x| x.is_finite()), "{name}");
        assert!(compact[name] == *data, "{}: `{name}` differs", model.name());
    }
}

#[test]
fn training_is_the_same_bit_for_bit_on_the_cpu() {
    for model in small_models() {
        for micro_batches in [1, 3] {
            let run = |stash| {
                let planned = planned(&model, stash, 7, micro_batches, Limits::default());
                train(&model, &planned, &mut CpuExecutor::new(&planned).unwrap())
            };
            assert_same(&model, &run(Stash::Full), &run(Stash::Compact));
        }
    }
}

#[test]
fn training_is_the_same_bit_for_bit_on_the_gpu() {
    let mut models = small_models();
    models.extend([models::mnist_cnn(), models::mnist_lstm()]);
    for model in models {
        for batch in [7, 64] {
            let mut results = Vec::new();
            for stash in [Stash::Full, Stash::Compact] {
                let Some(device) = device_or_skip() else { return };
                let planned = planned(&model, stash, batch, 1, device.limits());
                results.push(train(&model, &planned, &mut GpuExecutor::new(device, &planned).unwrap()));
            }
            assert_same(&model, &results[0], &results[1]);
        }
    }
}

fn joint(model: &Model, stash: Stash, samples: usize) -> Graph {
    classifier(model, stash).graph(Pass::Only, samples, samples, stash).unwrap()
}

/// Bytes that forward makes and that later phases read.
fn saved_bytes(graph: &Graph) -> u64 {
    let later = graph.nodes().iter().filter(|node| node.phase != Phase::Forward);
    let read: BTreeSet<_> = later.flat_map(|node| &node.inputs).map(|&id| graph.storage_root(id)).collect();
    let made = |value: &tightfit::graph::Value| {
        value.role == Role::Intermediate && value.producer.is_some_and(|node| graph.node(node).phase == Phase::Forward)
    };
    read.into_iter().map(|id| graph.value(id)).filter(|value| made(value)).map(|value| value.desc.size_bytes()).sum()
}

#[test]
fn small_forms_take_fewer_bytes() {
    for (name, most) in [("mnist-cnn", 0.9), ("mnist-lstm", 0.5), ("mnist-deep", 1.0), ("mnist-unet", 1.0)] {
        let model = models::builtin(name).unwrap();
        let [full, compact] = [Stash::Full, Stash::Compact].map(|stash| saved_bytes(&joint(&model, stash, 64)));
        println!("{name}: {full} bytes saved for backward, compact {compact}");
        assert!(compact as f64 <= most * full as f64, "{name}: {full} bytes, compact {compact}");
    }
}

#[test]
fn small_forms_stand_in_only_where_nothing_else_keeps_the_value() {
    // Backward of the second convolution reads what the first relu makes, and those of the poolings no forward value.
    let convs = Sequential::new("m", [1, 8, 8]).conv2d(2, 3).relu().conv2d(2, 3).relu();
    let model = Model::from(convs.avg_pool2d(2).max_pool2d(2).flatten().linear(3));
    let graph = joint(&model, Stash::Compact, 2);
    let ops = |name: &str| {
        graph.nodes().iter().filter(|node| node.name == name).map(|node| node.op.name()).collect::<Vec<_>>()
    };
    // A convolution takes in the relu that follows it.
    let conv = |number: usize| {
        ops(&format!("conv{number}")).into_iter().filter(|op| op.starts_with("relu")).collect::<Vec<_>>()
    };
    assert_eq!(conv(1), ["relu.grad_input"]);
    assert_eq!(conv(2), ["relu.mask", "relu.grad_input_mask"]);
    assert_eq!(ops("pool2"), ["max_pool2d.packed", "max_pool2d.grad_input"]);
    assert!(graph.nodes().is_sorted_by_key(|node| node.phase), "small forms are made in forward");
    for (i, value) in graph.values().iter().enumerate() {
        let Some(node) = value.producer else { continue };
        assert!(graph.node(node).outputs.iter().any(|id| id.index() == i));
    }
    let integers = graph.values().iter().filter(|value| value.desc.dtype == DType::U32);
    assert_eq!(integers.count(), 3, "labels, the packed index and a mask");
    let full = joint(&model, Stash::Full, 2);
    assert!(full.nodes().iter().all(|node| !node.op.name().contains("mask") && !node.op.name().contains("pack")));
}

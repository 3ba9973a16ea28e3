//! What forward keeps for backward in compressed form: the same gradients bit for bit, and fewer bytes.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use crate::common::classifier::{Form, assert_same, config, planned, train};
use tightfit::exec::{CpuExecutor, GpuExecutor};
use tightfit::graph::{Graph, Phase, Role};
use tightfit::models;
use tightfit::nn::{Conv2d, Lstm, Model, Sequential, Statistics};
use tightfit::ops::SavedActivations;
use tightfit::plan::Limits;
use tightfit::tensor::DType;
use tightfit::testing::{device_or_skip, training_graph};

fn form(saved: SavedActivations) -> Form {
    Form { saved, fused: false, statistics: Statistics::Exact }
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

#[test]
fn training_is_the_same_bit_for_bit_on_the_cpu() {
    for model in small_models() {
        // The reference, and native code.
        for limits in [Limits::default(), Limits::of_cpu(2)] {
            for micro_batches in [1, 3] {
                let run = |saved| {
                    let planned = planned(&model, form(saved), 7, micro_batches, limits);
                    let executor = Box::new(CpuExecutor::new(&planned).unwrap());
                    train(&model, form(saved), 7, &planned, executor)
                };
                assert_same(&model, &run(SavedActivations::Full), &run(SavedActivations::Compressed));
            }
        }
    }
}

#[test]
fn training_is_the_same_bit_for_bit_on_the_gpu() {
    let mut models = small_models();
    models.extend([models::mnist_cnn(10), models::mnist_lstm(10)]);
    for model in models {
        for batch in [7, 64] {
            let mut results = Vec::new();
            for saved in [SavedActivations::Full, SavedActivations::Compressed] {
                let Some(device) = device_or_skip() else { return };
                let planned = planned(&model, form(saved), batch, 1, device.limits());
                let executor = Box::new(GpuExecutor::new(device, &planned).unwrap());
                results.push(train(&model, form(saved), batch, &planned, executor));
            }
            assert_same(&model, &results[0], &results[1]);
        }
    }
}

fn joint(model: &Model, saved: SavedActivations, samples: usize) -> Graph {
    training_graph(model, &config(form(saved), samples), saved).unwrap()
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
fn compressed_activations_take_fewer_bytes() {
    for (name, most) in [("mnist-cnn", 0.9), ("mnist-lstm", 0.5), ("mnist-deep", 1.0), ("mnist-unet", 1.0)] {
        let model = models::builtin(name).unwrap();
        let [full, compressed] =
            [SavedActivations::Full, SavedActivations::Compressed].map(|saved| saved_bytes(&joint(&model, saved, 64)));
        println!("{name}: {full} bytes saved for backward, compressed {compressed}");
        assert!(compressed as f64 <= most * full as f64, "{name}: {full} bytes, compressed {compressed}");
    }
}

#[test]
fn compressed_activations_stand_in_only_where_nothing_else_keeps_the_value() {
    // Backward of the second convolution reads what the first relu makes, and those of the poolings no forward value.
    let convs = Sequential::new("m", [1, 8, 8]).conv2d(2, 3).relu().conv2d(2, 3).relu();
    let model = Model::from(convs.avg_pool2d(2).max_pool2d(2).flatten().linear(3));
    let graph = joint(&model, SavedActivations::Compressed, 2);
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
    assert!(graph.nodes().is_sorted_by_key(|node| node.phase), "compressed activations are made in forward");
    for (i, value) in graph.values().iter().enumerate() {
        let Some(node) = value.producer else { continue };
        assert!(graph.node(node).outputs.iter().any(|id| id.index() == i));
    }
    let integers = graph.values().iter().filter(|value| value.desc.dtype == DType::U32);
    assert_eq!(integers.count(), 3, "labels, the packed index and a mask");
    let full = joint(&model, SavedActivations::Full, 2);
    assert!(full.nodes().iter().all(|node| !node.op.name().contains("mask") && !node.op.name().contains("pack")));
}

//! Operator fusion: the bits of the same nodes apart, in no more memory.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use crate::common::classifier::{Form, assert_same, config, planned, train};
use tightfit::exec::{CpuExecutor, GpuExecutor};
use tightfit::graph::{FusionStage, Graph, Phase};
use tightfit::nn::{BatchNorm, Conv2d, LayerNorm, Linear, Model, Statistics, Tensor};
use tightfit::ops::elementwise::add::Add;
use tightfit::ops::elementwise::fused::Fused;
use tightfit::ops::elementwise::mul::Mul;
use tightfit::ops::elementwise::pow::Pow;
use tightfit::ops::elementwise::relu::Relu;
use tightfit::ops::elementwise::scale::Scale;
use tightfit::ops::elementwise::silu::Silu;
use tightfit::ops::elementwise::tanh::Tanh;
use tightfit::ops::matmul::matmul::MatMul;
use tightfit::ops::norm::batch_norm::BatchNorm as BatchNormOp;
use tightfit::ops::pool::max_pool2d::MaxPool2d;
use tightfit::ops::{Affine, Op, SavedActivations};
use tightfit::plan::Limits;
use tightfit::tensor::TensorDesc;
use tightfit::testing::{RunOptions, device_or_skip, run_op, training_graph};

fn numbers(desc: &TensorDesc, salt: usize) -> (TensorDesc, Vec<u8>) {
    let number = |i: usize| ((i * 7919 + salt * 104_729) % 1999) as f32 / 999.0 - 1.0;
    (desc.clone(), (0..desc.numel()).flat_map(|i| number(i).to_le_bytes()).collect())
}

/// An op, and which inputs it reads; `None` is what the op before made.
type Part = (Arc<dyn Op>, Vec<Option<usize>>);

fn part(op: impl Op, operands: &[Option<usize>]) -> Part {
    (Arc::new(op), operands.to_vec())
}

#[test]
fn a_fused_op_is_its_ops_one_after_another() {
    let Some(device) = device_or_skip() else { return };
    let norm = BatchNormOp { eps: 1e-5, affine: Affine::Full, relu: false, ghost: false };
    let sum = || part(Add, &[None, Some(2)]);
    let cases: [(Part, Vec<Part>); 5] = [
        // A product and a sum, which a compiler would like to merge.
        (part(Mul, &[Some(0), Some(1)]), vec![sum(), part(Tanh, &[None])]),
        (part(Scale { factor: 1.1 }, &[Some(0)]), vec![part(Add, &[Some(1), None]), part(Relu, &[None])]),
        (part(Silu, &[Some(0)]), vec![part(Mul, &[Some(0), None]), part(Pow { exponent: 3.0 }, &[None])]),
        (part(Pow { exponent: 0.5 }, &[Some(0)]), vec![part(Scale { factor: 3.0 }, &[None]), sum()]),
        (part(norm, &[Some(0), Some(3), Some(4)]), vec![part(Add, &[None, Some(1)]), part(Relu, &[None])]),
    ];
    for shape in [vec![3, 2, 7], vec![4, 5, 8, 9], vec![6, 3, 61, 67]] {
        let large = TensorDesc::f32(shape.clone());
        let channel = TensorDesc::f32([shape[1]]);
        let descs = [large.clone(), large.clone(), large, channel.clone(), channel];
        let inputs: Vec<_> = descs.iter().enumerate().map(|(salt, desc)| numbers(desc, salt)).collect();
        for ((head, first), epilogue) in &cases {
            let run = |op: &dyn Op, operands: &[Option<usize>], before: Option<&Vec<u8>>| {
                let operand = |operand: &Option<usize>| match *operand {
                    Some(i) => inputs[i].clone(),
                    None => (descs[0].clone(), before.unwrap().clone()),
                };
                let inputs: Vec<_> = operands.iter().map(operand).collect();
                run_op(&device, op, &inputs, RunOptions::default()).unwrap().swap_remove(0)
            };
            let mut apart = run(&**head, first, None);
            // The inputs of the whole are numbered by the first use.
            let mut order: Vec<Option<usize>> = first.clone();
            let mut fused = Fused::new(head.clone(), first.len());
            for (op, operands) in epilogue {
                apart = run(&**op, operands, Some(&apart));
                let place = |operand: &Option<usize>| {
                    operand.as_ref()?;
                    let known = order.iter().position(|known| known == operand);
                    Some(known.unwrap_or_else(|| {
                        order.push(*operand);
                        order.len() - 1
                    }))
                };
                let operands: Vec<_> = operands.iter().map(place).collect();
                fused = fused.then(op.clone(), operands);
            }
            assert!(run(&fused, &order, None) == apart, "{fused:?} on {shape:?}");
        }
    }
}

fn normalized<'a>(x: Tensor<'a>, name: &str, kernel: usize) -> Tensor<'a> {
    let conv = Conv2d::new(6, kernel).padding(kernel / 2).bias(false);
    x.layer(&format!("conv{name}"), conv).layer(&format!("norm{name}"), BatchNorm::new())
}

fn residual() -> Model {
    Model::new("residual", [2, 8, 9], |x| {
        let x = normalized(x, "1", 3).relu();
        let y = normalized(normalized(x, "2", 3).relu(), "3", 3);
        let x = (y + normalized(x, "4", 1)).relu();
        (normalized(x, "5", 3) + x).relu().max_pool2d(2).flatten().apply(Linear::new(3))
    })
}

/// What somebody might write: products, sums and functions of the same things.
fn own() -> Model {
    Model::new("own", [13], |x| {
        let [a, b, c] = ["a", "b", "c"].map(|name| x.layer(name, Linear::new(17)));
        let gated = (a * b + c).tanh() + (b * c).silu();
        let y = (gated * gated + a.clamp(-0.3, 0.5)).apply(LayerNorm::new()) + b;
        let y = y + y.layer("norm2", LayerNorm::new()).layer("d", Linear::new(17));
        (y.exp().pow(0.5).log() * c).apply(Linear::new(3))
    })
}

fn forms(statistics: Statistics) -> [Form; 4] {
    [
        (SavedActivations::Full, false),
        (SavedActivations::Full, true),
        (SavedActivations::Compressed, false),
        (SavedActivations::Compressed, true),
    ]
    .map(|(saved, fused)| Form { saved, fused, statistics })
}

const RUNS: [(Statistics, usize); 3] = [(Statistics::Exact, 1), (Statistics::Ghost, 3), (Statistics::Frozen, 2)];

#[test]
fn training_is_the_same_bit_for_bit_on_the_cpu() {
    for model in [residual(), own()] {
        // The reference, and native code.
        for (limits, (statistics, micro_batches)) in
            [Limits::default(), Limits::of_cpu(2)].into_iter().flat_map(|limits| RUNS.map(|run| (limits, run)))
        {
            let results = forms(statistics).map(|form| {
                let planned = planned(&model, form, 7, micro_batches, limits);
                train(&model, form, 7, &planned, Box::new(CpuExecutor::new(&planned).unwrap()))
            });
            results[1..].iter().for_each(|result| assert_same(&model, &results[0], result));
        }
    }
}

#[test]
fn training_is_the_same_bit_for_bit_on_the_gpu() {
    for model in [residual(), own()] {
        for (statistics, micro_batches) in RUNS {
            let mut results = Vec::new();
            // All forms once: on the CPU, each is tried with all statistics.
            for form in &forms(statistics)[..if micro_batches == 1 { 4 } else { 2 }] {
                let Some(device) = device_or_skip() else { return };
                let planned = planned(&model, *form, 7, micro_batches, device.limits());
                let executor = Box::new(GpuExecutor::new(device, &planned).unwrap());
                results.push(train(&model, *form, 7, &planned, executor));
            }
            results[1..].iter().for_each(|result| assert_same(&model, &results[0], result));
        }
    }
}

fn graph(model: &Model, form: Form) -> Graph {
    let mut graph = training_graph(model, &config(form, 7), form.saved).unwrap();
    if form.fused {
        graph.fuse(FusionStage::Complete, &[]);
    }
    graph
}

fn ops(graph: &Graph, phase: Phase) -> Vec<&'static str> {
    graph.nodes().iter().filter(|node| node.phase == phase).map(|node| node.op.name()).collect()
}

#[test]
fn a_residual_block_ends_in_one_pass() {
    let [apart, joined, ..] = forms(Statistics::Exact).map(|form| graph(&residual(), form));
    let count = |graph: &Graph, name: &str| ops(graph, Phase::Forward).iter().filter(|op| **op == name).count();
    assert_eq!([count(&apart, "batch_norm"), count(&apart, "add"), count(&apart, "relu")], [5, 2, 2]);
    // The last ReLU runs after the pooling.
    assert_eq!([count(&joined, "batch_norm"), count(&joined, "add"), count(&joined, "relu")], [5, 0, 1]);
    let backward = |name: &'static str| {
        let of_name = joined.nodes().iter().filter(move |node| node.phase == Phase::Backward && node.op.name() == name);
        of_name.map(|node| node.inputs.len()).collect::<Vec<_>>()
    };
    // Of two gradients, where the second is made; the first then goes through ReLU.
    assert_eq!(backward("conv2d.grad_input"), [4, 2, 2, 3]);
    assert_eq!(backward("relu.grad_input"), [2], "behind the pooling");
    assert_eq!(backward("fused").len() + backward("add").len(), 0);
    let sums = joined.nodes().iter().filter(|node| node.op.name() == "batch_norm" && node.inputs.len() == 4);
    for node in sums {
        assert_eq!(joined.value(node.outputs[0]).producer.map(|id| joined.node(id).outputs.len()), Some(3));
    }
    for (i, value) in joined.values().iter().enumerate() {
        let Some(node) = value.producer else { continue };
        assert!(joined.node(node).outputs.iter().any(|id| id.index() == i), "{}", value.name);
    }
}

#[test]
fn joined_nodes_take_less_time_and_the_smallest_budget_stays() {
    for model in [residual(), own()] {
        let [apart, joined, packed_apart, packed] =
            forms(Statistics::Exact).map(|form| planned(&model, form, 64, 1, Limits::default()).plan);
        for (joined, apart) in [(joined, apart), (packed, packed_apart)] {
            assert_eq!((joined.fused, apart.fused), (true, false));
            assert!(joined.predicted_step_ns < apart.predicted_step_ns);
            assert_eq!(joined.minimum_budget_bytes, apart.minimum_budget_bytes);
        }
    }
}

#[test]
fn each_stage_applies_its_own_rules_and_keeps_what_it_is_told_to() {
    let product = MatMul { trans_b: true, ..MatMul::default() };
    let build = |pooled: bool| {
        let mut graph = Graph::new();
        let x = graph.input("x", TensorDesc::f32([2, 3, 4, 4]));
        let last = if pooled {
            let relu = graph.apply(Relu, &[x]).unwrap();
            let pool = MaxPool2d { kernel: [2, 2], stride: [2, 2], ..MaxPool2d::default() };
            graph.apply_all(pool, &[relu]).unwrap()[0]
        } else {
            let a = graph.input("a", TensorDesc::f32([5, 3]));
            let b = graph.parameter("b", TensorDesc::f32([7, 3]));
            let between = graph.apply(product, &[a, b]).unwrap();
            let relu = graph.apply(Relu, &[between]).unwrap();
            graph.apply(Tanh, &[relu]).unwrap()
        };
        (graph, last)
    };
    let names = |graph: &Graph| graph.nodes().iter().map(|node| node.op.name()).collect::<Vec<_>>();
    let (mut graph, last) = build(false);
    let now = graph.fuse(FusionStage::Forward, &[last]);
    assert_eq!(names(&graph), ["matmul", "tanh"], "ReLU is built in, and no op without a gradient is made");
    assert_eq!(graph.value(now[last.index()]).producer.map(|id| graph.node(id).op.name()), Some("tanh"));
    let (mut graph, last) = build(false);
    let now = graph.fuse(FusionStage::Complete, &[]);
    assert_eq!(names(&graph), ["matmul"]);
    assert!(format!("{:?}", graph.nodes()[0].op).starts_with("Fused"));
    assert_eq!(now[last.index()], graph.nodes()[0].outputs[0]);
    for stage in [FusionStage::Forward, FusionStage::Complete] {
        let (mut graph, _) = build(false);
        let kept: Vec<_> = graph.nodes().iter().map(|node| node.outputs[0]).collect();
        graph.fuse(stage, &kept);
        assert_eq!(names(&graph), ["matmul", "relu", "tanh"], "{stage:?}");
    }
    let (mut graph, _) = build(true);
    graph.fuse(FusionStage::Complete, &[]);
    assert_eq!(names(&graph), ["relu", "max_pool2d"], "backward would be wrong by now");
    graph.fuse(FusionStage::Forward, &[graph.nodes()[0].outputs[0]]);
    assert_eq!(names(&graph), ["relu", "max_pool2d"], "what is kept does not move");
    graph.fuse(FusionStage::Forward, &[]);
    assert_eq!(names(&graph), ["max_pool2d", "relu"]);
}

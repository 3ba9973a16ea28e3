//! Time of heavy ops by shape, on the default device: `cargo bench --bench ops`, or `cargo bench --bench ops -- conv2d` for
//! some. Criterion's rate is in flops, as `Op::cost` counts them. Nodes run again and again in one submission and nothing is
//! read back, so a time is that of the kernels alone.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tightfit::device::Device;
use tightfit::error::DeviceError;
use tightfit::graph::Graph;
use tightfit::nn::{BatchNorm, Conv2d, Linear, Sequential};
use tightfit::ops::Op;
use tightfit::ops::elementwise::add::Add;
use tightfit::ops::elementwise::gelu::{Gelu, GeluForm};
use tightfit::ops::elementwise::relu::Relu;
use tightfit::ops::matmul::matmul::MatMul;
use tightfit::plan::Limits;
use tightfit::tensor::{NodeId, TensorDesc, ValueId};
use tightfit::testing::{Stopwatch, Timing};
use tightfit::train::{Config, Loss, plan};

/// A node to be timed, with words that tell it from others of its op.
struct Case {
    label: String,
    graph: Graph,
    node: NodeId,
}

/// An op by itself.
fn single(label: &str, op: impl Op, shapes: &[&[usize]]) -> Vec<Case> {
    let mut graph = Graph::new();
    let inputs: Vec<ValueId> =
        shapes.iter().map(|&shape| graph.input("input", TensorDesc::f32(shape.to_vec()))).collect();
    graph.apply(op, &inputs).expect("shapes that fit");
    let node = graph.node_ids().next().expect("one node");
    vec![Case { label: label.to_owned(), graph, node }]
}

/// The ops of a layer, or of the loss, that a training step of a model runs and whose names begin so.
fn trained(label: &str, model: &Sequential, batch: usize, loss: Loss, layer: &str, ops: &str) -> Vec<Case> {
    let config = Config::default().batch(batch).loss(loss).micro_batches(1);
    let graph = plan(model, &config, &Limits::default()).expect("plan").graphs.swap_remove(0);
    let is_wanted = |&node: &NodeId| {
        let node = graph.node(node);
        node.name == layer && node.op.name().starts_with(ops) && !node.op.is_view()
    };
    let nodes: Vec<_> = graph.node_ids().filter(is_wanted).collect();
    assert!(!nodes.is_empty(), "{label}: {layer} has no {ops}");
    nodes.into_iter().map(|node| Case { label: label.to_owned(), graph: graph.as_ref().clone(), node }).collect()
}

fn gemms() -> Vec<Case> {
    let gemm = |trans_a, trans_b| MatMul { trans_a, trans_b, ..MatMul::default() };
    let mut cases = Vec::new();
    for (label, op) in [("nn", gemm(false, false)), ("nt", gemm(false, true)), ("tn", gemm(true, false))] {
        cases.extend(single(&format!("512x512x512 {label}"), op, &[&[512, 512], &[512, 512]]));
    }
    cases.extend(single("12544x64x288 nn", MatMul::default(), &[&[12544, 288], &[288, 64]]));
    // A dense layer: forward, and the gradients of its weight and its input.
    cases.extend(single("64x512x784 forward", gemm(false, true), &[&[64, 784], &[512, 784]]));
    cases.extend(single("64x512x784 dW", gemm(true, false), &[&[64, 512], &[64, 784]]));
    cases.extend(single("64x512x784 dX", MatMul::default(), &[&[64, 512], &[512, 784]]));
    cases
}

fn convolutions() -> Vec<Case> {
    let of = |label: &str, channels: usize, side: usize, conv: Conv2d| {
        // The first layer makes the second need a gradient of its input.
        let model = Sequential::new("conv", [channels, side, side]).conv2d(channels, 1).push(conv);
        trained(label, &model, 64, Loss::Mse, "conv2", "conv2d")
    };
    let same = |channels| Conv2d::new(channels, 3).padding(1);
    [
        of("3x3 32->64 28x28", 32, 28, same(64)),
        of("3x3 32->64 14x14", 32, 14, same(64)),
        of("1x1 64->64 28x28", 64, 28, Conv2d::new(64, 1)),
        of("3x3 depthwise 64 28x28", 64, 28, same(64).groups(64)),
        of("3x3 3->32 32x32", 3, 32, same(32)),
        of("3x3 16->16 64x64", 16, 64, same(16)),
        of("3x3 64->128 28x28 stride 2", 64, 28, same(128).stride(2)),
        of("1x1 32->64 64x64 stride 2", 32, 64, Conv2d::new(64, 1).stride(2)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn sequences() -> Vec<Case> {
    let of = |(features, hidden, steps): (usize, usize, usize)| {
        let label = format!("I{features} H{hidden} T{steps} B64");
        trained(&label, &Sequential::new("lstm", [steps, features]).lstm(hidden), 64, Loss::Mse, "lstm1", "lstm")
    };
    [(28, 128, 28), (128, 128, 128), (256, 256, 28)].into_iter().flat_map(of).collect()
}

fn others() -> Vec<Case> {
    let image = [64, 28, 28];
    let norm = Sequential::new("norm", image).conv2d(64, 1).push(BatchNorm::new());
    let classes = Sequential::new("classes", [16]).linear(1000);
    let square = Sequential::new("square", [1024]).push(Linear::new(1024).bias(false));
    let tensor: &[usize] = &[64, 64, 28, 28];
    [
        trained("64x64x28x28", &norm, 64, Loss::Mse, "bn1", "batch_norm"),
        trained("256x1000", &classes, 256, Loss::default(), "loss", "cross_entropy"),
        trained("1024x1024", &square, 16, Loss::Mse, "linear1", "adam"),
        single("64x64x28x28", Relu, &[tensor]),
        single("64x64x28x28", Gelu { approximate: GeluForm::Erf }, &[tensor]),
        single("64x64x28x28", Add, &[tensor, tensor]),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn ops(criterion: &mut Criterion) {
    let device = match Device::open(None) {
        Err(error @ DeviceError::NoAdapter) => {
            println!("skipped: {error}");
            return;
        }
        device => device.expect("device"),
    };
    let watch = Stopwatch::new(&device, Timing::default()).expect("empty submissions");
    for case in [gemms(), convolutions(), sequences(), others()].into_iter().flatten() {
        let node = case.graph.node(case.node);
        let descs = |ids: &[ValueId]| ids.iter().map(|&id| case.graph.value(id).desc.clone()).collect::<Vec<_>>();
        let cost = node.op.cost(&descs(&node.inputs), &descs(&node.outputs));
        let mut group = criterion.benchmark_group(node.op.name());
        group.sample_size(10).throughput(Throughput::Elements(cost.flops));
        group.warm_up_time(std::time::Duration::from_millis(500));
        group.measurement_time(std::time::Duration::from_secs(2));
        group.bench_function(&case.label, |b| {
            let repeated = watch.repeat(&case.graph, case.node).expect("memory and kernels");
            b.iter_custom(|iterations| repeated.time(iterations).expect("runs"));
        });
        group.finish();
    }
}

criterion_group!(benches, ops);
criterion_main!(benches);

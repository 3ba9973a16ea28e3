//! Measures what ops and copies cost on a device, and fits a cost model to it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::device_profile::Profile;
use super::loss::Loss;
use super::optimizer::Optimizer;
use super::processor::Processor;
use super::settings::Config;
use super::source::{ModelSource, Purpose};
use super::tune::{self, Tuned};
use crate::autodiff::{self, Clip, Training, Update};
use crate::device::AdapterInfo;
use crate::error::{DataError, GraphError, TrainError};
use crate::exec::cpu::measure::CpuStopwatch;
use crate::exec::measure::{CopyTime, Measure, Stopwatch, Timing};
use crate::files;
use crate::graph::{FusionStage, Graph, Pass};
use crate::models;
use crate::nn::{
    AdaptiveAvgPool2d, Built, Conv2d, ConvTranspose2d, Layer, LeakyRelu, Mode, Model, Pad, Relu6, Sequential,
    SqueezeExcite, Statistics,
};
use crate::ops::elementwise::add::Add;
use crate::ops::elementwise::mul::Mul;
use crate::ops::elementwise::relu::Relu;
use crate::ops::pool::upsample_nearest2d::UpsampleNearest2d;
use crate::ops::reduce::mean::Mean;
use crate::ops::reduce::sum::Sum;
use crate::ops::shape::concat::Concat;
use crate::ops::shape::copy::Copy;
use crate::ops::{SavedActivations, Target};
use crate::plan::{CopyRates, CostModel, DeviceClass, Limits, OpRates, Source as _, Work, cost_name};
use crate::tensor::{TensorDesc, ValueId};

/// How much is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// Enough for predictions of every op, and which tiles of matrix products are the quickest: a minute or two.
    #[default]
    Full,
    /// A few nodes, by which the rates of the device's [class](DeviceClass) are scaled, and copies: seconds.
    Quick,
}

/// What was measured of one op.
#[derive(Clone, Debug, PartialEq)]
pub struct OpFit {
    /// The op's name.
    pub op: &'static str,
    /// Nodes measured.
    pub nodes: usize,
    /// What was fitted.
    pub rates: OpRates,
    /// Flops per nanosecond of the node that did best.
    pub best_flops_per_ns: f64,
    /// Bytes per nanosecond of the node that did best.
    pub best_bytes_per_ns: f64,
    /// Median of the relative errors of the fit.
    pub median_error: f64,
}

/// A device's profile, and how well it describes what was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// What goes to the file.
    pub profile: Profile,
    /// The ops in the order of their names.
    pub ops: Vec<OpFit>,
    /// The tiles of matrix products that were tried; the profile has those that are taken.
    pub tiles: Vec<Tuned>,
    /// Nodes measured.
    pub nodes: usize,
    /// Median of the relative errors over all nodes.
    pub median_error: f64,
}

/// Measures a device.
///
/// # Errors
/// Where the device fails. The reference is not measured: it is for checking.
pub fn calibrate(processor: &Processor, effort: Effort) -> Result<Calibration, TrainError> {
    let timing = match effort {
        Effort::Full => Timing::default(),
        Effort::Quick => Timing::quick(),
    };
    match processor {
        Processor::Gpu(device) => {
            let tiles = if effort == Effort::Full { tune::tune(device)? } else { Vec::new() };
            let target = Target { tiles: tune::table(&tiles), ..device.target() };
            let watch = Stopwatch::new(device, timing)?.with_target(target);
            let calibration = measure(&watch, device.info().clone(), device.limits(), Some(target), effort)?;
            Ok(Calibration { tiles, ..calibration })
        }
        // Measuring all of it takes seconds.
        Processor::Cpu(cpu) => {
            let watch = CpuStopwatch::new(*cpu, Timing::default());
            measure(&watch, cpu.info(), cpu.limits(), None, Effort::Full)
        }
        Processor::Reference => {
            let reason = "the reference is for checking and is not measured: choose another device";
            Err(DataError::Mismatch(reason.to_owned()).into())
        }
    }
}

fn measure(
    watch: &dyn Measure,
    device: AdapterInfo,
    limits: Limits,
    target: Option<Target>,
    effort: Effort,
) -> Result<Calibration, TrainError> {
    let graphs = graphs(effort)?;
    let times = watch.node_times(&graphs.iter().collect::<Vec<_>>())?;
    let mut nodes: Vec<(&'static str, Work, f64)> = Vec::new();
    for (graph, times) in graphs.iter().zip(times) {
        for (node, ns) in times {
            let measured = (cost_name(graph, node), Work::of(graph, node, target.as_ref()), ns);
            // Nodes that are alike have the same time and would only count twice.
            if !nodes.contains(&measured) {
                nodes.push(measured);
            }
        }
    }
    let copies = watch.copy_times()?;
    let copy = |ns: fn(&CopyTime) -> f64| {
        CopyRates::fit(&copies.iter().map(|copy| (copy.size_bytes, ns(copy))).collect::<Vec<_>>())
    };
    let usual = CostModel::of_class(DeviceClass::of(&device.device_type));
    let mut costs = match effort {
        Effort::Full => usual.clone().fitted(&nodes),
        Effort::Quick => usual.clone().scaled(&nodes),
    };
    costs = CostModel {
        target,
        run_ns: watch.run_ns()?,
        offload: copy(|copy| copy.offload_ns),
        prefetch: copy(|copy| copy.prefetch_ns),
        unified_memory: device.unified_memory,
        ..costs
    };
    // On a machine with much else to do, measuring may fail; a file with such figures would be of no use to anyone.
    for wrong in costs.repair(&usual) {
        log::warn!("measured {wrong}: what is usual for its class is used; measure again when the machine is idle");
    }
    let errors = |nodes: &[&(&'static str, Work, f64)]| {
        let mut errors: Vec<_> =
            nodes.iter().map(|(op, work, ns)| (costs.op_rates(op).ns(*work) / ns - 1.0).abs()).collect();
        errors.sort_by(f64::total_cmp);
        errors.get(errors.len() / 2).copied().unwrap_or_default()
    };
    let mut names: Vec<_> = nodes.iter().map(|&(op, ..)| op).collect();
    names.sort_unstable();
    names.dedup();
    let ops = names.into_iter().map(|name| {
        let of_op: Vec<_> = nodes.iter().filter(|&&(op, ..)| op == name).collect();
        let best =
            |amount: fn(&Work) -> u64| of_op.iter().map(|(_, work, ns)| amount(work) as f64 / ns).fold(0.0, f64::max);
        OpFit {
            op: name,
            nodes: of_op.len(),
            rates: *costs.op_rates(name),
            best_flops_per_ns: best(|work| work.flops),
            best_bytes_per_ns: best(|work| work.read_bytes + work.written_bytes),
            median_error: errors(&of_op),
        }
    });
    let (ops, median_error) = (ops.collect(), errors(&nodes.iter().collect::<Vec<_>>()));
    let profile = Profile::new(device, limits, costs, effort);
    Ok(Calibration { profile, ops, tiles: Vec::new(), nodes: nodes.len(), median_error })
}

/// Measures a device in a few seconds if that was not done yet, and keeps its profile where [`Machine::of`](super::Machine::of)
/// finds it; `None` where it has one already, or the user has no folder for it. The command line does so before it plans.
///
/// # Errors
/// Where the device fails, or the profile cannot be kept.
pub fn calibrate_once(processor: &Processor) -> Result<Option<Calibration>, TrainError> {
    let Some(path) = processor.info().and_then(|info| Profile::path_for_new(&info)) else { return Ok(None) };
    // Before all that takes long.
    files::make_folder_of(&path)?;
    files::check_writable(&path, Profile::MOST_BYTES)?;
    let calibration = calibrate(processor, Effort::Quick)?;
    calibration.profile.save(&path)?;
    Ok(Some(calibration))
}

/// Graphs whose nodes are measured: together they hold every op, at sizes that tell launches, flops and bytes apart.
fn graphs(effort: Effort) -> Result<Vec<Graph>, GraphError> {
    let adam = Config::default();
    let sgd = Config {
        optimizer: Optimizer::Sgd { lr: 0.1, momentum: 0.9, nesterov: false, weight_decay: 0.0 },
        ..adam.clone()
    };
    let small = Sequential::new("small", [4, 12, 12]).conv2d(8, 3).relu().max_pool2d(2).flatten().linear(10);
    let mut graphs = vec![
        joint(&small, &adam, Pass::Only, 2)?,
        joint(&small, &adam, Pass::Only, 32)?,
        joint(&small, &sgd, Pass::Last, 8)?,
    ];
    if effort == Effort::Quick {
        // Large enough to be more than launches on any device.
        let large =
            Sequential::new("large", [64, 32, 32]).conv2d(64, 3).batch_norm().relu().conv2d(64, 3).flatten().linear(64);
        graphs.push(joint(&large, &adam, Pass::Only, 16)?);
        return Ok(graphs);
    }
    for (model, sizes) in
        [(models::mnist_mlp(10), [16, 128]), (models::mnist_cnn(10), [8, 32]), (models::mnist_lstm(10), [8, 64])]
    {
        for samples in sizes {
            graphs.push(joint(&model, &adam, Pass::Only, samples)?);
        }
    }
    let clipped = Config { clip: Some(Clip::Norm(1.0)), ..sgd.clone() };
    graphs.push(joint(models::mnist_cnn(10), &clipped, Pass::Last, 16)?);
    graphs.push(joint(models::mnist_mlp(10), &sgd, Pass::Middle, 64)?);
    let map = Sequential::new("map", [4, 24, 24]).conv2d(8, 1);
    for loss in [
        Loss::Mse,
        Loss::Mae,
        Loss::Huber { delta: 1.0 },
        Loss::bce_with_logits(),
        Loss::SoftCrossEntropy { label_smoothing: 0.1, class_weights: Vec::new(), from_logits: true },
        Loss::dice(),
        Loss::default(),
    ] {
        let config = Config { loss, ..adam.clone() };
        graphs.push(joint(&map, &config, Pass::Only, 4)?);
        graphs.push(joint(&map, &config, Pass::Only, 32)?);
    }
    for optimizer in [
        Optimizer::adam8bit(0.1),
        Optimizer::rmsprop(0.1),
        Optimizer::adagrad(0.1),
        Optimizer::lion(0.1),
        Optimizer::lamb(0.1),
        Optimizer::adafactor(0.1),
    ] {
        graphs.push(joint(models::mnist_mlp(10), &Config { optimizer, ..adam.clone() }, Pass::Only, 8)?);
    }
    for (channels, side, conv) in [
        (3, 32, Conv2d::new(32, 3).padding(1)),
        (16, 32, Conv2d::new(64, 1)),
        (32, 16, Conv2d::new(64, 3).padding(1)),
        (64, 16, Conv2d::new(32, 3).padding(1).stride(2)),
        (128, 8, Conv2d::new(128, 3).padding(1)),
        (16, 20, Conv2d::new(16, 5)),
        (32, 28, Conv2d::new(32, 3).padding(1).groups(32)),
        (96, 4, Conv2d::new(96, 5).padding(2).groups(96)),
        (64, 16, Conv2d::new(64, 3).padding(1).stride(2).groups(64)),
        (16, 56, Conv2d::new(16, 3).padding(1).groups(16)),
        (8, 6, Conv2d::new(8, 3).padding(1).groups(8)),
        (320, 2, Conv2d::new(320, 5).padding(2).groups(320)),
    ] {
        let model = Sequential::new("conv", [channels, side, side]);
        // The first convolution makes the second need a gradient of its input.
        let model = model.push(Conv2d::new(channels, 1)).push(conv).avg_pool2d(2).flatten().linear(10);
        graphs.push(joint(&model, &adam, Pass::Only, 12)?);
    }
    for (features, samples) in [(256, 32), (256, 200), (1024, 16), (1024, 100)] {
        let model = Sequential::new("gemm", [features]).linear(features).linear(100);
        graphs.push(joint(&model, &adam, Pass::Only, samples)?);
    }
    for (time, input, hidden, samples) in [(3, 5, 16, 2), (12, 40, 256, 24), (40, 64, 128, 8), (24, 16, 64, 64)] {
        let sequence = |name: &str| Sequential::new(name, [time, input]);
        graphs.push(joint(sequence("lstm").lstm(hidden).linear(10), &adam, Pass::Only, samples)?);
        graphs.push(joint(sequence("gru").gru(hidden).linear(10), &adam, Pass::Only, samples)?);
        graphs.push(joint(sequence("rnn").rnn(hidden).linear(10), &adam, Pass::Only, samples)?);
        graphs.push(joint(sequence("rnn_relu").rnn_relu(hidden).linear(10), &adam, Pass::Only, samples)?);
    }
    for samples in [4, 64] {
        graphs.push(joint(assorted(), &adam, Pass::Only, samples)?);
        graphs.push(joint(mobile(), &adam, Pass::Only, samples)?);
        graphs.push(joint(volumes(), &adam, Pass::Only, samples)?);
        let sequences = Config { loss: Loss::cross_entropy_of_sequences(), ..adam.clone() };
        graphs.push(joint(models::gpt(32, models::CHARACTERS), &sequences, Pass::Only, samples.min(16))?);
        for statistics in [Statistics::Exact, Statistics::Frozen] {
            graphs.push(joint(normalized(), &Config { statistics, ..adam.clone() }, Pass::Only, samples)?);
        }
        graphs.push(residual(samples)?);
        let mut fused = joint(assorted(), &adam, Pass::Only, samples)?;
        fused.fuse(FusionStage::Complete, &[]);
        graphs.push(fused);
        graphs.push(compressed(&models::mnist_lstm(10), samples)?);
        graphs.push(compressed(&models::mnist_cnn(10), samples.min(16))?);
        // What averages says nothing of where ReLU was at work.
        let smooth = Sequential::new("smooth", [3, 32, 32]).push(Conv2d::new(16, 3)).relu().avg_pool2d(2);
        graphs.push(compressed(&smooth.flatten().linear(10).into(), samples)?);
    }
    Ok(graphs)
}

/// The graph of one pass.
pub(super) fn joint(model: impl Into<Model>, config: &Config, pass: Pass, samples: usize) -> Result<Graph, GraphError> {
    let model = model.into();
    let source = ModelSource::new(&model, config, Purpose::Training).expect("bug: settings that make no sense");
    // Half a batch, so that losses are weighted as in micro-batches.
    source.graph(pass, samples, if pass == Pass::Only { samples } else { 2 * samples }, SavedActivations::Full)
}

/// Layers that the built-in models lack.
fn assorted() -> Sequential {
    let mut model = Sequential::new("assorted", [16, 16, 16]).conv2d(16, 1);
    for activation in [
        Layer::from(LeakyRelu::new(0.01)),
        crate::nn::Sigmoid.into(),
        crate::nn::Tanh.into(),
        crate::nn::Silu.into(),
        crate::nn::HardSwish.into(),
        crate::nn::Gelu::new().into(),
        crate::nn::Elu::default().into(),
        crate::nn::Softplus::default().into(),
        crate::nn::Mish.into(),
        crate::nn::Prelu::new().into(),
    ] {
        model = model.push(activation);
    }
    model.permute([1, 2, 0]).softmax().log_softmax().flatten().linear(10)
}

/// What mobile networks and those of segmentation are made of.
fn mobile() -> Sequential {
    let model = Sequential::new("mobile", [16, 16, 16]).conv2d(32, 1).push(Relu6);
    let model = model.push(SqueezeExcite::new(8).hard_sigmoid()).push(SqueezeExcite::new(8).silu());
    let model = model.push(ConvTranspose2d::new(16, 2).stride(2)).dropout(0.1).stochastic_depth(0.1);
    model.push(AdaptiveAvgPool2d::new(7)).global_avg_pool().linear(10)
}

/// Layers of volumes, what is put around images and cut off them, and the largest of each channel.
fn volumes() -> Sequential {
    let model = Sequential::new("volumes", [4, 8, 12, 12]).conv3d(16, 3).max_pool3d(2).rescaling(0.5, 0.5);
    let model = model.reshape([48, 5, 5]).push(Pad::new([(0, 0), (2, 2), (1, 3)]).reflect());
    let model = model.push(Pad::new([(0, 0), (3, 0), (0, 2)]).edge()).pad([(0, 0), (1, 1), (1, 1)]);
    model.cropping([(0, 0), (1, 0), (0, 1)]).global_max_pool().linear(10)
}

/// Normalizations, after a layer that makes them need a gradient of their input.
fn normalized() -> Sequential {
    let model = Sequential::new("normalized", [32, 16, 16]).conv2d(32, 1);
    model.batch_norm().group_norm(8).layer_norm().rms_norm().flatten().linear(10)
}

/// Ops that no layer uses alone.
fn residual(samples: usize) -> Result<Graph, GraphError> {
    let mut graph = Graph::new();
    let [a, b] = ["a", "b"].map(|name| graph.parameter(name, TensorDesc::f32([samples, 16, 10, 10])));
    let sum = graph.apply(Add, &[a, b])?;
    let product = graph.apply(Mul, &[sum, b])?;
    let positive = graph.apply(Relu, &[product])?;
    let copy = graph.apply(Copy, &[positive])?;
    graph.apply(Sum { axes: vec![0, 2, 3], keepdim: false }, &[copy])?;
    graph.apply(Mean { axes: vec![2, 3], keepdim: false }, &[copy])?;
    let both = graph.apply(Concat { axis: 1 }, &[sum, product])?;
    let larger = graph.apply(UpsampleNearest2d { scale: [2, 2] }, &[both])?;
    finish(graph, larger, &Loss::Mse, SavedActivations::Full)
}

/// A model whose activations are saved compressed.
fn compressed(model: &Model, samples: usize) -> Result<Graph, GraphError> {
    let Built { graph, output, .. } = model.build(samples, Mode::Train(Statistics::Exact))?;
    finish(graph, output, &Loss::default(), SavedActivations::Compressed)
}

fn finish(mut graph: Graph, output: ValueId, loss: &Loss, saved: SavedActivations) -> Result<Graph, GraphError> {
    let target = graph.input("target", loss.target_desc(&graph.value(output).desc));
    let (loss, weight) = loss.apply(&mut graph, output, target, 1.0, 0, None)?;
    let groups = [Optimizer::default().rule().expect("bug: settings that make no sense")];
    let group_of = BTreeMap::new();
    let (update, frozen) = (Update::plain(&groups, &group_of), &BTreeSet::new());
    let training = Training { update, frozen, pass: Pass::Only, weight, saved, rounded: false, buffer_updates: &[] };
    autodiff::joint(graph, loss, &[], &training)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::device::testing::device_or_skip;
    use crate::exec::Cpu;

    #[test]
    fn the_ops_of_every_model_are_measured() {
        let ops = |graphs: &[Graph]| -> BTreeSet<_> {
            graphs.iter().flat_map(|graph| graph.node_ids().map(|node| cost_name(graph, node))).collect()
        };
        let measured = ops(&graphs(Effort::Full).expect("builds"));
        let mut missing = BTreeMap::new();
        for name in models::NAMES {
            let model = models::builtin(name).expect("listed");
            let apart = joint(model, &Config::default(), Pass::Only, 4).expect("builds");
            let mut joined = apart.clone();
            joined.fuse(FusionStage::Complete, &[]);
            let used = ops(&[apart, joined]);
            missing.extend(used.difference(&measured).map(|op| (*op, name)));
            if let Ok(small) = compressed(&models::builtin(name).expect("listed"), 4) {
                missing.extend(ops(&[small]).difference(&measured).map(|op| (*op, name)));
            }
        }
        assert!(missing.is_empty(), "add what models run to the graphs above: {missing:?}");
    }

    /// Those of layers that need no settings, which are all activations and then some.
    #[test]
    fn the_ops_of_plain_layers_are_measured() {
        let graphs = graphs(Effort::Full).expect("builds");
        let names = |graph: &Graph| graph.node_ids().map(|node| cost_name(graph, node)).collect::<Vec<_>>();
        let measured: BTreeSet<_> = graphs.iter().flat_map(names).collect();
        let mut tried = 0;
        for kind in Layer::KINDS {
            let Ok(layer) = serde_json::from_value::<Layer>(serde_json::json!({ "kind": kind.kind })) else { continue };
            let model = Sequential::new("plain", [4, 8, 8]).conv2d(4, 1).push(layer).flatten().linear(10);
            if model.output_shape().is_err() {
                continue;
            }
            // One that makes probabilities is not trained with a cross-entropy.
            let config = Config { loss: Loss::Mse, ..Config::default() };
            let graph = joint(&model, &config, Pass::Only, 4).expect(kind.kind);
            for node in graph.nodes() {
                let op = node.op.name();
                assert!(node.op.is_view() || measured.contains(op), "add {op} of {} to the graphs above", kind.kind);
            }
            tried += 1;
        }
        assert!(tried > 15, "{tried}");
    }

    #[test]
    fn a_quick_calibration_gives_a_profile() {
        let mut processors = vec![Processor::Cpu(Cpu::new(Some(2)))];
        processors.extend(device_or_skip().map(|device| Processor::Gpu(Box::new(device))));
        for processor in &mut processors {
            let calibration = calibrate(processor, Effort::Quick).expect("measures");
            assert_eq!(calibration.profile.costs.check(), Ok(()));
            assert_eq!(calibration.profile.limits, processor.machine().limits);
            assert!(
                calibration.ops.iter().any(|fit| fit.op == "conv2d.grad_weight" && fit.nodes >= 2),
                "{calibration:?}"
            );
            let costs = &calibration.profile.costs;
            assert!(costs.run_ns > 0.0 && costs.offload_ns(1 << 20) > 0.0 && costs.prefetch_ns(1 << 20) > 0.0);
        }
        assert!(calibrate(&Processor::Reference, Effort::Quick).is_err(), "it is for checking");
    }
}

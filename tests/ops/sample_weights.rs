//! Weights of samples, in every loss: weights of 1 change no bit, and samples of weight 0 take no part. On the twins and on a device.

use std::collections::BTreeSet;
use std::sync::Arc;

use libtest_mimic::Failed;
use tightfit::device::Device;
use tightfit::ops::Op;
use tightfit::ops::loss::accuracy::Accuracy;
use tightfit::ops::loss::bce_with_logits::BceWithLogits;
use tightfit::ops::loss::cross_entropy::CrossEntropy;
use tightfit::ops::loss::dice::{Dice, Probabilities};
use tightfit::ops::loss::huber::Huber;
use tightfit::ops::loss::mae::Mae;
use tightfit::ops::loss::mean_loss::MeanLoss;
use tightfit::ops::loss::mse::Mse;
use tightfit::ops::loss::soft_cross_entropy::SoftCrossEntropy;
use tightfit::tensor::{TensorDesc, ValueId};
use tightfit::testing::{Case, Fill, RunOptions, all_ops, run_op};

use crate::Report;
use crate::common::eval::{Buf, Mini};
use crate::common::fill;
use crate::{gpu, nodes};

/// Rows of every input that has some: no other extent is 6.
const ROWS: usize = 6;

/// A loss without weights of samples and with them.
struct Loss {
    without: Case,
    with: Arc<dyn Op>,
}

/// Gradients are wanted of the first inputs.
fn loss<O: Op>(op: impl Fn(bool) -> O, differentiable: usize, inputs: &[(&[usize], Fill)]) -> Loss {
    let desc = |&(shape, fill): &(&[usize], Fill)| {
        (if matches!(fill, Fill::Labels(_)) { TensorDesc::u32(shape) } else { TensorDesc::f32(shape) }, fill)
    };
    let without = Case {
        name: "without".to_owned(),
        op: Arc::new(op(false)),
        inputs: inputs.iter().map(desc).collect(),
        wanted: (0..inputs.len()).map(|i| i < differentiable).collect(),
        reduction: 1,
        finite_differences: false,
    };
    Loss { without, with: Arc::new(op(true)) }
}

fn losses() -> Vec<Loss> {
    let normal = Fill::Normal;
    let (shares, weights) = (Fill::Uniform(0.0, 1.0), Fill::Uniform(0.25, 4.0));
    // Its sum is split.
    let large: &[usize] = &[ROWS, 5, 71];
    let classes: &[usize] = &[ROWS, 5, 7];
    let (labels, normalizer, by_class) = ((&[ROWS, 7][..], Fill::Labels(5)), (&[1][..], weights), (&[5][..], weights));
    let cross_entropy = CrossEntropy {
        label_smoothing: 0.1,
        ignore_index: Some(1),
        normalized: true,
        weighted: true,
        sample_weights: false,
    };
    let soft = SoftCrossEntropy { label_smoothing: 0.1, weighted: true, sample_weights: false };
    let dice = Dice { probabilities: Probabilities::Softmax, smooth: 1.0, ignore_index: None, sample_weights: false };
    let sigmoid = Dice { probabilities: Probabilities::Sigmoid, ..dice };
    vec![
        loss(|sample_weights| Mse { sample_weights }, 2, &[(large, normal), (large, normal)]),
        loss(|sample_weights| Mae { sample_weights }, 2, &[(large, normal), (large, normal)]),
        loss(|sample_weights| Huber { delta: 0.5, sample_weights }, 2, &[(large, normal), (large, normal)]),
        loss(
            |sample_weights| BceWithLogits { weighted: false, sample_weights },
            1,
            &[(large, normal), (large, shares)],
        ),
        loss(
            |sample_weights| BceWithLogits { weighted: true, sample_weights },
            1,
            &[(large, normal), (large, shares), by_class],
        ),
        loss(
            |sample_weights| CrossEntropy { sample_weights, ..CrossEntropy::default() },
            1,
            &[(classes, normal), labels],
        ),
        loss(
            |sample_weights| CrossEntropy { sample_weights, ..cross_entropy },
            1,
            &[(classes, normal), labels, normalizer, by_class],
        ),
        // A workgroup for each position.
        loss(
            |sample_weights| CrossEntropy { sample_weights, ..CrossEntropy::default() },
            1,
            &[(&[ROWS, 517], normal), (&[ROWS], Fill::Labels(517))],
        ),
        loss(
            |sample_weights| SoftCrossEntropy { sample_weights, ..soft },
            1,
            &[(classes, normal), (classes, shares), by_class],
        ),
        loss(|sample_weights| Dice { sample_weights, ..dice }, 1, &[(classes, normal), labels]),
        loss(|sample_weights| Dice { sample_weights, ..sigmoid }, 1, &[(classes, normal), (classes, shares)]),
        loss(|sample_weights| Accuracy { ignore_index: Some(1), sample_weights }, 0, &[(classes, normal), labels]),
        loss(|sample_weights| MeanLoss { sample_weights }, 1, &[(large, normal)]),
    ]
}

impl Loss {
    fn descs(&self, weights: Option<usize>) -> Vec<TensorDesc> {
        let descs = self.without.inputs.iter().map(|(desc, _)| desc.clone());
        descs.chain(weights.map(|count| TensorDesc::f32([count]))).collect()
    }

    /// The loss and its gradients, with so many weights or without.
    fn graph(&self, weights: Option<usize>) -> Mini {
        let op = if weights.is_some() { &self.with } else { &self.without.op };
        let wanted: Vec<_> = self.without.wanted.iter().copied().chain(weights.map(|_| false)).collect();
        Mini::new(op, &self.descs(weights), &[true], &wanted).unwrap()
    }

    fn inputs(&self) -> Vec<Buf<f32>> {
        fill::inputs("sample_weights", &self.without)
    }
}

/// The bytes of the loss and of its gradients: by the twins, or on a device.
fn run(mini: &Mini, inputs: &[Buf<f32>], device: Option<&Device>) -> Vec<Vec<u8>> {
    let grads: Vec<_> = mini.grad_outputs.iter().map(|id| id.map(|_| Buf::Real(vec![0.75f32]))).collect();
    let bytes = |values: Vec<Option<Buf<f32>>>| -> Vec<_> {
        values.into_iter().map(|value| value.as_ref().map(Buf::to_bytes)).collect()
    };
    let values = match device {
        None => bytes(mini.run(inputs, &grads, false)),
        Some(device) => {
            let mut values = bytes(mini.sources(inputs, &grads));
            for node in mini.graph.nodes() {
                let input = |id: &ValueId| (mini.graph.value(*id).desc.clone(), values[id.index()].clone().unwrap());
                let inputs: Vec<_> = node.inputs.iter().map(input).collect();
                let outputs = run_op(device, &*node.op, &inputs, RunOptions::default()).unwrap();
                for (id, data) in node.outputs.iter().zip(outputs) {
                    values[id.index()] = Some(data);
                }
            }
            values
        }
    };
    let made = mini.outputs.iter().take(1).chain(mini.grad_inputs.iter().flatten());
    made.map(|id| values[id.index()].clone().unwrap()).collect()
}

fn on_twins_and_device(check: impl Fn(&mut Report, Option<&Device>)) -> Result<(), Failed> {
    let mut report = Report::default();
    check(&mut report, None);
    if let Some(device) = gpu::device() {
        check(&mut report, Some(&device));
    }
    report.finish()
}

/// A new loss belongs into the list above.
pub fn every_loss_has_them() -> Result<(), Failed> {
    let mut report = Report::default();
    let losses = losses();
    let tested: BTreeSet<_> = losses.iter().map(|loss| loss.with.name()).collect();
    for entry in all_ops().iter().filter(|entry| entry.family == "loss") {
        report.require(tested.contains(entry.name), format!("{} is not tested with weights of samples", entry.name));
    }
    for loss in losses {
        // That do not divide the rows.
        let refused = loss.with.outputs(&loss.descs(Some(4)));
        let message = refused.err().map(|error| error.to_string()).unwrap_or_default();
        report.require(message.contains("sample_weight"), format!("{:?}: {message}", loss.with));
    }
    report.finish()
}

pub fn ones_change_no_bit() -> Result<(), Failed> {
    on_twins_and_device(|report, device| {
        for loss in losses() {
            let inputs = loss.inputs();
            let expected = run(&loss.graph(None), &inputs, device);
            for count in [ROWS, 3, 1] {
                let ones = [&inputs[..], &[Buf::Real(vec![1.0; count])]].concat();
                let found = run(&loss.graph(Some(count)), &ones, device);
                let label = format!("{:?} on {}, {count} weights", loss.with, place(device));
                report.require(found == expected, format!("{label}: other bits"));
            }
        }
    })
}

/// A batch that is filled up with samples of weight 0: whatever these are.
pub fn zeros_leave_samples_out() -> Result<(), Failed> {
    let weights = [0.5, 2.0, 0.0, 1.0, 0.0, 0.0];
    on_twins_and_device(|report, device| {
        for loss in losses() {
            let label = format!("{:?} on {}", loss.with, place(device));
            let graph = loss.graph(Some(ROWS));
            let some = [&loss.inputs()[..], &[Buf::Real(weights.to_vec())]].concat();
            let mut others = some.clone();
            for (data, (desc, _)) in others.iter_mut().zip(&loss.without.inputs) {
                match data {
                    _ if desc.shape[0] != ROWS => {}
                    Buf::Real(data) => empty_rows(data, weights, 0.0),
                    Buf::Int(data) => empty_rows(data, weights, 0),
                }
            }
            report.require(some != others, format!("{label}: nothing was changed"));
            // As numbers: a gradient of 0 has either sign.
            let numbers = |bytes: Vec<u8>| nodes::decode(&TensorDesc::f32([bytes.len() / 4]), &bytes);
            let [found, same] =
                [&some, &others].map(|inputs| run(&graph, inputs, device).into_iter().map(numbers).collect::<Vec<_>>());
            report.require(found == same, format!("{label}: samples of weight 0 count"));
            for gradient in &found[1..] {
                for (row, (gradient, weight)) in gradient.chunks(gradient.len() / ROWS).zip(weights).enumerate() {
                    let is_zero = gradient.iter().all(|&x| x == 0.0);
                    report.require(is_zero == (weight == 0.0), format!("{label}: the gradient of row {row}"));
                }
            }
        }
    })
}

/// Fills the rows of weight 0.
fn empty_rows<T: Copy>(data: &mut [T], weights: [f32; ROWS], zero: T) {
    for (row, weight) in data.chunks_mut(data.len() / ROWS).zip(weights) {
        if weight == 0.0 {
            row.fill(zero);
        }
    }
}

fn place(device: Option<&Device>) -> &'static str {
    if device.is_some() { "the device" } else { "the twins" }
}

//! Ops from outside the crate, with kernels of their own: those of `examples/custom_op`. Their kernels are also checked in
//! `portability.rs`, and in the suite of all ops.

#[path = "../../examples/custom_op/swish.rs"]
pub(crate) mod swish;

use swish::{Swish, TrainedSwish};
use tightfit::data::{Targets, TensorDataset, Values};
use tightfit::error::{DeviceError, OpError};
use tightfit::graph::Graph;
use tightfit::nn::{Conv2d, Init, Linear, Model};
use tightfit::ops::{Call, Dispatch, Op, Slot, Target, check_launches};
use tightfit::plan::Limits;
use tightfit::shader::WgslFile;
use tightfit::tensor::TensorDesc;
use tightfit::testing::{RunOptions, device_or_skip, run_op};

use tightfit::train::{Config, FitOptions, Trainer, plan};

fn model() -> Model {
    Model::new("custom", [2, 6, 6], |x| {
        let x = x.apply(Conv2d::new(4, 3)).with_ops("trained", |scope, x| {
            let beta = scope.parameter("beta", [4], Init::Constant { value: 1.0 })?;
            scope.apply(TrainedSwish, &[x, beta])
        });
        let x = x.flatten().layer("hidden", Linear::new(16));
        x.with_ops("swish", |scope, x| scope.apply(Swish { beta: 1.7 }, &[x])).layer("classes", Linear::new(3))
    })
}

fn data() -> TensorDataset {
    let pixels = (0..48 * 72).map(|i| ((i * 7919) % 1999) as f32 / 999.0 - 1.0).collect();
    TensorDataset::new(Values::F32(pixels), [2, 6, 6], Targets::labels((0..48).map(|i| i % 3).collect(), 3)).unwrap()
}

/// The losses of some steps at the smallest budget, and the trained betas.
fn train(device: &str) -> (Vec<f32>, Vec<f32>) {
    let config = Config::default().batch(16).seed(5);
    let smallest = plan(model(), &config, &Limits::default()).unwrap().plan.minimum_budget_bytes;
    let mut trainer = Trainer::new(model(), config.budget_bytes(smallest + (4 << 20)), Some(device)).unwrap();
    let mut losses = Vec::new();
    let mut on_step = |step: &tightfit::train::StepReport| losses.push(step.loss);
    trainer.fit(&data(), FitOptions { on_step: Some(&mut on_step), ..FitOptions::epochs(4) }).unwrap();
    assert_eq!(trainer.measured_peak_bytes(), trainer.plan().peak_bytes, "on {device}");
    let beta = trainer.parameters().unwrap().remove("trained.beta").unwrap().1;
    (losses, beta)
}

#[test]
fn ops_from_outside_train_within_a_budget_and_as_their_twins_do() {
    let (losses, beta) = train("cpu");
    assert!(losses[losses.len() - 1] < losses[0], "{losses:?}");
    assert!(beta.iter().all(|beta| (beta - 1.0).abs() > 1e-4), "all are trained: {beta:?}");
    let Some(device) = crate::common::gpu() else { return };
    let (gpu_losses, gpu_beta) = train(&device);
    for (a, b) in losses.iter().chain(&beta).zip(gpu_losses.iter().chain(&gpu_beta)) {
        assert!((a - b).abs() < 1e-4, "{a} {b}");
    }
}

#[test]
fn an_elementwise_op_from_outside_is_fused() {
    let planned = plan(model(), &Config::default().batch(16), &Limits::default()).unwrap();
    let names: Vec<_> = planned.graphs[0].nodes().iter().map(|node| node.op.name()).collect();
    // Forward stays, because backward reads what it reads; the gradient is an epilogue of the product before it.
    assert!(planned.plan.fused && names.contains(&"swish"), "{names:?}");
    assert!(!names.contains(&"swish.grad_input") && names.contains(&"trained_swish.grad_input"), "{names:?}");
}

/// A kernel with a mistake in what its op says of it.
#[derive(Clone, Debug)]
struct Wrong {
    text: &'static str,
    name: &'static str,
}

tightfit::params! {
    struct WrongParams {
        vectors: u32,
        factor: f32,
    }
}

impl Op for Wrong {
    fn name(&self) -> &'static str {
        "wrong"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        Ok(vec![inputs[0].clone()])
    }

    fn dispatches(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let vectors = inputs[0].numel().div_ceil(4);
        let params = WrongParams { vectors: vectors as u32, factor: 2.0 };
        let file = WgslFile::new(self.name, self.text);
        vec![
            Dispatch::new(file, "forward", [Slot::Input(0), Slot::Output(0)])
                .params(&params)
                .linear(vectors.div_ceil(64)),
        ]
    }

    fn run_f32(&self, _call: &mut Call<'_, f32>) {}

    fn run_f64(&self, _call: &mut Call<'_, f64>) {}
}

const HALF: &str = "
@group(0) @binding(0) var<storage, read> input: array<Storage4>;
@group(0) @binding(1) var<storage, read_write> output: array<Storage4>;
@compute @workgroup_size(64)
fn forward(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < params.vectors { output[id.x] = Storage4(params.factor * Accum4(input[id.x])); }
}
var<immediate> params: Params;
";

#[test]
fn mistakes_in_an_op_from_outside_are_found_without_a_device_and_with_one() {
    let kernel = |head: &'static str| -> &'static str { Box::leak(format!("{head}{HALF}").into_boxed_str()) };
    let right = kernel("struct Params { vectors: u32, factor: f32 }");
    let cases = [
        ("twice", right, ""),
        (
            "twice",
            kernel("struct Params { factor: f32, vectors: u32 }"),
            "the op gives vectors: u32 at byte 0, the kernel takes factor: f32",
        ),
        (
            "twice",
            kernel("struct Params { vectors: u32, scale: f32, factor: f32 }"),
            "the kernel takes scale: f32 at byte 4",
        ),
        ("twice", kernel("#import \"shared/nothing.wgsl\"\n"), "twice.wgsl:1: `shared/nothing.wgsl` does not exist"),
        ("twice", "fn forward() {", "twice.wgsl"),
        ("relu", right, "a file of tightfit is named `relu` too"),
    ];
    let descs = [TensorDesc::f32([5])];
    let device = device_or_skip();
    for (name, text, reason) in cases {
        let op = Wrong { text, name };
        let found = check_launches(&op, &descs);
        let inputs = [(descs[0].clone(), [1.0_f32; 5].iter().flat_map(|x| x.to_le_bytes()).collect())];
        let run = device.as_ref().map(|device| run_op(device, &op, &inputs, RunOptions::default()));
        if reason.is_empty() {
            assert!(found.is_ok_and(|variants| variants > 0));
            assert!(run.is_none_or(|run| run.is_ok_and(|outputs| outputs[0][..4] == 2.0_f32.to_le_bytes())));
            continue;
        }
        let error = found.expect_err("a mistake").to_string();
        assert!(error.contains(reason), "{error}");
        if let Some(run) = run {
            let error: DeviceError = run.expect_err("a mistake");
            assert!(error.to_string().contains(reason), "{error}");
        }
    }
}

#[test]
fn what_an_op_from_outside_refuses_is_an_error_of_its_model() {
    let mut graph = Graph::new();
    let x = graph.input("x", TensorDesc::f32([5]));
    let beta = graph.parameter("beta", TensorDesc::f32([5]));
    assert!(graph.apply(TrainedSwish, &[x, beta]).is_err_and(|error| error.to_string().contains("channels")));
}

//! Several ops in one pass over memory: one of any kind, and an epilogue of elementwise ones that follow it.

use std::sync::Arc;

use crate::error::OpError;
use crate::ops::conv::conv2d::{Conv2d, Conv2dGradInput};
use crate::ops::dispatch::{MAX_BINDINGS, MAX_PARAMS_BYTES};
use crate::ops::elementwise::activation::{GradInput, shape_name};
use crate::ops::elementwise::add::Add;
use crate::ops::elementwise::clamp::Clamp;
use crate::ops::elementwise::gelu::{Gelu, GeluForm};
use crate::ops::elementwise::leaky_relu::LeakyRelu;
use crate::ops::elementwise::mask::GradInputMask;
use crate::ops::elementwise::mul::Mul;
use crate::ops::elementwise::relu::Relu;
use crate::ops::elementwise::round::Round;
use crate::ops::elementwise::scale::Scale;
use crate::ops::elementwise::silu::Silu;
use crate::ops::elementwise::tanh::Tanh;
use crate::ops::matmul::matmul::MatMul;
use crate::ops::norm::batch_norm::BatchNorm;
use crate::ops::norm::batch_norm_eval::BatchNormEval;
use crate::ops::norm::layer_norm::LayerNorm;
use crate::ops::norm::normalization::all_gradients;
use crate::ops::stored::any_half;
use crate::ops::{
    Affine, Call, Case, Cost, Dispatch, Epilogue, Fill, Flags, Input, Native, Op, Parts, Real, Resources, Slot, Source,
    native,
};
use crate::shader::{Family, Target};
use crate::tensor::TensorDesc;

/// Most ops of an epilogue: longer code is no faster.
const MAX_EPILOGUE: usize = 8;
/// Between these, ops launch different kernels.
const TARGETS: [Target; 3] = {
    let any = Target::new(Family::Workgroup);
    [any, Target { short_code: true, ..any }, Target::new(Family::Subgroup { size: 8 })]
};

/// `output = fₙ(… f₂(f₁(head(inputs…), inputs…), inputs…) …)`, where each f is an elementwise op
///
/// | tensor | shape |
/// |---|---|
/// | the first inputs | as the head takes them |
/// | extra inputs | as output 0 of the head, or of a mask a bit for each of its elements |
/// | output 0 | as output 0 of the head |
/// | other outputs | those of the head |
///
/// What is between never is in memory. The graph fuses nodes once there is no backward to add
/// ([`FusionStage::Complete`](crate::graph::FusionStage::Complete)). The head is elementwise too, or an op that
/// [takes an epilogue](Op::takes_epilogue), whose name the whole then has.
///
/// **Saved for backward:** it has none. **In place:** on what the head may run in place on, and on extra inputs but masks.
/// **Numerics:** the bits of the ops one after another: their functions are the same, and what goes from one to the next is
/// kept from being merged with it.
///
/// # Errors
/// Where one of the ops refuses its inputs.
#[derive(Clone, Debug)]
pub struct Fused {
    head: Arc<dyn Op>,
    /// Inputs of the head: the first ones.
    head_inputs: usize,
    epilogue: Vec<EpilogueOp>,
    in_place: Vec<(usize, usize)>,
}

#[derive(Clone, Debug)]
struct EpilogueOp {
    op: Arc<dyn Op>,
    /// The input of the whole that each of the op's is; `None` is what comes from the op before.
    operands: Vec<Option<usize>>,
}

impl Fused {
    /// A fused op of `head` alone, an op of so many inputs.
    pub fn new(head: Arc<dyn Op>, head_inputs: usize) -> Self {
        let in_place = head.in_place().iter().copied().filter(|&(_, output)| output == 0).collect();
        Fused { head, head_inputs, epilogue: Vec::new(), in_place }
    }

    /// Adds an elementwise op, of these inputs of the whole and, where an operand is `None`, of the output so far.
    #[must_use]
    pub fn then(mut self, op: Arc<dyn Op>, operands: impl Into<Vec<Option<usize>>>) -> Self {
        let operands = operands.into();
        for &(operand, _) in op.in_place() {
            if let Some(input) = operands.get(operand).copied().flatten()
                && !self.in_place.contains(&(input, 0))
            {
                self.in_place.push((input, 0));
            }
        }
        self.epilogue.push(EpilogueOp { op, operands });
        self
    }

    /// Whether it can run on every device: it binds not too many tensors, is not too long, and no two files of ops from
    /// outside this crate have one name.
    pub fn fits(&self, inputs: &[TensorDesc]) -> bool {
        let Ok(outputs) = self.outputs(inputs) else { return false };
        let launches = TARGETS.iter().flat_map(|target| self.dispatches(inputs, &outputs, target));
        launches.filter(Dispatch::makes_output).all(|launch| {
            let binds_few = launch.bindings.len() <= MAX_BINDINGS && launch.params.bytes().len() <= MAX_PARAMS_BYTES;
            let files: Vec<_> = launch.epilogue.iter().map(|op| op.function.file).chain([launch.kernel.file]).collect();
            let clash = files.iter().any(|&file| files.iter().any(|&other| file.clashes(other)));
            binds_few && launch.epilogue.len() <= MAX_EPILOGUE && !clash
        })
    }

    fn head_outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        let found = inputs.len();
        let head = inputs.get(..self.head_inputs);
        let expected = self.head_inputs;
        self.head.outputs(head.ok_or(OpError::InputCount { op: self.name(), expected, found })?)
    }

    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let mut outputs: Vec<_> = call.outputs.iter_mut().map(|output| output.again()).collect();
        T::twin(
            &*self.head,
            &mut Call {
                input_descs: &call.input_descs[..self.head_inputs],
                output_descs: call.output_descs,
                inputs: call.inputs[..self.head_inputs].to_vec(),
                outputs,
                mutated: Vec::new(),
            },
        );
        for op in &self.epilogue {
            let value = call.output(0).to_vec();
            let operand = |operand: &Option<usize>| operand.map_or(Input::Real(&value), |i| call.inputs[i]);
            let inputs: Vec<_> = op.operands.iter().map(operand).collect();
            let desc =
                |operand: &Option<usize>| operand.map_or(&call.output_descs[0], |i| &call.input_descs[i]).clone();
            let input_descs: Vec<_> = op.operands.iter().map(desc).collect();
            outputs = vec![call.outputs[0].again()];
            let output_descs = &call.output_descs[..1];
            T::twin(
                &*op.op,
                &mut Call { input_descs: &input_descs, output_descs, inputs, outputs, mutated: Vec::new() },
            );
        }
    }
}

impl Op for Fused {
    fn name(&self) -> &'static str {
        if self.head.elementwise().is_some() { "fused" } else { self.head.name() }
    }

    fn cost_name(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> &'static str {
        if self.head.elementwise().is_some() { self.name() } else { self.head.cost_name(inputs, outputs) }
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        let mut outputs = self.head_outputs(inputs)?;
        for EpilogueOp { op, operands } in &self.epilogue {
            let desc = |operand: &Option<usize>| match *operand {
                None => Ok(outputs[0].clone()),
                Some(i) => inputs.get(i).cloned().ok_or(OpError::InputCount {
                    op: self.name(),
                    expected: i + 1,
                    found: inputs.len(),
                }),
            };
            let made = op.outputs(&operands.iter().map(desc).collect::<Result<Vec<_>, _>>()?)?;
            outputs.splice(..1, made);
        }
        Ok(outputs)
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let (first, extra) = inputs.split_at(self.head_inputs);
        let mut cost = self.head.cost(first, outputs);
        cost.bytes_moved += extra.iter().map(TensorDesc::size_bytes).sum::<u64>();
        for EpilogueOp { op, operands } in &self.epilogue {
            let desc = |operand: &Option<usize>| operand.map_or(&outputs[0], |i| &inputs[i]).clone();
            cost.flops += op.cost(&operands.iter().map(desc).collect::<Vec<_>>(), &outputs[..1]).flops;
        }
        cost
    }

    fn workspaces(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Vec<u64> {
        self.head.workspaces(&inputs[..self.head_inputs], outputs)
    }

    fn flags(&self) -> Flags {
        self.head.flags()
    }

    fn split_advice(&self) -> Option<&'static str> {
        self.head.split_advice()
    }

    fn in_place(&self) -> &[(usize, usize)] {
        &self.in_place
    }

    fn dispatches(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], target: &Target) -> Vec<Dispatch> {
        let mut dispatches = self.head.dispatches(&inputs[..self.head_inputs], outputs, target);
        for dispatch in dispatches.iter_mut().filter(|dispatch| dispatch.makes_output()) {
            for EpilogueOp { op, operands } in &self.epilogue {
                let function = op.elementwise().expect("bug: an epilogue that is not elementwise");
                let operand = |operand: &Option<usize>| operand.map(|i| (Slot::Input(i), inputs[i].dtype));
                dispatch.fuse(&function, operands.iter().map(operand));
            }
        }
        dispatches
    }

    fn native(&self) -> Option<&dyn Native> {
        let has_form = (self.head.native().is_some() && self.head.takes_epilogue()) || self.head.elements().is_some();
        let is_complete = has_form && self.epilogue.iter().all(|EpilogueOp { op, .. }| op.elements().is_some());
        is_complete.then_some(self)
    }

    twin!();
}

impl Native for Fused {
    fn takes_half(&self, operand: Slot) -> bool {
        // The epilogue reads block by block.
        matches!(operand, Slot::Input(i) if i >= self.head_inputs) || native::takes_half(&*self.head, operand)
    }

    fn parts(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Option<Parts> {
        self.head.native()?.parts(&inputs[..self.head_inputs], outputs)
    }

    fn is_stored_half(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> bool {
        // Then what it writes would be rounded before anything else.
        let is_rounded = self.epilogue.first().is_some_and(|first| first.op.name() == Round::NAME);
        is_rounded || any_half(&inputs[..self.head_inputs])
    }

    fn workspaces(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], threads: usize) -> Vec<u64> {
        native::workspaces(&*self.head, &inputs[..self.head_inputs], outputs, Some(threads))
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let mut epilogue = Epilogue::default();
        for EpilogueOp { op, operands } in &self.epilogue {
            let source = |operand: &Option<usize>| operand.map_or(Source::Value, |i| Source::of(&call.inputs[i]));
            let function = op.elements().expect("bug: an epilogue without a native form");
            epilogue.then(function, operands.iter().map(source).collect());
        }
        epilogue.extend(&with.epilogue);
        let workspaces = with.workspaces.iter_mut().map(|workspace| &mut **workspace).collect();
        native::run_native(
            &*self.head,
            &mut Call {
                input_descs: &call.input_descs[..self.head_inputs],
                output_descs: call.output_descs,
                inputs: call.inputs[..self.head_inputs].to_vec(),
                outputs: call.outputs.iter_mut().map(|output| output.again()).collect(),
                mutated: Vec::new(),
            },
            &mut Resources { cores: with.cores, workspaces, epilogue },
        );
    }
}

/// Test cases.
pub(crate) fn cases() -> Vec<Case> {
    let [exact, tanh] = [GeluForm::Erf, GeluForm::Tanh].map(|approximate| Arc::new(Gelu { approximate }));
    let scale = Arc::new(Scale { factor: -1.5 });
    let clamp = Arc::new(Clamp { min: -0.2, max: 1.1 });
    let masked = GradInputMask { activation: LeakyRelu { slope: 0.1 }, name: "leaky_relu.grad_input_mask" };
    let sum = || Fused::new(Arc::new(Add), 2);
    let elementwise = [
        ("add_relu", 2, sum().then(Arc::new(Relu), [None])),
        (
            "mul_add_tanh",
            3,
            Fused::new(Arc::new(Mul), 2).then(Arc::new(Add), [None, Some(2)]).then(Arc::new(Tanh), [None]),
        ),
        (
            "scale_leaky_relu_clamp",
            1,
            Fused::new(scale, 1).then(Arc::new(LeakyRelu { slope: 0.3 }), [None]).then(clamp, [None]),
        ),
        // The value is not the first operand, or an input is read twice.
        ("add_relu_grad", 3, sum().then(Arc::new(GradInput(Relu)), [Some(2), None])),
        ("silu_mul_own", 1, Fused::new(Arc::new(Silu), 1).then(Arc::new(Mul), [Some(0), None])),
        ("gelu_gelu", 1, Fused::new(exact, 1).then(tanh, [None])),
        ("add_add_add_add_add_add", 7, (2..7).fold(sum(), |fused, i| fused.then(Arc::new(Add), [None, Some(i)]))),
        ("add_masked", 2, sum().then(Arc::new(masked), [Some(2), None])),
    ];
    let mut cases = Vec::new();
    for (name, inputs, op) in elementwise {
        for shape in [vec![1], vec![7], vec![2, 3, 5], vec![257], vec![4, 64]] {
            let mut descs = vec![TensorDesc::f32(shape.clone()); inputs];
            if name == "add_masked" {
                descs.push(TensorDesc::u32([shape.iter().product::<usize>().div_ceil(32)]));
            }
            let case = Case::new(format!("{name}_{}", shape_name(&shape)), op.clone(), descs).forward_only();
            cases.push(if name == "add_masked" { case.fill(2, Fill::Labels(u32::MAX)) } else { case });
        }
    }
    cases.extend(after_norms());
    cases.extend(after_products());
    cases
}

/// Cases with matrix products and convolutions at the head: every kernel that writes their outputs, by single elements and by
/// vectors.
fn after_products() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name: String, head: Arc<dyn Op>, inputs: &[&[usize]], terms: usize| {
        let mut descs: Vec<_> = inputs.iter().map(|&shape| TensorDesc::f32(shape)).collect();
        let output = head.outputs(&descs).expect("bug: a case that is refused").swap_remove(0);
        descs.push(output);
        let op = Fused::new(head, inputs.len())
            .then(Arc::new(Add), [None, Some(inputs.len())])
            .then(Arc::new(LeakyRelu { slope: 0.1 }), [None]);
        let case = Case::new(name, op, descs).forward_only().reduction(terms);
        cases.push(if terms > 100 { case.large() } else { case });
    };
    let linear = |relu| Arc::new(MatMul { trans_b: true, bias: true, relu, ..MatMul::default() });
    for (m, n, k) in [(5, 3, 7), (33, 36, 20), (65, 66, 12), (12, 20, 1030), (5, 7, 1031)] {
        add(format!("matmul_{m}x{n}x{k}"), linear(n == 36), &[&[m, k], &[n, k], &[n]], k);
    }
    add("matmul_batch".to_owned(), Arc::new(MatMul::default()), &[&[3, 5, 4], &[3, 4, 8]], 4);
    let conv = |stride, padding, groups| Conv2d {
        stride: (stride, stride),
        padding: (padding, padding),
        groups,
        ..Conv2d::default()
    };
    // As a matrix product, of several batch tiles, by Winograd.s method, directly.
    for (name, conv, input, weight) in [
        ("plain", conv(1, 1, 1), [2, 3, 6, 8], [5, 3, 3, 3]),
        ("odd", conv(2, 2, 1), [2, 5, 7, 9], [6, 5, 5, 5]),
        ("winograd", conv(1, 1, 1), [2, 16, 12, 12], [20, 16, 3, 3]),
        ("winograd_odd", conv(1, 0, 1), [2, 16, 9, 11], [16, 16, 3, 3]),
        ("strided", conv(2, 1, 1), [3, 16, 8, 16], [20, 16, 3, 3]),
        ("depthwise", conv(1, 1, 6), [2, 6, 5, 7], [6, 1, 3, 3]),
        ("depthwise_vectors", conv(1, 1, 6), [2, 6, 5, 8], [6, 1, 3, 3]),
    ] {
        let terms = input[1] * 9;
        let bias = [weight[0]];
        add(format!("conv2d_{name}"), Arc::new(conv), &[&input, &weight, &bias], terms);
        let output = conv.outputs(&[TensorDesc::f32(input), TensorDesc::f32(weight), TensorDesc::f32(bias)]);
        let output = output.expect("bug: a case that is refused")[0].shape.to_vec();
        let grad_input = Conv2dGradInput { conv, height: input[2], width: input[3] };
        add(format!("conv2d_grad_input_{name}"), Arc::new(grad_input), &[&weight, &output], terms);
    }
    cases
}

/// Cases with normalizations at the head: of single elements and of vectors, in one launch and in several.
fn after_norms() -> Vec<Case> {
    let batch_norm = |relu| BatchNorm { eps: 1e-5, affine: Affine::Full, relu, ghost: false };
    let eval = BatchNormEval { eps: 1e-5, affine: Affine::Full, relu: false };
    let layer_norm = LayerNorm { dims: 1, eps: 1e-5, affine: Affine::None };
    let heads: [(&str, Arc<dyn Op>, usize); 4] = [
        ("batch_norm", Arc::new(batch_norm(false)), 2),
        ("batch_norm_relu", Arc::new(batch_norm(true)), 2),
        ("batch_norm_eval", Arc::new(eval), 4),
        ("layer_norm", Arc::new(layer_norm), 0),
    ];
    let mut cases = Vec::new();
    for (name, head, parameters) in heads {
        for shape in [vec![5, 3], vec![2, 3, 4, 6], vec![2, 3, 5, 7], vec![9, 2, 32, 34], vec![3, 2, 63, 65]] {
            let inputs = 1 + parameters;
            let mut descs = vec![TensorDesc::f32(shape.clone())];
            descs.extend(vec![TensorDesc::f32([shape[1]]); parameters]);
            descs.push(TensorDesc::f32(shape.clone()));
            let op = Fused::new(head.clone(), inputs)
                .then(Arc::new(Add), [Some(inputs), None])
                .then(Arc::new(LeakyRelu { slope: 0.1 }), [None]);
            let terms = shape.iter().product::<usize>() / shape[1];
            let case = Case::new(format!("{name}_add_leaky_relu_{}", shape_name(&shape)), op, descs);
            let case = case.forward_only().reduction(terms);
            cases.push(if parameters == 4 { case.fill(2, Fill::Uniform(0.2, 3.0)) } else { case });
        }
    }
    let backward = all_gradients(LayerNorm { affine: Affine::Full, ..layer_norm }.normalization());
    for [rows, width] in [[5, 3], [4, 64], [33, 256]] {
        let large = TensorDesc::f32([rows, width]);
        let statistics = TensorDesc::f32([rows]);
        let weight = TensorDesc::f32([width]);
        let descs = [large.clone(), large.clone(), statistics.clone(), statistics, weight, large];
        let op = Fused::new(backward.clone(), 5).then(Arc::new(Add), [None, Some(5)]);
        let case = Case::new(format!("layer_norm_backward_add_{rows}x{width}"), op, descs);
        cases.push(case.fill(3, Fill::Uniform(0.2, 3.0)).forward_only().reduction(rows.max(width)));
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shader;
    use crate::shader::{Access, StorageType};

    /// A fused op of every elementwise function of one tensor compiles: none has a name that another has too.
    #[test]
    fn all_elementwise_functions_go_together() {
        let mut functions = Vec::new();
        let mut fused = Fused::new(Arc::new(Add), 2);
        for case in crate::ops::all().iter().flat_map(|entry| (entry.cases)()) {
            let Some(function) = case.op.elementwise().map(|elementwise| elementwise.function) else { continue };
            if case.inputs.len() == 1 && !functions.contains(&function) {
                functions.push(function);
                fused = fused.then(case.op, [None]);
            }
        }
        assert!(functions.len() > 15, "{functions:?}");
        let descs = [TensorDesc::f32([5]), TensorDesc::f32([5])];
        assert!(!fused.fits(&descs), "it is too long to be of use");
        let [dispatch] = &fused.dispatches(&descs, &descs[..1], &Target::default())[..] else { panic!("one launch") };
        for storage in [StorageType::F32, StorageType::F32Words] {
            let found = shader::module(dispatch.kernel, &dispatch.variant(storage, &|_| None, Access::Read, None))
                .and_then(|checked| checked.reflect(dispatch.kernel));
            assert_eq!(found.expect("compiles").bindings.len(), 3);
        }
    }
}

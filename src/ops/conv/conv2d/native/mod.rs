//! Native forms of convolutions.

mod band;
mod direct;
mod gather;
mod grad_bias;
mod grad_weight;
mod grad_weight_few;
mod padded;
mod pixels;
mod plan;
mod planes;
mod transforms;
mod weights;
mod winograd;
mod winograd_block;
mod winograd_plan;

use self::direct::Direct;
use self::gather::{Axis, Gather, Window};
pub(super) use self::grad_bias::grad_bias;
use self::grad_weight::GradWeight;
use self::pixels::Which;
use self::plan::{Plan, Unit};
use self::planes::Planes;
use self::winograd::Winograd;
use super::geometry::Geometry;
use crate::ops::Resources;

/// Which way, and what is read.
pub(in crate::ops) struct Operands<'a> {
    pub(in crate::ops) source: &'a [f32],
    pub(in crate::ops) weights: &'a [f32],
    pub(in crate::ops) bias: Option<&'a [f32]>,
    pub(in crate::ops) relu: bool,
}

const F32: u64 = size_of::<f32>() as u64;

impl Geometry {
    fn windows(&self) -> [Window; 2] {
        let window = |kernel, stride, padding, dilation| Window { kernel, stride, padding, dilation };
        [
            window(self.kernel.0, self.stride.0, self.padding.0, self.dilation.0),
            window(self.kernel.1, self.stride.1, self.padding.1, self.dilation.1),
        ]
    }

    fn native_forward(&self) -> Gather {
        let g = self.flattened();
        let [rows, columns] = g.windows();
        Gather {
            samples: g.samples,
            groups: g.groups,
            sources: g.in_channels,
            results: g.out_channels,
            rows: Axis::forward(g.input.0, g.output.0, rows),
            columns: Axis::forward(g.input.1, g.output.1, columns),
        }
    }

    fn native_backward(&self) -> Gather {
        let g = self.flattened();
        let [rows, columns] = g.windows();
        Gather {
            samples: g.samples,
            groups: g.groups,
            sources: g.out_channels,
            results: g.in_channels,
            rows: Axis::backward(g.output.0, g.input.0, rows),
            columns: Axis::backward(g.output.1, g.input.1, columns),
        }
    }

    /// Scratch of the native form of forward: of threads, and the weights as they are multiplied.
    pub(in crate::ops) fn native_forward_workspaces(&self, threads: usize) -> Vec<u64> {
        if self.is_pixel() {
            return vec![self.pixel_workspace(Which::Forward, threads)];
        }
        workspaces(&self.native_forward(), threads, 0)
    }

    /// Forward in native code.
    pub(in crate::ops) fn run_forward(&self, operands: &Operands<'_>, with: &mut Resources<'_>, output: &mut [f32]) {
        if self.is_pixel() {
            return self.run_pixel(Which::Forward, operands, with, output);
        }
        let gather = self.native_forward();
        if !run_winograd(&gather, false, operands, with, output) {
            run(&gather, operands, with, output);
        }
    }

    /// As that of forward.
    pub(in crate::ops) fn native_backward_workspaces(&self, threads: usize) -> Vec<u64> {
        if self.is_pixel() {
            return vec![self.pixel_workspace(Which::GradInput, threads)];
        }
        workspaces(&self.native_backward(), threads, self.weight_numel())
    }

    /// The gradient of input in native code; the source is `grad_output`.
    pub(in crate::ops) fn run_backward(&self, operands: &Operands<'_>, with: &mut Resources<'_>, output: &mut [f32]) {
        if self.is_pixel() {
            return self.run_pixel(Which::GradInput, operands, with, output);
        }
        let gather = self.native_backward();
        if run_winograd(&gather, true, operands, with, output) {
            return;
        }
        let packed = with.workspaces.pop().expect("bug: no workspace for weights");
        let packed = &mut packed[..self.weight_numel()];
        weights::pack(&gather, &gather.parts(), self.kernel, operands.weights, with.cores, packed);
        run(&gather, &Operands { weights: packed, ..*operands }, with, output);
    }

    /// Scratch of the native form of the gradient of weights: of threads, and for the sums of each part.
    pub(in crate::ops) fn native_grad_weight_workspaces(&self, threads: usize) -> Vec<u64> {
        if self.is_pixel() {
            return vec![self.pixel_workspace(Which::GradWeight, threads)];
        }
        let gather = self.native_forward();
        let plans = Unit::ALL.map(|unit| (unit, grad_weight::Plan::new(&gather, unit)));
        let scratch = plans.iter().map(|(unit, plan)| plan.scratch(&gather, *unit)).max().unwrap_or(0);
        let parts = plans.iter().map(|(_, plan)| plan.parts).max().unwrap_or(0);
        [scratch * threads, parts * self.weight_numel()].map(|len| len as u64 * F32).to_vec()
    }

    /// The gradient of weights in native code.
    pub(in crate::ops) fn run_grad_weight(
        &self,
        input: &[f32],
        grad_output: &[f32],
        with: &mut Resources<'_>,
        output: &mut [f32],
    ) {
        if self.is_pixel() {
            let operands = Operands { source: grad_output, weights: input, bias: None, relu: false };
            return self.run_pixel(Which::GradWeight, &operands, with, output);
        }
        let gather = self.native_forward();
        let plan = grad_weight::Plan::new(&gather, Unit::of(with.cores.level()));
        let [scratch, sums] = &mut with.workspaces[..] else { panic!("bug: not two workspaces") };
        GradWeight { gather: &gather, input, grad_output }.run(with.cores, &plan, scratch, sums, output);
    }
}

/// Bytes of scratch for so many threads and of transformed weights, or else of so many, whatever vectors the processor has.
fn workspaces(gather: &Gather, threads: usize, weights: usize) -> Vec<u64> {
    let (mut scratch, mut all_weights) = (0, 0);
    for unit in Unit::ALL {
        let (own, weights) = match winograd_plan::Plan::new(gather, unit) {
            Some(plan) => (plan.scratch(gather), plan.weights(gather)),
            None => {
                let scratch = match Planes::new(gather, unit) {
                    Some(planes) => planes.scratch(gather),
                    None => Plan::new(gather, unit).scratch(gather),
                };
                (scratch, weights)
            }
        };
        scratch = scratch.max(own);
        all_weights = all_weights.max(weights);
    }
    [scratch * threads, all_weights].map(|len| len as u64 * F32).to_vec()
}

/// Runs Winograd products where they are quicker.
fn run_winograd(
    gather: &Gather,
    is_backward: bool,
    operands: &Operands<'_>,
    with: &mut Resources<'_>,
    output: &mut [f32],
) -> bool {
    let Some(plan) = winograd_plan::Plan::new(gather, Unit::of(with.cores.level())) else { return false };
    let Resources { cores, workspaces, epilogue } = with;
    let [scratch, transformed] = &mut workspaces[..] else { panic!("bug: not two workspaces") };
    let finish = |start: usize, values: &mut [f32], output: &mut [f32]| {
        epilogue.finish(cores.level(), start, values, output);
    };
    let Operands { source, weights, bias, relu } = *operands;
    let finish = if epilogue.is_empty() { None } else { Some(&finish as _) };
    Winograd { gather, source, weights, is_backward, bias, relu, finish }.run(
        cores,
        &plan,
        scratch,
        transformed,
        output,
    );
    true
}

fn run(gather: &Gather, operands: &Operands<'_>, with: &mut Resources<'_>, output: &mut [f32]) {
    let Resources { cores, workspaces, epilogue } = with;
    let finish = |start: usize, values: &mut [f32], output: &mut [f32]| {
        epilogue.finish(cores.level(), start, values, output);
    };
    let Operands { source, weights, bias, relu } = *operands;
    let finish = if epilogue.is_empty() { None } else { Some(&finish as _) };
    let (direct, unit) = (Direct { gather, source, weights, bias, relu, finish }, Unit::of(cores.level()));
    match Planes::new(gather, unit) {
        Some(planes) => direct.run_by_planes(cores, &planes, workspaces[0], output),
        None => direct.run(cores, &Plan::new(gather, unit), workspaces[0], output),
    }
}

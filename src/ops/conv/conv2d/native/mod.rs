//! Native forms of convolutions.

mod band;
mod direct;
mod gather;
mod padded;
mod plan;
mod weights;

use self::direct::Direct;
use self::gather::{Axis, Gather, Window};
use self::plan::{Plan, Unit};
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

    /// Scratch of the native form of forward.
    pub(in crate::ops) fn native_forward_workspaces(&self, threads: usize) -> Vec<u64> {
        vec![scratch(&self.native_forward(), threads)]
    }

    /// Forward in native code.
    pub(in crate::ops) fn run_forward(&self, operands: &Operands<'_>, with: &mut Resources<'_>, output: &mut [f32]) {
        let gather = self.native_forward();
        let plan = Plan::new(&gather, Unit::of(with.cores.level()));
        run(&gather, &plan, operands, with, output);
    }

    /// Scratch of the native form of the gradient of input: of threads, and the weights once more.
    pub(in crate::ops) fn native_backward_workspaces(&self, threads: usize) -> Vec<u64> {
        vec![scratch(&self.native_backward(), threads), self.weight_numel() as u64 * F32]
    }

    /// The gradient of input in native code; the source is `grad_output`.
    pub(in crate::ops) fn run_backward(&self, operands: &Operands<'_>, with: &mut Resources<'_>, output: &mut [f32]) {
        let gather = self.native_backward();
        let plan = Plan::new(&gather, Unit::of(with.cores.level()));
        let packed = with.workspaces.pop().expect("bug: no workspace for weights");
        let packed = &mut packed[..self.weight_numel()];
        weights::pack(&gather, &plan.parts, self.kernel, operands.weights, with.cores, packed);
        run(&gather, &plan, &Operands { weights: packed, ..*operands }, with, output);
    }
}

/// Bytes of scratch for so many threads, whatever vectors they have.
fn scratch(gather: &Gather, threads: usize) -> u64 {
    let most = Unit::ALL.into_iter().map(|unit| Plan::new(gather, unit).scratch(gather)).max();
    most.unwrap_or(0) as u64 * threads as u64 * F32
}

fn run(gather: &Gather, plan: &Plan, operands: &Operands<'_>, with: &mut Resources<'_>, output: &mut [f32]) {
    let Resources { cores, workspaces, epilogue } = with;
    let finish = |start: usize, values: &mut [f32], output: &mut [f32]| {
        epilogue.finish(cores.level(), start, values, output);
    };
    let Operands { source, weights, bias, relu } = *operands;
    let finish = if epilogue.is_empty() { None } else { Some(&finish as _) };
    Direct { gather, source, weights, bias, relu, finish }.run(cores, plan, workspaces[0], output);
}

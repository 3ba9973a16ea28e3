//! Deterministic reductions on the device: what sums, extrema, the losses and the gradient of a bias share.

use crate::error::OpError;
use crate::native::{Cores, Fold, Reduction, Terms, Total};
use crate::ops::shape::strided::{MAX_RANK, Strided};
use crate::ops::sums::Sums;
use crate::ops::{Call, Dispatch, Real, Resources, Slot};
use crate::tensor::{Shape, TensorDesc};

/// Terms that one invocation adds before the sum is worth splitting.
const SPLIT_TERMS: usize = 256;
/// Most terms that one invocation adds, well below what a driver was seen to compute rightly.
const MAX_TERMS: usize = 32_768;
/// Splits are not made for more parallel work than this.
const MAX_SPLITS: usize = 1024;
/// Invocations that keep any device busy.
const ENOUGH_INVOCATIONS: usize = 16_384;
/// Partial sums from which a whole workgroup adds them.
const WORKGROUP_SPLITS: usize = 32;
/// Invocations of a workgroup.
const WORKGROUP: usize = 64;

/// Over how many invocations each of `outputs` sums of `terms` terms is split.
pub(in crate::ops) fn splits(outputs: usize, terms: usize) -> usize {
    let useful = (terms / SPLIT_TERMS).clamp(1, MAX_SPLITS).min((ENOUGH_INVOCATIONS / outputs.max(1)).max(1));
    useful.max(terms.div_ceil(MAX_TERMS))
}

/// Bytes of the partial sums; none where a sum is not split.
pub(in crate::ops) fn workspaces(outputs: usize, terms: usize) -> Vec<u64> {
    let splits = splits(outputs, terms);
    if splits == 1 { Vec::new() } else { vec![(outputs * splits * 4) as u64] }
}

/// The number of lanes (1 or a workgroup) that work on one row of `terms` elements.
pub(in crate::ops) fn lanes(terms: usize, threshold: usize) -> usize {
    if terms < threshold { 1 } else { WORKGROUP }
}

/// Adds lanes, a power of two up to a workgroup, to a launch over `rows` rows.
pub(in crate::ops) fn over_rows(dispatch: Dispatch, rows: usize, lanes: usize) -> Dispatch {
    dispatch.constant("LANES", lanes as u32).linear(rows.div_ceil(WORKGROUP / lanes))
}

params! {
    struct CombineParams {
        outputs: u32,
        splits: u32,
        scale: f32,
    }
}

/// Adds up partial sums [outputs, splits]: `sum.combine`.
pub(in crate::ops) fn combine(partials: Slot, output: Slot, outputs: usize, splits: usize, scale: f32) -> Dispatch {
    let lanes = lanes(splits, WORKGROUP_SPLITS);
    let dispatch = Dispatch::new("sum", "combine", [partials, output])
        .params(&CombineParams { outputs: outputs as u32, splits: splits as u32, scale })
        .loops(splits.div_ceil(lanes) + 8);
    over_rows(dispatch, outputs, lanes)
}

params! {
    /// Parameters of a kernel that sums over all elements of a tensor, one partial sum per invocation.
    struct TotalParams {
        terms: u32,
        splits: u32,
        scale: f32,
    }
}

/// The launches of `outputs` sums of `terms` terms each, times `scale`. `partial` is the launch that makes the partial sums
/// [outputs, splits] at a slot, for a number of splits and a scale of its own; each of its invocations adds `terms / splits`
/// terms.
pub(in crate::ops) fn split(
    outputs: usize,
    terms: usize,
    scale: f32,
    partial: impl Fn(Slot, usize, f32) -> Dispatch,
) -> Vec<Dispatch> {
    let splits = splits(outputs, terms);
    let partial = |sums, scale| partial(sums, splits, scale).loops(terms.div_ceil(splits));
    if splits == 1 {
        return vec![partial(Slot::Output(0), scale)];
    }
    let combine = combine(Slot::Workspace(0), Slot::Output(0), outputs, splits, scale);
    vec![partial(Slot::Workspace(0), 1.0), combine]
}

/// The launches of a sum over all `terms` elements of a tensor: `entry` makes the partial sums. `bindings` are those of
/// its inputs; the output follows.
pub(in crate::ops) fn total(
    file: &'static str,
    entry: &'static str,
    inputs: &[Slot],
    terms: usize,
    scale: f32,
) -> Vec<Dispatch> {
    split(1, terms, scale, |sums, splits, scale| {
        Dispatch::new(file, entry, [inputs, &[sums]].concat())
            .params(&TotalParams { terms: terms as u32, splits: splits as u32, scale })
            .linear(splits.div_ceil(WORKGROUP))
    })
}

/// A reduction over some axes of a tensor: the Rust side of `shaders/shared/axes.wgsl`.
#[derive(Clone, Debug)]
pub(in crate::ops) struct Axes {
    kept: Vec<(usize, usize)>,
    reduced: Vec<(usize, usize)>,
    innermost_kept: bool,
    /// Elements of the output.
    pub(in crate::ops) outputs: usize,
    /// Terms of each element of the output.
    pub(in crate::ops) terms: usize,
    /// From elements of the input to elements of the output.
    to_output: Strided,
}

params! {
    struct AxesParams {
        outputs: u32,
        terms: u32,
        splits: u32,
        scale: f32,
        outputs_innermost: u32,
        kept_extents: [u32; 2] as [kept_extent_0, kept_extent_1],
        kept_strides: [u32; 3] as [kept_stride_0, kept_stride_1, kept_stride_2],
        reduced_extents: [u32; 2] as [reduced_extent_0, reduced_extent_1],
        reduced_strides: [u32; 3] as [reduced_stride_0, reduced_stride_1, reduced_stride_2],
    }
}

/// Checks the axes of a reduction: at least one, each within the input, none twice.
pub(in crate::ops) fn check_axes(op: &'static str, axes: &[usize], input: &TensorDesc) -> Result<(), OpError> {
    let rank = input.shape.len();
    let mut sorted = axes.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let reason = if rank > MAX_RANK {
        format!("the input {input} has more than {MAX_RANK} axes")
    } else if axes.is_empty() {
        "at least one axis is needed".to_owned()
    } else if sorted.len() < axes.len() {
        "an axis is named twice".to_owned()
    } else if sorted.last().is_some_and(|&axis| axis >= rank) {
        format!("the input {input} has axes 0 to {}", rank - 1)
    } else {
        return Ok(());
    };
    Err(OpError::Setting { op, setting: "axes", value: format!("{axes:?}"), reason })
}

/// Shape after a reduction over `axes`. Where nothing is left, [1].
pub(in crate::ops) fn output_shape(input: &Shape, axes: &[usize], keepdim: bool) -> Shape {
    let kept = |axis: &usize| !axes.contains(axis);
    let mut shape: Vec<usize> = if keepdim {
        (0..input.len()).map(|axis| if kept(&axis) { input[axis] } else { 1 }).collect()
    } else {
        (0..input.len()).filter(kept).map(|axis| input[axis]).collect()
    };
    if shape.is_empty() {
        shape.push(1);
    }
    shape.into()
}

impl Axes {
    /// Over axes that [`check_axes`] passed.
    pub(in crate::ops) fn new(input: &Shape, axes: &[usize]) -> Self {
        let strides = input.strides();
        let (mut kept, mut reduced) = (Vec::<(usize, usize)>::new(), Vec::<(usize, usize)>::new());
        let mut output_strides = vec![0; input.len()];
        let (mut outputs, mut innermost_kept, mut seen) = (1, false, false);
        for axis in (0..input.len()).rev() {
            let (extent, stride, is_reduced) = (input[axis], strides[axis], axes.contains(&axis));
            if !is_reduced {
                output_strides[axis] = outputs;
                outputs *= extent;
            }
            if extent == 1 {
                continue;
            }
            if !seen {
                (innermost_kept, seen) = (!is_reduced, true);
            }
            let dims = if is_reduced { &mut reduced } else { &mut kept };
            match dims.last_mut() {
                Some(inner) if inner.0 * inner.1 == stride => inner.0 *= extent,
                _ => dims.push((extent, stride)),
            }
        }
        let terms = reduced.iter().map(|d| d.0).product();
        Axes { kept, reduced, innermost_kept, outputs, terms, to_output: Strided::new(input, &output_strides) }
    }

    /// The launches of the sum, which bind `input` and write output 0.
    pub(in crate::ops) fn sum(&self, input: Slot, scale: f32) -> Vec<Dispatch> {
        let vectors = self.innermost_kept && self.kept.first().is_some_and(|d| d.0.is_multiple_of(4));
        let width = if vectors { 4 } else { 1 };
        split(self.outputs, self.terms, scale, |sums, splits, scale| {
            let dispatch = Dispatch::new("sum", "forward", [input, sums]).constant("LANES", 1);
            self.launch(dispatch.flags([("VECTORS", vectors)]), splits, scale, width)
        })
    }

    /// Completes the launch of a kernel that takes the terms of `width` outputs at once, in so many splits.
    pub(in crate::ops) fn launch(&self, dispatch: Dispatch, splits: usize, scale: f32, width: usize) -> Dispatch {
        let extent = |dims: &[(usize, usize)], i: usize| dims.get(i).map_or(1, |d| d.0 as u32);
        let stride = |dims: &[(usize, usize)], i: usize| dims.get(i).map_or(0, |d| d.1 as u32);
        dispatch
            .params(&AxesParams {
                outputs: self.outputs as u32,
                terms: self.terms as u32,
                splits: splits as u32,
                scale,
                outputs_innermost: u32::from(self.innermost_kept),
                kept_extents: std::array::from_fn(|i| extent(&self.kept, i)),
                kept_strides: std::array::from_fn(|i| stride(&self.kept, i)),
                reduced_extents: std::array::from_fn(|i| extent(&self.reduced, i)),
                reduced_strides: std::array::from_fn(|i| stride(&self.reduced, i)),
            })
            .linear((self.outputs / width * splits).div_ceil(WORKGROUP))
            .flags([("ONE_AXIS", self.reduced.len() <= 1)])
    }

    /// Where in the output each element of the input has its part.
    pub(in crate::ops) fn to_output(&self) -> &Strided {
        &self.to_output
    }

    /// The launch that writes the output, times `scale`, to all its terms: it repeats it along the reduced axes.
    pub(in crate::ops) fn repeat(&self, scale: f32) -> Vec<Dispatch> {
        vec![
            Dispatch::new("sum", "grad_input", [Slot::Input(0), Slot::Output(0)])
                .constant("LANES", 1)
                .params(&self.to_output.params(scale))
                .linear(self.to_output.elements().div_ceil(WORKGROUP)),
        ]
    }

    fn reduction(&self) -> Reduction<'_> {
        Reduction { kept: &self.kept, reduced: &self.reduced, keeps_innermost: self.innermost_kept }
    }

    /// Scratch of [`Axes::fold`].
    pub(in crate::ops) fn fold_workspaces(&self) -> Vec<u64> {
        let elements = self.reduction().scratch() as u64;
        if elements == 0 { Vec::new() } else { vec![4 * elements] }
    }

    /// Reduces on the cores of a CPU, with the first workspace where there is one.
    pub(in crate::ops) fn fold<F: Fold>(
        &self,
        fold: F,
        terms: Terms<'_>,
        scale: f32,
        output: &mut [f32],
        with: &mut Resources<'_>,
    ) {
        let scratch = with.workspaces.first_mut().map_or(&mut [][..], |scratch| &mut **scratch);
        self.reduction().run(with.cores, fold, terms, scale, scratch, output);
    }

    /// The sum on the cores of a CPU.
    pub(in crate::ops) fn sum_on(&self, call: &mut Call<'_, f32>, scale: f32, with: &mut Resources<'_>) {
        let terms = Terms { data: call.input(0), pairs: &[], results: &[] };
        self.fold(Total, terms, scale, call.output(0), with);
    }

    /// The CPU twin of the sum.
    pub(in crate::ops) fn sum_twin<T: Real>(&self, call: &mut Call<'_, T>, scale: T) {
        let input = call.input(0);
        let mut sums = Sums::new(self.outputs);
        for (i, &x) in input.iter().enumerate() {
            sums.add(self.to_output.offset(i), x);
        }
        let output = call.output(0);
        sums.write(output);
        for y in output {
            *y *= scale;
        }
    }

    /// As [`Axes::repeat`], on the cores of a CPU.
    pub(in crate::ops) fn repeat_on(&self, cores: &Cores, input: &[f32], output: &mut [f32], scale: f32) {
        self.to_output.repeat(cores, input, output, scale);
    }

    /// The CPU twin of [`Axes::repeat`].
    pub(in crate::ops) fn repeat_twin<T: Real>(&self, call: &mut Call<'_, T>, scale: T) {
        let input = call.input(0);
        for (i, d) in call.output(0).iter_mut().enumerate() {
            *d = scale * input[self.to_output.offset(i)];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_invocation_adds_too_much() {
        for terms in [1, 255, 256, 65_536, 1 << 20, 1 << 28, (1 << 30) - 1] {
            for outputs in [1, 64, 100_000] {
                let splits = splits(outputs, terms);
                assert!(terms.div_ceil(splits) <= MAX_TERMS && splits <= MAX_TERMS, "{outputs} {terms} {splits}");
            }
        }
    }

    #[test]
    fn merges_axes() {
        let sum = Axes::new(&[2, 3, 4, 5].into(), &[0, 2, 3]);
        assert_eq!((sum.outputs, sum.terms), (3, 40));
        assert_eq!(sum.reduced, [(20, 1), (2, 60)]);
        assert_eq!(sum.kept, [(3, 20)]);
        assert!(!sum.innermost_kept);
        assert_eq!(Axes::new(&[7, 1].into(), &[0]).reduced, [(7, 1)]);
    }
}

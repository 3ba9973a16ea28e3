//! Steps with their products in one kernel, for devices whose subgroups are vectors of a processor.

use super::{At, Sizes, with_optional};
use crate::ops::{Dispatch, MAX_LOOP_ITERATIONS, Slot};
use crate::shader::{Family, Target};

/// Vectors of four samples or units in a lane.
const LANE: usize = 4;

/// How `forward_steps` and `backward_steps` of `shaders/shared/recurrent_tile.wgsl` run on a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepTile {
    family: Family,
    /// Lanes.
    size: usize,
    wide: bool,
}

/// What differs between the two kernels.
struct Shape {
    entry: &'static str,
    /// Rows of weights that a tile multiplies, and units that come of it.
    rows: usize,
    units: usize,
    /// Groups of four units, as the kernel's last loops go through them.
    groups: usize,
    /// Terms of a sum.
    terms: usize,
}

impl StepTile {
    /// `None` where each step takes a product and a kernel for the rest: on GPUs, where compilers cannot bear long code, and
    /// where rows do not consist of vectors of four.
    pub(super) fn new(sizes: Sizes, target: &Target) -> Option<Self> {
        if std::env::var("NOTILE").is_ok() { return None; }
        match target.family {
            // Larger subgroups than 16 would unroll to very long code.
            Family::Subgroup { size: size @ (4 | 8 | 16) }
                if sizes.hidden.is_multiple_of(LANE) && !target.short_code =>
            {
                Some(StepTile { family: target.family, size: size as usize, wide: target.wide_loads })
            }
            _ => None,
        }
    }

    /// Steps `at.t`, `at.t + 1`, …, none of which is the first of all. `recompute` makes gates only.
    pub(super) fn forward(
        self,
        sizes: Sizes,
        bindings: Vec<Slot>,
        optional: [(&'static str, Option<Slot>); 2],
        steps: usize,
        at: At,
        recompute: bool,
    ) -> Vec<Dispatch> {
        let shape = Shape {
            entry: "forward_steps",
            rows: sizes.gates * self.size,
            units: self.size,
            groups: self.size / LANE,
            terms: sizes.hidden,
        };
        let launch = |first: usize, steps: usize, run: bool| {
            let at = At { t: at.t + first, gates: [at.gates[0], at.gates[1] + first], ..at };
            let dispatch = self.launch(sizes, &shape, bindings.clone(), steps, at, run, recompute);
            with_optional(if recompute { dispatch.constant("RECOMPUTE", 1) } else { dispatch }, optional)
        };
        if recompute {
            return vec![launch(0, steps, false)];
        }
        self.runs(sizes, &shape, steps, launch)
    }

    /// Steps `at.t`, `at.t - 1`, …, after the last of those that the buffer of gradients holds.
    pub(super) fn backward(
        self,
        sizes: Sizes,
        bindings: Vec<Slot>,
        optional: [(&'static str, Option<Slot>); 4],
        steps: usize,
        at: At,
    ) -> Vec<Dispatch> {
        let shape = Shape {
            entry: "backward_steps",
            rows: LANE * self.size,
            units: LANE * self.size,
            groups: self.size,
            terms: sizes.sums(),
        };
        let launch = |first: usize, steps: usize, run: bool| {
            let back = |[time, t]: [usize; 2]| [time, t - first];
            let at = At { t: at.t - first, gates: back(at.gates), grads: back(at.grads) };
            with_optional(self.launch(sizes, &shape, bindings.clone(), steps, at, run, false), optional)
        };
        self.runs(sizes, &shape, steps, launch)
    }

    /// Groups of samples that workgroups own.
    fn blocks(self, sizes: Sizes) -> usize {
        sizes.batch.div_ceil(LANE * self.size)
    }

    /// Loop iterations of a workgroup that computes so many units of a step.
    fn iterations(shape: &Shape, units: usize) -> usize {
        1 + units.div_ceil(shape.units) * (1 + shape.terms.div_ceil(LANE) + LANE)
    }

    /// Launches of as many steps as may be.
    fn runs(
        self,
        sizes: Sizes,
        shape: &Shape,
        steps: usize,
        launch: impl Fn(usize, usize, bool) -> Dispatch,
    ) -> Vec<Dispatch> {
        let most = MAX_LOOP_ITERATIONS as usize / Self::iterations(shape, sizes.hidden);
        let forced = std::env::var("RUNS").ok().map(|s| s == "1");
        let run = forced.unwrap_or(self.blocks(sizes) >= 2) && most >= 2;
        let length = if run { most } else { 1 };
        (0..steps).step_by(length).map(|first| launch(first, length.min(steps - first), run)).collect()
    }

    fn launch(
        self,
        sizes: Sizes,
        shape: &Shape,
        bindings: Vec<Slot>,
        steps: usize,
        at: At,
        run: bool,
        recompute: bool,
    ) -> Dispatch {
        let blocks = self.blocks(sizes);
        let part_units = if run { sizes.hidden } else { shape.units };
        let parts = sizes.hidden.div_ceil(part_units);
        let length = if run { steps } else { 1 };
        let mut params = sizes.params(steps, at);
        params.blocks = blocks as u32;
        params.parts = parts as u32;
        params.part_units = part_units as u32;
        params.run = length as u32;
        if recompute {
            params.gates_width = params.grads_width;
        }
        let tiles = blocks * LANE * self.size * parts * part_units.next_multiple_of(shape.units);
        let flops = 2 * tiles * steps * shape.terms * (shape.rows / shape.units);
        let dispatch = Dispatch::new(sizes.file, shape.entry, bindings)
            .params(&params)
            .family(self.family)
            .constant("CELL_GATES", sizes.gates as u32)
            .constant("TILE_ROWS", shape.rows as u32)
            .constant("UNIT_GROUPS", shape.groups as u32)
            .loops(length * Self::iterations(shape, part_units))
            .flops(flops as u64)
            .linear(blocks * parts * steps.div_ceil(length));
        let flags = [("WIDE", self.wide), ("APART", sizes.apart), ("RUNS", run)];
        flags.into_iter().filter(|(_, set)| *set).fold(dispatch, |dispatch, (name, _)| dispatch.constant(name, 1))
    }
}

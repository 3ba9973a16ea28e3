//! A step with its products in one kernel, for devices whose subgroups are vectors of a processor: there launches cost as much
//! as a small product, and loads more than arithmetic.

use super::{At, Params, Sizes, with_optional};
use crate::ops::dispatch::MAX_BINDINGS;
use crate::ops::{Dispatch, Slot};
use crate::shader::{Family, Target};

/// Units of a lane, and terms that it loads at once.
pub(super) const LANE: usize = 4;

/// How `forward_tile` and `backward_tile` of `shaders/shared/recurrent_tile.wgsl` run on a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepTile {
    family: Family,
    /// Lanes.
    size: usize,
    /// Whether the product with inputs is part of the kernel.
    pub(super) takes_inputs: bool,
}

/// What a launch binds: what is always there, and under which names the rest.
pub(super) struct Bound<const N: usize> {
    pub(super) always: Vec<Slot>,
    pub(super) optional: [(&'static str, Option<Slot>); N],
}

impl StepTile {
    /// `None` where each step takes a product and a kernel for the rest: on GPUs, where compilers cannot bear long code, and
    /// where rows are not made of vectors of four. `bindings` is how many forward has without the input and its weights.
    pub(super) fn new(sizes: Sizes, bindings: usize, target: &Target) -> Option<Self> {
        // Larger subgroups than 16 would unroll to very long code.
        let Family::Subgroup { size: size @ (4 | 8 | 16) } = target.family else { return None };
        let takes_inputs = sizes.input.is_multiple_of(LANE) && bindings + 2 <= MAX_BINDINGS;
        let fits = sizes.hidden.is_multiple_of(LANE) && !target.short_code;
        fits.then_some(StepTile { family: target.family, size: size as usize, takes_inputs })
    }

    /// The steps from `at.t` on. Other than one only with `recompute`, which makes gates from states that are there.
    pub(super) fn forward(
        self,
        sizes: Sizes,
        mut bound: Bound<2>,
        input: [Slot; 2],
        steps: usize,
        at: At,
        recompute: bool,
    ) -> Dispatch {
        let mut terms = sizes.hidden;
        if self.takes_inputs {
            bound.always.extend(input);
            terms += sizes.input;
        }
        let mut params = sizes.params(steps, at);
        if recompute {
            params.gates_width = params.grads_width;
        }
        let samples = self.samples(sizes);
        let states_sum = if sizes.apart { samples } else { 0 };
        let dispatch = self
            .launch(sizes, "forward_tile", bound, params, self.size, sizes.gates * terms)
            .loops(terms / LANE + 2 + samples / LANE)
            .constant("UNIT_GROUPS", (self.size / LANE) as u32)
            .constant("SAMPLE_BLOCKS", (samples / LANE) as u32)
            .constant("SUMS", (samples + states_sum) as u32)
            .constant("STATES_SUM", states_sum as u32);
        dispatch.flags([("INPUTS", self.takes_inputs), ("RECOMPUTE", recompute)])
    }

    /// Step `at.t`, whose successor is in the buffer of gradients.
    pub(super) fn backward(self, sizes: Sizes, bound: Bound<5>, at: At) -> Dispatch {
        let terms = sizes.sums();
        self.launch(sizes, "backward_tile", bound, sizes.params(1, at), LANE * self.size, terms)
            .loops(terms / LANE + self.samples(sizes))
    }

    /// Samples of a tile: as many as there are, if these are few.
    fn samples(self, sizes: Sizes) -> usize {
        sizes.batch.next_power_of_two().clamp(LANE, LANE * self.size)
    }

    /// `units` of a tile, each of which takes sums of so many terms.
    fn launch<const N: usize>(
        self,
        sizes: Sizes,
        entry: &'static str,
        bound: Bound<N>,
        params: Params,
        units: usize,
        terms: usize,
    ) -> Dispatch {
        let samples = self.samples(sizes);
        let (blocks, tiles) = (sizes.batch.div_ceil(samples), sizes.hidden.div_ceil(units));
        let count = blocks * tiles * params.steps as usize;
        let params = Params { blocks: blocks as u32, tiles: tiles as u32, ..params };
        let dispatch = Dispatch::new(sizes.file, entry, bound.always)
            .params(&params)
            .family(self.family)
            .constant("CELL_GATES", sizes.gates as u32)
            .constant("SAMPLES", samples as u32)
            .constant("SAMPLE_LOADS", samples.div_ceil(self.size) as u32)
            .flops((2 * count * samples * units * terms) as u64)
            .linear(count)
            .flags([("APART", sizes.apart)]);
        with_optional(dispatch, bound.optional)
    }
}

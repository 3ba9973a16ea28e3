//! A step with its products in one kernel, for devices whose subgroups are vectors of a processor: there launches cost as much
//! as a small product, and loads more than arithmetic.

use super::{At, Sizes, with_optional};
use crate::ops::{Dispatch, Slot};
use crate::shader::{Family, Target};

/// Samples of a lane, and units that it loads at once.
const LANE: usize = 4;

/// Storage buffers that every device binds to a kernel.
const MAX_BINDINGS: usize = 8;

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
    /// where rows do not consist of vectors of four. `bindings` is how many forward has without the input and its weights.
    pub(super) fn new(sizes: Sizes, bindings: usize, target: &Target) -> Option<Self> {
        let Family::Subgroup { size: size @ (4 | 8 | 16) } = target.family else {
            // Larger subgroups than 16 would unroll to very long code.
            return None;
        };
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
        let rows = sizes.gates * self.size;
        let states_row = if sizes.apart { rows } else { 0 };
        let mut terms = sizes.hidden;
        if self.takes_inputs {
            bound.always.extend(input);
            terms += sizes.input;
        }
        let mut dispatch = self
            .launch(sizes, "forward_tile", bound, (steps, at), (self.size, rows), terms, recompute)
            .constant("UNIT_GROUPS", (self.size / LANE) as u32)
            .constant("SUM_ROWS", (rows + states_row) as u32)
            .constant("STATES_ROW", states_row as u32);
        for (name, set) in [("INPUTS", self.takes_inputs), ("RECOMPUTE", recompute)] {
            dispatch = if set { dispatch.constant(name, 1) } else { dispatch };
        }
        dispatch
    }

    /// Step `at.t`, whose successor is in the buffer of gradients.
    pub(super) fn backward(self, sizes: Sizes, bound: Bound<4>, at: At) -> Dispatch {
        let rows = LANE * self.size;
        self.launch(sizes, "backward_tile", bound, (1, at), (rows, rows), sizes.sums(), false)
            .constant("UNIT_GROUPS", self.size as u32)
    }

    /// A launch of tiles of so many units and rows of weights.
    fn launch<const N: usize>(
        self,
        sizes: Sizes,
        entry: &'static str,
        bound: Bound<N>,
        (steps, at): (usize, At),
        (units, rows): (usize, usize),
        terms: usize,
        gates_in_grads: bool,
    ) -> Dispatch {
        let samples = LANE * self.size;
        let (blocks, tiles) = (sizes.batch.div_ceil(samples), sizes.hidden.div_ceil(units));
        let mut params = sizes.params(steps, at);
        params.blocks = blocks as u32;
        params.tiles = tiles as u32;
        if gates_in_grads {
            params.gates_width = params.grads_width;
        }
        let count = blocks * tiles * steps;
        let dispatch = Dispatch::new(sizes.file, entry, bound.always)
            .params(&params)
            .family(self.family)
            .constant("CELL_GATES", sizes.gates as u32)
            .constant("TILE_ROWS", rows as u32)
            .loops(terms.div_ceil(LANE) + 2 + LANE)
            .flops((2 * count * samples * rows * terms) as u64)
            .linear(count);
        let dispatch = if sizes.apart { dispatch.constant("APART", 1) } else { dispatch };
        with_optional(dispatch, bound.optional)
    }
}

//! A step with its products in one kernel, for devices whose subgroups are vectors of a processor: there launches cost as much
//! as a small product, and loads more than arithmetic.

use super::{At, Params, Sizes, with_optional};
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

/// What a workgroup computes.
#[derive(Clone, Copy)]
struct Tile {
    units: usize,
    /// Rows of weights that it multiplies.
    rows: usize,
    /// Terms of a sum.
    terms: usize,
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
        let rows = sizes.gates * self.size;
        let states_row = if sizes.apart { rows } else { 0 };
        let mut terms = sizes.hidden;
        if self.takes_inputs {
            bound.always.extend(input);
            terms += sizes.input;
        }
        let mut params = sizes.params(steps, at);
        if recompute {
            params.gates_width = params.grads_width;
        }
        let mut dispatch = self
            .launch(sizes, "forward_tile", bound, params, Tile { units: self.size, rows, terms })
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
        let units = LANE * self.size;
        let tile = Tile { units, rows: units, terms: sizes.sums() };
        self.launch(sizes, "backward_tile", bound, sizes.params(1, at), tile).constant("UNIT_GROUPS", self.size as u32)
    }

    fn launch<const N: usize>(
        self,
        sizes: Sizes,
        entry: &'static str,
        bound: Bound<N>,
        params: Params,
        tile: Tile,
    ) -> Dispatch {
        let samples = LANE * self.size;
        let (blocks, tiles) = (sizes.batch.div_ceil(samples), sizes.hidden.div_ceil(tile.units));
        let count = blocks * tiles * params.steps as usize;
        let params = Params { blocks: blocks as u32, tiles: tiles as u32, ..params };
        let dispatch = Dispatch::new(sizes.file, entry, bound.always)
            .params(&params)
            .family(self.family)
            .constant("CELL_GATES", sizes.gates as u32)
            .constant("TILE_ROWS", tile.rows as u32)
            .loops(tile.terms.div_ceil(LANE) + 2 + LANE)
            .flops((2 * count * samples * tile.rows * tile.terms) as u64)
            .linear(count);
        let dispatch = dispatch.flags([("APART", sizes.apart)]);
        with_optional(dispatch, bound.optional)
    }
}

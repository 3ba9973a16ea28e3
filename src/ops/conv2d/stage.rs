//! Where grad_input of a convolution with strides is gathered: pixels that lie whole strides apart are made together, and
//! stored side by side in a workspace, from where a second kernel takes them to their places. Storing single elements that
//! lie apart costs more than that.

use bytemuck::NoUninit;

use super::super::{Dispatch, Slot};
use super::geometry::{Gather, Geometry};

/// Bytes of the workspace, unless a single sample has more.
const STAGE_BYTES: usize = 4 << 20;

/// Pixels from one to the next, at most: for each of them the second kernel keeps a vector.
const MAX_STRIDE: usize = 4;

#[repr(C)]
#[derive(Clone, Copy, Debug, NoUninit)]
struct InterleaveParams {
    vectors: u32,
    row_vectors: u32,
    plane_vectors: u32,
    first_plane: u32,
    phases_h: u32,
}

/// The stage of a convolution.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stage {
    /// Samples at a time.
    pub(super) samples: usize,
    /// Planes of a sample.
    planes: usize,
    /// Pixels of a phase.
    phase: (usize, usize),
    phases: (usize, usize),
}

impl Stage {
    /// `None` where there are no phases, or they do not consist of whole vectors.
    pub(super) fn new(geometry: &Geometry, gather: Gather) -> Option<Self> {
        let g = geometry;
        let phases = g.stride;
        let phase = (g.input.0 / phases.0, g.input.1 / phases.1);
        let is_whole = (phase.0 * phases.0, phase.1 * phases.1) == g.input && phase.1.is_multiple_of(4);
        if !g.has_phases(gather) || g.is_direct() || !is_whole || !(2..=MAX_STRIDE).contains(&phases.1) {
            return None;
        }
        let planes = g.groups * g.in_channels;
        let most = (STAGE_BYTES / (4 * planes * g.input_plane())).max(1);
        // The same number each time, if possible.
        let samples = g.samples.div_ceil(g.samples.div_ceil(most));
        Some(Stage { samples, planes, phase, phases })
    }

    /// Bytes of the workspace.
    pub(super) fn size_bytes(&self) -> u64 {
        (4 * self.samples * self.planes * self.phase.0 * self.phase.1 * self.phases.0 * self.phases.1) as u64
    }

    /// Takes so many samples from the workspace to their places.
    pub(super) fn interleave(&self, first: usize, samples: usize) -> Dispatch {
        let row_vectors = self.phase.1 / 4;
        let plane_vectors = self.phase.0 * row_vectors;
        let vectors = samples * self.planes * plane_vectors;
        let params = InterleaveParams {
            vectors: vectors as u32,
            row_vectors: row_vectors as u32,
            plane_vectors: plane_vectors as u32,
            first_plane: (first * self.planes) as u32,
            phases_h: self.phases.0 as u32,
        };
        Dispatch::new("conv2d", "interleave", [Slot::Workspace(1), Slot::Output(0)])
            .params(&params)
            .constant("PHASES_W", self.phases.1 as u32)
            .linear((vectors * self.phases.0).div_ceil(64))
    }
}

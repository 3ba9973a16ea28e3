//! How forward or grad_input of a convolution goes through its samples where what they read, or what they make, lies in
//! another order for a while: `shaders/conv2d_layout.wgsl`.

use super::geometry::{Gather, Geometry};
use super::winograd::Winograd;
use crate::ops::{Dispatch, Slot};

/// Bytes of a workspace, unless a single sample has more.
const BATCH_TILE_BYTES: usize = 4 << 20;

/// Pixels from one to the next, at most: for each of them `interleave` keeps a vector.
const MAX_STRIDE: usize = 4;

/// With fewer channels in a group, most of the packed pixels would be padding.
const MIN_CHANNELS: usize = 8;

/// Packed pixels must be loaded so often: packing one costs about as much as it saves two or three times.
const MIN_READS: usize = 4;

/// Rows of a matrix product that load a pixel together, about.
const ROWS_TOGETHER: usize = 64;

params! {
    struct PackParams {
        invocations: u32,
        channel_vectors: u32,
        pixel_vectors: u32,
        channels: u32,
        plane: u32,
        first_image: u32,
    }
}

params! {
    struct InterleaveParams {
        vectors: u32,
        row_vectors: u32,
        plane_vectors: u32,
        first_plane: u32,
        phases_h: u32,
    }
}

/// The image that is gathered, with the channels of a pixel side by side: four of them are one load in place of four.
#[derive(Clone, Copy, Debug)]
struct Packed {
    groups: usize,
    channels: usize,
    plane: usize,
}

/// What is made, before its phases are put together: pixels that lie whole strides apart are gathered together, and stored
/// side by side. Storing single elements that lie apart costs more than that.
#[derive(Clone, Copy, Debug)]
struct Stage {
    planes: usize,
    /// Pixels of a phase.
    phase: (usize, usize),
    phases: (usize, usize),
}

/// Some samples after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchTiles {
    /// Samples at a time.
    pub(super) samples: usize,
    packed: Option<Packed>,
    stage: Option<Stage>,
}

impl BatchTiles {
    pub(super) fn new(geometry: &Geometry, gather: Gather) -> Self {
        let (packed, stage) = (Packed::new(geometry, gather), Stage::new(geometry, gather));
        let sample =
            packed.map_or(0, |packed| packed.sample_bytes()).max(stage.map_or(0, |stage| stage.sample_bytes()));
        let batch_tiles = geometry.samples.div_ceil((BATCH_TILE_BYTES / sample.max(1)).max(1));
        // The same number each time, if possible. Without workspaces all at once.
        let samples = if sample == 0 { geometry.samples } else { geometry.samples.div_ceil(batch_tiles) };
        BatchTiles { samples, packed, stage }
    }

    /// Bytes of the workspaces of the image that is gathered, and of what is made.
    pub(super) fn workspaces(&self) -> [Option<u64>; 2] {
        let bytes = |sample: usize| (self.samples * sample) as u64;
        [self.packed.map(|packed| bytes(packed.sample_bytes())), self.stage.map(|stage| bytes(stage.sample_bytes()))]
    }

    pub(super) fn is_packed(&self) -> bool {
        self.packed.is_some()
    }

    pub(super) fn is_staged(&self) -> bool {
        self.stage.is_some()
    }

    /// Packs so many samples of the image.
    pub(super) fn pack(&self, first: usize, samples: usize, image: Slot, packed: Slot) -> Option<Dispatch> {
        let Packed { groups, channels, plane } = self.packed?;
        let (channel_vectors, pixel_vectors) = (channels.div_ceil(4), plane.div_ceil(4));
        let invocations = samples * groups * channel_vectors * pixel_vectors;
        let params = PackParams {
            invocations: invocations as u32,
            channel_vectors: channel_vectors as u32,
            pixel_vectors: pixel_vectors as u32,
            channels: channels as u32,
            plane: plane as u32,
            first_image: (first * groups) as u32,
        };
        let dispatch = Dispatch::new("conv2d_layout", "pack_image", [image, packed]).params(&params);
        Some(dispatch.flags([("VEC", plane.is_multiple_of(4))]).linear(invocations.div_ceil(64)))
    }

    /// Puts the phases of so many samples together.
    pub(super) fn interleave(&self, first: usize, samples: usize, phases: Slot, image: Slot) -> Option<Dispatch> {
        let stage = self.stage?;
        let row_vectors = stage.phase.1 / 4;
        let plane_vectors = stage.phase.0 * row_vectors;
        let vectors = samples * stage.planes * plane_vectors;
        let params = InterleaveParams {
            vectors: vectors as u32,
            row_vectors: row_vectors as u32,
            plane_vectors: plane_vectors as u32,
            first_plane: (first * stage.planes) as u32,
            phases_h: stage.phases.0 as u32,
        };
        let dispatch = Dispatch::new("conv2d_layout", "interleave", [phases, image]).params(&params);
        let dispatch = dispatch.constant("PHASES_W", stage.phases.1 as u32);
        Some(dispatch.linear((vectors * stage.phases.0).div_ceil(64)))
    }
}

impl Packed {
    /// `None` where each pixel is read so seldom that it does not pay, and where Winograd products take another way: they have
    /// workspaces enough.
    fn new(geometry: &Geometry, gather: Gather) -> Option<Self> {
        let g = geometry;
        let (rows, channels) = g.rows_and_channels(gather);
        let (plane, dest) = match gather {
            Gather::Forward => (g.input_plane(), g.output_plane()),
            Gather::GradInput => (g.output_plane(), g.input_plane() / (g.stride.0 * g.stride.1)),
        };
        let reads = g.taps() * dest * rows.div_ceil(ROWS_TOGETHER);
        let pays = channels >= MIN_CHANNELS && reads >= MIN_READS * plane;
        let is_other = g.is_direct() || Winograd::new(g, gather).is_some();
        (pays && !is_other).then_some(Packed { groups: g.groups, channels, plane })
    }

    fn sample_bytes(&self) -> usize {
        4 * self.groups * self.channels.next_multiple_of(4) * self.plane
    }
}

impl Stage {
    /// `None` where there are no phases, or they do not consist of whole vectors.
    fn new(geometry: &Geometry, gather: Gather) -> Option<Self> {
        let g = geometry;
        let phases = g.stride;
        let phase = (g.input.0 / phases.0, g.input.1 / phases.1);
        let is_whole = (phase.0 * phases.0, phase.1 * phases.1) == g.input && phase.1.is_multiple_of(4);
        let pays = g.has_phases(gather) && is_whole && (2..=MAX_STRIDE).contains(&phases.1) && !g.is_direct();
        pays.then_some(Stage { planes: g.groups * g.in_channels, phase, phases })
    }

    fn sample_bytes(&self) -> usize {
        4 * self.planes * self.phase.0 * self.phase.1 * self.phases.0 * self.phases.1
    }
}

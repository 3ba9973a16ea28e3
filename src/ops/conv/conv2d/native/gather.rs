//! Convolutions as sums over places of an image: what is common to the forward form and to the gradient of input, whatever the
//! stride, the padding and the dilation.
//!
//! Each pixel of the result is a sum over taps: elements of the kernel, each with a pixel of the source. Forward, all pixels have
//! all taps. In the gradient of a strided convolution, pixels that lie whole strides apart have the same taps: they are a phase.

/// A place of the kernel that pixels meet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tap {
    /// Which place.
    pub(super) kernel: usize,
    /// Which fold of the source it reads (see [`Axis::folds`]), and how far behind the pixel's own place there.
    pub(super) fold: usize,
    pub(super) shift: usize,
}

/// Every so many pixels of the result, with the same taps.
#[derive(Clone, Debug)]
pub(super) struct Phase {
    /// The first of them, and how many.
    pub(super) first: usize,
    pub(super) count: usize,
    pub(super) taps: Vec<Tap>,
}

/// One axis of both images.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub(super) source: usize,
    pub(super) result: usize,
    /// From one pixel of a phase to the next, in the source and in the result.
    pub(super) step: usize,
    pub(super) stride: usize,
    /// The place in the source of shift 0 and fold 0 of the first pixel; negative where it is in the padding.
    pub(super) least: isize,
    /// Places of the source a whole step apart are a fold; these are the ones that are read, each by its first place.
    pub(super) folds: Vec<usize>,
    /// The farthest shift.
    pub(super) reach: usize,
    pub(super) phases: Vec<Phase>,
}

/// A place of the kernel, and the place in the source that the first pixel of a phase meets there.
type Meeting = (usize, isize);

/// Kernel places and settings of one axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) kernel: usize,
    pub(super) stride: usize,
    pub(super) padding: usize,
    pub(super) dilation: usize,
}

impl Axis {
    /// The axis of a convolution from `source` to `result`.
    pub(super) fn forward(source: usize, result: usize, window: Window) -> Self {
        let Window { kernel, stride, padding, dilation } = window;
        let taps = (0..kernel).map(|k| (k, (k * dilation) as isize - padding as isize)).collect();
        Axis::new([source, result], stride, 1, &[(0, result, taps)])
    }

    /// The axis of the gradient of a convolution from `result` to `source`.
    pub(super) fn backward(source: usize, result: usize, window: Window) -> Self {
        let Window { kernel, stride, padding, dilation } = window;
        let phase = |first: usize| {
            let offset = |k: usize| (first + padding) as isize - (k * dilation) as isize;
            let meets = |k: &usize| offset(*k).rem_euclid(stride as isize) == 0;
            let taps = (0..kernel).filter(meets).map(|k| (k, offset(k).div_euclid(stride as isize))).collect();
            (first, (result - first).div_ceil(stride), taps)
        };
        Axis::new([source, result], 1, stride, &(0..stride.min(result)).map(phase).collect::<Vec<_>>())
    }

    /// Of phases, each with its first pixel, their number, and kernel places with the place in the source that the first meets.
    fn new([source, result]: [usize; 2], step: usize, stride: usize, phases: &[(usize, usize, Vec<Meeting>)]) -> Self {
        let least = phases.iter().flat_map(|phase| &phase.2).map(|tap| tap.1).min().unwrap_or(0);
        let ahead = |place: isize| (place - least) as usize;
        let mut folds: Vec<_> = phases.iter().flat_map(|phase| &phase.2).map(|tap| ahead(tap.1) % step).collect();
        folds.sort_unstable();
        folds.dedup();
        let tap = |&(kernel, place): &Meeting| Tap {
            kernel,
            fold: folds.partition_point(|&fold| fold < ahead(place) % step),
            shift: ahead(place) / step,
        };
        let phase = |(first, count, taps): &(usize, usize, Vec<_>)| Phase {
            first: *first,
            count: *count,
            taps: taps.iter().map(tap).collect(),
        };
        let phases: Vec<_> = phases.iter().map(phase).collect();
        let reach = phases.iter().flat_map(|phase| &phase.taps).map(|tap| tap.shift).max().unwrap_or(0);
        Axis { source, result, step, stride, least, folds, reach, phases }
    }

    /// Pixels of the longest phase.
    pub(super) fn count(&self) -> usize {
        self.phases[0].count
    }
}

/// A convolution, or the gradient of one for its input.
#[derive(Clone, Debug)]
pub(super) struct Gather {
    pub(super) samples: usize,
    pub(super) groups: usize,
    /// Channels of a group, in the source and in the result.
    pub(super) sources: usize,
    pub(super) results: usize,
    /// Rows and columns.
    pub(super) rows: Axis,
    pub(super) columns: Axis,
}

/// The taps of pixels that are in the same phase of rows and of columns.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) row_phase: usize,
    pub(super) column_phase: usize,
    /// Places of the kernel, in rows and columns.
    pub(super) kernel: Vec<(usize, usize)>,
}

impl Gather {
    pub(super) fn parts(&self) -> Vec<Part> {
        let taps = |axis: &Axis, phase: usize| axis.phases[phase].taps.iter().map(|tap| tap.kernel).collect::<Vec<_>>();
        let phases = |axis: &Axis| 0..axis.phases.len();
        let pairs = phases(&self.rows).flat_map(|row| phases(&self.columns).map(move |column| (row, column)));
        let part = |(row_phase, column_phase)| {
            let (rows, columns) = (taps(&self.rows, row_phase), taps(&self.columns, column_phase));
            let kernel = rows.iter().flat_map(|&row| columns.iter().map(move |&column| (row, column))).collect();
            Part { row_phase, column_phase, kernel }
        };
        pairs.map(part).collect()
    }

    pub(super) fn source_plane(&self) -> usize {
        self.rows.source * self.columns.source
    }

    pub(super) fn result_plane(&self) -> usize {
        self.rows.result * self.columns.result
    }
}

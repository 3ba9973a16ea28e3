//! How a convolution is divided: into tasks of some pixels of some images, and these into vectors.

use super::gather::{Gather, Part};
use super::padded::Padded;
use crate::native::Level;

/// Extents of the tile of products.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit {
    pub(super) lanes: usize,
    pub(super) rows: usize,
    pub(super) vectors: usize,
}

impl Unit {
    pub(super) fn of(level: Level) -> Self {
        let (rows, vectors) = level.tile();
        Unit { lanes: level.lanes(), rows, vectors }
    }

    /// As many kinds of vectors as there are processors: scratch must do for each.
    pub(super) const ALL: [Unit; 4] = [
        Unit { lanes: 16, rows: 5, vectors: 4 },
        Unit { lanes: 8, rows: 6, vectors: 2 },
        Unit { lanes: 4, rows: 5, vectors: 4 },
        Unit { lanes: 4, rows: 4, vectors: 2 },
    ];
}

/// What vectors of pixels are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Each lies in one row, and the last of a row may have fewer pixels.
    Rows,
    /// They run through the rows of the padded source, so some of their lanes are no pixels.
    Flat,
    /// Pixels side by side, whatever rows they are in: sources are packed into panels, tap by tap.
    Packed,
}

/// Elements of the padded source of a task, which stay in the second cache with the sums and some weights.
pub(super) const MOST_SOURCE: usize = 40 << 10;
/// Sums of a task.
const MOST_SUMS: usize = 64 << 10;
/// Elements of the panels of a task, and terms in one.
const MOST_PANELS: usize = 64 << 10;
const MOST_PACKED_TERMS: usize = 384;
/// Pixels of a task at least, so that weights are read for enough of them.
const LEAST_PIXELS: usize = 128;
/// Longest part of a row in a task.
const MOST_COLUMNS: usize = 2048;
/// Tasks that there should be, so that no thread waits long for the last.
const ENOUGH_TASKS: usize = 16;
/// Channels of the result in a task at least, since each task copies its sources.
const LEAST_RESULTS: usize = 20;
/// What copying a run of pixels of one tap takes, in vectors that are multiplied meanwhile.
const RUN_COST: f64 = 4.0;

/// The plan of a convolution for some vectors.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) unit: Unit,
    pub(super) form: Form,
    pub(super) parts: Vec<Part>,
    /// Rows and columns of a task's band, counted within a phase, and images.
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) images: usize,
    /// Tasks among which the channels of the result are divided.
    pub(super) shares: usize,
    /// Channels of the source in a block.
    pub(super) channels: usize,
}

impl Plan {
    pub(super) fn new(gather: &Gather, unit: Unit) -> Self {
        let parts = gather.parts();
        let taps = parts.iter().map(|part| part.kernel.len()).max().unwrap_or(0).max(1);
        let (rows, columns) = (gather.rows.count(), gather.columns.count());
        let form = form(gather, unit, rows, columns);
        let columns = if gather.rows.phases.len() == 1 {
            // A plane of one row, such as one of which each pixel is read once, is divided as others are into rows.
            let most =
                (MOST_SOURCE / gather.sources).min(MOST_SUMS / gather.results).clamp(2 * LEAST_PIXELS, MOST_COLUMNS);
            let most = if rows == 1 { most } else { MOST_COLUMNS };
            columns.div_ceil(columns.div_ceil(most)).next_multiple_of(unit.lanes).min(columns)
        } else {
            columns
        };
        let results = gather.groups * gather.results;
        let folds = gather.rows.folds.len() * gather.columns.folds.len();
        let line = folds * (columns + gather.columns.reach);
        let per_row = if form == Form::Packed { columns } else { columns.next_multiple_of(unit.lanes) } * parts.len();
        // As many rows as fit with all channels, but enough that taps do not read most rows again.
        let reach = gather.rows.reach;
        let by_source = (MOST_SOURCE / (gather.sources * line).max(1)).saturating_sub(reach);
        let by_sums = (MOST_SUMS / (gather.results * per_row)).max(1);
        let least = LEAST_PIXELS.div_ceil(columns).max(2 * reach);
        let whole = if gather.columns.count() > columns { 1 } else { rows };
        let most = by_source.max(least).min(by_sums).min(whole);
        let rows = whole.div_ceil(whole.div_ceil(most));
        let bands = gather.rows.count().div_ceil(rows) * gather.columns.count().div_ceil(columns);
        let images = if bands == 1 {
            let by_sums = MOST_SUMS / (gather.results * per_row * rows);
            let enough = LEAST_PIXELS.div_ceil(rows * columns * parts.len());
            // Panels are packed in each task, so images are divided before channels are.
            enough.min(by_sums).min(gather.samples / ENOUGH_TASKS).max(1)
        } else {
            1
        };
        let tasks = gather.samples.div_ceil(images) * bands;
        let shares = ENOUGH_TASKS.div_ceil(tasks).min(results.div_ceil(LEAST_RESULTS));
        let mut channels = MOST_SOURCE / (images * (rows + reach) * line).max(1);
        if form == Form::Packed {
            let panels = images * per_row * rows / parts.len() + unit.lanes * unit.vectors;
            channels = channels.min(MOST_PACKED_TERMS / taps).min(MOST_PANELS / (panels * taps));
        }
        let channels = channels.clamp(1, gather.sources);
        let channels = gather.sources.div_ceil(gather.sources.div_ceil(channels));
        Plan { unit, form, parts, rows, columns, images, shares, channels }
    }

    /// The padded source of a band.
    pub(super) fn padded(&self, gather: &Gather, first: (usize, usize)) -> Padded {
        let (rows, pitch) = (self.rows + gather.rows.reach, self.columns + gather.columns.reach);
        Padded { first, rows, pitch }
    }

    /// Elements of the padded sources of a task, with room for a vector behind the last.
    pub(super) fn source_len(&self, gather: &Gather) -> usize {
        self.images * self.channels * self.padded(gather, (0, 0)).channel(gather) + self.unit.lanes
    }

    /// Elements of the panels of a task.
    pub(super) fn panels_len(&self) -> usize {
        if self.form != Form::Packed {
            return 0;
        }
        let taps = self.parts.iter().map(|part| part.kernel.len()).max().unwrap_or(0);
        let width = self.unit.lanes * self.unit.vectors;
        let columns = (self.images * self.rows * self.columns).next_multiple_of(width);
        self.channels * taps * columns + self.unit.lanes
    }

    /// How the pixels of a band lie among the columns of its products.
    pub(super) fn lines(&self, pitch: usize, rows: usize, columns: usize) -> Lines {
        let lanes = self.unit.lanes;
        let per_row = columns.div_ceil(lanes);
        match self.form {
            Form::Rows => Lines { row: per_row * lanes, image: rows * per_row * lanes, per_row, pitch, lanes },
            Form::Flat => {
                let image = ((rows - 1) * pitch + columns).next_multiple_of(lanes);
                Lines { row: pitch, image, per_row: image / lanes, pitch, lanes }
            }
            Form::Packed => Lines { row: columns, image: rows * columns, per_row, pitch, lanes },
        }
    }

    /// Columns of the products of a part of a task, at most.
    pub(super) fn sums(&self, gather: &Gather) -> usize {
        let pitch = self.padded(gather, (0, 0)).pitch;
        let lines = self.lines(pitch, self.rows, self.columns);
        (self.images * lines.image).next_multiple_of(self.unit.lanes)
    }

    /// Elements of the padded sources, the panels and the sums of a task, in whole lines.
    pub(super) fn lengths(&self, gather: &Gather) -> [usize; 3] {
        let sums = self.sums(gather) * gather.results * self.parts.len();
        [self.source_len(gather), self.panels_len(), sums].map(|len| len.next_multiple_of(LINE))
    }

    /// Elements of the scratch of a thread.
    pub(super) fn scratch(&self, gather: &Gather) -> usize {
        let pixels = self.rows * gather.rows.stride * self.columns * gather.columns.stride;
        self.lengths(gather).iter().sum::<usize>() + pixels.next_multiple_of(LINE) + LINE
    }
}

/// Elements of a line of a cache.
pub(super) const LINE: usize = 16;

/// Where pixels lie among the columns of products: from one row and one image to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lines {
    pub(super) row: usize,
    pub(super) image: usize,
    /// Vectors of a row, or of an image where they run through all rows.
    per_row: usize,
    pitch: usize,
    lanes: usize,
}

impl Lines {
    /// Vectors of an image, where none is in two.
    pub(super) fn vectors(&self) -> usize {
        self.image / self.lanes
    }

    /// Elements of the padded source from one row to the next.
    pub(super) fn pitch(&self) -> usize {
        self.pitch
    }

    /// Where the sources of a vector begin.
    pub(super) fn start(&self, vector: usize) -> usize {
        vector / self.per_row * self.pitch + vector % self.per_row * self.lanes
    }
}

/// The form that takes the fewest vectors, where packing counts as some.
fn form(gather: &Gather, unit: Unit, rows: usize, columns: usize) -> Form {
    let lanes = unit.lanes;
    let results = gather.results as f64;
    let in_rows = (rows * columns.div_ceil(lanes)) as f64 * results;
    let pitch = columns + gather.columns.reach;
    let flat = ((rows - 1) * pitch + columns).div_ceil(lanes) as f64 * results;
    let vectors = (rows * columns) as f64 / lanes as f64;
    let runs = 1.0 + lanes as f64 / columns as f64;
    let packed = vectors * (results + RUN_COST * runs);
    if in_rows <= flat.min(packed) {
        Form::Rows
    } else if flat <= packed {
        Form::Flat
    } else {
        Form::Packed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_is_counted_for_the_vectors_of_this_processor() {
        for level in Level::available() {
            let unit = Unit::of(level);
            let is_known =
                |known: &Unit| (known.lanes, known.rows, known.vectors) == (unit.lanes, unit.rows, unit.vectors);
            assert!(Unit::ALL.iter().any(is_known), "{level}: {unit:?}");
        }
    }
}

//! What a loader takes of the host's memory.

use super::{DataLoader, Source};
use crate::error::DataError;
use crate::tensor::format_bytes;

/// Batches that a training holds besides those that are read ahead: the one that is computed, and the next.
const IN_USE: usize = 2;

/// Host memory of a dataset and its batches, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoaderMemory {
    /// What the dataset holds: all its samples where it is in memory, else an index of them.
    pub dataset_bytes: u64,
    /// One batch.
    pub batch_bytes: u64,
    /// How many batches there are at once.
    pub batches: usize,
    /// What threads take for a moment to read and change samples.
    pub scratch_bytes: u64,
    /// Threads that read ahead.
    pub workers: usize,
}

impl LoaderMemory {
    /// All of it.
    pub fn total_bytes(&self) -> u64 {
        let batches = self.batch_bytes.saturating_mul(self.batches as u64);
        self.dataset_bytes.saturating_add(batches).saturating_add(self.scratch_bytes)
    }
}

pub(super) fn plan(loader: &DataLoader<'_>, batch: usize) -> Result<LoaderMemory, DataError> {
    // What is read, or what it becomes: both are there for a moment.
    let (read, fed) = (loader.source_features()?.sample_bytes(), loader.features()?.sample_bytes());
    let batch_bytes = read.max(fed).saturating_mul(batch as u64);
    let (held, scratch) = match &loader.source {
        // The order of the samples, too.
        Source::Dataset(dataset) => {
            let order = (dataset.len() as u64).saturating_mul(size_of::<usize>() as u64);
            (dataset.host_bytes().saturating_add(order), dataset.scratch_bytes().saturating_add(2 * (read + fed)))
        }
        Source::Stream(stream) => {
            let buffered = (stream.shuffle_buffer() as u64).saturating_mul(read);
            // The samples of a batch are read before they are changed.
            (buffered, read.saturating_mul(batch as u64).saturating_add(2 * (read + fed)))
        }
    };
    let of = |workers: usize, ahead: usize| LoaderMemory {
        dataset_bytes: held,
        batch_bytes,
        batches: IN_USE + ahead,
        scratch_bytes: scratch.saturating_mul(workers.max(1) as u64),
        workers,
    };
    let ahead = loader.prefetch.unwrap_or(loader.workers);
    let wanted = of(loader.workers, if loader.workers == 0 { 0 } else { ahead.max(1) });
    let Some(budget) = loader.host_budget_bytes.filter(|budget| wanted.total_bytes() > *budget) else {
        return Ok(wanted);
    };
    // As many as fit, with fewer threads where these have nothing to do.
    let fewer = (0..wanted.batches - IN_USE).rev().map(|ahead| of(loader.workers.min(ahead), ahead));
    let fitting = fewer.into_iter().find(|memory| memory.total_bytes() <= budget);
    fitting.ok_or_else(|| {
        let least = of(0, 0);
        DataError::Mismatch(format!(
            "the data needs {} of host memory with batches of {batch} ({} for the dataset, {} for a batch, of which there are {IN_USE}), and the host \
             budget is {}: use smaller batches, or a larger host budget",
            format_bytes(least.total_bytes()),
            format_bytes(least.dataset_bytes),
            format_bytes(least.batch_bytes),
            format_bytes(budget)
        ))
    })
}

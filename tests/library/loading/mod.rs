//! How samples get into batches and from there into a training: order, threads, memory, failures, streams.

mod bytes;
mod failures;
mod memory;
mod order;
mod streams;
mod training;

use std::thread;

use tightfit::data::{Batch, DataLoader, Dataset, EpochOptions, Sample};
use tightfit::error::DataError;

/// Samples that are computed: four floats, a label, and what their index is.
#[derive(Clone, Copy)]
pub(crate) struct Computed(pub(crate) usize);

impl Dataset for Computed {
    fn len(&self) -> usize {
        self.0
    }

    fn get(&self, index: usize) -> Result<Sample, DataError> {
        let value = |i: usize| ((index * 4 + i) * 7919 % 1009) as f32 / 1009.0 - 0.5;
        Ok(Sample::new([value(0), value(1), value(2), value(3)]).with_target(index as u32 % 3))
    }
}

/// All batches of an epoch; each is given back, except with `keep`.
pub(crate) fn batches(loader: &DataLoader<'_>, options: EpochOptions, keep: bool) -> Result<Vec<Batch>, DataError> {
    thread::scope(|scope| {
        let mut epoch = loader.epoch(scope, options)?;
        let mut all = Vec::new();
        while let Some(batch) = epoch.next_batch()? {
            if keep {
                all.push(batch);
            } else {
                all.push(batch.clone());
                epoch.recycle(batch);
            }
        }
        Ok(all)
    })
}

pub(crate) fn indices(batches: &[Batch]) -> Vec<usize> {
    batches.iter().flat_map(|batch| batch.indices().to_vec()).collect()
}

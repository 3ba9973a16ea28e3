//! Samples that are read one by one.

use std::sync::Arc;

use super::array::{Array, Values};
use super::batch::{Batch, TARGET};
use super::features::Features;
use super::sample::Sample;
use super::tensors::TensorDataset;
use crate::error::DataError;

/// A dataset: how many samples there are, and how one is read. Whatever implements it can be trained on, from several threads at once.
///
/// ```
/// use tightfit::data::{Dataset, Sample};
/// use tightfit::error::DataError;
///
/// /// Points, and whether they are in the unit circle.
/// struct Circle;
///
/// impl Dataset for Circle {
///     fn len(&self) -> usize {
///         10_000
///     }
///
///     fn get(&self, index: usize) -> Result<Sample, DataError> {
///         let (x, y) = ((index % 100) as f32 / 50.0 - 1.0, (index / 100) as f32 / 50.0 - 1.0);
///         Ok(Sample::new([x, y]).with_target(u32::from(x * x + y * y < 1.0)))
///     }
/// }
///
/// assert_eq!(Circle.features()?.get("input").map(|(_, shape)| shape.to_vec()), Some(vec![2]));
/// # Ok::<(), DataError>(())
/// ```
pub trait Dataset: Send + Sync {
    /// Number of samples.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads one sample; the same index gives the same one each time.
    ///
    /// # Errors
    /// Where it cannot be read: the message says which file or row.
    fn get(&self, index: usize) -> Result<Sample, DataError>;

    /// What every sample has. Unless it says so, what the first one has.
    ///
    /// # Errors
    /// Where the first sample cannot be read.
    fn features(&self) -> Result<Features, DataError> {
        Features::of(&self.get(0)?)
    }

    /// The label of a sample, where there is one a sample. Implement it where that is faster than to read the sample.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn label(&self, index: usize) -> Result<Option<u32>, DataError> {
        Ok(match self.get(index)?.get(TARGET).map(Array::values) {
            Some(Values::U32(labels)) if labels.len() == 1 => Some(labels[0]),
            _ => None,
        })
    }

    /// Where a sample comes from, for messages: a path, or a file and a row.
    fn origin(&self, index: usize) -> String {
        format!("sample {index}")
    }

    /// Bytes that the dataset itself takes in host memory, such as an index of files.
    fn host_bytes(&self) -> u64 {
        0
    }

    /// Bytes at most that it takes for a moment to read one sample, besides the sample.
    fn scratch_bytes(&self) -> u64 {
        0
    }

    /// Puts the samples at `indices` into a batch, in that order, in place of what is there.
    ///
    /// # Errors
    /// As [`get`](Self::get), and where samples differ in what they have.
    fn read(&self, indices: &[usize], batch: &mut Batch) -> Result<(), DataError> {
        batch.clear();
        for &index in indices {
            let sample = self.get(index)?;
            batch.push(index, &sample).map_err(|error| error.of_sample(&self.origin(index)))?;
        }
        Ok(())
    }

    /// All samples, where they are in memory: they are then checked before the first step.
    fn tensors(&self) -> Option<&TensorDataset> {
        None
    }
}

macro_rules! dataset_behind {
    ($(<$($life:lifetime,)? $inner:ident> $pointer:ty),*) => {$(
        impl<$($life,)? $inner: Dataset + ?Sized> Dataset for $pointer {
            fn len(&self) -> usize {
                (**self).len()
            }

            fn get(&self, index: usize) -> Result<Sample, DataError> {
                (**self).get(index)
            }

            fn features(&self) -> Result<Features, DataError> {
                (**self).features()
            }

            fn label(&self, index: usize) -> Result<Option<u32>, DataError> {
                (**self).label(index)
            }

            fn origin(&self, index: usize) -> String {
                (**self).origin(index)
            }

            fn host_bytes(&self) -> u64 {
                (**self).host_bytes()
            }

            fn scratch_bytes(&self) -> u64 {
                (**self).scratch_bytes()
            }

            fn read(&self, indices: &[usize], batch: &mut Batch) -> Result<(), DataError> {
                (**self).read(indices, batch)
            }

            fn tensors(&self) -> Option<&TensorDataset> {
                (**self).tensors()
            }
        }
    )*};
}

dataset_behind! { <'a, D> &'a D, <D> Box<D>, <D> Arc<D> }

//! Some samples of a dataset.

use super::batch::Batch;
use super::dataset::Dataset;
use super::features::Features;
use super::sample::Sample;
use crate::error::{DataError, HostMemory};
use crate::tensor::room;

/// Some samples of a dataset, by their numbers: a part of a [split](super::split), or a sample more than once. It reads them where they are
/// and holds nothing but the numbers.
///
/// ```
/// use tightfit::data::{Dataset, Subset, TensorDataset, Values};
///
/// let data = TensorDataset::unlabeled(Values::F32(vec![0.0, 0.1, 0.2, 0.3]), [1])?;
/// let part = Subset::new(&data, [3, 1])?;
/// assert_eq!((part.len(), part.get(0)?), (2, data.get(3)?));
/// # Ok::<(), tightfit::error::DataError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Subset<D> {
    data: D,
    /// Most datasets have fewer than 2³² samples, and half of the memory is then enough.
    indices: Indices,
}

#[derive(Clone, Debug)]
enum Indices {
    Small(Vec<u32>),
    Large(Vec<usize>),
}

impl<D: Dataset> Subset<D> {
    /// The samples of these numbers, in this order.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] where there are none, or the dataset has no sample of a number, [`DataError::HostMemory`].
    pub fn new(data: D, indices: impl IntoIterator<Item = usize>) -> Result<Self, DataError> {
        let len = data.len();
        let indices = indices.into_iter();
        let checked = |index: usize| match index < len {
            true => Ok(index),
            false => Err(DataError::Mismatch(format!("a dataset of {len} samples has no sample {index} for a subset"))),
        };
        let indices = match u32::try_from(len) {
            Ok(_) => Indices::Small(gathered(indices.map(|index| checked(index).map(|index| index as u32)))?),
            Err(_) => Indices::Large(gathered(indices.map(checked))?),
        };
        let subset = Subset { data, indices };
        if subset.is_empty() {
            return Err(DataError::Mismatch(format!("a subset of {len} samples has none: it needs at least one")));
        }
        Ok(subset)
    }

    /// The dataset that it is of.
    pub fn whole(&self) -> &D {
        &self.data
    }

    /// The number in the dataset of a sample of the subset.
    fn of(&self, index: usize) -> Result<usize, DataError> {
        let found = match &self.indices {
            Indices::Small(indices) => indices.get(index).map(|&index| index as usize),
            Indices::Large(indices) => indices.get(index).copied(),
        };
        found.ok_or_else(|| DataError::Mismatch(format!("sample {index} of a subset of {} does not exist", self.len())))
    }
}

/// All of them, or the first error.
fn gathered<T>(indices: impl Iterator<Item = Result<T, DataError>>) -> Result<Vec<T>, DataError> {
    let mut gathered = room(indices.size_hint().0)?;
    for index in indices {
        gathered.try_reserve(1).map_err(|_| HostMemory { size_bytes: (gathered.len() * size_of::<T>()) as u64 })?;
        gathered.push(index?);
    }
    Ok(gathered)
}

impl<D: Dataset> Dataset for Subset<D> {
    fn len(&self) -> usize {
        match &self.indices {
            Indices::Small(indices) => indices.len(),
            Indices::Large(indices) => indices.len(),
        }
    }

    fn get(&self, index: usize) -> Result<Sample, DataError> {
        self.data.get(self.of(index)?)
    }

    fn features(&self) -> Result<Features, DataError> {
        self.data.features()
    }

    fn label(&self, index: usize) -> Result<Option<u32>, DataError> {
        self.data.label(self.of(index)?)
    }

    fn origin(&self, index: usize) -> String {
        self.of(index).map_or_else(|_| format!("sample {index}"), |index| self.data.origin(index))
    }

    fn host_bytes(&self) -> u64 {
        let indices = match &self.indices {
            Indices::Small(indices) => indices.capacity() * size_of::<u32>(),
            Indices::Large(indices) => indices.capacity() * size_of::<usize>(),
        };
        self.data.host_bytes().saturating_add(indices as u64)
    }

    fn scratch_bytes(&self) -> u64 {
        self.data.scratch_bytes()
    }

    /// The batch then has the numbers that samples have in the subset.
    fn read(&self, indices: &[usize], batch: &mut Batch) -> Result<(), DataError> {
        let mut whole = room(indices.len())?;
        for &index in indices {
            whole.push(self.of(index)?);
        }
        self.data.read(&whole, batch)?;
        batch.renumber(indices);
        Ok(())
    }
}

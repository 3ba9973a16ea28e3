//! Some samples of a dataset, ready to be uploaded.

use std::ops::Range;

use super::array::{Array, Values};
use super::features::Features;
use super::sample::Sample;
use crate::error::{DataError, HostMemory};
use crate::tensor::{DType, Shape, TensorDesc};

/// What a model and a batch call the samples.
pub const INPUT: &str = "input";
/// What a batch calls the targets.
pub const TARGET: &str = "target";

/// What a dataset calls the weights of its samples.
pub const SAMPLE_WEIGHT: &str = "sample_weight";

/// Samples, targets and whatever else a model takes, by name: bytes in the machine's order, one sample after the other.
///
/// ```
/// use tightfit::data::{Batch, Sample};
///
/// let mut batch = Batch::default();
/// for index in 0..2 {
///     batch.push(index, &Sample::new([index as f32, 0.5]).with_target(index as u32))?;
/// }
/// assert_eq!((batch.len(), batch.values("input"), batch.ints("target")), (2, vec![0.0, 0.5, 1.0, 0.5], vec![0, 1]));
/// # Ok::<(), tightfit::error::DataError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    entries: Vec<Entry>,
    indices: Vec<usize>,
}

/// What all samples have under one name.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    name: String,
    /// Of one sample.
    shape: Shape,
    values: Values,
}

impl Batch {
    /// Number of samples.
    pub fn len(&self) -> usize {
        self.indices.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }

    /// Which samples of the dataset they are.
    pub fn indices(&self) -> &[usize] {
        &self.indices
    }

    /// What its samples have. How many classes there are is not known.
    pub(crate) fn features(&self) -> Features {
        let descs = self
            .entries
            .iter()
            .map(|entry| (entry.name.clone(), TensorDesc { shape: entry.shape.clone(), dtype: entry.values.dtype() }));
        Features::from_entries(descs.collect())
    }

    /// The numbers of an entry, if there is one of this name.
    pub fn get(&self, name: &str) -> Option<&Values> {
        self.entry(name).map(|entry| &entry.values)
    }

    /// The bytes of an entry, if there is one of this name.
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.get(name).map(Values::bytes)
    }

    /// Type and shape of what one sample has under a name.
    pub fn feature(&self, name: &str) -> Option<(DType, &Shape)> {
        self.entry(name).map(|entry| (entry.values.dtype(), &entry.shape))
    }

    /// An entry as floats, bytes divided by 255; none of an entry that is not there.
    pub fn values(&self, name: &str) -> Vec<f32> {
        match self.get(name) {
            Some(Values::U8(bytes)) => bytes.iter().map(|&byte| unit(byte)).collect(),
            values => bytemuck::pod_collect_to_vec(values.map(Values::bytes).unwrap_or_default()),
        }
    }

    /// An entry as labels or tokens; none of an entry that is not there.
    pub fn ints(&self, name: &str) -> Vec<u32> {
        match self.get(name) {
            Some(Values::U8(bytes)) => bytes.iter().map(|&byte| u32::from(byte)).collect(),
            values => bytemuck::pod_collect_to_vec(values.map(Values::bytes).unwrap_or_default()),
        }
    }

    /// A copy of the sample at a place.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] where the batch has no such place, [`DataError::HostMemory`].
    pub fn sample(&self, place: usize) -> Result<Sample, DataError> {
        if place >= self.len() {
            return Err(DataError::Mismatch(format!("a batch of {} samples has no place {place}", self.len())));
        }
        let mut sample = Sample::default();
        for Entry { name, shape, values } in &self.entries {
            let numel = shape.numel();
            let values = values.part(place * numel..(place + 1) * numel)?;
            sample.set(name, Array::new(values, shape.clone())?);
        }
        Ok(sample)
    }

    /// Appends a sample, which is number `index` of its dataset. The first one says what all have.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] where it has other things, or in other shapes, [`DataError::HostMemory`] where there is no memory for
    /// it. The batch is then as it was.
    pub fn push(&mut self, index: usize, sample: &Sample) -> Result<(), DataError> {
        let is_first = self.indices.is_empty();
        if is_first {
            self.begin(
                sample
                    .entries()
                    .map(|(name, array)| (name, TensorDesc { shape: array.shape().clone(), dtype: array.dtype() })),
            );
        }
        if sample.entries().count() != self.entries.len() {
            let names = |names: Vec<&str>| names.join(", ");
            let found = names(sample.entries().map(|(name, _)| name).collect());
            let expected = names(self.entries.iter().map(|entry| &*entry.name).collect());
            return Err(DataError::Mismatch(format!(
                "it has {found}, others have {expected}: all samples need the same"
            )));
        }
        for entry in &mut self.entries {
            let Some(array) = sample.get(&entry.name) else {
                return Err(DataError::Mismatch(format!(
                    "it has no `{}`, others do: all samples need one",
                    entry.name
                )));
            };
            let of = |dtype, shape: &Shape| TensorDesc { shape: shape.clone(), dtype };
            let (found, expected) = (of(array.dtype(), array.shape()), of(entry.values.dtype(), &entry.shape));
            if found != expected {
                let text = format!(
                    "its `{}` is {found}, that of others {expected}: all samples need the same shape and type",
                    entry.name
                );
                return Err(DataError::Mismatch(text));
            }
            entry.values.reserve(array.values().len())?;
        }
        for entry in &mut self.entries {
            let values = sample.get(&entry.name).expect("bug: it was found").values();
            entry.values.append(values, 0..values.len());
        }
        self.indices.push(index);
        Ok(())
    }

    /// Reads samples that have these features into the batch, in place of what is there: `read` is called for each entry, with its name and
    /// no numbers yet, and appends those of all samples. What [`Dataset::read`](super::Dataset::read) calls where samples are at hand
    /// in one piece: nothing is allocated once the batch has held as many.
    ///
    /// ```
    /// use tightfit::data::{Batch, Features, Values};
    /// use tightfit::tensor::DType;
    ///
    /// let rows = [[0.0, 0.5], [1.0, 1.5], [2.0, 2.5]];
    /// let mut batch = Batch::default();
    /// batch.read(&[2, 0], &Features::new(DType::F32, [2]), |_, values| {
    ///     if let Values::F32(values) = values {
    ///         values.extend([2, 0].into_iter().flat_map(|row: usize| rows[row]));
    ///     }
    ///     Ok(())
    /// })?;
    /// assert_eq!(batch.values("input"), [2.0, 2.5, 0.0, 0.5]);
    /// # Ok::<(), tightfit::error::DataError>(())
    /// ```
    ///
    /// # Errors
    /// What `read` returns, and [`DataError::Mismatch`] where there are then not as many numbers as samples have, or of another type. The batch
    /// is then empty.
    pub fn read(
        &mut self,
        indices: &[usize],
        features: &Features,
        mut read: impl FnMut(&str, &mut Values) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        self.begin(features.entries().map(|(name, desc)| (name, desc.clone())));
        for entry in &mut self.entries {
            let dtype = entry.values.dtype();
            let result = read(&entry.name, &mut entry.values);
            let expected = indices.len().checked_mul(entry.shape.numel());
            let result = result.and_then(|()| match (expected == Some(entry.values.len()), entry.values.dtype()) {
                (true, found) if found == dtype => Ok(()),
                (_, found) => Err(DataError::Mismatch(format!(
                    "{} numbers ({found}) as `{}` of {} samples are not of the shape {} each ({dtype})",
                    entry.values.len(),
                    entry.name,
                    indices.len(),
                    entry.shape
                ))),
            });
            if let Err(error) = result {
                *self = Batch::default();
                return Err(error);
            }
        }
        self.indices.extend_from_slice(indices);
        Ok(())
    }

    /// Changes an entry: `change` is given the numbers of all samples and the shape of one sample's, and returns what there is then, of the
    /// same type or another. Nothing happens where there is no entry of this name.
    ///
    /// ```
    /// use tightfit::data::{Batch, Sample, Values};
    ///
    /// let mut batch = Batch::default();
    /// batch.push(0, &Sample::new([1.0, 2.0]))?;
    /// batch.change("input", |values, shape| match values {
    ///     Values::F32(values) => Ok((Values::F32(values.into_iter().map(|value| -value).collect()), shape)),
    ///     values => Ok((values, shape)),
    /// })?;
    /// assert_eq!(batch.values("input"), [-1.0, -2.0]);
    /// # Ok::<(), tightfit::error::DataError>(())
    /// ```
    ///
    /// # Errors
    /// What `change` returns, and [`DataError::Mismatch`] where there are then not as many numbers as samples of this shape have. The
    /// batch is then empty.
    pub fn change(
        &mut self,
        name: &str,
        change: impl FnOnce(Values, Shape) -> Result<(Values, Shape), DataError>,
    ) -> Result<(), DataError> {
        let Some(at) = self.entries.iter().position(|entry| entry.name == name) else { return Ok(()) };
        let Entry { shape, values, .. } = &mut self.entries[at];
        let before = (std::mem::replace(values, Values::empty(values.dtype())), std::mem::take(shape));
        let changed = change(before.0, before.1).and_then(|(values, shape)| {
            if self.indices.len().checked_mul(shape.numel()) == Some(values.len()) {
                return Ok((values, shape));
            }
            Err(DataError::Mismatch(format!(
                "{} numbers as `{name}` of {} samples are not of the shape {shape} each",
                values.len(),
                self.indices.len()
            )))
        });
        match changed {
            Ok((values, shape)) => (self.entries[at].values, self.entries[at].shape) = (values, shape),
            Err(error) => {
                *self = Batch::default();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Says by which numbers its samples are known: as many as there are.
    pub(super) fn renumber(&mut self, indices: &[usize]) {
        debug_assert_eq!(self.indices.len(), indices.len(), "bug: a number for each sample");
        self.indices.clear();
        self.indices.extend_from_slice(indices);
    }

    /// Empties it. Its memory stays, for the next samples.
    pub fn clear(&mut self) {
        self.indices.clear();
        self.entries.iter_mut().for_each(|entry| entry.values.clear());
    }

    /// Begins anew, with samples that have this under these names.
    pub(super) fn begin<'a>(&mut self, entries: impl Iterator<Item = (&'a str, TensorDesc)>) {
        let mut before = std::mem::take(&mut self.entries);
        for (name, TensorDesc { shape, dtype }) in entries {
            let at = before.iter().position(|entry| entry.name == name && entry.values.dtype() == dtype);
            let mut values = at.map_or_else(|| Values::empty(dtype), |at| before.swap_remove(at).values);
            values.clear();
            self.entries.push(Entry { name: name.to_owned(), shape, values });
        }
        self.indices.clear();
    }

    /// Appends the samples at `indices` of what whole datasets have, one for each entry.
    pub(super) fn gather(&mut self, indices: &[usize], sources: &[&Values]) -> Result<(), HostMemory> {
        for entry in &mut self.entries {
            entry.values.reserve(indices.len().saturating_mul(entry.shape.numel()))?;
        }
        for (entry, source) in self.entries.iter_mut().zip(sources) {
            let numel = entry.shape.numel();
            indices.iter().for_each(|index| entry.values.append(source, index * numel..(index + 1) * numel));
        }
        self.indices.extend_from_slice(indices);
        Ok(())
    }

    /// The bytes of some samples.
    pub(crate) fn rows(&self, name: &str, samples: Range<usize>) -> Option<(DType, &[u8])> {
        let entry = self.entry(name)?;
        let stride = entry.shape.numel() * entry.values.dtype().size_bytes() as usize;
        Some((entry.values.dtype(), entry.values.bytes().get(samples.start * stride..samples.end * stride)?))
    }

    /// The integers of one sample; none where it has none of this name.
    pub(crate) fn integers(&self, name: &str, sample: usize) -> &[u32] {
        match self.entry(name) {
            Some(Entry { shape, values: Values::U32(values), .. }) => of_sample(values, shape, sample),
            _ => &[],
        }
    }

    /// The floats of one sample; none where it has none of this name.
    pub(crate) fn floats(&self, name: &str, sample: usize) -> &[f32] {
        match self.entry(name) {
            Some(Entry { shape, values: Values::F32(values), .. }) => of_sample(values, shape, sample),
            _ => &[],
        }
    }

    fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }
}

/// The numbers of one sample.
fn of_sample<'a, T>(values: &'a [T], shape: &Shape, sample: usize) -> &'a [T] {
    values.get(sample * shape.numel()..(sample + 1) * shape.numel()).unwrap_or_default()
}

/// A byte as a number from 0 to 1.
pub(crate) fn unit(byte: u8) -> f32 {
    f32::from(byte) / 255.0
}

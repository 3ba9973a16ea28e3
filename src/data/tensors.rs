//! Samples and targets in host memory.

use std::ops::Range;

use super::batch::{Batch, INPUT, SAMPLE_WEIGHT, TARGET};
use super::dataset::Dataset;
use super::features::Features;
use super::sample::Sample;
use super::{Array, Targets, Values};
use crate::error::DataError;
use crate::tensor::Shape;

/// Samples of one shape with their targets. It has at least one sample.
///
/// ```
/// use tightfit::data::{Batch, Dataset, Targets, TensorDataset, Values};
///
/// let data = TensorDataset::new(Values::U8(vec![0, 51, 102, 255]), [2], Targets::labels(vec![1, 0], 2))?;
/// let mut batch = Batch::default();
/// data.read(&[1, 0], &mut batch)?;
/// assert_eq!(batch.values("input"), [0.4, 1.0, 0.0, 0.2]);
/// assert_eq!(batch.ints("target"), [0, 1]);
/// # Ok::<(), tightfit::error::DataError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct TensorDataset {
    entries: Vec<Tensor>,
    features: Features,
    len: usize,
}

/// What all samples have under one name.
#[derive(Clone, Debug, PartialEq)]
struct Tensor {
    name: String,
    values: Values,
    /// Of one sample.
    shape: Shape,
}

impl TensorDataset {
    /// A dataset of `samples`, each of shape `sample_shape`.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] when there is no sample, an extent is 0, the lengths of samples and targets do not fit
    /// together, or a label is not below the number of classes.
    pub fn new(samples: Values, sample_shape: impl Into<Shape>, targets: Targets) -> Result<Self, DataError> {
        let shape = sample_shape.into();
        let len = count("samples", samples.len(), &shape)?;
        if let Some(target_count) = targets.count()?
            && target_count != len
        {
            return Err(DataError::Mismatch(format!(
                "{len} samples but {target_count} targets: each sample needs one"
            )));
        }
        let features = targets.put_in(Features::new(samples.dtype(), shape.clone()));
        let mut entries = vec![Tensor { name: INPUT.to_owned(), values: samples, shape }];
        entries.extend(targets.into_values().map(|(values, shape)| Tensor { name: TARGET.to_owned(), values, shape }));
        Ok(TensorDataset { entries, features, len })
    }

    /// Samples without targets: for predictions.
    ///
    /// # Errors
    /// As [`TensorDataset::new`].
    pub fn unlabeled(samples: Values, sample_shape: impl Into<Shape>) -> Result<Self, DataError> {
        TensorDataset::new(samples, sample_shape, Targets::None)
    }

    /// Adds what a model takes besides the samples: `name` is what the model calls the input, such as `lengths`, `shape`
    /// that of one sample, `[]` for one number.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] when there are not as many entries as samples, or the name is taken.
    pub fn with_input(
        mut self,
        name: impl Into<String>,
        values: Values,
        shape: impl Into<Shape>,
    ) -> Result<Self, DataError> {
        let (name, shape) = (name.into(), shape.into());
        let found = count(&name, values.len(), &shape)?;
        if found != self.len {
            return Err(DataError::Mismatch(format!(
                "{} samples but {found} entries of `{name}`: each sample needs one",
                self.len
            )));
        }
        if [INPUT, TARGET].contains(&&*name) || self.tensor(&name).is_some() {
            return Err(DataError::Mismatch(format!("the dataset has a `{name}` already: use another name")));
        }
        self.features = self.features.with(name.clone(), values.dtype(), shape.clone());
        self.entries.push(Tensor { name, values, shape });
        Ok(self)
    }

    /// Gives each sample a weight, by which its losses and metrics are multiplied where
    /// [`Config::sample_weights`](crate::train::Config::sample_weights) is set: the entry [`SAMPLE_WEIGHT`].
    ///
    /// # Errors
    /// [`DataError::Mismatch`] when there are not as many weights as samples, or one is below 0 or not a number.
    pub fn with_sample_weights(self, weights: Vec<f32>) -> Result<Self, DataError> {
        if let Some(at) = weights.iter().position(|weight| !(weight.is_finite() && *weight >= 0.0)) {
            let weight = weights[at];
            return Err(DataError::Mismatch(format!(
                "the weight of sample {at} is {weight}: it must be a number, 0 or more"
            )));
        }
        self.with_input(SAMPLE_WEIGHT, Values::F32(weights), [])
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never true: [`TensorDataset::new`] refuses an empty dataset.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Shape of one sample.
    pub fn sample_shape(&self) -> &Shape {
        &self.entries[0].shape
    }

    /// Number of classes, if the targets are labels.
    pub fn classes(&self) -> Option<u32> {
        self.features.classes()
    }

    /// The labels of all samples, one after the other; `None` where targets are numbers, or there are none.
    pub fn labels(&self) -> Option<&[u32]> {
        self.integers(TARGET).map(|(labels, _)| labels)
    }

    /// The same data with another sample shape, for example `[784]` or `[28, 28]` for MNIST's `[1, 28, 28]`. The order of the
    /// elements stays.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] when the new shape has another number of elements, or has the channels of images at the other
    /// end, for which elements would have to move.
    pub fn with_sample_shape(mut self, shape: impl Into<Shape>) -> Result<Self, DataError> {
        let shape = shape.into();
        check_reshape(self.sample_shape(), &shape)?;
        self.features = self.features.with(INPUT, self.entries[0].values.dtype(), shape.clone());
        self.entries[0].shape = shape;
        Ok(self)
    }

    /// A copy of the samples in `range`.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] when the range is empty or goes past the end, [`DataError::HostMemory`] when there is no memory
    /// for the copy.
    pub fn subset(&self, range: Range<usize>) -> Result<Self, DataError> {
        if range.is_empty() || range.end > self.len {
            return Err(DataError::Mismatch(format!(
                "samples {} to {} cannot be taken from a dataset of {}: the range must not be empty or go past the end",
                range.start, range.end, self.len
            )));
        }
        let part = |Tensor { name, values, shape }: &Tensor| {
            let values = values.part(range.start * shape.numel()..range.end * shape.numel())?;
            Ok(Tensor { name: name.clone(), values, shape: shape.clone() })
        };
        let entries = self.entries.iter().map(part).collect::<Result<_, DataError>>()?;
        Ok(TensorDataset { entries, features: self.features.clone(), len: range.len() })
    }

    /// The first `count` samples, or all of them if there are fewer.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] when `count` is 0, [`DataError::HostMemory`] when there is no memory for the copy.
    pub fn take(&self, count: usize) -> Result<Self, DataError> {
        self.subset(0..count.min(self.len))
    }

    /// The integers of an entry of all samples, and the shape of one sample's; `None` where it holds none.
    pub(crate) fn integers(&self, name: &str) -> Option<(&[u32], &Shape)> {
        match self.tensor(name)? {
            Tensor { values: Values::U32(values), shape, .. } => Some((values, shape)),
            _ => None,
        }
    }

    fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.entries.iter().find(|tensor| tensor.name == name)
    }

    fn check_index(&self, index: usize) -> Result<(), DataError> {
        if index < self.len {
            return Ok(());
        }
        Err(DataError::Mismatch(format!("sample {index} of a dataset of {} does not exist", self.len)))
    }
}

impl Dataset for TensorDataset {
    fn len(&self) -> usize {
        self.len
    }

    fn get(&self, index: usize) -> Result<Sample, DataError> {
        self.check_index(index)?;
        let mut sample = Sample::default();
        for Tensor { name, values, shape } in &self.entries {
            let values = values.part(index * shape.numel()..(index + 1) * shape.numel())?;
            sample.set(name, Array::new(values, shape.clone())?);
        }
        Ok(sample)
    }

    fn features(&self) -> Result<Features, DataError> {
        Ok(self.features.clone())
    }

    fn label(&self, index: usize) -> Result<Option<u32>, DataError> {
        self.check_index(index)?;
        Ok(self.integers(TARGET).filter(|(_, shape)| shape.is_empty()).map(|(labels, _)| labels[index]))
    }

    fn host_bytes(&self) -> u64 {
        self.entries.iter().map(|tensor| tensor.values.bytes().len() as u64).sum()
    }

    /// Nothing is allocated once the batch has held as many.
    fn read(&self, indices: &[usize], batch: &mut Batch) -> Result<(), DataError> {
        batch.clear();
        indices.iter().try_for_each(|index| self.check_index(*index))?;
        let values: Vec<_> = self.entries.iter().map(|tensor| &tensor.values).collect();
        batch.begin(self.features.entries().map(|(name, desc)| (name, desc.clone())));
        Ok(batch.gather(indices, &values)?)
    }

    fn tensors(&self) -> Option<&TensorDataset> {
        Some(self)
    }
}

/// How many entries of shape `shape` `values` numbers make.
pub(super) fn count(what: &str, values: usize, shape: &Shape) -> Result<usize, DataError> {
    let numel = checked_numel(shape).filter(|numel| *numel > 0).ok_or_else(|| {
        DataError::Mismatch(format!("{what} cannot have the shape {shape}: every extent must be at least 1"))
    })?;
    if values == 0 {
        return Err(DataError::Mismatch(format!("there are no {what}: a dataset needs at least one")));
    }
    if !values.is_multiple_of(numel) {
        return Err(DataError::Mismatch(format!("{values} numbers do not divide into {what} of shape {shape}")));
    }
    Ok(values / numel)
}

/// Number of elements; none if it overflows.
fn checked_numel(shape: &Shape) -> Option<usize> {
    shape.iter().try_fold(1usize, |numel, dim| numel.checked_mul(*dim))
}

/// Whether samples of one shape can be taken for samples of another.
pub(super) fn check_reshape(from: &Shape, to: &Shape) -> Result<(), DataError> {
    if let Some(moved) = moved_channels(from, to) {
        return Err(DataError::Mismatch(moved));
    }
    if checked_numel(to) == Some(from.numel()) {
        return Ok(());
    }
    Err(DataError::Mismatch(format!(
        "samples of shape {from} have {} elements and cannot take the shape {to}: use samples of that size, or a model that takes these",
        from.numel()
    )))
}

/// What to say where samples have their channels at the other end than what is asked for: a reshape would mix the pixels.
pub(crate) fn moved_channels(found: &Shape, wanted: &Shape) -> Option<String> {
    let ([a, b, c], false) = (&found[..], found == wanted) else { return None };
    // With one channel, or one row, nothing moves.
    let moves = [*a, *b, *c].iter().filter(|&&extent| extent > 1).count() > 2;
    let is = |order: [&usize; 3]| moves && wanted[..] == order.map(|&extent| extent);
    let (is_last, is_first) = (is([c, a, b]), is([b, c, a]));
    (is_last || is_first).then(|| {
        let (found_at, wanted_at) = if is_last { ("last", "first") } else { ("first", "last") };
        format!(
            "samples of shape {found} have their channels {found_at}, and {wanted} has them {wanted_at}: transpose each \
             sample, since a reshape would mix the pixels"
        )
    })
}

//! Samples and targets in host memory.

use std::ops::Range;

use crate::error::DataError;
use crate::tensor::Shape;

/// The numbers of all samples, one sample after the other.
#[derive(Clone, Debug, PartialEq)]
pub enum Samples {
    /// Floats, used as they are.
    F32(Vec<f32>),
    /// Bytes, a quarter of the memory: divided by 255 when a batch is filled, so that 0 is 0.0 and 255 is 1.0.
    U8(Vec<u8>),
}

impl Samples {
    fn len(&self) -> usize {
        match self {
            Samples::F32(values) => values.len(),
            Samples::U8(values) => values.len(),
        }
    }
}

/// What a model should answer, one entry a sample.
#[derive(Clone, Debug, PartialEq)]
pub enum Targets {
    /// Classes, for a cross-entropy loss.
    Labels {
        /// One class a sample, each below `classes`.
        labels: Vec<u32>,
        /// Number of classes.
        classes: u32,
    },
    /// Numbers, for a regression loss.
    Values {
        /// The numbers of all samples, one sample after the other.
        values: Vec<f32>,
        /// Shape of one sample's target.
        shape: Shape,
    },
}

impl Targets {
    /// Shape of one sample's target; `[]` (no extents) for labels, which are one number each.
    pub fn shape(&self) -> Shape {
        match self {
            Targets::Labels { .. } => Shape::from([]),
            Targets::Values { shape, .. } => shape.clone(),
        }
    }
}

/// Samples of one shape with their targets. It has at least one sample.
///
/// ```
/// use tightfit::data::{Dataset, Samples, Targets};
///
/// let data = Dataset::new(
///     Samples::U8(vec![0, 51, 102, 255]),
///     [2],
///     Targets::Labels { labels: vec![1, 0], classes: 2 },
/// )?;
/// let (mut samples, mut targets) = (Vec::new(), Vec::new());
/// data.gather(&[1, 0], &mut samples, &mut targets)?;
/// assert_eq!(samples, [0.4, 1.0, 0.0, 0.2]);
/// assert_eq!(targets, [0u32.to_ne_bytes(), 1u32.to_ne_bytes()].concat());
/// # Ok::<(), tightfit::error::DataError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    samples: Samples,
    sample_shape: Shape,
    targets: Targets,
    len: usize,
}

impl Dataset {
    /// A dataset of `samples`, each of shape `sample_shape`.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] when there is no sample, an extent is 0, the lengths of samples and targets do not fit
    /// together, or a label is not below the number of classes.
    pub fn new(samples: Samples, sample_shape: impl Into<Shape>, targets: Targets) -> Result<Self, DataError> {
        let sample_shape = sample_shape.into();
        let len = count("samples", samples.len(), &sample_shape)?;
        let target_count = match &targets {
            Targets::Labels { labels, classes } => {
                if let Some((index, label)) = labels.iter().enumerate().find(|(_, label)| *label >= classes) {
                    return Err(DataError::Mismatch(format!(
                        "label {label} of sample {index} is out of range: with {classes} classes labels go from 0 to {}",
                        classes.saturating_sub(1)
                    )));
                }
                labels.len()
            }
            Targets::Values { values, shape } => count("targets", values.len(), shape)?,
        };
        if target_count != len {
            return Err(DataError::Mismatch(format!(
                "{len} samples but {target_count} targets: each sample needs one"
            )));
        }
        Ok(Dataset { samples, sample_shape, targets, len })
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never true: [`Dataset::new`] refuses an empty dataset.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Shape of one sample.
    pub fn sample_shape(&self) -> &Shape {
        &self.sample_shape
    }

    /// The targets of all samples.
    pub fn targets(&self) -> &Targets {
        &self.targets
    }

    /// Number of classes, if the targets are labels.
    pub fn classes(&self) -> Option<u32> {
        match self.targets {
            Targets::Labels { classes, .. } => Some(classes),
            Targets::Values { .. } => None,
        }
    }

    /// The same data with another sample shape, for example `[784]` or `[28, 28]` for MNIST's `[1, 28, 28]`.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] when the new shape has another number of elements.
    pub fn with_sample_shape(mut self, shape: impl Into<Shape>) -> Result<Self, DataError> {
        let shape = shape.into();
        if checked_numel(&shape) != Some(self.sample_shape.numel()) {
            return Err(DataError::Mismatch(format!(
                "samples of shape {} have {} elements and cannot take the shape {shape}",
                self.sample_shape,
                self.sample_shape.numel()
            )));
        }
        self.sample_shape = shape;
        Ok(self)
    }

    /// A copy of the samples in `range`.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] when the range is empty or goes past the end.
    pub fn subset(&self, range: Range<usize>) -> Result<Self, DataError> {
        if range.is_empty() || range.end > self.len {
            return Err(DataError::Mismatch(format!(
                "samples {} to {} cannot be taken from a dataset of {}: the range must not be empty or go past the end",
                range.start, range.end, self.len
            )));
        }
        let part = |numel: usize| range.start * numel..range.end * numel;
        let sample_part = part(self.sample_shape.numel());
        Ok(Dataset {
            samples: match &self.samples {
                Samples::F32(values) => Samples::F32(values[sample_part].to_vec()),
                Samples::U8(values) => Samples::U8(values[sample_part].to_vec()),
            },
            sample_shape: self.sample_shape.clone(),
            targets: match &self.targets {
                Targets::Labels { labels, classes } => {
                    Targets::Labels { labels: labels[part(1)].to_vec(), classes: *classes }
                }
                Targets::Values { values, shape } => {
                    Targets::Values { values: values[part(shape.numel())].to_vec(), shape: shape.clone() }
                }
            },
            len: range.len(),
        })
    }

    /// The first `count` samples, or all of them if there are fewer.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] when `count` is 0.
    pub fn take(&self, count: usize) -> Result<Self, DataError> {
        self.subset(0..count.min(self.len))
    }

    /// Replaces the contents of `samples` and `targets` by the samples at `indices`, in that order. Targets are bytes in
    /// the machine's order, ready to be uploaded: u32 labels or f32 values. Nothing is allocated once the two vectors
    /// have the capacity of a batch.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] when an index is past the end; the vectors are then empty.
    pub fn gather(&self, indices: &[usize], samples: &mut Vec<f32>, targets: &mut Vec<u8>) -> Result<(), DataError> {
        samples.clear();
        targets.clear();
        if let Some(index) = indices.iter().find(|index| **index >= self.len) {
            return Err(DataError::Mismatch(format!("sample {index} of a dataset of {} does not exist", self.len)));
        }
        let at = |index: usize, numel: usize| index * numel..(index + 1) * numel;
        let numel = self.sample_shape.numel();
        samples.reserve(indices.len() * numel);
        match &self.samples {
            Samples::F32(values) => {
                for &index in indices {
                    samples.extend_from_slice(&values[at(index, numel)]);
                }
            }
            Samples::U8(values) => {
                for &index in indices {
                    samples.extend(values[at(index, numel)].iter().map(|&byte| f32::from(byte) / 255.0));
                }
            }
        }
        match &self.targets {
            Targets::Labels { labels, .. } => {
                for &index in indices {
                    targets.extend_from_slice(&labels[index].to_ne_bytes());
                }
            }
            Targets::Values { values, shape } => {
                for &index in indices {
                    targets.extend_from_slice(bytemuck::cast_slice(&values[at(index, shape.numel())]));
                }
            }
        }
        Ok(())
    }
}

/// How many entries of shape `shape` `values` numbers make.
fn count(what: &str, values: usize, shape: &Shape) -> Result<usize, DataError> {
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

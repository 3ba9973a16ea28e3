//! Datasets that show the samples of others in another form.

use super::array::{Array, Values};
use super::batch::{INPUT, TARGET};
use super::dataset::Dataset;
use super::features::{Features, TargetKind};
use super::sample::Sample;
use super::tensors::check_reshape;
use crate::error::DataError;
use crate::tensor::{DType, Shape, room};

/// The samples of a dataset in another shape, such as `[784]` of images `[1, 28, 28]`. The order of the elements stays.
///
/// ```
/// use tightfit::data::{Dataset, Reshaped, TensorDataset, Values};
///
/// let data = TensorDataset::unlabeled(Values::F32(vec![0.5; 8]), [2, 2])?;
/// assert_eq!(Reshaped::new(&data, [4])?.get(1)?.get("input").map(|input| input.shape().to_vec()), Some(vec![4]));
/// # Ok::<(), tightfit::error::DataError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Reshaped<D> {
    data: D,
    shape: Shape,
}

impl<D: Dataset> Reshaped<D> {
    /// The same samples in this shape.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] where that has another number of elements, or has channels at the other end.
    pub fn new(data: D, shape: impl Into<Shape>) -> Result<Self, DataError> {
        let (shape, features) = (shape.into(), data.features()?);
        let (_, found) = features.get(INPUT).ok_or_else(|| DataError::Mismatch("samples have no input".to_owned()))?;
        check_reshape(found, &shape)?;
        Ok(Reshaped { data, shape })
    }
}

/// Labels of a dataset as probabilities: 1 for the class, 0 for all others. For a loss that takes such, as mixed samples need.
///
/// ```
/// use tightfit::data::{Array, Dataset, OneHot, Targets, TensorDataset, Values};
///
/// let data = TensorDataset::new(Values::F32(vec![0.5; 2]), [1], Targets::labels(vec![2, 0], 3))?;
/// assert_eq!(OneHot::new(&data)?.get(0)?.get("target"), Some(&Array::from([0.0, 0.0, 1.0])));
/// # Ok::<(), tightfit::error::DataError>(())
/// ```
#[derive(Clone, Debug)]
pub struct OneHot<D> {
    data: D,
    classes: u32,
}

impl<D: Dataset> OneHot<D> {
    /// The same samples with probabilities.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] where samples have not one label each, or the number of classes is not known.
    pub fn new(data: D) -> Result<Self, DataError> {
        match data.features()?.target() {
            TargetKind::Labels { shape, classes: Some(classes), .. } if shape.is_empty() => {
                Ok(OneHot { data, classes })
            }
            _ => {
                let text = "only one label a sample, of a known number of classes, becomes probabilities";
                Err(DataError::Mismatch(text.to_owned()))
            }
        }
    }
}

/// Labels 0 and 1 of a dataset as numbers: the probability of class 1, for a loss that takes it, as binary cross-entropy does.
///
/// ```
/// use tightfit::data::{Array, BinaryTarget, Dataset, Targets, TensorDataset, Values};
///
/// let data = TensorDataset::new(Values::F32(vec![0.5; 2]), [1], Targets::labels(vec![1, 0], 2))?;
/// assert_eq!(BinaryTarget::new(&data)?.get(0)?.get("target"), Some(&Array::from([1.0])));
/// # Ok::<(), tightfit::error::DataError>(())
/// ```
#[derive(Clone, Debug)]
pub struct BinaryTarget<D> {
    data: D,
}

impl<D: Dataset> BinaryTarget<D> {
    /// The same samples with numbers.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] where samples have not one label each, of two classes at most.
    pub fn new(data: D) -> Result<Self, DataError> {
        match data.features()?.target() {
            TargetKind::Labels { shape, classes: Some(..=2), .. } if shape.is_empty() => Ok(BinaryTarget { data }),
            _ => {
                let text = "only one label a sample, of two classes, becomes a probability";
                Err(DataError::Mismatch(text.to_owned()))
            }
        }
    }
}

macro_rules! adapter {
    ($adapter:ident, $self:ident, $sample:ident => $change:expr, $features:ident => $changed:expr) => {
        impl<D: Dataset> Dataset for $adapter<D> {
            fn len(&self) -> usize {
                self.data.len()
            }

            fn get(&$self, index: usize) -> Result<Sample, DataError> {
                let mut $sample = $self.data.get(index)?;
                $change;
                Ok($sample)
            }

            fn features(&$self) -> Result<Features, DataError> {
                let $features = $self.data.features()?;
                Ok($changed)
            }

            fn label(&self, index: usize) -> Result<Option<u32>, DataError> {
                self.data.label(index)
            }

            fn origin(&self, index: usize) -> String {
                self.data.origin(index)
            }

            fn host_bytes(&self) -> u64 {
                self.data.host_bytes()
            }

            fn scratch_bytes(&self) -> u64 {
                self.data.scratch_bytes()
            }
        }
    };
}

adapter!(
    Reshaped,
    self,
    sample => if let Some(input) = sample.take(INPUT) {
        sample.set(INPUT, Array::new(input.into_values(), self.shape.clone())?);
    },
    features => {
        let dtype = features.get(INPUT).map_or(DType::F32, |(dtype, _)| dtype);
        features.with(INPUT, dtype, self.shape.clone())
    }
);

adapter!(
    BinaryTarget,
    self,
    sample => {
        let label = match sample.get(TARGET).map(Array::values) {
            Some(Values::U32(labels)) if labels.len() == 1 && labels[0] < 2 => labels[0],
            _ => return Err(DataError::Mismatch("the target must be one label, 0 or 1".to_owned())),
        };
        sample.set(TARGET, Array::from([label as f32]));
    },
    features => features.with_target_values([1])
);

adapter!(
    OneHot,
    self,
    sample => {
        let label = match sample.get(TARGET).map(Array::values) {
            Some(Values::U32(labels)) if labels.len() == 1 && labels[0] < self.classes => labels[0],
            _ => return Err(DataError::Mismatch(format!("the target must be one label below {}", self.classes))),
        };
        let mut probabilities = room(self.classes as usize)?;
        probabilities.extend((0..self.classes).map(|class| f32::from(u8::from(class == label))));
        sample.set(TARGET, Array::from(probabilities));
    },
    features => features.with_probabilities()
);

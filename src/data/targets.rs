//! What a model should answer.

use super::array::Values;
use super::features::Features;
use super::tensors::count;
use crate::error::DataError;
use crate::tensor::Shape;

/// What a model should answer, one entry a sample.
#[derive(Clone, Debug, PartialEq)]
pub enum Targets {
    /// Classes, for a cross-entropy loss.
    Labels {
        /// Classes of all samples, one sample after the other, each below `classes`.
        labels: Vec<u32>,
        /// Number of classes.
        classes: u32,
        /// Shape of one sample's labels: `[]` for one class a sample, `[height, width]` for one a pixel.
        shape: Shape,
        /// A label that is no class: where it stands, nothing is asked of the model.
        ignored: Option<u32>,
    },
    /// Numbers, for a regression loss.
    Values {
        /// The numbers of all samples, one sample after the other.
        values: Vec<f32>,
        /// Shape of one sample's target.
        shape: Shape,
    },
    /// None: for predictions alone.
    None,
}

impl Targets {
    /// One class a sample.
    pub fn labels(labels: Vec<u32>, classes: u32) -> Self {
        Targets::label_maps(labels, classes, [])
    }

    /// One class at each place of a sample, such as each pixel.
    pub fn label_maps(labels: Vec<u32>, classes: u32, shape: impl Into<Shape>) -> Self {
        Targets::Labels { labels, classes, shape: shape.into(), ignored: None }
    }

    /// Labels of which some are negative, such as PyTorch's -100 for what is ignored: see [`Targets::ignoring`].
    pub fn signed_labels(labels: Vec<i32>, classes: u32, shape: impl Into<Shape>) -> Self {
        Targets::label_maps(labels.into_iter().map(|label| label as u32).collect(), classes, shape)
    }

    /// The same, where `label` says that nothing is asked of the model, such as 255 for void pixels. The loss must ignore it, too:
    /// see its `ignore_index`. It may be one of the classes, or none of them.
    #[must_use]
    pub fn ignoring(mut self, label: impl Into<i64>) -> Self {
        if let Targets::Labels { ignored, .. } = &mut self {
            *ignored = label_bits(label.into());
        }
        self
    }

    /// How many samples there are targets for.
    pub(super) fn count(&self) -> Result<Option<usize>, DataError> {
        let (labels, classes, shape, ignored) = match self {
            Targets::None => return Ok(None),
            Targets::Values { values, shape } => return count("targets", values.len(), shape).map(Some),
            Targets::Labels { labels, classes, shape, ignored } => (labels, classes, shape, ignored),
        };
        let count = count("targets", labels.len(), shape)?;
        let wrong = |label: &u32| label >= classes && Some(*label) != *ignored;
        if let Some(at) = labels.iter().position(wrong) {
            return Err(DataError::Mismatch(format!(
                "label {0} of sample {1} is out of range: with {classes} classes labels go from 0 to {2}; where it is no class, \
                 `Targets::ignoring({0})` says so",
                shown_label(labels[at]),
                at / shape.numel().max(1),
                classes.saturating_sub(1)
            )));
        }
        Ok(Some(count))
    }

    /// Adds what they are to what samples have.
    pub(super) fn put_in(&self, features: Features) -> Features {
        match self {
            Targets::Labels { classes, shape, ignored, .. } => {
                features.with_labels(*classes, shape.clone()).ignoring(*ignored)
            }
            Targets::Values { shape, .. } => features.with_target_values(shape.clone()),
            Targets::None => features,
        }
    }

    /// The numbers of all samples, and the shape of one sample's.
    pub(super) fn into_values(self) -> Option<(Values, Shape)> {
        match self {
            Targets::Labels { labels, shape, .. } => Some((Values::U32(labels), shape)),
            Targets::Values { values, shape } => Some((Values::F32(values), shape)),
            Targets::None => None,
        }
    }
}

/// A label as data hold it: a negative one as the u32 of the same bits. `None` where 32 bits are too few.
pub(crate) fn label_bits(label: i64) -> Option<u32> {
    u32::try_from(label).ok().or_else(|| i32::try_from(label).ok().map(|label| label as u32))
}

/// A label, or another integer, as it was meant: numbers of 2³¹ and more are the bits of negative ones.
pub(crate) fn shown_label(label: u32) -> i64 {
    i64::from(label as i32)
}

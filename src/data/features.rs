//! What every sample of a dataset has.

use super::batch::{INPUT, TARGET};
use super::sample::Sample;
use crate::error::DataError;
use crate::tensor::{DType, Shape, TensorDesc};

/// Names, types and shapes of what every sample of a dataset has, and what its labels mean.
#[derive(Clone, Debug, PartialEq)]
pub struct Features {
    entries: Vec<(String, TensorDesc)>,
    /// How many classes there are, where labels are of some.
    classes: Option<u32>,
    class_names: Vec<String>,
    ignored: Option<u32>,
}

/// What targets are.
#[derive(Clone, Debug, PartialEq)]
pub enum TargetKind {
    /// Classes.
    Labels {
        /// Shape of one sample's labels.
        shape: Shape,
        /// How many there are, where that is known.
        classes: Option<u32>,
        /// A label that is no class.
        ignored: Option<u32>,
    },
    /// Numbers.
    Values {
        /// Shape of one sample's.
        shape: Shape,
    },
    /// There are none.
    None,
}

impl TargetKind {
    /// Shape of one sample's; `[0]` where there are none.
    pub fn shape(&self) -> Shape {
        match self {
            TargetKind::Labels { shape, .. } | TargetKind::Values { shape } => shape.clone(),
            TargetKind::None => [0].into(),
        }
    }

    /// Number of classes, where they are labels.
    pub fn classes(&self) -> Option<u32> {
        match self {
            TargetKind::Labels { classes, .. } => *classes,
            TargetKind::Values { .. } | TargetKind::None => None,
        }
    }
}

impl Features {
    /// Samples with one input.
    pub fn new(input: DType, shape: impl Into<Shape>) -> Self {
        Features::from_entries(Vec::new()).with(INPUT, input, shape)
    }

    pub(super) fn from_entries(entries: Vec<(String, TensorDesc)>) -> Self {
        Features { entries, classes: None, class_names: Vec::new(), ignored: None }
    }

    /// Those of a sample. How many classes there are does not follow from one.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] where it has no input.
    pub fn of(sample: &Sample) -> Result<Self, DataError> {
        let descs = sample.entries().map(|(name, array)| {
            let desc = TensorDesc { shape: array.shape().clone(), dtype: array.dtype() };
            (name.to_owned(), desc)
        });
        let features = Features::from_entries(descs.collect());
        match features.get(INPUT) {
            Some(_) => Ok(features),
            None => Err(DataError::Mismatch(format!("a sample has no `{INPUT}`: make it with Sample::new"))),
        }
    }

    /// Adds what a sample has under another name, or replaces it.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, dtype: DType, shape: impl Into<Shape>) -> Self {
        let (name, desc) = (name.into(), TensorDesc { shape: shape.into(), dtype });
        match self.entries.iter_mut().find(|(entry, _)| *entry == name) {
            Some((_, place)) => *place = desc,
            None => self.entries.push((name, desc)),
        }
        self
    }

    /// Adds labels, one at each place of this shape: `[]` for one a sample.
    #[must_use]
    pub fn with_labels(self, classes: u32, shape: impl Into<Shape>) -> Self {
        Features { classes: Some(classes), ..self.with(TARGET, DType::U32, shape) }
    }

    /// Adds numbers as targets.
    #[must_use]
    pub fn with_target_values(self, shape: impl Into<Shape>) -> Self {
        Features { classes: None, ..self.with(TARGET, DType::F32, shape) }
    }

    /// Names the classes, of which there are as many.
    #[must_use]
    pub fn with_class_names(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.class_names = names.into_iter().map(Into::into).collect();
        self.classes = u32::try_from(self.class_names.len()).ok();
        self
    }

    /// A label that is no class.
    #[must_use]
    pub fn ignoring(mut self, label: Option<u32>) -> Self {
        self.ignored = label;
        self
    }

    /// What samples have under a name, without the batch axis.
    pub fn get(&self, name: &str) -> Option<(DType, &Shape)> {
        self.entries.iter().find(|(entry, _)| entry == name).map(|(_, desc)| (desc.dtype, &desc.shape))
    }

    /// All that samples have, by name.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &TensorDesc)> {
        self.entries.iter().map(|(name, desc)| (&**name, desc))
    }

    /// Number of classes, where targets are labels and it is known.
    pub fn classes(&self) -> Option<u32> {
        self.classes
    }

    /// Names of the classes; none where they have none.
    pub fn class_names(&self) -> &[String] {
        &self.class_names
    }

    /// What targets are.
    pub fn target(&self) -> TargetKind {
        match self.get(TARGET) {
            None => TargetKind::None,
            Some((DType::U32, shape)) => {
                TargetKind::Labels { shape: shape.clone(), classes: self.classes, ignored: self.ignored }
            }
            Some((_, shape)) => TargetKind::Values { shape: shape.clone() },
        }
    }

    /// Bytes of one sample in host memory.
    pub fn sample_bytes(&self) -> u64 {
        let bytes = self.entries.iter().map(|(_, desc)| (desc.numel() as u64).saturating_mul(desc.dtype.size_bytes()));
        bytes.fold(0, u64::saturating_add)
    }
}

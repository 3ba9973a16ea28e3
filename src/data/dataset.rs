//! Samples and targets in host memory.

use std::ops::Range;
use std::sync::LazyLock;

use super::batch::{Batch, INPUT, SAMPLE_WEIGHT, TARGET};
use crate::error::{DataError, HostMemory};
use crate::tensor::{DType, Shape, copied};

/// The numbers of all samples, one sample after the other.
#[derive(Clone, Debug, PartialEq)]
pub enum Samples {
    /// Floats, used as they are.
    F32(Vec<f32>),
    /// Bytes, a quarter of the memory: divided by 255 when a batch is filled, so that 0 is 0.0 and 255 is 1.0.
    U8(Vec<u8>),
    /// Indices, such as words of a vocabulary.
    Tokens(Vec<u32>),
}

impl Samples {
    /// What a model is given of them.
    pub fn dtype(&self) -> DType {
        match self {
            Samples::F32(_) | Samples::U8(_) => DType::F32,
            Samples::Tokens(_) => DType::U32,
        }
    }

    fn len(&self) -> usize {
        match self {
            Samples::F32(values) => values.len(),
            Samples::U8(values) => values.len(),
            Samples::Tokens(values) => values.len(),
        }
    }

    fn part(&self, range: Range<usize>) -> Result<Samples, DataError> {
        Ok(match self {
            Samples::F32(values) => Samples::F32(copied(&values[range])?),
            Samples::U8(values) => Samples::U8(copied(&values[range])?),
            Samples::Tokens(values) => Samples::Tokens(copied(&values[range])?),
        })
    }

    /// Appends numbers as they are uploaded, four bytes each.
    fn append(&self, range: Range<usize>, out: &mut Vec<u8>) {
        match self {
            Samples::F32(values) => out.extend_from_slice(bytemuck::cast_slice(&values[range])),
            Samples::U8(values) => {
                out.extend(values[range].iter().flat_map(|&byte| (f32::from(byte) / 255.0).to_ne_bytes()));
            }
            Samples::Tokens(values) => out.extend_from_slice(bytemuck::cast_slice(&values[range])),
        }
    }
}

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

    /// Shape of one sample's target; `[]` (no extents) for one label a sample, `[0]` where there is none.
    pub fn shape(&self) -> &Shape {
        static NONE: LazyLock<Shape> = LazyLock::new(|| [0].into());
        match self {
            Targets::Labels { shape, .. } | Targets::Values { shape, .. } => shape,
            Targets::None => &NONE,
        }
    }

    /// How many samples there are targets for.
    fn count(&self) -> Result<Option<usize>, DataError> {
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

    fn part(&self, range: Range<usize>) -> Result<Targets, DataError> {
        Ok(match self {
            Targets::Labels { labels, classes, shape, ignored } => Targets::Labels {
                labels: copied(&labels[range])?,
                classes: *classes,
                shape: shape.clone(),
                ignored: *ignored,
            },
            Targets::Values { values, shape } => {
                Targets::Values { values: copied(&values[range])?, shape: shape.clone() }
            }
            Targets::None => Targets::None,
        })
    }
}

/// Samples of one shape with their targets. It has at least one sample.
///
/// ```
/// use tightfit::data::{Batch, Dataset, Samples, Targets};
///
/// let data = Dataset::new(Samples::U8(vec![0, 51, 102, 255]), [2], Targets::labels(vec![1, 0], 2))?;
/// let mut batch = Batch::default();
/// data.gather(&[1, 0], &mut batch)?;
/// assert_eq!(batch.values("input"), [0.4, 1.0, 0.0, 0.2]);
/// assert_eq!(batch.ints("target"), [0, 1]);
/// # Ok::<(), tightfit::error::DataError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    samples: Samples,
    sample_shape: Shape,
    targets: Targets,
    extra: Vec<ExtraInput>,
    len: usize,
}

/// Another input of a model besides the samples.
#[derive(Clone, Debug, PartialEq)]
struct ExtraInput {
    name: String,
    values: Samples,
    shape: Shape,
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
        if let Some(target_count) = targets.count()?
            && target_count != len
        {
            return Err(DataError::Mismatch(format!(
                "{len} samples but {target_count} targets: each sample needs one"
            )));
        }
        Ok(Dataset { samples, sample_shape, targets, extra: Vec::new(), len })
    }

    /// Samples without targets: for predictions.
    ///
    /// # Errors
    /// As [`Dataset::new`].
    pub fn unlabeled(samples: Samples, sample_shape: impl Into<Shape>) -> Result<Self, DataError> {
        Dataset::new(samples, sample_shape, Targets::None)
    }

    /// Adds what a model takes besides the samples: `name` is what the model calls the input, such as `lengths`, `shape`
    /// that of one sample, `[]` for one number.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] when there are not as many entries as samples, or the name is taken.
    pub fn with_input(
        mut self,
        name: impl Into<String>,
        values: Samples,
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
        if [INPUT, TARGET].contains(&&*name) || self.extra.iter().any(|extra| extra.name == name) {
            return Err(DataError::Mismatch(format!("the dataset has a `{name}` already: use another name")));
        }
        self.extra.push(ExtraInput { name, values, shape });
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
        self.with_input(SAMPLE_WEIGHT, Samples::F32(weights), [])
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

    /// Element type and shape, without the batch axis, of what a model finds under this name.
    pub fn input(&self, name: &str) -> Option<(DType, &Shape)> {
        if name == INPUT {
            return Some((self.samples.dtype(), &self.sample_shape));
        }
        if name == TARGET {
            return match &self.targets {
                Targets::Labels { shape, .. } => Some((DType::U32, shape)),
                Targets::Values { shape, .. } => Some((DType::F32, shape)),
                Targets::None => None,
            };
        }
        let extra = self.extra.iter().find(|extra| extra.name == name)?;
        Some((extra.values.dtype(), &extra.shape))
    }

    /// Names of all that a model may take.
    pub(crate) fn input_names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(INPUT).chain(self.extra.iter().map(|extra| &*extra.name))
    }

    /// The integers of an entry of all samples, and the shape of one sample's; `None` where it holds none.
    pub(crate) fn integers(&self, name: &str) -> Option<(&[u32], &Shape)> {
        let extra = || self.extra.iter().find(|extra| extra.name == name);
        match (name, &self.targets) {
            (TARGET, Targets::Labels { labels, shape, .. }) => return Some((labels, shape)),
            (TARGET, Targets::Values { .. } | Targets::None) => return None,
            _ => {}
        }
        let (samples, shape) = match name {
            INPUT => (&self.samples, &self.sample_shape),
            _ => extra().map(|extra| (&extra.values, &extra.shape))?,
        };
        match samples {
            Samples::Tokens(tokens) => Some((tokens, shape)),
            Samples::F32(_) | Samples::U8(_) => None,
        }
    }

    /// The numbers of an entry of all samples, and the shape of one sample's; `None` where it holds none, or bytes.
    pub(crate) fn values(&self, name: &str) -> Option<(&[f32], &Shape)> {
        if let (TARGET, Targets::Values { values, shape }) = (name, &self.targets) {
            return Some((values, shape));
        }
        let (samples, shape) = match name {
            INPUT => (&self.samples, &self.sample_shape),
            _ => self.extra.iter().find(|extra| extra.name == name).map(|extra| (&extra.values, &extra.shape))?,
        };
        match samples {
            Samples::F32(values) => Some((values, shape)),
            Samples::U8(_) | Samples::Tokens(_) => None,
        }
    }

    /// Number of classes, if the targets are labels.
    pub fn classes(&self) -> Option<u32> {
        match self.targets {
            Targets::Labels { classes, .. } => Some(classes),
            Targets::Values { .. } | Targets::None => None,
        }
    }

    /// The same data with another sample shape, for example `[784]` or `[28, 28]` for MNIST's `[1, 28, 28]`. The order of the
    /// elements stays.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] when the new shape has another number of elements, or has the channels of images at the other
    /// end, for which elements would have to move.
    pub fn with_sample_shape(mut self, shape: impl Into<Shape>) -> Result<Self, DataError> {
        let shape = shape.into();
        check_reshape(&self.sample_shape, &shape)?;
        self.sample_shape = shape;
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
        let part = |shape: &Shape| range.start * shape.numel()..range.end * shape.numel();
        let extra = |extra: &ExtraInput| {
            let values = extra.values.part(part(&extra.shape))?;
            Ok(ExtraInput { values, name: extra.name.clone(), shape: extra.shape.clone() })
        };
        Ok(Dataset {
            samples: self.samples.part(part(&self.sample_shape))?,
            sample_shape: self.sample_shape.clone(),
            targets: self.targets.part(part(self.targets.shape()))?,
            extra: self.extra.iter().map(extra).collect::<Result<_, DataError>>()?,
            len: range.len(),
        })
    }

    /// The first `count` samples, or all of them if there are fewer.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] when `count` is 0, [`DataError::HostMemory`] when there is no memory for the copy.
    pub fn take(&self, count: usize) -> Result<Self, DataError> {
        self.subset(0..count.min(self.len))
    }

    /// Replaces the contents of `batch` by the samples at `indices`, in that order. Nothing is allocated once it has held
    /// as many.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] when an index is past the end, [`DataError::HostMemory`] when there is no memory for the batch; it
    /// is then empty.
    pub fn gather(&self, indices: &[usize], batch: &mut Batch) -> Result<(), DataError> {
        batch.clear();
        if let Some(index) = indices.iter().find(|index| **index >= self.len) {
            return Err(DataError::Mismatch(format!("sample {index} of a dataset of {} does not exist", self.len)));
        }
        // The entries' places first, so that what follows cannot run short of memory.
        let entries = [(INPUT, &self.sample_shape), (TARGET, self.targets.shape())];
        let extra = self.extra.iter().map(|extra| (&*extra.name, &extra.shape));
        for (name, shape) in entries.into_iter().chain(extra) {
            let size_bytes = indices.len().saturating_mul(shape.numel()).saturating_mul(size_of::<f32>());
            let reserved = batch.entry(name).try_reserve_exact(size_bytes);
            reserved.map_err(|_| HostMemory { size_bytes: size_bytes as u64 })?;
        }
        let at = |index: usize, shape: &Shape| index * shape.numel()..(index + 1) * shape.numel();
        let gather = |values: &Samples, shape: &Shape, out: &mut Vec<u8>| {
            for &index in indices {
                values.append(at(index, shape), out);
            }
        };
        gather(&self.samples, &self.sample_shape, batch.entry(INPUT));
        for ExtraInput { name, values, shape } in &self.extra {
            gather(values, shape, batch.entry(name));
        }
        let out = batch.entry(TARGET);
        for &index in indices {
            let range = at(index, self.targets.shape());
            out.extend_from_slice(match &self.targets {
                Targets::Labels { labels, .. } => bytemuck::cast_slice(&labels[range]),
                Targets::Values { values, .. } => bytemuck::cast_slice(&values[range]),
                Targets::None => &[],
            });
        }
        Ok(())
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

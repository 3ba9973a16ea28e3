//! Samples of a batch mixed with others: each with the one before it, the first with the last, as torchvision does.

use std::ops::Range;

use super::geometry::image_size;
use super::interval::Interval;
use super::warp::level;
use crate::data::{
    Batch, BatchTransform, Features, INPUT, Key, SAMPLE_WEIGHT, TARGET, TargetKind, Values, random, shown_label,
};
use crate::error::DataError;
use crate::tensor::{DType, Shape, copied, room};

/// Blends whole samples: `λ` of each and `1 − λ` of the one before it, with `λ` from the beta distribution with both parameters `alpha`
/// ("mixup: Beyond Empirical Risk Minimization", 2018).
///
/// Labels become probabilities of the classes, `[classes]` floats: `λ` at one label and `1 − λ` at the other. A label that is ignored adds
/// none. Targets that are numbers, and sample weights, are blended as the inputs are. To smooth labels is a setting of the losses.
///
/// ```
/// use tightfit::data::augment::MixUp;
/// use tightfit::data::{Batch, Sample, TargetKind};
///
/// let mut batch = Batch::default();
/// batch.push(0, &Sample::new([0.0]).with_target(0_u32))?;
/// batch.push(1, &Sample::new([1.0]).with_target(1_u32))?;
/// let target = TargetKind::Labels { shape: [].into(), classes: Some(2), ignored: None };
/// MixUp { alpha: 0.2, target }.mix(&mut batch, 0.75)?;
/// assert_eq!(batch.values("input"), [0.25, 0.75]);
/// assert_eq!(batch.values("target"), [0.75, 0.25, 0.25, 0.75]);
/// # Ok::<(), tightfit::error::DataError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct MixUp {
    /// Above 0: usually 0.2; with 1 all `λ` are as likely.
    pub alpha: f64,
    /// What the targets of the dataset are: [`Features::target`].
    pub target: TargetKind,
}

impl MixUp {
    /// Mixes a batch with this `λ`.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] where there are several labels a sample, or one is no class; the batch may then be empty.
    pub fn mix(&self, batch: &mut Batch, lambda: f64) -> Result<(), DataError> {
        check_labels(&self.target, false)?;
        batch.change(INPUT, |values, shape| blended(values, shape, lambda as f32))?;
        mix_targets(batch, &self.target, lambda)
    }
}

impl BatchTransform for MixUp {
    fn apply(&self, batch: &mut Batch, key: Key) -> Result<(), DataError> {
        let lambda = random::beta(&mut key.random("mixup"), self.alpha);
        self.mix(batch, lambda)
    }

    fn features(&self, features: Features) -> Result<Features, DataError> {
        check_alpha("mixup", self.alpha)?;
        check_labels(&self.target, false)?;
        if let Some((DType::U32, shape)) = features.get(INPUT) {
            let text = format!("samples of shape {shape} are words or other indices, which `mixup` cannot blend");
            return Err(DataError::Mismatch(text));
        }
        mixed_features(features, &self.target)
    }
}

/// Replaces a rectangle of each image by that of the one before it: its area is `1 − λ` of the image's where it is all inside, its middle
/// anywhere, with `λ` from the beta distribution with both parameters `alpha` ("CutMix: Regularization Strategy to Train Strong
/// Classifiers with Localizable Features", 2019).
///
/// Targets are mixed as by [`MixUp`], with `λ` the share of the image that stayed. Masks of labels are replaced in the same rectangle.
#[derive(Clone, Debug, PartialEq)]
pub struct CutMix {
    /// Above 0: usually 1, with which all `λ` are as likely.
    pub alpha: f64,
    /// What the targets of the dataset are: [`Features::target`].
    pub target: TargetKind,
}

impl CutMix {
    /// First row and column, and rows and columns, of the rectangle that a key takes from images of this height and width.
    pub fn draw(&self, size: [usize; 2], key: Key) -> ([usize; 2], [usize; 2]) {
        let mut random = key.random("cutmix");
        let side = 0.5 * libm::sqrt(1.0 - random::beta(&mut random, self.alpha));
        let [rows, columns] = size.map(|extent| {
            let (middle, half) = (random::below(&mut random, extent), (side * extent as f64) as usize);
            middle.saturating_sub(half)..(middle + half).min(extent)
        });
        ([rows.start, columns.start], [rows.len(), columns.len()])
    }

    /// Replaces this rectangle.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] where samples are no images or the rectangle is not within them; as [`MixUp::mix`].
    pub fn mix(&self, batch: &mut Batch, corner: [usize; 2], size: [usize; 2]) -> Result<(), DataError> {
        check_labels(&self.target, true)?;
        let Some((_, shape)) = batch.feature(INPUT) else { return Ok(()) };
        let extents = image_size(shape)?;
        let ends = [0, 1].map(|axis| corner[axis].saturating_add(size[axis]));
        if ends.iter().zip(extents).any(|(end, extent)| *end > extent) {
            return Err(DataError::Mismatch(format!(
                "rows {} to {}, columns {} to {} are not within images of shape {shape}",
                corner[0], ends[0], corner[1], ends[1]
            )));
        }
        let [rows, columns] = [0, 1].map(|axis| corner[axis]..ends[axis]);
        batch.change(INPUT, |values, shape| replaced(values, shape, &rows, &columns))?;
        if is_mask(&self.target) {
            check_mask(batch.feature(TARGET).map(|(_, shape)| shape), extents)?;
            return batch.change(TARGET, |values, shape| replaced(values, shape, &rows, &columns));
        }
        let area = (extents[0] * extents[1]) as f64;
        mix_targets(batch, &self.target, 1.0 - (size[0] * size[1]) as f64 / area)
    }
}

impl BatchTransform for CutMix {
    fn apply(&self, batch: &mut Batch, key: Key) -> Result<(), DataError> {
        let Some((_, shape)) = batch.feature(INPUT) else { return Ok(()) };
        let (corner, size) = self.draw(image_size(shape)?, key);
        self.mix(batch, corner, size)
    }

    fn features(&self, features: Features) -> Result<Features, DataError> {
        check_alpha("cutmix", self.alpha)?;
        check_labels(&self.target, true)?;
        let extents = image_size(&features.get(INPUT).map(|(_, shape)| shape.clone()).unwrap_or_default())?;
        if is_mask(&self.target) {
            check_mask(features.get(TARGET).map(|(_, shape)| shape), extents)?;
            return Ok(features);
        }
        mixed_features(features, &self.target)
    }
}

/// Does one of several, which the key chooses, to each batch.
pub struct RandomChoice {
    /// Of which one is chosen, each as likely. All must leave batches with the same [`Features`].
    pub transforms: Vec<Box<dyn BatchTransform>>,
}

impl BatchTransform for RandomChoice {
    fn apply(&self, batch: &mut Batch, key: Key) -> Result<(), DataError> {
        let choice = random::below(&mut key.random("choice"), self.transforms.len());
        self.transforms.get(choice).map_or(Ok(()), |transform| transform.apply(batch, key))
    }

    fn features(&self, features: Features) -> Result<Features, DataError> {
        let mut found: Option<Features> = None;
        for transform in &self.transforms {
            let changed = transform.features(features.clone())?;
            if found.as_ref().is_some_and(|found| *found != changed) {
                let text = "the transforms of a choice leave batches with other targets: use one of them alone";
                return Err(DataError::Mismatch(text.to_owned()));
            }
            found = Some(changed);
        }
        Ok(found.unwrap_or(features))
    }
}

fn check_alpha(name: &str, alpha: f64) -> Result<(), DataError> {
    Interval::only(alpha).check(name, 0.0, f64::INFINITY, true)
}

fn is_mask(target: &TargetKind) -> bool {
    matches!(target, TargetKind::Labels { shape, .. } if !shape.is_empty())
}

fn check_mask(mask: Option<&Shape>, extents: [usize; 2]) -> Result<(), DataError> {
    match mask {
        Some(mask) if mask.len() >= 2 && mask[mask.len() - 2..] == extents => Ok(()),
        mask => Err(DataError::Mismatch(format!(
            "labels of shape {} cannot be cut like images of {} by {} pixels: they need the same height and width",
            mask.cloned().unwrap_or_default(),
            extents[0],
            extents[1]
        ))),
    }
}

/// Refuses labels of which no probabilities can be made.
fn check_labels(target: &TargetKind, masks: bool) -> Result<(), DataError> {
    match target {
        TargetKind::Labels { shape, .. } if !shape.is_empty() && !masks => Err(DataError::Mismatch(format!(
            "labels of shape {shape} cannot be blended by `mixup`, which needs one label a sample; `cutmix` mixes masks"
        ))),
        TargetKind::Labels { shape, classes: None, .. } if shape.is_empty() => Err(DataError::Mismatch(
            "how many classes there are must be known to mix labels: the features of the dataset must say it (Features::with_labels)"
                .to_owned(),
        )),
        _ => Ok(()),
    }
}

fn mixed_features(features: Features, target: &TargetKind) -> Result<Features, DataError> {
    Ok(match target.classes() {
        // Names of classes stay.
        Some(classes) => features.with(TARGET, DType::F32, [classes as usize]),
        None => features,
    })
}

fn mix_targets(batch: &mut Batch, target: &TargetKind, lambda: f64) -> Result<(), DataError> {
    let lambda = lambda as f32;
    batch.change(SAMPLE_WEIGHT, |values, shape| blended(values, shape, lambda))?;
    match target {
        TargetKind::Labels { classes: Some(classes), ignored, .. } => batch.change(TARGET, |values, _| {
            let Values::U32(labels) = values else {
                return Err(DataError::Mismatch("targets are not the labels that mixing was made for".to_owned()));
            };
            Ok((Values::F32(probabilities(&labels, *classes, *ignored, lambda)?), [*classes as usize].into()))
        }),
        _ => batch.change(TARGET, |values, shape| blended(values, shape, lambda)),
    }
}

/// Each label's class has the probability `lambda`, that of the label before it the rest.
fn probabilities(labels: &[u32], classes: u32, ignored: Option<u32>, lambda: f32) -> Result<Vec<f32>, DataError> {
    let mut output = room(labels.len().saturating_mul(classes as usize))?;
    let before = labels.last().into_iter().chain(labels);
    for (&label, &before) in labels.iter().zip(before) {
        let start = output.len();
        output.resize(start + classes as usize, 0.0);
        for (label, share) in [(label, lambda), (before, 1.0 - lambda)] {
            if ignored == Some(label) {
                continue;
            }
            if label < classes {
                output[start + label as usize] += share;
            } else {
                return Err(DataError::Mismatch(format!(
                    "label {} is out of range: with {classes} classes labels go from 0 to {}",
                    shown_label(label),
                    classes.saturating_sub(1)
                )));
            }
        }
    }
    Ok(output)
}

/// `lambda` of each sample and the rest of the one before it.
fn blended(mut values: Values, shape: Shape, lambda: f32) -> Result<(Values, Shape), DataError> {
    fn with_the_one_before<T: Copy>(values: &mut [T], numel: usize, mix: impl Fn(&mut T, T)) -> Result<(), DataError> {
        if values.is_empty() {
            return Ok(());
        }
        let last = copied(&values[values.len() - numel..])?;
        // From the end, so that each one before is still what it was.
        for start in (numel..values.len()).step_by(numel).rev() {
            let (before, sample) = values.split_at_mut(start);
            let before = &before[start - numel..];
            sample[..numel].iter_mut().zip(before).for_each(|(value, before)| mix(value, *before));
        }
        values[..numel].iter_mut().zip(last).for_each(|(value, before)| mix(value, before));
        Ok(())
    }
    let numel = shape.numel().max(1);
    let mix = |value: f32, before: f32| lambda * value + (1.0 - lambda) * before;
    match &mut values {
        Values::F32(values) => with_the_one_before(values, numel, |value, before| *value = mix(*value, before))?,
        Values::U8(values) => {
            with_the_one_before(values, numel, |value, before| *value = level(mix((*value).into(), before.into())))?;
        }
        Values::U32(_) => {
            let text = "labels, words and other indices cannot be blended";
            return Err(DataError::Mismatch(text.to_owned()));
        }
    }
    Ok((values, shape))
}

/// A rectangle of each sample is that of the one before it.
fn replaced(
    mut values: Values,
    shape: Shape,
    rows: &Range<usize>,
    columns: &Range<usize>,
) -> Result<(Values, Shape), DataError> {
    fn replace<T: Copy>(
        values: &mut [T],
        shape: &Shape,
        rows: &Range<usize>,
        columns: &Range<usize>,
    ) -> Result<(), DataError> {
        let (numel, width, height) = (shape.numel(), shape[shape.len() - 1], shape[shape.len() - 2]);
        if values.is_empty() || numel == 0 {
            return Ok(());
        }
        let last = copied(&values[values.len() - numel..])?;
        for start in (0..values.len()).step_by(numel).rev() {
            for row in (0..numel / width).filter(|row| rows.contains(&(row % height))) {
                let place = row * width + columns.start..row * width + columns.end;
                match start.checked_sub(numel) {
                    Some(before) => {
                        values.copy_within(before + place.start..before + place.end, start + place.start);
                    }
                    None => values[place.clone()].copy_from_slice(&last[place]),
                }
            }
        }
        Ok(())
    }
    match &mut values {
        Values::F32(values) => replace(values, &shape, rows, columns)?,
        Values::U8(values) => replace(values, &shape, rows, columns)?,
        Values::U32(values) => replace(values, &shape, rows, columns)?,
    }
    Ok((values, shape))
}

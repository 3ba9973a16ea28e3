//! A dataset in parts: for training, validation and test, by share, by folds or by order.
//!
//! A seed decides which sample is where, together with the number of samples (and their labels): the same on every machine. No sample is in
//! two parts, and each is in one.
//!
//! ```
//! use std::sync::Arc;
//! use tightfit::data::{Dataset, Subset, Targets, TensorDataset, Values, split};
//!
//! let data = Arc::new(TensorDataset::new(Values::F32(vec![0.5; 10]), [1], Targets::labels(vec![0, 0, 0, 0, 0, 1, 1, 1, 1, 1], 2))?);
//! let labels = split::labels(&data)?;
//! let parts = split::stratified(&labels, 0.2, 7)?;
//! let training = Subset::new(data.clone(), parts.training)?;
//! let validation = Subset::new(data, parts.validation)?;
//! assert_eq!((training.len(), validation.len()), (8, 2));
//! # Ok::<(), tightfit::error::DataError>(())
//! ```

use std::collections::BTreeMap;

use super::dataset::Dataset;
use super::loader::shuffled;
use crate::error::DataError;
use crate::tensor::{plural, room};

/// The numbers of the samples of each part, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// What is trained on.
    pub training: Vec<usize>,
    /// What is evaluated in between.
    pub validation: Vec<usize>,
    /// What is evaluated at the end; empty unless it was asked for.
    pub test: Vec<usize>,
    /// Classes with too few samples for a share of them: all of these are in training.
    pub unsplit: Vec<u32>,
}

/// A random share of the samples for validation: the nearest number, and at least one for each part.
///
/// # Errors
/// [`DataError::Mismatch`] where the share is not between 0 and 1, or there are fewer than two samples.
pub fn share(len: usize, share: f64, seed: u64) -> Result<Split, DataError> {
    check_share("the validation share", share)?;
    check_len(len, 2, "be split")?;
    let count = ((len as f64 * share).round() as usize).clamp(1, len - 1);
    let order = shuffled(len, seed, 0);
    Ok(Split { validation: ascending(&order[..count]), training: ascending(&order[count..]), ..Split::default() })
}

/// A random share of each class for validation: the nearest number of its samples, and at least one for each part. A class with one sample
/// stays in training, and is named in [`Split::unsplit`].
///
/// # Errors
/// [`DataError::Mismatch`] where the share is not between 0 and 1, or no class has two samples.
pub fn stratified(labels: &[u32], share: f64, seed: u64) -> Result<Split, DataError> {
    check_share("the validation share", share)?;
    check_len(labels.len(), 2, "be split")?;
    let mut split = Split::default();
    for (class, samples) in by_class(labels, seed) {
        let count = match samples.len() {
            1 => 0,
            len => ((len as f64 * share).round() as usize).clamp(1, len - 1),
        };
        if count == 0 {
            split.unsplit.push(class);
        }
        split.validation.extend(&samples[..count]);
        split.training.extend(&samples[count..]);
    }
    if split.validation.is_empty() {
        return Err(DataError::Mismatch(
            "no class has two samples, so none can be split by class: split by a share of all samples instead"
                .to_owned(),
        ));
    }
    split.training.sort_unstable();
    split.validation.sort_unstable();
    Ok(split)
}

/// One of `count` folds for validation, counted from 0, and the others for training. Folds differ by at most one sample, and with the same
/// seed they are the parts of one random order.
///
/// # Errors
/// [`DataError::Mismatch`] where there are fewer than two folds or more than samples, or no fold of this number.
pub fn folds(len: usize, count: usize, fold: usize, seed: u64) -> Result<Split, DataError> {
    check_folds(len, count, fold)?;
    let order = shuffled(len, seed, 0);
    let (start, end) = (bound(len, count, fold), bound(len, count, fold + 1));
    let training = [&order[..start], &order[end..]].concat();
    Ok(Split { validation: ascending(&order[start..end]), training: ascending(&training), ..Split::default() })
}

/// As [`folds`], with each class spread over all folds: numbers of its samples differ by at most one, and so do the sizes of folds. Classes
/// with fewer samples than folds are named in [`Split::unsplit`]: some folds have none of them.
///
/// # Errors
/// As [`folds`].
pub fn stratified_folds(labels: &[u32], count: usize, fold: usize, seed: u64) -> Result<Split, DataError> {
    check_folds(labels.len(), count, fold)?;
    let mut split = Split::default();
    // Dealt like cards, on and on, so that the rests of classes do not all fall on the first fold.
    let mut dealt = 0;
    for (class, samples) in by_class(labels, seed) {
        if samples.len() < count {
            split.unsplit.push(class);
        }
        for sample in samples {
            let part = if dealt % count == fold { &mut split.validation } else { &mut split.training };
            part.push(sample);
            dealt += 1;
        }
    }
    split.training.sort_unstable();
    split.validation.sort_unstable();
    Ok(split)
}

/// Parts as they follow each other: first training, then a share for validation, then one for the test. For series, whose future must not be
/// known. Windows of a series that overlap share values at the seams: [`by_order`] of the series itself, before it is cut, does not.
///
/// # Errors
/// [`DataError::Mismatch`] where a share is not at least 0 and their sum below 1, none is above 0, or there are too few samples for one in
/// each part that was asked for.
pub fn by_order(len: usize, validation: f64, test: f64) -> Result<Split, DataError> {
    let is_share = |share: f64| share.is_finite() && share >= 0.0;
    if !(is_share(validation) && is_share(test) && validation + test < 1.0 && validation + test > 0.0) {
        return Err(DataError::Mismatch(format!(
            "shares of {validation} for validation and {test} for the test are not possible: each must be 0 or more, and both together \
             above 0 and below 1"
        )));
    }
    let parts = 1 + usize::from(validation > 0.0) + usize::from(test > 0.0);
    check_len(len, parts, &format!("be split into {parts} parts"))?;
    let count = |share: f64| if share > 0.0 { ((len as f64 * share).round() as usize).max(1) } else { 0 };
    let (mut validation, mut test) = (count(validation), count(test));
    // Training has one at least.
    while validation + test >= len {
        let larger = if validation >= test { &mut validation } else { &mut test };
        *larger -= 1;
    }
    let (first, second) = (len - validation - test, len - test);
    Ok(Split {
        training: (0..first).collect(),
        validation: (first..second).collect(),
        test: (second..len).collect(),
        unsplit: Vec::new(),
    })
}

/// The label of each sample, without reading the samples where the dataset can tell.
///
/// # Errors
/// [`DataError::Mismatch`] where a sample has not one label, and where it cannot be read.
pub fn labels(data: &(impl Dataset + ?Sized)) -> Result<Vec<u32>, DataError> {
    let mut labels = room(data.len())?;
    for index in 0..data.len() {
        labels.push(data.label(index)?.ok_or_else(|| {
            DataError::Mismatch(format!(
                "{} has not one label, so samples cannot be told apart by class: split or sample them without classes",
                data.origin(index)
            ))
        })?);
    }
    Ok(labels)
}

/// A weight for each class by which all count alike, as scikit-learn's `class_weight="balanced"`: the number of samples divided by that of
/// classes and by the samples of the class.
///
/// ```
/// use tightfit::data::split::class_weights;
///
/// assert_eq!(class_weights(&[0, 0, 0, 1], 2)?, [4.0 / 6.0, 2.0]);
/// # Ok::<(), tightfit::error::DataError>(())
/// ```
///
/// # Errors
/// [`DataError::Mismatch`] where a class has no sample, which it names, or a label is not below `classes`.
pub fn class_weights(labels: &[u32], classes: u32) -> Result<Vec<f32>, DataError> {
    let mut counts: Vec<usize> = room(classes as usize)?;
    counts.resize(classes as usize, 0);
    for (index, label) in labels.iter().enumerate() {
        *counts.get_mut(*label as usize).ok_or_else(|| {
            DataError::Mismatch(format!("label {label} of sample {index} is out of range: there are {classes} classes"))
        })? += 1;
    }
    let missing: Vec<_> = (0..classes).filter(|class| counts[*class as usize] == 0).collect();
    if !missing.is_empty() {
        return Err(DataError::Mismatch(format!(
            "{} no sample, so no weight makes up for it: leave out the weights, or what is not there",
            named_classes(&missing, "has", "have")
        )));
    }
    Ok(counts.iter().map(|&count| (labels.len() as f64 / (f64::from(classes) * count as f64)) as f32).collect())
}

/// `class 3 has`, `classes 1, 2 and 5 more have`.
fn named_classes(classes: &[u32], one: &str, several: &str) -> String {
    const SHOWN: usize = 10;
    let shown: Vec<_> = classes.iter().take(SHOWN).map(ToString::to_string).collect();
    match classes.len() {
        1 => format!("class {} {one}", shown[0]),
        len if len > SHOWN => format!("classes {} and {} more {several}", shown.join(", "), len - SHOWN),
        _ => format!("classes {} {several}", shown.join(", ")),
    }
}

/// The samples of each class, in random order.
fn by_class(labels: &[u32], seed: u64) -> BTreeMap<u32, Vec<usize>> {
    let mut classes: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for sample in shuffled(labels.len(), seed, 0) {
        classes.entry(labels[sample]).or_default().push(sample);
    }
    classes
}

fn ascending(samples: &[usize]) -> Vec<usize> {
    let mut samples = samples.to_vec();
    samples.sort_unstable();
    samples
}

/// Where a fold begins.
fn bound(len: usize, count: usize, fold: usize) -> usize {
    let (size, larger) = (len / count, len % count);
    fold * size + fold.min(larger)
}

fn check_share(what: &str, share: f64) -> Result<(), DataError> {
    if share > 0.0 && share < 1.0 {
        return Ok(());
    }
    Err(DataError::Mismatch(format!("{what} is {share}: it must be above 0 and below 1, such as 0.2")))
}

fn check_len(len: usize, least: usize, what: &str) -> Result<(), DataError> {
    if len >= least {
        return Ok(());
    }
    Err(DataError::Mismatch(format!("{} cannot {what}: there must be at least {least}", plural(len, "sample"))))
}

fn check_folds(len: usize, count: usize, fold: usize) -> Result<(), DataError> {
    if count < 2 || count > len {
        return Err(DataError::Mismatch(format!(
            "{} cannot be split into {}: there must be at least 2 folds, and a sample for each",
            plural(len, "sample"),
            plural(count, "fold")
        )));
    }
    if fold >= count {
        return Err(DataError::Mismatch(format!(
            "there is no fold {fold} of {count}: folds are counted from 0 to {}",
            count - 1
        )));
    }
    Ok(())
}

//! One sample.

use super::array::Array;
use super::batch::{INPUT, SAMPLE_WEIGHT, TARGET};

/// One sample: what a model takes as its [`INPUT`], the [`TARGET`], and whatever else, each by its name.
///
/// ```
/// use tightfit::data::Sample;
///
/// let sample = Sample::new([0.0, 0.5]).with_target(1_u32);
/// assert_eq!(sample.get("target").map(|target| target.values().len()), Some(1));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    entries: Vec<(String, Array)>,
}

impl Sample {
    /// A sample of this input.
    pub fn new(input: impl Into<Array>) -> Self {
        Sample::default().with(INPUT, input)
    }

    /// Sets the target: a label (`u32`) or numbers (`f32`), such as [`Array`] makes of one number or of several.
    #[must_use]
    pub fn with_target(self, target: impl Into<Array>) -> Self {
        self.with(TARGET, target)
    }

    /// Sets the weight, by which the sample's loss is multiplied where
    /// [`Config::sample_weights`](crate::train::Config::sample_weights) is set.
    #[must_use]
    pub fn with_weight(self, weight: f32) -> Self {
        self.with(SAMPLE_WEIGHT, weight)
    }

    /// Sets what the sample has under a name: another input of the model, or the target of another output.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, array: impl Into<Array>) -> Self {
        self.set(&name.into(), array.into());
        self
    }

    /// What it has under a name.
    pub fn get(&self, name: &str) -> Option<&Array> {
        self.entries.iter().find(|(entry, _)| entry == name).map(|(_, array)| array)
    }

    /// The same, to be changed in place.
    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Array> {
        self.entries.iter_mut().find(|(entry, _)| entry == name).map(|(_, array)| array)
    }

    /// Puts something under a name, in place of what was there.
    pub fn set(&mut self, name: &str, array: Array) {
        match self.entries.iter_mut().find(|(entry, _)| entry == name) {
            Some((_, place)) => *place = array,
            None => self.entries.push((name.to_owned(), array)),
        }
    }

    /// Takes out what it has under a name.
    pub fn take(&mut self, name: &str) -> Option<Array> {
        let at = self.entries.iter().position(|(entry, _)| entry == name)?;
        Some(self.entries.remove(at).1)
    }

    /// All that it has, by name.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Array)> {
        self.entries.iter().map(|(name, array)| (&**name, array))
    }
}

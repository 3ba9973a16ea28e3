//! Bytes as numbers of a range that a model was made for.

use serde::{Deserialize, Serialize};

use crate::error::GraphError;
use crate::ops::elementwise::normalize::{MAX_CHANNELS, Normalize};

/// How the bytes of a channel become numbers: `(byte / 255 − mean) / std`, as torchvision's `ToTensor` and `Normalize` have it.
///
/// ```
/// use tightfit::nn::Normalization;
///
/// let halves = Normalization::new([0.5], [0.5])?;
/// assert_eq!((halves.apply(0, 0), halves.apply(0, 255)), (-1.0, 1.0));
/// # Ok::<(), tightfit::error::GraphError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Normalization {
    mean: Vec<f64>,
    std: Vec<f64>,
}

impl Normalization {
    /// Means and standard deviations on a scale from 0 to 1, of each channel, or one for all.
    ///
    /// # Errors
    /// Where there are not as many of one as of the other, none or more than four, or one is not possible.
    pub fn new(mean: impl Into<Vec<f64>>, std: impl Into<Vec<f64>>) -> Result<Self, GraphError> {
        let normalization = Normalization { mean: mean.into(), std: std.into() };
        normalization.check()?;
        Ok(normalization)
    }

    /// Numbers from 0 to 1.
    pub fn unit() -> Self {
        Normalization { mean: vec![0.0], std: vec![1.0] }
    }

    /// Numbers from 0 to 255.
    pub fn identity() -> Self {
        Normalization { mean: vec![0.0], std: vec![1.0 / 255.0] }
    }

    /// Those of ImageNet's red, green and blue, which torchvision's weights want.
    pub fn imagenet() -> Self {
        Normalization { mean: vec![0.485, 0.456, 0.406], std: vec![0.229, 0.224, 0.225] }
    }

    /// Means, on a scale from 0 to 1.
    pub fn mean(&self) -> &[f64] {
        &self.mean
    }

    /// Standard deviations.
    pub fn std(&self) -> &[f64] {
        &self.std
    }

    /// A byte of a channel as a number.
    pub fn apply(&self, channel: usize, byte: u8) -> f32 {
        let of = |values: &[f64]| values[channel % values.len()];
        ((f64::from(byte) / 255.0 - of(&self.mean)) / of(&self.std)) as f32
    }

    /// Whether it is one: what is read from a file need not be.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn check(&self) -> Result<(), GraphError> {
        let wrong = |reason: String| Err(GraphError::Layer { layer: "input".to_owned(), reason });
        let (means, stds) = (self.mean.len(), self.std.len());
        if means != stds || !(1..=MAX_CHANNELS).contains(&means) {
            return wrong(format!(
                "{means} means and {stds} standard deviations normalize nothing: give as many of both, one for all channels or one for \
                 each of up to {MAX_CHANNELS}"
            ));
        }
        // As f32, in which the device computes.
        let is_possible = |std: f64| std > 0.0 && (1.0 / (255.0 * std) as f32).is_finite();
        if let Some(std) = self.std.iter().find(|std| !is_possible(**std)) {
            return wrong(format!("the standard deviation {std} is not possible: it must be above 0"));
        }
        if let Some(mean) = self.mean.iter().find(|mean| !(**mean as f32).is_finite()) {
            return wrong(format!("the mean {mean} is not possible: it must be a number"));
        }
        Ok(())
    }

    pub(super) fn op(&self) -> Normalize {
        let scale = self.std.iter().map(|std| (1.0 / (255.0 * std)) as f32).collect();
        let offset = self.mean.iter().zip(&self.std).map(|(mean, std)| (-mean / std) as f32).collect();
        Normalize { scale, offset }
    }
}

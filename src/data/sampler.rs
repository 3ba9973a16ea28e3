//! Samples drawn by weight.

use rand_chacha::ChaCha8Rng;

use super::random;
use super::split::class_weights;
use super::transform::Key;
use crate::error::DataError;
use crate::tensor::room;

/// Draws as many samples as a dataset has, each from all by its weight, so that some come several times in an epoch and some not at all:
/// PyTorch's `WeightedRandomSampler` with replacement. Seed and epoch decide which.
///
/// ```
/// use tightfit::data::{DataLoader, EpochOptions, Targets, TensorDataset, Values, WeightedSampler};
///
/// // Nine samples of one class, one of another: both are seen as often.
/// let labels = vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
/// let sampler = WeightedSampler::balanced(&labels, 2)?;
/// assert_ne!(sampler.order(7, 0)?, sampler.order(7, 1)?);
///
/// let data = TensorDataset::new(Values::F32(vec![0.5; 10]), [1], Targets::labels(labels, 2))?;
/// let loader = DataLoader::new(data).sampler(sampler);
/// # let _ = (loader, EpochOptions::new(4));
/// # Ok::<(), tightfit::error::DataError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct WeightedSampler {
    /// Sums of all weights up to each.
    sums: Vec<f64>,
}

impl WeightedSampler {
    /// A weight for each sample: a sample of twice the weight is drawn twice as often, one of weight 0 never.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] where a weight is below 0 or not a number, or none is above 0, [`DataError::HostMemory`].
    pub fn new(weights: impl IntoIterator<Item = f32>) -> Result<Self, DataError> {
        let weights = weights.into_iter();
        let mut sums = room(weights.size_hint().0)?;
        let mut sum = 0.0;
        for (index, weight) in weights.enumerate() {
            if !(weight.is_finite() && weight >= 0.0) {
                return Err(DataError::Mismatch(format!(
                    "the weight of sample {index} is {weight}: it must be a number, 0 or more"
                )));
            }
            sum += f64::from(weight);
            sums.push(sum);
        }
        if sum > 0.0 {
            return Ok(WeightedSampler { sums });
        }
        Err(DataError::Mismatch("no sample has a weight above 0: none could be drawn".to_owned()))
    }

    /// Samples by the inverse number of those of their class, so that all classes come as often.
    ///
    /// # Errors
    /// As [`class_weights`].
    pub fn balanced(labels: &[u32], classes: u32) -> Result<Self, DataError> {
        let of_class = class_weights(labels, classes)?;
        WeightedSampler::new(labels.iter().map(|label| of_class[*label as usize]))
    }

    /// The numbers of the samples of an epoch, counted from 0, in the order in which they are drawn.
    ///
    /// # Errors
    /// [`DataError::HostMemory`].
    pub fn order(&self, seed: u64, epoch: u64) -> Result<Vec<usize>, DataError> {
        let mut random = Key { seed, epoch, sample: 0 }.random("weighted order");
        let mut order = room(self.sums.len())?;
        order.extend((0..self.sums.len()).map(|_| self.draw(&mut random)));
        Ok(order)
    }

    /// How many samples there are weights for.
    pub(super) fn count(&self) -> usize {
        self.sums.len()
    }

    /// Bytes of host memory that it takes.
    pub(super) fn host_bytes(&self) -> u64 {
        (self.sums.capacity() * size_of::<f64>()) as u64
    }

    /// One sample, by its weight.
    fn draw(&self, random: &mut ChaCha8Rng) -> usize {
        let sum = self.sums.last().copied().unwrap_or_default();
        let place = random::unit(random) * sum;
        // The first whose sum is above; rounded up to the whole sum, the last with a weight.
        let place = if place < sum { place } else { sum.next_down() };
        self.sums.partition_point(|sum| *sum <= place)
    }
}

//! Which samples an epoch has, and in which order.

use rand_chacha::ChaCha8Rng;

use super::loader::shuffled;
use super::random;
use super::split::class_weights;
use super::transform::Key;
use crate::error::DataError;
use crate::tensor::{plural, room};

/// Decides which samples an epoch has, and in which order: from the seed and the epoch alone.
///
/// ```
/// use tightfit::data::Sampler;
///
/// // Nine samples of one class, one of another: both are seen as often.
/// let labels = [0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
/// let sampler = Sampler::balanced(&labels, 2, 7)?;
/// let order = sampler.order(10, 0)?;
/// assert_eq!((order.len(), &order), (10, &sampler.order(10, 0)?));
/// assert_ne!(order, sampler.order(10, 1)?);
/// # Ok::<(), tightfit::error::DataError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Sampler {
    /// All, as they are stored.
    Sequential,
    /// All, in a new random order each epoch: see [`shuffled`].
    Shuffled {
        /// The seed.
        seed: u64,
    },
    /// As many as the dataset has, each drawn from all by its weight, so that some come several times and some not at all: PyTorch's
    /// `WeightedRandomSampler` with replacement.
    Weighted {
        /// The weights of all samples: see [`Weights::new`].
        weights: Weights,
        /// The seed.
        seed: u64,
    },
}

/// How likely each sample is.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    /// Sums of all weights up to each.
    sums: Vec<f64>,
}

impl Weights {
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
            return Ok(Weights { sums });
        }
        Err(DataError::Mismatch("no sample has a weight above 0: none could be drawn".to_owned()))
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

impl Sampler {
    /// Samples by the inverse number of those of their class, so that all classes come as often.
    ///
    /// # Errors
    /// As [`class_weights`].
    pub fn balanced(labels: &[u32], classes: u32, seed: u64) -> Result<Self, DataError> {
        let of_class = class_weights(labels, classes)?;
        let weights = Weights::new(labels.iter().map(|label| of_class[*label as usize]))?;
        Ok(Sampler::Weighted { weights, seed })
    }

    /// The numbers of the samples of an epoch, counted from 0, of a dataset of `len`.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] where there are not as many weights as samples, [`DataError::HostMemory`].
    pub fn order(&self, len: usize, epoch: u64) -> Result<Vec<usize>, DataError> {
        match self {
            Sampler::Sequential => Ok((0..len).collect()),
            Sampler::Shuffled { seed } => Ok(shuffled(len, *seed, epoch)),
            Sampler::Weighted { weights, seed } => {
                if weights.sums.len() != len {
                    return Err(DataError::Mismatch(format!(
                        "{} but {}: each sample needs one",
                        plural(len, "sample"),
                        plural(weights.sums.len(), "weight")
                    )));
                }
                let mut random = Key { seed: *seed, epoch, sample: 0 }.random("weighted order");
                let mut order = room(len)?;
                order.extend((0..len).map(|_| weights.draw(&mut random)));
                Ok(order)
            }
        }
    }

    /// Bytes of host memory that it takes.
    pub fn host_bytes(&self) -> u64 {
        match self {
            Sampler::Sequential | Sampler::Shuffled { .. } => 0,
            Sampler::Weighted { weights, .. } => (weights.sums.capacity() * size_of::<f64>()) as u64,
        }
    }
}

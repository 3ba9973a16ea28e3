//! What is done to samples and batches before a model sees them, with random numbers that a key decides.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use sha2::{Digest, Sha256};

use super::batch::Batch;
use super::features::Features;
use super::sample::Sample;
use crate::error::DataError;

/// What decides all random numbers of a transform: neither the thread nor the order in which samples are read does, so a run that is
/// resumed, or that reads with more threads, sees the same pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The seed of the run.
    pub seed: u64,
    /// The epoch, counted from 0.
    pub epoch: u64,
    /// The sample's number in its dataset; for a batch, the number of the batch in its epoch.
    pub sample: u64,
}

impl Key {
    /// Random numbers for one purpose: those of another name are independent of them.
    ///
    /// The 32 bytes of ChaCha's key are the seed, the epoch and the sample, each as 8 bytes with the lowest first, and the first 8 bytes
    /// of the name's SHA-256.
    ///
    /// ```
    /// use rand_chacha::rand_core::Rng;
    /// use tightfit::data::Key;
    ///
    /// let key = Key { seed: 1, epoch: 0, sample: 7 };
    /// assert_eq!(key.random("noise").next_u64(), key.random("noise").next_u64());
    /// assert_ne!(key.random("noise").next_u64(), key.random("crop").next_u64());
    /// ```
    pub fn random(&self, name: &str) -> ChaCha8Rng {
        let mut key = [0u8; 32];
        for (bytes, number) in key.chunks_exact_mut(8).zip([self.seed, self.epoch, self.sample]) {
            bytes.copy_from_slice(&number.to_le_bytes());
        }
        key[24..].copy_from_slice(&Sha256::digest(name)[..8]);
        ChaCha8Rng::from_seed(key)
    }
}

/// Changes samples one by one: an augmentation, or whatever else is computed from a sample. A function of a sample and a key is one.
///
/// ```
/// use tightfit::data::{Key, Sample, Transform};
/// use tightfit::error::DataError;
///
/// let unlabeled = |mut sample: Sample, _: Key| -> Result<Sample, DataError> {
///     sample.take("target");
///     Ok(sample)
/// };
/// let sample = Sample::new([0.5]).with_target(1_u32);
/// assert_eq!(unlabeled.apply(sample, Key { seed: 0, epoch: 0, sample: 0 })?, Sample::new([0.5]));
/// # Ok::<(), DataError>(())
/// ```
pub trait Transform: Send + Sync {
    /// The changed sample: the same one for the same key.
    ///
    /// # Errors
    /// Where the sample is none that it can change.
    fn apply(&self, sample: Sample, key: Key) -> Result<Sample, DataError>;

    /// What changed samples have, where samples have this. Unless it says so, the same.
    ///
    /// # Errors
    /// Where such samples are none that it can change.
    fn features(&self, features: Features) -> Result<Features, DataError> {
        Ok(features)
    }
}

impl<F: Fn(Sample, Key) -> Result<Sample, DataError> + Send + Sync> Transform for F {
    fn apply(&self, sample: Sample, key: Key) -> Result<Sample, DataError> {
        self(sample, key)
    }
}

/// Changes whole batches, in which samples meet others.
pub trait BatchTransform: Send + Sync {
    /// Changes a batch: in the same way for the same key, of which [`Key::sample`] is the number of the batch in its epoch.
    ///
    /// # Errors
    /// Where the batch is none that it can change.
    fn apply(&self, batch: &mut Batch, key: Key) -> Result<(), DataError>;

    /// What samples of a changed batch have, where samples have this. Unless it says so, the same.
    ///
    /// # Errors
    /// Where such samples are none that it can change.
    fn features(&self, features: Features) -> Result<Features, DataError> {
        Ok(features)
    }
}

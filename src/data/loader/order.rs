//! In which order samples are fed: batches of indices, shuffled anew each epoch from a seed.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::error::DataError;

/// The order of the samples within an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As stored: for evaluation.
    Sequential,
    /// A new random order each epoch, the same one for the same seed and epoch: see [`shuffled`].
    Shuffled {
        /// The seed.
        seed: u64,
    },
}

/// How a dataset is cut into batches.
///
/// Any epoch can be asked for at any time, and any batch of it, so a run that was stopped goes on where it was without
/// replaying what came before.
///
/// ```
/// use tightfit::data::{Batches, Order};
///
/// let batches = Batches::new(10, 4, Order::Shuffled { seed: 1 }, false)?;
/// assert_eq!(batches.per_epoch(), 3);
/// let first = batches.epoch(0);
/// assert_eq!(first.batch(2).map(<[usize]>::len), Some(2));
/// assert_eq!(first, batches.epoch(0));
/// assert_ne!(first, batches.epoch(1));
/// # Ok::<(), tightfit::error::DataError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batches {
    len: usize,
    batch_size: usize,
    order: Order,
    drop_last: bool,
}

impl Batches {
    /// Batches of `batch_size` samples of a dataset of `len`. If they do not divide evenly the last batch is smaller,
    /// or left out with `drop_last`. With [`Order::Shuffled`] other samples are left out each epoch.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] when there would be no batch at all: `len` or `batch_size` is 0, or `drop_last` is set
    /// and the whole dataset is smaller than a batch.
    pub fn new(len: usize, batch_size: usize, order: Order, drop_last: bool) -> Result<Self, DataError> {
        if len == 0 || batch_size == 0 {
            return Err(DataError::Mismatch(format!(
                "a dataset of {len} samples cannot be cut into batches of {batch_size}: both must be at least 1"
            )));
        }
        if drop_last && len < batch_size {
            return Err(DataError::Mismatch(format!(
                "a dataset of {len} samples has no full batch of {batch_size}: use a batch of at most {len}"
            )));
        }
        Ok(Batches { len, batch_size, order, drop_last })
    }

    /// Number of batches in every epoch.
    pub fn per_epoch(&self) -> usize {
        self.used().div_ceil(self.batch_size)
    }

    /// Samples in a batch; the last one of an epoch may have fewer.
    pub fn batch_size(&self) -> usize {
        self.batch_size
    }

    /// The batches of one epoch, counted from 0.
    pub fn epoch(&self, epoch: u64) -> Epoch {
        let mut order = match self.order {
            Order::Sequential => (0..self.len).collect(),
            Order::Shuffled { seed } => shuffled(self.len, seed, epoch),
        };
        order.truncate(self.used());
        Epoch { order, batch_size: self.batch_size }
    }

    /// Samples that are fed in an epoch.
    fn used(&self) -> usize {
        if self.drop_last { self.len - self.len % self.batch_size } else { self.len }
    }
}

/// One epoch: every sample's index once, in the order in which they are fed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Epoch {
    order: Vec<usize>,
    batch_size: usize,
}

impl Epoch {
    /// The indices of all samples that are fed.
    pub fn order(&self) -> &[usize] {
        &self.order
    }

    /// The indices of batch `batch`, counted from 0; none past the end.
    pub fn batch(&self, batch: usize) -> Option<&[usize]> {
        self.iter().nth(batch)
    }

    /// All batches in order.
    pub fn iter(&self) -> std::slice::Chunks<'_, usize> {
        self.order.chunks(self.batch_size)
    }
}

impl<'a> IntoIterator for &'a Epoch {
    type Item = &'a [usize];
    type IntoIter = std::slice::Chunks<'a, usize>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The numbers `0..len` in a random order that only `len`, `seed` and `epoch` decide, on every machine and in every
/// version of tightfit.
///
/// A Fisher–Yates shuffle from the end: place `i`, from `len - 1` down to 1, is exchanged with place `j`, uniform in
/// `0..=i`. `j` is `x % (i + 1)` for the next 64-bit number `x` of ChaCha8, taken anew while `x` lies in the incomplete
/// last group of `i + 1` numbers (so no place is favoured). The 32 bytes of ChaCha's key are the seed and the epoch,
/// each as 8 bytes with the lowest first, and the text `tightfit shuffle`.
pub fn shuffled(len: usize, seed: u64, epoch: u64) -> Vec<usize> {
    let mut key = [0u8; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&epoch.to_le_bytes());
    key[16..].copy_from_slice(b"tightfit shuffle");
    let mut random = ChaCha8Rng::from_seed(key);

    let mut order: Vec<usize> = (0..len).collect();
    for i in (1..len).rev() {
        let choices = i as u64 + 1;
        // The largest multiple of `choices` that a u64 holds, less 1.
        let last = u64::MAX - (u64::MAX % choices + 1) % choices;
        let j = loop {
            let x = random.next_u64();
            if x <= last {
                break (x % choices) as usize;
            }
        };
        order.swap(i, j);
    }
    order
}

//! Samples that come one after the other, such as from a generator: their number need not be known.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use serde::{Deserialize, Serialize};

use super::{DataLoader, EpochOptions, MOST_UNREADABLE, OnError, Order, is_of_sample, unreadable_in_a_row};
use crate::data::{Features, Sample};
use crate::error::DataError;

type Samples = Box<dyn Iterator<Item = Result<Sample, DataError>> + Send>;
type Open = Box<dyn Fn(u64) -> Samples + Send + Sync>;

/// Samples from an iterator. An epoch is a number of steps, and the next one goes on where it ended; where the iterator ends, it is
/// begun anew.
///
/// ```
/// use tightfit::data::{Sample, Stream};
///
/// let noise = (0..).map(|i: u32| Ok(Sample::new((i % 7) as f32).with_target((i % 2) as f32)));
/// let stream = Stream::new(move || noise.clone(), 100).shuffle(32);
/// assert_eq!(stream.steps_per_epoch(), 100);
/// ```
pub struct Stream {
    open: Open,
    steps_per_epoch: usize,
    shuffle: usize,
    /// What every sample has, once it is known.
    features: Mutex<Option<Features>>,
    /// Where the last epoch came to, for the next one to go on from.
    parked: Mutex<Option<Place>>,
}

/// A place in a stream, from which reading goes on.
struct Place {
    samples: Option<Samples>,
    buffer: Vec<(u64, Sample)>,
    state: StreamState,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("steps_per_epoch", &self.steps_per_epoch).finish_non_exhaustive()
    }
}

/// Where a stream is: what a checkpoint holds of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamState {
    /// How often the iterator came to its end.
    passes: u64,
    /// Samples that were read of it since.
    read: u64,
    /// Samples that were drawn from the shuffle buffer so far.
    drawn: u64,
    /// Which samples of this pass are in the shuffle buffer, in its order.
    buffered: Vec<u64>,
}

impl Stream {
    /// The samples of the iterators that `open` makes, which are all alike: one to learn what samples have, one for each pass, and one
    /// more where a run goes on in the middle, which then reads on to where it was. An epoch takes so many batches.
    pub fn new<I>(open: impl Fn() -> I + Send + Sync + 'static, steps_per_epoch: usize) -> Self
    where
        I: Iterator<Item = Result<Sample, DataError>> + Send + 'static,
    {
        let skip = |samples: I, start: u64| samples.skip(usize::try_from(start).unwrap_or(usize::MAX));
        Stream::seekable(move |start| skip(open(), start), steps_per_epoch)
    }

    /// As [`new`](Self::new), for iterators that can begin at any sample, of which `open` is told the number.
    pub fn seekable<I>(open: impl Fn(u64) -> I + Send + Sync + 'static, steps_per_epoch: usize) -> Self
    where
        I: Iterator<Item = Result<Sample, DataError>> + Send + 'static,
    {
        let (features, parked) = (Mutex::default(), Mutex::default());
        Stream { open: Box::new(move |start| Box::new(open(start))), steps_per_epoch, shuffle: 0, features, parked }
    }

    /// Draws each sample from a buffer of so many, which the stream then fills up again. The larger, the closer to a shuffle of all.
    #[must_use]
    pub fn shuffle(mut self, buffer: usize) -> Self {
        self.shuffle = buffer;
        self
    }

    /// Batches of an epoch.
    pub fn steps_per_epoch(&self) -> usize {
        self.steps_per_epoch
    }

    /// Samples in the shuffle buffer.
    pub fn shuffle_buffer(&self) -> usize {
        self.shuffle
    }

    /// What every sample has: what the first one does that can be read.
    pub(super) fn features(&self, on_error: OnError) -> Result<Features, DataError> {
        let mut features = lock(&self.features);
        if let Some(features) = &*features {
            return Ok(features.clone());
        }
        let found = features_of((self.open)(0), on_error)?;
        Ok(features.insert(found).clone())
    }

    pub(super) fn reader<'s>(
        &'s self,
        loader: &'s DataLoader<'_>,
        options: &EpochOptions,
    ) -> Result<Reader<'s>, DataError> {
        if options.batch == 0 || self.steps_per_epoch == 0 {
            let (batch, steps) = (options.batch, self.steps_per_epoch);
            return Err(DataError::Mismatch(format!(
                "a stream cannot be cut into {steps} batches of {batch} samples for each epoch: both must be at least 1"
            )));
        }
        let state = options.stream.clone().unwrap_or_default();
        let seed = match options.order {
            Order::Shuffled { seed } => Some(seed),
            Order::Sequential => None,
        };
        let parked = lock(&self.parked).take().filter(|place| place.state() == state);
        let place = parked.map_or_else(|| self.restore(&state), Ok)?;
        let left = self.steps_per_epoch.saturating_sub(options.first_batch);
        Ok(Reader { stream: self, loader, seed, batch: options.batch, left, place })
    }

    /// Reads on to a place, and again what was in the buffer then.
    fn restore(&self, state: &StreamState) -> Result<Place, DataError> {
        let start = state.buffered.iter().copied().min().unwrap_or(state.read);
        let mut samples = (self.open)(start);
        let mut found: BTreeMap<u64, Option<Sample>> = state.buffered.iter().map(|&number| (number, None)).collect();
        for number in start..state.read {
            let Some(sample) = samples.next() else {
                let text = format!(
                    "the stream ends after {number} samples, and the checkpoint was taken after {}: give it the same stream",
                    state.read
                );
                return Err(DataError::Mismatch(text));
            };
            if let Some(found) = found.get_mut(&number) {
                *found = Some(sample.map_err(|error| error.of_sample(&origin(number)))?);
            }
        }
        let buffered = state.buffered.iter().map(|&number| {
            let sample = found.get_mut(&number).and_then(Option::take).ok_or_else(|| {
                let text = "the checkpoint's shuffle buffer is not of this stream: give it the same stream";
                DataError::Mismatch(text.to_owned())
            })?;
            Ok((number, sample))
        });
        let buffer = buffered.collect::<Result<_, DataError>>()?;
        let state = StreamState { buffered: Vec::new(), ..*state };
        Ok(Place { samples: Some(samples), buffer, state })
    }
}

impl Place {
    fn state(&self) -> StreamState {
        StreamState { buffered: self.buffer.iter().map(|(number, _)| *number).collect(), ..self.state.clone() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn origin(number: u64) -> String {
    format!("sample {number} of the stream")
}

/// What the first of these samples has that can be read; unless others are skipped, the first.
pub(super) fn features_of(
    samples: impl Iterator<Item = Result<Sample, DataError>>,
    on_error: OnError,
) -> Result<Features, DataError> {
    let mut unreadable = None;
    for sample in samples.take(MOST_UNREADABLE) {
        match sample {
            Err(error) if on_error == OnError::Skip && is_of_sample(&error) => unreadable = unreadable.or(Some(error)),
            sample => return Features::of(&sample?),
        }
    }
    Err(unreadable.unwrap_or_else(no_samples))
}

fn no_samples() -> DataError {
    DataError::Mismatch("the stream has no samples: its iterator ended at once".to_owned())
}

/// Reads a stream.
pub(super) struct Reader<'s> {
    stream: &'s Stream,
    loader: &'s DataLoader<'s>,
    /// Of the shuffle, where there is one.
    seed: Option<u64>,
    batch: usize,
    /// Batches of the epoch that are to come.
    left: usize,
    place: Place,
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        // Where the iterator is after a failure is not known.
        if self.left > 0 {
            return;
        }
        let nothing = Place { samples: None, buffer: Vec::new(), state: StreamState::default() };
        *lock(&self.stream.parked) = Some(std::mem::replace(&mut self.place, nothing));
    }
}

impl Reader<'_> {
    pub(super) fn batches(&self) -> usize {
        self.stream.steps_per_epoch
    }

    pub(super) fn state(&self) -> StreamState {
        self.place.state()
    }

    /// The samples of the next batch, each with its number in its pass, and the pass.
    pub(super) fn batch(&mut self) -> Result<Vec<(u64, u64, Sample)>, DataError> {
        let samples = (0..self.batch).map(|_| self.draw()).collect::<Result<_, _>>()?;
        self.left = self.left.saturating_sub(1);
        Ok(samples)
    }

    fn draw(&mut self) -> Result<(u64, u64, Sample), DataError> {
        let size = if self.seed.is_some() { self.stream.shuffle.max(1) } else { 1 };
        while self.place.buffer.len() < size {
            match self.read()? {
                Some(sample) => self.place.buffer.push(sample),
                None if !self.place.buffer.is_empty() => break,
                // The buffer is of one pass: it is emptied before the next one begins.
                None if self.place.state.read == 0 => return Err(no_samples()),
                None => {
                    let Place { samples, state, .. } = &mut self.place;
                    (state.passes, state.read) = (state.passes + 1, 0);
                    *samples = Some((self.stream.open)(0));
                }
            }
        }
        let Place { buffer, state, .. } = &mut self.place;
        let at = self.seed.map_or(0, |seed| place(seed, state.drawn, buffer.len()));
        state.drawn += 1;
        let (number, sample) = buffer.swap_remove(at);
        Ok((number, state.passes, sample))
    }

    fn read(&mut self) -> Result<Option<(u64, Sample)>, DataError> {
        let Place { samples, state, .. } = &mut self.place;
        for unreadable in 1.. {
            let Some(sample) = samples.as_mut().and_then(Iterator::next) else { break };
            let number = state.read;
            state.read += 1;
            let error = match sample {
                Ok(sample) => return Ok(Some((number, sample))),
                Err(error) => error.of_sample(&origin(number)),
            };
            if !self.loader.skips(number as usize, &origin(number), &error) {
                return Err(error);
            }
            if unreadable == MOST_UNREADABLE {
                return Err(unreadable_in_a_row(unreadable, &error));
            }
        }
        // It is not asked again.
        *samples = None;
        Ok(None)
    }
}

/// Which of `count` samples is drawn as number `drawn`: uniform up to 2⁻⁶⁴ · count.
fn place(seed: u64, drawn: u64, count: usize) -> usize {
    let mut key = [0u8; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&drawn.to_le_bytes());
    key[16..].copy_from_slice(b"tightfit buffers");
    let random = ChaCha8Rng::from_seed(key).next_u64();
    ((u128::from(random) * count as u128) >> 64) as usize
}

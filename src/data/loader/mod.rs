//! How samples get from a dataset into batches: in which order, by how many threads, within how much host memory.

mod epoch;
mod memory;
mod order;
mod stream;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Scope;

pub use epoch::EpochBatches;
use epoch::{Feed, Filling, Task};
pub use memory::LoaderMemory;
pub use order::{Batches, Epoch, Order, shuffled};
pub use stream::{Stream, StreamState};

use super::augment::Augmentation;
use super::dataset::Dataset;
use super::features::Features;
use super::sample::Sample;
use super::sampler::WeightedSampler;
use super::tensors::TensorDataset;
use super::transform::{BatchTransform, Key, Transform};
use crate::error::DataError;
use crate::tensor::plural;

/// What happens where a sample cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The run ends, with a message that says which file or row it is.
    #[default]
    Stop,
    /// Training takes the next sample that can be read in its place, an evaluation leaves it out. Each is logged and counted once:
    /// [`DataLoader::skipped`].
    Skip,
}

/// Reads the samples of a dataset or a stream into batches.
///
/// With [`workers`](Self::workers), threads read ahead while the device computes. Order and contents of batches depend on the seed and
/// the epoch alone, not on how many threads there are.
///
/// ```
/// use tightfit::data::{DataLoader, Dataset, EpochOptions, Sample};
/// use tightfit::error::DataError;
///
/// struct Numbers;
///
/// impl Dataset for Numbers {
///     fn len(&self) -> usize {
///         10
///     }
///
///     fn get(&self, index: usize) -> Result<Sample, DataError> {
///         Ok(Sample::new(index as f32))
///     }
/// }
///
/// let loader = DataLoader::new(Numbers).workers(2);
/// std::thread::scope(|scope| {
///     let mut batches = loader.epoch(scope, EpochOptions::new(4).shuffled(7))?;
///     let mut count = 0;
///     while let Some(batch) = batches.next_batch()? {
///         count += batch.len();
///         batches.recycle(batch);
///     }
///     assert_eq!(count, 10);
///     Ok::<(), DataError>(())
/// })?;
/// # Ok::<(), DataError>(())
/// ```
#[derive(Clone)]
pub struct DataLoader<'a> {
    source: Source<'a>,
    workers: usize,
    prefetch: Option<usize>,
    transforms: Vec<Arc<dyn Transform + 'a>>,
    batch_transforms: Vec<Arc<dyn BatchTransform + 'a>>,
    sampler: Option<Arc<WeightedSampler>>,
    on_error: OnError,
    host_budget_bytes: Option<u64>,
    skipped: Arc<Mutex<BTreeMap<usize, String>>>,
}

#[derive(Clone)]
enum Source<'a> {
    Dataset(Arc<dyn Dataset + 'a>),
    Stream(Arc<Stream>),
}

impl fmt::Debug for DataLoader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataLoader").field("len", &self.len()).field("workers", &self.workers).finish_non_exhaustive()
    }
}

/// Which batches of which epoch are read.
#[derive(Clone, Debug, PartialEq)]
pub struct EpochOptions {
    /// Samples of a batch.
    pub batch: usize,
    /// In which order.
    pub order: Order,
    /// Which epoch, from 0.
    pub epoch: u64,
    /// Which batch is the first.
    pub first_batch: usize,
    /// Whether a last batch that is not full is left out.
    pub drop_last: bool,
    /// Whether samples are transformed, and those that cannot be read replaced by others: for training.
    pub training: bool,
    /// Where a stream goes on.
    pub stream: Option<StreamState>,
}

impl EpochOptions {
    /// All samples in their order, as they are.
    pub fn new(batch: usize) -> Self {
        let (order, stream) = (Order::Sequential, None);
        EpochOptions { batch, order, epoch: 0, first_batch: 0, drop_last: false, training: false, stream }
    }

    /// All samples in an order from this seed, transformed.
    #[must_use]
    pub fn shuffled(self, seed: u64) -> Self {
        EpochOptions { order: Order::Shuffled { seed }, training: true, ..self }
    }

    /// The epoch, from 0.
    #[must_use]
    pub fn epoch(self, epoch: u64) -> Self {
        EpochOptions { epoch, ..self }
    }
}

impl<'a> DataLoader<'a> {
    /// Reads from a dataset, in the thread that asks for batches.
    pub fn new(dataset: impl Dataset + 'a) -> Self {
        DataLoader::of(Source::Dataset(Arc::new(dataset)))
    }

    /// Reads from a stream.
    pub fn stream(stream: Stream) -> Self {
        DataLoader::of(Source::Stream(Arc::new(stream)))
    }

    fn of(source: Source<'a>) -> Self {
        DataLoader {
            source,
            workers: 0,
            prefetch: None,
            transforms: Vec::new(),
            batch_transforms: Vec::new(),
            sampler: None,
            on_error: OnError::Stop,
            host_budget_bytes: None,
            skipped: Arc::default(),
        }
    }

    /// Threads that read while the device computes, at most 256; 0, the default, reads in the thread that trains.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.min(MOST_WORKERS);
        self
    }

    /// Batches that are read ahead at most, no more than 1024. The default is the number of workers, at least 1.
    #[must_use]
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.prefetch = Some(batches.min(MOST_AHEAD));
        self
    }

    /// Changes each sample that is trained on. Transforms follow one another in the order in which they are added.
    #[must_use]
    pub fn transform(mut self, transform: impl Transform + 'a) -> Self {
        self.transforms.push(Arc::new(transform));
        self
    }

    /// Changes each batch that is trained on, after its samples.
    #[must_use]
    pub fn batch_transform(mut self, transform: impl BatchTransform + 'a) -> Self {
        self.batch_transforms.push(Arc::new(transform));
        self
    }

    /// Augments what is trained on, after the transforms that there are.
    ///
    /// # Errors
    /// As [`Augmentation::transforms`] of these samples, and as [`features`](Self::features).
    pub fn augment(mut self, augmentation: &Augmentation) -> Result<Self, DataError> {
        let (samples, batches) = augmentation.transforms(&self.features()?)?;
        self.transforms.extend(samples.into_iter().map(Arc::from));
        self.batch_transforms.extend(batches.into_iter().map(Arc::from));
        Ok(self)
    }

    /// Trains on samples that are drawn by weight, instead of on each once, where the order is a random one. The dataset must have as many
    /// as there are weights. A sample that comes several times in an epoch is transformed in other ways each time: its
    /// [key](Key::sample) has its place in the epoch.
    #[must_use]
    pub fn sampler(mut self, sampler: WeightedSampler) -> Self {
        self.sampler = Some(Arc::new(sampler));
        self
    }

    /// What happens where a sample cannot be read.
    #[must_use]
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = on_error;
        self
    }

    /// Bytes of host memory that the dataset and its batches may take: less is read ahead to keep to it.
    #[must_use]
    pub fn host_budget_bytes(mut self, bytes: u64) -> Self {
        self.host_budget_bytes = Some(bytes);
        self
    }

    /// Number of samples; `None` of a stream.
    pub fn len(&self) -> Option<usize> {
        match &self.source {
            Source::Dataset(dataset) => Some(dataset.len()),
            Source::Stream(_) => None,
        }
    }

    /// Whether it is known that there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Batches of an epoch.
    ///
    /// # Errors
    /// Where the dataset cannot be cut into such batches.
    pub fn batches_per_epoch(&self, batch: usize, drop_last: bool) -> Result<usize, DataError> {
        match &self.source {
            Source::Dataset(dataset) => {
                Ok(Batches::new(dataset.len(), batch, Order::Sequential, drop_last)?.per_epoch())
            }
            Source::Stream(stream) => Ok(stream.steps_per_epoch()),
        }
    }

    /// All samples, where they are in memory and nothing changes them.
    pub(crate) fn tensors(&self) -> Option<&TensorDataset> {
        match &self.source {
            Source::Dataset(dataset) if self.transforms.is_empty() && self.batch_transforms.is_empty() => {
                dataset.tensors()
            }
            _ => None,
        }
    }

    /// What every sample has when it is trained on.
    ///
    /// # Errors
    /// Where the first sample cannot be read, or a transform does not fit it.
    pub fn features(&self) -> Result<Features, DataError> {
        let features = self
            .transforms
            .iter()
            .try_fold(self.source_features()?, |features, transform| transform.features(features))?;
        self.batch_transforms.iter().try_fold(features, |features, transform| transform.features(features))
    }

    /// What every sample has as it is read.
    ///
    /// # Errors
    /// Where the first sample cannot be read.
    pub fn source_features(&self) -> Result<Features, DataError> {
        match &self.source {
            Source::Dataset(dataset) if dataset.is_empty() => {
                Err(DataError::Mismatch("the dataset has no samples".to_owned()))
            }
            Source::Dataset(dataset) => match dataset.features() {
                // The first one may be of those that are skipped.
                Err(error) if self.on_error == OnError::Skip && is_of_sample(&error) => {
                    let samples = (0..dataset.len()).map(|index| dataset.get(index));
                    stream::features_of(samples, self.on_error).map_err(|_| error)
                }
                features => features,
            },
            Source::Stream(stream) => stream.features(self.on_error),
        }
    }

    /// Samples that could not be read so far, each with the reason.
    pub fn skipped(&self) -> Vec<String> {
        self.skipped.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The numbers of the samples that could not be read so far, ascending.
    pub fn skipped_samples(&self) -> Vec<usize> {
        self.skipped.lock().unwrap_or_else(PoisonError::into_inner).keys().copied().collect()
    }

    /// Host memory that is taken with batches of this size.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] where the host budget is too small for two batches, and as [`features`](Self::features).
    pub fn memory(&self, batch: usize) -> Result<LoaderMemory, DataError> {
        memory::plan(self, batch)
    }

    /// Begins to read an epoch, or the rest of one. Threads live in `scope`.
    ///
    /// # Errors
    /// As [`memory`](Self::memory), and where the dataset cannot be cut into such batches.
    pub fn epoch<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        options: EpochOptions,
    ) -> Result<EpochBatches<'scope>, DataError> {
        let memory = self.memory(options.batch)?;
        let feed = match &self.source {
            Source::Dataset(dataset) => {
                let batches = Batches::new(dataset.len(), options.batch, options.order, options.drop_last)?;
                let epoch = match (self.drawn(&options), options.order) {
                    (Some(sampler), Order::Shuffled { seed }) if sampler.count() == dataset.len() => {
                        batches.cut(sampler.order(seed, options.epoch)?)
                    }
                    (Some(sampler), _) => {
                        return Err(DataError::Mismatch(format!(
                            "{} but {} to draw by: each sample needs one",
                            plural(dataset.len(), "sample"),
                            plural(sampler.count(), "weight")
                        )));
                    }
                    (None, _) => batches.epoch(options.epoch),
                };
                Feed::Indices { epoch, repeated: self.drawn(&options).map(|_| options.batch) }
            }
            Source::Stream(stream) => Feed::Stream(stream.reader(self, &options)?),
        };
        Ok(EpochBatches::begin(self, scope, options, feed, &memory))
    }

    /// What draws the samples of an epoch, where something does.
    fn drawn(&self, options: &EpochOptions) -> Option<&WeightedSampler> {
        let is_random = options.training && matches!(options.order, Order::Shuffled { .. });
        self.sampler.as_deref().filter(|_| is_random)
    }

    /// Fills a batch: what a worker does.
    fn fill(&self, filling: &Filling, task: Task, batch: &mut super::Batch) -> Result<(), DataError> {
        let key = |sample: u64, epoch: u64| Key { seed: filling.seed, epoch, sample };
        let number = task.number;
        match (task.samples, &self.source) {
            (epoch::Samples::Indices { indices, first }, Source::Dataset(dataset)) => {
                self.fill_from(&**dataset, filling, &indices, first, batch)?;
            }
            (epoch::Samples::Read(samples), _) => {
                batch.clear();
                for (number, pass, sample) in samples {
                    let sample = self.transformed(filling, sample, key(number, pass));
                    let pushed = sample.and_then(|sample| batch.push(number as usize, &sample));
                    pushed.map_err(|error| error.of_sample(&stream::origin(number)))?;
                }
            }
            (epoch::Samples::Indices { .. }, Source::Stream(_)) => unreachable!("bug: indices of a stream"),
        }
        if filling.training && !batch.is_empty() {
            for transform in &self.batch_transforms {
                transform.apply(batch, key(number as u64, filling.epoch))?;
            }
        }
        Ok(())
    }

    fn transformed(&self, filling: &Filling, sample: Sample, key: Key) -> Result<Sample, DataError> {
        let transforms = if filling.training { &self.transforms[..] } else { &[] };
        transforms.iter().try_fold(sample, |sample, transform| transform.apply(sample, key))
    }

    fn fill_from(
        &self,
        dataset: &dyn Dataset,
        filling: &Filling,
        indices: &[usize],
        first: Option<usize>,
        batch: &mut super::Batch,
    ) -> Result<(), DataError> {
        // At once where nothing is in the way.
        if !filling.training || self.transforms.is_empty() {
            match dataset.read(indices, batch) {
                // Which one it is shows when they are read one by one.
                Err(error) if self.on_error == OnError::Skip && is_of_sample(&error) => {}
                result => return result,
            }
        }
        batch.clear();
        for (place, &index) in indices.iter().enumerate() {
            let mut error = None;
            // What stands in does not depend on which thread found what.
            let candidates = if filling.training { MOST_UNREADABLE.min(dataset.len()) } else { 1 };
            let found = (0..candidates).find_map(|ahead| {
                let candidate = (index + ahead) % dataset.len();
                match self.push(dataset, filling, candidate, first.map_or(candidate, |first| first + place), batch) {
                    Ok(()) => Some(Ok(())),
                    Err(failed) if self.skips(candidate, &dataset.origin(candidate), &failed) => {
                        error = Some(failed);
                        None
                    }
                    Err(failed) => Some(Err(failed)),
                }
            });
            match (found, error) {
                (Some(result), _) => result?,
                (None, Some(error)) if filling.training => return Err(unreadable_in_a_row(candidates, &error)),
                (None, _) => {}
            }
        }
        Ok(())
    }

    fn push(
        &self,
        dataset: &dyn Dataset,
        filling: &Filling,
        index: usize,
        key: usize,
        batch: &mut super::Batch,
    ) -> Result<(), DataError> {
        let key = Key { seed: filling.seed, epoch: filling.epoch, sample: key as u64 };
        let sample = self.transformed(filling, dataset.get(index)?, key);
        let pushed = sample.and_then(|sample| batch.push(index, &sample));
        pushed.map_err(|error| error.of_sample(&dataset.origin(index)))
    }

    /// Whether a sample that cannot be read is left out, which is then told and counted.
    fn skips(&self, index: usize, origin: &str, error: &DataError) -> bool {
        if self.on_error == OnError::Stop || !is_of_sample(error) {
            return false;
        }
        let mut skipped = self.skipped.lock().unwrap_or_else(PoisonError::into_inner);
        if !skipped.contains_key(&index) && skipped.len() < MOST_SKIPPED {
            log::warn!("skipped {origin}: {error}");
            skipped.insert(index, error.to_string());
        }
        true
    }
}

/// Threads that read, and batches that are read ahead, whatever is asked for.
const MOST_WORKERS: usize = 256;
const MOST_AHEAD: usize = 1024;

/// Samples one after the other that may be unreadable before a run ends.
const MOST_UNREADABLE: usize = 100;

fn unreadable_in_a_row(count: usize, last: &DataError) -> DataError {
    DataError::Mismatch(format!("{count} samples one after the other cannot be read, the last: {last}"))
}

/// Unreadable samples that are remembered.
const MOST_SKIPPED: usize = 100_000;

/// Whether one sample is wrong, and not the machine.
fn is_of_sample(error: &DataError) -> bool {
    !matches!(error, DataError::HostMemory(_) | DataError::Download { .. })
}

impl<'a, D: Dataset> From<&'a D> for DataLoader<'a> {
    fn from(dataset: &'a D) -> Self {
        DataLoader::new(dataset)
    }
}

impl<'a> From<&'a dyn Dataset> for DataLoader<'a> {
    fn from(dataset: &'a dyn Dataset) -> Self {
        DataLoader::new(dataset)
    }
}

impl<'a> From<&DataLoader<'a>> for DataLoader<'a> {
    fn from(loader: &DataLoader<'a>) -> Self {
        loader.clone()
    }
}

impl From<Stream> for DataLoader<'_> {
    fn from(stream: Stream) -> Self {
        DataLoader::stream(stream)
    }
}

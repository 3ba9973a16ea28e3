//! One epoch: threads fill batches ahead of the one that is trained on, and hand them over in order.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Scope;

use super::stream::{Reader, StreamState};
use super::{DataLoader, Epoch, EpochOptions, LoaderMemory, Order};
use crate::data::{Batch, Sample};
use crate::error::DataError;

/// Where the samples of batches come from.
pub(super) enum Feed<'s> {
    Indices {
        epoch: Epoch,
        /// The size of batches, where samples come several times, so that places in the epoch tell them apart.
        repeated: Option<usize>,
    },
    Stream(Reader<'s>),
}

/// What all batches of an epoch are filled with.
#[derive(Clone, Debug)]
pub(super) struct Filling {
    pub(super) seed: u64,
    pub(super) epoch: u64,
    pub(super) training: bool,
}

/// A batch to be filled.
pub(super) struct Task {
    /// Which of the epoch.
    pub(super) number: usize,
    pub(super) samples: Samples,
    /// Where a stream is after it.
    state: Option<StreamState>,
}

pub(super) enum Samples {
    Indices {
        indices: Vec<usize>,
        /// The place of the first in the epoch, where places tell samples apart.
        first: Option<usize>,
    },
    /// Each with its number and the pass over the stream.
    Read(Vec<(u64, u64, Sample)>),
}

/// The batches of an epoch, in order. Dropping it ends its threads.
pub struct EpochBatches<'s> {
    loader: &'s DataLoader<'s>,
    filling: Filling,
    shared: Arc<Shared<'s>>,
    workers: usize,
    /// The next one that is handed over, and the number of all.
    next: usize,
    count: usize,
    state: Option<StreamState>,
}

/// A batch, and where its stream is then.
type Filled = Result<(Batch, Option<StreamState>), Failed>;

enum Failed {
    Error(DataError),
    Panic(Box<dyn Any + Send>),
}

/// What threads share.
struct Shared<'s> {
    /// Held while a task is taken, so that a stream is read in order.
    feed: Mutex<Feed<'s>>,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    /// The next batch that nobody fills yet.
    next: usize,
    free: Vec<Batch>,
    filled: BTreeMap<usize, Filled>,
    is_over: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'s> EpochBatches<'s> {
    pub(super) fn begin(
        loader: &'s DataLoader<'s>,
        scope: &'s Scope<'s, '_>,
        options: &EpochOptions,
        feed: Feed<'s>,
        memory: &LoaderMemory,
    ) -> Self {
        let count = match &feed {
            Feed::Indices { epoch, .. } => epoch.iter().len(),
            Feed::Stream(reader) => reader.batches(),
        };
        let seed = match options.order {
            Order::Shuffled { seed } => seed,
            Order::Sequential => 0,
        };
        let filling = Filling { seed, epoch: options.epoch, training: options.training };
        let first = options.first_batch.min(count);
        let free = (0..memory.batches).map(|_| Batch::default()).collect();
        let queue = Queue { next: first, free, ..Queue::default() };
        let shared = Shared { feed: Mutex::new(feed), queue: Mutex::new(queue), changed: Condvar::new() };
        let shared = Arc::new(shared);
        let workers = memory.workers.min(count - first);
        for _ in 0..workers {
            let (shared, filling) = (Arc::clone(&shared), filling.clone());
            scope.spawn(move || work(loader, &shared, &filling, count));
        }
        EpochBatches { loader, filling, shared, workers, next: first, count, state: options.stream.clone() }
    }

    /// Batches of the whole epoch.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The next batch; `None` at the end of the epoch.
    ///
    /// # Errors
    /// Where a sample of it cannot be read: the epoch is then over.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Batch>, DataError> {
        if self.next == self.count {
            return Ok(None);
        }
        let number = self.next;
        // Nothing comes after a failure.
        self.next = self.count;
        let filled = if self.workers == 0 { self.fill_here(number) } else { self.wait(number) };
        match filled {
            Ok((batch, state)) => {
                self.next = number + 1;
                self.state = state;
                Ok(Some(batch))
            }
            Err(Failed::Error(error)) => Err(error),
            Err(Failed::Panic(payload)) => resume_unwind(payload),
        }
    }

    /// Where the stream is after the batches that were handed over: what [`EpochOptions::stream`] goes on from.
    pub fn stream_state(&self) -> Option<&StreamState> {
        self.state.as_ref()
    }

    /// Gives a batch back, whose memory then serves another.
    pub fn recycle(&mut self, batch: Batch) {
        lock(&self.shared.queue).free.push(batch);
        self.shared.changed.notify_all();
    }

    fn fill_here(&self, number: usize) -> Filled {
        let task = lock(&self.shared.feed).take(number).map_err(Failed::Error)?;
        // Where none was given back, another is made.
        let mut batch = lock(&self.shared.queue).free.pop().unwrap_or_default();
        let state = task.state.clone();
        self.loader.fill(&self.filling, task, &mut batch).map_err(Failed::Error)?;
        Ok((batch, state))
    }

    fn wait(&self, number: usize) -> Filled {
        let mut queue = lock(&self.shared.queue);
        loop {
            if let Some(filled) = queue.filled.remove(&number) {
                return filled;
            }
            // A caller that keeps all batches is given another.
            if queue.free.is_empty() && queue.next == number {
                queue.free.push(Batch::default());
                self.shared.changed.notify_all();
            }
            queue = self.shared.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for EpochBatches<'_> {
    fn drop(&mut self) {
        lock(&self.shared.queue).is_over = true;
        self.shared.changed.notify_all();
    }
}

impl Feed<'_> {
    /// What batch `number` is made of, which is the one after that of the last call.
    fn take(&mut self, number: usize) -> Result<Task, DataError> {
        Ok(match self {
            Feed::Indices { epoch, repeated } => {
                let indices = epoch.batch(number).expect("bug: past the end of the epoch").to_vec();
                let first = repeated.map(|batch| number * batch);
                Task { number, samples: Samples::Indices { indices, first }, state: None }
            }
            Feed::Stream(reader) => {
                let samples = Samples::Read(reader.batch()?);
                Task { number, samples, state: Some(reader.state()) }
            }
        })
    }
}

/// What a thread does: fills batches as long as there are some.
fn work(loader: &DataLoader<'_>, shared: &Shared<'_>, filling: &Filling, count: usize) {
    loop {
        // One takes a task at a time: the next waits here.
        let mut feed = lock(&shared.feed);
        let mut queue = lock(&shared.queue);
        let mut batch = loop {
            if queue.is_over || queue.next == count {
                return;
            }
            match queue.free.pop() {
                Some(batch) => break batch,
                None => queue = shared.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
            }
        };
        let number = queue.next;
        queue.next += 1;
        drop(queue);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let task = feed.take(number)?;
            // The next one takes its task.
            drop(feed);
            let state = task.state.clone();
            loader.fill(filling, task, &mut batch)?;
            Ok((batch, state))
        }));
        let filled = match caught {
            Ok(result) => result.map_err(Failed::Error),
            Err(payload) => Err(Failed::Panic(payload)),
        };
        let mut queue = lock(&shared.queue);
        // Nobody asks for what comes after a failure.
        queue.is_over |= filled.is_err();
        queue.filled.insert(number, filled);
        drop(queue);
        shared.changed.notify_all();
    }
}

//! What is read ahead is bounded.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tightfit::data::{Batch, DataLoader, Dataset, EpochOptions, Features, Key, Sample, Transform};
use tightfit::error::DataError;
use tightfit::tensor::DType;

use super::Computed;

/// Counts samples as they are read.
struct Counted<'a>(&'a AtomicUsize);

impl Dataset for Counted<'_> {
    fn len(&self) -> usize {
        4000
    }

    fn get(&self, index: usize) -> Result<Sample, DataError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Computed(4000).get(index)
    }

    fn features(&self) -> Result<Features, DataError> {
        Computed(4000).features()
    }
}

#[test]
fn threads_wait_where_batches_are_not_given_back() {
    for (workers, prefetch) in [(1, 1), (2, 1), (2, 4), (4, 2), (4, 4)] {
        let read = AtomicUsize::new(0);
        let loader = DataLoader::new(Counted(&read)).workers(workers).prefetch(prefetch);
        let batches = loader.memory(10).expect("fits").batches;
        assert_eq!(batches, 2 + prefetch);
        thread::scope(|scope| {
            let mut epoch = loader.epoch(scope, EpochOptions::new(10)).expect("begins");
            let mut places = BTreeSet::new();
            let mut held: Option<Batch> = None;
            for taken in 1..=100 {
                let batch = epoch.next_batch().expect("reads").expect("a batch");
                // Memory is used again: no more batches than there are have their own.
                places.insert(batch.bytes("input").expect("input").as_ptr() as usize);
                if let Some(held) = held.replace(batch) {
                    epoch.recycle(held);
                }
                // Threads may have come so far that all batches but the one that is held are filled again.
                if taken % 20 == 0 {
                    thread::sleep(Duration::from_millis(2));
                }
                let most = (taken - 1 + batches) * 10;
                assert!(read.load(Ordering::SeqCst) <= most, "{workers} {prefetch} after {taken}");
            }
            assert!(places.len() <= batches, "{} places of {batches} batches", places.len());
        });
    }
}

#[test]
fn a_host_budget_lowers_what_is_read_ahead() {
    let loader = |budget: Option<u64>| {
        let loader = DataLoader::new(Computed(1000)).workers(4).prefetch(6);
        budget.map_or(loader.clone(), |budget| loader.host_budget_bytes(budget))
    };
    let wanted = loader(None).memory(50).expect("fits");
    assert_eq!((wanted.workers, wanted.batches, wanted.batch_bytes), (4, 8, 50 * 20));
    let mut before = (usize::MAX, usize::MAX);
    let mut lowered = BTreeSet::new();
    let mut refused = None;
    for budget in (0..=wanted.total_bytes()).rev().step_by(100) {
        match loader(Some(budget)).memory(50) {
            Ok(memory) => {
                assert!(memory.total_bytes() <= budget && refused.is_none());
                assert!(memory.batches <= before.1 && memory.workers <= before.0);
                before = (memory.workers, memory.batches);
                lowered.insert(before);
            }
            Err(error) => refused = Some((budget, error.to_string())),
        }
    }
    assert_eq!(before, (0, 2));
    assert_eq!(lowered.len(), 7, "{lowered:?}");
    let (_, text) = refused.expect("no budget is none");
    assert!(text.contains("the host budget is") && text.contains("use smaller batches"), "{text}");
    assert!(!text.contains('\n'), "{text}");
    // Who begins an epoch hears the same.
    let small = loader(Some(100));
    let error = thread::scope(|scope| small.epoch(scope, EpochOptions::new(50)).map(drop)).expect_err("too small");
    assert!(error.to_string().contains("the host budget is"), "{error}");
}

#[test]
fn the_plan_counts_what_changed_samples_take() {
    struct Longer;
    impl Transform for Longer {
        fn apply(&self, mut sample: Sample, _: Key) -> Result<Sample, DataError> {
            sample.set("input", vec![0.5; 100].into());
            Ok(sample)
        }

        fn features(&self, features: Features) -> Result<Features, DataError> {
            Ok(features.with("input", DType::F32, [100]))
        }
    }
    let loader = DataLoader::new(Computed(10)).transform(Longer);
    assert_eq!(loader.memory(5).expect("fits").batch_bytes, 5 * 404);
}

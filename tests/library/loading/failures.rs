//! Samples that cannot be read, panics, and callers that stop early.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tightfit::data::{DataLoader, Dataset, EpochOptions, Features, Key, OnError, Sample, Subset, Values};
use tightfit::error::DataError;
use tightfit::nn::Sequential;
use tightfit::train::{Config, DeviceSelector, FitOptions, Trainer};

use super::{Computed, batches, indices};

/// Some samples cannot be read.
#[derive(Clone)]
struct Broken {
    len: usize,
    bad: Vec<usize>,
}

impl Dataset for Broken {
    fn len(&self) -> usize {
        self.len
    }

    fn get(&self, index: usize) -> Result<Sample, DataError> {
        if self.bad.contains(&index) {
            return Err(DataError::Mismatch(format!("row {index} is damaged")));
        }
        Computed(self.len).get(index)
    }
}

struct Panics;

impl Dataset for Panics {
    fn len(&self) -> usize {
        40
    }

    fn get(&self, index: usize) -> Result<Sample, DataError> {
        assert!(index != 21, "sample 21 is a trap");
        Computed(40).get(index)
    }
}

const WORKERS: [usize; 4] = [0, 1, 2, 4];

#[test]
fn a_panic_comes_out_where_batches_are_asked_for() {
    for workers in WORKERS {
        let loader = DataLoader::new(Panics).workers(workers);
        let mut done = 0;
        let caught = catch_unwind(AssertUnwindSafe(|| {
            thread::scope(|scope| {
                let mut epoch = loader.epoch(scope, EpochOptions::new(4)).expect("begins");
                while let Some(batch) = epoch.next_batch().expect("no error") {
                    done += 1;
                    epoch.recycle(batch);
                }
            });
        }));
        let payload = caught.expect_err("it panics");
        let text = payload.downcast_ref::<String>().map(String::as_str).or(payload.downcast_ref::<&str>().copied());
        assert_eq!((text, done), (Some("sample 21 is a trap"), 5), "{workers} workers");
    }
}

#[test]
fn an_error_ends_the_epoch_at_its_batch() {
    for workers in WORKERS {
        let loader = DataLoader::new(Broken { len: 40, bad: vec![21, 30] }).workers(workers);
        thread::scope(|scope| {
            let mut epoch = loader.epoch(scope, EpochOptions::new(4)).expect("begins");
            for batch in 0..5 {
                let found = epoch.next_batch().expect("reads").expect("a batch");
                assert_eq!(found.indices()[0], batch * 4);
                epoch.recycle(found);
            }
            let error = epoch.next_batch().expect_err("sample 21").to_string();
            assert!(error.contains("row 21 is damaged"), "{error}");
            assert_eq!(epoch.next_batch().expect("it is over"), None);
        });
        assert!(loader.skipped().is_empty());
    }
}

#[test]
fn who_stops_early_ends_the_threads() {
    let read = AtomicUsize::new(0);
    struct Counted<'a>(&'a AtomicUsize);
    impl Dataset for Counted<'_> {
        fn len(&self) -> usize {
            100_000
        }

        fn get(&self, index: usize) -> Result<Sample, DataError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Computed(100_000).get(index)
        }

        fn features(&self) -> Result<Features, DataError> {
            Computed(100_000).features()
        }
    }
    for workers in WORKERS {
        read.store(0, Ordering::Relaxed);
        let loader = DataLoader::new(Counted(&read)).workers(workers);
        // The scope ends only once its threads have.
        thread::scope(|scope| {
            let mut epoch = loader.epoch(scope, EpochOptions::new(10)).expect("begins");
            epoch.next_batch().expect("reads").expect("a batch");
        });
        let most = 10 * loader.memory(10).expect("fits").batches;
        assert!(read.load(Ordering::Relaxed) <= most, "{workers} workers read {read:?} samples, at most {most}");
    }
}

#[test]
fn who_keeps_all_batches_gets_all() {
    for workers in WORKERS {
        let loader = DataLoader::new(Computed(100)).workers(workers).prefetch(1);
        let found = batches(&loader, EpochOptions::new(3), true).expect("reads");
        assert_eq!(indices(&found), (0..100).collect::<Vec<_>>());
    }
}

#[test]
fn training_takes_the_next_sample_that_can_be_read() {
    let bad = vec![0, 3, 4, 39];
    for transformed in [false, true] {
        let mut expected = None;
        for workers in WORKERS {
            let mut loader =
                DataLoader::new(Broken { len: 40, bad: bad.clone() }).workers(workers).on_error(OnError::Skip);
            if transformed {
                loader = loader.transform(|sample: Sample, _: Key| Ok(sample));
            }
            let options = EpochOptions { training: true, ..EpochOptions::new(8) };
            let found = batches(&loader, options.clone(), false).expect("reads");
            let seen = indices(&found);
            assert_eq!((seen[0], seen[3], seen[4], seen[5], seen[39]), (1, 5, 5, 5, 1));
            // Each is counted once, however often it is met.
            batches(&loader, options, false).expect("reads");
            assert_eq!(loader.skipped().len(), 4, "{:?}", loader.skipped());
            assert_eq!(*expected.get_or_insert(found.clone()), found, "{workers} workers");
        }
    }
}

#[test]
fn an_evaluation_leaves_out_what_cannot_be_read() {
    let bad: Vec<usize> = (8..12).chain([20, 33]).collect();
    let good = Broken { len: 36, bad: Vec::new() };
    let keep: Vec<usize> = (0..36).filter(|index| !bad.contains(index)).collect();
    let model = Sequential::new("m", [4]).linear(8).relu().linear(3);
    let config = Config::default().batch(4);
    let mut trainer = Trainer::new(model, config, DeviceSelector::Cpu).expect("a trainer");
    let good = Subset::new(good, keep).expect("samples");
    let (expected, outputs) = (trainer.evaluate(&good).expect("runs"), trainer.predict(&good).expect("runs"));
    assert_eq!(expected.samples, 30);
    for workers in WORKERS {
        let loader = DataLoader::new(Broken { len: 36, bad: bad.clone() }).workers(workers).on_error(OnError::Skip);
        let found = trainer.evaluate(&loader).expect("runs");
        assert_eq!((found.samples, found.accuracy), (expected.samples, expected.accuracy));
        assert!((found.loss - expected.loss).abs() < 1e-6 * expected.loss.abs(), "{found} {expected}");
        assert_eq!(trainer.predict(&loader).expect("runs"), outputs);
        assert_eq!(loader.skipped().len(), 6);
    }
}

#[test]
fn too_many_in_a_row_end_the_run() {
    let model = Sequential::new("m", [4]).linear(3);
    for workers in WORKERS {
        let broken = Broken { len: 400, bad: (200..300).collect() };
        let loader = DataLoader::new(broken).workers(workers).on_error(OnError::Skip);
        let mut trainer =
            Trainer::new(model.clone(), Config::default().batch(8), DeviceSelector::Cpu).expect("a trainer");
        let error = trainer.fit(&loader, FitOptions::epochs(1)).expect_err("100 in a row").to_string();
        assert!(error.contains("100 samples one after the other cannot be read"), "{error}");
        assert!(error.contains("row 299 is damaged") && !error.contains('\n'), "{error}");
        // One fewer does not.
        let broken = Broken { len: 400, bad: (200..299).collect() };
        trainer
            .fit(DataLoader::new(broken).workers(workers).on_error(OnError::Skip), FitOptions::epochs(1))
            .expect("trains");
    }
}

#[test]
fn samples_that_differ_are_named() {
    struct Ragged;
    impl Dataset for Ragged {
        fn len(&self) -> usize {
            10
        }

        fn get(&self, index: usize) -> Result<Sample, DataError> {
            Ok(Sample::new(vec![0.5; if index == 6 { 3 } else { 2 }]))
        }

        fn origin(&self, index: usize) -> String {
            format!("row {index} of table.csv")
        }
    }
    for workers in WORKERS {
        let loader = DataLoader::new(Ragged).workers(workers);
        let error = batches(&loader, EpochOptions::new(5), false).expect_err("they differ").to_string();
        assert!(error.contains("row 6 of table.csv") && error.contains("same shape"), "{error}");
        let found = batches(&loader.on_error(OnError::Skip), EpochOptions::new(5), false).expect("reads");
        assert_eq!(indices(&found), [0, 1, 2, 3, 4, 5, 7, 8, 9]);
        assert!(matches!(found[1].get("input"), Some(Values::F32(values)) if values.len() == 8));
    }
}

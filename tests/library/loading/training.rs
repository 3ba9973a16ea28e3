//! Trainings on loaders and streams are those on the same data in memory, bit for bit, also where they are interrupted.

use std::path::Path;
use std::sync::{Arc, Mutex};

use tightfit::data::{DataLoader, Dataset, EpochOptions, Key, Sample, Stream, Targets, TensorDataset, Values};
use tightfit::error::DataError;
use tightfit::nn::{Model, Sequential};
use tightfit::train::{
    Checkpoint, Checkpoints, Config, DeviceSelector, FitOptions, Optimizer, Recovery, Schedule, Trainer,
};

use super::{Computed, batches};
use crate::checkpoints::bits;
use crate::recovery::{Failure, Faults, faults};

const SAMPLES: usize = 26;

fn model() -> Model {
    Sequential::new("small", [4]).linear(6).relu().dropout(0.3).linear(3).into()
}

fn config() -> Config {
    Config::default().batch(4).optimizer(Optimizer::adam(0.01)).seed(3)
}

fn trainer() -> Trainer {
    Trainer::new(model(), config(), DeviceSelector::Cpu).expect("a trainer")
}

fn in_memory() -> TensorDataset {
    let samples: Vec<_> = (0..SAMPLES).map(|index| Computed(SAMPLES).get(index).expect("reads")).collect();
    let values = samples.iter().flat_map(|sample| match sample.get("input").expect("input").values() {
        Values::F32(values) => values.clone(),
        _ => panic!("floats"),
    });
    let labels = (0..SAMPLES as u32).map(|index| index % 3).collect();
    TensorDataset::new(Values::F32(values.collect()), [4], Targets::labels(labels, 3)).expect("fits")
}

fn loader(workers: usize) -> DataLoader<'static> {
    DataLoader::new(Computed(SAMPLES)).workers(workers)
}

/// Three passes in two epochs, in a shuffle buffer.
fn stream() -> Stream {
    let sample = |index| Computed(SAMPLES).get(index);
    Stream::new(move || (0..SAMPLES).map(sample), 9).shuffle(7)
}

#[test]
fn a_loader_trains_as_data_in_memory_does() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for drop_last in [true, false] {
        let trainer = || {
            let config = Config { drop_last, ..config() };
            Trainer::new(model(), config, DeviceSelector::Cpu).expect("a trainer")
        };
        let data = in_memory();
        let mut expected = trainer();
        let options = FitOptions { validation: Some((&data).into()), ..FitOptions::epochs(3) };
        let report = expected.fit(&data, options).expect("trains");
        assert_eq!(report.steps, if drop_last { 18 } else { 21 });
        let expected_bits = bits(&mut expected, folder.path());
        for (workers, of_validation) in [(0, 2), (1, 0), (2, 2), (4, 1)] {
            let mut found = trainer();
            let options = FitOptions { validation: Some(loader(of_validation)), ..FitOptions::epochs(3) };
            let of_loader = found.fit(loader(workers), options).expect("trains");
            assert_eq!(of_loader.history, report.history, "{workers} workers");
            assert!(bits(&mut found, folder.path()) == expected_bits, "{workers} workers");
            assert_eq!(found.evaluate(loader(workers)).expect("runs"), expected.evaluate(&data).expect("runs"));
            assert_eq!(found.predict(loader(workers)).expect("runs"), expected.predict(&data).expect("runs"));
        }
    }
}

/// Which samples were seen, by what they have.
type Seen = Arc<Mutex<Vec<(u64, u64)>>>;

/// A loader that adds noise from the key, and writes down which keys there were.
fn watched(workers: usize, seen: &Seen) -> DataLoader<'static> {
    let seen = Arc::clone(seen);
    let watch = move |mut sample: Sample, key: Key| -> Result<Sample, DataError> {
        seen.lock().expect("no panic").push((key.epoch, key.sample));
        let noise = (key.sample % 7) as f32 * 0.01 + key.epoch as f32 * 0.1;
        sample.set("input", vec![noise, 0.5, -noise, 0.25].into());
        Ok(sample)
    };
    loader(workers).transform(watch)
}

#[test]
fn a_fit_resumes_in_mid_epoch_with_another_number_of_workers() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let seen = Seen::default();
    let mut whole = trainer();
    whole.fit(watched(0, &seen), FitOptions::epochs(3)).expect("trains");
    let expected = bits(&mut whole, folder.path());
    let all = std::mem::take(&mut *seen.lock().expect("no panic"));
    assert_eq!(all.len(), 18 * 4);
    for stop in [1, 4, 6, 7, 11, 17] {
        for (before, after) in [(0, 4), (2, 0), (4, 1)] {
            let mut first = trainer();
            let options = FitOptions { max_steps: Some(stop), ..FitOptions::epochs(3) };
            let at = folder.path().join(format!("{stop}-{before}"));
            first.fit(watched(before, &Seen::default()), checkpointed(options, &at)).expect("trains");
            let mut second = trainer();
            second.restore(&Checkpoint::open_latest(&at).expect("one")).expect("the same training");
            let seen = Seen::default();
            second.fit(watched(after, &seen), FitOptions::epochs(3)).expect("trains");
            assert!(bits(&mut second, folder.path()) == expected, "from step {stop}, {before} and {after} workers");
            // The same samples, not one twice, though threads read them in any order.
            let mut found = std::mem::take(&mut *seen.lock().expect("no panic"));
            let mut rest = all[stop as usize * 4..].to_vec();
            found.sort_unstable();
            rest.sort_unstable();
            assert_eq!(found, rest);
        }
    }
}

fn checkpointed<'a>(options: FitOptions<'a>, at: &Path) -> FitOptions<'a> {
    FitOptions { checkpoints: Some(Checkpoints::new(at).each_epoch(false)), ..options }
}

#[test]
fn a_fit_on_a_stream_resumes_at_any_step() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut whole = trainer();
    let report = whole.fit(stream(), FitOptions::epochs(2)).expect("trains");
    assert_eq!((report.steps, report.epochs), (18, 2));
    let expected = bits(&mut whole, folder.path());
    for stop in 1..=18 {
        let at = folder.path().join(stop.to_string());
        let mut first = trainer();
        let options = FitOptions { max_steps: Some(stop), ..FitOptions::epochs(2) };
        let workers = stop as usize % 3;
        first.fit(DataLoader::stream(stream()).workers(workers), checkpointed(options, &at)).expect("trains");
        let mut second = trainer();
        second.restore(&Checkpoint::open_latest(&at).expect("one")).expect("the same training");
        let again = second.fit(DataLoader::stream(stream()).workers(2 - workers), FitOptions::epochs(2));
        assert_eq!(again.expect("trains").history, report.history, "from step {stop}");
        assert!(bits(&mut second, folder.path()) == expected, "from step {stop}");
    }
}

#[test]
fn a_device_lost_in_mid_epoch_changes_no_bit_of_a_fit_on_a_stream() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let train = |faults: &Faults, snapshot_every, workers| {
        let config = config().recovery(Recovery { replan: true, snapshot_every });
        let mut trainer = Trainer::with_backend(model(), config, Box::new(faults.clone())).expect("a trainer");
        trainer.fit(DataLoader::stream(stream()).workers(workers), FitOptions::epochs(2)).expect("trains");
        bits(&mut trainer, folder.path())
    };
    let expected = train(&Faults::default(), 100, 0);
    for launch in [0, 3, 8, 9, 13, 17] {
        for (snapshot_every, workers) in [(1, 0), (4, 2), (100, 1)] {
            let found = train(&faults(&[(launch, Failure::Loss)]), snapshot_every, workers);
            assert!(found == expected, "launch {launch}, snapshots every {snapshot_every}, {workers} workers");
        }
    }
}

#[test]
fn an_evaluation_of_a_stream_takes_batches_of_the_training() {
    let model = || Sequential::new("m", [4]).linear(64).relu().linear(3);
    let whole = Trainer::new(model(), config(), DeviceSelector::Cpu).expect("a trainer");
    let small = config().budget_bytes(whole.plan().minimum_budget_bytes);
    for config in [config(), small] {
        let mut trainer = Trainer::new(model(), config, DeviceSelector::Cpu).expect("a trainer");
        let evaluation = trainer.evaluate(stream()).expect("runs");
        assert_eq!(evaluation.samples, 9 * 4);
        let predicted = trainer.predict(DataLoader::stream(stream()).workers(2)).expect("runs");
        assert_eq!(predicted.shape[..], [9 * 4, 3]);
        // In the order of the stream, which begins anew after its end.
        let once = trainer.predict(&Computed(SAMPLES)).expect("runs").values;
        let again: Vec<f32> = once.iter().copied().cycle().take(9 * 4 * 3).collect();
        assert_eq!(predicted.values, again);
    }
}

#[test]
fn a_stream_without_steps_is_refused() {
    let sample = |index| Computed(SAMPLES).get(index);
    let stream = || Stream::new(move || (0..SAMPLES).map(sample), 0);
    for schedule in [None, Some(Schedule::cosine())] {
        let mut trainer =
            Trainer::new(model(), Config { schedule, ..config() }, DeviceSelector::Cpu).expect("a trainer");
        for error in [
            trainer.fit(stream(), FitOptions::epochs(2)).expect_err("no steps").to_string(),
            trainer.evaluate(stream()).expect_err("no steps").to_string(),
        ] {
            assert!(error.contains("both must be at least 1") && !error.contains('\n'), "{error}");
        }
    }
}

#[test]
fn steps_on_batches_are_those_of_a_fit() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut expected = trainer();
    expected.fit(loader(0), FitOptions::epochs(1)).expect("trains");
    let mut by_hand = trainer();
    let options = EpochOptions { drop_last: true, ..EpochOptions::new(4).shuffled(3) };
    for batch in batches(&loader(2), options, false).expect("reads") {
        by_hand.step_batch(&batch).expect("a step");
    }
    let parameters = |trainer: &mut Trainer| trainer.parameters_sha256().expect("reads");
    assert_eq!(parameters(&mut by_hand), parameters(&mut expected));
    let wrong = Computed(9);
    let batch = &batches(&DataLoader::new(wrong), EpochOptions::new(9), false).expect("reads")[0];
    let error = by_hand.step_batch(batch).expect_err("too many").to_string();
    assert!(error.contains("takes the 4 samples of a batch"), "{error}");
    assert!(bits(&mut by_hand, folder.path()).len() == 2);
}

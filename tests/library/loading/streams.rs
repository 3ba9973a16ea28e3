//! Streams: their order, and that they go on where they were.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tightfit::data::{Batch, DataLoader, EpochOptions, OnError, Sample, Stream, StreamState};
use tightfit::error::DataError;

use super::batches;

fn sample(number: u64) -> Result<Sample, DataError> {
    Ok(Sample::new([number as f32, -(number as f32)]).with_target(number as u32 % 3))
}

/// A stream of so many samples in both forms.
fn streams(len: u64, steps: usize, buffer: usize) -> [Stream; 2] {
    [Stream::new(move || (0..len).map(sample), steps), Stream::seekable(move |start| (start..len).map(sample), steps)]
        .map(|stream| stream.shuffle(buffer))
}

fn numbers(batches: &[Batch]) -> Vec<usize> {
    super::indices(batches)
}

/// What an epoch reads from a state, and the states after each of its batches.
fn epoch(
    loader: &DataLoader<'_>,
    options: EpochOptions,
    seed: Option<u64>,
) -> Result<(Vec<Batch>, Vec<Option<StreamState>>), DataError> {
    let options = seed.map_or(options.clone(), |seed| options.shuffled(seed));
    std::thread::scope(|scope| {
        let mut epoch = loader.epoch(scope, options)?;
        let (mut all, mut states) = (Vec::new(), Vec::new());
        while let Some(batch) = epoch.next_batch()? {
            all.push(batch);
            states.push(epoch.stream_state().cloned());
        }
        Ok((all, states))
    })
}

#[test]
fn without_a_shuffle_samples_come_in_their_order_again_and_again() {
    for stream in streams(7, 6, 100) {
        let loader = DataLoader::stream(stream);
        // The buffer is of no use where no order is asked for.
        let found = batches(&loader, EpochOptions::new(3), false).expect("reads");
        assert_eq!(numbers(&found), (0..18).map(|i| i % 7).collect::<Vec<_>>());
        assert_eq!(found[2].values("input"), [6.0, -6.0, 0.0, -0.0, 1.0, -1.0]);
        // Each evaluation begins anew.
        assert_eq!(batches(&loader, EpochOptions::new(3), false).expect("reads"), found);
    }
}

#[test]
fn a_buffer_shuffles_each_pass_from_the_seed() {
    for (len, buffer) in [(12, 4), (12, 12), (12, 100), (12, 1)] {
        let mut all = Vec::new();
        for workers in [0, 1, 2, 4] {
            for stream in streams(len, 6, buffer) {
                let loader = DataLoader::stream(stream).workers(workers);
                all.push(epoch(&loader, EpochOptions::new(4), Some(9)).expect("reads"));
            }
        }
        assert!(all.iter().all(|found| *found == all[0]), "buffer {buffer}");
        let seen = numbers(&all[0].0);
        for pass in seen.chunks(12) {
            let mut sorted = pass.to_vec();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..12).collect::<Vec<_>>(), "every sample once a pass");
            // None comes before it can be in the buffer.
            assert!(pass.iter().enumerate().all(|(place, number)| *number < place + buffer.max(1)));
        }
        assert_eq!(seen[..12] != seen[12..], buffer > 1, "another order each pass");
        let [stream, _] = streams(len, 6, buffer);
        let (other, _) = epoch(&DataLoader::stream(stream), EpochOptions::new(4), Some(10)).expect("reads");
        assert_eq!(numbers(&other) != seen, buffer > 1);
    }
}

#[test]
fn a_state_goes_on_with_the_same_samples() {
    // Epochs of several passes, and passes of several epochs; buffers that are smaller and larger than a pass.
    for (len, steps) in [(5, 9), (50, 4), (12, 4)] {
        for buffer in [0, 1, 3, 20] {
            for seed in [None, Some(4)] {
                let [whole, _] = streams(len, 3 * steps, buffer);
                let (expected, states) = epoch(&DataLoader::stream(whole), EpochOptions::new(3), seed).expect("reads");
                for (at, state) in states.iter().enumerate().take(expected.len() - 1) {
                    for (stream, workers) in streams(len, 3 * steps, buffer).into_iter().zip([0, 2]) {
                        let options =
                            EpochOptions { first_batch: at + 1, stream: state.clone(), ..EpochOptions::new(3) };
                        let loader = DataLoader::stream(stream).workers(workers);
                        let (rest, ends) = epoch(&loader, options, seed).expect("goes on");
                        assert!(rest == expected[at + 1..], "{len} {steps} {buffer} {seed:?} after batch {at}");
                        assert_eq!(ends, states[at + 1..]);
                    }
                }
                // A state survives being written.
                let text = serde_json::to_string(&states[1]).expect("writes");
                assert_eq!(serde_json::from_str::<Option<StreamState>>(&text).expect("reads"), states[1]);
                // Three epochs of one stream are one that is three times as long.
                for stream in streams(len, steps, buffer) {
                    let loader = DataLoader::stream(stream).workers(1);
                    let (mut found, mut state) = (Vec::new(), None);
                    for number in 0..3 {
                        let options = EpochOptions { stream: state, epoch: number, ..EpochOptions::new(3) };
                        let (of_epoch, states) = epoch(&loader, options, seed).expect("reads");
                        found.extend(of_epoch);
                        state = states.last().cloned().flatten();
                    }
                    assert!(found == expected, "{len} {steps} {buffer} {seed:?}");
                }
            }
        }
    }
}

#[test]
fn the_next_epoch_reads_nothing_again() {
    let made = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&made);
    let stream = Stream::new(
        move || {
            let counted = Arc::clone(&counted);
            (0..).map(move |number| {
                counted.fetch_add(1, Ordering::Relaxed);
                sample(number)
            })
        },
        5,
    );
    let loader = DataLoader::stream(stream.shuffle(10)).workers(2);
    let mut state = None;
    for epoch_number in 0..20 {
        let options = EpochOptions { stream: state, epoch: epoch_number, ..EpochOptions::new(4) };
        let (found, states) = epoch(&loader, options, Some(1)).expect("reads");
        assert_eq!(found.len(), 5);
        state = states.last().cloned().flatten();
    }
    // What was trained on, the buffer, and one to see what samples have.
    assert_eq!(made.load(Ordering::Relaxed), 20 * 5 * 4 + 9 + 1);
}

#[test]
fn streams_that_end_too_early_are_refused() {
    for workers in [0, 2] {
        for stream in streams(0, 3, 4) {
            let error = batches(&DataLoader::stream(stream).workers(workers), EpochOptions::new(2), false);
            let error = error.expect_err("nothing").to_string();
            assert!(error.contains("the stream has no samples"), "{error}");
        }
        let [long, _] = streams(20, 5, 4);
        let (_, states) = epoch(&DataLoader::stream(long), EpochOptions::new(3), Some(1)).expect("reads");
        for stream in streams(6, 5, 4) {
            let options = EpochOptions { first_batch: 4, stream: states[3].clone(), ..EpochOptions::new(3) };
            let loader = DataLoader::stream(stream).workers(workers);
            let error = epoch(&loader, options, Some(1)).expect_err("it is shorter").to_string();
            assert!(error.contains("the stream ends after") && error.contains("give it the same stream"), "{error}");
        }
    }
    let [stream, _] = streams(5, 0, 4);
    let error = batches(&DataLoader::stream(stream), EpochOptions::new(2), false).expect_err("no steps").to_string();
    assert!(error.contains("both must be at least 1"), "{error}");
}

#[test]
fn samples_of_streams_are_skipped_and_counted_once() {
    let broken = |number: u64| match number {
        0 | 5 | 6 => Err(DataError::Mismatch(format!("record {number} is damaged"))),
        _ => sample(number),
    };
    let stream = move || Stream::new(move || (0..9).map(broken), 4);
    for workers in [0, 1, 2] {
        let loader = DataLoader::stream(stream().shuffle(3)).workers(workers).on_error(OnError::Skip);
        let (found, states) = epoch(&loader, EpochOptions::new(3), Some(1)).expect("reads");
        let mut seen = numbers(&found);
        seen.sort_unstable();
        assert_eq!(seen, [1, 1, 2, 2, 3, 3, 4, 4, 7, 7, 8, 8]);
        assert_eq!(loader.skipped().len(), 3, "{:?}", loader.skipped());
        // The rest is the same where the unreadable lie between.
        let loader = DataLoader::stream(stream().shuffle(3)).workers(workers).on_error(OnError::Skip);
        let options = EpochOptions { first_batch: 1, stream: states[0].clone(), ..EpochOptions::new(3) };
        assert!(epoch(&loader, options, Some(1)).expect("goes on").0 == found[1..]);

        let later =
            Stream::new(move || (0..9).map(move |number| if number == 5 { broken(5) } else { sample(number) }), 4);
        let error = epoch(&DataLoader::stream(later).workers(workers), EpochOptions::new(3), None);
        let error = error.expect_err("record 5").to_string();
        assert!(error.contains("sample 5 of the stream") && error.contains("record 5 is damaged"), "{error}");
    }
    let hopeless = move |number: u64| if number < 3 { sample(number) } else { broken(5) };
    let loader = DataLoader::stream(Stream::new(move || (0..).map(hopeless), 4)).on_error(OnError::Skip);
    let error = epoch(&loader, EpochOptions::new(2), None).expect_err("nothing but damage").to_string();
    assert!(error.contains("100 samples one after the other cannot be read"), "{error}");
}

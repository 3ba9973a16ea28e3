//! Batches are the same with any number of threads.

use rand_chacha::rand_core::Rng;
use tightfit::data::{Batch, BatchTransform, DataLoader, EpochOptions, Key, Sample, Values, WeightedSampler};
use tightfit::error::DataError;

use super::{Computed, batches, indices};

/// Adds what only the key decides.
fn noisy(mut sample: Sample, key: Key) -> Result<Sample, DataError> {
    let noise = key.random("noise").next_u32();
    sample.set("noise", noise.into());
    Ok(sample)
}

/// Each sample also has what the one before it in the batch has.
struct Neighbors;

impl BatchTransform for Neighbors {
    fn apply(&self, batch: &mut Batch, key: Key) -> Result<(), DataError> {
        batch.change("noise", |values, shape| {
            let Values::U32(mut values) = values else { panic!("other noise") };
            values.rotate_left(1);
            values[0] ^= key.random("batch").next_u32();
            Ok((Values::U32(values), shape))
        })
    }
}

fn loader() -> DataLoader<'static> {
    DataLoader::new(Computed(53)).transform(noisy).batch_transform(Neighbors)
}

#[test]
fn batches_do_not_depend_on_threads() {
    for drop_last in [false, true] {
        let options = EpochOptions { drop_last, ..EpochOptions::new(8).shuffled(5).epoch(2) };
        let expected = batches(&loader(), options.clone(), false).expect("reads");
        assert_eq!(expected.len(), if drop_last { 6 } else { 7 });
        let mut sorted = indices(&expected);
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), if drop_last { 48 } else { 53 });
        let least = loader().memory(8).expect("fits").total_bytes();
        for workers in [0, 1, 2, 4] {
            for prefetch in 1..=5 {
                for budget in [None, Some(least), Some(2 * least)] {
                    let mut loader = loader().workers(workers).prefetch(prefetch);
                    if let Some(budget) = budget {
                        loader = loader.host_budget_bytes(budget);
                    }
                    for first_batch in [0, 3, expected.len()] {
                        let options = EpochOptions { first_batch, ..options.clone() };
                        let found = batches(&loader, options, prefetch % 2 == 0).expect("reads");
                        assert!(found == expected[first_batch..], "{workers} {prefetch} {budget:?} {first_batch}");
                    }
                }
            }
        }
    }
}

#[test]
fn seed_and_epoch_decide_the_order_and_the_noise() {
    let of = |seed, epoch| batches(&loader(), EpochOptions::new(53).shuffled(seed).epoch(epoch), false).expect("reads");
    let (first, epoch, seed) = (of(1, 0), of(1, 1), of(2, 0));
    assert_eq!(first, of(1, 0));
    for other in [epoch, seed] {
        assert_ne!(indices(&first), indices(&other));
        assert_ne!(first[0].ints("noise"), other[0].ints("noise"));
    }
    // An evaluation sees samples as they are.
    let plain = batches(&loader(), EpochOptions::new(53), false).expect("reads");
    assert_eq!(indices(&plain), (0..53).collect::<Vec<_>>());
    assert!(plain[0].get("noise").is_none());
}

#[test]
fn drawn_samples_do_not_depend_on_threads() {
    let of = |workers| {
        let weights = (0..53).map(|i| if i < 5 { 20.0 } else { 1.0 }).collect::<Vec<f32>>();
        let loader = loader().sampler(WeightedSampler::new(weights).expect("weights")).workers(workers);
        batches(&loader, EpochOptions::new(8).shuffled(3), false).expect("reads")
    };
    let expected = of(0);
    let seen = indices(&expected);
    assert_eq!(seen.len(), 53);
    assert!(seen.iter().filter(|index| **index < 5).count() > 20, "{seen:?}");
    for workers in [1, 2, 4] {
        assert_eq!(of(workers), expected);
    }
}

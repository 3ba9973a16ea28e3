//! Splits, subsets, weights of classes and samplers: nothing twice, nothing left out, all from the seed.

use tightfit::data::split::{self, Split};
use tightfit::data::{
    Batch, DataLoader, Dataset, EpochOptions, Key, Sample, Subset, Targets, TensorDataset, Values, WeightedSampler,
};
use tightfit::error::DataError;

/// Each sample once, over all parts.
fn assert_whole(split: &Split, len: usize) {
    let mut all = [&split.training[..], &split.validation, &split.test].concat();
    all.sort_unstable();
    assert_eq!(all, (0..len).collect::<Vec<_>>());
}

fn count(labels: &[u32], samples: &[usize], class: u32) -> usize {
    samples.iter().filter(|sample| labels[**sample] == class).count()
}

#[test]
fn shares_are_whole_and_from_the_seed() {
    for (len, share, expected) in [(2, 0.01, 1), (2, 0.99, 1), (10, 0.25, 3), (1000, 0.2, 200)] {
        let parts = split::share(len, share, 1).unwrap();
        assert_whole(&parts, len);
        assert_eq!(parts.validation.len(), expected, "{share} of {len}");
        assert_eq!(parts, split::share(len, share, 1).unwrap());
    }
    assert_ne!(split::share(1000, 0.2, 1).unwrap(), split::share(1000, 0.2, 2).unwrap());
}

#[test]
fn stratified_parts_have_the_share_of_each_class() {
    let labels: Vec<u32> = (0..200).map(|i| if i % 10 == 0 { 4 } else { i % 3 }).chain([7]).collect();
    for seed in 0..5 {
        let parts = split::stratified(&labels, 0.25, seed).unwrap();
        assert_whole(&parts, 201);
        assert_eq!(parts.unsplit, [7]);
        for class in [0, 1, 2, 4] {
            let all = count(&labels, &(0..201).collect::<Vec<_>>(), class);
            assert_eq!(count(&labels, &parts.validation, class), (all as f64 * 0.25).round() as usize, "class {class}");
        }
        assert_eq!(count(&labels, &parts.training, 7), 1);
    }
    let rare = split::stratified(&[0, 0, 0, 0, 0, 0, 1, 1], 0.05, 0).unwrap();
    assert_eq!((count(&[0, 0, 0, 0, 0, 0, 1, 1], &rare.validation, 1), rare.validation.len()), (1, 2));
}

#[test]
fn folds_are_each_sample_once() {
    let labels: Vec<u32> = (0..103).map(|i| u32::from(i % 7 == 0)).collect();
    type Fold<'a> = &'a dyn Fn(usize) -> Split;
    let plain = |fold| split::folds(103, 5, fold, 3).unwrap();
    let stratified = |fold| split::stratified_folds(&labels, 5, fold, 3).unwrap();
    for fold_of in [&plain as Fold<'_>, &stratified] {
        let folds: Vec<_> = (0..5).map(fold_of).collect();
        let mut all: Vec<_> = folds.iter().flat_map(|fold| fold.validation.clone()).collect();
        all.sort_unstable();
        assert_eq!(all, (0..103).collect::<Vec<_>>());
        for fold in &folds {
            assert_whole(fold, 103);
            assert!((20..=21).contains(&fold.validation.len()), "{}", fold.validation.len());
        }
    }
    for fold in 0..5 {
        assert_eq!(count(&labels, &stratified(fold).validation, 1), 3);
    }
    assert_eq!(split::stratified_folds(&[0, 0, 0, 1], 3, 0, 0).unwrap().unsplit, [1]);
}

#[test]
fn parts_by_order_follow_each_other() {
    let parts = split::by_order(10, 0.2, 0.1).unwrap();
    assert_eq!((parts.training, parts.validation, parts.test), ((0..7).collect(), vec![7, 8], vec![9]));
    for (len, validation, test) in [(2, 0.9, 0.0), (3, 0.49, 0.5), (3, 0.01, 0.98), (1000, 0.5, 0.499)] {
        let parts = split::by_order(len, validation, test).unwrap();
        assert_whole(&parts, len);
        assert!(!parts.training.is_empty() && !parts.validation.is_empty(), "{parts:?}");
        assert_eq!(parts.test.is_empty(), test == 0.0, "{parts:?}");
    }
}

#[test]
fn what_cannot_be_split_is_said_in_one_sentence() {
    let refused: [(Result<Split, DataError>, &str); 14] = [
        (split::share(10, 0.0, 0), "the validation share is 0: it must be above 0 and below 1"),
        (split::share(10, 1.0, 0), "the validation share is 1"),
        (split::share(10, -0.2, 0), "the validation share is -0.2"),
        (split::share(10, f64::NAN, 0), "the validation share is NaN"),
        (split::share(1, 0.5, 0), "1 sample cannot be split: there must be at least 2"),
        (split::share(0, 0.5, 0), "0 samples cannot be split"),
        (split::stratified(&[0, 1, 2], 0.5, 0), "no class has two samples"),
        (split::folds(10, 1, 0, 0), "10 samples cannot be split into 1 fold"),
        (split::folds(3, 4, 0, 0), "3 samples cannot be split into 4 folds"),
        (split::stratified_folds(&[0, 0], 2, 2, 0), "there is no fold 2 of 2: folds are counted from 0 to 1"),
        (split::by_order(10, 0.5, 0.5), "shares of 0.5 for validation and 0.5 for the test are not possible"),
        (split::by_order(10, 0.0, 0.0), "shares of 0 for validation"),
        (split::by_order(10, f64::INFINITY, 0.0), "shares of inf for validation"),
        (split::by_order(2, 0.2, 0.2), "2 samples cannot be split into 3 parts"),
    ];
    for (split, expected) in refused {
        let message = split.unwrap_err().to_string();
        assert!(message.contains(expected) && !message.contains('\n'), "{message}");
    }
}

#[test]
fn a_subset_is_its_samples_of_the_dataset() {
    let data =
        TensorDataset::new(Values::F32((0..8).map(|i| i as f32).collect()), [2], Targets::labels(vec![0, 1, 2, 1], 3))
            .unwrap();
    let subset = Subset::new(&data, [3, 0, 3]).unwrap();
    assert_eq!((subset.len(), subset.get(1).unwrap()), (3, data.get(0).unwrap()));
    assert_eq!((subset.label(0).unwrap(), subset.origin(0)), (Some(1), "sample 3".to_owned()));
    assert_eq!((subset.features().unwrap(), subset.tensors()), (data.features().unwrap(), None));
    assert_eq!(subset.host_bytes(), data.host_bytes() + 12);
    let mut batch = Batch::default();
    subset.read(&[2, 1], &mut batch).unwrap();
    assert_eq!((batch.values("input"), batch.indices()), (vec![6.0, 7.0, 0.0, 1.0], &[2, 1][..]));
    let of_subset = Subset::new(&subset, [1]).unwrap();
    assert_eq!(of_subset.get(0).unwrap(), data.get(0).unwrap());
    for message in [
        Subset::new(&data, [4]).unwrap_err().to_string(),
        Subset::new(&data, []).unwrap_err().to_string(),
        subset.get(3).unwrap_err().to_string(),
        subset.read(&[0, 3], &mut batch).unwrap_err().to_string(),
    ] {
        assert!(
            message.contains("has no sample 4") || message.contains("has none") || message.contains("sample 3 of"),
            "{message}"
        );
    }
}

#[test]
fn labels_are_asked_for_without_samples() {
    struct Unreadable;
    impl Dataset for Unreadable {
        fn len(&self) -> usize {
            3
        }
        fn get(&self, index: usize) -> Result<Sample, DataError> {
            Err(DataError::Mismatch(format!("sample {index} is not read")))
        }
        fn label(&self, index: usize) -> Result<Option<u32>, DataError> {
            Ok(Some(index as u32 % 2))
        }
    }
    assert_eq!(split::labels(&Unreadable).unwrap(), [0, 1, 0]);
    assert_eq!(split::labels(&Subset::new(Unreadable, [1, 2]).unwrap()).unwrap(), [1, 0]);
    let unlabeled = TensorDataset::unlabeled(Values::F32(vec![0.0; 2]), [1]).unwrap();
    let message = split::labels(&unlabeled).unwrap_err().to_string();
    assert!(message.contains("sample 0 has not one label"), "{message}");
}

#[test]
fn class_weights_are_those_of_scikit_learn() {
    // compute_class_weight("balanced", classes=[0, 1, 2], y=[0, 0, 0, 0, 1, 1, 2])
    let weights = split::class_weights(&[0, 0, 0, 0, 1, 1, 2], 3).unwrap();
    for (found, expected) in weights.iter().zip([0.583_333_3, 1.166_666_6, 2.333_333_3]) {
        assert!((found - expected).abs() < 1e-6, "{found} for {expected}");
    }
    let message = split::class_weights(&[0, 2], 4).unwrap_err().to_string();
    assert!(message.contains("classes 1, 3 have no sample"), "{message}");
    let message = split::class_weights(&[0, 2], 2).unwrap_err().to_string();
    assert!(message.contains("label 2 of sample 1 is out of range"), "{message}");
    let message = split::class_weights(&[0], 100).unwrap_err().to_string();
    assert!(message.contains("classes 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 89 more have"), "{message}");
}

#[test]
fn samplers_draw_by_weight_from_seed_and_epoch() {
    let labels: Vec<u32> = (0..4000).map(|i| u32::from(i % 20 == 0)).collect();
    let sampler = WeightedSampler::balanced(&labels, 2).unwrap();
    let order = sampler.order(9, 2).unwrap();
    assert_eq!((order.len(), &order), (4000, &sampler.order(9, 2).unwrap()));
    assert_ne!(order, sampler.order(9, 3).unwrap());
    assert_ne!(order, sampler.order(10, 2).unwrap());
    let rare = order.iter().filter(|sample| labels[**sample] == 1).count();
    assert!((1850..2150).contains(&rare), "{rare} of 4000");
    // With replacement: of 200 rare samples all are there, of the others some are not.
    let mut seen = order.clone();
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() < 2500 && seen.iter().filter(|sample| labels[**sample] == 1).count() == 200, "{}", seen.len());

    let sampler = WeightedSampler::new([0.0, 1.0, 0.0, 3.0, 0.0]).unwrap();
    let mut counts = [0; 5];
    (0..2000).for_each(|epoch| sampler.order(0, epoch).unwrap().iter().for_each(|&sample| counts[sample] += 1));
    assert!(counts[0] + counts[2] + counts[4] == 0 && (2350..2650).contains(&counts[1]), "{counts:?}");
}

#[test]
fn weights_that_make_no_sense_are_refused() {
    for weights in [vec![], vec![0.0, 0.0], vec![1.0, -1.0], vec![f32::NAN], vec![f32::INFINITY]] {
        let message = WeightedSampler::new(weights.clone()).unwrap_err().to_string();
        assert!(message.contains("weight"), "{weights:?}: {message}");
    }
}

#[test]
fn loaders_train_on_samples_that_are_drawn() {
    let labels: Vec<u32> = (0..40).map(|i| u32::from(i == 3)).collect();
    let data = TensorDataset::new(Values::F32(vec![0.0; 40]), [1], Targets::labels(labels.clone(), 2)).unwrap();
    let sampler = WeightedSampler::balanced(&labels, 2).unwrap();
    // What is drawn into the sample is what its key says.
    let marked = |sample: Sample, key: Key| Ok(sample.with("input", [key.sample as f32]));
    let read = |batch: usize, workers: usize, options: fn(EpochOptions) -> EpochOptions| {
        let loader = DataLoader::new(&data).transform(marked).sampler(sampler.clone()).workers(workers);
        std::thread::scope(|scope| {
            let mut batches = loader.epoch(scope, options(EpochOptions::new(batch)))?;
            let mut seen = Vec::new();
            while let Some(batch) = batches.next_batch()? {
                seen.extend(batch.indices().iter().copied().zip(batch.values("input")));
            }
            Ok::<_, DataError>(seen)
        })
        .unwrap()
    };
    let drawn = read(7, 0, |options| options.shuffled(5).epoch(1));
    assert_eq!(drawn.iter().map(|(index, _)| *index).collect::<Vec<_>>(), sampler.order(5, 1).unwrap());
    assert!(drawn.iter().filter(|(index, _)| *index == 3).count() > 10);
    let places: Vec<f32> = drawn.iter().map(|(_, key)| *key).collect();
    assert_eq!(places, (0..40).map(|place| place as f32).collect::<Vec<_>>());
    assert_eq!(read(16, 2, |options| options.shuffled(5).epoch(1)), drawn);
    // An evaluation has each sample once.
    let evaluated = read(16, 2, |options| options);
    assert_eq!(evaluated.iter().map(|(index, _)| *index).collect::<Vec<_>>(), (0..40).collect::<Vec<_>>());

    let loader = DataLoader::new(&data).sampler(WeightedSampler::new([1.0; 3]).unwrap());
    let message = std::thread::scope(|scope| match loader.epoch(scope, EpochOptions::new(4).shuffled(1)) {
        Ok(_) => panic!("an epoch"),
        Err(error) => error.to_string(),
    });
    assert!(message.contains("40 samples but 3 weights"), "{message}");
}

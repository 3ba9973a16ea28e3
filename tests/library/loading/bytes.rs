//! Bytes travel as they are and become numbers on the device.

use std::collections::HashMap;

use tightfit::data::{Array, DataLoader, Dataset, Features, OnError, Sample, Targets, TensorDataset, Values};
use tightfit::error::DataError;
use tightfit::nn::{Model, Normalization, Sequential};
use tightfit::tensor::DType;
use tightfit::train::{Config, DeviceSelector, FitOptions, Optimizer, Preprocessing, StepReport, Trainer};

/// `gpu` where there is one, and always the CPU.
fn devices() -> Vec<String> {
    crate::common::gpu().into_iter().chain(["cpu".to_owned()]).collect()
}

fn bytes(shape: [usize; 3], count: usize) -> Vec<u8> {
    let numel: usize = shape.iter().product();
    (0..numel * count).map(|i| ((i * 7919 + i / 13) % 256) as u8).collect()
}

fn labels(count: usize) -> Targets {
    Targets::labels((0..count as u32).map(|i| i % 3).collect(), 3)
}

/// The same images as bytes and as numbers.
fn pair(shape: [usize; 3], count: usize, of: &Normalization) -> [TensorDataset; 2] {
    let bytes = bytes(shape, count);
    let plane = shape[1] * shape[2];
    let floats = bytes.iter().enumerate().map(|(i, &byte)| of.apply(i / plane % shape[0], byte)).collect();
    [Values::U8(bytes), Values::F32(floats)]
        .map(|values| TensorDataset::new(values, shape, labels(count)).expect("fits"))
}

fn model(shape: [usize; 3]) -> Model {
    Sequential::new("small", shape).conv2d(4, 3).relu().flatten().linear(3).into()
}

#[test]
fn a_model_of_bytes_trains_as_one_of_numbers() {
    let three = Normalization::new([0.4, 0.5, 0.6], [0.2, 0.3, 0.25]).expect("possible");
    for device in devices() {
        // Numbers of bytes that are no whole words, alone and in micro-batches of odd sizes.
        for (shape, batch, parts, of) in [
            ([3, 8, 8], 4, 1, Normalization::unit()),
            ([3, 5, 7], 9, 3, three.clone()),
            ([3, 5, 7], 5, 1, three.clone()),
            ([1, 5, 5], 3, 3, Normalization::unit()),
        ] {
            for drop_last in [true, false] {
                // With it off, the last batch is short.
                let [of_bytes, of_numbers] = pair(shape, 3 * batch + 2, &of);
                let run = |model: Model, data: &TensorDataset, workers| {
                    let config = Config::default().batch(batch).micro_batches(parts).optimizer(Optimizer::sgd(0.05));
                    let mut trainer = Trainer::new(model, Config { drop_last, ..config }, &device).expect("a trainer");
                    let mut losses = Vec::new();
                    let mut on_step = |step: &StepReport| losses.push(step.loss);
                    let options = FitOptions { on_step: Some(&mut on_step), ..FitOptions::epochs(2) };
                    trainer.fit(DataLoader::new(data).workers(workers), options).expect("trains");
                    losses.push(trainer.evaluate(data).expect("runs").loss as f32);
                    assert_eq!(trainer.measured_peak_bytes(), trainer.plan().peak_bytes);
                    (losses, trainer.predict(data).expect("runs").values)
                };
                let (expected, predicted) = run(model(shape), &of_numbers, 0);
                let (found, of_found) = run(model(shape).normalized(of.clone()), &of_bytes, 2);
                assert_eq!(found.len(), if drop_last { 7 } else { 9 });
                let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-6 * a.abs().max(1.0) * 4.0;
                assert!(expected.iter().zip(&found).all(close), "{device} {shape:?}: {expected:?} {found:?}");
                let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 * a.abs().max(1.0);
                assert!(predicted.iter().zip(&of_found).all(close), "{device} {shape:?}");
                assert_ne!(found[0], found[1]);
            }
        }
    }
}

#[test]
fn bytes_are_a_quarter_of_what_goes_up() {
    let shape = [3, 32, 32];
    let input = |model: Model| {
        let trainer = Trainer::new(model, Config::default().batch(8), DeviceSelector::Cpu).expect("a trainer");
        let planned = trainer.planned();
        let graph = &planned.graphs[planned.plan.schedule[0]];
        graph.value(graph.find("input").expect("an input")).desc.size_bytes()
    };
    let (numbers, of_bytes) = (input(model(shape)), input(model(shape).normalized(Normalization::imagenet())));
    assert_eq!((numbers, of_bytes), (8 * 3 * 32 * 32 * 4, 8 * 3 * 32 * 32));
}

#[test]
fn statistics_are_those_of_two_passes() {
    let shape = [3, 6, 5];
    let data = &pair(shape, 150, &Normalization::unit())[0];
    let fitted = Normalization::fit(data, |_| true).expect("bytes");
    let all = bytes(shape, 150);
    for channel in 0..3 {
        let of_channel = || {
            let pixels = all.iter().enumerate().filter(move |(i, _)| i / 30 % 3 == channel);
            pixels.map(|(_, &byte)| f64::from(byte) / 255.0)
        };
        let count = of_channel().count() as f64;
        let mean = of_channel().sum::<f64>() / count;
        let std = (of_channel().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt();
        assert!((fitted.mean()[channel] - mean).abs() < 1e-12, "{fitted:?}");
        assert!((fitted.std()[channel] - std).abs() < 1e-12, "{fitted:?}");
    }
    // The same with threads; and of what was read until then where it is stopped.
    assert_eq!(Normalization::fit(DataLoader::new(data).workers(2), |_| true).expect("bytes"), fitted);
    let mut told = Vec::new();
    let part = Normalization::fit(data, |done| {
        told.push(done);
        done < 100
    });
    assert_eq!(told, [64, 128]);
    assert_eq!(part.expect("bytes"), Normalization::fit(&data.take(128).expect("samples"), |_| true).expect("bytes"));
}

fn image_of(channels: usize, byte: u8) -> Result<Sample, DataError> {
    let array = Array::new(Values::U8(vec![byte; channels * 4]), [channels, 2, 2])?;
    Ok(Sample::new(array))
}

type Read = fn(usize) -> Result<Sample, DataError>;

struct Of(Read);

impl Dataset for Of {
    fn len(&self) -> usize {
        70
    }

    fn get(&self, index: usize) -> Result<Sample, DataError> {
        (self.0)(index)
    }
}

/// Says what its samples have without reading one.
struct Late(Read);
impl Dataset for Late {
    fn len(&self) -> usize {
        70
    }

    fn get(&self, index: usize) -> Result<Sample, DataError> {
        (self.0)(index)
    }

    fn features(&self) -> Result<Features, DataError> {
        Ok(Features::new(DType::U8, [1, 2, 2]))
    }
}

#[test]
fn what_has_no_statistics_is_said() {
    let cases: [(Read, &str); 4] = [
        (|_| Ok(Sample::new([0.5, 1.0])), "only images of bytes"),
        (|_| Ok(Sample::new(vec![1_u8; 5])), "only images of bytes"),
        (|_| image_of(3, 7), "channel 0 has the same value"),
        (|index| image_of(if index < 64 { 1 } else { 3 }, index as u8), "different numbers of channels"),
    ];
    for (read, expected) in cases {
        let error = Normalization::fit(&Of(read), |_| true).expect_err(expected).to_string();
        assert!(error.contains(expected) && !error.contains('\n'), "{error}");
    }
    // Batches of which nothing can be read count for nothing.
    let first_missing: Read = |index| match index {
        0..64 => Err(DataError::Mismatch("damaged".to_owned())),
        _ => image_of(1, index as u8),
    };
    let with_features = Late(first_missing);
    let loader = || DataLoader::new(&with_features).on_error(OnError::Skip);
    let fitted = Normalization::fit(loader(), |_| true).expect("six images");
    assert!((fitted.mean()[0] - 66.5 / 255.0).abs() < 1e-12, "{fitted:?}");
}

#[test]
fn preprocessing_lies_in_the_file_of_weights() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| folder.path().join(name);
    let of = Normalization::imagenet();
    let model = model([3, 8, 8]).normalized(of.clone());
    let mut trainer = Trainer::new(model, Config::default().batch(2), DeviceSelector::Cpu).expect("a trainer");
    trainer.save(at("plain")).expect("writes");
    assert_eq!(Preprocessing::of_weights(at("plain")).expect("reads"), None);
    let preprocessing = Preprocessing {
        normalization: Some(of),
        class_names: vec!["cat".to_owned(), "dög \"x\"".to_owned(), String::new()],
        ..Preprocessing::default()
    };
    trainer.set_preprocessing(preprocessing.clone());
    assert_eq!(trainer.preprocessing(), &preprocessing);
    trainer.save(at("weights")).expect("writes");
    assert_eq!(Preprocessing::of_weights(at("weights")).expect("reads"), Some(preprocessing.clone()));
    // Others read the tensors all the same.
    let file = std::fs::read(at("weights")).expect("reads");
    let tensors = safetensors::SafeTensors::deserialize(&file).expect("a file of safetensors");
    assert_eq!(tensors.len(), trainer.parameters().expect("reads").len());
    trainer.load(at("weights")).expect("loads");
    trainer.load(at("plain")).expect("loads");
    // A damaged one is said to be.
    for wrong in ["{", "{\"normalization\":3}", "3", "{\"normalization\":{\"mean\":[0.5],\"std\":[0.0]}}"] {
        let metadata = HashMap::from([("tightfit.preprocessing".to_owned(), wrong.to_owned())]);
        let tensors = tensors.tensors();
        safetensors::serialize_to_file(tensors, Some(metadata), &at("damaged")).expect("writes");
        let error = Preprocessing::of_weights(at("damaged")).expect_err(wrong).to_string();
        assert!(!error.contains('\n'), "{error}");
        assert!(error.contains("train it again") || error.contains("standard deviation 0"), "{error}");
    }
    std::fs::write(at("damaged"), &file[..5]).expect("writes");
    assert!(Preprocessing::of_weights(at("damaged")).is_err());
    assert!(Preprocessing::of_weights(at("nothing")).is_err());
}

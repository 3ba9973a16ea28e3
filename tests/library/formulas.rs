//! What is written as a formula or brought along: built-in losses inside formulas, metrics and schedules of one's own.

use tightfit::data::{Targets, TensorDataset, Values};
use tightfit::nn::{Input, Mode, Model, Sequential, Tensor};
use tightfit::tensor::Shape;
use tightfit::train::{
    Checkpoint, Checkpoints, Config, Criterion, DeviceSelector, EarlyStopping, FitOptions, Format, Length, Loss,
    LrSchedule, Metric, MetricKind, MetricValue, Monitor, Optimizer, Sample, Schedule, StepReport, StopEarly, Target,
    Trainer,
};

const SAMPLES: usize = 12;

fn numbers(salt: usize, count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + salt * 104_729) % 1009) as f32 / 1009.0 - 0.5).collect()
}

/// In 0..1.
fn shares(shape: &[usize]) -> Targets {
    let count = SAMPLES * shape.iter().product::<usize>();
    Targets::Values { values: numbers(2, count).iter().map(|x| x + 0.5).collect(), shape: shape.into() }
}

fn labels(shape: &[usize], classes: u32) -> Targets {
    let count = SAMPLES * shape.iter().product::<usize>();
    Targets::signed_labels((0..count as i32).map(|i| i * 5 % classes as i32).collect(), classes, shape)
}

fn data(input: &[usize], targets: Targets) -> TensorDataset {
    let samples = numbers(1, SAMPLES * input.iter().product::<usize>());
    TensorDataset::new(Values::F32(samples), input, targets).expect("fits")
}

fn vector() -> Sequential {
    Sequential::new("vector", [4]).linear(5).tanh().linear(3)
}

fn pixels() -> Sequential {
    Sequential::new("pixels", [2, 3, 2]).conv2d(3, 1)
}

/// The probabilities that some losses take.
fn squashed(model: Sequential) -> Sequential {
    model.sigmoid()
}

fn trainer(model: Sequential, config: Config) -> Trainer {
    Trainer::new(model, config, DeviceSelector::Cpu).expect("a trainer")
}

fn parameters(trainer: &mut Trainer) -> Vec<f32> {
    trainer.parameters().expect("reads").into_values().flat_map(|(_, values)| values).collect()
}

/// A loss inside a formula.
#[derive(Debug)]
struct Inside(Loss);

impl Criterion for Inside {
    fn name(&self) -> &str {
        "inside"
    }

    fn target(&self, output: &Shape) -> Input {
        self.0.target(output)
    }

    fn loss<'a>(&self, prediction: Tensor<'a>, target: Tensor<'a>) -> Tensor<'a> {
        self.0.loss(prediction, target)
    }
}

fn cross_entropy(label_smoothing: f32, from_logits: bool, classes_last: bool) -> Loss {
    Loss::CrossEntropy { label_smoothing, ignore_index: None, class_weights: vec![], classes_last, from_logits }
}

fn soft(label_smoothing: f32, class_weights: &[f32], from_logits: bool) -> Loss {
    Loss::SoftCrossEntropy { label_smoothing, class_weights: class_weights.to_vec(), from_logits }
}

#[test]
fn a_built_in_loss_is_the_same_inside_a_formula() {
    let sum = Loss::Sum { terms: vec![(1.0, Loss::Mse), (-0.5, Loss::Huber { delta: 0.2 })] };
    let dice = |sigmoid, smooth| Loss::Dice { sigmoid, smooth, ignore_index: None };
    let values = || (vector(), shares(&[3]));
    let of_pixels = || (pixels(), labels(&[3, 2], 3));
    let cases = [
        (Loss::Mse, values()),
        (Loss::Mae, values()),
        (Loss::Huber { delta: 0.2 }, values()),
        (sum, values()),
        (Loss::bce_with_logits(), values()),
        (Loss::BceWithLogits { pos_weight: vec![3.0] }, values()),
        (Loss::BceWithLogits { pos_weight: vec![3.0, 0.5, 0.5] }, (pixels(), shares(&[3, 3, 2]))),
        (Loss::Bce { pos_weight: vec![] }, (squashed(vector()), shares(&[3]))),
        (cross_entropy(0.0, true, false), (vector(), labels(&[], 3))),
        (cross_entropy(0.1, true, false), of_pixels()),
        (cross_entropy(0.0, false, false), (squashed(vector()), labels(&[], 3))),
        (cross_entropy(0.2, true, true), (Sequential::new("series", [4, 2]).linear(3), labels(&[4], 3))),
        (soft(0.0, &[], true), values()),
        (soft(0.1, &[1.0, 1.0, 4.0], true), (pixels(), shares(&[3, 3, 2]))),
        (soft(0.0, &[], false), (squashed(vector()), shares(&[3]))),
        (dice(false, 1.0), of_pixels()),
        (dice(true, 0.0), (pixels(), shares(&[3, 3, 2]))),
    ];
    for (loss, (model, targets)) in cases {
        let input = Model::from(model.clone()).input_shape().to_vec();
        let weights = (0..SAMPLES).map(|i| (i % 4) as f32).collect();
        let data = data(&input, targets).with_sample_weights(weights).expect("fits");
        // The last batch is short, and both are cut.
        let config = || Config::default().batch(8).drop_last(false).sample_weights(true).micro_batches(2);
        let of = |loss: Loss| {
            let mut trainer = trainer(model.clone(), config().loss(loss).optimizer(Optimizer::sgd(0.3)).seed(2));
            let report = trainer.fit(&data, FitOptions::epochs(3)).expect("trains");
            (report.train_loss, trainer.evaluate(&data).expect("evaluates").loss, parameters(&mut trainer))
        };
        let (built_in, formula) = (of(loss.clone()), of(Loss::custom(Inside(loss.clone()))));
        assert!((built_in.0 - formula.0).abs() < 1e-5, "{loss}: {} and {}", built_in.0, formula.0);
        assert!((built_in.1 - formula.1).abs() < 1e-5, "{loss}: {} and {}", built_in.1, formula.1);
        for (a, b) in built_in.2.iter().zip(&formula.2) {
            assert!((a - b).abs() < 1e-5, "{loss}: {a} and {b}");
        }
        // One number for each sample.
        let inside = loss.clone();
        let alone = Model::new("alone", [3, 4, 2], move |x| {
            let output = Shape::from(&x.shape()[1..]);
            inside.loss(x, x.input("target", inside.target(&output)))
        });
        let built = alone.build(7, Mode::Evaluate);
        let shape = built.map(|built| built.graph.value(built.output).desc.shape.to_vec());
        assert!(
            shape == Ok(vec![7]) || loss.kind().starts_with("bce") || loss.kind() == "soft-cross-entropy",
            "{loss}"
        );
        // By itself, it is what it was.
        assert_eq!(Loss::custom(loss.clone()), loss);
        assert_eq!(loss.name(), loss.kind());
    }
}

#[test]
fn what_a_formula_cannot_have_is_refused_in_one_sentence() {
    let ignoring = Loss::CrossEntropy {
        label_smoothing: 0.0,
        ignore_index: Some(1),
        class_weights: vec![],
        classes_last: false,
        from_logits: true,
    };
    let weighted = Loss::CrossEntropy {
        label_smoothing: 0.0,
        ignore_index: None,
        class_weights: vec![1.0, 2.0, 3.0],
        classes_last: false,
        from_logits: true,
    };
    let whole_batch = "count against the labels of the whole batch: leave them out, or use the loss by itself";
    for (loss, words) in [
        (ignoring, whole_batch),
        (weighted, whole_batch),
        (Loss::Dice { sigmoid: false, smooth: 1.0, ignore_index: Some(1) }, whole_batch),
        (Loss::BceWithLogits { pos_weight: vec![1.0, 2.0] }, "there are 2 weights for the channels of ["),
        (Loss::Huber { delta: -1.0 }, "delta = -1"),
    ] {
        let result =
            Trainer::new(vector(), Config::default().batch(4).loss(Loss::custom(Inside(loss))), DeviceSelector::Cpu);
        let error = result.expect_err(words).to_string();
        assert!(error.contains(words) && error.lines().count() == 1, "{error}");
    }
    /// Takes a part of the target.
    #[derive(Debug)]
    struct Part;
    impl Criterion for Part {
        fn name(&self) -> &str {
            "part"
        }
        fn loss<'a>(&self, prediction: Tensor<'a>, target: Tensor<'a>) -> Tensor<'a> {
            Loss::Mse.loss(prediction, target.slice(1, 0, 1))
        }
    }
    let result = Trainer::new(vector(), Config::default().batch(4).loss(Loss::custom(Part)), DeviceSelector::Cpu);
    let error = result.expect_err("one of three").to_string();
    assert!(error.contains("the loss mse of [1, 3] needs a target that is f32[1, 3], found f32[1, 1]"), "{error}");
    // Kernels would make NaN of it.
    let config = Config::default().batch(4).loss(Loss::custom(Inside(Loss::cross_entropy())));
    let error = trainer(vector(), config).step(&data(&[4], labels(&[], 4)), &[0, 1, 2, 3]).expect_err("4 of 3 classes");
    assert!(error.to_string().contains("takes 0 to 2"), "{error}");
}

/// The largest error.
#[derive(Debug, Default)]
struct MaxError(f64);

impl Metric for MaxError {
    fn name(&self) -> &str {
        "largest"
    }

    fn reset(&mut self) {
        self.0 = 0.0;
    }

    fn add(&mut self, sample: &Sample<'_>) {
        if let Target::Values(values) = sample.target {
            let errors = sample.prediction.iter().zip(values).map(|(a, b)| f64::from((a - b).abs()));
            self.0 = errors.fold(self.0, f64::max);
        }
    }

    fn value(&self) -> MetricValue {
        MetricValue::Number(self.0)
    }

    fn higher_is_better(&self) -> Option<bool> {
        Some(false)
    }
}

/// The share of values that are predicted within a fifth.
#[derive(Debug)]
struct Near;

impl Criterion for Near {
    fn name(&self) -> &str {
        "near-by"
    }

    fn loss<'a>(&self, prediction: Tensor<'a>, target: Tensor<'a>) -> Tensor<'a> {
        (prediction - target).abs().lt(0.2)
    }
}

#[test]
fn metrics_of_ones_own_are_exact() {
    let huber = Loss::Huber { delta: 0.1 };
    let metrics = || {
        [
            MetricKind::custom(MaxError::default),
            MetricKind::formula(Near).with_higher_is_better(true),
            MetricKind::formula(huber.clone()),
            MetricKind::Mae,
            MetricKind::formula(Loss::Mae),
        ]
    };
    let weights: Vec<f32> = (0..SAMPLES).map(|i| (i % 3) as f32).collect();
    let data = data(&[4], shares(&[3])).with_sample_weights(weights.clone()).expect("fits");
    let Targets::Values { values: targets, .. } = shares(&[3]) else { panic!("values") };
    for (batch, is_weighted) in [(5, false), (12, false), (5, true)] {
        let mut config = Config::default().loss(Loss::Mse).batch(batch).sample_weights(is_weighted);
        config.metrics = metrics().to_vec();
        let mut trainer = trainer(vector(), config);
        let predictions = trainer.predict(&data).expect("predicts").values;
        for _ in 0..2 {
            let found = trainer.evaluate(&data).expect("evaluates").metrics;
            let names: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, ["largest", "near_by", "huber", "mae", "mae"]);
            let errors = predictions.iter().zip(&targets).map(|(a, b)| f64::from(a - b).abs());
            let weight = |i: usize| if is_weighted { f64::from(weights[i / 3]) } else { 1.0 };
            let mean = |of: &dyn Fn(f64) -> f64| {
                let sum: f64 = errors.clone().enumerate().map(|(i, error)| weight(i) * of(error)).sum();
                sum / (0..errors.len()).map(weight).sum::<f64>()
            };
            let huber = |e: f64| if e < 0.1 { e * e / 2.0 } else { 0.1 * (e - 0.05) };
            let expected = [
                errors.clone().fold(0.0, f64::max),
                mean(&|error| if error < 0.2 { 1.0 } else { 0.0 }),
                mean(&huber),
                mean(&|error| error),
                mean(&|error| error),
            ];
            for ((name, value), expected) in found.iter().zip(expected) {
                let value = value.scalar().expect("a number");
                assert!((value - expected).abs() < 1e-6, "{name}: {value} for {expected}");
            }
        }
    }
    let directions: Vec<_> = metrics().iter().map(|metric| metric.build().higher_is_better()).collect();
    assert_eq!(directions, [Some(false), Some(true), Some(false), Some(false), Some(false)]);
    assert_eq!(MetricKind::formula(Near).higher_is_better(), None);
    assert_eq!(serde_json::to_value(MetricKind::formula(Near)).expect("JSON")["name"], "near_by");
    assert!(serde_json::from_str::<MetricKind>(r#""custom""#).is_err());
}

#[test]
fn a_loss_as_a_metric_is_the_loss() {
    let weighted = Loss::CrossEntropy {
        label_smoothing: 0.1,
        ignore_index: Some(2),
        class_weights: vec![1.0, 3.0, 0.5],
        classes_last: false,
        from_logits: true,
    };
    let both = Loss::Sum { terms: vec![(0.5, weighted.clone()), (2.0, Loss::dice())] };
    for loss in [weighted, both, Loss::dice(), Loss::custom(Inside(Loss::dice()))] {
        let metric = if let Loss::Custom(_) = loss {
            MetricKind::formula(Inside(Loss::dice()))
        } else {
            MetricKind::formula(loss.clone())
        };
        let mut trainer = trainer(pixels(), Config::default().batch(5).loss(loss.clone()).metric(metric));
        let found = trainer.evaluate(&data(&[2, 3, 2], labels(&[3, 2], 3))).expect("evaluates");
        let value = found.metrics[0].1.scalar().expect("a number");
        assert!((value - found.loss).abs() < 1e-12, "{loss}: {value} for {}", found.loss);
    }
}

#[test]
fn metrics_that_do_not_fit_are_refused() {
    let evaluate = |metric: MetricKind, loss: Loss, targets: Targets| {
        let mut trainer = trainer(vector(), Config::default().batch(4).loss(loss).metric(metric));
        trainer.evaluate(&data(&[4], targets)).expect_err("refused").to_string()
    };
    #[derive(Debug)]
    struct Wrong;
    impl Criterion for Wrong {
        fn name(&self) -> &str {
            "wrong"
        }
        fn loss<'a>(&self, prediction: Tensor<'a>, target: Tensor<'a>) -> Tensor<'a> {
            prediction.slice(1, 5, 1) + target
        }
    }
    #[derive(Debug)]
    struct One;
    impl Criterion for One {
        fn name(&self) -> &str {
            "one"
        }
        fn target(&self, _: &Shape) -> Input {
            Input::values([1])
        }
        fn loss<'a>(&self, prediction: Tensor<'a>, target: Tensor<'a>) -> Tensor<'a> {
            prediction - target
        }
    }
    let (mse, ce) = (|| Loss::Mse, Loss::cross_entropy);
    for (metric, loss, targets, words) in [
        (
            MetricKind::formula(Loss::Mae),
            ce(),
            labels(&[], 3),
            "the metric mae is not possible: it needs target values",
        ),
        (MetricKind::formula(ce()), mse(), shares(&[3]), "the metric cross_entropy is not possible: it needs labels"),
        (MetricKind::formula(Wrong), mse(), shares(&[3]), "the metric wrong is not possible: "),
        (
            MetricKind::formula(One),
            mse(),
            shares(&[3]),
            "it needs targets of shape [1], but those of the data have [3]",
        ),
        (MetricKind::formula(Loss::Huber { delta: 0.0 }), mse(), shares(&[3]), "delta = 0"),
    ] {
        let error = evaluate(metric, loss, targets);
        assert!(error.contains(words) && error.lines().count() == 1, "{error}");
    }
    // Without a trainer to refuse them, such samples have no figure.
    let format = Format::values([3]);
    let mut metric = MetricKind::formula(Near).build();
    assert_eq!(metric.value().scalar(), None);
    for (prediction, target) in [(&[1.0][..], &[1.0][..]), (&[1.0; 3], &[]), (&[1.0; 3], &[1.0; 2])] {
        metric.reset();
        metric.add(&Sample::new(&[1.0; 3], Target::Values(&[1.0; 3]), &format));
        assert_eq!(metric.value().scalar(), Some(1.0));
        metric.add(&Sample::new(prediction, Target::Values(target), &format));
        metric.add(&Sample::new(&[1.0; 3], Target::Labels(&[1]), &format));
        assert_eq!(metric.value().scalar(), None);
    }
}

#[test]
fn metrics_of_ones_own_are_watched() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = data(&[4], shares(&[3]));
    // It gets worse from epoch to epoch, and so better by what the metric says.
    let fit = |higher: bool, name: &str| {
        let metric = MetricKind::formula(Inside(Loss::Mse)).with_higher_is_better(higher);
        let config = Config::default().loss(Loss::Mse).batch(4).optimizer(Optimizer::sgd(0.05)).metric(metric);
        let settings = EarlyStopping { monitor: "val_inside".to_owned(), ..EarlyStopping::default() };
        let (mut early, path) = (StopEarly::new(settings), folder.path().join(name));
        let checkpoints = Checkpoints::new(&path).best(Monitor::new("val_inside"));
        let options = FitOptions {
            validation: Some((&data).into()),
            callbacks: vec![&mut early],
            checkpoints: Some(checkpoints),
            ..FitOptions::epochs(4)
        };
        let report = trainer(vector(), config).fit(&data, options).expect("trains");
        assert_eq!(report.history.epochs().len(), report.epochs as usize);
        let differ = |values: &std::collections::BTreeMap<String, f64>| values["val_inside"] - values["val_loss"];
        assert!(report.history.epochs().iter().all(|record| differ(&record.values).abs() < 1e-12));
        let best = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("reads").file_name().into_string().ok();
        let names = std::fs::read_dir(path).expect("a folder").filter_map(best);
        (report.epochs, names.filter(|name| name.starts_with("best-")).collect::<Vec<_>>())
    };
    assert_eq!(fit(false, "falls"), (4, vec!["best-00000012".to_owned()]));
    assert_eq!(fit(true, "rises"), (2, vec!["best-00000003".to_owned()]));
    // Where nobody says it, nobody knows.
    let config = Config::default().loss(Loss::Mse).batch(4).metric(MetricKind::formula(Inside(Loss::Mse)));
    let mut early = StopEarly::new(EarlyStopping { monitor: "val_inside".to_owned(), ..EarlyStopping::default() });
    let options = FitOptions { callbacks: vec![&mut early], ..FitOptions::epochs(1) };
    let error = trainer(vector(), config).fit(&data, options).expect_err("falls or rises").to_string();
    assert!(error.contains("set mode to \"min\" or \"max\""), "{error}");
}

/// `1 / √(t + 1)`, and at the end nothing.
#[derive(Debug)]
struct InverseSqrt;

impl LrSchedule for InverseSqrt {
    fn factor(&self, step: u64, total_steps: u64) -> f64 {
        if step + 1 >= total_steps { 0.0 } else { 1.0 / ((step + 1) as f64).sqrt() }
    }
}

fn scheduled(schedule: Schedule) -> Trainer {
    let config = Config::default().loss(Loss::Mse).batch(4).optimizer(Optimizer::sgd(0.1)).schedule(schedule);
    trainer(vector(), config)
}

/// Learning rates of four epochs of three steps.
fn rates(trainer: &mut Trainer) -> Vec<f64> {
    let mut rates = Vec::new();
    let mut on_step = |step: &StepReport| rates.push(step.lr);
    trainer
        .fit(&data(&[4], shares(&[3])), FitOptions { on_step: Some(&mut on_step), ..FitOptions::epochs(4) })
        .expect("trains");
    rates
}

#[test]
fn a_schedule_of_ones_own_is_followed_and_resumed() {
    let own = Schedule::custom(InverseSqrt);
    let steps: Vec<f64> = (0..12).map(|step| 0.1 * InverseSqrt.factor(step, 12)).collect();
    assert_eq!(rates(&mut scheduled(own.clone())), steps);
    // After an epoch of warm-up it counts from 0, and so does what is left.
    let warm = rates(&mut scheduled(own.clone().with_warmup(Length::Epochs(1.0), 0.5)));
    assert!((warm[0] - 0.05).abs() < 1e-12 && (warm[1] - 0.1 * (0.5 + 0.5 / 3.0)).abs() < 1e-12, "{warm:?}");
    assert_eq!(warm[3..], (0..9).map(|step| 0.1 * InverseSqrt.factor(step, 9)).collect::<Vec<_>>());
    let sequence = Schedule::sequence([Schedule::constant(), own.clone()], [Length::Epochs(2.0)]);
    let after = rates(&mut scheduled(sequence));
    assert_eq!(after[..6], [0.1; 6]);
    assert_eq!(after[6..], (0..6).map(|step| 0.1 * InverseSqrt.factor(step, 6)).collect::<Vec<_>>());

    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("in-the-middle");
    let mut first = scheduled(own.clone());
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut on_step = |step: &StepReport| stop.store(step.step == 5, std::sync::atomic::Ordering::Relaxed);
    let checkpoints = Checkpoints::new(&path);
    let options = FitOptions {
        stop: Some(stop.clone()),
        on_step: Some(&mut on_step),
        checkpoints: Some(checkpoints),
        ..FitOptions::epochs(4)
    };
    first.fit(&data(&[4], shares(&[3])), options).expect("trains");
    let mut second = scheduled(own.clone());
    second.restore(&Checkpoint::open_latest(&path).expect("opens")).expect("restores");
    assert_eq!(rates(&mut second), steps[5..]);
    let mut whole = scheduled(own);
    rates(&mut whole);
    assert_eq!(second.parameters_sha256().expect("reads"), whole.parameters_sha256().expect("reads"));
}

#[test]
fn a_schedule_of_ones_own_is_in_no_file() {
    let own = Schedule::custom(InverseSqrt);
    assert_eq!(own, own.clone());
    assert_ne!(own, Schedule::custom(InverseSqrt));
    assert_eq!(own.resolve(10), own);
    assert_eq!((own.kind(), own.to_string()), ("custom", "custom".to_owned()));
    assert_eq!(Schedule::custom(Schedule::cosine()), Schedule::cosine());
    let json = serde_json::to_string(&own).expect("JSON");
    assert_eq!(json, r#"{"kind":"custom","schedule":"InverseSqrt"}"#);
    assert!(serde_json::from_str::<Schedule>(&json).is_err());
    own.check().expect("possible");
    assert!(own.with_warmup(Length::Epochs(-1.0), 0.1).check().is_err());
    #[derive(Debug)]
    struct Below;
    impl LrSchedule for Below {
        fn factor(&self, step: u64, _: u64) -> f64 {
            if step == 2 { f64::NAN } else { 1.0 }
        }
    }
    let mut trainer = scheduled(Schedule::custom(Below));
    let error = trainer.fit(&data(&[4], shares(&[3])), FitOptions::epochs(2)).expect_err("not a number");
    assert_eq!(error.to_string(), "the learning rate of step 3 = NaN is not possible: it must be 0 or more");
    assert_eq!(trainer.steps(), 2);
}

//! Metrics against scikit-learn's and PyTorch's, as files, and where they do not fit.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;
use tightfit::tensor::Shape;
use tightfit::train::{
    Average, Format, Metric, MetricKind, MetricValue, MultiOutput, Sample, Scores, Target, higher_is_better,
};

#[derive(Deserialize)]
struct Golden {
    case: String,
    format: GoldenFormat,
    predictions: Vec<Vec<f32>>,
    labels: Option<Vec<Vec<u32>>>,
    values: Option<Vec<Vec<f32>>>,
    weights: Option<Vec<f64>>,
    expected: Vec<Expected>,
}

#[derive(Deserialize)]
struct GoldenFormat {
    shape: Vec<usize>,
    scores: String,
    classes: Option<u32>,
    ignored: Option<u32>,
    #[serde(default)]
    classes_last: bool,
    #[serde(default)]
    multilabel: bool,
}

#[derive(Deserialize)]
struct Expected {
    metric: MetricKind,
    value: Value,
}

impl Golden {
    fn all() -> Vec<Golden> {
        serde_json::from_str(include_str!("../golden/metrics.json")).unwrap()
    }

    fn format(&self) -> Format {
        let scores = match self.format.scores.as_str() {
            "logits" => Scores::Logits,
            "probabilities" => Scores::Probabilities,
            "log-probabilities" => Scores::LogProbabilities,
            other => panic!("{other}"),
        };
        Format {
            shape: Shape::from(self.format.shape.clone()),
            classes: self.format.classes,
            ignored: self.format.ignored,
            classes_last: self.format.classes_last,
            scores,
            multilabel: self.format.multilabel,
        }
    }

    fn add(&self, metric: &mut dyn Metric, format: &Format) {
        for (i, prediction) in self.predictions.iter().enumerate() {
            let target = match (&self.labels, &self.values) {
                (Some(labels), None) => Target::Labels(&labels[i]),
                (None, Some(values)) => Target::Values(&values[i]),
                _ => panic!("{}: labels or values", self.case),
            };
            let weight = self.weights.as_ref().map_or(1.0, |weights| weights[i]);
            metric.add(&Sample { weight, ..Sample::new(prediction, target, format) });
        }
    }
}

fn compare(found: &Value, expected: &Value, name: &str) {
    match (found, expected) {
        (Value::Array(found), Value::Array(expected)) => {
            assert_eq!(found.len(), expected.len(), "{name}");
            for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
                compare(found, expected, &format!("{name}[{i}]"));
            }
        }
        (Value::Number(a), Value::Number(b)) => {
            let (found, expected) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            assert!((found - expected).abs() <= 1e-12 * expected.abs().max(1.0), "{name}: {found} for {expected}");
        }
        _ => assert_eq!(found, expected, "{name}"),
    }
}

#[test]
fn values_are_those_of_scikit_learn() {
    let mut seen = BTreeSet::new();
    for golden in Golden::all() {
        let format = golden.format();
        for Expected { metric: kind, value } in &golden.expected {
            let name = format!("{} of {}", kind.name(), golden.case);
            kind.check(&format).unwrap_or_else(|error| panic!("{name}: {error}"));
            let mut metric = kind.build();
            golden.add(&mut *metric, &format);
            compare(&serde_json::to_value(metric.value()).unwrap(), value, &name);
            // What was added before is forgotten.
            metric.reset();
            assert!(metric.value().scalar().is_none(), "{name} of nothing");
            golden.add(&mut *metric, &format);
            compare(&serde_json::to_value(metric.value()).unwrap(), value, &name);
            seen.insert(kind.kind());
        }
    }
    assert_eq!(seen, MetricKind::KINDS.iter().map(|entry| entry.kind).collect(), "kinds with values");
}

#[test]
fn a_weight_repeats_a_sample_and_weight_0_leaves_it_out() {
    for golden in Golden::all().into_iter().filter(|golden| golden.weights.is_none()) {
        let format = golden.format();
        for Expected { metric: kind, .. } in &golden.expected {
            let [mut weighted, mut repeated] = [kind.build(), kind.build()];
            for (i, prediction) in golden.predictions.iter().enumerate() {
                let target = match (&golden.labels, &golden.values) {
                    (Some(labels), _) => Target::Labels(&labels[i]),
                    (_, values) => Target::Values(&values.as_ref().unwrap()[i]),
                };
                let sample = Sample::new(prediction, target, &format);
                weighted.add(&Sample { weight: (i % 3) as f64, ..sample });
                (0..i % 3).for_each(|_| repeated.add(&sample));
                // Padding may be anything.
                let padding = vec![f32::NAN; prediction.len()];
                weighted.add(&Sample { weight: 0.0, ..Sample::new(&padding, target, &format) });
            }
            let [weighted, repeated] = [weighted, repeated].map(|metric| serde_json::to_value(metric.value()).unwrap());
            compare(&weighted, &repeated, &format!("{} of {}", kind.name(), golden.case));
        }
    }
}

#[test]
fn what_is_not_there_does_not_count_and_nothing_panics() {
    let format = Format::labels([3], 3);
    for entry in MetricKind::KINDS {
        let kind: MetricKind = serde_json::from_value(entry.kind.into()).unwrap();
        let mut metric = kind.build();
        for (prediction, target) in [
            (&[1.0, 2.0, 3.0][..], Target::Labels(&[9][..])),
            (&[1.0, 2.0, 3.0], Target::Labels(&[])),
            (&[], Target::Labels(&[1])),
            (&[f32::NAN; 3], Target::Labels(&[1])),
            (&[], Target::Values(&[])),
            (&[1.0], Target::Values(&[0.0, 1.0])),
        ] {
            // One after the other, although they do not go together.
            for format in [&format, &Format::values([]), &Format::values([0]), &Format::values([2, 0])] {
                metric.add(&Sample::new(prediction, target, format));
                metric.value();
            }
        }
    }
    let mut accuracy = MetricKind::accuracy().build();
    for labels in [[0], [9], [2]] {
        accuracy.add(&Sample::new(&[1.0, 2.0, 3.0], Target::Labels(&labels), &format));
    }
    assert_eq!(accuracy.value(), MetricValue::Number(0.5), "label 9 is no class");
}

#[test]
fn of_equal_numbers_the_first_is_predicted() {
    let format = Format::labels([3], 3);
    for (kind, label, right) in [
        (MetricKind::accuracy(), 0, true),
        (MetricKind::accuracy(), 1, false),
        (MetricKind::top_k(1), 0, true),
        (MetricKind::top_k(1), 1, false),
        (MetricKind::top_k(2), 1, true),
        (MetricKind::top_k(2), 2, false),
    ] {
        let mut metric = kind.build();
        metric.add(&Sample::new(&[0.5; 3], Target::Labels(&[label]), &format));
        assert_eq!(metric.value().scalar(), Some(if right { 1.0 } else { 0.0 }), "{kind} of label {label}");
    }
}

#[test]
fn predictions_are_cut_into_samples() {
    let format = Format::labels([2, 3], 2);
    let predictions: Vec<f32> = (0..12).map(|i| i as f32).collect();
    let labels: Vec<u32> = (0..6).collect();
    let samples: Vec<_> = format.samples(&predictions, Target::Labels(&labels)).collect();
    assert_eq!(samples.len(), 2);
    assert_eq!((samples[1].prediction, samples[1].target), (&predictions[6..], Target::Labels(&[3, 4, 5])));
    let samples: Vec<_> = format.samples(&predictions, Target::Values(&predictions[..6])).collect();
    assert_eq!(samples[0].target, Target::Values(&predictions[..6]));
    assert_eq!(samples[1].target, Target::Values(&[]), "it is not there");
}

#[test]
fn files_have_names_and_tables() {
    #[derive(Deserialize)]
    struct File {
        metrics: Vec<MetricKind>,
    }
    let read = |text: &str| toml::from_str::<File>(text).map(|file| file.metrics).map_err(|error| error.to_string());
    let text = "metrics = ['accuracy', 'mae', { kind = 'f1', average = 'none' }, { kind = 'top-k', k = 3 }]";
    let per_class = MetricKind::F1 { average: Some(Average::PerClass), threshold: None };
    let kinds = read(text).unwrap();
    assert_eq!(kinds, [MetricKind::accuracy(), MetricKind::Mae, per_class.clone(), MetricKind::top_k(3)]);
    let names: Vec<_> = kinds.iter().map(MetricKind::name).collect();
    assert_eq!(names, ["accuracy", "mae", "f1_per_class", "top_3_accuracy"]);
    for (text, words) in [
        ("metrics = ['acuracy']", "unknown variant `acuracy`"),
        ("metrics = [{ kind = 'mae', average = 'macro' }]", "unknown field `average`"),
        ("metrics = [{ kind = 'f1', averag = 'macro' }]", "unknown field `averag`"),
        ("metrics = [{ kind = 'f1', average = 'mean' }]", "unknown variant `mean`"),
    ] {
        let error = read(text).expect_err(text);
        assert!(error.contains(words), "{text}: {error}");
    }
    let written = MetricKind::R2 { multioutput: MultiOutput::RawValues };
    let json = serde_json::to_string(&[written.clone(), per_class.clone()]).unwrap();
    assert_eq!(json, r#"[{"kind":"r2","multioutput":"raw-values"},{"kind":"f1","average":"none"}]"#);
    assert_eq!(serde_json::from_str::<Vec<MetricKind>>(&json).unwrap(), [written, per_class]);
}

#[test]
fn names_say_which_values_are_better() {
    for entry in MetricKind::KINDS {
        let kind: MetricKind = serde_json::from_value(entry.kind.into()).unwrap();
        assert_eq!(higher_is_better(&format!("val_{}", kind.name())), Some(entry.higher_is_better), "{kind}");
        assert_eq!(kind.build().higher_is_better(), kind.higher_is_better(), "{kind}");
    }
    for (name, expected) in [
        ("loss", Some(false)),
        ("val_dice_loss", Some(false)),
        ("head_accuracy", Some(true)),
        ("f1_micro_at_0.7", Some(true)),
        ("accuracy_of_rmse", None),
        ("inaccuracy", None),
        ("", None),
    ] {
        assert_eq!(higher_is_better(name), expected, "{name}");
    }
}

#[test]
fn what_does_not_fit_is_refused_in_one_sentence() {
    let labels = Format::labels([10], 10);
    let several = Format { multilabel: true, ..Format::values([10]) };
    let binary = Format::values([1]);
    let f1 = |average, threshold| MetricKind::F1 { average, threshold };
    let matrix = MetricKind::ConfusionMatrix { threshold: None };
    for (kind, format, words) in [
        (MetricKind::Mae, &labels, "it needs target values, but the data has labels"),
        (MetricKind::top_k(11), &labels, "k = 11, but it must be between 1 and the model's 10 outputs"),
        (MetricKind::top_k(0), &labels, "k = 0"),
        (MetricKind::top_k(1), &binary, "the model has 1 output, a yes or no"),
        (MetricKind::Perplexity, &several, "10 outputs, each a yes or no of its own"),
        (MetricKind::accuracy(), &Format::labels([10], 11), "the data has 11 classes, but the model has 10 outputs"),
        (MetricKind::accuracy(), &Format::labels([1], 3), "the data has 3 classes, but the model has 1 output"),
        (f1(None, Some(0.3)), &labels, "threshold is for one output or for several labels"),
        (f1(None, Some(1.0)), &binary, "threshold = 1.0"),
        (f1(None, Some(f64::NAN)), &binary, "threshold = NaN"),
        (f1(Some(Average::Binary), None), &labels, "use \"macro\""),
        (f1(Some(Average::Binary), None), &Format { multilabel: true, ..Format::values([2]) }, "use \"macro\""),
        (matrix.clone(), &several, "use precision and recall"),
        (matrix, &Format::labels([5000], 5000), "5000 are more than 4096"),
    ] {
        let error = kind.check(format).expect_err(words).to_string();
        assert!(error.contains(words), "{words}: {error}");
        assert!(error.starts_with("the metric ") && !error.contains(". "), "{error}");
    }
    for (kind, format) in [
        (f1(Some(Average::Binary), None), &Format::labels([2], 2)),
        (f1(None, Some(0.3)), &several),
        (MetricKind::accuracy(), &Format::labels([1], 2)),
        (MetricKind::accuracy(), &Format { ignored: Some(10), ..Format::labels([10], 10) }),
        (MetricKind::accuracy(), &Format { ignored: Some(3), ..Format::labels([10], 11) }),
        (MetricKind::Mae, &Format::values([])),
    ] {
        kind.check(format).unwrap();
    }
}

#[test]
fn names_elsewhere_are_written_as_they_are_read() {
    for name in MetricKind::KINDS.iter().flat_map(|entry| entry.elsewhere) {
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()), "{name}");
    }
}

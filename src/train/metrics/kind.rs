//! The usual metrics, as files name them.

use std::fmt;

use serde::de::value::{MapAccessDeserializer, MapDeserializer};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Metric;
use super::accuracy::{Accuracy, TopK};
use super::auc::Auc;
use super::counts::{ConfusionMatrix, Counts, Figure};
use super::custom::CustomMetric;
use super::perplexity::Perplexity;
use super::regression::{Error, MeanError, R2};
use crate::train::criterion::Criterion;
use crate::train::loss::nothing;

/// The usual metrics, with the names and definitions of scikit-learn where it has them.
///
/// A file writes one as a name, `metrics = ["accuracy", "f1"]`, or with settings as a table:
///
/// ```toml
/// metrics = ["accuracy", { kind = "f1", average = "none" }]
/// ```
///
/// They are of all positions that count, each with the weight of its sample: see [`Format`](super::Format) for positions, channels
/// and which numbers are yes. Labels that are ignored do not count, nor do such that are no class. Of classes, the first with the
/// largest number is predicted. A share of nothing is not a number.
///
/// ```
/// use tightfit::train::{Average, Format, MetricKind, Target};
///
/// // An image of four pixels and two classes: the prediction is 0, 0, 1, 1.
/// let format = Format::labels([2, 4], 2);
/// let logits = [2.0, 2.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0];
/// let mut iou = MetricKind::Iou { average: Some(Average::PerClass), threshold: None }.build();
/// format.samples(&logits, Target::Labels(&[0, 1, 1, 1])).for_each(|sample| iou.add(&sample));
/// assert_eq!(iou.value().per_class(), [Some(1.0 / 2.0), Some(2.0 / 3.0)]);
/// ```
///
/// Source: <https://scikit-learn.org/stable/modules/model_evaluation.html>
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum MetricKind {
    /// The share of positions that are predicted right, `accuracy_score`. Where each channel is a yes or no of its own, all of a
    /// position must be right.
    Accuracy {
        /// Probability above which a number is a yes, of one channel or of several labels; 0.5 where it is not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        threshold: Option<f64>,
    },
    /// The share of positions whose class is among the `k` with the largest numbers, `top_k_accuracy_score`; of equal numbers
    /// the first are larger.
    TopK {
        /// How many may be tried.
        #[serde(default = "five")]
        k: usize,
    },
    /// Of what is predicted, the share that is right: `TP / P`, `precision_score`.
    Precision {
        /// What becomes of the figures of classes; macro where it is not given, or binary of one channel.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        average: Option<Average>,
        /// As of accuracy.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        threshold: Option<f64>,
    },
    /// Of what should be predicted, the share that is: `TP / A`, `recall_score`.
    Recall {
        /// As of precision.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        average: Option<Average>,
        /// As of accuracy.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        threshold: Option<f64>,
    },
    /// The harmonic mean of precision and recall: `2 TP / (P + A)`, `f1_score`.
    F1 {
        /// As of precision.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        average: Option<Average>,
        /// As of accuracy.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        threshold: Option<f64>,
    },
    /// How often each class is taken for each, `confusion_matrix`: a row for each true class, a column for each predicted one.
    ConfusionMatrix {
        /// As of accuracy.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        threshold: Option<f64>,
    },
    /// The area under the ROC curve, `roc_auc_score`: the probability that a positive has a larger number than a negative, equal
    /// ones counting half. Several classes are each told from the rest by their probability (one-vs-rest). Exact, so all numbers
    /// are kept: 9 bytes for each position and class (one of two classes), 8 more for each position, and as much again while it
    /// is computed.
    Auc {
        /// What becomes of the areas of classes; macro where it is not given. Weighted is by positives.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        average: Option<Average>,
    },
    /// The mean absolute error of all elements, `mean_absolute_error`.
    #[serde(deserialize_with = "nothing")]
    Mae,
    /// The mean squared error of all elements, `mean_squared_error`.
    #[serde(deserialize_with = "nothing")]
    Mse,
    /// The root of the mean squared error of all elements, Keras' `RootMeanSquaredError`. Of several channels scikit-learn's
    /// `root_mean_squared_error` is the mean of their roots.
    #[serde(deserialize_with = "nothing")]
    Rmse,
    /// `1 − Σ (y − p)² / Σ (y − ȳ)²` of each channel, `r2_score`.
    R2 {
        /// What becomes of the figures of channels.
        #[serde(default)]
        multioutput: MultiOutput,
    },
    /// Intersection over union, `TP / (P + A − TP)`, `jaccard_score`: of all places where a class is predicted or right, the share
    /// where both are. Over all samples together, not the mean over images.
    Iou {
        /// As of precision.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        average: Option<Average>,
        /// As of accuracy.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        threshold: Option<f64>,
    },
    /// The Dice coefficient, `2 TP / (P + A)`, which is F1. Over all samples together, not the mean over images.
    Dice {
        /// As of precision.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        average: Option<Average>,
        /// As of accuracy.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        threshold: Option<f64>,
    },
    /// The exponential of the mean cross-entropy, without weights of classes: how many classes a model is undecided between.
    #[serde(deserialize_with = "nothing")]
    Perplexity,
    /// One of one's own: see [`MetricKind::custom`] and [`MetricKind::formula`]. No file holds it.
    #[serde(skip_deserializing)]
    Custom(CustomMetric),
}

/// What becomes of figures of classes: scikit-learn's `average`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Average {
    /// Their mean, of the classes that are predicted or right somewhere.
    Macro,
    /// The figure of all classes together.
    Micro,
    /// Their mean, each with the weight of how often the class is right.
    Weighted,
    /// They stay as they are.
    #[serde(rename = "none")]
    PerClass,
    /// That of yes alone, or of the second of two classes.
    Binary,
}

/// What becomes of figures of channels: scikit-learn's `multioutput`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MultiOutput {
    /// Their mean.
    #[default]
    UniformAverage,
    /// They stay as they are.
    RawValues,
    /// Their mean, each with the weight of how much its targets vary.
    VarianceWeighted,
}

fn five() -> usize {
    5
}

/// As files write it, without its settings.
impl fmt::Display for MetricKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MetricKind::Custom(custom) => f.write_str(custom.name()),
            kind => f.write_str(kind.kind()),
        }
    }
}

impl<'de> Deserialize<'de> for MetricKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrTable;
        impl<'de> Visitor<'de> for NameOrTable {
            type Value = MetricKind;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a metric or a table with its kind")
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<MetricKind, E> {
                MetricKind::deserialize(MapDeserializer::new([("kind", name)].into_iter()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<MetricKind, A::Error> {
                MetricKind::deserialize(MapAccessDeserializer::new(map))
            }
        }
        deserializer.deserialize_any(NameOrTable)
    }
}

impl Serialize for MetricKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        MetricKind::serialize(self, serializer)
    }
}

impl MetricKind {
    /// Accuracy, with a threshold of 0.5 for yes and no.
    pub fn accuracy() -> Self {
        MetricKind::Accuracy { threshold: None }
    }

    /// Top-k accuracy.
    pub fn top_k(k: usize) -> Self {
        MetricKind::TopK { k }
    }

    /// F1 with its usual average.
    pub fn f1() -> Self {
        MetricKind::F1 { average: None, threshold: None }
    }

    /// Intersection over union of each class.
    pub fn iou_per_class() -> Self {
        MetricKind::Iou { average: Some(Average::PerClass), threshold: None }
    }

    /// One of one's own, which this makes for each evaluation: see [`Metric`].
    pub fn custom<M: Metric + 'static>(make: impl Fn() -> M + Send + Sync + 'static) -> Self {
        MetricKind::Custom(CustomMetric::new(make))
    }

    /// A formula of tensors, or any loss: its mean over all samples, each with its weight. It is computed sample by sample in f64, so a
    /// formula that mixes the samples of a batch is taken of batches of one. Its name is the criterion's, with `_` for `-`.
    ///
    /// ```
    /// use tightfit::nn::Tensor;
    /// use tightfit::train::{Config, Criterion, EarlyStopping, Loss, MetricKind};
    ///
    /// /// The share of values that are predicted within a tenth.
    /// #[derive(Debug)]
    /// struct Near;
    ///
    /// impl Criterion for Near {
    ///     fn name(&self) -> &str {
    ///         "near"
    ///     }
    ///
    ///     fn loss<'a>(&self, prediction: Tensor<'a>, target: Tensor<'a>) -> Tensor<'a> {
    ///         (prediction - target).abs().lt(0.1)
    ///     }
    /// }
    ///
    /// let near = MetricKind::formula(Near).with_higher_is_better(true);
    /// let config = Config::default().loss(Loss::Mse).metric(near).metric(MetricKind::formula(Loss::Huber { delta: 0.5 }));
    /// let stop = EarlyStopping { monitor: "val_near".to_owned(), ..EarlyStopping::default() };
    /// # let _ = (config, stop);
    /// ```
    pub fn formula(criterion: impl Criterion + 'static) -> Self {
        MetricKind::Custom(CustomMetric::formula(criterion))
    }

    /// Says of a metric of one's own whether higher values are better, for what watches it. Of the usual ones it is known.
    #[must_use]
    pub fn with_higher_is_better(self, higher_is_better: bool) -> Self {
        match self {
            MetricKind::Custom(custom) => MetricKind::Custom(custom.with_higher_is_better(higher_is_better)),
            kind => kind,
        }
    }

    /// What logs call it: `accuracy`, `top_5_accuracy`, `f1_micro`. Two with other settings have other names.
    pub fn name(&self) -> String {
        let mut name = match self {
            MetricKind::TopK { k } => format!("top_{k}_accuracy"),
            MetricKind::Custom(custom) => custom.name().to_owned(),
            kind => kind.kind().replace('-', "_"),
        };
        match self.average() {
            Some(Average::Macro) => name += "_macro",
            Some(Average::Micro) => name += "_micro",
            Some(Average::Weighted) => name += "_weighted",
            Some(Average::PerClass) => name += "_per_class",
            Some(Average::Binary) => name += "_binary",
            None => {}
        }
        match self {
            MetricKind::R2 { multioutput: MultiOutput::RawValues } => name += "_raw_values",
            MetricKind::R2 { multioutput: MultiOutput::VarianceWeighted } => name += "_variance_weighted",
            _ => {}
        }
        if let Some(threshold) = self.threshold() {
            name += &format!("_at_{threshold}");
        }
        name
    }

    /// Whether higher values are better; `None` where that cannot be said.
    pub fn higher_is_better(&self) -> Option<bool> {
        if let MetricKind::Custom(custom) = self {
            return custom.higher_is_better();
        }
        MetricKind::KINDS.iter().find(|entry| entry.kind == self.kind()).map(|entry| entry.higher_is_better)
    }

    /// What becomes of figures of classes, where that is given.
    pub(super) fn average(&self) -> Option<Average> {
        match self {
            MetricKind::Precision { average, .. }
            | MetricKind::Recall { average, .. }
            | MetricKind::F1 { average, .. }
            | MetricKind::Iou { average, .. }
            | MetricKind::Dice { average, .. }
            | MetricKind::Auc { average } => *average,
            _ => None,
        }
    }

    /// The probability above which a number is a yes, where that is given.
    pub(super) fn threshold(&self) -> Option<f64> {
        match self {
            MetricKind::Accuracy { threshold }
            | MetricKind::ConfusionMatrix { threshold }
            | MetricKind::Precision { threshold, .. }
            | MetricKind::Recall { threshold, .. }
            | MetricKind::F1 { threshold, .. }
            | MetricKind::Iou { threshold, .. }
            | MetricKind::Dice { threshold, .. } => *threshold,
            _ => None,
        }
    }

    /// The metric, to which samples can be added.
    pub fn build(&self) -> Box<dyn Metric> {
        let (name, threshold, average) = (self.name(), self.threshold().unwrap_or(0.5), self.average());
        let counts =
            |name, figure| Box::new(Counts { name, figure, average, threshold, classes: Vec::new(), is_binary: false });
        let mean_error = |name, error| Box::new(MeanError { name, error, sum: 0.0, counted: 0.0 });
        match self {
            MetricKind::Accuracy { .. } => Box::new(Accuracy { name, threshold, right: 0.0, counted: 0.0 }),
            MetricKind::TopK { k } => Box::new(TopK { name, k: *k, right: 0.0, counted: 0.0 }),
            MetricKind::Precision { .. } => counts(name, Figure::Precision),
            MetricKind::Recall { .. } => counts(name, Figure::Recall),
            MetricKind::F1 { .. } | MetricKind::Dice { .. } => counts(name, Figure::F1),
            MetricKind::Iou { .. } => counts(name, Figure::Iou),
            MetricKind::ConfusionMatrix { .. } => Box::new(ConfusionMatrix { name, threshold, rows: Vec::new() }),
            MetricKind::Auc { .. } => Box::new(Auc { name, average, columns: Vec::new(), weights: Vec::new() }),
            MetricKind::Mae => mean_error(name, Error::Absolute),
            MetricKind::Mse => mean_error(name, Error::Squared),
            MetricKind::Rmse => mean_error(name, Error::Root),
            MetricKind::R2 { multioutput } => Box::new(R2 { name, multioutput: *multioutput, channels: Vec::new() }),
            MetricKind::Perplexity => Box::new(Perplexity { name, sum: 0.0, counted: 0.0 }),
            MetricKind::Custom(custom) => custom.build(),
        }
    }
}

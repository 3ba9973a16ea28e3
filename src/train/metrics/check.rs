//! Whether a metric fits predictions and targets.

use super::{Average, Format, MetricKind};
use crate::error::TrainError;
use crate::tensor::{Shape, plural};

/// The most classes that a confusion matrix has: with them it takes 128 MiB.
const MOST_CLASSES: usize = 4096;

/// What a metric is of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// Classes, or yes and no.
    Decisions,
    /// Several classes, of which one is right.
    Classes,
    /// Numbers.
    Values,
}

impl MetricKind {
    /// Whether it fits predictions and targets, and its settings make sense.
    ///
    /// # Errors
    /// Where it does not: what is wrong, and what would do.
    pub fn check(&self, format: &Format) -> Result<(), TrainError> {
        self.refuse(self.wrong(format, None))
    }

    /// As [`check`](Self::check), for targets of this shape.
    pub(in crate::train) fn check_targets(&self, format: &Format, target: &Shape) -> Result<(), TrainError> {
        self.refuse(self.wrong(format, Some(target)))
    }

    fn refuse(&self, reason: Option<String>) -> Result<(), TrainError> {
        reason.map_or(Ok(()), |reason| Err(TrainError::Setting(format!("the metric {self} is not possible: {reason}"))))
    }

    fn wrong(&self, format: &Format, target: Option<&Shape>) -> Option<String> {
        if let MetricKind::Custom(custom) = self {
            return custom.wrong(format, target);
        }
        let channels = format.channels();
        let outputs = || plural(channels, "output");
        let takes = match self {
            MetricKind::TopK { .. } | MetricKind::Perplexity => Takes::Classes,
            MetricKind::Mae | MetricKind::Mse | MetricKind::Rmse | MetricKind::R2 { .. } => Takes::Values,
            _ => Takes::Decisions,
        };
        if takes == Takes::Values {
            let has_labels = format.classes.is_some();
            return has_labels.then(|| "it needs target values, but the data has labels".to_owned());
        }
        if takes == Takes::Classes && (format.is_binary() || format.has_several_labels()) {
            let several = if format.has_several_labels() { "each a yes or no of its own" } else { "a yes or no" };
            return Some(format!("it is of classes of which one is right, but the model has {}, {several}", outputs()));
        }
        if let Some(classes) = format.classes {
            let possible = format.class_count();
            if classes as usize > possible && format.ignored.is_none_or(|label| label >= classes) {
                let classes = if classes == 1 { "1 class".to_owned() } else { format!("{classes} classes") };
                return Some(format!("the data has {classes}, but the model has {}", outputs()));
            }
        }
        if let Some(threshold) = self.threshold() {
            if !(threshold > 0.0 && threshold < 1.0) {
                return Some(format!("threshold = {threshold:?}, but it must be a probability between 0 and 1"));
            }
            if !(format.is_binary() || format.has_several_labels()) {
                return Some(format!(
                    "threshold is for one output or for several labels, but of {} the largest is the prediction",
                    outputs()
                ));
            }
        }
        if self.average() == Some(Average::Binary) && (format.class_count() != 2 || format.has_several_labels()) {
            return Some(format!(
                "average = \"binary\" is for one output or two classes, but the model has {}: use \"macro\"",
                outputs()
            ));
        }
        match self {
            MetricKind::TopK { k } if !(1..=channels).contains(k) => {
                Some(format!("k = {k}, but it must be between 1 and the model's {}", outputs()))
            }
            MetricKind::ConfusionMatrix { .. } if format.has_several_labels() => Some(format!(
                "it is of classes of which one is right, but the model has {}, each a yes or no of its own: use precision and \
                 recall with average = \"none\"",
                outputs()
            )),
            MetricKind::ConfusionMatrix { .. } if channels > MOST_CLASSES => Some(format!(
                "it has a row and a column for each class, and {channels} are more than {MOST_CLASSES}: use recall with \
                 average = \"none\""
            )),
            _ => None,
        }
    }
}

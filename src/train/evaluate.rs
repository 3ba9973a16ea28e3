//! Whether targets fit a loss, and how metrics read predictions.

use super::loss::Loss;
use super::metrics::{Format, Scores, Target};
use crate::data::{Batch, TargetKind, shown_label};
use crate::error::DataError;
use crate::tensor::{DType, Shape, plural};

/// What the sample at a place of a batch has as a target; nothing where the batch has no such.
pub(super) fn target_of<'a>(batch: &'a Batch, name: &str, place: usize) -> Target<'a> {
    match batch.feature(name) {
        Some((DType::U32, _)) => Target::Labels(batch.integers(name, place)),
        _ => Target::Values(batch.floats(name, place)),
    }
}

impl Loss {
    /// Whether targets fit predictions of this shape, without the batch axis.
    pub(super) fn check_targets(&self, output: &Shape, targets: &TargetKind) -> Result<(), DataError> {
        let mismatch = |text: String| Err(DataError::Mismatch(text));
        let (expected, logits) = self.sample_shapes(output);
        match targets {
            TargetKind::None => mismatch(format!("the data has no targets, which the loss {self} needs")),
            // What they are is in the formula's hands.
            TargetKind::Labels { .. } if matches!(self, Loss::Custom(_)) => Ok(()),
            TargetKind::Values { .. } if self.takes_labels() => {
                mismatch(format!("{self} needs labels, but the data has target values"))
            }
            TargetKind::Labels { .. } if !self.takes_labels() => {
                mismatch(format!("the loss {self} needs target values, but the data has labels"))
            }
            targets if targets.shape() != expected => mismatch(format!(
                "the data's targets have shape {}, but for the model's output {output} the loss {self} needs {expected}",
                targets.shape()
            )),
            // Where a label that does not count is among the classes, it is each label's own check that tells.
            TargetKind::Labels { classes: Some(classes), .. }
                if (*classes as usize) > logits && self.ignored().is_none_or(|label| label >= *classes) =>
            {
                mismatch(format!(
                    "the data has {}, labels up to {}, but the model ends in {}: it needs one for each class, but \
                     for a label that is ignored (ignore_index in the loss)",
                    if *classes == 1 { "1 class".to_owned() } else { format!("{classes} classes") },
                    classes - 1,
                    plural(logits, "output")
                ))
            }
            TargetKind::Labels { ignored: Some(label), classes, .. }
                if classes.is_none_or(|classes| *label >= classes) && self.ignored() != Some(*label) =>
            {
                let label = shown_label(*label);
                mismatch(format!("the data's label {label} is no class: set ignore_index = {label} in the loss"))
            }
            _ => Ok(()),
        }
    }

    /// How metrics read predictions of this shape, without the batch axis, that a model makes which was trained with this loss on
    /// labels of so many classes, or on numbers.
    ///
    /// ```
    /// use tightfit::train::{Loss, MetricKind, Target};
    ///
    /// let (labels, logits) = ([1, 0], [0.1, 0.9, 0.2, 0.8]);
    /// let format = Loss::cross_entropy().format(&[2].into(), Some(2));
    /// let mut accuracy = MetricKind::accuracy().build();
    /// format.samples(&logits, Target::Labels(&labels)).for_each(|sample| accuracy.add(&sample));
    /// assert_eq!(accuracy.value().scalar(), Some(0.5));
    /// ```
    pub fn format(&self, output: &Shape, classes: Option<u32>) -> Format {
        let terms = self.terms();
        let takes_probabilities = terms.iter().any(|(_, loss)| !loss.to_logits().is_empty());
        let is_multilabel = |loss: &Loss| {
            matches!(loss, Loss::Bce { .. } | Loss::BceWithLogits { .. } | Loss::Dice { sigmoid: true, .. })
        };
        Format {
            shape: output.clone(),
            classes,
            ignored: self.ignored(),
            classes_last: self.has_classes_last(),
            scores: if takes_probabilities { Scores::Probabilities } else { Scores::Logits },
            multilabel: terms.iter().any(|(_, loss)| is_multilabel(loss)),
        }
    }

    /// Whether predictions are right or wrong.
    pub(super) fn classifies(&self) -> bool {
        use Loss::{Bce, BceWithLogits, Dice, SoftCrossEntropy};
        self.takes_labels() || matches!(self, SoftCrossEntropy { .. } | BceWithLogits { .. } | Dice { .. } | Bce { .. })
    }

    /// The shape of one sample's target, and the number of classes.
    pub(super) fn sample_shapes(&self, output: &Shape) -> (Shape, usize) {
        if !self.takes_labels() {
            return (output.clone(), 0);
        }
        let parts = if self.has_classes_last() {
            output.split_last().map(|(&classes, rest)| (rest, classes))
        } else {
            output.split_first().map(|(&classes, rest)| (rest, classes))
        };
        parts.map_or_else(|| (Shape::from([]), 0), |(rest, classes)| (rest.into(), classes))
    }
}

//! Whether the settings of a loss make sense.

use super::Loss;
use crate::data::label_bits;
use crate::error::TrainError;

impl Loss {
    /// Whether the settings make sense.
    pub(in crate::train) fn check(&self) -> Result<(), TrainError> {
        let refuse = |reason: &str| Err(TrainError::Setting(format!("the loss {self} is not possible: {reason}")));
        let is_weight = |weight: &f32| weight.is_finite() && *weight >= 0.0;
        if let Loss::CrossEntropy { ignore_index: Some(label), .. } | Loss::Dice { ignore_index: Some(label), .. } =
            self
            && label_bits(*label).is_none()
        {
            return refuse(&format!("ignore_index = {label} is no label of 32 bits"));
        }
        match self {
            Loss::CrossEntropy { label_smoothing, class_weights, .. }
            | Loss::SoftCrossEntropy { label_smoothing, class_weights, .. } => {
                if !(0.0..=1.0).contains(label_smoothing) {
                    return refuse("label_smoothing must be in 0..=1");
                }
                if !class_weights.iter().all(is_weight) {
                    return refuse("class_weights must be 0 or more");
                }
                if !class_weights.is_empty() && class_weights.iter().all(|weight| *weight == 0.0) {
                    return refuse("class_weights must not all be 0: no label would count");
                }
            }
            Loss::Dice { sigmoid, smooth, ignore_index } => {
                if !is_weight(smooth) {
                    return refuse("smooth must be 0 or more");
                }
                if *sigmoid && ignore_index.is_some() {
                    return refuse("ignore_index needs labels, but with sigmoid the targets are probabilities");
                }
            }
            Loss::BceWithLogits { pos_weight } | Loss::Bce { pos_weight } => {
                if !pos_weight.iter().all(is_weight) {
                    return refuse("pos_weight must be 0 or more");
                }
            }
            Loss::Huber { delta } => {
                if !(delta.is_finite() && *delta > 0.0) {
                    return refuse("delta must be above 0");
                }
            }
            Loss::Mse | Loss::Mae => {}
            Loss::Sum { terms } => {
                let Some((_, first)) = terms.first() else { return refuse("it has no terms") };
                if terms.iter().all(|(factor, _)| *factor == 0.0) {
                    return refuse("all factors are 0");
                }
                for (factor, loss) in terms {
                    if !factor.is_finite() {
                        return refuse("a factor is not finite");
                    }
                    if matches!(loss, Loss::Sum { .. }) || loss.has_classes_last() {
                        return refuse("a term cannot be a sum, nor have its classes last");
                    }
                    if loss.takes_labels() != first.takes_labels() {
                        return refuse(&format!("{first} and {loss} do not take the same kind of targets"));
                    }
                    loss.check()?;
                }
            }
        }
        Ok(())
    }
}

//! Whether the settings of a loss make sense.

use super::Loss;
use crate::data::label_bits;
use crate::error::TrainError;
use crate::tensor::format_number;

/// The largest weight of a loss that is not divided by the sum of its weights: 2⁶⁴ such terms have a sum.
const MOST_WEIGHT: f32 = 1e18;

impl Loss {
    /// Whether the settings make sense.
    ///
    /// # Errors
    /// Where one does not.
    pub fn check(&self) -> Result<(), TrainError> {
        let refuse = |reason: &str| Err(TrainError::Setting(format!("the loss {self} is not possible: {reason}")));
        let is_weight = |weight: &f32| weight.is_finite() && *weight >= 0.0;
        let needed = "it must be 0 or more and at most 3.4e38, the largest number of single precision";
        // The first that is none.
        let wrong_weight = |name: &str, weights: &[f32]| {
            let at = weights.iter().position(|weight| !is_weight(weight))?;
            Some(format!("{name}[{at}] = {}, but {needed}", format_number(weights[at])))
        };
        // What is added up as it is must leave room for the sum.
        let too_large = |name: &str, weights: &[f32]| {
            let at = weights.iter().position(|weight| *weight > MOST_WEIGHT)?;
            Some(format!(
                "{name}[{at}] = {:e} is so large that sums overflow: it may be at most {MOST_WEIGHT:e}",
                weights[at]
            ))
        };
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
                if let Some(wrong) = wrong_weight("class_weights", class_weights) {
                    return refuse(&wrong);
                }
                if let (Loss::SoftCrossEntropy { .. }, Some(wrong)) = (self, too_large("class_weights", class_weights))
                {
                    return refuse(&wrong);
                }
                if !class_weights.is_empty() && class_weights.iter().all(|weight| *weight == 0.0) {
                    return refuse("class_weights must not all be 0: no label would count");
                }
            }
            Loss::Dice { sigmoid, smooth, ignore_index } => {
                if !is_weight(smooth) {
                    return refuse(&format!("smooth = {}, but {needed}", format_number(*smooth)));
                }
                if *sigmoid && ignore_index.is_some() {
                    return refuse("ignore_index needs labels, but with sigmoid the targets are probabilities");
                }
            }
            Loss::BceWithLogits { pos_weight } | Loss::Bce { pos_weight } => {
                if let Some(wrong) =
                    wrong_weight("pos_weight", pos_weight).or_else(|| too_large("pos_weight", pos_weight))
                {
                    return refuse(&wrong);
                }
            }
            Loss::Huber { delta } => {
                if !(delta.is_finite() && *delta > 0.0) {
                    return refuse(&format!(
                        "delta = {}, but it must be above 0 and at most 3.4e38",
                        format_number(*delta)
                    ));
                }
            }
            Loss::Mse | Loss::Mae | Loss::Custom(_) => {}
            Loss::Sum { terms } => {
                let Some((_, first)) = terms.first() else { return refuse("it has no terms") };
                if terms.iter().all(|(factor, _)| *factor == 0.0) {
                    return refuse("all factors are 0");
                }
                for (i, (factor, loss)) in terms.iter().enumerate() {
                    if !factor.is_finite() {
                        return refuse(&format!("the factor of terms[{i}] is {factor}, but it must be finite"));
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

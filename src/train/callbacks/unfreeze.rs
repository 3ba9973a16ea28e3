//! Parameters that are trained from a later step on.

use super::Callback;
use crate::error::TrainError;
use crate::plan::Planned;
use crate::train::report::StepReport;
use crate::train::schedule::Length;
use crate::train::trainer::Trainer;

/// Unfreezes parameters when so much of a fit is done: a new head is trained first, then the whole model.
///
/// What it takes to train them is planned before the first step, so that a budget that is too small for it is known then.
///
/// ```
/// use tightfit::train::{Config, FitOptions, Length, Unfreeze};
///
/// // The head alone for two epochs, then the last stage too, then all.
/// let config = Config::default().train_only("fc.");
/// let mut stage = Unfreeze::parameters("layer4.", Length::Epochs(2.0));
/// let mut all = Unfreeze::all(Length::Epochs(4.0));
/// let options = FitOptions { callbacks: vec![&mut stage, &mut all], ..FitOptions::epochs(8) };
/// # let _ = (config, options);
/// ```
///
/// Source: Howard and Ruder 2018, section 3.3, <https://arxiv.org/abs/1801.06146>
#[derive(Clone, Debug, PartialEq)]
pub struct Unfreeze {
    name: String,
    prefix: String,
    after: Length,
}

impl Unfreeze {
    /// All parameters.
    pub fn all(after: Length) -> Self {
        Unfreeze::parameters("", after)
    }

    /// Those whose names begin so.
    pub fn parameters(prefix: impl Into<String>, after: Length) -> Self {
        let prefix = prefix.into();
        Unfreeze { name: format!("unfreeze {prefix}").trim_end().to_owned(), prefix, after }
    }

    /// Whether they are frozen.
    fn is_needed(&self, trainer: &Trainer) -> bool {
        trainer.frozen().iter().any(|name| name.starts_with(&self.prefix))
    }

    /// The plan of all steps from then on.
    ///
    /// # Errors
    /// Where there are no such parameters, or no plan meets the budget.
    pub fn plan(&self, trainer: &Trainer) -> Result<Planned, TrainError> {
        let config = trainer.unfrozen(&self.prefix)?;
        trainer.plan_with(|_| config)
    }
}

impl Callback for Unfreeze {
    fn name(&self) -> &str {
        &self.name
    }

    fn on_fit_begin(&mut self, trainer: &mut Trainer) -> Result<(), TrainError> {
        match self.is_needed(trainer) {
            true => self.plan(trainer).map(drop),
            // A name that is wrong should not go unnoticed.
            false => trainer.unfrozen(&self.prefix).map(drop),
        }
    }

    fn on_step_end(&mut self, trainer: &mut Trainer, step: &StepReport) -> Result<(), TrainError> {
        let is_due = step.step >= self.after.steps(step.steps_per_epoch) && self.is_needed(trainer);
        if is_due { trainer.unfreeze(&self.prefix) } else { Ok(()) }
    }
}

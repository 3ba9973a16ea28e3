//! What happens besides the steps of a fit: early stopping, logs, and what users bring.

mod early_stopping;
mod logger;
mod plateau;
mod unfreeze;

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use early_stopping::StopEarly;
pub use logger::Logger;
pub use plateau::LowerOnPlateau;
pub use unfreeze::Unfreeze;

use super::report::{EpochReport, FitReport, StepReport};
use super::trainer::{Replan, Trainer};
use crate::error::TrainError;

/// What a callback keeps in a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallbackState {
    /// Numbers and words. Floating-point numbers come back bit for bit.
    pub values: Value,
    /// Tensors, such as a copy of parameters.
    #[serde(skip)]
    pub tensors: BTreeMap<String, Vec<f32>>,
}

/// Sees every event of a [`fit`](Trainer::fit). It can read the trainer, change its learning rate
/// ([`set_lr`](Trainer::set_lr), [`set_lr_scale`](Trainer::set_lr_scale)) and its settings
/// ([`reconfigure`](Trainer::reconfigure)), and end the fit ([`stop`](Trainer::stop)).
///
/// What a callback remembers belongs into [`state`](Callback::state), so that a fit that resumes from a checkpoint does as if it
/// had not been interrupted. Its values are a [`serde_json::Value`].
///
/// ```
/// use tightfit::error::TrainError;
/// use tightfit::train::{Callback, CallbackState, StepReport, Trainer};
///
/// /// Ends a fit when the loss was small so many times.
/// struct GoodEnough {
///     most: f32,
///     times: u64,
///     seen: u64,
/// }
///
/// impl Callback for GoodEnough {
///     fn name(&self) -> &str {
///         "good_enough"
///     }
///
///     fn on_step_end(&mut self, trainer: &mut Trainer, step: &StepReport) -> Result<(), TrainError> {
///         self.seen += u64::from(step.loss < self.most);
///         if self.seen >= self.times {
///             trainer.stop(format!("the loss was below {}", self.most));
///         }
///         Ok(())
///     }
///
///     fn state(&mut self) -> Result<CallbackState, TrainError> {
///         Ok(CallbackState { values: self.seen.into(), ..CallbackState::default() })
///     }
///
///     fn restore(&mut self, state: &CallbackState) -> Result<(), TrainError> {
///         self.seen = state.values.as_u64().unwrap_or(0);
///         Ok(())
///     }
/// }
/// ```
pub trait Callback {
    /// What a checkpoint calls it. Of several of one name, the second is called `name.2` and so on, in the order of the fit's list.
    fn name(&self) -> &str;

    /// Before the first step; also where a fit goes on from a checkpoint, after [`restore`](Callback::restore).
    ///
    /// # Errors
    /// Ends the fit.
    fn on_fit_begin(&mut self, trainer: &mut Trainer) -> Result<(), TrainError> {
        let _ = trainer;
        Ok(())
    }

    /// Before the first step of an epoch, counted from 1.
    ///
    /// # Errors
    /// Ends the fit.
    fn on_epoch_begin(&mut self, trainer: &mut Trainer, epoch: u64) -> Result<(), TrainError> {
        let _ = (trainer, epoch);
        Ok(())
    }

    /// After each step.
    ///
    /// # Errors
    /// Ends the fit.
    fn on_step_end(&mut self, trainer: &mut Trainer, step: &StepReport) -> Result<(), TrainError> {
        let _ = (trainer, step);
        Ok(())
    }

    /// After each epoch, and its validation where there is one.
    ///
    /// # Errors
    /// Ends the fit.
    fn on_epoch_end(&mut self, trainer: &mut Trainer, epoch: &EpochReport) -> Result<(), TrainError> {
        let _ = (trainer, epoch);
        Ok(())
    }

    /// Training began anew from an earlier step, under another plan or on a device that was opened again. The callback was
    /// [restored](Callback::restore) to that step.
    ///
    /// # Errors
    /// Ends the fit.
    fn on_replan(&mut self, trainer: &mut Trainer, replan: &Replan) -> Result<(), TrainError> {
        let _ = (trainer, replan);
        Ok(())
    }

    /// Another callback had the trainer [reconfigured](Trainer::reconfigure): there is another plan.
    ///
    /// # Errors
    /// Ends the fit.
    fn on_reconfigure(&mut self, trainer: &mut Trainer) -> Result<(), TrainError> {
        let _ = trainer;
        Ok(())
    }

    /// After the last step; not where the fit fails.
    ///
    /// # Errors
    /// Makes the fit fail, though its steps are done.
    fn on_fit_end(&mut self, trainer: &mut Trainer, report: &FitReport) -> Result<(), TrainError> {
        let _ = (trainer, report);
        Ok(())
    }

    /// What it remembers. Asked for before each checkpoint and each snapshot.
    ///
    /// # Errors
    /// Where memory is short, or what must be on disk by then cannot be written.
    fn state(&mut self) -> Result<CallbackState, TrainError> {
        Ok(CallbackState::default())
    }

    /// Takes up what [`state`](Callback::state) gave at an earlier step, in this process or in another.
    ///
    /// # Errors
    /// Where it is not such a state.
    fn restore(&mut self, state: &CallbackState) -> Result<(), TrainError> {
        let _ = state;
        Ok(())
    }
}

/// What a callback remembers, but for tensors.
fn remembered(state: &impl Serialize) -> CallbackState {
    let values = serde_json::to_value(state).expect("bug: a state that JSON cannot hold");
    CallbackState { values, ..CallbackState::default() }
}

/// What a callback of this name remembered, as what it is.
fn state_of<T: DeserializeOwned>(name: &str, state: &CallbackState) -> Result<T, TrainError> {
    serde_json::from_value(state.values.clone()).map_err(|error| {
        TrainError::Setting(format!("the checkpoint's state of `{name}` is not one ({error}): take another checkpoint"))
    })
}

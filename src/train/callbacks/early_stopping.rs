//! Early stopping.

use std::collections::BTreeMap;

use super::{Callback, CallbackState};
use crate::error::TrainError;
use crate::tensor::{format_value, plural};
use crate::train::monitor::{EarlyStopping, EarlyStoppingState, Verdict};
use crate::train::report::{EpochReport, FitReport};
use crate::train::trainer::Trainer;

/// Ends a fit when a value does not get better any more, and then puts the best parameters back where
/// [`restore_best`](EarlyStopping::restore_best) is set, also where the fit ends of itself.
///
/// ```
/// use tightfit::train::{EarlyStopping, FitOptions, StopEarly};
///
/// let mut early = StopEarly::new(EarlyStopping { patience: 3, restore_best: true, ..EarlyStopping::default() });
/// let options = FitOptions { callbacks: vec![&mut early], ..FitOptions::epochs(100) };
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
pub struct StopEarly {
    settings: EarlyStopping,
    state: EarlyStoppingState,
    /// Parameters and buffers of the best epoch.
    best: BTreeMap<String, Vec<f32>>,
}

impl StopEarly {
    /// With these settings.
    pub fn new(settings: EarlyStopping) -> Self {
        StopEarly { settings, state: EarlyStoppingState::default(), best: BTreeMap::new() }
    }

    /// What it has seen.
    pub fn state(&self) -> &EarlyStoppingState {
        &self.state
    }
}

impl Callback for StopEarly {
    fn name(&self) -> &'static str {
        "early_stopping"
    }

    fn on_fit_begin(&mut self, trainer: &mut Trainer) -> Result<(), TrainError> {
        self.settings.mode = self.settings.mode.or_of(&self.settings.monitor, &trainer.config().metrics);
        self.settings.check()
    }

    fn on_epoch_end(&mut self, trainer: &mut Trainer, epoch: &EpochReport) -> Result<(), TrainError> {
        let value = epoch.value(&self.settings.monitor)?;
        match self.state.observe(&self.settings, epoch.epoch, value) {
            Verdict::Improved if self.settings.restore_best => {
                // With averages, those are what was evaluated.
                let tensors = trainer.with_averages(Trainer::state_dict)?;
                self.best = tensors.into_iter().map(|(name, (_, values))| (name, values)).collect();
            }
            Verdict::Stop => trainer.stop(format!(
                "`{}` has not been better than {} for {}",
                self.settings.monitor,
                format_value(self.state.best.unwrap_or(f64::NAN)),
                // Without patience, one epoch is enough.
                plural(self.settings.patience.max(1) as usize, "epoch")
            )),
            Verdict::Improved | Verdict::Waiting => {}
        }
        Ok(())
    }

    fn on_fit_end(&mut self, trainer: &mut Trainer, report: &FitReport) -> Result<(), TrainError> {
        // What was interrupted goes on from what it is.
        if report.interrupted {
            return Ok(());
        }
        trainer.with_averages(|trainer| {
            self.best.iter().try_for_each(|(name, values)| trainer.set_parameter(name, values))
        })
    }

    fn state(&mut self) -> Result<CallbackState, TrainError> {
        Ok(CallbackState { tensors: self.best.clone(), ..super::remembered(&self.state) })
    }

    fn restore(&mut self, state: &CallbackState) -> Result<(), TrainError> {
        self.state = super::state_of("early_stopping", state)?;
        self.best.clone_from(&state.tensors);
        Ok(())
    }
}

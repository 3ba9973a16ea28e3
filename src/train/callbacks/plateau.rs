//! A learning rate that falls where a value does not get better.

use super::{Callback, CallbackState};
use crate::error::TrainError;
use crate::train::monitor::{PlateauState, ReduceOnPlateau};
use crate::train::report::EpochReport;
use crate::train::trainer::Trainer;

/// Lowers the learning rate when a value has not become better for some epochs. It multiplies what a schedule makes of it.
///
/// ```
/// use tightfit::train::{FitOptions, LowerOnPlateau, ReduceOnPlateau};
///
/// let mut plateau = LowerOnPlateau::new(ReduceOnPlateau { patience: 2, factor: 0.5, ..ReduceOnPlateau::default() });
/// let options = FitOptions { callbacks: vec![&mut plateau], ..FitOptions::epochs(50) };
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
pub struct LowerOnPlateau {
    settings: ReduceOnPlateau,
    state: PlateauState,
}

impl LowerOnPlateau {
    /// With these settings.
    pub fn new(settings: ReduceOnPlateau) -> Self {
        LowerOnPlateau { settings, state: PlateauState::default() }
    }
}

impl Callback for LowerOnPlateau {
    fn name(&self) -> &'static str {
        "reduce_on_plateau"
    }

    fn on_fit_begin(&mut self, trainer: &mut Trainer) -> Result<(), TrainError> {
        self.settings.mode = self.settings.mode.or_of(&self.settings.monitor, &trainer.config().metrics);
        self.settings.check()
    }

    fn on_epoch_end(&mut self, trainer: &mut Trainer, epoch: &EpochReport) -> Result<(), TrainError> {
        let value = epoch.value(&self.settings.monitor)?;
        let lr = trainer.lr();
        if let Some(lower) = self.state.observe(&self.settings, value, lr)
            && lr > 0.0
        {
            trainer.set_lr_scale(trainer.lr_scale() * (lower / lr))?;
        }
        Ok(())
    }

    fn state(&mut self) -> Result<CallbackState, TrainError> {
        Ok(super::remembered(&self.state))
    }

    fn restore(&mut self, state: &CallbackState) -> Result<(), TrainError> {
        self.state = super::state_of("reduce_on_plateau", state)?;
        Ok(())
    }
}

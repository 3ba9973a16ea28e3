//! Logs of a fit.

use std::fmt;
use std::path::{Path, PathBuf};

use super::{Callback, CallbackState};
use crate::error::{DataError, TrainError};
use crate::train::log::{CsvLog, JsonlLog, Log, TensorBoardLog};
use crate::train::report::{EpochReport, FitReport, StepReport};
use crate::train::trainer::Trainer;

/// How a log is opened, and the log.
type Slot = (Box<Open>, Option<Box<dyn Log>>);
type Open = dyn FnMut(Option<u64>) -> Result<Box<dyn Log>, DataError>;

/// Writes logs of a fit. A fit that goes on from a checkpoint goes on with its logs: what they have of later steps is cut off, since
/// these steps are repeated. Where a log cannot be written, as on a full disk, a warning says so and training goes on without it.
///
/// ```
/// use tightfit::train::{FitOptions, Logger};
///
/// # let folder = std::env::temp_dir();
/// let mut logger = Logger::new().csv(&folder).jsonl(folder.join("log.jsonl")).tensorboard(folder.join("tensorboard"));
/// let options = FitOptions { callbacks: vec![&mut logger], ..FitOptions::epochs(10) };
/// # let _ = options;
/// ```
#[derive(Default)]
pub struct Logger {
    logs: Vec<Slot>,
    /// The last step that logs were told of.
    step: u64,
    is_open: bool,
}

impl fmt::Debug for Logger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logger").field("logs", &self.logs.len()).field("step", &self.step).finish_non_exhaustive()
    }
}

impl Logger {
    /// Without logs.
    pub fn new() -> Self {
        Logger::default()
    }

    /// Adds a log: `open` is given the last step of the checkpoint that a fit goes on from, or none where it begins.
    #[must_use]
    pub fn log<L: Log + 'static>(
        mut self,
        mut open: impl FnMut(Option<u64>) -> Result<L, DataError> + 'static,
    ) -> Self {
        let open = move |resume_at| open(resume_at).map(|log| Box::new(log) as Box<dyn Log>);
        self.logs.push((Box::new(open), None));
        self
    }

    /// Adds tables of comma-separated values, `steps.csv` and `epochs.csv` in a folder.
    #[must_use]
    pub fn csv(self, folder: impl AsRef<Path>) -> Self {
        let folder: PathBuf = folder.as_ref().to_owned();
        self.log(move |resume_at| CsvLog::open(&folder, resume_at))
    }

    /// Adds a file of JSON objects, one a line.
    #[must_use]
    pub fn jsonl(self, path: impl AsRef<Path>) -> Self {
        let path: PathBuf = path.as_ref().to_owned();
        self.log(move |resume_at| JsonlLog::open(&path, resume_at))
    }

    /// Adds event files for TensorBoard in a folder.
    #[must_use]
    pub fn tensorboard(self, folder: impl AsRef<Path>) -> Self {
        let folder: PathBuf = folder.as_ref().to_owned();
        self.log(move |resume_at| TensorBoardLog::open(&folder, resume_at))
    }

    fn open(&mut self, resume_at: Option<u64>) -> Result<(), TrainError> {
        for (open, log) in &mut self.logs {
            // The one before must let go of its file.
            *log = None;
            *log = Some(open(resume_at)?);
        }
        self.is_open = true;
        Ok(())
    }

    fn each(&mut self, mut tell: impl FnMut(&mut dyn Log) -> Result<(), DataError>) {
        for (_, slot) in &mut self.logs {
            if let Some(log) = slot
                && let Err(error) = tell(&mut **log)
            {
                ::log::warn!("{error}: this log ends here, training goes on");
                *slot = None;
            }
        }
    }
}

impl Callback for Logger {
    fn name(&self) -> &'static str {
        "logger"
    }

    fn on_fit_begin(&mut self, _: &mut Trainer) -> Result<(), TrainError> {
        if self.is_open { Ok(()) } else { self.open(None) }
    }

    fn on_step_end(&mut self, _: &mut Trainer, step: &StepReport) -> Result<(), TrainError> {
        self.step = step.step;
        let values = step.values();
        self.each(|log| log.step(step.step, step.epoch, &values));
        Ok(())
    }

    fn on_epoch_end(&mut self, _: &mut Trainer, epoch: &EpochReport) -> Result<(), TrainError> {
        let values = epoch.values();
        let values: Vec<_> = values.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        self.each(|log| log.epoch(epoch.step, epoch.epoch, &values));
        Ok(())
    }

    fn on_fit_end(&mut self, _: &mut Trainer, _: &FitReport) -> Result<(), TrainError> {
        self.each(|log| log.flush());
        self.is_open = false;
        Ok(())
    }

    fn state(&mut self) -> Result<CallbackState, TrainError> {
        self.each(|log| log.flush());
        Ok(CallbackState { values: self.step.into(), ..CallbackState::default() })
    }

    fn restore(&mut self, state: &CallbackState) -> Result<(), TrainError> {
        self.step = super::state_of("logger", state)?;
        self.open(Some(self.step))
    }
}

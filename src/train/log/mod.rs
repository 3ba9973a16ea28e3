//! Logs of a training in files: comma-separated values, JSON lines, and TensorBoard's event files.

mod csv_log;
mod jsonl;
mod output;
mod tensorboard;
#[cfg(test)]
mod tests;

use std::fmt;

pub use csv_log::CsvLog;
pub use jsonl::JsonlLog;
pub use tensorboard::TensorBoardLog;

use crate::error::DataError;

/// Who is told what each step and each epoch of a training reports.
///
/// The writers here are opened with the last step of the checkpoint that a run goes on from, `None` for a run from the start. What they
/// wrote of later steps is cut off, since these steps are made and written again, and what they wrote of earlier ones stays. So
/// the log of a run that was interrupted equals that of one that never was, but for the times of day, which stand last in a row.
/// For that, [`flush`](Log::flush) is called before each checkpoint. A step or an epoch that is there already is not written twice.
///
/// Rows are gathered and written whole: when an epoch ends, and when the last time was a second ago. If that fails, as on a full disk,
/// the call returns the error, and the log ends there: later calls do nothing.
///
/// ```
/// use tightfit::train::{CsvLog, JsonlLog, Log, TensorBoardLog};
///
/// # let folder = std::env::temp_dir().join(format!("tightfit-log-{}", std::process::id()));
/// let mut logs: Vec<Box<dyn Log>> = vec![
///     Box::new(CsvLog::open(&folder, None)?),
///     Box::new(JsonlLog::open(&folder.join("log.jsonl"), None)?),
///     Box::new(TensorBoardLog::open(&folder.join("tensorboard"), None)?),
/// ];
/// for log in &mut logs {
///     log.step(1, 1, &[("loss", 0.7)])?;
///     log.epoch(1, 1, &[("loss", 0.7), ("val_loss", 0.8)])?;
///     log.flush()?;
/// }
/// let epochs = std::fs::read_to_string(folder.join("epochs.csv"))?;
/// assert!(epochs.starts_with("epoch,step,loss,val_loss,wall_time\n1,1,0.7,0.8,"));
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Log: fmt::Debug + Send {
    /// What a step reports, by name. Steps count from 1 over all epochs, and epochs from 1.
    ///
    /// # Errors
    /// Where a name is one that a log cannot have, or the log cannot be written.
    fn step(&mut self, step: u64, epoch: u64, values: &[(&str, f64)]) -> Result<(), DataError>;

    /// What an epoch came to, whose last step this was.
    ///
    /// # Errors
    /// As [`step`](Log::step).
    fn epoch(&mut self, step: u64, epoch: u64, values: &[(&str, f64)]) -> Result<(), DataError>;

    /// Writes what was gathered, and waits until it is on the disk.
    ///
    /// # Errors
    /// Where the log cannot be written.
    fn flush(&mut self) -> Result<(), DataError>;
}

/// What each row has beside its values.
const STEP: &str = "step";
const EPOCH: &str = "epoch";
const EVENT: &str = "event";
const WALL_TIME: &str = "wall_time";

/// Refuses names that a row cannot tell apart.
fn check_names(values: &[(&str, f64)]) -> Result<(), DataError> {
    let mismatch = |text: String| Err(DataError::Mismatch(text));
    for (at, (name, _)) in values.iter().enumerate() {
        if [STEP, EPOCH, EVENT, WALL_TIME].contains(name) {
            return mismatch(format!(
                "a value of a log cannot be named `{name}`, since each row has a `{name}`: rename it"
            ));
        }
        if name.is_empty() || name.chars().any(char::is_control) {
            return mismatch(format!("a value of a log cannot be named {name:?}: give it a name in one line of text"));
        }
        if values[..at].iter().any(|(other, _)| other == name) {
            return mismatch(format!("two values of a log are named `{name}`: rename one"));
        }
    }
    Ok(())
}

//! A JSON object per line.

use std::io::{BufWriter, Write as _};
use std::path::Path;

use serde::Deserialize;

use super::output::{Output, foreign, io_error, lines, wall_time};
use super::{EPOCH, Log, STEP, WALL_TIME, check_names};
use crate::error::DataError;
use crate::files;

/// A log as one JSON object per line: `event`, which is `step` or `epoch`, then step, epoch, the values by name, and the time of day in
/// seconds since 1970 as `wall_time`. What is not finite is `null`.
#[derive(Debug)]
pub struct JsonlLog {
    output: Output,
    last_step: u64,
    last_epoch: u64,
}

/// What is read of a line.
#[derive(Deserialize)]
struct Line {
    event: String,
    step: u64,
    epoch: u64,
}

impl JsonlLog {
    /// Opens the file; its folder is made where there is none. `resume_at` is the last step that is kept of those that are there: see
    /// [`Log`]. Without it, the log starts anew.
    ///
    /// # Errors
    /// Where there is a file that is no such log, or it cannot be written.
    pub fn open(path: &Path, resume_at: Option<u64>) -> Result<Self, DataError> {
        files::make_folder_of(path)?;
        let (mut last_step, mut last_epoch) = (0, 0);
        files::write_with(path, |file| {
            let mut writer = BufWriter::new(file);
            let failed = |error| io_error(path, error);
            lines(path, |line| {
                let Ok(Line { event, step, epoch }) = serde_json::from_slice(line) else { return Err(foreign(path)) };
                if resume_at.is_none_or(|most| step > most) {
                    return Ok(());
                }
                match event.as_str() {
                    STEP => last_step = step,
                    EPOCH => last_epoch = epoch,
                    _ => return Err(foreign(path)),
                }
                writer.write_all(line).and_then(|()| writer.write_all(b"\n")).map_err(failed)
            })?;
            writer.flush().map_err(failed)
        })?;
        Ok(JsonlLog { output: Output::append(path)?, last_step, last_epoch })
    }

    fn add(&mut self, event: &str, step: u64, epoch: u64, values: &[(&str, f64)]) -> Result<(), DataError> {
        let mut line = format!("{{\"event\":\"{event}\",\"{STEP}\":{step},\"{EPOCH}\":{epoch}");
        for (name, value) in values {
            let name = serde_json::Value::from(*name);
            line.push_str(&format!(",{name}:{}", serde_json::Value::from(*value)));
        }
        line.push_str(&format!(",\"{WALL_TIME}\":{:.3}}}\n", wall_time()));
        self.output.row(line.as_bytes())
    }
}

impl Log for JsonlLog {
    fn step(&mut self, step: u64, epoch: u64, values: &[(&str, f64)]) -> Result<(), DataError> {
        check_names(values)?;
        if step <= self.last_step {
            return Ok(());
        }
        self.last_step = step;
        self.add(STEP, step, epoch, values)
    }

    fn epoch(&mut self, step: u64, epoch: u64, values: &[(&str, f64)]) -> Result<(), DataError> {
        check_names(values)?;
        if epoch <= self.last_epoch {
            return Ok(());
        }
        self.last_epoch = epoch;
        self.add(EPOCH, step, epoch, values)?;
        self.output.write()
    }

    fn flush(&mut self) -> Result<(), DataError> {
        self.output.sync()
    }
}

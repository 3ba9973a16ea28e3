//! Traces of a step, for viewers of such.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::thread;

use super::trainer::Trainer;
use crate::data::{DataLoader, EpochOptions};
use crate::error::{DataError, DeviceError, TrainError};
use crate::files;
use crate::graph::Role;
use crate::plan::{Planned, StepTimes};

/// Writes a step as a Chrome trace, which Perfetto opens, to a file that appears whole or not at all: see [`Planned::write_trace`].
/// `model` is for its title.
///
/// # Errors
/// Where the file cannot be written.
pub fn save_trace(planned: &Planned, model: &str, times: &StepTimes, path: impl AsRef<Path>) -> Result<(), DataError> {
    let path = path.as_ref();
    files::write_with(path, |file| {
        let mut text = TextFile { writer: BufWriter::new(file), error: None };
        let written = planned
            .write_trace(model, times, &mut text)
            .map_err(|error| text.error.take().unwrap_or(io::Error::other(error)));
        written.and_then(|()| text.writer.flush()).map_err(|source| DataError::Io { path: path.to_owned(), source })
    })
}

/// A file for text, piece by piece.
struct TextFile<'a> {
    writer: BufWriter<&'a mut File>,
    /// Why the last piece was not taken.
    error: Option<io::Error>,
}

impl fmt::Write for TextFile<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.writer.write_all(text.as_bytes()).map_err(|error| {
            self.error = Some(error);
            fmt::Error
        })
    }
}

impl Trainer {
    /// What the nodes of a step take, on the first batch of `data`: measured as [`Trainer::profile_step`] does. Times of copies between
    /// device and host are those that the plan counts on. Parameters, buffers, optimizer state and the number of steps are as before: they are
    /// kept in memory of the host meanwhile.
    ///
    /// # Errors
    /// As [`Trainer::profile_step`].
    pub fn trace<'d>(&mut self, data: impl Into<DataLoader<'d>>) -> Result<StepTimes, TrainError> {
        let data = data.into();
        let size = self.config.batch;
        if let Some(samples) = data.len().filter(|samples| *samples < size) {
            let text = "a trace takes the samples of a batch";
            return Err(TrainError::Setting(format!("{text}, {size}, but the data has {samples}")));
        }
        let options = EpochOptions { training: true, ..EpochOptions::new(size) };
        let batch = thread::scope(|scope| data.epoch(scope, options)?.next_batch())?;
        let batch = batch.expect("bug: data without a batch");
        let lasting = self.planned.plan.persistent.iter().filter(|value| value.role != Role::Accumulator);
        let names: Vec<String> = lasting.map(|value| value.name.clone()).collect();
        let kept = names.iter().map(|name| self.executor.read(name)).collect::<Result<Vec<_>, DeviceError>>()?;
        let steps = self.steps;
        let mut nodes_ns = Vec::new();
        let stepped = self.step_batch_with(&batch, &mut |executor, program, read| {
            let times = executor.profile(program, read)?;
            nodes_ns.push(times.into_iter().map(|time| time.ns).collect());
            Ok(())
        });
        self.steps = steps;
        for (name, data) in names.iter().zip(&kept) {
            self.executor.write(name, data)?;
        }
        stepped?;
        // Without the costs that the plan was made with, those of software.
        let costs =
            self.cost_source().and_then(|source| source.costs(self.planned.plan.threads).ok()).unwrap_or_default();
        let predicted = StepTimes::predicted(&self.planned, &costs);
        Ok(predicted.with_measured_nodes(&self.planned.plan, &self.clock().to_string(), &nodes_ns))
    }

    /// Writes what [`Trainer::trace`] found, in the layout of a trace of the plan: see [`save_trace`].
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn save_trace(&self, times: &StepTimes, path: impl AsRef<Path>) -> Result<(), DataError> {
        save_trace(&self.planned, self.model.name(), times, path)
    }
}

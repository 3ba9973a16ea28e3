//! `--trace FILE`: a step for viewers of traces.

use std::path::Path;

use serde_json::json;
use tightfit::command::files;
use tightfit::data::DataLoader;
use tightfit::train::Trainer;

use super::failure::{Failure, keep};
use super::output::{Output, shown};
use super::overwrite::Kind;

/// Refuses a file that cannot be written, or that a trace would replace though it is none.
pub(crate) fn check(path: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    files::check_writable(path, 1).map_err(|error| Failure::bad_input(format!("--trace {error}")))?;
    Kind::Trace.check("--trace", path)
}

/// Measures one more step of a training that is done, and writes it. Takes memory beyond the plan, so it comes after the measured peak was
/// compared with the planned one.
pub(crate) fn measured(
    trainer: &mut Trainer,
    data: &DataLoader<'_>,
    path: &Path,
    output: &Output,
) -> Result<(), Failure> {
    let times = trainer.trace(data)?;
    keep(path, |path| Ok(trainer.save_trace(&times, path)?))?;
    output.text(format_args!("written to {}", path.display()));
    output.object(&json!({ "event": "trace", "trace": shown(path), "clock": times.clock }));
    Ok(())
}

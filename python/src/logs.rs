//! The library's warnings, such as that it plans anew where memory goes, through Python's `logging`, as those of the logger `tightfit`.

use log::{LevelFilter, Log, Metadata, Record};
use pyo3::prelude::*;

struct ToPython;

impl Log for ToPython {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Those of other crates mean nothing to users.
        metadata.level() <= log::Level::Warn && metadata.target().split("::").next() == Some("tightfit")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let text = record.args().to_string();
        let method = if record.level() == log::Level::Error { "error" } else { "warning" };
        // Nobody is there to hear that this failed.
        let _ = Python::attach(|py| -> PyResult<()> {
            let logger = py.import("logging")?.call_method1("getLogger", ("tightfit",))?;
            // As an argument: what looks like a format in it is none.
            logger.call_method1(method, ("%s", text)).map(drop)
        });
    }

    fn flush(&self) {}
}

/// From here on. Where the process has another logger already, that stays.
pub(crate) fn start() {
    if log::set_logger(&ToPython).is_ok() {
        log::set_max_level(LevelFilter::Warn);
    }
}

//! Standard output: text for people or one JSON object per line, and a reader that may leave at any time.

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

/// Where a command writes its results.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    json: bool,
    /// The reader is gone.
    closed: Arc<AtomicBool>,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Output { json, closed: Arc::default() }
    }

    /// Whether the command was asked for JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Whether someone is watching the lines appear.
    pub(crate) fn is_terminal(&self) -> bool {
        !self.json && io::stdout().is_terminal()
    }

    /// Becomes true when the reader is gone: nothing more needs to be said.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Writes a line of text, unless JSON was asked for.
    pub(crate) fn text(&self, line: impl Display) {
        if !self.json {
            self.write(line);
        }
    }

    /// Writes an object, if JSON was asked for.
    pub(crate) fn object(&self, object: &Value) {
        if self.json {
            self.write(object);
        }
    }

    fn write(&self, line: impl Display) {
        if self.is_closed() {
            return;
        }
        let mut stdout = io::stdout().lock();
        // `head` closing the pipe is no failure; neither is a full disk a reason to lose a training.
        if writeln!(stdout, "{line}").and_then(|()| stdout.flush()).is_err() {
            self.closed.store(true, Ordering::Relaxed);
        }
    }
}

//! Standard output: text for people or one JSON object per line, and a reader that may leave at any time.

use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};

use super::failure::Failure;

/// Where a command writes its results.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    json: bool,
    end: Arc<OnceLock<End>>,
}

/// Why nothing more is written.
#[derive(Debug)]
enum End {
    /// The reader is gone and wants no more, like `head`.
    Left,
    /// A full disk, a lost terminal: what was asked for is not there.
    Failed(String),
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Output { json, end: Arc::default() }
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
        matches!(self.end.get(), Some(End::Left))
    }

    /// What could not be written, if anything.
    pub(crate) fn failure(&self) -> Option<Failure> {
        let Some(End::Failed(reason)) = self.end.get() else { return None };
        Some(Failure::unwritten(format!("standard output could not be written in full: {reason}")))
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
        if self.end.get().is_none() {
            let mut stdout = io::stdout().lock();
            self.note(writeln!(stdout, "{line}").and_then(|()| stdout.flush()));
        }
    }

    /// Remembers what became of writing: it ends no command by itself, and least of all a training.
    pub(crate) fn note(&self, written: io::Result<()>) {
        if let Err(error) = written {
            let left = error.kind() == ErrorKind::BrokenPipe;
            self.end.get_or_init(|| if left { End::Left } else { End::Failed(error.to_string()) });
        }
    }
}

/// A path in JSON, which holds nothing but text: what is no text in it is shown as such.
pub(crate) fn shown(path: &Path) -> Value {
    json!(path.to_string_lossy())
}

/// A path that need not be there.
pub(crate) fn shown_if_any(path: Option<impl AsRef<Path>>) -> Value {
    path.map_or(Value::Null, |path| shown(path.as_ref()))
}

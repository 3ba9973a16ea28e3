//! Standard output: text for people or one JSON object per line, and a reader that may leave at any time.

use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};
use textwrap::{Options, WordSplitter};

use super::failure::Failure;

/// Lines that are no wider than this, but for words that are: names and sums that a reader may want to copy stay whole.
pub(crate) fn wrapped(text: &str, width: usize) -> String {
    let wrap = |line: &str| {
        let text = line.trim_start_matches(' ');
        let indent = line.len() - text.len();
        let (first, more) = (" ".repeat(indent), " ".repeat(indent + 2));
        let options = Options::new(width).initial_indent(&first).subsequent_indent(&more).break_words(false);
        textwrap::fill(text, options.word_splitter(WordSplitter::NoHyphenation))
    };
    text.split('\n').map(wrap).collect::<Vec<_>>().join("\n")
}

/// Columns as wide as what stands in them: the first `words` begin below each other, numbers after them end so.
pub(crate) fn columns<const N: usize>(rows: &[[String; N]], words: usize) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
            if column < words { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        cells.collect::<Vec<_>>().join("  ")
    };
    rows.iter().map(line).collect()
}

/// A table of numbers.
pub(crate) fn table<const N: usize>(rows: &[[String; N]]) -> String {
    columns(rows, 0).join("\n")
}

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

    /// Characters of a line.
    pub(crate) fn width(&self) -> usize {
        if self.is_terminal() { textwrap::termwidth() } else { usize::MAX }
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

    /// Writes lines of text, unless JSON was asked for; on a terminal, none is wider than that.
    pub(crate) fn text(&self, lines: impl Display) {
        if self.is_terminal() {
            self.write(wrapped(&lines.to_string(), self.width()));
        } else if !self.json {
            self.write(lines);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_wrapped_where_they_begin() {
        let text =
            "a\n\n  conv1: gone since conv2, needed by conv3\nparameters 0123456789012345678901234567890123456789\n";
        let expected = "a\n\n  conv1: gone since\n    conv2, needed by\n    conv3\nparameters\n  \
                        0123456789012345678901234567890123456789\n";
        assert_eq!(wrapped(text, 20), expected);
        assert_eq!(wrapped(text, 99), text);
        let table = "budget           38.0 MiB  is met";
        assert_eq!(wrapped(table, 40), table, "columns stay where they are");
    }
}

//! Standard output: text for people or one JSON object per line, and a reader that may leave at any time.

use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};
use textwrap::core::Word;
use textwrap::{Options, WordSeparator, WordSplitter};

use super::failure::Failure;
use super::notes;

/// Words with the spaces after them. What stands between backquotes is one: a reader may want to copy a command.
fn words(line: &str) -> Box<dyn Iterator<Item = Word<'_>> + '_> {
    let mut quoted = false;
    let mut before = ' ';
    let begins = line.char_indices().filter(move |&(_, c)| {
        quoted ^= c == '`';
        let begins = before == ' ' && c != ' ' && (!quoted || c == '`');
        before = c;
        begins
    });
    let begins: Vec<usize> = begins.map(|(at, _)| at).collect();
    let ends = begins.clone().into_iter().skip(1).chain([line.len()]);
    Box::new(begins.into_iter().zip(ends).map(|(begin, end)| Word::from(&line[begin..end])))
}

/// Lines that are no wider than this, but for words that are: names and sums that a reader may want to copy stay whole.
pub(crate) fn wrapped(text: &str, width: usize) -> String {
    let wrap = |line: &str| {
        let text = line.trim_start_matches(' ');
        let indent = line.len() - text.len();
        let (first, more) = (" ".repeat(indent), " ".repeat(indent + 2));
        let options = Options::new(width).initial_indent(&first).subsequent_indent(&more).break_words(false);
        textwrap::fill(
            text,
            options.word_splitter(WordSplitter::NoHyphenation).word_separator(WordSeparator::Custom(words)),
        )
    };
    text.split('\n').map(wrap).collect::<Vec<_>>().join("\n")
}

/// A space at which no line ends.
const NO_BREAK: &str = "\u{a0}";

/// Between two columns.
const GAP: &str = "  ";

/// Columns as wide as what stands in them: the first `words` begin below each other, numbers after them end so. Where rows are wider
/// than `width`, cells of the widest columns go on in further lines, as far as words allow.
pub(crate) fn columns<const N: usize>(rows: &[[String; N]], words: usize, width: usize) -> Vec<String> {
    let lines_of = |cell: &str, width: usize| -> Vec<String> {
        let options = Options::new(width).break_words(false).word_splitter(WordSplitter::HyphenSplitter);
        // A number stays beside its unit, as parts of a sum do.
        let is_number = cell.starts_with(|c: char| c.is_ascii_digit());
        let whole = if is_number { cell.replace(' ', NO_BREAK).replace("+\u{a0}", "+ ") } else { cell.to_owned() };
        textwrap::wrap(&whole, options).into_iter().map(|line| line.trim_end().replace(NO_BREAK, " ")).collect()
    };
    let chars = |text: &String| text.chars().count();
    // How wide a column becomes whose cells are to be no wider than that.
    let wrapped_at = |column: usize, width: usize| {
        rows.iter().flat_map(|row| lines_of(&row[column], width)).map(|line| chars(&line)).max().unwrap_or(0)
    };
    let mut widths: [usize; N] = std::array::from_fn(|column| wrapped_at(column, usize::MAX));
    while widths.iter().sum::<usize>() + GAP.len() * (N - 1) > width {
        let narrower = |column: usize| wrapped_at(column, widths[column].saturating_sub(1));
        let shrinking = (0..N).filter(|&column| narrower(column) < widths[column]);
        let Some(widest) = shrinking.max_by_key(|&column| widths[column]) else { break };
        widths[widest] = narrower(widest);
    }
    let row = |row: &[String; N]| {
        let cells: [Vec<String>; N] = std::array::from_fn(|column| lines_of(&row[column], widths[column]));
        let height = cells.iter().map(Vec::len).max().unwrap_or(0);
        let line = |number: usize| {
            let cells = cells.iter().zip(widths).enumerate().map(|(column, (lines, width))| {
                let cell = lines.get(number).map_or("", String::as_str);
                if column < words { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            });
            let line = cells.collect::<Vec<_>>().join(GAP);
            if number == 0 { line } else { line.trim_end().to_owned() }
        };
        (0..height).map(line).collect::<Vec<_>>().join("\n")
    };
    rows.iter().map(row).collect()
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

    /// Writes lines of text, unless JSON was asked for; on a terminal, none is wider than that, and they wait while a screen is drawn.
    pub(crate) fn text(&self, lines: impl Display) {
        if self.is_terminal() {
            let lines = lines.to_string();
            if !notes::keep(notes::Stream::Out, &lines) {
                self.write(wrapped(&lines, self.width()));
            }
        } else if !self.json {
            self.write(lines);
        }
    }

    /// Lines for other programs as much as for people: none is broken.
    pub(crate) fn unwrapped(&self, text: &str) {
        if !self.is_json() {
            self.write(text);
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
        let command = "see `tightfit calibrate --device 1` here";
        assert_eq!(wrapped(command, 12), "see\n  `tightfit calibrate --device 1`\n  here", "commands stay whole");
        assert_eq!(wrapped("an `open one goes on", 10), "an\n  `open one goes on");
        let table = "budget           38.0 MiB  is met";
        assert_eq!(wrapped(table, 40), table, "columns stay where they are");
    }
    #[test]
    fn tables_are_no_wider_than_they_may_be() {
        let rows =
            [["index", "name", "size"], ["0", "llvmpipe (LLVM 15.0.6, 256 bits)", "128.0 MiB"], ["cpu", "-", "-"]];
        let rows = rows.map(|row| row.map(str::to_owned));
        let wide = columns(&rows, 2, usize::MAX);
        assert_eq!(wide[1], "0      llvmpipe (LLVM 15.0.6, 256 bits)  128.0 MiB");
        assert_eq!(columns(&rows, 2, 50), wide);
        let narrow = columns(&rows, 2, 40);
        assert_eq!(narrow[1], "0      llvmpipe (LLVM 15.0.6,  128.0 MiB\n       256 bits)");
        assert_eq!(narrow[2], "cpu    -                               -");
        for width in 0..60 {
            let lines = columns(&rows, 2, width).join("\n");
            // No word is cut.
            assert!(lines.contains("llvmpipe") && lines.contains("index"), "{lines}");
            assert!(width < 30 || lines.lines().all(|line| line.chars().count() <= width), "{width}\n{lines}");
        }
        let heading = [["micro-batches".to_owned(), "a".to_owned()]];
        assert_eq!(columns(&heading, 0, 10), [" micro-  a\nbatches"]);
        let sums = [["1 × 39 + 1 × 38".to_owned(), "5.0 MiB".to_owned()]];
        assert_eq!(columns(&sums, 0, 20), ["1 × 39 +  5.0 MiB\n  1 × 38"]);
    }
}

//! A file that rows are added to, and reading what an earlier run left in it.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use web_time::{Instant, SystemTime, UNIX_EPOCH};

use crate::error::DataError;
use crate::files;

/// Bytes that are gathered at most.
const MOST_GATHERED: usize = 64 << 10;
/// Between two writes while rows keep coming.
const INTERVAL: Duration = Duration::from_secs(1);
/// No line of a log is longer: with less, a file that is none does not fill the memory.
const MOST_LINE_BYTES: u64 = 1 << 20;

/// Seconds since 1970.
pub(super) fn wall_time() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// An error of the system, with the file that it belongs to.
pub(super) fn io_error(path: &Path, source: io::Error) -> DataError {
    DataError::Io { path: path.to_owned(), source }
}

/// Where rows go.
pub(super) trait Sink: Write + Send {
    /// Cuts it to this length.
    fn cut(&mut self, length: u64) -> io::Result<()>;
    /// Waits until it is on the disk.
    fn sync(&mut self) -> io::Result<()>;
}

impl Sink for File {
    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

/// A file at whose end whole rows are written.
pub(super) struct Output {
    path: PathBuf,
    /// `None` after an error.
    sink: Option<Box<dyn Sink>>,
    gathered: Vec<u8>,
    /// Bytes of the rows that are written.
    length: u64,
    written: Instant,
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").field("path", &self.path).field("length", &self.length).finish_non_exhaustive()
    }
}

impl Output {
    /// At the end of a file that is there.
    pub(super) fn append(path: &Path) -> Result<Self, DataError> {
        let file = OpenOptions::new().append(true).open(path).map_err(|error| io_error(path, error))?;
        let length = file.metadata().map_err(|error| io_error(path, error))?.len();
        Ok(Output::to(path, Box::new(file), length))
    }

    /// A new file.
    pub(super) fn create_new(path: &Path) -> Result<Self, DataError> {
        let file = File::create_new(path).map_err(|error| io_error(path, error))?;
        Ok(Output::to(path, Box::new(file), 0))
    }

    pub(super) fn to(path: &Path, sink: Box<dyn Sink>, length: u64) -> Self {
        Output { path: path.to_owned(), sink: Some(sink), gathered: Vec::new(), length, written: Instant::now() }
    }

    /// Ends the log here.
    pub(super) fn close(&mut self) {
        self.sink = None;
        self.gathered = Vec::new();
    }

    /// Whether rows still go anywhere.
    pub(super) fn is_open(&self) -> bool {
        self.sink.is_some()
    }

    /// Adds a row.
    pub(super) fn row(&mut self, row: &[u8]) -> Result<(), DataError> {
        if !self.is_open() {
            return Ok(());
        }
        self.gathered.extend_from_slice(row);
        if self.gathered.len() >= MOST_GATHERED || self.written.elapsed() >= INTERVAL {
            return self.write();
        }
        Ok(())
    }

    /// Writes the rows that were gathered.
    pub(super) fn write(&mut self) -> Result<(), DataError> {
        self.with(|sink, gathered| sink.write_all(gathered))
    }

    /// As [`write`](Self::write), and waits until they are on the disk.
    pub(super) fn sync(&mut self) -> Result<(), DataError> {
        self.with(|sink, gathered| sink.write_all(gathered).and_then(|()| sink.sync()))
    }

    fn with(&mut self, write: impl FnOnce(&mut dyn Sink, &[u8]) -> io::Result<()>) -> Result<(), DataError> {
        let Some(sink) = &mut self.sink else { return Ok(()) };
        match write(&mut **sink, &self.gathered) {
            Ok(()) => {
                self.length += self.gathered.len() as u64;
                self.gathered.clear();
                self.written = Instant::now();
                Ok(())
            }
            Err(error) => {
                // No half a row, as far as that can be had.
                let _ = sink.cut(self.length);
                self.close();
                let text = format!("{error}; the log ends here: make room or log to another place, and resume");
                Err(io_error(&self.path, io::Error::new(error.kind(), text)))
            }
        }
    }
}

/// Rows that are gathered still are written, as far as that can be had.
impl Drop for Output {
    fn drop(&mut self) {
        let _ = self.write();
    }
}

/// Shows the lines of a file that are whole, without their ends; whether there is such a file. A last line without an end is what a
/// process that was killed left.
pub(super) fn lines(path: &Path, mut visit: impl FnMut(&[u8]) -> Result<(), DataError>) -> Result<bool, DataError> {
    let (file, _) = match files::open_regular(path, "give another name") {
        Err(DataError::Missing { .. }) => return Ok(false),
        opened => opened?,
    };
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut limited = (&mut reader).take(MOST_LINE_BYTES);
        limited.read_until(b'\n', &mut line).map_err(|error| io_error(path, error))?;
        match line.split_last() {
            Some((b'\n', line)) => visit(line)?,
            _ if line.len() as u64 == MOST_LINE_BYTES => return Err(foreign(path)),
            _ => return Ok(true),
        }
    }
}

/// What is no log is not replaced by one.
pub(super) fn foreign(path: &Path) -> DataError {
    let reason = "is not such a log, and would be replaced: give another name, or delete that file".to_owned();
    DataError::Corrupt { path: path.to_owned(), reason }
}

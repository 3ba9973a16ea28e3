//! Rows of a CSV file, by their place.

use std::io::{self, ErrorKind, Read};
use std::path::Path;

use csv::{ByteRecord, ReaderBuilder, StringRecord};

use super::rows::{Place, Rows};
use crate::data::{corrupt, io_error};
use crate::error::DataError;
use crate::files::Positioned;
use crate::tensor::plural;

/// What separates fields, the likeliest first.
const DELIMITERS: [u8; 4] = *b",;\t|";
/// Bytes of the beginning in which the delimiter is looked for.
const HEAD_BYTES: u64 = 1 << 16;
const BUFFER_BYTES: usize = 1 << 16;
/// The longest row. One that is longer has a quote that is not closed.
const MOST_ROW_BYTES: usize = 1 << 23;
const MOST_COLUMNS: usize = 1 << 16;

/// A CSV file.
pub(in crate::data) struct CsvRows {
    file: Positioned,
    delimiter: u8,
    header: bool,
    names: Vec<String>,
}

impl CsvRows {
    /// Opens a file and reads its header. Without one, columns are named by their numbers, from 1.
    pub(in crate::data) fn open(path: &Path, delimiter: Option<u8>, header: bool) -> Result<Self, DataError> {
        let file = Positioned::open(path, "give a CSV file whose first line names the columns")?;
        let head = file.bytes_at(0, file.len().min(HEAD_BYTES) as usize)?;
        if head.starts_with(&[0xff, 0xfe]) || head.starts_with(&[0xfe, 0xff]) {
            return Err(corrupt(path, "is text in UTF-16: save it as UTF-8"));
        }
        let delimiter = delimiter.unwrap_or_else(|| detected(&head));
        let mut rows = CsvRows { file, delimiter, header: false, names: Vec::new() };
        let mut names = Vec::new();
        rows.each(&mut |_, record| {
            names = record.iter().map(|name| name.trim().to_owned()).collect();
            Ok(false)
        })?;
        if names.is_empty() {
            return Err(corrupt(path, "holds no line with text: give a CSV file whose first line names the columns"));
        }
        if names.len() > MOST_COLUMNS {
            return Err(corrupt(path, format!("has {} columns, more than {MOST_COLUMNS}", names.len())));
        }
        if !header {
            names = (1..=names.len()).map(|number| number.to_string()).collect();
        } else if names.iter().all(|name| name.parse::<f64>().is_ok()) {
            let reason = "its first line holds numbers alone, no names of columns: add a line with names, or say that it has no header";
            return Err(corrupt(path, reason));
        }
        rows.header = header;
        rows.names = names;
        Ok(rows)
    }

    fn builder(&self, buffer_bytes: usize) -> ReaderBuilder {
        let mut builder = ReaderBuilder::new();
        builder.delimiter(self.delimiter).has_headers(false).flexible(true).buffer_capacity(buffer_bytes);
        builder
    }

    /// Gives each record, the header too, until `visit` wants no more.
    fn each(&self, visit: &mut dyn FnMut(Place, &StringRecord) -> Result<bool, DataError>) -> Result<(), DataError> {
        let source = Limited { inner: self.file.reader(0), left: 0 };
        let mut reader = self.builder(BUFFER_BYTES).from_reader(source);
        let mut bytes = ByteRecord::new();
        loop {
            let start = reader.position().byte();
            reader.get_mut().left = MOST_ROW_BYTES;
            if !reader.read_byte_record(&mut bytes).map_err(|error| self.failed(start, error))? {
                return Ok(());
            }
            let place = Place::new(start, (reader.position().byte() - start) as usize);
            let place = place.ok_or_else(|| corrupt(self.file.path(), "is too long: split it in files below 1 TiB"))?;
            let record = self.text(place, bytes)?;
            if !visit(place, &record)? {
                return Ok(());
            }
            bytes = record.into_byte_record();
        }
    }

    /// A record as text, of as many fields as there are columns.
    fn text(&self, place: Place, record: ByteRecord) -> Result<StringRecord, DataError> {
        let wrong = |reason: String| corrupt(self.file.path(), format!("{} {reason}", self.place(place)));
        if record.as_slice().contains(&0) {
            return Err(wrong("holds a NUL byte: save the table as text in UTF-8".to_owned()));
        }
        let (found, wanted) = (record.len(), self.names.len());
        if wanted > 0 && found != wanted {
            return Err(wrong(format!(
                "has {}, {wanted} are expected: quote fields that hold the delimiter",
                plural(found, "field")
            )));
        }
        StringRecord::from_byte_record(record).map_err(|error| {
            wrong(format!("is not text in UTF-8 (field {}): save the table as UTF-8", error.utf8_error().field() + 1))
        })
    }

    fn failed(&self, start: u64, error: csv::Error) -> DataError {
        let reason = error.to_string();
        match error.into_kind() {
            csv::ErrorKind::Io(source) if source.kind() == ErrorKind::FileTooLarge => corrupt(
                self.file.path(),
                format!("the row in line {} has no end: is a quote not closed?", self.line(start)),
            ),
            csv::ErrorKind::Io(source) => io_error(self.file.path(), source),
            _ => corrupt(self.file.path(), format!("is not valid CSV: {reason}")),
        }
    }

    /// Number of the line in which the record after `start` begins, from 1. It reads the file up to there: for messages.
    fn line(&self, start: u64) -> u64 {
        let mut line = 1;
        let mut buffer = [0; 4096];
        let mut at = 0;
        while at < self.file.len() {
            let size = (self.file.len() - at).min(buffer.len() as u64) as usize;
            if self.file.read_exact_at(&mut buffer[..size], at).is_err() {
                break;
            }
            for byte in &buffer[..size] {
                // Blank lines before a record are read with it.
                if at >= start && !b"\r\n".contains(byte) {
                    return line;
                }
                line += u64::from(*byte == b'\n');
                at += 1;
            }
        }
        line
    }
}

impl Rows for CsvRows {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn names(&self) -> &[String] {
        &self.names
    }

    fn scan(&self, visit: &mut dyn FnMut(Place, &StringRecord) -> Result<(), DataError>) -> Result<(), DataError> {
        let mut is_header = self.header;
        self.each(&mut |place, record| {
            if !std::mem::take(&mut is_header) {
                visit(place, record)?;
            }
            Ok(true)
        })
    }

    fn read(&self, place: Place) -> Result<StringRecord, DataError> {
        let bytes = self.file.bytes_at(place.start(), place.len())?;
        let mut record = ByteRecord::new();
        let mut reader = self.builder(bytes.len()).from_reader(&*bytes);
        reader.read_byte_record(&mut record).map_err(|error| self.failed(place.start(), error))?;
        self.text(place, record)
    }

    fn place(&self, place: Place) -> String {
        format!("line {}", self.line(place.start()))
    }

    fn host_bytes(&self) -> u64 {
        self.names.iter().map(|name| name.len() as u64).sum()
    }

    /// The bytes, the buffer of the reader, and the fields.
    fn scratch_bytes(&self, longest: u64) -> u64 {
        3 * longest
    }
}

/// The delimiter that is most often in the first line.
fn detected(head: &[u8]) -> u8 {
    let mut counts = [0usize; DELIMITERS.len()];
    let mut is_quoted = false;
    for byte in head {
        match byte {
            b'"' => is_quoted = !is_quoted,
            b'\n' | b'\r' if !is_quoted && counts.iter().any(|count| *count > 0) => break,
            _ if is_quoted => {}
            byte => {
                if let Some(at) = DELIMITERS.iter().position(|delimiter| delimiter == byte) {
                    counts[at] += 1;
                }
            }
        }
    }
    let most = counts.into_iter().max().unwrap_or(0);
    let at = counts.iter().position(|count| *count == most).unwrap_or(0);
    DELIMITERS[at]
}

/// A reader that gives no more than what is left for one row.
struct Limited<R> {
    inner: R,
    left: usize,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(ErrorKind::FileTooLarge.into());
        }
        let size = buffer.len().min(self.left);
        let read = self.inner.read(&mut buffer[..size])?;
        self.left -= read;
        Ok(read)
    }
}

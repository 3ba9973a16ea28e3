//! Rows of a Parquet file, read by row group.

use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ::parquet::errors::ParquetError;
use ::parquet::file::reader::{ChunkReader, FileReader, Length, SerializedFileReader};
use ::parquet::record::Field;
use ::parquet::schema::types::Type;
use bytes::Bytes;
use csv::StringRecord;

use super::rows::{Place, Rows};
use crate::data::corrupt;
use crate::error::DataError;
use crate::files::Positioned;
use crate::tensor::format_bytes;

/// Bytes that row groups may take which are kept decoded.
const CACHE_BYTES: usize = 256 << 20;
/// Bytes of a row group, as the file states them, that is decoded.
const MOST_GROUP_BYTES: i64 = 256 << 20;
const MOST_COLUMNS: usize = 1 << 16;

/// A Parquet file. Columns that are no plain values, such as lists, are left out.
pub(super) struct ParquetRows {
    file: Arc<Positioned>,
    reader: SerializedFileReader<Chunks>,
    /// The columns that are read.
    schema: Type,
    names: Vec<String>,
    /// First row of each row group, and the number of all.
    starts: Vec<u64>,
    cache: Mutex<Vec<(usize, Arc<Group>)>>,
}

/// The cells of a row group, row by row, as text.
#[derive(Default)]
struct Group {
    text: String,
    ends: Vec<u32>,
}

impl Group {
    fn bytes(&self) -> usize {
        self.text.capacity() + 4 * self.ends.capacity()
    }

    fn record(&self, row: usize, columns: usize) -> Option<StringRecord> {
        let mut record = StringRecord::with_capacity(64, columns);
        for cell in row * columns..(row + 1) * columns {
            let start = cell.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied())?;
            record.push_field(self.text.get(start as usize..*self.ends.get(cell)? as usize)?);
        }
        Some(record)
    }
}

impl ParquetRows {
    pub(super) fn open(path: &Path) -> Result<Self, DataError> {
        let file = Arc::new(Positioned::open(path, "give a Parquet file")?);
        let reader = guarded(path, || SerializedFileReader::new(Chunks(Arc::clone(&file))))?;
        let metadata = reader.metadata();
        let all = metadata.file_metadata().schema();
        let fields: Vec<_> = all.get_fields().iter().filter(|field| is_plain(field)).cloned().collect();
        if fields.is_empty() || fields.len() > MOST_COLUMNS {
            return Err(corrupt(
                path,
                format!("has {} columns of plain values, expected 1 to {MOST_COLUMNS}", fields.len()),
            ));
        }
        let names = fields.iter().map(|field| field.name().to_owned()).collect();
        let schema = guarded(path, || Type::group_type_builder(all.name()).with_fields(fields).build())?;
        let mut starts = vec![0];
        for group in metadata.row_groups() {
            let rows = u64::try_from(group.num_rows()).ok().filter(|rows| *rows <= 1 << 31);
            let rows = rows.ok_or_else(|| corrupt(path, "has a row group of a wrong number of rows"))?;
            if group.total_byte_size() > MOST_GROUP_BYTES {
                return Err(corrupt(
                    path,
                    format!(
                        "has a row group of {}: write it with row groups of at most {}",
                        format_bytes(group.total_byte_size() as u64),
                        format_bytes(MOST_GROUP_BYTES as u64)
                    ),
                ));
            }
            starts.push(starts[starts.len() - 1] + rows);
        }
        Ok(ParquetRows { file, reader, schema, names, starts, cache: Mutex::default() })
    }

    /// A row group, decoded. Those that were used last are kept, as many as fit.
    fn group(&self, at: usize) -> Result<Arc<Group>, DataError> {
        // One at a time, so that two threads do not decode the same.
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = cache.iter().position(|(group, _)| *group == at) {
            let used = cache.remove(place);
            let group = Arc::clone(&used.1);
            cache.push(used);
            return Ok(group);
        }
        let group = Arc::new(guarded(self.file.path(), || self.decoded(at))?);
        let rows = (self.starts[at + 1] - self.starts[at]) as usize;
        if group.ends.len() != rows * self.names.len() {
            return Err(corrupt(
                self.file.path(),
                format!("has other than {rows} rows in row group {at}: fetch it again"),
            ));
        }
        let bytes = |cache: &[(usize, Arc<Group>)]| cache.iter().map(|(_, group)| group.bytes()).sum::<usize>();
        while !cache.is_empty() && bytes(&cache) + group.bytes() > CACHE_BYTES {
            cache.remove(0);
        }
        cache.push((at, Arc::clone(&group)));
        Ok(group)
    }

    fn decoded(&self, at: usize) -> Result<Group, ParquetError> {
        let mut group = Group::default();
        let reader = self.reader.get_row_group(at)?;
        for row in reader.get_row_iter(Some(self.schema.clone()))? {
            for (name, field) in row?.get_column_iter() {
                push_cell(&mut group.text, name, field)?;
                let end = u32::try_from(group.text.len()).ok().filter(|end| *end as usize <= CACHE_BYTES);
                let end = end.ok_or_else(|| {
                    let most = format_bytes(CACHE_BYTES as u64);
                    ParquetError::General(format!(
                        "a row group takes more than {most} as text, smaller ones are needed"
                    ))
                })?;
                group.ends.push(end);
            }
        }
        group.text.shrink_to_fit();
        group.ends.shrink_to_fit();
        Ok(group)
    }

    fn row(&self, row: u64) -> Result<StringRecord, DataError> {
        let at = self.starts.partition_point(|start| *start <= row).saturating_sub(1);
        let missing = || corrupt(self.file.path(), format!("has no row {}", row + 1));
        if at + 1 >= self.starts.len() {
            return Err(missing());
        }
        let group = self.group(at)?;
        group.record((row - self.starts[at]) as usize, self.names.len()).ok_or_else(missing)
    }
}

impl Rows for ParquetRows {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn names(&self) -> &[String] {
        &self.names
    }

    fn scan(&self, visit: &mut dyn FnMut(Place, &StringRecord) -> Result<(), DataError>) -> Result<(), DataError> {
        for row in 0..self.starts[self.starts.len() - 1] {
            let place = Place::new(row, 0).ok_or_else(|| corrupt(self.file.path(), "has too many rows"))?;
            visit(place, &self.row(row)?)?;
        }
        Ok(())
    }

    fn read(&self, place: Place) -> Result<StringRecord, DataError> {
        self.row(place.start())
    }

    fn place(&self, place: Place) -> String {
        format!("row {}", place.start() + 1)
    }

    fn host_bytes(&self) -> u64 {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|(_, group)| group.bytes() as u64).sum()
    }

    /// The largest row group, in the file and as text.
    fn scratch_bytes(&self, longest: u64) -> u64 {
        let groups = self.reader.metadata().row_groups().iter();
        let largest = groups.map(|group| group.total_byte_size().max(0) as u64).max().unwrap_or(0);
        3 * (largest + longest)
    }
}

fn is_plain(field: &Type) -> bool {
    field.is_primitive()
        && field.get_basic_info().has_repetition()
        && field.get_basic_info().repetition() != ::parquet::basic::Repetition::REPEATED
}

fn push_cell(text: &mut String, name: &str, field: &Field) -> Result<(), ParquetError> {
    use std::fmt::Write as _;
    let wrong = || ParquetError::General(format!("column `{}` holds no plain values", name.escape_debug()));
    let written = match field {
        Field::Null => Ok(()),
        Field::Str(value) => {
            text.push_str(value);
            Ok(())
        }
        Field::Bytes(value) => {
            text.push_str(std::str::from_utf8(value.data()).map_err(|_| wrong())?);
            Ok(())
        }
        Field::Bool(value) => write!(text, "{value}"),
        Field::Byte(value) => write!(text, "{value}"),
        Field::Short(value) => write!(text, "{value}"),
        Field::Int(value) | Field::Date(value) | Field::TimeMillis(value) => write!(text, "{value}"),
        Field::Long(value)
        | Field::TimeMicros(value)
        | Field::TimestampMillis(value)
        | Field::TimestampMicros(value) => {
            write!(text, "{value}")
        }
        Field::UByte(value) => write!(text, "{value}"),
        Field::UShort(value) => write!(text, "{value}"),
        Field::UInt(value) => write!(text, "{value}"),
        Field::ULong(value) => write!(text, "{value}"),
        Field::Float16(value) => write!(text, "{value}"),
        Field::Float(value) => write!(text, "{value}"),
        Field::Double(value) => write!(text, "{value}"),
        Field::Decimal(_) => write!(text, "{field}"),
        _ => return Err(wrong()),
    };
    written.map_err(|_| wrong())
}

/// Runs the reader, which may panic on damaged files.
fn guarded<T>(path: &Path, read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, DataError> {
    let shown = |error: &dyn std::fmt::Display| {
        error.to_string().replace(char::is_control, " ").chars().take(200).collect::<String>()
    };
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(corrupt(path, format!("cannot be read as Parquet ({})", shown(&error)))),
        Err(_) => Err(corrupt(path, "is no sound Parquet file: fetch it again")),
    }
}

/// Parts of the file, as the reader asks for them.
struct Chunks(Arc<Positioned>);

/// Reads on from a place.
struct Chunk {
    file: Arc<Positioned>,
    offset: u64,
}

impl Read for Chunk {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.reader(self.offset).read(buffer)?;
        self.offset += read as u64;
        Ok(read)
    }
}

impl Length for Chunks {
    fn len(&self) -> u64 {
        self.0.len()
    }
}

impl ChunkReader for Chunks {
    type T = io::BufReader<Chunk>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(io::BufReader::new(Chunk { file: Arc::clone(&self.0), offset: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let bytes = self.0.bytes_at(start, length).map_err(|error| ParquetError::General(error.to_string()))?;
        Ok(bytes.into())
    }
}

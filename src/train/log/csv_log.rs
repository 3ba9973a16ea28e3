//! Tables of comma-separated values, one of steps and one of epochs.

use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use super::output::{Output, foreign, io_error, lines, wall_time};
use super::{EPOCH, Log, STEP, WALL_TIME, check_names};
use crate::error::DataError;
use crate::files;

/// A log as two tables in a folder, `steps.csv` and `epochs.csv`: step and epoch, a column for each value, and the time of day in seconds
/// since 1970 as `wall_time`. A value that comes later gets a column of its own, empty before that.
#[derive(Debug)]
pub struct CsvLog {
    steps: Table,
    epochs: Table,
}

impl CsvLog {
    /// Opens the tables in a folder, which is made where there is none. `resume_at` is the last step that is kept of those that are
    /// there: see [`Log`]. Without it, they start anew.
    ///
    /// # Errors
    /// Where a file of one of these names is no such table, or cannot be written.
    pub fn open(folder: &Path, resume_at: Option<u64>) -> Result<Self, DataError> {
        let steps = folder.join("steps.csv");
        files::make_folder_of(&steps)?;
        Ok(CsvLog {
            steps: Table::open(steps, [STEP, EPOCH], resume_at)?,
            epochs: Table::open(folder.join("epochs.csv"), [EPOCH, STEP], resume_at)?,
        })
    }
}

impl Log for CsvLog {
    fn step(&mut self, step: u64, epoch: u64, values: &[(&str, f64)]) -> Result<(), DataError> {
        self.steps.add([step, epoch], values)
    }

    fn epoch(&mut self, step: u64, epoch: u64, values: &[(&str, f64)]) -> Result<(), DataError> {
        self.epochs.add([epoch, step], values)?;
        self.steps.output.write()?;
        self.epochs.output.write()
    }

    fn flush(&mut self) -> Result<(), DataError> {
        self.steps.output.sync()?;
        self.epochs.output.sync()
    }
}

#[derive(Debug)]
struct Table {
    path: PathBuf,
    /// The first two columns. Rows are in order of the first.
    keys: [&'static str; 2],
    /// The values' columns.
    names: Vec<String>,
    /// The last row's key.
    last: Option<u64>,
    output: Output,
}

impl Table {
    fn open(path: PathBuf, keys: [&'static str; 2], resume_at: Option<u64>) -> Result<Self, DataError> {
        let mut kept = Kept { keys, most: resume_at, last: None, used: Vec::new() };
        let names = kept.scan(&path)?;
        // A column that only rows have which are cut off comes again with these.
        let names: Vec<_> = names.into_iter().zip(&kept.used).filter_map(|(name, used)| used.then_some(name)).collect();
        rewrite(&path, &kept, &names)?;
        let output = Output::append(&path)?;
        Ok(Table { path, keys, names, last: kept.last, output })
    }

    fn add(&mut self, key: [u64; 2], values: &[(&str, f64)]) -> Result<(), DataError> {
        check_names(values)?;
        if self.last.is_some_and(|last| key[0] <= last) || !self.output.is_open() {
            return Ok(());
        }
        let new = values.iter().filter(|(name, _)| !self.names.iter().any(|known| known == name));
        let new: Vec<_> = new.map(|(name, _)| (*name).to_owned()).collect();
        if !new.is_empty() {
            self.output.write()?;
            self.names.extend(new);
            let all = Kept { keys: self.keys, most: Some(u64::MAX), last: None, used: Vec::new() };
            match rewrite(&self.path, &all, &self.names).and_then(|()| Output::append(&self.path)) {
                Ok(output) => self.output = output,
                Err(error) => {
                    self.output.close();
                    return Err(error);
                }
            }
        }
        let mut row = format!("{},{}", key[0], key[1]);
        for name in &self.names {
            row.push(',');
            if let Some((_, value)) = values.iter().find(|(other, _)| other == name) {
                row.push_str(&format!("{value:?}"));
            }
        }
        row.push_str(&format!(",{:.3}\n", wall_time()));
        self.last = Some(key[0]);
        self.output.row(row.as_bytes())
    }
}

/// The rows of a table that stay.
struct Kept {
    keys: [&'static str; 2],
    /// The last step; none at all where there is none.
    most: Option<u64>,
    /// The key of the last of them.
    last: Option<u64>,
    /// Whether a value's column has anything in them.
    used: Vec<bool>,
}

impl Kept {
    /// Goes through a table, and returns the names of its values.
    fn scan(&mut self, path: &Path) -> Result<Vec<String>, DataError> {
        let mut names = Vec::new();
        let mut used = Vec::new();
        let mut last = None;
        self.rows(path, |header, row| {
            let values = 2..header.len() - 1;
            let Some(row) = row else {
                names = header[values].to_vec();
                used = vec![false; names.len()];
                return Ok(());
            };
            last = row[0].parse().ok();
            used.iter_mut().zip(&row[values]).for_each(|(used, cell)| *used |= !cell.is_empty());
            Ok(())
        })?;
        (self.last, self.used) = (last, used);
        Ok(names)
    }

    /// Shows the header by itself, then each row that stays.
    fn rows(
        &self,
        path: &Path,
        mut visit: impl FnMut(&[String], Option<&[&str]>) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let mut header: Option<Vec<String>> = None;
        let step_column = usize::from(self.keys[1] == STEP);
        lines(path, |line| {
            let Some(header) = &header else {
                let found = header_of(line).filter(|cells| {
                    cells.len() > 2 && cells[..2] == self.keys && cells.last().is_some_and(|last| last == WALL_TIME)
                });
                let found = found.ok_or_else(|| foreign(path))?;
                visit(&found, None)?;
                header = Some(found);
                return Ok(());
            };
            // Rows are numbers, which are not quoted.
            let row: Vec<&str> = std::str::from_utf8(line).unwrap_or_default().split(',').collect();
            let step = row.get(step_column).and_then(|step| step.parse::<u64>().ok());
            let stays = row.len() == header.len() && step.zip(self.most).is_some_and(|(step, most)| step <= most);
            if stays { visit(header, Some(&row)) } else { Ok(()) }
        })?;
        Ok(())
    }
}

fn header_of(line: &[u8]) -> Option<Vec<String>> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(line);
    let record = reader.records().next()?.ok()?;
    Some(record.iter().map(str::to_owned).collect())
}

/// Replaces a table by one with these columns and the rows that stay.
fn rewrite(path: &Path, kept: &Kept, names: &[String]) -> Result<(), DataError> {
    files::write_with(path, |file| {
        let mut writer = BufWriter::new(file);
        let failed = |error| io_error(path, error);
        let mut header = csv::Writer::from_writer(Vec::new());
        let cells = kept.keys.iter().copied().chain(names.iter().map(String::as_str)).chain([WALL_TIME]);
        header.write_record(cells).expect("bug: memory takes a row");
        writer.write_all(&header.into_inner().expect("bug: memory takes a row")).map_err(failed)?;
        let mut columns: Vec<Option<usize>> = Vec::new();
        kept.rows(path, |header, row| {
            let Some(row) = row else {
                let values = &header[2..header.len() - 1];
                columns = names.iter().map(|name| Some(2 + values.iter().position(|known| known == name)?)).collect();
                return Ok(());
            };
            let values = columns.iter().map(|column| column.map_or("", |column| row[column]));
            let cells: Vec<_> = row[..2].iter().copied().chain(values).chain(row.last().copied()).collect();
            writeln!(writer, "{}", cells.join(",")).map_err(failed)
        })?;
        writer.flush().map_err(failed)
    })
}

//! Series of several columns, cut into windows as they are read.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Scale;
use crate::data::sequence::{Parts, Windows, parts};
use crate::data::table::{CsvRows, Rows as _, is_missing, number};
use crate::data::{Array, Dataset, Features, Sample, Values, corrupt, io_error};
use crate::error::{DataError, unknown};
use crate::tensor::{DType, format_bytes, room};

/// Which columns of a file are a series, and how it is cut into windows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeriesOptions {
    /// Columns of the input, in order. Unless they are named, all but the time.
    pub columns: Option<Vec<String>>,
    /// Columns that are forecast. Unless they are named, those of the input.
    pub targets: Option<Vec<String>>,
    /// A column that says when a row was: numbers, or text that begins with the year, such as `2024-05-01 12:00`. It must not decrease,
    /// and is no input.
    pub time: Option<String>,
    /// Rows that the model sees.
    pub lookback: usize,
    /// Rows after them that are forecast.
    pub horizon: usize,
    /// Rows from the beginning of one window to that of the next.
    pub stride: usize,
    /// For models that carry their state from batch to batch: the number of samples of a batch. The series is read in as many streams
    /// side by side, each goes on in the next batch where it was, and windows do not overlap, whatever the stride is.
    pub stateful: Option<usize>,
    /// Whether columns are given mean 0 and standard deviation 1.
    pub standardize: bool,
    /// Whether a cell that is missing takes the value of the row before; it is an error otherwise.
    pub fill_gaps: bool,
    /// What separates fields; it is detected where it is not given.
    pub delimiter: Option<char>,
    /// Whether the first line names the columns. Where it does not, their names are `1`, `2` and so on.
    pub header: bool,
    /// Bytes of memory that the series may take.
    pub host_budget_bytes: u64,
}

impl SeriesOptions {
    /// Windows of `lookback` rows, each with the `horizon` rows after it as its target, one beginning at every row.
    pub fn new(lookback: usize, horizon: usize) -> Self {
        SeriesOptions {
            columns: None,
            targets: None,
            time: None,
            lookback,
            horizon,
            stride: 1,
            stateful: None,
            standardize: true,
            fill_gaps: false,
            delimiter: None,
            header: true,
            host_budget_bytes: 1 << 30,
        }
    }

    fn windows(&self) -> Windows {
        Windows { length: self.lookback, ahead: self.horizon, stride: self.stride, streams: self.stateful }
    }
}

/// How the columns of a series become numbers of inputs and targets: what must be kept with a model, so that it can be given other
/// series. [`TimeSeries::open_with`] takes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeriesPreprocessing {
    /// Columns and windows, all by name.
    pub options: SeriesOptions,
    /// Columns of the input, in order, and what makes them numbers of one size.
    pub columns: Vec<(String, Scale)>,
    /// The same of those that are forecast.
    pub targets: Vec<(String, Scale)>,
}

impl SeriesPreprocessing {
    /// Puts forecasts, one window after the other, in the units of the file.
    pub fn invert_targets(&self, forecasts: &mut [f32]) {
        for row in forecasts.chunks_mut(self.targets.len().max(1)) {
            for (value, (_, scale)) in row.iter_mut().zip(&self.targets) {
                *value = scale.invert(*value);
            }
        }
    }
}

/// A series of one or several columns of a CSV file. Sample `i` is a window of it, shape `[lookback, columns]`; its target is what the
/// rows after it have in the target columns, row by row, shape `[horizon * targets]`.
///
/// The numbers are in memory once; windows are made of them when they are asked for. Neighbouring windows overlap: to test a model,
/// [`split`](TimeSeries::split) the series by time. Columns are then scaled by the mean and deviation of the part to train on.
///
/// ```
/// use tightfit::data::series::{SeriesOptions, TimeSeries};
/// use tightfit::data::Dataset as _;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("weather.csv");
/// # let rows: String = (0..100).map(|day| format!("{day},{},{}\n", day % 7, day % 5)).collect();
/// # std::fs::write(&path, format!("day,wind,rain\n{rows}"))?;
/// let options = SeriesOptions {
///     time: Some("day".to_owned()),
///     targets: Some(vec!["rain".to_owned()]),
///     ..SeriesOptions::new(10, 2)
/// };
/// let parts = TimeSeries::open(&path, &options)?.split(0.2, 0.0)?;
/// let val = parts.validation.unwrap();
/// assert_eq!((parts.training.len(), val.len()), (80 - 12 + 1, 20 - 12 + 1));
/// let sample = val.get(0)?;
/// assert_eq!(sample.get("input").unwrap().shape()[..], [10, 2]);
/// assert_eq!(sample.get("target").unwrap().shape()[..], [2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct TimeSeries {
    matrix: Arc<Matrix>,
    rows: Range<usize>,
    preprocessing: SeriesPreprocessing,
    /// Places of the columns in a row of the matrix.
    inputs: Vec<usize>,
    targets: Vec<usize>,
    windows: Windows,
    count: usize,
}

/// The numbers of a file, row by row.
#[derive(Debug)]
struct Matrix {
    path: PathBuf,
    names: Vec<String>,
    values: Vec<f32>,
}

impl TimeSeries {
    /// Reads a file, and learns mean and deviation of its columns.
    ///
    /// # Errors
    /// [`DataError::Missing`] and [`DataError::Io`] where it cannot be read; [`DataError::Corrupt`] with line and column where it is no
    /// table, a cell is no finite number, or the time decreases; [`DataError::Mismatch`] where a number of the options is 0, it is too
    /// short for one window, or takes more memory than it may.
    pub fn open(path: impl AsRef<Path>, options: &SeriesOptions) -> Result<Self, DataError> {
        TimeSeries::read(path.as_ref(), options, None, false)
    }

    /// Reads another file with the same columns, in any order, scaled in the same way. Where it is for forecasts alone, it needs the
    /// columns of the input alone: see [`TimeSeries::for_forecasts`].
    ///
    /// # Errors
    /// As [`TimeSeries::open`].
    pub fn open_with(path: impl AsRef<Path>, preprocessing: &SeriesPreprocessing) -> Result<Self, DataError> {
        if preprocessing.columns.is_empty() {
            return Err(DataError::Mismatch("a series needs at least one column".to_owned()));
        }
        TimeSeries::read(path.as_ref(), &preprocessing.options, Some(preprocessing), false)
    }

    /// As [`open_with`](Self::open_with), [for forecasts](Self::for_forecasts): a window is enough.
    ///
    /// # Errors
    /// As [`TimeSeries::open`].
    pub fn open_for_forecasts(path: impl AsRef<Path>, preprocessing: &SeriesPreprocessing) -> Result<Self, DataError> {
        TimeSeries::read(path.as_ref(), &preprocessing.options, Some(preprocessing), true)
    }

    fn read(
        path: &Path,
        options: &SeriesOptions,
        learned: Option<&SeriesPreprocessing>,
        is_for_forecasts: bool,
    ) -> Result<Self, DataError> {
        if options.horizon == 0 {
            return Err(DataError::Mismatch("the horizon of a series must be at least 1".to_owned()));
        }
        let delimiter = options.delimiter.map(|delimiter| u8::try_from(delimiter).unwrap_or(0));
        if delimiter.is_some_and(|delimiter| !delimiter.is_ascii() || b"\"\r\n\0".contains(&delimiter)) {
            return Err(DataError::Mismatch(
                "a delimiter must be one character of ASCII, no quote and no line end".to_owned(),
            ));
        }
        let file = CsvRows::open(path, delimiter, options.header)?;
        let has = |name: &String| file.names().contains(name);
        let (columns, targets) = match learned {
            Some(learned) => {
                let names =
                    |scales: &[(String, Scale)]| scales.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
                let targets = names(&learned.targets);
                // All targets, or none.
                (names(&learned.columns), if targets.iter().any(has) { targets } else { Vec::new() })
            }
            None => {
                let is_time = |name: &String| Some(name) == options.time.as_ref();
                let others = || file.names().iter().filter(|name| !is_time(name)).cloned().collect();
                let columns = options.columns.clone().unwrap_or_else(others);
                let targets = options.targets.clone().unwrap_or_else(|| columns.clone());
                (columns, targets)
            }
        };
        if columns.is_empty() || learned.is_none() && targets.is_empty() {
            return Err(DataError::Mismatch(format!("{}: a series needs at least one column", path.display())));
        }
        let mut names = columns.clone();
        names.extend(targets.iter().filter(|name| !columns.contains(name)).cloned());
        let place = |name: &String| names.iter().position(|other| other == name).unwrap_or(0);
        let (inputs, target_places): (Vec<_>, Vec<_>) =
            (columns.iter().map(place).collect(), targets.iter().map(place).collect());
        let matrix = Matrix::read(path, &file, names, options)?;
        let len = matrix.values.len() / matrix.names.len();
        let windows = options.windows();
        let mut series = TimeSeries {
            matrix: Arc::new(matrix),
            rows: 0..len,
            preprocessing: SeriesPreprocessing { options: options.clone(), columns: Vec::new(), targets: Vec::new() },
            inputs,
            targets: target_places,
            windows,
            count: 0,
        };
        match learned {
            Some(learned) => series.preprocessing = learned.clone(),
            None => series.learn()?,
        }
        if is_for_forecasts || series.targets.is_empty() { series.for_forecasts() } else { series.part(0..len) }
    }

    /// Mean and deviation of the rows.
    fn learn(&mut self) -> Result<(), DataError> {
        let matrix = Arc::clone(&self.matrix);
        let scale = |column: &usize| {
            let values = self.rows.clone().map(|row| matrix.row(row)[*column]);
            let scale = if self.preprocessing.options.standardize { Scale::of(values)? } else { Scale::NONE };
            Ok((matrix.names[*column].clone(), scale))
        };
        let columns = self.inputs.iter().map(scale).collect::<Result<_, DataError>>()?;
        let targets = self.targets.iter().map(scale).collect::<Result<_, DataError>>()?;
        self.preprocessing = SeriesPreprocessing { columns, targets, ..self.preprocessing.clone() };
        Ok(())
    }

    /// The same series, of other rows.
    fn part(&self, rows: Range<usize>) -> Result<Self, DataError> {
        let count = self
            .windows
            .count("rows", rows.len())
            .map_err(|error| error.of_sample(&self.path().display().to_string()))?;
        Ok(TimeSeries { rows, count, ..self.clone() })
    }

    /// Splits it by time: the last rows are the test, those before them the validation, in shares of the whole from 0 up. Windows are
    /// of one part alone. All are scaled by the mean and deviation of the part to train on.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] where the shares leave nothing to train on, or a part is too short for one window.
    pub fn split(&self, val: f64, test: f64) -> Result<Parts<TimeSeries>, DataError> {
        let ranges = parts(&self.rows, val, test)?;
        let mut learned = self.clone();
        learned.rows = ranges.training.clone();
        learned.learn()?;
        ranges.map(|rows| learned.part(rows))
    }

    /// The windows alone, to forecast what follows each of them: the last one ends with the last row, and there are no targets. For a model
    /// that carries its state from batch to batch, they follow each other in one stream: its batch is one sample.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] where it is too short for one window.
    pub fn for_forecasts(&self) -> Result<Self, DataError> {
        let mut series = self.clone();
        series.targets.clear();
        series.windows.ahead = 0;
        series.windows.streams = series.windows.streams.map(|_| 1);
        let (length, stride) = (series.windows.length, series.windows.stride);
        let step = if series.windows.streams.is_some() { length } else { stride };
        // Rows too many for whole steps are left out at the beginning.
        let rest = self.rows.len().checked_sub(length).zip(Some(step)).and_then(|(rest, step)| rest.checked_rem(step));
        series.part(self.rows.start + rest.unwrap_or(0)..self.rows.end)
    }

    /// How columns become inputs and targets: to be kept with a model.
    pub fn preprocessing(&self) -> &SeriesPreprocessing {
        &self.preprocessing
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.matrix.path
    }

    /// Rows of the file that it has, from 0.
    pub fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// First row of a sample's window.
    fn start(&self, index: usize) -> Result<usize, DataError> {
        if index >= self.count {
            return Err(DataError::Mismatch(format!("window {index} of {} does not exist", self.count)));
        }
        Ok(self.rows.start + self.windows.start(index, self.rows.len()))
    }

    /// What some rows have in some columns.
    fn values(&self, rows: Range<usize>, places: &[usize], scales: &[(String, Scale)]) -> Result<Vec<f32>, DataError> {
        let mut values = room(rows.len().saturating_mul(places.len()))?;
        for row in rows {
            let row = self.matrix.row(row);
            values.extend(places.iter().zip(scales).map(|(place, (_, scale))| scale.apply(row[*place])));
        }
        Ok(values)
    }
}

impl Matrix {
    fn read(path: &Path, file: &CsvRows, names: Vec<String>, options: &SeriesOptions) -> Result<Self, DataError> {
        let field = |name: &String| {
            let at = file.names().iter().position(|other| other == name);
            let known = || file.names().iter().map(|name| &**name);
            at.ok_or_else(|| corrupt(path, unknown("column", name, known()).replace(char::is_control, " ")))
        };
        let fields: Vec<_> = names.iter().map(field).collect::<Result<_, _>>()?;
        let time = options.time.as_ref().map(field).transpose()?;
        let mut values: Vec<f32> = Vec::new();
        let mut before = String::new();
        file.scan(&mut |place, record| {
            let cell = |field: usize| record.get(field).unwrap_or_default().trim();
            let wrong = |reason: String| Err(corrupt(path, format!("{}: {reason}", file.place(place))));
            if let Some(field) = time {
                check_time(&before, cell(field)).or_else(|reason| wrong(format!("the time {reason}")))?;
                before = cell(field).to_owned();
            }
            let bytes = 4 * (values.len() + fields.len()) as u64;
            if bytes > options.host_budget_bytes {
                return Err(DataError::Mismatch(format!(
                    "{}: the series takes more than the {} that it may: use fewer columns, or allow more",
                    path.display(),
                    format_bytes(options.host_budget_bytes)
                )));
            }
            if values.capacity() - values.len() < fields.len() {
                let more = fields.len().max(1024).max(values.len() / 8);
                values.try_reserve_exact(more).map_err(|error| io_error(path, error.into()))?;
            }
            for (field, name) in fields.iter().zip(&names) {
                let cell = cell(*field);
                let above = values.len().checked_sub(fields.len()).map(|at| values[at]);
                let value = match (number(cell).map(|value| value as f32), above) {
                    (Some(value), _) if value.is_finite() => value,
                    (_, Some(above)) if options.fill_gaps && is_missing(cell) => above,
                    _ => return wrong(not_a_number(name, cell)),
                };
                values.push(value);
            }
            Ok(())
        })?;
        if values.is_empty() {
            return Err(corrupt(path, "has no rows below its header"));
        }
        values.shrink_to_fit();
        Ok(Matrix { path: path.to_owned(), names, values })
    }

    fn row(&self, row: usize) -> &[f32] {
        let width = self.names.len();
        &self.values[row * width..(row + 1) * width]
    }
}

/// What to say of a cell that should be a number.
pub(super) fn not_a_number(name: &str, cell: &str) -> String {
    let shown: String = cell.chars().take(40).collect();
    format!("`{}` is `{}`, expected a finite number", name.escape_debug(), shown.escape_debug())
}

/// What is wrong with a time, after another.
fn check_time(before: &str, now: &str) -> Result<(), String> {
    let shown = |time: &str| time.chars().take(40).collect::<String>().escape_debug().to_string();
    let is_date = |time: &str| time.len() > 4 && time.bytes().take(4).all(|byte| byte.is_ascii_digit());
    let decreases = match (number(before), number(now)) {
        (Some(before), Some(now)) => now < before,
        (None, Some(_)) if before.is_empty() => false,
        (None, None) if is_date(now) && (before.is_empty() || is_date(before)) => now < before,
        _ => {
            return Err(format!(
                "is `{}`: it must be a number, or begin with the year, such as 2024-05-31, in all rows",
                shown(now)
            ));
        }
    };
    if decreases {
        return Err(format!(
            "`{}` is before `{}`, that of the row above: sort the rows by time",
            shown(now),
            shown(before)
        ));
    }
    Ok(())
}

impl Dataset for TimeSeries {
    fn len(&self) -> usize {
        self.count
    }

    fn get(&self, index: usize) -> Result<Sample, DataError> {
        let start = self.start(index)?;
        let end = start + self.windows.length;
        let input = self.values(start..end, &self.inputs, &self.preprocessing.columns)?;
        let sample = Sample::new(Array::new(Values::F32(input), [self.windows.length, self.inputs.len()])?);
        if self.targets.is_empty() {
            return Ok(sample);
        }
        let target = self.values(end..end + self.windows.ahead, &self.targets, &self.preprocessing.targets)?;
        Ok(sample.with_target(target))
    }

    fn features(&self) -> Result<Features, DataError> {
        let features = Features::new(DType::F32, [self.windows.length, self.inputs.len()]);
        Ok(match self.targets.len() {
            0 => features,
            targets => features.with_target_values([targets * self.windows.ahead]),
        })
    }

    fn label(&self, index: usize) -> Result<Option<u32>, DataError> {
        self.start(index).map(|_| None)
    }

    fn origin(&self, index: usize) -> String {
        let path = self.path().display();
        match self.start(index) {
            Ok(start) => format!("{path}: rows {} to {}", start + 1, start + self.windows.length),
            Err(_) => format!("{path}: window {index}"),
        }
    }

    /// The numbers of its rows: parts of a series share them.
    fn host_bytes(&self) -> u64 {
        4 * (self.rows.len() * self.matrix.names.len()) as u64
    }
}

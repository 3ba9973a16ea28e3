//! Numeric series: read from CSV, scaled, and cut into windows for forecasting.

use std::path::Path;

use super::{Targets, TensorDataset, Values, corrupt, io_error};
use crate::error::{DataError, unknown};
use crate::files;
use crate::tensor::room;

/// Reads one column of a CSV file with a header line.
///
/// # Errors
/// [`DataError::Missing`] when there is no such file, [`DataError::Io`] when it cannot be read, and
/// [`DataError::Corrupt`] when the column does not exist, holds no rows, or holds something that is not a finite number;
/// the message names the line.
pub fn read_csv(path: impl AsRef<Path>, column: &str) -> Result<Vec<f32>, DataError> {
    let path = path.as_ref();
    let (file, _) = files::open(path, "give a CSV file whose first line names the columns")?;
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(file);
    let header = reader.headers().map_err(|error| csv_error(path, error))?;
    let Some(position) = header.iter().position(|name| name == column) else {
        return Err(corrupt(path, unknown("column", column, header)));
    };

    let mut series = Vec::new();
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record).map_err(|error| csv_error(path, error))? {
        let text = record.get(position).unwrap_or_default();
        let line = record.position().map_or(0, csv::Position::line);
        match text.parse::<f32>() {
            Ok(value) if value.is_finite() => {
                series.try_reserve(1).map_err(|error| io_error(path, error.into()))?;
                series.push(value);
            }
            _ => {
                return Err(corrupt(
                    path,
                    format!("line {line}: `{column}` is `{}`, expected a finite number", text.escape_default()),
                ));
            }
        }
    }
    if series.is_empty() {
        return Err(corrupt(path, "has no rows below its header"));
    }
    Ok(series)
}

fn csv_error(path: &Path, error: csv::Error) -> DataError {
    let reason = error.to_string();
    match error.into_kind() {
        csv::ErrorKind::Io(source) => io_error(path, source),
        _ => corrupt(path, format!("is not valid CSV: {reason}")),
    }
}

/// Cuts a series into all its windows: sample `i` is the `input_len` numbers from place `i` as a sequence of one feature,
/// shape `[input_len, 1]`; its target is the `horizon` numbers that follow, shape `[horizon]`.
///
/// Neighbouring windows overlap, so split a *series* into training and test parts, not a dataset of windows.
///
/// # Errors
/// [`DataError::Mismatch`] when `input_len` or `horizon` is 0 or the series is shorter than one window,
/// [`DataError::HostMemory`] when there is no memory for the windows.
pub fn windows(series: &[f32], input_len: usize, horizon: usize) -> Result<TensorDataset, DataError> {
    let window = input_len.saturating_add(horizon);
    if input_len == 0 || horizon == 0 || series.len() < window {
        return Err(DataError::Mismatch(format!(
            "a series of {} numbers has no window of {input_len} inputs and {horizon} to forecast: both must be at least 1 and fit in",
            series.len()
        )));
    }
    let count = series.len() - window + 1;
    let mut inputs = room(count.saturating_mul(input_len))?;
    let mut values = room(count.saturating_mul(horizon))?;
    for window in series.windows(window) {
        inputs.extend_from_slice(&window[..input_len]);
        values.extend_from_slice(&window[input_len..]);
    }
    TensorDataset::new(Values::F32(inputs), [input_len, 1], Targets::Values { values, shape: [horizon].into() })
}

/// A linear map that gives a series mean 0 and standard deviation 1. Fit it on the training part only.
///
/// ```
/// use tightfit::data::series::Scale;
///
/// let scale = Scale::fit(&[2.0, 4.0, 6.0])?;
/// assert_eq!(scale.apply(4.0), 0.0);
/// assert_eq!(scale.invert(scale.apply(6.0)), 6.0);
/// # Ok::<(), tightfit::error::DataError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    mean: f64,
    deviation: f64,
}

impl Scale {
    /// The map for this series.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] when the series is empty, constant or not finite.
    pub fn fit(series: &[f32]) -> Result<Self, DataError> {
        let count = series.len() as f64;
        let mean = series.iter().map(|value| f64::from(*value)).sum::<f64>() / count;
        let variance = series.iter().map(|value| (f64::from(*value) - mean).powi(2)).sum::<f64>() / count;
        let deviation = variance.sqrt();
        if !(deviation.is_finite() && deviation > 0.0) {
            return Err(DataError::Mismatch(
                "a series that is empty, constant or not finite cannot be scaled to standard deviation 1".into(),
            ));
        }
        Ok(Scale { mean, deviation })
    }

    /// From the series' own units to the scaled ones.
    pub fn apply(&self, value: f32) -> f32 {
        ((f64::from(value) - self.mean) / self.deviation) as f32
    }

    /// From the scaled units back.
    pub fn invert(&self, value: f32) -> f32 {
        (f64::from(value) * self.deviation + self.mean) as f32
    }
}

//! Numeric series: read from CSV, scaled, and cut into windows for forecasting.

mod table;

use std::path::Path;

use serde::{Deserialize, Serialize};

use self::table::not_a_number;
pub use self::table::{SeriesOptions, SeriesPreprocessing, TimeSeries};
pub use super::sequence::Parts;
use super::table::{CsvRows, Rows as _};
use super::{Targets, TensorDataset, Values, corrupt, io_error};
use crate::error::{DataError, unknown};
use crate::tensor::room;

/// Reads one column of a CSV file with a header line.
///
/// # Errors
/// [`DataError::Missing`] when there is no such file, [`DataError::Io`] when it cannot be read, and
/// [`DataError::Corrupt`] when the column does not exist, holds no rows, or holds something that is not a finite number;
/// the message names the line.
pub fn read_csv(path: impl AsRef<Path>, column: &str) -> Result<Vec<f32>, DataError> {
    let path = path.as_ref();
    let file = CsvRows::open(path, None, true)?;
    let Some(field) = file.names().iter().position(|name| name == column) else {
        let known = file.names().iter().map(|name| &**name);
        return Err(corrupt(path, unknown("column", column, known).replace(char::is_control, " ")));
    };
    let mut series = Vec::new();
    file.scan(&mut |place, record| {
        let cell = record.get(field).unwrap_or_default().trim();
        let value = cell.parse::<f32>().ok().filter(|value| value.is_finite());
        let value =
            value.ok_or_else(|| corrupt(path, format!("{}: {}", file.place(place), not_a_number(column, cell))))?;
        series.try_reserve(1).map_err(|error| io_error(path, error.into()))?;
        series.push(value);
        Ok(())
    })?;
    if series.is_empty() {
        return Err(corrupt(path, "has no rows below its header"));
    }
    Ok(series)
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
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
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
        let (mean, deviation) = moments(series.iter().copied());
        if !(deviation.is_finite() && deviation > 0.0) {
            return Err(DataError::Mismatch(
                "a series that is empty, constant or not finite cannot be scaled to standard deviation 1".into(),
            ));
        }
        Ok(Scale { mean, deviation })
    }

    /// Leaves numbers as they are.
    const NONE: Scale = Scale { mean: 0.0, deviation: 1.0 };

    /// The map for these numbers, which makes 0 of those that are all the same.
    fn of(series: impl Iterator<Item = f32> + Clone) -> Result<Self, DataError> {
        let (mean, deviation) = moments(series);
        if !(mean.is_finite() && deviation.is_finite()) {
            return Err(DataError::Mismatch(
                "a part without rows, or with numbers that are not finite, cannot be scaled".to_owned(),
            ));
        }
        Ok(Scale { mean, deviation: if deviation > 0.0 { deviation } else { 1.0 } })
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

/// Mean and standard deviation; not finite where there are no numbers.
fn moments(series: impl Iterator<Item = f32> + Clone) -> (f64, f64) {
    let count = series.clone().count() as f64;
    let mean = series.clone().map(f64::from).sum::<f64>() / count;
    let variance = series.map(|value| (f64::from(value) - mean).powi(2)).sum::<f64>() / count;
    (mean, variance.sqrt())
}

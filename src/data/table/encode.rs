//! A row as a sample.

use ::csv::StringRecord;

use super::preprocessing::{
    Categories, Column, ColumnKind, Missing, TablePreprocessing, Task, boolean, integer, is_missing, number,
    standardized,
};
use super::{Layout, Slot};
use crate::data::{Array, Sample, Values};
use crate::tensor::room;

/// A cell as a number: itself, 0 or 1, or the place of its category.
pub(super) fn value(column: &Column, slot: &Slot, cell: &str) -> Result<f64, String> {
    let shown = || cell.chars().take(40).collect::<String>().escape_debug().to_string();
    match &column.kind {
        ColumnKind::Number { .. } => {
            number(cell).ok_or_else(|| format!("`{}` is `{}`, expected a finite number", column.name, shown()))
        }
        ColumnKind::Boolean { .. } => boolean(cell)
            .map(|is| f64::from(u8::from(is)))
            .ok_or_else(|| format!("`{}` is `{}`, expected true or false", column.name, shown())),
        ColumnKind::Text { categories, .. } => {
            // Classes may be booleans and integers, which can be written in several ways.
            let found = slot.categories.get(cell).or_else(|| {
                let lower = boolean(cell).map(|is| is.to_string());
                let plain = lower.or_else(|| integer(cell).map(|value| value.to_string()));
                plain.and_then(|name| slot.categories.get(&name))
            });
            found.map(|at| f64::from(*at)).ok_or_else(|| {
                let list = categories[..categories.len().min(10)].join(", ");
                let more = if categories.len() > 10 { ", …" } else { "" };
                let (name, shown) = (&column.name, shown());
                format!("`{name}` is `{}`, which is none of its categories: {}{more}", shown, list.escape_debug())
            })
        }
    }
}

/// The value of an input, where it may be missing.
fn input(preprocessing: &TablePreprocessing, column: &Column, slot: &Slot, cell: &str) -> Result<f64, String> {
    if !is_missing(cell) {
        return value(column, slot, cell);
    }
    if preprocessing.missing != Missing::Fill {
        return Err(missing(&column.name));
    }
    Ok(match column.kind {
        ColumnKind::Number { mean, .. } => mean,
        ColumnKind::Boolean { most_frequent } => f64::from(u8::from(most_frequent)),
        ColumnKind::Text { most_frequent, .. } => f64::from(most_frequent),
    })
}

/// What to say of a cell that is missing.
pub(super) fn missing(name: &str) -> String {
    format!("`{name}` is missing: mend it, or say that such rows are dropped, or that inputs are filled with the mean")
}

/// Entries of a sample that are indices of categories, beside numbers.
pub(super) fn index_entries(preprocessing: &TablePreprocessing) -> impl Iterator<Item = &str> {
    let are = preprocessing.categories == Categories::Index && !preprocessing.all_indices();
    let text = move |column: &&Column| are && matches!(column.kind, ColumnKind::Text { .. });
    preprocessing.inputs.iter().filter(text).map(|column| &*column.name)
}

/// A number as floats have it.
fn float(name: &str, value: f64) -> Result<f32, String> {
    let float = value as f32;
    if float.is_finite() { Ok(float) } else { Err(format!("`{name}` is {value:e}, too large for a 32-bit float")) }
}

/// A row as a sample; what is wrong with it, in words.
pub(super) fn sample(
    preprocessing: &TablePreprocessing,
    layout: &Layout,
    record: &StringRecord,
) -> Result<Sample, String> {
    let cell = |field: usize| record.get(field).unwrap_or_default().trim();
    let width = preprocessing.inputs.iter().map(|column| preprocessing.width(&column.kind)).sum();
    let mut numbers: Vec<f32> = room(width).map_err(|error| error.to_string())?;
    let mut indices = Vec::new();
    for (column, slot) in preprocessing.inputs.iter().zip(&layout.inputs) {
        let value = input(preprocessing, column, slot, cell(slot.field))?;
        match (&column.kind, preprocessing.categories) {
            (ColumnKind::Number { mean, std, .. }, _) if preprocessing.standardize => {
                numbers.push(float(&column.name, standardized(value, *mean, *std))?);
            }
            (ColumnKind::Text { categories, .. }, Categories::OneHot) => {
                let start = numbers.len();
                numbers.resize(start + categories.len(), 0.0);
                numbers[start + value as usize] = 1.0;
            }
            (ColumnKind::Text { .. }, Categories::Index) => indices.push((&column.name, value as u32)),
            _ => numbers.push(float(&column.name, value)?),
        }
    }
    let mut sample = if preprocessing.all_indices() {
        Sample::new(indices.into_iter().map(|(_, index)| index).collect::<Vec<u32>>())
    } else {
        indices.into_iter().fold(Sample::new(numbers), |sample, (name, index)| sample.with(name, index))
    };
    if !layout.targets.is_empty() {
        sample = sample.with_target(target(preprocessing, layout, record)?);
    }
    if let (Some(name), Some(field)) = (&preprocessing.weight, layout.weight) {
        sample = sample.with_weight(weight(name, cell(field))?);
    }
    Ok(sample)
}

fn target(preprocessing: &TablePreprocessing, layout: &Layout, record: &StringRecord) -> Result<Array, String> {
    let mut values = Vec::new();
    for (column, slot) in preprocessing.targets.iter().zip(&layout.targets) {
        let cell = record.get(slot.field).unwrap_or_default().trim();
        if is_missing(cell) {
            return Err(missing(&column.name));
        }
        let value = value(column, slot, cell)?;
        if preprocessing.task == Task::Classification {
            return Ok(Array::from(value as u32));
        }
        let value = match column.kind {
            ColumnKind::Number { mean, std, .. } if preprocessing.standardize_targets => standardized(value, mean, std),
            _ => value,
        };
        values.push(float(&column.name, value)?);
    }
    let shape = [values.len()];
    Array::new(Values::F32(values), shape).map_err(|error| error.to_string())
}

/// The weight of a row.
pub(super) fn weight(name: &str, cell: &str) -> Result<f32, String> {
    let weight = number(cell).map(|weight| weight as f32).filter(|weight| weight.is_finite() && *weight >= 0.0);
    let shown: String = cell.chars().take(40).collect();
    weight.ok_or_else(|| format!("the weight `{name}` is `{}`: it must be a number, 0 or more", shown.escape_debug()))
}

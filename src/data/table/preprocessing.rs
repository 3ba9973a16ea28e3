//! What was learned of a table's columns, and is needed again for other tables.

use serde::{Deserialize, Serialize};

/// What a table does where a cell of a column that it uses is missing: empty, `NA`, `N/A`, `NaN`, `null`, `None` or `?`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// It is an error, which names line and column.
    #[default]
    Error,
    /// The row is left out.
    #[serde(alias = "drop")]
    DropRows,
    /// The column's mean takes its place, or its most frequent category. Targets and weights must be there.
    Fill,
}

/// How inputs that are text become numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Categories {
    /// One number for each category, 1 for that of the row and 0 for others.
    #[default]
    OneHot,
    /// The index of the category, for an embedding: an entry of its own under the column's name, type u32, shape `[]`. Where all
    /// inputs are text, they are one input `[columns]` of indices.
    Index,
}

/// What the targets of a table are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// One column, of text, booleans or integers, says the class.
    Classification,
    /// The columns hold numbers.
    Regression,
}

/// What a column holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ColumnKind {
    /// Numbers, of these statistics.
    Number {
        /// Their mean.
        mean: f64,
        /// Their standard deviation, as of a whole population; 0 where all are the same.
        std: f64,
        /// The least of them.
        min: f64,
        /// The greatest of them.
        max: f64,
    },
    /// `true` and `false`, in any case.
    Boolean {
        /// Which of them there are more of.
        most_frequent: bool,
    },
    /// One of these texts.
    Text {
        /// All there are, sorted.
        categories: Vec<String>,
        /// Index of the one that there is most of.
        most_frequent: u32,
    },
}

/// A column that a table uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// Its name in the header.
    pub name: String,
    /// What it holds.
    pub kind: ColumnKind,
}

/// How the columns of a table become inputs and targets: what must be kept with a model, so that other rows become numbers in the
/// same way. [`Table::open_with`](super::Table::open_with) takes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TablePreprocessing {
    /// Columns of the input, in order.
    pub inputs: Vec<Column>,
    /// Columns of the target, in order. Where they say a class, it is one, of text.
    pub targets: Vec<Column>,
    /// Whether the target is a class.
    pub task: Task,
    /// The column with the weights of rows.
    pub weight: Option<String>,
    /// How text becomes numbers.
    pub categories: Categories,
    /// What happens where a cell is missing.
    pub missing: Missing,
    /// Whether numbers among the inputs are given mean 0 and standard deviation 1.
    pub standardize: bool,
    /// Whether targets that are numbers are given mean 0 and standard deviation 1.
    pub standardize_targets: bool,
    /// What separates fields; it is detected where it is not given.
    pub delimiter: Option<char>,
    /// Whether the first line names the columns. Where it does not, their names are `1`, `2` and so on.
    pub header: bool,
}

impl TablePreprocessing {
    /// Names of the classes, in the order of their labels; none where targets are numbers.
    pub fn class_names(&self) -> &[String] {
        match (self.task, self.targets.first().map(|column| &column.kind)) {
            (Task::Classification, Some(ColumnKind::Text { categories, .. })) => categories,
            _ => &[],
        }
    }

    /// Inputs that are constant numbers: standardized, they are 0, and say nothing.
    pub fn constant_inputs(&self) -> impl Iterator<Item = &str> {
        let constant = self.inputs.iter().filter(|column| matches!(column.kind, ColumnKind::Number { std: 0.0, .. }));
        constant.map(|column| &*column.name)
    }

    /// Puts predictions, one row of targets after the other, in the units of the file: `y * std + mean` of each column, where targets
    /// are standardized.
    pub fn invert_targets(&self, predictions: &mut [f32]) {
        if !self.standardize_targets || self.targets.is_empty() {
            return;
        }
        for row in predictions.chunks_mut(self.targets.len()) {
            for (value, column) in row.iter_mut().zip(&self.targets) {
                if let ColumnKind::Number { mean, std, .. } = column.kind {
                    *value = (f64::from(*value) * std + mean) as f32;
                }
            }
        }
    }

    /// Numbers of an input of this kind, where it is part of a row of floats.
    pub(super) fn width(&self, kind: &ColumnKind) -> usize {
        match (kind, self.categories) {
            (ColumnKind::Text { categories, .. }, Categories::OneHot) => categories.len(),
            (ColumnKind::Text { .. }, Categories::Index) => 0,
            _ => 1,
        }
    }

    /// Whether all inputs are indices of categories.
    pub(super) fn all_indices(&self) -> bool {
        self.categories == Categories::Index
            && self.inputs.iter().all(|column| matches!(column.kind, ColumnKind::Text { .. }))
    }
}

/// A number without its unit: how far it is from the mean, in standard deviations; 0 where all are the same.
pub(super) fn standardized(value: f64, mean: f64, std: f64) -> f64 {
    if std > 0.0 { (value - mean) / std } else { 0.0 }
}

/// Whether a cell says that there is nothing.
pub(in crate::data) fn is_missing(cell: &str) -> bool {
    const WORDS: [&str; 6] = ["na", "n/a", "nan", "null", "none", "?"];
    cell.is_empty() || cell.len() <= 4 && WORDS.iter().any(|word| cell.eq_ignore_ascii_case(word))
}

/// A cell that says yes or no.
pub(super) fn boolean(cell: &str) -> Option<bool> {
    let is = |word: &str| cell.eq_ignore_ascii_case(word);
    if is("true") { Some(true) } else { is("false").then_some(false) }
}

/// A cell that is a number.
pub(in crate::data) fn number(cell: &str) -> Option<f64> {
    cell.parse().ok().filter(|value: &f64| value.is_finite())
}

/// The one way to write a number that is an integer.
pub(super) fn integer(cell: &str) -> Option<i64> {
    number(cell).filter(|value| value.fract() == 0.0 && value.abs() < 1e15).map(|value| value as i64)
}

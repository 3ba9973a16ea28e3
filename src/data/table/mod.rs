//! Tables: rows of a CSV file, or of a Parquet file with the feature `parquet`.

mod csv;
mod encode;
mod open;
#[cfg(feature = "parquet")]
mod parquet;
mod preprocessing;
mod rows;
mod statistics;

use std::collections::HashMap;
use std::path::Path;

pub(super) use self::csv::CsvRows;
pub(super) use self::preprocessing::is_missing;
pub(super) use self::preprocessing::number;
pub use self::preprocessing::{Categories, Column, ColumnKind, Missing, TablePreprocessing, Task};
pub(super) use self::rows::{Place, Rows};
use self::statistics::Moments;
use super::{Dataset, Features, INPUT, SAMPLE_WEIGHT, Sample, corrupt};
use crate::error::DataError;
use crate::tensor::DType;

/// Which columns of a table are used, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct TableOptions {
    /// Columns of the input, in order. Unless they are named, all that are nothing else.
    pub inputs: Option<Vec<String>>,
    /// Columns that are to be predicted, in order; none where the table is only for predictions.
    pub targets: Vec<String>,
    /// A column with the weights of rows: numbers of 0 and more.
    pub weight: Option<String>,
    /// What the targets are for. Unless it is said: one column of text or booleans is a class, anything else is numbers.
    pub task: Option<Task>,
    /// What happens where a cell is missing.
    pub missing: Missing,
    /// How text among the inputs becomes numbers.
    pub categories: Categories,
    /// Whether numbers among the inputs are given mean 0 and standard deviation 1.
    pub standardize: bool,
    /// The same of targets that are numbers; [`TablePreprocessing::invert_targets`] undoes it.
    pub standardize_targets: bool,
    /// What separates fields of a CSV file. Unless it is given, whichever of `,`, `;`, tab and `|` is most often in the first line.
    pub delimiter: Option<char>,
    /// Whether the first line of a CSV file names the columns. Where it does not, their names are `1`, `2` and so on.
    pub header: bool,
}

impl Default for TableOptions {
    fn default() -> Self {
        TableOptions {
            inputs: None,
            targets: Vec::new(),
            weight: None,
            task: None,
            missing: Missing::Error,
            categories: Categories::OneHot,
            standardize: true,
            standardize_targets: false,
            delimiter: None,
            header: true,
        }
    }
}

/// A table whose rows are samples: a CSV file, or with the feature `parquet` a Parquet file of flat columns.
///
/// Opening reads the file once. It finds what each column holds (numbers, booleans, or text of some categories), their mean and
/// deviation, and where each row begins: 8 bytes a row, and 4 more where targets are classes, are all that stays in memory. Rows are
/// read when they are asked for.
///
/// - Inputs become one row of floats, in the order of the columns: numbers as `(x - mean) / std`, booleans as 0 and 1, text as one-hot
///   ([`Categories`] has another way).
/// - One target column of text or booleans is a class: labels are the places of the names in their order. Integers are classes where
///   [`TableOptions::task`] says so. Other targets are numbers, shape `[targets]`.
///
/// Fields may be quoted, lines may end in CRLF, and spaces around a field do not count. The text must be UTF-8.
///
/// ```
/// use tightfit::data::{Dataset as _, Table, TableOptions};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("flowers.csv");
/// std::fs::write(&path, "petal,color,kind\n1.0,red,rose\n3.0,blue,iris\n")?;
/// let mut table = Table::open(&path, &TableOptions { targets: vec!["kind".to_owned()], ..TableOptions::default() })?;
/// assert_eq!(table.features()?.class_names(), ["iris", "rose"]);
/// let batch = tightfit::data::Values::F32(vec![-1.0, 0.0, 1.0]);
/// assert_eq!(table.get(0)?.get("input").unwrap().values(), &batch, "petal, blue, red");
///
/// // Rows without a target, in the same way.
/// std::fs::write(&path, "color,petal\nred,2.0\n")?;
/// let others = Table::open_with(&path, table.preprocessing())?;
/// assert_eq!(others.get(0)?.get("input").unwrap().values(), &tightfit::data::Values::F32(vec![0.0, 0.0, 1.0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Table {
    rows: Box<dyn Rows>,
    places: Vec<Place>,
    /// Classes of all rows, where targets are classes.
    labels: Vec<u32>,
    preprocessing: TablePreprocessing,
    layout: Layout,
    longest: u64,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut table = f.debug_struct("Table");
        table.field("path", &self.path()).field("rows", &self.places.len());
        table.field("preprocessing", &self.preprocessing).finish()
    }
}

/// Where the columns that are used stand in the file.
#[derive(Debug)]
struct Layout {
    inputs: Vec<Slot>,
    /// None where the file has no targets.
    targets: Vec<Slot>,
    weight: Option<usize>,
}

/// Where a column stands, and the places of its categories.
#[derive(Debug)]
struct Slot {
    field: usize,
    categories: HashMap<String, u32>,
}

impl Table {
    /// Opens a file, and learns from all of its rows what columns hold.
    ///
    /// # Errors
    /// [`DataError::Missing`] and [`DataError::Io`] where the file cannot be read; [`DataError::Corrupt`] with line and column where
    /// it is no table of rows of one length in UTF-8, a cell is missing, a column does not exist, has no values, or is text of more
    /// than 4,096 categories; [`DataError::Mismatch`] where options contradict each other.
    pub fn open(path: impl AsRef<Path>, options: &TableOptions) -> Result<Self, DataError> {
        open::open(path.as_ref(), options)
    }

    /// Opens another file with the same columns, found by name, in any order. It may lack the targets and the weight.
    ///
    /// # Errors
    /// As [`Table::open`], and where a cell is not of its column's kind or none of its categories.
    pub fn open_with(path: impl AsRef<Path>, preprocessing: &TablePreprocessing) -> Result<Self, DataError> {
        open::open_with(path.as_ref(), preprocessing)
    }

    /// How columns become inputs and targets: to be kept with a model.
    pub fn preprocessing(&self) -> &TablePreprocessing {
        &self.preprocessing
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.rows.path()
    }

    /// Names of all columns of the file.
    pub fn columns(&self) -> &[String] {
        self.rows.names()
    }

    /// Learns means, deviations and most frequent categories anew, from these rows alone: those that are trained on, so that nothing
    /// of the others is known to the model. Categories stay.
    ///
    /// # Errors
    /// Where a row does not exist or cannot be read, or a column has no value in these rows.
    pub fn fit(&mut self, indices: &[usize]) -> Result<(), DataError> {
        enum Found {
            Numbers(Moments),
            Counts(Vec<u64>),
        }
        let columns = self.preprocessing.inputs.iter().zip(&self.layout.inputs);
        let columns = columns.chain(self.preprocessing.targets.iter().zip(&self.layout.targets));
        let mut columns: Vec<_> = columns
            .map(|(column, slot)| {
                let found = match &column.kind {
                    ColumnKind::Number { .. } => Found::Numbers(Moments::NONE),
                    ColumnKind::Boolean { .. } => Found::Counts(vec![0; 2]),
                    ColumnKind::Text { categories, .. } => Found::Counts(vec![0; categories.len()]),
                };
                (column, slot, found)
            })
            .collect();
        for &index in indices {
            let place = self.place(index)?;
            let record = self.rows.read(place)?;
            for (column, slot, found) in &mut columns {
                let cell = record.get(slot.field).unwrap_or_default().trim();
                if is_missing(cell) {
                    continue;
                }
                let value = encode::value(column, slot, cell).map_err(|reason| self.wrong(place, &reason))?;
                match found {
                    Found::Numbers(moments) => moments.add(value),
                    Found::Counts(counts) => counts[value as usize] += 1,
                }
            }
        }
        let mut kinds = Vec::new();
        for (column, _, found) in columns {
            let most = |counts: &[u64]| (0..counts.len()).rev().max_by_key(|at| counts[*at]).unwrap_or(0);
            kinds.push(match (found, &column.kind) {
                (Found::Numbers(moments), _) => moments.kind().map_err(|reason| {
                    corrupt(self.path(), format!("column `{}`, in the rows to learn from, {reason}", column.name))
                })?,
                (Found::Counts(counts), ColumnKind::Text { categories, .. }) => {
                    ColumnKind::Text { categories: categories.clone(), most_frequent: most(&counts) as u32 }
                }
                (Found::Counts(counts), _) => ColumnKind::Boolean { most_frequent: most(&counts) == 1 },
            });
        }
        let mut kinds = kinds.into_iter();
        let columns = self.preprocessing.inputs.iter_mut().chain(&mut self.preprocessing.targets);
        columns.zip(&mut kinds).for_each(|(column, kind)| column.kind = kind);
        Ok(())
    }

    fn place(&self, index: usize) -> Result<Place, DataError> {
        self.places.get(index).copied().ok_or_else(|| {
            DataError::Mismatch(format!("row {index} of a table of {} does not exist", self.places.len()))
        })
    }

    fn wrong(&self, place: Place, reason: &str) -> DataError {
        corrupt(self.path(), format!("{}: {reason}", self.rows.place(place)))
    }
}

impl Dataset for Table {
    fn len(&self) -> usize {
        self.places.len()
    }

    fn get(&self, index: usize) -> Result<Sample, DataError> {
        let place = self.place(index)?;
        let record = self.rows.read(place)?;
        encode::sample(&self.preprocessing, &self.layout, &record).map_err(|reason| self.wrong(place, &reason))
    }

    fn features(&self) -> Result<Features, DataError> {
        let preprocessing = &self.preprocessing;
        let mut features = if preprocessing.all_indices() {
            Features::new(DType::U32, [preprocessing.inputs.len()])
        } else {
            let width = preprocessing.inputs.iter().map(|column| preprocessing.width(&column.kind)).sum();
            let mut features = Features::new(DType::F32, vec![width]);
            for name in encode::index_entries(preprocessing) {
                features = features.with(name, DType::U32, []);
            }
            features
        };
        if !self.layout.targets.is_empty() {
            features = match preprocessing.class_names() {
                [] => features.with_target_values([self.layout.targets.len()]),
                names => features.with_labels(names.len() as u32, []).with_class_names(names),
            };
        }
        if self.layout.weight.is_some() {
            features = features.with(SAMPLE_WEIGHT, DType::F32, []);
        }
        debug_assert!(features.get(INPUT).is_some());
        Ok(features)
    }

    fn label(&self, index: usize) -> Result<Option<u32>, DataError> {
        self.place(index)?;
        Ok(self.labels.get(index).copied())
    }

    fn origin(&self, index: usize) -> String {
        format!("{}: row {}", self.path().display(), index + 1)
    }

    fn host_bytes(&self) -> u64 {
        let slots = self.layout.inputs.iter().chain(&self.layout.targets);
        // Each category is in the preprocessing and in a slot.
        let categories =
            slots.flat_map(|slot| slot.categories.keys()).map(|name| 2 * name.len() as u64 + 96).sum::<u64>();
        let index = 8 * self.places.capacity() as u64 + 4 * self.labels.capacity() as u64;
        index + categories + self.rows.host_bytes()
    }

    fn scratch_bytes(&self) -> u64 {
        self.rows.scratch_bytes(self.longest)
    }
}

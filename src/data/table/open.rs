//! The pass over a file that opens a table.

use std::path::Path;

use super::csv::CsvRows;
use super::encode::{self, missing, weight};
use super::preprocessing::{Column, ColumnKind, Missing, TablePreprocessing, Task, is_missing};
use super::rows::{Place, Rows};
use super::statistics::{Guess, task};
use super::{Categories, Layout, Slot, Table, TableOptions};
use crate::data::{INPUT, SAMPLE_WEIGHT, TARGET, corrupt, io_error};
use crate::error::{DataError, unknown};

/// Bytes that the categories of all columns may take.
const CATEGORY_BYTES: usize = 64 << 20;
/// Numbers that one row becomes at most.
const MOST_INPUTS: usize = 1 << 20;

pub(super) fn open(path: &Path, options: &TableOptions) -> Result<Table, DataError> {
    let rows = rows(path, options.delimiter, options.header)?;
    let columns = Chosen::new(&*rows, options)?;
    let mut places = Vec::new();
    let mut numbers = Vec::new();
    let mut guesses: Vec<_> = columns.all().map(|_| Guess::new()).collect();
    let mut left = CATEGORY_BYTES;
    let mut longest = 0;
    let class_at =
        (columns.targets.len() == 1 && options.task != Some(Task::Regression)).then_some(columns.inputs.len());
    rows.scan(&mut |place, record| {
        let cell = |field: usize| record.get(field).unwrap_or_default().trim();
        let wrong = |reason: String| corrupt(path, format!("{}: {reason}", rows.place(place)));
        let is_dropped = |field: usize| options.missing == Missing::DropRows && is_missing(cell(field));
        if columns.all().chain(columns.weight).any(is_dropped) {
            return Ok(());
        }
        for (at, (field, guess)) in columns.all().zip(&mut guesses).enumerate() {
            let cell = cell(field);
            if is_missing(cell) {
                if options.missing == Missing::Fill && at < columns.inputs.len() {
                    continue;
                }
                return Err(wrong(missing(&rows.names()[field])));
            }
            let number = guess.add(cell, place, &mut left);
            if let (true, Some(number)) = (class_at == Some(at), number) {
                push(path, &mut numbers, number)?;
            }
        }
        if let Some(field) = columns.weight {
            weight(&rows.names()[field], cell(field)).map_err(wrong)?;
        }
        longest = longest.max(record.as_slice().len() as u64);
        push(path, &mut places, place)
    })?;
    check_rows(path, &places, options.missing)?;

    let name = |field: usize| rows.names()[field].clone();
    let of_column = |field: usize| {
        let name = rows.names()[field].escape_debug().to_string();
        move |reason: String| corrupt(path, format!("column `{name}` {reason}"))
    };
    let describe = |place: Place| rows.place(place);
    let (input_guesses, target_guesses) = guesses.split_at(columns.inputs.len());
    let task = task(options.task, target_guesses);
    let mut inputs = Vec::new();
    for (field, guess) in columns.inputs.iter().zip(input_guesses) {
        inputs.push(Column { name: name(*field), kind: guess.kind(describe).map_err(of_column(*field))? });
    }
    let mut targets = Vec::new();
    let mut labels = Vec::new();
    for (field, guess) in columns.targets.iter().zip(target_guesses) {
        let kind = if task == Task::Classification {
            let (kind, classes) = guess.classes(describe).map_err(of_column(*field))?;
            // Every row has a number where categories were counted to the end.
            labels = std::mem::take(&mut numbers);
            labels.iter_mut().for_each(|label| *label = classes[*label as usize]);
            kind
        } else {
            guess.kind(describe).map_err(of_column(*field))?
        };
        if task == Task::Regression && matches!(kind, ColumnKind::Text { .. }) {
            let reason = "holds text: as one target it is a class, several targets must be numbers or true and false";
            return Err(of_column(*field)(reason.to_owned()));
        }
        targets.push(Column { name: name(*field), kind });
    }
    let preprocessing = TablePreprocessing {
        inputs,
        targets,
        task,
        weight: columns.weight.map(name),
        categories: options.categories,
        missing: options.missing,
        standardize: options.standardize,
        standardize_targets: options.standardize_targets,
        delimiter: options.delimiter,
        header: options.header,
    };
    check_inputs(path, &preprocessing)?;
    let layout = Layout {
        inputs: slots(&preprocessing.inputs, &columns.inputs),
        targets: slots(&preprocessing.targets, &columns.targets),
        weight: columns.weight,
    };
    Ok(Table { rows, places, labels, preprocessing, layout, longest })
}

pub(super) fn open_with(path: &Path, preprocessing: &TablePreprocessing) -> Result<Table, DataError> {
    check_inputs(path, preprocessing)?;
    let rows = rows(path, preprocessing.delimiter, preprocessing.header)?;
    let field = |name: &String| rows.names().iter().position(|other| other == name);
    let needed =
        |column: &Column| field(&column.name).ok_or_else(|| corrupt(path, unknown_column(&*rows, &column.name)));
    let inputs: Vec<_> = preprocessing.inputs.iter().map(needed).collect::<Result<_, _>>()?;
    // All targets are there, or none.
    let has_targets = preprocessing.targets.iter().any(|column| field(&column.name).is_some());
    let targets = if has_targets { &preprocessing.targets[..] } else { &[] };
    let target_fields: Vec<_> = targets.iter().map(needed).collect::<Result<_, _>>()?;
    let layout = Layout {
        inputs: slots(&preprocessing.inputs, &inputs),
        targets: slots(targets, &target_fields),
        weight: preprocessing.weight.as_ref().and_then(field),
    };
    let (mut places, mut labels, mut longest) = (Vec::new(), Vec::new(), 0);
    rows.scan(&mut |place, record| {
        let used = inputs.iter().chain(&target_fields).copied().chain(layout.weight);
        let is_missing = |field: usize| is_missing(record.get(field).unwrap_or_default().trim());
        if preprocessing.missing == Missing::DropRows && used.into_iter().any(is_missing) {
            return Ok(());
        }
        let sample = encode::sample(preprocessing, &layout, record);
        let sample = sample.map_err(|reason| corrupt(path, format!("{}: {reason}", rows.place(place))))?;
        if preprocessing.task == Task::Classification
            && let Some(crate::data::Values::U32(label)) = sample.get(TARGET).map(crate::data::Array::values)
        {
            push(path, &mut labels, label[0])?;
        }
        longest = longest.max(record.as_slice().len() as u64);
        push(path, &mut places, place)
    })?;
    check_rows(path, &places, preprocessing.missing)?;
    Ok(Table { rows, places, labels, preprocessing: preprocessing.clone(), layout, longest })
}

fn rows(path: &Path, delimiter: Option<char>, header: bool) -> Result<Box<dyn Rows>, DataError> {
    let is_parquet = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("parquet"));
    if is_parquet {
        #[cfg(feature = "parquet")]
        return Ok(Box::new(super::parquet::ParquetRows::open(path)?));
        #[cfg(not(feature = "parquet"))]
        return Err(DataError::Mismatch(format!(
            "{}: Parquet files need the feature `parquet`: build with it, or save the table as CSV",
            path.display()
        )));
    }
    let delimiter = delimiter.map(|delimiter| match u8::try_from(delimiter) {
        Ok(byte) if byte.is_ascii() && !b"\"\r\n\0".contains(&byte) => Ok(byte),
        _ => Err(DataError::Mismatch(format!(
            "the delimiter {delimiter:?} is not possible: it must be one character of ASCII, no quote and no line end"
        ))),
    });
    Ok(Box::new(CsvRows::open(path, delimiter.transpose()?, header)?))
}

/// Fields of the columns that are used.
struct Chosen {
    inputs: Vec<usize>,
    targets: Vec<usize>,
    weight: Option<usize>,
}

impl Chosen {
    fn new(rows: &dyn Rows, options: &TableOptions) -> Result<Self, DataError> {
        let names = rows.names();
        let find = |name: &String| {
            let mut found = (0..names.len()).filter(|field| names[*field] == *name);
            match (found.next(), found.next()) {
                (Some(field), None) => Ok(field),
                (Some(_), Some(_)) => Err(corrupt(rows.path(), format!("has two columns named `{name}`: rename one"))),
                (None, _) => Err(corrupt(rows.path(), unknown_column(rows, name))),
            }
        };
        let targets: Vec<_> = options.targets.iter().map(find).collect::<Result<_, _>>()?;
        let weight = options.weight.as_ref().map(find).transpose()?;
        let inputs: Vec<_> = match &options.inputs {
            Some(inputs) => inputs.iter().map(find).collect::<Result<_, _>>()?,
            None => {
                let is_other = |field: &usize| !targets.contains(field) && weight != Some(*field);
                let others = (0..names.len()).filter(is_other);
                others.map(|field| find(&names[field])).collect::<Result<_, _>>()?
            }
        };
        let mut used: Vec<_> = inputs.iter().chain(&targets).copied().chain(weight).collect();
        used.sort_unstable();
        if let Some(twice) = used.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(DataError::Mismatch(format!(
                "column `{}` is used twice: as input, target or weight, once each",
                names[twice[0]].escape_debug()
            )));
        }
        if inputs.is_empty() {
            return Err(DataError::Mismatch(format!(
                "{}: no column is left for the input: name some",
                rows.path().display()
            )));
        }
        if options.task == Some(Task::Classification) && targets.len() != 1 {
            return Err(DataError::Mismatch(format!(
                "a classification has one target column, not {}: name the one that holds the classes",
                targets.len()
            )));
        }
        Ok(Chosen { inputs, targets, weight })
    }

    /// Inputs, then targets.
    fn all(&self) -> impl Iterator<Item = usize> {
        self.inputs.iter().chain(&self.targets).copied()
    }
}

fn unknown_column(rows: &dyn Rows, name: &str) -> String {
    let text = unknown("column", name, rows.names().iter().map(|name| &**name));
    text.replace(char::is_control, " ")
}

fn slots(columns: &[Column], fields: &[usize]) -> Vec<Slot> {
    let categories = |kind: &ColumnKind| match kind {
        ColumnKind::Text { categories, .. } => (0..).zip(categories).map(|(at, name)| (name.clone(), at)).collect(),
        _ => Default::default(),
    };
    let slot = |(column, field): (&Column, &usize)| Slot { field: *field, categories: categories(&column.kind) };
    columns.iter().zip(fields).map(slot).collect()
}

fn check_rows(path: &Path, places: &[Place], missing: Missing) -> Result<(), DataError> {
    match (places, missing) {
        ([], Missing::DropRows) => Err(corrupt(path, "has no row in which nothing is missing")),
        ([], _) => Err(corrupt(path, "has no rows below its header")),
        _ => Ok(()),
    }
}

fn check_inputs(path: &Path, preprocessing: &TablePreprocessing) -> Result<(), DataError> {
    let wrong = |reason: String| Err(DataError::Mismatch(format!("{}: {reason}", path.display())));
    for column in preprocessing.inputs.iter().chain(&preprocessing.targets) {
        if let ColumnKind::Text { categories, most_frequent } = &column.kind
            && *most_frequent as usize >= categories.len()
        {
            return wrong(format!("column `{}` has no category {most_frequent}", column.name.escape_debug()));
        }
    }
    let is_class = |column: &Column| matches!(column.kind, ColumnKind::Text { .. });
    let is_sound = match (preprocessing.task, &preprocessing.targets[..]) {
        (Task::Classification, targets) => matches!(targets, [one] if is_class(one)),
        (Task::Regression, targets) => !targets.iter().any(is_class),
    };
    if !is_sound {
        return wrong(
            "the target of a classification is one column of text, those of a regression are numbers".to_owned(),
        );
    }
    let taken = encode::index_entries(preprocessing).find(|name| [INPUT, TARGET, SAMPLE_WEIGHT].contains(name));
    if let (Some(name), Categories::Index) = (taken, preprocessing.categories) {
        return wrong(format!(
            "a column of categories cannot be named `{name}`, as samples have one already: rename it"
        ));
    }
    let width = preprocessing.inputs.iter().map(|column| preprocessing.width(&column.kind)).sum::<usize>();
    if width > MOST_INPUTS {
        return wrong(format!(
            "a row becomes {width} numbers, more than {MOST_INPUTS}: leave out columns, or take categories as indices"
        ));
    }
    Ok(())
}

fn push<T>(path: &Path, values: &mut Vec<T>, value: T) -> Result<(), DataError> {
    values.try_reserve(1).map_err(|error| io_error(path, error.into()))?;
    values.push(value);
    Ok(())
}

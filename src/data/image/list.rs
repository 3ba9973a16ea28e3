//! A CSV file of images and labels.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::names::Names;
use super::options::ImageOptions;
use super::paths::{Paths, check_index};
use super::reader::Reader;
use crate::data::{Array, Dataset, Features, Sample, Values, corrupt, io_error};
use crate::error::{DataError, unknown};
use crate::files;

/// Names that columns are looked for by, where none is given.
const PATH_COLUMNS: [&str; 6] = ["path", "filename", "file", "image", "image_path", "filepath"];
const LABEL_COLUMNS: [&str; 5] = ["label", "class", "target", "category", "species"];
const HINT: &str = "give a CSV file with a header, and columns such as `path` and `label`";

/// What the columns of a list of images are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct ListOptions {
    /// The column of paths; otherwise the first of `path`, `filename`, `file`, `image`, `image_path` and `filepath` that there is.
    pub path: Option<String>,
    /// What a model should answer.
    pub target: ListTarget,
    /// The column of weights of samples.
    pub weight: Option<String>,
    /// The folder to which paths are relative; otherwise that of the CSV file.
    pub root: Option<PathBuf>,
    /// Names of the classes in the order of their labels, such as those of the training. Otherwise those that are found, sorted.
    pub class_names: Option<Vec<String>>,
}

/// What a model should answer for an image of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ListTarget {
    /// A class: the column of its name, or of an integer from 0; otherwise the first of `label`, `class`, `target`, `category` and
    /// `species` that there is. Where all are integers, and no names are given, they are the labels.
    Label(Option<String>),
    /// Numbers in these columns, for a regression.
    Values(Vec<String>),
    /// Nothing, for predictions.
    None,
}

impl Default for ListTarget {
    fn default() -> Self {
        ListTarget::Label(None)
    }
}

/// Images that a CSV file lists, with a label or numbers for each.
///
/// ```text
/// path,label
/// photos/1.jpg,cat
/// photos/2.png,dog
/// ```
///
/// The first row has the names of the columns. Paths are relative to the folder of the file, or absolute. Only the paths and the targets
/// are in memory; a file that is missing is reported with its row when it is read.
///
/// ```
/// use tightfit::data::{Dataset, ImageList, ImageOptions, ListOptions};
///
/// let folder = tempfile::tempdir()?;
/// image::GrayImage::new(8, 6).save(folder.path().join("1.png"))?;
/// std::fs::write(folder.path().join("list.csv"), "file,class\n1.png,cat\n1.png,dog\n")?;
/// let images = ImageList::open(folder.path().join("list.csv"), &ListOptions::default(), ImageOptions::default())?;
/// assert_eq!((images.len(), images.label(1)?, images.class_names().len()), (2, Some(1), 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ImageList {
    csv: PathBuf,
    reader: Reader,
    rows: Rows,
}

/// What is read of a list.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rows {
    pub(super) paths: Paths,
    pub(super) targets: Targets,
    weights: Vec<f32>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Targets {
    Labels {
        labels: Vec<u32>,
        classes: u32,
        names: Vec<String>,
    },
    /// So many for each image, one after the other.
    Values(Vec<f32>, usize),
    None,
}

/// Where a value is, for messages.
struct Place<'a> {
    csv: &'a Path,
    row: usize,
}

impl Place<'_> {
    fn error(&self, reason: &str) -> DataError {
        corrupt(self.csv, format!("row {}: {reason}", self.row))
    }
}

impl Rows {
    pub(super) fn read(csv: &Path, options: &ListOptions) -> Result<Self, DataError> {
        let (file, _) = files::open(csv, HINT)?;
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(file);
        let header = reader.headers().map_err(|error| read_error(csv, error))?.clone();
        // Excel writes a mark of the byte order before the first.
        let header: Vec<_> = header.iter().map(|name| name.trim_start_matches('\u{feff}').trim().to_owned()).collect();
        let column = |name: &str| {
            header
                .iter()
                .position(|found| found == name)
                .ok_or_else(|| corrupt(csv, unknown("column", name, header.iter().map(String::as_str))))
        };
        let find = |given: &Option<String>, known: &[&str], what: &str| match given {
            Some(name) => column(name),
            None => {
                let is = |name: &&str| header.iter().position(|found| found.eq_ignore_ascii_case(name));
                known.iter().find_map(is).ok_or_else(|| {
                    corrupt(
                        csv,
                        format!(
                            "has no column `{}` for the {what}: say which of its columns {} it is",
                            known[0],
                            header.join(", ")
                        ),
                    )
                })
            }
        };
        let path = find(&options.path, &PATH_COLUMNS, "paths of images")?;
        let weight = options.weight.as_deref().map(column).transpose()?;
        let columns = match &options.target {
            ListTarget::Label(name) => vec![find(name, &LABEL_COLUMNS, "labels")?],
            ListTarget::Values(names) if names.is_empty() => {
                return Err(DataError::Mismatch("targets need a column: name at least one".to_owned()));
            }
            ListTarget::Values(names) => names.iter().map(|name| column(name)).collect::<Result<_, _>>()?,
            ListTarget::None => Vec::new(),
        };
        let is_label = matches!(options.target, ListTarget::Label(_));

        let root = options.root.clone().unwrap_or_else(|| csv.parent().unwrap_or(Path::new("")).to_owned());
        let mut paths = Paths::default();
        paths.enter(root);
        let (mut names, mut values, mut weights) = (Names::default(), Vec::new(), Vec::new());
        let mut record = csv::StringRecord::new();
        while reader.read_record(&mut record).map_err(|error| read_error(csv, error))? {
            let place = Place { csv, row: paths.len() + 1 };
            let cell = |column: usize| match record.get(column) {
                Some("") | None => {
                    Err(place.error(&format!("`{}` is empty: fill it in, or remove the row", header[column])))
                }
                Some(text) => Ok(text),
            };
            let number = |column: usize| {
                let text = cell(column)?;
                let number = text.parse::<f32>().ok().filter(|number| number.is_finite());
                number.ok_or_else(|| {
                    place.error(&format!("`{}` is `{}`, which is no number", header[column], text.escape_debug()))
                })
            };
            paths.add(cell(path)?)?;
            if is_label {
                names.add(cell(columns[0])?);
            } else {
                for &column in &columns {
                    values.push(number(column)?);
                }
            }
            if let Some(column) = weight {
                match number(column)? {
                    weight if weight >= 0.0 => weights.push(weight),
                    weight => return Err(place.error(&format!("the weight is {weight}: it must be 0 or more"))),
                }
            }
        }
        if paths.len() == 0 {
            return Err(corrupt(csv, "has a header, but no rows: list at least one image"));
        }
        paths.shrink();
        let targets = match &options.target {
            ListTarget::Label(_) => {
                let error = |index: usize, reason: String| corrupt(csv, format!("row {}: {reason}", index + 1));
                let (labels, classes, names) = names.labels(options.class_names.as_deref(), error)?;
                Targets::Labels { labels, classes, names }
            }
            ListTarget::Values(_) => Targets::Values(values, columns.len()),
            ListTarget::None => Targets::None,
        };
        Ok(Rows { paths, targets, weights })
    }
}

/// What the reader of CSV says, in one line.
fn read_error(path: &Path, error: csv::Error) -> DataError {
    let text = error.to_string();
    match error.into_kind() {
        csv::ErrorKind::Io(error) => io_error(path, error),
        csv::ErrorKind::Utf8 { pos, .. } => {
            let line = pos.map_or(0, |pos| pos.line());
            corrupt(path, format!("line {line} is not UTF-8: save the file as UTF-8"))
        }
        csv::ErrorKind::UnequalLengths { pos, expected_len, len } => {
            let line = pos.map_or(0, |pos| pos.line());
            corrupt(path, format!("line {line} has {len} columns where the header has {expected_len}: mend it"))
        }
        _ => corrupt(path, format!("is not a CSV file ({text}): {HINT}")),
    }
}

impl ImageList {
    /// Reads the list, and the size of the first image where no size is given.
    ///
    /// # Errors
    /// Where the file cannot be read, has no such columns or no rows, a cell is empty or no number, or a class is none of those given:
    /// the message has the row, from 1 after the header.
    pub fn open(csv: impl AsRef<Path>, list: &ListOptions, options: ImageOptions) -> Result<Self, DataError> {
        let csv = csv.as_ref().to_owned();
        let rows = Rows::read(&csv, list)?;
        let reader = Reader::of_file(options, &rows.paths.get(0)).map_err(|error| of_row(&csv, 0, &error))?;
        Ok(ImageList { csv, reader, rows })
    }

    /// Names of the classes, in the order of their labels; none where labels are integers, or there are none.
    pub fn class_names(&self) -> &[String] {
        match &self.rows.targets {
            Targets::Labels { names, .. } => names,
            Targets::Values(..) | Targets::None => &[],
        }
    }

    /// The file of a sample; `None` past the end.
    pub fn path(&self, index: usize) -> Option<PathBuf> {
        (index < self.len()).then(|| self.rows.paths.get(index))
    }

    /// How images are read, with the size that all have.
    pub fn options(&self) -> ImageOptions {
        self.reader.options()
    }
}

/// An error of an image, with the row that it stands in.
fn of_row(csv: &Path, index: usize, error: &DataError) -> DataError {
    corrupt(csv, format!("row {}: {error}", index + 1))
}

impl Dataset for ImageList {
    fn len(&self) -> usize {
        self.rows.paths.len()
    }

    fn get(&self, index: usize) -> Result<Sample, DataError> {
        check_index(index, self.len())?;
        let image = self.reader.file(&self.rows.paths.get(index)).map_err(|error| of_row(&self.csv, index, &error))?;
        let mut sample = Sample::new(image);
        sample = match &self.rows.targets {
            Targets::Labels { labels, .. } => sample.with_target(labels[index]),
            Targets::Values(values, count) => {
                let values = values[index * count..(index + 1) * count].to_vec();
                sample.with_target(Array::new(Values::F32(values), [*count])?)
            }
            Targets::None => sample,
        };
        Ok(match self.rows.weights.get(index) {
            Some(weight) => sample.with_weight(*weight),
            None => sample,
        })
    }

    fn features(&self) -> Result<Features, DataError> {
        let features = self.reader.features();
        let features = match &self.rows.targets {
            Targets::Labels { classes, names, .. } if names.is_empty() => features.with_labels(*classes, []),
            Targets::Labels { classes, names, .. } => features.with_labels(*classes, []).with_class_names(names),
            Targets::Values(_, count) => features.with_target_values([*count]),
            Targets::None => features,
        };
        Ok(if self.rows.weights.is_empty() {
            features
        } else {
            features.with(crate::data::SAMPLE_WEIGHT, crate::tensor::DType::F32, [])
        })
    }

    fn label(&self, index: usize) -> Result<Option<u32>, DataError> {
        check_index(index, self.len())?;
        Ok(match &self.rows.targets {
            Targets::Labels { labels, .. } => Some(labels[index]),
            Targets::Values(..) | Targets::None => None,
        })
    }

    fn origin(&self, index: usize) -> String {
        let row = format!("{}, row {}", self.csv.display(), index.saturating_add(1));
        self.path(index).map_or(row.clone(), |path| format!("{row} ({})", path.display()))
    }

    fn host_bytes(&self) -> u64 {
        let targets = match &self.rows.targets {
            Targets::Labels { labels, .. } => labels.capacity(),
            Targets::Values(values, _) => values.capacity(),
            Targets::None => 0,
        };
        self.rows.paths.host_bytes() + 4 * (targets + self.rows.weights.capacity()) as u64
    }

    fn scratch_bytes(&self) -> u64 {
        self.reader.scratch_bytes()
    }
}

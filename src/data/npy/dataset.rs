//! Arrays as samples.

use std::path::Path;

use super::Npy;
use super::npz::Npz;
use crate::data::table::Task;
use crate::data::{Array, Dataset, Features, INPUT, SAMPLE_WEIGHT, Sample, TARGET, Values, corrupt, label_bits};
use crate::error::DataError;
use crate::tensor::{DType, Shape};

/// Numbers that are looked at in one go.
const PIECE: usize = 1 << 18;
/// What arrays with samples are called, the likeliest first.
const INPUTS: [&str; 10] = ["x", "X", "data", "images", "inputs", "input", "image", "features", "samples", "arr_0"];
const TARGETS: [&str; 9] = ["y", "Y", "labels", "label", "targets", "target", "masks", "classes", "arr_1"];
/// Classes that labels may be of.
const MOST_CLASSES: u32 = 1 << 20;
/// What parts of a set are called.
const PARTS: [&[&str]; 3] = [&["train", "training"], &["test"], &["val", "valid", "validation"]];

/// Which arrays are used, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayOptions {
    /// Which part of an archive is read, where it has several: `train`, `test` or `val`, as in `x_train` or `test_images`.
    pub part: Option<String>,
    /// Name of the array with the samples in an archive. Unless it is given, `x`, `data`, `images`, `inputs` and the like, or the only
    /// array there is.
    pub input: Option<String>,
    /// Name of the array with the targets in an archive; of a `.npy` file, the path of another. Unless it is given, `y`, `labels`,
    /// `targets` and the like in an archive, if there is one.
    pub target: Option<String>,
    /// The same for the weights of samples, floats of shape `[n]`.
    pub weight: Option<String>,
    /// Further inputs of the model: the name that the model has for it, and as above where it is.
    pub inputs: Vec<(String, String)>,
    /// What targets are for. Unless it is said, integers are classes, floats are numbers.
    pub task: Option<Task>,
    /// A label that is no class, such as -100 or 255.
    pub ignored: Option<i64>,
    /// Whether inputs that are integers become floats: for integers that are quantities, not indices. Bytes are then not divided by 255.
    pub floats: bool,
    /// Whether the last extent of samples `[height, width, channels]` is that of channels, which become the first.
    pub channels_last: bool,
    /// Whether samples `[height, width]` become `[1, height, width]`.
    pub add_channel: bool,
    /// Bytes of memory that arrays may take which are compressed, and so cannot be read from their places in the file.
    pub host_budget_bytes: u64,
}

impl Default for ArrayOptions {
    fn default() -> Self {
        ArrayOptions {
            part: None,
            input: None,
            target: None,
            weight: None,
            inputs: Vec::new(),
            task: None,
            ignored: None,
            floats: false,
            channels_last: false,
            add_channel: false,
            host_budget_bytes: 1 << 30,
        }
    }
}

/// Samples in NumPy's files: the first extent counts them.
///
/// `.npy` files, and arrays that `numpy.savez` put in a `.npz` file, stay where they are: a sample is read when it is asked for.
/// Arrays of `numpy.savez_compressed` are unpacked into memory, as far as [`ArrayOptions::host_budget_bytes`] allows.
///
/// Inputs that are bytes, such as pixels, stay bytes; other integers are u32, as tokens are, and floats are f32. Targets that are
/// integers of shape `[n]` or `[n, 1]` are labels, one a sample; of other shapes, one at each place. There are as many classes as the
/// largest label says. Floats are numbers.
///
/// ```no_run
/// use tightfit::data::{ArrayDataset, ArrayOptions, Dataset as _};
///
/// // numpy.savez("digits.npz", x_train=…, y_train=…, x_test=…, y_test=…)
/// let part = |name: &str| ArrayOptions { part: Some(name.to_owned()), add_channel: true, ..ArrayOptions::default() };
/// let train = ArrayDataset::open("digits.npz", &part("train"))?;
/// let test = ArrayDataset::open("digits.npz", &part("test"))?;
/// println!("{} and {} images", train.len(), test.len());
/// # Ok::<(), tightfit::error::DataError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ArrayDataset {
    entries: Vec<Entry>,
    features: Features,
    len: usize,
}

/// What all samples have under one name.
#[derive(Clone, Debug)]
struct Entry {
    name: String,
    array: Npy,
    /// Of one sample in the file.
    numel: usize,
    dtype: DType,
    /// Of one sample as it is given.
    shape: Shape,
    /// Extents of the file, where the last becomes the first.
    moved: Option<[usize; 3]>,
    ignored: Option<i64>,
}

impl ArrayDataset {
    /// Opens a `.npy` or `.npz` file.
    ///
    /// # Errors
    /// As [`Npy::open`]; [`DataError::Corrupt`] with the array's name where an archive lacks one, does not say which of several is
    /// meant, would take more memory than is allowed, or a label is negative or too large; [`DataError::Mismatch`] where arrays differ
    /// in length, or options do not fit them.
    pub fn open(path: impl AsRef<Path>, options: &ArrayOptions) -> Result<Self, DataError> {
        let path = path.as_ref();
        let is_archive = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("npz"));
        let further = options.inputs.iter().map(|(name, place)| (name.clone(), Some(place.clone())));
        let named = [(TARGET.to_owned(), options.target.clone()), (SAMPLE_WEIGHT.to_owned(), options.weight.clone())];
        let mut arrays = Vec::new();
        if is_archive {
            let mut archive = Npz::open(path, options.host_budget_bytes)?;
            let input = match &options.input {
                Some(name) => name.clone(),
                None => found(path, &archive, options.part.as_deref())?,
            };
            arrays.push((INPUT.to_owned(), archive.array(&input)?));
            for (name, place) in named.into_iter().chain(further) {
                let is_target = name == TARGET;
                let place = place.or_else(|| {
                    let names: Vec<_> = archive.names().filter(|other| is_target && *other != input).collect();
                    pick(&names, &TARGETS, options.part.as_deref()).map(str::to_owned)
                });
                if let Some(place) = place {
                    arrays.push((name, archive.array(&place)?));
                }
            }
        } else {
            if options.part.is_some() || options.input.is_some() {
                return Err(DataError::Mismatch(format!(
                    "{}: parts and names of inputs are those of arrays in a .npz file, a .npy file is one array",
                    path.display()
                )));
            }
            arrays.push((INPUT.to_owned(), Npy::open(path)?));
            for (name, place) in named.into_iter().chain(further) {
                if let Some(place) = place {
                    arrays.push((name, Npy::open(place)?));
                }
            }
        }
        ArrayDataset::new(path, arrays, options)
    }

    fn new(path: &Path, arrays: Vec<(String, Npy)>, options: &ArrayOptions) -> Result<Self, DataError> {
        let mut entries: Vec<Entry> = Vec::new();
        for (name, array) in arrays {
            let Some((&len, extents)) = array.shape().split_first().filter(|_| array.numel > 0) else {
                let reason = format!("has the shape {:?}: it must hold at least one sample", array.shape());
                return Err(array.corrupt(&reason));
            };
            if let Some(first) = entries.first().map(|entry| entry.array.shape()[0]).filter(|first| *first != len) {
                return Err(DataError::Mismatch(format!(
                    "{}: {first} samples but {len} entries of `{}`: each sample needs one",
                    path.display(),
                    name.escape_debug()
                )));
            }
            if entries.iter().any(|entry| entry.name == name) {
                return Err(DataError::Mismatch(format!("there are two inputs named `{}`", name.escape_debug())));
            }
            let extents = extents.to_vec();
            entries.push(Entry::new(name, array, &extents, options)?);
        }
        let len = entries[0].array.shape()[0];
        let mut features = Features::new(entries[0].dtype, entries[0].shape.clone());
        for entry in &entries[1..] {
            features = features.with(entry.name.clone(), entry.dtype, entry.shape.clone());
        }
        if let Some(entry) = entries.iter().find(|entry| entry.name == TARGET && entry.dtype == DType::U32) {
            let ignored = options.ignored.and_then(label_bits);
            features = features.with_labels(entry.classes()?, entry.shape.clone()).ignoring(ignored);
        }
        if let Some(entry) = entries.iter().find(|entry| entry.name == SAMPLE_WEIGHT) {
            entry.check_weights()?;
        }
        Ok(ArrayDataset { entries, features, len })
    }

    fn check_index(&self, index: usize) -> Result<(), DataError> {
        if index < self.len {
            return Ok(());
        }
        Err(DataError::Mismatch(format!("sample {index} of {} does not exist", self.len)))
    }
}

impl Entry {
    fn new(name: String, array: Npy, extents: &[usize], options: &ArrayOptions) -> Result<Self, DataError> {
        let numel = extents.iter().product();
        let mut dtype = match array.dtype() {
            DType::U8 | DType::U32 if options.floats => DType::F32,
            dtype => dtype,
        };
        let mut shape = extents.to_vec();
        let mut moved = None;
        match &*name {
            TARGET => {
                let is_class = options.task.map_or(array.is_integer(), |task| task == Task::Classification);
                dtype = if is_class { DType::U32 } else { DType::F32 };
                if is_class && !array.is_integer() {
                    return Err(array.corrupt("holds floats, and classes are integers: convert it with astype(int)"));
                }
                match &shape[..] {
                    [1] if is_class => shape.clear(),
                    [height, width, 1] if is_class && options.channels_last => shape = vec![*height, *width],
                    [] if !is_class => shape.push(1),
                    _ => {}
                }
            }
            SAMPLE_WEIGHT => {
                dtype = DType::F32;
                if numel != 1 {
                    return Err(array.corrupt("holds weights, of which each sample has one: its shape must be [n]"));
                }
                shape.clear();
            }
            name => {
                let is_input = name == INPUT;
                match (&shape[..], options.channels_last, options.add_channel) {
                    (&[height, width, channels], true, _) if is_input => {
                        shape = vec![channels, height, width];
                        moved = Some([height, width, channels]);
                    }
                    (&[height, width], _, true) if is_input => shape = vec![1, height, width],
                    (other, true, _) if is_input && !(options.add_channel && other.len() == 2) => {
                        let reason = format!("has samples of shape {other:?}, which have no channels to be moved");
                        return Err(array.corrupt(&reason));
                    }
                    ([], ..) => shape.push(1),
                    _ => {}
                }
            }
        }
        let ignored = options.ignored.filter(|_| name == TARGET);
        Ok(Entry { name, array, numel, dtype, shape: shape.into(), moved, ignored })
    }

    fn values(&self, index: usize) -> Result<Values, DataError> {
        let start = index * self.numel;
        let values = self.array.read_ignoring(start..start + self.numel, self.dtype, self.ignored)?;
        Ok(match (self.moved, values) {
            (Some(extents), Values::U8(values)) => Values::U8(channels_first(&values, extents)),
            (Some(extents), Values::U32(values)) => Values::U32(channels_first(&values, extents)),
            (Some(extents), Values::F32(values)) => Values::F32(channels_first(&values, extents)),
            (None, values) => values,
        })
    }

    /// Calls for all values, some at a time.
    fn pieces(&self, mut visit: impl FnMut(usize, Values) -> Result<(), DataError>) -> Result<(), DataError> {
        for start in (0..self.array.numel).step_by(PIECE) {
            let end = (start + PIECE).min(self.array.numel);
            visit(start, self.array.read_ignoring(start..end, self.dtype, self.ignored)?)?;
        }
        Ok(())
    }

    /// One more than the largest label.
    fn classes(&self) -> Result<u32, DataError> {
        let ignored = self.ignored.and_then(label_bits);
        let mut largest = None;
        self.pieces(|_, values| {
            if let Values::U32(labels) = values {
                largest = largest.max(labels.into_iter().filter(|label| Some(*label) != ignored).max());
            }
            Ok(())
        })?;
        if let Some(label) = largest.filter(|label| *label >= MOST_CLASSES) {
            let reason =
                format!("has the label {label}, and there are at most {MOST_CLASSES} classes: number them from 0");
            return Err(self.array.corrupt(&reason));
        }
        let classes = largest.map_or(Some(0), |label: u32| label.checked_add(1));
        classes.filter(|classes| *classes > 0).ok_or_else(|| {
            self.array.corrupt("has no label from which the number of classes follows: labels go from 0 to classes - 1")
        })
    }

    fn check_weights(&self) -> Result<(), DataError> {
        self.pieces(|start, values| {
            let Values::F32(weights) = values else { return Ok(()) };
            match weights.iter().position(|weight| !(weight.is_finite() && *weight >= 0.0)) {
                Some(at) => {
                    let reason =
                        format!("has weight {} at {}: it must be a number, 0 or more", weights[at], start + at);
                    Err(self.array.corrupt(&reason))
                }
                None => Ok(()),
            }
        })
    }
}

impl Dataset for ArrayDataset {
    fn len(&self) -> usize {
        self.len
    }

    fn get(&self, index: usize) -> Result<Sample, DataError> {
        self.check_index(index)?;
        let mut sample = Sample::default();
        for entry in &self.entries {
            sample.set(&entry.name, Array::new(entry.values(index)?, entry.shape.clone())?);
        }
        Ok(sample)
    }

    fn features(&self) -> Result<Features, DataError> {
        Ok(self.features.clone())
    }

    fn label(&self, index: usize) -> Result<Option<u32>, DataError> {
        self.check_index(index)?;
        let is_label = |entry: &&Entry| entry.name == TARGET && entry.dtype == DType::U32 && entry.shape.is_empty();
        match self.entries.iter().find(is_label).map(|entry| entry.values(index)).transpose()? {
            Some(Values::U32(labels)) => Ok(labels.first().copied()),
            _ => Ok(None),
        }
    }

    fn origin(&self, index: usize) -> String {
        let source = &self.entries[0].array.source;
        let member = source.member().map(|member| format!("{}[{index}]", member.escape_debug()));
        format!("{}: {}", source.file().path().display(), member.unwrap_or_else(|| format!("sample {index}")))
    }

    fn host_bytes(&self) -> u64 {
        self.entries.iter().map(|entry| entry.array.host_bytes()).sum()
    }

    /// The bytes of each array as they are in the file, one after the other, and their values before channels move.
    fn scratch_bytes(&self) -> u64 {
        let of = |entry: &Entry| entry.numel as u64 * (entry.array.header.size as u64 + entry.dtype.size_bytes());
        self.entries.iter().map(of).max().unwrap_or(0)
    }
}

fn channels_first<T: Copy>(values: &[T], [height, width, channels]: [usize; 3]) -> Vec<T> {
    (0..channels).flat_map(|channel| (0..height * width).map(move |pixel| values[pixel * channels + channel])).collect()
}

/// The array with the samples.
fn found(path: &Path, archive: &Npz, part: Option<&str>) -> Result<String, DataError> {
    let names: Vec<_> = archive.names().collect();
    if let Some(part) = part
        && !PARTS.iter().any(|words| words.contains(&part))
    {
        return Err(DataError::Mismatch(format!(
            "unknown part `{}`: choose one of train, test, val",
            part.escape_debug()
        )));
    }
    if let Some(name) = pick(&names, &INPUTS, part) {
        return Ok(name.to_owned());
    }
    if let ([one], None) = (&names[..], part) {
        return Ok((*one).to_owned());
    }
    let list = names[..names.len().min(20)].join(", ").escape_debug().to_string();
    let has_parts = PARTS.iter().any(|words| pick(&names, &INPUTS, words.first().copied()).is_some());
    Err(corrupt(
        path,
        match part {
            None if has_parts => format!("has several parts: choose one of them, such as `train` (arrays: {list})"),
            None => format!("does not say which array holds the samples: name one of {list}"),
            Some(part) => format!("has no samples for the part `{part}`: it holds {list}"),
        },
    ))
}

/// The array that has one of these names, with the part before or after it.
fn pick<'a>(names: &[&'a str], known: &[&str], part: Option<&str>) -> Option<&'a str> {
    let Some(part) = part else {
        return known.iter().find_map(|known| names.iter().copied().find(|name| name == known));
    };
    let words = PARTS.iter().find(|words| words.contains(&part))?;
    known.iter().find_map(|known| {
        let is_it = |name: &&&str| {
            words.iter().any(|word| {
                let name = name.to_ascii_lowercase();
                let known = known.to_ascii_lowercase();
                let (before, after) = (format!("{word}_{known}"), format!("{known}_{word}"));
                name == before || name == after || name.replace('_', "") == format!("{known}{word}")
            })
        };
        names.iter().find(is_it).copied()
    })
}

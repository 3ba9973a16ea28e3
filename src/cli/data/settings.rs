//! What data a model is trained on: `[data]` of run files, and the flags that are put over it.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tightfit::data::Resize;
use tightfit::data::augment::Augmentation;
use tightfit::data::table::{Missing, Task};
use tightfit::nn::Normalization;

use super::super::bytes::Size;
use super::super::run_file::{is_default, seed, set};
use super::super::values::count;

/// What files hold.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Four IDX files, as those of MNIST
    Idx,
    /// The binary files of CIFAR-10
    Cifar,
    /// A folder of images for each class, or a CSV file that lists images
    Images,
    /// Tar archives, as WebDataset writes them
    Tar,
    /// Arrays of NumPy: .npy, .npz
    Arrays,
    /// Rows of a CSV or Parquet file
    Table,
    /// Rows of a CSV file in the order of time
    Series,
    /// Characters of a text
    Text,
    /// Tokens: little-endian numbers of two bytes
    Tokens,
}

/// A part of the data: a share of it, or where it is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    Share(f64),
    Path(PathBuf),
}

/// One of several parts of equal size: `2/5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fold {
    pub(crate) number: usize,
    pub(crate) of: usize,
}

/// Height and width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImageSize(pub(crate) [usize; 2]);

/// How pixels become numbers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Normalize {
    /// From 0 to 1.
    Unit,
    /// As for torchvision's weights.
    /// Numbers from 0 to 255.
    Nothing,
    Imagenet,
    /// By means and deviations of the training part.
    Fit,
    /// By these.
    Given(Normalization),
}

/// What is done about a sample that cannot be read.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OnErrorName {
    Stop,
    Skip,
}

/// The only weighting there is.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Balanced {
    Balanced,
}

impl Part {
    /// The share that is held back, where it is one.
    pub(crate) fn share(&self) -> Option<f64> {
        match self {
            Part::Share(share) => Some(*share),
            Part::Path(_) => None,
        }
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<f64>() {
            Ok(share) if share > 0.0 && share < 1.0 => Ok(Part::Share(share)),
            Ok(_) => Err("a share is above 0 and below 1, such as 0.2".to_owned()),
            Err(_) if text.is_empty() => Err("it is empty: give a share such as 0.2, or a path".to_owned()),
            Err(_) => Ok(Part::Path(text.into())),
        }
    }
}

impl FromStr for Fold {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
        match parts {
            Some((number, of)) if of >= 2 && (1..=of).contains(&number) => Ok(Fold { number, of }),
            _ => Err("write which fold of how many, such as 1/5".to_owned()),
        }
    }
}

impl fmt::Display for Fold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl FromStr for ImageSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "write one number for both, or height and width, such as 224 or 240x320".to_owned();
        let extents: Vec<usize> =
            text.split(['x', 'X', '×']).map(str::parse).collect::<Result<_, _>>().map_err(|_| wrong())?;
        match extents[..] {
            [extent] if extent > 0 => Ok(ImageSize([extent, extent])),
            [height, width] if height > 0 && width > 0 => Ok(ImageSize([height, width])),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for ImageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.0[0], self.0[1])
    }
}

impl FromStr for Normalize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = |text: &str| -> Option<Vec<f64>> { text.split(',').map(|x| x.trim().parse().ok()).collect() };
        match text.trim() {
            "unit" => Ok(Normalize::Unit),
            "none" => Ok(Normalize::Nothing),
            "imagenet" => Ok(Normalize::Imagenet),
            "fit" => Ok(Normalize::Fit),
            text => {
                let given = text.split_once('/').and_then(|(mean, std)| Some((numbers(mean)?, numbers(std)?)));
                let Some((mean, std)) = given else {
                    return Err(
                        "write unit, none, imagenet, fit, or means and deviations, such as 0.5,0.5,0.5/0.25,0.25,0.25"
                            .to_owned(),
                    );
                };
                Normalization::new(mean, std).map(Normalize::Given).map_err(|error| error.to_string())
            }
        }
    }
}

impl fmt::Display for Normalize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined = |numbers: &[f64]| numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        match self {
            Normalize::Unit => f.write_str("unit"),
            Normalize::Nothing => f.write_str("none"),
            Normalize::Imagenet => f.write_str("imagenet"),
            Normalize::Fit => f.write_str("fit"),
            Normalize::Given(given) => write!(f, "{}/{}", joined(given.mean()), joined(given.std())),
        }
    }
}

macro_rules! as_text {
    ($($kind:ty),*) => {$(
        impl Serialize for $kind {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                text_or_number(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}

as_text! { Fold, ImageSize, Normalize }

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Part::Share(share) => serializer.serialize_f64(*share),
            Part::Path(path) => path.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text_or_number(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// What people write as a text or as a number: `size = 224`, `size = "240x320"`.
fn text_or_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a number or a text")]
    enum Either {
        Whole(i64),
        Number(f64),
        Text(String),
    }
    Ok(match Either::deserialize(deserializer)? {
        Either::Whole(number) => number.to_string(),
        Either::Number(number) => number.to_string(),
        Either::Text(text) => text,
    })
}

macro_rules! data_settings {
    ($($(#[$meta:meta])* $name:ident: $kind:ty),* $(,)?) => {
        /// `[data]`: what it is trained on, and in which order.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub(crate) struct DataTable {
            #[serde(skip_serializing_if = "is_default", alias = "folder", alias = "data")]
            pub(crate) path: Option<PathBuf>,
            #[serde(skip_serializing_if = "is_default")]
            pub(crate) batch: Option<NonZeroUsize>,
            #[serde(skip_serializing_if = "is_default")]
            pub(crate) drop_last: Option<bool>,
            #[serde(skip_serializing_if = "is_default", with = "seed")]
            pub(crate) seed: Option<u64>,
            #[serde(skip_serializing_if = "is_default")]
            pub(crate) validation: Option<bool>,
            $(#[serde(skip_serializing_if = "is_default")] pub(crate) $name: Option<$kind>,)*
            #[serde(skip_serializing_if = "is_default")]
            pub(crate) inputs: Vec<String>,
            #[serde(skip_serializing_if = "is_default", alias = "target")]
            pub(crate) targets: Vec<String>,
        }

        impl DataTable {
            /// Puts what others say over it.
            fn put_over(&mut self, flags: &DataFlags) {
                $(set(&mut self.$name, flags.$name.as_ref());)*
            }
        }

        #[derive(Args, Clone, Debug, Default)]
        struct DataFlags {
            $($(#[$meta])* $name: Option<$kind>,)*
        }
    };
}

data_settings! {
    /// What the files of --data are [default: what they look like]
    #[arg(long, value_name = "KIND", ignore_case = true)]
    kind: Kind,

    /// Folder of masks, one for each image of --images by its name: the class of each pixel
    #[arg(long, value_name = "DIR")]
    masks: PathBuf,

    /// Share of the samples that is held back for validation after each epoch, or where others are: 0.2, or a path like that of --data
    #[arg(long, value_name = "SHARE|PATH", value_parser = str::parse::<Part>, allow_negative_numbers = true)]
    val: Part,

    /// Share of the samples that is held back for the test at the end, or where others are
    #[arg(long, value_name = "SHARE|PATH", value_parser = str::parse::<Part>, allow_negative_numbers = true)]
    test: Part,

    /// Which part of how many is held back for validation: 1/5 to 5/5 for five-fold cross-validation
    #[arg(long, value_name = "K/N", value_parser = str::parse::<Fold>, conflicts_with = "val")]
    fold: Fold,

    /// Whether classes have the same shares in all parts [default: true, where samples have one class each]
    #[arg(long, value_name = "BOOL")]
    stratified: bool,

    /// Threads that read samples while the device computes [default: 0 for data in memory, else 2]
    #[arg(long, value_name = "N", value_parser = workers, allow_negative_numbers = true)]
    workers: usize,

    /// Batches that are read ahead at most [default: as many as threads]
    #[arg(long, value_name = "N", value_parser = count::<usize>, allow_negative_numbers = true)]
    prefetch: usize,

    /// What happens where a file or a row cannot be read: the run ends, or another sample takes its place [default: stop]
    #[arg(long, value_name = "WHAT", ignore_case = true)]
    on_error: OnErrorName,

    /// Bytes of the host's memory that data and batches may take [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = str::parse::<Size>, allow_hyphen_values = true)]
    host_budget: Size,

    /// Height and width to which images are resized: 224, or 240x320 [default: that of the model's input]
    #[arg(long, value_name = "SIZE", value_parser = str::parse::<ImageSize>, allow_hyphen_values = true)]
    size: ImageSize,

    /// How images of other proportions are resized: stretch, pad (or pad:114 for another value of the rest), crop [default: stretch]
    #[arg(long, value_name = "HOW", value_parser = resize)]
    resize: Resize,

    /// How pixels become numbers: unit (0 to 1), none (0 to 255), imagenet, fit (means and deviations of the training images), or means
    /// and deviations, such as 0.5,0.5,0.5/0.25,0.25,0.25 [default: unit; none where a model of Keras begins with Rescaling]
    #[arg(long, value_name = "HOW", value_parser = str::parse::<Normalize>)]
    normalize: Normalize,

    /// What a table's target is: a class or a number [default: a class where it is text, a number where it is one]
    #[arg(long, value_name = "TASK", ignore_case = true, value_parser = task)]
    task: Task,

    /// What happens where a table has no value: the run ends, the row is left out, or the mean takes its place [default: error]
    #[arg(long, value_name = "WHAT", value_parser = missing)]
    missing: Missing,

    /// Column of a table or list, or array, with the weights of samples
    #[arg(long, value_name = "NAME")]
    weight: String,

    /// Rows of a series that a model sees to forecast the next
    #[arg(long, value_name = "ROWS", value_parser = count::<usize>, allow_negative_numbers = true)]
    lookback: usize,

    /// Rows of a series that are forecast [default: 1]
    #[arg(long, value_name = "ROWS", value_parser = count::<usize>, allow_negative_numbers = true)]
    horizon: usize,

    /// Rows, or characters of a text, from the beginning of one sample to that of the next [default: 1 row, or all of a sample]
    #[arg(long, value_name = "N", value_parser = count::<usize>, allow_negative_numbers = true)]
    stride: usize,

    /// Weights of classes in the loss, by which all count alike
    #[arg(long, value_name = "HOW", ignore_case = true)]
    class_weights: Balanced,

    /// Draws samples so that all classes come as often, some samples several times in an epoch
    #[arg(long, value_name = "HOW", ignore_case = true)]
    sampler: Balanced,
}

fn resize(text: &str) -> Result<Resize, String> {
    text.parse::<Resize>().map_err(|error| error.to_string())
}

fn task(text: &str) -> Result<Task, String> {
    serde_json::from_value(text.to_lowercase().into()).map_err(|_| "write classification or regression".to_owned())
}

fn missing(text: &str) -> Result<Missing, String> {
    match &*text.to_lowercase() {
        "error" => Ok(Missing::Error),
        "drop" | "drop_rows" => Ok(Missing::DropRows),
        "fill" => Ok(Missing::Fill),
        _ => Err("write error, drop or fill".to_owned()),
    }
}

/// A number of threads.
fn workers(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|workers| *workers <= 256)
        .ok_or_else(|| "it must be a whole number from 0 to 256".to_owned())
}

/// Flags of the data, for all commands that read it.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Data")]
pub(crate) struct DataArgs {
    /// Folder or file with the data: IDX files, a folder of images for each class, tar, CSV, npy, npz, txt, tokens [default:
    /// data/mnist-full if `tightfit data mnist` fetched it, else data/mnist]
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,

    /// Folder with images in a folder for each class (or with those of --masks), or a CSV file that lists them: as --data with --kind
    /// images
    #[arg(long, value_name = "DIR|CSV", conflicts_with_all = ["data", "kind"])]
    images: Option<PathBuf>,

    /// Columns of a table or series that a model sees, separated by commas; or the array of a npz file [default: all that are no target]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    inputs: Vec<String>,

    /// Columns that a model is to say, separated by commas; or the array of a npz file [default: of a series, its inputs]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    target: Vec<String>,

    #[command(flatten)]
    flags: DataFlags,

    /// Changes images at random: flip,rotation=10,zoom=0.1,shift=0.1,crop=0.6,brightness=0.2,erasing=0.25,mixup=0.2 and others
    #[arg(long, value_name = "SETTINGS", value_parser = augmentation)]
    augment: Option<Augmentation>,
}

fn augmentation(text: &str) -> Result<Augmentation, String> {
    let augmentation: Augmentation = text.parse().map_err(|error: tightfit::error::DataError| error.to_string())?;
    augmentation.check().map_err(|error| error.to_string())?;
    Ok(augmentation)
}

impl DataArgs {
    /// Puts what flags say over what a run file says.
    pub(crate) fn put_over(&self, data: &mut DataTable, augment: &mut Option<Augmentation>) {
        let path = self.data.as_ref().or(self.images.as_ref());
        set(&mut data.path, path);
        if self.images.is_some() {
            data.kind = Some(Kind::Images);
        }
        data.put_over(&self.flags);
        for (place, given) in [(&mut data.inputs, &self.inputs), (&mut data.targets, &self.target)] {
            if !given.is_empty() {
                place.clone_from(given);
            }
        }
        set(augment, self.augment.as_ref());
    }
}

impl DataTable {
    /// All paths of files in it.
    pub(crate) fn paths_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let parts = [&mut self.val, &mut self.test].into_iter().flatten().filter_map(|part| match part {
            Part::Path(path) => Some(path),
            Part::Share(_) => None,
        });
        self.path.iter_mut().chain(&mut self.masks).chain(parts)
    }
}

/// What files look like.
pub(crate) fn kind_of(path: &Path, data: &DataTable) -> Kind {
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase()).unwrap_or_default();
    if data.masks.is_some() {
        return Kind::Images;
    }
    match &*extension {
        "npy" | "npz" => Kind::Arrays,
        "csv" | "tsv" if data.lookback.is_some() => Kind::Series,
        "csv" | "tsv" | "parquet" => Kind::Table,
        "txt" | "md" | "text" => Kind::Text,
        "tar" => Kind::Tar,
        "bin" | "tokens" => Kind::Tokens,
        _ if path.is_dir() => kind_of_folder(path),
        _ => Kind::Idx,
    }
}

fn kind_of_folder(path: &Path) -> Kind {
    let names = std::fs::read_dir(path).into_iter().flatten().flatten();
    let (mut has_folders, mut has_tar, mut has_images) = (false, false, false);
    for entry in names {
        let name = entry.file_name().to_string_lossy().to_lowercase();
        if name.contains("-ubyte") || name.contains("-idx") {
            return Kind::Idx;
        }
        if name.starts_with("data_batch") || name == "cifar-10-batches-bin" {
            return Kind::Cifar;
        }
        has_tar |= name.ends_with(".tar");
        has_images |= [".png", ".jpg", ".jpeg"].iter().any(|end| name.ends_with(end));
        has_folders |= !name.starts_with('.') && entry.path().is_dir();
    }
    match () {
        () if has_tar => Kind::Tar,
        () if has_folders || has_images => Kind::Images,
        () => Kind::Idx,
    }
}

//! Tar archives in WebDataset's layout.

mod index;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::image::{ImageOptions, MaskOptions, Masks, Names, Paths, Reader, check_index};
use super::{Dataset, Features, Sample, corrupt, io_error};
use crate::error::DataError;
use crate::files::Positioned;
use crate::tensor::format_bytes;
use index::{Found, Member};

/// Where archives come from, for messages.
const HINT: &str = "give tar archives, or a folder of them";
/// Labels are shorter than this, descriptions in JSON than that.
const MAX_LABEL_BYTES: u32 = 256;
const MAX_JSON_BYTES: u32 = 1 << 20;

/// What samples of archives have, besides the image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct TarOptions {
    /// What a model should answer.
    pub target: TarTarget,
    /// Names of the classes in the order of their labels, such as those of the training. Otherwise those that are found, sorted.
    pub class_names: Option<Vec<String>>,
    /// What the values of masks mean.
    pub masks: MaskOptions,
}

/// What a model should answer for an image in an archive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TarTarget {
    /// What the first sample has: a mask (`seg.png`, `mask.png`), an integer (`cls`), or the name of a class (`txt`).
    #[default]
    Found,
    /// The integer or the name of a class that `json` has under this key.
    Json(String),
    /// Nothing, for predictions.
    None,
}

/// Images in tar archives, as WebDataset writes them.
///
/// ```text
/// train-000.tar:  0001.jpg  0001.cls  0002.jpg  0002.cls  …
/// train-001.tar:  …
/// ```
///
/// Members that follow each other and have the same name up to the first dot are one sample: `png`, `jpg` or `jpeg` is the image; `cls`
/// an integer, `txt` the name of a class, `json` a description with either under a key, `seg.png` or `mask.png` a mask. Others are left
/// out. Archives are not compressed. Their headers and labels are read once; then samples are read by their place, in any order, so they
/// are shuffled as a whole, and a training is resumed in the middle.
///
/// ```
/// use tightfit::data::{Dataset, ImageOptions, TarOptions, TarShards};
///
/// let folder = tempfile::tempdir()?;
/// let mut image = std::io::Cursor::new(Vec::new());
/// image::GrayImage::new(8, 6).write_to(&mut image, image::ImageFormat::Png)?;
/// let mut tar = tar::Builder::new(std::fs::File::create(folder.path().join("train-0.tar"))?);
/// for (name, bytes) in [("0.png", &image.get_ref()[..]), ("0.cls", b"3")] {
///     let mut header = tar::Header::new_gnu();
///     header.set_size(bytes.len() as u64);
///     header.set_cksum();
///     tar.append_data(&mut header, name, bytes)?;
/// }
/// tar.finish()?;
/// let images = TarShards::open(&[folder.path()], &TarOptions::default(), ImageOptions::default())?;
/// assert_eq!((images.len(), images.label(0)?, images.features()?.classes()), (1, Some(3), Some(4)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct TarShards {
    reader: Reader,
    shards: Vec<PathBuf>,
    /// Names of the samples, each below its archive.
    keys: Paths,
    images: Vec<Member>,
    target: Target,
    left_out: usize,
}

#[derive(Clone, Debug, PartialEq)]
enum Target {
    Labels { labels: Vec<u32>, classes: u32, names: Vec<String> },
    Masks(Vec<Member>, Masks),
    None,
}

/// What kind of target all samples have.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind<'a> {
    Mask,
    Integer,
    Name,
    Json(&'a str),
    None,
}

impl TarShards {
    /// Reads the headers of archives, or of all in folders, in their order.
    ///
    /// # Errors
    /// Where an archive cannot be read, is compressed or damaged; where a sample has no image, or not the target that the first has.
    pub fn open(paths: &[impl AsRef<Path>], tar: &TarOptions, options: ImageOptions) -> Result<Self, DataError> {
        let mut shards = Vec::new();
        for path in paths.iter().map(AsRef::as_ref) {
            shards.extend(if path.is_dir() { index::archives_in(path)? } else { vec![path.to_owned()] });
        }
        let (mut keys, mut images, mut masks, mut names) = (Paths::default(), Vec::new(), Vec::new(), Names::default());
        let (mut left_out, mut kind) = (0, None);
        for (number, shard) in shards.iter().enumerate() {
            let file = Positioned::open(shard, HINT)?;
            keys.enter(shard.clone());
            left_out += index::read(&file, number as u32, options.file_bytes(), |found| {
                let kind = match kind {
                    Some(kind) => kind,
                    None => *kind.insert(found.kind(&tar.target, shard)?),
                };
                let missing =
                    |what: &str| corrupt(&shard.join(&found.key), format!("has no {what}, which each sample needs"));
                images.push(found.image.ok_or_else(|| missing("image (png, jpg or jpeg)"))?);
                keys.add(&found.key)?;
                let text = |member: Option<Member>, what, most| {
                    let member = member.ok_or_else(|| missing(what))?;
                    label_text(&file, member, &shard.join(&found.key), what, most)
                };
                match kind {
                    Kind::Mask => masks.push(found.mask.ok_or_else(|| missing("mask (seg.png or mask.png)"))?),
                    Kind::Integer => {
                        let label = text(found.label, "cls", MAX_LABEL_BYTES)?;
                        if label.trim().parse::<u32>().is_err() {
                            let reason = format!(
                                "has the label `{}` in `cls`: it must be an integer from 0",
                                label.trim().escape_debug()
                            );
                            return Err(corrupt(&shard.join(&found.key), reason));
                        }
                        names.add(label.trim());
                    }
                    Kind::Name => names.add(text(found.name, "txt", MAX_LABEL_BYTES)?.trim()),
                    Kind::Json(key) => {
                        let text = text(found.json, "json", MAX_JSON_BYTES)?;
                        names.add(&of_json(&text, key).map_err(|reason| corrupt(&shard.join(&found.key), reason))?);
                    }
                    Kind::None => {}
                }
                Ok(())
            })?;
        }
        if images.is_empty() {
            let shown = shards.first().map_or(String::new(), |shard| format!("{}: ", shard.display()));
            return Err(DataError::Mismatch(format!("{shown}there are no images (png, jpg or jpeg) to read: {HINT}")));
        }
        images.shrink_to_fit();
        keys.shrink();
        let first = keys.get(0);
        let reader = Reader::of_bytes(options, &first, || images[0].bytes(&shards))?;
        let target = match kind {
            Some(Kind::Mask) => {
                let read = |index: usize| Ok((Member::bytes(masks[index], &shards)?, mask_name(&keys.get(index))));
                let meaning = Masks::new(tar.masks.clone(), masks.len(), reader.max_pixels(), read)?;
                Target::Masks(masks, meaning)
            }
            Some(Kind::None) | None => Target::None,
            Some(_) => {
                let error = |index: usize, reason: String| corrupt(&keys.get(index), reason);
                let (labels, classes, names) = names.labels(tar.class_names.as_deref(), error)?;
                Target::Labels { labels, classes, names }
            }
        };
        Ok(TarShards { reader, shards, keys, images, target, left_out })
    }

    /// Names of the classes, in the order of their labels; none where labels are integers, or there are none.
    pub fn class_names(&self) -> &[String] {
        match &self.target {
            Target::Labels { names, .. } => names,
            Target::Masks(_, masks) => masks.class_names(),
            Target::None => &[],
        }
    }

    /// The archives, in order.
    pub fn shards(&self) -> &[PathBuf] {
        &self.shards
    }

    /// How images are read, with the size that all have.
    pub fn options(&self) -> ImageOptions {
        self.reader.options()
    }

    /// What masks mean, with the classes that were found; `None` where there are no masks.
    pub fn mask_options(&self) -> Option<&MaskOptions> {
        match &self.target {
            Target::Masks(_, masks) => Some(masks.options()),
            Target::Labels { .. } | Target::None => None,
        }
    }

    /// How many members were left out, because they belong to no sample or are of another kind.
    pub fn left_out(&self) -> usize {
        self.left_out
    }
}

impl Found {
    /// What kind of target this sample has.
    fn kind<'a>(&self, target: &'a TarTarget, shard: &Path) -> Result<Kind<'a>, DataError> {
        Ok(match target {
            TarTarget::None => Kind::None,
            TarTarget::Json(key) => Kind::Json(key),
            TarTarget::Found if self.mask.is_some() => Kind::Mask,
            TarTarget::Found if self.label.is_some() => Kind::Integer,
            TarTarget::Found if self.name.is_some() => Kind::Name,
            TarTarget::Found => {
                return Err(corrupt(
                    &shard.join(&self.key),
                    "has no label (cls, txt) and no mask (seg.png, mask.png): say which key of its json is the label, or read \
                     images without targets",
                ));
            }
        })
    }
}

impl Member {
    /// What it holds.
    fn bytes(self, shards: &[PathBuf]) -> Result<Vec<u8>, DataError> {
        // Archives are not kept open: there may be more of them than files that a process may have open.
        Positioned::open(&shards[self.shard as usize], HINT)?.bytes_at(self.offset, self.bytes as usize)
    }
}

fn mask_name(key: &Path) -> PathBuf {
    let mut name = key.as_os_str().to_owned();
    name.push(" (mask)");
    name.into()
}

/// A text that says the label of a sample.
fn label_text(file: &Positioned, member: Member, path: &Path, what: &str, most: u32) -> Result<String, DataError> {
    if member.bytes > most {
        let found = format_bytes(u64::from(member.bytes));
        return Err(corrupt(path, format!("has {found} in `{what}`, which are too many for a label")));
    }
    String::from_utf8(file.bytes_at(member.offset, member.bytes as usize)?)
        .map_err(|_| corrupt(path, format!("has a `{what}` that is not UTF-8: write it as UTF-8")))
}

fn of_json(text: &str, key: &str) -> Result<String, String> {
    let value: serde_json::Value =
        serde_json::from_str(text).map_err(|error| format!("has a `json` that is not JSON ({error})"))?;
    match value.get(key) {
        Some(serde_json::Value::String(name)) => Ok(name.clone()),
        Some(serde_json::Value::Number(number)) if number.is_u64() => Ok(number.to_string()),
        Some(_) => Err(format!("has a `{key}` in its `json` that is neither a text nor an integer from 0")),
        None => Err(format!("has no `{key}` in its `json`, which was said to be the label")),
    }
}

impl Dataset for TarShards {
    fn len(&self) -> usize {
        self.images.len()
    }

    fn get(&self, index: usize) -> Result<Sample, DataError> {
        check_index(index, self.len())?;
        let path = self.keys.get(index);
        let bytes = self.images[index].bytes(&self.shards)?;
        match &self.target {
            Target::Labels { labels, .. } => {
                Ok(Sample::new(self.reader.bytes(&bytes, &path)?).with_target(labels[index]))
            }
            Target::Masks(masks, meaning) => meaning
                .sample(&self.reader, (&bytes, &path), || Ok((masks[index].bytes(&self.shards)?, mask_name(&path)))),
            Target::None => Ok(Sample::new(self.reader.bytes(&bytes, &path)?)),
        }
    }

    fn features(&self) -> Result<Features, DataError> {
        let features = self.reader.features();
        Ok(match &self.target {
            Target::Labels { classes, names, .. } if names.is_empty() => features.with_labels(*classes, []),
            Target::Labels { classes, names, .. } => features.with_labels(*classes, []).with_class_names(names),
            Target::Masks(_, masks) => masks.put_in(features, self.reader.size()),
            Target::None => features,
        })
    }

    fn label(&self, index: usize) -> Result<Option<u32>, DataError> {
        check_index(index, self.len())?;
        Ok(match &self.target {
            Target::Labels { labels, .. } => Some(labels[index]),
            Target::Masks(..) | Target::None => None,
        })
    }

    fn origin(&self, index: usize) -> String {
        if index < self.len() { self.keys.get(index).display().to_string() } else { format!("sample {index}") }
    }

    fn host_bytes(&self) -> u64 {
        let targets = match &self.target {
            Target::Labels { labels, .. } => size_of_val(&labels[..]),
            Target::Masks(masks, _) => size_of_val(&masks[..]),
            Target::None => 0,
        };
        self.keys.host_bytes() + (targets + size_of_val(&self.images[..])) as u64
    }

    fn scratch_bytes(&self) -> u64 {
        self.reader.scratch_bytes()
    }
}

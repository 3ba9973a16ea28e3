//! What is in a folder or a list of images.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use serde::{Deserialize, Serialize};

use super::decode::{self, Header};
use super::folder::{self, Found};
use super::list::{ListOptions, Rows, Targets};
use super::options::ImageOptions;
use super::paths::{Paths, list, none_in, walk};
use crate::error::DataError;
use crate::tensor::format_bytes;

/// Broken files that are named; all are counted.
const MAX_NAMED: usize = 1000;
/// Broken files in the table.
const SHOWN: usize = 10;

/// How images are looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct InspectOptions {
    /// Decodes every file, which finds damage behind the header and takes as long as an epoch.
    pub decode: bool,
    /// Threads that read.
    pub threads: usize,
    /// How they would be read.
    pub images: ImageOptions,
}

impl Default for InspectOptions {
    /// Headers alone, by as many threads as the machine has, up to 8.
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, |count| count.get().min(8));
        InspectOptions { decode: false, threads, images: ImageOptions::default() }
    }
}

/// What was found in a folder or a list of images. Its text is a table; as JSON it has the names of its fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inspection {
    /// Files that are images by their names or in the list.
    pub images: usize,
    /// Images of each class, in the order of the labels; empty where there are no classes.
    pub classes: Vec<(String, usize)>,
    /// Heights, of images that are not broken; `None` where all are.
    pub heights: Option<Extents>,
    /// Widths.
    pub widths: Option<Extents>,
    /// The most frequent height and width, and how many images have it.
    pub most_frequent: Option<([usize; 2], usize)>,
    /// How many heights and widths there are.
    pub different_sizes: usize,
    /// Images of each format: PNG, JPEG.
    pub formats: BTreeMap<String, usize>,
    /// Images of each kind of color, such as `grey` or `color with alpha`.
    pub colors: BTreeMap<String, usize>,
    /// Images that their EXIF orientation turns or mirrors.
    pub turned: usize,
    /// How many files cannot be read.
    pub broken_count: usize,
    /// The first 1,000 of them, and why.
    pub broken: Vec<BrokenFile>,
    /// Files that are hidden, or no images by their names.
    pub left_out: usize,
    /// Bytes of all images on the disk.
    pub disk_bytes: u64,
    /// Bytes of all images that are not broken, as samples.
    pub memory_bytes: u64,
}

/// Extents of images in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extents {
    /// The smallest.
    pub min: usize,
    /// As many are larger as are smaller.
    pub median: usize,
    /// The largest.
    pub max: usize,
}

/// A file that cannot be read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BrokenFile {
    /// The file.
    pub path: PathBuf,
    /// One sentence, with the file.
    pub reason: String,
}

/// Looks at all images of a folder: with a folder for each class, or without classes. `progress` is called with how many are done and
/// how many there are.
///
/// # Errors
/// Where the folder cannot be read or has no images. Broken files are no error.
pub fn inspect(
    dir: impl AsRef<Path>,
    options: &InspectOptions,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Inspection, DataError> {
    let dir = dir.as_ref();
    let has_folders = !list(dir)?.folders.is_empty();
    let Found { paths, labels, class_names, left_out } = if has_folders {
        folder::find(dir)?
    } else {
        let mut paths = Paths::default();
        let left_out = walk(dir, &mut paths)?;
        Found { paths, labels: Vec::new(), class_names: Vec::new(), left_out }
    };
    if paths.len() == 0 {
        return Err(none_in(dir));
    }
    let mut classes: Vec<_> = class_names.into_iter().map(|name| (name, 0)).collect();
    if !classes.is_empty() {
        (0..paths.len()).for_each(|index| classes[labels[paths.folder(index)] as usize].1 += 1);
    }
    let mut found = look(&paths, options, progress)?;
    (found.classes, found.left_out) = (classes, left_out);
    Ok(found)
}

/// Looks at all images of a CSV file, as [`ImageList`](super::ImageList) reads it.
///
/// # Errors
/// Where the list cannot be read. Files that are missing or broken are no error.
pub fn inspect_list(
    csv: impl AsRef<Path>,
    list: &ListOptions,
    options: &InspectOptions,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Inspection, DataError> {
    let rows = Rows::read(csv.as_ref(), list)?;
    let mut found = look(&rows.paths, options, progress)?;
    if let Targets::Labels { labels, classes, names } = &rows.targets {
        let name = |class: u32| names.get(class as usize).cloned().unwrap_or_else(|| class.to_string());
        found.classes = (0..*classes).map(|class| (name(class), 0)).collect();
        labels.iter().for_each(|label| found.classes[*label as usize].1 += 1);
    }
    Ok(found)
}

/// What one file is.
type Looked = Result<(Header, u64), DataError>;

fn look_at(path: &Path, options: &InspectOptions) -> Looked {
    let (header, length) = decode::read_header(path, &options.images)?;
    if options.decode {
        let bytes = decode::read_file(path, &options.images)?;
        decode::pixels(&bytes, &options.images).map_err(|reason| crate::data::corrupt(path, reason))?;
    }
    Ok((header, length))
}

fn look(
    paths: &Paths,
    options: &InspectOptions,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Inspection, DataError> {
    options.images.check()?;
    let count = paths.len();
    let next = AtomicUsize::new(0);
    let mut all = Summary::default();
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::sync_channel::<(usize, Looked)>(1024);
        for _ in 0..options.threads.clamp(1, count.max(1)) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    // The receiver lives until all senders are gone.
                    if index >= count || sender.send((index, look_at(&paths.get(index), options))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (done, (index, looked)) in receiver.iter().enumerate() {
            all.add(index, looked);
            progress(done + 1, count);
        }
    });
    Ok(all.finish(paths, options))
}

/// What is counted, in whatever order files come.
#[derive(Default)]
struct Summary {
    sizes: BTreeMap<[usize; 2], usize>,
    formats: BTreeMap<String, usize>,
    colors: BTreeMap<String, usize>,
    turned: usize,
    broken: BTreeMap<usize, String>,
    broken_count: usize,
    disk_bytes: u64,
}

impl Summary {
    fn add(&mut self, index: usize, looked: Looked) {
        match looked {
            Ok((header, length)) => {
                *self.sizes.entry([header.height, header.width]).or_default() += 1;
                *self.formats.entry(header.format.to_owned()).or_default() += 1;
                *self.colors.entry(header.color.to_owned()).or_default() += 1;
                self.turned += usize::from(header.is_turned);
                self.disk_bytes += length;
            }
            Err(error) => {
                self.broken_count += 1;
                self.broken.insert(index, error.to_string());
                // The first are named, whichever came first.
                if self.broken.len() > MAX_NAMED {
                    self.broken.pop_last();
                }
            }
        }
    }

    fn finish(self, paths: &Paths, options: &InspectOptions) -> Inspection {
        let Summary { sizes, formats, colors, turned, broken, broken_count, disk_bytes } = self;
        let extents = |axis: usize| {
            let mut counts = BTreeMap::new();
            sizes.iter().for_each(|(size, count)| *counts.entry(size[axis]).or_insert(0) += count);
            let middle = counts.values().sum::<usize>().div_ceil(2);
            let mut seen = 0;
            let median = counts.iter().find(|(_, count)| {
                seen += **count;
                seen >= middle
            });
            Some(Extents { min: *counts.first_key_value()?.0, median: *median?.0, max: *counts.last_key_value()?.0 })
        };
        let pixels = sizes.iter().map(|(size, count)| {
            let [height, width] = options.images.size.unwrap_or(*size).map(|extent| extent as u64);
            height * width * *count as u64
        });
        let named = |(index, reason)| BrokenFile { path: paths.get(index), reason };
        Inspection {
            images: paths.len(),
            classes: Vec::new(),
            heights: extents(0),
            widths: extents(1),
            // Of several, the smallest.
            most_frequent: sizes.iter().rev().max_by_key(|(_, count)| **count).map(|(size, count)| (*size, *count)),
            different_sizes: sizes.len(),
            formats,
            colors,
            turned,
            broken_count,
            broken: broken.into_iter().map(named).collect(),
            left_out: 0,
            disk_bytes,
            memory_bytes: pixels.sum::<u64>() * options.images.channels as u64,
        }
    }
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |f: &mut fmt::Formatter<'_>, name: &str, text: String| writeln!(f, "{name:<13} {text}");
        let on_disk = format_bytes(self.disk_bytes);
        row(f, "images", format!("{}, {on_disk} on disk, {} in memory", self.images, format_bytes(self.memory_bytes)))?;
        if let (Some(heights), Some(widths), Some(([height, width], count))) =
            (self.heights, self.widths, self.most_frequent)
        {
            if self.different_sizes == 1 {
                row(f, "size", format!("{height} x {width} (height x width)"))?;
            } else {
                let extents = |Extents { min, median, max }: Extents| format!("{min} to {max}, median {median}");
                row(f, "heights", extents(heights))?;
                row(f, "widths", extents(widths))?;
                let sizes = self.different_sizes;
                row(f, "sizes", format!("{sizes}, most frequent {height} x {width} (height x width): {count}"))?;
            }
        }
        for (name, counts) in [("formats", &self.formats), ("colors", &self.colors)] {
            let counts: Vec<_> = counts.iter().map(|(kind, count)| format!("{kind}: {count}")).collect();
            if !counts.is_empty() {
                row(f, name, counts.join(", "))?;
            }
        }
        if self.turned > 0 {
            row(f, "turned", format!("{} by their EXIF orientation", self.turned))?;
        }
        if self.left_out > 0 {
            row(f, "left out", format!("{}, hidden or no images by their names", self.left_out))?;
        }
        if !self.classes.is_empty() {
            row(f, "classes", self.classes.len().to_string())?;
            let width = self.classes.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
            for (name, count) in &self.classes {
                writeln!(f, "  {name:<width$}  {count}")?;
            }
        }
        row(f, "broken", self.broken_count.to_string())?;
        for BrokenFile { reason, .. } in self.broken.iter().take(SHOWN) {
            writeln!(f, "  {reason}")?;
        }
        if self.broken_count > SHOWN {
            writeln!(f, "  and {} more", self.broken_count - SHOWN)?;
        }
        Ok(())
    }
}

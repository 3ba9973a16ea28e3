//! Masks: a class for each pixel.

use std::collections::BTreeSet;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use png::{BitDepth, ColorType, Decoder, Limits, Transformations};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::decode::check_pixels;
use super::reader::Reader;
use super::resize::Geometry;
use crate::data::{Array, Features, Sample, Values, corrupt};
use crate::error::DataError;
use crate::tensor::room;

/// Masks that are looked at where the number of classes is known.
const FIRST: usize = 16;
/// What a mask of two classes often has: black and white.
const BLACK_AND_WHITE: [u16; 2] = [0, 255];
/// What masks have where there is no class, unless they say otherwise.
const VOID: u16 = 255;
/// What the decoder may take besides pixels.
const MARGIN_BYTES: usize = 32 << 20;

/// What the values of a mask's pixels mean. It is saved with a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct MaskOptions {
    /// The value of each class, in the order of their labels, such as `[0, 255]`. Without it, values are the labels; where black and
    /// white alone (0 and 255) are found, they are classes 0 and 1.
    pub values: Option<Vec<u16>>,
    /// A value that is no class: nothing is asked of the model there, and the loss must ignore it. Where all masks are read to see, and
    /// 255 stands beside classes below 127, it is that.
    pub ignored: Option<u16>,
    /// How many classes there are. Without it, and without `values` or `class_names`, all masks are read at the beginning to see.
    pub classes: Option<u32>,
    /// Names of the classes.
    pub class_names: Option<Vec<String>>,
}

/// What masks mean, all of it known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::data) struct Masks {
    options: MaskOptions,
    classes: u32,
    max_pixels: u64,
}

impl Masks {
    /// `read` reads a mask of `count`, and says what it is called.
    pub(in crate::data) fn new(
        options: MaskOptions,
        count: usize,
        max_pixels: u64,
        read: impl Fn(usize) -> Result<(Vec<u8>, PathBuf), DataError> + Sync,
    ) -> Result<Self, DataError> {
        let mut options = options;
        let given = [
            options.classes.map(|classes| classes as usize),
            options.values.as_ref().map(Vec::len),
            options.class_names.as_ref().map(Vec::len),
        ];
        let mut given = given.into_iter().flatten();
        let mut classes = given.next();
        if let Some((one, other)) = given.find_map(|other| classes.filter(|one| *one != other).map(|one| (one, other)))
        {
            return Err(DataError::Mismatch(format!(
                "masks cannot have {one} and {other} classes: `classes`, `values` and `class-names` must be of as many"
            )));
        }
        if options.values.is_none() {
            let looked_at = if classes.is_some() { count.min(FIRST) } else { count };
            let values = |index| -> Result<_, DataError> {
                let (bytes, path) = read(index)?;
                let (values, _) = labels(&bytes, max_pixels).map_err(|reason| corrupt(&path, reason))?;
                let mut seen = [0u64; 1024];
                values.iter().for_each(|value| seen[*value as usize / 64] |= 1 << (value % 64));
                let has = |value: &u16| seen[usize::from(*value) / 64] >> (value % 64) & 1 == 1;
                Ok((0..=u16::MAX).filter(has).collect::<BTreeSet<_>>())
            };
            let both = |one: BTreeSet<u16>, other: BTreeSet<u16>| Ok(one.into_iter().chain(other).collect());
            let mut found: BTreeSet<u16> =
                (0..looked_at).into_par_iter().map(values).try_reduce(BTreeSet::new, both)?;
            options.ignored.inspect(|ignored| _ = found.remove(ignored));
            let is_two = classes.is_none_or(|classes| classes == 2);
            if is_two && found.contains(&255) && found.iter().all(|value| BLACK_AND_WHITE.contains(value)) {
                log::info!("masks are black and white alone: 0 is class 0, 255 is class 1");
                options.values = Some(BLACK_AND_WHITE.to_vec());
                classes = Some(2);
            } else if classes.is_none() {
                // As in Pascal VOC: classes from 0 on, and 255 where there is none.
                let others = || found.iter().filter(|value| **value != VOID);
                let is_void = |largest: u16| found.contains(&VOID) && largest < VOID / 2;
                if options.ignored.is_none() && others().max().is_some_and(|largest| is_void(*largest)) {
                    log::info!("masks have {VOID} beside classes from 0 on: nothing is asked of a model there");
                    options.ignored = Some(VOID);
                    found.remove(&VOID);
                }
                classes = Some(found.last().map_or(1, |largest| usize::from(*largest) + 1));
            }
        }
        let classes = classes.unwrap_or(1).clamp(1, 1 << 16) as u32;
        options.classes = Some(classes);
        Ok(Masks { options, classes, max_pixels })
    }

    /// The options, with what was found.
    pub(in crate::data) fn options(&self) -> &MaskOptions {
        &self.options
    }

    pub(in crate::data) fn class_names(&self) -> &[String] {
        self.options.class_names.as_deref().unwrap_or_default()
    }

    /// The label of pixels without a class: their value where that is no label of a class, or 255, or the first that is none.
    fn ignored(&self) -> Option<u32> {
        let value = u32::from(self.options.ignored?);
        Some(if self.options.values.is_none() || value >= self.classes { value } else { self.classes.max(255) })
    }

    /// An image and the mask that is read for it, once the image is no longer in memory.
    pub(in crate::data) fn sample(
        &self,
        reader: &Reader,
        (bytes, path): (&[u8], &Path),
        mask: impl FnOnce() -> Result<(Vec<u8>, PathBuf), DataError>,
    ) -> Result<Sample, DataError> {
        let (image, from, geometry) = reader.with_geometry(bytes, path)?;
        let (bytes, path) = mask()?;
        Ok(Sample::new(image).with_target(self.read(&bytes, &path, from, &geometry, reader.size())?))
    }

    /// Adds what the targets are to what samples have.
    pub(in crate::data) fn put_in(&self, features: Features, size: [usize; 2]) -> Features {
        let features = features.with_labels(self.classes, size).ignoring(self.ignored());
        match &self.options.class_names {
            Some(names) => features.with_class_names(names),
            None => features,
        }
    }

    /// The labels of a mask, which goes where its image went.
    fn read(
        &self,
        bytes: &[u8],
        path: &Path,
        image: [usize; 2],
        geometry: &Geometry,
        size: [usize; 2],
    ) -> Result<Array, DataError> {
        let (mut labels, found) = labels(bytes, self.max_pixels).map_err(|reason| corrupt(path, reason))?;
        if found != image {
            return Err(corrupt(
                path,
                format!(
                    "is a mask of {} x {}, but its image is {} x {} (height x width): both must be of one size",
                    found[0], found[1], image[0], image[1]
                ),
            ));
        }
        let ignored = self.ignored();
        let label = |value: u32| match &self.options.values {
            _ if self.options.ignored.map(u32::from) == Some(value) => ignored,
            Some(values) => values.iter().position(|known| u32::from(*known) == value).map(|label| label as u32),
            None => Some(value).filter(|value| *value < self.classes),
        };
        // Neighbours are mostly alike.
        let mut last = None;
        for (at, place) in labels.iter_mut().enumerate() {
            match last {
                Some((value, label)) if value == *place => *place = label,
                _ => {
                    let value = *place;
                    *place = label(value).ok_or_else(|| corrupt(path, self.unknown(value, at, found[1])))?;
                    last = Some((value, *place));
                }
            }
        }
        let labels =
            if found == size { labels } else { geometry.nearest(&labels, found[1], ignored.unwrap_or_default())? };
        Array::new(Values::U32(labels), size)
    }

    fn unknown(&self, value: u32, at: usize, width: usize) -> String {
        let known = match &self.options.values {
            Some(values) => format!("the values of the classes are {values:?}"),
            None => format!("with {} classes they go from 0 to {}", self.classes, self.classes - 1),
        };
        format!(
            "has the value {value} in row {}, column {}, but {known}: name all values, or the one that is ignored",
            at / width,
            at % width
        )
    }
}

/// Values of a mask's pixels, and its height and width. Errors are what follows the name of the file.
fn labels(bytes: &[u8], max_pixels: u64) -> Result<(Vec<u32>, [usize; 2]), String> {
    if !bytes.starts_with(b"\x89PNG") {
        return Err("is no PNG: masks must be PNG files, since others change the values of pixels".to_owned());
    }
    let damaged = |error: png::DecodingError| {
        let words = error.to_string();
        format!("is damaged ({}): make it again", words.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let most = usize::try_from(max_pixels.saturating_mul(8)).unwrap_or(usize::MAX);
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), Limits { bytes: most.saturating_add(MARGIN_BYTES) });
    decoder.set_transformations(Transformations::IDENTITY);
    let header = decoder.read_header_info().map_err(damaged)?;
    check_pixels(header.width, header.height, max_pixels)?;
    let mut reader = decoder.read_info().map_err(damaged)?;
    let short = |missing: crate::error::HostMemory| missing.to_string();
    let size = reader.output_buffer_size().ok_or("is too large")?;
    let mut buffer = room(size).map_err(short)?;
    buffer.resize(size, 0u8);
    let frame = reader.next_frame(&mut buffer).map_err(damaged)?;
    let (height, width) = (frame.height as usize, frame.width as usize);
    let channels = frame.color_type.samples();
    let mut labels = room(height * width).map_err(short)?;
    for row in buffer.chunks_exact(frame.line_size).take(height) {
        let values = |place: usize| match frame.bit_depth {
            BitDepth::Sixteen => u32::from(row[2 * place]) << 8 | u32::from(row[2 * place + 1]),
            BitDepth::Eight => u32::from(row[place]),
            depth => {
                let bits = depth as usize;
                let byte = row[place * bits / 8];
                u32::from(byte >> (8 - bits - place * bits % 8)) & ((1 << bits) - 1)
            }
        };
        for pixel in 0..width {
            let value = values(pixel * channels);
            let is_color = matches!(frame.color_type, ColorType::Rgb | ColorType::Rgba);
            if is_color && (1..3).any(|channel| values(pixel * channels + channel) != value) {
                return Err(format!(
                    "has colors (row {}, column {pixel}): a mask must be grey, or have a palette whose indices are the classes",
                    labels.len() / width
                ));
            }
            labels.push(value);
        }
    }
    // Grey of 1 bit is black and white.
    if frame.color_type == ColorType::Grayscale && frame.bit_depth == BitDepth::One {
        labels.iter_mut().for_each(|label| *label *= 255);
    }
    Ok((labels, [height, width]))
}

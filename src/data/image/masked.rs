//! Images and masks, for segmentation.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::mask::{MaskOptions, Masks};
use super::options::ImageOptions;
use super::paths::{Paths, check_index, none_in, walk};
use super::reader::Reader;
use crate::data::{Dataset, Features, Sample, corrupt};
use crate::error::DataError;

/// What may follow the name of an image in that of its mask.
const SUFFIXES: [&str; 2] = ["_mask", "-mask"];
/// Names in messages, at most.
const SHOWN: usize = 3;

/// Images with a class for each pixel: a folder of images, and one of masks of the same names.
///
/// ```text
/// images/ 1.jpg  more/2.png
/// masks/  1.png  more/2_mask.png
/// ```
///
/// A mask belongs to the image of the same path without its ending; it may end in `_mask` or `-mask`. Both may be in one folder if masks
/// do. Masks are PNG files: values are classes, the index of a color in a palette or the grey value, see [`MaskOptions`]. A mask has the
/// size of its image, and goes where the image goes: it is resized by the nearest pixel, and padded with the label that is ignored, or 0.
/// The target is `[height, width]`.
///
/// ```
/// use tightfit::data::{Dataset, ImageOptions, MaskOptions, MaskedImages};
///
/// let folder = tempfile::tempdir()?;
/// image::RgbImage::new(8, 6).save(folder.path().join("1.png"))?;
/// image::GrayImage::from_fn(8, 6, |x, _| image::Luma([if x < 4 { 0 } else { 255 }])).save(folder.path().join("1_mask.png"))?;
/// let data = MaskedImages::open(folder.path(), folder.path(), ImageOptions::sized(3, 4), MaskOptions::default())?;
/// let target = data.get(0)?.take("target").map(|target| (target.shape().to_vec(), target.into_values()));
/// assert_eq!(target, Some((vec![3, 4], tightfit::data::Values::U32(vec![0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1]))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct MaskedImages {
    reader: Reader,
    masks: Masks,
    image_paths: Paths,
    mask_paths: Paths,
    /// The mask of each image.
    mask_of: Vec<u32>,
    left_out: usize,
}

/// The path of a file without its ending, and without what masks add to it; and whether they did.
fn stem(path: &Path, root: &Path) -> (PathBuf, bool) {
    let path = path.strip_prefix(root).unwrap_or(path).with_extension("");
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix)) {
        Some(name) if !name.is_empty() => (path.with_file_name(name), true),
        _ => (path, false),
    }
}

fn shown(mut names: Vec<String>) -> String {
    let more = names.len().saturating_sub(SHOWN);
    names.truncate(SHOWN);
    let names = names.join(", ");
    if more == 0 { names } else { format!("{names} and {more} more") }
}

impl MaskedImages {
    /// Finds images and masks. Unless `masks` says how many classes there are, all masks are read once to see.
    ///
    /// # Errors
    /// Where a folder cannot be read or has no images, an image has no mask or a mask no image, or two share a name.
    pub fn open(
        images: impl AsRef<Path>,
        masks: impl AsRef<Path>,
        options: ImageOptions,
        mask_options: MaskOptions,
    ) -> Result<Self, DataError> {
        let (image_dir, mask_dir) = (images.as_ref(), masks.as_ref());
        let (mut found, mut mask_paths) = (Paths::default(), Paths::default());
        let mut left_out = walk(image_dir, &mut found)?;
        let is_one_folder =
            image_dir.canonicalize().is_ok_and(|dir| mask_dir.canonicalize().is_ok_and(|other| dir == other));
        if !is_one_folder {
            left_out += walk(mask_dir, &mut mask_paths)?;
        }
        let image_paths = if is_one_folder {
            let mut images = Paths::default();
            for index in 0..found.len() {
                let is_mask = stem(&found.get(index), image_dir).1;
                found.copy(index, if is_mask { &mut mask_paths } else { &mut images })?;
            }
            images
        } else {
            found
        };
        for (paths, dir) in [(&image_paths, image_dir), (&mask_paths, mask_dir)] {
            if paths.len() == 0 {
                return Err(none_in(dir));
            }
        }

        let mut by_stem = HashMap::new();
        for index in 0..mask_paths.len() {
            let path = mask_paths.get(index);
            if let Some(other) = by_stem.insert(stem(&path, mask_dir).0, index) {
                let reason = format!("has two masks of one image, the other is {}: remove one", mask_paths.name(other));
                return Err(corrupt(&path, reason));
            }
        }
        let mut mask_of = crate::tensor::room(image_paths.len())?;
        let mut without = Vec::new();
        let mut is_used = vec![false; mask_paths.len()];
        for index in 0..image_paths.len() {
            let path = image_paths.get(index);
            // An image whose own name ends as those of masks do.
            let whole = path.strip_prefix(image_dir).unwrap_or(&path).with_extension("");
            let mask = by_stem.get(&whole).or_else(|| by_stem.get(&stem(&path, image_dir).0));
            match mask {
                Some(mask) if std::mem::replace(&mut is_used[*mask], true) => {
                    return Err(corrupt(&path, "has the name of another image, and one mask for both: rename one"));
                }
                Some(mask) => mask_of.push(*mask as u32),
                None => without.push(image_paths.name(index).to_owned()),
            }
        }
        if !without.is_empty() {
            return Err(corrupt(
                mask_dir,
                format!("has no mask for {}: a mask has the name of its image, and may end in _mask", shown(without)),
            ));
        }
        let unused = is_used.iter().enumerate().filter(|(_, used)| !**used);
        let unused: Vec<_> = unused.map(|(index, _)| mask_paths.name(index).to_owned()).collect();
        if !unused.is_empty() {
            return Err(corrupt(image_dir, format!("has no image for the mask {}: remove it", shown(unused))));
        }

        let reader = Reader::of_file(options, &image_paths.get(0))?;
        let read = |index| {
            let path = mask_paths.get(index);
            Ok((reader.read_file(&path)?, path))
        };
        let masks = Masks::new(mask_options, mask_paths.len(), reader.max_pixels(), read)?;
        Ok(MaskedImages { reader, masks, image_paths, mask_paths, mask_of, left_out })
    }

    /// The image of a sample and its mask; `None` past the end.
    pub fn paths(&self, index: usize) -> Option<(PathBuf, PathBuf)> {
        let mask = *self.mask_of.get(index)?;
        Some((self.image_paths.get(index), self.mask_paths.get(mask as usize)))
    }

    /// How images are read, with the size that all have.
    pub fn options(&self) -> ImageOptions {
        self.reader.options()
    }

    /// What masks mean, with the classes that were found.
    pub fn mask_options(&self) -> &MaskOptions {
        self.masks.options()
    }

    /// Names of the classes, where they were given.
    pub fn class_names(&self) -> &[String] {
        self.masks.class_names()
    }

    /// How many files were left out, because they are hidden or no images by their names.
    pub fn left_out(&self) -> usize {
        self.left_out
    }
}

impl Dataset for MaskedImages {
    fn len(&self) -> usize {
        self.mask_of.len()
    }

    fn get(&self, index: usize) -> Result<Sample, DataError> {
        check_index(index, self.len())?;
        let (image, mask) = self.paths(index).expect("bug: the index was checked");
        self.masks.sample(&self.reader, (&self.reader.read_file(&image)?, &image), || {
            Ok((self.reader.read_file(&mask)?, mask.clone()))
        })
    }

    fn features(&self) -> Result<Features, DataError> {
        Ok(self.masks.put_in(self.reader.features(), self.reader.size()))
    }

    fn label(&self, index: usize) -> Result<Option<u32>, DataError> {
        check_index(index, self.len())?;
        Ok(None)
    }

    fn origin(&self, index: usize) -> String {
        self.paths(index).map_or_else(|| format!("sample {index}"), |(image, _)| image.display().to_string())
    }

    fn host_bytes(&self) -> u64 {
        self.image_paths.host_bytes() + self.mask_paths.host_bytes() + (4 * self.mask_of.capacity()) as u64
    }

    fn scratch_bytes(&self) -> u64 {
        self.reader.scratch_bytes()
    }
}

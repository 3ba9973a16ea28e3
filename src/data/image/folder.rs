//! A folder of images for each class.

use std::path::{Path, PathBuf};

use super::options::ImageOptions;
use super::paths::{Listing, Paths, check_index, is_image, list, walk};
use super::reader::Reader;
use crate::data::{Dataset, Features, Sample, corrupt};
use crate::error::{DataError, unknown};

/// Images in one folder for each class, as torchvision's `ImageFolder` and Keras's `image_dataset_from_directory` read them.
///
/// ```text
/// photos/
///   cat/ 1.jpg  2.png  indoors/3.jpg
///   dog/ 4.jpeg
/// ```
///
/// Classes are the names of the folders, sorted; images are the files below them whose names end in `.png`, `.jpg` or `.jpeg`, in any case
/// of letters, sorted. Hidden and other files are left out, and [counted](Self::left_out). Only the paths are in memory.
///
/// ```
/// use tightfit::data::{Dataset, ImageFolder, ImageOptions};
///
/// let folder = tempfile::tempdir()?;
/// for class in ["cat", "dog"] {
///     std::fs::create_dir(folder.path().join(class))?;
///     image::GrayImage::new(8, 6).save(folder.path().join(class).join("1.png"))?;
/// }
/// let images = ImageFolder::open(folder.path(), ImageOptions::default())?;
/// assert_eq!((images.len(), images.class_names()), (2, &["cat".to_owned(), "dog".to_owned()][..]));
/// assert_eq!(images.get(1)?.get("input").map(|image| image.shape().to_vec()), Some(vec![3, 6, 8]));
/// assert_eq!(images.label(1)?, Some(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ImageFolder {
    reader: Reader,
    paths: Paths,
    /// Of each folder of the paths.
    labels: Vec<u32>,
    class_names: Vec<String>,
    left_out: usize,
}

/// What a folder with a folder for each class has.
pub(super) struct Found {
    pub(super) paths: Paths,
    pub(super) labels: Vec<u32>,
    pub(super) class_names: Vec<String>,
    pub(super) left_out: usize,
}

/// Finds images, and classes with none.
pub(super) fn find(dir: &Path) -> Result<Found, DataError> {
    let Listing { folders, files, hidden } = list(dir)?;
    if folders.is_empty() {
        let found =
            if files.iter().any(|name| is_image(name)) { "has images, but no folders" } else { "has no folders" };
        return Err(corrupt(
            dir,
            format!(
                "{found}: put the images of each class into a folder with its name, or list images and labels in a CSV file"
            ),
        ));
    }
    let mut found =
        Found { paths: Paths::default(), labels: Vec::new(), class_names: folders, left_out: hidden + files.len() };
    for (label, name) in (0..).zip(&found.class_names) {
        found.left_out += walk(&dir.join(name), &mut found.paths)?;
        found.labels.resize(found.paths.folders(), label);
    }
    found.paths.shrink();
    Ok(found)
}

impl ImageFolder {
    /// Finds the images, and reads the size of the first where no size is given.
    ///
    /// # Errors
    /// Where the folder cannot be read, has no folders, or one of them has no images; [`DataError::Mismatch`] where options make no sense.
    pub fn open(dir: impl AsRef<Path>, options: ImageOptions) -> Result<Self, DataError> {
        let dir = dir.as_ref();
        let Found { paths, labels, class_names, left_out } = find(dir)?;
        let mut counts = vec![0; class_names.len()];
        (0..paths.len()).for_each(|index| counts[labels[paths.folder(index)] as usize] += 1);
        if let Some(empty) = counts.iter().position(|count| *count == 0) {
            return Err(corrupt(
                &dir.join(&class_names[empty]),
                "has no images, whose names end in .png, .jpg or .jpeg, but every folder here is a class: put some in, or remove it",
            ));
        }
        let reader = Reader::of_file(options, &paths.get(0))?;
        Ok(ImageFolder { reader, paths, labels, class_names, left_out })
    }

    /// Numbers the classes as another folder does, such as that of the training: a class may be without images here.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] where a folder is none of these classes.
    pub fn with_classes(mut self, names: &[impl AsRef<str>]) -> Result<Self, DataError> {
        let number = |class: &String| {
            let at = names.iter().position(|name| name.as_ref() == class);
            at.map(|at| at as u32).ok_or_else(|| {
                let sentence = unknown("class", class, names.iter().map(AsRef::as_ref));
                DataError::Mismatch(format!("{sentence}; it is the name of a folder of images"))
            })
        };
        let numbers: Vec<u32> = self.class_names.iter().map(number).collect::<Result<_, _>>()?;
        self.labels.iter_mut().for_each(|label| *label = numbers[*label as usize]);
        self.class_names = names.iter().map(|name| name.as_ref().to_owned()).collect();
        Ok(self)
    }

    /// Names of the classes, in the order of their labels.
    pub fn class_names(&self) -> &[String] {
        &self.class_names
    }

    /// The file of a sample; `None` past the end.
    pub fn path(&self, index: usize) -> Option<PathBuf> {
        (index < self.paths.len()).then(|| self.paths.get(index))
    }

    /// How images are read, with the size that all have.
    pub fn options(&self) -> ImageOptions {
        self.reader.options()
    }

    /// How many files were left out, because they are hidden or no images by their names.
    pub fn left_out(&self) -> usize {
        self.left_out
    }
}

impl Dataset for ImageFolder {
    fn len(&self) -> usize {
        self.paths.len()
    }

    fn get(&self, index: usize) -> Result<Sample, DataError> {
        check_index(index, self.len())?;
        let image = self.reader.file(&self.paths.get(index))?;
        Ok(Sample::new(image).with_target(self.labels[self.paths.folder(index)]))
    }

    fn features(&self) -> Result<Features, DataError> {
        let classes = self.class_names.len() as u32;
        Ok(self.reader.features().with_labels(classes, []).with_class_names(&self.class_names))
    }

    fn label(&self, index: usize) -> Result<Option<u32>, DataError> {
        check_index(index, self.len())?;
        Ok(Some(self.labels[self.paths.folder(index)]))
    }

    fn origin(&self, index: usize) -> String {
        self.path(index).map_or_else(|| format!("sample {index}"), |path| path.display().to_string())
    }

    fn host_bytes(&self) -> u64 {
        self.paths.host_bytes() + (self.labels.len() * 4) as u64
    }

    fn scratch_bytes(&self) -> u64 {
        self.reader.scratch_bytes()
    }
}

//! Many paths in little memory.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::decode::HINT;
use crate::data::{corrupt, io_error};
use crate::error::DataError;

/// Endings of names of images.
const EXTENSIONS: [&str; 3] = ["png", "jpg", "jpeg"];
/// Folders within folders, at most.
const MAX_DEPTH: usize = 64;

/// Paths of files: folders once, and the names one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::data) struct Paths {
    folders: Vec<PathBuf>,
    names: String,
    files: Vec<File>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct File {
    folder: u32,
    /// Where its name ends in all names.
    end: u32,
}

impl Paths {
    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    /// How many folders there are.
    pub(super) fn folders(&self) -> usize {
        self.folders.len()
    }

    /// Adds a folder, in which the files are that are added next.
    pub(in crate::data) fn enter(&mut self, folder: PathBuf) {
        self.folders.push(folder);
    }

    /// Adds a file of the last folder.
    pub(in crate::data) fn add(&mut self, name: &str) -> Result<(), DataError> {
        let place = |number: usize| u32::try_from(number).ok();
        let end = self.names.len().checked_add(name.len()).and_then(place);
        let (Some(end), Some(folder)) = (end, self.folders.len().checked_sub(1).and_then(place)) else {
            return Err(DataError::Mismatch(
                "names of files are longer than 4 GiB together: use fewer files".to_owned(),
            ));
        };
        self.names.push_str(name);
        self.files.push(File { folder, end });
        Ok(())
    }

    /// Adds a file to other paths.
    pub(super) fn copy(&self, index: usize, to: &mut Paths) -> Result<(), DataError> {
        let folder = &self.folders[self.folder(index)];
        if to.folders.last() != Some(folder) {
            to.enter(folder.clone());
        }
        to.add(self.name(index))
    }

    /// The name, or path, of a file below its folder.
    pub(super) fn name(&self, index: usize) -> &str {
        let begin = index.checked_sub(1).map_or(0, |before| self.files[before].end as usize);
        &self.names[begin..self.files[index].end as usize]
    }

    /// Number of the folder in which a file is.
    pub(super) fn folder(&self, index: usize) -> usize {
        self.files[index].folder as usize
    }

    pub(in crate::data) fn get(&self, index: usize) -> PathBuf {
        self.folders[self.folder(index)].join(self.name(index))
    }

    /// Gives back memory that was reserved for more.
    pub(in crate::data) fn shrink(&mut self) {
        self.folders.shrink_to_fit();
        self.names.shrink_to_fit();
        self.files.shrink_to_fit();
    }

    pub(in crate::data) fn host_bytes(&self) -> u64 {
        let folders: usize =
            self.folders.iter().map(|folder| folder.as_os_str().len() + size_of::<PathBuf>()).sum::<usize>();
        (folders + self.names.capacity() + self.files.capacity() * size_of::<File>()) as u64
    }
}

/// An error where there is no sample of this number.
pub(in crate::data) fn check_index(index: usize, len: usize) -> Result<(), DataError> {
    if index < len {
        return Ok(());
    }
    Err(DataError::Mismatch(format!("sample {index} of a dataset of {len} does not exist")))
}

/// Whether a name ends as those of images do.
pub(in crate::data) fn is_image(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|found| EXTENSIONS.iter().any(|known| found.eq_ignore_ascii_case(known)))
}

/// What is in a folder, sorted: names of folders and of files. Hidden ones are counted only.
pub(super) struct Listing {
    pub(super) folders: Vec<String>,
    pub(super) files: Vec<String>,
    pub(super) hidden: usize,
}

pub(super) fn list(folder: &Path) -> Result<Listing, DataError> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            DataError::Missing { path: folder.to_owned(), hint: "give a folder of images".to_owned() }
        }
        std::io::ErrorKind::NotADirectory => corrupt(folder, "is not a folder: give a folder of images"),
        _ => io_error(folder, error),
    };
    let mut listing = Listing { folders: Vec::new(), files: Vec::new(), hidden: 0 };
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Ok(name) = entry.file_name().into_string() else {
            return Err(corrupt(&entry.path(), "has a name that is not UTF-8: rename it"));
        };
        let kind = entry.file_type().map_err(failed)?;
        if name.starts_with('.') {
            listing.hidden += 1;
        } else if kind.is_dir() || (kind.is_symlink() && entry.path().is_dir()) {
            listing.folders.push(name);
        } else {
            listing.files.push(name);
        }
    }
    listing.folders.sort_unstable();
    listing.files.sort_unstable();
    Ok(listing)
}

/// Adds the images in a folder and in those below it, in the order of their paths; returns how many other files were left out.
/// Folders to which several links lead are read once.
pub(super) fn walk(folder: &Path, paths: &mut Paths) -> Result<usize, DataError> {
    let mut seen = HashSet::new();
    let mut left_out = 0;
    let mut open = vec![(folder.to_owned(), 0)];
    while let Some((folder, depth)) = open.pop() {
        let real = folder.canonicalize().map_err(|error| io_error(&folder, error))?;
        if !seen.insert(real) {
            left_out += 1;
            continue;
        }
        if depth > MAX_DEPTH {
            return Err(corrupt(&folder, format!("is a folder below {MAX_DEPTH} others: move it up")));
        }
        let Listing { folders, files, hidden } = list(&folder)?;
        left_out += hidden;
        open.extend(folders.iter().rev().map(|name| (folder.join(name), depth + 1)));
        paths.enter(folder);
        for name in files {
            if is_image(&name) {
                paths.add(&name)?;
            } else {
                left_out += 1;
            }
        }
    }
    Ok(left_out)
}

/// The error where nothing was found.
pub(super) fn none_in(folder: &Path) -> DataError {
    corrupt(folder, format!("has no images, whose names end in .png, .jpg or .jpeg: {HINT}"))
}

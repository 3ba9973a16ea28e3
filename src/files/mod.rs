//! Reading and writing files: only regular files are read, up to a limit, and a file that is written appears whole or not at all.

mod access;
#[cfg(any(test, feature = "cli"))]
mod elsewhere;
mod folder;
mod format;
mod positioned;
mod read;
mod write;

#[cfg(feature = "cli")]
pub use elsewhere::elsewhere;
pub(crate) use folder::write_folder;
pub(crate) use format::Format;
pub(crate) use positioned::{Positioned, Reader};
pub use read::read;
pub(crate) use read::{open, open_regular};
pub(crate) use write::write_with;
pub use write::{check_writable, make_folder_of, write_whole};

use std::path::Path;

use crate::error::DataError;

/// Whether something has this name, also a link that leads nowhere or to itself: opening it says what is wrong.
pub fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// An error of the system, with the file it belongs to.
fn io_error(path: &Path) -> impl FnOnce(std::io::Error) -> DataError + use<> {
    let path = path.to_owned();
    |source| DataError::Io { path, source }
}

/// Names of what is in a folder, in order.
#[cfg(test)]
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("readable").map(|entry| entry.expect("readable").file_name());
    let mut names: Vec<_> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

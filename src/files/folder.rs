//! Folders that appear whole or not at all.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::io_error;
use super::write::{self, MOST_NAMES, folder_of};
use crate::error::DataError;

const PREFIX: &str = ".tightfit-";
const SUFFIX: &str = ".parts";

/// Makes a folder at `path`, where there must be none, with what `fill` puts into the one that it is given. That one takes the name
/// once all of it is on disk, so that no reader ever sees a part.
///
/// # Errors
/// Where `fill` fails, or the folder cannot be made.
pub(crate) fn write_folder<E: From<DataError>>(
    path: &Path,
    fill: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<(), E> {
    let above = folder_of(path);
    let temporary = Temporary::new(above)?;
    fill(&temporary.path)?;
    temporary.put(path)?;
    Ok(())
}

/// A folder that is removed unless it takes its name. A file beside it is locked as long, by which others see that it is in use.
struct Temporary {
    path: PathBuf,
    lock: PathBuf,
    _locked: File,
}

impl Temporary {
    fn new(above: &Path) -> Result<Self, DataError> {
        remove_stale(above);
        for attempt in 0..MOST_NAMES {
            let name = format!("{PREFIX}{}-{attempt}", std::process::id());
            let path = above.join(format!("{name}{SUFFIX}"));
            let lock = above.join(format!("{name}.lock"));
            let locked = match File::create_new(&lock) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                locked => locked.map_err(io_error(above))?,
            };
            let _ = locked.try_lock();
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Temporary { path, lock, _locked: locked }),
                Err(error) => {
                    let _ = fs::remove_file(&lock);
                    if error.kind() != ErrorKind::AlreadyExists {
                        return Err(io_error(above)(error));
                    }
                }
            }
        }
        Err(io_error(above)(ErrorKind::AlreadyExists.into()))
    }

    fn put(mut self, path: &Path) -> Result<(), DataError> {
        write::sync_folder(&self.path);
        fs::rename(&self.path, path).map_err(io_error(path))?;
        self.path.clear();
        write::sync_folder(folder_of(path));
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            let _ = fs::remove_dir_all(&self.path);
        }
        let _ = fs::remove_file(&self.lock);
    }
}

/// Removes what killed processes left: folders whose lock nobody holds.
fn remove_stale(above: &Path) {
    for entry in fs::read_dir(above).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(".lock")) else {
            continue;
        };
        let is_free = File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok());
        if is_free {
            let _ = fs::remove_dir_all(above.join(format!("{PREFIX}{name}{SUFFIX}")));
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::names;

    #[test]
    fn folders_appear_whole_and_what_was_left_goes() {
        let above = tempfile::tempdir().expect("a temporary folder");
        let at = |name: &str| above.path().join(name);
        // Of a process that was killed: nobody holds the lock.
        fs::write(at(".tightfit-1-0.lock"), "").expect("writes");
        fs::create_dir(at(".tightfit-1-0.parts")).expect("makes");
        fs::write(at(".tightfit-1-0.parts/half"), "half").expect("writes");
        write_folder::<DataError>(&at("a"), |folder| {
            assert!(names(above.path()).iter().all(|name| name.starts_with('.')));
            fs::write(folder.join("x"), "whole").expect("writes");
            Ok(())
        })
        .expect("writes");
        assert_eq!(names(above.path()), ["a"]);
        assert_eq!(fs::read(at("a/x")).expect("reads"), b"whole");
        let failed = write_folder(&at("b"), |_| Err(DataError::Mismatch("no".to_owned())));
        assert!(failed.is_err());
        // A folder that is there stays as it is.
        assert!(write_folder::<DataError>(&at("a"), |_| Ok(())).is_err());
        assert_eq!(names(above.path()), ["a"]);
    }
}

//! Another place for what could not be written where it was wanted.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::access::{Access, create_new};
use super::io_error;
use super::write::{MOST_NAMES, folder_of};
use crate::error::DataError;

/// Bytes of a name and of its extension where a number is to be added: file systems allow at least twice as many.
const MOST_NAME_BYTES: usize = 100;

/// Puts what could not be written at `wanted` somewhere else, under its name or one like it that nothing has yet: in the same
/// folder, else in the current one, else in the folder for temporary files. Returns where it is.
///
/// # Errors
/// The last error of `write` where none of these will do.
#[cfg(any(test, feature = "cli"))]
pub fn elsewhere<E: From<DataError>>(
    wanted: &Path,
    mut write: impl FnMut(&Path) -> Result<(), E>,
) -> Result<PathBuf, E> {
    let access = fs::metadata(wanted).ok().as_ref().map(Access::of);
    let mut attempt = |place: &Path| {
        let place = claim(place, wanted, access)?;
        write(&place).inspect_err(|_| {
            // An empty file of a new name is of no use to anyone.
            let _ = fs::remove_file(&place);
        })?;
        Ok::<_, E>(std::path::absolute(&place).unwrap_or(place))
    };
    let here = Path::new(".");
    attempt(folder_of(wanted)).or_else(|_| attempt(here)).or_else(|_| attempt(&env::temp_dir()))
}

/// A new, empty file in `folder` with the name of `wanted` or one like it, and this access.
fn claim(folder: &Path, wanted: &Path, access: Option<Access>) -> Result<PathBuf, DataError> {
    let short = |part: Option<&OsStr>| {
        let mut part = part.unwrap_or_default().to_string_lossy().into_owned();
        part.truncate(part.floor_char_boundary(MOST_NAME_BYTES));
        part
    };
    let (stem, extension) = (short(wanted.file_stem()), short(wanted.extension()));
    let dot = if extension.is_empty() { "" } else { "." };
    for number in 0..MOST_NAMES {
        let number = if number == 0 { String::new() } else { format!("-{number}") };
        let place = folder.join(format!("{stem}{number}{dot}{extension}"));
        match create_new(&place, access.is_some()) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(io_error(&place)(error)),
            Ok(file) => {
                if let Some(access) = access {
                    access.give(&file);
                }
                return Ok(place);
            }
        }
    }
    Err(io_error(folder)(ErrorKind::AlreadyExists.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::write_whole;

    #[test]
    fn another_place_has_a_new_name() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let wanted = folder.path().join("a.b.safetensors");
        for expected in ["a.b.safetensors", "a.b-1.safetensors", "a.b-2.safetensors"] {
            let place = elsewhere(&wanted, |path| write_whole(path, expected.as_bytes())).expect("writes");
            assert_eq!(place, folder.path().join(expected));
            assert_eq!(fs::read(&place).expect("reads"), expected.as_bytes());
        }
        let long = folder.path().join(format!("{}.{}", "ü".repeat(200), "é".repeat(200)));
        let place = claim(folder.path(), &long, None).expect("a shorter name");
        assert_eq!(place.file_name().map(OsStr::len), Some(201));
        let tried = std::cell::RefCell::new(Vec::new());
        let failed = elsewhere(&wanted, |path| {
            tried.borrow_mut().push(path.to_owned());
            Err(DataError::Mismatch("no".to_owned()))
        });
        assert!(failed.is_err());
        assert!(tried.borrow().len() == 3 && tried.borrow().iter().all(|path| !path.exists()), "{tried:?}");
    }
}

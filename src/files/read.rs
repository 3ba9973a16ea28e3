//! Reading from regular files alone, and no more than was asked for.

use std::fs::{self, File};
use std::io::{Error, ErrorKind, Read as _};
use std::path::Path;

use super::io_error;
use crate::error::DataError;
use crate::tensor::{format_bytes, room};

/// Opens a regular file that holds something; returns it with its length. Files of the system that make up their contents as they
/// are read have no length, and some of them wait without end. `hint` says where such files come from.
///
/// # Errors
/// [`DataError::Missing`] where there is no such file, [`DataError::Corrupt`] where it is no regular file or empty,
/// [`DataError::Io`] where it cannot be opened.
pub(crate) fn open(path: &Path, hint: &str) -> Result<(File, u64), DataError> {
    match open_regular(path, hint)? {
        (_, 0) => Err(DataError::Corrupt {
            path: path.to_owned(),
            reason: format!("is empty, or made up by the system as it is read; {hint}"),
        }),
        opened => Ok(opened),
    }
}

/// As [`open`], and the file may be empty. Opening a pipe may wait without end, and a device may never come to one.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_regular(path: &Path, hint: &str) -> Result<(File, u64), DataError> {
    let metadata = fs::metadata(path).map_err(|source| match source.kind() {
        ErrorKind::NotFound => DataError::Missing { path: path.to_owned(), hint: hint.to_owned() },
        _ => io_error(path)(source),
    })?;
    let refused = |reason: &str| {
        Err(DataError::Corrupt { path: path.to_owned(), reason: format!("{reason}, not a regular file; {hint}") })
    };
    if metadata.is_dir() {
        return refused("is a folder");
    }
    if !metadata.is_file() {
        return refused("is a pipe, a socket or a device");
    }
    let file = File::open(path).map_err(io_error(path))?;
    let length = file.metadata().map_err(io_error(path))?.len();
    Ok((file, length))
}

/// The contents of a regular file of at most `most` bytes.
///
/// # Errors
/// Where it cannot be opened; [`DataError::Corrupt`] where it is longer, [`DataError::Io`] where memory is short.
pub fn read(path: &Path, most: u64, hint: &str) -> Result<Vec<u8>, DataError> {
    let (file, length) = open(path, hint)?;
    let too_long = |length: u64| DataError::Corrupt {
        path: path.to_owned(),
        reason: format!("{} are more than such a file has: {hint}", format_bytes(length)),
    };
    if length > most {
        return Err(too_long(length));
    }
    let mut bytes =
        room(length as usize).map_err(|missing| io_error(path)(Error::new(ErrorKind::OutOfMemory, missing)))?;
    // Files of the system may be longer than they say.
    file.take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(io_error(path))?;
    if bytes.len() as u64 > most {
        return Err(too_long(bytes.len() as u64));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_of_a_sound_length_are_read() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("some");
        let refused = |path: &Path| read(path, 4, "give a file").expect_err("refused").to_string();
        assert!(refused(&path).contains("not found; give a file"));
        fs::write(&path, "12345").expect("writes");
        assert!(refused(&path).contains("5 B are more"));
        assert_eq!(read(&path, 5, "").expect("reads"), b"12345");
        assert!(refused(folder.path()).contains("is a folder"));
        #[cfg(target_os = "linux")]
        {
            assert!(refused(Path::new("/dev/zero")).contains("a device"));
            // Regular files that say that they have no bytes. From the second, reading waits for messages of the kernel.
            for path in ["/proc/self/status", "/proc/kmsg"].map(Path::new).into_iter().filter(|path| path.exists()) {
                assert!(refused(path).contains("made up by the system as it is read; give a file"));
            }
            let socket = folder.path().join("socket");
            let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("binds");
            assert!(refused(&socket).contains("a socket"));
            let pipe = folder.path().join("pipe");
            assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
            assert!(refused(&pipe).contains("a pipe"));
        }
    }
}

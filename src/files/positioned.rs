//! Reading from places of a file, from many threads at once.

use std::fs::File;
use std::io::{self, Error, ErrorKind};
use std::path::{Path, PathBuf};

use super::{io_error, open};
use crate::error::DataError;

/// A regular file of which parts are read by their place. It has no place of its own that readers would have to share, and nothing of
/// it stays in memory.
#[derive(Debug)]
pub(crate) struct Positioned {
    path: PathBuf,
    file: Shared,
    len: u64,
}

impl Positioned {
    /// Opens a regular file that holds something; `hint` says where such files come from.
    ///
    /// # Errors
    /// As [`open`].
    pub(crate) fn open(path: &Path, hint: &str) -> Result<Self, DataError> {
        let (file, len) = open(path, hint)?;
        Ok(Positioned { path: path.to_owned(), file: Shared::new(file), len })
    }

    /// Bytes that it had when it was opened.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Fills a buffer with the bytes from `offset`.
    ///
    /// # Errors
    /// [`DataError::Corrupt`] where the file ends before, [`DataError::Io`] where it cannot be read.
    pub(crate) fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), DataError> {
        let mut done = 0;
        while done < buffer.len() {
            match self.file.read_at(&mut buffer[done..], offset.saturating_add(done as u64)) {
                Ok(0) => return Err(self.ends_early()),
                Ok(read) => done += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(io_error(&self.path)(error)),
            }
        }
        Ok(())
    }

    /// `count` bytes from `offset`. No memory is taken for more than the file has.
    ///
    /// # Errors
    /// As [`Positioned::read_exact_at`], and [`DataError::Io`] where memory is short.
    pub(crate) fn bytes_at(&self, offset: u64, count: usize) -> Result<Vec<u8>, DataError> {
        if offset.checked_add(count as u64).is_none_or(|end| end > self.len) {
            return Err(self.ends_early());
        }
        let mut bytes = crate::tensor::room(count)
            .map_err(|missing| io_error(&self.path)(Error::new(ErrorKind::OutOfMemory, missing)))?;
        bytes.resize(count, 0);
        self.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    /// A reader that begins at `offset` and has a place of its own.
    pub(crate) fn reader(&self, offset: u64) -> Reader<'_> {
        Reader { file: self, offset }
    }

    fn ends_early(&self) -> DataError {
        DataError::Corrupt {
            path: self.path.clone(),
            reason: "ends too early: it was not copied as a whole, or is being written; fetch it again".to_owned(),
        }
    }
}

/// Reads on from a place of a file.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    file: &'a Positioned,
    offset: u64,
}

impl io::Read for Reader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.file.read_at(buffer, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

impl io::Seek for Reader<'_> {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        let place = match to {
            io::SeekFrom::Start(place) => Some(place),
            io::SeekFrom::End(by) => self.file.len.checked_add_signed(by),
            io::SeekFrom::Current(by) => self.offset.checked_add_signed(by),
        };
        self.offset = place.ok_or(ErrorKind::InvalidInput)?;
        Ok(self.offset)
    }
}

/// A file that is read by place.
#[cfg(any(unix, windows))]
#[derive(Debug)]
struct Shared(File);

#[cfg(any(unix, windows))]
impl Shared {
    fn new(file: File) -> Self {
        Shared(file)
    }

    #[cfg(unix)]
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(&self.0, buffer, offset)
    }

    /// It moves the place of the file, which nobody uses.
    #[cfg(windows)]
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_read(&self.0, buffer, offset)
    }
}

/// A file that one reader at a time moves to its place.
#[cfg(not(any(unix, windows)))]
#[derive(Debug)]
struct Shared(std::sync::Mutex<File>);

#[cfg(not(any(unix, windows)))]
impl Shared {
    fn new(file: File) -> Self {
        Shared(std::sync::Mutex::new(file))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        use std::io::{Read as _, Seek as _};
        // Its place is set anew each time.
        let mut file = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        file.seek(io::SeekFrom::Start(offset))?;
        file.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Read as _, Seek as _, SeekFrom};

    use super::*;

    #[test]
    fn threads_read_from_their_own_places() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("numbers");
        let bytes: Vec<u8> = (0..10_000_u32).flat_map(u32::to_le_bytes).collect();
        fs::write(&path, &bytes).expect("writes");
        let file = Positioned::open(&path, "").expect("opens");
        assert_eq!((file.len(), file.path()), (40_000, &*path));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let file = &file;
                scope.spawn(move || {
                    for number in (thread..10_000_u32).step_by(4) {
                        let mut four = [0; 4];
                        file.read_exact_at(&mut four, u64::from(number) * 4).expect("is there");
                        assert_eq!(u32::from_le_bytes(four), number);
                    }
                });
            }
        });
        let mut reader = file.reader(4);
        let mut four = [0; 4];
        reader.read_exact(&mut four).expect("is there");
        assert_eq!((four, reader.seek(SeekFrom::Current(-8)).expect("is there")), ([1, 0, 0, 0], 0));
        assert_eq!(reader.seek(SeekFrom::End(-4)).expect("is there"), 39_996);
        assert!(reader.seek(SeekFrom::Current(-40_000)).is_err());
    }

    #[test]
    fn what_is_not_there_is_not_made_room_for() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("short");
        fs::write(&path, "12345").expect("writes");
        let file = Positioned::open(&path, "").expect("opens");
        assert_eq!(file.bytes_at(3, 2).expect("is there"), b"45");
        for (offset, count) in [(3, 3), (6, 0), (u64::MAX, 1), (0, usize::MAX)] {
            assert!(file.bytes_at(offset, count).expect_err("refused").to_string().contains("ends too early"));
        }
        // It shrank since.
        fs::write(&path, "12").expect("writes");
        assert!(file.bytes_at(0, 5).expect_err("refused").to_string().contains("ends too early"));
    }
}

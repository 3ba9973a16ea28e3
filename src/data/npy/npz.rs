//! Archives of arrays, as `numpy.savez` and `numpy.savez_compressed` write them: zip files with a member `NAME.npy` for each array.

use std::io::{BufReader, Read as _};
use std::path::Path;
use std::sync::Arc;

use zip::CompressionMethod;
use zip::read::ZipArchive;
use zip::result::ZipError;

use super::{Npy, Source};
use crate::data::{corrupt, io_error, reserve};
use crate::error::{DataError, unknown};
use crate::files::Positioned;
use crate::tensor::format_bytes;

const MOST_MEMBERS: usize = 4096;
/// The longest directory of an archive, which is read whole.
const MOST_DIRECTORY_BYTES: u64 = 16 << 20;
/// Deflate codes at most 258 bytes in 2 bits.
const MAX_INFLATION: u64 = 1032;

/// An archive.
pub(super) struct Npz {
    file: Arc<Positioned>,
    members: Vec<Member>,
    /// Bytes that may still be unpacked.
    left: u64,
    limit: u64,
}

#[derive(Clone)]
struct Member {
    name: String,
    at: usize,
    packed: u64,
    unpacked: u64,
    method: CompressionMethod,
    encrypted: bool,
}

impl Npz {
    /// Opens an archive, of which compressed arrays may take `limit` bytes of memory.
    pub(super) fn open(path: &Path, limit: u64) -> Result<Self, DataError> {
        let file = Arc::new(Positioned::open(path, "give a file that numpy.savez wrote")?);
        let mut archive = archive(&file)?;
        if archive.len() > MOST_MEMBERS {
            return Err(corrupt(path, format!("holds {} files, more than {MOST_MEMBERS}", archive.len())));
        }
        let mut members = Vec::new();
        for at in 0..archive.len() {
            let member = archive.by_index_raw(at).map_err(|error| zip_error(path, error))?;
            let name = member.name().map_err(|error| zip_error(path, error))?;
            if let Some(name) = name.strip_suffix(".npy") {
                members.push(Member {
                    name: name.to_owned(),
                    at,
                    packed: member.compressed_size(),
                    unpacked: member.size(),
                    method: member.compression(),
                    encrypted: member.encrypted(),
                });
            }
        }
        if members.is_empty() {
            return Err(corrupt(path, "holds no array: give a file that numpy.savez wrote"));
        }
        Ok(Npz { file, members, left: limit, limit })
    }

    /// Names of the arrays.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|member| &*member.name)
    }

    /// An array. Where it is compressed, it is unpacked.
    pub(super) fn array(&mut self, name: &str) -> Result<Npy, DataError> {
        let path = self.file.path();
        let Some(member) = self.members.iter().find(|member| member.name == name).cloned() else {
            let text = unknown("array", name, self.names()).replace(char::is_control, " ");
            return Err(corrupt(path, text));
        };
        let wrong = |reason: &str| corrupt(path, format!("array `{}` {reason}", member.name.escape_debug()));
        let Member { at, packed, unpacked, method, encrypted, .. } = member;
        if encrypted {
            return Err(wrong("is encrypted: save it without a password"));
        }
        let mut archive = archive(&self.file)?;
        match method {
            CompressionMethod::Stored => {
                let member = archive.by_index_raw(at).map_err(|error| zip_error(path, error))?;
                let start = member.data_start().ok_or_else(|| wrong("has no place in the file: fetch it again"))?;
                let end = start.checked_add(unpacked).filter(|end| *end <= self.file.len() && packed == unpacked);
                let end = end.ok_or_else(|| wrong("ends after the file: fetch it again"))?;
                Npy::new(Source::File(Arc::clone(&self.file), Some(name.to_owned())), start, end)
            }
            CompressionMethod::Deflated => {
                if unpacked > self.left {
                    return Err(wrong(&format!(
                        "takes {} unpacked, and of {} for arrays that are compressed {} are left: raise the limit, or save \
                         it with numpy.savez, which is read from the file",
                        format_bytes(unpacked),
                        format_bytes(self.limit),
                        format_bytes(self.left)
                    )));
                }
                if packed > self.file.len() || unpacked > packed.saturating_mul(MAX_INFLATION) {
                    return Err(wrong("cannot be as large as it says: fetch it again"));
                }
                let size = usize::try_from(unpacked).map_err(|_| wrong("is too large for this machine"))?;
                let mut bytes = reserve(path, size)?;
                let input = archive.by_index(at).map_err(|error| zip_error(path, error))?;
                // One byte more, so that its checksum is compared.
                let read = input.take(unpacked.saturating_add(1)).read_to_end(&mut bytes);
                read.map_err(|error| wrong(&format!("is damaged ({}): fetch it again", one_line(&error))))?;
                if bytes.len() != size {
                    return Err(wrong("is not as large as it says: fetch it again"));
                }
                self.left -= unpacked;
                let source = Source::Memory(Arc::clone(&self.file), name.to_owned(), Arc::new(bytes));
                Npy::new(source, 0, unpacked)
            }
            _ => Err(wrong("is compressed in a way that NumPy does not use: save it with numpy.savez")),
        }
    }
}

fn archive(file: &Positioned) -> Result<ZipArchive<BufReader<crate::files::Reader<'_>>>, DataError> {
    check_directory(file)?;
    ZipArchive::new(BufReader::new(file.reader(0))).map_err(|error| zip_error(file.path(), error))
}

/// Checks how long the directory at the end of an archive is, before anything is made of it.
fn check_directory(file: &Positioned) -> Result<(), DataError> {
    const END: &[u8] = b"PK\x05\x06";
    const END_BYTES: u64 = 22;
    const END_WIDE: &[u8] = b"PK\x06\x06";
    const END_WIDE_BYTES: usize = 56;
    const WIDE: u64 = 0xffff_ffff;
    let tail_bytes = file.len().min(END_BYTES + u64::from(u16::MAX));
    let tail = file.bytes_at(file.len() - tail_bytes, tail_bytes as usize)?;
    let end = tail.windows(END_BYTES as usize).rev().find(|window| window.starts_with(END));
    let end = end.ok_or_else(|| {
        corrupt(file.path(), "is not a whole zip file: it was not copied as a whole, or numpy.savez did not write it")
    })?;
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
    let directory = match number(&end[12..16]) {
        // All ones: the length stands in another record, before this one.
        WIDE => tail
            .windows(END_WIDE_BYTES)
            .rev()
            .find(|window| window.starts_with(END_WIDE))
            .map(|end| number(&end[40..48])),
        directory => Some(directory),
    };
    if directory.is_none_or(|directory| directory > MOST_DIRECTORY_BYTES) {
        return Err(corrupt(file.path(), "has a directory that is too long for an archive of arrays: fetch it again"));
    }
    Ok(())
}

fn zip_error(path: &Path, error: ZipError) -> DataError {
    match error {
        ZipError::Io(source) if source.get_ref().is_none() && source.raw_os_error().is_some() => io_error(path, source),
        error => corrupt(path, format!("is not a sound zip file ({}): fetch it again", one_line(&error))),
    }
}

fn one_line(error: &dyn std::fmt::Display) -> String {
    error.to_string().replace(char::is_control, " ").chars().take(200).collect()
}

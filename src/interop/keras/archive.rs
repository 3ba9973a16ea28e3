//! `.keras`: a zip file with the settings, the weights, and which Keras wrote it.

use std::io::{BufReader, Cursor, Read as _, Write as _};
use std::path::Path;

use zip::read::ZipArchive;
use zip::write::{SimpleFileOptions, ZipWriter};
use zip::{CompressionMethod, result::ZipError};

use super::config::corrupt;
use crate::error::{DataError, ImportError};
use crate::files::{Positioned, Reader};
use crate::tensor::room;

/// The longest directory of such a file.
const MOST_DIRECTORY_BYTES: u64 = 1 << 20;
/// The longest settings.
const MOST_TEXT_BYTES: u64 = 8 << 20;
/// What a packed byte may become: Keras packs nothing, and numbers pack badly.
const MOST_INFLATION: u64 = 64;

const CONFIG: &str = "config.json";
const METADATA: &str = "metadata.json";
const WEIGHTS: &str = "model.weights.h5";

/// A file that is read.
pub(super) struct Archive {
    file: Positioned,
}

impl Archive {
    pub(super) fn open(path: &Path) -> Result<Self, ImportError> {
        let file = Positioned::open(path, "give a file that Keras saved")?;
        check_directory(&file)?;
        Ok(Archive { file })
    }

    fn member(&self, name: &str, most: Option<u64>) -> Result<Option<Vec<u8>>, ImportError> {
        let path = self.file.path();
        let wrong = |reason: &str| corrupt(path, format!("`{name}` {reason}"));
        let damaged = |error: ZipError| {
            let error: String = error.to_string().chars().take(200).collect();
            corrupt(path, format!("is not a sound zip file ({error}): save it anew, or fetch it again"))
        };
        let reader: BufReader<Reader<'_>> = BufReader::new(self.file.reader(0));
        let mut archive = ZipArchive::new(reader).map_err(damaged)?;
        let member = match archive.by_name(name) {
            Ok(member) => member,
            Err(ZipError::FileNotFound) => return Ok(None),
            Err(error) => return Err(damaged(error)),
        };
        if member.encrypted() {
            return Err(wrong("is encrypted: save it without a password"));
        }
        let (packed, size) = (member.compressed_size(), member.size());
        let limit = match member.compression() {
            CompressionMethod::Stored => packed,
            _ => packed.saturating_mul(MOST_INFLATION).max(1 << 16),
        };
        if packed > self.file.len() || size > limit.min(most.unwrap_or(u64::MAX)) {
            return Err(wrong("cannot be as large as it says: save it anew, or fetch it again"));
        }
        let length = usize::try_from(size).map_err(|_| wrong("is too large for this machine"))?;
        let mut bytes: Vec<u8> = room(length).map_err(DataError::from)?;
        // One byte more, so that its checksum is compared.
        member.take(size.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| {
            let error: String = error.to_string().replace(char::is_control, " ").chars().take(200).collect();
            wrong(&format!("is damaged ({error}): save it anew, or fetch it again"))
        })?;
        if bytes.len() != length {
            return Err(wrong("is not as large as it says: save it anew, or fetch it again"));
        }
        Ok(Some(bytes))
    }

    fn text(&self, name: &str) -> Result<Option<String>, ImportError> {
        let bytes = self.member(name, Some(MOST_TEXT_BYTES))?;
        let text = bytes.map(String::from_utf8).transpose();
        text.map_err(|_| corrupt(self.file.path(), format!("`{name}` is no text: save it anew, or fetch it again")))
    }

    /// The settings.
    pub(super) fn config(&self) -> Result<String, ImportError> {
        self.text(CONFIG)?.ok_or_else(|| {
            corrupt(
                self.file.path(),
                "has no `config.json`, so it is no model of Keras 3: save it with model.save(\"….keras\")",
            )
        })
    }

    /// Which Keras wrote it, and when.
    pub(super) fn metadata(&self) -> Result<Option<String>, ImportError> {
        self.text(METADATA)
    }

    /// The weights, as a file of HDF5.
    pub(super) fn weights(&self) -> Result<Option<Vec<u8>>, ImportError> {
        self.member(WEIGHTS, None)
    }
}

/// Checks how long the directory at the end of a zip file is, before anything is made of it.
fn check_directory(file: &Positioned) -> Result<(), ImportError> {
    const END: &[u8] = b"PK\x05\x06";
    const END_BYTES: u64 = 22;
    const WIDE: u64 = 0xffff_ffff;
    let broken = |reason: &str| corrupt(file.path(), format!("{reason}: save it anew, or fetch it again"));
    let tail_bytes = file.len().min(END_BYTES + u64::from(u16::MAX));
    let tail = file.bytes_at(file.len() - tail_bytes, tail_bytes as usize)?;
    let end = tail.windows(END_BYTES as usize).rev().find(|window| window.starts_with(END));
    let end = end.ok_or_else(|| broken("is not a whole zip file"))?;
    let length = end[12..16].iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte));
    // All ones: the length stands elsewhere, which a directory of three files has no need of.
    if length == WIDE || length > MOST_DIRECTORY_BYTES {
        // Zip files beyond 4 GiB have the place of their directory elsewhere, but not its length.
        return Err(broken("has a directory that is too long for a model"));
    }
    Ok(())
}

/// A file with these three.
pub(super) fn bytes(config: &str, metadata: &str, weights: &[u8]) -> Result<Vec<u8>, ImportError> {
    let failed = |error: &dyn std::fmt::Display| ImportError::Weights {
        reason: format!("no zip file can be made of them: {error}"),
    };
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, contents) in [(METADATA, metadata.as_bytes()), (CONFIG, config.as_bytes()), (WEIGHTS, weights)] {
        // As Keras writes it: not packed.
        let large = contents.len() as u64 >= u64::from(u32::MAX);
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored).large_file(large);
        writer.start_file(name, options).map_err(|error| failed(&error))?;
        writer.write_all(contents).map_err(|error| failed(&error))?;
    }
    Ok(writer.finish().map_err(|error| failed(&error))?.into_inner())
}

//! Where the members of an archive lie.

use std::io::{Error, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use tar::{Archive, EntryType};

use super::{HINT, corrupt, io_error};
use crate::data::image::is_image;
use crate::error::DataError;
use crate::files::Positioned;
use crate::tensor::format_bytes;

/// Bytes of headers before one member: long names, and attributes.
const MAX_HEADER_BYTES: u64 = 1 << 20;
/// Names of samples are shorter.
const MAX_NAME_BYTES: usize = 4096;
/// How compressed archives begin, what they are called, and what unpacks them.
const COMPRESSED: [(&[u8], &str, &str); 4] = [
    (&[0x1f, 0x8b], "gzip", "gunzip"),
    (&[0x28, 0xb5, 0x2f, 0xfd], "zstd", "unzstd"),
    (&[0xfd, b'7', b'z', b'X', b'Z'], "xz", "unxz"),
    (b"BZh", "bzip2", "bunzip2"),
];

/// A file in an archive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Member {
    pub(super) shard: u32,
    pub(super) bytes: u32,
    pub(super) offset: u64,
}

/// Members that are one sample.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) key: String,
    pub(super) image: Option<Member>,
    pub(super) mask: Option<Member>,
    pub(super) label: Option<Member>,
    pub(super) name: Option<Member>,
    pub(super) json: Option<Member>,
}

impl Found {
    /// Where a member with this ending goes; `None` where it is of another kind.
    fn place(&mut self, ending: &str) -> Option<&mut Option<Member>> {
        Some(match ending {
            "seg.png" | "mask.png" => &mut self.mask,
            "cls" => &mut self.label,
            "txt" => &mut self.name,
            "json" => &mut self.json,
            _ if !ending.contains('.') && is_image(&format!("x.{ending}")) => &mut self.image,
            _ => return None,
        })
    }

    fn is_sample(&self) -> bool {
        [self.image, self.mask, self.label, self.name, self.json].iter().any(Option::is_some)
    }
}

/// A reader of headers. Between two of them, no more is read than belongs to one.
struct Headers<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Headers<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let most = buffer.len().min(self.left as usize);
        if most == 0 && !buffer.is_empty() {
            return Err(Error::other("a header is too long"));
        }
        let read = self.inner.read(&mut buffer[..most])?;
        self.left -= read as u64;
        Ok(read)
    }
}

impl<R: Seek> Seek for Headers<R> {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.left = MAX_HEADER_BYTES;
        self.inner.seek(to)
    }
}

/// The archives in a folder, sorted.
pub(super) fn archives_in(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let failed = |error| io_error(folder, error);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
        if name.starts_with('.') {
            continue;
        }
        if name.contains(".tar.") || name.ends_with(".tgz") {
            return Err(corrupt(
                &path,
                "is a compressed archive, of which no part can be read by its place: unpack it to .tar",
            ));
        }
        if name.ends_with(".tar") {
            found.push(path);
        }
    }
    if found.is_empty() {
        return Err(corrupt(folder, format!("has no archives, whose names end in .tar: {HINT}")));
    }
    found.sort_unstable();
    Ok(found)
}

/// Reads all headers, and gives each sample, whose members have at most `most_bytes`, to `sample`; returns how many members were left out.
pub(super) fn read(
    file: &Positioned,
    shard: u32,
    most_bytes: u64,
    mut sample: impl FnMut(Found) -> Result<(), DataError>,
) -> Result<usize, DataError> {
    let path = file.path();
    let mut first = [0; 8];
    if file.len() >= 8 {
        file.read_exact_at(&mut first, 0)?;
    }
    if let Some((_, name, command)) = COMPRESSED.iter().find(|(magic, ..)| first.starts_with(magic)) {
        let reason = format!(
            "is compressed with {name}, so no part of it can be read by its place: unpack it first, with {command}"
        );
        return Err(corrupt(path, reason));
    }
    let damaged = |error: &Error| {
        let words = error.to_string();
        let words: Vec<_> = words.split_whitespace().collect();
        corrupt(path, format!("is no whole tar archive ({}): make it again, or fetch it again", words.join(" ")))
    };
    let mut archive = Archive::new(Headers { inner: file.reader(0), left: MAX_HEADER_BYTES });
    let (mut left_out, mut last) = (0, Found::default());
    for entry in archive.entries_with_seek().map_err(|error| damaged(&error))? {
        let mut entry = entry.map_err(|error| damaged(&error))?;
        let kind = entry.header().entry_type();
        if matches!(kind, EntryType::Directory | EntryType::XGlobalHeader) {
            continue;
        }
        let name = match std::str::from_utf8(&entry.path_bytes()) {
            Ok(name) if name.len() <= MAX_NAME_BYTES => name.to_owned(),
            Ok(_) => {
                return Err(corrupt(
                    path,
                    format!("has a member whose name is longer than {MAX_NAME_BYTES} bytes: rename it"),
                ));
            }
            Err(_) => return Err(corrupt(path, "has a member whose name is not UTF-8: rename it")),
        };
        let shown = name.escape_debug();
        if is_sparse(&mut entry).map_err(|error| damaged(&error))? {
            return Err(corrupt(path, format!("has a sparse member `{shown}`: make it without --sparse")));
        }
        if !matches!(kind, EntryType::Regular | EntryType::Continuous) {
            return Err(corrupt(
                path,
                format!("has a member `{shown}` that is no file but a link or a device: make it with --dereference"),
            ));
        }
        let (offset, bytes) = (entry.raw_file_position(), entry.size());
        if offset.checked_add(bytes).is_none_or(|end| end > file.len()) {
            return Err(corrupt(
                path,
                format!("ends in the middle of its member `{shown}`: it was not copied as a whole, fetch it again"),
            ));
        }
        if bytes > most_bytes {
            let bytes = format_bytes(bytes);
            return Err(corrupt(
                path,
                format!(
                    "has a member `{shown}` of {bytes}: members of samples have at most {}",
                    format_bytes(most_bytes)
                ),
            ));
        }
        let base = name.rfind('/').map_or(0, |slash| slash + 1);
        let Some(dot) = name[base..].find('.').filter(|dot| *dot > 0) else {
            left_out += 1;
            continue;
        };
        let (key, ending) = (&name[..base + dot], name[base + dot + 1..].to_lowercase());
        if last.key != key {
            let before = std::mem::replace(&mut last, Found { key: key.to_owned(), ..Found::default() });
            if before.is_sample() {
                sample(before)?;
            }
        }
        let member = Member { shard, bytes: bytes as u32, offset };
        match last.place(&ending) {
            Some(place) if place.is_some() => {
                return Err(corrupt(
                    path,
                    format!("has two members for one thing of a sample, the second is `{shown}`: remove one"),
                ));
            }
            Some(place) => *place = Some(member),
            None => left_out += 1,
        }
    }
    if last.is_sample() {
        sample(last)?;
    }
    Ok(left_out)
}

/// Whether a member has holes, in the way of GNU or of POSIX.
fn is_sparse(entry: &mut tar::Entry<'_, impl Read>) -> std::io::Result<bool> {
    if entry.header().entry_type() == EntryType::GNUSparse {
        return Ok(true);
    }
    for extension in entry.pax_extensions()?.into_iter().flatten() {
        if extension?.key_bytes().starts_with(b"GNU.sparse.") {
            return Ok(true);
        }
    }
    Ok(false)
}

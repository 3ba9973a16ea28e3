//! Fetches MNIST: from several mirrors, resumable, and checked by SHA-256 before a file gets its name.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::io_error;
use crate::error::DataError;
use crate::files;

/// Where the MNIST files can be fetched, first choice first. Addresses end in `/`; a file's name is appended.
pub const MNIST_MIRRORS: [&str; 2] =
    ["https://storage.googleapis.com/cvdf-datasets/mnist/", "https://ossci-datasets.s3.amazonaws.com/mnist/"];

/// The four files of MNIST as first published.
pub const MNIST_FILES: [RemoteFile<'static>; 4] = [
    RemoteFile {
        name: "train-images-idx3-ubyte.gz",
        size_bytes: 9_912_422,
        sha256: "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    },
    RemoteFile {
        name: "train-labels-idx1-ubyte.gz",
        size_bytes: 28_881,
        sha256: "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    },
    RemoteFile {
        name: "t10k-images-idx3-ubyte.gz",
        size_bytes: 1_648_877,
        sha256: "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    },
    RemoteFile {
        name: "t10k-labels-idx1-ubyte.gz",
        size_bytes: 4_542,
        sha256: "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    },
];

/// A file on a mirror, and how to know that it arrived whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteFile<'a> {
    /// Its name on the mirror and in the folder.
    pub name: &'a str,
    /// Its size.
    pub size_bytes: u64,
    /// The SHA-256 of its bytes, 64 lower-case hexadecimal digits.
    pub sha256: &'a str,
}

/// How far the download of one file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress<'a> {
    /// The file's name.
    pub name: &'a str,
    /// Bytes that are on disk, those of an earlier try included.
    pub received_bytes: u64,
    /// The file's size.
    pub size_bytes: u64,
}

/// Fetches the four files of MNIST into `dir`, which is created if need be. Files that are there and right are kept.
/// `mirrors` is [`MNIST_MIRRORS`] unless you have one nearer.
///
/// # Errors
/// See [`fetch`].
pub fn mnist(dir: impl AsRef<Path>, mirrors: &[&str], progress: &mut dyn FnMut(Progress<'_>)) -> Result<(), DataError> {
    MNIST_FILES.iter().try_for_each(|file| fetch(dir.as_ref(), file, mirrors, progress))
}

/// Fetches one file into `dir`, which is created if need be; does nothing when it is there with the right contents.
///
/// The bytes go to `NAME.part`. If that is there from an earlier try, only what is missing is asked for. When size and
/// SHA-256 are right it is synced to disk and renamed to `NAME`, which therefore is never there half. A mirror that
/// fails is followed by the next; what it sent is kept if it was only cut short, and thrown away if it was wrong.
///
/// # Errors
/// [`DataError::Download`] when no mirror delivers, with what each of them said; [`DataError::Io`] when the disk fails or
/// another process is fetching the same file.
pub fn fetch(
    dir: &Path,
    file: &RemoteFile<'_>,
    mirrors: &[&str],
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<(), DataError> {
    let path = dir.join(file.name);
    if is_whole(&path, file)? {
        progress(Progress { name: file.name, received_bytes: file.size_bytes, size_bytes: file.size_bytes });
        return Ok(());
    }
    fs::create_dir_all(dir).map_err(|error| io_error(dir, error))?;
    let part_path = dir.join(format!("{}.part", file.name));
    let mut part = Part::open(&part_path, file)?;

    let mut failures = Vec::new();
    if part.received_bytes < file.size_bytes || !part.is_right() {
        if part.received_bytes == file.size_bytes {
            part.restart()?;
        }
        let agent = agent();
        let mut arrived = false;
        for mirror in mirrors {
            match part.receive(&agent, mirror, progress) {
                Ok(()) => {
                    arrived = true;
                    break;
                }
                Err(Failure::Mirror(reason)) => failures.push(format!("{mirror}: {reason}")),
                Err(Failure::Fatal(error)) => return Err(error),
            }
        }
        if !arrived {
            let reasons = if failures.is_empty() { "no mirror was given".into() } else { failures.join("; ") };
            return Err(DataError::Download {
                url: file.name.to_owned(),
                reason: format!("{reasons}; run it again to go on from byte {}", part.received_bytes),
            });
        }
    }

    part.output.sync_all().map_err(|error| io_error(&part_path, error))?;
    fs::rename(&part_path, &path).map_err(|error| io_error(&path, error))?;
    // Makes the new name last through a power cut. Windows cannot open a folder; there is nothing to do there.
    if let Ok(dir) = File::open(dir) {
        let _ = dir.sync_all();
    }
    Ok(())
}

fn agent() -> ureq::Agent {
    ureq::Agent::config_builder()
        .timeout_connect(Some(Duration::from_secs(15)))
        .timeout_recv_response(Some(Duration::from_secs(30)))
        // A limit on silence and not on the whole transfer: slow lines are fine.
        .timeout_per_read(Some(Duration::from_secs(30)))
        // Otherwise a server may send a `.gz` as an encoding, to be unpacked on arrival.
        .accept_encoding("identity")
        .http_status_as_error(false)
        .user_agent(concat!("tightfit/", env!("CARGO_PKG_VERSION")))
        .build()
        .into()
}

/// Whether the finished file is there with the right contents.
fn is_whole(path: &Path, file: &RemoteFile<'_>) -> Result<bool, DataError> {
    let (mut input, found_bytes) = match files::open_regular(path, "delete it") {
        Ok(opened) => opened,
        Err(DataError::Missing { .. }) => return Ok(false),
        Err(error) => return Err(error),
    };
    if found_bytes != file.size_bytes {
        return Ok(false);
    }
    let mut hash = Sha256::new();
    copy_into(&mut input, &mut hash, path)?;
    Ok(hex(hash) == file.sha256)
}

/// Why one mirror did not deliver.
enum Failure {
    /// The mirror's fault: try the next.
    Mirror(String),
    /// Our disk's fault: no mirror will help.
    Fatal(DataError),
}

impl From<DataError> for Failure {
    fn from(error: DataError) -> Self {
        Failure::Fatal(error)
    }
}

/// The unfinished file, open for writing at its end, with the hash of what it holds.
struct Part<'a> {
    file: &'a RemoteFile<'a>,
    path: &'a Path,
    output: File,
    hash: Sha256,
    received_bytes: u64,
}

impl<'a> Part<'a> {
    fn open(path: &'a Path, file: &'a RemoteFile<'a>) -> Result<Self, DataError> {
        if path.exists() {
            files::open_regular(path, "delete it")?;
        }
        let mut output = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(|error| io_error(path, error))?;
        match output.try_lock() {
            Err(TryLockError::WouldBlock) => {
                let busy = std::io::Error::new(
                    std::io::ErrorKind::ResourceBusy,
                    "another process is fetching this file; wait for it to end",
                );
                return Err(io_error(path, busy));
            }
            // Some network file systems know no locks. The hash still finds what two writers would spoil.
            Err(TryLockError::Error(_)) | Ok(()) => {}
        }
        let mut hash = Sha256::new();
        let received_bytes = copy_into(&mut output, &mut hash, path)?;
        let mut part = Part { file, path, output, hash, received_bytes };
        if part.received_bytes > file.size_bytes {
            part.restart()?;
        }
        Ok(part)
    }

    fn is_right(&self) -> bool {
        self.received_bytes == self.file.size_bytes && hex(self.hash.clone()) == self.file.sha256
    }

    /// Throws away what is there.
    fn restart(&mut self) -> Result<(), DataError> {
        self.output
            .set_len(0)
            .and_then(|()| self.output.seek(SeekFrom::Start(0)))
            .map_err(|error| io_error(self.path, error))?;
        self.hash = Sha256::new();
        self.received_bytes = 0;
        Ok(())
    }

    /// Gets what is missing from one mirror. If what an earlier try left turns out to be wrong, gets all of it.
    fn receive(
        &mut self,
        agent: &ureq::Agent,
        mirror: &str,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(), Failure> {
        let resumed = self.received_bytes > 0;
        self.receive_rest(agent, mirror, progress)?;
        if !self.is_right() && resumed {
            self.restart()?;
            self.receive_rest(agent, mirror, progress)?;
        }
        if self.is_right() {
            return Ok(());
        }
        let found = hex(self.hash.clone());
        self.restart()?;
        Err(Failure::Mirror(format!("sent other contents (SHA-256 {found}, expected {})", self.file.sha256)))
    }

    /// Appends from the mirror until the size is reached.
    fn receive_rest(
        &mut self,
        agent: &ureq::Agent,
        mirror: &str,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(), Failure> {
        let mirror_error = |error: ureq::Error| Failure::Mirror(error.to_string());
        let mut request = agent.get(format!("{mirror}{}", self.file.name));
        if self.received_bytes > 0 {
            request = request.header("Range", format!("bytes={}-", self.received_bytes));
        }
        let mut response = request.call().map_err(mirror_error)?;
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        match response.status().as_u16() {
            206 if self.received_bytes > 0 => {
                let range = header("content-range");
                if !range.starts_with(&format!("bytes {}-", self.received_bytes)) {
                    let asked = self.received_bytes;
                    return Err(Failure::Mirror(format!(
                        "sent the range `{range}` when asked for byte {asked} and on"
                    )));
                }
            }
            // It does not know ranges, or did not get one: this is the whole file.
            200 => self.restart()?,
            status => return Err(Failure::Mirror(format!("answered with status {status}"))),
        }

        let report =
            |received_bytes| Progress { name: self.file.name, received_bytes, size_bytes: self.file.size_bytes };
        progress(report(self.received_bytes));
        let mut input = response.body_mut().as_reader();
        let mut buffer = vec![0u8; 64 << 10];
        loop {
            let count =
                input.read(&mut buffer).map_err(|error| Failure::Mirror(format!("stopped sending: {error}")))?;
            if count == 0 {
                break;
            }
            if self.received_bytes + count as u64 > self.file.size_bytes {
                self.restart()?;
                return Err(Failure::Mirror(format!("sent more than the expected {} bytes", self.file.size_bytes)));
            }
            self.output.write_all(&buffer[..count]).map_err(|error| io_error(self.path, error))?;
            self.hash.update(&buffer[..count]);
            self.received_bytes += count as u64;
            progress(report(self.received_bytes));
        }
        if self.received_bytes < self.file.size_bytes {
            return Err(Failure::Mirror(format!(
                "stopped after {} of {} bytes",
                self.received_bytes, self.file.size_bytes
            )));
        }
        Ok(())
    }
}

/// Hashes the rest of a file; returns how many bytes that were.
fn copy_into(input: &mut File, hash: &mut Sha256, path: &Path) -> Result<u64, DataError> {
    let mut buffer = vec![0u8; 64 << 10];
    let mut total_bytes = 0;
    loop {
        match input.read(&mut buffer) {
            Ok(0) => return Ok(total_bytes),
            Ok(count) => {
                hash.update(&buffer[..count]);
                total_bytes += count as u64;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(io_error(path, error)),
        }
    }
}

fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

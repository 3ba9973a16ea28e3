//! Writing to a temporary file that then takes the name that was asked for, and what can be tried of it in advance.

use std::env;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Error, ErrorKind, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use super::access::{Access, create_new};
use super::io_error;
use crate::error::DataError;
use crate::tensor::format_bytes;

/// Symbolic links that are followed, as many as Linux follows.
const MOST_LINKS: usize = 40;
/// Tries for a name that nobody else has.
pub(super) const MOST_NAMES: u32 = 10_000;
/// What renaming says where the target must be written in place.
const NOT_REPLACEABLE: [ErrorKind; 3] =
    [ErrorKind::ResourceBusy, ErrorKind::PermissionDenied, ErrorKind::CrossesDevices];
const PREFIX: &str = ".tightfit-";
const SUFFIX: &str = ".tmp";

/// Writes to a temporary file beside `path`, syncs and renames it, so that no reader ever sees half a file.
///
/// # Errors
/// Where the file cannot be written.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), DataError> {
    write_with(path, |file| file.write_all(bytes).map_err(io_error(path)))
}

/// As [`write_whole`], with what `fill` writes.
///
/// A file that cannot be replaced, such as one that is mounted by itself or another owner's in a sticky folder, is written in
/// place once its contents are complete in a temporary file. On Unix, a file that is replaced keeps who may do what with it, and its
/// owner and group where that is permitted.
///
/// # Errors
/// Where `fill` fails or the file cannot be written.
pub(crate) fn write_with<E: From<DataError>>(
    path: &Path,
    fill: impl FnOnce(&mut File) -> Result<(), E>,
) -> Result<(), E> {
    let target = Target::of(path)?;
    let mut temporary = target.temporary()?;
    fill(&mut temporary.file)?;
    temporary.put(&target).map_err(io_error(path))?;
    Ok(())
}

/// Makes the folder that `path` is to be in, with those above it.
///
/// # Errors
/// Where it cannot be made.
pub fn make_folder_of(path: &Path) -> Result<(), DataError> {
    let folder = folder_of(path);
    fs::create_dir_all(folder).map_err(io_error(folder))
}

/// Makes sure, as far as that can be tried, that `size_bytes` can be written at `path`, without leaving a trace.
///
/// # Errors
/// Where they cannot: the folder is missing, read-only or full, the name is one that it does not take, or `path` names
/// something that is not a regular file or cannot be changed.
pub fn check_writable(path: &Path, size_bytes: u64) -> Result<(), DataError> {
    let target = Target::of(path)?;
    let mut temporary = target.temporary()?;
    fill_with_zeros(&mut temporary.file, size_bytes).map_err(|error| {
        io_error(path)(Error::new(
            error.kind(),
            format!("{error}; {} are to be written there", format_bytes(size_bytes)),
        ))
    })?;
    drop(temporary);
    if target.access.is_none() {
        // The name may be one that the file system does not take.
        File::create_new(&target.real).and_then(|_| fs::remove_file(&target.real)).map_err(io_error(path))?;
        return Ok(());
    }
    let replaceable = target.is_replaceable();
    match OpenOptions::new().write(true).open(&target.real) {
        // A file of a read-only file system in a folder that is none is mounted by itself.
        Err(error) if !replaceable || error.kind() == ErrorKind::ReadOnlyFilesystem => Err(io_error(path)(error)),
        _ => {
            if !replaceable {
                log::warn!(
                    "{}: the file cannot be replaced, only written in place, where a crash leaves half a file",
                    path.display()
                );
            }
            Ok(())
        }
    }
}

pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes new names in it last through a power cut. Windows cannot open a folder; there is nothing to do there.
pub(super) fn sync_folder(folder: &Path) {
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
}

/// As many zeros: a length alone would take no room on most file systems.
fn fill_with_zeros(file: &mut File, size_bytes: u64) -> io::Result<()> {
    io::copy(&mut io::Read::take(io::repeat(0), size_bytes.max(1)), file)?;
    file.sync_all()
}

/// The file that a path names.
struct Target {
    /// Through links, also through one that names nothing yet.
    real: PathBuf,
    /// Of the file that is there, if there is one.
    access: Option<Access>,
}

impl Target {
    /// Devices, pipes, folders, and files that the system makes up are no place for results.
    fn of(path: &Path) -> Result<Self, DataError> {
        if path.as_os_str().is_empty() {
            return Err(DataError::Mismatch("the path of a file to write is empty: give it a name".to_owned()));
        }
        let target = Target::through_links(path)?;
        if is_the_systems(&target.real) {
            return Err(DataError::Corrupt {
                path: path.to_owned(),
                reason: "among the files that the system makes up, so nothing can be kept there: give another name"
                    .to_owned(),
            });
        }
        Ok(target)
    }

    fn through_links(path: &Path) -> Result<Self, DataError> {
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_file() => {
                let real = fs::canonicalize(path).map_err(io_error(path))?;
                return Ok(Target { real, access: Some(Access::of(&metadata)) });
            }
            Ok(_) => {
                return Err(DataError::Corrupt {
                    path: path.to_owned(),
                    reason: "not a regular file, so nothing can be written there: give another name".to_owned(),
                });
            }
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(io_error(path)(error)),
            Err(_) => {}
        }
        let mut real = path.to_owned();
        for _ in 0..MOST_LINKS {
            match fs::read_link(&real) {
                Ok(link) => real = folder_of(&real).join(link),
                Err(_) => return Ok(Target { real, access: None }),
            }
        }
        Err(io_error(path)(Error::other("too many symbolic links")))
    }

    /// A temporary file beside the target, or where the folder is closed but the target is not, in the folder for such files.
    fn temporary(&self) -> Result<Temporary, DataError> {
        let (folder, exists) = (folder_of(&self.real), self.access.is_some());
        Temporary::new(folder, exists)
            .or_else(|error| {
                let writable = exists && OpenOptions::new().write(true).open(&self.real).is_ok();
                if writable { Temporary::new(&env::temp_dir(), exists).map_err(|_| error) } else { Err(error) }
            })
            .map_err(io_error(folder))
    }

    /// Whether another file can take its name.
    #[cfg(unix)]
    fn is_replaceable(&self) -> bool {
        use std::os::unix::fs::MetadataExt as _;
        // The system looks at whether the name may be removed before it finds that this is no folder.
        let removable = fs::remove_dir(&self.real).is_err_and(|error| error.kind() == ErrorKind::NotADirectory);
        let device = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev()).ok();
        removable && device(&self.real) == device(folder_of(&self.real))
    }

    #[cfg(not(unix))]
    fn is_replaceable(&self) -> bool {
        true
    }
}

/// Whether a file is in a folder of processes and devices, whose files take writing for orders, or not at all.
fn is_the_systems(path: &Path) -> bool {
    let folder = folder_of(path).canonicalize().unwrap_or_else(|_| folder_of(path).to_owned());
    cfg!(target_os = "linux") && ["/proc", "/sys"].iter().any(|system| folder.starts_with(system))
}

/// A file that is removed unless it becomes the target. It is locked, so that others see that it is in use.
struct Temporary {
    path: PathBuf,
    file: File,
}

impl Temporary {
    /// Where it is private, nobody else may read it.
    fn new(folder: &Path, private: bool) -> io::Result<Self> {
        remove_stale(folder);
        for attempt in 0..MOST_NAMES {
            let path = folder.join(format!("{PREFIX}{}-{attempt}{SUFFIX}", std::process::id()));
            let file = match create_new(&path, private) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                file => file?,
            };
            let temporary = Temporary { path, file };
            // Between creation and lock, another process may have taken it for one that was left behind.
            if !matches!(temporary.file.try_lock(), Err(TryLockError::WouldBlock)) && temporary.path.exists() {
                return Ok(temporary);
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// Makes it the target, or where the name cannot be given to another file, copies it there.
    fn put(&mut self, target: &Target) -> io::Result<()> {
        if let Some(access) = target.access {
            access.give(&self.file);
        }
        self.file.sync_all()?;
        match fs::rename(&self.path, &target.real) {
            Ok(()) => {
                self.path.clear();
                sync_folder(folder_of(&target.real));
                Ok(())
            }
            // What a file that is mounted by itself, one of another owner, and one on another file system say.
            Err(error) if target.access.is_some() && NOT_REPLACEABLE.contains(&error.kind()) => self.copy(&target.real),
            Err(error) => Err(error),
        }
    }

    fn copy(&mut self, to: &Path) -> io::Result<()> {
        let mut output = OpenOptions::new().write(true).open(to)?;
        self.file.rewind()?;
        let length = io::copy(&mut self.file, &mut output)?;
        output.set_len(length)?;
        output.sync_all()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // It has no path any more where it became the target.
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes temporary files of processes that were killed: those that nobody has locked. What cannot be removed stays.
fn remove_stale(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_ours = name.to_str().is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX));
        if !is_ours || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        if OpenOptions::new().write(true).open(entry.path()).is_ok_and(|file| file.try_lock().is_ok()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::names;

    #[test]
    fn files_of_killed_processes_go_and_those_in_use_stay() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let at = |name: &str| folder.path().join(name);
        for name in [".tightfit-1-0.tmp", ".tightfit-1-1.tmp", ".other-1-0.tmp"] {
            fs::write(at(name), "half").expect("writes");
        }
        let in_use = File::open(at(".tightfit-1-1.tmp")).expect("is there");
        in_use.try_lock().expect("is free");
        write_whole(&at("w"), b"whole").expect("writes");
        assert_eq!(names(folder.path()), [".other-1-0.tmp", ".tightfit-1-1.tmp", "w"]);
        drop(in_use);
        check_writable(&at("w"), 100).expect("can be written");
        assert_eq!(names(folder.path()), [".other-1-0.tmp", "w"]);
        assert_eq!(fs::read(at("w")).expect("reads"), b"whole");
    }

    #[test]
    fn what_fails_leaves_no_trace() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("w");
        write_whole(&path, b"old").expect("writes");
        let failed = write_with(&path, |file| {
            file.write_all(b"new").expect("writes");
            Err(DataError::Mismatch("no".to_owned()))
        });
        assert!(failed.is_err());
        assert_eq!((names(folder.path()), fs::read(&path).expect("reads")), (vec!["w".to_owned()], b"old".to_vec()));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn files_that_the_system_makes_up_are_refused() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/proc/self/comm", &link).expect("links");
        for path in [Path::new("/proc/x"), Path::new("/proc/self/comm"), Path::new("/sys/x"), &link] {
            let text = check_writable(path, 1).expect_err("refused").to_string();
            assert!(
                text.starts_with(&format!("{}: ", path.display())) && text.contains("the system makes up"),
                "{text}"
            );
        }
        // By its name alone.
        check_writable(&folder.path().join("proc"), 1).expect("can be written");
    }

    #[test]
    fn room_is_tried_for() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        check_writable(&folder.path().join("w"), 1 << 20).expect("a megabyte");
        assert!(names(folder.path()).is_empty());
        let missing = folder.path().join("missing/w");
        assert!(check_writable(&missing, 1).is_err() && check_writable(folder.path(), 1).is_err());
    }
}

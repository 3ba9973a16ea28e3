//! Who may do what with a file, for another that takes its place.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::path::Path;

/// Who may read and write a file, and whose it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    #[cfg(unix)]
    mode: u32,
    #[cfg(unix)]
    owner: u32,
    #[cfg(unix)]
    group: u32,
}

impl Access {
    #[cfg(unix)]
    pub(super) fn of(metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        Access { mode: metadata.mode() & 0o777, owner: metadata.uid(), group: metadata.gid() }
    }

    #[cfg(not(unix))]
    pub(super) fn of(_metadata: &Metadata) -> Self {
        Access {}
    }

    /// Gives a file that is private so far the same access, and no more to anyone: what cannot be given is left out.
    #[cfg(unix)]
    pub(super) fn give(self, file: &File) {
        use std::fs::Permissions;
        use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
        let _ = fchown(file, Some(self.owner), None);
        let _ = fchown(file, None, Some(self.group));
        let has_group = file.metadata().is_ok_and(|found| found.gid() == self.group);
        // Another group is anyone.
        let group_bits = if has_group { self.mode & 0o070 } else { (self.mode & 0o007) << 3 & self.mode };
        let _ = file.set_permissions(Permissions::from_mode(self.mode & 0o707 | group_bits));
    }

    #[cfg(not(unix))]
    pub(super) fn give(self, _file: &File) {}
}

/// A new file, on Unix for nobody else where it is private; fails where there is one.
pub(super) fn create_new(path: &Path, private: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    if private {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    #[cfg(not(unix))]
    let _ = private;
    options.open(path)
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
    use std::path::Path;

    use super::super::elsewhere::elsewhere;
    use super::super::write::{write_whole, write_with};
    use crate::error::DataError;

    #[test]
    fn a_file_that_is_replaced_keeps_its_access() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("w");
        write_whole(&path, b"new").expect("writes");
        let fresh = folder.path().join("fresh");
        fs::write(&fresh, "as the umask says").expect("writes");
        let mode = |path: &Path| fs::metadata(path).expect("is there").mode() & 0o7777;
        assert_eq!(mode(&path), mode(&fresh));
        // Where that is permitted, another owner and group too.
        let foreign = chown(&path, Some(1234), Some(4321)).is_ok();
        for wanted in [0o600, 0o640, 0o400, 0o666, 0o711] {
            fs::set_permissions(&path, Permissions::from_mode(wanted)).expect("sets");
            let filled = write_with(&path, |_| {
                let temporary = fs::read_dir(folder.path()).expect("reads").map(|entry| entry.expect("reads").path());
                let private = temporary.filter(|path| path.extension().is_some_and(|extension| extension == "tmp"));
                assert_eq!(private.map(|path| mode(&path)).collect::<Vec<_>>(), [0o600]);
                Ok::<(), DataError>(())
            });
            filled.expect("writes");
            assert_eq!(mode(&path), wanted, "{wanted:o}");
            let found = fs::metadata(&path).expect("is there");
            assert!(!foreign || (found.uid(), found.gid()) == (1234, 4321));
            let copy = elsewhere(&path, |place| write_whole(place, b"learned")).expect("writes");
            assert_ne!(copy, path);
            assert_eq!(mode(&copy), wanted, "{wanted:o}");
        }
    }

    #[test]
    fn a_group_that_cannot_be_given_is_anyone() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (mode, without) in [(0o640, 0o600), (0o664, 0o644), (0o606, 0o606), (0o777, 0o777)] {
            let path = folder.path().join("w");
            let file = super::create_new(&path, true).expect("creates");
            let found = file.metadata().expect("is there");
            // No group has this number, not even where every other may be given.
            super::Access { mode, owner: found.uid(), group: u32::MAX }.give(&file);
            assert_eq!(file.metadata().expect("is there").mode() & 0o7777, without, "{mode:o}");
            fs::remove_file(path).expect("removes");
        }
    }
}

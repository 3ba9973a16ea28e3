//! When a fit writes checkpoints, and which of them stay.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use web_time::Instant;

use super::monitor::Monitor;
use crate::error::{DataError, TrainError};

/// When a fit writes checkpoints: after each epoch, when it ends, and besides as it is set here. All go into one folder, each in a
/// folder of its own: `step-00000120`.
///
/// ```
/// use std::time::Duration;
/// use tightfit::train::Checkpoints;
///
/// let checkpoints = Checkpoints::new("runs/1/checkpoints").every_steps(500).every(Duration::from_secs(600)).keep(3);
/// # let _ = checkpoints;
/// ```
#[derive(Clone, Debug)]
pub struct Checkpoints {
    folder: PathBuf,
    every_steps: Option<u64>,
    every: Option<Duration>,
    each_epoch: bool,
    keep: usize,
    best: Option<Monitor>,
    last: Instant,
}

impl Checkpoints {
    /// In this folder, which is made where there is none. The newest two stay.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        let folder = folder.into();
        Checkpoints {
            folder,
            every_steps: None,
            every: None,
            each_epoch: true,
            keep: 2,
            best: None,
            last: Instant::now(),
        }
    }

    /// After each so many steps, too.
    #[must_use]
    pub fn every_steps(mut self, steps: u64) -> Self {
        self.every_steps = Some(steps.max(1));
        self
    }

    /// Where so much time has gone by since the last one, too.
    #[must_use]
    pub fn every(mut self, time: Duration) -> Self {
        self.every = Some(time);
        self
    }

    /// Whether one is written after each epoch (yes by default).
    #[must_use]
    pub fn each_epoch(mut self, each: bool) -> Self {
        self.each_epoch = each;
        self
    }

    /// How many of the newest stay, at least one.
    #[must_use]
    pub fn keep(mut self, count: usize) -> Self {
        self.keep = count.max(1);
        self
    }

    /// Keeps the checkpoint of the best epoch besides, in a folder such as `best-00000120`.
    #[must_use]
    pub fn best(mut self, monitor: Monitor) -> Self {
        self.best = Some(monitor);
        self
    }

    pub(super) fn monitor(&self) -> Option<&Monitor> {
        self.best.as_ref()
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn is_due_after_epoch(&self) -> bool {
        self.each_epoch
    }

    /// Whether one is due after a step of this number.
    pub(super) fn is_due(&self, steps: u64) -> bool {
        self.every_steps.is_some_and(|every| steps.is_multiple_of(every))
            || self.every.is_some_and(|every| self.last.elapsed() >= every)
    }

    /// Has the checkpoint of a step written, and removes those that are too many.
    pub(super) fn write(
        &mut self,
        steps: u64,
        write: impl FnOnce(&Path) -> Result<(), TrainError>,
    ) -> Result<PathBuf, TrainError> {
        let path = self.put("step", steps, write)?;
        self.last = Instant::now();
        self.remove_all_but("step", self.keep)?;
        Ok(path)
    }

    /// As [`write`](Self::write), of the best epoch so far.
    pub(super) fn write_best(
        &mut self,
        steps: u64,
        write: impl FnOnce(&Path) -> Result<(), TrainError>,
    ) -> Result<PathBuf, TrainError> {
        let path = self.put("best", steps, write)?;
        self.remove_all_but("best", 1)?;
        Ok(path)
    }

    fn put(
        &self,
        kind: &str,
        steps: u64,
        write: impl FnOnce(&Path) -> Result<(), TrainError>,
    ) -> Result<PathBuf, TrainError> {
        let io = |source| DataError::Io { path: self.folder.clone(), source };
        fs::create_dir_all(&self.folder).map_err(io)?;
        let path = self.folder.join(format!("{kind}-{steps:08}"));
        let old = format!("old-{kind}");
        if path.exists() {
            // Of the same step, from before training went on, or before the end of the epoch that ends with it.
            let aside = self.folder.join(format!("{old}-{steps:08}"));
            let _ = fs::remove_dir_all(&aside);
            fs::rename(&path, &aside).map_err(io)?;
        }
        write(&path)?;
        // That one, and what a killed process left.
        self.remove_all_but(&old, 0)?;
        Ok(path)
    }

    fn remove_all_but(&self, kind: &str, keep: usize) -> Result<(), TrainError> {
        let io = |source| DataError::Io { path: self.folder.clone(), source };
        let paths = fs::read_dir(&self.folder).map_err(io)?.flatten().map(|entry| entry.path());
        let is_one = |path: &PathBuf| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            name.strip_prefix(kind).and_then(|rest| rest.strip_prefix('-')?.parse::<u64>().ok()).is_some()
        };
        let mut paths: Vec<_> = paths.filter(is_one).collect();
        paths.sort_unstable();
        let too_many = paths.len().saturating_sub(keep);
        paths[..too_many].iter().for_each(|path| remove(path));
        Ok(())
    }
}

fn remove(folder: &Path) {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            log::warn!("{}: it could not be removed ({error})", folder.display());
        }
        _ => {}
    }
}

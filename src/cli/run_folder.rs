//! Run folders: all files of one training, of which one process at a time writes.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tightfit::command::files;
use tightfit::interop;
use tightfit::models;
use tightfit::train::{Callback, Checkpoint, Checkpoints, FitReport, Logger, PlanFile, Replan, Trainer};

use super::failure::Failure;
use super::run_file::RunFile;

/// Far more than a summary takes.
const MAX_SUMMARY_BYTES: u64 = 16 << 20;
const MAX_CONFIG_BYTES: u64 = 16 << 20;

/// How often a lock is tried again, and how long is waited before that.
const LOCK_TRIES: u32 = 3;
const LOCK_WAIT: Duration = Duration::from_millis(50);

const CONFIG: &str = "config.toml";
/// The copy of a model's TOML.
const MODEL: &str = "model.toml";
/// Copies of models' files of other frameworks, under their names: that of a model in ONNX is its file's.
const ORIGINAL: &str = "original";
const LOCK: &str = "lock";
const SUMMARY: &str = "summary.json";

/// Where the copy of a model's file is in a run folder.
fn copy_of(path: &Path) -> PathBuf {
    match path.file_name() {
        Some(name) if interop::is_model_file(path) => Path::new(ORIGINAL).join(name),
        _ => PathBuf::from(MODEL),
    }
}

/// Where a training is, as its folder tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Running,
    Finished,
    Interrupted,
    Failed,
}

impl Status {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Status::Running => "running",
            Status::Finished => "finished",
            Status::Interrupted => "interrupted",
            Status::Failed => "failed",
        }
    }
}

/// A run folder, whoever uses it.
#[derive(Clone, Debug)]
pub(crate) struct RunPath(PathBuf);

impl RunPath {
    /// A folder; `None` where it holds no training.
    pub(crate) fn find(path: &Path) -> Option<Self> {
        path.join(CONFIG).is_file().then(|| RunPath(path.to_owned()))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The file of its settings.
    pub(crate) fn config_path(&self) -> PathBuf {
        self.at(CONFIG)
    }

    /// The settings of its training.
    pub(crate) fn config(&self) -> Result<RunFile, Failure> {
        let path = self.config_path();
        let hint = "a run folder is expected: `tightfit train … --run DIR` makes one";
        let text = String::from_utf8_lossy(&files::read(&path, MAX_CONFIG_BYTES, hint)?).into_owned();
        RunFile::parse(&text, &path)
    }

    /// What the training came to, where its end was written: an object with an error where it failed.
    pub(crate) fn summary(&self) -> Option<Value> {
        let bytes = files::read(&self.at(SUMMARY), MAX_SUMMARY_BYTES, "").ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Where its training is. What ended without a word was killed.
    pub(crate) fn status(&self) -> Status {
        // What is no file, such as a pipe, may never open.
        let lock = Some(self.at(LOCK)).filter(|path| path.is_file()).and_then(|path| File::open(path).ok());
        if lock.is_some_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock))) {
            return Status::Running;
        }
        match self.summary() {
            Some(summary) if summary.get("error").is_some() => Status::Failed,
            Some(summary) if summary["interrupted"] == false => Status::Finished,
            _ => Status::Interrupted,
        }
    }

    /// The checkpoint to go on from: the newest that is whole; none where none was written yet.
    pub(crate) fn checkpoint(&self) -> Result<Option<Checkpoint>, Failure> {
        if !self.has_checkpoint() {
            return Ok(None);
        }
        Ok(Some(Checkpoint::open_latest(self.checkpoints())?))
    }

    /// Whether a checkpoint was written.
    pub(crate) fn has_checkpoint(&self) -> bool {
        // Parts of one are hidden.
        let is_written = |name: &str| !name.starts_with('.');
        let mut entries = fs::read_dir(self.checkpoints()).into_iter().flatten().flatten();
        entries.any(|entry| entry.file_name().to_str().is_some_and(is_written))
    }

    pub(crate) fn checkpoints(&self) -> PathBuf {
        self.at("checkpoints")
    }
}

/// A run folder that this process writes.
#[derive(Debug)]
pub(crate) struct RunFolder {
    path: RunPath,
    /// Held as long as this process lives, however it ends.
    _lock: File,
    /// Whether the training's settings are in it: what has none is no run, and goes again.
    is_run: bool,
    /// Whether it is of this process.
    is_new: bool,
}

impl RunFolder {
    /// A folder for a new training; it is made where there is none.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        let io = |error| Failure::bad_input(format!("--run {shown}: {error}"));
        let entries = match fs::read_dir(path) {
            Ok(entries) => entries.flatten().map(|entry| entry.file_name()).collect(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(io(error)),
        };
        if let Some(run) = RunPath::find(path) {
            return Err(Failure::bad_input(match run.status() {
                Status::Running => {
                    format!("--run {shown}: another process trains in this folder: give this training another one")
                }
                Status::Finished => {
                    format!(
                        "--run {shown}: it holds a training that is finished: give this one another folder, or delete that one"
                    )
                }
                status => format!(
                    "--run {shown}: it holds a training that is {}: `tightfit resume {shown}` goes on with it, or give this one \
                     another folder",
                    status.name()
                ),
            }));
        }
        // What a training left that was killed before it began goes again.
        let is_left = |name: &OsString| {
            [LOCK, MODEL, ORIGINAL].iter().any(|own| name == own) || name.as_encoded_bytes().starts_with(b".")
        };
        if let Some(other) = entries.iter().find(|name| !is_left(name)) {
            return Err(Failure::bad_input(format!(
                "--run {shown}: it holds other files, such as {}: give a folder that is new or empty",
                other.display()
            )));
        }
        fs::create_dir_all(path).map_err(io)?;
        RunFolder::locked(RunPath(path.to_owned()), false)
    }

    /// The folder of a training to go on with.
    pub(crate) fn open(run: RunPath) -> Result<Self, Failure> {
        RunFolder::locked(run, true)
    }

    fn locked(path: RunPath, is_run: bool) -> Result<Self, Failure> {
        let shown = path.path().display().to_string();
        let io = |error| Failure::bad_input(format!("{shown}: {error}"));
        if path.at(LOCK).symlink_metadata().is_ok_and(|found| !found.is_file()) {
            return Err(Failure::bad_input(format!("{shown}/{LOCK}: it is no file: remove it")));
        }
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(path.at(LOCK)).map_err(io)?;
        let mut locked = lock.try_lock();
        // Whoever looks at a run holds its lock for a moment, too.
        for _ in 0..LOCK_TRIES {
            if matches!(locked, Err(TryLockError::WouldBlock)) {
                std::thread::sleep(LOCK_WAIT);
                locked = lock.try_lock();
            }
        }
        match locked {
            Ok(()) => Ok(RunFolder { path, _lock: lock, is_run, is_new: !is_run }),
            Err(TryLockError::WouldBlock) => Err(Failure::bad_input(format!(
                "{shown}: another process trains in this folder: wait until it has ended"
            ))),
            Err(TryLockError::Error(error)) => Err(io(error)),
        }
    }

    pub(crate) fn run(&self) -> &RunPath {
        &self.path
    }

    pub(crate) fn path(&self) -> &Path {
        self.path.path()
    }

    /// Whether a training began in it.
    pub(crate) fn is_run(&self) -> bool {
        self.is_run
    }

    /// Forgets a training that could not begin, so that the folder is free for another.
    pub(crate) fn discard(&mut self) {
        if !self.is_new || self.path.has_checkpoint() {
            return;
        }
        for name in [MODEL, CONFIG, "plan.json", "memory.svg"] {
            let _ = fs::remove_file(self.path.at(name));
        }
        for folder in ["log", ORIGINAL] {
            let _ = fs::remove_dir_all(self.path.at(folder));
        }
        let _ = fs::remove_dir(self.path.checkpoints());
        self.is_run = false;
    }

    /// The file for the trained parameters.
    pub(crate) fn weights(&self) -> PathBuf {
        self.path.at("model.safetensors")
    }

    /// Writes what the training is told, with a copy of the model's file: it may change.
    pub(crate) fn write_config(&mut self, file: &RunFile) -> Result<(), Failure> {
        let mut file = file.clone();
        let is_built_in = file.model().to_str().is_some_and(|name| models::builtin(name).is_some());
        if !is_built_in {
            let name = copy_of(&file.model.name);
            let own = self.path.path().join(&name);
            let is_copied =
                own.canonicalize().is_ok_and(|own| file.model.name.canonicalize().is_ok_and(|name| name == own));
            if !is_copied {
                let path = &file.model.name;
                let most = if interop::is_model_file(path) { u64::MAX } else { MAX_CONFIG_BYTES };
                let contents = files::read(path, most, "")?;
                if let Some(folder) = own.parent() {
                    fs::create_dir_all(folder)
                        .map_err(|error| Failure::unwritten(format!("{}: {error}", folder.display())))?;
                }
                files::write_whole(&own, &contents)?;
            }
            file.model.name = name;
        }
        files::write_whole(&self.path.at(CONFIG), file.to_toml()?.as_bytes())?;
        self.is_run = true;
        // The end of what came before is none any more.
        match fs::remove_file(self.path.at(SUMMARY)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Failure::unwritten(format!("{}: {error}", self.path.at(SUMMARY).display())))
            }
            _ => Ok(()),
        }
    }

    /// Writes the plan and its picture.
    pub(crate) fn write_plan(&self, trainer: &Trainer) -> Result<(), Failure> {
        let mut file = PlanFile::new(trainer.model(), trainer.config(), trainer.plan().clone());
        if let Some(source) = trainer.cost_source() {
            file = file.with_costs(source.clone());
        }
        file.save(self.path.at("plan.json"))?;
        let svg = trainer.planned().to_svg(trainer.model().name());
        Ok(files::write_whole(&self.path.at("memory.svg"), svg.as_bytes())?)
    }

    /// Writes what the epochs and steps came to.
    pub(crate) fn write_history(&self, trainer: &Trainer, report: &FitReport) -> Result<(), Failure> {
        let unwritten = |error: tightfit::error::DataError| Failure::unwritten(error.to_string());
        let json = serde_json::to_vec(&report.history).expect("bug: a history that JSON cannot hold");
        files::write_whole(&self.path.at("history.json"), &json).map_err(unwritten)?;
        let svg = report.history.svg(trainer.model().name());
        files::write_whole(&self.path.at("history.svg"), svg.as_bytes()).map_err(unwritten)
    }

    /// Writes how the training ended.
    pub(crate) fn write_summary(&self, summary: &Value) -> Result<(), Failure> {
        let json = serde_json::to_vec_pretty(summary).expect("bug: a summary that JSON cannot hold");
        let written = files::write_whole(&self.path.at(SUMMARY), &[&json[..], b"\n"].concat());
        written.map_err(|error| Failure::unwritten(error.to_string()))
    }

    /// The logs that are asked for.
    pub(crate) fn logger(&self, file: &RunFile) -> Logger {
        let folder = self.path.at("log");
        let mut logger = Logger::new();
        if file.log.csv.unwrap_or(true) {
            logger = logger.csv(&folder);
        }
        if file.log.jsonl.unwrap_or(true) {
            logger = logger.jsonl(folder.join("log.jsonl"));
        }
        if file.log.tensorboard.unwrap_or(true) {
            logger = logger.tensorboard(folder.join("tensorboard"));
        }
        logger
    }

    /// When checkpoints are written.
    pub(crate) fn checkpoints(&self, file: &RunFile) -> Checkpoints {
        let settings = &file.checkpoint;
        let mut checkpoints = Checkpoints::new(self.path.checkpoints());
        if let Some(steps) = settings.every_steps {
            checkpoints = checkpoints.every_steps(steps.get());
        }
        if let Some(minutes) = settings.every_minutes {
            checkpoints = checkpoints.every(Duration::from_secs_f64(minutes * 60.0));
        }
        if let Some(each) = settings.each_epoch {
            checkpoints = checkpoints.each_epoch(each);
        }
        if let Some(keep) = settings.keep {
            checkpoints = checkpoints.keep(keep.get());
        }
        match &settings.best {
            Some(monitor) => checkpoints.best(monitor.clone()),
            None => checkpoints,
        }
    }
}

/// Another plan is another file.
impl Callback for RunFolder {
    fn name(&self) -> &'static str {
        "run_folder"
    }

    fn on_replan(&mut self, trainer: &mut Trainer, _: &Replan) -> Result<(), tightfit::error::TrainError> {
        self.on_reconfigure(trainer)
    }

    fn on_reconfigure(&mut self, trainer: &mut Trainer) -> Result<(), tightfit::error::TrainError> {
        if let Err(failure) = self.write_plan(trainer) {
            log::warn!("{}", failure.message);
        }
        Ok(())
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        if !self.is_run {
            let _ = fs::remove_file(self.path.at(LOCK));
            // Only an empty folder goes.
            let _ = fs::remove_dir(self.path.path());
        }
    }
}

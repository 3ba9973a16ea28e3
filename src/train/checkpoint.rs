//! Checkpoints: folders from which a fit goes on as if it had not been interrupted.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::callbacks::CallbackState;
use super::groups::FirstSteps;
use super::history::History;
use super::loss_scale::ScalingState;
use super::run::Run;
use super::weights::{Layout, ReadTensor};
use crate::error::{DataError, DeviceError, TrainError};
use crate::files;
use crate::tensor::{TensorDesc, hex};

const FORMAT: &str = "tightfit-checkpoint";
const VERSION: u32 = 1;
/// Parameters and buffers, by the names of PyTorch's `state_dict`.
pub(super) const MODEL: &str = "model.safetensors";
/// Optimizer state, moving averages, and what is carried from batch to batch.
const OPTIMIZER: &str = "optimizer.safetensors";
/// What callbacks keep, each tensor after its callback's name and a slash.
const CALLBACKS: &str = "callbacks.safetensors";
/// Everything else.
const STATE: &str = "state.json";
/// As `sha256sum -c` reads it.
const SUMS: &str = "SHA256SUMS";
/// Far more than the state of a training takes.
const MAX_STATE_BYTES: u64 = 256 << 20;
const MAX_SUMS_BYTES: u64 = 1 << 16;

/// Where a training is, besides its tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) model: String,
    pub(super) batch: usize,
    pub(super) seed: u64,
    /// Its kind, and all its settings.
    pub(super) optimizer: Value,
    pub(super) ema_decay: Option<f32>,
    pub(super) lr: f64,
    pub(super) lr_scale: f64,
    #[serde(default)]
    pub(super) loss_scale: ScalingState,
    pub(super) steps: u64,
    pub(super) epochs: u64,
    pub(super) schedule_step: u64,
    pub(super) schedule_steps: Option<u64>,
    /// Samples of each micro-batch.
    pub(super) micro_batches: Vec<usize>,
    pub(super) trained: Option<Trained>,
    /// The fit at hand.
    pub(super) run: Option<Run>,
}

impl State {
    /// Steps that were not skipped.
    pub(super) fn updates(&self) -> u64 {
        self.steps.saturating_sub(self.loss_scale.skipped_steps())
    }
}

/// Which parameters are trained.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Trained {
    pub(super) freeze: Vec<String>,
    pub(super) train_only: Vec<String>,
    /// Since which step, where that is not the first.
    pub(super) first_steps: FirstSteps,
}

/// A fit that goes on.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pending {
    pub(super) run: Run,
    pub(super) callbacks: BTreeMap<String, CallbackState>,
}

/// The contents of the file with everything but tensors.
#[derive(Serialize, Deserialize)]
struct Contents {
    format: String,
    version: u32,
    state: State,
    callbacks: BTreeMap<String, CallbackState>,
}

/// Writes all that lasts: the model and the rest by `read`, one after the other.
pub(super) fn write(
    folder: &Path,
    layouts: [&Layout; 2],
    state: &State,
    callbacks: &BTreeMap<String, CallbackState>,
    read: &mut ReadTensor<'_>,
) -> Result<(), TrainError> {
    let (format, version) = (FORMAT.to_owned(), VERSION);
    let contents = Contents { format, version, state: state.clone(), callbacks: callbacks.clone() };
    let json = serde_json::to_vec_pretty(&contents).expect("bug: a state that JSON cannot hold");
    files::write_folder(folder, |parts| {
        let mut sums = String::new();
        for (name, layout) in [MODEL, OPTIMIZER].into_iter().zip(layouts) {
            let path = parts.join(name);
            sums += &summed(&path, name, |file| layout.write(&folder.join(name), file, state.updates(), read))?;
        }
        let (layout, tensors) = layout_of(callbacks);
        if !tensors.is_empty() {
            let mut read = |name: &str, visit: &mut dyn FnMut(&[u8])| {
                visit(bytemuck::cast_slice(tensors[name]));
                Ok(())
            };
            let path = parts.join(CALLBACKS);
            sums += &summed(&path, CALLBACKS, |file| layout.write(&folder.join(CALLBACKS), file, 0, &mut read))?;
        }
        sums += &summed(&parts.join(STATE), STATE, |file| Ok(file.write_all(&json).map_err(io_of(folder))?))?;
        Ok(files::write_whole(&parts.join(SUMS), sums.as_bytes())?)
    })
}

fn io_of(path: &Path) -> impl FnOnce(io::Error) -> DataError + use<> {
    let path = path.to_owned();
    |source| DataError::Io { path, source }
}

/// The tensors of callbacks, and how a file holds them.
fn layout_of(callbacks: &BTreeMap<String, CallbackState>) -> (Layout, BTreeMap<String, &[f32]>) {
    let tensors = callbacks.iter().flat_map(|(callback, state)| {
        state.tensors.iter().map(move |(name, values)| (format!("{callback}/{name}"), &values[..]))
    });
    let tensors: BTreeMap<_, _> = tensors.collect();
    let descs = tensors.iter().map(|(name, values)| (name.clone(), TensorDesc::f32([values.len()])));
    (Layout { tensors: descs.collect(), ..Layout::default() }, tensors)
}

/// Writes a file; the line of it for the file of sums.
fn summed(
    path: &Path,
    name: &str,
    fill: impl FnOnce(&mut dyn Write) -> Result<(), TrainError>,
) -> Result<String, TrainError> {
    let mut hasher = Sha256::new();
    files::write_with(path, |file| fill(&mut Hashing { file, hasher: &mut hasher }))?;
    Ok(format!("{}  {name}\n", hex(&hasher.finalize())))
}

/// Writes on, and adds up.
struct Hashing<'a> {
    file: &'a mut File,
    hasher: &'a mut Sha256,
}

impl Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A checkpoint in a folder, whose sums were seen to be right.
///
/// | file | contents |
/// |---|---|
/// | `model.safetensors` | parameters and buffers, by the names of PyTorch's `state_dict` |
/// | `optimizer.safetensors` | optimizer state, moving averages, states that are carried from batch to batch |
/// | `callbacks.safetensors` | what callbacks keep, such as the best parameters so far; only where they do |
/// | `state.json` | step, epoch, place in the data, learning rate, loss scale, seed, micro-batches, history, and what callbacks remember |
/// | `SHA256SUMS` | of all these, as `sha256sum -c` reads it |
#[derive(Clone, Debug)]
pub struct Checkpoint {
    path: PathBuf,
    pub(super) state: State,
    pub(super) callbacks: BTreeMap<String, CallbackState>,
}

impl Checkpoint {
    /// Reads a checkpoint, and makes sure that nothing in it is missing or was changed.
    ///
    /// # Errors
    /// Where there is none, or it is not whole.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, TrainError> {
        let path = path.as_ref();
        let hint = "`tightfit train … --run DIR --checkpoint-every N` writes checkpoints";
        if !path.join(SUMS).is_file() {
            let hint = format!("a folder with a checkpoint is expected; {hint}");
            return Err(DataError::Missing { path: path.join(SUMS), hint }.into());
        }
        let corrupt = |name: &str, reason: String| DataError::Corrupt { path: path.join(name), reason };
        let sums = files::read(&path.join(SUMS), MAX_SUMS_BYTES, hint)?;
        let sums = String::from_utf8(sums).map_err(|_| corrupt(SUMS, "not a list of sums".to_owned()))?;
        let listed: BTreeMap<_, _> =
            sums.lines().filter_map(|line| line.split_once("  ")).map(|(sum, name)| (name, sum)).collect();
        for name in [MODEL, OPTIMIZER, STATE] {
            if !listed.contains_key(name) {
                return Err(corrupt(SUMS, format!("it does not list {name}: take another checkpoint")).into());
            }
        }
        for (&name, &expected) in &listed {
            if ![MODEL, OPTIMIZER, CALLBACKS, STATE].contains(&name) {
                return Err(
                    corrupt(SUMS, format!("it lists `{}`, which no checkpoint has", name.escape_debug())).into()
                );
            }
            if sha256(&path.join(name))? != expected {
                let reason = "it is not what was written (its SHA-256 differs): take another checkpoint".to_owned();
                return Err(corrupt(name, reason).into());
            }
        }
        let json = files::read(&path.join(STATE), MAX_STATE_BYTES, hint)?;
        let not_one = |error: serde_json::Error| corrupt(STATE, format!("not the state of a training ({error})"));
        let header: Value = serde_json::from_slice(&json).map_err(not_one)?;
        if header["format"] != FORMAT || header["version"] != VERSION {
            let reason = format!(
                "it is {} of version {}, this tightfit reads {FORMAT} of version {VERSION}",
                header["format"], header["version"]
            );
            return Err(corrupt(STATE, reason).into());
        }
        let Contents { state, mut callbacks, .. } = serde_json::from_slice(&json).map_err(not_one)?;
        if listed.contains_key(CALLBACKS) {
            read_tensors(&path.join(CALLBACKS), &mut callbacks)?;
        }
        Ok(Checkpoint { path: path.to_owned(), state, callbacks })
    }

    /// The checkpoint of the most steps in a folder of checkpoints that is whole; what is not is passed over with a warning.
    ///
    /// # Errors
    /// Where there is none.
    pub fn open_latest(folder: impl AsRef<Path>) -> Result<Self, TrainError> {
        let folder = folder.as_ref();
        for path in newest_first(folder)? {
            match Checkpoint::open(path) {
                Ok(checkpoint) => return Ok(checkpoint),
                Err(error) => log::warn!("{error}"),
            }
        }
        let hint = "no whole checkpoint is in it: begin anew".to_owned();
        Err(DataError::Missing { path: folder.to_owned(), hint }.into())
    }

    /// How far the training has come that writes checkpoints to this folder: the history in the newest of them. That is all that is
    /// read of it. `None` where there is none.
    pub fn latest_history(folder: impl AsRef<Path>) -> Option<History> {
        let history = |path: PathBuf| {
            let json = files::read(&path.join(STATE), MAX_STATE_BYTES, "").ok()?;
            let contents: Contents = serde_json::from_slice(&json).ok()?;
            Some(contents.state.run?.history)
        };
        newest_first(folder.as_ref()).ok()?.into_iter().find_map(history)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Name of the model that was trained.
    pub fn model(&self) -> &str {
        &self.state.model
    }

    /// Steps that were made.
    pub fn steps(&self) -> u64 {
        self.state.steps
    }

    /// Micro-batches of a step. With as many, training goes on bit for bit.
    pub fn micro_batches(&self) -> usize {
        self.state.micro_batches.len()
    }

    /// Whether the fit that it was taken in had come to its end.
    pub fn is_finished(&self) -> bool {
        self.state.run.as_ref().is_none_or(|run| run.finished.is_some())
    }

    /// What the fit that it was taken in had come to.
    pub fn history(&self) -> Option<&History> {
        self.state.run.as_ref().map(|run| &run.history)
    }

    /// The weights alone.
    pub fn weights(&self) -> PathBuf {
        self.path.join(MODEL)
    }

    /// Hands all tensors that last to `write`.
    pub(super) fn read(
        &self,
        layouts: [&Layout; 2],
        mut write: impl FnMut(&str, &[u8]) -> Result<(), DeviceError>,
    ) -> Result<(), TrainError> {
        for (name, layout) in [MODEL, OPTIMIZER].into_iter().zip(layouts) {
            if !layout.tensors.is_empty() {
                layout.load(&self.path.join(name), true, &mut write)?;
            }
        }
        Ok(())
    }
}

/// The checkpoints in a folder.
fn newest_first(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let entries = std::fs::read_dir(folder).map_err(io_of(folder))?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut steps: Vec<_> =
        names.filter_map(|name| Some((name.rsplit_once('-')?.1.parse::<u64>().ok()?, name))).collect();
    steps.sort_unstable();
    Ok(steps.iter().rev().map(|(_, name)| folder.join(name)).collect())
}

fn sha256(path: &Path) -> Result<String, TrainError> {
    let (mut file, _) = files::open(path, "it belongs to a checkpoint: take another")?;
    let (mut hasher, mut buffer) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut buffer).map_err(io_of(path))? {
            0 => return Ok(hex(&hasher.finalize())),
            count => hasher.update(&buffer[..count]),
        }
    }
}

/// The tensors of callbacks.
fn read_tensors(path: &Path, callbacks: &mut BTreeMap<String, CallbackState>) -> Result<(), TrainError> {
    let layout = Layout::of_file(path)?;
    layout.load(path, true, |name, data| {
        if let Some((callback, tensor)) = name.split_once('/')
            && let Some(state) = callbacks.get_mut(callback)
        {
            state.tensors.insert(tensor.to_owned(), bytemuck::pod_collect_to_vec(data));
        }
        Ok(())
    })?;
    Ok(())
}

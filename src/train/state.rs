//! What a trainer has learnt: parameters, buffers and optimizer state, in and out of it.

use std::collections::BTreeMap;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::callbacks::CallbackState;
use super::checkpoint::{self, Checkpoint, Pending, State, Trained};
use super::run::Run;
use super::settings::Config;
use super::trainer::{Snapshot, Trainer};
use super::weights::{Layout, Loaded};
use crate::autodiff::EMA;
use crate::error::{DeviceError, TrainError, unknown};
use crate::exec::Executor;
use crate::files;
use crate::graph::Role;
use crate::nn::{Built, Mode, Model, Parameter};
use crate::plan::Persistent;
use crate::tensor::{TensorDesc, hex, plural, room};

/// Tensors by name.
type Tensors = BTreeMap<String, (TensorDesc, Vec<f32>)>;

/// What lasts in a trainer, by name. It is made before the first step, so that saving takes no memory of its own.
#[derive(Debug)]
pub(super) struct Lasting {
    parameters: Vec<String>,
    /// Of each batch anew: no file holds them.
    states: Vec<String>,
    pub(super) layout: Layout,
}

impl Lasting {
    /// Names of all parameters.
    pub(super) fn parameters(&self) -> &[String] {
        &self.parameters
    }

    pub(super) fn of(built: &Built) -> Self {
        let names = |tensors: &[Parameter]| tensors.iter().map(|tensor| tensor.name.clone()).collect();
        Lasting { parameters: names(&built.parameters), states: names(&built.states), layout: layout(built) }
    }
}

/// What a file of a model's weights holds.
fn layout(built: &Built) -> Layout {
    let tensors = built.parameters.iter().chain(&built.buffers);
    let mut tensors: Vec<_> =
        tensors.map(|tensor| (tensor.name.clone(), built.graph.value(tensor.value).desc.clone())).collect();
    tensors.sort_by(|one, other| one.0.cmp(&other.0));
    Layout { tensors, counters: built.counters.clone(), metadata: None }
}

impl Trainer {
    /// All parameters by name.
    ///
    /// # Errors
    /// Where memory is short or the device fails.
    pub fn parameters(&mut self) -> Result<BTreeMap<String, (TensorDesc, Vec<f32>)>, TrainError> {
        let parameters = &self.lasting.parameters;
        read_all(&mut *self.executor, self.lasting.layout.tensors.iter().filter(|(name, _)| parameters.contains(name)))
    }

    /// All that the model keeps: parameters, and buffers such as running statistics, by the names of PyTorch's
    /// `state_dict`.
    ///
    /// # Errors
    /// Where memory is short or the device fails.
    pub fn state_dict(&mut self) -> Result<BTreeMap<String, (TensorDesc, Vec<f32>)>, TrainError> {
        read_all(&mut *self.executor, self.lasting.layout.tensors.iter())
    }

    /// Overwrites one parameter or buffer. All names of [`Model::state_dict`] are known: what PyTorch counts steps in takes one
    /// number, which is passed over, as [`load`](Self::load) does.
    ///
    /// # Errors
    /// Where there is no such parameter, the length differs, or the device fails.
    pub fn set_parameter(&mut self, name: &str, data: &[f32]) -> Result<(), TrainError> {
        if self.lasting.layout.counters.iter().any(|counter| counter == name) && data.len() == 1 {
            return Ok(());
        }
        let Some(desc) = self.desc(name) else {
            let built = self.model.build(1, Mode::Evaluate)?;
            let names = built.parameters.iter().chain(&built.buffers).map(|tensor| tensor.name.as_str());
            return Err(TrainError::Setting(unknown("parameter", name, names)));
        };
        if desc.numel() != data.len() {
            return Err(TrainError::Setting(format!("`{name}` is {desc}: got {}", plural(data.len(), "element"))));
        }
        Ok(self.executor.write(name, bytemuck::cast_slice(data))?)
    }

    /// The optimizer's state of one parameter (`momentum_buffer`, `exp_avg`, …), if it has one of that name.
    ///
    /// # Errors
    /// Where the device fails.
    pub fn optimizer_state(&mut self, parameter: &str, state: &str) -> Result<Option<Vec<f32>>, TrainError> {
        let name = format!("{parameter}.{state}");
        if !self.planned.plan.persistent.iter().any(|p| p.role == Role::State && p.name == name) {
            return Ok(None);
        }
        Ok(Some(bytemuck::pod_collect_to_vec(&self.executor.read(&name)?[..])))
    }

    /// SHA-256 over the bytes of all parameters and buffers in the order of their names, in hex.
    ///
    /// # Errors
    /// Where the device fails.
    pub fn parameters_sha256(&mut self) -> Result<String, TrainError> {
        let mut hasher = Sha256::new();
        for (name, _) in &self.lasting.layout.tensors {
            self.executor.read_pieces(name, &mut |piece| hasher.update(piece))?;
        }
        Ok(hex(&hasher.finalize()))
    }

    /// Zeros whatever is carried from batch to batch, as the hidden states of stateful layers: what follows does not go on
    /// from what was before, nor does [`Trainer::predict_next`]. [`Trainer::fit`] does so at the beginning of each epoch. [`Trainer::evaluate`] and
    /// [`Trainer::predict`] start from zeros too, and leave what training carries as it is.
    ///
    /// # Errors
    /// Where the device fails.
    pub fn reset_state(&mut self) -> Result<(), TrainError> {
        self.forget_predicted();
        for (name, mut data) in self.carried()? {
            data.fill(0);
            self.executor.write(&name, &data)?;
        }
        Ok(())
    }

    /// Whether anything is carried from batch to batch.
    pub(super) fn carries(&self) -> bool {
        self.lasting.states.iter().any(|name| self.desc(name).is_some())
    }

    /// Names and bytes of what is carried from batch to batch.
    pub(super) fn carried(&mut self) -> Result<Vec<(String, Vec<u8>)>, TrainError> {
        let mut carried = Vec::new();
        for name in &self.lasting.states {
            if self.desc(name).is_some() {
                carried.push((name.clone(), self.executor.read(name)?));
            }
        }
        Ok(carried)
    }

    /// Writes all parameters and buffers to a safetensors file, under the names of PyTorch's `state_dict`. The file appears
    /// whole or not at all, and writing it takes no memory of the parameters' size. Optimizer state is not saved. Where it
    /// fails, nothing is lost yet: it can be written to another place.
    ///
    /// # Errors
    /// Where the device fails or the file cannot be written.
    pub fn save(&mut self, path: impl AsRef<Path>) -> Result<(), TrainError> {
        let updates = self.updates();
        let executor = &mut self.executor;
        self.lasting.layout.save(path.as_ref(), updates, |name, visit| executor.read_pieces(name, visit))
    }

    /// Makes sure, as far as that can be tried in advance, that the weights of `model` can be saved at `path`, so that
    /// [`Trainer::save`] does not fail after hours of training.
    ///
    /// # Errors
    /// Where they cannot: the folder is missing, read-only or full, `path` names something that is not a regular file or that
    /// cannot be changed, or the model does not fit together.
    pub fn check_save(model: &Model, path: impl AsRef<Path>) -> Result<(), TrainError> {
        let size_bytes = layout(&model.build(1, Mode::Evaluate)?).size_bytes();
        Ok(files::check_writable(path.as_ref(), size_bytes)?)
    }

    /// Reads all parameters and buffers from a safetensors file. What PyTorch counts steps in is passed over.
    ///
    /// # Errors
    /// Where the file is missing or corrupt, lacks a parameter, holds another shape or a tensor that the model does not
    /// have, or the device fails. The model then keeps the parameters that it had.
    pub fn load(&mut self, path: impl AsRef<Path>) -> Result<(), TrainError> {
        self.load_from(path.as_ref(), true)?;
        Ok(())
    }

    /// As [`load`](Self::load), but takes only what fits by name, shape and type and leaves all else as it is: for a model with
    /// another head than the file's. Says what was taken and what was not.
    ///
    /// # Errors
    /// Where the file is missing or corrupt, nothing in it fits, or the device fails. The model then keeps the parameters that
    /// it had.
    pub fn load_matching(&mut self, path: impl AsRef<Path>) -> Result<Loaded, TrainError> {
        self.load_from(path.as_ref(), false)
    }

    fn load_from(&mut self, path: &Path, strict: bool) -> Result<Loaded, TrainError> {
        let averages: Vec<_> = self.state_names().filter(|name| name.ends_with(EMA)).cloned().collect();
        let executor = &mut self.executor;
        self.lasting.layout.load(path, strict, |name, data| {
            executor.write(name, data)?;
            // Averages begin with the parameters that training starts from.
            match averages.iter().find(|average| **average == average_of(name)) {
                Some(average) => executor.write(average, data),
                None => Ok(()),
            }
        })
    }

    /// Gives everything that lasts the values from which it starts.
    pub(super) fn initialise(&mut self, built: Built) -> Result<(), TrainError> {
        for Parameter { name, init, .. } in built.parameters.into_iter().chain(built.buffers) {
            let desc = self.desc(&name).expect("bug: the plan lacks a parameter of the model");
            let mut data = memory(desc.numel())?;
            data.resize(desc.numel(), 0.0);
            init.fill(self.config.seed, &name, &mut data);
            self.executor.write(&name, bytemuck::cast_slice(&data))?;
            let average = average_of(&name);
            if self.state_names().any(|name| *name == average) {
                self.executor.write(&average, bytemuck::cast_slice(&data))?;
            }
        }
        Ok(())
    }

    /// Names of optimizer state and moving averages.
    fn state_names(&self) -> impl Iterator<Item = &String> {
        self.planned.plan.persistent.iter().filter(|value| value.role == Role::State).map(|value| &value.name)
    }

    /// Bytes of all that lasts.
    pub(super) fn lasting_bytes(&self) -> u64 {
        self.lasting_values().map(|value| value.desc.size_bytes()).sum()
    }

    /// Names of all that lasts.
    pub(super) fn lasting_names(&self) -> Vec<String> {
        self.lasting_values().map(|value| value.name.clone()).collect()
    }

    fn lasting_values(&self) -> impl Iterator<Item = &Persistent> {
        self.planned.plan.persistent.iter().filter(|value| value.role.lasts())
    }

    /// What lasts besides the model: optimizer state, averages, what is carried from batch to batch.
    fn rest(&self) -> Layout {
        let is_rest = |name: &str, role: Role| match role {
            Role::State => true,
            Role::Buffer => self.lasting.states.iter().any(|state| state == name),
            _ => false,
        };
        let values = self.planned.plan.persistent.iter().filter(|value| is_rest(&value.name, value.role));
        let mut tensors: Vec<_> = values.map(|value| (value.name.clone(), value.desc.clone())).collect();
        tensors.sort_by(|one, other| one.0.cmp(&other.0));
        Layout { tensors, ..Layout::default() }
    }

    /// Puts moving averages in the place of their parameters, where these are kept; returns the parameters.
    pub(super) fn put_averages(&mut self) -> Result<Vec<(String, Vec<u8>)>, TrainError> {
        let names = self.state_names().filter_map(|name| averaged(name));
        let names: Vec<_> = names.map(str::to_owned).collect();
        let mut parameters = Vec::new();
        for name in names {
            let bytes = self.executor.read(&name)?;
            parameters.push((name, bytes));
        }
        for (name, _) in &parameters {
            let average = self.executor.read(&average_of(name))?;
            self.executor.write(name, &average)?;
        }
        Ok(parameters)
    }

    /// Where training is, besides its tensors.
    pub(super) fn state(&self, run: Option<&Run>) -> State {
        let mut optimizer = self.config.optimizer;
        let lr = *optimizer.lr_mut();
        State {
            model: self.model.name().to_owned(),
            batch: self.config.batch,
            seed: self.config.seed,
            optimizer: serde_json::to_value(optimizer).unwrap_or_default(),
            ema_decay: self.config.ema_decay,
            lr,
            lr_scale: self.lr_scale,
            loss_scale: self.scaling.state,
            steps: self.steps,
            epochs: self.epochs,
            schedule_step: self.schedule_step,
            schedule_steps: self.schedule_steps,
            micro_batches: self.planned.plan.micro_batches.clone(),
            trained: Some(self.trained()),
            run: run.cloned(),
        }
    }

    /// Goes on from there, but for the tensors.
    pub(super) fn take_up(&mut self, state: &State) {
        self.steps = state.steps;
        self.epochs = state.epochs;
        self.schedule_step = state.schedule_step;
        self.schedule_steps = state.schedule_steps;
        *self.config.optimizer.lr_mut() = state.lr;
        self.lr_scale = state.lr_scale;
        self.scaling.take_up(state.loss_scale);
    }

    pub(super) fn write_state(
        &mut self,
        path: &Path,
        state: &State,
        callbacks: &BTreeMap<String, CallbackState>,
    ) -> Result<(), TrainError> {
        let rest = self.rest();
        let executor = &mut self.executor;
        checkpoint::write(path, [&self.lasting.layout, &rest], state, callbacks, &mut |name, visit| {
            executor.read_pieces(name, visit)
        })
    }

    /// Writes a checkpoint of what was kept in host memory.
    pub(super) fn write_snapshot(&self, path: &Path, snapshot: &Snapshot) -> Result<(), TrainError> {
        let Snapshot { state, callbacks, tensors } = snapshot;
        checkpoint::write(path, [&self.lasting.layout, &self.rest()], state, callbacks, &mut |name, visit| {
            if let Some((_, bytes)) = tensors.iter().find(|(kept, _)| kept == name) {
                visit(bytes);
            }
            Ok(())
        })
    }

    /// Writes a checkpoint to a folder that must not be there yet: all that [`restore`](Self::restore) needs to go on. In a fit,
    /// [`FitOptions::checkpoints`](super::FitOptions::checkpoints) does so.
    ///
    /// # Errors
    /// Where the device fails or the folder cannot be written.
    pub fn save_checkpoint(&mut self, folder: impl AsRef<Path>) -> Result<(), TrainError> {
        let state = self.state(None);
        self.write_state(folder.as_ref(), &state, &BTreeMap::new())
    }

    /// Goes on from a checkpoint. If that was taken in the middle of a fit, the next [`fit`](Self::fit) goes on with it, bit for bit
    /// where a step has [as many micro-batches](Checkpoint::micro_batches). Parameters are frozen as they were then.
    /// [`Trainer::resume`] makes a trainer that does so at once.
    ///
    /// # Errors
    /// Where the checkpoint is of another model, batch, seed, optimizer or share of averages, or the device fails. Parameters then are as
    /// they were.
    pub fn restore(&mut self, checkpoint: &Checkpoint) -> Result<(), TrainError> {
        let (state, now) = (&checkpoint.state, self.state(None));
        let kind = |optimizer: &serde_json::Value| optimizer["kind"].as_str().unwrap_or("custom").to_owned();
        // The learning rate may have been changed since.
        let settings = |optimizer: &serde_json::Value| {
            let settings = optimizer.as_object().into_iter().flatten().filter(|(key, _)| *key != "lr");
            let words = settings.map(|(key, value)| match value {
                serde_json::Value::String(text) => format!("{key} {text}"),
                value => format!("{key} {value}"),
            });
            words.collect::<Vec<_>>().join(", ")
        };
        let decay = |decay: Option<f32>| decay.map_or_else(|| "none".to_owned(), |decay| decay.to_string());
        let differs = [
            ("model", state.model.clone(), now.model),
            ("batch", state.batch.to_string(), now.batch.to_string()),
            ("seed", state.seed.to_string(), now.seed.to_string()),
            ("optimizer", kind(&state.optimizer), kind(&now.optimizer)),
            ("the optimizer's", settings(&state.optimizer), settings(&now.optimizer)),
            ("ema_decay", decay(state.ema_decay), decay(now.ema_decay)),
        ];
        if let Some((what, then, now)) = differs.into_iter().find(|(_, then, now)| then != now) {
            let path = checkpoint.path().display();
            return Err(TrainError::Setting(format!(
                "{path}: the checkpoint is of a training with {what} {then}, not {now}: use the same settings, or take only its weights"
            )));
        }
        if let Some(trained) = state.trained.clone().filter(|trained| *trained != self.trained()) {
            let Trained { freeze, train_only, first_steps } = trained;
            self.replace_plan(Config { freeze, train_only, ..self.config.clone() }, first_steps)?;
        }
        let rest = self.rest();
        let executor = &mut self.executor;
        checkpoint.read([&self.lasting.layout, &rest], |name, data| executor.write(name, data))?;
        self.take_up(state);
        self.snapshot_is_old();
        self.pending = state.run.clone().map(|run| Pending { run, callbacks: checkpoint.callbacks.clone() });
        Ok(())
    }

    fn desc(&self, name: &str) -> Option<&TensorDesc> {
        let lasts = |role: Role| matches!(role, Role::Parameter | Role::Buffer);
        let mut persistent = self.planned.plan.persistent.iter();
        persistent.find(|p| lasts(p.role) && p.name == name).map(|p| &p.desc)
    }
}

fn average_of(parameter: &str) -> String {
    format!("{parameter}.{EMA}")
}

/// The parameter that a value of this name is the average of, where it is one.
pub(super) fn averaged(name: &str) -> Option<&str> {
    name.strip_suffix(EMA)?.strip_suffix('.')
}

fn read_all<'a>(
    executor: &mut dyn Executor,
    tensors: impl Iterator<Item = &'a (String, TensorDesc)>,
) -> Result<Tensors, TrainError> {
    let mut read = BTreeMap::new();
    for (name, desc) in tensors {
        let mut values = memory(desc.numel())?;
        executor.read_pieces(name, &mut |piece| {
            values.extend(piece.chunks_exact(size_of::<f32>()).map(bytemuck::pod_read_unaligned::<f32>));
        })?;
        read.insert(name.clone(), (desc.clone(), values));
    }
    Ok(read)
}

/// Memory of the host, which is short at times.
fn memory(count: usize) -> Result<Vec<f32>, DeviceError> {
    Ok(room(count)?)
}

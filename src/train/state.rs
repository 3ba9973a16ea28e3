//! What a trainer has learnt: parameters, buffers and optimizer state, in and out of it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::trainer::Trainer;
use super::weights::{Layout, Loaded};
use crate::error::{DeviceError, TrainError, unknown};
use crate::exec::Executor;
use crate::files;
use crate::graph::Role;
use crate::nn::{Built, Mode, Model, Parameter};
use crate::tensor::{TensorDesc, plural, room};

/// Tensors by name.
type Tensors = BTreeMap<String, (TensorDesc, Vec<f32>)>;

/// What lasts in a trainer, by name. It is made before the first step, so that saving takes no memory of its own.
#[derive(Debug)]
pub(super) struct Lasting {
    parameters: Vec<String>,
    /// Of each batch anew: no file holds them.
    states: Vec<String>,
    layout: Layout,
}

impl Lasting {
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
    Layout { tensors, counters: built.counters.clone() }
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
        Ok(hasher.finalize().iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        }))
    }

    /// Zeros whatever is carried from batch to batch, as the hidden states of stateful layers: what follows does not go on
    /// from what was before. [`Trainer::fit`] does so at the beginning of each epoch. [`Trainer::evaluate`] and
    /// [`Trainer::predict`] start from zeros too, and leave what training carries as it is.
    ///
    /// # Errors
    /// Where the device fails.
    pub fn reset_state(&mut self) -> Result<(), TrainError> {
        for (name, mut data) in self.carried()? {
            data.fill(0);
            self.executor.write(&name, &data)?;
        }
        Ok(())
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
        let executor = &mut self.executor;
        self.lasting.layout.save(path.as_ref(), self.steps, |name, visit| executor.read_pieces(name, visit))
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
        let executor = &mut self.executor;
        self.lasting.layout.load(path, strict, |name, data| executor.write(name, data))
    }

    /// Gives everything that lasts the values from which it starts.
    pub(super) fn initialise(&mut self, built: Built) -> Result<(), TrainError> {
        for Parameter { name, init, .. } in built.parameters.into_iter().chain(built.buffers) {
            let desc = self.desc(&name).expect("bug: the plan lacks a parameter of the model");
            let mut data = memory(desc.numel())?;
            data.resize(desc.numel(), 0.0);
            init.fill(self.config.seed, &name, &mut data);
            self.executor.write(&name, bytemuck::cast_slice(&data))?;
        }
        Ok(())
    }

    fn desc(&self, name: &str) -> Option<&TensorDesc> {
        let lasts = |role: Role| matches!(role, Role::Parameter | Role::Buffer);
        let mut persistent = self.planned.plan.persistent.iter();
        persistent.find(|p| lasts(p.role) && p.name == name).map(|p| &p.desc)
    }
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

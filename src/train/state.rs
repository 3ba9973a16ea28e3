//! What a trainer has learnt: parameters, buffers and optimizer state, in and out of it.

use std::collections::BTreeMap;
use std::path::Path;

use super::trainer::Trainer;
use super::weights::{self, Counters};
use crate::error::TrainError;
use crate::graph::Role;
use crate::nn::{Mode, Parameter};
use crate::tensor::TensorDesc;

/// Tensors by name.
pub(super) type Tensors = BTreeMap<String, (TensorDesc, Vec<f32>)>;

impl Trainer {
    /// All parameters by name.
    ///
    /// # Errors
    /// Where the device fails.
    pub fn parameters(&mut self) -> Result<BTreeMap<String, (TensorDesc, Vec<f32>)>, TrainError> {
        let names = self.model.build(1, Mode::Evaluate)?.parameters;
        self.read_all(names.iter())
    }

    /// All that the model keeps: parameters, and buffers such as running statistics, by the names of PyTorch's
    /// `state_dict`.
    ///
    /// # Errors
    /// Where the device fails.
    pub fn state_dict(&mut self) -> Result<BTreeMap<String, (TensorDesc, Vec<f32>)>, TrainError> {
        let built = self.model.build(1, Mode::Evaluate)?;
        self.read_all(built.parameters.iter().chain(&built.buffers))
    }

    /// Overwrites one parameter or buffer.
    ///
    /// # Errors
    /// Where there is no such parameter, the length differs, or the device fails.
    pub fn set_parameter(&mut self, name: &str, data: &[f32]) -> Result<(), TrainError> {
        let Some(desc) = self.desc(name) else {
            return Err(TrainError::Setting(format!("the model has no parameter `{name}`")));
        };
        if desc.numel() != data.len() {
            return Err(TrainError::Setting(format!("`{name}` is {desc}: got {} elements", data.len())));
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
        Ok(weights::sha256(&self.state_dict()?))
    }

    /// Zeros whatever is carried from batch to batch, as the hidden states of stateful layers: what follows does not go on
    /// from what was before. [`Trainer::fit`] does so at the beginning of each epoch. [`Trainer::evaluate`] and
    /// [`Trainer::predict`] start from zeros too, and leave what training carries as it is.
    ///
    /// # Errors
    /// Where the device fails.
    pub fn reset_state(&mut self) -> Result<(), TrainError> {
        for (name, data) in self.carried()? {
            self.executor.write(&name, &vec![0; data.len()])?;
        }
        Ok(())
    }

    /// Names and bytes of what is carried from batch to batch.
    pub(super) fn carried(&mut self) -> Result<Vec<(String, Vec<u8>)>, TrainError> {
        let mut carried = Vec::new();
        for Parameter { name, .. } in self.model.build(1, Mode::Evaluate)?.states {
            if self.desc(&name).is_some() {
                let data = self.executor.read(&name)?;
                carried.push((name, data));
            }
        }
        Ok(carried)
    }

    /// Writes all parameters and buffers to a safetensors file, under the names of PyTorch's `state_dict`. The file appears
    /// whole or not at all. Optimizer state is not saved.
    ///
    /// # Errors
    /// Where the device fails or the file cannot be written.
    pub fn save(&mut self, path: impl AsRef<Path>) -> Result<(), TrainError> {
        let counters = self.model.build(1, Mode::Evaluate)?.counters;
        let tensors = self.state_dict()?;
        Ok(weights::save(path.as_ref(), &tensors, &Counters { names: &counters, steps: self.steps })?)
    }

    /// Makes sure that [`Trainer::save`] can write at `path`, so that it does not fail after hours of training.
    ///
    /// # Errors
    /// Where it cannot: the folder is missing or read-only, or `path` names something that is not a regular file.
    pub fn check_save(path: impl AsRef<Path>) -> Result<(), TrainError> {
        Ok(weights::check_writable(path.as_ref())?)
    }

    /// Reads all parameters and buffers from a safetensors file. What PyTorch counts steps in is passed over.
    ///
    /// # Errors
    /// Where the file is missing or corrupt, lacks a parameter, holds another shape or a tensor that the model does not
    /// have, or the device fails. The model then keeps the parameters that it had.
    pub fn load(&mut self, path: impl AsRef<Path>) -> Result<(), TrainError> {
        let built = self.model.build(1, Mode::Evaluate)?;
        let tensors = built.parameters.iter().chain(&built.buffers);
        let expected = tensors.map(|tensor| (&*tensor.name, &built.graph.value(tensor.value).desc));
        for (name, data) in weights::load(path.as_ref(), expected, &built.counters)? {
            self.executor.write(&name, bytemuck::cast_slice(&data))?;
        }
        Ok(())
    }

    /// Gives everything that lasts the values from which it starts.
    pub(super) fn initialise(&mut self) -> Result<(), TrainError> {
        let built = self.model.build(1, Mode::Evaluate)?;
        for Parameter { name, init, .. } in built.parameters.into_iter().chain(built.buffers) {
            let desc = self.desc(&name).expect("bug: the plan lacks a parameter of the model");
            let mut data = vec![0.0; desc.numel()];
            init.fill(self.config.seed, &name, &mut data);
            self.executor.write(&name, bytemuck::cast_slice(&data))?;
        }
        Ok(())
    }

    fn read_all<'a>(&mut self, tensors: impl Iterator<Item = &'a Parameter>) -> Result<Tensors, TrainError> {
        let mut read = BTreeMap::new();
        for Parameter { name, .. } in tensors {
            let desc = self.desc(name).expect("bug: the plan lacks a parameter of the model").clone();
            read.insert(name.clone(), (desc, bytemuck::pod_collect_to_vec(&self.executor.read(name)?[..])));
        }
        Ok(read)
    }

    fn desc(&self, name: &str) -> Option<&TensorDesc> {
        let lasts = |role: Role| matches!(role, Role::Parameter | Role::Buffer);
        let mut persistent = self.planned.plan.persistent.iter();
        persistent.find(|p| lasts(p.role) && p.name == name).map(|p| &p.desc)
    }
}

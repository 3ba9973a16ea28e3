//! For tests of ops, this crate's and your own, and of what runs them.
//!
//! An op is tested on its [`Case`]s: [`run_op`] runs its kernels on a device, alone, and its twin
//! ([`Op::run_f32`](crate::ops::Op::run_f32)) says what must come out.
//!
//! ```no_run
//! use tightfit::ops::elementwise::relu::Relu;
//! use tightfit::tensor::TensorDesc;
//! use tightfit::testing::{RunOptions, device_or_skip, run_op};
//!
//! let Some(device) = device_or_skip() else { return Ok(()) };
//! let input = bytemuck::cast_slice(&[-1.0_f32, 2.0]).to_vec();
//! let outputs = run_op(&device, &Relu, &[(TensorDesc::f32([2]), input)], RunOptions::default())?;
//! assert_eq!(bytemuck::cast_slice::<_, f32>(&outputs[0]), [0.0, 2.0]);
//! # Ok::<_, tightfit::error::DeviceError>(())
//! ```

pub use crate::device::testing::device_or_skip;
pub use crate::exec::cpu::single::run_op_on_cpu;
pub use crate::exec::measure::{CopyTime, Measure, Repeat, Stopwatch, Timing};
pub use crate::exec::single::{RunOptions, run_op};
pub use crate::ops::case::{Case, Entry, Fill};
pub use crate::shader::reflect::{Binding, Checked, Reflection, module};
pub use crate::shader::source::source;

use crate::error::{GraphError, TrainError};
use crate::graph::{Graph, Pass};
use crate::nn::Model;
use crate::ops::SavedActivations;
use crate::plan::{self, Planned, Source};
use crate::train::source::{ModelSource, Purpose, request};
use crate::train::{Config, Machine};

/// Every op of this crate with its test cases, by name.
pub fn all_ops() -> Vec<Entry> {
    crate::ops::all()
}

/// The settings' training of a model, with forward values kept in one form, whichever the planner asks for.
struct OneForm<'a> {
    source: ModelSource<'a>,
    saved: SavedActivations,
}

impl Source for OneForm<'_> {
    fn graph(&self, pass: Pass, samples: usize, batch: usize, _: SavedActivations) -> Result<Graph, GraphError> {
        self.source.graph(pass, samples, batch, self.saved)
    }
}

fn one_form<'a>(model: &'a Model, config: &Config, saved: SavedActivations) -> Result<OneForm<'a>, TrainError> {
    Ok(OneForm { source: ModelSource::new(model, config, Purpose::Training)?, saved })
}

/// The graph of a step of training on a batch, with forward values kept in this form.
///
/// # Errors
/// Where a setting makes no sense or the model does not fit together.
pub fn training_graph(model: &Model, config: &Config, saved: SavedActivations) -> Result<Graph, TrainError> {
    Ok(one_form(model, config, saved)?.graph(Pass::Only, config.batch, config.batch, saved)?)
}

/// The plan of a training, with forward values kept in this form.
///
/// # Errors
/// As [`training_graph`], and where no plan meets the budget.
pub fn plan_training(
    model: &Model,
    config: &Config,
    saved: SavedActivations,
    machine: &Machine,
) -> Result<Planned, TrainError> {
    Ok(plan::plan(&one_form(model, config, saved)?, &request(config, machine)?)?)
}

use serde::{Deserialize, Serialize};

use super::linear::yes;
use super::{Init, Module, Scope};
use crate::error::GraphError;
use crate::graph::BufferUpdate;
use crate::nn::Statistics;
use crate::ops::Affine;
use crate::ops::elementwise::relu::Relu;
use crate::ops::elementwise::scale::Scale;
use crate::ops::norm::{batch_norm, batch_norm_eval, group_norm, layer_norm, rms_norm};
use crate::tensor::{ValueId, format_number, plural};

/// Batch normalization of samples `[channels, …]`: each channel by its mean and variance over the batch and all places.
///
/// Parameters: `weight [channels]`, from ones, and `bias [channels]`, from zeros. Buffers: `running_mean` and `running_var`
/// `[channels]`, from zeros and ones; after each step they are `(1 − momentum) · buffer + momentum · value` with the mean
/// and the unbiased variance of the step. Evaluation uses them.
///
/// In training, [`Statistics`] say what each channel is normalized by: the whole batch, which then cannot be cut into
/// micro-batches, each micro-batch, or the running statistics, which stay as they are. The running variance of `ghost` is
/// made of unbiased variances within micro-batches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchNorm {
    #[serde(default = "eps")]
    eps: f32,
    #[serde(default = "momentum")]
    momentum: f32,
    #[serde(default = "yes")]
    affine: bool,
    #[serde(default = "yes")]
    track_running_stats: bool,
    #[serde(default)]
    frozen: bool,
    #[serde(default)]
    relu: bool,
}

/// Layer normalization: each sample by its mean and variance over its last axes.
///
/// Parameters, of the shape of these axes: `weight`, from ones, and `bias`, from zeros.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerNorm {
    #[serde(default = "last_axis")]
    dims: usize,
    #[serde(default = "eps")]
    eps: f32,
    #[serde(default = "yes")]
    affine: bool,
    #[serde(default = "yes")]
    bias: bool,
}

/// Normalization of samples `[channels, …]` in groups of channels: each group of a sample by its mean and variance.
///
/// Parameters: `weight [channels]`, from ones, and `bias [channels]`, from zeros.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupNorm {
    groups: usize,
    #[serde(default = "eps")]
    eps: f32,
    #[serde(default = "yes")]
    affine: bool,
}

/// Instance normalization of samples `[channels, …]`: each channel of a sample by its mean and variance over all places.
/// It keeps no running statistics.
///
/// Parameters, only with `affine`: `weight [channels]`, from ones, and `bias [channels]`, from zeros.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstanceNorm {
    #[serde(default = "eps")]
    eps: f32,
    #[serde(default)]
    affine: bool,
}

/// Each sample divided by the root of its mean square over its last axes.
///
/// Parameter, of the shape of these axes: `weight`, from ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RmsNorm {
    #[serde(default = "last_axis")]
    dims: usize,
    #[serde(default = "least_eps")]
    eps: f32,
    #[serde(default = "yes")]
    affine: bool,
}

fn eps() -> f32 {
    1e-5
}

fn least_eps() -> f32 {
    f32::EPSILON
}

fn momentum() -> f32 {
    0.1
}

fn last_axis() -> usize {
    1
}

macro_rules! settings {
    ($($layer:ident { $($(#[$doc:meta])* $field:ident: $ty:ty),* $(,)? })*) => {$(
        impl $layer {$(
            $(#[$doc])*
            #[must_use]
            pub fn $field(mut self, $field: $ty) -> Self {
                self.$field = $field;
                self
            }
        )*}
    )*};
}

settings! {
    BatchNorm {
        /// Added to variances (1e-5 by default).
        eps: f32,
        /// How much of a step's statistics the running ones take over (0.1 by default).
        momentum: f32,
        /// Whether there are weight and bias (yes by default).
        affine: bool,
        /// Whether there are running statistics (yes by default); without them evaluation uses those of its batch.
        track_running_stats: bool,
        /// Whether it normalizes by its running statistics in training as well, and leaves them as they are, whatever the training's
        /// [`Statistics`] say (no by default): as Keras does where the layer is not trained.
        frozen: bool,
        /// Whether a rectified linear unit follows (no by default): the same as a layer [`Relu`](super::Relu), in less time
        /// and memory.
        relu: bool,
    }
    LayerNorm {
        /// How many last axes are normalized together (1 by default).
        dims: usize,
        /// Added to variances (1e-5 by default).
        eps: f32,
        /// Whether there is a weight, and unless that is turned off, a bias (yes by default).
        affine: bool,
        /// Whether there is a bias besides a weight (yes by default).
        bias: bool,
    }
    GroupNorm {
        /// Added to variances (1e-5 by default).
        eps: f32,
        /// Whether there are weight and bias (yes by default).
        affine: bool,
    }
    InstanceNorm {
        /// Added to variances (1e-5 by default).
        eps: f32,
        /// Whether there are weight and bias (no by default).
        affine: bool,
    }
    RmsNorm {
        /// How many last axes are normalized together (1 by default).
        dims: usize,
        /// Added to mean squares (that of f32, 1.2e-7, by default, as in PyTorch).
        eps: f32,
        /// Whether there is a weight (yes by default).
        affine: bool,
    }
}

impl Default for BatchNorm {
    fn default() -> Self {
        BatchNorm {
            eps: eps(),
            momentum: momentum(),
            affine: true,
            track_running_stats: true,
            frozen: false,
            relu: false,
        }
    }
}

impl Default for LayerNorm {
    fn default() -> Self {
        LayerNorm { dims: last_axis(), eps: eps(), affine: true, bias: true }
    }
}

impl Default for InstanceNorm {
    fn default() -> Self {
        InstanceNorm { eps: eps(), affine: false }
    }
}

impl Default for RmsNorm {
    fn default() -> Self {
        RmsNorm { dims: last_axis(), eps: least_eps(), affine: true }
    }
}

impl BatchNorm {
    /// With weight, bias and running statistics.
    pub fn new() -> Self {
        Self::default()
    }
}

impl LayerNorm {
    /// Over the last axis, with weight and bias.
    pub fn new() -> Self {
        Self::default()
    }
}

impl GroupNorm {
    /// So many groups, which must divide the channels; with weight and bias.
    pub fn new(groups: usize) -> Self {
        GroupNorm { groups, eps: eps(), affine: true }
    }
}

impl InstanceNorm {
    /// Without weight and bias.
    pub fn new() -> Self {
        Self::default()
    }
}

impl RmsNorm {
    /// Over the last axis, with a weight.
    pub fn new() -> Self {
        Self::default()
    }
}

fn full(affine: bool) -> Affine {
    if affine { Affine::Full } else { Affine::None }
}

/// Creates what is trained, of this shape.
fn trained(scope: &mut Scope<'_>, affine: Affine, shape: &[usize]) -> Result<Vec<ValueId>, GraphError> {
    let mut values = Vec::new();
    if affine.has_weight() {
        values.push(scope.parameter("weight", shape, Init::ONES)?);
    }
    if affine.has_bias() {
        values.push(scope.parameter("bias", shape, Init::ZEROS)?);
    }
    Ok(values)
}

/// The last axes of a sample.
fn last_axes<'a>(scope: &Scope<'_>, shape: &'a [usize], dims: usize) -> Result<&'a [usize], GraphError> {
    let rank = shape.len() - 1;
    if dims == 0 || dims > rank {
        return Err(scope.error(format!("dims must be 1 to {rank}, the axes of a sample, found {dims}")));
    }
    Ok(&shape[shape.len() - dims..])
}

impl BatchNorm {
    /// Normalizes by what `statistics` says: the batch at hand, which the running statistics follow.
    fn by_batch(
        &self,
        scope: &mut Scope<'_>,
        inputs: &[ValueId],
        running: Option<[ValueId; 2]>,
        ghost: bool,
    ) -> Result<ValueId, GraphError> {
        let op = batch_norm::BatchNorm { eps: self.eps, affine: full(self.affine), relu: self.relu, ghost };
        let outputs = scope.apply_all(op, inputs)?;
        let (output, mean, mut var) = (outputs[0], outputs[1], outputs[2]);
        if let Some([running_mean, running_var]) = running.filter(|_| scope.is_training()) {
            let shape = scope.shape(inputs[0]);
            let values = shape.iter().product::<usize>() / shape[1];
            let mut unbiased = (values as f64 / (values - 1) as f64) as f32;
            if shape[0] != scope.step_batch() {
                // Micro-batches may differ in size, and what is carried is their mean: each makes its own unbiased.
                var = scope.apply(Scale { factor: unbiased }, &[var])?;
                unbiased = 1.0;
            }
            let momentum = self.momentum;
            scope.update_buffer(BufferUpdate { buffer: running_mean, value: mean, momentum, factor: 1.0, rows: None });
            scope.update_buffer(BufferUpdate {
                buffer: running_var,
                value: var,
                momentum,
                factor: unbiased,
                rows: None,
            });
        }
        Ok(output)
    }

    /// Normalizes with these weight and bias, by running statistics or the batch's, as the graph's mode says.
    pub(crate) fn normalize(
        &self,
        scope: &mut Scope<'_>,
        input: ValueId,
        affine: &[ValueId],
        running: Option<[ValueId; 2]>,
    ) -> Result<ValueId, GraphError> {
        let shape = scope.shape(input);
        let channels = shape[1];
        let with = |first: &[ValueId]| [first, affine].concat();
        let statistics = scope.statistics().map(|chosen| if self.frozen { Statistics::Frozen } else { chosen });
        match (statistics, running) {
            (Some(Statistics::Exact), _) => self.by_batch(scope, &with(&[input]), running, false),
            (Some(Statistics::Ghost), _) => self.by_batch(scope, &with(&[input]), running, true),
            (Some(Statistics::Frozen) | None, Some([mean, var])) => {
                let op = batch_norm_eval::BatchNormEval { eps: self.eps, affine: full(self.affine), relu: self.relu };
                scope.apply(op, &with(&[input, mean, var]))
            }
            // Statistics of one sample alone are those of each of its channels, even where that is one value.
            (None, None) if shape[0] == 1 => {
                let op = group_norm::GroupNorm { groups: channels, eps: self.eps, affine: full(self.affine) };
                let output = scope.apply_all(op, &with(&[input]))?[0];
                if self.relu { scope.apply(Relu, &[output]) } else { Ok(output) }
            }
            (Some(Statistics::Frozen) | None, None) => self.by_batch(scope, &with(&[input]), None, false),
        }
    }
}

impl Module for BatchNorm {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        if !(0.0..=1.0).contains(&self.momentum) {
            return Err(
                scope.error(format!("momentum must be a number from 0 to 1, found {}", format_number(self.momentum)))
            );
        }
        let shape = scope.shape(input);
        let channels = shape[1];
        let affine = trained(scope, full(self.affine), &[channels])?;
        let running = if self.track_running_stats {
            let running_mean = scope.buffer("running_mean", [channels], Init::ZEROS)?;
            let running_var = scope.buffer("running_var", [channels], Init::ONES)?;
            scope.counter("num_batches_tracked");
            Some([running_mean, running_var])
        } else {
            None
        };
        self.normalize(scope, input, &affine, running)
    }
}

impl Module for LayerNorm {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        let shape = scope.shape(input);
        let axes = last_axes(scope, &shape, self.dims)?;
        let affine = if self.affine && !self.bias { Affine::Weight } else { full(self.affine) };
        let mut inputs = vec![input];
        inputs.extend(trained(scope, affine, axes)?);
        Ok(scope.apply_all(layer_norm::LayerNorm { dims: self.dims, eps: self.eps, affine }, &inputs)?[0])
    }
}

/// Normalizes each of so many groups of channels.
fn by_group(
    scope: &mut Scope<'_>,
    input: ValueId,
    groups: usize,
    eps: f32,
    affine: bool,
) -> Result<ValueId, GraphError> {
    let affine = full(affine);
    let mut inputs = vec![input];
    inputs.extend(trained(scope, affine, &scope.shape(input)[1..2])?);
    Ok(scope.apply_all(group_norm::GroupNorm { groups, eps, affine }, &inputs)?[0])
}

impl Module for GroupNorm {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        scope.check_setting("groups", self.groups, 1)?;
        let channels = scope.shape(input)[1];
        if !channels.is_multiple_of(self.groups) {
            let groups = self.groups;
            return Err(
                scope.error(format!("groups = {groups} must divide {}, which come in", plural(channels, "channel")))
            );
        }
        by_group(scope, input, self.groups, self.eps, self.affine)
    }
}

impl Module for InstanceNorm {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        let shape = scope.shape(input);
        if shape[2..].iter().product::<usize>() == 1 {
            return Err(scope.wrong_input("a sample of more than one value per channel", &shape, ""));
        }
        by_group(scope, input, shape[1], self.eps, self.affine)
    }
}

impl Module for RmsNorm {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        let shape = scope.shape(input);
        let axes = last_axes(scope, &shape, self.dims)?;
        let affine = if self.affine { Affine::Weight } else { Affine::None };
        let mut inputs = vec![input];
        inputs.extend(trained(scope, affine, axes)?);
        Ok(scope.apply_all(rms_norm::RmsNorm { dims: self.dims, eps: self.eps, affine }, &inputs)?[0])
    }
}

#[cfg(test)]
#[path = "norm_tests.rs"]
mod tests;

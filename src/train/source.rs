//! The planner's graphs: a model with its loss, metrics and optimizer, at any number of samples.

use std::collections::BTreeSet;

use super::advice::warnings;
use super::groups::{FirstSteps, Rules};
use super::machine::Machine;
use super::objective::{Added, Objective};
use super::precision::{Precision, Precisions};
use super::settings::Config;
use crate::autodiff::{self, Clip, Training, Update};
use crate::error::{GraphError, PlanError, TrainError};
use crate::graph::{Graph, Pass, Role};
use crate::nn::{Built, Mode, Model, Parameter, Statistics};
use crate::ops::SavedActivations;
use crate::ops::shape::copy::Copy;
use crate::plan::{self, DeviceClass, Levers, Limits, Planned, Request, Source};
use crate::tensor::{DType, Half, ValueId, format_number};

/// Name of what the last layer makes, among predictions.
pub(crate) const OUTPUT: &str = "output";
/// Name of the metric that counts positions predicted right.
pub(crate) const CORRECT: &str = "correct";

/// What a plan is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Training,
    /// Forward only: no gradients, no optimizer state.
    Evaluation,
    /// Gradients, which stay, and no updates.
    Gradients,
}

/// A model in training.
pub(crate) struct ModelSource<'a> {
    pub(crate) model: &'a Model,
    objective: Objective,
    pub(super) rules: Rules,
    clip: Option<Clip>,
    ema_decay: Option<f32>,
    grad_norm: bool,
    precisions: Precisions,
    loss_scale: bool,
    pub(crate) statistics: Statistics,
    pub(crate) purpose: Purpose,
}

impl<'a> ModelSource<'a> {
    pub(crate) fn new(model: &'a Model, config: &Config, purpose: Purpose) -> Result<Self, TrainError> {
        ModelSource::from_steps(model, config, purpose, &FirstSteps::new())
    }

    /// Where some parameters are trained since a later step than others.
    pub(super) fn from_steps(
        model: &'a Model,
        config: &Config,
        purpose: Purpose,
        first_steps: &FirstSteps,
    ) -> Result<Self, TrainError> {
        if let Some((name, most)) = config.clip.map(clip_words)
            && !(most.is_finite() && most > 0.0)
        {
            let most = format_number(most);
            return Err(TrainError::Setting(format!("{name} = {most} is not possible: it must be above 0")));
        }
        if let Some(decay) = config.ema_decay
            && !(0.0..1.0).contains(&decay)
        {
            let decay = format_number(decay);
            return Err(TrainError::Setting(format!("ema_decay = {decay} is not possible: it must be in 0..1")));
        }
        let loss_scale = config.loss_scale_or_default();
        loss_scale.check()?;
        let objective = Objective::new(config)?;
        let built = model.build(1, Mode::Evaluate)?;
        let parameters = built.parameters.iter().map(|p| (&*p.name, &built.graph.value(p.value).desc));
        let rules = Rules::new(config, parameters, first_steps)?;
        let is_frozen = |parameter: &Parameter| rules.frozen.contains(&parameter.name);
        // A model without any is refused for that.
        if purpose != Purpose::Evaluation && !built.parameters.is_empty() && built.parameters.iter().all(is_frozen) {
            let text = "all parameters are frozen, so there is nothing to train: leave one group of them as it is";
            return Err(TrainError::Setting(text.to_owned()));
        }
        let loss_scale = loss_scale.is_on();
        let precisions = Precisions::of(config);
        precisions.check(&built.graph)?;
        let Config { clip, ema_decay, grad_norm, statistics, .. } = config.clone();
        Ok(ModelSource {
            model,
            objective,
            rules,
            clip,
            ema_decay,
            grad_norm,
            precisions,
            loss_scale,
            statistics,
            purpose,
        })
    }

    /// What may be stored in 16 bits; `None` where all is f32.
    fn halves(&self, built: &Built) -> Option<Halves<'_>> {
        let layers = || built.graph.nodes().iter().map(|node| node.name.clone()).collect();
        let outputs = || built.outputs.iter().map(|(_, output)| *output).chain([built.output]).collect();
        let precisions = &self.precisions;
        (!precisions.is_f32()).then(|| Halves { precisions, layers: layers(), outputs: outputs() })
    }
}

/// What of a model may be stored in 16 bits: what its layers make, but for what it puts out.
struct Halves<'a> {
    precisions: &'a Precisions,
    layers: BTreeSet<String>,
    outputs: Vec<ValueId>,
}

impl Halves<'_> {
    /// Gives values their types.
    fn store(&self, graph: &mut Graph) {
        let half = |layer: &str| if self.layers.contains(layer) { self.precisions.half(layer) } else { None };
        graph.store_halves(&self.outputs, &half);
    }
}

/// What a setting of clipping is called, and its number.
pub(super) fn clip_words(clip: Clip) -> (&'static str, f32) {
    match clip {
        Clip::Norm(most) => ("clip_norm", most),
        Clip::Value(most) => ("clip_value", most),
        Clip::TensorNorm(most) => ("clip_tensor_norm", most),
    }
}

impl Source for ModelSource<'_> {
    fn graph(&self, pass: Pass, samples: usize, batch: usize, saved: SavedActivations) -> Result<Graph, GraphError> {
        let evaluates = pass == Pass::Evaluate || self.purpose == Purpose::Evaluation;
        let mode = if evaluates { Mode::Evaluate } else { Mode::Train(self.statistics) };
        let mut built = self.model.build_part(samples, batch, mode)?;
        let halves = self.halves(&built);
        if evaluates {
            let Built { mut graph, output, outputs, buffer_updates, .. } = built;
            graph.mark_output(output);
            for (name, output) in outputs {
                // It may be what the last layer makes, or have another name already.
                let is_own = graph.value(output).role == Role::Intermediate && graph.storage_root(output) == output;
                let output = if is_own { output } else { graph.apply(Copy, &[output])? };
                graph.promote(output, format!("output.{name}"), Role::Output);
            }
            autodiff::update_buffer_rows(&mut graph, &buffer_updates)?;
            autodiff::compressed(&mut graph)?;
            halves.iter().for_each(|halves| halves.store(&mut graph));
            return Ok(graph);
        }
        let Added { loss, share: weight, correct } =
            self.objective.apply(&mut built, samples, samples as f32 / batch as f32)?;
        let Built { graph, input, buffer_updates, .. } = built;
        let metrics: Vec<_> = correct.into_iter().map(|correct| (CORRECT, correct)).collect();
        let update = match self.purpose {
            Purpose::Gradients => {
                let has_gradient = graph.value(input).desc.dtype == DType::F32;
                Update::Keep { input: has_gradient.then_some(input) }
            }
            _ => Update::Optimize {
                groups: &self.rules.rules,
                group_of: &self.rules.group_of,
                clip: self.clip,
                ema_decay: self.ema_decay,
                grad_norm: self.grad_norm,
                loss_scale: self.loss_scale,
            },
        };
        let allowed = if let SavedActivations::Half(half) = saved { Some(half) } else { None };
        let copies = self.precisions.saved.or(allowed);
        let training = Training {
            update,
            frozen: &self.rules.frozen,
            pass,
            weight,
            saved,
            rounded: copies.is_some() || halves.is_some(),
            buffer_updates: &buffer_updates,
        };
        let mut graph = autodiff::joint(graph, loss, &metrics, &training)?;
        if let Some(half) = copies {
            graph.save_halves(half).map_err(|source| GraphError::Op { node: "save_activations".to_owned(), source })?;
        }
        halves.iter().for_each(|halves| halves.store(&mut graph));
        Ok(graph)
    }
}

/// Plans the training of `model` without a device, with costs that are typical of a discrete GPU.
///
/// # Errors
/// As [`plan_for`].
pub fn plan(model: impl Into<Model>, config: &Config, limits: &Limits) -> Result<Planned, TrainError> {
    plan_for(model, config, &Machine::with_limits(*limits, DeviceClass::default()))
}

/// Plans the training of `model` for a machine, which need not be here.
///
/// ```
/// use tightfit::nn::Sequential;
/// use tightfit::plan::DeviceClass;
/// use tightfit::train::{Config, Machine, plan_for};
///
/// let model = || Sequential::new("digits", [1, 28, 28]).conv2d(8, 3).relu().flatten().linear(10);
/// let machine = Machine::of_class(DeviceClass::Integrated);
/// let free = plan_for(model(), &Config::default(), &machine)?.plan;
/// let budget = free.minimum_budget_bytes;
/// let tight = plan_for(model(), &Config::default().budget_bytes(budget), &machine)?.plan;
/// assert!(tight.peak_bytes <= budget && budget < free.peak_bytes);
/// assert!(tight.predicted_step_ns >= free.predicted_step_ns);
/// # Ok::<(), tightfit::error::TrainError>(())
/// ```
///
/// # Errors
/// Where a setting makes no sense, the model does not fit together, or no plan meets the budget.
pub fn plan_for(model: impl Into<Model>, config: &Config, machine: &Machine) -> Result<Planned, TrainError> {
    let model = model.into();
    // Also where there is no plan: that may be why.
    warnings(&model, config)?.iter().for_each(|warning| log::warn!("{warning}"));
    plan_or_advise(Purpose::Training, &model, config, &FirstSteps::new(), machine)
}

/// As [`plan_with`]. Where the budget is too small, the error names a step that the user may allow and that would make it fit.
pub(super) fn plan_or_advise(
    purpose: Purpose,
    model: &Model,
    config: &Config,
    first_steps: &FirstSteps,
    machine: &Machine,
) -> Result<Planned, TrainError> {
    let plan = |config: &Config| plan_with(purpose, model, config, first_steps, machine);
    let mut result = plan(config);
    if let Err(TrainError::Plan(PlanError::Infeasible { message, .. })) = &mut result
        && purpose == Purpose::Training
        && let Some((step, changes, _)) = allowable(config).into_iter().find(|(.., config)| plan(config).is_ok())
    {
        *message += &format!("; it fits with {step}, which {changes}");
    }
    result
}

/// Steps that results change by, and that were not taken: what to write, what that does, and the settings.
fn allowable(config: &Config) -> Vec<(&'static str, &'static str, Config)> {
    let is_f32 = config.precision == Precision::F32 && config.layer_precision.is_empty();
    if !is_f32 || config.save_activations.is_some() || config.levers.half_activations.is_some() {
        return Vec::new();
    }
    let levers = Levers { half_activations: Some(Half::Bf16), ..config.levers };
    let copies = Config { levers, ..config.clone() };
    let all = Config { precision: Precision::Bf16, ..config.clone() };
    vec![
        ("`--allow bf16-activations`", "rounds the activations that backward reads", copies),
        ("`--precision bf16`", "rounds activations and their gradients", all),
    ]
}

pub(super) fn plan_with(
    purpose: Purpose,
    model: &Model,
    config: &Config,
    first_steps: &FirstSteps,
    machine: &Machine,
) -> Result<Planned, TrainError> {
    let source = ModelSource::from_steps(model, config, purpose, first_steps)?;
    let planned = plan::plan(&source, &request(config, machine)?);
    Ok(planned.map_err(|error| with_budget_source(error, config, machine))?)
}

/// What the planner is asked for.
pub(crate) fn request(config: &Config, machine: &Machine) -> Result<Request, TrainError> {
    Ok(Request {
        batch: config.batch,
        budget_bytes: config.budget_on(machine)?,
        micro_batches: config.micro_batches,
        // The CPU's own memory is that of the host: moving values there would free nothing.
        levers: Levers { offload: config.levers.offload && machine.limits.threads.is_none(), ..config.levers },
        limits: machine.limits,
        costs: machine.costs.clone(),
    })
}

/// Of a budget that nobody stated and that is too small, where it is from.
pub(crate) fn with_budget_source(mut error: PlanError, config: &Config, machine: &Machine) -> PlanError {
    if let (PlanError::Infeasible { message, .. }, Some(available)) = (&mut error, config.budget_source(machine)) {
        *message += &format!("; the budget was taken of {available}: free some, or state a budget");
    }
    error
}

/// Names of the inputs of a graph.
pub(crate) fn input_names(graph: &Graph) -> impl Iterator<Item = &str> {
    graph.values().iter().filter(|value| value.role == Role::Input).map(|value| value.name.as_str())
}

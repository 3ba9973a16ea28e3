//! What a model takes at many budgets, and how large a batch or a sequence a budget allows.

use super::machine::Machine;
use super::settings::Config;
use super::source::{ModelSource, Purpose, request, with_budget_source};
use crate::error::{PlanError, TrainError};
use crate::nn::Model;
use crate::plan::{self, Largest, Plan, Request};

/// Batches and sequences beyond this are not tried.
pub const MOST_SAMPLES: usize = 1 << 16;

/// Plans at budgets from the smallest that works to what is needed without one, in `points` equal steps and without those that take
/// longer than another with less memory. Smallest first; the budget of `config` does not matter.
///
/// # Errors
/// As [`plan`](super::plan()).
pub fn sweep(
    model: impl Into<Model>,
    config: &Config,
    machine: &Machine,
    points: usize,
) -> Result<Vec<Plan>, TrainError> {
    let model = model.into();
    let config = Config { budget_bytes: None, auto_budget: false, ..config.clone() };
    let source = ModelSource::new(&model, &config, Purpose::Training)?;
    Ok(plan::sweep(&source, &request(&config, machine)?, points)?)
}

/// The largest batch, up to [`MOST_SAMPLES`], for which a plan keeps to the budget of `config`; its own batch does not
/// matter. In micro-batches that may be any batch.
///
/// # Errors
/// Where not even the smallest batch fits.
pub fn max_batch(model: impl Into<Model>, config: &Config, machine: &Machine) -> Result<Largest, TrainError> {
    let model = model.into();
    let source = ModelSource::new(&model, config, Purpose::Training)?;
    let request = request(config, machine)?;
    let least = config.micro_batches.unwrap_or(1);
    let most = MOST_SAMPLES.max(least);
    let at = |batch| Request { batch, ..request.clone() };
    let mut is_possible = |batch| plan::is_possible(&source, &at(batch));
    let mut plan_at = |batch| plan::plan(&source, &at(batch));
    // Where micro-batches may be as small as they need to be, one look is enough.
    if config.micro_batches.is_none()
        && is_possible(most) == Ok(true)
        && let Ok(planned) = plan_at(most)
    {
        return Ok(Largest { size: most, plan: planned.plan, beyond: None });
    }
    let largest = plan::largest(least, most, &mut is_possible, &mut plan_at);
    Ok(largest.map_err(|error| with_budget_source(error, config, machine))?)
}

/// The longest sequences, up to [`MOST_SAMPLES`], for which a plan keeps to the budget at the batch of `config`; `None`
/// where the model does not take sequences of any length.
///
/// # Errors
/// Where not even sequences of length 1 fit.
pub fn max_length(model: impl Into<Model>, config: &Config, machine: &Machine) -> Result<Option<Largest>, TrainError> {
    let model = model.into();
    if model.with_length(1).is_none() {
        return Ok(None);
    }
    let request = request(config, machine)?;
    // Settings are looked at before lengths are.
    ModelSource::new(&model, config, Purpose::Training)?;
    let of_length = |length| {
        let no_such_length = || PlanError::Request(format!("the model takes no sequences of length {length}"));
        model.with_length(length).ok_or_else(no_such_length)
    };
    fn source<'a>(model: &'a Model, config: &Config) -> ModelSource<'a> {
        ModelSource::new(model, config, Purpose::Training).expect("bug: settings depend on the length")
    }
    let mut is_possible = |length| plan::is_possible(&source(&of_length(length)?, config), &request);
    let mut plan_at = |length| plan::plan(&source(&of_length(length)?, config), &request);
    let largest = plan::largest(1, MOST_SAMPLES, &mut is_possible, &mut plan_at);
    Ok(Some(largest.map_err(|error| with_budget_source(error, config, machine))?))
}

//! How a trainer comes by its plans.

use crate::error::TrainError;
use crate::nn::Model;
use crate::plan::{Plan, Planned, restore};
use crate::train::groups::FirstSteps;
use crate::train::loss_scale::LossScale;
use crate::train::machine::Machine;
use crate::train::settings::Config;
use crate::train::source::{ModelSource, Purpose, plan_or_advise};

/// Makes the plans of one trainer.
#[derive(Clone, Debug)]
pub(super) struct Planning {
    pub(super) purpose: Purpose,
    /// One that was made before: the plan at its budget.
    pub(super) given: Option<Plan>,
    /// Of parameters that are trained since a later step than others.
    pub(super) first_steps: FirstSteps,
}

impl Planning {
    pub(super) fn new(purpose: Purpose) -> Self {
        Planning { purpose, given: None, first_steps: FirstSteps::new() }
    }

    /// A plan for a machine, at a budget and with a fixed number of micro-batches where these are given.
    pub(super) fn plan(&self, model: &Model, config: &Config, machine: &Machine) -> Result<Planned, TrainError> {
        match &self.given {
            Some(plan) if plan.budget_bytes == config.budget_bytes => {
                let source = self.source(model, config)?;
                Ok(restore(plan.clone(), &source, config.batch, &machine.limits)?)
            }
            _ => plan_or_advise(self.purpose, model, config, &self.first_steps, machine),
        }
    }

    /// What the loss is scaled by: gradients that are looked at are made of it as it is.
    pub(super) fn loss_scale(&self, config: &Config) -> LossScale {
        if self.purpose == Purpose::Training { config.loss_scale_or_default() } else { LossScale::None }
    }

    pub(super) fn source<'a>(&self, model: &'a Model, config: &Config) -> Result<ModelSource<'a>, TrainError> {
        ModelSource::from_steps(model, config, self.purpose, &self.first_steps)
    }
}

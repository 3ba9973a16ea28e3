//! Why a training takes the memory that it does, and what each remedy would save. Every one is planned, none is guessed.

mod memory;
mod remedies;

use serde::Serialize;

pub use memory::{LargeTensor, MemoryUse};

use self::remedies::{Change, changes};
use super::explore::max_batch;
use super::groups::FirstSteps;
use super::machine::Machine;
use super::precision::Precision;
use super::settings::Config;
use super::source::{ModelSource, Purpose, plan_with};
use crate::error::{PlanError, TrainError};
use crate::nn::{Model, Statistics};
use crate::plan::{Levers, Plan, mixing};
use crate::tensor::Half;

/// What a remedy does to the results of a training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// They are the same, bit for bit.
    Nothing,
    /// The last bits: sums run in another order.
    Rounding,
    /// Digits: activations are stored in 16 bits.
    Precision,
    /// What is learned, or from what.
    Training,
}

/// Something that may be done about memory, and what training then takes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Remedy {
    /// In words.
    pub name: String,
    /// What it does to results.
    pub effect: Effect,
    /// What to add to the command line.
    pub flags: String,
    /// What to add to a [`Config`], or to the model, in Rust.
    pub code: String,
    /// Samples of a step.
    pub batch: usize,
    /// Peak of its plan; where that is above the budget, the least that it can do.
    pub peak_bytes: u64,
    /// Predicted time of a step; `None` where there is no plan within the budget.
    pub step_ns: Option<u64>,
    /// Whether it is within the budget.
    pub fits: bool,
}

impl Remedy {
    /// Predicted time for a sample, by which steps of different batches compare.
    pub fn sample_ns(&self) -> Option<f64> {
        Some(self.step_ns? as f64 / self.batch as f64)
    }
}

/// What [`advise`] finds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// The budget that remedies are held to.
    pub budget_bytes: u64,
    /// The training as other frameworks run it: the whole batch at once, nothing recomputed, nothing offloaded.
    pub as_it_is: Remedy,
    /// Each remedy by itself.
    pub remedies: Vec<Remedy>,
    /// What takes least time for a sample among what fits and changes no more than the last bits, if anything does.
    pub unchanged: Option<Remedy>,
    /// The same among what learns alike, in 16 bits if need be.
    pub rounded: Option<Remedy>,
    /// What takes least time for a sample among all that fits, remedies together with what the planner does included.
    pub cheapest: Option<Remedy>,
    /// What the memory is.
    pub memory: MemoryUse,
}

/// What may be done where a training does not fit a budget: each remedy as a plan, alone and together with what the planner does by
/// itself, and what the memory is for. The budget is that of `config`, or what the machine has free.
///
/// ```
/// use tightfit::models;
/// use tightfit::plan::DeviceClass;
/// use tightfit::train::{Config, Effect, Machine, advise};
///
/// let config = Config::default().batch(64).budget_bytes(30 << 20);
/// let advice = advise(&models::mnist_cnn(10), &config, &Machine::of_class(DeviceClass::Discrete))?;
/// assert!(!advice.as_it_is.fits);
/// let best = advice.unchanged.expect("recomputing and micro-batches are enough");
/// assert!(best.fits && best.peak_bytes <= 30 << 20 && best.effect < Effect::Training);
/// # Ok::<(), tightfit::error::TrainError>(())
/// ```
///
/// # Errors
/// Where there is no budget, a setting makes no sense or the model does not fit together. That nothing fits is no error.
pub fn advise(model: &Model, config: &Config, machine: &Machine) -> Result<Advice, TrainError> {
    let Some(budget_bytes) = config.budget_on(machine)? else {
        return Err(TrainError::Setting("advice is for a budget: say how many bytes there are".to_owned()));
    };
    let config = Config { budget_bytes: Some(budget_bytes), auto_budget: false, ..config.clone() };
    let source = ModelSource::new(model, &config, Purpose::Training)?;
    let mixes = mixing(&source, config.batch)?.is_some();
    let memory = MemoryUse::of(model, &config)?;
    let adviser = Adviser { model, config, machine, budget_bytes };

    let plain = adviser.plain();
    let as_it_is = adviser.alone(&Change::none(), &plain)?;
    let mut remedies = adviser.levers(mixes)?;
    if let Some(smaller) = adviser.smaller_batch(&plain)? {
        remedies.push(smaller);
    }
    let changes = changes(model, &adviser.config, mixes)?;
    for change in &changes {
        remedies.push(adviser.alone(change, &plain)?);
    }
    let mut fitting: Vec<Remedy> = remedies.iter().filter(|remedy| remedy.fits).cloned().collect();
    for change in &changes {
        fitting.extend(adviser.within(&[change])?);
    }
    if fitting.is_empty() {
        for (i, first) in changes.iter().enumerate() {
            // Two formats exclude each other.
            let fits = |second: &&Change| [first.effect, second.effect] != [Effect::Precision; 2];
            for second in changes[i + 1..].iter().filter(fits) {
                fitting.extend(adviser.within(&[first, second])?);
            }
        }
    }
    let nothing_needed = as_it_is.fits.then_some(&as_it_is);
    let quickest = |most: Effect| {
        let time = |remedy: &&Remedy| remedy.sample_ns().unwrap_or(f64::INFINITY);
        let allowed = fitting.iter().filter(|remedy| remedy.effect <= most);
        let quickest = || allowed.min_by(|a, b| time(a).total_cmp(&time(b)).then(a.effect.cmp(&b.effect)));
        nothing_needed.or_else(quickest).cloned()
    };
    let [unchanged, rounded, cheapest] = [Effect::Rounding, Effect::Precision, Effect::Training].map(quickest);
    Ok(Advice { budget_bytes, as_it_is, remedies, unchanged, rounded, cheapest, memory })
}

/// What plans are made of and for.
struct Adviser<'a> {
    model: &'a Model,
    config: Config,
    machine: &'a Machine,
    budget_bytes: u64,
}

/// What was found within a budget, or the least that there is.
enum Found {
    Plan(Box<Plan>),
    Least(u64),
}

impl Adviser<'_> {
    /// As other frameworks run it.
    fn plain(&self) -> Config {
        let levers = Levers { recompute: false, offload: false, ..self.config.levers };
        let micro_batches = Some(self.config.micro_batches.unwrap_or(1));
        Config { levers, micro_batches, budget_bytes: None, ..self.config.clone() }
    }

    fn find(&self, model: &Model, config: &Config) -> Result<Found, TrainError> {
        match plan_with(Purpose::Training, model, config, &FirstSteps::new(), self.machine) {
            Ok(planned) => Ok(Found::Plan(Box::new(planned.plan))),
            Err(TrainError::Plan(PlanError::Infeasible { minimum_budget_bytes, .. })) => {
                Ok(Found::Least(minimum_budget_bytes))
            }
            Err(error) => Err(error),
        }
    }

    fn remedy(&self, change: &Change, batch: usize, found: &Found) -> Remedy {
        let (peak_bytes, step_ns, is_split) = match found {
            Found::Plan(plan) => (plan.peak_bytes, Some(plan.predicted_step_ns), plan.micro_batches.len() > 1),
            Found::Least(bytes) => (*bytes, None, false),
        };
        let effect = if is_split { change.effect.max(Effect::Rounding) } else { change.effect };
        let fits = step_ns.is_some() && peak_bytes <= self.budget_bytes;
        let Change { name, flags, code, .. } = change;
        let (name, flags, code) = (name.clone(), flags.clone(), code.clone());
        Remedy { name, effect, flags, code, batch, peak_bytes, step_ns, fits }
    }

    /// A change by itself, without anything that the planner may do.
    fn alone(&self, change: &Change, plain: &Config) -> Result<Remedy, TrainError> {
        let (model, config) = change.applied(self.model, plain);
        Ok(self.remedy(change, config.batch, &self.find(&model, &config)?))
    }

    /// Changes together with all that the planner may do; `None` where that does not fit.
    fn within(&self, changes: &[&Change]) -> Result<Option<Remedy>, TrainError> {
        let (mut model, mut config) = (self.model.clone(), self.config.clone());
        for change in changes {
            (model, config) = change.applied(&model, &config);
        }
        let mut all = Change::together(changes);
        all.add_budget(self.budget_bytes);
        let remedy = self.remedy(&all, config.batch, &self.find(&model, &config)?);
        Ok(Some(remedy).filter(|remedy| remedy.fits))
    }

    /// What the planner may do, each by itself and then all of it.
    fn levers(&self, mixes: bool) -> Result<Vec<Remedy>, TrainError> {
        let plain = Config { budget_bytes: Some(self.budget_bytes), ..self.plain() };
        let with = |recompute: bool, offload: bool| Levers { recompute, offload, ..self.config.levers };
        let mut tried = Vec::new();
        if !mixes && self.config.micro_batches.is_none() {
            let config = Config { micro_batches: None, ..plain.clone() };
            let change = Change::lever("micro-batches (gradient accumulation)", self.budget_bytes, "recompute,offload");
            tried.push((change, config));
        }
        let allowed = self.config.levers;
        if allowed.recompute {
            let change = Change::lever("recomputing activations (checkpointing)", self.budget_bytes, "offload");
            tried.push((change, Config { levers: with(true, false), ..plain.clone() }));
        }
        if allowed.offload && !self.machine.costs.unified_memory {
            let change = Change::lever("offloading to memory of the host", self.budget_bytes, "recompute");
            tried.push((change, Config { levers: with(false, true), ..plain.clone() }));
        }
        let change = Change::lever("all that the planner may do", self.budget_bytes, "");
        tried.push((change, self.config.clone()));
        if self.config.precision == Precision::F32 && self.config.save_activations.is_none() {
            let levers = Levers { half_activations: Some(Half::Bf16), ..self.config.levers };
            tried.push((Change::copies(self.budget_bytes), Config { levers, ..self.config.clone() }));
        }
        tried
            .iter()
            .map(|(change, config)| Ok(self.remedy(change, config.batch, &self.find(self.model, config)?)))
            .collect()
    }

    /// The largest batch that fits as other frameworks run it, where that is below the one that was asked for; else one sample.
    fn smaller_batch(&self, plain: &Config) -> Result<Option<Remedy>, TrainError> {
        if self.config.batch == 1 || plain.micro_batches != Some(1) {
            return Ok(None);
        }
        let config = Config { budget_bytes: Some(self.budget_bytes), ..plain.clone() };
        let batch = match max_batch(self.model.clone(), &config, self.machine) {
            Ok(largest) if largest.size >= self.config.batch => self.config.batch / 2,
            Ok(largest) => largest.size,
            Err(TrainError::Plan(PlanError::Infeasible { .. })) => 1,
            Err(error) => return Err(error),
        };
        let mut change = Change::batch(batch);
        let remedy = self.alone(&change, plain)?;
        if remedy.fits {
            return Ok(Some(remedy));
        }
        // The largest that the planner makes fit without recompute and offload.
        change.add_budget(self.budget_bytes);
        change.forbid("recompute,offload");
        change.flags += " --micro-batches 1";
        change.code += ".micro_batches(1)";
        let config = Config { batch, ..config };
        Ok(Some(self.remedy(&change, batch, &self.find(self.model, &config)?)))
    }
}

/// Whether another choice of batch norm's statistics lets a batch be split.
fn may_be_ghost(config: &Config, mixes: bool) -> bool {
    mixes && config.statistics == Statistics::Exact
}

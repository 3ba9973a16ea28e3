//! Other settings for a trainer that has begun: a new plan, under which all that was learnt goes on.

use std::collections::{BTreeMap, BTreeSet};

use super::Trainer;
use super::planning::Planning;
use super::recover::{self, Opened};
use crate::device::DeviceSelector;
use crate::error::{PlanError, TrainError};
use crate::exec::Released;
use crate::nn::{Mode, Model, Parameter};
use crate::plan::Planned;
use crate::tensor::TensorDesc;
use crate::train::advice::warnings;
use crate::train::backend::{Backend, LocalDevice};
use crate::train::checkpoint::{Checkpoint, Trained};
use crate::train::fed::Fed;
use crate::train::groups::{FirstSteps, Rules, no_such_prefix};
use crate::train::objective::Objective;
use crate::train::schedule::Schedule;
use crate::train::settings::Config;
use crate::train::source::Purpose;
use crate::train::state::averaged;

/// A value that lasts, as it is carried from one plan to the next.
type Kept = BTreeMap<String, (TensorDesc, Vec<u8>)>;

impl Trainer {
    /// A trainer that goes on from a checkpoint: as [`Trainer::new`] and [`restore`](Trainer::restore), with the parameters frozen that
    /// were then, and as many micro-batches where the budget allows that and `config` names no other number, so that results are the
    /// same bit for bit.
    ///
    /// ```
    /// # use tightfit::data::{TensorDataset, Values, Targets};
    /// # use tightfit::nn::Sequential;
    /// use tightfit::train::{Checkpoint, Checkpoints, Config, DeviceSelector, FitOptions, Trainer};
    /// # let data = TensorDataset::new(Values::F32(vec![0.0, 1.0, 2.0, 3.0]), [1], Targets::labels(vec![0, 0, 1, 1], 2))?;
    /// # let folder = tempfile::tempdir().expect("a temporary folder");
    /// # let folder = folder.path();
    /// let model = || Sequential::new("two-classes", [1]).linear(2);
    /// let config = || Config::default().batch(2);
    /// let options = |steps| FitOptions {
    ///     max_steps: steps,
    ///     checkpoints: Some(Checkpoints::new(folder).every_steps(100)),
    ///     ..FitOptions::epochs(10)
    /// };
    /// let mut first = Trainer::new(model(), config(), DeviceSelector::Cpu)?;
    /// first.fit(&data, options(Some(7)))?;
    ///
    /// // Later, in another process.
    /// let mut second = Trainer::resume(model(), config(), DeviceSelector::Cpu, &Checkpoint::open_latest(folder)?)?;
    /// assert_eq!(second.fit(&data, options(None))?.steps, 20);
    /// # Ok::<(), tightfit::error::TrainError>(())
    /// ```
    ///
    /// # Errors
    /// As those two.
    pub fn resume(
        model: impl Into<Model>,
        config: Config,
        device: impl Into<DeviceSelector>,
        checkpoint: &Checkpoint,
    ) -> Result<Self, TrainError> {
        let (model, device) = (model.into(), device.into());
        let mut planning = Planning::new(Purpose::Training);
        let micro_batches = config.micro_batches;
        let mut config = config;
        if let Some(trained) = checkpoint.state.trained.clone() {
            planning.first_steps = trained.first_steps;
            (config.freeze, config.train_only) = (trained.freeze, trained.train_only);
        }
        let same_split = Config { micro_batches: micro_batches.or(Some(checkpoint.micro_batches())), ..config.clone() };
        let start = |config: Config| {
            let backend = Box::new(LocalDevice::new(device.clone(), config.threads));
            Trainer::start(planning.clone(), model.clone(), config, backend)
        };
        let mut trainer = match start(same_split) {
            Err(TrainError::Plan(PlanError::Infeasible { .. })) => start(config)?,
            result => result?,
        };
        // Another plan is free to split batches otherwise.
        trainer.config.micro_batches = micro_batches;
        trainer.restore(checkpoint)?;
        Ok(trainer)
    }

    /// Names of the parameters that are not trained.
    pub fn frozen(&self) -> &BTreeSet<String> {
        &self.rules.frozen
    }

    /// Trains on with other settings, under a new plan: parameters, buffers, and what optimizer state there was before stay as they
    /// are. The optimizer counts the steps of a parameter from the first one that has its state. A schedule that changes does from the
    /// next fit on. In a fit, the batch must stay.
    ///
    /// ```
    /// # use tightfit::data::{TensorDataset, Values, Targets};
    /// # use tightfit::nn::Sequential;
    /// # use tightfit::train::{Config, DeviceSelector, FitOptions, Trainer};
    /// # let data = TensorDataset::new(Values::F32(vec![0.0, 1.0, 2.0, 3.0]), [1], Targets::labels(vec![0, 0, 1, 1], 2))?;
    /// # let model = Sequential::new("two-classes", [1]).linear(8).relu().linear(2);
    /// let mut trainer = Trainer::new(model, Config::default().batch(2).train_only("linear2."), DeviceSelector::Cpu)?;
    /// trainer.fit(&data, FitOptions::epochs(2))?;
    /// // All of it from here on, and carefully.
    /// trainer.reconfigure(|config| Config { train_only: Vec::new(), ..config }.clip_norm(1.0))?;
    /// trainer.fit(&data, FitOptions::epochs(2))?;
    /// # Ok::<(), tightfit::error::TrainError>(())
    /// ```
    ///
    /// # Errors
    /// Where a setting makes no sense, no plan meets the budget, or the device fails. The trainer then is as it was, unless it is
    /// the device that was lost.
    pub fn reconfigure(&mut self, change: impl FnOnce(Config) -> Config) -> Result<(), TrainError> {
        let config = change(self.config.clone());
        let first_steps = self.first_steps_with(&config, self.updates())?;
        self.replace_plan(config, first_steps)
    }

    /// The plan that [`reconfigure`](Trainer::reconfigure) would take after another step.
    ///
    /// # Errors
    /// Where a setting makes no sense or no plan meets the budget.
    pub fn plan_with(&self, change: impl FnOnce(Config) -> Config) -> Result<Planned, TrainError> {
        let config = change(self.config.clone());
        // What counts its own steps by then has rates of its own, too.
        let first_steps = self.first_steps_with(&config, self.updates() + 1)?;
        self.planned_with(&config, first_steps).map(|(_, planned)| planned)
    }

    /// Does not train the parameters whose names begin so from the next step on: they take no gradient and no optimizer state.
    ///
    /// # Errors
    /// Where there are none, or no others. Else as [`reconfigure`](Trainer::reconfigure).
    pub fn freeze(&mut self, prefix: &str) -> Result<(), TrainError> {
        self.reconfigure(|config| config.freeze(prefix))
    }

    /// Trains the parameters whose names begin so from the next step on; with an empty prefix, all of them. Their optimizer state
    /// begins anew.
    ///
    /// # Errors
    /// Where there are none, or it is a [`Group`](crate::train::Group) that freezes them. Else as
    /// [`reconfigure`](Trainer::reconfigure).
    pub fn unfreeze(&mut self, prefix: &str) -> Result<(), TrainError> {
        let config = self.unfrozen(prefix)?;
        if config == self.config { Ok(()) } else { self.reconfigure(|_| config) }
    }

    /// The settings with which the parameters whose names begin so are trained.
    pub(in crate::train) fn unfrozen(&self, prefix: &str) -> Result<Config, TrainError> {
        let names: Vec<_> = self.lasting.parameters().iter().map(String::as_str).collect();
        if !names.iter().any(|name| name.starts_with(prefix)) {
            return Err(no_such_prefix("unfreeze", &names, prefix));
        }
        let mut config = self.config.clone();
        if !self.rules.frozen.iter().any(|name| name.starts_with(prefix)) {
            return Ok(config);
        }
        // Of what a shorter prefix freezes, all others stay as they are.
        let mut freeze = Vec::new();
        for named in config.freeze {
            if prefix.starts_with(&named) && *prefix != named {
                let rest =
                    self.rules.frozen.iter().filter(|name| name.starts_with(&named) && !name.starts_with(prefix));
                freeze.extend(rest.cloned());
            } else if !named.starts_with(prefix) {
                freeze.push(named);
            }
        }
        config.freeze = freeze;
        if prefix.is_empty() {
            config.train_only.clear();
        } else if !config.train_only.is_empty() {
            config.train_only.push(prefix.to_owned());
        }
        let rules = self.planning.source(&self.model, &config)?.rules;
        match rules.frozen.iter().find(|name| name.starts_with(prefix)) {
            Some(name) => Err(TrainError::Setting(format!(
                "unfreeze: `{name}` is in a group whose lr_factor is 0: give that another one"
            ))),
            None => Ok(config),
        }
    }

    /// Since when parameters are trained, with these settings after so many updates.
    fn first_steps_with(&self, config: &Config, updates: u64) -> Result<FirstSteps, TrainError> {
        let now = Planning { first_steps: FirstSteps::new(), ..self.planning.clone() };
        let now = now.source(&self.model, config)?.rules;
        let built = self.model.build(1, Mode::Evaluate)?;
        let trained = built.parameters.iter().filter(|parameter| !now.frozen.contains(&parameter.name));
        let first_step = |parameter: &Parameter| {
            let (name, desc) = (&parameter.name, &built.graph.value(parameter.value).desc);
            let states = |rules: &Rules| rules.of(name).states(desc);
            let goes_on = !self.rules.frozen.contains(name) && states(&self.rules) == states(&now);
            let before = self.planning.first_steps.get(name).copied().unwrap_or(0);
            (name.clone(), if goes_on { before } else { updates })
        };
        Ok(trained.map(first_step).filter(|(_, step)| *step > 0).collect())
    }

    /// What it takes to train with these settings, on the device as it was opened.
    fn planned_with(&self, config: &Config, first_steps: FirstSteps) -> Result<(Planning, Planned), TrainError> {
        let Some(machine) = &self.machine else {
            let text = "the executor of this trainer was made elsewhere: make another trainer for other settings";
            return Err(TrainError::Setting(text.to_owned()));
        };
        let planning = Planning { given: None, first_steps, ..self.planning.clone() };
        let planned = planning.plan(&self.model, config, machine)?;
        Ok((planning, planned))
    }

    /// Goes on under another plan. Where that fails, the one before is taken up again.
    pub(in crate::train) fn replace_plan(
        &mut self,
        mut config: Config,
        first_steps: FirstSteps,
    ) -> Result<(), TrainError> {
        config.schedule.as_ref().map_or(Ok(()), Schedule::check)?;
        let objective = Objective::new(&config)?;
        let fed = Fed::new(&self.model, &objective)?;
        let (planning, planned) = self.planned_with(&config, first_steps)?;
        let rules = planning.source(&self.model, &config)?.rules;
        for warning in warnings(&self.model, &config)? {
            log::warn!("{warning}");
        }
        let mut kept = Kept::new();
        for value in self.planned.plan.persistent.iter().filter(|value| value.role.lasts()) {
            kept.insert(value.name.clone(), (value.desc.clone(), self.executor.read(&value.name)?));
        }
        let mut backend = self.backend.take().expect("bug: a machine and no backend");
        self.executor = Box::new(Released);
        let opened = open_with(&mut *backend, &planning, &self.model, &mut config, planned, &kept);
        let result = match opened {
            Ok(opened) => {
                self.executor = opened.executor;
                self.planned = opened.planned;
                self.machine = Some(opened.machine);
                let before = self.budget_source.filter(|_| config.budget_bytes == self.config.budget_bytes);
                self.budget_source = opened.budget_source.or(before);
                self.scaling.set(planning.loss_scale(&config));
                (self.config, self.planning, self.rules) = (config, planning, rules);
                (self.objective, self.fed) = (objective, fed);
                self.replanned += 1;
                self.snapshot_is_old();
                self.forget_predicted();
                Ok(())
            }
            Err(error) => self.take_up_again(&mut *backend, &kept).and(Err(error)),
        };
        self.backend = Some(backend);
        result
    }

    /// Takes up the plan that was released.
    fn take_up_again(&mut self, backend: &mut dyn Backend, kept: &Kept) -> Result<(), TrainError> {
        backend.open()?;
        self.executor = backend.executor(&self.planned)?;
        for (name, (_, bytes)) in kept {
            self.executor.write(name, bytes)?;
        }
        Ok(())
    }

    /// Which parameters are trained, and since when.
    pub(in crate::train) fn trained(&self) -> Trained {
        let Config { freeze, train_only, .. } = self.config.clone();
        Trained { freeze, train_only, first_steps: self.planning.first_steps.clone() }
    }
}

/// An executor of a plan, with what was kept in it.
fn open_with(
    backend: &mut dyn Backend,
    planning: &Planning,
    model: &Model,
    config: &mut Config,
    planned: Planned,
    kept: &Kept,
) -> Result<Opened, TrainError> {
    let machine = backend.open()?;
    let mut opened = recover::make_executor(backend, planning, model, config, machine, planned)?;
    for value in opened.planned.plan.persistent.iter().filter(|value| value.role.lasts()) {
        // Averages begin with the parameters as they are; other state that is new begins with zeros.
        let before = kept.get(&value.name).or_else(|| kept.get(averaged(&value.name)?));
        if let Some((_, bytes)) = before.filter(|(desc, _)| *desc == value.desc) {
            opened.executor.write(&value.name, bytes)?;
        }
    }
    Ok(opened)
}

//! The trainer: a model, a plan and an executor, fed with batches.

mod evaluation;
mod find_lr;
mod fit;
mod gradients;
mod planning;
mod reconfigure;
mod recover;
mod staging;
mod step;

use std::fmt;
use std::path::Path;

pub use evaluation::Prediction;
pub use find_lr::{LrCurve, LrRange};
pub use gradients::Gradients;
use planning::Planning;
pub(super) use recover::Snapshot;
pub use recover::{Recovery, Replan};
use staging::Staging;
pub use step::StepOutcome;

use super::advice::warnings;
use super::backend::{Backend, LocalDevice};
use super::checkpoint::Pending;
use super::fed::Fed;
use super::groups::Rules;
use super::loss_scale::Scaling;
use super::machine::{CostSource, Machine};
use super::objective::Objective;
use super::optimizer::non_negative;
use super::preprocessing::Preprocessing;
use super::schedule::{LrSchedule as _, Schedule};
use super::settings::Config;
use super::source::Purpose;
use super::state::Lasting;
use super::summary::{Summary, summary};
use crate::data::Batch;
use crate::device::{AvailableMemory, Compiled, DeviceSelector};
use crate::error::TrainError;
use crate::exec::Executor;
use crate::nn::{Mode, Model};
use crate::plan::{Plan, Planned};

/// Trains one model under one plan.
///
/// ```
/// use tightfit::data::{TensorDataset, Values, Targets};
/// use tightfit::nn::Sequential;
/// use tightfit::train::{Config, DeviceSelector, FitOptions, Loss, Optimizer, Trainer};
///
/// // Four samples of a line: y = 2 x.
/// let y = Targets::Values { values: vec![0.0, 2.0, 4.0, 6.0], shape: [1].into() };
/// let data = TensorDataset::new(Values::F32(vec![0.0, 1.0, 2.0, 3.0]), [1], y)?;
/// let model = Sequential::new("line", [1]).linear(1);
/// let config = Config::default().batch(4).loss(Loss::Mse).optimizer(Optimizer::sgd(0.1));
/// // On the CPU; `DeviceSelector::Best` is the best GPU, else the CPU.
/// let mut trainer = Trainer::new(model, config, DeviceSelector::Cpu)?;
/// println!("{}", trainer.plan());
/// trainer.fit(&data, FitOptions::epochs(200))?;
/// assert!(trainer.evaluate(&data)?.loss < 0.01);
/// assert_eq!(trainer.measured_peak_bytes(), trainer.plan().peak_bytes);
/// # Ok::<(), tightfit::error::TrainError>(())
/// ```
pub struct Trainer {
    pub(super) model: Model,
    pub(super) config: Config,
    planning: Planning,
    rules: Rules,
    objective: Objective,
    fed: Fed,
    pub(super) planned: Planned,
    pub(super) executor: Box<dyn Executor>,
    pub(super) lasting: Lasting,
    /// Where executors come from; `None` where this one was made elsewhere.
    backend: Option<Box<dyn Backend>>,
    /// What training goes on from where memory goes.
    snapshot: Option<Snapshot>,
    /// Steps made so far, over all fits, skipped ones among them.
    pub(super) steps: u64,
    /// What the loss is multiplied by, and which steps were skipped.
    pub(super) scaling: Scaling,
    /// Epochs begun so far, over all fits: each has its own order of samples.
    pub(super) epochs: u64,
    /// Steps of the schedule so far, and all of them where that is known.
    pub(super) schedule_step: u64,
    pub(super) schedule_steps: Option<u64>,
    /// That of the settings, with lengths in steps.
    pub(super) schedule: Option<Schedule>,
    /// What the scheduled learning rate is multiplied by, such as by a callback that waits for a plateau.
    pub(super) lr_scale: f64,
    /// Failures since the last step that was made.
    failures: u32,
    /// Why the fit at hand is to end, where it is.
    pub(super) stop_reason: Option<String>,
    /// The fit that a checkpoint was taken from, until it goes on.
    pub(super) pending: Option<Pending>,
    /// Plans that were replaced by others.
    replanned: u64,
    /// That of the last step that read its samples itself, and what of a batch the last micro-batch was given in another form.
    batch: Batch,
    staging: Staging,
    /// How often inputs went to the device: what is there is then not what was.
    uploads: u64,
    /// What the last prediction that goes on left.
    predicted_state: Vec<(String, Vec<u8>)>,
    /// Whether the device has no memory of its own.
    unified_memory: bool,
    /// How the data was read.
    pub(super) preprocessing: Preprocessing,
    /// What plans are made for; `None` where the executor was made elsewhere.
    machine: Option<Machine>,
    /// What the budget was taken of, where none was stated.
    budget_source: Option<AvailableMemory>,
    /// Of the process, before anything that the plan names existed.
    base_bytes: Option<u64>,
}

impl fmt::Debug for Trainer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trainer").field("model", &self.model).field("config", &self.config).finish_non_exhaustive()
    }
}

impl Trainer {
    /// Plans the training, creates everything that the plan names on the device, and initialises the parameters.
    ///
    /// # Errors
    /// Where a setting makes no sense, the model does not fit together, no plan meets the budget, or the device fails.
    pub fn new(model: impl Into<Model>, config: Config, device: impl Into<DeviceSelector>) -> Result<Self, TrainError> {
        Trainer::open(Purpose::Training, model.into(), config, device.into())
    }

    /// As [`Trainer::new`], but only to evaluate and predict: the plan holds no gradients and no optimizer state.
    ///
    /// # Errors
    /// As [`Trainer::new`].
    pub fn for_evaluation(
        model: impl Into<Model>,
        config: Config,
        device: impl Into<DeviceSelector>,
    ) -> Result<Self, TrainError> {
        Trainer::open(Purpose::Evaluation, model.into(), config, device.into())
    }

    /// As [`Trainer::new`], but to look at [`gradients`](Trainer::gradients): the plan holds them, and neither updates nor optimizer
    /// state.
    ///
    /// # Errors
    /// As [`Trainer::new`].
    pub fn for_gradients(
        model: impl Into<Model>,
        config: Config,
        device: impl Into<DeviceSelector>,
    ) -> Result<Self, TrainError> {
        Trainer::open(Purpose::Gradients, model.into(), config, device.into())
    }

    fn open(purpose: Purpose, model: Model, config: Config, device: DeviceSelector) -> Result<Self, TrainError> {
        let threads = config.threads;
        Trainer::start(Planning::new(purpose), model, config, Box::new(LocalDevice::new(device, threads)))
    }

    /// As [`Trainer::new`], on devices that `backend` opens: where memory goes or the device is lost, it is asked again.
    ///
    /// # Errors
    /// As [`Trainer::new`].
    pub fn with_backend(
        model: impl Into<Model>,
        config: Config,
        backend: Box<dyn Backend>,
    ) -> Result<Self, TrainError> {
        Trainer::start(Planning::new(Purpose::Training), model.into(), config, backend)
    }

    /// As [`Trainer::new`], but under a plan that was made before, such as one from a
    /// [`PlanFile`](super::PlanFile::into_plan). It has its own budget, micro-batches and levers, those of `config` do not matter.
    ///
    /// # Errors
    /// Where the plan is not one for this model, these settings or this device. Else as
    /// [`Trainer::new`].
    pub fn with_plan(
        model: impl Into<Model>,
        config: Config,
        plan: Plan,
        device: impl Into<DeviceSelector>,
    ) -> Result<Self, TrainError> {
        let (budget_bytes, threads) = (plan.budget_bytes, config.threads);
        let config =
            Config { budget_bytes, auto_budget: false, micro_batches: Some(plan.micro_batches.len()), ..config };
        let planning = Planning { given: Some(plan), ..Planning::new(Purpose::Training) };
        Trainer::start(planning, model.into(), config, Box::new(LocalDevice::new(device.into(), threads)))
    }

    fn start(
        planning: Planning,
        model: Model,
        mut config: Config,
        mut backend: Box<dyn Backend>,
    ) -> Result<Self, TrainError> {
        warnings(&model, &config)?.iter().for_each(|warning| log::warn!("{warning}"));
        let opened = recover::begin(&mut *backend, &planning, &model, &mut config)?;
        let mut trainer = Trainer::assemble(planning, model, config, opened.planned, opened.executor)?;
        trainer.unified_memory = opened.unified_memory;
        trainer.machine = Some(opened.machine);
        trainer.budget_source = opened.budget_source;
        trainer.base_bytes = opened.base_bytes;
        trainer.backend = Some(backend);
        Ok(trainer)
    }

    /// As [`Trainer::new`], on an executor that was made for this plan.
    ///
    /// # Errors
    /// Where a setting makes no sense or the device fails.
    pub fn with_executor(
        model: impl Into<Model>,
        config: Config,
        planned: Planned,
        executor: Box<dyn Executor>,
    ) -> Result<Self, TrainError> {
        Trainer::assemble(Planning::new(Purpose::Training), model.into(), config, planned, executor)
    }

    fn assemble(
        planning: Planning,
        model: Model,
        config: Config,
        planned: Planned,
        executor: Box<dyn Executor>,
    ) -> Result<Self, TrainError> {
        let rules = planning.source(&model, &config)?.rules;
        if let Some(schedule) = &config.schedule {
            schedule.check()?;
        }
        let schedule = config.schedule.clone();
        let built = model.build(1, Mode::Evaluate)?;
        let objective = Objective::new(&config)?;
        let fed = Fed::new(&model, &objective)?;
        let scaling = Scaling::new(planning.loss_scale(&config));
        let mut trainer = Trainer {
            model,
            config,
            planning,
            rules,
            objective,
            fed,
            planned,
            executor,
            lasting: Lasting::of(&built),
            backend: None,
            snapshot: None,
            steps: 0,
            scaling,
            epochs: 0,
            schedule_step: 0,
            schedule_steps: None,
            schedule,
            lr_scale: 1.0,
            failures: 0,
            replanned: 0,
            stop_reason: None,
            pending: None,
            batch: Batch::default(),
            staging: Staging::default(),
            uploads: 0,
            predicted_state: Vec::new(),
            unified_memory: false,
            preprocessing: Preprocessing::default(),
            machine: None,
            budget_source: None,
            base_bytes: None,
        };
        trainer.initialise(built)?;
        Ok(trainer)
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The learning rate of the next step, of parameters in no group.
    pub fn lr(&self) -> f64 {
        self.lr_after(0)
    }

    /// Sets the optimizer's learning rate, which a schedule goes on to multiply.
    ///
    /// # Errors
    /// Where it is not a number, 0 or more.
    pub fn set_lr(&mut self, lr: f64) -> Result<(), TrainError> {
        non_negative("lr", lr)?;
        *self.config.optimizer.lr_mut() = lr;
        Ok(())
    }

    /// What the scheduled learning rate is multiplied by: 1 unless something set it.
    pub fn lr_scale(&self) -> f64 {
        self.lr_scale
    }

    /// Multiplies the scheduled learning rate from here on.
    ///
    /// # Errors
    /// Where the factor is not a number, 0 or more.
    pub fn set_lr_scale(&mut self, factor: f64) -> Result<(), TrainError> {
        non_negative("the factor of the learning rate", factor)?;
        self.lr_scale = factor;
        Ok(())
    }

    /// The learning rate of the step so many after the next.
    fn lr_after(&self, ahead: u64) -> f64 {
        let mut optimizer = self.config.optimizer;
        let step = self.schedule_step + ahead;
        let factor = self.schedule.as_ref().map_or(1.0, |schedule| {
            // A loop of one's own is as long as the schedule says.
            schedule.factor(step, self.schedule_steps.unwrap_or(u64::MAX))
        });
        *optimizer.lr_mut() * factor * self.lr_scale
    }

    /// The snapshot is not what training goes on from any more.
    pub(super) fn snapshot_is_old(&mut self) {
        self.snapshot = None;
    }

    /// Predictions begin anew.
    pub(super) fn forget_predicted(&mut self) {
        self.predicted_state.clear();
    }

    /// Steps so far, over all fits.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Steps so far, over all fits, that were skipped because a gradient was not finite: see [`LossScale`](super::LossScale).
    pub fn skipped_steps(&self) -> u64 {
        self.scaling.skipped_steps()
    }

    /// What the loss of the next step is multiplied by for its gradients, where it is.
    pub fn loss_scale(&self) -> Option<f32> {
        self.scaling.scale()
    }

    /// Updates so far, which is what optimizers count.
    pub(super) fn updates(&self) -> u64 {
        // Both may be from a file.
        self.steps.saturating_sub(self.scaling.skipped_steps())
    }

    /// Ends the fit at hand after this step, with a reason for its report: what a callback calls.
    pub fn stop(&mut self, reason: impl Into<String>) {
        self.stop_reason = Some(reason.into());
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The layers, and what training them takes with these settings.
    ///
    /// # Errors
    /// Where the device fails.
    pub fn summary(&self) -> Result<Summary, TrainError> {
        summary(&self.model, &self.config)
    }

    /// What works but is hardly meant: see [`warnings`].
    ///
    /// # Errors
    /// Where the model does not fit together.
    pub fn warnings(&self) -> Result<Vec<String>, TrainError> {
        Ok(warnings(&self.model, &self.config)?)
    }

    /// The plan that every step follows.
    pub fn plan(&self) -> &Plan {
        &self.planned.plan
    }

    /// The plan with the graphs that it runs.
    pub fn planned(&self) -> &Planned {
        &self.planned
    }

    /// The device's name.
    pub fn device_name(&self) -> &str {
        self.executor.device_name()
    }

    /// Whether the device shares its memory with the host, so that offloading frees nothing.
    pub fn unified_memory(&self) -> bool {
        self.unified_memory
    }

    /// Bytes of this process in memory just before the plan's buffers were created, with the device open. `None` where the operating
    /// system is not Linux, or the executor was made elsewhere.
    pub fn base_bytes(&self) -> Option<u64> {
        self.base_bytes
    }

    /// Whether what the plan has on the device is memory of this process: on software devices and the CPU.
    pub fn is_in_process(&self) -> bool {
        self.executor.is_in_process()
    }

    /// What was compiled before it was needed: kernels, time, and memory that they take.
    pub fn compiled(&self) -> Compiled {
        self.executor.compiled()
    }

    /// The file with the costs that were measured on this device, where there is one: the plan's times come from it.
    pub fn profile(&self) -> Option<&Path> {
        self.machine.as_ref()?.source.profile()
    }

    /// Where the costs come from that the plan's times are made of; `None` where the executor was made elsewhere.
    pub fn cost_source(&self) -> Option<&CostSource> {
        self.machine.as_ref().map(|machine| &machine.source)
    }

    /// What the device had free when the budget was taken of that; `None` where it was stated, or there is none.
    pub fn budget_source(&self) -> Option<&AvailableMemory> {
        self.budget_source.as_ref()
    }

    /// The most bytes that were on the device at once so far, counted as buffers were created.
    pub fn measured_peak_bytes(&self) -> u64 {
        self.executor.peak_bytes()
    }
}

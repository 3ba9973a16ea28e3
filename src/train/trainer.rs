//! The trainer: a model, a plan and an executor, fed with batches.

mod evaluation;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytemuck::bytes_of;
use web_time::Instant;

use super::advice::warnings;
use super::diagnose::{self, Location};
use super::fed::Fed;
use super::groups::Rules;
use super::machine::{CostSource, Machine};
use super::report::{FitOptions, FitReport, StepReport};
use super::settings::Config;
use super::source::{CORRECT, ModelSource, Purpose, input_names, plan_with};
use super::state::Lasting;
use super::summary::{Summary, summary};
use crate::autodiff::{LOSS, hyper_name};
use crate::data::{Batch, Batches, Dataset, Order};
use crate::device::{Compiled, Device, resident_bytes};
use crate::error::{DataError, DeviceError, TrainError};
use crate::exec::{CpuExecutor, Executor, GpuExecutor};
use crate::nn::{Mode, Model, RUN};
use crate::ops::UpdateRule;
use crate::plan::{Plan, Planned, restore};
use crate::tensor::copied;

/// Runs a program on what was uploaded, and reads values.
pub(super) type Launch<'a> = dyn FnMut(&mut dyn Executor, usize, &[&str]) -> Result<(), DeviceError> + 'a;

/// Trains one model under one plan.
///
/// ```
/// use tightfit::data::{Dataset, Samples, Targets};
/// use tightfit::nn::Sequential;
/// use tightfit::train::{Config, FitOptions, Loss, Optimizer, Trainer};
///
/// // Four samples of a line: y = 2 x.
/// let y = Targets::Values { values: vec![0.0, 2.0, 4.0, 6.0], shape: [1].into() };
/// let data = Dataset::new(Samples::F32(vec![0.0, 1.0, 2.0, 3.0]), [1], y)?;
/// let model = Sequential::new("line", [1]).linear(1);
/// let config = Config::default().batch(4).loss(Loss::Mse).optimizer(Optimizer::sgd(0.1));
/// // On the interpreter; `None` takes the best GPU.
/// let mut trainer = Trainer::new(model, config, Some("cpu"))?;
/// println!("{}", trainer.plan());
/// trainer.fit(&data, FitOptions::epochs(200))?;
/// assert!(trainer.evaluate(&data)?.loss < 0.01);
/// assert_eq!(trainer.measured_peak_bytes(), trainer.plan().peak_bytes);
/// # Ok::<(), tightfit::error::TrainError>(())
/// ```
pub struct Trainer {
    pub(super) model: Model,
    pub(super) config: Config,
    rules: Rules,
    fed: Fed,
    pub(super) planned: Planned,
    pub(super) executor: Box<dyn Executor>,
    pub(super) lasting: Lasting,
    /// Updates made so far, over all fits.
    pub(super) steps: u64,
    /// Epochs begun so far, over all fits: each has its own order of samples.
    epochs: u64,
    /// The micro-batch at hand.
    batch: Batch,
    /// Whether the device has no memory of its own.
    unified_memory: bool,
    /// Where the costs come from that the plan counts on; `None` where the executor was made elsewhere.
    source: Option<CostSource>,
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
    /// `device` is an index or a part of a name as `tightfit devices` lists them, or `cpu` for the interpreter; `None`
    /// takes the best GPU.
    ///
    /// # Errors
    /// Where a setting makes no sense, the model does not fit together, no plan meets the budget, or the device fails.
    pub fn new(model: impl Into<Model>, config: Config, device: Option<&str>) -> Result<Self, TrainError> {
        Trainer::open(Purpose::Training, model.into(), config, device)
    }

    /// As [`Trainer::new`], but only to evaluate and predict: the plan holds no gradients and no optimizer state.
    ///
    /// # Errors
    /// As [`Trainer::new`].
    pub fn for_evaluation(model: impl Into<Model>, config: Config, device: Option<&str>) -> Result<Self, TrainError> {
        Trainer::open(Purpose::Evaluation, model.into(), config, device)
    }

    fn open(purpose: Purpose, model: Model, config: Config, device: Option<&str>) -> Result<Self, TrainError> {
        Trainer::start(model, config, device, |model, config, machine| plan_with(purpose, model, config, machine))
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
        device: Option<&str>,
    ) -> Result<Self, TrainError> {
        let config =
            Config { budget_bytes: plan.budget_bytes, micro_batches: Some(plan.micro_batches.len()), ..config };
        Trainer::start(model.into(), config, device, |model, config, machine| {
            let source = ModelSource::new(model, config, Purpose::Training)?;
            Ok(restore(plan, &source, config.batch, &machine.limits)?)
        })
    }

    fn start(
        model: Model,
        config: Config,
        device: Option<&str>,
        plan: impl FnOnce(&Model, &Config, &Machine) -> Result<Planned, TrainError>,
    ) -> Result<Self, TrainError> {
        let mut device = match device {
            Some("cpu") => None,
            selector => Some(Device::open(selector)?),
        };
        let machine = device.as_mut().map_or_else(Machine::interpreter, Machine::of);
        let unified_memory = device.as_ref().is_none_or(|device| device.info().unified_memory);
        warnings(&model, &config)?.iter().for_each(|warning| log::warn!("{warning}"));
        let planned = plan(&model, &config, &machine)?;
        let base_bytes = resident_bytes();
        let executor: Box<dyn Executor> = match device {
            Some(device) => Box::new(GpuExecutor::new(device, &planned)?),
            None => Box::new(CpuExecutor::new(&planned)?),
        };
        let mut trainer = Trainer::with_executor(model, config, planned, executor)?;
        trainer.unified_memory = unified_memory;
        trainer.source = Some(machine.source);
        trainer.base_bytes = base_bytes;
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
        let model = model.into();
        let rules = ModelSource::new(&model, &config, Purpose::Training)?.rules;
        let built = model.build(1, Mode::Evaluate)?;
        let fed = Fed::new(&model, &config.loss)?;
        let mut trainer = Trainer {
            model,
            config,
            rules,
            fed,
            planned,
            executor,
            lasting: Lasting::of(&built),
            steps: 0,
            epochs: 0,
            batch: Batch::default(),
            unified_memory: false,
            source: None,
            base_bytes: None,
        };
        trainer.initialise(built)?;
        Ok(trainer)
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

    /// Whether what the plan has on the device is memory of this process: on software devices and in the interpreter.
    pub fn is_in_process(&self) -> bool {
        self.executor.is_in_process()
    }

    /// What was compiled before it was needed: kernels, time, and memory that they take.
    pub fn compiled(&self) -> Compiled {
        self.executor.compiled()
    }

    /// The file with the costs that were measured on this device, where there is one: the plan's times come from it.
    pub fn profile(&self) -> Option<&Path> {
        self.source.as_ref()?.profile()
    }

    /// Where the costs come from that the plan's times are made of; `None` where the executor was made elsewhere.
    pub fn cost_source(&self) -> Option<&CostSource> {
        self.source.as_ref()
    }

    /// The most bytes that were on the device at once so far, counted as buffers were created.
    pub fn measured_peak_bytes(&self) -> u64 {
        self.executor.peak_bytes()
    }

    /// Trains on `data` in shuffled order. A last batch that is not full is left out, other samples in each epoch.
    ///
    /// A model that carries something from batch to batch, such as the states of a stateful layer, takes the samples as they
    /// are stored, and starts from zeros in each epoch: sample i of a batch goes on from sample i of the batch before.
    ///
    /// # Errors
    /// Where the data does not fit the model, the loss stops being finite, or the device fails. Parameters are then
    /// those of the last step whose loss was finite.
    pub fn fit(&mut self, data: &Dataset, mut options: FitOptions<'_>) -> Result<FitReport, TrainError> {
        self.fed.check(&self.config.loss, data, &(0..data.len()))?;
        // What is carried from batch to batch goes on in the order of the data.
        let order = match self.carried()?.is_empty() {
            true => Order::Shuffled { seed: self.config.seed },
            false => Order::Sequential,
        };
        let batches = Batches::new(data.len(), self.config.batch, order, true)?;
        let steps_per_epoch = batches.per_epoch() as u64;
        let mut times = Vec::new();
        let mut report = FitReport {
            steps: 0,
            epochs: 0,
            train_loss: f32::NAN,
            train_accuracy: None,
            step_ms_median: f64::NAN,
            first_step_ms: f64::NAN,
            interrupted: false,
        };
        'epochs: for epoch in 0..options.epochs {
            let (mut loss_sum, mut accuracy_sum) = (0.0, None);
            let order = batches.epoch(self.epochs);
            let order: Vec<&[usize]> = order.iter().collect();
            self.epochs += 1;
            self.reset_state()?;
            let mut uploaded = false;
            for (i, indices) in order.iter().enumerate() {
                if options.max_steps.is_some_and(|most| report.steps >= most) {
                    break 'epochs;
                }
                if options.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                    report.interrupted = true;
                    break 'epochs;
                }
                let start = Instant::now();
                self.submit(data, indices, uploaded, &mut |executor, program, read| executor.launch(program, read))?;
                // The next batch goes up while this one is computed.
                let is_last = options.max_steps.is_some_and(|most| report.steps + 1 >= most);
                let next = order.get(i + 1).filter(|_| !is_last);
                if let Some(next) = next {
                    let uniform = self.uniform_inputs(data, next, self.steps + 2);
                    self.upload(data, next, &uniform, self.steps + 2, 0)?;
                }
                uploaded = next.is_some();
                let (loss, accuracy) = self.finish(data, indices)?;
                let step_ms = start.elapsed().as_secs_f64() * 1e3;
                // Their median is not worth losing a training that memory has become short for.
                if times.try_reserve(1).is_ok() {
                    times.push(step_ms);
                }
                report.steps += 1;
                loss_sum += f64::from(loss);
                report.train_loss = (loss_sum / (i + 1) as f64) as f32;
                if let Some(accuracy) = accuracy {
                    let sum = accuracy_sum.unwrap_or(0.0) + f64::from(accuracy);
                    accuracy_sum = Some(sum);
                    report.train_accuracy = Some((sum / (i + 1) as f64) as f32);
                }
                if let Some(on_step) = options.on_step.as_deref_mut() {
                    on_step(&StepReport {
                        step: report.steps,
                        epoch: epoch + 1,
                        steps_per_epoch,
                        loss,
                        accuracy,
                        step_ms,
                    });
                }
            }
            report.epochs += 1;
        }
        if report.steps > 0
            && let Some(place) = diagnose::non_finite_parameter(&self.planned, &mut *self.executor)?
        {
            return Err(place.error(self.steps, self.steps, report.train_loss));
        }
        if let Some(&first) = times.first() {
            report.first_step_ms = first;
            let others = if times.len() > 1 { &mut times[1..] } else { &mut times[..] };
            others.sort_by(f64::total_cmp);
            report.step_ms_median = others[others.len() / 2];
        }
        Ok(report)
    }

    /// One step on the samples at `indices`, a full batch: forward, backward and update. Returns the mean loss, and for
    /// classification the share predicted right, both before the update.
    ///
    /// # Errors
    /// As [`Trainer::fit`].
    pub fn step(&mut self, data: &Dataset, indices: &[usize]) -> Result<(f32, Option<f32>), TrainError> {
        self.step_with(data, indices, &mut |executor, program, read| executor.launch(program, read))
    }

    /// A step whose programs are run by `launch`, as [`Executor::launch`] does.
    pub(super) fn step_with(
        &mut self,
        data: &Dataset,
        indices: &[usize],
        launch: &mut Launch<'_>,
    ) -> Result<(f32, Option<f32>), TrainError> {
        if indices.len() != self.config.batch {
            return Err(TrainError::Setting(format!(
                "a step takes the {} samples of a batch, got {}",
                self.config.batch,
                indices.len()
            )));
        }
        if !self.planned.plan.persistent.iter().any(|p| p.name == LOSS) {
            return Err(TrainError::Setting("this trainer was made for evaluation: use Trainer::new".to_owned()));
        }
        self.fed.check(&self.config.loss, data, &indices.iter().copied())?;
        self.submit(data, indices, false, launch)?;
        self.finish(data, indices)
    }

    /// Uploads micro-batch number `part` of the step on these samples, with what all parts are given alike.
    fn upload(
        &mut self,
        data: &Dataset,
        indices: &[usize],
        uniform: &[(String, Vec<f32>)],
        step: u64,
        part: usize,
    ) -> Result<(), TrainError> {
        let sizes = &self.planned.plan.micro_batches;
        let first = sizes[..part].iter().sum();
        data.gather(&indices[first..first + sizes[part]], &mut self.batch)?;
        let program = self.planned.plan.schedule[part];
        let run = run_words(self.config.seed, step, first);
        let inputs = inputs(&self.planned, program, &self.batch, &run, uniform);
        Ok(self.executor.upload(program, &inputs)?)
    }

    /// Starts a step; [`finish`](Self::finish) waits for it. `uploaded` says that the first micro-batch was.
    fn submit(
        &mut self,
        data: &Dataset,
        indices: &[usize],
        uploaded: bool,
        launch: &mut Launch<'_>,
    ) -> Result<(), TrainError> {
        let counts = self.config.loss.counted(data.targets(), indices) > 0;
        let read: &[&str] = if counts { &[LOSS, CORRECT] } else { &[LOSS] };
        let parts = self.planned.plan.schedule.len();
        let step = self.steps + 1;
        let missing = usize::from(uploaded)..parts;
        let uniform = if missing.is_empty() { Vec::new() } else { self.uniform_inputs(data, indices, step) };
        for part in 0..parts {
            if missing.contains(&part) {
                self.upload(data, indices, &uniform, step, part)?;
            }
            let read = if part + 1 == parts { read } else { &[] };
            launch(&mut *self.executor, self.planned.plan.schedule[part], read)?;
        }
        Ok(())
    }

    /// Waits for a step that was started.
    fn finish(&mut self, data: &Dataset, indices: &[usize]) -> Result<(f32, Option<f32>), TrainError> {
        let scalars = self.executor.collect()?;
        let scalar = |i: usize| scalars.get(i).map(|bytes| bytemuck::pod_read_unaligned::<f32>(&bytes[..4]));
        let loss = scalar(0).expect("bug: every step reads its loss");
        if !loss.is_finite() {
            return Err(self.diagnose(data, indices, loss));
        }
        self.steps += 1;
        let counted = self.config.loss.counted(data.targets(), indices) as f32;
        Ok((loss, scalar(1).map(|correct| correct / counted)))
    }

    fn diagnose(&mut self, data: &Dataset, indices: &[usize], loss: f32) -> TrainError {
        let step = self.steps + 1;
        let uniform = self.uniform_inputs(data, indices, step);
        let place = diagnose::first_non_finite(&self.planned, &mut *self.executor, &self.fed, |i, program| {
            let start: usize = self.planned.plan.micro_batches[..i].iter().sum();
            let micro_batch = &indices[start..start + self.planned.plan.micro_batches[i]];
            data.gather(micro_batch, &mut self.batch)?;
            let run = run_words(self.config.seed, step, start);
            let inputs = inputs(&self.planned, program, &self.batch, &run, &uniform);
            inputs
                .into_iter()
                .map(|(name, data)| Ok((name.to_owned(), copied(data).map_err(DataError::from)?)))
                .collect()
        });
        match place {
            // Within the batch, it is the place in the data that helps.
            Ok(Location::Data { found, input, sample, at }) => {
                let sample = indices.get(sample).copied().unwrap_or(sample);
                Location::Data { found, input, sample, at }.error(step, step - 1, loss)
            }
            Ok(place) => place.error(step, step - 1, loss),
            // That training cannot go on is to be known even so.
            Err(
                TrainError::Device(DeviceError::HostMemory(error)) | TrainError::Data(DataError::HostMemory(error)),
            ) => Location::Layer(format!("not known ({error})")).error(step, step - 1, loss),
            Err(error) => error,
        }
    }

    /// What all micro-batches of the step on these samples are given alike.
    fn uniform_inputs(&self, data: &Dataset, indices: &[usize], step: u64) -> Vec<(String, Vec<f32>)> {
        let hyper = |(group, rule): (usize, &Arc<dyn UpdateRule>)| (hyper_name(group), rule.hyper(step).to_vec());
        let hypers = self.rules.rules.iter().enumerate().map(hyper);
        hypers.chain(self.config.loss.inputs(data.targets(), indices)).collect()
    }
}

/// The inputs of a program's graph, by name: from the batch, or from what does not depend on samples.
fn inputs<'a>(
    planned: &'a Planned,
    program: usize,
    batch: &'a Batch,
    run: &'a [u32; 4],
    uniform: &'a [(String, Vec<f32>)],
) -> Vec<(&'a str, &'a [u8])> {
    let named = |name: &'a str| {
        let other = uniform.iter().find(|(other, _)| other == name).map(|(_, values)| bytemuck::cast_slice(values));
        let other = other.or_else(|| (name == RUN).then(|| bytes_of(run)));
        (name, other.or_else(|| batch.bytes(name)).unwrap_or_else(|| panic!("bug: nothing to upload as `{name}`")))
    };
    input_names(&planned.graphs[program]).map(named).collect()
}

/// The contents of the input [`RUN`].
fn run_words(seed: u64, step: u64, first_sample: usize) -> [u32; 4] {
    [seed as u32, (seed >> 32) as u32, step as u32, first_sample as u32]
}

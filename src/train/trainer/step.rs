//! One step: a batch goes up, its micro-batches run, and the loss comes back.

use std::ops::Range;

use bytemuck::bytes_of;

use super::Trainer;
use super::staging::Staging;
use crate::autodiff::{GRAD_NORM, GUARD, LOSS, LOSS_SCALE, LOSS_SCALE_INVERSE, hyper_name};
use crate::data::{Batch, Dataset, SAMPLE_WEIGHT};
use crate::error::{DataError, DeviceError, TrainError};
use crate::exec::Executor;
use crate::graph::Phase;
use crate::nn::RUN;
use crate::plan::Planned;
use crate::tensor::copied;
use crate::train::diagnose::{self, Location};
use crate::train::groups::Rules;
use crate::train::objective::Objective;
use crate::train::optimizer::non_negative;
use crate::train::source::{CORRECT, Purpose, input_names};

/// Runs a program on what was uploaded, and reads values.
pub(in crate::train) type Launch<'a> = dyn FnMut(&mut dyn Executor, usize, &[&str]) -> Result<(), DeviceError> + 'a;

/// What a step came to, before its update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepOutcome {
    /// Mean loss of the batch.
    pub loss: f32,
    /// Positions predicted right, and how many count; only where the targets are labels.
    pub correct: Option<(f64, f64)>,
    /// Norm of all gradients together before they were clipped, where [`Config::grad_norm`](crate::train::Config::grad_norm) asks
    /// for it.
    pub grad_norm: Option<f32>,
    /// What the loss was multiplied by for its gradients, where it was.
    pub loss_scale: Option<f32>,
    /// Whether a gradient was not finite, so that nothing was updated: see [`LossScale`](crate::train::LossScale).
    pub skipped: bool,
    /// Samples of the batch.
    pub samples: usize,
}

/// What a step is given besides its batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Numbers {
    /// Its own, from 1, which random numbers follow from.
    step: u64,
    /// That of its update, from 1, which the optimizer counts.
    update: u64,
    lr: f64,
    loss_scale: Option<f32>,
}

impl StepOutcome {
    /// The share predicted right.
    pub fn accuracy(&self) -> Option<f32> {
        self.correct.map(|(correct, counted)| (correct / counted) as f32)
    }
}

impl Trainer {
    /// One step on the samples at `indices`, a full batch, or with [`Config::drop_last`](crate::train::Config::drop_last) off a short one:
    /// forward, backward and update.
    ///
    /// ```
    /// # use tightfit::data::{TensorDataset, Values, Targets};
    /// # use tightfit::nn::Sequential;
    /// # use tightfit::train::{Config, DeviceSelector, Trainer};
    /// # let data = TensorDataset::new(Values::F32(vec![0.0, 1.0, 2.0, 3.0]), [1], Targets::labels(vec![0, 0, 1, 1], 2))?;
    /// # let model = Sequential::new("two-classes", [1]).linear(2);
    /// let mut trainer = Trainer::new(model, Config::default().batch(2), DeviceSelector::Cpu)?;
    /// // A loop of one's own.
    /// for step in 0..10 {
    ///     trainer.set_lr(0.1 / (1.0 + step as f64))?;
    ///     let outcome = trainer.step(&data, &[step % 2, 2 + step % 2])?;
    ///     println!("loss {}", outcome.loss);
    /// }
    /// println!("{}", trainer.evaluate(&data)?);
    /// # Ok::<(), tightfit::error::TrainError>(())
    /// ```
    ///
    /// A schedule has its lengths in steps then, since nothing says how long the loop is.
    ///
    /// # Errors
    /// As [`Trainer::fit`].
    pub fn step(&mut self, data: &dyn Dataset, indices: &[usize]) -> Result<StepOutcome, TrainError> {
        self.step_with(data, indices, &mut |executor, program, read| executor.launch(program, read))
    }

    /// As [`step`](Self::step), on samples that were read before, such as by a [`DataLoader`](crate::data::DataLoader).
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn step_batch(&mut self, batch: &Batch) -> Result<StepOutcome, TrainError> {
        self.step_batch_with(batch, &mut |executor, program, read| executor.launch(program, read))
    }

    /// A step whose programs are run by `launch`, as [`Executor::launch`] does.
    pub(in crate::train) fn step_with(
        &mut self,
        data: &dyn Dataset,
        indices: &[usize],
        launch: &mut Launch<'_>,
    ) -> Result<StepOutcome, TrainError> {
        self.check_step(indices.len())?;
        self.with_batch(data, indices, |trainer, batch| trainer.step_batch_with(batch, launch))
    }

    /// Reads the samples at `indices` for what the trainer does with them.
    pub(super) fn with_batch<T>(
        &mut self,
        data: &dyn Dataset,
        indices: &[usize],
        function: impl FnOnce(&mut Self, &Batch) -> Result<T, TrainError>,
    ) -> Result<T, TrainError> {
        self.fed.check(&data.features()?)?;
        let mut batch = std::mem::take(&mut self.batch);
        let read = data.read(indices, &mut batch).map_err(TrainError::from);
        let result = read.and_then(|()| function(self, &batch));
        self.batch = batch;
        result
    }

    pub(in crate::train) fn step_batch_with(
        &mut self,
        batch: &Batch,
        launch: &mut Launch<'_>,
    ) -> Result<StepOutcome, TrainError> {
        self.check_step(batch.len())?;
        self.fed.check(&batch.features())?;
        self.fed.check_batch(batch)?;
        self.submit(batch, false, launch)?;
        self.finish(batch)
    }

    /// Whether a step on so many samples can be made.
    fn check_step(&mut self, samples: usize) -> Result<(), TrainError> {
        self.check_batch(samples)?;
        self.check_purpose(Purpose::Training)?;
        match (&self.schedule, self.schedule_steps) {
            (Some(schedule), None) => schedule.check_closed(),
            _ => Ok(()),
        }
    }

    /// Whether so many samples are a batch.
    pub(super) fn check_batch(&mut self, found: usize) -> Result<(), TrainError> {
        let is_short = !self.config.drop_last && (1..self.config.batch).contains(&found);
        if found != self.config.batch && !is_short {
            let batch = self.config.batch;
            let more = if self.config.drop_last { "" } else { " or fewer" };
            return Err(TrainError::Setting(format!("a step takes the {batch} samples of a batch{more}, got {found}")));
        }
        if is_short {
            self.check_short(found)?;
        }
        Ok(())
    }

    /// Whether the trainer was made for this.
    pub(super) fn check_purpose(&self, wanted: Purpose) -> Result<(), TrainError> {
        let made_by = |purpose| match purpose {
            Purpose::Training => ("training", "Trainer::new"),
            Purpose::Evaluation => ("evaluation", "Trainer::for_evaluation"),
            Purpose::Gradients => ("gradients", "Trainer::for_gradients"),
        };
        if self.planning.purpose == wanted {
            return Ok(());
        }
        let ((purpose, _), (_, advice)) = (made_by(self.planning.purpose), made_by(wanted));
        Err(TrainError::Setting(format!("this trainer was made for {purpose}: use {advice}")))
    }

    /// Whether a batch may be short: samples that stand in must not matter to the others.
    pub(super) fn check_short(&mut self, samples: usize) -> Result<(), TrainError> {
        let (batch, what) = (self.config.batch, "drop_last = false is not possible");
        if self.carries() {
            let text = format!("{what}: the model carries states from batch to batch, each for its own sample");
            return Err(TrainError::Setting(text));
        }
        let graphs = self.planned.plan.schedule.iter().map(|&program| &self.planned.graphs[program]);
        let nodes = graphs.flat_map(|graph| graph.nodes());
        let mut mixing = nodes.filter(|node| node.phase == Phase::Forward && !node.op.flags().batch_separable);
        mixing.next().map_or(Ok(()), |node| {
            Err(TrainError::Setting(format!(
                "{what}: `{}` mixes the samples of a batch, and the last one has {samples} of {batch}: leave it out, take a batch that \
                 divides the data, or with batch norm the running statistics (frozen)",
                node.name
            )))
        })
    }

    /// What the next step is given.
    pub(super) fn numbers(&self) -> Numbers {
        let (step, update) = (self.steps + 1, self.updates() + 1);
        Numbers { step, update, lr: self.lr_after(0), loss_scale: self.scaling.scale() }
    }

    /// Uploads the first micro-batch of the step after the one at hand, as if that were no skipped one; returns what it was given.
    pub(super) fn upload_next(&mut self, batch: &Batch) -> Result<Numbers, TrainError> {
        let Numbers { step, update, .. } = self.numbers();
        let loss_scale = self.scaling.after(true).scale();
        let next = Numbers { step: step + 1, update: update + 1, lr: self.lr_after(1), loss_scale };
        let uniform = self.uniform_inputs(batch, &next);
        self.upload(batch, &uniform, next.step, 0)?;
        Ok(next)
    }

    /// Uploads micro-batch number `part` of the step on this batch, with what all parts are given alike.
    fn upload(
        &mut self,
        batch: &Batch,
        uniform: &[(String, Vec<f32>)],
        step: u64,
        part: usize,
    ) -> Result<(), TrainError> {
        let program = self.planned.plan.schedule[part];
        let samples = self.samples_of(part);
        self.staging.fill(&self.planned.graphs[program], batch, &samples).map_err(DataError::from)?;
        let weights = weights(&self.objective, self.config.batch, batch, &samples);
        let run = run_words(self.config.seed, step, samples.start);
        let given = Given { batch, staging: &self.staging, samples, run: &run, uniform, weights: &weights };
        let inputs = given.inputs(&self.planned, program);
        self.uploads += 1;
        Ok(self.executor.upload(program, &inputs)?)
    }

    /// The places in a batch of the samples of micro-batch number `part`.
    fn samples_of(&self, part: usize) -> Range<usize> {
        let sizes = &self.planned.plan.micro_batches;
        let first = sizes[..part].iter().sum();
        first..first + sizes[part]
    }

    /// Starts a step; [`finish`](Self::finish) waits for it. `uploaded` says that the first micro-batch was.
    pub(super) fn submit(&mut self, batch: &Batch, uploaded: bool, launch: &mut Launch<'_>) -> Result<(), TrainError> {
        // A schedule of one's own may make anything.
        let numbers = self.numbers();
        non_negative(&format!("the learning rate of step {}", numbers.step), numbers.lr)?;
        let read = self.read_of_step(self.objective.counted(batch));
        let parts = self.planned.plan.schedule.len();
        let missing = usize::from(uploaded)..parts;
        let uniform = if missing.is_empty() { Vec::new() } else { self.uniform_inputs(batch, &numbers) };
        for part in 0..parts {
            if missing.contains(&part) {
                self.upload(batch, &uniform, numbers.step, part)?;
            }
            let read = if part + 1 == parts { &read[..] } else { &[] };
            launch(&mut *self.executor, self.planned.plan.schedule[part], read)?;
        }
        Ok(())
    }

    /// Names of what a step reads at its end in which so many positions count.
    fn read_of_step(&self, counted: usize) -> Vec<&'static str> {
        let of = |wanted: bool, name| wanted.then_some(name);
        let more = [of(counted > 0, CORRECT), of(self.config.grad_norm, GRAD_NORM), of(self.scaling.is_on(), GUARD)];
        std::iter::once(LOSS).chain(more.into_iter().flatten()).collect()
    }

    /// Waits for a step that was started.
    pub(super) fn finish(&mut self, batch: &Batch) -> Result<StepOutcome, TrainError> {
        let scalars = self.executor.collect()?;
        let counted = self.objective.counted(batch);
        let read = self.read_of_step(counted);
        let scalar = |name: &str| {
            let bytes = read.iter().position(|read| *read == name).and_then(|i| scalars.get(i))?;
            Some(bytemuck::pod_read_unaligned::<f32>(&bytes[..4]))
        };
        let loss = scalar(LOSS).expect("bug: every step reads its loss");
        if !loss.is_finite() {
            return Err(match self.first_non_finite(batch, false) {
                Ok(place) => place.error(self.steps + 1, self.steps, loss),
                Err(error) => error,
            });
        }
        let are_finite = scalar(GUARD).is_none_or(f32::is_finite);
        let (loss_scale, scaling) = (self.scaling.scale(), self.scaling.after(are_finite));
        if scaling.is_stuck() {
            let place = self.first_non_finite(batch, true)?.words(self.steps);
            let (step, skipped) = (self.steps + 1, scaling.skipped_in_row());
            return Err(TrainError::NonFiniteGradients { step, skipped, loss_scale: scaling.words(), place });
        }
        self.scaling = scaling;
        self.steps += 1;
        self.schedule_step += 1;
        let correct = scalar(CORRECT).map(|correct| (f64::from(correct.round()), counted as f64));
        let (grad_norm, skipped, samples) = (scalar(GRAD_NORM), !are_finite, batch.len());
        Ok(StepOutcome { loss, correct, grad_norm, loss_scale, skipped, samples })
    }

    /// Looks again at the step on this batch.
    fn first_non_finite(&mut self, batch: &Batch, is_loss_finite: bool) -> Result<Location, TrainError> {
        let numbers = self.numbers();
        let uniform = self.uniform_inputs(batch, &numbers);
        let parts: Vec<_> = (0..self.planned.plan.schedule.len()).map(|part| self.samples_of(part)).collect();
        let (executor, fed) = (&mut *self.executor, &self.fed);
        let place = diagnose::first_non_finite(&self.planned, executor, fed, is_loss_finite, |part, program| {
            let samples = parts[part].clone();
            self.staging.fill(&self.planned.graphs[program], batch, &samples).map_err(DataError::from)?;
            let weights = weights(&self.objective, self.config.batch, batch, &samples);
            let run = run_words(self.config.seed, numbers.step, samples.start);
            let given =
                Given { batch, staging: &self.staging, samples, run: &run, uniform: &uniform, weights: &weights };
            let inputs = given.inputs(&self.planned, program).into_iter();
            inputs.map(|(name, data)| Ok((name.to_owned(), copied(data).map_err(DataError::from)?))).collect()
        });
        match place {
            // Within the batch, it is the place in the data that helps.
            Ok(Location::Data { found, input, sample, at }) => {
                let sample = batch.indices().get(sample).copied().unwrap_or(sample);
                Ok(Location::Data { found, input, sample, at })
            }
            // That training cannot go on is to be known even so.
            Err(
                TrainError::Device(DeviceError::HostMemory(error)) | TrainError::Data(DataError::HostMemory(error)),
            ) => Ok(Location::Layer(format!("not known ({error})"))),
            place => place,
        }
    }

    /// What all micro-batches of a step on this batch are given alike.
    fn uniform_inputs(&self, batch: &Batch, numbers: &Numbers) -> Vec<(String, Vec<f32>)> {
        let Rules { rules, lr_factors, first_steps, .. } = &self.rules;
        let rules = rules.iter().zip(lr_factors).zip(first_steps).enumerate();
        let hypers = rules.map(|(group, ((rule, factor), first_step))| {
            (hyper_name(group), rule.hyper(numbers.update.saturating_sub(*first_step), numbers.lr * factor).to_vec())
        });
        let scales = numbers.loss_scale.into_iter().flat_map(|scale| {
            [(LOSS_SCALE, scale), (LOSS_SCALE_INVERSE, 1.0 / scale)].map(|(name, value)| (name.to_owned(), vec![value]))
        });
        hypers
            .chain(scales)
            .chain(self.objective.inputs(batch, batch.len() as f32 / self.config.batch as f32))
            .collect()
    }
}

/// The weights of the samples at these places of a batch, 0 past its end; none where all count alike.
fn weights(objective: &Objective, size: usize, batch: &Batch, samples: &Range<usize>) -> Vec<f32> {
    if !objective.weighted {
        return Vec::new();
    }
    // The mean is taken over a whole batch.
    let more = size as f32 / batch.len() as f32;
    let weight = |place| if place < batch.len() { objective.weight(batch, place) * more } else { 0.0 };
    samples.clone().map(weight).collect()
}

/// What a micro-batch is given.
pub(super) struct Given<'a> {
    pub(super) batch: &'a Batch,
    pub(super) staging: &'a Staging,
    /// Its samples, as places in the batch.
    pub(super) samples: Range<usize>,
    pub(super) run: &'a [u32; 4],
    pub(super) uniform: &'a [(String, Vec<f32>)],
    pub(super) weights: &'a [f32],
}

impl<'a> Given<'a> {
    /// The inputs of a program's graph, by name: from the batch, or from what does not depend on samples.
    pub(super) fn inputs(&self, planned: &'a Planned, program: usize) -> Vec<(&'a str, &'a [u8])> {
        let named = |name: &'a str| {
            let uniform = self.uniform.iter().find(|(other, _)| other == name);
            let other = uniform.map(|(_, values)| bytemuck::cast_slice(values));
            let other = other.or_else(|| (name == RUN).then(|| bytes_of(self.run)));
            let other = other.or_else(|| (name == SAMPLE_WEIGHT).then(|| bytemuck::cast_slice(self.weights)));
            let bytes = other.or_else(|| self.staging.bytes(self.batch, name, &self.samples));
            (name, bytes.unwrap_or_else(|| panic!("bug: nothing to upload as `{name}`")))
        };
        input_names(&planned.graphs[program]).map(named).collect()
    }
}

/// The contents of the input [`RUN`].
pub(super) fn run_words(seed: u64, step: u64, first_sample: usize) -> [u32; 4] {
    [seed as u32, (seed >> 32) as u32, step as u32, first_sample as u32]
}

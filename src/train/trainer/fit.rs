//! Many steps: epochs over shuffled data, with callbacks, validation and checkpoints.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::thread;

use web_time::Instant;

use super::Trainer;
use super::recover::is_recoverable;
use crate::data::{Batch, DataLoader, EpochBatches, EpochOptions, Order, StreamState};
use crate::error::TrainError;
use crate::train::callbacks::{Callback, CallbackState};
use crate::train::checkpoint::Pending;
use crate::train::checkpoints::Checkpoints;
use crate::train::diagnose;
use crate::train::report::{EpochReport, FitOptions, FitReport, StepReport};
use crate::train::run::Run;
use crate::train::schedule::Schedule;
use crate::train::source::Purpose;

/// Times of steps that are kept for their median.
const MOST_TIMES: usize = 1 << 14;

/// How a fit ends that nothing ended before.
const ALL_DONE: &str = "all epochs are done";

/// Which checkpoint is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Write {
    Now,
    /// Of the epoch that is the best so far.
    Best,
    /// At the end.
    Last,
}

/// What a fit does with its data.
struct Fit<'a, 'd, 'o> {
    data: &'a DataLoader<'d>,
    /// Batches of an epoch, and their order.
    steps_per_epoch: u64,
    order: Order,
    /// Whether each batch is looked at before it is trained on.
    is_checked: bool,
    batch_size: usize,
    options: &'a mut FitOptions<'o>,
    run: Run,
    times: Vec<f64>,
    interrupted: bool,
    /// Plans that callbacks know to be replaced.
    replanned: u64,
}

/// A batch, and where a stream is after it.
struct Read {
    batch: Batch,
    stream: Option<StreamState>,
}

impl Trainer {
    /// Trains on `data`, in shuffled order unless [`FitOptions::order`] says otherwise. A last batch that is not full is left out, other samples in each epoch, unless
    /// [`Config::drop_last`](crate::train::Config::drop_last) says otherwise.
    ///
    /// A model that carries something from batch to batch, such as the states of a stateful layer, takes the samples as they
    /// are stored, and starts from zeros in each epoch: sample i of a batch goes on from sample i of the batch before.
    ///
    /// A trainer that was [restored](Trainer::restore) from a checkpoint in the middle of a fit goes on with that fit: `epochs` and
    /// `max_steps` count from where it began, and all comes out as if it had never been interrupted. One that had made all its steps
    /// goes on where more are asked for now; one that a callback ended does not.
    ///
    /// # Errors
    /// Where the data does not fit the model, the loss stops being finite, the device fails, or a callback ends the fit.
    /// Parameters are then those of the last step whose loss was finite.
    pub fn fit<'d>(
        &mut self,
        data: impl Into<DataLoader<'d>>,
        mut options: FitOptions<'_>,
    ) -> Result<FitReport, TrainError> {
        let data = data.into();
        self.check_purpose(Purpose::Training)?;
        let is_checked = self.fed.check_all(&data)?;
        if let Some(validation) = &options.validation {
            self.fed.check_all(validation)?;
        }
        // What is carried from batch to batch goes on in the order of the data.
        let shuffled = Order::Shuffled { seed: self.config.seed };
        let order = if self.carries() { Order::Sequential } else { options.order.unwrap_or(shuffled) };
        let steps_per_epoch = data.batches_per_epoch(self.config.batch, self.config.drop_last)? as u64;
        let last = data.len().map_or(0, |len| len % self.config.batch);
        if last > 0 && !self.config.drop_last {
            self.check_short(last)?;
        }
        let mut run = self.begin(data.len().unwrap_or(0), &mut options)?;
        // That of an earlier fit is no place to go back to.
        self.snapshot_is_old();
        let steps_of_all = steps_per_epoch.saturating_mul(options.epochs);
        self.schedule = self.config.schedule.as_ref().map(|schedule| schedule.resolve(steps_per_epoch));
        self.schedule.as_ref().map_or(Ok(()), Schedule::check)?;
        let all_steps = options.max_steps.map_or(steps_of_all, |most| most.min(steps_of_all));
        self.schedule_steps = Some(all_steps);
        // More is wanted than when it came to its end.
        if run.steps < all_steps && run.finished.as_deref() == Some(ALL_DONE) {
            run.finished = None;
        }
        for callback in &mut options.callbacks {
            callback.on_fit_begin(self)?;
        }
        let mut fit = Fit {
            data: &data,
            steps_per_epoch,
            order,
            is_checked,
            batch_size: self.config.batch,
            options: &mut options,
            run,
            times: Vec::new(),
            interrupted: false,
            replanned: self.replanned,
        };
        loop {
            match self.fit_on(&mut fit) {
                Ok(()) => break,
                Err(error) if is_recoverable(&error) => self.go_on(&mut fit, error)?,
                Err(error) => return Err(error),
            }
        }
        let report = self.report(&mut fit)?;
        for callback in &mut options.callbacks {
            callback.on_fit_end(self, &report)?;
        }
        Ok(report)
    }

    /// Where the fit begins, or goes on.
    fn begin(&mut self, samples: usize, options: &mut FitOptions<'_>) -> Result<Run, TrainError> {
        self.stop_reason = None;
        self.failures = 0;
        let Some(Pending { run, callbacks }) = self.pending.take() else {
            self.schedule_step = 0;
            return Ok(Run::new(samples, self.epochs));
        };
        if run.samples != samples {
            return Err(TrainError::Setting(format!(
                "the checkpoint is of a training on {} samples, this data has {samples}: give it the same data",
                run.samples
            )));
        }
        restore_callbacks(options, &callbacks)?;
        Ok(run)
    }

    /// Goes back to the last snapshot, on what the device has left.
    fn go_on(&mut self, fit: &mut Fit<'_, '_, '_>, error: TrainError) -> Result<(), TrainError> {
        let replan = match self.recover(error) {
            Ok(replan) => replan,
            Err(error) => {
                self.rescue(fit);
                return Err(error);
            }
        };
        log::warn!("{replan}");
        fit.times.clear();
        let snapshot = self.snapshot.as_ref().expect("bug: it was gone back to");
        fit.run = snapshot.state.run.clone().expect("bug: a snapshot of no fit");
        restore_callbacks(fit.options, &snapshot.callbacks)?;
        for callback in &mut fit.options.callbacks {
            callback.on_replan(self, &replan)?;
        }
        Ok(())
    }

    /// Writes what is left of a training that cannot go on: its last snapshot.
    fn rescue(&mut self, fit: &mut Fit<'_, '_, '_>) {
        let (Some(snapshot), Some(checkpoints)) = (self.snapshot.take(), &mut fit.options.checkpoints) else { return };
        let result = checkpoints.write(snapshot.state.steps, |path| self.write_snapshot(path, &snapshot));
        match result {
            Ok(path) => log::warn!("step {} is kept in {}", snapshot.state.steps, path.display()),
            Err(error) => log::warn!("{error}"),
        }
    }

    fn fit_on(&mut self, fit: &mut Fit<'_, '_, '_>) -> Result<(), TrainError> {
        while fit.run.finished.is_none() && fit.run.epochs < fit.options.epochs {
            if fit.run.batches == 0 {
                if self.is_to_end(fit) {
                    break;
                }
                self.epochs = fit.run.first_epoch + fit.run.epochs + 1;
                self.reset_state()?;
                for i in 0..fit.options.callbacks.len() {
                    fit.options.callbacks[i].on_epoch_begin(self, fit.run.epochs + 1)?;
                }
                self.tell_of_plan(fit)?;
            }
            if self.is_backed_up(fit) && self.snapshot.is_none() {
                self.snapshot_fit(fit)?;
            }
            if !self.steps_of_epoch(fit)? {
                break;
            }
            self.end_epoch(fit)?;
        }
        if fit.run.finished.is_none() && !fit.interrupted {
            fit.run.finished = Some(self.stop_reason.clone().unwrap_or_else(|| ALL_DONE.to_owned()));
        }
        // After the last step of a fit, or of as much of it as was wanted now.
        self.write_checkpoint(fit, Write::Last).map(drop)
    }

    /// Whether no other step is wanted.
    fn is_to_end(&self, fit: &mut Fit<'_, '_, '_>) -> bool {
        if self.stop_reason.is_some() || fit.options.max_steps.is_some_and(|most| fit.run.steps >= most) {
            return true;
        }
        fit.interrupted = fit.options.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed));
        fit.interrupted
    }

    /// The steps of an epoch from where it is; false where no other is wanted before its end.
    fn steps_of_epoch(&mut self, fit: &mut Fit<'_, '_, '_>) -> Result<bool, TrainError> {
        let options = EpochOptions {
            batch: self.config.batch,
            order: fit.order,
            epoch: self.epochs - 1,
            first_batch: fit.run.batches as usize,
            drop_last: self.config.drop_last,
            training: true,
            stream: fit.run.stream.clone(),
        };
        let data = fit.data;
        thread::scope(|scope| {
            let batches = data.epoch(scope, options)?;
            self.steps_on(fit, batches)
        })
    }

    fn steps_on(&mut self, fit: &mut Fit<'_, '_, '_>, mut batches: EpochBatches<'_>) -> Result<bool, TrainError> {
        let mut uploaded = false;
        let mut next = None;
        while fit.run.batches < fit.steps_per_epoch {
            if self.is_to_end(fit) {
                return Ok(false);
            }
            let start = Instant::now();
            let lr = self.lr_after(0);
            let Some(Read { batch, stream }) =
                next.take().map_or_else(|| self.read(fit, &mut batches), |next| Ok(Some(next)))?
            else {
                return Ok(true);
            };
            self.submit(&batch, uploaded, &mut |executor, program, read| executor.launch(program, read))?;
            // The next batch is read and goes up while this one is computed.
            let is_last = fit.options.max_steps.is_some_and(|most| fit.run.steps + 1 >= most);
            let mut given = None;
            let ahead = if is_last { Ok(None) } else { self.read(fit, &mut batches) };
            if let Ok(Some(ahead)) = &ahead {
                given = Some(self.upload_next(&ahead.batch)?);
            }
            let uploads = self.uploads;
            let outcome = self.finish(&batch)?;
            next = ahead?;
            batches.recycle(batch);
            let step_ms = start.elapsed().as_secs_f64() * 1e3;
            // Their median is not worth losing a training that memory has become short for.
            if fit.times.len() < MOST_TIMES && fit.times.try_reserve(1).is_ok() {
                fit.times.push(step_ms);
            }
            self.failures = 0;
            fit.run.add(&outcome, outcome.samples as f64 / self.config.batch as f64);
            fit.run.stream = stream;
            let report = StepReport {
                step: fit.run.steps,
                epoch: fit.run.epochs + 1,
                steps_per_epoch: fit.steps_per_epoch,
                total_steps: self.schedule_steps.unwrap_or_default(),
                loss: outcome.loss,
                accuracy: outcome.accuracy(),
                grad_norm: outcome.grad_norm,
                loss_scale: outcome.loss_scale,
                skipped: outcome.skipped,
                skipped_steps: self.skipped_in(&fit.run),
                lr,
                samples: outcome.samples,
                step_ms,
            };
            fit.run.history.push_step(report.step, &report.values());
            if let Some(on_step) = fit.options.on_step.as_deref_mut() {
                on_step(&report);
            }
            for i in 0..fit.options.callbacks.len() {
                fit.options.callbacks[i].on_step_end(self, &report)?;
            }
            let is_replanned = self.tell_of_plan(fit)?;
            // A callback may have changed what the next step is given, or this one was skipped; what it predicted is in the same memory.
            uploaded = !is_replanned && self.uploads == uploads && given == Some(self.numbers());
            let is_due = is_replanned || fit.run.steps.is_multiple_of(self.config.recovery.snapshot_every.max(1));
            if self.is_backed_up(fit) && is_due {
                self.snapshot_fit(fit)?;
            }
            if fit.options.checkpoints.as_ref().is_some_and(|checkpoints| checkpoints.is_due(fit.run.steps)) {
                self.write_checkpoint(fit, Write::Now)?;
            }
        }
        Ok(true)
    }

    /// The next batch; none at the end of the epoch.
    fn read(&self, fit: &Fit<'_, '_, '_>, batches: &mut EpochBatches<'_>) -> Result<Option<Read>, TrainError> {
        let Some(batch) = batches.next_batch()? else { return Ok(None) };
        if fit.is_checked {
            self.fed.check_batch(&batch)?;
        }
        Ok(Some(Read { batch, stream: batches.stream_state().cloned() }))
    }

    fn end_epoch(&mut self, fit: &mut Fit<'_, '_, '_>) -> Result<(), TrainError> {
        let validation = match &fit.options.validation {
            Some(validation) => Some(self.evaluate_averaged(validation)?),
            None => None,
        };
        let mut report = EpochReport {
            epoch: fit.run.epochs + 1,
            step: fit.run.steps,
            lr: self.lr_after(0),
            train_loss: fit.run.means.loss.unwrap_or(f64::NAN),
            train_accuracy: fit.run.means.accuracy,
            skipped_steps: self.skipped_in(&fit.run),
            validation,
        };
        let best = fit.options.checkpoints.as_ref().and_then(Checkpoints::monitor);
        let before = fit.run.best.clone();
        let is_best = match best.map(|monitor| monitor.among(&self.config.metrics)) {
            Some(monitor) => fit.run.best.observe(&monitor, report.epoch, report.value(&monitor.monitor)?),
            None => false,
        };
        fit.run.next_epoch();
        for i in 0..fit.options.callbacks.len() {
            fit.options.callbacks[i].on_epoch_end(self, &report)?;
            report.lr = self.lr_after(0);
        }
        let values = report.values();
        let values: Vec<_> = values.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        fit.run.history.push_epoch(report.epoch, report.step, &values);
        self.tell_of_plan(fit)?;
        // That of the best comes first: training goes on from the other once that is there, and the best would be missing. Where it cannot
        // be written, the next that is better than the one before takes its place.
        if is_best && !self.write_checkpoint(fit, Write::Best)? {
            fit.run.best = before;
        }
        if fit.options.checkpoints.as_ref().is_some_and(Checkpoints::is_due_after_epoch) {
            self.write_checkpoint(fit, Write::Now)?;
        }
        Ok(())
    }

    /// Tells callbacks of a plan that one of them made necessary; whether there is one.
    fn tell_of_plan(&mut self, fit: &mut Fit<'_, '_, '_>) -> Result<bool, TrainError> {
        if self.replanned == fit.replanned {
            return Ok(false);
        }
        fit.replanned = self.replanned;
        // Those of the plan at hand are what is told.
        fit.times.clear();
        let (before, now) = (fit.batch_size, self.config.batch);
        if before != now {
            let text = format!(
                "a callback made batches of {now} samples of {before} in the middle of a fit: do so between fits"
            );
            return Err(TrainError::Setting(text));
        }
        for callback in &mut fit.options.callbacks {
            callback.on_reconfigure(self)?;
        }
        Ok(true)
    }

    /// Whether snapshots are of use: to go on from, or to be kept as a checkpoint. On the CPU they are not: its memory is not lost while
    /// the process lives, and with Adam a snapshot takes three quarters of what lasts once more.
    fn is_backed_up(&self, fit: &Fit<'_, '_, '_>) -> bool {
        let is_used = self.config.recovery.replan || fit.options.checkpoints.is_some();
        is_used && self.backend.is_some() && self.plan().threads.is_none()
    }

    fn snapshot_fit(&mut self, fit: &mut Fit<'_, '_, '_>) -> Result<(), TrainError> {
        let state = self.state(Some(&fit.run));
        let callbacks = states_of(fit.options)?;
        self.take_snapshot(state, callbacks)
    }

    /// Whether it was written. Where one cannot be in the middle, there may be room for the next.
    fn write_checkpoint(&mut self, fit: &mut Fit<'_, '_, '_>, which: Write) -> Result<bool, TrainError> {
        let Some(mut checkpoints) = fit.options.checkpoints.take() else { return Ok(false) };
        let result = states_of(fit.options).and_then(|callbacks| {
            let state = self.state(Some(&fit.run));
            let write = |path: &std::path::Path| self.write_state(path, &state, &callbacks);
            match which {
                Write::Best => checkpoints.write_best(state.steps, write),
                Write::Now | Write::Last => checkpoints.write(state.steps, write),
            }
        });
        fit.options.checkpoints = Some(checkpoints);
        match result {
            Err(error) if which == Write::Last || is_recoverable(&error) => Err(error),
            Err(error) => {
                log::warn!("no checkpoint of step {}: {error}", self.steps);
                Ok(false)
            }
            Ok(_) => Ok(true),
        }
    }

    /// Steps of a fit that were skipped, where there may be such.
    fn skipped_in(&self, run: &Run) -> Option<u64> {
        self.scaling.is_on().then_some(run.skipped_steps)
    }

    fn report(&mut self, fit: &mut Fit<'_, '_, '_>) -> Result<FitReport, TrainError> {
        let mut report = FitReport {
            steps: fit.run.steps,
            skipped_steps: self.skipped_in(&fit.run),
            epochs: fit.run.epochs,
            train_loss: fit.run.means.loss.map_or(f32::NAN, |loss| loss as f32),
            train_accuracy: fit.run.means.accuracy.map(|accuracy| accuracy as f32),
            step_ms_median: f64::NAN,
            first_step_ms: f64::NAN,
            interrupted: fit.interrupted,
            history: fit.run.history.clone(),
            // Also where that was before the checkpoint that it went on from.
            stopped: self.stop_reason.take().or_else(|| fit.run.finished.clone().filter(|why| why != ALL_DONE)),
        };
        if report.steps > 0
            && let Some(place) = diagnose::non_finite_parameter(&self.planned, &mut *self.executor)?
        {
            return Err(place.error(self.steps, self.steps, report.train_loss));
        }
        let times = &mut fit.times;
        if let Some(&first) = times.first() {
            report.first_step_ms = first;
            let others = if times.len() > 1 { &mut times[1..] } else { &mut times[..] };
            others.sort_by(f64::total_cmp);
            report.step_ms_median = others[others.len() / 2];
        }
        Ok(report)
    }
}

/// What the callbacks remember, by their names; the second of a name is `name.2`.
fn states_of(options: &mut FitOptions<'_>) -> Result<BTreeMap<String, CallbackState>, TrainError> {
    let keys = keys_of(options);
    keys.into_iter().zip(&mut options.callbacks).map(|(key, callback)| Ok((key, callback.state()?))).collect()
}

fn restore_callbacks(options: &mut FitOptions<'_>, states: &BTreeMap<String, CallbackState>) -> Result<(), TrainError> {
    let keys = keys_of(options);
    for (key, callback) in keys.iter().zip(&mut options.callbacks) {
        if let Some(state) = states.get(key) {
            callback.restore(state)?;
        }
    }
    Ok(())
}

fn keys_of(options: &FitOptions<'_>) -> Vec<String> {
    let mut seen = BTreeMap::new();
    let key = |callback: &&mut dyn Callback| {
        let count = seen.entry(callback.name().to_owned()).or_insert(0);
        *count += 1;
        if *count == 1 { callback.name().to_owned() } else { format!("{}.{count}", callback.name()) }
    };
    options.callbacks.iter().map(key).collect()
}

//! A fit: the trainer tells what happens, and waits where Python has something to say to it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tightfit::data::{DataLoader, Order};
use tightfit::error::TrainError;
use tightfit::train::{Callback, EpochReport, FitOptions, FitReport, MetricValue, Replan, StepReport, Trainer};

use crate::arrays::Arrays;
use crate::errors::OrRaise as _;
use crate::worker::{Message, Worker, next};

/// What a fit does.
pub(crate) struct Asked {
    pub(crate) data: Arrays,
    pub(crate) validation: Option<Arrays>,
    pub(crate) epochs: u64,
    pub(crate) shuffle: bool,
    /// Whether the fit waits for callbacks after each step, not after epochs alone.
    pub(crate) waits: bool,
}

/// How often a fit that does not wait tells how far it is: each time, a thread of Python takes a core from those that compute.
const PAUSE: Duration = Duration::from_millis(100);

enum Event {
    EpochBegin(u64),
    Steps(Means, u64),
    EpochEnd(Box<EpochReport>),
    Replan(String),
    Done(Box<Result<FitReport, TrainError>>),
}

/// Of the batches of an epoch so far.
#[derive(Clone, Copy, Default)]
struct Means {
    batches: u64,
    loss: f64,
    samples: f64,
    correct: f64,
    /// Samples of batches whose accuracy is known.
    counted: f64,
}

impl Means {
    fn add(&mut self, step: &StepReport) {
        let samples = step.samples as f64;
        self.batches += 1;
        self.loss += f64::from(step.loss) * samples;
        self.samples += samples;
        if let Some(accuracy) = step.accuracy {
            self.correct += f64::from(accuracy) * samples;
            self.counted += samples;
        }
    }

    fn values(&self) -> Vec<(String, f64)> {
        let accuracy = (self.counted > 0.0).then(|| ("accuracy".to_owned(), self.correct / self.counted));
        [("loss".to_owned(), self.loss / self.samples)].into_iter().chain(accuracy).collect()
    }
}

/// The callback in the trainer's thread.
struct Relay<'a> {
    events: Sender<(Event, bool)>,
    messages: &'a Receiver<Message>,
    waits: bool,
    means: Means,
    told: Option<Instant>,
}

impl Relay<'_> {
    /// Tells of something, and where it waits does what is sent meanwhile until the fit is to go on.
    fn tell(&mut self, trainer: &mut Trainer, event: Event, waits: bool) {
        if self.events.send((event, waits)).is_err() {
            return trainer.stop("nobody listens any more");
        }
        if !waits {
            return;
        }
        loop {
            match self.messages.recv() {
                Ok(Message::Job(job)) => job(trainer, self.messages),
                Ok(Message::Resume(false)) => return,
                Ok(Message::Resume(true)) => return trainer.stop("stop_training was set"),
                Err(_) => return trainer.stop("nobody listens any more"),
            }
        }
    }
}

impl Callback for Relay<'_> {
    fn name(&self) -> &str {
        "python"
    }

    fn on_epoch_begin(&mut self, trainer: &mut Trainer, epoch: u64) -> Result<(), TrainError> {
        self.means = Means::default();
        self.tell(trainer, Event::EpochBegin(epoch), true);
        Ok(())
    }

    fn on_step_end(&mut self, trainer: &mut Trainer, step: &StepReport) -> Result<(), TrainError> {
        self.means.add(step);
        let is_last = self.means.batches == step.steps_per_epoch;
        if self.waits || is_last || self.told.is_none_or(|told| told.elapsed() >= PAUSE) {
            self.told = Some(Instant::now());
            self.tell(trainer, Event::Steps(self.means, step.steps_per_epoch), self.waits);
        }
        Ok(())
    }

    fn on_epoch_end(&mut self, trainer: &mut Trainer, epoch: &EpochReport) -> Result<(), TrainError> {
        self.tell(trainer, Event::EpochEnd(Box::new(epoch.clone())), true);
        Ok(())
    }

    fn on_replan(&mut self, trainer: &mut Trainer, replan: &Replan) -> Result<(), TrainError> {
        self.tell(trainer, Event::Replan(replan.to_string()), false);
        Ok(())
    }
}

/// Fits. `listener` has `on_epoch_begin(epoch)`, `on_steps(batches, steps_per_epoch, means)`, `on_epoch_end(values)` and `on_replan(text)`, of which
/// each but the last says whether the fit is to end. Where it raises, or a signal does, the fit ends with the step at hand, and the exception goes on.
pub(crate) fn fit<'py>(
    py: Python<'py>,
    worker: &Worker,
    asked: Asked,
    listener: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyDict>> {
    let (sender, events) = mpsc::channel();
    let events = Mutex::new(events);
    let stop = Arc::new(AtomicBool::new(false));
    let stops = Arc::clone(&stop);
    worker.send(Message::Job(Box::new(move |trainer, messages| {
        let result = run(trainer, messages, &asked, sender.clone(), stops);
        let _ = sender.send((Event::Done(Box::new(result)), false));
    })))?;
    let mut raised: Option<PyErr> = None;
    loop {
        let event = next(py, &events)?;
        if raised.is_none()
            && let Err(error) = py.check_signals()
        {
            stop.store(true, Ordering::Relaxed);
            raised = Some(error);
        }
        let Some((event, waits)) = event else { continue };
        if let Event::Done(result) = event {
            return match raised {
                Some(error) => Err(error),
                None => report(py, &result.or_raise()?),
            };
        }
        // Nobody is told of what comes after a failure.
        let heard = if raised.is_some() { Ok(true) } else { tell(py, listener, &event) };
        let ends = heard.unwrap_or_else(|error| {
            raised = Some(error);
            true
        });
        if ends && (raised.is_some() || !waits) {
            stop.store(true, Ordering::Relaxed);
        }
        if waits {
            worker.send(Message::Resume(ends))?;
        }
    }
}

fn run(
    trainer: &mut Trainer,
    messages: &Receiver<Message>,
    asked: &Asked,
    events: Sender<(Event, bool)>,
    stop: Arc<AtomicBool>,
) -> Result<FitReport, TrainError> {
    let mut relay = Relay { events, messages, waits: asked.waits, means: Means::default(), told: None };
    let options = FitOptions {
        order: (!asked.shuffle).then_some(Order::Sequential),
        stop: Some(stop),
        validation: asked.validation.as_ref().map(DataLoader::from),
        callbacks: vec![&mut relay],
        ..FitOptions::epochs(asked.epochs)
    };
    trainer.fit(&asked.data, options)
}

fn tell(py: Python<'_>, listener: &Bound<'_, PyAny>, event: &Event) -> PyResult<bool> {
    let says = match event {
        Event::EpochBegin(epoch) => listener.call_method1("on_epoch_begin", (*epoch,))?,
        Event::Steps(means, steps) => {
            listener.call_method1("on_steps", (means.batches, *steps, values(py, means.values())?))?
        }
        Event::EpochEnd(report) => {
            let values = values(py, report.values())?;
            if let Some(validation) = &report.validation {
                add_lists(&values, "val_", &validation.metrics)?;
            }
            listener.call_method1("on_epoch_end", (report.epoch, values))?
        }
        Event::Replan(text) => listener.call_method1("on_replan", (text,))?,
        Event::Done(_) => return Ok(false),
    };
    says.is_truthy()
}

/// Numbers by name.
pub(crate) fn values<'py>(py: Python<'py>, values: Vec<(String, f64)>) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in values {
        dict.set_item(name, value)?;
    }
    Ok(dict)
}

/// Adds the metrics that are several numbers, in place of their means.
pub(crate) fn add_lists(dict: &Bound<'_, PyDict>, prefix: &str, metrics: &[(String, MetricValue)]) -> PyResult<()> {
    for (name, value) in metrics {
        let name = format!("{prefix}{name}");
        match value {
            MetricValue::Number(_) => {}
            MetricValue::PerClass(classes) => dict.set_item(name, classes.clone())?,
            MetricValue::Matrix(rows) => dict.set_item(name, rows.clone())?,
        }
    }
    Ok(())
}

fn report<'py>(py: Python<'py>, report: &FitReport) -> PyResult<Bound<'py, PyDict>> {
    let numbers = BTreeMap::from([
        ("steps", report.steps as f64),
        ("epochs", report.epochs as f64),
        ("train_loss", f64::from(report.train_loss)),
        ("step_ms", report.step_ms_median),
        ("first_step_ms", report.first_step_ms),
    ]);
    let dict = values(py, numbers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())?;
    dict.set_item("stopped", &report.stopped)?;
    dict.set_item("skipped_steps", report.skipped_steps)?;
    Ok(dict)
}

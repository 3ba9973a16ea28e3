//! The trainer.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tightfit::data::DataLoader;
use tightfit::error::TrainError;
use tightfit::train::{Config, DeviceSelector, Evaluation, Metric, MetricKind};

use crate::arrays::{self, Arrays, Given, Named};
use crate::errors::OrRaise as _;
use crate::fit::{self, Asked};
use crate::info::{self, selector};
use crate::network::Network;
use crate::settings;
use crate::worker::Worker;

/// A trainer of one model under one plan, in a thread of its own.
#[pyclass(frozen, module = "tightfit._tightfit")]
pub(crate) struct Trainer {
    worker: Mutex<Option<std::sync::Arc<Worker>>>,
}

/// What metrics make of batches that come one after the other.
type Metrics = Vec<Box<dyn Metric>>;

impl Trainer {
    fn worker(&self) -> PyResult<std::sync::Arc<Worker>> {
        let worker = self.worker.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        worker.clone().ok_or_else(|| PyRuntimeError::new_err("the trainer is closed"))
    }

    /// As `call`, of something that Ctrl-C ends, and that is `None` then.
    fn call_while<T: Send + 'static>(
        &self,
        py: Python<'_>,
        function: impl FnOnce(&mut tightfit::train::Trainer, &AtomicBool) -> Result<Option<T>, TrainError> + Send + 'static,
    ) -> PyResult<T> {
        let result = self.worker()?.call_while(py, function)?.or_raise()?;
        result.ok_or_else(|| PyRuntimeError::new_err("it was stopped"))
    }

    /// Has the trainer do something that may fail.
    fn call<T: Send + 'static>(
        &self,
        py: Python<'_>,
        function: impl FnOnce(&mut tightfit::train::Trainer) -> Result<T, TrainError> + Send + 'static,
    ) -> PyResult<T> {
        self.worker()?.call(py, function)?.or_raise()
    }
}

#[pymethods]
impl Trainer {
    #[new]
    #[pyo3(signature = (network, settings, device=None, evaluates=false))]
    fn new(py: Python<'_>, network: &Network, settings: &str, device: Option<&str>, evaluates: bool) -> PyResult<Self> {
        let (model, config) = (network.model.clone(), settings::config(settings)?);
        let device: DeviceSelector = selector(device);
        let worker = Worker::start(py, move || {
            if evaluates {
                tightfit::train::Trainer::for_evaluation(model, config, device)
            } else {
                tightfit::train::Trainer::new(model, config, device)
            }
        })?;
        Ok(Trainer { worker: Mutex::new(Some(std::sync::Arc::new(worker))) })
    }

    /// Frees its memory, on the device and off it.
    fn close(&self) {
        // Not while it is locked: its thread may have to wait for the interpreter.
        let worker = self.worker.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        drop(worker);
    }

    /// Another batch, and whether short batches are trained on: parameters and optimizer state stay.
    fn reconfigure(&self, py: Python<'_>, batch: usize, drop_last: bool, sample_weights: bool) -> PyResult<()> {
        self.call(py, move |trainer| {
            let same = |config: &Config| {
                config.batch == batch && config.drop_last == drop_last && config.sample_weights == sample_weights
            };
            if same(trainer.config()) {
                return Ok(());
            }
            trainer.reconfigure(|config| config.batch(batch).drop_last(drop_last).sample_weights(sample_weights))
        })
    }

    /// Fits; see [`fit::fit`]. `how` is the number of epochs, whether samples are shuffled, and whether the fit waits after each step.
    fn fit<'py>(
        &self,
        py: Python<'py>,
        data: Vec<Given<'py>>,
        validation: Option<Vec<Given<'py>>>,
        how: (u64, bool, bool),
        listener: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (epochs, shuffle, waits) = how;
        let (data, validation) = (Arrays::new(data)?, validation.map(Arrays::new).transpose()?);
        let asked = Asked { data, validation, epochs, shuffle, waits };
        let worker = self.worker()?;
        fit::fit(py, &worker, asked, listener)
    }

    /// One step on a batch.
    fn step<'py>(&self, py: Python<'py>, data: Vec<Given<'py>>) -> PyResult<Bound<'py, PyDict>> {
        let data = Arrays::new(data)?;
        let batch = data.batch().or_raise()?;
        let outcome = self.call(py, move |trainer| trainer.step_batch(&batch))?;
        let dict = PyDict::new(py);
        dict.set_item("loss", f64::from(outcome.loss))?;
        if let Some((correct, counted)) = outcome.correct {
            dict.set_item("correct", correct)?;
            dict.set_item("counted", counted)?;
        }
        if let Some(norm) = outcome.grad_norm {
            dict.set_item("grad_norm", f64::from(norm))?;
        }
        dict.set_item("skipped", outcome.skipped)?;
        dict.set_item("samples", outcome.samples)?;
        Ok(dict)
    }

    /// Loss, accuracy and metrics. With averages of the parameters where there are such and `averaged` is set.
    fn evaluate<'py>(&self, py: Python<'py>, data: Vec<Given<'py>>, averaged: bool) -> PyResult<Bound<'py, PyDict>> {
        let data = Arrays::new(data)?;
        let evaluation = self.call_while(py, move |trainer, stop| {
            let evaluate = |trainer: &mut tightfit::train::Trainer| {
                trainer.evaluate_while(&data, |_| !stop.load(Ordering::Relaxed))
            };
            if averaged { trainer.with_averages(evaluate) } else { evaluate(trainer) }
        })?;
        evaluated(py, &evaluation)
    }

    /// As `evaluate`, of batches one after the other: metrics go on from what they are.
    fn evaluate_next<'py>(
        &self,
        py: Python<'py>,
        data: Vec<Given<'py>>,
        running: &Running,
    ) -> PyResult<Bound<'py, PyDict>> {
        let data = Arrays::new(data)?;
        let metrics = std::sync::Arc::clone(&running.metrics);
        let evaluation = self.call(py, move |trainer| {
            let mut metrics = metrics.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let mut metrics: Vec<&mut dyn Metric> = metrics.iter_mut().map(|metric| &mut **metric as _).collect();
            trainer.evaluate_with(&data, &mut metrics)
        })?;
        evaluated(py, &evaluation)
    }

    /// All outputs by name, that of the last layer, `output`, first.
    fn predict<'py>(&self, py: Python<'py>, data: Vec<Given<'py>>) -> PyResult<Named<'py>> {
        let data = Arrays::new(data)?;
        let rows = data.rows();
        let outputs = self.call_while(py, move |trainer, stop| {
            trainer.predict_all_while(DataLoader::new(data), |_| !stop.load(Ordering::Relaxed))
        })?;
        let mut named = Vec::new();
        for (name, prediction) in outputs {
            debug_assert_eq!(prediction.shape.first(), Some(&rows), "a prediction for each sample");
            named.push((name, arrays::from_vec(py, prediction.values, &prediction.shape)?));
        }
        named.sort_by_key(|(name, _)| name != "output");
        Ok(named)
    }

    /// All parameters and buffers.
    fn weights<'py>(&self, py: Python<'py>) -> PyResult<Named<'py>> {
        let weights = self.call(py, tightfit::train::Trainer::state_dict)?;
        let named =
            weights.into_iter().map(|(name, (desc, values))| Ok((name, arrays::from_vec(py, values, &desc.shape)?)));
        named.collect()
    }

    /// Overwrites parameters and buffers, all of them or none.
    fn set_weights(&self, py: Python<'_>, weights: Vec<(String, Bound<'_, PyAny>)>) -> PyResult<()> {
        let mut taken = Vec::new();
        for (name, array) in &weights {
            let (shape, values) = arrays::to_vec(name, array)?;
            taken.push((name.clone(), shape, values));
        }
        self.call(py, move |trainer| {
            let known = trainer.model().state_dict()?;
            for (name, shape, _) in &taken {
                match known.iter().find(|(known, _)| known == name) {
                    None => {
                        let text = format!("the model has no weight `{name}`: `weights` lists those that it has");
                        return Err(TrainError::Setting(text));
                    }
                    Some((_, wanted)) if wanted[..] != shape[..] => {
                        let text = format!("`{name}` has the shape {shape:?}, the model's is {wanted}");
                        return Err(TrainError::Setting(text));
                    }
                    Some(_) => {}
                }
            }
            taken.iter().try_for_each(|(name, _, values)| trainer.set_parameter(name, values))
        })
    }

    /// Writes parameters and buffers to a safetensors file.
    fn save(&self, py: Python<'_>, path: std::path::PathBuf) -> PyResult<()> {
        self.call(py, move |trainer| trainer.save(path))
    }

    /// Begins what is carried from batch to batch anew.
    fn reset_state(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, tightfit::train::Trainer::reset_state)
    }

    /// The optimizer's learning rate, which a schedule multiplies.
    fn lr(&self, py: Python<'_>) -> PyResult<f64> {
        self.worker()?.call(py, |trainer| {
            let mut optimizer = trainer.config().optimizer;
            *optimizer.lr_mut()
        })
    }

    fn set_lr(&self, py: Python<'_>, lr: f64) -> PyResult<()> {
        self.call(py, move |trainer| trainer.set_lr(lr))
    }

    /// Steps so far.
    fn steps(&self, py: Python<'_>) -> PyResult<u64> {
        self.worker()?.call(py, |trainer| trainer.steps())
    }

    fn device_name(&self, py: Python<'_>) -> PyResult<String> {
        self.worker()?.call(py, |trainer| trainer.device_name().to_owned())
    }

    fn measured_peak_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        self.worker()?.call(py, |trainer| trainer.measured_peak_bytes())
    }

    /// The plan that it follows, as `plan` gives it.
    fn plan<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let described = self.worker()?.call(py, |trainer| {
            let unified = trainer.unified_memory();
            let table = trainer.plan().table().unified_memory(unified).to_string();
            let source = trainer.cost_source().cloned();
            info::Described::new(trainer.plan(), table, Some(trainer.device_name()), source.as_ref())
        })?;
        described.to_dict(py)
    }
}

/// Metrics of batches that come one after the other.
#[pyclass(frozen, module = "tightfit._tightfit")]
pub(crate) struct Running {
    metrics: std::sync::Arc<Mutex<Metrics>>,
}

#[pymethods]
impl Running {
    /// Metrics as JSON.
    #[new]
    fn new(metrics: &str) -> PyResult<Self> {
        let kinds: Vec<MetricKind> = settings::read("metrics", metrics)?;
        let metrics = kinds.iter().map(MetricKind::build).collect();
        Ok(Running { metrics: std::sync::Arc::new(Mutex::new(metrics)) })
    }

    /// What they are so far.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let metrics = self.metrics.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let values: Vec<_> = metrics.iter().map(|metric| (metric.name().to_owned(), metric.value())).collect();
        let numbers = values.iter().filter_map(|(name, value)| Some((name.clone(), value.scalar()?))).collect();
        let dict = fit::values(py, numbers)?;
        fit::add_lists(&dict, "", &values)?;
        Ok(dict)
    }
}

fn evaluated<'py>(py: Python<'py>, evaluation: &Evaluation) -> PyResult<Bound<'py, PyDict>> {
    let mut numbers = vec![("loss".to_owned(), evaluation.loss)];
    numbers.extend(evaluation.accuracy.map(|accuracy| ("accuracy".to_owned(), accuracy)));
    let others = evaluation.metrics.iter().filter_map(|(name, value)| Some((name.clone(), value.scalar()?)));
    numbers.extend(others.filter(|(name, _)| evaluation.accuracy.is_none() || name != "accuracy"));
    let dict = fit::values(py, numbers)?;
    fit::add_lists(&dict, "", &evaluation.metrics)?;
    dict.set_item("samples", evaluation.samples)?;
    Ok(dict)
}

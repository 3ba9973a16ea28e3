//! What there is, and what a training would take.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use serde_json::{Value, json};
use tightfit::device::{self, AvailableMemory};
use tightfit::models as zoo;
use tightfit::plan::{ArenaRole, DeviceClass, Lever, Plan};
use tightfit::train::{
    self, CostSource, Cpu, DeviceSelector, Loss, Machine, MetricKind, Optimizer, Processor, Profile,
};

use crate::errors::OrRaise as _;
use crate::network::Network;
use crate::settings;

/// What Python calls a device.
pub(crate) fn selector(device: Option<&str>) -> DeviceSelector {
    device.map_or(DeviceSelector::Best, DeviceSelector::from)
}

/// What a plan is made for: a device, a profile of one, or a class of devices; `None` is a discrete GPU.
fn machine(device: Option<&str>, class: Option<&str>, threads: Option<usize>) -> PyResult<(Machine, Option<String>)> {
    let Some(device) = device else {
        let class = match class {
            None => DeviceClass::default(),
            Some(name) => {
                let found = DeviceClass::ALL.into_iter().find(|class| class.name() == name);
                found.ok_or_else(|| {
                    let names = DeviceClass::ALL.map(DeviceClass::name).join(", ");
                    PyValueError::new_err(format!("there is no device class `{name}`: choose one of {names}"))
                })?
            }
        };
        return Ok((Machine::of_class(class), None));
    };
    if class.is_some() {
        return Err(PyValueError::new_err("give a device or a device class, not both"));
    }
    if std::path::Path::new(device).extension().is_some_and(|extension| extension == "json") {
        let path = std::path::Path::new(device);
        let profile = Profile::load(path).or_raise()?;
        let name = profile.adapter.clone();
        let machine = Machine::with_profile(profile, path);
        return Ok((threads.into_iter().fold(machine, Machine::on_threads), Some(name)));
    }
    let device = if device == "auto" { None } else { Some(device) };
    let mut processor = Processor::open(&selector(device), threads).or_raise()?;
    Ok((processor.machine(), Some(processor.name().to_owned())))
}

/// A plan's figures, which leave the trainer's thread.
pub(crate) struct Described {
    json: Value,
    text: String,
}

impl Described {
    pub(crate) fn new(plan: &Plan, table: String, device: Option<&str>, source: Option<&CostSource>) -> Self {
        let used = |lever| {
            let used = plan.lever(lever);
            json!({ "tensors": used.tensors, "bytes": used.size_bytes, "step_ms": used.step_ns as f64 / 1e6 })
        };
        let costs = match source {
            Some(CostSource::Class(class)) => format!("typical of {}, not measured", class.article()),
            Some(CostSource::Profile { path, .. }) => format!("measured, from {}", path.display()),
            None => "not known".to_owned(),
        };
        let json = json!({
            "batch": plan.batch,
            "budget_bytes": plan.budget_bytes,
            "peak_bytes": plan.peak_bytes,
            "unconstrained_peak_bytes": plan.unconstrained_peak_bytes,
            "minimum_budget_bytes": plan.minimum_budget_bytes,
            "predicted_step_ms": plan.predicted_step_ns as f64 / 1e6,
            "unconstrained_step_ms": plan.unconstrained_step_ns as f64 / 1e6,
            "micro_batches": plan.micro_batches.len(),
            "micro_batch_sizes": plan.micro_batches,
            "parameters_bytes": plan.arena_bytes(ArenaRole::Parameters),
            "state_bytes": plan.arena_bytes(ArenaRole::State),
            "host_bytes": plan.arena_bytes(ArenaRole::Host),
            "recomputed": used(Lever::Recompute),
            "offloaded": used(Lever::Offload),
            "device": device,
            "costs": costs,
        });
        let device = device.map_or_else(String::new, |device| format!("{:<20} {device}\n", "device"));
        let text = format!("{}\n{device}{:<20} {costs}", table.trim_end(), "costs");
        Described { json, text }
    }

    pub(crate) fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = to_python(py, &self.json)?.cast_into::<PyDict>()?;
        dict.set_item("text", &self.text)?;
        Ok(dict)
    }
}

/// What training takes, before anything runs.
#[pyfunction]
#[pyo3(signature = (network, settings, device=None, device_class=None))]
pub(crate) fn plan<'py>(
    py: Python<'py>,
    network: &Network,
    settings: &str,
    device: Option<String>,
    device_class: Option<String>,
) -> PyResult<Bound<'py, PyDict>> {
    let (model, config) = (network.model.clone(), settings::config(settings)?);
    let described = py.detach(move || {
        let (machine, name) = machine(device.as_deref(), device_class.as_deref(), config.threads)?;
        let planned = train::plan_for(&model, &config, &machine).or_raise()?;
        let table = planned.plan.table().unified_memory(machine.costs.unified_memory).to_string();
        Ok::<_, PyErr>(Described::new(&planned.plan, table, name.as_deref(), Some(&machine.source)))
    })?;
    described.to_dict(py)
}

/// What may be done where a training does not fit.
#[pyfunction]
#[pyo3(signature = (network, settings, device=None, device_class=None))]
pub(crate) fn advise<'py>(
    py: Python<'py>,
    network: &Network,
    settings: &str,
    device: Option<String>,
    device_class: Option<String>,
) -> PyResult<Bound<'py, PyAny>> {
    let (model, config) = (network.model.clone(), settings::config(settings)?);
    let advice = py.detach(move || {
        let (machine, _) = machine(device.as_deref(), device_class.as_deref(), config.threads)?;
        train::advise(&model, &config, &machine).or_raise()
    })?;
    to_python(py, &json!(advice))
}

/// Devices of this machine.
#[pyfunction]
pub(crate) fn devices(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let list = py.detach(|| {
        let adapters = device::list_with_memory().or_raise()?;
        let best = Processor::best_gpu().map(|gpu| gpu.index);
        let mut list: Vec<Value> = Vec::new();
        for (adapter, memory) in &adapters {
            list.push(json!({
                "device": adapter.index.to_string(), "name": adapter.name, "backend": adapter.backend,
                "type": adapter.device_type, "free_bytes": memory.map(|memory| memory.free_bytes),
                "total_bytes": memory.map(|memory| memory.total_bytes),
                "usable": adapter.missing.is_empty(), "missing": adapter.missing,
                "default": best == Some(adapter.index),
            }));
        }
        let (cpu, host) = (Cpu::new(None), AvailableMemory::of_host());
        list.push(json!({
            "device": "cpu", "name": cpu.info().name, "backend": "native", "type": "cpu",
            "free_bytes": host.map(|memory| memory.free_bytes), "total_bytes": host.map(|memory| memory.total_bytes),
            "usable": true, "missing": [], "default": best.is_none(),
        }));
        Ok::<_, PyErr>(Value::Array(list))
    })?;
    to_python(py, &list)
}

/// Names of the models that are built in.
#[pyfunction]
pub(crate) fn models() -> Vec<&'static str> {
    zoo::NAMES.to_vec()
}

/// Kinds of losses, each with its names elsewhere.
#[pyfunction]
pub(crate) fn losses() -> Vec<(&'static str, Vec<&'static str>)> {
    Loss::KINDS.iter().map(|kind| (kind.kind, kind.elsewhere.to_vec())).collect()
}

/// Kinds of metrics, each with its names elsewhere.
#[pyfunction]
pub(crate) fn metrics() -> Vec<(&'static str, Vec<&'static str>)> {
    MetricKind::KINDS.iter().map(|kind| (kind.kind, kind.elsewhere.to_vec())).collect()
}

/// Kinds of optimizers, each with its usual learning rate.
#[pyfunction]
pub(crate) fn optimizers() -> Vec<(&'static str, f64)> {
    Optimizer::KINDS.iter().map(|kind| (kind.kind, *(kind.usual)().lr_mut())).collect()
}

/// JSON as Python's own.
fn to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => number.into_pyobject(py)?.into_any(),
            (None, Some(number)) => number.into_pyobject(py)?.into_any(),
            (None, None) => number.as_f64().unwrap_or(f64::NAN).into_pyobject(py)?.into_any(),
        },
        Value::String(text) => text.into_pyobject(py)?.into_any(),
        Value::Array(values) => {
            let values = values.iter().map(|value| to_python(py, value)).collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, values)?.into_any()
        }
        Value::Object(entries) => {
            let dict = PyDict::new(py);
            for (name, value) in entries {
                dict.set_item(name, to_python(py, value)?)?;
            }
            dict.into_any()
        }
    })
}

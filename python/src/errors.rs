//! The library's errors as exceptions of Python.

use pyo3::exceptions::{PyFloatingPointError, PyMemoryError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use tightfit::error::{DataError, DeviceError, GraphError, ImportError, PlanError, TrainError};

pyo3::create_exception!(
    tightfit,
    InfeasibleError,
    PyValueError,
    "No plan meets the budget. `minimum_budget_bytes` is the smallest budget that has one, `budget_bytes` the one that was asked for."
);

/// What the library's errors become.
pub(crate) trait OrRaise<T> {
    /// Its value, or the exception.
    fn or_raise(self) -> PyResult<T>;
}

impl<T, E: Into<Raised>> OrRaise<T> for Result<T, E> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(|error| error.into().0)
    }
}

/// An exception that is to be raised.
pub(crate) struct Raised(PyErr);

/// Flags of the command that messages name, and what is said in Python.
const ARGUMENTS: [(&str, &str); 8] = [
    ("--batch-norm ghost", "statistics=\"ghost\""),
    ("--batch-norm frozen", "statistics=\"frozen\""),
    ("`--allow bf16-activations`", "`levers={\"half_activations\": \"bf16\"}`"),
    ("`--precision bf16`", "`precision=\"bf16\"`"),
    ("`--budget 4GiB`", "`budget=\"4GiB\"`"),
    ("`--budget`", "`budget`"),
    ("`--device cpu`", "`device=\"cpu\"`"),
    ("`--device`", "`device`"),
];

/// A message with the arguments of Python's functions.
fn in_python(error: &impl ToString) -> String {
    ARGUMENTS.iter().fold(error.to_string(), |text, (flag, argument)| text.replace(flag, argument))
}

impl From<GraphError> for Raised {
    fn from(error: GraphError) -> Self {
        Raised(PyValueError::new_err(in_python(&error)))
    }
}

impl From<DeviceError> for Raised {
    fn from(error: DeviceError) -> Self {
        let text = in_python(&error);
        Raised(match error {
            DeviceError::OutOfMemory { .. } | DeviceError::HostMemory(_) => PyMemoryError::new_err(text),
            DeviceError::Unknown { .. } | DeviceError::UnknownMemory => PyValueError::new_err(text),
            _ => PyRuntimeError::new_err(text),
        })
    }
}

impl From<DataError> for Raised {
    fn from(error: DataError) -> Self {
        let text = error.to_string();
        Raised(match error {
            DataError::Mismatch(_) | DataError::Corrupt { .. } => PyValueError::new_err(text),
            DataError::HostMemory(_) => PyMemoryError::new_err(text),
            DataError::Missing { path, hint } => {
                PyErr::new::<pyo3::exceptions::PyFileNotFoundError, _>(format!("{}: not found; {hint}", path.display()))
            }
            _ => PyOSError::new_err(text),
        })
    }
}

impl From<PlanError> for Raised {
    fn from(error: PlanError) -> Self {
        let text = in_python(&error);
        match error {
            PlanError::Infeasible { budget_bytes, minimum_budget_bytes, .. } => {
                let raised = InfeasibleError::new_err(text);
                Python::attach(|py| {
                    let value = raised.value(py);
                    // An exception without these numbers still says what is wrong.
                    let _ = value.setattr("budget_bytes", budget_bytes);
                    let _ = value.setattr("minimum_budget_bytes", minimum_budget_bytes);
                });
                Raised(raised)
            }
            PlanError::Invalid(_) => Raised(PyRuntimeError::new_err(text)),
            _ => Raised(PyValueError::new_err(text)),
        }
    }
}

impl From<TrainError> for Raised {
    fn from(error: TrainError) -> Self {
        match error {
            TrainError::Graph(error) => error.into(),
            TrainError::Plan(error) => error.into(),
            TrainError::Device(error) => error.into(),
            TrainError::Data(error) => error.into(),
            TrainError::Setting(text) => Raised(PyValueError::new_err(text)),
            error => Raised(PyFloatingPointError::new_err(error.to_string())),
        }
    }
}

impl From<ImportError> for Raised {
    fn from(error: ImportError) -> Self {
        match error {
            ImportError::Data(error) => error.into(),
            ImportError::Graph(error) => error.into(),
            ImportError::Train(error) => error.into(),
            error => Raised(PyValueError::new_err(error.to_string())),
        }
    }
}

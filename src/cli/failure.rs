//! What went wrong, in one sentence, and the exit code that says of what kind it is.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::Path;

use serde_json::{Map, Value, json};
use tightfit::command::files;
use tightfit::error::{DataError, DeviceError, GraphError, ImportError, PlanError, TrainError};

use super::output::shown;

/// Files, devices or settings are not what they should be.
pub(crate) const BAD_INPUT: u8 = 2;
/// No plan meets the budget.
pub(crate) const INFEASIBLE: u8 = 3;
/// Training began and cannot go on.
pub(crate) const FAILED: u8 = 4;
/// A result could not be written where it was wanted.
pub(crate) const UNWRITTEN: u8 = 5;
/// Ended by a signal or by a reader that left.
pub(crate) const INTERRUPTED: u8 = 130;

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) message: String,
    pub(crate) exit_code: u8,
    /// More for `--json`.
    details: Map<String, Value>,
    /// Whether it is the model or a setting of its file that is wrong.
    is_the_models: bool,
}

impl Failure {
    fn new(message: impl Into<String>, exit_code: u8) -> Self {
        Failure { message: message.into(), exit_code, details: Map::new(), is_the_models: false }
    }

    pub(crate) fn bad_input(message: impl Into<String>) -> Self {
        Failure::new(message, BAD_INPUT)
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Failure::new(message, FAILED)
    }

    pub(crate) fn unwritten(message: impl Into<String>) -> Self {
        Failure::new(message, UNWRITTEN)
    }

    /// The same of this model, which it names where it is to blame.
    #[must_use]
    pub(crate) fn of(self, model: Option<&OsStr>) -> Self {
        match model.filter(|_| self.is_the_models) {
            Some(model) => self.prefixed(model.display()),
            None => self,
        }
    }

    /// The same with one more thing for `--json`.
    #[must_use]
    pub(crate) fn with(mut self, key: &str, value: Value) -> Self {
        self.details.insert(key.to_owned(), value);
        self
    }

    /// The same with words after it.
    #[must_use]
    pub(crate) fn and(mut self, more: impl std::fmt::Display) -> Self {
        self.message = format!("{}; {more}", self.message);
        self
    }

    /// The same with what went wrong besides.
    #[must_use]
    pub(crate) fn and_also(mut self, other: &Failure) -> Self {
        self.details.extend(other.details.clone());
        self.and(&other.message)
    }

    /// The same with words before it.
    #[must_use]
    pub(crate) fn prefixed(mut self, prefix: impl std::fmt::Display) -> Self {
        self.message = format!("{prefix}: {}", self.message);
        self
    }

    /// The last line under `--json`.
    pub(crate) fn to_json(&self) -> Value {
        let mut object = self.details.clone();
        object.insert("error".to_owned(), json!(self.message));
        object.insert("exit_code".to_owned(), json!(self.exit_code));
        Value::Object(object)
    }
}

/// Writes a result to a file, or where that fails, to another, which the failure then names.
pub(crate) fn keep(path: &Path, mut write: impl FnMut(&Path) -> Result<(), TrainError>) -> Result<(), Failure> {
    let Err(error) = write(path) else { return Ok(()) };
    let failure = Failure::unwritten(error.to_string());
    // Anything else would go wrong in another place too.
    if !matches!(error, TrainError::Data(DataError::Io { .. } | DataError::Corrupt { .. })) {
        return Err(failure);
    }
    Err(match files::elsewhere(path, write) {
        Ok(place) => failure.and(format_args!("saved to {} instead", place.display())).with("saved", shown(&place)),
        Err(error) => failure.and(format_args!("and nowhere else either: {error}")),
    })
}

impl From<ImportError> for Failure {
    fn from(error: ImportError) -> Self {
        match error {
            ImportError::Data(error) => error.into(),
            ImportError::Graph(error) => error.into(),
            ImportError::Train(error) => error.into(),
            error => Failure::bad_input(error.to_string()),
        }
    }
}

impl From<TrainError> for Failure {
    fn from(error: TrainError) -> Self {
        match error {
            TrainError::NonFinite { step, kept, .. } => {
                let mut failure = Failure::failed(error.to_string());
                failure.details.insert("step".to_owned(), json!(step));
                failure.details.insert("kept_step".to_owned(), json!(kept));
                failure
            }
            TrainError::NonFiniteGradients { step, skipped, .. } => {
                let mut failure = Failure::failed(error.to_string());
                failure.details.insert("step".to_owned(), json!(step));
                failure.details.insert("kept_step".to_owned(), json!(step.saturating_sub(skipped)));
                failure
            }
            TrainError::Plan(error) => error.into(),
            TrainError::Device(error) => error.into(),
            TrainError::Graph(error) => error.into(),
            TrainError::Setting(text) => Failure { is_the_models: true, ..Failure::bad_input(text) },
            TrainError::Data(error) => error.into(),
            error => Failure::bad_input(error.to_string()),
        }
    }
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        let message = error.to_string();
        match error {
            PlanError::Infeasible { budget_bytes, minimum_budget_bytes, blocking, .. } => {
                let blocking: Vec<_> =
                    blocking.iter().map(|(name, bytes)| json!({"name": name, "bytes": bytes})).collect();
                let mut details = Map::new();
                details.insert("budget_bytes".to_owned(), json!(budget_bytes));
                details.insert("minimum_budget_bytes".to_owned(), json!(minimum_budget_bytes));
                details.insert("blocking".to_owned(), json!(blocking));
                Failure { details, ..Failure::new(message, INFEASIBLE) }
            }
            PlanError::Invalid(_) => Failure::failed(message),
            PlanError::Graph(error) => error.into(),
            _ => Failure::bad_input(message),
        }
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        let message = error.to_string();
        match error {
            DeviceError::NoAdapter
            | DeviceError::Unknown { .. }
            | DeviceError::Unsupported { .. }
            | DeviceError::Open { .. }
            | DeviceError::UnknownMemory => Failure::bad_input(message),
            _ => Failure::failed(message),
        }
    }
}

impl From<GraphError> for Failure {
    fn from(error: GraphError) -> Self {
        Failure { is_the_models: true, ..Failure::bad_input(error.to_string()) }
    }
}

impl From<DataError> for Failure {
    fn from(error: DataError) -> Self {
        let is_full = matches!(&error, DataError::Io { source, .. } if matches!(
            source.kind(),
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::ReadOnlyFilesystem
        ));
        if is_full { Failure::unwritten(error.to_string()) } else { Failure::bad_input(error.to_string()) }
    }
}

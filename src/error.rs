//! One error enum per stage. Each message is one lower-case sentence that names what is wrong, where, and what to do.
//!
//! `{}` and `{:?}` print that sentence, so that `fn main() -> Result<(), Box<dyn Error>>` shows it; `{:#?}` prints the variant
//! with its fields.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

use crate::tensor::{Shape, TensorDesc, format_bytes};
pub(crate) use crate::words::{nearest, unknown};

/// An op refuses its inputs or cannot do what is asked of it.
#[derive(Error, Clone, PartialEq)]
#[non_exhaustive]
pub enum OpError {
    /// Wrong number of inputs.
    #[error("{op} takes {expected} inputs, got {found}")]
    InputCount {
        /// The op.
        op: &'static str,
        /// Inputs it takes.
        expected: usize,
        /// Inputs it was given.
        found: usize,
    },
    /// An input's shape or element type does not fit.
    #[error("{op}: `{input}` must be {expected}, found {found}")]
    Input {
        /// The op.
        op: &'static str,
        /// The input's name in the op's documentation.
        input: &'static str,
        /// What would fit, in words.
        expected: String,
        /// What was given.
        found: TensorDesc,
    },
    /// A setting of the op makes no sense for these inputs.
    #[error("{op}: {setting} = {value} is not possible: {reason}")]
    Setting {
        /// The op.
        op: &'static str,
        /// The setting's name.
        setting: &'static str,
        /// Its value.
        value: String,
        /// Why not.
        reason: String,
    },
    /// The op has no backward.
    #[error("{op} has no gradient: keep it out of the path from the parameters to the loss")]
    NotDifferentiable {
        /// The op.
        op: &'static str,
    },
}

/// Building a graph failed.
#[derive(Error, Clone, PartialEq)]
#[non_exhaustive]
pub enum GraphError {
    /// An op refused its inputs.
    #[error("layer `{node}`: {source}")]
    Op {
        /// Name of the node.
        node: String,
        /// What the op said.
        source: OpError,
    },
    /// The loss is not one number.
    #[error("the loss must be one number of shape [1], found {found}")]
    LossShape {
        /// Its shape.
        found: Shape,
    },
    /// A tensor has more elements than kernels can count.
    #[error("layer `{layer}`: {what} of shape {shape} has more than {limit} elements")]
    TooLarge {
        /// Name of the layer.
        layer: String,
        /// Which of its tensors.
        what: String,
        /// Its shape.
        shape: Shape,
        /// Elements that are possible.
        limit: usize,
    },
    /// A model has no parameter that the loss depends on.
    #[error("no parameter reaches the loss: nothing to train")]
    NoParameters,
    /// A layer was asked for something impossible.
    #[error("layer `{layer}`: {reason}")]
    Layer {
        /// Name of the layer.
        layer: String,
        /// Why not, and what to do.
        reason: String,
    },
}

/// A shader could not be prepared. Shaders are part of the crate, so every case is a defect of tightfit.
#[derive(Error, Clone, PartialEq)]
#[non_exhaustive]
pub enum ShaderError {
    /// No such file.
    #[error("shader file `{path}` does not exist")]
    Missing {
        /// Path below `shaders/`.
        path: String,
    },
    /// A directive is malformed.
    #[error("{path}:{line}: {reason}")]
    Directive {
        /// Path below `shaders/`.
        path: String,
        /// Line, from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// naga refused the module.
    #[error("{kernel}: {reason}")]
    Invalid {
        /// The kernel.
        kernel: String,
        /// naga's message.
        reason: String,
    },
}

/// No plan meets the request.
#[derive(Error, Clone, PartialEq)]
#[non_exhaustive]
pub enum PlanError {
    /// The budget is below what any plan needs.
    #[error("{message}")]
    Infeasible {
        /// The budget.
        budget_bytes: u64,
        /// The smallest budget for which a plan was found.
        minimum_budget_bytes: u64,
        /// The tensors live at the peak of that plan: name and bytes, largest first.
        blocking: Vec<(String, u64)>,
        /// The whole story in words.
        message: String,
    },
    /// A setting of the request makes no sense.
    #[error("{0}")]
    Request(String),
    /// A graph could not be built at the size that the plan needs.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// A tensor is larger than the device can bind.
    #[error("`{value}` needs {}: use {advice}", more_than_is_bound(*size_bytes, *limit_bytes))]
    Binding {
        /// The value.
        value: String,
        /// Its size.
        size_bytes: u64,
        /// The limit.
        limit_bytes: u64,
        /// What to use instead.
        advice: String,
    },
    /// A plan that was kept is not one for this training on this device.
    #[error("the plan cannot be used: {0}")]
    Unusable(String),
    /// The independent checker rejected a plan.
    #[error("the plan is not valid: {0}")]
    Invalid(String),
}

/// The host is out of memory, or a limit such as that of `ulimit -v` leaves no more.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error(
    "the host is out of memory: {} could not be reserved; free some, or use less data or a smaller batch",
    format_bytes(*size_bytes)
)]
pub struct HostMemory {
    /// Bytes that were asked for.
    pub size_bytes: u64,
}

/// The device refused or failed.
#[derive(Error, Clone, PartialEq)]
#[non_exhaustive]
pub enum DeviceError {
    /// No adapter at all.
    #[error(
        "no GPU adapter was found: install a Vulkan, Metal or DX12 driver (on Debian without a GPU: mesa-vulkan-drivers), or use `--device cpu`"
    )]
    NoAdapter,
    /// The name or index fits no adapter.
    #[error("no device `{selector}`: choose one of {available}")]
    Unknown {
        /// What was asked for.
        selector: String,
        /// What there is.
        available: String,
    },
    /// The adapter lacks something tightfit needs.
    #[error("`{adapter}` cannot run tightfit: it lacks {missing}; choose another with `--device`")]
    Unsupported {
        /// The adapter.
        adapter: String,
        /// The missing features or limits.
        missing: String,
    },
    /// Opening failed.
    #[error("`{adapter}` could not be opened: {reason}")]
    Open {
        /// The adapter.
        adapter: String,
        /// wgpu's words.
        reason: String,
    },
    /// A budget was to be taken of what is free.
    #[error(
        "how much memory is free is not known, because the driver does not say or no device of this machine was named: state a budget, such as `--budget 4GiB`"
    )]
    UnknownMemory,
    /// An allocation failed.
    #[error(
        "the device is out of memory: `{label}` of {} could not be created; free memory on it or set a smaller `--budget`",
        format_bytes(*size_bytes)
    )]
    OutOfMemory {
        /// The buffer.
        label: String,
        /// Its size.
        size_bytes: u64,
    },
    /// See [`HostMemory`].
    #[error(transparent)]
    HostMemory(#[from] HostMemory),
    /// The device is gone.
    #[error(
        "the device was lost ({reason}), and with it what was not saved: close other programs that use it, or choose another with `--device`"
    )]
    Lost {
        /// The driver's words.
        reason: String,
    },
    /// Work did not end in time.
    #[error("the device did not finish within {seconds} s: it may be hung or shared with a long job")]
    Timeout {
        /// The limit.
        seconds: u64,
    },
    /// wgpu rejected a call: a defect of tightfit.
    #[error("wgpu rejected `{label}`: {reason}")]
    Validation {
        /// What was being done.
        label: String,
        /// wgpu's words.
        reason: String,
    },
    /// A shader did not build.
    #[error(transparent)]
    Shader(#[from] ShaderError),
}

/// A file from outside is not what it should be.
#[derive(Error)]
#[non_exhaustive]
pub enum DataError {
    /// Reading or writing failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// A file that should be there is not.
    #[error("{}: not found; {hint}", path.display())]
    Missing {
        /// The file or folder.
        path: PathBuf,
        /// What to do.
        hint: String,
    },
    /// The contents are wrong.
    #[error("{}: {reason}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// A download failed.
    #[error("download of {url} failed: {reason}")]
    Download {
        /// The address.
        url: String,
        /// Why.
        reason: String,
    },
    /// Two datasets or a dataset and a model do not fit together.
    #[error("{0}")]
    Mismatch(String),
    /// See [`HostMemory`].
    #[error(transparent)]
    HostMemory(#[from] HostMemory),
}

impl DataError {
    /// Says which sample it is that does not fit to others.
    pub(crate) fn of_sample(self, origin: &str) -> Self {
        match self {
            DataError::Mismatch(text) => DataError::Mismatch(format!("{origin}: {text}")),
            error => error,
        }
    }
}

/// A file of another framework could not be read or written.
#[derive(Error)]
#[non_exhaustive]
pub enum ImportError {
    /// See [`DataError`].
    #[error(transparent)]
    Data(#[from] DataError),
    /// The file has something that is not there here.
    #[error("{}: {place}: {reason}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The layer or node: its name, its class or operator, and the version of that.
        place: String,
        /// What is not there, and what to do.
        reason: String,
    },
    /// Weights do not fit a model.
    #[error("the weights do not fit the model: {reason}")]
    Weights {
        /// Which of them, and why not.
        reason: String,
    },
    /// See [`GraphError`].
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// See [`TrainError`].
    #[error(transparent)]
    Train(#[from] TrainError),
}

/// Training cannot go on.
#[derive(Error)]
#[non_exhaustive]
pub enum TrainError {
    /// The loss stopped being a number, or an update made a parameter infinite.
    #[error("{}: the first value that is not finite is {place}; {advice}", what_failed(*step, *loss))]
    NonFinite {
        /// The step, from 1.
        step: u64,
        /// The loss.
        loss: f32,
        /// The layer and value where it first appears.
        place: String,
        /// The last step whose update was applied.
        kept: u64,
        /// What to do, and what the parameters are now.
        advice: String,
    },
    /// Too many steps were skipped one after the other, whatever the loss was multiplied by.
    #[error("the gradients have not been finite for {skipped} steps, {loss_scale}: the first value that is not finite is {place}; \
        lower the learning rate or the loss scale, or mend what has no finite gradient there, such as a root of 0 (parameters are those \
        of step {})", step.saturating_sub(*skipped))]
    NonFiniteGradients {
        /// The step, from 1.
        step: u64,
        /// Steps that were skipped one after the other.
        skipped: u64,
        /// What the loss was multiplied by, in words.
        loss_scale: String,
        /// The layer and value where it first appears.
        place: String,
    },
    /// A setting makes no sense.
    #[error("{0}")]
    Setting(String),
    /// See [`GraphError`].
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// See [`PlanError`].
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// See [`DeviceError`].
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// See [`DataError`].
    #[error(transparent)]
    Data(#[from] DataError),
}

/// Two sizes of which the first is larger, in bytes where they would look alike.
fn more_than_is_bound(size_bytes: u64, limit_bytes: u64) -> String {
    let [size, limit] = [size_bytes, limit_bytes].map(format_bytes);
    let [size, limit] =
        if size == limit { [size_bytes, limit_bytes].map(|bytes| format!("{bytes} bytes")) } else { [size, limit] };
    format!("{size}, but the device binds at most {limit}")
}

fn what_failed(step: u64, loss: f32) -> String {
    if loss.is_finite() { format!("step {step} went wrong") } else { format!("the loss became {loss} at step {step}") }
}

/// `Debug` of errors: what is returned from `main` is printed by it.
macro_rules! debug_as_sentence {
    ($($error:ident: $($variant:ident $(($inner:ident))? $({ $($field:ident),* })?),*;)*) => {$(
        impl fmt::Debug for $error {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                if !f.alternate() {
                    return fmt::Display::fmt(self, f);
                }
                match self {$(
                    $error::$variant $(($inner))? $({ $($field),* })? => f
                        .debug_struct(concat!(stringify!($error), "::", stringify!($variant)))
                        $(.field("0", $inner))?
                        $($(.field(stringify!($field), $field))*)?
                        .finish(),
                )*}
            }
        }
    )*};
}

debug_as_sentence! {
    OpError: InputCount { op, expected, found }, Input { op, input, expected, found }, Setting { op, setting, value, reason }, NotDifferentiable { op };
    GraphError: Op { node, source }, LossShape { found }, TooLarge { layer, what, shape, limit }, NoParameters, Layer { layer, reason };
    ShaderError: Missing { path }, Directive { path, line, reason }, Invalid { kernel, reason };
    PlanError: Infeasible { budget_bytes, minimum_budget_bytes, blocking, message }, Request(inner), Graph(inner), Binding { value, size_bytes, limit_bytes, advice }, Unusable(inner), Invalid(inner);
    DeviceError: NoAdapter, Unknown { selector, available }, UnknownMemory, Unsupported { adapter, missing }, Open { adapter, reason }, OutOfMemory { label, size_bytes }, Lost { reason }, Timeout { seconds }, Validation { label, reason }, Shader(inner), HostMemory(inner);
    DataError: Io { path, source }, Missing { path, hint }, Corrupt { path, reason }, Download { url, reason }, Mismatch(inner), HostMemory(inner);
    ImportError: Data(inner), Unsupported { path, place, reason }, Weights { reason }, Graph(inner), Train(inner);
    TrainError: NonFinite { step, loss, place, kept, advice }, NonFiniteGradients { step, skipped, loss_scale, place }, Setting(inner), Graph(inner), Plan(inner), Device(inner), Data(inner);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_prints_the_sentence_and_the_variant_where_asked() {
        let missing = DataError::Missing { path: "a/b".into(), hint: "fetch it".to_owned() };
        assert_eq!(format!("{missing:?}"), "a/b: not found; fetch it");
        let boxed: Box<dyn std::error::Error> = TrainError::from(missing).into();
        assert_eq!(format!("{boxed:?}"), "a/b: not found; fetch it");
        let full = format!("{boxed:#?}");
        for part in ["TrainError::Data", "DataError::Missing", "path: \"a/b\"", "hint: \"fetch it\""] {
            assert!(full.contains(part), "{part} in {full}");
        }
        // One of each kind: none prints its fields.
        let op = OpError::InputCount { op: "add", expected: 2, found: 1 };
        let shader = ShaderError::Missing { path: "x.wgsl".to_owned() };
        let all: [(String, String); 6] = [
            (format!("{op:?}"), op.to_string()),
            (format!("{shader:?}"), shader.to_string()),
            (format!("{:?}", DeviceError::from(shader.clone())), shader.to_string()),
            (format!("{:?}", DeviceError::NoAdapter), DeviceError::NoAdapter.to_string()),
            (format!("{:?}", GraphError::NoParameters), GraphError::NoParameters.to_string()),
            (format!("{:?}", PlanError::Request("no".to_owned())), "no".to_owned()),
        ];
        for (debug, display) in all {
            assert_eq!(debug, display);
        }
    }
}

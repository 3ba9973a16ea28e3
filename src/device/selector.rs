//! Which device is meant.

use std::fmt;

/// What selects the CPU.
const CPU: &str = "cpu";
/// What selects the reference.
const REFERENCE: &str = "reference";

/// Which device trains.
///
/// ```
/// use tightfit::device::DeviceSelector;
///
/// // What `--device` takes.
/// assert_eq!(DeviceSelector::from("radeon"), DeviceSelector::Name("radeon".to_owned()));
/// assert_eq!(DeviceSelector::from("1"), DeviceSelector::Index(1));
/// assert_eq!(DeviceSelector::from("cpu"), DeviceSelector::Cpu);
/// assert_eq!(DeviceSelector::from("reference"), DeviceSelector::Reference);
/// assert_eq!(DeviceSelector::default(), DeviceSelector::Best);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DeviceSelector {
    /// The best GPU, or the CPU where there is none but drivers that run kernels on the CPU.
    #[default]
    Best,
    /// The one that `tightfit devices` lists at this place, from 0.
    Index(usize),
    /// One whose name holds this.
    Name(String),
    /// The CPU, with native code on all its cores.
    Cpu,
    /// The reference on the CPU: each op in plain Rust, exact and slow.
    Reference,
}

impl DeviceSelector {
    /// What chooses among adapters; `None` for the best.
    pub(crate) fn adapter(&self) -> Option<String> {
        match self {
            DeviceSelector::Best => None,
            DeviceSelector::Index(index) => Some(index.to_string()),
            DeviceSelector::Name(name) => Some(name.clone()),
            DeviceSelector::Cpu => Some(CPU.to_owned()),
            DeviceSelector::Reference => Some(REFERENCE.to_owned()),
        }
    }
}

impl From<&str> for DeviceSelector {
    fn from(text: &str) -> Self {
        match text {
            CPU => DeviceSelector::Cpu,
            REFERENCE => DeviceSelector::Reference,
            _ => text.parse().map_or_else(|_| DeviceSelector::Name(text.to_owned()), DeviceSelector::Index),
        }
    }
}

impl From<&String> for DeviceSelector {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

/// Where nothing is said, the best.
impl From<Option<&str>> for DeviceSelector {
    fn from(text: Option<&str>) -> Self {
        text.map_or(DeviceSelector::Best, Into::into)
    }
}

impl fmt::Display for DeviceSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceSelector::Best => f.write_str("the best device"),
            DeviceSelector::Index(index) => write!(f, "{index}"),
            DeviceSelector::Name(name) => f.write_str(name),
            DeviceSelector::Cpu => f.write_str(CPU),
            DeviceSelector::Reference => f.write_str(REFERENCE),
        }
    }
}

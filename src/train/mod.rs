//! Training: settings, the trainer, weights in files.

mod calibrate;
mod diagnose;
mod machine;
mod report;
mod settings;
mod source;
mod trainer;
mod weights;

pub use calibrate::{Calibration, Extent, OpFit, calibrate};
pub use machine::{Machine, Profile};
pub use report::{Evaluation, FitOptions, FitReport, StepReport};
pub use settings::{Config, Loss, Optimizer};
pub use source::{plan, plan_for};
pub use trainer::Trainer;

//! Training: settings, the trainer, weights in files.

mod diagnose;
mod report;
mod settings;
mod source;
mod trainer;
mod weights;

pub use report::{Evaluation, FitOptions, FitReport, StepReport};
pub use settings::{Config, Loss, Optimizer};
pub use source::plan;
pub use trainer::Trainer;

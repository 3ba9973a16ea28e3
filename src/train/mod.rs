//! Training: settings, the trainer, weights in files.

mod diagnose;
mod settings;
mod source;
mod trainer;
mod weights;

pub use settings::{Config, Loss, Optimizer};
pub use source::plan;
pub use trainer::{Evaluation, FitOptions, FitReport, StepReport, Trainer};

//! Training: settings, the trainer, weights in files.

mod diagnose;
mod explore;
mod plan_file;
mod report;
mod settings;
mod source;
mod trainer;
mod weights;

pub use explore::{MOST_SAMPLES, max_batch, max_length, sweep};
pub use plan_file::PlanFile;
pub use report::{Evaluation, FitOptions, FitReport, StepReport};
pub use settings::{Config, Loss, Optimizer};
pub use source::plan;
pub use trainer::Trainer;
pub use weights::write_whole;

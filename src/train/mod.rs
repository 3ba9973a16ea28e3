//! Training: settings, the trainer, weights in files.

mod calibrate;
mod diagnose;
mod explore;
mod machine;
mod metrics;
mod plan_file;
mod report;
mod settings;
mod source;
mod state;
mod summary;
mod trainer;
mod weights;

pub use calibrate::{Calibration, Extent, OpFit, calibrate};
pub use explore::{MOST_SAMPLES, max_batch, max_length, sweep};
pub use machine::{Machine, Profile};
pub use metrics::iou;
pub use plan_file::PlanFile;
pub use report::{Evaluation, FitOptions, FitReport, StepReport};
pub use settings::{Config, Loss, Optimizer};
pub use source::{plan, plan_for};
pub use summary::{Summary, SummaryRow, summary};
pub use trainer::Trainer;
pub use weights::write_whole;

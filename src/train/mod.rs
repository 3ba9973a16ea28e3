//! Training: settings, the trainer, weights in files.

mod calibrate;
mod diagnose;
mod evaluate;
mod explore;
mod groups;
mod loss;
mod machine;
mod metrics;
mod optimizer;
mod plan_file;
mod profile;
mod report;
mod settings;
mod source;
mod state;
mod summary;
mod trainer;
mod tune;
mod weights;

pub use calibrate::{Calibration, Extent, OpFit, calibrate};
pub use explore::{MOST_SAMPLES, max_batch, max_length, sweep};
pub use groups::Group;
pub use loss::Loss;
pub use machine::{Machine, Profile};
pub use metrics::iou;
pub use optimizer::Optimizer;
pub use plan_file::PlanFile;
pub use report::{Evaluation, FitOptions, FitReport, StepReport};
pub use settings::Config;
pub use source::{plan, plan_for};
pub use summary::{Summary, SummaryRow, summary};
pub use trainer::Trainer;
pub use tune::Tuned;
pub use weights::Loaded;

//! Training: the [`Trainer`] with its settings ([`Config`]), losses and optimizers; planning without training ([`plan_for`],
//! [`sweep`], [`max_batch`]); weights and plans in files; and measuring a device ([`calibrate()`]).

mod advice;
mod calibrate;
mod device_profile;
mod diagnose;
mod evaluate;
mod explore;
mod fed;
mod foreign;
mod groups;
mod history;
mod log;
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
mod trace;
mod trainer;
mod tune;
mod weights;

pub use advice::warnings;
pub use calibrate::{Calibration, Effort, OpFit, calibrate, calibrate_once};
pub use device_profile::Profile;
pub use explore::{MOST_SAMPLES, max_batch, max_length, sweep};
pub use fed::check_data;
pub use groups::Group;
pub use history::{Curve, CurvePoint, EpochRecord, History, Mode};
pub use loss::{Loss, LossKind};
pub use machine::{CostSource, Machine};
pub use metrics::iou;
pub use optimizer::{Optimizer, OptimizerKind};
pub use plan_file::PlanFile;
pub use report::{Evaluation, FitOptions, FitReport, StepReport};
pub use settings::Config;
pub use source::{plan, plan_for};
pub use summary::{Summary, SummaryRow, summary};
pub use trace::save_trace;
pub use trainer::Trainer;
pub use tune::Tuned;
pub use weights::Loaded;

// Not the crate of this name.
pub use self::log::{CsvLog, JsonlLog, Log, TensorBoardLog};

//! Training: the [`Trainer`] with its settings ([`Config`]), losses, optimizers, schedules and metrics; planning without training ([`plan_for`],
//! [`sweep`], [`max_batch`]); weights and plans in files; and measuring a device ([`calibrate()`]).

mod advice;
mod advise;
mod backend;
mod calibrate;
mod callbacks;
mod checkpoint;
mod checkpoints;
mod criterion;
mod device_profile;
mod diagnose;
mod evaluate;
mod explore;
mod fed;
mod foreign;
mod groups;
mod history;
mod host;
mod log;
mod loss;
mod loss_scale;
mod machine;
mod metrics;
mod monitor;
mod objective;
mod optimizer;
mod plan_file;
mod precision;
mod preprocessing;
mod processor;
mod profile;
mod report;
mod run;
mod schedule;
mod settings;
pub(crate) mod source;
mod state;
mod summary;
mod tally;
mod trace;
mod trainer;
mod tune;
mod weights;

pub use crate::autodiff::Clip;
pub use crate::device::DeviceSelector;
pub use crate::exec::Cpu;
pub use advice::warnings;
pub use advise::{Advice, Effect, LargeTensor, MemoryUse, Remedy, advise};
pub use backend::Backend;
pub use calibrate::{Calibration, Effort, OpFit, calibrate, calibrate_once};
pub use callbacks::{Callback, CallbackState, Logger, LowerOnPlateau, StopEarly, Unfreeze};
pub use checkpoint::Checkpoint;
pub use checkpoints::Checkpoints;
pub use criterion::{Criterion, CustomLoss};
pub use device_profile::Profile;
pub use explore::{MOST_SAMPLES, max_batch, max_length, sweep};
pub use fed::check_data;
pub use groups::Group;
pub use history::{Curve, CurvePoint, EpochRecord, History};
pub use loss::{Loss, LossKind};
pub use loss_scale::LossScale;
pub use machine::{CostSource, Machine};
pub use metrics::{
    Average, CustomMetric, Format, Metric, MetricEntry, MetricKind, MetricValue, MultiOutput, Sample, Scores, Target,
    higher_is_better,
};
pub use monitor::{
    Best, EarlyStopping, EarlyStoppingState, Monitor, MonitorMode, PlateauState, ReduceOnPlateau, ThresholdMode,
    Verdict,
};
pub use objective::Head;
pub use optimizer::{Optimizer, OptimizerKind};
pub use plan_file::PlanFile;
pub use precision::{LayerPrecision, Precision};
pub use preprocessing::Preprocessing;
pub use processor::Processor;
pub use report::{EpochReport, Evaluation, FitOptions, FitReport, StepReport};
pub use schedule::{Anneal, CustomSchedule, Length, LrSchedule, Schedule, ScheduleKind, Warmup};
pub use settings::{Config, CustomRule};
pub use source::{plan, plan_for};
pub use summary::{Summary, SummaryRow, summary};
pub use trace::save_trace;
pub use trainer::{Gradients, LrCurve, LrRange, Prediction, Recovery, Replan, StepOutcome, Trainer};
pub use tune::Tuned;
pub use weights::Loaded;

// Not the crate of this name.
pub use self::log::{CsvLog, JsonlLog, Log, TensorBoardLog};

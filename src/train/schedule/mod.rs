//! How the learning rate changes from step to step.

mod check;
mod custom;
mod factor;
mod length;
mod registry;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use serde::de::value::{MapAccessDeserializer, MapDeserializer};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use custom::CustomSchedule;
pub use length::{Length, Warmup};
pub use registry::ScheduleKind;

/// How the learning rate changes: a pure function of the step, so that it needs no state of its own.
///
/// [`Schedule`] has the usual ones. Another is a type that implements this, which [`Schedule::custom`] makes one of them:
///
/// ```
/// use tightfit::train::{Config, Length, LrSchedule, Schedule};
///
/// /// Shrinks as the inverse of the square root of the step.
/// #[derive(Debug)]
/// struct InverseSqrt;
///
/// impl LrSchedule for InverseSqrt {
///     fn factor(&self, step: u64, _total_steps: u64) -> f64 {
///         1.0 / ((step + 1) as f64).sqrt()
///     }
/// }
///
/// assert_eq!(InverseSqrt.factor(3, 100), 0.5);
/// let schedule = Schedule::custom(InverseSqrt).with_warmup(Length::Epochs(1.0), 0.1);
/// let config = Config::default().schedule(schedule);
/// # let _ = config;
/// ```
pub trait LrSchedule: fmt::Debug + Send + Sync {
    /// What the optimizer's learning rate is multiplied by at a step. Steps count from 0, the first update; `total_steps` is
    /// how many the whole training has, in a loop of one's own the largest number. Later steps are no error: a training may be longer than it was meant to be.
    fn factor(&self, step: u64, total_steps: u64) -> f64;
}

/// The usual schedules, with the names, formulas and defaults of `torch.optim.lr_scheduler` where it has them.
///
/// A file writes one as a name, `schedule = "cosine"`, or with settings as a table:
///
/// ```toml
/// [schedule]
/// kind = "cosine"
/// warmup = "2 epochs"
/// end_factor = 0.01
/// ```
///
/// All factors are shares of the optimizer's learning rate. A [`Length`] is a number of steps, or text such as `"3 epochs"`;
/// where none is given it is the rest of the training, after the warm-up. Each but one-cycle and a sequence may begin with a
/// [`Warmup`], after which its own steps count from 0.
///
/// Below, `t` is the step, counted so, and `T` the length.
///
/// ```
/// use tightfit::train::{Length, LrSchedule, Schedule};
///
/// let schedule = Schedule::cosine().with_warmup(Length::Epochs(1.0), 0.1);
/// // At 10 steps an epoch.
/// let schedule = schedule.resolve(10);
/// assert_eq!(schedule.factor(0, 110), 0.1);
/// assert_eq!(schedule.factor(10, 110), 1.0);
/// assert_eq!(schedule.factor(60, 110), 0.5);
/// ```
///
/// Source: <https://docs.pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate>
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Schedule {
    /// Always 1, PyTorch's `ConstantLR` without a change.
    Constant {
        /// What comes first.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        warmup: Option<Warmup>,
    },
    /// A straight line, `LinearLR`: `start + (end − start) · min(t, T) / T`.
    Linear {
        /// Factor of the first step.
        #[serde(default = "default::one")]
        start_factor: f64,
        /// Factor from step `T` on.
        #[serde(default)]
        end_factor: f64,
        /// `T`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        length: Option<Length>,
        /// What comes first.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        warmup: Option<Warmup>,
    },
    /// A stair, `StepLR`: `gamma^⌊t / step_size⌋`.
    Step {
        /// Steps from one change to the next.
        step_size: Length,
        /// Factor of each change.
        #[serde(default = "default::gamma")]
        gamma: f64,
        /// What comes first.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        warmup: Option<Warmup>,
    },
    /// A stair with steps of any width, `MultiStepLR`: `gamma^n`, where `n` milestones are at or before `t`.
    MultiStep {
        /// When it changes, in rising order.
        milestones: Vec<Length>,
        /// Factor of each change.
        #[serde(default = "default::gamma")]
        gamma: f64,
        /// What comes first.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        warmup: Option<Warmup>,
    },
    /// Exponential decay, `ExponentialLR`: `gamma^(t / interval)`, smooth where an interval is more than one step.
    Exponential {
        /// Factor of each interval.
        gamma: f64,
        /// In which time it shrinks so.
        #[serde(default = "default::one_epoch")]
        interval: Length,
        /// What comes first.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        warmup: Option<Warmup>,
    },
    /// A power of the rest, `PolynomialLR`: `end + (1 − end) · (1 − min(t, T) / T)^power`.
    Polynomial {
        /// 1 is a straight line.
        #[serde(default = "default::one")]
        power: f64,
        /// Factor from step `T` on.
        #[serde(default)]
        end_factor: f64,
        /// `T`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        length: Option<Length>,
        /// What comes first.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        warmup: Option<Warmup>,
    },
    /// Half a wave, `CosineAnnealingLR`: `end + (1 − end) · (1 + cos(π · min(t, T) / T)) / 2`. After `T` it stays where it is,
    /// and does not rise again as PyTorch's does.
    Cosine {
        /// Factor from step `T` on: PyTorch's `eta_min`, as a share.
        #[serde(default)]
        end_factor: f64,
        /// `T`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        length: Option<Length>,
        /// What comes first.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        warmup: Option<Warmup>,
    },
    /// One half of a wave after the other, `CosineAnnealingWarmRestarts`: the first takes `t_0` steps, each later one `t_mult`
    /// times as many as the one before. In one of `T` steps: `end + (1 − end) · (1 + cos(π · t / T)) / 2`.
    CosineRestarts {
        /// Length of the first.
        t_0: Length,
        /// How much longer each is than the one before.
        #[serde(default = "default::one_time")]
        t_mult: u64,
        /// What each falls to: PyTorch's `eta_min`, as a share.
        #[serde(default)]
        end_factor: f64,
        /// What comes first.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        warmup: Option<Warmup>,
    },
    /// Up and down again, `OneCycleLR`: from `max_factor / div_factor` to `max_factor` in the first `pct_start · T` steps, then
    /// down to `max_factor / div_factor / final_div_factor` at step `T − 1`. The momentum stays as it is.
    OneCycle {
        /// The highest factor: with 1, the optimizer's learning rate is PyTorch's `max_lr`.
        #[serde(default = "default::one")]
        max_factor: f64,
        /// Share of the steps on the way up.
        #[serde(default = "default::pct_start")]
        pct_start: f64,
        /// How much lower it begins.
        #[serde(default = "default::div_factor")]
        div_factor: f64,
        /// How much lower than at the beginning it is at the end.
        #[serde(default = "default::final_div_factor")]
        final_div_factor: f64,
        /// The form of its parts.
        #[serde(default)]
        anneal_strategy: Anneal,
        /// Whether it falls to where it began, as long as it rose, and only then to the end.
        #[serde(default)]
        three_phase: bool,
        /// `T`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        length: Option<Length>,
    },
    /// One schedule after the other, `SequentialLR`: each counts its steps from 0, and its length is up to the next milestone.
    Sequence {
        /// What runs.
        schedules: Vec<Schedule>,
        /// When the second and each later one begins, in rising order.
        milestones: Vec<Length>,
    },
    /// One of one's own: see [`LrSchedule`]. No file holds it, and a checkpoint the step alone: a program that goes on from one
    /// brings the same schedule.
    #[serde(skip_deserializing)]
    Custom {
        /// It. Its steps count from the end of the warm-up, and so do those of the whole training.
        schedule: CustomSchedule,
        /// What comes first.
        #[serde(skip_serializing_if = "Option::is_none")]
        warmup: Option<Warmup>,
    },
}

/// How a one-cycle schedule goes from one factor to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Anneal {
    /// Half a wave of a cosine.
    #[default]
    Cos,
    /// A straight line.
    Linear,
}

mod default {
    use super::Length;

    pub(super) fn one() -> f64 {
        1.0
    }
    pub(super) fn one_time() -> u64 {
        1
    }
    pub(super) fn one_epoch() -> Length {
        Length::Epochs(1.0)
    }
    pub(super) fn gamma() -> f64 {
        0.1
    }
    pub(super) fn pct_start() -> f64 {
        0.3
    }
    pub(super) fn div_factor() -> f64 {
        25.0
    }
    pub(super) fn final_div_factor() -> f64 {
        1e4
    }
}

impl Default for Schedule {
    fn default() -> Self {
        Schedule::constant()
    }
}

/// As files write it, without its settings.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}

impl<'de> Deserialize<'de> for Schedule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrTable;
        impl<'de> Visitor<'de> for NameOrTable {
            type Value = Schedule;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a schedule or a table with its kind")
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Schedule, E> {
                Schedule::deserialize(MapDeserializer::new([("kind", name)].into_iter()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Schedule, A::Error> {
                Schedule::deserialize(MapAccessDeserializer::new(map))
            }
        }
        deserializer.deserialize_any(NameOrTable)
    }
}

impl Serialize for Schedule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Schedule::serialize(self, serializer)
    }
}

impl Schedule {
    /// Always the optimizer's learning rate.
    pub fn constant() -> Self {
        Schedule::Constant { warmup: None }
    }

    /// A straight line from the optimizer's learning rate to 0.
    pub fn linear() -> Self {
        Schedule::Linear { start_factor: 1.0, end_factor: 0.0, length: None, warmup: None }
    }

    /// `gamma` times the learning rate every `step_size`.
    pub fn step(step_size: Length, gamma: f64) -> Self {
        Schedule::Step { step_size, gamma, warmup: None }
    }

    /// `gamma` times the learning rate at each milestone.
    pub fn multi_step(milestones: impl Into<Vec<Length>>, gamma: f64) -> Self {
        Schedule::MultiStep { milestones: milestones.into(), gamma, warmup: None }
    }

    /// `gamma` times the learning rate in each interval, smoothly.
    pub fn exponential(gamma: f64, interval: Length) -> Self {
        Schedule::Exponential { gamma, interval, warmup: None }
    }

    /// A power of what is left of the training.
    pub fn polynomial(power: f64) -> Self {
        Schedule::Polynomial { power, end_factor: 0.0, length: None, warmup: None }
    }

    /// Half a wave from the optimizer's learning rate to 0.
    pub fn cosine() -> Self {
        Schedule::Cosine { end_factor: 0.0, length: None, warmup: None }
    }

    /// Half a wave to 0 again and again, each `t_mult` times as long as the one before.
    pub fn cosine_restarts(t_0: Length, t_mult: u64) -> Self {
        Schedule::CosineRestarts { t_0, t_mult, end_factor: 0.0, warmup: None }
    }

    /// Up to the optimizer's learning rate and down again, with PyTorch's defaults.
    pub fn one_cycle() -> Self {
        Schedule::OneCycle {
            max_factor: 1.0,
            pct_start: default::pct_start(),
            div_factor: default::div_factor(),
            final_div_factor: default::final_div_factor(),
            anneal_strategy: Anneal::Cos,
            three_phase: false,
            length: None,
        }
    }

    /// One schedule after the other: the second and each later one begins at its milestone.
    pub fn sequence(schedules: impl Into<Vec<Schedule>>, milestones: impl Into<Vec<Length>>) -> Self {
        Schedule::Sequence { schedules: schedules.into(), milestones: milestones.into() }
    }

    /// One of one's own. A built-in one stays what it is.
    pub fn custom(schedule: impl LrSchedule + 'static) -> Self {
        let any: &dyn Any = &schedule;
        if let Some(schedule) = any.downcast_ref::<Schedule>() {
            return schedule.clone();
        }
        Schedule::Custom { schedule: CustomSchedule(Arc::new(schedule)), warmup: None }
    }

    /// The same after a warm-up, in which the factor rises from `start_factor` to 1. One-cycle stays as it is, for it has one of
    /// its own, and a sequence has that of its first schedule.
    #[must_use]
    pub fn with_warmup(mut self, length: Length, start_factor: f64) -> Self {
        match &mut self {
            Schedule::Constant { warmup }
            | Schedule::Linear { warmup, .. }
            | Schedule::Step { warmup, .. }
            | Schedule::MultiStep { warmup, .. }
            | Schedule::Exponential { warmup, .. }
            | Schedule::Polynomial { warmup, .. }
            | Schedule::Cosine { warmup, .. }
            | Schedule::CosineRestarts { warmup, .. }
            | Schedule::Custom { warmup, .. } => *warmup = Some(Warmup { length, start_factor }),
            Schedule::Sequence { schedules, .. } => {
                if let Some(first) = schedules.first_mut() {
                    *first = std::mem::take(first).with_warmup(length, start_factor);
                }
            }
            Schedule::OneCycle { .. } => {}
        }
        self
    }

    /// What comes before it.
    pub fn warmup(&self) -> Option<Warmup> {
        match self {
            Schedule::Constant { warmup }
            | Schedule::Linear { warmup, .. }
            | Schedule::Step { warmup, .. }
            | Schedule::MultiStep { warmup, .. }
            | Schedule::Exponential { warmup, .. }
            | Schedule::Polynomial { warmup, .. }
            | Schedule::Cosine { warmup, .. }
            | Schedule::CosineRestarts { warmup, .. }
            | Schedule::Custom { warmup, .. } => *warmup,
            Schedule::OneCycle { .. } | Schedule::Sequence { .. } => None,
        }
    }

    /// The same with all lengths in steps: see [`Length::steps`]. A schedule that was not resolved takes an epoch for one step.
    #[must_use]
    pub fn resolve(&self, steps_per_epoch: u64) -> Self {
        let mut resolved = self.clone();
        resolved.resolve_in_place(steps_per_epoch);
        resolved
    }

    fn resolve_in_place(&mut self, steps_per_epoch: u64) {
        let resolve = |length: &mut Length| *length = Length::Steps(length.steps(steps_per_epoch));
        match self {
            Schedule::Constant { .. } | Schedule::Custom { .. } => {}
            Schedule::Linear { length, .. }
            | Schedule::Polynomial { length, .. }
            | Schedule::Cosine { length, .. }
            | Schedule::OneCycle { length, .. } => length.iter_mut().for_each(resolve),
            Schedule::Step { step_size: length, .. }
            | Schedule::Exponential { interval: length, .. }
            | Schedule::CosineRestarts { t_0: length, .. } => resolve(length),
            Schedule::MultiStep { milestones, .. } => milestones.iter_mut().for_each(resolve),
            Schedule::Sequence { schedules, milestones } => {
                milestones.iter_mut().for_each(resolve);
                schedules.iter_mut().for_each(|schedule| schedule.resolve_in_place(steps_per_epoch));
            }
        }
        if let Some(Warmup { length, start_factor }) = self.warmup() {
            let length = Length::Steps(length.steps(steps_per_epoch));
            *self = std::mem::take(self).with_warmup(length, start_factor);
        }
    }
}

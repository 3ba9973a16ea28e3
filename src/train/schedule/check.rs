//! Whether the settings of a schedule make sense.

use super::{Length, Schedule};
use crate::error::TrainError;

impl Schedule {
    /// Whether the settings make sense.
    ///
    /// # Errors
    /// Where one does not.
    pub fn check(&self) -> Result<(), TrainError> {
        let refuse =
            |reason: String| Err(TrainError::Setting(format!("the schedule {self} is not possible: {reason}")));
        match self.wrong() {
            Some(reason) => refuse(reason),
            None => match self {
                Schedule::Sequence { schedules, .. } => schedules.iter().try_for_each(Schedule::check),
                _ => Ok(()),
            },
        }
    }

    /// What a loop of one's own does not tell it: how long the whole training is, or an epoch.
    ///
    /// # Errors
    /// Where it must know.
    pub(in crate::train) fn check_closed(&self) -> Result<(), TrainError> {
        let refuse = |reason: &str| Err(TrainError::Setting(format!("the schedule {self} {reason}")));
        if self.is_of_all_steps() {
            return refuse("goes over all steps of a fit: in a loop of one's own set its length in steps");
        }
        if self.resolve(2) != self.resolve(3) {
            return refuse("has lengths in epochs, which only a fit knows: in a loop of one's own set them in steps");
        }
        Ok(())
    }

    fn is_of_all_steps(&self) -> bool {
        match self {
            Schedule::Linear { length, .. }
            | Schedule::Polynomial { length, .. }
            | Schedule::Cosine { length, .. }
            | Schedule::OneCycle { length, .. } => length.is_none(),
            // All others end where the next begins.
            Schedule::Sequence { schedules, .. } => schedules.last().is_some_and(Schedule::is_of_all_steps),
            Schedule::Constant { .. }
            | Schedule::Step { .. }
            | Schedule::MultiStep { .. }
            | Schedule::Exponential { .. }
            | Schedule::CosineRestarts { .. }
            | Schedule::Custom { .. } => false,
        }
    }

    /// What is wrong with its own settings.
    fn wrong(&self) -> Option<String> {
        if let Some(warmup) = self.warmup() {
            if !warmup.length.is_possible() {
                return Some(format!("warmup of {} is no length", warmup.length));
            }
            if let Some(wrong) = not_a_factor("start_factor of the warm-up", warmup.start_factor) {
                return Some(wrong);
            }
        }
        let optional = |length: &Option<Length>| length.and_then(|length| not_a_period("length", length));
        match self {
            Schedule::Constant { .. } | Schedule::Custom { .. } => None,
            Schedule::Linear { start_factor, end_factor, length, .. } => not_a_factor("start_factor", *start_factor)
                .or_else(|| not_a_factor("end_factor", *end_factor))
                .or_else(|| optional(length)),
            Schedule::Step { step_size, gamma, .. } => {
                not_a_period("step_size", *step_size).or_else(|| not_positive("gamma", *gamma))
            }
            Schedule::MultiStep { milestones, gamma, .. } => {
                not_rising(milestones).or_else(|| not_positive("gamma", *gamma))
            }
            Schedule::Exponential { gamma, interval, .. } => {
                not_positive("gamma", *gamma).or_else(|| not_a_period("interval", *interval))
            }
            Schedule::Polynomial { power, end_factor, length, .. } => not_positive("power", *power)
                .or_else(|| not_a_factor("end_factor", *end_factor))
                .or_else(|| optional(length)),
            Schedule::Cosine { end_factor, length, .. } => {
                not_a_factor("end_factor", *end_factor).or_else(|| optional(length))
            }
            Schedule::CosineRestarts { t_0, t_mult, end_factor, .. } => not_a_period("t_0", *t_0)
                .or_else(|| (*t_mult == 0).then(|| "t_mult = 0, but it must be 1 or more".to_owned()))
                .or_else(|| not_a_factor("end_factor", *end_factor)),
            Schedule::OneCycle { max_factor, pct_start, div_factor, final_div_factor, three_phase, length, .. } => {
                let most = if *three_phase { 0.5 } else { 1.0 };
                let wrong_share = || {
                    (!(0.0..=most).contains(pct_start)).then(|| {
                        let phases = if *three_phase { " with three phases" } else { "" };
                        format!("pct_start = {pct_start:?}, but{phases} it must be in 0..={most:?}")
                    })
                };
                not_positive("max_factor", *max_factor)
                    .or_else(wrong_share)
                    .or_else(|| not_positive("div_factor", *div_factor))
                    .or_else(|| not_positive("final_div_factor", *final_div_factor))
                    .or_else(|| optional(length))
            }
            Schedule::Sequence { schedules, milestones } => {
                if schedules.is_empty() || milestones.len() + 1 != schedules.len() {
                    let (schedules, milestones) = (schedules.len(), milestones.len());
                    return Some(format!(
                        "it has {schedules} schedules and {milestones} milestones: all schedules but the first need one"
                    ));
                }
                not_rising(milestones)
            }
        }
    }
}

fn not_a_factor(name: &str, value: f64) -> Option<String> {
    let is_possible = value.is_finite() && value >= 0.0;
    (!is_possible).then(|| format!("{name} = {value:?}, but it must be 0 or more and finite"))
}

fn not_positive(name: &str, value: f64) -> Option<String> {
    let is_possible = value.is_finite() && value > 0.0;
    (!is_possible).then(|| format!("{name} = {value:?}, but it must be above 0 and finite"))
}

fn not_a_period(name: &str, length: Length) -> Option<String> {
    let is_possible = length.is_possible() && !length.is_zero();
    (!is_possible).then(|| format!("{name} = {length}, but it must be longer than nothing"))
}

/// Milestones in steps and in epochs can be compared only when they are resolved.
fn not_rising(milestones: &[Length]) -> Option<String> {
    if let Some(wrong) = milestones.iter().find(|milestone| !milestone.is_possible()) {
        return Some(format!("milestone {wrong} is no length"));
    }
    let later = |pair: &[Length]| match (pair[0], pair[1]) {
        (Length::Steps(a), Length::Steps(b)) => a < b,
        (Length::Epochs(a), Length::Epochs(b)) => a < b,
        _ => true,
    };
    let pair = milestones.windows(2).find(|pair| !later(pair))?;
    Some(format!("milestone {} is not before {}, the next one", pair[0], pair[1]))
}

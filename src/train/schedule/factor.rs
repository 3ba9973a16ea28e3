//! The factors of schedules.

use std::f64::consts::PI;

use super::{Anneal, Length, LrSchedule, Schedule};

impl LrSchedule for Schedule {
    fn factor(&self, step: u64, total_steps: u64) -> f64 {
        let warmup = self.warmup().map_or(0, |warmup| warmup.length.steps(1));
        if let Some(warmup_settings) = self.warmup()
            && step < warmup
        {
            let start = warmup_settings.start_factor;
            return start + (1.0 - start) * (step as f64 / warmup as f64);
        }
        self.after_warmup(step - warmup, total_steps.saturating_sub(warmup))
    }
}

impl Schedule {
    /// The factor at a step that counts from the end of the warm-up, of so many steps that are left after it.
    fn after_warmup(&self, step: u64, rest: u64) -> f64 {
        let whole = |length: &Option<Length>| length.map_or(rest, |length| length.steps(1)).max(1);
        // How far a schedule of this length is, from 0 to 1.
        let progress = |length: &Option<Length>| step.min(whole(length)) as f64 / whole(length) as f64;
        match self {
            Schedule::Constant { .. } => 1.0,
            Schedule::Linear { start_factor, end_factor, length, .. } => {
                start_factor + (end_factor - start_factor) * progress(length)
            }
            Schedule::Step { step_size, gamma, .. } => libm::pow(*gamma, (step / step_size.steps(1).max(1)) as f64),
            Schedule::MultiStep { milestones, gamma, .. } => {
                let passed = milestones.iter().filter(|milestone| milestone.steps(1) <= step).count();
                libm::pow(*gamma, passed as f64)
            }
            Schedule::Exponential { gamma, interval, .. } => {
                libm::pow(*gamma, step as f64 / interval.steps(1).max(1) as f64)
            }
            Schedule::Polynomial { power, end_factor, length, .. } => {
                end_factor + (1.0 - end_factor) * libm::pow(1.0 - progress(length), *power)
            }
            Schedule::Cosine { end_factor, length, .. } => cosine(1.0, *end_factor, progress(length)),
            Schedule::CosineRestarts { t_0, t_mult, end_factor, .. } => {
                cosine(1.0, *end_factor, progress_of_restart(step, t_0.steps(1).max(1), *t_mult))
            }
            Schedule::Custom { schedule, .. } => schedule.0.factor(step, rest),
            Schedule::OneCycle { length, .. } => self.one_cycle_factor(step, whole(length)),
            Schedule::Sequence { schedules, milestones } => {
                let starts = || std::iter::once(0).chain(milestones.iter().map(|milestone| milestone.steps(1)));
                let ends = starts().skip(1).chain([rest]);
                let parts = schedules.iter().zip(starts().zip(ends));
                let running = parts.take_while(|(_, (start, _))| *start <= step).last();
                running.map_or(1.0, |(schedule, (start, end))| schedule.factor(step - start, end.saturating_sub(start)))
            }
        }
    }

    /// That of a one-cycle schedule of so many steps.
    fn one_cycle_factor(&self, step: u64, steps: u64) -> f64 {
        let Schedule::OneCycle {
            max_factor,
            pct_start,
            div_factor,
            final_div_factor,
            anneal_strategy,
            three_phase,
            ..
        } = self
        else {
            return 1.0;
        };
        let (start, last) = (max_factor / div_factor, (steps - 1) as f64);
        let least = start / final_div_factor;
        let top = pct_start * steps as f64 - 1.0;
        // Where each part ends, and the factor there.
        let parts = if *three_phase {
            vec![(top, *max_factor), (2.0 * pct_start * steps as f64 - 2.0, start), (last, least)]
        } else {
            vec![(top, *max_factor), (last, least)]
        };
        let step = (step as f64).min(last);
        let (mut begin, mut from) = (0.0, start);
        for (end, to) in parts {
            if step <= end {
                let progress = if end > begin { (step - begin) / (end - begin) } else { 1.0 };
                return match anneal_strategy {
                    Anneal::Cos => cosine(from, to, progress),
                    Anneal::Linear => from + (to - from) * progress,
                };
            }
            (begin, from) = (end, to);
        }
        least
    }
}

/// Half a wave between two factors.
fn cosine(from: f64, to: f64, progress: f64) -> f64 {
    to + (from - to) / 2.0 * (1.0 + libm::cos(PI * progress))
}

/// How far the wave is that runs at this step, from 0 to 1.
fn progress_of_restart(step: u64, first: u64, growth: u64) -> f64 {
    if growth <= 1 {
        return (step % first) as f64 / first as f64;
    }
    let (mut begin, mut length) = (0u64, first);
    while step - begin >= length {
        begin += length;
        // A wave that is longer than can be counted does not end.
        length = length.saturating_mul(growth);
    }
    (step - begin) as f64 / length as f64
}

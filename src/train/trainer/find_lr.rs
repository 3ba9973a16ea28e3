//! Which learning rate to begin with.

use std::thread;

use super::Trainer;
use crate::data::{DataLoader, EpochOptions};
use crate::error::TrainError;
use crate::tensor::plural;

/// Each loss is averaged with those before it by this share.
const SMOOTHING: f64 = 0.9;
/// A loss that is so many times the best so far diverges.
const DIVERGES: f64 = 4.0;

/// A fall is clear from so many times the scatter of losses on: that of smoothed losses without a fall is below it.
const CLEAR: f64 = 2.0;

/// How a learning rate is looked for: it rises exponentially from one end to the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LrRange {
    /// The first.
    pub min_lr: f64,
    /// The last.
    pub max_lr: f64,
    /// Steps from the one to the other.
    pub steps: u64,
}

impl Default for LrRange {
    fn default() -> Self {
        LrRange { min_lr: 1e-7, max_lr: 1.0, steps: 100 }
    }
}

/// What a search for a learning rate found.
#[derive(Clone, Debug, PartialEq)]
pub struct LrCurve {
    /// Learning rates and smoothed losses, up to where the loss diverged.
    pub points: Vec<(f64, f64)>,
    /// Where the loss falls fastest; none where it does not clearly fall.
    pub suggestion: Option<f64>,
}

/// Learning rates with smoothed losses, and the losses as they were.
type Risen = (Vec<(f64, f64)>, Vec<f64>);

impl Trainer {
    /// Trains some steps at a learning rate that rises from step to step, and says at which the loss falls fastest. All is put back
    /// afterwards: parameters, optimizer state, steps. It takes a copy of them in host memory.
    ///
    /// Losses are smoothed, `s ← 0.9 s + 0.1 loss`, without the bias of the beginning. The search ends where one is four times the
    /// best. The slope is that over a tenth of the points, by the logarithm of the learning rate, and the first tenth does not count.
    ///
    /// A fall by chance is no suggestion: from some point after the first tenth to a later one, the smoothed loss must fall by more
    /// than twice the median difference between the losses of two steps one after the other.
    ///
    /// Source: <https://arxiv.org/abs/1506.01186>
    ///
    /// # Errors
    /// As [`Trainer::fit`], and where the range is none.
    pub fn find_lr<'d>(&mut self, data: impl Into<DataLoader<'d>>, range: LrRange) -> Result<LrCurve, TrainError> {
        self.find_lr_while(data, range, |_, _| true)
    }

    /// As [`find_lr`](Self::find_lr), for as long as `go_on` says so: it is told the learning rate of each step and the smoothed loss.
    /// Where it stops, the curve is what was found until then.
    ///
    /// # Errors
    /// As [`find_lr`](Self::find_lr).
    pub fn find_lr_while<'d>(
        &mut self,
        data: impl Into<DataLoader<'d>>,
        range: LrRange,
        mut go_on: impl FnMut(f64, f64) -> bool,
    ) -> Result<LrCurve, TrainError> {
        let LrRange { min_lr, max_lr, steps } = range;
        if !(min_lr > 0.0 && min_lr < max_lr && max_lr.is_finite() && steps >= 2) {
            return Err(TrainError::Setting(format!(
                "a learning rate cannot be looked for from {min_lr:e} to {max_lr:e} in {}: it must rise from above 0, in 2 or more",
                plural(steps as usize, "step")
            )));
        }
        let before = (self.snapshot.take(), self.schedule.take(), self.lr_scale);
        let state = self.state(None);
        self.take_snapshot(state.clone(), std::collections::BTreeMap::new())?;
        self.lr_scale = 1.0;
        let found = self.rise(&data.into(), range, &mut go_on);
        let snapshot = self.snapshot.take().expect("bug: it was taken");
        for (name, bytes) in &snapshot.tensors {
            self.executor.write(name, bytes)?;
        }
        self.take_up(&state);
        (self.snapshot, self.schedule, self.lr_scale) = before;
        let (points, losses) = found?;
        let suggestion = steepest(&points, scatter(&losses));
        Ok(LrCurve { points, suggestion })
    }

    fn rise(
        &mut self,
        data: &DataLoader<'_>,
        range: LrRange,
        go_on: &mut dyn FnMut(f64, f64) -> bool,
    ) -> Result<Risen, TrainError> {
        let (mut points, mut losses, mut smooth, mut best) = (Vec::new(), Vec::new(), 0.0, f64::INFINITY);
        let growth = (range.max_lr / range.min_lr).ln() / (range.steps - 1) as f64;
        let mut step = 0;
        let mut stream = None;
        for epoch in 0.. {
            let options =
                EpochOptions { drop_last: true, stream: stream.take(), ..EpochOptions::new(self.config.batch) };
            let options = options.shuffled(self.config.seed).epoch(epoch);
            let is_over = thread::scope(|scope| {
                let mut batches = data.epoch(scope, options)?;
                while let Some(batch) = batches.next_batch()? {
                    if step == range.steps {
                        return Ok(true);
                    }
                    let lr = range.min_lr * (growth * step as f64).exp();
                    self.set_lr(lr)?;
                    let loss = match self.step_batch(&batch) {
                        Ok(outcome) => f64::from(outcome.loss),
                        Err(TrainError::NonFinite { .. } | TrainError::NonFiniteGradients { .. }) => return Ok(true),
                        Err(error) => return Err(error),
                    };
                    batches.recycle(batch);
                    step += 1;
                    smooth = SMOOTHING * smooth + (1.0 - SMOOTHING) * loss;
                    let unbiased = smooth / (1.0 - SMOOTHING.powf(step as f64));
                    if unbiased > DIVERGES * best {
                        return Ok(true);
                    }
                    best = best.min(unbiased);
                    points.push((lr, unbiased));
                    losses.push(loss);
                    if !go_on(lr, unbiased) {
                        return Ok(true);
                    }
                }
                stream = batches.stream_state().cloned();
                Ok(false)
            })?;
            if is_over {
                break;
            }
        }
        Ok((points, losses))
    }
}

/// The median difference between two losses one after the other.
fn scatter(losses: &[f64]) -> f64 {
    let mut differences: Vec<_> = losses.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
    differences.sort_unstable_by(f64::total_cmp);
    differences.get(differences.len() / 2).copied().unwrap_or(0.0)
}

/// The learning rate in the middle of where the loss falls fastest, if the loss falls clearly beside such a scatter.
fn steepest(points: &[(f64, f64)], scatter: f64) -> Option<f64> {
    let part = (points.len() / 10).max(1);
    let later = points.get(part..)?;
    let slope = |window: &[(f64, f64)]| {
        let (first, last) = (window[0], window[window.len() - 1]);
        (last.1 - first.1) / (last.0.ln() - first.0.ln())
    };
    let steepest = later.windows(part + 1).min_by(|one, other| slope(one).total_cmp(&slope(other)))?;
    let (mut highest, mut fall) = (f64::NEG_INFINITY, 0.0_f64);
    for (_, loss) in later {
        highest = highest.max(*loss);
        fall = fall.max(highest - loss);
    }
    (fall > CLEAR * scatter).then(|| (steepest[0].0 * steepest[part].0).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smoothed curve of such losses at rates that rise from 1e-7 to 1.
    fn suggested(losses: &[f64]) -> Option<f64> {
        let (mut smooth, mut points) = (0.0, Vec::new());
        for (at, loss) in losses.iter().enumerate() {
            smooth = SMOOTHING * smooth + (1.0 - SMOOTHING) * loss;
            let lr = 10_f64.powf(-7.0 + 7.0 * at as f64 / (losses.len() - 1) as f64);
            points.push((lr, smooth / (1.0 - SMOOTHING.powi(at as i32 + 1))));
        }
        steepest(&points, scatter(losses))
    }

    /// Numbers in -1..1 without an order.
    fn noise(seed: u64) -> impl Iterator<Item = f64> {
        let mut state = seed;
        std::iter::repeat_with(move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / f64::from(1_u32 << 30) - 1.0
        })
    }

    #[test]
    fn chance_is_no_fall() {
        for steps in [20, 100, 400] {
            let by_chance = (1..=100).filter(|&seed| {
                let losses: Vec<_> = noise(seed).take(steps).map(|noise| 2.3 + 0.1 * noise).collect();
                suggested(&losses).is_some()
            });
            assert!(by_chance.count() <= 1, "{steps} steps");
            // From the middle on, it falls to half.
            let fall = |at: usize| 1.15 * ((at as f64 / steps as f64 - 0.5) / 0.2).clamp(0.0, 1.0);
            for seed in 1..=20 {
                let losses: Vec<_> =
                    noise(seed).take(steps).enumerate().map(|(at, noise)| 2.3 - fall(at) + 0.1 * noise).collect();
                let lr = suggested(&losses).expect("a fall");
                assert!((1e-4..1e-1).contains(&lr), "{lr}");
            }
        }
        assert_eq!(suggested(&[1.0, 1.0, 1.0]), None);
        assert_eq!(steepest(&[], 0.0), None);
    }
}

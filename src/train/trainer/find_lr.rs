//! Which learning rate to begin with.

use super::Trainer;
use crate::data::{Batches, Dataset, Order};
use crate::error::TrainError;
use crate::tensor::plural;

/// Each loss is averaged with those before it by this share.
const SMOOTHING: f64 = 0.9;
/// A loss that is so many times the best so far diverges.
const DIVERGES: f64 = 4.0;

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
    /// Where the loss falls fastest; none where it never does.
    pub suggestion: Option<f64>,
}

impl Trainer {
    /// Trains some steps at a learning rate that rises from step to step, and says at which the loss falls fastest. All is put back
    /// afterwards: parameters, optimizer state, steps. It takes a copy of them in host memory.
    ///
    /// Losses are smoothed, `s ← 0.9 s + 0.1 loss`, without the bias of the beginning. The search ends where one is four times the
    /// best. The slope is that over a tenth of the points, by the logarithm of the learning rate, and the first tenth does not count.
    ///
    /// Source: <https://arxiv.org/abs/1506.01186>
    ///
    /// # Errors
    /// As [`Trainer::fit`], and where the range is none.
    pub fn find_lr(&mut self, data: &Dataset, range: LrRange) -> Result<LrCurve, TrainError> {
        self.find_lr_while(data, range, |_, _| true)
    }

    /// As [`find_lr`](Self::find_lr), for as long as `go_on` says so: it is told the learning rate of each step and the smoothed loss.
    /// Where it stops, the curve is what was found until then.
    ///
    /// # Errors
    /// As [`find_lr`](Self::find_lr).
    pub fn find_lr_while(
        &mut self,
        data: &Dataset,
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
        let found = self.rise(data, range, &mut go_on);
        let snapshot = self.snapshot.take().expect("bug: it was taken");
        for (name, bytes) in &snapshot.tensors {
            self.executor.write(name, bytes)?;
        }
        self.take_up(&state);
        (self.snapshot, self.schedule, self.lr_scale) = before;
        let points = found?;
        let suggestion = steepest(&points);
        Ok(LrCurve { points, suggestion })
    }

    fn rise(
        &mut self,
        data: &Dataset,
        range: LrRange,
        go_on: &mut dyn FnMut(f64, f64) -> bool,
    ) -> Result<Vec<(f64, f64)>, TrainError> {
        let batches = Batches::new(data.len(), self.config.batch, Order::Shuffled { seed: self.config.seed }, true)?;
        let (mut points, mut smooth, mut best) = (Vec::new(), 0.0, f64::INFINITY);
        let growth = (range.max_lr / range.min_lr).ln() / (range.steps - 1) as f64;
        let mut step = 0;
        for epoch in 0.. {
            for indices in &batches.epoch(epoch) {
                if step == range.steps {
                    return Ok(points);
                }
                let lr = range.min_lr * (growth * step as f64).exp();
                self.set_lr(lr)?;
                let loss = match self.step(data, indices) {
                    Ok(outcome) => f64::from(outcome.loss),
                    Err(TrainError::NonFinite { .. }) => return Ok(points),
                    Err(error) => return Err(error),
                };
                step += 1;
                smooth = SMOOTHING * smooth + (1.0 - SMOOTHING) * loss;
                let unbiased = smooth / (1.0 - SMOOTHING.powf(step as f64));
                if unbiased > DIVERGES * best {
                    return Ok(points);
                }
                best = best.min(unbiased);
                points.push((lr, unbiased));
                if !go_on(lr, unbiased) {
                    return Ok(points);
                }
            }
        }
        Ok(points)
    }
}

/// The learning rate in the middle of where the loss falls fastest.
fn steepest(points: &[(f64, f64)]) -> Option<f64> {
    let part = (points.len() / 10).max(1);
    let later = points.get(part..)?;
    let slope = |window: &[(f64, f64)]| {
        let (first, last) = (window[0], window[window.len() - 1]);
        (last.1 - first.1) / (last.0.ln() - first.0.ln())
    };
    let steepest = later.windows(part + 1).min_by(|one, other| slope(one).total_cmp(&slope(other)))?;
    (slope(steepest) < 0.0).then(|| (steepest[0].0 * steepest[part].0).sqrt())
}

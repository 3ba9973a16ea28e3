//! How often the right class is predicted.

use super::sample::{Decision, limit};
use super::{Metric, MetricValue, Sample, share};

/// `Σ w · [predicted = actual] / Σ w` over all positions that count. The first largest number is the prediction; of yes and no, all
/// channels of a position must be right, which is scikit-learn's `accuracy_score` of multilabel data.
#[derive(Debug)]
pub(super) struct Accuracy {
    pub(super) name: String,
    pub(super) threshold: f64,
    pub(super) right: f64,
    pub(super) counted: f64,
}

impl Metric for Accuracy {
    fn name(&self) -> &str {
        &self.name
    }

    fn reset(&mut self) {
        (self.right, self.counted) = (0.0, 0.0);
    }

    fn add(&mut self, sample: &Sample<'_>) {
        let (limit, mut wrong) = (limit(sample.format.scores, self.threshold), false);
        let view = sample.view();
        view.decisions(limit, |decision| {
            let (is_right, is_last) = match decision {
                Decision::Class { predicted, actual } => (predicted == actual, true),
                Decision::Label { channel, predicted, actual } => (predicted == actual, channel + 1 == view.channels),
            };
            wrong |= !is_right;
            if is_last {
                self.right += if wrong { 0.0 } else { sample.weight };
                self.counted += sample.weight;
                wrong = false;
            }
        });
    }

    fn value(&self) -> MetricValue {
        share(self.right, self.counted)
    }
}

/// The share of positions whose class is among the `k` largest numbers. Of equal numbers the first are larger, so that with `k = 1`
/// it is the accuracy.
#[derive(Debug)]
pub(super) struct TopK {
    pub(super) name: String,
    pub(super) k: usize,
    pub(super) right: f64,
    pub(super) counted: f64,
}

impl Metric for TopK {
    fn name(&self) -> &str {
        &self.name
    }

    fn reset(&mut self) {
        (self.right, self.counted) = (0.0, 0.0);
    }

    fn add(&mut self, sample: &Sample<'_>) {
        let view = sample.view();
        for position in 0..view.positions {
            let Some(actual) = view.actual(position) else { continue };
            let score = view.score(position, actual);
            let is_larger = |channel: &usize| {
                let other = view.score(position, *channel);
                other > score || (other == score && *channel < actual)
            };
            let larger = (0..view.channels).filter(is_larger).count();
            if larger < self.k && !score.is_nan() {
                self.right += sample.weight;
            }
            self.counted += sample.weight;
        }
    }

    fn value(&self) -> MetricValue {
        share(self.right, self.counted)
    }
}

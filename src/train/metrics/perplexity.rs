//! How many classes a model is undecided between.

use super::{Metric, MetricValue, Sample, Scores, Target};

/// As losses of probabilities hold them: the logarithm of 0 has no bound.
const LEAST_PROBABILITY: f64 = 1e-7;

/// `exp(Σ w · −ln p / Σ w)` over all positions that count, where `p` is the probability of the right class: the exponential of the
/// cross-entropy.
#[derive(Debug)]
pub(super) struct Perplexity {
    pub(super) name: String,
    pub(super) sum: f64,
    pub(super) counted: f64,
}

impl Metric for Perplexity {
    fn name(&self) -> &str {
        &self.name
    }

    fn reset(&mut self) {
        (self.sum, self.counted) = (0.0, 0.0);
    }

    fn add(&mut self, sample: &Sample<'_>) {
        if sample.weight == 0.0 {
            return;
        }
        let view = sample.view();
        let channels = view.channels;
        for position in 0..view.positions {
            let Some(actual) = view.actual(position) else { continue };
            let logit = |channel: usize| match sample.format.scores {
                Scores::Logits | Scores::LogProbabilities => view.score(position, channel),
                Scores::Probabilities => libm::log(view.score(position, channel).max(LEAST_PROBABILITY)),
            };
            let normalizer = if sample.format.scores == Scores::LogProbabilities {
                0.0
            } else {
                let largest = (0..channels).map(logit).fold(f64::NEG_INFINITY, f64::max);
                largest + libm::log((0..channels).map(|channel| libm::exp(logit(channel) - largest)).sum())
            };
            let surprise = match sample.target {
                Target::Labels(_) => normalizer - logit(actual),
                Target::Values(_) => {
                    let part = |channel: usize| view.value(position, channel) * (normalizer - logit(channel));
                    // A class that is not there counts nothing, however impossible it is held.
                    (0..channels).filter(|&channel| view.value(position, channel) != 0.0).map(part).sum()
                }
            };
            self.sum += sample.weight * surprise;
            self.counted += sample.weight;
        }
    }

    fn value(&self) -> MetricValue {
        MetricValue::Number(if self.counted > 0.0 { libm::exp(self.sum / self.counted) } else { f64::NAN })
    }
}

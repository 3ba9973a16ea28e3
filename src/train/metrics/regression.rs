//! How far numbers are from what they should be.

use super::{Metric, MetricValue, MultiOutput, Sample, share};

/// Which mean error. `e = prediction − target`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Error {
    /// `Σ w |e| / Σ w`
    Absolute,
    /// `Σ w e² / Σ w`
    Squared,
    /// `√(Σ w e² / Σ w)`
    Root,
}

/// The mean error over all elements of all samples.
#[derive(Debug)]
pub(super) struct MeanError {
    pub(super) name: String,
    pub(super) error: Error,
    pub(super) sum: f64,
    pub(super) counted: f64,
}

impl Metric for MeanError {
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
        for (prediction, value) in elements(sample) {
            let error = prediction - value;
            let size = if self.error == Error::Absolute { error.abs() } else { error * error };
            self.sum += sample.weight * size;
            self.counted += sample.weight;
        }
    }

    fn value(&self) -> MetricValue {
        let mean = if self.counted > 0.0 { self.sum / self.counted } else { f64::NAN };
        MetricValue::Number(if self.error == Error::Root { mean.sqrt() } else { mean })
    }
}

/// All predictions with their target values.
fn elements<'a>(sample: &'a Sample<'_>) -> impl Iterator<Item = (f64, f64)> + 'a {
    let view = sample.view();
    let places =
        (0..view.positions).flat_map(move |position| (0..view.channels).map(move |channel| (position, channel)));
    places.map(move |(position, channel)| (view.score(position, channel), view.value(position, channel)))
}

/// `1 − Σ w e² / Σ w (y − ȳ)²` of each channel: the share of what differs between targets that is explained.
#[derive(Debug)]
pub(super) struct R2 {
    pub(super) name: String,
    pub(super) multioutput: MultiOutput,
    pub(super) channels: Vec<Spread>,
}

/// The sums of one channel: West's, in which little is lost where the spread is small beside the mean.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spread {
    count: u64,
    weight: f64,
    mean: f64,
    spread: f64,
    residual: f64,
}

impl Spread {
    fn add(&mut self, weight: f64, prediction: f64, value: f64) {
        self.count += 1;
        self.weight += weight;
        let distance = value - self.mean;
        self.mean += distance * weight / self.weight;
        self.spread += weight * distance * (value - self.mean);
        self.residual += weight * (prediction - value) * (prediction - value);
    }

    /// As scikit-learn's: of targets that are all alike, 1 where they are met and 0 else; not defined of fewer than two.
    fn r2(&self) -> Option<f64> {
        let of_constant = if self.residual == 0.0 { 1.0 } else { 0.0 };
        let share = if self.spread > 0.0 { 1.0 - self.residual / self.spread } else { of_constant };
        (self.count >= 2).then_some(if self.spread.is_nan() { f64::NAN } else { share })
    }
}

impl Metric for R2 {
    fn name(&self) -> &str {
        &self.name
    }

    fn reset(&mut self) {
        self.channels.clear();
    }

    fn add(&mut self, sample: &Sample<'_>) {
        self.channels.resize(sample.format.channels(), Spread::default());
        if sample.weight == 0.0 {
            return;
        }
        let view = sample.view();
        for position in 0..view.positions {
            for (channel, spread) in self.channels.iter_mut().enumerate() {
                spread.add(sample.weight, view.score(position, channel), view.value(position, channel));
            }
        }
    }

    fn value(&self) -> MetricValue {
        let all = MetricValue::PerClass(self.channels.iter().map(Spread::r2).collect());
        match self.multioutput {
            MultiOutput::RawValues => all,
            MultiOutput::UniformAverage => MetricValue::Number(all.scalar().unwrap_or(f64::NAN)),
            MultiOutput::VarianceWeighted => {
                let sum = |part: fn(&Spread) -> f64| self.channels.iter().map(part).sum::<f64>();
                let mean = |spread: &Spread| spread.r2().map_or(f64::NAN, |r2| r2 * spread.spread);
                let spread = sum(|channel| channel.spread);
                if spread > 0.0 {
                    share(self.channels.iter().map(mean).sum(), spread)
                } else {
                    MetricValue::Number(all.scalar().unwrap_or(f64::NAN))
                }
            }
        }
    }
}

//! Losses and metrics on the host, over samples that come one by one: exact, however they are cut into batches.

use super::fed::Fed;
use super::loss::{Loss, LossMean};
use super::metrics::{Format, Metric, MetricKind, MetricValue, Sample, Target};
use super::objective::Head;
use crate::data::TargetKind;
use crate::error::{GraphError, TrainError};
use crate::tensor::Shape;

/// The losses of all outputs, and the metrics of the model's own.
pub(super) struct Tally<'a> {
    heads: Vec<HeadTally<'a>>,
    format: Format,
    accuracy: Option<Box<dyn Metric>>,
    metrics: Vec<Box<dyn Metric>>,
    samples: usize,
}

struct HeadTally<'a> {
    head: &'a Head,
    /// With their factors.
    terms: Vec<(f64, LossMean)>,
}

impl<'a> Tally<'a> {
    /// For what a model makes and its losses take, with these targets.
    pub(super) fn new(
        fed: &'a Fed,
        format: Format,
        targets: &TargetKind,
        metrics: &[MetricKind],
    ) -> Result<Self, TrainError> {
        let head = |(head, output): (&'a Head, &Shape)| -> Result<_, GraphError> {
            let prediction: Shape = std::iter::once(1).chain(output.iter().copied()).collect::<Vec<_>>().into();
            let term = |(factor, loss): (f32, &Loss)| Ok((f64::from(factor), LossMean::new(loss, &prediction)?));
            let terms = head.loss.terms().into_iter().map(term).collect::<Result<_, GraphError>>()?;
            Ok(HeadTally { head, terms })
        };
        let heads = fed.heads().map(head).collect::<Result<Vec<HeadTally<'_>>, _>>()?;
        let accuracy = MetricKind::accuracy();
        let classifies = heads.first().is_some_and(|tally| tally.head.loss.classifies());
        let accuracy = (classifies && accuracy.check(&format).is_ok()).then(|| accuracy.build());
        metrics.iter().try_for_each(|metric| metric.check_targets(&format, &targets.shape()))?;
        let metrics = metrics.iter().map(MetricKind::build).collect();
        Ok(Tally { heads, format, accuracy, metrics, samples: 0 })
    }

    /// Adds one sample: what the model makes for each loss, and its targets. Its losses are multiplied by its weight, and divided
    /// as if that were 1.
    pub(super) fn add(&mut self, sample: &[(&[f32], Target<'_>)], weight: f64) {
        for (HeadTally { terms, .. }, (prediction, target)) in self.heads.iter_mut().zip(sample) {
            let exact: Vec<f64> = prediction.iter().map(|&x| f64::from(x)).collect();
            for (_, term) in terms {
                term.add(&exact, *target, weight, 1.0);
            }
        }
        self.samples += 1;
        if let Some((prediction, target)) = sample.first() {
            let sample = Sample { weight, ..Sample::new(prediction, *target, &self.format) };
            self.accuracy.iter_mut().chain(&mut self.metrics).for_each(|metric| metric.add(&sample));
        }
    }

    /// The loss of all samples.
    pub(super) fn loss(&self) -> f64 {
        let of_head = |tally: &HeadTally<'_>| {
            let loss: f64 = tally.terms.iter().map(|(factor, mean)| factor * mean.value()).sum();
            f64::from(tally.head.weight) * loss
        };
        self.heads.iter().map(of_head).sum()
    }

    /// The share predicted right of all positions that count, for losses where that means something.
    pub(super) fn accuracy(&self) -> Option<f64> {
        self.accuracy.as_ref()?.value().scalar()
    }

    /// The metrics by name.
    pub(super) fn metrics(&self) -> Vec<(String, MetricValue)> {
        self.metrics.iter().map(|metric| (metric.name().to_owned(), metric.value())).collect()
    }

    /// Samples so far.
    pub(super) fn samples(&self) -> usize {
        self.samples
    }
}

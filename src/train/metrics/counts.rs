//! Figures that are made of how often each class is predicted, is right, or both.

use super::sample::{Decision, limit};
use super::{Average, Metric, MetricValue, Sample, share};

/// Which figure. `TP` counts what is predicted and right, `P` what is predicted, `A` what is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    /// `TP / P`
    Precision,
    /// `TP / A`
    Recall,
    /// `2 TP / (P + A)`: F1, and Dice of areas.
    F1,
    /// `TP / (P + A − TP)`
    Iou,
}

impl Figure {
    /// Of one class; `None` where it is neither predicted nor right anywhere. Where a fraction has 0 below it is 0.
    fn of(self, hits: f64, predicted: f64, actual: f64) -> Option<f64> {
        let (above, below) = match self {
            Figure::Precision => (hits, predicted),
            Figure::Recall => (hits, actual),
            Figure::F1 => (2.0 * hits, predicted + actual),
            Figure::Iou => (hits, predicted + actual - hits),
        };
        (predicted + actual > 0.0).then(|| if below > 0.0 { above / below } else { 0.0 })
    }
}

/// Precision, recall, F1 and the like.
#[derive(Debug)]
pub(super) struct Counts {
    pub(super) name: String,
    pub(super) figure: Figure,
    pub(super) average: Option<Average>,
    pub(super) threshold: f64,
    pub(super) classes: Vec<ClassCount>,
    /// Whether predictions have one channel, whose yes alone is then asked for.
    pub(super) is_binary: bool,
}

/// How often a class is predicted and right, predicted, and right.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClassCount {
    hits: f64,
    predicted: f64,
    actual: f64,
}

impl Metric for Counts {
    fn name(&self) -> &str {
        &self.name
    }

    fn reset(&mut self) {
        self.classes.clear();
    }

    fn add(&mut self, sample: &Sample<'_>) {
        self.is_binary = sample.format.is_binary();
        self.classes.resize(sample.format.class_count(), ClassCount::default());
        let weight = sample.weight;
        sample.view().decisions(limit(sample.format.scores, self.threshold), |decision| match decision {
            Decision::Class { predicted, actual } => {
                self.classes[predicted].predicted += weight;
                self.classes[actual].actual += weight;
                if predicted == actual {
                    self.classes[actual].hits += weight;
                }
            }
            Decision::Label { channel, predicted, actual } => {
                let class = &mut self.classes[channel];
                class.predicted += if predicted { weight } else { 0.0 };
                class.actual += if actual { weight } else { 0.0 };
                class.hits += if predicted && actual { weight } else { 0.0 };
            }
        });
    }

    fn value(&self) -> MetricValue {
        let figure = |&ClassCount { hits, predicted, actual }: &ClassCount| self.figure.of(hits, predicted, actual);
        let number = |value: Option<f64>| MetricValue::Number(value.unwrap_or(f64::NAN));
        let usual = if self.is_binary { Average::Binary } else { Average::Macro };
        match self.average.unwrap_or(usual) {
            Average::PerClass => MetricValue::PerClass(self.classes.iter().map(figure).collect()),
            Average::Macro => number(MetricValue::PerClass(self.classes.iter().map(figure).collect()).scalar()),
            Average::Binary => number(self.classes.get(1).and_then(figure)),
            Average::Micro => {
                let sum = |part: fn(&ClassCount) -> f64| self.classes.iter().map(part).sum::<f64>();
                number(self.figure.of(sum(|class| class.hits), sum(|class| class.predicted), sum(|class| class.actual)))
            }
            Average::Weighted => {
                let part = |class: &ClassCount| figure(class).map_or(0.0, |figure| figure * class.actual);
                share(self.classes.iter().map(part).sum(), self.classes.iter().map(|class| class.actual).sum())
            }
        }
    }
}

/// How often each class is taken for each: a row for each true class, a column for each predicted one.
#[derive(Debug)]
pub(super) struct ConfusionMatrix {
    pub(super) name: String,
    pub(super) threshold: f64,
    pub(super) rows: Vec<Vec<f64>>,
}

impl Metric for ConfusionMatrix {
    fn name(&self) -> &str {
        &self.name
    }

    fn reset(&mut self) {
        self.rows.clear();
    }

    fn add(&mut self, sample: &Sample<'_>) {
        let classes = sample.format.class_count();
        self.rows.resize_with(classes, || vec![0.0; classes]);
        sample.view().decisions(limit(sample.format.scores, self.threshold), |decision| {
            if let Decision::Class { predicted, actual } = decision
                && let Some(count) = self.rows.get_mut(actual).and_then(|row| row.get_mut(predicted))
            {
                *count += sample.weight;
            }
        });
    }

    fn value(&self) -> MetricValue {
        MetricValue::Matrix(self.rows.clone())
    }
}

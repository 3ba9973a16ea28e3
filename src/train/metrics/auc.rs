//! The area under the ROC curve.

use super::sample::View;
use super::{Average, Metric, MetricValue, Sample, Scores, share};

/// The area under the curve of true positive over false positive rates: the probability that a positive sample has a larger number
/// than a negative one, equal numbers counting half. Exact, from all numbers, which it keeps.
#[derive(Debug)]
pub(super) struct Auc {
    pub(super) name: String,
    pub(super) average: Option<Average>,
    /// One for each class that is told from the rest; one alone where there are two.
    pub(super) columns: Vec<Column>,
    /// Of each position.
    pub(super) weights: Vec<f64>,
}

/// What tells a class from the rest.
#[derive(Debug, Default)]
pub(super) struct Column {
    scores: Vec<f64>,
    positive: Vec<bool>,
}

impl Metric for Auc {
    fn name(&self) -> &str {
        &self.name
    }

    fn reset(&mut self) {
        (self.columns, self.weights) = (Vec::new(), Vec::new());
    }

    fn add(&mut self, sample: &Sample<'_>) {
        let format = sample.format;
        let view = sample.view();
        let has_labels = format.has_several_labels();
        let has_two = !has_labels && view.channels == 2;
        let columns = if has_two { 1 } else { view.channels };
        self.columns.resize_with(columns, Column::default);
        if sample.weight == 0.0 {
            return;
        }
        for position in 0..view.positions {
            if has_labels {
                for (channel, column) in self.columns.iter_mut().enumerate() {
                    column.push(view.score(position, channel), view.is_yes(position, channel));
                }
            } else {
                let Some(actual) = view.actual(position) else { continue };
                if let [column] = &mut self.columns[..] {
                    let score = if has_two { odds(&view, format.scores, position) } else { view.score(position, 0) };
                    column.push(score, actual == 1);
                } else {
                    let probability = probabilities(&view, format.scores, position);
                    for (class, column) in self.columns.iter_mut().enumerate() {
                        column.push(probability(view.score(position, class)), class == actual);
                    }
                }
            }
            self.weights.push(sample.weight);
        }
    }

    fn value(&self) -> MetricValue {
        let area = |column: &Column| area(&column.scores, &column.positive, &self.weights);
        let number = |value: Option<f64>| MetricValue::Number(value.unwrap_or(f64::NAN));
        if let [column] = &self.columns[..] {
            return number(area(column).map(|(area, _)| area));
        }
        let areas = || self.columns.iter().map(area);
        match self.average.unwrap_or(Average::Macro) {
            Average::PerClass => MetricValue::PerClass(areas().map(|area| Some(area?.0)).collect()),
            Average::Macro | Average::Binary => {
                number(MetricValue::PerClass(areas().map(|area| Some(area?.0)).collect()).scalar())
            }
            Average::Weighted => {
                let defined: Vec<_> = areas().flatten().collect();
                share(
                    defined.iter().map(|(area, positives)| area * positives).sum(),
                    defined.iter().map(|(_, positives)| positives).sum(),
                )
            }
            Average::Micro => {
                let scores: Vec<f64> = self.columns.iter().flat_map(|column| &column.scores).copied().collect();
                let positive: Vec<bool> = self.columns.iter().flat_map(|column| &column.positive).copied().collect();
                number(self::area(&scores, &positive, &self.weights).map(|(area, _)| area))
            }
        }
    }
}

impl Column {
    fn push(&mut self, score: f64, positive: bool) {
        self.scores.push(score);
        self.positive.push(positive);
    }
}

/// What rises with the probability of the second of two classes.
fn odds(view: &View<'_>, scores: Scores, position: usize) -> f64 {
    match scores {
        Scores::Logits | Scores::LogProbabilities => view.score(position, 1) - view.score(position, 0),
        Scores::Probabilities => view.score(position, 1),
    }
}

/// What makes probabilities of the numbers at a position: those of several positions can be compared then.
fn probabilities(view: &View<'_>, scores: Scores, position: usize) -> impl Fn(f64) -> f64 + use<> {
    let all = || (0..view.channels).map(|channel| view.score(position, channel));
    let (largest, sum) = if scores == Scores::Logits {
        let largest = all().fold(f64::NEG_INFINITY, f64::max);
        (largest, all().map(|score| libm::exp(score - largest)).sum())
    } else {
        (0.0, 1.0)
    };
    move |score| match scores {
        Scores::Probabilities => score,
        Scores::Logits | Scores::LogProbabilities => libm::exp(score - largest) / sum,
    }
}

/// The area, and the weight of all positive ones; `None` where all are positive, or none. Weights repeat.
fn area(scores: &[f64], positive: &[bool], weights: &[f64]) -> Option<(f64, f64)> {
    let weight = |i: usize| weights[i % weights.len()];
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[a].total_cmp(&scores[b]));
    let (mut positives, mut negatives, mut pairs) = (0.0, 0.0, 0.0);
    for equal in order.chunk_by(|&a, &b| scores[a] == scores[b]) {
        let sum = |of: bool| equal.iter().filter(|&&i| positive[i] == of).map(|&i| weight(i)).sum::<f64>();
        let (more_positives, more_negatives) = (sum(true), sum(false));
        pairs += more_positives * (negatives + more_negatives / 2.0);
        positives += more_positives;
        negatives += more_negatives;
    }
    (positives > 0.0 && negatives > 0.0).then(|| (pairs / (positives * negatives), positives))
}

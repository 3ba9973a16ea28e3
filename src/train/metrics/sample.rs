//! What a metric is given.

use crate::tensor::Shape;

/// The target of one sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target<'a> {
    /// Classes: one, or one for each position.
    Labels(&'a [u32]),
    /// Numbers, as many as a prediction has.
    Values(&'a [f32]),
}

/// What the numbers of a prediction are, where they stand for classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scores {
    /// Logits: softmax over the classes, or a sigmoid, makes probabilities of them.
    #[default]
    Logits,
    /// Probabilities.
    Probabilities,
    /// Logarithms of probabilities.
    LogProbabilities,
}

/// What all samples have in common.
///
/// A prediction `[C, ...inner]`, or `[...inner, C]` where classes are last, has `C` channels at each of its positions: one
/// position for a classifier of whole samples, one for each pixel or time step otherwise. With one channel it is binary: a
/// number that says yes where it is large enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// Shape of one prediction, without the batch axis.
    pub shape: Shape,
    /// How many classes labels have; `None` where targets are values, of the same shape as predictions.
    pub classes: Option<u32>,
    /// The label that does not count.
    pub ignored: Option<u32>,
    /// Whether channels are the last axis, not the first.
    pub classes_last: bool,
    /// What the numbers of a prediction are.
    pub scores: Scores,
    /// Whether each channel is a yes or no of its own, as with binary cross-entropy; else they are classes of which one is
    /// right.
    pub multilabel: bool,
}

impl Format {
    /// Logits of classes, with labels.
    pub fn labels(shape: impl Into<Shape>, classes: u32) -> Self {
        Format { classes: Some(classes), ..Format::values(shape) }
    }

    /// Predictions with values of the same shape.
    pub fn values(shape: impl Into<Shape>) -> Self {
        Format {
            shape: shape.into(),
            classes: None,
            ignored: None,
            classes_last: false,
            scores: Scores::Logits,
            multilabel: false,
        }
    }

    /// All samples, of weight 1, of predictions that stand one after the other, as
    /// [`Trainer::predict`](crate::train::Trainer::predict) gives them, and their targets.
    pub fn samples<'a>(&'a self, predictions: &'a [f32], targets: Target<'a>) -> impl Iterator<Item = Sample<'a>> {
        let target = move |sample: usize| match targets {
            Target::Labels(labels) => Target::Labels(part(labels, sample, self.positions())),
            Target::Values(values) => Target::Values(part(values, sample, self.shape.numel())),
        };
        let predictions = predictions.chunks_exact(self.shape.numel().max(1)).enumerate();
        predictions.map(move |(sample, prediction)| Sample::new(prediction, target(sample), self))
    }

    /// Numbers at each position of a prediction.
    pub fn channels(&self) -> usize {
        let axis = if self.classes_last { self.shape.last() } else { self.shape.first() };
        axis.copied().unwrap_or(1)
    }

    /// Positions of a prediction.
    pub fn positions(&self) -> usize {
        self.shape.numel() / self.channels().max(1)
    }

    /// Whether there is one channel, which says yes or no.
    pub fn is_binary(&self) -> bool {
        self.channels() == 1
    }

    /// Whether several channels are each a yes or no of its own.
    pub(super) fn has_several_labels(&self) -> bool {
        self.multilabel && !self.is_binary() && self.classes.is_none()
    }

    /// Classes that predictions tell apart: no and yes of one channel, else one for each channel.
    pub(super) fn class_count(&self) -> usize {
        if self.is_binary() { 2 } else { self.channels() }
    }
}

/// One sample: what was predicted, and what is right.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// The prediction, in the order of its shape.
    pub prediction: &'a [f32],
    /// What is right.
    pub target: Target<'a>,
    /// What it counts. 0 is as if it were not there.
    pub weight: f64,
    /// What all samples have in common.
    pub format: &'a Format,
}

impl<'a> Sample<'a> {
    /// A sample of weight 1.
    pub fn new(prediction: &'a [f32], target: Target<'a>, format: &'a Format) -> Self {
        Sample { prediction, target, weight: 1.0, format }
    }

    /// The prediction of a channel at a position; not a number where there is none.
    pub fn score(&self, position: usize, channel: usize) -> f64 {
        self.view().score(position, channel)
    }

    /// What is predicted at a position: the first class with the largest number.
    pub fn predicted(&self, position: usize) -> usize {
        self.view().predicted(position)
    }

    /// The class that is right at a position: its label, or the first with the largest value. `None` where it does not count,
    /// and where it is no class.
    pub fn actual(&self, position: usize) -> Option<usize> {
        self.view().actual(position)
    }

    /// The sample by positions and channels.
    pub(super) fn view(&self) -> View<'_> {
        let (positions, channels) = (self.format.positions(), self.format.channels());
        let strides = if self.format.classes_last { (channels, 1) } else { (1, positions) };
        View { sample: self, positions, channels, strides }
    }
}

/// A sample by positions and channels.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    sample: &'a Sample<'a>,
    pub(super) positions: usize,
    pub(super) channels: usize,
    /// From one position, and from one channel, to the next.
    strides: (usize, usize),
}

impl View<'_> {
    /// The prediction of a channel at a position.
    pub(super) fn score(&self, position: usize, channel: usize) -> f64 {
        self.element(self.sample.prediction, position, channel)
    }

    /// The target value of a channel at a position; not a number where there is none.
    pub(super) fn value(&self, position: usize, channel: usize) -> f64 {
        match self.sample.target {
            Target::Values(values) => self.element(values, position, channel),
            Target::Labels(_) => f64::NAN,
        }
    }

    /// An element of what has the shape of a prediction. Where there is none it is not a number.
    fn element(&self, values: &[f32], position: usize, channel: usize) -> f64 {
        let index = position * self.strides.0 + channel * self.strides.1;
        values.get(index).copied().map_or(f64::NAN, f64::from)
    }

    fn predicted(&self, position: usize) -> usize {
        self.first_largest(self.sample.prediction, position)
    }

    /// The first channel with the largest number at a position.
    fn first_largest(&self, values: &[f32], position: usize) -> usize {
        let numbers = (0..self.channels).map(|channel| (channel, self.element(values, position, channel)));
        let first = numbers.reduce(|best, next| if next.1 > best.1 { next } else { best });
        first.map_or(0, |(channel, _)| channel)
    }

    /// The class that is right at a position.
    pub(super) fn actual(&self, position: usize) -> Option<usize> {
        match self.sample.target {
            Target::Labels(labels) => {
                let label = *labels.get(position)?;
                let counts = Some(label) != self.sample.format.ignored;
                let is_class = (label as usize) < self.channels.max(2);
                (counts && is_class).then_some(label as usize)
            }
            Target::Values(_) if self.channels == 1 => Some(usize::from(self.is_yes(position, 0))),
            Target::Values(values) => Some(self.first_largest(values, position)),
        }
    }

    /// Whether the target says yes to a channel at a position.
    pub(super) fn is_yes(&self, position: usize, channel: usize) -> bool {
        self.value(position, channel) > 0.5
    }

    /// What is predicted of one channel, or of all together, with what is right. `limit` is what a number must be above to be
    /// a yes.
    pub(super) fn decisions(&self, limit: f64, mut each: impl FnMut(Decision)) {
        // What counts nothing may be padding.
        if self.sample.weight == 0.0 {
            return;
        }
        let (is_binary, has_labels) = (self.channels == 1, self.sample.format.has_several_labels());
        for position in 0..self.positions {
            if has_labels {
                for channel in 0..self.channels {
                    let (predicted, actual) = (self.score(position, channel) > limit, self.is_yes(position, channel));
                    each(Decision::Label { channel, predicted, actual });
                }
            } else if let Some(actual) = self.actual(position) {
                let yes = || usize::from(self.score(position, 0) > limit);
                let predicted = if is_binary { yes() } else { self.predicted(position) };
                each(Decision::Class { predicted, actual });
            }
        }
    }
}

/// What is predicted and what is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Of all channels: one class.
    Class { predicted: usize, actual: usize },
    /// Of one channel: yes or no.
    Label { channel: usize, predicted: bool, actual: bool },
}

/// The part of so many elements that belongs to a sample; nothing where it is not there.
fn part<T>(all: &[T], sample: usize, size: usize) -> &[T] {
    all.get(sample * size..(sample + 1) * size).unwrap_or_default()
}

/// What a number must be above to be a yes with a probability above `threshold`.
pub(super) fn limit(scores: Scores, threshold: f64) -> f64 {
    match scores {
        Scores::Logits => libm::log(threshold / (1.0 - threshold)),
        Scores::Probabilities => threshold,
        Scores::LogProbabilities => libm::log(threshold),
    }
}

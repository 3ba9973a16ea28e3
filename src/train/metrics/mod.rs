//! Figures of what a model predicted, over any number of samples.
//!
//! [`MetricKind`] has the usual ones as files name them; another is a type that implements [`Metric`], or a formula. All add up sample by
//! sample, in f64 and in the order of the samples, so values do not depend on how samples are batched.

mod accuracy;
mod auc;
mod check;
mod counts;
mod custom;
mod kind;
mod perplexity;
mod registry;
mod regression;
mod sample;

use std::fmt;

use serde::{Serialize, Serializer};

pub use custom::CustomMetric;
pub use kind::{Average, MetricKind, MultiOutput};
pub use registry::{MetricEntry, higher_is_better};
pub use sample::{Format, Sample, Scores, Target};

/// A figure of what a model predicted. A training has it in its evaluations through [`MetricKind::custom`].
///
/// ```
/// use tightfit::train::{Config, Format, Metric, MetricKind, MetricValue, Sample, Target};
///
/// /// The largest error.
/// #[derive(Debug, Default)]
/// struct MaxError(f64);
///
/// impl Metric for MaxError {
///     fn name(&self) -> &str {
///         "max_error"
///     }
///
///     fn reset(&mut self) {
///         self.0 = 0.0;
///     }
///
///     fn add(&mut self, sample: &Sample<'_>) {
///         if let Target::Values(values) = sample.target {
///             let errors = sample.prediction.iter().zip(values).map(|(a, b)| f64::from((a - b).abs()));
///             self.0 = errors.fold(self.0, f64::max);
///         }
///     }
///
///     fn value(&self) -> MetricValue {
///         MetricValue::Number(self.0)
///     }
///
///     fn higher_is_better(&self) -> Option<bool> {
///         Some(false)
///     }
/// }
///
/// let format = Format::values([2]);
/// let mut metric = MaxError::default();
/// metric.add(&Sample::new(&[1.0, 2.0], Target::Values(&[1.5, 2.0]), &format));
/// assert_eq!(metric.value().scalar(), Some(0.5));
/// let config = Config::default().metric(MetricKind::custom(MaxError::default));
/// # let _ = config;
/// ```
pub trait Metric: fmt::Debug + Send {
    /// What logs call it, such as `max_error`.
    fn name(&self) -> &str;

    /// Forgets all samples.
    fn reset(&mut self);

    /// Adds one sample. All samples since the last reset have one format.
    fn add(&mut self, sample: &Sample<'_>);

    /// The figure of all samples since the last reset.
    fn value(&self) -> MetricValue;

    /// Whether higher values are better; `None` where that cannot be said. By default it is what its name says.
    fn higher_is_better(&self) -> Option<bool> {
        higher_is_better(self.name())
    }
}

/// What a metric makes of samples. Files have it as a number, a list, or a list of lists; numbers that are not defined are `null`
/// in JSON.
#[derive(Clone, Debug, PartialEq)]
pub enum MetricValue {
    /// One number; not a number where it is not defined, as where no sample was added.
    Number(f64),
    /// One for each class; `None` of a class for which it is not defined.
    PerClass(Vec<Option<f64>>),
    /// Counts: a row for each true class, a column for each predicted one.
    Matrix(Vec<Vec<f64>>),
}

impl MetricValue {
    /// One number for a log: the number, the mean of all classes that have one, or the share of a matrix that is on its
    /// diagonal. `None` where that is not defined.
    ///
    /// ```
    /// use tightfit::train::MetricValue;
    ///
    /// assert_eq!(MetricValue::PerClass(vec![Some(0.5), None, Some(1.0)]).scalar(), Some(0.75));
    /// assert_eq!(MetricValue::Matrix(vec![vec![3.0, 1.0], vec![0.0, 4.0]]).scalar(), Some(0.875));
    /// assert_eq!(MetricValue::Number(f64::NAN).scalar(), None);
    /// ```
    pub fn scalar(&self) -> Option<f64> {
        let number = match self {
            MetricValue::Number(number) => *number,
            MetricValue::PerClass(classes) => {
                let defined = || classes.iter().flatten();
                defined().sum::<f64>() / defined().count() as f64
            }
            MetricValue::Matrix(rows) => {
                let diagonal = rows.iter().enumerate().filter_map(|(class, row)| row.get(class));
                diagonal.sum::<f64>() / rows.iter().flatten().sum::<f64>()
            }
        };
        (!number.is_nan()).then_some(number)
    }

    /// The figure of each class; of no class where it is not one for each.
    pub fn per_class(&self) -> &[Option<f64>] {
        if let MetricValue::PerClass(classes) = self { classes } else { &[] }
    }
}

impl Serialize for MetricValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            MetricValue::Number(number) => number.serialize(serializer),
            MetricValue::PerClass(classes) => classes.serialize(serializer),
            MetricValue::Matrix(rows) => rows.serialize(serializer),
        }
    }
}

/// A share; not a number where it is one of nothing.
fn share(part: f64, of: f64) -> MetricValue {
    MetricValue::Number(if of > 0.0 { part / of } else { f64::NAN })
}

//! Metrics of one's own among the usual ones.

use std::fmt;
use std::sync::Arc;

use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

use super::{Format, Metric, MetricValue, Sample, Target, higher_is_better};
use crate::error::GraphError;
use crate::nn::Input;
use crate::tensor::{DType, Shape};
use crate::train::criterion::Criterion;
use crate::train::loss::{Loss, LossMean};

/// A metric of one's own as a [`MetricKind`](super::MetricKind): a type that implements [`Metric`], or a formula.
#[derive(Clone, Debug)]
pub struct CustomMetric {
    name: String,
    higher_is_better: Option<bool>,
    make: Make,
}

#[derive(Clone)]
enum Make {
    Metric(Arc<dyn Fn() -> Box<dyn Metric> + Send + Sync>),
    Formula(Arc<Loss>),
}

impl fmt::Debug for Make {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Make::Metric(make) => fmt::Debug::fmt(&make(), f),
            Make::Formula(loss) => fmt::Debug::fmt(loss, f),
        }
    }
}

/// Two are the same where they are one object.
impl PartialEq for CustomMetric {
    fn eq(&self, other: &Self) -> bool {
        let is_one = match (&self.make, &other.make) {
            (Make::Metric(one), Make::Metric(other)) => Arc::ptr_eq(one, other),
            (Make::Formula(one), Make::Formula(other)) => Arc::ptr_eq(one, other),
            _ => false,
        };
        is_one && self.higher_is_better == other.higher_is_better
    }
}

/// Its name: what computes it is in no file.
impl Serialize for CustomMetric {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("CustomMetric", 1)?;
        fields.serialize_field("name", &self.name)?;
        fields.end()
    }
}

impl CustomMetric {
    pub(super) fn new<M: Metric + 'static>(make: impl Fn() -> M + Send + Sync + 'static) -> Self {
        let one = make();
        let (name, higher_is_better) = (one.name().to_owned(), one.higher_is_better());
        CustomMetric {
            name,
            higher_is_better,
            make: Make::Metric(Arc::new(move || -> Box<dyn Metric> { Box::new(make()) })),
        }
    }

    pub(super) fn formula(criterion: impl Criterion + 'static) -> Self {
        let name = criterion.name().replace('-', "_");
        let loss = Loss::custom(criterion);
        let higher = if let Loss::Custom(_) = loss { higher_is_better(&name) } else { Some(false) };
        CustomMetric { name, higher_is_better: higher, make: Make::Formula(Arc::new(loss)) }
    }

    pub(super) fn with_higher_is_better(self, higher_is_better: bool) -> Self {
        CustomMetric { higher_is_better: Some(higher_is_better), ..self }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn higher_is_better(&self) -> Option<bool> {
        self.higher_is_better
    }

    pub(super) fn build(&self) -> Box<dyn Metric> {
        match &self.make {
            Make::Metric(make) => make(),
            Make::Formula(loss) => Box::new(FormulaMetric {
                name: self.name.clone(),
                higher_is_better: self.higher_is_better,
                loss: Arc::clone(loss),
                terms: None,
            }),
        }
    }

    /// What is wrong with a formula of predictions of this format, and targets of this shape where that is known.
    pub(super) fn wrong(&self, format: &Format, target: Option<&Shape>) -> Option<String> {
        let Make::Formula(loss) = &self.make else { return None };
        if let Err(error) = loss.check() {
            return Some(error.to_string());
        }
        let Input { shape, dtype } = Criterion::target(&**loss, &format.shape);
        match (dtype == DType::U32, format.classes.is_some()) {
            (true, false) => return Some("it needs labels, but the data has target values".to_owned()),
            (false, true) => return Some("it needs target values, but the data has labels".to_owned()),
            _ => {}
        }
        if let Some(found) = target.filter(|found| **found != shape) {
            return Some(format!(
                "of the model's output {} it needs targets of shape {shape}, but those of the data have {found}",
                format.shape
            ));
        }
        Terms::new(loss, &format.shape).err().map(|error| error.to_string())
    }
}

/// The mean of a formula over all samples.
#[derive(Debug)]
struct FormulaMetric {
    name: String,
    higher_is_better: Option<bool>,
    loss: Arc<Loss>,
    /// Since the first sample.
    terms: Option<Terms>,
}

/// What is computed of predictions of one shape.
#[derive(Debug)]
struct Terms {
    output: Shape,
    /// Numbers of one target.
    target: Input,
    /// With their factors.
    means: Vec<(f64, LossMean)>,
}

impl Terms {
    fn new(loss: &Loss, output: &Shape) -> Result<Self, GraphError> {
        let prediction: Shape = std::iter::once(1).chain(output.iter().copied()).collect::<Vec<_>>().into();
        let mean = |(factor, loss): (f32, &Loss)| Ok((f64::from(factor), LossMean::new(loss, &prediction)?));
        let means = loss.terms().into_iter().map(mean).collect::<Result<_, GraphError>>()?;
        Ok(Terms { output: output.clone(), target: Criterion::target(loss, output), means })
    }

    /// Whether a sample is what it is made for.
    fn fits(&self, sample: &Sample<'_>) -> bool {
        let (dtype, count) = match sample.target {
            Target::Labels(labels) => (DType::U32, labels.len()),
            Target::Values(values) => (DType::F32, values.len()),
        };
        let has_target = dtype == self.target.dtype && count == self.target.shape.numel();
        has_target && sample.format.shape == self.output && sample.prediction.len() == self.output.numel()
    }
}

impl Metric for FormulaMetric {
    fn name(&self) -> &str {
        &self.name
    }

    fn reset(&mut self) {
        self.terms = None;
    }

    fn add(&mut self, sample: &Sample<'_>) {
        // What counts nothing may be padding.
        if sample.weight == 0.0 {
            return;
        }
        if self.terms.is_none() {
            self.terms = Terms::new(&self.loss, &sample.format.shape).ok();
        }
        let Some(terms) = &mut self.terms else { return };
        let fits = terms.fits(sample);
        let prediction: Vec<f64> = sample.prediction.iter().map(|&x| f64::from(x)).collect();
        for (factor, mean) in &mut terms.means {
            if fits {
                mean.add(&prediction, sample.target, sample.weight, sample.weight);
            } else {
                *factor = f64::NAN;
            }
        }
    }

    fn value(&self) -> MetricValue {
        let Some(Terms { means, .. }) = &self.terms else { return MetricValue::Number(f64::NAN) };
        let value = |(factor, mean): &(f64, LossMean)| factor * if mean.counts() { mean.value() } else { f64::NAN };
        MetricValue::Number(means.iter().map(value).sum())
    }

    fn higher_is_better(&self) -> Option<bool> {
        self.higher_is_better
    }
}

//! What a training minimises: a loss, or the weighted sum of losses of several outputs.

use super::loss::Loss;
use super::settings::Config;
use crate::data::{Batch, SAMPLE_WEIGHT, TARGET};
use crate::error::{GraphError, TrainError};
use crate::graph::Graph;
use crate::nn::Built;
use crate::ops::elementwise::add::Add;
use crate::ops::elementwise::scale::Scale;
use crate::tensor::{TensorDesc, ValueId, format_number};

/// A loss of another output of the model than its last.
///
/// ```
/// use tightfit::nn::{Linear, Model};
/// use tightfit::train::{Config, Head, Loss};
///
/// let model = Model::new("two-heads", [8], |x| {
///     let x = x.layer("body", Linear::new(16)).relu();
///     x.layer("size", Linear::new(1)).output("size");
///     x.layer("class", Linear::new(3))
/// });
/// // The class of the targets, and a third of the squared error of what the dataset has as `sizes`.
/// let config = Config::default().head(Head::new("size", "sizes", Loss::Mse).weight(0.3));
/// # let _ = (model, config);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// The output, as [`Tensor::output`](crate::nn::Tensor::output) names it.
    pub output: String,
    /// Its target, as the dataset names it: [`TensorDataset::with_input`](crate::data::TensorDataset::with_input).
    pub target: String,
    /// What the loss is multiplied by before all are added.
    pub weight: f32,
    /// The loss.
    pub loss: Loss,
}

impl Head {
    /// The loss of an output with its target.
    pub fn new(output: impl Into<String>, target: impl Into<String>, loss: Loss) -> Self {
        Head { output: output.into(), target: target.into(), weight: 1.0, loss }
    }

    /// Sets what the loss is multiplied by.
    #[must_use]
    pub fn weight(mut self, weight: f32) -> Self {
        self.weight = weight;
        self
    }
}

/// All losses of a training: that of the model's output and targets first.
#[derive(Clone, Debug)]
pub(super) struct Objective {
    pub(super) heads: Vec<Head>,
    /// Whether samples have weights in the data.
    pub(super) sample_weights: bool,
    /// Whether graphs take weights: then, or where a short batch is filled up.
    pub(super) weighted: bool,
}

/// The loss in a graph.
pub(super) struct Added {
    pub(super) loss: ValueId,
    /// The share by which it counts.
    pub(super) share: f32,
    /// Positions that are predicted right, where the targets are labels.
    pub(super) correct: Option<ValueId>,
}

impl Objective {
    pub(super) fn new(config: &Config) -> Result<Self, TrainError> {
        let main = Head::new(String::new(), TARGET, config.loss.clone()).weight(config.loss_weight);
        let heads: Vec<_> = std::iter::once(main).chain(config.heads.iter().cloned()).collect();
        for Head { output, weight, loss, .. } in &heads {
            loss.check()?;
            if !weight.is_finite() {
                let (weight, of) = (format_number(*weight), if output.is_empty() { "the output" } else { output });
                return Err(TrainError::Setting(format!(
                    "the weight {weight} of the loss of {of} is not possible: it must be finite"
                )));
            }
        }
        let sample_weights = config.sample_weights;
        Ok(Objective { heads, sample_weights, weighted: sample_weights || !config.drop_last })
    }

    /// The output of a head.
    pub(super) fn output(built: &Built, head: &Head) -> Result<ValueId, GraphError> {
        if head.output.is_empty() {
            return Ok(built.output);
        }
        let found = built.outputs.iter().find(|(name, _)| *name == head.output);
        found.map(|(_, value)| *value).ok_or_else(|| GraphError::Layer {
            layer: "loss".to_owned(),
            reason: crate::error::unknown("output", &head.output, built.outputs.iter().map(|(name, _)| name.as_str())),
        })
    }

    /// Adds all losses to the graph of a micro-batch that holds this share of the step's samples.
    pub(super) fn apply(&self, built: &mut Built, samples: usize, share: f32) -> Result<Added, GraphError> {
        let mut sum: Option<ValueId> = None;
        let (mut term, mut single, mut correct) = (0, None, None);
        let weights = self.weighted.then(|| built.graph.input(SAMPLE_WEIGHT, TensorDesc::f32([samples])));
        for (i, head) in self.heads.iter().enumerate() {
            let output = Objective::output(built, head)?;
            let graph = &mut built.graph;
            graph.set_scope("loss");
            let target = target(graph, head, &head.loss.target_desc(&graph.value(output).desc))?;
            let (loss, counts) = head.loss.apply(graph, output, target, share, term, weights)?;
            term += head.loss.terms().len();
            if i == 0 {
                graph.set_scope("accuracy");
                correct = head.loss.correct(graph, output, target, weights)?;
                graph.set_scope("loss");
            }
            if self.heads.len() == 1 && head.weight == 1.0 {
                single = Some((loss, counts));
                break;
            }
            let scaled = graph.apply(Scale { factor: head.weight * counts }, &[loss])?;
            sum = Some(match sum {
                Some(sum) => graph.apply(Add, &[sum, scaled])?,
                None => scaled,
            });
        }
        let (loss, share) = single.or_else(|| sum.map(|sum| (sum, 1.0))).expect("bug: no losses");
        Ok(Added { loss, share, correct })
    }

    /// What losses take besides predictions and targets in a step on this batch, which fills this share of a whole one, by name.
    pub(super) fn inputs(&self, batch: &Batch, filled: f32) -> Vec<(String, Vec<f32>)> {
        let mut term = 0;
        let mut inputs = Vec::new();
        for head in &self.heads {
            let labels = || labels_of(batch, &head.target, 0..batch.len());
            inputs.extend(head.loss.inputs(labels, term, filled));
            term += head.loss.terms().len();
        }
        inputs
    }

    /// How many positions of a batch count towards accuracy.
    pub(super) fn counted(&self, batch: &Batch) -> usize {
        let loss = &self.heads[0].loss;
        let counts = (0..batch.len()).filter(|&place| self.weight(batch, place) != 0.0);
        if loss.limit().is_some() {
            return counts.filter(|&place| batch.floats(TARGET, place).len() == 1).count();
        }
        // What is right by a formula of one's own is not known.
        if !loss.takes_labels() {
            return 0;
        }
        let ignored = loss.ignored();
        labels_of(batch, TARGET, counts).filter(|label| Some(*label) != ignored).count()
    }

    /// The weight of the sample at a place of a batch.
    pub(super) fn weight(&self, batch: &Batch, place: usize) -> f32 {
        let weights = || batch.floats(SAMPLE_WEIGHT, place).first().copied();
        if self.sample_weights { weights().unwrap_or(1.0) } else { 1.0 }
    }
}

/// The input of a target, which several heads may share.
fn target(graph: &mut Graph, head: &Head, desc: &TensorDesc) -> Result<ValueId, GraphError> {
    match graph.find(&head.target) {
        None => Ok(graph.input(head.target.clone(), desc.clone())),
        Some(value) if graph.value(value).desc == *desc => Ok(value),
        Some(value) => Err(GraphError::Layer {
            layer: "loss".to_owned(),
            reason: format!(
                "the target `{}` of {} is {desc}, but there is a `{0}` that is {}",
                head.target,
                head.loss,
                graph.value(value).desc
            ),
        }),
    }
}

/// The labels of the samples at some places of a batch; none where targets are numbers.
fn labels_of<'a>(
    batch: &'a Batch,
    target: &'a str,
    places: impl Iterator<Item = usize> + 'a,
) -> impl Iterator<Item = u32> + 'a {
    places.flat_map(move |place| batch.integers(target, place)).copied()
}

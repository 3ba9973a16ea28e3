//! What each layer of a model takes when it is trained.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::settings::Config;
use super::source::{ModelSource, Purpose};
use crate::error::{GraphError, TrainError};
use crate::graph::{Graph, Pass, Phase, Role};
use crate::nn::{LayerInfo, Mode, Model, sample_shape, thousands};
use crate::ops::SavedActivations;
use crate::plan::{Source, format_bytes};
use crate::tensor::{Shape, ValueId};

/// Characters that are left of a name in a narrow table.
const LEAST_NAME: usize = 12;

/// One layer, or several under a common name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummaryRow {
    /// `layer1.0.conv1`
    pub name: String,
    /// Shape of what it makes of one sample.
    pub output: Shape,
    /// Trained values.
    pub parameters: usize,
    /// Bytes of parameters, and as many of gradients where they are trained.
    pub parameter_bytes: u64,
    /// Bytes of optimizer state.
    pub state_bytes: u64,
    /// Bytes of what it makes that backward reads, for the whole batch.
    pub saved_bytes: u64,
}

/// A table of a model's layers: shapes, parameters, and the bytes that training takes for each: parameters, gradients,
/// optimizer state, and saved activations, which are what backward reads of a whole batch in one piece.
///
/// It says where memory goes before the planner does anything about it: a plan needs less. [`Summary::depth`] puts layers
/// together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    model: String,
    batch: usize,
    rows: Vec<SummaryRow>,
    /// Bytes of the parameters that are trained.
    trained_bytes: u64,
    /// Most characters of a line.
    width: usize,
}

/// The layers of a model, and what training it takes with these settings.
///
/// ```
/// use tightfit::models;
/// use tightfit::train::{Config, summary};
///
/// let table = summary(models::mnist_cnn(10), &Config::default().batch(32))?;
/// assert_eq!(table.rows()[1].name, "conv1");
/// println!("{table}");
/// # Ok::<(), tightfit::error::TrainError>(())
/// ```
///
/// # Errors
/// Where a setting makes no sense or the model does not fit together.
pub fn summary(model: impl Into<Model>, config: &Config) -> Result<Summary, TrainError> {
    let model = model.into();
    let source = ModelSource::new(&model, config, Purpose::Training)?;
    let batch = config.batch;
    let graph_of = |samples| source.graph(Pass::Only, samples, samples, SavedActivations::Full);
    // What kernels cannot count in one piece is computed from what they can.
    let mut samples = batch;
    let graph = loop {
        match graph_of(samples) {
            Err(GraphError::TooLarge { .. }) if samples > 1 => samples /= 2,
            graph => break graph?,
        }
    };
    let half = if samples == batch || samples == 1 { None } else { Some(graph_of(samples / 2)?) };
    let bytes_of = |id: ValueId| {
        let bytes = graph.value(id).desc.size_bytes();
        let (fewer, fewer_bytes) = half.as_ref().map_or((0, 0), |half| (samples / 2, half.value(id).desc.size_bytes()));
        let grown = u128::from(bytes.saturating_sub(fewer_bytes)) * (batch - samples) as u128;
        bytes.saturating_add((grown / (samples - fewer) as u128) as u64)
    };
    let (built, layers) = model.build_layers(samples, samples, Mode::Train(config.statistics))?;
    let mut rows = vec![SummaryRow::new("input", sample_shape(&built.graph, built.input))];
    for LayerInfo { name, output, .. } in layers {
        rows.push(SummaryRow::new(&name, sample_shape(&built.graph, output)));
    }
    let model = model.name().to_owned();
    let mut summary = Summary { model, batch: config.batch, rows, trained_bytes: 0, width: usize::MAX };
    for parameter in &built.parameters {
        let desc = &built.graph.value(parameter.value).desc;
        if !source.rules.frozen.contains(&parameter.name) {
            summary.trained_bytes += desc.size_bytes();
        }
        let row = summary.row_of(&parameter.name);
        row.parameters += desc.numel();
        row.parameter_bytes += desc.size_bytes();
    }
    for state in graph.values().iter().filter(|value| value.role == Role::State) {
        // `conv1.weight.exp_avg`
        let parameter = state.name.rsplit_once('.').map_or("", |(parameter, _)| parameter);
        summary.row_of(parameter).state_bytes += state.desc.size_bytes();
    }
    for id in saved(&graph) {
        let value = graph.value(id);
        let maker = value.producer.map_or("input", |node| graph.node(node).name.as_str());
        summary.row(maker).saved_bytes += bytes_of(id);
    }
    Ok(summary.merged(str::to_owned))
}

/// What forward makes or is given, and later phases read.
fn saved(graph: &Graph) -> BTreeSet<ValueId> {
    let later = graph.nodes().iter().filter(|node| node.phase != Phase::Forward);
    let read: BTreeSet<_> = later.flat_map(|node| &node.inputs).map(|&input| graph.storage_root(input)).collect();
    let is_forward = |id: &ValueId| {
        let value = graph.value(*id);
        match value.producer {
            Some(node) => value.role == Role::Intermediate && graph.node(node).phase == Phase::Forward,
            None => value.name == crate::data::INPUT,
        }
    };
    read.into_iter().filter(is_forward).collect()
}

impl SummaryRow {
    fn new(name: &str, output: Shape) -> Self {
        let name = name.to_owned();
        SummaryRow { name, output, parameters: 0, parameter_bytes: 0, state_bytes: 0, saved_bytes: 0 }
    }
}

impl Summary {
    /// Bytes of the parameters that are trained, which are those of their gradients.
    pub fn trained_bytes(&self) -> u64 {
        self.trained_bytes
    }

    /// The layers in the order in which they are applied, the input first.
    pub fn rows(&self) -> &[SummaryRow] {
        &self.rows
    }

    /// The same with layers put together whose names agree in their first `depth` parts: at 1, `layer1.0.conv1` and
    /// `layer1.1.conv1` become `layer1`.
    #[must_use]
    pub fn depth(self, depth: usize) -> Self {
        self.merged(|name| name.split('.').take(depth.max(1)).collect::<Vec<_>>().join("."))
    }

    /// The same with layers put together so far that there are at most so many rows, if that is possible.
    #[must_use]
    pub fn at_most(self, rows: usize) -> Self {
        let deepest = self.rows.iter().map(|row| row.name.matches('.').count() + 1).max().unwrap_or(1);
        let depths = (1..=deepest).rev().map(|depth| self.clone().depth(depth));
        depths.into_iter().find(|summary| summary.rows.len() <= rows).unwrap_or_else(|| self.depth(1))
    }

    /// The same in lines of at most so many characters, where the beginnings of names leave room for that.
    #[must_use]
    pub fn width(self, width: usize) -> Self {
        Summary { width, ..self }
    }

    fn merged(self, short: impl Fn(&str) -> String) -> Self {
        let mut rows: Vec<SummaryRow> = Vec::new();
        let mut at: BTreeMap<String, usize> = BTreeMap::new();
        for row in self.rows {
            let name = short(&row.name);
            let place = *at.entry(name.clone()).or_insert(rows.len());
            match rows.get_mut(place) {
                None => rows.push(SummaryRow { name, ..row }),
                Some(sum) => {
                    sum.output = row.output;
                    sum.parameters += row.parameters;
                    sum.parameter_bytes += row.parameter_bytes;
                    sum.state_bytes += row.state_bytes;
                    sum.saved_bytes += row.saved_bytes;
                }
            }
        }
        Summary { rows, ..self }
    }

    /// The first row of this name, which is made where there is none: what belongs to no layer.
    fn row(&mut self, name: &str) -> &mut SummaryRow {
        let at = self.rows.iter().position(|row| row.name == name).unwrap_or_else(|| {
            self.rows.push(SummaryRow::new(name, Shape::from([])));
            self.rows.len() - 1
        });
        &mut self.rows[at]
    }

    /// The row of the layer that has this parameter: that of the longest name with which the parameter's begins.
    fn row_of(&mut self, parameter: &str) -> &mut SummaryRow {
        let mut name = parameter;
        while let Some((layer, _)) = name.rsplit_once('.') {
            if self.rows.iter().any(|row| row.name == layer) {
                return self.row(layer);
            }
            name = layer;
        }
        self.row(parameter)
    }

    fn total(&self) -> SummaryRow {
        let mut total = SummaryRow::new("total", Shape::from([]));
        for row in &self.rows {
            total.parameters += row.parameters;
            total.parameter_bytes += row.parameter_bytes;
            total.state_bytes += row.state_bytes;
            total.saved_bytes += row.saved_bytes;
        }
        total
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = |bytes: u64| if bytes == 0 { String::new() } else { format_bytes(bytes) };
        let cells = |row: &SummaryRow| {
            let shape = if row.output.is_empty() { String::new() } else { row.output.to_string() };
            let parameters = if row.parameters == 0 { String::new() } else { thousands(row.parameters) };
            let [weights, state, saved] = [row.parameter_bytes, row.state_bytes, row.saved_bytes].map(bytes);
            [row.name.clone(), shape, parameters, weights, state, saved]
        };
        let header = ["layer", "output", "parameters", "bytes", "optimizer", "activations"].map(str::to_owned);
        let total = self.total();
        let lines: Vec<[String; 6]> =
            std::iter::once(header).chain(self.rows.iter().chain([&total]).map(cells)).collect();
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let mut widths: [usize; 6] = std::array::from_fn(width);
        let excess = widths.iter().map(|width| width + 2).sum::<usize>().saturating_sub(self.width);
        widths[0] = widths[0].saturating_sub(excess).max(LEAST_NAME.min(widths[0]));
        let name = |name: &str| match name.chars().count().checked_sub(widths[0]) {
            None | Some(0) => name.to_owned(),
            Some(over) => "…".chars().chain(name.chars().skip(over + 1)).collect(),
        };
        let gradients = match self.trained_bytes {
            trained if trained == total.parameter_bytes => "as many bytes as parameters".to_owned(),
            trained => format!("{}, as those parameters that are trained", format_bytes(trained)),
        };
        writeln!(f, "{}, batch {}; gradients take {gradients}", self.model, self.batch)?;
        for line in &lines {
            let mut text = String::new();
            for (column, cell) in line.iter().enumerate() {
                let cell = if column == 0 { &name(cell) } else { cell };
                let padding = " ".repeat(widths[column] - cell.chars().count());
                text.push_str("  ");
                text.push_str(&if column < 2 { format!("{cell}{padding}") } else { format!("{padding}{cell}") });
            }
            writeln!(f, "{}", text.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models;
    use crate::train::Optimizer;

    #[test]
    fn bytes_are_those_of_the_joint_graph() {
        let config = Config::default().batch(2);
        let table = summary(models::mnist_mlp(10), &config).expect("builds");
        let names: Vec<_> = table.rows().iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["input", "linear1", "relu1", "linear2", "relu2", "linear3"]);
        let first = &table.rows()[1];
        assert_eq!((first.parameters, first.parameter_bytes), (784 * 512 + 512, 4 * (784 * 512 + 512)));
        assert_eq!(first.state_bytes, 2 * first.parameter_bytes, "Adam keeps two moments");
        let saved: Vec<_> = table.rows().iter().map(|row| row.saved_bytes).collect();
        // The input for the first product, what each product with its ReLU makes for itself and the next, logits for the loss.
        assert_eq!(saved, [2 * 784 * 4, 2 * 512 * 4, 0, 2 * 512 * 4, 0, 2 * 10 * 4]);
        let plain = summary(models::mnist_mlp(10), &config.optimizer(Optimizer::sgd(0.1))).expect("builds");
        assert!(plain.rows().iter().all(|row| row.state_bytes == 0));
        let text = table.to_string();
        assert!(
            text.starts_with("mnist-mlp, batch 2; gradients take as many bytes as parameters\n")
                && text.contains("669,706"),
            "{text}"
        );
        let head = summary(models::mnist_mlp(10), &Config::default().batch(2).train_only("linear3.")).expect("builds");
        let first = head.to_string().lines().next().map(str::to_owned);
        let trained = format_bytes(4 * (512 * 10 + 10));
        let expected = format!("mnist-mlp, batch 2; gradients take {trained}, as those parameters that are trained");
        assert_eq!(first, Some(expected));
    }

    #[test]
    fn layers_can_be_put_together() {
        let model = Model::new("m", [4], |x| {
            let linear = || crate::nn::Linear::new(4);
            x.within("a", |x| x.layer("1", linear()).relu().layer("2", linear())).layer("b", linear())
        });
        let table = summary(model, &Config { loss: crate::train::Loss::Mse, ..Config::default() }).expect("builds");
        let short = table.clone().depth(1);
        assert_eq!(short.rows().iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["input", "a", "b"]);
        assert_eq!(short.rows()[1].parameters, 40);
        assert_eq!(table.clone().at_most(3), short);
        assert_eq!(table.clone().at_most(0), short);
        assert_eq!(table.clone().at_most(99), table);
        assert_eq!(short.total().saved_bytes, table.total().saved_bytes);
        let model = models::builtin("efficientnet_b0").expect("is there");
        let wide = summary(model, &Config::default().batch(1).micro_batches(1)).expect("builds").at_most(48);
        let longest = |text: &str| text.lines().map(|line| line.chars().count()).max();
        assert!(longest(&wide.to_string()) > Some(80));
        let narrow = wide.clone().width(80).to_string();
        assert!(longest(&narrow) <= Some(80) && narrow.lines().count() == wide.to_string().lines().count(), "{narrow}");
        assert!(narrow.contains("  …") && wide.clone().width(usize::MAX) == wide);
    }
}

//! What a model is fed, checked before it goes to the device: shapes, types, and that integers are such as its ops can take.
//! Kernels cannot complain, they make NaN of an index that is none.

use super::loss::{Formula, Loss};
use super::objective::{Head, Objective};
use super::settings::Config;
use crate::data::{
    Batch, DataLoader, Features, INPUT, SAMPLE_WEIGHT, TARGET, TensorDataset, Values, moved_channels, shown_label,
};
use crate::error::{DataError, TrainError, nearest};
use crate::graph::{Graph, Role};
use crate::nn::{Mode, Model, RUN};
use crate::ops::Integers;
use crate::tensor::{DType, Shape, TensorDesc};

/// What a model and its loss take of each sample.
#[derive(Clone, Debug)]
pub(super) struct Fed {
    inputs: Vec<Entry>,
    /// The target of each loss, with what the model makes for it of a sample.
    targets: Vec<(Head, Entry, Shape)>,
    /// The weights of samples, where they have some.
    weights: Option<Entry>,
}

/// An input, or the target.
#[derive(Clone, Debug)]
struct Entry {
    name: String,
    dtype: DType,
    /// Of one sample.
    shape: Shape,
    integers: Option<Range>,
}

/// Which integers an entry may hold.
#[derive(Clone, Debug)]
struct Range {
    least: u32,
    most: u32,
    besides: Option<u32>,
    /// The layer that says so.
    layer: String,
}

impl Range {
    fn new(integers: Integers, layer: &str) -> Self {
        let whole = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let (least, most, besides) = match integers {
            Integers::Indices { count, besides } => (0, whole(count.saturating_sub(1)), besides),
            Integers::Steps { end } => (1, whole(end), None),
        };
        Range { least, most, besides, layer: layer.to_owned() }
    }

    /// What two ops can take, the second of which wants this.
    fn and(self, integers: Integers, layer: &str) -> Self {
        let other = Range::new(integers, layer);
        let (narrow, wide) = if self.most <= other.most { (self, other) } else { (other, self) };
        match integers {
            // Parts of a sequence: the longest says how long it is.
            Integers::Steps { .. } => wide,
            Integers::Indices { .. } => {
                let besides = narrow.besides.filter(|label| wide.besides == Some(*label) || *label <= wide.most);
                Range { besides, ..narrow }
            }
        }
    }

    fn holds(&self, value: u32) -> bool {
        (self.least..=self.most).contains(&value) || self.besides == Some(value)
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}` takes {} to {}", self.layer, self.least, self.most)?;
        self.besides.map_or(Ok(()), |label| write!(f, ", and {} for what does not count", shown_label(label)))
    }
}

impl Fed {
    pub(super) fn new(model: &Model, objective: &Objective) -> Result<Self, TrainError> {
        let built = model.build(1, Mode::Evaluate)?;
        let graph = &built.graph;
        let inputs = graph.values().iter().filter(|value| value.role == Role::Input && value.name != RUN);
        let entry = |name: &str, desc: &TensorDesc, integers| {
            let shape = Shape::from(desc.shape.get(1..).unwrap_or_default());
            Entry { name: name.to_owned(), dtype: desc.dtype, shape, integers }
        };
        let inputs = inputs.map(|value| entry(&value.name, &value.desc, integers_of(graph, &value.name))).collect();
        let target = |head: &Head| -> Result<_, TrainError> {
            let prediction = &graph.value(Objective::output(&built, head)?).desc.shape;
            let (target, scores) = head.loss.shapes(prediction);
            let descs = [TensorDesc::f32(scores), target.clone()];
            let ops = head.loss.terms().into_iter().filter_map(|(_, loss)| Some((loss.single_op()?, loss)));
            let ranges = ops.filter_map(|(op, loss)| Some((op.integers(1, &descs)?, loss)));
            let integers = ranges.fold(None, |range: Option<Range>, (integers, loss)| {
                let layer = loss.to_string();
                Some(range.map_or_else(|| Range::new(integers, &layer), |range| range.and(integers, &layer)))
            });
            let integers = match integers {
                // A formula says it by the ops that read the target.
                None if target.dtype == DType::U32 => Formula::new(&head.loss, prediction)
                    .ok()
                    .and_then(|Formula { graph, target, .. }| integers_of(&graph, &graph.value(target).name)),
                integers => integers,
            };
            Ok((head.clone(), entry(&head.target, &target, integers), Shape::from(&prediction[1..])))
        };
        let targets = objective.heads.iter().map(target).collect::<Result<_, _>>()?;
        let weights = objective.sample_weights.then(|| entry(SAMPLE_WEIGHT, &TensorDesc::f32([1]), None));
        Ok(Fed { inputs, targets, weights })
    }

    /// Each loss, with what the model makes for it of a sample.
    pub(super) fn heads(&self) -> impl Iterator<Item = (&Head, &Shape)> {
        self.targets.iter().map(|(head, _, output)| (head, output))
    }

    /// Whether an input of a graph is of the samples, not of the step.
    pub(super) fn takes(&self, name: &str) -> bool {
        self.inputs.iter().chain(self.targets.iter().map(|(_, target, _)| target)).any(|entry| entry.name == name)
    }

    /// The same without losses: what predictions take.
    pub(super) fn of_inputs(&self) -> Self {
        Fed { inputs: self.inputs.clone(), targets: Vec::new(), weights: None }
    }

    /// Whether the model can take samples that have this, and the loss their targets.
    pub(super) fn check(&self, features: &Features) -> Result<(), DataError> {
        self.inputs.iter().try_for_each(|entry| entry.check(features))?;
        self.weights.iter().try_for_each(|weights| weights.check(features))?;
        for (head, target, output) in &self.targets {
            if head.target == TARGET && !matches!(head.loss, Loss::Custom(_)) {
                head.loss.check_targets(output, &features.target())?;
            } else {
                target.check(features)?;
            }
        }
        Ok(())
    }

    /// Whether all samples can be taken, as far as that shows before they are read. Whether each batch is to be looked at, too.
    pub(super) fn check_all(&self, data: &DataLoader<'_>) -> Result<bool, DataError> {
        self.check(&data.features()?)?;
        let Some(tensors) = data.tensors() else { return Ok(true) };
        self.check_tensors(tensors, &(0..tensors.len()))?;
        Ok(false)
    }

    /// Whether indices and labels of these samples are some that the model and the loss know.
    fn check_tensors(
        &self,
        data: &TensorDataset,
        samples: &(impl Iterator<Item = usize> + Clone),
    ) -> Result<(), DataError> {
        self.integers().try_for_each(|entry| {
            let Some((values, shape)) = data.integers(&entry.name) else { return Ok(()) };
            entry.check_integers(values, shape, samples.clone().map(|sample| (sample, sample)))
        })
    }

    /// As [`check_tensors`](Self::check_tensors), of a batch.
    pub(super) fn check_batch(&self, batch: &Batch) -> Result<(), DataError> {
        self.integers().try_for_each(|entry| {
            let (Some(Values::U32(values)), Some((_, shape))) = (batch.get(&entry.name), batch.feature(&entry.name))
            else {
                return Ok(());
            };
            entry.check_integers(values, shape, batch.indices().iter().copied().enumerate())
        })
    }

    fn integers(&self) -> impl Iterator<Item = &Entry> {
        self.inputs.iter().chain(self.targets.iter().map(|(_, target, _)| target))
    }
}

/// Whether the model can take all samples of `data`, and the loss their targets: what [`Trainer::fit`](super::Trainer::fit) and
/// [`Trainer::evaluate`](super::Trainer::evaluate) see to before they begin, without a plan.
///
/// # Errors
/// Where the model does not fit together, or the data does not fit it or its loss.
pub fn check_data<'a>(
    model: impl Into<Model>,
    config: &Config,
    data: impl Into<DataLoader<'a>>,
) -> Result<(), TrainError> {
    Fed::new(&model.into(), &Objective::new(config)?)?.check_all(&data.into())?;
    Ok(())
}

/// What all ops that read an input can take.
fn integers_of(graph: &Graph, name: &str) -> Option<Range> {
    let mut range: Option<Range> = None;
    for node in graph.nodes() {
        let descs: Vec<_> = node.inputs.iter().map(|&id| graph.value(id).desc.clone()).collect();
        let read = node.inputs.iter().enumerate().filter(|(_, id)| graph.value(**id).name == name);
        for integers in read.filter_map(|(i, _)| node.op.integers(i, &descs)) {
            range = Some(match range {
                None => Range::new(integers, &node.name),
                Some(range) => range.and(integers, &node.name),
            });
        }
    }
    range
}

impl Entry {
    /// Whether the data have it, in this shape and type.
    fn check(&self, features: &Features) -> Result<(), DataError> {
        let Entry { name, dtype, shape: expected, .. } = self;
        let Some((found, shape)) = features.get(name) else {
            let text = format!("the model takes an input `{name}`, which the data lacks");
            let names = features.entries().map(|(name, _)| name).filter(|name| *name != TARGET);
            let advice = match nearest(name, names).first() {
                Some(near) => format!("the data has `{near}`, which may be meant"),
                None => "add it with TensorDataset::with_input".to_owned(),
            };
            return Err(DataError::Mismatch(format!("{text}: {advice}")));
        };
        if shape != expected {
            return Err(DataError::Mismatch(other_shape(name, expected, shape)));
        }
        // Bytes become numbers on the way to a model that takes numbers.
        let is_taken = found == *dtype || (found, *dtype) == (DType::U8, DType::F32);
        if !is_taken {
            let [takes, has] = [*dtype, found].map(|dtype| match dtype {
                DType::U32 => "tokens (u32)",
                DType::U8 => "bytes (u8)",
                DType::F32 | DType::F16 | DType::BF16 => "numbers (f32)",
            });
            return Err(DataError::Mismatch(format!("the model takes {takes} as `{name}`, the data has {has}")));
        }
        Ok(())
    }

    /// Whether these samples hold what it may: each is a place among the values, and a number in the dataset.
    fn check_integers(
        &self,
        values: &[u32],
        shape: &Shape,
        samples: impl Iterator<Item = (usize, usize)>,
    ) -> Result<(), DataError> {
        let Some(range) = &self.integers else { return Ok(()) };
        let numel = shape.numel();
        for (place_in_values, sample) in samples {
            // An index past the end is refused when the batch is read.
            let values = values.get(place_in_values * numel..(place_in_values + 1) * numel).unwrap_or_default();
            if let Some(at) = values.iter().position(|&value| !range.holds(value)) {
                let (name, value, place) = (&self.name, shown_label(values[at]), place(shape, at));
                return Err(DataError::Mismatch(format!(
                    "`{name}` of sample {sample} holds {value}{place}, but {range}"
                )));
            }
        }
        Ok(())
    }
}

/// What to say of an input of the model that the data has in another shape.
fn other_shape(name: &str, expected: &Shape, found: &Shape) -> String {
    if let Some(moved) = moved_channels(found, expected) {
        return format!("the model takes images of shape {expected}: {moved}");
    }
    let what = if name == INPUT { "samples".to_owned() } else { format!("`{name}`") };
    let advice = if name == INPUT && expected.numel() == found.numel() {
        "TensorDataset::with_sample_shape gives the data the model's shape"
    } else {
        "give the model the input of the data, or the data the shape of the model"
    };
    format!("the model takes {what} of shape {expected}, the data has {found}: {advice}")
}

/// ` at [3, 5]`: where in a sample an element is; nothing where a sample is one number.
pub(super) fn place(shape: &Shape, element: usize) -> String {
    if shape.is_empty() {
        return String::new();
    }
    let place: Vec<_> = shape.iter().zip(shape.strides()).map(|(&extent, stride)| element / stride % extent).collect();
    format!(" at {place:?}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Dataset as _, Targets};
    use crate::nn::{Embedding, Gru, Input, Lstm, Sequential};
    use crate::ops::embedding::gather::Gather;

    fn check(model: impl Into<Model>, loss: &Loss, data: &TensorDataset) -> Result<(), String> {
        let objective = Objective::new(&Config::default().loss(loss.clone())).expect("possible");
        let fed = Fed::new(&model.into(), &objective).expect("fits together");
        let checked = fed.check(&data.features().expect("known"));
        checked.and_then(|()| fed.check_tensors(data, &(0..data.len()))).map_err(|error| error.to_string())
    }

    fn tokens(shape: &[usize], tokens: &[u32]) -> TensorDataset {
        let samples = tokens.len() / shape.iter().product::<usize>();
        TensorDataset::new(Values::U32(tokens.to_vec()), shape.to_vec(), Targets::labels(vec![0; samples], 2))
            .expect("fits")
    }

    #[test]
    fn tokens_are_rows_of_all_tables() {
        let model = || Sequential::new("words", Input::tokens([3])).push(Embedding::new(10, 4)).flatten().linear(2);
        let check = |data: &[u32]| check(model(), &Loss::default(), &tokens(&[3], data));
        assert_eq!(check(&[0, 1, 9, 9, 0, 0]), Ok(()));
        let error = check(&[0, 1, 2, 3, 4, 10]).expect_err("10 of 10");
        assert_eq!(error, "`input` of sample 1 holds 10 at [2], but `embedding1` takes 0 to 9");
        assert!(check(&[u32::MAX, 1, 2]).expect_err("-1").contains("sample 0 holds -1 at [0]"));
    }

    #[test]
    fn lengths_go_from_1_to_all_steps() {
        // Long sequences run in chunks, each of which knows its own end only.
        for time in [4, 200] {
            let lstm = Sequential::new("series", [time, 1]).push(Lstm::new(2).lengths(true).num_layers(2)).linear(2);
            let both = Gru::new(2).lengths(true).bidirectional(true);
            for model in [lstm, Sequential::new("series", [time, 1]).push(both).linear(2)] {
                let check = |lengths: [u32; 2]| {
                    let data =
                        TensorDataset::new(Values::F32(vec![0.5; 2 * time]), [time, 1], Targets::labels(vec![0; 2], 2));
                    let data = data.expect("fits").with_input("lengths", Values::U32(lengths.to_vec()), []);
                    check(model.clone(), &Loss::default(), &data.expect("fits"))
                };
                assert_eq!(check([1, time as u32]), Ok(()));
                for (wrong, lengths) in [(0, [2, 0]), (time + 1, [1, time as u32 + 1])] {
                    let error = check(lengths).expect_err("out of range");
                    let found = format!("`lengths` of sample 1 holds {wrong}, but ");
                    assert!(error.starts_with(&found) && error.ends_with(&format!("takes 1 to {time}")), "{error}");
                }
            }
        }
    }

    #[test]
    fn labels_are_classes_or_what_every_term_of_the_loss_ignores() {
        let check = |ignored: [Option<i64>; 2]| {
            let mut labels = vec![0; 24];
            labels[12 + 3 * 2 + 1] = -100;
            let targets = Targets::signed_labels(labels, 5, [4, 3]).ignoring(-100);
            let data = TensorDataset::new(Values::F32(vec![0.5; 48]), [2, 4, 3], targets).expect("fits");
            let dice = |ignore_index| (1.0, Loss::Dice { sigmoid: false, smooth: 1.0, ignore_index });
            let loss = Loss::Sum { terms: ignored.map(dice).to_vec() };
            check(Sequential::new("pixels", [2, 4, 3]).conv2d(5, 1), &loss, &data)
        };
        assert_eq!(check([Some(-100); 2]), Ok(()));
        let error = check([Some(-100), None]).expect_err("one term counts it");
        assert_eq!(error, "`target` of sample 1 holds -100 at [2, 1], but `dice` takes 0 to 4");
    }

    #[test]
    fn indices_of_an_op_that_the_model_brings_itself() {
        let model = Model::new("picked", [5], |x| {
            let index = x.input("index", Input::tokens([2])).value();
            x.with_ops("pick", |scope, x| scope.apply(Gather { axis: 1 }, &[x, index]))
        });
        let check = |index: Vec<u32>| {
            let data =
                TensorDataset::new(Values::F32(vec![0.5; 10]), [5], Targets::labels(vec![0; 2], 2)).expect("fits");
            let data = data.with_input("index", Values::U32(index), [2]).expect("fits");
            check(model.clone(), &Loss::default(), &data)
        };
        assert_eq!(check(vec![4, 0, 1, 2]), Ok(()));
        assert_eq!(
            check(vec![0, 0, 1, 5]).expect_err("no such element"),
            "`index` of sample 1 holds 5 at [1], but `pick` takes 0 to 4"
        );
    }
}

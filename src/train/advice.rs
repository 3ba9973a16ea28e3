//! What works as it was asked for, but is hardly what was meant.

use super::loss::Loss;
use super::settings::Config;
use crate::error::GraphError;
use crate::graph::{Graph, Node, Role};
use crate::nn::{Built, Mode, Model};
use crate::ops::{Call, Input, Op, Output, Probabilities};
use crate::tensor::{Shape, TensorDesc, ValueId};

/// Words about a model and settings that fit together but make little sense, such as a softmax at the end of a model whose
/// loss applies softmax itself, or none where it does not. None where there is nothing to say.
///
/// # Errors
/// Where the model does not fit together.
pub fn warnings(model: &Model, config: &Config) -> Result<Vec<String>, GraphError> {
    let Built { graph, output, .. } = model.build(1, Mode::Evaluate)?;
    let mut warnings: Vec<_> = reads_channels_last(model).into_iter().collect();
    warnings.extend(has_batch(model, &Shape::from(&graph.value(output).desc.shape[1..])));
    let losses: Vec<_> = config.loss.terms().into_iter().map(|(_, loss)| loss).collect();
    let prediction = &graph.value(output).desc.shape;
    if let Some(loss) = losses.iter().find(|loss| has_one_class(loss, prediction)) {
        warnings.push(format!(
            "the model makes one score where the loss {loss} chooses among classes: with one class there is nothing to learn; \
             make an output for each class, or use the loss bce-with-logits for yes or no"
        ));
    }
    // Views of an output are the same numbers.
    let Some(node) = graph.value(graph.storage_root(output)).producer.map(|id| graph.node(id)) else {
        return Ok(warnings);
    };
    let end = format!("the model ends in {} (`{}`)", node.op.name(), node.name);
    let made = made(&graph, node);
    let advice = losses.iter().filter_map(|loss| advice(loss, made)).map(|advice| format!("{end}, {advice}"));
    warnings.extend(advice);
    Ok(warnings)
}

/// Whether a loss chooses among classes of which there is one.
fn has_one_class(loss: &Loss, prediction: &Shape) -> bool {
    let chooses =
        matches!(loss, Loss::CrossEntropy { .. } | Loss::SoftCrossEntropy { .. } | Loss::Dice { sigmoid: false, .. });
    chooses && loss.shapes(prediction).1.get(1) == Some(&1)
}

/// That an input looks like an image with its channels last, which the model takes for many channels of a narrow one.
fn reads_channels_last(model: &Model) -> Option<String> {
    let (first, input) = (model.channels_first()?, model.input_shape());
    let [channels, height, width] = input[..] else { return None };
    Some(format!(
        "`{}` reads its input {input} as {channels} channels of {height} by {width}: if the channels are last, write {first}",
        model.name()
    ))
}

/// That an input begins with an extent of 1 that does nothing but come out again, as that of a batch.
fn has_batch(model: &Model, output: &Shape) -> Option<String> {
    let (&[1, ref sample @ ..], &[1, ref made @ ..]) = (&model.input_shape()[..], &output[..]) else { return None };
    let without = model.clone().with_input(Shape::from(sample));
    let is_same = !sample.is_empty() && without.output_shape().is_ok_and(|shape| shape[..] == *made);
    is_same.then(|| {
        format!(
            "`{}` makes {output} of its input {}: if the first 1 is the batch, leave it out, an input is one sample",
            model.name(),
            model.input_shape()
        )
    })
}

/// What the numbers are that a model makes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Made {
    Probabilities(Probabilities),
    /// They go from here to there, as far as that is known.
    Between(f64, f64),
}

/// Inputs on which a function of single elements is tried.
const PROBES: [f64; 9] = [-50.0, -7.0, -2.0, -0.5, 0.0, 0.5, 2.0, 7.0, 50.0];

/// What a node makes, where its op says so, its inputs do, or trying it does.
fn made(graph: &Graph, last: &Node) -> Option<Made> {
    let mut node = last;
    loop {
        let is_last = std::ptr::eq(node, last);
        if let Some(probabilities) = node.op.probabilities() {
            // What was done to them may have made something else of them.
            return is_last.then_some(Made::Probabilities(probabilities));
        }
        // Weights may be any number, and so may what is made with them.
        if node.inputs.iter().any(|&input| graph.value(graph.storage_root(input)).role == Role::Parameter) {
            return Some(Made::Between(f64::NEG_INFINITY, f64::INFINITY));
        }
        let [input] = node.inputs[..] else { return None };
        if node.op.elementwise().is_some() {
            let (least, most) = range(&*node.op);
            let is_share = is_last && least >= 0.0 && most <= 1.0;
            return Some(if is_share {
                Made::Probabilities(Probabilities::Sigmoid)
            } else {
                Made::Between(least, most)
            });
        }
        node = producer(graph, input)?;
    }
}

fn producer(graph: &Graph, value: ValueId) -> Option<&Node> {
    graph.value(graph.storage_root(value)).producer.map(|id| graph.node(id))
}

/// From where to where the values of a function of single elements go.
fn range(op: &dyn Op) -> (f64, f64) {
    let desc = [TensorDesc::f32([PROBES.len()])];
    let mut values = vec![0.0; PROBES.len()];
    op.run_f64(&mut Call {
        input_descs: &desc,
        output_descs: &desc,
        inputs: vec![Input::Real(&PROBES)],
        outputs: vec![Output::Real(&mut values)],
        mutated: Vec::new(),
    });
    let end = |of: fn(f64, f64) -> f64| values.iter().copied().reduce(of).unwrap_or(f64::NAN);
    (end(f64::min), end(f64::max))
}

/// What is wrong with a loss of what a model makes.
fn advice(loss: &Loss, made: Option<Made>) -> Option<String> {
    let takes_probabilities = !loss.to_logits().is_empty();
    let made = match made? {
        Made::Probabilities(made) => made,
        Made::Between(least, most) => {
            return takes_probabilities.then(|| no_probabilities(loss, least, most)).flatten();
        }
    };
    let applied = match loss {
        _ if takes_probabilities => None,
        Loss::CrossEntropy { .. } | Loss::SoftCrossEntropy { .. } | Loss::Dice { sigmoid: false, .. } => {
            Some(Probabilities::Softmax)
        }
        Loss::BceWithLogits { .. } | Loss::Dice { sigmoid: true, .. } => Some(Probabilities::Sigmoid),
        _ => None,
    };
    let instead = match loss {
        Loss::CrossEntropy { .. } | Loss::SoftCrossEntropy { .. } => ", or set from_logits = false in the loss",
        Loss::BceWithLogits { .. } => ", or use the loss bce",
        _ => "",
    };
    let again = |name: &str, instead: &str| {
        format!("and the loss {loss} applies {name} to its outputs itself: take the last layer out{instead}")
    };
    match (made, applied) {
        (Probabilities::LogSoftmax, None) if takes_probabilities => {
            Some(format!("but the loss {loss} takes probabilities, not their logarithms: end it in softmax"))
        }
        (Probabilities::LogSoftmax, Some(Probabilities::Softmax)) => Some(format!(
            "which the loss {loss} applies itself: once more changes nothing but takes time, take the last layer out"
        )),
        (made, Some(Probabilities::Sigmoid)) => {
            Some(again("sigmoid", if made == Probabilities::Sigmoid { instead } else { "" }))
        }
        (made, Some(_)) => Some(again("softmax", if made == Probabilities::Softmax { instead } else { "" })),
        (_, None) => None,
    }
}

/// What to say of a loss on probabilities, where a model makes numbers that are none.
fn no_probabilities(loss: &Loss, least: f64, most: f64) -> Option<String> {
    let (end, instead) = match loss {
        Loss::Bce { .. } if least < 0.0 || most > 1.0 => ("sigmoid", "use the loss bce-with-logits"),
        // Those of a class count relative to their sum.
        Loss::CrossEntropy { .. } | Loss::SoftCrossEntropy { .. } if least < 0.0 => {
            ("softmax", "leave from_logits = false out")
        }
        _ => return None,
    };
    let what = if least < 0.0 { "of 0 or above" } else { "of at most 1" };
    Some(format!(
        "but the loss {loss} takes probabilities, numbers {what}, and learns little or nothing of others: end it in {end}, or \
         {instead}"
    ))
}

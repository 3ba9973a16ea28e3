//! What works as it was asked for, but is hardly what was meant.

use super::loss::Loss;
use super::settings::Config;
use crate::error::GraphError;
use crate::nn::{Mode, Model};
use crate::ops::Probabilities;

/// Words about a model and settings that fit together but make little sense, such as a softmax at the end of a model whose
/// loss applies softmax itself. None where there is nothing to say.
///
/// # Errors
/// Where the model does not fit together.
pub fn warnings(model: &Model, config: &Config) -> Result<Vec<String>, GraphError> {
    let built = model.build(1, Mode::Evaluate)?;
    let graph = &built.graph;
    // Views of an output are the same numbers.
    let node = graph.value(graph.storage_root(built.output)).producer.map(|id| graph.node(id));
    let Some((node, made)) = node.and_then(|node| Some((node, node.op.probabilities()?))) else {
        return Ok(Vec::new());
    };
    let end = format!("the model ends in {} (`{}`)", node.op.name(), node.name);
    let losses = config.loss.terms().into_iter();
    Ok(losses.filter_map(|(_, loss)| advice(loss, made)).map(|advice| format!("{end}, {advice}")).collect())
}

/// What is wrong with a loss of what a model makes.
fn advice(loss: &Loss, made: Probabilities) -> Option<String> {
    let takes_probabilities = !loss.to_logits().is_empty();
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

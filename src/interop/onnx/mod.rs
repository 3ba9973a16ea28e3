//! Models in ONNX.
//!
//! [`read`] makes a [`Model`] of a file's graph, with its initializers as weights by the names that they have there.
//!
//! ```no_run
//! use tightfit::interop::onnx;
//! use tightfit::train::{Config, Loss, Optimizer, Trainer};
//!
//! let imported = onnx::read("model.onnx".as_ref())?;
//! let config = Config::default().batch(8).loss(Loss::cross_entropy()).optimizer(Optimizer::adam(1e-3));
//! let mut trainer = Trainer::new(imported.model, config, "cpu")?;
//! imported.weights.apply(&mut trainer)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The first input is the model's, the first output what it makes. The first axis of both is the batch: in the file it is free, or it is 1
//! and the model is one for any number of samples. Other inputs are [inputs by name](crate::nn::Tensor::input), other outputs
//! [outputs by name](crate::nn::Tensor::output), as far as they have the batch in front.
//!
//! Floating-point initializers with at least one axis are parameters; statistics of batch normalization, and tensors with values that are
//! not finite, such as masks, are buffers. What follows from constants and shapes alone is computed when the graph is made. Opsets
//! 13 to the newest are read, and back to 7 as far as operators have not changed. `docs/onnx.md` has the operators.

mod call;
mod constant;
mod export;
mod fold;
mod functions;
mod ir;
#[cfg(test)]
mod node_tests;
mod operators;
mod patterns;
mod proto;
mod walk;

pub use export::{Options, write};

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use prost::Message as _;

use self::constant::Constant;
use self::ir::{Graph, Wrong};
use self::walk::Record;
use super::{ChannelOrder, ImportedModel, Pixels, Weight, Weights};
use crate::error::{DataError, ImportError};
use crate::files;
use crate::nn::{Mode, Model};

/// Bytes of a file at most: what a message of this format may have.
const MAX_BYTES: u64 = 2 << 30;

/// Reads a model.
///
/// # Errors
/// Where the file cannot be read, is no ONNX model, or has something that is not there here: the message names the node, its operator and
/// its version.
pub fn read(path: &Path) -> Result<ImportedModel, ImportError> {
    read_with(path, None)
}

/// As [`read`], where more of the first input is free than the batch: `sample` is the shape of one sample.
///
/// # Errors
/// As [`read`], or where samples have another number of axes.
pub fn read_sized(path: &Path, sample: &[usize]) -> Result<ImportedModel, ImportError> {
    read_with(path, Some(sample))
}

fn read_with(path: &Path, sample: Option<&[usize]>) -> Result<ImportedModel, ImportError> {
    let bytes = files::read(path, MAX_BYTES, "give a model in ONNX")?;
    // On one line, and no longer than one reads.
    let clean = |text: &str| text.chars().take(800).map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
    let refused = |wrong: Wrong| ImportError::Unsupported {
        path: path.to_owned(),
        place: clean(&wrong.place),
        reason: clean(&wrong.reason),
    };
    let model = decode(path, &bytes)?;
    drop(bytes);
    let graph = ir::check(model, path.parent()).map_err(refused)?;
    let name = path.file_stem().map_or_else(|| "onnx".to_owned(), |stem| stem.to_string_lossy().into_owned());
    import(name, graph, sample).map_err(|wrong| match wrong {
        Refused::Wrong(wrong) => refused(wrong),
        Refused::Error(error) => error,
    })
}

fn decode(path: &Path, bytes: &[u8]) -> Result<proto::Model, ImportError> {
    let corrupt = |reason: String| DataError::Corrupt { path: path.to_owned(), reason };
    let model = proto::Model::decode(bytes)
        .map_err(|error| corrupt(format!("is no model in ONNX: {}", error.to_string().escape_debug())))?;
    if model.graph.is_none() {
        return Err(corrupt("is no model in ONNX: it has no graph".to_owned()).into());
    }
    Ok(model)
}

enum Refused {
    Wrong(Wrong),
    Error(ImportError),
}

fn import(name: String, mut graph: Graph, sample: Option<&[usize]>) -> Result<ImportedModel, Refused> {
    patterns::apply(&mut graph);
    let mut values = std::mem::take(&mut graph.weights);
    let input = walk::sample(&graph, sample).map_err(Refused::Wrong)?;
    let is_of_bytes = graph.inputs.first().is_some_and(|first| first.kind == proto::element::UINT8);
    let pixels = if is_of_bytes { Pixels::Bytes } else { Pixels::Unknown };
    let graph = Arc::new(graph);
    // For two numbers of samples, so that what holds for one alone is found.
    let mut records = Vec::new();
    for batch in [2, 3, 1] {
        let record = Arc::new(Mutex::new(Record::default()));
        let (walked, noted) = (graph.clone(), record.clone());
        let trial = Model::new(&name[..], input.clone(), move |x| walk::forward(&walked, x, Some(&noted)));
        let built = trial.build(batch, Mode::Evaluate);
        let record = std::mem::take(&mut *record.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(wrong) = record.wrong {
            return Err(Refused::Wrong(wrong));
        }
        built.map_err(|error| Refused::Error(error.into()))?;
        records.push(record);
    }
    let record = records.remove(0);
    for other in &records {
        let differing = record.constants.iter().find(|(name, constant)| other.constants.get(*name) != Some(constant));
        if let Some((name, _)) = differing {
            return Err(Refused::Wrong(Wrong {
                place: format!("`{}`", ir::shown(name)),
                reason: "it depends on the number of samples, and not on them: such a tensor cannot be kept".to_owned(),
            }));
        }
    }
    let weights = weights_of(record, &mut values);
    let model = Model::new(name, input, move |x| walk::forward(&graph, x, None));
    Ok(ImportedModel {
        model,
        weights,
        loss: None,
        optimizer: None,
        input_order: ChannelOrder::First,
        output_order: ChannelOrder::First,
        pixels,
        frozen: Vec::new(),
    })
}

/// Values of the parameters and buffers of a graph that was walked.
fn weights_of(record: Record, values: &mut BTreeMap<usize, Constant>) -> Weights {
    let mut weights = Weights::new();
    for (name, constant) in record.constants {
        let shape = call::physical(&constant.shape);
        weights.insert(name, Weight::new(shape, constant.to_floats()).expect("bug: a constant of another shape"));
    }
    for (name, number) in record.weights {
        let constant = values.remove(&number).expect("bug: a weight without values");
        weights.insert(
            name,
            Weight::new(constant.shape.clone(), constant.to_floats()).expect("bug: a weight of another shape"),
        );
    }
    weights
}

/// The operators that are read, as a table of Markdown.
pub fn operators() -> String {
    operators::table()
}

use serde::{Deserialize, Serialize};

use super::{Init, Module, Scope};
use crate::error::GraphError;
use crate::ops::elementwise::bias_add::BiasAdd;
use crate::ops::embedding::embedding;
use crate::ops::shape::reshape::Reshape;
use crate::ops::shape::slice::Slice;
use crate::tensor::{DType, ValueId, format_number};

/// A row of a table for each token, for samples of tokens `[time]` (or of any shape).
///
/// Parameters: `weight [num_embeddings, embedding_dim]`, which starts normal with deviation 1 as in PyTorch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Embedding {
    num_embeddings: usize,
    embedding_dim: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    padding_idx: Option<u32>,
    #[serde(default = "one")]
    std: f32,
}

fn one() -> f32 {
    1.0
}

impl Embedding {
    /// A table of `num_embeddings` rows of `embedding_dim` numbers.
    pub fn new(num_embeddings: usize, embedding_dim: usize) -> Self {
        Embedding { num_embeddings, embedding_dim, padding_idx: None, std: one() }
    }

    /// A token whose row is zeros and stays so.
    #[must_use]
    pub fn padding_idx(mut self, token: u32) -> Self {
        self.padding_idx = Some(token);
        self
    }

    /// The deviation from which the table starts.
    #[must_use]
    pub fn std(mut self, std: f32) -> Self {
        self.std = std;
        self
    }
}

/// Deviations are not negative.
fn check_std(scope: &Scope<'_>, std: f32) -> Result<(), GraphError> {
    if std.is_finite() && std >= 0.0 {
        Ok(())
    } else {
        Err(scope.error(format!("std must be at least 0, found {}", format_number(std))))
    }
}

impl Module for Embedding {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        scope.check_setting("num_embeddings", self.num_embeddings, 1)?;
        scope.check_setting("embedding_dim", self.embedding_dim, 1)?;
        check_std(scope, self.std)?;
        if scope.desc(input).dtype != DType::U32 {
            let found = scope.desc(input).to_string();
            return Err(scope.error(format!(
                "expects tokens, found {found}: put it first in a model whose input is tokens (`tokens = true` in a model file, \
                 Input::tokens in Rust)"
            )));
        }
        let init = match self.padding_idx {
            None => Init::Normal { std: self.std },
            Some(row) => Init::NormalRows { std: self.std, columns: self.embedding_dim, zero: row as usize },
        };
        let weight = scope.parameter("weight", [self.num_embeddings, self.embedding_dim], init)?;
        scope.apply(embedding::Embedding { padding_idx: self.padding_idx }, &[input, weight])
    }
}

/// Adds a trained vector for each place of a sequence, for samples `[time, features]` of at most `max_length` places.
///
/// Parameters: `weight [max_length, features]`, which starts normal with deviation 0.02 as in GPT-2.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PositionalEmbedding {
    max_length: usize,
    #[serde(default = "gpt")]
    std: f32,
}

fn gpt() -> f32 {
    0.02
}

impl PositionalEmbedding {
    /// For sequences of up to this length.
    pub fn new(max_length: usize) -> Self {
        PositionalEmbedding { max_length, std: gpt() }
    }

    /// The deviation from which the vectors start.
    #[must_use]
    pub fn std(mut self, std: f32) -> Self {
        self.std = std;
        self
    }
}

impl Module for PositionalEmbedding {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        scope.check_setting("max_length", self.max_length, 1)?;
        check_std(scope, self.std)?;
        let shape = scope.shape(input);
        let [batch, time, features] = shape[..] else {
            return Err(scope.wrong_input("a sample of shape [time, features]", &shape, ""));
        };
        if time > self.max_length {
            return Err(scope.error(format!("a sequence of {time} is longer than max_length = {}", self.max_length)));
        }
        let weight = scope.parameter("weight", [self.max_length, features], Init::Normal { std: self.std })?;
        // One number for each element of a sample is a bias for each element of a vector. (A table in one row is cut along
        // axis 1, not along what would be the batch.)
        let mut table = weight;
        if time < self.max_length {
            table = scope.apply(Reshape { shape: [1, self.max_length * features].into() }, &[table])?;
            table = scope.apply(Slice { axis: 1, start: 0, length: time * features }, &[table])?;
        }
        let bias = scope.apply(Reshape { shape: [time * features].into() }, &[table])?;
        let flat = scope.apply(Reshape { shape: [batch, time * features].into() }, &[input])?;
        let sum = scope.apply(BiasAdd, &[flat, bias])?;
        scope.apply(Reshape { shape: shape.into() }, &[sum])
    }
}

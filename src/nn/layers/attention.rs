use serde::{Deserialize, Serialize};

use super::dropout::{dropout, drops};
use super::linear::{project, yes};
use super::{Init, Module, Scheme, Scope};
use crate::error::GraphError;
use crate::ops::elementwise::scale::Scale;
use crate::ops::matmul::matmul::MatMul;
use crate::ops::reduce::softmax::Softmax;
use crate::ops::shape::permute::Permute;
use crate::ops::shape::reshape::Reshape;
use crate::ops::shape::split::Split;
use crate::tensor::{Shape, ValueId};

/// `softmax(query · keyᵀ / √D) · value` for each sample and head, with dropout on what the softmax makes.
///
/// Shapes: query `[batch, heads, queries, D]`, key `[batch, heads, keys, D]`, value `[batch, heads, keys, E]`, output
/// `[batch, heads, queries, E]`. With `causal`, query i sees the keys up to `i + keys − queries`.
///
/// Source: <https://arxiv.org/abs/1706.03762>, section 3.2.1
pub(in crate::nn) fn attention(
    scope: &mut Scope<'_>,
    query: ValueId,
    key: ValueId,
    value: ValueId,
    causal: bool,
    p: f32,
) -> Result<ValueId, GraphError> {
    let [q, k, v] = [query, key, value].map(|tensor| scope.shape(tensor));
    let fits = q.len() == 4 && k.len() == 4 && v.len() == 4 && q[..2] == k[..2] && k[..3] == v[..3] && q[3] == k[3];
    if !fits {
        let [q, k, v] = [q, k, v].map(Shape::from);
        return Err(scope.error(format!(
            "expects query [batch, heads, queries, D], key [batch, heads, keys, D] and value [batch, heads, keys, E], \
             found {q}, {k} and {v}"
        )));
    }
    let (batch, heads, queries, keys) = (q[0], q[1], q[2], k[2]);
    // As matrices, one for each sample and head.
    let mut matrices =
        |tensor, shape: &[usize]| scope.apply(Reshape { shape: [batch * heads, shape[2], shape[3]].into() }, &[tensor]);
    let (query, key, value) = (matrices(query, &q)?, matrices(key, &k)?, matrices(value, &v)?);
    let query = scope.apply(Scale { factor: 1.0 / (q[3] as f32).sqrt() }, &[query])?;
    let scores = scope.apply(MatMul { trans_b: true, ..MatMul::default() }, &[query, key])?;
    let mut weights = scope.apply(Softmax { axis: 2, causal }, &[scores])?;
    if drops(scope, p)? {
        // Dropout counts by samples.
        weights = scope.apply(Reshape { shape: [batch, heads, queries, keys].into() }, &[weights])?;
        weights = dropout(scope, p, weights, 1)?;
        weights = scope.apply(Reshape { shape: [batch * heads, queries, keys].into() }, &[weights])?;
    }
    let output = scope.apply(MatMul::default(), &[weights, value])?;
    scope.apply(Reshape { shape: [batch, heads, queries, v[3]].into() }, &[output])
}

/// Multi-head self-attention, for samples `[time, features]`: queries, keys and values of each head are projections of the
/// input, and the heads' outputs together are projected again.
///
/// Parameters, named and started as those of PyTorch's `MultiheadAttention`: `in_proj_weight [3 · features, features]`,
/// `in_proj_bias [3 · features]`, `out_proj.weight [features, features]`, `out_proj.bias [features]`.
///
/// Source: <https://arxiv.org/abs/1706.03762>, section 3.2.2
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MultiheadAttention {
    num_heads: usize,
    #[serde(default)]
    causal: bool,
    #[serde(default)]
    dropout: f32,
    #[serde(default = "yes")]
    bias: bool,
}

impl MultiheadAttention {
    /// With so many heads, which divide the number of features.
    pub fn new(num_heads: usize) -> Self {
        MultiheadAttention { num_heads, causal: false, dropout: 0.0, bias: true }
    }

    /// Whether a place sees only those up to itself (no by default).
    #[must_use]
    pub fn causal(mut self, causal: bool) -> Self {
        self.causal = causal;
        self
    }

    /// Probability with which a weight of attention is dropped in training (0 by default).
    #[must_use]
    pub fn dropout(mut self, p: f32) -> Self {
        self.dropout = p;
        self
    }

    /// Whether the projections have a bias (yes by default).
    #[must_use]
    pub fn bias(mut self, bias: bool) -> Self {
        self.bias = bias;
        self
    }

    fn parameters(
        &self,
        scope: &mut Scope<'_>,
        names: [&str; 2],
        shape: [usize; 2],
        init: Init,
    ) -> Result<(ValueId, Option<ValueId>), GraphError> {
        let weight = scope.parameter(names[0], shape, init)?;
        let bias = if self.bias { Some(scope.parameter(names[1], [shape[0]], Init::ZEROS)?) } else { None };
        Ok((weight, bias))
    }
}

impl Module for MultiheadAttention {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        scope.check_setting("num_heads", self.num_heads, 1)?;
        let shape = scope.shape(input);
        let [batch, time, features] = shape[..] else {
            return Err(scope.wrong_input("a sample of shape [time, features]", &shape, ""));
        };
        let heads = self.num_heads;
        if !features.is_multiple_of(heads) {
            return Err(scope.error(format!("num_heads = {heads} must divide the {features} features")));
        }
        let (xavier, _) = Scheme::XavierUniform.init(features, 3 * features);
        let names = ["in_proj_weight", "in_proj_bias"];
        let (weight, bias) = self.parameters(scope, names, [3 * features, features], xavier)?;
        let projected = project(scope, input, weight, bias)?;
        // All heads of all queries first, then those of the keys, then those of the values.
        let shape = [batch, time, 3, heads, features / heads];
        let projected = scope.apply(Reshape { shape: shape.into() }, &[projected])?;
        let projected = scope.apply(Permute { axes: vec![0, 2, 3, 1, 4] }, &[projected])?;
        let parts = scope.apply_all(Split { axis: 1, lengths: vec![1; 3] }, &[projected])?;
        let mut heads_of =
            |part| scope.apply(Reshape { shape: [batch, heads, time, features / heads].into() }, &[part]);
        let (query, key, value) = (heads_of(parts[0])?, heads_of(parts[1])?, heads_of(parts[2])?);
        let output = attention(scope, query, key, value, self.causal, self.dropout)?;
        let output = scope.apply(Permute { axes: vec![0, 2, 1, 3] }, &[output])?;
        let output = scope.apply(Reshape { shape: [batch, time, features].into() }, &[output])?;
        let names = ["out_proj.weight", "out_proj.bias"];
        let (weight, bias) = self.parameters(scope, names, [features; 2], Init::fan_in(features))?;
        project(scope, output, weight, bias)
    }
}

use serde::{Deserialize, Serialize};

use super::{Module, Scheme, Scope};
use crate::error::GraphError;
use crate::ops::matmul::matmul::MatMul;
use crate::ops::shape::reshape::Reshape;
use crate::tensor::ValueId;

/// `output = input · weightᵀ + bias`, for samples `[features]` or, at each time step alike, `[time, features]`.
///
/// Parameters: `weight [out_features, in_features]`, `bias [out_features]`. How they start is said by [`Scheme`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linear {
    out_features: usize,
    #[serde(default = "yes")]
    bias: bool,
    #[serde(default)]
    init: Scheme,
}

pub(super) fn yes() -> bool {
    true
}

impl Linear {
    /// A layer with this many outputs; the number of inputs follows from the layer before.
    pub fn new(out_features: usize) -> Self {
        Linear { out_features, bias: true, init: Scheme::default() }
    }

    /// Whether a bias is added (yes by default).
    #[must_use]
    pub fn bias(mut self, bias: bool) -> Self {
        self.bias = bias;
        self
    }

    /// How weights and bias start.
    #[must_use]
    pub fn init(mut self, init: Scheme) -> Self {
        self.init = init;
        self
    }
}

impl Module for Linear {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        scope.check_setting("out_features", self.out_features, 1)?;
        let shape = scope.shape(input);
        let ([_, in_features] | [_, _, in_features]) = shape[..] else {
            let expected = "a sample of shape [features] or [time, features]";
            return Err(scope.wrong_input(expected, &shape, "put flatten before it"));
        };
        let (weight_init, bias_init) = self.init.init(in_features, self.out_features);
        let weight = scope.parameter("weight", [self.out_features, in_features], weight_init)?;
        let bias = if self.bias { Some(scope.parameter("bias", [self.out_features], bias_init)?) } else { None };

        project(scope, input, weight, bias)
    }
}

/// `input · weightᵀ + bias` along the last axis of `[…, in_features]`.
pub(super) fn project(
    scope: &mut Scope<'_>,
    input: ValueId,
    weight: ValueId,
    bias: Option<ValueId>,
) -> Result<ValueId, GraphError> {
    let mut shape = scope.shape(input);
    let in_features = shape.pop().expect("bug: a tensor without axes");
    let mut value = input;
    if shape.len() > 1 {
        value = scope.apply(Reshape { shape: [shape.iter().product(), in_features].into() }, &[value])?;
    }
    let product = MatMul { trans_b: true, bias: bias.is_some(), ..MatMul::default() };
    let inputs: Vec<_> = [value, weight].into_iter().chain(bias).collect();
    value = scope.apply(product, &inputs)?;
    if shape.len() > 1 {
        shape.push(scope.shape(weight)[0]);
        value = scope.apply(Reshape { shape: shape.into() }, &[value])?;
    }
    Ok(value)
}

//! Activations, as layers and as settings of other layers.

use serde_json::Value as Json;

use crate::error::ImportError;
use crate::interop::keras::config::{Config, shown, snake_case};
use crate::interop::keras::value::{Call, Layer, Value};
use crate::interop::keras::weights::{Form, Slot};
use crate::nn::{Elu, Gelu, Init, LogSoftmax, Module, Prelu, Scope, Softmax, Softplus, Tensor};
use crate::tensor::ValueId;

/// A function of the elements, or along an axis.
#[derive(Clone, Debug)]
pub(super) enum Activation {
    Linear,
    Relu { slope: f32, max: Option<f32>, threshold: f32 },
    Elu(f32),
    Celu(f32),
    Selu,
    Gelu { tanh: bool },
    Silu,
    Mish,
    Sigmoid,
    LogSigmoid,
    HardSigmoid,
    HardSilu,
    HardTanh,
    Tanh,
    TanhShrink,
    Softplus,
    Softsign,
    Exponential,
    Softmax(isize),
    LogSoftmax(isize),
}

/// From <https://arxiv.org/abs/1706.02515>.
const SELU_ALPHA: f32 = 1.673_263_2;
const SELU_SCALE: f32 = 1.050_701;

impl Activation {
    /// By the name of a function.
    fn named(name: &str) -> Option<Self> {
        let relu = |slope, max| Activation::Relu { slope, max, threshold: 0.0 };
        Some(match name {
            "linear" => Activation::Linear,
            "relu" => relu(0.0, None),
            "relu6" => relu(0.0, Some(6.0)),
            "leaky_relu" => relu(0.2, None),
            "elu" => Activation::Elu(1.0),
            "celu" => Activation::Celu(1.0),
            "selu" => Activation::Selu,
            "gelu" => Activation::Gelu { tanh: false },
            "silu" | "swish" => Activation::Silu,
            "mish" => Activation::Mish,
            "sigmoid" => Activation::Sigmoid,
            "log_sigmoid" => Activation::LogSigmoid,
            "hard_sigmoid" => Activation::HardSigmoid,
            "hard_silu" | "hard_swish" => Activation::HardSilu,
            "hard_tanh" => Activation::HardTanh,
            "tanh" => Activation::Tanh,
            "tanh_shrink" => Activation::TanhShrink,
            "softplus" => Activation::Softplus,
            "softsign" => Activation::Softsign,
            "exponential" => Activation::Exponential,
            "softmax" => Activation::Softmax(-1),
            "log_softmax" => Activation::LogSoftmax(-1),
            _ => return None,
        })
    }

    /// A layer of its own.
    fn of_layer(config: &Config<'_>) -> Result<Option<Self>, ImportError> {
        Ok(Some(match config.class {
            "Activation" => Activation::of(config, "activation")?,
            "ReLU" => Activation::Relu {
                slope: config.number("negative_slope", 0.0)? as f32,
                max: match config.get("max_value") {
                    None => None,
                    Some(_) => Some(config.number("max_value", 0.0)? as f32),
                },
                threshold: config.number("threshold", 0.0)? as f32,
            },
            // `alpha` before Keras 3.
            "LeakyReLU" => Activation::Relu {
                slope: config.number("negative_slope", config.number("alpha", 0.3)?)? as f32,
                max: None,
                threshold: 0.0,
            },
            "ELU" => Activation::Elu(config.number("alpha", 1.0)? as f32),
            "Softmax" => Activation::Softmax(config.axis("axis", -1)?),
            _ => return Ok(None),
        }))
    }

    /// The activation that a layer has as a setting.
    pub(super) fn of(config: &Config<'_>, key: &str) -> Result<Self, ImportError> {
        let unknown = |value: &Json| {
            config.unsupported(format!(
                "the activation {} is not supported: use one of Keras's own, such as relu, gelu or tanh",
                shown(value)
            ))
        };
        match config.get(key) {
            None => Ok(Activation::Linear),
            Some(value @ Json::String(name)) => Activation::named(name).ok_or_else(|| unknown(value)),
            Some(value @ Json::Object(object)) => {
                let class = object.get("class_name").and_then(Json::as_str).ok_or_else(|| unknown(value))?;
                match object.get("config") {
                    // A function: `{"class_name": "function", "config": "relu"}`.
                    Some(Json::String(name)) => Activation::named(name).ok_or_else(|| unknown(value)),
                    Some(Json::Object(fields)) => Activation::of_layer(&Config { class, fields, ..*config })?
                        .or_else(|| Activation::named(&snake_case(class)))
                        .ok_or_else(|| unknown(value)),
                    _ => Err(unknown(value)),
                }
            }
            Some(value) => Err(unknown(value)),
        }
    }

    pub(super) fn is_linear(&self) -> bool {
        matches!(self, Activation::Linear)
    }

    /// Of a value; nodes are those of the layer `name`.
    pub(super) fn apply<'a>(&self, value: Value<'a>, name: &str) -> Value<'a> {
        if self.is_linear() {
            return value;
        }
        let inner = |x: Tensor<'a>| match *self {
            Activation::Linear => x,
            Activation::Relu { slope: 0.0, max: None, threshold: 0.0 } => x.relu(),
            Activation::Relu { slope: 0.0, max: Some(6.0), threshold: 0.0 } => x.relu6(),
            Activation::Relu { slope, max: None, threshold: 0.0 } => x.leaky_relu(slope),
            Activation::Relu { slope, max, threshold } => {
                let below = if slope == 0.0 { x * 0.0 } else { (x - threshold) * slope };
                let bent = x.ge(threshold).where_else(x, below);
                max.map_or(bent, |max| bent.minimum(max))
            }
            Activation::Elu(alpha) => x.elu(alpha),
            Activation::Celu(alpha) => (x / alpha).layer("elu", Elu::new(1.0)) * alpha,
            Activation::Selu => x.elu(SELU_ALPHA) * SELU_SCALE,
            Activation::Gelu { tanh } => x.layer("gelu", Gelu::new().tanh(tanh)),
            Activation::Silu => x.silu(),
            Activation::Mish => x.mish(),
            Activation::Sigmoid => x.sigmoid(),
            Activation::LogSigmoid => -(-x).layer("softplus", Softplus::default()),
            Activation::HardSigmoid => x.hard_sigmoid(),
            Activation::HardSilu => x.hard_swish(),
            Activation::HardTanh => x.clamp(-1.0, 1.0),
            Activation::Tanh => x.tanh(),
            Activation::TanhShrink => x - x.tanh(),
            Activation::Softplus => x.softplus(),
            Activation::Softsign => x / (x.abs() + 1.0),
            Activation::Exponential => x.exp(),
            Activation::Softmax(axis) | Activation::LogSoftmax(axis) => {
                let Some(place) = value.axis(axis) else {
                    return x.with_ops("softmax", |scope, _| {
                        Err(scope.error(format!("axis {axis} is not one of the sample's {} axes", value.rank())))
                    });
                };
                let place = place as isize - 1;
                match self {
                    Activation::Softmax(_) => x.layer("softmax", Softmax::new(place)),
                    _ => x.layer("log_softmax", LogSoftmax::new(place)),
                }
            }
        };
        value.like(value.tensor.within(name, inner))
    }
}

/// A layer that is nothing but an activation.
#[derive(Debug)]
struct Alone(Activation);

impl Layer for Alone {
    fn apply<'a>(&self, call: &Call<'_, 'a>) -> Value<'a> {
        self.0.apply(call.input(), call.name)
    }
}

/// A trained slope of negative numbers.
#[derive(Debug)]
struct ParametricRelu {
    /// The shape of the slopes, `shared_axes` being 1; none where each channel has one, or each feature.
    shape: Option<Vec<usize>>,
    axes: usize,
}

impl Layer for ParametricRelu {
    fn apply<'a>(&self, call: &Call<'_, 'a>) -> Value<'a> {
        let x = call.input();
        match &self.shape {
            None => Value::first(call.layer(x.channels_first(), Prelu::new().per_channel(true))),
            Some(shape) => Value::plain(call.layer(x.keras(), Slopes(shape.clone()))),
        }
    }

    fn slots(&self) -> Vec<Slot> {
        let name = "weight".to_owned();
        vec![Slot::new(
            0,
            match &self.shape {
                // Extents of 1 before the channels.
                None => Form::Vector { name, shape: [vec![1; self.axes - 1], vec![0]].concat() },
                Some(_) => Form::same(name),
            },
        )]
    }
}

/// `max(x, 0) − weight · max(−x, 0)`, with weights that are repeated along axes of extent 1.
#[derive(Debug)]
struct Slopes(Vec<usize>);

impl Module for Slopes {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, crate::error::GraphError> {
        let weight = scope.parameter("weight", self.0.clone(), Init::ZEROS)?;
        scope.formula([input, weight], |[x, weight]| x.relu() - weight * (-x).relu())
    }
}

/// A layer of these classes, if it is one.
pub(super) fn parse(config: &Config<'_>, input: Option<&[usize]>) -> Result<Option<Box<dyn Layer>>, ImportError> {
    if config.class == "PReLU" {
        let shared = match config.get("shared_axes") {
            None => Vec::new(),
            Some(_) => config.axes("shared_axes", 0)?,
        };
        let input =
            input.ok_or_else(|| config.unsupported("has no `build_config`: build the model before saving it"))?;
        let rank = input.len();
        let is_shared = |axis: usize| {
            shared.iter().any(|&shared| shared == axis as isize + 1 || shared == axis as isize - rank as isize)
        };
        let shape: Vec<_> = (0..rank).map(|axis| if is_shared(axis) { 1 } else { input[axis] }).collect();
        let by_channel = rank > 0 && (0..rank - 1).all(is_shared) && !is_shared(rank - 1);
        return Ok(Some(Box::new(ParametricRelu { shape: (!by_channel).then_some(shape), axes: rank })));
    }
    Ok(Activation::of_layer(config)?.map(|activation| Box::new(Alone(activation)) as Box<dyn Layer>))
}

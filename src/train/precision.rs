//! In which formats activations and their gradients are stored.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::settings::Config;
use crate::error::{TrainError, unknown};
use crate::graph::Graph;
use crate::tensor::Half;

/// In which format activations and the gradients of activations are stored. Arithmetic is f32 in any case, and so are parameters,
/// their gradients, optimizer state, statistics of norms, the model's outputs and losses.
///
/// The names of Keras's policies and PyTorch's types are understood too: `mixed_float16`, `mixed_bfloat16`, `float16`, `bfloat16`,
/// `float32`.
///
/// ```
/// use tightfit::train::Precision;
///
/// assert_eq!("mixed_bfloat16".parse(), Ok(Precision::Bf16));
/// assert_eq!(Precision::F16.to_string(), "f16");
/// ```
///
/// Source: Micikevicius et al., "Mixed Precision Training", <https://arxiv.org/abs/1710.03740>
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Precision {
    /// 32 bits.
    #[default]
    F32,
    /// 16 bits, IEEE: from 6·10⁻⁸ to 65,504 with 11 bits of fraction. The loss is scaled, so that gradients are within.
    F16,
    /// The upper 16 bits of an f32: its range, with 8 bits of fraction.
    Bf16,
}

impl Precision {
    /// All, with their names.
    pub const NAMES: [(Precision, &'static str); 3] =
        [(Precision::F32, "f32"), (Precision::F16, "f16"), (Precision::Bf16, "bf16")];

    /// The format of 16 bits.
    pub fn half(self) -> Option<Half> {
        match self {
            Precision::F32 => None,
            Precision::F16 => Some(Half::F16),
            Precision::Bf16 => Some(Half::Bf16),
        }
    }
}

impl From<Half> for Precision {
    fn from(half: Half) -> Self {
        match half {
            Half::F16 => Precision::F16,
            Half::Bf16 => Precision::Bf16,
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Precision::NAMES.iter().find(|(precision, _)| precision == self).map_or("", |(_, name)| name);
        f.pad(name)
    }
}

impl FromStr for Precision {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "f32" | "float32" => Ok(Precision::F32),
            "f16" | "float16" | "mixed_float16" => Ok(Precision::F16),
            "bf16" | "bfloat16" | "mixed_bfloat16" => Ok(Precision::Bf16),
            _ => Err(format!(
                "there is no precision `{name}`: f32, f16 or bf16, or as Keras says, float32, mixed_float16 or mixed_bfloat16"
            )),
        }
    }
}

impl Serialize for Precision {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Precision {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The precision of some layers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerPrecision {
    /// What their names begin with.
    pub layer: String,
    /// Theirs.
    pub precision: Precision,
}

/// The precision of every layer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Precisions {
    pub(super) usual: Precision,
    pub(super) layers: Vec<LayerPrecision>,
    /// Of copies that are kept for backward alone.
    pub(super) saved: Option<Half>,
}

impl Precisions {
    pub(super) fn of(config: &Config) -> Self {
        let Config { precision, layer_precision, save_activations, .. } = config;
        Precisions { usual: *precision, layers: layer_precision.clone(), saved: *save_activations }
    }

    /// Whether anything is stored in f16.
    pub(super) fn has_f16(&self) -> bool {
        self.usual == Precision::F16 || self.layers.iter().any(|layer| layer.precision == Precision::F16)
    }

    /// The precision of a layer: that of the longest beginning of its name, or what is usual.
    fn of_layer(&self, layer: &str) -> Precision {
        let named = self.layers.iter().filter(|of| layer.starts_with(&of.layer));
        named.max_by_key(|of| of.layer.len()).map_or(self.usual, |of| of.precision)
    }

    /// Whether all is f32.
    pub(super) fn is_f32(&self) -> bool {
        self.usual == Precision::F32 && self.layers.iter().all(|layer| layer.precision == Precision::F32)
    }

    /// The format of 16 bits of a layer's values.
    pub(super) fn half(&self, layer: &str) -> Option<Half> {
        self.of_layer(layer).half()
    }

    /// Refuses names that no layer of a graph begins with, and what contradicts itself.
    pub(super) fn check(&self, graph: &Graph) -> Result<(), TrainError> {
        let names: BTreeSet<_> = graph.nodes().iter().map(|node| node.name.as_str()).collect();
        let names = || names.iter().copied();
        if let (Some(saved), Some(half)) = (self.saved, self.usual.half()) {
            return Err(TrainError::Setting(format!(
                "save_activations = {saved} is for precision = f32: with {half} activations have 16 bits already"
            )));
        }
        for (i, LayerPrecision { layer, precision }) in self.layers.iter().enumerate() {
            if layer.is_empty() {
                let text = format!(
                    "layer_precision = {precision}: a name is empty: say which layers, or set precision for all"
                );
                return Err(TrainError::Setting(text));
            }
            if self.layers[..i].iter().any(|other| other.layer == *layer) {
                return Err(TrainError::Setting(format!("layer_precision: `{layer}` is there twice")));
            }
            if !names().any(|name| name.starts_with(layer.as_str())) {
                return Err(TrainError::Setting(format!(
                    "layer_precision = {precision}: {}",
                    unknown("layer", layer, names())
                )));
            }
        }
        Ok(())
    }
}

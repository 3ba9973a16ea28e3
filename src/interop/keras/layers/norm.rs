//! Normalization.

use crate::error::{GraphError, ImportError};
use crate::interop::keras::config::Config;
use crate::interop::keras::value::{Call, Layer, Value};
use crate::interop::keras::weights::{Form, Slot};
use crate::nn::{BatchNorm, GroupNorm, Init, LayerNorm, Module, RmsNorm, Scope};
use crate::ops::shape::reshape::Reshape;
use crate::tensor::ValueId;

/// `weight` and `bias` of what was normalized, of which Keras may leave out one.
#[derive(Clone, Copy, Debug)]
struct Affine {
    scale: bool,
    center: bool,
}

impl Affine {
    fn of(config: &Config<'_>) -> Result<Self, ImportError> {
        Ok(Affine { scale: config.bool("scale", true)?, center: config.bool("center", true)? })
    }

    /// Whether there is one without the other, which layers here do not have.
    fn is_half(self) -> bool {
        self.scale != self.center
    }

    fn slots(self) -> Vec<Slot> {
        let names = [("weight", self.scale), ("bias", self.center)];
        let names = names.into_iter().filter_map(|(name, is_there)| is_there.then_some(name));
        names.enumerate().map(|(index, name)| Slot::new(index, Form::same(name))).collect()
    }
}

/// A normalization without either, then one of them.
#[derive(Debug)]
struct Half<M> {
    norm: M,
    affine: Affine,
    /// How many of the last axes have numbers of their own; none where it is the channels, axis 1.
    last_axes: Option<usize>,
}

impl<M: Module> Module for Half<M> {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        let normalized = self.norm.build(scope, input)?;
        if !self.affine.is_half() {
            return Ok(normalized);
        }
        let shape = scope.shape(input);
        let (own, spread) = match self.last_axes {
            Some(axes) => (shape[shape.len() - axes..].to_vec(), shape[shape.len() - axes..].to_vec()),
            None => (vec![shape[1]], [vec![shape[1]], vec![1; shape.len() - 2]].concat()),
        };
        let (name, init) = if self.affine.scale { ("weight", Init::ONES) } else { ("bias", Init::ZEROS) };
        let numbers = scope.parameter(name, own, init)?;
        let numbers = scope.apply(Reshape { shape: spread.into() }, &[numbers])?;
        let scale = self.affine.scale;
        scope.formula([normalized, numbers], |[x, numbers]| if scale { x * numbers } else { x + numbers })
    }
}

/// By the batch.
#[derive(Debug)]
struct Batch {
    axis: isize,
    momentum: f32,
    eps: f32,
    affine: Affine,
    /// A layer that is not trained normalizes by what it has seen before.
    frozen: bool,
}

impl Layer for Batch {
    fn apply<'a>(&self, call: &Call<'_, 'a>) -> Value<'a> {
        let x = call.input();
        let rank = x.rank() as isize;
        let norm = BatchNorm::new().eps(self.eps).momentum(1.0 - self.momentum).frozen(self.frozen);
        let norm =
            Half { norm: norm.affine(self.affine.scale && self.affine.center), affine: self.affine, last_axes: None };
        match self.axis {
            axis if axis == -1 || axis == rank => Value::first(call.layer(x.channels_first(), norm)),
            axis if axis == 1 || axis == -rank => Value::plain(call.layer(x.keras(), norm)),
            axis => call.fail(format!("normalizes axis {axis}: only the last one or axis 1 can have the channels")),
        }
    }

    fn slots(&self) -> Vec<Slot> {
        let mut slots = self.affine.slots();
        let next = slots.len();
        slots.push(Slot::new(next, Form::same("running_mean")).fixed());
        slots.push(Slot::new(next + 1, Form::same("running_var")).fixed());
        slots
    }

    fn converts(&self) -> bool {
        self.axis == -1
    }

    fn keeps(&self) -> bool {
        true
    }
}

/// Over the last axes of a sample.
#[derive(Debug)]
struct Last {
    axes: Vec<isize>,
    eps: f32,
    affine: Affine,
    /// By the root mean square alone.
    rms: bool,
}

impl Layer for Last {
    fn apply<'a>(&self, call: &Call<'_, 'a>) -> Value<'a> {
        let x = call.input();
        let rank = x.rank() as isize;
        let mut axes: Vec<_> = self.axes.iter().map(|&axis| if axis < 0 { axis + rank + 1 } else { axis }).collect();
        axes.sort_unstable();
        let count = axes.len() as isize;
        if count == 0 || !axes.iter().copied().eq(rank + 1 - count..=rank) || count > rank {
            return call.fail(format!("normalizes axes {:?}: they must be the last ones of the sample", self.axes));
        }
        let (dims, full) = (axes.len(), self.affine.scale && self.affine.center);
        let tensor = if self.rms {
            let norm = RmsNorm::new().dims(dims).eps(self.eps).affine(self.affine.scale);
            call.layer(x.keras(), norm)
        } else {
            let norm = LayerNorm::new().dims(dims).eps(self.eps).affine(full);
            call.layer(x.keras(), Half { norm, affine: self.affine, last_axes: Some(dims) })
        };
        Value::plain(tensor)
    }

    fn slots(&self) -> Vec<Slot> {
        self.affine.slots()
    }
}

/// In groups of channels.
#[derive(Debug)]
struct Groups {
    /// One for each channel where there is none.
    groups: Option<usize>,
    axis: isize,
    eps: f32,
    affine: Affine,
}

impl Layer for Groups {
    fn apply<'a>(&self, call: &Call<'_, 'a>) -> Value<'a> {
        let x = call.input();
        let rank = x.rank() as isize;
        let is_last = self.axis == -1 || self.axis == rank;
        if !is_last && self.axis != 1 && self.axis != -rank {
            return call
                .fail(format!("normalizes axis {}: only the last one or axis 1 can have the channels", self.axis));
        }
        let tensor = x.spatial(is_last);
        let norm = GroupNorm::new(self.groups.unwrap_or(tensor.channels())).eps(self.eps);
        let norm = norm.affine(self.affine.scale && self.affine.center);
        let output = call.layer(tensor, Half { norm, affine: self.affine, last_axes: None });
        if is_last { Value::first(output) } else { Value::plain(output) }
    }

    fn slots(&self) -> Vec<Slot> {
        self.affine.slots()
    }

    fn converts(&self) -> bool {
        self.axis == -1
    }
}

/// Divided by its length along the last axis.
#[derive(Debug)]
struct Unit;

impl Layer for Unit {
    fn apply<'a>(&self, call: &Call<'_, 'a>) -> Value<'a> {
        let x = call.input().keras();
        Value::plain(x.within(call.name, normalized))
    }
}

/// Along the last axis; Keras takes no square for less than 1e-12.
pub(super) fn normalized(x: crate::nn::Tensor<'_>) -> crate::nn::Tensor<'_> {
    x / x.square().sum(&[-1], true).maximum(1e-12).sqrt()
}

/// A layer of these classes, if it is one.
pub(super) fn parse(config: &Config<'_>) -> Result<Option<Box<dyn Layer>>, ImportError> {
    let eps = |default: f64| config.number("epsilon", default).map(|eps| eps as f32);
    Ok(Some(match config.class {
        "BatchNormalization" | "BatchNormalizationV1" | "SyncBatchNormalization" => {
            config.refuse("renorm", "use batch normalization without renormalization")?;
            let momentum = config.number("momentum", 0.99)? as f32;
            if !(0.0..=1.0).contains(&momentum) {
                return Err(
                    config.unsupported(format!("`momentum` = {momentum} is not possible: it must be from 0 to 1"))
                );
            }
            let axis = config.axis("axis", -1)?;
            let frozen = !config.bool("trainable", true)?;
            Box::new(Batch { axis, momentum, eps: eps(1e-3)?, affine: Affine::of(config)?, frozen })
        }
        "LayerNormalization" => {
            config.refuse("rms_scaling", "use RMSNormalization")?;
            let axes = config.axes("axis", -1)?;
            Box::new(Last { axes, eps: eps(1e-3)?, affine: Affine::of(config)?, rms: false })
        }
        "RMSNormalization" => {
            let affine = Affine { scale: true, center: false };
            Box::new(Last { axes: config.axes("axis", -1)?, eps: eps(1e-6)?, affine, rms: true })
        }
        "GroupNormalization" => {
            let groups = match config.get("groups").and_then(serde_json::Value::as_i64) {
                Some(-1) => None,
                _ => Some(config.count_or("groups", 32)?),
            };
            let axis = config.axis("axis", -1)?;
            Box::new(Groups { groups, axis, eps: eps(1e-3)?, affine: Affine::of(config)? })
        }
        "UnitNormalization" if config.axes("axis", -1)?[..] == [-1] => Box::new(Unit),
        _ => return Ok(None),
    }))
}

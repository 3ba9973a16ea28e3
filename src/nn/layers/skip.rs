use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Module, Scope};
use crate::error::{GraphError, unknown};
use crate::ops::elementwise::add;
use crate::ops::shape::concat;
use crate::tensor::{Shape, ValueId};

/// Remembers what the layer before it made, under a name, for a later [`Concat`] or [`Add`]. Passes it on as it is: no
/// parameters, no memory of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skip {
    name: String,
}

impl Skip {
    /// Remembers under this name, which no other skip of the model may have.
    pub fn new(name: impl Into<String>) -> Self {
        Skip { name: name.into() }
    }
}

impl Module for Skip {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        scope.remember(&self.name, input)?;
        Ok(input)
    }
}

/// Puts what a [`Skip`] remembered after what comes in, along the channels (axis 0 of a sample); the other extents of both
/// must agree. A skip may be used more than once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Concat {
    with: String,
}

impl Concat {
    /// Concatenates with what the skip of this name remembered.
    pub fn new(with: impl Into<String>) -> Self {
        Concat { with: with.into() }
    }
}

impl Module for Concat {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        let skip = scope.recall(&self.with)?;
        let (found, remembered) = (scope.shape(input), scope.shape(skip));
        if found.len() != remembered.len() || found[2..] != remembered[2..] {
            return Err(scope.mismatch(&self.with, &remembered, &found, "differ in the number of channels only"));
        }
        scope.apply(concat::Concat { axis: 1 }, &[input, skip])
    }
}

/// Adds what a [`Skip`] remembered to what comes in, element by element: a residual connection. Both have one shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Add {
    with: String,
}

impl Add {
    /// Adds what the skip of this name remembered.
    pub fn new(with: impl Into<String>) -> Self {
        Add { with: with.into() }
    }
}

impl Module for Add {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        let skip = scope.recall(&self.with)?;
        let (found, remembered) = (scope.shape(input), scope.shape(skip));
        if found != remembered {
            return Err(scope.mismatch(&self.with, &remembered, &found, "have one shape"));
        }
        scope.apply(add::Add, &[input, skip])
    }
}

/// What the skips of a model remember while it is built, by their names.
#[derive(Debug, Default)]
pub(in super::super) struct Skips(BTreeMap<String, Remembered>);

#[derive(Debug)]
struct Remembered {
    value: ValueId,
    /// Name of the skip's layer.
    layer: String,
    used: bool,
}

impl Skips {
    /// Every skip has been used.
    pub(in super::super) fn finish(&self) -> Result<(), GraphError> {
        match self.0.iter().find(|(_, skip)| !skip.used) {
            None => Ok(()),
            Some((name, skip)) => Err(GraphError::Layer {
                layer: skip.layer.clone(),
                reason: format!("no layer after it uses `{name}`: add a concat or add with it, or take the skip out"),
            }),
        }
    }
}

impl Scope<'_> {
    fn remember(&mut self, name: &str, value: ValueId) -> Result<(), GraphError> {
        if let Some(earlier) = self.skips().0.get(name) {
            let reason = format!("the name `{name}` is already that of layer `{}`: choose another", earlier.layer);
            return Err(self.error(reason));
        }
        let skip = Remembered { value, layer: self.name().to_owned(), used: false };
        self.skips().0.insert(name.to_owned(), skip);
        Ok(())
    }

    fn recall(&mut self, name: &str) -> Result<ValueId, GraphError> {
        if let Some(skip) = self.skips().0.get_mut(name) {
            skip.used = true;
            return Ok(skip.value);
        }
        let text = unknown("skip", name, self.skips().0.keys().map(String::as_str));
        Err(self.error(format!("{text}; a skip stands before what uses it")))
    }

    fn mismatch(&self, name: &str, remembered: &[usize], found: &[usize], rule: &str) -> GraphError {
        let [remembered, found] = [remembered, found].map(|shape| Shape::from(&shape[1..]));
        self.error(format!("`{name}` is a sample of shape {remembered} and what comes in {found}: they must {rule}"))
    }
}

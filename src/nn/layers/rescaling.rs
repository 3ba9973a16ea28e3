use serde::{Deserialize, Serialize};

use super::{Module, Scope};
use crate::error::GraphError;
use crate::ops::elementwise::add_scalar::AddScalar;
use crate::ops::elementwise::scale::Scale;
use crate::tensor::{ValueId, format_number};

/// `scale · x + offset`, Keras's `Rescaling`: `Rescaling::new(1.0 / 127.5, -1.0)` brings numbers from 0 to 255 to those from −1 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rescaling {
    scale: f32,
    #[serde(default)]
    offset: f32,
}

impl Rescaling {
    /// With this factor, and what is added then.
    pub fn new(scale: f32, offset: f32) -> Self {
        Rescaling { scale, offset }
    }
}

impl Module for Rescaling {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        for (name, number) in [("scale", self.scale), ("offset", self.offset)] {
            if !number.is_finite() {
                return Err(scope.error(format!("{name} must be a number, found {}", format_number(number))));
            }
        }
        let scaled = scope.apply(Scale { factor: self.scale }, &[input])?;
        if self.offset == 0.0 { Ok(scaled) } else { scope.apply(AddScalar { value: self.offset }, &[scaled]) }
    }
}

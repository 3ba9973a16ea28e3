use serde::{Deserialize, Serialize};

use super::conv::{as_rows, as_sequences};
use super::{Module, Pair, Scope};
use crate::error::GraphError;
use crate::ops::pool::upsample_bilinear2d::UpsampleBilinear2d;
use crate::ops::pool::upsample_nearest2d::UpsampleNearest2d;
use crate::tensor::ValueId;

/// Makes the images of samples `[channels, height, width]` larger: repeats each element, down and across, or with
/// [`bilinear`](Upsample::bilinear) goes evenly from each to the next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upsample {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scale: Option<Pair>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size: Option<Pair>,
    #[serde(default)]
    mode: Mode,
    #[serde(default)]
    align_corners: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mode {
    #[default]
    Nearest,
    Bilinear,
}

impl Upsample {
    /// Makes images this many times as high and as wide.
    pub fn new(scale: impl Into<Pair>) -> Self {
        Upsample { scale: Some(scale.into()), size: None, mode: Mode::Nearest, align_corners: false }
    }

    /// Makes images this high and wide: several times as large as they are, or with [`bilinear`](Upsample::bilinear) of any
    /// size.
    pub fn to_size(size: impl Into<Pair>) -> Self {
        Upsample { scale: None, size: Some(size.into()), mode: Mode::Nearest, align_corners: false }
    }

    /// Interpolates between neighbours.
    #[must_use]
    pub fn bilinear(mut self) -> Self {
        self.mode = Mode::Bilinear;
        self
    }

    /// Whether the centers of the outermost elements stay in the corners, instead of their borders (no by default); for
    /// [`bilinear`](Upsample::bilinear).
    #[must_use]
    pub fn align_corners(mut self, align_corners: bool) -> Self {
        self.align_corners = align_corners;
        self
    }

    /// Height and width of the output.
    fn output(&self, scope: &Scope<'_>, height: usize, width: usize) -> Result<[usize; 2], GraphError> {
        match (self.scale, self.size) {
            (Some(scale), None) => {
                scope.check_pair("scale", scale, 1)?;
                Ok([height.saturating_mul(scale.0), width.saturating_mul(scale.1)])
            }
            (None, Some(size)) => {
                scope.check_pair("size", size, 1)?;
                Ok(size.into())
            }
            _ => Err(scope.error("either scale or size must be given")),
        }
    }
}

impl Module for Upsample {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        let shape = scope.shape(input);
        let [_, _, height, width] = shape[..] else {
            return Err(scope.wrong_input("a sample of shape [channels, height, width]", &shape, ""));
        };
        let size = self.output(scope, height, width)?;
        match self.mode {
            Mode::Bilinear => scope.apply(UpsampleBilinear2d { size, align_corners: self.align_corners }, &[input]),
            Mode::Nearest if self.align_corners => Err(scope.error("align_corners is for the mode bilinear only")),
            Mode::Nearest if size[0].is_multiple_of(height) && size[1].is_multiple_of(width) => {
                scope.apply(UpsampleNearest2d { scale: [size[0] / height, size[1] / width] }, &[input])
            }
            Mode::Nearest => Err(scope.error(format!(
                "size {size:?} must be a multiple of the image's [{height}, {width}]; the mode bilinear makes any size"
            ))),
        }
    }
}

/// Makes sequences `[channels, length]` longer: repeats each element, or with [`linear`](Upsample1d::linear) goes evenly from each to
/// the next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upsample1d {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scale: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size: Option<usize>,
    #[serde(default)]
    mode: Mode1d,
    #[serde(default)]
    align_corners: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mode1d {
    #[default]
    Nearest,
    Linear,
}

impl Upsample1d {
    /// Makes sequences this many times as long.
    pub fn new(scale: usize) -> Self {
        Upsample1d { scale: Some(scale), size: None, mode: Mode1d::Nearest, align_corners: false }
    }

    /// Makes sequences this long: several times as long as they are, or with [`linear`](Upsample1d::linear) of any length.
    pub fn to_size(size: usize) -> Self {
        Upsample1d { scale: None, size: Some(size), mode: Mode1d::Nearest, align_corners: false }
    }

    /// Interpolates between neighbours.
    #[must_use]
    pub fn linear(mut self) -> Self {
        self.mode = Mode1d::Linear;
        self
    }

    /// Whether the centers of the first and the last element stay at the ends, instead of their borders (no by default); for
    /// [`linear`](Upsample1d::linear).
    #[must_use]
    pub fn align_corners(mut self, align_corners: bool) -> Self {
        self.align_corners = align_corners;
        self
    }
}

impl Module for Upsample1d {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        let rows = as_rows(scope, input)?;
        let length = scope.shape(rows)[3];
        let size = match (self.scale, self.size) {
            (Some(scale), None) => {
                scope.check_setting("scale", scale, 1)?;
                length.saturating_mul(scale)
            }
            (None, Some(size)) => {
                scope.check_setting("size", size, 1)?;
                size
            }
            _ => return Err(scope.error("either scale or size must be given")),
        };
        let longer = match self.mode {
            Mode1d::Linear => {
                scope.apply(UpsampleBilinear2d { size: [1, size], align_corners: self.align_corners }, &[rows])?
            }
            Mode1d::Nearest if self.align_corners => {
                return Err(scope.error("align_corners is for the mode linear only"));
            }
            Mode1d::Nearest if size.is_multiple_of(length) => {
                scope.apply(UpsampleNearest2d { scale: [1, size / length] }, &[rows])?
            }
            Mode1d::Nearest => {
                return Err(scope.error(format!(
                    "size {size} must be a multiple of the sequence's {length}; the mode linear makes any size"
                )));
            }
        };
        as_sequences(scope, longer)
    }
}

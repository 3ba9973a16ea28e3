//! Where pixels go: one description for an image, its label mask and its boxes.

use serde::{Deserialize, Serialize};

use super::warp;
use crate::data::{Array, Features, INPUT, Sample, TARGET, Values};
use crate::error::DataError;
use crate::tensor::{DType, Shape, copied};

/// What a sample calls the boxes of its image: `[n, 4]` floats, each box the pixels of its left, upper, right and lower edge.
pub const BOXES: &str = "boxes";

/// What stands where an image has no pixels, as Keras names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FillMode {
    /// One value: `k k k | a b c d | k k k`. Pixels at the border are blended with it.
    Constant,
    /// The nearest pixel: `a a a | a b c d | d d d`.
    Nearest,
    /// The image mirrored, again and again: `c b a | a b c d | d c b`.
    #[default]
    Reflect,
    /// The image again and again: `b c d | a b c d | a b c`.
    Wrap,
}

/// How a pixel is made of those near the place that it comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Interpolation {
    /// The nearest one.
    Nearest,
    /// Of four neighbours, by their distance on both axes.
    #[default]
    Bilinear,
}

/// What stands where an image has no pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fill {
    /// The rule.
    pub mode: FillMode,
    /// With [`FillMode::Constant`]: the value in images, of bytes from 0 to 255.
    pub value: f32,
    /// With [`FillMode::Constant`]: the label in masks.
    pub label: u32,
}

/// A rotation, shear, zoom and shift about the centre of an image, as `affine` of torchvision has them:
///
/// ```text
/// p' − c = t + z · R(φ) · S · (p − c)     S = Y · X,   X = [1, −tan x; 0, 1],   Y = [1, 0; −tan y, 1]
/// ```
///
/// `p` is a place in the image, `p'` where it goes, in pixels from the left and the upper edge, so that the centre of the first pixel is
/// `(0.5, 0.5)`; `c` is half the width and height, `t` the shift, `z` the zoom, `φ` the rotation, `x` and `y` the shear. The pixel whose
/// centre is `p'` is drawn from the place `p`: one inverse map and one interpolation, whatever is composed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Affine {
    /// Degrees, clockwise.
    pub rotation: f64,
    /// Degrees along the horizontal and the vertical axis.
    pub shear: [f64; 2],
    /// How many times as large things are: 2 shows the middle half of each axis.
    pub zoom: f64,
    /// To the right and down, in shares of the width and of the height.
    pub shift: [f64; 2],
}

impl Default for Affine {
    /// All stays where it is.
    fn default() -> Self {
        Affine { rotation: 0.0, shear: [0.0; 2], zoom: 1.0, shift: [0.0; 2] }
    }
}

impl Affine {
    /// `[a, b, c, d, e, f]`: what is at `(x, y)` pixels from the centre of an image of this height and width goes to
    /// `(a·x + b·y + c, d·x + e·y + f)`.
    pub fn matrix(&self, size: [usize; 2]) -> [f64; 6] {
        let ([a, b, c, d], [x, y]) = (self.turn(), self.offset(size));
        [a * self.zoom, b * self.zoom, x, c * self.zoom, d * self.zoom, y]
    }

    /// The same the other way.
    pub fn inverse(&self, size: [usize; 2]) -> [f64; 6] {
        let ([a, b, c, d], [x, y]) = (self.turn(), self.offset(size));
        // The determinant of rotation and shear is 1.
        let [a, b, c, d] = [d, -b, -c, a].map(|entry| entry / self.zoom);
        [a, b, -(a * x + b * y), c, d, -(c * x + d * y)]
    }

    /// Rotation and shear.
    fn turn(&self) -> [f64; 4] {
        let [rotation, x, y] = [self.rotation, self.shear[0], self.shear[1]].map(f64::to_radians);
        let (sin, cos) = (libm::sin(rotation - y) / libm::cos(y), libm::cos(rotation - y) / libm::cos(y));
        [cos, -cos * libm::tan(x) - libm::sin(rotation), sin, -sin * libm::tan(x) + libm::cos(rotation)]
    }

    fn offset(&self, [height, width]: [usize; 2]) -> [f64; 2] {
        [self.shift[0] * width as f64, self.shift[1] * height as f64]
    }
}

/// A change of an image that moves its pixels, with all its parameters, so that it can be done alike to what belongs to the image.
///
/// ```
/// use tightfit::data::augment::Geometry;
/// use tightfit::data::{Array, Sample, Values};
///
/// let image = Array::new(Values::U8(vec![10, 20, 30]), [1, 1, 3])?;
/// let mask = Array::new(Values::U32(vec![0, 1, 1]), [1, 3])?;
/// let mut sample = Sample::new(image).with_target(mask);
/// Geometry::Flip { horizontal: true, vertical: false }.apply(&mut sample)?;
/// assert_eq!(sample.get("input").unwrap().values(), &Values::U8(vec![30, 20, 10]));
/// assert_eq!(sample.get("target").unwrap().values(), &Values::U32(vec![1, 1, 0]));
/// # Ok::<(), tightfit::error::DataError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Geometry {
    /// Mirrored.
    Flip {
        /// Left becomes right.
        horizontal: bool,
        /// Up becomes down.
        vertical: bool,
    },
    /// Rotated, sheared, zoomed, shifted; of the same size.
    Affine {
        /// How.
        affine: Affine,
        /// What stands where there are no pixels.
        fill: Fill,
        /// How pixels of images are made. Labels are those of the nearest pixel.
        interpolation: Interpolation,
    },
    /// A part, in another size. Images are resized by a triangle filter that is as wide as a new pixel where that is the larger one, as
    /// Pillow's and torchvision's bilinear resize with antialiasing is. Labels are those of the pixel in which the centre of the new one lies.
    Crop {
        /// First row.
        top: usize,
        /// First column.
        left: usize,
        /// Rows.
        height: usize,
        /// Columns.
        width: usize,
        /// Height and width that it then has.
        size: [usize; 2],
    },
}

impl Geometry {
    /// Moves the pixels of an array of shape `[…, height, width]`: an image, or a mask of labels (`u32`), which are never blended.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] where it has another shape, or a crop goes past its edges, [`DataError::HostMemory`].
    pub fn array(&self, array: &Array) -> Result<Array, DataError> {
        let Some((_, size)) = warp::extents(array.shape()) else {
            let text = format!("an array of shape {} is no image: it needs a height and a width", array.shape());
            return Err(DataError::Mismatch(text));
        };
        match *self {
            Geometry::Flip { horizontal, vertical } => warp::flip(array, size, horizontal, vertical),
            Geometry::Affine { affine, fill, interpolation } => {
                warp::affine(array, size, affine.inverse(size), fill, interpolation)
            }
            Geometry::Crop { top, left, height, width, size: new } => {
                let ends = [top.checked_add(height), left.checked_add(width)];
                let is_within = ends.iter().zip(size).all(|(end, extent)| end.is_some_and(|end| end <= extent));
                if !is_within || [height, width, new[0], new[1]].contains(&0) {
                    return Err(DataError::Mismatch(format!(
                        "rows {top} to {}, columns {left} to {} of an array of shape {} cannot become {} by {} pixels: the part must lie \
                         in it, and nothing may be empty",
                        top.saturating_add(height),
                        left.saturating_add(width),
                        array.shape(),
                        new[0],
                        new[1]
                    )));
                }
                warp::crop(array, [top, left], [height, width], new)
            }
        }
    }

    /// Where boxes are then, in an image that had this height and width: the smallest ones around their moved corners, cut at the edges. A
    /// box of which nothing is left has no area.
    pub fn boxes(&self, boxes: &[[f32; 4]], size: [usize; 2]) -> Vec<[f32; 4]> {
        let [height, width] = size.map(|extent| extent as f64);
        let new = self.size(size).map(|extent| extent as f64);
        let moved = |x: f64, y: f64| match *self {
            Geometry::Flip { horizontal, vertical } => {
                [if horizontal { width - x } else { x }, if vertical { height - y } else { y }]
            }
            Geometry::Affine { affine, .. } => {
                let [a, b, c, d, e, f] = affine.matrix(size);
                let (x, y) = (x - width / 2.0, y - height / 2.0);
                [a * x + b * y + c + width / 2.0, d * x + e * y + f + height / 2.0]
            }
            Geometry::Crop { top, left, height, width, .. } => {
                [(x - left as f64) * new[1] / width as f64, (y - top as f64) * new[0] / height as f64]
            }
        };
        let around = |&[left, top, right, bottom]: &[f32; 4]| {
            let corners = [(left, top), (right, top), (left, bottom), (right, bottom)];
            let corners = corners.map(|(x, y)| moved(f64::from(x), f64::from(y)));
            let end = |axis: usize, first: f64, pick: fn(f64, f64) -> f64| {
                corners.iter().map(|corner| corner[axis]).fold(first, pick).clamp(0.0, new[1 - axis]) as f32
            };
            let (least, most) = (f64::INFINITY, f64::NEG_INFINITY);
            [end(0, least, f64::min), end(1, least, f64::min), end(0, most, f64::max), end(1, most, f64::max)]
        };
        boxes.iter().map(around).collect()
    }

    /// Does it to an image, the input of a sample, and to what belongs to it: a target of the same height and width, such as a label mask,
    /// and [`BOXES`].
    ///
    /// # Errors
    /// [`DataError::Mismatch`] where the input is no image of shape `[channels, height, width]`, a mask has another size, or boxes are not
    /// `[n, 4]` floats; as [`array`](Self::array).
    pub fn apply(&self, sample: &mut Sample) -> Result<(), DataError> {
        let of = |name: &str, sample: &Sample| sample.get(name).map(|array| (array.dtype(), array.shape().clone()));
        let image = of(INPUT, sample).map(|(_, shape)| shape).unwrap_or_default();
        let size = image_size(&image)?;
        let moves_target = match of(TARGET, sample) {
            Some((dtype, shape)) => is_moved(dtype, &shape, &image)?,
            None => false,
        };
        for name in [INPUT, TARGET].into_iter().filter(|name| *name == INPUT || moves_target) {
            if let Some(array) = sample.get_mut(name) {
                *array = self.array(array)?;
            }
        }
        if let Some(array) = sample.get_mut(BOXES) {
            check_boxes(array.dtype(), array.shape())?;
            if let Values::F32(values) = array.values() {
                let boxes = self.boxes(bytemuck::cast_slice(values), size);
                *array = Array::new(Values::F32(copied(boxes.as_flattened())?), array.shape().clone())?;
            }
        }
        Ok(())
    }

    /// What samples then have, where they have this: as [`apply`](Self::apply).
    pub(super) fn features(features: Features, new: Option<[usize; 2]>) -> Result<Features, DataError> {
        let of = |name: &str| features.get(name).map(|(dtype, shape)| (dtype, shape.clone()));
        let image = of(INPUT).map(|(_, shape)| shape).unwrap_or_default();
        image_size(&image)?;
        if let Some((dtype, shape)) = of(BOXES) {
            check_boxes(dtype, &shape)?;
        }
        let mut moved: Vec<_> = of(INPUT).map(|(dtype, shape)| (INPUT, dtype, shape)).into_iter().collect();
        if let Some((dtype, shape)) = of(TARGET)
            && is_moved(dtype, &shape, &image)?
        {
            moved.push((TARGET, dtype, shape));
        }
        let Some(new) = new else { return Ok(features) };
        Ok(moved.into_iter().fold(features, |features, (name, dtype, shape)| {
            let shape = [&shape[..shape.len() - 2], &new].concat();
            features.with(name, dtype, shape)
        }))
    }

    /// Height and width of what was of this size.
    fn size(&self, size: [usize; 2]) -> [usize; 2] {
        match self {
            Geometry::Crop { size, .. } => *size,
            _ => size,
        }
    }
}

/// Height and width of an image.
pub(super) fn image_size(shape: &Shape) -> Result<[usize; 2], DataError> {
    match shape[..] {
        [_, height, width] if !shape.contains(&0) => Ok([height, width]),
        _ => Err(DataError::Mismatch(format!(
            "samples of shape {shape} cannot be augmented as images: these have the shape [channels, height, width]"
        ))),
    }
}

/// Whether a target moves with the image.
fn is_moved(dtype: DType, target: &Shape, image: &Shape) -> Result<bool, DataError> {
    if target.len() >= 2 && target[target.len() - 2..] == image[1..] {
        return Ok(true);
    }
    if dtype == DType::U32 && target.len() == 2 {
        return Err(DataError::Mismatch(format!(
            "a mask of shape {target} does not fit an image of shape {image}: both need the same height and width"
        )));
    }
    Ok(false)
}

fn check_boxes(dtype: DType, shape: &Shape) -> Result<(), DataError> {
    if dtype == DType::F32 && shape.len() == 2 && shape[1] == 4 {
        return Ok(());
    }
    Err(DataError::Mismatch(format!(
        "`{BOXES}` of type {dtype} and shape {shape} cannot be moved with the image: they must be f32 of shape [n, 4], the left, upper, \
         right and lower edge of each"
    )))
}

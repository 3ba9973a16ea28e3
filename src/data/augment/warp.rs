//! Pixels moved to other places: planes of one size, one after the other.

use super::geometry::{Fill, FillMode, Interpolation};
use crate::data::{Array, Values};
use crate::error::DataError;
use crate::tensor::{Shape, room};

/// Number of planes, height and width of an array.
pub(super) fn extents(shape: &Shape) -> Option<(usize, [usize; 2])> {
    let [planes @ .., height, width] = &shape[..] else { return None };
    Some((planes.iter().product(), [*height, *width]))
}

/// An array of the same planes in another size.
fn resized(from: &Array, [height, width]: [usize; 2], values: Values) -> Result<Array, DataError> {
    let mut shape = from.shape().to_vec();
    let last = shape.len() - 2;
    shape[last..].copy_from_slice(&[height, width]);
    Array::new(values, shape)
}

/// Mirrors planes.
pub(super) fn flip(
    array: &Array,
    [height, width]: [usize; 2],
    horizontal: bool,
    vertical: bool,
) -> Result<Array, DataError> {
    let mirrored = |place: usize, extent: usize, mirror: bool| if mirror { extent - 1 - place } else { place };
    let origin = |x: usize, y: usize| {
        Origin::Pixel(Some(mirrored(y, height, vertical) * width + mirrored(x, width, horizontal)))
    };
    if array.values().is_empty() {
        return Ok(array.clone());
    }
    let size = [height, width];
    let values = match array.values() {
        Values::U8(values) => Values::U8(drawn(values, size, origin, 0, |[pixel, ..], _| pixel)?),
        Values::F32(values) => Values::F32(drawn(values, size, origin, 0.0, |[pixel, ..], _| pixel)?),
        Values::U32(values) => Values::U32(drawn(values, size, origin, 0, |[pixel, ..], _| pixel)?),
    };
    Array::new(values, array.shape().clone())
}

/// A place outside is one inside, or none: there the fill value stands.
fn inside(place: i64, extent: usize, mode: FillMode) -> Option<usize> {
    let length = extent as i64;
    let place = match mode {
        FillMode::Constant => return usize::try_from(place).ok().filter(|place| *place < extent),
        FillMode::Nearest => place.clamp(0, length - 1),
        FillMode::Wrap => place.rem_euclid(length),
        FillMode::Reflect => {
            let place = place.rem_euclid(2 * length);
            place.min(2 * length - 1 - place)
        }
    };
    Some(place as usize)
}

/// Where a pixel comes from.
enum Origin {
    Pixel(Option<usize>),
    /// Four neighbours, and the weights of the right and of the lower ones.
    Between([Option<usize>; 4], [f32; 2]),
}

/// Draws planes anew: the pixel at `(x, y)` from the centre is taken from where `inverse` maps it to.
pub(super) fn affine(
    array: &Array,
    [height, width]: [usize; 2],
    inverse: [f64; 6],
    fill: Fill,
    interpolation: Interpolation,
) -> Result<Array, DataError> {
    if array.values().is_empty() {
        return Ok(array.clone());
    }
    let [a, b, c, d, e, f] = inverse;
    let center = [width as f64 / 2.0, height as f64 / 2.0];
    let at = |x: f64, y: f64| Some(inside(y as i64, height, fill.mode)? * width + inside(x as i64, width, fill.mode)?);
    let is_labels = matches!(array.values(), Values::U32(_));
    let origin = |x: usize, y: usize| {
        let (x, y) = (x as f64 + 0.5 - center[0], y as f64 + 0.5 - center[1]);
        // Far enough outside for every mode, and near enough for whole numbers.
        let limited = |place: f64| place.clamp(-1e15, 1e15);
        let x_from = limited(a * x + b * y + c + center[0] - 0.5);
        let y_from = limited(d * x + e * y + f + center[1] - 0.5);
        if is_labels || interpolation == Interpolation::Nearest {
            return Origin::Pixel(at(x_from.round_ties_even(), y_from.round_ties_even()));
        }
        let (left, top) = (x_from.floor(), y_from.floor());
        let weights = [(x_from - left) as f32, (y_from - top) as f32];
        if weights == [0.0, 0.0] {
            return Origin::Pixel(at(left, top));
        }
        let (right, bottom) = (left + 1.0, top + 1.0);
        Origin::Between([at(left, top), at(right, top), at(left, bottom), at(right, bottom)], weights)
    };
    let size = [height, width];
    let values = match array.values() {
        Values::U32(values) => Values::U32(drawn(values, size, origin, fill.label, |_, _| fill.label)?),
        Values::F32(values) => Values::F32(drawn(values, size, origin, fill.value, blend)?),
        Values::U8(values) => {
            let mix = |pixels: [u8; 4], weights| level(blend(pixels.map(f32::from), weights));
            Values::U8(drawn(values, size, origin, level(fill.value), mix)?)
        }
    };
    Array::new(values, array.shape().clone())
}

fn drawn<T: Copy>(
    planes: &[T],
    [height, width]: [usize; 2],
    origin: impl Fn(usize, usize) -> Origin,
    fill: T,
    mix: impl Fn([T; 4], [f32; 2]) -> T,
) -> Result<Vec<T>, DataError> {
    let mut output = room(planes.len())?;
    output.resize(planes.len(), fill);
    let plane = height * width;
    for y in 0..height {
        for x in 0..width {
            let origin = origin(x, y);
            for (from, to) in planes.chunks_exact(plane).zip(output.chunks_exact_mut(plane)) {
                let pixel = |place: Option<usize>| place.map_or(fill, |place| from[place]);
                to[y * width + x] = match origin {
                    Origin::Pixel(place) => pixel(place),
                    Origin::Between(places, weights) => mix(places.map(pixel), weights),
                };
            }
        }
    }
    Ok(output)
}

/// Between four pixels.
fn blend([a, b, c, d]: [f32; 4], [x, y]: [f32; 2]) -> f32 {
    let (top, bottom) = (a + (b - a) * x, c + (d - c) * x);
    top + (bottom - top) * y
}

/// The nearest level of brightness.
pub(super) fn level(value: f32) -> u8 {
    // The conversion keeps to 0 and 255.
    (value + 0.5) as u8
}

/// The part of planes that begins at `corner` (row, column) and is so large, in another size.
pub(super) fn crop(array: &Array, corner: [usize; 2], part: [usize; 2], size: [usize; 2]) -> Result<Array, DataError> {
    let (planes, from) = extents(array.shape()).unwrap_or_default();
    let count = planes.saturating_mul(size[0]).saturating_mul(size[1]);
    let values = match array.values() {
        Values::U8(values) => {
            Values::U8(filtered(values, from, corner, part, size, count, |&byte| byte.into(), level)?)
        }
        Values::F32(values) => {
            Values::F32(filtered(values, from, corner, part, size, count, |value| *value, |value| value)?)
        }
        Values::U32(values) => {
            // The pixel in which the centre of the new one lies.
            let place = |axis: usize, to: usize| corner[axis] + (2 * to + 1) * part[axis] / (2 * size[axis]);
            let mut output = room(count)?;
            for plane in values.chunks_exact((from[0] * from[1]).max(1)) {
                for y in 0..size[0] {
                    output.extend((0..size[1]).map(|x| plane[place(0, y) * from[1] + place(1, x)]));
                }
            }
            Values::U32(output)
        }
    };
    resized(array, size, values)
}

/// By the triangle filter, rows first. Nothing beside the part is seen.
#[expect(clippy::too_many_arguments, reason = "places in arrays, each as row and column")]
fn filtered<T>(
    values: &[T],
    [height, width]: [usize; 2],
    corner: [usize; 2],
    part: [usize; 2],
    size: [usize; 2],
    count: usize,
    from: impl Fn(&T) -> f32,
    to: impl Fn(f32) -> T,
) -> Result<Vec<T>, DataError> {
    let [vertical, horizontal] = [taps(part[0], size[0])?, taps(part[1], size[1])?];
    let mut output = room(count)?;
    let mut rows: Vec<f32> = room(part[0].saturating_mul(size[1]))?;
    for plane in values.chunks_exact(height * width) {
        rows.clear();
        for row in corner[0]..corner[0] + part[0] {
            let row = &plane[row * width + corner[1]..][..part[1]];
            rows.extend(horizontal.iter().map(|(start, weights)| {
                row[*start..].iter().zip(weights).map(|(value, weight)| from(value) * weight).sum::<f32>()
            }));
        }
        for (start, weights) in &vertical {
            output.extend((0..size[1]).map(|x| {
                let column = weights.iter().enumerate();
                to(column.map(|(row, weight)| rows[(start + row) * size[1] + x] * weight).sum())
            }));
        }
    }
    Ok(output)
}

/// Of which pixels each new one of an axis is made, and their weights: a triangle around its centre, two pixels wide, of the smaller image.
fn taps(part: usize, size: usize) -> Result<Vec<(usize, Vec<f32>)>, DataError> {
    let scale = part as f64 / size as f64;
    let reach = scale.max(1.0);
    let mut taps = room(size)?;
    for to in 0..size {
        let center = (to as f64 + 0.5) * scale;
        let start = (center - reach + 0.5).max(0.0) as usize;
        let end = ((center + reach + 0.5) as usize).min(part);
        let mut weights: Vec<f64> = room(end - start)?;
        weights.extend((start..end).map(|at| (1.0 - ((at as f64 + 0.5 - center) / reach).abs()).max(0.0)));
        let sum: f64 = weights.iter().sum();
        taps.push((start, weights.iter().map(|weight| (weight / sum) as f32).collect()));
    }
    Ok(taps)
}

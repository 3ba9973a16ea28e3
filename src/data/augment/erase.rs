//! Parts of images that are not shown.

use super::geometry::image_size;
use super::interval::{Interval, check_probability};
use super::spatial::{TRIES, check_share, drawn_part};
use super::warp::level;
use crate::data::{Array, Features, INPUT, Key, Sample, Transform, Values, random};
use crate::error::DataError;

/// Sets a part of an image `[channels, height, width]` to one value. What of the part is outside of the image does not count.
///
/// # Errors
/// [`DataError::Mismatch`] where it is no image.
pub fn erase(image: &mut Array, corner: [usize; 2], size: [usize; 2], value: f32) -> Result<(), DataError> {
    fn fill<T: Copy>(values: &mut [T], [height, width]: [usize; 2], rows: [usize; 2], columns: [usize; 2], value: T) {
        for plane in values.chunks_exact_mut(height * width) {
            plane[rows[0] * width..rows[1] * width]
                .chunks_exact_mut(width)
                .for_each(|row| row[columns[0]..columns[1]].fill(value));
        }
    }
    let extents = image_size(image.shape())?;
    let [rows, columns] = [0, 1].map(|axis| {
        let start = corner[axis].min(extents[axis]);
        [start, start.saturating_add(size[axis]).min(extents[axis])]
    });
    match image.values_mut() {
        Values::U8(values) => fill(values, extents, rows, columns, level(value)),
        Values::F32(values) => fill(values, extents, rows, columns, value),
        Values::U32(values) => fill(values, extents, rows, columns, value as u32),
    }
    Ok(())
}

/// Sets a rectangle of random place, area and aspect ratio to one value, as torchvision's `RandomErasing` does. With one area and a ratio
/// of 1 alone it is cutout. Labels, masks and boxes stay as they are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomErasing {
    /// How likely it happens.
    pub probability: f64,
    /// Share of the area: torchvision takes 0.02 to 0.33.
    pub scale: Interval,
    /// Height divided by width: torchvision takes 0.3 to 3.3.
    pub ratio: Interval,
    /// The value, of bytes from 0 to 255.
    pub value: f32,
}

impl Default for RandomErasing {
    /// What torchvision takes.
    fn default() -> Self {
        RandomErasing { probability: 0.5, scale: [0.02, 0.33].into(), ratio: [0.3, 3.3].into(), value: 0.0 }
    }
}

impl RandomErasing {
    /// First row and column, and rows and columns, that a key erases of an image of this height and width. None where it does not happen, or
    /// no rectangle that fits was drawn in ten times.
    pub fn draw(&self, size: [usize; 2], key: Key) -> Option<([usize; 2], [usize; 2])> {
        let mut random = key.random("erasing");
        if !random::happens(&mut random, self.probability) {
            return None;
        }
        // The ratio is that of a crop the other way round.
        let part = (0..TRIES)
            .map(|_| {
                let [width, height] = drawn_part(&mut random, size, self.scale, self.ratio);
                [height, width]
            })
            .find(|part| part.iter().zip(size).all(|(part, extent)| *part < extent))?;
        Some(([0, 1].map(|axis| random::below(&mut random, size[axis] - part[axis] + 1)), part))
    }
}

impl Transform for RandomErasing {
    fn apply(&self, mut sample: Sample, key: Key) -> Result<Sample, DataError> {
        if let Some(image) = sample.get_mut(INPUT)
            && let Some((corner, size)) = self.draw(image_size(image.shape())?, key)
        {
            erase(image, corner, size, self.value)?;
        }
        Ok(sample)
    }

    fn features(&self, features: Features) -> Result<Features, DataError> {
        check_probability("erasing", self.probability)?;
        check_share("erasing_scale", self.scale)?;
        self.ratio.check("erasing_ratio", 0.0, f64::INFINITY, true)?;
        Interval::only(self.value.into()).check("erasing_value", f64::NEG_INFINITY, f64::INFINITY, false)?;
        image_size(&features.get(INPUT).map(|(_, shape)| shape.clone()).unwrap_or_default())?;
        Ok(features)
    }
}

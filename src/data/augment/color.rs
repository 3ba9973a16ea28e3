//! Changes of brightness and colour: of images `[channels, height, width]` of bytes, or of floats from 0 to 1, in red, green and blue or in
//! grey. The formulas are those of torchvision, except that bytes are rounded to the nearest where it cuts fractions off.

use super::geometry::image_size;
use super::interval::Interval;
use super::warp::level;
use crate::data::{Array, Features, INPUT, Key, Sample, Transform, Values, random};
use crate::error::DataError;
use crate::tensor::Shape;

/// Weights of red, green and blue in grey.
const GRAY: [f32; 3] = [0.2989, 0.587, 0.114];

/// Multiplies all values by `factor`: 0 is black, 1 the image, 2 twice as bright.
///
/// # Errors
/// [`DataError::Mismatch`] where it is no image of 1 or 3 channels.
pub fn adjust_brightness(image: &mut Array, factor: f64) -> Result<(), DataError> {
    let factor = factor as f32;
    each_pixel(image, |pixel, _| pixel.map(|value| value * factor))
}

/// Blends the image with the mean of its grey values: `factor` of the image, `1 − factor` of the mean.
///
/// # Errors
/// As [`adjust_brightness`].
pub fn adjust_contrast(image: &mut Array, factor: f64) -> Result<(), DataError> {
    let channels = channels(image.shape())?;
    let mean = |values: &mut dyn Iterator<Item = [f32; 3]>, whole: bool| {
        let (mut sum, mut count) = (0.0, 0u32);
        for pixel in values {
            sum += f64::from(if channels == 1 { pixel[0] } else { gray(pixel, whole) });
            count += 1;
        }
        (sum / f64::from(count.max(1))) as f32
    };
    let plane = image.values().len() / channels;
    let at = |channel: usize, place: usize| (channel % channels) * plane + place;
    let mean = match image.values() {
        Values::U8(values) => {
            mean(&mut (0..plane).map(|place| [0, 1, 2].map(|channel| f32::from(values[at(channel, place)]))), true)
        }
        Values::F32(values) => {
            mean(&mut (0..plane).map(|place| [0, 1, 2].map(|channel| values[at(channel, place)])), false)
        }
        Values::U32(_) => 0.0,
    };
    let factor = factor as f32;
    each_pixel(image, |pixel, _| pixel.map(|value| factor * value + (1.0 - factor) * mean))
}

/// Blends each pixel with its grey value: `factor` of the pixel, `1 − factor` of the grey value. Grey images stay as they are.
///
/// # Errors
/// As [`adjust_brightness`].
pub fn adjust_saturation(image: &mut Array, factor: f64) -> Result<(), DataError> {
    if channels(image.shape())? == 1 {
        return Ok(());
    }
    let factor = factor as f32;
    each_pixel(image, |pixel, whole| {
        let gray = gray(pixel, whole);
        pixel.map(|value| factor * value + (1.0 - factor) * gray)
    })
}

/// Turns the hue, in hue, saturation and value, by `shift` of the circle, from −0.5 to 0.5: ±0.5 is the complementary colour. Grey images
/// stay as they are.
///
/// # Errors
/// As [`adjust_brightness`].
pub fn adjust_hue(image: &mut Array, shift: f64) -> Result<(), DataError> {
    if channels(image.shape())? == 1 || shift == 0.0 {
        return Ok(());
    }
    let shift = shift as f32;
    each_pixel(image, |pixel, whole| {
        let bound = if whole { 255.0 } else { 1.0 };
        let [hue, saturation, value] = hsv(pixel.map(|value| value / bound));
        rgb([(hue + shift).rem_euclid(1.0), saturation, value]).map(|value| value * bound)
    })
}

/// The grey value; of bytes without its fraction, as in torchvision.
fn gray([red, green, blue]: [f32; 3], whole: bool) -> f32 {
    let gray = red * GRAY[0] + green * GRAY[1] + blue * GRAY[2];
    if whole { gray.floor() } else { gray }
}

/// Hue, saturation and value, each from 0 to 1.
fn hsv([red, green, blue]: [f32; 3]) -> [f32; 3] {
    let (most, least) = (red.max(green).max(blue), red.min(green).min(blue));
    let range = most - least;
    if range == 0.0 {
        return [0.0, 0.0, most];
    }
    let hue = if most == red {
        (green - blue) / range
    } else if most == green {
        2.0 + (blue - red) / range
    } else {
        4.0 + (red - green) / range
    };
    [(hue / 6.0).rem_euclid(1.0), range / most, most]
}

/// Red, green and blue of hue, saturation and value.
fn rgb([hue, saturation, value]: [f32; 3]) -> [f32; 3] {
    let sector = (hue * 6.0).floor();
    let within = hue * 6.0 - sector;
    let p = value * (1.0 - saturation);
    let q = value * (1.0 - saturation * within);
    let t = value * (1.0 - saturation * (1.0 - within));
    match sector as u32 % 6 {
        0 => [value, t, p],
        1 => [q, value, p],
        2 => [p, value, t],
        3 => [p, q, value],
        4 => [t, p, value],
        _ => [value, p, q],
    }
}

/// Changes pixels one by one, from 0 to 255 where they are bytes, which the function is told, else from 0 to 1.
fn each_pixel(image: &mut Array, change: impl Fn([f32; 3], bool) -> [f32; 3]) -> Result<(), DataError> {
    let channels = channels(image.shape())?;
    let plane = image.values().len() / channels;
    let place = |channel: usize, at: usize| (channel % channels) * plane + at;
    match image.values_mut() {
        Values::U8(values) => {
            for at in 0..plane {
                let pixel = change([0, 1, 2].map(|channel| f32::from(values[place(channel, at)])), true);
                (0..channels).for_each(|channel| values[place(channel, at)] = level(pixel[channel]));
            }
        }
        Values::F32(values) => {
            for at in 0..plane {
                let pixel = change([0, 1, 2].map(|channel| values[place(channel, at)]), false);
                (0..channels).for_each(|channel| values[place(channel, at)] = pixel[channel].clamp(0.0, 1.0));
            }
        }
        Values::U32(_) => {
            let text = "an image of u32 numbers has no colours: it must be of bytes, or of floats from 0 to 1";
            return Err(DataError::Mismatch(text.to_owned()));
        }
    }
    Ok(())
}

fn channels(shape: &Shape) -> Result<usize, DataError> {
    image_size(shape)?;
    match shape[0] {
        channels @ (1 | 3) => Ok(channels),
        channels => Err(DataError::Mismatch(format!(
            "an image of {channels} channels has no colours that could be changed: 1 channel is grey, 3 are red, green and blue"
        ))),
    }
}

/// Changes brightness, contrast, saturation and hue by factors that it draws uniformly, in an order that it draws too, as torchvision's
/// `ColorJitter` does. Images of floats go from 0 to 1: what is changed is kept there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ColorJitter {
    /// See [`adjust_brightness`].
    pub brightness: Interval,
    /// See [`adjust_contrast`].
    pub contrast: Interval,
    /// See [`adjust_saturation`].
    pub saturation: Interval,
    /// See [`adjust_hue`].
    pub hue: Interval,
}

impl Default for ColorJitter {
    /// All stays as it is.
    fn default() -> Self {
        let (one, none) = (Interval::only(1.0), Interval::only(0.0));
        ColorJitter { brightness: one, contrast: one, saturation: one, hue: none }
    }
}

/// One change of colours by a number.
type Adjust = fn(&mut Array, f64) -> Result<(), DataError>;

impl Transform for ColorJitter {
    fn apply(&self, mut sample: Sample, key: Key) -> Result<Sample, DataError> {
        let mut random = key.random("color");
        let changes: [(Adjust, Interval, f64); 4] = [
            (adjust_brightness, self.brightness, 1.0),
            (adjust_contrast, self.contrast, 1.0),
            (adjust_saturation, self.saturation, 1.0),
            (adjust_hue, self.hue, 0.0),
        ];
        let mut changes = changes.map(|(adjust, interval, nothing)| (adjust, interval.draw(&mut random), nothing));
        random::shuffle(&mut random, &mut changes);
        if let Some(image) = sample.get_mut(INPUT) {
            for (adjust, number, nothing) in changes {
                if number != nothing {
                    adjust(image, number)?;
                }
            }
        }
        Ok(sample)
    }

    fn features(&self, features: Features) -> Result<Features, DataError> {
        for (name, factor) in
            [("brightness", self.brightness), ("contrast", self.contrast), ("saturation", self.saturation)]
        {
            factor.check(name, 0.0, f64::INFINITY, false)?;
        }
        self.hue.check("hue", -0.5, 0.5, false)?;
        channels(features.get(INPUT).map_or(&Shape::default(), |(_, shape)| shape))?;
        Ok(features)
    }
}

//! Transforms that move pixels, by parameters that they draw.

use super::geometry::{Affine, Fill, Geometry, Interpolation, image_size};
use super::interval::{Interval, check_probability};
use crate::data::{Features, INPUT, Key, Sample, Transform, random};
use crate::error::DataError;

/// How often a size is drawn that does not fit before another way is taken, as in torchvision.
pub(super) const TRIES: usize = 10;

/// Mirrors images, each way with a probability of its own. Moves masks and boxes alike: see [`Geometry::apply`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomFlip {
    /// Probability of left and right changing places.
    pub horizontal: f64,
    /// Probability of up and down changing places.
    pub vertical: f64,
}

impl Transform for RandomFlip {
    fn apply(&self, mut sample: Sample, key: Key) -> Result<Sample, DataError> {
        let mut random = key.random("flip");
        let horizontal = random::happens(&mut random, self.horizontal);
        let vertical = random::happens(&mut random, self.vertical);
        if horizontal || vertical {
            Geometry::Flip { horizontal, vertical }.apply(&mut sample)?;
        }
        Ok(sample)
    }

    fn features(&self, features: Features) -> Result<Features, DataError> {
        check_probability("horizontal_flip", self.horizontal)?;
        check_probability("vertical_flip", self.vertical)?;
        Geometry::features(features, None)
    }
}

/// Rotates, shears, zooms and shifts images in one [`Affine`] map, each parameter drawn uniformly. Moves masks and boxes alike: see
/// [`Geometry::apply`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomAffine {
    /// Degrees, clockwise.
    pub rotation: Interval,
    /// Degrees along the horizontal and the vertical axis, between −90 and 90.
    pub shear: [Interval; 2],
    /// How many times as large things are.
    pub zoom: Interval,
    /// To the right and down, in shares of the width and of the height. Other than in torchvision, whole pixels are not needed.
    pub shift: [Interval; 2],
    /// What stands where there are no pixels.
    pub fill: Fill,
    /// How pixels of images are made.
    pub interpolation: Interpolation,
}

impl Default for RandomAffine {
    /// All stays where it is.
    fn default() -> Self {
        let none = Interval::only(0.0);
        RandomAffine {
            rotation: none,
            shear: [none; 2],
            zoom: Interval::only(1.0),
            shift: [none; 2],
            fill: Fill::default(),
            interpolation: Interpolation::default(),
        }
    }
}

impl RandomAffine {
    /// The map of a key.
    pub fn draw(&self, key: Key) -> Affine {
        let mut random = key.random("affine");
        let mut draw = |interval: Interval| interval.draw(&mut random);
        Affine {
            rotation: draw(self.rotation),
            shift: self.shift.map(&mut draw),
            zoom: draw(self.zoom),
            shear: self.shear.map(&mut draw),
        }
    }
}

impl Transform for RandomAffine {
    fn apply(&self, mut sample: Sample, key: Key) -> Result<Sample, DataError> {
        let RandomAffine { fill, interpolation, .. } = *self;
        Geometry::Affine { affine: self.draw(key), fill, interpolation }.apply(&mut sample)?;
        Ok(sample)
    }

    fn features(&self, features: Features) -> Result<Features, DataError> {
        self.rotation.check("rotation", -360.0, 360.0, false)?;
        self.shear[0].check("shear", -90.0, 90.0, true)?;
        self.shear[1].check("shear_y", -90.0, 90.0, true)?;
        self.zoom.check("zoom", 0.0, f64::INFINITY, true)?;
        self.shift.iter().try_for_each(|shift| shift.check("shift", -1.0, 1.0, false))?;
        Interval::only(self.fill.value.into()).check("fill_value", f64::NEG_INFINITY, f64::INFINITY, false)?;
        Geometry::features(features, None)
    }
}

/// Cuts out a part of random area and aspect ratio and resizes it, as torchvision's `RandomResizedCrop` does: up to ten times an area and
/// the logarithm of a ratio are drawn, until the part is within the image; else it is the largest one in the middle whose ratio is
/// allowed. Moves masks and boxes alike: see [`Geometry::apply`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomResizedCrop {
    /// Height and width that all images then have. Without it, those that they had.
    pub size: Option<[usize; 2]>,
    /// Share of the area: torchvision takes 0.08 to 1.
    pub scale: Interval,
    /// Width divided by height: torchvision takes 3/4 to 4/3.
    pub ratio: Interval,
}

impl Default for RandomResizedCrop {
    /// What torchvision takes.
    fn default() -> Self {
        RandomResizedCrop { size: None, scale: [0.08, 1.0].into(), ratio: [3.0 / 4.0, 4.0 / 3.0].into() }
    }
}

impl RandomResizedCrop {
    /// The part of an image of this height and width that a key cuts out.
    pub fn draw(&self, size: [usize; 2], key: Key) -> Geometry {
        let mut random = key.random("crop");
        let new = self.size.unwrap_or(size);
        let part = (0..TRIES)
            .map(|_| drawn_part(&mut random, size, self.scale, self.ratio))
            .find(|part| part.iter().zip(size).all(|(part, extent)| *part > 0 && *part <= extent));
        let ([height, width], is_drawn) = part.map_or_else(|| (self.largest(size), false), |part| (part, true));
        let mut start = |axis: usize, extent: usize| match is_drawn {
            true => random::below(&mut random, size[axis] - extent + 1),
            false => (size[axis] - extent) / 2,
        };
        Geometry::Crop { top: start(0, height), left: start(1, width), height, width, size: new }
    }

    /// The largest part that has an allowed ratio.
    fn largest(&self, [height, width]: [usize; 2]) -> [usize; 2] {
        let ratio = width as f64 / height as f64;
        let within = |wanted: f64, extent: usize| (wanted.round_ties_even() as usize).clamp(1, extent);
        if ratio < self.ratio.low {
            [within(width as f64 / self.ratio.low, height), width]
        } else if ratio > self.ratio.high {
            [height, within(height as f64 * self.ratio.high, width)]
        } else {
            [height, width]
        }
    }
}

impl Transform for RandomResizedCrop {
    fn apply(&self, mut sample: Sample, key: Key) -> Result<Sample, DataError> {
        let size = image_size(&sample.get(INPUT).map(|image| image.shape().clone()).unwrap_or_default())?;
        self.draw(size, key).apply(&mut sample)?;
        Ok(sample)
    }

    fn features(&self, features: Features) -> Result<Features, DataError> {
        check_share("crop", self.scale)?;
        self.ratio.check("crop_ratio", 0.0, f64::INFINITY, true)?;
        if self.size.is_some_and(|size| size.contains(&0)) {
            return Err(DataError::Mismatch("augmentation: the size of a crop must be at least 1 by 1".to_owned()));
        }
        Geometry::features(features, self.size)
    }
}

/// Height and width of a part of random area and aspect ratio (width by height): not always within the image.
pub(super) fn drawn_part(
    random: &mut rand_chacha::ChaCha8Rng,
    [height, width]: [usize; 2],
    scale: Interval,
    ratio: Interval,
) -> [usize; 2] {
    let area = (height * width) as f64 * scale.draw(random);
    let ratio = libm::exp(Interval { low: libm::log(ratio.low), high: libm::log(ratio.high) }.draw(random));
    [area / ratio, area * ratio].map(|square| libm::sqrt(square).round_ties_even() as usize)
}

/// Refuses what is no share of an area.
pub(super) fn check_share(name: &str, share: Interval) -> Result<(), DataError> {
    share.check(name, 0.0, 1.0, false)?;
    // A share of nothing cannot be shown.
    if share.high == 0.0 { share.check(name, 0.0, f64::INFINITY, true) } else { Ok(()) }
}

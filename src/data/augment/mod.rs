//! Augmentation: images changed at random, each time anew, so that a model sees more than there is.
//!
//! | transform | what |
//! |---|---|
//! | [`RandomFlip`] | left and right, up and down change places |
//! | [`RandomAffine`] | rotation, shear, zoom and shift, in one map |
//! | [`RandomResizedCrop`] | a part of random size and ratio, resized |
//! | [`ColorJitter`] | brightness, contrast, saturation, hue |
//! | [`RandomErasing`] | a rectangle is not shown; cutout |
//! | [`MixUp`], [`CutMix`] | samples of a batch mixed with each other |
//!
//! [`Augmentation`] has all of them as settings. Each draws its parameters from a [`Key`](super::Key) of seed, epoch and sample, and then does
//! what a function of these parameters does: [`Geometry`] for what moves pixels, [`adjust_brightness`] and its like, [`erase`],
//! [`MixUp::mix`], [`CutMix::mix`]. Two transforms of one type draw the same parameters from one key.
//!
//! Images are bytes or floats of shape `[channels, height, width]`. What moves pixels moves a target of the same height and width with them,
//! such as a mask of labels, and [`BOXES`]. Functions are those of torchvision and the same on every machine; bytes are rounded to the
//! nearest.

mod color;
mod erase;
mod geometry;
mod interval;
mod mix;
mod settings;
mod spatial;
mod warp;

pub use color::{ColorJitter, adjust_brightness, adjust_contrast, adjust_hue, adjust_saturation};
pub use erase::{RandomErasing, erase};
pub use geometry::{Affine, BOXES, Fill, FillMode, Geometry, Interpolation};
pub use interval::Interval;
pub use mix::{CutMix, MixUp, RandomChoice};
pub use settings::{Amount, Augmentation, Transforms};
pub use spatial::{RandomAffine, RandomFlip, RandomResizedCrop};

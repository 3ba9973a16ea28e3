//! Shapes of light colors on dark, noisy grounds.

use std::error::Error;
use std::fs;
use std::path::Path;

use image::{GrayImage, Luma, Rgb, RgbImage};
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;

/// Whether a point is in a shape around (0, 0) that reaches as far as 1.
fn covers(shape: &str, x: f32, y: f32) -> bool {
    let (least, most) = (x.abs().min(y.abs()), x.abs().max(y.abs()));
    match shape {
        "bar" => x.abs() < 0.95 && y.abs() < 0.3,
        "circle" => x.hypot(y) < 1.0,
        "cross" => least < 0.3 && most < 0.95,
        "ring" => (0.55..1.0).contains(&x.hypot(y)),
        // Five points: the distance at which an edge is depends on the angle alone.
        "star" => {
            let angle = (x.atan2(y) / std::f32::consts::TAU * 5.0).rem_euclid(1.0);
            x.hypot(y) < 1.0 - 1.2 * angle.min(1.0 - angle)
        }
        "triangle" => y < 0.75 && y > 2.0 * x.abs() - 0.95,
        _ => most < 0.8,
    }
}

/// A shape somewhere in an image.
struct Place {
    shape: &'static str,
    center: [f32; 2],
    radius: f32,
    color: [u8; 3],
}

impl Place {
    fn anywhere(shape: &'static str, extent: [u32; 2], random: &mut ChaCha8Rng) -> Self {
        let [width, height] = extent.map(|extent| extent as f32);
        let radius = random.random_range(0.2..0.4) * width.min(height);
        let center = [width, height].map(|extent| random.random_range(radius..extent - radius));
        Place { shape, center, radius, color: [(); 3].map(|()| random.random_range(110..=235)) }
    }

    fn covers(&self, x: u32, y: u32) -> bool {
        let [x, y] = [(x, 0), (y, 1)].map(|(at, axis)| (at as f32 + 0.5 - self.center[axis]) / self.radius);
        covers(self.shape, x, y)
    }
}

/// Draws shapes, later ones over earlier ones, and says which of them, from 1, each pixel is of; 0 is the ground.
fn draw(places: &[Place], [width, height]: [u32; 2], random: &mut ChaCha8Rng) -> (RgbImage, GrayImage) {
    let ground = [(); 3].map(|()| random.random_range(10..80_u8));
    let mask = GrayImage::from_fn(width, height, |x, y| {
        let top = places.iter().rposition(|place| place.covers(x, y));
        Luma([top.map_or(0, |top| top as u8 + 1)])
    });
    let image = RgbImage::from_fn(width, height, |x, y| {
        let color = match mask.get_pixel(x, y).0 {
            [0] => ground,
            [number] => places[usize::from(number) - 1].color,
        };
        Rgb(color.map(|tone| tone.saturating_add_signed(random.random_range(-20..=20))))
    });
    (image, mask)
}

/// A folder of images for each class, PNG and JPEG of many sizes.
pub fn classes(folder: &Path, classes: &[&'static str], count: u64) -> Result<(), Box<dyn Error>> {
    for (class, shape) in (10..).zip(classes) {
        let folder = folder.join(shape);
        fs::create_dir_all(&folder)?;
        for index in 0..count {
            let mut random = super::random(class, index);
            let extent = [(); 2].map(|()| random.random_range(48..=80));
            let place = Place::anywhere(shape, extent, &mut random);
            let (image, _) = draw(&[place], extent, &mut random);
            let ending = if index % 2 == 0 { "png" } else { "jpg" };
            image.save(folder.join(format!("{index:03}.{ending}")))?;
        }
    }
    Ok(())
}

/// Images with a circle and a square each, and masks of the same names: 1 is the circle, 2 the square.
pub fn scenes(folder: &Path, count: u64) -> Result<(), Box<dyn Error>> {
    let [images, masks] = ["images", "masks"].map(|name| folder.join(name));
    fs::create_dir_all(&images)?;
    fs::create_dir_all(&masks)?;
    for index in 0..count {
        let mut random = super::random(4, index);
        let places = ["circle", "square"].map(|shape| Place::anywhere(shape, [64, 64], &mut random));
        let (image, mask) = draw(&places, [64, 64], &mut random);
        image.save(images.join(format!("{index:03}.png")))?;
        mask.save(masks.join(format!("{index:03}.png")))?;
    }
    Ok(())
}

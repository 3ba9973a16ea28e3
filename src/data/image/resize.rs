//! Images of one size.

use fast_image_resize as fir;
use fir::images::{Image, ImageRef};

use super::decode::Pixels;
use super::options::Resize;
use crate::error::DataError;
use crate::tensor::room;

/// Which part of an image goes where.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Geometry {
    /// Left, top, width, height of what is taken of the image.
    part: [f64; 4],
    /// Where it goes: top and left, height and width.
    offset: [usize; 2],
    extent: [usize; 2],
    /// Height and width of the whole.
    size: [usize; 2],
}

impl Geometry {
    /// From one height and width to another.
    pub(super) fn new(from: [usize; 2], to: [usize; 2], resize: Resize) -> Self {
        let [height, width] = from.map(|extent| extent as f64);
        let [to_height, to_width] = to.map(|extent| extent as f64);
        let whole = Geometry { part: [0.0, 0.0, width, height], offset: [0, 0], extent: to, size: to };
        let (ratio, to_ratio) = (width / height, to_width / to_height);
        let rounded = |extent: f64, most: usize| (extent.round_ties_even() as usize).clamp(1, most);
        match resize {
            Resize::Stretch => whole,
            _ if ratio == to_ratio => whole,
            Resize::Pad { .. } => {
                let extent = if ratio > to_ratio {
                    [rounded(height / width * to_width, to[0]), to[1]]
                } else {
                    [to[0], rounded(width / height * to_height, to[1])]
                };
                let middle = |axis: usize| ((to[axis] - extent[axis]) as f64 * 0.5).round_ties_even() as usize;
                Geometry { offset: [middle(0), middle(1)], extent, ..whole }
            }
            Resize::Crop => {
                let (part_width, part_height) =
                    if ratio > to_ratio { (to_ratio * height, height) } else { (width, width / to_ratio) };
                // Places in single precision, as Pillow has them.
                let axis = |extent: f64, part: f64| {
                    let begin = (extent - part) * 0.5;
                    let (first, last) = (begin as f32, (begin + part) as f32);
                    (f64::from(first), f64::from(last - first).min(extent - f64::from(first)))
                };
                let ((left, part_width), (top, part_height)) = (axis(width, part_width), axis(height, part_height));
                Geometry { part: [left, top, part_width, part_height], ..whole }
            }
        }
    }

    /// Labels of each pixel, of which each takes that of the nearest one; `fill` is the rest.
    pub(super) fn nearest(&self, labels: &[u32], width: usize, fill: u32) -> Result<Vec<u32>, DataError> {
        let [left, top, part_width, part_height] = self.part;
        // Step by step, as Pillow does: where two pixels are equally near, a rounding decides.
        let sources = |extent: usize, begin: f64, part: f64, most: usize| -> Vec<usize> {
            let step = part / extent as f64;
            let places = std::iter::successors(Some(begin + step * 0.5), |place| Some(place + step));
            places.take(extent).map(|place| (place as usize).min(most - 1)).collect()
        };
        let columns = sources(self.extent[1], left, part_width, width);
        let rows = sources(self.extent[0], top, part_height, labels.len() / width.max(1));
        let mut made = room(self.size[0] * self.size[1])?;
        made.resize(self.size[0] * self.size[1], fill);
        for (y, row) in rows.into_iter().enumerate() {
            let row = &labels[row * width..][..width];
            let at = (self.offset[0] + y) * self.size[1] + self.offset[1];
            made[at..at + columns.len()].iter_mut().zip(&columns).for_each(|(place, &column)| *place = row[column]);
        }
        Ok(made)
    }

    /// Pixels, bilinear with antialiasing; `fill` is the rest.
    pub(super) fn bilinear(&self, pixels: &Pixels, fill: u8) -> Result<Pixels, DataError> {
        let bug = "bug: extents were checked";
        let channels = pixels.channels;
        let kind = if channels == 1 { fir::PixelType::U8 } else { fir::PixelType::U8x3 };
        let source = ImageRef::new(pixels.width as u32, pixels.height as u32, &pixels.bytes, kind).expect(bug);
        let [height, width] = self.extent;
        let mut bytes = room(height * width * channels)?;
        bytes.resize(height * width * channels, fill);
        let mut scaled = Image::from_vec_u8(width as u32, height as u32, bytes, kind).expect(bug);
        let [left, top, part_width, part_height] = self.part;
        let options = fir::ResizeOptions::new()
            .resize_alg(fir::ResizeAlg::Convolution(fir::FilterType::Bilinear))
            .crop(left, top, part_width, part_height)
            .use_alpha(false);
        fir::Resizer::new()
            .resize(&source, &mut scaled, &options)
            .map_err(|error| DataError::Mismatch(format!("the image cannot be resized: {error}")))?;
        let scaled = scaled.into_vec();
        let of_size = |bytes| Pixels { height: self.size[0], width: self.size[1], channels, bytes };
        if self.extent == self.size {
            return Ok(of_size(scaled));
        }
        let mut bytes = room(self.size[0] * self.size[1] * channels)?;
        bytes.resize(self.size[0] * self.size[1] * channels, fill);
        for (y, row) in scaled.chunks_exact(width * channels).enumerate() {
            let at = ((self.offset[0] + y) * self.size[1] + self.offset[1]) * channels;
            bytes[at..at + row.len()].copy_from_slice(row);
        }
        Ok(of_size(bytes))
    }
}

impl Resize {
    /// What is around an image.
    pub(super) fn fill(self) -> u8 {
        match self {
            Resize::Pad { fill } => fill,
            Resize::Stretch | Resize::Crop => 0,
        }
    }
}

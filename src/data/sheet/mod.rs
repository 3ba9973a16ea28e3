//! A picture of some samples: what a model sees of them.

mod font;

use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageEncoder};

use super::augment::BOXES;
use super::{Array, Features, INPUT, Sample, TARGET, TargetKind, Values, shown_label};
use crate::error::DataError;
use crate::tensor::room;

/// Pixels between two images, and around all.
const GAP: usize = 6;
/// Lines of a caption.
const LINES: usize = 3;
/// A sheet is not larger: 16,384 by 16,384 pixels.
const MOST_PIXELS: usize = 1 << 28;

const BACKGROUND: [u8; 3] = [250, 250, 250];
const INK: [u8; 3] = [30, 30, 30];
const BOX: [u8; 3] = [255, 60, 0];

/// An image with what belongs to it.
///
/// Images have the shape `[channels, height, width]`: one channel is grey, three are red, green and blue; of two or more than three, the first
/// or the first three are shown. Floats are shown as they are from 0 to 1, and otherwise stretched from their lowest to their highest.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// The image.
    pub image: Array,
    /// Labels of its pixels: `[height, width]`, shown as colours beside the image. Those of 0 have none.
    pub mask: Option<Vec<u32>>,
    /// Left, upper, right and lower edge of each, in pixels of the image.
    pub boxes: Vec<[f32; 4]>,
    /// What stands below it.
    pub caption: String,
}

impl Picture {
    /// The input of a sample, with its label or the likeliest classes below it, its mask and its boxes.
    ///
    /// # Errors
    /// [`DataError::Mismatch`] where its input is no image.
    pub fn of(sample: &Sample, features: &Features) -> Result<Self, DataError> {
        let image = sample.get(INPUT).cloned().unwrap_or(Array::from([0u8; 0]));
        let [_, height, width] = extents(&image)?;
        let name = |class: usize| match features.class_names().get(class) {
            Some(name) => name.clone(),
            None => shown_label(class as u32).to_string(),
        };
        let (mut mask, mut caption) = (None, String::new());
        if let Some(target) = sample.get(TARGET) {
            match target.values() {
                Values::U32(labels) if target.shape().len() >= 2 && labels.len() == height * width => {
                    mask = Some(labels.clone());
                }
                Values::U32(labels) => {
                    let names: Vec<_> = labels.iter().take(8).map(|&label| name(label as usize)).collect();
                    caption = names.join(", ");
                }
                Values::F32(shares) if is_mixed(features, shares.len()) => {
                    let mut shares: Vec<_> = shares.iter().enumerate().filter(|(_, share)| **share > 0.0).collect();
                    shares.sort_by(|(_, a), (_, b)| b.total_cmp(a));
                    let names: Vec<_> = shares
                        .iter()
                        .take(3)
                        .map(|(class, share)| format!("{} {:.0}%", name(*class), **share * 100.0))
                        .collect();
                    caption = names.join(", ");
                }
                Values::F32(numbers) => {
                    let numbers: Vec<_> = numbers.iter().take(4).map(ToString::to_string).collect();
                    caption = numbers.join(", ");
                }
                Values::U8(_) => {}
            }
        }
        let boxes = match sample.get(BOXES).map(Array::values) {
            Some(Values::F32(edges)) => edges.as_chunks().0.to_vec(),
            _ => Vec::new(),
        };
        Ok(Picture { image, mask, boxes, caption })
    }
}

/// Whether targets are probabilities of classes.
fn is_mixed(features: &Features, len: usize) -> bool {
    matches!(features.target(), TargetKind::Values { .. })
        && features.classes().is_some_and(|classes| classes as usize == len)
}

/// A sheet of pictures in rows of `columns`, each pixel drawn as `scale` by `scale`, as the bytes of a PNG file.
///
/// ```
/// use tightfit::data::sheet::{Picture, contact_sheet};
/// use tightfit::data::{Features, Sample, Array, Values};
///
/// let sample = Sample::new(Array::new(Values::U8((0..64).collect()), [1, 8, 8])?).with_target(1_u32);
/// let features = Features::of(&sample)?.with_class_names(["cat", "dog"]);
/// let png = contact_sheet(&[Picture::of(&sample, &features)?], 4, 8)?;
/// assert!(png.starts_with(b"\x89PNG"));
/// # Ok::<(), tightfit::error::DataError>(())
/// ```
///
/// # Errors
/// [`DataError::Mismatch`] where there are no pictures, one is no image, a mask has another size, or the sheet would be too large;
/// [`DataError::HostMemory`].
pub fn contact_sheet(pictures: &[Picture], columns: usize, scale: usize) -> Result<Vec<u8>, DataError> {
    let mut cell = [0, 0];
    for picture in pictures {
        let [_, height, width] = extents(&picture.image)?;
        if picture.mask.as_ref().is_some_and(|mask| mask.len() != height * width) {
            let text =
                format!("a mask does not fit an image of shape {}: it needs a label a pixel", picture.image.shape());
            return Err(DataError::Mismatch(text));
        }
        let across = width.saturating_mul(scale);
        let across = if picture.mask.is_some() { across.saturating_mul(2).saturating_add(GAP) } else { across };
        cell = [cell[0].max(across), cell[1].max(height.saturating_mul(scale))];
    }
    if pictures.is_empty() || columns == 0 || scale == 0 {
        return Err(DataError::Mismatch(format!(
            "{} pictures in {columns} columns, {scale} times as large, are no sheet: all must be at least 1",
            pictures.len()
        )));
    }
    let has_masks = pictures.iter().any(|picture| picture.mask.is_some());
    let has_captions = pictures.iter().any(|picture| !picture.caption.is_empty());
    // Letters are as large as they are read well, in cells that have room for a word.
    let letters = if cell[0] >= 300 { 2 } else { 1 };
    cell[0] = if has_captions { cell[0].max(10 * (font::SIZE[0] + 1)) } else { cell[0] };
    let captions: Vec<_> =
        pictures.iter().map(|picture| lines(&picture.caption, cell[0] / letters / (font::SIZE[0] + 1))).collect();
    let line = (font::SIZE[1] + 2) * letters;
    let below = captions.iter().map(Vec::len).max().unwrap_or(0) * line;

    let columns = columns.min(pictures.len());
    let step = [cell[0].saturating_add(GAP), cell[1].saturating_add(GAP + below)];
    let rows = pictures.len().div_ceil(columns);
    let size = [step[0].saturating_mul(columns).saturating_add(GAP), step[1].saturating_mul(rows).saturating_add(GAP)];
    if size[0].checked_mul(size[1]).is_none_or(|pixels| pixels > MOST_PIXELS) {
        return Err(DataError::Mismatch(format!(
            "a sheet of {} by {} pixels is too large: show fewer images, or draw them smaller",
            size[0], size[1]
        )));
    }
    let mut sheet = Sheet::new(size)?;
    for (place, (picture, caption)) in pictures.iter().zip(&captions).enumerate() {
        let corner = [GAP + place % columns * step[0], GAP + place / columns * step[1]];
        let [_, height, width] = extents(&picture.image)?;
        let pixels = colors(&picture.image)?;
        sheet.image(&pixels, width, corner, scale);
        sheet.boxes(&picture.boxes, [width, height], corner, scale);
        if let (Some(mask), true) = (&picture.mask, has_masks) {
            let overlaid: Vec<_> = pixels.iter().zip(mask).map(|(pixel, label)| overlaid(*pixel, *label)).collect();
            sheet.image(&overlaid, width, [corner[0] + width * scale + GAP, corner[1]], scale);
        }
        for (row, text) in caption.iter().enumerate() {
            sheet.text(text, [corner[0], corner[1] + cell[1] + 2 * letters + row * line], letters);
        }
    }
    sheet.png()
}

/// Pixels, as they are drawn.
struct Sheet {
    pixels: Vec<u8>,
    size: [usize; 2],
}

impl Sheet {
    fn new(size: [usize; 2]) -> Result<Self, DataError> {
        let count = size[0] * size[1];
        let mut pixels = room(count * 3)?;
        pixels.extend(std::iter::repeat_n(BACKGROUND, count).flatten());
        Ok(Sheet { pixels, size })
    }

    /// Draws a rectangle. What is outside is not drawn.
    fn fill(&mut self, [x, y]: [usize; 2], [width, height]: [usize; 2], color: [u8; 3]) {
        let (right, bottom) = ((x + width).min(self.size[0]), (y + height).min(self.size[1]));
        for row in y..bottom {
            for column in x..right {
                let at = (row * self.size[0] + column) * 3;
                self.pixels[at..at + 3].copy_from_slice(&color);
            }
        }
    }

    fn image(&mut self, pixels: &[[u8; 3]], width: usize, corner: [usize; 2], scale: usize) {
        for (place, color) in pixels.iter().enumerate() {
            let at = [corner[0] + place % width * scale, corner[1] + place / width * scale];
            self.fill(at, [scale, scale], *color);
        }
    }

    /// Draws the edges of boxes that have an area, within the image.
    fn boxes(&mut self, boxes: &[[f32; 4]], [width, height]: [usize; 2], corner: [usize; 2], scale: usize) {
        for [left, top, right, bottom] in boxes {
            let at = |edge: &f32, extent: usize| (edge.clamp(0.0, extent as f32) * scale as f32) as usize;
            let (left, right) = (at(left, width), at(right, width));
            let (top, bottom) = (at(top, height), at(bottom, height));
            if left >= right || top >= bottom {
                continue;
            }
            let (across, down) = ([right - left, 1], [1, bottom - top]);
            for (x, y, size) in
                [(left, top, across), (left, bottom - 1, across), (left, top, down), (right - 1, top, down)]
            {
                self.fill([corner[0] + x, corner[1] + y], size, BOX);
            }
        }
    }

    fn text(&mut self, text: &str, [x, y]: [usize; 2], scale: usize) {
        for (place, letter) in text.chars().enumerate() {
            for at in 0..font::SIZE[0] * font::SIZE[1] {
                let [column, row] = [at % font::SIZE[0], at / font::SIZE[0]];
                if font::is_set(letter, [column, row]) {
                    let corner = [x + (place * (font::SIZE[0] + 1) + column) * scale, y + row * scale];
                    self.fill(corner, [scale, scale], INK);
                }
            }
        }
    }

    fn png(&self) -> Result<Vec<u8>, DataError> {
        let [width, height] = self.size;
        encode(&self.pixels, [height, width], ExtendedColorType::Rgb8)
    }
}

/// A picture of grey values, such as the class of each pixel, as the bytes of a PNG file.
///
/// # Errors
/// [`DataError::Mismatch`] where there are not as many values as the height and width say.
pub fn grey_png(values: &[u8], size: [usize; 2]) -> Result<Vec<u8>, DataError> {
    if size[0].checked_mul(size[1]) != Some(values.len()) {
        let ([height, width], count) = (size, values.len());
        return Err(DataError::Mismatch(format!("{count} values are no picture of {height} by {width} pixels")));
    }
    encode(values, size, ExtendedColorType::L8)
}

fn encode(pixels: &[u8], [height, width]: [usize; 2], color: ExtendedColorType) -> Result<Vec<u8>, DataError> {
    let mut bytes = Vec::new();
    PngEncoder::new(&mut bytes)
        .write_image(pixels, width as u32, height as u32, color)
        .map_err(|error| DataError::Mismatch(format!("the picture cannot be written as PNG: {error}")))?;
    Ok(bytes)
}

/// Lines of at most so many letters, broken at spaces where there are. What does not fit is cut off, which dots say.
fn lines(text: &str, width: usize) -> Vec<String> {
    let width = width.max(4);
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let letters: Vec<char> = word.chars().collect();
        for (number, part) in letters.chunks(width).enumerate() {
            match lines.last_mut() {
                Some(line) if number == 0 && line.chars().count() + 1 + part.len() <= width => {
                    line.push(' ');
                    line.extend(part);
                }
                _ => lines.push(part.iter().collect()),
            }
        }
    }
    if lines.len() > LINES {
        lines.truncate(LINES);
        let kept: String = lines[LINES - 1].chars().take(width - 2).collect();
        lines[LINES - 1] = kept + "..";
    }
    lines
}

fn extents(image: &Array) -> Result<[usize; 3], DataError> {
    match image.shape()[..] {
        [channels, height, width] if !image.values().is_empty() => Ok([channels, height, width]),
        _ => Err(DataError::Mismatch(format!(
            "samples of shape {} cannot be shown: images have the shape [channels, height, width]",
            image.shape()
        ))),
    }
}

/// The pixels of an image.
fn colors(image: &Array) -> Result<Vec<[u8; 3]>, DataError> {
    let [channels, height, width] = extents(image)?;
    let plane = height * width;
    let place = |channel: usize, at: usize| if channels < 3 { at } else { channel * plane + at };
    let mut pixels = room(plane)?;
    match image.values() {
        Values::U8(values) => pixels.extend((0..plane).map(|at| [0, 1, 2].map(|channel| values[place(channel, at)]))),
        Values::F32(values) => {
            let finite = || values.iter().copied().filter(|value| value.is_finite());
            let (low, high) = (finite().fold(0.0, f32::min), finite().fold(1.0, f32::max));
            let level = |value: f32| ((value - low) / (high - low) * 255.0 + 0.5) as u8;
            pixels.extend((0..plane).map(|at| [0, 1, 2].map(|channel| level(values[place(channel, at)]))));
        }
        Values::U32(values) => {
            let level = |value: u32| u8::try_from(value).unwrap_or(u8::MAX);
            pixels.extend((0..plane).map(|at| [0, 1, 2].map(|channel| level(values[place(channel, at)]))));
        }
    }
    Ok(pixels)
}

/// A pixel with the colour of its label over it.
fn overlaid(pixel: [u8; 3], label: u32) -> [u8; 3] {
    if label == 0 {
        return pixel;
    }
    let color = label_color(label);
    [0, 1, 2].map(|channel| pixel[channel] / 3 + color[channel] / 3 * 2)
}

/// The colour of a label, as the Pascal VOC challenge has them: its bits from the lowest, by turns, are those of red, green and blue from the
/// highest.
fn label_color(label: u32) -> [u8; 3] {
    [0, 1, 2].map(|channel| (0..3).map(|bit| ((label >> (3 * bit + channel)) as u8 & 1) << (7 - bit)).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_colors_are_those_of_pascal_voc() {
        let expected = [[0, 0, 0], [128, 0, 0], [0, 128, 0], [128, 128, 0], [0, 0, 128]];
        assert_eq!([0, 1, 2, 3, 4].map(label_color), expected);
        assert_eq!((label_color(15), label_color(255)), ([192, 128, 128], [224, 224, 192]));
    }

    #[test]
    fn captions_are_broken_into_lines() {
        assert_eq!(lines("a golden retriever", 8), ["a golden", "retrieve", "r"]);
        assert_eq!(lines("one two three four five", 5), ["one", "two", "thr.."]);
        assert!(lines("", 8).is_empty());
    }

    #[test]
    fn letters_differ_and_others_are_question_marks() {
        let drawn = |letter| -> Vec<bool> { (0..35).map(|at| font::is_set(letter, [at % 5, at / 5])).collect() };
        let mut letters: Vec<_> = (' '..='~').map(drawn).collect();
        assert!(letters.iter().skip(1).all(|letter| letter.contains(&true)));
        letters.sort_unstable();
        letters.dedup();
        assert_eq!(letters.len(), 95);
        assert_eq!(drawn('ß'), drawn('?'));
    }

    #[test]
    fn a_sheet_shows_pixels_masks_and_boxes() {
        let image = Array::new(Values::U8(vec![10, 20, 30, 40, 50, 60]), [1, 2, 3]).expect("an image");
        let picture = Picture {
            image,
            mask: Some(vec![0, 1, 0, 0, 0, 2]),
            boxes: vec![[1.0, 0.0, 3.0, 1.0]],
            caption: "a".into(),
        };
        let png = contact_sheet(&[picture.clone(), picture.clone()], 1, 4).expect("a sheet");
        let decoded = image::load_from_memory(&png).expect("a PNG").to_rgb8();
        let at = |x: usize, y: usize| decoded.get_pixel(x as u32, y as u32).0;
        assert_eq!((at(0, 0), at(GAP, GAP)), (BACKGROUND, [10; 3]));
        assert_eq!((at(GAP + 4, GAP), at(GAP + 5, GAP + 1), at(GAP + 3, GAP + 5)), (BOX, [20; 3], [40; 3]));
        let beside = GAP + 12 + GAP;
        assert_eq!(at(beside, GAP), [10; 3]);
        assert_eq!((at(beside + 4, GAP), at(beside + 8, GAP + 4)), ([6 + 84, 6, 6], [20, 20 + 84, 20]));
        assert!((0..decoded.width()).any(|x| at(x as usize, GAP + 8 + 4) == INK));

        let message = |pictures: &[Picture], columns, scale| match contact_sheet(pictures, columns, scale) {
            Ok(_) => panic!("a sheet"),
            Err(error) => error.to_string(),
        };
        assert!(message(&[], 1, 1).contains("0 pictures"));
        assert!(message(std::slice::from_ref(&picture), 1, usize::MAX).contains("too large"));
        assert!(message(std::slice::from_ref(&picture), 1, 100_000).contains("too large"));
        let wrong = Picture { mask: Some(vec![0]), ..picture };
        assert!(message(&[wrong], 1, 1).contains("a label a pixel"));
    }
}

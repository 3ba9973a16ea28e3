//! Images in files: decoding and resizing against Pillow, folders, lists, masks, archives, and files that are damaged.

mod archives;
mod damaged;
mod sources;

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tightfit::data::image::{self as images, ImageOptions, Resize};
use tightfit::data::{Array, Dataset, MaskOptions, MaskedImages, Values};
use tightfit::error::DataError;

#[derive(Deserialize)]
struct Golden {
    images: Vec<Case>,
    masks: Vec<MaskCase>,
}

#[derive(Deserialize)]
struct Case {
    file: String,
    size: Option<[usize; 2]>,
    channels: usize,
    resize: Resize,
    shape: [usize; 2],
    tolerance: u8,
    bytes: String,
}

#[derive(Deserialize)]
struct MaskCase {
    size: [usize; 2],
    resize: Resize,
    bytes: String,
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("../golden/images.json")).unwrap()
}

fn golden_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/images").join(name)
}

fn bytes_of(hex: &str) -> Vec<u8> {
    hex.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// The message of an error, checked to be one sentence without a line break.
fn message<T>(result: Result<T, DataError>) -> String {
    let Err(error) = result else { panic!("this must fail") };
    let text = error.to_string();
    assert!(!text.contains('\n') && !text.contains("DataError") && text.len() < 500, "{text}");
    text
}

fn pixels(array: &Array) -> &[u8] {
    match array.values() {
        Values::U8(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

/// Writes an image of one value, and returns its path.
fn plain(path: PathBuf, height: u32, width: u32, value: u8) -> PathBuf {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    image::GrayImage::from_pixel(width, height, image::Luma([value])).save(&path).unwrap();
    path
}

#[test]
fn pixels_are_those_of_pillow() {
    for Case { file, size, channels, resize, shape: [height, width], tolerance, bytes } in golden().images {
        let options = ImageOptions { size, channels, resize, ..ImageOptions::default() };
        let found = images::read(golden_file(&file), &options).unwrap();
        let name = format!("{file}, {options:?}");
        assert_eq!(found.shape()[..], [channels, height, width], "{name}");
        let (found, expected) = (pixels(&found), bytes_of(&bytes));
        let worst = (0..expected.len()).map(|at| {
            let (pixel, channel) = (at / channels, at % channels);
            found[channel * height * width + pixel].abs_diff(expected[at])
        });
        let worst = worst.max().unwrap();
        assert!(worst <= tolerance, "{name}: differs by {worst}");
    }
}

#[test]
fn masks_are_resized_as_pillow_does() {
    for (mask, image) in [("mask-palette.png", "photo.png"), ("mask-grey.png", "photo.png")] {
        let folder = tempfile::tempdir().unwrap();
        fs::copy(golden_file(image), folder.path().join("1.png")).unwrap();
        fs::copy(golden_file(mask), folder.path().join("1_mask.png")).unwrap();
        for MaskCase { size, resize, bytes } in golden().masks {
            let options = ImageOptions { size: Some(size), resize, ..ImageOptions::default() };
            let data = MaskedImages::open(folder.path(), folder.path(), options, MaskOptions::default()).unwrap();
            let target = data.get(0).unwrap().take("target").unwrap();
            let expected = bytes_of(&bytes).into_iter().map(u32::from).collect();
            assert_eq!(
                (target.shape()[..].to_vec(), target.into_values()),
                (size.to_vec(), Values::U32(expected)),
                "{resize}"
            );
            assert_eq!(data.features().unwrap().classes(), Some(4));
        }
    }
}

#[test]
fn options_are_one_text_each_and_are_checked() {
    for text in ["stretch", "pad", "pad:114", "crop"] {
        let resize: Resize = text.parse().unwrap();
        assert_eq!(resize.to_string(), text);
        assert_eq!(serde_json::from_str::<Resize>(&serde_json::to_string(&resize).unwrap()).unwrap(), resize);
    }
    for text in ["", "fit", "pad:", "pad:256", "pad:-1"] {
        assert!(message(text.parse::<Resize>()).contains("choose stretch, pad"), "{text}");
    }
    let check = |options: ImageOptions| message(options.check());
    assert!(check(ImageOptions { channels: 4, ..ImageOptions::default() }).contains("1 (grey) or 3 (color)"));
    assert!(check(ImageOptions::sized(0, 4)).contains("0 x 4"));
    assert!(check(ImageOptions::sized(4, 40_000)).contains("32768"));
    // So much memory, and no more, is enough for what is then allowed.
    for bytes in [3 << 20, 100 << 20, 1 << 30, 1 << 40] {
        let options = ImageOptions::default().within(bytes).unwrap();
        assert!(options.scratch_bytes() <= bytes && options.max_pixels > 0, "{bytes}: {options:?}");
        let more = ImageOptions { max_pixels: options.max_pixels + 1, ..options.clone() };
        assert!(more.scratch_bytes() > bytes || options.max_pixels == 100_000_000, "{bytes}: {options:?}");
    }
    assert!(message(ImageOptions::default().within(1000)).contains("not enough"));
}

#[test]
fn files_are_told_by_their_contents() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::copy(golden_file("photo.png"), at("photo.jpg")).unwrap();
    let options = ImageOptions::default();
    assert_eq!(images::read(at("photo.jpg"), &options).unwrap().shape()[..], [3, 30, 41]);
    let refused = |name: &str, bytes: &[u8]| {
        fs::write(at(name), bytes).unwrap();
        let text = message(images::read(at(name), &options));
        assert!(text.starts_with(&at(name).display().to_string()), "{text}");
        text
    };
    assert!(refused("a.png", b"<html>not found</html>").contains("neither a PNG nor a JPEG"));
    assert!(refused("a.gif", b"GIF89a\x01\0\x01\0\0\0\0").contains("another format (gif): convert it"));
    assert!(refused("empty.png", b"").contains("is empty"));
    let jpeg = fs::read(golden_file("baseline.jpg")).unwrap();
    assert!(refused("half.jpg", &jpeg[..jpeg.len() / 2]).contains("ends too early"));
    let png = fs::read(golden_file("photo.png")).unwrap();
    assert!(refused("half.png", &png[..png.len() / 2]).contains("ends too early"));
    assert!(message(images::read(at("missing.png"), &options)).contains("not found"));
    assert!(message(images::read(folder.path(), &options)).contains("is a folder"));
    let few = ImageOptions { max_pixels: 30 * 41 - 1, ..ImageOptions::default() };
    assert!(message(images::read(golden_file("photo.png"), &few)).contains("41 x 30 pixels, more than the 1229"));
    assert!(message(images::read(golden_file("baseline.jpg"), &few)).contains("41 x 30 pixels"));
}

//! Damaged files: an error of one line or an image, no panic, and no memory for what a header only claims.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::*;

/// Bytes that were changed at random, in one of several ways.
pub(super) fn mutated(bytes: &[u8], random: &mut ChaCha8Rng) -> Vec<u8> {
    let mut draw = |below: usize| (random.next_u64() % below.max(1) as u64) as usize;
    let mut made = bytes.to_vec();
    match draw(6) {
        0 => (0..=draw(8)).for_each(|_| {
            let at = draw(made.len());
            made[at] ^= 1 << draw(8);
        }),
        1 => made.truncate(draw(bytes.len())),
        2 => (0..=draw(4)).for_each(|_| {
            let at = draw(made.len());
            made[at] = [0, 1, 0x7f, 0x80, 0xff][draw(5)];
        }),
        3 => {
            // Lengths are in two or four bytes.
            let at = draw(made.len() - 4);
            made[at..at + 4].fill([0, 0xff][draw(2)]);
        }
        4 => {
            let (from, to, count) = (draw(bytes.len()), draw(bytes.len()), draw(200));
            let part = bytes[from..(from + count).min(bytes.len())].to_vec();
            made.splice(to..to, part);
        }
        _ => {
            let from = draw(bytes.len());
            made.drain(from..(from + draw(100)).min(bytes.len()));
        }
    }
    made
}

/// Writes the checksums of a PNG's chunks anew, so that decoders go on behind them.
fn with_checksums(mut png: Vec<u8>) -> Vec<u8> {
    let mut at = 8;
    while let Some(length) = png.get(at..at + 4) {
        let length = u32::from_be_bytes(length.try_into().unwrap()) as usize;
        let Some(end) = at.checked_add(8 + length).filter(|end| end + 4 <= png.len()) else { break };
        let mut sum = flate2::Crc::new();
        sum.update(&png[at + 4..end]);
        png[end..end + 4].copy_from_slice(&sum.sum().to_be_bytes());
        at = end + 4;
    }
    png
}

#[test]
fn mutated_images_are_an_error_of_one_line_or_an_image() {
    let options = ImageOptions { size: Some([8, 8]), max_pixels: 1 << 16, ..ImageOptions::default() };
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut failed = [0; 2];
    let files = [
        "palette.png",
        "photo.png",
        "color-alpha-16.png",
        "baseline.jpg",
        "progressive.jpg",
        "cmyk.jpg",
        "turned-5.jpg",
    ];
    for file in files {
        let bytes = fs::read(golden_file(file)).unwrap();
        let is_png = file.ends_with(".png");
        for round in 0..if is_png { 200 } else { 150 } {
            let mut made = mutated(&bytes, &mut random);
            if is_png && round % 2 == 0 {
                made = with_checksums(made);
            }
            match images::decode(&made, "some/file", &options) {
                Ok(array) => assert_eq!(array.shape()[..], [3, 8, 8]),
                Err(error) => {
                    failed[usize::from(is_png)] += 1;
                    assert!(message(Err::<(), _>(error)).starts_with("some/file: "));
                }
            }
        }
    }
    assert!(failed.iter().all(|failed| *failed > 100), "{failed:?}");
}

#[test]
fn what_headers_claim_is_checked_before_memory_is_taken() {
    let png = fs::read(golden_file("photo.png")).unwrap();
    let huge = |width: u32, height: u32| {
        let mut png = png.clone();
        png[16..20].copy_from_slice(&width.to_be_bytes());
        png[20..24].copy_from_slice(&height.to_be_bytes());
        message(images::decode(&with_checksums(png), "some/file", &ImageOptions::default()))
    };
    assert!(huge(40_000, 40_000).contains("40000 x 40000 pixels, more than the 100000000"));
    assert!(huge(1 << 30, 1 << 30).starts_with("some/file: "));
    assert!(huge(0, 1).starts_with("some/file: "));
    // It claims few enough pixels, and does not have them.
    assert!(huge(41, 31).contains("ends too early") || huge(41, 31).contains("damaged"));

    let jpeg = fs::read(golden_file("baseline.jpg")).unwrap();
    let at = jpeg.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    let mut made = jpeg.clone();
    made[at + 5..at + 9].fill(0xff);
    let text = message(images::decode(&made, "some/file", &ImageOptions::default()));
    assert!(text.contains("65535 x 65535 pixels"), "{text}");
}

#[test]
fn a_png_bomb_is_refused() {
    // 64 MB of text in 64 kB, in a chunk that is unpacked by who looks for it, and as a profile of colors.
    let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::Write::write_all(&mut packed, &vec![0; 64 << 20]).unwrap();
    let packed = packed.finish().unwrap();
    let png = fs::read(golden_file("photo.png")).unwrap();
    for (kind, head) in [(b"zTXt", &b"k\0\0"[..]), (b"iCCP", b"k\0\0"), (b"IDAT", b"")] {
        let data = [head, &packed].concat();
        let length = (data.len() as u32).to_be_bytes();
        let chunk = [&length[..], kind, &data, &[0; 4]].concat();
        let made = with_checksums([&png[..33], &chunk, &png[33..]].concat());
        let options = ImageOptions { max_pixels: 10_000, ..ImageOptions::default() };
        // A text or a profile is left out; pixels that are too many are an error or left out.
        match images::decode(&made, "some/file", &options) {
            Ok(array) => assert_eq!(array.shape()[..], [3, 30, 41]),
            Err(error) => assert!(message(Err::<(), _>(error)).starts_with("some/file: ")),
        }
    }
}

#[test]
fn mutated_masks_and_lists_are_an_error_of_one_line_or_data() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::copy(golden_file("photo.png"), at("1.png")).unwrap();
    let mut random = ChaCha8Rng::seed_from_u64(2);
    let list = b"path,label,weight\n1.png,cat,1.0\n1.png,dog,0.5\n\"1.png\",cat,2\n".to_vec();
    let mut failed = [0; 2];
    for (kind, bytes) in [fs::read(golden_file("mask-palette.png")).unwrap(), list].iter().enumerate() {
        for round in 0..300 {
            let mut made = mutated(bytes, &mut random);
            let options = ImageOptions { size: Some([4, 4]), max_pixels: 1 << 16, ..ImageOptions::default() };
            let read = if kind == 0 {
                if round % 2 == 0 {
                    made = with_checksums(made);
                }
                fs::write(at("1_mask.png"), made).unwrap();
                MaskedImages::open(folder.path(), folder.path(), options, MaskOptions::default())
                    .and_then(|data| data.get(0))
            } else {
                fs::write(at("list.csv"), made).unwrap();
                let list = images::ListOptions { weight: Some("weight".to_owned()), ..Default::default() };
                let data = images::ImageList::open(at("list.csv"), &list, options);
                data.and_then(|data| {
                    (0..data.len()).try_for_each(|index| data.get(index).map(drop)).and_then(|()| data.get(0))
                })
            };
            if let Err(error) = read {
                failed[kind] += 1;
                message(Err::<(), _>(error));
            }
        }
    }
    assert!(failed.iter().all(|failed| *failed > 50), "{failed:?}");
}

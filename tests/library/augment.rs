//! Augmentation against torchvision and SciPy, and what must hold for every key.

use serde::Deserialize;
use tightfit::data::augment::{
    Affine, Augmentation, BOXES, ColorJitter, CutMix, Fill, FillMode, Geometry, Interpolation, Interval, MixUp,
    RandomAffine, RandomErasing, RandomFlip, RandomResizedCrop, adjust_brightness, adjust_contrast, adjust_hue,
    adjust_saturation, erase,
};
use tightfit::data::{Array, Batch, BatchTransform, Features, Key, Sample, TargetKind, Transform, Values};
use tightfit::tensor::DType;

#[derive(Deserialize)]
struct Golden {
    case: String,
    kind: String,
    settings: Settings,
    image: Numbers,
    expected: Numbers,
    mask: Option<Numbers>,
    expected_mask: Option<Numbers>,
    boxes: Option<Vec<[f32; 4]>>,
    expected_boxes: Option<Vec<[f32; 4]>>,
    labels: Option<Vec<u32>>,
    probabilities: Option<Vec<f32>>,
}

#[derive(Deserialize)]
struct Numbers {
    shape: Vec<usize>,
    values: Vec<u32>,
}

impl Numbers {
    fn bytes(&self) -> Vec<u8> {
        self.values.iter().map(|&value| value.try_into().unwrap()).collect()
    }

    fn image(&self) -> Array {
        Array::new(Values::U8(self.bytes()), self.shape.clone()).unwrap()
    }

    fn mask(&self) -> Array {
        Array::new(Values::U32(self.values.clone()), self.shape.clone()).unwrap()
    }
}

#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Settings {
    Affine {
        rotation: f64,
        shear: [f64; 2],
        zoom: f64,
        shift: [f64; 2],
        fill_mode: FillMode,
        fill_value: f32,
        interpolation: Interpolation,
    },
    Flip {
        horizontal: bool,
        vertical: bool,
    },
    Crop {
        top: usize,
        left: usize,
        height: usize,
        width: usize,
        size: [usize; 2],
    },
    Factor {
        factor: f64,
    },
    Rectangle {
        corner: [usize; 2],
        size: [usize; 2],
        #[serde(default)]
        value: f32,
    },
    MixUp {
        lambda: f64,
    },
}

impl Settings {
    fn geometry(&self) -> Option<Geometry> {
        Some(match *self {
            Settings::Affine { rotation, shear, zoom, shift, fill_mode, fill_value, interpolation } => {
                Geometry::Affine {
                    affine: Affine { rotation, shear, zoom, shift },
                    fill: Fill { mode: fill_mode, value: fill_value, label: 0 },
                    interpolation,
                }
            }
            Settings::Flip { horizontal, vertical } => Geometry::Flip { horizontal, vertical },
            Settings::Crop { top, left, height, width, size } => Geometry::Crop { top, left, height, width, size },
            _ => return None,
        })
    }
}

fn bytes(array: &Array) -> &[u8] {
    let Values::U8(values) = array.values() else { panic!("an image of bytes") };
    values
}

fn floats(array: &Array) -> &[f32] {
    let Values::F32(values) = array.values() else { panic!("floats") };
    values
}

/// At most one level apart.
fn assert_near(case: &str, found: &[u8], expected: &[u8]) {
    assert_eq!(found.len(), expected.len(), "{case}");
    let far = found.iter().zip(expected).position(|(found, expected)| found.abs_diff(*expected) > 1);
    assert_eq!(far, None, "{case}:\n{found:?}\n{expected:?}");
}

#[test]
fn images_masks_and_boxes_are_those_of_torchvision_and_scipy() {
    let cases: Vec<Golden> = serde_json::from_str(include_str!("../golden/augment.json")).unwrap();
    for golden in &cases {
        let (case, Some(geometry)) = (&golden.case, golden.settings.geometry()) else { continue };
        let mut sample = Sample::new(golden.image.image());
        if let Some(mask) = &golden.mask {
            sample = sample.with_target(mask.mask());
        }
        if let Some(boxes) = &golden.boxes {
            let array = Array::new(Values::F32(boxes.as_flattened().to_vec()), [boxes.len(), 4]).unwrap();
            sample = sample.with(BOXES, array);
        }
        geometry.apply(&mut sample).unwrap();
        let image = sample.get("input").unwrap();
        assert_eq!(image.shape()[..], golden.expected.shape, "{case}");
        assert_near(case, bytes(image), &golden.expected.bytes());
        if let Some(expected) = &golden.expected_mask {
            assert_eq!(sample.get("target").unwrap(), &expected.mask(), "{case}");
        }
        if let Some(expected) = &golden.expected_boxes {
            for (found, expected) in floats(sample.get(BOXES).unwrap()).iter().zip(expected.as_flattened()) {
                assert!((found - expected).abs() < 1e-4, "{case}: {found} for {expected}");
            }
        }
    }
    let of = |kind: &str| cases.iter().filter(|case| case.kind == kind).count();
    assert_eq!((of("affine"), of("flip"), of("crop")), (22, 3, 5));
}

#[test]
fn colours_and_erased_parts_are_those_of_torchvision() {
    let cases: Vec<Golden> = serde_json::from_str(include_str!("../golden/augment.json")).unwrap();
    let mut compared = 0;
    for Golden { case, kind, settings, image, expected, .. } in &cases {
        let (before, mut image) = (image.image(), image.image());
        match (&**kind, settings) {
            ("brightness", Settings::Factor { factor }) => adjust_brightness(&mut image, *factor).unwrap(),
            ("contrast", Settings::Factor { factor }) => adjust_contrast(&mut image, *factor).unwrap(),
            ("saturation", Settings::Factor { factor }) => adjust_saturation(&mut image, *factor).unwrap(),
            ("hue", Settings::Factor { factor }) => adjust_hue(&mut image, *factor).unwrap(),
            ("erase", Settings::Rectangle { corner, size, value }) => {
                erase(&mut image, *corner, *size, *value).unwrap();
                assert_eq!(bytes(&image), expected.bytes(), "{case}");
            }
            _ => continue,
        }
        assert_near(case, bytes(&image), &expected.bytes());
        let nothing = if kind == "hue" { 0.0 } else { 1.0 };
        if matches!(settings, Settings::Factor { factor } if *factor == nothing) {
            assert_eq!(image, before, "{case}");
        }
        compared += 1;
    }
    assert_eq!(compared, 33);
}

/// Labels of this many classes.
fn classes(count: u32) -> TargetKind {
    TargetKind::Labels { shape: [].into(), classes: Some(count), ignored: None }
}

#[test]
fn mixed_batches_are_those_of_torchvision() {
    let cases: Vec<Golden> = serde_json::from_str(include_str!("../golden/augment.json")).unwrap();
    let mut compared = 0;
    for Golden { case, settings, image, expected, labels, probabilities, .. } in &cases {
        let Some(labels) = labels else { continue };
        let mut batch = Batch::default();
        for (index, (pixels, label)) in image.bytes().chunks(3 * 4 * 5).zip(labels).enumerate() {
            let image = Array::new(Values::U8(pixels.to_vec()), [3, 4, 5]).unwrap();
            batch.push(index, &Sample::new(image).with_target(*label)).unwrap();
        }
        match *settings {
            Settings::MixUp { lambda } => MixUp { alpha: 1.0, target: classes(5) }.mix(&mut batch, lambda).unwrap(),
            Settings::Rectangle { corner, size, .. } => {
                CutMix { alpha: 1.0, target: classes(5) }.mix(&mut batch, corner, size).unwrap();
            }
            _ => panic!("{case} mixes nothing"),
        }
        assert_near(case, batch.bytes("input").unwrap(), &expected.bytes());
        for (found, expected) in batch.values("target").iter().zip(probabilities.as_ref().unwrap()) {
            assert!((found - expected).abs() < 1e-6, "{case}: {found} for {expected}");
        }
        compared += 1;
    }
    assert_eq!(compared, 2);
}

fn key(epoch: u64, sample: u64) -> Key {
    Key { seed: 5, epoch, sample }
}

/// An image of smooth blobs, and the mask of what is bright in it.
fn blobs(size: usize) -> Sample {
    let wave = |i: usize| (i as f32 * 0.35).sin();
    let pixels: Vec<u8> = (0..size * size).map(|i| (127.0 + 120.0 * wave(i / size) * wave(i % size)) as u8).collect();
    let mask = pixels.iter().map(|&pixel| u32::from(pixel > 127)).collect();
    Sample::new(Array::new(Values::U8(pixels), [1, size, size]).unwrap())
        .with_target(Array::new(Values::U32(mask), [size, size]).unwrap())
}

fn every_transform() -> Vec<Box<dyn Transform>> {
    let text =
        "crop=0.3,horizontal_flip=0.5,vertical_flip=0.5,rotation=30,shear=10,zoom=0.2,shift=0.2,jitter=0.4,erasing=0.5";
    let features = Features::of(&blobs(32)).unwrap();
    text.parse::<Augmentation>().unwrap().transforms(&features).unwrap().0
}

#[test]
fn a_key_decides_all_pixels_and_another_gives_others() {
    for (number, transform) in every_transform().iter().enumerate() {
        let seen =
            |key| (0..20).map(|sample| transform.apply(blobs(32), Key { sample, ..key }).unwrap()).collect::<Vec<_>>();
        assert_eq!(seen(key(3, 0)), seen(key(3, 0)), "transform {number}");
        assert_ne!(seen(key(3, 0)), seen(key(4, 0)), "transform {number}, another epoch");
        assert_ne!(seen(key(3, 0)), seen(Key { seed: 6, ..key(3, 0) }), "transform {number}, another seed");
        let samples = seen(key(3, 0));
        assert!(samples.iter().any(|sample| sample != &samples[0]), "transform {number}: all samples alike");
    }
}

#[test]
fn masks_stay_where_their_image_is() {
    let geometries = every_transform().into_iter().take(3);
    for transform in geometries {
        for sample in 0..50 {
            let moved = transform.apply(blobs(32), key(0, sample)).unwrap();
            let Values::U32(mask) = moved.get("target").unwrap().values() else { panic!("labels") };
            let image = bytes(moved.get("input").unwrap());
            // Where brightness is blended across the threshold, either label is right.
            let clear = image.iter().zip(mask).filter(|(pixel, _)| pixel.abs_diff(127) > 30);
            let wrong = clear.filter(|(pixel, label)| u32::from(**pixel > 127) != **label).count();
            assert_eq!(wrong, 0, "sample {sample}");
        }
    }
}

#[test]
fn parameters_that_change_nothing_change_no_bit() {
    let pixels = (0..3 * 11 * 8).map(|i| (i as f32 * 0.7).sin() * 0.5 + 0.5).collect();
    let sample = Sample::new(Array::new(Values::F32(pixels), [3, 11, 8]).unwrap()).with_target(1_u32);
    let one = Interval::only(1.0);
    let modes = [FillMode::Constant, FillMode::Nearest, FillMode::Reflect, FillMode::Wrap];
    let mut transforms: Vec<Box<dyn Transform>> = vec![
        Box::new(RandomFlip { horizontal: 0.0, vertical: 0.0 }),
        Box::new(RandomErasing { probability: 0.0, ..Default::default() }),
        Box::new(ColorJitter::default()),
    ];
    for mode in modes {
        let fill = Fill { mode, value: 9.0, label: 9 };
        transforms.push(Box::new(RandomAffine { fill, ..Default::default() }));
    }
    let whole = |ratio| RandomResizedCrop { size: None, scale: one, ratio: Interval::only(ratio) };
    assert_eq!(whole(8.0 / 11.0).apply(sample.clone(), key(0, 0)).unwrap(), sample);
    assert_eq!(whole(1.0).apply(blobs(16), key(0, 0)).unwrap(), blobs(16));
    for (number, transform) in transforms.iter().enumerate() {
        assert_eq!(transform.apply(sample.clone(), key(0, 0)).unwrap(), sample, "transform {number}");
        assert_eq!(transform.apply(blobs(16), key(0, 0)).unwrap().get("target"), blobs(16).get("target"), "{number}");
    }
}

#[test]
fn what_has_the_probability_one_always_happens() {
    let flip = RandomFlip { horizontal: 1.0, vertical: 0.0 };
    let erasing = RandomErasing { probability: 1.0, scale: [0.1, 0.2].into(), ratio: [0.5, 2.0].into(), value: 0.0 };
    let half = RandomFlip { horizontal: 0.5, vertical: 0.0 };
    let image = Sample::new(Array::new(Values::U8((1..=100).collect()), [1, 10, 10]).unwrap());
    let mut flipped = 0;
    for sample in 0..400 {
        let apply = |transform: &dyn Transform| transform.apply(image.clone(), key(0, sample)).unwrap();
        assert_eq!(bytes(apply(&flip).get("input").unwrap())[..3], [10, 9, 8]);
        let erased = bytes(apply(&erasing).get("input").unwrap()).iter().filter(|pixel| **pixel == 0).count();
        assert!((7..=24).contains(&erased), "{erased} of 100 pixels");
        flipped += usize::from(apply(&half) != image);
    }
    assert!((160..240).contains(&flipped), "{flipped} of 400");
}

#[test]
fn parameters_are_drawn_from_the_whole_interval() {
    let affine = RandomAffine {
        rotation: [-20.0, 40.0].into(),
        zoom: [0.5, 2.0].into(),
        shift: [[-0.1, 0.1].into(), [0.2, 0.3].into()],
        shear: [[0.0, 5.0].into(), [-5.0, 0.0].into()],
        ..Default::default()
    };
    let drawn: Vec<Affine> = (0..2000).map(|sample| affine.draw(key(1, sample))).collect();
    let check = |what: &str, interval: Interval, numbers: &dyn Fn(&Affine) -> f64| {
        let numbers: Vec<f64> = drawn.iter().map(numbers).collect();
        let width = interval.high - interval.low;
        let (low, high) =
            (numbers.iter().copied().fold(f64::MAX, f64::min), numbers.iter().copied().fold(f64::MIN, f64::max));
        assert!(low >= interval.low && high <= interval.high, "{what}: {low} to {high}");
        assert!(low < interval.low + 0.02 * width && high > interval.high - 0.02 * width, "{what}: {low} to {high}");
        let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
        assert!((mean - (interval.low + interval.high) / 2.0).abs() < 0.03 * width, "{what}: mean {mean}");
    };
    check("rotation", affine.rotation, &|affine| affine.rotation);
    check("zoom", affine.zoom, &|affine| affine.zoom);
    (0..2).for_each(|axis| check("shift", affine.shift[axis], &|affine| affine.shift[axis]));
    (0..2).for_each(|axis| check("shear", affine.shear[axis], &|affine| affine.shear[axis]));

    let crop = RandomResizedCrop::default();
    for (size, sample) in
        [[64, 48], [10, 300], [300, 10], [1, 1]].into_iter().flat_map(|size| (0..200).map(move |s| (size, s)))
    {
        let Geometry::Crop { top, left, height, width, size: new } = crop.draw(size, key(0, sample)) else {
            panic!("a crop")
        };
        assert!(height > 0 && width > 0 && top + height <= size[0] && left + width <= size[1] && new == size);
        if size == [64, 48] {
            let (share, ratio) = ((height * width) as f64 / (64.0 * 48.0), width as f64 / height as f64);
            assert!((0.07..=1.0).contains(&share) && (0.7..1.45).contains(&ratio), "{share}, {ratio}");
        }
    }
    let cut = CutMix { alpha: 1.0, target: TargetKind::None };
    let shares: Vec<f64> = (0..2000)
        .map(|batch| {
            let (corner, size) = cut.draw([40, 30], key(0, batch));
            assert!(corner[0] + size[0] <= 40 && corner[1] + size[1] <= 30);
            (size[0] * size[1]) as f64 / 1200.0
        })
        .collect();
    let mean = shares.iter().sum::<f64>() / 2000.0;
    // Half of the image, of which up to half is outside.
    assert!((0.2..0.4).contains(&mean), "{mean}");
}

/// A batch of three images of 4 by 4 pixels, with what else a sample has.
fn batch(target: impl Fn(u32) -> Array) -> Batch {
    let mut batch = Batch::default();
    for index in 0..3 {
        let image = Array::new(Values::U8(vec![index * 50; 16]), [1, 4, 4]).unwrap();
        batch.push(index.into(), &Sample::new(image).with_target(target(index.into()))).unwrap();
    }
    batch
}

#[test]
fn targets_are_mixed_as_what_they_are() {
    let numbers = TargetKind::Values { shape: [].into() };
    let mut mixed = batch(|index| Array::from(index as f32));
    MixUp { alpha: 1.0, target: numbers }.mix(&mut mixed, 0.75).unwrap();
    assert_eq!(mixed.values("target"), [0.5, 0.75, 1.75]);

    let ignored = TargetKind::Labels { shape: [].into(), classes: Some(2), ignored: Some(2) };
    let mut mixed = batch(Array::from);
    MixUp { alpha: 1.0, target: ignored }.mix(&mut mixed, 0.75).unwrap();
    assert_eq!(mixed.values("target"), [0.75, 0.0, 0.25, 0.75, 0.0, 0.25]);

    let masks = TargetKind::Labels { shape: [4, 4].into(), classes: Some(3), ignored: None };
    let mask = |index| Array::new(Values::U32(vec![index; 16]), [4, 4]).unwrap();
    let mut mixed = batch(mask);
    CutMix { alpha: 1.0, target: masks.clone() }.mix(&mut mixed, [1, 1], [2, 3]).unwrap();
    let pixels: Vec<u32> = mixed.bytes("input").unwrap().iter().map(|&pixel| u32::from(pixel) / 50).collect();
    assert_eq!(mixed.ints("target"), pixels);
    assert_eq!(pixels.iter().filter(|pixel| **pixel == 2).count(), 16);
    assert_eq!(pixels[..8], [0, 0, 0, 0, 0, 2, 2, 2]);

    for (target, labels) in [(masks, mask as fn(u32) -> Array), (classes(2), Array::from)] {
        let error = MixUp { alpha: 1.0, target }.mix(&mut batch(labels), 0.5).unwrap_err().to_string();
        assert!(error.contains("cutmix") || error.contains("label 2 is out of range"), "{error}");
    }
}

#[test]
fn features_say_what_samples_have_afterwards() {
    let images = Features::new(DType::U8, [3, 32, 48]).with_labels(7, []).with_class_names("abcdefg".chars());
    let crop = RandomResizedCrop { size: Some([16, 24]), ..Default::default() };
    let features = crop.features(images.clone()).unwrap();
    assert_eq!(features.get("input").unwrap().1[..], [3, 16, 24]);
    let mix = MixUp { alpha: 0.2, target: features.target() };
    let mixed = mix.features(features).unwrap();
    assert_eq!(mixed.get("target").map(|(dtype, shape)| (dtype, shape.to_vec())), Some((DType::F32, vec![7])));
    assert_eq!(mixed.class_names().len(), 7);

    let masks = Features::new(DType::U8, [3, 32, 48]).with_labels(7, [32, 48]);
    assert_eq!(crop.features(masks.clone()).unwrap().get("target").unwrap().1[..], [16, 24]);
    let refused = |text: &str, features: &Features| match text.parse::<Augmentation>().unwrap().transforms(features) {
        Ok(_) => panic!("{text} is possible"),
        Err(error) => error.to_string(),
    };
    assert!(refused("mixup=0.2", &masks).contains("`cutmix` mixes masks"));
    assert!(refused("flip", &Features::new(DType::F32, [7])).contains("[channels, height, width]"));
    assert!(refused("jitter=0.1", &Features::new(DType::U8, [5, 8, 8])).contains("5 channels"));
    let other = Features::new(DType::U8, [3, 32, 48]).with_labels(7, [16, 24]);
    assert!(refused("flip", &other).contains("[16, 24]"));
    assert!(refused("mixup=0.2", &Features::of(&Sample::new([0.0]).with_target(1_u32)).unwrap()).contains("classes"));
}

#[test]
fn settings_are_read_from_a_line_and_a_table_and_written_back() {
    let line = "horizontal_flip=0.5,rotation=10,zoom=0.9..1.1,fill_mode=constant,fill_value=12.5,brightness=0.2,contrast=0.2,saturation=0.2,\
                erasing=0.25,mixup=0.2,cutmix=1";
    let settings: Augmentation =
        "flip, rotation=10, zoom=0.9..1.1, fill-mode=constant, fill_value=12.5, jitter=0.2, erasing=0.25, mixup=0.2, \
                                  cutmix=1"
            .parse()
            .unwrap();
    assert_eq!(settings.to_string(), line);
    assert_eq!(line.parse::<Augmentation>().unwrap(), settings);
    let table = "horizontal_flip = 0.5\nrotation = 10\nzoom = [0.9, 1.1]\nfill_mode = \"constant\"\nfill_value = 12.5\nbrightness = 0.2\n\
                 contrast = 0.2\nsaturation = 0.2\nerasing = 0.25\nmixup = 0.2\ncutmix = 1\n";
    assert_eq!(toml::from_str::<Augmentation>(table).unwrap(), settings);
    assert_eq!(toml::from_str::<Augmentation>(&toml::to_string(&settings).unwrap()).unwrap(), settings);
    assert!("".parse::<Augmentation>().unwrap().is_empty() && !settings.is_empty());
}

#[test]
fn settings_that_make_no_sense_are_refused_in_one_sentence() {
    let refused = [
        ("rotate=10", "did you mean `rotation`?"),
        ("rotation", "`rotation` has no value"),
        ("rotation=nan", "`rotation`: invalid type: string \"nan\", expected a number"),
        ("rotation=-10", "`rotation` = -10 is not possible"),
        ("rotation=20..10", "`rotation` = 20..10 is not possible: it must be from -360 to 360, the lower one first"),
        ("zoom=1", "`zoom` = 0..2 is not possible: it must be above 0"),
        ("shear=90", "`shear` = -90..90 is not possible: it must be between -90 and 90"),
        ("shift=1.5", "`shift` = -1.5..1.5"),
        ("flip=1.5", "`horizontal_flip` = 1.5 is not possible: it must be from 0 to 1"),
        ("flip,horizontal_flip=1", "`horizontal_flip` is set twice"),
        ("hue=0.6", "`hue` = -0.6..0.6"),
        ("crop=0..0", "`crop` = 0 is not possible: it must be above 0"),
        ("crop=0.5,crop_ratio=0", "`crop_ratio` = 0 is not possible: it must be above 0"),
        ("erasing=2", "`erasing` = 2"),
        ("mixup=0", "`mixup` = 0 is not possible: it must be above 0"),
        ("rotation=5,fill_mode=mirror", "unknown variant `mirror`"),
        ("fill_mode=wrap", "`fill_mode` has no effect without `rotation`"),
        ("erasing_value=3", "`erasing_value` has no effect without `erasing`"),
    ];
    for (text, expected) in refused {
        let message = text.parse::<Augmentation>().unwrap_err().to_string();
        assert!(message.contains(expected), "{text}: {message}");
        assert!(!message.contains('\n'), "{message}");
    }
    let message = toml::from_str::<Augmentation>("rotate = 1").unwrap_err().to_string();
    assert!(message.contains("unknown field `rotate`"), "{message}");
}

#[test]
fn parameters_of_any_size_give_an_image() {
    let huge = [0.0, 1.0, -1e-300, 1e300, f64::INFINITY, f64::NAN];
    for (&number, mode) in huge
        .iter()
        .flat_map(|number| [FillMode::Constant, FillMode::Wrap, FillMode::Reflect].map(|mode| (number, mode)))
    {
        let transform = RandomAffine {
            rotation: Interval::only(number),
            zoom: Interval::only(number),
            shift: [Interval::only(number); 2],
            shear: [Interval::only(number); 2],
            fill: Fill { mode, ..Default::default() },
            ..Default::default()
        };
        let moved = transform.apply(blobs(8), key(0, 0)).unwrap();
        assert_eq!(moved.get("input").unwrap().shape(), blobs(8).get("input").unwrap().shape());
        let (scale, ratio) = (Interval::only(number), Interval::only(number));
        RandomResizedCrop { size: None, scale, ratio }.apply(blobs(8), key(0, 0)).unwrap();
        RandomErasing { probability: number, scale, ratio, value: number as f32 }.apply(blobs(8), key(0, 0)).unwrap();
        ColorJitter { brightness: scale, contrast: scale, saturation: scale, hue: scale }
            .apply(blobs(8), key(0, 0))
            .unwrap();
        CutMix { alpha: number, target: classes(2) }.apply(&mut batch(|_| Array::from(1_u32)), key(0, 0)).unwrap();
        MixUp { alpha: number, target: classes(2) }.apply(&mut batch(|_| Array::from(1_u32)), key(0, 0)).unwrap();
    }
    assert!(
        Geometry::Crop { top: 1, left: 0, height: usize::MAX, width: 1, size: [1, 1] }.apply(&mut blobs(8)).is_err()
    );
}

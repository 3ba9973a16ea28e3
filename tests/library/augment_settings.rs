//! Augmentation as settings, and in a loader.

use tightfit::data::augment::Augmentation;
use tightfit::data::{DataLoader, Dataset, EpochOptions, Targets, TensorDataset, Values};
use tightfit::error::DataError;

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
fn loaders_augment_what_is_trained_on() {
    let images = Values::U8((0..6 * 3 * 4 * 4).map(|i| (i * 7 % 256) as u8).collect());
    let data = TensorDataset::new(images, [3, 4, 4], Targets::labels(vec![0, 1, 2, 0, 1, 2], 3)).unwrap();
    let augmentation: Augmentation = "flip,rotation=20,mixup=0.5".parse().unwrap();
    let read = |workers: usize, batch: usize, options: fn(EpochOptions) -> EpochOptions| {
        let loader = DataLoader::new(&data).augment(&augmentation).unwrap().workers(workers);
        std::thread::scope(|scope| {
            let mut batches = loader.epoch(scope, options(EpochOptions::new(batch)))?;
            let mut seen = Vec::new();
            while let Some(batch) = batches.next_batch()? {
                seen.push((batch.bytes("input").unwrap().to_vec(), batch.values("target")));
            }
            Ok::<_, DataError>(seen)
        })
        .unwrap()
    };
    let trained = read(0, 4, |options| options.shuffled(3));
    assert_eq!(trained[0].1.len(), 4 * 3);
    assert_eq!(read(2, 4, |options| options.shuffled(3)), trained);
    assert_ne!(read(0, 4, |options| options.shuffled(3).epoch(1)), trained);
    let evaluated = read(0, 6, |options| options);
    let Values::U8(pixels) = data.get(1).unwrap().take("input").unwrap().into_values() else { panic!("bytes") };
    assert_eq!(evaluated[0].0[48..96], pixels);

    let numbers = TensorDataset::unlabeled(Values::F32(vec![0.0; 4]), [2]).unwrap();
    let message = DataLoader::new(numbers).augment(&augmentation).unwrap_err().to_string();
    assert!(message.contains("[channels, height, width]"), "{message}");
}

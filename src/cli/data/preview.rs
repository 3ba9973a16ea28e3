//! `tightfit data preview`: some samples as a model sees them.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tightfit::command::files;
use tightfit::data::sheet::{Picture, contact_sheet};
use tightfit::data::{DataLoader, EpochOptions, Features};
use tightfit::models;
use tightfit::train::Config;

use super::super::failure::{Failure, keep};
use super::super::output::{Output, shown};
use super::super::values::{count, whole};
use super::settings::{DataArgs, DataTable, Kind};
use super::{folder, sources};

#[derive(Args, Debug)]
pub(crate) struct PreviewArgs {
    /// Folder or file [default: that of --data]
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,

    #[command(flatten)]
    data: DataArgs,

    /// The picture that is written (PNG)
    #[arg(long, value_name = "FILE", default_value = "preview.png")]
    output: PathBuf,

    /// How many samples
    #[arg(long, value_name = "N", default_value = "24", value_parser = count::<usize>)]
    samples: usize,

    /// The epoch whose changes are shown, from 0
    #[arg(long, value_name = "N", default_value = "0", value_parser = whole)]
    epoch: u64,

    /// The seed that decides order and changes
    #[arg(long, value_name = "N", default_value = "0", value_parser = whole)]
    seed: u64,

    /// Colors of images: 1 or 3 channels
    #[arg(long, value_name = "N", default_value = "3", value_parser = count::<usize>)]
    channels: usize,
}

/// Pixels that an image is drawn with at least.
const LEAST_PIXELS: usize = 96;
/// Images are drawn as no more than this.
const MOST_SAMPLES: usize = 400;
/// Pixels of all images of a sheet.
const MOST_PIXELS: usize = 1 << 26;
const COLUMNS: usize = 6;

pub(super) fn run(args: &PreviewArgs, output: &Output) -> Result<u8, Failure> {
    let (mut data, mut augment) = (DataTable::default(), None);
    args.data.put_over(&mut data, &mut augment);
    let path = args.path.clone().unwrap_or_else(|| folder(data.path.as_deref()));
    let kind = super::kind_at(&path, &data)?;
    if !matches!(kind, Kind::Images | Kind::Tar | Kind::Idx | Kind::Cifar | Kind::Arrays) {
        let text = format!("{}: no images are in it: `tightfit data inspect` says what is", path.display());
        return Err(Failure::bad_input(text));
    }
    if args.samples > MOST_SAMPLES {
        return Err(Failure::bad_input(format!("--samples: a sheet shows at most {MOST_SAMPLES}")));
    }
    super::super::overwrite::refuse(&[("--output", Some(&args.output))], &[("PATH", Some(&path))], Some(&path))?;
    if !args.output.extension().is_some_and(|end| end.eq_ignore_ascii_case("png")) {
        return Err(Failure::bad_input(format!(
            "--output {}: a sheet is a PNG file: name it so",
            args.output.display()
        )));
    }
    let size = data.size.map_or([224, 224], |size| size.0);
    if size.iter().fold(args.samples, |pixels, extent| pixels.saturating_mul(*extent)) > MOST_PIXELS {
        return Err(Failure::bad_input(
            "a sheet of so many images of that size is too large: show fewer, or smaller ones",
        ));
    }
    let model = models::builtin("resnet18").expect("bug: it is built in");
    let model = model.with_input([args.channels, size[0], size[1]]);
    let config = Config { seed: args.seed, ..Config::default() };
    let parts = sources::open(kind, &path, &data, &model, &config)?;
    let features = parts.train.features()?;
    let names = match features.class_names() {
        [] => parts.preprocessing.class_names.clone(),
        names => names.to_vec(),
    };
    let loader = DataLoader::new(parts.train).augment(&augment.unwrap_or_default())?;
    let shown_features = named(loader.features()?, names);
    let wanted = args.samples.min(loader.len().unwrap_or(args.samples));
    let options = EpochOptions::new(wanted).shuffled(args.seed).epoch(args.epoch);
    let batch = std::thread::scope(|scope| loader.epoch(scope, options)?.next_batch())?;
    let batch = batch.expect("bug: data without a batch");
    let mut pictures = Vec::new();
    for place in 0..batch.len() {
        pictures.push(Picture::of(&batch.sample(place)?, &shown_features)?);
    }
    let least = features.get("input").and_then(|(_, shape)| shape.last().copied()).unwrap_or(1).max(1);
    let scale = LEAST_PIXELS.div_ceil(least);
    let png = contact_sheet(&pictures, COLUMNS.min(pictures.len()), scale)?;
    files::check_writable(&args.output, png.len() as u64)
        .map_err(|error| Failure::bad_input(format!("--output {error}")))?;
    keep(&args.output, |path| Ok(files::write_whole(path, &png)?))?;
    output.text(format_args!("{} samples of {} written to {}", pictures.len(), path.display(), args.output.display()));
    output.object(&json!({
        "event": "preview", "path": shown(&path), "output": shown(&args.output), "samples": batch.indices(),
    }));
    Ok(0)
}

/// What samples have, with the names of classes that a set without names has elsewhere.
fn named(features: Features, names: Vec<String>) -> Features {
    let count = NonZeroUsize::new(names.len());
    match count {
        Some(_) if features.class_names().is_empty() => features.with_class_names(names),
        _ => features,
    }
}

//! `tightfit data`: fetches datasets. And what `train` and `eval` read of them.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;
use tightfit::data::{Targets, TensorDataset, Values, download, mnist};
use tightfit::error::DataError;
use tightfit::models;
use tightfit::nn::{Mode, Model};
use tightfit::plan::format_bytes;
use tightfit::tensor::Shape;
use tightfit::train::{self, Config, Loss};

use super::failure::Failure;
use super::output::{Output, shown};

/// Where the full MNIST is fetched to.
const FETCHED: &str = "data/mnist-full";
/// Where the source repository has a part of it.
const BUNDLED: &str = "data/mnist";

/// The folder with the data that was asked for, or where nothing was, the full MNIST if it was fetched, else a part of it.
pub(crate) fn folder(given: Option<&Path>) -> PathBuf {
    let is_fetched = || download::MNIST_FILES.iter().all(|file| Path::new(FETCHED).join(file.name).is_file());
    given.map_or_else(|| PathBuf::from(if is_fetched() { FETCHED } else { BUNDLED }), Path::to_owned)
}

/// The training and the test set of a folder, in the shape that the model takes. Whether model and loss can take such data is seen
/// before it is read, and whether they can take these, before anything is planned.
pub(crate) fn open(dir: &Path, model: &Model, config: &Config) -> Result<(TensorDataset, TensorDataset), Failure> {
    check_kind(model, config, 1).map_err(|failure| {
        let here = "images with one label each are all that this command reads";
        let failure = failure.prefixed(format_args!("`{}`", model.name())).and(here);
        failure.and(format_args!("{}, or train it from Rust (see the examples)", advice(dir, model)))
    })?;
    let (train, test) = mnist::open_as(dir, model.input_shape().clone()).map_err(|error| match error {
        DataError::Mismatch(text) => match shape_advice(dir, model, config) {
            Some(advice) => Failure::bad_input(text + &advice),
            None => DataError::Mismatch(text).into(),
        },
        error => error.into(),
    })?;
    for data in [&train, &test] {
        train::check_data(model, config, data)?;
    }
    Ok((train, test))
}

/// What to do where images are of another size than what the model takes; nothing where that is not what is wrong.
fn shape_advice(dir: &Path, model: &Model, config: &Config) -> Option<String> {
    let shape = mnist::image_shape(dir).ok().filter(|shape| shape.numel() != model.input_shape().numel())?;
    let input = shape.iter().map(ToString::to_string).collect::<Vec<_>>().join("x");
    let resized = model.clone().with_input(shape.clone());
    let is_taken =
        resized.build(config.batch, Mode::Train(config.statistics)).is_ok() && check_kind(&resized, config, 1).is_ok();
    if is_taken {
        return Some(format!("; `{}` takes them with --input {input}", model.name()));
    }
    let suited = suited(&shape, 1);
    (!suited.is_empty()).then(|| format!(", such as {}", suited.join(", ")))
}

/// Whether images in the shape of a model's input, each with a label of so many classes, are of the kind that it and its loss take.
fn check_kind(model: &Model, config: &Config, classes: u32) -> Result<(), Failure> {
    let shape = model.input_shape().clone();
    let image = TensorDataset::new(Values::U8(vec![0; shape.numel()]), shape, Targets::labels(vec![0], classes))?;
    Ok(train::check_data(model, config, &image)?)
}

/// What to train on images with one label each in place of a model with a loss that cannot be.
fn advice(dir: &Path, model: &Model) -> String {
    let Ok((images, _)) = mnist::open(dir) else { return "use a model of such images".to_owned() };
    let (shape, classes) = (images.sample_shape(), images.classes().unwrap_or(1));
    if are_for(shape, classes, model) {
        return format!("use the loss {}", Loss::default());
    }
    if model.input_shape().numel() == shape.numel() && model.output_shape().is_ok_and(|shape| shape.len() > 1) {
        return "end the model in one vector of scores (flatten or global_avg_pool, then linear)".to_owned();
    }
    match &suited(shape, classes)[..] {
        [] => "use a model of such images".to_owned(),
        suited => format!("use a model of such images, such as {}", suited.join(", ")),
    }
}

/// Whether a model takes images of this size and so many classes as it is.
fn are_for(shape: &Shape, classes: u32, model: &Model) -> bool {
    model.input_shape().numel() == shape.numel() && check_kind(model, &Config::default(), classes).is_ok()
}

/// The built-in models that take such images.
fn suited(shape: &Shape, classes: u32) -> Vec<&'static str> {
    let fits = |name: &&str| models::builtin(name).is_some_and(|model| are_for(shape, classes, &model));
    models::NAMES.into_iter().filter(fits).collect()
}

#[derive(Subcommand, Debug)]
pub(crate) enum DataCommand {
    /// Fetches the full MNIST, 60,000 + 10,000 images, 12 MB; resumes where an earlier try stopped
    Mnist(MnistArgs),
}

#[derive(Args, Debug)]
pub(crate) struct MnistArgs {
    /// Folder for the four files; train, eval and bench take the default one unless they are told another
    #[arg(long, value_name = "DIR", default_value = FETCHED)]
    data: PathBuf,
}

pub(crate) fn run(command: &DataCommand, output: &Output) -> Result<u8, Failure> {
    let DataCommand::Mnist(MnistArgs { data }) = command;
    download::mnist(data, &download::MNIST_MIRRORS, &mut |progress| {
        if progress.received_bytes == progress.size_bytes {
            output.text(format_args!("{}  {}", progress.name, format_bytes(progress.size_bytes)));
            output.object(&json!({"event": "file", "name": progress.name, "size_bytes": progress.size_bytes}));
        }
    })?;
    let (train, test) = mnist::open(data)?;
    let use_them =
        if folder(None) == *data { String::new() } else { format!(": use them with --data {}", data.display()) };
    output.text(format_args!("{} + {} images in {}{use_them}", train.len(), test.len(), data.display()));
    output.object(&json!({
        "event": "summary", "data": shown(data), "train_samples": train.len(), "test_samples": test.len(),
    }));
    Ok(0)
}

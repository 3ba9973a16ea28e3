//! Data on the command line: what commands read, and `tightfit data`.

mod adapt;
mod divide;
mod inspect;
mod preview;
mod settings;
mod sources;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use serde_json::json;
use tightfit::data::{
    BinaryTarget, DataLoader, Dataset, LoaderMemory, OnError, OneHot, Reshaped, Targets, TensorDataset, Values,
    WeightedSampler, download, mnist, split,
};
use tightfit::error::DataError;
use tightfit::models;
use tightfit::nn::{Mode, Model, Normalization};
use tightfit::plan::format_bytes;
use tightfit::tensor::Shape;
use tightfit::train::{self, Config, Loss, Preprocessing};

use super::failure::Failure;
use super::output::{Output, shown};
use super::run_file::RunFile;
use settings::{Balanced, Kind, OnErrorName, kind_of};
pub(crate) use settings::{DataArgs, DataTable};

/// Where the full MNIST is fetched to.
const FETCHED: &str = "data/mnist-full";
/// Where the source repository has a part of it.
const BUNDLED: &str = "data/mnist";

/// The folder with the data that was asked for, or where nothing was, the full MNIST if it was fetched, else a part of it.
pub(crate) fn folder(given: Option<&Path>) -> PathBuf {
    let is_fetched = || download::MNIST_FILES.iter().all(|file| Path::new(FETCHED).join(file.name).is_file());
    given.map_or_else(|| PathBuf::from(if is_fetched() { FETCHED } else { BUNDLED }), Path::to_owned)
}

/// What a training is fed, and the model and the settings that go with it.
pub(crate) struct Opened {
    pub(crate) model: Model,
    pub(crate) config: Config,
    pub(crate) train: DataLoader<'static>,
    pub(crate) val: Option<DataLoader<'static>>,
    pub(crate) test: Option<DataLoader<'static>>,
    pub(crate) preprocessing: Preprocessing,
    /// Numbers of samples, and where they are from.
    pub(crate) text: String,
    pub(crate) notes: Vec<String>,
    pub(crate) memory: LoaderMemory,
}

/// Where the data is, and what it is.
fn path_and_kind(data: &DataTable) -> Result<(PathBuf, Kind), Failure> {
    let path = folder(data.path.as_deref());
    let kind = kind_at(&path, data)?;
    Ok((path, kind))
}

/// What is at a path.
fn kind_at(path: &Path, data: &DataTable) -> Result<Kind, Failure> {
    for path in std::iter::once(path).chain(data.masks.as_deref()) {
        if !tightfit::command::files::is_there(path) {
            let hint = "give a folder or a file with data; `tightfit data mnist` fetches MNIST".to_owned();
            return Err(DataError::Missing { path: path.to_owned(), hint }.into());
        }
    }
    Ok(data.kind.unwrap_or_else(|| kind_of(path, data)))
}

/// Threads that read.
fn workers_of(data: &DataTable, kind: Kind) -> usize {
    let is_in_memory = matches!(kind, Kind::Idx | Kind::Cifar | Kind::Series);
    data.workers.unwrap_or(if is_in_memory { 0 } else { 2 })
}

/// Opens the data of a training, and makes the model fit it where that follows from it. Whether model and loss can take such data is seen
/// before it is read, and whether they can take these, before anything is planned.
pub(crate) fn open(file: &RunFile, model: Model, mut config: Config, output: &Output) -> Result<Opened, Failure> {
    let (path, kind) = path_and_kind(&file.data)?;
    if kind == Kind::Idx {
        check_images(&path, &model, &config)?;
    }
    let model = match (file.data.size, &model.input_shape()[..]) {
        (Some(size), &[channels, _, _]) if file.model.input.is_none() => {
            model.with_input([channels, size.0[0], size.0[1]])
        }
        _ => model,
    };
    let divide::Parts { mut train, mut val, mut test, mut preprocessing, notes } =
        sources::open(kind, &path, &file.data, &model, &config)?;
    let mut features = sources::features(&*train)?;
    if adapt::is_binary(&model, &config, &features) {
        train = binary(train)?;
        val = val.map(binary).transpose()?;
        test = test.map(binary).transpose()?;
        features = sources::features(&*train)?;
        preprocessing.class_names.clear();
    }
    let augment = file.augment.clone().unwrap_or_default();
    let mut model = adapt::model_for(file, model, &features, adapt::outputs_for(&features, &preprocessing));
    let labels_for = |option: &str| -> Result<(Vec<u32>, u32), Failure> {
        let labels = split::labels(&*train).map_err(|error| {
            let why = "it takes samples with one class each";
            Failure::from(error).prefixed(format_args!("{option}: {why}"))
        })?;
        Ok((labels, features.classes().unwrap_or(0)))
    };
    let labels = || labels_for("--class-weights");
    adapt::loss_for(file, &mut config, &features, &augment, labels)?;
    let sampler = match file.data.sampler {
        Some(Balanced::Balanced) => {
            let (labels, classes) = labels_for("--sampler")?;
            Some(WeightedSampler::balanced(&labels, classes)?)
        }
        None => None,
    };
    let (dtype, shape) = adapt::input_of(&features);
    train = in_shape(train, &model)?;
    val = val.map(|data| in_shape(data, &model)).transpose()?;
    test = test.map(|data| in_shape(data, &model)).transpose()?;
    if adapt::mixes_labels(&augment, &features) {
        let probabilities =
            |data: Arc<dyn Dataset>| -> Result<Arc<dyn Dataset>, Failure> { Ok(Arc::new(OneHot::new(data)?)) };
        val = val.map(probabilities).transpose()?;
        test = test.map(probabilities).transpose()?;
    }
    let count = |data: &Option<Arc<dyn Dataset>>| data.as_ref().map(Dataset::len);
    let counts = (train.len(), count(&val), count(&test));
    let loader = |data: Arc<dyn Dataset>| loader(data, &file.data, kind);
    let (mut train, val, test) = (loader(train), val.map(loader), test.map(loader));
    // Digits are numbers from 0 to 1 already, if nothing else is asked of them.
    let asks = || file.data.normalize.is_some() || super::weights::scales_pixels(file);
    let is_bytes = dtype == tightfit::tensor::DType::U8 && (kind != Kind::Idx || asks());
    if is_bytes && model.normalization().is_none() {
        let channels = if shape.len() == 3 { shape[0] } else { 1 };
        model = model.normalized(adapt::normalization(file, &train, channels, output)?);
    }
    preprocessing.normalization = model.normalization().cloned();
    train = train.augment(&augment)?;
    if let Some(sampler) = sampler {
        train = train.sampler(sampler);
    }
    config.sample_weights |= file.data.weight.is_some();
    for data in [Some(&train), val.as_ref(), test.as_ref()].into_iter().flatten() {
        train::check_data(&model, &config, data).map_err(|error| misfit(error.into(), kind, &path, &model))?;
    }
    let memory = train.memory(config.batch)?;
    let text = described(counts, &path);
    Ok(Opened { model, config, train, val, test, preprocessing, text, notes, memory })
}

/// What a trained model is tested on.
pub(crate) struct Tested {
    pub(crate) model: Model,
    pub(crate) config: Config,
    pub(crate) data: DataLoader<'static>,
}

/// Opens the data that a trained model is tested on, read as that was which it was trained on: the part for the test or for validation
/// where there is one, else all.
pub(crate) fn open_test(
    file: &mut RunFile,
    model: Model,
    mut config: Config,
    weights: &Path,
    output: &Output,
) -> Result<Tested, Failure> {
    let trained = super::weights::preprocessing(weights)?.unwrap_or_default();
    file.model.weights = Some(weights.to_owned());
    let (path, kind) = path_and_kind(&file.data)?;
    if trained == Preprocessing::default() {
        let Opened { model, config, train, val, test, .. } = open(file, model, config, output)?;
        return Ok(Tested { model, config, data: test.or(val).unwrap_or(train) });
    }
    let model = adapt::as_trained(file, model, &trained)?;
    let divide::Parts { train, val, test, .. } =
        sources::open_as_trained(kind, &path, &file.data, &model, &config, &trained)?;
    let mut data = test.or(val).unwrap_or(train);
    if adapt::is_binary(&model, &config, &sources::features(&*data)?) {
        data = binary(data)?;
    }
    let features = sources::features(&*data)?;
    let model = adapt::model_for(file, model, &features, adapt::outputs_for(&features, &trained));
    adapt::loss_for(file, &mut config, &features, &Default::default(), || Ok(Default::default()))?;
    let data = in_shape(data, &model)?;
    let model = adapt::normalized_as(model, &trained);
    let data = loader(data, &file.data, kind);
    train::check_data(&model, &config, &data).map_err(|error| misfit(error.into(), kind, &path, &model))?;
    Ok(Tested { model, config, data })
}

/// What a trained model is asked about.
pub(crate) struct ToPredict {
    pub(crate) model: Model,
    pub(crate) config: Config,
    /// As it is at these paths.
    pub(crate) data: Arc<dyn Dataset>,
    pub(crate) loader: DataLoader<'static>,
}

/// Opens files of the kind that a model was trained on, without targets.
pub(crate) fn open_to_predict(
    file: &RunFile,
    model: Model,
    config: Config,
    trained: &Preprocessing,
    paths: &[PathBuf],
) -> Result<ToPredict, Failure> {
    let model = match (file.data.size, &model.input_shape()[..]) {
        (Some(size), &[channels, _, _]) => model.with_input([channels, size.0[0], size.0[1]]),
        _ => adapt::as_trained(file, model, trained)?,
    };
    let data = sources::open_to_predict(&file.data, &model, &config, trained, paths)?;
    let features = sources::features(&*data)?;
    let model = adapt::model_for(file, model, &features, adapt::outputs_for(&features, trained));
    let samples = in_shape(Arc::clone(&data), &model)?;
    let model = match (adapt::given_normalization(file), adapt::normalized_as(model, trained)) {
        (Some(given), model) if is_bytes(&features) => model.normalized(given),
        (None, model)
            if model.normalization().is_none() && is_bytes(&features) && super::weights::scales_pixels(file) =>
        {
            model.normalized(Normalization::identity())
        }
        (_, model) => model,
    };
    let mut config = config;
    if trained.series.as_ref().is_some_and(|series| series.options.stateful.is_some()) {
        // The windows of a series follow each other.
        config.batch = 1;
    }
    adapt::answers_for(file, &mut config, trained);
    let loader = loader(samples, &file.data, Kind::Images);
    Ok(ToPredict { model, config, data, loader })
}

/// Two classes, for a model that makes the probability of the second.
fn binary(data: Arc<dyn Dataset>) -> Result<Arc<dyn Dataset>, Failure> {
    Ok(Arc::new(BinaryTarget::new(data)?))
}

fn is_bytes(features: &tightfit::data::Features) -> bool {
    adapt::input_of(features).0 == tightfit::tensor::DType::U8
}

/// The model with as many outputs as there are characters, where it is built in.
pub(crate) fn of_vocabulary(file: &RunFile, model: Model, vocabulary: &tightfit::data::text::Vocabulary) -> Model {
    let features = tightfit::data::Features::new(tightfit::tensor::DType::U32, model.input_shape().clone());
    adapt::model_for(file, model, &features, Some(vocabulary.len() as usize))
}

/// A model as it was trained: of images of the same size, and of bytes where it was trained on such.
pub(crate) fn as_trained(file: &RunFile, model: Model, trained: &Preprocessing) -> Result<Model, Failure> {
    Ok(adapt::normalized_as(adapt::as_trained(file, model, trained)?, trained))
}

/// The samples in the shape that a model takes: images of digits may be rows of pixels, or sequences of rows.
fn in_shape(data: Arc<dyn Dataset>, model: &Model) -> Result<Arc<dyn Dataset>, Failure> {
    let (_, shape) = adapt::input_of(&data.features()?);
    let wanted = model.input_shape();
    if shape == *wanted || shape.numel() != wanted.numel() {
        return Ok(data);
    }
    Ok(Arc::new(Reshaped::new(data, wanted.clone())?))
}

/// How samples of a part are read.
fn loader(data: Arc<dyn Dataset>, settings: &DataTable, kind: Kind) -> DataLoader<'static> {
    let mut loader = DataLoader::new(data).workers(workers_of(settings, kind));
    if let Some(batches) = settings.prefetch {
        loader = loader.prefetch(batches);
    }
    if settings.on_error == Some(OnErrorName::Skip) {
        loader = loader.on_error(OnError::Skip);
    }
    match settings.host_budget {
        Some(budget) => loader.host_budget_bytes(budget.0),
        None => loader,
    }
}

/// `8000 and 2000 samples, from photos`, with those of validation in between where there are some.
fn described((train, val, test): (usize, Option<usize>, Option<usize>), path: &Path) -> String {
    let count = |count: usize| tightfit::command::plural(count, "sample");
    let counts = match (val, test) {
        (Some(val), Some(test)) => format!("{train}, {val} for validation and {} for the test", count(test)),
        (Some(val), None) => format!("{train} and {} for validation", count(val)),
        (None, Some(test)) => format!("{train} and {}", count(test)),
        (None, None) => count(train),
    };
    format!("{counts}, from {}", path.display())
}

/// What to do where a model does not take the data, besides what the error says.
fn misfit(failure: Failure, kind: Kind, path: &Path, model: &Model) -> Failure {
    if kind == Kind::Idx {
        return failure;
    }
    let failure = failure.prefixed(format_args!("{}, for `{}`", path.display(), model.name()));
    match kind {
        Kind::Table if model.input_shape().len() == 2 => failure.and("--lookback ROWS reads the rows as a series"),
        Kind::Images if model.output_shape().is_ok_and(|shape| shape.len() == 3) => {
            failure.and("--masks DIR is where the classes of pixels are")
        }
        _ => failure,
    }
}

/// Whether a model takes IDX files, which hold images with one label each: as long as nothing is unpacked.
fn check_images(dir: &Path, model: &Model, config: &Config) -> Result<(), Failure> {
    check_kind(model, config, 1).map_err(|failure| {
        let here = "IDX files hold images with one label each";
        let failure = failure.prefixed(format_args!("`{}`", model.name())).and(here);
        failure.and(format_args!("{}, or give it other data: --data PATH", advice(dir, model)))
    })?;
    let shape = mnist::image_shape(dir)?;
    if let Err(error) = mnist::check_shape(&shape, model.input_shape()) {
        return Err(match (error, shape_advice(dir, model, config)) {
            (DataError::Mismatch(text), Some(advice)) => Failure::bad_input(text + &advice),
            (error, _) => error.into(),
        });
    }
    Ok(())
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
    /// Says what is in a folder or file: samples, classes, sizes, types, broken files
    Inspect(inspect::InspectArgs),
    /// Draws some samples as a model is trained on them, with what --augment makes of them
    Preview(preview::PreviewArgs),
}

#[derive(Args, Debug)]
pub(crate) struct MnistArgs {
    /// Folder for the four files; train, eval and bench take the default one unless they are told another
    #[arg(long, value_name = "DIR", default_value = FETCHED)]
    data: PathBuf,
}

pub(crate) fn run(command: &DataCommand, output: &Output) -> Result<u8, Failure> {
    match command {
        DataCommand::Mnist(args) => fetch(args, output),
        DataCommand::Inspect(args) => inspect::run(args, output),
        DataCommand::Preview(args) => preview::run(args, output),
    }
}

fn fetch(MnistArgs { data }: &MnistArgs, output: &Output) -> Result<u8, Failure> {
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

//! From paths and settings to the parts of a dataset.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tightfit::command::plural;
use tightfit::data::image::ImageList;
use tightfit::data::series::{SeriesOptions, TimeSeries};
use tightfit::data::table::ColumnKind;
use tightfit::data::text::{Pieces, TextFile, TextOptions, TokenFile};
use tightfit::data::{
    ArrayDataset, ArrayOptions, Dataset, Features, ImageFiles, ImageFolder, ImageOptions, ListOptions, ListTarget,
    MaskOptions, MaskedImages, Table, TableOptions, TarOptions, TarShards, cifar, mnist,
};
use tightfit::error::DataError;
use tightfit::nn::{Mode, Model};
use tightfit::plan::format_bytes;
use tightfit::train::{Config, Preprocessing};

use super::super::failure::Failure;
use super::divide::{Division, Others, Parts, divide, in_order, shared};
use super::settings::{DataTable, Kind, Part, kind_of};

/// What a thread must be allowed to read small images with.
const LEAST_READING_BYTES: u64 = 4 << 20;
/// Categories of a column that hardly anyone means to be so many inputs.
const MANY_CATEGORIES: usize = 50;
/// Names of folders of parts.
const TRAIN: [&str; 2] = ["train", "training"];
const VAL: [&str; 4] = ["val", "valid", "validation", "dev"];
const TEST: [&str; 1] = ["test"];

/// Opens what is at `path`, for a model with these settings.
pub(super) fn open(
    kind: Kind,
    path: &Path,
    data: &DataTable,
    model: &Model,
    config: &Config,
) -> Result<Parts, Failure> {
    match kind {
        Kind::Idx => {
            // Images of digits may be rows of pixels, or sequences of rows.
            let is_like = mnist::image_shape(path)?.numel() == model.input_shape().numel();
            let (train, test) =
                if is_like { mnist::open_as(path, model.input_shape().clone())? } else { mnist::open(path)? };
            divide(&shared(train), Some(shared(test)), data, config, None)
        }
        Kind::Cifar => {
            let (train, test) = cifar::open(path)?;
            let parts = divide(&shared(train), Some(shared(test)), data, config, None)?;
            let class_names = cifar::CLASSES.map(str::to_owned).to_vec();
            Ok(Parts { preprocessing: Preprocessing { class_names, ..Preprocessing::default() }, ..parts })
        }
        Kind::Images => match &data.masks {
            Some(masks) => masked(path, masks, data, model, config),
            None if path.is_dir() => folder(path, data, model, config),
            None => list(path, data, model, config),
        },
        Kind::Tar => tar(path, data, model, config),
        Kind::Arrays => arrays(path, data, model, config),
        Kind::Table => table(path, data, config),
        Kind::Series => series(path, data, model, config),
        Kind::Text => text(path, data, model, config),
        Kind::Tokens => tokens(path, data, model, config),
    }
}

/// Opens what is at `path` as that was read which a model was trained on.
pub(super) fn open_as_trained(
    kind: Kind,
    path: &Path,
    data: &DataTable,
    model: &Model,
    config: &Config,
    trained: &Preprocessing,
) -> Result<Parts, Failure> {
    let names = &trained.class_names;
    let class_names = unless_empty(names);
    let images = trained.images.clone();
    let all = match (kind, &trained.table, &trained.series, &trained.vocabulary) {
        (Kind::Table, Some(table), ..) => shared(Table::open_with(path, table)?),
        (Kind::Table | Kind::Series, _, Some(series), _) => {
            let series = TimeSeries::open_with(path, series)?;
            let (val, test) = shares(data, "a series")?;
            return Ok(in_order(series.split(val, test)?, trained.clone()));
        }
        (Kind::Text, _, _, Some(vocabulary)) => {
            let pieces = pieces(data, model, config)?;
            let found =
                TextFile::open_with(path, vocabulary, &TextOptions { pieces, ..TextOptions::new(pieces.length) })?;
            let (val, test) = shares(data, "a text")?;
            return Ok(in_order(found.split(val, test)?, trained.clone()));
        }
        (Kind::Images, ..) if data.masks.is_some() && images.is_some() => {
            let (masks, options) =
                (data.masks.clone().expect("bug: they are there"), images.expect("bug: they are there"));
            shared(MaskedImages::open(path, masks, options, trained.masks.clone().unwrap_or_default())?)
        }
        (Kind::Images, ..) if images.is_some() => {
            let options = images.expect("bug: they are there");
            if path.is_dir() {
                let found = TEST.iter().map(|name| path.join(name)).find(|path| path.is_dir());
                let folder = ImageFolder::open(found.as_deref().unwrap_or(path), options)?;
                shared(if names.is_empty() { folder } else { folder.with_classes(names)? })
            } else {
                let list = ListOptions { class_names, weight: data.weight.clone(), ..ListOptions::default() };
                shared(ImageList::open(path, &list, options)?)
            }
        }
        (Kind::Tar, ..) if images.is_some() => {
            let masks = trained.masks.clone().unwrap_or_default();
            let tar = TarOptions { class_names, masks, ..TarOptions::default() };
            shared(TarShards::open(&[path], &tar, images.expect("bug: they are there"))?)
        }
        _ => return open(kind, path, data, model, config),
    };
    let parts = divide(&all, None, data, config, None)?;
    Ok(Parts { preprocessing: trained.clone(), ..parts })
}

/// Opens files of the kind that a model was trained on, without targets.
pub(super) fn open_to_predict(
    data: &DataTable,
    model: &Model,
    config: &Config,
    trained: &Preprocessing,
    paths: &[PathBuf],
) -> Result<Arc<dyn Dataset>, Failure> {
    let one = || match paths {
        [path] => Ok(&**path),
        _ => Err(Failure::bad_input("more than one path makes sense for images only: give one")),
    };
    let kind = match paths {
        [path] => data.kind.unwrap_or_else(|| kind_of(path, data)),
        _ => Kind::Images,
    };
    if let Some(table) = trained.table.as_ref().filter(|_| matches!(kind, Kind::Table | Kind::Series)) {
        return Ok(shared(Table::open_with(one()?, table)?));
    }
    if let Some(series) = trained.series.as_ref().filter(|_| matches!(kind, Kind::Table | Kind::Series)) {
        return Ok(shared(TimeSeries::open_for_forecasts(one()?, series)?));
    }
    match kind {
        Kind::Arrays | Kind::Tar | Kind::Cifar => {
            let Parts { train, test, .. } = open(kind, one()?, data, model, config)?;
            Ok(test.unwrap_or(train))
        }
        Kind::Idx if paths.iter().all(|path| path.is_dir() && mnist::image_shape(path).is_ok()) => {
            let (_, test) = mnist::open(one()?)?;
            Ok(shared(test))
        }
        Kind::Images | Kind::Idx => {
            let options = match &trained.images {
                Some(options) if data.size.is_none() => options.clone(),
                _ => image_options(data, model)?,
            };
            Ok(shared(ImageFiles::open(paths, options)?))
        }
        Kind::Table | Kind::Series | Kind::Text | Kind::Tokens => Err(Failure::bad_input(format!(
            "{}: the weights do not say how such a file is read: `tightfit train … --save` keeps that with them",
            one()?.display()
        ))),
    }
}

/// How images become what the model takes.
pub(super) fn image_options(data: &DataTable, model: &Model) -> Result<ImageOptions, Failure> {
    let (channels, size) = match model.input_shape()[..] {
        [channels @ (1 | 3), height, width] => (channels, [height, width]),
        [height, width] => (1, [height, width]),
        [numel] if numel.isqrt().pow(2) == numel => (1, [numel.isqrt(); 2]),
        _ => {
            let (name, shape) = (model.name(), model.input_shape());
            return Err(Failure::bad_input(format!(
                "`{name}` takes samples of shape {shape}, which no image has: use a model of images [channels, height, width] with 1 or 3 \
                 channels"
            )));
        }
    };
    let size = Some(data.size.map_or(size, |size| size.0));
    let options = ImageOptions { size, channels, resize: data.resize.unwrap_or_default(), ..ImageOptions::default() };
    options.check()?;
    let Some(budget) = data.host_budget else { return Ok(options) };
    // A quarter for all that decode at once.
    let readers = super::workers_of(data, Kind::Images).max(1) as u64;
    options.within(budget.0 / 4 / readers).map_err(|error| {
        let share =
            format!("of the host budget a quarter is for {} that read images", plural(readers as usize, "thread"));
        let least = format_bytes(LEAST_READING_BYTES * 4 * readers);
        Failure::bad_input(format!("{error} ({share}): allow {least} or more"))
    })
}

/// Names, where there are some.
fn unless_empty(names: &[String]) -> Option<Vec<String>> {
    (!names.is_empty()).then(|| names.to_vec())
}

/// How images of other runs are read, which have host budgets of their own.
fn for_others(options: &ImageOptions) -> ImageOptions {
    ImageOptions { max_pixels: ImageOptions::default().max_pixels, ..options.clone() }
}

fn folder(path: &Path, data: &DataTable, model: &Model, config: &Config) -> Result<Parts, Failure> {
    let options = image_options(data, model)?;
    let found = |names: &[&str]| names.iter().map(|name| path.join(name)).find(|path| path.is_dir());
    // Folders of parts, each with one for each class.
    let parts = found(&TRAIN).map(|train| (train, found(&VAL), found(&TEST)));
    let (train, val, test) = parts.unwrap_or((path.to_owned(), None, None));
    let train = ImageFolder::open(&train, options)?;
    let (class_names, options) = (train.class_names().to_vec(), train.options());
    let others = |path: &Path| -> Result<Arc<dyn Dataset>, Failure> {
        Ok(shared(ImageFolder::open(path, options.clone())?.with_classes(&class_names)?))
    };
    let mut data = data.clone();
    if data.fold.is_none() {
        data.val = data.val.or(val.map(Part::Path));
    }
    data.test = data.test.or(test.map(Part::Path));
    let preprocessing = Preprocessing {
        images: Some(for_others(&options)),
        class_names: class_names.clone(),
        ..Preprocessing::default()
    };
    let parts = divide(&shared(train), None, &data, config, Some(&others))?;
    Ok(Parts { preprocessing, ..parts })
}

fn list(path: &Path, data: &DataTable, model: &Model, config: &Config) -> Result<Parts, Failure> {
    let options = image_options(data, model)?;
    let target = match &data.targets[..] {
        [] => ListTarget::Label(None),
        [column] if !matches!(data.task, Some(tightfit::data::table::Task::Regression)) => {
            ListTarget::Label(Some(column.clone()))
        }
        columns => ListTarget::Values(columns.to_vec()),
    };
    let list = ListOptions { target, weight: data.weight.clone(), ..ListOptions::default() };
    let train = ImageList::open(path, &list, options)?;
    let (class_names, options) = (train.class_names().to_vec(), train.options());
    let same = ListOptions { class_names: unless_empty(&class_names), ..list };
    let others = |path: &Path| -> Result<Arc<dyn Dataset>, Failure> {
        Ok(shared(ImageList::open(path, &same, options.clone())?))
    };
    let preprocessing = Preprocessing {
        images: Some(for_others(&options)),
        class_names: class_names.clone(),
        ..Preprocessing::default()
    };
    let parts = divide(&shared(train), None, data, config, Some(&others))?;
    Ok(Parts { preprocessing, ..parts })
}

fn masked(path: &Path, masks: &Path, data: &DataTable, model: &Model, config: &Config) -> Result<Parts, Failure> {
    let options = image_options(data, model)?;
    let train = MaskedImages::open(path, masks, options, MaskOptions::default())?;
    let preprocessing = Preprocessing {
        images: Some(for_others(&train.options())),
        masks: Some(train.mask_options().clone()),
        class_names: train.class_names().to_vec(),
        ..Preprocessing::default()
    };
    let parts = divide(&shared(train), None, data, config, None)?;
    Ok(Parts { preprocessing, ..parts })
}

fn tar(path: &Path, data: &DataTable, model: &Model, config: &Config) -> Result<Parts, Failure> {
    let options = image_options(data, model)?;
    let train = TarShards::open(&[path], &TarOptions::default(), options)?;
    let (class_names, options) = (train.class_names().to_vec(), train.options());
    let masks = train.mask_options().cloned();
    let same = TarOptions {
        class_names: unless_empty(&class_names),
        masks: masks.clone().unwrap_or_default(),
        ..TarOptions::default()
    };
    let others = |path: &Path| -> Result<Arc<dyn Dataset>, Failure> {
        Ok(shared(TarShards::open(&[path], &same, options.clone())?))
    };
    let images = Some(for_others(&options));
    let preprocessing = Preprocessing { images, masks, class_names: class_names.clone(), ..Preprocessing::default() };
    let parts = divide(&shared(train), None, data, config, Some(&others))?;
    Ok(Parts { preprocessing, ..parts })
}

fn arrays(path: &Path, data: &DataTable, model: &Model, config: &Config) -> Result<Parts, Failure> {
    let one = |names: &[String], what: &str| match names {
        [] => Ok(None),
        [name] => Ok(Some(name.clone())),
        _ => Err(Failure::bad_input(format!("of arrays there is one {what}: name one"))),
    };
    let options = ArrayOptions {
        input: one(&data.inputs, "input")?,
        target: one(&data.targets, "target")?,
        weight: data.weight.clone(),
        task: data.task,
        ..ArrayOptions::default()
    };
    let options = match data.host_budget {
        Some(budget) => ArrayOptions { host_budget_bytes: budget.0, ..options },
        None => options,
    };
    let as_model = |options: ArrayOptions| -> Result<ArrayDataset, DataError> {
        let found = ArrayDataset::open(path, &options)?;
        // Channels and their order are as the model takes them.
        let (shape, wanted) = (found.features()?.get("input").map(|(_, shape)| shape.to_vec()), model.input_shape());
        let (channels_last, add_channel) = match (shape.as_deref(), &wanted[..]) {
            (Some([_, _, last]), [first, ..]) if wanted.len() == 3 && last == first => (true, false),
            (Some([_, _]), [1, _, _]) => (false, true),
            _ => return Ok(found),
        };
        ArrayDataset::open(path, &ArrayOptions { channels_last, add_channel, ..options })
    };
    let part = |part: &str| ArrayOptions { part: Some(part.to_owned()), ..options.clone() };
    // An archive with parts has one for the training.
    let (train, val, test) = match as_model(part("train")) {
        Ok(train) => (train, as_model(part("val")).ok(), as_model(part("test")).ok()),
        Err(_) => (as_model(options.clone())?, None, None),
    };
    let others = |path: &Path| -> Result<Arc<dyn Dataset>, Failure> {
        Ok(shared(ArrayDataset::open(path, &ArrayOptions { part: None, ..options.clone() })?))
    };
    let mut parts = divide(&shared(train), test.map(shared), data, config, Some(&others))?;
    if data.fold.is_none() && data.val.is_none() {
        parts.val = val.map(shared);
    }
    Ok(parts)
}

fn table(path: &Path, data: &DataTable, config: &Config) -> Result<Parts, Failure> {
    if data.targets.is_empty() {
        return Err(Failure::bad_input(format!(
            "{}: which column is to be said? --target NAME names it",
            path.display()
        )));
    }
    let options = TableOptions {
        inputs: unless_empty(&data.inputs),
        targets: data.targets.clone(),
        weight: data.weight.clone(),
        task: data.task,
        missing: data.missing.unwrap_or_default(),
        standardize_targets: true,
        ..TableOptions::default()
    };
    let mut train = Table::open(path, &options)?;
    // Statistics are of the rows that are trained on.
    let indices = Division::of(&train, data, config.seed)?;
    train.fit(&indices.train)?;
    let (preprocessing, names) = (train.preprocessing().clone(), train.preprocessing().class_names().to_vec());
    let constant: Vec<_> = preprocessing.constant_inputs().map(|name| format!("`{name}`")).collect();
    let others =
        |path: &Path| -> Result<Arc<dyn Dataset>, Failure> { Ok(shared(Table::open_with(path, &preprocessing)?)) };
    let mut parts = indices.apply(&shared(train), None, data, Some(&others))?;
    for column in &preprocessing.targets {
        if let ColumnKind::Number { std, .. } = column.kind {
            let name = &column.name;
            parts.notes.push(format!(
                "losses and metrics of `{name}` are in its standard deviations, of {std:.6}; predictions are not"
            ));
        }
    }
    for column in &preprocessing.inputs {
        if let ColumnKind::Text { categories, .. } = &column.kind
            && categories.len() > MANY_CATEGORIES
        {
            let (name, count) = (&column.name, categories.len());
            parts.notes.push(format!(
                "column `{name}` has {count} categories, each an input of its own: --inputs leaves it out"
            ));
        }
    }
    if !constant.is_empty() {
        parts.notes.push(format!("columns with one value say nothing: {}", constant.join(", ")));
    }
    let table = Some(preprocessing.clone());
    Ok(Parts { preprocessing: Preprocessing { table, class_names: names, ..Preprocessing::default() }, ..parts })
}

/// Samples of a batch where the model carries something from batch to batch.
fn stateful(model: &Model, config: &Config) -> Result<Option<usize>, Failure> {
    let built = model.build(1, Mode::Train(config.statistics));
    Ok(built.ok().filter(|built| !built.states.is_empty()).map(|_| config.batch))
}

/// Shares for validation and test of what has an order.
fn shares(data: &DataTable, what: &str) -> Result<(f64, f64), Failure> {
    if data.fold.is_some() {
        return Err(Failure::bad_input(format!("--fold: {what} is divided by its order: use --val SHARE")));
    }
    let share = |part: &Option<Part>| part.as_ref().and_then(Part::share).unwrap_or(0.0);
    Ok((share(&data.val), share(&data.test)))
}

/// Parts that are at other paths, besides those that were split off.
fn with_paths(mut parts: Parts, data: &DataTable, others: &Others<'_>) -> Result<Parts, Failure> {
    if let Some(Part::Path(path)) = &data.val {
        parts.val = Some(others(path)?);
    }
    if let Some(Part::Path(path)) = &data.test {
        parts.test = Some(others(path)?);
    }
    Ok(parts)
}

fn series(path: &Path, data: &DataTable, model: &Model, config: &Config) -> Result<Parts, Failure> {
    let lookback = data.lookback.or_else(|| model.input_shape().first().copied()).unwrap_or(1);
    let mut options = SeriesOptions::new(lookback, data.horizon.unwrap_or(1));
    options.columns = unless_empty(&data.inputs);
    options.targets = unless_empty(&data.targets);
    options.stride = data.stride.unwrap_or(options.stride);
    options.stateful = stateful(model, config)?;
    if let Some(budget) = data.host_budget {
        options.host_budget_bytes = budget.0;
    }
    let (val, test) = shares(data, "a series")?;
    let found = TimeSeries::open(path, &options)?.split(val, test)?;
    let preprocessing = found.training.preprocessing().clone();
    let others =
        |path: &Path| -> Result<Arc<dyn Dataset>, Failure> { Ok(shared(TimeSeries::open_with(path, &preprocessing)?)) };
    let series = Some(preprocessing.clone());
    let parts = in_order(found, Preprocessing { series, ..Preprocessing::default() });
    with_paths(parts, data, &others)
}

/// How a sequence of tokens is cut for a model.
fn pieces(data: &DataTable, model: &Model, config: &Config) -> Result<Pieces, Failure> {
    let [length] = model.input_shape()[..] else {
        let (name, shape) = (model.name(), model.input_shape());
        return Err(Failure::bad_input(format!(
            "`{name}` takes samples of shape {shape}: use a model of [length] tokens, such as char_lstm or gpt"
        )));
    };
    let stride = data.stride.unwrap_or(length);
    Ok(Pieces { length, stride, stateful: stateful(model, config)? })
}

fn text(path: &Path, data: &DataTable, model: &Model, config: &Config) -> Result<Parts, Failure> {
    let pieces = pieces(data, model, config)?;
    let mut options = TextOptions { pieces, ..TextOptions::new(pieces.length) };
    if let Some(budget) = data.host_budget {
        options.host_budget_bytes = budget.0;
    }
    let (val, test) = shares(data, "a text")?;
    let found = TextFile::open(path, &options)?;
    let vocabulary = found.vocabulary().clone();
    let found = found.split(val, test)?;
    let others = |path: &Path| -> Result<Arc<dyn Dataset>, Failure> {
        Ok(shared(TextFile::open_with(path, &vocabulary, &options)?))
    };
    let preprocessing = Preprocessing { vocabulary: Some(vocabulary.clone()), ..Preprocessing::default() };
    with_paths(in_order(found, preprocessing), data, &others)
}

fn tokens(path: &Path, data: &DataTable, model: &Model, config: &Config) -> Result<Parts, Failure> {
    let pieces = pieces(data, model, config)?;
    let vocabulary = model.output_shape()?.last().copied().unwrap_or(1) as u32;
    let (val, test) = shares(data, "a file of tokens")?;
    let found = TokenFile::open(path, vocabulary, pieces)?.split(val, test)?;
    let others =
        |path: &Path| -> Result<Arc<dyn Dataset>, Failure> { Ok(shared(TokenFile::open(path, vocabulary, pieces)?)) };
    let preprocessing = Preprocessing::default();
    with_paths(in_order(found, preprocessing), data, &others)
}

/// What all samples of a set have.
pub(super) fn features(data: &dyn Dataset) -> Result<Features, Failure> {
    if data.is_empty() {
        return Err(Failure::bad_input("the data has no samples"));
    }
    Ok(data.features()?)
}

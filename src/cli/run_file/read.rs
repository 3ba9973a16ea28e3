//! Reading and writing run files.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf, absolute};

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use tightfit::data::augment::Augmentation;
use tightfit::error::{DataError, TrainError};
use tightfit::interop;
use tightfit::models;
use tightfit::plan::Limits;
use tightfit::train::{EarlyStopping, Loss, LossScale, Monitor, MonitorMode, Optimizer, ReduceOnPlateau, Schedule};
use toml::Spanned;

use super::super::failure::Failure;
use super::super::model_file;
use super::super::toml_parts::{Parts, checked, one, whole};
use super::{ModelTable, RunFile, TrainingTable};

type Part = Spanned<toml::Value>;

/// Tables that no model file has.
const OWN_TABLES: [&str; 10] = [
    "data",
    "augment",
    "training",
    "schedule",
    "metrics",
    "early_stopping",
    "reduce_on_plateau",
    "checkpoint",
    "log",
    "budget",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    model: Part,
    data: Option<Part>,
    augment: Option<Part>,
    training: Option<Part>,
    optimizer: Option<Part>,
    schedule: Option<Part>,
    loss: Option<Part>,
    metrics: Option<Part>,
    early_stopping: Option<Part>,
    reduce_on_plateau: Option<Part>,
    checkpoint: Option<Part>,
    log: Option<Part>,
    budget: Option<Part>,
    groups: Option<Parts>,
}

/// A number of threads.
pub(super) fn threads<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<NonZeroUsize>, D::Error> {
    let threads = Option::<usize>::deserialize(deserializer)?;
    let checked = |threads: usize| {
        let threads = NonZeroUsize::new(threads).filter(|threads| threads.get() <= Limits::MOST_THREADS);
        let refused = || D::Error::custom(format!("threads must be from 1 to {}", Limits::MOST_THREADS));
        threads.ok_or_else(refused)
    };
    threads.map(checked).transpose()
}

/// A monitor as a table, or the name of a value.
pub(super) fn monitor<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Monitor>, D::Error> {
    struct NameOrTable;
    impl<'de> Visitor<'de> for NameOrTable {
        type Value = Monitor;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the name of a value, such as \"val_loss\", or a table with `monitor`")
        }

        fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Monitor, E> {
            Ok(Monitor::new(name))
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Monitor, A::Error> {
            Monitor::deserialize(MapAccessDeserializer::new(map))
        }
    }
    deserializer.deserialize_any(NameOrTable).map(Some)
}

/// Whether a TOML text is a run file, and no model file: the model is a table in it. Where it is no TOML, what its lines look like.
fn is_run_file(text: &str) -> bool {
    match text.parse::<toml::Table>() {
        Ok(table) => table.get("model").is_some_and(toml::Value::is_table),
        Err(_) => text.lines().any(|line| line.trim_start().starts_with("[model]")),
    }
}

/// The first table of a file that only run files have, where neither a model nor layers are in it.
fn table_without_model(text: &str) -> Option<String> {
    let contents = text.parse::<toml::Table>().ok()?;
    let has_model = contents.get("model").is_some_and(toml::Value::is_table) || contents.contains_key("layers");
    let own = |(name, value): &(&String, &toml::Value)| value.is_table() && OWN_TABLES.contains(&name.as_str());
    contents.iter().filter(|_| !has_model).find(own).map(|(name, _)| name.clone())
}

impl RunFile {
    /// What is named in the place of a model: a run file is read, a model stands for itself.
    pub(crate) fn open(name: &OsStr) -> Result<Self, Failure> {
        if name.to_str().is_some_and(|name| models::builtin(name).is_some()) {
            return Ok(RunFile::of_model(name));
        }
        if interop::is_foreign(Path::new(name)) {
            return Ok(RunFile::of_model(name));
        }
        let text = model_file::text(name)?;
        if let Some(table) = table_without_model(&text) {
            let reason = format!(
                "a run file needs a table [model] with the `name` of a model ([{table}] is no part of a model file)"
            );
            return Err(DataError::Corrupt { path: name.into(), reason }.into());
        }
        if !is_run_file(&text) {
            return Ok(RunFile::of_model(name));
        }
        RunFile::parse(&text, Path::new(name))
    }

    /// Reads the text of a run file; an error names the line.
    pub(crate) fn parse(text: &str, path: &Path) -> Result<Self, Failure> {
        let corrupt = |reason| DataError::Corrupt { path: path.to_owned(), reason };
        let mut file = parse(text).map_err(corrupt)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let is_built_in = file.model.name.to_str().is_some_and(|name| models::builtin(name).is_some());
        let own = Some(&mut file.model.name).filter(|_| !is_built_in);
        for place in own.into_iter().chain(&mut file.model.weights).chain(file.data.paths_mut()) {
            *place = folder.join(&place);
        }
        file.path = Some(path.to_owned());
        Ok(file)
    }

    /// The same with paths that lead to the same files from anywhere.
    pub(crate) fn with_absolute_paths(mut self) -> Result<Self, Failure> {
        let is_built_in = self.model.name.to_str().is_some_and(|name| models::builtin(name).is_some());
        let own = Some(&mut self.model.name).filter(|_| !is_built_in);
        for place in own.into_iter().chain(&mut self.model.weights).chain(self.data.paths_mut()) {
            *place = absolute(&place).map_err(|error| Failure::bad_input(format!("{}: {error}", place.display())))?;
        }
        Ok(self)
    }

    /// A value that an option gives as run files write it.
    pub(crate) fn parse_part<T: DeserializeOwned>(what: &str, value: &str) -> Result<T, String> {
        let text = format!("{what} = {value}");
        let parts: BTreeMap<String, Part> =
            toml::from_str(&text).map_err(|error| whole(&text, &error).trim_start_matches("line 1: ").to_owned())?;
        let part = parts.into_values().next().expect("bug: a value that is none");
        one(&text, part, what).map_err(|error| error.trim_start_matches("line 1: ").to_owned())
    }

    /// The file's text.
    pub(crate) fn to_toml(&self) -> Result<String, Failure> {
        toml::to_string(self).map_err(|error| {
            let error = error.to_string();
            let reason = error.split_whitespace().collect::<Vec<_>>().join(" ");
            Failure::bad_input(format!("these settings cannot be written as a run file: {reason}"))
        })
    }
}

fn parse(text: &str) -> Result<RunFile, String> {
    fn table<T: DeserializeOwned + Default>(text: &str, part: Option<Part>, what: &str) -> Result<T, String> {
        Ok(part.map(|part| one(text, part, what)).transpose()?.unwrap_or_default())
    }
    fn check<T: DeserializeOwned>(
        text: &str,
        part: Option<Part>,
        what: &str,
        check: impl Fn(&T) -> Result<(), TrainError>,
    ) -> Result<Option<T>, String> {
        part.map(|part| checked(text, part, what, check)).transpose()
    }
    let contents: Contents = toml::from_str(text).map_err(|error| whole(text, &error))?;
    let groups = contents.groups.map(|groups| groups.0.into_iter().map(|group| one(text, group, "group")).collect());
    let file = RunFile {
        model: checked(text, contents.model, "model", check_name)?,
        data: table(text, contents.data, "data")?,
        augment: check(text, contents.augment, "augment", |augment: &Augmentation| Ok(augment.check()?))?,
        training: check(text, contents.training, "training", check_training)?.unwrap_or_default(),
        optimizer: check(text, contents.optimizer, "optimizer", |part: &Optimizer| part.rule().map(drop))?,
        schedule: check(text, contents.schedule, "schedule", Schedule::check)?,
        loss: check(text, contents.loss, "loss", Loss::check)?,
        metrics: table(text, contents.metrics, "metrics")?,
        early_stopping: check(text, contents.early_stopping, "early_stopping", check_early_stopping)?,
        reduce_on_plateau: check(text, contents.reduce_on_plateau, "reduce_on_plateau", check_plateau)?,
        checkpoint: check(text, contents.checkpoint, "checkpoint", check_checkpoint)?.unwrap_or_default(),
        log: table(text, contents.log, "log")?,
        budget: table(text, contents.budget, "budget")?,
        groups: groups.transpose()?,
        ..RunFile::default()
    };
    Ok(file)
}

fn refuse(text: impl Into<String>) -> Result<(), TrainError> {
    Err(TrainError::Setting(text.into()))
}

fn check_name(model: &ModelTable) -> Result<(), TrainError> {
    if model.name == PathBuf::new() {
        return refuse("`name`: nothing was given");
    }
    if model.skip_mismatched && model.weights.is_none() {
        return refuse("`skip_mismatched` says how `weights` are read, and there are none");
    }
    Ok(())
}

fn check_training(training: &TrainingTable) -> Result<(), TrainError> {
    let TrainingTable { clip_norm, clip_value, clip_tensor_norm, ema, loss_scale, .. } = training;
    loss_scale.map_or(Ok(()), LossScale::check)?;
    let clips = [("clip_norm", clip_norm), ("clip_value", clip_value), ("clip_tensor_norm", clip_tensor_norm)];
    let given: Vec<_> = clips.into_iter().filter_map(|(name, most)| Some((name, (*most)?))).collect();
    if let [(one, _), (other, _), ..] = given[..] {
        return refuse(format!("`{one}` and `{other}` are both set: leave one out"));
    }
    if let Some((name, most)) = given.first().filter(|(_, most)| !(*most > 0.0 && most.is_finite())) {
        return refuse(format!("{name} = {most:?} is not possible: it must be 0.001 or above"));
    }
    match ema {
        Some(ema) if !(0.0..1.0).contains(ema) => refuse(format!("ema = {ema:?} is not possible: it must be in 0..1")),
        _ => Ok(()),
    }
}

fn check_checkpoint(checkpoint: &super::CheckpointTable) -> Result<(), TrainError> {
    if let Some(minutes) = checkpoint.every_minutes
        && !(0.001..1e9).contains(&minutes)
    {
        return refuse(format!("every_minutes = {minutes:?} is not possible: it must be above 0"));
    }
    checkpoint.best.as_ref().map_or(Ok(()), |best| Monitor { mode: said(best.mode), ..best.clone() }.check())
}

fn check_early_stopping(settings: &EarlyStopping) -> Result<(), TrainError> {
    EarlyStopping { mode: said(settings.mode), ..settings.clone() }.check()
}

fn check_plateau(settings: &ReduceOnPlateau) -> Result<(), TrainError> {
    ReduceOnPlateau { mode: said(settings.mode), ..settings.clone() }.check()
}

/// Of a name that nothing reports it does not matter what follows from it: whether there is such a value comes first, and that takes
/// all settings.
fn said(mode: MonitorMode) -> MonitorMode {
    if mode == MonitorMode::Auto { MonitorMode::Min } else { mode }
}

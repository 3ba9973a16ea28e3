//! The golden values of `tests/golden/<family>/<op>.json`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::eval::{Buf, Scalar};

/// A tensor: `data` for reals, `ints` for labels.
#[derive(Clone, Debug, Deserialize)]
pub struct Tensor {
    pub shape: Vec<usize>,
    pub data: Option<Vec<f64>>,
    pub ints: Option<Vec<u32>>,
}

impl Tensor {
    /// The data of an input or a given gradient, which is exact in f32.
    pub fn input<T: Scalar>(&self) -> Buf<T> {
        self.buf().round_to_f32()
    }

    /// The data of a result, in full.
    pub fn buf<T: Scalar>(&self) -> Buf<T> {
        match (&self.data, &self.ints) {
            (Some(data), None) => Buf::Real(data.iter().map(|&x| T::from_f64(x)).collect()),
            (None, Some(ints)) => Buf::Int(ints.clone()),
            _ => panic!("a golden tensor has either data or ints"),
        }
    }
}

/// Values and gradients of one case of an op.
#[derive(Clone, Debug, Deserialize)]
pub struct Entry {
    pub case: String,
    pub inputs: Vec<Tensor>,
    pub outputs: Vec<Tensor>,
    pub grad_outputs: Vec<Option<Tensor>>,
    pub grad_inputs: Vec<Option<Tensor>>,
}

/// A few steps of an optimizer.
#[derive(Clone, Debug, Deserialize)]
pub struct UpdateEntry {
    pub case: String,
    pub settings: UpdateSettings,
    pub inputs: Vec<Tensor>,
    pub steps: Vec<Step>,
}

/// Settings of an optimizer, by PyTorch's names.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct UpdateSettings(BTreeMap<String, serde_json::Value>);

impl UpdateSettings {
    fn get(&self, name: &str) -> &serde_json::Value {
        self.0.get(name).unwrap_or_else(|| panic!("a golden entry lacks `{name}`"))
    }

    pub fn number(&self, name: &str) -> f64 {
        self.get(name).as_f64().expect("a number")
    }

    pub fn pair(&self, name: &str) -> (f64, f64) {
        let number = |i: usize| self.get(name)[i].as_f64().expect("two numbers");
        (number(0), number(1))
    }

    pub fn flag(&self, name: &str) -> bool {
        self.get(name).as_bool().expect("true or false")
    }
}

/// A step's gradient, and the parameter and states after it.
#[derive(Clone, Debug, Deserialize)]
pub struct Step {
    pub gradient: Vec<f64>,
    pub parameter: Vec<f64>,
    pub states: Vec<Vec<f64>>,
}

/// A few steps of a running statistic.
#[derive(Clone, Debug, Deserialize)]
pub struct EmaEntry {
    pub case: String,
    pub settings: EmaSettings,
    pub inputs: Vec<Tensor>,
    pub steps: Vec<EmaStep>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct EmaSettings {
    pub momentum: f32,
    pub factor: f32,
}

/// A step's value, and the buffer after it.
#[derive(Clone, Debug, Deserialize)]
pub struct EmaStep {
    pub value: Vec<f64>,
    pub buffer: Vec<f64>,
}

/// Gradients before and after clipping by their global norm.
#[derive(Clone, Debug, Deserialize)]
pub struct ClipEntry {
    pub case: String,
    pub settings: ClipSettings,
    pub inputs: Vec<Tensor>,
    pub outputs: Vec<Tensor>,
    pub total_norm: f64,
}

#[derive(Clone, Debug, Deserialize)]
pub struct ClipSettings {
    pub max_norm: f64,
}

/// The first losses of a built-in model.
#[derive(Clone, Debug, Deserialize)]
pub struct Losses {
    pub batch: usize,
    pub parameters: Vec<InitialParameter>,
    pub losses: Vec<f64>,
}

/// A parameter drawn by `recipe::weights(name, numel, fan)`, which begins with `first`.
#[derive(Clone, Debug, Deserialize)]
pub struct InitialParameter {
    pub name: String,
    pub shape: Vec<usize>,
    pub fan: usize,
    pub first: Vec<f32>,
}

/// The files of ops, each in the folder of its family.
fn files() -> Vec<PathBuf> {
    let families =
        families().into_iter().flat_map(|folder| std::fs::read_dir(folder).expect("a folder that is listed"));
    let files = families.map(|file| file.expect("a file that is listed").path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "json")).collect()
}

/// The folders of families: those of whole models and modules are no ops.
fn families() -> Vec<PathBuf> {
    let entries: BTreeSet<_> = tightfit::testing::all_ops().into_iter().map(|entry| entry.family).collect();
    entries.into_iter().map(|family| folder().join(family)).filter(|folder| folder.is_dir()).collect()
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn path(name: &str) -> PathBuf {
    let file = format!("{name}.json");
    let of_op = families().into_iter().map(|folder| folder.join(&file)).find(|path| path.is_file());
    of_op.unwrap_or_else(|| folder().join(file))
}

/// The contents of `<name>.json`; `None` where there is no such file.
pub fn load<E: DeserializeOwned>(name: &str) -> Option<E> {
    let path = path(name);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => panic!("{}: {error}", path.display()),
    };
    Some(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

/// The entries of an op that has gradients.
pub fn entries(op: &str) -> Option<Vec<Entry>> {
    load(op)
}

/// The entries of an op if it has gradients; `None` for updates, and where there is no file.
pub fn entries_if_differentiable(op: &str) -> Option<Vec<Entry>> {
    let json: serde_json::Value = load(op)?;
    serde_json::from_value(json).ok()
}

/// The first losses of all built-in models.
pub fn losses() -> BTreeMap<String, Losses> {
    load("losses").expect("losses.json is missing")
}

/// Names of all golden files of ops.
pub fn names() -> Vec<String> {
    let stem = |path: PathBuf| Some(path.file_stem()?.to_str()?.to_owned());
    let mut names: Vec<String> = files().into_iter().filter_map(stem).collect();
    names.sort();
    names
}

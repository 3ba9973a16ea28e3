//! A set in parts: for training, validation and test.

use std::path::Path;
use std::sync::Arc;

use tightfit::data::{Dataset, Subset, series, split};
use tightfit::train::{Config, Preprocessing};

use super::super::failure::Failure;
use super::settings::{DataTable, Part};

/// What a model is trained and tested on, by itself.
#[derive(Clone)]
pub(super) struct Parts {
    pub(super) train: Arc<dyn Dataset>,
    pub(super) val: Option<Arc<dyn Dataset>>,
    pub(super) test: Option<Arc<dyn Dataset>>,
    pub(super) preprocessing: Preprocessing,
    /// What is worth knowing about how it was divided.
    pub(super) notes: Vec<String>,
}

/// A set of the same kind at another path, read as that of the training is.
pub(super) type Others<'a> = dyn Fn(&Path) -> Result<Arc<dyn Dataset>, Failure> + 'a;

/// Parts that follow each other, all of them known.
pub(super) fn in_order<D: Dataset + 'static>(found: series::Parts<D>, preprocessing: Preprocessing) -> Parts {
    Parts {
        train: shared(found.training),
        val: found.validation.map(shared),
        test: found.test.map(shared),
        preprocessing,
        notes: Vec::new(),
    }
}

pub(super) fn shared(data: impl Dataset + 'static) -> Arc<dyn Dataset> {
    Arc::new(data)
}

/// Which samples are in which part.
pub(super) struct Division {
    pub(super) train: Vec<usize>,
    val: Vec<usize>,
    test: Vec<usize>,
    notes: Vec<String>,
}

impl Division {
    pub(super) fn of(data: &(impl Dataset + ?Sized), settings: &DataTable, seed: u64) -> Result<Self, Failure> {
        let all = (0..data.len()).collect::<Vec<_>>();
        let mut division = Division { train: all, val: Vec::new(), test: Vec::new(), notes: Vec::new() };
        let share = |part: &Option<Part>| part.as_ref().and_then(Part::share);
        let (val, test) = (share(&settings.val), share(&settings.test));
        if val.is_none() && test.is_none() && settings.fold.is_none() {
            return Ok(division);
        }
        if val.unwrap_or(0.0) + test.unwrap_or(0.0) >= 1.0 {
            let (val, test) = (val.unwrap_or(0.0), test.unwrap_or(0.0));
            return Err(Failure::bad_input(format!(
                "--val {val} and --test {test} leave nothing to train on: hold less back"
            )));
        }
        let has_labels = !data.is_empty() && data.label(0)?.is_some();
        let is_stratified = settings.stratified.unwrap_or(has_labels);
        let labels = if is_stratified { Some(split::labels(data)?) } else { None };
        if let Some(test) = test {
            division.test = division.hold_back(labels.as_deref(), test, seed)?;
        }
        if let Some(fold) = settings.fold {
            let of_rest = labels.as_ref().map(|labels| division.labels(labels));
            let found = match of_rest {
                Some(labels) => split::stratified_folds(&labels, fold.of, fold.number - 1, seed)?,
                None => split::folds(division.train.len(), fold.of, fold.number - 1, seed)?,
            };
            division.val = found.validation.iter().map(|&at| division.train[at]).collect();
            division.train = found.training.iter().map(|&at| division.train[at]).collect();
        } else if let Some(val) = val {
            // Of all samples, not of those that are left.
            let val = val / (1.0 - test.unwrap_or(0.0));
            division.val = division.hold_back(labels.as_deref(), val, seed)?;
        }
        Ok(division)
    }

    fn labels(&self, labels: &[u32]) -> Vec<u32> {
        self.train.iter().map(|&index| labels[index]).collect()
    }

    /// Takes a share out of what is trained on.
    fn hold_back(&mut self, labels: Option<&[u32]>, share: f64, seed: u64) -> Result<Vec<usize>, Failure> {
        let found = match labels {
            Some(labels) => split::stratified(&self.labels(labels), share, seed)?,
            None => split::share(self.train.len(), share, seed)?,
        };
        if !found.unsplit.is_empty() {
            let classes = found.unsplit.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            self.notes.push(format!("too few samples to hold one back, all are trained on: class {classes}"));
        }
        let held = found.validation.iter().map(|&at| self.train[at]).collect();
        self.train = found.training.iter().map(|&at| self.train[at]).collect();
        Ok(held)
    }

    pub(super) fn apply(
        self,
        all: &Arc<dyn Dataset>,
        test: Option<Arc<dyn Dataset>>,
        settings: &DataTable,
        others: Option<&Others<'_>>,
    ) -> Result<Parts, Failure> {
        let part = |indices: Vec<usize>| -> Result<Option<Arc<dyn Dataset>>, Failure> {
            if indices.is_empty() {
                return Ok(None);
            }
            Ok(Some(shared(Subset::new(Arc::clone(all), indices)?)))
        };
        let (val, own_test) = (part(self.val)?, part(self.test)?);
        let is_whole = val.is_none() && own_test.is_none();
        let train = if is_whole { Arc::clone(all) } else { part(self.train)?.expect("bug: nothing to train on") };
        let (preprocessing, notes) = (Preprocessing::default(), self.notes);
        let mut parts = Parts { train, val, test: own_test.or(test), preprocessing, notes };
        for (place, part) in [(&mut parts.val, &settings.val), (&mut parts.test, &settings.test)] {
            let Some(Part::Path(path)) = part else { continue };
            let Some(others) = others else {
                return Err(Failure::bad_input(format!(
                    "{}: of such data a share is held back, not another path: --val 0.2",
                    path.display()
                )));
            };
            *place = Some(others(path)?);
        }
        Ok(parts)
    }
}

pub(super) fn divide(
    all: &Arc<dyn Dataset>,
    test: Option<Arc<dyn Dataset>>,
    data: &DataTable,
    config: &Config,
    others: Option<&Others<'_>>,
) -> Result<Parts, Failure> {
    Division::of(&**all, data, config.seed)?.apply(all, test, data, others)
}

//! Plans in files.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::groups::Group;
use super::loss::Loss;
use super::loss_scale::LossScale;
use super::machine::CostSource;
use super::optimizer::Optimizer;
use super::precision::{LayerPrecision, Precision};
use super::settings::Config;
use super::source::clip_words;
use crate::autodiff::Clip;
use crate::error::{DataError, PlanError, TrainError};
use crate::files;
use crate::nn::{Model, Statistics};
use crate::plan::Plan;
use crate::tensor::{Half, format_number};

const FORMAT: &str = "tightfit-plan";
const VERSION: u32 = 2;
/// Far more than a plan of thousands of commands takes.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// A plan with what it was made for, to be kept in a file (JSON) and run later by
/// [`Trainer::with_plan`](super::Trainer::with_plan).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanFile {
    format: String,
    version: u32,
    model: String,
    loss: Loss,
    optimizer: Optimizer,
    #[serde(default)]
    groups: Vec<Group>,
    #[serde(default)]
    freeze: Vec<String>,
    #[serde(default)]
    train_only: Vec<String>,
    clip: Option<Clip>,
    ema_decay: Option<f32>,
    #[serde(default)]
    grad_norm: bool,
    #[serde(default)]
    precision: Precision,
    #[serde(default)]
    layer_precision: Vec<LayerPrecision>,
    #[serde(default)]
    save_activations: Option<Half>,
    #[serde(default)]
    loss_scale: Option<LossScale>,
    #[serde(default)]
    statistics: Statistics,
    /// Where the plan's times come from.
    #[serde(default)]
    costs: Option<CostSource>,
    plan: Plan,
}

/// What every version of the format begins with.
#[derive(Deserialize)]
struct Header {
    format: String,
    version: u32,
}

impl PlanFile {
    /// A plan for this model and these settings.
    pub fn new(model: &Model, config: &Config, plan: Plan) -> Self {
        PlanFile {
            format: FORMAT.to_owned(),
            version: VERSION,
            model: model.name().to_owned(),
            loss: config.loss.clone(),
            optimizer: config.optimizer,
            groups: config.groups.clone(),
            freeze: config.freeze.clone(),
            train_only: config.train_only.clone(),
            clip: config.clip,
            ema_decay: config.ema_decay,
            grad_norm: config.grad_norm,
            precision: config.precision,
            layer_precision: config.layer_precision.clone(),
            save_activations: config.save_activations,
            loss_scale: config.loss_scale,
            statistics: config.statistics,
            costs: None,
            plan,
        }
    }

    /// Says where the plan's times come from: [`Machine::source`](super::Machine::source).
    #[must_use]
    pub fn with_costs(mut self, source: CostSource) -> Self {
        self.costs = Some(source);
        self
    }

    /// Writes the file; it appears whole or not at all.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), DataError> {
        let mut bytes = serde_json::to_vec(self).expect("bug: a plan that JSON cannot hold");
        bytes.push(b'\n');
        files::write_whole(path.as_ref(), &bytes)
    }

    /// Reads a file. Whether the plan can be used is seen by [`PlanFile::into_plan`] and
    /// [`Trainer::with_plan`](super::Trainer::with_plan).
    ///
    /// # Errors
    /// Where there is no such file, or it is not a plan.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, DataError> {
        let path = path.as_ref();
        let corrupt = |reason: String| DataError::Corrupt { path: path.to_owned(), reason };
        let bytes = files::read(path, MAX_FILE_BYTES, "`tightfit plan … --output FILE` writes a plan")?;
        let no_plan =
            |error: serde_json::Error| corrupt(format!("not a plan that `tightfit plan … --output` wrote ({error})"));
        let header: Header = serde_json::from_slice(&bytes).map_err(no_plan)?;
        if header.format != FORMAT {
            return Err(corrupt(format!("the format `{}` is not {FORMAT}", header.format.escape_debug())));
        }
        if header.version != VERSION {
            return Err(corrupt(format!(
                "the format has version {}, this tightfit reads version {VERSION}: plan again",
                header.version
            )));
        }
        serde_json::from_slice(&bytes).map_err(no_plan)
    }

    /// In which format activations and their gradients are stored.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Layers with a precision of their own.
    pub fn layer_precision(&self) -> &[LayerPrecision] {
        &self.layer_precision
    }

    /// The format of copies that forward makes for backward.
    pub fn save_activations(&self) -> Option<Half> {
        self.save_activations
    }

    /// Samples of a step.
    pub fn batch(&self) -> usize {
        self.plan.batch
    }

    /// How parameters follow their gradients.
    pub fn optimizer(&self) -> Optimizer {
        self.optimizer
    }

    /// Parameters with settings of their own.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Parameters whose names begin so are not trained.
    pub fn freeze(&self) -> &[String] {
        &self.freeze
    }

    /// Only parameters whose names begin so are trained, if there are any.
    pub fn train_only(&self) -> &[String] {
        &self.train_only
    }

    /// How gradients are kept small.
    pub fn clip(&self) -> Option<Clip> {
        self.clip
    }

    /// What moving averages of the parameters keep in a step, if there are any.
    pub fn ema_decay(&self) -> Option<f32> {
        self.ema_decay
    }

    /// Whether each step says the norm of its gradients.
    pub fn grad_norm(&self) -> bool {
        self.grad_norm
    }

    /// What the loss is multiplied by for its gradients, if that was said.
    pub fn loss_scale(&self) -> Option<LossScale> {
        self.loss_scale
    }

    /// Which statistics batch norm uses.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Where the plan's times come from, if that was said.
    pub fn cost_source(&self) -> Option<&CostSource> {
        self.costs.as_ref()
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The plan, if it was made for this model and these settings, as far as the file says what it was made for. Seed,
    /// learning rate, the number by which the loss is scaled and budget may differ: no plan depends on the first three, and the plan
    /// has its own budget.
    ///
    /// # Errors
    /// [`PlanError::Unusable`] with what differs.
    pub fn into_plan(self, model: &Model, config: &Config) -> Result<Plan, TrainError> {
        let other = |what: &str, planned: String, now: String| {
            Err(PlanError::Unusable(format!("it is for {what} {planned}, not {now}")).into())
        };
        if self.model != model.name() {
            return other("the model", format!("`{}`", self.model.escape_debug()), format!("`{}`", model.name()));
        }
        if self.plan.batch != config.batch {
            return other("a batch of", self.plan.batch.to_string(), config.batch.to_string());
        }
        if self.loss != config.loss {
            let [planned, now] = differing(&self.loss, &config.loss);
            return other("the loss", planned, now);
        }
        if self.freeze != config.freeze || self.train_only != config.train_only {
            let word = |freeze: &[String], only: &[String]| format!("freeze = {freeze:?}, train_only = {only:?}");
            return other("", word(&self.freeze, &self.train_only), word(&config.freeze, &config.train_only));
        }
        if self.clip != config.clip {
            let word = |(name, most)| format!("{name} = {}", format_number(most));
            let word = |clip: Option<Clip>| clip.map_or_else(|| "none".to_owned(), |clip| word(clip_words(clip)));
            return other("the clipping of gradients", word(self.clip), word(config.clip));
        }
        if self.ema_decay != config.ema_decay {
            let word = |decay: Option<f32>| decay.map_or_else(|| "none".to_owned(), format_number);
            return other("an ema_decay of", word(self.ema_decay), word(config.ema_decay));
        }
        if self.grad_norm != config.grad_norm {
            let word = |wanted: bool| if wanted { "a gradient norm" } else { "no gradient norm" }.to_owned();
            return other("steps with", word(self.grad_norm), word(config.grad_norm));
        }
        if self.precision != config.precision {
            return other("a precision of", self.precision.to_string(), config.precision.to_string());
        }
        if self.layer_precision != config.layer_precision {
            return other("the precision of layers", as_json(&self.layer_precision), as_json(&config.layer_precision));
        }
        if self.save_activations != config.save_activations {
            let word = |half: Option<Half>| half.map_or_else(|| "none".to_owned(), |half| half.to_string());
            return other("copies of activations in", word(self.save_activations), word(config.save_activations));
        }
        let (precision, layer_precision) = (self.precision, self.layer_precision.clone());
        let planned = Config { loss_scale: self.loss_scale, precision, layer_precision, ..Config::default() };
        let [planned, now] = [&planned, config].map(|config| config.loss_scale_or_default().is_on());
        if planned != now {
            let word = |is_on: bool| if is_on { "a loss scale" } else { "no loss scale" }.to_owned();
            return other("steps with", word(planned), word(now));
        }
        if self.statistics != config.statistics {
            return other(
                "batch norm with statistics that are",
                self.statistics.to_string(),
                config.statistics.to_string(),
            );
        }
        if without_rate(self.optimizer) != without_rate(config.optimizer) {
            let [planned, now] = differing(&without_rate(self.optimizer), &without_rate(config.optimizer));
            return other("the optimizer", planned, now);
        }
        if self.groups != config.groups {
            return other("the groups", as_json(&self.groups), as_json(&config.groups));
        }
        Ok(self.plan)
    }
}

/// The optimizer without its learning rate, which no plan depends on.
fn without_rate(mut optimizer: Optimizer) -> Optimizer {
    *optimizer.lr_mut() = 0.0;
    optimizer
}

/// Settings as a file holds them.
fn as_json(settings: &impl Serialize) -> String {
    serde_json::to_string(settings).expect("bug: settings that JSON cannot hold")
}

/// Two settings as far as they differ: `sgd` and `adam`, or `sgd with momentum = 0.9` and `sgd with momentum = 0.0`.
fn differing(planned: &impl Serialize, now: &impl Serialize) -> [String; 2] {
    // Through text, where single precision keeps its few digits.
    let value = |text: String| serde_json::from_str(&text).expect("bug: JSON that cannot be read");
    let (planned, now): (Value, Value) = (value(as_json(planned)), value(as_json(now)));
    [in_words(&planned, &now), in_words(&now, &planned)]
}

fn in_words(settings: &Value, other: &Value) -> String {
    let (Some(fields), Some(kind)) = (settings.as_object(), settings["kind"].as_str()) else {
        return settings.to_string();
    };
    if other["kind"] != kind {
        return kind.to_owned();
    }
    let differ = fields.iter().filter(|(name, value)| other[name.as_str()] != **value);
    format!("{kind} with {}", differ.map(|(name, value)| format!("{name} = {value}")).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_said_in_words() {
        let momentum = |momentum| Optimizer::Sgd { lr: 0.0, momentum, nesterov: false, weight_decay: 0.1 };
        assert_eq!(differing(&momentum(0.9), &Optimizer::adam(0.0)), ["sgd", "adam"]);
        assert_eq!(differing(&momentum(0.9), &momentum(0.5)), ["sgd with momentum = 0.9", "sgd with momentum = 0.5"]);
        assert_eq!(differing(&Loss::Huber { delta: 0.1 }, &Loss::Huber { delta: 1.0 })[0], "huber with delta = 0.1");
    }
}

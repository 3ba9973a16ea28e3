//! Settings, which cross as JSON.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tightfit::nn::Statistics;
use tightfit::plan::Levers;
use tightfit::tensor::Half;
use tightfit::train::{
    Clip, Config, Group, Head, LayerPrecision, Loss, LossScale, MetricKind, Optimizer, Precision, Schedule,
};

/// What `compile` and `plan` are given. What is not there has the library's default.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Settings {
    loss: Option<Loss>,
    loss_weight: Option<f32>,
    heads: Vec<HeadSettings>,
    optimizer: Option<Optimizer>,
    metrics: Vec<MetricKind>,
    batch: Option<usize>,
    budget_bytes: Option<u64>,
    auto_budget: bool,
    micro_batches: Option<usize>,
    levers: Option<LeverSettings>,
    precision: Option<Precision>,
    layer_precision: Vec<LayerPrecision>,
    save_activations: Option<Half>,
    loss_scale: Option<LossScale>,
    seed: u64,
    clip: Option<Clip>,
    schedule: Option<Schedule>,
    groups: Vec<Group>,
    freeze: Vec<String>,
    train_only: Vec<String>,
    drop_last: Option<bool>,
    sample_weights: bool,
    ema_decay: Option<f32>,
    grad_norm: bool,
    statistics: Option<Statistics>,
    threads: Option<usize>,
}

/// A loss of another output.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HeadSettings {
    output: String,
    target: String,
    #[serde(default = "one")]
    weight: f32,
    loss: Loss,
}

/// What the planner may do.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LeverSettings {
    #[serde(default = "yes")]
    recompute: bool,
    #[serde(default = "yes")]
    offload: bool,
    #[serde(default = "yes")]
    compression: bool,
    #[serde(default = "yes")]
    fusion: bool,
    #[serde(default)]
    half_activations: Option<Half>,
}

fn one() -> f32 {
    1.0
}

fn yes() -> bool {
    true
}

impl Settings {
    pub(crate) fn config(self) -> Config {
        let usual = Config::default();
        let head = |head: HeadSettings| Head::new(head.output, head.target, head.loss).weight(head.weight);
        let levers = |levers: LeverSettings| {
            let LeverSettings { recompute, offload, compression, fusion, half_activations } = levers;
            Levers { recompute, offload, compression, fusion, half_activations }
        };
        Config {
            loss: self.loss.unwrap_or(usual.loss),
            loss_weight: self.loss_weight.unwrap_or(usual.loss_weight),
            heads: self.heads.into_iter().map(head).collect(),
            optimizer: self.optimizer.unwrap_or(usual.optimizer),
            metrics: self.metrics,
            batch: self.batch.unwrap_or(usual.batch),
            budget_bytes: self.budget_bytes,
            auto_budget: self.auto_budget,
            micro_batches: self.micro_batches,
            levers: self.levers.map_or(usual.levers, levers),
            precision: self.precision.unwrap_or(usual.precision),
            layer_precision: self.layer_precision,
            save_activations: self.save_activations,
            loss_scale: self.loss_scale,
            seed: self.seed,
            clip: self.clip,
            schedule: self.schedule,
            groups: self.groups,
            freeze: self.freeze,
            train_only: self.train_only,
            drop_last: self.drop_last.unwrap_or(usual.drop_last),
            sample_weights: self.sample_weights,
            ema_decay: self.ema_decay,
            grad_norm: self.grad_norm,
            statistics: self.statistics.unwrap_or(usual.statistics),
            threads: self.threads,
            update_rule: None,
            recovery: usual.recovery,
        }
    }
}

/// Reads JSON; an error says what it is of.
pub(crate) fn read<T: DeserializeOwned>(what: &str, text: &str) -> PyResult<T> {
    serde_json::from_str(text).map_err(|error| {
        let text = error.to_string();
        // The text was made a moment ago: a place in it helps nobody.
        let text = text.split(" at line ").next().unwrap_or_default();
        PyValueError::new_err(format!("{what}: {text}"))
    })
}

/// Reads settings.
pub(crate) fn config(text: &str) -> PyResult<Config> {
    Ok(read::<Settings>("settings", text)?.config())
}

//! The loss and the optimizer that a model was compiled with.

use std::path::Path;

use serde_json::{Map, Value as Json};

use super::config::{Config, snake_case};
use crate::error::ImportError;
use crate::train::{Loss, Optimizer};

/// What the model makes, as far as a loss must know.
#[derive(Clone, Copy, Debug)]
pub(super) struct Output {
    /// Axes of a sample.
    pub(super) rank: usize,
    /// Whether channels are first here.
    pub(super) first: bool,
}

/// Says that something is not taken over.
fn leave(what: &str, advice: &str) {
    let what: String = what.chars().take(80).collect();
    log::warn!("{} is not taken over from Keras: {advice}", what.escape_debug());
}

/// An object `{"class_name", "config"}`, or a name.
fn object(json: &Json) -> Option<(String, Option<&Map<String, Json>>)> {
    match json {
        Json::String(name) => Some((snake_case(name), None)),
        Json::Object(object) => match object.get("config") {
            // `{"class_name": "function", "config": "mse"}`
            Some(Json::String(name)) => Some((snake_case(name), None)),
            config => Some((snake_case(object.get("class_name")?.as_str()?), config.and_then(Json::as_object))),
        },
        _ => None,
    }
}

/// The loss of the first output.
pub(super) fn loss(path: &Path, compiled: &Json, first: &str, output: Output) -> Result<Option<Loss>, ImportError> {
    let Some(mut json) = compiled.get("loss").filter(|json| !json.is_null()) else { return Ok(None) };
    if let Json::Array(list) = json {
        match list.first() {
            Some(first) => json = first,
            None => return Ok(None),
        }
    } else if let Some(named) = json.get(first) {
        json = named;
    }
    let Some((name, fields)) = object(json) else {
        leave("the loss", "choose one");
        return Ok(None);
    };
    let empty = Map::new();
    let config = Config { path, name: "", class: "loss", fields: fields.unwrap_or(&empty) };
    let from_logits = config.bool("from_logits", false)?;
    let smoothing = config.number("label_smoothing", 0.0)? as f32;
    let axis_is_other = config.axis("axis", -1)? != -1;
    let known = match &*name {
        "sparse_categorical_crossentropy" if !axis_is_other => Some(Loss::CrossEntropy {
            label_smoothing: 0.0,
            ignore_index: config.get("ignore_class").and_then(Json::as_i64),
            class_weights: Vec::new(),
            classes_last: output.rank > 1 && !output.first,
            from_logits,
        }),
        "categorical_crossentropy" if !axis_is_other && (output.rank == 1 || output.first) => {
            Some(Loss::SoftCrossEntropy { label_smoothing: smoothing, class_weights: Vec::new(), from_logits })
        }
        "binary_crossentropy" if smoothing == 0.0 => Some(match from_logits {
            true => Loss::bce_with_logits(),
            false => Loss::Bce { pos_weight: Vec::new() },
        }),
        "mse" | "mean_squared_error" => Some(Loss::Mse),
        "mae" | "mean_absolute_error" => Some(Loss::Mae),
        "huber" | "huber_loss" => Some(Loss::Huber { delta: config.number("delta", 1.0)? as f32 }),
        _ => None,
    };
    if known.is_none() {
        leave(&format!("the loss {name}"), "choose one");
    }
    Ok(known)
}

/// The optimizer.
pub(super) fn optimizer(path: &Path, compiled: &Json) -> Result<Option<Optimizer>, ImportError> {
    let json = compiled.get("optimizer").or(compiled.get("optimizer_config")).filter(|json| !json.is_null());
    let Some(json) = json else { return Ok(None) };
    let Some((name, fields)) = object(json) else { return Ok(None) };
    let empty = Map::new();
    let config = Config { path, name: "", class: "optimizer", fields: fields.unwrap_or(&empty) };
    for key in ["clipnorm", "global_clipnorm", "clipvalue", "use_ema", "gradient_accumulation_steps"] {
        if !matches!(config.get(key), None | Some(Json::Bool(false))) {
            leave(&format!("`{key}` of the optimizer"), "set it for the training");
        }
    }
    let is_decoupled = matches!(&*name, "adam_w" | "adamw");
    let lr = match config.get("learning_rate").or(config.get("lr")) {
        None => {
            if name == "sgd" {
                0.01
            } else {
                0.001
            }
        }
        Some(Json::Object(schedule)) => {
            leave("the schedule of the learning rate", "give the training one; it begins with the same");
            let settings = schedule.get("config").and_then(Json::as_object).unwrap_or(&empty);
            Config { fields: settings, ..config }.number("initial_learning_rate", 0.001)?
        }
        Some(_) => config.number(if config.get("learning_rate").is_some() { "learning_rate" } else { "lr" }, 0.001)?,
    };
    let lr = shortest(lr);
    let decay = config.number("weight_decay", if is_decoupled { 0.004 } else { 0.0 })?;
    let betas = |second: f64| Ok::<_, ImportError>((config.number("beta_1", 0.9)?, config.number("beta_2", second)?));
    let eps = config.number("epsilon", 1e-7)?;
    let momentum = config.number("momentum", 0.0)?;
    let known = match &*name {
        // Keras takes the share off the parameter, which without a momentum is the same.
        "sgd" if decay == 0.0 || momentum == 0.0 => Some(Optimizer::Sgd {
            lr,
            momentum,
            nesterov: momentum > 0.0 && config.bool("nesterov", false)?,
            weight_decay: decay,
        }),
        "adam" | "adam_w" | "adamw" if !config.bool("amsgrad", false)? => {
            let betas = betas(0.999)?;
            Some(match decay > 0.0 || is_decoupled {
                true => Optimizer::Adamw { lr, betas, eps, weight_decay: decay },
                false => Optimizer::Adam { lr, betas, eps, weight_decay: 0.0 },
            })
        }
        "rmsprop" | "rm_sprop" if decay == 0.0 => Some(Optimizer::Rmsprop {
            lr,
            alpha: config.number("rho", 0.9)?,
            eps,
            momentum,
            centered: config.bool("centered", false)?,
            weight_decay: 0.0,
        }),
        "adagrad" if decay == 0.0 => Some(Optimizer::Adagrad {
            lr,
            lr_decay: 0.0,
            initial_accumulator_value: config.number("initial_accumulator_value", 0.1)?,
            eps,
            weight_decay: 0.0,
        }),
        "lion" => Some(Optimizer::Lion { lr, betas: betas(0.99)?, weight_decay: decay }),
        _ => None,
    };
    // What cannot be trained with is no optimizer.
    let known = known.filter(|optimizer| optimizer.rule().is_ok());
    if known.is_none() {
        leave(&format!("the optimizer {name} with its settings"), "choose one");
    }
    Ok(known)
}

/// Keras keeps the rate in single precision: 0.001 is 0.0010000000474974513 in its files.
fn shortest(rate: f64) -> f64 {
    let single = rate as f32;
    if f64::from(single) == rate { single.to_string().parse().unwrap_or(rate) } else { rate }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VECTOR: Output = Output { rank: 1, first: false };

    fn loss_of(json: &str, output: Output) -> Option<Loss> {
        let compiled = serde_json::from_str(json).expect("JSON");
        loss(Path::new("m"), &compiled, "out", output).expect("reads")
    }

    #[test]
    fn losses_are_those_of_keras() {
        let loss = loss_of(r#"{"loss": "sparse_categorical_crossentropy"}"#, VECTOR);
        let Some(Loss::CrossEntropy { from_logits, classes_last, .. }) = loss else { panic!("{loss:?}") };
        assert!(!from_logits && !classes_last);
        let sequence = Output { rank: 2, first: false };
        let json = r#"{"loss": {"class_name": "SparseCategoricalCrossentropy", "config": {"from_logits": true}}}"#;
        let loss = loss_of(json, sequence);
        let Some(Loss::CrossEntropy { from_logits, classes_last, .. }) = loss else { panic!("{loss:?}") };
        assert!(from_logits && classes_last);
        assert_eq!(loss_of(r#"{"loss": "mse"}"#, VECTOR), Some(Loss::Mse));
        assert_eq!(loss_of(r#"{"loss": ["mae", "mse"]}"#, VECTOR), Some(Loss::Mae));
        assert_eq!(loss_of(r#"{"loss": {"out": "mae", "other": "mse"}}"#, VECTOR), Some(Loss::Mae));
        let huber = r#"{"loss": {"class_name": "Huber", "config": {"delta": 0.5}}}"#;
        assert_eq!(loss_of(huber, VECTOR), Some(Loss::Huber { delta: 0.5 }));
        assert_eq!(loss_of(r#"{"loss": "binary_crossentropy"}"#, VECTOR), Some(Loss::Bce { pos_weight: vec![] }));
        assert_eq!(loss_of(r#"{"loss": "log_cosh"}"#, VECTOR), None);
        assert_eq!(loss_of(r#"{"loss": "categorical_crossentropy"}"#, sequence), None);
        assert_eq!(loss_of("{}", VECTOR), None);
    }

    #[test]
    fn optimizers_are_those_of_keras() {
        let of = |json: &str| optimizer(Path::new("m"), &serde_json::from_str(json).expect("JSON")).expect("reads");
        let adam = r#"{"optimizer": {"class_name": "Adam", "config": {"learning_rate": 0.0010000000474974513, "epsilon": 1e-07}}}"#;
        let expected = Optimizer::Adam { lr: 0.001, betas: (0.9, 0.999), eps: 1e-7, weight_decay: 0.0 };
        assert_eq!(of(adam), Some(expected));
        let decayed =
            r#"{"optimizer": {"class_name": "Adam", "config": {"learning_rate": 0.5, "weight_decay": 0.25}}}"#;
        let expected = Optimizer::Adamw { lr: 0.5, betas: (0.9, 0.999), eps: 1e-7, weight_decay: 0.25 };
        assert_eq!(of(decayed), Some(expected));
        let sgd = r#"{"optimizer_config": {"class_name": "SGD", "config": {"learning_rate": 0.5, "momentum": 0.9, "nesterov": true}}}"#;
        let expected = Optimizer::Sgd { lr: 0.5, momentum: 0.9, nesterov: true, weight_decay: 0.0 };
        assert_eq!(of(sgd), Some(expected));
        assert_eq!(of(r#"{"optimizer": "rmsprop"}"#).map(|optimizer| optimizer.kind()), Some("rmsprop"));
        for none in
            [r#"{"optimizer": "nadam"}"#, r#"{"optimizer": {"class_name": "Adam", "config": {"beta_1": 2}}}"#, "{}"]
        {
            assert_eq!(of(none), None, "{none}");
        }
    }
}

//! Changes of a model or its settings that take less memory.

use std::sync::Arc;

use super::{Effect, may_be_ghost};
use crate::error::GraphError;
use crate::nn::{Mode, Model, Statistics};
use crate::tensor::{DType, Half, Shape};
use crate::train::optimizer::Optimizer;
use crate::train::precision::Precision;
use crate::train::settings::Config;

/// What a change makes of a model and its settings.
type Apply = Arc<dyn Fn(&mut Model, &mut Config)>;

/// A change, and how people make it.
#[derive(Clone)]
pub(super) struct Change {
    pub(super) name: String,
    pub(super) effect: Effect,
    pub(super) flags: String,
    pub(super) code: String,
    apply: Apply,
}

impl Change {
    fn new(
        name: impl Into<String>,
        flags: impl Into<String>,
        code: impl Into<String>,
        apply: impl Fn(&mut Model, &mut Config) + 'static,
    ) -> Self {
        let (name, flags, code) = (name.into(), flags.into(), code.into());
        Change { name, effect: Effect::Training, flags, code, apply: Arc::new(apply) }
    }

    /// No change at all.
    pub(super) fn none() -> Self {
        Change { effect: Effect::Nothing, ..Change::new("as it is", "", "", |_, _| {}) }
    }

    /// What the planner does within a budget, without some of what it may do.
    pub(super) fn lever(name: &str, budget_bytes: u64, without: &str) -> Self {
        let mut change = Change { name: name.to_owned(), ..Change::none() };
        change.add_budget(budget_bytes);
        if !without.is_empty() {
            change.forbid(without);
        }
        change
    }

    /// What the planner does within a budget with copies of activations in bf16 allowed.
    pub(super) fn copies(budget_bytes: u64) -> Self {
        let mut change = Change { effect: Effect::Precision, ..Change::lever("", budget_bytes, "") };
        change.name = "all that, copies for backward in bf16 included".to_owned();
        change.flags += " --allow bf16-activations";
        change.code += ".levers(Levers { half_activations: Some(Half::Bf16), ..Levers::default() })";
        change
    }

    /// Has the planner do without some of what it may do.
    pub(super) fn forbid(&mut self, without: &str) {
        self.flags += &format!(" --without {without}");
        let levers: Vec<_> = without.split(',').map(|lever| format!("{lever}: false")).collect();
        self.code += &format!(".levers(Levers {{ {}, ..Levers::default() }})", levers.join(", "));
    }

    pub(super) fn batch(batch: usize) -> Self {
        let (flags, code) = (format!("--batch {batch}"), format!(".batch({batch})"));
        Change::new(format!("a smaller batch: {batch}"), flags, code, move |_, config| config.batch = batch)
    }

    /// Several as one.
    pub(super) fn together(changes: &[&Change]) -> Self {
        let words = |of: fn(&Change) -> &str, between: &str| {
            changes.iter().map(|change| of(change)).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(between)
        };
        Change {
            name: format!("{}, and the planner", words(|change| &change.name, ", ")),
            effect: changes.iter().map(|change| change.effect).max().unwrap_or(Effect::Nothing),
            flags: words(|change| &change.flags, " "),
            code: words(|change| &change.code, ""),
            apply: Arc::new(|_, _| {}),
        }
    }

    /// Adds that there is a budget.
    pub(super) fn add_budget(&mut self, budget_bytes: u64) {
        let gap = if self.flags.is_empty() { "" } else { " " };
        self.flags += &format!("{gap}--budget {}", written(budget_bytes));
        self.code += &format!(".budget_bytes({budget_bytes})");
    }

    pub(super) fn applied(&self, model: &Model, config: &Config) -> (Model, Config) {
        let (mut model, mut config) = (model.clone(), config.clone());
        (self.apply)(&mut model, &mut config);
        (model, config)
    }
}

/// A number of bytes as the command line takes it, exactly.
fn written(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let exact = units.into_iter().find(|(unit, _)| bytes.is_multiple_of(*unit));
    exact.map_or_else(|| bytes.to_string(), |(unit, name)| format!("{}{name}", bytes / unit))
}

/// All that makes sense for this model, in the order in which people are told of it.
pub(super) fn changes(model: &Model, config: &Config, mixes: bool) -> Result<Vec<Change>, GraphError> {
    let mut changes = Vec::new();
    if may_be_ghost(config, mixes) && config.batch > 1 {
        let parts = config.batch.min(4);
        changes.push(Change::new(
            format!("{parts} micro-batches, each with its own statistics"),
            format!("--micro-batches {parts} --batch-norm ghost"),
            format!(".micro_batches({parts}).statistics(Statistics::Ghost)"),
            move |_, config| {
                config.micro_batches = Some(parts);
                config.statistics = Statistics::Ghost;
            },
        ));
    }
    let coded = match config.optimizer {
        Optimizer::Adam { lr, .. } => Some(Optimizer::adam8bit(lr)),
        Optimizer::Adamw { lr, .. } => Some(Optimizer::adamw8bit(lr)),
        _ => None,
    };
    for optimizer in coded.into_iter().chain([Optimizer::sgd(1e-2), Optimizer::adafactor(1e-2)]) {
        if config.update_rule.is_none() && optimizer.kind() != config.optimizer.kind() {
            let kind = optimizer.kind();
            let lr = crate::tensor::format_value(*{ optimizer }.lr_mut());
            changes.push(Change::new(
                format!("{kind} in place of {}", config.optimizer),
                format!("--optimizer {kind}"),
                format!(".optimizer(Optimizer::{kind}({lr}))"),
                move |_, config| config.optimizer = optimizer,
            ));
        }
    }
    changes.extend(halves(config));
    changes.extend(smaller_input(model));
    changes.extend(frozen_backbone(model, config)?);
    Ok(changes)
}

/// Activations in 16 bits.
fn halves(config: &Config) -> Vec<Change> {
    if config.precision != Precision::F32 {
        return Vec::new();
    }
    let mut changes = Vec::new();
    if config.save_activations.is_none() {
        changes.push(Change::new(
            "copies of activations for backward in bf16",
            "--save-activations bf16",
            ".save_activations(Half::Bf16)",
            |_, config| config.save_activations = Some(Half::Bf16),
        ));
    }
    for (precision, name) in [(Precision::Bf16, "Bf16"), (Precision::F16, "F16")] {
        changes.push(Change::new(
            format!("activations and their gradients in {precision}"),
            format!("--precision {precision}"),
            format!(".precision(Precision::{name})"),
            move |_, config| config.precision = precision,
        ));
    }
    changes.into_iter().map(|change| Change { effect: Effect::Precision, ..change }).collect()
}

/// Half of the sides of an image, or of the length of a sequence, where the model takes that.
fn smaller_input(model: &Model) -> Option<Change> {
    let shape = model.input_shape();
    let smaller = match (&shape[..], model.input().dtype) {
        (&[channels, height, width], DType::F32 | DType::U8) if height > 1 && width > 1 => {
            let smaller = model.clone().with_input([channels, height / 2, width / 2]);
            same_parameters(model, &smaller).then_some(smaller)?
        }
        (&[length, ..], _) if length > 1 => model.with_length(length / 2)?,
        _ => return None,
    };
    let shape = smaller.input_shape().clone();
    let extents: Vec<_> = shape.iter().map(usize::to_string).collect();
    let what = if shape.len() == 3 { "images of half the side" } else { "sequences of half the length" };
    Some(Change::new(
        format!("{what}: {shape}"),
        format!("--input {}", extents.join("x")),
        format!("model.with_input([{}])", extents.join(", ")),
        move |model, _| *model = model.clone().with_input(Shape::from(&shape[..])),
    ))
}

/// Whether a model of another input has the same parameters.
fn same_parameters(model: &Model, other: &Model) -> bool {
    let state = |model: &Model| model.state_dict().ok();
    state(model).is_some() && state(model) == state(other)
}

/// Only the last layer that has parameters is trained.
fn frozen_backbone(model: &Model, config: &Config) -> Result<Option<Change>, GraphError> {
    if !config.freeze.is_empty() || !config.train_only.is_empty() {
        return Ok(None);
    }
    let built = model.build(1, Mode::Evaluate)?;
    let layers: Vec<_> = built.parameters.iter().filter_map(|parameter| parameter.name.rsplit_once('.')).collect();
    let (Some(&(first, _)), Some(&(last, _))) = (layers.first(), layers.last()) else { return Ok(None) };
    if first == last {
        return Ok(None);
    }
    let prefix = format!("{last}.");
    Ok(Some(Change::new(
        format!("all but the last layer, {last}, frozen: to fine-tune"),
        format!("--train-only {prefix}"),
        format!(".train_only(\"{prefix}\")"),
        move |_, config| config.train_only = vec![prefix.clone()],
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_exactly() {
        for (bytes, text) in [(2 << 30, "2GiB"), (3 << 20, "3MiB"), (5 << 10, "5KiB"), (1_000_001, "1000001")] {
            assert_eq!(written(bytes), text);
        }
    }
}

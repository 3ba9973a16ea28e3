//! Groups of parameters with settings of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::optimizer::{Optimizer, non_negative};
use super::settings::Config;
use crate::error::{TrainError, nearest};
use crate::ops::UpdateRule;
use crate::tensor::TensorDesc;

/// Parameters that have settings of their own: those that meet every condition given, and no earlier group's.
///
/// ```
/// use tightfit::train::{Config, Group};
///
/// // No weight decay on biases and norms, a tenth of the learning rate for the encoder.
/// let config = Config::default()
///     .group(Group::one_dimensional().weight_decay(0.0))
///     .group(Group::prefix("encoder.").lr_factor(0.1));
/// # assert_eq!(config.groups.len(), 2);
/// ```
///
/// In a model file:
///
/// ```toml
/// [[groups]]
/// one_dimensional = true
/// weight_decay = 0.0
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Of one axis or none: biases, and the weights of norms.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_dimensional: bool,
    /// What the name begins with: `encoder.`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// What the name ends in: `.bias`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suffix: Option<String>,
    /// What the name holds: `norm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contains: Option<String>,
    /// What the optimizer's learning rate is multiplied by. With 0 they are frozen, as by [`Config::freeze`](super::Config::freeze).
    #[serde(default = "one")]
    pub lr_factor: f64,
    /// In place of the optimizer's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_decay: Option<f64>,
}

fn one() -> f64 {
    1.0
}

impl Group {
    fn new() -> Self {
        let (prefix, suffix, contains, weight_decay) = (None, None, None, None);
        Group { one_dimensional: false, prefix, suffix, contains, lr_factor: 1.0, weight_decay }
    }

    /// Parameters of one axis or none: biases, and the weights of norms.
    #[must_use]
    pub fn one_dimensional() -> Self {
        Group { one_dimensional: true, ..Group::new() }
    }

    /// Parameters whose names begin so.
    #[must_use]
    pub fn prefix(prefix: impl Into<String>) -> Self {
        Group { prefix: Some(prefix.into()), ..Group::new() }
    }

    /// Parameters whose names end so.
    #[must_use]
    pub fn suffix(suffix: impl Into<String>) -> Self {
        Group { suffix: Some(suffix.into()), ..Group::new() }
    }

    /// Parameters whose names hold this.
    #[must_use]
    pub fn contains(part: impl Into<String>) -> Self {
        Group { contains: Some(part.into()), ..Group::new() }
    }

    /// Sets what the learning rate is multiplied by.
    #[must_use]
    pub fn lr_factor(mut self, factor: f64) -> Self {
        self.lr_factor = factor;
        self
    }

    /// Sets the weight decay.
    #[must_use]
    pub fn weight_decay(mut self, weight_decay: f64) -> Self {
        self.weight_decay = Some(weight_decay);
        self
    }

    fn is_named(&self) -> bool {
        self.prefix.is_some() || self.suffix.is_some() || self.contains.is_some()
    }

    fn selects(&self, name: &str, desc: &TensorDesc) -> bool {
        (!self.one_dimensional || desc.shape.len() < 2)
            && self.prefix.as_ref().is_none_or(|prefix| name.starts_with(prefix))
            && self.suffix.as_ref().is_none_or(|suffix| name.ends_with(suffix))
            && self.contains.as_ref().is_none_or(|part| name.contains(part))
    }

    /// The optimizer of this group.
    fn rule(&self, mut optimizer: Optimizer) -> Result<Arc<dyn UpdateRule>, TrainError> {
        non_negative("lr_factor", self.lr_factor)?;
        *optimizer.lr_mut() *= self.lr_factor;
        let weight_decay = optimizer.weight_decay_mut();
        *weight_decay = self.weight_decay.unwrap_or(*weight_decay);
        optimizer.rule()
    }
}

/// Updates that were made before parameters were trained, by name; of those that are trained from the first step on there is none.
pub(super) type FirstSteps = BTreeMap<String, u64>;

/// The rules of a training, that of parameters in no group first, and which parameter has which.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) rules: Vec<Arc<dyn UpdateRule>>,
    pub(super) group_of: BTreeMap<String, usize>,
    /// What the learning rate of each group is multiplied by.
    pub(super) lr_factors: Vec<f64>,
    /// Updates that were made before the first one of each group: it counts its own, so that what corrects averages for how few values
    /// they are of does.
    pub(super) first_steps: Vec<u64>,
    /// Parameters that are not trained.
    pub(super) frozen: BTreeSet<String>,
}

impl Rules {
    /// For these parameters.
    pub(super) fn new<'a>(
        config: &Config,
        parameters: impl Iterator<Item = (&'a str, &'a TensorDesc)>,
        begun: &FirstSteps,
    ) -> Result<Self, TrainError> {
        let Config { optimizer, groups, .. } = config;
        let own = config.update_rule.as_ref().map(|rule| rule.0.clone());
        let mut rules = vec![match &own {
            Some(rule) => rule.clone(),
            None => optimizer.rule()?,
        }];
        let mut lr_factors = vec![1.0];
        for (i, group) in groups.iter().enumerate() {
            if !group.one_dimensional && !group.is_named() {
                let text =
                    "is not possible: say which parameters it is for (one_dimensional, prefix, suffix, contains)";
                return Err(TrainError::Setting(format!("group {} {text}", i + 1)));
            }
            if own.is_some() && group.weight_decay.is_some() {
                let text = "has a weight decay, which an update rule of one's own does not take";
                return Err(TrainError::Setting(format!("group {} {text}", i + 1)));
            }
            let rule = own.clone().map_or_else(|| group.rule(*optimizer), Ok);
            lr_factors.push(group.lr_factor);
            rules.push(rule.map_err(|error| TrainError::Setting(format!("group {}: {error}", i + 1)))?);
        }
        let mut group_of = BTreeMap::new();
        let mut names = Vec::new();
        let mut frozen = BTreeSet::new();
        for (name, desc) in parameters {
            names.push(name);
            if let Some(group) = groups.iter().position(|group| group.selects(name, desc)) {
                group_of.insert(name.to_owned(), group + 1);
                if groups[group].lr_factor == 0.0 {
                    frozen.insert(name.to_owned());
                }
            }
        }
        let begins = |name: &str, prefixes: &[String]| prefixes.iter().any(|prefix| name.starts_with(prefix.as_str()));
        let is_left_out = |name: &str| !config.train_only.is_empty() && !begins(name, &config.train_only);
        frozen.extend(
            names.iter().filter(|name| begins(name, &config.freeze) || is_left_out(name)).map(ToString::to_string),
        );
        for (setting, prefixes) in [("freeze", &config.freeze), ("train_only", &config.train_only)] {
            if let Some(idle) =
                prefixes.iter().find(|prefix| !names.iter().any(|name| name.starts_with(prefix.as_str())))
            {
                return Err(no_such_prefix(setting, &names, idle));
            }
        }
        // A name that is wrong should not go unnoticed.
        let is_idle = |(i, group): &(usize, &Group)| group.is_named() && !group_of.values().any(|&of| of == i + 1);
        if let Some((i, _)) = groups.iter().enumerate().find(is_idle) {
            let group = &groups[i];
            let parts = [("prefix", &group.prefix), ("suffix", &group.suffix), ("contains", &group.contains)];
            let named = |(what, part): (&str, &Option<String>)| part.as_ref().map(|part| format!("{what} `{part}`"));
            let named: Vec<_> = parts.into_iter().filter_map(named).collect();
            let mut text =
                format!("group {} is of no parameter: no name that is left fits {}", i + 1, named.join(", "));
            text += &near(&names, parts.into_iter().filter_map(|(_, part)| part.as_deref()));
            return Err(TrainError::Setting(text));
        }
        let first_steps = vec![0; rules.len()];
        let mut rules = Rules { rules, group_of, lr_factors, first_steps, frozen };
        rules.split(begun);
        Ok(rules)
    }

    /// The rule of a parameter.
    pub(super) fn of(&self, parameter: &str) -> &dyn UpdateRule {
        &*self.rules[self.group_of.get(parameter).copied().unwrap_or(0)]
    }

    /// Makes groups of their own of parameters that are trained since a later step than others.
    fn split(&mut self, begun: &FirstSteps) {
        let mut made = BTreeMap::new();
        for (name, &first_step) in begun.iter().filter(|(name, _)| !self.frozen.contains(*name)) {
            let group = self.group_of.get(name).copied().unwrap_or(0);
            let own = *made.entry((group, first_step)).or_insert_with(|| {
                self.rules.push(self.rules[group].clone());
                self.lr_factors.push(self.lr_factors[group]);
                self.first_steps.push(first_step);
                self.rules.len() - 1
            });
            self.group_of.insert(name.clone(), own);
        }
    }
}

/// That no parameter's name begins so.
pub(super) fn no_such_prefix(setting: &str, names: &[&str], prefix: &str) -> TrainError {
    let near = near(names, std::iter::once(prefix));
    TrainError::Setting(format!("{setting}: no parameter's name begins with `{prefix}`{near}"))
}

/// What may have been meant in place of parts of names.
fn near<'a>(names: &[&str], mut parts: impl Iterator<Item = &'a str>) -> String {
    // A prefix, suffix or part is mostly a part between dots, such as `conv1` of `conv1.weight`.
    let known: BTreeSet<_> = names.iter().flat_map(|name| name.split('.').chain([*name])).collect();
    let near = parts.find_map(|part| nearest(part, known.iter().copied()).first().copied());
    near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default()
}

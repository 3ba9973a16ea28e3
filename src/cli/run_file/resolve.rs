//! What a run file comes to: a model and settings.

use std::ffi::OsStr;
use std::mem::discriminant;
use std::num::NonZeroUsize;

use tightfit::command::unknown;
use tightfit::error::GraphError;
use tightfit::models;
use tightfit::nn::Model;
use tightfit::tensor::{DType, Shape};
use tightfit::train::{Config, EarlyStopping, LayerPrecision, Monitor, Optimizer, PlanFile, Recovery, ReduceOnPlateau};

use super::super::bytes::Budget;
use super::super::data::folder;
use super::super::failure::Failure;
use super::super::model_file::{self, ModelFile};
use super::super::settings::levers_of;
use super::{OptimizerFlags, RunFile};

/// A shape as the command line takes it.
fn written(shape: &Shape) -> String {
    shape.iter().map(ToString::to_string).collect::<Vec<_>>().join("x")
}

impl RunFile {
    /// The model, checked, and the settings that an evaluation has.
    pub(crate) fn resolve_for_evaluation(&self) -> Result<(Model, Config), Failure> {
        let (file, config) = self.open_model()?;
        Ok((file.model, config))
    }

    /// The model, checked, and all settings; what neither this file nor the model's says is as it was for the plan.
    pub(crate) fn resolve(&self, plan: Option<&PlanFile>) -> Result<(Model, Config), Failure> {
        let (ModelFile { model, optimizer, groups, freeze, .. }, mut config) = self.open_model()?;
        config.seed = self.data.seed.unwrap_or_default();
        if let (None, Some(plan)) = (self.data.batch, plan) {
            config.batch = plan.batch();
        }
        config.drop_last = self.data.drop_last.unwrap_or(config.drop_last);
        let optimizer = self.optimizer.or(optimizer).or_else(|| plan.map(PlanFile::optimizer));
        config.optimizer = self.given.over(optimizer.unwrap_or_default())?;
        config.schedule.clone_from(&self.schedule);
        let (training, own) = (&self.training, &self.model);
        // Those of the plan hold what --decay-matrices-only adds, if it was planned with.
        let planned = plan.filter(|_| !training.decay_matrices_only).map(|plan| plan.groups().to_vec());
        config.groups = self.groups.clone().or(groups).or(planned).unwrap_or_default();
        if training.decay_matrices_only {
            config = config.decay_matrices_only();
        }
        config.clip = self.clip().or_else(|| plan.and_then(PlanFile::clip));
        let prefixes = |own: &[String], planned: Option<&[String]>| match (own, planned) {
            ([], Some(planned)) => planned.to_vec(),
            (own, _) => own.to_vec(),
        };
        config.freeze = prefixes(&own.freeze, plan.map(PlanFile::freeze));
        if plan.is_none() && own.freeze.is_empty() && own.train_only.is_empty() {
            config.freeze = freeze;
        }
        config.train_only = prefixes(&own.train_only, plan.map(PlanFile::train_only));
        config.ema_decay = training.ema.map(|decay| decay as f32).or_else(|| plan.and_then(PlanFile::ema_decay));
        config.precision = training.precision.or_else(|| plan.map(PlanFile::precision)).unwrap_or_default();
        let planned = || plan.map(|plan| plan.layer_precision().to_vec()).unwrap_or_default();
        config.layer_precision = match training.layer_precision.is_empty() {
            true => planned(),
            false => {
                let layers = training.layer_precision.iter();
                layers.map(|(layer, &precision)| LayerPrecision { layer: layer.clone(), precision }).collect()
            }
        };
        config.save_activations = training.save_activations.or_else(|| plan.and_then(PlanFile::save_activations));
        config.grad_norm = training.grad_norm || plan.is_some_and(PlanFile::grad_norm);
        config.loss_scale = training.loss_scale.or_else(|| plan.and_then(PlanFile::loss_scale));
        config.statistics = own.batch_norm.or_else(|| plan.map(PlanFile::statistics)).unwrap_or_default();
        let usual = Recovery::default();
        config.recovery = Recovery {
            replan: self.budget.replan.unwrap_or(usual.replan),
            snapshot_every: self.budget.snapshot_every.map_or(usual.snapshot_every, Into::into),
        };
        config.threads = self.budget.threads.map(NonZeroUsize::get);
        self.check_watched()?;
        Ok((model, config))
    }

    /// The same with all that a training of it resolved to, so that it says it without any flags.
    pub(crate) fn resolved(&self, config: &Config) -> Result<Self, Failure> {
        let mut file = self.clone();
        file.given = OptimizerFlags::default();
        file.data.path = Some(folder(self.data.path.as_deref()));
        file.data.batch = NonZeroUsize::new(config.batch);
        file.data.drop_last = Some(config.drop_last);
        file.data.seed = Some(config.seed);
        file.data.validation = Some(self.validates());
        if self.training.steps.is_none() {
            file.training.epochs = super::at_least_one(Some(self.epochs()));
        }
        file.training.decay_matrices_only = false;
        file.training.grad_norm = config.grad_norm;
        file.training.precision = Some(config.precision);
        let layers = config.layer_precision.iter().map(|of| (of.layer.clone(), of.precision));
        file.training.layer_precision = layers.collect();
        file.training.save_activations = config.save_activations;
        file.training.loss_scale = config.loss_scale;
        file.training.ema = self.training.ema.or(config.ema_decay.map(f64::from));
        if self.clip().is_none() {
            match config.clip {
                Some(tightfit::autodiff::Clip::Norm(most)) => file.training.clip_norm = Some(most.into()),
                Some(tightfit::autodiff::Clip::Value(most)) => file.training.clip_value = Some(most.into()),
                Some(tightfit::autodiff::Clip::TensorNorm(most)) => file.training.clip_tensor_norm = Some(most.into()),
                None => {}
            }
        }
        file.model.freeze.clone_from(&config.freeze);
        file.model.train_only.clone_from(&config.train_only);
        file.model.batch_norm = Some(config.statistics);
        file.optimizer = Some(config.optimizer);
        file.loss = Some(config.loss.clone());
        file.groups = Some(config.groups.clone()).filter(|groups| !groups.is_empty());
        file.budget.bytes = Budget::of(config);
        file.budget.micro_batches = config.micro_batches.and_then(NonZeroUsize::new);
        file.budget.replan = Some(config.recovery.replan);
        file.budget.snapshot_every = super::at_least_one(Some(config.recovery.snapshot_every));
        file.with_absolute_paths()
    }

    /// Keeps what the model was made to fit its data.
    pub(crate) fn adapt(&mut self, model: &Model) {
        let extents = |shape: &Shape| shape.iter().filter_map(|&extent| NonZeroUsize::new(extent)).collect();
        self.model.normalization = model.normalization().cloned();
        let Some(own) = self.model().to_str().and_then(models::builtin) else { return };
        if own.input_shape() != model.input_shape() {
            self.model.input = Some(extents(model.input_shape()));
        }
        let of = |model: &Model| model.parameter_count().ok();
        if of(&own.with_input(model.input_shape().clone())) != of(model) {
            self.model.outputs = outputs_of(model);
        }
    }

    fn open_model(&self) -> Result<(ModelFile, Config), Failure> {
        let mut file = model_file::open(self.model())?;
        if let Some(outputs) = self.model.outputs {
            let model = self.model().to_str().and_then(|name| models::builtin_for(name, outputs.get()));
            file.model = model.ok_or_else(|| {
                let text = "`outputs` is of built-in models: give the last layer of this one as many";
                Failure::bad_input(format!("{}: {text}", self.model.name.display()))
            })?;
        }
        if let Some(normalization) = &self.model.normalization {
            normalization.check().map_err(|error| Failure::bad_input(format!("normalization: {error}")))?;
            file.model = file.model.normalized(normalization.clone());
        }
        let own = file.model.input_shape().clone();
        let input = self.model.input.as_ref();
        if let Some(extents) = input {
            let shape: Shape = extents.iter().map(|extent| extent.get()).collect::<Vec<_>>().into();
            let channels = file.model.input_shape()[0];
            file.model = file.model.with_input(shape.clone());
            if let Some(first) = file.model.channels_first().filter(|first| first[0] == channels) {
                let text = format!("--input {}: channels come first, as in {}", written(&shape), written(&first));
                return Err(Failure::bad_input(text));
            }
        }
        if let Err(error) = file.model.output_shape() {
            // An input of a shape that fits may still be too large.
            let misfits = input.is_some() && matches!(error, GraphError::Op { .. } | GraphError::Layer { .. });
            let misfit = misfits.then(|| misfit(self.model(), &file.model, &own)).flatten();
            // The error should say which model, and where it is in a file, which one.
            let located = || format!("{}: {}", self.model.name.display(), file.located(&error));
            return Err(Failure::bad_input(misfit.unwrap_or_else(located)));
        }
        let mut config = Config::default();
        config.batch = self.data.batch.map_or(config.batch, NonZeroUsize::get);
        config.loss = self.loss.clone().or_else(|| file.loss.clone()).unwrap_or_default();
        config.metrics.clone_from(&self.metrics.evaluate);
        Budget::put(self.budget.bytes, &mut config);
        config.micro_batches = self.budget.micro_batches.map(NonZeroUsize::get);
        config.levers = levers_of(&self.budget.without, self.budget.allow);
        Ok((file, config))
    }

    /// Refuses to watch what nothing reports, before the first epoch and not after it.
    fn check_watched(&self) -> Result<(), Failure> {
        let metrics = self.metrics.evaluate.iter().map(|metric| format!("val_{}", metric.name()));
        let reported: Vec<_> = ["loss", "accuracy", "lr", "val_loss", "val_accuracy"]
            .map(str::to_owned)
            .into_iter()
            .chain(metrics)
            .collect();
        for (what, value) in self.watched() {
            if !reported.iter().any(|known| known == value) {
                let text = unknown("value", value, reported.iter().map(String::as_str));
                let text = text.replacen("unknown value", "nothing reports", 1);
                return Err(Failure::bad_input(format!("{what}: {text}; `evaluate` below [metrics] adds values")));
            }
            if value.starts_with("val_") && !self.validates() {
                return Err(Failure::bad_input(format!(
                    "{what} watches `{value}`, which only validation has: leave out `validation = false` below [data], or watch \
                     another value"
                )));
            }
        }
        let early = self.early_stopping.as_ref().map(EarlyStopping::check);
        let plateau = self.reduce_on_plateau.as_ref().map(ReduceOnPlateau::check);
        let best = self.checkpoint.best.as_ref().map(Monitor::check);
        let checks = [("early_stopping", early), ("reduce_on_plateau", plateau), ("checkpoint.best", best)];
        checks.into_iter().try_for_each(|(what, checked)| {
            checked.unwrap_or(Ok(())).map_err(|error| Failure::bad_input(format!("{what}: {error}")))
        })
    }
}

impl OptimizerFlags {
    /// What flags say, over what files say.
    pub(crate) fn over(self, from_file: Optimizer) -> Result<Optimizer, Failure> {
        let mut optimizer = match self.kind {
            // The same kind keeps the file's other settings.
            Some(named) if discriminant(&named) != discriminant(&from_file) => named,
            _ => from_file,
        };
        let kind = optimizer.to_string();
        let set = |setting: &mut f64, value: Option<f64>| *setting = value.unwrap_or(*setting);
        set(optimizer.lr_mut(), self.lr);
        set(optimizer.weight_decay_mut(), self.weight_decay);
        match optimizer.momentum_mut() {
            Some(momentum) => set(momentum, self.momentum),
            None if self.momentum.is_some() => {
                let text = format!(
                    "--momentum belongs to sgd and rmsprop, not to {kind}: add --optimizer sgd or leave it out"
                );
                return Err(Failure::bad_input(text));
            }
            None => {}
        }
        Ok(optimizer)
    }
}

/// Classes, tokens or numbers that a model says: the extent of its output that is not of places.
fn outputs_of(model: &Model) -> Option<NonZeroUsize> {
    let shape = model.output_shape().ok()?;
    // Images have theirs first.
    NonZeroUsize::new(if shape.len() == 3 { *shape.first()? } else { *shape.last()? })
}

/// What to say where a built-in model, which nobody can edit, is given an input that it does not fit; its own is `own`.
fn misfit(name: &OsStr, model: &Model, own: &Shape) -> Option<String> {
    let (name, shape) = (name.to_str()?, model.input_shape());
    models::builtin(name)?;
    let misfit = format!("--input {} does not fit {name}", written(shape));
    if let Some(advice) = model.input_advice() {
        return Some(format!("{misfit}: {advice}"));
    }
    let takes = |name: &&str| {
        let model = models::builtin(name).filter(|model| model.input().dtype == DType::F32);
        model.is_some_and(|model| model.with_input(shape.clone()).output_shape().is_ok())
    };
    let others: Vec<_> = models::NAMES.into_iter().filter(takes).collect();
    let others = match &others[..] {
        [] => String::new(),
        [other] => format!("; {other} takes {shape}"),
        _ => format!("; {} take {shape}", others.join(", ")),
    };
    Some(format!("{misfit}, which takes inputs such as {own}{others}"))
}

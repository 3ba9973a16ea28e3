//! Settings that commands share: of the model for `plan`, `train` and `eval`, of training for the first two.

use std::ffi::{OsStr, OsString};
use std::num::NonZeroUsize;

use clap::builder::{NonEmptyStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use tightfit::models;
use tightfit::nn::Statistics;
use tightfit::plan::{DeviceClass, Levers};
use tightfit::tensor::{Half, Shape};
use tightfit::train::{Config, LayerPrecision, LossScale, Optimizer, Precision};

use super::bytes::Budget;
use super::failure::Failure;
use super::run_file::{OptimizerFlags, RunFile, TrainingTable, set};
use super::values::{choice, count, non_negative, not_empty, positive, shape, share, threads, whole};

/// The model and what it may take.
#[derive(Args, Clone, Debug)]
pub(crate) struct ModelArgs {
    #[arg(value_name = "MODEL", help = model_help(), value_parser = not_empty())]
    model: OsString,

    /// Shape of a sample: 3x512x512 [default: the model's]
    #[arg(long, value_name = "SHAPE", value_parser = shape)]
    input: Option<Shape>,

    /// Samples of a step [default: 64]
    #[arg(long, value_name = "N", value_parser = count::<usize>, allow_negative_numbers = true)]
    batch: Option<usize>,

    /// Bytes that may be on the device at once: 8G, 64MiB, 1.5GB or plain bytes, or auto for what it has free [default: no limit]
    #[arg(long, value_name = "SIZE|auto", value_parser = str::parse::<Budget>, allow_hyphen_values = true)]
    budget: Option<Budget>,

    /// Cuts each batch into so many parts, 1 for none [default: the planner chooses]
    #[arg(long, value_name = "N", value_parser = count::<usize>, allow_negative_numbers = true)]
    micro_batches: Option<usize>,

    /// What the planner must do without, separated by commas
    #[arg(long, value_name = "LEVERS", value_delimiter = ',', ignore_case = true)]
    without: Vec<LeverName>,

    /// What the planner may do although it rounds gradients: keep activations for backward in 16 bits
    #[arg(long, value_name = "LEVER", ignore_case = true)]
    allow: Option<AllowedName>,
}

/// How activations are stored.
#[derive(Args, Clone, Debug)]
pub(crate) struct PrecisionArgs {
    /// Format of activations and their gradients: f32, f16, bf16, or mixed_float16 and mixed_bfloat16 as Keras has it; arithmetic and
    /// parameters stay f32 [default: f32]
    #[arg(long, value_name = "TYPE", value_parser = str::parse::<Precision>)]
    precision: Option<Precision>,

    /// Layers with a format of their own, by the beginnings of their names, separated by commas: fc=f32,conv1=f32
    #[arg(long, value_name = "LAYER=TYPE", value_delimiter = ',', value_parser = layer_precision)]
    layer_precision: Vec<(String, Precision)>,

    /// Computes forward in f32 and keeps copies of 16 bits for backward: bf16 or f16
    #[arg(long, value_name = "TYPE", value_parser = half)]
    save_activations: Option<Half>,
}

impl PrecisionArgs {
    /// Puts what is given in its place.
    fn put(&self, training: &mut TrainingTable) {
        set(&mut training.precision, self.precision.as_ref());
        training.layer_precision.extend(self.layer_precision.iter().cloned());
        set(&mut training.save_activations, self.save_activations.as_ref());
    }

    /// The same, without a run file.
    pub(crate) fn configure(&self, config: &mut Config) {
        config.precision = self.precision.unwrap_or_default();
        let layers = self.layer_precision.iter().cloned();
        config.layer_precision = layers.map(|(layer, precision)| LayerPrecision { layer, precision }).collect();
        config.save_activations = self.save_activations;
    }
}

/// The model and how it is trained.
#[derive(Args, Clone, Debug)]
pub(crate) struct TrainingArgs {
    #[command(flatten)]
    model: ModelArgs,

    /// How parameters follow their gradients [default: the model file's, or adam]
    #[arg(long, value_name = "NAME", ignore_case = true, value_parser = optimizer_kind())]
    optimizer: Option<Optimizer>,

    /// Learning rate [default: the model file's, or the optimizer's usual one: 0.001 for adam, 0.01 for sgd]
    #[arg(long, value_name = "RATE", value_parser = positive, allow_negative_numbers = true)]
    lr: Option<f64>,

    /// Momentum of sgd or rmsprop, in 0..1
    #[arg(long, value_name = "SHARE", value_parser = share, allow_negative_numbers = true)]
    momentum: Option<f64>,

    /// Weight decay
    #[arg(long, value_name = "FACTOR", value_parser = non_negative, allow_negative_numbers = true)]
    weight_decay: Option<f64>,

    /// Leaves parameters of one axis, biases and the weights of norms, out of weight decay
    #[arg(long)]
    decay_matrices_only: bool,

    /// Scales gradients so that the norm of all together is at most this
    #[arg(long, value_name = "NORM", value_parser = positive, allow_negative_numbers = true)]
    clip_norm: Option<f64>,

    /// Holds each element of a gradient between minus this and this
    #[arg(long, value_name = "MOST", value_parser = positive, allow_negative_numbers = true, conflicts_with = "clip_norm")]
    clip_value: Option<f64>,

    /// Scales each gradient by itself so that its norm is at most this
    #[arg(long, value_name = "NORM", value_parser = positive, allow_negative_numbers = true, conflicts_with_all = ["clip_norm", "clip_value"])]
    clip_tensor_norm: Option<f64>,

    /// Does not train the parameters whose names begin so, separated by commas: conv1,layer1.
    #[arg(long, value_name = "PREFIXES", value_delimiter = ',')]
    freeze: Vec<String>,

    /// Trains only the parameters whose names begin so, separated by commas: fc.
    #[arg(long, value_name = "PREFIXES", value_delimiter = ',')]
    train_only: Vec<String>,

    /// Keeps an exponential moving average of the parameters, of which a step keeps this share: 0.999
    #[arg(long, value_name = "DECAY", value_parser = share, allow_negative_numbers = true)]
    ema: Option<f64>,

    /// Statistics of batch norm: of the whole batch, of each micro-batch, or the running ones as they are [default: exact]
    #[arg(long, value_name = "STATISTICS", ignore_case = true)]
    batch_norm: Option<StatisticsName>,

    #[command(flatten)]
    precision: PrecisionArgs,

    /// Tells the norm of all gradients together in logs
    #[arg(long)]
    grad_norm: bool,

    /// Multiplies the loss for its gradients, and skips steps that this makes overflow: dynamic, a number, or none [default: dynamic
    /// for f16, else none]
    #[arg(long, value_name = "SCALE", value_parser = str::parse::<LossScale>, allow_negative_numbers = true)]
    loss_scale: Option<LossScale>,

    /// Decides initial parameters and the order of samples [default: 0]
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    seed: Option<u64>,
}

/// Where training runs.
#[derive(Args, Clone, Debug)]
pub(crate) struct DeviceArgs {
    /// Index or part of the name of a device that `tightfit devices` lists, cpu, or reference [default: the best GPU, else cpu]
    #[arg(long, value_name = "DEVICE", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) device: Option<String>,

    /// Threads of the CPU, where it trains; with the same micro-batches results do not depend on them [default: all that may run at
    /// once]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub(crate) threads: Option<NonZeroUsize>,

    /// Does not measure a device that is used for the first time: plans for it with costs that are typical of its class
    #[arg(long)]
    pub(crate) no_calibrate: bool,
}

/// The kinds of the registry, with their usual settings.
fn optimizer_kind() -> impl TypedValueParser<Value = Optimizer> {
    choice(Optimizer::KINDS.iter().map(|kind| (kind.kind, (kind.usual)())))
}

pub(crate) fn device_class() -> impl TypedValueParser<Value = DeviceClass> {
    choice(DeviceClass::ALL.map(|class| (class.name(), class)))
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum StatisticsName {
    Exact,
    Ghost,
    Frozen,
}

/// What the planner may do to save memory or time, besides micro-batches (for which there is `--micro-batches 1`).
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LeverName {
    Recompute,
    Offload,
    Compression,
    Fusion,
}

/// What the planner may do to save memory although it changes results.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AllowedName {
    /// Backward reads copies of activations in bf16
    Bf16Activations,
    /// Backward reads copies of activations in f16
    F16Activations,
}

/// All levers but these, and those that must be allowed.
pub(crate) fn levers_of(names: &[LeverName], allowed: Option<AllowedName>) -> Levers {
    let half_activations = allowed.map(|name| match name {
        AllowedName::Bf16Activations => Half::Bf16,
        AllowedName::F16Activations => Half::F16,
    });
    Levers {
        half_activations,
        recompute: !names.contains(&LeverName::Recompute),
        offload: !names.contains(&LeverName::Offload),
        compression: !names.contains(&LeverName::Compression),
        fusion: !names.contains(&LeverName::Fusion),
    }
}

/// `fc=f32`
fn layer_precision(text: &str) -> Result<(String, Precision), String> {
    let (layer, precision) = text.split_once('=').ok_or("give a layer and a format: fc=f32")?;
    Ok((layer.to_owned(), precision.parse()?))
}

/// A format of 16 bits.
fn half(text: &str) -> Result<Half, String> {
    text.parse::<Precision>()?.half().ok_or_else(|| "f32 is what forward computes with: give bf16 or f16".to_owned())
}

fn model_help() -> String {
    format!(
        "Built-in model, model file or run file (TOML), or file of Keras or ONNX; --input changes what most take. Built in are {}",
        models::NAMES.join(", ")
    )
}

impl ModelArgs {
    /// What it was given as.
    pub(crate) fn name(&self) -> &OsStr {
        &self.model
    }

    /// The run file that was named, or one of the model alone, with what flags say over it.
    pub(crate) fn run_file(&self) -> Result<RunFile, Failure> {
        let mut file = RunFile::open(&self.model)?;
        let input =
            self.input.as_ref().map(|shape| shape.iter().filter_map(|&extent| NonZeroUsize::new(extent)).collect());
        set(&mut file.model.input, input.as_ref());
        set(&mut file.data.batch, self.batch.and_then(NonZeroUsize::new).as_ref());
        set(&mut file.budget.bytes, self.budget.as_ref());
        set(&mut file.budget.micro_batches, self.micro_batches.and_then(NonZeroUsize::new).as_ref());
        if !self.without.is_empty() {
            file.budget.without.clone_from(&self.without);
        }
        set(&mut file.budget.allow, self.allow.as_ref());
        Ok(file)
    }
}

impl TrainingArgs {
    /// What the model was given as.
    pub(crate) fn name(&self) -> &OsStr {
        self.model.name()
    }

    /// As [`ModelArgs::run_file`].
    pub(crate) fn run_file(&self) -> Result<RunFile, Failure> {
        let mut file = self.model.run_file()?;
        let Self { optimizer: kind, lr, momentum, weight_decay, .. } = *self;
        file.given = OptimizerFlags { kind, lr, momentum, weight_decay };
        let training = &mut file.training;
        training.decay_matrices_only |= self.decay_matrices_only;
        training.grad_norm |= self.grad_norm;
        self.precision.put(training);
        if self.clip_norm.or(self.clip_value).or(self.clip_tensor_norm).is_some() {
            training.clip_norm = self.clip_norm;
            training.clip_value = self.clip_value;
            training.clip_tensor_norm = self.clip_tensor_norm;
        }
        set(&mut training.ema, self.ema.as_ref());
        set(&mut training.loss_scale, self.loss_scale.as_ref());
        for (place, given) in [(&mut file.model.freeze, &self.freeze), (&mut file.model.train_only, &self.train_only)] {
            if !given.is_empty() {
                place.clone_from(given);
            }
        }
        let statistics = self.batch_norm.map(|name| match name {
            StatisticsName::Exact => Statistics::Exact,
            StatisticsName::Ghost => Statistics::Ghost,
            StatisticsName::Frozen => Statistics::Frozen,
        });
        set(&mut file.model.batch_norm, statistics.as_ref());
        set(&mut file.data.seed, self.seed.as_ref());
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: TrainingArgs,
    }

    fn optimizer(args: &[&str], from_file: Option<Optimizer>) -> Result<Optimizer, String> {
        let all = ["test", "mnist-mlp"].iter().chain(args);
        let command = Command::try_parse_from(all).map_err(|error| error.to_string())?;
        let flags = command.args.run_file().map_err(|failure| failure.message)?.given;
        flags.over(from_file.unwrap_or_default()).map_err(|failure| failure.message)
    }

    #[test]
    fn the_command_line_wins_over_the_file_over_defaults() {
        let file = Optimizer::Sgd { lr: 0.5, momentum: 0.9, nesterov: true, weight_decay: 0.1 };
        assert_eq!(optimizer(&[], None), Ok(Optimizer::adam(1e-3)));
        assert_eq!(optimizer(&[], Some(file)), Ok(file));
        let expected = Optimizer::Sgd { lr: 0.25, momentum: 0.9, nesterov: true, weight_decay: 0.0 };
        assert_eq!(optimizer(&["--lr", "0.25", "--weight-decay", "0"], Some(file)), Ok(expected));
        assert_eq!(optimizer(&["--optimizer", "sgd", "--lr", "0.25", "--weight-decay", "0"], Some(file)), Ok(expected));
        assert_eq!(optimizer(&["--optimizer", "adamw"], Some(file)), Ok(Optimizer::adamw(1e-3)));
        assert!(optimizer(&["--momentum", "0.9"], None).expect_err("adam").contains("belongs to sgd"));
    }

    #[test]
    fn numbers_that_make_no_sense_are_refused() {
        for args in [
            ["--batch", "0"],
            ["--batch", "1.5"],
            ["--lr", "0"],
            ["--lr", "NaN"],
            ["--lr", "1e400"],
            ["--lr", "1e-60"],
            ["--momentum", "1"],
            ["--weight-decay", "inf"],
            ["--clip-norm", "0"],
            ["--micro-batches", "0"],
            ["--loss-scale", "-1"],
            ["--loss-scale", "inf"],
            ["--loss-scale", "half"],
        ] {
            assert!(optimizer(&args, None).expect_err(args[1]).contains("it must be"), "{args:?}");
        }
        for args in [["--lr", "1e300"], ["--lr", "1e-50"], ["--weight-decay", "1e39"], ["--clip-norm", "1e-39"]] {
            let message = optimizer(&args, None).expect_err(args[1]);
            assert!(message.contains("it must be from 1.2e-38 to 3.4e38"), "{args:?}: {message}");
        }
        assert_eq!(optimizer(&["--lr", "3.4e38", "--weight-decay", "0"], None), Ok(Optimizer::adam(3.4e38)));
    }
}

//! Settings that commands share: of the model for `plan`, `train` and `eval`, of training for the first two.

use std::ffi::{OsStr, OsString};
use std::mem::discriminant;
use std::num::{IntErrorKind, ParseIntError};
use std::path::PathBuf;

use clap::builder::{NonEmptyStringValueParser, PathBufValueParser, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use tightfit::autodiff::Clip;
use tightfit::error::GraphError;
use tightfit::models;
use tightfit::nn::{Model, Statistics};
use tightfit::plan::{DeviceClass, Levers};
use tightfit::tensor::{DType, Shape};
use tightfit::train::{Config, Optimizer, PlanFile};

use super::bytes;
use super::failure::Failure;
use super::model_file::{self, ModelFile};

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

    /// Bytes that may be on the device at once: 8G, 64MiB, 1.5GB or plain bytes [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = bytes::parse, allow_hyphen_values = true)]
    budget: Option<u64>,

    /// Cuts each batch into so many parts, 1 for none [default: the planner chooses]
    #[arg(long, value_name = "N", value_parser = count::<usize>, allow_negative_numbers = true)]
    micro_batches: Option<usize>,

    /// What the planner must do without, separated by commas
    #[arg(long, value_name = "LEVERS", value_delimiter = ',', ignore_case = true)]
    without: Vec<LeverName>,
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

    /// Decides initial parameters and the order of samples
    #[arg(long, value_name = "N", default_value = "0", value_parser = whole, allow_negative_numbers = true)]
    seed: u64,
}

/// Where training runs.
#[derive(Args, Clone, Debug)]
pub(crate) struct DeviceArgs {
    /// Index or part of the name of a device that `tightfit devices` lists, or cpu [default: the best GPU]
    #[arg(long, value_name = "DEVICE", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) device: Option<String>,

    /// Does not measure a device that is used for the first time: plans for it with costs that are typical of its class
    #[arg(long)]
    pub(crate) no_calibrate: bool,
}

/// One of these names, for what it stands for.
fn choice<T: Clone + Send + Sync + 'static>(
    choices: impl IntoIterator<Item = (&'static str, T)>,
) -> impl TypedValueParser<Value = T> {
    let choices: Vec<_> = choices.into_iter().collect();
    let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
    PossibleValuesParser::new(names).map(move |given| {
        let chosen = choices.iter().find(|(name, _)| name.eq_ignore_ascii_case(&given));
        chosen.expect("bug: a choice that is not listed").1.clone()
    })
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
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeverName {
    Recompute,
    Offload,
    Compression,
    Fusion,
}

/// All levers but these.
pub(crate) fn levers_without(names: &[LeverName]) -> Levers {
    Levers {
        recompute: !names.contains(&LeverName::Recompute),
        offload: !names.contains(&LeverName::Offload),
        compression: !names.contains(&LeverName::Compression),
        fusion: !names.contains(&LeverName::Fusion),
    }
}

fn model_help() -> String {
    format!(
        "Built-in model or a TOML file; `train` and `eval` take those whose input is an image of the data (--input changes \
         what most take). Built in are {}",
        models::NAMES.join(", ")
    )
}

impl ModelArgs {
    /// What it was given as.
    pub(crate) fn name(&self) -> &OsStr {
        &self.model
    }

    /// The model, checked, and the settings that an evaluation has.
    pub(crate) fn resolve(&self) -> Result<(Model, Config), Failure> {
        let (file, config) = self.open()?;
        Ok((file.model, config))
    }

    fn open(&self) -> Result<(ModelFile, Config), Failure> {
        let mut file = model_file::open(&self.model)?;
        let own = file.model.input_shape().clone();
        if let Some(shape) = &self.input {
            let channels = file.model.input_shape()[0];
            file.model = file.model.with_input(shape.clone());
            if let Some(first) = file.model.channels_first().filter(|first| first[0] == channels) {
                let text = format!("--input {}: channels come first, as in {}", written(shape), written(&first));
                return Err(Failure::bad_input(text));
            }
        }
        if let Err(error) = file.model.output_shape() {
            // An input of a shape that fits may still be too large.
            let misfits = matches!(error, GraphError::Op { .. } | GraphError::Layer { .. });
            let misfit = misfits.then(|| self.misfit(&file.model, &own)).flatten();
            // The error should say which model, and where it is in a file, which one.
            let located = || format!("{}: {}", self.model.display(), file.located(&error));
            return Err(Failure::bad_input(misfit.unwrap_or_else(located)));
        }
        let mut config = Config::default();
        config.batch = self.batch.unwrap_or(config.batch);
        config.loss = file.loss.clone().unwrap_or_default();
        config.budget_bytes = self.budget;
        config.micro_batches = self.micro_batches;
        config.levers = levers_without(&self.without);
        Ok((file, config))
    }

    /// What to say where a built-in model, which nobody can edit, is given an input that it does not fit; its own is `own`.
    fn misfit(&self, model: &Model, own: &Shape) -> Option<String> {
        let (name, shape) = (self.model.to_str()?, self.input.as_ref()?);
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
}

/// A shape as the command line takes it.
fn written(shape: &Shape) -> String {
    shape.iter().map(ToString::to_string).collect::<Vec<_>>().join("x")
}

impl TrainingArgs {
    /// What the model was given as.
    pub(crate) fn name(&self) -> &OsStr {
        self.model.name()
    }

    /// The model, checked, and the settings: the command line's first, then the file's, then defaults.
    pub(crate) fn resolve(&self) -> Result<(Model, Config), Failure> {
        self.resolve_for(None)
    }

    /// As `resolve`; what neither the command line nor the model's file says is as it was for the plan.
    pub(crate) fn resolve_for(&self, plan: Option<&PlanFile>) -> Result<(Model, Config), Failure> {
        let (ModelFile { model, optimizer, groups, .. }, config) = self.model.open()?;
        let mut config = config.seed(self.seed);
        if let (None, Some(plan)) = (self.model.batch, plan) {
            config.batch = plan.batch();
        }
        config.optimizer = self.optimizer(optimizer.or_else(|| plan.map(PlanFile::optimizer)))?;
        // Those of the plan hold what --decay-matrices-only adds, if it was planned with.
        let planned = plan.filter(|_| !self.decay_matrices_only).map(|plan| plan.groups().to_vec());
        config.groups = groups.or(planned).unwrap_or_default();
        if self.decay_matrices_only {
            config = config.decay_matrices_only();
        }
        config.clip = self.clip().or_else(|| plan.and_then(PlanFile::clip));
        let prefixes = |own: &[String], planned: Option<&[String]>| match (own, planned) {
            ([], Some(planned)) => planned.to_vec(),
            (own, _) => own.to_vec(),
        };
        config.freeze = prefixes(&self.freeze, plan.map(PlanFile::freeze));
        config.train_only = prefixes(&self.train_only, plan.map(PlanFile::train_only));
        config.ema_decay = self.ema.map(|decay| decay as f32).or_else(|| plan.and_then(PlanFile::ema_decay));
        config.grad_norm = plan.is_some_and(PlanFile::grad_norm);
        config.statistics = match self.batch_norm {
            Some(StatisticsName::Exact) => Statistics::Exact,
            Some(StatisticsName::Ghost) => Statistics::Ghost,
            Some(StatisticsName::Frozen) => Statistics::Frozen,
            None => plan.map(PlanFile::statistics).unwrap_or_default(),
        };
        Ok((model, config))
    }

    fn clip(&self) -> Option<Clip> {
        let clip = |most: Option<f64>, of: fn(f32) -> Clip| most.map(|most| of(most as f32));
        clip(self.clip_norm, Clip::Norm)
            .or_else(|| clip(self.clip_value, Clip::Value))
            .or_else(|| clip(self.clip_tensor_norm, Clip::TensorNorm))
    }

    fn optimizer(&self, from_file: Option<Optimizer>) -> Result<Optimizer, Failure> {
        let from_file = from_file.unwrap_or_default();
        let mut optimizer = match self.optimizer {
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

/// A name that need not be UTF-8.
pub(crate) fn not_empty() -> impl TypedValueParser<Value = OsString> {
    PathBufValueParser::new().map(PathBuf::into_os_string)
}

/// A whole number of at least 1.
pub(crate) fn count<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let number =
        text.parse::<u64>().map_err(|error| out_of_range(&error, "it must be a whole number of at least 1"))?;
    let number = Some(number).filter(|number| *number > 0).ok_or("it must be a whole number of at least 1")?;
    T::try_from(number).map_err(|_| TOO_LARGE.to_owned())
}

const TOO_LARGE: &str = "it is too large a number";

/// Why digits are no number of this kind.
fn out_of_range(error: &ParseIntError, otherwise: &str) -> String {
    if *error.kind() == IntErrorKind::PosOverflow { TOO_LARGE } else { otherwise }.to_owned()
}

/// Extents with an `x` between them, or a comma.
fn shape(text: &str) -> Result<Shape, String> {
    let extents: Result<Vec<usize>, _> = text.split(['x', 'X', '×', ',']).map(str::parse).collect();
    let extents = extents.ok().filter(|extents| extents.iter().all(|&extent| extent > 0));
    extents.map(Shape::from).ok_or_else(|| "it must be whole numbers of at least 1, like 3x224x224".to_owned())
}

fn whole(text: &str) -> Result<u64, String> {
    text.parse().map_err(|error| out_of_range(&error, "it must be a whole number, 0 or above"))
}

fn positive(text: &str) -> Result<f64, String> {
    let number = real(text).filter(|x| *x > 0.0).ok_or("it must be a number above 0")?;
    in_single_precision(number)
}

fn non_negative(text: &str) -> Result<f64, String> {
    let number = real(text).filter(|x| *x >= 0.0).ok_or("it must be a number, 0 or above")?;
    if number == 0.0 { Ok(number) } else { in_single_precision(number) }
}

fn share(text: &str) -> Result<f64, String> {
    real(text).filter(|x| (0.0..1.0).contains(x)).ok_or_else(|| "it must be 0 or above and below 1".to_owned())
}

fn real(text: &str) -> Option<f64> {
    text.parse().ok()
}

/// A number above 0 of which kernels, which compute in single precision, make neither 0 nor infinity.
fn in_single_precision(number: f64) -> Result<f64, String> {
    if (f64::from(f32::MIN_POSITIVE)..=f64::from(f32::MAX)).contains(&number) {
        return Ok(number);
    }
    Err("it must be from 1.2e-38 to 3.4e38, which is what single precision holds".to_owned())
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
        command.args.optimizer(from_file).map_err(|failure| failure.message)
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

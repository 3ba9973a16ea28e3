//! `tightfit train`: trains a model, tests it, keeps its weights.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::Args;
use tightfit::train::{EarlyStopping, Length, LrRange, MetricKind, Schedule, Warmup};

use super::data::{DataArgs, folder};
use super::failure::Failure;
use super::find_lr::{self, Search};
use super::output::Output;
use super::overwrite;
use super::progress::ProgressArgs;
use super::run_file::{RunFile, at_least_one, set};
use super::run_folder::RunFolder;
use super::session::{self, Job};
use super::settings::{DeviceArgs, TrainingArgs};
use super::trace;
use super::values::count;

#[derive(Args, Debug)]
pub(crate) struct TrainArgs {
    #[command(flatten)]
    model: TrainingArgs,
    #[command(flatten)]
    device: DeviceArgs,

    #[command(flatten)]
    data: DataArgs,

    /// Passes over the training set [default: 1]
    #[arg(long, value_name = "N", value_parser = count::<u64>, allow_negative_numbers = true)]
    epochs: Option<u64>,

    /// Stops after so many steps
    #[arg(long, value_name = "N", value_parser = count::<u64>, allow_negative_numbers = true)]
    steps: Option<u64>,

    #[arg(long, value_name = "SCHEDULE", value_parser = schedule, help = schedule_help())]
    schedule: Option<Schedule>,

    /// Raises the learning rate to its full value in so many steps, or "2 epochs"
    #[arg(long, value_name = "LENGTH", value_parser = str::parse::<Length>)]
    warmup: Option<Length>,

    /// Trains what --freeze or --train-only freezes after so many steps, or "2 epochs"
    #[arg(long, value_name = "LENGTH", value_parser = str::parse::<Length>)]
    unfreeze_after: Option<Length>,

    #[arg(long, value_name = "METRICS", value_delimiter = ',', value_parser = metric, help = metrics_help())]
    metrics: Vec<MetricKind>,

    /// Trains on a last batch of an epoch that is not full, too; else it is left out, other samples in each epoch
    #[arg(long)]
    keep_last: bool,

    /// Evaluates the samples of --val, or else the test set, after each epoch [default: with --val, or where something watches a value of
    /// that]
    #[arg(long)]
    validate: bool,

    /// Ends training when `val_loss` has not become lower for so many epochs; a run file may name another value
    #[arg(long, value_name = "EPOCHS", value_parser = count::<u64>, allow_negative_numbers = true)]
    early_stopping: Option<u64>,

    /// Starts from the parameters in this file, which `--save` or PyTorch wrote (safetensors)
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,

    /// Takes from --weights what fits by name and shape, says what does not, and starts the rest from scratch
    #[arg(long)]
    skip_mismatched: bool,

    /// Writes the parameters here when training ends (safetensors)
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,

    /// After training, times the nodes of one more step, which changes nothing, and writes it as `tightfit plan --trace` does
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// In place of training, makes some steps at a learning rate that rises from one to the next, prints the smoothed loss over it,
    /// and suggests one: where the loss falls fastest. --steps is how many [default: 100]; nothing is kept of them
    #[arg(long, conflicts_with_all = ["save", "run", "trace", "print_config"])]
    find_lr: bool,

    /// The lowest and the highest learning rate of --find-lr [default: 1e-7..1]
    #[arg(long, value_name = "MIN..MAX", value_parser = find_lr::lr_range, requires = "find_lr", allow_hyphen_values = true)]
    lr_range: Option<(f64, f64)>,

    /// Draws what --find-lr found
    #[arg(long, value_name = "FILE", requires = "find_lr")]
    svg: Option<PathBuf>,

    /// Keeps settings, plan, logs, checkpoints, pictures and results in this folder, which is made; `tightfit resume DIR` goes on
    /// with a training that was interrupted
    #[arg(long, value_name = "DIR")]
    run: Option<PathBuf>,

    /// Writes a checkpoint after so many steps each time, or "10 minutes", besides those at ends of epochs
    #[arg(long, value_name = "N", value_parser = every)]
    checkpoint_every: Option<Every>,

    /// How many of the newest checkpoints stay [default: 2]
    #[arg(long, value_name = "N", value_parser = count::<usize>, allow_negative_numbers = true)]
    keep: Option<usize>,

    /// Ends with a clear message, and a checkpoint where there is a run folder, where memory goes; else training goes on under a
    /// plan for less
    #[arg(long)]
    no_replan: bool,

    /// Prints all settings as a run file and does nothing else
    #[arg(long, conflicts_with = "plan")]
    print_config: bool,

    /// Runs the plan that `tightfit plan … --output FILE` wrote, with its budget, batch, micro-batches and levers
    #[arg(long, value_name = "FILE", conflicts_with_all = ["budget", "micro_batches", "threads", "without"])]
    plan: Option<PathBuf>,

    /// Steps between two lines of progress [default: a twentieth of all]
    #[arg(long, value_name = "N", value_parser = count::<u64>, allow_negative_numbers = true)]
    log_every: Option<u64>,

    #[command(flatten)]
    progress: ProgressArgs,
}

/// A time between checkpoints.
#[derive(Clone, Copy, Debug)]
enum Every {
    Steps(u64),
    Minutes(f64),
}

fn schedule_help() -> String {
    let kinds = Schedule::KINDS.iter().map(|schedule| schedule.kind).collect::<Vec<_>>().join(", ");
    format!(
        "How the learning rate changes: {kinds}; or with settings, as run files have it: '{{ kind = \"step\", step_size = \"3 epochs\" \
         }}' [default: it stays]"
    )
}

pub(crate) fn metrics_help() -> String {
    let kinds = MetricKind::KINDS.iter().map(|metric| metric.kind).collect::<Vec<_>>().join(", ");
    format!("What is said of evaluations besides loss and accuracy, separated by commas: {kinds}")
}

/// The name of a schedule, or a table as run files have it.
fn schedule(text: &str) -> Result<Schedule, String> {
    let as_value =
        if text.trim_start().starts_with('{') { text.to_owned() } else { toml::Value::from(text).to_string() };
    let parsed = RunFile::parse_part::<Schedule>("schedule", &as_value)?;
    parsed.check().map_err(|error| error.to_string())?;
    Ok(parsed)
}

pub(crate) fn metric(text: &str) -> Result<MetricKind, String> {
    RunFile::parse_part("metric", &toml::Value::from(text.trim()).to_string())
}

fn every(text: &str) -> Result<Every, String> {
    let wrong = || "write a number of steps, or a time such as \"10 minutes\"".to_owned();
    let (number, unit) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), "steps"));
    match unit.trim() {
        "step" | "steps" => count(number).map(Every::Steps),
        "minute" | "minutes" | "min" => {
            let minutes = number.parse::<f64>().ok().filter(|minutes| (0.001..1e9).contains(minutes));
            minutes.map(Every::Minutes).ok_or_else(wrong)
        }
        _ => Err(wrong()),
    }
}

impl TrainArgs {
    pub(crate) fn model(&self) -> &OsStr {
        self.model.name()
    }

    /// All that the training is told: what flags say over what a run file says.
    fn run_file(&self) -> Result<RunFile, Failure> {
        let mut file = self.model.run_file()?;
        set(&mut file.budget.device, self.device.device.as_ref());
        set(&mut file.budget.threads, self.device.threads.as_ref());
        self.data.put_over(&mut file.data, &mut file.augment);
        set(&mut file.training.epochs, at_least_one(self.epochs).as_ref());
        set(&mut file.training.steps, at_least_one(self.steps).as_ref());
        set(&mut file.model.weights, self.weights.as_ref());
        file.model.skip_mismatched |= self.skip_mismatched;
        if file.model.skip_mismatched && file.model.weights.is_none() {
            return Err(Failure::bad_input("--skip-mismatched says how --weights are read: add --weights FILE"));
        }
        set(&mut file.schedule, self.schedule.as_ref());
        if let Some(length) = self.warmup {
            let schedule = file.schedule.take().unwrap_or_default();
            if matches!(schedule, Schedule::OneCycle { .. }) {
                return Err(Failure::bad_input("--warmup: the schedule one-cycle has a warm-up of its own, pct_start"));
            }
            file.schedule = Some(schedule.with_warmup(length, Warmup::new(length).start_factor));
        }
        set(&mut file.model.unfreeze_after, self.unfreeze_after.as_ref());
        if !self.metrics.is_empty() {
            file.metrics.evaluate.clone_from(&self.metrics);
        }
        if self.keep_last {
            file.data.drop_last = Some(false);
        }
        if self.validate {
            file.data.validation = Some(true);
        }
        if let Some(patience) = self.early_stopping {
            file.early_stopping = Some(EarlyStopping { patience, ..file.early_stopping.unwrap_or_default() });
        }
        match self.checkpoint_every {
            Some(Every::Steps(steps)) => file.checkpoint.every_steps = at_least_one(Some(steps)),
            Some(Every::Minutes(minutes)) => file.checkpoint.every_minutes = Some(minutes),
            None => {}
        }
        set(&mut file.checkpoint.keep, self.keep.and_then(std::num::NonZeroUsize::new).as_ref());
        set(&mut file.log.every, at_least_one(self.log_every).as_ref());
        if self.no_replan {
            file.budget.replan = Some(false);
        }
        if self.run.is_none() && !self.print_config && !self.find_lr {
            refuse_without_folder(&file)?;
        }
        Ok(file)
    }

    /// What --find-lr searches.
    fn search(&self) -> Result<Option<Search>, Failure> {
        if !self.find_lr {
            return Ok(None);
        }
        if self.progress.wants_screen() {
            return Err(Failure::bad_input("--tui shows a training, and --find-lr makes none: leave one out"));
        }
        let usual = LrRange::default();
        let (min_lr, max_lr) = self.lr_range.unwrap_or((usual.min_lr, usual.max_lr));
        let range = LrRange { min_lr, max_lr, steps: self.steps.unwrap_or(usual.steps) };
        let search = Search { range, svg: self.svg.clone() };
        search.check()?;
        Ok(Some(search))
    }
}

/// Refuses what needs a run folder where there is none.
fn refuse_without_folder(file: &RunFile) -> Result<(), Failure> {
    let logs = [file.log.csv, file.log.jsonl, file.log.tensorboard].contains(&Some(true));
    let what = if file.checkpoint != Default::default() {
        "checkpoints"
    } else if logs {
        "logs"
    } else {
        return Ok(());
    };
    Err(Failure::bad_input(format!("{what} are asked for, and there is no folder for them: add --run DIR")))
}

pub(crate) fn run(args: &TrainArgs, output: &Output) -> Result<u8, Failure> {
    let file = args.run_file()?;
    if args.print_config {
        return print_config(&file, output);
    }
    let data = folder(file.data.path.as_deref());
    let inputs = [
        overwrite::model(args.model()),
        ("the model of the run file", overwrite::model(file.model()).1),
        ("--plan", args.plan.as_deref()),
        ("--device", file.device().map(Path::new)),
    ];
    let outputs =
        [("--save", args.save.as_deref()), ("--trace", args.trace.as_deref()), ("--svg", args.svg.as_deref())];
    overwrite::refuse(&outputs, &inputs, Some(&data))?;
    trace::check(args.trace.as_deref())?;
    let find_lr = args.search()?;
    let run = args.run.as_deref().map(RunFolder::create).transpose()?;
    let (plan, save, trace) = (args.plan.clone(), args.save.clone(), args.trace.clone());
    let (no_calibrate, progress) = (args.device.no_calibrate, args.progress);
    session::run(Job { file, plan, save, trace, find_lr, no_calibrate, run, progress, checkpoint: None }, output)
}

/// Prints what the training would be told.
fn print_config(file: &RunFile, output: &Output) -> Result<u8, Failure> {
    let (_, config) = file.resolve(None)?;
    let text = file.resolved(&config)?.to_toml()?;
    output.text(text.trim_end());
    output.object(&serde_json::json!({"event": "config", "config": text}));
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_names_or_tables() {
        assert_eq!(schedule("cosine"), Ok(Schedule::cosine()));
        assert_eq!(
            schedule("{ kind = \"step\", step_size = \"3 epochs\", gamma = 0.5 }"),
            Ok(Schedule::step(Length::Epochs(3.0), 0.5))
        );
        let warm = Schedule::cosine().with_warmup(Length::Steps(5), Warmup::new(Length::Steps(5)).start_factor);
        assert_eq!(schedule(" { kind = \"cosine\", warmup = 5 }"), Ok(warm));
        for (text, words) in [
            ("cosin", "`cosine`"),
            ("", "unknown"),
            ("{ kind = \"step\" }", "step_size"),
            ("{ kind = \"step\", step_size = 3, gama = 0.5 }", "gamma"),
            ("{ kind = \"step\", step_size = 3, gamma = 0.0 }", "gamma = 0.0"),
            ("{ kind = \"step\"", ""),
            ("custom", "unknown"),
        ] {
            let error = schedule(text).expect_err(text);
            assert!(
                error.contains(words) && !error.contains("line 1") && error.lines().count() == 1,
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn checkpoints_come_after_steps_or_minutes() {
        let shown = |text: &str| every(text).map(|every| format!("{every:?}"));
        for (text, expected) in [
            ("500", "Steps(500)"),
            ("500 steps", "Steps(500)"),
            ("1 step", "Steps(1)"),
            ("10 minutes", "Minutes(10.0)"),
            ("1 minute", "Minutes(1.0)"),
            (" 0.5  min ", "Minutes(0.5)"),
        ] {
            assert_eq!(shown(text).as_deref(), Ok(expected), "{text}");
        }
        for text in
            ["", "0", "-1", "1.5", "0 minutes", "-1 minutes", "NaN minutes", "inf minutes", "10 hours", "minutes"]
        {
            assert!(every(text).is_err_and(|error| error.lines().count() == 1), "{text}");
        }
    }
}

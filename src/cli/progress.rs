//! How far training is: a bar on a terminal, otherwise a line now and then.

use std::io::{self, IsTerminal as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use tightfit::command::{format_value, plural};
use tightfit::device::{Compilation, watch_compilation};
use tightfit::error::TrainError;
use tightfit::plan::{format_bytes, format_ns};
use tightfit::train::{Callback, EpochReport, Evaluation, History, MetricValue, Replan, StepReport, Trainer};

use super::bar::{BAR, GAP, columns_beside, forms, message};
use super::notes;
use super::output::Output;
use super::tui::Screen;

/// Lines over a whole training where the user does not say how often.
const LINES: u64 = 20;
/// Silence that needs no explanation.
const PATIENCE: Duration = Duration::from_secs(1);

/// How progress is shown.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct ProgressArgs {
    /// Shows training on a full screen, with curves and the memory of a step, where this is a terminal; else in lines
    #[cfg(feature = "tui")]
    #[arg(long, conflicts_with = "json")]
    tui: bool,
}

impl ProgressArgs {
    pub(crate) fn wants_screen(self) -> bool {
        #[cfg(feature = "tui")]
        return self.tui;
        #[cfg(not(feature = "tui"))]
        false
    }
}

/// Follows a training: what a fit is told to call.
pub(crate) struct Progress<'a> {
    output: &'a Output,
    bar: Option<ProgressBar>,
    screen: Option<Screen>,
    total_steps: u64,
    every: u64,
    since_line: Mean,
    since_epoch: Mean,
    /// Of the last validation, for the bar.
    validation: Vec<String>,
    /// Planned peak and budget, the longest form first.
    memory: Vec<String>,
    /// The learning rate that was told last.
    lr: f64,
    stop: Arc<AtomicBool>,
    has_learned: bool,
}

/// Loss, accuracy and time over some steps.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    steps: u64,
    loss: f64,
    accuracy: Option<f64>,
    /// Steps whose times count: not the first of a training, in which drivers make ready what they need.
    timed: u64,
    step_ms: f64,
    first_ms: Option<f64>,
    samples: usize,
    /// Those of the steps that were skipped, and what the loss is scaled by.
    skipped: u64,
    loss_scale: Option<f32>,
}

impl Mean {
    fn add(&mut self, step: &StepReport, is_first: bool) {
        self.steps += 1;
        self.loss += f64::from(step.loss);
        self.samples = step.samples;
        self.skipped += u64::from(step.skipped);
        self.loss_scale = step.loss_scale;
        if is_first {
            self.first_ms = Some(step.step_ms);
        } else {
            self.timed += 1;
            self.step_ms += step.step_ms;
        }
        if let Some(accuracy) = step.accuracy {
            self.accuracy = Some(self.accuracy.unwrap_or(0.0) + f64::from(accuracy));
        }
    }

    fn per_step(self) -> Self {
        let n = self.steps.max(1) as f64;
        let step_ms = if self.timed > 0 { self.step_ms / self.timed as f64 } else { self.first_ms.unwrap_or(0.0) };
        Mean { loss: self.loss / n, accuracy: self.accuracy.map(|sum| sum / n), step_ms, ..self }
    }

    /// Samples a second, of a mean.
    fn samples_per_s(self) -> Option<f64> {
        (self.step_ms > 0.0).then(|| self.samples as f64 / self.step_ms * 1e3)
    }

    fn show(self) -> String {
        let mean = self.per_step();
        let time = format_ns(mean.step_ms * 1e6);
        let mut words = scores("", mean.loss, mean.accuracy);
        words.extend(self.skipped_words());
        words.push(format!("{time}/step"));
        words.join(GAP)
    }

    /// That steps were skipped, where some were.
    fn skipped_words(self) -> Option<String> {
        let skipped = Some(self.skipped).filter(|skipped| *skipped > 0)?;
        let at = self.loss_scale.map(|scale| format!(" (loss scale {})", format_value(scale.into())));
        Some(format!("{} skipped{}", plural(skipped as usize, "step"), at.unwrap_or_default()))
    }
}

/// Loss and accuracy in words, each name after this.
fn scores(prefix: &str, loss: f64, accuracy: Option<f64>) -> Vec<String> {
    let accuracy = accuracy.map(|accuracy| format!("{prefix}accuracy {:.2}%", accuracy * 100.0));
    std::iter::once(format!("{prefix}loss {loss:.4}")).chain(accuracy).collect()
}

/// What a validation came to, in words.
fn validated(evaluation: &Evaluation) -> Vec<String> {
    let metrics = evaluation.metrics.iter().filter(|(name, _)| name != "accuracy");
    let metrics = metrics.filter_map(|(name, value)| Some(format!("val_{name} {:.4}", value.scalar()?)));
    scores("val_", evaluation.loss, evaluation.accuracy).into_iter().chain(metrics).collect()
}

/// The metrics of an evaluation for JSON: a list, since their names are the user's.
pub(crate) fn metric_values(evaluation: &Evaluation) -> Value {
    let number = |number: &Option<f64>| number.map_or(Value::Null, finite);
    let value = |value: &MetricValue| match value {
        MetricValue::Number(value) => finite(*value),
        MetricValue::PerClass(values) => values.iter().map(number).collect(),
        MetricValue::Matrix(rows) => json!(rows),
    };
    evaluation.metrics.iter().map(|(name, of)| json!({"name": name, "value": value(of)})).collect()
}

impl<'a> Progress<'a> {
    /// `every` is how many steps lie between two lines; `None` for about 20 lines in all. Curves go on from `history`. A reader that leaves sets `stop`.
    pub(crate) fn new(
        output: &'a Output,
        args: ProgressArgs,
        trainer: &Trainer,
        total_steps: u64,
        every: Option<u64>,
        history: History,
        stop: &Arc<AtomicBool>,
    ) -> Self {
        let screen = args.wants_screen().then(|| Screen::start(trainer, history, stop)).flatten();
        let bar = has_bar(output).then(|| bar(total_steps, BAR));
        Progress {
            output,
            bar,
            screen,
            total_steps,
            every: every.unwrap_or(total_steps / LINES).max(1),
            since_line: Mean::default(),
            since_epoch: Mean::default(),
            validation: Vec::new(),
            memory: memory(trainer),
            lr: trainer.lr(),
            stop: Arc::clone(stop),
            has_learned: false,
        }
    }

    /// Whether a step was made.
    pub(crate) fn has_learned(&self) -> bool {
        self.has_learned
    }

    fn step(&mut self, step: &StepReport) {
        let is_first = !std::mem::replace(&mut self.has_learned, true);
        self.since_line.add(step, is_first);
        self.since_epoch.add(step, is_first);
        let is_last_of_epoch = step.step.is_multiple_of(step.steps_per_epoch);
        if let Some(screen) = &self.screen {
            screen.step(step);
        }
        if let Some(bar) = &self.bar {
            let mean = self.since_line.per_step();
            let rate = mean.samples_per_s().map(|rate| format!("{rate:.0} samples/s"));
            let scores = scores("", mean.loss, mean.accuracy);
            bar.set_position(step.step);
            let columns = columns_beside(bar, self.total_steps, self.output.width());
            bar.set_message(message(&scores, rate.as_ref(), &self.memory, &self.validation, columns));
        }
        if step.step.is_multiple_of(self.every) || step.step == self.total_steps {
            if self.bar.is_none() && self.screen.is_none() && !is_last_of_epoch {
                let width = self.total_steps.to_string().len();
                self.output.text(format_args!(
                    "step {:>width$}/{}  {}",
                    step.step,
                    self.total_steps,
                    self.since_line.show()
                ));
            }
            self.output.object(&json!({
                "event": "step", "step": step.step, "epoch": step.epoch, "loss": step.loss, "accuracy": step.accuracy,
                "grad_norm": step.grad_norm.map(|norm| finite(norm.into())), "loss_scale": step.loss_scale,
                "skipped_steps": step.skipped_steps, "lr": step.lr, "step_ms": step.step_ms,
                "samples_per_s": self.since_line.per_step().samples_per_s(),
            }));
            self.since_line = Mean::default();
        }
    }

    fn line(&self, line: impl std::fmt::Display) {
        match &self.bar {
            Some(bar) => bar.suspend(|| self.output.text(line)),
            None => self.output.text(line),
        }
    }

    fn epoch(&mut self, report: &EpochReport) {
        self.validation = report.validation.as_ref().map(validated).unwrap_or_default();
        let mean = self.since_epoch.per_step();
        // Also where a part of the epoch was made before training was interrupted.
        let mut words = vec![format!("epoch {}", report.epoch), format!("step {}", report.step)];
        words.extend(scores("", report.train_loss, report.train_accuracy));
        words.extend_from_slice(&self.validation);
        if std::mem::replace(&mut self.lr, report.lr) != report.lr {
            words.push(format!("lr {}", format_value(report.lr)));
        }
        words.extend(self.since_epoch.skipped_words());
        words.push(format!("{}/step", format_ns(mean.step_ms * 1e6)));
        self.line(words.join(GAP));
        let validation = report.validation.as_ref();
        self.output.object(&json!({
            "event": "epoch", "epoch": report.epoch, "step": report.step,
            "train_loss": finite(report.train_loss), "train_accuracy": report.train_accuracy,
            "skipped_steps": report.skipped_steps,
            "val_loss": validation.map(|evaluation| finite(evaluation.loss)),
            "val_accuracy": validation.and_then(|evaluation| evaluation.accuracy),
            "val_metrics": validation.map(metric_values),
            "lr": report.lr, "step_ms_mean": mean.step_ms, "samples_per_s": mean.samples_per_s(),
        }));
        self.since_epoch = Mean::default();
    }
}

/// The planned peak, and the budget where there is one: the longest form first.
fn memory(trainer: &Trainer) -> Vec<String> {
    forms(trainer.plan().peak_bytes, trainer.plan().budget_bytes)
}

impl Callback for Progress<'_> {
    fn name(&self) -> &'static str {
        "progress"
    }

    fn on_step_end(&mut self, _: &mut Trainer, step: &StepReport) -> Result<(), TrainError> {
        self.step(step);
        if self.output.is_closed() {
            self.stop.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn on_epoch_end(&mut self, _: &mut Trainer, epoch: &EpochReport) -> Result<(), TrainError> {
        self.epoch(epoch);
        if let Some(screen) = &self.screen {
            screen.epoch(epoch);
        }
        Ok(())
    }

    /// What happened was said as a warning.
    fn on_replan(&mut self, trainer: &mut Trainer, replan: &Replan) -> Result<(), TrainError> {
        self.memory = memory(trainer);
        if let Some(screen) = &self.screen {
            screen.replan(trainer);
        }
        (self.since_line, self.since_epoch) = (Mean::default(), Mean::default());
        self.output.object(&json!({
            "event": "replan", "reason": replan.reason, "at_step": replan.at_step, "from_step": replan.from_step,
            "planned_peak_bytes": replan.peak_bytes.1, "micro_batches": replan.micro_batches.1,
        }));
        Ok(())
    }

    fn on_reconfigure(&mut self, trainer: &mut Trainer) -> Result<(), TrainError> {
        self.memory = memory(trainer);
        if let Some(screen) = &self.screen {
            screen.replan(trainer);
        }
        let (step, frozen, plan) = (trainer.steps(), trainer.frozen().len(), trainer.plan());
        let trained = if frozen == 0 {
            "all parameters are".to_owned()
        } else {
            format!("all but {} are", plural(frozen, "parameter"))
        };
        self.line(format_args!("after step {step} {trained} trained: planned peak {}", format_bytes(plan.peak_bytes)));
        self.output.object(&json!({
            "event": "reconfigure", "step": step, "frozen": frozen, "planned_peak_bytes": plan.peak_bytes,
            "micro_batches": plan.micro_batches.len(),
        }));
        Ok(())
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Says that kernels are compiled: with a bar on a terminal, otherwise in a line where it takes longer than a second.
pub(crate) fn show_compilation(output: &Output) {
    let output = output.clone();
    let state: Mutex<(Option<Instant>, Option<ProgressBar>)> = Mutex::default();
    watch_compilation(move |Compilation { done, total }| {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let (start, shown) = &mut *state;
        if done == 0 {
            drop(EndPlanning);
            *start = Some(Instant::now());
            *shown = has_bar(&output).then(|| bar(total as u64, "{bar:30} compiling kernels {pos}/{len}"));
        }
        if let Some(bar) = shown {
            bar.set_position(done as u64);
            if done >= total {
                bar.finish_and_clear();
            }
        } else if done < total && start.is_some_and(|start| start.elapsed() > PATIENCE) {
            output.text(format_args!("compiling kernels {done}/{total}"));
            *start = None;
        }
    });
}

fn has_bar(output: &Output) -> bool {
    output.is_terminal() && io::stderr().is_terminal() && !notes::is_on()
}

/// All that is drawn, so that what is shown at the same time takes lines of its own.
static DRAWN: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

fn bar(length: u64, template: &str) -> ProgressBar {
    let bar = DRAWN.add(ProgressBar::new(length));
    bar.set_style(ProgressStyle::with_template(template).expect("bug: the bar's template is wrong"));
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

/// While plans are made and that may be shown: dropping it ends that.
static PLANNING: Mutex<Option<Sender<()>>> = Mutex::new(None);

struct EndPlanning;

impl Drop for EndPlanning {
    fn drop(&mut self) {
        PLANNING.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Makes plans, with a sign that this goes on where it takes long and someone is watching. What `make` does after them, from the
/// first kernel that it compiles on, is not planning any more.
pub(crate) fn planning<T>(output: &Output, make: impl FnOnce() -> T) -> T {
    spinning(output, "planning", make)
}

/// Measures a device, with a sign as [`planning`] has.
pub(crate) fn measuring<T>(output: &Output, measure: impl FnOnce() -> T) -> T {
    spinning(output, "measuring the device, once", measure)
}

fn spinning<T>(output: &Output, doing: &'static str, make: impl FnOnce() -> T) -> T {
    if !has_bar(output) {
        return make();
    }
    let (planning, ended) = mpsc::channel();
    *PLANNING.lock().unwrap_or_else(PoisonError::into_inner) = Some(planning);
    thread::scope(|scope| {
        // Where there is no memory for a thread, plans are made without a sign.
        let _ = thread::Builder::new().spawn_scoped(scope, move || {
            if ended.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let style = ProgressStyle::with_template(&format!("{{spinner}} {doing}, {{elapsed}}"));
            let style = style.expect("bug: the spinner's template is wrong");
            let spinner = DRAWN.add(ProgressBar::new_spinner()).with_style(style).with_elapsed(PATIENCE);
            spinner.enable_steady_tick(Duration::from_millis(125));
            // The other end goes away then.
            let _ = ended.recv();
            spinner.finish_and_clear();
        });
        let _ended = EndPlanning;
        make()
    })
}

/// Follows samples that are tested; hidden where this is no terminal.
pub(crate) fn samples_bar(output: &Output, samples: usize) -> ProgressBar {
    if !has_bar(output) {
        return ProgressBar::hidden();
    }
    bar(samples as u64, "{wide_bar} {pos}/{len} samples tested  {eta} left")
}

/// Follows files that are looked at; hidden where this is no terminal.
pub(crate) fn files_bar(output: &Output) -> ProgressBar {
    if has_bar(output) { bar(0, "{wide_bar} {pos}/{len} files  {eta} left") } else { ProgressBar::hidden() }
}

/// Follows steps of which a message tells; hidden where this is no terminal.
pub(crate) fn steps_bar(output: &Output, steps: u64) -> ProgressBar {
    if has_bar(output) { bar(steps, BAR) } else { ProgressBar::hidden() }
}

/// A share in words.
pub(crate) fn percent(share: Option<impl Into<f64>>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.2}%", share.into() * 100.0))
}

/// A number that may not exist.
pub(crate) fn finite(x: f64) -> Value {
    if x.is_finite() { json!(x) } else { Value::Null }
}

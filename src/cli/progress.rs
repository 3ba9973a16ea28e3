//! How far training is: a bar on a terminal, otherwise a line now and then.

use std::io::{self, IsTerminal as _};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use tightfit::device::{Compilation, watch_compilation};
use tightfit::plan::format_ns;
use tightfit::train::StepReport;

use super::output::Output;

/// Lines over a whole training where the user does not say how often.
const LINES: u64 = 20;
/// Silence that needs no explanation.
const PATIENCE: Duration = Duration::from_secs(1);

/// Follows the steps of a training.
pub(crate) struct Progress<'a> {
    output: &'a Output,
    bar: Option<ProgressBar>,
    total_steps: u64,
    every: u64,
    since_line: Mean,
    since_epoch: Mean,
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
}

impl Mean {
    fn add(&mut self, step: &StepReport) {
        self.steps += 1;
        self.loss += f64::from(step.loss);
        if step.step == 1 {
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

    fn show(self) -> String {
        let mean = self.per_step();
        let accuracy = mean.accuracy.map(|accuracy| format!("  accuracy {:.2}%", accuracy * 100.0));
        let time = format_ns(mean.step_ms * 1e6);
        format!("loss {:.4}{}  {time}/step", mean.loss, accuracy.unwrap_or_default())
    }
}

impl<'a> Progress<'a> {
    /// `every` is how many steps lie between two lines; `None` for about 20 lines in all.
    pub(crate) fn new(output: &'a Output, total_steps: u64, every: Option<u64>) -> Self {
        let bar = has_bar(output).then(|| bar(total_steps, "{wide_bar} {pos}/{len}  {msg}  {eta} left"));
        Progress {
            output,
            bar,
            total_steps,
            every: every.unwrap_or(total_steps / LINES).max(1),
            since_line: Mean::default(),
            since_epoch: Mean::default(),
        }
    }

    pub(crate) fn step(&mut self, step: &StepReport) {
        self.since_line.add(step);
        self.since_epoch.add(step);
        let is_last_of_epoch = step.step.is_multiple_of(step.steps_per_epoch);
        if let Some(bar) = &self.bar {
            bar.set_position(step.step);
            bar.set_message(self.since_line.show());
        }
        if step.step.is_multiple_of(self.every) || step.step == self.total_steps {
            if self.bar.is_none() && !is_last_of_epoch {
                let width = self.total_steps.to_string().len();
                self.output.text(format_args!(
                    "step {:>width$}/{}  {}",
                    step.step,
                    self.total_steps,
                    self.since_line.show()
                ));
            }
            self.output.object(&json!({
                "event": "step", "step": step.step, "epoch": step.epoch,
                "loss": step.loss, "accuracy": step.accuracy, "step_ms": step.step_ms,
            }));
            self.since_line = Mean::default();
        }
        if is_last_of_epoch {
            self.epoch(step.epoch, step.step);
        }
    }

    fn epoch(&mut self, epoch: u64, step: u64) {
        let line = format!("epoch {epoch}  step {step}  {}", self.since_epoch.show());
        match &self.bar {
            Some(bar) => bar.suspend(|| self.output.text(line)),
            None => self.output.text(line),
        }
        let mean = self.since_epoch.per_step();
        self.output.object(&json!({
            "event": "epoch", "epoch": epoch, "step": step,
            "train_loss": mean.loss, "train_accuracy": mean.accuracy, "step_ms_mean": mean.step_ms,
        }));
        self.since_epoch = Mean::default();
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
    output.is_terminal() && io::stderr().is_terminal()
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

/// A number for JSON, rounded to what a reader can use.
pub(crate) fn percent(share: Option<impl Into<f64>>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.2}%", share.into() * 100.0))
}

/// A number that may not exist.
pub(crate) fn finite(x: f64) -> Value {
    if x.is_finite() { json!(x) } else { Value::Null }
}

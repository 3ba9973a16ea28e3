//! What a training came to, in words and in JSON.

use std::path::Path;

use serde_json::json;
use tightfit::command::plural;
use tightfit::plan::{format_bytes, format_ns};
use tightfit::train::{Evaluation, FitReport, Trainer};

use super::failure::Failure;
use super::memory::Memory;
use super::output::{Output, shown_if_any};
use super::progress::{finite, metric_values, percent};
use super::run_folder::RunFolder;

/// What the summary tells beside the training.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Besides<'a> {
    pub(crate) saved: Option<&'a Path>,
    pub(crate) data_bytes: Option<u64>,
    /// Whether the plan's times were measured on a device.
    pub(crate) is_measured: bool,
    pub(crate) run: Option<&'a RunFolder>,
    /// The step of the checkpoint that it went on from.
    pub(crate) resumed_at: Option<u64>,
}

/// Says how a training went. `tested` is `None` where there was nothing to test it on, and `Some(None)` where that was interrupted.
pub(crate) fn summarize(
    trainer: &mut Trainer,
    report: &FitReport,
    tested: Option<Option<&Evaluation>>,
    Besides { saved, data_bytes, is_measured, run, resumed_at }: Besides<'_>,
    output: &Output,
) -> Result<(), Failure> {
    let base_bytes = trainer.base_bytes().zip(data_bytes).map(|(base, data)| base.saturating_sub(data));
    let memory = Memory::of(trainer, base_bytes, data_bytes);
    let compiled = trainer.compiled();
    let sha256 = trainer.with_averages(Trainer::parameters_sha256)?;
    let plan = trainer.plan();
    let (planned, measured) = (plan.peak_bytes, trainer.measured_peak_bytes());
    let budget = plan.budget_bytes;
    if measured != planned {
        return Err(Failure::failed(format!(
            "the measured peak of {measured} bytes is not the planned peak of {planned} bytes: this is a defect of tightfit"
        )));
    }
    if report.interrupted {
        output.text(format_args!("interrupted after step {}", report.steps));
        if let Some(run) = run {
            output.text(format_args!("`tightfit resume {}` goes on from there", run.path().display()));
        }
    } else if let Some(reason) = &report.stopped {
        output.text(format_args!("stopped after step {}: {reason}", report.steps));
    }
    let evaluation = tested.flatten();
    let is_interrupted = report.interrupted || matches!(tested, Some(None));
    if matches!(tested, Some(None)) {
        output.text("interrupted while testing");
    }
    let milliseconds = |ms: f64| format_ns(ms * 1e6);
    let predicted_ms = plan.predicted_step_ns as f64 / 1e6;
    let prediction_error = predicted_ms / report.step_ms_median - 1.0;
    if report.steps == 0 {
        output.text("no step was made");
    } else {
        output.text(format_args!(
            "{}, {} a step (median), training loss {:.4}, training accuracy {}",
            plural(report.steps as usize, "step"),
            milliseconds(report.step_ms_median),
            report.train_loss,
            percent(report.train_accuracy)
        ));
        if let Some(skipped) = report.skipped_steps.filter(|skipped| *skipped > 0) {
            let skipped = plural(skipped as usize, "step");
            output.text(format_args!("skipped {skipped}, in which a gradient was not finite"));
        }
        let kernels = match compiled.kernels {
            0 => String::new(),
            kernels => {
                format!("compiled {} in {:.1} s, ", plural(kernels, "kernel"), compiled.time.as_secs_f64())
            }
        };
        let first = milliseconds(report.first_step_ms);
        output.text(format_args!("{kernels}first step {first} (not in the median)"));
        output.text(format_args!(
            "predicted {} a step: measured {:.2} times that{}",
            milliseconds(predicted_ms),
            report.step_ms_median / predicted_ms,
            if is_measured { "" } else { " (costs that were not measured)" }
        ));
    }
    if let Some(evaluation) = evaluation {
        output.text(format_args!("test: {evaluation}"));
    } else if !is_interrupted {
        output.text("not tested: --val 0.2 or --test 0.2 holds samples back");
    }
    let limit = budget
        .map_or_else(|| "no budget".to_owned(), |budget| format!("budget {budget} bytes ({})", format_bytes(budget)));
    let relation = if budget.is_some() { " ≤ " } else { ", " };
    output.text(format_args!(
        "measured peak = planned peak = {planned} bytes ({}){relation}{limit}",
        format_bytes(planned)
    ));
    if let Some(memory) = memory {
        output.text(format_args!("process {}", memory.text()));
    }
    output.text(format_args!("parameters {sha256}"));
    if let Some(path) = saved {
        output.text(format_args!("saved to {}", path.display()));
    }
    let summary = json!({
        "event": "summary",
        "model": trainer.model().name(),
        "device": trainer.device_name(),
        "budget_bytes": budget,
        "planned_peak_bytes": planned,
        "measured_peak_bytes": measured,
        "micro_batches": plan.micro_batches.len(),
        "steps": report.steps,
        "epochs": report.epochs,
        "skipped_steps": report.skipped_steps,
        "step_ms_median": finite(report.step_ms_median),
        "first_step_ms": finite(report.first_step_ms),
        "kernels": compiled.kernels,
        "compile_ms": compiled.time.as_secs_f64() * 1e3,
        "process": memory.map(Memory::to_json),
        "predicted_step_ms": predicted_ms,
        "measured_step_ms": finite(report.step_ms_median),
        "prediction_error": finite(prediction_error),
        "train_loss": finite(f64::from(report.train_loss)),
        "train_accuracy": report.train_accuracy,
        "test_loss": evaluation.map(|evaluation| evaluation.loss),
        "test_accuracy": evaluation.and_then(|evaluation| evaluation.accuracy),
        "test_metrics": evaluation.map(metric_values),
        "test_samples": evaluation.map(|evaluation| evaluation.samples),
        "parameters_sha256": sha256,
        "interrupted": is_interrupted,
        "stopped": report.stopped,
        "resumed_at": resumed_at,
        "run": shown_if_any(run.map(RunFolder::path)),
        "saved": shown_if_any(saved),
    });
    output.object(&summary);
    run.map_or(Ok(()), |run| run.write_summary(&summary))
}

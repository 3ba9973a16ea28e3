//! What a screen shows.

use std::time::{Duration, Instant};

use tightfit::plan::{ArenaRole, Lever, MicroBatchMemory, Planned};
use tightfit::train::{EpochReport, History, StepReport};

/// Steps over which times are averaged.
const RECENT: f64 = 50.0;

/// A training, and how far it is. Its size does not depend on the number of steps.
pub(super) struct State {
    pub(super) model: String,
    pub(super) device: String,
    pub(super) memory: Memory,
    /// A curve of each value that steps report, and the values of each epoch.
    pub(super) history: History,
    /// The last step.
    pub(super) step: Option<StepReport>,
    /// Steps that were made since the screen began.
    steps: u64,
    /// Mean time of the last steps, but for the first of all, in which drivers make ready what they need.
    pub(super) step_ms: Option<f64>,
    start: Instant,
    /// How far keys went on along the curves.
    pub(super) chosen: i64,
    /// Training was asked to end.
    pub(super) is_ending: bool,
    /// Something is not on the screen yet.
    pub(super) is_new: bool,
}

/// What the plan says of memory.
pub(super) struct Memory {
    pub(super) budget_bytes: Option<u64>,
    pub(super) peak_bytes: u64,
    /// Samples of each micro-batch.
    pub(super) micro_batches: Vec<usize>,
    /// What is done to keep to the budget.
    pub(super) levers: Vec<String>,
    /// What is the same at every moment, by what it is.
    pub(super) fixed: Vec<(String, u64)>,
    pub(super) of_step: Vec<MicroBatchMemory>,
}

impl Memory {
    pub(super) fn of(planned: &Planned) -> Self {
        let plan = &planned.plan;
        let mut levers = Vec::new();
        for (verb, lever) in [("recomputed", Lever::Recompute), ("offloaded", Lever::Offload)] {
            let tensors = plan.lever(lever).tensors;
            if tensors > 0 {
                levers.push(format!("{tensors} {verb}"));
            }
        }
        levers.extend(plan.saved_words());
        let roles = [ArenaRole::Parameters, ArenaRole::Buffers, ArenaRole::State, ArenaRole::Accumulators];
        let mut fixed: Vec<_> = roles.into_iter().map(|role| (role.to_string(), plan.arena_bytes(role))).collect();
        fixed.push(("other".to_owned(), plan.staging.total_bytes().saturating_add(plan.baseline_bytes)));
        Memory {
            budget_bytes: plan.budget_bytes,
            peak_bytes: plan.peak_bytes,
            micro_batches: plan.micro_batches.clone(),
            levers,
            fixed,
            of_step: planned.step_memory(),
        }
    }
}

impl State {
    /// With the history of what was trained before, if there is any.
    pub(super) fn new(model: &str, device: &str, memory: Memory, history: History) -> Self {
        State {
            model: model.to_owned(),
            device: device.to_owned(),
            memory,
            history,
            step: None,
            steps: 0,
            step_ms: None,
            start: Instant::now(),
            chosen: 0,
            is_ending: false,
            is_new: true,
        }
    }

    pub(super) fn step(&mut self, step: &StepReport) {
        self.history.push_step(step.step, &step.values());
        if self.steps > 0 {
            let weight = 1.0 / (self.steps as f64).min(RECENT);
            let mean = self.step_ms.unwrap_or(0.0);
            self.step_ms = Some(mean + (step.step_ms - mean) * weight);
        }
        self.steps += 1;
        self.step = Some(*step);
        self.is_new = true;
    }

    pub(super) fn epoch(&mut self, epoch: &EpochReport) {
        let values = epoch.values();
        let values: Vec<_> = values.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        self.history.push_epoch(epoch.epoch, epoch.step, &values);
        self.is_new = true;
    }

    /// Since the screen began.
    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    pub(super) fn samples_per_s(&self) -> Option<f64> {
        let step_ms = self.step_ms.filter(|step_ms| *step_ms > 0.0)?;
        Some(self.step?.samples as f64 / step_ms * 1e3)
    }

    /// Time that is left, if steps go on to take what they took.
    pub(super) fn left(&self) -> Option<Duration> {
        let step = self.step?;
        let left = step.total_steps.saturating_sub(step.step) as f64;
        Duration::try_from_secs_f64(left * self.step_ms? / 1e3).ok()
    }

    /// The names of what curves there are, loss first; values of validation belong to those of training.
    pub(super) fn curves(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for name in self.history.names() {
            let name = name.strip_prefix("val_").unwrap_or(name);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let order = |name: &&str| match *name {
            "loss" => 0,
            "accuracy" => 1,
            "lr" => 3,
            "grad_norm" => 4,
            "loss_scale" => 5,
            "skipped_steps" => 6,
            _ => 2,
        };
        names.sort_by_key(order);
        names
    }

    /// The last value of validation.
    pub(super) fn validation(&self, name: &str) -> Option<f64> {
        let name = format!("val_{name}");
        self.history.epochs().iter().rev().find_map(|record| record.values.get(&name).copied())
    }
}

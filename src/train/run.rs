//! Where a fit is: what a checkpoint must know to go on with it.

use serde::{Deserialize, Serialize};

use super::history::History;
use super::monitor::Best;
use super::trainer::StepOutcome;
use crate::data::StreamState;

/// How far a fit has come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Run {
    /// Samples that it trains on; 0 of a stream.
    pub(super) samples: usize,
    /// Where a stream is.
    #[serde(default)]
    pub(super) stream: Option<StreamState>,
    /// Epochs that were begun before it: they decide the order of samples.
    pub(super) first_epoch: u64,
    /// Epochs that are done, with all that follows their last step.
    pub(super) epochs: u64,
    /// Batches of the epoch at hand that are done.
    pub(super) batches: u64,
    /// Steps.
    pub(super) steps: u64,
    /// Those of them that were skipped.
    #[serde(default)]
    pub(super) skipped_steps: u64,
    /// Of the epoch at hand.
    pub(super) sums: Sums,
    /// Of the last steps of the last epoch that was begun.
    pub(super) means: Means,
    /// The best epoch so far, by what [`Checkpoints::best`](super::Checkpoints::best) watches.
    pub(super) best: Best,
    pub(super) history: History,
    /// Why it ended, once it has.
    pub(super) finished: Option<String>,
}

/// Sums over the steps of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Sums {
    loss: f64,
    /// Batches; a short one counts by its samples.
    weight: f64,
    correct: f64,
    counted: f64,
}

/// What they come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Means {
    pub(super) loss: Option<f64>,
    pub(super) accuracy: Option<f64>,
}

impl Run {
    pub(super) fn new(samples: usize, first_epoch: u64) -> Self {
        Run {
            samples,
            stream: None,
            first_epoch,
            epochs: 0,
            batches: 0,
            steps: 0,
            skipped_steps: 0,
            sums: Sums::default(),
            means: Means::default(),
            best: Best::default(),
            history: History::default(),
            finished: None,
        }
    }

    /// Adds a step on a batch of which this share is filled.
    pub(super) fn add(&mut self, outcome: &StepOutcome, share: f64) {
        self.steps += 1;
        self.skipped_steps += u64::from(outcome.skipped);
        self.batches += 1;
        let Sums { loss, weight, correct, counted } = &mut self.sums;
        *loss += f64::from(outcome.loss) * share;
        *weight += share;
        if let Some((right, of)) = outcome.correct {
            *correct += right;
            *counted += of;
        }
        let accuracy = (*counted > 0.0).then(|| *correct / *counted);
        self.means = Means { loss: Some(*loss / *weight), accuracy };
    }

    /// The epoch at hand is done.
    pub(super) fn next_epoch(&mut self) {
        self.epochs += 1;
        self.batches = 0;
        self.sums = Sums::default();
    }
}

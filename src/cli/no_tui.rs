//! In place of a screen, where the feature `tui` is off.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tightfit::train::{EpochReport, History, StepReport, Trainer};

/// There is none.
pub(crate) enum Screen {}

impl Screen {
    pub(crate) fn start(_: &Trainer, _: History, _: &Arc<AtomicBool>) -> Option<Screen> {
        None
    }

    pub(crate) fn step(&self, _: &StepReport) {
        match *self {}
    }

    pub(crate) fn epoch(&self, _: &EpochReport) {
        match *self {}
    }

    pub(crate) fn replan(&self, _: &Trainer) {
        match *self {}
    }
}

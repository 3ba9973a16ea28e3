//! What a step runs in which order, what is recomputed, and what moves to the host tier and back.

mod bound;
mod graph_problem;
mod offload;
pub(super) mod solver;

use std::rc::Rc;

pub(super) use bound::step_bound;
pub(super) use graph_problem::GraphProblem;
pub(super) use offload::OffloadPolicy;
use solver::Entry;

use super::candidate::{Candidate, ProgramGraph};
use crate::tensor::{NodeId, ValueId};

/// What happens at one time of a program's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A node runs, for the first time or again.
    Run(NodeId),
    /// A root comes back from the host tier.
    Fetch(ValueId),
}

/// A candidate with what each of its programs does.
#[derive(Clone, Debug)]
pub(super) struct Schedule<'a> {
    pub(super) candidate: Rc<Candidate<'a>>,
    pub(super) offload: OffloadPolicy,
    /// What happens in each program.
    pub(super) events: Vec<Vec<Event>>,
    /// The same as the solver's sequences, from which other searches can start; none where nothing is recomputed or moves.
    pub(super) sequences: Option<Vec<Vec<Entry>>>,
}

impl<'a> Schedule<'a> {
    /// Every node once, everything on the device.
    pub(super) fn plain(candidate: &Rc<Candidate<'a>>) -> Self {
        let run = |program: &ProgramGraph| program.order.iter().map(|&node| Event::Run(node)).collect();
        let events = candidate.programs.iter().map(run).collect();
        Schedule { candidate: candidate.clone(), offload: OffloadPolicy::default(), events, sequences: None }
    }

    /// Whether every node runs once and everything stays on the device.
    pub(super) fn is_plain(&self) -> bool {
        self.sequences.is_none()
    }
}

//! The search for layouts: which candidate, and which schedule of it, takes least time within a budget.

mod allowance;
mod ends;
mod fastest;
mod fit;
mod frontier;
mod smallest;

pub(super) use allowance::Allowance;
pub(super) use ends::{Ends, Unconstrained};
pub(super) use frontier::Frontier;

use super::layout::placement::MOST_WORK;
use super::schedule::solver::Effort;

/// Work of the local search on one program, in units of [`Effort::search_work`].
const SEARCH_WORK: u64 = 400_000_000;
/// What a node of a program takes to build the problem of its schedule and its layout, in units of work.
const NODE_WORK: u64 = 1_500;
/// Times that a schedule is made for less memory because blocks did not pack as tightly as their sum.
pub(super) const PACKING_TRIES: usize = 6;

/// How hard to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// Of quick looks there are many.
    Quick,
    /// What is promising is looked at once more.
    Thorough,
}

impl Depth {
    /// By how much work is less than the most that is worth it.
    fn divisor(self) -> u64 {
        match self {
            Depth::Quick => 12,
            Depth::Thorough => 3,
        }
    }

    /// Work of packing one program.
    pub(super) fn pack_work(self) -> u64 {
        MOST_WORK / self.divisor()
    }

    /// The work of bounds for so many operations.
    pub(super) fn bound_work(self, operations: usize) -> usize {
        match self {
            Depth::Quick => 4 * operations.max(500),
            Depth::Thorough => 60_000.max(12 * operations),
        }
    }

    /// The effort for so many operations, with a share of what may still be done at most.
    pub(super) fn effort(self, operations: usize, allowance: &Allowance) -> Effort {
        let squared = (operations * operations) as u64;
        let share = match self {
            Depth::Quick => 8,
            Depth::Thorough => 2,
        };
        let search_work = ((squared * 20_000).min(SEARCH_WORK) / self.divisor()).min(allowance.left() / share);
        Effort { search_work, bound_work: self.bound_work(operations), good_enough: 0.001 }
    }
}

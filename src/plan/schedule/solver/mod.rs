//! The solver for recompute and offload: sequences of events that keep to a budget at little cost. Knows nothing of graphs,
//! devices or tensors.

mod bound;
mod chain;
mod cut;
mod flow;
mod problem;
mod search;
mod seeds;
mod sequence;
mod solve;
mod tables;
mod tracker;

pub(crate) use bound::{LowerBound, certificate};
pub(crate) use problem::{OperationSpec, Problem, Resident, Transfer, Value};
pub(crate) use sequence::{Entry, Event};
pub(crate) use solve::{Effort, Known, Solution, least_peak, low_peak, solve_from};

#[cfg(test)]
mod chain_tests;
#[cfg(test)]
mod exact_tests;
#[cfg(test)]
mod published_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use testing::sequences;

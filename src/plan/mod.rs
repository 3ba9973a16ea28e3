//! The planner: from graphs and a memory budget to a [`Plan`], inert data that says what runs when and at which offset every value
//! lies. [`Display`](std::fmt::Display) prints it; [`check()`] replays it.
//!
//! A `Candidate` is a number of micro-batches and a form of the graphs. A `Schedule` of it says what runs, is recomputed and
//! is fetched in which order, a `Layout` of that where every byte lies, and a [`Plan`] is a layout written as commands.
//! `search/` makes many layouts and compares them; [`plan()`] leads.
//!
//! Pure: no device, no clock, no randomness, no I/O.

#[cfg(test)]
mod account_tests;
#[cfg_attr(not(feature = "cli"), allow(dead_code))]
pub(crate) mod bench;
mod candidate;
mod check;
mod class;
mod costs;
mod data;
mod emit;
mod explain;
mod infeasible;
mod layout;
mod planner;
mod possible;
mod reasons;
mod regression;
mod request;
mod restore;
mod schedule;
mod search;
mod sweep;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod toy;

pub(crate) use candidate::microbatch::mixing;
pub use check::check;
pub use class::DeviceClass;
pub(crate) use class::NATIVE;
pub(crate) use costs::cost_name;
pub use costs::{CopyRates, CostModel, OpRates, Work};
pub use data::{
    Allocation, Arena, ArenaRole, Bound, Command, Lever, Persistent, Plan, Planned, Program, Reason, Staging,
};
pub use explain::{
    LeverUse, MemoryMoment, MicroBatchMemory, RunTimes, StepTimes, Table, format_bytes, format_ns, format_parts,
};
pub use planner::plan;
pub(crate) use possible::is_possible;
pub use request::{Levers, Limits, Request, Source};
pub(crate) use restore::restore;
pub use sweep::Largest;
pub(crate) use sweep::{largest, sweep};

pub use crate::graph::Pass;
pub use crate::ops::SavedActivations;

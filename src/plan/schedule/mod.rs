//! Recompute and offload: sequences of events that keep to a budget at little cost. Knows nothing of graphs, devices or
//! tensors.

pub(crate) mod cut;
mod flow;
pub(crate) mod problem;
pub(crate) mod search;
pub(crate) mod seeds;
pub(crate) mod sequence;

//! What may be in the host tier.

use std::collections::{BTreeMap, BTreeSet};

use super::super::Levers;
use super::super::candidate::{Candidate, ProgramGraph};
use crate::graph::Role;

/// Which values are in the host tier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OffloadPolicy {
    /// Names of persistent values that stay there between their uses.
    pub(crate) hosted: BTreeSet<String>,
    /// Whether values move there and back during a run. Staging buffers are then large enough for that.
    pub(crate) moves: bool,
}

impl OffloadPolicy {
    /// Values may move, and these stay in the host tier.
    pub(crate) fn hosting(hosted: BTreeSet<String>) -> Self {
        OffloadPolicy { hosted, moves: true }
    }

    /// The policies that are worth trying: from values that move and none that stays in the host tier, to all there that can be.
    pub(crate) fn all(candidate: &Candidate<'_>) -> Vec<OffloadPolicy> {
        let hostable = Hostable::of(&candidate.programs);
        let of_role = |wanted: Role| hostable.iter().filter(|value| value.role == wanted).count();
        let states = of_role(Role::State);
        let with_accumulators = states + of_role(Role::Accumulator);
        let mut lengths = vec![0, states / 4, states / 2, states * 3 / 4, states, with_accumulators, hostable.len()];
        lengths.dedup();
        let names = |length: usize| hostable[..length].iter().map(|value| value.name.clone()).collect();
        lengths.into_iter().map(|length| OffloadPolicy::hosting(names(length))).collect()
    }

    /// What a search under this policy may do.
    pub(crate) fn restrict(&self, levers: Levers) -> Levers {
        Levers { offload: self.moves, ..levers }
    }
}

/// A persistent value that can stay in the host tier.
#[derive(Clone, Debug)]
pub(crate) struct Hostable {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) size_bytes: u64,
}

impl Hostable {
    /// Those of these programs, cheapest to move first: by role, the largest first, because a copy has a fixed cost.
    pub(crate) fn of(programs: &[ProgramGraph]) -> Vec<Hostable> {
        let mut found: BTreeMap<&str, (u8, Hostable)> = BTreeMap::new();
        for value in programs.iter().flat_map(|program| program.graph.values()) {
            let rank = match value.role {
                Role::State => 0,
                Role::Accumulator => 1,
                Role::Parameter => 2,
                _ => continue,
            };
            let (name, role, size_bytes) = (value.name.clone(), value.role, value.desc.size_bytes());
            found.insert(&value.name, (rank, Hostable { name, role, size_bytes }));
        }
        // What is read back through a view stays where that reads it.
        for ProgramGraph { graph, .. } in programs {
            for id in graph.value_ids().filter(|&id| graph.value(id).role == Role::Output) {
                let shares = |&other: &_| graph.storage_root(other) == graph.storage_root(id);
                for other in graph.value_ids().filter(shares) {
                    found.remove(&*graph.value(other).name);
                }
            }
        }
        let mut hostable: Vec<_> = found.into_values().collect();
        // By name where all else is equal: that is the order they are in.
        hostable.sort_by(|(a_rank, a), (b_rank, b)| a_rank.cmp(b_rank).then(b.size_bytes.cmp(&a.size_bytes)));
        hostable.into_iter().map(|(_, value)| value).collect()
    }
}

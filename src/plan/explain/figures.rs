//! Figures that follow from a plan.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::super::{Allocation, ArenaRole, Command, Lever, Plan, Program, Reason, SavedActivations};

/// What one lever does in a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LeverUse {
    /// Tensors that it takes out of memory for a time, in the micro-batch where they are most.
    pub tensors: usize,
    /// Their bytes together.
    pub size_bytes: u64,
    /// How often it is used in a step, over all micro-batches.
    pub commands: usize,
    /// Time that it takes in a step.
    pub step_ns: u64,
}

impl Plan {
    /// In which form forward values are kept for backward, in words; `None` where it is as forward has them.
    pub fn saved_words(&self) -> Option<String> {
        match self.saved {
            SavedActivations::Full => None,
            SavedActivations::Compressed => Some("compressed".to_owned()),
            SavedActivations::Half(half) => Some(half.to_string()),
        }
    }

    /// Bytes of all arenas of this role.
    pub fn arena_bytes(&self, role: ArenaRole) -> u64 {
        let sizes = self.arenas.iter().filter(|arena| arena.role == role).map(|arena| arena.size_bytes);
        sizes.fold(0, u64::saturating_add)
    }

    /// Bytes on the device that are not transient: the same at every moment of a step.
    pub fn fixed_bytes(&self) -> u64 {
        self.peak_bytes.saturating_sub(self.arena_bytes(ArenaRole::Transient))
    }

    /// Estimated time of a step beyond that with the whole batch at once and no budget; below 0 where it is less.
    pub fn overhead_ns(&self) -> f64 {
        self.predicted_step_ns as f64 - self.unconstrained_step_ns as f64
    }

    /// [`Plan::overhead_ns`] as a share of the time with the whole batch at once and no budget.
    pub fn overhead(&self) -> f64 {
        self.overhead_ns() / (self.unconstrained_step_ns as f64).max(1.0)
    }

    /// What [`Plan::overhead_ns`] is made of: nodes that run again, copies to the host and back, and all else, such as smaller
    /// micro-batches, other forms and another order.
    pub fn overhead_parts_ns(&self) -> [f64; 3] {
        let [recompute_ns, offload_ns] =
            [Lever::Recompute, Lever::Offload].map(|lever| self.lever(lever).step_ns as f64);
        [recompute_ns, offload_ns, self.overhead_ns() - recompute_ns - offload_ns]
    }

    /// The least [`Plan::overhead_ns`] that any plan for these micro-batches has, where a bound was computed.
    pub fn least_overhead_ns(&self) -> Option<f64> {
        self.bound.map(|bound| bound.step_ns - self.unconstrained_step_ns as f64)
    }

    /// How far the plan is from the bound on the step time, as a share of the bound.
    pub fn gap(&self) -> Option<f64> {
        self.bound.map(|bound| (self.predicted_step_ns as f64 - bound.step_ns) / bound.step_ns.max(1.0))
    }

    /// What a lever does in a step.
    pub fn lever(&self, lever: Lever) -> LeverUse {
        let mut most = LeverUse::default();
        let (mut commands, mut step_ns) = (0, 0_u64);
        for (number, program) in self.programs.iter().enumerate() {
            let runs = self.schedule.iter().filter(|&&scheduled| scheduled == number).count();
            if runs == 0 {
                continue;
            }
            let tensors = self.tensors_of(lever, program, &mut |times| commands += times * runs);
            for reason in self.reasons.iter().filter(|r| r.program as usize == number && r.lever == lever) {
                step_ns = step_ns.saturating_add(reason.cost_ns.saturating_mul(runs as u64));
            }
            let size_bytes = tensors.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
            if size_bytes > most.size_bytes {
                (most.tensors, most.size_bytes) = (tensors.len(), size_bytes);
            }
        }
        LeverUse { commands, step_ns, ..most }
    }

    /// Numbers of nodes that run again or values that are fetched, with the transient bytes that they then take.
    fn tensors_of(&self, lever: Lever, program: &Program, count: &mut dyn FnMut(usize)) -> BTreeMap<u32, u64> {
        let transient = |place: &&Allocation| {
            self.arenas.get(place.arena as usize).is_some_and(|arena| arena.role == ArenaRole::Transient)
        };
        let bytes = |places: &[Allocation]| {
            places.iter().filter(transient).fold(0, |sum: u64, place| sum.saturating_add(place.size_bytes))
        };
        let mut tensors = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for command in &program.commands {
            match (lever, command) {
                (Lever::Recompute, Command::Dispatch { node, outputs, .. }) if !seen.insert(*node) => {
                    tensors.insert(node.0, bytes(outputs));
                }
                (Lever::Offload, Command::Prefetch { value, to, .. }) => {
                    tensors.insert(value.0, bytes(&[*to]));
                }
                _ => continue,
            }
            count(1);
        }
        tensors
    }

    /// The reasons that free most memory for longest (bytes times commands), at most `count`, and one for each tensor
    /// and lever.
    pub fn main_reasons(&self, count: usize) -> Vec<&Reason> {
        let in_step = |reason: &&Reason| self.schedule.contains(&(reason.program as usize));
        let mut reasons: Vec<&Reason> = self.reasons.iter().filter(in_step).collect();
        let worth = |reason: &Reason| u128::from(reason.size_bytes) * u128::from(reason.absent_commands);
        reasons
            .sort_by(|a, b| worth(b).cmp(&worth(a)).then_with(|| (a.program, a.command).cmp(&(b.program, b.command))));
        let mut seen = BTreeSet::new();
        reasons.retain(|reason| seen.insert((reason.lever, reason.name.as_str())));
        reasons.truncate(count);
        reasons
    }
}

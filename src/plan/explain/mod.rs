//! Plans in words and pictures.

mod figures;
mod ink;
mod memory;
mod svg;
#[cfg(test)]
mod tests;
mod timeline;
mod times;
mod trace;
#[cfg(test)]
mod trace_tests;

use std::fmt;

pub use figures::LeverUse;
pub use memory::{MemoryMoment, MicroBatchMemory};
pub use times::{RunTimes, StepTimes};

pub use crate::tensor::format_bytes;

use super::{ArenaRole, Lever, Plan};
use crate::tensor::plural;

/// Recomputed and offloaded tensors that a table names.
const NAMED_REASONS: usize = 5;

/// Amounts of memory whose worth is shown: the largest that is a small part of the peak.
const AMOUNTS: [(u64, &str); 7] = [
    (1 << 30, "1 GiB"),
    (100 << 20, "100 MiB"),
    (10 << 20, "10 MiB"),
    (1 << 20, "1 MiB"),
    (100 << 10, "100 KiB"),
    (10 << 10, "10 KiB"),
    (1 << 10, "1 KiB"),
];

/// Times as people read them: `4.1 ms`.
///
/// ```
/// # use tightfit::plan::format_ns;
/// assert_eq!(format_ns(4_100_000.0), "4.1 ms");
/// assert_eq!(format_ns(-12_340.0), "-12.3 µs");
/// ```
pub fn format_ns(ns: f64) -> String {
    let size = ns.abs();
    if size < 999.5 {
        // No minus before a zero.
        return format!("{} ns", ns.round() + 0.0);
    }
    let (scale, unit) = match size {
        size if size < 999_950.0 => (1e3, "µs"),
        size if size < 1e10 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    format!("{:.1} {unit}", ns / scale)
}

/// Sizes of micro-batches in short.
///
/// ```
/// # use tightfit::plan::format_parts;
/// assert_eq!(format_parts(&[64, 64, 64, 8]), "3 × 64 + 1 × 8");
/// ```
pub fn format_parts(parts: &[usize]) -> String {
    let runs = parts.chunk_by(|a, b| a == b);
    runs.map(|run| format!("{} × {}", run.len(), run[0])).collect::<Vec<_>>().join(" + ")
}

fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0 + 0.0)
}

impl fmt::Display for ArenaRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ArenaRole::Parameters => "parameters",
            ArenaRole::Buffers => "buffers",
            ArenaRole::State => "optimizer state",
            ArenaRole::Accumulators => "accumulators",
            ArenaRole::Transient => "transient",
            ArenaRole::Host => "host tier",
        })
    }
}

impl fmt::Display for Lever {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Lever::Recompute => "recompute",
            Lever::Offload => "offload",
        })
    }
}

/// A table of what was asked for, what it takes, where the bytes go, and what keeping to the budget costs.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.table().fmt(f)
    }
}

impl Plan {
    /// The plan as a table, as [`Display`](fmt::Display) prints it.
    pub fn table(&self) -> Table<'_> {
        Table { plan: self, unified_memory: false }
    }

    /// What memory is worth where it is tightest: an amount in words, and how much lower the bound on the time of a step is at most
    /// with so much more, for the same micro-batches and forms. Where memory stays as tight, it is exactly so.
    pub fn worth_of_memory(&self) -> Option<(&'static str, f64)> {
        let price = self.bound?.shadow_price_ns_per_byte;
        let (bytes, words) = AMOUNTS.into_iter().find(|(bytes, _)| bytes * 20 <= self.peak_bytes).unwrap_or(AMOUNTS[6]);
        // No memory brings a step below what it takes unconstrained.
        let lower_ns = (price * bytes as f64).min(self.least_overhead_ns()?);
        (lower_ns > 0.0).then_some((words, lower_ns))
    }
}

/// Prints a [`Plan`].
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    plan: &'a Plan,
    unified_memory: bool,
}

impl Table<'_> {
    /// Says of the host tier that it frees nothing where device and host share their memory.
    #[must_use]
    pub fn unified_memory(mut self, unified_memory: bool) -> Self {
        self.unified_memory = unified_memory;
        self
    }

    fn memory(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = self.plan;
        let budget = plan.budget_bytes.map_or_else(|| "none".to_owned(), format_bytes);
        writeln!(f, "{:<20} {budget:>12}", "budget")?;
        let mut bytes = |name: &str, bytes: u64| writeln!(f, "{name:<20} {:>12}", format_bytes(bytes));
        bytes("planned peak", plan.peak_bytes)?;
        for role in
            [ArenaRole::Parameters, ArenaRole::Buffers, ArenaRole::State, ArenaRole::Accumulators, ArenaRole::Transient]
        {
            // Few models keep anything but parameters.
            if role != ArenaRole::Buffers || plan.arena_bytes(role) > 0 {
                bytes(&format!("  {role}"), plan.arena_bytes(role))?;
            }
        }
        bytes("  staging", plan.staging.total_bytes())?;
        bytes("  device", plan.baseline_bytes)?;
        let host_bytes = plan.arena_bytes(ArenaRole::Host);
        if host_bytes > 0 {
            let note = if self.unified_memory { "  frees nothing here: see --without offload" } else { "" };
            writeln!(f, "{:<20} {:>12}{note}", ArenaRole::Host, format_bytes(host_bytes))?;
        }
        let mut bytes = |name: &str, bytes: u64| writeln!(f, "{name:<20} {:>12}", format_bytes(bytes));
        bytes("unconstrained", plan.unconstrained_peak_bytes)?;
        bytes("smallest budget", plan.minimum_budget_bytes)
    }

    fn time(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = self.plan;
        let mut row = |name: &str, ns: f64, note: &str| write!(f, "\n{name:<20} {:>12}  {note}", format_ns(ns));
        row("predicted", plan.predicted_step_ns as f64, "a step")?;
        let overhead_ns = plan.overhead_ns();
        if overhead_ns == 0.0 {
            return Ok(());
        }
        let share = |ns: f64| percent(ns / (plan.unconstrained_step_ns as f64).max(1.0));
        row("overhead", overhead_ns, &format!("{} of unconstrained", share(overhead_ns)))?;
        let [recompute_ns, offload_ns, rest_ns] = plan.overhead_parts_ns();
        if recompute_ns + offload_ns > 0.0 {
            let rest = if plan.micro_batches.len() > 1 {
                ", smaller micro-batches and other forms"
            } else {
                ", other forms and another order"
            };
            let parts =
                [("  recomputing", recompute_ns, ""), ("  transfers", offload_ns, ""), ("  the rest", rest_ns, rest)];
            // The rest is a difference, of which rounding may be all.
            let is_seen = |note: &str, ns: f64| note.is_empty() || share(ns.abs()) != share(0.0);
            for (name, ns, note) in parts.into_iter().filter(|&(_, ns, note)| ns != 0.0 && is_seen(note, ns)) {
                row(name, ns, &format!("{}{note}", share(ns)))?;
            }
        }
        if let (Some(least_ns), Some(gap)) = (plan.least_overhead_ns(), plan.gap()) {
            let gap = if gap < 0.000_5 { "reaches it".to_owned() } else { format!("is {} above it", percent(gap)) };
            row("  at least", least_ns, &format!("{}, a lower bound; this plan {gap}", share(least_ns)))?;
        }
        if let Some((amount, lower_ns)) = plan.worth_of_memory() {
            row(&format!("  {amount} more"), lower_ns, "less at most, with these micro-batches")?;
        }
        Ok(())
    }

    fn levers(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, lever) in [("recomputed", Lever::Recompute), ("offloaded", Lever::Offload)] {
            let used = self.plan.lever(lever);
            if used.commands > 0 {
                let (bytes, tensors) = (format_bytes(used.size_bytes), plural(used.tensors, "tensor"));
                write!(f, "\n{name:<20} {bytes:>12}  {tensors}")?;
                if used.step_ns > 0 {
                    write!(f, ", {} a step", format_ns(used.step_ns as f64))?;
                }
            }
        }
        let reasons = self.plan.main_reasons(usize::MAX);
        for reason in reasons.iter().take(NAMED_REASONS) {
            // The text has the figures.
            write!(f, "\n  {}: {}", reason.name, reason.text)?;
        }
        match reasons.len().saturating_sub(NAMED_REASONS) {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more"),
        }
    }
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.memory(f)?;
        write!(f, "{:<20} {:>12}", "micro-batches", format_parts(&self.plan.micro_batches))?;
        if let Some(form) = self.plan.saved_words() {
            write!(f, "\n{:<20} {form:>12}", "saved activations")?;
        }
        if let Some(threads) = self.plan.threads {
            write!(f, "\n{:<20} {threads:>12}", "threads")?;
        }
        self.time(f)?;
        self.levers(f)
    }
}

//! Plans in words.

use std::fmt;

use super::{ArenaRole, Plan};

/// Bytes as people read them: `14.7 MiB`.
///
/// ```
/// # use tightfit::plan::format_bytes;
/// assert_eq!(format_bytes(512), "512 B");
/// assert_eq!(format_bytes(15_414_067), "14.7 MiB");
/// ```
pub fn format_bytes(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut amount = bytes as f64;
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] {
        // What would be printed as 1024.0 is 1.0 of the next unit.
        if amount < 1023.95 {
            break;
        }
        amount /= 1024.0;
        unit = next;
    }
    format!("{amount:.1} {unit}")
}

/// Sizes of micro-batches in short: `4 × 64`, `3 × 64 + 1 × 8`.
pub(super) fn format_parts(parts: &[usize]) -> String {
    let runs = parts.chunk_by(|a, b| a == b);
    runs.map(|run| format!("{} × {}", run.len(), run[0])).collect::<Vec<_>>().join(" + ")
}

impl fmt::Display for ArenaRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ArenaRole::Parameters => "parameters",
            ArenaRole::State => "optimizer state",
            ArenaRole::Accumulators => "accumulators",
            ArenaRole::Transient => "transient",
            ArenaRole::Host => "host tier",
        })
    }
}

impl Plan {
    /// Bytes of all arenas of this role.
    pub fn arena_bytes(&self, role: ArenaRole) -> u64 {
        self.arenas.iter().filter(|arena| arena.role == role).map(|arena| arena.size_bytes).sum()
    }
}

/// A table of a few lines: what was asked for, what it takes, and where the bytes go.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let budget = self.budget_bytes.map_or_else(|| "none".to_owned(), format_bytes);
        writeln!(f, "{:<20} {budget:>12}", "budget")?;
        let mut bytes = |name: &str, bytes: u64| writeln!(f, "{name:<20} {:>12}", format_bytes(bytes));
        bytes("planned peak", self.peak_bytes)?;
        for role in [ArenaRole::Parameters, ArenaRole::State, ArenaRole::Accumulators, ArenaRole::Transient] {
            bytes(&format!("  {role}"), self.arena_bytes(role))?;
        }
        bytes("  staging", self.staging.total_bytes())?;
        bytes("  device", self.baseline_bytes)?;
        bytes("whole batch at once", self.unconstrained_peak_bytes)?;
        bytes("smallest budget", self.minimum_budget_bytes)?;
        writeln!(f, "{:<20} {:>12}", "micro-batches", format_parts(&self.micro_batches))?;
        let milliseconds = self.predicted_step_ns as f64 / 1e6;
        write!(f, "{:<20} {:>12}", "predicted", format!("{milliseconds:.1} ms/step"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_one_decimal_and_a_unit() {
        let shown = [0, 1023, 1024, 102_400, (1 << 20) - 1, 1 << 20, 3 << 29, u64::MAX].map(format_bytes);
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "100.0 KiB", "1.0 MiB", "1.0 MiB", "1.5 GiB", "16.0 EiB"]);
    }

    #[test]
    fn parts_of_one_size_are_counted() {
        assert_eq!(format_parts(&[64; 4]), "4 × 64");
        assert_eq!(format_parts(&[64, 64, 8]), "2 × 64 + 1 × 8");
    }
}

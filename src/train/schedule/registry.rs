//! The registry of schedules.

use super::Schedule;

/// A kind of schedule, as users see it.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleKind {
    /// What files write.
    pub kind: &'static str,
    /// The keys of its table, with their defaults.
    pub settings: &'static str,
    /// Names that other frameworks have for it, in lower case and with letters and digits alone.
    pub elsewhere: &'static [&'static str],
}

/// The registry of schedules: one entry each, from which follow the table of the documentation and what is said to someone who
/// uses the name of another framework.
macro_rules! registry {
    ($($variant:ident = $kind:literal [$($elsewhere:literal),*], settings $settings:literal;)*) => {
        impl Schedule {
            /// All kinds.
            pub const KINDS: &[ScheduleKind] =
                &[$(ScheduleKind { kind: $kind, settings: $settings, elsewhere: &[$($elsewhere),*] }),*];

            /// Its kind as a file writes it.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Schedule::$variant { .. } => $kind,)*
                    Schedule::Custom { .. } => "custom",
                }
            }
        }
    };
}

registry! {
    Constant = "constant" ["constantlr", "none", "constantwithwarmup"], settings "`warmup` (none)";
    Linear = "linear" ["linearlr", "lineardecay"],
        settings "`start_factor` (1), `end_factor` (0), `length` (the rest), `warmup` (none)";
    Step = "step" ["steplr", "steps", "staircase"], settings "`step_size`, `gamma` (0.1), `warmup` (none)";
    MultiStep = "multi-step" ["multisteplr", "piecewiseconstantdecay", "piecewiseconstant"],
        settings "`milestones`, such as `[\"30 epochs\", \"60 epochs\"]`, `gamma` (0.1), `warmup` (none)";
    Exponential = "exponential" ["exponentiallr", "exponentialdecay"],
        settings "`gamma`, `interval` (\"1 epoch\"), `warmup` (none)";
    Polynomial = "polynomial" ["polynomiallr", "polynomialdecay", "poly"],
        settings "`power` (1), `end_factor` (0), `length` (the rest), `warmup` (none)";
    Cosine = "cosine" ["cosineannealinglr", "cosinedecay", "cosineannealing"],
        settings "`end_factor` (0), `length` (the rest), `warmup` (none)";
    CosineRestarts = "cosine-restarts" ["cosineannealingwarmrestarts", "cosinedecayrestarts", "sgdr"],
        settings "`t_0`, `t_mult` (1), `end_factor` (0), `warmup` (none)";
    OneCycle = "one-cycle" ["onecyclelr", "onecycle", "superconvergence"],
        settings "`max_factor` (1), `pct_start` (0.3), `div_factor` (25), `final_div_factor` (1e4), `anneal_strategy` (`cos`; \
            or `linear`), `three_phase` (false), `length` (the rest)";
    Sequence = "sequence" ["sequentiallr", "chainedscheduler"],
        settings "`schedules`, such as `[\"linear\", \"cosine\"]`, and `milestones`, one less";
}

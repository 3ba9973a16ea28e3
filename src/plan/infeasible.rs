//! What to say where no plan keeps a budget.

use std::collections::BTreeMap;

use super::candidate::microbatch::{Mixing, fewer_samples};
use super::explain::{self, format_bytes};
use super::layout::Layout;
use super::{ArenaRole, Request};
use crate::error::PlanError;
use crate::graph::Role;

/// Tensors that the message names.
const NAMED_TENSORS: usize = 6;

/// The error, with the layout that needs least.
pub(super) fn infeasible(
    request: &Request,
    budget_bytes: u64,
    least: &Layout<'_>,
    mixing: Option<&Mixing>,
) -> PlanError {
    let minimum_budget_bytes = least.peak_bytes;
    let tensors = least.peak_tensors();
    let named = tensors.iter().take(NAMED_TENSORS);
    let named: Vec<_> = named.map(|tensor| format!("`{}` {}", tensor.name, format_bytes(tensor.size_bytes))).collect();
    let mut totals: BTreeMap<ArenaRole, u64> = BTreeMap::new();
    for arena in least.arenas.iter().filter(|arena| arena.role != ArenaRole::Host) {
        *totals.entry(arena.role).or_default() += arena.size_bytes;
    }
    let mut totals: Vec<_> =
        totals.into_iter().map(|(role, bytes)| format!("{role} {}", format_bytes(bytes))).collect();
    totals.push(format!("staging {}", format_bytes(least.staging.total_bytes())));
    if request.limits.baseline_bytes > 0 {
        totals.push(format!("device {}", format_bytes(request.limits.baseline_bytes)));
    }
    let smaller_model = match least.candidate().persistent.iter().any(|value| value.role == Role::State) {
        true => "a smaller model, or an optimizer with less state",
        false => "a smaller model",
    };
    let advice = match (fewer_samples(request, mixing), mixing) {
        (Some(fewer), Some(Mixing { layer, advice })) => {
            let advice = advice.map_or_else(String::new, |advice| format!(", or {advice}"));
            format!("{fewer} ({layer}, so it cannot be split){advice}")
        }
        (fewer, _) => fewer.unwrap_or(smaller_model).to_owned(),
    };
    // One that is too small by a few bytes looks like the other.
    let budget = match format_bytes(budget_bytes) {
        short if short == format_bytes(minimum_budget_bytes) => format!("{short} ({budget_bytes} bytes)"),
        short => short,
    };
    // Each has scratch of its own, which is worth a word where it is the largest of all.
    let is_scratch = tensors.first().is_some_and(|tensor| tensor.name.starts_with("workspace of "));
    let fewer_threads = match request.limits.threads {
        Some(threads) if threads > 1 && is_scratch => format!(", fewer threads than {threads}"),
        _ => String::new(),
    };
    let message = format!(
        "a budget of {budget} is too small: the smallest that works is {} ({minimum_budget_bytes} bytes, with micro-batches \
         {}); in memory at its peak: {}{}; in total: {}; use a budget of at least {minimum_budget_bytes} bytes{fewer_threads}, or {advice}",
        format_bytes(minimum_budget_bytes),
        explain::format_parts(&least.candidate().micro_batches),
        named.join(", "),
        if tensors.len() > NAMED_TENSORS { ", …" } else { "" },
        totals.join(", "),
    );
    let blocking = tensors.into_iter().map(|tensor| (tensor.name, tensor.size_bytes)).collect();
    PlanError::Infeasible { budget_bytes, minimum_budget_bytes, blocking, message }
}

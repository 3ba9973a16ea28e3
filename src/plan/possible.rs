//! Whether there is a plan at all, without looking for a good one.

use super::build::Draft;
use super::{Form, Request, SavedActivations, Source, fit, microbatch};
use crate::error::PlanError;

/// Whether a plan within the budget of a request is found with little work. Where it is, [`plan`](super::plan()) finds one;
/// where it is not, that may still do so, for a budget a little below what is found here.
///
/// # Errors
/// As `plan`, but for requests that no plan meets.
pub fn is_possible(source: &dyn Source, request: &Request) -> Result<bool, PlanError> {
    let Request { batch, micro_batches, .. } = *request;
    if batch > microbatch::MOST_SAMPLES {
        return Ok(false);
    }
    let most = batch.min(microbatch::MOST);
    let mixes = microbatch::mixing(source, batch)?.is_some();
    // Single samples need least, but for what is summed over micro-batches.
    let counts = match micro_batches {
        Some(count) if !(1..=most).contains(&count) || (count > 1 && mixes) => return Ok(false),
        Some(count) => vec![count],
        None if mixes || batch == 1 => vec![1],
        None => vec![most, 1],
    };
    let all_saved = if request.levers.compression {
        &[SavedActivations::Compressed, SavedActivations::Full][..]
    } else {
        &[SavedActivations::Full]
    };
    for count in counts {
        for &saved in all_saved {
            let form = Form { saved, fused: false };
            let draft = match Draft::new(source, request, &microbatch::split(batch, count), form) {
                Err(PlanError::Binding { .. } | PlanError::Graph(_)) => continue,
                draft => draft?,
            };
            if fit::is_possible(&draft, request, request.budget_bytes.unwrap_or(u64::MAX))? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

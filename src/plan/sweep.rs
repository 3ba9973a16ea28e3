//! Many plans of one training: over budgets, and over sizes until one does not fit.

use super::planner::Planner;
use super::{Plan, Planned, Request, Source};
use crate::error::PlanError;

/// Sizes above the largest that seems to fit which are looked at too, in case a larger one fits again.
const BEYOND: usize = 4;

/// Plans at budgets from the smallest that works to what is needed without one, in `points` equal steps and without
/// those that take longer than another with less memory. Smallest first; the request's own budget does not matter.
///
/// # Errors
/// As [`plan`](super::plan()).
pub(crate) fn sweep(source: &dyn Source, request: &Request, points: usize) -> Result<Vec<Plan>, PlanError> {
    let mut planner = Planner::new(source, request)?;
    let (least, most) = planner.budgets().into_inner();
    let mut budgets: Vec<u64> = (0..=points as u64)
        .map(|i| least + (u128::from(most - least) * u128::from(i) / points.max(1) as u128) as u64)
        .collect();
    budgets.push(most);
    budgets.dedup();
    let mut plans: Vec<Plan> = Vec::new();
    for budget_bytes in budgets {
        let next = planner.plan(Some(budget_bytes))?.plan;
        if plans.last().is_none_or(|before| next.predicted_step_ns < before.predicted_step_ns) {
            plans.push(next);
        }
    }
    Ok(plans)
}

/// The largest size for which there is a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Largest {
    /// The size.
    pub size: usize,
    /// Its plan.
    pub plan: Plan,
    /// Why the next size has none; `None` where the largest size that was asked about has one.
    pub beyond: Option<PlanError>,
}

/// The largest size of `least..=most` for which `plan_at` finds a plan: by doubling and bisection with `is_possible`, which says
/// with less work whether there is one, then with plans from there.
///
/// # Errors
/// Where there is no plan for the least size.
pub(crate) fn largest(
    least: usize,
    most: usize,
    is_possible: &mut dyn FnMut(usize) -> Result<bool, PlanError>,
    plan_at: &mut dyn FnMut(usize) -> Result<Planned, PlanError>,
) -> Result<Largest, PlanError> {
    let mut possible = |size| attempt(is_possible(size)).map(|found| found == Ok(true));
    let mut size = climb(least, most, Climb { stride: least.max(1), beyond: BEYOND }, &mut possible)?;
    // A quick look can be wrong.
    let mut plan = loop {
        match attempt(plan_at(size))? {
            Ok(planned) => break planned.plan,
            Err(error) if size == least => return Err(error),
            Err(_) => size = (size - (size / 64).max(1)).max(least),
        }
    };
    // The least size without a plan, and why.
    let mut beyond: Option<(usize, PlanError)> = None;
    let size = climb(size, most, Climb { stride: 1, beyond: 0 }, &mut |size| match attempt(plan_at(size))? {
        Ok(planned) => {
            plan = planned.plan;
            Ok(true)
        }
        Err(error) => {
            if beyond.as_ref().is_none_or(|&(refused, _)| size < refused) {
                beyond = Some((size, error));
            }
            Ok(false)
        }
    })?;
    Ok(Largest { size, plan, beyond: beyond.map(|(_, error)| error) })
}

/// How to look for the largest size.
#[derive(Clone, Copy, Debug)]
struct Climb {
    /// The first step; each is twice as long as the one before.
    stride: usize,
    /// Sizes above the one found that are tried too, since a larger one may fit where a smaller does not.
    beyond: usize,
}

/// The largest size from `found` on to `most` that fits, where `found` does: by steps that double, then bisection.
fn climb(
    mut found: usize,
    most: usize,
    Climb { mut stride, beyond }: Climb,
    fits: &mut dyn FnMut(usize) -> Result<bool, PlanError>,
) -> Result<usize, PlanError> {
    // The least size that does not fit, or that is not asked about.
    let mut high = most.saturating_add(1);
    while found.saturating_add(1) < high {
        // No more steps once a size did not fit.
        let size = match stride {
            0 => found.midpoint(high),
            _ => found.saturating_add(stride).min(high - 1),
        };
        if fits(size)? {
            found = size;
            stride = stride.saturating_mul(2);
        } else {
            (high, stride) = (size, 0);
        }
        if found + 1 == high && high <= most {
            for size in (high + 1..=high.saturating_add(beyond)).take_while(|&size| size <= most) {
                if fits(size)? {
                    found = size;
                    (high, stride) = (most.saturating_add(1), 1);
                }
            }
        }
    }
    Ok(found)
}

/// A result, or why there is none at this size.
fn attempt<T>(result: Result<T, PlanError>) -> Result<Result<T, PlanError>, PlanError> {
    match result {
        Err(error @ PlanError::Invalid(_)) => Err(error),
        result => Ok(result),
    }
}

#[cfg(test)]
mod tests {
    use super::super::toy::Chain;
    use super::super::{CostModel, Levers, Limits, is_possible, plan};
    use super::*;

    const CHAIN: Chain = Chain { layers: 6, width: 100, mixes_samples: false };

    fn request(batch: usize) -> Request {
        let (levers, limits, costs) = (Levers::default(), Limits::default(), CostModel::default());
        Request { batch, budget_bytes: None, micro_batches: None, levers, limits, costs }
    }

    #[test]
    fn a_sweep_trades_memory_for_time() {
        let plans = sweep(&CHAIN, &request(32), 9).expect("plans");
        let free = plan(&CHAIN, &request(32)).expect("a plan").plan;
        assert!(plans.len() > 2);
        assert_eq!(plans[0].peak_bytes, free.minimum_budget_bytes);
        assert_eq!(plans[plans.len() - 1].predicted_step_ns, free.predicted_step_ns);
        for pair in plans.windows(2) {
            assert!(pair[0].budget_bytes < pair[1].budget_bytes);
            assert!(pair[0].predicted_step_ns > pair[1].predicted_step_ns);
        }
        assert_eq!(sweep(&CHAIN, &request(32), 0).expect("plans")[0], plans[0]);
    }

    /// Sizes of which these fit, and how many were tried.
    fn search(least: usize, most: usize, fits: impl Fn(usize) -> bool) -> (Option<usize>, usize) {
        let planned = plan(&CHAIN, &request(1)).expect("a plan");
        let mut tries = 0;
        let mut plans = 0;
        let mut is_possible = |size| {
            tries += 1;
            assert!((least..=most).contains(&size));
            Ok(fits(size))
        };
        let result = largest(least, most, &mut is_possible, &mut |size| {
            plans += 1;
            if fits(size) { Ok(planned.clone()) } else { Err(PlanError::Request(size.to_string())) }
        });
        assert!(plans <= 2, "{plans} plans");
        (result.ok().map(|found| found.size), tries)
    }

    #[test]
    fn the_largest_size_is_exact() {
        for limit in (0..70).chain([255, 256, 257, 998, 999, 1000]) {
            for least in [1, 3] {
                let (found, tries) = search(least, 1000, |size| size <= limit);
                assert_eq!(found, (limit >= least).then_some(limit), "from {least}");
                assert!(tries < 30, "{tries} tries for {limit}");
            }
        }
        assert_eq!(search(7, 7, |_| true).0, Some(7));
        assert_eq!(search(1, 2, |size| size == 1).0, Some(1));
        // A hole just above what bisection finds does not hide what is behind it.
        assert_eq!(search(1, 100, |size| size <= 40 && size != 21 && size != 24).0, Some(40));
        assert_eq!(search(1, 100, |size| size <= 10 || size == 13).0, Some(13));
    }

    #[test]
    fn a_quick_look_that_is_wrong_is_put_right() {
        let planned = plan(&CHAIN, &request(1)).expect("a plan");
        let at = |looks: usize, fits: usize| {
            largest(1, 1000, &mut |size| Ok(size <= looks), &mut |size| {
                if size <= fits { Ok(planned.clone()) } else { Err(PlanError::Request(size.to_string())) }
            })
        };
        for (looks, fits) in [(40, 40), (40, 42), (40, 38), (700, 650)] {
            let found = at(looks, fits).expect("a size");
            assert_eq!((found.size, found.beyond), (fits, Some(PlanError::Request((fits + 1).to_string()))));
        }
        assert_eq!(at(0, 0).map(|found| found.size), Err(PlanError::Request("1".into())));
    }

    #[test]
    fn any_batch_fits_in_micro_batches() {
        let budget_bytes = plan(&CHAIN, &request(8)).expect("a plan").plan.peak_bytes;
        let levers =
            Levers { recompute: false, offload: false, compression: false, fusion: false, half_activations: None };
        let at = |micro_batches| {
            let at = |batch| Request { batch, micro_batches, budget_bytes: Some(budget_bytes), levers, ..request(1) };
            let mut possible = |batch| is_possible(&CHAIN, &at(batch));
            largest(1, 1000, &mut possible, &mut |batch| plan(&CHAIN, &at(batch)))
        };
        let split = at(None).expect("fits");
        assert_eq!((split.size, split.beyond), (1000, None));
        let whole = at(Some(1)).expect("fits");
        assert_eq!(whole.size, 8);
        assert!(matches!(whole.beyond, Some(PlanError::Infeasible { .. })));
    }
}

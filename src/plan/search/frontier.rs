//! The layout for any budget between the smallest and what the fastest plan needs.
//!
//! Between the two ends a budget is looked up by bisection: a layout is searched for half-way, and counts only if it is no
//! slower than the one below and no faster than the one above. Those half-way do not depend on the budget, so of two budgets
//! the larger one never gets the slower plan, however well each search went.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::rc::Rc;

use super::ends::Ends;
use super::fastest::{Query, fastest};
use crate::error::PlanError;
use crate::plan::candidate::{Candidates, Size};
use crate::plan::layout::Layout;

/// Budgets are looked up until the layouts below and above differ by less than this share in bytes or in time.
const CLOSE_BYTES: u64 = 400;
const CLOSE_NS: u64 = 1000;
/// Halvings at most, on small graphs and on larger ones.
const HALVINGS: usize = 16;
const LARGE_HALVINGS: usize = 10;
/// Halvings in which all numbers of micro-batches and all forms are looked at; later only those near the layouts below and
/// above.
const WIDE: usize = 2;
/// A halving is worth as much work as the first ones where the layout below is slower than the one above by this share of it.
const STEEP: u64 = 4;
/// How near.
const NEAR: usize = 1;

/// Work of the parts of a search, in units of about a nanosecond: the quickest layout at the smallest budget, and halvings, the
/// wide ones and the others.
const QUICKEST_WORK: u64 = 400_000_000;
const WIDE_WORK: u64 = 900_000_000;
const NARROW_WORK: u64 = 400_000_000;

/// The layout from a budget on.
#[derive(Clone, Debug)]
struct Point<'a> {
    budget_bytes: u64,
    layout: Rc<Layout<'a>>,
}

impl<'a> Point<'a> {
    fn of(layout: &Rc<Layout<'a>>) -> Self {
        Point { budget_bytes: layout.peak_bytes, layout: layout.clone() }
    }
}

/// A halving: how many there were before it, the budget that it starts from, and whether values may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Halving {
    number: usize,
    below_bytes: u64,
    offload: bool,
}

/// The frontier between memory and time, as far as it was looked up.
pub(crate) struct Frontier<'a> {
    ends: Ends<'a>,
    /// From which budget on nothing has to move to the host tier.
    without_host: Option<Point<'a>>,
    /// The layout at the smallest budget, for the next larger budget that was looked up.
    lowest: Option<Point<'a>>,
    /// What halvings found.
    found: BTreeMap<Halving, Option<Rc<Layout<'a>>>>,
}

impl<'a> Frontier<'a> {
    pub(crate) fn new(ends: Ends<'a>) -> Self {
        Frontier { ends, without_host: None, lowest: None, found: BTreeMap::new() }
    }

    pub(crate) fn least(&self) -> &Layout<'a> {
        &self.ends.least
    }

    pub(crate) fn fastest(&self) -> &Rc<Layout<'a>> {
        &self.ends.fastest
    }

    /// The layout for a budget between the smallest and the need of the fastest.
    pub(crate) fn within(
        &mut self,
        candidates: &mut Candidates<'a>,
        budget_bytes: u64,
    ) -> Result<Rc<Layout<'a>>, PlanError> {
        let (least, fastest) = (Point::of(&self.ends.least), Point::of(&self.ends.fastest));
        // Where the device has no memory of its own, moving values to the host frees nothing: only for budgets that nothing
        // else keeps, or where such a plan is faster than what is possible without at a little more.
        let Some(without_host) = self.without_host(candidates)? else {
            let offload = candidates.request.levers.offload && self.ends.without_host.is_none();
            return self.between(candidates, budget_bytes, least, fastest, offload);
        };
        if budget_bytes < without_host.budget_bytes {
            self.between(candidates, budget_bytes, least, without_host, true)
        } else {
            self.between(candidates, budget_bytes, without_host, fastest, false)
        }
    }

    /// The same budget with the fastest layout that is found for it, unless it is faster than `least_ns`.
    fn quickest_at(
        &self,
        candidates: &mut Candidates<'a>,
        point: Point<'a>,
        offload: bool,
        least_ns: u64,
    ) -> Result<Point<'a>, PlanError> {
        let query = Query {
            budget_bytes: point.budget_bytes,
            offload,
            step_ns: least_ns..point.layout.step_ns,
            positions: candidates.positions(),
            forms: Vec::new(),
            near: &[&point.layout, &self.ends.least],
            work: QUICKEST_WORK,
        };
        let found = fastest(candidates, &query)?;
        Ok(match found {
            Some(layout) => Point { layout, ..point },
            None => point,
        })
    }

    /// From which budget on nothing has to move to the host tier; `None` where that is all budgets, or makes no difference.
    fn without_host(&mut self, candidates: &mut Candidates<'a>) -> Result<Option<Point<'a>>, PlanError> {
        let Ends { least, fastest, without_host } = &self.ends;
        let Some(without_host) = without_host.as_ref().filter(|layout| layout.peak_bytes > least.peak_bytes) else {
            return Ok(None);
        };
        if self.without_host.is_none() {
            let mut point = Point::of(without_host);
            if least.step_ns < point.layout.step_ns {
                point.layout = least.clone();
            }
            self.without_host = Some(self.quickest_at(candidates, point, true, fastest.step_ns)?);
        }
        Ok(self.without_host.clone())
    }

    /// The layout at the smallest budget, for what was found to need least memory may take very long; none that is faster than
    /// `above`, the next one that was looked up.
    fn lowest(
        &mut self,
        candidates: &mut Candidates<'a>,
        above: &Point<'a>,
        offload: bool,
    ) -> Result<Rc<Layout<'a>>, PlanError> {
        if let Some(lowest) = self.lowest.as_ref().filter(|lowest| lowest.budget_bytes == above.budget_bytes) {
            return Ok(lowest.layout.clone());
        }
        let least = Point::of(&self.ends.least);
        let layout = self.quickest_at(candidates, least, offload, above.layout.step_ns)?.layout;
        self.lowest = Some(Point { budget_bytes: above.budget_bytes, layout: layout.clone() });
        Ok(layout)
    }

    /// The layout for a budget from that of `below` on and below that of `above`.
    fn between(
        &mut self,
        candidates: &mut Candidates<'a>,
        budget_bytes: u64,
        mut below: Point<'a>,
        mut above: Point<'a>,
        offload: bool,
    ) -> Result<Rc<Layout<'a>>, PlanError> {
        let halvings = if candidates.size == Size::Small { HALVINGS } else { LARGE_HALVINGS };
        for number in 0..halvings {
            let step_ns = above.layout.step_ns..below.layout.step_ns;
            let gap_bytes = above.budget_bytes.saturating_sub(below.budget_bytes);
            if step_ns.end.saturating_sub(step_ns.start) <= step_ns.end / CLOSE_NS
                || gap_bytes <= (below.budget_bytes / CLOSE_BYTES).max(1)
            {
                break;
            }
            // Half-way in proportion, for the time of a step depends on that more than on the difference.
            let half = (below.budget_bytes as f64 * above.budget_bytes as f64).sqrt() as u64;
            let half_bytes = half.clamp(below.budget_bytes + 1, above.budget_bytes - 1);
            let halving = Halving { number, below_bytes: below.budget_bytes, offload };
            let found = match self.found.get(&halving) {
                Some(found) => found.clone(),
                None => {
                    let near = [&*below.layout, &*above.layout];
                    let is_wide = number < WIDE;
                    let is_steep = step_ns.end - step_ns.start > step_ns.start / STEEP;
                    let query = Query {
                        budget_bytes: half_bytes,
                        offload,
                        step_ns,
                        positions: if is_wide { candidates.positions() } else { near_positions(candidates, near) },
                        forms: if is_wide { Vec::new() } else { near.map(|layout| layout.candidate().form).to_vec() },
                        near: &near,
                        work: if is_wide || is_steep { WIDE_WORK } else { NARROW_WORK },
                    };
                    let found = fastest(candidates, &query)?;
                    self.found.entry(halving).or_insert(found).clone()
                }
            };
            // What was found may need less than it was allowed to.
            let half = match found {
                Some(layout) => Point { budget_bytes: layout.peak_bytes.clamp(below.budget_bytes, half_bytes), layout },
                None => Point { budget_bytes: half_bytes, layout: below.layout.clone() },
            };
            if budget_bytes >= half.budget_bytes {
                below = half;
            } else if Rc::ptr_eq(&half.layout, &below.layout) {
                // From here to half-way nothing is faster.
                break;
            } else {
                above = half;
            }
        }
        if Rc::ptr_eq(&below.layout, &self.ends.least) {
            self.lowest(candidates, &above, offload)
        } else {
            Ok(below.layout)
        }
    }
}

/// Numbers of micro-batches that may be best between two layouts.
fn near_positions(candidates: &Candidates<'_>, layouts: [&Layout<'_>; 2]) -> RangeInclusive<usize> {
    let [a, b] = layouts.map(|layout| candidates.position(layout.candidate()));
    a.min(b).saturating_sub(NEAR)..=(a.max(b) + NEAR).min(*candidates.positions().end())
}

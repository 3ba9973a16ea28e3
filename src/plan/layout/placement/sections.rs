//! The times at which a set of intervals must be looked at.

use super::Interval;

/// Sections of time. One for each largest set of intervals that are needed together: two intervals share a time if and
/// only if they cross a common section, so no other time adds a constraint.
pub(super) struct Sections {
    /// The first section that each interval crosses, and the one after the last.
    pub(super) spans: Vec<(usize, usize)>,
    /// The intervals that cross each section.
    pub(super) members: Vec<Vec<u32>>,
}

impl Sections {
    /// `None` if the intervals cross more than `most_crossings` sections in total.
    pub(super) fn of(intervals: &[Interval], most_crossings: usize) -> Option<Sections> {
        let mut events: Vec<_> =
            (0..intervals.len()).flat_map(|i| [(intervals[i].start, true, i), (intervals[i].end, false, i)]).collect();
        // What ends at a time no longer meets what starts there.
        events.sort_unstable();
        let mut spans = vec![(0, 0); intervals.len()];
        let (mut section, mut grown, mut crossings) = (0, false, 0);
        for (_, starts, i) in events {
            if starts {
                spans[i].0 = section;
                grown = true;
            } else {
                // A set is largest when an interval leaves it just after one has joined.
                section += usize::from(grown);
                grown = false;
                spans[i].1 = section;
                crossings += section - spans[i].0;
            }
        }
        if crossings > most_crossings {
            return None;
        }
        let mut members = vec![Vec::new(); section];
        for (i, &(from, to)) in spans.iter().enumerate() {
            for crossing in &mut members[from..to] {
                crossing.push(i as u32);
            }
        }
        Some(Sections { spans, members })
    }
}

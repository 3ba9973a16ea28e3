//! The times at which a set of intervals must be looked at.

use super::Interval;

/// From a first section to the one after the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Sections of time. One for each largest set of intervals that are needed together: two intervals share a time if and
/// only if they cross a common section, so no other time adds a constraint.
pub(super) struct Sections {
    /// The sections that each interval crosses.
    pub(super) spans: Vec<Span>,
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
        let mut spans = vec![Span::default(); intervals.len()];
        let (mut section, mut grown, mut crossings) = (0, false, 0);
        for (_, starts, i) in events {
            if starts {
                spans[i].start = section;
                grown = true;
            } else {
                // A set is largest when an interval leaves it just after one has joined.
                section += usize::from(grown);
                grown = false;
                spans[i].end = section;
                crossings += section - spans[i].start;
            }
        }
        if crossings > most_crossings {
            return None;
        }
        let mut members = vec![Vec::new(); section];
        for (i, span) in spans.iter().enumerate() {
            for crossing in &mut members[span.start..span.end] {
                crossing.push(i as u32);
            }
        }
        Some(Sections { spans, members })
    }
}

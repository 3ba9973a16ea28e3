//! How much a search may do.

use std::cell::Cell;

/// Work that a search may still do, in units of about a nanosecond of one core. It is counted, not timed, so that the same
/// request gets the same plan everywhere; what has no count of its own is charged what it takes by experience.
#[derive(Debug)]
pub(crate) struct Allowance(Cell<u64>);

impl Allowance {
    pub(crate) fn new(units: u64) -> Self {
        Allowance(Cell::new(units))
    }

    pub(crate) fn left(&self) -> u64 {
        self.0.get()
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.left() == 0
    }

    pub(crate) fn spend(&self, units: u64) {
        self.0.set(self.left().saturating_sub(units));
    }

    /// Does a part of the search with this share of what is left. What it spends is spent here too.
    pub(crate) fn share<T>(&self, divisor: u64, part: impl FnOnce(&Allowance) -> T) -> T {
        let own = Allowance::new(self.left() / divisor);
        let given = own.left();
        let result = part(&own);
        self.spend(given - own.left());
        result
    }
}

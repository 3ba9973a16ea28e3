//! Our own count of the bytes on the device: the budget is held against this, not against what a driver says.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::DeviceError;

/// Counts every buffer from its creation to its end.
#[derive(Debug, Default)]
pub struct Ledger {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entries: BTreeMap<u64, (String, u64)>,
    next: u64,
    current_bytes: u64,
    peak_bytes: u64,
    limit_bytes: Option<u64>,
}

/// The right to some bytes; dropping it gives them back.
#[derive(Debug)]
pub(crate) struct Charge {
    ledger: Arc<Ledger>,
    id: u64,
}

impl Ledger {
    /// Charges `bytes` for `label`.
    ///
    /// # Errors
    /// Out of memory where a limit set for tests would be passed.
    pub(crate) fn charge(self: &Arc<Self>, label: &str, bytes: u64) -> Result<Charge, DeviceError> {
        let mut state = self.lock();
        let total = state.current_bytes.saturating_add(bytes);
        if state.limit_bytes.is_some_and(|limit| total > limit) {
            return Err(DeviceError::OutOfMemory { label: label.to_owned(), size_bytes: bytes });
        }
        let id = state.next;
        state.next += 1;
        state.entries.insert(id, (label.to_owned(), bytes));
        state.current_bytes = total;
        state.peak_bytes = state.peak_bytes.max(total);
        Ok(Charge { ledger: self.clone(), id })
    }

    /// Bytes charged now.
    pub fn current_bytes(&self) -> u64 {
        self.lock().current_bytes
    }

    /// The most bytes that were charged at once.
    pub fn peak_bytes(&self) -> u64 {
        self.lock().peak_bytes
    }

    /// What is charged now: labels and bytes, oldest first.
    pub fn entries(&self) -> Vec<(String, u64)> {
        self.lock().entries.values().cloned().collect()
    }

    /// Makes charges beyond this total fail, as a full device would.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn set_limit_bytes(&self, limit: Option<u64>) {
        self.lock().limit_bytes = limit;
    }

    /// A panic elsewhere cannot leave the counts half changed.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut state = self.ledger.lock();
        if let Some((_, bytes)) = state.entries.remove(&self.id) {
            state.current_bytes -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_peak_and_gives_back() {
        let ledger = Arc::new(Ledger::default());
        let first = ledger.charge("first", 100).expect("no limit");
        let second = ledger.charge("second", 50).expect("no limit");
        assert_eq!((ledger.current_bytes(), ledger.peak_bytes()), (150, 150));
        drop(first);
        assert_eq!(ledger.entries(), [("second".to_owned(), 50)]);
        let third = ledger.charge("third", 20).expect("no limit");
        assert_eq!((ledger.current_bytes(), ledger.peak_bytes()), (70, 150));
        drop((second, third));
        assert_eq!(ledger.current_bytes(), 0);
    }

    #[test]
    fn a_limit_refuses_without_charging() {
        let ledger = Arc::new(Ledger::default());
        ledger.set_limit_bytes(Some(100));
        let kept = ledger.charge("kept", 60).expect("below the limit");
        assert!(matches!(ledger.charge("refused", 41), Err(DeviceError::OutOfMemory { size_bytes: 41, .. })));
        assert!(matches!(ledger.charge("huge", u64::MAX), Err(DeviceError::OutOfMemory { .. })));
        assert_eq!((ledger.current_bytes(), ledger.peak_bytes()), (60, 60));
        drop(kept);
        assert!(ledger.charge("fits now", 100).is_ok());
    }
}

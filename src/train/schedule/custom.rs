//! Schedules of one's own among the usual ones.

use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::LrSchedule;

/// A [`LrSchedule`] as a [`Schedule`](super::Schedule).
#[derive(Clone, Debug)]
pub struct CustomSchedule(pub(super) Arc<dyn LrSchedule>);

/// Two are the same where they are one object.
impl PartialEq for CustomSchedule {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// What its `Debug` says: the formula is in no file.
impl Serialize for CustomSchedule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:?}", self.0))
    }
}

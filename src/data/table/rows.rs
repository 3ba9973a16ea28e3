//! What a table needs of the file that it is read from.

use std::path::Path;

use csv::StringRecord;

use crate::error::DataError;

const LEN_BITS: u32 = 24;

/// Where a row is: in a CSV file its first byte and its length, in a Parquet file its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::data) struct Place(u64);

impl Place {
    /// Both in one number, since there is one a row.
    pub(in crate::data) fn new(start: u64, len: usize) -> Option<Self> {
        let fits = start < 1 << (u64::BITS - LEN_BITS) && len < 1 << LEN_BITS;
        fits.then_some(Place(start << LEN_BITS | len as u64))
    }

    pub(in crate::data) fn start(self) -> u64 {
        self.0 >> LEN_BITS
    }

    pub(in crate::data) fn len(self) -> usize {
        (self.0 & ((1 << LEN_BITS) - 1)) as usize
    }
}

/// A file with rows of text.
pub(in crate::data) trait Rows: Send + Sync {
    fn path(&self) -> &Path;

    /// Names of all columns, in the file's order.
    fn names(&self) -> &[String];

    /// Gives each row, in order. Rows have one field for each column.
    fn scan(&self, visit: &mut dyn FnMut(Place, &StringRecord) -> Result<(), DataError>) -> Result<(), DataError>;

    /// One row again.
    fn read(&self, place: Place) -> Result<StringRecord, DataError>;

    /// A place in words, for messages.
    fn place(&self, place: Place) -> String;

    /// Bytes that it holds.
    fn host_bytes(&self) -> u64;

    /// Bytes that reading one row takes, where the longest has so many.
    fn scratch_bytes(&self, longest: u64) -> u64;
}

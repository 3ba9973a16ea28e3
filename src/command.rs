//! What the command `tightfit` needs of the library and nobody else should call: it may change at any time.

pub use crate::device::process::{peak_resident_bytes, resident_bytes};
pub use crate::words::{format_value, nearest, plural, unknown};

/// Reading and writing files of users.
pub mod files {
    pub use crate::files::{check_writable, elsewhere, is_there, make_folder_of, read, write_whole};
}

/// The planner on published instances.
pub mod bench {
    pub use crate::plan::bench::{
        CheckmateInstance, Comparison, DeviceCosts, Outcome, Packed, PoetInstance, devices, place,
    };
}

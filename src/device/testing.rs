//! For tests that need a device.

use super::Device;
use crate::error::DeviceError;

/// Opens the default device. Without an adapter it says so and returns `None`, unless `TIGHTFIT_REQUIRE_GPU=1`.
///
/// # Panics
/// Where a device is required and there is none, or opening fails for another reason.
pub fn device_or_skip() -> Option<Device> {
    match Device::open(None) {
        Ok(device) => Some(device),
        Err(DeviceError::NoAdapter) if std::env::var_os("TIGHTFIT_REQUIRE_GPU").is_none_or(|value| value != "1") => {
            println!("SKIPPED: no GPU adapter (set TIGHTFIT_REQUIRE_GPU=1 to make this a failure)");
            None
        }
        Err(error) => panic!("a device is required: {error}"),
    }
}

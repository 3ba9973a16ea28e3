//! For tests that need a device.

use super::Device;
use crate::error::DeviceError;

/// Opens the default device, or the one that `TIGHTFIT_TEST_DEVICE` selects (through OpenGL only with one test at a
/// time: wgpu cannot open it twice at once). Without an adapter it says so and returns `None`, unless
/// `TIGHTFIT_REQUIRE_GPU=1`.
///
/// # Panics
/// Where a device is required and there is none, or opening fails for another reason.
pub fn device_or_skip() -> Option<Device> {
    let selector = std::env::var("TIGHTFIT_TEST_DEVICE").ok();
    match Device::open(selector.as_deref()) {
        Ok(device) => Some(device),
        Err(DeviceError::NoAdapter) if std::env::var_os("TIGHTFIT_REQUIRE_GPU").is_none_or(|value| value != "1") => {
            println!("SKIPPED: no GPU adapter (set TIGHTFIT_REQUIRE_GPU=1 to make this a failure)");
            None
        }
        Err(error) => panic!("a device is required: {error}"),
    }
}

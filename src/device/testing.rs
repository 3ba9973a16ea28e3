//! For tests that need a device.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::thread;

use super::Device;
use crate::error::DeviceError;

/// Opens the default device, or the one that `TIGHTFIT_TEST_DEVICE` selects (through OpenGL only with one test at a
/// time: wgpu cannot open it twice at once). Without an adapter the test fails, unless `TIGHTFIT_ALLOW_NO_GPU=1`: then this
/// returns `None`, says so on standard error, and adds a line to the file that `TIGHTFIT_SKIPPED_TESTS` names, by which
/// `scripts/test` counts what was skipped.
///
/// # Panics
/// Where a device is required and there is none, or opening fails for another reason.
pub fn device_or_skip() -> Option<Device> {
    let selector = std::env::var("TIGHTFIT_TEST_DEVICE").ok();
    let may_skip = || std::env::var_os("TIGHTFIT_ALLOW_NO_GPU").is_some_and(|value| value == "1");
    match Device::open(selector.as_deref()) {
        Ok(device) => Some(device),
        Err(DeviceError::NoAdapter) if may_skip() => {
            let test = thread::current().name().unwrap_or("a test").to_owned();
            // Past what catches the output of tests that pass.
            let _ = writeln!(io::stderr(), "SKIPPED for want of a GPU: {test}");
            if let Some(path) = std::env::var_os("TIGHTFIT_SKIPPED_TESTS") {
                let mut file =
                    OpenOptions::new().append(true).create(true).open(path).expect("the list can be written");
                file.write_all(format!("{test}\n").as_bytes()).expect("the list can be written");
            }
            None
        }
        Err(DeviceError::NoAdapter) => panic!(
            "this test needs a GPU, or a Vulkan driver that runs on the CPU: scripts/setup installs one; \
             TIGHTFIT_ALLOW_NO_GPU=1 skips such tests"
        ),
        Err(error) => panic!("a device is required: {error}"),
    }
}

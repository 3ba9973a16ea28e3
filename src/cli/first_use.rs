//! A device that is used for the first time is measured for a few seconds, once, so that plans for it count on its own costs.

use tightfit::device::Device;
use tightfit::train::{Profile, calibrate_once};

use super::output::Output;
use super::progress::measuring;
use super::settings::DeviceArgs;

/// Switches it off where it is `0`, `off`, `false` or `no`.
const VARIABLE: &str = "TIGHTFIT_CALIBRATE";

impl DeviceArgs {
    /// Measures the device that is named, if it was not. One that cannot be opened is an error later on.
    pub(crate) fn calibrate(&self, output: &Output) {
        if self.no_calibrate || is_off() || self.device.as_deref() == Some("cpu") {
            return;
        }
        if let Ok(device) = Device::open(self.device.as_deref()) {
            calibrate(&device, false, output);
        }
    }
}

/// Measures a device, if that was not done. Where it fails, plans count on what is typical of its class.
pub(crate) fn calibrate(device: &Device, skip: bool, output: &Output) {
    if skip || is_off() || Profile::path_for_new(device.info()).is_none() {
        return;
    }
    output.text(format_args!("measuring {} for a few seconds, once; --no-calibrate skips it", device.info().name));
    if let Err(error) = measuring(output, || calibrate_once(device)) {
        log::warn!("{} was not measured ({error}): costs that are typical of its class are used", device.info().name);
    }
}

fn is_off() -> bool {
    std::env::var(VARIABLE).is_ok_and(|value| ["0", "off", "false", "no"].contains(&value.to_lowercase().as_str()))
}

//! A device that is used for the first time is measured for a few seconds, once, so that plans for it count on its own costs.

use tightfit::device::{self, AdapterInfo, Device};
use tightfit::train::{Profile, calibrate_once};

use super::output::Output;
use super::progress::measuring;

/// Switches it off where it is `0`, `off`, `false` or `no`.
const VARIABLE: &str = "TIGHTFIT_CALIBRATE";

/// Measures the device that is named, or the best, if it was not: only then is it opened here. One that cannot be opened is an error
/// later on.
pub(crate) fn for_device(name: Option<&str>, skip: bool, output: &Output) {
    if name == Some("cpu") || skip || is_off() {
        return;
    }
    if device::find(name).is_ok_and(|info| is_new(&info))
        && let Ok(device) = Device::open(name)
    {
        measure(&device, output);
    }
}

/// Measures a device, if that was not done.
pub(crate) fn calibrate(device: &Device, skip: bool, output: &Output) {
    if !skip && !is_off() && is_new(device.info()) {
        measure(device, output);
    }
}

/// Where it fails, plans count on what is typical of the device's class.
fn measure(device: &Device, output: &Output) {
    output.text(format_args!("measuring {} for a few seconds, once; --no-calibrate skips it", device.info().name));
    if let Err(error) = measuring(output, || calibrate_once(device)) {
        log::warn!("{} was not measured ({error}): costs that are typical of its class are used", device.info().name);
    }
}

fn is_new(adapter: &AdapterInfo) -> bool {
    Profile::path_for_new(adapter).is_some()
}

fn is_off() -> bool {
    std::env::var(VARIABLE).is_ok_and(|value| ["0", "off", "false", "no"].contains(&value.to_lowercase().as_str()))
}

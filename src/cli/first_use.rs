//! A device that is used for the first time is measured for a few seconds, once, so that plans for it count on its own costs.

use tightfit::device::AdapterInfo;
use tightfit::train::{DeviceSelector, Processor, Profile, calibrate_once};

use super::output::Output;
use super::progress::measuring;

/// Switches it off where it is `0`, `off`, `false` or `no`.
const VARIABLE: &str = "TIGHTFIT_CALIBRATE";

/// Measures the GPU that is named, or the best, if it was not: only then is it opened here. One that cannot be opened is an error
/// later on.
pub(crate) fn for_device(name: Option<&str>, skip: bool, output: &Output) {
    let selector = DeviceSelector::from(name);
    if skip || is_off() {
        return;
    }
    if Processor::find_gpu(&selector).is_some_and(|info| is_new(&info))
        && let Ok(processor) = Processor::open(&selector, None)
    {
        measure(&processor, output);
    }
}

/// Measures a GPU, if that was not done. CPUs differ less: what is typical of them does until `tightfit calibrate` measures this one.
pub(crate) fn calibrate(processor: &Processor, skip: bool, output: &Output) {
    let is_gpu = matches!(processor, Processor::Gpu(_));
    if is_gpu && !skip && !is_off() && processor.info().is_some_and(|info| is_new(&info)) {
        measure(processor, output);
    }
}

/// Where it fails, plans count on what is typical of the device's class.
fn measure(processor: &Processor, output: &Output) {
    let name = processor.name();
    output.text(format_args!("measuring {name} for a few seconds, once; --no-calibrate skips it"));
    if let Err(error) = measuring(output, || calibrate_once(processor)) {
        log::warn!("{name} was not measured ({error}): costs that are typical of its class are used");
    }
}

fn is_new(adapter: &AdapterInfo) -> bool {
    Profile::path_for_new(adapter).is_some()
}

fn is_off() -> bool {
    std::env::var(VARIABLE).is_ok_and(|value| ["0", "off", "false", "no"].contains(&value.to_lowercase().as_str()))
}

//! Ctrl-C.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::failure::{Failure, INTERRUPTED};

/// Becomes true at the first Ctrl-C, which asks for an end at the next step or micro-batch; the second ends the process.
pub(crate) fn stop_on_ctrl_c() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(INTERRUPTED));
        }
    })
    .map_err(|error| Failure::failed(format!("Ctrl-C cannot be caught: {error}")))?;
    Ok(stop)
}

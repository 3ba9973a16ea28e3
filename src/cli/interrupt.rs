//! Ctrl-C and SIGTERM, and what they may end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tightfit::data::Dataset;
use tightfit::train::{Evaluation, Trainer};

use super::failure::{Failure, INTERRUPTED};
use super::output::Output;
use super::progress::samples_bar;

/// Becomes true at the first Ctrl-C or SIGTERM, which asks for an end at the next step or micro-batch; the second ends the process.
pub(crate) fn stop_on_ctrl_c() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    catch(&stop).map_err(|reason| Failure::failed(format!("Ctrl-C cannot be caught: {reason}")))?;
    Ok(stop)
}

#[cfg(unix)]
fn catch(stop: &Arc<AtomicBool>) -> Result<(), String> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    use signal_hook::flag;
    let caught = [SIGINT, SIGTERM].into_iter().try_for_each(|signal| {
        // Looked at before the first sets the flag.
        flag::register_conditional_shutdown(signal, i32::from(INTERRUPTED), Arc::clone(stop))?;
        flag::register(signal, Arc::clone(stop)).map(drop)
    });
    caught.map_err(|error| error.to_string())
}

/// Has what exceeds a limit on the size of files fail as any other writing, in place of ending the process.
#[cfg(unix)]
pub(crate) fn outlive_file_limits() {
    // Where that cannot be had, writing goes on as before.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
}

#[cfg(not(unix))]
pub(crate) fn outlive_file_limits() {}

#[cfg(not(unix))]
fn catch(stop: &Arc<AtomicBool>) -> Result<(), String> {
    let flag = Arc::clone(stop);
    let handler = move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(INTERRUPTED));
        }
    };
    ctrlc::set_handler(handler).map_err(|error| error.to_string())
}

/// Tests a model, with a bar; `None` where that was stopped.
pub(crate) fn evaluate(
    trainer: &mut Trainer,
    data: &Dataset,
    stop: &AtomicBool,
    output: &Output,
) -> Result<Option<Evaluation>, Failure> {
    let bar = samples_bar(output, data.len());
    let evaluation = trainer.evaluate_while(data, |done| {
        bar.set_position(done as u64);
        !stop.load(Ordering::Relaxed)
    });
    bar.finish_and_clear();
    Ok(evaluation?)
}

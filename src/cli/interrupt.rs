//! Ctrl-C and other signals, and what they may end.

#[cfg(unix)]
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(unix)]
use signal_hook::consts;
use tightfit::data::Dataset;
use tightfit::train::{Evaluation, Trainer};

use super::failure::{Failure, INTERRUPTED};
use super::output::Output;
use super::progress::samples_bar;

/// Becomes true when a signal asks for an end, which then comes at the next step or micro-batch.
pub(crate) fn stop_when_asked() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    catch(&stop).map_err(|reason| Failure::failed(format!("Ctrl-C cannot be caught: {reason}")))?;
    Ok(stop)
}

/// What people send. Whoever sends a second one does not want to wait: that ends the process.
#[cfg(unix)]
const ORDERS: [i32; 2] = [consts::SIGINT, consts::SIGTERM];

/// What comes of itself and often twice: a terminal that is closed, a limit that is near, as batch systems announce it. They
/// would end the process, and what it learned. SIGQUIT does, which is there for that.
#[cfg(unix)]
const WARNINGS: [i32; 5] = [consts::SIGHUP, consts::SIGXCPU, consts::SIGUSR1, consts::SIGUSR2, consts::SIGALRM];

#[cfg(unix)]
fn catch(stop: &Arc<AtomicBool>) -> Result<(), String> {
    use signal_hook::flag;
    let is_second = Arc::new(AtomicBool::new(false));
    let orders = ORDERS.into_iter().try_for_each(|signal| {
        // Looked at before the first sets the flag.
        flag::register_conditional_shutdown(signal, i32::from(INTERRUPTED), Arc::clone(&is_second))?;
        flag::register(signal, Arc::clone(&is_second))?;
        flag::register(signal, Arc::clone(stop)).map(drop)
    });
    // What was to be ignored, as below nohup, is.
    let mut warnings = WARNINGS.into_iter().filter(|&signal| !is_ignored(signal));
    let caught =
        orders.and_then(|()| warnings.try_for_each(|signal| flag::register(signal, Arc::clone(stop)).map(drop)));
    caught.map_err(|error| error.to_string())
}

#[cfg(unix)]
fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    #[allow(unsafe_code)]
    // SAFETY: nothing is set, and zeros are a valid action where nothing is written either.
    let action = unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}

/// Has what exceeds a limit on the size of files fail as any other writing, in place of ending the process.
#[cfg(unix)]
pub(crate) fn outlive_file_limits() {
    // Where that cannot be had, writing goes on as before.
    let _ = signal_hook::flag::register(consts::SIGXFSZ, Arc::default());
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

//! Ctrl-C and other signals, and what they may end.

#[cfg(unix)]
use std::io::Write as _;
#[cfg(unix)]
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(unix)]
use std::time::{Duration, Instant};

#[cfg(unix)]
use signal_hook::{consts, iterator::Signals};
use tightfit::data::DataLoader;
use tightfit::train::{Evaluation, Trainer};

use super::failure::{Failure, INTERRUPTED};
use super::notes;
use super::output::Output;
use super::progress::samples_bar;

/// Becomes true when a signal asks for an end, which then comes at the next step or micro-batch.
pub(crate) fn stop_when_asked() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    catch(&stop).map_err(|reason| Failure::failed(format!("Ctrl-C cannot be caught: {reason}")))?;
    Ok(stop)
}

/// What people send, and what ends a service.
#[cfg(unix)]
const ORDERS: [i32; 2] = [consts::SIGINT, consts::SIGTERM];

/// How long after the first order another Ctrl-C ends the process: one that comes at once may be the same order, sent to the process
/// and to its group.
#[cfg(unix)]
const PATIENCE: Duration = Duration::from_secs(1);

/// What comes of itself and often twice: a terminal that is closed, a limit that is near, as batch systems announce it. They
/// would end the process, and what it learned. SIGQUIT does, which is there for that.
#[cfg(unix)]
const WARNINGS: [i32; 5] = [consts::SIGHUP, consts::SIGXCPU, consts::SIGUSR1, consts::SIGUSR2, consts::SIGALRM];

#[cfg(unix)]
fn catch(stop: &Arc<AtomicBool>) -> Result<(), String> {
    use signal_hook::flag;
    let orders = ORDERS.into_iter().try_for_each(|signal| flag::register(signal, Arc::clone(stop)).map(drop));
    // What was to be ignored, as below nohup, is.
    let mut warnings = WARNINGS.into_iter().filter(|&signal| !is_ignored(signal));
    let caught =
        orders.and_then(|()| warnings.try_for_each(|signal| flag::register(signal, Arc::clone(stop)).map(drop)));
    let orders = caught.and_then(|()| Signals::new(ORDERS)).map_err(|error| error.to_string())?;
    // Without a thread to spare, only SIGQUIT and SIGKILL end the process at once.
    let _ = std::thread::Builder::new().name("signals".into()).spawn(|| answer(orders));
    Ok(())
}

/// Says that an order was understood. Whoever presses Ctrl-C again does not want to wait: that ends the process.
#[cfg(unix)]
fn answer(mut orders: Signals) {
    let mut first: Option<Instant> = None;
    for signal in &mut orders {
        match first {
            None => {
                first = Some(Instant::now());
                say("ending after this step; Ctrl-C again ends at once and saves nothing");
            }
            Some(first) if signal == consts::SIGINT && first.elapsed() >= PATIENCE => {
                say("ended at once: nothing more was saved");
                notes::end();
                std::process::exit(i32::from(INTERRUPTED));
            }
            Some(_) => {}
        }
    }
}

/// On a line of its own, below what a terminal shows of the keys pressed and of the progress.
#[cfg(unix)]
fn say(text: &str) {
    if !notes::keep(notes::Stream::Err, text) {
        let _ = writeln!(std::io::stderr(), "\n{text}");
    }
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
            notes::end();
            std::process::exit(i32::from(INTERRUPTED));
        }
    };
    ctrlc::set_handler(handler).map_err(|error| error.to_string())
}

/// Does what Ctrl-C does, where a terminal gives it as a key.
#[cfg(feature = "tui")]
pub(crate) fn interrupt(stop: &AtomicBool) {
    #[cfg(unix)]
    if signal_hook::low_level::raise(consts::SIGINT).is_ok() {
        return;
    }
    if stop.swap(true, Ordering::Relaxed) {
        notes::end();
        std::process::exit(i32::from(INTERRUPTED));
    }
}

/// Does what SIGQUIT does, where a terminal gives it as a key.
#[cfg(feature = "tui")]
pub(crate) fn quit() {
    #[cfg(unix)]
    let _ = signal_hook::low_level::raise(consts::SIGQUIT);
}

/// From here on SIGQUIT ends the process no sooner than the terminal is as it was.
#[cfg(feature = "tui")]
pub(crate) fn give_back_on_quit() {
    #[cfg(unix)]
    if let Ok(mut quits) = Signals::new([consts::SIGQUIT]) {
        // Without a thread to spare, SIGQUIT does nothing.
        let _ = std::thread::Builder::new().name("quit".into()).spawn(move || {
            for signal in &mut quits {
                notes::end();
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
        });
    }
}

/// Tests a model, with the averages of its parameters where they are kept and with a bar; `None` where that was stopped.
pub(crate) fn evaluate(
    trainer: &mut Trainer,
    data: &DataLoader<'_>,
    stop: &AtomicBool,
    output: &Output,
) -> Result<Option<Evaluation>, Failure> {
    let bar = samples_bar(output, data.len().unwrap_or(0));
    let evaluation = trainer.with_averages(|trainer| {
        trainer.evaluate_while(data, |done| {
            bar.set_position(done as u64);
            !stop.load(Ordering::Relaxed)
        })
    });
    bar.finish_and_clear();
    Ok(evaluation?)
}

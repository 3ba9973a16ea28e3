//! Ctrl-C, and what it may end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tightfit::data::Dataset;
use tightfit::train::{Evaluation, Trainer};

use super::failure::{Failure, INTERRUPTED};
use super::output::Output;
use super::progress::samples_bar;

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

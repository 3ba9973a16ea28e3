//! A trainer in a thread of its own, which does one thing after the other that it is sent.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tightfit::error::TrainError;
use tightfit::train::Trainer;

use crate::errors::OrRaise as _;

/// How long a signal, such as that of Ctrl-C, may wait until it is looked for.
const PATIENCE: Duration = Duration::from_millis(20);

/// What a trainer is sent.
pub(crate) enum Message {
    /// Something to do. It may take further messages itself, as a fit does while callbacks run.
    Job(Box<Job>),
    /// That a fit which waits for callbacks goes on; true ends it instead.
    Resume(bool),
}

type Job = dyn FnOnce(&mut Trainer, &Receiver<Message>) + Send;

/// The thread. Dropping it frees the trainer's memory.
pub(crate) struct Worker {
    messages: Option<Sender<Message>>,
    thread: Option<JoinHandle<()>>,
    /// A process that is forked from this one has no such thread.
    process: u32,
}

impl Worker {
    /// Makes the trainer there.
    pub(crate) fn start(
        py: Python<'_>,
        make: impl FnOnce() -> Result<Trainer, TrainError> + Send + 'static,
    ) -> PyResult<Self> {
        let (sender, messages) = mpsc::channel();
        let (made, result) = mpsc::channel();
        let run = move || {
            let mut trainer = match make() {
                Ok(trainer) => trainer,
                Err(error) => {
                    // Whoever asked may have gone.
                    let _ = made.send(Err(error));
                    return;
                }
            };
            let _ = made.send(Ok(()));
            drop(made);
            while let Ok(message) = messages.recv() {
                let Message::Job(job) = message else { continue };
                // What a panic left of the trainer is not known: the thread ends with it, and who waits hears of that.
                if catch_unwind(AssertUnwindSafe(|| job(&mut trainer, &messages))).is_err() {
                    return;
                }
            }
        };
        let thread = Builder::new().name("tightfit".to_owned()).spawn(run)?;
        let worker = Worker { messages: Some(sender), thread: Some(thread), process: std::process::id() };
        wait(py, &Mutex::new(result), &AtomicBool::new(false))?.or_raise()?;
        Ok(worker)
    }

    pub(crate) fn send(&self, message: Message) -> PyResult<()> {
        if self.process != std::process::id() {
            return Err(PyRuntimeError::new_err(
                "the model is of another process, and this one was forked from it: make the model here, or start processes by `spawn`",
            ));
        }
        let sent = self.messages.as_ref().map(|messages| messages.send(message));
        if let Some(Ok(())) = sent { Ok(()) } else { Err(is_gone()) }
    }

    /// Has the trainer do something, and waits for what comes of it. Other threads of Python run meanwhile.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        py: Python<'_>,
        function: impl FnOnce(&mut Trainer) -> T + Send + 'static,
    ) -> PyResult<T> {
        self.call_while(py, |trainer, _| function(trainer))
    }

    /// The same of something that ends early where the flag is set: where a signal, such as that of Ctrl-C, raised.
    pub(crate) fn call_while<T: Send + 'static>(
        &self,
        py: Python<'_>,
        function: impl FnOnce(&mut Trainer, &AtomicBool) -> T + Send + 'static,
    ) -> PyResult<T> {
        let (sender, result) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stops = Arc::clone(&stop);
        self.send(Message::Job(Box::new(move |trainer, _| {
            let _ = sender.send(function(trainer, &stops));
        })))?;
        wait(py, &Mutex::new(result), &stop)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The thread ends when nothing can be sent any more.
        let messages = self.messages.take();
        if self.process != std::process::id() {
            // Not here.
            std::mem::forget((messages, self.thread.take()));
            return;
        }
        drop(messages);
        if let Some(thread) = self.thread.take() {
            // It may want the interpreter to let go of arrays.
            Python::attach(|py| py.detach(|| thread.join().is_err()));
        }
    }
}

/// The next thing that comes, or that a while has passed.
pub(crate) fn next<T: Send>(py: Python<'_>, channel: &Mutex<Receiver<T>>) -> PyResult<Option<T>> {
    let lock = || channel.lock().unwrap_or_else(PoisonError::into_inner);
    match py.detach(|| lock().recv_timeout(PATIENCE)) {
        Ok(value) => Ok(Some(value)),
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => Err(is_gone()),
    }
}

/// Waits to the end, and raises only then what a signal raised: until then the trainer is at work on it. It is told to stop.
fn wait<T: Send>(py: Python<'_>, result: &Mutex<Receiver<T>>, stop: &AtomicBool) -> PyResult<T> {
    let mut raised = None;
    loop {
        if let Some(value) = next(py, result)? {
            return raised.map_or(Ok(value), Err);
        }
        raised = raised.or_else(|| py.check_signals().err());
        stop.store(raised.is_some(), Ordering::Relaxed);
    }
}

fn is_gone() -> PyErr {
    PyRuntimeError::new_err(
        "tightfit failed, and its trainer is gone: a defect, which the message on standard error shows where to find",
    )
}

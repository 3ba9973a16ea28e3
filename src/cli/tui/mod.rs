//! `train --tui`: a training on a full screen, with curves and the memory of a step.
//!
//! A thread draws what the training thread told, at most ten times a second: a step only adds a few numbers.

mod axis;
mod curves;
mod memory;
mod state;
mod terminal;
#[cfg(test)]
mod tests;
mod view;

use std::io::{self, IsTerminal as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tightfit::train::{EpochReport, History, StepReport, Trainer};

use super::interrupt;
use super::notes;
use state::{Memory, State};
use terminal::Input;

/// Between two frames.
const FRAME: Duration = Duration::from_millis(100);
/// What shows the time goes on though nothing happens.
const TICK: Duration = Duration::from_secs(1);
/// How long the end waits for the last frame: a terminal may be slow, or stopped.
const MOST_WAIT: Duration = Duration::from_millis(500);
/// Lines of the log that a screen may have.
const MOST_LINES: usize = 100;

/// A screen that shows a training, until it is dropped.
pub(crate) struct Screen {
    state: Arc<Mutex<State>>,
    end: Arc<AtomicBool>,
    drawing: Option<JoinHandle<()>>,
}

impl Screen {
    /// Takes the terminal for a screen that shows a training; keys set `stop`. Where there is no terminal, a warning says so, and
    /// training goes on without a screen. Curves go on from `history`.
    pub(crate) fn start(trainer: &Trainer, history: History, stop: &Arc<AtomicBool>) -> Option<Screen> {
        let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
        if !is_terminal || std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb") {
            log::warn!("--tui takes a terminal that can draw, as standard input and output: progress is told in lines");
            return None;
        }
        let memory = Memory::of(trainer.planned());
        let state = Arc::new(Mutex::new(State::new(trainer.model().name(), trainer.device_name(), memory, history)));
        let end = Arc::new(AtomicBool::new(false));
        match begin(&state, &end, stop) {
            Ok(drawing) => Some(Screen { state, end, drawing: Some(drawing) }),
            Err(error) => {
                notes::end();
                log::warn!("--tui: {error}: progress is told in lines");
                None
            }
        }
    }

    pub(crate) fn step(&self, step: &StepReport) {
        lock(&self.state).step(step);
    }

    pub(crate) fn epoch(&self, epoch: &EpochReport) {
        lock(&self.state).epoch(epoch);
    }

    /// The trainer has another plan.
    pub(crate) fn replan(&self, trainer: &Trainer) {
        let memory = Memory::of(trainer.planned());
        let mut state = lock(&self.state);
        state.memory = memory;
        state.is_new = true;
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(drawing) = self.drawing.take() {
            let deadline = Instant::now() + MOST_WAIT;
            while !drawing.is_finished() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(5));
            }
        }
        notes::end();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn begin(state: &Arc<Mutex<State>>, end: &Arc<AtomicBool>, stop: &Arc<AtomicBool>) -> io::Result<JoinHandle<()>> {
    interrupt::give_back_on_quit();
    let mut screen = terminal::Screen::enter()?;
    draw(&mut screen, state);
    let (state, end, stop) = (Arc::clone(state), Arc::clone(end), Arc::clone(stop));
    thread::Builder::new().name("screen".into()).spawn(move || follow(screen, &state, &end, &stop))
}

/// Draws a frame; false where the screen is gone.
fn draw(screen: &mut terminal::Screen, state: &Mutex<State>) -> bool {
    let log = notes::last(MOST_LINES);
    screen.draw(|frame| {
        let state = lock(state);
        view::draw(frame, &state, &log, state.elapsed());
    })
}

/// Draws and reads keys, until the end.
fn follow(mut screen: terminal::Screen, state: &Mutex<State>, end: &AtomicBool, stop: &AtomicBool) {
    let mut drawn: Option<Instant> = None;
    while !end.load(Ordering::Relaxed) {
        let next = Instant::now() + FRAME;
        let is_ending = stop.load(Ordering::Relaxed);
        let is_new = {
            let mut state = lock(state);
            let is_new = state.is_new || state.is_ending != is_ending;
            (state.is_new, state.is_ending) = (false, is_ending);
            is_new
        };
        if is_new || drawn.is_none_or(|drawn| drawn.elapsed() >= TICK) {
            if !draw(&mut screen, state) {
                return;
            }
            drawn = Some(Instant::now());
        }
        while let Some(left) = next.checked_duration_since(Instant::now()) {
            if let Input::Gone = terminal::wait(left) {
                return;
            }
            while event::poll(Duration::ZERO).is_ok_and(|is_there| is_there) {
                let Ok(event) = event::read() else { return };
                answer(&event, &mut lock(state), stop);
            }
        }
    }
}

fn answer(event: &Event, state: &mut State, stop: &AtomicBool) {
    // Its size may be another.
    state.is_new = true;
    let Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) = *event else { return };
    let control = modifiers.contains(KeyModifiers::CONTROL);
    match code {
        KeyCode::Char('c') if control => interrupt::interrupt(stop),
        KeyCode::Char('\\' | '4') if control => interrupt::quit(),
        KeyCode::Char('q' | 'Q') => stop.store(true, Ordering::Relaxed),
        KeyCode::Tab | KeyCode::Right | KeyCode::Down => state.chosen = state.chosen.wrapping_add(1),
        KeyCode::BackTab | KeyCode::Left | KeyCode::Up => state.chosen = state.chosen.wrapping_sub(1),
        _ => {}
    }
}

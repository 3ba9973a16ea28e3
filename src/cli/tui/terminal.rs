//! The terminal: taken for a screen, and given back on every way out.

use std::io::{self, BufWriter, Stdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, TryLockError};
use std::thread;
use std::time::Duration;

use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::prelude::CrosstermBackend;
use ratatui::{Frame, Terminal};

use super::super::notes;

/// Bytes of a frame that are written at once.
const FRAME_BYTES: usize = 1 << 14;
/// How often leaving tries again while a frame is written.
const TRIES: u32 = 50;

/// Whether the screen is drawn.
static ON: AtomicBool = AtomicBool::new(false);
/// Held while a frame is written.
static WRITING: Mutex<()> = Mutex::new(());

pub(super) struct Screen(Terminal<CrosstermBackend<BufWriter<Stdout>>>);

impl Screen {
    /// Takes the terminal. From here on lines are kept, see [`notes`].
    pub(super) fn enter() -> io::Result<Screen> {
        give_back_on_panic();
        enable_raw_mode()?;
        ON.store(true, Ordering::SeqCst);
        let screen = execute!(io::stdout(), EnterAlternateScreen)
            .and_then(|()| Terminal::new(CrosstermBackend::new(BufWriter::with_capacity(FRAME_BYTES, io::stdout()))))
            .inspect_err(|_| leave())?;
        notes::begin(leave);
        Ok(Screen(screen))
    }

    /// Draws a frame; false where the screen is gone.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> bool {
        let Ok(_writing) = WRITING.lock() else { return false };
        ON.load(Ordering::SeqCst) && self.0.draw(draw).is_ok()
    }
}

/// Gives the terminal back, once.
fn leave() {
    if !ON.swap(false, Ordering::SeqCst) {
        return;
    }
    // A frame that is being written would come after this. One whose drawing panicked never ends.
    for _ in 0..TRIES {
        match WRITING.try_lock() {
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(2)),
            _ => break,
        }
    }
    // Where the terminal is gone, there is nothing to restore.
    let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

/// The message of a panic is printed where it stays.
fn give_back_on_panic() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            notes::end();
            before(panic);
        }));
    });
}

/// What there is to read.
pub(super) enum Input {
    /// Keys, perhaps, or another size.
    Some,
    /// Nobody is at the terminal any more. Reading would never end then.
    Gone,
}

/// Waits for keys, as long as this.
#[cfg(unix)]
pub(super) fn wait(time: Duration) -> Input {
    let mut stdin = libc::pollfd { fd: libc::STDIN_FILENO, events: libc::POLLIN, revents: 0 };
    // What is less than a millisecond would be none.
    let milliseconds = i32::try_from(time.as_millis() + 1).unwrap_or(i32::MAX);
    #[allow(unsafe_code)]
    // SAFETY: it is one descriptor, which is there during the call.
    let count = unsafe { libc::poll(&raw mut stdin, 1, milliseconds) };
    let is_gone = count > 0 && stdin.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0;
    if is_gone { Input::Gone } else { Input::Some }
}

/// Waits for keys, as long as this.
#[cfg(not(unix))]
pub(super) fn wait(time: Duration) -> Input {
    match ratatui::crossterm::event::poll(time) {
        Ok(_) => Input::Some,
        Err(_) => Input::Gone,
    }
}

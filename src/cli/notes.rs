//! Where lines go while a screen is drawn: they are kept, shown there, and printed when it is gone.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lines that are kept.
const MOST_LINES: usize = 1000;

/// What a line is printed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// A screen that is drawn.
struct Screen {
    /// Gives the terminal back.
    leave: fn(),
    lines: VecDeque<(Stream, String)>,
    /// Lines that were too many.
    gone: u64,
}

static SCREEN: Mutex<Option<Screen>> = Mutex::new(None);

fn screen() -> MutexGuard<'static, Option<Screen>> {
    SCREEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From here on lines are kept. `leave` gives the terminal back.
#[cfg_attr(not(feature = "tui"), allow(dead_code))]
pub(crate) fn begin(leave: fn()) {
    *screen() = Some(Screen { leave, lines: VecDeque::new(), gone: 0 });
}

/// Whether lines are kept.
pub(crate) fn is_on() -> bool {
    screen().is_some()
}

/// Keeps lines, where a screen is drawn.
pub(crate) fn keep(stream: Stream, text: &str) -> bool {
    let mut screen = screen();
    let Some(Screen { lines, gone, .. }) = &mut *screen else { return false };
    for line in text.lines() {
        if lines.len() == MOST_LINES {
            lines.pop_front();
            *gone += 1;
        }
        lines.push_back((stream, line.to_owned()));
    }
    true
}

/// The last lines that say something, oldest first.
#[cfg_attr(not(feature = "tui"), allow(dead_code))]
pub(crate) fn last(count: usize) -> Vec<(Stream, String)> {
    let screen = screen();
    let lines = screen.iter().flat_map(|screen| screen.lines.iter().rev());
    let mut last: Vec<_> = lines.filter(|(_, line)| !line.trim().is_empty()).take(count).cloned().collect();
    last.reverse();
    last
}

/// Gives the terminal back and prints what was kept. Where no screen is drawn, it does nothing.
pub(crate) fn end() {
    let Some(Screen { leave, lines, gone }) = screen().take() else { return };
    leave();
    let width = textwrap::termwidth();
    // Nothing is lost where a terminal is gone: nobody reads it.
    if gone > 0 {
        let _ = writeln!(io::stdout(), "({gone} earlier lines were not kept)");
    }
    for (stream, line) in lines {
        let line = super::output::wrapped(&line, width);
        let _ = match stream {
            Stream::Out => writeln!(io::stdout(), "{line}"),
            Stream::Err => writeln!(io::stderr(), "{line}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_kept_while_a_screen_is_drawn() {
        assert!(!keep(Stream::Out, "printed") && !is_on());
        begin(|| {});
        for number in 0..MOST_LINES + 5 {
            assert!(keep(Stream::Err, &format!("line {number}\n\n")));
        }
        assert!(is_on());
        let shown: Vec<_> = last(2).into_iter().map(|(_, line)| line).collect();
        assert_eq!(shown, [MOST_LINES + 3, MOST_LINES + 4].map(|number| format!("line {number}")));
        let kept = screen().as_ref().map(|screen| (screen.lines.len(), screen.gone));
        assert_eq!(kept, Some((MOST_LINES, MOST_LINES as u64 + 10)));
        *screen() = None;
    }
}

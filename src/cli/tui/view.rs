//! What stands where on the screen.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::{Line, Span};
use tightfit::plan::{format_bytes, format_ns, format_parts};

use super::super::notes::Stream;
use super::state::{Memory, State};
use super::{curves, memory};

/// Columns from which two curves are side by side.
const TWO_CURVES: u16 = 64;
/// Columns below which there are no bars.
const NARROW: u16 = 36;
/// Above this share of the budget, memory is tight.
const TIGHT: f64 = 0.95;

/// A number as people read it: four digits that count.
pub(super) fn number(value: f64) -> String {
    if !value.is_finite() || value == 0.0 {
        return (value + 0.0).to_string();
    }
    match value.abs().log10().floor() {
        power @ -4.0..3.0 => {
            let text = format!("{value:.*}", (3.0 - power) as usize);
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        3.0..6.0 => format!("{value:.0}"),
        _ => format!("{value:.2e}"),
    }
}

fn percent(share: f64) -> String {
    format!("{:.2}%", share * 100.0)
}

/// Hours, minutes and seconds.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

/// A title with a line after it; gives what is below.
pub(super) fn heading(frame: &mut Frame<'_>, area: Rect, title: Line<'_>) -> Rect {
    let [top, inner] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    let used = title.width() as u16 + 1;
    frame.render_widget(title, top);
    if used < top.width {
        let rule = Rect { x: top.x + used, width: top.width - used, ..top };
        frame.render_widget("─".repeat(usize::from(rule.width)).dim(), rule);
    }
    inner
}

/// A bar of this width.
fn bar(width: u16, share: f64, color: Color) -> [Span<'static>; 2] {
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let filled = (f64::from(width) * share).round() as usize;
    let rest = usize::from(width) - filled;
    [Span::styled("━".repeat(filled), color), Span::styled("─".repeat(rest), Style::new().dim())]
}

/// A name, a bar and words, in columns that stand below each other.
fn bar_line(frame: &mut Frame<'_>, area: Rect, name: &str, (share, color): (f64, Color), words: &str) {
    // Words say more, where there is room for one of the two.
    let width = if area.width < NARROW { 0 } else { (area.width / 5).min(30) };
    let mut spans = vec![Span::raw(format!("{name:<7}"))];
    spans.extend(bar(width, share, color));
    spans.push(Span::raw(format!("{}{words}", if width > 0 { "  " } else { "" })));
    frame.render_widget(Line::from(spans), area);
}

fn draw_title(frame: &mut Frame<'_>, area: Rect, state: &State, elapsed: Duration) {
    let right = Line::from(clock(elapsed));
    let room = (right.width() as u16 + 1).min(area.width);
    let [left, corner] = Layout::horizontal([Constraint::Fill(1), Constraint::Length(room)]).areas(area);
    let title = [state.model.as_str().bold(), "  ".into(), state.device.as_str().dim()];
    frame.render_widget(Line::from_iter(title), left);
    frame.render_widget(right.right_aligned(), corner);
}

fn draw_memory_line(frame: &mut Frame<'_>, area: Rect, memory: &Memory) {
    let peak = format_bytes(memory.peak_bytes);
    let (share, of) = match memory.budget_bytes {
        Some(budget) => {
            let share = memory.peak_bytes as f64 / (budget as f64).max(1.0);
            (share, format!("peak {peak} of {}", format_bytes(budget)))
        }
        None => (1.0, format!("peak {peak}, no budget")),
    };
    let color = match memory.budget_bytes {
        None => Color::Blue,
        Some(_) if share > TIGHT => Color::Yellow,
        Some(_) => Color::Green,
    };
    let mut words = vec![of, format_parts(&memory.micro_batches)];
    words.extend(memory.levers.iter().cloned());
    bar_line(frame, area, "memory", (share, color), &words.join("  "));
}

/// What the last step reported.
fn draw_values(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let Some(step) = state.step else {
        frame.render_widget("waiting for the first step".dim(), area);
        return;
    };
    let mut words: Vec<Span<'_>> = Vec::new();
    let mut put = |name: &str, value: String| {
        words.extend([format!("{name} ").dim(), value.into(), "  ".into()]);
    };
    put("loss", number(step.loss.into()));
    if let Some(accuracy) = step.accuracy {
        put("accuracy", percent(accuracy.into()));
    }
    put("lr", number(step.lr));
    if let Some(norm) = step.grad_norm {
        put("gradient norm", number(norm.into()));
    }
    if let Some(loss) = state.validation("loss") {
        put("val_loss", number(loss));
    }
    if let Some(accuracy) = state.validation("accuracy") {
        put("val_accuracy", percent(accuracy));
    }
    frame.render_widget(Line::from(words), area);
}

fn draw_epoch(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let Some(step) = state.step else { return };
    let of_epoch = step.steps_per_epoch.max(1);
    let done = (step.step.saturating_sub(1)) % of_epoch + 1;
    let epochs = step.total_steps.div_ceil(of_epoch);
    let words = format!("{} of {epochs}, step {done} of {of_epoch}", step.epoch);
    bar_line(frame, area, "epoch", (done as f64 / of_epoch as f64, Color::Cyan), &words);
}

fn draw_progress(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let Some(step) = state.step else { return };
    let mut words = vec![format!("{} of {}", step.step, step.total_steps)];
    words.extend(state.left().map(|left| format!("{} left", clock(left))));
    words.extend(state.samples_per_s().map(|rate| format!("{rate:.0} samples/s")));
    words.extend(state.step_ms.map(|ms| format!("{}/step", format_ns(ms * 1e6))));
    let share = step.step as f64 / (step.total_steps as f64).max(1.0);
    bar_line(frame, area, "steps", (share, Color::Cyan), &words.join("  "));
}

fn draw_keys(frame: &mut Frame<'_>, area: Rect, state: &State, curves: usize) {
    let line = match state.is_ending {
        true => Line::from("ending after this step".yellow()),
        false => {
            let mut words = vec!["q".bold(), " end after this step".dim()];
            if curves > 1 {
                words.extend(["   tab".bold(), " another curve".dim()]);
            }
            Line::from(words)
        }
    };
    frame.render_widget(line, area);
}

fn draw_log(frame: &mut Frame<'_>, area: Rect, lines: &[(Stream, String)]) {
    let inner = heading(frame, area, Line::from("log".bold()));
    let shown = &lines[lines.len().saturating_sub(usize::from(inner.height))..];
    for ((stream, line), row) in shown.iter().zip(inner.rows()) {
        let style = if *stream == Stream::Err { Style::new().yellow() } else { Style::new() };
        // What moves the cursor is no text.
        let line = line.replace(|c: char| c.is_control(), " ");
        frame.render_widget(Span::styled(line, style), row);
    }
}

fn draw_curves<'a>(frame: &mut Frame<'_>, area: Rect, state: &State, names: &[&'a str]) {
    let chosen = |names: &[&'a str]| names[state.chosen.rem_euclid(names.len() as i64) as usize];
    match names {
        [] => {
            heading(frame, area, Line::from("loss".bold()));
        }
        [first, others @ ..] if area.width >= TWO_CURVES && !others.is_empty() => {
            let [left, right] = Layout::horizontal([Constraint::Fill(1); 2]).spacing(2).areas(area);
            curves::draw(frame, left, state, first);
            curves::draw(frame, right, state, chosen(others));
        }
        names => curves::draw(frame, area, state, chosen(names)),
    }
}

/// Draws all of it, as far as there is room: numbers first, then curves, memory, and the log.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State, log: &[(Stream, String)], elapsed: Duration) {
    let area = frame.area();
    let names = state.curves();
    let height = area.height;
    let line = |from: u16| u16::from(height >= from);
    let (title, memory_line, values, epoch, keys) = (line(2), line(4), line(3), line(5), line(10));
    let log_height = match height {
        ..16 => 0,
        16..30 => 3,
        _ => (height / 6).max(6),
    };
    let fixed = title + memory_line + values + epoch + 1 + keys + log_height;
    let rest = height.saturating_sub(fixed);
    let memory_height = if rest >= 12 { rest / 2 } else { 0 };
    let lines = [title, memory_line, values].map(Constraint::Length);
    let lower = [memory_height, log_height, epoch, 1, keys].map(Constraint::Length);
    let constraints = lines.into_iter().chain([Constraint::Fill(1)]).chain(lower);
    let areas = Layout::vertical(constraints).split(area);
    let [title, memory_line, values, curves, memory_area, log_area, epoch, progress, keys] = areas[..] else { return };
    draw_title(frame, title, state, elapsed);
    draw_memory_line(frame, memory_line, &state.memory);
    draw_values(frame, values, state);
    draw_curves(frame, curves, state, &names);
    if memory_height > 0 {
        memory::draw(frame, memory_area, &state.memory);
    }
    if log_height > 0 {
        draw_log(frame, log_area, log);
    }
    draw_epoch(frame, epoch, state);
    draw_progress(frame, progress, state);
    draw_keys(frame, keys, state, names.len());
}

//! What stands where on the screen.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::{Line, Span};
use tightfit::command::format_value;
use tightfit::plan::{format_ns, format_parts};

use super::super::bar::{GAP, forms};
use super::super::notes::Stream;
use super::state::{Memory, State};
use super::{curves, memory};

/// Columns from which two curves are side by side.
const TWO_CURVES: u16 = 64;
/// Columns below which there are no bars.
const NARROW: u16 = 36;
/// Of the name before a bar, with the space after it.
const NAME_COLUMNS: usize = 7;
/// Above this share of the budget, memory is tight.
const TIGHT: f64 = 0.95;

fn percent(share: f64) -> String {
    format!("{:.2}%", share * 100.0)
}

/// Hours, minutes and seconds.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

/// Those of the items, two columns between them, that fit whole: half a number would be another one. Of several the first have room
/// first.
pub(super) fn fitting<'a>(items: impl IntoIterator<Item = Line<'a>>, width: u16) -> Line<'a> {
    let mut line = Line::default();
    for item in items {
        let gap = if line.width() > 0 { GAP } else { "" };
        if line.width() + gap.len() + item.width() <= usize::from(width) {
            line.spans.push(gap.into());
            line.spans.extend(item.spans);
        }
    }
    line
}

/// Words that end in an ellipsis where they do not fit: after a whole item, if there are some with two columns between them, else after a
/// whole word. So a number is never cut, and no name stands without its value.
pub(super) fn shortened(text: &str, width: u16) -> String {
    let width = usize::from(width);
    if Span::raw(text).width() <= width {
        return text.to_owned();
    }
    let mut room = width.saturating_sub(1);
    let end = text.char_indices().find(|(_, c)| {
        let wide = Span::raw(c.to_string()).width();
        let is_over = wide > room;
        room = room.saturating_sub(wide);
        is_over
    });
    let start = &text[..end.map_or(text.len(), |(end, _)| end)];
    let ends_whole = text[start.len()..].starts_with(' ');
    let before =
        |gap: &str| start.rsplit_once(gap).map(|(before, _)| before.trim_end()).filter(|before| !before.is_empty());
    let shown = match (before(GAP), before(" ")) {
        _ if text[start.len()..].starts_with(GAP) => start.trim_end(),
        (Some(items), _) => items,
        (None, _) if ends_whole => start.trim_end(),
        (None, words) => words.unwrap_or(start),
    };
    if width == 0 { String::new() } else { format!("{shown}…") }
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

/// Columns of a bar beside words. These say more, where there is room for one of the two.
fn bar_columns(width: u16) -> u16 {
    if width < NARROW { 0 } else { (width / 5).min(30) }
}

/// A name, a bar and what fits of words, in columns that stand below each other.
fn bar_line(frame: &mut Frame<'_>, area: Rect, name: &str, (share, color): (f64, Color), words: Vec<String>) {
    let width = bar_columns(area.width);
    let mut line = Line::raw(format!("{name:<NAME_COLUMNS$}"));
    line.extend(bar(width, share, color));
    line.push_span(if width > 0 { GAP } else { "" });
    let room = area.width.saturating_sub(line.width() as u16);
    line.extend(fitting(words.into_iter().map(Line::from), room));
    frame.render_widget(line, area);
}

fn draw_title(frame: &mut Frame<'_>, area: Rect, state: &State, elapsed: Duration) {
    let right = Line::from(clock(elapsed));
    let room = (right.width() as u16 + 1).min(area.width);
    let [left, corner] = Layout::horizontal([Constraint::Fill(1), Constraint::Length(room)]).areas(area);
    let model = shortened(&state.model, left.width);
    let room = usize::from(left.width).saturating_sub(Span::raw(&model).width() + GAP.len()) as u16;
    let device = Some(shortened(&state.device, room)).filter(|device| device.chars().count() > 1);
    let title = [Line::from(model.bold())].into_iter().chain(device.map(|device| Line::from(device.dim())));
    frame.render_widget(fitting(title, left.width), left);
    frame.render_widget(right.right_aligned(), corner);
}

fn draw_memory_line(frame: &mut Frame<'_>, area: Rect, memory: &Memory) {
    let share = memory.budget_bytes.map_or(1.0, |budget| memory.peak_bytes as f64 / (budget as f64).max(1.0));
    let mut peak = forms(memory.peak_bytes, memory.budget_bytes);
    if memory.budget_bytes.is_none() {
        peak.insert(0, format!("{}, no budget", peak[0]));
    }
    let room = usize::from(area.width).saturating_sub(NAME_COLUMNS + usize::from(bar_columns(area.width)) + GAP.len());
    let peak = peak.into_iter().find(|peak| peak.len() <= room);
    let color = match memory.budget_bytes {
        None => Color::Blue,
        Some(_) if share > TIGHT => Color::Yellow,
        Some(_) => Color::Green,
    };
    let mut words: Vec<_> = peak.into_iter().chain([format_parts(&memory.micro_batches)]).collect();
    words.extend(memory.levers.iter().cloned());
    bar_line(frame, area, "memory", (share, color), words);
}

/// What the last step reported.
fn draw_values(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let Some(step) = state.step else {
        frame.render_widget("waiting for the first step".dim(), area);
        return;
    };
    let mut items = vec![("loss", Some(format_value(step.loss.into())))];
    items.push(("accuracy", step.accuracy.map(|accuracy| percent(accuracy.into()))));
    items.push(("val_loss", state.validation("loss").map(format_value)));
    items.push(("val_accuracy", state.validation("accuracy").map(percent)));
    items.push(("lr", Some(format_value(step.lr))));
    items.push(("gradient norm", step.grad_norm.map(|norm| format_value(norm.into()))));
    items.push(("loss scale", step.loss_scale.map(|scale| format_value(scale.into()))));
    items.push(("skipped", step.skipped_steps.map(|skipped| skipped.to_string())));
    let item = |(name, value): (&str, Option<String>)| Some(Line::from(vec![format!("{name} ").dim(), value?.into()]));
    frame.render_widget(fitting(items.into_iter().filter_map(item), area.width), area);
}

fn draw_epoch(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let Some(step) = state.step else { return };
    let of_epoch = step.steps_per_epoch.max(1);
    let done = (step.step.saturating_sub(1)) % of_epoch + 1;
    let epochs = step.total_steps.div_ceil(of_epoch);
    let words = vec![format!("{} of {epochs}", step.epoch), format!("step {done} of {of_epoch}")];
    bar_line(frame, area, "epoch", (done as f64 / of_epoch as f64, Color::Cyan), words);
}

fn draw_progress(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let Some(step) = state.step else { return };
    let mut words = vec![format!("{} of {}", step.step, step.total_steps)];
    words.extend(state.left().map(|left| format!("{} left", clock(left))));
    words.extend(state.samples_per_s().map(|rate| format!("{rate:.0} samples/s")));
    words.extend(state.step_ms.map(|ms| format!("{}/step", format_ns(ms * 1e6))));
    let share = step.step as f64 / (step.total_steps as f64).max(1.0);
    bar_line(frame, area, "steps", (share, Color::Cyan), words);
}

fn draw_keys(frame: &mut Frame<'_>, area: Rect, state: &State, curves: usize) {
    let key = |key: &'static str, what: &'static str| Line::from(vec![key.bold(), " ".into(), what.dim()]);
    let keys = match state.is_ending {
        true => vec![Line::from("ending after this step".yellow())],
        false if curves > 1 => vec![key("q", "end after this step"), key("tab", "another curve")],
        false => vec![key("q", "end after this step")],
    };
    frame.render_widget(fitting(keys, area.width), area);
}

fn draw_log(frame: &mut Frame<'_>, area: Rect, lines: &[(Stream, String)]) {
    let inner = heading(frame, area, Line::from("log".bold()));
    let shown = &lines[lines.len().saturating_sub(usize::from(inner.height))..];
    for ((stream, line), row) in shown.iter().zip(inner.rows()) {
        let style = if *stream == Stream::Err { Style::new().yellow() } else { Style::new() };
        // What moves the cursor is no text.
        let line = shortened(&line.replace(|c: char| c.is_control(), " "), row.width);
        frame.render_widget(Span::styled(line, style), row);
    }
}

fn draw_curves<'a>(frame: &mut Frame<'_>, area: Rect, state: &State, names: &[&'a str]) {
    let chosen = |names: &[&'a str]| names[state.chosen.rem_euclid(names.len() as i64) as usize];
    match names {
        [] => {
            heading(frame, area, fitting([Line::from("loss".bold())], area.width));
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

//! The memory of a step as a picture: bytes by what they are for, over its commands.

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::{Line, Span};
use tightfit::command::plural;
use tightfit::plan::{MemoryMoment, MicroBatchMemory, format_bytes};

use super::state::Memory;
use super::view::{fitting, heading, shortened};

/// Blocks of so many eighths of a cell.
pub(super) const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
/// Of what is there at every moment.
const FIXED: [Color; 5] =
    [Color::Indexed(25), Color::Indexed(66), Color::Indexed(97), Color::Indexed(30), Color::Indexed(240)];
/// Of what comes and goes.
const TRANSIENT: [(&str, Color); 5] = [
    ("inputs", Color::Indexed(117)),
    ("activations", Color::Indexed(114)),
    ("gradients", Color::Indexed(215)),
    ("workspace", Color::Indexed(250)),
    ("fetched", Color::Indexed(183)),
];
/// The parts of a step; what is recomputed or moved lies between the commands of one of them.
const PHASES: [&str; 3] = ["forward", "backward", "update"];
/// Columns for the numbers of bytes.
const LABELS: u16 = 11;
/// Columns below which a kind of micro-batch is not drawn.
const LEAST_COLUMNS: usize = 4;

fn parts(moment: &MemoryMoment) -> [u64; 5] {
    [moment.input_bytes, moment.activation_bytes, moment.gradient_bytes, moment.workspace_bytes, moment.fetched_bytes]
}

/// One column: what is in memory, from the bottom, and the command's action.
struct Column {
    layers: Vec<(Color, u64)>,
    action: &'static str,
}

/// How many columns each kind of micro-batch has, with one between two; those for which there is no room are left out.
fn widths(of_step: &[MicroBatchMemory], columns: usize) -> Vec<usize> {
    let shown =
        of_step.len().min((columns + 1) / (LEAST_COLUMNS + 1)).max(usize::from(columns > 0 && !of_step.is_empty()));
    let moments: usize = of_step[..shown].iter().map(|part| part.moments.len()).sum();
    let room = columns.saturating_sub(shown.saturating_sub(1));
    let mut left = room;
    let of = |(at, part): (usize, &MicroBatchMemory)| {
        let after = (shown - at - 1) * LEAST_COLUMNS;
        let share = (room * part.moments.len()).checked_div(moments).unwrap_or(0).max(LEAST_COLUMNS);
        let width = if at + 1 == shown { left } else { share.min(left.saturating_sub(after)) };
        left -= width;
        width
    };
    of_step[..shown].iter().enumerate().map(of).collect()
}

/// The columns of one kind of micro-batch: each shows the moment with most bytes of those that it stands for.
fn columns(memory: &Memory, part: &MicroBatchMemory, width: usize) -> Vec<Column> {
    let fixed = memory.fixed.iter().zip(FIXED).map(|((_, bytes), color)| (color, *bytes));
    let fixed: Vec<_> = fixed.collect();
    let count = part.moments.len();
    let of = |column: usize| {
        let (start, end) = (column * count / width, ((column + 1) * count).div_ceil(width));
        let moments = part.moments.get(start..end.max(start + 1).min(count))?;
        let most = moments.iter().max_by_key(|moment| moment.total_bytes())?;
        let transient = parts(most).into_iter().zip(TRANSIENT).map(|(bytes, (_, color))| (color, bytes));
        Some(Column { layers: fixed.iter().copied().chain(transient).collect(), action: moments[0].action })
    };
    (0..width).filter_map(of).collect()
}

/// The color that is so many eighths of a cell above the bottom, where so many bytes are a whole column of `eighths`.
fn color_at(layers: &[(Color, u64)], eighth: u64, eighths: u64, top_bytes: u64) -> Option<Color> {
    // At the middle of it.
    let bytes = u128::from(top_bytes) * (u128::from(eighth) * 2 + 1) / (u128::from(eighths) * 2).max(1);
    let mut sum = 0;
    let (color, _) = layers.iter().find(|(_, size)| {
        sum += u128::from(*size);
        bytes < sum
    })?;
    Some(*color)
}

fn draw_column(buffer: &mut Buffer, x: u16, area: Rect, column: &Column, top_bytes: u64) {
    let eighths = u64::from(area.height) * 8;
    for row in 0..area.height {
        let first = u64::from(row) * 8;
        let colors = (first..first + 8).map(|eighth| color_at(&column.layers, eighth, eighths, top_bytes));
        let colors: Vec<_> = colors.collect();
        let (low, high) = (colors[0], colors[7]);
        let Some(cell) = buffer.cell_mut((x, area.bottom() - 1 - row)) else { continue };
        let Some(low) = low else { continue };
        // A cell has room for two.
        let filled = colors.iter().take_while(|color| **color == Some(low)).count();
        cell.set_symbol(EIGHTHS[filled.min(8)]).set_fg(low);
        if let Some(high) = high.filter(|high| *high != low) {
            cell.set_bg(high);
        }
    }
}

/// Names with their bytes and colors, of what takes memory.
fn legend(memory: &Memory) -> Vec<(String, u64, Color)> {
    let fixed = memory.fixed.iter().zip(FIXED).map(|((name, bytes), color)| (name.clone(), *bytes, color));
    let most = |at: usize| {
        let moments = memory.of_step.iter().flat_map(|part| &part.moments);
        moments.map(|moment| parts(moment)[at]).max().unwrap_or(0)
    };
    let transient = TRANSIENT.into_iter().enumerate().map(|(at, (name, color))| (name.to_owned(), most(at), color));
    fixed.chain(transient).filter(|(_, bytes, _)| *bytes > 0).collect()
}

/// As many names a line as have room.
fn lines_of(legend: &[(String, u64, Color)], has_bytes: bool, width: usize) -> Vec<Line<'static>> {
    let mut lines: Vec<(usize, Vec<Span<'static>>)> = Vec::new();
    for &(ref name, bytes, color) in legend {
        let text = if has_bytes { format!("{name} {}", format_bytes(bytes)) } else { name.clone() };
        // Names may be shortened, numbers not.
        let text = if has_bytes { text } else { shortened(&text, (width as u16).saturating_sub(2)) };
        let takes = text.chars().count() + 4;
        match lines.last_mut() {
            Some((used, _)) if *used + takes <= width + 2 => *used += takes,
            _ => lines.push((takes, Vec::new())),
        }
        if let Some((_, line)) = lines.last_mut() {
            line.extend([Span::styled("■ ", color), Span::styled(format!("{text}  "), Style::new().dim())]);
        }
    }
    lines.into_iter().map(|(_, line)| Line::from(line)).collect()
}

/// The names of the parts of a step, each where it begins, or as near to that as there is room beside the one before it.
fn draw_phases(buffer: &mut Buffer, x: u16, y: u16, columns: &[Column]) {
    let mut free = 0;
    for phase in PHASES {
        let of_phase = |column: &Column| column.action == phase;
        let Some(first) = columns.iter().position(of_phase) else { continue };
        let last = columns.iter().rposition(of_phase).unwrap_or(first);
        let at = first.min(columns.len().saturating_sub(phase.len())).max(free);
        // A name that begins where its part has ended would say something else.
        if at <= last && at + phase.len() <= columns.len() {
            buffer.set_string(x + at as u16, y, phase, Style::new().dim());
            free = at + phase.len() + 1;
        }
    }
}

/// The words above the picture: how a batch is cut.
fn title(memory: &Memory, width: u16) -> Line<'static> {
    let name = "memory of a step";
    let kinds = memory.of_step.iter().map(|part| match part.times {
        1 => plural(part.samples, "sample"),
        times => format!("{times} × {}", plural(part.samples, "sample")),
    });
    let room = width.saturating_sub(name.len() as u16 + 2);
    let kinds = Some(shortened(&kinds.collect::<Vec<_>>().join(", "), room)).filter(|kinds| kinds.len() > 4);
    fitting([Line::from(name.bold())].into_iter().chain(kinds.map(|kinds| Line::from(kinds.dim()))), width)
}

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, memory: &Memory) {
    let inner = heading(frame, area, title(memory, area.width));
    let labels = if inner.width > LABELS * 3 { LABELS } else { 0 };
    // The picture has most of the room.
    let (legend, most) = (legend(memory), usize::from(inner.height.saturating_sub(1) / 2).min(2));
    let lines = |has_bytes| lines_of(&legend, has_bytes, usize::from(inner.width));
    let fits = |lines: &Vec<Line<'_>>| {
        lines.len() <= most && lines.iter().all(|line| line.width() <= usize::from(inner.width) + 2)
    };
    let mut legend = Some(lines(true)).filter(fits).unwrap_or_else(|| lines(false));
    legend.truncate(most);
    let actions = u16::from(inner.height >= 4);
    let below = legend.len() as u16 + actions;
    let picture =
        Rect { x: inner.x + labels, width: inner.width - labels, height: inner.height.saturating_sub(below), ..inner };
    if picture.is_empty() {
        return;
    }
    let buffer = frame.buffer_mut();
    if labels > 0 {
        let style = Style::new().dim();
        let peak = format_bytes(memory.peak_bytes);
        let width = usize::from(labels) - 1;
        buffer.set_stringn(inner.x, picture.y, format!("{peak:>width$}"), width, style);
        buffer.set_stringn(inner.x, picture.bottom() - 1, format!("{:>width$}", "0"), width, style);
    }
    let mut x = picture.x;
    for (part, width) in memory.of_step.iter().zip(widths(&memory.of_step, usize::from(picture.width))) {
        let columns = columns(memory, part, width);
        for (column, x) in columns.iter().zip(x..picture.right()) {
            draw_column(buffer, x, picture, column, memory.peak_bytes);
        }
        if actions > 0 {
            draw_phases(buffer, x, picture.bottom(), &columns);
        }
        x = x.saturating_add(width as u16 + 1);
    }
    for (line, y) in legend.iter().zip(picture.bottom() + actions..inner.bottom()) {
        buffer.set_line(inner.x, y, line, inner.width);
    }
}

//! A history as a picture: losses and metrics over steps, training and validation in one plot each.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::axis::{Axis, step_ticks};
use super::{CurvePoint, History};
use crate::svg::{self, end_of, escape, width};
use crate::tensor::format_value;
use crate::train::monitor::MonitorMode;

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 92.0;
/// Heights of the plot of the loss and of each other.
const HEIGHTS: [f64; 2] = [300.0, 150.0];
/// Between two plots side by side, and below one: its ticks, and the title of the next.
const GAP: f64 = 84.0;
const BELOW: f64 = 74.0;
/// Plots beside that of the loss.
const MOST_PLOTS: usize = 16;
/// Above this many epochs, points of epochs are not marked one by one.
const MOST_MARKS: usize = 60;
const LOSS: &str = "loss";
/// Names of values that are measured on validation data begin so.
const VALIDATION: &str = "val_";

const STYLE: &str = "\
.grid{stroke:#e9ecef;stroke-width:1}.epoch{stroke:#ced4da;stroke-width:1;stroke-dasharray:2 4}.frame{fill:none;stroke:#adb5bd}\
.name{font-size:13px;font-weight:bold}.line{fill:none;stroke-width:1.6;stroke-linejoin:round;stroke-linecap:round}";

const OF_STEPS: &str = "#74a9cf";
const OF_EPOCHS: &str = "#1d5f9e";
const OF_VALIDATION: &str = "#d9622b";
const NOT_FINITE: &str = "#c1121f";

impl History {
    /// The history as an SVG picture: the loss and each metric over steps, training and validation in one plot, on a logarithmic
    /// axis where a loss spans a wide range. Values that are not finite are gaps, marked at the top.
    pub fn svg(&self, title: &str) -> String {
        Drawing { history: self, last: self.last_step().max(1), svg: String::new() }.draw(title)
    }

    fn last_step(&self) -> u64 {
        let of_steps = self.steps.values().filter_map(|curve| curve.points().last()).map(|point| point.step);
        of_steps.chain(self.epochs.iter().map(|record| record.step)).max().unwrap_or(0)
    }

    /// Each value without what says where it was measured, with its names: the loss first, the learning rate last.
    fn quantities(&self) -> Vec<(&str, Vec<&str>)> {
        let mut quantities: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for name in self.names() {
            quantities.entry(name.strip_prefix(VALIDATION).unwrap_or(name)).or_default().push(name);
        }
        let mut quantities: Vec<_> = quantities.into_iter().collect();
        quantities.sort_by_key(|(name, _)| match *name {
            LOSS => 0,
            "lr" => 2,
            _ => 1,
        });
        quantities
    }
}

/// A line of a plot.
struct Line<'a> {
    /// The value's.
    name: &'a str,
    /// What it is beside the others of its plot.
    kind: &'static str,
    color: &'static str,
    /// Steps and values.
    points: Vec<(u64, f64)>,
    /// Of a curve of steps, with what each of its points spans.
    spans: &'a [CurvePoint],
    /// Whether its points are marked.
    marked: bool,
}

/// Where a plot is.
#[derive(Clone, Copy)]
struct Frame {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

struct Drawing<'a> {
    history: &'a History,
    /// The last step.
    last: u64,
    svg: String,
}

macro_rules! put {
    ($drawing:expr, $($format:tt)*) => {{
        let _ = write!($drawing.svg, $($format)*);
        $drawing.svg.push('\n');
    }};
}

impl<'a> Drawing<'a> {
    fn draw(mut self, title: &str) -> String {
        let quantities = self.history.quantities();
        let (shown, left_out) = quantities.split_at(quantities.len().min(MOST_PLOTS));
        let is_wide = |at: usize| at == 0 || (at == shown.len() - 1 && at % 2 == 1);
        let mut frames: Vec<Frame> = Vec::new();
        let mut y = TOP;
        for at in 0..shown.len() {
            let full = WIDTH - LEFT - RIGHT;
            let (height, half) = (HEIGHTS[usize::from(at > 0)], (full - GAP) / 2.0);
            let is_second = at > 0 && at % 2 == 0;
            let x = if is_second { LEFT + half + GAP } else { LEFT };
            let width = if is_wide(at) { full } else { half };
            frames.push(Frame { x, y, width, height });
            if is_wide(at) || is_second {
                y += height + BELOW;
            }
        }
        let height = if shown.is_empty() { TOP + 30.0 } else { y - BELOW + 62.0 };
        put!(
            self,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height:.0}\" viewBox=\"0 0 {WIDTH} {height:.0}\" \
             role=\"img\">"
        );
        put!(self, "<title>{}</title>", escape(&format!("history of {title}")));
        put!(self, "<style>{}{STYLE}</style>", svg::STYLE);
        put!(self, "<rect width=\"{WIDTH}\" height=\"{height:.0}\" fill=\"#fff\"/>");
        self.heading(title, left_out.len());
        for ((quantity, names), frame) in shown.iter().zip(frames) {
            self.plot(quantity, names, frame);
        }
        self.svg.push_str("</svg>\n");
        self.svg
    }

    fn heading(&mut self, title: &str, left_out: usize) {
        let title = end_of(title, WIDTH - LEFT - RIGHT, 20.0);
        put!(self, "<text class=\"title\" x=\"{LEFT}\" y=\"32\">{}</text>", escape(&title));
        let history = self.history;
        let count = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let mut parts = Vec::new();
        if history.last_step() == 0 {
            parts.push("nothing recorded yet".to_owned());
        } else {
            parts.push(count(history.last_step(), "step"));
            parts.push(count(history.epochs.len() as u64, "epoch"));
        }
        let best = ["val_loss", LOSS].iter().find_map(|name| {
            let record = history.best(name, MonitorMode::Min)?;
            Some(format!("best {name} {} at epoch {}", format_value(record.values[*name]), record.epoch))
        });
        parts.extend(best);
        if left_out > 0 {
            parts.push(format!("{left_out} more not shown"));
        }
        put!(self, "<text class=\"sub\" x=\"{LEFT}\" y=\"54\">{}</text>", escape(&parts.join("  ·  ")));
    }

    /// The lines of a quantity: of steps, of epochs, of validation.
    fn lines(&self, names: &[&'a str]) -> Vec<Line<'a>> {
        let history = self.history;
        let mut lines = Vec::new();
        for &name in names {
            let points: Vec<_> = history.of_epochs(name).map(|(record, value)| (record.step, value)).collect();
            let curve = history.curve(name);
            // Steps have their own learning rate, an epoch that of the step to come.
            let has_epochs = !points.is_empty() && (name != "lr" || curve.is_none());
            let (of_steps, of_epochs) = match (name.starts_with(VALIDATION), curve.is_some() && has_epochs) {
                (true, _) => (("validation", OF_VALIDATION), ("validation", OF_VALIDATION)),
                (false, true) => (("steps", OF_STEPS), ("epochs", OF_EPOCHS)),
                (false, false) => (("training", OF_EPOCHS), ("training", OF_EPOCHS)),
            };
            if let Some(curve) = curve {
                let points = curve.points().iter().map(|point| (point.step, point.mean())).collect();
                let (kind, color) = of_steps;
                lines.push(Line { name, kind, color, points, spans: curve.points(), marked: false });
            }
            if has_epochs {
                let (kind, color) = of_epochs;
                let marked = points.len() <= MOST_MARKS;
                lines.push(Line { name, kind, color, points, spans: &[], marked });
            }
        }
        lines
    }

    fn plot(&mut self, quantity: &str, names: &[&'a str], frame: Frame) {
        let lines = self.lines(names);
        let values = lines.iter().flat_map(|line| line.points.iter().map(|&(_, value)| value));
        let axis = Axis::of(values, quantity == LOSS);
        let Frame { x, y, width: across, height } = frame;
        let scale = if axis.as_ref().is_some_and(Axis::is_log) { " (logarithmic)" } else { "" };
        put!(self, "<rect class=\"frame\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{across:.1}\" height=\"{height:.1}\"/>");
        self.epochs(frame);
        self.steps(frame);
        if let Some(axis) = &axis {
            for (&tick, label) in axis.ticks.iter().zip(axis.labels()) {
                let at = y + height * (1.0 - axis.share(tick));
                put!(
                    self,
                    "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>",
                    x + across
                );
                put!(
                    self,
                    "<text class=\"small\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                    x - 7.0,
                    at + 4.0
                );
            }
            for line in &lines {
                self.line(line, axis, frame);
            }
        } else {
            let middle = (x + across / 2.0, y + height / 2.0);
            put!(
                self,
                "<text class=\"sub\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">no value that is finite</text>",
                middle.0,
                middle.1
            );
        }
        let not_finite = self.not_finite(&lines, frame);
        let legend = self.legend(&lines, not_finite, frame);
        // Bold letters are wider.
        let title = end_of(&format!("{quantity}{scale}"), legend - x - 12.0, 14.0);
        put!(self, "<text class=\"name\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>", y - 10.0, escape(&title));
    }

    fn x(&self, step: u64, frame: Frame) -> f64 {
        frame.x + frame.width * step as f64 / self.last as f64
    }

    /// Numbers of steps below a plot.
    fn steps(&mut self, frame: Frame) {
        let bottom = frame.y + frame.height;
        let ticks = step_ticks(self.last, (frame.width / 90.0) as usize);
        // In thousands or millions where all are.
        let (unit, suffix) = match ticks.get(1) {
            Some(every) if self.last >= 10_000_000 && every % 1_000_000 == 0 => (1_000_000, "M"),
            Some(every) if self.last >= 10_000 && every % 1_000 == 0 => (1_000, "k"),
            _ => (1, ""),
        };
        for &step in &ticks {
            let x = self.x(step, frame);
            let name = if step == 0 { "0".to_owned() } else { format!("{}{suffix}", step / unit) };
            put!(
                self,
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom:.1}\" y2=\"{:.1}\" stroke=\"#adb5bd\"/>",
                bottom + 4.0
            );
            put!(
                self,
                "<text class=\"small\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{name}</text>",
                bottom + 17.0
            );
        }
        let title = bottom + 31.0;
        put!(
            self,
            "<text class=\"small\" x=\"{:.1}\" y=\"{title:.1}\" text-anchor=\"end\">step</text>",
            frame.x + frame.width
        );
    }

    /// Lines where epochs end, as many as can be told apart, with their numbers below those of the steps.
    fn epochs(&mut self, frame: Frame) {
        let epochs = &self.history.epochs;
        let Some(last) = epochs.last() else { return };
        let most = (frame.width / 60.0) as usize;
        let every = step_ticks(last.epoch, most).get(1).copied().unwrap_or(1);
        let bottom = frame.y + frame.height;
        // The word for what these numbers are stands at the right.
        let end = frame.x + frame.width - width("step", 11.0) - 16.0;
        for record in epochs.iter().filter(|record| record.epoch % every == 0) {
            let x = self.x(record.step, frame);
            let (y, epoch) = (frame.y, record.epoch);
            put!(self, "<line class=\"epoch\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{y:.1}\" y2=\"{bottom:.1}\"/>");
            let name = if record.epoch == every { format!("epoch {epoch}") } else { epoch.to_string() };
            if x + width(&name, 11.0) / 2.0 < end {
                let y = bottom + 31.0;
                put!(
                    self,
                    "<text class=\"small\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" style=\"fill:#868e96\">{name}</text>"
                );
            }
        }
    }

    fn line(&mut self, line: &Line<'_>, axis: &Axis, frame: Frame) {
        let y = |value: f64| frame.y + frame.height * (1.0 - axis.share(value).clamp(0.0, 1.0));
        let color = line.color;
        // The band of what is merged into each point.
        if line.spans.iter().any(|point| point.count > 1) {
            for run in line
                .spans
                .chunk_by(|a, b| a.min.is_finite() && a.max.is_finite() && b.min.is_finite() && b.max.is_finite())
            {
                if run.len() < 2 {
                    continue;
                }
                let mut band = String::new();
                let upper = run.iter().map(|point| (point.step, point.max));
                for (step, value) in upper.chain(run.iter().rev().map(|point| (point.step, point.min))) {
                    let _ = write!(band, "{:.1},{:.1} ", self.x(step, frame), y(value));
                }
                put!(self, "<polygon points=\"{}\" fill=\"{color}\" fill-opacity=\".18\"/>", band.trim_end());
            }
        }
        let is_crowded = line.points.len() > 300;
        for run in line.points.chunk_by(|a, b| a.1.is_finite() && b.1.is_finite()) {
            if !run[0].1.is_finite() {
                continue;
            }
            let mut points = String::new();
            for &(step, value) in run {
                let _ = write!(points, "{:.1},{:.1} ", self.x(step, frame), y(value));
            }
            if run.len() > 1 {
                let thin = if is_crowded { " style=\"stroke-width:1.1\"" } else { "" };
                put!(self, "<polyline class=\"line\" stroke=\"{color}\" points=\"{}\"{thin}/>", points.trim_end());
            }
            if line.marked || run.len() == 1 {
                for &(step, value) in run {
                    let tip = escape(&format!("{} {} at step {step}", line.name, format_value(value)));
                    let (x, y) = (self.x(step, frame), y(value));
                    put!(
                        self,
                        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.6\" fill=\"{color}\"><title>{tip}</title></circle>"
                    );
                }
            }
        }
    }

    /// Marks values that are not finite at the top of a plot; returns whether there are any.
    fn not_finite(&mut self, lines: &[Line<'_>], frame: Frame) -> bool {
        let mut found = false;
        for line in lines {
            for &(step, value) in line.points.iter().filter(|(_, value)| !value.is_finite()) {
                let (x, y) = (self.x(step, frame), frame.y + 7.0);
                let tip = escape(&format!("{} {value} at step {step}", line.name));
                self.cross(x, y, &tip);
                found = true;
            }
        }
        found
    }

    fn cross(&mut self, x: f64, y: f64, tip: &str) {
        put!(
            self,
            "<path d=\"M{:.1} {:.1}l6 6m0 -6l-6 6\" stroke=\"{NOT_FINITE}\" stroke-width=\"1.6\"><title>{tip}</title></path>",
            x - 3.0,
            y - 3.0
        );
    }

    /// What the lines are, above a plot at its right; returns where that begins.
    fn legend(&mut self, lines: &[Line<'_>], not_finite: bool, frame: Frame) -> f64 {
        let y = frame.y - 14.0;
        // A line of its own is what the plot is named for.
        let named = lines.iter().filter(|line| lines.len() > 1 || line.kind == "validation");
        let names = named.map(|line| (line.kind, Some(line))).chain(not_finite.then_some(("not finite", None)));
        let names: Vec<_> = names.collect();
        // Most characters are narrower than the widest.
        let widths: Vec<_> = names.iter().map(|(name, _)| 26.0 + width(name, 10.0) + 12.0).collect();
        let begin = frame.x + frame.width - widths.iter().sum::<f64>() + 12.0;
        let mut x = begin;
        for ((name, line), across) in names.into_iter().zip(widths) {
            match line {
                Some(line) => {
                    let (color, end) = (line.color, x + 20.0);
                    put!(
                        self,
                        "<line class=\"line\" stroke=\"{color}\" x1=\"{x:.1}\" x2=\"{end:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
                    );
                    if line.marked {
                        put!(self, "<circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"2.6\" fill=\"{color}\"/>", x + 10.0);
                    }
                }
                None => self.cross(x + 10.0, y, ""),
            }
            put!(self, "<text class=\"small\" x=\"{:.1}\" y=\"{:.1}\">{}</text>", x + 26.0, y + 4.0, escape(name));
            x += across;
        }
        begin
    }
}

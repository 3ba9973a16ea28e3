//! A plan as a picture: transient memory over the commands of a step.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::super::{ArenaRole, Plan, Planned};
use super::ink::{PATTERNS, STYLE, action_color, action_name, block_color, name_in};
use super::timeline::{Action, Block, Content, End, Timeline};
use super::{format_bytes, format_ns, format_parts, percent};
use crate::graph::Pass;
use crate::svg::{self, end_of, escape, width};

const LEFT: f64 = 78.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 104.0;
const PLOT_WIDTH: f64 = 1360.0;
const PLOT_HEIGHT: f64 = 500.0;
/// Between two programs.
const GAP: f64 = 26.0;
/// What is always there, below the plot.
const FIXED_HEIGHT: f64 = 30.0;
const STRIP_HEIGHT: f64 = 13.0;
/// Height for the names of layers: as much as they take, between these.
const LAYERS_HEIGHT: [f64; 2] = [92.0, 300.0];
/// A budget further above the memory that is used than this is not drawn to scale.
const MOST_HEADROOM: f64 = 1.35;

impl Planned {
    /// The plan as an SVG picture: each program of a step over its commands, each block of transient memory where it
    /// lies and as long as it is needed, with what is recomputed or fetched marked, and the budget.
    ///
    /// `model` is for the title.
    pub fn to_svg(&self, model: &str) -> String {
        Drawing::new(self).draw(model)
    }
}

/// One program and where it is drawn.
struct Panel {
    timeline: Timeline,
    title: String,
    x: f64,
    width: f64,
}

impl Panel {
    fn x(&self, step: usize) -> f64 {
        self.x + self.width * step as f64 / self.timeline.steps.len() as f64
    }
}

struct Drawing<'a> {
    plan: &'a Plan,
    panels: Vec<Panel>,
    /// The first byte of each transient arena when they lie one on the other, by index in the plan.
    bases: BTreeMap<u32, u64>,
    /// Bytes at the top of the plot.
    top_bytes: f64,
    layers_height: f64,
    svg: String,
}

macro_rules! put {
    ($drawing:expr, $($format:tt)*) => {{
        let _ = write!($drawing.svg, $($format)*);
        $drawing.svg.push('\n');
    }};
}

impl<'a> Drawing<'a> {
    fn new(planned: &'a Planned) -> Self {
        let plan = &planned.plan;
        let mut bases = BTreeMap::new();
        let mut end = 0_u64;
        for (arena, index) in plan.arenas.iter().zip(0..).filter(|(arena, _)| arena.role == ArenaRole::Transient) {
            bases.insert(index, end);
            end = end.saturating_add(arena.size_bytes);
        }
        let headroom = plan.budget_bytes.map(|budget| budget.saturating_sub(plan.fixed_bytes()) as f64);
        let arena = (end as f64).max(1.0);
        let top_bytes = arena.max(headroom.filter(|bytes| *bytes <= arena * MOST_HEADROOM).unwrap_or(0.0)) * 1.05;
        let panels = panels(planned);
        let layers = panels.iter().flat_map(|panel| &panel.timeline.steps).map(|step| width(&step.layer, 11.0) + 12.0);
        let layers_height = layers.fold(LAYERS_HEIGHT[0], f64::max).min(LAYERS_HEIGHT[1]);
        Drawing { plan, panels, bases, top_bytes, layers_height, svg: String::new() }
    }

    /// Where so many transient bytes are.
    fn y(&self, bytes: f64) -> f64 {
        TOP + PLOT_HEIGHT * (1.0 - bytes / self.top_bytes)
    }

    fn right(&self) -> f64 {
        self.panels.last().map_or(LEFT + PLOT_WIDTH, |panel| panel.x + panel.width)
    }

    fn draw(mut self, model: &str) -> String {
        let (width, height) =
            (self.right() + RIGHT, TOP + PLOT_HEIGHT + FIXED_HEIGHT + STRIP_HEIGHT + self.layers_height + 16.0);
        put!(
            self,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\">"
        );
        put!(self, "<title>{}</title>", escape(&format!("memory of {model}, batch {}", self.plan.batch)));
        put!(self, "<style>{}{STYLE}</style>\n{PATTERNS}", svg::STYLE);
        put!(self, "<rect width=\"{width:.0}\" height=\"{height:.0}\" fill=\"#fff\"/>");
        self.heading(model);
        self.axis();
        let panels = std::mem::take(&mut self.panels);
        for panel in &panels {
            self.panel(panel);
        }
        self.panels = panels;
        let (x, y) = (self.right() + 8.0, TOP + PLOT_HEIGHT + FIXED_HEIGHT + 4.0 + STRIP_HEIGHT - 3.0);
        put!(self, "<text class=\"small\" x=\"{x:.1}\" y=\"{y:.1}\">commands of a step</text>");
        self.limits();
        self.fixed();
        self.legend();
        self.svg.push_str("</svg>\n");
        self.svg
    }

    fn heading(&mut self, model: &str) {
        let plan = self.plan;
        let title = end_of(&format!("{model}, batch {}", plan.batch), self.right() - LEFT, 20.0);
        put!(self, "<text class=\"title\" x=\"{LEFT}\" y=\"30\">{}</text>", escape(&title));
        let budget =
            plan.budget_bytes.map_or_else(|| "no budget".to_owned(), |b| format!("budget {}", format_bytes(b)));
        let mut parts = vec![
            budget,
            format!("planned peak {}", format_bytes(plan.peak_bytes)),
            format!("unconstrained {}", format_bytes(plan.unconstrained_peak_bytes)),
            format!("micro-batches {}", format_parts(&plan.micro_batches)),
            format!("predicted {} a step", format_ns(plan.predicted_step_ns as f64)),
        ];
        if plan.overhead_ns() != 0.0 {
            let relation = if plan.overhead_ns() < 0.0 { "less than" } else { "over" };
            parts.push(format!("{} {relation} unconstrained", percent(plan.overhead().abs())));
        }
        put!(self, "<text class=\"sub\" x=\"{LEFT}\" y=\"51\">{}</text>", escape(&parts.join("  ·  ")));
    }

    /// Grid and numbers of bytes.
    fn axis(&mut self) {
        let right = self.right();
        let step = [1_u64, 2, 5].iter().map(|&n| n as f64);
        let step = (0..60)
            .flat_map(|power| {
                // Round numbers in the unit in which they are printed.
                let (unit, digits) = (1024_f64.powi(power / 3), 10_f64.powi(power % 3));
                step.clone().map(move |n| n * digits * unit)
            })
            .find(|step| self.top_bytes / step <= 8.0)
            .unwrap_or(self.top_bytes);
        for i in 0..=(self.top_bytes / step) as u64 {
            let bytes = step * i as f64;
            let y = self.y(bytes);
            put!(self, "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>");
            let label = if bytes == 0.0 { "0".to_owned() } else { format_bytes(bytes as u64).replace(".0 ", " ") };
            put!(
                self,
                "<text class=\"small\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                LEFT - 6.0,
                y + 4.0
            );
        }
        let y = TOP + PLOT_HEIGHT / 2.0;
        put!(
            self,
            "<text class=\"small\" transform=\"translate(16 {y:.1}) rotate(-90)\" text-anchor=\"middle\">transient memory</text>"
        );
        for (&index, &base) in &self.bases.clone() {
            if base > 0 {
                let y = self.y(base as f64);
                put!(
                    self,
                    "<line class=\"arena\" x1=\"{LEFT}\" x2=\"{right:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"><title>arena {index} begins</title></line>"
                );
            }
        }
    }

    fn panel(&mut self, panel: &Panel) {
        let bottom = TOP + PLOT_HEIGHT;
        put!(self, "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>", panel.x, TOP - 8.0, escape(&panel.title));
        for block in &panel.timeline.blocks {
            self.block(panel, block);
        }
        let mut line = String::new();
        for (step, shown) in panel.timeline.steps.iter().enumerate() {
            let y = self.y(shown.live_bytes as f64);
            let _ = write!(line, "{:.1},{y:.1} {:.1},{y:.1} ", panel.x(step), panel.x(step + 1));
        }
        put!(self, "<polyline class=\"live\" points=\"{}\"/>", line.trim_end());
        put!(
            self,
            "<rect x=\"{:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{PLOT_HEIGHT}\" fill=\"none\" stroke=\"#adb5bd\"/>",
            panel.x,
            panel.width
        );
        self.strip(panel, bottom + FIXED_HEIGHT + 4.0);
        self.layers(panel, bottom + FIXED_HEIGHT + 4.0 + STRIP_HEIGHT);
    }

    fn block(&mut self, panel: &Panel, block: &Block) {
        let Some(base) = self.bases.get(&block.place.arena) else { return };
        let start = base.saturating_add(block.place.offset_bytes) as f64;
        let (x, right) = (panel.x(block.start), panel.x(block.end));
        let (y, bottom) = (self.y(start + block.place.size_bytes as f64), self.y(start));
        let (across, height) = (right - x, bottom - y);
        let frame = format!("x=\"{x:.1}\" y=\"{y:.2}\" width=\"{across:.1}\" height=\"{height:.2}\"");
        let class = if block.recomputed { "block again" } else { "block" };
        put!(self, "<g><title>{}</title>", escape(&tooltip(block)));
        put!(self, "<rect class=\"{class}\" {frame} fill=\"{}\"/>", block_color(block.content));
        if block.recomputed {
            put!(self, "<rect {frame} fill=\"url(#again)\" pointer-events=\"none\"/>");
        }
        if block.ended == End::Offloaded {
            let x = right - 2.5_f64.min(across);
            put!(
                self,
                "<rect x=\"{x:.1}\" y=\"{y:.2}\" width=\"{:.1}\" height=\"{height:.2}\" fill=\"#7b2cbf\"/>",
                right - x
            );
        }
        let size = format_bytes(block.place.size_bytes);
        let (middle_x, middle_y) = (x + across / 2.0, y + height / 2.0);
        let mut text = |x: f64, y: f64, rotation: &str, text: &str| {
            let text = escape(text);
            put!(
                self,
                "<text class=\"in\" transform=\"translate({x:.1} {y:.1}){rotation}\" text-anchor=\"middle\">{text}</text>"
            );
        };
        let sideways = across < 44.0 && height > 1.5 * across;
        if !sideways && height >= 13.0 {
            if let Some(name) = name_in(&block.name, &block.layer, across - 6.0, 11.0) {
                if height >= 30.0 && width(&size, 11.0) <= across - 6.0 {
                    text(middle_x, middle_y - 2.0, "", name);
                    text(middle_x, middle_y + 11.0, "", &size);
                } else {
                    text(middle_x, middle_y + 4.0, "", name);
                }
            }
        } else if sideways
            && across >= 12.0
            && let Some(name) = name_in(&block.name, &block.layer, height - 6.0, 11.0)
        {
            let both = format!("{name}  {size}");
            let label = if width(&both, 11.0) <= height - 6.0 { &both } else { name };
            text(middle_x + 4.0, middle_y, " rotate(-90)", label);
        }
        self.svg.push_str("</g>\n");
    }

    /// What each command is.
    fn strip(&mut self, panel: &Panel, y: f64) {
        let mut start = 0;
        for run in panel.timeline.steps.chunk_by(|a, b| a.action == b.action) {
            let action = run[0].action;
            let (x, right) = (panel.x(start), panel.x(start + run.len()));
            let commands: Vec<_> =
                run.iter().zip(start..).map(|(step, number)| format!("{number}  {}", step.text)).collect();
            let tip = commands.join("\u{0}");
            put!(
                self,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{STRIP_HEIGHT}\" fill=\"{}\"><title>{}</title></rect>",
                right - x,
                action_color(action),
                tip.split('\u{0}').map(escape).collect::<Vec<_>>().join("&#10;")
            );
            let name = action_name(action);
            if width(name, 10.0) <= right - x - 4.0 {
                put!(
                    self,
                    "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" style=\"font-size:10px;fill:#fff\">{name}</text>",
                    x.midpoint(right),
                    y + STRIP_HEIGHT - 3.5
                );
            }
            start += run.len();
        }
    }

    /// Names of layers below their commands, as many as can be read.
    fn layers(&mut self, panel: &Panel, y: f64) {
        let mut start = 0;
        let mut free = panel.x - 6.0;
        for run in panel.timeline.steps.chunk_by(|a, b| a.layer == b.layer) {
            let (x, right) = (panel.x(start), panel.x(start + run.len()));
            let middle = x.midpoint(right);
            put!(self, "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{y:.1}\" y2=\"{:.1}\" stroke=\"#adb5bd\"/>", y + 4.0);
            let left = x.max(free + 6.0);
            let layer = &run[0].layer;
            if width(layer, 11.0) <= right - left - 2.0 {
                let (name, middle) = (escape(layer), left.midpoint(right));
                put!(
                    self,
                    "<text class=\"small\" x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{name}</text>",
                    y + 15.0
                );
                free = right - 6.0;
            } else if middle >= free + 12.0 {
                let name = escape(&end_of(layer, self.layers_height - 12.0, 11.0));
                put!(
                    self,
                    "<text class=\"small\" transform=\"translate({:.1} {:.1}) rotate(-90)\" text-anchor=\"end\">{name}</text>",
                    middle + 4.0,
                    y + 7.0
                );
                free = middle;
            }
            start += run.len();
        }
    }

    /// The size of the arenas and the budget, with their names at the right.
    fn limits(&mut self) {
        let plan = self.plan;
        let right = self.right();
        let arena = plan.arena_bytes(ArenaRole::Transient);
        let arena_y = self.y(arena as f64);
        put!(self, "<line class=\"arena\" x1=\"{LEFT}\" x2=\"{right:.1}\" y1=\"{arena_y:.1}\" y2=\"{arena_y:.1}\"/>");
        let names = [format!("arena {}", format_bytes(arena)), format!("peak {}", format_bytes(plan.peak_bytes))];
        self.margin(arena_y + 9.0, "#343a40", &names);
        let Some(budget) = plan.budget_bytes else { return };
        let headroom = budget.saturating_sub(plan.fixed_bytes());
        let name = format!("budget {}", format_bytes(budget));
        if headroom as f64 <= self.top_bytes {
            let y = self.y(headroom as f64);
            self.margin(y - 16.0, "#c1121f", &[name, format!("{} transient", format_bytes(headroom))]);
            put!(self, "<line class=\"budget\" x1=\"{LEFT}\" x2=\"{right:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>");
        } else {
            self.margin(TOP - 20.0, "#c1121f", &[name, format!("{} higher up", format_bytes(headroom - arena))]);
        }
    }

    /// Two lines at the right of the plot.
    fn margin(&mut self, y: f64, color: &str, lines: &[String; 2]) {
        let x = self.right() + 8.0;
        for (line, y) in lines.iter().zip([y, y + 13.0]) {
            let line = escape(line);
            put!(self, "<text class=\"small\" x=\"{x:.1}\" y=\"{y:.1}\" style=\"fill:{color}\">{line}</text>");
        }
    }

    /// A band for what is there from the first step to the last.
    fn fixed(&mut self) {
        let plan = self.plan;
        let (y, width) = (TOP + PLOT_HEIGHT, self.right() - LEFT);
        put!(
            self,
            "<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{FIXED_HEIGHT}\" fill=\"#dee2e6\"><title>on the device \
             from the first step to the last</title></rect>"
        );
        let roles = [ArenaRole::Parameters, ArenaRole::Buffers, ArenaRole::State, ArenaRole::Accumulators];
        let mut parts: Vec<(String, u64)> =
            roles.iter().map(|&role| (role.to_string(), plan.arena_bytes(role))).collect();
        parts.push(("staging".to_owned(), plan.staging.total_bytes()));
        parts.push(("device".to_owned(), plan.baseline_bytes));
        let parts: Vec<_> = parts
            .into_iter()
            .filter(|(_, bytes)| *bytes > 0)
            .map(|(name, bytes)| format!("{name} {}", format_bytes(bytes)))
            .collect();
        let mut text = format!("always there, {}: {}", format_bytes(plan.fixed_bytes()), parts.join(", "));
        let host_bytes = plan.arena_bytes(ArenaRole::Host);
        if host_bytes > 0 {
            let _ = write!(text, "; on the host {}", format_bytes(host_bytes));
        }
        let text = escape(&text);
        put!(self, "<text x=\"{:.1}\" y=\"{:.1}\">{text}</text>", LEFT + 8.0, y + FIXED_HEIGHT / 2.0 + 4.0);
    }

    fn legend(&mut self) {
        let blocks = || self.panels.iter().flat_map(|panel| &panel.timeline.blocks);
        let contents: BTreeSet<_> = blocks().filter(|block| !block.recomputed).map(|block| block.content).collect();
        let mut keys: Vec<(&str, &str, bool)> = contents
            .into_iter()
            .map(|content| {
                let name = match content {
                    Content::Input => "input",
                    Content::Activation => "activation",
                    Content::Gradient => "gradient",
                    Content::Workspace => "workspace",
                    Content::Fetched => "fetched from the host",
                };
                (block_color(content), name, false)
            })
            .collect();
        if blocks().any(|block| block.recomputed) {
            keys.push((block_color(Content::Activation), "recomputed", true));
        }
        if blocks().any(|block| block.ended == End::Offloaded) {
            keys.push(("#7b2cbf", "offloaded here", false));
        }
        let mut x = LEFT;
        for (color, name, hatched) in keys {
            put!(self, "<rect x=\"{x:.1}\" y=\"62\" width=\"15\" height=\"12\" fill=\"{color}\"/>");
            if hatched {
                put!(
                    self,
                    "<rect class=\"again\" x=\"{x:.1}\" y=\"62\" width=\"15\" height=\"12\" fill=\"url(#again)\"/>"
                );
            }
            put!(self, "<text class=\"small\" x=\"{:.1}\" y=\"72\">{name}</text>", x + 20.0);
            x += 20.0 + name.len() as f64 * 6.6 + 18.0;
        }
        put!(self, "<line class=\"live\" x1=\"{x:.1}\" x2=\"{:.1}\" y1=\"68\" y2=\"68\"/>", x + 18.0);
        put!(self, "<text class=\"small\" x=\"{:.1}\" y=\"72\">bytes in use</text>", x + 23.0);
        x += 23.0 + width("bytes in use", 11.0) + 18.0;
        // Of the commands, these are mostly too narrow to have their names in the strip.
        let moves: [(&[Action], &str); 2] =
            [(&[Action::Recompute], "recomputing"), (&[Action::Offload, Action::Fetch], "moving from or to the host")];
        let steps: Vec<_> =
            self.panels.iter().flat_map(|panel| &panel.timeline.steps).map(|step| step.action).collect();
        for (actions, name) in moves.into_iter().filter(|(actions, _)| steps.iter().any(|step| actions.contains(step)))
        {
            let color = action_color(actions[0]);
            put!(self, "<rect x=\"{x:.1}\" y=\"65\" width=\"15\" height=\"6\" fill=\"{color}\"/>");
            put!(self, "<text class=\"small\" x=\"{:.1}\" y=\"72\">{name}</text>", x + 20.0);
            x += 20.0 + width(name, 11.0) + 18.0;
        }
    }
}

/// The step's programs side by side, each as wide as it has commands, but none too narrow to read.
fn panels(planned: &Planned) -> Vec<Panel> {
    let plan = &planned.plan;
    let mut numbers: Vec<usize> = Vec::new();
    for &number in &plan.schedule {
        if !numbers.contains(&number) {
            numbers.push(number);
        }
    }
    let mut panels = Vec::new();
    for number in numbers {
        let (Some(program), Some(graph)) = (plan.programs.get(number), planned.graphs.get(number)) else { continue };
        let runs = plan.schedule.iter().filter(|&&scheduled| scheduled == number).count();
        let samples = if program.samples == 1 { "sample" } else { "samples" };
        let which = match program.pass {
            Pass::Only => "the whole batch",
            Pass::First => "first micro-batch",
            Pass::Middle => "middle micro-batch",
            Pass::Last => "last micro-batch",
            Pass::Evaluate => "evaluation",
        };
        let times = if runs > 1 { format!(", {runs} times") } else { String::new() };
        let time = format_ns(program.predicted_ns as f64);
        let title = format!("{which}: {} {samples}, {time}{times}", program.samples);
        panels.push(Panel { timeline: Timeline::of(plan, number, program, graph), title, x: 0.0, width: 0.0 });
    }
    let gaps = GAP * panels.len().saturating_sub(1) as f64;
    let steps: usize = panels.iter().map(|panel| panel.timeline.steps.len()).sum();
    let mut x = LEFT;
    for panel in &mut panels {
        let share = panel.timeline.steps.len() as f64 / steps as f64;
        (panel.x, panel.width) = (x, ((PLOT_WIDTH - gaps) * share).max(width(&panel.title, 12.0)));
        x += panel.width + GAP;
    }
    panels
}

fn tooltip(block: &Block) -> String {
    let origin = match (block.recomputed, block.content) {
        (true, _) => "recomputed, ",
        (_, Content::Fetched) => "fetched from the host, ",
        _ => "",
    };
    let ended = match block.ended {
        End::Freed => "",
        End::Offloaded => ", then offloaded",
        End::Reused => ", then reused in place",
        End::ReadBack => ", then read back",
    };
    let (name, detail, size) = (&block.name, &block.detail, format_bytes(block.place.size_bytes));
    let mut text = format!("{name} {detail}: {size}, {origin}commands {} to {}{ended}", block.start, block.end - 1);
    if let Some(reason) = &block.reason {
        let _ = write!(text, " ({reason})");
    }
    text
}

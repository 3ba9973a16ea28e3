//! Curves of what steps and epochs report.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis as ChartAxis, Chart, Dataset, GraphType};
use tightfit::command::format_value;
use tightfit::train::Curve;

use super::axis::Axis;
use super::state::State;
use super::view::{fitting, heading};

const TRAIN: Color = Color::Cyan;
const VALIDATION: Color = Color::Yellow;

/// Below this, words say more than a curve.
const LEAST: (u16, u16) = (16, 4);

/// A value over steps: runs of points without a gap, one a dot of the screen at most.
fn runs(values: impl Iterator<Item = (u64, u64, f64)>, bounds: [f64; 2], dots: usize) -> Vec<Vec<(f64, f64)>> {
    let dot = |step: f64| ((step - bounds[0]) / (bounds[1] - bounds[0]) * dots as f64) as u64;
    let mut runs = vec![Vec::new()];
    // Of the dot at hand: where it is, steps, and the sums of their numbers and values.
    let mut sums: Option<(u64, f64, f64, f64)> = None;
    let mean = |(_, weight, step, sum): (u64, f64, f64, f64)| (step / weight, sum / weight);
    let push = |runs: &mut Vec<Vec<(f64, f64)>>, sums: Option<_>| {
        if let (Some(sums), Some(run)) = (sums, runs.last_mut()) {
            run.push(mean(sums));
        }
    };
    for (step, count, value) in values {
        if !value.is_finite() {
            // A curve has a hole where a value is not a number.
            push(&mut runs, sums.take());
            runs.push(Vec::new());
            continue;
        }
        let (weight, step) = (count as f64, step as f64);
        sums = match sums {
            Some((at, weights, steps, sum)) if at == dot(step) => {
                Some((at, weights + weight, steps + step * weight, sum + value * weight))
            }
            before => {
                push(&mut runs, before);
                Some((dot(step), weight, step * weight, value * weight))
            }
        };
    }
    push(&mut runs, sums);
    runs.retain(|run| !run.is_empty());
    runs
}

/// The name of a value as a title.
fn title(name: &str) -> String {
    match name {
        "lr" => "learning rate".to_owned(),
        "grad_norm" => "gradient norm".to_owned(),
        name => name.replace('_', " "),
    }
}

/// A curve of training and one of validation, as far as there are such.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, state: &State, name: &str) {
    let curve = state.history.curve(name);
    let last = curve.and_then(|curve| curve.points().last());
    let validation = state.validation(name);
    // The mean of the point's steps, which are few.
    let train_value = last.map(|point| Span::styled(format!("train {}", format_value(point.mean())), TRAIN));
    let val_value = validation.map(|value| Span::styled(format!("val {}", format_value(value)), VALIDATION));
    let of_steps = || curve.into_iter().flat_map(Curve::points);
    let val_name = format!("val_{name}");
    let of_epochs = || {
        let records = state.history.epochs().iter();
        records.filter_map(|record| Some((record.step, 1, *record.values.get(&val_name)?)))
    };
    let steps = of_steps().map(|point| point.step - (point.count - 1)).chain(of_epochs().map(|(step, ..)| step));
    let first = steps.min().unwrap_or(1);
    let made = curve.and_then(|curve| curve.points().last()).map(|point| point.step);
    let made = made.max(of_epochs().map(|(step, ..)| step).next_back());
    let last = made.max(state.step.map(|step| step.step)).unwrap_or(first).max(first.saturating_add(1));
    // As numbers, large steps next to each other are one.
    let bounds = [first as f64, (last as f64).max(first as f64 * (1.0 + 1e-9) + 1e-3)];
    let dots = usize::from(area.width).max(1) * 2;
    let train = runs(of_steps().map(|point| (point.step, point.count, point.mean())), bounds, dots);
    let validation = runs(of_epochs(), bounds, dots);

    let values = train.iter().chain(&validation).flatten().map(|&(_, value)| value);
    let may_be_log = matches!(name, "loss" | "lr" | "grad_norm" | "loss_scale" | "perplexity");
    let axis = Axis::of(values, may_be_log, area.height.saturating_sub(2));
    let log = axis.as_ref().filter(|axis| axis.is_log()).map(|_| " (log)".dim());
    let name_words = Line::from_iter([title(name).bold()].into_iter().chain(log));
    let words = [Some(name_words), train_value.map(Line::from), val_value.map(Line::from)];
    let inner = heading(frame, area, fitting(words.into_iter().flatten(), area.width));
    let Some(axis) = axis.filter(|_| (inner.width, inner.height) >= LEAST && inner.height >= LEAST.1) else { return };
    // What is wider than a third is cut.
    if axis.labels.iter().any(|label| label.len() > usize::from(inner.width / 3)) {
        return;
    }
    let place = |runs: Vec<Vec<(f64, f64)>>| -> Vec<Vec<(f64, f64)>> {
        runs.into_iter().map(|run| run.into_iter().map(|(step, value)| (step, axis.place(value))).collect()).collect()
    };
    let (train, validation) = (place(train), place(validation));
    let dataset = |run, color: Color| {
        Dataset::default().marker(Marker::Braille).graph_type(GraphType::Line).style(color).data(run)
    };
    let datasets = train.iter().map(|run| dataset(run, TRAIN));
    // A value of validation stands alone for long.
    let marks = validation
        .iter()
        .map(|run| Dataset::default().marker(Marker::Dot).graph_type(GraphType::Scatter).style(VALIDATION).data(run));
    let datasets = datasets.chain(validation.iter().map(|run| dataset(run, VALIDATION))).chain(marks).collect();
    let style = Style::new().dim();
    let label = |text: String| Span::styled(text, style);
    let steps = [first, last].map(|step| label(step.to_string()));
    let chart = Chart::new(datasets)
        .legend_position(None)
        .hidden_legend_constraints((Constraint::Length(0), Constraint::Length(0)))
        .x_axis(ChartAxis::default().bounds(bounds).labels(steps).style(style))
        .y_axis(ChartAxis::default().bounds(axis.bounds).labels(axis.labels.into_iter().map(label)).style(style));
    frame.render_widget(chart, inner);
}

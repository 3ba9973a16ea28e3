//! `--profile`: where the time of a step goes, by op and shape.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::{Value, json};
use tightfit::data::TensorDataset;
use tightfit::exec::{Clock, NodeTime};
use tightfit::tensor::TensorDesc;
use tightfit::train::Trainer;

use super::super::failure::Failure;
use super::super::output::Output;

/// Most steps that are profiled, with a usual one before each: medians count, of each node and of the usual steps.
pub(super) const MOST_STEPS: usize = 5;

/// Longer shapes are cut in text.
const SHAPES_WIDTH: usize = 52;
const OP_WIDTH: usize = 28;
/// Of a line with shapes and numbers.
const WIDTH: usize = OP_WIDTH + 1 + SHAPES_WIDTH + 43;

/// Where the time of a step goes.
#[derive(Debug)]
pub(super) struct Profile {
    clock: Clock,
    steps: usize,
    /// Of a usual step.
    step_ms: f64,
    /// What takes most comes first.
    rows: Vec<Row>,
}

/// Nodes of one op and one shape.
#[derive(Debug, Default)]
struct Row {
    op: &'static str,
    shapes: String,
    layers: Vec<String>,
    /// In a step, as is what follows.
    calls: usize,
    ns: f64,
    flops: u64,
    bytes: u64,
    kernels: BTreeMap<String, f64>,
}

impl Row {
    fn add(&mut self, node: &NodeTime) {
        self.op = node.op;
        self.calls += 1;
        self.ns += node.ns;
        self.flops += node.cost.flops;
        self.bytes += node.cost.bytes_moved;
        if !self.layers.contains(&node.name) {
            self.layers.push(node.name.clone());
        }
        for (kernel, ns) in &node.kernels {
            *self.kernels.entry(kernel.to_string()).or_default() += ns;
        }
    }

    /// So much of something in a nanosecond, which is so many billions in a second.
    fn rate(&self, amount: u64) -> f64 {
        if self.ns > 0.0 { amount as f64 / self.ns } else { 0.0 }
    }
}

/// Makes so many more steps, at least one, and takes their times.
pub(super) fn profile(
    trainer: &mut Trainer,
    data: &TensorDataset,
    indices: &[usize],
    count: usize,
) -> Result<Profile, Failure> {
    let mut steps = Vec::with_capacity(count);
    let mut usual_ms = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        trainer.step(data, indices)?;
        usual_ms.push(start.elapsed().as_secs_f64() * 1e3);
        steps.push(trainer.profile_step(data, indices)?);
    }
    let mut rows: BTreeMap<(&str, String), Row> = BTreeMap::new();
    // Each step runs the same nodes in the same order.
    for i in 0..steps[0].len() {
        let mut runs: Vec<&NodeTime> = steps.iter().map(|step| &step[i]).collect();
        runs.sort_by(|a, b| a.ns.total_cmp(&b.ns));
        let median = runs[count / 2];
        rows.entry((median.op, shapes(median))).or_default().add(median);
    }
    let mut rows: Vec<_> = rows.into_iter().map(|((_, shapes), row)| Row { shapes, ..row }).collect();
    rows.sort_by(|a, b| b.ns.total_cmp(&a.ns));
    usual_ms.sort_by(f64::total_cmp);
    Ok(Profile { clock: trainer.clock(), steps: count, step_ms: usual_ms[count / 2], rows })
}

/// `128x784 784x512 -> 128x512`.
fn shapes(node: &NodeTime) -> String {
    let list = |descs: &[TensorDesc]| {
        let shape = |desc: &TensorDesc| match desc.shape.iter().map(ToString::to_string).collect::<Vec<_>>() {
            extents if extents.is_empty() => "1".to_owned(),
            extents => extents.join("x"),
        };
        descs.iter().map(shape).collect::<Vec<_>>().join(" ")
    };
    if node.outputs.is_empty() {
        return list(&node.inputs);
    }
    format!("{} -> {}", list(&node.inputs), list(&node.outputs))
}

impl Profile {
    fn nodes_ms(&self) -> f64 {
        self.rows.iter().map(|row| row.ns).sum::<f64>() / 1e6
    }

    pub(super) fn show(&self, output: &Output) {
        let step_ms = self.step_ms;
        // Where a line has no room for shapes, they have one of their own.
        let is_narrow = output.width() < WIDTH;
        let first_width = if is_narrow { OP_WIDTH } else { OP_WIDTH + 1 + SHAPES_WIDTH };
        let first = |op: &str, shapes: &str| match is_narrow {
            true => format!("{op:<OP_WIDTH$}"),
            false => format!("{op:<OP_WIDTH$} {:<SHAPES_WIDTH$}", cut(shapes)),
        };
        output.text(format_args!(
            "\n{} {:>5} {:>9} {:>9} {:>8} {:>7}",
            first("op", "shapes"),
            "calls",
            "ms",
            "GFLOP/s",
            "GB/s",
            "share"
        ));
        let percent = |ms: f64| format!("{:.1}%", ms / step_ms * 100.0);
        for row in &self.rows {
            let ms = row.ns / 1e6;
            output.text(format_args!(
                "{} {:>5} {:>9.3} {:>9.2} {:>8.2} {:>7}",
                first(row.op, &row.shapes),
                row.calls,
                ms,
                row.rate(row.flops),
                row.rate(row.bytes),
                percent(ms)
            ));
            if is_narrow {
                output.text(format_args!("    {}", row.shapes));
            }
            for (kernel, ns) in row.kernels.iter().filter(|_| row.kernels.len() > 1) {
                let (name, ms) = (format!("  {kernel}"), ns / 1e6);
                output.text(format_args!("{name:<first_width$} {:>5} {ms:>9.3} {:>26}", "", percent(ms)));
            }
        }
        let between_ms = step_ms - self.nodes_ms();
        output.text(format_args!(
            "{:<first_width$} {:>5} {between_ms:>9.3} {:>26}",
            "between kernels",
            "",
            percent(between_ms)
        ));
        output.text(match self.clock {
            Clock::Timestamps => {
                "Times are the device's own, of one launch after the other. Between kernels is what the median step takes \
                 beside them; it is below 0 where launches take longer one by one."
            }
            Clock::Stopwatch => {
                "This device has no timestamps: times are those of each node repeated by itself, by the host's clock."
            }
            Clock::Host => "Times are of native code on the CPU, by the host's clock.",
        });
    }

    pub(super) fn to_json(&self) -> Value {
        let step_ms = self.step_ms;
        let between_ms = step_ms - self.nodes_ms();
        let rows = self.rows.iter().map(|row| {
            let kernels = row.kernels.iter().map(|(kernel, ns)| json!({"kernel": kernel, "ms": ns / 1e6}));
            json!({
                "op": row.op,
                "shapes": row.shapes,
                "layers": row.layers,
                "calls": row.calls,
                "ms": row.ns / 1e6,
                "gflop_per_s": row.rate(row.flops),
                "gb_per_s": row.rate(row.bytes),
                "share": row.ns / 1e6 / step_ms,
                "kernels": kernels.collect::<Vec<_>>(),
            })
        });
        json!({
            "clock": self.clock.to_string(),
            "steps": self.steps,
            "step_ms": step_ms,
            "ops": rows.collect::<Vec<_>>(),
            "between_ms": between_ms,
            "between_share": between_ms / step_ms,
        })
    }
}

fn cut(shapes: &str) -> String {
    if shapes.len() <= SHAPES_WIDTH {
        return shapes.to_owned();
    }
    // Outputs say most, and shapes are ASCII.
    format!("… {}", &shapes[shapes.len() - SHAPES_WIDTH + 2..])
}

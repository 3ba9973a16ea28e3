//! `tightfit train --find-lr`: the loss over learning rates, and which one to begin with.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use tightfit::command::files;
use tightfit::data::DataLoader;
use tightfit::train::{LrCurve, LrRange, Trainer};

use super::failure::{Failure, INTERRUPTED, keep};
use super::output::{Output, columns, shown_if_any};
use super::overwrite::Kind;
use super::progress::{finite, steps_bar};

/// Rows of the table.
const ROWS: usize = 12;
/// Lines of progress where nobody watches a bar.
const LINES: u64 = 10;

/// What is searched, and where the picture goes.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    pub(crate) range: LrRange,
    pub(crate) svg: Option<PathBuf>,
}

impl Search {
    /// Whether the picture can be written.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let Some(path) = &self.svg else { return Ok(()) };
        files::check_writable(path, 1).map_err(|error| Failure::bad_input(format!("--svg {error}")))?;
        Kind::Picture.check("--svg", path)
    }
}

/// Two learning rates with two dots between them.
pub(crate) fn lr_range(text: &str) -> Result<(f64, f64), String> {
    let ends = text.split_once("..").map(|(min, max)| (super::values::positive(min), super::values::positive(max)));
    match ends {
        Some((Ok(min), Ok(max))) if min < max => Ok((min, max)),
        _ => Err("write the lowest and the highest learning rate, such as 1e-6..1".to_owned()),
    }
}

/// Searches, and says what was found. The trainer is as it was afterwards.
pub(crate) fn run(
    trainer: &mut Trainer,
    data: &DataLoader<'_>,
    search: &Search,
    stop: &AtomicBool,
    output: &Output,
) -> Result<u8, Failure> {
    let steps = search.range.steps;
    let bar = steps_bar(output, steps);
    let every = (steps / LINES).max(1);
    let mut step = 0;
    let curve = trainer.find_lr_while(data, search.range, |lr, loss| {
        step += 1;
        bar.set_position(step);
        bar.set_message(format!("lr {}  loss {loss:.4}", shown(lr)));
        if bar.is_hidden() && step % every == 0 {
            output.text(format_args!("step {step}/{steps}  lr {}  loss {loss:.4}", shown(lr)));
        }
        !stop.load(Ordering::Relaxed) && !output.is_closed()
    });
    bar.finish_and_clear();
    let curve = curve?;
    let interrupted = stop.load(Ordering::Relaxed) || output.is_closed();
    tell(&curve, search, interrupted, output);
    let svg = search.svg.as_deref();
    if let Some(path) = svg {
        let picture = curve.svg(trainer.model().name());
        keep(path, |path| Ok(files::write_whole(path, picture.as_bytes())?))?;
        output.text(format_args!("written to {}", path.display()));
    }
    output.object(&object(&curve, search.range, svg, interrupted));
    Ok(if interrupted { INTERRUPTED } else { 0 })
}

fn object(curve: &LrCurve, range: LrRange, svg: Option<&Path>, interrupted: bool) -> serde_json::Value {
    let points: Vec<_> = curve.points.iter().map(|(lr, loss)| json!({"lr": lr, "loss": finite(*loss)})).collect();
    json!({
        "event": "find_lr",
        "min_lr": range.min_lr,
        "max_lr": range.max_lr,
        "steps": range.steps,
        "points": points,
        "suggested_lr": curve.suggestion,
        "svg": shown_if_any(svg),
        "interrupted": interrupted,
    })
}

/// Prints some of the points, and what follows from all.
fn tell(curve: &LrCurve, search: &Search, interrupted: bool, output: &Output) {
    let points = &curve.points;
    let every = points.len().div_ceil(ROWS).max(1);
    let last = points.len().saturating_sub(1);
    let picked = points.iter().enumerate().filter(|(at, _)| at % every == 0 || *at == last);
    let row = |(_, (lr, loss)): (usize, &(f64, f64))| [shown(*lr), format!("{loss:.4}")];
    let heading = ["learning rate", "smoothed loss"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(heading).chain(picked.map(row)).collect();
    output.text(format_args!("\n{}\n", columns(&rows, 0, output.width()).join("\n")));
    let LrRange { min_lr, max_lr, steps } = search.range;
    if interrupted {
        output.text(format_args!("interrupted after {} of {steps} steps", points.len()));
    } else if (points.len() as u64) < steps {
        output.text(format_args!("the loss diverged after {} of {steps} steps", points.len()));
    }
    match curve.suggestion.map(shown) {
        Some(lr) => output.text(format_args!("suggested learning rate {lr}, where the loss falls fastest: --lr {lr}")),
        None => output.text(format_args!(
            "no suggestion: from {min_lr:e} to {max_lr:e} the loss does not clearly fall: try other \
             rates with --lr-range, or more --steps"
        )),
    }
}

/// A learning rate with two digits: no search is more exact.
fn shown(lr: f64) -> String {
    let short = format!("{lr:.1e}");
    match short.parse::<f64>() {
        Ok(rounded) if (1e-4..1e4).contains(&rounded) => rounded.to_string(),
        _ => short.replace(".0e", "e"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_rise() {
        assert_eq!(lr_range("1e-7..10"), Ok((1e-7, 10.0)));
        assert_eq!(lr_range("0.001..0.1"), Ok((0.001, 0.1)));
        for text in ["", "1", "1..", "..1", "1..1", "1..0.1", "0..1", "-1..1", "NaN..1", "1..1e400", "a..b"] {
            assert!(lr_range(text).is_err_and(|error| error.contains("1e-6..1")), "{text}");
        }
    }

    #[test]
    fn rates_have_two_digits() {
        for (lr, text) in [(0.012_345, "0.012"), (1e-7, "1e-7"), (1.26e-5, "1.3e-5"), (1.0, "1"), (0.099_99, "0.1")] {
            assert_eq!(shown(lr), text);
        }
    }
}

//! `tightfit runs`: compares trainings.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use tightfit::command::files;
use tightfit::plan::{format_bytes, format_ns};
use tightfit::train::{Checkpoint, History, MonitorMode};

use super::failure::Failure;
use super::output::{Output, columns, shown};
use super::progress::finite;
use super::run_folder::{RunPath, Status};

/// Far more than a history or a plan takes.
const MAX_FILE_BYTES: u64 = 256 << 20;
/// Columns of words, which come first.
const WORDS: usize = 3;

#[derive(Args, Debug)]
pub(crate) struct RunsArgs {
    /// Run folders, or folders of such
    #[arg(value_name = "DIR", required = true)]
    folders: Vec<PathBuf>,

    /// Which column the rows are sorted by, the best first
    #[arg(long, value_name = "COLUMN", ignore_case = true, default_value = "run")]
    sort: Column,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
#[value(rename_all = "snake_case")]
enum Column {
    Run,
    Model,
    Status,
    Epochs,
    Steps,
    Loss,
    ValLoss,
    ValAccuracy,
    Peak,
    StepMs,
}

/// What is known of a training.
#[derive(Debug)]
struct Row {
    path: PathBuf,
    model: String,
    status: Status,
    epochs: u64,
    steps: u64,
    loss: Option<f64>,
    /// The best of all epochs; where none was validated, that of the test at the end.
    val_loss: Option<f64>,
    val_accuracy: Option<f64>,
    peak_bytes: Option<u64>,
    step_ms: Option<f64>,
    /// All settings, by their places in the run file.
    settings: BTreeMap<String, String>,
}

impl Row {
    fn of(run: &RunPath) -> Result<Self, Failure> {
        let config = run.config()?;
        let mut settings = BTreeMap::new();
        if let Ok(toml::Value::Table(table)) = toml::Value::try_from(&config) {
            flatten("", &table, &mut settings);
        }
        let status = run.status();
        let ended = run.summary().unwrap_or_default();
        let read = |name: &str| files::read(&run.at(name), MAX_FILE_BYTES, "").ok();
        // That of an end before the last one is old.
        let kept = read("history.json").filter(|_| status == Status::Finished);
        let history: Option<History> = kept.and_then(|json| serde_json::from_slice(&json).ok());
        let history = history.or_else(|| Checkpoint::latest_history(run.checkpoints())).unwrap_or_default();
        let plan: Value = read("plan.json").and_then(|json| serde_json::from_slice(&json).ok()).unwrap_or_default();
        let last = history.epochs().last();
        let best = |name: &str| history.best(name, MonitorMode::Auto)?.values.get(name).copied();
        let steps_in_history = history.curve("loss").and_then(|curve| curve.points().last().map(|point| point.step));
        let of_end = |name: &str| ended[name].as_f64();
        // The file of a model is a copy in each run: its name says more than where it is.
        let model = ended["model"].as_str().or(plan["model"].as_str()).map(str::to_owned);
        let model = model.unwrap_or_else(|| config.model().to_string_lossy().into_owned());
        settings.insert("model.name".to_owned(), toml::Value::from(model.as_str()).to_string());
        Ok(Row {
            path: run.path().to_owned(),
            model,
            status,
            epochs: ended["epochs"].as_u64().unwrap_or_else(|| last.map_or(0, |record| record.epoch)),
            steps: ended["steps"].as_u64().or(steps_in_history).unwrap_or(0),
            loss: of_end("train_loss").or_else(|| last.and_then(|record| record.values.get("loss").copied())),
            val_loss: best("val_loss").or_else(|| of_end("test_loss")),
            val_accuracy: best("val_accuracy").or_else(|| of_end("test_accuracy")),
            peak_bytes: ended["measured_peak_bytes"].as_u64().or(plan["plan"]["peak_bytes"].as_u64()),
            step_ms: of_end("step_ms_median"),
            settings,
        })
    }

    fn cells(&self) -> [String; 10] {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let number = |number: Option<f64>| or_none(number.map(|number| format!("{number:.4}")));
        [
            self.path.display().to_string(),
            self.model.clone(),
            self.status.name().to_owned(),
            self.epochs.to_string(),
            self.steps.to_string(),
            number(self.loss),
            number(self.val_loss),
            or_none(self.val_accuracy.map(|accuracy| format!("{:.2}%", accuracy * 100.0))),
            or_none(self.peak_bytes.map(format_bytes)),
            or_none(self.step_ms.map(|ms| format_ns(ms * 1e6))),
        ]
    }

    /// By a column, the best first; what has none comes last.
    fn compare(&self, other: &Self, column: Column) -> Ordering {
        fn by(one: Option<f64>, other: Option<f64>) -> Ordering {
            let place = |number: Option<f64>| number.filter(|number| !number.is_nan()).unwrap_or(f64::INFINITY);
            place(one).total_cmp(&place(other))
        }
        let falling = |number: Option<f64>| number.map(|number| -number);
        let order = match column {
            Column::Run => Ordering::Equal,
            Column::Model => self.model.cmp(&other.model),
            Column::Status => self.status.name().cmp(other.status.name()),
            Column::Epochs => other.epochs.cmp(&self.epochs),
            Column::Steps => other.steps.cmp(&self.steps),
            Column::Loss => by(self.loss, other.loss),
            Column::ValLoss => by(self.val_loss, other.val_loss),
            Column::ValAccuracy => by(falling(self.val_accuracy), falling(other.val_accuracy)),
            Column::Peak => {
                let bytes = |row: &Self| row.peak_bytes.map(|bytes| bytes as f64);
                by(bytes(self), bytes(other))
            }
            Column::StepMs => by(self.step_ms, other.step_ms),
        };
        order.then_with(|| self.path.cmp(&other.path))
    }
}

const HEADINGS: [&str; 10] =
    ["run", "model", "status", "epochs", "steps", "loss", "val_loss", "val_accuracy", "peak", "step"];

/// The settings of a file, each by its place.
fn flatten(above: &str, table: &toml::Table, settings: &mut BTreeMap<String, String>) {
    for (key, value) in table {
        let name = if above.is_empty() { key.clone() } else { format!("{above}.{key}") };
        match value {
            toml::Value::Table(below) => flatten(&name, below, settings),
            value => drop(settings.insert(name, value.to_string())),
        }
    }
}

/// The runs in these folders.
fn find(folders: &[PathBuf]) -> Result<Vec<RunPath>, Failure> {
    let mut found = Vec::new();
    for folder in folders {
        if let Some(run) = RunPath::find(folder) {
            found.push(run);
            continue;
        }
        let entries = fs::read_dir(folder);
        let entries = entries.map_err(|error| Failure::bad_input(format!("{}: {error}", folder.display())))?.flatten();
        let before = found.len();
        found.extend(entries.filter_map(|entry| RunPath::find(&entry.path())));
        if found.len() == before {
            return Err(Failure::bad_input(format!(
                "{}: no run is in this folder: `tightfit train … --run DIR` makes one",
                folder.display()
            )));
        }
    }
    Ok(found)
}

/// The settings that are not the same in all rows: by name, that of each row.
fn differences(rows: &[Row]) -> BTreeMap<&str, Vec<Option<&str>>> {
    let names = rows.iter().flat_map(|row| row.settings.keys());
    let of_rows = |name: &String| rows.iter().map(|row| row.settings.get(name).map(String::as_str)).collect::<Vec<_>>();
    let all: BTreeMap<&str, Vec<_>> = names.map(|name| (name.as_str(), of_rows(name))).collect();
    all.into_iter().filter(|(_, values)| values.iter().any(|value| *value != values[0])).collect()
}

pub(crate) fn run(args: &RunsArgs, output: &Output) -> Result<u8, Failure> {
    let mut rows = Vec::new();
    for run in find(&args.folders)? {
        // One that is not right hides no other.
        match Row::of(&run) {
            Ok(row) => rows.push(row),
            Err(failure) => log::warn!("{}", failure.message),
        }
    }
    rows.sort_by(|one, other| one.compare(other, args.sort));
    let differences = differences(&rows);
    for (number, row) in rows.iter().enumerate() {
        let settings: Vec<_> =
            differences.iter().map(|(name, values)| json!({"name": name, "value": values[number]})).collect();
        output.object(&json!({
            "run": shown(&row.path), "model": row.model, "status": row.status.name(), "epochs": row.epochs,
            "steps": row.steps, "train_loss": row.loss.map(finite), "val_loss": row.val_loss.map(finite),
            "val_accuracy": row.val_accuracy, "peak_bytes": row.peak_bytes, "step_ms": row.step_ms,
            "differs": settings,
        }));
    }
    let heading = HEADINGS.map(str::to_owned);
    let table: Vec<_> = std::iter::once(heading).chain(rows.iter().map(Row::cells)).collect();
    output.text(columns(&table, WORDS, output.width()).join("\n"));
    if !differences.is_empty() {
        output.text("\nsettings that differ");
        for (name, values) in &differences {
            let of_rows = rows.iter().zip(values).map(|(row, value)| {
                let run = row.path.file_name().map_or(row.path.as_path(), Path::new);
                format!("{} {}", run.display(), value.unwrap_or("-"))
            });
            output.text(format_args!("  {name}: {}", of_rows.collect::<Vec<_>>().join(", ")));
        }
    }
    Ok(0)
}

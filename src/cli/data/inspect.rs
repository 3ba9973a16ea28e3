//! `tightfit data inspect`: what is in a folder or a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde_json::{Value, json};
use tightfit::command::plural;
use tightfit::data::image::{InspectOptions, inspect, inspect_list};
use tightfit::data::table::{Column, ColumnKind, Missing};
use tightfit::data::{Dataset, ListOptions, Table, TableOptions, TargetKind, split};
use tightfit::models;
use tightfit::plan::format_bytes;
use tightfit::train::Config;

use super::super::failure::Failure;
use super::super::output::{Output, shown};
use super::super::progress::files_bar;
use super::settings::{DataArgs, DataTable, Kind};
use super::sources;

/// Categories of a column that are named.
const SHOWN: usize = 8;

#[derive(Args, Debug)]
pub(crate) struct InspectArgs {
    /// Folder or file
    #[arg(value_name = "PATH")]
    path: PathBuf,

    /// Decodes every image, which finds damage behind the header
    #[arg(long)]
    decode: bool,

    #[command(flatten)]
    data: DataArgs,
}

pub(super) fn run(args: &InspectArgs, output: &Output) -> Result<u8, Failure> {
    let mut data = DataTable::default();
    args.data.put_over(&mut data, &mut None);
    let path = &args.path;
    let kind = super::kind_at(path, &data)?;
    if kind == Kind::Images && data.masks.is_none() {
        let options = InspectOptions { decode: args.decode, ..InspectOptions::default() };
        let bar = files_bar(output);
        let mut progress = |done: usize, all: usize| {
            bar.set_length(all as u64);
            bar.set_position(done as u64);
        };
        let found = if path.is_dir() {
            inspect(path, &options, &mut progress)
        } else {
            inspect_list(path, &ListOptions::default(), &options, &mut progress)
        };
        bar.finish_and_clear();
        let found = found?;
        output.text(format_args!("{found}"));
        let mut object = serde_json::to_value(&found).expect("bug: counts that JSON cannot hold");
        object["event"] = json!("inspection");
        object["path"] = shown(path);
        output.object(&object);
        return Ok(0);
    }
    // Any model of that kind of samples.
    let like = match kind {
        Kind::Text | Kind::Tokens => "char_lstm",
        Kind::Series => "lstm_forecaster",
        _ => "resnet18",
    };
    let model = models::builtin(like).expect("bug: it is built in");
    if kind == Kind::Table && data.targets.is_empty() {
        return table(path, output);
    }
    let parts = sources::open(kind, path, &data, &model, &Config::default())?;
    tell(&parts.train, path, output)
}

/// The columns of a table, none of which is known to be the target.
fn table(path: &Path, output: &Output) -> Result<u8, Failure> {
    // Missing values are no reason not to look.
    let table = Table::open(path, &TableOptions { missing: Missing::Fill, ..TableOptions::default() })?;
    output.text(format_args!("{} in {}", plural(table.len(), "row"), path.display()));
    let columns = &table.preprocessing().inputs;
    for Column { name, kind } in columns {
        let (kind, values) = match kind {
            ColumnKind::Number { mean, std, min, max } => {
                ("number", format!("{min} to {max}, mean {mean:.6}, standard deviation {std:.6}"))
            }
            ColumnKind::Boolean { most_frequent } => ("boolean", format!("mostly {most_frequent}")),
            ColumnKind::Text { categories, .. } => {
                let first: Vec<_> = categories.iter().take(SHOWN).map(String::as_str).collect();
                let more = if categories.len() > SHOWN { ", …" } else { "" };
                let word = if categories.len() == 1 { "category" } else { "categories" };
                ("text", format!("{} {word}: {}{more}", categories.len(), first.join(", ")))
            }
        };
        output.text(format_args!("  {name:<24} {kind:<8} {values}"));
    }
    output.text("--target NAME says which column a model is to say");
    output.object(&json!({"event": "inspection", "path": shown(path), "samples": table.len(), "columns": columns}));
    Ok(0)
}

/// What the samples of a set have.
fn tell(data: &Arc<dyn Dataset>, path: &Path, output: &Output) -> Result<u8, Failure> {
    let features = data.features()?;
    output.text(format_args!("{} in {}", plural(data.len(), "sample"), path.display()));
    for (name, desc) in features.entries() {
        output.text(format_args!("  {name:<14} {desc}"));
    }
    let mut counts = Value::Null;
    if let TargetKind::Labels { shape, classes: Some(classes), .. } = features.target() {
        output.text(format_args!("  {:<14} {classes}", "classes"));
        if shape.is_empty() {
            let mut found = vec![0usize; classes as usize];
            split::labels(data)?.into_iter().for_each(|label| found[label as usize] += 1);
            for (class, count) in found.iter().enumerate() {
                let name = features.class_names().get(class).cloned().unwrap_or_else(|| class.to_string());
                output.text(format_args!("    {name:<20} {count:>8}"));
            }
            counts = json!(found);
        }
    }
    let bytes = features.sample_bytes().saturating_mul(data.len() as u64);
    output.text(format_args!(
        "  {:<14} {} in memory as a whole; an index takes {}",
        "bytes",
        format_bytes(bytes),
        format_bytes(data.host_bytes())
    ));
    let entries: Vec<_> =
        features.entries().map(|(name, desc)| json!({"name": name, "type": desc.to_string()})).collect();
    output.object(&json!({
        "event": "inspection", "path": shown(path), "samples": data.len(), "features": entries,
        "classes": features.classes(), "class_names": features.class_names(), "class_counts": counts,
        "memory_bytes": bytes, "index_bytes": data.host_bytes(),
    }));
    Ok(0)
}

//! `tightfit summary`: the layers of a model, and what training takes for each.

use std::ffi::OsStr;

use clap::Args;
use serde_json::{Value, json};
use tightfit::train::{self, Summary, SummaryRow};

use super::failure::Failure;
use super::output::Output;
use super::settings::TrainingArgs;

#[derive(Args, Debug)]
pub(crate) struct SummaryArgs {
    #[command(flatten)]
    model: TrainingArgs,

    /// Parts of names that rows have: 1 puts all layers of a block together [default: all]
    #[arg(long, value_name = "N", value_parser = super::values::count::<usize>)]
    depth: Option<usize>,
}

impl SummaryArgs {
    pub(crate) fn model(&self) -> &OsStr {
        self.model.name()
    }
}

pub(crate) fn run(args: &SummaryArgs, output: &Output) -> Result<u8, Failure> {
    let (model, config) = args.model.run_file()?.resolve(None)?;
    let mut table = train::summary(&model, &config)?.width(output.width());
    if let Some(depth) = args.depth {
        table = table.depth(depth);
    }
    output.text(&table);
    output.object(&json!({
        "model": model.name(), "batch": config.batch, "input": model.input_shape(), "output": model.output_shape()?,
        "parameters": model.parameter_count()?, "layers": rows(&table),
    }));
    Ok(0)
}

/// The layers as JSON.
pub(crate) fn rows(table: &Summary) -> Value {
    let row = |row: &SummaryRow| {
        json!({
            "name": row.name, "output": row.output, "parameters": row.parameters, "parameter_bytes": row.parameter_bytes,
            "state_bytes": row.state_bytes, "saved_bytes": row.saved_bytes,
        })
    };
    table.rows().iter().map(row).collect()
}

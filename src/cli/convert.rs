//! `tightfit convert`: models and weights from one format to another.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use tightfit::command::{files, plural};
use tightfit::interop::{self, Source, onnx};
use tightfit::models;
use tightfit::plan::format_bytes;

use super::data;
use super::failure::Failure;
use super::output::{Output, shown};
use super::overwrite;
use super::run_file::RunFile;
use super::run_folder::RunPath;
use super::values::not_empty;
use super::weights::{self, Format};

#[derive(Args, Debug)]
pub(crate) struct ConvertArgs {
    /// A model of Keras or ONNX (.keras, .h5, .onnx), weights (.safetensors, .pt, .pth, .weights.h5), or the run folder of a training
    #[arg(value_name = "FROM")]
    from: PathBuf,

    /// What to write: .safetensors, .onnx, or of a model of Keras .keras or .weights.h5
    #[arg(value_name = "TO")]
    to: PathBuf,

    /// The model that weights belong to: its name, or a file of TOML, Keras or ONNX
    #[arg(long, value_name = "MODEL", value_parser = not_empty())]
    model: Option<OsString>,

    /// Writes weights of convolutions that batch norms after them are folded into, where that is ONNX
    #[arg(long)]
    fold_batch_norm: bool,
}

/// What is converted: weights, and the model where it is known.
struct Input {
    weights: PathBuf,
    file: Option<RunFile>,
}

impl Input {
    fn of(args: &ConvertArgs) -> Result<Self, Failure> {
        let from = &args.from;
        let named = args.model.as_deref().map(RunFile::open).transpose()?;
        if let Some(run) = RunPath::find(from) {
            let weights = run.at("model.safetensors");
            if !weights.is_file() {
                return Err(Failure::bad_input(format!(
                    "{}: its training has not ended, so it has no weights yet: `tightfit resume {}` goes on with it",
                    from.display(),
                    from.display()
                )));
            }
            return Ok(Input { weights, file: Some(named.map_or_else(|| run.config(), Ok)?) });
        }
        let own = interop::is_model_file(from).then(|| RunFile::of_model(from.as_os_str()));
        Ok(Input { weights: from.clone(), file: named.or(own) })
    }
}

pub(crate) fn run(args: &ConvertArgs, output: &Output) -> Result<u8, Failure> {
    let Input { weights, file } = Input::of(args)?;
    let to = &*args.to;
    let model = args.model.as_deref().map(Path::new);
    let inputs = [("FROM", Some(&*weights)), ("FROM", Some(&args.from)), ("--model", model)];
    overwrite::refuse(&[("TO", Some(to))], &inputs, None)?;
    files::check_writable(to, 1)?;
    let names_safetensors = to.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("safetensors"));
    let format = Format::of(to);
    if format == Format::Safetensors && !names_safetensors {
        return Err(Failure::bad_input(format!(
            "{}: its ending names no format that is written: end it in .safetensors, .onnx, .keras or .weights.h5",
            to.display()
        )));
    }
    if args.fold_batch_norm && format != Format::Onnx {
        return Err(Failure::bad_input(
            "--fold-batch-norm is for ONNX alone: leave it out, or write a file that ends in .onnx",
        ));
    }
    let count = match file {
        Some(file) => of_model(args, file, &weights)?,
        None => alone(&weights, to)?,
    };
    let size_bytes = to.metadata().map_or(0, |metadata| metadata.len());
    output.text(format_args!("{}: {}, {}", to.display(), plural(count, "tensor"), format_bytes(size_bytes)));
    output.object(&json!({
        "from": shown(&args.from), "to": shown(to), "tensors": count, "size_bytes": size_bytes,
    }));
    Ok(0)
}

/// Weights of no model in particular.
fn alone(from: &Path, to: &Path) -> Result<usize, Failure> {
    let weights = interop::read_tensors(from)?;
    if Format::of(to) != Format::Safetensors {
        return Err(Failure::bad_input(format!(
            "{}: which model are the weights of? Name it: --model MODEL",
            to.display()
        )));
    }
    interop::safetensors::write(to, &weights)?;
    Ok(weights.len())
}

/// A model with its weights.
fn of_model(args: &ConvertArgs, mut file: RunFile, path: &Path) -> Result<usize, Failure> {
    weights::check_save("TO", &args.to, &file)?;
    let trained = weights::preprocessing(path)?.unwrap_or_default();
    let is_built_in = |name: &str| models::builtin(name).is_some();
    if file.model().to_str().is_some_and(is_built_in) && file.model.outputs.is_none() {
        file.model.outputs = std::num::NonZeroUsize::new(trained.class_names.len());
    }
    let (model, _) = file.resolve_for_evaluation()?;
    let model = data::as_trained(&file, model, &trained)?;
    let source = Source { model: &model, file: weights::model_file(&file) };
    let weights = interop::read_weights(path, source)?;
    interop::write(
        &args.to,
        source,
        &weights,
        onnx::Options { fold_batch_norm: args.fold_batch_norm, ..Default::default() },
    )?;
    Ok(weights.len())
}

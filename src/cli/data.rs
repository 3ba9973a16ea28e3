//! `tightfit data`: fetches datasets.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;
use tightfit::data::{download, mnist};
use tightfit::plan::format_bytes;

use super::failure::Failure;
use super::output::{Output, shown};

/// Where the full MNIST is fetched to.
const FETCHED: &str = "data/mnist-full";
/// Where the source repository has a part of it.
const BUNDLED: &str = "data/mnist";

/// The folder with the data that was asked for, or where nothing was, the full MNIST if it was fetched, else a part of it.
pub(crate) fn folder(given: Option<&Path>) -> PathBuf {
    let is_fetched = || download::MNIST_FILES.iter().all(|file| Path::new(FETCHED).join(file.name).is_file());
    given.map_or_else(|| PathBuf::from(if is_fetched() { FETCHED } else { BUNDLED }), Path::to_owned)
}

#[derive(Subcommand, Debug)]
pub(crate) enum DataCommand {
    /// Fetches the full MNIST, 60,000 + 10,000 images, 12 MB; resumes where an earlier try stopped
    Mnist(MnistArgs),
}

#[derive(Args, Debug)]
pub(crate) struct MnistArgs {
    /// Folder for the four files; train, eval and bench take the default one unless they are told another
    #[arg(long, value_name = "DIR", default_value = FETCHED)]
    data: PathBuf,
}

pub(crate) fn run(command: &DataCommand, output: &Output) -> Result<u8, Failure> {
    let DataCommand::Mnist(MnistArgs { data }) = command;
    download::mnist(data, &download::MNIST_MIRRORS, &mut |progress| {
        if progress.received_bytes == progress.size_bytes {
            output.text(format_args!("{}  {}", progress.name, format_bytes(progress.size_bytes)));
            output.object(&json!({"event": "file", "name": progress.name, "size_bytes": progress.size_bytes}));
        }
    })?;
    let (train, test) = mnist::open(data)?;
    let use_them =
        if folder(None) == *data { String::new() } else { format!(": use them with --data {}", data.display()) };
    output.text(format_args!("{} + {} images in {}{use_them}", train.len(), test.len(), data.display()));
    output.object(&json!({
        "event": "summary", "data": shown(data), "train_samples": train.len(), "test_samples": test.len(),
    }));
    Ok(0)
}

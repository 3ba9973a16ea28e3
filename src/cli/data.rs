//! `tightfit data`: fetches datasets.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;
use tightfit::data::{download, mnist};
use tightfit::plan::format_bytes;

use super::failure::Failure;
use super::output::Output;

#[derive(Subcommand, Debug)]
pub(crate) enum DataCommand {
    /// Fetches the full MNIST, 60,000 + 10,000 images, 12 MB; resumes where an earlier try stopped
    Mnist(MnistArgs),
}

#[derive(Args, Debug)]
pub(crate) struct MnistArgs {
    /// Folder for the four files
    #[arg(long, value_name = "DIR", default_value = "data/mnist-full")]
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
    let dir = data.display();
    output.text(format_args!("{} + {} images in {dir}: train on them with --data {dir}", train.len(), test.len()));
    output.object(&json!({
        "event": "summary", "data": data, "train_samples": train.len(), "test_samples": test.len(),
    }));
    Ok(0)
}

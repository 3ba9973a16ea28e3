// In Markdown the first definition of a link counts: here links between documents lead to pages of the guide, elsewhere to files.
#![doc = include_str!("guide_links.md")]
#![doc = include_str!("../README.md")]
// Without these features, what they make public is not.
#![cfg_attr(not(all(feature = "cli", feature = "testing")), allow(unreachable_pub))]

pub mod autodiff;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod command;
pub mod data;
pub mod device;
pub mod error;
pub mod exec;
mod files;
pub mod graph;
#[cfg(feature = "interop")]
pub mod interop;
pub mod models;
pub mod native;
pub mod nn;
pub mod ops;
pub mod plan;
pub mod shader;
mod svg;
pub mod tensor;
#[cfg(feature = "testing")]
pub mod testing;
pub mod train;
mod words;

/// The documents of `docs/`: how to use the command line and the library. Only in the documentation.
#[cfg(any(doc, doctest))]
pub mod guide {
    macro_rules! pages {
        ($($name:ident: $file:literal),* $(,)?) => { $(
            #[doc = include_str!("guide_links.md")]
            #[doc = include_str!($file)]
            pub mod $name {}
        )* };
    }

    pages! {
        command_line: "../docs/command-line.md",
        model_files: "../docs/model-files.md",
        training: "../docs/training.md",
        models: "../docs/models.md",
        other_frameworks: "../docs/other-frameworks.md",
        keras: "../docs/keras.md",
        onnx: "../docs/onnx.md",
        python: "../docs/python.md",
        budgets: "../docs/budgets.md",
        devices: "../docs/devices.md",
        data: "../docs/data.md",
        out_of_memory: "../docs/out-of-memory.md",
        advise: "../docs/advise.md",
        precision: "../docs/precision.md",
        benchmarks: "../docs/benchmarks.md",
        features: "../docs/features.md",
        rejected: "../docs/rejected.md",
        json: "../docs/json.md",
        dx12: "../docs/dx12.md",
        contributing: "../CONTRIBUTING.md",
        architecture: "../ARCHITECTURE.md",
    }
}

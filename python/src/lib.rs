//! The Python package's native half: what needs the library. The other half, in `tightfit/*.py`, has Keras's names and manners, and all
//! that needs no speed.
//!
//! Settings cross as JSON, arrays as NumPy's, errors as exceptions. A trainer lives in a thread of its own ([`worker`]), so that the thread
//! that called stays free for Ctrl-C and for callbacks, and other threads of Python run meanwhile.

mod arrays;
mod errors;
mod fit;
mod imported;
mod info;
mod logs;
mod network;
mod settings;
mod trainer;
mod worker;

/// What `tightfit/__init__.py` imports.
#[pyo3::pymodule]
mod _tightfit {
    #[pymodule_export]
    use super::errors::InfeasibleError;
    #[pymodule_export]
    use super::imported::{
        keras_arrays, keras_from_json, keras_layers, keras_weights, read_keras, read_onnx, read_tensors, read_weights,
        write_keras, write_onnx,
    };
    #[pymodule_export]
    use super::info::{advise, devices, losses, metrics, models, optimizers, plan};
    #[pymodule_export]
    use super::network::Network;
    #[pymodule_export]
    use super::trainer::{Running, Trainer};

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::logs::start();
        module.add("MOST_THREADS", tightfit::plan::Limits::MOST_THREADS)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

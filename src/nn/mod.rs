//! Models: layers one after the other, with their parameters, as calls to ops.
//!
//! ```
//! use tightfit::nn::{Conv2d, Sequential};
//!
//! let model = Sequential::new("digits", [1, 28, 28])
//!     .push(Conv2d::new(16, 5).stride(2).padding(2))
//!     .relu()
//!     .conv2d(32, 3)
//!     .relu()
//!     .max_pool2d(2)
//!     .flatten()
//!     .linear(10);
//! assert_eq!(model.output_shape()?[..], [10]);
//! println!("{}", model.summary()?);
//! # Ok::<(), tightfit::error::GraphError>(())
//! ```

mod init;
mod layers;
pub mod models;
mod sequential;
#[cfg(test)]
mod tests;

pub use init::Init;
pub use layers::{
    AvgPool2d, Conv2d, Flatten, Gelu, HardSwish, Layer, LeakyRelu, Linear, LogSoftmax, Lstm, MaxPool2d, Pair, Permute,
    Relu, Reshape, Sigmoid, Silu, Softmax, Tanh,
};
pub use sequential::{Built, Parameter, Sequential};

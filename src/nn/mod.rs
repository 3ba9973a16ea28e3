//! Models and layers: [`Sequential`] is a chain of layers, [`Model`] any function of tensors. A layer creates its parameters and
//! calls ops.
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
//!
//! A layer may also take what an earlier one made, which [`Skip`] remembers under a name:
//!
//! ```
//! use tightfit::nn::Sequential;
//!
//! let model = Sequential::new("small-unet", [3, 32, 32])
//!     .conv2d(8, 1).relu().skip("full")
//!     .max_pool2d(2)
//!     .conv2d(16, 1).relu()
//!     .upsample(2)
//!     .concat("full");
//! assert_eq!(model.output_shape()?[..], [24, 32, 32]);
//! # Ok::<(), tightfit::error::GraphError>(())
//! ```

mod advice;
mod formula;
#[cfg(test)]
mod image_tests;
mod init;
mod layers;
mod model;
mod normalization;
mod scope;
mod sequential;
mod tensor;
#[cfg(test)]
mod tests;

pub(crate) use formula::apply_formula;
pub use init::{Init, Scheme};
pub use layers::*;
pub use model::{Built, Input, Mode, Model, Parameter, Statistics};
pub(crate) use model::{LayerInfo, sample_shape, thousands};
pub use normalization::Normalization;
pub use scope::{RUN, Scope};
pub use sequential::Sequential;
pub use tensor::{Operand, Tensor, scaled_dot_product_attention};
#[cfg(feature = "interop")]
pub(crate) use tensor::{expand, together};

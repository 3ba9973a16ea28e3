//! Losses of one's own, as formulas.

use std::fmt;
use std::sync::Arc;

use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

use crate::nn::{Input, Tensor};
use crate::tensor::Shape;

/// A loss as a formula of tensors. It goes through autodiff and the planner as the layers of a model do.
///
/// ```
/// use tightfit::nn::Tensor;
/// use tightfit::train::{Config, Criterion, Loss};
///
/// /// ln cosh(prediction − target), which is smooth where the absolute error is not.
/// #[derive(Debug)]
/// struct LogCosh;
///
/// impl Criterion for LogCosh {
///     fn name(&self) -> &str {
///         "log-cosh"
///     }
///
///     fn loss<'a>(&self, prediction: Tensor<'a>, target: Tensor<'a>) -> Tensor<'a> {
///         let difference = prediction - target;
///         difference + (difference * -2.0).softplus() - 2f32.ln()
///     }
/// }
///
/// let config = Config::default().loss(Loss::custom(LogCosh));
/// # let _ = config;
/// ```
pub trait Criterion: fmt::Debug + Send + Sync {
    /// What messages and logs call it.
    fn name(&self) -> &str;

    /// What the target of one sample is, for what the model makes of one: by default numbers of the same shape.
    fn target(&self, output: &Shape) -> Input {
        Input::values(output.clone())
    }

    /// The losses of a batch, `[samples, …]`, of which training takes the mean, so that a batch can be cut into micro-batches, its
    /// samples can have weights, and its last one can be short. One number, `[1]`, is taken as the mean over a micro-batch.
    fn loss<'a>(&self, prediction: Tensor<'a>, target: Tensor<'a>) -> Tensor<'a>;
}

/// A [`Criterion`] as a [`Loss`](super::Loss).
#[derive(Clone, Debug)]
pub struct CustomLoss(pub(super) Arc<dyn Criterion>);

/// Two are the same where they are one object.
impl PartialEq for CustomLoss {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Its name: the formula is in no file.
impl Serialize for CustomLoss {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("CustomLoss", 1)?;
        fields.serialize_field("name", self.0.name())?;
        fields.end()
    }
}

use std::fmt;
use std::sync::Arc;

use super::{Module, Scope};
use crate::error::GraphError;
use crate::tensor::ValueId;

/// A layer of one's own in a [`Sequential`](crate::nn::Sequential): any [`Module`], under a name. No file holds it.
#[derive(Clone)]
pub struct CustomLayer {
    pub(super) prefix: &'static str,
    module: Arc<dyn Module + Send + Sync>,
}

impl CustomLayer {
    /// Layers of this kind are named by `prefix` and ordinal, as in `scale1`.
    pub fn new(prefix: &'static str, module: impl Module + Send + Sync + 'static) -> Self {
        CustomLayer { prefix, module: Arc::new(module) }
    }
}

impl fmt::Debug for CustomLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomLayer").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// Two are the same where they are one object.
impl PartialEq for CustomLayer {
    fn eq(&self, other: &Self) -> bool {
        self.prefix == other.prefix && Arc::ptr_eq(&self.module, &other.module)
    }
}

impl Module for CustomLayer {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        self.module.build(scope, input)
    }
}

//! What layers look like in files.

use serde::{Deserialize, Serialize};

/// A layer without settings: nothing but its kind.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoSettings {}

/// A struct without fields is written as [`NoSettings`].
macro_rules! no_settings {
    ($name:ident) => {
        impl From<NoSettings> for $name {
            fn from(_: NoSettings) -> Self {
                $name
            }
        }
        impl From<$name> for NoSettings {
            fn from(_: $name) -> Self {
                NoSettings {}
            }
        }
    };
}

pub(super) use no_settings;

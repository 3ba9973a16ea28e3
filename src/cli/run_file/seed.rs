//! Seeds, of which TOML's numbers do not hold all: those beyond 63 bits are text.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserializer, Serialize as _, Serializer};

pub(in super::super) fn serialize<S: Serializer>(seed: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    match seed.map(i64::try_from) {
        Some(Err(_)) => seed.map(|seed| seed.to_string()).serialize(serializer),
        _ => seed.serialize(serializer),
    }
}

pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    struct NumberOrText;
    impl Visitor<'_> for NumberOrText {
        type Value = u64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a whole number, 0 or above")
        }

        fn visit_i64<E: Error>(self, seed: i64) -> Result<u64, E> {
            self.visit_str(&seed.to_string())
        }

        fn visit_u64<E: Error>(self, seed: u64) -> Result<u64, E> {
            Ok(seed)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
            super::super::values::whole(text)
                .map_err(|reason| E::custom(format!("`{}`: {reason}", text.escape_debug())))
        }
    }
    deserializer.deserialize_any(NumberOrText).map(Some)
}

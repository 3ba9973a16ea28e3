//! Numbers in JSON with all their bits: what is not finite is written as a string.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number; in JSON `"NaN"`, `"inf"` and `"-inf"` where it is not finite.
#[derive(Clone, Copy, Debug)]
pub(super) struct Number(pub(super) f64);

/// One NaN for all.
pub(super) fn canonical(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value }
}

pub(super) fn same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits()
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_finite() { serializer.serialize_f64(self.0) } else { serializer.collect_str(&self.0) }
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfNumber;
        impl Visitor<'_> for OfNumber {
            type Value = Number;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, \"NaN\", \"inf\" or \"-inf\"")
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<Number, E> {
                Ok(Number(value))
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<Number, E> {
                Ok(Number(value as f64))
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<Number, E> {
                Ok(Number(value as f64))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Number, E> {
                let values = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
                let value = values.into_iter().find(|value| value.to_string() == text);
                value.map(Number).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_any(OfNumber)
    }
}

/// Maps of numbers.
pub(super) mod map {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::Number;

    pub(crate) fn serialize<S: Serializer>(map: &BTreeMap<String, f64>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(map.iter().map(|(name, &value)| (name, Number(value))))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, f64>, D::Error> {
        let map = BTreeMap::<String, Number>::deserialize(deserializer)?;
        Ok(map.into_iter().map(|(name, Number(value))| (name, value)).collect())
    }
}

//! Sizes as people write them, and budgets.

use std::fmt;
use std::str::FromStr;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tightfit::train::Config;

const ADVICE: &str = "write a size such as 8G, 64MiB or 1.5GB, a number of bytes, or auto for what the device has free";

/// The budget that is taken of what the device has free.
const AUTO: &str = "auto";

/// Prefixes and their powers of the base.
const PREFIXES: [&str; 5] = ["", "k", "m", "g", "t"];

/// Bytes of a unit in lower case. With a B they are those of the standards, kB of 1000 bytes and KiB of 1024; a letter alone
/// is of 1024, as for `docker` and `ulimit`. Nobody counts memory in bits.
fn scale(unit: &str) -> Option<u64> {
    let unit = match unit {
        "byte" | "bytes" => "b",
        unit => unit,
    };
    let (prefix, base) = match (unit.strip_suffix("ib"), unit.strip_suffix('b')) {
        (Some(prefix), _) => (prefix, 1024),
        (None, Some(prefix)) => (prefix, 1000),
        (None, None) => (unit.strip_suffix('i').unwrap_or(unit), 1024_u64),
    };
    let power = PREFIXES.iter().position(|known| *known == prefix)?;
    // An i belongs to a prefix.
    (power > 0 || !unit.starts_with('i')).then(|| base.pow(power as u32))
}

/// Reads `8G`, `64MiB`, `1.5 GB` or plain bytes; a fraction of a byte is dropped. Digits may be grouped by `_`.
///
/// Exact: no number passes through a float.
fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err(format!("it is empty: {ADVICE}"));
    }
    if text.starts_with('-') {
        return Err(format!("it must be above 0: {ADVICE}"));
    }
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    if unit.starts_with(',') {
        return Err(format!("a comma may stand for a point or for nothing: {ADVICE}"));
    }
    let number = number.replace('_', "");
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || number.ends_with('.') {
        return Err(format!("this is not a size: {ADVICE}"));
    }
    let unit = unit.trim_start().to_ascii_lowercase();
    let Some(scale) = scale(&unit) else {
        return Err(format!("`{}` is not a unit: {ADVICE}", unit.escape_default()));
    };
    let too_large = || format!("it is larger than any memory: {ADVICE}");
    let whole = if whole.is_empty() { "0" } else { whole };
    let whole = whole.parse::<u64>().map_err(|_| too_large())?.checked_mul(scale).ok_or_else(too_large)?;
    // Digits beyond the 18th are far below a byte in every unit.
    let fraction = &fraction[..fraction.len().min(18)];
    let part = fraction.parse::<u128>().unwrap_or(0) * u128::from(scale) / 10u128.pow(fraction.len() as u32);
    let bytes = whole.checked_add(part as u64).ok_or_else(too_large)?;
    match bytes {
        0 => Err(format!("it must be above 0: {ADVICE}")),
        _ if scale == 1 && !fraction.is_empty() => Err(format!("this is not a whole number of bytes: {ADVICE}")),
        bytes => Ok(bytes),
    }
}

/// A budget: in a file `auto`, a number of bytes, or text as above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Budget {
    Auto,
    Bytes(u64),
}

impl Budget {
    /// What settings have of it.
    pub(crate) fn of(config: &Config) -> Option<Self> {
        config.budget_bytes.map(Budget::Bytes).or(config.auto_budget.then_some(Budget::Auto))
    }

    /// Puts it into settings.
    pub(crate) fn put(budget: Option<Self>, config: &mut Config) {
        config.auto_budget = budget == Some(Budget::Auto);
        config.budget_bytes = match budget {
            Some(Budget::Bytes(bytes)) => Some(bytes),
            Some(Budget::Auto) | None => None,
        };
    }
}

impl FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim().eq_ignore_ascii_case(AUTO) { Ok(Budget::Auto) } else { parse(text).map(Budget::Bytes) }
    }
}

impl Serialize for Budget {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Budget::Bytes(bytes) = *self else { return serializer.serialize_str(AUTO) };
        // TOML has no larger numbers.
        match i64::try_from(bytes) {
            Ok(bytes) => serializer.serialize_i64(bytes),
            Err(_) => serializer.collect_str(&bytes),
        }
    }
}

impl<'de> Deserialize<'de> for Budget {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberOrText;
        impl Visitor<'_> for NumberOrText {
            type Value = Budget;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as \"64MiB\", a number of bytes, or \"auto\"")
            }

            fn visit_i64<E: serde::de::Error>(self, bytes: i64) -> Result<Budget, E> {
                self.visit_str(&bytes.to_string())
            }

            fn visit_u64<E: serde::de::Error>(self, bytes: u64) -> Result<Budget, E> {
                self.visit_str(&bytes.to_string())
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Budget, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(NumberOrText)
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text).map(Size).map_err(|error| {
            error.replace(", a number of bytes, or auto for what the device has free", ", or a number of bytes")
        })
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Budget::Bytes(self.0).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Budget::deserialize(deserializer)? {
            Budget::Bytes(bytes) => Ok(Size(bytes)),
            Budget::Auto => Err(serde::de::Error::custom("write a size such as 8G, or a number of bytes")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_exactly() {
        for (text, bytes) in [
            ("1", 1),
            ("123456789", 123_456_789),
            ("64MiB", 67_108_864),
            ("64 mib", 67_108_864),
            ("1.5GB", 1_500_000_000),
            ("100KiB", 102_400),
            ("0.5KiB", 512),
            ("2GiB", 2_147_483_648),
            ("12b", 12),
            ("1TB", 1_000_000_000_000),
            ("0.3333333333333333333333333333KB", 333),
            ("18446744073709551615", u64::MAX),
            (" 7 ", 7),
            ("8G", 8 << 30),
            ("8g", 8 << 30),
            ("8 G", 8 << 30),
            ("8Gi", 8 << 30),
            ("8 GiB", 8 << 30),
            ("8GB", 8_000_000_000),
            ("8Gb", 8_000_000_000),
            ("512M", 512 << 20),
            ("512k", 512 << 10),
            ("1.5g", 3 << 29),
            (".5GB", 500_000_000),
            ("2T", 2 << 40),
            ("27_000_000", 27_000_000),
            ("64 bytes", 64),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn a_budget_is_a_size_or_auto() {
        for text in ["auto", " AUTO ", "Auto"] {
            assert_eq!(text.parse(), Ok(Budget::Auto), "{text}");
        }
        assert_eq!("64MiB".parse(), Ok(Budget::Bytes(64 << 20)));
        let message = "automatic".parse::<Budget>().expect_err("no size");
        assert!(message.contains("not a size") && message.ends_with("auto for what the device has free"), "{message}");
        for budget in [None, Some(Budget::Auto), Some(Budget::Bytes(7))] {
            let mut config = Config::default().budget_bytes(9).auto_budget(true);
            Budget::put(budget, &mut config);
            assert_eq!(Budget::of(&config), budget);
        }
    }

    #[test]
    fn nonsense_is_refused_with_advice() {
        for (text, word) in [
            ("", "empty"),
            ("  ", "empty"),
            ("0", "above 0"),
            ("0MiB", "above 0"),
            ("0.1", "above 0"),
            ("-5", "above 0"),
            ("-5MiB", "above 0"),
            ("1e400", "not a unit"),
            ("NaN", "not a size"),
            ("inf", "not a size"),
            ("1.2.3", "not a size"),
            ("1.5", "whole number"),
            ("1.", "not a size"),
            (".", "not a size"),
            ("G", "not a size"),
            ("_", "not a size"),
            ("12 parsecs", "not a unit"),
            ("5i", "not a unit"),
            ("5iB", "not a unit"),
            ("5 M B", "not a unit"),
            ("8GBit", "not a unit"),
            ("50%", "not a unit"),
            ("1,5GB", "comma"),
            ("27,000,000", "comma"),
            ("18446744073709551616", "larger than any memory"),
            ("20000000000GiB", "larger than any memory"),
            ("18446744073709551.616KB", "larger than any memory"),
            ("١MiB", "not a size"),
        ] {
            let message = parse(text).expect_err(text);
            assert!(message.contains(word) && message.contains("64MiB"), "{text}: {message}");
        }
    }
}

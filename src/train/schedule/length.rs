//! Times of a training.

use std::fmt;
use std::str::FromStr;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A part of a training. Files write a number of steps, or text such as `"500 steps"`, `"3 epochs"` or `"0.5 epochs"`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    /// So many steps.
    Steps(u64),
    /// So many times the whole data.
    Epochs(f64),
}

impl Length {
    /// It in steps, to the nearest whole one. What is longer than nothing has at least one.
    pub fn steps(self, steps_per_epoch: u64) -> u64 {
        match self {
            Length::Steps(steps) => steps,
            // What is below 0 or no number becomes 0.
            Length::Epochs(epochs) => {
                let steps = (epochs * steps_per_epoch as f64).round() as u64;
                if epochs > 0.0 { steps.max(1) } else { 0 }
            }
        }
    }

    /// Whether it is a number of steps or a finite number of epochs that is not negative.
    pub(super) fn is_possible(self) -> bool {
        match self {
            // Files hold no larger numbers.
            Length::Steps(steps) => i64::try_from(steps).is_ok(),
            Length::Epochs(epochs) => (0.0..1e9).contains(&epochs),
        }
    }

    /// Whether no time passes.
    pub(super) fn is_zero(self) -> bool {
        match self {
            Length::Steps(steps) => steps == 0,
            Length::Epochs(epochs) => epochs == 0.0,
        }
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Length::Steps(steps) => write!(f, "{steps} step{}", if *steps == 1 { "" } else { "s" }),
            Length::Epochs(epochs) => write!(f, "{epochs} epoch{}", if *epochs == 1.0 { "" } else { "s" }),
        }
    }
}

impl FromStr for Length {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            let text = text.escape_debug();
            format!("`{text}` is no length: write a number of steps, or text such as \"500 steps\" or \"3 epochs\"")
        };
        let (number, unit) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), "steps"));
        let length = match unit.trim() {
            "step" | "steps" => Length::Steps(number.parse().map_err(|_| wrong())?),
            "epoch" | "epochs" => Length::Epochs(number.parse().map_err(|_| wrong())?),
            _ => return Err(wrong()),
        };
        if length.is_possible() { Ok(length) } else { Err(wrong()) }
    }
}

impl Serialize for Length {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Length::Steps(steps) => serializer.serialize_u64(*steps),
            Length::Epochs(_) => serializer.collect_str(self),
        }
    }
}

/// Reads a length; other forms are left to `$table`.
macro_rules! length_visitor {
    ($name:ident, $value:ty, $expected:literal, |$length:ident| $made:expr $(, $table:ident)?) => {
        struct $name;
        impl<'de> Visitor<'de> for $name {
            type Value = $value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($expected)
            }

            fn visit_u64<E: Error>(self, steps: u64) -> Result<$value, E> {
                let $length = Length::Steps(steps);
                Ok($made)
            }

            fn visit_i64<E: Error>(self, steps: i64) -> Result<$value, E> {
                let steps = u64::try_from(steps);
                self.visit_u64(steps.map_err(|_| E::custom("a length cannot be negative"))?)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<$value, E> {
                let $length = text.parse().map_err(E::custom)?;
                Ok($made)
            }

            $(fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<$value, A::Error> {
                $table::deserialize(MapAccessDeserializer::new(map)).map(Into::into)
            })?
        }
    };
}

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        length_visitor!(
            NumberOrText,
            Length,
            "a number of steps, or text such as \"500 steps\" or \"3 epochs\"",
            |length| length
        );
        deserializer.deserialize_any(NumberOrText)
    }
}

/// What comes before a schedule: factors from `start_factor` to 1 on a straight line, `start + (1 − start) · t / T`, as
/// PyTorch's `LinearLR` in a `SequentialLR`. Files write its length, `warmup = "2 epochs"`, or a table,
/// `warmup = { length = 500, start_factor = 0.1 }`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Warmup {
    /// How long it is.
    pub length: Length,
    /// Factor of the first step; 0.01 where none is given, as in torchvision's recipes: at 0 the first step would change
    /// nothing.
    pub start_factor: f64,
}

impl Warmup {
    /// One of this length with the usual start.
    pub fn new(length: Length) -> Self {
        Warmup { length, start_factor: start_factor() }
    }
}

fn start_factor() -> f64 {
    0.01
}

/// A warm-up as a table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    length: Length,
    #[serde(default = "start_factor")]
    start_factor: f64,
}

impl From<Table> for Warmup {
    fn from(Table { length, start_factor }: Table) -> Self {
        Warmup { length, start_factor }
    }
}

impl<'de> Deserialize<'de> for Warmup {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        length_visitor!(
            LengthOrTable,
            Warmup,
            "a length such as 500 or \"2 epochs\", or a table with `length` and `start_factor`",
            |length| Warmup::new(length),
            Table
        );
        deserializer.deserialize_any(LengthOrTable)
    }
}

//! Parts of TOML files, each read by itself, so that errors name the line and the key.

use std::fmt;
use std::ops::Range;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{DeserializeOwned, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use tightfit::error::TrainError;
use tightfit::tensor::format_number;
use toml::{Spanned, Table};

use super::model_words::{in_words, missing_as};

/// Tables of one name. By itself toml would not say how they are written.
pub(crate) struct Parts(pub(crate) Vec<Spanned<Table>>);

impl<'de> Deserialize<'de> for Parts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Tables;

        impl<'de> Visitor<'de> for Tables {
            type Value = Parts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("tables, each below its name in double brackets, such as [[layers]]")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, tables: A) -> Result<Parts, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(tables)).map(Parts)
            }
        }

        deserializer.deserialize_seq(Tables)
    }
}

/// The line in which a byte stands, from 1.
pub(crate) fn line_of(text: &str, byte: usize) -> usize {
    text[..byte].matches('\n').count() + 1
}

/// What is wrong with the file as a whole.
pub(crate) fn whole(text: &str, error: &toml::de::Error) -> String {
    if let Some(span) = error.span().filter(|_| error.message() == "duplicate key") {
        let line = line_of(text, span.start);
        let found = text.lines().nth(line - 1).unwrap_or_default().trim();
        return match found.strip_prefix('[').and_then(|found| found.strip_suffix(']')) {
            Some(name @ ("layers" | "groups")) => {
                format!("line {line}: [{name}] stands here again: write each of them in double brackets, [[{name}]]")
            }
            Some(name) => format!("line {line}: [{name}] stands here again: put all of it in one place"),
            None => format!("line {line}: `{}` is set again: leave one out", text[span].trim()),
        };
    }
    if error.message().starts_with("missing field") {
        let keys =
            text.lines().take_while(|line| !line.trim_start().starts_with('[')).filter_map(|line| line.split_once('='));
        return with_other_name(&in_words(error.message(), None), keys.map(|(key, _)| key.trim()));
    }
    located(text, error.span(), None, error)
}

/// That a key is missing, and which of the others may be meant by it.
fn with_other_name<'a>(message: &str, keys: impl Iterator<Item = &'a str>) -> String {
    let missing = message.split('`').nth(1).filter(|_| message.starts_with("missing key"));
    match missing.and_then(|missing| missing_as(missing, keys)) {
        Some(key) => format!("{message}: `{key}` is called so here"),
        None => message.to_owned(),
    }
}

/// A part whose values make sense.
pub(crate) fn checked<T: DeserializeOwned>(
    text: &str,
    part: Spanned<toml::Value>,
    what: &str,
    check: impl Fn(&T) -> Result<(), TrainError>,
) -> Result<T, String> {
    let line = line_of(text, part.span().start);
    let part = one(text, part, what)?;
    check(&part).map_err(|error| format!("line {line}: {error}"))?;
    Ok(part)
}

/// One part of the file, by itself: in a list, toml would point at the first whichever is wrong. `what` is what it is called
/// where it is no table.
pub(crate) fn one<T: DeserializeOwned>(
    text: &str,
    part: Spanned<impl Into<toml::Value>>,
    what: &str,
) -> Result<T, String> {
    let span = part.span();
    let part: toml::Value = part.into_inner().into();
    let wrong = |error: &toml::de::Error, key: Option<&str>| {
        let message = located(text, Some(span.clone()), Some(key.unwrap_or(what)), error);
        let (line, message) = message.split_once(": ").unwrap_or(("", &message));
        let keys = part.as_table().into_iter().flat_map(Table::keys).map(String::as_str);
        format!("{line}: {}", with_other_name(message, keys))
    };
    let made = T::deserialize(part.clone()).map_err(|error| {
        let key = part.as_table().and_then(|table| wrong_key::<T>(table, error.message()));
        wrong(&error, key.as_deref())
    })?;
    // The optimizer has its numbers in full and checks them itself.
    match out_of_range(&part).filter(|_| what != "optimizer") {
        None => Ok(made),
        Some((key, number)) => {
            let holds = "single precision holds 0 and numbers from 1.2e-38 to 3.4e38";
            let error = format!("{} is not possible: {holds}", format_number(number));
            Err(wrong(&serde::de::Error::custom(error), key))
        }
    }
}

/// The first number that single precision makes 0 or infinity of, with the key under which it stands.
fn out_of_range(part: &toml::Value) -> Option<(Option<&str>, f64)> {
    match part {
        toml::Value::Float(number) => {
            let holds = (f64::from(f32::MIN_POSITIVE)..=f64::from(f32::MAX)).contains(&number.abs());
            (*number != 0.0 && number.is_finite() && !holds).then_some((None, *number))
        }
        toml::Value::Array(parts) => parts.iter().find_map(out_of_range),
        toml::Value::Table(table) => {
            table.iter().find_map(|(key, part)| out_of_range(part).map(|(_, number)| (Some(key.as_str()), number)))
        }
        _ => None,
    }
}

/// The key that is to blame for an error: that without which it is another, or none. Serde does not say it of a table whose
/// kind it looks up first.
fn wrong_key<T: DeserializeOwned>(table: &Table, message: &str) -> Option<String> {
    let is_to_blame = |key: &&String| {
        let mut rest = table.clone();
        rest.remove(*key);
        T::deserialize(toml::Value::Table(rest)).err().is_none_or(|error| error.message() != message)
    };
    if message.starts_with("missing field") {
        return None;
    }
    // Without its kind, a table is always wrong in another way.
    let (kind, others): (Vec<_>, Vec<_>) = table.keys().partition(|key| *key == "kind");
    others.into_iter().chain(kind).find(is_to_blame).cloned()
}

/// toml's message in one line, and the line of the file where `key` stands in `span`, or where that begins.
fn located(text: &str, span: Option<Range<usize>>, key: Option<&str>, error: &toml::de::Error) -> String {
    let message = in_words(&error.message().split_whitespace().collect::<Vec<_>>().join(" "), key);
    let Some(span) = span else { return message };
    let first = line_of(text, span.start);
    // What is below the heading of a table belongs to it up to the next.
    let below =
        text[span.start..].lines().enumerate().take_while(|(i, line)| *i == 0 || !line.trim_start().starts_with('['));
    let is_table = text[span.start..].starts_with('[');
    let is_key = |line: &str| {
        let named = |key| line.trim_start().strip_prefix(key)?.trim_start().strip_prefix('=');
        is_table && key.and_then(named).is_some()
    };
    let line = first + below.filter(|(_, line)| is_key(line)).map(|(i, _)| i).next().unwrap_or(0);
    format!("line {line}: {message}")
}

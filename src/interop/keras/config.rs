//! Settings as Keras writes them, with errors that say which layer they are of.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::error::{DataError, ImportError};
use crate::nn::Scheme;

/// The largest number that a setting may be.
const MAX_SETTING: u64 = 1 << 32;

/// Settings of one object: a layer, a loss or the like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Config<'j> {
    pub(super) path: &'j Path,
    /// What it is in errors: its name and class.
    pub(super) name: &'j str,
    pub(super) class: &'j str,
    pub(super) fields: &'j Map<String, Value>,
}

/// A file that is not what Keras writes.
pub(super) fn corrupt(path: &Path, reason: impl Into<String>) -> ImportError {
    let reason = reason.into().replace(char::is_control, " ");
    ImportError::Data(DataError::Corrupt { path: path.to_owned(), reason })
}

/// A value as it is shown in an error.
pub(super) fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

impl<'j> Config<'j> {
    /// There is something here that cannot be had.
    pub(super) fn unsupported(&self, reason: impl Into<String>) -> ImportError {
        let clean = |text: &str| -> String { text.chars().take(100).collect::<String>().escape_debug().collect() };
        let place = match self.name {
            "" => clean(self.class),
            name => format!("layer `{}` ({})", clean(name), clean(self.class)),
        };
        let reason = reason.into().replace(char::is_control, " ");
        ImportError::Unsupported { path: PathBuf::from(self.path), place, reason }
    }

    /// A setting has a value that it cannot have.
    fn wrong(&self, key: &str, expected: &str) -> ImportError {
        let found = self.fields.get(key).map_or_else(|| "nothing".to_owned(), shown);
        self.unsupported(format!("`{key}` must be {expected}, found {found}: save the model anew with Keras"))
    }

    /// The value of a setting that is there and not null.
    pub(super) fn get(&self, key: &str) -> Option<&'j Value> {
        self.fields.get(key).filter(|value| !value.is_null())
    }

    pub(super) fn bool(&self, key: &str, default: bool) -> Result<bool, ImportError> {
        match self.get(key) {
            None => Ok(default),
            Some(value) => value.as_bool().ok_or_else(|| self.wrong(key, "true or false")),
        }
    }

    pub(super) fn number(&self, key: &str, default: f64) -> Result<f64, ImportError> {
        match self.get(key) {
            None => Ok(default),
            Some(value) => value
                .as_f64()
                .filter(|number| (*number as f32).is_finite())
                .ok_or_else(|| self.wrong(key, "a number that single precision holds")),
        }
    }

    pub(super) fn text(&self, key: &str, default: &'static str) -> Result<&'j str, ImportError> {
        match self.get(key) {
            None => Ok(default),
            Some(value) => value.as_str().ok_or_else(|| self.wrong(key, "a text")),
        }
    }

    /// A whole number that must be there.
    pub(super) fn count(&self, key: &str) -> Result<usize, ImportError> {
        self.get(key).and_then(as_count).ok_or_else(|| self.wrong(key, "a whole number"))
    }

    pub(super) fn count_or(&self, key: &str, default: usize) -> Result<usize, ImportError> {
        if self.get(key).is_none() { Ok(default) } else { self.count(key) }
    }

    /// A whole number or one for each axis.
    pub(super) fn counts(&self, key: &str, axes: usize) -> Result<Vec<usize>, ImportError> {
        let value = self.get(key);
        if let Some(count) = value.and_then(as_count) {
            return Ok(vec![count; axes]);
        }
        let list = value.and_then(Value::as_array).filter(|list| list.len() == axes);
        let counts: Option<Vec<_>> = list.and_then(|list| list.iter().map(as_count).collect());
        counts.ok_or_else(|| self.wrong(key, &format!("a whole number or {axes} of them")))
    }

    pub(super) fn counts_or(&self, key: &str, axes: usize, default: usize) -> Result<Vec<usize>, ImportError> {
        if self.get(key).is_none() { Ok(vec![default; axes]) } else { self.counts(key, axes) }
    }

    /// Numbers before and after each axis: one for all, one for each axis, or pairs.
    pub(super) fn sides(&self, key: &str, axes: usize) -> Result<Vec<(usize, usize)>, ImportError> {
        let wrong = || self.wrong(key, "a whole number, one for each axis, or a pair for each");
        let value = self.get(key).ok_or_else(wrong)?;
        if let Some(count) = as_count(value) {
            return Ok(vec![(count, count); axes]);
        }
        let list = value.as_array().ok_or_else(wrong)?;
        let pair = |value: &Value| -> Option<(usize, usize)> {
            if let Some(count) = as_count(value) {
                return Some((count, count));
            }
            let [a, b] = &value.as_array()?[..] else { return None };
            Some((as_count(a)?, as_count(b)?))
        };
        // Of one axis, a pair stands by itself.
        if let (1, [a, b]) = (axes, &list[..]) {
            return Ok(vec![as_count(a).zip(as_count(b)).ok_or_else(wrong)?]);
        }
        let sides: Option<Vec<_>> = list.iter().map(pair).collect();
        sides.filter(|sides| sides.len() == axes).ok_or_else(wrong)
    }

    /// An axis or several, which Keras counts from the batch on.
    pub(super) fn axes(&self, key: &str, default: isize) -> Result<Vec<isize>, ImportError> {
        let wrong = || self.wrong(key, "an axis or a list of axes");
        let axis = |value: &Value| value.as_i64().filter(|axis| (-16..16).contains(axis)).map(|axis| axis as isize);
        match self.get(key) {
            None => Ok(vec![default]),
            Some(Value::Array(list)) => list.iter().map(axis).collect::<Option<_>>().ok_or_else(wrong),
            Some(value) => axis(value).map(|axis| vec![axis]).ok_or_else(wrong),
        }
    }

    /// One axis.
    pub(super) fn axis(&self, key: &str, default: isize) -> Result<isize, ImportError> {
        match self.axes(key, default)?[..] {
            [axis] => Ok(axis),
            _ => Err(self.wrong(key, "one axis")),
        }
    }

    /// Numbers, one or a list of them however it is nested.
    pub(super) fn numbers(&self, key: &str) -> Result<Option<Vec<f32>>, ImportError> {
        fn collect(value: &Value, numbers: &mut Vec<f32>) -> Option<()> {
            match value {
                Value::Array(list) => list.iter().try_for_each(|value| collect(value, numbers)),
                // NumPy's arrays, as Keras writes them.
                Value::Object(object) => collect(object.get("config")?.get("value")?, numbers),
                value => {
                    let number = value.as_f64()? as f32;
                    numbers.push(number);
                    number.is_finite().then_some(())
                }
            }
        }
        let Some(value) = self.get(key) else { return Ok(None) };
        let mut numbers = Vec::new();
        collect(value, &mut numbers).ok_or_else(|| self.wrong(key, "a number or a list of numbers"))?;
        Ok(Some(numbers))
    }

    /// Whether channels are the last axis.
    pub(super) fn channels_last(&self) -> Result<bool, ImportError> {
        match self.text("data_format", "channels_last")? {
            "channels_last" => Ok(true),
            "channels_first" => Ok(false),
            _ => Err(self.wrong("data_format", "\"channels_last\" or \"channels_first\"")),
        }
    }

    /// Refuses a setting that is on.
    pub(super) fn refuse(&self, key: &str, advice: &str) -> Result<(), ImportError> {
        let is_off = match self.get(key) {
            None | Some(Value::Bool(false)) => true,
            Some(Value::Number(number)) => number.as_f64() == Some(0.0),
            Some(_) => false,
        };
        if is_off {
            return Ok(());
        }
        let found = self.fields.get(key).map_or_else(String::new, shown);
        Err(self.unsupported(format!("`{key}` = {found} is not supported: {advice}")))
    }

    /// How weights start, where that is known here.
    pub(super) fn scheme(&self, key: &str) -> Scheme {
        let value = self.get(key);
        let class = value.and_then(|value| value.get("class_name").unwrap_or(value).as_str());
        let snake = class.map(snake_case).unwrap_or_default();
        match &*snake {
            "glorot_normal" => Scheme::XavierNormal,
            "he_uniform" => Scheme::KaimingUniform,
            "he_normal" => Scheme::KaimingNormal,
            "orthogonal" | "orthogonal_initializer" => Scheme::Orthogonal,
            "lecun_uniform" | "lecun_normal" => Scheme::FanIn,
            _ => Scheme::XavierUniform,
        }
    }
}

fn as_count(value: &Value) -> Option<usize> {
    value.as_u64().filter(|count| *count <= MAX_SETTING).and_then(|count| usize::try_from(count).ok())
}

/// A class as Keras names groups of weights by it: `conv2d_transpose` of `Conv2DTranspose`.
pub(super) fn snake_case(class: &str) -> String {
    let letters: Vec<char> = class.chars().filter(|c| c.is_alphanumeric() || *c == '_').collect();
    // Before a capital with small letters behind it, that has something before it.
    let mut apart = Vec::with_capacity(letters.len() + 4);
    let mut at = 0;
    while at < letters.len() {
        apart.push(letters[at]);
        let begins = |i: usize| {
            letters.get(i).is_some_and(char::is_ascii_uppercase)
                && letters.get(i + 1).is_some_and(char::is_ascii_lowercase)
        };
        at += 1;
        if begins(at) {
            apart.push('_');
            apart.push(letters[at]);
            at += 1;
            while letters.get(at).is_some_and(char::is_ascii_lowercase) {
                apart.push(letters[at]);
                at += 1;
            }
        }
    }
    // Between a small letter and a capital.
    let mut name = String::with_capacity(apart.len() + 4);
    for (i, &letter) in apart.iter().enumerate() {
        if i > 0 && apart[i - 1].is_ascii_lowercase() && letter.is_ascii_uppercase() {
            name.push('_');
        }
        name.extend(letter.to_lowercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_named_as_keras_names_them() {
        for (class, name) in [
            ("Dense", "dense"),
            ("Conv2DTranspose", "conv2d_transpose"),
            ("GlobalAveragePooling1D", "global_average_pooling1d"),
            ("LSTM", "lstm"),
            ("GRU", "gru"),
            ("SimpleRNN", "simple_rnn"),
            ("ReLU", "re_lu"),
            ("PReLU", "p_re_lu"),
            ("ELU", "elu"),
            ("LeakyReLU", "leaky_re_lu"),
            ("BatchNormalization", "batch_normalization"),
            ("RMSNormalization", "rms_normalization"),
            ("DepthwiseConv2D", "depthwise_conv2d"),
            ("MultiHeadAttention", "multi_head_attention"),
            ("TimeDistributed", "time_distributed"),
            ("ZeroPadding2D", "zero_padding2d"),
            ("InputLayer", "input_layer"),
        ] {
            assert_eq!(snake_case(class), name);
        }
    }
}

//! Models by name or from a TOML file.

use std::fs;
use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use tightfit::error::DataError;
use tightfit::models;
use tightfit::nn::{Input, Layer, Model, Sequential};
use tightfit::train::{Loss, Optimizer};
use toml::{Spanned, Table};

use super::failure::Failure;

/// A model and the settings that its file gives.
#[derive(Clone, Debug)]
pub(crate) struct ModelFile {
    pub(crate) model: Model,
    pub(crate) loss: Option<Loss>,
    pub(crate) optimizer: Option<Optimizer>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    name: String,
    input: Vec<usize>,
    /// Whether the input is indices, such as words of a vocabulary.
    #[serde(default)]
    tokens: bool,
    loss: Option<Loss>,
    optimizer: Option<Optimizer>,
    layers: Vec<Spanned<Table>>,
}

/// A built-in model by its name, any other from a file.
pub(crate) fn open(name: &str) -> Result<ModelFile, Failure> {
    if let Some(model) = models::builtin(name) {
        return Ok(ModelFile { model, loss: None, optimizer: None });
    }
    let path = Path::new(name);
    let is_toml = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"));
    if !is_toml && !path.is_file() {
        return Err(Failure::bad_input(format!(
            "no model `{}`: give {} or a TOML file",
            name.escape_debug(),
            models::NAMES.join(", ")
        )));
    }
    if !path.exists() {
        let hint = format!("give a TOML file that is there, or {}", models::NAMES.join(", "));
        return Err(DataError::Missing { path: path.to_owned(), hint }.into());
    }
    let text = fs::read_to_string(path).map_err(|source| DataError::Io { path: path.to_owned(), source })?;
    Ok(parse(&text).map_err(|reason| DataError::Corrupt { path: path.to_owned(), reason })?)
}

/// Reads the text of a model file; an error names the line.
fn parse(text: &str) -> Result<ModelFile, String> {
    let contents: Contents = toml::from_str(text).map_err(|error| located(text, error.span(), &error))?;
    let Contents { name, input, tokens, loss, optimizer, layers } = contents;
    let input = if tokens { Input::tokens(input) } else { Input::values(input) };
    let mut model = Sequential::new(name, input);
    for layer in layers {
        let span = layer.span();
        // One by one: in a list, toml would point at the first layer whichever is wrong.
        let layer = Layer::deserialize(layer.into_inner()).map_err(|error| located(text, Some(span), &error))?;
        model = model.push(layer);
    }
    Ok(ModelFile { model: model.into(), loss, optimizer })
}

/// toml's message in one line, and the line of the file where `span` begins.
fn located(text: &str, span: Option<Range<usize>>, error: &toml::de::Error) -> String {
    let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
    match span {
        Some(span) => format!("line {}: {message}", text[..span.start].matches('\n').count() + 1),
        None => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CNN: &str = r#"
name = "my-cnn"
input = [1, 28, 28]
loss = "cross-entropy"

[optimizer]
kind = "sgd"
lr = 0.05
momentum = 0.9

[[layers]]
kind = "conv2d"
out_channels = 8
kernel = [3, 5]
padding = 1

[[layers]]
kind = "relu"

[[layers]]
kind = "max_pool2d"
kernel = 2

[[layers]]
kind = "flatten"

[[layers]]
kind = "linear"
out_features = 10
"#;

    #[test]
    fn a_file_gives_model_loss_and_optimizer() {
        let file = parse(CNN).expect("parses");
        assert_eq!(file.model.name(), "my-cnn");
        assert_eq!(file.model.output_shape().expect("builds")[..], [10]);
        assert_eq!(file.loss, Some(Loss::CrossEntropy));
        let expected = Optimizer::Sgd { lr: 0.05, momentum: 0.9, nesterov: false, weight_decay: 0.0 };
        assert_eq!(file.optimizer, Some(expected));
    }

    #[test]
    fn the_example_of_the_readme_is_right() {
        let readme = include_str!("../../README.md");
        let start = readme.find("```toml\n").expect("an example") + "```toml\n".len();
        let length = readme[start..].find("```").expect("its end");
        let file = parse(&readme[start..start + length]).expect("parses");
        assert_eq!(file.model.output_shape().expect("builds")[..], [10]);
    }

    #[test]
    fn errors_name_the_line() {
        for (from, to, line, word) in [
            ("padding = 1", "paddin = 1", 11, "unknown field `paddin`"),
            ("kind = \"relu\"", "kind = \"relux\"", 17, "unknown variant `relux`"),
            ("kind = \"relu\"", "kind = \"relu\"\nslope = 1", 17, "unknown field `slope`"),
            ("[1, 28, 28]", "[1, -28, 28]", 3, "-28"),
            ("[1, 28, 28]", "28", 3, "sequence"),
            ("cross-entropy", "crossentropy", 4, "unknown variant `crossentropy`"),
            ("momentum = 0.9", "momentun = 0.9", 6, "unknown field `momentun`"),
            ("name = \"my-cnn\"", "name = \"my-cnn\"\nepochs = 3", 3, "unknown field `epochs`"),
            ("kernel = [3, 5]", "kernel = [3, 5, 7]", 11, "a whole number or a pair"),
        ] {
            let text = CNN.replace(from, to);
            assert_ne!(text, CNN, "{from}");
            let message = parse(&text).expect_err(to);
            assert!(message.contains(word), "{to}: {message}");
            assert!(message.starts_with(&format!("line {line}: ")), "{to}: {message}");
            assert!(!message.contains('\n'), "{message}");
        }
        assert!(parse("").expect_err("empty").contains("missing field"));
    }
}

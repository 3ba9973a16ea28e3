//! Models by name or from a TOML file.

use std::ffi::OsStr;
use std::path::Path;

use serde::Deserialize;
use tightfit::command::files;
use tightfit::command::{nearest, unknown};
use tightfit::error::{DataError, GraphError};
use tightfit::interop::{self, ImportedModel};
use tightfit::models;
use tightfit::nn::{Input, Layer, Model, Sequential};
use tightfit::train::{Group, Loss, Optimizer};
use toml::Spanned;

use super::failure::Failure;
use super::run_folder::RunPath;
use super::toml_parts::{Parts, checked, line_of, one, whole};

/// Far more than the layers of any model take.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// A model and the settings that its file gives.
#[derive(Clone, Debug)]
pub(crate) struct ModelFile {
    pub(crate) model: Model,
    pub(crate) loss: Option<Loss>,
    pub(crate) optimizer: Option<Optimizer>,
    pub(crate) groups: Option<Vec<Group>>,
    /// What is not trained unless the run says otherwise.
    pub(crate) freeze: Vec<String>,
    /// Where each layer stands in the file.
    lines: Vec<(String, usize)>,
}

impl ModelFile {
    /// An error of the model, with the line of the layer that it is about.
    pub(crate) fn located(&self, error: &GraphError) -> String {
        let (GraphError::Op { node: layer, .. } | GraphError::TooLarge { layer, .. } | GraphError::Layer { layer, .. }) =
            error
        else {
            return error.to_string();
        };
        // Parts of a layer are named below it.
        let first = layer.split('.').next().unwrap_or(layer);
        let line = self.lines.iter().find(|(name, _)| name == first).map(|(_, line)| line);
        line.map_or_else(|| error.to_string(), |line| format!("line {line}: {error}"))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    name: String,
    input: Vec<usize>,
    /// Whether the input is indices, such as words of a vocabulary.
    #[serde(default)]
    tokens: bool,
    loss: Option<Spanned<toml::Value>>,
    optimizer: Option<Spanned<toml::Value>>,
    groups: Option<Parts>,
    layers: Parts,
}

/// A built-in model by its name, any other from a file: of TOML, Keras or ONNX.
pub(crate) fn open(name: &OsStr) -> Result<ModelFile, Failure> {
    let builtin = name.to_str().and_then(|name| Some((models::builtin(name)?, loss_of(name))));
    if let Some((model, loss)) = builtin {
        return Ok(ModelFile { model, loss, optimizer: None, groups: None, freeze: Vec::new(), lines: Vec::new() });
    }
    let path = Path::new(name);
    if interop::is_foreign(path) {
        let ImportedModel { model, loss, optimizer, frozen: freeze, .. } = interop::read_model(path)?;
        return Ok(ModelFile { model, loss, optimizer, groups: None, freeze, lines: Vec::new() });
    }
    let text = text(name)?;
    Ok(parse(&text).map_err(|reason| DataError::Corrupt { path: name.into(), reason })?)
}

/// The text of a file that is named in the place of a model.
pub(crate) fn text(name: &OsStr) -> Result<String, Failure> {
    let path = Path::new(name);
    if let Some(run) = RunPath::find(path) {
        let (folder, config) = (path.display(), run.config_path());
        return Err(Failure::bad_input(format!("{folder} is a run folder: give its run file, {}", config.display())));
    }
    let is_toml = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"));
    let shown = name.to_string_lossy();
    if !is_toml && !files::is_there(path) {
        let more = if nearest(&shown, models::NAMES).is_empty() { ", or give a TOML file" } else { "" };
        return Err(Failure::bad_input(unknown("model", &shown, models::NAMES) + more));
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let hint = match nearest(&stem, models::NAMES).first() {
        Some(model) => format!("give a TOML file that is there, or the built-in model {model}"),
        None => "give a TOML file that is there, or a built-in model (`tightfit plan --help` lists them)".to_owned(),
    };
    let text = String::from_utf8(files::read(path, MAX_FILE_BYTES, &hint)?);
    Ok(text.map_err(|_| DataError::Corrupt {
        path: path.to_owned(),
        reason: "is not text: give a TOML file".to_owned(),
    })?)
}

/// What a built-in model is trained with, where it is not cross-entropy of one class a sample or pixel.
fn loss_of(name: &str) -> Option<Loss> {
    match name {
        "lstm_forecaster" | "mlp" => Some(Loss::Mse),
        "char_lstm" | "gpt" => Some(Loss::cross_entropy_of_sequences()),
        _ => None,
    }
}

/// Reads the text of a model file; an error names the line.
fn parse(text: &str) -> Result<ModelFile, String> {
    let contents: Contents = toml::from_str(text).map_err(|error| whole(text, &error))?;
    let Contents { name, input, tokens, loss, optimizer, groups, layers } = contents;
    let input = if tokens { Input::tokens(input) } else { Input::values(input) };
    let mut model = Sequential::new(name, input);
    let starts: Vec<_> = layers.0.iter().map(|layer| line_of(text, layer.span().start)).collect();
    for layer in layers.0 {
        model = model.push(one::<Layer>(text, layer, "layer")?);
    }
    let lines = model.layers().map(|(name, _)| name).zip(starts).collect();
    let loss = loss.map(|loss| checked(text, loss, "loss", Loss::check)).transpose()?;
    let optimizer = optimizer.map(|part| checked(text, part, "optimizer", |part: &Optimizer| part.rule().map(drop)));
    let groups = groups.map(|groups| groups.0.into_iter().map(|group| one(text, group, "group")).collect());
    let (optimizer, groups) = (optimizer.transpose()?, groups.transpose()?);
    Ok(ModelFile { model: model.into(), loss, optimizer, groups, freeze: Vec::new(), lines })
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use serde::de::DeserializeOwned;

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
        assert_eq!(file.loss, Some(Loss::default()));
        let expected = Optimizer::Sgd { lr: 0.05, momentum: 0.9, nesterov: false, weight_decay: 0.0 };
        assert_eq!(file.optimizer, Some(expected));
    }

    #[test]
    fn losses_optimizers_and_groups_have_settings() {
        let parse_with = |loss: &str, optimizer: &str| {
            let text = CNN.replace("loss = \"cross-entropy\"", loss);
            parse(&text.replace("kind = \"sgd\"\nlr = 0.05\nmomentum = 0.9", optimizer)).expect(optimizer)
        };
        let adafactor = "kind = \"adafactor\"\nlr = 0.02\neps = [1e-10, 1e-3]";
        let groups =
            "[[groups]]\none_dimensional = true\nweight_decay = 0\n[[groups]]\nprefix = \"conv\"\nlr_factor = 0.1";
        let file = parse_with("", &format!("{adafactor}\n{groups}"));
        assert_eq!(file.loss, None);
        let Some(Optimizer::Adafactor { lr, eps, d, .. }) = file.optimizer else { panic!("{:?}", file.optimizer) };
        assert_eq!((lr, eps, d), (0.02, (1e-10, 1e-3), 1.0));
        let expected = [Group::one_dimensional().weight_decay(0.0), Group::prefix("conv").lr_factor(0.1)];
        assert_eq!(file.groups.as_deref(), Some(&expected[..]));
        for kind in ["rmsprop", "adagrad", "lion", "lamb"] {
            let file = parse_with("", &format!("kind = \"{kind}\"\nlr = 0.25"));
            let optimizer = file.optimizer.expect(kind);
            assert_eq!((optimizer.to_string().as_str(), *optimizer.clone().lr_mut()), (kind, 0.25));
        }
        let smooth =
            "[loss]\nkind = \"cross-entropy\"\nlabel_smoothing = 0.1\nclass_weights = [1, 2]\nignore_index = 255";
        let expected = Loss::CrossEntropy {
            label_smoothing: 0.1,
            ignore_index: Some(255),
            class_weights: vec![1.0, 2.0],
            classes_last: false,
            from_logits: true,
        };
        let sgd = "kind = \"sgd\"\nlr = 0.1";
        assert_eq!(parse_with(smooth, sgd).loss, Some(expected));
        assert_eq!(parse_with("loss = \"mae\"", sgd).loss, Some(Loss::Mae));
        assert_eq!(parse_with("loss = { kind = \"huber\", delta = 2 }", sgd).loss, Some(Loss::Huber { delta: 2.0 }));
        let sum = "[loss]\nkind = \"sum\"\nterms = [[1, \"cross-entropy\"], [0.5, { kind = \"dice\", smooth = 1e-5 }]]";
        let dice = Loss::Dice { sigmoid: false, smooth: 1e-5, ignore_index: None };
        let expected = Loss::Sum { terms: vec![(1.0, Loss::cross_entropy()), (0.5, dice)] };
        assert_eq!(parse_with(sum, sgd).loss, Some(expected));
    }

    #[test]
    fn the_documented_examples_are_right() {
        let documentation = include_str!("../../docs/model-files.md");
        let blocks = documentation.split("```toml\n").skip(1).map(|block| block.split("```").next().expect("its end"));
        let shapes: Vec<_> =
            blocks.map(|block| parse(block).expect(block).model.output_shape().expect("builds").to_vec()).collect();
        assert_eq!(shapes, [vec![10], vec![32, 1000], vec![10]]);
    }

    /// All kinds, as serde lists them where one is unknown.
    fn kinds<T: DeserializeOwned + fmt::Debug>() -> Vec<String> {
        let error = toml::from_str::<T>("kind = \"?\"").expect_err("there is no such kind");
        error.message().split('`').skip(3).step_by(2).map(str::to_owned).collect()
    }

    /// Rows of a table, of the cells of each.
    fn rows<const N: usize>(cells: impl Iterator<Item = [String; N]>) -> String {
        cells.map(|row| format!("| {} |\n", row.join(" | ").replace("|  |", "| |"))).collect()
    }

    /// The tables of the documentation are those of the registries. With `TRYCMD=overwrite` they are written anew.
    #[test]
    fn tables_of_layers_losses_and_optimizers_are_those_of_the_registries() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/model-files.md");
        let documentation = std::fs::read_to_string(path).expect("readable");
        let row = |kind: &str, cells: [&str; 2]| [format!("`{kind}`"), cells[0].to_owned(), cells[1].to_owned()];
        let layers = rows(Layer::KINDS.iter().map(|layer| row(layer.kind, [layer.summary.trim(), layer.settings])));
        let losses = rows(Loss::KINDS.iter().map(|loss| [format!("`{}`", loss.kind), loss.settings.to_owned()]));
        let optimizers = rows(Optimizer::KINDS.iter().map(|kind| row(kind.kind, [kind.settings, kind.state])));
        let mut fresh = documentation.clone();
        for (head, table) in [
            ("| kind | what it makes of `x` | settings (default) |\n|---|---|---|\n", layers),
            ("| loss | settings (default) |\n|---|---|\n", losses),
            (
                "| optimizer | settings besides `lr` and `weight_decay` (default) | state for each parameter |\n|---|---|---|\n",
                optimizers,
            ),
        ] {
            let start = fresh.find(head).expect(head) + head.len();
            let end = start + fresh[start..].find("\n\n").expect("the table ends") + 1;
            fresh.replace_range(start..end, &table);
        }
        if std::env::var_os("TRYCMD").is_some_and(|mode| mode == "overwrite") {
            return std::fs::write(path, fresh).expect("writable");
        }
        assert!(fresh == documentation, "docs/model-files.md has other tables: run this test with TRYCMD=overwrite");
    }

    /// Nothing that a file can name is missing in the registries.
    #[test]
    fn registries_are_complete() {
        fn sorted(kinds: impl IntoIterator<Item = impl Into<String>>) -> Vec<String> {
            let mut kinds: Vec<_> = kinds.into_iter().map(Into::into).collect();
            kinds.sort();
            kinds
        }
        assert_eq!(sorted(kinds::<Layer>()), sorted(Layer::KINDS.iter().map(|layer| layer.kind)));
        assert_eq!(sorted(kinds::<Loss>()), sorted(Loss::KINDS.iter().map(|loss| loss.kind)));
        assert_eq!(sorted(kinds::<Optimizer>()), sorted(Optimizer::KINDS.iter().map(|optimizer| optimizer.kind)));
        for kind in Optimizer::KINDS {
            assert_eq!((kind.usual)().kind(), kind.kind);
        }
        let zoo = include_str!("../../docs/models.md");
        for name in models::NAMES {
            assert!(zoo.contains(&format!("`{name}`")), "{name} is not in docs/models.md");
        }
    }

    #[test]
    fn errors_name_the_line() {
        for (from, to, line, word) in [
            ("padding = 1", "paddin = 1", 15, "unknown key `paddin`: did you mean `padding`?"),
            ("kind = \"relu\"", "kind = \"relux\"", 18, "unknown kind `relux`: did you mean `relu`"),
            ("kind = \"relu\"", "kind = \"relu\"\nslope = 1", 19, "unknown key `slope`: nothing"),
            ("[1, 28, 28]", "[1, -28, 28]", 3, "-28"),
            ("[1, 28, 28]", "28", 3, "expected a list"),
            ("cross-entropy", "crossentropy", 4, "unknown loss `crossentropy`: did you mean `cross-entropy`?"),
            ("\"cross-entropy\"", "{ kind = \"mse\", delta = 1 }", 4, "unknown key `delta`"),
            ("\"cross-entropy\"", "{ kind = \"huber\", beta = 1 }", 4, "unknown key `beta`"),
            (
                "\"cross-entropy\"",
                "{ kind = \"sum\", terms = [[1, \"mze\"]] }",
                4,
                "unknown terms `mze`: did you mean `mse`",
            ),
            ("\"cross-entropy\"", "7", 4, "the name of a loss or a table"),
            ("momentum = 0.9", "momentun = 0.9", 9, "unknown key `momentun`: did you mean `momentum`?"),
            ("kind = \"sgd\"", "kind = \"lamp\"", 7, "unknown kind `lamp`: did you mean `lamb`?"),
            (
                "[optimizer]",
                "[[groups]]\nprefix = \"a\"\n[[groups]]\nsuffiks = \"b\"\n\n[optimizer]",
                9,
                "unknown key `suffiks`: did you mean `suffix`?",
            ),
            ("name = \"my-cnn\"", "name = \"my-cnn\"\nepochs = 3", 3, "unknown key `epochs`"),
            ("[optimizer]", "[groups]\nprefix = \"a\"\n\n[optimizer]", 6, "double brackets, such as [[layers]]"),
            (
                "out_channels = 8",
                "out_channels = \"8\"",
                13,
                "`out_channels`: invalid type: string \"8\", expected a whole",
            ),
            ("kernel = [3, 5]", "kernel = [3, 5]\ninit = \"xavier\"", 15, "unknown init `xavier`"),
            ("kernel = [3, 5]", "kernel = [3, 5, 7]", 14, "`kernel`: expected a whole number or a pair"),
        ] {
            let text = CNN.replace(from, to);
            assert_ne!(text, CNN, "{from}");
            let message = parse(&text).expect_err(to);
            assert!(message.contains(word), "{to}: {message}");
            assert!(message.starts_with(&format!("line {line}: ")), "{to}: {message}");
            assert!(!message.contains('\n'), "{message}");
        }
        assert!(parse("").expect_err("empty").contains("missing key"));
    }
}

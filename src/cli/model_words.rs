//! What is wrong with a model file, in the words of model files: names that other frameworks use are known too.

use tightfit::command::unknown;
use tightfit::nn::Layer;
use tightfit::tensor::format_number;
use tightfit::train::{Loss, MetricKind, Schedule};

/// What a name of another framework is here.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Meaning {
    /// One of these, whichever the place takes.
    Name(&'static [&'static str]),
    /// Nothing that can be set so.
    Advice(&'static str),
    /// The same, above the layers only.
    AtTop(&'static str),
}

use Meaning::{Advice, AtTop, Name};

const INFERRED: Meaning = Advice("leave it out, the size of what comes in follows from the layer before");
const LAYER: Meaning =
    Advice("an activation is a layer of its own: put [[layers]] with kind = \"relu\" or another after this one");
const OPTION: Meaning = AtTop("it is no part of a model: see the options of `tightfit train --help`");
const PLANNED: Meaning = Advice("leave it out, the planner decides that");

/// Names of Keras, PyTorch and others for keys and values, in lower case and with letters and digits alone. Those that are
/// like ours are found without being here, and those of layers and losses stand in their registries.
#[rustfmt::skip]
const KNOWN_ELSEWHERE: &[(&[&str], Meaning)] = &[
    // Kinds of layers that are something else here; the registry of layers has the names of the others.
    (&["depthwiseconv2d", "depthwise"], Advice("it is a conv2d with as many groups as channels")),
    (&["separableconv2d"], Advice("it is two layers: a conv2d with as many groups as channels, then one of kernel 1")),
    (&["activation"], LAYER),
    (&["input", "inputlayer"], Advice("the input is no layer: write input = […] above the layers")),
    // Keys of layers.
    (&["type", "layertype", "class", "classname", "op"], Name(&["kind"])),
    (&["filters", "channels", "numfilters", "outputchannels"], Name(&["out_channels", "squeeze_channels"])),
    (&["units", "neurons", "outputs", "outputdim", "outputsize", "nodes", "features", "size", "out"],
        Name(&["out_features", "hidden", "embedding_dim"])),
    (&["kernelsize", "ksize", "poolsize", "window", "filtersize", "size"], Name(&["kernel"])),
    (&["hiddensize", "hiddendim"], Name(&["hidden"])),
    (&["usebias"], Name(&["bias"])),
    (&["rate", "prob", "probability", "droprate", "dropoutrate"], Name(&["p", "dropout"])),
    (&["epsilon"], Name(&["eps"])),
    (&["negativeslope", "alpha"], Name(&["slope"])),
    (&["dilationrate"], Name(&["dilation"])),
    (&["inputdim", "vocabsize", "vocab", "numtokens"], Name(&["num_embeddings"])),
    (&["dim", "embeddim", "dmodel"], Name(&["embedding_dim"])),
    (&["heads", "nheads", "nhead"], Name(&["num_heads"])),
    (&["layers"], Name(&["num_layers"])),
    (&["scalefactor", "factor"], Name(&["scale"])),
    (&["kernelinitializer", "initializer", "weightinit"], Name(&["init"])),
    (&["targetshape", "dims"], Name(&["shape", "axes"])),
    (&["dim"], Name(&["axis"])),
    (&["infeatures", "inchannels", "inputsize", "inputshape", "inputdim", "inputchannels", "numfeatures", "normalizedshape", "embeddim"],
        INFERRED),
    (&["activation", "nonlinearity"], LAYER),
    (&["name"], Advice("layers are named by their kind and number, such as conv1")),
    (&["inplace"], PLANNED),
    (&["trainable", "requiresgrad", "frozen"], Advice("a group of the optimizer does that: [[groups]] with lr_factor = 0 and a prefix")),
    // Of the optimizer.
    (&["learningrate", "stepsize", "rate"], Name(&["lr"])),
    (&["beta1", "beta2"], Advice("both stand in one list: betas = [0.9, 0.999]")),
    (&["decay", "l2", "weightdecayrate"], Name(&["weight_decay"])),
    (&["clipnorm", "gradclip", "maxgradnorm", "clip"], Advice("it is the option --clip-norm of the command line")),
    (&["amsgrad", "maximize", "foreach", "fused"], Advice("there is no such setting: leave it out")),
    // Of run files.
    (&["batchsize"], Name(&["batch"])),
    (&["numepochs", "nepochs", "maxepochs"], Name(&["epochs"])),
    (&["maxsteps", "maxiterations", "iterations"], Name(&["steps"])),
    (&["dir", "root", "path", "datadir"], Name(&["path"])),
    (&["randomseed", "randomstate"], Name(&["seed"])),
    (&["validate", "validationdata", "evaluate"], Name(&["validation"])),
    (&["maxgradnorm", "gradclip", "clip"], Name(&["clip_norm"])),
    (&["emadecay", "swa"], Name(&["ema"])),
    (&["gradscaler", "lossscaling", "initscale"], Name(&["loss_scale"])),
    (&["checkpoint", "pretrained", "initfrom"], Name(&["weights"])),
    (&["savebestonly", "monitor"], Name(&["best"])),
    (&["savetopk", "maxtokeep"], Name(&["keep"])),
    (&["everynsteps", "savesteps", "savefreq"], Name(&["every_steps"])),
    (&["memory", "limit", "maxbytes"], Name(&["bytes"])),
    (&["lrscheduler", "scheduler"], Name(&["schedule"])),
    (&["earlystop"], Name(&["early_stopping"])),
    (&["restorebestweights"], Name(&["restore_best"])),
    (&["reducelronplateau", "plateau"], Name(&["reduce_on_plateau"])),
    // Above the layers.
    (&["inputsize", "inputshape", "shape"], Name(&["input"])),
    (&["criterion", "objective"], Name(&["loss"])),
    (&["paramgroups", "parametergroups"], Name(&["groups"])),
    (&["batch", "batchsize", "epochs", "steps", "seed", "budget", "device", "data", "microbatches"], OPTION),
    (&["lr", "learningrate", "momentum", "weightdecay", "betas"], AtTop("it belongs to the optimizer: write it below [optimizer]")),
    // Of losses.
    (&["reduction"], Advice("leave it out, a loss is a mean")),
    (&["weight", "weights"], Name(&["class_weights"])),
];

/// What is said of a name that is not known: what it is called here, or the nearest name.
fn unknown_name(what: &str, name: &str, known: Vec<&str>) -> String {
    let plain: String = name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
    let meanings = || KNOWN_ELSEWHERE.iter().filter(|(names, _)| names.contains(&&*plain)).map(|(_, meaning)| *meaning);
    let layers = Layer::KINDS.iter().map(|layer| (layer.kind, layer.elsewhere));
    let kinds = layers.chain(Loss::KINDS.iter().map(|loss| (loss.kind, loss.elsewhere)));
    let kinds = kinds.chain(Schedule::KINDS.iter().map(|schedule| (schedule.kind, schedule.elsewhere)));
    let kinds = kinds.chain(MetricKind::KINDS.iter().map(|metric| (metric.kind, metric.elsewhere)));
    let here: Vec<_> = meanings()
        .flat_map(|meaning| match meaning {
            Name(names) => names,
            Advice(_) | AtTop(_) => &[],
        })
        .copied()
        .chain(kinds.filter(|(_, elsewhere)| elsewhere.contains(&&*plain)).map(|(kind, _)| kind))
        .filter(|name| known.contains(name))
        .map(|name| format!("`{name}`"))
        .collect();
    let advice = meanings().find_map(|meaning| match meaning {
        Advice(advice) => Some(advice),
        AtTop(advice) => known.contains(&"layers").then_some(advice),
        Name(_) => None,
    });
    match (&here[..], advice) {
        ([], None) if known.is_empty() => format!("unknown {what} `{name}`: nothing can be set here"),
        ([], None) => unknown(what, name, known),
        ([], Some(advice)) => format!("unknown {what} `{name}`: {advice}"),
        (here, _) => format!("unknown {what} `{name}`: here it is {}", here.join(" or ")),
    }
}

/// Of keys that are there, that which may be meant by one that is missing.
pub(super) fn missing_as<'a>(missing: &str, mut keys: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    keys.find(|key| unknown_name("key", key, vec![missing]).contains(&format!("`{missing}`")))
}

/// What serde calls values, and what they are to people.
const VALUES: [(&str, &str); 20] = [
    ("missing field", "missing key"),
    ("expected a nonzero usize", "expected a whole number of at least 1"),
    ("expected a nonzero u64", "expected a whole number of at least 1"),
    ("expected path string", "expected a path in quotes"),
    ("expected usize", "expected a whole number, 0 or above"),
    ("expected u32", "expected a whole number, 0 or above"),
    ("expected u64", "expected a whole number, 0 or above"),
    ("expected isize", "expected a whole number"),
    ("expected i32", "expected a whole number"),
    ("expected i64", "expected a whole number"),
    ("expected f32", "expected a number"),
    ("expected f64", "expected a number"),
    ("expected a boolean", "expected true or false"),
    ("expected a string", "expected a text in quotes"),
    ("expected variant identifier", "expected a name in quotes"),
    ("expected internally tagged enum Optimizer", "expected a table, such as { kind = \"adam\", lr = 0.001 }"),
    ("a tuple of size", "a list of length"),
    ("a sequence", "a list"),
    ("sequence", "a list"),
    ("map,", "a table,"),
];

/// Serde writes all digits of a number, of which there may be 300.
fn with_short_numbers(message: &str) -> String {
    let part = |part: &str| part.parse::<f64>().map_or_else(|_| part.to_owned(), format_number);
    message.split('`').map(part).collect::<Vec<_>>().join("`")
}

/// What serde says of the value of `key`, in the words of a model file; of a name that it does not know, with what it is called
/// here.
pub(super) fn in_words(message: &str, key: Option<&str>) -> String {
    // The key of a list is no name of what stands in it.
    let named = key.map_or("name", |key| if key == "evaluate" { "metric" } else { key });
    for (start, what) in [("unknown variant `", named), ("unknown field `", "key")] {
        if let Some((name, rest)) = message.strip_prefix(start).and_then(|rest| rest.split_once('`')) {
            // What is expected stands between backquotes too.
            return unknown_name(what, name, rest.split('`').skip(1).step_by(2).collect());
        }
    }
    let message = VALUES.iter().fold(with_short_numbers(message), |text, (from, to)| text.replacen(from, to, 1));
    match key {
        Some(key) if !message.starts_with("missing") => format!("`{key}`: {message}"),
        _ => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINEAR: [&str; 3] = ["out_features", "bias", "init"];
    const LSTM: [&str; 3] = ["hidden", "num_layers", "dropout"];
    const CONV: [&str; 4] = ["out_channels", "kernel", "stride", "padding"];
    const ADAM: [&str; 4] = ["lr", "betas", "eps", "weight_decay"];

    #[test]
    fn names_of_other_frameworks_are_known() {
        for (what, name, known, words) in [
            ("kind", "Dense", &["linear", "conv2d"][..], "here it is `linear`"),
            ("kind", "MaxPooling2D", &["max_pool2d", "avg_pool2d"], "here it is `max_pool2d`"),
            ("kind", "SimpleRNN", &["lstm", "rnn", "linear"], "here it is `rnn`"),
            ("kind", "conv2D", &["conv1d", "conv2d"], "did you mean `conv2d`"),
            ("key", "units", &LINEAR, "here it is `out_features`"),
            ("key", "units", &LSTM, "here it is `hidden`"),
            ("key", "filters", &CONV, "here it is `out_channels`"),
            ("key", "kernel_size", &CONV, "here it is `kernel`"),
            ("key", "in_features", &LINEAR, "leave it out"),
            ("key", "in_channels", &CONV, "leave it out"),
            ("key", "activation", &LINEAR, "a layer of its own"),
            ("key", "name", &LINEAR, "such as conv1"),
            ("key", "inplace", &[], "the planner decides"),
            ("key", "slope", &[], "nothing can be set here"),
            ("key", "learning_rate", &ADAM, "here it is `lr`"),
            ("key", "beta_1", &ADAM, "betas = [0.9, 0.999]"),
            ("key", "batch_size", &["name", "input", "loss", "layers"], "tightfit train --help"),
            ("key", "lr", &["name", "input", "loss", "layers"], "below [optimizer]"),
            ("key", "momentum", &ADAM, "choose one of lr"),
            ("key", "input_shape", &["name", "input", "loss", "layers"], "here it is `input`"),
            ("loss", "sparse_categorical_crossentropy", &["cross-entropy", "mse"], "here it is `cross-entropy`"),
            ("loss", "BCELoss", &["bce", "bce-with-logits"], "here it is `bce` or `bce-with-logits`"),
        ] {
            let text = unknown_name(what, name, known.to_vec());
            assert!(text.starts_with(&format!("unknown {what} `{name}`: ")) && text.contains(words), "{text}");
        }
    }

    #[test]
    fn the_tables_are_written_as_they_are_read() {
        let layers = Layer::KINDS.iter().map(|layer| layer.elsewhere);
        let losses = Loss::KINDS.iter().map(|loss| loss.elsewhere);
        for names in KNOWN_ELSEWHERE.iter().map(|(names, _)| *names).chain(layers).chain(losses) {
            for name in names {
                assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()), "{name}");
            }
        }
    }

    #[test]
    fn a_key_that_is_missing_is_found_under_another_name() {
        let keys = |keys: &'static [&'static str]| keys.iter().copied();
        assert_eq!(missing_as("kind", keys(&["out_channels", "type"])), Some("type"));
        assert_eq!(missing_as("kind", keys(&["out_channels", "kernel"])), None);
        assert_eq!(missing_as("lr", keys(&["learning_rate"])), Some("learning_rate"));
        assert_eq!(missing_as("input", keys(&["name", "input_size"])), Some("input_size"));
    }
}

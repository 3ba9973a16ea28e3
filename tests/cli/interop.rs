//! Files of other frameworks in the place of models and weights.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use super::command::{MODEL, assert_documented, last, objects, run, stdout, tightfit};

fn golden(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name).display().to_string()
}

fn mnist() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/mnist").display().to_string()
}

/// A folder, and paths in it.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Folder(tempfile::tempdir().expect("a folder"))
    }

    fn at(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// The message of a command that must be refused.
fn refused(args: &[&str]) -> String {
    let output = run(args);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
    assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    text
}

fn done(args: &[&str]) -> Value {
    let output = run(&[args, &["--json"]].concat());
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    last(&output)
}

#[test]
fn weights_of_pytorch_become_safetensors() {
    let folder = Folder::new();
    let to = folder.at("state.safetensors");
    let object = done(&["convert", &golden("torch/state.pt"), &to]);
    assert_documented(&object, &["`convert`"]);
    assert_eq!(object["tensors"], 9);
    assert_eq!(object["size_bytes"], fs::metadata(&to).expect("written").len());
    let text = refused(&["convert", &golden("torch/state.pt"), &folder.at("state.onnx")]);
    assert!(text.contains("which model are the weights of? Name it: --model MODEL"), "{text}");
    let text = refused(&["convert", &golden("torch/state.pt"), &folder.at("a.safetensors"), "--model", "mnist-cnn"]);
    assert!(text.contains("weights do not fit the model"), "{text}");
    let text = refused(&["convert", &golden("torch/command.pt"), &folder.at("a.safetensors")]);
    assert!(text.contains("command.pt"), "{text}");
    assert!(!Path::new("pickle-was-run").exists());
}

#[test]
fn what_cannot_be_converted_is_refused() {
    let folder = Folder::new();
    let state = golden("torch/state.pt");
    for (args, words) in [
        (vec!["convert", "missing.pt", "a.safetensors"], "not found"),
        (vec!["convert", &state, "a.txt"], "its ending names no format"),
        (vec!["convert", &state, "a"], "its ending names no format"),
        (vec!["convert", &state, "a.safetensors", "--fold-batch-norm"], "--fold-batch-norm is for ONNX alone"),
        (vec!["convert", &state, "a.keras", "--model", "mnist-cnn"], "only a model that came from a file of Keras"),
        (vec!["convert", &golden("torch/generate.py"), "a.safetensors"], "no weights can be read from it"),
        (vec!["plan", &state], "holds weights, but not what is done with them"),
    ] {
        let args: Vec<String> = args
            .into_iter()
            .map(|arg| if arg.starts_with("a.") || arg == "a" { folder.at(arg) } else { arg.to_owned() })
            .collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let text = refused(&args);
        assert!(text.contains(words), "{args:?}: {text}");
    }
}

#[test]
fn a_trained_model_goes_to_onnx_and_back() {
    let folder = Folder::new();
    fs::write(folder.path("m.toml"), MODEL).expect("written");
    let (model, weights, onnx) = (folder.at("m.toml"), folder.at("w.safetensors"), folder.at("m.onnx"));
    let data = mnist();
    done(&["train", &model, "--data", &data, "--steps", "20", "--save", &weights, "--device", "cpu"]);
    let object = done(&["convert", &weights, &onnx, "--model", &model]);
    assert_eq!(object["tensors"], 2);
    let eval = |args: &[&str]| done(&[&["eval"], args, &["--data", &*data, "--device", "cpu"]].concat());
    let (ours, theirs) = (eval(&[&model, "--weights", &weights]), eval(&[&onnx]));
    assert_eq!(ours["test_accuracy"], theirs["test_accuracy"]);
    assert_eq!(eval(&[&model, "--weights", &onnx])["test_loss"], ours["test_loss"]);
    // It trains on from there, into a run that can be resumed without the file.
    let run_folder = folder.at("run");
    done(&["train", &onnx, "--data", &data, "--steps", "2", "--run", &run_folder, "--device", "cpu"]);
    fs::remove_file(&onnx).expect("removed");
    done(&["resume", &run_folder, "--steps", "4"]);
    let again = done(&["convert", &run_folder, &folder.at("again.onnx")]);
    assert_eq!(again["tensors"], 2);
    let text = refused(&["eval", &model, "--data", &data]);
    assert!(text.contains("--weights FILE is needed"), "{text}");
}

#[test]
fn a_summary_says_what_each_layer_takes() {
    let object = done(&["summary", "mnist-cnn", "--batch", "8"]);
    assert_documented(&object, &["`summary`", "`advise`"]);
    assert_eq!(object["layers"][1]["name"], "conv1");
    let text = stdout(&run(&["summary", "resnet18", "--depth", "1"]));
    assert!(text.contains("layer1") && !text.contains("layer1.0"), "{text}");
    let mut command = tightfit();
    assert!(!command.args(["summary", "no-such-model"]).output().expect("runs").status.success());
    assert!(objects(&run(&["summary", "mlp", "--json"])).len() == 1);
}

#[test]
fn a_model_of_keras_is_planned_and_converted() {
    let folder = Folder::new();
    let cnn = golden("keras/cnn.keras");
    let plan = done(&["plan", &cnn, "--batch", "16", "--budget", "64MiB"]);
    assert!(plan["planned_peak_bytes"].as_u64().expect("a number") <= 64 << 20);
    let text = stdout(&run(&["summary", &cnn]));
    assert!(text.contains("conv"), "{text}");
    let (keras, weights, onnx, safetensors) =
        (folder.at("a.keras"), folder.at("a.weights.h5"), folder.at("a.onnx"), folder.at("a.safetensors"));
    for to in [&keras, &weights, &onnx, &safetensors] {
        done(&["convert", &cnn, to]);
    }
    // Through weights alone, and through each other format, come the same numbers.
    let sums: Vec<Vec<u8>> = [(&keras, "1"), (&weights, "2"), (&safetensors, "3")]
        .into_iter()
        .map(|(from, name)| {
            let to = folder.at(&format!("{name}.safetensors"));
            done(&["convert", from, &to, "--model", &cnn]);
            fs::read(to).expect("written")
        })
        .collect();
    assert!(sums.iter().all(|sum| *sum == sums[0]));
    let text = refused(&["convert", &weights, &folder.at("b.safetensors")]);
    assert!(text.contains("named by their places in a model of Keras"), "{text}");
    let text = refused(&["plan", &weights]);
    assert!(text.contains("a.weights.h5"), "{text}");
}

#[test]
fn a_model_of_keras_gets_the_pixels_that_it_scales() {
    let (folder, data, model) = (Folder::new(), mnist(), golden("keras/pixels.keras"));
    let eval = |args: &[&str]| done(&[&["eval", &model, "--data", &data, "--device", "cpu"], args].concat());
    let own = eval(&[]);
    assert_eq!(own["test_loss"], eval(&["--normalize", "none"])["test_loss"]);
    assert_ne!(own["test_loss"], eval(&["--normalize", "unit"])["test_loss"]);
    // In training as well, and then.
    let trained = folder.at("trained.keras");
    let args = ["train", &model, "--data", &data, "--epochs", "1", "--device", "cpu", "--save", &trained];
    let object = done(&args);
    let after = eval(&["--weights", &trained]);
    assert_eq!(after["test_loss"], object["test_loss"]);
    let [before, after] = [own, after].map(|object| object["test_loss"].as_f64().expect("a number"));
    assert!(after < 0.9 * before, "{before}, then {after}");
}

#[test]
fn layers_that_keras_does_not_train_are_frozen() {
    let (model, plan) = (golden("keras/transfer.keras"), |args: &[&str]| {
        let model = golden("keras/transfer.keras");
        let object = done(&[&["plan", &*model, "--batch", "16"], args].concat());
        object["state_bytes"].as_u64().expect("a number")
    });
    let own = plan(&[]);
    assert_eq!(own, plan(&["--train-only", "dense."]));
    assert!(own < plan(&["--train-only", ""]));
    let text = refused(&["plan", &model, "--freeze", "no-such-layer."]);
    assert!(text.contains("no-such-layer."), "{text}");
}

#[test]
fn files_that_keras_would_not_read_are_not_written() {
    let folder = Folder::new();
    let (keras, h5) = (folder.at("m.keras"), golden("keras/cnn.h5"));
    fs::copy(golden("keras/cnn.keras"), &keras).expect("copied");
    for (args, words) in [
        (vec!["convert", &keras, &folder.at("w.h5")], "end it in .weights.h5"),
        (vec!["convert", &h5, &folder.at("w.keras")], "end it in .weights.h5"),
        (vec!["train", &h5, "--data", &mnist(), "--save", &folder.at("w.keras")], "end it in .weights.h5"),
    ] {
        let text = refused(&args);
        assert!(text.contains(words), "{args:?}: {text}");
    }
    // Nor is the model replaced that weights are of.
    let (weights, before) = (folder.at("w.weights.h5"), fs::read(&keras).expect("read"));
    done(&["convert", &keras, &weights]);
    let text = refused(&["convert", &weights, &keras, "--model", &keras]);
    assert!(text.contains("would replace the file given as --model"), "{text}");
    assert_eq!(fs::read(&keras).expect("read"), before);
}

#[test]
fn a_model_of_one_probability_takes_two_classes() {
    let folder = Folder::new();
    let (model, data, weights) = (folder.at("m.toml"), folder.at("d.csv"), folder.at("w.safetensors"));
    let toml = "name = \"m\"\ninput = [2]\nloss = \"bce\"\n[optimizer]\nkind = \"adam\"\nlr = 0.1\n[[layers]]\nkind = \"linear\"\nout_features = 1\n\
                [[layers]]\nkind = \"sigmoid\"\n";
    fs::write(&model, toml).expect("written");
    let rows = (0..60).map(|i| {
        let (a, b) = (f64::from(i * 7 % 60) / 60.0, f64::from(i * 11 % 60) / 60.0);
        format!("{a},{b},{}\n", if a > b { "yes" } else { "no" })
    });
    fs::write(&data, format!("a,b,larger\n{}", rows.collect::<String>())).expect("written");
    let common = ["--data", &data, "--target", "larger", "--batch", "10", "--device", "cpu"];
    let train = done(&[&["train", &model, "--epochs", "20", "--save", &weights][..], &common].concat());
    assert!(train["train_loss"].as_f64().expect("a number") < 0.4, "{train}");
    let eval = done(&["eval", &model, "--weights", &weights, "--data", &data, "--target", "larger", "--device", "cpu"]);
    assert!(eval["test_loss"].as_f64().expect("a number") < 0.4, "{eval}");
}

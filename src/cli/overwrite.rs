//! Outputs of a command must not replace its own inputs, one another, or files of another kind.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use tightfit::models;

use super::failure::Failure;
use super::weights::Format;

/// A file that a command names, with the option that names it.
pub(crate) type Named<'a> = (&'static str, Option<&'a Path>);

/// What a command writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Weights(Format),
    Plan,
    Profile,
    Picture,
    Trace,
}

/// Enough to know a file of any kind by.
const BEGINNING: u64 = 1024;

/// Endings that programs know files by, with what these then are.
const ENDINGS: [(&[&str], &str); 11] = [
    (&["safetensors"], "safetensors"),
    (&["svg"], "SVG"),
    (&["json"], "JSON"),
    (&["pt", "pth", "ckpt", "pkl", "pickle"], "PyTorch"),
    (&["keras"], "Keras"),
    (&["h5", "hdf5"], "HDF5"),
    (&["onnx"], "ONNX"),
    (&["pb", "tflite", "gguf"], "another framework"),
    (&["npy", "npz"], "NumPy"),
    (&["png", "jpg", "jpeg", "gif", "webp", "bmp", "tif", "tiff", "pdf", "ps", "eps"], "pictures of another format"),
    (&["toml"], "model files"),
];

impl Kind {
    /// The kind in words, the format of its files, and their ending.
    fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Kind::Weights(Format::Safetensors) => ("weights", "safetensors", "safetensors"),
            Kind::Weights(Format::Keras) => ("weights", "Keras", "keras"),
            Kind::Weights(Format::Hdf5) => ("weights", "HDF5", "h5"),
            Kind::Weights(Format::Onnx) => ("weights", "ONNX", "onnx"),
            Kind::Plan => ("a plan", "JSON", "json"),
            Kind::Profile => ("a device profile", "JSON", "json"),
            Kind::Picture => ("a picture", "SVG", "svg"),
            Kind::Trace => ("a trace", "JSON", "json"),
        }
    }

    /// Whether a file that begins so is of this kind.
    fn begins(self, bytes: &[u8]) -> bool {
        let has = |text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
        match self {
            Kind::Weights(Format::Safetensors) => bytes.get(size_of::<u64>()) == Some(&b'{'),
            Kind::Weights(Format::Keras) => bytes.starts_with(b"PK\x03\x04") && has(".json"),
            Kind::Weights(Format::Hdf5) => bytes.starts_with(b"\x89HDF\r\n"),
            // The version, as a number of protobuf's first field.
            Kind::Weights(Format::Onnx) => bytes.starts_with(&[8]),
            Kind::Plan => bytes.starts_with(b"{") && has("\"tightfit-plan\""),
            Kind::Profile => bytes.starts_with(b"{") && has("\"format\"") && has("\"adapter\""),
            Kind::Picture => has("<svg"),
            Kind::Trace => bytes.starts_with(b"{\"displayTimeUnit\""),
        }
    }

    /// Refuses a name that says that a file is something else, and one of a file that is. A new file and an empty one, such as
    /// `mktemp` makes, may become anything, and what is no regular file is refused by whoever writes.
    pub(crate) fn check(self, option: &str, path: &Path) -> Result<(), Failure> {
        let (what, format, own) = self.words();
        let ending = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let named = ENDINGS.iter().find(|(endings, other)| endings.contains(&&*ending) && *other != format);
        if let Some((_, other)) = named {
            let better = path.with_extension(own);
            let are = if matches!(self, Kind::Weights(_)) { "are" } else { "is" };
            return Err(Failure::bad_input(format!(
                "{option} {}: {what} {are} written as {format}, but .{ending} is an ending of {other}: name it {}",
                path.display(),
                better.display()
            )));
        }
        let is_file = path.metadata().is_ok_and(|metadata| metadata.is_file());
        let mut bytes = Vec::new();
        let read = is_file && File::open(path).and_then(|file| file.take(BEGINNING).read_to_end(&mut bytes)).is_ok();
        if read && !bytes.is_empty() && !self.begins(&bytes) {
            return Err(Failure::bad_input(format!(
                "{option} {} would replace a file of another kind than {what} ({format}): write to another file, or delete that one",
                path.display()
            )));
        }
        Ok(())
    }
}

/// How names of files end that data is read from.
const DATA: [&str; 11] = [".png", ".jpg", ".jpeg", ".csv", ".tsv", ".npy", ".npz", ".tar", ".txt", ".parquet", ".bin"];

/// Refuses outputs that are the same file as an input, as another output, or as one of the data.
pub(crate) fn refuse(outputs: &[Named<'_>], inputs: &[Named<'_>], data: Option<&Path>) -> Result<(), Failure> {
    let given = |files: &[Named<'_>]| -> Vec<(&'static str, PathBuf)> {
        files.iter().filter_map(|&(option, path)| Some((option, place(path?)))).collect()
    };
    let (outputs, mut inputs) = (given(outputs), given(inputs));
    // What is no file is the name of a model or a device.
    inputs.retain(|(_, input)| input.is_file());
    let data = data.map(place);
    for (number, (option, output)) in outputs.iter().enumerate() {
        let text = |what: &str| {
            let text = format!("{option} {} would replace {what}: write to another file", output.display());
            Err(Failure::bad_input(text))
        };
        if let Some((input, _)) = inputs.iter().find(|(_, input)| input == output) {
            return text(&format!("the file given as {input}"));
        }
        if let Some((other, _)) = outputs[..number].iter().find(|(_, other)| other == output) {
            return text(&format!("what {other} writes"));
        }
        let name = output.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let is_data = name.contains("-ubyte") || DATA.iter().any(|end| name.to_lowercase().ends_with(end));
        if data.as_ref().is_some_and(|data| output.starts_with(data)) && is_data && output.exists() {
            return text("a file of the data");
        }
    }
    Ok(())
}

/// The model of a command, where it is not a built-in one.
pub(crate) fn model(name: &OsStr) -> Named<'_> {
    let is_built_in = name.to_str().is_some_and(|name| models::builtin(name).is_some());
    ("MODEL", (!is_built_in).then(|| Path::new(name)))
}

/// Where a path leads, so that two paths to one file are the same. A file that is not there yet is where its folder is.
fn place(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    path.canonicalize()
        .or_else(|_| Ok::<_, std::io::Error>(parent.canonicalize()?.join(path.file_name().unwrap_or_default())))
        .unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn outputs_replace_nothing_that_the_command_uses() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        for (name, contents) in
            [("m.toml", "x"), ("t10k-images-idx3-ubyte", "x"), ("w.safetensors", "\x02\0\0\0\0\0\0\0{}")]
        {
            fs::write(at(name), contents).expect("written");
        }
        let (model, new) = (at("m.toml"), at("new"));
        let same = at(".").join("m.toml");
        let try_out = |outputs: &[Named<'_>]| {
            let refused = refuse(outputs, &[("MODEL", Some(&model)), ("--plan", None)], Some(folder.path()));
            refused.err().map(|failure| failure.message)
        };
        let says = |outputs: &[Named<'_>], words: &str| {
            let text = try_out(outputs).expect("refused");
            assert!(text.contains(words), "{text}");
        };
        says(&[("--save", Some(&same))], "would replace the file given as MODEL: write to another file");
        says(&[("--svg", Some(&new)), ("--output", Some(&at(".").join("new")))], "what --svg writes");
        says(&[("--save", Some(&at("t10k-images-idx3-ubyte")))], "a file of the data");
        assert_eq!(try_out(&[("--save", Some(&new)), ("--svg", None)]), None);
        // What an earlier training wrote beside the data.
        assert_eq!(try_out(&[("--save", Some(&at("w.safetensors")))]), None);
    }
    #[test]
    fn files_of_another_kind_are_not_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let all = [
            (Kind::Weights(Format::Safetensors), &b"\x02\0\0\0\0\0\0\0{}"[..]),
            (Kind::Plan, b"{\"format\":\"tightfit-plan\",\"version\":9"),
            (Kind::Profile, b"{\n  \"format\": 1,\n  \"adapter\": \"a\""),
            (Kind::Picture, b"<?xml version=\"1.0\"?>\n<svg "),
            (Kind::Trace, b"{\"displayTimeUnit\":\"ns\",\"otherData\""),
        ];
        for (kind, contents) in all {
            fs::write(&path, contents).expect("written");
            for (other, _) in all {
                let checked = other.check("--output", &path);
                assert_eq!(checked.is_ok(), kind == other, "{kind:?} by {other:?}");
            }
        }
        for contents in [&b"# Notes"[..], b"{}", b"\x89PNG\r\n", b"PK"] {
            fs::write(&path, contents).expect("written");
            let message = Kind::Plan.check("--output", &path).expect_err("refused").message;
            let words =
                "would replace a file of another kind than a plan (JSON): write to another file, or delete that one";
            assert!(message.starts_with("--output ") && message.ends_with(words), "{message}");
            assert_eq!(fs::read(&path).expect("there"), contents);
        }
        // New, empty, and what is no file at all.
        fs::write(&path, "").expect("written");
        assert!(
            [&path, &folder.path().join("new"), folder.path()].iter().all(|path| Kind::Plan.check("", path).is_ok())
        );
    }

    #[test]
    fn names_say_what_files_are() {
        let check = |kind: Kind, name: &str| kind.check("--save", Path::new(name)).map_err(|failure| failure.message);
        for name in ["w.pt", "w.PTH", "w.h5", "w.keras", "w.onnx", "w.npz", "w.svg", "w.json", "w.toml"] {
            let message = check(Kind::Weights(Format::Safetensors), name).expect_err(name);
            assert!(
                message.contains("written as safetensors") && message.ends_with("name it w.safetensors"),
                "{message}"
            );
        }
        assert_eq!(
            check(Kind::Picture, "a/p.png"),
            Err("--save a/p.png: a picture is written as SVG, but .png is an ending of pictures of another format: name it \
                 a/p.svg"
                .to_owned())
        );
        assert!(check(Kind::Plan, "p.safetensors").is_err() && check(Kind::Profile, "p.svg").is_err());
        for (kind, names) in [
            (Kind::Weights(Format::Safetensors), &["w", "w.st", "w.safetensors", "w.SafeTensors", "w.v2"][..]),
            (Kind::Plan, &["p", "p.json", "p.plan", "p.txt"]),
            (Kind::Picture, &["p", "p.svg"]),
        ] {
            assert!(names.iter().all(|name| check(kind, name) == Ok(())), "{kind:?}");
        }
    }
}

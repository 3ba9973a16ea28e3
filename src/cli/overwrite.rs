//! Outputs of a command must not replace its own inputs, or one another.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use tightfit::models;

use super::failure::Failure;

/// A file that a command names, with the option that names it.
pub(crate) type Named<'a> = (&'static str, Option<&'a Path>);

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
        if output.parent() == data.as_deref() && name.contains("-ubyte") && output.exists() {
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
        for name in ["m.toml", "t10k-images-idx3-ubyte", "w.safetensors"] {
            fs::write(at(name), "x").expect("written");
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
}

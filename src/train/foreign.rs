//! Files of weights in formats that a trainer does not read: which one a file has, and how to make safetensors of it.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::files::Format;

/// What to do with a file that is no safetensors file, where its format is known.
pub(super) fn advice(file: &mut File, path: &Path) -> io::Result<Option<String>> {
    let Some(format) = Format::of(file, path)? else { return Ok(None) };
    let shown = path.to_string_lossy();
    let is_plain = shown.chars().all(|c| c.is_alphanumeric() || "/._-".contains(c));
    let from = if is_plain { &*shown } else { "FILE" };
    let to = path.file_stem().filter(|_| is_plain).map_or("FILE".into(), |stem| stem.to_string_lossy());
    let what = match format {
        Format::Safetensors => return Ok(None),
        Format::Torch => "a PyTorch file",
        Format::Keras | Format::Hdf5 => "a Keras file",
        Format::Onnx => "an ONNX file",
        Format::Numpy => {
            return Ok(Some(format!(
                "it is a NumPy file, and weights are read from safetensors: `python -c \"import numpy, safetensors.numpy as s; \
                 s.save_file(dict(numpy.load('{from}')), '{to}.safetensors')\"` makes one, and names must then be those of \
                 Model::state_dict"
            )));
        }
        Format::Other(what) => return Ok(Some(format!("it is {what}; weights are read from safetensors files"))),
    };
    Ok(Some(format!(
        "it is {what}, and weights are read here from safetensors: `tightfit convert {from} {to}.safetensors --model MODEL` makes \
         one"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_how_safetensors_are_made_of_other_formats() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (name, contents, words) in [
            (
                "a.pth",
                &b"anything"[..],
                "a PyTorch file, and weights are read here from safetensors: `tightfit convert",
            ),
            ("a.keras", b"x", "a Keras file"),
            ("a.npz", b"x", "a NumPy file"),
            ("a.safetensors", b"version https://git-lfs.github.com/spec/v1", "git lfs pull"),
        ] {
            let path = folder.path().join(name);
            std::fs::write(&path, contents).expect("writes");
            let mut file = File::open(&path).expect("opens");
            let text = advice(&mut file, &path).expect("reads").expect(name);
            assert!(text.contains(words) && !text.contains('\n'), "{name}: {text}");
        }
        let path = folder.path().join("a.safetensors");
        for contents in [&b""[..], b"\x10\0\0\0\0\0\0\0{}", b"some text"] {
            std::fs::write(&path, contents).expect("writes");
            assert_eq!(advice(&mut File::open(&path).expect("opens"), &path).expect("reads"), None);
        }
    }
}

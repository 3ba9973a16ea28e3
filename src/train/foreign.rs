//! Files of weights in formats that are not read: which one a file has, and how to make safetensors of it.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// Enough for what formats begin with, and for the name of the first file in an archive.
const BEGINNING: u64 = 128;

/// A format that is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Torch,
    Keras,
    Onnx,
    Numpy,
    /// A name, without a way to convert it.
    Other(&'static str),
}

impl Format {
    /// Of a file that begins with these bytes.
    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let holds = |name: &str| bytes.windows(name.len()).any(|part| part == name.as_bytes());
        Some(match bytes {
            [b'P', b'K', 3, 4, ..] if holds(".npy") => Format::Numpy,
            [b'P', b'K', 3, 4, ..] if holds("metadata.json") || holds("config.json") => Format::Keras,
            [b'P', b'K', 3, 4, ..] if holds(".pkl") || holds("byteorder") || holds("version") => Format::Torch,
            [b'P', b'K', 3, 4, ..] => Format::Other("a zip archive"),
            [0x80, 2..=5, ..] => Format::Torch,
            [0x89, b'H', b'D', b'F', b'\r', b'\n', ..] => Format::Keras,
            [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => Format::Numpy,
            [0x1f, 0x8b, ..] => Format::Other("a gzip file: unpack it first"),
            [b'G', b'G', b'U', b'F', ..] => Format::Other("a GGUF file, whose numbers are quantized"),
            [_, _, _, _, b'T', b'F', b'L', b'3', ..] => Format::Other("a TensorFlow Lite file"),
            _ if bytes.starts_with(b"version https://git-lfs") => {
                Format::Other("a pointer of Git LFS: `git lfs pull` fetches the file itself")
            }
            _ => return None,
        })
    }

    /// Of a file with this ending.
    fn of_name(path: &Path) -> Option<Self> {
        Some(match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "pt" | "pth" => Format::Torch,
            "h5" | "hdf5" | "keras" => Format::Keras,
            "onnx" => Format::Onnx,
            "npy" | "npz" => Format::Numpy,
            "pb" | "ckpt" | "index" => Format::Other("a file of TensorFlow"),
            _ => return None,
        })
    }

    /// What to say of a file.
    fn advice(self, path: &Path) -> String {
        let shown = path.to_string_lossy();
        let is_plain = shown.chars().all(|c| c.is_alphanumeric() || "/._-".contains(c));
        let from = if is_plain { &*shown } else { "FILE" };
        let to = path.file_stem().filter(|_| is_plain).map_or("FILE".into(), |stem| stem.to_string_lossy());
        let (what, library, tensors, after) = match self {
            Format::Torch => (
                "a PyTorch file",
                "torch, safetensors.torch as s",
                format!(
                    "{{k: v.clone().contiguous() for k, v in torch.load('{from}', map_location='cpu', \
                     weights_only=True).items()}}"
                ),
                "if it holds a state_dict",
            ),
            Format::Keras => (
                "a Keras file",
                "keras, safetensors.numpy as s",
                format!("{{w.path: w.numpy() for w in keras.saving.load_model('{from}').weights}}"),
                "and names and axes must then become those of Model::state_dict",
            ),
            Format::Onnx => (
                "an ONNX file",
                "onnx, onnx.numpy_helper as n, safetensors.numpy as s",
                format!("{{t.name: n.to_array(t) for t in onnx.load('{from}').graph.initializer}}"),
                "and names must then be those of Model::state_dict",
            ),
            Format::Numpy => (
                "a NumPy file",
                "numpy, safetensors.numpy as s",
                format!("dict(numpy.load('{from}'))"),
                "and names must then be those of Model::state_dict",
            ),
            Format::Other(what) => return format!("it is {what}; only safetensors files are read"),
        };
        format!(
            "it is {what}, and only safetensors files are read: `python -c \"import {library}; s.save_file({tensors}, \
             '{to}.safetensors')\"` makes one, {after}"
        )
    }
}

/// What to do with a file that is no safetensors file, where its format is known.
pub(super) fn advice(file: &mut File, path: &Path) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(BEGINNING).read_to_end(&mut bytes)?;
    Ok(Format::of_bytes(&bytes).or_else(|| Format::of_name(path)).map(|format| format.advice(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_known_by_how_files_begin_and_by_their_names() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let zip = |name: &str| [&b"PK\x03\x04"[..], &[0; 26], name.as_bytes()].concat();
        for (name, contents, words) in [
            ("a.bin", zip("archive/data.pkl"), "a PyTorch file, and only safetensors files are read: `python -c"),
            ("a.safetensors", b"\x80\x02\x8a\x0al\xfc".to_vec(), "a PyTorch file"),
            ("a.pth", b"anything".to_vec(), "a PyTorch file"),
            ("a.keras", zip("metadata.json"), "a Keras file"),
            ("a", b"\x89HDF\r\n\x1a\n".to_vec(), "a Keras file"),
            ("a.npz", zip("w.npy"), "a NumPy file"),
            ("a.ONNX", b"\x08\x07".to_vec(), "an ONNX file"),
            ("a.zip", zip("notes.txt"), "a zip archive; only safetensors"),
            ("a.gguf", b"GGUF\x03".to_vec(), "a GGUF file"),
            ("a.safetensors", b"version https://git-lfs.github.com/spec/v1".to_vec(), "git lfs pull"),
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

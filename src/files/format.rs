//! Which format a file of a model or its weights has, by how it begins.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// Enough for what formats begin with, and for the name of the first file in an archive.
const BEGINNING: u64 = 128;

/// A format of models or weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Safetensors,
    /// What `torch.save` writes.
    Torch,
    /// An archive of Keras 3.
    Keras,
    /// HDF5: a model of Keras before version 3, or weights of it.
    Hdf5,
    Onnx,
    Numpy,
    /// Another one, in words.
    Other(&'static str),
}

impl Format {
    /// The format of a file, where it is known.
    pub(crate) fn of(file: &mut File, path: &Path) -> io::Result<Option<Self>> {
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(0))?;
        file.take(BEGINNING).read_to_end(&mut bytes)?;
        Ok(match Format::of_bytes(&bytes) {
            // Members may come in any order.
            Some(Format::Other(_)) if Format::of_name(path) == Some(Format::Keras) => Some(Format::Keras),
            found => found.or_else(|| Format::of_name(path)),
        })
    }

    /// Of a file that begins with these bytes.
    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let holds = |name: &str| bytes.windows(name.len()).any(|part| part == name.as_bytes());
        Some(match bytes {
            [b'P', b'K', 3, 4, ..] if holds(".npy") => Format::Numpy,
            [b'P', b'K', 3, 4, ..]
                if ["metadata.json", "config.json", "model.weights.h5"].iter().any(|name| holds(name)) =>
            {
                Format::Keras
            }
            [b'P', b'K', 3, 4, ..] if holds(".pkl") || holds("byteorder") || holds("version") => Format::Torch,
            [b'P', b'K', 3, 4, ..] => Format::Other("a zip archive"),
            [0x80, 2..=5, ..] => Format::Torch,
            [0x89, b'H', b'D', b'F', b'\r', b'\n', ..] => Format::Hdf5,
            [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => Format::Numpy,
            [0x1f, 0x8b, ..] => Format::Other("a gzip file: unpack it first"),
            [b'G', b'G', b'U', b'F', ..] => Format::Other("a GGUF file, whose numbers are quantized"),
            [_, _, _, _, b'T', b'F', b'L', b'3', ..] => Format::Other("a TensorFlow Lite file"),
            _ if bytes.starts_with(b"version https://git-lfs") => {
                Format::Other("a pointer of Git LFS: `git lfs pull` fetches the file itself")
            }
            [_, _, _, _, _, _, 0, 0, b'{', ..] => Format::Safetensors,
            _ => return None,
        })
    }

    /// Of a file with this ending.
    pub(crate) fn of_name(path: &Path) -> Option<Self> {
        Some(match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "safetensors" => Format::Safetensors,
            "pt" | "pth" => Format::Torch,
            "keras" => Format::Keras,
            "h5" | "hdf5" => Format::Hdf5,
            "onnx" => Format::Onnx,
            "npy" | "npz" => Format::Numpy,
            "pb" | "ckpt" | "index" => Format::Other("a file of TensorFlow"),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_known_by_how_files_begin_and_by_their_names() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let zip = |name: &str| [&b"PK\x03\x04"[..], &[0; 26], name.as_bytes()].concat();
        for (name, contents, format) in [
            ("a.bin", zip("archive/data.pkl"), Format::Torch),
            ("a.safetensors", b"\x80\x02\x8a\x0al\xfc".to_vec(), Format::Torch),
            ("a.pth", b"anything".to_vec(), Format::Torch),
            ("a", zip("metadata.json"), Format::Keras),
            ("a", b"\x89HDF\r\n\x1a\n".to_vec(), Format::Hdf5),
            ("a.npz", zip("w.npy"), Format::Numpy),
            ("a.ONNX", b"\x08\x07".to_vec(), Format::Onnx),
            ("a", b"\x10\0\0\0\0\0\0\0{\"__m".to_vec(), Format::Safetensors),
            ("a.safetensors", b"\x10\0".to_vec(), Format::Safetensors),
            ("a.zip", zip("notes.txt"), Format::Other("a zip archive")),
            ("a.gguf", b"GGUF\x03".to_vec(), Format::Other("a GGUF file, whose numbers are quantized")),
        ] {
            let path = folder.path().join(name);
            std::fs::write(&path, contents).expect("writes");
            let mut file = File::open(&path).expect("opens");
            assert_eq!(Format::of(&mut file, &path).expect("reads"), Some(format), "{name}");
        }
        let path = folder.path().join("a");
        for contents in [&b""[..], b"some text"] {
            std::fs::write(&path, contents).expect("writes");
            assert_eq!(Format::of(&mut File::open(&path).expect("opens"), &path).expect("reads"), None);
        }
    }
}

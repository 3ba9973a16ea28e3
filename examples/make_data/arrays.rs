//! Arrays as NumPy writes them.

use std::error::Error;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use tightfit::data::{Dataset, TensorDataset, Values, mnist};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// Images and labels of MNIST as `np.savez(path, x_train=…, y_train=…, x_test=…, y_test=…)` does.
pub fn digits(path: &Path, mnist: &Path) -> Result<(), Box<dyn Error>> {
    let (train, test) = mnist::open(mnist)?;
    let mut archive = ZipWriter::new(File::create(path)?);
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    for (part, data, count) in [("train", &train, 2000), ("test", &test, 500)] {
        let (images, labels) = first(data, count)?;
        for (name, bytes, shape) in [("x", images, format!("({count}, 28, 28)")), ("y", labels, format!("({count},)"))]
        {
            archive.start_file(format!("{name}_{part}.npy"), options)?;
            archive.write_all(&header(&shape))?;
            archive.write_all(&bytes)?;
        }
    }
    archive.finish()?;
    Ok(())
}

/// Pixels and labels of the first samples.
fn first(data: &TensorDataset, count: usize) -> Result<(Vec<u8>, Vec<u8>), Box<dyn Error>> {
    let (mut images, mut labels) = (Vec::new(), Vec::new());
    for index in 0..count {
        if let Some(Values::U8(pixels)) = data.get(index)?.get("input").map(|image| image.values()) {
            images.extend(pixels);
        }
        labels.push(data.label(index)?.ok_or("MNIST has labels")? as u8);
    }
    Ok((images, labels))
}

/// What comes before the bytes of an array: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.
fn header(shape: &str) -> Vec<u8> {
    let dict = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}");
    // Together with the ten bytes before it and the line feed, a multiple of 64.
    let padded = (dict.len() + 11).next_multiple_of(64) - 11;
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((padded as u16 + 1).to_le_bytes());
    bytes.extend(format!("{dict:padded$}\n").bytes());
    bytes
}

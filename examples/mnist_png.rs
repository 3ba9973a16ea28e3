//! Writes MNIST, or any set in its format, as folders of PNG files with a folder for each class.
//!
//! `cargo run --release --example mnist_png -- DATA_FOLDER NEW_FOLDER`
//!
//! Then: `tightfit train mnist-cnn --images NEW_FOLDER/train --val NEW_FOLDER/test`

use std::error::Error;
use std::fs;
use std::path::Path;

use image::{GrayImage, ImageFormat};
use tightfit::data::{Dataset, TensorDataset, Values, mnist};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [from, to] = &args[..] else { return Err("usage: mnist_png DATA_FOLDER NEW_FOLDER".into()) };
    let (train, test) = mnist::open(from)?;
    for (name, data) in [("train", &train), ("test", &test)] {
        let folder = Path::new(to).join(name);
        write(data, &folder)?;
        println!("{} images in {}", data.len(), folder.display());
    }
    Ok(())
}

fn write(data: &TensorDataset, folder: &Path) -> Result<(), Box<dyn Error>> {
    let classes = data.classes().ok_or("images without labels")?;
    for class in 0..classes {
        fs::create_dir_all(folder.join(class.to_string()))?;
    }
    let [.., height, width] = data.sample_shape()[..] else { return Err("samples that are no images".into()) };
    for index in 0..data.len() {
        let (sample, label) = (data.get(index)?, data.label(index)?.ok_or("an image without a label")?);
        let input = sample.get("input").ok_or("a sample without an image")?.values();
        let pixels = match input {
            Values::U8(bytes) => bytes.clone(),
            Values::F32(values) => values.iter().map(|value| (value * 255.0).round() as u8).collect(),
            Values::U32(_) => return Err("samples that are no images".into()),
        };
        let image = GrayImage::from_raw(width as u32, height as u32, pixels).ok_or("images of several channels")?;
        image.save_with_format(folder.join(format!("{label}/{index:05}.png")), ImageFormat::Png)?;
    }
    Ok(())
}

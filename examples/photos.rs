//! Trains MobileNetV3 on a folder of images with a folder for each class, inside a budget, and names what new images show. With a file of
//! weights, it first trains the new head alone, then all layers.
//!
//! `cargo run --release --example photos [FOLDER [WEIGHTS [STEPS [DEVICE]]]]`; `made/photos` is what the example `make_data` makes, and
//! `-` stands for no weights.

use std::error::Error;

use tightfit::data::augment::Augmentation;
use tightfit::data::{DataLoader, ImageFiles, ImageFolder, ImageOptions, OnError, Subset, split};
use tightfit::models;
use tightfit::nn::Normalization;
use tightfit::train::{Config, FitOptions, Length, Optimizer, Preprocessing, StepReport, Trainer, Unfreeze};

/// Pixels of a side.
const SIDE: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let folder = args.next().unwrap_or_else(|| "made/photos".to_owned());
    let weights = args.next().filter(|weights| weights != "-");
    let max_steps = args.next().map(|steps| steps.parse()).transpose()?;
    let device = args.next();

    // Paths alone are in memory. A fifth of each class is for validation.
    let photos = ImageFolder::open(&folder, ImageOptions::sized(SIDE, SIDE))?;
    let parts = split::stratified(&split::labels(&photos)?, 0.2, 1)?;
    let augmentation: Augmentation = "flip,rotation=10,zoom=0.1,brightness=0.2".parse()?;
    let loader = |part: &[usize]| Ok::<_, Box<dyn Error>>(DataLoader::new(Subset::new(&photos, part.to_vec())?));
    let train = loader(&parts.training)?.workers(2).on_error(OnError::Skip).augment(&augmentation)?;
    let validation = loader(&parts.validation)?.workers(2);

    let names = photos.class_names();
    let normalization = Normalization::imagenet();
    let model = models::builtin_for("mobilenet_v3_small", names.len()).ok_or("no such model")?;
    let model = model.with_input([3, SIDE, SIDE]).normalized(normalization.clone());
    let mut config = Config::default().optimizer(Optimizer::adam(1e-3)).batch(32).seed(1).budget_bytes(256 << 20);
    if weights.is_some() {
        config = config.train_only("classifier.");
    }
    let mut trainer = Trainer::new(model, config, device.as_deref())?;
    if let Some(weights) = &weights {
        let taken = trainer.load_matching(weights)?;
        println!("{} tensors from {weights}; new: {:?}", taken.loaded.len(), taken.mismatched);
    }
    // It is saved with the parameters: who loads them reads new files in the same way.
    trainer.set_preprocessing(Preprocessing {
        images: Some(photos.options()),
        class_names: names.to_vec(),
        normalization: Some(normalization),
        ..Preprocessing::default()
    });
    println!("{}\n\ntraining on {}", trainer.plan(), trainer.device_name());

    let mut all = Unfreeze::all(Length::Epochs(2.0));
    let mut on_step =
        |step: &StepReport| println!("step {:>4}  loss {:.4}  {:.0} ms", step.step, step.loss, step.step_ms);
    let mut options = FitOptions {
        max_steps,
        validation: Some(validation.clone()),
        on_step: Some(&mut on_step),
        ..FitOptions::epochs(6)
    };
    if weights.is_some() {
        options.callbacks.push(&mut all);
    }
    trainer.fit(&train, options)?;
    println!("validation: {}", trainer.evaluate(&validation)?);
    trainer.save(std::env::temp_dir().join("photos.safetensors"))?;

    // What is in some images: files or folders, without classes.
    let files: Vec<_> = parts.validation.iter().filter_map(|&index| photos.path(index)).take(5).collect();
    let prediction = trainer.predict(&ImageFiles::open(&files, photos.options())?)?;
    for (file, scores) in files.iter().zip(prediction.values.chunks(names.len())) {
        let best = (1..scores.len()).fold(0, |best, class| if scores[class] > scores[best] { class } else { best });
        println!("{}: {}", file.display(), names[best]);
    }
    Ok(())
}

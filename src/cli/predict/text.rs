//! A model of text goes on with what it is given.

use std::path::Path;

use serde_json::json;
use tightfit::data::text::Vocabulary;
use tightfit::data::{TensorDataset, Values};
use tightfit::nn::Model;
use tightfit::train::{Config, Preprocessing, Trainer};

use super::super::data;
use super::super::failure::Failure;
use super::super::first_use;
use super::super::output::Output;
use super::super::run_file::RunFile;
use super::super::weights;
use super::PredictArgs;

/// Writes on, each time with the most probable character.
pub(super) fn go_on(
    args: &PredictArgs,
    file: &RunFile,
    (model, config): (Model, Config),
    (path, trained): (&Path, &Preprocessing),
    prompt: &str,
    output: &Output,
) -> Result<u8, Failure> {
    let vocabulary = trained.vocabulary.clone().unwrap_or_else(Vocabulary::ascii);
    let model = data::of_vocabulary(file, model, &vocabulary);
    let ([length], Ok(shape)) = (&model.input_shape()[..], model.output_shape()) else {
        return Err(Failure::bad_input(format!("`{}` is no model of text: leave --prompt out", model.name())));
    };
    let (length, characters) = (*length, vocabulary.len() as usize);
    if shape[..] != [length, characters] {
        return Err(Failure::bad_input(format!(
            "`{}` says {shape} of a piece of text, and a model that writes says {characters} numbers for each of {length} characters",
            model.name()
        )));
    }
    let mut tokens = vocabulary.encode(prompt)?;
    if tokens.is_empty() {
        return Err(Failure::bad_input("--prompt: give at least one character"));
    }
    first_use::for_device(file.device(), args.device.no_calibrate, output);
    let mut trainer = Trainer::for_evaluation(model, Config { batch: 1, ..config }, file.device())?;
    weights::load(&mut trainer, path, file)?;
    let given = tokens.len();
    for _ in 0..args.length {
        let from = tokens.len().saturating_sub(length);
        let mut window = tokens[from..].to_vec();
        let last = window.len() - 1;
        // What comes after does not matter to what is before.
        window.resize(length, 0);
        let data = TensorDataset::unlabeled(Values::U32(window), [length])?;
        let scores = trainer.predict(&data)?.values;
        let scores = &scores[last * characters..(last + 1) * characters];
        let best = (1..characters).fold(0, |best, token| if scores[token] > scores[best] { token } else { best });
        tokens.push(best as u32);
    }
    let written = vocabulary.decode(&tokens[given..]);
    output.unwrapped(&format!("{prompt}{written}"));
    output.object(&json!({"event": "text", "prompt": prompt, "text": written}));
    Ok(0)
}

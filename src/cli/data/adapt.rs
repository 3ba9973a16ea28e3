//! A model and its loss, made to fit the data where that follows from it.

use tightfit::data::augment::Augmentation;
use tightfit::data::{DataLoader, Features, MaskOptions, TargetKind};
use tightfit::models;
use tightfit::nn::{Mode, Model, Normalization};
use tightfit::tensor::{DType, Shape};
use tightfit::train::{Config, Loss, Preprocessing};

use super::super::failure::Failure;
use super::super::output::Output;
use super::super::run_file::RunFile;
use super::settings::{Balanced, Normalize};

/// The shape of a sample's input, and what it is made of.
pub(super) fn input_of(features: &Features) -> (DType, Shape) {
    let (dtype, shape) = features.get("input").expect("bug: samples without an input");
    (dtype, shape.clone())
}

/// Classes, tokens or numbers that a model has to say of such samples, as far as they or what it was trained on tell.
pub(super) fn outputs_for(features: &Features, trained: &Preprocessing) -> Option<usize> {
    let names = Some(trained.class_names.len()).filter(|count| *count > 0);
    if let Some(vocabulary) = &trained.vocabulary {
        return usize::try_from(vocabulary.len()).ok();
    }
    match features.target() {
        TargetKind::Labels { classes, .. } => classes.map(|classes| classes as usize).or(names),
        TargetKind::Values { shape } => Some(shape.numel()),
        TargetKind::None => names
            .or_else(|| trained.masks.as_ref().and_then(classes_of_masks))
            .or_else(|| trained.table.as_ref().map(|table| table.targets.len()))
            .or_else(|| trained.series.as_ref().map(|series| series.options.horizon * series.targets.len())),
    }
}

/// How many classes masks have.
fn classes_of_masks(masks: &MaskOptions) -> Option<usize> {
    let named = masks.class_names.as_ref().map(Vec::len);
    let classes = masks.classes.and_then(|classes| usize::try_from(classes).ok());
    named.or(classes).or(masks.values.as_ref().map(Vec::len))
}

/// The model with so many outputs and the input of the data, where it is built in and its settings do not say otherwise.
pub(super) fn model_for(file: &RunFile, model: Model, features: &Features, wanted: Option<usize>) -> Model {
    let (_, input) = input_of(features);
    let name = file.model().to_str().filter(|name| models::builtin(name).is_some());
    let keeps_input = file.model.input.is_some();
    let resize = |model: Model| {
        let fits = |model: &Model| model.build(1, Mode::Train(Default::default())).is_ok();
        if keeps_input || *model.input_shape() == input || model.input_shape().len() != input.len() {
            return model;
        }
        let resized = model.clone().with_input(input.clone());
        if fits(&resized) { resized } else { model }
    };
    let model = resize(model);
    // Of images, classes are the first extent.
    let outputs = model.output_shape().ok().and_then(|shape| match shape.len() {
        3 => shape.first().copied(),
        _ => shape.last().copied(),
    });
    match (name, wanted) {
        (Some(name), Some(wanted)) if file.model.outputs.is_none() && outputs != Some(wanted) => {
            let other = models::builtin_for(name, wanted).expect("bug: it is built in");
            resize(other.with_input(model.input_shape().clone()))
        }
        _ => model,
    }
}

/// A model with the inputs and outputs of what it was trained on, as far as that is known.
pub(super) fn as_trained(file: &RunFile, model: Model, trained: &Preprocessing) -> Result<Model, Failure> {
    let size = trained.images.as_ref().and_then(|images| Some((images.channels, images.size?)));
    Ok(match size {
        Some((channels, [height, width])) if model.input_shape().len() == 3 && file.model.input.is_none() => {
            model.with_input([channels, height, width])
        }
        _ => model,
    })
}

/// A model of bytes where it was trained on such, unless it says itself how they become numbers.
pub(super) fn normalized_as(model: Model, trained: &Preprocessing) -> Model {
    match &trained.normalization {
        Some(normalization) if model.normalization().is_none() => model.normalized(normalization.clone()),
        _ => model,
    }
}

/// How bytes become numbers where that is asked for, and no data has to be read for it.
pub(super) fn given_normalization(file: &RunFile) -> Option<Normalization> {
    Some(match file.data.normalize.as_ref()? {
        Normalize::Unit => Normalization::unit(),
        Normalize::Nothing => Normalization::identity(),
        Normalize::Imagenet => Normalization::imagenet(),
        Normalize::Given(given) => given.clone(),
        Normalize::Fit => return None,
    })
}

/// How bytes become numbers: what is asked for, else what the weights were trained with, else what the model wants.
pub(super) fn normalization(
    file: &RunFile,
    train: &DataLoader<'_>,
    channels: usize,
    output: &Output,
) -> Result<Normalization, Failure> {
    let chosen = match (given_normalization(file), &file.data.normalize) {
        (Some(given), _) => given,
        (None, Some(_)) => {
            let bar = super::super::progress::samples_bar(output, train.len().unwrap_or(0));
            let fitted = Normalization::fit(train, |done| {
                bar.set_position(done as u64);
                true
            });
            bar.finish_and_clear();
            fitted?
        }
        (None, None) => {
            let of_weights =
                file.model.weights.as_deref().map(super::super::weights::preprocessing).transpose()?.flatten();
            match of_weights.and_then(|preprocessing| preprocessing.normalization) {
                Some(normalization) => normalization,
                None if super::super::weights::scales_pixels(file) => Normalization::identity(),
                None => Normalization::unit(),
            }
        }
    };
    let given = chosen.mean().len();
    if ![1, channels].contains(&given) {
        return Err(Failure::bad_input(format!(
            "--normalize has means of {given} channels, and the model takes images of {channels}: give one for each, or one for all"
        )));
    }
    Ok(chosen)
}

/// Sets the loss that goes with targets where none was chosen, and what the data asks of it.
pub(super) fn loss_for(
    file: &RunFile,
    config: &mut Config,
    features: &Features,
    augment: &Augmentation,
    labels: impl FnOnce() -> Result<(Vec<u32>, u32), Failure>,
) -> Result<(), Failure> {
    let is_chosen = file.loss.is_some();
    let target = features.target();
    match target {
        TargetKind::Labels { .. } if !is_chosen && !takes_labels(&config.loss) => config.loss = Loss::default(),
        TargetKind::Values { .. } if !is_chosen && takes_labels(&config.loss) => config.loss = Loss::Mse,
        _ => {}
    }
    if let TargetKind::Labels { ignored: Some(label), .. } = target
        && let Loss::CrossEntropy { ignore_index, .. } = &mut config.loss
        && ignore_index.is_none()
    {
        *ignore_index = Some(i64::from(label));
    }
    if file.data.class_weights == Some(Balanced::Balanced) {
        let (labels, classes) = labels()?;
        let weights = tightfit::data::split::class_weights(&labels, classes)?;
        match &mut config.loss {
            Loss::CrossEntropy { class_weights, .. } | Loss::SoftCrossEntropy { class_weights, .. } => {
                *class_weights = weights;
            }
            loss => {
                let text = format!("--class-weights: the loss {loss} has no weights of classes: use cross-entropy");
                return Err(Failure::bad_input(text));
            }
        }
    }
    if mixes_labels(augment, features) {
        let loss = std::mem::take(&mut config.loss);
        config.loss = match loss {
            Loss::CrossEntropy { label_smoothing, class_weights, from_logits, .. } => {
                Loss::SoftCrossEntropy { label_smoothing, class_weights, from_logits }
            }
            loss => loss,
        };
    }
    Ok(())
}

/// Sets the loss that says what a model's numbers mean, by what it was trained on, where none was chosen.
pub(super) fn answers_for(file: &RunFile, config: &mut Config, trained: &Preprocessing) {
    let has_classes = !trained.class_names.is_empty();
    let has_numbers = trained.series.is_some() || (trained.table.is_some() && !has_classes);
    if file.loss.is_some() {
        return;
    }
    if has_numbers {
        config.loss = Loss::Mse;
    } else if has_classes && !takes_labels(&config.loss) {
        config.loss = Loss::default();
    }
}

/// Whether labels become probabilities: those of pixels are cut and stay labels.
pub(super) fn mixes_labels(augment: &Augmentation, features: &Features) -> bool {
    let is_one_each = matches!(features.target(), TargetKind::Labels { shape, .. } if shape.is_empty());
    augment.mixup.or(augment.cutmix).is_some() && is_one_each
}

/// Whether the model makes one probability, its loss takes that, and samples have labels of two classes at most.
pub(super) fn is_binary(model: &Model, config: &Config, features: &Features) -> bool {
    let of_two = matches!(features.target(), TargetKind::Labels { shape, classes: Some(..=2), .. } if shape.is_empty());
    let is_binary = matches!(config.loss, Loss::Bce { .. } | Loss::BceWithLogits { .. });
    of_two && is_binary && model.output_shape().is_ok_and(|shape| shape[..] == [1])
}

/// Whether targets of a loss are labels. A dice loss takes both.
fn takes_labels(loss: &Loss) -> bool {
    matches!(loss, Loss::CrossEntropy { .. } | Loss::Dice { .. })
}

//! Where a model cannot be built of its input: which input it can be built of.

use super::model::{Mode, Model};
use crate::error::GraphError;
use crate::tensor::{DType, Shape};

/// Most channels that an image comes with: colours and transparency.
const MOST_CHANNELS: usize = 4;
/// Height and width are at least so many times the channels, where what comes last may be channels of any number.
const LIKELY_SHARE: usize = 4;
/// Images are often halved so many times, and must then be multiples of the power of 2.
const MOST_HALVINGS: u32 = 8;
/// By how many pixels larger images are tried.
const MOST_LARGER: usize = 64;

impl Model {
    /// The input with its channels first, where it looks like an image with its channels last, `[224, 224, 3]`, and the
    /// model takes images `[channels, height, width]`.
    pub fn channels_first(&self) -> Option<Shape> {
        let first = image_channels_first(self.input_shape())?;
        let reads_images = |model: &Model, channels: usize| {
            let built = model.assemble(1, 1, Mode::Evaluate).ok()?.0;
            let weight = built.graph.value(built.parameters.first()?.value).desc.shape.to_vec();
            Some(weight.len() == 4 && weight[1] == channels)
        };
        let model = self.clone().with_input(first.clone());
        (reads_images(&model, first[0]) == Some(true)).then_some(first)
    }

    /// The error of building the model so, and an input that it can be built of, if there is one that looks like its own.
    pub(super) fn with_advice(&self, error: GraphError, samples: usize, batch: usize, mode: Mode) -> GraphError {
        let advice = if self.fits(self.input_shape().clone()) {
            // In training more is asked of an input, such as several values per channel.
            let builds = |input: &Shape| self.clone().with_input(input.clone()).assemble(samples, batch, mode).is_ok();
            self.channels_first().filter(builds).map(|first| format!("if the channels are last, write {first}"))
        } else if self.input().dtype == DType::F32 {
            self.input_advice()
        } else {
            self.advice_on_tokens()
        };
        let Some(advice) = advice else { return error };
        match error {
            GraphError::Op { node, source } => GraphError::Layer { layer: node, reason: format!("{source}; {advice}") },
            GraphError::Layer { layer, reason } => GraphError::Layer { layer, reason: format!("{reason}; {advice}") },
            error => error,
        }
    }

    /// Which input like its own the model can be built of, where it cannot be built of its own and there is one.
    pub fn input_advice(&self) -> Option<String> {
        let input = self.input_shape();
        if let [batch, ref sample @ ..] = input[..]
            && let Some(sample) = self.sample(Shape::from(sample))
        {
            return Some(format!("an input is one sample: write {sample}, without the batch of {batch}"));
        }
        if let [height, width] = input[..] {
            let shapes = [[1, height, width], [3, height, width]].map(Shape::from);
            let fits = shapes.iter().all(|shape| self.fits(shape.clone()));
            let [grey, colour] = shapes;
            return fits.then(|| format!("images are [channels, height, width]: write {grey}, or {colour} in colour"));
        }
        let image = image_channels_first(input);
        let any = || channels_first(input, |channels, size| channels <= size / LIKELY_SHARE);
        let moved = image.clone().or_else(any).and_then(|first| {
            if self.fits(first.clone()) {
                return Some(first.to_string());
            }
            self.clone().with_input(first).sizes().map(|(_, shapes)| shapes)
        });
        if let Some(shapes) = moved {
            return Some(format!("images are [channels, height, width]: write {shapes}, not {input}"));
        }
        // What looks like an image with its channels last is none of another size.
        let (unit, shapes) = self.sizes().filter(|_| image.is_none())?;
        Some(match unit {
            Some(unit) => format!("images whose height and width are multiples of {unit} fit: use {shapes}"),
            None => format!("a larger image fits: use {shapes}"),
        })
    }

    /// That tokens were meant to be numbers, where the model can be built of these.
    fn advice_on_tokens(&self) -> Option<String> {
        let advice =
            "the input is tokens: put an embedding first, or make it numbers (no `tokens = true`, Input::values)";
        self.of_values().fits(self.input_shape().clone()).then(|| advice.to_owned())
    }

    fn fits(&self, input: impl Into<Shape>) -> bool {
        self.clone().with_input(input).assemble(1, 1, Mode::Evaluate).is_ok()
    }

    /// What is left of an input without its first extent, where the model can be built of that, if need be with its channels first.
    fn sample(&self, rest: Shape) -> Option<Shape> {
        // Of fewer extents than images have, the first may be the time.
        let shapes = (rest.len() >= 3).then(|| image_channels_first(&rest).into_iter().chain([rest]))?;
        shapes.into_iter().find(|shape| self.fits(shape.clone()))
    }

    /// The image's sizes down and up to multiples of the least power of 2 with which both fit. Where none below does, the least
    /// that is larger by as much in height and width, and no power.
    fn sizes(&self) -> Option<(Option<usize>, String)> {
        let [channels, height, width] = self.input_shape()[..] else { return None };
        let multiples = (1..=MOST_HALVINGS).map(|halvings| 1_usize << halvings).find_map(|unit| {
            let down = [height, width].map(|size| size / unit * unit);
            let up = [height, width].map(|size| size.div_ceil(unit).saturating_mul(unit));
            // An image smaller than the unit has nothing below.
            let shapes = [down, up].map(|[height, width]| Shape::from([channels, height, width]));
            let all_fit = !down.contains(&0) && shapes.iter().all(|shape| self.fits(shape.clone()));
            all_fit.then(|| (Some(unit), shapes.map(|shape| shape.to_string()).join(" or ")))
        });
        multiples.or_else(|| {
            let larger = (1..=MOST_LARGER).map(|more| Shape::from([channels, height + more, width + more]));
            let least = larger.into_iter().find(|shape| self.fits(shape.clone()))?;
            Some((None, least.to_string()))
        })
    }
}

/// The shape with its last extent first, where that looks like the channels of an image.
fn image_channels_first(shape: &Shape) -> Option<Shape> {
    channels_first(shape, |channels, size| channels <= MOST_CHANNELS && size > MOST_CHANNELS)
}

/// The shape with its last extent first, where that may be so many channels beside a height and a width of that size.
fn channels_first(shape: &Shape, may_be: impl Fn(usize, usize) -> bool) -> Option<Shape> {
    let [height, width, channels] = shape[..] else { return None };
    may_be(channels, height.min(width)).then(|| [channels, height, width].into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models;
    use crate::nn::{Conv2d, Input, Sequential, Statistics};

    fn message(model: &Model) -> String {
        model.output_shape().expect_err("must not fit").to_string()
    }

    #[test]
    fn images_that_cannot_be_halved_name_sizes_that_can() {
        let unet = |height, width| models::builtin("unet_small").expect("is there").with_input([3, height, width]);
        for (height, width, down, up) in [
            (250, 250, "[3, 240, 240]", "[3, 256, 256]"),
            (240, 250, "[3, 240, 240]", "[3, 240, 256]"),
            (97, 64, "[3, 96, 64]", "[3, 112, 64]"),
        ] {
            let text = message(&unet(height, width));
            assert!(text.contains("they must agree but for the channels; images whose height and width"), "{text}");
            assert!(text.ends_with(&format!("are multiples of 16 fit: use {down} or {up}")), "{text}");
            assert!(!text.contains('\n'), "{text}");
        }
        // Too small for any step down.
        let text = message(&unet(8, 8));
        assert!(text.ends_with("a larger image fits: use [3, 16, 16]"), "{text}");
        let wide: Model = Sequential::new("m", [1, 28, 28]).conv2d(4, 30).flatten().linear(10).into();
        let text = message(&wide);
        assert!(
            text.contains("use a smaller kernel") && text.ends_with("a larger image fits: use [1, 30, 30]"),
            "{text}"
        );
        let layers = Sequential::new("m", [1, 30, 30]).skip("a").max_pool2d(2).skip("b").max_pool2d(2);
        let text = message(&layers.upsample(2).concat("b").upsample(2).concat("a").into());
        assert!(text.ends_with("multiples of 4 fit: use [1, 28, 28] or [1, 32, 32]"), "{text}");
    }

    #[test]
    fn channels_that_come_last_are_named() {
        let model: Model = Sequential::new("m", [32, 32, 3]).conv2d(8, 5).relu().flatten().linear(10).into();
        let text = message(&model);
        assert!(text.ends_with("images are [channels, height, width]: write [3, 32, 32], not [32, 32, 3]"), "{text}");
        let text = message(&models::builtin("unet").expect("is there").with_input([250, 250, 3]));
        assert!(text.ends_with("write [3, 240, 240] or [3, 256, 256], not [250, 250, 3]"), "{text}");
        let text = message(&models::builtin("resnet18").expect("is there").with_input([224, 224]));
        assert!(text.ends_with("write [1, 224, 224], or [3, 224, 224] in colour"), "{text}");
        // Of more channels than pictures have.
        let text = message(&models::builtin("vgg16").expect("is there").with_input([256, 256, 16]));
        assert!(text.ends_with("write [16, 256, 256], not [256, 256, 16]"), "{text}");
        let text = message(&models::builtin("unet").expect("is there").with_input([250, 250, 31]));
        assert!(text.ends_with("write [31, 240, 240] or [31, 256, 256], not [250, 250, 31]"), "{text}");
        // A model that takes it until it is to be trained.
        let resnet = |input: [usize; 3], samples| {
            let model = models::builtin("resnet18").expect("is there").with_input(input);
            model.build(samples, Mode::Train(Statistics::Exact)).map(drop).map_err(|error| error.to_string())
        };
        let text = resnet([64, 64, 1], 1).err();
        let advised = text.is_none_or(|text| text.ends_with("if the channels are last, write [1, 64, 64]"));
        assert!(advised && resnet([1, 64, 64], 1).is_ok());
        let text = resnet([28, 28, 1], 1).expect_err("one value per channel");
        assert!(!text.contains("[1, 28, 28]"), "no better: {text}");
        // A model that takes it all the same, as images 3 wide with 32 channels.
        let padded: Model = Sequential::new("m", [32, 32, 3]).push(Conv2d::new(8, 3).padding(1)).flatten().into();
        assert!(padded.output_shape().is_ok());
        assert_eq!(padded.channels_first(), Some([3, 32, 32].into()));
        for (name, input) in [("resnet18", [224, 224, 3]), ("unet", [256, 256, 1])] {
            let model = models::builtin(name).expect("is there").with_input(input);
            assert_eq!(model.channels_first(), Some([input[2], input[0], input[1]].into()), "{name}");
        }
        // Tables and images as they should be.
        for input in [[3, 32, 32], [4, 3, 3], [32, 5, 5]] {
            let model: Model = Sequential::new("m", input).conv2d(2, 1).into();
            assert_eq!(model.channels_first(), None, "{input:?}");
        }
        assert_eq!(Model::from(Sequential::new("m", [32, 32, 3]).flatten().linear(2)).channels_first(), None);
    }

    #[test]
    fn a_batch_is_no_part_of_an_input() {
        for (input, words) in [
            (&[1, 224, 224, 3][..], "write [3, 224, 224], without the batch of 1"),
            (&[64, 3, 32, 32], "write [3, 32, 32], without the batch of 64"),
            (&[8, 28, 28, 1], "write [1, 28, 28], without the batch of 8"),
        ] {
            let model: Model = Sequential::new("m", input).conv2d(8, 3).flatten().linear(10).into();
            let text = message(&model);
            assert!(text.ends_with(&format!("an input is one sample: {words}")), "{text}");
        }
        let text = message(&models::builtin("resnet18").expect("is there").with_input([2, 3, 64, 64]));
        assert!(text.ends_with("write [3, 64, 64], without the batch of 2"), "{text}");
    }

    #[test]
    fn tokens_without_an_embedding_are_told() {
        let model: Model = Sequential::new("m", Input::tokens([20])).linear(4).into();
        let text = message(&model);
        assert!(text.contains("linear1") && text.contains("the input is tokens: put an embedding first"), "{text}");
    }

    #[test]
    fn what_no_input_mends_is_said_as_it_is() {
        let model: Model = Sequential::new("m", [3, 32, 32]).linear(4).into();
        assert_eq!(message(&model).matches(';').count(), 1, "{}", message(&model));
    }
}

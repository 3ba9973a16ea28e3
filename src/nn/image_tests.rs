//! Layers of sequences, images and volumes.

use super::tests::{error, names};
use super::*;

#[test]
fn layers_of_images_report_their_shapes() {
    let shape = |model: Sequential| model.output_shape().expect("builds").to_string();
    let image = || Sequential::new("m", [4, 9, 7]);
    assert_eq!(shape(image().push(Conv2d::new(8, (3, 5)).same_padding().dilation((2, 1)))), "[8, 9, 7]");
    assert_eq!(shape(image().push(Conv2d::new(8, 3).stride(2).same_padding())), "[8, 5, 4]");
    assert_eq!(shape(image().conv_transpose2d(6, 2)), "[6, 10, 8]");
    let transposed = ConvTranspose2d::new(6, 3).stride(2).padding(1).output_padding((1, 0)).groups(2);
    assert_eq!(shape(image().push(transposed)), "[6, 18, 13]");
    assert_eq!(shape(image().push(ConvTranspose2d::new(6, 3).dilation(2).bias(false))), "[6, 13, 11]");
    assert_eq!(shape(image().adaptive_avg_pool2d((3, 10))), "[4, 3, 10]");
    assert_eq!(shape(image().global_avg_pool()), "[4]");
    assert_eq!(shape(image().squeeze_excite(2)), "[4, 9, 7]");
    assert_eq!(shape(image().pad([(0, 0), (1, 2), (3, 0)])), "[4, 12, 10]");
    assert_eq!(shape(image().push(Upsample::new((2, 3)).bilinear().align_corners(true))), "[4, 18, 21]");
    assert_eq!(shape(image().push(Upsample::to_size((5, 8)).bilinear())), "[4, 5, 8]");
    assert_eq!(shape(image().push(Upsample::to_size((18, 7)))), "[4, 18, 7]");
    assert_eq!(shape(image().push(Conv2d::new(8, 4).same_padding())), "[8, 9, 7]");
    assert_eq!(shape(image().push(Conv2d::new(8, 4).stride(2).same_upper_padding())), "[8, 5, 4]");
    assert_eq!(shape(image().push(Conv2d::new(8, 2).pads(((0, 1), (2, 0))))), "[8, 9, 8]");
    assert_eq!(shape(image().push(ConvTranspose2d::new(6, 3).stride(2).same_upper_padding())), "[6, 18, 14]");
    assert_eq!(shape(image().push(ConvTranspose2d::new(6, 1).stride(3).same_lower_padding())), "[6, 27, 21]");
    assert_eq!(shape(image().push(MaxPool2d::new(2).same_padding())), "[4, 5, 4]");
    assert_eq!(shape(image().push(AvgPool2d::new(2).ceil_mode(true))), "[4, 5, 4]");
    assert_eq!(shape(image().push(DepthwiseConv2d::new(3).depth_multiplier(2))), "[8, 7, 5]");
    assert_eq!(shape(image().separable_conv2d(5, 3)), "[5, 7, 5]");
    assert_eq!(shape(image().global_max_pool()), "[4]");
    assert_eq!(shape(image().cropping([(1, 0), (2, 3), (0, 1)])), "[3, 4, 6]");
    assert_eq!(shape(image().push(Pad::new([(0, 0), (2, 1), (0, 6)]).reflect())), "[4, 12, 13]");
    assert_eq!(shape(image().rescaling(0.5, 1.0)), "[4, 9, 7]");
    let volume = || Sequential::new("m", [4, 6, 9, 7]);
    assert_eq!(shape(volume().push(Conv3d::new(8, (2, 3, 1)).stride((2, 1, 3)).groups(2))), "[8, 3, 7, 3]");
    assert_eq!(shape(volume().push(Conv3d::new(8, 3).dilation((2, 1, 1)).padding((1, 0, 2)))), "[8, 4, 7, 9]");
    assert_eq!(shape(volume().push(Conv3d::new(8, 2).stride(2).same_upper_padding())), "[8, 3, 5, 4]");
    assert_eq!(shape(volume().max_pool3d(2)), "[4, 3, 4, 3]");
    assert_eq!(shape(volume().push(AvgPool3d::new((3, 2, 2)).stride(2).ceil_mode(true))), "[4, 3, 5, 4]");
    assert_eq!(shape(volume().global_avg_pool()), "[4]");
    assert_eq!(shape(volume().global_max_pool()), "[4]");
    let sequence = || Sequential::new("m", [4, 30]);
    assert_eq!(shape(sequence().max_pool1d(4)), "[4, 7]");
    assert_eq!(shape(sequence().push(AvgPool1d::new(4).same_padding())), "[4, 8]");
    assert_eq!(shape(sequence().adaptive_avg_pool1d(7)), "[4, 7]");
    assert_eq!(shape(sequence().upsample1d(3)), "[4, 90]");
    assert_eq!(shape(sequence().push(Upsample1d::to_size(41).linear())), "[4, 41]");
    assert_eq!(shape(sequence().push(ConvTranspose1d::new(6, 3).stride(2).output_padding(1))), "[6, 62]");
    assert_eq!(shape(sequence().conv1d(8, 5)), "[8, 26]");
    assert_eq!(shape(sequence().push(Conv1d::new(8, 5).same_padding().dilation(3).groups(4))), "[8, 30]");
    assert_eq!(shape(sequence().push(Conv1d::new(8, 2).stride(2).padding(1)).global_avg_pool()), "[8]");
}

#[test]
fn parameters_of_convolutions_are_shaped_as_in_pytorch() {
    let image = || Sequential::new("m", [6, 8, 8]);
    let transposed = ConvTranspose2d::new(4, (3, 2)).groups(2);
    assert_eq!(names(image().push(transposed)), ["conv_transpose1.weight [6, 2, 3, 2]", "conv_transpose1.bias [4]"]);
    let sequence = Sequential::new("m", [6, 8]).push(Conv1d::new(4, 3).groups(2));
    assert_eq!(names(sequence), ["conv1.weight [4, 3, 3]", "conv1.bias [4]"]);
    let sequence = Sequential::new("m", [6, 8]).push(ConvTranspose1d::new(4, 3).groups(2));
    assert_eq!(names(sequence), ["conv_transpose1.weight [6, 2, 3]", "conv_transpose1.bias [4]"]);
    let volume = Sequential::new("m", [6, 8, 8, 8]).push(Conv3d::new(4, (3, 2, 1)).groups(2));
    assert_eq!(names(volume), ["conv1.weight [4, 3, 3, 2, 1]", "conv1.bias [4]"]);
    let depthwise = image().push(DepthwiseConv2d::new(3).depth_multiplier(2));
    assert_eq!(names(depthwise), ["conv1.weight [12, 1, 3, 3]", "conv1.bias [12]"]);
    let separable = image().push(SeparableConv2d::new(4, 3).depth_multiplier(2));
    assert_eq!(
        names(separable),
        ["conv1.depthwise.weight [12, 1, 3, 3]", "conv1.pointwise.weight [4, 12, 1, 1]", "conv1.pointwise.bias [4]"]
    );
    let squeeze = Model::new("m", [6, 8, 8], |x| x.layer("features.1", SqueezeExcite::new(2).silu().hard_sigmoid()));
    assert_eq!(
        names(squeeze),
        [
            "features.1.fc1.weight [2, 6, 1, 1]",
            "features.1.fc1.bias [2]",
            "features.1.fc2.weight [6, 2, 1, 1]",
            "features.1.fc2.bias [6]",
        ]
    );
}

#[test]
fn layers_of_images_refuse_what_does_not_fit() {
    let image = || Sequential::new("m", [4, 9, 7]);
    let transposed = || ConvTranspose2d::new(4, 3);
    for (model, expected) in [
        (image().push(Conv2d::new(4, 2).pads(((0, 1 << 30), (0, 0)))), "padding must be at most"),
        (image().push(MaxPool2d::new(2).pads(((0, 2), (0, 0)))), "padding 2 must be less than the window of 2"),
        (image().push(MaxPool2d::new(12).ceil_mode(true).stride(3)), "a window 12 high does not fit an image 9 high"),
        (image().max_pool1d(2), "expects a sample of shape [channels, length], found [4, 9, 7]"),
        (image().conv3d(4, 2), "expects a sample of shape [channels, depth, height, width], found [4, 9, 7]"),
        (
            Sequential::new("m", [4, 3, 9, 7]).conv3d(4, (4, 1, 1)),
            "a window 4 deep does not fit a volume 3 deep (padding counted)",
        ),
        (image().push(DepthwiseConv2d::new(3).depth_multiplier(0)), "depth_multiplier must be at least 1, found 0"),
        (image().separable_conv2d(0, 3), "out_channels must be at least 1, found 0"),
        (image().cropping([(0, 0), (4, 5), (0, 0)]), "crops (4, 5) leave nothing of axis 1 of the sample, which has 9"),
        (image().cropping([(0, 0)]), "crops [(0, 0)] must name each of the 3 axes of a sample of shape [4, 9, 7]"),
        (image().push(Pad::new([(0, 0), (9, 0), (0, 0)]).reflect()), "axis 1 of the sample has 9, so at most 8"),
        (image().push(Pad::new([(0, 0), (0, 0), (0, 8)]).circular()), "axis 2 of the sample has 7, so at most 7"),
        (image().push(Pad::new([(0, 0); 3]).value(1.0).edge()), "value is for the mode constant only"),
        (image().rescaling(f32::INFINITY, 0.0), "scale must be a number, found inf"),
        (
            Sequential::new("m", [4, 6]).push(Upsample1d::to_size(7)),
            "size 7 must be a multiple of the sequence's 6; the mode linear makes any size",
        ),
        (
            image().push(transposed().groups(3)),
            "groups = 3 must divide both 4 channels, which come in, and out_channels = 4",
        ),
        (
            image().push(transposed().output_padding(1)),
            "output_padding = (1, 1) is not possible: it must be below stride",
        ),
        (image().push(transposed().padding(6)), "padding = (6, 6) is not possible"),
        (image().flatten().conv_transpose2d(4, 3), "expects a sample of shape [channels, height, width], found [252]"),
        (image().conv1d(4, 3), "expects a sample of shape [channels, length], found [4, 9, 7]"),
        (Sequential::new("m", [4, 6]).conv1d(4, 7), "a window 7 long does not fit a sequence 6 long"),
        (image().adaptive_avg_pool2d(0), "size must be at least 1, found 0"),
        (
            image().flatten().global_avg_pool(),
            "expects a sample of shape [channels, height, width] or [channels, length]",
        ),
        (image().squeeze_excite(0), "squeeze_channels must be at least 1, found 0"),
        (image().pad([(1, 1)]), "pads [(1, 1)] must name each of the 3 axes of a sample of shape [4, 9, 7]"),
        (image().push(Pad::new([(0, 0); 3]).value(f32::NAN)), "value must be a number"),
        (image().push(Upsample::new(2).align_corners(true)), "align_corners is for the mode bilinear only"),
        (image().push(Upsample::to_size(20)), "size [20, 20] must be a multiple of the image's [9, 7]"),
    ] {
        let error = error(&model);
        assert!(error.contains(expected), "{error}");
    }
    let text = toml::to_string(&image().upsample(2)).expect("serializes").replace("scale = 2\n", "");
    let neither: Sequential = toml::from_str(&text).expect("parses");
    assert!(error(&neither).contains("either scale or size must be given"));
}

#[test]
fn files_of_before_have_the_same_meaning() {
    let layer = |text: &str| toml::from_str::<Layer>(text).expect(text);
    let conv = "kind = \"conv2d\"\nout_channels = 4\nkernel = 3\n";
    assert_eq!(layer(&format!("{conv}padding = 1")), Conv2d::new(4, 3).padding(1).into());
    assert_eq!(layer(&format!("{conv}padding = [1, 2]")), Conv2d::new(4, 3).padding((1, 2)).into());
    assert_eq!(layer(&format!("{conv}padding = \"same\"")), Conv2d::new(4, 3).same_padding().into());
    assert_eq!(layer(&format!("{conv}padding = [[1, 2], [0, 3]]")), Conv2d::new(4, 3).pads(((1, 2), (0, 3))).into());
    assert_eq!(layer("kind = \"max_pool2d\"\nkernel = 3\npadding = 1"), MaxPool2d::new(3).padding(1).into());
    assert_eq!(layer("kind = \"avg_pool2d\"\nkernel = 2"), AvgPool2d::new(2).into());
    assert_eq!(layer("kind = \"pad\"\npads = [[1, 2]]"), Pad::new([(1, 2)]).into());
    let refused = toml::from_str::<Layer>(&format!("{conv}padding = \"full\"")).expect_err("no such word").to_string();
    assert!(refused.contains("same_upper"), "{refused}");
}

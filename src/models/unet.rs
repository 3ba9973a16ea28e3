//! U-Net: <https://arxiv.org/abs/1505.04597>, with batch norm and padded convolutions.

use crate::nn::{BatchNorm, Conv2d, ConvTranspose2d, Model, Scheme, Tensor};

/// A U-Net of four steps down and four up: for each pixel of an image, one logit for each class. The first step has `base`
/// channels (64 in the paper), each next twice as many. Height and width of the image must be multiples of 16.
pub fn unet(classes: usize, base: usize) -> Model {
    let name = match base {
        64 => "unet".to_owned(),
        16 => "unet_small".to_owned(),
        _ => format!("unet_{base}"),
    };
    Model::new(name, [3, 256, 256], move |x| {
        let mut x = x;
        let mut skips = Vec::new();
        for step in 1..=4 {
            let skip = two_convs(x, &format!("enc{step}"), base << (step - 1));
            skips.push((step, skip));
            x = skip.max_pool2d(2);
        }
        x = two_convs(x, "bottleneck", base << 4);
        for (step, skip) in skips.into_iter().rev() {
            let channels = base << (step - 1);
            let up = x.layer(&format!("up{step}"), ConvTranspose2d::new(channels, 2).stride(2));
            x = two_convs(skip.concat(up, 1), &format!("dec{step}"), channels);
        }
        x.layer("head", Conv2d::new(classes, 1))
    })
}

/// Twice a 3×3 convolution, batch norm and ReLU.
fn two_convs<'a>(x: Tensor<'a>, name: &str, channels: usize) -> Tensor<'a> {
    let conv = || Conv2d::new(channels, 3).padding(1).bias(false).init(Scheme::KaimingNormal);
    x.within(name, |x| {
        let x = x.layer("0", conv()).layer("1", BatchNorm::new()).relu();
        x.layer("3", conv()).layer("4", BatchNorm::new()).relu()
    })
}

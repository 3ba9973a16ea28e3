//! LeNet-5, after <http://yann.lecun.com/exdb/publis/pdf/lecun-98.pdf>, with ReLU and max pooling.

use crate::nn::{Conv2d, Linear, Model};

/// LeNet-5 for grey images of 28 pixels: 61.7 thousand parameters for ten classes.
pub fn lenet(classes: usize) -> Model {
    Model::new("lenet", [1, 28, 28], move |x| {
        let x = x.layer("conv1", Conv2d::new(6, 5).padding(2)).relu().max_pool2d(2);
        let x = x.layer("conv2", Conv2d::new(16, 5)).relu().max_pool2d(2).flatten();
        let x = x.layer("fc1", Linear::new(120)).relu().layer("fc2", Linear::new(84)).relu();
        x.layer("fc3", Linear::new(classes))
    })
}

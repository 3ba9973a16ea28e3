//! Three-dimensional convolution, by a two-dimensional one: planes that a window meets are put side by side as channels, and windows
//! along the depth beside one another as samples.

use super::{Conv3d, check_groups, check_windows, windows};
use crate::error::GraphError;
use crate::nn::layers::padding::{Window, check, for_op};
use crate::nn::layers::{Module, Triple};
use crate::nn::scope::Scope;
use crate::ops::conv::conv2d::Conv2d;
use crate::ops::shape::concat::Concat;
use crate::ops::shape::pad::Pad;
use crate::ops::shape::permute::Permute;
use crate::ops::shape::reshape::Reshape;
use crate::ops::shape::slice::Slice;
use crate::tensor::ValueId;

impl Module for Conv3d {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        for (name, Triple(depth, height, width)) in
            [("kernel", self.kernel), ("stride", self.stride), ("dilation", self.dilation)]
        {
            scope.check_setting(name, depth, 1)?;
            scope.check_pair(name, (height, width).into(), 1)?;
        }
        let shape = scope.shape(input);
        let [samples, in_channels, depth, height, width] = shape[..] else {
            return Err(scope.wrong_input("a sample of shape [channels, depth, height, width]", &shape, ""));
        };
        let windows = windows([depth, height, width], [self.kernel, self.stride, self.dilation]);
        let sides = self.padding.sides(windows);
        check(scope, &sides)?;
        check_groups(scope, self.groups, in_channels, self.out_channels)?;
        check_windows(scope, windows, sides, ["deep", "high", "wide"], "a volume")?;

        let per_group = in_channels / self.groups;
        let Triple(kernel_d, kernel_h, kernel_w) = self.kernel;
        let taps = kernel_d * kernel_h * kernel_w;
        let (weight_init, bias_init) = self.init.init(per_group * taps, self.out_channels * taps);
        let full = [self.out_channels, per_group, kernel_d, kernel_h, kernel_w];
        let weight = scope.parameter("weight", full, weight_init)?;
        let flat = [self.out_channels, per_group * kernel_d, kernel_h, kernel_w];
        let weight = scope.apply(Reshape { shape: flat.into() }, &[weight])?;

        let planes = unfold(scope, input, windows[0], sides[0])?;
        let outputs = scope.shape(planes)[0] / samples;
        let mut inputs = vec![planes, weight];
        if self.bias {
            inputs.push(scope.parameter("bias", [self.out_channels], bias_init)?);
        }
        let (padding, padding_end) = for_op([sides[1], sides[2]]);
        let op = Conv2d {
            stride: (self.stride.1, self.stride.2),
            padding,
            padding_end,
            dilation: (self.dilation.1, self.dilation.2),
            groups: self.groups,
            bias: self.bias,
            relu: false,
        };
        let made = scope.apply(op, &inputs)?;
        let [_, channels, height, width] = scope.shape(made)[..] else { unreachable!("bug: images have four axes") };
        let apart = scope.apply(Reshape { shape: [samples, outputs, channels, height * width].into() }, &[made])?;
        let volumes = scope.apply(Permute { axes: vec![0, 2, 1, 3] }, &[apart])?;
        scope.apply(Reshape { shape: [samples, channels, outputs, height, width].into() }, &[volumes])
    }
}

/// Of `[N, C, D, H, W]`: `[N · outputs, C · kernel, H, W]`, the planes that each window along the depth meets.
fn unfold(
    scope: &mut Scope<'_>,
    input: ValueId,
    window: Window,
    (before, after): (usize, usize),
) -> Result<ValueId, GraphError> {
    let [samples, channels, depth, height, width] = scope.shape(input)[..] else {
        unreachable!("bug: volumes have five axes")
    };
    let Window { kernel, stride, dilation, .. } = window;
    let plane = height * width;
    let outputs = (depth + before + after - window.reach()) / stride + 1;
    let volumes = scope.apply(Reshape { shape: [samples, channels, depth, plane].into() }, &[input])?;
    let mut deep = scope.apply(Permute { axes: vec![0, 2, 1, 3] }, &[volumes])?;
    // As many planes behind as strides are whole, for the last place of the kernel too.
    let needed = (kernel - 1) * dilation + outputs * stride;
    let padded = (before + depth + after).max(needed);
    if padded > depth {
        let pads = vec![(0, 0), (before, padded - depth - before), (0, 0), (0, 0)];
        deep = scope.apply(Pad { pads, value: 0.0 }, &[deep])?;
    }
    let mut places = Vec::with_capacity(kernel);
    for place in 0..kernel {
        let cut = Slice { axis: 1, start: place * dilation, length: outputs * stride };
        let mut met = if cut.length == padded { deep } else { scope.apply(cut, &[deep])? };
        if stride > 1 {
            let shape = [samples, outputs, stride, channels, plane];
            let strides = scope.apply(Reshape { shape: shape.into() }, &[met])?;
            met = scope.apply(Slice { axis: 2, start: 0, length: 1 }, &[strides])?;
        }
        places.push(scope.apply(Reshape { shape: [samples, outputs, channels, 1, plane].into() }, &[met])?);
    }
    // By pairs of neighbours, so that each element is copied few times.
    while places.len() > 1 {
        let pairs = places.chunks(2);
        let join = |pair: &[ValueId]| {
            if let [one] = pair { Ok(*one) } else { scope.apply(Concat { axis: 3 }, pair) }
        };
        places = pairs.map(join).collect::<Result<_, GraphError>>()?;
    }
    scope.apply(Reshape { shape: [samples * outputs, channels * kernel, height, width].into() }, &[places[0]])
}

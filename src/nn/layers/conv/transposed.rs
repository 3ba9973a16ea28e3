//! Transposed convolutions.

use super::{ConvTranspose1d, ConvTranspose2d, as_rows, as_sequences, check_groups, image, padding_of_rows, windows};
use crate::error::GraphError;
use crate::nn::layers::padding::{Padding, check, for_op};
use crate::nn::layers::{Module, Pair};
use crate::nn::scope::Scope;
use crate::ops::conv::conv_transpose2d;
use crate::ops::shape::reshape::Reshape;
use crate::tensor::ValueId;

impl ConvTranspose2d {
    /// Adds the convolution of a batch of images. Where they are sequences, of height 1, the weights have no axis for it.
    fn convolve(&self, scope: &mut Scope<'_>, input: ValueId, is_sequence: bool) -> Result<ValueId, GraphError> {
        scope.check_pair("kernel", self.kernel, 1)?;
        scope.check_pair("stride", self.stride, 1)?;
        scope.check_pair("output_padding", self.output_padding, 0)?;
        scope.check_pair("dilation", self.dilation, 1)?;
        let [_, in_channels, height, width] = image(scope, input)?;
        let windows = windows([height, width], [self.kernel, self.stride, self.dilation]);
        let (sides, output_padding) = match self.padding {
            Padding::Word(word) => {
                let [rows, columns] = [
                    word.transposed(windows[0], self.output_padding.0),
                    word.transposed(windows[1], self.output_padding.1),
                ];
                ([(rows.0, rows.1), (columns.0, columns.1)], (rows.2, columns.2))
            }
            padding => (padding.sides(windows), self.output_padding.into()),
        };
        check(scope, &sides)?;
        check_groups(scope, self.groups, in_channels, self.out_channels)?;
        let per_group = self.out_channels / self.groups;
        let Pair(kernel_h, kernel_w) = self.kernel;
        let taps = kernel_h * kernel_w;
        let (weight_init, bias_init) = self.init.init(per_group * taps, in_channels * taps);
        let full = [in_channels, per_group, kernel_h, kernel_w];
        let weight = if is_sequence {
            let weight = scope.parameter("weight", [in_channels, per_group, kernel_w], weight_init)?;
            scope.apply(Reshape { shape: full.into() }, &[weight])?
        } else {
            scope.parameter("weight", full, weight_init)?
        };
        let mut inputs = vec![input, weight];
        if self.bias {
            inputs.push(scope.parameter("bias", [self.out_channels], bias_init)?);
        }
        let (padding, padding_end) = for_op(sides);
        let op = conv_transpose2d::ConvTranspose2d {
            stride: self.stride.into(),
            padding,
            padding_end,
            output_padding,
            dilation: self.dilation.into(),
            groups: self.groups,
            bias: self.bias,
        };
        scope.apply(op, &inputs)
    }
}

impl Module for ConvTranspose2d {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        self.convolve(scope, input, false)
    }
}

impl Module for ConvTranspose1d {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        let row = ConvTranspose2d {
            out_channels: self.out_channels,
            kernel: Pair(1, self.kernel),
            stride: Pair(1, self.stride),
            padding: padding_of_rows(self.padding),
            output_padding: Pair(0, self.output_padding),
            dilation: Pair(1, self.dilation),
            groups: self.groups,
            bias: self.bias,
            init: self.init,
        };
        let rows = as_rows(scope, input)?;
        let output = row.convolve(scope, rows, true)?;
        as_sequences(scope, output)
    }
}

//! Pooling over windows of one to three dimensions, by ops of two.

use crate::error::GraphError;
use crate::nn::layers::padding::{Padding, Window, Word, check};
use crate::nn::layers::sizes::{Extents, Sides};
use crate::nn::scope::Scope;
use crate::ops::pool::avg_pool2d::AvgPool2d;
use crate::ops::pool::max_pool2d::MaxPool2d;
use crate::ops::shape::reshape::Reshape;
use crate::tensor::ValueId;

/// What is taken of a window.
#[derive(Clone, Copy, Debug)]
pub(super) enum Of {
    Largest,
    Mean { count_include_pad: bool },
}

/// Settings of windows along some axes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pooling<S, P> {
    pub(super) kernel: S,
    pub(super) stride: S,
    pub(super) padding: Padding<S, P>,
    pub(super) ceil_mode: bool,
}

/// Windows along one axis.
#[derive(Clone, Copy, Debug)]
struct Axis {
    kernel: usize,
    stride: usize,
    before: usize,
    /// Where it is not `before`.
    after: Option<usize>,
    ceil_mode: bool,
}

impl Axis {
    /// Each element by itself.
    const NONE: Axis = Axis { kernel: 1, stride: 1, before: 0, after: None, ceil_mode: false };
}

/// What the axes of a sample and their sizes are called.
fn names(axes: usize) -> (&'static str, &'static [&'static str], &'static str) {
    match axes {
        1 => ("[channels, length]", &["long"], "a sequence"),
        2 => ("[channels, height, width]", &["high", "wide"], "an image"),
        _ => ("[channels, depth, height, width]", &["deep", "high", "wide"], "a volume"),
    }
}

impl<S, P> Pooling<S, P> {
    /// The windows along each axis, if they fit.
    fn axes<const N: usize>(&self, scope: &Scope<'_>, shape: &[usize]) -> Result<[Axis; N], GraphError>
    where
        S: Extents<N>,
        P: Sides<N>,
    {
        let [kernel, stride] = [self.kernel, self.stride].map(Extents::extents);
        for (name, values) in [("kernel", kernel), ("stride", stride)] {
            values.iter().try_for_each(|&value| scope.check_setting(name, value, 1))?;
        }
        let (sample, words, what) = names(N);
        if shape.len() != N + 2 {
            return Err(scope.wrong_input(&format!("a sample of shape {sample}"), shape, ""));
        }
        let windows =
            std::array::from_fn(|d| Window { input: shape[d + 2], kernel: kernel[d], stride: stride[d], dilation: 1 });
        // Of pooling there is one "same", Keras's.
        let padding = match self.padding {
            Padding::Word(Word::Same) => Padding::Word(Word::SameUpper),
            padding => padding,
        };
        let sides = padding.sides(windows);
        check(scope, &sides)?;
        let is_even = matches!(self.padding, Padding::Size(_));
        for ((window, (before, after)), word) in windows.iter().zip(sides).zip(words) {
            let kernel = window.kernel;
            if is_even && before > kernel / 2 {
                return Err(scope.error(format!("padding {before} must be at most half the window of {kernel}")));
            }
            if before.max(after) >= kernel && before.max(after) > 0 {
                let most = before.max(after);
                return Err(scope.error(format!("padding {most} must be less than the window of {kernel}")));
            }
            let (size, padded) = (window.input, window.input + before + after);
            // With ceil_mode, a window may be smaller than it is by less than a stride.
            let missing = kernel.saturating_sub(padded);
            if missing > 0 && !(self.ceil_mode && missing < window.stride) {
                return Err(scope.error(format!("a window {kernel} {word} does not fit {what} {size} {word}")));
            }
        }
        Ok(std::array::from_fn(|d| Axis {
            kernel: kernel[d],
            stride: stride[d],
            before: sides[d].0,
            after: (!is_even).then_some(sides[d].1),
            ceil_mode: self.ceil_mode,
        }))
    }

    /// Pools a batch of sequences, images or volumes.
    pub(super) fn build<const N: usize>(
        &self,
        scope: &mut Scope<'_>,
        input: ValueId,
        of: Of,
    ) -> Result<ValueId, GraphError>
    where
        S: Extents<N>,
        P: Sides<N>,
    {
        let shape = scope.shape(input);
        let axes: [Axis; N] = self.axes(scope, &shape)?;
        match (&axes[..], &shape[..]) {
            (&[wide], &[samples, channels, length]) => {
                let rows = reshape(scope, input, [samples, channels, 1, length])?;
                let pooled = pool(scope, rows, [Axis::NONE, wide], of)?;
                let length = scope.shape(pooled)[3];
                reshape(scope, pooled, [samples, channels, length])
            }
            (&[high, wide], _) => pool(scope, input, [high, wide], of),
            // First within each plane, then from plane to plane. Of equals that is still the first in reading order, and the
            // elements that a mean is of are those of the planes times those of a plane.
            (&[deep, high, wide], &[samples, channels, depth, height, width]) => {
                let planes = reshape(scope, input, [samples, channels * depth, height, width])?;
                let pooled = pool(scope, planes, [high, wide], of)?;
                let [_, _, height, width] = scope.shape(pooled)[..] else { unreachable!("bug: images have four axes") };
                let columns = reshape(scope, pooled, [samples, channels, depth, height * width])?;
                let pooled = pool(scope, columns, [deep, Axis::NONE], of)?;
                let depth = scope.shape(pooled)[2];
                reshape(scope, pooled, [samples, channels, depth, height, width])
            }
            _ => unreachable!("bug: windows of {N} axes over a tensor of shape {shape:?}"),
        }
    }
}

fn reshape<const N: usize>(scope: &mut Scope<'_>, value: ValueId, shape: [usize; N]) -> Result<ValueId, GraphError> {
    scope.apply(Reshape { shape: shape.into() }, &[value])
}

/// Pools a batch of images.
fn pool(scope: &mut Scope<'_>, input: ValueId, axes: [Axis; 2], of: Of) -> Result<ValueId, GraphError> {
    let [kernel, stride, padding] =
        [axes.map(|axis| axis.kernel), axes.map(|axis| axis.stride), axes.map(|axis| axis.before)];
    let end = axes.map(|axis| axis.after.unwrap_or(axis.before));
    let padding_end = axes.iter().any(|axis| axis.after.is_some()).then_some(end);
    let ceil_mode = axes.iter().any(|axis| axis.ceil_mode);
    match of {
        Of::Largest => Ok(scope.apply_all(MaxPool2d { kernel, stride, padding, padding_end, ceil_mode }, &[input])?[0]),
        Of::Mean { count_include_pad } => {
            let op = AvgPool2d { kernel, stride, padding, padding_end, ceil_mode, count_include_pad };
            scope.apply(op, &[input])
        }
    }
}

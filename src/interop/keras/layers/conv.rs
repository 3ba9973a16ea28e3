//! Convolutions.

use super::activation::Activation;
use crate::error::ImportError;
use crate::interop::keras::config::Config;
use crate::interop::keras::value::{Call, Layer, Value};
use crate::interop::keras::weights::{Form, Slot};
use crate::nn::{
    Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, DepthwiseConv2d, Scheme, SeparableConv2d, Tensor,
};

/// How the border is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Padding {
    Valid,
    Same,
    /// As many zeros before a sequence as a window reaches back.
    Causal,
}

/// What a convolution does with the channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain { groups: usize },
    Depthwise { multiplier: usize },
    Separable { multiplier: usize },
}

/// Settings that convolutions share.
#[derive(Debug)]
struct Conv {
    kind: Kind,
    /// Of a depthwise one, nothing.
    filters: usize,
    kernel: Vec<usize>,
    stride: Vec<usize>,
    dilation: Vec<usize>,
    padding: Padding,
    bias: bool,
    channels_last: bool,
    init: Scheme,
    activation: Activation,
}

/// Settings of a convolution of a dimension, under their names in all layers of this kind.
macro_rules! with_settings {
    ($layer:expr, $conv:expr, $stride:expr, $dilation:expr, $pads:expr) => {{
        let layer = $layer.stride($stride).dilation($dilation).bias($conv.bias).init($conv.init);
        match $conv.padding {
            Padding::Valid => layer,
            Padding::Same => layer.same_upper_padding(),
            Padding::Causal => layer.pads($pads),
        }
    }};
}

impl Conv {
    fn in_one<'a>(&self, call: &Call<'_, 'a>, x: Tensor<'a>) -> Tensor<'a> {
        let (kernel, stride, dilation) = (self.kernel[0], self.stride[0], self.dilation[0]);
        let pads = (dilation.saturating_mul(kernel.saturating_sub(1)), 0);
        let channels = x.channels();
        let plain = |outputs: usize, groups: usize| {
            with_settings!(Conv1d::new(outputs, kernel), self, stride, dilation, pads).groups(groups)
        };
        match self.kind {
            Kind::Plain { groups } => call.layer(x, plain(self.filters, groups)),
            Kind::Depthwise { multiplier } => call.layer(x, plain(channels.saturating_mul(multiplier), channels)),
            Kind::Separable { multiplier } => {
                let depthwise = plain(channels.saturating_mul(multiplier), channels).bias(false);
                let apart = call.part(x, "depthwise", depthwise);
                let pointwise = Conv1d::new(self.filters, 1).bias(self.bias).init(self.init);
                call.part(apart, "pointwise", pointwise)
            }
        }
    }

    fn in_two<'a>(&self, call: &Call<'_, 'a>, x: Tensor<'a>) -> Tensor<'a> {
        let [kernel, stride, dilation] = [&self.kernel, &self.stride, &self.dilation].map(|of| (of[0], of[1]));
        let none = ((0, 0), (0, 0));
        match self.kind {
            Kind::Plain { groups } => {
                let conv = Conv2d::new(self.filters, kernel).groups(groups);
                call.layer(x, with_settings!(conv, self, stride, dilation, none))
            }
            Kind::Depthwise { multiplier } => {
                let conv = DepthwiseConv2d::new(kernel).depth_multiplier(multiplier);
                call.layer(x, with_settings!(conv, self, stride, dilation, none))
            }
            Kind::Separable { multiplier } => {
                let conv = SeparableConv2d::new(self.filters, kernel).depth_multiplier(multiplier);
                call.layer(x, with_settings!(conv, self, stride, dilation, none))
            }
        }
    }

    fn in_three<'a>(&self, call: &Call<'_, 'a>, x: Tensor<'a>) -> Tensor<'a> {
        let [kernel, stride, dilation] = [&self.kernel, &self.stride, &self.dilation].map(|of| (of[0], of[1], of[2]));
        let none = ((0, 0), (0, 0), (0, 0));
        let groups = if let Kind::Plain { groups } = self.kind { groups } else { 1 };
        let conv = Conv3d::new(self.filters, kernel).groups(groups);
        call.layer(x, with_settings!(conv, self, stride, dilation, none))
    }
}

impl Layer for Conv {
    fn apply<'a>(&self, call: &Call<'_, 'a>) -> Value<'a> {
        let axes = self.kernel.len();
        if call.input().rank() != axes + 1 {
            let found = call.input().rank();
            return call.fail(format!("takes samples of {} axes, found {found}", axes + 1));
        }
        let x = call.input().spatial(self.channels_last);
        let output = match axes {
            1 => self.in_one(call, x),
            2 => self.in_two(call, x),
            _ => self.in_three(call, x),
        };
        let value = if self.channels_last { Value::first(output) } else { Value::plain(output) };
        self.activation.apply(value, call.name)
    }

    fn slots(&self) -> Vec<Slot> {
        let axes = self.kernel.len();
        // [kernel…, inputs, outputs] to [outputs, inputs, kernel…]
        let plain = |name: &str| {
            let order = [axes + 1, axes].into_iter().chain(0..axes).collect();
            Form::Permuted { name: name.to_owned(), axes: order }
        };
        let depthwise = |name: &str, multiplier| Form::Depthwise { name: name.to_owned(), multiplier };
        let (kernels, bias) = match self.kind {
            Kind::Plain { .. } => (vec![plain("weight")], "bias"),
            Kind::Depthwise { multiplier } => (vec![depthwise("weight", multiplier)], "bias"),
            Kind::Separable { multiplier } => {
                (vec![depthwise("depthwise.weight", multiplier), plain("pointwise.weight")], "pointwise.bias")
            }
        };
        let forms = kernels.into_iter().chain(self.bias.then(|| Form::same(bias)));
        forms.enumerate().map(|(index, form)| Slot::new(index, form)).collect()
    }

    fn converts(&self) -> bool {
        self.channels_last
    }
}

/// A transposed convolution.
#[derive(Debug)]
struct Transposed {
    filters: usize,
    kernel: Vec<usize>,
    stride: Vec<usize>,
    dilation: Vec<usize>,
    same: bool,
    output_padding: Option<Vec<usize>>,
    bias: bool,
    channels_last: bool,
    init: Scheme,
    activation: Activation,
}

impl Transposed {
    /// What is cut off before and behind an axis, and what is added behind, so that the output is as large as Keras makes it.
    fn sides(&self, axis: usize) -> (usize, usize, usize) {
        let (kernel, stride) = (self.kernel[axis], self.stride[axis]);
        let reach = self.dilation[axis].saturating_mul(kernel.saturating_sub(1)).saturating_add(1);
        let given = self.output_padding.as_ref().map(|padding| padding[axis]);
        if !self.same {
            return (0, 0, given.unwrap_or_else(|| stride.saturating_sub(reach)));
        }
        // Out of stride · (inputs − 1) + reach elements, and so many behind the first input's last one.
        let total = match given {
            None => (stride + reach).saturating_sub(2),
            Some(padding) => (reach + reach % 2 + padding).saturating_sub(2),
        };
        let before = (total - total / 2).min(reach - 1);
        let (cut_before, behind) = (reach - 1 - before, total - before);
        (cut_before, (reach - 1).saturating_sub(behind), behind.saturating_sub(reach - 1))
    }
}

impl Layer for Transposed {
    fn apply<'a>(&self, call: &Call<'_, 'a>) -> Value<'a> {
        let x = call.input().spatial(self.channels_last);
        let output = if self.kernel.len() == 1 {
            let (before, after, more) = self.sides(0);
            let layer = ConvTranspose1d::new(self.filters, self.kernel[0])
                .stride(self.stride[0])
                .dilation(self.dilation[0])
                .pads((before, after))
                .output_padding(more);
            call.layer(x, layer.bias(self.bias).init(self.init))
        } else {
            let (rows, columns) = (self.sides(0), self.sides(1));
            let layer = ConvTranspose2d::new(self.filters, (self.kernel[0], self.kernel[1]))
                .stride((self.stride[0], self.stride[1]))
                .dilation((self.dilation[0], self.dilation[1]))
                .pads(((rows.0, rows.1), (columns.0, columns.1)))
                .output_padding((rows.2, columns.2));
            call.layer(x, layer.bias(self.bias).init(self.init))
        };
        let value = if self.channels_last { Value::first(output) } else { Value::plain(output) };
        self.activation.apply(value, call.name)
    }

    fn slots(&self) -> Vec<Slot> {
        let axes = self.kernel.len();
        // [kernel…, outputs, inputs] to [inputs, outputs, kernel…]
        let order = [axes + 1, axes].into_iter().chain(0..axes).collect();
        let mut slots = vec![Slot::new(0, Form::Permuted { name: "weight".to_owned(), axes: order })];
        if self.bias {
            slots.push(Slot::new(1, Form::same("bias")));
        }
        slots
    }

    fn converts(&self) -> bool {
        self.channels_last
    }
}

/// A layer of these classes, if it is one.
pub(super) fn parse(config: &Config<'_>) -> Result<Option<Box<dyn Layer>>, ImportError> {
    let (axes, kind) = match config.class {
        "Conv1D" | "Convolution1D" => (1, Kind::Plain { groups: config.count_or("groups", 1)? }),
        "Conv2D" | "Convolution2D" => (2, Kind::Plain { groups: config.count_or("groups", 1)? }),
        "Conv3D" | "Convolution3D" => (3, Kind::Plain { groups: config.count_or("groups", 1)? }),
        "DepthwiseConv1D" => (1, Kind::Depthwise { multiplier: config.count_or("depth_multiplier", 1)? }),
        "DepthwiseConv2D" => (2, Kind::Depthwise { multiplier: config.count_or("depth_multiplier", 1)? }),
        "SeparableConv1D" => (1, Kind::Separable { multiplier: config.count_or("depth_multiplier", 1)? }),
        "SeparableConv2D" => (2, Kind::Separable { multiplier: config.count_or("depth_multiplier", 1)? }),
        "Conv1DTranspose" => return Ok(Some(Box::new(transposed(config, 1)?))),
        "Conv2DTranspose" => return Ok(Some(Box::new(transposed(config, 2)?))),
        _ => return Ok(None),
    };
    config.refuse("lora_rank", "merge it into the kernel before saving")?;
    let padding = match config.text("padding", "valid")? {
        "valid" => Padding::Valid,
        "same" => Padding::Same,
        "causal" if axes == 1 => Padding::Causal,
        other => {
            return Err(config.unsupported(format!("the padding \"{other}\" is none of Keras's: use valid or same")));
        }
    };
    let initializer = if let Kind::Plain { .. } = kind { "kernel_initializer" } else { "depthwise_initializer" };
    Ok(Some(Box::new(Conv {
        kind,
        filters: if let Kind::Depthwise { .. } = kind { 0 } else { config.count("filters")? },
        kernel: positive(config, "kernel_size", config.counts("kernel_size", axes)?)?,
        stride: positive(config, "strides", config.counts_or("strides", axes, 1)?)?,
        dilation: positive(config, "dilation_rate", config.counts_or("dilation_rate", axes, 1)?)?,
        padding,
        bias: config.bool("use_bias", true)?,
        channels_last: config.channels_last()?,
        init: config.scheme(initializer),
        activation: Activation::of(config, "activation")?,
    })))
}

/// None is 0 or absurd.
pub(super) fn positive(config: &Config<'_>, key: &str, counts: Vec<usize>) -> Result<Vec<usize>, ImportError> {
    match counts.iter().find(|count| !(1..=1 << 24).contains(*count)) {
        None => Ok(counts),
        Some(count) => {
            Err(config.unsupported(format!("`{key}` has {count}, which is no size: it must be 1 to 16777216")))
        }
    }
}

fn transposed(config: &Config<'_>, axes: usize) -> Result<Transposed, ImportError> {
    let output_padding = match config.get("output_padding") {
        None => None,
        Some(_) => Some(config.counts("output_padding", axes)?),
    };
    Ok(Transposed {
        filters: config.count("filters")?,
        kernel: positive(config, "kernel_size", config.counts("kernel_size", axes)?)?,
        stride: positive(config, "strides", config.counts_or("strides", axes, 1)?)?,
        dilation: positive(config, "dilation_rate", config.counts_or("dilation_rate", axes, 1)?)?,
        same: match config.text("padding", "valid")? {
            "valid" => false,
            "same" => true,
            other => {
                return Err(
                    config.unsupported(format!("the padding \"{other}\" is none of Keras's: use valid or same"))
                );
            }
        },
        output_padding,
        bias: config.bool("use_bias", true)?,
        channels_last: config.channels_last()?,
        init: config.scheme("kernel_initializer"),
        activation: Activation::of(config, "activation")?,
    })
}

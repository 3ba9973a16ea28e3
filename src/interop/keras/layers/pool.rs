//! Pooling, and what makes images larger or smaller.

use super::conv::positive;
use crate::error::ImportError;
use crate::interop::keras::config::Config;
use crate::interop::keras::value::{Call, Layer, Value, reshape};
use crate::nn::{
    AvgPool1d, AvgPool2d, AvgPool3d, Cropping, GlobalAvgPool, GlobalMaxPool, MaxPool1d, MaxPool2d, MaxPool3d, Pad,
    Tensor, Upsample, Upsample1d,
};

/// The largest element or the mean of each window.
#[derive(Debug)]
struct Pool {
    largest: bool,
    kernel: Vec<usize>,
    stride: Vec<usize>,
    same: bool,
    channels_last: bool,
}

impl Pool {
    fn pool<'a>(&self, call: &Call<'_, 'a>, x: Tensor<'a>) -> Tensor<'a> {
        /// The pooling `$largest` or `$mean` over windows given as `$of`.
        macro_rules! pool {
            ($largest:ident, $mean:ident, $of:expr) => {{
                let [kernel, stride] = [&self.kernel, &self.stride].map($of);
                if self.largest {
                    let layer = $largest::new(kernel).stride(stride);
                    call.layer(x, if self.same { layer.same_padding() } else { layer })
                } else {
                    let layer = $mean::new(kernel).stride(stride).count_include_pad(false);
                    call.layer(x, if self.same { layer.same_padding() } else { layer })
                }
            }};
        }
        match self.kernel.len() {
            1 => pool!(MaxPool1d, AvgPool1d, |of| of[0]),
            2 => pool!(MaxPool2d, AvgPool2d, |of| (of[0], of[1])),
            _ => pool!(MaxPool3d, AvgPool3d, |of| (of[0], of[1], of[2])),
        }
    }
}

impl Layer for Pool {
    fn apply<'a>(&self, call: &Call<'_, 'a>) -> Value<'a> {
        let output = self.pool(call, call.input().spatial(self.channels_last));
        if self.channels_last { Value::first(output) } else { Value::plain(output) }
    }

    fn converts(&self) -> bool {
        self.channels_last
    }
}

/// The largest element or the mean of each channel.
#[derive(Debug)]
struct Global {
    largest: bool,
    axes: usize,
    keep: bool,
    channels_last: bool,
}

impl Layer for Global {
    fn apply<'a>(&self, call: &Call<'_, 'a>) -> Value<'a> {
        if call.input().rank() != self.axes + 1 {
            let found = call.input().rank();
            return call.fail(format!("takes samples of {} axes, found {found}", self.axes + 1));
        }
        let x = call.input().spatial(self.channels_last);
        let output = if self.largest { call.layer(x, GlobalMaxPool) } else { call.layer(x, GlobalAvgPool) };
        if !self.keep {
            return Value::plain(output);
        }
        let [batch, channels] = [output.extent(0), output.extent(1)];
        let ones = vec![1; self.axes];
        let shape = if self.channels_last {
            [vec![batch], ones, vec![channels]].concat()
        } else {
            [vec![batch, channels], ones].concat()
        };
        Value::plain(reshape(output, shape))
    }

    fn converts(&self) -> bool {
        self.channels_last
    }
}

/// What is done with the border.
#[derive(Clone, Copy, Debug)]
enum Border {
    Pad,
    Crop,
}

/// Adds zeros before and after each axis, or cuts off so many elements.
#[derive(Debug)]
struct Sides {
    border: Border,
    sides: Vec<(usize, usize)>,
    channels_last: bool,
}

impl Layer for Sides {
    fn apply<'a>(&self, call: &Call<'_, 'a>) -> Value<'a> {
        let x = call.input();
        // Channels are where they are: nothing is added to them.
        let channels_first = x.first || !self.channels_last;
        let mut sides = self.sides.clone();
        sides.insert(if channels_first { 0 } else { sides.len() }, (0, 0));
        let x = if self.channels_last { x } else { Value::plain(x.keras()) };
        x.like(match self.border {
            Border::Pad => call.layer(x.tensor, Pad::new(sides)),
            Border::Crop => call.layer(x.tensor, Cropping::new(sides)),
        })
    }

    fn converts(&self) -> bool {
        self.channels_last && self.sides.len() > 1
    }
}

/// Repeats elements or goes evenly from one to the next.
#[derive(Debug)]
struct Enlarge {
    scale: Vec<usize>,
    bilinear: bool,
    channels_last: bool,
}

impl Layer for Enlarge {
    fn apply<'a>(&self, call: &Call<'_, 'a>) -> Value<'a> {
        let x = call.input().spatial(self.channels_last);
        let output = if let [scale] = self.scale[..] {
            call.layer(x, Upsample1d::new(scale))
        } else {
            let layer = Upsample::new((self.scale[0], self.scale[1]));
            call.layer(x, if self.bilinear { layer.bilinear() } else { layer })
        };
        if self.channels_last { Value::first(output) } else { Value::plain(output) }
    }

    fn converts(&self) -> bool {
        self.channels_last
    }
}

/// A layer of these classes, if it is one.
pub(super) fn parse(config: &Config<'_>) -> Result<Option<Box<dyn Layer>>, ImportError> {
    let parts = [("1D", 1), ("2D", 2), ("3D", 3)];
    let Some((name, axes)) = parts.into_iter().find_map(|(end, axes)| Some((config.class.strip_suffix(end)?, axes)))
    else {
        return Ok(None);
    };
    Ok(Some(match name {
        "MaxPooling" | "MaxPool" => Box::new(pool(config, axes, true)?),
        "AveragePooling" | "AvgPool" => Box::new(pool(config, axes, false)?),
        "GlobalMaxPooling" | "GlobalMaxPool" | "GlobalAveragePooling" | "GlobalAvgPool" => Box::new(Global {
            largest: name.starts_with("GlobalMax"),
            axes,
            keep: config.bool("keepdims", false)?,
            channels_last: config.channels_last()?,
        }),
        "ZeroPadding" | "Cropping" => {
            let (border, key) = if name == "Cropping" { (Border::Crop, "cropping") } else { (Border::Pad, "padding") };
            let channels_last = config.channels_last()?;
            Box::new(Sides { border, sides: config.sides(key, axes)?, channels_last })
        }
        "UpSampling" if axes < 3 => {
            let bilinear = match config.text("interpolation", "nearest")? {
                "nearest" => false,
                "bilinear" if axes == 2 => true,
                other => {
                    return Err(config.unsupported(format!(
                        "the interpolation \"{other}\" is not supported: use nearest or bilinear"
                    )));
                }
            };
            Box::new(Enlarge {
                scale: positive(config, "size", config.counts_or("size", axes, 2)?)?,
                bilinear,
                channels_last: config.channels_last()?,
            })
        }
        _ => return Ok(None),
    }))
}

fn pool(config: &Config<'_>, axes: usize, largest: bool) -> Result<Pool, ImportError> {
    let kernel = positive(config, "pool_size", config.counts_or("pool_size", axes, 2)?)?;
    let stride = match config.get("strides") {
        None => kernel.clone(),
        Some(_) => positive(config, "strides", config.counts("strides", axes)?)?,
    };
    let same = match config.text("padding", "valid")? {
        "valid" => false,
        "same" => true,
        other => {
            return Err(config.unsupported(format!("the padding \"{other}\" is none of Keras's: use valid or same")));
        }
    };
    Ok(Pool { largest, kernel, stride, same, channels_last: config.channels_last()? })
}

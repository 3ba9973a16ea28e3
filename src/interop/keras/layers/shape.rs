//! Layers that move elements alone. Their order is Keras's.

use crate::error::ImportError;
use crate::interop::keras::config::{Config, shown};
use crate::interop::keras::value::{Call, Layer, Value, permute, reshape};

/// As one vector.
#[derive(Debug)]
struct Flatten {
    channels_last: bool,
}

impl Layer for Flatten {
    fn apply<'a>(&self, call: &Call<'_, 'a>) -> Value<'a> {
        let x = Value::plain(call.input().keras());
        // With channels first, Keras puts them last before.
        let x = if self.channels_last || x.rank() < 2 {
            x.tensor
        } else {
            let rank = x.rank();
            permute(x.tensor, (0..1).chain(2..=rank).chain(1..2).collect())
        };
        let shape = x.shape();
        Value::plain(x.within(call.name, |x| reshape(x, vec![shape[0], shape[1..].iter().product()])))
    }
}

/// Under another shape, in which one extent may follow from the others.
#[derive(Debug)]
struct Reshape {
    shape: Vec<Option<usize>>,
}

impl Layer for Reshape {
    fn apply<'a>(&self, call: &Call<'_, 'a>) -> Value<'a> {
        let x = call.input().keras();
        let own = x.shape();
        let elements: usize = own[1..].iter().product();
        let known = self.shape.iter().flatten().try_fold(1usize, |n, &extent| n.checked_mul(extent));
        let rest = known.and_then(|known| elements.checked_div(known)).unwrap_or(0);
        let shape = self.shape.iter().map(|extent| extent.unwrap_or(rest));
        let shape = std::iter::once(own[0]).chain(shape).collect();
        Value::plain(x.within(call.name, |x| reshape(x, shape)))
    }
}

/// Axes in another order, from 1.
#[derive(Debug)]
struct Permute {
    axes: Vec<usize>,
}

impl Layer for Permute {
    fn apply<'a>(&self, call: &Call<'_, 'a>) -> Value<'a> {
        let x = call.input().keras();
        if self.axes.len() != x.shape().len() - 1 {
            let (own, found) = (self.axes.len(), x.shape().len() - 1);
            return call.fail(format!("orders {own} axes, and the sample has {found}"));
        }
        let axes = std::iter::once(0).chain(self.axes.iter().copied()).collect();
        Value::plain(x.within(call.name, |x| permute(x, axes)))
    }
}

/// The same vector at so many steps.
#[derive(Debug)]
struct Repeat {
    times: usize,
}

impl Layer for Repeat {
    fn apply<'a>(&self, call: &Call<'_, 'a>) -> Value<'a> {
        let x = call.input().keras();
        let shape = x.shape();
        let [batch, features] = shape[..] else {
            return call.fail("takes samples [features] alone".to_owned());
        };
        let times = self.times;
        Value::plain(x.within(call.name, |x| reshape(x, vec![batch, 1, features]).expand([batch, times, features])))
    }
}

/// A layer of these classes, if it is one.
pub(super) fn parse(config: &Config<'_>) -> Result<Option<Box<dyn Layer>>, ImportError> {
    Ok(Some(match config.class {
        "Flatten" => Box::new(Flatten { channels_last: config.channels_last()? }),
        "Reshape" => {
            let wrong = || config.unsupported("`target_shape` must be whole numbers, of which one may be -1");
            let list = config.get("target_shape").and_then(serde_json::Value::as_array).ok_or_else(wrong)?;
            let extent = |value: &serde_json::Value| match value.as_i64()? {
                -1 => Some(None),
                extent => usize::try_from(extent).ok().filter(|extent| *extent > 0).map(Some),
            };
            let shape: Vec<_> = list.iter().map(extent).collect::<Option<_>>().ok_or_else(wrong)?;
            if shape.iter().filter(|extent| extent.is_none()).count() > 1 || shape.is_empty() || shape.len() > 5 {
                return Err(wrong());
            }
            Box::new(Reshape { shape })
        }
        "Permute" => {
            let list = config.get("dims").and_then(serde_json::Value::as_array);
            let axes = list.map_or(0, Vec::len);
            let dims = config.counts("dims", axes)?;
            let mut sorted = dims.clone();
            sorted.sort_unstable();
            if dims.is_empty() || dims.len() > 5 || !sorted.iter().copied().eq(1..=dims.len()) {
                let found = config.get("dims").map(shown).unwrap_or_default();
                return Err(config.unsupported(format!("`dims` = {found} must name each axis once, from 1")));
            }
            Box::new(Permute { axes: dims })
        }
        "RepeatVector" => Box::new(Repeat { times: config.count("n")?.max(1) }),
        _ => return Ok(None),
    }))
}

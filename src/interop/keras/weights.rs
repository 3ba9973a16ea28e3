//! How Keras's arrays become tensors of ours, and the other way.

use crate::interop::{Weight, Weights};

/// One of a layer's weights.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    /// Where it is below the layer in a `.weights.h5`: `cell`, or nothing.
    pub(super) group: String,
    /// Its number there.
    pub(super) index: usize,
    /// Whether Keras trains it.
    pub(super) trainable: bool,
    pub(super) form: Form,
}

/// How the axes of an array lie in Keras and here. Names are those of our tensors behind the layer's.
#[derive(Clone, Debug)]
pub(super) enum Form {
    /// Axis `i` here is axis `axes[i]` in Keras.
    Permuted { name: String, axes: Vec<usize> },
    /// Keras's axes without those of extent 1, of which only one is left.
    Vector { name: String, shape: Vec<usize> },
    /// `[kernel…, channels, multiplier]` in Keras, `[channels · multiplier, 1, kernel…]` here.
    Depthwise { name: String, multiplier: usize },
    /// `[features, heads, size]` in Keras, `[heads · size, features]` here.
    ToHeads { name: String, heads: usize },
    /// `[heads, size]` in Keras, `[heads · size]` here.
    HeadsBias { name: String, heads: usize },
    /// `[heads, size, features]` in Keras, `[features, heads · size]` here.
    OfHeads { name: String, heads: usize },
    /// `[features, gates · units]` in Keras, `[gates · units, features]` here; of a GRU with the first two gates in each other's place.
    Gates { name: String, swap: bool },
    /// A GRU's `[2, 3 · units]` in Keras.
    GruBiases { names: [String; 2] },
    /// A number that nothing here needs.
    Unused,
}

/// The first two thirds of the first axis in each other's place.
fn swap_gates(weight: &Weight) -> Option<Weight> {
    let shape = weight.shape().clone();
    let third = weight.values().len() / 3;
    if !shape.first()?.is_multiple_of(3) {
        return None;
    }
    let mut values = weight.values().to_vec();
    let (update, reset) = values[..2 * third].split_at_mut(third);
    update.swap_with_slice(reset);
    Weight::new(shape, values)
}

/// Axes `0, …, n − 1` turned round by so many.
fn turned(n: usize, by: usize) -> Vec<usize> {
    let mut axes: Vec<_> = (0..n).collect();
    axes.rotate_left(by);
    axes
}

impl Slot {
    /// A weight of the layer itself.
    pub(super) fn new(index: usize, form: Form) -> Self {
        Slot { group: String::new(), index, trainable: true, form }
    }

    pub(super) fn in_group(mut self, group: &str) -> Self {
        self.group = if self.group.is_empty() { group.to_owned() } else { format!("{group}/{}", self.group) };
        self
    }

    pub(super) fn fixed(mut self) -> Self {
        self.trainable = false;
        self
    }
}

impl Form {
    pub(super) fn same(name: impl Into<String>) -> Self {
        Form::Permuted { name: name.into(), axes: Vec::new() }
    }

    /// `[inputs, outputs]` in Keras, the other way here.
    pub(super) fn transposed(name: impl Into<String>) -> Self {
        Form::Permuted { name: name.into(), axes: vec![1, 0] }
    }

    /// The same under names that begin with this.
    pub(super) fn within(self, prefix: &str) -> Self {
        let put = |name: String| format!("{prefix}.{name}");
        match self {
            Form::Permuted { name, axes } => Form::Permuted { name: put(name), axes },
            Form::Vector { name, shape } => Form::Vector { name: put(name), shape },
            Form::Depthwise { name, multiplier } => Form::Depthwise { name: put(name), multiplier },
            Form::ToHeads { name, heads } => Form::ToHeads { name: put(name), heads },
            Form::HeadsBias { name, heads } => Form::HeadsBias { name: put(name), heads },
            Form::OfHeads { name, heads } => Form::OfHeads { name: put(name), heads },
            Form::Gates { name, swap } => Form::Gates { name: put(name), swap },
            Form::GruBiases { names } => Form::GruBiases { names: names.map(put) },
            Form::Unused => Form::Unused,
        }
    }

    /// Our tensors of Keras's array; `None` where it has another number of axes.
    pub(super) fn ours(&self, array: Weight) -> Option<Vec<(&str, Weight)>> {
        let shape = array.shape().to_vec();
        let one = |name, weight| Some(vec![(name, weight)]);
        match self {
            Form::Permuted { name, axes } if axes.is_empty() => one(&**name, array),
            Form::Permuted { name, axes } => (axes.len() == shape.len()).then(|| vec![(&**name, array.permute(axes))]),
            Form::Vector { name, .. } => {
                let numel = array.values().len();
                one(name, array.reshape([numel])?)
            }
            Form::Depthwise { name, .. } => {
                let (kernel, &[channels, multiplier]) = shape.split_at_checked(shape.len().checked_sub(2)?)? else {
                    return None;
                };
                let ours: Vec<_> = [channels * multiplier, 1].iter().chain(kernel).copied().collect();
                one(name, array.permute(&turned(shape.len(), kernel.len())).reshape(ours)?)
            }
            Form::ToHeads { name, .. } => {
                let [features, heads, size] = shape[..] else { return None };
                one(name, array.permute(&[1, 2, 0]).reshape([heads * size, features])?)
            }
            Form::HeadsBias { name, .. } => {
                let [heads, size] = shape[..] else { return None };
                one(name, array.reshape([heads * size])?)
            }
            Form::OfHeads { name, .. } => {
                let [heads, size, features] = shape[..] else { return None };
                one(name, array.permute(&[2, 0, 1]).reshape([features, heads * size])?)
            }
            Form::Gates { name, swap } => {
                let [_, _] = shape[..] else { return None };
                let weight = array.permute(&[1, 0]);
                one(name, if *swap { swap_gates(&weight)? } else { weight })
            }
            Form::GruBiases { names } => {
                let [2, sums] = shape[..] else { return None };
                let (input, recurrent) = array.values().split_at(sums);
                let both = [input, recurrent].map(|values| swap_gates(&Weight::new([sums], values.to_vec())?));
                let [input, recurrent] = both;
                Some(vec![(&*names[0], input?), (&*names[1], recurrent?)])
            }
            Form::Unused => Some(Vec::new()),
        }
    }

    /// Keras's array of our tensors, under names that begin with `layer`; where one is missing or does not fit, its name.
    pub(super) fn keras(&self, layer: &str, weights: &Weights) -> Result<Weight, String> {
        let get = |name: &str| {
            let name = format!("{layer}.{name}");
            weights.get(&name).cloned().ok_or(name)
        };
        let name = match self {
            Form::Unused => return Ok(Weight::new([], vec![0.0]).expect("bug: one number")),
            Form::GruBiases { names } => {
                let halves = [get(&names[0])?, get(&names[1])?].map(|half| swap_gates(&half));
                let [Some(input), Some(recurrent)] = halves else { return Err(format!("{layer}.{}", names[0])) };
                let values = [input.values(), recurrent.values()].concat();
                return Weight::new([2, values.len() / 2], values).ok_or(format!("{layer}.{}", names[0]));
            }
            Form::Permuted { name, .. }
            | Form::Vector { name, .. }
            | Form::Depthwise { name, .. }
            | Form::ToHeads { name, .. }
            | Form::HeadsBias { name, .. }
            | Form::OfHeads { name, .. }
            | Form::Gates { name, .. } => name,
        };
        self.keras_of(get(name)?).ok_or_else(|| format!("{layer}.{name}"))
    }

    fn keras_of(&self, ours: Weight) -> Option<Weight> {
        let shape = ours.shape().to_vec();
        match self {
            Form::Permuted { axes, .. } if axes.is_empty() => Some(ours),
            Form::Permuted { axes, .. } => {
                let mut inverse = vec![0; axes.len()];
                for (i, &axis) in axes.iter().enumerate() {
                    inverse[axis] = i;
                }
                (axes.len() == shape.len()).then(|| ours.permute(&inverse))
            }
            Form::Vector { shape, .. } => {
                let numel = ours.values().len();
                ours.reshape(shape.iter().map(|&extent| if extent == 0 { numel } else { extent }).collect::<Vec<_>>())
            }
            Form::Depthwise { multiplier, .. } => {
                let [outputs, 1, kernel @ ..] = &shape[..] else { return None };
                let channels = outputs.checked_div(*multiplier)?;
                let apart: Vec<_> = [channels, *multiplier].iter().chain(kernel).copied().collect();
                let rank = apart.len();
                Some(ours.reshape(apart)?.permute(&turned(rank, 2)))
            }
            Form::ToHeads { heads, .. } => {
                let [outputs, features] = shape[..] else { return None };
                Some(ours.reshape([*heads, outputs.checked_div(*heads)?, features])?.permute(&[2, 0, 1]))
            }
            Form::HeadsBias { heads, .. } => {
                let size = shape.first()?.checked_div(*heads)?;
                ours.reshape([*heads, size])
            }
            Form::OfHeads { heads, .. } => {
                let [features, inputs] = shape[..] else { return None };
                Some(ours.reshape([features, *heads, inputs.checked_div(*heads)?])?.permute(&[1, 2, 0]))
            }
            Form::Gates { swap, .. } => {
                let [_, _] = shape[..] else { return None };
                Some(if *swap { swap_gates(&ours)? } else { ours }.permute(&[1, 0]))
            }
            Form::GruBiases { .. } | Form::Unused => unreachable!("bug: not of one tensor"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_comes_back() {
        let array = |shape: &[usize]| {
            let values = (0..shape.iter().product::<usize>()).map(|i| i as f32).collect();
            Weight::new(shape, values).expect("fits")
        };
        let name = || "w".to_owned();
        for (form, shape) in [
            (Form::same("w"), &[2, 3][..]),
            (Form::transposed("w"), &[2, 3]),
            (Form::Permuted { name: name(), axes: vec![3, 2, 0, 1] }, &[3, 2, 4, 5]),
            (Form::Vector { name: name(), shape: vec![1, 1, 0] }, &[1, 1, 4]),
            (Form::Depthwise { name: name(), multiplier: 2 }, &[3, 5, 4, 2]),
            (Form::ToHeads { name: name(), heads: 2 }, &[5, 2, 3]),
            (Form::HeadsBias { name: name(), heads: 2 }, &[2, 3]),
            (Form::OfHeads { name: name(), heads: 2 }, &[2, 3, 5]),
            (Form::Gates { name: name(), swap: false }, &[2, 12]),
            (Form::Gates { name: name(), swap: true }, &[2, 12]),
            (Form::GruBiases { names: ["a".to_owned(), "b".to_owned()] }, &[2, 12]),
        ] {
            let keras = array(shape);
            let ours = form.ours(keras.clone()).expect("fits");
            let weights: Weights = ours.into_iter().map(|(name, weight)| (format!("l.{name}"), weight)).collect();
            assert_eq!(form.keras("l", &weights).as_ref(), Ok(&keras), "{form:?}");
        }
        // An axis too few.
        assert!(Form::ToHeads { name: name(), heads: 2 }.ours(array(&[4, 6])).is_none());
        assert_eq!(Form::same("w").keras("l", &Weights::new()), Err("l.w".to_owned()));
    }

    #[test]
    fn gates_lie_as_pytorch_has_them() {
        // Update, reset, new in Keras; reset, update, new here.
        let keras = Weight::new([1, 3], vec![10.0, 20.0, 30.0]).expect("fits");
        let form = Form::Gates { name: "w".to_owned(), swap: true };
        assert_eq!(form.ours(keras).expect("fits")[0].1.values(), [20.0, 10.0, 30.0]);
    }
}

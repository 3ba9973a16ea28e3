//! Tensors by name, in host memory.

use std::collections::BTreeMap;

use crate::error::ImportError;
use crate::nn::{Mode, Model};
use crate::tensor::{Shape, plural};
use crate::train::Trainer;

/// One tensor of single precision.
#[derive(Clone, Debug, PartialEq)]
pub struct Weight {
    shape: Shape,
    values: Vec<f32>,
}

impl Weight {
    /// A tensor of this shape; `None` where there are not as many values as it has elements.
    pub fn new(shape: impl Into<Shape>, values: Vec<f32>) -> Option<Self> {
        let shape = shape.into();
        (shape.numel() == values.len()).then_some(Weight { shape, values })
    }

    /// Its extents.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Its values, the last axis running fastest.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The same values as a tensor of another shape; `None` where that has another number of elements.
    pub fn reshape(self, shape: impl Into<Shape>) -> Option<Self> {
        Weight::new(shape, self.values)
    }

    /// With its axes in another order, as NumPy's `transpose`: axis `i` of the result is axis `axes[i]` of this.
    ///
    /// # Panics
    /// Where `axes` is no order of the axes.
    #[must_use]
    pub fn permute(&self, axes: &[usize]) -> Self {
        let extents: Vec<usize> = axes.iter().map(|&axis| self.shape[axis]).collect();
        let mut strides = vec![1; self.shape.len()];
        for axis in (1..strides.len()).rev() {
            strides[axis - 1] = strides[axis] * self.shape[axis];
        }
        let strides: Vec<usize> = axes.iter().map(|&axis| strides[axis]).collect();
        assert_eq!(extents.iter().product::<usize>(), self.values.len(), "axes {axes:?} of {}", self.shape);
        let mut place = vec![0; extents.len()];
        let mut values = Vec::with_capacity(self.values.len());
        for _ in 0..self.values.len() {
            values.push(self.values[place.iter().zip(&strides).map(|(i, stride)| i * stride).sum::<usize>()]);
            for axis in (0..place.len()).rev() {
                place[axis] += 1;
                if place[axis] < extents[axis] {
                    break;
                }
                place[axis] = 0;
            }
        }
        Weight { shape: extents.into(), values }
    }
}

/// Tensors by name, such as the weights of a model: what a file of another framework is read to, and written from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Weights(BTreeMap<String, Weight>);

impl Weights {
    /// None yet.
    pub fn new() -> Self {
        Weights::default()
    }

    /// Adds a tensor, or puts another in its place.
    pub fn insert(&mut self, name: impl Into<String>, weight: Weight) {
        self.0.insert(name.into(), weight);
    }

    /// The tensor of this name.
    pub fn get(&self, name: &str) -> Option<&Weight> {
        self.0.get(name)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Weight)> {
        self.0.iter().map(|(name, weight)| (name.as_str(), weight))
    }

    /// All parameters and buffers of a trainer.
    ///
    /// # Errors
    /// Where memory is short or the device fails.
    pub fn of(trainer: &mut Trainer) -> Result<Self, ImportError> {
        let tensors = trainer.state_dict()?.into_iter();
        Ok(Weights(tensors.map(|(name, (desc, values))| (name, Weight { shape: desc.shape, values })).collect()))
    }

    /// The tensors that a model has, under its names: what stands before the names of all of them, such as `module.` or `state_dict.`, is
    /// taken off, and tensors beside them are left out. Where the file has some of them only, nothing is taken off.
    ///
    /// # Errors
    /// As [`Weights::check`].
    pub fn fitted(mut self, model: &Model) -> Result<Self, ImportError> {
        let built = model.build(1, Mode::Evaluate)?;
        let names: Vec<&str> = built.parameters.iter().chain(&built.buffers).map(|tensor| &*tensor.name).collect();
        let has_all = |prefix: &str| names.iter().all(|name| self.0.contains_key(&format!("{prefix}{name}")));
        let first = names.first().copied().unwrap_or_default();
        let prefixes = self.0.keys().filter_map(|name| {
            let prefix = name.strip_suffix(first)?;
            (prefix.is_empty() || prefix.ends_with('.')).then_some(prefix)
        });
        // The shortest first: a checkpoint may also hold averages of all parameters.
        let mut prefixes: Vec<String> = prefixes.map(str::to_owned).collect();
        prefixes.sort_by_key(String::len);
        if let Some(prefix) = prefixes.into_iter().find(|prefix| has_all(prefix)) {
            let known = |name: &str| names.contains(&name) || built.counters.iter().any(|counter| counter == name);
            let stripped = std::mem::take(&mut self.0).into_iter();
            let stripped =
                stripped.filter_map(|(name, weight)| Some((name.strip_prefix(&*prefix)?.to_owned(), weight)));
            self.0 = stripped.filter(|(name, _)| known(name)).collect();
        }
        self.check(model)?;
        Ok(self)
    }

    /// Checks that these are all tensors of a model, with its shapes. What PyTorch counts steps in may be missing.
    ///
    /// # Errors
    /// Where one is missing, too many, or of another shape.
    pub fn check(&self, model: &Model) -> Result<(), ImportError> {
        let built = model.build(1, Mode::Evaluate)?;
        let mismatch = |reason: String| Err(ImportError::Weights { reason });
        let tensors = || built.parameters.iter().chain(&built.buffers);
        for tensor in tensors() {
            let (name, desc) = (&tensor.name, &built.graph.value(tensor.value).desc);
            match self.get(name) {
                None => return mismatch(format!("there is no `{name}`")),
                Some(weight) if weight.shape != desc.shape => {
                    return mismatch(format!("`{name}` is {}, the model's is {}", weight.shape, desc.shape));
                }
                Some(_) => {}
            }
        }
        let known = |name: &String| built.counters.contains(name) || tensors().any(|tensor| tensor.name == *name);
        let unknown: Vec<_> = self.0.keys().filter(|name| !known(name)).collect();
        match unknown.first() {
            None => Ok(()),
            Some(name) => mismatch(format!(
                "the model has no `{}` ({} in all that it does not have)",
                name.escape_debug(),
                plural(unknown.len(), "tensor")
            )),
        }
    }

    /// Overwrites all parameters and buffers of a trainer.
    ///
    /// # Errors
    /// As [`Weights::check`], or where the device fails.
    pub fn apply(&self, trainer: &mut Trainer) -> Result<(), ImportError> {
        self.check(trainer.model())?;
        for (name, weight) in &self.0 {
            trainer.set_parameter(name, &weight.values)?;
        }
        Ok(())
    }
}

impl FromIterator<(String, Weight)> for Weights {
    fn from_iter<T: IntoIterator<Item = (String, Weight)>>(tensors: T) -> Self {
        Weights(tensors.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_permuted_as_numpy_does() {
        let weight = Weight::new([2, 3, 2], (0..12).map(|i| i as f32).collect()).expect("fits");
        // numpy.arange(12).reshape(2, 3, 2).transpose(2, 0, 1)
        let permuted = weight.permute(&[2, 0, 1]);
        assert_eq!(permuted.shape()[..], [2, 2, 3]);
        assert_eq!(permuted.values(), [0., 2., 4., 6., 8., 10., 1., 3., 5., 7., 9., 11.]);
        assert_eq!(permuted.permute(&[1, 2, 0]), weight);
        assert_eq!(Weight::new([2, 2], vec![0.0; 3]), None);
    }
}

//! The CPU twins of normalizations.

use super::{Normalization, Places, Sets};
use crate::ops::sums::{Sums, sum};
use crate::ops::{Call, Real};

/// What the twins know of a normalization.
struct Twin<'a, T> {
    groups: Sets,
    per_element: bool,
    relu: bool,
    eps: T,
    weight: Option<&'a [T]>,
    bias: Option<&'a [T]>,
}

impl<'a, T: Real> Twin<'a, T> {
    fn new(norm: &Normalization, call: &Call<'a, T>, places: &Places) -> Self {
        let shape = &call.input_descs[0].shape;
        Twin {
            groups: norm.grouping.sets(shape)[0],
            per_element: norm.grouping.per_element(),
            relu: norm.relu,
            eps: T::from_f64(f64::from(norm.eps)),
            weight: places.weight.map(|i| call.input(i)),
            bias: places.bias.map(|i| call.input(i)),
        }
    }

    /// The elements of a group, each with its parameter.
    fn elements(&self, group: usize) -> impl Iterator<Item = (usize, usize)> + use<T> {
        let per_element = self.per_element;
        self.groups.runs(group).flat_map(move |(run, parameter)| {
            run.enumerate().map(move |(k, i)| (i, if per_element { k } else { parameter }))
        })
    }

    fn rstd(&self, variance: T) -> T {
        T::ONE / (variance + self.eps).sqrt()
    }

    fn weight(&self, parameter: usize) -> T {
        self.weight.map_or(T::ONE, |weight| weight[parameter])
    }

    /// The output before the activation.
    fn affine(&self, x: T, parameter: usize) -> T {
        x * self.weight(parameter) + self.bias.map_or(T::ZERO, |bias| bias[parameter])
    }

    fn write(&self, input: &[T], output: &mut [T], group: usize, mean: T, variance: T) {
        let rstd = self.rstd(variance);
        for (i, parameter) in self.elements(group) {
            let y = self.affine((input[i] - mean) * rstd, parameter);
            output[i] = if self.relu && y < T::ZERO { T::ZERO } else { y };
        }
    }

    fn mean(&self, input: &[T], group: usize) -> T {
        let count = T::from_f64(self.groups.terms() as f64);
        // Less the first element, so that numbers far from 0 lose nothing.
        let first = input[self.groups.runs(group).next().expect("bug: an empty group").0.start];
        first + sum(self.inputs(input, group).map(|x| x - first)) / count
    }

    fn variance(&self, input: &[T], group: usize, mean: T) -> T {
        let count = T::from_f64(self.groups.terms() as f64);
        sum(self.inputs(input, group).map(|x| (x - mean) * (x - mean))) / count
    }

    /// The inputs of a group.
    fn inputs<'b>(&self, input: &'b [T], group: usize) -> impl Iterator<Item = T> + use<'_, 'a, 'b, T> {
        self.groups.runs(group).flat_map(|(run, _)| &input[run]).copied()
    }
}

/// Forward by statistics of the input.
pub(super) fn forward<T: Real>(norm: &Normalization, call: &mut Call<'_, T>, places: &Places) {
    let twin = Twin::new(norm, call, places);
    let input = call.input(0);
    for group in 0..twin.groups.sets {
        let mean = if norm.centered { twin.mean(input, group) } else { T::ZERO };
        let variance = twin.variance(input, group, mean);
        twin.write(input, call.output(0), group, mean, variance);
        if norm.centered {
            call.output(1)[group] = mean;
        }
        call.output(1 + usize::from(norm.centered))[group] = variance;
    }
}

/// Forward by given statistics.
pub(super) fn normalize<T: Real>(norm: &Normalization, call: &mut Call<'_, T>, places: &Places) {
    let twin = Twin::new(norm, call, places);
    let input = call.input(0);
    let statistic = |place: Option<usize>| call.input(place.expect("bug: given statistics are inputs"));
    let (mean, variance) = (statistic(places.mean), statistic(places.variance));
    for group in 0..twin.groups.sets {
        twin.write(input, call.output(0), group, mean[group], variance[group]);
    }
}

/// Backward; `outputs` are where the gradients of input, weight and bias go.
pub(super) fn backward<T: Real>(
    norm: &Normalization,
    call: &mut Call<'_, T>,
    places: &Places,
    outputs: [Option<usize>; 3],
) {
    let twin = Twin::new(norm, call, places);
    let read = |place: Option<usize>| place.map(|i| call.input(i));
    let (input, mean, variance) = (read(places.input), read(places.mean), read(places.variance));
    let grad_output = read(places.grad_output).expect("bug: backward reads a gradient");
    let count = T::from_f64(twin.groups.terms() as f64);
    let mut parameter_sums = outputs.map(|output| output.map(|i| Sums::new(call.output_descs[i].numel())));
    for group in 0..twin.groups.sets {
        let mean = mean.map_or(T::ZERO, |mean| mean[group]);
        let rstd = variance.map_or(T::ZERO, |variance| twin.rstd(variance[group]));
        // The gradient before the activation, and the normalized element.
        let gradient = |i: usize, parameter: usize| {
            let x = input.map_or(T::ZERO, |input| (input[i] - mean) * rstd);
            let passes = !norm.relu || twin.affine(x, parameter) > T::ZERO;
            (if passes { grad_output[i] } else { T::ZERO }, x)
        };
        let mut sums = Sums::new(2);
        for (i, parameter) in twin.elements(group) {
            let (g, x) = gradient(i, parameter);
            for (sums, term) in parameter_sums[1..].iter_mut().zip([g * x, g]) {
                sums.iter_mut().for_each(|sums| sums.add(parameter, term));
            }
            sums.add(0, twin.weight(parameter) * g);
            sums.add(1, twin.weight(parameter) * g * x);
        }
        let Some(output) = outputs[0] else { continue };
        let (sum_g, sum_gx) = (sums.get::<T>(0), sums.get::<T>(1));
        let (mean_g, mean_gx) = match norm.frozen {
            true => (T::ZERO, T::ZERO),
            false if norm.centered => (sum_g / count, sum_gx / count),
            false => (T::ZERO, sum_gx / count),
        };
        let grad_input = call.output(output);
        for (i, parameter) in twin.elements(group) {
            let (g, x) = gradient(i, parameter);
            grad_input[i] = rstd * (twin.weight(parameter) * g - mean_g - x * mean_gx);
        }
    }
    for (output, sums) in outputs.into_iter().zip(&parameter_sums).skip(1) {
        if let (Some(output), Some(sums)) = (output, sums) {
            sums.write(call.output(output));
        }
    }
}

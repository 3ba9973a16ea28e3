//! Normalization of sets of neighbours: rows, or groups of channels of a sample. A set is one run or several, each with a weight
//! and a bias of its own, or one of each for every element.

use super::run_kernels::{GradientRuns, NormalizeRuns, RunGradients, Runs, SetMoments};
use super::{Normalization, Places};
use crate::ops::place::{PIECE, Tensor, parts, reals, write};
use crate::ops::{Call, Resources};
use crate::tensor::Shape;

/// Tasks that keep threads busy, however unevenly they run.
const ENOUGH_TASKS: usize = 16;
/// Fewest elements of a task.
const LEAST_TASK: usize = 4096;
/// Sets of a task that add up gradients of parameters: not so few that these sums are as large as the tensor, and not so many that
/// they lose digits.
const SUMMED: (usize, usize) = (8, 256);

/// How a tensor consists of sets.
#[derive(Clone, Copy, Debug)]
struct Extents {
    sets: usize,
    /// Runs of a set, and elements of a run.
    per_set: usize,
    width: usize,
    per_element: bool,
}

impl Extents {
    fn new(norm: &Normalization, shape: &Shape) -> Self {
        let [sets, _] = norm.grouping.sets(shape);
        let per_element = norm.grouping.per_element();
        Extents { sets: sets.sets, per_set: sets.rows, width: sets.inner, per_element }
    }

    /// Elements of a set.
    fn terms(&self) -> usize {
        self.per_set * self.width
    }

    fn runs(&self) -> usize {
        self.sets * self.per_set
    }

    /// Sets of a task.
    fn together(&self) -> usize {
        self.sets.div_ceil(ENOUGH_TASKS).max(LEAST_TASK / self.terms()).clamp(1, self.sets)
    }

    /// Sets of a task of the gradients.
    fn together_backward(&self) -> usize {
        let (least, most) = if self.per_element { SUMMED } else { (1, usize::MAX) };
        self.together().clamp(least, most).min(self.sets)
    }

    /// Sets that are normalized together, so that they stay in the cache.
    fn block(&self) -> usize {
        (PIECE / self.terms()).max(1)
    }

    /// The runs from this set on, with mean and variance of theirs.
    fn of<'a>(
        &self,
        set: usize,
        norm: &Normalization,
        (mean, variance): (Option<&'a [f32]>, Option<&'a [f32]>),
        (weight, bias): (Option<&'a [f32]>, Option<&'a [f32]>),
    ) -> Runs<'a> {
        let Extents { per_set, width, per_element, .. } = *self;
        Runs { first: set * per_set, width, per_set, mean, variance, eps: norm.eps, weight, bias, per_element }
    }

    /// Makes of the sums of runs the means that the gradient of each set has subtracted.
    fn means(&self, norm: &Normalization, runs: &Runs<'_>, sums: &[f32], means: &mut [f32]) {
        let count = self.terms() as f32;
        let sets = sums.chunks_exact(2 * self.per_set).zip(means.chunks_exact_mut(2));
        for (set, (sums, means)) in sets.enumerate() {
            let [mut gradient, mut product] = [0.0; 2];
            for (run, sums) in sums.chunks_exact(2).enumerate() {
                // Those of runs of weighted elements are weighted already.
                let weight = if self.per_element { 1.0 } else { runs.parameters(set * self.per_set + run).0 };
                gradient += weight * sums[0];
                product += weight * sums[1];
            }
            means.copy_from_slice(&[if norm.centered { gradient / count } else { 0.0 }, product / count]);
        }
    }
}

/// Forward.
pub(super) fn forward(norm: &Normalization, call: &mut Call<'_, f32>, places: &Places, with: &mut Resources<'_>) {
    let extents = Extents::new(norm, &call.input_descs[0].shape);
    let (together, terms) = (extents.together(), extents.terms());
    let read = |place: Option<usize>| place.map(|i| call.input(i));
    let (x, weight, bias) = (Tensor::of(call, 0), read(places.weight), read(places.bias));
    let statistics = if norm.centered { [Some(1), Some(2)] } else { [None, Some(1)] };
    let [output, mean, variance] = reals(&mut call.outputs, [Some(0), statistics[0], statistics[1]]);
    let Resources { cores, epilogue, .. } = with;
    let level = cores.level();
    let output = output.expect("bug: no output").chunks_mut(together * terms);
    let mut means = mean.map(|mean| mean.chunks_mut(together));
    let variances = variance.expect("bug: no variance").chunks_mut(together);
    let mut tasks: Vec<_> = output
        .zip(variances)
        .enumerate()
        .map(|(task, (output, variance))| {
            let mean = means.as_mut().and_then(Iterator::next).unwrap_or_default();
            (task * together, output, mean, variance)
        })
        .collect();
    cores.each(&mut tasks, |_, (first, output, mean, variance)| {
        let [mut room, mut values] = [[0.0; PIECE]; 2];
        for sets in parts(0..variance.len(), extents.block()) {
            let start = (*first + sets.start) * terms;
            let output = &mut output[sets.start * terms..sets.end * terms];
            let variance = &mut variance[sets.clone()];
            let mean = if norm.centered { &mut mean[sets.clone()] } else { &mut [] };
            level.run(SetMoments {
                x: x.look(start, output.len(), output),
                terms,
                centered: norm.centered,
                mean,
                variance,
            });
            let mean = norm.centered.then_some(&*mean);
            let runs = extents.of(*first + sets.start, norm, (mean, Some(variance)), (weight, bias));
            for part in parts(0..output.len(), PIECE) {
                let output = &mut output[part.clone()];
                let x = x.fetch(start + part.start, output, &mut room);
                write(level, epilogue, start + part.start, output, &mut values, |output| {
                    level.run(NormalizeRuns { runs, start: part.start, x, output });
                });
            }
        }
    });
}

/// Scratch of the gradients: two sums for each run; two means for each set; and in each task two sums for each parameter, where
/// each element has one.
pub(super) fn workspaces(norm: &Normalization, shape: &Shape) -> Vec<u64> {
    let extents = Extents::new(norm, shape);
    let tasks = extents.sets.div_ceil(extents.together_backward());
    let columns = if extents.per_element { tasks * extents.width } else { 0 };
    [extents.runs(), extents.sets, columns].map(|pairs| 8 * pairs as u64).to_vec()
}

/// Backward; `outputs` are where the gradients of input, weight and bias go.
pub(super) fn backward(
    norm: &Normalization,
    call: &mut Call<'_, f32>,
    places: &Places,
    outputs: [Option<usize>; 3],
    with: &mut Resources<'_>,
) {
    let extents = Extents::new(norm, &call.input_descs[0].shape);
    let (together, terms, width) = (extents.together_backward(), extents.terms(), extents.width);
    let read = |place: Option<usize>| place.map(|i| call.input(i));
    let (weight, mean, variance) = (read(places.weight), read(places.mean), read(places.variance));
    let g = Tensor::of(call, places.grad_output.expect("bug: backward reads a gradient"));
    // The gradient of a bias alone does not need the input.
    let x = places.input.map_or(g, |place| Tensor::of(call, place));
    let [output, weight_output, bias_output] = reals(&mut call.outputs, outputs);
    let Resources { cores, workspaces, epilogue } = with;
    let level = cores.level();
    let [sums, means, columns] = &mut workspaces[..] else { panic!("bug: workspaces of a normalization") };
    let sums = &mut sums[..2 * extents.runs()];
    let wants_columns = extents.per_element && (weight_output.is_some() || bias_output.is_some());
    {
        let mut output = output.map(|output| output.chunks_mut(together * terms));
        let mut columns = wants_columns.then(|| columns.chunks_exact_mut(2 * width));
        let sums = sums.chunks_mut(2 * together * extents.per_set);
        let mut tasks: Vec<_> = sums
            .zip(means.chunks_mut(2 * together))
            .enumerate()
            .map(|(task, (sums, means))| {
                let output = output.as_mut().and_then(Iterator::next);
                let columns = columns.as_mut().and_then(Iterator::next);
                (task * together, output, sums, means, columns)
            })
            .collect();
        cores.each(&mut tasks, |_, (first, output, sums, means, columns)| {
            let [mut room, mut room_g, mut values] = [[0.0; PIECE]; 3];
            if let Some(columns) = columns {
                columns.fill(0.0);
            }
            for sets in parts(0..sums.len() / (2 * extents.per_set), extents.block()) {
                let of_all = *first + sets.start..*first + sets.end;
                let start = of_all.start * terms;
                let statistics =
                    (mean.map(|mean| &mean[of_all.clone()]), variance.map(|variance| &variance[of_all.clone()]));
                let runs = extents.of(of_all.start, norm, statistics, (weight, None));
                let output = output.as_mut().map(|output| &mut output[sets.start * terms..sets.end * terms]);
                let there = output.as_deref().unwrap_or_default();
                let length = sets.len() * terms;
                let sums = &mut sums[2 * sets.start * extents.per_set..2 * sets.end * extents.per_set];
                let columns = columns.as_mut().map(|columns| columns.split_at_mut(width));
                level.run(RunGradients {
                    runs,
                    x: x.look(start, length, there),
                    g: g.look(start, length, there),
                    sums,
                    columns,
                });
                let Some(output) = output else { continue };
                let means = &mut means[2 * sets.start..2 * sets.end];
                extents.means(norm, &runs, sums, means);
                for part in parts(0..output.len(), PIECE) {
                    let output = &mut output[part.clone()];
                    let x = x.fetch(start + part.start, output, &mut room);
                    let g = g.fetch(start + part.start, output, &mut room_g);
                    write(level, epilogue, start + part.start, output, &mut values, |output| {
                        level.run(GradientRuns { runs, means, start: part.start, x, g, output });
                    });
                }
            }
        });
    }
    for (place, output) in [bias_output, weight_output].into_iter().enumerate() {
        let Some(output) = output else { continue };
        if extents.per_element {
            cores.pieces(output, |start, output| {
                output.fill(0.0);
                for columns in columns.chunks_exact(2 * width).take(extents.sets.div_ceil(together)) {
                    let columns = &columns[place * width + start..][..output.len()];
                    output.iter_mut().zip(columns).for_each(|(sum, term)| *sum += term);
                }
            });
        } else {
            let channels = output.len();
            for (channel, to) in output.iter_mut().enumerate() {
                let terms = sums[2 * channel + place..].iter().step_by(2 * channels);
                *to = terms.map(|&term| f64::from(term)).sum::<f64>() as f32;
            }
        }
    }
}

//! Steps backward, and what they give to the gradients of weights.

use std::ops::Range;

use super::forward::{Rows, open};
use super::{Cell, Forward, KEPT, ROW, Sizes, UNITS, add, is_there, load, places, row_tiles, store};
use crate::native::{
    Block, Cores, Extents, Factor, Fast, Kernel, Level, MAX_COLUMNS, MAX_ROWS, Offsets, Product, Simd, Start,
};

/// Rows of gradients are so much longer than what is in them: not a power of two, of which lines of the caches get into each
/// other's way.
const PADDING: usize = 16;
/// Terms of a block of a long sum.
const BLOCK: usize = 256;
/// Columns whose sums are made at once.
const COLUMNS: usize = 64;

/// A run backward. `forward` has the inputs of the run forward, and can make its gates again.
pub(crate) struct Backward<'a, C> {
    pub(crate) forward: Forward<'a, C>,
    /// Weights over inputs and over states, as they are.
    pub(crate) weights: [&'a [f32]; 2],
    pub(crate) states: [Option<&'a [f32]>; 2],
    /// The gates of all steps; otherwise they are recomputed.
    pub(crate) gates: Option<&'a [f32]>,
    /// The gradient of the hidden states of all steps.
    pub(crate) grad_output: Option<&'a [f32]>,
}

/// Where the gradients go. All but the first are added to what is there.
pub(crate) struct Gradients<'a> {
    pub(crate) input: Option<&'a mut [f32]>,
    pub(crate) weights: [&'a mut [f32]; 2],
    pub(crate) biases: [&'a mut [f32]; 2],
    /// On their way back: in the end those of the initial states. The second may be empty.
    pub(crate) states: [&'a mut [f32]; 2],
}

/// Scratch of a run backward.
pub(crate) struct Scratch<'a> {
    /// Rows of gradients of a chunk.
    grads: &'a mut [f32],
    /// Packed weights over inputs and over states.
    packed: [&'a mut [f32]; 2],
    /// Where terms lie.
    tables: [&'a mut [u32]; 2],
    product: &'a mut [f32],
}

/// Weights in panels of columns.
fn packed(columns: usize, terms: usize) -> usize {
    columns.next_multiple_of(UNITS) * terms
}

/// Numbers in a row of gradients.
fn width(sizes: Sizes) -> usize {
    KEPT * sizes.hidden + PADDING
}

impl<'a> Scratch<'a> {
    fn lengths(sizes: Sizes, steps: usize, threads: usize) -> [usize; 6] {
        let Sizes { batch, input, hidden, .. } = sizes;
        let rows = batch * steps;
        let [over_inputs, over_states] = [input, hidden].map(|columns| packed(columns, sizes.sums()));
        let product = |m: usize, n: usize| Extents::new(m, n, rows).scratch(threads);
        let products = sizes.state_terms().into_iter().map(|[_, _, count]| product(count, hidden));
        let product = products.fold(product(sizes.sums(), input), usize::max);
        [rows * width(sizes), over_inputs, over_states, rows, rows, product]
    }

    /// Numbers of scratch for chunks of at most so many steps.
    pub(crate) fn size(sizes: Sizes, steps: usize, threads: usize) -> usize {
        Self::lengths(sizes, steps, threads).iter().sum()
    }

    /// The parts of a buffer.
    pub(crate) fn new(sizes: Sizes, steps: usize, threads: usize, mut buffer: &'a mut [f32]) -> Self {
        let mut parts = Self::lengths(sizes, steps, threads).map(|length| {
            let (part, rest) = std::mem::take(&mut buffer).split_at_mut(length);
            buffer = rest;
            part
        });
        let [grads, input, hidden, a, b, product] = parts.each_mut().map(std::mem::take);
        Scratch { grads, packed: [input, hidden], tables: [a, b].map(bytemuck::cast_slice_mut), product }
    }
}

/// The samples of a thread.
struct Task<'a> {
    first: usize,
    samples: usize,
    grads: &'a mut [f32],
    states: [&'a mut [f32]; 2],
    input: &'a mut [f32],
}

impl<C: Cell> Backward<'_, C> {
    /// Packs what all chunks need.
    pub(crate) fn pack(&self, cores: &Cores, scratch: &mut Scratch<'_>) {
        let Sizes { input, hidden, .. } = self.forward.sizes;
        let terms = self.forward.sizes.sums();
        for ((packed, weight), columns) in scratch.packed.iter_mut().zip(self.weights).zip([input, hidden]) {
            let mut panels: Vec<_> = packed.chunks_mut(MAX_COLUMNS * terms).enumerate().collect();
            cores.each(&mut panels, |_, (number, panel)| {
                let width = panel.len() / terms;
                let first = *number * MAX_COLUMNS;
                let columns = first..columns.min(first + width);
                for (row, weights) in panel.chunks_exact_mut(width).zip(weight.chunks_exact(weight.len() / terms)) {
                    row[..columns.len()].copy_from_slice(&weights[columns.clone()]);
                }
            });
        }
    }

    /// Goes back through a chunk of steps.
    pub(crate) fn run(
        &self,
        cores: &Cores,
        steps: Range<usize>,
        scratch: &mut Scratch<'_>,
        gradients: &mut Gradients<'_>,
    ) {
        let sizes @ Sizes { batch, time, input, hidden, .. } = self.forward.sizes;
        let samples = sizes.samples(cores);
        let mut grads =
            scratch.grads[..batch * steps.len() * width(sizes)].chunks_mut(samples * steps.len() * width(sizes));
        let [mut states, mut others] = gradients.states.each_mut().map(|states| states.chunks_mut(samples * hidden));
        let mut inputs = gradients.input.as_deref_mut().unwrap_or_default().chunks_mut(samples * time * input);
        let task = |i: usize| Task {
            first: i * samples,
            samples: samples.min(batch - i * samples),
            grads: grads.next().unwrap_or_default(),
            states: [states.next().unwrap_or_default(), others.next().unwrap_or_default()],
            input: inputs.next().unwrap_or_default(),
        };
        let mut tasks: Vec<_> = (0..batch.div_ceil(samples)).map(task).collect();
        let packed = scratch.packed.each_ref().map(|packed| &**packed);
        cores.each(&mut tasks, |_, task| self.samples(cores.level(), steps.clone(), packed, task));
        self.weights(cores, steps, scratch, gradients);
    }

    fn samples(&self, level: Level, steps: Range<usize>, packed: [&[f32]; 2], task: &mut Task<'_>) {
        let sizes @ Sizes { time, input, hidden, .. } = self.forward.sizes;
        let (width, terms, state_terms) = (width(sizes), sizes.sums(), sizes.state_terms());
        if self.gates.is_none() {
            self.gates_again(level, steps.clone(), task);
        }
        let (begin, count) = (steps.start, steps.len());
        let mut room = [0; MAX_ROWS];
        for t in steps.clone().rev() {
            level.run(Step { run: self, t, steps: steps.clone(), task });
            let goes_on = t > 0 || self.forward.initial[0].is_some();
            let grads = &*task.grads;
            for rows in row_tiles(level, task.samples) {
                let place = |first: usize| move |sample: usize| (sample * count + t - begin) * width + first;
                if goes_on {
                    let mut to = Block::new(&mut task.states[0][rows.start * hidden..], rows.len(), hidden, hidden);
                    for (number, panel) in packed[1].chunks(MAX_COLUMNS * terms).enumerate() {
                        let panel_width = panel.len() / terms;
                        let columns = number * MAX_COLUMNS..hidden.min(number * MAX_COLUMNS + panel_width);
                        for &[first, term, terms] in &state_terms {
                            let places = places(&mut room, rows.clone(), place(first));
                            let panel = &panel[term * panel_width..][..terms * panel_width];
                            let to = to.part(0..rows.len(), columns.clone());
                            add(level, (grads, places), terms, panel, panel_width, Start::Output, to);
                        }
                    }
                }
                if !task.input.is_empty() {
                    let first = (rows.start * time + t) * input;
                    let mut to = Block::new(&mut task.input[first..], rows.len(), input, time * input);
                    for (number, panel) in packed[0].chunks(MAX_COLUMNS * terms).enumerate() {
                        let panel_width = panel.len() / terms;
                        let columns = number * MAX_COLUMNS..input.min(number * MAX_COLUMNS + panel_width);
                        let places = places(&mut room, rows.clone(), place(0));
                        let to = to.part(0..rows.len(), columns);
                        add(level, (grads, places), terms, panel, panel_width, Start::Zero, to);
                    }
                }
            }
        }
    }

    /// Makes the gates of a chunk again, where their gradients will be.
    fn gates_again(&self, level: Level, steps: Range<usize>, task: &mut Task<'_>) {
        let sizes @ Sizes { time, hidden, .. } = self.forward.sizes;
        let states = self.states[0].expect("bug: no hidden states");
        let mut sums = [0.0; MAX_ROWS * ROW];
        for t in steps.clone() {
            for group in 0..sizes.groups() {
                let units = group * UNITS..hidden.min((group + 1) * UNITS);
                for rows in row_tiles(level, task.samples) {
                    let first = task.first;
                    let earlier = |sample: usize| ((first + sample) * time + t - 1) * hidden;
                    let earlier: Option<Rows<'_>> = if t > 0 { Some((states, &earlier)) } else { None };
                    self.forward.sums(level, group, t, first, rows.clone(), earlier, &mut sums);
                    let first = (rows.start * steps.len() + t - steps.start) * width(sizes) + units.start;
                    let stride = steps.len() * width(sizes);
                    let gates = &mut task.grads[first..];
                    let (cell, units) = (self.forward.cell, units.len());
                    level.run(Open { cell, sums: &sums, rows: rows.len(), units, gates, stride, hidden });
                }
            }
        }
    }

    /// Adds what a chunk gives to the gradients of weights and biases.
    fn weights(&self, cores: &Cores, steps: Range<usize>, scratch: &mut Scratch<'_>, gradients: &mut Gradients<'_>) {
        let sizes @ Sizes { batch, time, input, hidden, .. } = self.forward.sizes;
        let width = width(sizes);
        let grads = &scratch.grads[..batch * steps.len() * width];
        let mut product = |a: Factor<'_>, b: Factor<'_>, terms: usize, rows: usize, to: &mut [f32], columns: usize| {
            let (extents, start) = (Extents::new(rows, columns, terms), Start::Block);
            Product { extents, a, b, start, relu: false, finish: None }.run(
                cores,
                scratch.product,
                Block::new(to, rows, columns, columns),
            );
        };
        let [ours, theirs] = &mut scratch.tables;
        // Inputs of the same steps.
        let rows = table(theirs, batch, time, steps.clone(), input);
        let inputs = Factor { data: self.forward.input, terms: Offsets::Table(rows), step: 1, batch: 0 };
        product(Factor::across(grads, width), inputs, rows.len(), sizes.sums(), gradients.weights[0], input);
        // States of the steps before.
        let later = steps.start.max(1)..steps.end;
        let states = self.states[0].expect("bug: no hidden states");
        for [first, row, count] in sizes.state_terms() {
            let to = &mut gradients.weights[1][row * hidden..][..count * hidden];
            if !later.is_empty() {
                let shift = later.start - steps.start;
                let rows = table(ours, batch, steps.len(), shift..steps.len(), width);
                let a = Factor { data: &grads[first..], terms: Offsets::Table(rows), step: 1, batch: 0 };
                let rows = table(theirs, batch, time, later.start - 1..later.end - 1, hidden);
                let b = Factor { data: states, terms: Offsets::Table(rows), step: 1, batch: 0 };
                product(a, b, rows.len(), count, to, hidden);
            }
            if let (0, Some(initial)) = (steps.start, self.forward.initial[0]) {
                let a = Factor::across(&grads[first..], steps.len() * width);
                product(a, Factor::across(initial, hidden), batch, count, to, hidden);
            }
        }
        let mut biases: Vec<_> = Vec::new();
        let [over_inputs, over_states] = &mut gradients.biases;
        biases.extend(over_inputs.chunks_mut(COLUMNS).enumerate().map(|(i, to)| (i * COLUMNS, to)));
        let mut rest = &mut **over_states;
        for [first, _, count] in sizes.state_terms() {
            let (part, others) = rest.split_at_mut(count);
            rest = others;
            let parts = part.chunks_mut(COLUMNS).enumerate();
            biases.extend(parts.map(|(i, to)| (first + i * COLUMNS, to)));
        }
        cores.each(&mut biases, |_, (first, to)| cores.level().run(AddRows { rows: &grads[*first..], width, to }));
    }
}

/// Writes where the rows of some of `time` steps of each sample begin.
fn table(table: &mut [u32], batch: usize, time: usize, steps: Range<usize>, width: usize) -> &[u32] {
    let table = &mut table[..batch * steps.len()];
    for (sample, places) in table.chunks_exact_mut(steps.len()).enumerate() {
        for (t, place) in steps.clone().zip(places) {
            *place = ((sample * time + t) * width) as u32;
        }
    }
    table
}

/// The cells of all units of the samples of a task, at a step.
struct Step<'a, 'b, 'c, C> {
    run: &'a Backward<'a, C>,
    t: usize,
    steps: Range<usize>,
    task: &'b mut Task<'c>,
}

impl<C: Cell> Kernel for Step<'_, '_, '_, C> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let Step { run, t, steps, task } = self;
        let Forward { sizes, cell, initial, lengths, .. } = run.forward;
        let Sizes { time, hidden, .. } = sizes;
        for sample in 0..task.samples {
            let all = task.first + sample;
            let row = &mut task.grads[(sample * steps.len() + t - steps.start) * width(sizes)..][..KEPT * hidden];
            if !is_there(lengths, all, t) {
                row.fill(0.0);
                continue;
            }
            for first in (0..hidden).step_by(UNITS) {
                let units = first..hidden.min(first + UNITS);
                let mut gates = [[Fast(0.0); UNITS]; KEPT];
                for gate in 0..KEPT {
                    gates[gate] = match run.gates {
                        Some(gates) => load(&gates[((all * time + t) * KEPT + gate) * hidden..][units.clone()]),
                        None => load(&row[gate * hidden..][units.clone()]),
                    };
                }
                let (mut earlier, mut now, mut grad) =
                    ([[Fast(0.0); UNITS]; 2], [[Fast(0.0); UNITS]; 2], [[Fast(0.0); UNITS]; 2]);
                for state in 0..2 {
                    let Some(states) = run.states[state] else { continue };
                    now[state] = load(&states[(all * time + t) * hidden..][units.clone()]);
                    if t > 0 {
                        earlier[state] = load(&states[(all * time + t - 1) * hidden..][units.clone()]);
                    } else if let Some(initial) = initial[state] {
                        earlier[state] = load(&initial[all * hidden..][units.clone()]);
                    }
                    grad[state] = load(&task.states[state][sample * hidden..][units.clone()]);
                }
                if let Some(given) = run.grad_output {
                    let given = load(&given[(all * time + t) * hidden..][units.clone()]);
                    for unit in 0..UNITS {
                        grad[0][unit] += given[unit];
                    }
                }
                let (mut sums, mut before) = ([[Fast(0.0); UNITS]; KEPT], [[Fast(0.0); UNITS]; 2]);
                for unit in 0..UNITS {
                    let (of_sums, of_states) = cell.step_back(
                        [gates[0][unit], gates[1][unit], gates[2][unit], gates[3][unit]],
                        [earlier[0][unit], earlier[1][unit]],
                        [now[0][unit], now[1][unit]],
                        [grad[0][unit], grad[1][unit]],
                    );
                    for gate in 0..C::GATES {
                        sums[gate][unit] = of_sums[0][gate];
                    }
                    if C::APART {
                        sums[C::GATES][unit] = of_sums[1][C::GATES - 1];
                    }
                    before[0][unit] = of_states[0];
                    before[1][unit] = of_states[1];
                }
                for gate in 0..KEPT {
                    store(&mut row[gate * hidden..][units.clone()], &sums[gate]);
                }
                for state in 0..2 {
                    if !task.states[state].is_empty() {
                        store(&mut task.states[state][sample * hidden..][units.clone()], &before[state]);
                    }
                }
            }
        }
    }
}

/// Writes gates to rows.
struct Open<'a, C> {
    cell: C,
    sums: &'a [f32],
    rows: usize,
    units: usize,
    gates: &'a mut [f32],
    stride: usize,
    hidden: usize,
}

impl<C: Cell> Kernel for Open<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let Open { cell, sums, rows, units, gates, stride, hidden } = self;
        for (row, sums) in sums.chunks_exact(ROW).take(rows).enumerate() {
            let of_row = open(cell, sums);
            for gate in 0..KEPT {
                store(&mut gates[row * stride + gate * hidden..][..units], &of_row[gate]);
            }
        }
    }
}

/// Adds all rows to a few numbers.
struct AddRows<'a, 'b> {
    rows: &'a [f32],
    width: usize,
    to: &'b mut [f32],
}

impl Kernel for AddRows<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let AddRows { rows, width, to } = self;
        let mut total = [0.0; COLUMNS];
        for block in rows.chunks(BLOCK * width) {
            let mut sums = [0.0; COLUMNS];
            for row in block.chunks(width) {
                if let (Some(row), true) = (row.first_chunk::<COLUMNS>(), to.len() == COLUMNS) {
                    for i in 0..COLUMNS {
                        sums[i] += row[i];
                    }
                } else {
                    sums.iter_mut().zip(row).take(to.len()).for_each(|(sum, x)| *sum += x);
                }
            }
            for i in 0..COLUMNS {
                total[i] += sums[i];
            }
        }
        to.iter_mut().zip(total).for_each(|(to, sum)| *to += sum);
    }
}

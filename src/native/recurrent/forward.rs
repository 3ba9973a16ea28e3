//! Steps forward.

use std::ops::Range;

use super::{
    Cell, KEPT, Lanes, Lengths, ROW, Sizes, UNITS, Weights, is_there, load, places, row_tiles, store, sums_of,
};
use crate::native::{Cores, Fast, Kernel, Level, MAX_ROWS, Simd};

/// A run forward, or of its gates again.
#[derive(Clone, Copy)]
pub(crate) struct Forward<'a, C> {
    pub(crate) cell: C,
    pub(crate) sizes: Sizes,
    pub(crate) input: &'a [f32],
    pub(crate) weights: Weights<'a>,
    /// The states before the first step, where they are given.
    pub(crate) initial: [Option<&'a [f32]>; 2],
    pub(crate) lengths: Option<Lengths<'a>>,
}

/// Rows of states, and where that of each sample of a task begins.
pub(super) type Rows<'a> = (&'a [f32], &'a dyn Fn(usize) -> usize);

/// The samples of a thread: states of all steps, and the gates of a chunk.
struct Task<'a> {
    first: usize,
    samples: usize,
    states: [&'a mut [f32]; 2],
    gates: &'a mut [f32],
}

impl<C: Cell> Forward<'_, C> {
    /// Runs a chunk of steps. `states` are those of all steps, of which the second may be empty; `gates` are those of the chunk.
    pub(crate) fn run(&self, cores: &Cores, steps: Range<usize>, states: [&mut [f32]; 2], gates: &mut [f32]) {
        let Sizes { batch, time, hidden, .. } = self.sizes;
        let samples = self.sizes.samples(cores);
        let [states, others] = states.map(|states| states.chunks_mut(samples * time * hidden));
        let mut others = others;
        let gates = gates[..batch * steps.len() * KEPT * hidden].chunks_mut(samples * steps.len() * KEPT * hidden);
        let tasks = states.zip(gates).enumerate().map(|(i, (states, gates))| Task {
            first: i * samples,
            samples: samples.min(batch - i * samples),
            states: [states, others.next().unwrap_or_default()],
            gates,
        });
        let mut tasks: Vec<_> = tasks.collect();
        cores.each(&mut tasks, |_, task| self.samples(cores.level(), steps.clone(), task));
    }

    fn samples(&self, level: Level, steps: Range<usize>, task: &mut Task<'_>) {
        let Sizes { time, hidden, .. } = self.sizes;
        let mut sums = [0.0; MAX_ROWS * ROW];
        for t in steps.clone() {
            for group in 0..self.sizes.groups() {
                for rows in row_tiles(level, task.samples) {
                    let first = task.first;
                    let earlier = |sample: usize| (sample * time + t - 1) * hidden;
                    let states: Option<Rows<'_>> = if t > 0 { Some((&*task.states[0], &earlier)) } else { None };
                    self.sums(level, group, t, first, rows.clone(), states, &mut sums);
                    level.run(Step { run: self, t, first, group, rows, sums: &sums, steps: steps.clone(), task });
                }
            }
        }
    }

    /// The sums of some samples of a task at a step, over their states if this is not the first step.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn sums(
        &self,
        level: Level,
        group: usize,
        t: usize,
        first: usize,
        rows: Range<usize>,
        states: Option<Rows<'_>>,
        sums: &mut [f32],
    ) {
        let Sizes { time, input, hidden, .. } = self.sizes;
        let (mut input_places, mut state_places) = ([0; MAX_ROWS], [0; MAX_ROWS]);
        let inputs = places(&mut input_places, rows.clone(), |sample| ((first + sample) * time + t) * input);
        let initial = |sample: usize| (first + sample) * hidden;
        let initial: Option<Rows<'_>> = match self.initial[0] {
            Some(states) => Some((states, &initial)),
            None => None,
        };
        let states = states.or(initial).map(|(states, place)| (states, places(&mut state_places, rows, place)));
        self.weights.sums(level, group, (self.input, inputs), states, sums);
    }
}

/// The cells of a group of units, of some samples of a task.
struct Step<'a, 'b, 'c, C> {
    run: &'a Forward<'a, C>,
    t: usize,
    first: usize,
    group: usize,
    rows: Range<usize>,
    sums: &'a [f32],
    steps: Range<usize>,
    task: &'b mut Task<'c>,
}

impl<C: Cell> Kernel for Step<'_, '_, '_, C> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let Step { run, t, first, group, rows, sums, steps, task } = self;
        let Sizes { time, hidden, .. } = run.sizes;
        let units = group * UNITS..hidden.min((group + 1) * UNITS);
        for (sample, sums) in rows.zip(sums.chunks_exact(ROW)) {
            let mut earlier = [[Fast(0.0); UNITS]; 2];
            for state in 0..2 {
                if t > 0 && !task.states[state].is_empty() {
                    let at = (sample * time + t - 1) * hidden;
                    earlier[state] = load(&task.states[state][at..][units.clone()]);
                } else if let (0, Some(initial)) = (t, run.initial[state]) {
                    earlier[state] = load(&initial[(first + sample) * hidden..][units.clone()]);
                }
            }
            let (mut gates, mut now) = ([[Fast(0.0); UNITS]; KEPT], [[Fast(0.0); UNITS]; 2]);
            if is_there(run.lengths, first + sample, t) {
                gates = open(run.cell, sums);
                for unit in 0..UNITS {
                    let of_unit = [gates[0][unit], gates[1][unit], gates[2][unit], gates[3][unit]];
                    let states = run.cell.step(of_unit, [earlier[0][unit], earlier[1][unit]]);
                    now[0][unit] = states[0];
                    now[1][unit] = states[1];
                }
            }
            let row = (sample * steps.len() + t - steps.start) * KEPT * hidden;
            for gate in 0..KEPT {
                store(&mut task.gates[row + gate * hidden..][units.clone()], &gates[gate]);
            }
            for state in 0..2 {
                if !task.states[state].is_empty() {
                    let at = (sample * time + t) * hidden;
                    store(&mut task.states[state][at..][units.clone()], &now[state]);
                }
            }
        }
    }
}

/// The gates of a group of units from their sums.
#[inline(always)]
pub(super) fn open<C: Cell>(cell: C, sums: &[f32]) -> [Lanes; KEPT] {
    let mut row = [[Fast(0.0); UNITS]; KEPT];
    for place in 0..KEPT {
        row[place] = load(&sums[place * UNITS..][..UNITS]);
    }
    let mut gates = [[Fast(0.0); UNITS]; KEPT];
    for unit in 0..UNITS {
        let [input, hidden] = sums_of::<C>(&row, unit);
        let of_unit = cell.gates(input, hidden);
        for gate in 0..KEPT {
            gates[gate][unit] = of_unit[gate];
        }
    }
    gates
}

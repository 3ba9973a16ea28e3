//! Recurrent cells over a time axis: the gates of some units lie beside one another, so that one row of sums holds all that a unit
//! needs, and products with inputs and with states are added there while they are in the first cache. Threads share the
//! samples and never wait for one another within a chunk of steps.

mod backward;
mod forward;

use std::ops::Range;

pub(crate) use self::backward::{Backward, Gradients, Scratch};
pub(crate) use self::forward::Forward;
use super::{Block, Cores, Fast, Level, MAX_ROWS, MAX_VECTORS, Offsets, Operand, Start, Sums, tile, transpose};

/// Numbers that a unit keeps at a step, and its sums.
pub(crate) const KEPT: usize = 4;
/// Units whose sums lie in one row.
const UNITS: usize = 16;
/// Sums of a row.
const ROW: usize = KEPT * UNITS;

/// Numbers of some units.
type Lanes = [Fast; UNITS];

/// The arithmetic of a cell. Mark its functions `#[inline(always)]`.
pub(crate) trait Cell: Copy + Sync {
    /// Gates of a unit.
    const GATES: usize;
    /// Whether sums of the last gate over inputs and over states are kept apart.
    const APART: bool;

    /// What is kept of a unit, from its sums over inputs and over states.
    fn gates(self, input: [Fast; KEPT], hidden: [Fast; KEPT]) -> [Fast; KEPT];
    /// The states after a step.
    fn step(self, gates: [Fast; KEPT], earlier: [Fast; 2]) -> [Fast; 2];
    /// The gradients of the sums over inputs and over states, and of the states before.
    fn step_back(
        self,
        gates: [Fast; KEPT],
        earlier: [Fast; 2],
        now: [Fast; 2],
        grad: [Fast; 2],
    ) -> ([[Fast; KEPT]; 2], [Fast; 2]);
}

/// The sizes of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) batch: usize,
    pub(crate) time: usize,
    pub(crate) input: usize,
    pub(crate) hidden: usize,
    pub(crate) gates: usize,
    pub(crate) apart: bool,
}

impl Sizes {
    /// Sums of a unit over inputs, and over states, for all units.
    fn sums(self) -> usize {
        self.gates * self.hidden
    }

    /// Groups of units.
    fn groups(self) -> usize {
        self.hidden.div_ceil(UNITS)
    }

    /// Samples of a task: all threads get as many.
    fn samples(self, cores: &Cores) -> usize {
        self.batch.div_ceil(cores.threads()).max(cores.level().tile().0.min(self.batch))
    }

    /// Where the terms of sums over states lie in a row of gradients, and which they are: first place, first term, terms.
    fn state_terms(self) -> Vec<[usize; 3]> {
        let (sums, hidden) = (self.sums(), self.hidden);
        if self.apart { vec![[0, 0, sums - hidden], [sums, sums - hidden, hidden]] } else { vec![[0, 0, sums]] }
    }
}

/// How many steps each sample has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lengths<'a> {
    pub(crate) lengths: &'a [u32],
    /// The step of the lengths that the run begins with.
    pub(crate) start: usize,
}

fn is_there(lengths: Option<Lengths<'_>>, sample: usize, t: usize) -> bool {
    lengths.is_none_or(|Lengths { lengths, start }| t + start < lengths[sample] as usize)
}

/// Weights and biases for the sums of each group of units, packed: in a row of sums, gate after gate, the one that is kept apart
/// comes first with its sums over inputs and last with those over states.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weights<'a> {
    sizes: Sizes,
    packed: &'a [f32],
}

impl<'a> Weights<'a> {
    fn group_size(sizes: Sizes) -> usize {
        (sizes.input + sizes.hidden) * sizes.gates * UNITS + ROW
    }

    /// Numbers of scratch for packed weights.
    pub(crate) fn scratch(sizes: Sizes) -> usize {
        sizes.groups() * Self::group_size(sizes)
    }

    /// Where no sums are made.
    pub(crate) fn none(sizes: Sizes) -> Self {
        Weights { sizes, packed: &[] }
    }

    /// Packs weights and biases over inputs and over states.
    pub(crate) fn pack(
        cores: &Cores,
        sizes: Sizes,
        weights: [&[f32]; 2],
        biases: [&[f32]; 2],
        packed: &'a mut [f32],
    ) -> Self {
        let Sizes { input, hidden, gates, apart, .. } = sizes;
        let packed = &mut packed[..Self::scratch(sizes)];
        let mut groups: Vec<_> = packed.chunks_exact_mut(Self::group_size(sizes)).enumerate().collect();
        let width = gates * UNITS;
        cores.each(&mut groups, |_, (group, packed)| {
            let first = *group * UNITS;
            let units = UNITS.min(hidden - first);
            let (panels, row) = packed.split_at_mut((input + hidden) * width);
            let (over_inputs, over_states) = panels.split_at_mut(input * width);
            row.fill(0.0);
            for gate in 0..gates {
                let at = gate * hidden + first;
                let place = if apart { (gate + 1) % gates } else { gate } * UNITS;
                let state_place = gate * UNITS;
                let [ih, hh] = [(weights[0], input), (weights[1], hidden)].map(|(data, terms)| &data[at * terms..]);
                transpose(cores.level(), units, input, ih, input, &mut over_inputs[place..], width);
                transpose(cores.level(), units, hidden, hh, hidden, &mut over_states[state_place..], width);
                let shift = if apart { UNITS } else { 0 };
                for (bias, place) in biases.iter().zip([place, state_place + shift]) {
                    row[place..][..units].iter_mut().zip(&bias[at..]).for_each(|(sum, x)| *sum += x);
                }
            }
        });
        Weights { sizes, packed }
    }

    /// Writes the sums of a group of units, for some rows of inputs and of states, if there are.
    fn sums(
        &self,
        level: Level,
        group: usize,
        input: (&[f32], &[usize]),
        states: Option<(&[f32], &[usize])>,
        sums: &mut [f32],
    ) {
        let Sizes { input: features, hidden, gates, apart, .. } = self.sizes;
        let width = gates * UNITS;
        let packed = &self.packed[group * Self::group_size(self.sizes)..][..Self::group_size(self.sizes)];
        let (panels, bias) = packed.split_at((features + hidden) * width);
        let (over_inputs, over_states) = panels.split_at(features * width);
        let rows = input.1.len();
        for row in sums.chunks_exact_mut(ROW).take(rows) {
            row.copy_from_slice(bias);
        }
        let mut block = Block::new(sums, rows, ROW, ROW);
        add(level, input, features, over_inputs, width, Start::Output, block.part(0..rows, 0..width));
        if let Some(states) = states {
            let first = if apart { UNITS } else { 0 };
            add(level, states, hidden, over_states, width, Start::Output, block.part(0..rows, first..first + width));
        }
    }
}

/// The sums of a unit, over inputs and over states, from a row of sums.
#[inline(always)]
fn sums_of<C: Cell>(row: &[Lanes; KEPT], unit: usize) -> [[Fast; KEPT]; 2] {
    let mut sums = [[Fast(0.0); KEPT]; 2];
    for gate in 0..C::GATES {
        let place = if C::APART { (gate + 1) % C::GATES } else { gate };
        sums[0][gate] = row[place][unit];
    }
    if C::APART {
        sums[1][C::GATES - 1] = row[C::GATES][unit];
    }
    sums
}

/// Adds products to a block: rows of terms that lie beside one another, times a panel of so many columns.
fn add(
    level: Level,
    (data, rows): (&[f32], &[usize]),
    terms: usize,
    panel: &[f32],
    width: usize,
    start: Start<'_>,
    mut output: Block<'_>,
) {
    let lanes = level.lanes();
    let most = lanes * level.tile().1;
    let height = output.rows();
    for first in (0..output.columns()).step_by(most) {
        let end = output.columns().min(first + most);
        let columns: [usize; MAX_VECTORS] = std::array::from_fn(|i| first + i * lanes);
        let sums = Sums {
            a: Operand { data, offsets: Offsets::Step(1) },
            rows,
            b: Operand { data: panel, offsets: Offsets::Step(width) },
            columns: &columns[..(end - first).div_ceil(lanes)],
            terms,
            start,
            relu: false,
        };
        tile(level, &sums, output.part(0..height, first..end));
    }
}

/// Rows of a tile from each of `count`: where they begin, and how many there are.
fn row_tiles(level: Level, count: usize) -> impl Iterator<Item = Range<usize>> {
    let tiles = count.div_ceil(level.tile().0);
    (0..tiles).map(move |i| count * i / tiles..count * (i + 1) / tiles)
}

/// Writes the places of up to so many rows.
fn places(to: &mut [usize; MAX_ROWS], rows: Range<usize>, place: impl Fn(usize) -> usize) -> &[usize] {
    let count = rows.len();
    rows.zip(&mut *to).for_each(|(row, at)| *at = place(row));
    &to[..count]
}

/// The numbers of a group of units.
#[inline(always)]
fn load(from: &[f32]) -> Lanes {
    let mut lanes = [Fast(0.0); UNITS];
    if let Some(from) = from.first_chunk::<UNITS>() {
        for i in 0..UNITS {
            lanes[i] = Fast(from[i]);
        }
    } else {
        for (lane, &x) in lanes.iter_mut().zip(from) {
            *lane = Fast(x);
        }
    }
    lanes
}

/// Writes the numbers of as many units as there are.
#[inline(always)]
fn store(to: &mut [f32], lanes: &Lanes) {
    if let Some(to) = to.first_chunk_mut::<UNITS>() {
        for i in 0..UNITS {
            to[i] = lanes[i].0;
        }
    } else {
        for (to, lane) in to.iter_mut().zip(lanes) {
            *to = lane.0;
        }
    }
}

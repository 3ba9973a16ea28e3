//! The gradient of the table: indices are sorted, then each row adds what belongs to it.

use super::{Embedding, launch};
use crate::error::OpError;
use crate::native::{Kernel, Simd};
use crate::ops::sums::Sums;
use crate::ops::{Call, Cost, Dispatch, Native, Op, Real, Resources, Slot, expect_count};
use crate::shader::Target;
use crate::tensor::TensorDesc;

/// Most indices: what keeps the loops of one invocation within their limit.
pub(super) const MAX_INDICES: usize = 1 << 27;
/// Bits of a digit, by which one round of the sort orders.
const DIGIT_BITS: u32 = 4;
/// Most chunks of indices, each of which one invocation orders; a chunk has at least [`MIN_CHUNK`].
const MAX_CHUNKS: usize = 4096;
const MIN_CHUNK: usize = 64;
/// The least length of a tile of the sorted indices.
const MIN_TILE: usize = 32;

/// Where the workspaces are; the orders of odd and even rounds follow.
const COUNTS: Slot = Slot::Workspace(0);
const BEGIN: Slot = Slot::Workspace(1);
const PARTIALS: Slot = Slot::Workspace(2);
const ORDERS: [Slot; 2] = [Slot::Workspace(3), Slot::Workspace(4)];

/// `grad_weight[v] = Σ grad_output[n]` over the n with `indices[n] = v`; inputs `indices, grad_output`.
#[derive(Clone, Copy, Debug)]
pub(super) struct EmbeddingGradWeight {
    pub(super) embedding: Embedding,
    /// Rows of the weight.
    pub(super) rows: usize,
}

/// How the work is cut up.
struct Sort {
    numbers: usize,
    width: usize,
    chunk: usize,
    chunks: usize,
    /// Rounds of the sort.
    rounds: u32,
    tile: usize,
    /// Tiles that are full.
    tiles: usize,
}

params! {
    struct SortParams {
        numbers: u32,
        rows: u32,
        chunk: u32,
        chunks: u32,
        shift: u32,
    }
}

impl EmbeddingGradWeight {
    fn sort(&self, inputs: &[TensorDesc]) -> Sort {
        let numbers = inputs[0].numel();
        let chunk = numbers.div_ceil(MAX_CHUNKS).max(MIN_CHUNK);
        // A row of all numbers has as many tiles as a tile has numbers.
        let tile = numbers.isqrt().max(MIN_TILE);
        Sort {
            numbers,
            width: inputs[1].numel() / numbers,
            chunk,
            chunks: numbers.div_ceil(chunk),
            // The number of rows stands for all indices that are none.
            rounds: (usize::BITS - self.rows.leading_zeros()).div_ceil(DIGIT_BITS),
            tile,
            tiles: numbers / tile,
        }
    }

    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let (indices, grad_output) = (call.ints(0), call.input(1));
        let width = call.output_shape(0)[1];
        let mut sums = Sums::new(self.rows * width);
        for (g, &index) in grad_output.chunks_exact(width).zip(indices) {
            if Some(index) == self.embedding.padding_idx {
                continue;
            }
            if (index as usize) < self.rows {
                sums.add_all(index as usize * width, g);
            }
        }
        sums.write(call.output(0));
    }
}

impl Op for EmbeddingGradWeight {
    fn name(&self) -> &'static str {
        "embedding.grad_weight"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        expect_count("embedding.grad_weight", inputs, 2)?;
        Ok(vec![TensorDesc::f32([self.rows, inputs[1].numel() / inputs[0].numel()])])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        // Each round of the sort reads indices and order twice and writes the order.
        let sort = u64::from(self.sort(inputs).rounds) * 5 * inputs[0].size_bytes();
        let bytes_moved = sort + inputs[1].size_bytes() + outputs[0].size_bytes();
        Cost { flops: inputs[1].numel() as u64, bytes_moved }
    }

    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Vec<u64> {
        let sort = self.sort(inputs);
        let mut words = vec![sort.chunks << DIGIT_BITS, self.rows + 1, sort.tiles.max(1) * sort.width, sort.numbers];
        if sort.rounds > 1 {
            words.push(sort.numbers);
        }
        words.into_iter().map(|words| words as u64 * 4).collect()
    }

    fn dispatches(&self, inputs: &[TensorDesc], outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        let sort = self.sort(inputs);
        let (indices, grad_output) = (Slot::Input(0), Slot::Input(1));
        let kernel = |entry, bindings: &[Slot], invocations: usize, shift: u32| {
            let [numbers, rows, chunk, chunks] = [sort.numbers, self.rows, sort.chunk, sort.chunks].map(|n| n as u32);
            Dispatch::new("embedding", entry, bindings)
                .params(&SortParams { numbers, rows, chunk, chunks, shift })
                .linear(invocations.div_ceil(64))
        };
        let mut dispatches = Vec::new();
        let mut order = None;
        for round in 0..sort.rounds {
            let (to, shift) = (ORDERS[round as usize % 2], round * DIGIT_BITS);
            let by_digit = |entry, bindings: &[Slot]| {
                // The first round finds every number at its own place.
                let bindings: Vec<Slot> = bindings.iter().copied().chain(order).collect();
                let dispatch = kernel(entry, &bindings, sort.chunks, shift).loops(sort.chunk + 16);
                if order.is_none() { dispatch.constant("FIRST", 1) } else { dispatch }
            };
            let scan = kernel("scan", &[COUNTS], 1, shift).loops(2 * (sort.chunks << DIGIT_BITS).div_ceil(256) + 8);
            dispatches.extend([
                by_digit("count", &[indices, COUNTS]),
                scan,
                by_digit("scatter", &[indices, COUNTS, to]),
            ]);
            order = Some(to);
        }
        let order = order.expect("bug: a table has at least one row");
        dispatches.push(kernel("bounds", &[indices, order, BEGIN], self.rows + 1, 0).loops(32));
        let params = self.embedding.params(self.rows, sort.tile);
        if sort.tiles > 0 {
            let bindings = [indices, order, grad_output, PARTIALS];
            dispatches.push(launch("tiles", &bindings, sort.tiles * sort.width, sort.width, params).loops(sort.tile));
        }
        let bindings = [order, BEGIN, grad_output, PARTIALS, Slot::Output(0)];
        let sum = launch("grad_weight", &bindings, outputs[0].numel(), sort.width, params);
        dispatches.push(sum.loops(2 * sort.tile + sort.tiles));
        dispatches
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    twin!();
}

/// Elements of the table that are worth a task.
const LEAST: usize = 4096;
/// Terms that are added to each other before they are added to the sum.
const TERMS: usize = 256;
/// Columns of such a sum.
const WIDTH: usize = 512;

impl Native for EmbeddingGradWeight {
    /// The order of all numbers by the row that they name, and where each row ends in it.
    fn workspaces(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc], _threads: usize) -> Vec<u64> {
        [inputs[0].numel(), self.rows].map(|words| words as u64 * 4).into()
    }

    fn run(&self, call: &mut Call<'_, f32>, with: &mut Resources<'_>) {
        let (indices, grad_output) = (call.ints(0), call.input(1));
        let width = call.output_shape(0)[1];
        let [order, ends] = &mut with.workspaces[..] else { unreachable!("bug: two workspaces were asked for") };
        let order: &mut [u32] = &mut bytemuck::cast_slice_mut(order)[..indices.len()];
        let ends: &mut [u32] = &mut bytemuck::cast_slice_mut(ends)[..self.rows];
        self.order_by_row(indices, order, ends);
        let (order, ends, level) = (&*order, &*ends, with.cores.level());
        with.cores.pieces_of(call.output(0), width, LEAST, |start, output| {
            level.run(AddRows { order, ends, grad_output, width, first: start / width, output });
        });
    }
}

impl EmbeddingGradWeight {
    fn order_by_row(&self, indices: &[u32], order: &mut [u32], ends: &mut [u32]) {
        let named = || indices.iter().enumerate().filter(|&(_, &index)| Some(index) != self.embedding.padding_idx);
        ends.fill(0);
        for (_, &index) in named() {
            if let Some(count) = ends.get_mut(index as usize) {
                *count += 1;
            }
        }
        // From counts to where rows begin, and from there to where they end.
        let mut next = 0;
        for place in &mut *ends {
            (*place, next) = (next, next + *place);
        }
        for (i, &index) in named() {
            if let Some(place) = ends.get_mut(index as usize) {
                order[*place as usize] = i as u32;
                *place += 1;
            }
        }
    }
}

struct AddRows<'a, 'b> {
    order: &'a [u32],
    ends: &'a [u32],
    grad_output: &'a [f32],
    width: usize,
    /// The first row of the table.
    first: usize,
    output: &'b mut [f32],
}

impl Kernel for AddRows<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let AddRows { order, ends, grad_output, width, first, output } = self;
        for (row, output) in (first..).zip(output.chunks_exact_mut(width)) {
            let start = if row == 0 { 0 } else { ends[row - 1] };
            let terms = &order[start as usize..ends[row] as usize];
            let rows = Rows { data: grad_output, width };
            if terms.len() <= TERMS {
                rows.sum(terms, 0, output);
                continue;
            }
            output.fill(0.0);
            for (i, output) in output.chunks_mut(WIDTH).enumerate() {
                let mut sums = [0.0; WIDTH];
                for terms in terms.chunks(TERMS) {
                    let sums = &mut sums[..output.len()];
                    rows.sum(terms, i * WIDTH, sums);
                    for (y, &sum) in output.iter_mut().zip(&*sums) {
                        *y += sum;
                    }
                }
            }
        }
    }
}

/// The gradients for the output, a row for each number.
#[derive(Clone, Copy)]
struct Rows<'a> {
    data: &'a [f32],
    width: usize,
}

impl Rows<'_> {
    /// The sum of some rows, of the columns from one on.
    #[inline(always)]
    fn sum(self, terms: &[u32], column: usize, sums: &mut [f32]) {
        let Some((&first, others)) = terms.split_first() else { return sums.fill(0.0) };
        let row = |term: u32| term as usize * self.width + column;
        sums.copy_from_slice(&self.data[row(first)..][..sums.len()]);
        for &term in others {
            for (sum, &x) in sums.iter_mut().zip(&self.data[row(term)..]) {
                *sum += x;
            }
        }
    }
}

//! Weights in the order in which the gradient of input reads them.

use super::gather::{Gather, Part};
use crate::native::Cores;

/// Rows that are packed together: as many lines of the weights are read whole.
const ROWS: usize = 16;

/// Packs the weights `[groups · sources][results][taps]` of a [`Gather`] for each part as `[groups · results][sources][taps]`.
pub(super) fn pack(
    gather: &Gather,
    parts: &[Part],
    kernel: (usize, usize),
    weights: &[f32],
    cores: &Cores,
    to: &mut [f32],
) {
    let rows = gather.groups * gather.results;
    let mut tasks = Vec::new();
    let mut rest = to;
    for part in parts {
        let places: Vec<_> = part.kernel.iter().map(|&(row, column)| row * kernel.1 + column).collect();
        let row = gather.sources * places.len();
        let (own, next) = rest.split_at_mut(rows * row);
        rest = next;
        if row == 0 {
            continue;
        }
        for (group, own) in own.chunks_exact_mut(gather.results * row).enumerate() {
            let chunks = own.chunks_mut(ROWS * row).enumerate();
            tasks.extend(chunks.map(|(i, rows)| (group, i * ROWS, places.clone(), rows)));
        }
    }
    let taps = kernel.0 * kernel.1;
    cores.each(&mut tasks, |_, (group, first, places, to)| {
        let row = gather.sources * places.len();
        for source in 0..gather.sources {
            let weights = &weights[(*group * gather.sources + source) * gather.results * taps..];
            for (i, to) in to.chunks_exact_mut(row).enumerate() {
                let from = &weights[(*first + i) * taps..][..taps];
                let to = &mut to[source * places.len()..][..places.len()];
                for (to, &place) in to.iter_mut().zip(places.iter()) {
                    *to = from[place];
                }
            }
        }
    });
}

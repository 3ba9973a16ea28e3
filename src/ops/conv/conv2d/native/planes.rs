//! Convolutions of single channels, each with weights of its own (depthwise): there is one row of products for each channel, too few
//! for a tile. Vectors run through the padded planes of some images, as many as are in flight at a time.

use std::ops::Range;

use super::band::interleave;
use super::direct::{Direct, aligned};
use super::gather::{Gather, Part};
use super::padded::{Copy, Padded, copy};
use super::plan::{LINE, MOST_SOURCE, Unit};
use crate::native::{Cores, Kernel, Simd};

/// Vectors that are summed up at the same time: enough that none waits for its own last sum.
const IN_FLIGHT: usize = 8;
/// Tasks that there should be, so that no thread waits long for the last.
const ENOUGH_TASKS: usize = 16;
/// Elements of the result that are worth a task.
const LEAST_PIXELS: usize = 2048;

/// How such a convolution is divided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planes {
    lanes: usize,
    /// Images whose planes are computed together.
    images: usize,
}

/// The whole source of a plane, with the zeros around it.
fn padded(gather: &Gather) -> Padded {
    let (rows, columns) = (&gather.rows, &gather.columns);
    Padded { first: (0, 0), rows: rows.count() + rows.reach, pitch: columns.count() + columns.reach }
}

/// Pixels of a part, in rows and columns.
fn extent(gather: &Gather, part: &Part) -> (usize, usize) {
    (gather.rows.phases[part.row_phase].count, gather.columns.phases[part.column_phase].count)
}

impl Planes {
    /// `None` where channels are not single, or too large for a cache.
    pub(super) fn new(gather: &Gather, unit: Unit) -> Option<Self> {
        let is_single = gather.sources == 1 && gather.results == 1;
        let plane = padded(gather).channel(gather).max(gather.result_plane());
        if !is_single || plane > MOST_SOURCE {
            return None;
        }
        let planes = Planes { lanes: unit.lanes, images: 1 };
        let images = IN_FLIGHT.div_ceil(planes.vectors(gather).max(1)).min(gather.samples.max(1));
        Some(Planes { images, ..planes })
    }

    /// Vectors of the largest part of a plane, which run through the rows of the padded source.
    fn vectors(&self, gather: &Gather) -> usize {
        let (rows, columns) = (gather.rows.count(), gather.columns.count());
        if rows * columns == 0 { 0 } else { ((rows - 1) * padded(gather).pitch + columns).div_ceil(self.lanes) }
    }

    /// Elements of the padded sources of a task, with room for a vector behind the last, of its sums, and of a plane of the result.
    fn lengths(&self, gather: &Gather) -> [usize; 3] {
        let parts = gather.rows.phases.len() * gather.columns.phases.len();
        let source = self.images * padded(gather).channel(gather) + self.lanes;
        let sums = parts * self.images * self.vectors(gather) * self.lanes;
        [source, sums, gather.result_plane()].map(|len| len.next_multiple_of(LINE))
    }

    /// Elements of the scratch of a thread.
    pub(super) fn scratch(&self, gather: &Gather) -> usize {
        self.lengths(gather).iter().sum::<usize>() + LINE
    }
}

/// Some channels of some images.
struct Task<'a> {
    image: usize,
    channels: Range<usize>,
    /// Of each image.
    outputs: Vec<&'a mut [f32]>,
}

impl Direct<'_> {
    /// Computes the result plane by plane.
    pub(super) fn run_by_planes(&self, cores: &Cores, planes: &Planes, scratch: &mut [f32], output: &mut [f32]) {
        let gather = self.gather;
        let (channels, plane) = (gather.groups, gather.result_plane());
        let parts = gather.parts();
        let mut begin = 0;
        let of_part = |part: &Part| {
            let offsets = padded(gather).offsets(gather, part.row_phase, part.column_phase, 1);
            let weights = begin;
            begin += channels * part.kernel.len();
            (offsets, weights)
        };
        let taps: Vec<_> = parts.iter().map(of_part).collect();
        let groups = gather.samples.div_ceil(planes.images);
        let worth = (channels * planes.images * plane).div_ceil(LEAST_PIXELS);
        let share = channels.div_ceil(ENOUGH_TASKS.div_ceil(groups).min(worth).max(1));
        let mut tasks = Vec::new();
        for (i, output) in output.chunks_mut(planes.images * channels * plane).enumerate() {
            let mut images: Vec<_> =
                output.chunks_exact_mut(channels * plane).map(|image| image.chunks_mut(share * plane)).collect();
            for first in (0..channels).step_by(share) {
                let outputs = images.iter_mut().filter_map(Iterator::next).collect();
                let channels = first..channels.min(first + share);
                tasks.push(Task { image: i * planes.images, channels, outputs });
            }
        }
        let len = planes.scratch(gather);
        let mut own: Vec<_> = scratch.chunks_exact_mut(len).take(cores.threads()).collect();
        cores.each_with(&mut tasks, &mut own, |scratch, task| {
            cores.level().run(Run { direct: self, planes, parts: &parts, taps: &taps, task, scratch });
        });
    }
}

/// What a task does.
struct Run<'a, 't> {
    direct: &'a Direct<'a>,
    planes: &'a Planes,
    parts: &'a [Part],
    /// Offsets of the taps of each part, and where its weights begin.
    taps: &'a [(Vec<u32>, usize)],
    task: &'a mut Task<'t>,
    scratch: &'a mut [f32],
}

impl Kernel for Run<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Run { direct, planes, parts, taps, task, scratch } = self;
        let gather = direct.gather;
        let (padded, images) = (padded(gather), task.outputs.len());
        let (stride, vectors, plane) = (padded.channel(gather), planes.vectors(gather), gather.result_plane());
        let [source, sums, _] = planes.lengths(gather);
        let (source, rest) = aligned(scratch, source);
        let (sums, pixels) = rest.split_at_mut(sums);
        let pixels = &mut pixels[..plane];
        let of_part = images * vectors * S::LANES;
        for (i, channel) in task.channels.clone().enumerate() {
            for image in 0..images {
                let place = ((task.image + image) * gather.groups + channel) * gather.source_plane();
                let from = &direct.source[place..][..gather.source_plane()];
                let to = &mut source[image * stride..(image + 1) * stride];
                Copy { gather, padded, source: from, to }.run(simd);
            }
            let start = simd.splat(direct.bias.map_or(0.0, |bias| bias[channel]));
            for ((offsets, begin), sums) in taps.iter().zip(sums.chunks_exact_mut(of_part.max(1))) {
                let weights = &direct.weights[begin + channel * offsets.len()..][..offsets.len()];
                let place = |vector: usize| vector / vectors * stride + vector % vectors * S::LANES;
                let all = images * vectors;
                for first in (0..all).step_by(IN_FLIGHT) {
                    // Where there are fewer vectors, the last is computed again.
                    let at: [usize; IN_FLIGHT] = std::array::from_fn(|k| place((first + k).min(all - 1)));
                    let mut acc = [start; IN_FLIGHT];
                    for (&offset, &weight) in offsets.iter().zip(weights) {
                        let (source, weight) = (&source[offset as usize..], simd.splat(weight));
                        for (acc, &at) in acc.iter_mut().zip(&at) {
                            *acc = simd.mul_add(simd.load(&source[at..]), weight, *acc);
                        }
                    }
                    let to = sums[first * S::LANES..].chunks_exact_mut(S::LANES);
                    for (to, acc) in to.zip(acc) {
                        simd.store(to, if direct.relu { simd.relu(acc) } else { acc });
                    }
                }
            }
            for image in 0..images {
                let output = &mut task.outputs[image][i * plane..(i + 1) * plane];
                let to = if direct.finish.is_some() { &mut *pixels } else { &mut *output };
                let sums = &sums[image * vectors * S::LANES..];
                write(simd, gather, parts, |part| &sums[part * of_part..], padded.pitch, to);
                if let Some(finish) = direct.finish {
                    finish(((task.image + image) * gather.groups + channel) * plane, pixels, output);
                }
            }
        }
    }
}

/// Writes the pixels of all parts to a plane.
#[inline(always)]
fn write<'s, S: Simd>(
    simd: S,
    gather: &Gather,
    parts: &[Part],
    sums: impl Fn(usize) -> &'s [f32],
    pitch: usize,
    to: &mut [f32],
) {
    let (rows, columns) = (&gather.rows, &gather.columns);
    let phases = columns.phases.len();
    for (phase, row_phase) in rows.phases.iter().enumerate() {
        for i in 0..row_phase.count {
            let to = &mut to[(i * rows.stride + row_phase.first) * columns.result..][..columns.result];
            let from = |column: usize| {
                let part = phase * phases + column;
                &sums(part)[i * pitch..][..extent(gather, &parts[part]).1]
            };
            match phases {
                1 => copy(simd, from(0), to),
                2 => interleave(from(0), from(1), to),
                _ => {
                    for (column, phase) in columns.phases.iter().enumerate() {
                        let places = to[phase.first..].iter_mut().step_by(columns.stride);
                        places.zip(from(column)).for_each(|(to, from)| *to = *from);
                    }
                }
            }
        }
    }
}

//! The largest of each window, and where it is.

use super::average::LEAST;
use crate::native::{Cores, Kernel, Simd};
use crate::ops::conv::conv2d::gcd;
use crate::ops::pool::windows::Windows;
use crate::tensor::Shape;

/// How the place of the largest is written.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops::pool) enum Places {
    /// The place in the plane.
    Plane,
    /// The place in the window, in so many bits.
    Window(usize),
}

impl Places {
    fn per_word(self) -> usize {
        match self {
            Places::Plane => 1,
            Places::Window(bits) => 32 / bits,
        }
    }
}

/// Windows of a row that are gone through together.
const BLOCK: usize = 128;

/// Pieces of outputs, of whole planes and whole words, that are enough for a task.
fn planes_of_task(plane: usize, places: Places) -> usize {
    let unit = places.per_word() / gcd(places.per_word(), plane);
    LEAST.div_ceil(plane).next_multiple_of(unit)
}

/// Writes the largest of each window and its place.
pub(in crate::ops::pool) fn forward(
    windows: Windows,
    places: Places,
    cores: &Cores,
    shapes: [&Shape; 2],
    input: &[f32],
    output: &mut [f32],
    words: &mut [u32],
) {
    let (extent, plane) = (shapes[0][2] * shapes[0][3], shapes[1][2] * shapes[1][3]);
    let planes = planes_of_task(plane, places);
    let words = words.chunks_mut((planes * plane).div_ceil(places.per_word()));
    let tasks = output.chunks_mut(planes * plane).zip(words).zip(input.chunks(planes * extent));
    let mut tasks: Vec<_> = tasks.map(|((output, words), input)| (output, words, input)).collect();
    let extents = [shapes[0][2], shapes[0][3], shapes[1][3]];
    cores.each(&mut tasks, |_, (output, words, input)| {
        let mut packer = Packer { places, words, buffer: [0; 2 * BLOCK], len: 0 };
        for (output, input) in output.chunks_exact_mut(plane).zip(input.chunks_exact(extent)) {
            cores.run(Plane { windows, extents, input, output, packer: &mut packer });
        }
        packer.flush(true);
    });
}

struct Plane<'a, 'p> {
    windows: Windows,
    /// Rows and columns of the input, columns of the output.
    extents: [usize; 3],
    input: &'a [f32],
    output: &'a mut [f32],
    packer: &'a mut Packer<'p>,
}

impl Kernel for Plane<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Plane { windows, extents: [height, width, outputs], input, output, packer } = self;
        let Windows { kernel, stride, padding, .. } = windows;
        let in_plane = matches!(packer.places, Places::Plane);
        for (y, output) in output.chunks_exact_mut(outputs).enumerate() {
            let rows = windows.covered(0, y, height);
            let first_row = rows.start + padding[0] - y * stride[0];
            for at in (0..outputs).step_by(BLOCK) {
                let len = (outputs - at).min(BLOCK);
                let (mut largest, mut found) = ([f32::NEG_INFINITY; BLOCK], [0; BLOCK]);
                // The first element counts where none is larger.
                for (i, found) in found[..len].iter_mut().enumerate() {
                    let begin = (at + i) * stride[1];
                    *found = if in_plane {
                        (rows.start * width + begin.saturating_sub(padding[1])) as u32
                    } else {
                        (first_row * kernel[1] + padding[1].saturating_sub(begin)) as u32
                    };
                }
                for h in rows.clone() {
                    for k in 0..kernel[1] {
                        let (xs, first) = windows.meeting(k, width, outputs);
                        let (begin, end) = (xs.start.max(at), xs.end.min(at + len));
                        if begin >= end {
                            continue;
                        }
                        let column = first + (begin - xs.start) * stride[1];
                        let row = &input[h * width..][..width][column..];
                        let (place, step) = if in_plane {
                            (h * width + column, stride[1])
                        } else {
                            ((h + padding[0] - y * stride[0]) * kernel[1] + k, 0)
                        };
                        let (place, step) = (place as u32, step as u32);
                        let (largest, found) = (&mut largest[begin - at..end - at], &mut found[begin - at..end - at]);
                        match stride[1] {
                            1 => larger::<1>(row, largest, found, place, step),
                            2 => larger::<2>(row, largest, found, place, step),
                            stride => {
                                let places = (0..).map(|i| place + i * step);
                                let all = row.iter().step_by(stride).zip(places).zip(largest.iter_mut().zip(found));
                                all.for_each(|((x, place), (largest, found))| take(*x, place, largest, found));
                            }
                        }
                    }
                }
                output[at..at + len].copy_from_slice(&largest[..len]);
                packer.push(&found[..len]);
            }
        }
    }
}

/// Takes each so many elements the first that is larger than what was found; places are `step` apart.
#[inline(always)]
fn larger<const STRIDE: usize>(row: &[f32], largest: &mut [f32], found: &mut [u32], place: u32, step: u32) {
    let last = largest.len() - 1;
    let all = largest[..last].iter_mut().zip(&mut found[..last]).zip(row.as_chunks::<STRIDE>().0);
    for (i, ((largest, found), x)) in all.enumerate() {
        take(x[0], place + i as u32 * step, largest, found);
    }
    // The last may have no others behind it.
    take(row[last * STRIDE], place + last as u32 * step, &mut largest[last], &mut found[last]);
}

/// Takes an element that is larger than what was found, or is not a number.
#[inline(always)]
fn take(x: f32, place: u32, largest: &mut f32, found: &mut u32) {
    let is_taken = (x > *largest) | x.is_nan();
    *largest = if is_taken { x } else { *largest };
    *found = if is_taken { place } else { *found };
}

/// Puts places into words, one behind the other.
struct Packer<'a> {
    places: Places,
    words: &'a mut [u32],
    buffer: [u32; 2 * BLOCK],
    len: usize,
}

impl Packer<'_> {
    #[inline(always)]
    fn push(&mut self, found: &[u32]) {
        self.buffer[self.len..self.len + found.len()].copy_from_slice(found);
        self.len += found.len();
        if self.len >= BLOCK {
            self.flush(false);
        }
    }

    /// Writes whole words, and in the end the rest.
    #[inline(always)]
    fn flush(&mut self, is_end: bool) {
        let per_word = self.places.per_word();
        if is_end {
            let end = self.len.next_multiple_of(per_word);
            self.buffer[self.len..end].fill(0);
            self.len = end;
        }
        let whole = self.len / per_word;
        let (to, rest) = std::mem::take(&mut self.words).split_at_mut(whole);
        self.words = rest;
        match self.places {
            Places::Plane => to.copy_from_slice(&self.buffer[..whole]),
            Places::Window(4) => pack::<8>(&self.buffer, to),
            Places::Window(_) => pack::<4>(&self.buffer, to),
        }
        self.buffer.copy_within(whole * per_word..self.len, 0);
        self.len -= whole * per_word;
    }
}

#[inline(always)]
fn pack<const PER_WORD: usize>(places: &[u32], words: &mut [u32]) {
    for (word, places) in words.iter_mut().zip(places.chunks_exact(PER_WORD)) {
        *word = 0;
        for (i, place) in places.iter().enumerate() {
            *word |= place << (i * (32 / PER_WORD));
        }
    }
}

/// The gradient of the input: what each window gives to its largest.
pub(in crate::ops::pool) fn backward(
    windows: Windows,
    places: Places,
    cores: &Cores,
    shapes: [&Shape; 2],
    words: &[u32],
    grad: &[f32],
    output: &mut [f32],
) {
    let (extent, plane) = (shapes[0][2] * shapes[0][3], shapes[1][2] * shapes[1][3]);
    let planes = planes_of_task(plane, places);
    let words = words.chunks((planes * plane).div_ceil(places.per_word()));
    let tasks = output.chunks_mut(planes * extent).zip(words).zip(grad.chunks(planes * plane));
    let mut tasks: Vec<_> = tasks.map(|((output, words), grad)| (output, words, grad)).collect();
    let extents = [shapes[0][2], shapes[0][3], shapes[1][3]];
    cores.each(&mut tasks, |_, (output, words, grad)| {
        cores.run(GradPlanes { windows, places, extents, words, grad, plane, output });
    });
}

struct GradPlanes<'a> {
    windows: Windows,
    places: Places,
    extents: [usize; 3],
    words: &'a [u32],
    grad: &'a [f32],
    plane: usize,
    output: &'a mut [f32],
}

impl Kernel for GradPlanes<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let GradPlanes { windows, places, extents: [height, width, outputs], words, grad, plane, output } = self;
        let Windows { kernel, stride, padding, .. } = windows;
        // Windows that do not overlap write all that they cover, two columns at a time.
        let are_pairs =
            [kernel[1], stride[1], padding[1]] == [2, 2, 0] && kernel[0] <= stride[0] && 2 * outputs <= width;
        output.fill(0.0);
        let mut read = 0;
        for (output, grad) in output.chunks_exact_mut(height * width).zip(grad.chunks_exact(plane)) {
            for (y, grad) in grad.chunks_exact(outputs).enumerate() {
                for at in (0..outputs).step_by(BLOCK) {
                    let mut found = [0; BLOCK];
                    let grad = &grad[at..outputs.min(at + BLOCK)];
                    let found = &mut found[..grad.len()];
                    unpack(places, words, read, found);
                    read += found.len();
                    let origin = (y * stride[0]) as isize - padding[0] as isize;
                    if are_pairs {
                        for h in windows.covered(0, y, height) {
                            let (place, step) = match places {
                                Places::Plane => (h * width + 2 * at, 2),
                                Places::Window(_) => ((h as isize - origin) as usize * 2, 0),
                            };
                            pairs(&mut output[h * width + 2 * at..], found, grad, place as u32, step);
                        }
                        continue;
                    }
                    for (i, (&found, &g)) in found.iter().zip(grad).enumerate() {
                        let found = found as usize;
                        let place = match places {
                            Places::Plane => found,
                            Places::Window(_) => {
                                let row = (origin + (found / kernel[1]) as isize) as usize;
                                row * width + (at + i) * stride[1] + found % kernel[1] - padding[1]
                            }
                        };
                        output[place] += g;
                    }
                }
            }
        }
    }
}

/// Gives each of two columns what its window has for it.
#[inline(always)]
fn pairs(to: &mut [f32], found: &[u32], grad: &[f32], place: u32, step: u32) {
    let to = &mut to[..2 * found.len()];
    for (i, ((to, &found), &g)) in to.chunks_exact_mut(2).zip(found).zip(grad).enumerate() {
        let first = place + i as u32 * step;
        to[0] = if found == first { g } else { 0.0 };
        to[1] = if found == first + 1 { g } else { 0.0 };
    }
}

#[inline(always)]
fn unpack(places: Places, words: &[u32], first: usize, found: &mut [u32]) {
    match places {
        Places::Plane => found.copy_from_slice(&words[first..first + found.len()]),
        Places::Window(bits) => {
            let per_word = 32 / bits;
            for (i, found) in found.iter_mut().enumerate() {
                let at = first + i;
                *found = words[at / per_word] >> (at % per_word * bits) & ((1 << bits) - 1);
            }
        }
    }
}

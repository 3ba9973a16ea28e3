//! A tensor read in another order: the Rust side of `shaders/shared/strided.wgsl`.

use crate::native::{Cores, Level, transpose};

/// Most dimensions of a tensor that is permuted or summed over axes.
pub(in crate::ops) const MAX_RANK: usize = 6;

/// A tensor's dimensions with the stride of each in some buffer, innermost first; mergeable neighbours merged.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::ops) struct Strided {
    /// (extent, stride), innermost first.
    dims: Vec<(usize, usize)>,
}

params! {
    /// As the kernels read it.
    pub(in crate::ops) struct StridedParams {
        elements: u32,
        rank: u32,
        scale: f32,
        extents: [u32; MAX_RANK - 1] as [extent_0, extent_1, extent_2, extent_3, extent_4],
        strides: [u32; MAX_RANK] as [stride_0, stride_1, stride_2, stride_3, stride_4, stride_5],
    }
}

impl Strided {
    /// Dimensions given outermost first.
    pub(in crate::ops) fn new(extents: &[usize], strides: &[usize]) -> Self {
        let mut dims: Vec<(usize, usize)> = Vec::new();
        for (&extent, &stride) in extents.iter().zip(strides).rev() {
            match dims.last_mut() {
                // One step here is the whole of the dimension inside it: they are one.
                Some(inner) if inner.0 * inner.1 == stride => inner.0 *= extent,
                Some(inner) if inner.0 == 1 => *inner = (extent, stride),
                Some(_) if extent == 1 => {}
                _ => dims.push((extent, stride)),
            }
        }
        Strided { dims }
    }

    /// The kernels' parameters.
    pub(in crate::ops) fn params(&self, scale: f32) -> StridedParams {
        let extent = |i: usize| self.dims.get(i).map_or(1, |d| d.0 as u32);
        let stride = |i: usize| self.dims.get(i).map_or(0, |d| d.1 as u32);
        StridedParams {
            elements: self.elements() as u32,
            rank: self.dims.len().max(1) as u32,
            scale,
            extents: std::array::from_fn(extent),
            strides: std::array::from_fn(stride),
        }
    }

    /// Elements of the tensor.
    pub(in crate::ops) fn elements(&self) -> usize {
        self.dims.iter().map(|d| d.0).product()
    }

    /// Where element `i` is in the buffer.
    pub(in crate::ops) fn offset(&self, i: usize) -> usize {
        let (mut rest, mut offset) = (i, 0);
        for &(extent, stride) in &self.dims {
            offset += rest % extent * stride;
            rest /= extent;
        }
        offset
    }
}

/// Elements that are moved at once at least.
const LEAST: usize = 4096;

/// On a CPU.
impl Strided {
    /// Elements that lie together in the output, and the distance of each from the next in the buffer.
    pub(in crate::ops) fn inner(&self) -> (usize, usize) {
        self.dims.first().copied().unwrap_or((1, 1))
    }

    /// Writes the elements of a tensor that is in another order in the buffer, each of which is in it once.
    pub(in crate::ops) fn read(&self, cores: &Cores, buffer: &[f32], output: &mut [f32]) {
        let Some(along) = self.dims.iter().position(|&(_, stride)| stride == 1).filter(|&along| along > 0) else {
            let (run, _) = self.inner();
            return cores.rows(output, run, |row, column, output| {
                output.copy_from_slice(&buffer[self.offset(row * run) + column..][..output.len()]);
            });
        };
        // Of the dimensions, the innermost one and the one whose elements lie together in the buffer change places, for all
        // that are between.
        let (inside, outside) = self.dims.split_at(along);
        let (rows, stride) = inside[0];
        let (columns, step) = (outside[0].0, inside.iter().map(|d| d.0).product::<usize>());
        let between = Strided { dims: inside[1..].to_vec() };
        let outer = Strided { dims: outside[1..].to_vec() };
        cores.pieces_of(output, step, LEAST, |start, mut output| {
            let mut line = start / step;
            while !output.is_empty() {
                let column = line % columns;
                let count = (columns - column).min(output.len() / step);
                let (part, rest) = output.split_at_mut(count * step);
                let from = outer.offset(line / columns) + column;
                for i in 0..between.elements() {
                    let from = &buffer[from + between.offset(i)..];
                    transposed(cores.level(), [rows, count], from, stride, &mut part[i * rows..], step);
                }
                (line, output) = (line + count, rest);
            }
        });
    }

    /// Writes each element of a tensor times `scale`, where elements of the buffer are repeated.
    pub(in crate::ops) fn repeat(&self, cores: &Cores, buffer: &[f32], output: &mut [f32], scale: f32) {
        let (run, stride) = self.inner();
        cores.rows(output, run, |row, column, output| {
            let from = self.offset(row * run);
            if stride == 0 {
                return output.fill(scale * buffer[from]);
            }
            for (y, x) in output.iter_mut().zip(&buffer[from + column * stride..]) {
                *y = scale * x;
            }
        });
    }
}

/// Rows and columns that change places at once.
const SQUARE: [usize; 2] = [64, 32];
/// Elements from one line of the output to the next from which on squares are worth while: lines that are further apart than
/// this share few places of a cache.
const FAR: usize = 256;

/// Swaps rows and columns. Where lines of the output are far apart, each is written in long pieces, by way of a square.
fn transposed(
    level: Level,
    [rows, columns]: [usize; 2],
    from: &[f32],
    from_stride: usize,
    to: &mut [f32],
    to_stride: usize,
) {
    if to_stride < FAR {
        return transpose(level, rows, columns, from, from_stride, to, to_stride);
    }
    let mut square = [[0.0; SQUARE[0]]; SQUARE[1]];
    for column in (0..columns).step_by(SQUARE[1]) {
        let wide = SQUARE[1].min(columns - column);
        for row in (0..rows).step_by(SQUARE[0]) {
            let high = SQUARE[0].min(rows - row);
            transpose(
                level,
                high,
                wide,
                &from[row * from_stride + column..],
                from_stride,
                square.as_flattened_mut(),
                SQUARE[0],
            );
            for (i, line) in square[..wide].iter().enumerate() {
                let to = &mut to[(column + i) * to_stride + row..][..high];
                match <&mut [f32; SQUARE[0]]>::try_from(&mut *to) {
                    Ok(to) => *to = *line,
                    Err(_) => to.copy_from_slice(&line[..high]),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_what_is_contiguous() {
        assert_eq!(Strided::new(&[2, 3, 4], &[12, 4, 1]).dims, [(24, 1)]);
        assert_eq!(Strided::new(&[3, 1, 4], &[4, 9, 1]).dims, [(12, 1)]);
        assert_eq!(Strided::new(&[3, 1], &[7, 5]).dims, [(3, 7)]);
        assert_eq!(Strided::new(&[2, 3, 4], &[0, 0, 1]).dims, [(4, 1), (6, 0)]);
    }

    #[test]
    fn finds_elements_of_a_transpose() {
        let transposed = Strided::new(&[3, 2], &[1, 3]);
        let offsets: Vec<_> = (0..6).map(|i| transposed.offset(i)).collect();
        assert_eq!(offsets, [0, 3, 1, 4, 2, 5]);
    }
}

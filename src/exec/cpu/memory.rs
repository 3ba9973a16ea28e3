//! Memory of an arena on the host.

use crate::error::HostMemory;

/// A cache line, so that vectors do not cross one.
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([u32; 16]);

/// Zeroed words that begin at a cache line.
#[derive(Debug)]
pub(super) struct Memory {
    lines: Vec<Line>,
    size_bytes: u64,
}

impl Memory {
    /// So many bytes, or a typed error where the machine has not got them. All of them are touched: a system that promises more than
    /// it has fails now or not at all.
    pub(super) fn new(size_bytes: u64) -> Result<Self, HostMemory> {
        let count = usize::try_from(size_bytes.div_ceil(size_of::<Line>() as u64)).unwrap_or(usize::MAX);
        let mut lines = Vec::new();
        if lines.try_reserve_exact(count).is_err() {
            return Err(HostMemory { size_bytes });
        }
        lines.resize(count, Line([0; 16]));
        Ok(Memory { lines, size_bytes })
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub(super) fn words(&self) -> &[u32] {
        bytemuck::cast_slice(&self.lines)
    }

    pub(super) fn words_mut(&mut self) -> &mut [u32] {
        bytemuck::cast_slice_mut(&mut self.lines)
    }
}

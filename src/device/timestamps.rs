//! How long the passes of a submission take, by the device's own clock.

use super::{Buffer, Device, Range, Readback};
use crate::error::DeviceError;

/// Most passes that can be timed at once: each has two timestamps.
const MAX_PASSES: usize = wgpu::QUERY_SET_MAX_QUERIES as usize / 2;

const TIMESTAMP_BYTES: u64 = wgpu::QUERY_SIZE as u64;

/// The begin and the end of some passes. Only who measures creates it: it takes memory beyond any plan.
#[derive(Debug)]
pub(crate) struct Timestamps {
    queries: wgpu::QuerySet,
    resolved: Buffer,
    tick_ns: f64,
    passes: usize,
}

impl Device {
    /// Whether the device has a clock that passes can read.
    pub fn has_timestamps(&self) -> bool {
        self.raw.features().contains(wgpu::Features::TIMESTAMP_QUERY)
    }

    /// Timestamps for up to `passes` passes, fewer if the device cannot hold as many.
    pub(crate) fn create_timestamps(&self, passes: usize) -> Result<Timestamps, DeviceError> {
        let passes = passes.clamp(1, MAX_PASSES);
        let descriptor = wgpu::QuerySetDescriptor {
            label: Some("timestamps"),
            ty: wgpu::QueryType::Timestamp,
            count: 2 * passes as u32,
        };
        let queries = self.scoped("timestamps", 0, |device| device.create_query_set(&descriptor))?;
        let usage = wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC;
        let resolved = self.create_buffer("timestamps", 2 * passes as u64 * TIMESTAMP_BYTES, usage)?;
        Ok(Timestamps { queries, resolved, tick_ns: f64::from(self.queue.get_timestamp_period()), passes })
    }
}

impl Timestamps {
    /// How many passes can be timed.
    pub(crate) fn passes(&self) -> usize {
        self.passes
    }

    /// Makes a pass leave its begin and end.
    pub(crate) fn of_pass(&self, pass: usize) -> wgpu::ComputePassTimestampWrites<'_> {
        let first = 2 * pass as u32;
        wgpu::ComputePassTimestampWrites {
            query_set: &self.queries,
            beginning_of_pass_write_index: Some(first),
            end_of_pass_write_index: Some(first + 1),
        }
    }

    /// Ends an encoder whose first `passes` passes were timed: what they left can be read after its submission.
    pub(crate) fn resolve(&self, encoder: &mut wgpu::CommandEncoder, passes: usize) {
        encoder.resolve_query_set(&self.queries, 0..2 * passes as u32, self.resolved.raw(), 0);
    }

    /// The nanoseconds that each of the first `passes` passes took.
    pub(crate) fn read(
        &self,
        device: &Device,
        readback: &mut Readback,
        passes: usize,
    ) -> Result<Vec<f64>, DeviceError> {
        let size_bytes = 2 * passes as u64 * TIMESTAMP_BYTES;
        let range = Range { buffer: &self.resolved, offset_bytes: 0, size_bytes };
        let bytes = readback.read(device, &[range])?.swap_remove(0);
        let ticks: Vec<u64> = bytemuck::pod_collect_to_vec(&bytes);
        // A clock that is set back in between gives a time of zero, not of centuries.
        Ok(ticks.chunks_exact(2).map(|pass| pass[1].saturating_sub(pass[0]) as f64 * self.tick_ns).collect())
    }
}

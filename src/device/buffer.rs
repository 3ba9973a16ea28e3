//! Buffers: the one place where memory on the device is created, always charged to the ledger.

use super::Device;
use super::health::from_wgpu;
use super::ledger::Charge;
use crate::error::DeviceError;

/// Buffers are multiples of this, so that vector accesses to a tail stay inside.
pub(crate) const ALIGNMENT_BYTES: u64 = 256;

/// Memory on the device. Dropping it frees the memory once the device is done with it, and returns its charge.
#[derive(Debug)]
pub(crate) struct Buffer {
    raw: wgpu::Buffer,
    size_bytes: u64,
    _charge: Charge,
}

impl Buffer {
    /// Its size.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub(crate) fn raw(&self) -> &wgpu::Buffer {
        &self.raw
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // Without this the memory would stay until the last bind group that names the buffer is gone.
        self.raw.destroy();
    }
}

impl Device {
    /// Creates a buffer for tensors, rounded up to [`ALIGNMENT_BYTES`].
    ///
    /// # Errors
    /// Where memory is short, the size passes the device's limit, or the device is lost.
    pub(crate) fn create_storage(&self, label: &str, size_bytes: u64) -> Result<Buffer, DeviceError> {
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        self.create_buffer(label, size_bytes.max(1).next_multiple_of(ALIGNMENT_BYTES), usage)
    }

    /// Creates a buffer of exactly this size. Every buffer of the engine comes from here.
    pub(crate) fn create_buffer(
        &self,
        label: &str,
        size_bytes: u64,
        usage: wgpu::BufferUsages,
    ) -> Result<Buffer, DeviceError> {
        let charge = self.ledger.charge(label, size_bytes)?;
        let raw = self.scoped(label, size_bytes, |device| {
            device.create_buffer(&wgpu::BufferDescriptor {
                label: Some(label),
                size: size_bytes,
                usage,
                mapped_at_creation: false,
            })
        })?;
        self.check()?;
        Ok(Buffer { raw, size_bytes, _charge: charge })
    }

    /// Runs `create` and turns any error that it causes into ours. Scopes belong to a thread, so they open and close here.
    pub(super) fn scoped<T>(
        &self,
        label: &str,
        size_bytes: u64,
        create: impl FnOnce(&wgpu::Device) -> T,
    ) -> Result<T, DeviceError> {
        let filters = [wgpu::ErrorFilter::Internal, wgpu::ErrorFilter::Validation, wgpu::ErrorFilter::OutOfMemory];
        let scopes = filters.map(|filter| self.raw.push_error_scope(filter));
        let made = create(&self.raw);
        // Innermost first.
        let errors = scopes.into_iter().rev().map(|scope| pollster::block_on(scope.pop())).collect::<Vec<_>>();
        match errors.into_iter().flatten().next() {
            Some(error) => Err(from_wgpu(label, size_bytes, &error)),
            None => Ok(made),
        }
    }
}

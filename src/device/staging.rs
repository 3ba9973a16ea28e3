//! Data between host and device goes through fixed buffers that the plan counts, in pieces where it is larger.
//! wgpu's own `write_buffer` is not used: it allocates staging memory behind our back at every call.

use std::sync::{Arc, Mutex, PoisonError};

use super::{Buffer, Device};
use crate::error::DeviceError;
use crate::tensor::room;

/// Pieces start at multiples of this within a slot: what mapping and copying need.
const PIECE_ALIGNMENT: u64 = 16;

/// Copies have lengths that are multiples of this.
const COPY_ALIGNMENT: u64 = wgpu::COPY_BUFFER_ALIGNMENT;

/// What a mapping's callback reports; `None` until it does.
type Mapping = Arc<Mutex<Option<Result<(), wgpu::BufferAsyncError>>>>;

fn start_mapping(buffer: &Buffer, mode: wgpu::MapMode) -> Mapping {
    let mapping = Mapping::default();
    let reported = mapping.clone();
    buffer.raw().map_async(mode, .., move |result| {
        *reported.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    });
    mapping
}

fn finish_mapping(
    device: &Device,
    mapping: &Mapping,
    submission: Option<wgpu::SubmissionIndex>,
    label: &str,
) -> Result<(), DeviceError> {
    let result = || mapping.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if result().is_none() {
        device.wait(submission)?;
    }
    match result() {
        Some(Ok(())) => Ok(()),
        Some(Err(error)) => Err(mapping_error(label, &error)),
        // The wait ended without the callback: the device gave up without saying so.
        None => Err(DeviceError::Lost { reason: format!("`{label}` was never mapped") }),
    }
}

fn mapping_error(label: &str, error: &dyn std::fmt::Display) -> DeviceError {
    DeviceError::Validation { label: label.to_owned(), reason: error.to_string() }
}

#[derive(Debug)]
struct UploadSlot {
    buffer: Buffer,
    /// Under way or done; after that the slot can be written.
    mapping: Mapping,
    submission: Option<wgpu::SubmissionIndex>,
}

/// Copies host data into buffers of the device.
///
/// Pieces are collected in a slot; `encode` puts their copies into an encoder, and after its
/// submission `submitted` hands the slot back for reuse.
#[derive(Debug)]
pub(crate) struct UploadRing {
    slots: Vec<UploadSlot>,
    slot_bytes: u64,
    /// The slot being filled, and how far.
    current: usize,
    used_bytes: u64,
    pending: Vec<PendingCopy>,
}

#[derive(Debug)]
struct PendingCopy {
    from_offset: u64,
    target: wgpu::Buffer,
    to_offset: u64,
    size_bytes: u64,
}

impl UploadRing {
    /// Creates the slots.
    ///
    /// # Errors
    /// Where memory is short or the device fails.
    pub(crate) fn new(device: &Device, slots: usize, slot_bytes: u64) -> Result<Self, DeviceError> {
        let usage = wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC;
        let slots = (0..slots.max(1))
            .map(|i| {
                let buffer = device.create_buffer(&format!("upload {i}"), slot_bytes, usage)?;
                let mapping = start_mapping(&buffer, wgpu::MapMode::Write);
                Ok(UploadSlot { buffer, mapping, submission: None })
            })
            .collect::<Result<Vec<_>, DeviceError>>()?;
        debug_assert!(slot_bytes >= PIECE_ALIGNMENT && slot_bytes.is_multiple_of(PIECE_ALIGNMENT));
        Ok(UploadRing { slots, slot_bytes, current: 0, used_bytes: 0, pending: Vec::new() })
    }

    /// Uploads `data` to `target` from `offset` on, which is a multiple of 4. Full slots are submitted at once; the
    /// rest goes with the next `encode` or [`flush`](Self::flush). A tail of fewer than 4 bytes is
    /// filled up with zeros in the target's padding.
    ///
    /// # Errors
    /// Where the device fails.
    pub(crate) fn write(
        &mut self,
        device: &Device,
        target: &Buffer,
        offset: u64,
        data: &[u8],
    ) -> Result<(), DeviceError> {
        let mut done = 0;
        while done < data.len() {
            if self.used_bytes + PIECE_ALIGNMENT > self.slot_bytes {
                self.flush(device)?;
            }
            let room = self.slot_bytes - self.used_bytes;
            let piece = &data[done..data.len().min(done + room as usize)];
            let slot = &self.slots[self.current];
            finish_mapping(device, &slot.mapping, slot.submission.clone(), "upload")?;
            let size_bytes = (piece.len() as u64).next_multiple_of(COPY_ALIGNMENT);
            let range = self.used_bytes..self.used_bytes + size_bytes;
            let mut view =
                slot.buffer.raw().get_mapped_range_mut(range).map_err(|error| mapping_error("upload", &error))?;
            let (whole, tail) = piece.split_at(piece.len() / 4 * 4);
            view.slice(..whole.len()).copy_from_slice(whole);
            if !tail.is_empty() {
                let mut padded = [0; COPY_ALIGNMENT as usize];
                padded[..tail.len()].copy_from_slice(tail);
                view.slice(whole.len()..).copy_from_slice(&padded);
            }
            self.pending.push(PendingCopy {
                from_offset: self.used_bytes,
                target: target.raw().clone(),
                to_offset: offset + done as u64,
                size_bytes,
            });
            self.used_bytes = (self.used_bytes + size_bytes).next_multiple_of(PIECE_ALIGNMENT);
            done += piece.len();
        }
        Ok(())
    }

    /// Puts the pending copies into `encoder`. Must be followed by `submitted`.
    pub(crate) fn encode(&mut self, encoder: &mut wgpu::CommandEncoder) {
        if self.pending.is_empty() {
            return;
        }
        let source = self.slots[self.current].buffer.raw();
        source.unmap();
        for copy in self.pending.drain(..) {
            encoder.copy_buffer_to_buffer(source, copy.from_offset, &copy.target, copy.to_offset, copy.size_bytes);
        }
    }

    /// Hands the slot back once the encoder given to `encode` was submitted, and turns to the next.
    pub(crate) fn submitted(&mut self, submission: &wgpu::SubmissionIndex) {
        if self.used_bytes == 0 {
            return;
        }
        let slot = &mut self.slots[self.current];
        slot.submission = Some(submission.clone());
        slot.mapping = start_mapping(&slot.buffer, wgpu::MapMode::Write);
        self.current = (self.current + 1) % self.slots.len();
        self.used_bytes = 0;
    }

    /// Submits the pending copies.
    ///
    /// # Errors
    /// Where the device fails.
    pub(crate) fn flush(&mut self, device: &Device) -> Result<(), DeviceError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let mut encoder = device.encoder();
        self.encode(&mut encoder);
        let submission = device.submit(encoder)?;
        self.submitted(&submission);
        Ok(())
    }
}

/// Copies data of the device to the host through one buffer.
///
/// [`read`](Readback::read) waits. `encode` puts copies into an encoder, `submitted` follows its submission, and `take` waits for
/// what they brought.
#[derive(Debug)]
pub(crate) struct Readback {
    buffer: Buffer,
    under_way: Option<Round>,
    /// What a round brought that nobody took yet.
    arrived: Option<Vec<Vec<u8>>>,
}

/// Copies into the buffer in one submission.
#[derive(Debug)]
struct Round {
    /// Which result each piece belongs to, where it lies in the buffer, and how long it is.
    pieces: Vec<(usize, u64, u64)>,
    results: usize,
    /// From the submission on.
    mapping: Option<(wgpu::SubmissionIndex, Mapping)>,
}

/// A range of a buffer to read. The offset is a multiple of 4.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range<'a> {
    /// The buffer.
    pub(crate) buffer: &'a Buffer,
    /// First byte.
    pub(crate) offset_bytes: u64,
    /// Bytes.
    pub(crate) size_bytes: u64,
}

impl Readback {
    /// Creates the buffer.
    ///
    /// # Errors
    /// Where memory is short or the device fails.
    pub(crate) fn new(device: &Device, size_bytes: u64) -> Result<Self, DeviceError> {
        debug_assert!(size_bytes >= PIECE_ALIGNMENT && size_bytes.is_multiple_of(PIECE_ALIGNMENT));
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let buffer = device.create_buffer("readback", size_bytes, usage)?;
        Ok(Readback { buffer, under_way: None, arrived: None })
    }

    /// Reads ranges of buffers after all work so far is done, in one round where they fit the buffer together.
    ///
    /// # Errors
    /// Where memory is short or the device fails.
    pub(crate) fn read(&mut self, device: &Device, ranges: &[Range<'_>]) -> Result<Vec<Vec<u8>>, DeviceError> {
        let mut results = ranges.iter().map(|range| room(range.size_bytes as usize)).collect::<Result<Vec<_>, _>>()?;
        self.read_pieces(device, ranges, &mut |i, piece| results[i].extend_from_slice(piece))?;
        Ok(results)
    }

    /// Shows the contents of ranges piece by piece, with the range that each belongs to: takes no memory of their size.
    ///
    /// # Errors
    /// Where the device fails.
    pub(crate) fn read_pieces(
        &mut self,
        device: &Device,
        ranges: &[Range<'_>],
        visit: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<(), DeviceError> {
        self.settle(device)?;
        let capacity = self.buffer.size_bytes();
        let mut pieces = Vec::new();
        let mut used = 0;
        let mut encoder = device.encoder();
        for (i, range) in ranges.iter().enumerate() {
            let mut done = 0;
            while done < range.size_bytes {
                if used + PIECE_ALIGNMENT > capacity {
                    let full = std::mem::replace(&mut encoder, device.encoder());
                    self.round(device, full, &pieces, visit)?;
                    pieces.clear();
                    used = 0;
                }
                let size = (range.size_bytes - done).min(capacity - used);
                self.copy(&mut encoder, range, done, used, size);
                pieces.push((i, used, size));
                used = (used + size).next_multiple_of(PIECE_ALIGNMENT);
                done += size;
            }
        }
        self.round(device, encoder, &pieces, visit)
    }

    /// Puts copies of ranges into `encoder`, if there are any and they fit the buffer together. Must be followed by `submitted`.
    pub(crate) fn encode(
        &mut self,
        device: &Device,
        encoder: &mut wgpu::CommandEncoder,
        ranges: &[Range<'_>],
    ) -> Result<(), DeviceError> {
        let aligned = |range: &Range<'_>| range.size_bytes.next_multiple_of(PIECE_ALIGNMENT);
        if ranges.is_empty() || ranges.iter().map(aligned).sum::<u64>() > self.buffer.size_bytes() {
            return Ok(());
        }
        self.settle(device)?;
        self.arrived = None;
        let (mut pieces, mut used) = (Vec::new(), 0);
        for (i, range) in ranges.iter().enumerate() {
            self.copy(encoder, range, 0, used, range.size_bytes);
            pieces.push((i, used, range.size_bytes));
            used += aligned(range);
        }
        self.under_way = Some(Round { pieces, results: ranges.len(), mapping: None });
        Ok(())
    }

    /// Says that the encoder given to `encode` was submitted.
    pub(crate) fn submitted(&mut self, submission: wgpu::SubmissionIndex) {
        if let Some(Round { mapping: mapping @ None, .. }) = &mut self.under_way {
            *mapping = Some((submission, start_mapping(&self.buffer, wgpu::MapMode::Read)));
        }
    }

    /// What the last `encode` copied, once; `None` where it copied nothing. Waits for it.
    pub(crate) fn take(&mut self, device: &Device) -> Result<Option<Vec<Vec<u8>>>, DeviceError> {
        self.settle(device)?;
        Ok(self.arrived.take())
    }

    fn copy(&self, encoder: &mut wgpu::CommandEncoder, range: &Range<'_>, done: u64, to: u64, size: u64) {
        let from = range.offset_bytes + done;
        let copied = size.next_multiple_of(COPY_ALIGNMENT);
        encoder.copy_buffer_to_buffer(range.buffer.raw(), from, self.buffer.raw(), to, copied);
    }

    /// Waits for what is under way, so that the buffer is free.
    fn settle(&mut self, device: &Device) -> Result<(), DeviceError> {
        let Some(Round { pieces, results, mapping }) = self.under_way.take() else { return Ok(()) };
        let Some((submission, mapping)) = mapping else { return Ok(()) };
        let mut contents = vec![Vec::new(); results];
        self.finish(device, &mapping, submission, &pieces, &mut |i, piece| contents[i].extend_from_slice(piece))?;
        self.arrived = Some(contents);
        Ok(())
    }

    fn round(
        &mut self,
        device: &Device,
        encoder: wgpu::CommandEncoder,
        pieces: &[(usize, u64, u64)],
        visit: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<(), DeviceError> {
        let submission = device.submit(encoder)?;
        let mapping = start_mapping(&self.buffer, wgpu::MapMode::Read);
        self.finish(device, &mapping, submission, pieces, visit)
    }

    fn finish(
        &self,
        device: &Device,
        mapping: &Mapping,
        submission: wgpu::SubmissionIndex,
        pieces: &[(usize, u64, u64)],
        visit: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<(), DeviceError> {
        finish_mapping(device, mapping, Some(submission), "readback")?;
        {
            let view = self.buffer.raw().get_mapped_range(..).map_err(|error| mapping_error("readback", &error))?;
            for &(i, offset, size) in pieces {
                visit(i, &view[offset as usize..(offset + size) as usize]);
            }
        }
        self.buffer.raw().unmap();
        Ok(())
    }
}

//! The memory that a plan names.

use super::invalid;
use crate::device::{Buffer, Device};
use crate::error::DeviceError;
use crate::plan::{Allocation, ArenaRole, Plan};

/// An arena of the plan.
#[derive(Debug)]
pub(in crate::exec) enum Arena {
    Device(Buffer),
    /// The host tier: values come and go through the staging buffers.
    Host(Vec<u8>),
}

impl Arena {
    pub(in crate::exec) fn size_bytes(&self) -> u64 {
        match self {
            Arena::Device(buffer) => buffer.size_bytes(),
            Arena::Host(bytes) => bytes.len() as u64,
        }
    }
}

pub(super) fn create_arenas(device: &Device, plan: &Plan) -> Result<Vec<Arena>, DeviceError> {
    let mut arenas = Vec::with_capacity(plan.arenas.len());
    for arena in &plan.arenas {
        arenas.push(if arena.role == ArenaRole::Host {
            let mut bytes = Vec::new();
            let size = usize::try_from(arena.size_bytes).unwrap_or(usize::MAX);
            if bytes.try_reserve_exact(size).is_err() {
                return Err(DeviceError::OutOfMemory { label: "host tier".into(), size_bytes: arena.size_bytes });
            }
            bytes.resize(size, 0);
            Arena::Host(bytes)
        } else {
            Arena::Device(device.create_storage(label(arena.role), arena.size_bytes)?)
        });
    }
    Ok(arenas)
}

/// Fills the arenas with zeros. Memory is first touched here, not in the first step: that is slow, and it is when a driver that
/// overcommits fails.
pub(super) fn clear(device: &Device, arenas: &[Arena]) -> Result<(), DeviceError> {
    let mut encoder = device.encoder();
    for arena in arenas {
        if let Arena::Device(buffer) = arena {
            encoder.clear_buffer(buffer.raw(), 0, None);
        }
    }
    device.submit(encoder)?;
    device.synchronize()
}

/// The buffer of a place on the device.
pub(in crate::exec) fn buffer(arenas: &[Arena], place: Allocation) -> Result<&Buffer, DeviceError> {
    match arenas.get(place.arena as usize) {
        Some(Arena::Device(buffer)) => Ok(buffer),
        _ => Err(invalid(format!("{place:?} is not on the device"))),
    }
}

/// The first `size` bytes of a place in the host tier.
pub(super) fn host_bytes(arenas: &mut [Arena], place: Allocation, size: usize) -> Result<&mut [u8], DeviceError> {
    match arenas.get_mut(place.arena as usize) {
        Some(Arena::Host(bytes)) => Ok(&mut bytes[place.offset_bytes as usize..][..size]),
        _ => Err(invalid(format!("{place:?} is not in the host tier"))),
    }
}

fn label(role: ArenaRole) -> &'static str {
    match role {
        ArenaRole::Parameters => "parameters",
        ArenaRole::Buffers => "buffers",
        ArenaRole::State => "optimizer state",
        ArenaRole::Accumulators => "accumulators",
        ArenaRole::Transient => "transient",
        ArenaRole::Host => "host tier",
    }
}

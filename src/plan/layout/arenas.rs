//! The buffers: how large arenas are and where they are cut, persistent values in theirs, and staging.

use crate::graph::{Role, Value};
use crate::plan::candidate::{Candidate, ProgramGraph};
use crate::plan::schedule::OffloadPolicy;
use crate::plan::{Allocation, Arena, ArenaRole, Limits, Staging};

/// Arenas are cut at this size even where a device takes larger buffers.
const CHUNK_BYTES: u64 = 1 << 30;
/// Above this size an arena is an allocation of its own, which drivers round up.
const LARGE_ARENA_BYTES: u64 = 4 << 20;
/// Unit of large arenas.
const LARGE_UNIT_BYTES: u64 = 64 << 10;
/// Unit of small arenas.
const UNIT_BYTES: u64 = 256;
/// Largest upload slot; larger inputs go in pieces.
const UPLOAD_SLOT_BYTES: u64 = 4 << 20;
/// Pieces in which values move between device and host where staging is not larger anyway.
const MOVED_PIECE_BYTES: u64 = 256 << 10;
/// In how many pieces all that lasts is read for a checkpoint or a snapshot, unless these would be larger than those above.
const MOST_PIECES: u64 = 32;
/// Largest readback buffer; larger outputs come in pieces.
const READBACK_BYTES: u64 = 1 << 20;

/// The largest arena.
pub(crate) fn most_bytes(limits: &Limits) -> u64 {
    round_down(limits.max_buffer_bytes)
}

/// Bytes rounded down to a size that an arena can have.
pub(super) fn round_down(bytes: u64) -> u64 {
    bytes - bytes % unit_bytes(bytes)
}

/// The size at which arenas are cut.
pub(crate) fn chunk_bytes(largest_bytes: u64, limits: &Limits) -> u64 {
    let most = most_bytes(limits);
    let chunk_bytes = round_down(most.min(CHUNK_BYTES));
    // A single value above the usual cut gets a longer chunk, as far as the device allows.
    let largest_bytes = largest_bytes.next_multiple_of(unit_bytes(largest_bytes));
    if largest_bytes > chunk_bytes { most } else { chunk_bytes }
}

/// Bytes of the arenas on the device.
pub(super) fn device_bytes(arenas: &[Arena]) -> u64 {
    arenas.iter().filter(|arena| arena.role != ArenaRole::Host).map(|arena| arena.size_bytes).sum()
}

/// What the size of an arena is a multiple of.
fn unit_bytes(size_bytes: u64) -> u64 {
    if size_bytes > LARGE_ARENA_BYTES { LARGE_UNIT_BYTES } else { UNIT_BYTES }
}

pub(super) fn arena_bytes(used_bytes: u64) -> u64 {
    used_bytes.max(1).next_multiple_of(unit_bytes(used_bytes))
}

/// The arena on the device for values of a role.
pub(super) fn arena_role(role: Role) -> ArenaRole {
    match role {
        Role::Parameter => ArenaRole::Parameters,
        Role::Buffer => ArenaRole::Buffers,
        Role::State => ArenaRole::State,
        Role::Accumulator => ArenaRole::Accumulators,
        Role::Input | Role::Intermediate | Role::Output => ArenaRole::Transient,
    }
}

/// A persistent value in its arena.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlacedValue {
    /// Its index in [`Candidate::persistent`].
    pub(crate) number: usize,
    pub(crate) place: Allocation,
}

/// Places the persistent values of a candidate one after another, in arenas by role or in the host tier.
pub(super) fn place_persistent(
    candidate: &Candidate<'_>,
    policy: &OffloadPolicy,
    arenas: &mut Vec<Arena>,
) -> Vec<PlacedValue> {
    let &Candidate { chunk_bytes, alignment_bytes, ref persistent, .. } = candidate;
    let mut placed = Vec::with_capacity(persistent.len());
    let roles = [Role::Parameter, Role::Buffer, Role::State, Role::Accumulator].map(|role| (role, false));
    for (role, on_host) in roles.into_iter().chain(roles.map(|(role, _)| (role, true))) {
        let mut used_bytes = chunk_bytes;
        for (number, value) in persistent.iter().enumerate() {
            if value.role != role || policy.hosted.contains(&value.name) != on_host {
                continue;
            }
            let size_bytes = value.desc.size_bytes().max(1).next_multiple_of(alignment_bytes);
            if used_bytes + size_bytes > chunk_bytes {
                let role = if on_host { ArenaRole::Host } else { arena_role(role) };
                arenas.push(Arena { role, size_bytes: 0 });
                used_bytes = 0;
            }
            let arena = arenas.len() as u32 - 1;
            placed.push(PlacedValue { number, place: Allocation { arena, offset_bytes: used_bytes, size_bytes } });
            used_bytes += size_bytes;
            if let Some(arena) = arenas.last_mut() {
                arena.size_bytes = arena_bytes(used_bytes);
            }
        }
    }
    placed
}

/// Staging buffers for inputs, outputs and what lasts, and where values move to the host and back, for the largest of them. Native code
/// on the CPU reads and writes tensors where they are.
pub(super) fn staging(programs: &[ProgramGraph], moves: bool, limits: &Limits) -> Staging {
    if limits.threads.is_some() {
        return Staging { upload_slot_bytes: UNIT_BYTES, upload_slots: 1, readback_bytes: UNIT_BYTES };
    }
    let bytes = |value: &Value| value.desc.size_bytes();
    let of_role = |program: &ProgramGraph, role: Role| {
        let values = program.graph.values().iter().filter(move |value| value.role == role);
        values.map(bytes).collect::<Vec<_>>()
    };
    let inputs = programs.iter().map(|program| of_role(program, Role::Input).iter().sum::<u64>()).max();
    let output = programs.iter().flat_map(|program| of_role(program, Role::Output)).max();
    let largest = programs.iter().flat_map(|program| program.graph.values()).map(bytes).max();
    let moved = if moves { largest.unwrap_or(0).min(MOVED_PIECE_BYTES) } else { 0 };
    let lasting = |program: &ProgramGraph| {
        program.graph.values().iter().filter(|value| value.role.lasts()).map(bytes).sum::<u64>()
    };
    let lasting = programs.iter().map(lasting).max().unwrap_or(0);
    let read = (lasting / MOST_PIECES).min(MOVED_PIECE_BYTES).max(moved);
    let slot =
        |bytes: u64, most: u64, least: u64| bytes.clamp(UNIT_BYTES, most).max(least).next_multiple_of(UNIT_BYTES);
    Staging {
        upload_slot_bytes: slot(inputs.unwrap_or(0), UPLOAD_SLOT_BYTES, moved),
        upload_slots: 2,
        readback_bytes: slot(output.unwrap_or(0), READBACK_BYTES, read),
    }
}

//! GPUs through wgpu: listing and opening a [`Device`], its buffers with a count of every byte, its compiled kernels, and waiting for
//! it.

mod adapter;
mod buffer;
mod compile;
mod health;
mod host;
mod ledger;
mod memory;
mod pipelines;
pub(crate) mod process;
mod selector;
mod staging;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod testing;
mod threads;
mod timestamps;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub(crate) use adapter::best_gpu;
pub use adapter::{AdapterInfo, ShaderCompiler, find, list, list_with_memory};
pub(crate) use buffer::{ALIGNMENT_BYTES, Buffer};
pub(crate) use compile::Count;
pub use compile::{Compilation, Compiled, watch_compilation};
use health::Health;
pub(crate) use host::{most_memory, processor_name};
pub(crate) use ledger::Charge;
pub use ledger::Ledger;
pub use memory::{AvailableMemory, MemorySource};
pub(crate) use pipelines::Pipeline;
use pipelines::Pipelines;
pub(crate) use process::{resident_bytes, return_freed_memory};
pub use selector::DeviceSelector;
pub(crate) use staging::{Range, Readback, UploadRing};
pub(crate) use threads::in_parallel;
pub(crate) use timestamps::Timestamps;

use crate::error::DeviceError;
use crate::shader::{Family, MatrixOperand, StorageType, Target, Tiles};

/// Submissions that may be under way at once: enough to keep the device busy, and few enough to bound what is held.
const MAX_IN_FLIGHT: usize = 2;

/// How long to wait for one submission before the device counts as hung. Generous: software devices are slow.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);

/// wgpu carves buffers below this from blocks of this size; larger ones are allocations of their own.
const SUBALLOCATION_BLOCK_BYTES: u64 = 4 << 20;

/// An opened device.
#[derive(Debug)]
pub struct Device {
    info: AdapterInfo,
    adapter: wgpu::Adapter,
    raw: wgpu::Device,
    queue: wgpu::Queue,
    family: Family,
    tiles: Tiles,
    timeout: Duration,
    ledger: Arc<Ledger>,
    baseline_bytes: u64,
    _baseline: Charge,
    health: Arc<Health>,
    pipelines: Pipelines,
    compiled: Mutex<Compiled>,
    in_flight: Mutex<VecDeque<wgpu::SubmissionIndex>>,
}

impl Device {
    /// Opens a device: by its index in [`list`], by a part of its name (and backend) in any case, or without a
    /// selector the best one: a discrete GPU before an integrated one before a software device.
    ///
    /// # Errors
    /// Where there is no such adapter, it lacks something, or its driver refuses.
    pub fn open(selector: Option<&str>) -> Result<Self, DeviceError> {
        let adapter::Candidate { info, adapter } = adapter::choose(selector)?;
        Device::request(info, adapter)
    }

    /// Opens the same device once more: it has a queue and an account of memory of its own.
    pub(crate) fn sibling(&self) -> Result<Self, DeviceError> {
        Device::request(self.info.clone(), self.adapter.clone())
    }

    fn request(info: AdapterInfo, adapter: wgpu::Adapter) -> Result<Self, DeviceError> {
        let optional = wgpu::Features::SUBGROUP
            | wgpu::Features::SHADER_F16
            | wgpu::Features::SHADER_INT64
            | wgpu::Features::MAPPABLE_PRIMARY_BUFFERS
            | wgpu::Features::TIMESTAMP_QUERY;
        let (matrices, experimental_features) = if wants_cooperative(&info) {
            (wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX, allow_experimental())
        } else {
            (wgpu::Features::empty(), wgpu::ExperimentalFeatures::disabled())
        };
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("tightfit"),
            required_features: wgpu::Features::IMMEDIATES | (adapter.features() & optional) | matrices,
            required_limits: adapter.limits(),
            experimental_features,
            memory_hints: wgpu::MemoryHints::Manual {
                suballocated_device_memory_block_size: SUBALLOCATION_BLOCK_BYTES..SUBALLOCATION_BLOCK_BYTES,
            },
            trace: wgpu::Trace::Off,
        };
        let (raw, queue) = pollster::block_on(adapter.request_device(&descriptor))
            .map_err(|error| DeviceError::Open { adapter: info.name.clone(), reason: error.to_string() })?;
        let health = Health::watch(&raw);
        let ledger = Arc::new(Ledger::default());
        // What wgpu itself took to open the device, where its allocator tells.
        let baseline_bytes = raw.generate_allocator_report().map_or(0, |report| report.total_reserved_bytes);
        let baseline = ledger.charge("baseline", baseline_bytes)?;
        let mut device = Device {
            family: Family::Workgroup,
            tiles: Tiles::NONE,
            info,
            adapter,
            raw,
            queue,
            timeout: DEFAULT_TIMEOUT,
            ledger,
            baseline_bytes,
            _baseline: baseline,
            health,
            pipelines: Pipelines::default(),
            compiled: Mutex::default(),
            in_flight: Mutex::default(),
        };
        device.family = device.default_family();
        Ok(device)
    }

    /// What the device is and what it allows.
    pub fn info(&self) -> &AdapterInfo {
        &self.info
    }

    /// What ops may know of the device.
    pub fn target(&self) -> Target {
        // SwiftShader's compiler takes more than 5 GiB for a convolution's unrolled code.
        let short_code = self.info.driver.contains("SwiftShader");
        let f16_matrices = Family::Cooperative { size: self.info.cooperative_f16_size, operand: MatrixOperand::F16 };
        let f16_matrices = if self.supports(f16_matrices) { self.info.cooperative_f16_size } else { 0 };
        Target { family: self.family, short_code, f16_matrices, tiles: self.tiles }
    }

    /// How kernels see floats. Software devices load and store word by word, so they get large words.
    pub(crate) fn float_storage(&self) -> StorageType {
        let has_words = self.raw.features().contains(wgpu::Features::SHADER_INT64);
        let is_slow_to_compile = self.target().short_code;
        match self.info.device_type == "cpu" && has_words && !is_slow_to_compile {
            true => StorageType::F32Words,
            false => StorageType::F32,
        }
    }

    /// Subgroup broadcast is for software devices with a fixed subgroup size; on GPUs workgroup memory is faster. Units for
    /// matrices are used only where they are asked for.
    fn default_family(&self) -> Family {
        let cooperative = Family::Cooperative { size: self.info.cooperative_size, operand: MatrixOperand::F32 };
        if self.supports(cooperative) {
            return cooperative;
        }
        let size = self.info.subgroup_min_size;
        let family = Family::Subgroup { size };
        if self.info.device_type == "cpu" && matches!(size, 4 | 8) && self.supports(family) {
            family
        } else {
            Family::Workgroup
        }
    }

    /// Whether kernels of this family run here.
    pub fn supports(&self, family: Family) -> bool {
        match family {
            Family::Workgroup => true,
            Family::Subgroup { size } => {
                self.raw.features().contains(wgpu::Features::SUBGROUP)
                    && self.info.subgroup_min_size == size
                    && self.info.subgroup_max_size == size
            }
            Family::Cooperative { size, operand } => {
                let of_adapter = match operand {
                    MatrixOperand::F32 => self.info.cooperative_size,
                    MatrixOperand::F16 => self.info.cooperative_f16_size,
                };
                self.raw.features().contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX)
                    && of_adapter == size
                    && size > 0
            }
        }
    }

    /// Replaces the family chosen for the device.
    ///
    /// # Errors
    /// Where the device lacks what it needs.
    pub fn set_family(&mut self, family: Family) -> Result<(), DeviceError> {
        if !self.supports(family) {
            return Err(DeviceError::Unsupported { adapter: self.info.name.clone(), missing: format!("{family:?}") });
        }
        self.family = family;
        Ok(())
    }

    /// Takes tiles of matrix products that were measured to be quicker here than the usual ones.
    pub fn set_tiles(&mut self, tiles: Tiles) {
        self.tiles = tiles;
    }

    /// Sets how long to wait for one submission.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// The count of bytes on the device.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Bytes that wgpu took to open the device; part of the ledger.
    pub fn baseline_bytes(&self) -> u64 {
        self.baseline_bytes
    }

    /// Offsets of bindings are multiples of this.
    pub fn alignment_bytes(&self) -> u64 {
        u64::from(self.raw.limits().min_storage_buffer_offset_alignment).max(ALIGNMENT_BYTES)
    }

    /// Makes creations fail beyond this many bytes, as a full device would.
    #[cfg(any(test, feature = "testing"))]
    pub fn set_fake_limit_bytes(&self, limit: Option<u64>) {
        self.ledger.set_limit_bytes(limit);
    }

    /// Treats the device as lost from here on.
    #[cfg(any(test, feature = "testing"))]
    pub fn simulate_loss(&self, reason: &str) {
        self.health.set_lost(reason.to_owned());
    }

    /// The first error that wgpu reported outside a call, or the loss of the device.
    ///
    /// # Errors
    /// That error.
    pub fn check(&self) -> Result<(), DeviceError> {
        self.health.check()
    }

    pub(crate) fn encoder(&self) -> wgpu::CommandEncoder {
        self.raw.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: None })
    }

    /// Submits commands. Waits first where too many submissions are under way.
    pub(crate) fn submit(&self, encoder: wgpu::CommandEncoder) -> Result<wgpu::SubmissionIndex, DeviceError> {
        self.submit_recorded([encoder.finish()])
    }

    /// Submits commands in this order, as [`submit`](Self::submit) does.
    pub(crate) fn submit_recorded(
        &self,
        commands: impl IntoIterator<Item = wgpu::CommandBuffer>,
    ) -> Result<wgpu::SubmissionIndex, DeviceError> {
        self.check()?;
        let oldest = {
            let mut in_flight = self.lock_in_flight();
            if in_flight.len() >= MAX_IN_FLIGHT { in_flight.pop_front() } else { None }
        };
        if let Some(index) = oldest {
            self.wait(Some(index))?;
        }
        let index = self.queue.submit(commands);
        self.lock_in_flight().push_back(index.clone());
        self.check()?;
        Ok(index)
    }

    /// Waits for a submission, or for all of them, and for the callbacks of buffer mappings.
    pub(crate) fn wait(&self, submission: Option<wgpu::SubmissionIndex>) -> Result<(), DeviceError> {
        let all = submission.is_none();
        let waited = self.raw.poll(wgpu::PollType::Wait { submission_index: submission, timeout: Some(self.timeout) });
        self.check()?;
        match waited {
            Ok(_) => {
                if all {
                    self.lock_in_flight().clear();
                }
                Ok(())
            }
            Err(wgpu::PollError::Timeout) => Err(DeviceError::Timeout { seconds: self.timeout.as_secs() }),
            Err(error @ wgpu::PollError::WrongSubmissionIndex(..)) => {
                Err(DeviceError::Validation { label: "wait".to_owned(), reason: error.to_string() })
            }
        }
    }

    /// Waits until all work is done.
    ///
    /// # Errors
    /// Where the device is lost, hangs or reported an error.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        self.wait(None)
    }

    fn lock_in_flight(&self) -> std::sync::MutexGuard<'_, VecDeque<wgpu::SubmissionIndex>> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets a device that has units for matrices use them, where it is 1: no kernel that does was ever run on a device.
const COOPERATIVE_VARIABLE: &str = "TIGHTFIT_COOPERATIVE";

fn wants_cooperative(info: &AdapterInfo) -> bool {
    let has_any = info.cooperative_size.max(info.cooperative_f16_size) > 0;
    has_any && std::env::var_os(COOPERATIVE_VARIABLE).is_some_and(|value| value == "1")
}

#[allow(unsafe_code)]
fn allow_experimental() -> wgpu::ExperimentalFeatures {
    // SAFETY: the one experimental feature is asked for by name, and the kernels that use it are files of this crate.
    unsafe { wgpu::ExperimentalFeatures::enabled() }
}

#[cfg(test)]
mod tests;

//! Compiling ahead of the first step: who is told how far it is, and what makes drivers do it that would otherwise wait.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{OnceLock, PoisonError};
use std::time::Duration;

use web_time::Instant;

use super::{Buffer, Device, Pipeline};
use crate::error::DeviceError;
use crate::shader::{Kernel, Variant};

/// How far the compilation of a plan's kernels is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compilation {
    /// Kernels that are compiled.
    pub done: usize,
    /// Kernels that are to be compiled.
    pub total: usize,
}

/// What was compiled on a device before it was needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compiled {
    /// Kernels, each in one variant.
    pub kernels: usize,
    /// How long that took.
    pub time: Duration,
    /// By how much the process grew meanwhile, where the operating system tells (Linux).
    pub process_bytes: Option<u64>,
}

type Watch = Box<dyn Fn(Compilation) + Send + Sync>;

static WATCH: OnceLock<Watch> = OnceLock::new();

/// Has `watch` called whenever a kernel of a plan is compiled, once with `done` 0 before the first, on any device of this process. Only
/// the first watch of a process counts: false says that there was one.
pub fn watch_compilation(watch: impl Fn(Compilation) + Send + Sync + 'static) -> bool {
    WATCH.set(Box::new(watch)).is_ok()
}

/// Counts kernels as they are compiled.
#[derive(Debug)]
pub(crate) struct Count {
    done: AtomicUsize,
    total: usize,
}

impl Count {
    pub(crate) fn new(total: usize) -> Self {
        let count = Count { done: AtomicUsize::new(0), total };
        count.tell(0);
        count
    }

    pub(crate) fn add(&self) {
        self.tell(self.done.fetch_add(1, Ordering::Relaxed) + 1);
    }

    fn tell(&self, done: usize) {
        if let Some(watch) = WATCH.get()
            && self.total > 0
        {
            watch(Compilation { done, total: self.total });
        }
    }
}

/// Devices that compile at the same time, this one included: each takes memory.
const MOST_COMPILERS: usize = 4;

/// A first launch that takes longer did compile, it did not read a file of the driver's.
const COMPILES: Duration = Duration::from_millis(50);

impl Device {
    /// What was compiled here before it was needed.
    pub fn compiled(&self) -> Compiled {
        *self.compiled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add_compiled(&self, more: Compiled) {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        compiled.kernels += more.kernels;
        compiled.time += more.time;
        compiled.process_bytes = match (compiled.process_bytes, more.process_bytes) {
            (Some(before), Some(more)) => Some(before + more),
            (before, more) => before.or(more),
        };
    }

    /// Whether the driver makes code for the processor at a kernel's first launch, not when the pipeline is created: lavapipe does.
    pub(crate) fn compiles_at_launch(&self) -> bool {
        self.info.backend == "vulkan" && self.info.driver.contains("llvmpipe")
    }

    /// Makes a driver that compiles at the first launch compile these kernels now. `launch` launches one of them here, with no
    /// workgroups. Such a driver compiles in its queue, one kernel after another; so the same device is opened
    /// again for each further core, to compile some of the kernels into the driver's cache on disk, where this one finds them.
    pub(crate) fn compile_at_launch(
        &self,
        kernels: &[(Kernel, &Variant)],
        launch: impl Fn(usize) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let count = Count::new(kernels.len());
        // Nothing else is to do while the longest is compiled in the end.
        let mut order: Vec<usize> = (0..kernels.len()).collect();
        let length = |&i: &usize| crate::shader::source(kernels[i].0, kernels[i].1).map_or(0, |text| text.len());
        order.sort_by_cached_key(|i| std::cmp::Reverse(length(i)));
        let next = AtomicUsize::new(0);
        let take = || order.get(next.fetch_add(1, Ordering::Relaxed)).copied();
        let cores = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_COMPILERS);
        let mut elsewhere = Vec::new();
        std::thread::scope(|scope| {
            let mut helpers = Vec::new();
            while let Some(i) = take() {
                let start = Instant::now();
                if let Err(error) = launch(i) {
                    // Nothing is left for the others either.
                    next.store(kernels.len(), Ordering::Relaxed);
                    return Err(error);
                }
                log::debug!("{} took {:?} to compile", kernels[i].0, start.elapsed());
                count.add();
                if helpers.is_empty() && start.elapsed() > COMPILES && has_disk_cache() {
                    let help = || self.compile_elsewhere(kernels, &take, &count);
                    // Where there is no memory for one more, it goes on without.
                    let start = |_| std::thread::Builder::new().spawn_scoped(scope, help).ok();
                    helpers = (1..cores).map_while(start).collect();
                }
            }
            for helper in helpers {
                elsewhere.extend(helper.join().unwrap_or_default());
            }
            Ok::<_, DeviceError>(())
        })?;
        // These are read from the cache.
        elsewhere.into_iter().try_for_each(launch)
    }

    /// Compiles kernels on a device of its own; which these were. What fails there fails here too, and is told here.
    fn compile_elsewhere(
        &self,
        kernels: &[(Kernel, &Variant)],
        take: &(dyn Fn() -> Option<usize> + Sync),
        count: &Count,
    ) -> Vec<usize> {
        let mut compiled = Vec::new();
        let Ok(device) = self.sibling() else { return compiled };
        let mut buffers = Vec::new();
        while let Some(i) = take() {
            compiled.push(i);
            let (kernel, variant) = kernels[i];
            let done =
                device.compile(kernel, variant).and_then(|pipeline| device.launch_empty(&pipeline, &mut buffers));
            if let Err(error) = done {
                log::debug!("{kernel} was not compiled ahead: {error}");
                break;
            }
            count.add();
        }
        compiled
    }

    /// Launches a kernel on no workgroups and nothing in particular. `buffers` are those of earlier launches.
    fn launch_empty(&self, pipeline: &Pipeline, buffers: &mut Vec<Buffer>) -> Result<(), DeviceError> {
        let bindings = &pipeline.reflection.bindings;
        while buffers.len() < bindings.len() {
            buffers.push(self.create_storage("nothing", 1)?);
        }
        let entries: Vec<_> = bindings
            .iter()
            .zip(buffers.iter())
            .map(|(binding, buffer)| wgpu::BindGroupEntry {
                binding: binding.index,
                resource: buffer.raw().as_entire_binding(),
            })
            .collect();
        let group = self.create_bind_group(pipeline, "nothing", &entries)?;
        let mut encoder = self.encoder();
        {
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            pass.set_pipeline(&pipeline.raw);
            pass.set_bind_group(0, &group, &[]);
            let params = vec![0; pipeline.reflection.params_bytes as usize];
            if !params.is_empty() {
                pass.set_immediates(0, &params);
            }
            pass.dispatch_workgroups(0, 0, 0);
        }
        self.submit(encoder)?;
        self.synchronize()
    }
}

/// Whether Mesa keeps what it compiles in files, as far as its settings say.
fn has_disk_cache() -> bool {
    let is_set =
        |name: &str| std::env::var(name).is_ok_and(|value| matches!(value.as_str(), "1" | "true" | "yes" | "y"));
    !["MESA_SHADER_CACHE_DISABLE", "MESA_GLSL_CACHE_DISABLE"].into_iter().any(is_set)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::device::testing::device_or_skip;
    use crate::shader::{Access, Family, StorageType};

    #[test]
    fn each_kernel_is_launched_here_wherever_it_was_compiled() {
        let Some(device) = device_or_skip() else { return };
        let kernel = Kernel::new("bias_add", "forward");
        let variants: Vec<_> = [StorageType::F32, device.float_storage()]
            .into_iter()
            .flat_map(|storage| {
                [(storage, Access::Read, None), (storage, Access::ReadWrite, None), (storage, Access::Read, Some(0))]
            })
            .map(|(storage, access, in_place)| Variant {
                storage,
                halves: Vec::new(),
                access,
                in_place,
                family: Family::Workgroup,
                consts: Vec::new(),
                epilogue: Vec::new(),
            })
            .collect();
        let kernels: Vec<_> = variants.iter().map(|variant| (kernel, variant)).collect();
        let launched = Mutex::new(vec![0; kernels.len()]);
        let bytes = device.ledger().current_bytes();
        let launch = |i: usize| {
            launched.lock().expect("no panic")[i] += 1;
            // As long as compiling takes, so that others help.
            std::thread::sleep(COMPILES + Duration::from_millis(10));
            Ok(())
        };
        device.compile_at_launch(&kernels, launch).expect("compiles");
        assert_eq!(*launched.lock().expect("no panic"), vec![1; kernels.len()]);
        assert_eq!(device.ledger().current_bytes(), bytes, "helpers have accounts of their own");
        let failed = device.compile_at_launch(&kernels, |_| Err(DeviceError::NoAdapter));
        assert_eq!(failed, Err(DeviceError::NoAdapter));
        assert_eq!(device.compile_at_launch(&[], |_| Ok(())), Ok(()));
    }

    #[test]
    fn what_is_compiled_is_added_up() {
        let Some(device) = device_or_skip() else { return };
        assert_eq!(device.compiled(), Compiled::default());
        let once = Compiled { kernels: 3, time: Duration::from_secs(2), process_bytes: Some(100) };
        device.add_compiled(once);
        device.add_compiled(Compiled { process_bytes: None, ..once });
        let both = Compiled { kernels: 6, time: Duration::from_secs(4), process_bytes: Some(100) };
        assert_eq!(device.compiled(), both);
    }
}

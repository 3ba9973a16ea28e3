//! How much memory a device has free, and the budget that is taken from it.

use std::fmt;

use serde::Serialize;

use super::adapter::AdapterInfo;
use super::{Device, host};
use crate::tensor::format_bytes;

/// Shares of what is free that are left, in percent. What the plan counts is not all that a training takes: drivers compile
/// kernels, and the desktop draws.
const MARGIN_PERCENT: u64 = 10;
/// The host's memory is also that of this process, its data, and all other programs.
const HOST_MARGIN_PERCENT: u64 = 25;
/// At least so much is left.
const LEAST_MARGIN_BYTES: u64 = 64 << 20;
/// Where a driver does not say how much of a device's memory is free, so much of it in percent is taken to be.
const FREE_PERCENT: u64 = 80;

/// Where a figure of free memory is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MemorySource {
    /// The driver says what this process may still take: through `VK_EXT_memory_budget`, DXGI or Metal.
    Driver,
    /// The device uses the host's memory: what the system counts as available, or less where a control group (a container) or a
    /// limit such as that of `ulimit -v` leaves less.
    Host,
    /// The driver says only how much memory the device has: 80% of that.
    Share,
}

/// Memory that a device has free.
///
/// ```
/// use tightfit::device::{AvailableMemory, MemorySource};
///
/// let memory = AvailableMemory { free_bytes: 10 << 30, total_bytes: 12 << 30, source: MemorySource::Driver };
/// assert_eq!(memory.budget_bytes(), 9 << 30);
/// assert_eq!(memory.to_string(), "10.0 GiB that the driver reports as free");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AvailableMemory {
    /// Bytes that are free, or taken to be.
    pub free_bytes: u64,
    /// All bytes that the device has, those in use included.
    pub total_bytes: u64,
    /// Where the figures are from.
    pub source: MemorySource,
}

impl AvailableMemory {
    /// That of the host, which the CPU trains in. `None` where the system does not say.
    pub fn of_host() -> Option<Self> {
        let (free_bytes, total_bytes) = host::free_and_total()?;
        Some(AvailableMemory { free_bytes, total_bytes, source: MemorySource::Host })
    }

    /// The budget that is taken of it: what is free less a margin of 10%, where the memory is the host's 25%, and at least 64 MiB.
    pub fn budget_bytes(&self) -> u64 {
        let percent = match self.source {
            MemorySource::Host => HOST_MARGIN_PERCENT,
            MemorySource::Driver | MemorySource::Share => MARGIN_PERCENT,
        };
        let margin = share_of(self.free_bytes, percent).max(LEAST_MARGIN_BYTES);
        self.free_bytes.saturating_sub(margin)
    }
}

/// What a budget was taken of, in words.
impl fmt::Display for AvailableMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let free = format_bytes(self.free_bytes);
        match self.source {
            MemorySource::Driver => write!(f, "{free} that the driver reports as free"),
            MemorySource::Host => write!(f, "{free} that the host has free"),
            MemorySource::Share => {
                let total = format_bytes(self.total_bytes);
                write!(
                    f,
                    "{free}, {FREE_PERCENT}% of the device's {total}, because its driver does not say what is free"
                )
            }
        }
    }
}

/// A share in percent, rounded up.
fn share_of(bytes: u64, percent: u64) -> u64 {
    (u128::from(bytes) * u128::from(percent)).div_ceil(100) as u64
}

/// Memory as a driver tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Heap {
    size_bytes: u64,
    /// The most that this process may have of it without others having to give way, and what it has. `None` where the driver does not
    /// say.
    budget: Option<(u64, u64)>,
}

impl Heap {
    fn available(self) -> AvailableMemory {
        let Heap { size_bytes: total_bytes, budget } = self;
        let (free_bytes, source) = match budget {
            Some((budget_bytes, used_bytes)) => {
                (budget_bytes.saturating_sub(used_bytes).min(total_bytes), MemorySource::Driver)
            }
            None => (total_bytes - share_of(total_bytes, 100 - FREE_PERCENT), MemorySource::Share),
        };
        AvailableMemory { free_bytes, total_bytes, source }
    }
}

/// What there is on a device whose driver tells that, where its memory is the host's beside that. The figure that allows less counts.
fn available(heap: Option<Heap>, host: Option<AvailableMemory>) -> Option<AvailableMemory> {
    let heap = heap.filter(|heap| heap.size_bytes > 0);
    // A part of all memory says less than what is free of it.
    let is_known = |heap: &Heap| heap.budget.is_some() || host.is_none_or(|host| heap.size_bytes < host.free_bytes);
    let heap = heap.filter(is_known).map(Heap::available);
    heap.into_iter().chain(host).min_by_key(AvailableMemory::budget_bytes)
}

/// What an adapter has free.
pub(super) fn of_adapter(info: &AdapterInfo, adapter: &wgpu::Adapter) -> Option<AvailableMemory> {
    available(heap(adapter), AvailableMemory::of_host().filter(|_| info.unified_memory))
}

impl Device {
    /// What it has free now. `None` where the driver does not say, as through OpenGL.
    pub fn available_memory(&self) -> Option<AvailableMemory> {
        of_adapter(&self.info, &self.adapter)
    }
}

/// What the driver tells.
#[cfg(windows)]
fn heap(adapter: &wgpu::Adapter) -> Option<Heap> {
    of_dx12(adapter).or_else(|| of_vulkan(adapter))
}

#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn heap(adapter: &wgpu::Adapter) -> Option<Heap> {
    of_vulkan(adapter)
}

#[cfg(target_vendor = "apple")]
fn heap(adapter: &wgpu::Adapter) -> Option<Heap> {
    of_metal(adapter)
}

#[cfg(not(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd", target_vendor = "apple")))]
fn heap(_: &wgpu::Adapter) -> Option<Heap> {
    None
}

/// The largest heap of the device's own: it is where buffers go first, and no buffer is in two.
#[cfg(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd"))]
#[allow(unsafe_code)]
fn of_vulkan(adapter: &wgpu::Adapter) -> Option<Heap> {
    use ash::vk;

    // SAFETY: the adapter is only asked, and stays wgpu's.
    let adapter = unsafe { adapter.as_hal::<wgpu::hal::api::Vulkan>() }?;
    let (instance, capabilities) = (adapter.shared_instance(), adapter.physical_device_capabilities());
    let version = instance.instance_api_version().min(capabilities.properties().api_version);
    let has_budget = version >= vk::API_VERSION_1_1 && capabilities.supports_extension(ash::ext::memory_budget::NAME);
    let (raw, physical) = (instance.raw_instance(), adapter.raw_physical_device());
    let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
    let memory = if has_budget {
        let mut properties = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
        // SAFETY: the device is of this instance, both have the function from version 1.1 on, and the device has the extension that
        // the second structure is of.
        unsafe { raw.get_physical_device_memory_properties2(physical, &mut properties) };
        properties.memory_properties
    } else {
        // SAFETY: the device is of this instance.
        unsafe { raw.get_physical_device_memory_properties(physical) }
    };
    let heaps = memory.memory_heaps_as_slice().iter().enumerate();
    let own = heaps.filter(|(_, heap)| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL));
    let (index, heap) = own.max_by_key(|(_, heap)| heap.size)?;
    // A budget of 0 is that of a driver that does not know.
    let figures = (budget.heap_budget[index], budget.heap_usage[index]);
    Some(Heap { size_bytes: heap.size, budget: Some(figures).filter(|(budget, _)| *budget > 0) })
}

/// The segment that is near the device: its own memory where it has some.
#[cfg(windows)]
#[allow(unsafe_code)]
fn of_dx12(adapter: &wgpu::Adapter) -> Option<Heap> {
    use windows::Win32::Graphics::Dxgi::{DXGI_MEMORY_SEGMENT_GROUP_LOCAL, DXGI_QUERY_VIDEO_MEMORY_INFO};

    // SAFETY: the adapter is only asked, and stays wgpu's.
    let adapter = unsafe { adapter.as_hal::<wgpu::hal::api::Dx12>() }?;
    let mut info = DXGI_QUERY_VIDEO_MEMORY_INFO::default();
    // SAFETY: the structure is written and outlives the call; 0 is the only node of an adapter that is not linked to others.
    unsafe { adapter.as_raw().QueryVideoMemoryInfo(0, DXGI_MEMORY_SEGMENT_GROUP_LOCAL, &mut info) }.ok()?;
    // SAFETY: this reads a description.
    let description = unsafe { adapter.as_raw().GetDesc1() }.ok()?;
    // Where it has no memory of its own, it shares that of the host.
    let own_bytes = (description.DedicatedVideoMemory as u64).max(info.Budget);
    Some(Heap {
        size_bytes: own_bytes,
        budget: Some((info.Budget, info.CurrentUsage)).filter(|(budget, _)| *budget > 0),
    })
}

/// What Metal recommends to stay below.
#[cfg(target_vendor = "apple")]
#[allow(unsafe_code)]
fn of_metal(adapter: &wgpu::Adapter) -> Option<Heap> {
    use objc2_metal::MTLDevice as _;

    // SAFETY: the adapter is only asked, and stays wgpu's.
    let adapter = unsafe { adapter.as_hal::<wgpu::hal::api::Metal>() }?;
    let device = adapter.raw_device();
    let most_bytes = device.recommendedMaxWorkingSetSize();
    Some(Heap { size_bytes: most_bytes, budget: Some((most_bytes, device.currentAllocatedSize() as u64)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;
    const MIB: u64 = 1 << 20;

    fn memory(free_bytes: u64, source: MemorySource) -> AvailableMemory {
        AvailableMemory { free_bytes, total_bytes: 16 * GIB, source }
    }

    fn host(free_bytes: u64) -> AvailableMemory {
        memory(free_bytes, MemorySource::Host)
    }

    fn heap(size_bytes: u64, budget: Option<(u64, u64)>) -> Option<Heap> {
        Some(Heap { size_bytes, budget })
    }

    #[test]
    fn a_margin_stays_free() {
        for (free, source, budget) in [
            (10 * GIB, MemorySource::Driver, 9 * GIB),
            (10 * GIB, MemorySource::Share, 9 * GIB),
            (8 * GIB, MemorySource::Host, 6 * GIB),
            // At least 64 MiB.
            (100 * MIB, MemorySource::Driver, 36 * MIB),
            (100 * MIB, MemorySource::Host, 36 * MIB),
            (64 * MIB, MemorySource::Driver, 0),
            (1, MemorySource::Host, 0),
            (0, MemorySource::Share, 0),
            (u64::MAX, MemorySource::Driver, u64::MAX / 10 * 9 + 4),
        ] {
            assert_eq!(memory(free, source).budget_bytes(), budget, "{free} {source:?}");
        }
    }

    #[test]
    fn of_a_device_with_memory_of_its_own_the_driver_tells() {
        let told = available(heap(8 * GIB, Some((6 * GIB, GIB))), None).expect("known");
        assert_eq!(told, AvailableMemory { free_bytes: 5 * GIB, total_bytes: 8 * GIB, source: MemorySource::Driver });
        // Others have it all, or the driver's figures do not fit together.
        assert_eq!(available(heap(8 * GIB, Some((GIB, 2 * GIB))), None).map(|memory| memory.free_bytes), Some(0));
        let huge = available(heap(8 * GIB, Some((u64::MAX, 0))), None);
        assert_eq!(huge.map(|memory| memory.free_bytes), Some(8 * GIB));
        let share = available(heap(10 * GIB, None), None).expect("known");
        assert_eq!((share.free_bytes, share.source), (8 * GIB, MemorySource::Share));
        assert_eq!(available(None, None), None);
        assert_eq!(available(heap(0, None), None), None);
    }

    #[test]
    fn where_memory_is_the_hosts_the_smaller_figure_counts() {
        let of = |heap, host| available(heap, Some(host)).map(|memory| (memory.free_bytes, memory.source));
        assert_eq!(of(None, host(4 * GIB)), Some((4 * GIB, MemorySource::Host)));
        assert_eq!(of(heap(8 * GIB, Some((8 * GIB, 0))), host(4 * GIB)), Some((4 * GIB, MemorySource::Host)));
        assert_eq!(of(heap(8 * GIB, Some((2 * GIB, GIB))), host(4 * GIB)), Some((GIB, MemorySource::Driver)));
        // That a heap has all memory says nothing of what is free.
        assert_eq!(of(heap(8 * GIB, None), host(7 * GIB)), Some((7 * GIB, MemorySource::Host)));
        // It may have less than is free.
        assert_eq!(of(heap(5 * GIB, None), host(16 * GIB)), Some((4 * GIB, MemorySource::Share)));
    }

    #[test]
    fn it_is_said_in_words() {
        assert_eq!(memory(6 * GIB, MemorySource::Driver).to_string(), "6.0 GiB that the driver reports as free");
        assert_eq!(host(6 * GIB).to_string(), "6.0 GiB that the host has free");
        let share = available(heap(10 * GIB, None), None).expect("known").to_string();
        assert_eq!(share, "8.0 GiB, 80% of the device's 10.0 GiB, because its driver does not say what is free");
    }
}

//! The memory of this process: on devices without memory of their own, the device's is part of it.

/// Bytes of this process that are in memory now. `None` where the operating system is not Linux.
pub fn resident_bytes() -> Option<u64> {
    status_bytes("VmRSS:")
}

/// The most bytes of this process that were in memory at once. `None` where the operating system is not Linux.
#[cfg(any(test, feature = "cli"))]
pub fn peak_resident_bytes() -> Option<u64> {
    status_bytes("VmHWM:")
}

/// A figure of `/proc/self/status`, such as `VmRSS:`.
pub(super) fn status_bytes(key: &str) -> Option<u64> {
    // Elsewhere a file of that name tells of something else, as below Wine.
    if !cfg!(target_os = "linux") {
        return None;
    }
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix(key))?.split_whitespace().next()?.parse::<u64>().ok()?;
    Some(kib << 10)
}

/// Gives memory that was freed back to the system, where the allocator keeps it otherwise: compilers take tens of megabytes for a
/// moment, which no step needs.
#[allow(unsafe_code)]
pub(crate) fn return_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: malloc_trim takes any number, may be called at any time from any thread, and touches free memory only.
    unsafe {
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> std::ffi::c_int;
        }
        malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_linux_tells_of_memory() {
        for bytes in [resident_bytes(), peak_resident_bytes()] {
            assert_eq!(bytes.is_some(), cfg!(target_os = "linux"), "{bytes:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn memory_that_is_touched_is_counted() {
        let [resident, peak] = [resident_bytes(), peak_resident_bytes()].map(|bytes| bytes.expect("Linux tells"));
        assert!(0 < resident && resident <= peak, "{resident} {peak}");
        // Else the compiler leaves it out.
        let block = std::hint::black_box(vec![1_u8; 64 << 20]);
        let more = resident_bytes().expect("Linux tells");
        // Other tests run at the same time and free memory.
        assert!(peak_resident_bytes().expect("Linux tells") >= 64 << 20 && more >= 64 << 20, "{more}");
        drop(block);
        return_freed_memory();
    }
}

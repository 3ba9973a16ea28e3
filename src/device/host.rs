//! How much of the host's memory this process may still take: on devices without memory of their own, that is what they have.

use std::fs;
use std::path::{Path, PathBuf};

use super::process;

/// Bytes that are free and all that there are. Free is what the system counts as available, and no more than what control groups
/// (containers) and limits such as that of `ulimit -v` leave. `None` where the system does not say.
pub(super) fn free_and_total() -> Option<(u64, u64)> {
    let (available, total) = available_and_total().filter(|&(_, total)| total > 0)?;
    Some((within_limits(available), total))
}

/// Bytes that this process may take without being ended for it: what is free, and swap, which is slow but there. `None` where the
/// system does not say.
pub(crate) fn most_memory() -> Option<u64> {
    let (available, _) = available_and_total()?;
    Some(within_limits(available.saturating_add(free_swap())))
}

/// No more than what control groups and limits of the process leave.
fn within_limits(bytes: u64) -> u64 {
    [of_control_groups(), of_process_limits()].into_iter().flatten().fold(bytes, u64::min)
}

#[cfg(not(target_arch = "wasm32"))]
fn system(memory: sysinfo::MemoryRefreshKind) -> Option<sysinfo::System> {
    sysinfo::System::new_with_specifics(sysinfo::RefreshKind::nothing().with_memory(memory)).ok()
}

#[cfg(not(target_arch = "wasm32"))]
fn available_and_total() -> Option<(u64, u64)> {
    let system = system(sysinfo::MemoryRefreshKind::nothing().with_ram())?;
    Some((system.available_memory(), system.total_memory()))
}

#[cfg(not(target_arch = "wasm32"))]
fn free_swap() -> u64 {
    system(sysinfo::MemoryRefreshKind::nothing().with_swap()).map_or(0, |system| system.free_swap())
}

/// What the processor's maker calls it.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn processor_name() -> String {
    let cpu = sysinfo::RefreshKind::nothing().with_cpu(sysinfo::CpuRefreshKind::nothing());
    let system = sysinfo::System::new_with_specifics(cpu).ok();
    let name = system.and_then(|system| Some(system.cpus().first()?.brand().trim().to_owned()));
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| format!("{} processor", std::env::consts::ARCH))
}

/// A browser does not say.
#[cfg(target_arch = "wasm32")]
pub(crate) fn processor_name() -> String {
    "a browser's processor".to_owned()
}

/// A browser does not say.
#[cfg(target_arch = "wasm32")]
fn available_and_total() -> Option<(u64, u64)> {
    None
}

#[cfg(target_arch = "wasm32")]
fn free_swap() -> u64 {
    0
}

/// A file in which Linux tells of this process. Elsewhere one of that name tells of something else, as below Wine.
fn of_this_process(name: &str) -> Option<String> {
    if cfg!(target_os = "linux") { fs::read_to_string(Path::new("/proc/self").join(name)).ok() } else { None }
}

fn of_control_groups() -> Option<u64> {
    group_free(Path::new("/sys/fs/cgroup"), &of_this_process("cgroup")?)
}

fn of_process_limits() -> Option<u64> {
    limit_free(&of_this_process("limits")?, process::status_bytes)
}

/// What the limits of a process, a table as `/proc/self/limits`, leave beyond what `used` says that it has: of its address space and
/// of its private memory. `None` where neither is limited.
fn limit_free(limits: &str, used: impl Fn(&str) -> Option<u64>) -> Option<u64> {
    let left = |(name, key): (&str, &str)| {
        let soft = limits.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?;
        Some(soft.parse::<u64>().ok()?.saturating_sub(used(key)?))
    };
    [("Max address space", "VmSize:"), ("Max data size", "VmData:")].into_iter().filter_map(left).min()
}

/// Names of the files of a control group: its limit, what it uses, and in its statistics the part of that which is cached files that
/// nobody has read for a while.
const VERSION_1: [&str; 3] = ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"];
const VERSION_2: [&str; 3] = ["memory.max", "memory.current", "inactive_file"];

/// What the control groups below `root` leave to a process whose `/proc/self/cgroup` is `groups`: the least of its own group and all
/// above it. Such cached files count as free, since the system gives them up before it refuses memory. `None` where there is no
/// limit.
fn group_free(root: &Path, groups: &str) -> Option<u64> {
    let lines = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        Some((parts.next()?, parts.next()?))
    });
    let hierarchies = lines.filter_map(|(controllers, group)| match controllers {
        "" => Some((root.to_owned(), VERSION_2, group)),
        _ if controllers.split(',').any(|name| name == "memory") => Some((root.join("memory"), VERSION_1, group)),
        _ => None,
    });
    let left = |(base, files, group): (PathBuf, _, &str)| {
        // In a container the path may be that of the host, and its own group all that it sees.
        let own = base.join(group.trim_start_matches('/'));
        let is_below = own.is_dir() && group.split('/').all(|part| part != "..");
        let own = if is_below { own } else { base.clone() };
        own.ancestors().take_while(|group| group.starts_with(&base)).filter_map(|group| free_of(group, files)).min()
    };
    hierarchies.filter_map(left).min()
}

fn free_of(group: &Path, [limit, usage, cached]: [&str; 3]) -> Option<u64> {
    let read = |name: &str| fs::read_to_string(group.join(name)).ok();
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let (limit, used) = (number(&read(limit)?)?, number(&read(usage)?)?);
    let statistics = read("memory.stat").unwrap_or_default();
    let is_cached = |line: &str| line.strip_prefix(cached).and_then(number);
    let cached = statistics.lines().find_map(is_cached).unwrap_or(0);
    Some(limit.saturating_sub(used.saturating_sub(cached)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_limits_leave_is_the_least_of_them() {
        let table = |space: &str, data: &str| {
            format!(
                "Limit                     Soft Limit           Hard Limit           Units     \n\
                 Max cpu time              unlimited            unlimited            seconds   \n\
                 Max data size             {data:<20} unlimited            bytes     \n\
                 Max address space         {space:<20} unlimited            bytes     \n"
            )
        };
        let used = |key: &str| Some(if key == "VmSize:" { 300 * MIB } else { 100 * MIB });
        let (small, large) = ((400 * MIB).to_string(), (1000 * MIB).to_string());
        assert_eq!(limit_free(&table("unlimited", "unlimited"), used), None);
        assert_eq!(limit_free(&table(&small, "unlimited"), used), Some(100 * MIB));
        assert_eq!(limit_free(&table("unlimited", &small), used), Some(300 * MIB));
        assert_eq!(limit_free(&table(&large, &small), used), Some(300 * MIB));
        // More is used than may be, where a limit was set later.
        assert_eq!(limit_free(&table("1024", "unlimited"), used), Some(0));
        for odd in ["", "Max address space", "Max address space  -1  bytes", "Max address space\n\n\u{0}"] {
            assert_eq!(limit_free(odd, used), None, "{odd}");
        }
        assert_eq!(limit_free(&table(&small, &small), |_| None), None);
    }

    /// Writes a group's files.
    fn group(folder: &Path, names: [&str; 3], limit: &str, used: u64, cached: u64) {
        fs::create_dir_all(folder).expect("creates");
        let statistics = format!("anon 17\n{} {cached}\n{}_more 5\n", names[2], names[2]);
        let files = [(names[0], format!("{limit}\n")), (names[1], format!("{used}\n")), ("memory.stat", statistics)];
        for (name, text) in files {
            fs::write(folder.join(name), text).expect("writes");
        }
    }

    #[test]
    fn control_groups_leave_what_the_tightest_of_them_does() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let root = folder.path();
        let limit = |mib: u64| (mib * MIB).to_string();
        group(&root.join("a"), VERSION_2, &limit(100), 60 * MIB, 10 * MIB);
        group(&root.join("a/b"), VERSION_2, "max", 50 * MIB, 0);
        group(&root.join("a/b/c"), VERSION_2, &limit(80), 20 * MIB, 0);
        assert_eq!(group_free(root, "0::/a/b/c\n"), Some(50 * MIB));
        assert_eq!(group_free(root, "0::/a/b"), Some(50 * MIB));
        // The root has no such files.
        assert_eq!(group_free(root, "0::/"), None);
        // Dots in a name lead nowhere.
        group(&root.join("a/b..c"), VERSION_2, &limit(30), 10 * MIB, 0);
        assert_eq!(group_free(root, "0::/a/b..c"), Some(20 * MIB));
        for odd in ["", "0", "0::", "1:cpu:/a", "\n\n", "0::/gone", "0::/a/../a/b/c"] {
            assert_eq!(group_free(root, odd), None, "{odd}");
        }

        // As in a container: the root is its own group.
        let contained = root.join("contained");
        group(&contained, VERSION_2, &limit(64), 70 * MIB, 10 * MIB);
        for text in ["0::/", "0::/../gone", "0::/docker/0123"] {
            assert_eq!(group_free(&contained, text), Some(4 * MIB), "{text}");
        }

        let first = root.join("first");
        group(&first.join("memory"), VERSION_1, "9223372036854771712", 500 * MIB, 0);
        group(&first.join("memory/job"), VERSION_1, &limit(200), 50 * MIB, 50 * MIB);
        assert_eq!(group_free(&first, "4:cpu,memory:/job\n0::/\n"), Some(200 * MIB));
        assert!(group_free(&first, "4:memory:/gone").expect("no limit to speak of") > 1 << 60);
        // More than there may be is used.
        group(&first.join("memory/job"), VERSION_1, "4096", MIB, 0);
        assert_eq!(group_free(&first, "4:memory:/job"), Some(0));
    }

    #[test]
    fn the_host_says_how_much_is_free() {
        let (free, total) = free_and_total().expect("a host");
        assert!(0 < free && free <= total, "{free} of {total}");
    }
}

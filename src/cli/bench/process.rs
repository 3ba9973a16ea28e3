//! What Linux tells of this process in `/proc`. Elsewhere there is no answer.

use std::fs;

/// What a user may know of a clock tick: the kernel's own rate is hidden behind this one.
const TICKS_PER_SECOND: f64 = 100.0;

/// Seconds of work since the machine started, over all cores: by all processes, by this one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) all_s: f64,
    pub(super) own_s: f64,
}

/// Makes the peak begin with what is in memory now.
pub(super) fn forget_peak() {
    // Where it is not possible, the peak is that since the process began.
    #[cfg(target_os = "linux")]
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// The fields of `/proc/self/stat` behind the process's name, which may hold anything.
fn own_fields() -> Option<Vec<f64>> {
    // Below Wine it is there too, but of another process.
    if !cfg!(target_os = "linux") {
        return None;
    }
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    Some(stat.rsplit(')').next()?.split_whitespace().map(|field| field.parse().unwrap_or(0.0)).collect())
}

/// Seconds since this process was started.
pub(super) fn age_s() -> Option<f64> {
    let start = own_fields()?.get(19)? / TICKS_PER_SECOND;
    let up: f64 = fs::read_to_string("/proc/uptime").ok()?.split_whitespace().next()?.parse().ok()?;
    Some(up - start)
}

pub(super) fn work() -> Option<Work> {
    let own = own_fields()?;
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let ticks: Vec<f64> =
        stat.lines().next()?.split_whitespace().skip(1).take(8).map_while(|field| field.parse().ok()).collect();
    // Fields 3 and 4 count idle cores and those that wait for a disk.
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some(Work {
        all_s: (ticks.iter().sum::<f64>() - idle) / TICKS_PER_SECOND,
        own_s: (own.get(11)? + own.get(12)?) / TICKS_PER_SECOND,
    })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn linux_tells() {
        let facts = || {
            let Work { all_s, own_s } = work().expect("there");
            [age_s().expect("there"), all_s, own_s]
        };
        let before = facts();
        let start = std::time::Instant::now();
        // Each has a clock of its own, and ten milliseconds at once: until all have ticked while this thread has a core.
        let all_grew = || facts().iter().zip(&before).all(|(after, before)| after > before);
        while !all_grew() && start.elapsed().as_secs() < 60 {}
        assert!(all_grew() && (0.0..3600.0).contains(&before[0]), "{before:?} {:?}", facts());
        forget_peak();
    }
}

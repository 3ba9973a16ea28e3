//! The CPU as a device.

use crate::device::{AdapterInfo, processor_name};
use crate::native::{Cores, Level};
use crate::plan::{Limits, NATIVE};

/// How many threads, from the environment, where a program does not say.
const THREADS_VARIABLE: &str = "TIGHTFIT_THREADS";

/// The CPU: how many threads work, and with which vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    threads: usize,
    level: Level,
}

/// What `TIGHTFIT_THREADS` names.
fn threads_of_environment() -> Option<usize> {
    let text = std::env::var(THREADS_VARIABLE).ok()?;
    let threads = text.parse().ok().filter(|threads| (1..=Limits::MOST_THREADS).contains(threads));
    if threads.is_none() {
        let most = Limits::MOST_THREADS;
        log::warn!(
            "{THREADS_VARIABLE}={text} is no number from 1 to {most}: as many threads as may run at once are taken"
        );
    }
    threads
}

impl Cpu {
    /// So many threads, from 1 to 1024; where nothing is said as many as `TIGHTFIT_THREADS` names, or as the process may run at
    /// once.
    pub fn new(threads: Option<usize>) -> Self {
        let threads =
            threads.or_else(threads_of_environment).unwrap_or_else(Cores::available).clamp(1, Limits::MOST_THREADS);
        Cpu { threads, level: Level::chosen() }
    }

    /// Threads.
    pub fn threads(self) -> usize {
        self.threads
    }

    /// Threads that run at the same time.
    pub(crate) fn cores(self) -> usize {
        self.threads.min(Cores::available())
    }

    /// The vectors that they compute with.
    pub fn level(self) -> Level {
        self.level
    }

    /// What it allows.
    pub fn limits(self) -> Limits {
        Limits::of_cpu(self.threads)
    }

    /// What is known of it.
    pub fn info(self) -> AdapterInfo {
        let most = self.limits().max_buffer_bytes;
        AdapterInfo {
            index: 0,
            name: processor_name(),
            backend: "cpu".to_owned(),
            driver: self.level.to_string(),
            device_type: NATIVE.to_owned(),
            shader_compiler: None,
            subgroup_min_size: 0,
            subgroup_max_size: 0,
            max_buffer_bytes: most,
            max_binding_bytes: most,
            f16: false,
            cooperative_size: 0,
            cooperative_f16_size: 0,
            unified_memory: true,
            missing: Vec::new(),
        }
    }
}

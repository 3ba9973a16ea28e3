//! The memory of this process in parts, where the operating system tells of it (Linux).

use serde_json::{Value, json};
use tightfit::command::peak_resident_bytes;
use tightfit::plan::ArenaRole;
use tightfit::train::Trainer;

const BYTES_PER_MIB: f64 = 1_048_576.0;

/// Bytes of the process at most, and what they were for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    peak: u64,
    /// The program and the opened device, before anything of the plan existed.
    base: u64,
    /// What the plan has on the device, where that is memory of this process.
    device: u64,
    host_tier: u64,
    data: u64,
    /// What the process grew by while kernels were compiled.
    kernels: u64,
}

impl Memory {
    /// Of a process that has trained: its bytes before the plan and its data existed, and those of the data.
    pub(crate) fn of(trainer: &Trainer, base: Option<u64>, data: Option<u64>) -> Option<Self> {
        Some(Memory {
            peak: peak_resident_bytes()?,
            base: base?,
            device: if trainer.is_in_process() { trainer.measured_peak_bytes() } else { 0 },
            host_tier: trainer.plan().arena_bytes(ArenaRole::Host),
            data: data?,
            kernels: trainer.compiled().process_bytes.unwrap_or(0),
        })
    }

    fn parts(&self) -> [(&'static str, u64); 6] {
        let &Memory { peak, base, device, host_tier, data, kernels } = self;
        let rest = peak.saturating_sub(base + device + host_tier + data + kernels);
        [
            ("base", base),
            ("device", device),
            ("host tier", host_tier),
            ("data", data),
            ("kernels", kernels),
            ("rest", rest),
        ]
    }

    /// In words; what is nothing is left out.
    pub(crate) fn text(&self) -> String {
        let mib = |bytes: u64| format!("{:.0}", bytes as f64 / BYTES_PER_MIB);
        let parts = self.parts().into_iter().filter(|&(_, bytes)| bytes > 0);
        let parts: Vec<_> = parts.map(|(name, bytes)| format!("{name} {}", mib(bytes))).collect();
        format!("{} MiB at most: {}", mib(self.peak), parts.join(", "))
    }

    /// In bytes.
    pub(crate) fn to_json(self) -> Value {
        let mut object = json!({ "peak_bytes": self.peak });
        for (name, bytes) in self.parts() {
            object[format!("{}_bytes", name.replace(' ', "_"))] = json!(bytes);
        }
        object
    }

    /// One part, or the `peak`, in units of 1,048,576 bytes.
    pub(crate) fn mb(self, name: &str) -> f64 {
        let part = self.parts().into_iter().find(|(part, _)| *part == name);
        part.map_or(self.peak, |(_, bytes)| bytes) as f64 / BYTES_PER_MIB
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_all_of_it() {
        let mib = 1 << 20;
        let memory = Memory {
            peak: 300 * mib,
            base: 70 * mib,
            device: 100 * mib,
            host_tier: 0,
            data: 5 * mib,
            kernels: 60 * mib,
        };
        assert_eq!(memory.text(), "300 MiB at most: base 70, device 100, data 5, kernels 60, rest 65");
        assert_eq!(memory.parts().map(|(_, bytes)| bytes).iter().sum::<u64>(), memory.peak);
        let json = memory.to_json();
        assert_eq!((&json["rest_bytes"], &json["host_tier_bytes"]), (&json!(65 * mib), &json!(0)));
        assert_eq!((memory.mb("kernels"), memory.mb("peak")), (60.0, 300.0));
        // What is counted twice is not below nothing.
        assert_eq!(Memory { peak: 1, ..memory }.parts()[5], ("rest", 0));
    }
}

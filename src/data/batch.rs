//! Some samples of a dataset, ready to be uploaded.

/// What a model and a batch call the samples.
pub const INPUT: &str = "input";
/// What a batch calls the targets.
pub const TARGET: &str = "target";

/// What a dataset calls the weights of its samples.
pub const SAMPLE_WEIGHT: &str = "sample_weight";

/// Samples, targets and whatever else a model takes, by name: bytes in the machine's order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    entries: Vec<(String, Vec<u8>)>,
}

impl Batch {
    /// The bytes of an entry, if there is one of this name.
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.entries.iter().find(|(entry, _)| entry == name).map(|(_, bytes)| &bytes[..])
    }

    /// An entry as floats; none of an entry that is not there.
    pub fn values(&self, name: &str) -> Vec<f32> {
        bytemuck::pod_collect_to_vec(self.bytes(name).unwrap_or_default())
    }

    /// An entry as labels or tokens; none of an entry that is not there.
    pub fn ints(&self, name: &str) -> Vec<u32> {
        bytemuck::pod_collect_to_vec(self.bytes(name).unwrap_or_default())
    }

    /// Fills entries up with zeros, as if there were `samples` samples instead of `filled`.
    pub(crate) fn pad(&mut self, filled: usize, samples: usize) {
        for (_, bytes) in &mut self.entries {
            bytes.resize(bytes.len() / filled.max(1) * samples, 0);
        }
    }

    /// Empties all entries.
    pub(super) fn clear(&mut self) {
        self.entries.iter_mut().for_each(|(_, bytes)| bytes.clear());
    }

    /// The entry of this name, which is made where there is none.
    pub(super) fn entry(&mut self, name: &str) -> &mut Vec<u8> {
        let at = self.entries.iter().position(|(entry, _)| entry == name).unwrap_or_else(|| {
            self.entries.push((name.to_owned(), Vec::new()));
            self.entries.len() - 1
        });
        &mut self.entries[at].1
    }
}

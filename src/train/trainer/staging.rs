//! What a micro-batch is given of a batch.

use std::ops::Range;

use crate::data::{Batch, unit};
use crate::error::HostMemory;
use crate::graph::Graph;
use crate::tensor::DType;
use crate::train::source::input_names;

/// What a micro-batch takes that is not in its batch as it is: bytes as numbers, and samples that stand in where the batch is short.
#[derive(Debug, Default)]
pub(super) struct Staging {
    entries: Vec<(String, Vec<u8>)>,
}

impl Staging {
    /// Makes ready what the graph of a micro-batch takes of these samples of a batch. Where it has not as many, its first one stands
    /// in, which then has no weight.
    pub(super) fn fill(&mut self, graph: &Graph, batch: &Batch, samples: &Range<usize>) -> Result<(), HostMemory> {
        let mut used = 0;
        for name in input_names(graph) {
            let Some((found, bytes)) = batch.rows(name, samples.start.min(batch.len())..samples.end.min(batch.len()))
            else {
                continue;
            };
            let wanted = graph.find(name).map_or(found, |id| graph.value(id).desc.dtype);
            // Bytes are uploaded in whole words.
            let is_whole = wanted != DType::U8 || bytes.len().is_multiple_of(4);
            if wanted == found && samples.end <= batch.len() && is_whole {
                continue;
            }
            if self.entries.len() == used {
                self.entries.push(Default::default());
            }
            let (entry, out) = &mut self.entries[used];
            name.clone_into(entry);
            out.clear();
            let (_, first) = batch.rows(name, 0..1).expect("bug: an empty batch");
            let missing = samples.len() - samples.end.min(batch.len()).saturating_sub(samples.start);
            let parts = std::iter::once(bytes).chain(std::iter::repeat_n(first, missing));
            let factor = (wanted.size_bytes() / found.size_bytes()) as usize;
            let size = ((bytes.len() + first.len() * missing) * factor).next_multiple_of(4);
            out.try_reserve_exact(size).map_err(|_| HostMemory { size_bytes: size as u64 })?;
            for part in parts {
                if (found, wanted) == (DType::U8, DType::F32) {
                    out.extend(part.iter().flat_map(|&byte| unit(byte).to_ne_bytes()));
                } else {
                    out.extend_from_slice(part);
                }
            }
            out.resize(size, 0);
            used += 1;
        }
        self.entries.truncate(used);
        Ok(())
    }

    /// The bytes of an input for these samples.
    pub(super) fn bytes<'a>(&'a self, batch: &'a Batch, name: &str, samples: &Range<usize>) -> Option<&'a [u8]> {
        let own = self.entries.iter().find(|(entry, _)| entry == name).map(|(_, bytes)| &bytes[..]);
        own.or_else(|| batch.rows(name, samples.clone()).map(|(_, bytes)| bytes))
    }
}

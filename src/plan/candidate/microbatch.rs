//! Ways to cut a step's batch into micro-batches.

use crate::error::GraphError;
use crate::graph::{Graph, Phase, Role};
use crate::plan::{Pass, Request, SavedActivations, Source};
use crate::tensor::{NodeId, ValueId};

/// Sizes of batches up to which every way to cut is looked at, and the number of ways that are looked at beyond.
const SPREAD: usize = 24;

/// Micro-batches of a step at most: a plan lists each.
pub(crate) const MOST: usize = 1 << 16;
/// Samples of a batch at most: kernels are told where a micro-batch begins.
pub(crate) const MOST_SAMPLES: usize = u32::MAX as usize;

/// Samples of each of `count` micro-batches: equal, with a shorter last one; where that leaves one empty, the last ones
/// have one sample less than the first ones.
pub(crate) fn split(batch: usize, count: usize) -> Vec<usize> {
    let size = batch.div_ceil(count);
    if batch.div_ceil(size) == count {
        return (0..count).map(|i| size.min(batch - i * size)).collect();
    }
    (0..count).map(|i| batch / count + usize::from(i < batch % count)).collect()
}

/// The pass of each of `count` micro-batches.
pub(crate) fn passes(count: usize) -> impl Iterator<Item = Pass> {
    (0..count).map(move |i| match i {
        _ if count == 1 => Pass::Only,
        0 => Pass::First,
        i if i + 1 == count => Pass::Last,
        _ => Pass::Middle,
    })
}

/// Numbers of micro-batches that differ in the size of a micro-batch, fewest first.
pub(crate) fn distinct_counts(batch: usize) -> Vec<usize> {
    let mut counts = Vec::new();
    let mut size = batch;
    while size > 0 {
        let count = batch.div_ceil(size);
        if count > MOST {
            break;
        }
        // The smallest size with this many micro-batches needs the least memory.
        size = batch.div_ceil(count);
        counts.push(count);
        size -= 1;
    }
    counts
}

/// A few of `count` positions, evenly spread, with the first and the last two among them.
pub(crate) fn spread(count: usize) -> Vec<usize> {
    if count <= SPREAD + 2 {
        return (0..count).collect();
    }
    let mut positions: Vec<_> = (0..SPREAD).map(|i| i * (count - 1) / (SPREAD - 1)).collect();
    positions.push(count - 2);
    positions.sort_unstable();
    positions.dedup();
    positions
}

/// Why a batch cannot be split.
#[derive(Clone, Debug)]
pub(crate) struct Mixing {
    /// Which layer mixes its samples, in words.
    pub(crate) layer: String,
    /// What makes it splittable, if anything does.
    pub(crate) advice: Option<&'static str>,
}

/// Whether a model mixes the samples of its batches: seen with two samples, or with one where two are too large.
pub(crate) fn mixing(source: &dyn Source, batch: usize) -> Result<Option<Mixing>, GraphError> {
    // As a batch of their own, for states that are carried have a row for each sample of the batch.
    let few = |samples| source.graph(Pass::Only, samples, samples, SavedActivations::Full);
    let graph = few(batch.min(2)).or_else(|_| few(1))?;
    Ok(mixes_samples(&graph).map(|node| {
        let node = graph.node(node);
        let layer = format!("layer `{}` ({}) mixes the samples of a batch", node.name, node.op.name());
        Mixing { layer, advice: node.op.split_advice() }
    }))
}

/// How a run could have fewer samples than the planner may give it; `None` where it had only one.
pub(crate) fn fewer_samples(request: &Request, mixing: Option<&Mixing>) -> Option<&'static str> {
    match request.micro_batches {
        _ if request.batch == 1 => None,
        _ if mixing.is_some() => Some("a smaller batch"),
        Some(count) if count < request.batch => Some("a smaller batch or more micro-batches"),
        _ => None,
    }
}

/// The first forward node that mixes samples, so that a split would change what the model computes. Nodes from which
/// only single numbers come are a loss or metrics, which are summed with weights.
pub(crate) fn mixes_samples(graph: &Graph) -> Option<NodeId> {
    // Values that the model goes on from, as opposed to those that only metrics and backward use.
    let mut goes_on = vec![false; graph.values().len()];
    let mut found = None;
    for id in (0..graph.nodes().len() as u32).rev().map(NodeId) {
        let node = graph.node(id);
        if node.phase != Phase::Forward {
            continue;
        }
        let tensor = |value: ValueId| graph.value(value).desc.numel() > 1;
        let statistic = |&input: &usize| {
            let value = node.inputs[input];
            tensor(value)
                && matches!(graph.value(graph.storage_root(value)).role, Role::State | Role::Buffer | Role::Parameter)
        };
        let read_back = |&value: &ValueId| tensor(value) && graph.value(value).role == Role::Output;
        let matters = node.outputs.iter().any(|output| goes_on[output.index()] || read_back(output))
            || node.op.mutates().iter().any(statistic);
        if matters && !node.op.flags().batch_separable {
            found = Some(id);
        }
        for &input in &node.inputs {
            goes_on[input.index()] |= matters || tensor(input);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_equal_with_a_shorter_last_one() {
        assert_eq!(split(256, 4), [64; 4]);
        assert_eq!(split(10, 4), [3, 3, 3, 1]);
        assert_eq!(split(10, 6), [2, 2, 2, 2, 1, 1]);
        assert_eq!(split(1, 1), [1]);
        for batch in 1..60 {
            for count in 1..=batch {
                let parts = split(batch, count);
                assert_eq!((parts.len(), parts.iter().sum::<usize>()), (count, batch));
                assert!(parts.iter().all(|&part| part > 0 && part <= parts[0]));
            }
        }
    }

    #[test]
    fn each_count_is_the_only_one_of_its_size() {
        assert_eq!(distinct_counts(1), [1]);
        assert_eq!(distinct_counts(10), [1, 2, 3, 4, 5, 10]);
        assert_eq!(distinct_counts(MOST_SAMPLES).last(), Some(&MOST));
        for batch in [7, 64, 256, 1000, 4096] {
            let counts = distinct_counts(batch);
            let sizes: Vec<_> = counts.iter().map(|&count| batch.div_ceil(count)).collect();
            assert!(sizes.windows(2).all(|pair| pair[1] < pair[0]), "{sizes:?}");
            assert!(counts.iter().zip(&sizes).all(|(&count, &size)| batch.div_ceil(size) == count));
            assert_eq!((counts[0], *counts.last().expect("a count")), (1, batch));
            let spread = spread(counts.len());
            assert!(spread.len() <= SPREAD + 2 && spread[0] == 0 && spread.contains(&(counts.len() - 1)));
        }
    }

    #[test]
    fn passes_follow_the_number_of_micro_batches() {
        assert_eq!(passes(1).collect::<Vec<_>>(), [Pass::Only]);
        assert_eq!(passes(2).collect::<Vec<_>>(), [Pass::First, Pass::Last]);
        assert_eq!(passes(4).collect::<Vec<_>>(), [Pass::First, Pass::Middle, Pass::Middle, Pass::Last]);
    }
}

//! Which tiles of matrix products are the quickest on a device.

use std::collections::{BTreeMap, BTreeSet};

use crate::device::Device;
use crate::error::{GraphError, TrainError};
use crate::exec::measure::{Stopwatch, Timing};
use crate::graph::{Graph, Pass};
use crate::nn::{Conv2d, Sequential};
use crate::ops::Target;
use crate::ops::stored::dispatches;
use crate::shader::{ProductKind, ProductSize, Tile, Tiles};
use crate::tensor::{NodeId, TensorDesc, ValueId};
use crate::train::settings::Config;

use super::calibrate::joint;

/// A tile is taken for a class of products only where it needs less than this share of the time of what the family takes by
/// itself: measurements differ by a few percent from one to the next.
const CLEARLY_QUICKER: f64 = 0.95;

/// How each choice came about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuned {
    /// What the products are for.
    pub kind: ProductKind,
    /// How many tiles they have, and of which shape.
    pub size: ProductSize,
    /// Nodes measured that have such products.
    pub nodes: usize,
    /// The tile that did best.
    pub best: Tile,
    /// Its time as a share of that of the usual tile, on average over the nodes.
    pub share: f64,
    /// Whether it is taken.
    pub taken: bool,
}

/// Measures the tiles of the device's own family on some products of each class.
pub(super) fn tune(device: &Device) -> Result<Vec<Tuned>, TrainError> {
    let usual = Target { tiles: Tiles::NONE, ..device.target() };
    let watch = Stopwatch::new(device, Timing { rounds: 5, ..Timing::default() })?;
    let candidates = usual.family.tiles();
    let graphs = graphs()?;
    let mut classes_of = Vec::new();
    let mut nodes: Vec<(&Graph, NodeId)> = Vec::new();
    let mut seen = BTreeSet::new();
    for (graph, node) in graphs.iter().flat_map(|graph| graph.node_ids().map(move |node| (graph, node))) {
        let classes = classes(graph, node, &usual, &candidates);
        let (inputs, outputs) = descs(graph, node);
        let mut is_new = || seen.insert(format!("{:?} {inputs:?} {outputs:?}", graph.node(node).op));
        if !classes.is_empty() && is_new() {
            classes_of.push(classes);
            nodes.push((graph, node));
        }
    }
    let targets: Vec<_> = std::iter::once(usual).chain(candidates.iter().map(|&tile| with_tile(usual, tile))).collect();
    // For each class the logarithms of the shares of each node, tile by tile.
    let mut shares: BTreeMap<(ProductKind, ProductSize), Vec<Vec<f64>>> = BTreeMap::new();
    for (classes, times) in classes_of.into_iter().zip(watch.times_as(&targets, &nodes)?) {
        let logs: Vec<_> = times[1..].iter().map(|time| (time / times[0]).ln()).collect();
        classes.into_iter().for_each(|class| shares.entry(class).or_default().push(logs.clone()));
    }
    Ok(shares.into_iter().filter_map(|((kind, size), logs)| choose(kind, size, &candidates, usual, &logs)).collect())
}

/// The tile of the least time on average, of those that such products can have.
fn choose(kind: ProductKind, size: ProductSize, tiles: &[Tile], usual: Target, logs: &[Vec<f64>]) -> Option<Tuned> {
    let mean = |i: usize| logs.iter().map(|log| log[i]).sum::<f64>() / logs.len() as f64;
    let fitting = (0..tiles.len()).filter(|&i| kind.fits(tiles[i], usual.family));
    let (best, log) = fitting.map(|i| (tiles[i], mean(i))).min_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(Tuned { kind, size, nodes: logs.len(), best, share: log.exp(), taken: log.exp() < CLEARLY_QUICKER })
}

/// What was chosen, as a device takes it.
pub(super) fn table(tuned: &[Tuned]) -> Tiles {
    let mut tiles = Tiles::NONE;
    tuned
        .iter()
        .filter(|choice| choice.taken)
        .for_each(|choice| tiles.set(choice.kind, choice.size, Some(choice.best)));
    tiles
}

fn with_tile(usual: Target, tile: Tile) -> Target {
    Target { tiles: Tiles::all(tile), ..usual }
}

/// The classes of a node's products: those whose tile changes its launches.
fn classes(graph: &Graph, node: NodeId, usual: &Target, tiles: &[Tile]) -> Vec<(ProductKind, ProductSize)> {
    let (inputs, outputs) = descs(graph, node);
    let launches = |target: &Target| dispatches(&*graph.node(node).op, &inputs, &outputs, target);
    let usually = launches(usual);
    if tiles.iter().all(|&tile| launches(&with_tile(*usual, tile)) == usually) {
        return Vec::new();
    }
    let all = ProductKind::ALL.into_iter().flat_map(|kind| ProductSize::ALL.map(|size| (kind, size)));
    let changes = |&(kind, size): &(ProductKind, ProductSize)| {
        tiles.iter().any(|&tile| {
            let mut tiles = Tiles::NONE;
            tiles.set(kind, size, Some(tile));
            launches(&Target { tiles, ..*usual }) != usually
        })
    };
    all.filter(changes).collect()
}

fn descs(graph: &Graph, node: NodeId) -> (Vec<TensorDesc>, Vec<TensorDesc>) {
    let of = |ids: &[ValueId]| ids.iter().map(|&id| graph.value(id).desc.clone()).collect();
    (of(&graph.node(node).inputs), of(&graph.node(node).outputs))
}

/// Graphs whose nodes have products of every class that training meets, a few of each.
fn graphs() -> Result<Vec<Graph>, GraphError> {
    let config = Config::default();
    let mut graphs = Vec::new();
    for (features, wide, samples) in [
        (256, 256, 64),
        (512, 128, 128),
        (512, 512, 512),
        (768, 512, 1024),
        (1024, 1024, 1024),
        (64, 64, 16_384),
        (1024, 2048, 512),
    ] {
        let model = Sequential::new("matrices", [features]).linear(features).linear(wide);
        graphs.push(joint(&model, &config, Pass::Only, samples)?);
    }
    for (channels, side, samples, conv) in [
        (32, 8, 8, Conv2d::new(64, 1)),
        (64, 16, 32, Conv2d::new(64, 1)),
        (64, 32, 16, Conv2d::new(64, 1)),
        (128, 32, 16, Conv2d::new(128, 1)),
        (64, 32, 8, Conv2d::new(128, 3).padding(1).stride(2)),
        (512, 8, 16, Conv2d::new(512, 1)),
        (256, 8, 16, Conv2d::new(512, 3).padding(1).stride(2)),
        (32, 8, 4, Conv2d::new(32, 3).padding(1)),
        (64, 28, 8, Conv2d::new(64, 3).padding(1)),
        (128, 16, 32, Conv2d::new(128, 3).padding(1)),
        (256, 8, 32, Conv2d::new(256, 3).padding(1)),
    ] {
        // The first convolution makes the second need a gradient of its input.
        let model = Sequential::new("conv", [channels, side, side]).push(Conv2d::new(channels, 1)).push(conv);
        graphs.push(joint(model.global_avg_pool().linear(10), &config, Pass::Only, samples)?);
    }
    Ok(graphs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shader::Family;

    #[test]
    fn products_of_every_class_are_measured() {
        let graphs = graphs().expect("builds");
        let usual = Target::new(Family::Workgroup);
        let tiles = usual.family.tiles();
        let nodes = graphs.iter().flat_map(|graph| graph.node_ids().map(move |node| (graph, node)));
        let found: BTreeSet<_> = nodes.flat_map(|(graph, node)| classes(graph, node, &usual, &tiles)).collect();
        for kind in ProductKind::ALL {
            for size in [ProductSize::Few, ProductSize::Medium, ProductSize::Large] {
                assert!(found.contains(&(kind, size)), "{kind:?} {size:?} is not in {found:?}");
            }
        }
    }

    #[test]
    fn only_what_is_clearly_quicker_is_taken() {
        let usual = Target::new(Family::Subgroup { size: 8 });
        let tiles = usual.family.tiles();
        let choice = |shares: &[[f64; 2]]| {
            let logs: Vec<_> = shares.iter().map(|of_node| of_node.map(f64::ln).to_vec()).collect();
            choose(ProductKind::Image, ProductSize::Few, &tiles, usual, &logs).expect("there are tiles")
        };
        let noise = choice(&[[1.0, 0.97], [1.01, 0.99]]);
        assert_eq!((noise.best, noise.taken, noise.nodes), (tiles[1], false, 2));
        assert!(table(&[noise]).is_empty());
        let quicker = choice(&[[0.8, 1.0], [0.9, 1.1]]);
        assert!((quicker.share - 0.72f64.sqrt()).abs() < 1e-9 && quicker.taken, "{quicker:?}");
        assert_eq!(table(&[noise, quicker]).get(ProductKind::Image, ProductSize::Few), Some(tiles[0]));
    }
}

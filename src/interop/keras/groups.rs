//! Where layers keep their arrays in HDF5: in `.weights.h5` by their classes, in Keras 2's `.h5` by their names.

use std::collections::BTreeMap;

use super::config::{corrupt, snake_case};
use super::hdf5::{Hdf5, NewHdf5};
use super::network::{Kind, Network, Node};
use super::value::Layer;
use super::weights::{Form, Slot};
use crate::error::ImportError;
use crate::interop::Weight;

/// Arrays of each layer, by the names from the outermost model on, in the order of `layer.weights`.
pub(super) type Arrays = BTreeMap<Vec<String>, Vec<Weight>>;

/// Names that the list of a model's layers had in Keras's versions.
const CONTAINERS: [&str; 3] = ["layers", "_layer_checkpoint_dependencies", "_functional/layers"];

fn join(base: &str, name: &str) -> String {
    if base.is_empty() { name.to_owned() } else { format!("{base}/{name}") }
}

/// The group of a layer's list by class: `dense`, `dense_1`.
struct Counted(BTreeMap<String, usize>);

impl Counted {
    fn name(&mut self, node: &Node) -> String {
        // Both are one in Keras.
        let class = if node.class == "Model" { "Functional" } else { &node.class };
        let name = snake_case(class);
        let count = self.0.entry(name.clone()).and_modify(|count| *count += 1).or_insert(0);
        if *count == 0 { name } else { format!("{name}_{count}") }
    }
}

/// Layers of a network with the names of their groups.
fn named(network: &Network) -> Vec<(String, &Node)> {
    let mut counted = Counted(BTreeMap::new());
    network.layers.iter().map(|node| (counted.name(node), node)).collect()
}

fn has_weights(node: &Node) -> bool {
    match &node.kind {
        Kind::Input => false,
        Kind::Layer(layer) => !layer.slots().is_empty(),
        Kind::Network(network) => network.layers.iter().any(has_weights),
    }
}

/// Arrays of a `.weights.h5`, whose model is in the group `base`.
pub(super) fn read(file: &Hdf5, network: &Network) -> Result<Arrays, ImportError> {
    let mut arrays = Arrays::new();
    read_network(file, network, "", &mut Vec::new(), &mut arrays)?;
    Ok(arrays)
}

fn read_network(
    file: &Hdf5,
    network: &Network,
    base: &str,
    path: &mut Vec<String>,
    arrays: &mut Arrays,
) -> Result<(), ImportError> {
    let container = CONTAINERS.iter().map(|name| join(base, name)).find(|name| file.has(name));
    let container = container.unwrap_or_else(|| join(base, "layers"));
    let mut groups: Vec<_> = named(network).into_iter().filter(|(_, node)| has_weights(node)).collect();
    // By class and number, as Keras does itself; else by the names that are kept beside the arrays, if all are there.
    if !groups.iter().all(|(group, _)| file.has(&join(&container, group))) {
        let kept: BTreeMap<_, _> = file
            .groups(&container)
            .into_iter()
            .filter_map(|group| Some((file.text(&join(&join(&container, &group), "vars"), "name")?, group)))
            .collect();
        if groups.iter().all(|(_, node)| kept.contains_key(&node.name)) {
            for (group, node) in &mut groups {
                group.clone_from(&kept[&node.name]);
            }
        }
    }
    for (group, node) in groups {
        path.push(node.name.clone());
        let at = join(&container, &group);
        match &node.kind {
            Kind::Input => {}
            Kind::Network(network) => read_network(file, network, &at, path, arrays)?,
            Kind::Layer(layer) => {
                let found =
                    layer.slots().iter().map(|slot| read_slot(file, &at, slot, node)).collect::<Result<_, _>>()?;
                arrays.insert(path.clone(), found);
            }
        }
        path.pop();
    }
    Ok(())
}

fn read_slot(file: &Hdf5, at: &str, slot: &Slot, node: &Node) -> Result<Weight, ImportError> {
    if let Form::Unused = slot.form {
        return Ok(Weight::new([], vec![0.0]).expect("bug: one number"));
    }
    let place = |group: &str| format!("{}/vars/{}", join(at, group), slot.index).replace("//", "/");
    let wanted = place(&slot.group);
    if let Some(array) = file.array(&wanted)? {
        return Ok(array);
    }
    // Keras 3.0 has `_query_dense` where later ones have `query_dense`.
    if !slot.group.is_empty()
        && let Some(array) = file.array(&place(&format!("_{}", slot.group)))?
    {
        return Ok(array);
    }
    Err(corrupt(
        file.path(),
        format!(
            "has no array `{}` for layer `{}` ({}): these are weights of another model",
            wanted.escape_debug(),
            node.name.escape_debug(),
            node.class.escape_debug()
        ),
    ))
}

/// Arrays of Keras 2's `.h5`, whose layers are groups of `base`.
pub(super) fn read_older(file: &Hdf5, base: &str, network: &Network) -> Result<Arrays, ImportError> {
    let mut arrays = Arrays::new();
    for node in network.layers.iter().filter(|node| has_weights(node)) {
        let group = join(base, &node.name);
        let wrong = |reason: String| {
            let (name, class) = (node.name.escape_debug(), node.class.escape_debug());
            corrupt(file.path(), format!("layer `{name}` ({class}) {reason}: these are weights of another model"))
        };
        let names = file.texts(&group, "weight_names").ok_or_else(|| wrong("has no weights".to_owned()))?;
        let mut slots = Vec::new();
        collect(node, &mut Vec::new(), true, &mut slots);
        // What is trained is first, then the rest.
        let (trained, fixed): (Vec<_>, Vec<_>) = (0..slots.len()).partition(|&i| slots[i].trained);
        if names.len() != slots.len() {
            return Err(wrong(format!("has {} arrays instead of {}", names.len(), slots.len())));
        }
        let mut found: Vec<Option<Weight>> = vec![None; slots.len()];
        for (name, i) in names.iter().zip(trained.into_iter().chain(fixed)) {
            found[i] = match slots[i].slot.form {
                Form::Unused => Weight::new([], vec![0.0]),
                _ => file.array(&join(&group, name))?,
            };
            if found[i].is_none() {
                return Err(wrong(format!("has no array `{}`", name.escape_debug())));
            }
        }
        for (slot, array) in slots.into_iter().zip(found) {
            arrays.entry(slot.path).or_default().extend(array);
        }
    }
    Ok(arrays)
}

/// A weight, and of which layer.
struct Found {
    path: Vec<String>,
    slot: Slot,
    trained: bool,
}

fn collect(node: &Node, path: &mut Vec<String>, trained: bool, slots: &mut Vec<Found>) {
    path.push(node.name.clone());
    let trained = trained && node.trainable;
    match &node.kind {
        Kind::Input => {}
        Kind::Layer(layer) => slots.extend(layer.slots().into_iter().map(|slot| {
            let trained = trained && slot.trainable;
            Found { path: path.clone(), slot, trained }
        })),
        Kind::Network(network) => {
            for node in &network.layers {
                collect(node, path, trained, slots);
            }
        }
    }
    path.pop();
}

/// A `.weights.h5` of these arrays.
pub(super) fn write(network: &Network, arrays: &Arrays) -> Result<Vec<u8>, ImportError> {
    let mut file = NewHdf5::default();
    write_network(&mut file, network, "", &mut Vec::new(), arrays)?;
    file.bytes()
}

fn write_network(
    file: &mut NewHdf5,
    network: &Network,
    base: &str,
    path: &mut Vec<String>,
    arrays: &Arrays,
) -> Result<(), ImportError> {
    file.text(&join(base, "vars"), "name", &network.name);
    for (group, node) in named(network) {
        path.push(node.name.clone());
        let at = join(&join(base, "layers"), &group);
        match &node.kind {
            Kind::Input => file.text(&join(&at, "vars"), "name", &node.name),
            Kind::Network(network) => write_network(file, network, &at, path, arrays)?,
            Kind::Layer(layer) => {
                file.text(&join(&at, "vars"), "name", &node.name);
                let given = arrays.get(path).map_or(&[][..], |arrays| &arrays[..]);
                write_layer(file, &at, &**layer, given)?;
            }
        }
        path.pop();
    }
    Ok(())
}

fn write_layer(file: &mut NewHdf5, at: &str, layer: &dyn Layer, arrays: &[Weight]) -> Result<(), ImportError> {
    for (slot, array) in layer.slots().iter().zip(arrays) {
        let place = format!("{}/vars/{}", join(at, &slot.group), slot.index).replace("//", "/");
        match slot.form {
            Form::Unused => file.count(&place, 0)?,
            _ => file.array(&place, array)?,
        }
    }
    Ok(())
}

//! Models from the JSON that Keras writes: its third version, and what the second wrote to `.h5`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Map, Value as Json};

use super::config::{Config, corrupt, shown};
use super::layers;
use super::network::{Entry, Kind, Network, Node, Operand, Source, Step};
use crate::error::ImportError;

/// Layers of a model, those of models within too, each time that they are applied: more are no model, but a trap.
const MOST_STEPS: usize = 100_000;

/// A model.
///
/// # Errors
/// Where it is none, or has something that is not there here.
pub(super) fn model(path: &Path, json: &Json) -> Result<Network, ImportError> {
    let object = json.as_object().ok_or_else(|| corrupt(path, "has no model: save it anew with Keras"))?;
    let network = network(path, object, None)?;
    if network.expanded() > MOST_STEPS {
        return Err(corrupt(path, format!("applies more than {MOST_STEPS} layers, models within models counted")));
    }
    Ok(network)
}

fn network(path: &Path, object: &Map<String, Json>, outer: Option<&str>) -> Result<Network, ImportError> {
    let class = object.get("class_name").and_then(Json::as_str).unwrap_or("nothing");
    let empty = Map::new();
    let fields = object.get("config").and_then(Json::as_object);
    let name = outer.or(fields.and_then(|fields| fields.get("name")?.as_str())).unwrap_or("model");
    let config = Config { path, name, class, fields: fields.unwrap_or(&empty) };
    let Some(list) = config.get("layers").and_then(Json::as_array) else {
        return Err(config.unsupported(
            "is no Functional or Sequential model: those of classes of one's own have their layers in Python code, which is not \
             run; build it of layers with keras.Model(inputs, outputs)",
        ));
    };
    let network = match class {
        "Sequential" => sequential(&config, object, list)?,
        // `Model` and `Functional` are one; what was derived from them has the same graph.
        _ if config.get("input_layers").is_some() => functional(&config, list)?,
        _ => {
            return Err(
                config.unsupported("is no Functional or Sequential model: build it with keras.Model(inputs, outputs)")
            );
        }
    };
    Ok(network)
}

/// One layer of a list.
struct Listed<'j> {
    config: Config<'j>,
    object: &'j Map<String, Json>,
}

impl<'j> Listed<'j> {
    fn of(model: &Config<'j>, json: &'j Json) -> Result<Self, ImportError> {
        let wrong =
            || model.unsupported(format!("has {} where a layer should be: save it anew with Keras", shown(json)));
        let object = json.as_object().ok_or_else(wrong)?;
        let class = object.get("class_name").and_then(Json::as_str).ok_or_else(wrong)?;
        let fields = object.get("config").and_then(Json::as_object).ok_or_else(wrong)?;
        let name = object.get("name").or(fields.get("name")).and_then(Json::as_str).ok_or_else(wrong)?;
        let config = Config { path: model.path, name, class, fields };
        if name.is_empty() || name.len() > 512 || name.chars().any(char::is_control) {
            return Err(config.unsupported("its name must have 1 to 512 characters that can be printed"));
        }
        Ok(Listed { config, object })
    }

    /// The shape of its samples, if the file says it.
    fn input(&self) -> Option<Vec<usize>> {
        let build = self.object.get("build_config");
        sample(build?.get("input_shape")?)
    }

    fn node(&self, input: Option<&[usize]>) -> Result<Node, ImportError> {
        let Config { name, class, .. } = self.config;
        let kind = match class {
            "InputLayer" => Kind::Input,
            "Functional" | "Sequential" | "Model" => Kind::Network(network(self.config.path, self.object, Some(name))?),
            _ => Kind::Layer(layers::parse(&self.config, input)?),
        };
        let trainable = self.config.bool("trainable", true)?;
        Ok(Node { name: name.to_owned(), class: class.to_owned(), trainable, kind })
    }

    /// What an input layer takes.
    fn entry(&self) -> Result<Entry, ImportError> {
        let config = &self.config;
        config.refuse("sparse", "make it dense")?;
        config.refuse("ragged", "pad the samples to one shape")?;
        config.refuse("optional", "give all inputs")?;
        let shape = config.get("batch_shape").or(config.get("batch_input_shape"));
        let Some(shape) = shape.and_then(sample) else {
            let found = shape.map_or_else(|| "nothing".to_owned(), shown);
            return Err(config.unsupported(format!(
                "takes {found}, and every extent but the batch's must be known: make the model anew with a fixed shape, load the \
                 weights into that, and save it"
            )));
        };
        Ok(Entry { name: config.name.to_owned(), shape, tokens: false })
    }
}

/// A shape without its batch.
fn sample(shape: &Json) -> Option<Vec<usize>> {
    let list = shape.as_array()?;
    let extents = list.get(1..)?.iter();
    let shape: Vec<_> = extents
        .map(|extent| extent.as_u64().filter(|extent| (1..=1 << 32).contains(extent)).map(|extent| extent as usize))
        .collect::<Option<_>>()?;
    (shape.len() <= 5).then_some(shape)
}

fn sequential(config: &Config<'_>, object: &Map<String, Json>, list: &[Json]) -> Result<Network, ImportError> {
    let mut inputs = Vec::new();
    let mut nodes: Vec<Node> = Vec::new();
    let mut steps = Vec::new();
    let mut last = Source::Input(0);
    let mut names = BTreeSet::new();
    for json in list {
        let listed = Listed::of(config, json)?;
        if listed.config.class == "InputLayer" {
            if !inputs.is_empty() || !nodes.is_empty() {
                return Err(listed.config.unsupported("stands behind other layers: use a Functional model"));
            }
            inputs.push(listed.entry()?);
            continue;
        }
        if inputs.is_empty() {
            // Of Keras 2, the first layer knows the shape; else the model.
            let shape = listed.config.get("batch_input_shape").or(listed.config.get("batch_shape"));
            let built = [
                object.get("build_config").and_then(|build| build.get("input_shape")),
                config.get("build_input_shape"),
                listed.object.get("build_config").and_then(|build| build.get("input_shape")),
            ];
            let shape = shape.into_iter().chain(built.into_iter().flatten()).find_map(sample);
            let shape = shape.or_else(|| first_entry(json));
            let Some(shape) = shape else {
                return Err(config.unsupported(
                    "has no input shape: put keras.Input(shape) first, with a length for every axis, and save it anew",
                ));
            };
            inputs.push(Entry { name: "input".to_owned(), shape, tokens: false });
        }
        if !names.insert(listed.config.name.to_owned()) {
            return Err(listed.config.unsupported("has a name that another layer has: give them different names"));
        }
        let node = listed.node(listed.input().as_deref())?;
        check_arity(&listed.config, &node, 1)?;
        let step = Step { layer: nodes.len(), again: false, operands: vec![Operand::Source(last)], causal: false };
        nodes.push(node);
        last = Source::Step(steps.len(), 0);
        steps.push(step);
    }
    if inputs.is_empty() {
        return Err(config.unsupported("has no layers: there is nothing to run"));
    }
    let name = nodes.last().map_or_else(|| "output".to_owned(), |node| node.name.clone());
    let mut network =
        Network { name: config.name.to_owned(), layers: nodes, inputs, steps, outputs: vec![(name, last)] };
    network.find_tokens();
    Ok(network)
}

/// The input of a model that is the first layer of another.
fn first_entry(json: &Json) -> Option<Vec<usize>> {
    let layers = json.get("config")?.get("layers")?.as_array()?;
    let entry = layers.iter().find(|layer| layer.get("class_name").and_then(Json::as_str) == Some("InputLayer"))?;
    let config = entry.get("config")?;
    sample(config.get("batch_shape").or(config.get("batch_input_shape"))?)
}

/// A tensor by the layer that makes it, which use of that, and which output.
type Reference = (String, usize, usize);

/// `["name", node, tensor]`, which may have settings behind it.
fn reference(json: &Json) -> Option<Reference> {
    let list = json.as_array()?;
    let name = list.first()?.as_str()?;
    let index = |place: usize| list.get(place)?.as_u64().and_then(|index| usize::try_from(index).ok());
    Some((name.to_owned(), index(1)?, index(2)?))
}

/// The references in lists and tables, however they are nested.
fn references(json: &Json, found: &mut Vec<Reference>) -> Option<()> {
    if let Some(reference) = reference(json) {
        found.push(reference);
        return Some(());
    }
    match json {
        Json::Array(list) => list.iter().try_for_each(|json| references(json, found)),
        Json::Object(object) => object.values().try_for_each(|json| references(json, found)),
        _ => None,
    }
}

/// One use of a layer, as it is written.
#[derive(Default)]
struct Use {
    operands: Vec<Result<Reference, f32>>,
    causal: bool,
}

impl Use {
    /// What stands for a tensor or a list of them.
    fn operands(&mut self, json: &Json, config: &Config<'_>) -> Result<(), ImportError> {
        let wrong = || config.unsupported(format!("takes {}, which is no tensor and no number", shown(json)));
        match json {
            Json::Array(list) => list.iter().try_for_each(|json| self.operands(json, config)),
            Json::Number(number) => {
                let number = number.as_f64().map(|number| number as f32).filter(|number| number.is_finite());
                self.operands.push(Err(number.ok_or_else(wrong)?));
                Ok(())
            }
            Json::Object(object) if object.get("class_name").and_then(Json::as_str) == Some("__keras_tensor__") => {
                let history = object.get("config").and_then(|config| config.get("keras_history"));
                self.operands.push(Ok(history.and_then(reference).ok_or_else(wrong)?));
                Ok(())
            }
            Json::Object(object) if !object.contains_key("class_name") => {
                object.values().try_for_each(|json| self.operands(json, config))
            }
            _ => Err(wrong()),
        }
    }

    /// What is given by name.
    fn keywords(&mut self, keywords: &Map<String, Json>, config: &Config<'_>) -> Result<(), ImportError> {
        for (key, value) in keywords {
            match (&**key, value) {
                ("training", _) | (_, Json::Bool(false)) => {}
                (_, value) if is_none(value) => {}
                ("use_causal_mask", Json::Bool(true)) if config.class == "MultiHeadAttention" => self.causal = true,
                // Below, in their order.
                ("query" | "value" | "key" | "inputs" | "x1" | "x2", _) => {}
                _ => {
                    let key: String = key.chars().take(40).collect();
                    return Err(config.unsupported(format!(
                        "is called with `{}` = {}, which is not supported: leave it out",
                        key.escape_debug(),
                        shown(value)
                    )));
                }
            }
        }
        for key in ["inputs", "x1", "x2", "query", "value", "key"] {
            if let Some(value) = keywords.get(key).filter(|value| !value.is_null()) {
                self.operands(value, config)?;
            }
        }
        Ok(())
    }

    /// Keras 3's `{"args", "kwargs"}`, or the second's `[["name", node, tensor, {…}], …]`.
    fn of(json: &Json, config: &Config<'_>) -> Result<Self, ImportError> {
        let mut made = Use::default();
        if let Some(object) = json.as_object() {
            for arg in object.get("args").and_then(Json::as_array).into_iter().flatten() {
                if !arg.is_null() {
                    made.operands(arg, config)?;
                }
            }
            if let Some(keywords) = object.get("kwargs").and_then(Json::as_object) {
                made.keywords(keywords, config)?;
            }
            return Ok(made);
        }
        let wrong = || config.unsupported(format!("is called with {}, which is no tensor", shown(json)));
        let list = json.as_array().ok_or_else(wrong)?;
        let list = if reference(json).is_some() { std::slice::from_ref(json) } else { &list[..] };
        for (place, json) in list.iter().enumerate() {
            made.operands.push(Ok(reference(json).ok_or_else(wrong)?));
            let keywords = json.as_array().and_then(|list| list.get(3)?.as_object());
            if let Some(keywords) = keywords.filter(|_| place == 0) {
                made.older_keywords(keywords, config)?;
            }
        }
        Ok(made)
    }

    /// Of Keras 2: tensors are references.
    fn older_keywords(&mut self, keywords: &Map<String, Json>, config: &Config<'_>) -> Result<(), ImportError> {
        let (tensors, others): (Vec<_>, Vec<_>) = keywords.iter().partition(|(_, value)| reference(value).is_some());
        let others = others.into_iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        self.keywords(&others, config)?;
        for key in ["query", "value", "key"] {
            if let Some((_, value)) = tensors.iter().find(|(name, _)| *name == key) {
                self.operands.extend(reference(value).map(Ok));
            }
        }
        match tensors.iter().find(|(name, _)| !matches!(&***name, "query" | "value" | "key")) {
            None => Ok(()),
            Some((name, _)) => Err(config.unsupported(format!(
                "is called with a tensor as `{}`, which is not supported: leave it out",
                name.escape_debug()
            ))),
        }
    }
}

/// Whether it is Python's `None`, or a list of that, such as the masks of several tensors.
fn is_none(value: &Json) -> bool {
    value.is_null() || value.as_array().is_some_and(|list| list.iter().all(Json::is_null))
}

/// A layer takes so many tensors.
fn check_arity(config: &Config<'_>, node: &Node, found: usize) -> Result<(), ImportError> {
    let (least, most) = match &node.kind {
        Kind::Input => (0, 0),
        Kind::Layer(layer) => layer.arity(),
        Kind::Network(network) => (network.inputs.len(), network.inputs.len()),
    };
    if (least..=most).contains(&found) {
        return Ok(());
    }
    let expected = if least == most { format!("{least}") } else { format!("{least} or more") };
    let advice = if found > most && most == 1 { ": initial states and masks are not supported" } else { "" };
    Err(config.unsupported(format!("is called with {found} tensors, and takes {expected}{advice}")))
}

fn functional(config: &Config<'_>, list: &[Json]) -> Result<Network, ImportError> {
    let ends = |key: &str| -> Result<Vec<Reference>, ImportError> {
        let mut found = Vec::new();
        let wrong = || config.unsupported(format!("its `{key}` are no list of tensors: save it anew with Keras"));
        config.get(key).and_then(|json| references(json, &mut found)).ok_or_else(wrong)?;
        if found.is_empty() { Err(wrong()) } else { Ok(found) }
    };
    let (entries, exits) = (ends("input_layers")?, ends("output_layers")?);

    // Layers, and where each is used.
    let mut nodes = Vec::with_capacity(list.len());
    let mut listed = Vec::with_capacity(list.len());
    let mut places = BTreeMap::new();
    for json in list {
        let layer = Listed::of(config, json)?;
        if places.insert(layer.config.name.to_owned(), nodes.len()).is_some() {
            return Err(layer.config.unsupported("has a name that another layer has: give them different names"));
        }
        nodes.push(layer.node(layer.input().as_deref())?);
        listed.push(layer);
    }
    let mut inputs = Vec::new();
    let mut known: BTreeMap<(usize, usize), Source> = BTreeMap::new();
    for (name, _, _) in &entries {
        let place = places.get(name).copied().filter(|&place| matches!(nodes[place].kind, Kind::Input));
        let Some(place) = place else {
            return Err(config.unsupported(format!("begins with `{}`, which is no input layer", name.escape_debug())));
        };
        known.insert((place, 0), Source::Input(inputs.len()));
        inputs.push(listed[place].entry()?);
    }

    let keeps: Vec<bool> = nodes
        .iter()
        .map(|node| match &node.kind {
            Kind::Input => false,
            Kind::Layer(layer) => layer.keeps(),
            Kind::Network(network) => network.keeps(),
        })
        .collect();
    let mut uses = Vec::new();
    for (place, layer) in listed.iter().enumerate() {
        let found = layer.object.get("inbound_nodes").and_then(Json::as_array);
        for (number, json) in found.into_iter().flatten().enumerate() {
            let found = Use::of(json, &layer.config)?;
            check_arity(&layer.config, &nodes[place], found.operands.len())?;
            let takes_numbers = matches!(&nodes[place].kind, Kind::Layer(layer) if layer.takes_numbers());
            if !takes_numbers && found.operands.iter().any(Result::is_err) {
                return Err(layer.config.unsupported("is called with a number where a tensor should be"));
            }
            let tensors = found.operands.iter().filter(|operand| operand.is_ok()).count();
            if tensors == 0 {
                return Err(layer
                    .config
                    .unsupported("is called with numbers alone, and there is nothing to apply it to"));
            }
            if number > 0 && keeps[place] {
                return Err(layer.config.unsupported(
                    "is applied at several places, and keeps statistics or states, which cannot be those of all: use a layer for each",
                ));
            }
            uses.push(((place, number), found));
        }
    }
    let steps = order(config, &nodes, &places, &mut known, &uses, inputs.len())?;
    let resolve = |(name, node, output): &Reference| -> Result<(String, Source), ImportError> {
        let place = places.get(name).copied();
        let source = place.and_then(|place| output_of(&nodes, &known, (place, *node), *output));
        source.map(|source| (name.clone(), source)).ok_or_else(|| {
            config.unsupported(format!(
                "ends with output {output} of use {node} of `{}`, which is not there",
                name.escape_debug()
            ))
        })
    };
    let outputs = exits.iter().map(resolve).collect::<Result<Vec<_>, _>>()?;
    let name = config.name.to_owned();
    let mut network = Network { name, layers: nodes, inputs, steps, outputs };
    network.find_tokens();
    Ok(network)
}

/// An output of a use of a layer.
fn output_of(
    nodes: &[Node],
    known: &BTreeMap<(usize, usize), Source>,
    of: (usize, usize),
    output: usize,
) -> Option<Source> {
    let outputs = match &nodes[of.0].kind {
        Kind::Network(network) => network.outputs.len(),
        _ => 1,
    };
    match *known.get(&of)? {
        _ if output >= outputs => None,
        Source::Step(step, _) => Some(Source::Step(step, output)),
        input => Some(input),
    }
}

/// Puts all uses of layers behind those that they take something from.
fn order(
    config: &Config<'_>,
    nodes: &[Node],
    places: &BTreeMap<String, usize>,
    known: &mut BTreeMap<(usize, usize), Source>,
    uses: &[((usize, usize), Use)],
    inputs: usize,
) -> Result<Vec<Step>, ImportError> {
    // Who waits for whom, and for how many each waits.
    let index: BTreeMap<_, _> = uses.iter().enumerate().map(|(i, (of, _))| (*of, i)).collect();
    let mut waiting: Vec<Vec<usize>> = vec![Vec::new(); uses.len()];
    let mut missing = vec![0usize; uses.len()];
    for (i, (of, found)) in uses.iter().enumerate() {
        for (name, node, _) in found.operands.iter().flatten() {
            let source = places.get(name).map(|&place| (place, *node));
            let is_input = source.is_some_and(|source| known.contains_key(&source));
            match source.and_then(|source| index.get(&source)) {
                Some(&other) => {
                    waiting[other].push(i);
                    missing[i] += 1;
                }
                None if is_input => {}
                None => {
                    return Err(config.unsupported(format!(
                        "layer `{}` takes use {node} of `{}`, which is not there: save the model anew with Keras",
                        nodes[of.0].name.escape_debug(),
                        name.escape_debug()
                    )));
                }
            }
        }
    }
    let mut ready: BTreeSet<usize> = (0..uses.len()).filter(|&i| missing[i] == 0).collect();
    let mut steps: Vec<Step> = Vec::with_capacity(uses.len());
    let mut applied = vec![false; nodes.len()];
    while let Some(i) = ready.pop_first() {
        let ((place, number), found) = &uses[i];
        let mut operands = Vec::with_capacity(found.operands.len());
        for operand in &found.operands {
            operands.push(match operand {
                Err(number) => Operand::Number(*number),
                Ok((name, node, output)) => {
                    let source = output_of(nodes, known, (places[name], *node), *output).ok_or_else(|| {
                        config.unsupported(format!(
                            "layer `{}` takes output {output} of `{}`, which has fewer",
                            nodes[*place].name.escape_debug(),
                            name.escape_debug()
                        ))
                    })?;
                    Operand::Source(source)
                }
            });
        }
        known.insert((*place, *number), Source::Step(steps.len(), 0));
        steps.push(Step { layer: *place, again: applied[*place], operands, causal: found.causal });
        applied[*place] = true;
        for &other in &waiting[i] {
            missing[other] -= 1;
            if missing[other] == 0 {
                ready.insert(other);
            }
        }
    }
    debug_assert!(inputs > 0, "bug: a model without inputs");
    match steps.len() == uses.len() {
        true => Ok(steps),
        false => {
            Err(config.unsupported("has layers that wait for one another in a circle: save the model anew with Keras"))
        }
    }
}

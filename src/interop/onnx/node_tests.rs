//! The tests of single operators that come with ONNX: where `TIGHTFIT_ONNX_NODES` names a folder of them, such as
//! `tests/golden/onnx/node_tests.py` makes, each is read, run with the ops' references, and compared.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use prost::Message as _;

use super::constant::{Constant, Data, decode};
use super::ir::{self, Input};
use super::proto::{self, element};
use super::walk::{self, Record};
use super::{Model, Weights, patterns, weights_of};
use crate::graph::Graph;
use crate::nn::{Built, Mode};
use crate::ops::{self, Call, run_twin};
use crate::tensor::{DType, ValueId};

/// Operators whose inputs besides the first are settings, which must be known.
const SETTINGS: [&str; 7] = ["Clip", "Dropout", "Pad", "Pow", "Range", "Resize", "Upsample"];

/// What `input` becomes, which is the name of a model's first input.
const RENAMED: &str = "given input";

/// Operators of which the first output is there alone.
const OF_ONE_OUTPUT: [&str; 2] = ["LayerNormalization", "MaxPool"];

/// How a test ended.
enum Ended {
    Passed,
    /// Not there, and said so.
    Refused(String),
    Wrong(String),
}

fn tensor(path: &Path) -> Option<(proto::Tensor, Constant)> {
    let tensor = proto::Tensor::decode(&std::fs::read(path).ok()?[..]).ok()?;
    let constant = decode(&tensor, None).ok()?;
    Some((tensor, constant))
}

/// Values of all tensors of a graph, by what its inputs are.
fn run(graph: &Graph, given: &HashMap<ValueId, Vec<f32>>) -> HashMap<ValueId, Vec<f32>> {
    let mut reals = given.clone();
    let mut ints: HashMap<ValueId, Vec<u32>> = HashMap::new();
    for (&value, numbers) in given {
        if graph.value(value).desc.dtype == DType::U32 {
            ints.insert(value, numbers.iter().map(|&number| number as u32).collect());
        }
    }
    for node in graph.nodes() {
        let descs =
            |values: &[ValueId]| values.iter().map(|&value| graph.value(value).desc.clone()).collect::<Vec<_>>();
        let (input_descs, output_descs) = (descs(&node.inputs), descs(&node.outputs));
        let mut made: Vec<(Vec<f32>, Vec<u32>)> =
            output_descs.iter().map(|desc| (vec![0.0; desc.numel()], vec![0; desc.numel()])).collect();
        let inputs = node.inputs.iter().zip(&input_descs).map(|(input, desc)| match desc.dtype {
            DType::U32 => ops::Input::Int(&ints[input]),
            _ => ops::Input::Real(&reals[input]),
        });
        let inputs = inputs.collect();
        let outputs = made.iter_mut().zip(&output_descs).map(|((real, int), desc)| match desc.dtype {
            DType::U32 => ops::Output::Int(int),
            _ => ops::Output::Real(real),
        });
        let outputs = outputs.collect();
        let mut call =
            Call { input_descs: &input_descs, output_descs: &output_descs, inputs, outputs, mutated: Vec::new() };
        run_twin(&*node.op, &mut call);
        drop(call);
        for (&output, (real, int)) in node.outputs.iter().zip(made) {
            reals.insert(output, real);
            ints.insert(output, int);
        }
    }
    reals
}

/// Numbers of 16 bits are not rounded to these here.
fn close(found: &[f32], expected: &[f32], kind: i32) -> bool {
    let relative = if kind == element::BFLOAT16 { 1e-2 } else { 1e-3 };
    let is_near = |a: f32, b: f32| (a - b).abs() <= 1e-5 + relative * b.abs();
    let alike = |(&a, &b): (&f32, &f32)| a == b || (a.is_nan() && b.is_nan()) || is_near(a, b);
    found.len() == expected.len() && found.iter().zip(expected).all(alike)
}

fn test(folder: &Path) -> Ended {
    let refused = |reason: String| Ended::Refused(reason);
    let Ok(bytes) = std::fs::read(folder.join("model.onnx")) else { return refused("no model".to_owned()) };
    let Ok(mut model) = proto::Model::decode(&bytes[..]) else { return Ended::Wrong("cannot be decoded".to_owned()) };
    let data = folder.join("test_data_set_0");
    let file = model.graph.as_mut().expect("a graph");
    let has_settings = file.node.iter().any(|node| SETTINGS.contains(&node.op_type()));
    // What is not of numbers must be known before.
    let mut given = BTreeMap::new();
    let mut inputs = Vec::new();
    for (index, info) in std::mem::take(&mut file.input).into_iter().enumerate() {
        let name = info.name.clone().unwrap_or_default();
        let Some((mut tensor, constant)) = tensor(&data.join(format!("input_{index}.pb"))) else {
            return refused("an input is no tensor of numbers".to_owned());
        };
        if matches!(constant.data, Data::Floats(_)) && !(has_settings && index > 0) {
            given.insert(name, constant.to_floats());
            inputs.push(info);
        } else {
            tensor.name = Some(name);
            file.initializer.push(tensor);
        }
    }
    file.input = inputs;
    if file.node.iter().any(|node| OF_ONE_OUTPUT.contains(&node.op_type())) {
        file.output.truncate(1);
        file.node.iter_mut().for_each(|node| node.output.truncate(1));
    }
    let outputs = file.output.len();
    let mut graph = match ir::check(model, None) {
        Ok(graph) => graph,
        Err(wrong) => return refused(wrong.reason),
    };
    patterns::apply(&mut graph);
    graph.any_outputs = true;
    graph.batch = Some(1);
    // A first input that nothing reads, so that all others have the shapes of the file.
    for name in &mut graph.names {
        if name == "input" {
            *name = RENAMED.to_owned();
        }
    }
    if let Some(values) = given.remove("input") {
        given.insert(RENAMED.to_owned(), values);
    }
    graph.names.push("samples".to_owned());
    let unread =
        Input { value: graph.names.len() - 1, kind: element::FLOAT, shape: vec![Some(1); 2], batch_name: None };
    graph.inputs.insert(0, unread);
    let mut values = std::mem::take(&mut graph.weights);
    let (record, graph) = (Arc::new(Mutex::new(Record::default())), Arc::new(graph));
    let (walked, noted) = (graph.clone(), record.clone());
    let model = Model::new("node", [1], move |x| walk::forward(&walked, x, Some(&noted)));
    let built = model.build(1, Mode::Evaluate);
    let record = std::mem::take(&mut *record.lock().unwrap_or_else(PoisonError::into_inner));
    let built = match (record.wrong.as_ref(), built) {
        (Some(wrong), _) => return refused(wrong.reason.clone()),
        (None, Err(error)) => return refused(error.to_string()),
        (None, Ok(built)) => built,
    };
    let weights = weights_of(record, &mut values);
    compare(&built, &weights, &given, &data, outputs)
}

fn compare(built: &Built, weights: &Weights, given: &BTreeMap<String, Vec<f32>>, data: &Path, outputs: usize) -> Ended {
    let mut values = HashMap::new();
    for value in built.graph.value_ids().filter(|&value| built.graph.value(value).producer.is_none()) {
        let name = &built.graph.value(value).name;
        let known = given.get(name).cloned().or_else(|| Some(weights.get(name)?.values().to_vec()));
        values.insert(value, known.unwrap_or_else(|| vec![0.0; built.graph.value(value).desc.numel()]));
    }
    let values = run(&built.graph, &values);
    let made = std::iter::once(built.output).chain(built.outputs.iter().map(|(_, value)| *value));
    for (index, value) in made.enumerate().take(outputs) {
        let Some((written, expected)) = tensor(&data.join(format!("output_{index}.pb"))) else {
            return Ended::Refused("an output is no tensor of numbers".to_owned());
        };
        let expected = expected.to_floats();
        if !close(&values[&value], &expected, written.data_type()) {
            let found = &values[&value];
            return Ended::Wrong(format!(
                "output {index}: {:?} for {:?}",
                &found[..found.len().min(6)],
                &expected[..expected.len().min(6)]
            ));
        }
    }
    Ended::Passed
}

#[test]
fn nodes_compute_what_onnx_says() {
    let Some(folder) = std::env::var_os("TIGHTFIT_ONNX_NODES") else {
        eprintln!("skipped: TIGHTFIT_ONNX_NODES names no folder of node tests");
        return;
    };
    let mut folders: Vec<_> =
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    folders.sort();
    let mut counts: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    let (mut wrong, mut reasons) = (Vec::new(), String::new());
    // Dropout that drops draws its own numbers.
    let is_drawn = |folder: &&std::path::PathBuf| folder.to_string_lossy().contains("training_dropout");
    for folder in folders.iter().filter(|folder| folder.join("model.onnx").exists() && !is_drawn(folder)) {
        let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        let bytes = std::fs::read(folder.join("model.onnx")).expect("reads");
        let operator = proto::Model::decode(&bytes[..])
            .ok()
            .and_then(|model| model.graph)
            .and_then(|graph| graph.node.iter().rev().find_map(|node| node.op_type.clone()));
        let count = counts.entry(operator.unwrap_or_default()).or_default();
        let ended = catch_unwind(AssertUnwindSafe(|| test(folder)));
        match ended.unwrap_or_else(|_| Ended::Wrong("panicked".to_owned())) {
            Ended::Passed => count[0] += 1,
            Ended::Refused(reason) => {
                count[1] += 1;
                let _ = writeln!(reasons, "{name}: {reason}");
            }
            Ended::Wrong(reason) => wrong.push(format!("{name}: {reason}")),
        }
    }
    println!("{reasons}\n| operator | passed | not there |\n|---|---|---|");
    for (operator, [passed, refused]) in &counts {
        println!("| {operator} | {passed} | {refused} |");
    }
    let sum = |i: usize| counts.values().map(|count| count[i]).sum::<usize>();
    println!("| all | {} | {} |", sum(0), sum(1));
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(sum(0) > 200, "{} passed", sum(0));
}

/// Numbers of a file of values, by their names.
fn golden(value: &serde_json::Value) -> (Vec<usize>, Vec<f32>) {
    let list = |name: &str| value[name].as_array().expect("a list").iter();
    let shape = list("shape").map(|extent| extent.as_u64().expect("an extent") as usize).collect();
    (shape, list("values").map(|number| number.as_f64().expect("a number") as f32).collect())
}

#[test]
fn references_compute_what_pytorch_does() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/onnx");
    let mut wrong = Vec::new();
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "onnx") {
            continue;
        }
        count += 1;
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let values = folder.join(format!("{}.json", name.split('.').next().expect("a name")));
        let values: serde_json::Value = serde_json::from_slice(&std::fs::read(values).expect("reads")).expect("values");
        let ((shape, input), (_, output)) = (golden(&values["input"]), golden(&values["output"]));
        let imported = match super::read(&path) {
            Ok(imported) => imported,
            Err(error) => {
                wrong.push(error.to_string());
                continue;
            }
        };
        let built = imported.model.build(shape[0], Mode::Evaluate).expect("builds");
        let mut given = HashMap::from([(built.input, input)]);
        for tensor in built.parameters.iter().chain(&built.buffers) {
            given.insert(tensor.value, imported.weights.get(&tensor.name).expect("its weight").values().to_vec());
        }
        let found = &run(&built.graph, &given)[&built.output];
        let most = found.iter().zip(&output).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        if found.len() != output.len() || most > 1e-4 {
            wrong.push(format!("{name}: {} and {} values, {most} apart", found.len(), output.len()));
        }
    }
    assert!(count >= 8 && wrong.is_empty(), "{} of {count}: {wrong:#?}", wrong.len());
}

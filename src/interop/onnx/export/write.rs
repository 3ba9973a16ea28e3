//! A graph as the bytes of a file.

use prost::Message as _;

use super::{Tensor, Written};
use crate::interop::onnx::constant::{Constant, Data};
use crate::interop::onnx::proto::{self, AttributeType, Extent, element};
use crate::ops::onnx::{Attribute, Node};
use crate::tensor::DType;

/// Bytes that a message of protobuf may have.
const MAX_BYTES: usize = i32::MAX as usize;

pub(super) fn encode(name: &str, written: &Written, opset: i64) -> Result<Vec<u8>, String> {
    let initializers = written.tensors.used(&written.graph.nodes);
    let graph = proto::Graph {
        node: written.graph.nodes.iter().map(node).collect(),
        name: Some(name.to_owned()),
        initializer: initializers.into_iter().map(|(name, constant)| initializer(name, constant)).collect(),
        input: written.inputs.iter().map(info).collect(),
        output: written.outputs.iter().map(info).collect(),
        sparse_initializer: Vec::new(),
    };
    let model = proto::Model {
        // The version of the format that came with the opset.
        ir_version: Some(match opset {
            ..=18 => 8,
            19 | 20 => 9,
            _ => 10,
        }),
        producer_name: Some("tightfit".to_owned()),
        producer_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        graph: Some(graph),
        opset_import: vec![proto::OperatorSet { domain: Some(String::new()), version: Some(opset) }],
        functions: Vec::new(),
    };
    if model.encoded_len() > MAX_BYTES {
        return Err("the model is larger than 2 GiB, which a file of this format cannot be".to_owned());
    }
    Ok(model.encode_to_vec())
}

fn node(node: &Node) -> proto::Node {
    let mut input = node.inputs.clone();
    while input.last().is_some_and(String::is_empty) {
        input.pop();
    }
    let mut output = node.outputs.clone();
    while output.last().is_some_and(String::is_empty) {
        output.pop();
    }
    let first = output.iter().find(|output| !output.is_empty());
    proto::Node {
        name: first.cloned(),
        input,
        output,
        op_type: Some(node.operator.to_owned()),
        attribute: node.attributes.iter().map(|(name, value)| attribute(name, value)).collect(),
        domain: None,
        overload: None,
    }
}

fn attribute(name: &str, value: &Attribute) -> proto::Attribute {
    let of = |kind: AttributeType| proto::Attribute {
        name: Some(name.to_owned()),
        r#type: Some(kind as i32),
        ..proto::Attribute::default()
    };
    match value {
        Attribute::Int(value) => proto::Attribute { i: Some(*value), ..of(AttributeType::Int) },
        Attribute::Float(value) => proto::Attribute { f: Some(*value), ..of(AttributeType::Float) },
        Attribute::Text(value) => proto::Attribute { s: Some(value.as_bytes().to_vec()), ..of(AttributeType::String) },
        Attribute::Ints(values) => proto::Attribute { ints: values.clone(), ..of(AttributeType::Ints) },
        Attribute::Texts(values) => {
            let strings = values.iter().map(|value| value.as_bytes().to_vec()).collect();
            proto::Attribute { strings, ..of(AttributeType::Strings) }
        }
    }
}

fn initializer(name: &str, constant: &Constant) -> proto::Tensor {
    let (kind, raw): (i32, Vec<u8>) = match &constant.data {
        Data::Floats(_) | Data::Filled(..) => {
            (element::FLOAT, constant.to_floats().iter().flat_map(|value| value.to_le_bytes()).collect())
        }
        Data::Ints(values) => (element::INT64, values.iter().flat_map(|value| value.to_le_bytes()).collect()),
        Data::Bools(values) => (element::BOOL, values.iter().map(|&value| u8::from(value)).collect()),
    };
    proto::Tensor {
        dims: constant.shape.iter().map(|&extent| extent as i64).collect(),
        data_type: Some(kind),
        name: Some(name.to_owned()),
        raw_data: Some(raw),
        ..proto::Tensor::default()
    }
}

fn info(tensor: &Tensor) -> proto::ValueInfo {
    let kind = match tensor.dtype {
        DType::U32 => element::INT64,
        DType::U8 => element::UINT8,
        DType::F32 | DType::F16 | DType::BF16 => element::FLOAT,
    };
    let extent = |(axis, extent): (usize, &Result<usize, bool>)| match extent {
        Ok(extent) => Extent::Value(*extent as i64),
        Err(true) => Extent::Param("batch".to_owned()),
        Err(false) => Extent::Param(format!("{}_{axis}", tensor.name)),
    };
    let dims = tensor.extents.iter().enumerate().map(|at| proto::Dimension { value: Some(extent(at)) });
    let of = proto::TensorType { elem_type: Some(kind), shape: Some(proto::Shape { dim: dims.collect() }) };
    proto::ValueInfo { name: Some(tensor.name.clone()), r#type: Some(proto::Type { tensor_type: Some(of) }) }
}

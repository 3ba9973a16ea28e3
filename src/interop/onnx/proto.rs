//! The messages of `onnx.proto` that are read or written, by their field numbers there. What is not named here is skipped.
//!
//! Source: <https://github.com/onnx/onnx/blob/main/onnx/onnx.proto>

use prost::{Enumeration, Message, Oneof};

/// A file.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Model {
    #[prost(int64, optional, tag = "1")]
    pub(super) ir_version: Option<i64>,
    #[prost(string, optional, tag = "2")]
    pub(super) producer_name: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub(super) producer_version: Option<String>,
    #[prost(message, optional, tag = "7")]
    pub(super) graph: Option<Graph>,
    #[prost(message, repeated, tag = "8")]
    pub(super) opset_import: Vec<OperatorSet>,
    #[prost(message, repeated, tag = "25")]
    pub(super) functions: Vec<Function>,
}

/// Which version of the operators of a domain is meant.
#[derive(Clone, PartialEq, Message)]
pub(super) struct OperatorSet {
    #[prost(string, optional, tag = "1")]
    pub(super) domain: Option<String>,
    #[prost(int64, optional, tag = "2")]
    pub(super) version: Option<i64>,
}

/// Nodes and the tensors between them.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Graph {
    #[prost(message, repeated, tag = "1")]
    pub(super) node: Vec<Node>,
    #[prost(string, optional, tag = "2")]
    pub(super) name: Option<String>,
    #[prost(message, repeated, tag = "5")]
    pub(super) initializer: Vec<Tensor>,
    #[prost(message, repeated, tag = "11")]
    pub(super) input: Vec<ValueInfo>,
    #[prost(message, repeated, tag = "12")]
    pub(super) output: Vec<ValueInfo>,
    #[prost(message, repeated, tag = "15")]
    pub(super) sparse_initializer: Vec<SparseTensor>,
}

/// A tensor of few elements that are not 0: only that there is one is read.
#[derive(Clone, PartialEq, Message)]
pub(super) struct SparseTensor {
    #[prost(int64, repeated, tag = "3")]
    pub(super) dims: Vec<i64>,
}

/// One use of an operator.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Node {
    #[prost(string, repeated, tag = "1")]
    pub(super) input: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub(super) output: Vec<String>,
    #[prost(string, optional, tag = "3")]
    pub(super) name: Option<String>,
    #[prost(string, optional, tag = "4")]
    pub(super) op_type: Option<String>,
    #[prost(message, repeated, tag = "5")]
    pub(super) attribute: Vec<Attribute>,
    #[prost(string, optional, tag = "7")]
    pub(super) domain: Option<String>,
    #[prost(string, optional, tag = "8")]
    pub(super) overload: Option<String>,
}

/// A setting of a node.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Attribute {
    #[prost(string, optional, tag = "1")]
    pub(super) name: Option<String>,
    #[prost(float, optional, tag = "2")]
    pub(super) f: Option<f32>,
    #[prost(int64, optional, tag = "3")]
    pub(super) i: Option<i64>,
    #[prost(bytes = "vec", optional, tag = "4")]
    pub(super) s: Option<Vec<u8>>,
    #[prost(message, optional, tag = "5")]
    pub(super) t: Option<Tensor>,
    #[prost(message, optional, boxed, tag = "6")]
    pub(super) g: Option<Box<Graph>>,
    #[prost(float, repeated, packed = "false", tag = "7")]
    pub(super) floats: Vec<f32>,
    #[prost(int64, repeated, packed = "false", tag = "8")]
    pub(super) ints: Vec<i64>,
    #[prost(bytes = "vec", repeated, tag = "9")]
    pub(super) strings: Vec<Vec<u8>>,
    #[prost(enumeration = "AttributeType", optional, tag = "20")]
    pub(super) r#type: Option<i32>,
    #[prost(string, optional, tag = "21")]
    pub(super) ref_attr_name: Option<String>,
}

/// Which field of an attribute is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(super) enum AttributeType {
    Undefined = 0,
    Float = 1,
    Int = 2,
    String = 3,
    Tensor = 4,
    Graph = 5,
    Floats = 6,
    Ints = 7,
    Strings = 8,
}

/// A tensor with its values.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Tensor {
    #[prost(int64, repeated, packed = "false", tag = "1")]
    pub(super) dims: Vec<i64>,
    #[prost(int32, optional, tag = "2")]
    pub(super) data_type: Option<i32>,
    #[prost(float, repeated, tag = "4")]
    pub(super) float_data: Vec<f32>,
    #[prost(int32, repeated, tag = "5")]
    pub(super) int32_data: Vec<i32>,
    #[prost(int64, repeated, tag = "7")]
    pub(super) int64_data: Vec<i64>,
    #[prost(string, optional, tag = "8")]
    pub(super) name: Option<String>,
    #[prost(bytes = "vec", optional, tag = "9")]
    pub(super) raw_data: Option<Vec<u8>>,
    #[prost(double, repeated, tag = "10")]
    pub(super) double_data: Vec<f64>,
    #[prost(uint64, repeated, tag = "11")]
    pub(super) uint64_data: Vec<u64>,
    #[prost(message, repeated, tag = "13")]
    pub(super) external_data: Vec<Entry>,
    /// 1 where the values are in another file.
    #[prost(int32, optional, tag = "14")]
    pub(super) data_location: Option<i32>,
}

/// A setting by name.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Entry {
    #[prost(string, optional, tag = "1")]
    pub(super) key: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(super) value: Option<String>,
}

/// The type of an input or output.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ValueInfo {
    #[prost(string, optional, tag = "1")]
    pub(super) name: Option<String>,
    #[prost(message, optional, tag = "2")]
    pub(super) r#type: Option<Type>,
}

/// A type; only those of tensors are known.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Type {
    #[prost(message, optional, tag = "1")]
    pub(super) tensor_type: Option<TensorType>,
}

/// Element type and extents.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TensorType {
    #[prost(int32, optional, tag = "1")]
    pub(super) elem_type: Option<i32>,
    #[prost(message, optional, tag = "2")]
    pub(super) shape: Option<Shape>,
}

/// Extents.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Shape {
    #[prost(message, repeated, tag = "1")]
    pub(super) dim: Vec<Dimension>,
}

/// One extent.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Dimension {
    #[prost(oneof = "Extent", tags = "1, 2")]
    pub(super) value: Option<Extent>,
}

/// A number, or the name of one that is free.
#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Extent {
    #[prost(int64, tag = "1")]
    Value(i64),
    #[prost(string, tag = "2")]
    Param(String),
}

/// An operator that is made of others.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Function {
    #[prost(string, optional, tag = "1")]
    pub(super) name: Option<String>,
    #[prost(string, repeated, tag = "4")]
    pub(super) input: Vec<String>,
    #[prost(string, repeated, tag = "5")]
    pub(super) output: Vec<String>,
    #[prost(message, repeated, tag = "7")]
    pub(super) node: Vec<Node>,
    #[prost(message, repeated, tag = "9")]
    pub(super) opset_import: Vec<OperatorSet>,
    #[prost(string, optional, tag = "10")]
    pub(super) domain: Option<String>,
    #[prost(message, repeated, tag = "11")]
    pub(super) attribute_proto: Vec<Attribute>,
    #[prost(string, optional, tag = "13")]
    pub(super) overload: Option<String>,
}

/// Types of elements, by their numbers in files.
pub(super) mod element {
    pub(in crate::interop::onnx) const FLOAT: i32 = 1;
    pub(in crate::interop::onnx) const UINT8: i32 = 2;
    pub(in crate::interop::onnx) const INT8: i32 = 3;
    pub(in crate::interop::onnx) const UINT16: i32 = 4;
    pub(in crate::interop::onnx) const INT16: i32 = 5;
    pub(in crate::interop::onnx) const INT32: i32 = 6;
    pub(in crate::interop::onnx) const INT64: i32 = 7;
    pub(in crate::interop::onnx) const STRING: i32 = 8;
    pub(in crate::interop::onnx) const BOOL: i32 = 9;
    pub(in crate::interop::onnx) const FLOAT16: i32 = 10;
    pub(in crate::interop::onnx) const DOUBLE: i32 = 11;
    pub(in crate::interop::onnx) const UINT32: i32 = 12;
    pub(in crate::interop::onnx) const UINT64: i32 = 13;
    pub(in crate::interop::onnx) const BFLOAT16: i32 = 16;

    /// The name of one in messages.
    pub(in crate::interop::onnx) fn name(element: i32) -> String {
        let known = match element {
            FLOAT => "float",
            UINT8 => "uint8",
            INT8 => "int8",
            UINT16 => "uint16",
            INT16 => "int16",
            INT32 => "int32",
            INT64 => "int64",
            STRING => "string",
            BOOL => "bool",
            FLOAT16 => "float16",
            DOUBLE => "double",
            UINT32 => "uint32",
            UINT64 => "uint64",
            BFLOAT16 => "bfloat16",
            _ => return format!("type {element}"),
        };
        known.to_owned()
    }
}

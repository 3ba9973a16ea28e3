//! Which operators there are, and what of them: one entry each.

mod conv;
mod elementwise;
mod linear;
mod moves;
mod norm;
mod pool;
mod recurrent;
mod reduce;
mod resize;

use super::call::{Call, Made};
use crate::error::nearest;

/// An operator of ONNX.
pub(super) struct Operator {
    pub(super) name: &'static str,
    /// What is there of it, in words.
    pub(super) support: &'static str,
    run: fn(&mut Call<'_, '_, '_>) -> Made,
}

macro_rules! operators {
    ($($name:ident: $support:literal => $run:path;)*) => {
        /// All operators, by name.
        pub(super) const OPERATORS: &[Operator] =
            &[$(Operator { name: stringify!($name), support: $support, run: $run }),*];
    };
}

operators! {
    Abs: "" => elementwise::unary;
    Add: "" => elementwise::pair;
    And: "" => elementwise::logic;
    ArgMax: "of known values" => known_only;
    AveragePool: "one to three axes without dilation" => pool::average;
    BatchNormalization: "trains with the statistics of the batch, whatever training_mode says" => norm::batch;
    Cast: "of indices to numbers, among floats, and to bool" => elementwise::cast;
    CastLike: "as Cast" => elementwise::cast;
    Clip: "bounds known before the model runs" => elementwise::clip;
    Concat: "" => moves::concat;
    Constant: "numbers and whole numbers" => known_only;
    ConstantOfShape: "of known shapes" => known_only;
    Conv: "one and two axes" => conv::conv;
    ConvTranspose: "one and two axes" => conv::transposed;
    Cos: "" => elementwise::unary;
    Div: "" => elementwise::pair;
    Dropout: "" => moves::dropout;
    Elu: "" => elementwise::unary;
    Equal: "" => elementwise::compare;
    Erf: "within GELU, and of known values" => elementwise::erf;
    Exp: "" => elementwise::unary;
    Expand: "" => moves::expand;
    Flatten: "" => moves::flatten;
    GRU: "linear_before_reset = 1, the usual activations, sequences of one length" => recurrent::gru;
    Gather: "indices known before the model runs, or rows of a matrix by indices that are an input" => moves::gather;
    Gelu: "" => elementwise::gelu;
    Gemm: "" => linear::gemm;
    GlobalAveragePool: "" => pool::global_average;
    GlobalMaxPool: "" => pool::global_max;
    Greater: "" => elementwise::compare;
    GreaterOrEqual: "" => elementwise::compare;
    GroupNormalization: "" => norm::group;
    HardSigmoid: "" => elementwise::unary;
    HardSwish: "" => elementwise::unary;
    Identity: "" => moves::identity;
    InstanceNormalization: "" => norm::instance;
    LRN: "of images, an odd size" => norm::local_response;
    LSTM: "without peepholes, the usual activations, sequences of one length" => recurrent::lstm;
    LayerNormalization: "output 0; over the last axes" => norm::layer;
    LeakyRelu: "" => elementwise::unary;
    Less: "" => elementwise::compare;
    LessOrEqual: "" => elementwise::compare;
    Log: "" => elementwise::unary;
    LogSoftmax: "" => reduce::softmax;
    MatMul: "" => linear::matmul;
    Max: "" => elementwise::pair;
    MaxPool: "one to three axes without dilation; output 0" => pool::max;
    Mean: "" => elementwise::mean;
    Min: "" => elementwise::pair;
    Mish: "" => elementwise::unary;
    Mod: "of known values" => known_only;
    Mul: "" => elementwise::pair;
    Neg: "" => elementwise::unary;
    NonZero: "of known values" => known_only;
    Not: "" => elementwise::not;
    Or: "" => elementwise::logic;
    PRelu: "one slope, or one for each channel" => elementwise::prelu;
    Pad: "constant; sizes known before the model runs" => moves::pad;
    Pow: "an exponent known before the model runs" => elementwise::power;
    RMSNormalization: "over the last axes" => norm::root_mean_square;
    RNN: "Tanh or Relu, sequences of one length" => recurrent::rnn;
    Range: "of known numbers" => known_only;
    Reciprocal: "" => elementwise::unary;
    ReduceL1: "" => reduce::reduce;
    ReduceL2: "" => reduce::reduce;
    ReduceLogSum: "" => reduce::reduce;
    ReduceLogSumExp: "" => reduce::reduce;
    ReduceMax: "" => reduce::reduce;
    ReduceMean: "" => reduce::reduce;
    ReduceMin: "" => reduce::reduce;
    ReduceProd: "of known values" => known_only;
    ReduceSum: "" => reduce::reduce;
    ReduceSumSquare: "" => reduce::reduce;
    Relu: "" => elementwise::unary;
    Reshape: "a shape known before the model runs" => moves::reshape;
    Resize: "nearest by whole factors, linear; of images, larger or as large" => resize::resize;
    Selu: "" => elementwise::unary;
    Shape: "" => known_only;
    Sigmoid: "" => elementwise::unary;
    Sign: "" => elementwise::unary;
    Sin: "" => elementwise::unary;
    Size: "" => known_only;
    Slice: "steps of 1, or -1 over a whole axis; places known before the model runs" => moves::slice;
    Softmax: "" => reduce::softmax;
    Softplus: "" => elementwise::unary;
    Softsign: "" => elementwise::unary;
    Split: "lengths known before the model runs" => moves::split;
    Sqrt: "" => elementwise::unary;
    Squeeze: "" => moves::squeeze;
    Sub: "" => elementwise::pair;
    Sum: "" => elementwise::pair;
    Swish: "" => elementwise::unary;
    Tan: "" => elementwise::unary;
    Tanh: "" => elementwise::unary;
    ThresholdedRelu: "" => elementwise::unary;
    Tile: "repeats known before the model runs" => moves::tile;
    Transpose: "" => moves::transpose;
    Trilu: "of known values" => known_only;
    Unsqueeze: "" => moves::unsqueeze;
    Upsample: "as Resize" => resize::resize;
    Where: "" => elementwise::select;
    Xor: "" => elementwise::logic;
}

/// Makes ops of a node.
pub(super) fn run(call: &mut Call<'_, '_, '_>) -> Made {
    if !call.node.domain.is_empty() {
        return call
            .refuse(format!("there are no operators of the domain `{}` here", super::ir::shown(&call.node.domain)));
    }
    match OPERATORS.iter().find(|operator| operator.name == call.node.operator) {
        Some(operator) => (operator.run)(call),
        None => {
            let similar = nearest(&call.node.operator, OPERATORS.iter().map(|operator| operator.name)).first().copied();
            let advice = similar.map_or(String::new(), |similar| format!(", but `{similar}` is"));
            call.refuse(format!("the operator is not there{advice}: docs/onnx.md lists those that are"))
        }
    }
}

fn known_only(call: &mut Call<'_, '_, '_>) -> Made {
    call.refuse("this operator is there of values that are known before the model runs only")
}

/// The operators as a table of Markdown.
pub(super) fn table() -> String {
    let rows = OPERATORS.iter().map(|operator| format!("| {} | {} |\n", operator.name, operator.support));
    format!("| operator | what is there of it, where that is not all |\n|---|---|\n{}", rows.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_stand_in_order_and_in_the_documentation() {
        assert!(OPERATORS.is_sorted_by_key(|operator| operator.name), "by name, as in ASCII");
        assert!(include_str!("../../../../docs/onnx.md").contains(&table()), "docs/onnx.md: write the table anew");
    }
}

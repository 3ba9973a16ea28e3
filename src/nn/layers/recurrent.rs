//! LSTM, GRU and simple recurrent layers: stacks of recurrent ops over segments of time.

mod build;

use serde::{Deserialize, Serialize};

use super::linear::yes;
use crate::ops::recurrent::gru::GruCell;
use crate::ops::recurrent::lstm::LstmCell;
use crate::ops::recurrent::rnn::RnnCell;
use crate::ops::recurrent::rnn_relu::RnnReluCell;

/// Long short-term memory over samples `[time, features]`: see [`Recurrent`].
///
/// ```
/// use tightfit::nn::{Lstm, Sequential};
///
/// let model = Sequential::new("series", [1000, 8])
///     .push(Lstm::new(64).num_layers(2).dropout(0.2).window(200))
///     .linear(1);
/// assert_eq!(model.output_shape()?[..], [1]);
/// # Ok::<(), tightfit::error::GraphError>(())
/// ```
pub type Lstm = Recurrent<LstmCell>;

/// Gated recurrent units over samples `[time, features]`: see [`Recurrent`].
pub type Gru = Recurrent<GruCell>;

/// A simple recurrent layer with tanh over samples `[time, features]`: see [`Recurrent`].
pub type Rnn = Recurrent<RnnCell>;

/// A simple recurrent layer with a ReLU over samples `[time, features]`: see [`Recurrent`].
pub type RnnRelu = Recurrent<RnnReluCell>;

/// A recurrent layer over samples `[time, features]`, in steps of [`Lstm`](crate::ops::recurrent::lstm::Lstm),
/// [`Gru`](crate::ops::recurrent::gru::Gru), [`Rnn`](crate::ops::recurrent::rnn::Rnn) or
/// [`RnnRelu`](crate::ops::recurrent::rnn_relu::RnnRelu), from states of zeros.
///
/// The output is the last hidden state `[hidden]`, or with [`return_sequences`](Recurrent::return_sequences) all of them,
/// `[time, hidden]`; twice as wide if [`bidirectional`](Recurrent::bidirectional).
///
/// Parameters as PyTorch names them, of layer k: `weight_ih_lk [G·hidden, features]`, `weight_hh_lk [G·hidden, hidden]`,
/// `bias_ih_lk` and `bias_hh_lk [G·hidden]`, and the same with `_reverse` for the other direction, all uniform over
/// ±1/√hidden. An LSTM has G = 4 gates in the order i, f, g, o, a GRU G = 3 in the order r, z, n, a simple layer G = 1.
///
/// **Memory.** A sequence of 80 steps or more runs in segments of about √time steps, and of 40 at least, the layers of a stack
/// taking turns, so that a tight budget needs what backward reads of a few segments only and the others run again. How a sequence
/// is cut depends on its length alone: the numbers are the same under every budget.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, bound(serialize = "", deserialize = "C: Default"))]
pub struct Recurrent<C> {
    #[serde(skip)]
    cell: C,
    hidden: usize,
    #[serde(default = "one")]
    num_layers: usize,
    #[serde(default)]
    bidirectional: bool,
    #[serde(default)]
    dropout: f32,
    #[serde(default)]
    return_sequences: bool,
    #[serde(default)]
    lengths: bool,
    #[serde(default)]
    stateful: bool,
    #[serde(default)]
    window: Option<usize>,
    #[serde(default)]
    unit_forget_bias: bool,
    #[serde(default)]
    orthogonal: bool,
    #[serde(default = "yes")]
    bias: bool,
    #[serde(default = "yes")]
    recurrent_bias: bool,
}

fn one() -> usize {
    1
}

impl<C: Default> Recurrent<C> {
    /// One layer of this many hidden units; the output is the last hidden state.
    pub fn new(hidden: usize) -> Self {
        Recurrent {
            cell: C::default(),
            hidden,
            num_layers: 1,
            bidirectional: false,
            dropout: 0.0,
            return_sequences: false,
            lengths: false,
            stateful: false,
            window: None,
            unit_forget_bias: false,
            orthogonal: false,
            bias: true,
            recurrent_bias: true,
        }
    }

    /// Layers on top of each other, each over the hidden states of the one below (1 by default).
    #[must_use]
    pub fn num_layers(mut self, num_layers: usize) -> Self {
        self.num_layers = num_layers;
        self
    }

    /// Whether each layer runs in both directions of time (no by default). Its hidden states are those of the forward
    /// direction followed by those of the other.
    #[must_use]
    pub fn bidirectional(mut self, bidirectional: bool) -> Self {
        self.bidirectional = bidirectional;
        self
    }

    /// Probability of zeros in what each layer but the last hands on, in training (0 by default).
    #[must_use]
    pub fn dropout(mut self, p: f32) -> Self {
        self.dropout = p;
        self
    }

    /// Whether the hidden states of all time steps are the output (no by default).
    #[must_use]
    pub fn return_sequences(mut self, return_sequences: bool) -> Self {
        self.return_sequences = return_sequences;
        self
    }

    /// Whether samples are of different lengths (no by default), as in PyTorch's packed sequences: the model takes a second
    /// input `lengths`, one u32 for each sample. Hidden states beyond are zeros, and the last one is that of the last step.
    #[must_use]
    pub fn lengths(mut self, lengths: bool) -> Self {
        self.lengths = lengths;
        self
    }

    /// Whether a batch begins with the states that the one before ended with (no by default), as in Keras: sample i goes on
    /// from sample i. No gradient goes from batch to batch. See [`Trainer::fit`](crate::train::Trainer::fit) and
    /// [`Trainer::reset_state`](crate::train::Trainer::reset_state).
    #[must_use]
    pub fn stateful(mut self, stateful: bool) -> Self {
        self.stateful = stateful;
        self
    }

    /// Truncated backpropagation through time: no gradient goes through states from one window of so many steps to the one
    /// before, as with PyTorch's `detach` every so many steps.
    #[must_use]
    pub fn window(mut self, steps: usize) -> Self {
        self.window = Some(steps);
        self
    }

    /// Whether recurrent weights start as an orthogonal matrix, as in Keras (no by default).
    #[must_use]
    pub fn orthogonal(mut self, orthogonal: bool) -> Self {
        self.orthogonal = orthogonal;
        self
    }

    /// Whether there are biases (yes by default).
    #[must_use]
    pub fn bias(mut self, bias: bool) -> Self {
        self.bias = bias;
        self
    }

    /// Whether the products with the states have a bias of their own, `bias_hh` (yes by default, as in PyTorch). Keras's LSTM and
    /// simple layer have one bias: without this one they learn as there.
    #[must_use]
    pub fn recurrent_bias(mut self, recurrent_bias: bool) -> Self {
        self.recurrent_bias = recurrent_bias;
        self
    }
}

impl Lstm {
    /// Whether the bias of the forget gate starts at 1, as in Keras, so that cells keep what they have at first (no by
    /// default).
    #[must_use]
    pub fn unit_forget_bias(mut self, unit_forget_bias: bool) -> Self {
        self.unit_forget_bias = unit_forget_bias;
        self
    }
}

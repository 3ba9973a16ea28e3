use serde::{Deserialize, Serialize};

use super::{Init, Module, Scope};
use crate::error::GraphError;
use crate::ops::lstm;
use crate::tensor::ValueId;

/// Long short-term memory over samples `[time, features]`, starting from a state of zeros.
///
/// The output is the last hidden state `[hidden]`, or with `return_sequences` all of them, `[time, hidden]`.
///
/// Parameters as PyTorch names them, gates in the order i, f, g, o: `weight_ih_l0 [4·hidden, features]`,
/// `weight_hh_l0 [4·hidden, hidden]`, `bias_ih_l0` and `bias_hh_l0 [4·hidden]`, all uniform over ±1/√hidden.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lstm {
    hidden: usize,
    #[serde(default)]
    return_sequences: bool,
}

impl Lstm {
    /// This many hidden units; the output is the last hidden state.
    pub fn new(hidden: usize) -> Self {
        Lstm { hidden, return_sequences: false }
    }

    /// Whether the hidden states of all time steps are the output (no by default).
    #[must_use]
    pub fn return_sequences(mut self, return_sequences: bool) -> Self {
        self.return_sequences = return_sequences;
        self
    }
}

impl Module for Lstm {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        scope.check_setting("hidden", self.hidden, 1)?;
        let shape = scope.shape(input);
        let [_, _, features] = shape[..] else {
            return Err(scope.wrong_input("a sample of shape [time, features]", &shape, "put reshape before it"));
        };
        let init = Init::fan_in(self.hidden);
        let gates = 4 * self.hidden;
        let weight_ih = scope.parameter("weight_ih_l0", [gates, features], init)?;
        let weight_hh = scope.parameter("weight_hh_l0", [gates, self.hidden], init)?;
        let bias_ih = scope.parameter("bias_ih_l0", [gates], init)?;
        let bias_hh = scope.parameter("bias_hh_l0", [gates], init)?;
        let op = lstm::Lstm::new(self.hidden);
        let outputs = scope.apply_all(op, &[input, weight_ih, weight_hh, bias_ih, bias_hh])?;
        Ok(outputs[usize::from(!self.return_sequences)])
    }
}

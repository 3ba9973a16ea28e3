//! Recurrent layers over a time axis.

pub(in crate::ops) mod cell;

ops! {
    gru,
    lstm,
    rnn,
    rnn_relu,
    state,
}

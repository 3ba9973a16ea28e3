//! Models of sequences.

use crate::nn::{
    Embedding, Input, LayerNorm, Linear, Lstm, Model, MultiheadAttention, PositionalEmbedding, Scheme, Tensor,
};

/// Characters that the built-in models of text know: those of ASCII that print, and the line feed.
pub const CHARACTERS: usize = 96;

/// Two LSTM layers of `hidden` units over `length` steps of a series; the last state gives the next `outputs` values.
pub fn lstm_forecaster(length: usize, hidden: usize, outputs: usize) -> Model {
    Model::new("lstm_forecaster", [length, 1], move |x| {
        x.layer("lstm", Lstm::new(hidden).num_layers(2)).layer("head", Linear::new(outputs))
    })
}

/// Two LSTM layers of 256 units over `length` characters of a vocabulary of so many; each state gives logits for the next character.
pub fn char_lstm(length: usize, characters: usize) -> Model {
    Model::new("char_lstm", Input::tokens([length]), move |x| {
        let x = x.layer("embedding", Embedding::new(characters, 64));
        let x = x.layer("lstm", Lstm::new(256).num_layers(2).return_sequences(true));
        x.layer("head", Linear::new(characters))
    })
}

/// A small transformer over up to `length` characters of a vocabulary of so many, in the manner of GPT-2: four blocks of four heads, 128 wide, norms
/// before attention and before the two linear layers. Each position gives logits for the next character.
pub fn gpt(length: usize, characters: usize) -> Model {
    const WIDTH: usize = 128;
    Model::new("gpt", Input::tokens([length]), move |x| {
        let x = x.layer("wte", Embedding::new(characters, WIDTH).std(0.02));
        let x = x.layer("wpe", PositionalEmbedding::new(length).std(0.02));
        let x = x.within("h", |x| (0..4).fold(x, |x, i| x.within(&i.to_string(), |x| transformer_block(x, WIDTH))));
        let x = x.layer("ln_f", LayerNorm::new());
        x.layer("head", Linear::new(characters).bias(false).init(Scheme::Gpt))
    })
}

fn transformer_block(x: Tensor<'_>, width: usize) -> Tensor<'_> {
    let y = x.layer("ln_1", LayerNorm::new());
    let x = x + y.layer("attn", MultiheadAttention::new(4).causal(true));
    let y = x.layer("ln_2", LayerNorm::new());
    let linear = |features| Linear::new(features).init(Scheme::Gpt);
    x + y.within("mlp", |y| y.layer("0", linear(4 * width)).gelu().layer("2", linear(width)))
}

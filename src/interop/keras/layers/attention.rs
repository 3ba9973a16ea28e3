//! Attention.

use super::core::rate;
use crate::error::ImportError;
use crate::interop::keras::config::Config;
use crate::interop::keras::value::{Call, Layer, Value, permute, reshape};
use crate::interop::keras::weights::{Form, Slot};
use crate::nn::{Linear, Scheme, scaled_dot_product_attention};

/// Query, value and key are projected for each head, and what the heads make together is projected again.
#[derive(Debug)]
struct MultiHead {
    heads: usize,
    key_size: usize,
    value_size: usize,
    dropout: f32,
    bias: bool,
    /// Features of the output; those of the query where there is none.
    output: Option<usize>,
}

impl Layer for MultiHead {
    fn apply<'a>(&self, call: &Call<'_, 'a>) -> Value<'a> {
        let query = call.inputs[0].keras();
        let value = call.inputs[1].keras();
        let key = call.inputs.get(2).map_or(value, |key| key.keras());
        let shapes = [query, key, value].map(|tensor| tensor.shape().to_vec());
        if shapes.iter().any(|shape| shape.len() != 3) || shapes[1][1] != shapes[2][1] {
            return call.fail(
                "needs a query, a value and a key of samples [time, features], of which value and key are as long"
                    .to_owned(),
            );
        }
        let (queries, keys) = (shapes[0][1], shapes[1][1]);
        if call.causal && queries != keys {
            return call.fail(format!("has a causal mask of {queries} queries and {keys} keys: they must be as many"));
        }
        let project = |tensor, part: &str, size: usize| {
            let linear = Linear::new(self.heads.saturating_mul(size)).bias(self.bias).init(Scheme::XavierUniform);
            let projected: crate::nn::Tensor<'a> = call.part(tensor, part, linear);
            let shape = vec![projected.extent(0), projected.extent(1), self.heads, projected.extent(2) / self.heads];
            permute(reshape(projected, shape), vec![0, 2, 1, 3])
        };
        let key = project(key, "key", self.key_size);
        let value = project(value, "value", self.value_size);
        let query = project(query, "query", self.key_size);
        let attended = query.within(call.name, |query| {
            let attended = scaled_dot_product_attention(query, key, value, call.causal, self.dropout);
            let attended = permute(attended, vec![0, 2, 1, 3]);
            reshape(attended, vec![shapes[0][0], queries, attended.extent(2) * attended.extent(3)])
        });
        let output = Linear::new(self.output.unwrap_or(shapes[0][2])).bias(self.bias).init(Scheme::XavierUniform);
        Value::plain(call.part(attended, "attention_output", output))
    }

    fn slots(&self) -> Vec<Slot> {
        let mut slots = Vec::new();
        for part in ["query", "key", "value"] {
            let name = |what: &str| format!("{part}.{what}");
            let group = format!("{part}_dense");
            slots.push(Slot::new(0, Form::ToHeads { name: name("weight"), heads: self.heads }).in_group(&group));
            if self.bias {
                slots.push(Slot::new(1, Form::HeadsBias { name: name("bias"), heads: self.heads }).in_group(&group));
            }
        }
        let name = |what: &str| format!("attention_output.{what}");
        slots.push(Slot::new(0, Form::OfHeads { name: name("weight"), heads: self.heads }).in_group("output_dense"));
        if self.bias {
            slots.push(Slot::new(1, Form::same(name("bias"))).in_group("output_dense"));
        }
        slots
    }

    fn arity(&self) -> (usize, usize) {
        (2, 3)
    }
}

/// A layer of these classes, if it is one.
pub(super) fn parse(config: &Config<'_>, input: Option<&[usize]>) -> Result<Option<Box<dyn Layer>>, ImportError> {
    if config.class != "MultiHeadAttention" {
        return Ok(None);
    }
    config.refuse("use_gate", "use attention without a gate")?;
    config.refuse("sliding_window", "use attention over all places")?;
    if config.get("attention_axes").is_some() && config.axes("attention_axes", 1)?[..] != [1] {
        return Err(config.unsupported("`attention_axes` must be 1, the axis of time"));
    }
    let heads = config.count("num_heads")?;
    let key_size = config.count("key_dim")?;
    let value_size = config.count_or("value_dim", key_size)?;
    if [heads, key_size, value_size].iter().any(|count| !(1..=1 << 24).contains(count)) {
        return Err(config.unsupported("`num_heads`, `key_dim` and `value_dim` must be at least 1"));
    }
    let output = match config.get("output_shape") {
        None => None,
        Some(_) => Some(config.counts("output_shape", 1)?[0]),
    };
    if input.is_some_and(|input| input.len() != 2) {
        return Err(config.unsupported("takes samples [time, features] alone"));
    }
    let dropout = rate(config, "dropout")?;
    let bias = config.bool("use_bias", true)?;
    Ok(Some(Box::new(MultiHead { heads, key_size, value_size, dropout, bias, output })))
}

//! Recurrent layers. Files mostly have time first; here the batch is, and axes change places where both meet.

use super::moves::{join, split_into};
use crate::error::GraphError;
use crate::interop::onnx::call::{Call, Made, Part};
use crate::interop::onnx::walk::{Dense, Kind, Value};
use crate::nn::Init;
use crate::ops::recurrent::gru::GruCell;
use crate::ops::recurrent::lstm::LstmCell;
use crate::ops::recurrent::rnn::RnnCell;
use crate::ops::recurrent::rnn_relu::RnnReluCell;
use crate::ops::shape::flip::Flip;
use crate::ops::{Cell, Recurrent};

/// The axis of time.
const TIME: usize = 1;

pub(super) fn lstm(call: &mut Call<'_, '_, '_>) -> Made {
    activations(call, &["Sigmoid", "Tanh", "Tanh"])?;
    if call.node.int("input_forget").unwrap_or(0) != 0 {
        return call.refuse("input_forget = 1 is not there");
    }
    if call.has(7) && call.constant(7).and_then(|constant| constant.uniform()) != Some(0.0) {
        return call.refuse("peepholes are not there");
    }
    // i, o, f, c in files; i, f, g, o here.
    run::<LstmCell>(call, &[0, 2, 3, 1])
}

pub(super) fn gru(call: &mut Call<'_, '_, '_>) -> Made {
    activations(call, &["Sigmoid", "Tanh"])?;
    if call.node.int("linear_before_reset").unwrap_or(0) == 0 {
        return call.refuse("linear_before_reset = 0 is not there: export it from a framework that resets after the product, such as PyTorch");
    }
    // z, r, h in files; r, z, n here.
    run::<GruCell>(call, &[1, 0, 2])
}

pub(super) fn rnn(call: &mut Call<'_, '_, '_>) -> Made {
    let names = names(call);
    match names.first().map(String::as_str) {
        Some("relu") if names.iter().all(|name| name == "relu") => run::<RnnReluCell>(call, &[0]),
        _ => {
            activations(call, &["Tanh"])?;
            run::<RnnCell>(call, &[0])
        }
    }
}

/// Names of activations, in small letters.
fn names(call: &Call<'_, '_, '_>) -> Vec<String> {
    call.node.texts("activations").unwrap_or_default().iter().map(|name| name.to_lowercase()).collect()
}

/// The activations are the usual ones.
fn activations(call: &Call<'_, '_, '_>, usual: &[&str]) -> Result<(), GraphError> {
    let names = names(call);
    let is_usual = names.iter().zip(usual.iter().cycle()).all(|(name, usual)| *name == usual.to_lowercase());
    if !is_usual {
        return call.refuse(format!(
            "its activations must be {}, found {}",
            usual.join(", "),
            names.join(", ").escape_debug()
        ));
    }
    if call.node.float("clip").is_some() {
        return call.refuse("clip is not there");
    }
    Ok(())
}

/// A weight of one direction with its gates in the order of here: block `order[i]` of the file's is block i.
fn gates(call: &mut Call<'_, '_, '_>, weight: &Dense, order: &[usize]) -> Result<Dense, GraphError> {
    if order.len() == 1 {
        return Ok(weight.clone());
    }
    let length = weight.shape[0] / order.len();
    let blocks = split_into(call, weight, 0, vec![length; order.len()])?;
    let ordered = order.iter().map(|&block| blocks[block].clone()).collect();
    join(call, ordered, 0)
}

/// The parts of a weight `[directions, …]`.
fn directions(call: &mut Call<'_, '_, '_>, weight: &Dense, count: usize) -> Result<Vec<Dense>, GraphError> {
    let parts = split_into(call, weight, 0, vec![1; count])?;
    parts.into_iter().map(|part| call.reshaped(&part, &part.shape[1..])).collect()
}

fn run<C: Cell>(call: &mut Call<'_, '_, '_>, order: &[usize]) -> Made {
    let batch_first = call.node.int("layout").unwrap_or(0) != 0;
    let own = call.shape(0)?;
    let (Ok([a, b, features]), of_weight) = (<[usize; 3]>::try_from(own), call.shape(2)?) else {
        return call.refuse("it takes sequences [time, batch, features]");
    };
    let (time, samples) = if batch_first { (b, a) } else { (a, b) };
    let ([count, rows, hidden], true) = (&of_weight[..], of_weight.len() == 3) else {
        return call
            .refuse(format!("its recurrent weights of shape {of_weight:?} are not [directions, gates, hidden]"));
    };
    let (count, hidden) = (*count, *hidden);
    let direction = call.node.text("direction").unwrap_or("forward").to_owned();
    let reverse: &[bool] = match &direction[..] {
        "forward" => &[false],
        "reverse" => &[true],
        "bidirectional" => &[false, true],
        other => return call.refuse(format!("direction = `{}` is not known", other.escape_debug())),
    };
    let sums = order.len().saturating_mul(hidden);
    let fits = *rows == sums && count == reverse.len() && call.shape(1)? == [count, sums, features];
    if !fits || (call.has(3) && call.shape(3)? != [count, 2 * sums]) {
        return call.refuse(format!(
            "its weights do not go together: {:?} and {of_weight:?} over {features} features",
            call.shape(1)?
        ));
    }
    if call.has(4) {
        let all = call.constant(4).is_some_and(|lengths| lengths.uniform() == Some(time as f32));
        if !all {
            return call.refuse("sequence_lens is there only where all sequences are as long as the longest");
        }
    }
    let uniform = Part::Trained(Init::fan_in(hidden));
    let input = if batch_first { call.numbers(0)? } else { call.tensor_permuted(0, &[1, 0, 2])? };
    let (weight_ih, weight_hh) = (call.weight(1, uniform)?, call.weight(2, uniform)?);
    let (weights_ih, weights_hh) = (directions(call, &weight_ih, count)?, directions(call, &weight_hh, count)?);
    let biases = if call.has(3) {
        let bias = call.weight(3, uniform)?;
        Some(directions(call, &bias, count)?)
    } else {
        None
    };
    let mut initial = Vec::new();
    for index in (5..).take(C::STATES.len()) {
        initial.push(states(call, index, [samples, count, hidden], batch_first)?);
    }
    let has_initial = initial.iter().any(Option::is_some);

    let (mut steps, mut last) = (Vec::new(), vec![Vec::new(); C::STATES.len()]);
    for (number, &backwards) in reverse.iter().enumerate() {
        let turned = |call: &mut Call<'_, '_, '_>, x: &Dense| {
            if backwards { call.apply(Flip { axis: TIME, has_lengths: false }, &[x]) } else { Ok(x.clone()) }
        };
        let x = turned(call, &input)?;
        let mut inputs = vec![x];
        inputs.push(gates(call, &weights_ih[number], order)?);
        inputs.push(gates(call, &weights_hh[number], order)?);
        match &biases {
            Some(biases) => {
                for bias in split_into(call, &biases[number], 0, vec![sums; 2])? {
                    inputs.push(gates(call, &bias, order)?);
                }
            }
            None => {
                let zeros = call.filled(0.0, &[sums])?;
                inputs.extend([zeros.clone(), zeros]);
            }
        }
        if has_initial {
            for state in &initial {
                inputs.push(match state {
                    Some(state) => state[number].clone(),
                    None => call.filled(0.0, &[samples, hidden])?,
                });
            }
        }
        let op = Recurrent::<C>::new(hidden);
        let op = if has_initial { op.with_initial() } else { op };
        let ids: Vec<_> = inputs.iter().map(|input| input.id).collect();
        let outputs = call.scope.apply_all(op, &ids)?;
        let dense = |id| Dense { id, shape: call.scope.shape(id), kind: Kind::Number };
        let (all, ends) =
            (dense(outputs[0]), outputs[1..=C::STATES.len()].iter().map(|&id| dense(id)).collect::<Vec<_>>());
        let all = turned(call, &all)?;
        steps.push(call.reshaped(&all, &[samples, time, 1, hidden])?);
        for (states, end) in last.iter_mut().zip(ends) {
            states.push(call.reshaped(&end, &[samples, 1, hidden])?);
        }
    }
    let all = join(call, steps, 2)?;
    let order = |axes: &[usize]| axes.to_vec();
    let mut values = vec![if batch_first {
        Value::Tensor(all)
    } else {
        Value::Permuted { source: all, axes: order(&[1, 2, 0, 3]) }
    }];
    for states in last {
        let states = join(call, states, 1)?;
        values.push(if batch_first {
            Value::Tensor(states)
        } else {
            Value::Permuted { source: states, axes: order(&[1, 0, 2]) }
        });
    }
    Ok(values)
}

/// Initial states `[samples, hidden]` of each direction; `None` where they are zeros.
fn states(
    call: &mut Call<'_, '_, '_>,
    index: usize,
    [samples, count, hidden]: [usize; 3],
    batch_first: bool,
) -> Result<Option<Vec<Dense>>, GraphError> {
    if !call.has(index) || call.constant(index).and_then(|constant| constant.uniform()) == Some(0.0) {
        return Ok(None);
    }
    let all = if batch_first { call.numbers(index)? } else { call.tensor_permuted(index, &[1, 0, 2])? };
    if all.shape[1..] != [count, hidden] || (all.shape[0] != samples && all.shape[0] != 1) {
        return call.refuse(format!("its initial states of shape {:?} do not go to {samples} samples", all.shape));
    }
    let shape = [samples, count, hidden];
    let id = crate::nn::expand(call.scope, all.id, &shape)?;
    let all = Dense { id, shape: shape.to_vec(), kind: Kind::Number };
    let parts = split_into(call, &all, 1, vec![1; count])?;
    let parts = parts.into_iter().map(|part| call.reshaped(&part, &[samples, hidden]));
    Ok(Some(parts.collect::<Result<_, _>>()?))
}

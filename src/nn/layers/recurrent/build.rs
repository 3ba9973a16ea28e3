//! How a recurrent layer becomes ops.

use super::Recurrent;
use crate::error::GraphError;
use crate::graph::BufferUpdate;
use crate::nn::layers::Module;
use crate::nn::{Init, Scope};
use crate::ops::random::dropout::Dropout;
use crate::ops::recurrent::state::ReadRows;
use crate::ops::shape::concat::Concat;
use crate::ops::shape::detach::Detach;
use crate::ops::shape::fill::Fill;
use crate::ops::shape::flip::Flip;
use crate::ops::shape::slice::Slice;
use crate::ops::{self, Cell};
use crate::tensor::{TensorDesc, ValueId, format_number};

/// The axis of time.
const TIME: usize = 1;

/// The axis of features.
const FEATURES: usize = 2;

/// Steps that a segment has at least: the gradients of weights are written and added up once for each, which costs more than
/// shorter segments save.
const SHORTEST: usize = 40;

/// Part of a sequence that is one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    begin: usize,
    steps: usize,
    /// Whether gradients end at its first step.
    detached: bool,
}

/// How a sequence is cut: at the ends of windows, and each of these in segments of about as many steps, none shorter than the
/// root of all or `SHORTEST` unless the window is.
fn cut(time: usize, window: Option<usize>) -> Vec<Segment> {
    let least = time.isqrt().max(SHORTEST);
    let window = window.unwrap_or(time);
    let windows = (0..time).step_by(window).map(|begin| (begin, window.min(time - begin)));
    windows
        .flat_map(|(first, steps)| {
            let count = (steps / least).max(1);
            // The first ones take a step each of what is left over.
            let begin = move |i: usize| i * (steps / count) + i.min(steps % count);
            (0..count).map(move |i| Segment {
                begin: first + begin(i),
                steps: begin(i + 1) - begin(i),
                detached: first > 0 && i == 0,
            })
        })
        .collect()
}

/// One layer in one direction.
struct Layer {
    /// weight_ih, weight_hh, bias_ih, bias_hh.
    parameters: [ValueId; 4],
    /// Its first states, where they are not zeros.
    initial: Vec<ValueId>,
}

/// What a stack of layers makes.
struct Swept {
    /// Hidden states of the topmost layer, segment by segment.
    segments: Vec<ValueId>,
    /// Last states of all layers, the hidden state first.
    last: Vec<Vec<ValueId>>,
}

impl<C: Cell> Module for Recurrent<C> {
    fn build(&self, scope: &mut Scope<'_>, input: ValueId) -> Result<ValueId, GraphError> {
        self.check(scope)?;
        let shape = scope.shape(input);
        let [samples, time, features] = shape[..] else {
            return Err(scope.wrong_input("a sample of shape [time, features]", &shape, "put reshape before it"));
        };
        let lengths = match self.lengths {
            true => Some(scope.input("lengths", &TensorDesc::u32([samples]))?),
            false => None,
        };
        let segments = cut(time, self.window);
        if self.bidirectional {
            self.both_ways(scope, input, features, &segments, lengths)
        } else {
            self.forward_only(scope, input, features, &segments, lengths)
        }
    }
}

impl<C: Cell> Recurrent<C> {
    fn check(&self, scope: &Scope<'_>) -> Result<(), GraphError> {
        scope.check_setting("hidden", self.hidden, 1)?;
        scope.check_setting("num_layers", self.num_layers, 1)?;
        if let Some(window) = self.window {
            scope.check_setting("window", window, 1)?;
        }
        if !(0.0..=1.0).contains(&self.dropout) {
            return Err(scope.error(format!("dropout must be from 0 to 1, found {}", format_number(self.dropout))));
        }
        if self.bidirectional && (self.stateful || self.window.is_some()) {
            let setting = if self.stateful { "stateful" } else { "window" };
            return Err(scope.error(format!(
                "bidirectional and {setting} exclude each other: what goes back through time begins at the end of all steps"
            )));
        }
        if self.unit_forget_bias && C::FORGET_GATE.is_none() {
            return Err(scope.error("unit_forget_bias is for cells with a forget gate, which an LSTM has"));
        }
        Ok(())
    }

    /// The parameters of layer `number`, by PyTorch's names with `suffix`.
    fn layer(&self, scope: &mut Scope<'_>, number: usize, features: usize, suffix: &str) -> Result<Layer, GraphError> {
        let (hidden, sums) = (self.hidden, C::GATES * self.hidden);
        let uniform = Init::fan_in(hidden);
        let recurrent = if self.orthogonal { Init::Orthogonal { columns: hidden, gain: 1.0 } } else { uniform };
        let bias = |value: f32| match C::FORGET_GATE.filter(|_| self.unit_forget_bias) {
            Some(block) => Init::Block { block, blocks: C::GATES, value, bound: 1.0 / (hidden as f32).sqrt() },
            None => uniform,
        };
        let parameter = |scope: &mut Scope<'_>, name: &str, shape: &[usize], init: Init| {
            scope.parameter(&format!("{name}_l{number}{suffix}"), shape, init)
        };
        let weights = [
            parameter(scope, "weight_ih", &[sums, features], uniform)?,
            parameter(scope, "weight_hh", &[sums, hidden], recurrent)?,
        ];
        let mut biases = Vec::new();
        // The forget gate's biases add up to 1.
        for (name, value, is_there) in [("bias_ih", 1.0, self.bias), ("bias_hh", 0.0, self.bias && self.recurrent_bias)]
        {
            biases.push(match is_there {
                true => parameter(scope, name, &[sums], bias(value))?,
                false => scope.apply(Fill { value: 0.0, shape: [sums].into() }, &[])?,
            });
        }
        Ok(Layer { parameters: [weights[0], weights[1], biases[0], biases[1]], initial: Vec::new() })
    }

    /// All layers at once, segment by segment: a layer's segment needs only the same segment of the layer below.
    fn forward_only(
        &self,
        scope: &mut Scope<'_>,
        input: ValueId,
        features: usize,
        segments: &[Segment],
        lengths: Option<ValueId>,
    ) -> Result<ValueId, GraphError> {
        let mut layers = Vec::new();
        for number in 0..self.num_layers {
            layers.push(self.layer(scope, number, if number == 0 { features } else { self.hidden }, "")?);
        }
        let mut states = Vec::new();
        if self.stateful {
            let run = scope.run_input()?;
            let rows = scope.shape(input)[0];
            let batch = scope.step_batch();
            for (number, layer) in layers.iter_mut().enumerate() {
                for name in C::STATES {
                    let name = format!("{}_l{number}", name.trim_end_matches('0'));
                    let buffer = scope.state(&name, [batch, self.hidden])?;
                    layer.initial.push(scope.apply(ReadRows { rows }, &[buffer, run])?);
                    states.push((buffer, run));
                }
            }
        }
        let swept = self.sweep(scope, &layers, 0, input, segments, lengths)?;
        for (&(buffer, run), &value) in states.iter().zip(swept.last.iter().flatten()) {
            scope.update_buffer(BufferUpdate { buffer, value, rows: Some(run), momentum: 1.0, factor: 1.0 });
        }
        match self.return_sequences {
            true => join(scope, &swept.segments),
            false => Ok(swept.last[self.num_layers - 1][0]),
        }
    }

    /// Layer by layer: each needs the whole of the one below.
    fn both_ways(
        &self,
        scope: &mut Scope<'_>,
        input: ValueId,
        features: usize,
        segments: &[Segment],
        lengths: Option<ValueId>,
    ) -> Result<ValueId, GraphError> {
        let flip = Flip { axis: TIME, has_lengths: lengths.is_some() };
        let turned = |scope: &mut Scope<'_>, value: ValueId| {
            let inputs: Vec<_> = std::iter::once(value).chain(lengths).collect();
            scope.apply(flip, &inputs)
        };
        let mut value = input;
        for number in 0..self.num_layers {
            let features = if number == 0 { features } else { 2 * self.hidden };
            let [forward, reverse] =
                [self.layer(scope, number, features, "")?, self.layer(scope, number, features, "_reverse")?];
            if number > 0 {
                value = self.drop(scope, value, number - 1)?;
            }
            let ahead = self.sweep(scope, &[forward], number, value, segments, lengths)?;
            let reversed = turned(scope, value)?;
            let back = self.sweep(scope, &[reverse], number, reversed, segments, lengths)?;
            let is_last = number + 1 == self.num_layers;
            value = if is_last && !self.return_sequences {
                scope.apply(Concat { axis: 1 }, &[ahead.last[0][0], back.last[0][0]])?
            } else {
                let (ahead, back) = (join(scope, &ahead.segments)?, join(scope, &back.segments)?);
                let back = turned(scope, back)?;
                scope.apply(Concat { axis: FEATURES }, &[ahead, back])?
            };
        }
        Ok(value)
    }

    /// What a layer hands on to the next, with zeros in training. `number` tells the places of dropout in the layer apart.
    fn drop(&self, scope: &mut Scope<'_>, value: ValueId, number: usize) -> Result<ValueId, GraphError> {
        if self.dropout == 0.0 || !scope.drops() {
            return Ok(value);
        }
        let run = scope.run_input()?;
        let stream = scope.stream().wrapping_add(number as u32);
        scope.apply(Dropout { p: self.dropout, stream, block: 1 }, &[value, run])
    }

    /// Runs layers on top of each other over all segments.
    fn sweep(
        &self,
        scope: &mut Scope<'_>,
        layers: &[Layer],
        first: usize,
        input: ValueId,
        segments: &[Segment],
        lengths: Option<ValueId>,
    ) -> Result<Swept, GraphError> {
        let mut states: Vec<_> = layers.iter().map(|layer| layer.initial.clone()).collect();
        let mut tops = Vec::new();
        let mut parts = Parts::new(scope, input, segments);
        for segment in segments {
            let mut value = parts.next(scope)?;
            for (number, (layer, states)) in layers.iter().zip(&mut states).enumerate() {
                if number > 0 {
                    // Each segment draws numbers of its own.
                    value = self.drop(scope, value, (first + number - 1) + self.num_layers * segment.begin)?;
                }
                if segment.detached {
                    for state in &mut *states {
                        *state = scope.apply(Detach, &[*state])?;
                    }
                }
                let mut op = ops::Recurrent::<C>::new(self.hidden);
                if !states.is_empty() {
                    op = op.with_initial();
                }
                if lengths.is_some() {
                    op = op.with_lengths(segment.begin);
                }
                let inputs: Vec<_> =
                    [value].into_iter().chain(layer.parameters).chain(states.iter().copied()).chain(lengths).collect();
                let outputs = scope.apply_all(op, &inputs)?;
                value = outputs[0];
                *states = outputs[1..=C::STATES.len()].to_vec();
            }
            tops.push(value);
        }
        Ok(Swept { segments: tops, last: states })
    }
}

/// The parts of a value for segments, each cut when it is asked for: what is cut early would wait long.
struct Parts<'a> {
    /// What is to be cut out of which value, that begins with which step; the next one last.
    rest: Vec<(ValueId, usize, &'a [Segment])>,
}

impl<'a> Parts<'a> {
    fn new(scope: &Scope<'_>, input: ValueId, segments: &'a [Segment]) -> Self {
        // Of what is given, parts are cut straight out. Of what has a gradient, by halves: the gradients of many parts would
        // all be as large as the whole, and be added up one after the other.
        let pieces = if scope.is_input(input) { segments.chunks(1) } else { segments.chunks(segments.len()) };
        Parts { rest: pieces.rev().map(|piece| (input, 0, piece)).collect() }
    }

    fn next(&mut self, scope: &mut Scope<'_>) -> Result<ValueId, GraphError> {
        loop {
            let (whole, first, segments) = self.rest.pop().expect("bug: more parts than segments");
            let (start, length) = span(segments);
            let is_whole = scope.shape(whole)[TIME] == length;
            let slice = Slice { axis: TIME, start: start - first, length };
            let value = if is_whole { whole } else { scope.apply(slice, &[whole])? };
            if segments.len() == 1 {
                return Ok(value);
            }
            let (left, right) = segments.split_at(segments.len() / 2);
            self.rest.extend([(value, start, right), (value, start, left)]);
        }
    }
}

/// First step and steps of segments that follow each other.
fn span(segments: &[Segment]) -> (usize, usize) {
    (segments[0].begin, segments.iter().map(|segment| segment.steps).sum())
}

/// Parts one after the other in time, put together by pairs: each step is copied a few times only.
fn join(scope: &mut Scope<'_>, parts: &[ValueId]) -> Result<ValueId, GraphError> {
    match parts {
        [part] => Ok(*part),
        parts => {
            let (left, right) = parts.split_at(parts.len() / 2);
            let (left, right) = (join(scope, left)?, join(scope, right)?);
            scope.apply(Concat { axis: TIME }, &[left, right])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_at_windows_and_in_segments() {
        let segment = |begin, steps, detached| Segment { begin, steps, detached };
        assert_eq!(cut(64, None), [segment(0, 64, false)]);
        assert_eq!(cut(79, None), [segment(0, 79, false)]);
        assert_eq!(cut(80, None), [segment(0, 40, false), segment(40, 40, false)]);
        assert_eq!(cut(128, None), [segment(0, 43, false), segment(43, 43, false), segment(86, 42, false)]);
        assert_eq!(cut(5, Some(2)), [segment(0, 2, false), segment(2, 2, true), segment(4, 1, true)]);
        assert_eq!(cut(5, Some(9)), [segment(0, 5, false)]);
        assert_eq!(cut(121, Some(100)), [segment(0, 50, false), segment(50, 50, false), segment(100, 21, true)]);
        for time in [65_usize, 100, 401, 1000, 1601, 20_000] {
            let least = time.isqrt().max(SHORTEST);
            for window in [None, Some(1), Some(30), Some(333), Some(time)] {
                let segments = cut(time, window);
                let mut next = 0;
                for segment in &segments {
                    assert_eq!(segment.begin, next);
                    let in_window = window.map_or(time, |window| window.min(time - next / window * window));
                    assert!(segment.steps >= least.min(in_window) && segment.steps < 2 * least);
                    assert_eq!(segment.detached, next > 0 && window.is_some_and(|window| next % window == 0));
                    next += segment.steps;
                }
                assert_eq!(next, time);
            }
        }
        assert_eq!(cut(20_000, None).len(), 141);
    }
}

//! Made-up ops and models for tests of the planner and the executors.

use proptest::prelude::*;

use super::{Pass, SavedActivations, Source};
use crate::error::{GraphError, OpError};
use crate::graph::{Graph, Phase, Role};
use crate::ops::Target;
use crate::ops::{Call, Dispatch, Flags, Op, Real};
use crate::tensor::{TensorDesc, ValueId};
use crate::twin;

/// Mixes its inputs into outputs of any shape.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mix {
    pub(crate) outputs: Vec<Vec<usize>>,
    pub(crate) workspaces: Vec<u64>,
    pub(crate) in_place: bool,
    pub(crate) mixes_samples: bool,
}

impl Mix {
    pub(crate) fn to(shape: impl Into<Vec<usize>>) -> Self {
        Mix { outputs: vec![shape.into()], ..Mix::default() }
    }

    pub(crate) fn in_place(mut self) -> Self {
        self.in_place = true;
        self
    }

    pub(crate) fn workspace(mut self, bytes: u64) -> Self {
        self.workspaces.push(bytes);
        self
    }
}

impl Op for Mix {
    fn name(&self) -> &'static str {
        "mix"
    }

    fn outputs(&self, _inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        Ok(self.outputs.iter().map(|shape| TensorDesc::f32(shape.clone())).collect())
    }

    fn workspaces(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Vec<u64> {
        self.workspaces.clone()
    }

    fn flags(&self) -> Flags {
        Flags { batch_separable: !self.mixes_samples, ..Flags::default() }
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        if self.in_place { &[(0, 0), (1, 0)] } else { &[] }
    }

    fn dispatches(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        vec![Dispatch::new("mix", "forward", [])]
    }

    twin!();
}

impl Mix {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        for output in 0..self.outputs.len() {
            let inputs: Vec<&[T]> = (0..call.inputs.len()).map(|i| call.input(i)).collect();
            for (k, y) in call.output(output).iter_mut().enumerate() {
                let terms = inputs.iter().enumerate().map(|(i, x)| x[k % x.len()] * T::from_f64(1.0 + i as f64));
                *y = (terms.fold(T::ZERO, |sum, term| sum + term) + T::from_f64(0.25 + output as f64)).tanh();
            }
        }
    }
}

/// `target += sign * source`.
#[derive(Clone, Debug)]
pub(crate) struct AddTo {
    pub(crate) sign: f64,
}

impl Op for AddTo {
    fn name(&self) -> &'static str {
        "add_to"
    }

    fn outputs(&self, _inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        Ok(vec![])
    }

    fn flags(&self) -> Flags {
        Flags { once: true, ..Flags::default() }
    }

    fn mutates(&self) -> &'static [usize] {
        &[0]
    }

    fn dispatches(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        vec![Dispatch::new("mix", "add_to", [])]
    }

    twin!();
}

impl AddTo {
    fn twin<T: Real>(&self, call: &mut Call<'_, T>) {
        let source = call.input(1);
        let [target] = call.mutated();
        for (k, y) in target.iter_mut().enumerate() {
            *y += T::from_f64(self.sign) * source[k % source.len()];
        }
    }
}

/// Shows its input as one row.
#[derive(Clone, Debug)]
pub(crate) struct Flat;

impl Op for Flat {
    fn name(&self) -> &'static str {
        "flat"
    }

    fn outputs(&self, inputs: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        Ok(vec![TensorDesc::f32([1, inputs[0].numel()])])
    }

    fn is_view(&self) -> bool {
        true
    }

    fn dispatches(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc], _target: &Target) -> Vec<Dispatch> {
        vec![]
    }

    fn run_f32(&self, _call: &mut Call<'_, f32>) {
        panic!("bug: a view was run");
    }

    fn run_f64(&self, _call: &mut Call<'_, f64>) {
        panic!("bug: a view was run");
    }
}

/// A chain of layers with one state per parameter.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    pub(crate) layers: usize,
    pub(crate) width: usize,
    pub(crate) mixes_samples: bool,
}

impl Source for Chain {
    fn graph(&self, pass: Pass, samples: usize, _batch: usize, _saved: SavedActivations) -> Result<Graph, GraphError> {
        let mut graph = Graph::new();
        let shape = [samples, self.width];
        let mut x = graph.input("x", TensorDesc::f32(shape));
        let mut layers = Vec::new();
        for i in 0..self.layers {
            graph.set_scope(format!("layer{i}"));
            let weight = graph.parameter(format!("layer{i}.weight"), TensorDesc::f32([self.width, 10]));
            let op = Mix { mixes_samples: self.mixes_samples && i == 1, ..Mix::to(shape).workspace(300) };
            let y = graph.apply(op, &[x, weight])?;
            layers.push((weight, x));
            x = graph.apply(Mix::to(shape).in_place(), &[y])?;
        }
        if pass == Pass::Evaluate {
            graph.promote(x, "prediction", Role::Output);
            return Ok(graph);
        }
        let loss = graph.apply(Mix { mixes_samples: true, ..Mix::to([1]) }, &[x])?;
        graph.set_phase(Phase::Backward);
        let mut grad = graph.apply(Mix::to(shape), &[x, loss])?;
        let mut updates = Vec::new();
        for (i, &(weight, input)) in layers.iter().enumerate().rev() {
            graph.set_scope(format!("layer{i}"));
            let grad_weight = graph.apply(Mix::to([self.width, 10]), &[input, grad])?;
            grad = graph.apply(Mix::to(shape).in_place(), &[grad, weight])?;
            updates.push((i, weight, finish(&mut graph, pass, &format!("layer{i}.grad"), grad_weight)?));
        }
        finish(&mut graph, pass, "loss", loss)?;
        graph.set_phase(Phase::Update);
        for (i, weight, grad) in updates {
            let state = graph.source(format!("layer{i}.m"), TensorDesc::f32([self.width, 10]), Role::State);
            update(&mut graph, pass, weight, state, grad)?;
        }
        Ok(graph)
    }
}

/// Makes a value an accumulator, or adds it to one, as the pass asks.
fn finish(graph: &mut Graph, pass: Pass, name: &str, value: ValueId) -> Result<ValueId, GraphError> {
    match pass {
        Pass::Only | Pass::Evaluate => Ok(value),
        Pass::First => {
            graph.promote(value, name, Role::Accumulator);
            Ok(value)
        }
        Pass::Middle | Pass::Last => {
            let desc = graph.value(value).desc.clone();
            let sum = graph.source(name, desc, Role::Accumulator);
            graph.apply_all(AddTo { sign: 1.0 }, &[sum, value])?;
            Ok(sum)
        }
    }
}

fn update(graph: &mut Graph, pass: Pass, weight: ValueId, state: ValueId, grad: ValueId) -> Result<(), GraphError> {
    if matches!(pass, Pass::Only | Pass::Last) {
        graph.apply_all(AddTo { sign: 0.5 }, &[state, grad])?;
        graph.apply_all(AddTo { sign: -0.1 }, &[weight, state])?;
    }
    Ok(())
}

/// One node of a random graph.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    kind: u8,
    picks: [u8; 3],
    size: usize,
    workspace: Option<u64>,
    read_back: bool,
}

/// Random graphs with views, in-place ops, workspaces and changes to parameters in the middle.
#[derive(Clone, Debug)]
pub(crate) struct Tangle {
    pub(crate) steps: Vec<Step>,
}

pub(crate) fn tangles() -> impl Strategy<Value = Tangle> {
    let step =
        (0..9_u8, any::<[u8; 3]>(), 1..400_usize, prop::option::weighted(0.2, 1..3000_u64), prop::bool::weighted(0.1))
            .prop_map(|(kind, picks, size, workspace, read_back)| Step { kind, picks, size, workspace, read_back });
    prop::collection::vec(step, 1..30).prop_map(|steps| Tangle { steps })
}

impl Source for Tangle {
    fn graph(&self, pass: Pass, samples: usize, _batch: usize, _saved: SavedActivations) -> Result<Graph, GraphError> {
        let mut graph = Graph::new();
        let mut pool = vec![graph.input("x", TensorDesc::f32([samples, 50])), graph.input("y", TensorDesc::f32([3]))];
        let parameters = [40, 70].map(|n| graph.parameter(format!("p{n}"), TensorDesc::f32([n])));
        let state = graph.source("s", TensorDesc::f32([70]), Role::State);
        pool.extend(parameters);
        pool.push(state);
        for (i, step) in self.steps.iter().enumerate() {
            graph.set_scope(format!("step{i}"));
            // Late values more often than early ones: graphs are deep rather than flat.
            let pick = |n: u8| pool[pool.len() - 1 - usize::from(n) % pool.len().min(6)];
            let [a, b, c] = step.picks.map(pick);
            let anywhere = pool[usize::from(step.picks[0]) % pool.len()];
            let shape = vec![samples, step.size];
            let same = |value: ValueId| graph.value(value).desc.shape.to_vec();
            let mut op = match step.kind {
                0 | 1 => Mix::to(shape),
                2 => Mix { outputs: vec![shape, vec![step.size]], ..Mix::default() },
                3..=5 => Mix::to(same(a)).in_place(),
                _ => Mix::default(),
            };
            op.workspaces.extend(step.workspace);
            let made = match step.kind {
                0 => graph.apply_all(op, &[a, anywhere])?,
                1 => graph.apply_all(op, &[a, b, c])?,
                2 => graph.apply_all(op, &[anywhere, b])?,
                3 => graph.apply_all(op, &[a])?,
                4 => graph.apply_all(op, &[a, b])?,
                5 => graph.apply_all(op, &[b, a])?,
                6 => vec![graph.apply(Flat, &[a])?],
                7 => vec![graph.apply(Flat, &[anywhere])?],
                _ => {
                    let target = if step.size.is_multiple_of(2) { parameters[step.size / 2 % 2] } else { state };
                    let view = graph.apply(Flat, &[target])?;
                    let target = if step.read_back { view } else { target };
                    graph.apply_all(AddTo { sign: 0.3 }, &[target, a])?;
                    vec![]
                }
            };
            if step.read_back
                && let Some(&value) = made.first()
            {
                graph.promote(value, format!("out{i}"), Role::Output);
            }
            pool.extend(made);
        }
        let last = pool[pool.len() - 1];
        if pass == Pass::Evaluate {
            return Ok(graph);
        }
        graph.set_phase(Phase::Backward);
        let grad = graph.apply(Mix::to([70]), &[last, parameters[1]])?;
        // The gradient that lasts may be a view of the one that is made.
        let shown = if self.steps.len().is_multiple_of(2) { graph.apply(Flat, &[grad])? } else { grad };
        let grad = finish(&mut graph, pass, "p70.grad", shown)?;
        graph.set_phase(Phase::Update);
        update(&mut graph, pass, parameters[1], state, grad)?;
        Ok(graph)
    }
}

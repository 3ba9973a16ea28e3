//! Training a classifier straight through the engine's stages, so that a test decides what becomes of its graph.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tightfit::autodiff::{self, Training, Update};
use tightfit::error::GraphError;
use tightfit::exec::Executor;
use tightfit::graph::{Graph, Pass, Role};
use tightfit::nn::{Mode, Model, Statistics};
use tightfit::ops::loss::cross_entropy::CrossEntropy;
use tightfit::ops::optim::sgd::Sgd;
use tightfit::ops::{SavedActivations, UpdateRule};
use tightfit::plan::{CostModel, Levers, Limits, Planned, Request, Source, plan};
use tightfit::tensor::TensorDesc;

/// What a classifier's graph is like.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// In which form forward values are kept, whichever the planner asks for.
    pub saved: SavedActivations,
    /// Whether elementwise nodes are fused with what they follow.
    pub fused: bool,
    /// Where batch normalization has its statistics from.
    pub statistics: Statistics,
}

pub struct Classifier {
    model: Model,
    form: Form,
    rule: Arc<dyn UpdateRule>,
}

impl Source for Classifier {
    fn graph(&self, pass: Pass, samples: usize, batch: usize, _saved: SavedActivations) -> Result<Graph, GraphError> {
        let built = self.model.build_part(samples, batch, Mode::Train(self.form.statistics))?;
        let mut graph = built.graph;
        let labels = graph.input("labels", TensorDesc::u32([samples]));
        let loss = graph.apply(CrossEntropy::default(), &[built.output, labels])?;
        let weight = samples as f32 / batch as f32;
        let group_of = BTreeMap::new();
        let (update, frozen) = (Update::plain(std::slice::from_ref(&self.rule), &group_of), &BTreeSet::new());
        let (saved, buffer_updates) = (self.form.saved, &built.buffer_updates[..]);
        let training = Training { update, frozen, pass, weight, saved, buffer_updates };
        autodiff::joint(graph, loss, &[], &training)
    }
}

pub fn classifier(model: &Model, form: Form) -> Classifier {
    Classifier { model: model.clone(), form, rule: rule() }
}

pub fn planned(model: &Model, form: Form, batch: usize, micro_batches: usize, limits: Limits) -> Planned {
    let costs = CostModel::default();
    let levers = Levers { compression: false, fusion: form.fused, ..Levers::default() };
    let request = Request { batch, budget_bytes: None, micro_batches: Some(micro_batches), levers, limits, costs };
    plan(&classifier(model, form), &request).unwrap()
}

fn rule() -> Arc<dyn UpdateRule> {
    Arc::new(Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.0 })
}

/// Numbers in -0.5..0.5.
fn numbers(salt: usize, count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + salt * 104_729) % 1009) as f32 / 1009.0 - 0.5).collect()
}

/// Everything that outlives two steps, gradients in the momentum among it.
pub fn train(model: &Model, planned: &Planned, executor: &mut dyn Executor) -> BTreeMap<String, Vec<u8>> {
    let rule = rule();
    let built = model.build(1, Mode::Evaluate).unwrap();
    for parameter in built.parameters.into_iter().chain(built.buffers) {
        let Some(value) = planned.plan.persistent.iter().find(|value| value.name == parameter.name) else { continue };
        let mut data = vec![0.0; value.desc.numel()];
        parameter.init.fill(1, &parameter.name, &mut data);
        executor.write(&parameter.name, bytemuck::cast_slice(&data)).unwrap();
    }
    for step in 1..3 {
        for (part, &program) in planned.plan.schedule.iter().enumerate() {
            let graph = &planned.graphs[program];
            let inputs = graph.values().iter().filter(|value| value.role == Role::Input).map(|value| {
                let count = value.desc.numel();
                let data = match value.name.as_str() {
                    "labels" => (0..count as u32).flat_map(|i| (i % 3).to_le_bytes()).collect::<Vec<_>>(),
                    autodiff::HYPER => bytemuck::cast_slice(&rule.hyper(step, 0.1)).to_vec(),
                    _ => bytemuck::cast_slice(&numbers(step as usize * 10 + part, count)).to_vec(),
                };
                (value.name.as_str(), data)
            });
            let inputs: Vec<_> = inputs.collect();
            let inputs: Vec<_> = inputs.iter().map(|(name, data)| (*name, data.as_slice())).collect();
            executor.run(program, &inputs).unwrap();
        }
    }
    planned.plan.persistent.iter().map(|value| (value.name.clone(), executor.read(&value.name).unwrap())).collect()
}

/// Every value is the same, and a number.
pub fn assert_same(model: &Model, one: &BTreeMap<String, Vec<u8>>, other: &BTreeMap<String, Vec<u8>>) {
    assert_eq!(one.len(), other.len());
    for (name, data) in one {
        assert!(bytemuck::pod_collect_to_vec::<u8, f32>(data).iter().all(|x| x.is_finite()), "{name}");
        assert!(other[name] == *data, "{}: `{name}` differs", model.name());
    }
}

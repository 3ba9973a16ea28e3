//! Training a classifier whose forward values are kept in a form that the test chooses, not the planner.

use std::collections::BTreeMap;

use tightfit::data::{Targets, TensorDataset, Values};
use tightfit::exec::Executor;
use tightfit::nn::{Model, Statistics};
use tightfit::ops::SavedActivations;
use tightfit::plan::{Levers, Limits, Planned};
use tightfit::train::{Config, Machine, Optimizer, Trainer};

/// What a classifier's graph is like.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// In which form forward values are kept.
    pub saved: SavedActivations,
    /// Whether elementwise nodes are fused with what they follow.
    pub fused: bool,
    /// Where batch normalization has its statistics from.
    pub statistics: Statistics,
}

pub fn config(form: Form, batch: usize) -> Config {
    let levers = Levers { compression: false, fusion: form.fused, ..Levers::default() };
    let optimizer = Optimizer::Sgd { lr: 0.1, momentum: 0.9, nesterov: false, weight_decay: 0.0 };
    Config::default().batch(batch).optimizer(optimizer).levers(levers).statistics(form.statistics).seed(1)
}

pub fn planned(model: &Model, form: Form, batch: usize, micro_batches: usize, limits: Limits) -> Planned {
    let config = config(form, batch).micro_batches(micro_batches);
    let machine = Machine::with_limits(limits, tightfit::plan::DeviceClass::default());
    tightfit::testing::plan_training(model, &config, form.saved, &machine).unwrap()
}

/// Numbers in -0.5..0.5.
fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + 104_729) % 1009) as f32 / 1009.0 - 0.5).collect()
}

/// Everything that outlives two steps, gradients in the momentum among it.
pub fn train(
    model: &Model,
    form: Form,
    batch: usize,
    planned: &Planned,
    executor: Box<dyn Executor>,
) -> BTreeMap<String, Vec<f32>> {
    let shape = model.input_shape().clone();
    let labels =
        Targets::labels((0..2 * batch as u32).map(|i| i % 3).collect(), model.output_shape().unwrap().numel() as u32);
    let data = TensorDataset::new(Values::F32(numbers(2 * batch * shape.numel())), shape, labels).unwrap();
    let mut trainer = Trainer::with_executor(model.clone(), config(form, batch), planned.clone(), executor).unwrap();
    for first in [0, batch] {
        trainer.step(&data, &(first..first + batch).collect::<Vec<_>>()).unwrap();
    }
    let mut lasting = BTreeMap::new();
    for (name, (_, values)) in trainer.state_dict().unwrap() {
        if let Some(momentum) = trainer.optimizer_state(&name, "momentum_buffer").unwrap() {
            lasting.insert(format!("{name}.momentum_buffer"), momentum);
        }
        lasting.insert(name, values);
    }
    lasting
}

/// Every value is the same, and a number.
pub fn assert_same(model: &Model, one: &BTreeMap<String, Vec<f32>>, other: &BTreeMap<String, Vec<f32>>) {
    assert_eq!(one.len(), other.len());
    assert!(one.keys().any(|name| name.ends_with("momentum_buffer")), "{:?}", one.keys());
    for (name, values) in one {
        assert!(values.iter().all(|x| x.is_finite()), "{name}");
        let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert!(bits(values) == bits(&other[name]), "{}: `{name}` differs", model.name());
    }
}

//! Runs plans of made-up graphs and compares with plain evaluation, every value in a buffer of its own.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{CpuExecutor, Executor};
use crate::error::DeviceError;
use crate::graph::{Graph, Phase, Role};
use crate::ops::{Call, Input, Output};
use crate::plan::toy::{Chain, tangles};
use crate::plan::{CostModel, Levers, Limits, Planned, Request, plan};
use crate::tensor::ValueId;

const CHAIN: Chain = Chain { layers: 3, width: 20, mixes_samples: false };

fn request(batch: usize, micro_batches: Option<usize>, budget_bytes: Option<u64>) -> Request {
    Request {
        batch,
        budget_bytes,
        micro_batches,
        levers: Levers::default(),
        limits: Limits::default(),
        costs: CostModel::default(),
    }
}

fn numbers(salt: usize, count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 37 + salt * 11) % 101) as f32 / 101.0 - 0.5).collect()
}

fn inputs(graph: &Graph) -> Vec<(String, Vec<f32>)> {
    let inputs = graph.values().iter().filter(|value| value.role == Role::Input);
    inputs.enumerate().map(|(i, value)| (value.name.clone(), numbers(i + 7, value.desc.numel()))).collect()
}

/// Runs a graph in its own order; returns the outputs.
fn evaluate(graph: &Graph, persistent: &mut BTreeMap<String, Vec<f32>>) -> Vec<Vec<f32>> {
    let given: BTreeMap<_, _> = inputs(graph).into_iter().collect();
    let mut values: BTreeMap<ValueId, Vec<f32>> = BTreeMap::new();
    for id in graph.value_ids().filter(|&id| graph.value(id).producer.is_none()) {
        let value = graph.value(id);
        let data = if value.role == Role::Input { given.get(&value.name) } else { persistent.get(&value.name) };
        values.insert(id, data.expect("data").clone());
    }
    for node in graph.nodes().iter().filter(|node| !node.op.is_view()) {
        let roots: Vec<_> = node.inputs.iter().map(|&id| graph.storage_root(id)).collect();
        let desc = |&id: &ValueId| graph.value(id).desc.clone();
        let input_descs: Vec<_> = node.inputs.iter().map(desc).collect();
        let output_descs: Vec<_> = node.outputs.iter().map(desc).collect();
        let data: Vec<_> = roots.iter().map(|root| values[root].clone()).collect();
        let mut changed: Vec<_> = node.op.mutates().iter().map(|&i| data[i].clone()).collect();
        let mut made: Vec<_> = output_descs.iter().map(|desc| vec![f32::NAN; desc.numel()]).collect();
        let mut call = Call {
            input_descs: &input_descs,
            output_descs: &output_descs,
            inputs: data
                .iter()
                .enumerate()
                .map(|(i, data)| if node.op.mutates().contains(&i) { Input::Mutated } else { Input::Real(data) })
                .collect(),
            outputs: made.iter_mut().map(|data| Output::Real(data)).collect(),
            mutated: changed.iter_mut().map(|data| Output::Real(data)).collect(),
        };
        node.op.run_f32(&mut call);
        values.extend(node.outputs.iter().copied().zip(made));
        values.extend(node.op.mutates().iter().map(|&i| roots[i]).zip(changed));
    }
    let of = |id: ValueId| values[&graph.storage_root(id)].clone();
    for id in graph.value_ids().filter(|&id| graph.value(id).role.is_persistent()) {
        persistent.insert(graph.value(id).name.clone(), of(id));
    }
    graph.value_ids().filter(|&id| graph.value(id).role == Role::Output).map(of).collect()
}

fn bits(data: &[u8]) -> Vec<u32> {
    bytemuck::pod_collect_to_vec(data)
}

fn float_bits(data: &[f32]) -> Vec<u32> {
    data.iter().map(|x| x.to_bits()).collect()
}

fn run(executor: &mut CpuExecutor, program: usize, graph: &Graph) -> Result<(), DeviceError> {
    let inputs = inputs(graph);
    let inputs: Vec<_> = inputs.iter().map(|(name, data)| (name.as_str(), bytemuck::cast_slice(data))).collect();
    executor.run(program, &inputs)
}

/// Two steps and a prediction, bit for bit.
fn assert_runs_as_evaluated(planned: &Planned) {
    let mut executor = CpuExecutor::new(planned).expect("an executor");
    let mut persistent = BTreeMap::new();
    for (i, value) in planned.plan.persistent.iter().enumerate() {
        let data = numbers(i, value.desc.numel());
        executor.write(&value.name, bytemuck::cast_slice(&data)).expect("written");
        persistent.insert(value.name.clone(), data);
    }
    let schedule = planned.plan.schedule.iter();
    for &program in schedule.clone().chain(schedule).chain(&planned.plan.evaluate) {
        let graph = &planned.graphs[program];
        run(&mut executor, program, graph).expect("a run");
        let expected = evaluate(graph, &mut persistent);
        let outputs = executor.outputs(program).expect("outputs");
        let found: Vec<_> = outputs.iter().map(|data| bits(data)).collect();
        assert_eq!(found, expected.iter().map(|data| float_bits(data)).collect::<Vec<_>>());
        for (name, data) in &persistent {
            assert_eq!(bits(&executor.read(name).expect("a value")), float_bits(data), "{name}");
        }
    }
    assert_eq!(executor.peak_bytes(), planned.plan.peak_bytes);
}

#[test]
fn a_chain_runs_as_evaluated() {
    for micro_batches in [1, 2, 3, 8] {
        assert_runs_as_evaluated(&plan(&CHAIN, &request(8, Some(micro_batches), None)).expect("a plan"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_graphs_run_as_evaluated(tangle in tangles(), batch in 1..7_usize) {
        let free = plan(&tangle, &request(batch, None, None)).expect("a plan");
        assert_runs_as_evaluated(&free);
        let least = Some(free.plan.minimum_budget_bytes);
        assert_runs_as_evaluated(&plan(&tangle, &request(batch, None, least)).expect("a plan"));
    }
}

#[test]
fn wrong_names_sizes_and_programs_are_refused() {
    let planned = plan(&CHAIN, &request(2, None, None)).expect("a plan");
    let mut executor = CpuExecutor::new(&planned).expect("an executor");
    let refused = |result: Result<(), DeviceError>| matches!(result, Err(DeviceError::Validation { .. }));
    let data = [0_u8; 160];
    assert!(refused(executor.write("nothing", &data)));
    assert!(refused(executor.write("layer0.weight", &data)));
    assert!(refused(executor.read("nothing").map(drop)));
    assert!(refused(executor.run(9, &[("x", &data)])));
    assert!(refused(executor.run(0, &[])));
    assert!(refused(executor.run(0, &[("x", &data[4..])])));
    assert!(refused(executor.run(0, &[("x", &data), ("y", &data)])));
    assert!(refused(executor.outputs(1).map(drop)));
    assert!(executor.run(1, &[("x", &data)]).is_ok());
    assert!(refused(executor.outputs(0).map(drop)));
    assert_eq!(executor.outputs(1).expect("outputs").len(), 1);
}

#[test]
fn inspection_shows_values_and_changes_no_parameter() {
    let planned = plan(&CHAIN, &request(2, None, None)).expect("a plan");
    let graph = &planned.graphs[0];
    let mut executor = CpuExecutor::new(&planned).expect("an executor");
    let weight = numbers(3, 200);
    executor.write("layer1.weight", bytemuck::cast_slice(&weight)).expect("written");
    let inputs = inputs(graph);
    let inputs: Vec<_> = inputs.iter().map(|(name, data)| (name.as_str(), bytemuck::cast_slice(data))).collect();
    for until in [Phase::Forward, Phase::Backward, Phase::Update] {
        let mut seen = 0;
        executor
            .inspect(0, &inputs, until, &mut |graph, id, data| {
                assert_eq!(data.len() as u64, graph.value(id).desc.size_bytes());
                seen += 1;
                true
            })
            .expect("shown");
        let made = graph.nodes().iter().filter(|node| node.phase <= until).map(|node| node.outputs.len());
        assert_eq!(seen, made.sum::<usize>());
    }
    assert_eq!(bits(&executor.read("layer1.weight").expect("read")), float_bits(&weight));
    let mut seen = 0;
    let mut stop = |_: &Graph, _: ValueId, _: &[u8]| {
        seen += 1;
        seen < 2
    };
    executor.inspect(0, &inputs, Phase::Forward, &mut stop).expect("shown");
    assert_eq!(seen, 2);
}

use super::*;
use crate::device::testing::device_or_skip;
use crate::graph::{Pass, Phase};
use crate::ops::elementwise::add::Add;
use crate::ops::elementwise::relu::Relu;
use crate::plan::{self, ArenaRole, Command, Persistent, Plan, Program, SavedActivations, Staging};
use crate::tensor::TensorDesc;

const LEN: usize = 1000;

fn place(arena: u32, offset_bytes: u64) -> Allocation {
    Allocation { arena, offset_bytes, size_bytes: 4096 }
}

/// `x → relu → a → relu (in place) → b`, `w → relu → c` and `b + c → d`, where `b`, `c` and `d` are read back; all
/// transient values share an arena.
fn planned() -> Planned {
    let mut graph = Graph::new();
    let x = graph.input("x", TensorDesc::f32([LEN]));
    let w = graph.parameter("w", TensorDesc::f32([LEN]));
    let a = graph.apply(Relu, &[x]).expect("fits");
    let b = graph.apply(Relu, &[a]).expect("fits");
    let c = graph.apply(Relu, &[w]).expect("fits");
    let d = graph.apply(Add, &[b, c]).expect("fits");
    for output in [b, c, d] {
        graph.mark_output(output);
    }
    let arenas = vec![
        plan::Arena { role: ArenaRole::Parameters, size_bytes: 4096 },
        plan::Arena { role: ArenaRole::Transient, size_bytes: 4 * 4096 },
    ];
    let staging = Staging { upload_slot_bytes: 1024, upload_slots: 2, readback_bytes: 1024 };
    let nodes: Vec<_> = graph.node_ids().collect();
    let program = Program {
        pass: Pass::Evaluate,
        samples: LEN,
        graph_hash: graph.hash(),
        commands: [(place(1, 4096), None), (place(1, 4096), Some(0)), (place(1, 8192), None), (place(1, 12288), None)]
            .into_iter()
            .zip(nodes)
            .map(|((output, in_place), node)| Command::Dispatch {
                node,
                outputs: vec![output],
                workspaces: Vec::new(),
                in_place,
            })
            .chain([Command::Free { value: x }])
            .collect(),
        places: [(x, place(1, 0)), (w, place(0, 0))].into(),
        live_peak_bytes: 4 * 4096,
        predicted_ns: 0,
    };
    let bytes = arenas.iter().map(|arena| arena.size_bytes).sum::<u64>() + staging.total_bytes();
    let plan = Plan {
        batch: LEN,
        budget_bytes: None,
        peak_bytes: bytes,
        unconstrained_peak_bytes: bytes,
        unconstrained_step_ns: 0,
        minimum_budget_bytes: bytes,
        threads: None,
        micro_batches: vec![LEN],
        saved: SavedActivations::Full,
        fused: false,
        schedule: vec![0],
        evaluate: Some(0),
        programs: vec![program],
        arenas,
        persistent: vec![Persistent {
            name: "w".to_owned(),
            role: Role::Parameter,
            desc: TensorDesc::f32([LEN]),
            place: place(0, 0),
        }],
        staging,
        baseline_bytes: 0,
        predicted_step_ns: 0,
        bound: None,
        reasons: Vec::new(),
    };
    Planned { plan, graphs: vec![graph.into()] }
}

fn data(shift: f32) -> Vec<f32> {
    (0..LEN).map(|i| i as f32 - shift).collect()
}

fn relu(data: &[f32]) -> Vec<u8> {
    data.iter().flat_map(|x| x.max(0.0).to_le_bytes()).collect()
}

#[test]
fn a_plan_runs_and_its_peak_is_the_ledgers() {
    let Some(device) = device_or_skip() else { return };
    let baseline = device.baseline_bytes();
    let planned = planned();
    let mut executor = GpuExecutor::new(device, &planned).expect("fits");
    assert_eq!(executor.peak_bytes(), baseline + planned.plan.peak_bytes);
    assert_eq!(executor.read("w").expect("reads"), vec![0; LEN * 4], "compiling changes nothing");
    // Those of ReLU, of ReLU in place, and of the sum.
    assert!((3..=4).contains(&executor.compiled().kernels), "{:?}", executor.compiled());

    let (x, w) = (data(300.0), data(700.0));
    executor.write("w", bytemuck::cast_slice(&w)).expect("writes");
    let sum: Vec<f32> = x.iter().zip(&w).map(|(x, w)| x.max(0.0) + w.max(0.0)).collect();
    for _ in 0..3 {
        executor.run(0, &[("x", bytemuck::cast_slice(&x))]).expect("runs");
        assert_eq!(executor.outputs(0).expect("reads"), [relu(&x), relu(&w), relu(&sum)]);
    }
    assert_eq!(executor.read("w").expect("reads"), bytemuck::cast_slice::<f32, u8>(&w));

    let mut seen = Vec::new();
    let x_bytes = bytemuck::cast_slice(&x);
    let mut visit = |graph: &Graph, id: ValueId, data: &[u8]| {
        assert_eq!(data.len() as u64, graph.value(id).desc.size_bytes());
        seen.push((id, data.to_vec()));
        seen.len() < 2
    };
    executor.inspect(0, &[("x", x_bytes)], Phase::Forward, &mut visit).expect("runs");
    assert_eq!(seen, [(ValueId(2), relu(&x)), (ValueId(3), relu(&x))]);
    assert_eq!(executor.peak_bytes(), baseline + planned.plan.peak_bytes);
}

#[test]
fn a_launch_reads_values_while_the_next_inputs_are_uploaded() {
    // In the launch's own submission where they fit the readback buffer, else after it.
    for readback_bytes in [4096, 256] {
        let mut planned = planned();
        planned.plan.staging.readback_bytes = readback_bytes;
        let Some(device) = device_or_skip() else { return };
        let mut executor = GpuExecutor::new(device, &planned).expect("fits");
        let (x, next, w) = (data(300.0), data(500.0), data(700.0));
        executor.write("w", bytemuck::cast_slice(&w)).expect("writes");
        executor.upload(0, &[("x", bytemuck::cast_slice(&x))]).expect("uploads");
        executor.launch(0, &["w"]).expect("runs");
        executor.upload(0, &[("x", bytemuck::cast_slice(&next))]).expect("uploads");
        assert_eq!(executor.outputs(0).expect("reads")[0], relu(&x));
        assert_eq!(executor.collect().expect("reads"), [bytemuck::cast_slice::<f32, u8>(&w)]);
        assert!(executor.collect().expect("reads").is_empty(), "what was read is there once");
        executor.launch(0, &[]).expect("runs");
        assert_eq!(executor.outputs(0).expect("reads")[0], relu(&next));
    }
}

#[test]
fn wrong_inputs_and_plans_are_errors() {
    let Some(device) = device_or_skip() else { return };
    let mut executor = GpuExecutor::new(device, &planned()).expect("fits");
    let x = [0_u8; LEN * 4];
    let is_refused = |result: Result<(), DeviceError>| matches!(result, Err(DeviceError::Validation { .. }));
    assert!(is_refused(executor.run(0, &[])));
    assert!(is_refused(executor.run(0, &[("x", &x[4..])])));
    assert!(is_refused(executor.run(0, &[("x", &x), ("y", &x)])));
    assert!(is_refused(executor.run(1, &[("x", &x)])));
    assert!(is_refused(executor.write("x", &x)));
    assert!(is_refused(executor.write("w", &x[1..])));
    assert!(executor.run(0, &[("x", &x)]).is_ok());

    let refused = |change: &dyn Fn(&mut Planned)| {
        let mut planned = planned();
        change(&mut planned);
        let device = device_or_skip().expect("was there before");
        assert!(is_refused(GpuExecutor::new(device, &planned).map(|_| ())));
    };
    refused(&|planned| planned.plan.programs[0].graph_hash.clear());
    refused(&|planned| planned.graphs.clear());
    refused(&|planned| planned.plan.programs[0].places.clear());
    refused(&|planned| planned.plan.arenas[1].size_bytes = 4096);
    let (value, to) = (ValueId(0), place(1, 0));
    refused(&|planned| planned.plan.programs[0].commands.push(Command::Prefetch { value, from: place(9, 0), to }));
}

#[test]
fn a_device_that_is_too_small_is_an_error() {
    let Some(device) = device_or_skip() else { return };
    let planned = planned();
    device.set_fake_limit_bytes(Some(device.baseline_bytes() + planned.plan.peak_bytes - 1));
    assert!(matches!(GpuExecutor::new(device, &planned).map(|_| ()), Err(DeviceError::OutOfMemory { .. })));
}

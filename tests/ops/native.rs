//! Link 3 for the CPU: the native form of every op, of its backward and of updates, or what stands in for it, against the twin: with
//! every kind of vectors that this processor has, on one, two and three threads, and with each input whose memory the output may
//! take over.
//!
//! As in `gpu.rs`, each node of a case's small graph runs alone on inputs that are exact in f32, and the reference is the twin in
//! f64. With any number of threads the bits are the same.

use libtest_mimic::Failed;
use tightfit::graph::Node;
use tightfit::native::{Cores, Level};
use tightfit::tensor::{DType, TensorDesc, ValueId};
use tightfit::testing::{Case, Entry, run_op_on_cpu};

use crate::common::compare::{Tolerance, close};
use crate::common::eval::{Buf, Mini};
use crate::common::fill;
use crate::finite_differences::grad_outputs;
use crate::golden::differentiable_outputs;
use crate::gpu::{TOLERANCE, decode};
use crate::{Report, cases};

/// Cores with the same vectors, and one, two, three threads.
type Threads = [Cores; 3];

/// All nodes of all cases of an op.
pub fn check(entry: Entry) -> Result<(), Failed> {
    let mut report = Report::default();
    let of_level = |level| [1, 2, 3].map(|threads| Cores::new(threads, level));
    let levels: Vec<Threads> = Level::available().into_iter().map(of_level).collect();
    for case in &cases(entry) {
        check_case(&mut report, &levels, entry.name, case);
    }
    // Nothing runs of ops that are views alone.
    let are_views = cases(entry).iter().all(|case| case.op.is_view());
    report.require(report.checks > 0 || are_views, "nothing was checked");
    report.finish()
}

fn check_case(report: &mut Report, levels: &[Threads], op: &str, case: &Case) {
    let descs: Vec<_> = case.inputs.iter().map(|(desc, _)| desc.clone()).collect();
    let outputs = match case.op.outputs(&descs) {
        Ok(outputs) => outputs,
        Err(error) => return report.require(false, format!("{}: {error}", case.name)),
    };
    match Mini::variants(&case.op, &descs, &differentiable_outputs(op, outputs.len()), &case.wanted) {
        Ok(variants) => variants.iter().for_each(|mini| check_nodes(report, levels, op, case, mini)),
        Err(error) => report.require(false, format!("{}: {error}", case.name)),
    }
}

fn check_nodes(report: &mut Report, levels: &[Threads], op: &str, case: &Case, mini: &Mini) {
    let grad_outputs = grad_outputs(op, case, mini);
    let mut values = mini.sources::<f64>(&fill::inputs(op, case), &grad_outputs);
    for node in mini.graph.nodes() {
        let (outputs, mutated) = mini.run_node(node, &values);
        if !node.op.is_view() {
            let input = |&id: &ValueId| {
                let data = values[id.index()].as_ref().expect("a value is read before it is made");
                (mini.graph.value(id).desc.clone(), data.to_bytes())
            };
            let inputs: Vec<_> = node.inputs.iter().map(input).collect();
            let expected: Vec<_> = outputs.iter().chain(&mutated).cloned().collect();
            levels.iter().for_each(|threads| check_node(report, threads, case, node, mini, &inputs, &expected));
        }
        for (&id, data) in node.outputs.iter().zip(outputs) {
            values[id.index()] = Some(data.round_to_f32());
        }
        for (&i, data) in node.op.mutates().iter().zip(mutated) {
            values[node.inputs[i].index()] = Some(data.round_to_f32());
        }
    }
}

fn check_node(
    report: &mut Report,
    threads: &Threads,
    case: &Case,
    node: &Node,
    mini: &Mini,
    inputs: &[(TensorDesc, Vec<u8>)],
    expected: &[Buf<f64>],
) {
    let mut descs = mini.descs(&node.outputs);
    descs.extend(node.op.mutates().iter().map(|&i| inputs[i].0.clone()));
    let pairs = node.op.in_place().iter();
    let pairs = pairs.filter(|(i, o)| *o == 0 && inputs[*i].0.size_bytes() == descs[*o].size_bytes());
    let in_place: Vec<_> = std::iter::once(None).chain(pairs.map(|&(input, _)| Some(input))).collect();
    for in_place in in_place {
        let (name, op) = (&case.name, node.op.name());
        let label = format!("{name} {op} {:?}, in place {in_place:?}", threads[0].level());
        let run = |cores: &Cores| run_op_on_cpu(cores, &*node.op, inputs, in_place).map_err(|error| error.to_string());
        let [single, others @ ..] = threads.each_ref().map(run);
        for (i, other) in others.iter().enumerate() {
            report.require(*other == single, format!("{label}: other bits on {} threads than on one", i + 2));
        }
        let found = match single {
            Ok(found) => found,
            Err(error) => {
                report.require(false, format!("{label}: {error}"));
                continue;
            }
        };
        report.require(found.len() == expected.len(), format!("{label}: {} results", found.len()));
        for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
            let tolerance = match descs[i].dtype {
                DType::U32 => Tolerance { scale: 0.0, relative: 0.0, absolute: 0.0 },
                _ => TOLERANCE.terms(case.reduction),
            };
            let found = decode(&descs[i], found);
            report.check(format!("{label} result {i}"), close(&found, &expected.to_f64(), tolerance));
        }
    }
}

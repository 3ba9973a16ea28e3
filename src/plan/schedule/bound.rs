//! What no schedule of a candidate can avoid.

use std::collections::{BTreeMap, BTreeSet};

use super::graph_problem::GraphProblem;
use super::offload::{Hostable, OffloadPolicy};
use super::solver::{LowerBound, Resident, certificate};
use crate::plan::candidate::{Candidate, ProgramGraph};
use crate::plan::layout::fixed_bytes;
use crate::plan::search::Depth;
use crate::plan::{Bound, Levers};

/// What no plan of these programs in this order can avoid under the budget. It is for plans that offload where one under this
/// policy may.
pub(crate) fn step_bound(candidate: &Candidate<'_>, policy: &OffloadPolicy, budget_bytes: u64) -> Bound {
    let request = candidate.request;
    // Where offload is a last resort, a plan without it is measured against those without it.
    let offload = request.levers.offload && (policy.moves || !request.costs.unified_memory);
    let levers = Levers { offload, ..request.levers };
    let hostable = Hostable::of(&candidate.programs);
    // Persistent values count with the transient ones where they can be moved; else they are taken from the start.
    let hosted: BTreeSet<String> = hostable.iter().map(|value| value.name.clone()).collect();
    let fixed_bytes = fixed_bytes(candidate, &OffloadPolicy { hosted, moves: false });
    let headroom_bytes = budget_bytes.saturating_sub(fixed_bytes);
    let mut bound = Bound { step_ns: 0.0, shadow_price_ns_per_byte: 0.0 };
    // Micro-batches share programs.
    let mut of_program: Vec<Option<Bound>> = vec![None; candidate.programs.len()];
    for &number in &candidate.program_of {
        let run = *of_program[number].get_or_insert_with(|| {
            let program = &candidate.programs[number];
            let problem = GraphProblem::new(program, &program.storage, &request.costs, levers).problem;
            let problem = problem.with_residents(residents(program, &hostable, candidate, offload));
            let work = Depth::Thorough.bound_work(problem.len());
            let LowerBound { extra_cost, price, .. } = certificate(&problem, headroom_bytes, work);
            let finite = |x: f64| if x.is_finite() { x } else { 0.0 };
            // Each operation counts in whole nanoseconds here, so up to half of one too many.
            let plain_ns = problem.plain_cost() as f64 - problem.len() as f64 / 2.0;
            Bound { step_ns: plain_ns + finite(extra_cost), shadow_price_ns_per_byte: finite(price) }
        });
        bound.step_ns += run.step_ns;
        bound.step_ns += request.costs.run_ns();
        bound.shadow_price_ns_per_byte += run.shadow_price_ns_per_byte;
    }
    bound
}

/// Persistent values, with what having them in the host tier costs this program at least.
fn residents(program: &ProgramGraph, hostable: &[Hostable], candidate: &Candidate<'_>, offload: bool) -> Vec<Resident> {
    let (graph, costs) = (&program.graph, &candidate.request.costs);
    let mut here = BTreeMap::new();
    for value in graph.values().iter().filter(|value| value.role.is_persistent()) {
        here.entry(value.name.as_str()).or_insert(value);
    }
    let mut changed = BTreeSet::new();
    for node in graph.nodes() {
        let roots = node.op.mutates().iter().map(|&i| program.storage.root(node.inputs[i]));
        changed.extend(roots.map(|root| graph.value(root).name.as_str()));
    }
    let residents = hostable.iter().map(|&Hostable { ref name, size_bytes, .. }| {
        let cost = match here.get(name.as_str()) {
            None => 0.0,
            Some(value) if value.producer.is_some() => costs.offload_ns(size_bytes),
            Some(_) if changed.contains(name.as_str()) => costs.prefetch_ns(size_bytes) + costs.offload_ns(size_bytes),
            Some(_) => costs.prefetch_ns(size_bytes),
        };
        Resident { bytes: size_bytes, cost: offload.then_some(cost as u64) }
    });
    residents.collect()
}

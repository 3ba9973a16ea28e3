//! What the commands of a step take: predicted, or as far as it was measured.

use std::sync::Arc;

use super::super::{Command, CostModel, Plan, Planned, Program};
use crate::graph::Graph;
use crate::tensor::ValueId;

/// In the place of a clock.
const PREDICTED: &str = "predicted";

/// What runs and commands of a step take.
#[derive(Clone, Debug, PartialEq)]
pub struct StepTimes {
    /// Where the times of nodes come from: `predicted`, or the clock by which they were measured.
    pub clock: String,
    /// One for each micro-batch, in order.
    pub runs: Vec<RunTimes>,
}

/// What one run of a program takes.
#[derive(Clone, Debug, PartialEq)]
pub struct RunTimes {
    /// What it takes besides its commands: upload, submission and readback, predicted.
    pub run_ns: f64,
    /// One for each of [`Program::commands`], 0 for those that take no time. Copies are predicted.
    pub commands_ns: Vec<f64>,
}

impl StepTimes {
    /// What a step of this plan takes by these costs.
    pub fn predicted(planned: &Planned, costs: &CostModel) -> Self {
        let of_program = |(program, graph): (&Program, &Arc<Graph>)| {
            let nodes_ns = costs.all_ns(graph);
            let size_bytes = |value: ValueId| graph.values().get(value.index()).map_or(0, |v| v.desc.size_bytes());
            let commands = program.commands.iter().map(|command| match *command {
                Command::Dispatch { node, .. } => nodes_ns.get(node.index()).copied().unwrap_or_default(),
                Command::Offload { value, .. } => costs.offload_ns(size_bytes(value)),
                Command::Prefetch { value, .. } => costs.prefetch_ns(size_bytes(value)),
                Command::Free { .. } => 0.0,
            });
            RunTimes { run_ns: costs.run_ns(), commands_ns: commands.collect() }
        };
        let programs: Vec<_> = planned.plan.programs.iter().zip(&planned.graphs).map(of_program).collect();
        let runs = planned.plan.schedule.iter().filter_map(|&number| programs.get(number).cloned());
        StepTimes { clock: PREDICTED.to_owned(), runs: runs.collect() }
    }

    /// With what the nodes of each micro-batch took by this clock, in the order in which they ran.
    #[must_use]
    pub fn with_measured_nodes(mut self, plan: &Plan, clock: &str, nodes_ns: &[Vec<f64>]) -> Self {
        clock.clone_into(&mut self.clock);
        for ((run, &number), nodes_ns) in self.runs.iter_mut().zip(&plan.schedule).zip(nodes_ns) {
            let Some(program) = plan.programs.get(number) else { continue };
            let commands = program.commands.iter().zip(&mut run.commands_ns);
            let nodes = commands.filter(|(command, _)| matches!(command, Command::Dispatch { .. }));
            nodes.zip(nodes_ns).for_each(|((_, ns), measured)| *ns = *measured);
        }
        self
    }

    /// Whether the times of nodes were measured.
    pub fn is_measured(&self) -> bool {
        self.clock != PREDICTED
    }

    /// The whole step.
    pub fn total_ns(&self) -> f64 {
        self.runs.iter().map(|run| run.run_ns + run.commands_ns.iter().sum::<f64>()).sum()
    }
}

//! How many bytes of transient memory hold what over the commands of a step.

use super::super::{Planned, Program};
use super::ink::action_name;
use super::timeline::{Content, Timeline};

/// What transient memory holds while one command runs, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryMoment {
    /// What the command does: `upload`, `forward`, `backward`, `update`, `recompute`, `offload` or `fetch`.
    pub action: &'static str,
    /// Samples and their targets.
    pub input_bytes: u64,
    /// What forward made, for the first time or again.
    pub activation_bytes: u64,
    /// What backward and update made.
    pub gradient_bytes: u64,
    /// Scratch of the node that runs.
    pub workspace_bytes: u64,
    /// What came back from the host.
    pub fetched_bytes: u64,
}

impl MemoryMoment {
    /// All of it.
    pub fn total_bytes(&self) -> u64 {
        let &MemoryMoment { action: _, input_bytes, activation_bytes, gradient_bytes, workspace_bytes, fetched_bytes } =
            self;
        [input_bytes, activation_bytes, gradient_bytes, workspace_bytes, fetched_bytes]
            .into_iter()
            .fold(0, u64::saturating_add)
    }

    fn holds(&mut self, content: Content, bytes: u64) {
        let sum = match content {
            Content::Input => &mut self.input_bytes,
            Content::Activation => &mut self.activation_bytes,
            Content::Gradient => &mut self.gradient_bytes,
            Content::Workspace => &mut self.workspace_bytes,
            Content::Fetched => &mut self.fetched_bytes,
        };
        *sum = sum.saturating_add(bytes);
    }
}

/// Transient memory over one kind of micro-batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MicroBatchMemory {
    /// Samples of it.
    pub samples: usize,
    /// How many micro-batches of a step are such.
    pub times: usize,
    /// The upload of inputs, and each command that takes time, in order.
    pub moments: Vec<MemoryMoment>,
}

impl Planned {
    /// Transient memory over the commands of a step, for each kind of micro-batch in the order in which they come first. What is on the
    /// device besides is the same at every moment: [`Plan::fixed_bytes`](super::super::Plan::fixed_bytes).
    ///
    /// ```
    /// use tightfit::models;
    /// use tightfit::plan::Limits;
    /// use tightfit::train::{Config, plan};
    ///
    /// let model = models::builtin("mnist-mlp").expect("a built-in model");
    /// let planned = plan(model, &Config::default().batch(32), &Limits::default())?;
    /// let [only] = &planned.step_memory()[..] else { panic!("the batch is in one piece") };
    /// let most = only.moments.iter().map(|moment| moment.total_bytes()).max();
    /// assert_eq!(most, Some(planned.plan.programs[planned.plan.schedule[0]].live_peak_bytes));
    /// # Ok::<(), tightfit::error::TrainError>(())
    /// ```
    pub fn step_memory(&self) -> Vec<MicroBatchMemory> {
        let schedule = &self.plan.schedule;
        let firsts = schedule.iter().enumerate().filter(|&(at, number)| !schedule[..at].contains(number));
        let of = |(_, &number): (usize, &usize)| {
            let (program, graph) = (self.plan.programs.get(number)?, self.graphs.get(number)?);
            let times = schedule.iter().filter(|&&other| other == number).count();
            Some(memory_of(program, times, &Timeline::of(&self.plan, number, program, graph)))
        };
        firsts.filter_map(of).collect()
    }
}

fn memory_of(program: &Program, times: usize, timeline: &Timeline) -> MicroBatchMemory {
    let empty = |action| MemoryMoment {
        action,
        input_bytes: 0,
        activation_bytes: 0,
        gradient_bytes: 0,
        workspace_bytes: 0,
        fetched_bytes: 0,
    };
    let mut moments: Vec<_> = timeline.steps.iter().map(|step| empty(action_name(step.action))).collect();
    for block in &timeline.blocks {
        for moment in moments.get_mut(block.start..block.end).into_iter().flatten() {
            moment.holds(block.content, block.place.size_bytes);
        }
    }
    MicroBatchMemory { samples: program.samples, times, moments }
}

#[cfg(test)]
mod tests {
    use super::super::tests::planned;

    #[test]
    fn moments_add_up_to_what_the_plan_says() {
        let mut planned = planned();
        // As if the step had more of the same micro-batch.
        planned.plan.schedule = vec![0; 3];
        let memory = planned.step_memory();
        let [only] = &memory[..] else { panic!("{memory:?}") };
        assert_eq!((only.samples, only.times), (64, 3));
        let peak = only.moments.iter().map(super::MemoryMoment::total_bytes).max();
        assert_eq!(peak, Some(planned.plan.programs[0].live_peak_bytes));
        let actions: Vec<_> = only.moments.iter().map(|moment| moment.action).collect();
        assert_eq!(actions[..2], ["upload", "forward"]);
        for action in ["backward", "update", "recompute", "fetch"] {
            assert!(actions.contains(&action), "{action}");
        }
        let fetch = only.moments.iter().position(|moment| moment.action == "fetch").expect("it is there");
        assert!(only.moments[..fetch].iter().all(|moment| moment.fetched_bytes == 0));
        assert!(only.moments[fetch].fetched_bytes > 0 && only.moments[0].gradient_bytes == 0);
        assert!(only.moments[0].input_bytes > 0);
    }
}

//! Where the time of a step goes.

use super::trainer::Trainer;
use crate::data::Dataset;
use crate::error::TrainError;
use crate::exec::{Clock, NodeTime};

impl Trainer {
    /// One step as [`Trainer::step`] makes it, with the same results, in which every node is timed: what they took, in the
    /// order in which they ran, over all micro-batches. The step as a whole takes longer than usual, and memory beyond the
    /// plan.
    ///
    /// # Errors
    /// As [`Trainer::step`].
    pub fn profile_step(&mut self, data: &dyn Dataset, indices: &[usize]) -> Result<Vec<NodeTime>, TrainError> {
        let mut times = Vec::new();
        self.step_with(data, indices, &mut |executor, program, read| {
            times.extend(executor.profile(program, read)?);
            Ok(())
        })?;
        Ok(times)
    }

    /// Where the times of [`Trainer::profile_step`] come from.
    pub fn clock(&self) -> Clock {
        self.executor.clock()
    }
}

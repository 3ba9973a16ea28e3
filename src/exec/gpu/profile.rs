//! A run whose nodes are timed. Each launch has a pass of its own, since a pass is what every device with a clock can time.

use std::collections::HashMap;
use std::ops::Range;
use std::slice::Chunks;

use super::super::launch::Launch;
use super::super::measure::{Measure, Stopwatch, Timing};
use super::super::prepared::{Prepared, Step};
use super::super::profile::NodeTime;
use super::{Executor, GpuExecutor};
use crate::device::Timestamps;
use crate::error::DeviceError;

impl GpuExecutor {
    /// By the device's clock.
    pub(super) fn profile_by_timestamps(
        &mut self,
        program: usize,
        read: &[&str],
    ) -> Result<Vec<NodeTime>, DeviceError> {
        self.wanted = read.iter().map(|&name| name.to_owned()).collect();
        let passes =
            self.programs[program].steps.iter().filter_map(|step| step.passes(usize::MAX)).map(|passes| passes.len());
        let timestamps = self.device.create_timestamps(passes.sum())?;
        let mut times = Vec::new();
        self.replay(program, |executor, steps| {
            let mut rest = steps;
            // Without a launch there may still be uploads.
            loop {
                let end = executor.fitting(program, rest.clone(), timestamps.passes());
                times.extend(executor.submit_timed(program, rest.start..end, &timestamps)?);
                rest.start = end;
                if rest.is_empty() {
                    return Ok(());
                }
            }
        })?;
        Ok(times)
    }

    /// By the host's clock, for devices without.
    pub(super) fn profile_by_stopwatch(&mut self, program: usize, read: &[&str]) -> Result<Vec<NodeTime>, DeviceError> {
        self.launch(program, read)?;
        let prepared = self.program(program)?;
        let times = Stopwatch::new(&self.device, Timing::default())?.node_times(&[&prepared.graph])?.swap_remove(0);
        let times: HashMap<_, _> = times.into_iter().collect();
        let nodes = prepared.steps.iter().filter_map(|step| match step {
            Step::Dispatch { node, .. } => {
                let ns = times.get(node).copied().unwrap_or_default();
                Some(NodeTime::new(&prepared.graph, *node, ns, Vec::new()))
            }
            _ => None,
        });
        Ok(nodes.collect())
    }

    /// The end of as many of these steps as can be timed together.
    fn fitting(&self, program: usize, steps: Range<usize>, most: usize) -> usize {
        let mut passes = 0;
        let mut fits = |step: &Step| {
            passes += step.passes(most).map_or(0, |passes| passes.len());
            passes <= most
        };
        steps.start + self.programs[program].steps[steps.clone()].iter().take_while(|step| fits(step)).count()
    }

    /// As [`submit_steps`](Self::submit_steps), waiting for what the nodes took.
    fn submit_timed(
        &mut self,
        program: usize,
        steps: Range<usize>,
        timestamps: &Timestamps,
    ) -> Result<Vec<NodeTime>, DeviceError> {
        let Prepared { graph, steps: all, .. } = &self.programs[program];
        let mut encoder = self.device.encoder();
        self.upload.encode(&mut encoder);
        let mut passes = 0;
        for launches in all[steps.clone()].iter().filter_map(|step| step.passes(timestamps.passes())).flatten() {
            let timestamp_writes = Some(timestamps.of_pass(passes));
            let descriptor = wgpu::ComputePassDescriptor { label: None, timestamp_writes };
            let mut pass = encoder.begin_compute_pass(&descriptor);
            launches.iter().for_each(|launch| launch.record(&mut pass));
            passes += 1;
        }
        if passes > 0 {
            timestamps.resolve(&mut encoder, passes);
        }
        let submission = self.device.submit(encoder)?;
        self.upload.submitted(&submission);
        let mut times = timestamps.read(&self.device, &mut self.readback, passes)?.into_iter();
        let nodes = all[steps].iter().filter_map(|step| {
            let Step::Dispatch { node, .. } = step else { return None };
            let timed: Vec<_> = step.passes(timestamps.passes())?.zip(&mut times).collect();
            let ns = timed.iter().map(|(_, ns)| ns).sum();
            let kernels = timed.into_iter().filter_map(|(launches, ns)| match launches {
                [launch] => Some((launch.kernel(), ns)),
                _ => None,
            });
            Some(NodeTime::new(graph, *node, ns, kernels.collect()))
        });
        Ok(nodes.collect())
    }
}

impl Step {
    /// Its launches, one in each pass, or all in one where they are more than `most`.
    fn passes(&self, most: usize) -> Option<Chunks<'_, Launch>> {
        let Step::Dispatch { launches, .. } = self else { return None };
        Some(launches.chunks(if launches.len() > most { launches.len() } else { 1 }))
    }
}

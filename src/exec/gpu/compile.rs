//! Compiling the kernels of programs before they run.

use std::collections::{BTreeMap, BTreeSet};

use web_time::Instant;

use super::super::launch::Launch;
use super::super::prepared::{Draft, Prepared};
use super::{Arena, GpuExecutor};
use crate::device::{Compiled, Count, Device, in_parallel, resident_bytes, return_freed_memory};
use crate::error::DeviceError;

/// Creates the pipelines of all programs, as many at a time as there are cores, and binds their launches.
pub(super) fn bind(device: &Device, arenas: &[Arena], drafts: Vec<Draft<'_>>) -> Result<Vec<Prepared>, DeviceError> {
    measured(device, || {
        let mut kernels = BTreeSet::new();
        for draft in &drafts {
            kernels.append(&mut draft.kernels(device, arenas)?);
        }
        // Where the first launch compiles, this is the quick part, and not told of.
        let total = if device.compiles_at_launch() { 0 } else { kernels.len() };
        let count = Count::new(total);
        in_parallel(kernels.into_iter().collect(), |(kernel, variant)| {
            device.pipeline(kernel, &variant)?;
            count.add();
            Ok::<_, DeviceError>(())
        })?;
        let programs = drafts.into_iter().map(|draft| draft.bind(device, arenas)).collect::<Result<Vec<_>, _>>()?;
        Ok((programs, total))
    })
}

/// Does work that compiles so many kernels, and keeps account of it.
fn measured<T>(device: &Device, work: impl FnOnce() -> Result<(T, usize), DeviceError>) -> Result<T, DeviceError> {
    let (start, before) = (Instant::now(), resident_bytes());
    let (done, kernels) = work()?;
    return_freed_memory();
    let process_bytes = before.zip(resident_bytes()).map(|(before, after)| after.saturating_sub(before));
    device.add_compiled(Compiled { kernels, time: start.elapsed(), process_bytes });
    Ok(done)
}

impl GpuExecutor {
    /// Has the kernels of these programs compiled where the driver would wait for their first launch.
    pub(super) fn compile(&mut self, programs: &[usize]) -> Result<(), DeviceError> {
        if self.device.compiles_at_launch() {
            let done = self.programs.iter().zip(&self.compiled).filter(|(_, compiled)| **compiled);
            let done: BTreeSet<_> = done.flat_map(|(program, _)| program.launches()).map(Launch::compiled).collect();
            let launches = programs.iter().flat_map(|&program| self.programs[program].launches());
            let launches: BTreeMap<_, _> = launches.map(|launch| (launch.compiled(), launch)).collect();
            let launches: Vec<_> = launches.into_iter().filter(|(kernel, _)| !done.contains(kernel)).collect();
            let (kernels, launches): (Vec<_>, Vec<_>) = launches.into_iter().unzip();
            measured(&self.device, || {
                self.device.compile_at_launch(&kernels, |i| {
                    let mut encoder = self.device.encoder();
                    launches[i].record_empty(&mut encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default()));
                    let submission = self.device.submit(encoder)?;
                    self.device.wait(Some(submission))
                })?;
                Ok(((), kernels.len()))
            })?;
        }
        programs.iter().for_each(|&program| self.compiled[program] = true);
        Ok(())
    }
}

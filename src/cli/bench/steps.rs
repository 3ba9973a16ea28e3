//! Times training steps.
//!
//! A step takes the next batch from memory of the host, uploads it, runs forward, loss, backward and update, and has its
//! loss back, which is after the update is done. All batches are there before the first step.

use std::time::Instant;

use tightfit::command::resident_bytes;
use tightfit::device::{AdapterInfo, AvailableMemory, Compiled};
use tightfit::tensor::Half;
use tightfit::train::{Config, Precision, Processor, Trainer, plan_for};

use super::super::bytes::Budget;
use super::super::failure::Failure;
use super::super::memory::Memory;
use super::super::settings::levers_of;
use super::kernels::{self, Profile};
use super::workload::Workload;
use super::{StepArgs, process};

/// Steps that are timed however long they take.
const LEAST_STEPS: usize = 5;

/// What was measured. Times of steps are sorted; what the operating system does not tell is `None`.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) workload: Workload,
    pub(super) precision: Precision,
    pub(super) save_activations: Option<Half>,
    pub(super) device: String,
    /// Where it is not the reference.
    pub(super) adapter: Option<AdapterInfo>,
    /// Of the CPU, where native code ran on it.
    pub(super) threads: Option<usize>,
    pub(super) batch: usize,
    pub(super) micro_batches: usize,
    pub(super) parameters: usize,
    /// Milliseconds of each timed step.
    pub(super) step_ms: Vec<f64>,
    /// From the start of the process to the end of the first step.
    pub(super) cold_s: Option<f64>,
    /// The steps before those that are timed.
    pub(super) warm_s: f64,
    /// All steps.
    pub(super) total_s: f64,
    /// Loss of the first and of the last step.
    pub(super) losses: [f32; 2],
    /// Of the process, from the moment when its data is there.
    pub(super) memory: Option<Memory>,
    /// Kernels that were compiled before the first step.
    pub(super) compiled: Compiled,
    /// On the device, counted and planned.
    pub(super) device_bytes: u64,
    pub(super) planned_bytes: u64,
    pub(super) budget_bytes: Option<u64>,
    /// What that was taken of, where it was not stated.
    pub(super) available: Option<AvailableMemory>,
    /// Cores that other processes and this one kept busy while steps were timed.
    pub(super) cores: Option<[f64; 2]>,
    pub(super) profile: Option<Profile>,
}

impl Measured {
    /// The step than which this share of steps is quicker.
    pub(super) fn quantile_ms(&self, share: f64) -> f64 {
        self.step_ms[((self.step_ms.len() as f64 * share) as usize).min(self.step_ms.len() - 1)]
    }

    pub(super) fn samples_per_s(&self) -> f64 {
        self.batch as f64 / self.quantile_ms(0.5) * 1e3
    }
}

pub(super) fn run(workload: Workload, args: &StepArgs) -> Result<Measured, Failure> {
    let batch = args.batch.unwrap_or(workload.batch());
    let mut config =
        Config { loss: workload.loss(), batch, levers: levers_of(&args.without, None), ..Config::default() };
    args.precision.configure(&mut config);
    Budget::put(args.budget, &mut config);
    let processor = Processor::open(&args.device.device.as_deref().into(), args.device.threads.map(usize::from))?;
    let base = resident_bytes();
    let adapter = processor.info();
    let data = workload.data(&workload.model(), batch, args.data.as_deref())?;
    let data_bytes = base.zip(resident_bytes()).map(|(before, after)| after.saturating_sub(before));
    process::forget_peak();
    let (mut trainer, available) = trainer(workload, config, processor)?;
    let indices: Vec<usize> = (0..data.len()).collect();
    let mut batches = indices.chunks(batch).cycle();
    let mut step = |trainer: &mut Trainer| {
        let start = Instant::now();
        let loss = trainer.step(&data, batches.next().expect("bug: no batches"))?.loss;
        Ok::<_, Failure>((start.elapsed().as_secs_f64() * 1e3, loss))
    };

    let start = Instant::now();
    let (mut step_ms, mut losses, mut cold_s) = (Vec::new(), Vec::new(), None);
    for _ in 0..args.warmup {
        losses.push(step(&mut trainer)?.1);
        cold_s = cold_s.or_else(process::age_s);
    }
    let warm_s = start.elapsed().as_secs_f64();
    let (timed, work) = (Instant::now(), process::work());
    while step_ms.len() < args.steps && (step_ms.len() < LEAST_STEPS || timed.elapsed().as_secs() < args.max_secs) {
        let (ms, loss) = step(&mut trainer)?;
        step_ms.push(ms);
        losses.push(loss);
        cold_s = cold_s.or_else(process::age_s);
    }
    let cores = work.zip(process::work()).map(|(before, after)| {
        let own = after.own_s - before.own_s;
        [after.all_s - before.all_s - own, own].map(|busy_s| busy_s / timed.elapsed().as_secs_f64())
    });
    let total_s = start.elapsed().as_secs_f64();
    step_ms.sort_by(f64::total_cmp);
    // Profiling takes memory of its own: the peaks come first.
    let (memory, device_bytes) = (Memory::of(&trainer, base, data_bytes), trainer.measured_peak_bytes());
    let count = args.steps.min(kernels::MOST_STEPS);
    let profile = args.profile.then(|| kernels::profile(&mut trainer, &data, &indices[..batch], count)).transpose()?;
    Ok(Measured {
        workload,
        precision: trainer.config().precision,
        save_activations: trainer.config().save_activations,
        device: trainer.device_name().to_owned(),
        adapter,
        threads: trainer.plan().threads,
        batch,
        micro_batches: trainer.plan().micro_batches.len(),
        parameters: trainer.model().parameter_count()?,
        step_ms,
        cold_s,
        warm_s,
        total_s,
        losses: [losses[0], losses[losses.len() - 1]],
        memory,
        compiled: trainer.compiled(),
        device_bytes,
        planned_bytes: trainer.plan().peak_bytes,
        budget_bytes: trainer.plan().budget_bytes,
        available,
        cores,
        profile,
    })
}

/// A trainer on a device that is open already; and what its budget was taken of, where none was stated.
fn trainer(
    workload: Workload,
    config: Config,
    mut processor: Processor,
) -> Result<(Trainer, Option<AvailableMemory>), Failure> {
    let machine = processor.machine();
    let model = workload.model();
    let planned = plan_for(model.clone(), &config, &machine)?;
    let available = config.budget_source(&machine).copied();
    let executor = processor.executor(&planned)?;
    Ok((Trainer::with_executor(model, config, planned, executor)?, available))
}

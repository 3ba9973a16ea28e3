//! When memory goes or the device is lost: what is held is released, a plan for less is made, and training goes on from the last
//! snapshot in host memory.

use std::collections::BTreeMap;
use std::fmt;

use super::Trainer;
use super::planning::Planning;
use crate::device::{AvailableMemory, resident_bytes};
use crate::error::{DeviceError, PlanError, TrainError};
use crate::exec::{Executor, Released};
use crate::nn::Model;
use crate::plan::{Plan, Planned, format_bytes};
use crate::tensor::plural;
use crate::train::backend::Backend;
use crate::train::callbacks::CallbackState;
use crate::train::checkpoint::State;
use crate::train::machine::Machine;
use crate::train::settings::Config;

/// Each budget of the ladder is this share of the one before.
const RUNG: f64 = 0.8;
/// Times that a device may be lost without a step in between.
const MOST_LOSSES: u32 = 5;

/// Memory of the host that planning and much else take.
const ROOM_BYTES: u64 = 8 << 20;

/// Whether so much memory of the host can be had.
fn has_room(size_bytes: u64) -> bool {
    // The system may promise more than it has.
    if crate::device::most_memory().is_some_and(|most| most < size_bytes) {
        return false;
    }
    let mut probe = Vec::<u8>::new();
    probe.try_reserve_exact(usize::try_from(size_bytes).unwrap_or(usize::MAX)).is_ok()
}

/// What is done where memory goes or the device is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Whether training goes on under a plan for less memory, each budget four fifths of the one before. Where it does not, it ends
    /// with an error, and with a checkpoint where checkpoints are written.
    pub replan: bool,
    /// Steps between two snapshots in host memory, from which it goes on: of parameters, buffers and optimizer state.
    pub snapshot_every: u64,
}

impl Default for Recovery {
    fn default() -> Self {
        Recovery { replan: true, snapshot_every: 100 }
    }
}

/// Training that began anew from an earlier step.
#[derive(Clone, Debug, PartialEq)]
pub struct Replan {
    /// What happened.
    pub reason: String,
    /// The step after which it happened.
    pub at_step: u64,
    /// The step that training goes on from.
    pub from_step: u64,
    /// Planned peak before and now.
    pub peak_bytes: (u64, u64),
    /// Micro-batches of a step before and now. Where they differ, sums are rounded otherwise from here on.
    pub micro_batches: (usize, usize),
}

impl fmt::Display for Replan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Replan { reason, at_step, from_step, peak_bytes: (before, now), micro_batches } = self;
        write!(f, "after step {at_step}: {reason}. ")?;
        if before == now {
            write!(f, "The device was opened again")?;
        } else {
            write!(f, "Planned again for a peak of {} in place of {}", format_bytes(*now), format_bytes(*before))?;
        }
        match micro_batches {
            (before, now) if before == now => write!(f, ", the same split of the batch")?,
            (before, now) => {
                write!(f, ", {} a step in place of {before}", plural(*now, "micro-batch"))?;
                write!(f, ": results are rounded otherwise from here on")?;
            }
        }
        write!(f, "; training goes on from step {from_step}")
    }
}

/// All that lasts, at a step, in host memory.
#[derive(Debug)]
pub(in crate::train) struct Snapshot {
    pub(in crate::train) state: State,
    pub(in crate::train) callbacks: BTreeMap<String, CallbackState>,
    /// By name.
    pub(in crate::train) tensors: Vec<(String, Vec<u8>)>,
}

/// A device with a plan for it.
pub(super) struct Opened {
    pub(super) planned: Planned,
    pub(super) executor: Box<dyn Executor>,
    pub(super) machine: Machine,
    pub(super) unified_memory: bool,
    /// What the budget was taken of, where none was stated.
    pub(super) budget_source: Option<AvailableMemory>,
    /// Of this process, before the executor was made.
    pub(super) base_bytes: Option<u64>,
}

/// Whether less memory, or another try, may help.
pub(super) fn is_recoverable(error: &TrainError) -> bool {
    use DeviceError::{HostMemory, Lost, OutOfMemory, Timeout};
    matches!(error, TrainError::Device(OutOfMemory { .. } | HostMemory(_) | Lost { .. } | Timeout { .. }))
}

fn is_loss(error: &TrainError) -> bool {
    matches!(error, TrainError::Device(DeviceError::Lost { .. } | DeviceError::Timeout { .. }))
}

/// What happened, without what there is to do about it.
fn what_failed(error: &TrainError) -> String {
    match error {
        TrainError::Device(DeviceError::OutOfMemory { label, size_bytes }) => {
            format!("there was no memory on the device for `{label}` of {}", format_bytes(*size_bytes))
        }
        TrainError::Device(DeviceError::Lost { reason }) => format!("the device was lost ({reason})"),
        error => error.to_string(),
    }
}

/// Opens the device and makes an executor; where there is no memory for it, of a plan for less. `config` then has the budget.
pub(super) fn begin(
    backend: &mut dyn Backend,
    planning: &Planning,
    model: &Model,
    config: &mut Config,
) -> Result<Opened, TrainError> {
    let (machine, unified_memory) = backend.open()?;
    let planned = planning.plan(model, config, &machine)?;
    make_executor(backend, planning, model, config, (machine, unified_memory), planned)
}

/// An executor of this plan; where there is no memory for it, of one for less.
pub(super) fn make_executor(
    backend: &mut dyn Backend,
    planning: &Planning,
    model: &Model,
    config: &mut Config,
    (machine, unified_memory): (Machine, bool),
    mut planned: Planned,
) -> Result<Opened, TrainError> {
    let budget_source = config.budget_source(&machine).copied();
    config.budget_bytes = config.budget_on(&machine)?;
    if let Some(available) = &budget_source {
        log::info!("budget: {}, of {available}", format_bytes(available.budget_bytes()));
    }
    let base_bytes = resident_bytes();
    loop {
        match backend.executor(&planned).map_err(TrainError::from) {
            Ok(executor) => {
                return Ok(Opened { planned, executor, machine, unified_memory, budget_source, base_bytes });
            }
            Err(error) if config.recovery.replan && is_recoverable(&error) && has_room(ROOM_BYTES) => {
                let (machine, _) = backend.open()?;
                planned = smaller(&planned.plan, planning, model, config, &machine, error)?;
                let peak = format_bytes(planned.plan.peak_bytes);
                log::warn!("there is less memory than planned for: planned again for a peak of {peak}");
            }
            Err(error) => return Err(error),
        }
    }
}

/// A plan at the next smaller budget of the ladder: with the same micro-batches if there is one, so that the bits stay. Where there
/// is none, the error that made it needed.
fn smaller(
    plan: &Plan,
    planning: &Planning,
    model: &Model,
    config: &mut Config,
    machine: &Machine,
    error: TrainError,
) -> Result<Planned, TrainError> {
    let mut budget_bytes = (plan.peak_bytes as f64 * RUNG) as u64;
    let same_split = Config { micro_batches: Some(plan.micro_batches.len()), ..config.clone() };
    for candidate in [same_split, config.clone()] {
        let candidate = Config { budget_bytes: Some(budget_bytes), ..candidate };
        match planning.plan(model, &candidate, machine) {
            Ok(planned) => {
                config.budget_bytes = Some(budget_bytes);
                return Ok(planned);
            }
            // The last rung.
            Err(TrainError::Plan(PlanError::Infeasible { minimum_budget_bytes, .. }))
                if minimum_budget_bytes < plan.peak_bytes =>
            {
                budget_bytes = budget_bytes.max(minimum_budget_bytes);
            }
            Err(TrainError::Plan(PlanError::Infeasible { .. })) => {}
            Err(other) => return Err(other),
        }
    }
    let candidate = Config { budget_bytes: Some(budget_bytes), ..config.clone() };
    let planned = planning.plan(model, &candidate, machine).map_err(|_| error)?;
    config.budget_bytes = Some(budget_bytes);
    Ok(planned)
}

impl Trainer {
    /// Keeps all that lasts in host memory.
    pub(super) fn take_snapshot(
        &mut self,
        state: State,
        callbacks: BTreeMap<String, CallbackState>,
    ) -> Result<(), TrainError> {
        // What is kept must not take what the next step needs. That is tried first, since what is given back may stay in pieces.
        let size_bytes = self.lasting_bytes().saturating_add(self.executor.working_bytes());
        if has_room(size_bytes.saturating_add(ROOM_BYTES)) {
            let mut tensors = Vec::new();
            for name in self.lasting_names() {
                let bytes = self.executor.read(&name)?;
                tensors.push((name, bytes));
            }
            self.snapshot = Some(Snapshot { state, callbacks, tensors });
        } else {
            // The one before stays, if there is one, from which more steps are repeated.
            log::warn!("no snapshot of step {}: there is no memory of the host to spare", self.steps);
        }
        Ok(())
    }

    /// Releases what the plan holds, makes another and goes back to the last snapshot; its state and callbacks' are then to be taken
    /// up.
    pub(super) fn recover(&mut self, error: TrainError) -> Result<Replan, TrainError> {
        let (Some(_), true) = (&self.snapshot, self.config.recovery.replan && has_room(ROOM_BYTES)) else {
            return Err(error);
        };
        let Some(mut backend) = self.backend.take() else { return Err(error) };
        let result = self.recover_on(&mut *backend, error);
        self.backend = Some(backend);
        result
    }

    fn recover_on(&mut self, backend: &mut dyn Backend, error: TrainError) -> Result<Replan, TrainError> {
        let (reason, at_step, before) = (what_failed(&error), self.steps, self.planned.plan.clone());
        self.executor = Box::new(Released);
        let mut error = error;
        for losses in 0.. {
            if losses > MOST_LOSSES {
                return Err(error);
            }
            match self.try_again(backend, error, losses) {
                Ok(()) => break,
                Err(another) if is_recoverable(&another) => {
                    self.executor = Box::new(Released);
                    error = another;
                }
                Err(another) => return Err(another),
            }
        }
        let now = &self.planned.plan;
        Ok(Replan {
            reason,
            at_step,
            from_step: self.steps,
            peak_bytes: (before.peak_bytes, now.peak_bytes),
            micro_batches: (before.micro_batches.len(), now.micro_batches.len()),
        })
    }

    fn try_again(&mut self, backend: &mut dyn Backend, error: TrainError, losses: u32) -> Result<(), TrainError> {
        let (machine, _) = backend.open()?;
        // A device that was lost may have been lost for another reason than memory.
        if !is_loss(&error) || losses > 0 || self.failures > 0 {
            self.planned = smaller(&self.planned.plan, &self.planning, &self.model, &mut self.config, &machine, error)?;
        } else {
            let same = Config { micro_batches: Some(self.planned.plan.micro_batches.len()), ..self.config.clone() };
            self.planned = self.planning.plan(&self.model, &same, &machine)?;
        }
        self.failures += 1;
        self.executor = backend.executor(&self.planned)?;
        let snapshot = self.snapshot.as_ref().expect("bug: there is no snapshot to go on from");
        for (name, bytes) in &snapshot.tensors {
            self.executor.write(name, bytes)?;
        }
        let state = snapshot.state.clone();
        self.take_up(&state);
        Ok(())
    }
}

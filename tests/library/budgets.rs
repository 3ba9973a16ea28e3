//! Budgets that are taken of what a device has free.

use tightfit::data::{Targets, TensorDataset, Values};
use tightfit::device::{AvailableMemory, Device, MemorySource};
use tightfit::error::{DeviceError, PlanError, TrainError};
use tightfit::exec::{CpuExecutor, Executor};
use tightfit::nn::Sequential;
use tightfit::plan::{Limits, Planned};
use tightfit::testing::device_or_skip;
use tightfit::train::{
    Backend, Config, DeviceSelector, FitOptions, Machine, Optimizer, Trainer, max_batch, plan, plan_for, sweep,
};

const MIB: u64 = 1 << 20;

/// The reference, as if the driver reported that so much is free, and refusing so many plans for want of memory.
struct Reporting {
    free: Option<AvailableMemory>,
    refused: u32,
}

impl Backend for Reporting {
    fn open(&mut self) -> Result<(Machine, bool), DeviceError> {
        Ok((Machine { available: self.free, ..Machine::reference() }, true))
    }

    fn executor(&mut self, planned: &Planned) -> Result<Box<dyn Executor>, DeviceError> {
        if self.refused > 0 {
            self.refused -= 1;
            return Err(DeviceError::OutOfMemory { label: "injected".to_owned(), size_bytes: MIB });
        }
        Ok(Box::new(CpuExecutor::new(planned)?))
    }
}

fn free(free_bytes: u64) -> AvailableMemory {
    AvailableMemory { free_bytes, total_bytes: free_bytes, source: MemorySource::Driver }
}

/// Takes at least three times the 8 MiB of its first layer.
fn wide() -> Sequential {
    Sequential::new("wide", [1, 32, 32]).flatten().linear(2048).relu().linear(10)
}

/// Has activations to save memory on.
fn deep() -> Sequential {
    Sequential::new("deep", [1, 32, 32]).conv2d(16, 3).silu().conv2d(16, 3).silu().avg_pool2d(4).flatten().linear(10)
}

fn config() -> Config {
    Config::default().batch(4).micro_batches(1).optimizer(Optimizer::adam(0.001)).auto_budget(true)
}

fn trainer(model: Sequential, free: Option<AvailableMemory>, refused: u32) -> Result<Trainer, TrainError> {
    Trainer::with_backend(model, config(), Box::new(Reporting { free, refused }))
}

fn data() -> TensorDataset {
    let values = (0..8 * 1024).map(|i| ((i * 7919) % 1009) as f32 / 1009.0 - 0.5).collect();
    TensorDataset::new(Values::F32(values), [1, 32, 32], Targets::labels((0..8).collect(), 10)).unwrap()
}

/// Trains two steps; the hash of the parameters.
fn trained(mut trainer: Trainer) -> String {
    trainer.fit(&data(), FitOptions::epochs(1)).unwrap();
    assert_eq!(trainer.measured_peak_bytes(), trainer.plan().peak_bytes);
    trainer.parameters_sha256().unwrap()
}

#[test]
fn what_is_free_less_a_margin_is_the_budget() {
    let unlimited = Trainer::new(deep(), config().auto_budget(false), DeviceSelector::Reference).unwrap();
    let (need, least) = (unlimited.plan().peak_bytes, unlimited.plan().minimum_budget_bytes);
    let expected = trained(unlimited);
    // Enough for the fastest plan, and less than that.
    for (bytes, is_enough) in [(need * 100, true), (need.midpoint(least) + 64 * MIB, false)] {
        let memory = free(bytes);
        let trainer = trainer(deep(), Some(memory), 0).unwrap();
        assert_eq!(trainer.config().budget_bytes, Some(memory.budget_bytes()));
        assert_eq!(trainer.plan().budget_bytes, Some(memory.budget_bytes()));
        assert_eq!(trainer.budget_source(), Some(&memory));
        assert_eq!(trainer.plan().peak_bytes == need, is_enough);
        assert!(trainer.plan().peak_bytes <= memory.budget_bytes() && memory.budget_bytes() < bytes);
        assert_eq!(trained(trainer), expected);
    }
}

#[test]
fn where_what_is_free_is_not_enough_it_says_so() {
    let memory = free(70 * MIB);
    let machine = Machine { available: Some(memory), ..Machine::reference() };
    let of_trainer = trainer(wide(), Some(memory), 0).map(drop);
    let of_plan = plan_for(wide(), &config(), &machine).map(drop);
    let of_batch = max_batch(wide(), &config(), &machine).map(drop);
    for result in [of_trainer, of_plan, of_batch] {
        let Err(TrainError::Plan(PlanError::Infeasible { budget_bytes, minimum_budget_bytes, message, .. })) = result
        else {
            panic!("{result:?}");
        };
        assert_eq!(budget_bytes, 6 * MIB);
        assert!(minimum_budget_bytes > 24 * MIB);
        assert!(message.starts_with("a budget of 6.0 MiB is too small"), "{message}");
        let source = "the budget was taken of 70.0 MiB that the driver reports as free: free some, or state a budget";
        assert!(message.ends_with(source), "{message}");
    }
    // One that was stated is to blame by itself.
    let stated = plan_for(wide(), &config().budget_bytes(MIB), &machine).unwrap_err().to_string();
    assert!(stated.contains("too small") && !stated.contains("was taken"), "{stated}");
}

#[test]
fn what_is_not_known_is_not_guessed() {
    let unknown = |result: Result<(), TrainError>| match result {
        Err(TrainError::Device(error @ DeviceError::UnknownMemory)) => {
            assert!(error.to_string().contains("state a budget"), "{error}");
        }
        other => panic!("{other:?}"),
    };
    unknown(trainer(deep(), None, 0).map(drop));
    unknown(plan(deep(), &config(), &Limits::any_device()).map(drop));
    // A budget that is stated is taken, and a sweep has its own.
    let nothing = Box::new(Reporting { free: None, refused: 0 });
    let stated = Trainer::with_backend(deep(), config().budget_bytes(100 * MIB), nothing).unwrap();
    assert_eq!((stated.config().budget_bytes, stated.budget_source()), (Some(100 * MIB), None));
    let machine = Machine { available: None, ..Machine::reference() };
    assert!(!sweep(deep(), &config(), &machine, 2).unwrap().is_empty());
}

#[test]
fn where_less_can_be_had_than_was_reported_there_is_a_smaller_plan() {
    let memory = free(1 << 30);
    let whole = trainer(deep(), Some(memory), 0).unwrap().plan().peak_bytes;
    let trainer = trainer(deep(), Some(memory), 1).unwrap();
    assert!(trainer.plan().peak_bytes < whole);
    assert!(trainer.config().budget_bytes < Some(whole), "the ladder begins at the plan");
    assert_eq!(trainer.budget_source(), Some(&memory));
}

#[test]
fn a_device_says_what_it_has_free() {
    let cpu = Trainer::new(deep(), config(), DeviceSelector::Cpu).unwrap();
    assert_eq!(cpu.budget_source().map(|memory| memory.source), Some(MemorySource::Host));
    let Some(device) = device_or_skip() else { return };
    let index = device.info().index;
    let listed = tightfit::device::list_with_memory().unwrap().swap_remove(index);
    assert_eq!(&listed.0, device.info());
    let Some(memory) = device.available_memory() else {
        // As through OpenGL.
        assert_eq!(listed.1, None);
        let error = Trainer::new(deep(), config(), DeviceSelector::Index(index)).unwrap_err();
        assert!(matches!(error, TrainError::Device(DeviceError::UnknownMemory)), "{error}");
        return;
    };
    println!("{}: {memory} of {} bytes; listed with {:?}", device.info().name, memory.total_bytes, listed.1);
    assert!(memory.free_bytes <= memory.total_bytes && listed.1.is_some());
    drop::<Device>(device);
    let open = |config| Trainer::new(deep(), config, DeviceSelector::Index(index)).unwrap();
    let trainer = open(config());
    let memory = *trainer.budget_source().unwrap();
    assert_eq!(trainer.config().budget_bytes, Some(memory.budget_bytes()));
    assert!(memory.budget_bytes() < memory.free_bytes);
    assert_eq!(trained(trainer), trained(open(config().auto_budget(false))));
}

//! Training goes on where memory goes or the device is lost, on a device that fails when it is told to.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use tightfit::data::{Targets, TensorDataset, Values};
use tightfit::error::DeviceError;
use tightfit::exec::{Clock, CpuExecutor, Executor, NodeTime};
use tightfit::graph::{Graph, Phase};
use tightfit::nn::{Model, Sequential};
use tightfit::plan::Planned;
use tightfit::tensor::ValueId;
use tightfit::train::{
    Backend, Callback, Checkpoint, Checkpoints, Config, FitOptions, Length, Machine, Optimizer, Recovery, Replan,
    Trainer, Unfreeze,
};

const STEPS: u64 = 20;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Failure {
    Memory,
    Loss,
}

impl Failure {
    fn error(self) -> DeviceError {
        match self {
            Failure::Memory => DeviceError::OutOfMemory { label: "injected".to_owned(), size_bytes: 1 << 20 },
            Failure::Loss => DeviceError::Lost { reason: "injected".to_owned() },
        }
    }
}

/// Which launches fail, counted over all executors, and how many executors there was no memory for.
#[derive(Clone, Default)]
pub(crate) struct Faults {
    launches: Rc<Cell<u64>>,
    at: Rc<RefCell<BTreeMap<u64, Failure>>>,
    refused: Rc<Cell<u32>>,
}

impl Backend for Faults {
    fn open(&mut self) -> Result<(Machine, bool), DeviceError> {
        Ok((Machine::reference(), true))
    }

    fn executor(&mut self, planned: &Planned) -> Result<Box<dyn Executor>, DeviceError> {
        if self.refused.get() > 0 {
            self.refused.set(self.refused.get() - 1);
            return Err(Failure::Memory.error());
        }
        Ok(Box::new(Faulty { inner: CpuExecutor::new(planned)?, faults: self.clone(), dead: false }))
    }
}

struct Faulty {
    inner: CpuExecutor,
    faults: Faults,
    /// All fails from there on, as on a device that was lost.
    dead: bool,
}

impl Faulty {
    fn check(&self) -> Result<(), DeviceError> {
        if self.dead { Err(Failure::Loss.error()) } else { Ok(()) }
    }
}

impl Executor for Faulty {
    fn device_name(&self) -> &str {
        self.inner.device_name()
    }

    fn write(&mut self, name: &str, data: &[u8]) -> Result<(), DeviceError> {
        self.check()?;
        self.inner.write(name, data)
    }

    fn read_pieces(&mut self, name: &str, visit: &mut dyn FnMut(&[u8])) -> Result<(), DeviceError> {
        self.check()?;
        self.inner.read_pieces(name, visit)
    }

    fn upload(&mut self, program: usize, inputs: &[(&str, &[u8])]) -> Result<(), DeviceError> {
        self.check()?;
        self.inner.upload(program, inputs)
    }

    fn launch(&mut self, program: usize, read: &[&str]) -> Result<(), DeviceError> {
        self.check()?;
        let launch = self.faults.launches.get();
        self.faults.launches.set(launch + 1);
        // The work is half done by then.
        self.inner.launch(program, read)?;
        if let Some(failure) = self.faults.at.borrow_mut().remove(&launch) {
            self.dead = true;
            return Err(failure.error());
        }
        Ok(())
    }

    fn collect(&mut self) -> Result<Vec<Vec<u8>>, DeviceError> {
        self.check()?;
        self.inner.collect()
    }

    fn outputs(&mut self, program: usize) -> Result<Vec<Vec<u8>>, DeviceError> {
        self.check()?;
        self.inner.outputs(program)
    }

    fn inspect(
        &mut self,
        program: usize,
        inputs: &[(&str, &[u8])],
        until: Phase,
        visit: &mut dyn FnMut(&Graph, ValueId, &[u8]) -> bool,
    ) -> Result<(), DeviceError> {
        self.inner.inspect(program, inputs, until, visit)
    }

    fn profile(&mut self, program: usize, read: &[&str]) -> Result<Vec<NodeTime>, DeviceError> {
        self.inner.profile(program, read)
    }

    fn clock(&self) -> Clock {
        self.inner.clock()
    }

    fn is_in_process(&self) -> bool {
        true
    }

    fn peak_bytes(&self) -> u64 {
        self.inner.peak_bytes()
    }
}

fn data() -> TensorDataset {
    let values = (0..40 * 64).map(|i| ((i * 7919) % 1009) as f32 / 1009.0 - 0.5).collect();
    TensorDataset::new(Values::F32(values), [1, 8, 8], Targets::labels((0..40).map(|i| i % 3).collect(), 3))
        .expect("fits")
}

fn model() -> Model {
    Sequential::new("small", [1, 8, 8]).conv2d(4, 3).relu().conv2d(4, 3).relu().dropout(0.2).flatten().linear(3).into()
}

fn config(recovery: Recovery) -> Config {
    Config::default().batch(4).optimizer(Optimizer::adam(0.01)).recovery(recovery)
}

/// Hears of every new plan.
#[derive(Default)]
struct Log(Vec<Replan>);

impl Callback for Log {
    fn name(&self) -> &str {
        "log"
    }

    fn on_replan(&mut self, _: &mut Trainer, replan: &Replan) -> Result<(), tightfit::error::TrainError> {
        self.0.push(replan.clone());
        Ok(())
    }
}

/// The parameters after a training in which this fails, and what was said of it.
fn train(config: Config, faults: &Faults) -> (BTreeMap<String, Vec<f32>>, Vec<Replan>) {
    let mut trainer = Trainer::with_backend(model(), config, Box::new(faults.clone())).expect("a trainer");
    let mut log = Log::default();
    let report =
        trainer.fit(&data(), FitOptions { callbacks: vec![&mut log], ..FitOptions::epochs(2) }).expect("trains");
    assert_eq!(report.steps, STEPS);
    assert_eq!(trainer.measured_peak_bytes(), trainer.plan().peak_bytes);
    let parameters = trainer.parameters().expect("reads");
    (parameters.into_iter().map(|(name, (_, values))| (name, values)).collect(), log.0)
}

pub(crate) fn faults(at: &[(u64, Failure)]) -> Faults {
    Faults { at: Rc::new(RefCell::new(at.iter().copied().collect())), ..Faults::default() }
}

#[test]
fn failures_change_no_bit_where_the_split_stays() {
    let every = |snapshot_every| Recovery { replan: true, snapshot_every };
    let (expected, none) = train(config(every(100)), &faults(&[]));
    assert!(none.is_empty());
    for snapshot_every in [1, 3, 100] {
        for launch in 0..STEPS {
            for failure in [Failure::Memory, Failure::Loss] {
                let (found, replans) = train(config(every(snapshot_every)), &faults(&[(launch, failure)]));
                let [replan] = &replans[..] else { panic!("{replans:?}") };
                assert!(replan.from_step <= launch && launch < replan.from_step + snapshot_every, "{replan}");
                assert_eq!(replan.micro_batches, (1, 1), "{replan}");
                // A device that is lost once is opened again as it was.
                let (before, now) = replan.peak_bytes;
                assert_eq!(failure == Failure::Memory, now < before, "{replan}");
                assert!(replan.to_string().contains("the same split of the batch"), "{replan}");
                assert!(found == expected, "{replan}");
            }
        }
    }
}

#[test]
fn memory_goes_again_and_again() {
    let (expected, _) = train(config(Recovery::default()), &faults(&[]));
    // At the start too.
    let faults = faults(&[(7, Failure::Memory)]);
    faults.refused.set(1);
    let (found, replans) = train(config(Recovery::default()), &faults);
    assert!(!replans.is_empty());
    let peaks: Vec<_> = replans.iter().map(|replan| replan.peak_bytes).collect();
    assert!(peaks.iter().all(|(before, now)| now < before), "{peaks:?}");
    for (name, expected) in &expected {
        let error = |(a, b): (&f32, &f32)| (a - b).abs();
        let most = expected.iter().zip(&found[name]).map(error).fold(0.0, f32::max);
        assert!(most < 1e-3, "{name}: {most}");
    }
}

#[test]
fn without_replanning_a_checkpoint_is_left() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let recovery = Recovery { replan: false, snapshot_every: 3 };
    let faults = faults(&[(14, Failure::Loss)]);
    let mut trainer = Trainer::with_backend(model(), config(recovery), Box::new(faults)).expect("a trainer");
    let checkpoints = Checkpoints::new(folder.path()).each_epoch(false);
    let options = || FitOptions { checkpoints: Some(checkpoints.clone()), ..FitOptions::epochs(2) };
    let error = trainer.fit(&data(), options()).expect_err("the device is lost").to_string();
    assert!(error.contains("the device was lost"), "{error}");
    let checkpoint = Checkpoint::open_latest(folder.path()).expect("the last snapshot");
    assert_eq!(checkpoint.steps(), 12);
    let mut trainer = Trainer::with_backend(model(), config(recovery), Box::new(Faults::default())).expect("a trainer");
    trainer.restore(&checkpoint).expect("the same training");
    trainer.fit(&data(), options()).expect("trains");
    let (expected, _) = train(config(Recovery::default()), &Faults::default());
    let found = trainer.parameters().expect("reads");
    assert!(found.into_iter().all(|(name, (_, values))| expected[&name] == values));
}

#[test]
fn failures_change_no_bit_of_a_fit_that_unfreezes() {
    let train = |faults: &Faults, snapshot_every| {
        let config = config(Recovery { replan: true, snapshot_every }).train_only("linear1.");
        let mut trainer = Trainer::with_backend(model(), config, Box::new(faults.clone())).expect("a trainer");
        let mut unfreeze = Unfreeze::all(Length::Steps(8));
        let options = FitOptions { callbacks: vec![&mut unfreeze], ..FitOptions::epochs(2) };
        trainer.fit(&data(), options).expect("trains");
        assert!(trainer.frozen().is_empty());
        let names = trainer.parameters().expect("reads").into_keys();
        let state = |name: String| trainer.optimizer_state(&name, "exp_avg").expect("reads").expect("trained");
        let states: Vec<_> = names.collect::<Vec<_>>().into_iter().map(state).collect();
        (states, trainer.parameters_sha256().expect("reads"))
    };
    let expected = train(&faults(&[]), 100);
    for snapshot_every in [3, 100] {
        for launch in [0, 6, 7, 8, 9, 19] {
            let found = train(&faults(&[(launch, Failure::Loss)]), snapshot_every);
            assert!(found == expected, "launch {launch}, snapshots every {snapshot_every}");
        }
    }
}

#[test]
fn a_plan_that_there_is_no_memory_for_leaves_the_one_before() {
    let faults = Faults::default();
    let recovery = Recovery { replan: false, ..Recovery::default() };
    let config = config(recovery).train_only("linear1.");
    let mut trainer = Trainer::with_backend(model(), config, Box::new(faults.clone())).expect("a trainer");
    trainer.step(&data(), &[0, 1, 2, 3]).expect("a step");
    let before = (trainer.parameters_sha256().expect("reads"), trainer.plan().clone());
    faults.refused.set(1);
    let error = trainer.unfreeze("").expect_err("no memory").to_string();
    assert!(error.contains("memory"), "{error}");
    assert_eq!((trainer.parameters_sha256().expect("reads"), trainer.plan().clone()), before);
    trainer.step(&data(), &[0, 1, 2, 3]).expect("a step");
    trainer.unfreeze("").expect("a plan");
    trainer.step(&data(), &[0, 1, 2, 3]).expect("a step");
}

//! What `advise` says is what plans say: every remedy, applied as its flags and code tell, takes what was promised.

use tightfit::models;
use tightfit::nn::{Model, Sequential};
use tightfit::plan::{DeviceClass, Levers};
use tightfit::train::{Advice, Config, Effect, Machine, Optimizer, Remedy, Trainer, advise, plan_for};

const MIB: u64 = 1 << 20;

fn machine() -> Machine {
    Machine::of_class(DeviceClass::Discrete)
}

fn named<'a>(advice: &'a Advice, start: &str) -> &'a Remedy {
    let found = advice.remedies.iter().find(|remedy| remedy.name.starts_with(start));
    found.unwrap_or_else(|| panic!("{start} is among {:?}", advice.remedies))
}

/// Alone, as other frameworks run it.
fn plain(config: &Config) -> Config {
    let levers = Levers { recompute: false, offload: false, ..config.levers };
    Config { levers, micro_batches: Some(1), budget_bytes: None, ..config.clone() }
}

fn peak(model: &Model, config: &Config) -> u64 {
    plan_for(model.clone(), config, &machine()).expect("a plan").plan.peak_bytes
}

#[test]
fn remedies_are_what_their_plans_say() {
    let model = models::mnist_cnn(10);
    let config = Config::default().batch(64).budget_bytes(30 * MIB);
    let advice = advise(&model, &config, &machine()).expect("advice");
    assert_eq!(advice.as_it_is.peak_bytes, peak(&model, &plain(&config)));
    assert!(!advice.as_it_is.fits);
    let sgd = plain(&config.clone().optimizer(Optimizer::sgd(0.01)));
    assert_eq!(named(&advice, "sgd in place of adam").peak_bytes, peak(&model, &sgd));
    let coded = plain(&config.clone().optimizer(Optimizer::adam8bit(1e-3)));
    let remedy = named(&advice, "adam8bit in place of adam");
    assert_eq!((remedy.peak_bytes, &*remedy.flags), (peak(&model, &coded), "--optimizer adam8bit"));
    assert_eq!((remedy.effect, &*remedy.code), (Effect::Training, ".optimizer(Optimizer::adam8bit(0.001))"));
    let head = plain(&config.clone().train_only("linear2."));
    let frozen = named(&advice, "all but the last layer");
    assert_eq!((frozen.peak_bytes, &*frozen.flags), (peak(&model, &head), "--train-only linear2."));
    let batch = named(&advice, "a smaller batch");
    assert!(batch.fits && batch.batch < 64);
    let at = |batch: usize| peak(&model, &plain(&config.clone().batch(batch)));
    assert!(at(batch.batch) <= 30 * MIB && at(batch.batch + 1) > 30 * MIB, "it is the largest that fits: {batch:?}");
    let best = advice.unchanged.as_ref().expect("the planner meets it");
    let planned = plan_for(model, &config, &machine()).expect("a plan").plan;
    assert!(best.effect < Effect::Training && best.step_ns <= Some(planned.predicted_step_ns));
    let rounded = advice.rounded.as_ref().expect("halves meet it");
    assert!(rounded.effect <= Effect::Precision && rounded.sample_ns() <= best.sample_ns());
    let cheapest = advice.cheapest.as_ref().expect("there is one");
    assert!(cheapest.fits && cheapest.sample_ns() <= rounded.sample_ns());
    let copies = named(&advice, "all that, copies for backward in bf16 included");
    assert!(copies.fits && copies.flags.ends_with("--allow bf16-activations"), "{copies:?}");
}

#[test]
fn the_cheapest_advice_trains_inside_the_budget() {
    let model = Model::from(Sequential::new("net", [8, 24, 24]).conv2d(16, 3).relu().batch_norm().flatten().linear(4));
    let config = Config::default().batch(32).budget_bytes(3 * MIB);
    let machine = tightfit::train::Processor::open(&"cpu".into(), Some(2)).expect("the CPU").machine();
    let advice = advise(&model, &config, &machine).expect("advice");
    let ghost = named(&advice, "4 micro-batches, each with its own statistics");
    assert_eq!((&*ghost.flags, ghost.effect), ("--micro-batches 4 --batch-norm ghost", Effect::Training));
    let best = advice.unchanged.expect("recomputing is enough");
    assert!(best.flags.contains("--budget 3MiB"), "{best:?}");
    let trainer = Trainer::new(&model, Config { threads: Some(2), ..config }, "cpu").expect("a trainer");
    assert_eq!(trainer.plan().peak_bytes, best.peak_bytes);
}

#[test]
fn where_nothing_fits_two_remedies_are_tried_together() {
    let model = models::mnist_mlp(10);
    let parameters = 4 * model.parameter_count().expect("builds") as u64;
    // Less than the parameters take.
    let none = advise(&model, &Config::default().budget_bytes(parameters / 2), &machine()).expect("advice");
    assert!(none.unchanged.is_none() && none.cheapest.is_none());
    assert!(none.remedies.iter().all(|remedy| !remedy.fits && remedy.peak_bytes > parameters / 2));
    let error = advise(&model, &Config::default(), &machine()).expect_err("no budget").to_string();
    assert!(error.contains("how many bytes"), "{error}");
}

#[test]
fn the_memory_is_that_of_the_graph() {
    let config = Config::default().batch(16).budget_bytes(64 * MIB);
    let memory = advise(&models::mnist_mlp(10), &config, &machine()).expect("advice").memory;
    let parameters = 4 * (784 * 512 + 512 + 512 * 512 + 512 + 512 * 10 + 10);
    assert_eq!(
        (memory.parameter_bytes, memory.gradient_bytes, memory.state_bytes),
        (parameters, parameters, 2 * parameters)
    );
    assert_eq!(memory.largest.len(), 10);
    assert!(memory.largest.is_sorted_by(|a, b| a.size_bytes >= b.size_bytes));
    let kinds: Vec<_> = memory.largest.iter().map(|tensor| (tensor.kind, tensor.size_bytes)).collect();
    assert!(
        kinds.contains(&("parameter", 784 * 512 * 4)) && kinds.contains(&("optimizer state", 784 * 512 * 4)),
        "{kinds:?}"
    );
}

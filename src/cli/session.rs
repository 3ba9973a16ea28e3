//! A training from its settings to its summary: what `train` and `resume` do.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::json;
use tightfit::command::{plural, resident_bytes};
use tightfit::data::{DataLoader, LoaderMemory};
use tightfit::error::{PlanError, TrainError};
use tightfit::interop;
use tightfit::nn::Model;
use tightfit::plan::{ArenaRole, Plan, format_bytes, format_ns};
use tightfit::train::{
    Callback, Checkpoint, Config, FitOptions, FitReport, Length, Loaded, LowerOnPlateau, PlanFile, Preprocessing,
    StopEarly, Trainer, Unfreeze,
};

use super::data::{self, Opened};
use super::failure::{BAD_INPUT, FAILED, Failure, INTERRUPTED, keep};
use super::find_lr::{self, Search};
use super::first_use;
use super::interrupt::{evaluate, stop_when_asked};
use super::output::{Output, shown};
use super::plan::{Kept, announce, source_of};
use super::progress::{Progress, ProgressArgs, planning};
use super::run_file::RunFile;
use super::run_folder::RunFolder;
use super::summary::{Besides, summarize};
use super::trace;
use super::weights;

/// A training, and where its results go.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) file: RunFile,
    /// The plan to run.
    pub(crate) plan: Option<PathBuf>,
    /// Where parameters are saved.
    pub(crate) save: Option<PathBuf>,
    /// Where a step is traced after training.
    pub(crate) trace: Option<PathBuf>,
    /// What is searched in place of training.
    pub(crate) find_lr: Option<Search>,
    pub(crate) no_calibrate: bool,
    pub(crate) run: Option<RunFolder>,
    pub(crate) progress: ProgressArgs,
    /// What to go on from.
    pub(crate) checkpoint: Option<Checkpoint>,
}

/// Runs a training to its end, or until it cannot go on; a run folder says how it ended.
pub(crate) fn run(mut job: Job, output: &Output) -> Result<u8, Failure> {
    let result = train(&mut job, output);
    // What was wrong was so before the first step.
    if let (Err(Failure { exit_code: BAD_INPUT, .. }), Some(run)) = (&result, &mut job.run) {
        run.discard();
    }
    match (result, &job.run) {
        (Err(failure), Some(run)) if run.is_run() => Err(ended(failure, run)),
        (result, _) => result,
    }
}

/// Keeps in the run folder why its training failed.
fn ended(failure: Failure, run: &RunFolder) -> Failure {
    // What is not a number any more would not be one again.
    let goes_on = failure.exit_code == FAILED && failure.to_json().get("kept_step").is_none();
    let failure = match goes_on && run.run().has_checkpoint() {
        true => {
            failure.and(format_args!("`tightfit resume {}` goes on from the last checkpoint", run.path().display()))
        }
        false => failure,
    };
    if run.run().summary().is_none()
        && let Err(unwritten) = run.write_summary(&failure.to_json())
    {
        log::warn!("{}", unwritten.message);
    }
    failure
}

fn train(job: &mut Job, output: &Output) -> Result<u8, Failure> {
    let Job { file, plan: plan_path, save, trace, find_lr, no_calibrate, run, progress, checkpoint } = job;
    let plan_path = plan_path.as_deref();
    let plan_file = plan_path.map(PlanFile::open).transpose()?;
    let (model, config) = file.resolve(plan_file.as_ref())?;
    if let Some(path) = save.as_deref() {
        Trainer::check_save(&model, path).map_err(|error| Failure::bad_input(format!("--save {error}")))?;
        weights::check_save("--save", path, file)?;
    }
    let before = resident_bytes();
    let Opened { model, config, train, val, test, preprocessing, text: data, notes, memory } =
        data::open(file, model, config, output)?;
    file.adapt(&model);
    if val.is_some() {
        file.data.validation.get_or_insert(true);
    }
    if let Some(checkpoint) = &checkpoint {
        check_same(checkpoint, &preprocessing)?;
    }
    // Before all that takes long.
    let steps_per_epoch = train.batches_per_epoch(config.batch, config.drop_last)? as u64;
    let data_bytes = before.zip(resident_bytes()).map(|(before, after)| after.saturating_sub(before));
    let planned_before =
        plan_path.zip(plan_file.as_ref()).map(|(path, file)| Kept { path, source: file.cost_source().cloned() });
    let plan = plan_file.map(|file| file.into_plan(&model, &config)).transpose();
    let plan = plan.map_err(|error| not_usable(plan_path, error))?;
    first_use::for_device(file.device(), *no_calibrate, output);
    let mut trainer = match plan {
        Some(plan) => Trainer::with_plan(model, config.clone(), plan, file.device())
            .map_err(|error| not_usable(plan_path, error))?,
        None => planning(output, || open_trainer(&model, &config, file.device(), checkpoint.as_ref()))
            .map_err(|error| of_all(error, &model, &config, file))?,
    };
    check_host(&trainer, &memory, file)?;
    trainer.set_preprocessing(preprocessing);
    match checkpoint {
        Some(checkpoint) => go_on(&trainer, checkpoint, output),
        None => load(file, &mut trainer, output)?,
    }
    // A run that cannot be made to its end is none.
    let after = file.model.unfreeze_after.filter(|_| find_lr.is_none());
    let later = after.map(|after| later(&trainer, file, after, output)).transpose()?;
    if let Some(run) = run {
        // The number of micro-batches is the plan's where there was one before.
        let told = if plan_path.is_some() { trainer.config() } else { &config };
        run.write_config(&file.resolved(told)?)?;
        run.write_plan(&trainer)?;
    }
    announce(&trainer, planned_before.as_ref(), (&data, &memory), output)?;
    notes.iter().for_each(|note| output.text(format_args!("{note}\n")));
    let unfreeze = file.model.unfreeze_after.map(Unfreeze::all);
    if let Some((after, Some(plan))) = after.zip(later) {
        tell_later(after, &plan, output);
    }

    let stop = stop_when_asked()?;
    if let Some(search) = find_lr {
        return find_lr::run(&mut trainer, &train, search, &stop, output);
    }
    let all_steps = steps_per_epoch.saturating_mul(file.epochs());
    let total_steps = file.steps().map_or(all_steps, |most| most.min(all_steps));
    let history = checkpoint.as_ref().and_then(Checkpoint::history).cloned().unwrap_or_default();
    let every = file.log.every.map(Into::into);
    let mut progress = Progress::new(output, *progress, &trainer, total_steps, every, history, &stop);
    let fitted =
        fit(&mut trainer, file, unfreeze, (&train, val.as_ref().or(test.as_ref())), run.as_mut(), &mut progress, &stop);
    let has_learned = progress.has_learned() || checkpoint.is_some();
    drop(progress);

    // What was learned is on disk before anything else can go wrong, and also where training could not go on. Where nothing was
    // learned, a file that is there already is worth more.
    let own = run.as_ref().map(RunFolder::weights);
    let (mut saved, mut unsaved) = (None, None);
    for path in save.as_deref().into_iter().chain(own.as_deref()).filter(|_| has_learned) {
        match keep(path, |path| trainer.with_averages(|trainer| weights::save(trainer, path, file))) {
            Ok(()) => saved = saved.or(Some(path)),
            Err(failure) => unsaved = unsaved.or(Some(failure)),
        }
    }
    let report = fitted.map_err(|error| after_saving(error.into(), saved, unsaved.as_ref()))?;
    let is_measured = source_of(&trainer, planned_before.as_ref()).is_some_and(|source| source.profile().is_some());
    let resumed_at = checkpoint.as_ref().map(Checkpoint::steps);
    let besides = Besides { saved, data_bytes, is_measured, run: run.as_ref(), resumed_at };
    tell_skipped(&train, output);
    let test = test.as_ref().or(val.as_ref());
    let mut concluded = conclude(&mut trainer, &report, test, &stop, besides, output);
    if let (Ok(0), Some(path)) = (&concluded, trace) {
        concluded = trace::measured(&mut trainer, &train, path, output).map(|()| 0);
    }
    // Where the parameters are matters more than whatever went wrong after that.
    unsaved.map_or(concluded, Err)
}

/// Whether data is read as it was when a training began: its classes, statistics and characters.
fn check_same(checkpoint: &Checkpoint, now: &Preprocessing) -> Result<(), Failure> {
    let before = Preprocessing::of_weights(checkpoint.path().join("model.safetensors"))?;
    match before {
        Some(before) if before != *now => {
            let what = if before.class_names != now.class_names { "its classes" } else { "what was learned of it" };
            Err(Failure::bad_input(format!(
                "{}: the data is not what the training began with, {what} would be other: give it the same data",
                checkpoint.path().display()
            )))
        }
        _ => Ok(()),
    }
}

/// Whether data, batches and what is offloaded are within the host budget.
fn check_host(trainer: &Trainer, memory: &LoaderMemory, file: &RunFile) -> Result<(), Failure> {
    let Some(budget) = file.data.host_budget else { return Ok(()) };
    let offloaded = trainer.plan().arena_bytes(ArenaRole::Host);
    if memory.total_bytes().saturating_add(offloaded) <= budget.0 {
        return Ok(());
    }
    let [data, offloaded, budget] = [memory.total_bytes(), offloaded, budget.0].map(format_bytes);
    Err(Failure::bad_input(format!(
        "data and batches take {data} of host memory and what is offloaded {offloaded}, more than the host budget of {budget}: allow more, or plan \
         --without offload"
    )))
}

/// Says how many samples could not be read.
fn tell_skipped(train: &DataLoader<'_>, output: &Output) {
    let skipped = train.skipped();
    if let Some(first) = skipped.first() {
        output.text(format_args!(
            "{} could not be read, others took their place: {first}",
            plural(skipped.len(), "sample")
        ));
        output.object(&json!({"event": "skipped", "samples": skipped.len(), "first": first}));
    }
}

/// Says which plan cannot be used.
fn not_usable(path: Option<&Path>, error: TrainError) -> Failure {
    match (path, error) {
        (Some(path), error @ TrainError::Plan(PlanError::Unusable(_))) => {
            Failure::bad_input(format!("{}: {error}", path.display()))
        }
        (_, error) => error.into(),
    }
}

/// A trainer that starts, or goes on from a checkpoint.
fn open_trainer(
    model: &Model,
    config: &Config,
    device: Option<&str>,
    checkpoint: Option<&Checkpoint>,
) -> Result<Trainer, TrainError> {
    match checkpoint {
        Some(checkpoint) => Trainer::resume(model.clone(), config.clone(), device, checkpoint),
        None => Trainer::new(model.clone(), config.clone(), device),
    }
}

/// Where a budget is too small for what is trained first, it is for what is trained later, too: that says what works.
fn of_all(error: TrainError, model: &Model, config: &Config, file: &RunFile) -> Failure {
    let Some(after) = file.model.unfreeze_after.filter(|_| is_infeasible(&error)) else { return error.into() };
    let later = Config { freeze: Vec::new(), train_only: Vec::new(), ..config.clone() };
    match Trainer::new(model.clone(), later, file.device()) {
        Err(later) if is_infeasible(&later) => prefixed(later, after),
        _ => error.into(),
    }
}

fn is_infeasible(error: &TrainError) -> bool {
    matches!(error, TrainError::Plan(PlanError::Infeasible { .. }))
}

fn prefixed(error: TrainError, after: Length) -> Failure {
    Failure::from(error).prefixed(format_args!("when all parameters are trained, after {after}"))
}

/// The plan of what is trained later, where that is still to come.
fn later(trainer: &Trainer, file: &RunFile, after: Length, output: &Output) -> Result<Option<Plan>, Failure> {
    if after.steps(u64::MAX) == 0 {
        return Err(Failure::bad_input("unfreeze_after: it must be a step or more after the first"));
    }
    // The model's file may say so, too; what resumes may be past it.
    let config = trainer.config();
    if [&file.model.freeze, &file.model.train_only, &config.freeze, &config.train_only]
        .iter()
        .all(|names| names.is_empty())
    {
        let text = "unfreeze_after: no parameters are frozen: name some by --freeze or --train-only";
        return Err(Failure::bad_input(text));
    }
    if trainer.frozen().is_empty() {
        return Ok(None);
    }
    let planned = planning(output, || Unfreeze::all(after).plan(trainer));
    Ok(Some(planned.map_err(|error| prefixed(error, after))?.plan))
}

fn tell_later(after: Length, plan: &Plan, output: &Output) {
    let (peak, time) = (format_bytes(plan.peak_bytes), format_ns(plan.predicted_step_ns as f64));
    output.text(format_args!(
        "after {after} all parameters are trained: planned peak {peak}, {}, predicted {time} a step\n",
        plural(plan.micro_batches.len(), "micro-batch")
    ));
    output.object(&json!({
        "event": "unfreeze", "after": after.to_string(), "planned_peak_bytes": plan.peak_bytes,
        "micro_batches": plan.micro_batches.len(), "predicted_step_ms": plan.predicted_step_ns as f64 / 1e6,
    }));
}

/// Says what a training goes on from.
fn go_on(trainer: &Trainer, checkpoint: &Checkpoint, output: &Output) {
    let (before, now) = (checkpoint.micro_batches(), trainer.plan().micro_batches.len());
    output.text(format_args!("resumed at step {}, from {}", checkpoint.steps(), checkpoint.path().display()));
    if before != now {
        let is_asked_for = trainer.config().micro_batches == Some(now);
        let why = if is_asked_for { "as is asked for" } else { "since no plan with as many meets the budget" };
        output.text(format_args!(
            "a step has {} in place of {before}, {why}: results are rounded otherwise from here on",
            plural(now, "micro-batch")
        ));
    }
    output.object(&json!({
        "event": "resume", "checkpoint": shown(checkpoint.path()), "step": checkpoint.steps(), "micro_batches": now,
        "same_split": before == now,
    }));
}

/// Takes the parameters to start from out of a file.
fn load(file: &RunFile, trainer: &mut Trainer, output: &Output) -> Result<(), Failure> {
    let Some(path) = &weights::of(file)? else { return Ok(()) };
    let loaded = if interop::is_foreign(path) {
        if file.model.skip_mismatched {
            return Err(Failure::bad_input(format!(
                "--skip-mismatched takes a safetensors file: `tightfit convert {} FILE.safetensors` makes one",
                path.display()
            )));
        }
        return weights::load(trainer, path, file);
    } else if file.model.skip_mismatched {
        trainer.load_matching(path)?
    } else {
        let Err(error) = trainer.load(path) else { return Ok(()) };
        // A head for other classes is new, and nothing else may be.
        let of_head = |loaded: &Loaded| loaded.missing.is_empty() && loaded.unexpected.is_empty();
        match file.model.outputs.map(|_| trainer.load_matching(path)) {
            Some(Ok(loaded)) if of_head(&loaded) => loaded,
            _ => return Err(error.into()),
        }
    };
    output.text(format_args!("{}: {loaded}\n", path.display()));
    let Loaded { loaded, missing, unexpected, mismatched } = loaded;
    let mismatched: Vec<_> = mismatched
        .iter()
        .map(|(name, found, expected)| json!({"name": name, "in_file": found, "in_model": expected}))
        .collect();
    output.object(&json!({
        "event": "weights",
        "weights": shown(path),
        "loaded": loaded.len(),
        "missing": missing,
        "unexpected": unexpected,
        "mismatched": mismatched,
    }));
    Ok(())
}

/// Trains, with all that was asked for besides.
fn fit(
    trainer: &mut Trainer,
    file: &RunFile,
    mut unfreeze: Option<Unfreeze>,
    (train, validation): (&DataLoader<'_>, Option<&DataLoader<'_>>),
    run: Option<&mut RunFolder>,
    progress: &mut Progress<'_>,
    stop: &Arc<AtomicBool>,
) -> Result<FitReport, TrainError> {
    let mut early = file.early_stopping.clone().map(StopEarly::new);
    let mut plateau = file.reduce_on_plateau.clone().map(LowerOnPlateau::new);
    let checkpoints = run.as_ref().map(|run| run.checkpoints(file));
    let mut logger = run.as_ref().map(|run| run.logger(file));
    let mut callbacks: Vec<&mut dyn Callback> = Vec::new();
    // What changes something comes before what tells it.
    callbacks.extend(unfreeze.iter_mut().map(|callback| callback as &mut dyn Callback));
    callbacks.extend(early.iter_mut().map(|callback| callback as &mut dyn Callback));
    callbacks.extend(plateau.iter_mut().map(|callback| callback as &mut dyn Callback));
    callbacks.extend(logger.iter_mut().map(|callback| callback as &mut dyn Callback));
    callbacks.extend(run.map(|callback| callback as &mut dyn Callback));
    callbacks.push(progress);
    let options = FitOptions {
        max_steps: file.steps(),
        stop: Some(Arc::clone(stop)),
        validation: validation.filter(|_| file.validates()).cloned(),
        callbacks,
        checkpoints,
        ..FitOptions::epochs(file.epochs())
    };
    trainer.fit(train, options)
}

/// A training that could not go on, with what became of its parameters.
fn after_saving(failure: Failure, saved: Option<&Path>, unsaved: Option<&Failure>) -> Failure {
    match (saved, unsaved) {
        (Some(path), _) => failure.and(format_args!("saved to {}", path.display())).with("saved", shown(path)),
        // A device that is lost says so once.
        (None, Some(unsaved)) if unsaved.message != failure.message => failure.and_also(unsaved),
        _ => failure,
    }
}

/// Tests the model, and says how it went.
fn conclude(
    trainer: &mut Trainer,
    report: &FitReport,
    test: Option<&DataLoader<'_>>,
    stop: &AtomicBool,
    besides: Besides<'_>,
    output: &Output,
) -> Result<u8, Failure> {
    if let Some(run) = besides.run {
        run.write_history(trainer, report)?;
    }
    let tested = match test.filter(|_| !report.interrupted) {
        Some(test) => Some(evaluate(trainer, test, stop, output)?),
        None => None,
    };
    let is_interrupted = report.interrupted || matches!(tested, Some(None));
    let exit_code = if is_interrupted { INTERRUPTED } else { 0 };
    summarize(trainer, report, tested.as_ref().map(Option::as_ref), besides, output)?;
    Ok(exit_code)
}

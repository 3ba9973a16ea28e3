//! Forward alone: predictions, and how good they are.

use std::collections::BTreeMap;
use std::ops::Range;
use std::thread;

use super::Trainer;
use super::step::{Given, run_words};
use crate::data::{Batch, DataLoader, EpochOptions};
use crate::error::{DataError, TrainError};
use crate::graph::Role;
use crate::tensor::{Shape, room};
use crate::train::evaluate::target_of;
use crate::train::fed::Fed;
use crate::train::metrics::{Metric, Sample, Target};
use crate::train::report::Evaluation;
use crate::train::source::OUTPUT;
use crate::train::tally::Tally;

/// What a model makes of some samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Its extents, samples first.
    pub shape: Shape,
    /// Its numbers, one sample after the other.
    pub values: Vec<f32>,
}

/// What is carried from batch to batch, where an evaluation begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carried {
    /// Zeros.
    Fresh,
    /// What the last prediction of this kind left.
    GoesOn,
}

/// What the model makes of one sample: its last output first, then those that have names.
type Outputs<'a> = [&'a [f32]];

/// What is done with that, and with the sample at a place of its batch.
type Visit<'a> = dyn FnMut(&Outputs<'_>, &Batch, usize) + 'a;

impl Trainer {
    /// Loss, accuracy and [metrics](crate::train::Config::metrics) on `data`, without training.
    ///
    /// # Errors
    /// Where the data does not fit the model or a metric, or the device fails.
    pub fn evaluate<'d>(&mut self, data: impl Into<DataLoader<'d>>) -> Result<Evaluation, TrainError> {
        Ok(self.evaluate_while(data, |_| true)?.expect("bug: it was not stopped"))
    }

    /// As [`evaluate`](Self::evaluate), with metrics of one's own besides. They go on from what they are.
    ///
    /// # Errors
    /// As [`evaluate`](Self::evaluate).
    pub fn evaluate_with<'d>(
        &mut self,
        data: impl Into<DataLoader<'d>>,
        metrics: &mut [&mut dyn Metric],
    ) -> Result<Evaluation, TrainError> {
        let evaluation = self.evaluate_on(&data.into(), metrics, &mut |_| true)?;
        Ok(evaluation.expect("bug: it was not stopped"))
    }

    /// As [`evaluate`](Self::evaluate), with the moving averages of the parameters where they are kept
    /// ([`Config::ema_decay`](crate::train::Config::ema_decay)).
    ///
    /// # Errors
    /// As [`evaluate`](Self::evaluate).
    pub fn evaluate_averaged<'d>(&mut self, data: impl Into<DataLoader<'d>>) -> Result<Evaluation, TrainError> {
        self.with_averages(|trainer| trainer.evaluate(data))
    }

    /// Does something with the moving averages in the place of the parameters, which are put back afterwards. Where no averages are
    /// kept, with the parameters as they are.
    ///
    /// # Errors
    /// Those of `function`, and where the device fails.
    pub fn with_averages<T>(
        &mut self,
        function: impl FnOnce(&mut Self) -> Result<T, TrainError>,
    ) -> Result<T, TrainError> {
        let parameters = self.put_averages()?;
        let result = function(self);
        for (name, bytes) in &parameters {
            self.executor.write(name, bytes)?;
        }
        result
    }

    /// As [`evaluate`](Self::evaluate), for as long as `go_on` says so: it is told the number of samples that are done, now and
    /// then. `None` where it stopped.
    ///
    /// # Errors
    /// As [`evaluate`](Self::evaluate).
    pub fn evaluate_while<'d>(
        &mut self,
        data: impl Into<DataLoader<'d>>,
        mut go_on: impl FnMut(usize) -> bool,
    ) -> Result<Option<Evaluation>, TrainError> {
        self.evaluate_on(&data.into(), &mut [], &mut go_on)
    }

    fn evaluate_on(
        &mut self,
        data: &DataLoader<'_>,
        own: &mut [&mut dyn Metric],
        go_on: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Option<Evaluation>, TrainError> {
        let (fed, objective) = (self.fed.clone(), self.objective.clone());
        let (_, output) = fed.heads().next().expect("bug: there is no loss");
        let kind = data.source_features()?.target();
        let format = objective.heads[0].loss.format(output, kind.classes());
        let mut tally = Tally::new(&fed, format.clone(), &kind, &self.config.metrics)?;
        let names = self.output_names();
        let places = objective.heads.iter().map(|head| {
            let name = if head.output.is_empty() { OUTPUT } else { &head.output };
            let place = names.iter().position(|output| output == name).expect("bug: an output that the plan lacks");
            (place, &*head.target)
        });
        let places: Vec<_> = places.collect();
        let mut visit = |outputs: &Outputs<'_>, batch: &Batch, at: usize| {
            let of_head = places.iter().map(|&(place, target)| (outputs[place], target_of(batch, target, at)));
            let sample: Vec<(&[f32], Target<'_>)> = of_head.collect();
            let weight = f64::from(objective.weight(batch, at));
            tally.add(&sample, weight);
            for metric in own.iter_mut() {
                metric.add(&Sample { weight, ..Sample::new(sample[0].0, sample[0].1, &format) });
            }
        };
        let all = self.predictions(data, &fed, Carried::Fresh, &mut visit, go_on)?;
        let (loss, accuracy, samples) = (tally.loss(), tally.accuracy(), tally.samples());
        if samples == 0 && all {
            let text = "no sample could be read, so there is nothing to evaluate".to_owned();
            return Err(DataError::Mismatch(text).into());
        }
        Ok(all.then(|| Evaluation { loss, accuracy, samples, metrics: tally.metrics() }))
    }

    /// What the model makes of all samples of `data`, which needs no targets.
    ///
    /// # Errors
    /// Where the data does not fit the model or the device fails.
    pub fn predict<'d>(&mut self, data: impl Into<DataLoader<'d>>) -> Result<Prediction, TrainError> {
        let mut outputs = self.predict_all(data)?;
        Ok(outputs.remove(OUTPUT).expect("bug: a model without an output"))
    }

    /// As [`predict`](Self::predict), of a model that carries something from batch to batch, such as the states of a stateful layer:
    /// it goes on from what the last call of this method left, and the first from zeros. [`reset_state`](Self::reset_state) begins
    /// anew.
    ///
    /// # Errors
    /// As [`predict`](Self::predict).
    pub fn predict_next<'d>(&mut self, data: impl Into<DataLoader<'d>>) -> Result<Prediction, TrainError> {
        let outputs = self.predict_on(data, Carried::GoesOn, &mut |_| true)?;
        let mut outputs = outputs.expect("bug: it was not stopped");
        Ok(outputs.remove(OUTPUT).expect("bug: a model without an output"))
    }

    /// As [`predict`](Self::predict), of all outputs by their names; `output` is that of the last layer.
    ///
    /// # Errors
    /// As [`predict`](Self::predict).
    pub fn predict_all<'d>(
        &mut self,
        data: impl Into<DataLoader<'d>>,
    ) -> Result<BTreeMap<String, Prediction>, TrainError> {
        Ok(self.predict_all_while(data, |_| true)?.expect("bug: it was not stopped"))
    }

    /// As [`predict_all`](Self::predict_all), for as long as `go_on` says so: it is told the number of samples that are done, now and
    /// then. `None` where it stopped.
    ///
    /// # Errors
    /// As [`predict`](Self::predict).
    pub fn predict_all_while<'d>(
        &mut self,
        data: impl Into<DataLoader<'d>>,
        mut go_on: impl FnMut(usize) -> bool,
    ) -> Result<Option<BTreeMap<String, Prediction>>, TrainError> {
        self.predict_on(data, Carried::Fresh, &mut go_on)
    }

    fn predict_on<'d>(
        &mut self,
        data: impl Into<DataLoader<'d>>,
        carried: Carried,
        go_on: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Option<BTreeMap<String, Prediction>>, TrainError> {
        let (data, fed) = (data.into(), self.fed.of_inputs());
        let program = self.evaluate_program();
        let graph = self.planned.graphs[program].clone();
        let mut predictions = Vec::new();
        for output in graph.values().iter().filter(|value| value.role == Role::Output) {
            let mut shape = output.desc.shape.to_vec();
            shape[0] = data.len().unwrap_or(0);
            let values = room(shape.iter().product()).map_err(DataError::from)?;
            predictions.push(Prediction { shape: shape.into(), values });
        }
        let mut samples = 0;
        let mut visit = |outputs: &Outputs<'_>, _: &Batch, _: usize| {
            samples += 1;
            for (prediction, output) in predictions.iter_mut().zip(outputs) {
                prediction.values.extend_from_slice(output);
            }
        };
        if !self.predictions(&data, &fed, carried, &mut visit, go_on)? {
            return Ok(None);
        }
        for prediction in &mut predictions {
            // Those that cannot be read are left out, and nobody knows before how many a stream has.
            let mut shape = prediction.shape.to_vec();
            shape[0] = samples;
            prediction.shape = shape.into();
        }
        Ok(Some(self.output_names().into_iter().zip(predictions).collect()))
    }

    fn evaluate_program(&self) -> usize {
        self.planned.plan.evaluate.expect("bug: the trainer's plan has no evaluate program")
    }

    /// Names of what the evaluate program makes, in the order in which it does.
    fn output_names(&self) -> Vec<String> {
        let outputs = self.planned.graphs[self.evaluate_program()].values().iter();
        let outputs = outputs.filter(|value| value.role == Role::Output);
        // That of the last layer has the name of its node.
        outputs.map(|value| value.name.strip_prefix("output.").unwrap_or(OUTPUT).to_owned()).collect()
    }

    /// Runs the evaluate program over `data`, where samples stand in that do not count in a last micro-batch that is not full. What training
    /// carries from batch to batch is as it was afterwards. Whether all samples were visited: `go_on` is asked after each micro-batch, with
    /// the number of those that were.
    fn predictions(
        &mut self,
        data: &DataLoader<'_>,
        fed: &Fed,
        from: Carried,
        visit: &mut Visit<'_>,
        go_on: &mut dyn FnMut(usize) -> bool,
    ) -> Result<bool, TrainError> {
        let is_checked_here = fed.check_all(data)?;
        let size = self.planned.plan.programs[self.evaluate_program()].samples;
        let carried = self.carried()?;
        let kept = std::mem::take(&mut self.predicted_state);
        self.reset_state()?;
        if from == Carried::GoesOn {
            for (name, data) in &kept {
                self.executor.write(name, data)?;
            }
        }
        // Sample i of a batch goes on from sample i of the one before, however a batch is cut.
        // What an epoch of a stream has does not depend on the plan, either.
        let batch = if carried.is_empty() && data.len().is_some() { size } else { self.config.batch };
        let mut done = 0;
        let result = thread::scope(|scope| {
            let mut batches = data.epoch(scope, EpochOptions::new(batch))?;
            while let Some(batch) = batches.next_batch()? {
                if is_checked_here {
                    fed.check_batch(&batch)?;
                }
                for start in (0..batch.len()).step_by(size) {
                    self.predict_part(&batch, start..start + size, visit)?;
                    done += size.min(batch.len() - start);
                    if !go_on(done) && data.len() != Some(done) {
                        return Ok(false);
                    }
                }
                batches.recycle(batch);
            }
            Ok(true)
        });
        self.predicted_state = if from == Carried::GoesOn { self.carried()? } else { kept };
        for (name, data) in carried {
            self.executor.write(&name, &data)?;
        }
        result
    }

    /// Runs the evaluate program on some samples of a batch.
    fn predict_part(&mut self, batch: &Batch, samples: Range<usize>, visit: &mut Visit<'_>) -> Result<(), TrainError> {
        let (program, size, count) = (self.evaluate_program(), samples.len(), batch.len());
        let first = samples.start;
        self.staging.fill(&self.planned.graphs[program], batch, &samples).map_err(DataError::from)?;
        let run = run_words(self.config.seed, self.steps, first);
        let given = Given { batch, staging: &self.staging, samples, run: &run, uniform: &[], weights: &[] };
        self.uploads += 1;
        self.executor.run(program, &given.inputs(&self.planned, program))?;
        let mut numbers = Vec::new();
        for output in self.executor.outputs(program)? {
            let mut values = room(output.len() / size_of::<f32>()).map_err(DataError::from)?;
            values.extend(output.chunks_exact(size_of::<f32>()).map(bytemuck::pod_read_unaligned::<f32>));
            numbers.push(values);
        }
        for place in 0..size.min(count - first) {
            let part = |numbers: &'_ Vec<f32>| numbers.len() / size * place..numbers.len() / size * (place + 1);
            let outputs: Vec<&[f32]> = numbers.iter().map(|numbers| &numbers[part(numbers)]).collect();
            visit(&outputs, batch, first + place);
        }
        Ok(())
    }
}

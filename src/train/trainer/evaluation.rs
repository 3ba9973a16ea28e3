//! Forward alone: predictions, and how good they are.

use std::collections::BTreeMap;

use super::Trainer;
use super::step::{inputs, run_words};
use crate::data::TensorDataset;
use crate::error::{DataError, TrainError};
use crate::graph::Role;
use crate::tensor::{Shape, room};
use crate::train::evaluate::TargetOf;
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

impl Trainer {
    /// Loss, accuracy and [metrics](crate::train::Config::metrics) on `data`, without training.
    ///
    /// # Errors
    /// Where the data does not fit the model or a metric, or the device fails.
    pub fn evaluate(&mut self, data: &TensorDataset) -> Result<Evaluation, TrainError> {
        Ok(self.evaluate_while(data, |_| true)?.expect("bug: it was not stopped"))
    }

    /// As [`evaluate`](Self::evaluate), with metrics of one's own besides. They go on from what they are.
    ///
    /// # Errors
    /// As [`evaluate`](Self::evaluate).
    pub fn evaluate_with(
        &mut self,
        data: &TensorDataset,
        metrics: &mut [&mut dyn Metric],
    ) -> Result<Evaluation, TrainError> {
        let evaluation = self.evaluate_on(data, metrics, &mut |_| true)?;
        Ok(evaluation.expect("bug: it was not stopped"))
    }

    /// As [`evaluate`](Self::evaluate), with the moving averages of the parameters where they are kept
    /// ([`Config::ema_decay`](crate::train::Config::ema_decay)).
    ///
    /// # Errors
    /// As [`evaluate`](Self::evaluate).
    pub fn evaluate_averaged(&mut self, data: &TensorDataset) -> Result<Evaluation, TrainError> {
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
    pub fn evaluate_while(
        &mut self,
        data: &TensorDataset,
        mut go_on: impl FnMut(usize) -> bool,
    ) -> Result<Option<Evaluation>, TrainError> {
        self.evaluate_on(data, &mut [], &mut go_on)
    }

    fn evaluate_on(
        &mut self,
        data: &TensorDataset,
        own: &mut [&mut dyn Metric],
        go_on: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Option<Evaluation>, TrainError> {
        self.fed.check(data, &(0..data.len()))?;
        let (fed, objective) = (self.fed.clone(), self.objective.clone());
        let (_, output) = fed.heads().next().expect("bug: there is no loss");
        let format = objective.heads[0].loss.format(output, data.targets());
        let mut tally = Tally::new(&fed, format.clone(), data.targets(), &self.config.metrics)?;
        let targets: Vec<_> = objective.heads.iter().map(|head| TargetOf::new(data, &head.target)).collect();
        let names = self.output_names();
        let places = objective.heads.iter().map(|head| {
            let name = if head.output.is_empty() { OUTPUT } else { &head.output };
            names.iter().position(|output| output == name).expect("bug: an output that the plan lacks")
        });
        let places: Vec<_> = places.collect();
        let mut visit = |outputs: &Outputs<'_>, at: usize| {
            let of_head = places.iter().zip(&targets).map(|(&place, target)| (outputs[place], target.of(at)));
            let sample: Vec<(&[f32], Target<'_>)> = of_head.collect();
            let weight = f64::from(objective.weight(data, at));
            tally.add(&sample, weight);
            for metric in own.iter_mut() {
                metric.add(&Sample { weight, ..Sample::new(sample[0].0, sample[0].1, &format) });
            }
        };
        let all = self.predictions(data, Carried::Fresh, &mut visit, go_on)?;
        let (loss, accuracy, samples) = (tally.loss(), tally.accuracy(), tally.samples());
        Ok(all.then(|| Evaluation { loss, accuracy, samples, metrics: tally.metrics() }))
    }

    /// What the model makes of all samples of `data`, which needs no targets.
    ///
    /// # Errors
    /// Where the data does not fit the model or the device fails.
    pub fn predict(&mut self, data: &TensorDataset) -> Result<Prediction, TrainError> {
        let mut outputs = self.predict_on(data, Carried::Fresh)?;
        Ok(outputs.remove(OUTPUT).expect("bug: a model without an output"))
    }

    /// As [`predict`](Self::predict), of a model that carries something from batch to batch, such as the states of a stateful layer:
    /// it goes on from what the last call of this method left, and the first from zeros. [`reset_state`](Self::reset_state) begins
    /// anew.
    ///
    /// # Errors
    /// As [`predict`](Self::predict).
    pub fn predict_next(&mut self, data: &TensorDataset) -> Result<Prediction, TrainError> {
        let mut outputs = self.predict_on(data, Carried::GoesOn)?;
        Ok(outputs.remove(OUTPUT).expect("bug: a model without an output"))
    }

    /// As [`predict`](Self::predict), of all outputs by their names; `output` is that of the last layer.
    ///
    /// # Errors
    /// As [`predict`](Self::predict).
    pub fn predict_all(&mut self, data: &TensorDataset) -> Result<BTreeMap<String, Prediction>, TrainError> {
        self.predict_on(data, Carried::Fresh)
    }

    fn predict_on(
        &mut self,
        data: &TensorDataset,
        carried: Carried,
    ) -> Result<BTreeMap<String, Prediction>, TrainError> {
        self.fed.check_samples(data, &(0..data.len()))?;
        let program = self.evaluate_program();
        let graph = self.planned.graphs[program].clone();
        let mut predictions = Vec::new();
        for output in graph.values().iter().filter(|value| value.role == Role::Output) {
            let mut shape = output.desc.shape.to_vec();
            shape[0] = data.len();
            let values = room(shape.iter().product()).map_err(DataError::from)?;
            predictions.push(Prediction { shape: shape.into(), values });
        }
        let mut visit = |outputs: &Outputs<'_>, _: usize| {
            for (prediction, output) in predictions.iter_mut().zip(outputs) {
                prediction.values.extend_from_slice(output);
            }
        };
        self.predictions(data, carried, &mut visit, &mut |_| true)?;
        Ok(self.output_names().into_iter().zip(predictions).collect())
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

    /// Runs the evaluate program over `data`; the last micro-batch is filled up with zeros. What training carries from batch to batch
    /// is as it was afterwards. Whether all samples were visited: `go_on` is asked after each micro-batch, with the number of those
    /// that were.
    fn predictions(
        &mut self,
        data: &TensorDataset,
        from: Carried,
        visit: &mut dyn FnMut(&Outputs<'_>, usize),
        go_on: &mut dyn FnMut(usize) -> bool,
    ) -> Result<bool, TrainError> {
        let program = self.evaluate_program();
        let size = self.planned.plan.programs[program].samples;
        let mut indices: Vec<usize> = room(data.len()).map_err(DataError::from)?;
        indices.extend(0..data.len());
        let carried = self.carried()?;
        let kept = std::mem::take(&mut self.predicted_state);
        self.reset_state()?;
        if from == Carried::GoesOn {
            for (name, data) in &kept {
                self.executor.write(name, data)?;
            }
        }
        // Sample i of a batch goes on from sample i of the one before, however a batch is cut.
        let batch = if carried.is_empty() { data.len() } else { self.config.batch };
        let micro_batches = indices.chunks(batch).flat_map(|batch| batch.chunks(size).enumerate());
        let mut done = 0;
        let mut numbers: Vec<Vec<f32>> = Vec::new();
        let mut evaluate = |(i, micro_batch): (usize, &[usize])| -> Result<bool, TrainError> {
            data.gather(micro_batch, &mut self.batch)?;
            self.batch.pad(micro_batch.len(), size);
            let run = run_words(self.config.seed, self.steps, i * size);
            let inputs = inputs(&self.planned, program, &self.batch, &run, &[], &[]);
            self.executor.run(program, &inputs)?;
            let outputs = self.executor.outputs(program)?;
            numbers.resize_with(outputs.len(), Vec::new);
            for (numbers, output) in numbers.iter_mut().zip(outputs) {
                numbers.clear();
                numbers
                    .try_reserve(output.len() / size_of::<f32>())
                    .map_err(|_| DataError::from(short(output.len())))?;
                numbers.extend(output.chunks_exact(size_of::<f32>()).map(bytemuck::pod_read_unaligned::<f32>));
            }
            for (place, &sample) in micro_batch.iter().enumerate() {
                let part = |numbers: &'_ Vec<f32>| numbers.len() / size * place..numbers.len() / size * (place + 1);
                let outputs: Vec<&[f32]> = numbers.iter().map(|numbers| &numbers[part(numbers)]).collect();
                visit(&outputs, sample);
            }
            done += micro_batch.len();
            Ok(go_on(done) || done == data.len())
        };
        // Until one fails, or is the last that was wanted.
        let result = micro_batches.map(&mut evaluate).find(|result| !matches!(result, Ok(true)));
        self.predicted_state = if from == Carried::GoesOn { self.carried()? } else { kept };
        for (name, data) in carried {
            self.executor.write(&name, &data)?;
        }
        result.unwrap_or(Ok(true))
    }
}

fn short(size_bytes: usize) -> crate::error::HostMemory {
    crate::error::HostMemory { size_bytes: size_bytes as u64 }
}

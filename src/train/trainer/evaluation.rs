//! Forward alone: predictions, and how good they are.

use super::super::evaluate::Tally;
use super::super::metrics::Target;
use super::super::report::Evaluation;
use super::Trainer;
use super::step::{inputs, run_words};
use crate::data::Dataset;
use crate::error::{DataError, TrainError};
use crate::tensor::room;

impl Trainer {
    /// Loss and accuracy on `data`, without training.
    ///
    /// # Errors
    /// Where the data does not fit the model or the device fails.
    pub fn evaluate(&mut self, data: &Dataset) -> Result<Evaluation, TrainError> {
        Ok(self.evaluate_while(data, |_| true)?.expect("bug: it was not stopped"))
    }

    /// As [`evaluate`](Self::evaluate), with the moving averages of the parameters where they are kept
    /// ([`Config::ema_decay`](crate::train::Config::ema_decay)).
    ///
    /// # Errors
    /// As [`evaluate`](Self::evaluate).
    pub fn evaluate_averaged(&mut self, data: &Dataset) -> Result<Evaluation, TrainError> {
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
        self.exchange_averages()?;
        let result = function(self);
        self.exchange_averages()?;
        result
    }

    /// As [`evaluate`](Self::evaluate), for as long as `go_on` says so: it is told the number of samples that are done, now and
    /// then. `None` where it stopped.
    ///
    /// # Errors
    /// As [`evaluate`](Self::evaluate).
    pub fn evaluate_while(
        &mut self,
        data: &Dataset,
        mut go_on: impl FnMut(usize) -> bool,
    ) -> Result<Option<Evaluation>, TrainError> {
        self.fed.check(&self.config.loss, data, &(0..data.len()))?;
        let loss = self.config.loss.clone();
        let mut tally = Tally::new(&loss, self.fed.output())?;
        let all = self.predictions(data, |prediction, target| tally.add(prediction, target), &mut go_on)?;
        let (loss, accuracy) = (tally.loss(), tally.accuracy());
        Ok(all.then_some(Evaluation { loss, accuracy, samples: data.len() }))
    }

    /// The model's outputs for all samples of `data`, one after the other.
    ///
    /// # Errors
    /// Where the data does not fit the model or the device fails.
    pub fn predict(&mut self, data: &Dataset) -> Result<Vec<f32>, TrainError> {
        self.fed.check_samples(data, &(0..data.len()))?;
        let numel = self.fed.output().numel();
        let mut predictions = room(data.len().saturating_mul(numel)).map_err(DataError::from)?;
        self.predictions(data, |prediction, _| predictions.extend_from_slice(prediction), &mut |_| true)?;
        Ok(predictions)
    }

    /// Runs the evaluate program over `data`; the last micro-batch is filled up with zeros. What is carried from batch to batch
    /// starts from zeros, and is as it was afterwards. Whether all samples were visited: `go_on` is asked after each
    /// micro-batch, with the number of those that were.
    fn predictions(
        &mut self,
        data: &Dataset,
        mut visit: impl FnMut(&[f32], Target<'_>),
        go_on: &mut dyn FnMut(usize) -> bool,
    ) -> Result<bool, TrainError> {
        let program = self.planned.plan.evaluate.expect("bug: the trainer's plan has no evaluate program");
        let size = self.planned.plan.programs[program].samples;
        let mut indices: Vec<usize> = room(data.len()).map_err(DataError::from)?;
        indices.extend(0..data.len());
        let carried = self.carried()?;
        self.reset_state()?;
        // Sample i of a batch goes on from sample i of the one before, however a batch is cut.
        let batch = if carried.is_empty() { data.len() } else { self.config.batch };
        let micro_batches = indices.chunks(batch).flat_map(|batch| batch.chunks(size).enumerate());
        let mut done = 0;
        let mut prediction = room(self.fed.output().numel()).map_err(DataError::from)?;
        let mut evaluate = |(i, micro_batch): (usize, &[usize])| -> Result<bool, TrainError> {
            data.gather(micro_batch, &mut self.batch)?;
            self.batch.pad(micro_batch.len(), size);
            let run = run_words(self.config.seed, self.steps, i * size);
            let inputs = inputs(&self.planned, program, &self.batch, &run, &[]);
            self.executor.run(program, &inputs)?;
            let output = &self.executor.outputs(program)?[0];
            for (bytes, &sample) in output.chunks(output.len() / size).zip(micro_batch) {
                prediction.clear();
                prediction.extend(bytes.chunks_exact(size_of::<f32>()).map(bytemuck::pod_read_unaligned::<f32>));
                visit(&prediction, Target::of(data.targets(), sample));
            }
            done += micro_batch.len();
            Ok(go_on(done) || done == data.len())
        };
        // Until one fails, or is the last that was wanted.
        let result = micro_batches.map(&mut evaluate).find(|result| !matches!(result, Ok(true)));
        for (name, data) in carried {
            self.executor.write(&name, &data)?;
        }
        result.unwrap_or(Ok(true))
    }
}

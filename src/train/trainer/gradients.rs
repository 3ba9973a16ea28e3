//! Gradients on request.

use std::collections::BTreeMap;

use super::Trainer;
use super::evaluation::Prediction;
use crate::autodiff::LOSS;
use crate::data::{Batch, Dataset};
use crate::error::TrainError;
use crate::graph::Role;
use crate::tensor::TensorDesc;
use crate::train::source::Purpose;

/// The loss of a batch and its gradients.
#[derive(Clone, Debug, PartialEq)]
pub struct Gradients {
    /// Mean loss.
    pub loss: f32,
    /// Of each parameter that is trained, by name.
    pub parameters: BTreeMap<String, (TensorDesc, Vec<f32>)>,
    /// Of the samples, where they are numbers: how the mean loss changes with each.
    pub input: Option<Prediction>,
}

impl Trainer {
    /// The loss of the samples at `indices`, a batch, and its gradients, of parameters and samples. Nothing is changed. It takes a
    /// trainer made [for gradients](Trainer::for_gradients).
    ///
    /// ```
    /// use tightfit::data::{TensorDataset, Values, Targets};
    /// use tightfit::nn::Sequential;
    /// use tightfit::train::{Config, DeviceSelector, Loss, Trainer};
    ///
    /// // y = w x, w = 3, and the loss (y − 0)² at x = 2: by w it is 2 · 6 · 2, by x 2 · 6 · 3.
    /// let model = Sequential::new("line", [1]).push(tightfit::nn::Linear::new(1).bias(false));
    /// let config = Config::default().batch(1).loss(Loss::Mse);
    /// let mut trainer = Trainer::for_gradients(model, config, DeviceSelector::Cpu)?;
    /// trainer.set_parameter("linear1.weight", &[3.0])?;
    /// let targets = Targets::Values { values: vec![0.0], shape: [1].into() };
    /// let found = trainer.gradients(&TensorDataset::new(Values::F32(vec![2.0]), [1], targets)?, &[0])?;
    /// assert_eq!(found.loss, 36.0);
    /// assert_eq!(found.parameters["linear1.weight"].1, [24.0]);
    /// assert_eq!(found.input.expect("of numbers").values, [36.0]);
    /// # Ok::<(), tightfit::error::TrainError>(())
    /// ```
    ///
    /// # Errors
    /// Where the data does not fit the model, the loss is not finite, or the device fails.
    pub fn gradients(&mut self, data: &dyn Dataset, indices: &[usize]) -> Result<Gradients, TrainError> {
        self.check_purpose(Purpose::Gradients)?;
        self.check_batch(indices.len())?;
        self.with_batch(data, indices, Trainer::gradients_of)
    }

    fn gradients_of(&mut self, batch: &Batch) -> Result<Gradients, TrainError> {
        self.fed.check_batch(batch)?;
        let mut of_input: Option<Prediction> = None;
        let graphs = self.planned.graphs.clone();
        self.submit(batch, false, &mut |executor, program, read| {
            executor.launch(program, read)?;
            let Some(output) = graphs[program].values().iter().find(|value| value.role == Role::Output) else {
                return Ok(());
            };
            let bytes = executor.outputs(program)?.swap_remove(0);
            let mut shape = output.desc.shape.to_vec();
            shape[0] = batch.len();
            let gradient = of_input.get_or_insert_with(|| Prediction { shape: shape.into(), values: Vec::new() });
            gradient.values.extend(bytes.chunks_exact(size_of::<f32>()).map(bytemuck::pod_read_unaligned::<f32>));
            Ok(())
        })?;
        // What stands in where a batch is short has none.
        if let Some(gradient) = &mut of_input {
            gradient.values.truncate(gradient.shape.numel());
        }
        let loss = self.finish(batch)?.loss;
        self.steps -= 1;
        self.schedule_step -= 1;
        let mut parameters = BTreeMap::new();
        let gradients = self.planned.plan.persistent.iter().filter(|value| value.role == Role::Accumulator);
        let gradients: Vec<_> =
            gradients.filter_map(|value| Some((value.name.strip_prefix("grad.")?.to_owned(), value.clone()))).collect();
        for (name, value) in gradients {
            let bytes = self.executor.read(&value.name)?;
            parameters.insert(name, (value.desc, bytemuck::pod_collect_to_vec(&bytes)));
        }
        debug_assert!(!parameters.contains_key(LOSS));
        Ok(Gradients { loss, parameters, input: of_input })
    }
}

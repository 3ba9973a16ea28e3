//! Where did a value stop being finite? Looks again at the step that failed; updates left the parameters as they were.

use super::fed::{self, Fed};
use crate::error::TrainError;
use crate::exec::Executor;
use crate::graph::{Phase, Role};
use crate::plan::Planned;
use crate::tensor::{DType, Shape};

/// Inputs of a program, by name.
pub(super) type Inputs = Vec<(String, Vec<u8>)>;

/// Where the first value is that is not finite.
#[derive(Clone, Debug)]
pub(super) enum Location {
    /// In what the model was given of a sample of the batch, at a place in it.
    Data { found: &'static str, input: String, sample: usize, at: String },
    /// In a parameter, before the step.
    Parameter { found: &'static str, name: String },
    /// In the output of a layer.
    Layer(String),
}

impl Location {
    /// It in words; `kept` is the last step whose update was applied.
    pub(super) fn words(&self, kept: u64) -> String {
        match self {
            Location::Data { found, input, sample, at } => {
                format!("{found} in the data: `{input}` of sample {sample}{at}")
            }
            Location::Parameter { found, name } if kept == 0 => {
                format!("{found} in the parameter `{name}`, before any update")
            }
            Location::Parameter { found, name } => {
                format!("{found} in the parameter `{name}`, made by an update of step {kept} or before")
            }
            Location::Layer(place) => place.clone(),
        }
    }

    /// What to say of a step whose loss is not finite; `kept` is the last one whose update was applied.
    pub(super) fn error(&self, step: u64, kept: u64, loss: f32) -> TrainError {
        let smaller_steps = "lower the learning rate or clip gradients";
        let advice = match self {
            Location::Data { .. } => {
                format!("mend that sample or leave it out (parameters are those of step {kept})")
            }
            Location::Parameter { .. } if kept == 0 => "set or load other values".to_owned(),
            Location::Parameter { .. } => {
                format!("what it was is lost: begin anew, or from a file saved before, and {smaller_steps}")
            }
            Location::Layer(_) if kept == 0 => {
                "no update was made yet: scale the data, or start from smaller parameters".to_owned()
            }
            Location::Layer(_) => format!("{smaller_steps} (parameters are those of step {kept})"),
        };
        TrainError::NonFinite { step, loss, place: self.words(kept), kept, advice }
    }
}

/// The first value that is not finite: a parameter, an input, or the output of the first layer to make one, on the way to the loss or,
/// where that is finite, to what becomes of gradients. `inputs` gathers the inputs of micro-batch `i`, which runs the given program;
/// those of samples are what `fed` knows.
pub(super) fn first_non_finite(
    planned: &Planned,
    executor: &mut dyn Executor,
    fed: &Fed,
    is_loss_finite: bool,
    mut inputs: impl FnMut(usize, usize) -> Result<Inputs, TrainError>,
) -> Result<Location, TrainError> {
    let parameter = non_finite_parameter(planned, executor)?;
    let mut first = 0;
    for (i, &program) in planned.plan.schedule.iter().enumerate() {
        let inputs = inputs(i, program)?;
        let graph = &planned.graphs[program];
        for (name, data) in inputs.iter().filter(|(name, _)| fed.takes(name)) {
            let Some(value) = graph.find(name).map(|id| graph.value(id)) else { continue };
            if let (Some((found, at)), DType::F32) = (non_finite(data), value.desc.dtype) {
                let shape = Shape::from(value.desc.shape.get(1..).unwrap_or_default());
                let numel = shape.numel().max(1);
                let (sample, at) = (first + at / numel, fed::place(&shape, at % numel));
                return Ok(Location::Data { found, input: name.clone(), sample, at });
            }
        }
        first += planned.plan.micro_batches[i];
        if parameter.is_some() {
            continue;
        }
        let borrowed: Vec<_> = inputs.iter().map(|(name, data)| (name.as_str(), &data[..])).collect();
        let mut place = None;
        let until = if is_loss_finite { Phase::Update } else { Phase::Forward };
        executor.inspect(program, &borrowed, until, &mut |graph, id, data| {
            let value = graph.value(id);
            let Some(node) = value.producer.map(|node| graph.node(node)) else { return true };
            // What does no harm to the loss may be meant, such as the infinity of a mask.
            if is_loss_finite && node.phase == Phase::Forward {
                return true;
            }
            if let (Some((found, _)), DType::F32) = (non_finite(data), value.desc.dtype) {
                place = Some(format!("{found} in the output of layer `{}` ({})", node.name, node.op.name()));
            }
            place.is_none()
        })?;
        if let Some(place) = place {
            return Ok(Location::Layer(place));
        }
    }
    Ok(parameter.unwrap_or_else(|| Location::Layer("not in any layer's output when computed again".to_owned())))
}

/// The first parameter that is not finite: an update was too large though its loss was finite.
pub(super) fn non_finite_parameter(
    planned: &Planned,
    executor: &mut dyn Executor,
) -> Result<Option<Location>, TrainError> {
    for parameter in planned.plan.persistent.iter().filter(|p| p.role == Role::Parameter) {
        let mut found = None;
        executor.read_pieces(&parameter.name, &mut |piece| found = found.or_else(|| non_finite(piece)))?;
        if let Some((found, _)) = found {
            return Ok(Some(Location::Parameter { found, name: parameter.name.clone() }));
        }
    }
    Ok(None)
}

/// What the first value is that is not finite, and which element.
fn non_finite(data: &[u8]) -> Option<(&'static str, usize)> {
    let values = data.chunks_exact(4).map(bytemuck::pod_read_unaligned::<f32>).enumerate();
    let mut found = values.filter(|(_, x)| !x.is_finite());
    found.next().map(|(at, x)| (if x.is_nan() { "NaN" } else { "infinity" }, at))
}

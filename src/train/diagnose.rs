//! Where did a value stop being finite? Looks again at the step that failed; updates left the parameters as they were.

use crate::error::TrainError;
use crate::exec::Executor;
use crate::graph::Role;
use crate::plan::Planned;
use crate::tensor::DType;

/// Inputs of a program, by name.
pub(super) type Inputs = Vec<(String, Vec<u8>)>;

/// Words for the first value that is not finite: a parameter, an input, or the output of the first layer to make one.
/// `inputs` gathers the inputs of micro-batch `i`, which runs the given program.
pub(super) fn first_non_finite(
    planned: &Planned,
    executor: &mut dyn Executor,
    mut inputs: impl FnMut(usize, usize) -> Result<Inputs, TrainError>,
) -> Result<String, TrainError> {
    if let Some(place) = non_finite_parameter(planned, executor)? {
        return Ok(place);
    }
    for (i, &program) in planned.plan.schedule.iter().enumerate() {
        let inputs = inputs(i, program)?;
        let graph = &planned.graphs[program];
        for (name, data) in &inputs {
            let is_float = graph.find(name).is_some_and(|id| graph.value(id).desc.dtype == DType::F32);
            if let Some(found) = non_finite(data).filter(|_| is_float) {
                return Ok(format!("{found} in the data (`{name}`)"));
            }
        }
        let borrowed: Vec<_> = inputs.iter().map(|(name, data)| (name.as_str(), &data[..])).collect();
        let mut place = None;
        executor.inspect(program, &borrowed, &mut |graph, id, data| {
            let value = graph.value(id);
            if let (Some(found), Some(node), DType::F32) = (non_finite(data), value.producer, value.desc.dtype) {
                let node = graph.node(node);
                place = Some(format!("{found} in the output of layer `{}` ({})", node.name, node.op.name()));
            }
            place.is_none()
        })?;
        if let Some(place) = place {
            return Ok(place);
        }
    }
    Ok("not in any layer's output when computed again".to_owned())
}

/// Words for the first parameter that is not finite: an update was too large though its loss was finite.
pub(super) fn non_finite_parameter(
    planned: &Planned,
    executor: &mut dyn Executor,
) -> Result<Option<String>, TrainError> {
    for parameter in planned.plan.persistent.iter().filter(|p| p.role == Role::Parameter) {
        let mut found = None;
        executor.read_pieces(&parameter.name, &mut |piece| found = found.or_else(|| non_finite(piece)))?;
        if let Some(found) = found {
            return Ok(Some(format!("{found} in the parameter `{}`, which an update made", parameter.name)));
        }
    }
    Ok(None)
}

fn non_finite(data: &[u8]) -> Option<&'static str> {
    let values = data.chunks_exact(4).map(bytemuck::pod_read_unaligned::<f32>);
    values.filter(|x| !x.is_finite()).map(|x| if x.is_nan() { "NaN" } else { "infinity" }).next()
}

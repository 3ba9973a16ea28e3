use std::collections::BTreeSet;
use std::sync::Arc;

use super::*;
use crate::error::OpError;
use crate::native::Level;
use crate::ops::stored::outputs_alone;
use crate::ops::{Backward, Builder, Case, Epilogue, Fill, SavedActivations};
use crate::tensor::{Half, ValueId};

/// What workspaces hold before they are written.
const POISON: f32 = f32::NAN;

/// The operands of a case: what a part takes some of is of 16 bits, the rest as the op has it.
fn operands(case: &Case, parts: &Parts) -> (Vec<TensorDesc>, Vec<Vec<u32>>) {
    let mut seed = 1_u32;
    let mut random = move || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        seed >> 8
    };
    let mut operand = |(i, (desc, fill)): (usize, &(TensorDesc, Fill))| {
        let is_cut = parts.inputs.get(i).is_none_or(Option::is_some);
        let mut desc = desc.clone();
        if desc.dtype == DType::F32 && desc.shape.len() > 1 && is_cut {
            desc.dtype = DType::BF16;
        }
        let mut words = vec![0; desc.words()];
        for k in 0..desc.numel() {
            let value = random() as f32 / (1 << 23) as f32 - 1.0;
            match (desc.dtype, fill) {
                (DType::BF16, _) => words[k / 2] |= u32::from(half::encode_one(Half::Bf16, value)) << (16 * (k % 2)),
                (DType::F32, _) => words[k] = (0.1 + value.abs()).to_bits(),
                (_, Fill::Labels(u32::MAX)) => words[k] = random() << 16 ^ random(),
                (_, Fill::Labels(labels)) => words[k] = random() % labels,
                _ => {}
            }
        }
        (desc, words)
    };
    case.inputs.iter().enumerate().map(&mut operand).unzip()
}

/// The outputs as f32, with parts of at most so many bytes; how many parts there were, and the bytes of conversions.
fn run(
    op: &dyn Op,
    (descs, words): &(Vec<TensorDesc>, Vec<Vec<u32>>),
    bytes: usize,
    in_place: Option<usize>,
) -> (Vec<Vec<f32>>, usize, u64) {
    let made = outputs_alone(op, descs).expect("accepted");
    let layout = Layout::with_parts_of(bytes, op, descs, &made);
    let cores = Cores::new(2, Level::best());
    let own = layout.shapes().map(|[inputs, outputs]| native::workspaces(op, &inputs, &outputs, Some(cores.threads())));
    let own = own.reduce(|most, sizes| most.iter().zip(sizes).map(|(&a, b)| a.max(b)).collect());
    let sizes = own.into_iter().flatten().chain(layout.sizes());
    let mut workspaces: Vec<_> = sizes.map(|bytes| vec![POISON; bytes.div_ceil(4) as usize]).collect();
    let mut outputs: Vec<_> = made.iter().map(|desc| vec![u32::MAX; desc.words()]).collect();
    if let Some(input) = in_place {
        outputs[0].copy_from_slice(&words[input]);
    }
    let inputs = descs.iter().zip(words).enumerate().map(|(i, (desc, words))| match desc.dtype {
        _ if in_place == Some(i) => Input::InPlace,
        DType::BF16 => Input::Half(halves(words, desc.numel()), Half::Bf16),
        DType::F32 => Input::Real(bytemuck::cast_slice(words)),
        _ => Input::Int(words),
    });
    let inputs = inputs.collect();
    let call_outputs = made.iter().zip(&mut outputs).map(|(desc, words)| match desc.dtype {
        DType::BF16 => Output::Half(&mut bytemuck::cast_slice_mut(words)[..desc.numel()], Half::Bf16),
        DType::F32 => Output::Real(bytemuck::cast_slice_mut(words)),
        _ => Output::Int(words),
    });
    let call_outputs = call_outputs.collect();
    let mut call = Call { input_descs: descs, output_descs: &made, inputs, outputs: call_outputs, mutated: Vec::new() };
    let slices = workspaces.iter_mut().map(|workspace| &mut **workspace).collect();
    layout.run(op, &mut call, &mut Resources { cores: &cores, workspaces: slices, epilogue: Epilogue::default() });
    let values = |(desc, words): (&TensorDesc, &Vec<u32>)| match desc.dtype {
        DType::BF16 => {
            let data = halves(words, desc.numel());
            data.iter().map(|&half| half::decode_one(Half::Bf16, half)).collect()
        }
        DType::F32 => words.iter().map(|&word| f32::from_bits(word)).collect(),
        _ => words.iter().map(|&word| word as f32).collect(),
    };
    let values = made.iter().zip(&outputs).map(values).collect();
    (values, layout.parts().count(), layout.sizes().sum())
}

fn halves(words: &[u32], count: usize) -> &[u16] {
    &bytemuck::cast_slice(words)[..count]
}

/// The ops that run, and their operands.
#[derive(Default)]
struct Tape {
    values: Vec<(TensorDesc, Fill)>,
    ops: Vec<(Arc<dyn Op>, Vec<ValueId>)>,
}

impl Tape {
    fn value(&mut self, desc: TensorDesc, fill: Fill) -> ValueId {
        self.values.push((desc, fill));
        ValueId(self.values.len() as u32 - 1)
    }
}

impl Builder for Tape {
    fn apply(&mut self, op: Arc<dyn Op>, inputs: &[ValueId]) -> Result<Vec<ValueId>, OpError> {
        let descs: Vec<_> = inputs.iter().map(|&id| self.desc(id).clone()).collect();
        let outputs = op.outputs(&descs)?;
        self.ops.push((op, inputs.to_vec()));
        // Indices of one element are those of any tensor.
        Ok(outputs.into_iter().map(|desc| self.value(desc, Fill::Labels(1))).collect())
    }

    fn apply_forward(&mut self, op: Arc<dyn Op>, inputs: &[ValueId]) -> Result<Vec<ValueId>, OpError> {
        self.apply(op, inputs)
    }

    fn desc(&self, value: ValueId) -> &TensorDesc {
        &self.values[value.0 as usize].0
    }
}

/// A case for each op of the backward of a case.
fn gradients(case: &Case) -> Vec<Case> {
    let mut tape = Tape::default();
    let inputs: Vec<_> = case.inputs.iter().map(|(desc, fill)| tape.value(desc.clone(), *fill)).collect();
    let outputs = tape.apply(case.op.clone(), &inputs).expect("accepted");
    if outputs.is_empty() || !case.wanted.contains(&true) {
        return Vec::new();
    }
    let grad = tape.value(tape.desc(outputs[0]).clone(), Fill::Normal);
    let grad_outputs: Vec<_> = (0..outputs.len()).map(|i| (i == 0).then_some(grad)).collect();
    let backward = Backward {
        inputs: &inputs,
        outputs: &outputs,
        grad_outputs: &grad_outputs,
        wanted: &case.wanted,
        saved: SavedActivations::Full,
        kept: &BTreeSet::new(),
    };
    if case.op.backward(&mut tape, &backward).is_err() {
        return Vec::new();
    }
    let case_of = |(op, inputs): &(Arc<dyn Op>, Vec<ValueId>)| Case {
        op: op.clone(),
        inputs: inputs.iter().map(|id| tape.values[id.0 as usize].clone()).collect(),
        wanted: vec![false; inputs.len()],
        ..case.clone()
    };
    tape.ops[1..].iter().map(case_of).collect()
}

#[test]
fn parts_make_what_the_whole_makes() {
    let (mut ops, mut cut, mut in_places) = (BTreeSet::new(), 0, 0);
    for entry in crate::ops::all() {
        let mut cases = (entry.cases)();
        // Gradients are ops of their own.
        cases.extend(cases.clone().iter().flat_map(gradients));
        for case in cases {
            let descs: Vec<_> = case.inputs.iter().map(|(desc, _)| desc.clone()).collect();
            let made = case.op.outputs(&descs).expect("accepted");
            let Some(parts) = case.op.native().and_then(|native| native.parts(&descs, &made)) else { continue };
            let operands = operands(&case, &parts);
            let name = format!("{}/{}", case.op.name(), case.name);
            let (expected, ..) = run(&*case.op, &operands, usize::MAX, None);
            let pairs = case.op.in_place().iter().filter(|&&(input, _)| operands.0[input].dtype == DType::BF16);
            for in_place in [None].into_iter().chain(pairs.map(|&(input, _)| Some(input))) {
                let (found, count, _) = run(&*case.op, &operands, 1, in_place);
                cut += usize::from(count > 1);
                in_places += usize::from(count > 1 && in_place.is_some());
                ops.insert(case.op.name());
                for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    let mean = expected.iter().map(|x| x.abs()).sum::<f32>() / expected.len() as f32;
                    for (k, (&x, &y)) in found.iter().zip(expected).enumerate() {
                        let close = (x - y).abs() <= 0.02 * (y.abs() + mean) || x.to_bits() == y.to_bits();
                        assert!(close, "{name}, output {i}, element {k}, {count} parts, {in_place:?}: {x}, not {y}");
                    }
                }
            }
        }
    }
    assert!(ops.len() >= 20 && cut > 100 && in_places > 20, "{cut} and {in_places} of {ops:?}");
}
